//! Which memory a handle belongs to: two pools of one layout have the same addresses, so that an
//! address cannot tell.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;

use fulgurite_runtime::AccessError;

/// Tells a memory from all others of this process. A runtime's is never used again. Another
/// memory may be where a plain one was.
///
/// A container keeps the id of the memory in which it was made or opened. Each of its operations
/// compares it once, and fails with [`AccessError::OtherMemory`] in another memory, before it has
/// touched anything. [`Ptr`](crate::Ptr) and [`Region`](crate::Region) are addresses: they may be
/// stored in flash, and are of whatever memory they are used in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryId(NonZeroU32);

/// Which memory it is, and where it counts its roll backs. What was read before a roll back is of
/// another state.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'m> {
    pub(crate) id: MemoryId,
    pub(crate) roll_backs: &'m AtomicU64,
}

impl<'m> Identity<'m> {
    /// The memory with this id, which adds 1 to `roll_backs` with each roll back.
    #[inline(always)]
    #[must_use]
    pub fn new(id: MemoryId, roll_backs: &'m AtomicU64) -> Identity<'m> {
        Identity { id, roll_backs }
    }
}

/// A bit that ids of plain memories have, and ids of runtimes have not.
const PLAIN: u32 = 1 << 31;

impl MemoryId {
    /// Of the runtime with this number.
    #[inline(always)]
    pub(crate) fn of_runtime(number: u32) -> MemoryId {
        MemoryId(NonZeroU32::MIN.saturating_add(number))
    }
    /// Of plain memory from `base` on. Each takes 16 TiB, so that no two begin in the same 16.
    #[inline(always)]
    pub(crate) fn of_plain(base: usize) -> MemoryId {
        MemoryId(NonZeroU32::MIN | PLAIN | (base >> 44 << 1) as u32)
    }

    /// Refuses another memory.
    ///
    /// # Errors
    /// [`AccessError::OtherMemory`].
    #[inline(always)]
    pub fn check(self, other: MemoryId) -> Result<(), AccessError> {
        if self == other { Ok(()) } else { Err(AccessError::OtherMemory) }
    }
}
