//! Words of memory that host and device share, as loom's atomics, in place of `device`'s module of
//! that name. A barrier of the protocol can be left out, which the tests must find.

use std::sync::Arc;

pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// A barrier that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// The last word of an entry does not publish earlier stores: the other words, and the data
    /// (steps 1, 2, 4, 5).
    RelaxedPublish,
    /// A consumer may load the other words, or the data, before it sees the phase bit (steps 3, 7).
    RelaxedTake,
    /// A ringer checks whether the other side sleeps before its entry can be seen.
    NoFenceOfRinger,
    /// A sleeper checks the ring once more before its sleep can be seen.
    NoFenceOfSleeper,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 4] =
        [Planted::RelaxedPublish, Planted::RelaxedTake, Planted::NoFenceOfRinger, Planted::NoFenceOfSleeper];
}

/// A range of words.
#[derive(Clone, Debug)]
pub struct Window {
    words: Arc<Vec<AtomicU64>>,
    planted: Option<Planted>,
}

impl Window {
    /// A range of `words` words, perhaps without one of the barriers.
    #[must_use]
    pub fn new(words: usize, planted: Option<Planted>) -> Window {
        Window { words: Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()), planted }
    }
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }
    pub(crate) fn entry<const N: usize>(&self, first: usize) -> [&AtomicU64; N] {
        std::array::from_fn(|i| &self.words[first + i])
    }
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }
    pub(crate) fn prefetch(&self, _: usize) {}
    fn unless(&self, planted: Planted, order: Ordering) -> Ordering {
        if self.planted == Some(planted) { Ordering::Relaxed } else { order }
    }
    pub(crate) fn release(&self) -> Ordering {
        self.unless(Planted::RelaxedPublish, Ordering::Release)
    }
    pub(crate) fn acquire(&self) -> Ordering {
        self.unless(Planted::RelaxedTake, Ordering::Acquire)
    }
    pub(crate) fn fence_of_ringer(&self) {
        if self.planted != Some(Planted::NoFenceOfRinger) {
            fence(Ordering::SeqCst);
        }
    }
    pub(crate) fn fence_of_sleeper(&self) {
        if self.planted != Some(Planted::NoFenceOfSleeper) {
            fence(Ordering::SeqCst);
        }
    }
}
