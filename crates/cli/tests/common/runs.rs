//! What tests of `fulgurite run` have in common: memory cgroups, programs in C, and what is
//! reported.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const FULGURITE: &str = env!("CARGO_BIN_EXE_fulgurite");

/// A memory cgroup for one program; removed when dropped.
pub struct Group {
    path: PathBuf,
    peak: &'static str,
}

impl Group {
    pub fn new(name: &str, limit: u64) -> Option<Group> {
        let name = format!("fulgurite-test-{name}-{}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ];
        for (root, max, peak) in kinds {
            let path = Path::new(root).join(&name);
            if fs::create_dir(&path).is_ok() {
                let group = Group { path, peak };
                if fs::write(group.path.join(max), limit.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        println!("SKIPPED: no right to make a memory cgroup; run as root to test the cap");
        None
    }
    /// The file that takes processes in.
    pub fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
    pub fn peak(&self) -> u64 {
        fs::read_to_string(self.path.join(self.peak)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}
impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// `fulgurite run` with these options, in a group if there is one.
pub fn command(group: Option<&Group>, words: &[&str]) -> Command {
    let mut command = match group {
        Some(group) => {
            let mut command = Command::new("/bin/sh");
            let procs = group.path.join("cgroup.procs");
            command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(FULGURITE);
            command
        }
        None => Command::new(FULGURITE),
    };
    command.arg("run").args(words);
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the machine cannot, which is said.
pub fn cannot(output: &Output) -> bool {
    let logged = text(&output.stderr);
    let refused = logged.contains("userfaultfd");
    if refused && !output.status.success() {
        println!("SKIPPED: {logged}");
    }
    refused && !output.status.success()
}

/// A program in C or C++ of this directory, or none where there is no compiler.
pub fn compiled(directory: &Path, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let in_c = source.with_extension("c");
    let (compiler, source) = if in_c.exists() { ("cc", in_c) } else { ("c++", source.with_extension("cc")) };
    let program = directory.join(name);
    match Command::new(compiler).args(["-O1", "-pthread", "-o"]).args([&program, &source]).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", text(&output.stderr));
            Some(program)
        }
        Err(error) => {
            println!("SKIPPED: no {compiler} ({error}); apt-get install g++");
            None
        }
    }
}

/// The least multiple of its cap that a program holds.
pub const TIMES: u64 = 4;

/// Runs a program with this input. Returns also the most bytes that it had in DRAM, as far as was
/// seen: without us, that is what it holds.
pub fn output_and_peak(command: &mut Command, input: &[u8]) -> (Output, u64) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, pid, has_ended) = (child.stdin.take().unwrap(), child.id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A program may end before it has read all.
        scope.spawn(move || drop(stdin.write_all(input)));
        let peak = scope.spawn(|| {
            let mut most = 0;
            while !has_ended.load(Ordering::Relaxed) {
                most = resident_peak(pid).max(most);
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let output = child.wait_with_output().unwrap();
        has_ended.store(true, Ordering::Relaxed);
        (output, peak.join().unwrap())
    })
}

/// The most bytes that a process has had in DRAM so far; 0 when it has ended.
pub fn resident_peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Bytes of the peak that the summary tells.
pub fn peak_of_summary(logged: &str) -> u64 {
    let rest = logged.split("peak memory ").nth(1).unwrap_or_else(|| panic!("no summary: {logged}"));
    let number = rest.split(',').next().expect("there is one");
    fulgurite_format::parse_bytes(&number.replace(' ', "")).unwrap_or_else(|e| panic!("{number}: {e}"))
}
