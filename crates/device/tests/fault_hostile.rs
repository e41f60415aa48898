//! Goal: whatever the other side writes into the shared memory, and whenever: the firmware answers every whole entry once, by the right
//! code, touches nothing outside the queue pair's data buffer, and goes on serving others; the driver ends every request once, and
//! believes no completion of what is not in flight.
//! Method: seeded streams of entries, sound, senseless and damaged, against a model of what each must be answered; a thread that
//! scribbles over everything while the firmware turns; a device played by the test that completes what it likes. Each for some seconds, with
//! ever new seeds, which are printed.

#[path = "../../flash/tests/common/mod.rs"]
mod common;
#[path = "common/mod.rs"]
mod hand;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Random, arena, fill, request, seed, stamp_of};
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_sys::Notifier;
use hand::*;

/// Runs it with one seed after the other until its budget is used up: `FULGURITE_FUZZ_SECONDS`, 2 each in CI, more in `make soak`. The first
/// seed is that of the run; what fails with a later one fails with that one as `FULGURITE_SEED`.
fn fuzz(once: impl Fn(u64)) {
    let seconds = std::env::var("FULGURITE_FUZZ_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (begun, mut seed, mut rounds) = (std::time::Instant::now(), seed(), 0);
    while rounds == 0 || begun.elapsed() < Duration::from_secs(seconds) {
        println!("seed {seed}");
        once(seed);
        (seed, rounds) = (Random(seed).next(), rounds + 1);
    }
    println!("{rounds} rounds");
}

const SECTORS_OF_HOSTILE: u64 = 16;

/// A number that a field of 32 bits may be meant to break with.
fn odd(random: &mut Random, sound: u64) -> u32 {
    match random.below(8) {
        0 => u32::MAX,
        1 => u32::MAX - random.below(4) as u32,
        2 => 1 << random.below(32),
        3 => random.next() as u32,
        _ => random.below(sound) as u32,
    }
}

/// What the firmware must say to a command whose id is free.
fn expected(c: &Command) -> Status {
    let (count, buffer) = (u64::from(c.count), u64::from(c.buffer));
    match Opcode::of(c.opcode) {
        None => Status::INVALID_OPCODE,
        Some(_) if c.flags != 0 => Status::INVALID_FIELD,
        // There is no store behind it.
        Some(opcode) if opcode as u8 >= Opcode::Trim as u8 => Status::INVALID_OPCODE,
        Some(Opcode::Flush) => Status::SUCCESS,
        Some(Opcode::Identify) if count != 1 => Status::INVALID_FIELD,
        Some(Opcode::Identify) if buffer >= u64::from(BUFFER) => Status::BUFFER_RANGE,
        Some(Opcode::Identify) => Status::SUCCESS,
        _ if count == 0 || count > 1024 => Status::INVALID_FIELD,
        _ if u128::from(c.sector) + u128::from(count) > u128::from(SECTORS) => Status::SECTOR_RANGE,
        _ if buffer + count > u64::from(BUFFER) => Status::BUFFER_RANGE,
        _ => Status::SUCCESS,
    }
}

/// The second pair's data buffer belongs to somebody else.
fn guard(bench: &Bench) {
    let guarded = bench.region.buffer_first(1) as usize * SECTOR_BYTES;
    for i in 0..BUFFER as usize {
        bench.region.arena().write(guarded + i * SECTOR_BYTES, &[0xEE; SECTOR_BYTES]);
    }
}
fn is_guarded(bench: &Bench) -> bool {
    let guarded = bench.region.buffer_first(1) as usize * SECTOR_BYTES;
    let mut bytes = vec![0; BUFFER as usize * SECTOR_BYTES];
    bench.region.arena().read(guarded, &mut bytes);
    bytes.iter().all(|&byte| byte == 0xEE)
}

#[test]
fn every_entry_is_answered_by_its_code() {
    fuzz(entries);
}
fn entries(seed: u64) {
    let mut random = Random(seed);
    let flash = memory();
    let plan = FaultPlan { seed, reorder: true, ..FaultPlan::default() };
    let faulty = FaultyFlash::new(MemoryFlash::new(SECTORS).unwrap(), plan);
    for medium in [flash.clone() as Arc<dyn Flash>, Arc::new(faulty)] {
        let mut bench = Bench::new(medium, FirmwareConfig::default());
        guard(&bench);
        // By id, what is to be said of the command that has it.
        let mut under_way: HashMap<u16, Status> = HashMap::new();
        let mut broken: VecDeque<Ended> = VecDeque::new();
        let mut position = 0u64;
        for _ in 0..20_000 {
            if random.below(3) > 0 && under_way.len() + broken.len() < DEPTH {
                let opcode = match random.below(6) {
                    0 => random.next() as u8,
                    1 => Opcode::Flush as u8,
                    2 => Opcode::Identify as u8,
                    3 => Opcode::Write as u8,
                    _ => Opcode::Read as u8,
                };
                // What this firmware does not do over such a medium is not known to it.
                let id = if random.below(10) == 0 { random.next() as u16 } else { random.below(DEPTH as u64) as u16 };
                let sector =
                    if random.below(8) == 0 { random.next() } else { u64::from(odd(&mut random, SECTORS.into())) };
                let command = Command {
                    id,
                    opcode,
                    flags: if random.below(10) == 0 { (random.next() as u8 & 0x7F) & !3 } else { 0 },
                    sector,
                    count: odd(&mut random, 6),
                    buffer: odd(&mut random, BUFFER.into()),
                    argument: random.next(),
                };
                bench.submit(command);
                if usize::from(id) >= DEPTH || under_way.contains_key(&id) {
                    broken.push_back(Ended { id: NO_ID, status: Status::ID_CONFLICT, result: id.into() });
                } else {
                    under_way.insert(id, expected(&command));
                }
                position += 1;
                // Taken at once, so that the model knows which ids were free.
                bench.firmware.turn();
            } else if random.below(20) == 0 {
                // An entry that is damaged: any bit but the phase.
                bench.submit(command(0, Opcode::Read, 0, 1, 0));
                let words = bench.region.arena().words(0x1000 + 128, 16 * SUBMISSION_WORDS);
                let word = (position as usize % 16) * SUBMISSION_WORDS + random.below(4) as usize;
                words[word].fetch_xor(1 << random.below(63), Ordering::Relaxed);
                broken.push_back(Ended { id: NO_ID, status: Status::DAMAGED_ENTRY, result: position });
                position += 1;
            }
            bench.firmware.turn();
            while let Some(ended) = bench.ended() {
                if ended.id == NO_ID {
                    assert_eq!(Some(ended), broken.pop_front());
                } else {
                    assert_eq!(under_way.remove(&ended.id), Some(ended.status), "command {}", ended.id);
                }
            }
        }
        for _ in 0..100 {
            bench.firmware.turn();
        }
        while let Some(ended) = bench.ended() {
            assert_eq!(under_way.remove(&ended.id), Some(ended.status));
        }
        assert!(under_way.is_empty() && broken.is_empty() && !bench.firmware.is_busy());
        assert!(is_guarded(&bench));
    }
}

/// A queue that is overrun: entries overwritten before they were taken, ids used again and again, completions never taken.
#[test]
fn who_overruns_a_queue_hurts_only_itself() {
    let flash = memory();
    let mut bench = Bench::new(flash.clone(), FirmwareConfig::default());
    guard(&bench);
    for i in 0..1000u64 {
        for _ in 0..i % 50 {
            bench.submit(command((i % 7) as u16, Opcode::Read, i % 20, 1, (i % 8) as u32));
        }
        bench.firmware.turn();
    }
    for _ in 0..100 {
        bench.firmware.turn();
    }
    assert!(!bench.firmware.is_busy() && is_guarded(&bench));
}

#[test]
fn scribbling_while_the_firmware_works() {
    fuzz(scribble);
}
fn scribble(seed: u64) {
    let flash = memory();
    let mut bench = Bench::new(flash.clone(), FirmwareConfig::default());
    guard(&bench);
    // An honest host with a region of its own, on sectors that the hostile one does not write.
    let backend = bench.firmware.backend().clone();
    let region = Arc::new(Region::create(backend.capability(1, 2, 2), false).unwrap());
    let port = backend.open_port(&region, 0, None, &bench.wake, bench.woken.clone()).unwrap();
    bench.firmware.add(port);
    let (mut submissions, mut completions) = region.host_ends(0);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, hostile) = (stop.clone(), bench.region.clone());
    let scribbler = std::thread::spawn(move || {
        let mut random = Random(seed);
        let (mut own, _) = hostile.host_ends(0);
        let queues = (hostile.buffer_first(0) as usize * SECTOR_BYTES) / 8;
        while !stopped.load(Ordering::Relaxed) {
            // Whole entries, that are then changed; single words of registers and queues, the other pair's included.
            let opcode = if random.below(2) == 0 { Opcode::Read } else { Opcode::Write };
            let sector = random.below(SECTORS_OF_HOSTILE - 4);
            own.push(
                Command {
                    count: 1 + random.below(4) as u32,
                    buffer: odd(&mut random, BUFFER.into()),
                    ..command(random.below(6) as u16, opcode, sector, 0, 0)
                }
                .pack(),
            );
            let word = &hostile.arena().words(0, queues)[random.below(queues as u64) as usize];
            match random.below(3) {
                0 => word.store(random.next(), Ordering::Relaxed),
                1 => drop(word.fetch_xor(1 << random.below(64), Ordering::Relaxed)),
                _ => word.store(0, Ordering::Relaxed),
            }
        }
    });
    let buffer = region.buffer_first(0) as usize * SECTOR_BYTES;
    let mut random = Random(seed ^ 1);
    for round in 0..3000u32 {
        let byte = round as u8;
        let sector = SECTORS_OF_HOSTILE + random.below(u64::from(SECTORS) - SECTORS_OF_HOSTILE);
        region.arena().write(buffer, &[byte; SECTOR_BYTES]);
        for (opcode, place) in [(Opcode::Write, 0), (Opcode::Read, 1)] {
            submissions.push(command(1, opcode, sector, 1, place).pack());
            let ended = loop {
                bench.firmware.turn();
                if let Some(entry) = completions.pop() {
                    break Ended::unpack(entry.unwrap());
                }
            };
            assert_eq!((ended.id, ended.status), (1, Status::SUCCESS));
        }
        let mut got = [0; SECTOR_BYTES];
        region.arena().read(buffer + SECTOR_BYTES, &mut got);
        assert!(got.iter().all(|&b| b == byte), "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    for _ in 0..1000 {
        bench.firmware.turn();
    }
    assert!(!bench.firmware.is_busy(), "something was taken and never ended");
    assert!(is_guarded(&bench), "outside the data buffer");
}

/// A device that the test plays: what it does with each queue pair that is opened is up to the test.
struct Played {
    opened: Mutex<Vec<Arc<Region>>>,
    sectors: u32,
    open: AtomicU64,
}

struct Held;
impl Hold for Held {
    fn close(&mut self) {}
    fn has_let_go(&self) -> bool {
        true
    }
}

impl Link for Played {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        self.open.fetch_add(1, Ordering::Relaxed);
        let capability = Capability {
            sectors: self.sectors,
            pairs: 1,
            depth: want.depth as u32,
            buffer_sectors: want.buffer_sectors,
            boot_sectors: 0,
            features: Features::KEEPS_WRITES,
            instance: 1,
            command_sectors: 8,
        };
        let region = Arc::new(Region::create(capability, false).unwrap());
        self.opened.lock().unwrap().push(region.clone());
        let doorbell: Arc<dyn Wake> = Arc::new(Notifier::new().unwrap());
        Ok(Linked {
            region,
            pair: 0,
            doorbell,
            life: Arc::default(),
            shares_frames: false,
            device_bytes: 0,
            hold: Box::new(Held),
        })
    }
    fn describe(&self) -> String {
        "played".to_owned()
    }
    fn sectors(&self) -> u32 {
        self.sectors
    }
    fn features(&self) -> Features {
        Features::default()
    }
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

fn played() -> Arc<Played> {
    Arc::new(Played { opened: Mutex::default(), sectors: 100, open: AtomicU64::new(0) })
}

/// Answers what was submitted, honestly, with a stamp as data.
fn answer(region: &Region, submissions: &mut Consumer<4>, completions: &mut Producer<2>) {
    while let Some(Ok(words)) = submissions.pop() {
        let command = Command::unpack(words);
        let frame = region.buffer_first(0) + command.buffer;
        fill(region.arena(), frame, command.sector + 1);
        completions.push(Ended { id: command.id, status: Status::SUCCESS, result: 0 }.pack());
    }
}

#[test]
fn completions_of_what_is_not_in_flight_are_not_believed() {
    fuzz(completions);
}
fn completions(seed: u64) {
    let mut random = Random(seed);
    let device = played();
    let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
    const DEPTH: usize = 8;
    let frames = arena(DEPTH as u32);
    let mut queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
    let region = device.opened.lock().unwrap()[0].clone();
    let (mut submissions, mut completions) = region.device_ends(0);
    let mut found = Vec::new();
    let mut lies = 0;
    for round in 0..2000u64 {
        let count = 1 + random.below(DEPTH as u64);
        for i in 0..count {
            queue.submit(request(round * 100 + i, Op::Read, (round % 100) as u32, i as u32)).unwrap();
        }
        queue.flush().unwrap();
        let mut taken: Vec<Command> = Vec::new();
        while let Some(Ok(words)) = submissions.pop() {
            taken.push(Command::unpack(words));
        }
        assert_eq!(taken.len() as u64, count);
        // Each once, in any order, and in between ids out of range, never sent, or twice.
        let mut sent: Vec<u16> = Vec::new();
        let before = found.len();
        assert_eq!(before, 0);
        while !taken.is_empty() {
            if random.below(2) == 0 && sent.len() < 4 {
                let id = match random.below(3) {
                    0 => DEPTH as u16 + random.below(1000) as u16,
                    1 => (0..DEPTH as u16).find(|id| !taken.iter().any(|c| c.id == *id)).unwrap_or(DEPTH as u16),
                    _ => sent.last().copied().unwrap_or(9),
                };
                completions.push(Ended { id, status: Status(random.below(8) as u16), result: random.next() }.pack());
                lies += 1;
            }
            let command = taken.swap_remove(random.below(taken.len() as u64) as usize);
            fill(region.arena(), region.buffer_first(0) + command.buffer, command.sector + 1);
            completions.push(Ended { id: command.id, status: Status::SUCCESS, result: 0 }.pack());
            sent.push(command.id);
            queue.poll(&mut found);
        }
        let mut tags: Vec<u64> = found.drain(..).map(|c| c.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..count).map(|i| round * 100 + i).collect::<Vec<_>>());
        assert_eq!(queue.in_flight(), 0);
        for i in 0..count {
            assert_eq!(stamp_of(&frames, i as u32), Some(round % 100 + 1));
        }
    }
    assert_eq!(flash.host_counters().broken, lies);
    assert_eq!(device.open.load(Ordering::Relaxed), 1, "nothing of that is a reason to attach again");
}

#[test]
fn a_damaged_queue_pair_is_left_and_its_commands_are_sent_again() {
    for how in 0..3 {
        let device = played();
        let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
        let frames = arena(4);
        let mut queue = flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
        for i in 0..4 {
            queue.submit(request(u64::from(i), Op::Read, i, i)).unwrap();
        }
        queue.flush().unwrap();
        let first = device.opened.lock().unwrap()[0].clone();
        let (_, mut completions) = first.device_ends(0);
        match how {
            0 => completions.push(Ended { id: NO_ID, status: Status::DAMAGED_ENTRY, result: 0 }.pack()),
            1 => completions.push(Ended { id: NO_ID, status: Status::ID_CONFLICT, result: 3 }.pack()),
            _ => {
                completions.push(Ended { id: 0, status: Status::SUCCESS, result: 0 }.pack());
                let queue = 0x1000 + 128 + 16 * SUBMISSION_WORDS * 8;
                first.arena().words(queue, 1)[0].store(99, Ordering::Relaxed);
            }
        }
        // What comes behind is of no account, and keeps nobody from leaving.
        (0..2).for_each(|id| completions.push(Ended { id, status: Status::SUCCESS, result: 0 }.pack()));
        let mut found = Vec::new();
        let (mut ends, mut polls) = (None, 0);
        while found.len() < 4 {
            queue.poll(&mut found);
            if ends.is_none() && device.opened.lock().unwrap().len() == 2 {
                let second = device.opened.lock().unwrap()[1].clone();
                let (submissions, completions) = second.device_ends(0);
                ends = Some((second, submissions, completions));
            }
            if let Some((region, submissions, completions)) = &mut ends {
                answer(region, submissions, completions);
            }
            polls += 1;
            assert!(polls < 10_000_000, "way {how}");
        }
        assert!(found.iter().all(|c| c.result.is_ok()));
        for i in 0..4 {
            assert_eq!(stamp_of(&frames, i), Some(u64::from(i) + 1));
        }
        let counters = flash.host_counters();
        assert_eq!((counters.relinked, counters.replayed), (1, 4));
    }
}

/// A device that breaks every queue pair is given up, and does not keep its host for ever.
#[test]
fn a_device_that_only_breaks_the_protocol_is_given_up() {
    let device = played();
    let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
    let mut queue = flash.open_queue(arena(1), 1, Arc::new(Notifier::new().unwrap())).unwrap();
    queue.submit(request(7, Op::Read, 0, 0)).unwrap();
    queue.flush().unwrap();
    let mut found = Vec::new();
    let mut scribbled = 0;
    while found.is_empty() {
        let regions = device.opened.lock().unwrap().clone();
        for region in &regions[scribbled..] {
            let (_, mut completions) = region.device_ends(0);
            completions.push(Ended { id: NO_ID, status: Status::DAMAGED_ENTRY, result: 0 }.pack());
        }
        scribbled = regions.len();
        assert!(scribbled < 100);
        queue.poll(&mut found);
    }
    assert_eq!(found, [Completion { tag: 7, result: Err(FlashError::Closed), checksum: 0 }]);
}

#[test]
fn a_stopped_device_is_a_time_out_and_what_comes_late_is_not_believed() {
    let device = played();
    let timeout = Some(Duration::from_millis(20));
    let config = HostConfig { copies: true, timeout, ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let frames = arena(2);
    let mut queue = flash.open_queue(frames.clone(), 2, Arc::new(Notifier::new().unwrap())).unwrap();
    let region = device.opened.lock().unwrap()[0].clone();
    let (mut submissions, mut completions) = region.device_ends(0);
    fill(&frames, 0, 77);
    for tag in 0..2 {
        queue.submit(request(tag, Op::Read, 5, tag as u32)).unwrap();
    }
    let mut found = Vec::new();
    while found.len() < 2 {
        queue.wait(Some(Duration::from_millis(5)));
        queue.poll(&mut found);
    }
    assert!(found.iter().all(|c| c.result == Err(FlashError::TimedOut)));
    assert_eq!((queue.in_flight(), flash.host_counters().timed_out), (0, 2));
    // No id is free: what comes now fails at once, and the queue is not stuck.
    queue.submit(request(9, Op::Read, 5, 1)).unwrap();
    found.clear();
    queue.poll(&mut found);
    assert_eq!(found, [Completion { tag: 9, result: Err(FlashError::TimedOut), checksum: 0 }]);
    // The device goes on: the old ones are not completed a second time, and the frames stay as they are.
    answer(&region, &mut submissions, &mut completions);
    found.clear();
    queue.poll(&mut found);
    assert_eq!((found.len(), stamp_of(&frames, 0)), (0, Some(77)));
    queue.submit(request(10, Op::Read, 6, 1)).unwrap();
    queue.flush().unwrap();
    answer(&region, &mut submissions, &mut completions);
    assert_eq!(queue.poll(&mut found), 1);
    assert_eq!((found[0].tag, found[0].result, stamp_of(&frames, 1)), (10, Ok(()), Some(7)));
}

#[test]
fn transfers_from_a_hostile_device_end() {
    let device = played();
    let timeout = Some(Duration::from_millis(20));
    let config = HostConfig { copies: true, timeout, ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let mut commands = flash.commands(4, 8).unwrap();
    let region = device.opened.lock().unwrap()[0].clone();
    let (_, mut completions) = region.device_ends(0);
    let mut bytes = vec![0; 4 * SECTOR_BYTES];
    // Never sent, out of range, twice: passed over, and the time ends it.
    for id in [3, 77, 77, 3] {
        completions.push(Ended { id, status: Status::SUCCESS, result: 0 }.pack());
    }
    assert_eq!(commands.read(0, &mut bytes), Err(FlashError::TimedOut));
    assert!(flash.host_counters().broken >= 3);
    // A nonsense answer to identify.
    let mut commands = flash.commands(4, 8).unwrap();
    let region = device.opened.lock().unwrap()[1].clone();
    let (_, mut completions) = region.device_ends(0);
    completions.push(Ended { id: 0, status: Status::SUCCESS, result: 0 }.pack());
    let player = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2));
        completions.push(Ended { id: 0, status: Status::SUCCESS, result: 0 }.pack());
    });
    let answer = commands.identify();
    assert!(matches!(answer, Err(FlashError::Corrupt | FlashError::TimedOut)), "{answer:?}");
    player.join().unwrap();
}

/// A write whose time is over may yet be done: one of the same sector that comes after it is not sent before the device has answered.
#[test]
fn a_newer_write_is_not_overtaken_by_a_late_one() {
    let device = played();
    let config = HostConfig { copies: true, timeout: Some(Duration::from_secs(1)), ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let frames = arena(4);
    let mut queue = flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
    let region = device.opened.lock().unwrap()[0].clone();
    let (mut submissions, mut completions) = region.device_ends(0);
    let mut found = Vec::new();
    queue.submit(request(1, Op::Write, 5, 0)).unwrap();
    while found.is_empty() {
        queue.wait(Some(Duration::from_millis(5)));
        queue.poll(&mut found);
    }
    assert_eq!(found[0].result, Err(FlashError::TimedOut));
    // Another sector goes on; this one waits, and is not forgotten.
    queue.submit(request(2, Op::Write, 5, 1)).unwrap();
    queue.submit(request(3, Op::Write, 6, 2)).unwrap();
    queue.flush().unwrap();
    let mut sent = Vec::new();
    while let Some(Ok(words)) = submissions.pop() {
        sent.push(Command::unpack(words));
    }
    assert_eq!(sent.iter().map(|c| c.sector).collect::<Vec<_>>(), [5, 6]);
    for command in &sent {
        completions.push(Ended { id: command.id, status: Status::SUCCESS, result: 0 }.pack());
    }
    found.clear();
    queue.poll(&mut found);
    assert_eq!(found.iter().map(|c| c.tag).collect::<Vec<_>>(), [3]);
    let Some(Ok(words)) = submissions.pop() else { panic!("the newer write is not sent") };
    let last = Command::unpack(words);
    assert_eq!(last.sector, 5);
    completions.push(Ended { id: last.id, status: Status::SUCCESS, result: 0 }.pack());
    queue.poll(&mut found);
    assert_eq!((found[1].tag, found[1].result, queue.in_flight()), (2, Ok(()), 0));
}

/// What is damaged in the data buffer on its way is an error, and is not written.
#[test]
fn a_write_that_was_damaged_on_its_way_is_told() {
    for checks_writes in [false, true] {
        let device = played();
        let config = HostConfig { copies: true, checks_writes, ..HostConfig::default() };
        let flash = DeviceFlash::over(device.clone(), config);
        let frames = arena(2);
        let mut queue = flash.open_queue(frames.clone(), 2, Arc::new(Notifier::new().unwrap())).unwrap();
        let region = device.opened.lock().unwrap()[0].clone();
        let medium = Arc::new(MemoryFlash::new(100).unwrap());
        let backend = Arc::new(Backend::new(medium.clone(), FirmwareConfig::default(), 1));
        let wake = Arc::new(Notifier::new().unwrap());
        let mut firmware = Firmware::new(backend.clone(), &wake).unwrap();
        firmware.add(backend.open_port(&region, 0, None, &wake, wake.clone()).unwrap());
        for (round, damaged) in [(1, false), (2, true), (3, false)] {
            fill(&frames, 1, round);
            queue.submit(request(round, Op::Write, 7, 1)).unwrap();
            queue.flush().unwrap();
            if damaged {
                // Wherever it lies in the buffer.
                let buffer = region.buffer_first(0) as usize * SECTOR_BYTES;
                for sector in 0..2 {
                    region.arena().write(buffer + sector * SECTOR_BYTES + 9, &[0xA5]);
                }
            }
            let mut found = Vec::new();
            while queue.poll(&mut found) == 0 {
                firmware.turn();
            }
            let expected = if damaged && checks_writes { Err(FlashError::Corrupt) } else { Ok(()) };
            assert_eq!(found[0].result, expected, "round {round}");
            if round == 2 && checks_writes {
                let mut word = [0; 8];
                medium.storage().read(7 * SECTOR_BYTES, &mut word);
                assert_eq!(word, 1u64.to_le_bytes(), "what was there before is there");
            }
        }
    }
}
