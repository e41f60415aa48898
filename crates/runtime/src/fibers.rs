//! The fibers of a worker as its jobs reach them: what each waits for, the run order, and the cache
//! whose frames they use.
//!
//! What a fiber begins and where its result is stored is the worker's. A running fiber has the only
//! access to this, because its worker's loop waits in `resume` without a reference.

mod timers;

use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_cache::{Cache, FrameSources, Miss, Outcome, Step};
use fulgurite_flash::FlashError;
use fulgurite_format::FrameIndex;
use fulgurite_policy::{FiberIndex, Scheduler, Waiter};

use crate::guarded::Guarded;
use crate::mailbox::{Message, Wake};
use crate::shared::Shared;
use crate::state::{FiberState, WaitsFor};
use crate::stats::WorkerStatistics;

pub(crate) struct Fibers {
    pub id: u32,
    pub shared: Arc<Shared>,
    pub cache: Cache<Guarded>,
    /// For what the cache tells: exchanged for its own list.
    pub notices: Vec<(Waiter, Outcome)>,
    pub scheduler: Scheduler,
    pub states: Box<[Rc<FiberState>]>,
    /// Times at which waits end: nanoseconds, fiber, ticket.
    pub timers: BinaryHeap<std::cmp::Reverse<(u64, u32, u32)>>,
    /// Fibers that wait for the gate, and their tickets.
    pub gate_waiters: Vec<(u32, u32)>,
    /// Since when the runtime stops; 0 before.
    pub stopping_ns: u64,
    pub statistics: WorkerStatistics,
}

impl Fibers {
    // ---- the cache ----

    /// An access of `fiber` found `subpage` not resident. Returns whether it waits now. Otherwise
    /// it tries again.
    pub(crate) fn begin_miss(&mut self, subpage: u32, fiber: u32) -> bool {
        let now = self.shared.clock.now_ns();
        let state = &self.states[fiber as usize];
        let (waiter, wanted, turn) = (pack(self.id, fiber), state.wanted.get(), state.frame_turn.replace(false));
        match self.cache.begin_miss(Miss { subpage, waiter, wanted, turn }, now) {
            Step::Again => return false,
            Step::Wait => self.will_wait(fiber, WaitsFor::Flash, now),
            Step::WaitForFrame => self.will_wait(fiber, WaitsFor::Frame, now),
            Step::Elsewhere(owner) => {
                let ticket = self.will_wait(fiber, WaitsFor::Flash, now);
                self.shared.mailboxes[owner as usize].send(Message::Join { subpage, waiter });
                ticket
            }
        };
        true
    }

    /// A fiber wants contents of a subpage that are not cached in frames, and waits.
    pub(crate) fn begin_fetch(&mut self, subpage: u32, fiber: u32) {
        let now = self.shared.clock.now_ns();
        let state = &self.states[fiber as usize];
        let (waiter, turn) = (pack(self.id, fiber), state.frame_turn.replace(false));
        let waits_for = match self.cache.begin_fetch(Miss { subpage, waiter, wanted: 0, turn }, now) {
            Step::WaitForFrame => WaitsFor::Frame,
            _ => WaitsFor::Flash,
        };
        self.will_wait(fiber, waits_for, now);
    }
    /// It has copied them.
    pub(crate) fn end_fetch(&mut self, frame: FrameIndex) {
        self.cache.end_fetch(frame);
        self.deliver();
    }

    /// An access of a thread found a subpage not resident. It is notified what became of it.
    pub(crate) fn begin_miss_of_thread(&mut self, miss: Miss) {
        let Miss { subpage, waiter, .. } = miss;
        match self.cache.begin_miss(miss, self.shared.clock.now_ns()) {
            Step::Again => self.notify(waiter, Outcome::Again, 0),
            Step::Wait | Step::WaitForFrame => {}
            Step::Elsewhere(owner) => self.shared.mailboxes[owner as usize].send(Message::Join { subpage, waiter }),
        }
    }
    /// A thread wants contents of a subpage that are not cached in frames, and waits.
    pub(crate) fn begin_fetch_of_thread(&mut self, miss: Miss) {
        self.cache.begin_fetch(miss, self.shared.clock.now_ns());
    }
    /// From now on, that number of threads may pin frames and wait for misses.
    pub(crate) fn expect_threads(&mut self, count: usize) {
        self.cache.shared().share_pins();
        self.cache.expect_waiters(self.states.len() * self.shared.mailboxes.len() + count);
    }

    /// Takes the completions that are there; returns how many.
    pub(crate) fn poll(&mut self) -> usize {
        let (cache, fibers, id) = (&mut self.cache, &self.states, self.id);
        let expect = |waiter: Waiter| {
            let (worker, fiber) = unpack(waiter);
            if worker == id {
                fetch_stack(&fibers[fiber as usize]);
            }
        };
        let count = cache.poll(expect, || self.shared.clock.now_ns());
        if count > 0 {
            self.deliver();
        }
        count
    }

    /// Tells those whose waits have ended, of this worker or another.
    pub(crate) fn deliver(&mut self) {
        if self.cache.take_cut_written()
            && let Some(thread) = &*self.shared.cut_waits.lock()
        {
            thread.unpark();
        }
        if !self.cache.has_notices() {
            return;
        }
        let now = self.shared.clock.now_ns();
        let mut notices = std::mem::take(&mut self.notices);
        self.cache.take_notices(&mut notices);
        for (waiter, outcome) in notices.drain(..) {
            self.notify(waiter, outcome, now);
        }
        self.notices = notices;
    }

    /// Tells a waiter what became of its wait.
    fn notify(&mut self, waiter: Waiter, outcome: Outcome, now_ns: u64) {
        let wake = match outcome {
            Outcome::Again | Outcome::Turn => Wake::Retry,
            Outcome::Pinned => Wake::Pinned,
            Outcome::Fetched(frame) => Wake::Fetched(frame),
            Outcome::Failed(error) => Wake::Failed(error),
            Outcome::OutOfFrames => Wake::OutOfFrames,
        };
        let turn = outcome == Outcome::Turn;
        if let Some((seat, ticket)) = unpack_thread(waiter) {
            let ended = self.shared.seats.with(seat, |seat| seat.end_wait(ticket, wake, turn));
            assert!(ended, "a thread waits for one thing at a time, until it is notified");
            return;
        }
        let (worker, fiber) = unpack(waiter);
        if turn {
            self.states[fiber as usize].frame_turn.set(true);
        }
        if worker == self.id {
            self.wake_local(fiber, wake, now_ns);
        } else {
            self.shared.mailboxes[worker as usize].send(Message::Wake { fiber, ticket: 0, wake });
        }
    }

    /// What may yet free a frame for waiters.
    pub(crate) fn others(&self) -> FrameSources {
        if self.scheduler.has_runnable() {
            FrameSources::Run
        } else if !self.shared.seats.any() && self.scheduler.pending() == self.cache.frame_waiters() {
            FrameSources::None
        } else {
            FrameSources::Wait
        }
    }

    /// Makes a waiting fiber runnable.
    pub(crate) fn wake_local(&mut self, fiber: u32, wake: Wake, now_ns: u64) {
        let state = &self.states[fiber as usize];
        if state.waiting.replace(false) {
            state.wake.set(wake);
            let missed = state.missed_ns.replace(0);
            if missed != 0 {
                self.statistics.miss_ns.saturating_record(now_ns.saturating_sub(missed).max(1));
            }
            self.scheduler.arrived(FiberIndex(fiber), now_ns);
        } else if let Wake::Fetched(frame) = wake {
            self.cache.end_fetch(frame);
        } else if wake == Wake::Pinned {
            unreachable!("a fiber was given a frame that it did not wait for");
        }
    }

    /// Ends the wait with this ticket, if the fiber is still in it.
    pub(crate) fn wake_ticket(&mut self, fiber: u32, ticket: u32, wake: Wake) {
        let state = &self.states[fiber as usize];
        if state.waiting.get() && state.ticket.get() == ticket {
            self.wake_local(fiber, wake, self.shared.clock.now_ns());
        }
    }

    /// Tells all fibers that wait for this that the runtime stops.
    pub(crate) fn wake_all(&mut self, waits_for: WaitsFor, now_ns: u64) {
        for fiber in 0..self.states.len() {
            let state = &self.states[fiber];
            if state.waiting.get() && state.waits_for.get() == waits_for {
                self.wake_local(fiber as u32, Wake::ShutDown, now_ns);
            }
        }
    }

    /// Notes that a fiber is about to wait for a wake-up. Returns the ticket of this wait.
    pub(crate) fn will_wait(&mut self, fiber: u32, waits_for: WaitsFor, now: u64) -> u32 {
        let state = &self.states[fiber as usize];
        let (missed, age) = (waits_for == WaitsFor::Flash, state.request_ns.get());
        state.missed_ns.set(if missed { now } else { 0 });
        if missed {
            self.scheduler.missed(FiberIndex(fiber), age, now);
        } else {
            self.scheduler.blocked(FiberIndex(fiber), age, now);
        }
        state.begin_wait(waits_for)
    }

    /// Notes that a fiber is about to give way.
    pub(crate) fn will_yield(&mut self, fiber: u32) {
        let state = &self.states[fiber as usize];
        state.wake.set(Wake::Retry);
        let age = state.request_ns.get();
        self.scheduler.yielded(FiberIndex(fiber), age, self.shared.clock.now_ns());
    }

    /// Ends the waits of jobs that were cancelled; those for flash end by themselves.
    pub(crate) fn wake_cancelled(&mut self) {
        let now = self.shared.clock.now_ns();
        for fiber in 0..self.states.len() {
            let state = &self.states[fiber];
            let ends = matches!(state.waits_for.get(), WaitsFor::Latch | WaitsFor::Outside);
            if state.waiting.get() && ends && state.cancelled() {
                self.wake_local(fiber as u32, Wake::Retry, now);
            }
        }
    }

    /// The fiber that ran has no unpinned reference any more.
    #[inline(always)]
    pub(crate) fn publish_nothing(&self) {
        self.shared.slots.of(self.id).store(fulgurite_cache::residency::NOTHING, Ordering::Release);
    }

    /// Whether the runtime stops.
    pub(crate) fn stopping(&self) -> bool {
        self.stopping_ns != 0
    }

    /// What has been counted, by the cache as well.
    pub(crate) fn reported_statistics(&self) -> WorkerStatistics {
        let mut statistics = self.statistics.clone();
        statistics.counts.add_cache(&self.cache.counts());
        statistics.counts.frames = u64::from(self.cache.frame_limit());
        statistics.counts.frames_free = self.cache.frames_free() as u64;
        statistics.counts.pending = self.scheduler.pending() as u64;
        statistics.counts.in_flight = self.cache.in_flight() as u64;
        statistics
    }
}

/// Lines of a suspended fiber's stack that it reads first: what the switch and the miss path saved.
const STACK_LINES: usize = 4;

/// Starts to fetch the top of a fiber's stack: it will run soon.
#[inline]
fn fetch_stack(state: &FiberState) {
    let stack: *const u8 = state.stack_top.get();
    for line in 0..STACK_LINES {
        fulgurite_sys::arch::prefetch(stack.wrapping_add(64 * line));
    }
}

/// Waits for a completion, no longer than the medium may take. Returns the time then.
pub(crate) fn wait_for_medium(shared: &Shared, cache: &mut Cache<Guarded>) -> Result<u64, FlashError> {
    cache.hand_over();
    let begin = shared.clock.now_ns();
    let limit = shared.config.device_timeout;
    loop {
        if cache.poll(|_| (), || shared.clock.now_ns()) > 0 {
            return Ok(shared.clock.now_ns());
        }
        let waited = Duration::from_nanos(shared.clock.now_ns() - begin);
        if waited > limit {
            return Err(FlashError::TimedOut);
        }
        cache.sleep(Some((limit - waited).min(Duration::from_millis(50))));
    }
}

/// A fiber of a worker, as the miss table keeps it.
pub(crate) fn pack(worker: u32, fiber: u32) -> Waiter {
    Waiter(u64::from(worker) << 32 | u64::from(fiber))
}
fn unpack(waiter: Waiter) -> (u32, u32) {
    ((waiter.0 >> 32) as u32, waiter.0 as u32)
}

/// What numbers of threads have, and numbers of fibers have not.
const THREAD: u64 = 1 << 63;

/// A thread, by its seat and the ticket of its wait.
pub(crate) fn pack_thread(seat: u32, ticket: u32) -> Waiter {
    Waiter(THREAD | u64::from(seat) << 32 | u64::from(ticket))
}
fn unpack_thread(waiter: Waiter) -> Option<(u32, u32)> {
    (waiter.0 & THREAD != 0).then_some((((waiter.0 & !THREAD) >> 32) as u32, waiter.0 as u32))
}
