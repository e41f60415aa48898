//! Goal: faults of the medium arrive as what they are. A device that dies and comes back loses no
//! acknowledged write, or says that it has. A large transfer is what a map says.
//! Method: faults by plan behind the device; a device's thread stopped and started at random under
//! load, compared with a map; a device that comes back without unflushed writes. Seeds are printed.

use crate::common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;

const SECTORS: u32 = 128;

fn patient(copies: bool) -> HostConfig {
    HostConfig { copies, reattach: Duration::from_secs(20), ..HostConfig::default() }
}

#[test]
fn faults_of_the_medium_arrive_as_what_they_are() {
    let errors = [
        FlashError::Io(5),
        FlashError::Short,
        FlashError::NoSpace,
        FlashError::Corrupt,
        FlashError::TimedOut,
        FlashError::Poisoned,
    ];
    for copies in [false, true] {
        for error in errors {
            let rule = |op, n| Rule { op: Some(op), when: When::Nth(n), fault: Fault::Fails(error) };
            let plan = FaultPlan { rules: vec![rule(Op::Read, 2), rule(Op::Write, 2)], ..FaultPlan::default() };
            let faulty = FaultyFlash::new(MemoryFlash::new(SECTORS).unwrap(), plan);
            let flash = DeviceFlash::start(Arc::new(faulty), DeviceConfig::default(), patient(copies)).unwrap();
            let frames = arena(1);
            let mut queue = Driver::new(&flash, &frames, 4);
            for op in [Op::Read, Op::Write] {
                let results = [(); 3].map(|()| queue.one(op, 3, 0));
                assert_eq!(results, [Ok(()), Err(error), Ok(())]);
            }
        }
    }
}

/// One sector of several fails: so does the command, after all of them have ended.
#[test]
fn a_command_fails_with_the_first_of_its_sectors_that_does() {
    let fails = Rule { op: Some(Op::Read), when: When::Nth(3), fault: Fault::Fails(FlashError::Corrupt) };
    let plan = FaultPlan { rules: vec![fails], reorder: true, seed: 5, ..FaultPlan::default() };
    let faulty = FaultyFlash::new(MemoryFlash::new(SECTORS).unwrap(), plan);
    let flash = DeviceFlash::start(Arc::new(faulty), DeviceConfig::default(), patient(true)).unwrap();
    let mut commands = flash.commands(2, 16).unwrap();
    commands.set_chunk(Some(8));
    let mut bytes = vec![0; 8 * SECTOR_BYTES];
    assert_eq!(commands.read(0, &mut bytes), Err(FlashError::Corrupt));
    assert_eq!(commands.read(0, &mut bytes), Ok(()));
    assert_eq!(commands.free_sectors(), 16, "what was under way is let go of");
}

/// A device that hangs for one request does not keep the others. Where data are copied, the end of
/// the flash is not held up for ever.
#[test]
fn a_request_that_hangs_is_a_time_out() {
    let hangs = Rule { op: Some(Op::Read), when: When::Nth(2), fault: Fault::Hangs };
    let plan = FaultPlan { rules: vec![hangs], ..FaultPlan::default() };
    let faulty = FaultyFlash::new(MemoryFlash::new(SECTORS).unwrap(), plan);
    let host = HostConfig { timeout: Some(Duration::from_millis(30)), ..patient(true) };
    let flash = DeviceFlash::start(Arc::new(faulty), DeviceConfig::default(), host).unwrap();
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 4);
    let results = [(); 3].map(|()| queue.one(Op::Read, 3, 0));
    assert_eq!(results, [Ok(()), Err(FlashError::TimedOut), Ok(())]);
}

/// By a simulated clock: not before its time, at most an eighth after it, and without waiting.
#[test]
fn a_request_that_hangs_is_a_time_out_exactly_when_its_time_is_over() {
    const TIMEOUT: Duration = Duration::from_secs(80);
    let nanosecond = Duration::from_nanos(1);
    for passes in [&[TIMEOUT][..], &[TIMEOUT - nanosecond, TIMEOUT / 8]] {
        let hangs = Rule { op: Some(Op::Read), when: When::Nth(1), fault: Fault::Hangs };
        let plan = FaultPlan { rules: vec![hangs], ..FaultPlan::default() };
        let faulty = FaultyFlash::new(MemoryFlash::new(SECTORS).unwrap(), plan);
        let (clock, time) = fulgurite_sys::Clock::simulated();
        let host = HostConfig { timeout: Some(TIMEOUT), clock, ..patient(true) };
        let flash = DeviceFlash::start(Arc::new(faulty), DeviceConfig::default(), host).unwrap();
        let frames = arena(4);
        let mut queue = Driver::new(&flash, &frames, 4);
        let tag = queue.submit(Op::Read, 3, 0);
        queue.queue.flush().unwrap();
        let mut ended = Vec::new();
        for time_passes in passes {
            (0..10_000).for_each(|_| _ = queue.queue.poll(&mut ended));
            assert!(ended.is_empty(), "before its time: {ended:?}");
            time.advance(*time_passes);
        }
        (0..10_000).for_each(|_| _ = queue.queue.poll(&mut ended));
        assert_eq!(ended.iter().map(|c| (c.tag, c.result)).collect::<Vec<_>>(), [(tag, Err(FlashError::TimedOut))]);
    }
}

#[test]
fn a_device_that_dies_and_comes_back_loses_nothing() {
    let seed = seed();
    println!("seed {seed}");
    for copies in [false, true] {
        let medium = Arc::new(MemoryFlash::new(SECTORS).unwrap());
        let flash = Arc::new(DeviceFlash::start(medium, DeviceConfig::default(), patient(copies)).unwrap());
        let frames = arena(8);
        let mut queue = Driver::new(&*flash, &frames, 8);
        let done = Arc::new(AtomicBool::new(false));
        let (killed, ended) = (flash.clone(), done.clone());
        let killer = std::thread::spawn(move || {
            let mut random = Random(seed);
            let device = killed.device().unwrap();
            let mut kills = 0;
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(random.below(2000)));
                device.stop();
                assert!(device.has_ended());
                std::thread::sleep(Duration::from_micros(random.below(500)));
                device.restart().unwrap();
                kills += 1;
            }
            kills
        });
        let mut random = Random(seed ^ 1);
        let mut written: BTreeMap<u32, u64> = BTreeMap::new();
        let mut rounds = 0;
        while rounds < 300 || flash.host_counters().replayed < 20 && rounds < 20_000 {
            rounds += 1;
            let first = random.below(u64::from(SECTORS) - 8) as u32;
            let stamps: Vec<u64> = (0..8).map(|_| random.next()).collect();
            for i in 0..8 {
                fill(&frames, i, stamps[i as usize]);
                queue.submit(Op::Write, first + i, i);
            }
            assert!(queue.finish_all().values().all(|r| r.is_ok()));
            written.extend((first..).zip(stamps));
            if random.below(4) == 0 {
                queue.one(Op::Flush, 0, 0).unwrap();
            }
            let first = random.below(u64::from(SECTORS) - 8) as u32;
            for i in 0..8 {
                queue.submit(Op::Read, first + i, i);
            }
            assert!(queue.finish_all().values().all(|r| r.is_ok()));
            for i in 0..8 {
                if let Some(&stamp) = written.get(&(first + i)) {
                    assert_eq!(stamp_of(&frames, i), Some(stamp), "sector {}", first + i);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        let kills: u32 = killer.join().unwrap();
        println!("{kills} kills, {:?}", flash.host_counters());
        assert!(kills > 0 && flash.host_counters().relinked > 0);
    }
}

#[test]
fn a_device_that_does_not_come_back_is_closed() {
    let medium = Arc::new(MemoryFlash::new(SECTORS).unwrap());
    let host = HostConfig { reattach: Duration::from_millis(10), ..HostConfig::default() };
    let flash = DeviceFlash::start(medium, DeviceConfig::default(), host).unwrap();
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    queue.one(Op::Write, 0, 0).unwrap();
    flash.device().unwrap().stop();
    assert_eq!(queue.one(Op::Read, 0, 0), Err(FlashError::Closed));
    assert_eq!(queue.one(Op::Read, 0, 0), Err(FlashError::Closed));
    assert!(flash.open_queue(frames, 1, Arc::new(fulgurite_sys::Notifier::new().unwrap())).is_err());
}

/// A connection to whichever device is the current one.
struct Replaceable(Mutex<Arc<Device>>);

impl Replaceable {
    fn current(&self) -> Arc<Device> {
        self.0.lock().unwrap().clone()
    }
    fn replace(&self) {
        self.current().stop();
        *self.0.lock().unwrap() = fresh();
    }
}

fn fresh() -> Arc<Device> {
    Arc::new(Device::start(Arc::new(MemoryFlash::new(SECTORS).unwrap()), DeviceConfig::default()).unwrap())
}

impl Link for Replaceable {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        self.current().open(want)
    }
    fn describe(&self) -> String {
        "replaceable".to_owned()
    }
    fn sectors(&self) -> u32 {
        SECTORS
    }
    fn features(&self) -> Features {
        Features::default()
    }
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

/// Unflushed writes are gone with a device that keeps none: no older data are served in silence.
#[test]
fn what_was_not_flushed_is_not_served_as_if_it_had_never_been_written() {
    for flushed in [true, false] {
        let link = Arc::new(Replaceable(Mutex::new(fresh())));
        let without = HostConfig { unflushed_bytes: 0, ..patient(false) };
        let flash = DeviceFlash::over(link.clone(), without);
        let frames = arena(2);
        let mut queue = Driver::new(&flash, &frames, 2);
        let mut other = Driver::new(&flash, &frames, 2);
        fill(&frames, 0, 5);
        queue.one(Op::Write, 0, 0).unwrap();
        if flushed {
            // Any queue's flush covers all writes that had completed.
            other.one(Op::Flush, 0, 0).unwrap();
        }
        link.replace();
        let expected = if flushed { Ok(()) } else { Err(FlashError::Poisoned) };
        for queue in [&mut other, &mut queue] {
            for op in [Op::Read, Op::Flush, Op::Write] {
                let result = queue.one(op, 1, 1);
                assert_eq!(result, expected, "{op:?}, flushed: {flushed}");
                if flushed && op == Op::Write {
                    queue.one(Op::Flush, 0, 0).unwrap();
                }
            }
        }
        assert_eq!(flash.commands(1, 1).is_ok(), flushed);
    }
}

#[test]
fn transfers_of_any_size_are_what_a_map_says() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    let latency = Duration::from_micros(1);
    let slow = EmulatedConfig { read_latency: latency, write_latency: latency, ..EmulatedConfig::new(SECTORS) };
    let media: [Arc<dyn Flash>; 2] =
        [Arc::new(MemoryFlash::new(SECTORS).unwrap()), Arc::new(EmulatedFlash::new(slow).unwrap())];
    for medium in media {
        let firmware = FirmwareConfig { command_sectors: 16, requests_max: 8, ..FirmwareConfig::default() };
        let config = DeviceConfig { firmware, ..DeviceConfig::default() };
        let flash = DeviceFlash::start(medium, config, patient(true)).unwrap();
        for (depth, buffer) in [(1, 1), (1, 16), (4, 5), (4, 64), (16, 40)] {
            let mut commands = flash.commands(depth, buffer).unwrap();
            let mut model = vec![0; SECTORS as usize * SECTOR_BYTES];
            commands.write(0, &model).unwrap();
            for _ in 0..60 {
                let sector = random.below(u64::from(SECTORS)) as u32;
                let count = 1 + random.below(u64::from(SECTORS - sector)) as usize;
                let range = sector as usize * SECTOR_BYTES..(sector as usize + count) * SECTOR_BYTES;
                let chunk = match random.below(4) {
                    0 => None,
                    _ => Some(1 + random.below(20) as u32),
                };
                commands.set_chunk(chunk);
                if random.below(2) == 0 {
                    let stamp = random.next();
                    let data: Vec<u8> = (0..range.len() as u64 / 8)
                        .flat_map(|i| (stamp ^ i.wrapping_mul(stamp | 1)).to_le_bytes())
                        .collect();
                    commands.write(sector, &data).unwrap();
                    model[range].copy_from_slice(&data);
                } else {
                    let mut got = vec![1; range.len()];
                    commands.read(sector, &mut got).unwrap();
                    assert!(got == model[range], "{count} sectors from {sector} on, chunk {chunk:?}");
                }
                assert_eq!(commands.free_sectors(), buffer);
            }
            commands.flush().unwrap();
            assert_eq!(commands.identify().unwrap().sectors, SECTORS);
            let mut bytes = vec![0; SECTOR_BYTES];
            assert_eq!(commands.read(SECTORS, &mut bytes), Err(FlashError::OutOfRange));
            assert_eq!(commands.write(0, &bytes[1..]), Err(FlashError::OutOfRange));
            assert_eq!(commands.read(u32::MAX, &mut bytes), Err(FlashError::OutOfRange));
        }
    }
}
