//! CPU time of this process, its children and the kernel's threads. Also bytes in huge pages.

use std::fs;
use std::time::Duration;

use fulgurite_sys::clock::process_cpu;
use serde::Serialize;

use fulgurite_harness::kernel_threads;

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Used {
    /// Of all threads of this process; those that the kernel starts for its rings are among them.
    pub process_s: f64,
    pub children_s: f64,
    /// Of the kernel's threads, which write back, complete requests and move pages, for any
    /// process. None where they cannot be seen.
    pub kernel_threads_s: Option<f64>,
}

impl Used {
    /// Until now, of which only differences mean anything. Children are the caller's to count.
    pub fn now() -> Used {
        Used {
            process_s: process_cpu().as_secs_f64(),
            children_s: 0.0,
            kernel_threads_s: kernel_threads::ran_ns().map(|ns| ns as f64 / 1e9),
        }
    }
    /// Since `before`, with these children.
    pub fn since(before: Used, children: Duration) -> Used {
        let now = Used::now();
        let kernel = now.kernel_threads_s.zip(before.kernel_threads_s);
        Used {
            process_s: now.process_s - before.process_s,
            children_s: children.as_secs_f64(),
            kernel_threads_s: kernel.map(|(now, before)| (now - before).max(0.0)),
        }
    }
    pub fn total_s(&self) -> f64 {
        self.process_s + self.children_s + self.kernel_threads_s.unwrap_or(0.0)
    }
}

/// Bytes of this process's memory that are in huge pages now; none where the kernel does not say.
pub fn huge_bytes() -> Option<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_by_whom() {
        let before = Used::now();
        fulgurite_sys::Clock::get().spin(20_000_000);
        let used = Used::since(before, Duration::from_millis(3));
        assert!(used.process_s > 0.0 && used.children_s == 0.003);
        assert_eq!(used.kernel_threads_s.is_some(), before.kernel_threads_s.is_some());
        assert!(used.total_s() >= used.process_s + 0.003);
    }
}
