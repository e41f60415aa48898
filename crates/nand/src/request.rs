//! What is asked of a device, how it answers, and which rules of NAND it keeps to.

use crate::geometry::{Block, NandPage, Plane};

/// What a request asks of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NandOp {
    /// Read a part of a page: the whole page is read from the array, and only this part crosses the
    /// bus.
    Read {
        /// Which.
        page: NandPage,
        /// The first byte.
        offset: u32,
        /// Bytes, at least 1.
        bytes: u32,
    },
    /// Program the next page of its block, whole.
    Program {
        /// Which.
        page: NandPage,
    },
    /// Erase a block.
    Erase {
        /// Which.
        block: Block,
    },
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Returned when the request has ended. The device does not use it.
    pub tag: u64,
    /// What to do.
    pub op: NandOp,
    /// It is part of reclaiming space, so that what waits for it is counted as blocked by that. An
    /// erase always is.
    pub reclaim: bool,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Status {
    /// It succeeded, and nothing had to be corrected.
    #[default]
    Ok,
    /// It succeeded, after this many bits were corrected.
    Corrected(u32),
    /// More bits were wrong than can be corrected.
    Uncorrectable,
    /// Nothing is stored there: the page was not programmed since its block was erased.
    Empty,
    /// The page could not be programmed: its block is bad.
    ProgramFailed,
    /// The block could not be erased: it is bad.
    EraseFailed,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The request's tag.
    pub tag: u64,
    /// How it went.
    pub status: Status,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// When its command began on the bus: until then it waited.
    pub issued_ns: u64,
    /// When it had ended.
    pub done_ns: u64,
    /// An erase or another request of reclaim was before it at its plane.
    pub blocked_by_reclaim: bool,
}

/// A rule of NAND that a request would break: an error of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The page holds something already.
    #[error("page {} of {block:?} is programmed already, up to page {next}; erase the block first", page.0)]
    NotErased {
        /// The page.
        page: NandPage,
        /// Its block.
        block: Block,
        /// The next page of the block, by its number in it.
        next: u32,
    },
    /// Pages before it would be left out.
    #[error("page {} of {block:?} is to be programmed before page {next} of that block; program in ascending order", page.0)]
    OutOfOrder {
        /// The page.
        page: NandPage,
        /// Its block.
        block: Block,
        /// The next page of the block, by its number in it.
        next: u32,
    },
    /// There is no such page, block or part of a page.
    #[error("{0:?} is outside this device")]
    OutOfRange(NandOp),
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many are under way as the device was made for.
    #[error("the device's request table is full; wait until a request has ended")]
    Full,
    /// It breaks a rule.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// What was busy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Resource {
    /// The bus of a channel.
    Bus(u32),
    /// The array of a plane.
    Array(Plane),
}

/// A busy interval, for drawing or checking a timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// What.
    pub resource: Resource,
    /// From when.
    pub begin_ns: u64,
    /// Until when, that moment not included.
    pub end_ns: u64,
    /// The tag of the request.
    pub tag: u64,
}
