//! Goal: whatever a device does, the driver ends each request once, by a typed error where it
//! cannot end well. It believes no completion of what is not in flight, hands over whole data or
//! none, and neither panics nor hangs. Meanwhile copies are kept, own flushes made, queue pairs
//! left, devices replaced, and [`Commands`] do all memory operations.
//! Method: a device played by the test answers honestly, with errors and nonsense, twice, never,
//! out of turn and by unknown ids. It changes entries after they were read, scribbles over
//! registers and queues, and returns as another one. Its answers decide what may be reported. For
//! some seconds each, with ever new seeds, which are printed.

use crate::common;
use crate::fuzz;
use crate::hand;

use fulgurite_flash::Switches;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Random, arena, fill, request, stamp_of};
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::SubpageIndex;
use fulgurite_store::Permissions;
use fulgurite_sys::{Arena, Notifier};
use fuzz::fuzz;
use hand::played::*;

/// More than a seed has requests, so that each has a sector for itself, and its data tell which.
const SECTORS: u32 = 1 << 20;
const DEPTH: usize = 8;
/// Entries of a ring for this many commands.
const ENTRIES: usize = 16;
/// Nothing waits so long on any machine.
const FOREVER: Duration = Duration::from_secs(60);

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A status: mostly well, else any that there is, or that there is not.
fn status(random: &mut Random) -> Status {
    match random.below(12) {
        0 => one_of(
            random,
            &[
                Status::UNREADABLE,
                Status::NO_SPACE,
                Status::POISONED,
                Status::ABORTED,
                Status::TIMED_OUT,
                Status::CLOSED,
            ],
        ),
        1 => Status(random.next() as u16 & 0x7FFF),
        _ => Status::SUCCESS,
    }
}

/// The device's side of one queue pair.
struct Side {
    region: Arc<Region>,
    submissions: Consumer<SUBMISSION_WORDS>,
    completions: Producer<COMPLETION_WORDS>,
    /// Taken, and not ended.
    taken: Vec<Command>,
    /// By id, the one that was taken last.
    last: HashMap<u16, Command>,
    entries: usize,
    /// By a thread of the driver's: its next entry may be there at any time.
    restores: bool,
    /// Turns since it last had a command to end.
    idle: u32,
}

/// A memory operation is waited for while the device's heart beats, so a lost one ends after this
/// many turns.
const IDLE_MAX: u32 = 2000;

impl Side {
    fn of(region: &Arc<Region>, restores: bool) -> Side {
        let (submissions, completions) = region.device_ends(0);
        let (region, last) = (region.clone(), HashMap::new());
        Side { region, submissions, completions, taken: Vec::new(), last, entries: 0, restores, idle: 0 }
    }
    fn frame(&self, buffer: u32) -> u32 {
        self.region.buffer_first(0) + buffer
    }
    fn takes(&mut self) {
        while let Some(entry) = self.submissions.pop() {
            let command = Command::unpack(entry.expect("the driver writes whole entries"));
            self.entries += 1;
            self.taken.push(command);
            self.last.insert(command.id, command);
        }
    }
    fn ends(&mut self, id: u16, status: Status, result: u64) {
        self.completions.push(Ended { id, status, result }.pack());
    }
    /// An id that no command has that was taken.
    fn free_id(&self, random: &mut Random) -> u16 {
        match random.below(3) {
            0 => DEPTH as u16 + random.below(1000) as u16,
            1 => NO_ID - 1,
            _ => (0..DEPTH as u16).find(|id| self.taken.iter().all(|c| c.id != *id)).unwrap_or(DEPTH as u16),
        }
    }
    /// A word of the registers, or of the completions.
    fn scribbles(&self, random: &mut Random, completions: bool) {
        // The host's bell is behind the registers.
        let words = if completions { self.ring() } else { self.region.arena().words(0, 0x1000 / 8 + 1) };
        let word = &words[random.below(words.len() as u64) as usize];
        match random.below(3) {
            0 => word.store(random.next(), Ordering::Relaxed),
            1 => drop(word.fetch_xor(1 << random.below(64), Ordering::Relaxed)),
            _ => word.store(one_of(random, &[0, 1, u64::MAX]), Ordering::Relaxed),
        }
    }
    fn ring(&self) -> &[std::sync::atomic::AtomicU64] {
        self.region.arena().words(0x1000 + 128 + ENTRIES * SUBMISSION_WORDS * 8, ENTRIES * COMPLETION_WORDS)
    }
    /// Turns the phase of every completion.
    fn breaks(&self) {
        for entry in self.ring().chunks(COMPLETION_WORDS) {
            entry[1].fetch_xor(1 << 63, Ordering::Relaxed);
        }
    }
    /// Changes an entry of the host's that was read.
    fn changes_what_was_read(&self, random: &mut Random) {
        if self.entries > 0 {
            let words = self.region.arena().words(0x1000 + 128, ENTRIES * SUBMISSION_WORDS);
            let entry = (self.entries - 1) % ENTRIES * SUBMISSION_WORDS;
            words[entry + random.below(3) as usize].store(random.next(), Ordering::Relaxed);
        }
    }
}

/// A device that is up to no good, its host's queue, and what each knows.
struct Match {
    random: Random,
    device: Arc<Played>,
    sides: Vec<Side>,
    frames: Arc<Arena>,
    /// There until it is dropped.
    queue: Option<Box<dyn Queue>>,
    free_frames: Vec<u32>,
    /// By tag, which is the sector as well.
    asked: HashMap<u64, (Op, u32)>,
    /// What the device has said of a sector, each time.
    said: HashMap<u64, Vec<Status>>,
    has_time: bool,
    /// The host compares what it has read with what the device says of it.
    checks_data: bool,
    tag: u64,
    ended_well: u64,
    seed: u64,
}

impl Drop for Match {
    fn drop(&mut self) {
        // Dropping one waits for what it has sent, which nothing ends after a test has failed.
        let queue = self.queue.take();
        if std::thread::panicking() {
            std::mem::forget(queue);
        }
    }
}

impl Match {
    fn queue(&mut self) -> &mut dyn Queue {
        &mut **self.queue.as_mut().expect("dropped last")
    }
    fn opens(&mut self) {
        let regions = self.device.opened.lock().unwrap();
        let restoring = self.device.restoring.lock().unwrap();
        let all = regions.iter().zip(restoring.iter());
        self.sides.extend(all.skip(self.sides.len()).map(|(region, restores)| Side::of(region, *restores)));
    }
    /// Ends one of what a pair has, as it is said.
    fn ends_one(&mut self, side: usize, status: Status) {
        let side = &mut self.sides[side];
        if side.taken.is_empty() {
            return;
        }
        let command = side.taken.swap_remove(self.random.below(side.taken.len() as u64) as usize);
        let (frame, what) = (side.frame(command.buffer), (self.seed, command));
        let mut result = self.random.next();
        match Opcode::of(command.opcode) {
            Some(Opcode::Read) => {
                fill(side.region.arena(), frame, command.sector + 1);
                let mut bytes = [0; SECTOR_BYTES];
                side.region.arena().read(frame as usize * SECTOR_BYTES, &mut bytes);
                // What it says of its data, where it is asked, is mostly true.
                if self.random.below(8) > 0 {
                    result = fulgurite_format::crc32c(&bytes).into();
                }
            }
            // Also of what is written once more.
            Some(Opcode::Write) => {
                assert_eq!(stamp_of(side.region.arena(), frame), Some(command.sector + 1), "{what:?}");
            }
            opcode => assert_eq!(opcode, Some(Opcode::Flush), "{what:?}"),
        }
        if command.opcode != Opcode::Flush as u8 {
            self.said.entry(command.sector).or_default().push(status);
        }
        side.ends(command.id, status, result);
    }
    fn device_acts(&mut self) {
        self.opens();
        // Earlier sides are left alone by their host.
        let side = self.sides.len() - 1 - self.random.below(self.sides.len().min(3) as u64) as usize;
        let random = &mut self.random;
        let at = &mut self.sides[side];
        at.takes();
        match random.below(1000) {
            0..=3 => at.ends(NO_ID, one_of(random, &[Status::DAMAGED_ENTRY, Status::ID_CONFLICT]), random.next()),
            // An entry that is damaged before it is read, or after.
            4..=6 => at.scribbles(random, true),
            7..=9 => self.device.instance.store(1 + random.below(4), Ordering::Relaxed),
            10..=99 => at.scribbles(random, false),
            // By a pair that the driver uses: early words in the ring could be a command's end as
            // well.
            100..=299 if !at.restores && at.entries > 0 => {
                let (id, status) = (at.free_id(random), Status(random.below(8) as u16));
                // The scribble may have lost its end: then it is in flight for the host.
                if let Some(last) = at.last.get(&id) {
                    self.said.entry(last.sector).or_default().push(status);
                }
                at.ends(id, status, random.next());
                // Before the id is used again.
                self.hears();
            }
            // A read's data before they are there; entries that were read already.
            300..=399 => {
                let reads = |command: &&Command| command.opcode == Opcode::Read as u8;
                if let Some(command) = at.taken.iter().find(reads) {
                    at.region.arena().write(at.frame(command.buffer) as usize * SECTOR_BYTES, &[0x5A; 512]);
                }
                at.changes_what_was_read(random);
            }
            _ => {
                let status = status(random);
                self.ends_one(side, status);
            }
        }
    }
    fn asks(&mut self) {
        let Some(frame) = self.free_frames.pop() else { return };
        self.tag += 1;
        let op = one_of(&mut self.random, &[Op::Read, Op::Read, Op::Write, Op::Write, Op::Write, Op::Write, Op::Flush]);
        fill(&self.frames, frame, if op == Op::Write { self.tag + 1 } else { 0 });
        let request = request(self.tag, op, self.tag as u32, frame);
        match self.queue().submit(request) {
            Ok(()) => drop(self.asked.insert(self.tag, (op, frame))),
            Err(QueueFull) => self.free_frames.push(frame),
        }
    }
    fn hears(&mut self) -> usize {
        let mut reported = Vec::new();
        self.queue().poll(&mut reported);
        for completion in &reported {
            let Completion { tag, result, .. } = *completion;
            let what = (self.seed, completion);
            let (op, frame) = self.asked.remove(&tag).unwrap_or_else(|| panic!("{what:?} ends twice, or unasked"));
            self.free_frames.push(frame);
            self.ended_well += u64::from(result.is_ok());
            let said = self.said.get(&tag).is_some_and(|said| said.iter().any(|s| s.to_result() == result));
            let by_driver = match result {
                // What the device says of a flush names no sector.
                _ if op == Op::Flush => true,
                Err(FlashError::TimedOut) => self.has_time,
                Err(FlashError::Closed | FlashError::Poisoned) => true,
                Err(FlashError::Corrupt) => op == Op::Read && self.checks_data,
                _ => false,
            };
            assert!(said || by_driver, "{what:?}: the device has said {:?}", self.said.get(&tag));
            if op == Op::Read && result.is_ok() {
                assert_eq!(stamp_of(&self.frames, frame), Some(tag + 1), "{what:?}");
            }
        }
        reported.len()
    }
    /// An honest device from now on: all that was asked for ends.
    fn settles(&mut self) {
        let (mut heard, mut pause) = (Instant::now(), 0);
        while self.queue().in_flight() > 0 {
            assert!(heard.elapsed() < FOREVER, "seed {}: some never end", self.seed);
            self.opens();
            for side in 0..self.sides.len() {
                self.sides[side].takes();
                while !self.sides[side].taken.is_empty() {
                    self.ends_one(side, Status::SUCCESS);
                }
            }
            let _ = self.queue().flush();
            if self.hears() > 0 {
                (heard, pause) = (Instant::now(), 0);
            } else if pause < 200 {
                pause += 1;
                std::thread::sleep(Duration::from_micros(100));
            } else {
                // An unseen scribble over an entry of its queue: without a time-out only a report
                // of it helps.
                pause = 0;
                self.sides.iter().for_each(Side::breaks);
            }
        }
    }
}

fn queue(seed: u64) -> u64 {
    const STEPS: u64 = 4000;
    let mut random = Random(seed);
    let device = played_of(Features::default(), SECTORS);
    let (has_time, checks_data) = (random.below(3) == 0, random.below(2) == 0);
    let config = HostConfig {
        copies: true,
        timeout: has_time.then_some(Duration::from_millis(2)),
        reattach: Duration::from_secs(20),
        // So few that it flushes by itself.
        unflushed_bytes: one_of(&mut random, &[0, 12, 64]) * SECTOR_BYTES,
        checks_data,
        ..HostConfig::default()
    };
    let flash = DeviceFlash::over(device.clone(), config);
    let frames = arena(DEPTH as u32);
    let mut queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
    if random.below(2) == 0 {
        queue.switch(Switches { checksums: true, ..Switches::default() });
    }
    let mut game = Match {
        random,
        device,
        sides: Vec::new(),
        frames,
        queue: Some(queue),
        free_frames: (0..DEPTH as u32).collect(),
        asked: HashMap::new(),
        said: HashMap::new(),
        has_time,
        checks_data,
        tag: 0,
        ended_well: 0,
        seed,
    };
    for _ in 0..STEPS {
        match game.random.below(8) {
            0..=2 => game.asks(),
            3 => drop(game.queue().flush()),
            4 => drop(game.hears()),
            _ => game.device_acts(),
        }
    }
    game.settles();
    assert!(game.asked.is_empty(), "seed {seed}: {:?} were never reported", game.asked);
    game.ended_well
}

#[test]
fn a_queue_stands_whatever_its_device_does() {
    fuzz("requests to a hostile device that ended well", queue);
}

/// What a device says to commands, by a thread of its own. It fills reads as it takes the command.
fn says_anything(device: &Played, stop: &AtomicBool, seed: u64, lies: bool) {
    let mut random = Random(seed);
    let mut sides: Vec<Side> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        {
            let (regions, restoring) = (device.opened.lock().unwrap(), device.restoring.lock().unwrap());
            let all = regions.iter().zip(restoring.iter());
            sides.extend(all.skip(sides.len()).map(|(region, restores)| Side::of(region, *restores)));
        }
        let newest = sides.len().saturating_sub(4);
        for side in &mut sides[newest..] {
            let before = side.taken.len();
            side.takes();
            for command in &side.taken[before..] {
                let reads = [Opcode::Read, Opcode::ReadAt].map(|opcode| opcode as u8).contains(&command.opcode);
                for i in (0..command.count).filter(|_| reads) {
                    let stamp = command.sector.wrapping_add(i.into()).wrapping_add(1);
                    fill(side.region.arena(), side.frame(command.buffer + i), stamp);
                }
                if command.opcode == Opcode::Identify as u8 && random.below(2) == 0 {
                    let words: Vec<u8> =
                        (0..8).flat_map(|_| (random.next() >> random.below(64)).to_le_bytes()).collect();
                    side.region.arena().write(side.frame(command.buffer) as usize * SECTOR_BYTES, &words);
                }
            }
            side.idle = if side.taken.is_empty() { side.idle.saturating_add(1) } else { 0 };
            let lives = side.idle <= IDLE_MAX;
            if lives && random.below(4) == 0 {
                side.region.beat(random.next());
            }
            // Its heart is one of the registers.
            if lives && random.below(200) == 0 {
                let completions = lies && random.below(4) == 0;
                side.scribbles(&mut random, completions);
            }
            if random.below(400) == 0 {
                device.instance.store(1 + random.below(4), Ordering::Relaxed);
            }
            if lies && random.below(10) == 0 {
                let (id, status) = (random.below(12) as u16, status(&mut random));
                side.ends(id, status, random.next());
            }
            if side.taken.is_empty() {
                continue;
            }
            let command = side.taken.swap_remove(random.below(side.taken.len() as u64) as usize);
            // Tokens and numbers are small, as a store's are, or any.
            let result = if random.below(4) == 0 { random.next() } else { random.below(20) };
            match random.below(60) {
                // Never.
                0 => {}
                1 if lies => {
                    side.ends(command.id, Status::SUCCESS, result);
                    side.ends(command.id, status(&mut random), result);
                }
                2 => side.ends(NO_ID, Status::DAMAGED_ENTRY, result),
                3 => {
                    side.ends(command.id, Status::SUCCESS, result);
                    side.breaks();
                }
                4..=9 => side.ends(command.id, Status(0x700 | random.below(13) as u16), result),
                _ => side.ends(command.id, status(&mut random), result),
            }
        }
        std::thread::yield_now();
    }
}

/// Everything that a host can ask for by commands, once, at random. Returns false when these are of
/// no more use.
fn asks_anything(random: &mut Random, flash: &DeviceFlash, commands: &mut Commands, lies: bool) -> bool {
    let sector = random.below(u64::from(SECTORS) - 8) as u32;
    let page = random.below(100) as u32;
    let pages = page..page + 1 + random.below(3) as u32;
    let token = if random.below(4) == 0 { random.next() } else { random.below(20) };
    let mut bytes = vec![0; (1 + random.below(6)) as usize * SECTOR_BYTES];
    let whole = |bytes: &[u8], sector: u64| {
        let read = arena((bytes.len() / SECTOR_BYTES) as u32);
        read.write(0, bytes);
        for i in 0..(bytes.len() / SECTOR_BYTES) as u32 {
            let stamp = stamp_of(&read, i);
            // A device that ends a read before its command has no data for it.
            assert!(
                lies || stamp == Some(sector.wrapping_add(i.into()).wrapping_add(1)),
                "{stamp:?} of {sector} and {i}"
            );
        }
    };
    let versions = flash.versions().expect("it has tokens");
    let gone = match random.below(18) {
        0..=2 => {
            let read = commands.read(sector, &mut bytes);
            read.inspect(|()| whole(&bytes, sector.into())).err()
        }
        3..=5 => commands.write(sector, &bytes).err(),
        6 => commands.flush().err(),
        7 => commands.identify().err(),
        8 => commands
            .allocate(pages, Permissions::DEFAULT)
            .and(commands.set_permissions(0..1, Permissions::DEFAULT))
            .err(),
        9 => commands.delete(pages).err(),
        10 => commands.trim(sector, 1 + random.below(40) as u32).err(),
        11 => {
            let mut sector_of_then = [0; SECTOR_BYTES];
            let read = commands.read_at(token, sector, &mut sector_of_then);
            read.map(|()| whole(&sector_of_then, sector.into())).err().and_then(of_flash)
        }
        12 => commands.pin(token, random.below(2) == 0).err().and_then(of_flash),
        13 => commands.sync().err().and_then(of_flash),
        14 => commands.tokens().inspect(|tokens| assert!(tokens.len() <= 4096)).err(),
        15 => {
            match random.below(6) {
                0 => drop(versions.name_state()),
                1 => drop(versions.wait_durable(token)),
                2 => drop(versions.can_roll_back(token)),
                3 => drop(versions.tokens()),
                4 if random.below(4) == 0 => drop(versions.roll_back(token)),
                _ => drop(flash.trim(SubpageIndex(sector), 16)),
            }
            None
        }
        // By hand, also what no device has.
        _ => {
            let at = one_of(
                random,
                &[sector.into(), u64::from(SECTORS) - 1, u32::MAX.into(), u64::from(u32::MAX) + 7, u64::MAX],
            );
            let count = 1 + random.below(4) as u32;
            let opcode = one_of(random, &[Opcode::Read, Opcode::Write, Opcode::Write]);
            match commands.begin(opcode, at, count, (opcode == Opcode::Write).then_some(&bytes[..])) {
                None => None,
                Some(_) => commands
                    .wait()
                    .map(|done| {
                        let mut into = vec![0; SECTOR_BYTES];
                        commands.copy_out(done.id, &mut into);
                        commands.release(done.id);
                    })
                    .err(),
            }
        }
    };
    !matches!(gone, Some(FlashError::Closed | FlashError::Poisoned | FlashError::TimedOut))
}

fn of_flash(error: VersionError) -> Option<FlashError> {
    match error {
        VersionError::Flash(error) => Some(error),
        _ => None,
    }
}

fn commands(seed: u64) -> u64 {
    const CALLS: u64 = 1000;
    let mut random = Random(seed);
    let device = played_of(Features::PAGES.with(Features::TOKENS, true), SECTORS);
    let lies = random.below(2) == 0;
    let (stop, plays) = (Arc::new(AtomicBool::new(false)), device.clone());
    let stopped = stop.clone();
    let plays = std::thread::spawn(move || says_anything(&plays, &stopped, seed ^ 1, lies));
    let config = HostConfig {
        copies: true,
        timeout: Some(Duration::from_millis(3)),
        reattach: Duration::from_millis(200),
        unflushed_bytes: one_of(&mut random, &[0, 16, 256]) * SECTOR_BYTES,
        ..HostConfig::default()
    };
    let over = || DeviceFlash::over(device.clone(), config.clone());
    let mut flash = over();
    let mut opened = None;
    for _ in 0..CALLS {
        let mut commands = match opened.take() {
            Some(commands) => commands,
            // What was acknowledged may be gone: that is said for good, and a host opens the device
            // anew.
            None => match flash.commands(4, 16) {
                Ok(commands) => commands,
                Err(_) => {
                    flash = over();
                    continue;
                }
            },
        };
        if asks_anything(&mut random, &flash, &mut commands, lies) {
            opened = Some(commands);
        }
    }
    drop((opened, flash));
    stop.store(true, Ordering::Relaxed);
    plays.join().expect("the played device comes to its end");
    CALLS
}

#[test]
fn commands_stand_whatever_their_device_does() {
    fuzz("commands to a hostile device", commands);
}
