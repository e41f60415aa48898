//! A run of a program over a memory system.

use std::collections::VecDeque;

use fulgurite_format::SubpageIndex;
use fulgurite_policy::{AnyReplacement, PrefetchPolicy, Prefetcher};
use serde::Serialize;

use super::device::{CLEANING, Device, Rated, WRITE};
use super::energy::{Power, Work};
use super::log::{Found, Log, LogIo};
use super::system::{
    DeviceKind, HOME_BYTES, LINE, PagingSystem, RuntimeCosts, Slots, SystemCosts, Unit, Way, swap_slots,
};
use crate::cores::{Sram, Zipf};
use crate::events::Events;
use crate::memory::FlashPages;
use crate::random::Random;
use crate::report::{Counted, RunError, held, percent, times};
use crate::stages::{Split, Stages};
use crate::statistics::{Distribution, Law, Population};
use crate::time::Time;
use crate::workers::frames::{Frames, Place};

const NONE: u32 = u32::MAX;
/// Requests of NAND that may be under way at once: more than threads and evict buffers can have.
const FLASH_DEPTH: usize = 1 << 20;
/// Ways of the page buffer's order.
const BUFFER_WAYS: u64 = 8;

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PagingReport {
    /// Accesses that ended, a second of simulated time.
    pub accesses_per_s: f64,
    /// From an access to its data.
    pub access: Distribution,
    /// Little's law over accesses.
    pub law: Law,
    /// Accesses that found nothing in DRAM, not even on its way. None where all memory is alike.
    pub miss_ratio: Option<f64>,
    /// Accesses to what was on its way.
    pub joined: u64,
    /// Accesses to objects that were in DRAM and not mapped.
    pub remapped: u64,
    /// Pages that were read beside the one that missed, for each access.
    pub read_ahead_per_access: f64,
    /// Of those, the ones that were evicted without a touch. None without any.
    pub wasted_share: Option<f64>,
    /// Pages that the device read, a second.
    pub device_reads_per_s: f64,
    /// Pages that it was asked to write.
    pub device_writes_per_s: f64,
    /// Bytes that it was asked to write, for each access.
    pub written_bytes_per_access: f64,
    /// What the log wrote for each unit that left DRAM. None without a log, or without any.
    pub log_amplification: Option<f64>,
    /// Share of the cores' time that the software of misses took.
    pub software: f64,
    /// Share of it that the program computed.
    pub computing: f64,
    /// Misses that waited for the evict buffer.
    pub throttled: u64,
    /// Batches of translations that other cores had to forget.
    pub shootdowns: u64,
    /// Power and energy.
    pub power: Power,
    /// Where the time of misses goes.
    pub miss_stages: Option<Split>,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Accesses and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl PagingReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("accesses/s", format!("{:.0}", self.accesses_per_s))];
        times(&mut rows, ["accesses", "mean us", "p50 us", "p99 us", "p99.99 us"], &self.access);
        rows.push(("under way", format!("{:.2}", self.law.mean_present)));
        rows.extend(self.miss_ratio.map(|share| ("misses", percent(share))));
        if self.read_ahead_per_access > 0.0 {
            rows.push(("read ahead/access", format!("{:.3}", self.read_ahead_per_access)));
        }
        rows.extend(self.wasted_share.map(|share| ("read ahead in vain", percent(share))));
        rows.push(("time computing", percent(self.computing)));
        rows.push(("time of software", percent(self.software)));
        if self.miss_ratio.is_some() {
            rows.push(("device reads/s", format!("{:.0}", self.device_reads_per_s)));
            rows.push(("device writes/s", format!("{:.0}", self.device_writes_per_s)));
            rows.push(("bytes written/access", format!("{:.1}", self.written_bytes_per_access)));
        }
        rows.extend(self.log_amplification.map(|times| ("written by the log", format!("{times:.2}x"))));
        let power = &self.power;
        rows.extend([
            ("DRAM standby W", format!("{:.3}", power.dram_standby_w)),
            ("DRAM refresh W", format!("{:.3}", power.dram_refresh_w)),
            ("DRAM access W", format!("{:.3}", power.dram_access_w)),
            ("controllers W", format!("{:.3}", power.controllers_w)),
            ("device W", format!("{:.3}", power.device_w)),
            ("W", format!("{:.3}", power.total_w)),
            ("nJ/access", format!("{:.1}", power.access_nj)),
        ]);
        rows
    }
}

const MISS_STAGES: [&str; 4] = ["software before", "device", "until it runs", "software after"];

#[derive(Debug)]
enum Event {
    /// A core's thread begins an access.
    Access(u32),
    /// It looks again, after the evict buffer was full.
    Look(u32),
    /// It has its data.
    Done(u32),
    /// A core chooses a thread.
    Free(u32),
    /// A home's device is asked for pages, each for a frame.
    Ask(u32, Vec<(u32, u64)>),
    /// A unit leaves its frame.
    Write(u32, u32),
    /// A thread has its page.
    Ready(u32),
    /// Something of a home's device is done.
    Part(u32, u64),
}

struct Thread {
    random: Random,
    /// Its last object, and what its access is for.
    last: u64,
    home: u32,
    unit: u32,
    writes: bool,
    /// It has not run yet.
    fresh: bool,
    frame: Option<u32>,
    core: u32,
    began: Time,
    asked: Time,
    came: Time,
    resumed: Time,
}

#[derive(Default)]
struct Core {
    running: Option<u32>,
    last: Option<u32>,
    /// What interrupts took, and its thread has not felt yet.
    debt: Time,
}

/// Which page is in which slot of swap.
struct SwapMap {
    of_page: Vec<u32>,
    page_in: Vec<u32>,
    next: u32,
}

impl SwapMap {
    fn new(pages: u32) -> SwapMap {
        let slots = swap_slots(u64::from(pages)) as u32;
        let page_in = (0..slots).map(|slot| if slot < pages { slot } else { NONE }).collect();
        SwapMap { of_page: (0..pages).collect(), page_in, next: pages }
    }
    /// A page leaves: it gets the next free slot.
    fn leave(&mut self, page: u32) -> u32 {
        self.page_in[self.of_page[page as usize] as usize] = NONE;
        while self.page_in[self.next as usize] != NONE {
            self.next = (self.next + 1) % self.page_in.len() as u32;
        }
        (self.of_page[page as usize], self.page_in[self.next as usize]) = (self.next, page);
        self.next
    }
}

/// A controller's DRAM and its device.
struct Home {
    frames: Frames<AnyReplacement>,
    prefetcher: Prefetcher,
    /// Threads that wait, and parts that are on their way, by frame.
    waiting: Vec<Vec<u32>>,
    left: Vec<u32>,
    device: Device,
    log: Option<Log>,
    swap: Option<SwapMap>,
    /// Pages in the evict buffer.
    writing: u32,
    throttled: VecDeque<u32>,
}

/// Sums of the measurement.
#[derive(Clone, Copy, Default)]
struct Sums {
    looked: u64,
    missed: u64,
    joined: u64,
    remapped: u64,
    ahead: u64,
    wasted: u64,
    reads: u64,
    writes: u64,
    moved: u64,
    software: Time,
    computing: Time,
    throttled: u64,
    shootdowns: u64,
    log: (u64, u64),
    nand_j: f64,
    busy_s: f64,
}

struct Run<'s> {
    system: &'s PagingSystem,
    zipf: Option<Zipf>,
    objects: u64,
    events: Events<Event>,
    threads: Vec<Thread>,
    cores: Vec<Core>,
    runnable: VecDeque<u32>,
    idle: Vec<u32>,
    homes: Vec<Home>,
    /// Objects that are mapped, of SSDAlloc's page buffer.
    mapped: Option<Sram>,
    lock: Time,
    inside: Population,
    stages: Stages<4>,
    sums: Sums,
    before: Sums,
    begun: Time,
    ended: u64,
    back: Vec<(u64, Time)>,
    io: Vec<LogIo>,
}

impl PagingSystem {
    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<PagingReport, RunError> {
        let flat = matches!(self.way, Way::Flat { .. });
        let homes: Option<Vec<Home>> =
            if flat { Some(Vec::new()) } else { (0..self.controllers).map(|home| self.home(home, seed)).collect() };
        let objects = self.program.data / self.program.object;
        let thread = |number: u32| {
            let mut random = Random::new(seed ^ u64::from(number).wrapping_mul(0xd605_1a5f_f91c_a5a3), 9);
            Thread {
                last: random.below(objects),
                random,
                home: 0,
                unit: 0,
                writes: false,
                fresh: true,
                frame: None,
                core: 0,
                began: Time::ZERO,
                asked: Time::ZERO,
                came: Time::ZERO,
                resumed: Time::ZERO,
            }
        };
        let mapped = match self.way {
            Way::Runtime(RuntimeCosts { unit: Unit::Object { buffer }, .. }) => {
                Some(Sram::new(u64::from(buffer), BUFFER_WAYS.min(u64::from(buffer))))
            }
            _ => None,
        };
        let mut run = Run {
            system: self,
            zipf: (self.program.skew > 0.0).then(|| Zipf::new(objects, self.program.skew)),
            objects,
            events: Events::new(),
            threads: (0..self.program.threads).map(thread).collect(),
            cores: (0..self.cores).map(|_| Core::default()).collect(),
            runnable: (0..self.program.threads).collect(),
            idle: Vec::new(),
            homes: homes.ok_or(RunError::Nothing)?,
            mapped,
            lock: Time::ZERO,
            inside: Population::default(),
            stages: Stages::new(MISS_STAGES, self.explain),
            sums: Sums::default(),
            before: Sums::default(),
            begun: Time::ZERO,
            ended: 0,
            back: Vec::new(),
            io: Vec::new(),
        };
        run.settle();
        run.drive()
    }
    fn home(&self, number: u32, seed: u64) -> Option<Home> {
        let (frames, units) = (self.frames().min(self.units()) as u32, self.units() as u32);
        let device = match self.device? {
            DeviceKind::Rated(shape) => Device::Rated(Rated::new(shape, self.page)),
            DeviceKind::Nand(profile, filled) => {
                let parts = self.page / u64::from(profile.geometry.page_bytes());
                let flash = FlashPages::new(profile, filled, FLASH_DEPTH, seed ^ u64::from(number) << 32).ok()?;
                Device::Nand(Box::new(flash), parts as u32)
            }
        };
        let prefetch = match self.way {
            Way::Controller { prefetch, .. } => prefetch,
            _ => PrefetchPolicy::Off,
        };
        Some(Home {
            frames: Frames::new(AnyReplacement::new(self.replacement, frames as usize), units),
            prefetcher: Prefetcher::new(prefetch),
            waiting: vec![Vec::new(); frames as usize],
            left: vec![0; frames as usize],
            device,
            log: match self.way {
                Way::Runtime(costs) => Some(self.new_log(costs)),
                _ => None,
            },
            swap: match self.way {
                Way::System(costs) if costs.slots == Slots::Swap => Some(SwapMap::new(units)),
                _ => None,
            },
            writing: 0,
            throttled: VecDeque::new(),
        })
    }
}

impl Run<'_> {
    /// Draws a thread's next access.
    fn draw(&mut self, number: u32) {
        let program = &self.system.program;
        let (zipf, objects) = (&self.zipf, self.objects);
        let thread = &mut self.threads[number as usize];
        let object = if thread.random.unit() < program.random {
            match zipf {
                // Popular objects lie anywhere: the factor is a prime.
                Some(zipf) => (zipf.draw(&mut thread.random) as u128 * 2_654_435_761 % u128::from(objects)) as u64,
                None => thread.random.below(objects),
            }
        } else {
            (thread.last + 1) % objects
        };
        thread.writes = thread.random.unit() < program.writes;
        thread.last = object;
        let address = object * program.object;
        let homes = u64::from(self.system.controllers);
        let (of_home, within) = (address / HOME_BYTES, address % HOME_BYTES);
        thread.home = (of_home % homes) as u32;
        thread.unit = ((of_home / homes * HOME_BYTES + within) / self.system.unit()) as u32;
    }
    /// Accesses that take no time fill DRAM.
    fn settle(&mut self) {
        if self.homes.is_empty() {
            return;
        }
        let threads = u64::from(self.system.program.threads);
        for access in 0..self.system.program.untimed {
            let number = (access % threads) as u32;
            self.draw(number);
            let Thread { home, unit, writes, .. } = self.threads[number as usize];
            let home = &mut self.homes[home as usize];
            if let Some(mapped) = &mut self.mapped {
                mapped.touch(u64::from(unit));
            }
            match home.frames.place(unit) {
                Place::Resident(frame) => home.frames.used(frame, writes),
                Place::Coming(_) => {}
                Place::Absent => {
                    let Some((frame, victim)) = home.frames.take(unit) else { continue };
                    home.frames.pin(frame);
                    home.frames.arrived(frame);
                    home.frames.waited(frame, writes);
                    if let Some(victim) = victim.filter(|victim| victim.dirty) {
                        self.io.clear();
                        if let Some(log) = &mut home.log {
                            log.write(victim.subpage, &mut self.io);
                        }
                        if let Some(swap) = &mut home.swap {
                            swap.leave(victim.subpage);
                        }
                    }
                }
            }
        }
    }

    fn drive(mut self) -> Result<PagingReport, RunError> {
        for core in 0..self.system.cores {
            self.events.schedule(Time::ZERO, 1, Event::Free(core));
        }
        let program = self.system.program;
        self.before.log = self.logged();
        if program.warm_up == 0 {
            self.measure(Time::ZERO);
        }
        while self.ended < program.warm_up + program.count {
            let next = self.events.next_at();
            if let Some((at, home)) = self.first_device()
                && next.is_none_or(|next| at < next)
            {
                let mut back = std::mem::take(&mut self.back);
                back.clear();
                if let Device::Nand(flash, _) = &mut self.homes[home].device {
                    flash.advance(next, &mut back);
                }
                for (tag, at) in &back {
                    self.events.schedule((*at).max(self.events.now()), 0, Event::Part(home as u32, *tag));
                }
                self.back = back;
                continue;
            }
            match self.events.next().expect("a core or a device has something ahead") {
                Event::Access(core) => self.begins(core),
                Event::Look(core) => self.look(core),
                Event::Done(core) => self.done(core),
                Event::Free(core) => self.choose(core),
                Event::Ask(home, pages) => self.ask(home, &pages),
                Event::Write(home, unit) => self.write(home, unit),
                Event::Ready(thread) => self.ready(thread),
                Event::Part(home, tag) => self.part(home, tag),
            }
        }
        self.report()
    }
    fn first_device(&self) -> Option<(Time, usize)> {
        let all = self.homes.iter().enumerate();
        all.filter_map(|(at, home)| home.device.next_at().map(|time| (time, at))).min()
    }
    fn schedule(&mut self, at: Time, event: Event) {
        let rank = u8::from(!matches!(event, Event::Part(..) | Event::Write(..) | Event::Ask(..) | Event::Ready(_)));
        self.events.schedule(at, rank, event);
    }

    // ---- cores ----

    /// A core takes the next thread that can run.
    fn choose(&mut self, number: u32) {
        let now = self.events.now();
        let Some(next) = self.runnable.pop_front() else {
            self.idle.push(number);
            return;
        };
        let core = &mut self.cores[number as usize];
        let other = core.last.replace(next) != Some(next);
        core.running = Some(next);
        let thread = &mut self.threads[next as usize];
        thread.core = number;
        if std::mem::take(&mut thread.fresh) {
            let begins = now + self.system.program.work;
            self.sums.computing += self.system.program.work;
            self.schedule(begins, Event::Access(number));
            return;
        }
        thread.resumed = now;
        let cost = match self.system.way {
            Way::System(costs) => costs.complete + if other { costs.switch } else { Time::ZERO },
            Way::Runtime(costs) => costs.materialize + if other { costs.switch } else { Time::ZERO },
            Way::Flat { .. } | Way::Controller { .. } => Time::ZERO,
        };
        self.sums.software += cost;
        self.schedule(now + cost + self.system.access, Event::Done(number));
    }
    fn running(&self, core: u32) -> u32 {
        self.cores[core as usize].running.expect("a thread runs")
    }
    fn begins(&mut self, core: u32) {
        let now = self.events.now();
        let thread = self.running(core);
        self.draw(thread);
        self.threads[thread as usize].began = now;
        self.inside.enter(now);
        self.sums.looked += 1;
        self.look(core);
    }
    fn look(&mut self, core: u32) {
        let now = self.events.now();
        let number = self.running(core);
        let Thread { home, unit, writes, .. } = self.threads[number as usize];
        let bytes = self.system.program.object.max(LINE);
        let (before, joining) = match self.system.way {
            Way::Flat { read, write } => {
                self.sums.moved += bytes;
                self.schedule(now + if writes { write } else { read }, Event::Done(core));
                return;
            }
            Way::Controller { lookup, .. } => (lookup, lookup),
            Way::System(costs) => (Time::ZERO, costs.fault),
            Way::Runtime(costs) => (Time::ZERO, costs.signal + costs.table),
        };
        let of = &mut self.homes[home as usize];
        match of.frames.place(unit) {
            Place::Resident(frame) => {
                of.frames.used(frame, writes);
                self.sums.moved += bytes;
                let mut software = before;
                if let (Some(mapped), Way::Runtime(costs)) = (&mut self.mapped, self.system.way)
                    && !mapped.touch(u64::from(unit))
                {
                    self.sums.remapped += 1;
                    software += costs.signal + costs.table + costs.materialize + costs.dematerialize;
                    self.sums.software += software;
                }
                self.was_read_ahead(home, frame, unit);
                self.schedule(now + software + self.system.access, Event::Done(core));
            }
            Place::Coming(frame) => {
                self.sums.joined += 1;
                self.was_read_ahead(home, frame, unit);
                self.spend(joining);
                self.waits(core, frame, now + joining);
            }
            Place::Absent if of.writing >= self.system.buffer => {
                self.sums.throttled += 1;
                of.throttled.push_back(core);
            }
            Place::Absent => {
                self.sums.missed += 1;
                match self.system.way {
                    Way::System(costs) => self.faults(core, costs),
                    Way::Runtime(costs) => self.signalled(core, costs),
                    Way::Flat { .. } | Way::Controller { .. } => self.controller_misses(core, before),
                }
            }
        }
    }
    /// CPU time of software. A controller's is no core's.
    fn spend(&mut self, time: Time) {
        if !matches!(self.system.way, Way::Controller { .. }) {
            self.sums.software += time;
        }
    }
    /// The core's thread waits for a frame. The core is free from a time on, unless it waits, too.
    fn waits(&mut self, core: u32, frame: u32, at: Time) {
        let number = self.running(core);
        let thread = &mut self.threads[number as usize];
        (thread.frame, thread.asked, thread.came) = (Some(frame), at, at);
        let home = &mut self.homes[thread.home as usize];
        home.frames.pin(frame);
        home.waiting[frame as usize].push(number);
        if !self.stalls() {
            self.cores[core as usize].running = None;
            self.schedule(at, Event::Free(core));
        }
    }
    fn stalls(&self) -> bool {
        matches!(self.system.way, Way::Controller { .. })
    }
    fn done(&mut self, core: u32) {
        let now = self.events.now();
        let number = self.running(core);
        let thread = &mut self.threads[number as usize];
        if let Some(frame) = thread.frame.take() {
            self.homes[thread.home as usize].frames.waited(frame, thread.writes);
            self.sums.moved += self.system.program.object.max(LINE);
            let ready = thread.came.max(thread.asked);
            let split = [
                thread.asked - thread.began,
                thread.came.since(thread.asked),
                thread.resumed - ready,
                now - thread.resumed,
            ];
            self.stages.record(split);
        }
        self.inside.leave(thread.began, now);
        self.ended += 1;
        if self.ended == self.system.program.warm_up {
            self.measure(now);
        }
        let work = self.system.program.work;
        self.sums.computing += work;
        let debt = std::mem::take(&mut self.cores[core as usize].debt);
        self.schedule(now + work + debt, Event::Access(core));
    }

    // ---- misses ----

    /// Takes a frame for what is to come. None: it is there, or every frame is in use.
    fn takes(&mut self, home: u32, unit: u32, at: Time) -> Option<u32> {
        let of = &mut self.homes[home as usize];
        if u64::from(unit) >= self.system.units() || of.frames.place(unit) != Place::Absent {
            return None;
        }
        let (frame, victim) = of.frames.take(unit)?;
        if let Some(victim) = victim {
            if victim.prefetched {
                of.prefetcher.wasted(SubpageIndex(victim.subpage));
                self.sums.wasted += 1;
            }
            if victim.dirty {
                self.leaves(home, victim.subpage, at);
            }
        }
        Some(frame)
    }
    /// A unit that was written to goes to the evict buffer.
    fn leaves(&mut self, home: u32, unit: u32, at: Time) {
        self.homes[home as usize].writing += 1;
        self.sums.moved += self.system.unit();
        self.schedule(at, Event::Write(home, unit));
    }
    /// The frame of the unit that missed. There is one: see `PagingSystem::check`.
    fn takes_own(&mut self, home: u32, unit: u32, at: Time) -> u32 {
        self.takes(home, unit, at).expect("there are more frames than threads can wait for")
    }
    fn controller_misses(&mut self, core: u32, lookup: Time) {
        let at = self.events.now() + lookup;
        let Thread { home, unit, .. } = self.threads[self.running(core) as usize];
        let frame = self.takes_own(home, unit, at);
        self.schedule(at, Event::Ask(home, vec![(unit, u64::from(frame))]));
        let ahead = self.homes[home as usize].prefetcher.missed(SubpageIndex(unit));
        self.reads_ahead(home, ahead, at);
        self.waits(core, frame, at);
    }
    fn reads_ahead(&mut self, home: u32, ahead: Option<core::ops::Range<u32>>, at: Time) {
        for unit in ahead.into_iter().flatten() {
            match self.takes(home, unit, at) {
                Some(frame) => {
                    self.homes[home as usize].frames.prefetch(frame);
                    self.sums.ahead += 1;
                    self.schedule(at, Event::Ask(home, vec![(unit, u64::from(frame))]));
                }
                None => {
                    self.homes[home as usize].prefetcher.used(SubpageIndex(unit));
                }
            }
        }
    }
    /// The first touch of what was read ahead.
    fn was_read_ahead(&mut self, home: u32, frame: u32, unit: u32) {
        let of = &mut self.homes[home as usize];
        if of.frames.take_prefetched(frame) {
            let ahead = of.prefetcher.used(SubpageIndex(unit));
            self.reads_ahead(home, ahead, self.events.now());
        }
    }
    /// A fault of the operating system, in its parts.
    fn faults(&mut self, core: u32, costs: SystemCosts) {
        let now = self.events.now();
        let Thread { home, unit, .. } = self.threads[self.running(core) as usize];
        // One after another, for all cores.
        let locked = (now + costs.fault).max(self.lock) + costs.locked;
        self.lock = locked;
        self.sums.software += costs.fault + costs.locked;
        let mut at = locked;
        let of = &self.homes[home as usize];
        let group = |place: u32| (place - place % costs.cluster)..(place - place % costs.cluster + costs.cluster);
        let around: Vec<u32> = match &of.swap {
            None => group(unit).collect(),
            Some(swap) => {
                let slots = group(swap.of_page[unit as usize]);
                slots.filter_map(|slot| swap.page_in.get(slot as usize).copied()).filter(|page| *page != NONE).collect()
            }
        };
        let wanted = around.len().max(1);
        while self.homes[home as usize].frames.free() < wanted {
            match self.reclaims(core, home, costs, at) {
                Some(ends) => at = ends,
                None => break,
            }
        }
        at += costs.submit;
        self.sums.software += costs.submit;
        let frame = self.takes_own(home, unit, at);
        let mut pages = vec![(self.place(home, unit), u64::from(frame))];
        for other in around.into_iter().filter(|other| *other != unit) {
            if let Some(frame) = self.takes(home, other, at) {
                self.homes[home as usize].frames.prefetch(frame);
                self.sums.ahead += 1;
                pages.push((self.place(home, other), u64::from(frame)));
            }
        }
        self.schedule(at, Event::Ask(home, pages));
        self.waits(core, frame, at);
    }
    /// The core that faults reclaims a batch. Returns when it has, or none, when nothing can go.
    fn reclaims(&mut self, core: u32, home: u32, costs: SystemCosts, begins: Time) -> Option<Time> {
        let (mut at, mut freed) = (begins, 0);
        while freed < costs.batch {
            let Some(victim) = self.homes[home as usize].frames.reclaim() else { break };
            freed += 1;
            at += costs.reclaim;
            self.sums.wasted += u64::from(victim.prefetched);
            if victim.dirty {
                at += costs.swap_out;
                self.leaves(home, victim.subpage, at);
            }
        }
        if freed == 0 {
            return None;
        }
        // Only cores on which the program runs have translations to forget.
        let mut told = 0;
        for (other, of) in self.cores.iter_mut().enumerate() {
            if other != core as usize && of.running.is_some() {
                of.debt += costs.interrupted;
                self.sums.software += costs.interrupted;
                told += 1;
            }
        }
        at += costs.shootdown * told;
        self.sums.shootdowns += u64::from(told > 0);
        self.sums.software += at - begins;
        Some(at)
    }
    /// Where a page lies on the device.
    fn place(&self, home: u32, unit: u32) -> u32 {
        self.homes[home as usize].swap.as_ref().map_or(unit, |swap| swap.of_page[unit as usize])
    }
    /// SSDAlloc's runtime gets a signal.
    fn signalled(&mut self, core: u32, costs: RuntimeCosts) {
        let at = self.events.now() + costs.signal + costs.table + costs.dematerialize;
        self.sums.software += at - self.events.now();
        let Thread { home, unit, .. } = self.threads[self.running(core) as usize];
        let frame = self.takes_own(home, unit, at);
        if let Some(mapped) = &mut self.mapped {
            mapped.touch(u64::from(unit));
        }
        let of = &mut self.homes[home as usize];
        match of.log.as_ref().map(|log| log.find(unit)) {
            Some(Found::Page(page)) => self.schedule(at, Event::Ask(home, vec![(page, u64::from(frame))])),
            // In the page that is being filled.
            Some(Found::Filling) | None => {
                of.left[frame as usize] = 1;
                self.schedule(at, Event::Part(home, u64::from(frame)));
            }
        }
        self.waits(core, frame, at);
    }

    // ---- devices ----

    fn ask(&mut self, home: u32, pages: &[(u32, u64)]) {
        let now = self.events.now();
        self.sums.reads += pages.len() as u64;
        let of = &mut self.homes[home as usize];
        for (_, frame) in pages {
            of.left[*frame as usize] = of.device.parts();
        }
        if let Some(there) = of.device.read(now, pages) {
            pages.iter().for_each(|(_, frame)| self.schedule(there, Event::Part(home, *frame)));
        }
    }
    /// A unit goes from the evict buffer to its device, or to the page of the log that is filled.
    fn write(&mut self, home: u32, unit: u32) {
        let now = self.events.now();
        let mut io = std::mem::take(&mut self.io);
        io.clear();
        let of = &mut self.homes[home as usize];
        of.writing -= 1;
        let to_log = of.log.is_some();
        match (&mut of.log, &mut of.swap) {
            (Some(log), _) => log.write(unit, &mut io),
            (None, Some(swap)) => io.push(LogIo::Write(swap.leave(unit))),
            (None, None) => io.push(LogIo::Write(unit)),
        }
        for io in &io {
            let of = &mut self.homes[home as usize];
            match *io {
                LogIo::Read(page) => {
                    self.sums.reads += 1;
                    of.device.read(now, &[(page, CLEANING)]);
                }
                LogIo::Write(page) => {
                    self.sums.writes += 1;
                    of.writing += of.device.parts();
                    if let Some(ends) = of.device.write(now, page, to_log) {
                        self.schedule(ends, Event::Part(home, WRITE));
                    }
                }
            }
        }
        self.io = io;
        self.has_room(home);
    }
    /// Misses that waited for the evict buffer look again.
    fn has_room(&mut self, home: u32) {
        let now = self.events.now();
        let of = &mut self.homes[home as usize];
        if of.writing < self.system.buffer
            && let Some(core) = of.throttled.pop_front()
        {
            self.schedule(now, Event::Look(core));
        }
    }
    fn part(&mut self, home: u32, tag: u64) {
        let of = &mut self.homes[home as usize];
        if tag & WRITE != 0 {
            of.writing -= 1;
            self.has_room(home);
        } else if tag & CLEANING == 0 {
            let left = &mut of.left[tag as usize];
            *left -= 1;
            if *left == 0 {
                self.data(home, tag as u32);
            }
        }
    }
    /// A frame has its contents.
    fn data(&mut self, home: u32, frame: u32) {
        let now = self.events.now();
        self.sums.moved += self.system.unit();
        let of = &mut self.homes[home as usize];
        of.frames.arrived(frame);
        for number in std::mem::take(&mut of.waiting[frame as usize]) {
            let stalls = self.stalls();
            let thread = &mut self.threads[number as usize];
            thread.came = now.max(thread.asked);
            if stalls {
                thread.resumed = thread.came;
                let (core, ends) = (thread.core, thread.came + self.system.access);
                self.schedule(ends, Event::Done(core));
            } else {
                let ready = thread.came;
                self.schedule(ready, Event::Ready(number));
            }
        }
    }
    fn ready(&mut self, thread: u32) {
        self.runnable.push_back(thread);
        if let Some(core) = self.idle.pop() {
            self.schedule(self.events.now(), Event::Free(core));
        }
    }

    fn logged(&self) -> (u64, u64) {
        let counts = self.homes.iter().filter_map(|home| home.log.as_ref().map(Log::counts));
        counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }
    fn counts(&self) -> Sums {
        let mut sums = self.sums;
        sums.log = self.logged();
        for home in &self.homes {
            let (joules, busy) = home.device.spent();
            sums.nand_j += joules;
            sums.busy_s += busy;
        }
        sums
    }
    fn measure(&mut self, now: Time) {
        self.inside.measure_from(now);
        self.stages.clear();
        (self.begun, self.before) = (now, self.counts());
    }
    fn report(mut self) -> Result<PagingReport, RunError> {
        for home in &self.homes {
            home.frames.check();
            home.log.iter().for_each(Log::check);
        }
        let now = self.events.now();
        let law = held(self.inside.law(now))?;
        let span = (now - self.begun).as_s();
        let (sums, before) = (self.counts(), self.before);
        let since = |of: fn(&Sums) -> u64| of(&sums) - of(&before);
        let share = |of: fn(&Sums) -> Time| (of(&sums) - of(&before)).as_s() / span / f64::from(self.system.cores);
        let accesses = self.ended - self.system.program.warm_up;
        let each = |count: u64| count as f64 / accesses as f64;
        let flat = self.homes.is_empty();
        let ahead = since(|sums| sums.ahead);
        let (logged, moved) = (sums.log.0 - before.log.0, sums.log.1 - before.log.1);
        let work = Work {
            seconds: span,
            dram: self.system.dram,
            moved: since(|sums| sums.moved),
            controllers: self.system.controllers,
            requests: since(|sums| sums.looked),
            devices: self.homes.len() as u32,
            nand_j: sums.nand_j - before.nand_j,
            busy_s: sums.busy_s - before.busy_s,
        };
        let mut warnings = Vec::new();
        let (missed, writes) = (since(|sums| sums.missed), since(|sums| sums.writes));
        if !flat && missed == 0 {
            warnings.push("there was no miss: all that is used fits into DRAM".to_owned());
        }
        if self.system.program.writes > 0.0 && !flat && writes == 0 {
            warnings.push("nothing was written back: DRAM was not full; ask for more program.untimed".to_owned());
        }
        Ok(PagingReport {
            accesses_per_s: law.rate_per_s,
            access: self.inside.times().distribution(),
            law,
            miss_ratio: (!flat).then(|| each(missed)),
            joined: since(|sums| sums.joined),
            remapped: since(|sums| sums.remapped),
            read_ahead_per_access: each(ahead),
            wasted_share: (ahead > 0).then(|| since(|sums| sums.wasted) as f64 / ahead as f64),
            device_reads_per_s: since(|sums| sums.reads) as f64 / span,
            device_writes_per_s: writes as f64 / span,
            written_bytes_per_access: each(writes * if flat { 0 } else { self.system.page }),
            log_amplification: (logged > 0).then(|| (logged + moved) as f64 / logged as f64),
            software: share(|sums| sums.software),
            computing: share(|sums| sums.computing),
            throttled: since(|sums| sums.throttled),
            shootdowns: since(|sums| sums.shootdowns),
            power: self.system.energy.power(&work, accesses),
            miss_stages: self.stages.split(),
            simulated_s: span,
            counted: Counted { requests: self.ended, events: self.events.happened() },
            warnings,
        })
    }
}
