//! Goal: a device in a process of its own can be killed at any moment. What was acknowledged is
//! there, or its loss is said. Nothing is torn. The host replays what was under way, and goes on.
//! Method: this program starts itself as a device over a file, over memory that outlives it, with
//! the host's frames, or over the journaled store on a file or on NAND with files for cells and
//! wear. It kills it with SIGKILL at random moments while queues and commands of two threads write,
//! read, flush and compare with maps. Seeds are printed.

use crate::common;
use crate::process;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::{Commands, DeviceFlash, SocketLink};
use fulgurite_flash::{FlashError, Op, VersionError};
use fulgurite_sys::Arena;
use process::*;

fn kills() -> u32 {
    fulgurite_testkit::runs(100) as u32
}

/// Kills and starts the process again and again until asked to stop.
fn killer(process: Process, seed: u64, stop: Arc<AtomicBool>) -> JoinHandle<(Process, u32)> {
    killer_at(process, seed, stop, kills(), None)
}

/// As `killer`, at most `most` times, each time when something has begun that the kill is to meet.
fn killer_at(
    mut process: Process,
    seed: u64,
    stop: Arc<AtomicBool>,
    most: u32,
    begun: Option<Arc<AtomicU64>>,
) -> JoinHandle<(Process, u32)> {
    std::thread::spawn(move || {
        let mut random = Random(seed);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) && count < most {
            drop(process.connect());
            let mut pause = 20_000;
            if let Some(begun) = &begun {
                let (those, since) = (begun.load(Ordering::Relaxed) + 1 + random.below(5), Instant::now());
                while begun.load(Ordering::Relaxed) < those && !stop.load(Ordering::Relaxed) {
                    assert!(since.elapsed() < Duration::from_secs(60), "nothing is begun that could be met");
                    std::thread::sleep(Duration::from_micros(50));
                }
                pause = 3_000;
            }
            std::thread::sleep(Duration::from_micros(random.below(pause)));
            process.kill_and_start();
            count += 1;
        }
        stop.store(true, Ordering::Relaxed);
        drop(process.connect());
        (process, count)
    })
}

#[test]
fn a_device_on_a_file_is_killed_and_every_acknowledged_write_is_there() {
    every_acknowledged_write_is_there(Over::File);
}
#[test]
fn a_device_that_has_the_frames_is_killed_and_every_acknowledged_write_is_there() {
    every_acknowledged_write_is_there(Over::Memory);
}

/// The sectors that the second thread writes to begin here.
const SECOND: u32 = SECTORS / 2;

fn every_acknowledged_write_is_there(over: Over) {
    let seed = seed();
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), over);
    let flash = Arc::new(process.flash(None));
    let frames = process.frames(8);
    let mut queue = Driver::new(&*flash, &frames, 8);
    let stop = Arc::new(AtomicBool::new(false));
    let second = second_thread(&flash, process.frames(4), seed ^ 2, stop.clone());
    let killed = killer(process, seed, stop.clone());
    let mut random = Random(seed ^ 1);
    let mut written: BTreeMap<u32, u64> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let first = random.below(u64::from(SECOND) - 8) as u32;
        for i in 0..8 {
            let stamp = random.next();
            fill(&frames, i, stamp);
            queue.submit(Op::Write, first + i, i);
            written.insert(first + i, stamp);
        }
        assert!(queue.finish_all().values().all(|r| r.is_ok()));
        if random.below(8) == 0 {
            queue.one(Op::Flush, 0, 0).unwrap();
        }
        let (&sector, &stamp) =
            written.range(random.below(u64::from(SECOND)) as u32..).next().unwrap_or(written.iter().next().unwrap());
        queue.one(Op::Read, sector, 0).unwrap();
        assert_eq!(stamp_of(&frames, 0), Some(stamp), "sector {sector}");
    }
    let (_process, count) = killed.join().unwrap();
    let (others, commands) = second.join().unwrap();
    written.extend(others);
    for (&sector, &stamp) in &written {
        queue.one(Op::Read, sector, 0).unwrap();
        assert_eq!(stamp_of(&frames, 0), Some(stamp), "sector {sector}");
    }
    println!("{count} kills, {commands} commands ended well, {:?}", flash.host_counters());
    assert!(count >= kills() && flash.host_counters().relinked > 0 && commands > 0);
    assert_eq!(flash.host_counters().with_frames > 0, over == Over::Memory);
}

/// Another queue of the host and its commands, by a thread of their own. Returns its half of the
/// content, and how many commands ended well.
fn second_thread(
    flash: &Arc<DeviceFlash>,
    frames: Arc<Arena>,
    seed: u64,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<(BTreeMap<u32, u64>, u32)> {
    let mut queue = Driver::new(&**flash, &frames, 4);
    let flash = flash.clone();
    std::thread::spawn(move || {
        let mut random = Random(seed);
        let mut written: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut commands, mut ended) = (None, 0);
        while !stop.load(Ordering::Relaxed) {
            let sector = SECOND + random.below(u64::from(SECTORS - SECOND)) as u32;
            let stamp = random.next();
            fill(&frames, 0, stamp);
            // By one of them, and read by the other. Opening commands waits for a device that is
            // away.
            let mut opened = commands.take().unwrap_or_else(|| flash.commands(2, 8).unwrap());
            let mut bytes = [0; 4096];
            frames.read(0, &mut bytes);
            let done = opened.write(sector, &bytes).and_then(|()| match random.below(4) {
                0 => opened.flush(),
                _ => Ok(()),
            });
            // They end with the device, and say so; nothing else fails.
            assert!(matches!(done, Ok(()) | Err(FlashError::Closed)), "{done:?}");
            let by_command = done.ok().map(|()| opened);
            match by_command {
                Some(kept) => {
                    commands = Some(kept);
                    ended += 1;
                }
                // It may be there or not, and is not written again by itself.
                None => queue.one(Op::Write, sector, 0).unwrap(),
            }
            written.insert(sector, stamp);
            queue.one(Op::Read, sector, 1).unwrap();
            assert_eq!(stamp_of(&frames, 1), Some(stamp), "sector {sector}");
            let (&sector, &stamp) = written.range(sector + 1..).next().unwrap_or(written.iter().next().unwrap());
            let mut bytes = [0; 4096];
            if let Some(mut opened) = commands.take()
                && opened.read(sector, &mut bytes).is_ok()
            {
                frames.write(2 * 4096, &bytes);
                assert_eq!(stamp_of(&frames, 2), Some(stamp), "sector {sector}");
                commands = Some(opened);
            }
        }
        (written, ended)
    })
}

#[test]
fn a_device_on_the_store_is_killed_and_its_host_goes_on_without_an_error() {
    its_host_goes_on_without_an_error(Over::Store);
}
#[test]
fn a_device_on_nand_is_killed_and_its_host_goes_on_without_an_error() {
    its_host_goes_on_without_an_error(Over::Nand);
}
#[test]
fn a_device_on_the_store_is_killed_and_every_acknowledged_flush_is_there() {
    every_acknowledged_flush_is_there(Over::Store);
}
#[test]
fn a_device_on_nand_is_killed_and_every_acknowledged_flush_is_there() {
    every_acknowledged_flush_is_there(Over::Nand);
}
#[test]
fn a_device_on_the_store_is_killed_in_the_middle_of_syncs_and_every_acknowledged_token_is_there() {
    every_acknowledged_token_is_there(Over::Store);
}

/// The store's state after a kill is the state of the last flush. The host has copies of later
/// writes, so it continues without an error. No read of any queue is older than what was
/// acknowledged. With few copies the host flushes itself.
fn its_host_goes_on_without_an_error(over: Over) {
    let seed = seed();
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), over);
    let flash = process.flash_with(host(64 * 4096));
    let frames = arena(64);
    let mut queues = [Driver::new(&flash, &frames, 8), Driver::new(&flash, &frames, 8)];
    let mut commands = None;
    let stop = Arc::new(AtomicBool::new(false));
    let killed = killer(process, seed, stop.clone());
    let mut random = Random(seed ^ 1);
    let mut written: BTreeMap<u32, u64> = BTreeMap::new();
    // Its own flushes come after a number of writes, however few the kills are.
    while !stop.load(Ordering::Relaxed) || flash.host_counters().own_flushes == 0 {
        let which = random.below(2) as usize;
        let first = random.below(500) as u32;
        for i in 0..4 {
            let stamp = random.next() | 1;
            fill(&frames, i, stamp);
            queues[which].submit(Op::Write, first + i, i);
            written.insert(first + i, stamp);
        }
        assert!(queues[which].finish_all().values().all(|r| r.is_ok()));
        // Commands of several sectors end with the device; what they have acknowledged does not.
        if random.below(4) == 0 {
            let mut opened = commands.take().unwrap_or_else(|| flash.commands(2, 8).unwrap());
            let stamp = random.next() | 1;
            fill(&frames, 0, stamp);
            let mut bytes = [0; 4096];
            frames.read(0, &mut bytes);
            match opened.write(first, &bytes) {
                Ok(()) => {
                    written.insert(first, stamp);
                    commands = Some(opened);
                }
                Err(error) => {
                    assert_eq!(error, FlashError::Closed);
                    // It may be there or not, and is not written again by itself.
                    let again = random.next() | 1;
                    fill(&frames, 0, again);
                    queues[which].one(Op::Write, first, 0).unwrap();
                    written.insert(first, again);
                }
            }
        }
        if random.below(40) == 0 {
            queues[which].one(Op::Flush, 0, 0).unwrap();
        }
        for _ in 0..2 {
            let sector = random.below(504) as u32;
            queues[1 - which].one(Op::Read, sector, 60).unwrap();
            if let Some(&stamp) = written.get(&sector) {
                assert_eq!(stamp_of(&frames, 60), Some(stamp), "sector {sector}");
            }
        }
    }
    let (_process, count) = killed.join().unwrap();
    for (&sector, &stamp) in &written {
        queues[0].one(Op::Read, sector, 0).unwrap();
        assert_eq!(stamp_of(&frames, 0), Some(stamp), "sector {sector}");
    }
    let counters = flash.host_counters();
    println!("{count} kills, {counters:?}");
    assert!(count >= kills() && counters.restored > 0 && counters.own_flushes > 0);
}

/// Without copies, a host that had flushed all continues. Another one gets an error, and finds what
/// it had flushed when it opens anew. A flush of one queue covers what others had completed.
fn every_acknowledged_flush_is_there(over: Over) {
    let seed = seed();
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), over);
    let mut flash = process.flash_with(host(0));
    let frames = arena(4);
    let mut queues = [Driver::new(&flash, &frames, 4), Driver::new(&flash, &frames, 4)];
    let stop = Arc::new(AtomicBool::new(false));
    let killed = killer(process, seed, stop.clone());
    let mut random = Random(seed ^ 1);
    // What was flushed, and what may be there instead because it was written since, in this order.
    let mut flushed: BTreeMap<u32, u64> = BTreeMap::new();
    let mut since: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let (mut poisoned, mut replayed) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let result = (|| {
            let which = random.below(2) as usize;
            let first = random.below(500) as u32;
            for i in 0..4 {
                let stamp = random.next() | 1;
                fill(&frames, i, stamp);
                queues[which].submit(Op::Write, first + i, i);
                since.entry(first + i).or_default().push(stamp);
            }
            queues[which].finish_all().into_values().collect::<Result<(), _>>()?;
            if random.below(3) == 0 {
                queues[random.below(2) as usize].one(Op::Flush, 0, 0)?;
                flushed.extend(
                    std::mem::take(&mut since).into_iter().map(|(sector, stamps)| (sector, *stamps.last().unwrap())),
                );
            }
            let sector = random.below(500) as u32;
            queues[1 - which].one(Op::Read, sector, 0)?;
            // Never older than what was acknowledged.
            let newest = since.get(&sector).and_then(|stamps| stamps.last()).or(flushed.get(&sector));
            if let Some(&stamp) = newest {
                assert_eq!(stamp_of(&frames, 0), Some(stamp), "sector {sector}");
            }
            Ok::<(), FlashError>(())
        })();
        if let Err(error) = result {
            assert_eq!(error, FlashError::Poisoned);
            poisoned += 1;
            replayed += flash.host_counters().replayed;
            drop(queues);
            // It may be killed between the two, and is waited for.
            flash = DeviceFlash::over(reconnect(directory.path()), host(0));
            queues = [Driver::new(&flash, &frames, 4), Driver::new(&flash, &frames, 4)];
            // Each sector is as it was flushed, or as it was written since, never older.
            for sector in 0..504 {
                if queues[0].one(Op::Read, sector, 0).is_err() {
                    break;
                }
                let found = stamp_of(&frames, 0);
                let allowed = |stamp| {
                    flushed.get(&sector) == Some(&stamp) || since.get(&sector).is_some_and(|s| s.contains(&stamp))
                };
                match found {
                    Some(0) | None if !flushed.contains_key(&sector) => {}
                    Some(stamp) if allowed(stamp) => {
                        flushed.insert(sector, stamp);
                    }
                    other => panic!("sector {sector} holds {other:?}; flushed {:?}", flushed.get(&sector)),
                }
            }
            // What is there now may go with the next kill, until it is flushed.
            if queues[0].one(Op::Flush, 0, 0).is_ok() {
                since.clear();
            }
        }
    }
    let (_process, count) = killed.join().unwrap();
    println!("{count} kills, {poisoned} losses reported, {replayed} commands replayed before");
    assert!(count >= kills());
}

/// What each sector may hold: what was acknowledged last, and later writes that the death cut off.
type May = BTreeMap<u32, Vec<u64>>;

/// Commands write and sync while the process is killed. An acknowledged sync is a token with its
/// data; one that ended with the device may be. What was acknowledged since is there, too, by the
/// copies.
fn every_acknowledged_token_is_there(over: Over) {
    let seed = seed();
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), over);
    let flash = process.flash(None);
    let stop = Arc::new(AtomicBool::new(false));
    // Each of them meets a sync, or comes soon after one, and a sync is as slow as the disk.
    let most = kills().div_ceil(10);
    let begun = Arc::new(AtomicU64::new(0));
    let killed = killer_at(process, seed, stop.clone(), most, Some(begun.clone()));
    let frames = arena(2);
    let mut random = Random(seed ^ 1);
    let mut may: May = BTreeMap::new();
    // The newest token that was acknowledged, and what it has.
    let mut newest: (u64, May) = (0, BTreeMap::new());
    let (mut syncs, mut interrupted, mut compared) = (0, 0, 0);
    let mut opened = None;
    while !stop.load(Ordering::Relaxed) || syncs == 0 {
        let mut commands = opened.take().unwrap_or_else(|| flash.commands(2, 8).unwrap());
        let mut change = || {
            for _ in 0..1 + random.below(3) {
                let (sector, stamp) = (random.below(100) as u32, random.next() | 1);
                fill(&frames, 0, stamp);
                let mut bytes = [0; 4096];
                frames.read(0, &mut bytes);
                let wrote = commands.write(sector, &bytes);
                let at = may.entry(sector).or_insert_with(|| vec![0]);
                if wrote.is_ok() {
                    at.clear();
                }
                at.push(stamp);
                wrote?;
            }
            begun.fetch_add(1, Ordering::Relaxed);
            let token = commands.sync()?;
            assert!(token > newest.0, "token {token} after {}", newest.0);
            newest = (token, may.clone());
            Ok::<(), VersionError>(())
        };
        match change() {
            Ok(()) => syncs += 1,
            Err(error) => {
                assert_eq!(error, FlashError::Closed.into());
                interrupted += 1;
                // The next one has all that this one had acknowledged.
                commands = flash.commands(2, 8).unwrap();
                match compare(&mut commands, &frames, &newest, &may) {
                    Ok(()) => compared += 1,
                    Err(error) => {
                        assert_eq!(error, FlashError::Closed.into());
                        continue;
                    }
                }
            }
        }
        opened = Some(commands);
    }
    let (_process, count) = killed.join().unwrap();
    compare(&mut flash.commands(2, 8).unwrap(), &frames, &newest, &may).unwrap();
    println!(
        "{count} kills, {syncs} syncs, {interrupted} interrupted, {compared} compared, {:?}",
        flash.host_counters()
    );
    assert!(count >= most);
}

/// What the device holds now, and what it held at the newest token that was acknowledged.
fn compare(commands: &mut Commands, frames: &Arena, newest: &(u64, May), may: &May) -> Result<(), VersionError> {
    let holds = |bytes: &[u8; 4096], may: &[u64], what: &str| {
        frames.write(4096, bytes);
        let found = if *bytes == [0; 4096] { Some(0) } else { stamp_of(frames, 1) };
        assert!(found.is_some_and(|found| may.contains(&found)), "{what}: {found:?}, not {may:?}");
    };
    let mut bytes = [0; 4096];
    for (&sector, may) in may {
        commands.read(sector, &mut bytes)?;
        holds(&bytes, may, &format!("sector {sector}"));
    }
    let tokens = commands.tokens()?;
    let (token, had) = newest;
    // The one whose sync was under way may be there as well, and take its place.
    assert!(*token == 0 || tokens.last() >= Some(token), "{token} was acknowledged, and there are {tokens:?}");
    for (&sector, may) in had.iter().filter(|_| tokens.contains(token)) {
        match commands.read_at(*token, sector, &mut bytes) {
            // The firmware has made room by a flush of its own.
            Err(VersionError::NoToken { .. }) => break,
            read => read?,
        }
        holds(&bytes, may, &format!("sector {sector} at token {token}"));
    }
    Ok(())
}

fn reconnect(directory: &Path) -> Arc<SocketLink> {
    let begun = Instant::now();
    loop {
        match SocketLink::connect(&directory.join("socket"), false) {
            Ok(link) => return Arc::new(link),
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
