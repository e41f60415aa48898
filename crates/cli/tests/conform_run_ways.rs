//! Goal: without the right to userfaultfd and io_uring, programs run under `fulgurite run` with the
//! same answers, within the same cap, and it says which backend it took. Method: programs of
//! `conform_run`, started by one that gives up rights: the rights of root, and the system calls
//! that Docker's default profile denies. Guard pages may be denied as well. What the kernel is
//! passed has left DRAM before. Where the kernel has no guard pages, the next backend is taken and
//! reported. What older kernels have not is refused as they refuse it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use fulgurite_testkit::is_full;

use crate::runs::{FULGURITE, Group, cannot, compiled, peak_of_summary, text};

/// Rights that are taken away, and what is said then.
const BACKENDS: [(&[&str], &str); 3] = [
    (&["user", "docker"], "guard pages"),
    (&["user", "docker", "guards"], "pages without access"),
    (&["user"], "user mode only"),
];

/// For what takes long with each: all backends in a full run, else userfaultfd and one without.
fn rights_taken() -> Vec<&'static [&'static str]> {
    let all = [&[][..], BACKENDS[1].0, BACKENDS[0].0, BACKENDS[2].0];
    if is_full() { all.to_vec() } else { all[..2].to_vec() }
}

/// A directory that every user may use, a program in it, and the one that takes rights away. None
/// without a compiler.
fn place(name: &str) -> Option<(tempfile::TempDir, String, String)> {
    let directory = tempfile::tempdir().unwrap();
    let (program, confined) = (compiled(directory.path(), name)?, compiled(directory.path(), "confined")?);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    Some((directory, shown(&program), shown(&confined)))
}

/// Whether this user may take its own rights away.
fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        println!("SKIPPED: only root can take the rights of root away");
    }
    is_root
}

/// Runs words of `fulgurite run` without some rights.
fn run(confined: &str, taken: &[&str], group: Option<&Group>, words: &[&str]) -> Output {
    let mut command = Command::new("/bin/sh");
    match group {
        Some(group) => command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.procs()),
        None => command.args(["-c", "exec \"$@\"", "sh"]),
    };
    command.arg(confined).args(taken).args(["--", FULGURITE, "run"]).args(words).output().unwrap()
}

#[test]
fn threads_find_what_they_wrote_without_userfaultfd() {
    let Some((directory, program, confined)) = place("touch").filter(|_| is_root()) else { return };
    let flash = directory.path().to_str().unwrap();
    let (dram, data) = if is_full() { (32u64, 96u64) } else { (16, 40) };
    let (cap, pages) = (dram << 20, data << 8);
    let (dram, data) = (format!("{dram}M"), data.to_string());
    for (taken, backend) in BACKENDS {
        let group = Group::new("backends", cap);
        let words = ["--dram", &dram, "--flash", flash, "--flash-size", "160M", "--explain", "--", &program, &data];
        let output = run(&confined, taken, group.as_ref(), &words);
        let logged = text(&output.stderr);
        assert_eq!(
            text(&output.stdout),
            format!("{pages} pages, 0 wrong\n"),
            "{taken:?}, {:?}: {logged}",
            output.status
        );
        assert!(logged.contains("userfaultfd is refused"), "{logged}");
        assert!(logged.contains(backend) || logged.contains(BACKENDS[1].1), "{logged}");
        assert!(peak_of_summary(&logged) <= cap, "{logged}");
    }
}

/// What kernels have not that are older than these, and the backend that is taken there.
const KERNELS: [(&str, &[&str], &str); 5] = [
    ("6.16", &["drops"], "copied in, and dropped or moved out"),
    ("6.15", &["drops", "guards"], "copied in, and dropped or moved out"),
    ("6.8", &["drops", "guards", "moves"], "pages without access"),
    ("5.1", &["drops", "guards", "moves", "rings"], "pages without access"),
    // No kernel is so, but each backend is tested by itself.
    ("6.8 with guard pages", &["moves"], "guard pages"),
];

#[test]
fn older_kernels_take_another_way_with_the_same_answers() {
    let Some((directory, program, confined)) = place("touch") else { return };
    let flash = directory.path().to_str().unwrap();
    let cap = 16 << 20;
    for (before, lack, backend) in KERNELS {
        let words =
            |mode| ["--dram", "16M", "--flash", flash, "--flash-size", "40M", "--explain", "--mode", mode, "--"];
        let output = run(&confined, lack, None, &[&words("auto")[..], &[&program, "28"]].concat());
        let logged = text(&output.stderr);
        assert_eq!(text(&output.stdout), "7168 pages, 0 wrong\n", "before {before}, {:?}: {logged}", output.status);
        let is_allowed = !logged.contains("userfaultfd is refused");
        // A kernel without guard pages takes the next backend.
        let backends = [
            backend,
            if is_allowed { backend } else { BACKENDS[0].1 },
            if backend == BACKENDS[0].1 { BACKENDS[1].1 } else { backend },
        ];
        assert!(backends.iter().any(|backend| logged.contains(backend)), "before {before}: {logged}");
        assert!(peak_of_summary(&logged) <= cap, "before {before}: {logged}");
        let lacks = |what| lack.contains(&what);
        assert_eq!(logged.contains("without io_uring"), lacks("rings"), "before {before}: {logged}");
        // What it is asked to take is refused, with the reason.
        if is_allowed && lacks("moves") {
            assert!(logged.contains("Linux 6.8 is the first that can; so "), "before {before}: {logged}");
            let output = run(&confined, lack, None, &[&words("compatible")[..], &[&program, "28"]].concat());
            let logged = text(&output.stderr);
            assert!(!output.status.success() && output.stdout.is_empty(), "before {before}: {logged}");
            assert!(logged.contains("Linux 6.8 is the first that can"), "before {before}: {logged}");
        }
    }
}

#[test]
fn system_calls_find_what_has_left_dram() {
    let Some((directory, program, confined)) = place("calls").filter(|_| is_root()) else { return };
    let flash = directory.path().to_str().unwrap();
    let without = Command::new(&program).args([flash, "24"]).output().unwrap();
    let expected = text(&without.stdout);
    assert!(expected.ends_with("wrong: 0\n"), "{expected}");
    for taken in rights_taken() {
        let words = ["--dram", "16M", "--flash", flash, "--flash-size", "128M", "--", &program, flash, "24"];
        let output = run(&confined, taken, None, &words);
        assert_eq!(text(&output.stdout), expected, "{taken:?}: {:?} {}", output.status, text(&output.stderr));
    }
}

#[test]
fn one_instruction_gets_all_its_pages_in_the_fewest_frames() {
    let Some((directory, program, confined)) = place("across") else { return };
    let flash = directory.path().to_str().unwrap();
    let mut backends = vec![(&[][..], "compatible"), (&[][..], "in-line")];
    if is_root() {
        backends.extend([(BACKENDS[0].0, "in-line"), (BACKENDS[1].0, "in-line")]);
    }
    for (taken, mode) in backends {
        let rounds = if is_full() { "40" } else { "12" };
        let words = ["--dram", "16M", "--flash", flash, "--flash-size", "16M", "--mode", mode, "--", &program, rounds];
        let output = run(&confined, taken, None, &words);
        if cannot(&output) {
            continue;
        }
        let logged = text(&output.stderr);
        let expected = "across: 0, copied: 0, gathered: 0, own: 1\n";
        assert_eq!(text(&output.stdout), expected, "{taken:?}, {mode}: {:?} {logged}", output.status);
        assert!(logged.contains("OVER THE CAP"), "the program leaves the fewest frames: {taken:?}, {mode}: {logged}");
    }
}

#[test]
fn children_find_what_was_there_at_the_fork_without_userfaultfd() {
    let Some((directory, program, confined)) = place("forks").filter(|_| is_root()) else { return };
    let [blocked, parents, readers] =
        ["blocked", "parents", "readers"].map(|name| compiled(directory.path(), name).expect("there is a compiler"));
    let flash = directory.path().to_str().unwrap();
    let children = if is_full() { "6" } else { "2" };
    let programs: [(&[&str], _); 4] = [
        (&[program.as_str(), children], format!("{children} children, 0 failed, 0 wrong\n")),
        (&[blocked.to_str().unwrap()], "0 wrong, quick\n".to_owned()),
        (&[parents.to_str().unwrap(), "1"], "1 children, 0 failed\n".to_owned()),
        (&[readers.to_str().unwrap(), "4"], "4 children, 0 failed, 0 wrong, 0 odd\n".to_owned()),
    ];
    for (program, expected) in programs {
        for taken in &rights_taken()[1..] {
            let words = ["--dram", "20M", "--flash", flash, "--flash-size", "160M", "--"];
            let output = run(&confined, taken, None, &[&words[..], program].concat());
            let logged = text(&output.stderr);
            assert_eq!(text(&output.stdout), expected, "{program:?}, {taken:?}: {:?} {logged}", output.status);
        }
    }
}

#[test]
fn signals_stacks_and_threads_are_the_programs_own() {
    let Some((directory, program, confined)) = place("signals").filter(|_| is_root()) else { return };
    let flash = directory.path().to_str().unwrap();
    let expected = text(&Command::new(&program).arg("24").output().unwrap().stdout);
    assert!(expected.ends_with("given back, wrong: 0\n"), "{expected}");
    for taken in rights_taken() {
        let words = ["--dram", "24M", "--flash", flash, "--flash-size", "128M", "--", &program, "24"];
        let output = run(&confined, taken, None, &words);
        assert_eq!(text(&output.stdout), expected, "{taken:?}: {:?} {}", output.status, text(&output.stderr));
    }
}

#[test]
fn the_mode_that_is_asked_for_is_taken_or_refused() {
    let Some((directory, program, confined)) = place("touch").filter(|_| is_root()) else { return };
    let flash = directory.path().to_str().unwrap();
    let logged = |taken: &[&str], mode: &str| {
        let words = ["--dram", "24M", "--flash", flash, "--flash-size", "64M", "--explain", "--mode", mode, "--"];
        let output = run(&confined, taken, None, &[&words[..], &[&program, "4"]].concat());
        (output.status.success(), text(&output.stderr))
    };
    let (is_done, words) = logged(&[], "in-line");
    assert!(is_done && words.contains("userfaultfd, found by SIGBUS"), "{words}");
    let (is_done, words) = logged(BACKENDS[0].0, "in-line");
    assert!(is_done && !words.contains("userfaultfd, found"), "{words}");
    let (is_done, words) = logged(BACKENDS[0].0, "compatible");
    assert!(!is_done && words.contains("userfaultfd is refused"), "{words}");
}
