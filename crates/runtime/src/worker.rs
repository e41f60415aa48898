//! A worker: an OS thread that runs fibers, and the scheduling point between any two of them.
//!
//! ```text
//!            +--> resume a fiber --> it misses, waits, yields or has no more jobs --+
//!            |                                                                     |
//!   decide <-+-- mail, completions, timers, eviction (the scheduling point) <-------+
//!            |
//!            +--> nothing to run: hand requests over, poll, sleep
//! ```
//!
//! The worker is reached from two sides on one thread: by its own loop, and by the fiber that it runs. Neither holds a
//! reference to it across a switch; both go through the raw pointer and finish with it before they switch.
//!
//! This file holds the loop and the fibers, `tasks` what they run. Frames, misses and eviction are its cache's; what is decided is
//! decided in `policy`.

mod tasks;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_cache::{Ahead, Cache, Miss, Others, Outcome, Setup, Step};
use fulgurite_fiber::{Fiber, PooledStack, Resumed, StackPool, Suspender};
use fulgurite_flash::FlashError;
use fulgurite_policy::{Choice, FiberIndex, Point, Scheduler, Waiter};

use crate::config::{BuildError, own_fibers};
use crate::context::{Context, FiberState, WaitsFor};
use crate::guarded::Guarded;
use crate::job::{Control, ErasedJob, Finish, JobError, SubmitError, drop_payload, panic_text, refuse};
use crate::mailbox::{Message, Wake};
use crate::service::{Next, Service, ServiceEnd, ServiceFactory};
use crate::shared::Shared;
use crate::stats::WorkerStatistics;

/// How often the rarely needed is looked at: time-outs of the medium.
const CHECK_NS: u64 = 50_000_000;
/// At one in how many scheduling points the clock is read for that, while there is always something to run.
const CHECK_POINTS: u32 = 64;
/// How often a worker that lacks frames looks whether others have let go of some.
const STARVED_NS: u64 = 500_000;

pub(crate) struct Worker {
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) cache: Cache<Guarded>,
    /// For what the cache tells: exchanged for its own list.
    told: Vec<(Waiter, Outcome)>,
    pub(crate) scheduler: Scheduler,

    pub(crate) fibers: Box<[FiberSlot]>,
    stacks: StackPool,
    /// Stacks in place of those that overflowed.
    spare_stacks: Vec<PooledStack>,
    idle: Vec<u32>,
    /// Frames promised to the pins of jobs that have begun.
    pins_promised: u32,
    /// Jobs that went before a more urgent one that did not fit, since one did.
    passed: u32,
    service: Option<Serving>,
    /// The service said just now that a request is there: what takes it does not ask again.
    service_ready: bool,
    /// Services that wait for their turn.
    services: VecDeque<ServiceFactory>,
    /// Times at which waits end: nanoseconds, fiber, ticket.
    timers: BinaryHeap<std::cmp::Reverse<(u64, u32, u32)>>,
    /// A fiber that has ended its job asks what is next; it could begin a job itself.
    at_rest: bool,
    /// The service is being asked what is next, perhaps on a fiber's stack.
    asking: bool,
    /// What it decided.
    decided: Option<Choice>,
    next_arrival_ns: u64,
    next_check_ns: u64,
    /// Scheduling points, for what is done at few of them.
    points: u32,
    /// Since when the runtime stops; 0 before.
    stopping_ns: u64,
    /// It has told the others that it has no fibers any more.
    left: bool,
    /// Somebody waits until no write section is open.
    pub(crate) drained: Option<std::sync::mpsc::Sender<()>>,
    /// Fibers that wait for the gate, and their tickets.
    pub(crate) gate_waiters: Vec<(u32, u32)>,
    /// Mail that came while the worker was halted.
    pub(crate) mail_put_off: VecDeque<Message>,
    /// Jobs of the runtime itself, for the last fiber.
    own_jobs: VecDeque<Box<dyn ErasedJob>>,
    /// That fiber has one.
    own_job_runs: bool,
    pub(crate) write_back_requests: Vec<std::sync::mpsc::Sender<Result<(), FlashError>>>,
    pub(crate) statistics: WorkerStatistics,
}

struct Serving {
    service: Rc<dyn Service>,
    name: &'static str,
    pins: u32,
    done: std::sync::mpsc::Sender<Result<(), ServiceEnd>>,
    running: u32,
    died: Option<String>,
}

pub(crate) struct FiberSlot {
    fiber: Option<Fiber>,
    pub(crate) state: Rc<FiberState>,
    /// Where the running job's result goes, should the fiber die.
    finish: Option<(Arc<dyn Finish>, Arc<Control>)>,
    serving: bool,
    promised: u32,
}

thread_local! {
    /// Whether this thread runs a worker.
    static CURRENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this thread runs a worker.
pub(crate) fn on_worker() -> bool {
    CURRENT.get()
}

/// Refuses what would make a worker wait for itself.
///
/// # Panics
/// On a thread that runs a worker.
pub(crate) fn assert_foreign(what: &str) {
    assert!(!on_worker(), "a job must not {what}: its worker would wait for itself; do it from another thread");
}

/// Ends the wait with this ticket of a fiber of `worker`, from any thread.
pub(crate) fn wake(shared: &Arc<Shared>, worker: u32, fiber: u32, ticket: u32) {
    // By mail even to oneself: whoever wakes may be code of a user that the worker itself has called.
    shared.mailboxes[worker as usize].send(Message::Wake { fiber, ticket, wake: Wake::Retry });
}

impl Worker {
    /// Makes a worker on the thread that will run it.
    pub(crate) fn new(id: u32, shared: Arc<Shared>) -> Result<Worker, BuildError> {
        let config = &shared.config;
        let layout = shared.layout;
        let depth = layout.queue_depth;
        let notifier = shared.mailboxes[id as usize].notifier().clone();
        let queue = shared.flash.open_queue(shared.cache.frames.arena().clone(), depth, notifier)?;
        let with_own = own_fibers(config.fibers);
        let stacks = StackPool::new(with_own, config.stack_bytes)?;
        let fibers: Box<[FiberSlot]> = (0..with_own as u32)
            .map(|index| FiberSlot {
                fiber: None,
                state: Rc::new(FiberState::new(index, id, shared.clone())),
                finish: None,
                serving: false,
                promised: 0,
            })
            .collect();
        let pending = if config.pending == 0 { config.fibers } else { config.pending.min(config.fibers) };
        let setup = Setup {
            id,
            depth,
            waiters: with_own * config.workers,
            replacement: config.replacement,
            prefetch: config.prefetch,
            device_timeout_ns: crate::nanos(config.device_timeout),
        };
        let users = Guarded::new(id, shared.slots.clone(), config.planted);
        let mut cache = Cache::new(shared.cache.clone(), queue, users, setup);
        cache.set_frames(layout.frames_per_worker);
        Ok(Worker {
            id,
            cache,
            told: Vec::with_capacity(with_own * config.workers),
            scheduler: Scheduler::new(config.scheduling, pending, with_own),
            at_rest: false,
            asking: false,
            fibers,
            stacks,
            spare_stacks: Vec::new(),
            idle: (0..config.fibers as u32).rev().collect(),
            pins_promised: 0,
            passed: 0,
            service: None,
            service_ready: false,
            services: VecDeque::new(),
            timers: BinaryHeap::new(),
            decided: None,
            next_arrival_ns: u64::MAX,
            next_check_ns: 0,
            points: 0,
            stopping_ns: 0,
            left: false,
            drained: None,
            gate_waiters: Vec::new(),
            mail_put_off: VecDeque::new(),
            own_jobs: VecDeque::new(),
            own_job_runs: false,
            write_back_requests: Vec::new(),
            statistics: WorkerStatistics::new(),
            shared,
        })
    }

    /// Runs until the runtime stops and nothing is left to run.
    pub(crate) fn run(mut self) {
        /// What a worker was changing when it panicked is half changed, and others wait for it: no way on from there.
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(false);
                if std::thread::panicking() {
                    crate::context::give_up();
                }
            }
        }
        let worker: *mut Worker = &raw mut self;
        let _leave = Leave;
        CURRENT.set(true);
        let mut point = Point::Idle;
        // SAFETY: `worker` points to `self`, which lives to the end of this function and is reached through this pointer
        // only, by this loop and by fibers, one after the other on this thread; no reference is held across a switch.
        unsafe {
            loop {
                (*worker).scheduling_point();
                let decided = (*worker).decided.take();
                match decided.unwrap_or_else(|| (*worker).decide(point)) {
                    Choice::Resume(fiber) => point = Worker::resume(worker, fiber.0),
                    Choice::StartNew => match (*worker).idle.pop() {
                        Some(fiber) => point = Worker::resume(worker, fiber),
                        None => point = (*worker).wait(),
                    },
                    Choice::Wait => {
                        if (*worker).stopping() && (*worker).may_end() {
                            break;
                        }
                        point = (*worker).wait();
                    }
                }
            }
            (*worker).end();
        }
    }

    /// Runs a fiber until it comes back, and says why it did.
    ///
    /// # Safety
    /// `worker` is this thread's worker and no reference into it is alive.
    unsafe fn resume(worker: *mut Worker, index: u32) -> Point {
        // SAFETY: the caller's contract; the reference ends with the call.
        let fiber = unsafe { &mut *worker }.before_resume(worker, index);
        // SAFETY: the fiber lies in its slot, on the heap, and is touched by nobody while it runs: the worker's methods that
        // fibers call look at other fields of slots only.
        let resumed = unsafe { (*fiber).resume() };
        // SAFETY: as above.
        unsafe { &mut *worker }.after_resume(index, resumed)
    }

    fn before_resume(&mut self, worker: *mut Worker, index: u32) -> *mut Fiber {
        self.statistics.counts.resumes += 1;
        let running = &self.shared.running[self.id as usize];
        running.turn();
        running.fiber.store(index, Ordering::Relaxed);
        running.busy.store(true, Ordering::Relaxed);
        let slot = &mut self.fibers[index as usize];
        if slot.fiber.is_none() {
            let stack = self.spare_stacks.pop().or_else(|| self.stacks.take()).expect("as many stacks as fibers");
            slot.fiber = Some(new_fiber(worker, self.shared.clone(), slot.state.clone(), stack));
        }
        std::ptr::from_mut(slot.fiber.as_mut().expect("made above"))
    }

    fn after_resume(&mut self, index: u32, resumed: Resumed) -> Point {
        self.shared.running[self.id as usize].busy.store(false, Ordering::Relaxed);
        self.publish_nothing();
        match resumed {
            Resumed::Suspended if self.fibers[index as usize].state.waiting.get() => Point::Missed,
            Resumed::Suspended => Point::Finished,
            Resumed::Overflowed => {
                self.bury(index);
                Point::Finished
            }
            Resumed::Finished => unreachable!("the body of a fiber has no end"),
        }
    }

    /// A fiber overflowed: fails its job. Nothing on its stack was dropped, so that others may still refer to it and to the
    /// frames that it pinned: all of that stays as it is for good, as if the fiber waited for ever, and the next one gets
    /// another stack. That memory is beyond the budget.
    fn bury(&mut self, index: u32) {
        let stack_bytes = self.shared.config.stack_bytes;
        self.at_rest = false;
        if std::mem::take(&mut self.asking)
            && let Some(serving) = &mut self.service
        {
            serving.died = Some(format!("to say what is next, it overflowed a stack of {stack_bytes} bytes"));
        }
        let slot = &mut self.fibers[index as usize];
        std::mem::forget(slot.fiber.take());
        if slot.state.in_section() {
            // It will never leave it.
            self.shared.gates[self.id as usize].leave();
        }
        slot.state = Rc::new(slot.state.successor());
        let name = self.shared.running[self.id as usize].name();
        eprintln!("fulgurite: job \"{name}\" overflowed its stack of {stack_bytes} bytes on worker {}", self.id);
        if let Some((finish, control)) = slot.finish.take() {
            finish.fail(JobError::StackOverflow { name: control.name, stack_bytes });
        }
        let died = slot.serving.then(|| format!("a request overflowed its stack of {stack_bytes} bytes"));
        self.end_task(index, 0, died, true);
        match StackPool::new(1, stack_bytes).ok().and_then(|pool| pool.take()) {
            Some(stack) => {
                self.spare_stacks.push(stack);
                self.rest(index);
            }
            None => eprintln!("fulgurite: no memory for another stack: worker {} has one fiber less", self.id),
        }
    }

    // ---- the scheduling point -------------------------------------------------------------------------------------------

    #[inline]
    fn decide(&mut self, point: Point) -> Choice {
        let new_job = self.scheduler.may_start() && self.new_job_ready();
        // The clock is read only by the policy that looks at ages.
        let now = if self.shared.config.scheduling == fulgurite_policy::SchedulingPolicy::PriorityAging {
            self.shared.clock.now_ns()
        } else {
            0
        };
        self.scheduler.pick(point, now, new_job)
    }

    /// Everything that is done between two fibers.
    fn scheduling_point(&mut self) {
        if self.shared.mailboxes[self.id as usize].has_mail() {
            self.read_mail();
        }
        if self.cache.in_flight() > 0 {
            self.poll();
        }
        if self.timer_is_due() {
            self.ring_timers();
        }
        if self.cache.wants_room() {
            self.cache.make_room(self.others(), self.shared.clock.now_ns());
            self.tell();
        }
        self.points = self.points.wrapping_add(1);
        if self.cache.unflushed() >= self.shared.config.submit_batch {
            self.cache.hand_over();
        } else if self.points.is_multiple_of(CHECK_POINTS) {
            // Fewer than a batch, and no more to come, perhaps.
            self.cache.hand_over();
        }
        if self.points.is_multiple_of(CHECK_POINTS) {
            self.check_late(self.shared.clock.now_ns());
        }
        self.end_service();
        if self.cut_goes_on() {
            self.go_on_with_cut();
        }
        if !self.own_jobs.is_empty() && !self.own_job_runs && self.decided.is_none() {
            self.own_job_runs = true;
            self.decided = Some(Choice::Resume(FiberIndex(self.own_fiber())));
        }
    }

    /// The fiber that is kept for jobs of the runtime itself.
    fn own_fiber(&self) -> u32 {
        self.fibers.len() as u32 - 1
    }

    /// Gives up what has been waited for too long; does nothing when it was asked a moment ago.
    fn check_late(&mut self, now_ns: u64) {
        if now_ns < self.next_check_ns {
            return;
        }
        self.next_check_ns = now_ns + CHECK_NS;
        self.cache.give_up_late_requests(self.others(), now_ns);
        self.tell();
        let patience_ns = crate::nanos(self.shared.config.device_timeout);
        if self.stopping() && now_ns.saturating_sub(self.stopping_ns) > patience_ns {
            self.wake_all(WaitsFor::Latch, now_ns);
        }
    }

    /// The fiber that ran has no unpinned reference any more.
    #[inline(always)]
    fn publish_nothing(&self) {
        self.shared.slots.of(self.id).store(fulgurite_cache::residency::NOTHING, Ordering::Release);
    }

    fn read_mail(&mut self) {
        let shared = self.shared.clone();
        while let Some(message) = self.mail_put_off.pop_front().or_else(|| shared.mailboxes[self.id as usize].next()) {
            match message {
                Message::Join { subpage, waiter } => {
                    self.cache.join_from_outside(subpage, waiter);
                    self.tell();
                }
                Message::Wake { fiber, ticket: 0, wake } => self.wake_local(fiber, wake, shared.clock.now_ns()),
                Message::Wake { fiber, ticket, wake } => self.wake_ticket(fiber, ticket, wake),
                Message::Stop => self.begin_stop(),
                Message::Serve(factory) => self.services.push_back(factory),
                Message::SetFrames(count) => self.cache.set_frames(count),
                Message::Statistics { reset, reply } => {
                    let statistics = self.told_statistics();
                    // Who has given up waiting does not get it: then it is not lost.
                    if reply.send(statistics).is_ok() && reset {
                        self.statistics = WorkerStatistics::new();
                        self.cache.reset_counts();
                    }
                }
                Message::CloseGate(drained) => self.close_gate(drained),
                Message::OpenGate => self.open_gate(),
                Message::Halt(halt) => self.halt(&halt),
                Message::Pump(order) => self.cache.begin_pump(order),
                Message::OwnJob(job) if self.stopping() => refuse(job, |name| JobError::ShutDown { name }),
                Message::OwnJob(job) => self.own_jobs.push_back(job),
                Message::TakeOut { range, write_back, reply } => {
                    let now = shared.clock.now_ns();
                    let _ = reply.send(self.cache.take_out(&range, write_back, now));
                }
                Message::CountChanges(reply) => {
                    let _ = reply.send(self.cache.count_changes());
                }
                Message::Nudge => {}
                Message::Cancelled => self.wake_cancelled(),
                Message::WriteBack(reply) => self.write_back_requests.push(reply),
            }
        }
        if !self.write_back_requests.is_empty() {
            let result = self.write_back_all();
            for reply in std::mem::take(&mut self.write_back_requests) {
                let _ = reply.send(result);
            }
        }
    }

    /// What has been counted, by the cache as well.
    fn told_statistics(&self) -> WorkerStatistics {
        let mut statistics = self.statistics.clone();
        statistics.counts.add_cache(&self.cache.counts());
        statistics.counts.frames = u64::from(self.cache.frame_limit());
        statistics.counts.frames_free = self.cache.frames_free() as u64;
        statistics.counts.pending = self.scheduler.pending() as u64;
        statistics.counts.in_flight = self.cache.in_flight() as u64;
        statistics
    }

    // ---- the cache ------------------------------------------------------------------------------------------------------

    /// An access of `fiber` found `subpage` not resident. Returns whether it waits now; else it looks again.
    pub(crate) fn begin_miss(&mut self, subpage: u32, fiber: u32) -> bool {
        let now = self.shared.clock.now_ns();
        let state = &self.fibers[fiber as usize].state;
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

    /// Takes the completions that are there; returns how many.
    pub(crate) fn poll(&mut self) -> usize {
        let (cache, fibers, id) = (&mut self.cache, &self.fibers, self.id);
        let expect = |waiter: Waiter| {
            let (worker, fiber) = unpack(waiter);
            if worker == id {
                fetch_stack(&fibers[fiber as usize].state);
            }
        };
        let count = cache.poll(expect, || self.shared.clock.now_ns());
        if count > 0 {
            self.tell();
        }
        count
    }

    /// Tells those whose waits have ended, of this worker or another.
    pub(crate) fn tell(&mut self) {
        if self.cache.take_cut_written()
            && let Some(thread) = &*self.shared.cut_waits.lock()
        {
            thread.unpark();
        }
        if !self.cache.has_told() {
            return;
        }
        let now = self.shared.clock.now_ns();
        let mut told = std::mem::take(&mut self.told);
        self.cache.take_told(&mut told);
        for (waiter, outcome) in told.drain(..) {
            let (worker, fiber) = unpack(waiter);
            let wake = match outcome {
                Outcome::Again => Wake::Retry,
                Outcome::Turn => {
                    self.fibers[fiber as usize].state.frame_turn.set(true);
                    Wake::Retry
                }
                Outcome::Pinned => Wake::Pinned,
                Outcome::Failed(error) => Wake::Failed(error),
                Outcome::OutOfFrames => Wake::OutOfFrames,
            };
            if worker == self.id {
                self.wake_local(fiber, wake, now);
            } else {
                self.shared.mailboxes[worker as usize].send(Message::Wake { fiber, ticket: 0, wake });
            }
        }
        self.told = told;
    }

    /// What may yet give a frame back to those who wait for one.
    fn others(&self) -> Others {
        if self.scheduler.has_runnable() {
            Others::Run
        } else if self.scheduler.pending() == self.cache.frame_waiters() {
            Others::None
        } else {
            Others::Wait
        }
    }

    /// Writes all dirty frames back, waits for them, flushes the medium. Nobody runs on this worker meanwhile.
    fn write_back_all(&mut self) -> Result<(), FlashError> {
        let shared = self.shared.clone();
        let now = shared.clock.now_ns();
        let result = self.cache.write_back_all(now, &mut |cache| wait_for_medium(&shared, cache));
        self.tell();
        result
    }

    /// Makes a waiting fiber runnable.
    pub(crate) fn wake_local(&mut self, fiber: u32, wake: Wake, now_ns: u64) {
        let state = &self.fibers[fiber as usize].state;
        if state.waiting.replace(false) {
            state.wake.set(wake);
            let missed = state.missed_ns.replace(0);
            if missed != 0 {
                self.statistics.miss_ns.saturating_record(now_ns.saturating_sub(missed).max(1));
            }
            self.scheduler.arrived(FiberIndex(fiber), now_ns);
        } else if wake == Wake::Pinned {
            unreachable!("a fiber was given a frame that it did not wait for");
        }
    }

    /// Ends the wait with this ticket, if the fiber is still in it.
    pub(crate) fn wake_ticket(&mut self, fiber: u32, ticket: u32, wake: Wake) {
        let state = &self.fibers[fiber as usize].state;
        if state.waiting.get() && state.ticket.get() == ticket {
            self.wake_local(fiber, wake, self.shared.clock.now_ns());
        }
    }

    /// Tells all fibers that wait for this that the runtime stops.
    fn wake_all(&mut self, waits_for: WaitsFor, now_ns: u64) {
        for fiber in 0..self.fibers.len() {
            let state = &self.fibers[fiber].state;
            if state.waiting.get() && state.waits_for.get() == waits_for {
                self.wake_local(fiber as u32, Wake::ShutDown, now_ns);
            }
        }
    }

    /// Notes that a fiber is about to wait for a wake-up. Returns the ticket of this wait.
    pub(crate) fn will_wait(&mut self, fiber: u32, waits_for: WaitsFor, now: u64) -> u32 {
        let state = &self.fibers[fiber as usize].state;
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
        let state = &self.fibers[fiber as usize].state;
        state.wake.set(Wake::Retry);
        let age = state.request_ns.get();
        self.scheduler.yielded(FiberIndex(fiber), age, self.shared.clock.now_ns());
    }

    /// Ends the waits of jobs that were cancelled; those for flash end by themselves.
    fn wake_cancelled(&mut self) {
        let now = self.shared.clock.now_ns();
        for fiber in 0..self.fibers.len() {
            let state = &self.fibers[fiber].state;
            let ends = matches!(state.waits_for.get(), WaitsFor::Latch | WaitsFor::Outside);
            if state.waiting.get() && ends && state.cancelled() {
                self.wake_local(fiber as u32, Wake::Retry, now);
            }
        }
    }

    /// Nothing can run: waits for flash, mail, arrivals or timers; polling for a while, then asleep.
    fn wait(&mut self) -> Point {
        let begin = self.shared.clock.now_ns();
        let point = self.wait_from(begin);
        self.statistics.counts.wait_ns += self.shared.clock.now_ns() - begin;
        point
    }

    fn wait_from(&mut self, begin: u64) -> Point {
        if self.service_is_over() {
            // Since the scheduling point, which tells its end.
            return Point::Idle;
        }
        self.cache.hand_over();
        let next_timer = self.timers.peek().map_or(u64::MAX, |t| t.0.0);
        let wanted = self.next_arrival_ns.min(next_timer);
        self.next_arrival_ns = u64::MAX;
        let mut now = begin;
        if now >= wanted {
            return Point::Idle;
        }
        let spin_ns = self.shared.config.spin.as_nanos() as u64;
        // Whether a job of the common queue could begin here; nothing but a wake-up changes that.
        let open = self.scheduler.may_start() && !self.idle.is_empty() && (self.none_routed() || self.may_pass());
        let open_for = if open { self.pins_that_fit() + 1 } else { 0 };
        let job_waits = |this: &Self| open && this.next_job().is_some();
        // Waiting for flash, or for an arrival that is nearer than a sleep is long: poll.
        let poll_until = begin.saturating_add(spin_ns);
        while self.cache.in_flight() > 0 || wanted < poll_until {
            if self.cache.in_flight() > 0 && self.poll() > 0 {
                return Point::Idle;
            }
            now = self.shared.clock.now_ns();
            if now >= wanted || self.shared.mailboxes[self.id as usize].has_mail() || job_waits(self) {
                return Point::Idle;
            }
            if now >= poll_until {
                break;
            }
            self.shared.clock.relax();
        }
        self.check_late(now);
        if self.scheduler.has_runnable() {
            return Point::Idle;
        }
        let ahead = if self.cache.in_flight() == 0 && !self.stopping() {
            self.cache.write_ahead(self.shared.turns(), now)
        } else {
            Ahead::Nothing
        };
        if ahead == Ahead::Again {
            return Point::Idle;
        }
        now = self.shared.clock.now_ns();
        let mut timeout = wanted.saturating_sub(now);
        if let Ahead::After(ns) = ahead {
            timeout = timeout.min(ns.saturating_sub(now));
        }
        if self.cache.in_flight() > 0 || self.stopping() || self.cache.is_shrinking() {
            timeout = timeout.min(CHECK_NS);
        }
        if self.cache.frame_waiters() > 0 {
            // Another worker's use of a frame ends without a word.
            timeout = timeout.min(STARVED_NS);
        }
        let mailbox = &self.shared.mailboxes[self.id as usize];
        if mailbox.doze(open_for) && !job_waits(self) && !(self.left && self.shared.active.load(Ordering::Acquire) == 0)
        {
            self.statistics.counts.sleeps += 1;
            self.cache.sleep((timeout < u64::MAX / 2).then(|| Duration::from_nanos(timeout)));
        }
        let mailbox = &self.shared.mailboxes[self.id as usize];
        mailbox.awake();
        Point::Idle
    }

    /// Whether the service has finished or died, and none of its requests runs.
    fn service_is_over(&mut self) -> bool {
        self.service.as_ref().is_some_and(|s| s.running == 0)
            && self.ask_service().is_none_or(|(next, _)| next == Next::Finished)
    }

    /// Ends a service that has finished, and begins the next.
    fn end_service(&mut self) {
        if self.service.is_none() && self.services.is_empty() {
            return;
        }
        if self.service_is_over()
            && let Some(Serving { service, done, died, .. }) = self.service.take()
        {
            let dropped = catch_unwind(AssertUnwindSafe(move || drop(service)));
            let died = died.or_else(|| dropped.err().map(panic_text));
            let _ = done.send(died.map_or(Ok(()), |text| Err(ServiceEnd::Died(text))));
        }
        while self.service.is_none()
            && let Some(ServiceFactory { make, done }) = self.services.pop_front()
        {
            let made = catch_unwind(AssertUnwindSafe(move || {
                let service = make();
                let (name, pins) = (service.name(), service.pins());
                (service, name, pins)
            }));
            match made {
                Ok((_, _, pins)) if pins > 4 && pins >= self.cache.frame_limit() => {
                    let frames = self.cache.frame_limit();
                    let _ = done.send(Err(ServiceEnd::Refused(SubmitError::TooManyPins { pins, frames })));
                }
                Ok((service, name, pins)) => {
                    self.service = Some(Serving { service, name, pins, done, running: 0, died: None });
                }
                Err(panic) => {
                    let _ = done.send(Err(ServiceEnd::Died(panic_text(panic))));
                }
            }
        }
    }

    /// Whether the runtime stops.
    pub(crate) fn stopping(&self) -> bool {
        self.stopping_ns != 0
    }

    /// The runtime stops: what has not begun never does, and nobody waits for a time or a future any more.
    fn begin_stop(&mut self) {
        let now = self.shared.clock.now_ns();
        self.stopping_ns = now.max(1);
        for job in std::mem::take(&mut self.own_jobs) {
            refuse(job, |name| JobError::ShutDown { name });
        }
        self.shared.injector.fail_all();
        self.shared.routed[self.id as usize].fail_all();
        self.timers.clear();
        self.wake_all(WaitsFor::Outside, now);
    }

    /// Whether this worker, which stops and has nothing to run, may end: when no worker has fibers. Before that it still serves
    /// the others, who may want what it reads or writes, and may change what lies in its frames.
    fn may_end(&mut self) -> bool {
        let quiet = self.scheduler.pending() == 0
            && !self.scheduler.has_runnable()
            && self.service.is_none()
            && self.services.is_empty()
            && !self.shared.mailboxes[self.id as usize].has_mail();
        if quiet && !std::mem::replace(&mut self.left, true) {
            self.shared.leave();
        }
        quiet && self.shared.active.load(Ordering::Acquire) == 0
    }

    /// Last words: fibers unwind, what is dirty goes back to flash.
    fn end(&mut self) {
        for slot in &mut self.fibers {
            slot.fiber = None;
        }
        // No job is left on any worker: a pin that still counts was forgotten, and must not keep its data from flash.
        self.cache.forget_pins();
        if self.shared.flash.versions().is_some() {
            // What is in no token is not part of any state.
            return;
        }
        // Once more: what failed may have been one request.
        if let Err(error) = self.write_back_all().or_else(|_| self.write_back_all()) {
            let lost = Vec::from_iter(self.cache.dirty_subpages());
            let named = Vec::from_iter(lost.iter().take(8).map(u32::to_string)).join(", ");
            eprintln!(
                "fulgurite: worker {} could not write {} dirty subpages back, which are lost ({error}): {named}{}",
                self.id,
                lost.len(),
                if lost.len() > 8 { ", ..." } else { "" }
            );
        }
    }
}

/// Lines of a suspended fiber's stack that it reads first when it goes on: what the switch and the miss path saved.
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

/// A fiber that takes one task after the other.
fn new_fiber(worker: *mut Worker, shared: Arc<Shared>, state: Rc<FiberState>, stack: PooledStack) -> Fiber {
    let floor = stack.floor();
    Fiber::new(stack, move |suspender: &Suspender| {
        let index = state.index;
        let mut context = Context::new(worker, &shared, state, suspender, floor);
        loop {
            // SAFETY: this fiber runs on the worker's thread while its loop waits in `resume`, which holds no reference to
            // the worker; the reference ends with the call.
            let task = unsafe { &mut *worker }.take_task(index);
            let died = match task {
                // It catches its own panics; what is left are those of wakers and of results that nobody waits for.
                Some(Task::Job(job)) => catch_unwind(AssertUnwindSafe(|| job.run(&mut context)))
                    .unwrap_or_else(|panic| {
                        drop_payload(panic);
                        true
                    })
                    .then(String::new),
                Some(Task::Service(service)) => loop {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| service.run(&mut context))) {
                        break Some(panic_text(panic));
                    }
                    let accesses = context.take_accesses();
                    // SAFETY: as above.
                    if !unsafe { &mut *worker }.next_request(index, accesses) {
                        break None;
                    }
                },
                None => None,
            };
            let accesses = context.take_accesses();
            // SAFETY: as above.
            if !unsafe { &mut *worker }.task_done(index, accesses, died) {
                context.suspend_idle();
            }
        }
    })
}

/// What a fiber runs.
enum Task {
    Job(Box<dyn ErasedJob>),
    Service(Rc<dyn Service>),
}

/// A fiber of a worker, as the miss table keeps it.
pub(crate) fn pack(worker: u32, fiber: u32) -> Waiter {
    Waiter(u64::from(worker) << 32 | u64::from(fiber))
}
fn unpack(waiter: Waiter) -> (u32, u32) {
    ((waiter.0 >> 32) as u32, waiter.0 as u32)
}
