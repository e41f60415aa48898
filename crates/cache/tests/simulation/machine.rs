//! The simulated machine: a few workers with a cache each, on one thread, and the loop that gives
//! them their turns. What a worker does between two fibers is what a worker of the runtime does, in
//! the same order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_cache::{Cache, FrameSources, Outcome, Setup, Shape, Shared};
use fulgurite_flash::{Flash, FlashError, Layered};
use fulgurite_policy::{
    Admission, AdmissionPolicy, Choice, FiberIndex, Point, PrefetchPolicy, ReplacementPolicy, Scheduler,
    SchedulingPolicy, Waiter,
};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Notifier};

use super::cut::Cut;
use super::disk::Disk;
use super::fibers::{AtFrame, Fiber, Job, Wake};
use super::operator::Operator;
use super::users::{Simulated, Slots};
use super::world::World;

/// After this simulated time the waiters of a request are notified that the device does not answer.
pub const DEVICE_TIMEOUT_NS: u64 = 10_000_000_000;
/// No job takes longer, whatever fails: a few requests in a row that are very late.
pub const JOB_NS_MAX: u64 = 600_000_000_000;
/// Turns of the loop after which it has certainly gone round in vain.
const TURNS_MAX: u64 = 300_000;
/// Most requests that a worker collects before it hands them over.
const SUBMIT_BATCH: usize = 4;

/// Waits after one another until a pool has certainly seen that it has nothing to do: it checks in
/// one of 32.
const WAITS: u32 = 40;

/// What one worker tells another.
#[derive(Clone, Copy, Debug)]
pub enum Mail {
    Join { subpage: u32, waiter: Waiter },
    Wake { fiber: u32, wake: Wake },
}

pub struct Worker {
    pub cache: Cache<Simulated>,
    pub scheduler: Scheduler,
    pub fibers: Vec<Fiber>,
    pub idle: Vec<u32>,
    pub mail: VecDeque<Mail>,
    /// Fibers that sleep, and until when.
    pub sleepers: Vec<(u64, u32)>,
    pub at_frame: Option<AtFrame>,
    pub point: Point,
    reported: Vec<(Waiter, Outcome)>,
}

pub struct Machine {
    pub pool: Arc<Pool>,
    pub flash: Arc<dyn Flash>,
    pub shared: Arc<Shared>,
    pub slots: Arc<Slots>,
    pub workers: Vec<Worker>,
    pub admission: Admission,
    pub jobs: VecDeque<Job>,
    /// Pins that jobs may hold, all together.
    pub pins_max: usize,
    /// No write section begins.
    pub gate_closed: bool,
    pub open_sections: u32,
    pub gate_waiters: Vec<(usize, u32)>,
    /// Fibers that wait for the end of the cut.
    pub cut_waiters: Vec<(usize, u32)>,
    pub cut: Option<Cut>,
    pub operator: Operator,
    /// Turns in which a fiber ran.
    pub ran: u64,
    turns: u64,
    /// Turns since a fiber last ran.
    waits: u32,
}

/// Waits until the device has ended something for a cache, as long as it may take. The other
/// workers, which stand still, go on taking what ends for them: a store makes room by copies that
/// it asks for through any queue, and this one may wait for that room.
pub fn wait_for_device(
    disk: &Disk,
    cache: &mut Cache<Simulated>,
    others: &mut [&mut Cache<Simulated>],
) -> Result<u64, FlashError> {
    cache.hand_over();
    let begun = disk.now_ns();
    loop {
        if cache.poll(|_| (), || disk.now_ns()) > 0 {
            return Ok(disk.now_ns());
        }
        if disk.now_ns() - begun > DEVICE_TIMEOUT_NS {
            return Err(FlashError::TimedOut);
        }
        for other in &mut *others {
            other.poll(|_| (), || disk.now_ns());
        }
        cache.sleep(Some(Duration::from_millis(50)));
    }
}

/// One worker's cache, and the caches of the others.
pub fn divided(workers: &mut [Worker], worker: usize) -> (&mut Cache<Simulated>, Vec<&mut Cache<Simulated>>) {
    let (before, rest) = workers.split_at_mut(worker);
    let (here, behind) = rest.split_first_mut().expect("there is such a worker");
    (&mut here.cache, before.iter_mut().chain(behind).map(|w| &mut w.cache).collect())
}

impl Machine {
    pub fn new(world: &mut World, pool: Arc<Pool>) -> Machine {
        let random = &mut world.random;
        let workers = 1 + random.below(3) as usize;
        let frames = 4 + random.below(20);
        let fibers = 2 + random.below(12);
        let depth = 4 + random.below(28) as usize;
        let pick = |n: u32| n as usize;
        let replacement = ReplacementPolicy::ALL[pick(random.below(ReplacementPolicy::ALL.len() as u32))];
        let scheduling = SchedulingPolicy::ALL[pick(random.below(3))];
        let prefetch = match random.below(4) {
            0 => PrefetchPolicy::Off,
            1 => PrefetchPolicy::Fixed(1 + random.below(4) as u8),
            2 => PrefetchPolicy::Next(1 + random.below(4) as u8),
            _ => PrefetchPolicy::Adaptive,
        };
        let admission = if random.one_in(2) {
            AdmissionPolicy::Unlimited
        } else {
            AdmissionPolicy::QueueDelay { target_ns: 300_000, interval_ns: 1_000_000 }
        };
        let flash: Arc<dyn Flash> = Arc::new(Layered::new(pool.clone()));
        let subpages = world.now.len() as u32;
        // What may have contents on flash: all, or what has some and all before it.
        let written = world.now.iter().rposition(|number| *number != 0).map_or(0, |last| last as u32 + 1);
        let existing = if random.one_in(2) { subpages } else { written };
        let shape = Shape { subpages, existing, caches: workers as u32, frames_max: frames, moved: false };
        let shared = Shared::new(flash.clone(), shape, world.bug.in_cache()).expect("there is memory");
        let shared = Arc::new(shared);
        let slots = Slots::new(workers);
        let setup = Setup {
            id: 0,
            depth,
            waiters: fibers as usize * workers,
            replacement,
            prefetch,
            device_timeout_ns: DEVICE_TIMEOUT_NS,
        };
        let workers: Vec<Worker> = (0..workers as u32)
            .map(|id| {
                let wake = Arc::new(Notifier::new().expect("there are file descriptors"));
                let queue = flash.open_queue(shared.frames.arena().clone(), depth, wake);
                let queue = queue.expect("the device has queues");
                let mut cache = Cache::new(shared.clone(), queue, Simulated::new(slots.clone()), Setup { id, ..setup });
                cache.set_frames(frames);
                Worker {
                    cache,
                    scheduler: Scheduler::new(scheduling, fibers as usize, fibers as usize),
                    fibers: (0..fibers).map(|_| Fiber::default()).collect(),
                    idle: (0..fibers).collect(),
                    mail: VecDeque::new(),
                    sleepers: Vec::new(),
                    at_frame: None,
                    point: Point::Idle,
                    reported: Vec::new(),
                }
            })
            .collect();
        Machine {
            operator: Operator::new(world),
            pool,
            flash,
            shared,
            slots,
            pins_max: frames as usize / 4,
            workers,
            admission: Admission::new(admission),
            jobs: VecDeque::new(),
            gate_closed: false,
            open_sections: 0,
            gate_waiters: Vec::new(),
            cut_waiters: Vec::new(),
            cut: None,
            ran: 0,
            turns: 0,
            waits: 0,
        }
    }
    /// Bytes of all frames.
    pub fn arena(&self) -> &Arena {
        self.shared.frames.arena()
    }
    /// Runs until the device is dead, the pool takes nothing more, or all that was to be done is.
    pub fn run(&mut self, world: &mut World) {
        while !world.disk.is_dead() && !self.operator.is_done(self) {
            self.turn(world);
            if self.operator.is_poisoned {
                return;
            }
        }
    }
    /// A turn of each worker, in any order; when none has anything to do, time goes on.
    pub fn turn(&mut self, world: &mut World) {
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "the machine goes round in vain: {}", self.describe(world));
        if self.operator.ticks {
            self.pool.tick();
        }
        self.advance_cut(world);
        self.operate(world);
        let first = world.random.below(self.workers.len() as u32) as usize;
        let mut ran = false;
        for worker in 0..self.workers.len() {
            if world.disk.is_dead() || self.operator.is_poisoned {
                return;
            }
            ran |= self.turn_of(world, (first + worker) % self.workers.len());
        }
        if self.turns.is_multiple_of(64) {
            self.check(world);
        }
        self.ran += u64::from(ran);
        if ran {
            self.waits = 0;
            return;
        }
        self.wait(world);
    }
    /// The scheduling point of a worker, and the fiber that it runs then, if it runs one.
    fn turn_of(&mut self, world: &mut World, worker: usize) -> bool {
        if let Some(AtFrame { fiber, .. }) = self.workers[worker].at_frame {
            self.use_frame(world, worker);
            self.run_fiber(world, worker, fiber);
            return true;
        }
        self.slots.clear(worker);
        self.read_mail(world, worker);
        let disk = world.disk.clone();
        let now = disk.now_ns();
        self.workers[worker].cache.poll(|_| (), || disk.now_ns());
        self.deliver(world, worker);
        let others = self.others(worker);
        let here = &mut self.workers[worker].cache;
        if here.wants_room() {
            here.make_room(others, now);
            self.deliver(world, worker);
        }
        let others = self.others(worker);
        let here = &mut self.workers[worker].cache;
        here.give_up_late_requests(others, now);
        if here.has_to_pump() {
            here.pump(now);
        }
        if here.unflushed() >= SUBMIT_BATCH || world.random.one_in(4) {
            here.hand_over();
        }
        self.deliver(world, worker);
        self.wake_sleepers(world, worker);
        let may_start = !self.jobs.is_empty() && !self.workers[worker].idle.is_empty() && !self.operator.drains();
        let here = &mut self.workers[worker];
        match here.scheduler.pick(here.point, now, may_start) {
            Choice::Resume(FiberIndex(fiber)) => self.run_fiber(world, worker, fiber),
            Choice::StartNew => {
                let fiber = here.idle.pop().expect("there is one");
                let job = self.jobs.pop_front().expect("there is one");
                world.note(&[2, fiber.into(), job.arrived_ns]);
                here.fibers[fiber as usize] = Fiber::of(job);
                self.run_fiber(world, worker, fiber);
            }
            Choice::Wait => {
                here.point = Point::Idle;
                here.cache.hand_over();
                if here.cache.in_flight() == 0 && world.random.one_in(2) {
                    here.cache.write_ahead(self.ran, now);
                    here.cache.hand_over();
                }
                return false;
            }
        }
        true
    }
    /// Nobody has anything to do: until something has ended, or is due.
    fn wait(&mut self, world: &World) {
        if self.workers.iter().any(|w| !w.mail.is_empty()) {
            return;
        }
        let now = world.disk.now_ns();
        let sleeps = self.workers.iter().flat_map(|w| &w.sleepers).map(|(until, _)| *until).min();
        let until = self.operator.next_ns().min(sleeps.unwrap_or(u64::MAX)).min(now + 1_000_000_000);
        let time = Duration::from_nanos(until.saturating_sub(now).max(1_000));
        let busy = self.workers.iter().position(|w| w.cache.in_flight() > 0).unwrap_or(0);
        self.workers[busy].cache.sleep(Some(time));
        self.waits += 1;
        if self.waits > WAITS {
            // The pool has had its turns, and so all there is to wait for is the device.
            world.disk.advance(until);
        }
    }
    fn others(&self, worker: usize) -> FrameSources {
        let here = &self.workers[worker];
        if here.scheduler.has_runnable() {
            FrameSources::Run
        } else if here.scheduler.pending() == here.cache.frame_waiters() {
            FrameSources::None
        } else {
            FrameSources::Wait
        }
    }
    fn read_mail(&mut self, world: &World, worker: usize) {
        while let Some(mail) = self.workers[worker].mail.pop_front() {
            match mail {
                Mail::Join { subpage, waiter } => {
                    self.workers[worker].cache.join_from_outside(subpage, waiter);
                    self.deliver(world, worker);
                }
                Mail::Wake { fiber, wake } => self.wake(world, worker, fiber, wake),
            }
        }
    }
    /// Delivers the outcomes of waits that have ended.
    pub fn deliver(&mut self, world: &World, worker: usize) {
        let here = &mut self.workers[worker];
        here.cache.take_cut_written();
        let mut reported = std::mem::take(&mut here.reported);
        here.cache.take_notices(&mut reported);
        for (Waiter(name), outcome) in reported.drain(..) {
            let wake = match outcome {
                Outcome::Again => Wake::Retry,
                Outcome::Turn => Wake::Turn,
                Outcome::Pinned => Wake::Pinned,
                Outcome::Fetched(_) => unreachable!("no fiber here fetches objects"),
                Outcome::Failed(error) => Wake::Failed(error),
                Outcome::OutOfFrames => Wake::OutOfFrames,
            };
            let (of, fiber) = ((name >> 32) as usize, name as u32);
            if of == worker {
                self.wake(world, worker, fiber, wake);
            } else {
                self.workers[of].mail.push_back(Mail::Wake { fiber, wake });
            }
        }
        self.workers[worker].reported = reported;
    }
    pub fn wake(&mut self, world: &World, worker: usize, fiber: u32, wake: Wake) {
        let here = &mut self.workers[worker];
        here.fibers[fiber as usize].wake = Some(wake);
        here.scheduler.arrived(FiberIndex(fiber), world.disk.now_ns());
    }
    pub fn describe(&self, world: &World) -> String {
        let workers: Vec<_> = self
            .workers
            .iter()
            .map(|w| {
                let (idle, fibers) = (w.idle.len(), w.fibers.len());
                format!("{:?}, idle {idle} of {fibers}, pending {}, {:?}", w.cache, w.scheduler.pending(), w.fibers)
            })
            .collect();
        format!(
            "device {}, cut {:?}, left {}, sections {}, jobs {}, workers {workers:#?}, operator {:?}, pool {:?}",
            world.disk.describe(),
            self.cut,
            self.shared.cut.left(),
            self.open_sections,
            self.jobs.len(),
            self.operator,
            self.pool.info(),
        )
    }
    /// Asserts what holds at any time.
    pub fn check(&self, world: &World) {
        let now_ns = world.disk.now_ns();
        for worker in &self.workers {
            worker.cache.check();
            worker.scheduler.check();
            for fiber in worker.fibers.iter().filter_map(|f| f.job.as_ref()) {
                assert!(now_ns - fiber.arrived_ns < JOB_NS_MAX, "a job hangs: {}", self.describe(world));
            }
        }
    }
    /// The last write-back that failed, while none has succeeded since.
    pub fn write_failure(&self) -> Option<FlashError> {
        self.workers.iter().find_map(|w| w.cache.write_failure())
    }
    /// The device is dead: what is in memory is gone.
    pub fn lose(mut self, world: &mut World) {
        for worker in &self.workers {
            let counts = worker.cache.counts();
            world.report.joined += counts.misses_joined;
            world.report.prefetched += counts.prefetched;
            world.report.written_back += counts.evicted_dirty;
            world.report.written_ahead += counts.written_ahead;
            world.report.timeouts += counts.timeouts;
            world.report.copied += counts.copied;
        }
        self.operator.forget_old();
    }
}
