//! Goal: whatever becomes of a roll back while jobs write, no one ever finds half a write section,
//! live or after opening the pool again. One that is made restores the state of its token. One that
//! is refused has changed nothing. One that fails half way leaves a memory that says so at every
//! access, and a pool with one of the states that had a name. Method: jobs write in sections that
//! wait in the middle: each section raises all pages of its job by one, and replaces an object of a
//! heap that says the same. Memory has few frames, so that a part of each section is on flash.
//! Meanwhile states are named and gone back to. Another thread drops or pins tokens, or opens one;
//! the pool drops tokens because it needs their space; the medium fails during the roll back, or
//! during a sync before it. Once more over a device in a process of its own, which is killed during
//! the roll back and started again. Seeds are printed.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{
    AccessError, Address, Context, Durability, Error, Fulgurite, Heap, JobHandle, JobOptions, Medium, Memory, Region,
    SyncError,
    media::MemoryFlash,
    runtime::{BuildError, Runtime, SchedulingPolicy},
    views::Ptr,
};
use fulgurite_device::{Device, DeviceConfig, Server, ServerConfig};
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FileConfig, FileFlash, Flash, FlashError, Op, OpenError, When};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_testkit as trials;

use crate::guarded::{with_frames, within};
use trials::Random;

const WRITERS: u64 = 3;
/// Pages that each section writes.
const PAGES: u64 = 8;
/// The marker's page and the pages of all writers.
const ALL: u64 = 1 + WRITERS * PAGES;
const HEAP_BYTES: u64 = 256 << 10;
const NODE_BYTES: usize = 200;
/// For each worker: less than half of what is written.
const FRAMES: u64 = 12;
const SUBPAGE: u64 = 4096;
/// Writers are never all idle: jobs that come later must not wait for that.
const FAIR: SchedulingPolicy = SchedulingPolicy::PriorityAging;

/// What the writers write.
#[derive(Clone)]
struct Bank {
    base: Address,
    heap: Arc<Heap>,
}

impl Bank {
    fn at(&self, page: u64, word: u64) -> Ptr<u64> {
        Ptr::new(self.base.add(page * SUBPAGE + word * 8))
    }
    /// A page of which only the main thread says which state it is of.
    fn marker(&self) -> Ptr<u64> {
        self.at(0, 0)
    }
    fn page(&self, writer: u64, n: u64) -> Ptr<u64> {
        self.at(1 + writer * PAGES + n, 0)
    }
    /// Where the writer's object is stored, and 0 when it is nowhere yet.
    fn node(&self, writer: u64) -> Ptr<u64> {
        self.at(1 + writer * PAGES, 1)
    }
    /// One section. Others run in the middle of it.
    fn section(&self, m: &mut Context, writer: u64) -> Result<u64, AccessError> {
        let value = m.load(self.page(writer, 0))? + 1;
        for n in 0..PAGES {
            m.store(self.page(writer, n), value)?;
            if n % 3 == writer % 3 {
                m.yield_now()?;
            }
        }
        let (before, now) = (m.load(self.node(writer))?, self.heap.allocate(m, NODE_BYTES)?);
        m.store(Ptr::<u64>::new(now), value)?;
        m.store(self.node(writer), now.linear())?;
        if before != 0 {
            self.heap.free(m, Address::from_linear(before), NODE_BYTES)?;
        }
        Ok(value)
    }
    /// The marker and the values of the writers: all but those named whole, and the heap as well
    /// where all are.
    fn found(&self, m: &mut Context, aside: &[bool]) -> Result<(u64, Vec<u64>), AccessError> {
        let mut values = Vec::new();
        for writer in 0..WRITERS {
            let first = m.load(self.page(writer, 0))?;
            values.push(first);
            if aside[writer as usize] {
                continue;
            }
            for n in 1..PAGES {
                assert_eq!(m.load(self.page(writer, n))?, first, "a section of writer {writer} is torn at page {n}");
            }
            let node = m.load(self.node(writer))?;
            let held = if node == 0 { 0 } else { m.load(Ptr::<u64>::new(Address::from_linear(node)))? };
            assert_eq!(held, first, "the object of writer {writer}");
        }
        if !aside.contains(&true) {
            self.heap.check(m)?;
        }
        Ok((m.load(self.marker())?, values))
    }
}

/// The writers at work.
struct Crew {
    stop: Arc<AtomicBool>,
    /// What the last section of each was that ended well.
    done: Arc<[AtomicU64; WRITERS as usize]>,
    /// Whose section was cut off by an access that failed: the program's own fault.
    cut_off: Arc<[AtomicBool; WRITERS as usize]>,
    jobs: Vec<JobHandle<()>>,
}

impl Crew {
    fn begin(runtime: &Runtime, bank: &Bank) -> Crew {
        let mut crew = Crew { stop: Arc::default(), done: Arc::default(), cut_off: Arc::default(), jobs: Vec::new() };
        for writer in 0..WRITERS {
            let (stop, done, cut_off) = (crew.stop.clone(), crew.done.clone(), crew.cut_off.clone());
            let bank = bank.clone();
            // Where frames are few, jobs that may pin some wait for each other.
            let job = runtime.submit_with(&JobOptions::new().pins(0), move |m| {
                while !stop.load(Ordering::SeqCst) {
                    let Ok(section) = m.write_section() else { return };
                    let ended = bank.section(m, writer);
                    match ended {
                        Ok(value) => done[writer as usize].store(value, Ordering::SeqCst),
                        // That is never named.
                        Err(AccessError::MemoryPoisoned) => return,
                        Err(_) => return cut_off[writer as usize].store(true, Ordering::SeqCst),
                    }
                    drop(section);
                    if m.sleep(Duration::from_micros(100)).is_err() {
                        return;
                    }
                }
            });
            crew.jobs.push(job.unwrap());
        }
        crew
    }
    /// Waits until each has done this number of sections more.
    fn goes_on(&self, sections: u64) {
        let begun = Instant::now();
        for (done, cut_off) in self.done.iter().zip(&*self.cut_off) {
            let from = done.load(Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < from + sections && !cut_off.load(Ordering::SeqCst) {
                assert!(begun.elapsed() < Duration::from_secs(120), "a writer does not go on: {:?}", self.done);
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
    /// Ends them. Returns what each has done, and whose section was cut off.
    fn end(self) -> (Vec<u64>, Vec<bool>) {
        self.stop.store(true, Ordering::SeqCst);
        self.jobs.into_iter().for_each(|job| job.wait().unwrap());
        let done = self.done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
        (done, self.cut_off.iter().map(|cut_off| cut_off.load(Ordering::SeqCst)).collect())
    }
}

/// What a roll back came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Made,
    Refused,
    HalfWay,
}

fn came<E: std::fmt::Debug>(result: Result<(), E>, half_way: impl Fn(&E) -> bool) -> Came {
    match result {
        Ok(()) => Came::Made,
        Err(error) if half_way(&error) => Came::HalfWay,
        Err(_) => Came::Refused,
    }
}

fn mark(runtime: &Runtime, bank: &Bank, marker: u64) -> Result<(), AccessError> {
    let bank = bank.clone();
    runtime.run(move |m| {
        let _section = m.write_section()?;
        m.store(bank.marker(), marker)
    })
}

/// What memory shows after a roll back, when its writers have ended. Returns the sections that the
/// program itself has cut off, which the next named state shows then, and whether memory continues.
fn check(runtime: &Runtime, bank: &Bank, came: Came, crew: Crew, (live, token): (u64, u64)) -> (Vec<bool>, bool) {
    let before: Vec<u64> = crew.done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
    let (_, cut_off) = crew.end();
    let (bank, aside) = (bank.clone(), cut_off.clone());
    if came == Came::HalfWay {
        for page in 0..ALL {
            let at = bank.at(page, 0);
            assert_eq!(runtime.run(move |m| m.load(at)), Err(AccessError::MemoryPoisoned), "page {page}");
            assert_eq!(runtime.run(move |m| m.store(at, 1)), Err(AccessError::MemoryPoisoned), "page {page}");
        }
        assert!(matches!(runtime.sync(), Err(SyncError::Poisoned { .. })));
        return (cut_off, false);
    }
    match runtime.run(move |m| bank.found(m, &aside)) {
        Ok((marker, _)) if came == Came::Made => assert_eq!(marker, token, "the state that was gone back to"),
        Ok((marker, values)) => {
            assert_eq!(marker, live, "a roll back that was refused has changed nothing");
            let lost = values.iter().zip(&before).find(|(value, done)| value < done);
            assert_eq!(lost, None, "a roll back that was refused loses nothing");
        }
        // The medium is gone for good: nothing is shown.
        Err(AccessError::Flash { .. }) => return (cut_off, false),
        Err(error) => panic!("{error}"),
    }
    let goes_on = !cut_off.contains(&true);
    (cut_off, goes_on)
}

// ---- a pool of the program's own ----

struct World {
    medium: Arc<FaultyFlash<MemoryFlash>>,
    pool: Arc<Pool>,
    runtime: Runtime,
    bank: Bank,
}

const FLASH: u32 = 2048;

fn heap_region() -> Region {
    Region::new(Address::from_linear(ALL * SUBPAGE), HEAP_BYTES)
}

impl World {
    fn over(medium: MemoryFlash, workers: usize, keep_bytes: u64, is_new: bool) -> World {
        let medium = Arc::new(FaultyFlash::new(medium, FaultPlan::default()));
        let shared: Arc<dyn Flash> = medium.clone();
        if is_new {
            Pool::format(&shared, Geometry::new(FLASH, 16, Some(512)).unwrap(), PoolId([7; 16]), 0).unwrap();
        }
        let mut config = StoreConfig::default();
        (config.keep_tokens, config.keep_bytes) = (8, keep_bytes);
        let flash = Pool::open(shared, config).unwrap().0.into_flash();
        let (pool, existing) = (flash.layer().clone(), if is_new { 0 } else { 512 * SUBPAGE });
        let builder = Runtime::builder(Arc::new(flash)).existing(existing).fibers(8).scheduling(FAIR);
        let runtime = with_frames(builder.device_timeout(Duration::from_secs(5)), workers, FRAMES);
        let heap =
            runtime.run(move |m| if is_new { Heap::create(m, heap_region()) } else { Heap::open(m, heap_region()) });
        let heap = Arc::new(heap.unwrap());
        runtime.keep(heap.clone());
        World { medium, pool, runtime, bank: Bank { base: Address::from_linear(0), heap } }
    }
    fn new(workers: usize, keep_bytes: u64) -> World {
        World::over(MemoryFlash::new(FLASH).unwrap(), workers, keep_bytes, true)
    }
    /// What a new process finds.
    fn reopened(self, aside: Vec<bool>) -> u64 {
        let World { medium, pool, runtime, bank } = self;
        drop((runtime, pool, bank));
        let storage = MemoryFlash::over(medium.inner().storage().clone(), FLASH).unwrap();
        let world = World::over(storage, 1, 0, false);
        let bank = world.bank.clone();
        world.runtime.run(move |m| bank.found(m, &aside)).unwrap().0
    }
}

/// What stands in the way of a roll back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Somebody drops tokens, pins one, or reads one.
    Others,
    /// Tokens go because the pool needs their space.
    Space,
    /// The medium fails meanwhile.
    Medium,
    /// It has failed a sync before.
    Sync,
}

const TROUBLES: [Trouble; 4] = [Trouble::Others, Trouble::Space, Trouble::Medium, Trouble::Sync];

fn fails(random: &mut Random, within: u64) -> FaultPlan {
    let op = [Some(Op::Write), Some(Op::Flush), None][random.below(3) as usize];
    let nth = 1 + random.below(within);
    let when = if random.one_in(2) { When::Nth(nth) } else { When::From(nth) };
    let error = if random.one_in(2) { 5 } else { 28 };
    FaultPlan { seed: random.next(), ..FaultPlan::rule(op, when, Fault::Fails(FlashError::Io(error))) }
}

fn among_writers(seed: u64) -> Came {
    let mut random = Random(seed);
    let trouble = TROUBLES[random.below(4) as usize];
    let keep_bytes = if trouble == Trouble::Space { (4 << 20) + (random.below(2) << 20) } else { 0 };
    let world = World::new(1 + random.below(2) as usize, keep_bytes);
    let (runtime, bank) = (&world.runtime, &world.bank);
    let crew = Crew::begin(runtime, bank);
    let mut named = Vec::new();
    for marker in 1..4 {
        crew.goes_on(1 + random.below(3));
        mark(runtime, bank, marker).unwrap();
        named.push((marker, runtime.sync().unwrap().token));
    }
    let (target, token) = named[random.below(2) as usize];
    let newest = named[2].1;
    let (mut live, mut markers) = (100, vec![target, 3]);
    mark(runtime, bank, live).unwrap();
    crew.goes_on(random.below(3));
    if trouble == Trouble::Sync {
        live = 101;
        mark(runtime, bank, live).unwrap();
        world.medium.set_plan(fails(&mut random, 40));
        let _ = runtime.sync();
        // What failed may be durable all the same.
        markers.push(live);
        if random.one_in(2) {
            world.medium.set_plan(FaultPlan::default());
        }
    }
    if trouble == Trouble::Medium {
        world.medium.set_plan(fails(&mut random, 3));
    }
    if trouble == Trouble::Space {
        // Until it is nearly so far.
        let begun = Instant::now();
        while world.pool.tokens().contains(named[0].1) && begun.elapsed() < Duration::from_millis(random.below(40)) {
            crew.goes_on(1);
        }
    }
    let (others, what, after) = (world.pool.clone(), random.below(4), Duration::from_micros(random.below(300)));
    let other = std::thread::spawn(move || {
        std::thread::sleep(after);
        match what {
            _ if trouble != Trouble::Others => None,
            0 => others.pin(newest, true).map(|()| None).unwrap_or_default(),
            1 => others.view(newest).ok(),
            _ => others.drop_tokens(1).map(|_| None).unwrap(),
        }
    });
    let came = came(runtime.roll_back(token), |error| matches!(error, SyncError::Poisoned { .. }));
    world.medium.set_plan(FaultPlan::default());
    drop(other.join().unwrap());
    let (cut_off, goes_on) = check(runtime, bank, came, crew, (live, target));
    // What is whole can be named.
    let expected = match came {
        Came::Made => target,
        Came::Refused => live,
        Came::HalfWay => 0,
    };
    if goes_on && runtime.sync().is_ok() {
        markers = vec![expected];
    } else if came == Came::Made {
        markers = vec![target];
    } else if came == Came::Refused {
        markers.retain(|marker| *marker != target);
        // Memory that is dropped is synced.
        markers.push(live);
    }
    // What is poisoned names nothing, so that only the sync before can have named a section that
    // was cut off.
    let aside = if came == Came::HalfWay && trouble != Trouble::Sync { vec![false; cut_off.len()] } else { cut_off };
    let marker = world.reopened(aside);
    assert!(markers.contains(&marker), "{trouble:?}, {came:?}: state {marker}, not of {markers:?}");
    came
}

#[test]
fn roll_backs_among_writers_leave_whole_states() {
    let mut counts = [0; 3];
    let runs = trials::runs(OWN);
    within(60 + runs, "roll backs among writers", move || {
        trials::each_seed(u64::from(std::process::id()) << 16, OWN, |seed| counts[among_writers(seed) as usize] += 1);
        let [made, refused, half_way] = counts;
        println!("{made} made, {refused} refused, {half_way} failed half way");
        assert!(runs < OWN || counts.iter().all(|&count| count > 0), "{counts:?}");
        trials::figure(22, "roll backs among writers that met refusals, failures or deaths", runs);
    });
}

/// Roll backs over a pool of the program's own, where nothing else is said.
const OWN: u64 = 200;
/// Deaths of a device, in the same way.
const DEATHS: u64 = 12;

// ---- over a device that dies ----

const SOCKET: &str = "FULGURITE_TEST_SOCKET";
const DATA: &str = "FULGURITE_TEST_DATA";

/// Not a test: what this program does as a device. It ends by being killed, or with its parent.
#[test]
#[ignore = "the device's process; the test starts it"]
fn be_the_device() {
    let (Ok(socket), Ok(data)) = (std::env::var(SOCKET), std::env::var(DATA)) else { return };
    // The kernel may hold the lock of the one that was killed until its ring is taken down.
    let begun = Instant::now();
    let medium: Arc<dyn Flash> = loop {
        match FileFlash::open(&FileConfig::existing(&data)) {
            Err(OpenError::InUse { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => break Arc::new(opened.unwrap()),
        }
    };
    let mut config = StoreConfig::default();
    (config.temporary_stays, config.keep_tokens) = (true, 8);
    let (pool, _) = Pool::open(medium, config).unwrap();
    let config = DeviceConfig { spin: Duration::from_micros(50), ..DeviceConfig::default() };
    let device = Device::start_store(pool.into_flash(), config).unwrap();
    let _server = Server::start(Arc::new(device), Path::new(&socket), ServerConfig::default()).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

struct DeviceProcess(Child);

impl DeviceProcess {
    fn start(directory: &Path) -> DeviceProcess {
        let mut command = trials::again(module_path!(), "be_the_device");
        command.env(SOCKET, directory.join("socket")).env(DATA, directory.join("data"));
        DeviceProcess(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The memory over the device, and the bank in it.
fn over_device(directory: &Path) -> (Fulgurite, Bank) {
    let socket = directory.join("socket");
    let start = |dram: u64| {
        let medium = Medium::device_pool(&socket);
        let builder = Fulgurite::builder(medium).dram(dram).durability(Durability::Sync);
        builder.with(|runtime| runtime.fibers(8).scheduling(FAIR)).start()
    };
    let begun = Instant::now();
    let mut dram = 1;
    let memory = loop {
        match start(dram) {
            Ok(memory) => break memory,
            Err(Error::Build(BuildError::TooSmall { fixed, least, .. })) if dram < least => {
                // What is named is for 16 frames of each worker.
                dram = fixed + 2 * FRAMES * (least - fixed) / 16;
            }
            Err(Error::Device(_) | Error::Open(_)) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    };
    let heap = memory.named("heap").heap(HEAP_BYTES).unwrap();
    let base = memory.named("base").value::<u64>(u64::MAX).unwrap();
    let mut at = memory.run(move |m| m.load(base)).unwrap();
    if at == u64::MAX {
        at = memory.region(ALL * SUBPAGE).unwrap().base.linear();
        memory.run(move |m| m.store(base, at)).unwrap();
    }
    (memory, Bank { base: Address::from_linear(at), heap })
}

fn deaths(first: u64, count: u64) -> [u64; 3] {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let create = FileConfig::create(directory.join("data"), 4096 * SUBPAGE);
    let medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&create).unwrap());
    Pool::format(&medium, Geometry::new(4096, 64, Some(1024)).unwrap(), PoolId([3; 16]), 0).unwrap();
    drop(medium);
    let mut device = DeviceProcess::start(directory);
    let (mut memory, mut bank) = over_device(directory);
    let (mut marker, mut counts) = (0, [0; 3]);
    // About how long a roll back takes here.
    let mut takes = Duration::from_millis(4);
    for death in 0..count {
        let mut random = Random(first + death);
        let crew = Crew::begin(memory.runtime(), &bank);
        let mut named = Vec::new();
        for _ in 0..2 {
            crew.goes_on(1);
            marker += 1;
            mark(memory.runtime(), &bank, marker).unwrap();
            named.push((marker, memory.sync().unwrap()));
        }
        let (target, token) = named[random.below(2) as usize];
        marker += 1;
        mark(memory.runtime(), &bank, marker).unwrap();
        crew.goes_on(random.below(2));
        let dies = !random.one_in(8);
        let after = Duration::from_nanos(random.below(takes.as_nanos() as u64 * 3 / 2));
        let killed = std::thread::scope(|scope| {
            let process = &mut device;
            let killer = scope.spawn(move || {
                std::thread::sleep(after);
                if dies {
                    process.kill();
                    *process = DeviceProcess::start(directory);
                }
            });
            let begun = Instant::now();
            let result = memory.roll_back(token);
            if !dies {
                takes = begun.elapsed();
            }
            killer.join().unwrap();
            result
        });
        if let Err(error) = &killed {
            println!("seed {}: {error}", first + death);
        }
        let came = came(killed, |error| matches!(error, Error::Sync(SyncError::Poisoned { .. })));
        assert!(came != Came::Refused, "seed {}: a death is met by another try", first + death);
        counts[came as usize] += 1;
        let (cut_off, goes_on) = check(memory.runtime(), &bank, came, crew, (marker, target));
        let expected = if came == Came::Made { target } else { marker };
        let states = if goes_on && memory.sync().is_ok() { vec![expected] } else { vec![target, named[1].0] };
        if goes_on && !random.one_in(4) {
            continue;
        }
        drop((memory, bank));
        (memory, bank) = over_device(directory);
        let its = bank.clone();
        let aside = if came == Came::HalfWay { vec![false; cut_off.len()] } else { cut_off };
        let found = memory.run(move |m| its.found(m, &aside)).unwrap();
        assert!(states.contains(&found.0), "seed {}: {came:?}: state {}, not of {states:?}", first + death, found.0);
    }
    counts
}

#[test]
fn a_device_that_dies_in_a_roll_back_leaves_whole_states() {
    let (first, runs) = (trials::first_seed(u64::from(std::process::id()) << 16), trials::runs(DEATHS));
    println!("seed {first}; FULGURITE_SEED={first} FULGURITE_RUNS={runs} repeats it, as far as processes do");
    within(120 + 3 * runs, "deaths in roll backs", move || {
        let [made, _, half_way] = deaths(first, runs);
        println!("{made} made, {half_way} failed half way");
        assert!(made > 0, "no roll back survives a death of its device");
        trials::figure(22, "roll backs among writers that met refusals, failures or deaths", runs);
    });
}
