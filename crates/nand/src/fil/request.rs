//! What is asked of the layer, and how it ends.

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlashOp {
    /// Read a flash page.
    Read,
    /// Write a flash page.
    Write,
    /// Make durable all writes submitted before. The flash page is ignored.
    Flush,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashRequest {
    /// Comes back when it has ended.
    pub tag: u64,
    /// What to do.
    pub op: FlashOp,
    /// Which flash page.
    pub flash_page: u32,
    /// It is part of reclaiming space, so that what waits for it is counted as blocked by that.
    /// `false` where it is not known.
    pub reclaim: bool,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashStatus {
    /// Well.
    Ok,
    /// It was read, after this many bits were corrected.
    Corrected(u32),
    /// It cannot be read: more bits are wrong than can be corrected.
    Uncorrectable,
    /// It was not written: the block is bad, or the log is full. It may succeed elsewhere. Of a
    /// flush: something written before it, whose request had ended well already, is not on the NAND
    /// and will not be. It is reported once, to all flushes under way then.
    WriteFailed,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashDone {
    /// The request's tag.
    pub tag: u64,
    /// How it went.
    pub status: FlashStatus,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// When it had ended.
    pub done_ns: u64,
    /// A read that found an erase, or another request of reclaim, of its plane before it.
    pub blocked_by_reclaim: bool,
}
