//! loom's atomics, in place of the module of the same name in `cache`, `flash` and `store`.

pub(crate) use loom::sync::Arc;
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
/// A real one: nothing under it may wait or touch what loom sees.
pub(crate) use parking_lot::Mutex;

/// The compiler's fence on the hit path. The evictor's `membarrier`, which makes it one of the
/// processor's, is a sequentially consistent fence here too.
pub(crate) fn light_barrier() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}
