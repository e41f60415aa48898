//! Goal: whatever a device writes into the shared memory, the driver ends every request once,
//! believes no completion of what is not in flight, and neither panics nor hangs.
//! Method: a device played by the test that completes what it likes. Random ones for some seconds,
//! with ever new seeds, which are printed.

use crate::common;
use crate::fuzz;
use crate::hand;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Driver, Random, arena, fill, request, stamp_of};
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::SubpageIndex;
use fulgurite_sys::Notifier;
use fuzz::fuzz;
use hand::played::*;

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
    fuzz("completions of a hostile device", completions);
}
fn completions(seed: u64) -> u64 {
    let mut random = Random(seed);
    let device = played();
    let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
    const DEPTH: usize = 8;
    let frames = arena(DEPTH as u32);
    let mut queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
    let region = device.opened.lock().unwrap()[0].clone();
    let (mut submissions, mut completions) = region.device_ends(0);
    let mut found = Vec::new();
    let (mut wrong, mut reported) = (0, 0);
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
                wrong += 1;
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
        reported += count;
    }
    assert_eq!(flash.host_counters().broken, wrong);
    assert_eq!(device.open.load(Ordering::Relaxed), 1, "nothing of that is a reason to attach again");
    wrong + reported
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
        assert_eq!((counters.relinked, counters.replayed, counters.broken), (1, 4, 1), "way {how}");
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
    // The device goes on: the old ones are not completed again, and the frames stay as they are.
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

/// What a command of before still has of the data buffer is waited for by one that needs it.
#[test]
fn what_a_late_command_has_of_the_buffer_is_waited_for() {
    let device = played();
    let config = HostConfig { copies: true, timeout: Some(Duration::from_secs(1)), ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let mut commands = flash.commands(4, 8).unwrap();
    let region = device.opened.lock().unwrap()[0].clone();
    let (mut submissions, mut completions) = region.device_ends(0);
    assert_eq!(commands.read(0, &mut vec![0; 8 * SECTOR_BYTES]), Err(FlashError::TimedOut));
    assert_eq!(commands.free_sectors(), 0, "the device may yet write to all of it");
    let plays = std::thread::spawn(move || {
        let mut identified = false;
        while !identified {
            while let Some(entry) = submissions.pop() {
                let Command { id, opcode, .. } = Command::unpack(entry.unwrap());
                identified |= opcode == Opcode::Identify as u8;
                completions.push(Ended { id, status: Status::SUCCESS, result: 0 }.pack());
            }
            std::thread::yield_now();
        }
    });
    // It was asked, and its answer is one of zeros.
    assert_eq!(commands.identify().unwrap_err(), FlashError::Corrupt);
    plays.join().unwrap();
    assert_eq!(commands.free_sectors(), 8);
}

/// An overdue write may yet be done: a later one of its sector waits for the device's answer.
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
fn a_write_that_was_damaged_on_its_way_is_reported() {
    for checks_data in [false, true] {
        let device = played();
        let config = HostConfig { copies: true, checks_data, ..HostConfig::default() };
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
                // Wherever it is in the buffer.
                let buffer = region.buffer_first(0) as usize * SECTOR_BYTES;
                for sector in 0..2 {
                    region.arena().write(buffer + sector * SECTOR_BYTES + 9, &[0xA5]);
                }
            }
            let mut found = Vec::new();
            while queue.poll(&mut found) == 0 {
                firmware.turn();
            }
            let expected = if damaged && checks_data { Err(FlashError::Corrupt) } else { Ok(()) };
            assert_eq!(found[0].result, expected, "round {round}");
            if round == 2 && checks_data {
                let mut word = [0; 8];
                medium.storage().read(7 * SECTOR_BYTES, &mut word);
                assert_eq!(word, 1u64.to_le_bytes(), "what was there before is there");
            }
        }
    }
}

/// A damaged read is repeated once, and never handed over as it is.
#[test]
fn a_read_that_was_damaged_on_its_way_is_done_once_more_and_then_reported() {
    let in_store = || -> Arc<dyn Flash> {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(1024).unwrap());
        let geometry = fulgurite_store::Geometry::new(1024, 32, Some(100)).unwrap();
        fulgurite_store::Pool::format(&medium, geometry, fulgurite_format::PoolId([5; 16]), 0).unwrap();
        let pool = fulgurite_store::Pool::open(medium, fulgurite_store::StoreConfig::default()).unwrap().0;
        Arc::new(pool.into_flash())
    };
    for (checks_data, store) in [(false, false), (true, false), (true, true)] {
        // A medium that says checksums, and one for which the firmware takes them.
        let medium: Arc<dyn Flash> = if store { in_store() } else { Arc::new(MemoryFlash::new(100).unwrap()) };
        let device = played();
        let config = HostConfig { copies: true, checks_data, ..HostConfig::default() };
        let flash = DeviceFlash::over(device.clone(), config);
        let frames = arena(2);
        let mut queue = flash.open_queue(frames.clone(), 2, Arc::new(Notifier::new().unwrap())).unwrap();
        let region = device.opened.lock().unwrap()[0].clone();
        let backend = Arc::new(Backend::new(medium, FirmwareConfig::default(), 1));
        let wake = Arc::new(Notifier::new().unwrap());
        let mut firmware = Firmware::new(backend.clone(), &wake).unwrap();
        firmware.add(backend.open_port(&region, 0, None, &wake, wake.clone()).unwrap());
        // One request, of which `damaged` reads are damaged on their way. Returns how often it was
        // read, too.
        let mut ends = |op: Op, damaged: u64| {
            let (before, mut found) = (backend.counters().completed(), Vec::new());
            queue.submit(request(1, op, 7, u32::from(op == Op::Read))).unwrap();
            queue.flush().unwrap();
            while found.is_empty() {
                let completed = backend.counters().completed();
                while backend.counters().completed() == completed {
                    firmware.turn();
                }
                if completed - before < damaged {
                    // Wherever it is in the buffer.
                    let words = region.arena().words(region.buffer_first(0) as usize * SECTOR_BYTES, 1024);
                    for word in [77, 512 + 77] {
                        words[word].fetch_xor(1 << 13, Ordering::Relaxed);
                    }
                }
                queue.poll(&mut found);
            }
            (found[0].result, found[0].checksum, backend.counters().completed() - before)
        };
        fill(&frames, 0, 21);
        assert_eq!(ends(Op::Write, 0), (Ok(()), 0, 1));
        for damaged in 0..4 {
            fill(&frames, 1, 99);
            let reported = match damaged {
                1 if checks_data => (Ok(()), 0, 2),
                2.. if checks_data => (Err(FlashError::Corrupt), 0, 2),
                _ => (Ok(()), 0, 1),
            };
            assert_eq!(ends(Op::Read, damaged), reported, "damaged {damaged}, checks {checks_data}, store {store}");
            let whole = stamp_of(&frames, 1) == Some(21);
            assert_eq!(whole, if checks_data { damaged < 2 } else { damaged == 0 }, "damaged {damaged}, store {store}");
        }
    }
}

/// The end of a request that waits in the batch, or of its id after that was given back.
#[test]
fn an_end_of_what_was_never_sent_is_not_believed() {
    for flushed in [false, true] {
        let device = played();
        let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
        let mut queue = flash.open_queue(arena(4), 4, Arc::new(Notifier::new().unwrap())).unwrap();
        let region = device.opened.lock().unwrap()[0].clone();
        let (mut submissions, mut completions) = region.device_ends(0);
        for tag in 0..3 {
            queue.submit(request(tag, Op::Read, 5, tag as u32)).unwrap();
        }
        for id in 0..4 {
            completions.push(Ended { id, status: Status::SUCCESS, result: 0 }.pack());
        }
        let mut found = Vec::new();
        assert_eq!((queue.poll(&mut found), queue.in_flight(), flash.host_counters().broken), (0, 3, 4));
        if flushed {
            queue.flush().unwrap();
            answer(&region, &mut submissions, &mut completions);
            assert_eq!((queue.poll(&mut found), queue.in_flight()), (3, 0));
        }
        drop(queue);
    }
}

/// A device that does memory operations: the connection to it, a queue, and the pair that carries
/// them.
fn with_memory(timeout: Duration) -> (Arc<Played>, DeviceFlash, Driver, Commands) {
    let device = played_with(Features::KEEPS_WRITES.with(Features::PAGES, true).with(Features::TOKENS, true));
    let config = HostConfig { copies: true, timeout: Some(timeout), ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let queue = Driver::new(&flash, &arena(4), 2);
    let commands = flash.commands(2, 8).unwrap();
    (device, flash, queue, commands)
}

/// A memory operation may take any time: as long as the heart beats, it is waited for.
#[test]
fn a_memory_operation_takes_as_long_as_the_device_lives() {
    let (device, _flash, _queue, mut commands) = with_memory(Duration::from_millis(400));
    let region = device.opened.lock().unwrap()[1].clone();
    let (mut submissions, mut completions) = region.device_ends(0);
    let plays = std::thread::spawn(move || {
        let mut sectors = Vec::new();
        for _ in 0..2 {
            let command = loop {
                if let Some(entry) = submissions.pop() {
                    break Command::unpack(entry.unwrap());
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            for beat in 1..500 {
                region.beat(beat);
                std::thread::sleep(Duration::from_millis(2));
            }
            completions.push(Ended { id: command.id, status: Status::SUCCESS, result: 7 }.pack());
            sectors.push(command.opcode);
        }
        sectors
    });
    assert_eq!(commands.trim(0, 16), Ok(()));
    assert_eq!(commands.sync(), Ok(7));
    assert_eq!(plays.join().unwrap(), [Opcode::Trim as u8, Opcode::Sync as u8]);
}

/// A device that stopped in the middle of it may go on at any time: no access may follow that it
/// undoes.
#[test]
fn a_device_that_stops_in_a_roll_back_is_lost() {
    type Begin = fn(&DeviceFlash) -> Result<(), VersionError>;
    let roll_back: Begin = |flash| flash.versions().unwrap().roll_back(3);
    let trim: Begin = |flash| Ok(flash.trim(SubpageIndex(0), 16)?);
    let delete: Begin = |flash| Ok(flash.commands(1, 1).unwrap().delete(0..1)?);
    let sync: Begin = |flash| flash.versions().unwrap().wait_durable(3);
    for (what, begin, changes) in
        [("roll back", roll_back, true), ("trim", trim, true), ("delete", delete, true), ("sync", sync, false)]
    {
        let (device, flash, mut queue, _) = with_memory(Duration::from_millis(50));
        let region = device.opened.lock().unwrap()[0].clone();
        let (mut submissions, mut completions) = region.device_ends(0);
        // Under way meanwhile.
        queue.submit(Op::Read, 5, 1);
        queue.queue.flush().unwrap();
        assert_eq!(begin(&flash), Err(FlashError::TimedOut.into()), "{what}");
        // The device goes on.
        answer(&region, &mut submissions, &mut completions);
        let expected = if changes { Err(FlashError::Poisoned) } else { Ok(()) };
        let ended = queue.finish_all();
        if changes {
            assert!(ended.values().all(|result| *result == expected), "{what}: {ended:?}");
        }
        let mut found = Vec::new();
        queue.submit(Op::Write, 6, 1);
        queue.queue.flush().unwrap();
        answer(&region, &mut submissions, &mut completions);
        while queue.queue.poll(&mut found) == 0 {}
        assert_eq!(found[0].result, expected, "{what}");
        assert_eq!(flash.commands(1, 1).is_err(), changes, "{what}");
    }
}
