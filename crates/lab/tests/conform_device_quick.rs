//! Goal: `device` ends at small sizes over memory, over NAND and in another process, with every
//! figure, mode, goal and shape. That process ends with the program, also by kill -9. Workloads run
//! on a served device. Method: run the program in an empty directory, read its JSON and drawing,
//! kill it and look for its child. Nothing that depends on the machine's speed is compared.

use std::process::{Command, Stdio};

use quick::{bench_and_table, number, rows, whole};
use serde_json::Value;
use served::Served;

use crate::quick;
use crate::served;

/// A spread's parts are in order, and can be; its median.
fn spread(of: &Value, key: &str) -> f64 {
    let (min, median, max) = (number(&of[key], "min"), number(&of[key], "median"), number(&of[key], "max"));
    assert!(min <= median && median <= max, "{key} of {of}");
    median
}

#[test]
fn the_papers_figures() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["device", "--rounds", "1", "--dir", "."];
    let (json, drawing, table) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    for row in rows {
        for key in ["us", "bytes_per_s", "chunks_per_s"] {
            assert!(spread(row, key) > 0.0, "{key} of {row}");
        }
        // Next to computing it is a difference, which may be none after so few chunks.
        let computes = row["way"].as_str().is_some_and(|way| way.ends_with("-computing"));
        let host_cpu_ns = spread(row, "host_cpu_ns");
        assert!(host_cpu_ns > 0.0 || computes && host_cpu_ns == 0.0, "{row}");
        assert!(number(row, "chunks") > 0.0);
        // A chunk's time and the throughput say the same.
        let product = spread(row, "us") * spread(row, "bytes_per_s") / 1e6;
        assert!((0.99..1.01).contains(&(product / number(row, "chunk_bytes"))), "{row}");
        // What is productive is a part of all, where it is measured separately at all.
        if !row["host_productive_ns"].is_null() {
            assert!(spread(row, "host_productive_ns") <= spread(row, "host_cpu_ns"), "{row}");
        }
        assert!(spread(row, "other_cpu_ns") >= 0.0, "{row}");
    }
    let of = |figure: &str, way: &str| rows.iter().filter(|r| r["figure"] == figure && r["way"] == way).count();
    for (figure, ways, count) in [
        (
            "interface",
            &[
                "copy",
                "device-bypassed",
                "copy-near",
                "device-bypassed-near",
                "device",
                "process-bypassed",
                "process",
                "file",
            ][..],
            8,
        ),
        (
            "depth",
            &[
                "device-bypassed",
                "device",
                "device-computing",
                "device-copies",
                "process-bypassed",
                "process",
                "process-copies",
                "file",
                "file-asleep",
                "file-computing",
            ],
            6,
        ),
        ("buffer", &["device", "nand", "nand-dma"], 24),
        ("chunk", &["device", "nand", "file"], 32),
    ] {
        for way in ways {
            assert_eq!(of(figure, way), count, "{figure} {way}");
        }
    }
    // Only devices have an overhead over copies, and the paper's words stand where they apply.
    let added: Vec<&Value> = rows.iter().filter(|r| !r["overhead_us"].is_null()).collect();
    assert_eq!(added.len(), 5 * 8);
    assert!(added.iter().all(|r| spread(r, "overhead_share") < 1.0));
    assert_eq!(rows.iter().filter(|r| !r["paper"].is_null()).count(), 6);
    let computing = |r: &&Value| r["way"].as_str().unwrap().ends_with("-computing");
    let polled = |r: &&Value| r["figure"] == "depth" && !computing(r);
    assert!(rows.iter().filter(polled).all(|r| !r["host_productive_ns"].is_null()));
    assert_eq!(json["setting"]["goals"].as_array().unwrap().len(), 9);
    let shapes = json["setting"]["shapes"].as_array().unwrap();
    assert_eq!(shapes.len(), 7 + 7 + 3, "{shapes:?}");
    for medium in ["device", "nand"] {
        assert_eq!(shapes.iter().filter(|shape| shape["medium"] == medium).count(), 7);
    }
    // NAND was read and written, and no rule of it was broken.
    let did = &json["setting"]["nand_did"];
    assert!(number(did, "reads") > 0.0 && number(did, "programs") > 0.0, "{did}");
    assert_eq!(number(did, "violations"), 0.0, "{did}");
    for part in [
        "Protocol: reads",
        "66.8%",
        "436 MB/s",
        "at depth 32",
        "in another process",
        "at least 1,000,000: ",
        "productive",
    ] {
        assert!(table.contains(part), "no \"{part}\" in {table}");
    }
    let left: Vec<_> = directory.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "out.json" || name == "out.svg"), "{left:?}");
}

#[test]
fn one_figure_alone_and_without_nand() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["device", "--rounds", "2", "--dir", ".", "--figure", "interface"];
    let (json, drawing, _) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    assert!(rows.iter().all(|row| row["figure"] == "interface" && row["rounds"] == 2));
    assert_eq!((rows.len(), json["setting"]["shapes"].as_array().unwrap().len()), (8 * 8, 0));
    assert!(json["setting"]["nand_did"].is_null());
}

#[test]
fn the_device_in_another_process_ends_with_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["device", "--quick", "--dir", ".", "--figure", "depth", "--rounds", "1000"];
    let mut program = Command::new(crate::PROGRAM)
        .args(words)
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    // Its child is there when its sockets are.
    let files = || directory.path().read_dir().unwrap().map(|e| e.unwrap().path());
    let there = || files().any(|files| files.join("memory.sock").exists());
    let begun = std::time::Instant::now();
    while !there() {
        assert!(begun.elapsed().as_secs() < 60 && program.try_wait().unwrap().is_none(), "it did not begin");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let children = format!("/proc/{0}/task/{0}/children", program.id());
    let child = std::fs::read_to_string(children).unwrap().split_whitespace().next().map(str::to_owned);
    program.kill().unwrap();
    program.wait().unwrap();
    let child = child.expect("the program has a child");
    // An ended process may stay a zombie until its new parent waits for it.
    let lives = || {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while lives() {
        assert!(begun.elapsed().as_secs() < 120, "the device's process lives on");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn workloads_run_on_a_device_in_another_process_which_may_have_the_frames() {
    let directory = tempfile::tempdir().unwrap();
    let live = |more: &[&'static str]| {
        let words = ["live", "--flash", "device:dev.sock", "--workload", "tatp", "--data", "48M", "--dram", "8M"];
        let rest = ["--config", "dram-only,fulgurite", "--rounds", "1", "--round-time", "20ms"];
        [&words[..], &rest, more].concat()
    };
    for shared in [false, true] {
        let _served = Served::start(directory.path(), &["--size", "128M"]);
        let (json, ..) = bench_and_table(directory.path(), &live(if shared { &["--share-frames"] } else { &[] }));
        let rows = rows(&json, "rows");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["work_hash"], rows[1]["work_hash"], "{json}");
        let flash = rows[1]["flash"].as_str().unwrap();
        assert_eq!(flash.contains("which has the frames"), shared, "{flash}");
        assert!(number(&rows[1], "device_reads") > 0.0, "{json}");
    }
    // The kernel could still write to frames of a file's device that has died.
    let _served = Served::start(directory.path(), &["--size", "128M", "--data", "data"]);
    for (words, part) in [
        (live(&["--share-frames"]), "takes no frames"),
        (vec!["live", "--flash", "memory", "--share-frames"], "--share-frames needs --flash device:SOCKET"),
    ] {
        let refused = Command::new(crate::PROGRAM)
            .args(&words)
            .current_dir(directory.path())
            .output()
            .expect("the program starts");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

/// All default configurations, each on a part of the device, or on none. Parts that are too small
/// say how much they need.
#[test]
fn benchmarks_run_on_a_device_in_another_process_by_default() {
    let directory = tempfile::tempdir().unwrap();
    const FLASH: [&str; 2] = ["--flash", "device:dev.sock"];
    let live = ["live", "--workload", "array-swap,tatp", "--data", "24M", "--dram", "8M"];
    const SHORT: [&str; 4] = ["--rounds", "1", "--round-time", "20ms"];
    let live = [&live[..], &SHORT, &FLASH].concat();
    let tail = [&["tail", "--data", "24M", "--dram", "8M", "--loads", "50"][..], &FLASH].concat();
    let _served = Served::start(directory.path(), &["--size", "200M"]);
    for words in [&live, &tail] {
        let (json, ..) = bench_and_table(directory.path(), words);
        assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{words:?}: {}", json["failed"]);
        let on_device = json.to_string().matches("at dev.sock").count();
        assert!(on_device > 0 || words[0] == "tail", "{words:?}: nothing ran on the device: {json}");
    }
    // Four of these are on it: neither dram-only nor fixed-latency is.
    let refused = Command::new(crate::PROGRAM)
        .args(["live", "--workload", "tatp", "--data", "64M", "--dram", "8M"])
        .args(["--config", "dram-only,fulgurite,fifo,flash-sync,fixed-latency,priority-aging"])
        .args(FLASH)
        .current_dir(directory.path())
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    for part in ["for each of 4 configurations", "take 256.0 MiB", "serve a larger one"] {
        assert!(message.contains(part), "the message lacks \"{part}\": {message}");
    }
}
