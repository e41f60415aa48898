//! An access of a core on its way, and the times of a miss.

use super::work::BLOCK;
use crate::time::Time;

/// An access that its L1 does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub address: u64,
    pub writes: bool,
    /// The block of the page table comes first.
    pub table: Option<u64>,
    /// The tile of its controller.
    pub corner: u32,
    /// Other cores have dropped their copies.
    pub acknowledged: Time,
    /// The forward-progress bit.
    pub forced: bool,
    /// The thread has been switched out here.
    pub resumed: bool,
}

/// When a miss was at its controller, when its core was free for another thread, and when its page
/// had come.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissTimes {
    pub reached: Time,
    pub left: Time,
    pub came: Time,
}

impl Access {
    /// The address that is looked for now.
    pub fn next(&self) -> u64 {
        self.table.unwrap_or(self.address)
    }
    /// Its block, and whether that is written.
    pub fn block(&self) -> (u64, bool) {
        (self.next() / BLOCK, self.writes && self.table.is_none())
    }
    /// The page table has its answer. What comes next has not been tried before.
    pub fn translated(&mut self) {
        (self.forced, self.resumed) = (false, false);
    }
}
