//! The emulated device without a thread: the thread that polls a queue moves what is due there.
//!
//! A device's firmware spins on its own core, and what lies behind it needs no second one.
//! Latencies, planes and counters are those of [`super::EmulatedFlash`]. All queues share the
//! planes, under a lock that queues of one thread never wait for.
//!
//! Invariants: a completion is returned only after the polling thread has moved the data, and never
//! before the latency has passed since the hand-over. Requests for one subpage from one queue are
//! served in the order of their hand-over. Nothing moves between polls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Backed, Clock, Notifier};

use super::latency::{EmulatedConfig, Planes, Schedule, describe};
use crate::cells::Cells;
use crate::counters::Counters;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenError, OpenedQueue, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_range, frame_count, lock,
};

/// An emulated flash device that is driven by the threads that poll its queues.
#[derive(Debug)]
pub struct TimedFlash {
    config: EmulatedConfig,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cells: Cells,
    planes: Mutex<Planes>,
    counters: Counters,
}

impl TimedFlash {
    /// A device as configured. It has no thread, so `core` has no effect.
    ///
    /// # Errors
    /// When it has no subpages or planes, the storage is too small, or the kernel refuses memory.
    pub fn new(config: EmulatedConfig) -> Result<TimedFlash, OpenError> {
        let cells = Cells::new(config.subpages, config.storage.clone(), Backed::HugePages)?;
        let planes = Mutex::new(Planes::new(&config)?);
        Ok(TimedFlash { config, shared: Arc::new(Shared { cells, planes, counters: Counters::default() }) })
    }
    /// What it stores: subpage i at i x 4096. Change it only while no request is in flight.
    #[must_use]
    pub fn storage(&self) -> &Arc<Arena> {
        &self.shared.cells.memory
    }
}

impl Flash for TimedFlash {
    fn subpages(&self) -> u32 {
        self.shared.cells.subpages
    }
    fn describe(&self) -> String {
        describe("flash", &self.config)
    }
    fn traits(&self) -> Traits {
        Traits::PLAIN
    }
    fn staging_bytes(&self, _: u32) -> usize {
        0
    }
    fn open_queue_for(&self, _: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        self.shared.cells.check_queue(&frames, depth)?;
        Ok(Box::new(TimedQueue {
            shared: self.shared.clone(),
            clock: self.config.clock.clone(),
            frame_count: frame_count(&frames),
            frames,
            wake,
            depth,
            checked: false,
            batch: Vec::with_capacity(depth),
            waiting: Schedule::with_capacity(depth),
            refused: Vec::new(),
        }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.shared.counters.read()
    }
}

struct TimedQueue {
    shared: Arc<Shared>,
    clock: Clock,
    frames: Arc<Arena>,
    frame_count: u32,
    wake: Arc<Notifier>,
    depth: usize,
    checked: bool,
    /// Submitted, not handed over.
    batch: Vec<Request>,
    waiting: Schedule<Request>,
    /// Handed over, for subpages or frames that do not exist.
    refused: Vec<u64>,
}

impl TimedQueue {
    /// Moves the data of a request. Returns its checksum, if that is asked for.
    fn serve(&self, request: Request) -> u32 {
        let Request { op, subpage, frame, .. } = request;
        self.shared.cells.serve(op, subpage.0, &self.frames, frame.0, self.checked)
    }
}

impl Queue for TimedQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() == self.depth {
            return Err(QueueFull);
        }
        self.batch.push(request);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let now = self.clock.now_ns();
        let mut planes = lock(&self.shared.planes);
        for request in self.batch.drain(..) {
            let Request { tag, op, subpage, frame } = request;
            let inside = subpage.0 < self.shared.cells.subpages && frame.0 < self.frame_count;
            if inside || op == Op::Flush {
                self.waiting.push(planes.take(now, op, subpage.0), request);
            } else {
                self.refused.push(tag);
            }
        }
        Ok(())
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        let mut done = DeviceCounters { errors: self.refused.len() as u64, ..DeviceCounters::default() };
        for tag in self.refused.drain(..) {
            completions.push(Completion { tag, result: Err(FlashError::OutOfRange), checksum: 0 });
        }
        // The time is read before each transfer: what comes due meanwhile is served, too.
        while self.waiting.len() > 0 {
            let now = self.clock.now_ns();
            let Some((due_ns, request)) = self.waiting.pop_due(now) else { break };
            let checksum = self.serve(request);
            completions.push(Completion { tag: request.tag, result: Ok(()), checksum });
            done.ended(request.op, Ok(()));
            done.was_late(now - due_ns);
        }
        self.shared.counters.add(&done);
        completions.len() - before
    }
    fn will_poll(&self) {}
    fn switch(&mut self, to: Switches) -> Switches {
        self.checked = to.checksums;
        Switches { checksums: to.checksums, ..Switches::default() }
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        if !self.refused.is_empty() {
            return;
        }
        let Some(next_ns) = self.waiting.next_ns() else {
            self.clock.wait(&self.wake, timeout);
            return;
        };
        if let Some(nap) = self.clock.nap(next_ns, timeout) {
            self.clock.wait(&self.wake, Some(nap));
        }
    }
    fn in_flight(&self) -> usize {
        self.batch.len() + self.waiting.len() + self.refused.len()
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn bytes(&self) -> usize {
        self.batch.capacity() * size_of::<Request>() + self.waiting.bytes()
    }
}

impl Drop for TimedQueue {
    fn drop(&mut self) {
        while let Some((_, request)) = self.waiting.pop_due(u64::MAX) {
            self.serve(request);
        }
    }
}
