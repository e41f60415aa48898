//! Goal: a device in a process of its own can be killed at any moment: what was acknowledged is there, or its loss is said; nothing is
//! torn; the host replays what was under way, and goes on with the device that returns. A device that is stopped is a time-out.
//! Method: this program starts itself as a device over a file, over memory that outlives it, with the host's frames in its hands, or over
//! the journaled store on a file or on NAND whose cells are a file and whose wear is kept beside it, and kills it with SIGKILL at random moments while queues and commands of two threads write, read, flush
//! and compare with maps. Seeds are printed.

#[path = "../../flash/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::{
    Device, DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, Server, ServerConfig, SocketLink,
};
use fulgurite_flash::{FileConfig, FileFlash, Flash, FlashError, MemoryFlash, NandFlash, Op, OpenError};
use fulgurite_nand::{Fil, FilConfig, Parts, Profile};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Arena;

const SECTORS: u32 = 2048;
const SOCKET: &str = "FULGURITE_TEST_SOCKET";
const DATA: &str = "FULGURITE_TEST_DATA";
const OVER: &str = "FULGURITE_TEST_OVER";

/// What the device is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    File,
    /// A file's pages in memory, which only the processor moves: the device has the host's frames.
    Memory,
    Store,
    /// The store over NAND, whose cells are in the file.
    Nand,
}

impl Over {
    fn has_store(self) -> bool {
        matches!(self, Over::Store | Over::Nand)
    }
}

/// 4 planes of 80 blocks of 8 pages, in times that a test can wait for.
fn nand() -> (Profile, FilConfig) {
    let mut profile = Profile::built_in("slc").unwrap();
    let parts = Parts {
        channels: 2,
        packages_per_channel: 1,
        dies_per_package: 1,
        planes_per_die: 2,
        blocks_per_plane: 80,
        pages_per_block: 8,
        page_bytes: 4096,
    };
    profile.geometry = fulgurite_nand::Geometry::new(parts).unwrap();
    profile.wear.factory_bad = 0.0;
    (profile.timing.read_ns, profile.timing.program_ns, profile.timing.erase_ns) = (10_000, 20_000, 50_000);
    (profile, FilConfig { log_blocks: 4, spare_blocks: 2, hold_ns: 2_000, ..FilConfig::default() })
}

/// Where the wear of the NAND in this file is kept.
fn wear(data: &str) -> PathBuf {
    PathBuf::from(format!("{data}.nand"))
}

/// Not a test: what this program does as a device. It ends by being killed, or with whoever started it.
#[test]
#[ignore = "the device's process; the tests start it"]
fn be_the_device() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let data = std::env::var(DATA).unwrap();
    let over = std::env::var(OVER).unwrap();
    let is = |what: Over| over == format!("{what:?}");
    let firmware = FirmwareConfig { keeps_writes: !is(Over::Store) && !is(Over::Nand), ..FirmwareConfig::default() };
    let mut worn = None;
    let config = DeviceConfig { firmware, spin: Duration::from_micros(50), ..DeviceConfig::default() };
    let device = if is(Over::Memory) {
        let file = std::fs::File::options().read(true).write(true).open(data).unwrap();
        let medium = MemoryFlash::over(Arc::new(Arena::shared(file).unwrap()), SECTORS).unwrap();
        let firmware = FirmwareConfig { moves_by_cpu: true, ..config.firmware };
        Device::start(Arc::new(medium), DeviceConfig { firmware, ..config }).unwrap()
    } else {
        let config_of_file = FileConfig::existing(&data);
        // The kernel may hold the lock of the one that was killed until its ring is taken down.
        let begun = Instant::now();
        let medium = loop {
            match FileFlash::open(&config_of_file) {
                Err(OpenError::InUse { .. }) if begun.elapsed() < Duration::from_secs(10) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => break Arc::new(opened.unwrap()),
            }
        };
        let store = |medium: Arc<dyn Flash>| {
            let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
            Device::start_store(pool.into_flash(), config.clone()).unwrap()
        };
        if is(Over::Store) {
            store(medium)
        } else if is(Over::Nand) {
            let (profile, config) = nand();
            let state = std::fs::read(wear(&data)).ok();
            let nand = Arc::new(NandFlash::reopened_with(medium, profile, config, state.as_deref()).unwrap());
            worn = Some((nand.clone(), wear(&data)));
            store(nand)
        } else {
            Device::start(medium, config).unwrap()
        }
    };
    let _server = Server::start(Arc::new(device), Path::new(&socket), ServerConfig::default()).unwrap();
    if let Some((nand, path)) = worn {
        std::thread::spawn(move || {
            let new = path.with_extension("new");
            loop {
                std::fs::write(&new, nand.state()).unwrap();
                std::fs::rename(&new, &path).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
    // The end of the input is the end of the parent.
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

/// A device's process.
struct Process {
    child: Child,
    socket: PathBuf,
    data: PathBuf,
    over: Over,
}

impl Process {
    fn start(directory: &Path, over: Over) -> Process {
        let (socket, data) = (directory.join("socket"), directory.join("data"));
        if !data.exists() {
            let (profile, config) = nand();
            let fil = Fil::new(profile, config).unwrap();
            let (pages, extent_pages) = match over {
                Over::Nand => (fil.flash_pages(), fil.extent_pages()),
                _ => (SECTORS, 32),
            };
            let create = FileConfig::create(&data, u64::from(pages) * 4096);
            let mut medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&create).unwrap());
            if over == Over::Nand {
                medium = Arc::new(NandFlash::new(medium, profile, config).unwrap());
            }
            if over.has_store() {
                let geometry = Geometry::new(pages, extent_pages, Some(512)).unwrap();
                Pool::format(&medium, geometry, fulgurite_format::PoolId([3; 16]), 0).unwrap();
            }
        }
        let child = Process::spawn(&socket, &data, over);
        Process { child, socket, data, over }
    }
    fn spawn(socket: &Path, data: &Path, over: Over) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "be_the_device", "--ignored", "--nocapture"]);
        command.env(SOCKET, socket).env(DATA, data).env(OVER, format!("{over:?}"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }
    fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Process::spawn(&self.socket, &self.data, self.over);
    }
    fn connect(&self) -> SocketLink {
        let begun = Instant::now();
        loop {
            match SocketLink::connect(&self.socket, self.over == Over::Memory) {
                Ok(link) => return link,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    fn flash(&self, timeout: Option<Duration>) -> DeviceFlash {
        self.flash_with(HostConfig { timeout, ..host(8 << 20) })
    }
    fn flash_with(&self, host: HostConfig) -> DeviceFlash {
        let flash =
            DeviceFlash::over(Arc::new(self.connect()), HostConfig { copies: self.over != Over::Memory, ..host });
        assert_eq!(flash.wants_shared_frames(), self.over == Over::Memory);
        flash
    }
    /// So many frames, in memory that the device may be given.
    fn frames(&self, count: u32) -> Arc<Arena> {
        match self.over {
            Over::Memory => Arc::new(Arena::sealed_memfd("frames", count as usize * 4096).unwrap()),
            _ => arena(count),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A patient host that keeps so many bytes of what was not flushed.
fn host(unflushed_bytes: usize) -> HostConfig {
    HostConfig { copies: true, reattach: Duration::from_secs(60), unflushed_bytes, ..HostConfig::default() }
}

fn kills() -> u32 {
    std::env::var("FULGURITE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
}

/// Kills and starts the process again and again until told to stop.
fn killer(mut process: Process, seed: u64, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<(Process, u32)> {
    std::thread::spawn(move || {
        let mut random = Random(seed);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) && count < kills() {
            drop(process.connect());
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
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

/// Another queue of the host and its commands, by a thread of their own. Returns what is in its half, and how many commands ended well.
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
            // By one of them, and read by the other. Whoever opens commands waits for a device that is away.
            let mut opened = commands.take().unwrap_or_else(|| flash.commands(2, 8).unwrap());
            let mut bytes = [0; 4096];
            frames.read(0, &mut bytes);
            let done = opened.write(sector, &bytes).and_then(|()| match random.below(4) {
                0 => opened.flush(),
                _ => Ok(()),
            });
            // They end with the device, and say so; nothing else goes wrong.
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

/// The store's state after a kill is that of the last flush; the host has copies of what was written since, and goes on. No error is seen,
/// and no read is older than what was acknowledged, of any queue, by any of them. So few copies may be kept that the host flushes itself.
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
    // Its own flushes come after so many writes, however few the kills are.
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

/// Without copies: a host that had flushed all goes on; one that had not is told, and finds what it had flushed when it opens anew. A flush
/// of one queue is one of what others had completed.
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
            // Each sector is as it was flushed, or as it was written since: never anything else, never older.
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
    println!("{count} kills, {poisoned} times told of a loss, {replayed} commands replayed before");
    assert!(count >= kills());
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

#[test]
fn a_stopped_process_is_a_time_out_and_goes_on_when_it_continues() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), Over::File);
    let flash = process.flash(Some(Duration::from_millis(50)));
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    fill(&frames, 0, 5);
    // The first commands may meet a process that is still busy with its start.
    while queue.one(Op::Write, 7, 0) == Err(FlashError::TimedOut) {}
    let mut queue = Driver::new(&flash, &frames, 2);
    let mut commands = flash.commands(2, 2).unwrap();
    let id = rustix::process::Pid::from_child(&process.child);
    rustix::process::kill_process(id, rustix::process::Signal::STOP).unwrap();
    // Its threads run on until each has been told.
    while !rustix::process::waitpid(Some(id), rustix::process::WaitOptions::UNTRACED).unwrap().unwrap().1.stopped() {}
    let begun = Instant::now();
    assert_eq!(queue.one(Op::Read, 7, 1), Err(FlashError::TimedOut));
    assert_eq!(queue.one(Op::Write, 8, 0), Err(FlashError::TimedOut));
    assert_eq!(commands.read(7, &mut [0; 4096]), Err(FlashError::TimedOut));
    // The driver's clock is the processor's counter, whose rate was measured once.
    assert!(begun.elapsed() >= Duration::from_millis(25));
    assert!(flash.host_counters().timed_out > 0);
    rustix::process::kill_process(id, rustix::process::Signal::CONT).unwrap();
    while queue.one(Op::Read, 7, 1) == Err(FlashError::TimedOut) {}
    assert_eq!(stamp_of(&frames, 1), Some(5));
    // The queue pairs are those of before: nothing was opened anew, and what came late was not taken for what was asked for since.
    let mut bytes = [0; 4096];
    while commands.read(7, &mut bytes) == Err(FlashError::TimedOut) {}
    frames.write(4096, &bytes);
    assert_eq!((stamp_of(&frames, 1), flash.host_counters().relinked), (Some(5), 0));
}
