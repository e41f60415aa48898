//! Plain memory as flash: every request completes at the first poll after it was handed over, in order. Deterministic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::{
    Completion, DeviceCounters, Flash, FlashError, Op, OpenError, Queue, QueueFull, Request, check_depth, frame_count,
};

/// Flash that is plain memory. For tests: nothing is late, nothing fails, nothing is ever reordered.
#[derive(Debug)]
pub struct MemoryFlash {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    storage: Arc<Arena>,
    subpages: u32,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
}

impl MemoryFlash {
    /// Flash of `subpages` subpages, all zero.
    ///
    /// # Errors
    /// When `subpages` is 0 or the kernel has no memory.
    pub fn new(subpages: u32) -> Result<MemoryFlash, OpenError> {
        let bytes = u64::from(subpages) * SUBPAGE_BYTES as u64;
        if subpages == 0 {
            return Err(OpenError::Size { bytes });
        }
        MemoryFlash::over(Arc::new(Arena::anonymous(bytes as usize, Backed::BasePages)?), subpages)
    }
    /// The same, in memory that is there.
    ///
    /// # Errors
    /// When `subpages` is 0, or the memory is less than that.
    pub fn over(storage: Arc<Arena>, subpages: u32) -> Result<MemoryFlash, OpenError> {
        if subpages == 0 {
            return Err(OpenError::Size { bytes: 0 });
        }
        if storage.len() < subpages as usize * SUBPAGE_BYTES {
            return Err(OpenError::Storage { bytes: storage.len(), subpages });
        }
        let [reads, writes, flushes, errors] = [0; 4].map(AtomicU64::new);
        Ok(MemoryFlash { shared: Arc::new(Shared { storage, subpages, reads, writes, flushes, errors }) })
    }
    /// What it stores: subpage i at i x 4096. Tests may look and change.
    #[must_use]
    pub fn storage(&self) -> &Arc<Arena> {
        &self.shared.storage
    }
}

impl Flash for MemoryFlash {
    fn subpages(&self) -> u32 {
        self.shared.subpages
    }
    fn describe(&self) -> String {
        format!("memory, {}", fulgurite_format::format_bytes(u64::from(self.shared.subpages) << 12))
    }
    fn open_queue(&self, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> Result<Box<dyn Queue>, OpenError> {
        check_depth(depth)?;
        if Arc::ptr_eq(&frames, &self.shared.storage) {
            return Err(OpenError::SameArena);
        }
        let [batch, given] = [depth; 2].map(Vec::with_capacity);
        Ok(Box::new(MemoryQueue { shared: self.shared.clone(), frames, wake, depth, batch, given }))
    }
    fn counters(&self) -> DeviceCounters {
        let s = &*self.shared;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        DeviceCounters {
            reads: get(&s.reads),
            writes: get(&s.writes),
            flushes: get(&s.flushes),
            errors: get(&s.errors),
            ..DeviceCounters::default()
        }
    }
}

struct MemoryQueue {
    shared: Arc<Shared>,
    frames: Arc<Arena>,
    wake: Arc<Notifier>,
    depth: usize,
    /// Submitted, not handed over.
    batch: Vec<Request>,
    /// Handed over, to be completed at the next poll.
    given: Vec<Request>,
}

impl MemoryQueue {
    fn serve(&self, request: Request) -> Result<(), FlashError> {
        let Shared { storage, subpages, reads, writes, flushes, errors } = &*self.shared;
        let (subpage, frame) = (request.subpage.index() * SUBPAGE_BYTES, request.frame.index() * SUBPAGE_BYTES);
        let inside = request.subpage.0 < *subpages && request.frame.0 < frame_count(&self.frames);
        let counter = match request.op {
            Op::Flush => flushes,
            _ if !inside => errors,
            Op::Read => {
                Arena::copy(storage, subpage, &self.frames, frame, SUBPAGE_BYTES);
                reads
            }
            Op::Write => {
                Arena::copy(&self.frames, frame, storage, subpage, SUBPAGE_BYTES);
                writes
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if inside || request.op == Op::Flush { Ok(()) } else { Err(FlashError::OutOfRange) }
    }
}

impl Queue for MemoryQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() == self.depth {
            return Err(QueueFull);
        }
        self.batch.push(request);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        self.given.append(&mut self.batch);
        Ok(())
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.given.len();
        for request in &self.given {
            completions.push(Completion { tag: request.tag, result: self.serve(*request), checksum: 0 });
        }
        self.given.clear();
        count
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        if self.given.is_empty() {
            self.wake.wait(timeout);
        }
    }
    fn in_flight(&self) -> usize {
        self.batch.len() + self.given.len()
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn bytes(&self) -> usize {
        (self.batch.capacity() + self.given.capacity()) * size_of::<Request>()
    }
}

impl Drop for MemoryQueue {
    fn drop(&mut self) {
        for request in std::mem::take(&mut self.given) {
            let _ = self.serve(request);
        }
    }
}
