//! A run of a worker.

use fulgurite_cache::{Counts, FrameSources, Outcome, Step};
use fulgurite_flash::{Op, Request};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_policy::{
    AnyReplacement, Choice, FiberIndex, Point, PrefetchPolicy, Replacement, ReplacementPolicy, Scheduler,
    SchedulingPolicy, Waiter,
};
use serde::Serialize;

use super::device::{Device, DeviceShape};
use super::frames::{Frames, FramesFor, useful};
use crate::cores::Sram;
use crate::events::Events;
use crate::executed::{Executed, Touch};
use crate::planted::Planted;
use crate::report::{Counted, RunError, held, percent, times};
use crate::stages::{Split, Stages};
use crate::statistics::{Distribution, Law, Population};
use crate::system::{Document, SystemError};
use crate::time::Time;

/// Ways of what the processor's caches keep of the words of subpages.
const NEAR_WAYS: u64 = 8;
/// Frames that each fiber must be able to have: what it waits for, and what it has pinned.
const FRAMES_OF_A_FIBER: u64 = 4;

/// What a request computes on plain memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Computing {
    /// This time each.
    Request(Time),
    /// This time between two misses, of the misses that a warm cache has.
    BetweenMisses(Time),
}

/// CPU time that is more than plain memory's. Measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Of a request, without its accesses.
    pub request: Time,
    /// Of an access that hits, where what is known of its subpage is in the processor's caches.
    pub hit: Time,
    /// Of one where it is not.
    pub far_hit: Time,
    /// Subpages of which the processor's caches keep what is known.
    pub near: u64,
    /// Of a miss, with the eviction of a clean victim and the switch.
    pub miss: Time,
    /// More, where the victim is dirty.
    pub write_back: Time,
    /// Of a miss on a subpage that is on its way.
    pub join: Time,
    /// Of each further subpage that is read with a miss.
    pub read_around: Time,
}

/// A worker over frames over a device.
#[derive(Clone, Debug)]
pub struct WorkersSystem {
    /// The configuration of `fulgurite-lab live` that it is of.
    pub configuration: String,
    /// The workload, by its name.
    pub workload: String,
    /// Bytes of its data.
    pub data: u64,
    /// Zipf's exponent of its keys.
    pub exponent: f64,
    /// What a request computes.
    pub computing: Computing,
    /// Requests that run first, without time.
    pub warm_up: u64,
    /// Requests that are measured. A tenth as many run before them.
    pub requests: u64,
    /// Fibers, or threads, that may wait at once.
    pub fibers: u32,
    /// Which of them runs next.
    pub policy: SchedulingPolicy,
    /// Frames of DRAM.
    pub frames: u32,
    /// Which frame is evicted.
    pub replacement: ReplacementPolicy,
    /// Whether clean victims are written, too, as where swap gives their place away.
    pub writes_all: bool,
    /// Subpages that a miss reads, aligned: 1 for the one that missed alone.
    pub read_around: u32,
    /// What is read ahead. Each subpage costs as one of `read_around`.
    pub prefetch: PrefetchPolicy,
    /// CPU time.
    pub costs: Costs,
    /// The device.
    pub device: DeviceShape,
    /// Keeps what is needed to split percentiles.
    pub explain: bool,
    /// A bug, for the suite's tests.
    pub planted: Planted,
}

/// What the worker's time is spent on, as shares of it. They add up to one.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spent {
    /// What plain memory computes, too.
    pub computing: f64,
    /// Beginning and ending requests.
    pub requests: f64,
    /// Guards of accesses that hit.
    pub hits: f64,
    /// Misses.
    pub misses: f64,
    /// Dirty victims.
    pub write_backs: f64,
    /// Nothing to run.
    pub waiting: f64,
}

/// What the runtime's cache has counted in the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FrameCounts {
    /// Accesses that started a read.
    pub misses: u64,
    /// Accesses that joined a read or a write-back.
    pub joined: u64,
    /// Frames that were freed without a write.
    pub evicted_clean: u64,
    /// Frames that were written back.
    pub evicted_dirty: u64,
    /// Accesses that waited as no frame was free.
    pub frame_waits: u64,
    /// Subpages that were read ahead or around.
    pub prefetched: u64,
    /// Of these, the ones that were evicted without a touch.
    pub wasted: u64,
}

impl FrameCounts {
    fn between(before: &Counts, after: &Counts) -> FrameCounts {
        let of = |count: fn(&Counts) -> u64| count(after) - count(before);
        FrameCounts {
            misses: of(|c| c.misses),
            joined: of(|c| c.misses_joined),
            evicted_clean: of(|c| c.evicted_clean),
            evicted_dirty: of(|c| c.evicted_dirty),
            frame_waits: of(|c| c.frame_waits),
            prefetched: of(|c| c.prefetched),
            wasted: of(|c| c.prefetch_wasted),
        }
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkersReport {
    /// Requests that ended, a second of simulated time.
    pub requests_per_s: f64,
    /// The configuration of `fulgurite-lab live` that it is of.
    pub configuration: String,
    /// Computing of a request, in nanoseconds.
    pub request_ns: f64,
    /// Throughput as a share of plain memory's.
    pub share_of_dram_only: f64,
    /// The simple prediction of the same: W / (W + o). None without misses.
    pub simple_share: Option<f64>,
    /// Computing between two misses, in nanoseconds: W.
    pub work_ns_per_miss: Option<f64>,
    /// Accesses that were looked up, for each miss.
    pub accesses_per_miss: Option<f64>,
    /// Misses of a request, those that joined others included.
    pub misses_per_request: f64,
    /// Of the misses, those whose subpage was on its way. None without misses.
    pub joined_share: Option<f64>,
    /// Subpages that were read ahead or around, of a request.
    pub prefetched_per_request: f64,
    /// Of those, the ones that were evicted without a touch. None without any.
    pub wasted_share: Option<f64>,
    /// Of the hits, those that were far. None without hits.
    pub far_share: Option<f64>,
    /// What the cache counted.
    pub frames: FrameCounts,
    /// What the time is spent on.
    pub spent: Spent,
    /// From a request's begin to its end.
    pub service: Distribution,
    /// Little's law over requests that have begun and not ended.
    pub law: Law,
    /// The stages of a miss.
    pub miss_stages: Option<Split>,
    /// Reads and writes of the device, a second.
    pub device_reads_per_s: f64,
    /// Writes of it.
    pub device_writes_per_s: f64,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Requests and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl WorkersReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("requests/s", format!("{:.0}", self.requests_per_s)),
            ("of plain memory", percent(self.share_of_dram_only)),
        ];
        rows.extend(self.simple_share.map(|share| ("W/(W+o)", percent(share))));
        times(&mut rows, ["requests", "service mean us", "p50 us", "p99 us", "p99.99 us"], &self.service);
        rows.push(("under way", format!("{:.2}", self.law.mean_present)));
        rows.extend(self.work_ns_per_miss.map(|ns| ("us between misses", format!("{:.2}", ns / 1e3))));
        rows.push(("misses/request", format!("{:.3}", self.misses_per_request)));
        rows.extend(self.accesses_per_miss.map(|accesses| ("accesses/miss", format!("{accesses:.1}"))));
        rows.extend(self.joined_share.map(|share| ("misses on their way", percent(share))));
        let FrameCounts { evicted_clean, evicted_dirty, frame_waits, .. } = self.frames;
        if evicted_clean + evicted_dirty > 0 {
            let dirty = evicted_dirty as f64 / (evicted_clean + evicted_dirty) as f64;
            rows.push(("victims written back", percent(dirty)));
        }
        if frame_waits > 0 {
            rows.push(("waits for a frame", frame_waits.to_string()));
        }
        rows.extend(self.wasted_share.map(|share| ("read ahead in vain", percent(share))));
        rows.extend(self.far_share.map(|share| ("hits that are far", percent(share))));
        let spent = &self.spent;
        rows.extend([
            ("time computing", percent(spent.computing)),
            ("time of requests", percent(spent.requests)),
            ("time of hits", percent(spent.hits)),
            ("time of misses", percent(spent.misses)),
            ("time of write-backs", percent(spent.write_backs)),
            ("time waiting", percent(spent.waiting)),
            ("device reads/s", format!("{:.0}", self.device_reads_per_s)),
            ("device writes/s", format!("{:.0}", self.device_writes_per_s)),
        ]);
        rows
    }
}

#[derive(Debug)]
enum Event {
    /// The device has ended a request.
    Ended(Request),
    /// The worker chooses what runs.
    Free(Point),
}

/// Ranks of events at one time: what has ended is there before the worker chooses.
const SEEN: u8 = 0;
const CHOOSES: u8 = 1;

/// A fiber and its request.
#[derive(Default)]
struct Fiber {
    touches: Vec<Touch>,
    next: usize,
    /// Computing before each access.
    each: Time,
    begun: Time,
    /// What became of its wait.
    wake: Option<Outcome>,
    /// When it missed, and the CPU time of that.
    missed: Time,
    cost: Time,
}

/// Nanoseconds of each purpose, and counts, of the measurement.
#[derive(Clone, Copy, Default)]
struct Sums {
    computing: Time,
    requests: Time,
    hits: Time,
    misses: Time,
    write_backs: Time,
    accesses: u64,
    hit: u64,
    far: u64,
    missed: u64,
    joined: u64,
}

struct Run<'s, R: Replacement> {
    system: &'s WorkersSystem,
    workload: Executed,
    /// Computing of a request.
    request: Time,
    events: Events<Event>,
    frames: Frames<R>,
    /// When the last request of each frame has ended.
    came: Vec<Time>,
    near: Sram,
    device: Device,
    scheduler: Scheduler,
    fibers: Vec<Fiber>,
    free: Vec<u32>,
    running: Option<u32>,
    idle: bool,
    /// The worker's own time: what runs has come so far.
    at: Time,
    inside: Population,
    stages: Stages<3>,
    sums: Sums,
    before: (Sums, Counts, (u64, u64)),
    begun: Time,
    ended: u64,
}

impl WorkersSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document) -> Result<WorkersSystem, SystemError> {
        let names: Vec<(&str, &str)> = Executed::names().map(|name| (name, name)).collect();
        let workload = document.word("workload.name", &names)?.to_owned();
        let data = document.bytes("workload.data")?;
        if !(1 << 20..=1 << 40).contains(&data) {
            return Err(document.refuse("workload.data", "1M to 1T of data are needed"));
        }
        let time = document.time("workload.time")?;
        let computing = match document.word("workload.computing", &[("request", false), ("between-misses", true)])? {
            false => Computing::Request(time),
            true => Computing::BetweenMisses(time),
        };
        let count = |key: &str, high| document.count(key, 1, high);
        let fibers = count("threads.count", 1 << 20)? as u32;
        let frames = count("dram.frames", 1 << 29)?;
        if frames < u64::from(fibers + 1) * FRAMES_OF_A_FIBER {
            let expected =
                format!("{} frames are needed for this number of threads", u64::from(fibers + 1) * FRAMES_OF_A_FIBER);
            return Err(document.refuse("dram.frames", expected));
        }
        let read_around = count("dram.read_around", 256)? as u32;
        if !read_around.is_power_of_two()
            || frames < u64::from(read_around) * 16 * u64::from(fibers + 1) && read_around > 1
        {
            let expected = "a power of two is needed, and 16 times as many frames for each thread";
            return Err(document.refuse("dram.read_around", expected));
        }
        Ok(WorkersSystem {
            configuration: document.text("configuration")?.to_owned(),
            workload,
            data,
            exponent: document.number("workload.exponent", 0.0, 4.0)?,
            computing,
            warm_up: document.count("run.warm_up", 0, 1 << 40)?,
            requests: count("run.requests", 1 << 40)?,
            fibers,
            policy: document.word("threads.policy", &SchedulingPolicy::ALL.map(|policy| (policy.name(), policy)))?,
            frames: frames as u32,
            replacement: document
                .word("dram.replacement", &ReplacementPolicy::ALL.map(|policy| (policy.name(), policy)))?,
            writes_all: document.word("dram.writes", &[("dirty", false), ("all", true)])?,
            read_around,
            prefetch: document.prefetch("dram.prefetch")?,
            costs: Costs {
                request: document.time("costs.request")?,
                hit: document.time("costs.hit")?,
                far_hit: document.time("costs.far_hit")?,
                near: count("costs.near", 1 << 30)?,
                miss: document.time("costs.miss")?,
                write_back: document.time("costs.write_back")?,
                join: document.time("costs.join")?,
                read_around: document.time("costs.read_around")?,
            },
            device: DeviceShape {
                read: document.time("device.read")?,
                write: document.time("device.write")?,
                planes: count("device.planes", 1 << 20)? as u32,
                read_gap: document.time("device.read_gap")?,
                write_gap: document.time("device.write_gap")?,
                copies: document.number("device.copies", 0.0, 64.0)?,
            },
            explain: false,
            planted: Planted::None,
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the workload cannot be built, the statistics contradict each other, or nothing was
    /// measured.
    pub fn run(&self, seed: u64) -> Result<WorkersReport, RunError> {
        self.run_with(seed, |frames| AnyReplacement::new(self.replacement, frames))
    }
    /// Runs it with your own replacement policy, which `policy` makes for a number of frames. The
    /// example `own_policy` has one.
    ///
    /// # Errors
    /// As [`WorkersSystem::run`].
    pub fn run_with<R: Replacement>(
        &self,
        seed: u64,
        policy: impl FnOnce(usize) -> R,
    ) -> Result<WorkersReport, RunError> {
        let failed = |error: crate::executed::ExecutedError| RunError::Workload(error.to_string());
        let mut workload = Executed::build(&self.workload, self.data, self.exponent, seed).map_err(failed)?;
        let subpages = workload.subpages();
        // The workload's own tables take the place of frames.
        let own = workload.dram_bytes().div_ceil(SUBPAGE_BYTES as u64) as u32;
        let least = (self.fibers + 1) * FRAMES_OF_A_FIBER as u32;
        let count = self.frames.saturating_sub(own).max(least).min(useful(subpages).max(least));
        let threads = self.fibers as usize + 1;
        let lost = self.planted == Planted::LostReadAhead;
        let of = FramesFor {
            subpages,
            fibers: threads,
            prefetch: if lost { PrefetchPolicy::Off } else { self.prefetch },
            writes_all: self.writes_all,
        };
        let mut frames = Frames::new(policy(count as usize), of)?;
        let misses = warm(&mut workload, &mut frames, self.warm_up).map_err(failed)?;
        let request = match self.computing {
            Computing::Request(time) => time,
            Computing::BetweenMisses(time) => Time((time.0 as f64 * misses.unwrap_or(0.0) + 0.5) as u64),
        };
        let mut run = Run {
            system: self,
            workload,
            request,
            events: Events::new(),
            frames,
            came: vec![Time::ZERO; count as usize],
            near: Sram::new(self.costs.near.max(NEAR_WAYS), NEAR_WAYS),
            device: Device::new(self.device, self.planted),
            scheduler: Scheduler::new(self.policy, self.fibers as usize, threads),
            fibers: (0..threads).map(|_| Fiber::default()).collect(),
            free: (0..threads as u32).rev().collect(),
            running: None,
            idle: false,
            at: Time::ZERO,
            inside: Population::default(),
            stages: Stages::new(["CPU of the miss", "device", "until it runs"], self.explain),
            sums: Sums::default(),
            before: Default::default(),
            begun: Time::ZERO,
            ended: 0,
        };
        run.drive()?;
        run.report()
    }
}

/// Runs requests without time, until the frames hold what they will hold. Returns the misses of a
/// request over the second half. None without requests.
fn warm(
    workload: &mut Executed,
    frames: &mut Frames<impl Replacement>,
    requests: u64,
) -> Result<Option<f64>, crate::executed::ExecutedError> {
    let (mut touches, mut misses) = (Vec::new(), 0u64);
    for number in 0..requests {
        workload.request(&mut touches)?;
        for touch in &touches {
            let missed = frames.access(touch.subpage(), touch.writes);
            misses += u64::from(missed && number >= requests / 2);
        }
    }
    let counted = requests - requests / 2;
    Ok((counted > 0).then(|| misses as f64 / counted as f64))
}

impl<R: Replacement> Run<'_, R> {
    fn drive(&mut self) -> Result<(), RunError> {
        let before = self.system.requests / 10;
        self.events.schedule(Time::ZERO, CHOOSES, Event::Free(Point::Idle));
        while self.ended < before + self.system.requests {
            match self.events.next().ok_or(RunError::Stalled)? {
                Event::Ended(request) => self.request_ended(&request),
                Event::Free(why) => {
                    if why == Point::Finished {
                        self.end();
                        if self.ended == before {
                            self.measure();
                        }
                        if self.ended == before + self.system.requests {
                            // What runs next is of no measurement.
                            break;
                        }
                    }
                    self.choose(why)?;
                }
            }
        }
        Ok(())
    }
    /// When the requests that are under way have begun.
    fn entered(&self) -> Vec<Time> {
        let fibers = self.fibers.iter().enumerate();
        fibers.filter(|(fiber, _)| !self.free.contains(&(*fiber as u32))).map(|(_, fiber)| fiber.begun).collect()
    }
    fn measure(&mut self) {
        let now = self.events.now();
        let entered = self.entered();
        self.inside.measure_from(now, entered);
        self.stages.clear();
        (self.begun, self.before) = (now, (self.sums, self.frames.counts(), self.device.counts()));
    }

    // ---- between two fibers ----

    /// A worker that runs a fiber sees it at its next scheduling point.
    fn request_ended(&mut self, request: &Request) {
        let now = self.events.now();
        self.came[request.frame.index()] = now;
        self.frames.end(request);
        if std::mem::take(&mut self.idle) {
            self.events.schedule(now.max(self.at), CHOOSES, Event::Free(Point::Idle));
        }
    }
    fn end(&mut self) {
        let now = self.events.now();
        let fiber = self.running.take().expect("a fiber runs");
        self.inside.leave(self.fibers[fiber as usize].begun, now);
        self.free.push(fiber);
        self.ended += 1;
    }
    /// The scheduling point: what the runtime does there, in its order.
    fn scheduling_point(&mut self) {
        self.at = self.events.now();
        let now_ns = self.at.whole_ns();
        self.frames.poll(now_ns);
        self.deliver();
        if self.frames.wants_room() {
            self.frames.make_room(self.others(), now_ns);
            self.deliver();
        }
        self.hand_over();
    }
    fn deliver(&mut self) {
        let notices = self.frames.take_notices();
        for &(Waiter(fiber), outcome) in &notices {
            self.fibers[fiber as usize].wake = Some(outcome);
            self.scheduler.arrived(FiberIndex(fiber as u32), self.at.whole_ns());
        }
        self.frames.give_back_notices(notices);
    }
    fn others(&self) -> FrameSources {
        if self.scheduler.has_runnable() {
            FrameSources::Run
        } else if self.scheduler.pending() == self.frames.frame_waiters() {
            FrameSources::None
        } else {
            FrameSources::Wait
        }
    }
    /// The device begins with what was asked for.
    fn hand_over(&mut self) {
        let requests = self.frames.hand_over();
        let keeps = self.system.planted != Planted::LostWriteBack;
        let writes = requests.iter().filter(|request| request.op == Op::Write && keeps).count() as u64;
        let cost = self.system.costs.write_back * writes;
        self.at += cost;
        self.sums.write_backs += cost;
        let mut together = None;
        for request in &requests {
            let subpage = request.subpage.0;
            let ends = match request.op {
                Op::Read => {
                    let group = subpage / self.system.read_around;
                    // One request of the device, however many subpages.
                    let ends = match together {
                        Some((of, ends)) if of == group && self.system.read_around > 1 => ends,
                        _ => self.device.read(self.at, subpage),
                    };
                    together = Some((group, ends));
                    ends
                }
                Op::Write if keeps => self.device.write(self.at, subpage),
                Op::Write | Op::Flush => self.at,
            };
            self.events.schedule(ends, SEEN, Event::Ended(*request));
        }
        self.frames.give_back(requests);
    }

    fn choose(&mut self, why: Point) -> Result<(), RunError> {
        self.scheduling_point();
        match self.scheduler.pick(why, self.at.whole_ns(), true) {
            // Requests are under way, so nothing is written ahead.
            Choice::Wait => self.idle = true,
            Choice::Resume(FiberIndex(fiber)) => {
                let again = !self.resumes(fiber);
                self.goes_on(fiber, again);
            }
            Choice::StartNew => {
                let fiber = self.free.pop().expect("the scheduler starts no more requests than there are fibers");
                let of = &mut self.fibers[fiber as usize];
                self.workload.request(&mut of.touches).map_err(|error| RunError::Workload(error.to_string()))?;
                let looked_up = of.touches.iter().filter(|touch| !touch.pinned).count().max(1);
                (of.next, of.begun, of.wake) = (0, self.at, None);
                of.each = Time(self.request.0 / looked_up as u64);
                self.inside.enter(self.at);
                self.at += self.system.costs.request;
                self.sums.requests += self.system.costs.request;
                // What the division leaves.
                let rest = self.request - of.each * looked_up as u64;
                self.at += rest;
                self.sums.computing += rest;
                self.goes_on(fiber, false);
            }
        }
        Ok(())
    }

    // ---- a fiber ----

    /// A fiber has waited. Returns whether the access that missed is done. Otherwise it is tried
    /// again.
    fn resumes(&mut self, fiber: u32) -> bool {
        let of = &mut self.fibers[fiber as usize];
        match of.wake {
            Some(Outcome::Pinned) => {}
            Some(Outcome::Again | Outcome::Turn) => return false,
            other => unreachable!("the device fails nothing, and there are frames for all fibers: {other:?}"),
        }
        let touch = of.touches[of.next];
        let frame = self.frames.waited(touch.subpage(), touch.writes);
        (of.wake, of.next) = (None, of.next + 1);
        let came = self.came[frame.index()].max(of.missed + of.cost);
        self.stages.record(self.at, [of.cost, came.since(of.missed + of.cost), self.at.since(came)]);
        true
    }
    /// Runs a fiber until it misses or ends. `again`: it tries an access again.
    fn goes_on(&mut self, fiber: u32, mut again: bool) {
        self.running = Some(fiber);
        loop {
            let of = &mut self.fibers[fiber as usize];
            let Some(touch) = of.touches.get(of.next).copied() else {
                self.events.schedule(self.at, CHOOSES, Event::Free(Point::Finished));
                return;
            };
            if !std::mem::take(&mut again) {
                if !touch.pinned {
                    self.at += of.each;
                    self.sums.computing += of.each;
                    self.sums.accesses += 1;
                }
                (of.missed, of.cost) = (self.at, Time::ZERO);
            }
            if !self.touches(fiber, touch) {
                return;
            }
            self.fibers[fiber as usize].next += 1;
        }
    }
    /// An access. Returns whether it hits. Otherwise the fiber waits.
    fn touches(&mut self, fiber: u32, touch: Touch) -> bool {
        let costs = self.system.costs;
        let subpage = touch.subpage();
        let mut turn = self.fibers[fiber as usize].wake.take() == Some(Outcome::Turn);
        loop {
            if let Some(frame) = self.frames.find(subpage) {
                self.frames.used(frame, touch.writes);
                if !touch.pinned {
                    let near = self.near.touch(u64::from(subpage)) || self.system.planted == Planted::AllNear;
                    let cost = if near { costs.hit } else { costs.far_hit };
                    self.at += cost;
                    self.sums.hits += cost;
                    self.sums.hit += 1;
                    self.sums.far += u64::from(!near);
                }
                return true;
            }
            let (from, before) = (self.at, self.frames.counts());
            let step = self.frames.misses(subpage, fiber, std::mem::take(&mut turn), from.whole_ns());
            let begun = self.frames.counts().misses > before.misses;
            match step {
                Step::Again => {}
                Step::Wait if begun => {
                    self.sums.missed += 1;
                    self.near.touch(u64::from(subpage));
                    self.spend_miss(costs.miss);
                    let around = self.system.read_around;
                    if around > 1 {
                        let first = subpage / around * around;
                        (first..first + around).for_each(|other| self.frames.reads_around(other, from.whole_ns()));
                    }
                }
                Step::Wait => {
                    self.sums.missed += 1;
                    self.sums.joined += 1;
                    self.spend_miss(costs.join);
                }
                // It has switched, and will check again.
                Step::WaitForFrame => self.spend_miss(costs.join),
                Step::Elsewhere(_) => unreachable!("there is one cache"),
            }
            let ahead = self.frames.counts().prefetched - before.prefetched;
            self.spend_miss(costs.read_around * ahead);
            if step != Step::Again {
                self.waits(fiber, step, self.at - from);
                return false;
            }
        }
    }
    fn spend_miss(&mut self, cost: Time) {
        if self.system.planted == Planted::FreeMiss {
            return;
        }
        self.at += cost;
        self.sums.misses += cost;
    }
    /// The fiber waits, after `cost` of CPU time.
    fn waits(&mut self, fiber: u32, step: Step, cost: Time) {
        let of = &mut self.fibers[fiber as usize];
        of.cost += cost;
        let (begun, now) = (of.begun.whole_ns(), self.at.whole_ns());
        if step == Step::WaitForFrame {
            self.scheduler.blocked(FiberIndex(fiber), begun, now);
        } else {
            self.scheduler.missed(FiberIndex(fiber), begun, now);
        }
        self.running = None;
        self.events.schedule(self.at, CHOOSES, Event::Free(Point::Missed));
    }

    fn report(mut self) -> Result<WorkersReport, RunError> {
        self.frames.check();
        let now = self.events.now();
        let entered = self.entered();
        let law = held(self.inside.law(now, entered), now)?;
        let span = now - self.begun;
        let (sums, counts, (before, counted, devices)) = (self.sums, self.frames.counts(), self.before);
        let share = |of: fn(&Sums) -> Time| (of(&sums) - of(&before)).as_s() / span.as_s();
        let since = |of: fn(&Sums) -> u64| (of(&sums) - of(&before)) as f64;
        let ended = (self.ended - self.system.requests / 10) as f64;
        let (missed, hit) = (since(|s| s.missed), since(|s| s.hit));
        let mut spent = Spent {
            computing: share(|s| s.computing),
            requests: share(|s| s.requests),
            hits: share(|s| s.hits),
            misses: share(|s| s.misses),
            write_backs: share(|s| s.write_backs),
            waiting: 0.0,
        };
        let busy = spent.computing + spent.requests + spent.hits + spent.misses + spent.write_backs;
        spent.waiting = 1.0 - busy;
        let work = (missed > 0.0).then(|| self.request.as_ns() * ended / missed);
        let reached = self.device.counts();
        let frames = FrameCounts::between(&counted, &counts);
        let mut warnings = Vec::new();
        if missed == 0.0 {
            warnings.push("there was no miss: all that is used fits into the frames".to_owned());
        }
        if self.request == Time::ZERO {
            warnings.push("requests compute nothing: a share of plain memory has no meaning".to_owned());
        }
        Ok(WorkersReport {
            requests_per_s: law.rate_per_s,
            configuration: self.system.configuration.clone(),
            request_ns: self.request.as_ns(),
            share_of_dram_only: law.rate_per_s * self.request.as_s(),
            simple_share: work.map(|work| work / (work + self.system.costs.miss.as_ns())),
            work_ns_per_miss: work,
            accesses_per_miss: (missed > 0.0).then(|| since(|s| s.accesses) / missed),
            misses_per_request: missed / ended,
            joined_share: (missed > 0.0).then(|| since(|s| s.joined) / missed),
            prefetched_per_request: frames.prefetched as f64 / ended,
            wasted_share: (frames.prefetched > 0).then(|| frames.wasted as f64 / frames.prefetched as f64),
            far_share: (hit > 0.0).then(|| since(|s| s.far) / hit),
            frames,
            spent,
            service: self.inside.times().distribution(),
            law,
            miss_stages: self.stages.split(),
            device_reads_per_s: (reached.0 - devices.0) as f64 / span.as_s(),
            device_writes_per_s: (reached.1 - devices.1) as f64 / span.as_s(),
            simulated_s: span.as_s(),
            counted: Counted { requests: self.ended, events: self.events.happened() },
            warnings,
        })
    }
}
