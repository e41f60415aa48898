//! Goal: benchmarks in their own process run on any flash, and name it. Pools of `bench live` and
//! `bench tail` run on NAND and on served devices. What cannot be is refused by name before
//! anything is created. A served device keeps to its DRAM budget. Method: run each at small sizes
//! on a model of NAND, a file, and other processes' devices, with and without a store, and read the
//! JSON. For refusals look at code, message and directory. A device with a budget is written to,
//! flushed, attached to until it refuses, and asked for its state.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_device::{DeviceFlash, HostConfig, SocketLink};
use fulgurite_format::SUBPAGE_BYTES;
use quick::{bench_and_table, number, rows, whole};
use refused::{entries, refused, run};
use serde_json::Value;
use served::Served;

use crate::quick;
use crate::refused;
use crate::served;

const DEVICE: &str = "device:dev.sock";

const CHECKPOINT: [&str; 10] =
    ["bench", "checkpoint", "--dir", ".", "--data", "8M", "--interval", "10ms", "--checkpoints", "2"];

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
    let words = ["bench", "micro", "--config", "miss", "--rounds", "1", "--data", "64M", "--flash", flash];
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
    let directory = tempfile::tempdir_in(Path::new(env!("CARGO_BIN_EXE_fulgurite")).parent().unwrap()).unwrap();
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
    let words = [&["bench", "live", "--flash", flash, "--config", &list], &SMALL[..]].concat();
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
    let tail = ["bench", "tail", "--data", "24M", "--dram", "8M", "--loads", "50", "--config", "dram-only,pool"];
    let (json, ..) = bench_and_table(directory.path(), &[&tail[..], &["--flash", DEVICE]].concat());
    assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{json}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let live = |flash: &'static str, config: &'static str| -> Vec<&'static str> {
        [&["bench", "live", "--flash", flash, "--config", config], &SMALL[..]].concat()
    };
    refused(at, &live("nand:slc", "pool-on-device"), &["fulgurite is a pool in a device", "--config fulgurite"]);
    refused(at, &live("nand:slc", "pool,on-device"), &["leave on-device out"]);
    let micro = |words: &[&str], parts: &[&str]| {
        refused(at, &[&["bench", "micro", "--quick"], words].concat(), parts);
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
    let words = ["bench", "checkpoint", "--quick", "--data=24M", "--flash", DEVICE];
    refused(at, &words, &["the device at dev.sock has 32.0 MiB", "48.0 MiB"]);
    // A budget of DRAM that the store does not fit into, and nothing was made.
    for below in [&["--store"][..], &["--nand", "slc"], &["--write-cache", "4M"]] {
        let words =
            [&["device", "serve", "--socket", "s", "--size", "64M", "--data", "d", "--dram", "2M"], below].concat();
        refused(at, &words, &["--dram 2.0 MiB is too little", "64.0 MiB needs at least", "give more"]);
    }
}

/// How the device stands: DRAM in use, what it may come to, its budget.
fn dram(directory: &Path) -> (f64, f64, f64) {
    let output = run(directory, &["device", "info", "--socket", "dev.sock", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    (number(&info, "dram_taken_bytes"), number(&info, "dram_bytes"), number(&info, "dram_budget_bytes"))
}

/// Sixteen entirely different states exceed their part of the budget, so the oldest go. Queue pairs
/// are opened until one is refused. Once they are closed there is room again.
#[test]
fn a_served_device_keeps_to_its_budget_of_dram() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["--size", "96M", "--store", "--keep-tokens", "16", "--dram", "5M"];
    let mut served = Served::start(directory.path(), &words);
    let budget = f64::from(5 << 20);
    let keeps = || {
        let (taken, most, bound) = dram(directory.path());
        assert!(0.0 < taken && taken <= most && most <= bound && bound == budget, "{taken} {most} {bound}");
        taken
    };
    let empty = keeps();
    let host = || {
        let link = SocketLink::connect(&directory.path().join("dev.sock"), false).unwrap();
        DeviceFlash::over(Arc::new(link), HostConfig::default())
    };
    let flash = host();
    let mut commands = flash.commands(4, 64).unwrap();
    let (mut largest, mut tokens) = (0.0f64, 0);
    for state in 0..20u8 {
        for first in (0..4096).step_by(64) {
            commands.write(first, &[state; 64 * SUBPAGE_BYTES]).unwrap();
        }
        commands.sync().unwrap();
        tokens = commands.tokens().unwrap().len();
        largest = largest.max(keeps());
    }
    assert!(largest > empty, "{largest} {empty}");
    assert!(
        (1..16).contains(&tokens),
        "{tokens} states of 4,096 subpages each are kept, whose checksums alone take more"
    );
    let mut newest = vec![0; 64 * SUBPAGE_BYTES];
    commands.read(0, &mut newest).unwrap();
    assert!(newest.iter().all(|byte| *byte == 19));
    let mut pairs = Vec::new();
    let refusal = loop {
        match flash.commands(4, 64) {
            Ok(pair) => pairs.push(pair),
            Err(error) => break format!("{:#}", anyhow::Error::new(error)),
        }
        keeps();
        assert!(pairs.len() < 64, "there is no end of queue pairs");
    };
    assert!(refusal.contains("of the device's DRAM") && refusal.contains("--dram"), "{refusal}");
    pairs.clear();
    let begun = Instant::now();
    while let Err(error) = flash.commands(4, 64) {
        assert!(begun.elapsed() < Duration::from_secs(20), "no room again: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((commands, flash));
    served.signal(rustix::process::Signal::INT);
    assert!(served.child.wait().unwrap().success());
    let mut told = String::new();
    served.told.read_to_string(&mut told).unwrap();
    assert!(told.contains("commands"), "{told}");
}
