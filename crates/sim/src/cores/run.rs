//! A run of cores.

mod found;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_policy::{Choice, FiberIndex, MissKind, MissTable, Point, Scheduler, SchedulingPolicy, Waiter};

use super::access::{Access, MissTimes};
use super::chip::{Asked, Chip, L1LookUp};
use super::executed::{Replay, Shared};
use super::recorded::{Pen, Player};
use super::recording::{Origin, Recorder, Recording};
use super::report::CoresReport;
use super::system::{CoresSystem, Front, Paging};
use super::threads::{ThreadWork, complete, next_pages};
use super::tlb::{Tlb, Translation};
use super::traced::Tracer;
use super::work::{BLOCK, PAGE, Space, Step, TABLES, Work, Zipf, resident};
use crate::events::Events;
use crate::executed::Executed;
use crate::memory::{DramCache, FlashPages, LookUp, Tags};
use crate::planted::Planted;
use crate::random::Random;
use crate::report::RunError;
use crate::stages::Stages;
use crate::statistics::Population;
use crate::time::Time;

#[derive(Debug)]
enum Event {
    /// A core goes on, or chooses its next thread.
    Core(u32, Option<Why>),
    /// A core's access is at the home of its block.
    Home(u32),
    /// A core's access reaches its controller.
    Reaches(u32),
    /// The flash is asked for a page, and written a victim.
    Asks { page: u32, victim: Option<u32> },
    /// A page is in DRAM.
    There(u32),
}

/// Why a core chooses a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Missed,
    Finished,
    Idle,
}

/// Marks what the flash has written. Without it, it has read a page.
const WRITTEN: u64 = 1 << 63;
const MISS_STAGES: [&str; 4] = ["signal, fault and flush", "flash", "until it is chosen", "switch"];

struct Core {
    front: Time,
    /// Instructions that have entered the window.
    position: u64,
    /// Late loads, the oldest first: where they stand, and when they end.
    late: VecDeque<(u64, Time)>,
    stores: VecDeque<Time>,
    /// When the last load has its data.
    loaded: Time,
    scheduler: Option<Scheduler>,
    running: Option<u32>,
    free: Vec<u32>,
    begun: Vec<Time>,
    work: Vec<ThreadWork>,
    retry: Vec<Option<Access>>,
    /// Of each thread, and at last of the core itself.
    missed: Vec<MissTimes>,
    access: Option<Access>,
    idle: bool,
    left_by_miss: bool,
    tlb: Tlb,
}

/// Threads of a core that a recording has jobs for, if the system that was recorded has fewer: the
/// paper's most, and one that runs.
pub const RECORDED_THREADS: u32 = 65;
/// Before an executed run, pages come until DRAM was filled this often, or after this number of
/// requests.
const WARM_FILLS: u64 = 2;
const WARM_REQUESTS: u64 = 1 << 20;

/// When the jobs that have begun and not ended did.
fn entered(cores: &[Core]) -> impl Iterator<Item = Time> + '_ {
    cores.iter().flat_map(|core| {
        let begun = core.begun.iter().enumerate();
        begun.filter(|(thread, _)| !core.free.contains(&(*thread as u32))).map(|(_, begun)| *begun)
    })
}

fn failed(error: impl std::fmt::Display) -> RunError {
    RunError::Workload(error.to_string())
}

/// Events without the end of a job that are no progress: a job has some hundred of its own.
const LIVELOCK: u64 = 1 << 21;
/// The most events of an access that makes progress: its walk and its data at their homes, at their
/// controllers, and missing.
const EVENTS_OF_AN_ACCESS: u64 = 16;
/// A core that waits itself, in the place of a fiber's number.
const ITSELF: u32 = 1 << 31;

struct Run<'s> {
    system: &'s CoresSystem,
    events: Events<Event>,
    cores: Vec<Core>,
    chip: Chip,
    caches: Vec<DramCache>,
    /// Which pages are in DRAM, where that has no tags of its own.
    resident: Tags,
    /// None where all pages are in DRAM.
    flash: Option<FlashPages>,
    waits: MissTable,
    retry: Vec<u32>,
    inside: Population,
    ended: u64,
    /// More events than these without the end of a job are no progress.
    livelock: u64,
    misses: u64,
    table_misses: u64,
    duplicates: u64,
    accesses: u64,
    blocked: u64,
    resumed: u64,
    switched_again: u64,
    /// Of misses that switched: how many, and the sums of signal, flush and switch.
    switched: u64,
    lost: [Time; 3],
    written_back: u64,
    /// Bytes that crossed the bus of DRAM.
    moved: u64,
    /// Joules of the flash until the measurement began.
    energy_before: f64,
    stages: Stages<4>,
    /// When the measurement began, and the accesses until then.
    begun: (Time, u64),
}

impl CoresSystem {
    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<CoresReport, RunError> {
        self.run_with(seed, &Front::Modelled, false)
    }
    /// Runs it with another front. With `explain`, percentiles of misses are split.
    ///
    /// # Errors
    /// As [`CoresSystem::run`], when the workload cannot be executed, and when its recording is of
    /// something else or too short ([`CoresSystem::refuses`]).
    pub fn run_with(&self, seed: u64, front: &Front, explain: bool) -> Result<CoresReport, RunError> {
        self.run_noted(seed, front, explain, None)
    }
    /// Runs it with a recording of its jobs. That has as many more as systems of up to
    /// [`RECORDED_THREADS`] threads a core may have begun at the end of such a run.
    ///
    /// # Errors
    /// As [`CoresSystem::run_with`], and [`RunError::NoJobs`] for a front that is a recording or a
    /// trace.
    pub fn record(&self, seed: u64, front: &Front, explain: bool) -> Result<(CoresReport, Recording), RunError> {
        let executed = match front {
            Front::Modelled => None,
            Front::Executed { instructions, own } => Some((*instructions, *own)),
            Front::Recorded(_) | Front::Traced(_) => return Err(RunError::NoJobs),
        };
        let recorder = Rc::new(RefCell::new(Recorder::new(Origin {
            workload: self.workload,
            exponent: self.exponent,
            pages: self.pages,
            executed,
            seed,
            cores: self.cores,
            threads: self.threads(),
            frames: if executed.is_some() { self.frames() } else { 0 },
        })));
        let report = self.run_noted(seed, front, explain, Some(&recorder))?;
        let recorder = Rc::into_inner(recorder).expect("the threads of the run are gone").into_inner();
        Ok((report, recorder.finish().map_err(failed)?))
    }
    fn run_noted(
        &self,
        seed: u64,
        front: &Front,
        explain: bool,
        recorder: Option<&Rc<RefCell<Recorder>>>,
    ) -> Result<CoresReport, RunError> {
        if let Some((key, told)) = self.refuses(front) {
            return Err(RunError::Workload(format!("{key}: {told}")));
        }
        let shared = match front {
            Front::Executed { .. } => {
                let built = Executed::build(self.workload.name(), self.pages * PAGE, self.exponent, seed);
                Some(Rc::new(RefCell::new(Shared::new(built.map_err(failed)?))))
            }
            Front::Modelled | Front::Recorded(_) | Front::Traced(_) => None,
        };
        let taken = Rc::new(Cell::new(0));
        let threads = self.threads();
        let space = Space { pages: self.pages };
        let (shape, zipf) = (self.shape, Zipf::new(self.pages, self.exponent));
        let parts = &self.parts;
        let policy = match self.paging {
            Paging::Switch { policy, .. } => Some(policy),
            Paging::System { .. } => Some(SchedulingPolicy::ArrivedFirst),
            Paging::DramOnly | Paging::Wait => None,
        };
        let core = |number: u32| Core {
            front: Time::ZERO,
            position: 0,
            late: VecDeque::new(),
            stores: VecDeque::new(),
            loaded: Time::ZERO,
            scheduler: policy.map(|policy| Scheduler::new(policy, threads as usize - 1, threads as usize)),
            running: None,
            free: (0..threads).rev().collect(),
            begun: vec![Time::ZERO; threads as usize],
            work: (0..threads)
                .map(|thread| {
                    let thread = u64::from(number * threads + thread);
                    let work = match (&shared, front) {
                        (Some(shared), Front::Executed { instructions, own }) => {
                            let of = (*instructions, *own);
                            ThreadWork::Executed(Replay::new(shared.clone(), of, space, thread, seed))
                        }
                        (_, Front::Recorded(recording)) => {
                            ThreadWork::Recorded(Player::new(recording.clone(), taken.clone(), space, thread))
                        }
                        (_, Front::Traced(traced)) => ThreadWork::Traced(Tracer::new(traced.clone(), taken.clone())),
                        // Without a shape it was refused.
                        _ => ThreadWork::Modelled(Work::new(shape.expect("a shape"), zipf, space, thread, seed)),
                    };
                    match recorder {
                        Some(recorder) => ThreadWork::Noted(Box::new(work), Pen::new(recorder.clone(), thread)),
                        None => work,
                    }
                })
                .collect(),
            retry: vec![None; threads as usize],
            missed: vec![MissTimes::default(); threads as usize + 1],
            access: None,
            idle: false,
            left_by_miss: false,
            tlb: Tlb::new(parts, self.planted),
        };
        let all = self.cores * threads;
        let flash = match (self.paging, self.flash) {
            (Paging::DramOnly, _) => None,
            (_, Some(flash)) => {
                let flash = FlashPages::new(flash, self.filled, all as usize + (1 << 18), seed);
                Some(flash.map_err(|_| RunError::Nothing)?)
            }
            (_, None) => return Err(failed("pages that are not in DRAM have no flash to come from")),
        };
        let mut run = Run {
            system: self,
            events: Events::new(),
            cores: (0..self.cores).map(core).collect(),
            chip: Chip::new(parts, self.cores, explain, self.planted),
            caches: (0..self.controllers).map(|_| DramCache::new(self.cache)).collect(),
            resident: Tags::new(self.cache.sets * self.controllers, self.cache.ways),
            flash,
            waits: MissTable::new(all as usize + 1, all as usize + self.cores as usize),
            retry: Vec::new(),
            inside: Population::default(),
            ended: 0,
            livelock: LIVELOCK,
            misses: 0,
            table_misses: 0,
            duplicates: 0,
            accesses: 0,
            blocked: 0,
            resumed: 0,
            switched_again: 0,
            switched: 0,
            lost: [Time::ZERO; 3],
            written_back: 0,
            moved: 0,
            energy_before: 0.0,
            stages: Stages::new(MISS_STAGES, explain),
            begun: (Time::ZERO, 0),
        };
        run.caches.iter_mut().for_each(|cache| cache.plant(self.planted));
        // Where DRAM has all pages, there is nothing to warm up, but there may be for a replay.
        let warms = self.paging != Paging::DramOnly;
        match (&shared, front) {
            (Some(shared), _) if warms => run.warm(&mut |pages| next_pages(shared, recorder, pages))?,
            (Some(_), _) => {}
            (None, Front::Recorded(recording)) if recording.origin().executed.is_some() => {
                let mut requests = recording.warm_up();
                if warms {
                    run.warm(&mut |pages| Ok(requests.next(pages)))?;
                }
            }
            (None, Front::Traced(traced)) => {
                // All threads may be within jobs of that many blocks before the first one ends.
                let events = traced.longest().saturating_mul(u64::from(all) * EVENTS_OF_AN_ACCESS);
                run.livelock = LIVELOCK.saturating_add(events);
                if warms && traced.warmed() {
                    let mut jobs = 0..;
                    run.warm(&mut |pages| Ok(jobs.next().is_some_and(|job| traced.pages(job, pages))))?;
                }
            }
            (None, _) => run.fill(space, u64::from(all), seed),
        }
        let report = run.drive()?;
        if let Some(recorder) = recorder {
            let others = u64::from(self.cores) * u64::from(RECORDED_THREADS);
            let wanted = self.jobs_begun().max(self.warm_up + self.jobs + others);
            complete(run.cores.iter_mut().flat_map(|core| &mut core.work), recorder, wanted);
            if let Some(shared) = shared.as_ref().filter(|_| !warms) {
                run.warm(&mut |pages| next_pages(shared, Some(recorder), pages))?;
            }
        }
        match shared.and_then(|shared| shared.borrow_mut().failed()) {
            Some(error) => Err(failed(error)),
            None => Ok(report),
        }
    }
}

impl Run<'_> {
    /// What DRAM holds after a long time: pages of data by their use, and what is used always.
    fn fill(&mut self, space: Space, threads: u64, seed: u64) {
        if self.system.paging == Paging::DramOnly {
            return;
        }
        let frames = self.system.frames();
        let random = &mut Random::new(seed, 6);
        let ranks = resident(space.pages, self.system.exponent, frames, random).into_iter();
        let cached_tables = self.system.cached_tables;
        // A page was touched after the page of the table that translates it.
        let ranks = ranks.map(|rank| space.page_of(rank)).flat_map(|page| {
            let table = cached_tables.then(|| space.page_at(space.table(page)));
            table.into_iter().chain(std::iter::once(page))
        });
        let levels = self.system.shape.map_or(0, |shape| shape.levels.ceil() as u32);
        for page in ranks.chain(space.hot(levels, threads)) {
            let (tags, page) = self.tags_of(page);
            tags.fill(std::iter::once(page));
        }
    }

    /// The tags of a page, and its number there.
    fn tags_of(&mut self, page: u64) -> (&mut Tags, u32) {
        let controllers = u64::from(self.system.controllers);
        match self.system.paging {
            Paging::Switch { .. } => (self.caches[(page % controllers) as usize].tags(), (page / controllers) as u32),
            _ => (&mut self.resident, page as u32),
        }
    }

    /// What DRAM holds after as many requests as fill it several times. `next` puts the pages of
    /// one in the place of others, and tells whether there was one.
    fn warm(&mut self, next: &mut dyn FnMut(&mut Vec<u64>) -> Result<bool, RunError>) -> Result<(), RunError> {
        let frames = self.system.frames();
        let (mut came, mut requests, mut pages) = (0, 0, Vec::new());
        while came < WARM_FILLS * frames && requests < WARM_REQUESTS && next(&mut pages)? {
            requests += 1;
            for page in pages.iter().copied() {
                let (tags, page) = self.tags_of(page);
                if !tags.touch(page, false) && tags.replace(page).is_some() {
                    tags.arrived(page);
                    came += 1;
                }
            }
        }
        Ok(())
    }

    fn drive(&mut self) -> Result<CoresReport, RunError> {
        for core in 0..self.system.cores {
            self.events.schedule(Time::ZERO, 1, Event::Core(core, Some(Why::Idle)));
        }
        let mut read = Vec::new();
        let mut last = (0, 0);
        while self.ended < self.system.warm_up + self.system.jobs {
            let next = self.events.next_at();
            if let Some(flash) = &mut self.flash
                && flash.next_at().is_some_and(|at| next.is_none_or(|next| at < next))
            {
                read.clear();
                flash.advance(next, &mut read);
                for (tag, at) in &read {
                    match tag & WRITTEN {
                        0 => self.arrives(*tag as u32, *at),
                        _ => self.written(*tag as u32, *at),
                    }
                }
                continue;
            }
            if last.0 != self.ended {
                last = (self.ended, self.events.happened());
            }
            let events = self.events.happened() - last.1;
            if events > self.livelock {
                return Err(RunError::Livelock { events });
            }
            match self.events.next().ok_or(RunError::Stalled)? {
                Event::Core(core, why) => self.goes_on(core, why),
                Event::Home(core) => self.at_home(core),
                Event::Reaches(core) => self.reaches(core),
                Event::Asks { page, victim } => self.asks(page, victim),
                Event::There(page) => self.there(page),
            }
        }
        self.report()
    }

    // ---- cores ----

    fn page(&self, address: u64) -> u32 {
        Space { pages: self.system.pages }.page_at(address) as u32
    }
    fn controller(&self, address: u64) -> u32 {
        self.page(address) % self.system.controllers
    }

    fn goes_on(&mut self, number: u32, why: Option<Why>) {
        let now = self.events.now();
        if let Some(why) = why {
            if why == Why::Finished {
                self.ended(number);
            }
            self.cores[number as usize].front = self.cores[number as usize].front.max(now);
            if !self.choose(number, why) {
                return;
            }
        }
        loop {
            let core = &mut self.cores[number as usize];
            let thread = core.running.expect("a thread runs") as usize;
            if let Some(access) = core.retry[thread].take() {
                // The instruction that missed is the first one.
                let at = core.front;
                let forced = self.system.planted != Planted::NoForwardProgress;
                self.resumed += 1;
                if !self.enter(number, Access { forced, resumed: true, ..access }, at) {
                    return;
                }
                continue;
            }
            match core.work[thread].next() {
                Step::Compute(count) => self.computes(number, u64::from(count)),
                Step::Load { address, depends } => {
                    let at = if depends { core.front.max(core.loaded) } else { core.front };
                    if !self.load_or_store(number, address, false, at) {
                        return;
                    }
                }
                Step::Store { address } => {
                    let at = core.front;
                    if !self.load_or_store(number, address, true, at) {
                        return;
                    }
                }
                Step::End => {
                    // At its own time, and not at the last access's.
                    let ends = core.front.max(now);
                    self.events.schedule(ends, 1, Event::Core(number, Some(Why::Finished)));
                    return;
                }
            }
        }
    }
    /// Chooses a thread. Returns whether one runs.
    fn choose(&mut self, number: u32, why: Why) -> bool {
        let core = &mut self.cores[number as usize];
        let now = core.front;
        let point = match why {
            Why::Missed => Point::Missed,
            Why::Finished => Point::Finished,
            Why::Idle => Point::Idle,
        };
        let choice = match &mut core.scheduler {
            Some(scheduler) => scheduler.pick(point, now.whole_ns(), true),
            None => Choice::StartNew,
        };
        let thread = match choice {
            Choice::Wait => {
                core.idle = true;
                return false;
            }
            Choice::Resume(FiberIndex(thread)) => {
                let MissTimes { reached, left, came } = core.missed[thread as usize];
                let switch = if core.left_by_miss { self.system.switch_cost() } else { Time::ZERO };
                let split = [left - reached, came.since(left), now.since(came.max(left)), switch];
                self.stages.record(now + switch, split);
                thread
            }
            Choice::StartNew => {
                let thread = core.free.pop().expect("the scheduler starts no more jobs than there are threads");
                core.begun[thread as usize] = now;
                self.inside.enter(now);
                thread
            }
        };
        let core = &mut self.cores[number as usize];
        core.running = Some(thread);
        if std::mem::take(&mut core.left_by_miss) {
            let cost = self.system.switch_cost();
            core.front += cost;
            self.lost[2] += cost;
        }
        true
    }
    /// The running thread's job has ended.
    fn ended(&mut self, number: u32) {
        let now = self.events.now();
        let core = &mut self.cores[number as usize];
        let thread = core.running.take().expect("a thread runs");
        core.free.push(thread);
        self.inside.leave(core.begun[thread as usize], now);
        self.ended += 1;
        if self.ended == self.system.warm_up {
            self.inside.measure_from(now, entered(&self.cores));
            self.begun = (now, self.accesses);
            (self.misses, self.table_misses, self.duplicates) = (0, 0, 0);
            (self.blocked, self.written_back, self.moved) = (0, 0, 0);
            (self.resumed, self.switched_again, self.switched, self.lost) = (0, 0, 0, [Time::ZERO; 3]);
            self.energy_before = self.flash.as_ref().map_or(0.0, FlashPages::energy_j);
            self.stages.clear();
            self.chip.clear();
        }
    }
    fn computes(&mut self, number: u32, count: u64) {
        let parts = &self.system.parts;
        let core = &mut self.cores[number as usize];
        core.front += Time((count as f64 * parts.cycle.0 as f64 / parts.per_cycle + 0.5) as u64);
        core.position += count;
        // What is behind the window has retired, so that its loads have ended.
        while let Some((at, ends)) = core.late.front().copied() {
            if ends <= core.front {
                core.late.pop_front();
            } else if core.position - at >= parts.reorder_buffer {
                core.front = ends;
                core.late.pop_front();
            } else {
                break;
            }
        }
    }
    /// An access by the chip's caches. Returns whether it ended there.
    fn load_or_store(&mut self, number: u32, address: u64, writes: bool, at: Time) -> bool {
        self.computes(number, 1);
        let page = address / PAGE;
        let (at, table) = match self.cores[number as usize].tlb.look_up(page, at) {
            Translation::At(at) => (at, None),
            Translation::Walk(at) => (at, Some(Space { pages: self.system.pages }.table(page))),
        };
        let (corner, acknowledged) = (0, Time::ZERO);
        self.enter(number, Access { address, writes, table, corner, acknowledged, forced: false, resumed: false }, at)
    }
    /// Checks the caches for the next block of an access. Returns whether it ended there.
    fn enter(&mut self, number: u32, mut access: Access, mut at: Time) -> bool {
        loop {
            let (block, writes) = access.block();
            match self.chip.look_up(number, block, writes, at) {
                L1LookUp::Has(then) => at = then,
                L1LookUp::Home(then) => {
                    let now = self.events.now();
                    let answered = if then > now { None } else { self.chip.answers(number, block, writes, then) };
                    match answered {
                        Some(Asked::Has(then)) => at = then,
                        Some(Asked::Leaves { at, acknowledged }) => {
                            self.leaves(number, Access { acknowledged, ..access }, at);
                            return false;
                        }
                        None => {
                            // Its time has not come, or others act in the order of the kernel.
                            self.cores[number as usize].access = Some(access);
                            self.events.schedule(then.max(now), 1, Event::Home(number));
                            return false;
                        }
                    }
                }
            }
            if access.table.take().is_none() {
                self.has(number, &access, at);
                return true;
            }
            self.translated(number, &mut access, at);
        }
    }
    /// A walk has ended at `at`.
    fn translated(&mut self, number: u32, access: &mut Access, at: Time) {
        self.cores[number as usize].tlb.walked(access.address / PAGE, at);
        access.translated();
    }
    /// An access leaves the home of its block for its controller.
    fn leaves(&mut self, number: u32, mut access: Access, at: Time) {
        access.corner = self.chip.corner(self.controller(access.next()));
        let there = self.chip.goes_to_memory(access.block().0, access.corner, at);
        let reaches = there.max(self.events.now());
        self.cores[number as usize].access = Some(access);
        self.events.schedule(reaches, 1, Event::Reaches(number));
    }
    /// The home of an access's block has finished its lookup.
    fn at_home(&mut self, number: u32) {
        let access = self.cores[number as usize].access.take().expect("an access is on its way");
        let (block, writes) = access.block();
        match self.chip.asks(number, block, writes, self.events.now()) {
            Asked::Has(at) => self.comes(number, access, at),
            Asked::Leaves { at, acknowledged } => self.leaves(number, Access { acknowledged, ..access }, at),
        }
    }
    /// The core goes on after an access that it has stopped for: what it asked for comes at `at`.
    fn comes(&mut self, number: u32, mut access: Access, at: Time) {
        let goes_on = if access.table.take().is_some() {
            self.translated(number, &mut access, at);
            self.enter(number, access, at)
        } else {
            self.has(number, &access, at);
            true
        };
        if goes_on {
            self.goes_on(number, None);
        }
    }
    /// The core has what it asked for.
    fn has(&mut self, number: u32, access: &Access, at: Time) {
        if access.writes {
            // The caches on the chip write it back later. Their victims are not simulated.
            let page = (access.address / PAGE) as u32;
            let (controller, local) = self.local(page);
            match self.system.paging {
                Paging::Switch { .. } => self.caches[controller].tags().soil(local),
                Paging::DramOnly | Paging::System { .. } | Paging::Wait => self.resident.soil(page),
            }
        }
        let parts = &self.system.parts;
        let core = &mut self.cores[number as usize];
        if access.writes {
            // It leaves the store buffer then.
            if core.stores.len() == parts.store_buffer
                && let Some(first) = core.stores.pop_front()
            {
                core.front = core.front.max(first);
            }
            core.stores.push_back(at);
        } else {
            core.loaded = at;
            if at > core.front {
                if core.late.len() == parts.mshrs
                    && let Some((_, first)) = core.late.pop_front()
                {
                    core.front = core.front.max(first);
                }
                core.late.push_back((core.position, at));
            }
        }
    }

    // ---- memory ----

    fn reaches(&mut self, number: u32) {
        let now = self.events.now();
        let access = self.cores[number as usize].access.take().expect("an access is on its way");
        let address = access.next();
        self.accesses += 1;
        let controller = self.controller(address);
        let page = self.page(address);
        let local = page / self.system.controllers;
        let cache = &mut self.caches[controller as usize];
        // Tags are a column of a block's size next to the row.
        let has_tags = matches!(self.system.paging, Paging::Switch { .. });
        self.moved += if has_tags && (address < TABLES || self.system.cached_tables) { BLOCK } else { 0 };
        let data = match self.system.paging {
            _ if address >= TABLES && !self.system.cached_tables => cache.flat(now, local),
            Paging::DramOnly => cache.flat(now, local),
            Paging::Switch { .. } => match cache.look_up(now, local, access.writes) {
                LookUp::Hit(at) => at,
                LookUp::Miss(at) => return self.missed(number, access, page, at),
            },
            Paging::System { .. } | Paging::Wait => {
                if !self.resident.touch(page, access.writes) {
                    return self.missed(number, access, page, now);
                }
                cache.flat(now, local)
            }
        };
        self.moved += BLOCK;
        let (block, writes) = access.block();
        let at = self.chip.comes_from_memory(access.corner, number, data).max(access.acknowledged);
        let at = self.chip.comes(number, block, writes, now, at);
        self.comes(number, access, at);
    }
    /// A page is not in DRAM. The controller knows at `at`.
    fn missed(&mut self, number: u32, access: Access, page: u32, at: Time) {
        self.chip.lacks(number);
        self.misses += 1;
        self.table_misses += u64::from(access.table.is_some());
        let asked_at = match self.system.paging {
            Paging::System { fault, .. } => at + fault,
            _ => at,
        };
        let comes = self.want(page, asked_at);
        let parts = self.system.parts;
        let itself = access.forced || self.system.paging == Paging::Wait;
        self.blocked += u64::from(access.forced);
        let core = &mut self.cores[number as usize];
        let thread = core.running.expect("a thread runs");
        self.switched_again += u64::from(access.resumed && !itself);
        if itself {
            if let Some(times) = core.missed.last_mut() {
                *times = MissTimes { reached: self.events.now(), left: self.events.now(), came: Time::ZERO };
            }
            // The core has its access again when the page is there.
            core.access = Some(access);
            if comes {
                self.waits_for(page, u64::from(number) << 32 | u64::from(ITSELF));
            } else {
                self.events.schedule(at, 1, Event::Reaches(number));
            }
            return;
        }
        // The signal comes back. What is older retires, and what is younger is flushed.
        let older = core.late.drain(..).map(|(_, ends)| ends).max().unwrap_or_default();
        let signalled = self.chip.signals(access.corner, number, at).max(older).max(core.front);
        self.switched += 1;
        self.lost[0] += signalled - core.front;
        core.stores.clear();
        core.front = match self.system.paging {
            Paging::System { fault, .. } => signalled + fault,
            _ if self.system.planted == Planted::FreeFlush => signalled,
            _ => signalled + parts.cycle * parts.front_end,
        };
        self.lost[1] += core.front - signalled;
        core.retry[thread as usize] = Some(access);
        core.running = None;
        core.left_by_miss = true;
        let (front, begun) = (core.front, core.begun[thread as usize].whole_ns());
        core.missed[thread as usize] = MissTimes { reached: self.events.now(), left: front, came: front };
        let scheduler = core.scheduler.as_mut().expect("a core that switches has one");
        scheduler.missed(FiberIndex(thread), begun, front.whole_ns());
        if comes {
            self.waits_for(page, u64::from(number) << 32 | u64::from(thread));
        } else {
            scheduler.arrived(FiberIndex(thread), front.whole_ns());
        }
        self.events.schedule(front, 1, Event::Core(number, Some(Why::Missed)));
    }
    fn waits_for(&mut self, page: u32, waiter: u64) {
        // A first one makes the entry.
        let _ = self.waits.begin(SubpageIndex(page), FrameIndex(0), MissKind::Read);
        self.waits.join(SubpageIndex(page), Waiter(waiter)).expect("there is room for every thread and core");
    }
    /// Has a page fetched, unless it is on its way. Returns whether it is still to come.
    fn want(&mut self, page: u32, at: Time) -> bool {
        if self.waits.get(SubpageIndex(page)).is_some() {
            self.duplicates += 1;
            // The hardware makes the lookup nevertheless.
            if let Paging::Switch { .. } = self.system.paging {
                let (controller, local) = self.local(page);
                self.caches[controller].miss(at, local);
            }
            return true;
        }
        let asked = self.fetches(page, at);
        let Paging::Switch { .. } = self.system.paging else { return true };
        let (controller, local) = self.local(page);
        // It may have come between this check and the backside's. Else it waits for a place.
        asked || !self.caches[controller].tags().touch(local, false)
    }
    /// Finds a place for a page and has flash asked for it. Returns false where there is none yet,
    /// so that it comes again, or where the page is there or on its way.
    fn fetches(&mut self, page: u32, at: Time) -> bool {
        let (asked, victim) = if let Paging::Switch { .. } = self.system.paging {
            let (controller, local) = self.local(page);
            let Some((asked, replaced)) = self.caches[controller].miss(at, local) else { return false };
            (asked, replaced.page.filter(|_| replaced.dirty).map(|local| self.whole(controller, local)))
        } else {
            let Some(replaced) = self.resident.replace(page) else {
                self.retry.push(page);
                return false;
            };
            (at, replaced.page.filter(|_| replaced.dirty))
        };
        self.events.schedule(asked, 0, Event::Asks { page, victim });
        true
    }
    /// A page's controller, and the page's number there.
    fn local(&self, page: u32) -> (usize, u32) {
        ((page % self.system.controllers) as usize, page / self.system.controllers)
    }
    /// The page that has a number at a controller.
    fn whole(&self, controller: usize, local: u32) -> u32 {
        local * self.system.controllers + controller as u32
    }
    fn asks(&mut self, page: u32, victim: Option<u32>) {
        let now = self.events.now();
        let flash = self.flash.as_mut().expect("no page is missing where there is no flash");
        if let Some(victim) = victim {
            self.written_back += 1;
            self.moved += PAGE;
            flash.write_and_tell(now, victim, WRITTEN | u64::from(victim));
        }
        self.moved += PAGE;
        flash.read(now, page, u64::from(page));
    }
    /// The flash has a victim.
    fn written(&mut self, page: u32, at: Time) {
        // Only the hardware has a buffer for them.
        let Paging::Switch { .. } = self.system.paging else { return };
        let (controller, _) = self.local(page);
        let mut retry = Vec::new();
        self.caches[controller].written(&mut retry);
        retry.into_iter().for_each(|local| self.again(self.whole(controller, local), at));
    }
    /// A page has come from flash.
    fn arrives(&mut self, page: u32, at: Time) {
        let mut retry = std::mem::take(&mut self.retry);
        let there = if let Paging::Switch { .. } = self.system.paging {
            let (controller, local) = self.local(page);
            let from = retry.len();
            let there = self.caches[controller].arrive(at, local, &mut retry);
            retry[from..].iter_mut().for_each(|waited| *waited = self.whole(controller, *waited));
            there
        } else {
            self.resident.arrived(page);
            at
        };
        self.events.schedule(there.max(self.events.now()), 0, Event::There(page));
        retry.into_iter().for_each(|page| self.again(page, there));
    }
    /// A miss that waited for a place comes again.
    fn again(&mut self, page: u32, at: Time) {
        self.fetches(page, at.max(self.events.now()));
    }
    fn there(&mut self, page: u32) {
        let now = self.events.now();
        let mut waiters = Vec::new();
        self.waits.complete(SubpageIndex(page), |waiter| waiters.push(waiter.0));
        if self.system.planted == Planted::LostArrival {
            return;
        }
        for waiter in waiters {
            let (number, fiber) = ((waiter >> 32) as u32, waiter as u32);
            if fiber & ITSELF != 0 {
                let reached = self.cores[number as usize].missed.last().map_or(now, |times| times.reached);
                self.stages.record(now, [Time::ZERO, now - reached, Time::ZERO, Time::ZERO]);
                self.events.schedule(now, 1, Event::Reaches(number));
                continue;
            }
            let core = &mut self.cores[number as usize];
            core.missed[fiber as usize].came = now;
            core.scheduler.as_mut().expect("it has threads").arrived(FiberIndex(fiber), now.whole_ns());
            if std::mem::take(&mut core.idle) {
                self.events.schedule(now, 1, Event::Core(number, Some(Why::Idle)));
            }
        }
    }
}
