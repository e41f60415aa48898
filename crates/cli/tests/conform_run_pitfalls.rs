//! Goal: what programs do that is easy to get wrong for those that stand in for the C library ends
//! as without them, or is refused in a sentence. Memory of flash is never a wrong byte. Method: a C
//! program does one such thing at a time, with memory that has left DRAM, in compatible and in
//! in-line mode. Such things are huge pages, libraries that are closed, processes by other calls
//! than `fork`, an `exec`, a stack that ends, flash that is full, a kernel that maps no more, and
//! blocks that are none. Others are ranges with holes, robust mutexes, pages that the kernel keeps
//! (`vmsplice`) or a device reaches (`O_DIRECT`, AIO, io_uring), and flash that is cut off or
//! overwritten while the program runs.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::runs::{FULGURITE, cannot, command, compiled, peak_of_summary, text};

const MODES: [&str; 2] = ["compatible", "in-line"];
const CAP: u64 = 20 << 20;
const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// What the program says under `fulgurite run`. None where the machine cannot.
fn run(directory: &Path, mode: &str, words: &[&str]) -> Option<Output> {
    run_with(directory, &["--flash-size", "128M", "--mode", mode], words)
}
fn run_with(directory: &Path, options: &[&str], words: &[&str]) -> Option<Output> {
    let program = directory.join("pitfalls");
    let (program, flash) = (program.to_str().unwrap(), directory.to_str().unwrap());
    let options = [&["--dram", "20M", "--flash", flash], options, &["--", program]].concat();
    let output = command(None, &[&options[..], words].concat()).output().unwrap();
    (!cannot(&output)).then_some(output)
}

/// Does these things in each mode, and compares with what is said without us, or with `expected`.
///
/// In compatible mode, the kernel sends the signal of an access that fails. Its code says that
/// memory is broken only where the kernel was built to handle that (CONFIG_MEMORY_FAILURE).
fn each_mode(words: &[&str], expected: Option<&str>, check: impl Fn(&Output, &str)) {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "pitfalls") else { return };
    let without = || text(&Command::new(&program).args(words).output().unwrap().stdout);
    let expected = expected.map_or_else(without, str::to_owned);
    for mode in MODES {
        let Some(output) = run(directory.path(), mode, words) else { continue };
        let logged = text(&output.stderr);
        let mut said = text(&output.stdout);
        if mode == "compatible" {
            said = said.replace("code ADRERR", "code MCEERR_AR");
        }
        assert_eq!(said, expected, "{mode}: {:?}: {logged}", output.status);
        check(&output, &logged);
    }
}

/// It ended by itself, within its cap.
fn ended_well(output: &Output, logged: &str) {
    assert!(output.status.success(), "{:?}: {logged}", output.status);
    assert!(peak_of_summary(logged) <= CAP, "{logged}");
}

#[test]
fn huge_pages_do_not_fill_what_is_missing() {
    let expected = "huge pages: done\ncollapse: EINVAL\nKiB in huge pages: 0, wrong: 0\n";
    each_mode(&["huge"], Some(expected), ended_well);
}

#[test]
fn libraries_are_closed_and_ours_stays() {
    each_mode(&["library"], Some("libraries, wrong: 0\n"), ended_well);
}

#[test]
fn processes_by_other_calls_share_memory_or_have_none() {
    let expected = "shared memory: exit 42, seen: 77\nshared until it ends: exit 42, seen: 77\nvfork: exit 43, seen: \
                    78\nvfork and exec: exit 0\na system call: SEGV\n_Fork: SEGV\nprocesses, wrong: 0\n";
    each_mode(&["processes"], Some(expected), ended_well);
}

#[test]
fn more_children_than_may_share_memory_harm_none_of_the_others() {
    each_mode(&["crowd"], Some("with memory: 15, without: 5, wrong: 0 and 0\n"), |output, logged| {
        // What is left of the cap for the last of them is less than a process takes.
        assert!(output.status.success(), "{:?}: {logged}", output.status);
        assert_eq!(logged.matches("a child gets no memory of flash").count(), 5, "{logged}");
    });
}

#[test]
fn what_a_system_call_does_not_ask_for_is_not_read() {
    // Woken by the word alone: what is in the other registers may look like an address.
    each_mode(&["unasked"], Some("wake: done\nmincore: done\nthere: 0, 0, wrong: 0\n"), ended_well);
}

#[test]
fn what_waits_is_not_interrupted_by_pages_that_leave() {
    each_mode(&["waits"], Some("ended early: 0\n"), ended_well);
}

#[test]
fn memory_is_unmapped_while_others_touch_it() {
    each_mode(&["races"], Some("races, wrong: 0 and 0\n"), ended_well);
}

#[test]
fn programs_start_from_memory_that_has_left_dram() {
    // Again and again, and nothing is held that a fork would wait for.
    each_mode(&["spawns"], Some("programs: 40\na fork behind them: exit 0, wrong: 0\n"), ended_well);
}

#[test]
fn a_program_that_takes_the_place_of_itself_begins_anew() {
    let expected = "life 1, wrong: 0\nlife 2, wrong: 0\nlife 3, wrong: 0\n";
    each_mode(&["exec"], Some(expected), ended_well);
    // Over a pool, which it opens again.
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "pitfalls") else { return };
    let pool = directory.path().join("pool");
    let (pool, program) = (pool.to_str().unwrap(), program.to_str().unwrap());
    assert!(Command::new(FULGURITE).args(["pool", "create", pool, "--size", "96M"]).output().unwrap().status.success());
    let output = command(None, &["--dram", "20M", "--pool", pool, "--", program, "exec"]).output().unwrap();
    if !cannot(&output) {
        assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    }
}

#[test]
fn a_stack_that_ends_is_the_programs_own_affair() {
    // A stack of 8 MiB is more than the cap leaves.
    each_mode(&["stack"], Some("overflows are caught, wrong: 0\n"), |output, logged| {
        assert!(output.status.success(), "{:?}: {logged}", output.status);
    });
    each_mode(&["stack", "dies"], Some("overflows are caught, wrong: 0\n"), |output, logged| {
        assert_eq!(output.status.signal(), Some(SIGSEGV), "{logged}");
    });
}

#[test]
fn full_flash_is_no_memory_until_some_is_given_back() {
    let expected = "mmap: ENOMEM\nmalloc: null ENOMEM\ncalloc: null ENOMEM\nposix_memalign: ENOMEM\nrealloc: null \
                    ENOMEM, kept: 5\ngiven back: 6, wrong: 0\n";
    each_mode(&["full"], Some(expected), |output, logged| {
        ended_well(output, logged);
        assert_eq!(logged.matches("the flash has no room").count(), 1, "it is said once: {logged}");
    });
}

#[test]
fn memory_that_the_library_cannot_have_is_no_memory_for_the_program() {
    let directory = tempfile::tempdir().unwrap();
    if compiled(directory.path(), "pitfalls").is_none() {
        return;
    }
    for mode in MODES {
        let options = ["--flash-size", "320M", "--threshold", "4K", "--mode", mode];
        let Some(output) = run_with(directory.path(), &options, &["scarce"]) else { continue };
        let logged = text(&output.stderr);
        let expected = "before\nrefused: ENOMEM, of many: 1\nkept, wrong: 0 and 0\nagain: 6\n";
        assert_eq!(text(&output.stdout), expected, "{mode}: {:?}: {logged}", output.status);
        assert!(logged.contains("maps no memory for what is to be known"), "{mode}: {logged}");
        ended_well(&output, &logged);
    }
}

#[test]
fn blocks_that_are_none_end_the_program_in_a_sentence() {
    for which in ["twice", "inside", "mapping", "resize"] {
        each_mode(&["frees", which], Some("before\n"), |output, logged| {
            assert_eq!(output.status.signal(), Some(SIGABRT), "{which}: {logged}");
            assert!(logged.contains("is freed or resized, and is no block, or no more"), "{which}: {logged}");
        });
    }
}

#[test]
fn ranges_are_asked_for_as_the_kernel_is() {
    each_mode(&["ranges"], None, ended_well);
}

#[test]
fn what_memory_of_flash_cannot_be_is_refused() {
    let advice = "advice: EINVAL\n".repeat(6);
    let expected = "to children: done\nmlock: ENOMEM\nmlock2: ENOMEM\nmlockall: ENOMEM\nexecutable: EACCES\n\
                    kept, wrong: 0\n";
    each_mode(&["asked"], Some(&(advice + expected)), ended_well);
}

#[test]
fn what_is_on_its_way_keeps_what_it_held() {
    let expected = "vmsplice: 65536\nzero copies: EOPNOTSUPP\nread: 65536, wrong: 0 and 0\n";
    each_mode(&["pipes"], Some(expected), ended_well);
}

#[test]
fn devices_reach_what_stays_until_they_are_through() {
    each_mode(&["direct"], None, ended_well);
    // Requests that the kernel ends later: in-line mode does not see them end, and refuses them.
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "pitfalls") else { return };
    for how in ["requests", "ring", "registered"] {
        let words = ["direct", how];
        let expected = text(&Command::new(&program).args(words).output().unwrap().stdout);
        if !expected.contains("read: 2097152") {
            println!("SKIPPED: this machine has no such requests ({how})");
            continue;
        }
        for mode in MODES {
            let Some(output) = run(directory.path(), mode, &words) else { continue };
            let logged = text(&output.stderr);
            let is_refused = mode == "in-line";
            let expected = if is_refused { "requests: ENOSYS\nwrong: 0\n" } else { &expected };
            assert_eq!(text(&output.stdout), expected, "{mode}, {how}: {logged}");
            assert_eq!(logged.matches("fails with ENOSYS").count(), usize::from(is_refused), "{mode}, {how}: {logged}");
            ended_well(&output, &logged);
        }
    }
}

#[test]
fn libraries_of_requests_are_refused_in_in_line_mode_only() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "pitfalls") else { return };
    let without = text(&Command::new(&program).arg("setups").output().unwrap().stdout);
    let (first, functions) = without.split_once('\n').unwrap();
    if first.contains('0') {
        println!("SKIPPED in part: a library is missing ({first})");
    }
    for mode in MODES {
        let Some(output) = run(directory.path(), mode, &["setups"]) else { continue };
        let refused: String =
            functions.lines().map(|l| l.split(':').next().unwrap().to_owned() + ": ENOSYS\n").collect();
        let expected = if mode == "in-line" { &refused } else { functions };
        assert_eq!(text(&output.stdout), format!("{first}\n{expected}"), "{mode}: {}", text(&output.stderr));
    }
}

#[test]
fn words_that_the_kernel_writes_for_threads_are_elsewhere() {
    let refused = ["clear", "child", "parent", "clone", "clone3"];
    let of = |end: &str| refused.map(|what| format!("{what}: {end}\n")).concat();
    let ends = "of this thread: EOPNOTSUPP\na list: EOPNOTSUPP\nwords, wrong: 0\n";
    let expected = [&of("EOPNOTSUPP"), &of("done"), ends].concat();
    each_mode(&["words"], Some(&expected), |output, logged| {
        ended_well(output, logged);
        assert_eq!(logged.matches("a word that the kernel writes").count(), 1, "it is said once: {logged}");
    });
}

#[test]
fn robust_mutexes_are_elsewhere() {
    let expected = "robust in mapped memory: EOPNOTSUPP\nrobust elsewhere: 0\nanother kind: 0\nits owner: dead\n\
                    consistent: 0\n";
    each_mode(&["robust"], Some(expected), |output, logged| {
        ended_well(output, logged);
        assert!(logged.contains("a robust mutex cannot be in memory of flash"), "{logged}");
    });
}

#[test]
fn flash_that_fails_is_a_signal_and_never_a_wrong_byte() {
    for how in ["cut", "overwritten"] {
        let one = "BUS, code MCEERR_AR, its page: 1\n";
        let expected = format!("{how}: 0\n{one}{one}failed: 2, wrong: 0\n");
        each_mode(&["broken", how], Some(&expected), |_, logged| {
            assert!(logged.contains("the flash failed") && logged.contains("SIGBUS for accesses"), "{logged}");
        });
    }
}
