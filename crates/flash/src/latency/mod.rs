//! The device with latencies: a medium that holds the data and moves it at once, and times that say
//! when each request ends. The times are either fixed ones of planes (`fixed`), or the times of a
//! model of NAND (`nand`).
//!
//! ```text
//!   queue 0   queue 1   ..                what moves data: the medium within, at once
//!      |         |                          |
//!      +----+----+------> requests ---------+
//!           |
//!        [ times ]   their nanoseconds = nanoseconds of the clock since this was made
//!           |
//!   a request ends when its data was moved and its time has come
//! ```
//!
//! It has no thread: the threads that poll its queues drive it. [`crate::EmulatedFlash`] has one
//! that plays fixed latencies behind rings in shared memory.
//!
//! Invariants: no completion is returned before its time (the counters say how much later). A
//! request ends once. What the times fail is not returned as read, though the medium within has its
//! data. All queues share the times under a lock, for which queues of one thread never wait.

mod fixed;
mod nand;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::SubpageIndex;
use fulgurite_nand::{FlashDone, FlashOp, FlashRequest, FlashStatus};
use fulgurite_sys::{Arena, Clock, Counter, Notifier};

use crate::counters::Counters;
use crate::slots::Slots;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenedQueue, Queue, QueueFull, QueueUser, Request,
    Switches, Traits, check_depth, check_range, frame_count, lock,
};

pub use fixed::{EmulatedConfig, TimedFlash};
pub(crate) use fixed::{Planes, Schedule, describe};
pub use nand::{NandFlash, NandReport};

/// EIO: what a drive says of a page that it cannot read or program.
const MEDIUM_ERROR: FlashError = FlashError::Io(5);

/// Why a request is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// For the moment: what is under way makes room.
    Full,
    /// There is no such flash page. The medium within says so, at once.
    NoSuchPage,
}

/// What says when requests end. Its time begins when it is made, in nanoseconds.
pub trait Times: Send + std::fmt::Debug + 'static {
    /// Takes a request.
    ///
    /// # Errors
    /// `Refused`.
    fn submit(&mut self, now_ns: u64, request: FlashRequest) -> Result<(), Refused>;
    /// Works up to `now_ns`, and appends what has ended.
    fn advance(&mut self, now_ns: u64, done: &mut Vec<FlashDone>);
    /// When to advance again. None: when the next request was submitted.
    fn next_event_ns(&self) -> Option<u64>;
    /// Neighbouring subpages that it takes as one.
    fn gathers(&self) -> usize;
    /// What the device says of itself, over a medium that says this.
    fn describe(&self, inner: String) -> String;
}

/// A device with latencies, over a medium that holds its data.
pub struct Latency<T> {
    inner: Arc<dyn Flash>,
    shared: Arc<Shared<T>>,
    subpages: u32,
}

impl<T> std::fmt::Debug for Latency<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latency").field("inner", &self.inner.describe()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared<T> {
    model: Mutex<Model<T>>,
    clock: Clock,
    start_ns: u64,
    /// When the times have something to do again, or `u64::MAX`.
    next_ns: AtomicU64,
    /// Requests whose data the medium within moved, and which were failed.
    failed_reads: Counter,
    failed_writes: Counter,
    lateness: Counters,
}

#[derive(Debug)]
struct Model<T> {
    times: T,
    done: Vec<FlashDone>,
    ports: Vec<Port>,
}

/// The side of the times of a queue.
#[derive(Debug, Default)]
struct Port {
    /// What has ended and was not fetched, and that there is some; none where the queue is gone.
    ended: Option<(Vec<FlashDone>, Arc<AtomicBool>)>,
    /// Requests in the model that have not ended. Only when there are none can another queue have
    /// the port.
    under_way: usize,
}

impl Port {
    fn is_free(&self) -> bool {
        self.ended.is_none() && self.under_way == 0
    }
}

impl<T> Shared<T> {
    fn now(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.start_ns)
    }
}

impl<T: Times> Model<T> {
    /// Works up to `now`, and gives each queue what is its own.
    fn advance(&mut self, now: u64, shared: &Shared<T>) {
        self.times.advance(now, &mut self.done);
        for done in self.done.drain(..) {
            let port = &mut self.ports[(done.tag >> 32) as usize];
            port.under_way -= 1;
            if let Some((ended, there)) = &mut port.ended {
                ended.push(done);
                there.store(true, Ordering::Release);
            }
        }
        // Last: a reader of "nothing under way" finds what has ended (see `wait` of the queue).
        shared.next_ns.store(self.times.next_event_ns().unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl<T: Times> Latency<T> {
    /// Flash pages 0 to `subpages` are the flash pages of the medium within.
    fn of(inner: Arc<dyn Flash>, times: T, subpages: u32, clock: Clock) -> Latency<T> {
        let shared = Shared {
            model: Mutex::new(Model { times, done: Vec::with_capacity(256), ports: Vec::new() }),
            start_ns: clock.now_ns(),
            clock,
            next_ns: AtomicU64::new(u64::MAX),
            failed_reads: Counter::default(),
            failed_writes: Counter::default(),
            lateness: Counters::default(),
        };
        Latency { inner, shared: Arc::new(shared), subpages }
    }
    /// Takes its time from another clock, by which its time begins now.
    ///
    /// # Panics
    /// When queues were opened already.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("no queue has been opened");
        (shared.start_ns, shared.clock) = (clock.now_ns(), clock);
        self
    }
    /// A queue of its own over one of the medium within.
    fn over(&self, inner: Box<dyn Queue>, frames: u32, depth: usize, wake: Arc<Notifier>) -> Box<dyn Queue> {
        let there = Arc::new(AtomicBool::new(false));
        let mut model = lock(&self.shared.model);
        let free = model.ports.iter().position(Port::is_free);
        let port = free.unwrap_or(model.ports.len());
        if free.is_none() {
            model.ports.push(Port::default());
        }
        model.ports[port].ended = Some((Vec::with_capacity(depth), there.clone()));
        let port = port as u32;
        Box::new(LatencyQueue {
            shared: self.shared.clone(),
            subpages: self.subpages,
            frames,
            inner,
            wake,
            port,
            there,
            slots: Slots::new(depth),
            halves: vec![Half::Neither; depth].into(),
            batch: Vec::with_capacity(depth),
            given: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            own_work: false,
        })
    }
}

impl<T: Times> Flash for Latency<T> {
    fn subpages(&self) -> u32 {
        self.subpages
    }
    fn describe(&self) -> String {
        lock(&self.shared.model).times.describe(self.inner.describe())
    }
    fn traits(&self) -> Traits {
        let (gathers, inner) = (lock(&self.shared.model).times.gathers(), self.inner.traits());
        // There is no such command: what is on a page of NAND stays there until it is erased.
        Traits { gathers: gathers.max(inner.gathers), trims: false, ..inner }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let count = frame_count(&frames);
        Ok(self.over(self.inner.open_queue_for(user, frames, depth, wake.clone())?, count, depth, wake))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.inner.backing()
    }
    fn counters(&self) -> DeviceCounters {
        let (reads, writes) = (self.shared.failed_reads.get(), self.shared.failed_writes.get());
        let (own, inner) = (self.shared.lateness.read(), self.inner.counters());
        // The medium within counted these as moved; each request counts once.
        DeviceCounters {
            reads: inner.reads.saturating_sub(reads),
            writes: inner.writes.saturating_sub(writes),
            errors: inner.errors + reads + writes,
            late: own.late,
            lateness_ns_total: own.lateness_ns_total,
            lateness_ns_max: own.lateness_ns_max,
            ..inner
        }
    }
}

/// What is known of a request's end.
#[derive(Clone, Copy, Debug)]
enum Half {
    Neither,
    /// Its data was moved, or not.
    Moved(Completion),
    /// Its time has come.
    Due(FlashDone),
}

struct LatencyQueue<T> {
    shared: Arc<Shared<T>>,
    subpages: u32,
    frames: u32,
    inner: Box<dyn Queue>,
    wake: Arc<Notifier>,
    port: u32,
    /// The time of something of this queue has come.
    there: Arc<AtomicBool>,
    slots: Slots,
    halves: Box<[Half]>,
    /// Submitted, not handed over.
    batch: Vec<FlashRequest>,
    /// Handed over, not yet taken by the times.
    given: Vec<FlashRequest>,
    arrived: Vec<Completion>,
    ended: Vec<FlashDone>,
    /// What it is given is work of a store's own.
    own_work: bool,
}

impl<T: Times> LatencyQueue<T> {
    /// Gives the times what was handed over, lets them work, and fetches this queue's ends.
    fn turn(&mut self, now: u64) {
        let shared = &*self.shared;
        let due = now >= shared.next_ns.load(Ordering::Acquire);
        if !due && self.given.is_empty() && !self.there.load(Ordering::Acquire) {
            return;
        }
        let mut model = lock(&shared.model);
        let mut taken = 0;
        for request in &self.given {
            match model.times.submit(now, *request) {
                Ok(()) => {
                    taken += 1;
                    model.ports[self.port as usize].under_way += 1;
                }
                Err(Refused::Full) => break,
                Err(Refused::NoSuchPage) => {
                    taken += 1;
                    let (tag, status) = (request.tag, FlashStatus::Ok);
                    self.ended.push(FlashDone {
                        tag,
                        status,
                        submitted_ns: now,
                        done_ns: now,
                        blocked_by_reclaim: false,
                    });
                }
            }
        }
        self.given.drain(..taken);
        model.advance(now, shared);
        if self.there.swap(false, Ordering::AcqRel)
            && let Some((ended, _)) = &mut model.ports[self.port as usize].ended
        {
            self.ended.append(ended);
        }
    }
    /// The end of a request both of whose halves are known.
    fn end(
        &mut self,
        now: u64,
        slot: u32,
        moved: Completion,
        done: FlashDone,
        lateness: &mut DeviceCounters,
    ) -> Completion {
        lateness.add_lateness(now.saturating_sub(done.done_ns));
        let failed = match done.status {
            FlashStatus::Ok | FlashStatus::Corrected(_) => None,
            FlashStatus::Uncorrectable => Some(&self.shared.failed_reads),
            FlashStatus::WriteFailed => Some(&self.shared.failed_writes),
        };
        let result = match failed {
            Some(counter) if moved.result.is_ok() => {
                counter.add(1);
                Err(MEDIUM_ERROR)
            }
            _ => moved.result,
        };
        Completion { tag: self.slots.release(slot), result, checksum: moved.checksum }
    }
}

impl<T: Times> Queue for LatencyQueue<T> {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        // The medium within may be larger than the device, and is not to answer for what that has
        // not. Nor may a write count that the medium refuses.
        let outside = request.op != Op::Flush && (request.subpage.0 >= self.subpages || request.frame.0 >= self.frames);
        let subpage = if outside { SubpageIndex(u32::MAX) } else { request.subpage };
        self.inner
            .submit(Request { tag: slot.into(), subpage, ..request })
            .expect("the queue within is as deep and has no more in flight");
        self.halves[slot as usize] = Half::Neither;
        let op = match request.op {
            Op::Read => FlashOp::Read,
            Op::Write => FlashOp::Write,
            Op::Flush => FlashOp::Flush,
        };
        let tag = u64::from(self.port) << 32 | u64::from(slot);
        self.batch.push(FlashRequest { tag, op, flash_page: subpage.0, reclaim: self.own_work });
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.given.append(&mut self.batch);
        // The data first: a read whose time comes from now on finds it.
        let handed_over = self.inner.flush();
        self.turn(self.shared.now());
        handed_over
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.slots.in_use() == 0 {
            return 0;
        }
        let before = completions.len();
        let now = self.shared.now();
        let mut lateness = DeviceCounters::default();
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.poll(&mut arrived);
        for moved in arrived.drain(..) {
            let slot = moved.tag as u32;
            match self.halves[slot as usize] {
                Half::Due(done) => completions.push(self.end(now, slot, moved, done, &mut lateness)),
                _ => self.halves[slot as usize] = Half::Moved(moved),
            }
        }
        self.arrived = arrived;
        self.turn(now);
        let mut ended = std::mem::take(&mut self.ended);
        for done in ended.drain(..) {
            let slot = done.tag as u32;
            match self.halves[slot as usize] {
                Half::Moved(moved) => completions.push(self.end(now, slot, moved, done, &mut lateness)),
                _ => self.halves[slot as usize] = Half::Due(done),
            }
        }
        self.ended = ended;
        self.shared.lateness.add(&lateness);
        completions.len() - before
    }
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.own_work = to.own_work;
        Switches { own_work: to.own_work, ..self.inner.switch(to) }
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        // This is read before the check for ends, because another thread's turn in between could
        // leave no time to wake at.
        let next_ns = self.shared.next_ns.load(Ordering::Acquire);
        if self.there.load(Ordering::Acquire) || !self.ended.is_empty() {
            return;
        }
        if self.slots.in_use() == 0 {
            self.shared.clock.wait(&self.wake, timeout);
            return;
        }
        let shared = &*self.shared;
        let Some(nap) = shared.clock.nap(shared.start_ns.saturating_add(next_ns), timeout) else { return };
        if self.inner.in_flight() > 0 {
            self.inner.wait(Some(nap));
        } else {
            shared.clock.wait(&self.wake, Some(nap));
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
            + self.slots.bytes()
            + self.slots.depth() * (size_of::<Half>() + 2 * size_of::<FlashRequest>())
    }
}

impl<T> Drop for LatencyQueue<T> {
    fn drop(&mut self) {
        lock(&self.shared.model).ports[self.port as usize].ended = None;
    }
}
