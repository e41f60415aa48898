//! The emulated device without a thread: whoever polls a queue moves what is due there.
//!
//! A device's firmware spins on its own core, and what lies behind it needs no second one. Latencies, planes and counters are those of
//! [`super::EmulatedFlash`]; planes are shared by all queues, under a lock that queues of one thread never wait for.
//!
//! Invariants: a completion is returned only after the data was moved, by the thread that polls, and never before the latency has passed
//! since the request was handed over; requests for one subpage from one queue are served in the order in which they were handed over.
//! Nothing moves while nobody polls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, format_bytes, format_duration};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};

use super::EmulatedConfig;
use super::device::transfer;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, LATE_NS, Op, OpenError, Queue, QueueFull, QueueUser,
    Request, Switches, Traits, check_depth, check_range, frame_count, lock,
};

/// An emulated flash device that is driven by the threads that poll its queues.
#[derive(Debug)]
pub struct TimedFlash {
    config: EmulatedConfig,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    storage: Arc<Arena>,
    subpages: u32,
    read_ns: u64,
    write_ns: u64,
    busy: Mutex<Busy>,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
    late: AtomicU64,
    lateness_ns_total: AtomicU64,
    lateness_ns_max: AtomicU64,
}

/// Until when.
#[derive(Debug)]
struct Busy {
    /// Each plane.
    planes: Box<[u64]>,
    /// The last write: flushes wait for it.
    writes: u64,
}

impl TimedFlash {
    /// A device as configured. It has no thread, so that its core is that of whoever polls, and `core` says nothing.
    ///
    /// # Errors
    /// When it has no subpages or planes, the storage is too small, or the kernel refuses memory.
    pub fn new(config: EmulatedConfig) -> Result<TimedFlash, OpenError> {
        let bytes = u64::from(config.subpages) * SUBPAGE_BYTES as u64;
        if config.subpages == 0 {
            return Err(OpenError::Size { bytes });
        }
        if config.planes == 0 {
            return Err(OpenError::NoPlanes);
        }
        let storage = match &config.storage {
            Some(storage) if (storage.len() as u64) < bytes => {
                return Err(OpenError::Storage { bytes: storage.len(), subpages: config.subpages });
            }
            Some(storage) => storage.clone(),
            None => Arc::new(Arena::anonymous(bytes as usize, Backed::HugePages)?),
        };
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        let [reads, writes, flushes, errors, late, lateness_ns_total, lateness_ns_max] = [0; 7].map(AtomicU64::new);
        let shared = Shared {
            storage,
            subpages: config.subpages,
            read_ns: ns(config.read_latency),
            write_ns: ns(config.write_latency),
            busy: Mutex::new(Busy { planes: vec![0; config.planes].into(), writes: 0 }),
            reads,
            writes,
            flushes,
            errors,
            late,
            lateness_ns_total,
            lateness_ns_max,
        };
        Ok(TimedFlash { config, shared: Arc::new(shared) })
    }
    /// What it stores: subpage i at i x 4096. Change it only while no request is in flight.
    #[must_use]
    pub fn storage(&self) -> &Arc<Arena> {
        &self.shared.storage
    }
}

impl Flash for TimedFlash {
    fn subpages(&self) -> u32 {
        self.shared.subpages
    }
    fn describe(&self) -> String {
        let c = &self.config;
        format!(
            "emulated flash, {}, {} read, {} write, {} planes",
            format_bytes(u64::from(c.subpages) << 12),
            format_duration(c.read_latency),
            format_duration(c.write_latency),
            c.planes
        )
    }
    fn traits(&self) -> Traits {
        Traits::PLAIN
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
        Ok(Box::new(TimedQueue {
            shared: self.shared.clone(),
            clock: self.config.clock.clone(),
            frame_count: frame_count(&frames),
            frames,
            wake,
            depth,
            checked: false,
            batch: Vec::with_capacity(depth),
            waiting: BinaryHeap::with_capacity(depth),
            refused: Vec::new(),
            sequence: 0,
        }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
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
            late: get(&s.late),
            lateness_ns_total: get(&s.lateness_ns_total),
            lateness_ns_max: get(&s.lateness_ns_max),
            ..DeviceCounters::default()
        }
    }
}

/// A request that waits for its time. Ordered by time, then by arrival.
#[derive(Clone, Copy)]
struct Waiting {
    due_ns: u64,
    sequence: u64,
    request: Request,
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.sequence)
    }
}
impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
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
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Handed over, for subpages or frames that there are not.
    refused: Vec<u64>,
    sequence: u64,
}

impl TimedQueue {
    /// Moves the data of a request. Returns its checksum, if that is asked for.
    fn serve(&self, request: Request) -> u32 {
        let (subpage, frame) = (request.subpage.index() * SUBPAGE_BYTES, request.frame.index() * SUBPAGE_BYTES);
        match request.op {
            Op::Read => transfer((&self.shared.storage, subpage), (&self.frames, frame), self.checked),
            Op::Write => transfer((&self.frames, frame), (&self.shared.storage, subpage), self.checked),
            Op::Flush => 0,
        }
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
        let shared = &*self.shared;
        let now = self.clock.now_ns();
        let mut busy = lock(&shared.busy);
        for request in self.batch.drain(..) {
            let due_ns = match request.op {
                Op::Flush => busy.writes.max(now),
                _ if request.subpage.0 >= shared.subpages || request.frame.0 >= self.frame_count => {
                    self.refused.push(request.tag);
                    continue;
                }
                Op::Read | Op::Write => {
                    let latency = if request.op == Op::Read { shared.read_ns } else { shared.write_ns };
                    let planes = busy.planes.len();
                    let plane = &mut busy.planes[request.subpage.index() % planes];
                    *plane = (*plane).max(now).saturating_add(latency);
                    let due_ns = *plane;
                    if request.op == Op::Write {
                        busy.writes = busy.writes.max(due_ns);
                    }
                    due_ns
                }
            };
            self.waiting.push(Reverse(Waiting { due_ns, sequence: self.sequence, request }));
            self.sequence += 1;
        }
        Ok(())
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        for tag in self.refused.drain(..) {
            completions.push(Completion { tag, result: Err(FlashError::OutOfRange), checksum: 0 });
        }
        let errors = completions.len() - before;
        let [mut reads, mut writes, mut flushes, mut late, mut total, mut max] = [0u64; 6];
        // Read before each transfer, so that what comes due meanwhile is served, too.
        while let Some(Reverse(next)) = self.waiting.peek().copied() {
            let now = self.clock.now_ns();
            if next.due_ns > now {
                break;
            }
            self.waiting.pop();
            let checksum = self.serve(next.request);
            match next.request.op {
                Op::Read => reads += 1,
                Op::Write => writes += 1,
                Op::Flush => flushes += 1,
            }
            completions.push(Completion { tag: next.request.tag, result: Ok(()), checksum });
            let lateness = now - next.due_ns;
            (total, max, late) = (total + lateness, max.max(lateness), late + u64::from(lateness > LATE_NS));
        }
        let done = completions.len() - before;
        if done > 0 {
            let shared = &*self.shared;
            for (counter, by) in [
                (&shared.reads, reads),
                (&shared.writes, writes),
                (&shared.flushes, flushes),
                (&shared.errors, errors as u64),
                (&shared.late, late),
                (&shared.lateness_ns_total, total),
            ] {
                if by > 0 {
                    counter.fetch_add(by, Ordering::Relaxed);
                }
            }
            if max > shared.lateness_ns_max.load(Ordering::Relaxed) {
                shared.lateness_ns_max.fetch_max(max, Ordering::Relaxed);
            }
        }
        done
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
        let Some(Reverse(next)) = self.waiting.peek() else {
            self.clock.wait(&self.wake, timeout);
            return;
        };
        if let Some(nap) = self.clock.nap(next.due_ns, timeout) {
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
        self.batch.capacity() * size_of::<Request>() + self.waiting.capacity() * size_of::<Waiting>()
    }
}

impl Drop for TimedQueue {
    fn drop(&mut self) {
        while let Some(Reverse(waiting)) = self.waiting.pop() {
            self.serve(waiting.request);
        }
    }
}
