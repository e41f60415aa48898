//! A run of requests over the path of memory.

use std::collections::{HashMap, VecDeque};

use fulgurite_nand::Profile;
use serde::Serialize;

use crate::energy::{DramEnergy, DramPower};
use crate::events::Events;
use crate::flash::Map;
use crate::flash::requests::{Asked, Source};
use crate::flash::{Arrivals, Pattern, Requests};
use crate::memory::{Controller, ControllerTiming, FlashPages, Met, Tags, Wanted};
use crate::planted::Planted;
use crate::report::{Counted, RunError, held, percent, steady, times};
use crate::slots::Slots;
use crate::stages::{Split, Stages};
use crate::statistics::{Distribution, Law, Population, Times};
use crate::system::{Document, SystemError};
use crate::time::Time;
use crate::trace::Record;

/// DRAM as a cache of flash pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PageCache {
    /// Bytes of a page.
    pub page: u64,
    /// Sets.
    pub sets: u32,
    /// Ways of each.
    pub ways: u32,
    /// A look-up of tags.
    pub tags: Time,
    /// The flash.
    pub nand: Profile,
    /// The share of it that is used.
    pub filled: f64,
}

/// Requests, a link, DRAM, and flash behind it.
#[derive(Clone, Debug)]
pub struct PathSystem {
    /// What is asked.
    pub requests: Requests,
    /// The trace, if requests are of one.
    pub trace: Option<Vec<Record>>,
    /// From the processor to the tags or controllers, and the same back.
    pub link_latency: Time,
    /// Bytes a second in each direction of the link.
    pub link_rate: f64,
    /// Independent channels, each with a controller.
    pub channels: u32,
    /// Banks of each.
    pub banks: u32,
    /// Rows of each bank.
    pub rows: u32,
    /// Bytes of a row.
    pub row: u64,
    /// Bytes of a burst.
    pub line: u64,
    /// Requests of a controller's queue.
    pub queue: usize,
    /// The times of the controllers.
    pub timing: ControllerTiming,
    /// None: DRAM is all there is.
    pub cache: Option<PageCache>,
    /// What DRAM takes.
    pub energy: DramEnergy,
    /// Keeps what is needed to split percentiles.
    pub explain: bool,
    /// A bug, for the suite's tests.
    pub planted: Planted,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PathReport {
    /// Requests that ended, a second of simulated time.
    pub requests_per_s: f64,
    /// Bytes of them, a second.
    pub bytes_per_s: f64,
    /// Reads, from their arrival to their data.
    pub reads: Distribution,
    /// Writes.
    pub writes: Distribution,
    /// Little's law over the requests.
    pub law: Law,
    /// Shares of DRAM's accesses that met their row open, none, and another. None without any.
    pub row_hits: Option<f64>,
    /// No row was open.
    pub row_misses: Option<f64>,
    /// Another row was open.
    pub row_conflicts: Option<f64>,
    /// Share of the time in which the data buses were busy.
    pub bus_busy: f64,
    /// Refreshes of all channels.
    pub refreshes: u64,
    /// Requests whose page was not in DRAM, as a share. None without a cache.
    pub page_misses: Option<f64>,
    /// Pages that were written back.
    pub written_back: u64,
    /// What DRAM takes.
    pub dram: DramPower,
    /// Joules that the flash has taken. None without a cache.
    pub energy_j: Option<f64>,
    /// The flash's mean power in watts: the energy over the time. None without a cache.
    pub power_w: Option<f64>,
    /// What the time of requests is spent on.
    pub stages: Option<Split>,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Requests and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl PathReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("requests/s", format!("{:.0}", self.requests_per_s)),
            ("MB/s", format!("{:.1}", self.bytes_per_s / 1e6)),
        ];
        let names = ["reads", "read mean us", "read p50 us", "read p99 us", "read p99.99 us"];
        times(&mut rows, names, &self.reads);
        let names = ["writes", "write mean us", "write p50 us", "write p99 us", "write p99.99 us"];
        times(&mut rows, names, &self.writes);
        rows.push(("under way", format!("{:.2}", self.law.mean_present)));
        rows.extend(self.row_hits.map(|share| ("row hits", percent(share))));
        rows.extend(self.row_misses.map(|share| ("row misses", percent(share))));
        rows.extend(self.row_conflicts.map(|share| ("row conflicts", percent(share))));
        rows.push(("data buses busy", percent(self.bus_busy)));
        rows.extend(self.page_misses.map(|share| ("page misses", percent(share))));
        if self.page_misses.is_some() {
            rows.push(("pages written back", self.written_back.to_string()));
        }
        rows.extend(self.dram.rows());
        rows.extend(self.power_w.map(|watts| ("flash W", format!("{watts:.3}"))));
        rows
    }
}

/// Marks a line of a page that moves, for which no request waits.
const BACKGROUND: u32 = 1 << 31;
const STAGES: [&str; 4] = ["link", "tags", "flash", "DRAM"];

#[derive(Debug)]
enum Event {
    /// A request comes.
    Comes(Asked),
    /// It has crossed the link.
    Reaches(u32),
    /// A line has its data.
    Data(u32),
    /// It has ended.
    Ends(u32),
}

#[derive(Clone, Copy)]
struct Request {
    came: Time,
    writes: bool,
    /// Its first line, and how many.
    line: u64,
    lines: u32,
    left: u32,
    bytes: u64,
    /// Time in each stage so far, and when it entered the DRAM.
    link: Time,
    tags: Time,
    entered: Time,
}

struct Channel {
    controller: Controller,
    /// What has no room yet.
    backlog: VecDeque<Wanted>,
    wake: Time,
    bursts: u64,
}

struct Run<'s> {
    system: &'s PathSystem,
    source: Source,
    count: u64,
    events: Events<Event>,
    requests: Slots<Request>,
    channels: Vec<Channel>,
    cache: Option<Cached>,
    down_free: Time,
    up_free: Time,
    inside: Population,
    reads: Times,
    writes: Times,
    stages: Stages<4>,
    bytes: u64,
    ended: u64,
    begun: Time,
    before: (Met, u64, (u64, u64, u64)),
    energy_before: Option<f64>,
    done: Vec<(u32, Time)>,
}

struct Cached {
    shape: PageCache,
    tags: Tags,
    flash: FlashPages,
    /// Requests that wait for a page.
    waiting: HashMap<u32, Vec<u32>>,
    /// Those whose set has no way left.
    crowded: VecDeque<u32>,
    looked: u64,
    missed: u64,
    written_back: u64,
    read: Vec<(u64, Time)>,
}

/// Flash requests that may be under way at once.
const FLASH_DEPTH: usize = 1 << 20;

/// The most bytes of a row.
const ROW_MAX: u64 = 1 << 20;

impl PathSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document, trace: Option<&[Record]>) -> Result<PathSystem, SystemError> {
        let count = |key: &str, high| document.count(key, 1, high);
        let time = |key: &str| document.command_time(key);
        let (row, line) = (document.bytes("dram.row")?, document.bytes("dram.line")?);
        if line == 0 || row < line || row % line != 0 {
            return Err(document.refuse("dram.line", "a row must be whole lines"));
        }
        if row > ROW_MAX {
            return Err(document.refuse("dram.row", "a row is at most 1M"));
        }
        let timing = ControllerTiming {
            open: time("dram.open")?,
            column: time("dram.column")?,
            burst: time("dram.burst")?,
            close: time("dram.close")?,
            active: time("dram.active")?,
            refresh_every: document.time("dram.refresh_every")?,
            refresh: time("dram.refresh")?,
        };
        if timing.burst == Time::ZERO {
            return Err(document.refuse("dram.burst", "more than no time is needed"));
        }
        if timing.refresh_every > Time::ZERO && timing.refresh + timing.close >= timing.refresh_every {
            return Err(document.refuse("dram.refresh", "it must be shorter than dram.refresh_every"));
        }
        let cache = match document.word("cache.kind", &[("none", false), ("pages", true)])? {
            false => None,
            true => Some(PathSystem::read_cache(document, line)?),
        };
        let requests = Requests::read(document, trace.is_some())?;
        let system = PathSystem {
            requests,
            trace: trace.map(<[Record]>::to_vec),
            link_latency: time("link.latency")?,
            link_rate: document.rate("link.rate")?,
            channels: count("dram.channels", 1 << 10)? as u32,
            banks: count("dram.banks", 1 << 12)? as u32,
            rows: count("dram.rows", 1 << 24)? as u32,
            row,
            line,
            queue: count("dram.queue", 1 << 12)? as usize,
            timing,
            cache,
            energy: DramEnergy::read(document)?,
            explain: false,
            planted: Planted::None,
        };
        let capacity = system.capacity();
        if requests.pattern != Pattern::Trace && !(1..=capacity).contains(&requests.bytes) {
            return Err(document.refuse("requests.size", format!("1 B to {capacity} B, which is all there is")));
        }
        if let Some(records) = trace {
            crate::flash::check_trace(document, records, requests, capacity)?;
        }
        if let Some(cache) = &system.cache
            && u64::from(cache.sets) * u64::from(cache.ways) * cache.page > system.dram_bytes()
        {
            return Err(document.refuse("cache.sets", format!("DRAM has {} B", system.dram_bytes())));
        }
        Ok(system)
    }
    fn read_cache(document: &Document, line: u64) -> Result<PageCache, SystemError> {
        let (nand, filled) = document.filled_nand()?;
        let page = u64::from(nand.geometry.page_bytes());
        if page % line != 0 {
            return Err(document.refuse("dram.line", "a page of NAND must be whole lines"));
        }
        Ok(PageCache {
            page,
            sets: document.count("cache.sets", 1, 1 << 24)? as u32,
            ways: document.count("cache.ways", 1, 1 << 12)? as u32,
            tags: document.time("cache.tags")?,
            nand,
            filled,
        })
    }
    fn dram_bytes(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.banks) * u64::from(self.rows) * self.row
    }
    /// Bytes that requests can be for.
    pub fn capacity(&self) -> u64 {
        match &self.cache {
            None => self.dram_bytes(),
            Some(cache) => Map::new(cache.nand.geometry, cache.filled).map_or(0, |map| map.pages() * cache.page),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<PathReport, RunError> {
        let source = match &self.trace {
            Some(records) => Source::trace(records.clone(), self.requests.arrivals == Arrivals::Trace, self.line),
            None => Source::made(self.requests, self.line, self.capacity() / self.line, seed),
        };
        let count = self
            .trace
            .as_ref()
            .map_or(self.requests.count, |records| (records.len() as u64).saturating_sub(self.requests.warm_up));
        let cache = match &self.cache {
            None => None,
            Some(shape) => {
                let flash = FlashPages::new(shape.nand, shape.filled, FLASH_DEPTH, seed);
                let mut tags = Tags::new(shape.sets, shape.ways);
                // Full and clean, as after a long time of reads.
                let frames = u64::from(shape.sets) * u64::from(shape.ways);
                tags.fill((0..frames.min(self.capacity() / shape.page)).map(|page| page as u32));
                Some(Cached {
                    shape: *shape,
                    tags,
                    flash: flash.map_err(|_| RunError::Nothing)?,
                    waiting: HashMap::new(),
                    crowded: VecDeque::new(),
                    looked: 0,
                    missed: 0,
                    written_back: 0,
                    read: Vec::new(),
                })
            }
        };
        let channel = || Channel {
            controller: Controller::new(self.timing, self.banks, self.queue),
            backlog: VecDeque::new(),
            wake: Time(u64::MAX),
            bursts: 0,
        };
        let run = Run {
            system: self,
            source,
            count,
            events: Events::new(),
            requests: Slots::new(),
            channels: (0..self.channels).map(|_| channel()).collect(),
            cache,
            down_free: Time::ZERO,
            up_free: Time::ZERO,
            inside: Population::default(),
            reads: Times::new(),
            writes: Times::new(),
            stages: Stages::new(STAGES, self.explain),
            bytes: 0,
            ended: 0,
            begun: Time::ZERO,
            before: Default::default(),
            energy_before: None,
            done: Vec::new(),
        };
        run.drive()
    }
}

/// When the requests that are under way came.
fn entered(requests: &Slots<Request>) -> impl Iterator<Item = Time> + '_ {
    requests.under_way().map(|request| request.came)
}

impl Run<'_> {
    fn drive(mut self) -> Result<PathReport, RunError> {
        match self.system.requests.arrivals {
            Arrivals::Closed(depth) => (0..depth).for_each(|_| self.comes_next(Time::ZERO)),
            Arrivals::Poisson(_) | Arrivals::Trace => self.comes_next(Time::ZERO),
        }
        let last = self.system.requests.warm_up + self.count;
        while self.ended < last {
            let event = self.events.next_at().unwrap_or(Time(u64::MAX));
            let (channel, wake) = self.first_channel();
            let flash = self.cache.as_ref().and_then(|cache| cache.flash.next_at()).unwrap_or(Time(u64::MAX));
            // What comes now is seen before a controller chooses.
            if flash < event && flash < wake {
                self.flash(event.min(wake));
            } else if event <= wake {
                match self.events.next() {
                    Some(Event::Comes(asked)) => self.comes(asked),
                    Some(Event::Reaches(number)) => self.reaches(number),
                    Some(Event::Data(number)) => self.data(number),
                    Some(Event::Ends(number)) => self.ends(number),
                    // A trace that is shorter than the warm-up.
                    None => break,
                }
            } else {
                self.serve(channel, wake);
            }
        }
        self.report()
    }
    fn first_channel(&self) -> (usize, Time) {
        let (mut first, mut wake) = (0, self.channels[0].wake);
        for (at, channel) in self.channels.iter().enumerate().skip(1) {
            if channel.wake < wake {
                (first, wake) = (at, channel.wake);
            }
        }
        (first, wake)
    }

    fn comes_next(&mut self, now: Time) {
        if let Some(asked) = self.source.next() {
            self.events.schedule(asked.at.unwrap_or(now).max(now), 0, Event::Comes(asked));
        }
    }
    fn on_link(&self, bytes: u64) -> Time {
        if self.system.planted == Planted::FreeLink {
            return Time::ZERO;
        }
        Time((bytes as f64 * 1e12 / self.system.link_rate + 0.5) as u64)
    }
    fn comes(&mut self, asked: Asked) {
        let now = self.events.now();
        if asked.at.is_some() {
            self.comes_next(now);
        }
        self.inside.enter(now);
        let data = if asked.writes { self.on_link(asked.bytes) } else { Time::ZERO };
        let crossed = self.down_free.max(now) + data;
        self.down_free = crossed;
        let reaches = crossed + self.system.link_latency;
        let request = Request {
            came: now,
            writes: asked.writes,
            line: asked.page,
            lines: asked.pages,
            left: asked.pages,
            bytes: asked.bytes,
            link: reaches - now,
            tags: Time::ZERO,
            entered: reaches,
        };
        let number = self.requests.add(request);
        self.events.schedule(reaches, 0, Event::Reaches(number));
    }
    /// At the tags, where there are some.
    fn reaches(&mut self, number: u32) {
        let now = self.events.now();
        let Some(cache) = &mut self.cache else { return self.enters(number, now) };
        let request = &mut self.requests[number];
        let page = (request.line * self.system.line / cache.shape.page) as u32;
        cache.looked += 1;
        let tags = if self.system.planted == Planted::FreeTags { Time::ZERO } else { cache.shape.tags };
        if request.tags == Time::ZERO && tags > Time::ZERO {
            // It comes again when the tags have been read.
            request.tags = tags;
            cache.looked -= 1;
            self.events.schedule(now + tags, 0, Event::Reaches(number));
            return;
        }
        if cache.tags.touch(page, request.writes) {
            return self.enters(number, now);
        }
        cache.missed += 1;
        self.misses(number, page);
    }
    fn misses(&mut self, number: u32, page: u32) {
        let now = self.events.now();
        let Some(cache) = &mut self.cache else { return };
        if let Some(waiting) = cache.waiting.get_mut(&page) {
            waiting.push(number);
            return;
        }
        let Some(replaced) = cache.tags.replace(page) else {
            cache.crowded.push_back(number);
            return;
        };
        cache.waiting.insert(page, vec![number]);
        let keeps = self.system.planted != Planted::LostWriteBack;
        let victim = replaced.page.filter(|_| replaced.dirty && keeps);
        if let Some(victim) = victim {
            cache.written_back += 1;
            cache.flash.write(now, victim);
        }
        cache.flash.read(now, page, u64::from(page));
        if let Some(victim) = victim {
            self.moves(victim, now);
        }
    }
    /// The lines of a page cross DRAM's buses.
    fn moves(&mut self, page: u32, now: Time) {
        let Some(shape) = self.cache.as_ref().map(|cache| cache.shape) else { return };
        let lines = shape.page / self.system.line;
        let first = self.frame(page) * lines;
        if self.system.planted == Planted::FreeMove {
            return;
        }
        (first..first + lines).for_each(|line| self.line(line, BACKGROUND, now));
    }
    /// The frame of a page in DRAM: the set decides, and the page the way.
    fn frame(&self, page: u32) -> u64 {
        let Some(shape) = self.cache.as_ref().map(|cache| cache.shape) else { return u64::from(page) };
        let way = page / shape.sets % shape.ways;
        u64::from(page % shape.sets) * u64::from(shape.ways) + u64::from(way)
    }
    /// Flash has read something, before a time.
    fn flash(&mut self, before: Time) {
        let Some(cache) = &mut self.cache else { return };
        let mut read = std::mem::take(&mut cache.read);
        read.clear();
        cache.flash.advance((before < Time(u64::MAX)).then_some(before), &mut read);
        for (page, at) in &read {
            let page = *page as u32;
            let Some(cache) = &mut self.cache else { return };
            cache.tags.arrived(page);
            let waiting = cache.waiting.remove(&page).unwrap_or_default();
            let again: Vec<u32> = cache.crowded.drain(..).collect();
            let at = (*at).max(self.events.now());
            self.moves(page, at);
            for number in waiting {
                if self.requests[number].writes {
                    self.soil(page);
                }
                self.enters(number, at);
            }
            // What found no way tries again.
            again.into_iter().for_each(|number| self.events.schedule(at, 0, Event::Reaches(number)));
        }
        if let Some(cache) = &mut self.cache {
            cache.read = read;
        }
    }
    fn soil(&mut self, page: u32) {
        if let Some(cache) = &mut self.cache {
            cache.tags.soil(page);
        }
    }
    /// A request's lines enter the controllers.
    fn enters(&mut self, number: u32, now: Time) {
        let request = &mut self.requests[number];
        request.entered = now;
        let (line, lines) = (request.line, request.lines);
        let base = match &self.cache {
            None => line,
            Some(cache) => {
                let of_page = cache.shape.page / self.system.line;
                self.frame((line / of_page) as u32) * of_page + line % of_page
            }
        };
        for at in base..base + u64::from(lines) {
            self.line(at, number, now);
        }
    }
    fn line(&mut self, line: u64, tag: u32, now: Time) {
        let (channels, banks) = (u64::from(self.system.channels), u64::from(self.system.banks));
        let columns = self.system.row / self.system.line;
        let (channel, rest) = ((line % channels) as usize, line / channels / columns);
        let row = (rest / banks % u64::from(self.system.rows)) as u32;
        let wanted = Wanted { bank: (rest % banks) as u32, row, tag };
        let channel = &mut self.channels[channel];
        if channel.backlog.is_empty() && channel.controller.has_room() {
            channel.controller.push(wanted);
            channel.wake = channel.wake.min(now);
        } else {
            channel.backlog.push_back(wanted);
        }
    }
    /// A controller does what it can.
    fn serve(&mut self, at: usize, now: Time) {
        let channel = &mut self.channels[at];
        self.done.clear();
        channel.wake = channel.controller.advance(now, &mut self.done);
        while channel.controller.has_room()
            && let Some(wanted) = channel.backlog.pop_front()
        {
            channel.controller.push(wanted);
            channel.wake = channel.wake.min(Time(now.0 + 1));
        }
        channel.bursts += self.done.len() as u64;
        for (tag, at) in &self.done {
            if *tag != BACKGROUND {
                self.events.schedule(*at, 0, Event::Data(*tag));
            }
        }
    }
    fn data(&mut self, number: u32) {
        let now = self.events.now();
        let request = &mut self.requests[number];
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        let (bytes, writes) = (request.bytes, request.writes);
        let data = if writes { Time::ZERO } else { self.on_link(bytes) };
        let crossed = self.up_free.max(now) + data;
        self.up_free = crossed;
        let ends = crossed + self.system.link_latency;
        let request = &mut self.requests[number];
        request.link += ends - now;
        let dram = now - request.entered;
        // The rest: waiting for the page, or for a way of its set.
        let flash = (ends - request.came) - request.link - request.tags - dram;
        self.stages.record(ends, [request.link, request.tags, flash, dram]);
        if ends == now {
            self.ends(number);
        } else {
            self.events.schedule(ends, 0, Event::Ends(number));
        }
    }
    fn ends(&mut self, number: u32) {
        let now = self.events.now();
        let request = self.requests[number];
        self.requests.ends(number);
        self.inside.leave(request.came, now);
        let times = if request.writes { &mut self.writes } else { &mut self.reads };
        times.record(now - request.came);
        self.bytes += request.bytes;
        self.ended += 1;
        if self.ended == self.system.requests.warm_up {
            self.measure(now);
        }
        if let Arrivals::Closed(_) = self.system.requests.arrivals {
            self.comes_next(now);
        }
    }
    fn counts(&self) -> (Met, u64, (u64, u64, u64)) {
        let mut met = Met::default();
        for channel in &self.channels {
            let of = channel.controller.met();
            met.hits += of.hits;
            met.closed += of.closed;
            met.conflicts += of.conflicts;
            met.refreshes += of.refreshes;
        }
        let bursts = self.channels.iter().map(|channel| channel.bursts).sum();
        let pages = self.cache.as_ref().map_or((0, 0, 0), |c| (c.looked, c.missed, c.written_back));
        (met, bursts, pages)
    }
    /// Joules that the flash has taken so far.
    fn flash_j(&self) -> Option<f64> {
        self.cache.as_ref().map(|cache| cache.flash.energy_j())
    }
    fn measure(&mut self, now: Time) {
        let entered = entered(&self.requests);
        self.inside.measure_from(now, entered);
        (self.reads, self.writes, self.bytes) = (Times::new(), Times::new(), 0);
        self.stages.clear();
        (self.begun, self.before) = (now, self.counts());
        self.energy_before = self.flash_j();
    }
    fn report(mut self) -> Result<PathReport, RunError> {
        if self.ended <= self.system.requests.warm_up {
            return Err(RunError::Nothing);
        }
        self.channels.iter().for_each(|channel| channel.controller.check());
        let now = self.events.now();
        let entered = entered(&self.requests);
        let law = held(self.inside.law(now, entered), now)?;
        if let Arrivals::Poisson(_) = self.system.requests.arrivals {
            steady(law)?;
        }
        let span = (now - self.begun).as_s();
        let ((met, bursts, pages), (met_before, bursts_before, pages_before)) = (self.counts(), self.before);
        let of = |after: u64, before: u64| (after - before) as f64;
        let (hits, closed, conflicts) =
            (of(met.hits, met_before.hits), of(met.closed, met_before.closed), of(met.conflicts, met_before.conflicts));
        let all = hits + closed + conflicts;
        let share = |part: f64| (all > 0.0).then(|| part / all);
        let looked = of(pages.0, pages_before.0);
        let reclaimed = self.cache.as_ref().map(|cache| cache.flash.reclaimed());
        let warnings = reclaimed.and_then(|of| of.warning("run longer")).into_iter().collect();
        let burst_s = self.system.timing.burst.as_s() * of(bursts, bursts_before);
        let moved = (bursts - bursts_before) * self.system.line;
        let energy_j = self.flash_j().zip(self.energy_before).map(|(after, before)| after - before);
        Ok(PathReport {
            requests_per_s: law.rate_per_s,
            bytes_per_s: self.bytes as f64 / span,
            reads: self.reads.distribution(),
            writes: self.writes.distribution(),
            law,
            row_hits: share(hits),
            row_misses: share(closed),
            row_conflicts: share(conflicts),
            bus_busy: burst_s / span / f64::from(self.system.channels),
            refreshes: met.refreshes - met_before.refreshes,
            page_misses: (self.cache.is_some() && looked > 0.0).then(|| of(pages.1, pages_before.1) / looked),
            written_back: pages.2 - pages_before.2,
            dram: self.system.energy.power(self.system.dram_bytes(), moved, span),
            energy_j,
            power_w: energy_j.map(|energy_j| energy_j / span),
            stages: self.stages.split(),
            simulated_s: span,
            counted: Counted { requests: self.ended, events: self.events.happened() },
            warnings,
        })
    }
}
