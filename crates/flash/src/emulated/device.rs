//! The device thread: takes requests from all queues, keeps them until they are due, moves the data, posts completions.
//!
//! One thread serves all queues, so that a plane is one for all of them. Each round looks at every submission ring once,
//! then serves what is due. Planes make due times out of order, hence a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use fulgurite_format::{SUBPAGE_BYTES, crc32c};
use fulgurite_sys::{Arena, Clock, affinity, arch, barrier, clock};

use super::queue::{Link, pack_completion, unpack};
use super::{EmulatedConfig, Shared};
use crate::ring::{Consumer, Producer};
use crate::{LATE_NS, Op};

/// How long the device spins after the last request before it sleeps: longer than the pauses of a worker at a tenth of its load
/// (or waking the device would count as its latency), short enough to leave the core to others soon.
const SPIN_NS: u64 = 1_000_000;
/// How often the device publishes its CPU time: reading it is a system call.
const CPU_EVERY_NS: u64 = 1_000_000;
/// Most requests served before the rings are looked at again.
const SERVE_MAX: usize = 32;

/// The device's ends of one queue.
pub(super) struct Port {
    link: Arc<Link>,
    requests: Consumer<2>,
    completions: Producer<1>,
    in_flight: usize,
    /// Something was posted in this round.
    posted: bool,
}

impl Port {
    pub(super) fn new(link: Arc<Link>, requests: Consumer<2>, completions: Producer<1>) -> Port {
        Port { link, requests, completions, in_flight: 0, posted: false }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// A request that waits for its time. Ordered by time, then by arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due_ns: u64,
    sequence: u64,
    port: u32,
    slot: u32,
    request: u64,
}

pub(super) struct Device {
    shared: Arc<Shared>,
    storage: Arc<Arena>,
    clock: Clock,
    read_ns: u64,
    write_ns: u64,
    /// When each plane has served all it was given.
    planes: Box<[u64]>,
    /// When the last write is done: flushes wait for it.
    writes_done_ns: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    sequence: u64,
    /// Places of queues; a place is reused when its queue has gone.
    ports: Vec<Option<Port>>,
    /// The worker runs on this core as well: sleep rather than spin.
    single_core: bool,
    cpu_due_ns: u64,
}

/// Says that the device has ended, however it ended, and wakes everybody who waits for it.
struct Stopped(Arc<Shared>, Vec<Arc<Link>>);
impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.state.stopped.store(true, Ordering::SeqCst);
        let arrivals = crate::lock(&self.0.arrivals);
        for link in self.1.iter().chain(arrivals.iter().map(|p| &p.link)) {
            link.wake.notify();
        }
    }
}

impl Device {
    pub(super) fn new(shared: Arc<Shared>, storage: Arc<Arena>, config: &EmulatedConfig) -> Device {
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        Device {
            shared,
            storage,
            clock: config.clock.clone(),
            read_ns: ns(config.read_latency),
            write_ns: ns(config.write_latency),
            planes: vec![0; config.planes].into(),
            writes_done_ns: 0,
            waiting: BinaryHeap::with_capacity(1024),
            sequence: 0,
            ports: Vec::new(),
            single_core: matches!(affinity::cores()[..], [only] if config.core.is_none_or(|core| core == only)),
            cpu_due_ns: 0,
        }
    }

    /// Serves until asked to stop.
    pub(super) fn run(mut self) {
        let mut end = Stopped(self.shared.clone(), Vec::new());
        let mut active_ns = self.clock.now_ns();
        while !self.shared.state.stop.load(Ordering::Relaxed) {
            if self.shared.state.changed.load(Ordering::Relaxed) {
                self.update_ports();
                end.1 = self.ports.iter().flatten().map(|p| p.link.clone()).collect();
            }
            let taken = self.take_requests();
            let served = self.serve();
            let now = self.clock.now_ns();
            if taken + served > 0 || !self.waiting.is_empty() {
                active_ns = now;
            }
            if now >= self.cpu_due_ns {
                self.publish_cpu(now);
            }
            if now.saturating_sub(active_ns) > SPIN_NS || (self.single_core && taken + served == 0) {
                self.sleep(now);
                active_ns = self.clock.now_ns();
            } else if served == 0 {
                arch::relax();
            }
        }
        self.publish_cpu(0);
    }

    /// Learns of queues that came, forgets those that went.
    fn update_ports(&mut self) {
        self.shared.state.changed.swap(false, Ordering::SeqCst);
        for port in &mut self.ports {
            if port.as_ref().is_some_and(|p| p.link.closed.load(Ordering::SeqCst)) {
                assert_eq!(port.take().map(|p| p.in_flight), Some(0), "a queue went with requests in flight");
            }
        }
        let arrivals = std::mem::take(&mut *self.shared.arrivals.lock().expect("nobody panics with this lock"));
        for port in arrivals.into_iter().filter(|p| !p.link.closed.load(Ordering::SeqCst)) {
            match self.ports.iter_mut().find(|p| p.is_none()) {
                Some(place) => *place = Some(port),
                None => self.ports.push(Some(port)),
            }
        }
    }

    /// Takes what the queues have handed over and decides when it is due. Returns how many.
    fn take_requests(&mut self) -> usize {
        let before = self.sequence;
        for (index, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            while let Some([request, slot]) = port.requests.pop() {
                // Read after the entry was seen, so that "never earlier" holds for what the worker measures as well.
                let now = self.clock.now_ns();
                let (op, _, subpage) = unpack(request);
                let due_ns = match op {
                    Op::Flush => self.writes_done_ns.max(now),
                    Op::Read | Op::Write => {
                        let latency = if op == Op::Read { self.read_ns } else { self.write_ns };
                        let plane = &mut self.planes[subpage as usize % self.planes.len()];
                        *plane = (*plane).max(now).saturating_add(latency);
                        if op == Op::Write {
                            self.writes_done_ns = self.writes_done_ns.max(*plane);
                        }
                        *plane
                    }
                };
                port.in_flight += 1;
                let (sequence, port, slot) = (self.sequence, index as u32, slot as u32);
                self.sequence += 1;
                self.waiting.push(Reverse(Waiting { due_ns, sequence, port, slot, request }));
            }
        }
        (self.sequence - before) as usize
    }

    /// Moves the data of what is due and posts the completions. Returns how many.
    fn serve(&mut self) -> usize {
        let mut served = 0;
        let [mut reads, mut writes, mut flushes, mut late, mut total, mut max] = [0u64; 6];
        while served < SERVE_MAX {
            let now = self.clock.now_ns();
            let Some(&Reverse(next)) = self.waiting.peek().filter(|next| next.0.due_ns <= now) else { break };
            self.waiting.pop();
            let port = self.ports[next.port as usize].as_mut().expect("a queue stays until all has completed");
            let (op, frame, subpage) = unpack(next.request);
            let (frame, subpage) = (frame as usize * SUBPAGE_BYTES, subpage as usize * SUBPAGE_BYTES);
            let checked = port.link.checksums.load(Ordering::Relaxed);
            let checksum = match op {
                Op::Read => {
                    reads += 1;
                    transfer((&self.storage, subpage), (&port.link.frames, frame), checked)
                }
                Op::Write => {
                    writes += 1;
                    transfer((&port.link.frames, frame), (&self.storage, subpage), checked)
                }
                Op::Flush => {
                    flushes += 1;
                    0
                }
            };
            port.completions.push([pack_completion(next.slot, checksum)]);
            (port.in_flight, port.posted) = (port.in_flight - 1, true);
            let lateness = self.clock.now_ns().saturating_sub(next.due_ns);
            (total, max, late) = (total + lateness, max.max(lateness), late + u64::from(lateness > LATE_NS));
            served += 1;
        }
        if served == 0 {
            return 0;
        }
        let counters = &*self.shared.counters;
        for (counter, by) in [
            (&counters.reads, reads),
            (&counters.writes, writes),
            (&counters.flushes, flushes),
            (&counters.late, late),
            (&counters.lateness_ns_total, total),
        ] {
            // The device is the only writer.
            counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        }
        raise(&counters.lateness_ns_max, max);
        // Pairs with the worker's fence between saying that it waits and looking at the ring once more.
        fence(Ordering::SeqCst);
        for port in self.ports.iter_mut().flatten() {
            if std::mem::take(&mut port.posted) && port.link.waiting.load(Ordering::Relaxed) {
                port.link.waiting.store(false, Ordering::Relaxed);
                port.link.wake.notify();
            }
        }
        served
    }

    /// Sleeps until a queue has something, or (on a single core) the next request is due.
    fn sleep(&mut self, now: u64) {
        self.publish_cpu(now);
        let state = &self.shared.state;
        state.sleeping.store(true, Ordering::SeqCst);
        if state.expedited {
            barrier::expedited();
        } else {
            fence(Ordering::SeqCst);
        }
        let news = state.stop.load(Ordering::Relaxed)
            || state.changed.load(Ordering::Relaxed)
            || self.ports.iter().flatten().any(|p| p.requests.ready());
        if !news {
            let next = self.waiting.peek().map(|w| Duration::from_nanos(w.0.due_ns.saturating_sub(now)));
            self.shared.doorbell.wait(next);
        }
        state.sleeping.store(false, Ordering::SeqCst);
    }

    fn publish_cpu(&mut self, now: u64) {
        self.cpu_due_ns = now + CPU_EVERY_NS;
        raise(&self.shared.counters.cpu_ns, clock::thread_cpu().as_nanos() as u64);
    }
}

/// Moves a subpage. Returns its checksum, if that is asked for: of the very bytes that were moved.
pub(super) fn transfer(from: (&Arena, usize), to: (&Arena, usize), checked: bool) -> u32 {
    if !checked {
        Arena::copy(from.0, from.1, to.0, to.1, SUBPAGE_BYTES);
        return 0;
    }
    let mut page = Aligned([0; SUBPAGE_BYTES]);
    from.0.read(from.1, &mut page.0);
    to.0.write(to.1, &page.0);
    crc32c(&page.0)
}

/// A subpage on the stack.
#[repr(align(64))]
struct Aligned([u8; SUBPAGE_BYTES]);

/// Stores a maximum; the device is the only writer.
fn raise(counter: &AtomicU64, value: u64) {
    if value > counter.load(Ordering::Relaxed) {
        counter.store(value, Ordering::Relaxed);
    }
}
