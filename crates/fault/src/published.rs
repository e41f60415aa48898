//! Figures of a page buffer that other processes may read: a memfd, which they find among the
//! descriptors of the process. It is gone when the process is, however that ends.
//!
//! ```text
//!  word 0     1         2 .. 14                       (64 bits each, in this machine's order)
//!  +--------+---------+----------------------------+
//!  | format | process | counters, as `Summary` has |
//!  +--------+---------+----------------------------+
//! ```
//!
//! Only processes of the same user, and root, may read it. Its size is sealed, so that none of them
//! can take the memory away. Counters change one by one, so that two of them may be of different
//! moments.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::Arena;

use crate::budget::{field, kib_of};
use crate::statistics::Summary;

const NAME: &str = "fulgurite-statistics";
/// How the kernel shows such a descriptor.
const LINK: &str = "/memfd:fulgurite-statistics (deleted)";
/// "fulg", and the number of this layout.
const FORMAT: u64 = 0x6675_6C67_0000_0003;
const COUNTERS: usize = 13;
const WORDS: usize = 2 + COUNTERS;
/// The kernel's `O_NONBLOCK`. What has the name but is no memfd must not hold up a reader.
const NO_WAIT: i32 = 0o4000;

/// The figures of this process, while it runs.
#[derive(Debug)]
pub struct Publisher(Option<Arena>);

impl Publisher {
    /// Of this process. Without a descriptor or memory for it, nothing is published.
    pub fn new() -> Publisher {
        let arena = Arena::sealed_memfd(NAME, WORDS * 8).ok();
        if let Some(arena) = &arena {
            let words = arena.words(0, WORDS);
            words[1].store(std::process::id().into(), Ordering::Relaxed);
            words[0].store(FORMAT, Ordering::Release);
        }
        Publisher(arena)
    }
    /// Publishes these.
    pub fn publish(&self, summary: &Summary) {
        let Some(arena) = &self.0 else { return };
        for (word, counter) in arena.words(2 * 8, COUNTERS).iter().zip(counters(summary)) {
            word.store(counter, Ordering::Relaxed);
        }
    }
}

fn counters(summary: &Summary) -> [u64; COUNTERS] {
    [
        summary.faults,
        summary.reads,
        summary.fresh,
        summary.evicted_clean,
        summary.evicted_dirty,
        summary.prefetched,
        summary.errors,
        u64::try_from(summary.waited.as_nanos()).unwrap_or(u64::MAX),
        summary.frames,
        summary.peak_bytes,
        summary.cap_bytes,
        summary.faults_of_workers,
        summary.faults_switched,
    ]
}

fn summary(counters: [u64; COUNTERS]) -> Summary {
    let [
        faults,
        reads,
        fresh,
        evicted_clean,
        evicted_dirty,
        prefetched,
        errors,
        waited_ns,
        frames,
        peak,
        cap,
        of_workers,
        switched,
    ] = counters;
    Summary {
        faults,
        reads,
        fresh,
        evicted_clean,
        evicted_dirty,
        prefetched,
        errors,
        waited: Duration::from_nanos(waited_ns),
        frames,
        peak_bytes: peak,
        cap_bytes: cap,
        faults_of_workers: of_workers,
        faults_switched: switched,
    }
}

/// The figures of a process that has a page buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The process, as this one sees it.
    pub pid: u32,
    /// Its name, as the kernel has it, without control characters.
    pub name: String,
    /// Memory of the process now, in bytes: resident pages and page tables.
    pub used_bytes: u64,
    /// What its first page buffer has done so far.
    pub summary: Summary,
}

impl Published {
    /// The figures of a process. None when it has no page buffer, has ended, or is of another user.
    #[must_use]
    pub fn of(pid: u32) -> Option<Published> {
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        let own_pid = own_pid(&status)?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let summary = descriptors.filter_map(|entry| read(&entry.path(), own_pid)).next()?;
        let statm = fs::read(format!("/proc/{pid}/statm")).ok()?;
        let resident = field(&statm, 1)? * SUBPAGE_BYTES as u64;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Published {
            pid,
            name: name.chars().filter(|letter| !letter.is_control()).collect(),
            // A process that is about to end has no page tables any more.
            used_bytes: resident + kib_of(&status, "VmPTE:").unwrap_or(0) * 1024,
            summary,
        })
    }

    /// The figures of all processes that have a page buffer and may be read, by process.
    #[must_use]
    pub fn all() -> Vec<Published> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut all: Vec<Published> = pids.filter_map(Published::of).collect();
        all.sort_by_key(|one| one.pid);
        all
    }
}

/// The number by which a process knows itself. In a container that is another one than outside.
fn own_pid(status: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(status).ok()?.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// What a descriptor publishes of the process with this number. A child after `fork` has its
/// parent's descriptor as well, until it has its own.
fn read(descriptor: &Path, own_pid: u64) -> Option<Summary> {
    if fs::read_link(descriptor).ok()?.to_str() != Some(LINK) {
        return None;
    }
    let mut bytes = [0; WORDS * 8];
    let file = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(descriptor).ok()?;
    file.read_exact_at(&mut bytes, 0).ok()?;
    let words: [u64; WORDS] =
        std::array::from_fn(|at| u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes")));
    let [FORMAT, pid, counters @ ..] = words else { return None };
    (pid == own_pid).then(|| summary(counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_publishes_is_found_until_it_ends() {
        let pid = std::process::id();
        let publisher = Publisher::new();
        let sent = summary([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!((sent.faults, sent.errors, sent.waited.as_nanos(), sent.faults_switched), (1, 7, 8, 13));
        publisher.publish(&sent);
        // Other tests of this process may publish, too.
        let found = |pid: u64| {
            let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
            all.filter_map(|entry| read(&entry.path(), pid)).any(|summary| summary == sent)
        };
        assert!(found(pid.into()));
        assert!(!found(u64::from(pid) + 1), "it is of another process");
        let all = Published::all();
        let mine = all.iter().find(|one| one.pid == pid).expect("it is published");
        assert!(!mine.name.is_empty() && mine.used_bytes > 1 << 20, "{mine:?}");
        drop(publisher);
        assert!(!found(pid.into()));
        assert_eq!(Published::of(u32::MAX), None);
    }
    #[test]
    fn a_process_in_a_container_has_a_number_of_its_own() {
        assert_eq!(own_pid(b"Name:\tx\nNSpid:\t4711\t12\t3\nVmPTE:\t8 kB\n"), Some(3));
        assert_eq!(own_pid(b"Name:\tx\n"), None);
    }
}
