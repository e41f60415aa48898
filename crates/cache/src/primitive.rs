//! The atomics that the page-state protocol is built from: std's, or loom's under `--cfg loom`, so that the very code that
//! runs is the code that is model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// The cheap side of the asymmetric barrier, on the hit path: keeps the compiler from moving the re-check above the
/// publication. The processor's side of it is [`fulgurite_sys::barrier::expedited`], which the evictor calls.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
