//! Words of the shared memory as atomics: std's in an arena, or loom's under `--cfg loom`, so that
//! the model checks the code that runs.

use std::sync::Arc;

use fulgurite_sys::Arena;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use crate::planted::Planted;

/// A range of words of the shared memory.
#[cfg(not(loom))]
#[derive(Clone, Debug)]
pub struct Window {
    arena: Arc<Arena>,
    offset: usize,
    words: usize,
}

#[cfg(not(loom))]
impl Window {
    /// `words` words from byte `offset` on.
    ///
    /// # Panics
    /// When they are not inside the arena, or `offset` is no multiple of 8.
    #[must_use]
    pub fn new(arena: &Arc<Arena>, offset: usize, words: usize) -> Window {
        let _ = arena.words(offset, words);
        Window { arena: arena.clone(), offset, words }
    }
    /// One of them.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.arena.words(self.offset, self.words)[index]
    }
    /// `N` of them, from `first` on.
    #[inline(always)]
    pub(crate) fn entry<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
        let words = &self.arena.words(self.offset, self.words)[first..first + N];
        words.try_into().expect("as many as were asked for")
    }
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.words
    }
    /// Starts to fetch the line that a word is in.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.word(index)).cast());
    }
    #[inline(always)]
    pub(crate) fn release(&self) -> Ordering {
        Ordering::Release
    }
    #[inline(always)]
    pub(crate) fn acquire(&self) -> Ordering {
        Ordering::Acquire
    }
    #[inline(always)]
    pub(crate) fn fence_of_ringer(&self) {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    pub(crate) fn fence_of_sleeper(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The same in a model: words of loom's, and perhaps a barrier that is missing.
#[cfg(loom)]
#[derive(Clone, Debug)]
pub struct Window {
    words: Arc<Vec<AtomicU64>>,
    planted: Option<Planted>,
}

#[cfg(loom)]
impl Window {
    /// Words of a model; the arena is not looked at.
    #[must_use]
    pub fn new(_: &Arc<Arena>, _: usize, words: usize) -> Window {
        Window::of_model(words, None)
    }
    /// Words of a model.
    #[must_use]
    pub fn of_model(words: usize, planted: Option<Planted>) -> Window {
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
