//! Goal: `alloc --quick` runs a program of SSDAlloc's evaluation in each configuration, in
//! the same DRAM and with the same data at the end, and says what it did. Method: run the smallest
//! one, and read the JSON, the drawing and the table. No figure is compared to a target.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::quick::{bench_and_table, is_left_out, number, rows, whole};
use crate::refused::refused;

/// All configurations in a full run, else one of each kind.
fn configs() -> &'static [&'static str] {
    let all = &[
        "object-per-page",
        "memory-page",
        "os-swap",
        "blobs",
        "object-per-page-compatible",
        "memory-page-in-line",
        "mmap",
    ];
    if fulgurite_testkit::is_full() { all } else { &all[..4] }
}

/// Runs programs on little data in all configurations. Those that this machine cannot run are said.
fn run(directory: &Path, words: &[&str]) {
    let list = configs().join(",");
    let all = ["alloc", "--dir", ".", "--data", "40M", "--dram", "4M", "--config", &list];
    let (json, drawing, told) = bench_and_table(directory, &[&all, words].concat());
    whole(&json, &drawing);
    let notes = json["setting"]["notes"].to_string();
    let all = rows(&json, "rows");
    let workloads: BTreeSet<&str> = all.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    for workload in workloads {
        let hashes: BTreeSet<String> =
            all.iter().filter(|row| row["workload"] == workload).map(|row| row["work_hash"].to_string()).collect();
        assert!(hashes.len() == 1 && !hashes.contains("null"), "{workload}: {hashes:?}");
        for config in configs().iter().copied() {
            let is_this = |row: &&Value| row["workload"] == workload && row["config"] == config;
            let these: Vec<&Value> = all.iter().filter(is_this).collect();
            assert!(!these.is_empty() || is_left_out(config, &told), "{config}: {notes}");
            these.into_iter().for_each(|row| assert_whole(row, config));
        }
    }
    assert!(told.contains("x memory-page") && told.contains("Zipf 0.99, 50/50"), "{told}");
    let costs = rows(&json, "overhead");
    assert!(!costs.is_empty() || notes.contains("was not measured"), "{notes}");
    for cost in costs {
        assert!(number(&cost["ns"], "median") >= 0.0 && told.contains(cost["what"].as_str().unwrap()), "{cost}");
    }
    let combined: Vec<f64> = costs.iter().filter_map(|cost| cost["ratio_to_bare"].as_f64()).collect();
    assert!(costs.is_empty() || combined.len() == 2 && combined.iter().all(|ratio| *ratio > 0.5), "{combined:?}");
    let left: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

fn assert_whole(row: &Value, config: &str) {
    for key in ["ops_per_s", "p50_us", "p99_us", "p999_us", "cpu_us_per_op", "lines_changed"] {
        assert!(number(row, key) > 0.0, "{key} of {row}");
    }
    assert!((0.0..=1.0).contains(&number(row, "hit_ratio")) && number(row, "bytes_written") >= 0.0, "{row}");
    assert!(config == "blobs" || number(row, "lines_changed") * 4.0 < number(row, "lines"), "{row}");
    assert!(row["peak_bytes"].is_null() || number(row, "peak_bytes") <= number(row, "dram_bytes"), "{row}");
    assert!(row["of_disk"].is_null() || number(row, "of_disk") > 0.0, "{row}");
    // All of it does not fit.
    assert!(number(row, "faults") > 0.0, "{row}");
}

#[test]
fn one_program_in_each_configuration() {
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), &["--workload", "packet-cache", "--requests", "1000"]);
}

#[test]
fn each_program_in_each_configuration() {
    // Volume is for `make test-full`.
    if !fulgurite_testkit::is_full() {
        return println!("SKIPPED: it takes a minute; make test-full");
    }
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), &["--workload", "array,slab-cache,b-plus-tree,hash-cache"]);
}

#[test]
fn settings_that_make_no_sense() {
    let directory = tempfile::tempdir().unwrap();
    let bench = |words: &[&str], parts: &[&str]| {
        refused(directory.path(), &[&["alloc", "--quick"], words].concat(), parts);
    };
    bench(&["--data", "64M", "--dram", "60M"], &["hold all of", "less --dram"]);
    bench(&["--workload", "arrays"], &["no program \"arrays\"", "did you mean \"array\""]);
    bench(&["--config", "objects-per-page"], &["did you mean \"object-per-page\""]);
    bench(&["--dir", "nowhere"], &["--dir", "nowhere"]);
}
