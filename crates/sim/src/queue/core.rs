//! A core that runs the threads of jobs, and what it does at a miss.
//!
//! `fulgurite_policy::Scheduler` decides which thread runs next, as in the runtime.
//!
//! ```text
//!   arrivals --> job queue --> [ running ] -- miss --> pending (flash) --> runnable
//!                                  ^                                          |
//!                                  +------------------ switch ----------------+
//! ```
//!
//! *Service time* begins when a job first runs, *response time* when it arrives. Both end with the
//! job. A miss costs its core `miss_cost` before the thread leaves it, and the next thread costs
//! `switch_cost` before it runs.

use std::collections::VecDeque;

use fulgurite_policy::{Choice, FiberIndex, Point, Scheduler, SchedulingPolicy};
use serde::Serialize;

use crate::events::Events;
use crate::front_end::{FrontEnd, Step};
use crate::random::Random;
use crate::report::{RunError, held, steady};
use crate::statistics::{Distribution, Law, Population};
use crate::time::Time;

/// What the core does at a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misses {
    /// There are none: all data is in DRAM.
    Absent,
    /// It waits for the flash.
    Stall,
    /// It switches to another thread.
    Switch {
        /// Which thread is next.
        policy: SchedulingPolicy,
        /// Threads that may wait at once.
        threads: usize,
    },
}

/// A core, its flash and its jobs.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    /// What it does at a miss.
    pub misses: Misses,
    /// From the request to the data.
    pub flash: Time,
    /// What the core loses at a miss before another thread may run.
    pub miss_cost: Time,
    /// What a change to another thread costs.
    pub switch_cost: Time,
    /// The mean time between arrivals (Poisson). None: there is always a job.
    pub between: Option<Time>,
    /// Jobs that run first and are not measured.
    pub warm_up: u64,
    /// Jobs that are measured.
    pub jobs: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CoreReport {
    /// From the first instruction to the end, with all waits for flash.
    pub service: Distribution,
    /// From the arrival to the end. None where there is always a job.
    pub response: Option<Distribution>,
    /// Little's law over jobs that run or wait for flash.
    pub law: Law,
    /// Little's law over these and those that wait to begin.
    pub system: Law,
    /// Jobs that ended, a second of simulated time.
    pub jobs_per_s: f64,
    /// The share of the time in which jobs computed.
    pub computing: f64,
    /// Misses in the measurement.
    pub misses: u64,
    /// Events in the whole run.
    pub events: u64,
}

#[derive(Debug)]
enum Event {
    /// A job arrives.
    Arrives,
    /// The running thread has come to its next step.
    Steps,
    /// The data of a thread is here.
    Data(FiberIndex),
    /// The core may run another thread.
    Free(Point),
}

/// Ranks of events at one time: data and arrivals are seen before the core decides.
const SEEN: u8 = 0;
const DECIDES: u8 = 1;

#[derive(Clone, Copy)]
struct Job {
    arrived: Time,
    begun: Time,
}

struct Run<'c, F> {
    core: &'c Core,
    front_end: F,
    events: Events<Event>,
    scheduler: Option<Scheduler>,
    arrivals: Random,
    queue: VecDeque<Time>,
    /// The job of each thread.
    jobs: Vec<Option<Job>>,
    free: Vec<u32>,
    running: Option<u32>,
    /// The core waits for an event.
    idle: bool,
    /// The thread that ran last missed, and none has run since.
    left_by_miss: bool,
    /// Jobs that run or wait for flash.
    inside: Population,
    /// Jobs that have arrived and not ended.
    system: Population,
    computed: Time,
    misses: u64,
    ended: u64,
    begun: Time,
}

impl Core {
    /// How many threads the front end must have.
    pub fn threads(&self) -> usize {
        match self.misses {
            // One more runs.
            Misses::Switch { threads, .. } => threads + 1,
            Misses::Absent | Misses::Stall => 1,
        }
    }

    /// Runs jobs of a front end on it. `seed` is of the arrivals.
    ///
    /// # Errors
    /// When the statistics contradict each other.
    pub fn run(&self, front_end: impl FrontEnd, seed: u64) -> Result<CoreReport, RunError> {
        let threads = self.threads();
        let scheduler = match self.misses {
            Misses::Switch { policy, threads: bound } => Some(Scheduler::new(policy, bound, threads)),
            Misses::Absent | Misses::Stall => None,
        };
        let mut run = Run {
            core: self,
            front_end,
            events: Events::new(),
            scheduler,
            arrivals: Random::new(seed, 0),
            queue: VecDeque::new(),
            jobs: vec![None; threads],
            free: (0..threads as u32).rev().collect(),
            running: None,
            idle: false,
            left_by_miss: false,
            inside: Population::default(),
            system: Population::default(),
            computed: Time::ZERO,
            misses: 0,
            ended: 0,
            begun: Time::ZERO,
        };
        run.drive()
    }
}

impl<F: FrontEnd> Run<'_, F> {
    fn drive(&mut self) -> Result<CoreReport, RunError> {
        if let Some(between) = self.core.between {
            let first = self.arrivals.exponential(between);
            self.events.schedule(first, SEEN, Event::Arrives);
        }
        self.events.schedule(Time::ZERO, DECIDES, Event::Free(Point::Idle));
        while self.ended < self.core.warm_up + self.core.jobs {
            match self.events.next().expect("the core or an arrival is pending") {
                Event::Arrives => self.arrives(),
                Event::Data(fiber) => self.data(fiber),
                Event::Free(why) => self.decide(why),
                Event::Steps => self.step(),
            }
        }
        let now = self.events.now();
        let (begun, arrived) = self.entered();
        let law = steady(held(self.inside.law(now, begun), now)?)?;
        let system = steady(held(self.system.law(now, arrived), now)?)?;
        let span = (now - self.begun).as_s();
        Ok(CoreReport {
            service: self.inside.times().distribution(),
            response: self.core.between.is_some().then(|| self.system.times().distribution()),
            law,
            system,
            jobs_per_s: law.rate_per_s,
            computing: self.computed.as_s() / span,
            misses: self.misses,
            events: self.events.happened(),
        })
    }

    /// When the jobs that run or wait for flash have begun, and when all jobs here have arrived.
    fn entered(&self) -> (Vec<Time>, Vec<Time>) {
        let jobs = || self.jobs.iter().flatten();
        let arrived = jobs().map(|job| job.arrived).chain(self.queue.iter().copied());
        (jobs().map(|job| job.begun).collect(), arrived.collect())
    }

    fn arrives(&mut self) {
        self.queue.push_back(self.events.now());
        self.system.enter(self.events.now());
        let between = self.core.between.expect("only with arrivals");
        let next = self.events.now() + self.arrivals.exponential(between);
        self.events.schedule(next, SEEN, Event::Arrives);
        self.wake();
    }

    fn data(&mut self, fiber: FiberIndex) {
        let now = self.events.now();
        match &mut self.scheduler {
            Some(scheduler) => {
                scheduler.arrived(fiber, now.whole_ns());
                self.wake();
            }
            // The core has waited for it.
            None => self.events.schedule(now, DECIDES, Event::Steps),
        }
    }

    /// The core waited: it checks again.
    fn wake(&mut self) {
        if std::mem::take(&mut self.idle) {
            self.events.schedule(self.events.now(), DECIDES, Event::Free(Point::Idle));
        }
    }

    fn has_job(&self) -> bool {
        self.core.between.is_none() || !self.queue.is_empty()
    }

    fn decide(&mut self, why: Point) {
        let now = self.events.now();
        let new_job = self.has_job();
        let choice = match &mut self.scheduler {
            Some(scheduler) => scheduler.pick(why, now.whole_ns(), new_job),
            None if new_job => Choice::StartNew,
            None => Choice::Wait,
        };
        let cost = if self.left_by_miss { self.core.switch_cost } else { Time::ZERO };
        match choice {
            Choice::Wait => self.idle = true,
            Choice::Resume(FiberIndex(thread)) => self.runs(thread, cost),
            Choice::StartNew => {
                let arrived = self.queue.pop_front().unwrap_or_else(|| {
                    self.system.enter(now);
                    now
                });
                let thread = self.free.pop().expect("the scheduler starts no more jobs than there are threads");
                self.jobs[thread as usize] = Some(Job { arrived, begun: now });
                self.inside.enter(now);
                self.runs(thread, cost);
            }
        }
    }

    fn runs(&mut self, thread: u32, cost: Time) {
        self.left_by_miss = false;
        self.running = Some(thread);
        self.events.schedule(self.events.now() + cost, DECIDES, Event::Steps);
    }

    fn step(&mut self) {
        let thread = self.running.expect("a thread runs");
        let now = self.events.now();
        match self.front_end.next(thread) {
            Step::Compute(span) => {
                self.computed += span;
                self.events.schedule(now + span, DECIDES, Event::Steps);
            }
            Step::Miss => self.miss(thread),
            Step::End => self.end(thread),
        }
    }

    fn miss(&mut self, thread: u32) {
        let now = self.events.now();
        self.misses += 1;
        let data = now + self.core.miss_cost + self.core.flash;
        match self.core.misses {
            Misses::Absent => {
                self.misses -= 1;
                self.step();
            }
            Misses::Stall => self.events.schedule(data, SEEN, Event::Data(FiberIndex(thread))),
            Misses::Switch { .. } => {
                let job = self.jobs[thread as usize].expect("a thread that runs has a job");
                let scheduler = self.scheduler.as_mut().expect("a core that switches has one");
                scheduler.missed(FiberIndex(thread), job.arrived.whole_ns(), now.whole_ns());
                self.running = None;
                self.left_by_miss = true;
                self.events.schedule(data, SEEN, Event::Data(FiberIndex(thread)));
                self.events.schedule(now + self.core.miss_cost, DECIDES, Event::Free(Point::Missed));
            }
        }
    }

    fn end(&mut self, thread: u32) {
        let now = self.events.now();
        let job = self.jobs[thread as usize].take().expect("a thread that ends has a job");
        self.free.push(thread);
        self.inside.leave(job.begun, now);
        self.system.leave(job.arrived, now);
        self.ended += 1;
        if self.ended == self.core.warm_up {
            let (begun, arrived) = self.entered();
            self.inside.measure_from(now, begun);
            self.system.measure_from(now, arrived);
            (self.begun, self.computed, self.misses) = (now, Time::ZERO, 0);
        }
        self.running = None;
        self.events.schedule(now, DECIDES, Event::Free(Point::Finished));
    }
}
