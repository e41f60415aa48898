//! A device on the DRAM interface under threads that each wait for their request: the nine steps as
//! timed stages.
//!
//! ```text
//!   read     buffer > host 2 > firmware 3 > dies 4 > firmware 5, 6 > host 7, 8
//!            > invalidate > DMA 9 > invalidate
//!   write    buffer > invalidate > DMA 1 > invalidate > host 2 > firmware 3 > dies 4
//!            > firmware 5, 6 > host 7, 8
//! ```
//!
//! Each stage waits for its server: the host's processors, the one DMA engine, the firmware's one
//! processor, the dies. A command holds one contiguous range of the data buffer, which the buddy
//! allocator of `fulgurite-device` gives. Commands wait for room in their order.
//!
//! A request is split into commands of at most [`Driver::command_max`] bytes, and at most what the
//! buffer holds.

use std::collections::VecDeque;

use fulgurite_device::{Buddy, SECTOR_BYTES};
use fulgurite_sim::{Events, Law, Population, Random, Time};

use super::Planted;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// The host's side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Driver {
    /// Processors that run it.
    pub processors: u32,
    /// Picoseconds of a byte through the DMA engine.
    pub dma_byte: f64,
    /// Before each transfer.
    pub dma_set_up: Time,
    /// Picoseconds to invalidate a byte in the caches: half before a transfer, half after it.
    pub invalidate_byte: f64,
    /// Steps 2, 7 and 8 of a command, half before it and half after.
    pub command: Time,
    /// Bytes of the largest command.
    pub command_max: u64,
    /// Bytes of the data buffer.
    pub buffer: u64,
}

/// The device's side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Controller {
    /// Steps 3, 5 and 6 of a command, half before it and half after.
    pub command: Time,
    /// The medium. None: a command ends as soon as it was fetched.
    pub media: Option<Media>,
    /// A write ends once its data is in the buffer.
    pub cached_write: bool,
}

/// Dies, each with a bus of its own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Media {
    /// How many.
    pub dies: u32,
    /// Bytes that a die reads or programs at once, in all of its planes.
    pub unit: u64,
    /// From the array.
    pub read: Time,
    /// Into the array.
    pub program: Time,
    /// Picoseconds of a byte on the bus.
    pub bus_byte: f64,
}

/// Threads that wait for their requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// What they do.
    pub op: Op,
    /// Bytes of a request.
    pub chunk: u64,
    /// Threads.
    pub depth: u32,
    /// Requests lie anywhere, and not one after the other.
    pub random: bool,
    /// Requests that are measured.
    pub requests: u64,
    /// Of the addresses.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Bytes of the requests, a second.
    pub bytes_per_s: f64,
    /// From a request to its end.
    pub mean: Time,
    /// Little's law over the requests.
    pub law: Law,
    /// When the steps of the first command began: step and time.
    pub steps: Vec<(u8, Time)>,
    /// When the first die began.
    pub media_began: Option<Time>,
    /// Bytes on the DRAM bus for each byte of a request.
    pub crossings: f64,
}

/// A whole system.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct System {
    /// The host.
    pub driver: Driver,
    /// The device.
    pub controller: Controller,
    /// A bug, for tests.
    pub planted: Option<Planted>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// A range of the buffer.
    Take,
    /// It is given back.
    Give,
    /// Time on a server, for a step where it is one.
    Serve(usize, Time, Option<u8>),
    /// Parts on dies, all at once.
    Dies(Vec<(usize, Time)>),
    /// For the thread the command has ended.
    Answer,
}

#[derive(Debug)]
struct Command {
    stages: Vec<Stage>,
    at: usize,
    parts: u32,
    request: usize,
    sectors: u32,
    place: u32,
}

#[derive(Debug)]
struct Request {
    commands: u32,
    began: Time,
}

#[derive(Debug, Default)]
struct Station {
    servers: u32,
    busy: u32,
    waiting: VecDeque<(usize, Time, Option<u8>)>,
}

#[derive(Debug)]
enum Event {
    Issue,
    Done { station: usize, command: usize },
}

const HOST: usize = 0;
const DMA: usize = 1;
const FIRMWARE: usize = 2;
const DIES: usize = 3;

fn of_bytes(byte: f64, bytes: u64) -> Time {
    Time((byte * bytes as f64 + 0.5) as u64)
}
fn half(time: Time) -> Time {
    Time(time.0 / 2)
}

struct Run<'s> {
    system: &'s System,
    load: Load,
    events: Events<Event>,
    stations: Vec<Station>,
    buddy: Buddy,
    for_room: VecDeque<usize>,
    commands: Vec<Command>,
    requests: Vec<Request>,
    random: Random,
    next_unit: u64,
    ended: u64,
    inside: Population,
    steps: Vec<(u8, Time)>,
    media_began: Option<Time>,
    crossed: u64,
}

impl System {
    /// Runs a load on it. None when Little's law does not hold of what came out.
    pub fn run(&self, load: Load) -> Option<Report> {
        let dies = self.controller.media.map_or(0, |media| media.dies);
        let mut stations: Vec<Station> = Vec::new();
        for servers in [self.driver.processors, 1, 1].into_iter().chain((0..dies).map(|_| 1)) {
            stations.push(Station { servers, ..Station::default() });
        }
        let mut run = Run {
            system: self,
            load,
            events: Events::new(),
            stations,
            buddy: Buddy::new((self.buffer() / SECTOR_BYTES as u64) as u32),
            for_room: VecDeque::new(),
            commands: Vec::new(),
            requests: Vec::new(),
            random: Random::new(load.seed, 0),
            next_unit: 0,
            ended: 0,
            inside: Population::default(),
            steps: Vec::new(),
            media_began: None,
            crossed: 0,
        };
        run.drive()
    }
    fn buffer(&self) -> u64 {
        if self.planted == Some(Planted::EndlessBuffer) { 1 << 26 } else { self.driver.buffer }
    }
    /// The time of a transfer between the host's memory and the buffer, with all that it needs.
    pub fn transfer(&self, bytes: u64) -> Time {
        self.set_up() + of_bytes(self.driver.dma_byte, bytes) + self.invalidate(bytes)
    }
    fn set_up(&self) -> Time {
        if self.planted == Some(Planted::NoSetUp) { Time::ZERO } else { self.driver.dma_set_up }
    }
    fn invalidate(&self, bytes: u64) -> Time {
        let of = of_bytes(self.driver.invalidate_byte, bytes);
        if self.planted == Some(Planted::NoInvalidation) { Time::ZERO } else { of }
    }
    fn op(&self, op: Op) -> Op {
        match (op, self.planted) {
            (Op::Read, Some(Planted::OpcodesSwapped)) => Op::Write,
            (Op::Write, Some(Planted::OpcodesSwapped)) => Op::Read,
            _ => op,
        }
    }
    /// The stages of a command of so many bytes, which begins at a unit of the dies.
    fn stages(&self, op: Op, bytes: u64, unit: u64) -> Vec<Stage> {
        let (driver, controller) = (&self.driver, &self.controller);
        let invalidate = half(self.invalidate(bytes));
        let dma = self.set_up() + of_bytes(driver.dma_byte, bytes);
        let (host, firmware) = (half(driver.command), half(controller.command));
        let transfer = |step| {
            [
                Stage::Serve(HOST, invalidate, None),
                Stage::Serve(DMA, dma, Some(step)),
                Stage::Serve(HOST, invalidate, None),
            ]
        };
        let dies = controller.media.map(|media| {
            let parts = bytes.div_ceil(media.unit);
            let time = |part: u64| {
                let bytes = (bytes - part * media.unit).min(media.unit);
                let array = if self.op(op) == Op::Read { media.read } else { media.program };
                array + of_bytes(media.bus_byte, bytes)
            };
            let die = |part: u64| DIES + ((unit + part) % u64::from(media.dies)) as usize;
            Stage::Dies((0..parts).map(|part| (die(part), time(part))).collect())
        });
        let mut stages = vec![Stage::Take];
        if op == Op::Write {
            stages.extend(transfer(1));
        }
        stages.push(Stage::Serve(HOST, host, Some(2)));
        stages.push(Stage::Serve(FIRMWARE, firmware, Some(3)));
        let cached = op == Op::Write && controller.cached_write;
        if !cached {
            stages.extend(dies.clone());
        }
        stages.push(Stage::Serve(FIRMWARE, firmware, Some(5)));
        stages.push(Stage::Serve(HOST, host, Some(7)));
        if op == Op::Read {
            stages.extend(transfer(9));
        }
        stages.push(Stage::Answer);
        if cached {
            stages.extend(dies);
        }
        stages.push(Stage::Give);
        stages
    }
}

impl Run<'_> {
    fn drive(&mut self) -> Option<Report> {
        for _ in 0..self.load.depth {
            self.events.schedule(Time::ZERO, 0, Event::Issue);
        }
        let warm_up = self.load.requests / 5;
        let mut began = Time::ZERO;
        while self.ended < warm_up + self.load.requests {
            let before = self.ended;
            match self.events.next()? {
                Event::Issue => self.issue(),
                Event::Done { station, command } => self.done(station, command),
            }
            if before < warm_up && self.ended >= warm_up {
                began = self.events.now();
                self.inside.measure_from(began);
            }
        }
        let now = self.events.now();
        let span = now.since(began).as_s();
        let law = self.inside.law(now).filter(Law::holds)?;
        let mean = self.inside.times().distribution().mean_ns?.value;
        let asked = self.requests.len() as u64 * self.load.chunk;
        Some(Report {
            bytes_per_s: (self.ended - warm_up) as f64 * self.load.chunk as f64 / span,
            mean: Time::from_ns(mean),
            law,
            steps: std::mem::take(&mut self.steps),
            media_began: self.media_began,
            crossings: self.crossed as f64 / asked as f64,
        })
    }

    fn issue(&mut self) {
        let now = self.events.now();
        self.inside.enter(now);
        let request = self.requests.len();
        let most = self.system.driver.command_max.min(self.system.buffer());
        self.requests.push(Request { commands: self.load.chunk.div_ceil(most) as u32, began: now });
        let unit = self.system.controller.media.map_or(1, |media| media.unit);
        let mut left = self.load.chunk;
        while left > 0 {
            let bytes = left.min(most);
            left -= bytes;
            if self.load.random {
                self.next_unit = self.random.below(1 << 40);
            }
            let stages = self.system.stages(self.load.op, bytes, self.next_unit);
            self.next_unit += bytes.div_ceil(unit);
            let sectors = bytes.div_ceil(SECTOR_BYTES as u64) as u32;
            self.commands.push(Command { stages, at: 0, parts: 0, request, sectors, place: 0 });
            self.go_on(self.commands.len() - 1);
        }
    }

    /// Goes through the stages of a command until one takes time.
    fn go_on(&mut self, command: usize) {
        loop {
            let its = &mut self.commands[command];
            let Some(stage) = its.stages.get(its.at).cloned() else { return };
            its.at += 1;
            match stage {
                Stage::Take => {
                    self.for_room.push_back(command);
                    self.give_room();
                    return;
                }
                Stage::Give => {
                    let (place, sectors) = (its.place, its.sectors);
                    self.buddy.give(place, sectors);
                    self.give_room();
                }
                Stage::Serve(station, time, step) => {
                    self.serve(station, command, time, step);
                    return;
                }
                Stage::Dies(parts) => {
                    its.parts = parts.len() as u32;
                    for (die, time) in parts {
                        self.serve(die, command, time, Some(4));
                    }
                    return;
                }
                Stage::Answer => self.answer(command),
            }
        }
    }

    /// The commands that wait have their turns in order: a large one is not passed.
    fn give_room(&mut self) {
        while let Some(command) = self.for_room.front().copied() {
            let Some(place) = self.buddy.take(self.commands[command].sectors) else { return };
            self.for_room.pop_front();
            self.commands[command].place = place;
            self.go_on(command);
        }
    }

    fn serve(&mut self, station: usize, command: usize, time: Time, step: Option<u8>) {
        self.stations[station].waiting.push_back((command, time, step));
        self.begin(station);
    }

    fn begin(&mut self, station: usize) {
        let its = &mut self.stations[station];
        if its.busy == its.servers {
            return;
        }
        let Some((command, time, step)) = its.waiting.pop_front() else { return };
        its.busy += 1;
        let now = self.events.now();
        if station == DMA {
            // From memory to the buffer or back, over the same channel.
            let crossings = if self.system.planted == Some(Planted::OneCrossing) { 1 } else { 2 };
            self.crossed += crossings * u64::from(self.commands[command].sectors) * SECTOR_BYTES as u64;
        }
        if station >= DIES && self.media_began.is_none() {
            self.media_began = Some(now);
        }
        if let Some(step) = step.filter(|_| command == 0) {
            self.steps.push((step, now));
        }
        self.events.schedule(now + time, 1, Event::Done { station, command });
    }

    fn done(&mut self, station: usize, command: usize) {
        self.stations[station].busy -= 1;
        self.begin(station);
        if station >= DIES {
            self.commands[command].parts -= 1;
            if self.commands[command].parts > 0 {
                return;
            }
        }
        self.go_on(command);
    }

    fn answer(&mut self, command: usize) {
        let request = &mut self.requests[self.commands[command].request];
        request.commands -= 1;
        if request.commands == 0 {
            let now = self.events.now();
            self.inside.leave(request.began, now);
            self.ended += 1;
            self.events.schedule(now, 0, Event::Issue);
        }
    }
}

/// The share of a controller's accesses to a buffer of banks that find their bank taken by the
/// host, which comes first. Each side asks in each cycle with the given probability.
pub fn conflicts(banks: u64, host: f64, controller: f64, cycles: u64, seed: u64) -> f64 {
    let mut random = Random::new(seed, 5);
    let (mut asked, mut refused) = (0_u64, 0_u64);
    for _ in 0..cycles {
        let taken = (random.unit() < host).then(|| random.below(banks));
        if random.unit() < controller {
            asked += 1;
            refused += u64::from(taken == Some(random.below(banks)));
        }
    }
    refused as f64 / asked.max(1) as f64
}

/// A write as stores to the shared memory: the data's words, then the command's. Without a barrier
/// a memory controller may make a later one visible first. Returns in how many of the possible
/// orders the device finds the command and not yet its data.
pub fn stale_orders(data_words: u32, command_words: u32, barrier: bool) -> u64 {
    let words = data_words + command_words;
    let mut stale = 0;
    for set in 0..1_u64 << words {
        // What is visible at one moment.
        let data = (0..data_words).filter(|word| set & 1 << word != 0).count() as u32;
        let command = (data_words..words).filter(|word| set & 1 << word != 0).count() as u32;
        let possible = !barrier || command == 0 || data == data_words;
        stale += u64::from(possible && command == command_words && data < data_words);
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTE: f64 = 1000.0;

    fn system(media: Option<Media>) -> System {
        System {
            driver: Driver {
                processors: 2,
                dma_byte: BYTE,
                dma_set_up: Time::us(10),
                invalidate_byte: BYTE,
                command: Time::us(20),
                command_max: 1 << 20,
                buffer: 1 << 20,
            },
            controller: Controller { command: Time::us(30), media, cached_write: false },
            planted: None,
        }
    }
    fn load(op: Op, chunk: u64, depth: u32) -> Load {
        Load { op, chunk, depth, random: false, requests: 200, seed: 1 }
    }
    const MEDIA: Media =
        Media { dies: 4, unit: 32768, read: Time::us(75), program: Time::us(1000), bus_byte: 2.0 * BYTE };

    #[test]
    fn alone_a_request_takes_the_sum_of_its_stages() {
        // 4,096 ns on the engine, as much for the caches, 60 µs of set-up and commands.
        let report = system(None).run(load(Op::Read, 4096, 1)).unwrap();
        assert!((report.mean.as_us() - 68.192).abs() < 0.1, "{}", report.mean);
        let with = system(Some(MEDIA)).run(load(Op::Read, 4096, 1)).unwrap();
        assert!((with.mean.as_us() - 68.192 - 75.0 - 8.192).abs() < 0.2, "{}", with.mean);
        let written = system(Some(MEDIA)).run(load(Op::Write, 4096, 1)).unwrap();
        assert!((written.mean.as_us() - 68.192 - 1008.192).abs() < 1.2, "{}", written.mean);
    }
    #[test]
    fn one_engine_is_the_limit_of_many() {
        // 262,144 ns a transfer and 10 µs before it.
        let report = system(None).run(load(Op::Read, 1 << 18, 4)).unwrap();
        let most = (1 << 18) as f64 / (272.144e-6);
        assert!((report.bytes_per_s / most - 1.0).abs() < 0.01, "{} {most}", report.bytes_per_s);
        // Less what is under way at the end.
        assert!((report.crossings - 2.0).abs() < 0.03, "{}", report.crossings);
    }
    #[test]
    fn dies_work_at_once() {
        let slow = Media { program: Time::us(100_000), ..MEDIA };
        let one = system(Some(slow)).run(load(Op::Write, 32768, 1)).unwrap();
        let all = system(Some(slow)).run(load(Op::Write, 4 * 32768, 1)).unwrap();
        assert!((all.bytes_per_s / one.bytes_per_s - 4.0).abs() < 0.05);
    }
    #[test]
    fn a_small_buffer_admits_one_command_at_a_time() {
        let mut small = system(None);
        small.driver.buffer = 1 << 17;
        let four = small.run(load(Op::Read, 1 << 17, 4)).unwrap();
        let one = small.run(load(Op::Read, 1 << 17, 1)).unwrap();
        assert!((four.bytes_per_s / one.bytes_per_s - 1.0).abs() < 0.01);
        small.driver.buffer = 1 << 18;
        assert!(small.run(load(Op::Read, 1 << 17, 4)).unwrap().bytes_per_s > 1.3 * one.bytes_per_s);
    }
    #[test]
    fn a_barrier_leaves_no_stale_order() {
        assert_eq!(stale_orders(4, 2, true), 0);
        // The whole command, and any part of the data but all of it.
        assert_eq!(stale_orders(4, 2, false), 15);
    }
    #[test]
    fn conflicts_are_the_hosts_share_of_one_bank() {
        let share = conflicts(8, 0.4, 0.5, 400_000, 1);
        assert!((share / (0.4 / 8.0) - 1.0).abs() < 0.03, "{share}");
    }
}
