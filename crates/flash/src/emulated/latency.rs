//! When requests are due: settings, fixed latencies and planes of both emulated devices.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{format_bytes, format_duration};
use fulgurite_sys::{Arena, Clock};

use crate::{Op, OpenError};

/// How an emulated device behaves.
#[derive(Clone, Debug)]
pub struct EmulatedConfig {
    /// Capacity.
    pub subpages: u32,
    /// From request to completion of a read on an idle plane. 50 µs: AstriFlash, table I.
    pub read_latency: Duration,
    /// The same of a write.
    pub write_latency: Duration,
    /// Planes. Subpage s lies on plane s mod `planes`, and a plane serves one request at a time.
    /// AstriFlash has 4 GB a plane: 256 of them in its terabyte.
    pub planes: usize,
    /// The core to run the device on. None leaves it to the kernel, among the cores of the starting
    /// thread. With that thread's core alone it sleeps between due times rather than spin.
    pub core: Option<usize>,
    /// Where the data lies (at least `subpages` x 4096 bytes); none takes fresh memory, all zero.
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
pub(super) struct Planes {
    read_ns: u64,
    write_ns: u64,
    /// When each plane has served all it was given.
    busy_ns: Box<[u64]>,
    /// When the last write is done. Flushes wait for it.
    writes_done_ns: u64,
}

impl Planes {
    pub(super) fn new(config: &EmulatedConfig) -> Result<Planes, OpenError> {
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
    pub(super) fn take(&mut self, now: u64, op: Op, subpage: u32) -> u64 {
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
pub(super) fn describe(what: &str, config: &EmulatedConfig) -> String {
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
pub(super) struct Schedule<T> {
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
    pub(super) fn with_capacity(requests: usize) -> Schedule<T> {
        Schedule { waiting: BinaryHeap::with_capacity(requests), arrivals: 0 }
    }
    #[inline]
    pub(super) fn push(&mut self, due_ns: u64, request: T) {
        self.waiting.push(Reverse(Waiting { due_ns, arrival: self.arrivals, request }));
        self.arrivals += 1;
    }
    /// Takes the first request that is due, with its time.
    #[inline]
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        if self.next_ns()? > now {
            return None;
        }
        self.waiting.pop().map(|Reverse(first)| (first.due_ns, first.request))
    }
    /// When the next request is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.peek().map(|first| first.0.due_ns)
    }
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
    pub(super) fn bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting<T>>()
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
