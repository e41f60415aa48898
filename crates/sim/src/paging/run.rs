//! A run of a program over a memory system.

use std::collections::VecDeque;

use fulgurite_policy::{AnyReplacement, Replacement};

use super::device::Device;
use super::energy::Work;
use super::frames::Residency;
use super::home::Home;
use super::log::{Log, LogIo};
use super::report::PagingReport;
use super::system::{Backend, HOME_BYTES, LINE, PagingSystem, Program, RuntimeCosts, Unit};
use crate::cores::{Sram, Zipf};
use crate::events::Events;
use crate::random::Random;
use crate::report::{Counted, RunError, held};
use crate::stages::Stages;
use crate::statistics::Population;
use crate::time::Time;

/// Ways of the page buffer's order.
const BUFFER_WAYS: u64 = 8;

/// What comes before the device is software, and the wait for room in the evict buffer.
const MISS_STAGES: [&str; 4] = ["before the device", "device", "until it runs", "software after"];

#[derive(Debug)]
pub(super) enum Event {
    /// A core's thread begins an access.
    Access(u32),
    /// It tries again, after the evict buffer was full.
    LookUp(u32),
    /// It has its data.
    Done(u32),
    /// A core chooses a thread.
    Free(u32),
    /// A home's device is asked for pages, each for a frame.
    Ask(u32, Vec<(u32, u64)>),
    /// A unit leaves its frame.
    Write(u32, u32),
    /// A thread's page goes to its device, for which it waits.
    Sync(u32),
    /// A thread has its page.
    Ready(u32),
    /// Something of a home's device is done.
    Part(u32, u64),
}

pub(super) struct Thread {
    pub random: Random,
    /// Its last object, and what its access is for.
    pub last: u64,
    pub home: u32,
    pub unit: u32,
    pub writes: bool,
    /// It has not run yet.
    pub fresh: bool,
    /// It has written its page through the system, and `parts` parts of it are not on the device.
    pub synced: bool,
    pub parts: u32,
    /// Objects of its row that are left.
    pub left: u64,
    /// Its access has begun, and has not ended.
    pub inside: bool,
    pub frame: Option<u32>,
    pub core: u32,
    pub began: Time,
    pub asked: Time,
    pub came: Time,
    pub resumed: Time,
}

#[derive(Default)]
pub(super) struct Core {
    pub running: Option<u32>,
    pub last: Option<u32>,
    /// What interrupts took, and its thread has not felt yet.
    pub debt: Time,
}

/// Sums of the measurement.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub looked: u64,
    pub missed: u64,
    pub joined: u64,
    pub remapped: u64,
    pub ahead: u64,
    pub wasted: u64,
    pub reads: u64,
    pub writes: u64,
    pub moved: u64,
    pub software: Time,
    pub computing: Time,
    pub throttled: u64,
    pub shootdowns: u64,
    pub log: (u64, u64),
    pub nand_j: f64,
    pub busy_s: f64,
}

pub(super) struct Run<'s, R> {
    pub system: &'s PagingSystem,
    pub zipf: Option<Zipf>,
    pub objects: u64,
    pub events: Events<Event>,
    pub threads: Vec<Thread>,
    pub cores: Vec<Core>,
    pub runnable: VecDeque<u32>,
    pub idle: Vec<u32>,
    pub homes: Vec<Home<R>>,
    /// Objects that are mapped, of SSDAlloc's page buffer.
    pub mapped: Option<Sram>,
    pub lock: Time,
    pub inside: Population,
    pub stages: Stages<4>,
    pub sums: Sums,
    pub before: Sums,
    pub begun: Time,
    pub ended: u64,
    pub back: Vec<(u64, Time)>,
    pub io: Vec<LogIo>,
}

impl PagingSystem {
    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<PagingReport, RunError> {
        self.run_with(seed, |frames| AnyReplacement::new(self.replacement, frames))
    }
    /// Runs it with your own replacement policy. For each controller, `policy` makes one for a
    /// number of frames.
    ///
    /// # Errors
    /// As [`PagingSystem::run`].
    pub fn run_with<R: Replacement>(
        &self,
        seed: u64,
        mut policy: impl FnMut(usize) -> R,
    ) -> Result<PagingReport, RunError> {
        let homes: Option<Vec<Home<R>>> = match self.backend {
            Backend::Flat { .. } => Some(Vec::new()),
            _ => (0..self.controllers).map(|home| self.home(home, seed, &mut policy)).collect(),
        };
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
                synced: false,
                parts: 0,
                left: 0,
                inside: false,
                frame: None,
                core: 0,
                began: Time::ZERO,
                asked: Time::ZERO,
                came: Time::ZERO,
                resumed: Time::ZERO,
            }
        };
        let mapped = match self.backend {
            Backend::Runtime(RuntimeCosts { unit: Unit::Object { buffer }, .. }) => {
                Some(Sram::new(u64::from(buffer), BUFFER_WAYS.min(u64::from(buffer))))
            }
            _ => None,
        };
        let mut run = Run {
            system: self,
            zipf: (self.program.skew > 0.0).then(|| Zipf::new(objects / self.program.run, self.program.skew)),
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
}

impl<R: Replacement> Run<'_, R> {
    /// Draws a thread's next access.
    fn draw(&mut self, number: u32) {
        let program = &self.system.program;
        let (zipf, rows) = (&self.zipf, self.objects / program.run);
        let thread = &mut self.threads[number as usize];
        let object = if thread.left > 0 {
            thread.left -= 1;
            thread.last + 1
        } else {
            thread.left = program.run - 1;
            let row = if thread.random.unit() < program.random {
                match zipf {
                    // Popular rows are scattered: the factor is a prime.
                    Some(zipf) => (zipf.draw(&mut thread.random) as u128 * 2_654_435_761 % u128::from(rows)) as u64,
                    None => thread.random.below(rows),
                }
            } else {
                (thread.last / program.run + 1) % rows
            };
            row * program.run
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
            match home.frames.residency(unit) {
                Residency::Resident(frame) => home.frames.used(frame, writes),
                Residency::Coming(_) => {}
                Residency::Absent => {
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
                Event::LookUp(core) => self.look_up(core),
                Event::Done(core) => self.done(core),
                Event::Free(core) => self.choose(core),
                Event::Ask(home, pages) => self.ask(home, &pages),
                Event::Write(home, unit) => self.write(home, unit),
                Event::Sync(thread) => self.sync(thread),
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
    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        let rank = u8::from(!matches!(
            event,
            Event::Part(..) | Event::Write(..) | Event::Ask(..) | Event::Sync(_) | Event::Ready(_)
        ));
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
        let synced = std::mem::take(&mut thread.synced);
        let cost = match self.system.backend {
            Backend::System(costs) => costs.complete + if other { costs.switch } else { Time::ZERO },
            Backend::Runtime(costs) => costs.materialize + if other { costs.switch } else { Time::ZERO },
            Backend::Flat { .. } | Backend::Controller { .. } => Time::ZERO,
        };
        self.sums.software += cost;
        if synced {
            self.sums.computing += self.system.program.work;
            self.schedule(now + cost + self.system.program.work, Event::Access(number));
            return;
        }
        self.schedule(now + cost + self.system.access, Event::Done(number));
    }
    pub(super) fn running(&self, core: u32) -> u32 {
        self.cores[core as usize].running.expect("a thread runs")
    }
    fn begins(&mut self, core: u32) {
        let now = self.events.now();
        let thread = self.running(core);
        self.draw(thread);
        let thread = &mut self.threads[thread as usize];
        (thread.began, thread.inside) = (now, true);
        self.inside.enter(now);
        self.sums.looked += 1;
        self.look_up(core);
    }
    pub(super) fn look_up(&mut self, core: u32) {
        let now = self.events.now();
        let number = self.running(core);
        let Thread { home, unit, writes, .. } = self.threads[number as usize];
        let bytes = self.system.program.object.max(LINE);
        let (before, joining) = match self.system.backend {
            Backend::Flat { read, write } => {
                self.sums.moved += bytes;
                self.schedule(now + if writes { write } else { read }, Event::Done(core));
                return;
            }
            Backend::Controller { lookup, .. } => (lookup, lookup),
            Backend::System(costs) => (Time::ZERO, costs.fault),
            Backend::Runtime(costs) => (Time::ZERO, costs.signal + self.system.table(costs)),
        };
        let of = &mut self.homes[home as usize];
        match of.frames.residency(unit) {
            Residency::Resident(frame) => {
                of.frames.used(frame, writes);
                self.sums.moved += bytes;
                let mut software = before;
                if let (Some(mapped), Backend::Runtime(costs)) = (&mut self.mapped, self.system.backend)
                    && !mapped.touch(u64::from(unit))
                {
                    self.sums.remapped += 1;
                    software += costs.signal + self.system.table(costs) + costs.materialize + costs.dematerialize;
                    self.sums.software += software;
                }
                self.use_read_ahead(home, frame, unit);
                self.schedule(now + software + self.system.access, Event::Done(core));
            }
            Residency::Coming(frame) => {
                self.sums.joined += 1;
                self.use_read_ahead(home, frame, unit);
                self.spend(joining);
                self.waits(core, frame, now + joining);
            }
            Residency::Absent if of.writing >= self.system.buffer() => {
                self.sums.throttled += 1;
                of.throttled.push_back(core);
            }
            Residency::Absent => {
                self.sums.missed += 1;
                match self.system.backend {
                    Backend::System(costs) => self.faults(core, costs),
                    Backend::Runtime(costs) => self.signalled(core, costs),
                    Backend::Flat { .. } | Backend::Controller { .. } => self.controller_misses(core, before),
                }
            }
        }
    }
    /// CPU time of software. A controller's is no core's.
    pub(super) fn spend(&mut self, time: Time) {
        if !matches!(self.system.backend, Backend::Controller { .. }) {
            self.sums.software += time;
        }
    }
    /// The core's thread waits for a frame. The core is free from a time on, unless it waits, too.
    pub(super) fn waits(&mut self, core: u32, frame: u32, at: Time) {
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
    pub(super) fn stalls(&self) -> bool {
        matches!(self.system.backend, Backend::Controller { .. })
    }
    fn done(&mut self, core: u32) {
        let now = self.events.now();
        let number = self.running(core);
        let thread = &mut self.threads[number as usize];
        thread.inside = false;
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
            self.stages.record(now, split);
        }
        self.inside.leave(thread.began, now);
        self.ended += 1;
        if self.ended == self.system.program.warm_up {
            self.measure(now);
        }
        let Program { synced, work, .. } = self.system.program;
        let thread = &mut self.threads[number as usize];
        if let Backend::System(costs) = self.system.backend
            && synced > 0.0
            && thread.random.unit() < synced
        {
            return self.syncs(core, costs);
        }
        self.sums.computing += work;
        let debt = std::mem::take(&mut self.cores[core as usize].debt);
        self.schedule(now + work + debt, Event::Access(core));
    }

    /// When the accesses that are under way have begun.
    fn entered(&self) -> Vec<Time> {
        self.threads.iter().filter(|thread| thread.inside).map(|thread| thread.began).collect()
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
        let entered = self.entered();
        self.inside.measure_from(now, entered);
        self.stages.clear();
        (self.begun, self.before) = (now, self.counts());
    }
    fn report(mut self) -> Result<PagingReport, RunError> {
        for home in &self.homes {
            home.frames.check();
            home.log.iter().for_each(Log::check);
        }
        let now = self.events.now();
        let entered = self.entered();
        let law = held(self.inside.law(now, entered), now)?;
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
        warnings.extend(self.homes.iter().find_map(|home| home.device.warning()));
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
