//! Goal: `malloc` and its relatives keep what they promise under `fulgurite run`, whichever blocks
//! go to flash, and a fault is resolved at each step of theirs. Method: a C program after other
//! allocators' suites says the same with and without us, also with jemalloc as its own allocator,
//! in less DRAM than it takes. Another one is stopped after each instruction of an allocation, and
//! a handler of a signal touches memory of flash there. What is not installed is said.

use std::path::Path;
use std::process::Command;

use fulgurite_testkit::{first_seed, is_full};

use crate::runs::{FULGURITE, cannot, command, compiled, peak_of_summary, text};

const CAP: u64 = 20 << 20;
/// Which blocks go to flash, in which mode.
const BACKENDS: [&[&str]; 5] = [
    &["--mode", "compatible"],
    &["--mode", "in-line"],
    &["--mode", "compatible", "--small-blocks"],
    &["--mode", "in-line", "--small-blocks"],
    &["--mode", "compatible", "--small-blocks", "--objects"],
];
/// The options where the program has jemalloc, which maps little at a time.
const OF_JEMALLOC: [&[&str]; 2] =
    [&["--mode", "compatible", "--threshold", "4K"], &["--mode", "in-line", "--threshold", "4K"]];
/// Where Debian has jemalloc (libjemalloc2).
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// Options of a run with enough flash in a directory: jemalloc asks for more than twice what the
/// program holds. With objects, pages have half of it.
fn options<'a>(flash: &'a Path, of_way: &[&'a str]) -> Vec<&'a str> {
    let size = match (is_full(), of_way.contains(&"--objects")) {
        (false, false) => "160M",
        (false, true) | (true, false) => "320M",
        (true, true) => "640M",
    };
    [&["--dram", "20M", "--flash", flash.to_str().unwrap(), "--flash-size", size], of_way, &["--"]].concat()
}

#[test]
fn blocks_are_what_the_c_library_promises() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "mallocs") else { return };
    let mib = if is_full() { "80" } else { "24" };
    let expected = text(&Command::new(&program).arg(mib).output().unwrap().stdout);
    assert!(expected.ends_with("at the end: 1 checks, 0 wrong\n"), "{expected}");
    assert_eq!(expected.matches(" 0 wrong\n").count(), 13, "{expected}");
    let mut backends = Vec::from(BACKENDS.map(|backend| (backend, None)));
    if Path::new(JEMALLOC).exists() {
        // It gives back at once what it does not use.
        let settings = Some("dirty_decay_ms:0,muzzy_decay_ms:0,retain:false");
        backends.extend(OF_JEMALLOC.map(|backend| (backend, settings)));
    } else {
        println!("SKIPPED: no jemalloc; apt-get install libjemalloc2");
    }
    for (backend, jemalloc) in backends {
        let words = [&options(directory.path(), backend)[..], &[program.to_str().unwrap(), mib]].concat();
        let mut command = command(None, &words);
        if let Some(settings) = jemalloc {
            command.env("LD_PRELOAD", JEMALLOC).env("MALLOC_CONF", settings);
        }
        let output = command.output().unwrap();
        if cannot(&output) {
            continue;
        }
        let logged = text(&output.stderr);
        assert!(output.status.success(), "{backend:?}, {jemalloc:?}: {:?}: {logged}", output.status);
        assert_eq!(text(&output.stdout), expected, "{backend:?}, {jemalloc:?}: {logged}");
        // Blocks that stay in DRAM may pass the cap by themselves.
        let is_capped = jemalloc.is_some() || backend.contains(&"--small-blocks");
        assert!(!is_capped || peak_of_summary(&logged) <= CAP, "{backend:?}, {jemalloc:?}: {logged}");
        println!("{backend:?}, {jemalloc:?}: {logged}");
    }
}

#[test]
fn faults_are_resolved_at_each_step_of_an_allocation() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "steps") else { return };
    let program = program.to_str().unwrap();
    // All modes in a full run, else the one with most steps. Another seed takes other steps.
    let (left_out, backends) = if is_full() { (9, &BACKENDS[..]) } else { (100, &BACKENDS[3..4]) };
    let first = first_seed(0) % (left_out + 1);
    for backend in backends {
        let words = options(directory.path(), &[*backend, &["--threshold", "4K"]].concat());
        let traced = [&[FULGURITE, "run"], &words[..], &[program, "allocate"]].concat();
        let mut command = Command::new(program);
        command.args(["trace", &left_out.to_string(), &first.to_string()]).args(traced);
        let output = command.output().unwrap();
        if cannot(&output) {
            continue;
        }
        let (said, logged) = (text(&output.stdout), text(&output.stderr));
        if said.contains("no tracing") {
            return println!("SKIPPED: processes may not be traced here");
        }
        assert!(output.status.success(), "{backend:?}: {:?}: {said}{logged}", output.status);
        assert_eq!(said, "wrong: 0\nmany: 1\n", "{backend:?}: {logged}");
        assert!(peak_of_summary(&logged) <= CAP, "{backend:?}: {logged}");
        println!("{backend:?}: {logged}");
    }
}
