//! Bugs of transactions that tests plant.

/// Bugs on purpose: what the tests must find.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bug {
    /// What was read may have changed before the commit.
    ReadsNotValidated,
    /// The latches of what is written are not taken.
    LatchesNotHeld,
    /// What others write to a subpage after the transaction's first write to it is not seen.
    StaleCopies,
    /// The first of several subpages is not written.
    PageForgotten,
    /// A body that returned an error commits.
    ErrorsCommit,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 5] =
        [Bug::ReadsNotValidated, Bug::LatchesNotHeld, Bug::StaleCopies, Bug::PageForgotten, Bug::ErrorsCommit];
}
