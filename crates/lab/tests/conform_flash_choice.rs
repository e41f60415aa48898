//! Goal: benchmarks in their own process run on any flash, and name it. Pools of `live` and `tail`
//! run on NAND and on served devices. What cannot be is refused by name before anything is created.
//! Method: run each at small sizes on a model of NAND, a file, and other processes' devices, with
//! and without a store, and read the JSON. For refusals check code, message and directory. A device
//! with a budget is written to, flushed, attached to until it refuses, and asked for its state.

use std::path::Path;
use std::sync::Arc;

use fulgurite_device::{DeviceFlash, HostConfig, SocketLink};
use quick::{bench_and_table, number, rows, whole};
use refused::{entries, refused, run};
use serde_json::Value;
use served::Served;

use crate::quick;
use crate::refused;
use crate::served;

const DEVICE: &str = "device:dev.sock";

const CHECKPOINT: [&str; 9] = ["checkpoint", "--dir", ".", "--data", "8M", "--interval", "10ms", "--checkpoints", "2"];

/// The program itself compares what was kept with the memory. Here: its place, and that a device
/// with a store made the sync.
fn checkpoint(directory: &Path, flash: &str, in_device: bool, medium: &str) {
    let before = entries(directory);
    let words = [&CHECKPOINT[..], &["--dram", "8M", "--flash", flash]].concat();
    let (json, drawing, told) = bench_and_table(directory, &words);
    whole(&json, &drawing);
    let setting = &json["setting"];
    assert_eq!((&setting["flash"], &setting["syncs_in_a_device"]), (&flash.into(), &in_device.into()), "{setting}");
    assert!(setting["medium"].as_str().unwrap().contains(medium) && told.contains(medium), "{setting}");
    let rows = rows(&json, "rows");
    assert!(rows.iter().all(|row| row["work_hash"] == rows[0]["work_hash"]), "{rows:?}");
    let sync = rows.iter().find(|row| row["way"] == "sync").unwrap();
    assert!(number(&sync["checkpoints"], "median") > 0.0 && number(&sync["durable_ms"], "min") > 0.0, "{sync}");
    assert!(number(sync, "written_bytes_per_checkpoint") > 0.0, "{sync}");
    assert_eq!(sync["restored_updates"].as_array().map(Vec::len), Some(1), "{sync}");
    std::fs::remove_file(directory.join("out.json")).unwrap();
    std::fs::remove_file(directory.join("out.svg")).unwrap();
    assert_eq!(entries(directory), before, "something was left");
}

#[test]
fn checkpoints_are_kept_on_nand() {
    let directory = tempfile::tempdir().unwrap();
    checkpoint(directory.path(), "nand:slc", false, "NAND");
}

#[test]
fn checkpoints_are_kept_by_a_served_store_and_in_a_pool_on_a_served_device() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), &["--size", "300M"]);
    checkpoint(directory.path(), DEVICE, false, "at dev.sock");
    drop(served);
    for store in [&["--size", "64M", "--store"][..], &["--size", "32M", "--nand", "slc"]] {
        let served = Served::start(directory.path(), store);
        // What lay there is written over, run after run.
        (0..2).for_each(|_| checkpoint(directory.path(), DEVICE, true, "the store of the device at dev.sock"));
        // The last state has a name, and nobody is left in the device.
        let link = SocketLink::connect(&directory.path().join("dev.sock"), false).unwrap().names_states().unwrap();
        let device = DeviceFlash::over(Arc::new(link), HostConfig::default());
        device.begin().unwrap();
        assert!(device.kept_tokens().unwrap().last().is_some_and(|&token| token > 0));
        let words = [&CHECKPOINT[..], &["--quick", "--flash", DEVICE]].concat();
        let output = run(directory.path(), &words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains("in use by another program"), "{message}");
        drop(device);
        drop(served);
    }
}

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
        assert!(json[figure].is_number() || notes.contains("what a miss costs is not told"), "{figure}: {json}");
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
    for (row, config) in rows[1..].iter().zip(configs) {
        assert_eq!((&row["config"], &row["work_hash"]), (&(*config).into(), &rows[0]["work_hash"]), "{row}");
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
    let rows = pools(directory.path(), "nand:slc", &["fulgurite", "pool", "pool-unchecked"], "NAND");
    for row in &rows[1..] {
        assert!(number(&row["nand"], "page_reads") > 0.0, "{row}");
        assert_eq!(number(&row["nand"], "violations"), 0.0, "{row}");
    }
    let _served = Served::start(directory.path(), &["--size", "420M"]);
    pools(directory.path(), DEVICE, &["fulgurite", "pool", "pool-unchecked", "pool-on-device"], "at dev.sock");
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
    let checkpoint = |words: &[&str], parts: &[&str]| {
        refused(at, &[&CHECKPOINT[..], &["--quick"], words].concat(), parts);
    };
    for refused in [&micro as &dyn Fn(&[&str], &[&str]), &checkpoint] {
        refused(&["--flash=./missing"], &["./missing does not exist", "--create"]);
        refused(&["--flash=."], &["is a directory"]);
        refused(&["--flash=nand:slc", "--create"], &["--create needs --flash FILE"]);
        refused(&["--flash=nand:mcl"], &["did you mean \"mlc\""]);
        refused(&["--flash=nand:./none.toml"], &["none.toml", "cannot be read"]);
        refused(&["--flash=memory", "--share-frames"], &["--share-frames needs --flash device:SOCKET"]);
        refused(&["--flash=device:none.sock"], &["none.sock"]);
        refused(&["--create"], &["--flash"]);
    }
    let served = Served::start(at, &["--size", "12M", "--data", "data.img"]);
    for refused in [&micro as &dyn Fn(&[&str], &[&str]), &checkpoint] {
        refused(&["--flash", DEVICE], &["the device at dev.sock has 12.0 MiB", "serve a larger one"]);
        refused(&["--flash", DEVICE, "--share-frames"], &["takes no frames"]);
    }
    drop(served);
    let _served = Served::start(at, &["--size", "32M", "--nand", "slc"]);
    for config in ["pool", "pool-unchecked", "pool-on-device"] {
        refused(at, &live(DEVICE, config), &["a store of its own", "without --nand and --store"]);
    }
    let words = ["checkpoint", "--quick", "--data=24M", "--flash", DEVICE];
    refused(at, &words, &["the device at dev.sock has 32.0 MiB", "48.0 MiB"]);
}
