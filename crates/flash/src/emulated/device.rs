//! The device thread: takes requests from all queues, keeps them until they are due, moves the
//! data, posts completions. Each round polls every submission ring once, then serves what is due.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use fulgurite_sys::{Clock, affinity, arch, barrier, clock};

use super::Shared;
use super::queue::{Link, pack_completion, unpack};
use crate::DeviceCounters;
use crate::latency::{EmulatedConfig, Planes, Schedule};
use crate::ring::{Consumer, Producer};

/// How long the device spins after the last request before it sleeps: longer than the pauses of a
/// worker at a tenth of its load, whose latency would else include waking the device.
const SPIN_NS: u64 = 1_000_000;
/// How often the device publishes its CPU time: reading it is a system call.
const CPU_EVERY_NS: u64 = 1_000_000;
/// Most requests served before the rings are polled again.
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

/// A request that waits for its time.
#[derive(Clone, Copy)]
struct Waiting {
    port: u32,
    slot: u32,
    request: u64,
}

pub(super) struct Device {
    shared: Arc<Shared>,
    clock: Clock,
    planes: Planes,
    waiting: Schedule<Waiting>,
    /// Places of queues; a place is reused when its queue has gone.
    ports: Vec<Option<Port>>,
    /// The worker runs on this core as well: sleep rather than spin.
    single_core: bool,
    cpu_due_ns: u64,
}

/// Says that the device has ended, for whatever reason, and wakes all waiters.
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
    pub(super) fn new(shared: Arc<Shared>, planes: Planes, config: &EmulatedConfig) -> Device {
        Device {
            shared,
            clock: config.clock.clone(),
            planes,
            waiting: Schedule::with_capacity(1024),
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
            if taken + served > 0 || self.waiting.len() > 0 {
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
        let before = self.waiting.len();
        for (index, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            while let Some([request, slot]) = port.requests.pop() {
                // Read after the entry was seen, so that "never earlier" holds for what the worker
                // measures as well.
                let now = self.clock.now_ns();
                let (op, _, subpage) = unpack(request);
                let due_ns = self.planes.take(now, op, subpage);
                port.in_flight += 1;
                self.waiting.push(due_ns, Waiting { port: index as u32, slot: slot as u32, request });
            }
        }
        self.waiting.len() - before
    }

    /// Moves the data of what is due and posts the completions. Returns how many.
    fn serve(&mut self) -> usize {
        let mut served = 0;
        while served < SERVE_MAX {
            let Some((due_ns, next)) = self.waiting.pop_due(self.clock.now_ns()) else { break };
            let port = self.ports[next.port as usize].as_mut().expect("a queue stays until all has completed");
            let (op, frame, subpage) = unpack(next.request);
            let checked = port.link.checksums.load(Ordering::Relaxed);
            let checksum = self.shared.cells.serve(op, subpage, &port.link.frames, frame, checked);
            let mut done = DeviceCounters::default();
            done.ended(op, Ok(()));
            done.add_lateness(self.clock.now_ns().saturating_sub(due_ns));
            self.shared.counters.add(&done);
            port.completions.push([pack_completion(next.slot, checksum)]);
            (port.in_flight, port.posted) = (port.in_flight - 1, true);
            served += 1;
        }
        if served == 0 {
            return 0;
        }
        // Pairs with the worker's fence between announcing its wait and its last poll of the ring.
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
            let next = self.waiting.next_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now)));
            self.shared.doorbell.wait(next);
        }
        state.sleeping.store(false, Ordering::SeqCst);
    }

    fn publish_cpu(&mut self, now: u64) {
        self.cpu_due_ns = now + CPU_EVERY_NS;
        self.shared.counters.device_cpu_ns.raise(clock::thread_cpu().as_nanos() as u64);
    }
}
