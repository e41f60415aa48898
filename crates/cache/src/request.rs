//! Requests to the medium that are under way: what each is for, and what its end will want.

use fulgurite_format::FrameIndex;
use fulgurite_policy::Waiter;

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub subpage: u32,
    pub frame: FrameIndex,
    /// When it was submitted; 0 if the slot is not in use.
    pub since_ns: u64,
    pub purpose: Purpose,
    /// It has been given up on once, and may never come back.
    pub late: bool,
    /// The waiter of a read, which says where to look for neighbours.
    pub hints: Hints,
}

/// What a completed read will need. All of it has left the near caches by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    /// The byte of the subpage that the waiter wants first.
    pub wanted: u32,
    pub waiter: Waiter,
}

impl Default for Hints {
    fn default() -> Self {
        Hints { wanted: 0, waiter: NOBODY }
    }
}

/// A read that no waiter has begun.
pub(crate) const NOBODY: Waiter = Waiter(u64::MAX);

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Purpose {
    /// Contents for waiters, present or future.
    #[default]
    Read,
    /// Contents back to flash.
    WriteBack,
    /// Contents back to flash, of a frame that is in use and stays.
    WriteInPlace,
    /// The medium did not answer in time; its waiters were notified. The frame is still the
    /// medium's.
    Abandoned,
    /// The contents of a sealed frame, from where they are.
    Sealed,
    /// The contents of a sealed frame, from a copy.
    Copied,
    /// The contents of a frame that will be evicted soon, from where they are.
    Ahead,
    /// A flush of the medium.
    Flush,
    /// Contents for one waiter, which takes them out of the frame. The subpage gets none.
    Fetch,
}

impl Purpose {
    /// Whether it moves contents to the medium.
    pub fn writes(self) -> bool {
        !matches!(self, Purpose::Read | Purpose::Fetch | Purpose::Abandoned | Purpose::Flush)
    }
}
