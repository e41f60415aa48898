//! Sleeping and waking: a word of the shared memory that says "wake me", and the notification.
//!
//! ```text
//!   sleeper                          ringer
//!   word := 1                        writes an entry
//!   fence                            fence
//!   looks at the ring once more      looks at the word
//!   nothing: sleeps                  1: takes it (word := 0) and notifies
//! ```
//!
//! The two fences make one of the two see the other. While the other side is awake, ringing costs a
//! fence and a load of a line that does not move. The word is the doorbell of the device, and the
//! request for an interrupt of the host.
//!
//! Where both sides are threads of one process, the ringer's fence is one of the compiler's alone.
//! The sleeper makes every thread of the process execute a barrier instead (`membarrier`, 2 µs).
//!
//! A peer that scribbles over the word wakes in vain, or is not woken. Every sleep here is bounded.

use std::sync::atomic::compiler_fence;

use fulgurite_sys::barrier;

use crate::window::{Ordering, Window};

/// A word that says that somebody sleeps.
#[derive(Clone, Debug)]
pub struct Bell {
    window: Window,
    /// Both sides are in this process, and `membarrier` is there.
    expedited: bool,
}

impl Bell {
    /// Over one word.
    #[must_use]
    pub fn new(window: Window) -> Bell {
        Bell { window, expedited: false }
    }
    /// Over one word, for two threads of this process.
    #[must_use]
    pub(crate) fn within_process(window: Window) -> Bell {
        Bell { window, expedited: barrier::register() }
    }
    /// Says that the caller sleeps from now on. It must look for news once more before it does.
    #[inline]
    pub fn goes_to_sleep(&self) {
        self.window.word(0).store(1, Ordering::Relaxed);
        if self.expedited {
            barrier::expedited();
        } else {
            self.window.fence_of_sleeper();
        }
    }
    /// Says that the sleeper has woken.
    #[inline]
    pub fn mark_awake(&self) {
        self.window.word(0).store(0, Ordering::Relaxed);
    }
    /// After news was written: whether the other side must be notified.
    #[inline]
    #[must_use]
    pub fn must_wake(&self) -> bool {
        if self.expedited {
            compiler_fence(std::sync::atomic::Ordering::SeqCst);
        } else {
            self.window.fence_of_ringer();
        }
        let word = self.window.word(0);
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
    }
}
