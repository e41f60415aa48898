//! What the layer keeps of a page of NAND that is being programmed, at its home or in the log.

use super::config::PER_PAGE_MAX;
use crate::slots::NONE;

/// A page of NAND that is being programmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// Flash pages in it. [`NONE`] for padding.
    pub pages: [u32; PER_PAGE_MAX],
    /// Requests that end with it.
    pub requests: [u32; PER_PAGE_MAX],
    /// It is their home. Otherwise the log.
    pub home: bool,
    /// In the log: they are moved there.
    pub moves: bool,
    /// In the log: which of them have no home that could be programmed, a bit each.
    pub homeless: u8,
    pub epoch: u64,
    /// How often the extents of the flash pages had begun.
    pub generations: [u32; PER_PAGE_MAX],
    pub tries: u32,
    /// The page of NAND of the log that it was last programmed in. [`NONE`] for none yet.
    pub log_page: u32,
}
impl Default for Program {
    fn default() -> Self {
        let none = [NONE; PER_PAGE_MAX];
        Program {
            pages: none,
            requests: none,
            home: false,
            moves: false,
            homeless: 0,
            epoch: 0,
            generations: [0; PER_PAGE_MAX],
            tries: 0,
            log_page: NONE,
        }
    }
}

/// What an operation of NAND is for: in the upper bits of its tag, above the number of what it
/// serves.
pub(super) mod purpose {
    pub const READ: u64 = 0;
    pub const PROGRAM: u64 = 1 << 32;
    pub const ERASE: u64 = 2 << 32;
    pub const MOVE: u64 = 3 << 32;
    pub const MASK: u64 = 3 << 32;
}
