//! CPU time of the kernel's own threads, which swap, write back, complete requests and move pages
//! for any process. Only /proc counts it, and not by process.
//!
//! A thread that ends takes its count along. The sum is kept by thread, so it never falls. It lacks
//! what a thread did after it was last read.

use std::collections::HashMap;
use std::fs;
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::Result;

/// proc_pid_stat(5): a thread of the kernel (`PF_KTHREAD`), by its flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A thread: its number, and when it was started, in ticks since boot, as numbers are given again.
type Thread = (u32, u64);

/// What all readings until now have found of threads.
#[derive(Debug, Default)]
struct Seen {
    /// By thread: nanoseconds on a processor when last seen. A reading may miss a thread.
    last: HashMap<Thread, u64>,
    /// The sum of what they have gained.
    total_ns: u64,
}

impl Seen {
    fn read(&mut self, threads: impl Iterator<Item = (Thread, u64)>) -> u64 {
        for (thread, ns) in threads {
            let last = self.last.entry(thread).or_default();
            self.total_ns += ns.saturating_sub(*last);
            *last = (*last).max(ns);
        }
        self.total_ns
    }
}

static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

/// Nanoseconds of the kernel's threads, only for differences. None where unseen.
pub fn ran_ns() -> Option<u64> {
    let ran = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let number = path.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        let started = started(&stat)?;
        // Its first number: nanoseconds on a processor.
        let schedstat = fs::read_to_string(path.join("schedstat")).ok()?;
        Some(((number, started), schedstat.split_whitespace().next()?.parse().ok()?))
    });
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let total = seen.read(ran);
    (!seen.last.is_empty()).then_some(total)
}

/// When a thread was started, by its `stat`; none for what is no thread of the kernel.
fn started(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // Fields 9 and 22; the first one after the name in parentheses is the third.
    let flags: u64 = fields.nth(6)?.parse().ok()?;
    let started = fields.nth(12)?.parse().ok()?;
    (flags & KERNEL_THREAD != 0).then_some(started)
}

/// Runs code, and counts the nanoseconds of the kernel's threads. None where unseen.
pub fn during<T>(code: impl FnOnce() -> Result<T>) -> Result<(T, Option<u64>)> {
    let before = ran_ns();
    let result = code()?;
    let ran = before.zip(ran_ns());
    Ok((result, ran.map(|(before, now)| now.saturating_sub(before))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_of_a_thread_that_ends_stays_counted() {
        let mut seen = Seen::default();
        let read = |seen: &mut Seen, threads: &[(Thread, u64)]| seen.read(threads.iter().copied());
        let first = read(&mut seen, &[((2, 10), 1000), ((3, 10), 500)]);
        assert_eq!(read(&mut seen, &[((2, 10), 1100), ((3, 10), 700)]) - first, 300);
        // One ends, another goes on, a third is new.
        assert_eq!(read(&mut seen, &[((2, 10), 1150), ((4, 99), 20)]) - first, 370);
        // The kernel reuses a thread's number, and a thread that one reading misses is not counted
        // twice.
        assert_eq!(read(&mut seen, &[((3, 120), 5), ((4, 99), 20)]) - first, 375);
        assert_eq!(read(&mut seen, &[((2, 10), 1160), ((3, 120), 5), ((4, 99), 20)]) - first, 385);
    }
    #[test]
    fn threads_of_the_kernel_are_recognised_by_their_flags() {
        let stat = |flags: u64| format!("7 (a ) b) S 2 0 0 0 -1 {flags} 0 0 0 0 0 3 0 0 20 0 1 0 4711 0 0");
        assert_eq!(started(&stat(0x0020_8040)), Some(4711));
        assert_eq!(started(&stat(0x0040_0040)), None);
        assert_eq!(started("7 (short) S"), None);
        // This very process is none.
        assert_eq!(started(&fs::read_to_string("/proc/self/stat").unwrap()), None);
    }
    #[test]
    fn the_sum_never_falls() {
        let mut last = ran_ns();
        for _ in 0..3 {
            let now = ran_ns();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
        let (seven, ran) = during(|| Ok(7)).unwrap();
        assert_eq!((seven, ran.is_some()), (7, last.is_some()));
        assert!(during(|| -> Result<()> { anyhow::bail!("it fails") }).is_err());
    }
}
