//! The cut, shared by all caches: what its token still needs, and whether new writes stay in DRAM.
//!
//! `seal` seals and writes frames for it. The driver closes the gate, halts the workers and names
//! the token.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_flash::FlashError;
use parking_lot::Mutex;

/// What all caches know of the cut.
#[derive(Debug, Default)]
pub struct Cut {
    /// From the halt until the token is named: what is written meanwhile must not reach flash.
    held_back: AtomicBool,
    /// From the halt until the sync has ended, which makes room where there was none.
    makes_room: AtomicBool,
    /// Writes that the token needs and that have not ended.
    left: AtomicU64,
    /// The maker of the cut gave up: when nothing is left, what was held back may go.
    abandoned: AtomicBool,
    failure: Mutex<Option<FlashError>>,
}

impl Cut {
    /// Whether what is written now must stay in DRAM.
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.held_back.load(Ordering::Acquire)
    }
    /// A cut begins.
    pub fn begin(&self) {
        *self.failure.lock() = None;
        self.abandoned.store(false, Ordering::Relaxed);
    }
    /// Whether a sync is being written, after which there may be room.
    pub fn makes_room(&self) -> bool {
        self.makes_room.load(Ordering::Acquire)
    }
    /// No sync is being written any more.
    pub fn over(&self) {
        self.makes_room.store(false, Ordering::Release);
    }
    /// What is written from now on is not part of the token. While all workers are halted.
    pub fn hold_back(&self) {
        self.makes_room.store(true, Ordering::Release);
        self.held_back.store(true, Ordering::Release);
    }
    /// The token is named, or there will be none.
    pub fn end(&self) {
        self.held_back.store(false, Ordering::Release);
    }
    /// What is left will be written, but nobody waits for it any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        if self.left.load(Ordering::SeqCst) == 0 {
            self.end();
        }
    }
    /// Writes that have not ended.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }
    /// The first write that failed, if one did.
    pub fn failure(&self) -> Option<FlashError> {
        *self.failure.lock()
    }
    /// A write that the token needs went wrong, whatever becomes of it: there is no token.
    pub(crate) fn failed(&self, error: FlashError) {
        self.failure.lock().get_or_insert(error);
    }
    pub(crate) fn add(&self, writes: u64) {
        self.left.fetch_add(writes, Ordering::AcqRel);
    }
    /// A write from before the cut, or because of it, has ended. Returns whether it was the last.
    pub(crate) fn one_ended(&self, result: Result<(), FlashError>) -> bool {
        if let Err(error) = result {
            self.failed(error);
        }
        let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.abandoned.load(Ordering::SeqCst) {
            self.end();
        }
        last
    }
}
