//! Which processes have a file open, as far as this one may see.
//!
//! The kernel closes a process's files some time after its end: a ring with operations in flight in
//! the background, all else when the process has a core to end on. So a locked file that no process
//! has open is worth waiting for.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The kernel's mark of a process that ends (`PF_EXITING`, include/linux/sched.h).
const EXITING: u64 = 0x4;
/// SIGKILL among the signals that wait, as /proc shows them: bit 9 - 1.
const KILLED: u64 = 1 << 8;

/// Whether a running process has the file or block device at a path open, or a device is mounted.
/// Yes also where that is unknown, as waiting gains nothing then.
pub(super) fn is_held(path: &Path) -> bool {
    let Ok(wanted) = fs::metadata(path) else { return true };
    let is_device = wanted.file_type().is_block_device();
    if is_device && is_mounted(wanted.rdev()) {
        return true;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let ids = processes.flatten().filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    // Processes of other users are hidden, and cannot have this user's file open without
    // privileges.
    ids.map(|entry| entry.path()).any(|process| has_open(&process, &wanted) && !is_ending(&process))
}

/// Whether this process has the file or block device at a path open.
pub(super) fn is_held_here(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|wanted| has_open(Path::new("/proc/self"), &wanted))
}

/// Whether a process has a file or block device open.
fn has_open(process: &Path, wanted: &fs::Metadata) -> bool {
    let is_it = |found: &fs::Metadata| match wanted.file_type().is_block_device() {
        true => found.file_type().is_block_device() && found.rdev() == wanted.rdev(),
        false => (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()),
    };
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut open = open.filter_map(|fd| fs::metadata(fd.path()).ok());
    open.any(|found| is_it(&found))
}

/// Whether a process is about to end: it does not run programs' code any more, or never will again.
fn is_ending(process: &Path) -> bool {
    let Ok(stat) = fs::read_to_string(process.join("stat")) else { return true };
    // Behind the name, which may contain anything: the state, five numbers, and the flags.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let (state, flags) = (fields.next(), fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()));
    if matches!(state, None | Some("Z" | "X")) || flags.is_none_or(|flags| flags & EXITING != 0) {
        return true;
    }
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let waiting = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name, "SigPnd" | "ShdPnd").then(|| u64::from_str_radix(value.trim(), 16).ok())?
    });
    waiting.fold(0, |all, some| all | some) & KILLED != 0
}

/// Whether a file system is mounted from a block device of this number.
fn is_mounted(device: u64) -> bool {
    // As `gnu_dev_major` and `gnu_dev_minor` have it.
    let major = (device >> 8) & 0xFFF | (device >> 32) & !0xFFF;
    let minor = device & 0xFF | (device >> 12) & !0xFF;
    let number = format!("{major}:{minor}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split_ascii_whitespace().nth(2) == Some(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn an_open_file_is_held_until_its_process_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"x").unwrap();
        assert!(!is_held(&path));
        let ours = fs::File::open(&path).unwrap();
        assert!(is_held(&path), "this process has it open");
        drop(ours);
        let sleeper = || {
            let mut command = Command::new("sleep");
            command.arg("1000").stdin(fs::File::open(&path).unwrap()).stdout(Stdio::null()).spawn().unwrap()
        };
        let mut child = sleeper();
        assert!(is_held(&path));
        child.kill().unwrap();
        // Not reaped yet. Between the signal and the end of the process is a moment in which
        // neither is seen.
        let begun = Instant::now();
        while is_held(&path) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it was killed");
        }
        child.wait().unwrap();
        assert!(!is_held(&path) && is_held(&directory.path().join("nothing")));
        // A process that stands still lives.
        let mut child = sleeper();
        let stopped = Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap();
        assert!(stopped.success() && is_held(&path));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
