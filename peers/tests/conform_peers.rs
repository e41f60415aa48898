//! Goal: each part of the comparison has a row for each store that can take part, and no store
//! loses or mixes up a value unseen.
//!
//! Method: run the program at the smallest sizes, and read its JSON. Bad input is refused before
//! anything is made.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite-peers"));
    command.args(words).arg("--dir").arg(directory).output().expect("the program runs")
}

/// Of 4000 values, in rounds of 50 ms.
fn result(words: &[&str]) -> Value {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let small = ["--quick", "--keys", "4000", "--rounds", "1", "--round-time", "50ms", "--json"];
    let output = run(directory.path(), &[words, &small].concat());
    let (told, table) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{words:?}: {told}\n{table}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something is left");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {table}"))
}

fn rows<'r>(result: &'r Value, store: &str) -> Vec<&'r Value> {
    result["rows"].as_array().unwrap().iter().filter(|row| row["store"] == store).collect()
}

#[test]
fn all_stores_serve_values() {
    let result = result(&["values", "--clients", "1,4"]);
    for (store, kinds) in [("fulgurite", 2), ("redb", 1), ("fjall", 1), ("lmdb", 1), ("foyer", 1)] {
        let rows = rows(&result, store);
        // Numbers of clients, mixes.
        assert_eq!(rows.len(), kinds * 2 * 3, "{store}");
        for row in rows {
            assert!(row["requests"].as_u64().unwrap() > 0 && row["p99_us"].as_f64().unwrap() > 0.0, "{row}");
            assert!(store == "foyer" || row["lost"] == 0, "{row}");
            assert!(row["of_best_peer"]["median"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["written_per_byte_put"].is_null(), row["gets"] == 100, "{row}");
        }
    }
    let kept = result["stores"].as_array().unwrap();
    assert_eq!(kept.len(), 5);
    // A cache writes what leaves its memory, and that holds all of these.
    let is_kept = |one: &Value| one["store"] == "foyer" || one["flash_bytes"].as_u64().unwrap() > 4000 * 900;
    assert!(kept.iter().all(is_kept), "{kept:?}");
    assert!(kept.iter().all(|one| one["store"] == "foyer" || one["lost"] == 0), "{kept:?}");
}

#[test]
fn a_bank_keeps_its_sum_and_caches_have_none() {
    let result = result(&["bank"]);
    for store in ["fulgurite", "redb", "fjall", "lmdb"] {
        let rows = rows(&result, store);
        assert!(!rows.is_empty() && rows.iter().all(|row| row["requests"].as_u64().unwrap() > 0), "{store}");
    }
    assert!(rows(&result, "foyer").is_empty());
    let notes = result["setting"]["notes"].to_string();
    assert!(notes.contains("foyer, a cache has no row in bank"), "{notes}");
}

#[test]
fn objects_and_hits_are_measured() {
    let result = result(&["small", "hits"]);
    let simulated = result["simulated_hit_ratio"].as_f64().unwrap();
    assert!((0.1..1.0).contains(&simulated), "{simulated}");
    for store in ["fulgurite", "fulgurite-pages"] {
        let rows = rows(&result, store);
        assert!(rows.iter().any(|row| row["part"] == "small" && row["gets"] == 50), "{store}");
    }
    let hits = rows(&result, "fulgurite").into_iter().find(|row| row["part"] == "hits").unwrap();
    assert!(hits["hit_ratio"].as_f64().unwrap() > 0.99, "{hits}");
    assert!(result["hit_beyond_boxes_ns"]["median"].as_f64().is_some());
}

#[test]
fn bad_input_is_refused() {
    for (words, part) in [
        (&["--memory", "1M"][..], "needs 48 MiB"),
        (&["--zipf", "9"], "0 (uniform) to 4"),
        (&["--keys", "2000000000"], "may be needed"),
        (&["--peers", "rocksdb"], "invalid value 'rocksdb'"),
        (&["speed"], "invalid value 'speed'"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = run(directory.path(), words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(part), "{words:?}: {told}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
    let nowhere = Path::new("/nowhere/at/all");
    let output = run(nowhere, &["--quick"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
