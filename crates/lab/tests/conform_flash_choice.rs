//! Goal: benchmarks in their own process run on any flash, and name it. Pools of `live` and `tail`
//! run on NAND and on served devices. What cannot be is refused by name before anything is created.
//! Method: run each at small sizes on a model of NAND, a file, and other processes' devices, with
//! and without a store, and read the JSON. For refusals check code, message and directory.

use std::path::Path;

use fulgurite_testkit::is_full;
use quick::{bench_and_table, number, rows, whole};
use refused::{entries, refused};
use serde_json::Value;
use served::Served;

use crate::quick;
use crate::refused;
use crate::served;

const DEVICE: &str = "device:dev.sock";

fn micro(directory: &Path, flash: &str, more: &[&str], medium: &str) {
    let words = ["micro", "--config", "miss", "--rounds", "1", "--data", "64M", "--flash", flash];
    let (json, drawing, told) = bench_and_table(directory, &[&words[..], more].concat());
    whole(&json, &drawing);
    let setting = &json["setting"];
    assert_eq!(setting["flash"], flash, "{setting}");
    assert!(setting["medium"].as_str().unwrap().contains(medium) && told.contains(medium), "{setting}");
    for figure in ["hit_request_ns", "miss_p50_ns", "miss_p99_ns", "job_ns"] {
        assert!(number(&json, figure) > 0.0, "{figure}: {json}");
    }
    let notes = setting["notes"].to_string();
    for figure in ["miss_cpu_ns", "miss_cpu_write_ns"] {
        assert!(json[figure].is_number() || notes.contains("what a miss costs is not shown"), "{figure}: {json}");
    }
    std::fs::remove_file(directory.join("out.json")).unwrap();
    std::fs::remove_file(directory.join("out.svg")).unwrap();
}

#[test]
fn misses_are_measured_on_any_flash() {
    let directory = tempfile::tempdir_in(Path::new(crate::PROGRAM).parent().unwrap()).unwrap();
    micro(directory.path(), "emulated", &[], "emulated");
    micro(directory.path(), "nand:slc", &[], "NAND");
    micro(directory.path(), "./flash", &["--create"], "flash");
    assert_eq!(entries(directory.path()), [""; 0], "the file was left");
    let _served = Served::start(directory.path(), &["--size", "64M"]);
    micro(directory.path(), DEVICE, &[], "at dev.sock");
    micro(directory.path(), DEVICE, &["--share-frames"], "at dev.sock");
}

const SMALL: [&str; 10] =
    ["--data", "24M", "--dram", "8M", "--workload", "tatp", "--rounds", "1", "--round-time", "20ms"];

/// The rows of pools: the same work as in plain memory, each with its name.
fn pools(directory: &Path, flash: &str, configs: &[&str], describes: &str) -> Vec<Value> {
    let list = [&["dram-only"], configs].concat().join(",");
    let words = [&["live", "--flash", flash, "--config", &list], &SMALL[..]].concat();
    let (json, drawing, _) = bench_and_table(directory, &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows").clone();
    assert_eq!(rows.len(), configs.len() + 1, "{rows:?}");
    for config in configs {
        let row = rows.iter().find(|row| row["config"] == *config).expect(config);
        assert_eq!(row["work_hash"], rows[0]["work_hash"], "{row}");
        let flash = row["flash"].as_str().unwrap();
        assert!(flash.contains(describes), "{flash}");
        // The store is the worker's, or a device's.
        let on_device = flash.contains("device in this process");
        assert_eq!(
            on_device,
            *config == "pool-on-device" || (flash.contains("NAND") && *config == "fulgurite"),
            "{flash}"
        );
        assert!(number(row, "device_reads") > 0.0, "{row}");
    }
    rows
}

#[test]
fn pools_run_on_nand_and_on_a_served_device() {
    let directory = tempfile::tempdir().unwrap();
    let configs = ["fulgurite", "pool", "pool-unchecked"];
    let rows = pools(directory.path(), "nand:slc", if is_full() { &configs[..] } else { &configs[..2] }, "NAND");
    for row in &rows[1..] {
        assert!(number(&row["nand"], "page_reads") > 0.0, "{row}");
        assert_eq!(number(&row["nand"], "violations"), 0.0, "{row}");
    }
    let _served = Served::start(directory.path(), &["--size", "420M"]);
    let configs = ["pool", "pool-on-device", "fulgurite", "pool-unchecked"];
    pools(directory.path(), DEVICE, if is_full() { &configs[..] } else { &configs[..2] }, "at dev.sock");
    let tail = ["tail", "--data", "24M", "--dram", "8M", "--loads", "50", "--config", "dram-only,pool"];
    let (json, ..) = bench_and_table(directory.path(), &[&tail[..], &["--flash", DEVICE]].concat());
    assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{json}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let live = |flash: &'static str, config: &'static str| -> Vec<&'static str> {
        [&["live", "--flash", flash, "--config", config], &SMALL[..]].concat()
    };
    refused(at, &live("nand:slc", "pool-on-device"), &["fulgurite is a pool in a device", "--config fulgurite"]);
    refused(at, &live("nand:slc", "pool,on-device"), &["leave on-device out"]);
    let micro = |words: &[&str], parts: &[&str]| {
        refused(at, &[&["micro", "--quick"], words].concat(), parts);
    };
    micro(&["--data=24M"], &["--data 24.0 MiB", "a power of two"]);
    micro(&["--data=32M"], &["--data 32.0 MiB", "8 times the DRAM"]);
    micro(&["--flash=nand:slc", "--config=switch,hit"], &["--config names none", "add miss"]);
    micro(&["--flash=./missing"], &["./missing does not exist", "--create"]);
    micro(&["--flash=."], &["is a directory"]);
    micro(&["--flash=nand:slc", "--create"], &["--create needs --flash FILE"]);
    micro(&["--flash=nand:mcl"], &["did you mean \"mlc\""]);
    micro(&["--flash=nand:./none.toml"], &["none.toml", "cannot be read"]);
    micro(&["--flash=memory", "--share-frames"], &["--share-frames needs --flash device:SOCKET"]);
    micro(&["--flash=device:none.sock"], &["none.sock"]);
    micro(&["--create"], &["--flash"]);
    let served = Served::start(at, &["--size", "12M", "--data", "data.img"]);
    micro(&["--flash", DEVICE], &["the device at dev.sock has 12.0 MiB", "serve a larger one"]);
    micro(&["--flash", DEVICE, "--share-frames"], &["takes no frames"]);
    drop(served);
    let _served = Served::start(at, &["--size", "32M", "--nand", "slc"]);
    for config in ["pool", "pool-unchecked", "pool-on-device"] {
        refused(at, &live(DEVICE, config), &["a store of its own", "without --nand and --store"]);
    }
}
