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
//! The worker is reached from two sides on one thread: its own loop, and the fiber that it runs.
//! Neither holds a reference across a switch. Both use the raw pointer and finish with it first.
//!
//! This file has the loop and the fibers, `tasks` what they run. The cache has frames, misses and
//! eviction, and `policy` decides.

mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_cache::{Ahead, Cache, Miss, Setup};
use fulgurite_fiber::{Fiber, PooledStack, Resumed, StackPool, Suspender};
use fulgurite_flash::FlashError;
use fulgurite_policy::{Choice, FiberIndex, Point, Scheduler};
use fulgurite_sys::faults::SignalStack;

use crate::config::{BuildError, nanos, own_fibers};
use crate::context::Context;
use crate::control::Control;
use crate::fibers::{Fibers, pack_thread, wait_for_medium};
use crate::guarded::Guarded;
use crate::job::{ErasedJob, Finish, JobError, SubmitError, drop_payload, panic_text, refuse};
use crate::jobs::Jobs;
use crate::mailbox::{Message, Wake};
use crate::service::{Next, Service, ServiceEnd, ServiceFactory};
use crate::shared::Shared;
use crate::split::STEP_NS;
use crate::state::{FiberState, WaitsFor};
use crate::stats::WorkerStatistics;
use crate::thread::WorkerThread;

/// How often what is rarely needed is checked: time-outs of the medium.
const CHECK_NS: u64 = 50_000_000;
/// At one in how many scheduling points the clock is read for that, while there is always something
/// to run.
const CHECK_POINTS: u32 = 64;
/// How often a worker that lacks frames checks whether others have let go of some.
const STARVED_NS: u64 = 500_000;
/// Bytes of a worker's stack for handlers of signals.
const SIGNAL_STACK_BYTES: usize = 64 << 10;

pub(crate) struct Worker {
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Arc<Jobs>,
    /// What its jobs reach.
    pub(crate) fibers: Fibers,
    slots: Box<[FiberSlot]>,
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
    /// A fiber that has ended its job asks what is next; it could begin a job itself.
    at_rest: bool,
    /// The service is being asked what is next, perhaps on a fiber's stack.
    asking: bool,
    decided: Option<Choice>,
    next_arrival_ns: u64,
    next_check_ns: u64,
    /// When it says next what its frames would gain by more DRAM.
    next_share_ns: u64,
    /// Scheduling points, for what is done at few of them.
    points: u32,
    /// It has notified the others that it has no fibers any more.
    left: bool,
    /// Somebody waits until no write section is open.
    pub(crate) drained: Option<std::sync::mpsc::Sender<()>>,
    /// Mail that came while the worker was halted.
    pub(crate) mail_put_off: VecDeque<Message>,
    /// Jobs of the runtime itself, for the last fiber.
    own_jobs: VecDeque<Box<dyn ErasedJob>>,
    /// That fiber has one.
    own_job_runs: bool,
    pub(crate) write_back_requests: Vec<std::sync::mpsc::Sender<Result<(), FlashError>>>,
}

struct Serving {
    service: Rc<dyn Service>,
    name: &'static str,
    pins: u32,
    done: std::sync::mpsc::Sender<Result<(), ServiceEnd>>,
    running: u32,
    died: Option<String>,
}

/// A fiber, and what it has begun.
struct FiberSlot {
    fiber: Option<Fiber>,
    /// Where the running job's result is stored, should the fiber die.
    finish: Option<(Arc<dyn Finish>, Arc<Control>)>,
    serving: bool,
    promised: u32,
}

impl Worker {
    /// Makes a worker on the thread that will run it.
    pub(crate) fn new(id: u32, shared: Arc<Shared>, jobs: Arc<Jobs>) -> Result<Worker, BuildError> {
        let config = &shared.config;
        let layout = shared.layout;
        let depth = layout.queue_depth;
        let notifier = shared.mailboxes[id as usize].notifier().clone();
        let queue = shared.flash.open_queue(shared.cache.frames.arena().clone(), depth, notifier)?;
        let with_own = own_fibers(config.fibers);
        let stacks = StackPool::new(with_own, config.stack_bytes)?;
        let slots = (0..with_own).map(|_| FiberSlot { fiber: None, finish: None, serving: false, promised: 0 });
        let states = (0..with_own as u32).map(|index| Rc::new(FiberState::new(index, id, shared.clone())));
        let pending = if config.pending == 0 { config.fibers } else { config.pending.min(config.fibers) };
        let setup = Setup {
            id,
            depth,
            waiters: with_own * config.workers,
            replacement: config.replacement,
            prefetch: config.prefetch,
            device_timeout_ns: nanos(config.device_timeout),
        };
        let users = Guarded::new(id, shared.slots.clone(), shared.seats.clone(), config.planted);
        let mut cache = Cache::new(shared.cache.clone(), queue, users, setup);
        cache.set_frames(layout.frames_per_worker);
        let fibers = Fibers {
            id,
            shared: shared.clone(),
            cache,
            notices: Vec::with_capacity(with_own * config.workers),
            scheduler: Scheduler::new(config.scheduling, pending, with_own),
            states: states.collect(),
            timers: BinaryHeap::new(),
            gate_waiters: Vec::new(),
            stopping_ns: 0,
            statistics: WorkerStatistics::new(),
        };
        Ok(Worker {
            id,
            fibers,
            slots: slots.collect(),
            jobs,
            at_rest: false,
            asking: false,
            stacks,
            spare_stacks: Vec::new(),
            idle: (0..config.fibers as u32).rev().collect(),
            pins_promised: 0,
            passed: 0,
            service: None,
            service_ready: false,
            services: VecDeque::new(),
            decided: None,
            next_arrival_ns: u64::MAX,
            next_check_ns: 0,
            next_share_ns: 0,
            points: 0,
            left: false,
            drained: None,
            mail_put_off: VecDeque::new(),
            own_jobs: VecDeque::new(),
            own_job_runs: false,
            write_back_requests: Vec::new(),
            shared,
        })
    }

    /// Runs until the runtime stops and nothing is left to run.
    pub(crate) fn run(mut self) {
        // A job's fault may find no room on its stack for what resolves it. Where the kernel gives
        // no stack for that, the thread has Rust's, which is smaller.
        let _signals = SignalStack::new(SIGNAL_STACK_BYTES).and_then(SignalStack::use_while);
        let _here = WorkerThread::new();
        let worker: *mut Worker = &raw mut self;
        let mut point = Point::Idle;
        // SAFETY: `worker` points to `self`, which lives to the end of this function. Only this
        // pointer reaches it, from this loop and from fibers, one after the other on this thread.
        // No reference is held across a switch.
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
                        if (*worker).fibers.stopping() && (*worker).may_end() {
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
        // SAFETY: the fiber is in its slot, on the heap, and is untouched while it runs: the
        // worker's methods that fibers call use other fields of slots only.
        let resumed = unsafe { (*fiber).resume() };
        // SAFETY: as above.
        unsafe { &mut *worker }.after_resume(index, resumed)
    }

    fn before_resume(&mut self, worker: *mut Worker, index: u32) -> *mut Fiber {
        self.fibers.statistics.counts.resumes += 1;
        let running = &self.shared.running[self.id as usize];
        running.turn();
        running.fiber.store(index, Ordering::Relaxed);
        running.busy.store(true, Ordering::Relaxed);
        let slot = &mut self.slots[index as usize];
        if slot.fiber.is_none() {
            let state = self.fibers.states[index as usize].clone();
            let stack = self.spare_stacks.pop().or_else(|| self.stacks.take()).expect("as many stacks as fibers");
            slot.fiber = Some(new_fiber(worker, self.shared.clone(), state, stack));
        }
        std::ptr::from_mut(slot.fiber.as_mut().expect("made above"))
    }

    fn after_resume(&mut self, index: u32, resumed: Resumed) -> Point {
        self.shared.running[self.id as usize].busy.store(false, Ordering::Relaxed);
        self.fibers.publish_nothing();
        match resumed {
            Resumed::Suspended if self.fibers.states[index as usize].waiting.get() => Point::Missed,
            Resumed::Suspended => {
                if !self.shared.process.is_current() {
                    eprintln!(
                        "fulgurite: a job called fork, and its child goes on as a worker; end the child in the job, by _exit or exec"
                    );
                    std::process::abort();
                }
                Point::Finished
            }
            Resumed::Overflowed => {
                self.bury(index);
                Point::Finished
            }
            Resumed::Finished => unreachable!("the body of a fiber has no end"),
        }
    }

    /// A fiber overflowed: fails its job. Nothing on its stack was dropped, so references to it and
    /// to its pinned frames may exist. All of that stays for good, as if the fiber waited forever,
    /// and the next one gets another stack. That memory is beyond the budget.
    fn bury(&mut self, index: u32) {
        let stack_bytes = self.shared.config.stack_bytes;
        self.at_rest = false;
        if std::mem::take(&mut self.asking)
            && let Some(serving) = &mut self.service
        {
            serving.died = Some(format!("to say what is next, it overflowed a stack of {stack_bytes} bytes"));
        }
        let slot = &mut self.slots[index as usize];
        std::mem::forget(slot.fiber.take());
        let state = &mut self.fibers.states[index as usize];
        if state.in_section() {
            // It will never leave it.
            self.shared.gates[self.id as usize].leave();
        }
        *state = Rc::new(state.successor());
        let name = self.shared.running[self.id as usize].name();
        let overflow = JobError::StackOverflow { name, stack_bytes };
        eprintln!("fulgurite: worker {}: {overflow}", self.id);
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

    // ---- the scheduling point ----

    #[inline]
    fn decide(&mut self, point: Point) -> Choice {
        let new_job = self.fibers.scheduler.may_start() && self.new_job_ready();
        // The clock is read only by the policy that uses ages.
        let now = if self.shared.config.scheduling == fulgurite_policy::SchedulingPolicy::PriorityAging {
            self.shared.clock.now_ns()
        } else {
            0
        };
        self.fibers.scheduler.pick(point, now, new_job)
    }

    /// Everything that is done between two fibers.
    fn scheduling_point(&mut self) {
        if self.shared.mailboxes[self.id as usize].has_mail() {
            self.read_mail();
        }
        if self.fibers.cache.in_flight() > 0 {
            self.fibers.poll();
        }
        if self.fibers.timer_is_due() {
            self.fibers.ring_timers();
        }
        if self.fibers.cache.wants_room() {
            self.fibers.cache.make_room(self.fibers.others(), self.shared.clock.now_ns());
            self.fibers.deliver();
        }
        self.points = self.points.wrapping_add(1);
        if self.fibers.cache.unflushed() >= self.shared.config.submit_batch {
            self.fibers.cache.hand_over();
        } else if self.points.is_multiple_of(CHECK_POINTS) {
            // Fewer than a batch, and no more to come, perhaps.
            self.fibers.cache.hand_over();
        }
        if self.points.is_multiple_of(CHECK_POINTS) {
            let now = self.shared.clock.now_ns();
            self.check_late(now);
            self.share_dram(now);
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
        self.slots.len() as u32 - 1
    }

    /// Gives up what has been waited for too long; does nothing when it was asked a moment ago.
    fn check_late(&mut self, now_ns: u64) {
        if now_ns < self.next_check_ns {
            return;
        }
        self.next_check_ns = now_ns + CHECK_NS;
        self.fibers.cache.give_up_late_requests(self.fibers.others(), now_ns);
        self.fibers.deliver();
        let patience_ns = nanos(self.shared.config.device_timeout);
        if self.fibers.stopping() && now_ns.saturating_sub(self.fibers.stopping_ns) > patience_ns {
            self.fibers.wake_all(WaitsFor::Latch, now_ns);
        }
    }

    /// Says what its frames would gain by more DRAM, and goes on with what moves.
    fn share_dram(&mut self, now_ns: u64) {
        if now_ns < self.next_share_ns || self.shared.split.is_none() {
            return;
        }
        self.next_share_ns = now_ns + STEP_NS;
        let shared = self.shared.clone();
        let (cache, of_mine) = (&self.fibers.cache, &shared.of_workers[self.id as usize]);
        let remembered = cache.remembered();
        of_mine.returned.store(remembered.returned, Ordering::Relaxed);
        of_mine.remembered.store(remembered.frames, Ordering::Relaxed);
        of_mine.frames.store(if cache.is_shrinking() { u32::MAX } else { cache.frame_limit() }, Ordering::Release);
        if let (Some(split), Some(objects)) = (&shared.split, &shared.objects)
            && let Some(mut split) = split.try_lock()
        {
            split.step(&shared, objects, now_ns);
        }
    }

    fn read_mail(&mut self) {
        let shared = self.shared.clone();
        while let Some(message) = self.mail_put_off.pop_front().or_else(|| shared.mailboxes[self.id as usize].next()) {
            match message {
                Message::Join { subpage, waiter } => {
                    self.fibers.cache.join_from_outside(subpage, waiter);
                    self.fibers.deliver();
                }
                Message::Miss { seat, ticket, turn, subpage, wanted } => {
                    self.fibers.begin_miss_of_thread(Miss { subpage, waiter: pack_thread(seat, ticket), wanted, turn });
                }
                Message::Fetch { seat, ticket, turn, subpage } => {
                    let waiter = pack_thread(seat, ticket);
                    self.fibers.begin_fetch_of_thread(Miss { subpage, waiter, wanted: 0, turn });
                }
                Message::Blank { seat, ticket, subpages } => {
                    let now = shared.clock.now_ns();
                    subpages.for_each(|subpage| self.fibers.cache.begin_blank(subpage, now));
                    self.fibers.deliver();
                    shared.seats.with(seat, |seat| seat.end_wait(ticket, Wake::Retry, false));
                }
                Message::EndFetch(frame) => self.fibers.end_fetch(frame),
                Message::Seats { count, reply } => {
                    self.fibers.expect_threads(count);
                    let _ = reply.send(());
                }
                Message::Wake { fiber, ticket: 0, wake } => self.fibers.wake_local(fiber, wake, shared.clock.now_ns()),
                Message::Wake { fiber, ticket, wake } => self.fibers.wake_ticket(fiber, ticket, wake),
                Message::Stop => self.begin_stop(),
                Message::Work => self.take_work(),
                Message::SetFrames(count) => {
                    self.fibers.cache.set_frames(count);
                    // A caller waits to be notified.
                    self.next_share_ns = 0;
                }
                Message::Statistics { reset, reply } => {
                    let statistics = self.fibers.reported_statistics();
                    // A fiber that stopped waiting does not get it, so that it is not lost.
                    if reply.send(statistics).is_ok() && reset {
                        self.fibers.statistics = WorkerStatistics::new();
                        self.fibers.cache.reset_counts();
                    }
                }
                Message::CloseGate(drained) => self.close_gate(drained),
                Message::OpenGate => self.open_gate(),
                Message::Halt(halt) => self.halt(&halt),
                Message::Pump(order) => self.fibers.cache.begin_pump(order),
                Message::TakeOut { ranges, write_back, reply } => {
                    let now = shared.clock.now_ns();
                    let _ = reply.send(self.fibers.cache.take_out(&ranges, write_back, now));
                }
                Message::CountChanges(reply) => {
                    let _ = reply.send(self.fibers.cache.count_changes());
                }
                Message::Nudge => {}
                Message::Cancelled => self.fibers.wake_cancelled(),
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

    /// Takes services and jobs of the runtime itself that wait for this worker.
    fn take_work(&mut self) {
        while let Some(service) = self.jobs.next_service(self.id) {
            self.services.push_back(service);
        }
        while let Some(job) = self.jobs.next_own(self.id) {
            if self.fibers.stopping() {
                refuse(job, |name| JobError::ShutDown { name });
            } else {
                self.own_jobs.push_back(job);
            }
        }
    }

    /// Writes all dirty frames back, waits for them, and flushes the medium. Nothing runs on this
    /// worker meanwhile.
    fn write_back_all(&mut self) -> Result<(), FlashError> {
        let shared = self.shared.clone();
        let now = shared.clock.now_ns();
        let result = self.fibers.cache.write_back_all(now, &mut |cache| wait_for_medium(&shared, cache));
        self.fibers.deliver();
        result
    }

    /// Nothing can run: polls for flash, mail, arrivals or timers for a while, then sleeps.
    fn wait(&mut self) -> Point {
        let begin = self.shared.clock.now_ns();
        let point = self.wait_from(begin);
        self.fibers.statistics.counts.wait_ns += self.shared.clock.now_ns() - begin;
        point
    }

    fn wait_from(&mut self, begin: u64) -> Point {
        if self.service_is_over() {
            // Since the scheduling point, which tells its end.
            return Point::Idle;
        }
        self.fibers.cache.hand_over();
        let next_timer = self.fibers.timers.peek().map_or(u64::MAX, |t| t.0.0);
        let wanted = self.next_arrival_ns.min(next_timer);
        self.next_arrival_ns = u64::MAX;
        let mut now = begin;
        if now >= wanted {
            return Point::Idle;
        }
        let spin_ns = self.shared.config.spin.as_nanos() as u64;
        // Whether a job of the common queue could begin here; nothing but a wake-up changes that.
        let open =
            self.fibers.scheduler.may_start() && !self.idle.is_empty() && (self.none_routed() || self.may_pass());
        let open_for = if open { self.pins_that_fit() + 1 } else { 0 };
        let job_waits = |this: &Self| open && this.next_job().is_some();
        // Waiting for flash, or for an arrival that is nearer than a sleep is long: poll.
        let poll_until = begin.saturating_add(spin_ns);
        while self.fibers.cache.in_flight() > 0 || wanted < poll_until {
            if self.fibers.cache.in_flight() > 0 && self.fibers.poll() > 0 {
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
        self.share_dram(now);
        if self.fibers.scheduler.has_runnable() {
            return Point::Idle;
        }
        let ahead = if self.fibers.cache.in_flight() == 0 && !self.fibers.stopping() {
            self.fibers.cache.write_ahead(self.shared.turns(), now)
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
        if self.fibers.cache.in_flight() > 0 || self.fibers.stopping() || self.fibers.cache.is_shrinking() {
            timeout = timeout.min(CHECK_NS);
        }
        if self.fibers.cache.frame_waiters() > 0 {
            // Another worker's use of a frame ends without a word.
            timeout = timeout.min(STARVED_NS);
        }
        let mailbox = &self.shared.mailboxes[self.id as usize];
        if mailbox.doze(open_for) && !job_waits(self) && !(self.left && self.shared.active.load(Ordering::Acquire) == 0)
        {
            self.fibers.statistics.counts.sleeps += 1;
            self.fibers.cache.sleep((timeout < u64::MAX / 2).then(|| Duration::from_nanos(timeout)));
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
                Ok((_, _, pins)) if pins > 4 && pins >= self.fibers.cache.frame_limit() => {
                    let frames = self.fibers.cache.frame_limit();
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

    /// The runtime stops: waiting jobs never begin, and waits for times or futures end.
    fn begin_stop(&mut self) {
        let now = self.shared.clock.now_ns();
        self.fibers.stopping_ns = now.max(1);
        for job in std::mem::take(&mut self.own_jobs) {
            refuse(job, |name| JobError::ShutDown { name });
        }
        self.jobs.injector.fail_all();
        self.jobs.routed[self.id as usize].fail_all();
        self.fibers.timers.clear();
        self.fibers.wake_all(WaitsFor::Outside, now);
    }

    /// Whether this stopping, idle worker may end: when no worker has fibers. Until then it serves
    /// the others, which may want its reads or writes, or change its frames.
    fn may_end(&mut self) -> bool {
        let quiet = self.fibers.scheduler.pending() == 0
            && !self.fibers.scheduler.has_runnable()
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
        for slot in &mut self.slots {
            slot.fiber = None;
        }
        // No job is left on any worker. A pin that still counts was forgotten, and must not keep
        // its data from flash.
        self.fibers.cache.forget_pins();
        if self.shared.flash.versions().is_some() {
            // What is in no token is not part of any state.
            return;
        }
        // Once more: what failed may have been one request.
        if let Err(error) = self.write_back_all().or_else(|_| self.write_back_all()) {
            let lost = Vec::from_iter(self.fibers.cache.dirty_subpages());
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

/// A fiber that takes one task after the other.
fn new_fiber(worker: *mut Worker, shared: Arc<Shared>, state: Rc<FiberState>, stack: PooledStack) -> Fiber {
    let range = stack.range();
    Fiber::new(stack, move |suspender: &Suspender| {
        let index = state.index;
        // SAFETY: the worker outlives its fibers, and nothing is read here.
        let fibers = unsafe { &raw mut (*worker).fibers };
        let mut context = Context::new(fibers, &shared, state, suspender, range);
        loop {
            // SAFETY: this fiber runs on the worker's thread while its loop waits in `resume`,
            // which holds no reference to the worker. The reference ends with the call.
            let task = unsafe { &mut *worker }.take_task(index);
            let died = match task {
                // It catches its own panics. Those left are of wakers and of results without a
                // waiter.
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
