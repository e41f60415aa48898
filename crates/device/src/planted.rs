//! Bugs that are planted on purpose, and that the tests must find. No program plants one. Barriers
//! can be left out only in a build under `--cfg loom`.

use crate::entry::Opcode;

/// A barrier that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// The last word of an entry does not publish earlier stores: the other words, and the data
    /// (steps 1, 2, 4, 5).
    RelaxedPublish,
    /// A consumer may load the other words, or the data, before it sees the phase bit (steps 3, 7).
    RelaxedTake,
    /// A ringer looks whether the other side sleeps before its entry can be seen.
    NoFenceOfRinger,
    /// A sleeper looks at the ring once more before its sleep can be seen.
    NoFenceOfSleeper,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 4] =
        [Planted::RelaxedPublish, Planted::RelaxedTake, Planted::NoFenceOfRinger, Planted::NoFenceOfSleeper];
}

/// A memory operation that panics in the device, as on a broken store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlantedPanic(pub Opcode);

/// Bugs in how a host makes good the death of its device, for the tests that kill one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlantedReplay {
    /// Copies of what was not flushed are kept, and never written again.
    Nothing,
    /// They are written after what was in flight.
    After,
}
