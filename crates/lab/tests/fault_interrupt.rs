//! Goal: Ctrl-C ends every long command soon, with exit code 130, its results on standard output
//! and in the JSON, and nothing left behind. Method: start the command, wait for a certain line and
//! a moment longer, and interrupt. Check the code, table, JSON, directory, cgroups and swap. With
//! root and cgroups, kernel paging takes part.

use std::time::Duration;

use fulgurite_testkit::is_full;

use crate::interrupted::{Left, interrupt};

/// What a benchmark prints once it has calibrated.
const CALIBRATED: &str = "Zipf exponent";

/// Interrupts a calibrated benchmark, which always has results to keep. Returns its table and JSON.
fn interrupted(words: &[&str], moment: Duration) -> (String, serde_json::Value) {
    let words: Vec<&str> = words.iter().copied().chain(["--dir=."]).collect();
    let left = interrupt(&words, Some(CALIBRATED), moment);
    assert_eq!(left.files, ["out.json"], "{words:?} left something");
    (left.printed, left.json.expect("the JSON was written"))
}

fn whole(json: &serde_json::Value) {
    assert_eq!(json["interrupted"], serde_json::json!(true));
    for row in json["rows"].as_array().expect("rows") {
        let share = &row["share_of_dram_only"];
        assert!(share.is_null() || share["median"].as_f64().is_some_and(|s| s > 0.0), "a share of nothing: {row}");
        // Other work may have disturbed `tail`'s rounds to the point that none makes a figure.
        let too_disturbed = row["too_disturbed"] == serde_json::json!(true);
        assert!(too_disturbed || row["rounds"].as_u64().is_some_and(|n| n > 0), "{row}");
    }
}

#[test]
fn live() {
    for moment in [0, 2500] {
        whole(&interrupted(&["live", "--quick", "--rounds=200"], Duration::from_millis(moment)).1);
    }
    // So few configurations that rounds have ended, later on a machine that does much else.
    let words = ["live", "--quick", "--rounds=1000", "--work=0", "--workload=hash-table"];
    let words = [&words[..], &["--config=fulgurite", "--data=64M", "--dram=8M"]].concat();
    let (printed, _) = [5, 15, 45]
        .map(Duration::from_secs)
        .into_iter()
        .map(|moment| interrupted(&words, moment))
        .inspect(|(_, json)| whole(json))
        .find(|(_, json)| json["rows"].as_array().is_some_and(|rows| rows.len() == 2))
        .expect("rounds of both that have ended are kept");
    for part in ["ops/s", "p99 µs", "hash-table", "dram-only", "fulgurite"] {
        assert!(printed.contains(part), "the table lacks \"{part}\": {printed}");
    }
}

#[test]
fn policies() {
    let left = interrupt(&["policies"], None, Duration::from_secs(3));
    assert_eq!(left.files, ["out.json"]);
    let json = left.json.unwrap();
    assert_eq!(json["interrupted"], serde_json::json!(true));
    assert!(left.printed.contains("Misses per access"), "{}", left.printed);
    // What was replayed is whole.
    for row in json["rows"].as_array().unwrap() {
        assert!(row["miss_ratio"].as_f64().is_some_and(|ratio| (0.0..=1.0).contains(&ratio)), "{row}");
    }
}

#[test]
fn tail() {
    whole(&interrupted(&["tail", "--quick", "--rounds=200", "--data=64M", "--dram=8M"], Duration::ZERO).1);
    let words = ["tail", "--quick", "--rounds=200", "--data=64M", "--dram=8M", "--config=fulgurite"];
    let (_, json) = interrupted(&words, Duration::from_secs(5));
    whole(&json);
    let rows = json["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "loads that were offered are kept");
    assert!(rows.iter().all(|row| row["misses_per_op"].is_number() && row.get("work_hash").is_some()), "{rows:?}");
}

/// What an interruption in the midst of rows leaves: whole rows, each printed by this key.
fn kept(left: &Left, key: &str) -> usize {
    assert_eq!(left.files, ["out.json"]);
    let json = left.json.as_ref().expect("the JSON was written");
    assert_eq!(json["interrupted"], serde_json::json!(true));
    let rows = json["rows"].as_array().expect("rows");
    for row in rows {
        let name = row[key].as_str().unwrap_or_else(|| panic!("{key} is no word in {row}"));
        assert!(left.printed.contains(name), "the table lacks {name}: {}", left.printed);
    }
    rows.len()
}

#[test]
fn micro() {
    for seconds in if is_full() { [0, 8] } else { [0, 2] } {
        let words = ["micro", "--quick", "--rounds=1000"];
        let left = interrupt(&words, None, Duration::from_millis(300 + seconds * 1000));
        kept(&left, "name");
        for row in left.json.unwrap()["rows"].as_array().unwrap() {
            assert!(row["rounds"].as_array().is_some_and(|rounds| !rounds.is_empty()), "{row}");
        }
    }
    // One measure that takes milliseconds: rounds have ended.
    let left = interrupt(&["micro", "--rounds=1000", "--config=switch"], None, Duration::from_secs(2));
    assert!(kept(&left, "name") > 0, "rounds that have ended are kept: {}", left.printed);
}

#[test]
fn store() {
    // While it counts overwrites.
    let left = interrupt(&["store"], None, Duration::from_secs(3));
    kept(&left, "pattern");
    let modes = [("--recovery", "--size=256M", 5), ("--sync", "--size=1G", 15)];
    for (mode, size, seconds) in if is_full() { &modes[..] } else { &modes[..1] }.iter().copied() {
        let words = ["store", mode, "--flash=./pool.flash", "--create", "--rounds=1000"];
        // While the file is made: there is nothing to keep.
        let left = interrupt(&[&words[..], &["--size=2G"]].concat(), None, Duration::from_millis(200));
        assert!(left.files.is_empty() || left.files == ["out.json"], "{mode} left {:?}", left.files);
        // And while it measures, later where the disk is slow.
        let json = [1, 3, 9]
            .map(|times| Duration::from_secs(times * seconds))
            .into_iter()
            .map(|moment| interrupt(&[&words[..], &[size]].concat(), None, moment))
            .inspect(|left| assert!(left.files.is_empty() || left.files == ["out.json"], "{mode}: {:?}", left.files))
            .find_map(|left| left.json)
            .unwrap_or_else(|| panic!("{mode}: what was measured is kept"));
        assert_eq!((&json["interrupted"], &json["setting"]["mode"]), (&true.into(), &mode[2..].into()));
        assert!(json["rows"].is_array(), "{json}");
    }
}

#[test]
fn checkpoint() {
    let words = ["checkpoint", "--quick", "--dir=.", "--data=32M", "--rounds=1000"];
    // While the file is made there is nothing to keep, and perhaps nothing in the first round.
    let left = interrupt(&words, None, Duration::from_millis(500));
    if left.json.is_none() {
        assert!(left.files.is_empty(), "it left {:?}", left.files);
    } else {
        kept(&left, "way");
    }
    // Later on a machine that does much else.
    let rows = [10, 45].map(|seconds| move || interrupt(&words, None, Duration::from_secs(seconds)));
    assert!(rows.iter().any(|left| kept(&left(), "way") > 0), "rounds that have ended are kept");
}
