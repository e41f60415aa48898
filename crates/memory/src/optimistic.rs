//! How the containers read without a latch and write with one held only for the writing.
//!
//! A reader reads, then asks whether the latch was free all the while. What it read meanwhile may
//! be anything (a freed object that was used again). So the read is bounded, and an error that
//! garbage explains counts only if nothing changed. A writer begins with such a read, which also
//! brings in what it needs, and holds the latch from the moment the read is known to be valid.
//! After too many disturbed reads the latch is taken first, so that no job starves.

use std::cell::Cell;

use fulgurite_runtime::AccessError;

use crate::{Exclusive, Latch, Memory};

/// Failed reads before the latch is taken first. A failed read has brought its subpages in, so the
/// next is short. Eight short failures mean steady writers.
const ATTEMPTS: u32 = 8;

/// What to change, and the latch that lets nobody else; `None` when there is nothing to change.
pub type Planned<'l, T, L, M> = Option<(T, Exclusive<'l, L, M>)>;

/// Whether the error may come of following a pointer that is none.
fn garbage_explains(error: AccessError) -> bool {
    matches!(
        error,
        AccessError::OutOfRange { .. }
            | AccessError::Straddles { .. }
            | AccessError::Corrupt { .. }
            | AccessError::NotOwner { .. }
    )
}

/// Whether a read still sees one state. A read that got `false` gives up with an error that means
/// nothing, even if the version comes back, because a transaction that does not commit releases a
/// latch as it was.
#[inline(always)]
fn still<L: Latch>(latch: &L, version: u64, gave_up: &Cell<bool>) -> bool {
    let still = latch.read_validate(version);
    if !still {
        gave_up.set(true);
    }
    still
}

/// What `look` saw of one state. `look` gets a question for long loops: whether it still sees one
/// state.
///
/// # Errors
/// What `look` returns of one state; as [`Latch::lock`].
#[inline(always)]
pub fn read<L: Latch, M: Memory, T>(
    latch: &L,
    memory: &mut M,
    mut look: impl FnMut(&mut M, &dyn Fn() -> bool) -> Result<T, AccessError>,
) -> Result<T, AccessError> {
    for _ in 0..ATTEMPTS {
        let version = latch.read_begin(memory)?;
        let gave_up = Cell::new(false);
        let seen = look(memory, &|| still(latch, version, &gave_up));
        if (!gave_up.get() && latch.read_validate(version)) || matches!(seen, Err(error) if !garbage_explains(error)) {
            return seen;
        }
    }
    if M::TRACKED {
        return Err(AccessError::Conflict { runs: 0 });
    }
    loop {
        let roll_backs = memory.roll_backs();
        let _held = latch.lock(memory)?;
        let seen = look(memory, &|| true);
        // Outside of a section, the latch keeps writers away, but no roll back.
        if memory.roll_backs() == roll_backs {
            return seen;
        }
    }
}

/// What `look` plans to change, and the latch, held since before the plan could become wrong.
///
/// # Errors
/// As [`read`].
#[inline(always)]
pub fn plan<'l, L: Latch, M: Memory, T>(
    latch: &'l L,
    memory: &mut M,
    mut look: impl FnMut(&mut M, &dyn Fn() -> bool) -> Result<Option<T>, AccessError>,
) -> Result<Planned<'l, T, L, M>, AccessError> {
    for _ in 0..ATTEMPTS {
        let version = latch.read_begin(memory)?;
        let gave_up = Cell::new(false);
        match look(memory, &|| still(latch, version, &gave_up)) {
            Ok(Some(plan)) => {
                if let Some(held) = latch.upgrade(memory, version) {
                    return Ok(Some((plan, held)));
                }
            }
            Ok(None) => {
                if latch.read_validate(version) {
                    return Ok(None);
                }
            }
            Err(error) => {
                if !garbage_explains(error) || (!gave_up.get() && latch.read_validate(version)) {
                    return Err(error);
                }
            }
        }
    }
    if M::TRACKED {
        return Err(AccessError::Conflict { runs: 0 });
    }
    let held = latch.lock(memory)?;
    Ok(look(memory, &|| true)?.map(|plan| (plan, held)))
}
