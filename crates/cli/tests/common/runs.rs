//! What tests of `fulgurite run` have in common: memory cgroups, programs in C, and what is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    let told = text(&output.stderr);
    let refused = told.contains("userfaultfd");
    if refused && !output.status.success() {
        println!("SKIPPED: {told}");
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

/// Bytes of the peak that the summary tells.
pub fn peak_of_summary(told: &str) -> u64 {
    let rest = told.split("peak memory ").nth(1).unwrap_or_else(|| panic!("no summary: {told}"));
    let number = rest.split(',').next().expect("there is one");
    fulgurite_format::parse_bytes(&number.replace(' ', "")).unwrap_or_else(|e| panic!("{number}: {e}"))
}
