//! Goal: the store's benchmarks, and NVMM's workloads on a pool, end at small sizes, with every key
//! and possible numbers. Method: run each into files in an empty directory, and read the JSON and
//! the drawing. Only figures that do not depend on speed are compared.

use std::path::Path;

use quick::{bench_and_table, number, rows, whole};
use serde_json::Value;

use crate::quick;

/// Runs the program in a directory, and returns its JSON and its drawing, which are whole.
fn bench(directory: &Path, words: &[&str]) -> (Value, String) {
    let (json, drawing, _) = bench_and_table(directory, words);
    whole(&json, &drawing);
    (json, drawing)
}

/// A spread's parts are in order; its median.
fn spread(of: &Value, key: &str) -> f64 {
    let (min, median, max) = (number(&of[key], "min"), number(&of[key], "median"), number(&of[key], "max"));
    assert!(min <= median && median <= max, "{key} of {of}");
    median
}

/// Nothing but the results is left.
fn tidy(directory: &Path) {
    let left: Vec<_> = directory.read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "out.json" || name == "out.svg"), "{left:?}");
}

#[test]
fn overwrites_and_the_medium() {
    let directory = tempfile::tempdir().unwrap();
    let (json, drawing) = bench(directory.path(), &["store"]);
    let counted = rows(&json, "rows");
    assert_eq!(counted.len(), 3);
    for row in counted {
        for key in ["written", "simulated", "metadata_per_write", "bytes_per_byte", "dram_share_filled", "dram_share"] {
            assert!(number(row, key) > 0.0, "{key}");
        }
        // Nothing of this is timed: what the store adds to its policy is the same on every machine.
        // Where some subpages are hotter, its open extents by heat are less than the policy alone.
        let (ratio, amplification) = (number(row, "ratio"), number(row, "amplification"));
        match row["pattern"].as_str().unwrap() {
            "sequential" => assert!((0.9..1.1).contains(&ratio) && amplification < 1.001, "{row}"),
            "uniform" => assert!((0.9..1.1).contains(&ratio) && amplification > 1.5, "{row}"),
            _ => assert!(ratio < 1.1 && amplification > 1.2, "{row}"),
        }
    }
    let timed = rows(&json, "beside_medium");
    let kinds: Vec<&str> = timed.iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["random reads", "a few random reads", "sequential writes", "random writes"]);
    for row in timed {
        let (raw, pool, ratio) = (spread(row, "raw_per_s"), spread(row, "pool_per_s"), spread(row, "ratio"));
        assert!(raw > 0.0 && pool > 0.0 && ratio > 0.0, "{row}");
        assert!(row["flash"].as_str().unwrap().starts_with("emulated"), "{row}");
        let reads = row["kind"].as_str().unwrap().ends_with("random reads");
        assert_eq!(row["device_writes_per_write"].is_null(), reads, "{row}");
        assert_eq!((row["summed_per_s"].is_null(), row["of_summed"].is_null()), (!reads, !reads), "{row}");
        assert!(!reads || spread(row, "summed_per_s") > 0.0 && spread(row, "of_summed") > 0.0, "{row}");
        // What was written reached the medium, and so did the journal.
        assert!(reads || number(row, "device_writes_per_write") > 1.0, "{row}");
        assert!(drawing.contains(row["kind"].as_str().unwrap()));
    }
    tidy(directory.path());
}

#[test]
fn recovery() {
    let directory = tempfile::tempdir().unwrap();
    for flash in ["memory", "./pool.flash"] {
        let mut words = vec!["store", "--recovery", "--size", "128M", "--flash", flash];
        if flash != "memory" {
            words.push("--create");
        }
        let (json, drawing) = bench(directory.path(), &words);
        assert_eq!(json["setting"]["mode"], "recovery");
        let rows = rows(&json, "rows");
        assert_eq!(rows.len(), 1, "{words:?}");
        let row = &rows[0];
        assert_eq!(number(row, "pool_bytes"), f64::from(128 << 20), "{row}");
        assert_eq!(number(row, "dirty_subpages"), 8192.0, "{row}");
        // All that was dirtied since the checkpoint is in the journal, at most a page of subpages
        // in a record.
        assert_eq!(number(row, "checkpoints_meanwhile"), 0.0, "{row}");
        assert!(number(row, "records") >= 8192.0 / 16.0, "{row}");
        let (recover, total) = (spread(row, "recover_s"), spread(row, "total_s"));
        assert!(recover > 0.0 && total >= recover, "{row}");
        assert!(number(row, "dram_bytes") > 0.0 && number(row, "rounds") == 3.0, "{row}");
        assert!(drawing.contains("128.0 MiB, 8,192 dirty"), "{drawing}");
        tidy(directory.path());
    }
}

#[test]
fn a_file_that_a_benchmark_has_used_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pool.flash");
    std::fs::File::create(&file).unwrap().set_len(96 << 20).unwrap();
    let recovery = ["store", "--recovery", "--size", "64M", "--flash", "./pool.flash"];
    let live = ["live", "--workload", "array-swap", "--config", "pool", "--data", "16M", "--dram", "8M"];
    let live = [&live[..], &["--flash", "./pool.flash"]].concat();
    // What each leaves on the file is a pool, and of no use to anybody.
    for words in [&recovery[..], &recovery, &live, &live, &recovery] {
        bench(directory.path(), words);
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len(), 96 << 20, "{words:?}: the file that was named is kept");
        assert!(bytes[..8192].windows(8).any(|w| w == b"of bench"), "{words:?} has left what it is not known by");
    }
}

#[test]
fn sync() {
    let directory = tempfile::tempdir().unwrap();
    for flash in ["emulated", "./pool.flash"] {
        let mut words = vec!["store", "--sync", "--size", "64M", "--flash", flash];
        if flash != "emulated" {
            words.push("--create");
        }
        let (json, _) = bench(directory.path(), &words);
        assert_eq!(json["setting"]["mode"], "sync");
        let rows = rows(&json, "rows");
        // The medium, the store, and for each number of workers a program by itself and under load.
        let workers = json["setting"]["workers"].as_array().expect("a list").len();
        let sizes = [4u64 << 10, 1 << 20, 4 << 20];
        let ways = 2 + 2 * workers;
        assert_eq!(rows.len(), sizes.len() * ways);
        for (number_of, row) in rows.iter().enumerate() {
            let (of_size, way) = (number_of % ways, row["way"].as_str().unwrap());
            let dirty = number(row, "dirty_bytes") as u64;
            assert_eq!(dirty, sizes[number_of / ways]);
            match of_size {
                0 => assert_eq!(way, "device"),
                1 => assert_eq!(way, "store"),
                _ => assert_eq!((&way[..6], way.ends_with(", load")), ("sync, ", of_size % 2 == 1), "{way}"),
            }
            let (total, longest) = (spread(row, "total_ms"), number(&row["total_ms"], "max"));
            assert!(total > 0.0 && (total..=longest).contains(&number(row, "p99_ms")), "{row}");
            assert_eq!(row["beyond_device_ms"].is_null(), way == "device", "{row}");
            assert_eq!(row["gate_ms"].is_null(), of_size < 2, "{row}");
            assert!(of_size < 2 || (0.0..=longest).contains(&spread(row, "gate_ms")), "{row}");
            if of_size == 1 && dirty > sizes[1] && flash != "emulated" {
                assert!(number(row, "request_bytes") > 4096.0, "neighbours go out together: {row}");
            }
            let rounds = if dirty <= sizes[1] { 30.0 } else { 3.0 };
            assert_eq!(number(row, "rounds"), rounds, "{row}");
        }
        tidy(directory.path());
    }
}

#[test]
fn gups_and_mmap() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["live", "--workload", "gups,mmap-bench", "--mix", "0,100", "--config", "fulgurite,pool"];
    let (json, _) =
        bench(directory.path(), &[&words[..], &["--data", "32M", "--dram", "8M", "--work", "1us"]].concat());
    let rows = rows(&json, "rows");
    assert_eq!(rows.len(), 9);
    for rows in rows.chunks(3) {
        let (dram_only, name) = (&rows[0], &rows[0]["workload"]);
        assert_eq!(dram_only["config"], "dram-only");
        for row in rows {
            // Both did the same requests, and their data came out the same.
            assert_eq!(row["work_hash"], dram_only["work_hash"], "{row}");
            assert_eq!(number(&row["calibration"], "zipf"), 0.0, "{name}: no place is popular");
        }
        for row in &rows[1..] {
            assert!((0.5..1.1).contains(&number(row, "misses_per_op")), "{name}: {row}");
            let writes = number(row, "device_writes");
            assert_eq!(writes > 100.0, name == "gups", "{name}: {row}");
        }
    }
}

#[test]
fn checksums_have_a_row() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["live", "--workload", "gups", "--config", "on-device,pool,pool-unchecked,pool-on-device"];
    let (json, drawing, told) =
        bench_and_table(directory.path(), &[&words[..], &["--data", "32M", "--dram", "8M"]].concat());
    whole(&json, &drawing);
    let mut rows = rows(&json, "rows").to_vec();
    assert!(rows.iter().all(|row| row["work_hash"] == rows[0]["work_hash"]), "{rows:?}");
    // Flat, and behind a device as well.
    let flat = rows.remove(1);
    assert_eq!(flat["config"], "on-device");
    assert!(flat["flash"].as_str().unwrap().starts_with("device in this process, emulated flash"), "{flat}");
    let configs: Vec<_> = rows.iter().map(|row| row["config"].as_str().unwrap()).collect();
    assert_eq!(configs, ["dram-only", "pool", "pool-unchecked", "pool-on-device"]);
    assert!([0, 2, 3].iter().all(|row| rows[*row]["checksums"].is_null()));
    let on_device = rows[3]["flash"].as_str().unwrap();
    assert!(on_device.starts_with("device in this process, pool of"), "{on_device}");
    let checksums = &rows[1]["checksums"];
    let least = spread(&rows[2], "share_of_dram_only") - spread(&rows[1], "share_of_dram_only") - 1.0;
    assert!((least..1.0).contains(&spread(checksums, "share_of_dram_only")), "{checksums}");
    let more = number(&rows[1], "cpu_us_per_op") - number(&rows[2], "cpu_us_per_op");
    assert!((number(checksums, "cpu_us_per_op") - more).abs() < 1e-6, "{checksums}");
    // In its line, or where the table is too wide for the page in the one below.
    let (_, after) = told.split_once("its checksums").unwrap_or_else(|| panic!("{told}"));
    assert!(!after.contains("its checksums") && after.lines().take(2).any(|line| line.contains('%')), "{told}");
}
