//! Goal: a baseline that the kernel kills in its cgroup fails no run: a note names it, it has no
//! row, and the others have theirs. Method: while a benchmark runs, forbid each of its cgroups to
//! swap, so that the kernel kills what relies on swap. It needs root, cgroups and swap.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::PROGRAM;
use crate::common::groups_of;
use crate::fault_lost_process::{able, children};
use crate::quick::rows;

/// Has the kernel kill in a cgroup where it would swap. It may be gone already.
fn forbid_swap(group: &Path) {
    // One for each version of cgroups.
    for name in ["memory.swappiness", "memory.swap.max"] {
        if let Ok(mut file) = OpenOptions::new().write(true).open(group.join(name)) {
            let _ = file.write_all(b"0");
        }
    }
}

/// Runs the program, and forbids its cgroups to swap from the moment that they are made.
fn without_swap(words: &[&str]) -> Value {
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let program = Command::new(PROGRAM)
        .args(words)
        .args(["--quick", "--rounds=1", "--json=out.json", "--dir=."])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let helper = loop {
        match children(program.id(), "__privileged").first() {
            Some(helper) => break *helper,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                groups_of(helper).iter().for_each(|group| forbid_swap(group));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let output = program.wait_with_output();
        over.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    let (told, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{told}{wrong}");
    assert!(output.status.success(), "{words:?}: {told}{wrong}");
    let json = std::fs::read_to_string(directory.path().join("out.json")).expect("the JSON was written");
    serde_json::from_str(&json).expect("JSON")
}

/// Runs the program, where the kernel kills `baseline` and leaves `other` alone.
fn leaves_out(baseline: &str, other: &str, words: &[&str]) {
    if !able() {
        return println!("SKIPPED: no right to swap and to make cgroups");
    }
    let json = without_swap(words);
    assert!(rows(&json, "failed").is_empty(), "{json}");
    let configs: Vec<_> = rows(&json, "rows").iter().filter_map(|row| row["config"].as_str()).collect();
    assert!(configs.contains(&other) && !configs.contains(&baseline), "{configs:?}");
    let is_said = |note: &Value| {
        let note = note.as_str().unwrap();
        note.contains(baseline) && note.contains("is left out: the kernel killed it in its cgroup of ")
    };
    assert!(rows(&json["setting"], "notes").iter().any(is_said), "{json}");
}

#[test]
fn live() {
    let words = ["live", "--workload=array-swap", "--config=fulgurite,os-swap", "--work=0"];
    leaves_out("os-swap", "fulgurite", &[&words[..], &["--data=192M", "--dram=16M"]].concat());
}

#[test]
fn alloc() {
    let words = ["alloc", "--workload=packet-cache", "--config=memory-page,os-swap"];
    leaves_out("os-swap", "memory-page", &[&words[..], &["--data=64M", "--dram=8M", "--requests=1000"]].concat());
}

#[test]
fn run() {
    let words = ["run", "--workload=touches", "--config=dram,swap", "--round-time=60ms", "--threads=2"];
    leaves_out("swap", "dram", &[&words[..], &["--data=96M", "--dram=24M"]].concat());
}
