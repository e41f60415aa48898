//! Goal: however the program ends, its swap files, cgroups and temporary files are gone. Method:
//! hold a real helper by its pipe and close it. Start a benchmark and kill it while its swap file
//! is in use. Kill a helper and clean up. Without root or a memory cgroup, parts are skipped with a
//! sentence.

use crate::common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::groups_of;

use crate::PROGRAM;

struct Helper {
    process: Child,
}

impl Helper {
    fn start() -> Helper {
        let process = Command::new(PROGRAM)
            .arg("__privileged")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the helper starts");
        Helper { process }
    }
    fn ask(&mut self, request: &serde_json::Value) -> serde_json::Value {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{request}").unwrap();
        let mut line = String::new();
        // One answer to each request: nothing is lost with the buffer.
        BufReader::with_capacity(1, self.process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
    /// Whether cgroups and swap can be had; says so when not.
    fn able(&mut self, scratch: &Path) -> bool {
        let reply = self.ask(&serde_json::json!({ "Probe": { "scratch": scratch } }));
        let capabilities = &reply["Capabilities"];
        let able = capabilities["cgroup_missing"].is_null() && capabilities["swap_missing"].is_null();
        if !able {
            eprintln!("SKIPPED: {capabilities}");
        }
        able
    }
}

fn swaps_with(part: &str) -> bool {
    std::fs::read_to_string("/proc/swaps").unwrap_or_default().contains(part)
}

fn within(patience: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory on a real file system: the tests' own target directory.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap()
}

#[test]
fn a_closed_pipe_removes_everything() {
    let scratch = scratch();
    let mut helper = Helper::start();
    if !helper.able(scratch.path()) {
        return;
    }
    let pid = helper.process.id();
    let done = serde_json::json!("Done");
    let cgroup = serde_json::json!({ "Cgroup": { "name": "a", "limit_bytes": 64 << 20, "no_swap": false } });
    assert_eq!(helper.ask(&cgroup), done);
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    assert_eq!(helper.ask(&serde_json::json!({ "Join": { "name": "a", "pid": sleeper.id() } })), done);
    let swap = serde_json::json!({ "SwapOn": { "scratch": scratch.path(), "bytes": 8 << 20 } });
    assert_eq!(helper.ask(&swap), done);
    let kept = scratch.path().join("adopted");
    std::fs::write(&kept, "x").unwrap();
    assert_eq!(helper.ask(&serde_json::json!({ "Adopt": { "path": kept } })), done);
    assert!(swaps_with(&format!("fulgurite-{pid}.swap")) && !groups_of(pid).is_empty());
    // Not by a signal of the terminal.
    let signal = rustix::process::Signal::INT;
    rustix::process::kill_process(rustix::process::Pid::from_child(&helper.process), signal).unwrap();
    assert!(helper.able(scratch.path()), "the helper outlives Ctrl-C");
    drop(helper.process.stdin.take());
    assert!(helper.process.wait().unwrap().success());
    assert!(!swaps_with(&format!("fulgurite-{pid}.swap")) && groups_of(pid).is_empty());
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
    // The group's process has been ended.
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn a_killed_benchmark_leaves_nothing() {
    let scratch = scratch();
    if !Helper::start().able(scratch.path()) {
        return;
    }
    let mut program = Command::new(PROGRAM)
        .args(["live", "--workload=array-swap", "--config=os-swap", "--data=192M", "--dram=16M", "--work=1us"])
        .args(["--rounds=1000", "--round-time=200ms", "--dir"])
        .arg(scratch.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let here = scratch.path().to_string_lossy().into_owned();
    within(PATIENCE, "the benchmark never swapped", || {
        assert!(program.try_wait().unwrap().is_none(), "the benchmark ended by itself");
        swaps_with(&here)
    });
    // The helper is the program's child, and its process id is in their names.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.id())).unwrap();
    let groups = || children.split_whitespace().flat_map(groups_of).collect::<Vec<_>>();
    within(PATIENCE, "no cgroup was made", || !groups().is_empty());
    let made = groups();
    program.kill().unwrap();
    program.wait().unwrap();
    within(PATIENCE, "the swap file is still in use", || !swaps_with(&here));
    within(PATIENCE, "a cgroup is still there", || made.iter().all(|group| !group.exists()));
    within(PATIENCE, "a file is still there", || scratch.path().read_dir().unwrap().count() == 0);
}

#[test]
fn cleanup_finishes_what_a_killed_helper_left() {
    let scratch = scratch();
    let mut helper = Helper::start();
    let kept = scratch.path().join("adopted");
    std::fs::write(&kept, "x").unwrap();
    assert_eq!(helper.ask(&serde_json::json!({ "Adopt": { "path": kept } })), serde_json::json!("Done"));
    let able = helper.able(scratch.path());
    let pid = helper.process.id();
    if able {
        let cgroup = serde_json::json!({ "Cgroup": { "name": "b", "limit_bytes": 64 << 20, "no_swap": true } });
        assert_eq!(helper.ask(&cgroup), serde_json::json!("Done"));
        let swap = serde_json::json!({ "SwapOn": { "scratch": scratch.path(), "bytes": 8 << 20 } });
        assert_eq!(helper.ask(&swap), serde_json::json!("Done"));
    }
    // While it runs, cleanup keeps its hands off.
    assert!(Command::new(crate::fulgurite()).arg("cleanup").output().unwrap().status.success());
    assert!(kept.exists());
    helper.process.kill().unwrap();
    helper.process.wait().unwrap();
    assert!(kept.exists());
    let output = Command::new(crate::fulgurite()).arg("cleanup").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!kept.exists() && groups_of(pid).is_empty() && !swaps_with(&format!("fulgurite-{pid}.swap")));
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}

/// A cleanup may run in another directory, and a released path may have a new owner.
#[test]
fn only_what_was_adopted_and_not_released_is_removed() {
    let scratch = scratch();
    let mut helper = Helper::start();
    let path = |name: &str| scratch.path().join(name);
    for name in ["ours", "theirs"] {
        assert_eq!(helper.ask(&serde_json::json!({ "Adopt": { "path": path(name) } })), serde_json::json!("Done"));
    }
    let refused = helper.ask(&serde_json::json!({ "Adopt": { "path": "relative" } })).to_string();
    assert!(refused.contains("absolute"), "{refused}");
    assert_eq!(helper.ask(&serde_json::json!({ "Release": { "path": path("theirs") } })), serde_json::json!("Done"));
    for name in ["ours", "theirs", "relative"] {
        std::fs::write(path(name), "x").unwrap();
    }
    helper.process.kill().unwrap();
    helper.process.wait().unwrap();
    let output = Command::new(crate::fulgurite()).arg("cleanup").current_dir(scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("removed {}", path("ours").display())), "{said}");
    assert!(!said.contains("theirs") && !path("ours").exists() && path("theirs").exists() && path("relative").exists());
}
