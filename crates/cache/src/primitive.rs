//! The atomics of the page-state protocol. `crates/loom` compiles the protocol over loom's in their
//! place, so that the code that runs is the code that is checked.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

pub(crate) use parking_lot::Mutex;

/// The cheap side of the asymmetric barrier, on the hit path: the compiler must not move the
/// re-check above the publication. The evictor calls [`fulgurite_sys::barrier::expedited`] for the
/// processor's side.
#[inline(always)]
pub(crate) fn light_barrier() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}
