//! CPU time, faults and kernel I/O of this process.

use std::fs;

use fulgurite_sys::clock;

/// Counters of this process, of which only differences mean anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of all threads, user and kernel.
    pub cpu_ns: u64,
    /// Pages that had to be read first.
    pub major_faults: u64,
    /// 4 KiB blocks that this process has caused to be read.
    pub blocks_read: u64,
    /// Written: its own, and what the machine has swapped out.
    pub blocks_written: u64,
}

impl Usage {
    /// Until now.
    pub fn now() -> Usage {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // proc_pid_stat(5): `majflt` is field 12, the tenth after the name in parentheses.
        let faults = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(9)?.parse().ok());
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let vm = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let number = |text: &str, key: &str| -> u64 {
            text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
        };
        Usage {
            cpu_ns: clock::process_cpu().as_nanos() as u64,
            major_faults: faults.unwrap_or(0),
            blocks_read: number(&io, "read_bytes:") / 4096,
            blocks_written: number(&io, "write_bytes:") / 4096 + number(&vm, "pswpout "),
        }
    }
    /// What was used since `before`.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            blocks_read: self.blocks_read.saturating_sub(before.blocks_read),
            blocks_written: self.blocks_written.saturating_sub(before.blocks_written),
        }
    }
}
