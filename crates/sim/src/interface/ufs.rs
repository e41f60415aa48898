//! A run over UFS: threads, slots, the host controller, the link, the firmware and its buffer.

use std::collections::VecDeque;

use super::media::Media;
use super::requests::{Ended, Requests};
use super::system::{InterfaceReport, InterfaceSystem, Ufs};
use super::tally::{Busy, Spent, Tally};
use crate::events::Events;
use crate::planted::Planted;
use crate::report::RunError;
use crate::servers::Servers;
use crate::slots::Slots;
use crate::time::Time;

const STAGES: [&str; 8] =
    ["slot", "submission", "host controller", "command UPIU", "device", "data UPIUs", "response UPIU", "completion"];
/// Their numbers.
const SLOT: usize = 0;
const SUBMISSION: usize = 1;
const CONTROLLER: usize = 2;
const COMMAND: usize = 3;
const DEVICE: usize = 4;
const DATA: usize = 5;
const RESPONSE: usize = 6;
const COMPLETION: usize = 7;

/// What a part of the system does with a command on its way there, and on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    There,
    Back,
}

/// What the link carries to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Down {
    Command(u32),
    Data(Data),
}

/// What the link carries to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Up {
    /// The device is ready for this data of a write.
    Ready(Data),
    Data(Data),
    Response(u32),
}

/// Data of a command: at most what a UPIU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Data {
    command: u32,
    bytes: u64,
    /// The bytes of a page, where this is the last of them.
    page: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Event {
    /// A processor has submitted a command, or completed it.
    Processor(u32, Direction),
    /// The host controller has read it, or written its end.
    Controller(u32, Direction),
    /// The firmware has fetched it, or answered it.
    Firmware(u32, Direction),
    /// The link has carried something to the device.
    Down(Down),
    /// And to the host.
    Up(Up),
    /// The NAND has done this number of bytes of a command's page.
    Page(u32, u64),
}

#[derive(Clone, Copy)]
struct Part {
    thread: u32,
    bytes: u64,
    /// The first byte that a write has not asked for, and the one after the last.
    next: (u64, u64),
    /// Bytes that have not crossed the link.
    left: u64,
    /// Bytes that the NAND has not done.
    in_nand: u64,
    /// The thread has its answer.
    ended: bool,
    spent: Spent<{ STAGES.len() }>,
}

/// Runs it. `seed` is of the addresses of random requests.
pub fn run(system: &InterfaceSystem, link: Ufs, seed: u64) -> Result<InterfaceReport, RunError> {
    Run {
        system,
        link,
        media: Media::new(system, seed)?,
        events: Events::new(),
        requests: Requests::new(system),
        parts: Slots::new(),
        slots: if system.planted == Planted::EndlessQueue { u32::MAX } else { link.slots },
        waiting: VecDeque::new(),
        room: system.buffer_bytes(),
        wanting: VecDeque::new(),
        transfers: link.transfers,
        writing: VecDeque::new(),
        processors: Servers::new(system.processors),
        controller: Servers::new(1),
        firmware: Servers::new(1),
        down: Servers::new(1),
        up: Servers::new(1),
        tally: Tally::new(STAGES, system.explain),
    }
    .drive()
}

struct Run<'s> {
    system: &'s InterfaceSystem,
    link: Ufs,
    media: Media,
    events: Events<Event>,
    requests: Requests,
    parts: Slots<Part>,
    /// Free slots, and commands that wait for one.
    slots: u32,
    waiting: VecDeque<u32>,
    /// Free bytes of the buffer, and commands that wait for some.
    room: u64,
    wanting: VecDeque<u32>,
    /// Transfers that the device may still ask for, and writes that have more to ask for.
    transfers: u32,
    writing: VecDeque<u32>,
    processors: Servers<(u32, Direction)>,
    controller: Servers<(u32, Direction)>,
    firmware: Servers<(u32, Direction)>,
    down: Servers<Down>,
    up: Servers<Up>,
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
                for (tag, at) in &answers {
                    let page = Event::Page(*tag as u32, *tag >> 32);
                    self.events.schedule((*at).max(self.events.now()), 0, page);
                }
                continue;
            }
            match self.events.next().expect("each thread has a request under way") {
                Event::Processor(number, direction) => {
                    if let Some(((number, direction), span)) = self.processors.end() {
                        self.events.after(span, Event::Processor(number, direction));
                    }
                    match direction {
                        Direction::There => self.rings(number),
                        Direction::Back => self.ends(number),
                    }
                }
                Event::Controller(number, direction) => {
                    if let Some(((number, direction), span)) = self.controller.end() {
                        self.events.after(span, Event::Controller(number, direction));
                    }
                    self.parts[number].spent.waited(CONTROLLER, self.events.now());
                    match direction {
                        Direction::There => self.sends_down(Down::Command(number)),
                        Direction::Back => self.processes(number, Direction::Back),
                    }
                }
                Event::Firmware(number, direction) => {
                    if let Some(((number, direction), span)) = self.firmware.end() {
                        self.events.after(span, Event::Firmware(number, direction));
                    }
                    match direction {
                        Direction::There => {
                            self.wanting.push_back(number);
                            self.gives_room();
                        }
                        Direction::Back => {
                            self.parts[number].spent.waited(DEVICE, self.events.now());
                            self.sends_up(Up::Response(number));
                        }
                    }
                }
                Event::Down(upiu) => {
                    if let Some((upiu, span)) = self.down.end() {
                        self.events.after(span, Event::Down(upiu));
                    }
                    match upiu {
                        Down::Command(number) => {
                            self.parts[number].spent.waited(COMMAND, self.events.now());
                            self.firmware_turns(number, Direction::There);
                        }
                        Down::Data(data) => self.received(data),
                    }
                }
                Event::Up(upiu) => {
                    if let Some((upiu, span)) = self.up.end() {
                        self.events.after(span, Event::Up(upiu));
                    }
                    match upiu {
                        Up::Ready(data) => self.sends_down(Down::Data(data)),
                        Up::Data(data) => self.delivered(data),
                        Up::Response(number) => {
                            self.parts[number].spent.waited(RESPONSE, self.events.now());
                            self.controls(number, Direction::Back);
                        }
                    }
                }
                Event::Page(number, bytes) => self.page_answers(number, bytes),
            }
        }
        self.report()
    }
    /// A command comes to a step of the protocol.
    fn comes(&mut self, number: u32, step: u8) {
        self.tally.comes(number, step, self.events.now());
    }
    /// Half of a time, in either direction.
    fn half(of: Time, direction: Direction) -> Time {
        let half = Time(of.0 / 2);
        if direction == Direction::There { half } else { of - half }
    }

    // ---- the host ----

    /// A thread asks for its next request, in one or more commands.
    fn asks(&mut self, thread: u32) {
        let now = self.events.now();
        for bytes in self.requests.ask(thread, now) {
            let spent = Spent::new(now);
            let part = Part { thread, bytes, next: (0, 0), left: bytes, in_nand: 0, ended: false, spent };
            self.waiting.push_back(self.parts.add(part));
        }
        self.gives_slots();
    }
    /// Gives slots to those that wait, in their order.
    fn gives_slots(&mut self) {
        while self.slots > 0
            && let Some(number) = self.waiting.pop_front()
        {
            self.slots -= 1;
            self.parts[number].spent.waited(SLOT, self.events.now());
            self.comes(number, 1);
            self.processes(number, Direction::There);
        }
    }
    fn processes(&mut self, number: u32, direction: Direction) {
        if direction == Direction::Back {
            self.comes(number, 7);
        }
        let span = Self::half(self.system.protocol, direction);
        if let Some(((number, direction), span)) = self.processors.begin((number, direction), span) {
            self.events.after(span, Event::Processor(number, direction));
        }
    }
    /// The doorbell: the controller fetches the descriptor and the command.
    fn rings(&mut self, number: u32) {
        self.parts[number].spent.waited(SUBMISSION, self.events.now());
        self.controls(number, Direction::There);
    }
    fn controls(&mut self, number: u32, direction: Direction) {
        let span = Self::half(self.link.controller, direction);
        if let Some(((number, direction), span)) = self.controller.begin((number, direction), span) {
            self.events.after(span, Event::Controller(number, direction));
        }
    }
    fn ends(&mut self, number: u32) {
        let now = self.events.now();
        self.slots += 1;
        let part = &mut self.parts[number];
        part.spent.waited(COMPLETION, now);
        part.ended = true;
        let Part { thread, spent, in_nand, .. } = *part;
        self.tally.ends(spent);
        if in_nand == 0 {
            self.parts.ends(number);
        }
        match self.requests.end(thread, now) {
            Ended::Command => return self.gives_slots(),
            Ended::Request => {}
            Ended::WarmUp => {
                let busy = self.busy();
                self.tally.measure(busy, &mut self.media);
            }
        }
        self.asks(thread);
    }

    // ---- the link ----

    /// The time that data's direction was busy.
    fn link_busy(&self) -> Time {
        if self.system.writes { self.down.busy() } else { self.up.busy() }
    }
    fn data_time(&self, data: Data) -> Time {
        if self.system.planted == Planted::FreeLink { Time::ZERO } else { self.link.sends(data.bytes) }
    }
    fn sends_down(&mut self, upiu: Down) {
        let (number, step, span) = match upiu {
            Down::Command(number) => (number, 2, self.link.sends(0)),
            Down::Data(data) => (data.command, 4, self.data_time(data)),
        };
        self.comes(number, step);
        if let Some((upiu, span)) = self.down.begin(upiu, span) {
            self.events.after(span, Event::Down(upiu));
        }
    }
    fn sends_up(&mut self, upiu: Up) {
        let (number, step, span) = match upiu {
            Up::Ready(data) => (data.command, 3, self.link.sends(0)),
            Up::Data(data) => (data.command, 4, self.data_time(data)),
            Up::Response(number) => (number, 6, self.link.sends(0)),
        };
        self.comes(number, step);
        if let Some((upiu, span)) = self.up.begin(upiu, span) {
            self.events.after(span, Event::Up(upiu));
        }
    }
    /// Data of a read is with the host.
    fn delivered(&mut self, data: Data) {
        self.tally.crosses(data.bytes);
        self.room += data.bytes;
        self.crosses(data);
        self.gives_room();
    }
    /// Data of a write is with the device.
    fn received(&mut self, data: Data) {
        self.tally.crosses(data.bytes);
        self.transfers += 1;
        if self.system.bypass {
            self.room += data.bytes;
        } else if let Some((from, to)) = data.page {
            // The page is whole.
            self.asks_nand(data.command, (from, to));
        }
        self.crosses(data);
        self.asks_for_data();
        self.gives_room();
    }
    /// Data of a command has crossed the link.
    fn crosses(&mut self, data: Data) {
        let part = &mut self.parts[data.command];
        part.left -= data.bytes;
        if part.left > 0 {
            return;
        }
        part.spent.waited(DATA, self.events.now());
        let waits = self.system.writes && !self.system.cached_writes && part.in_nand > 0;
        if !waits {
            self.firmware_turns(data.command, Direction::Back);
        }
    }

    // ---- the device ----

    fn firmware_turns(&mut self, number: u32, direction: Direction) {
        let span = Self::half(self.system.firmware, direction);
        if let Some(((number, direction), span)) = self.firmware.begin((number, direction), span) {
            self.events.after(span, Event::Firmware(number, direction));
        }
    }
    /// Gives room in the buffer to commands that have been fetched, in their order.
    fn gives_room(&mut self) {
        while let Some(number) = self.wanting.front().copied() {
            let Part { bytes, .. } = self.parts[number];
            if self.room < bytes {
                return;
            }
            self.wanting.pop_front();
            self.room -= bytes;
            self.executes(number);
        }
    }
    fn executes(&mut self, number: u32) {
        let bytes = self.parts[number].bytes;
        let begin = self.media.begin(bytes);
        let part = &mut self.parts[number];
        if self.system.writes {
            part.spent.waited(DEVICE, self.events.now());
            part.next = (begin, begin + bytes);
            part.in_nand = if self.system.bypass { 0 } else { bytes };
            self.writing.push_back(number);
            self.asks_for_data();
        } else if self.system.bypass {
            part.spent.waited(DEVICE, self.events.now());
            self.sends_data(number, bytes);
        } else {
            part.in_nand = bytes;
            self.media.pages(begin, bytes).for_each(|page| self.asks_nand(number, page));
        }
    }
    fn asks_nand(&mut self, number: u32, page: (u64, u64)) {
        self.comes(number, 5);
        let tag = u64::from(number) | (page.1 - page.0) << 32;
        self.media.ask(self.events.now(), self.system.writes, page, tag);
    }
    /// Asks for data of writes, the first one first.
    fn asks_for_data(&mut self) {
        while self.transfers > 0
            && let Some(number) = self.writing.front().copied()
        {
            self.transfers -= 1;
            let part = &mut self.parts[number];
            let (from, end) = part.next;
            let page_end = self.media.page_end(from).min(end);
            let to = page_end.min(from + self.link.data);
            part.next.0 = to;
            let page_from = self.media.page_end(from) - self.media.page_bytes();
            let page_from = page_from.max(end - part.bytes);
            let page = (to == page_end).then_some((page_from, page_end));
            if to == end {
                self.writing.pop_front();
            }
            self.sends_up(Up::Ready(Data { command: number, bytes: to - from, page }));
        }
    }
    /// Sends data of a read.
    fn sends_data(&mut self, number: u32, bytes: u64) {
        let mut left = bytes;
        while left > 0 {
            let bytes = left.min(self.link.data);
            left -= bytes;
            self.sends_up(Up::Data(Data { command: number, bytes, page: None }));
        }
    }
    /// The NAND has read bytes of a page, or programmed them.
    fn page_answers(&mut self, number: u32, bytes: u64) {
        let now = self.events.now();
        let part = &mut self.parts[number];
        part.in_nand -= bytes;
        if !self.system.writes {
            if part.in_nand == 0 {
                part.spent.waited(DEVICE, now);
            }
            self.sends_data(number, bytes);
            return;
        }
        self.room += bytes;
        if part.in_nand == 0 {
            if !self.system.cached_writes {
                self.firmware_turns(number, Direction::Back);
            } else if part.ended {
                self.parts.ends(number);
            }
        }
        self.gives_room();
    }

    fn busy(&self) -> Busy {
        Busy { interface: self.link_busy(), processors: self.processors.busy() }
    }
    fn report(mut self) -> Result<InterfaceReport, RunError> {
        let (busy, now, events) = (self.busy(), self.events.now(), self.events.happened());
        self.tally.report(&mut self.requests, &self.media, busy, (now, events), |report| &mut report.link_busy)
    }
}
