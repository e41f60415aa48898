//! How the computation is kept, and what one run of one method came to.

use std::time::Duration;

use super::job::{Gaps, State};
use super::used::Used;
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
    /// This memory without checkpoints, which is what this mode is compared with.
    pub fn unkept(self) -> Method {
        if self.in_pool() { Method::Fulgurite } else { Method::Plain }
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
    /// How long the computation was held up by what it called, or by the closed gate.
    pub held: Duration,
    /// From its beginning until it would survive.
    pub durable: Duration,
    /// Bytes. Of a pool those that it evicted meanwhile are among them.
    pub written: u64,
}

/// What one run of one method came to.
pub(super) struct Run {
    pub gaps: Gaps,
    pub used: Used,
    /// Bytes in huge pages before and after.
    pub huge: (Option<u64>, Option<u64>),
    pub made: Vec<Made>,
    pub written: u64,
    pub end: State,
    /// How many updates were in what was read back.
    pub restored: Option<u64>,
}
