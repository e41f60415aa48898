//! Goal: whatever a host writes into the shared memory, the firmware answers every whole entry
//! once, by the right code. It touches nothing outside the queue pair's data buffer, and goes on
//! serving others.
//! Method: seeded streams of entries, sound, senseless and damaged, against a model of the answers;
//! a thread that scribbles over everything while the firmware turns. Each for some seconds, with
//! ever new seeds, which are printed.

use crate::common;
use crate::fuzz;
use crate::hand;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::Random;
use fulgurite_device::*;
use fulgurite_flash::*;
use fuzz::fuzz;
use hand::*;

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
    fuzz("entries of a hostile host to a firmware", entries);
}
fn entries(seed: u64) -> u64 {
    let (mut random, mut sent) = (Random(seed), 0);
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
        sent += position;
    }
    sent
}

/// A queue that is overrun: entries overwritten before they were taken, ids reused, completions
/// left.
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
    fuzz("rounds of an honest host next to one that scribbles", scribble);
}
fn scribble(seed: u64) -> u64 {
    const ROUNDS: u32 = 3000;
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
            // Whole entries, that are then changed; single words of registers and queues, also the
            // other pair's.
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
    for round in 0..ROUNDS {
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
    ROUNDS.into()
}
