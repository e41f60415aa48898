//! Stacks: equal slots of one mapping, each with a guard below it, handed out and taken back.
//!
//! ```text
//!  low                                                                   high
//! | guard | stack 0 ........ colour | guard | stack 1 ........ colour | ...
//!                          ^ base, grows down
//! ```
//! The bases of neighbouring stacks differ by a "colour", or the hot ends of all stacks would
//! compete for the same few sets of the first-level cache. The guard is installed with
//! `MADV_GUARD_INSTALL` (Linux 6.13), which costs no mapping of its own. Before that, with
//! `mprotect`, of which the kernel allows some 65,000.

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::stack::{MIN_STACK_SIZE, Stack, StackPointer};
use fulgurite_sys::{Arena, ArenaError, Backed};

/// Longer than the frame of any function that does not probe its stack (C code, above all):
/// addresses cost nothing.
const GUARD_BYTES: usize = 64 * 1024;
/// How much a stack loses at most to its colour.
const COLOURS: usize = 16;
const COLOUR_BYTES: usize = 256;
/// Debian's headers are older than the call.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// Why a pool of stacks could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackPoolError {
    /// The kernel gives no memory.
    #[error("no memory for {count} stacks of {bytes} bytes: {source}")]
    Memory {
        /// How many stacks.
        count: usize,
        /// How large each.
        bytes: usize,
        /// The kernel's word.
        source: ArenaError,
    },
    /// The kernel gives no guards.
    #[error("cannot guard {count} stacks: {source}; use fewer fibers, or raise vm.max_map_count")]
    Guard {
        /// How many stacks.
        count: usize,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// A stack needs more.
    #[error("a stack of {bytes} bytes is too small; the least is {least}")]
    TooSmall {
        /// What was asked for.
        bytes: usize,
        /// The least.
        least: usize,
    },
}

/// The smallest stack that is accepted: `corosensei`'s minimum and the largest colour.
pub(crate) const LEAST_BYTES: usize = MIN_STACK_SIZE + COLOURS * COLOUR_BYTES;

/// Stacks of one worker.
#[derive(Clone, Debug)]
pub struct StackPool {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    arena: Arena,
    slot_bytes: usize,
    free: RefCell<Vec<u32>>,
}

impl StackPool {
    /// `count` stacks of `bytes` each (rounded up to base pages), guards extra. Memory is used when
    /// a stack is touched.
    ///
    /// # Errors
    /// [`StackPoolError`].
    pub fn new(count: usize, bytes: usize) -> Result<StackPool, StackPoolError> {
        if bytes < LEAST_BYTES {
            return Err(StackPoolError::TooSmall { bytes, least: LEAST_BYTES });
        }
        let slot_bytes = bytes.next_multiple_of(4096) + GUARD_BYTES;
        let arena = Arena::anonymous(count.max(1).saturating_mul(slot_bytes), Backed::BasePages)
            .map_err(|source| StackPoolError::Memory { count, bytes, source })?;
        for slot in 0..count {
            // SAFETY: the guard's range is inside the arena, which holds nothing yet.
            let done = unsafe {
                let guard = arena.base().as_ptr().add(slot * slot_bytes).cast();
                libc::madvise(guard, GUARD_BYTES, MADV_GUARD_INSTALL) == 0
                    || libc::mprotect(guard, GUARD_BYTES, libc::PROT_NONE) == 0
            };
            if !done {
                return Err(StackPoolError::Guard { count, source: std::io::Error::last_os_error() });
            }
        }
        let free = RefCell::new((0..count as u32).rev().collect());
        Ok(StackPool { shared: Rc::new(Shared { arena, slot_bytes, free }) })
    }

    /// A stack, if one is free. It comes back to the pool when dropped.
    #[must_use]
    pub fn take(&self) -> Option<PooledStack> {
        let slot = self.shared.free.borrow_mut().pop()?;
        Some(PooledStack { shared: self.shared.clone(), slot })
    }

    /// DRAM that the stacks use when all have been touched to their ends.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.arena.len() / self.shared.slot_bytes * (self.shared.slot_bytes - GUARD_BYTES)
    }
}

/// One stack of a pool.
#[derive(Debug)]
pub struct PooledStack {
    shared: Rc<Shared>,
    slot: u32,
}

impl PooledStack {
    fn start(&self) -> usize {
        self.shared.arena.base().as_ptr() as usize + self.slot as usize * self.shared.slot_bytes
    }
    /// The addresses of the stack itself, without its guard.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start() + GUARD_BYTES..self.start() + self.shared.slot_bytes
    }
    /// The guard's range of addresses.
    pub(crate) fn guard(&self) -> std::ops::Range<usize> {
        self.start()..self.start() + GUARD_BYTES
    }
}

// SAFETY: the range between `limit` and `base` is mapped for as long as the stack lives (it holds
// the arena), belongs to this slot alone, is longer than MIN_STACK_SIZE, and starts with a guard.
unsafe impl Stack for PooledStack {
    fn base(&self) -> StackPointer {
        let colour = self.slot as usize % COLOURS * COLOUR_BYTES;
        StackPointer::new(self.start() + self.shared.slot_bytes - colour).expect("a mapping is not at null")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.start()).expect("a mapping is not at null")
    }
}

impl Drop for PooledStack {
    fn drop(&mut self) {
        self.shared.free.borrow_mut().push(self.slot);
    }
}
