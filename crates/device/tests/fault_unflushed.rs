//! Goal: the host replays what a device acknowledged and lost, before anything else and not over
//! what is newer. Where there can be no copy, the loss is reported. Copies take no more than they
//! may.
//! Method: a device over the journaled store, whose state after a death is the state of the last
//! flush, on memory that is copied at chosen moments and opened again by another device. Bugs of
//! the replay are planted, and found. A host with few copies under load, against a map. Seeds are
//! printed.

use crate::common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

const SECTORS: u32 = 128;

/// Flash pages below the store.
const PAGES: u32 = 1024;

/// A connection to the current device. The next one finds what the medium held at the last death.
struct Mortal {
    firmware: FirmwareConfig,
    /// The store is between the firmware and the medium.
    store: bool,
    current: Mutex<(Arc<MemoryFlash>, Arc<Device>)>,
    gate: Gate,
    /// Its one program names the states.
    names: AtomicBool,
}

/// Lets a given number pass to open a queue pair, and holds up the others.
struct Gate {
    /// How many may pass, and how many wait.
    open: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn lets_pass(&self, count: usize) {
        self.open.lock().unwrap().0 = count;
        self.changed.notify_all();
    }
    fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        open.1 += 1;
        let mut open = self.changed.wait_while(open, |(may, _)| *may == 0).unwrap();
        open.0 -= 1;
        open.1 -= 1;
    }
    fn has_somebody_waiting(&self) -> bool {
        let open = self.open.lock().unwrap();
        *open == (0, 1)
    }
}

impl Mortal {
    fn new(firmware: FirmwareConfig, store: bool) -> Arc<Mortal> {
        let medium = Arc::new(MemoryFlash::new(PAGES).unwrap());
        if store {
            let below: Arc<dyn Flash> = medium.clone();
            Pool::format(&below, Geometry::new(PAGES, 32, Some(SECTORS)).unwrap(), PoolId([5; 16]), 0).unwrap();
        }
        let device = Mortal::device(medium.clone(), &firmware, store);
        let gate = Gate { open: Mutex::new((usize::MAX, 0)), changed: Condvar::new() };
        Arc::new(Mortal { firmware, store, current: Mutex::new((medium, device)), gate, names: AtomicBool::new(false) })
    }
    fn device(medium: Arc<MemoryFlash>, firmware: &FirmwareConfig, store: bool) -> Arc<Device> {
        let config = DeviceConfig { firmware: firmware.clone(), ..DeviceConfig::default() };
        Arc::new(if store {
            let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
            Device::start_store(pool.into_flash(), config).unwrap()
        } else {
            Device::start(medium, config).unwrap()
        })
    }
    fn current(&self) -> Arc<Device> {
        self.current.lock().unwrap().1.clone()
    }
    fn image(medium: &MemoryFlash) -> Vec<u8> {
        let mut bytes = vec![0; PAGES as usize * SECTOR_BYTES];
        medium.storage().read(0, &mut bytes);
        bytes
    }
    fn dies(&self) {
        let mut current = self.current.lock().unwrap();
        current.1.stop();
        // What it would do to its medium after its death is not seen.
        let after = Arc::new(MemoryFlash::new(PAGES).unwrap());
        if self.store {
            after.storage().write(0, &Mortal::image(&current.0));
        }
        current.0 = after;
    }
    fn returns(&self) {
        let mut current = self.current.lock().unwrap();
        current.1 = Mortal::device(current.0.clone(), &self.firmware, self.store);
    }
}

impl Link for Mortal {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        self.gate.pass();
        let device = self.current();
        let newest = device.flash().versions().and_then(|versions| versions.tokens().last().copied());
        Ok(Linked { newest_token: newest.unwrap_or(0), ..device.open(want)? })
    }
    fn names_states(&self) -> bool {
        self.names.load(Ordering::Relaxed)
    }
    fn describe(&self) -> String {
        "mortal".to_owned()
    }
    fn sectors(&self) -> u32 {
        self.current().flash().subpages()
    }
    fn features(&self) -> Features {
        self.current().backend().features()
    }
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

fn buffered() -> Arc<Mortal> {
    Mortal::new(FirmwareConfig::default(), true)
}

fn patient(copies: bool, unflushed_bytes: usize) -> HostConfig {
    HostConfig { copies, reattach: Duration::from_secs(20), unflushed_bytes, ..HostConfig::default() }
}

fn write(queue: &mut Driver, frames: &fulgurite_sys::Arena, sector: u32, stamp: u64) {
    fill(frames, 0, stamp);
    queue.one(Op::Write, sector, 0).unwrap();
}

fn read(queue: &mut Driver, frames: &fulgurite_sys::Arena, sector: u32) -> Option<u64> {
    queue.one(Op::Read, sector, 1).unwrap();
    stamp_of(frames, 1)
}

/// Two completed writes, another one of the first sector in flight, a death: what two queues read.
fn after_a_death(copies: bool, planted: Option<PlantedReplay>) -> [Option<u64>; 3] {
    let link = buffered();
    let flash = DeviceFlash::over(link.clone(), HostConfig { planted, ..patient(copies, 1 << 20) });
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 2);
    let mut other = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 5, 50);
    queue.one(Op::Flush, 0, 0).unwrap();
    for (sector, stamp) in [(5, 51), (6, 60), (6, 61)] {
        write(&mut queue, &frames, sector, stamp);
    }
    link.dies();
    fill(&frames, 2, 52);
    queue.submit(Op::Write, 5, 2);
    queue.queue.flush().unwrap();
    link.returns();
    assert!(queue.finish_all().values().all(|result| result.is_ok()));
    let found = [read(&mut queue, &frames, 5), read(&mut other, &frames, 6), read(&mut other, &frames, 5)];
    assert_eq!(flash.host_counters().restored > 0, planted != Some(PlantedReplay::Nothing));
    found
}

#[test]
fn what_was_lost_is_written_once_more_before_what_was_in_flight() {
    let right = [Some(52), Some(61), Some(52)];
    for copies in [false, true] {
        assert_eq!(after_a_death(copies, None), right);
        for planted in [PlantedReplay::Nothing, PlantedReplay::After] {
            assert_ne!(after_a_death(copies, Some(planted)), right, "{planted:?} is not found");
        }
    }
}

/// What waits to be seen is seen long before.
const LONG: Duration = Duration::from_secs(60);

fn until(what: &str, mut it_is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !it_is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A host with a copy of sector 5 and a request under way, whose device has died and returned, with
/// a given number of queue pairs.
fn in_need(
    link: &Arc<Mortal>,
    reattach: Duration,
    may_open: usize,
) -> (DeviceFlash, Driver, Arc<fulgurite_sys::Arena>) {
    let flash = DeviceFlash::over(link.clone(), HostConfig { reattach, ..patient(true, 1 << 20) });
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 5, 50);
    queue.one(Op::Flush, 0, 0).unwrap();
    write(&mut queue, &frames, 5, 51);
    link.gate.lets_pass(may_open);
    link.dies();
    link.returns();
    queue.submit(Op::Read, 6, 1);
    queue.queue.flush().unwrap();
    (flash, queue, frames)
}

/// Somebody else's newer write, which stays: once nobody asks for what was lost, nobody writes it.
fn newer_stays(link: &Arc<Mortal>, before: usize, release: impl FnOnce()) {
    // It goes to the same device, not by the gate.
    let device = link.current();
    let flash = DeviceFlash::over(device, patient(true, 1 << 20));
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 1);
    write(&mut queue, &frames, 5, 77);
    queue.one(Op::Flush, 0, 0).unwrap();
    release();
    until("the attempt does not end", || Arc::strong_count(link) <= before);
    assert_eq!(read(&mut queue, &frames, 5), Some(77));
}

#[test]
fn who_has_given_up_writes_nothing_more() {
    let link = buffered();
    let before = Arc::strong_count(&link);
    let (flash, mut queue, _frames) = in_need(&link, Duration::ZERO, 0);
    let ended = queue.finish_all();
    assert!(ended.values().all(|result| *result == Err(FlashError::Closed)), "{ended:?}");
    assert!(link.gate.has_somebody_waiting());
    drop((queue, flash));
    newer_stays(&link, before, || link.gate.lets_pass(usize::MAX));
}

#[test]
fn who_leaves_in_the_middle_of_writing_once_more_writes_nothing_after_that() {
    let link = buffered();
    let before = Arc::strong_count(&link);
    let (flash, mut queue, _frames) = in_need(&link, LONG, 1);
    // The first pair is the queue's own; the one for the copies waits.
    until("nothing is to be written once more", || {
        assert_eq!(queue.queue.poll(&mut Vec::new()), 0);
        link.gate.has_somebody_waiting()
    });
    let opener = link.clone();
    let opens = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        opener.gate.lets_pass(usize::MAX);
    });
    drop((queue, flash));
    newer_stays(&link, before, || opens.join().unwrap());
}

/// Changing sectors other than by a write lets go of their copies. Those on their way to the next
/// device stay, as nothing will be changed there.
#[test]
fn what_is_on_its_way_is_not_forgotten_for_a_device_that_has_died() {
    let link = buffered();
    let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
    let mut commands = flash.commands(2, 4).unwrap();
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 5, 50);
    queue.one(Op::Flush, 0, 0).unwrap();
    write(&mut queue, &frames, 5, 51);
    link.gate.lets_pass(1);
    link.dies();
    link.returns();
    queue.submit(Op::Read, 5, 1);
    queue.queue.flush().unwrap();
    until("nothing is to be written once more", || {
        assert_eq!(queue.queue.poll(&mut Vec::new()), 0);
        link.gate.has_somebody_waiting()
    });
    let trims = std::thread::spawn(move || commands.trim(0, 16));
    // It may be over by now; else it waits.
    std::thread::sleep(Duration::from_millis(200));
    link.gate.lets_pass(usize::MAX);
    assert_eq!(trims.join().unwrap(), Err(FlashError::Closed));
    assert!(queue.finish_all().values().all(|result| result.is_ok()));
    assert_eq!(read(&mut queue, &frames, 5), Some(51));
}

/// The first meeting restores what all queues have written, also after a second death.
#[test]
fn every_queue_finds_what_any_has_written_after_every_death() {
    let link = buffered();
    let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 9, 90);
    let mut bytes = [0; 2 * SECTOR_BYTES];
    let mut commands = flash.commands(2, 4).unwrap();
    fill(&frames, 2, 100);
    fill(&frames, 3, 110);
    frames.read(2 * SECTOR_BYTES, &mut bytes);
    commands.write(10, &bytes).unwrap();
    // One of the host's pairs is open at each death: else others may have written meanwhile.
    let mut others = Vec::new();
    for death in 1..4u64 {
        link.dies();
        link.returns();
        let mut other = Driver::new(&flash, &frames, 2);
        for (sector, stamp) in [(9, 90), (10, 100), (11, 110)] {
            assert_eq!(read(&mut other, &frames, sector), Some(stamp), "death {death}");
        }
        others.push(other);
        assert_eq!(flash.host_counters().restored, 3 * death);
    }
    // A flush makes them the device's own.
    queue.one(Op::Flush, 0, 0).unwrap();
    link.dies();
    link.returns();
    assert_eq!(read(&mut queue, &frames, 10), Some(100));
    assert_eq!(flash.host_counters().restored, 9);
}

/// To name a state and wait for it is a flush for the copies: earlier ones are let go of.
#[test]
fn a_state_that_is_durable_covers_what_was_written_before_it_was_named() {
    let link = buffered();
    // At most eight copies.
    let flash = DeviceFlash::over(link.clone(), patient(true, 8 * SECTOR_BYTES));
    let frames = arena(16);
    let mut queue = Driver::new(&flash, &frames, 2);
    let versions = flash.versions().unwrap();
    let mut stamp = 0;
    for round in 0..6 {
        for sector in 0..4 {
            stamp += 1;
            write(&mut queue, &frames, round * 4 + sector, stamp);
        }
        let named = versions.name_state().unwrap();
        if round % 2 == 1 {
            // Covered by no name yet.
            write(&mut queue, &frames, 100, u64::from(round));
        }
        versions.wait_durable(named).unwrap();
    }
    assert_eq!(flash.host_counters().own_flushes, 0, "what was named and waited for is still kept");
    link.dies();
    link.returns();
    assert_eq!(read(&mut queue, &frames, 100), Some(5));
    assert_eq!(flash.host_counters().restored, 1);
    assert_eq!(read(&mut queue, &frames, 23), Some(24));
    // A name that nobody waited for, and one that has died with its device, cover nothing.
    write(&mut queue, &frames, 7, 70);
    let named = versions.name_state().unwrap();
    link.dies();
    link.returns();
    assert_eq!([read(&mut queue, &frames, 7), read(&mut queue, &frames, 100)], [Some(70), Some(5)]);
    assert!(matches!(versions.wait_durable(named), Err(VersionError::Flash(FlashError::Closed))));
    link.dies();
    link.returns();
    assert_eq!([read(&mut queue, &frames, 7), read(&mut queue, &frames, 100)], [Some(70), Some(5)]);
}

/// What no copy can bring back is reported: a device that forgets all with its process, flushed or
/// not.
#[test]
fn a_device_whose_medium_is_gone_is_reported() {
    for (forgets, written) in [(true, true), (true, false), (false, true)] {
        let link = Mortal::new(FirmwareConfig { forgets, ..FirmwareConfig::default() }, false);
        let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
        let frames = arena(2);
        let mut queue = Driver::new(&flash, &frames, 2);
        if written {
            write(&mut queue, &frames, 1, 7);
            queue.one(Op::Flush, 0, 0).unwrap();
        }
        link.dies();
        link.returns();
        let expected = if forgets && written { Err(FlashError::Poisoned) } else { Ok(()) };
        assert_eq!(queue.one(Op::Read, 1, 1), expected, "forgets {forgets}, written {written}");
    }
}

/// Copies never exceed their bound: the host flushes by itself, and no write waits for ever,
/// whether the limit is above or below what is in flight.
#[test]
fn a_host_that_keeps_few_copies_flushes_by_itself() {
    let seed = seed();
    println!("seed {seed}");
    for copies in [false, true] {
        for sectors in [1usize, 3, 8, 20] {
            let link = buffered();
            let flash = DeviceFlash::over(link.clone(), patient(copies, sectors * SECTOR_BYTES));
            let frames = arena(24);
            let staging = if copies { 24 * SECTOR_BYTES } else { 0 };
            assert_eq!(flash.staging_bytes(24), staging + sectors * SECTOR_BYTES);
            let mut queues = [Driver::new(&flash, &frames, 8), Driver::new(&flash, &frames, 8)];
            let mut commands = flash.commands(2, 8).unwrap();
            let mut random = Random(seed ^ sectors as u64);
            let mut written: BTreeMap<u32, u64> = BTreeMap::new();
            let mut deaths = 0;
            for round in 0..300 {
                // Half of the sectors are one queue's, half the other's.
                for (which, queue) in queues.iter_mut().enumerate() {
                    let first = which as u32 * 60 + random.below(50) as u32;
                    for i in 0..8 {
                        let (frame, stamp) = (which as u32 * 8 + i, random.next());
                        fill(&frames, frame, stamp);
                        queue.submit(Op::Write, first + i, frame);
                        written.insert(first + i, stamp);
                    }
                    queue.queue.flush().unwrap();
                }
                for queue in &mut queues {
                    assert!(queue.finish_all().values().all(|result| result.is_ok()));
                }
                if round % 10 == 0 && commands.write(120, &[round as u8; 5 * SECTOR_BYTES]).is_err() {
                    commands = flash.commands(2, 8).unwrap();
                }
                // Where there is room for what is in flight, every write has its copy.
                if sectors >= 20 && random.below(20) == 0 {
                    link.dies();
                    link.returns();
                    deaths += 1;
                }
                let (&sector, &stamp) = written.range(random.below(60) as u32..).next().unwrap();
                assert_eq!(queues[0].one(Op::Read, sector, 20), Ok(()));
                assert_eq!(stamp_of(&frames, 20), Some(stamp), "round {round}, sector {sector}");
            }
            let counters = flash.host_counters();
            assert!(counters.own_flushes > 10, "{counters:?}");
            assert!(counters.restored <= deaths * sectors as u64, "{counters:?}, {deaths} deaths");
            assert_eq!(deaths > 0, counters.restored > 0);
        }
    }
}

/// A completed write that its host has not polled when the device dies and another pair meets the
/// next one is sent once more, and not acknowledged.
#[test]
fn what_nobody_had_polled_is_not_acknowledged_after_the_death() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let link = buffered();
    let serve = || Server::start(link.current(), &path, ServerConfig::default()).unwrap();
    let server = serve();
    // There are no copies, so a loss of what was acknowledged would be reported.
    let socket = Arc::new(SocketLink::connect(&path, false).unwrap());
    let flash = DeviceFlash::over(socket, patient(true, 0));
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 7, 70);
    queue.one(Op::Flush, 0, 0).unwrap();
    let before = link.current().counters().writes;
    fill(&frames, 2, 71);
    let tag = queue.submit(Op::Write, 7, 2);
    queue.queue.flush().unwrap();
    let begun = std::time::Instant::now();
    while link.current().counters().writes == before {
        assert!(begun.elapsed() < Duration::from_secs(20), "the device does not write");
        std::thread::sleep(Duration::from_millis(1));
    }
    // It is in the ring a moment after it is counted.
    std::thread::sleep(Duration::from_millis(20));
    link.dies();
    drop(server);
    link.returns();
    let _server = serve();
    let _commands = flash.commands(2, 4).unwrap();
    assert_eq!(queue.finish_all()[&tag], Ok(()));
    queue.one(Op::Flush, 0, 0).unwrap();
    assert_eq!(read(&mut queue, &frames, 7), Some(71));
    assert_eq!(flash.host_counters().replayed, 1);
}

/// A state that the dead device named is none of the returned one, which may give its number away
/// again. What was durable is there, and one can go back to it.
#[test]
fn a_state_is_only_waited_for_on_the_device_that_named_it() {
    let link = buffered();
    let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
    let frames = arena(4);
    let mut queue = Driver::new(&flash, &frames, 2);
    let versions = flash.versions().unwrap();
    write(&mut queue, &frames, 5, 50);
    let kept = versions.name_state().unwrap();
    versions.wait_durable(kept).unwrap();
    flash.commands(1, 1).unwrap().pin(kept, true).unwrap();
    write(&mut queue, &frames, 5, 51);
    let lost = [versions.name_state().unwrap(), versions.name_state().unwrap()];
    link.dies();
    link.returns();
    for _ in 0..2 {
        assert!(matches!(versions.wait_durable(lost[0]), Err(VersionError::Flash(FlashError::Closed))));
    }
    // It was durable before, and is so now.
    versions.wait_durable(kept).unwrap();
    assert_eq!(versions.tokens().first(), Some(&kept));
    let named = versions.name_state().unwrap();
    assert!(named > lost[1], "{named}, {lost:?}");
    assert!(matches!(versions.wait_durable(lost[1]), Err(VersionError::Flash(FlashError::Closed))));
    versions.wait_durable(named).unwrap();
    link.dies();
    link.returns();
    // Nothing of it was asked for meanwhile: an idempotent request is repeated.
    versions.can_roll_back(kept).unwrap();
    assert!(versions.name_state().unwrap() > named);
    assert_eq!(read(&mut queue, &frames, 5), Some(51));
    versions.roll_back(kept).unwrap();
    assert_eq!(read(&mut queue, &frames, 5), Some(50));
    assert_eq!(versions.tokens(), [kept]);
}

/// It is unknown whether a dead device had gone back: the next one is asked once more. What was
/// written before comes back neither then nor after another death.
#[test]
fn a_roll_back_goes_on_over_a_device_that_has_returned() {
    let link = buffered();
    let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    let versions = flash.versions().unwrap();
    write(&mut queue, &frames, 5, 50);
    let kept = versions.name_state().unwrap();
    versions.wait_durable(kept).unwrap();
    for death in 0..3 {
        write(&mut queue, &frames, 5, 51 + death);
        link.dies();
        link.returns();
        versions.roll_back(kept).unwrap();
        assert_eq!(read(&mut queue, &frames, 5), Some(50));
        assert_eq!(versions.tokens(), [kept]);
        link.dies();
        link.returns();
        assert_eq!(read(&mut queue, &frames, 5), Some(50));
    }
    // A refusal is one, and what was written stays.
    write(&mut queue, &frames, 5, 60);
    for refused in [versions.can_roll_back(kept + 1), versions.roll_back(kept + 1)] {
        assert!(matches!(refused, Err(VersionError::NoToken { .. })), "{refused:?}");
    }
    link.dies();
    link.returns();
    assert_eq!(read(&mut queue, &frames, 5), Some(60));
}

/// A refused roll back takes nothing back. A device that returns with an older state than was
/// durable has lost something, as if nobody had asked.
#[test]
fn a_refused_roll_back_leaves_durable_what_was() {
    for asks in [false, true] {
        let link = buffered();
        link.names.store(true, Ordering::Relaxed);
        let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
        let frames = arena(2);
        let mut queue = Driver::new(&flash, &frames, 2);
        let versions = flash.versions().unwrap();
        let save = |queue: &mut Driver, stamp| {
            write(queue, &frames, 5, stamp);
            let token = versions.name_state().unwrap();
            versions.wait_durable(token).unwrap();
            token
        };
        let missing = save(&mut queue, 50);
        let older = save(&mut queue, 51);
        let image = Mortal::image(&link.current.lock().unwrap().0);
        save(&mut queue, 52);
        if asks {
            let refused = versions.roll_back(missing);
            assert!(matches!(refused, Err(VersionError::NoToken { .. })), "{refused:?}");
        }
        link.dies();
        link.current.lock().unwrap().0.storage().write(0, &image);
        link.returns();
        assert_eq!(queue.one(Op::Read, 5, 1), Err(FlashError::Poisoned), "state {older}, asks: {asks}");
    }
}

/// A host without open pairs at the death cannot know whether others have written since, so it gets
/// an error.
#[test]
fn copies_of_a_host_that_had_no_queue_pair_are_not_written() {
    let link = buffered();
    let flash = DeviceFlash::over(link.clone(), patient(true, 1 << 20));
    let frames = arena(2);
    write(&mut Driver::new(&flash, &frames, 2), &frames, 5, 50);
    link.dies();
    link.returns();
    let mut queue = Driver::new(&flash, &frames, 2);
    assert_eq!(queue.one(Op::Read, 5, 1), Err(FlashError::Poisoned));
}
