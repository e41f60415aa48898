//! A run: threads, the driver, the buffer, the processors, the DMA engine, the NAND.

use std::collections::VecDeque;

use fulgurite_device::Buddy;
use fulgurite_nand::{Command, Nand, NandOp, Profile};
use serde::Serialize;

use crate::events::Events;
use crate::flash::Map;
use crate::planted::Planted;
use crate::random::Random;
use crate::report::{Counted, RunError, held, percent, times};
use crate::servers::Servers;
use crate::stages::{Split, Stages};
use crate::statistics::{Distribution, Law, Population};
use crate::system::{Document, SystemError};
use crate::time::Time;

/// What the buffer is given out in.
const SECTOR: u64 = 512;
const STAGES: [&str; 8] = [
    "place in the buffer",
    "submission",
    "device",
    "completion",
    "invalidation before DMA",
    "wait for DMA",
    "DMA",
    "invalidation after DMA",
];
/// Marks NAND commands of reclaim.
const RECLAIM: u64 = u64::MAX;

/// A device on the DRAM interface, with its host.
#[derive(Clone, Debug)]
pub struct InterfaceSystem {
    /// Threads that each ask for one request at a time.
    pub threads: u32,
    /// Bytes of a request.
    pub request: u64,
    /// Whether they write.
    pub writes: bool,
    /// Requests that run first.
    pub warm_up: u64,
    /// Requests that are measured.
    pub count: u64,
    /// Bytes of the data buffer.
    pub buffer: u64,
    /// The most bytes of a command.
    pub split: u64,
    /// Processors of the host.
    pub processors: u32,
    /// Of each command, its submission and its completion together, on a processor of the host.
    pub protocol: Time,
    /// The same on the device's one processor: it fetches the command, and answers it.
    pub firmware: Time,
    /// Each command is somewhere, and not after the last one.
    pub random: bool,
    /// A write ends once its data is in the buffer. The place is given back when the NAND has it.
    pub cached_writes: bool,
    /// The DMA engine's set-up of each transfer.
    pub dma_setup: Time,
    /// Bytes a second of the DMA engine.
    pub dma_rate: f64,
    /// Bytes a second that the caches are invalidated at, before and after together.
    pub invalidate_rate: f64,
    /// The device answers without NAND.
    pub bypass: bool,
    /// Its NAND.
    pub nand: Profile,
    /// The share of the NAND's pages that can be written.
    pub filled: f64,
    /// Keeps each command's stages, so that percentiles can be split.
    pub explain: bool,
    /// A bug, for the tests of the suite.
    pub planted: Planted,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct InterfaceReport {
    /// Bytes of requests that ended, a second of simulated time.
    pub bytes_per_s: f64,
    /// From a request to its end.
    pub requests: Distribution,
    /// Little's law over the requests.
    pub law: Law,
    /// Where the time of commands goes.
    pub stages: Option<Split>,
    /// Share of the time in which the DMA engine was busy.
    pub dma_busy: f64,
    /// The same of the processors.
    pub processors_busy: f64,
    /// Bytes that crossed the DRAM bus for each byte asked for.
    pub bus_crossings: f64,
    /// The steps of the run's first command by their numbers in the protocol, and when each began.
    pub first_steps: Vec<(u8, f64)>,
    /// When the NAND was first asked for something, in nanoseconds. None where it never was.
    pub nand_began_ns: Option<f64>,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Commands and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl InterfaceReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("MB/s", format!("{:.1}", self.bytes_per_s / 1e6))];
        times(&mut rows, ["requests", "mean us", "p50 us", "p99 us", "p99.99 us"], &self.requests);
        rows.push(("DMA busy", percent(self.dma_busy)));
        rows.push(("processors busy", percent(self.processors_busy)));
        rows.push(("DRAM bus crossings", format!("{:.2}", self.bus_crossings)));
        rows
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The processor submits.
    Submits,
    /// It sees the completion.
    Completes,
    /// It invalidates before the transfer.
    Before,
    /// The engine transfers.
    Transfers,
    /// The processor invalidates after it.
    After,
}

#[derive(Debug)]
enum Event {
    /// The processor has done a step of a command.
    Processor(u32, Step),
    /// The engine has transferred a command's data.
    Dma(u32),
    /// The firmware has fetched a command, or answered it.
    Firmware(u32, Turn),
    /// The device has answered.
    Answers(u32),
}

/// What the firmware does with a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// It fetches it.
    Fetches,
    /// It writes the answer.
    Answers,
}

#[derive(Clone, Copy)]
struct Part {
    thread: u32,
    bytes: u64,
    /// Its first sector in the buffer, once it has a place.
    place: u32,
    /// NAND pages that have not answered.
    left: u32,
    /// The NAND has not done all of it.
    in_nand: bool,
    /// The thread has its answer.
    ended: bool,
    /// When it came to where it is.
    since: Time,
    spent: [Time; STAGES.len()],
}

#[derive(Clone, Copy)]
struct Thread {
    begun: Time,
    parts: u32,
}

impl InterfaceSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document) -> Result<InterfaceSystem, SystemError> {
        let nand = document.nand()?;
        let filled = document.share("flash.filled")?;
        if Map::new(nand.geometry, filled).is_err() {
            return Err(document.refuse("flash.filled", "reclaim needs some spare blocks: write less, but not 0"));
        }
        let system = InterfaceSystem {
            threads: document.count("requests.threads", 1, 1024)? as u32,
            request: document.bytes("requests.size")?,
            writes: document.flag("requests.writes")?,
            warm_up: document.count("requests.warm_up", 0, 1 << 32)?,
            count: document.count("requests.count", 1, 1 << 32)?,
            buffer: document.bytes("device.buffer")?,
            split: document.bytes("driver.split")?,
            processors: document.count("host.processors", 1, 1024)? as u32,
            protocol: document.time("driver.protocol")?,
            firmware: document.time("device.firmware")?,
            random: document.word("requests.pattern", &[("sequential", false), ("random", true)])?,
            cached_writes: document.flag("device.cached_writes")?,
            dma_setup: document.time("dma.setup")?,
            dma_rate: document.rate("dma.rate")?,
            invalidate_rate: document.rate("host.invalidate")?,
            bypass: document.flag("device.bypass")?,
            nand,
            filled,
            explain: false,
            planted: Planted::None,
        };
        for (key, bytes) in
            [("requests.size", system.request), ("device.buffer", system.buffer), ("driver.split", system.split)]
        {
            if bytes == 0 || !bytes.is_multiple_of(SECTOR) || bytes > 1 << 30 {
                return Err(document.refuse(key, "sectors of 512 B are needed, at least one and at most 1G"));
            }
        }
        Ok(system)
    }

    /// Runs it. `seed` is of the addresses of random requests.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<InterfaceReport, RunError> {
        let map = Map::new(self.nand.geometry, self.filled).map_err(|_| RunError::Nothing)?;
        let pages = self.request.div_ceil(u64::from(self.nand.geometry.page_bytes())) + 2;
        let reclaim = if self.writes { 1 << 20 } else { 0 };
        // Cached writes leave more to the NAND than there are threads: what the buffer holds.
        let cached = (self.buffer_bytes() / SECTOR) as usize;
        let mut nand = Nand::new(self.nand, (u64::from(self.threads) * pages) as usize + cached + reclaim, 0);
        map.settle(&mut nand);
        Run {
            system: self,
            nand,
            map,
            ops: Vec::new(),
            cursor: 0,
            events: Events::new(),
            threads: vec![Thread { begun: Time::ZERO, parts: 0 }; self.threads as usize],
            parts: Vec::new(),
            free: Vec::new(),
            buffer: Buddy::new((self.buffer_bytes() / SECTOR) as u32),
            random: Random::new(seed, 0),
            waiting: VecDeque::new(),
            processors: Servers::new(self.processors),
            engine: Servers::new(1),
            firmware: Servers::new(1),
            first_steps: Vec::new(),
            nand_began: None,
            inside: Population::default(),
            stages: Stages::new(STAGES, self.explain),
            crossed: 0,
            asked: 0,
            ended: 0,
            commands: 0,
            begun: Time::ZERO,
            busy: (Time::ZERO, Time::ZERO),
        }
        .drive()
    }
    fn buffer_bytes(&self) -> u64 {
        if self.planted == Planted::EndlessBuffer { 1 << 26 } else { self.buffer }
    }
    /// A transfer alone with all that it needs: set-up, the engine, and invalidation.
    pub fn moves(&self, bytes: u64) -> Time {
        self.transfer(bytes) + self.span(Step::Before, bytes) * 2
    }
    fn transfer(&self, bytes: u64) -> Time {
        let setup = if self.planted == Planted::FreeSetup { Time::ZERO } else { self.dma_setup };
        setup + Time((bytes as f64 * 1e12 / self.dma_rate + 0.5) as u64)
    }
    fn span(&self, step: Step, bytes: u64) -> Time {
        match step {
            Step::Submits => Time(self.protocol.0 / 2),
            Step::Completes => self.protocol - Time(self.protocol.0 / 2),
            Step::Before | Step::After if self.planted == Planted::FreeInvalidation => Time::ZERO,
            Step::Before | Step::After => Time((bytes as f64 * 1e12 / self.invalidate_rate / 2.0 + 0.5) as u64),
            Step::Transfers => self.transfer(bytes),
        }
    }
}

struct Run<'s> {
    system: &'s InterfaceSystem,
    nand: Nand,
    map: Map,
    ops: Vec<NandOp>,
    /// The byte that is asked for next: files are read and written from their beginning.
    cursor: u64,
    events: Events<Event>,
    threads: Vec<Thread>,
    parts: Vec<Part>,
    free: Vec<u32>,
    buffer: Buddy,
    waiting: VecDeque<u32>,
    processors: Servers<(u32, Step)>,
    engine: Servers<u32>,
    firmware: Servers<(u32, Turn)>,
    random: Random,
    first_steps: Vec<(u8, f64)>,
    nand_began: Option<Time>,
    inside: Population,
    stages: Stages<{ STAGES.len() }>,
    crossed: u64,
    asked: u64,
    ended: u64,
    commands: u64,
    begun: Time,
    /// Of the engine and of the processors, when the measurement began.
    busy: (Time, Time),
}

impl Run<'_> {
    fn drive(mut self) -> Result<InterfaceReport, RunError> {
        (0..self.system.threads).for_each(|thread| self.asks(thread));
        let mut done = Vec::new();
        while self.ended < self.system.warm_up + self.system.count {
            let (next, device) = (self.events.next_at(), self.nand.next_event_ns());
            match (next, device) {
                (next, Some(device)) if next.is_none_or(|at| device * 1000 < at.0) => {
                    done.clear();
                    self.nand.advance_to_next(next.map_or(u64::MAX, |at| at.0.div_ceil(1000) - 1), &mut done);
                    for answer in &done {
                        self.page_answers(answer.tag, Time::ns(answer.done_ns));
                    }
                }
                (Some(_), _) => match self.events.next().expect("one lies ahead") {
                    Event::Processor(part, step) => {
                        if let Some(((part, step), span)) = self.processors.end() {
                            self.events.after(span, Event::Processor(part, step));
                        }
                        self.did(part, step);
                    }
                    Event::Dma(part) => {
                        if let Some((part, span)) = self.engine.end() {
                            self.parts[part as usize].waited(5, self.events.now());
                            self.events.after(span, Event::Dma(part));
                        }
                        self.did(part, Step::Transfers);
                    }
                    Event::Firmware(part, turn) => {
                        if let Some(((part, turn), span)) = self.firmware.end() {
                            self.events.after(span, Event::Firmware(part, turn));
                        }
                        match turn {
                            Turn::Fetches => self.executes(part),
                            Turn::Answers => self.answered(part),
                        }
                    }
                    Event::Answers(part) => self.nand_is_done(part),
                },
                (None, _) => unreachable!("each thread has a request under way"),
            }
        }
        self.report()
    }

    /// A thread asks for its next request, in one or more commands.
    fn asks(&mut self, thread: u32) {
        let now = self.events.now();
        self.inside.enter(now);
        let most = self.system.split.min(self.system.buffer_bytes());
        let mut left = self.system.request;
        self.threads[thread as usize] = Thread { begun: now, parts: left.div_ceil(most) as u32 };
        while left > 0 {
            let bytes = left.min(most);
            left -= bytes;
            let part = Part { thread, bytes, place: 0, since: now, ..Part::EMPTY };
            let number = match self.free.pop() {
                Some(number) => {
                    self.parts[number as usize] = part;
                    number
                }
                None => {
                    self.parts.push(part);
                    self.parts.len() as u32 - 1
                }
            };
            self.waiting.push_back(number);
        }
        self.place();
    }
    /// Gives places to those that wait, in their order.
    fn place(&mut self) {
        while let Some(number) = self.waiting.front().copied() {
            let part = &mut self.parts[number as usize];
            let Some(place) = self.buffer.take((part.bytes / SECTOR) as u32) else { return };
            self.waiting.pop_front();
            part.place = place;
            part.waited(0, self.events.now());
            self.process(number, if self.system.writes { Step::Before } else { Step::Submits });
        }
    }
    /// The first command of all comes to a step of the protocol.
    fn first(&mut self, part: u32, step: u8) {
        if self.commands == 0 && part == 0 {
            self.first_steps.push((step, self.events.now().as_ns()));
        }
    }
    fn process(&mut self, part: u32, step: Step) {
        let span = self.system.span(step, self.parts[part as usize].bytes);
        match step {
            Step::Submits => self.first(part, 2),
            Step::Completes => self.first(part, 7),
            Step::Before | Step::Transfers | Step::After => {}
        }
        if let Some(((part, step), span)) = self.processors.begin((part, step), span) {
            self.events.after(span, Event::Processor(part, step));
        }
    }
    fn transfer(&mut self, number: u32) {
        let bytes = self.parts[number as usize].bytes;
        self.first(number, if self.system.writes { 1 } else { 9 });
        // Out of the one memory and into the other, over the bus that they share.
        self.crossed += if self.system.planted == Planted::OneCrossing { bytes } else { 2 * bytes };
        let span = self.system.span(Step::Transfers, bytes);
        if let Some((part, span)) = self.engine.begin(number, span) {
            self.parts[part as usize].waited(5, self.events.now());
            self.events.after(span, Event::Dma(part));
        }
    }
    /// A command has come so far.
    fn did(&mut self, number: u32, step: Step) {
        let now = self.events.now();
        let part = &mut self.parts[number as usize];
        let stage = match step {
            Step::Submits => 1,
            Step::Completes => 3,
            Step::Before => 4,
            Step::Transfers => 6,
            Step::After => 7,
        };
        part.waited(stage, now);
        match (step, self.system.writes) {
            (Step::Submits, _) => self.turns(number, Turn::Fetches),
            (Step::Completes, false) => self.process(number, Step::Before),
            (Step::Before, _) => self.transfer(number),
            (Step::Transfers, false) => {
                // Its data has left the buffer.
                self.release(number);
                self.process(number, Step::After);
            }
            (Step::Transfers, true) => self.process(number, Step::After),
            (Step::After, false) => self.ends(number),
            (Step::After, true) => self.process(number, Step::Submits),
            (Step::Completes, true) => {
                // A cached write keeps its place until the NAND has its data.
                if !self.parts[number as usize].in_nand {
                    self.release(number);
                }
                self.ends(number);
            }
        }
    }
    fn release(&mut self, number: u32) {
        let Part { place, bytes, .. } = self.parts[number as usize];
        self.buffer.give(place, (bytes / SECTOR) as u32);
        self.place();
    }
    fn turns(&mut self, number: u32, turn: Turn) {
        let half = Time(self.system.firmware.0 / 2);
        let span = if turn == Turn::Fetches { half } else { self.system.firmware - half };
        self.first(number, if turn == Turn::Fetches { 3 } else { 5 });
        if let Some(((part, turn), span)) = self.firmware.begin((number, turn), span) {
            self.events.after(span, Event::Firmware(part, turn));
        }
    }
    /// The device does it.
    fn executes(&mut self, number: u32) {
        let now = self.events.now();
        if self.system.bypass {
            self.events.schedule(now, 0, Event::Answers(number));
            return;
        }
        self.first(number, 4);
        self.nand_began.get_or_insert(now);
        let bytes = self.parts[number as usize].bytes;
        let page_bytes = u64::from(self.system.nand.geometry.page_bytes());
        let capacity = self.map.pages() * page_bytes;
        if self.system.random {
            self.cursor = self.random.below((capacity / bytes).max(1)) * bytes;
        }
        if self.cursor + bytes > capacity {
            self.cursor = 0;
        }
        let (first, last) = (self.cursor / page_bytes, (self.cursor + bytes - 1) / page_bytes);
        let part = &mut self.parts[number as usize];
        (part.left, part.in_nand) = ((last - first + 1) as u32, true);
        let writes = self.system.writes != (self.system.planted == Planted::SwappedOperations);
        for logical in first..=last {
            self.ops.clear();
            if writes {
                self.map.write(logical, &mut self.ops);
            } else {
                let begin = self.cursor.max(logical * page_bytes);
                let end = (self.cursor + bytes).min((logical + 1) * page_bytes);
                let (offset, bytes) = ((begin % page_bytes) as u32, (end - begin) as u32);
                self.ops.push(NandOp::Read { page: self.map.place(logical), offset, bytes });
            }
            let own = self.ops.len() - 1;
            for (turn, op) in self.ops.iter().enumerate() {
                let tag = if turn == own { u64::from(number) } else { RECLAIM };
                let command = Command { tag, op: *op, reclaim: turn < own };
                let taken = self.nand.submit(now.0.div_ceil(1000), command);
                taken.unwrap_or_else(|error| panic!("the map or the size of the table is wrong: {error}"));
            }
        }
        self.cursor += bytes;
        if self.caches() {
            self.turns(number, Turn::Answers);
        }
    }
    /// Whether writes end before the NAND has them.
    fn caches(&self) -> bool {
        self.system.writes && self.system.cached_writes
    }
    /// The NAND has done a command, or there is none to ask.
    fn nand_is_done(&mut self, number: u32) {
        let part = &mut self.parts[number as usize];
        part.in_nand = false;
        let had_its_answer = part.ended;
        if !self.caches() || self.system.bypass {
            self.turns(number, Turn::Answers);
        } else if had_its_answer {
            self.release(number);
            self.free.push(number);
        }
    }
    fn page_answers(&mut self, tag: u64, at: Time) {
        if tag == RECLAIM {
            return;
        }
        let part = &mut self.parts[tag as usize];
        part.left -= 1;
        if part.left == 0 {
            self.events.schedule(at.max(self.events.now()), 0, Event::Answers(tag as u32));
        }
    }
    fn answered(&mut self, number: u32) {
        self.parts[number as usize].waited(2, self.events.now());
        self.process(number, Step::Completes);
    }
    fn ends(&mut self, number: u32) {
        let now = self.events.now();
        let part = &mut self.parts[number as usize];
        part.ended = true;
        let Part { thread, spent, in_nand, .. } = *part;
        self.stages.record(spent);
        if !in_nand {
            self.free.push(number);
        }
        self.commands += 1;
        let of = &mut self.threads[thread as usize];
        of.parts -= 1;
        if of.parts > 0 {
            return;
        }
        self.inside.leave(of.begun, now);
        self.ended += 1;
        self.asked += self.system.request;
        if self.ended == self.system.warm_up {
            self.inside.measure_from(now);
            self.stages.clear();
            (self.crossed, self.asked, self.begun) = (0, 0, now);
            self.busy = (self.engine.busy(), self.processors.busy());
        }
        self.asks(thread);
    }

    fn report(mut self) -> Result<InterfaceReport, RunError> {
        let now = self.events.now();
        let law = held(self.inside.law(now))?;
        let span = (now - self.begun).as_s();
        Ok(InterfaceReport {
            bytes_per_s: self.asked as f64 / span,
            requests: self.inside.times().distribution(),
            law,
            stages: self.stages.split(),
            dma_busy: ((self.engine.busy() - self.busy.0).as_s() / span).min(1.0),
            processors_busy: ((self.processors.busy() - self.busy.1).as_s() / span).min(1.0),
            bus_crossings: self.crossed as f64 / self.asked as f64,
            first_steps: self.first_steps,
            nand_began_ns: self.nand_began.map(Time::as_ns),
            simulated_s: span,
            counted: Counted { requests: self.commands, events: self.events.happened() },
            warnings: Vec::new(),
        })
    }
}

impl Part {
    const EMPTY: Part = Part {
        thread: 0,
        bytes: 0,
        place: 0,
        left: 0,
        in_nand: false,
        ended: false,
        since: Time::ZERO,
        spent: [Time::ZERO; STAGES.len()],
    };
    /// The time since the last step was spent in a stage.
    fn waited(&mut self, stage: usize, now: Time) {
        self.spent[stage] += now - self.since;
        self.since = now;
    }
}
