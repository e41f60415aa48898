//! Bugs on purpose: tests plant them, to show that they would find them.

/// A bug on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// A word that is removed leaves a hole, which ends searches too early.
    RemovalLeavesHole,
    /// What was read of flash enters, although the record was replaced since the read began.
    OldReadEnters,
    /// What was read of flash enters, although its page has another record of the key since.
    StampsAreIgnored,
    /// What was read of flash enters, although it is another key's record.
    OtherKeyEnters,
    /// What left the cache leads to the page before reclaim moved it.
    MoveIsForgotten,
    /// A put trusts what was verified, although other words came meanwhile.
    NewWordsAreIgnored,
}
