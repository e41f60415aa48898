//! A run over the DRAM interface: threads, the driver, the buffer, the processors, the DMA engine.

use std::collections::VecDeque;

use fulgurite_device::Buddy;

use super::media::Media;
use super::requests::{Ended, Requests};
use super::system::{Dma, InterfaceReport, InterfaceSystem, SECTOR};
use super::tally::{Busy, Spent, Tally};
use crate::events::Events;
use crate::planted::Planted;
use crate::report::RunError;
use crate::servers::Servers;
use crate::slots::Slots;
use crate::time::Time;

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The processor submits.
    Submits,
    /// It sees the completion.
    Completes,
    /// It invalidates before the transfer.
    Before,
    /// It invalidates after it.
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
    spent: Spent<{ STAGES.len() }>,
}

/// Runs it. `seed` is of the addresses of random requests.
pub fn run(system: &InterfaceSystem, dma: Dma, seed: u64) -> Result<InterfaceReport, RunError> {
    Run {
        system,
        dma,
        media: Media::new(system, seed)?,
        events: Events::new(),
        requests: Requests::new(system),
        parts: Slots::new(),
        buffer: Buddy::new(system.buffer_sectors()),
        waiting: VecDeque::new(),
        processors: Servers::new(system.processors),
        engine: Servers::new(1),
        firmware: Servers::new(1),
        tally: Tally::new(STAGES, system.explain),
    }
    .drive()
}

struct Run<'s> {
    system: &'s InterfaceSystem,
    dma: Dma,
    media: Media,
    events: Events<Event>,
    requests: Requests,
    parts: Slots<Part>,
    buffer: Buddy,
    waiting: VecDeque<u32>,
    processors: Servers<(u32, Step)>,
    engine: Servers<u32>,
    firmware: Servers<(u32, Turn)>,
    tally: Tally<{ STAGES.len() }>,
}

impl Run<'_> {
    fn drive(mut self) -> Result<InterfaceReport, RunError> {
        (0..self.system.threads).for_each(|thread| self.asks(thread));
        let mut answers = Vec::new();
        while !self.requests.is_done() {
            let next = self.events.next_at();
            if self.media.is_first(next) {
                self.media.advance(next, &mut answers);
                answers.iter().for_each(|(tag, at)| self.page_answers(*tag as u32, *at));
                continue;
            }
            match self.events.next().expect("each thread has a request under way") {
                Event::Processor(part, step) => {
                    if let Some(((part, step), span)) = self.processors.end() {
                        self.events.after(span, Event::Processor(part, step));
                    }
                    self.did(part, step);
                }
                Event::Dma(part) => {
                    if let Some((part, span)) = self.engine.end() {
                        self.parts[part].spent.waited(5, self.events.now());
                        self.events.after(span, Event::Dma(part));
                    }
                    self.moved(part);
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
            }
        }
        self.report()
    }

    /// A thread asks for its next request, in one or more commands.
    fn asks(&mut self, thread: u32) {
        let now = self.events.now();
        for bytes in self.requests.ask(thread, now) {
            let spent = Spent::new(now);
            let part = Part { thread, bytes, place: 0, left: 0, in_nand: false, ended: false, spent };
            self.waiting.push_back(self.parts.add(part));
        }
        self.place();
    }
    /// Gives places to those that wait, in their order.
    fn place(&mut self) {
        while let Some(number) = self.waiting.front().copied() {
            let part = &mut self.parts[number];
            let Some(place) = self.buffer.take((part.bytes / SECTOR) as u32) else { return };
            self.waiting.pop_front();
            part.place = place;
            part.spent.waited(0, self.events.now());
            self.process(number, if self.system.writes { Step::Before } else { Step::Submits });
        }
    }
    /// A command comes to a step of the protocol.
    fn comes(&mut self, part: u32, step: u8) {
        self.tally.comes(part, step, self.events.now());
    }
    /// A processor's time for a step.
    fn span(&self, step: Step, bytes: u64) -> Time {
        let protocol = self.system.protocol;
        match step {
            Step::Submits => Time(protocol.0 / 2),
            Step::Completes => protocol - Time(protocol.0 / 2),
            Step::Before | Step::After => self.dma.invalidates(bytes, self.system.planted),
        }
    }
    fn process(&mut self, part: u32, step: Step) {
        let span = self.span(step, self.parts[part].bytes);
        match step {
            Step::Submits => self.comes(part, 2),
            Step::Completes => self.comes(part, 7),
            Step::Before | Step::After => {}
        }
        if let Some(((part, step), span)) = self.processors.begin((part, step), span) {
            self.events.after(span, Event::Processor(part, step));
        }
    }
    fn transfer(&mut self, number: u32) {
        let bytes = self.parts[number].bytes;
        self.comes(number, if self.system.writes { 1 } else { 9 });
        // Out of the one memory and into the other, over the bus that they share.
        self.tally.crosses(if self.system.planted == Planted::OneCrossing { bytes } else { 2 * bytes });
        let span = self.dma.transfers(bytes, self.system.planted);
        if let Some((part, span)) = self.engine.begin(number, span) {
            self.parts[part].spent.waited(5, self.events.now());
            self.events.after(span, Event::Dma(part));
        }
    }
    /// The engine has moved a command's data.
    fn moved(&mut self, number: u32) {
        self.parts[number].spent.waited(6, self.events.now());
        if !self.system.writes {
            // Its data has left the buffer.
            self.release(number);
        }
        self.process(number, Step::After);
    }
    /// A command has come so far.
    fn did(&mut self, number: u32, step: Step) {
        let now = self.events.now();
        let part = &mut self.parts[number];
        let stage = match step {
            Step::Submits => 1,
            Step::Completes => 3,
            Step::Before => 4,
            Step::After => 7,
        };
        part.spent.waited(stage, now);
        match (step, self.system.writes) {
            (Step::Submits, _) => self.turns(number, Turn::Fetches),
            (Step::Completes, false) => self.process(number, Step::Before),
            (Step::Before, _) => self.transfer(number),
            (Step::After, false) => self.ends(number),
            (Step::After, true) => self.process(number, Step::Submits),
            (Step::Completes, true) => {
                // A cached write keeps its place until the NAND has its data.
                if !self.parts[number].in_nand {
                    self.release(number);
                }
                self.ends(number);
            }
        }
    }
    fn release(&mut self, number: u32) {
        let Part { place, bytes, .. } = self.parts[number];
        self.buffer.give(place, (bytes / SECTOR) as u32);
        self.place();
    }
    fn turns(&mut self, number: u32, turn: Turn) {
        let half = Time(self.system.firmware.0 / 2);
        let span = if turn == Turn::Fetches { half } else { self.system.firmware - half };
        self.comes(number, if turn == Turn::Fetches { 3 } else { 5 });
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
        self.comes(number, 4);
        let begin = self.media.begin(self.parts[number].bytes);
        let part = &mut self.parts[number];
        let pages = self.media.pages(begin, part.bytes);
        for page in pages {
            part.left += 1;
            self.media.ask(now, self.system.writes, page, u64::from(number));
        }
        part.in_nand = true;
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
        let part = &mut self.parts[number];
        part.in_nand = false;
        let had_its_answer = part.ended;
        if !self.caches() || self.system.bypass {
            self.turns(number, Turn::Answers);
        } else if had_its_answer {
            self.release(number);
            self.parts.ends(number);
        }
    }
    fn page_answers(&mut self, number: u32, at: Time) {
        let part = &mut self.parts[number];
        part.left -= 1;
        if part.left == 0 {
            self.events.schedule(at.max(self.events.now()), 0, Event::Answers(number));
        }
    }
    fn answered(&mut self, number: u32) {
        self.parts[number].spent.waited(2, self.events.now());
        self.process(number, Step::Completes);
    }
    fn ends(&mut self, number: u32) {
        let now = self.events.now();
        let part = &mut self.parts[number];
        part.ended = true;
        let Part { thread, spent, in_nand, .. } = *part;
        self.tally.ends(spent);
        if !in_nand {
            self.parts.ends(number);
        }
        match self.requests.end(thread, now) {
            Ended::Command => return,
            Ended::Request => {}
            Ended::WarmUp => {
                let busy = self.busy();
                self.tally.measure(busy, &mut self.media);
            }
        }
        self.asks(thread);
    }

    fn busy(&self) -> Busy {
        Busy { interface: self.engine.busy(), processors: self.processors.busy() }
    }
    fn report(mut self) -> Result<InterfaceReport, RunError> {
        let (busy, now, events) = (self.busy(), self.events.now(), self.events.happened());
        self.tally.report(&mut self.requests, &self.media, busy, (now, events), |report| &mut report.dma_busy)
    }
}
