//! Goal: whatever is written into the special registers, the doorbell and the host's bell, all
//! requests end well, as neither side believes what it reads there. With scribbled queues, too,
//! each ends well or by a typed error. Reads are what was written, and the next device works as
//! ever.
//! Method: a thread scribbles over the shared memory of a driver and a device at work, in one
//! process and over a socket, with a model of what each sector may hold. Seeds are printed.

use crate::common;
use crate::tapped;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_sys::Arena;
use tapped::Tapped;

const SECTORS: u32 = 64;
const DEPTH: u32 = 4;
/// Nothing waits so long on any machine.
const FOREVER: Duration = Duration::from_secs(60);

/// What is scribbled over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Capability, status, heartbeat, other hosts, doorbell; the host's bell.
    Registers,
    /// Those, and both queues.
    Queues,
}

/// Scribbles over all regions that there are until it is dropped.
struct Scribbler {
    stop: Arc<AtomicBool>,
    words: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scribbler {
    fn start(link: &Arc<Tapped>, what: What, seed: u64) -> Scribbler {
        let (stop, words, link) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), link.clone());
        let (stopped, scribbled) = (stop.clone(), words.clone());
        let thread = std::thread::spawn(move || {
            let mut random = Random(seed);
            while !stopped.load(Ordering::Relaxed) {
                let regions = link.regions.lock().unwrap().clone();
                let times = if what == What::Registers { 8 } else { 1 };
                for region in regions.iter().flat_map(|region| std::iter::repeat_n(region, times)) {
                    let queues = region.buffer_first(0) as usize * SECTOR_BYTES / 8;
                    let reach = if what == What::Registers { 0x1000 / 8 + 1 } else { queues };
                    // The words that are read again and again, half of the time.
                    let known = [0x80 / 8, 0x88 / 8, 0x90 / 8, 0x98 / 8, 0x100 / 8, 0x1000 / 8];
                    let at = match random.below(2) {
                        0 if what == What::Registers => known[random.below(6) as usize],
                        // Behind the host's bell, 16 entries of each queue.
                        0 => (0x1000 + 128) / 8 + random.below(16 * 6) as usize,
                        _ => random.below(reach as u64) as usize,
                    };
                    let word = &region.arena().words(0, reach)[at];
                    match random.below(4) {
                        0 => word.store(random.next(), Ordering::Relaxed),
                        1 => drop(word.fetch_xor(1 << random.below(64), Ordering::Relaxed)),
                        2 => word.store(u64::MAX, Ordering::Relaxed),
                        _ => word.store(random.below(3), Ordering::Relaxed),
                    }
                    scribbled.fetch_add(1, Ordering::Relaxed);
                }
                // A queue that is scribbled over without end gets nothing done.
                let pause = if what == What::Registers { random.below(200) } else { 50 + random.below(2000) };
                std::thread::sleep(Duration::from_micros(pause));
            }
        });
        Scribbler { stop, words, thread: Some(thread) }
    }
    fn words(&self) -> u64 {
        self.words.load(Ordering::Relaxed)
    }
}

impl Drop for Scribbler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What each sector may hold: what was acknowledged last, and later writes of unknown outcome.
#[derive(Default)]
struct Model(BTreeMap<u32, Vec<u64>>);

impl Model {
    fn wrote(&mut self, sector: u32, stamp: u64, result: Result<(), FlashError>) {
        let may = self.0.entry(sector).or_insert_with(|| vec![0]);
        if result.is_ok() {
            may.clear();
        }
        may.push(stamp);
    }
    fn check(&self, sector: u32, frames: &Arena, frame: u32, what: &str) {
        let Some(may) = self.0.get(&sector) else { return };
        let mut bytes = [0; SECTOR_BYTES];
        frames.read(frame as usize * SECTOR_BYTES, &mut bytes);
        let found = if bytes == [0; SECTOR_BYTES] { Some(0) } else { stamp_of(frames, frame) };
        assert!(
            found.is_some_and(|found| may.contains(&found)),
            "{what}: sector {sector} holds {found:?}, not {may:?}"
        );
    }
}

/// Some rounds of writes, reads, flushes and commands. Returns the number of errors, all typed.
fn rounds(
    queue: &mut Driver,
    frames: &Arc<Arena>,
    model: &mut Model,
    random: &mut Random,
    count: u32,
    what: &str,
) -> u32 {
    let mut failed = 0;
    for _ in 0..count {
        let first = random.below(u64::from(SECTORS - DEPTH)) as u32;
        let mut asked = BTreeMap::new();
        for i in 0..DEPTH {
            let stamp = random.next() | 1;
            fill(frames, i, stamp);
            asked.insert(queue.submit(Op::Write, first + i, i), (first + i, stamp));
        }
        for (tag, result) in queue.finish_all() {
            let (sector, stamp) = asked[&tag];
            model.wrote(sector, stamp, result);
            failed += u32::from(result.is_err());
        }
        let mut asked = BTreeMap::new();
        let first = random.below(u64::from(SECTORS - DEPTH)) as u32;
        for i in 0..DEPTH {
            asked.insert(queue.submit(Op::Read, first + i, i), i);
        }
        for (tag, result) in queue.finish_all() {
            match result {
                Ok(()) => model.check(first + asked[&tag], frames, asked[&tag], what),
                Err(_) => failed += 1,
            }
        }
        failed += u32::from(random.below(4) == 0 && queue.one(Op::Flush, 0, 0).is_err());
    }
    failed
}

/// Over a device that a test can end and start again: in this process, or at a socket.
fn stands(what: What, socket: bool, timeout: Option<Duration>) {
    let seed = seed();
    let reported = format!("{what:?}, over a socket: {socket}, seed {seed}");
    println!("{reported}");
    let medium = Arc::new(MemoryFlash::new(SECTORS).unwrap());
    let firmware = FirmwareConfig { keeps_writes: true, ..FirmwareConfig::default() };
    let config = DeviceConfig { firmware, ..DeviceConfig::default() };
    let device = || Arc::new(Device::start(medium.clone(), config.clone()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let serve = || Server::start(device(), &path, ServerConfig::default()).unwrap();
    let here = device();
    let mut server = socket.then(serve);
    let link = match socket {
        true => Tapped::new(SocketLink::connect(&path, false).unwrap()),
        false => Tapped::new(Within(here.clone())),
    };
    let host = HostConfig { copies: true, timeout, reattach: FOREVER, ..HostConfig::default() };
    let flash = DeviceFlash::over(link.clone(), host);
    let frames = arena(DEPTH);
    let (mut random, mut model) = (Random(seed), Model::default());
    let mut queue = Driver::new(&flash, &frames, DEPTH as usize);
    let scribbler = Scribbler::start(&link, what, seed ^ 1);
    let (mut failed, mut reopened) = (0, 0);
    // The thread that scribbles may not run for long: it goes on until that has done something.
    let (begun, least) = (Instant::now(), if what == What::Registers { 1000 } else { 200 });
    while scribbler.words() < least && begun.elapsed() < FOREVER {
        let errors = rounds(&mut queue, &frames, &mut model, &mut random, 3, &reported);
        if errors > 0 {
            // It may have been given up. What it had sent has ended, or will never be done.
            (failed, reopened) = (failed + errors, reopened + 1);
            drop(queue);
            queue = Driver::new(&flash, &frames, DEPTH as usize);
        }
        if what == What::Registers {
            let mut commands = flash.commands(2, 4).unwrap();
            let mut bytes = [0; SECTOR_BYTES];
            commands.read(3, &mut bytes).unwrap();
            frames.write(0, &bytes);
            model.check(3, &frames, 0, &reported);
            assert_eq!(commands.identify().unwrap().sectors, SECTORS, "{reported}");
        }
    }
    println!("{} words, {failed} errors, opened anew {reopened} times, {:?}", scribbler.words(), flash.host_counters());
    assert!(scribbler.words() >= least, "{reported}");
    drop(scribbler);
    if what == What::Registers {
        let counters = flash.host_counters();
        assert_eq!((failed, counters.relinked, counters.broken, counters.timed_out), (0, 0, 0, 0), "{reported}");
    }
    // Another device in its place, which nobody scribbles over.
    let _next = match socket {
        true => {
            drop(server.take());
            Some(serve())
        }
        false => {
            here.stop();
            here.restart().unwrap();
            None
        }
    };
    let begun = Instant::now();
    while rounds(&mut queue, &frames, &mut model, &mut random, 1, &reported) > 0 {
        assert!(begun.elapsed() < FOREVER, "{reported}: {:?}", flash.host_counters());
        drop(queue);
        queue = Driver::new(&flash, &frames, DEPTH as usize);
    }
    // A time-out may be the machine's own.
    for sector in 0..SECTORS {
        while queue.one(Op::Read, sector, 0) == Err(FlashError::TimedOut) {
            assert!(begun.elapsed() < FOREVER, "{reported}");
        }
        model.check(sector, &frames, 0, &reported);
    }
}

/// A device in this process, that others hold as well.
struct Within(Arc<Device>);

impl Link for Within {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        Link::open(&*self.0, want)
    }
    fn describe(&self) -> String {
        Link::describe(&*self.0)
    }
    fn sectors(&self) -> u32 {
        self.0.sectors()
    }
    fn features(&self) -> Features {
        self.0.features()
    }
    fn counters(&self) -> DeviceCounters {
        Link::counters(&*self.0)
    }
    fn has_own_core(&self) -> bool {
        self.0.has_own_core()
    }
    fn may_forget(&self) -> bool {
        self.0.may_forget()
    }
}

#[test]
fn registers_that_are_scribbled_over_disturb_nobody() {
    stands(What::Registers, false, None);
}
#[test]
fn registers_that_are_scribbled_over_disturb_nobody_at_a_socket() {
    stands(What::Registers, true, None);
}
#[test]
fn queues_that_are_scribbled_over_are_typed_errors_until_another_device_comes() {
    stands(What::Queues, false, Some(Duration::from_millis(20)));
}
#[test]
fn queues_that_are_scribbled_over_are_typed_errors_until_another_device_comes_at_a_socket() {
    stands(What::Queues, true, Some(Duration::from_millis(20)));
}

/// The heartbeat tells how long to wait for a memory operation: a scribble delays it, or ends it by
/// a typed error. A device whose status says anything is asked nevertheless.
#[test]
fn a_heartbeat_and_a_status_that_are_scribbled_over_end_memory_operations_by_a_typed_error() {
    let seed = seed();
    println!("seed {seed}");
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(2048).unwrap());
    let geometry = fulgurite_store::Geometry::new(2048, 64, Some(512)).unwrap();
    fulgurite_store::Pool::format(&medium, geometry, fulgurite_format::PoolId([9; 16]), 0).unwrap();
    let pool = fulgurite_store::Pool::open(medium, fulgurite_store::StoreConfig::default()).unwrap().0;
    let device = Arc::new(Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap());
    let link = Tapped::new(Within(device));
    let host = HostConfig { copies: true, timeout: Some(Duration::from_millis(30)), ..HostConfig::default() };
    let mut random = Random(seed);
    let scribbler = Scribbler::start(&link, What::Registers, seed ^ 1);
    let (mut tokens, begun) = (Vec::new(), Instant::now());
    let (mut flash, mut syncs) = (DeviceFlash::over(link.clone(), host.clone()), 0);
    while syncs < 20 || scribbler.words() < 1000 {
        assert!(begun.elapsed() < FOREVER, "seed {seed}: {syncs} syncs");
        let Ok(mut commands) = flash.commands(2, 16) else {
            // An abandoned roll back or trim could be done at any time: a host opens the device
            // anew.
            flash = DeviceFlash::over(link.clone(), host.clone());
            continue;
        };
        let sector = random.below(500) as u32;
        let wrote = commands.write(sector, &[random.next() as u8 | 1; SECTOR_BYTES]);
        assert!(matches!(wrote, Ok(()) | Err(FlashError::TimedOut)), "seed {seed}: {wrote:?}");
        match commands.sync() {
            Ok(token) => {
                assert!(tokens.iter().all(|before| *before < token), "seed {seed}: {token} after {tokens:?}");
                tokens.push(token);
                syncs += 1;
            }
            Err(error) => assert_eq!(error, FlashError::TimedOut.into(), "seed {seed}"),
        }
        let trimmed = commands.trim(16 * random.below(30) as u32, 16);
        assert!(
            matches!(trimmed, Ok(()) | Err(FlashError::TimedOut | FlashError::Poisoned)),
            "seed {seed}: {trimmed:?}"
        );
    }
    drop(scribbler);
}
