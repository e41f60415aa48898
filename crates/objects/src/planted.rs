//! Bugs on purpose: tests plant them, to show that they would find them.

/// A bug on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// What was read of flash enters, although the object was changed since the read began.
    OldReadEnters,
    /// An object that was changed while a batch wrote it counts as written.
    ChangedIsWritten,
    /// An object may leave while a batch writes it.
    WritingLeaves,
    /// A batch that failed counts as written.
    FailedIsWritten,
}
