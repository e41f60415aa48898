//! Bugs on purpose: what the tests must find. No program plants one. None is on the way of a hit.

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// A frame is given to another subpage while a fiber of another worker has a reference into it.
    NoSlots,
    /// The near table of a worker that is alone still names the frame of a subpage that was evicted.
    StaleNear,
    /// What never had contents shows those of the frame's last tenant.
    NotZeroed,
    /// A subpage that had no contents when it came is taken to have none yet, though it was written to and to flash.
    StaysFresh,
    /// A write-back that failed is taken for done.
    FailedIsDone,
    /// A frame that was written to flash while a job could write to it is clean then.
    InPlaceIsClean,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 6] = [
        Planted::NoSlots,
        Planted::StaleNear,
        Planted::NotZeroed,
        Planted::StaysFresh,
        Planted::FailedIsDone,
        Planted::InPlaceIsClean,
    ];
}
