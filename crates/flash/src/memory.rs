//! Plain memory as flash: every request completes at the first poll after it was handed over, in
//! order. Deterministic.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::cells::Cells;
use crate::counters::Counters;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenError, OpenedQueue, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_range, frame_count,
};

/// Flash that is plain memory. For tests: nothing is late, nothing fails, nothing is reordered.
#[derive(Debug)]
pub struct MemoryFlash {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cells: Cells,
    counters: Counters,
}

impl MemoryFlash {
    /// Flash of `subpages` subpages, all zero.
    ///
    /// # Errors
    /// When `subpages` is 0 or the kernel has no memory.
    pub fn new(subpages: u32) -> Result<MemoryFlash, OpenError> {
        MemoryFlash::of(subpages, None)
    }
    /// As [`new`](Self::new), in memory that is there.
    ///
    /// # Errors
    /// When `subpages` is 0, or the memory is less than that.
    pub fn over(storage: Arc<Arena>, subpages: u32) -> Result<MemoryFlash, OpenError> {
        MemoryFlash::of(subpages, Some(storage))
    }
    fn of(subpages: u32, storage: Option<Arc<Arena>>) -> Result<MemoryFlash, OpenError> {
        let cells = Cells::new(subpages, storage, Backed::BasePages)?;
        Ok(MemoryFlash { shared: Arc::new(Shared { cells, counters: Counters::default() }) })
    }
    /// What it stores: subpage i at i x 4096. Tests may read and change it.
    #[must_use]
    pub fn storage(&self) -> &Arc<Arena> {
        &self.shared.cells.memory
    }
}

impl Flash for MemoryFlash {
    fn subpages(&self) -> u32 {
        self.shared.cells.subpages
    }
    fn describe(&self) -> String {
        format!("memory, {}", fulgurite_format::format_bytes(u64::from(self.subpages()) << 12))
    }
    fn traits(&self) -> Traits {
        Traits { trims: true, ..Traits::PLAIN }
    }
    fn staging_bytes(&self, _: u32) -> usize {
        0
    }
    fn open_queue_for(&self, _: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        self.shared.cells.check_queue(&frames, depth)?;
        let [batch, given] = [depth; 2].map(Vec::with_capacity);
        Ok(Box::new(MemoryQueue { shared: self.shared.clone(), frames, wake, depth, batch, given, checked: false }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())?;
        self.storage().zero(first.0 as usize * SUBPAGE_BYTES, count as usize * SUBPAGE_BYTES);
        Ok(())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.shared.counters.read()
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
    checked: bool,
}

impl MemoryQueue {
    /// Serves all that was handed over.
    fn serve_all(&mut self, mut each: impl FnMut(Completion)) {
        let Shared { cells, counters } = &*self.shared;
        let (frame_count, mut done) = (frame_count(&self.frames), DeviceCounters::default());
        for Request { tag, op, subpage, frame } in self.given.drain(..) {
            let inside = subpage.0 < cells.subpages && frame.0 < frame_count;
            let (result, checksum) = if inside || op == Op::Flush {
                (Ok(()), cells.serve(op, subpage.0, &self.frames, frame.0, self.checked))
            } else {
                (Err(FlashError::OutOfRange), 0)
            };
            done.ended(op, result);
            each(Completion { tag, result, checksum });
        }
        counters.add(&done);
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
        self.checked = to.checksums;
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
    }
}

impl Drop for MemoryQueue {
    fn drop(&mut self) {
        self.serve_all(|_| {});
    }
}
