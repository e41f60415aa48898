//! Requests that several threads take in chunks.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The requests of a batch.
pub struct Share {
    next: AtomicU64,
    count: u64,
    chunk: u64,
}

impl Share {
    /// `count` requests, `chunk` at a time.
    pub fn of(count: u64, chunk: u64) -> Share {
        Share { next: AtomicU64::new(0), count, chunk }
    }
    /// The next chunk, as offsets from the first request; empty when there are no more.
    pub fn take(&self) -> Range<u64> {
        let start = self.next.fetch_add(self.chunk, Ordering::Relaxed).min(self.count);
        start..(start + self.chunk).min(self.count)
    }
}
