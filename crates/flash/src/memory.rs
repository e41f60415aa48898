//! Plain memory as flash: every request completes at the first poll after it was handed over, in order. Deterministic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, crc32c};
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenError, Queue, QueueFull, QueueUser, Request,
    Switches, Traits, check_depth, check_range, frame_count,
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
    fn traits(&self) -> Traits {
        Traits { trims: true, ..Traits::PLAIN }
    }
    fn staging_bytes(&self, _: u32) -> usize {
        0
    }
    fn open_queue_for(
        &self,
        _: QueueUser,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        check_depth(depth)?;
        if Arc::ptr_eq(&frames, &self.shared.storage) {
            return Err(OpenError::SameArena);
        }
        let [batch, given] = [depth; 2].map(Vec::with_capacity);
        Ok(Box::new(MemoryQueue { shared: self.shared.clone(), frames, wake, depth, batch, given, moved: None }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.shared.subpages)?;
        self.shared.storage.zero(first.0 as usize * SUBPAGE_BYTES, count as usize * SUBPAGE_BYTES);
        Ok(())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
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
    /// Where checksums are asked for: what is moved passes through here, so that they are of the very bytes that were moved, and made
    /// while these are in the processor's cache.
    moved: Option<Box<Moved>>,
}

#[repr(align(64))]
struct Moved([u8; SUBPAGE_BYTES]);

/// What was done and not counted yet.
#[derive(Default)]
struct Count {
    reads: u64,
    writes: u64,
    flushes: u64,
    errors: u64,
}

impl Count {
    fn add_to(&self, shared: &Shared) {
        let Shared { reads, writes, flushes, errors, .. } = shared;
        for (counter, count) in
            [(reads, self.reads), (writes, self.writes), (flushes, self.flushes), (errors, self.errors)]
        {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

impl MemoryQueue {
    /// Moves a subpage. Returns its checksum, if that is asked for.
    fn transfer(moved: &mut Option<Box<Moved>>, from: (&Arena, usize), to: (&Arena, usize)) -> u32 {
        let Some(moved) = moved else {
            Arena::copy(from.0, from.1, to.0, to.1, SUBPAGE_BYTES);
            return 0;
        };
        from.0.read(from.1, &mut moved.0);
        to.0.write(to.1, &moved.0);
        crc32c(&moved.0)
    }
    fn serve(&mut self, request: Request, count: &mut Count) -> (Result<(), FlashError>, u32) {
        let Shared { storage, subpages, .. } = &*self.shared;
        let (subpage, frame) = (request.subpage.index() * SUBPAGE_BYTES, request.frame.index() * SUBPAGE_BYTES);
        let inside = request.subpage.0 < *subpages && request.frame.0 < frame_count(&self.frames);
        match request.op {
            Op::Flush => {
                count.flushes += 1;
                (Ok(()), 0)
            }
            _ if !inside => {
                count.errors += 1;
                (Err(FlashError::OutOfRange), 0)
            }
            Op::Read => {
                count.reads += 1;
                (Ok(()), Self::transfer(&mut self.moved, (storage, subpage), (&self.frames, frame)))
            }
            Op::Write => {
                count.writes += 1;
                (Ok(()), Self::transfer(&mut self.moved, (&self.frames, frame), (storage, subpage)))
            }
        }
    }
    /// Serves all that was handed over.
    fn serve_all(&mut self, mut ended: impl FnMut(Completion)) {
        let mut count = Count::default();
        let mut given = std::mem::take(&mut self.given);
        for request in given.drain(..) {
            let (result, checksum) = self.serve(request, &mut count);
            ended(Completion { tag: request.tag, result, checksum });
        }
        self.given = given;
        count.add_to(&self.shared);
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
        if count > 0 {
            self.serve_all(|completion| completions.push(completion));
        }
        count
    }
    fn will_poll(&self) {}
    fn switch(&mut self, to: Switches) -> Switches {
        self.moved = to.checksums.then(|| Box::new(Moved([0; SUBPAGE_BYTES])));
        Switches { checksums: to.checksums, ..Switches::default() }
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
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
            + self.moved.as_ref().map_or(0, |_| SUBPAGE_BYTES)
    }
}

impl Drop for MemoryQueue {
    fn drop(&mut self) {
        self.serve_all(|_| {});
    }
}
