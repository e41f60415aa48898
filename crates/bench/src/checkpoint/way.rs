//! How the computation is kept, and what one run of one way came to.

use std::time::Duration;

use super::job::{Gaps, State};
use super::used::Used;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Plain memory, no checkpoints: what the others are compared with.
    Plain,
    /// Plain memory; the pages that have changed are written to a file in place, and that is
    /// flushed.
    File,
    /// Plain memory; all of it is written to a new file, which then takes the old one's place.
    Dump,
    /// The same by a child process, from the memory as it was when that was forked.
    Fork,
    /// Plain memory; the pages that have changed are copied, and a thread appends the copy to a
    /// log.
    Behind,
    /// A pool behind a DRAM cache, no checkpoints.
    Fulgurite,
    /// The same, and `sync`.
    Sync,
}

impl Way {
    pub const ALL: [Way; 7] = [Way::Plain, Way::File, Way::Dump, Way::Fork, Way::Behind, Way::Fulgurite, Way::Sync];
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::File => "file",
            Way::Dump => "dump",
            Way::Fork => "fork",
            Way::Behind => "behind",
            Way::Fulgurite => "fulgurite",
            Way::Sync => "sync",
        }
    }
    pub fn in_pool(self) -> bool {
        matches!(self, Way::Fulgurite | Way::Sync)
    }
    /// The same memory, without checkpoints.
    pub fn unkept(self) -> Way {
        if self.in_pool() { Way::Fulgurite } else { Way::Plain }
    }
    pub fn survives(self) -> &'static str {
        match self {
            Way::Plain | Way::Fulgurite => "nothing",
            Way::File => "but not while it writes",
            Way::Dump | Way::Fork | Way::Behind | Way::Sync => "always",
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

/// What one run of one way came to.
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
