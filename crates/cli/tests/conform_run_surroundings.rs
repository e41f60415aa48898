//! Goal: what surrounds a program under `fulgurite run` ends it, limits it or reads it as without
//! `fulgurite`, or is refused in a sentence. Its threads end in any order, it confines itself
//! (`seccomp`), it has limits before its start or sets them later, its standard streams are closed,
//! it watches or moves its own memory, it has a sanitizer, and it dumps core. Nothing hangs.
//! Method: a C program whose memory has left DRAM does one such thing at a time, with each of the
//! four backends for faults, and with a limit on its time. What it prints and how it ends are
//! compared with a run without `fulgurite`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fulgurite_testkit::is_full;

use crate::runs::{FULGURITE, cannot, compiled, peak_of_summary, text};

/// Backends for faults: the mode that is asked for, and the rights that are taken away before.
const BACKENDS: [(&str, &[&str]); 4] = [
    ("compatible", &[]),
    ("in-line", &[]),
    ("in-line", &["user", "docker"]),
    ("in-line", &["user", "docker", "guards"]),
];
const CAP: u64 = 10 << 20;
/// The modes that each test takes. All are taken with `FULGURITE_VOLUME=100`.
fn backends() -> Vec<(&'static str, &'static [&'static str])> {
    if is_full() { BACKENDS.to_vec() } else { vec![BACKENDS[0], BACKENDS[2]] }
}
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with the programs, which every user may write to.
struct Surroundings {
    directory: tempfile::TempDir,
    program: PathBuf,
    confined: PathBuf,
}

impl Surroundings {
    /// None without a compiler.
    fn new() -> Option<Surroundings> {
        let directory = tempfile::tempdir().unwrap();
        let program = compiled(directory.path(), "surroundings")?;
        let confined = compiled(directory.path(), "confined")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Some(Surroundings { directory, program, confined })
    }
    fn path(&self) -> &Path {
        self.directory.path()
    }
    /// The program alone.
    fn native(&self, words: &[&str]) -> Output {
        ended(Command::new(&self.program).args(words))
    }
    /// The program under `fulgurite run`. None where the machine cannot.
    fn run(&self, (mode, taken): (&str, &[&str]), words: &[&str]) -> Option<Output> {
        if !taken.is_empty() && !rustix::process::getuid().is_root() {
            println!("SKIPPED: only root can take the rights of root away");
            return None;
        }
        let mut command = Command::new(&self.confined);
        command.args(taken).args(["--", FULGURITE, "run", "--dram", "10M", "--flash-size", "32M", "--flash"]);
        command.arg(self.path()).args(["--mode", mode, "--"]).arg(&self.program).args(words);
        Some(ended(&mut command)).filter(|output| !cannot(output))
    }
    /// Whether the kernel has guard pages for memory of files.
    fn has_guard_pages(&self, (mode, taken): (&str, &[&str])) -> bool {
        let mut command = Command::new(&self.confined);
        command.args(taken).args(["--", FULGURITE, "run", "--dram", "10M", "--flash-size", "10M", "--flash"]);
        command.arg(self.path()).args(["--mode", mode, "--explain", "--", "true"]);
        text(&ended(&mut command).stderr).contains("guard pages on memory of a file")
    }
    /// For each backend: what it prints, or what it prints where it is not in compatible mode. It
    /// ends well, and `logged` is what fulgurite says.
    fn each_prints(&self, words: &[&str], compatible: &str, in_line: &str, check: impl Fn(&str, &str)) {
        for backend in backends() {
            let Some(output) = self.run(backend, words) else { continue };
            let logged = text(&output.stderr);
            let expected = if backend.0 == "compatible" { compatible } else { in_line };
            assert_eq!(text(&output.stdout), expected, "{words:?}, {backend:?}, {:?}: {logged}", output.status);
            assert!(output.status.success(), "{words:?}, {backend:?}, {:?}: {logged}", output.status);
            check(backend.0, &logged);
        }
    }
    /// In each mode, as without fulgurite. `logged` is what fulgurite prints.
    fn each_backend(&self, words: &[&str], check: impl Fn(&str)) {
        let expected = self.native(words);
        for backend in backends() {
            let Some(output) = self.run(backend, words) else { continue };
            let logged = text(&output.stderr);
            assert_eq!(text(&output.stdout), text(&expected.stdout), "{words:?}, {backend:?}: {logged}");
            let status = |output: &Output| (output.status.code(), output.status.signal());
            assert_eq!(status(&output), status(&expected), "{words:?}, {backend:?}: {logged}");
            check(&logged);
        }
    }
}

/// What a program says, which ends in time.
fn ended(command: &mut Command) -> Output {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("{command:?} hangs: {} {}", text(&output.stdout), text(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_process_ends_with_the_last_thread_of_its_program() {
    let Some(place) = Surroundings::new() else { return };
    // The cap holds after the first thread has ended, too, as far as memory is measured.
    place.each_backend(&["ends", "last"], |logged| assert!(peak_of_summary(logged) <= CAP + (1 << 20), "{logged}"));
    let others: &[&str] = if is_full() { &["alone", "both", "call", "child", "killed"] } else { &["both", "killed"] };
    for how in others {
        place.each_backend(&["ends", how], |_| ());
    }
}

#[test]
fn sandboxes_work_or_are_refused_in_a_sentence() {
    let Some(place) = Surroundings::new() else { return };
    let refused = "refused\nright\n";
    let in_line_says = |mode: &str, logged: &str| {
        assert_eq!(logged.contains("threads resolve their own faults by system calls"), mode == "in-line", "{logged}");
    };
    place.each_prints(&["confined", "strict"], "right\n", refused, in_line_says);
    for how in ["few", "few-by-call"] {
        place.each_prints(&["confined", how], "right\n", refused, |mode, logged| {
            in_line_says(mode, logged);
            // What is denied later is said before, and the figures are, too.
            let is_said = logged.contains("denies what maps and frees") && logged.contains("peak memory");
            assert_eq!(is_said, mode == "compatible", "{logged}");
        });
    }
    place.each_prints(&["confined", "denied"], "right\n", refused, in_line_says);
    // For all threads: the library's stay outside where the program has no others.
    place.each_prints(&["confined", "all"], "right\n", refused, in_line_says);
    place.each_prints(&["confined", "all-of-two"], refused, refused, |mode, logged| {
        assert_eq!(logged.contains("is refused for all threads"), mode == "compatible", "{logged}");
    });
    place.each_prints(&["confined", "harmless"], "right\n", "right\n", |_, logged| {
        assert!(!logged.contains("seccomp"), "{logged}");
    });
}

#[test]
fn limits_that_a_program_sets_hold_for_itself_only() {
    let Some(place) = Surroundings::new() else { return };
    place.each_prints(&["limited", "fsize"], "fsize: EPERM\nwrong: 0\n", "fsize: EPERM\nwrong: 0\n", |_, logged| {
        assert!(logged.contains("a limit on the size of files"), "{logged}");
    });
    let others: &[&str] = if is_full() { &["nofile", "nproc", "memlock"] } else { &["nofile"] };
    for what in others {
        place.each_backend(&["limited", what], |_| ());
    }
}

#[test]
fn limits_before_the_start_are_kept_or_refused_in_a_sentence() {
    let Some(place) = Surroundings::new() else { return };
    // In KiB, and for what the shell starts.
    for (limit, refused) in [("-f 1024", Some("ulimit -f")), ("-v 60000", None), ("-n 300", None), ("-n 12", None)] {
        for (mode, _) in &BACKENDS[..2] {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh", FULGURITE, "run", "--dram", "10M"]);
            command.args(["--flash-size", "32M", "--mode", mode, "--flash"]).arg(place.path()).arg("--");
            let output = ended(command.arg(&place.program).args(["limited", "nothing"]));
            let logged = text(&output.stderr);
            match refused {
                Some(why) => {
                    assert!(!output.status.success() && logged.contains(why), "{limit}, {mode}: {logged}");
                }
                None if output.status.success() => assert_eq!(text(&output.stdout), "wrong: 0\n", "{limit}, {mode}"),
                None => {
                    assert!(logged.starts_with("fulgurite run: "), "{limit}, {mode}, {:?}: {logged}", output.status)
                }
            }
            assert_eq!(output.status.signal(), None, "{limit}, {mode}: {logged}");
        }
    }
    let left = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 2, "only the programs are there");
}

#[test]
fn closed_streams_are_nobodys_files() {
    let Some(place) = Surroundings::new() else { return };
    let result = place.path().join("result");
    for backend in &BACKENDS[..2] {
        // With its streams open it can say why it does not run.
        if place.run(*backend, &["limited", "nothing"]).is_none() {
            continue;
        }
        let mode = backend.0;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh", FULGURITE, "run", "--dram", "10M"]);
        command.args(["--flash-size", "32M", "--mode", mode, "--flash"]).arg(place.path());
        let output = ended(command.arg("--").arg(&place.program).arg("closed").arg(&result));
        let found = fs::read_to_string(&result).unwrap_or_default();
        assert_eq!(found, "0: free\n1: free\n2: free\nwrong: 0\n", "{mode}");
        assert!(output.status.success(), "{mode}: {:?}", output.status);
        fs::remove_file(&result).unwrap();
    }
}

#[test]
fn a_userfaultfd_of_the_programs_has_memory_of_the_kernels_only() {
    let Some(place) = Surroundings::new() else { return };
    if text(&place.native(&["watches", "large"]).stdout).starts_with("none") {
        println!("SKIPPED: this user may make no userfaultfd");
        return;
    }
    for backend in &BACKENDS[..2] {
        let Some(output) = place.run(*backend, &["watches", "large"]) else { continue };
        let logged = text(&output.stderr);
        assert_eq!(text(&output.stdout), "register: EBUSY\nwrong: 0\n", "{backend:?}: {logged}");
        assert!(logged.contains("a userfaultfd of the program cannot watch memory of flash"), "{backend:?}: {logged}");
        let Some(output) = place.run(*backend, &["watches", "small"]) else { continue };
        assert_eq!(text(&output.stdout), "register: done\nwrong: 0\n", "{backend:?}: {}", text(&output.stderr));
    }
}

#[test]
fn memory_moves_and_its_old_place_stays() {
    let Some(place) = Surroundings::new() else { return };
    place.each_backend(&["moved", "-"], |_| ());
}

#[test]
fn others_read_the_right_bytes_or_none() {
    let Some(place) = Surroundings::new() else { return };
    let native = text(&place.native(&["seen", "by others"]).stdout);
    if native != "mem: right, process_vm_readv: right, wrong: 0\n0, wrong: 0\n" {
        println!("SKIPPED: a process of this user may not read another one ({native})");
        return;
    }
    // With pages without access, the kernel forces its way to what is not there, and finds zeros.
    for backend in &BACKENDS[..3] {
        let Some(output) = place.run(*backend, &["seen", "by others"]) else { continue };
        let logged = text(&output.stderr);
        if !backend.1.is_empty() && !place.has_guard_pages(*backend) {
            continue;
        }
        let of_call = if backend.0 == "compatible" { "right" } else { "refused" };
        let expected = format!("mem: refused, process_vm_readv: {of_call}, wrong: 0\n0, wrong: 0\n");
        assert_eq!(text(&output.stdout), expected, "{backend:?}: {logged}");
    }
}

#[test]
fn a_core_file_has_no_zeros_in_place_of_missing_pages() {
    let Some(place) = Surroundings::new() else { return };
    for (backend, (mode, taken)) in backends().iter().enumerate() {
        if !taken.is_empty() && !rustix::process::getuid().is_root() {
            println!("SKIPPED: only root can take the rights of root away");
            continue;
        }
        let directory = place.path().join(backend.to_string());
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]).arg(&place.confined).args(*taken);
        command.args(["--", FULGURITE, "run", "--dram", "10M", "--flash-size", "32M", "--flash"]).arg(place.path());
        command.args(["--mode", mode, "--"]).arg(&place.program).args(["seen", "dumped"]);
        let output = ended(command.current_dir(&directory));
        if cannot(&output) {
            continue;
        }
        let logged = text(&output.stderr);
        assert!(logged.contains("will have no memory of flash, where a debugger shows zeros"), "{logged}");
        let address = text(&output.stdout);
        let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).unwrap();
        let Some(core) = fs::read_dir(&directory).unwrap().flatten().next() else {
            println!("SKIPPED: this machine leaves no core file in the directory ({:?})", output.status);
            continue;
        };
        let bytes = bytes_in_core(&fs::read(core.path()).unwrap(), address);
        assert_eq!(bytes, 0, "{mode}, {taken:?}: the core file claims to have what is on flash");
    }
}

/// Bytes that a core file has of the segment with an address.
fn bytes_in_core(core: &[u8], address: u64) -> u64 {
    let number = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap());
    let (headers, count) = (number(32) as usize, u16::from_le_bytes([core[56], core[57]]) as usize);
    assert!(core.starts_with(b"\x7fELF") && count > 3, "no core file");
    let segments = (0..count).map(|index| headers + index * 56);
    // Where it is in memory, and how much of it is in the file.
    let mut of_address =
        segments.filter(|at| number(at + 16) <= address && address < number(at + 16) + number(at + 40));
    of_address.next().map_or(0, |at| number(at + 32))
}

#[test]
fn a_program_with_a_sanitizer_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/touch.c");
    for sanitizer in ["address", "thread", "undefined"] {
        let program = directory.path().join(sanitizer);
        let mut compiler = Command::new("cc");
        compiler.arg(format!("-fsanitize={sanitizer}")).args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source);
        match compiler.output() {
            Ok(output) if output.status.success() => {}
            other => {
                println!("SKIPPED: no compiler with the {sanitizer} sanitizer ({other:?})");
                continue;
            }
        }
        let mut command = Command::new(FULGURITE);
        command.args(["run", "--dram", "32M", "--flash"]).arg(directory.path()).arg("--").arg(&program).arg("4");
        let output = ended(&mut command);
        let logged = text(&output.stderr);
        if sanitizer == "undefined" {
            assert_eq!(text(&output.stdout), "1024 pages, 0 wrong\n", "{logged}");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{sanitizer}: {logged}");
        assert!(logged.contains("it is built with a sanitizer") && output.stdout.is_empty(), "{sanitizer}: {logged}");
        let mut command = Command::new(FULGURITE);
        command.args(["run", "--dram", "32M", "--flash"]).arg(directory.path()).args(["--", "true"]);
        let output = ended(command.env("LD_PRELOAD", "libasan.so.8"));
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
}

#[test]
fn a_start_that_is_killed_leaves_no_flash() {
    let Some(place) = Surroundings::new() else { return };
    for patience_ms in [20, 60, 120, 200] {
        let mut command = Command::new(FULGURITE);
        command.args(["run", "--dram", "10M", "--flash-size", "1G", "--flash"]).arg(place.path()).args(["--", "true"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(patience_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "only the programs are there");
    }
}
