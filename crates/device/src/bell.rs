//! Who sleeps, and who wakes them: a word of the shared memory that says "wake me", and the notification that does.
//!
//! ```text
//!   sleeper                          ringer
//!   word := 1                        writes an entry
//!   fence                            fence
//!   looks at the ring once more      looks at the word
//!   nothing: sleeps                  1: takes it (word := 0) and notifies
//! ```
//!
//! One of the two sees the other, whatever is reordered, because of the two fences. While nobody sleeps, ringing costs a fence and a
//! load of a line that does not move. The word is the doorbell of the device, and the request for an interrupt of the host.
//!
//! A peer that scribbles over the word wakes in vain, or is not woken: it hurts nobody else, and whoever sleeps here does so for a
//! bounded time.

use crate::window::{Ordering, Window};

/// A word that says that somebody sleeps.
#[derive(Clone, Debug)]
pub struct Bell(Window);

impl Bell {
    /// Over one word.
    #[must_use]
    pub fn new(window: Window) -> Bell {
        Bell(window)
    }
    /// Says that the caller sleeps from now on. It must look once more whether there is news, and must not sleep if there is.
    #[inline]
    pub fn goes_to_sleep(&self) {
        self.0.word(0).store(1, Ordering::Relaxed);
        self.0.fence_of_sleeper();
    }
    /// Says that it does not any more.
    #[inline]
    pub fn is_awake(&self) {
        self.0.word(0).store(0, Ordering::Relaxed);
    }
    /// After news was written: whether the other side must be notified.
    #[inline]
    #[must_use]
    pub fn must_wake(&self) -> bool {
        self.0.fence_of_ringer();
        let word = self.0.word(0);
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
    }
}
