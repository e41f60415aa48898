//! What will happen when: a heap of events in the order of their times, and of equals in the order in which they were made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens to a plane or a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Happens {
    /// A plane's array has finished what it did.
    ArrayDone,
    /// What a plane is to program has arrived in its register.
    Loaded,
    /// What a plane has read has left its register.
    Sent,
    /// A channel's bus is free.
    BusFree,
}

/// A heap of events.
#[derive(Debug)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Happens, u32)>>,
    made: u64,
}

impl Events {
    pub fn with_capacity(capacity: usize) -> Events {
        Events { heap: BinaryHeap::with_capacity(capacity), made: 0 }
    }
    pub fn at(&mut self, time: u64, what: Happens, to: u32) {
        self.made += 1;
        self.heap.push(Reverse((time, self.made, what, to)));
    }
    pub fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, ..))| *time)
    }
    /// The next event that is not later than that.
    pub fn pop_until(&mut self, limit: u64) -> Option<(u64, Happens, u32)> {
        if self.next_time()? > limit {
            return None;
        }
        self.heap.pop().map(|Reverse((time, _, what, to))| (time, what, to))
    }
}
