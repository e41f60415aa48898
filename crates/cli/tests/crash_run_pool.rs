//! Goal: a program over a pool (`--pool`) and its children have their memory there and leave
//! nothing behind: what other programs keep in the pool is as before, also when they are killed at
//! any moment. Method: a pool with named blobs. A C program writes and checks several times its
//! DRAM, another one forks. They run to their end or are killed at times that a seed gives. After
//! each, `pool check` finds nothing, the blobs are whole, and a further run finds as much space.
//! Then bad input: no pool, a pool in use, one that is too small.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fulgurite::{Fulgurite, Medium};
use fulgurite_testkit::{Random, runs, seed};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::runs::{FULGURITE, cannot, command, compiled, peak_of_summary, text};

const BLOBS: u64 = 200;

fn value(key: u64) -> Vec<u8> {
    (0..3000 + key * 7).map(|at| (at * 31 + key) as u8).collect()
}

/// Makes a pool with blobs.
fn make(pool: &Path) {
    let memory = Fulgurite::builder(Medium::new_pool(pool, "64M")).dram("16M").start().unwrap();
    let blobs = memory.named("kept").blobs::<u64>(BLOBS, 2 << 20).unwrap();
    memory.run(move |m| (0..BLOBS).try_for_each(|key| blobs.put(m, &key, &value(key)).map(drop))).unwrap();
    memory.sync().unwrap();
}

/// Whether a pool is whole, and the blobs in it.
fn check(pool: &Path) {
    let checked = Command::new(FULGURITE).args(["pool", "check"]).arg(pool).output().unwrap();
    let logged = text(&checked.stdout) + &text(&checked.stderr);
    assert!(checked.status.success() && logged.contains("is whole"), "{:?}: {logged}", checked.status);
    let memory = Fulgurite::builder(Medium::pool(pool)).dram("16M").start().unwrap();
    let blobs = memory.named("kept").blobs::<u64>(BLOBS, 2 << 20).unwrap();
    let are_kept = memory.run(move |m| {
        let (mut found, mut wrong) = (Vec::new(), 0);
        for key in 0..BLOBS {
            found.clear();
            wrong += u64::from(!blobs.get(m, &key, &mut found)? || found != value(key));
        }
        Ok(wrong)
    });
    assert_eq!(are_kept.unwrap(), 0, "blobs are lost or wrong");
}

fn words<'w>(pool: &'w str, more: &[&'w str], program: &'w str, mib: &'w str) -> Vec<&'w str> {
    [&["--dram", "24M", "--pool", pool], more, &["--", program, mib]].concat()
}

/// What a run of 40 MiB has to say, which is written three times.
fn assert_right(output: &Output) {
    let logged = text(&output.stderr);
    assert_eq!(text(&output.stdout), "10240 pages, 0 wrong\n", "{:?}: {logged}", output.status);
    assert!(output.status.success() && peak_of_summary(&logged) <= 24 << 20, "{logged}");
}

#[test]
fn a_program_over_a_pool_leaves_nothing_however_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "touch") else { return };
    let pool = directory.path().join("pool");
    make(&pool);
    let (path, program) = (pool.to_str().unwrap(), program.to_str().unwrap());
    let output = command(None, &words(path, &["--explain"], program, "40")).output().unwrap();
    if cannot(&output) {
        return;
    }
    assert_right(&output);
    // `--explain` names the file or device whose extents the run takes.
    assert!(text(&output.stderr).contains(&format!(" extents of {path}, ")), "{}", text(&output.stderr));
    check(&pool);
    let mut random = Random::seeded("crash_run_pool", seed());
    let forks = compiled(directory.path(), "forks").expect("there is a compiler");
    let forks = forks.to_str().unwrap();
    for run in 0..runs(10) {
        let (program, argument) = if run % 2 == 0 { (program, "40") } else { (forks, "20") };
        let mut child = command(None, &words(path, &[], program, argument));
        let mut child = child.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(1500)));
        // With its children.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        child.wait().unwrap();
        check(&pool);
    }
    // Threads that resolve their own faults. What was there of killed programs is free again.
    let output = command(None, &words(path, &["--mode", "in-line"], program, "40")).output().unwrap();
    assert_right(&output);
    check(&pool);
}

#[test]
fn children_over_a_pool_find_what_was_there_at_the_fork() {
    let directory = tempfile::tempdir().unwrap();
    let Some(forks) = compiled(directory.path(), "forks") else { return };
    let pool = directory.path().join("pool");
    make(&pool);
    let (path, forks) = (pool.to_str().unwrap(), forks.to_str().unwrap());
    for mode in ["compatible", "in-line"] {
        let output = command(None, &words(path, &["--mode", mode], forks, "6")).output().unwrap();
        if cannot(&output) {
            return;
        }
        assert_eq!(text(&output.stdout), "6 children, 0 failed, 0 wrong\n", "{mode}: {}", text(&output.stderr));
        check(&pool);
    }
    // A child goes on alone, and the pool is in use until it ends.
    let script = "import os, time\nblock = bytearray(b'x') * (20 << 20)\nif os.fork() == 0:\n    time.sleep(2)\n    \
                  block[::4096] = b'y' * (20 << 8)\n    print(block.count(b'y'), flush=True)\n";
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Ok(python) = python.map(|output| text(&output.stdout).trim().to_owned()) else {
        println!("SKIPPED: no python3; apt-get install python3");
        return;
    };
    let mut child = command(None, &["--dram", "40M", "--pool", path, "--", &python, "-c", script]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    let refused = Fulgurite::builder(Medium::pool(&pool)).dram("16M").start().map(drop).unwrap_err().to_string();
    assert!(refused.contains("in use"), "{refused}");
    // It ends when its output does.
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "5120\n", "{}", text(&output.stderr));
    check(&pool);
}

#[test]
fn what_cannot_be_a_pool_below_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let pool = directory.path().join("pool");
    make(&pool);
    let path = pool.to_str().unwrap();
    let refused = |pool: &str, more: &[&str]| {
        let output = command(None, &words(pool, more, "/bin/true", "")).output().unwrap();
        let logged = text(&output.stderr);
        assert!(!output.status.success() && !logged.contains("peak memory"), "{logged}");
        logged
    };
    let none = directory.path().join("none");
    let logged = refused(none.to_str().unwrap(), &[]);
    assert!(logged.contains("does not exist"), "{logged}");
    assert!(!none.exists());
    let other = directory.path().join("other");
    std::fs::write(&other, vec![7; 1 << 20]).unwrap();
    let logged = refused(other.to_str().unwrap(), &[]);
    assert!(logged.contains("pool"), "{logged}");
    assert_eq!(std::fs::read(&other).unwrap(), vec![7; 1 << 20], "it is left as it was");
    let logged = refused(path, &["--flash-size", "1G"]);
    assert!(logged.contains("1.0 GiB were asked for") && logged.contains("pool resize"), "{logged}");
    let logged = refused(path, &["--flash", "/tmp"]);
    assert!(logged.contains("cannot be used with"), "{logged}");

    let memory = Fulgurite::builder(Medium::pool(&pool)).dram("16M").start().unwrap();
    let logged = refused(path, &[]);
    assert!(logged.contains("in use"), "{logged}");
    drop(memory);
    check(&pool);
}
