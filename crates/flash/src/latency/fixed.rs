//! Fixed latencies: each request takes the time of its kind on its plane, which serves one request
//! at a time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, format_bytes, format_duration};
use fulgurite_nand::{FlashDone, FlashOp, FlashRequest, FlashStatus};
use fulgurite_sys::{Arena, Backed, Clock};

use super::{Latency, Refused, Times};
use crate::{MemoryFlash, Op, OpenError};

/// How an emulated device behaves.
#[derive(Clone, Debug)]
pub struct EmulatedConfig {
    /// Capacity.
    pub subpages: u32,
    /// From request to completion of a read on an idle plane. 50 µs: AstriFlash, table I.
    pub read_latency: Duration,
    /// How long a write takes.
    pub write_latency: Duration,
    /// Planes. Subpage s is on plane s mod `planes`, and a plane serves one request at a time.
    /// AstriFlash has 4 GB a plane: 256 of them in its terabyte.
    pub planes: usize,
    /// The core to run the device on. None leaves it to the kernel, among the cores of the starting
    /// thread. With that thread's core alone it sleeps between due times rather than spin.
    pub core: Option<usize>,
    /// Where the data is stored (at least `subpages` x 4096 bytes); none takes fresh memory, all
    /// zero.
    pub storage: Option<Arc<Arena>>,
    /// What the latencies are measured by.
    pub clock: Clock,
}

impl EmulatedConfig {
    /// 50 µs reads, 100 µs writes, 256 planes, fresh memory, any core, real time.
    #[must_use]
    pub fn new(subpages: u32) -> EmulatedConfig {
        EmulatedConfig {
            subpages,
            read_latency: Duration::from_micros(50),
            write_latency: Duration::from_micros(100),
            planes: 256,
            core: None,
            storage: None,
            clock: Clock::get(),
        }
    }
}

/// The latencies, and until when the planes are busy.
#[derive(Debug)]
pub(crate) struct Planes {
    read_ns: u64,
    write_ns: u64,
    /// When each plane has served all it was given.
    busy_ns: Box<[u64]>,
    /// When the last write is done. Flushes wait for it.
    writes_done_ns: u64,
}

impl Planes {
    pub(crate) fn new(config: &EmulatedConfig) -> Result<Planes, OpenError> {
        if config.planes == 0 {
            return Err(OpenError::NoPlanes);
        }
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        Ok(Planes {
            read_ns: ns(config.read_latency),
            write_ns: ns(config.write_latency),
            busy_ns: vec![0; config.planes].into(),
            writes_done_ns: 0,
        })
    }
    /// Gives a request to its plane. Returns when it is due.
    #[inline]
    pub(crate) fn take(&mut self, now: u64, op: Op, subpage: u32) -> u64 {
        let latency = match op {
            Op::Flush => return self.writes_done_ns.max(now),
            Op::Read => self.read_ns,
            Op::Write => self.write_ns,
        };
        let plane = subpage as usize % self.busy_ns.len();
        let busy = &mut self.busy_ns[plane];
        *busy = (*busy).max(now).saturating_add(latency);
        if op == Op::Write {
            self.writes_done_ns = self.writes_done_ns.max(*busy);
        }
        *busy
    }
}

/// What a device says of itself.
pub(crate) fn describe(what: &str, config: &EmulatedConfig) -> String {
    format!(
        "emulated {what}, {}, {} read, {} write, {} planes",
        format_bytes(u64::from(config.subpages) << 12),
        format_duration(config.read_latency),
        format_duration(config.write_latency),
        config.planes
    )
}

/// Requests that wait for their time: by time, then by arrival. Planes make due times out of
/// order, hence a heap.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    due_ns: u64,
    arrival: u64,
    request: T,
}

impl<T> Schedule<T> {
    pub(crate) fn with_capacity(requests: usize) -> Schedule<T> {
        Schedule { waiting: BinaryHeap::with_capacity(requests), arrivals: 0 }
    }
    #[inline]
    pub(crate) fn push(&mut self, due_ns: u64, request: T) {
        self.waiting.push(Reverse(Waiting { due_ns, arrival: self.arrivals, request }));
        self.arrivals += 1;
    }
    /// Takes the first request that is due, with its time.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        if self.next_ns()? > now {
            return None;
        }
        self.waiting.pop().map(|Reverse(first)| (first.due_ns, first.request))
    }
    /// When the next request is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waiting.peek().map(|first| first.0.due_ns)
    }
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due_ns, self.arrival).cmp(&(other.due_ns, other.arrival))
    }
}
impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<T> Eq for Waiting<T> {}

/// Fixed latencies as the times of a device.
#[derive(Debug)]
pub struct Fixed {
    config: EmulatedConfig,
    planes: Planes,
    /// Tags of requests, and when they were submitted.
    waiting: Schedule<(u64, u64)>,
}

impl Times for Fixed {
    fn submit(&mut self, now_ns: u64, request: FlashRequest) -> Result<(), Refused> {
        let op = match request.op {
            FlashOp::Read => Op::Read,
            FlashOp::Write => Op::Write,
            FlashOp::Flush => Op::Flush,
        };
        if op != Op::Flush && request.flash_page >= self.config.subpages {
            return Err(Refused::NoSuchPage);
        }
        self.waiting.push(self.planes.take(now_ns, op, request.flash_page), (request.tag, now_ns));
        Ok(())
    }
    fn advance(&mut self, now_ns: u64, done: &mut Vec<FlashDone>) {
        while let Some((done_ns, (tag, submitted_ns))) = self.waiting.pop_due(now_ns) {
            done.push(FlashDone { tag, status: FlashStatus::Ok, submitted_ns, done_ns, blocked_by_reclaim: false });
        }
    }
    fn next_event_ns(&self) -> Option<u64> {
        self.waiting.next_ns()
    }
    fn gathers(&self) -> usize {
        1
    }
    fn describe(&self, _: String) -> String {
        describe("flash", &self.config)
    }
}

/// A device with fixed latencies, driven by the threads that poll its queues: what is behind a
/// device's firmware, which spins on a core of its own.
pub type TimedFlash = Latency<Fixed>;

impl TimedFlash {
    /// A device as configured. It has no thread, so `core` has no effect.
    ///
    /// # Errors
    /// When it has no subpages or planes, the storage is too small, or the kernel refuses memory.
    pub fn new(config: EmulatedConfig) -> Result<TimedFlash, OpenError> {
        let (subpages, clock) = (config.subpages, config.clock.clone());
        let planes = Planes::new(&config)?;
        let storage = match &config.storage {
            Some(storage) => storage.clone(),
            None if subpages == 0 => return Err(OpenError::Size { bytes: 0 }),
            None => Arc::new(Arena::anonymous(subpages as usize * SUBPAGE_BYTES, Backed::HugePages)?),
        };
        let memory = Arc::new(MemoryFlash::over(storage, subpages)?);
        Ok(Latency::of(memory, Fixed { config, planes, waiting: Schedule::with_capacity(1024) }, subpages, clock))
    }
}
