//! Goal: a process that dies in a benchmark costs only its own results: the others' are kept, the
//! JSON and the last words name the failure, and so does the exit code. Method: start the
//! benchmark, wait for its calibration and a moment longer, kill a configuration's process, or the
//! helper. Read the JSON. The helper takes part with root and cgroups only.

use crate::common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::PROGRAM;

/// The processes that a process has started with this first word, in that order.
pub fn children(pid: u32, word: &str) -> Vec<i32> {
    let task = Path::new("/proc").join(pid.to_string()).join("task");
    let of = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("children")).unwrap_or_default();
    let all: String = task.read_dir().unwrap().map(|entry| of(entry.unwrap()) + " ").collect();
    let mut found: Vec<i32> = all.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(word.as_bytes())
    });
    found.sort_unstable();
    found
}

/// Runs the program, kills its last process started with this word, and returns its JSON and last
/// words.
fn lose(words: &[&str], word: &str, moment: Duration) -> (Value, String) {
    // On a real file system, because swap files cannot be on others.
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let mut program = Command::new(PROGRAM)
        .args(words)
        .args(["--quick", "--json=out.json", "--dir=."])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Zipf exponent")), "{words:?} ended before it had calibrated");
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let mut errors = program.stderr.take().unwrap();
    let told = std::thread::spawn(move || {
        let mut told = String::new();
        errors.read_to_string(&mut told).map(|_| told)
    });
    std::thread::sleep(moment);
    let victim = *children(program.id(), word).last().expect("a process to kill");
    kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
    let status = program.wait().unwrap();
    rest.join().unwrap();
    let told = told.join().unwrap().unwrap();
    assert_eq!(status.code(), Some(1), "{words:?}: {told}");
    let json = std::fs::read_to_string(directory.path().join("out.json")).expect("the JSON was written");
    if word == "__privileged" {
        assert!(Command::new(crate::fulgurite()).arg("cleanup").status().unwrap().success());
        assert!(common::groups_of(victim).is_empty(), "a cgroup is still there");
    }
    (serde_json::from_str(&json).expect("JSON"), told)
}

/// The sentences of what failed, of which the last words speak, too.
fn failed(json: &Value, told: &str) -> Vec<String> {
    assert_eq!(json["interrupted"], Value::Bool(false));
    let sentences: Vec<String> =
        json["failed"].as_array().expect("a list").iter().map(|s| s.as_str().unwrap().to_owned()).collect();
    assert!(!sentences.is_empty() && sentences.iter().all(|s| told.contains(s)), "{sentences:?}: {told}");
    sentences
}

#[test]
fn tail_keeps_the_loads_before() {
    let words = ["tail", "--rounds=200", "--data=64M", "--dram=8M", "--config=fulgurite"];
    let (json, told) = lose(&words, "__child", Duration::from_secs(5));
    let sentences = failed(&json, &told);
    assert!(sentences[0].starts_with("fulgurite"), "{sentences:?}");
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["config"] == "dram-only"), "{rows:?}");
    for row in rows {
        // On a busy machine all of them may have been disturbed, which the row then says.
        let counted = if row["too_disturbed"] == true { "disturbed_rounds" } else { "rounds" };
        assert!(row[counted].as_u64().is_some_and(|rounds| rounds > 0), "{row}");
        assert!(row["work_hash"].is_null(), "nobody has checked the data: {row}");
    }
}

#[test]
fn live_keeps_the_other_configurations() {
    let words = ["live", "--workload=hash-table", "--config=fulgurite", "--rounds=100", "--work=0"];
    let (json, told) = lose(&words, "__child", Duration::from_secs(4));
    let sentences = failed(&json, &told);
    assert!(sentences[0].starts_with("hash-table: fulgurite: "), "{sentences:?}");
    let rows = json["rows"].as_array().unwrap();
    let rounds = |config: &str| rows.iter().find(|r| r["config"] == config).and_then(|r| r["rounds"].as_u64());
    assert_eq!(rounds("dram-only"), Some(100), "{rows:?}");
    assert!(rounds("fulgurite").is_none_or(|rounds| rounds < 100), "{rows:?}");
}

#[test]
fn live_keeps_all_results_without_its_helper() {
    let words = ["live", "--workload=array-swap", "--config=fulgurite,os-swap", "--rounds=50", "--work=1us"];
    let words = [&words[..], &["--data=128M", "--dram=16M"]].concat();
    if !able() {
        return println!("SKIPPED: no right to swap and to make cgroups");
    }
    let (json, told) = lose(&words, "__privileged", Duration::from_secs(6));
    let sentences = failed(&json, &told).join("; ");
    assert!(sentences.contains("os-swap"), "{sentences}");
    let rows = json["rows"].as_array().unwrap();
    let dram_only = rows.iter().find(|row| row["config"] == "dram-only").expect("what was measured is kept");
    assert_eq!(dram_only["rounds"], 50, "{rows:?}");
}

/// Whether the kernel lets us swap and make cgroups.
pub fn able() -> bool {
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let mut helper =
        Command::new(PROGRAM).arg("__privileged").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = serde_json::json!({ "Probe": { "scratch": directory.path() } });
    std::io::Write::write_all(&mut helper.stdin.take().unwrap(), format!("{request}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(helper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    helper.wait().unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    let capabilities = &reply["Capabilities"];
    capabilities["cgroup_missing"].is_null() && capabilities["swap_missing"].is_null()
}
