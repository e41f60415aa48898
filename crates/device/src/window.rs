//! Words of the shared memory as atomics. `crates/loom` has the same over loom's atomics, so that
//! the rings and the bell are checked as they run.

use std::sync::Arc;

use fulgurite_sys::Arena;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A range of words of the shared memory.
#[derive(Clone, Debug)]
pub struct Window {
    arena: Arc<Arena>,
    offset: usize,
    words: usize,
}

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
