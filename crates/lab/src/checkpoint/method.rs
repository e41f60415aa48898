//! How the computation is kept, and what one run of one method came to.

use std::time::Duration;

use fulgurite_sys::clock::process_cpu;

use super::job::{Gaps, State};
use fulgurite_harness::kernel_threads;
use fulgurite_term::names;

names! {
    /// How the computation is kept. All of plain memory but the last two.
    Method {
        /// No checkpoints: what the others are compared with.
        Plain = "plain",
        /// The pages that have changed are written to a file in place, and that is flushed.
        File = "file",
        /// All of it is written to a new file, which then takes the old one's place.
        Dump = "dump",
        /// A child process writes all of it to a new file, from the memory as it was at the fork.
        Fork = "fork",
        /// The pages that have changed are copied, and a thread appends the copy to a log.
        Behind = "behind",
        /// A pool behind a DRAM cache, no checkpoints.
        Fulgurite = "fulgurite",
        /// That pool, with `sync` as the checkpoint.
        Sync = "sync",
    }
}

impl Method {
    pub fn in_pool(self) -> bool {
        matches!(self, Method::Fulgurite | Method::Sync)
    }
    pub fn survives(self) -> &'static str {
        match self {
            Method::Plain | Method::Fulgurite => "nothing",
            Method::File => "but not while it writes",
            Method::Dump | Method::Fork | Method::Behind | Method::Sync => "always",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub state: State,
    /// From its beginning until it would survive.
    pub durable: Duration,
    /// Bytes. Of a pool those that it evicted meanwhile are among them.
    pub written: u64,
}

/// What one run of one method came to.
pub(super) struct Run {
    pub gaps: Gaps,
    /// CPU time of this process, its children and the kernel's threads.
    pub cpu_s: f64,
    pub made: Vec<Made>,
    pub end: State,
    /// How many updates were in what was read back.
    pub restored: Option<u64>,
}

/// CPU time until now, of which only differences mean anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuTime {
    process_s: f64,
    /// Of the kernel's threads, which write back, complete requests and move pages, for any
    /// process. 0 where they cannot be seen.
    kernel_threads_s: f64,
}

impl CpuTime {
    pub fn now() -> CpuTime {
        let kernel_threads_s = kernel_threads::ran_ns().unwrap_or(0) as f64 / 1e9;
        CpuTime { process_s: process_cpu().as_secs_f64(), kernel_threads_s }
    }
    /// Seconds since then, with these children.
    pub fn elapsed_s(self, children: Duration) -> f64 {
        let now = CpuTime::now();
        let kernel_threads_s = (now.kernel_threads_s - self.kernel_threads_s).max(0.0);
        now.process_s - self.process_s + kernel_threads_s + children.as_secs_f64()
    }
}
