//! CPU time of the kernel's own threads, which swap, write the page cache back, complete requests and move pages, for whomever on
//! this machine: by /proc, as nobody counts it for the process that caused it.

use std::fs;

/// proc_pid_stat(5): a thread of the kernel (`PF_KTHREAD`), by its flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Nanoseconds that the kernel's threads have had a processor until now; only differences mean anything, and those that end take
/// their time along. None where they cannot be seen.
pub fn ran_ns() -> Option<u64> {
    let ran = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u32>().ok()?;
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        // Field 9, the seventh after the name in parentheses.
        let flags: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()?;
        if flags & KERNEL_THREAD == 0 {
            return None;
        }
        // Its first number: nanoseconds on a processor.
        let schedstat = fs::read_to_string(path.join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    let (threads, ns) = ran.fold((0, 0), |(threads, ns), one| (threads + 1, ns + one));
    (threads > 0).then_some(ns)
}
