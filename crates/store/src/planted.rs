//! Bugs on purpose: what the tests must find. No program plants one.

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// A journal page is written before the data that it speaks of is durable.
    SkipDataFlush,
    /// A token is said to be durable before the journal is.
    SkipJournalFlush,
    /// An anchor is written with the checkpoint that it names still in the device's cache.
    AnchorFirst,
    /// An extent is used again before the record that emptied it is durable.
    ReuseEarly,
    /// The map leads to the old place after a move.
    StaleMap,
    /// Pages of metadata are believed whatever their checksum is.
    NoChecksum,
    /// A token is dropped, and the journal does not record it.
    ForgetDrop,
    /// Recovery applies each record twice.
    ReplayTwice,
    /// Recovery takes all pieces of a checkpoint for as new as the last one. (As old as the first
    /// would do no harm: reapplying all later records in order gives the same pages.)
    IgnoreStamps,
    /// A roll-back changes the map and leaves the page table as it is.
    RollBackMapOnly,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 10] = [
        Planted::SkipDataFlush,
        Planted::SkipJournalFlush,
        Planted::AnchorFirst,
        Planted::ReuseEarly,
        Planted::StaleMap,
        Planted::NoChecksum,
        Planted::ForgetDrop,
        Planted::ReplayTwice,
        Planted::IgnoreStamps,
        Planted::RollBackMapOnly,
    ];
}
