//! How fibers and threads wait for a word: of a latch, or of reads that others have begun.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;

/// Sleeps until [`unpark_all`] is called with the same word. Returns at once when the word is not
/// `expected`, which is checked under `unpark_all`'s lock. For threads that are no workers.
pub fn park(word: &AtomicU64, expected: u64) {
    let still = || word.load(Ordering::Relaxed) == expected;
    // SAFETY: the key is the address of the word, which is borrowed while a thread waits, and which
    // nothing else can use as its key. `still` only loads it, and the other callbacks do nothing:
    // none parks, wakes or panics.
    unsafe {
        let key = std::ptr::from_ref(word) as usize;
        parking_lot_core::park(key, still, || {}, |_, _| {}, parking_lot_core::DEFAULT_PARK_TOKEN, None);
    }
}

/// Wakes all fibers and threads that are parked on `word`.
pub fn unpark_all(word: &AtomicU64) {
    Context::unpark_fibers(word);
    // SAFETY: as in `park`.
    unsafe { parking_lot_core::unpark_all(std::ptr::from_ref(word) as usize, parking_lot_core::DEFAULT_UNPARK_TOKEN) };
}
