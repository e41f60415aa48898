//! Bugs that are planted on purpose, and that the tests must find. No program plants one.

use crate::entry::Opcode;

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
