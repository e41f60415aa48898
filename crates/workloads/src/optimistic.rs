//! Reading without a latch.

use fulgurite_memory::{AccessError, Latch, Memory};

/// What `read` saw without concurrent changes. `read` must bear to see half of a change.
#[inline(always)]
pub(crate) fn unchanged<M: Memory, L: Latch, T>(
    latch: &L,
    memory: &mut M,
    mut read: impl FnMut(&mut M) -> Result<T, AccessError>,
) -> Result<T, AccessError> {
    loop {
        let version = latch.read_begin(memory)?;
        let value = read(memory)?;
        if latch.read_validate(version) {
            return Ok(value);
        }
    }
}
