//! Bugs on purpose: what the tests must find. No program plants one. None is on the way of a hit.

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// A frame is given to another subpage while a fiber of another worker has a reference into it.
    NoSlots,
    /// The near table of a lone worker still names the frame of an evicted subpage.
    StaleNear,
    /// What never had contents shows the contents of the frame's last tenant.
    NotZeroed,
    /// A subpage without contents when it came still counts as such after it was written.
    StaysFresh,
    /// A write-back that failed is taken for done.
    FailedIsDone,
    /// A frame that was written to flash while a job could write to it is clean then.
    InPlaceIsClean,
    /// Miss: a frame is not pinned for its waiters, which run when it may hold another subpage.
    NotPinned,
    /// Miss: a read that failed is installed.
    FailedIsRead,
    /// Miss: the frame of an abandoned read is free at once, though the medium may still write to
    /// it.
    AbandonedIsFree,
    /// Evict: a dirty victim is freed without a write.
    NotWritten,
    /// Evict: frames are evicted though they are pinned.
    PinsUnseen,
    /// Cut: what was written after the cut is evicted before the token is named.
    NotHeldBack,
    /// Cut: a write to a sealed frame does not copy it first.
    NotCopied,
    /// Cut: frames that are pinned are left out.
    PinnedLeftOut,
    /// Cut: a write of it that failed is not reported.
    FailureUntold,
    /// Roll back: what is in frames stays there.
    NotForgotten,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 16] = [
        Planted::NoSlots,
        Planted::StaleNear,
        Planted::NotZeroed,
        Planted::StaysFresh,
        Planted::FailedIsDone,
        Planted::InPlaceIsClean,
        Planted::NotPinned,
        Planted::FailedIsRead,
        Planted::AbandonedIsFree,
        Planted::NotWritten,
        Planted::PinsUnseen,
        Planted::NotHeldBack,
        Planted::NotCopied,
        Planted::PinnedLeftOut,
        Planted::FailureUntold,
        Planted::NotForgotten,
    ];
}
