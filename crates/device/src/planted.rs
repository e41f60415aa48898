//! Bugs that are planted on purpose, and that the tests must find. No program plants one; barriers can be left out only in a build under
//! `--cfg loom`.

use crate::entry::Opcode;

/// A barrier that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// The last word of an entry does not publish what was stored before it: the other words, the data of a write (steps 1, 2), the data
    /// of a read (steps 4, 5).
    RelaxedPublish,
    /// Who takes an entry may have loaded its other words, or the data, before it saw the phase bit (steps 3, 7).
    RelaxedTake,
    /// Who rings looks at whether the other side sleeps before its entry can be seen.
    NoFenceOfRinger,
    /// Who goes to sleep looks at the ring once more before it can be seen that it sleeps.
    NoFenceOfSleeper,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 4] =
        [Planted::RelaxedPublish, Planted::RelaxedTake, Planted::NoFenceOfRinger, Planted::NoFenceOfSleeper];
}

/// A memory operation that panics in the device, as one does that finds its store broken. No program plants one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlantedPanic(pub Opcode);

/// Bugs in how a host makes good the death of its device: what the tests that kill one must find. No program plants one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlantedReplay {
    /// Copies of what was not flushed are kept, and never written again.
    Nothing,
    /// They are written after what was in flight.
    After,
}
