//! Goal: `run` measures programs under `fulgurite run` compared with swap, with answers that are
//! right and caps that hold, and says what a machine lacks. Method: run it on little data and read
//! its JSON. No figure is compared to a target.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::PROGRAM;
use crate::quick::{number, rows};

const SMALL: [&str; 8] = ["--quick", "--rounds", "1", "--round-time", "60ms", "--threads", "2", "--json=out.json"];

fn bench(directory: &Path, words: &[&str], path: Option<&str>) -> (Output, Value) {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--dir", "."]).args(SMALL).args(words).current_dir(directory);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {told}{}", String::from_utf8_lossy(&output.stdout));
    let json = std::fs::read_to_string(directory.join("out.json")).unwrap();
    (output, serde_json::from_str(&json).unwrap())
}

#[test]
fn touches_are_right_and_within_the_cap() {
    let directory = tempfile::tempdir().unwrap();
    let (output, json) = bench(directory.path(), &["--workload", "touches", "--dram", "24M", "--data", "48M"], None);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(rows(&json, "failed").is_empty(), "{json}");
    let all = rows(&json, "rows");
    // Whether the machine has swap, cgroups and userfaultfd is in the notes.
    let (left_out, weaker) = (rows(&json["setting"], "notes").len(), !json["setting"]["in_cgroups"].as_bool().unwrap());
    assert!(all.len() + 2 * left_out >= 8 && all.len() >= 4, "{json}");
    for row in all {
        let spread = &row["ops_per_s_spread"];
        assert!(number(row, "ops_per_s") == number(spread, "median"), "{row}");
        assert!(row["pages_of_fio"].is_null() || number(&row["pages_of_fio"], "min") >= 0.0, "{row}");
        assert!(number(spread, "min") > 0.0 && number(spread, "min") <= number(spread, "max"), "{row}");
        assert!(number(row, "p50_us") <= number(row, "p99_us") && number(row, "operations") > 0.0, "{row}");
        assert!((0.0..=1.0).contains(&number(row, "hit_ratio")) && number(row, "rounds") == 1.0, "{row}");
        // The kernel itself may take a few pages more.
        assert!(weaker || number(row, "peak_bytes") <= number(row, "cap_bytes") + 131_072.0, "{row}");
        let is_ours = ["compatible", "in-line"].contains(&row["config"].as_str().unwrap());
        // Half of the data is not in DRAM.
        assert!(!is_ours || number(row, "faults") > 10.0 && number(row, "hit_ratio") < 0.9, "{row}");
        if all.iter().any(|other| other["config"] == "swap") {
            assert!(number(&row["ratio_to_swap"], "median") > 0.0, "{row}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out.json"], "all that was made is gone");
}

#[test]
fn a_server_that_is_not_installed_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (output, json) = bench(directory.path(), &["--workload", "redis,memcached,save", "--config", "dram"], Some(""));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("apt-get install redis-server") && told.contains("apt-get install memcached"), "{told}");
    assert!(rows(&json, "rows").is_empty() && rows(&json, "saves").is_empty(), "{json}");
}

#[test]
fn servers_answer_right_while_they_are_measured() {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !there("redis-server") || !there("memcached") {
        println!("SKIPPED: no redis-server or no memcached; apt-get install redis-server memcached");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let words = ["--workload", "redis,memcached,save", "--config", "dram,compatible", "--dram", "24M", "--data", "24M"];
    let words = [&words[..], &["--clients", "3", "--gets", "50"]].concat();
    let (output, json) = bench(directory.path(), &words, None);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(rows(&json, "failed").is_empty(), "{json}");
    for config in ["dram", "compatible"] {
        let of = |key: &str| rows(&json, key).iter().filter(|row| row["config"] == config).collect::<Vec<_>>();
        if config == "dram" || rows(&json["setting"], "notes").is_empty() {
            assert_eq!((of("rows").len(), of("saves").len()), (2, 1), "{json}");
        }
        for save in of("saves") {
            assert!(
                save["equal"] == true && number(save, "file_bytes") > 24e6 && number(save, "writes") > 0.0,
                "{save}"
            );
        }
    }
}
