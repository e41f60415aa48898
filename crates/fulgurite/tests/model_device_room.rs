//! Goal: over the store of a device that is nearly full, a write that exceeds the room between two
//! syncs is refused, with how much is not synced. No reader is, and no sync: it can be made, makes
//! room, and writers continue. What was accepted is found, also where pages come and go and lose
//! permissions meanwhile, and where the device dies and returns. Where a thread syncs by itself,
//! writers wait for it, and none is refused. Method: programs with less DRAM than data over a
//! device behind a real socket, whose store has hardly more flash than the data. Jobs overwrite at
//! random until they are refused while others read all of it, then the program syncs, and again. A
//! model has what was accepted. Seeds are printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{
    AccessError, Durability, Error, Fulgurite, JobOptions, Medium, Memory, Region, SyncError,
    media::VersionError,
    pool::{Permissions, PoolError},
    views::Ptr,
};
use fulgurite_device::{Device, DeviceConfig, Server, ServerConfig};
use fulgurite_flash::{Flash, FlashError, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

use fulgurite_testkit as trials;

use trials::Random;

/// Flash pages: 16 MiB, nearly all of which is data.
const PAGES: u32 = 4096;
const WRITERS: u64 = 4;
const ONLY_READ: Permissions = Permissions { write: false, ..Permissions::DEFAULT };

#[derive(Clone)]
struct DeviceFixture {
    _directory: Arc<tempfile::TempDir>,
    socket: PathBuf,
    medium: Arc<dyn Flash>,
    /// Pages of 64 KiB that there are.
    pages: u32,
}

impl DeviceFixture {
    fn new() -> DeviceFixture {
        let directory = tempfile::tempdir().unwrap();
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(PAGES).unwrap());
        let geometry = Geometry::new(PAGES, 32, None).unwrap();
        Pool::format(&medium, geometry, PoolId([5; 16]), 0).unwrap();
        let socket = directory.path().join("device.sock");
        DeviceFixture { socket, _directory: Arc::new(directory), medium, pages: geometry.pages() }
    }
    fn serve(&self) -> Server {
        let mut config = StoreConfig::default();
        config.temporary_stays = true;
        let pool = Pool::open(self.medium.clone(), config).unwrap().0;
        let device = Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap();
        Server::start(Arc::new(device), &self.socket, ServerConfig::default()).unwrap()
    }
    /// What the device has left is a pool as any other.
    fn audit(&self) {
        assert_eq!(Pool::open(self.medium.clone(), StoreConfig::default()).unwrap().0.audit(), Vec::<String>::new());
    }
}

fn start(socket: &Path, durability: Durability) -> Fulgurite {
    let medium = Medium::device_pool(socket);
    let builder = Fulgurite::builder(medium).dram("8M").durability(durability);
    builder.with(|runtime| runtime.fibers(32)).start().unwrap()
}

/// A word of each subpage.
fn word(region: Region, subpage: u64) -> Ptr<u64> {
    Ptr::new(region.base.add(subpage * 4096 + 8))
}
fn is_no_room(error: &AccessError) -> bool {
    matches!(error, AccessError::PoolFull { uncommitted: Some(1..), .. })
}
/// A call on pages that there is no room for before the next sync.
fn is_refused(error: &Error) -> bool {
    match error {
        Error::Pool(PoolError::Flash(FlashError::NoSpace)) => true,
        Error::Access(error) => is_no_room(error),
        _ => false,
    }
}

/// Says that it is over, however it ends: the killer of the device ends then.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct World {
    fixture: DeviceFixture,
    server: Option<Server>,
    memory: Fulgurite,
    region: Region,
    /// By subpage, what was accepted.
    model: Vec<u64>,
    value: u64,
    what: String,
}

impl World {
    /// A device whose pages are written, but for `free_pages` of them.
    fn new(seed: u64, free_pages: u32, durability: Durability) -> World {
        let fixture = DeviceFixture::new();
        let server = Some(fixture.serve());
        let memory = start(&fixture.socket, durability);
        let region = memory.alloc(fixture.pages - free_pages, Permissions::DEFAULT).unwrap();
        let subpages = region.bytes / 4096;
        let what = format!("seed {seed}");
        // With syncs in between, as it may be more than there is room for.
        let mut at = 0;
        while at < subpages {
            let (done, told) = memory
                .run(move |m| {
                    for n in at..subpages {
                        if let Err(error) = m.store(word(region, n), 1) {
                            return Ok((n, Some(error)));
                        }
                    }
                    Ok((subpages, None))
                })
                .unwrap();
            if let Some(error) = told {
                assert!(done > at && is_no_room(&error), "{what}: subpage {done} of {subpages} after a sync: {error}");
            }
            memory.sync().unwrap_or_else(|e| panic!("{what}: {e} after {done} of {subpages} were written"));
            at = done;
        }
        World { fixture, server, memory, region, model: vec![1; subpages as usize], value: 1, what }
    }
    /// Jobs write at random until each was refused `until_told` times, or has written `most` words,
    /// while others read. Returns how often they were refused.
    fn write(&mut self, random: &mut Random, until_told: u64, most: u64) -> u64 {
        self.value += 1;
        let (region, subpages, value) = (self.region, self.model.len() as u64, self.value);
        let stop = Arc::new(AtomicBool::new(false));
        let writer = |of: u64, seed: u64| {
            let options = JobOptions::new().name("writer");
            let job = self.memory.runtime().submit_with(&options, move |m| -> Result<_, AccessError> {
                let (mut random, mut told, mut accepted) = (Random(seed), 0, Vec::new());
                for _ in 0..most {
                    // Each has its own.
                    let n = random.below(subpages / WRITERS) * WRITERS + of;
                    match m.store(word(region, n), value) {
                        Ok(()) => accepted.push(n),
                        Err(error) if is_no_room(&error) => told += 1,
                        Err(error) => return Err(error),
                    }
                    if told >= until_told {
                        break;
                    }
                    m.yield_now()?;
                }
                Ok((told, accepted))
            });
            job.unwrap()
        };
        let reader = |seed: u64, stop: Arc<AtomicBool>| {
            let job = self.memory.runtime().submit_with(&JobOptions::new().name("reader"), move |m| {
                let mut random = Random(seed);
                while !stop.load(Ordering::Relaxed) {
                    m.load(word(region, random.below(subpages)))?;
                    m.yield_now()?;
                }
                // All of it, of which most is not in DRAM, and what is there differs.
                (0..subpages).try_for_each(|n| m.load(word(region, n)).map(|_| ()))
            });
            job.unwrap()
        };
        let writers: Vec<_> = (0..WRITERS).map(|of| writer(of, random.next())).collect();
        let readers: Vec<_> = (0..2).map(|_| reader(random.next(), stop.clone())).collect();
        let mut all_told = 0;
        for job in writers {
            let (told, accepted) = job.wait().unwrap().unwrap_or_else(|e| panic!("{}: a writer: {e}", self.what));
            all_told += told;
            accepted.into_iter().for_each(|n| self.model[n as usize] = value);
        }
        stop.store(true, Ordering::Relaxed);
        for job in readers {
            job.wait().unwrap().unwrap_or_else(|e: AccessError| panic!("{}: a reader was told {e}", self.what));
        }
        all_told
    }
    fn sync(&self) {
        self.memory.sync().unwrap_or_else(|e| panic!("{}: a sync was told {e}", self.what));
    }
    /// Syncs where the device may die again and again: such a sync is made once more.
    fn sync_at_last(&self) {
        let died = |error: &Error| {
            let closed = VersionError::Flash(FlashError::Closed);
            matches!(error, Error::Sync(SyncError::Version(found)) if *found == closed)
        };
        while let Err(error) = self.memory.sync() {
            assert!(died(&error), "{}: a sync was told {error}", self.what);
        }
    }
    /// After a sync writers go on.
    fn goes_on(&mut self, random: &mut Random) {
        self.value += 1;
        let (region, value, n) = (self.region, self.value, random.below(self.model.len() as u64));
        self.memory
            .run(move |m| m.store(word(region, n), value))
            .unwrap_or_else(|e| panic!("{}: {e} after a sync", self.what));
        self.model[n as usize] = value;
    }
    fn check(&self) {
        let (region, subpages) = (self.region, self.model.len() as u64);
        let found =
            self.memory.run(move |m| (0..subpages).map(|n| m.load(word(region, n))).collect::<Result<Vec<_>, _>>());
        assert_eq!(found.unwrap(), self.model, "{}", self.what);
    }
    fn end(mut self) {
        self.check();
        drop(self.memory);
        self.memory = start(&self.fixture.socket, Durability::Sync);
        self.check();
        drop(self.memory);
        drop(self.server);
        self.fixture.audit();
    }
}

#[test]
fn only_writers_get_errors_and_a_sync_makes_room() {
    trials::each_seed(1, 2, |seed| {
        let (mut random, mut world) = (Random(seed), World::new(seed, 12, Durability::Sync));
        for round in 0..12 {
            let told = world.write(&mut random, 40, 5000);
            assert_eq!(told, 40 * WRITERS, "seed {seed}, round {round}: that is more than there is room for");
            world.sync();
            world.goes_on(&mut random);
            if round % 4 == 0 {
                world.check();
            }
        }
        world.end();
    });
}

/// Pages of one value each that are there in addition to the data.
#[derive(Default)]
struct ExtraPages {
    pages: BTreeMap<u64, (Region, u64, bool)>,
}

impl ExtraPages {
    /// One random change. Returns whether there was no room for it.
    fn change(&mut self, world: &World, random: &mut Random) -> bool {
        let (memory, what) = (&world.memory, &world.what);
        let which = self.pages.keys().nth(random.below(self.pages.len().max(1) as u64) as usize).copied();
        let done = match (random.below(4), which) {
            (0 | 1, _) | (_, None) => memory.alloc(1, Permissions::DEFAULT).map(|region| {
                self.pages.insert(region.base.linear(), (region, 0, false));
            }),
            (2, Some(which)) => {
                let (region, _, only_read) = self.pages[&which];
                let deleted = if only_read { memory.set_permissions(region, Permissions::DEFAULT) } else { Ok(()) };
                if deleted.is_ok() {
                    self.pages.insert(which, (region, self.pages[&which].1, false));
                }
                deleted.and_then(|()| memory.delete(region)).map(|()| _ = self.pages.remove(&which))
            }
            (_, Some(which)) => {
                let (region, value, only_read) = self.pages[&which];
                let next = if only_read { Permissions::DEFAULT } else { ONLY_READ };
                memory.set_permissions(region, next).map(|()| _ = self.pages.insert(which, (region, value, !only_read)))
            }
        };
        match done {
            Ok(()) => false,
            // There are no more pages.
            Err(Error::Root(_)) => false,
            Err(error) => {
                assert!(is_refused(&error), "{what}: {error:?}");
                true
            }
        }
    }
    /// Writes those that may be written. Returns whether a write was refused.
    fn write(&mut self, world: &World, random: &mut Random) -> bool {
        let mut told = false;
        for (region, value, only_read) in self.pages.values_mut() {
            let (at, next) = (word(*region, 0), random.next());
            match world.memory.run(move |m| m.store(at, next)) {
                Ok(()) => {
                    assert!(!*only_read);
                    *value = next;
                }
                Err(AccessError::NotPermitted { .. }) if *only_read => {}
                Err(error) => {
                    assert!(is_no_room(&error), "{}: {error}", world.what);
                    told = true;
                }
            }
        }
        told
    }
    fn check(&self, world: &World) {
        for (region, value, _) in self.pages.values() {
            let at = word(*region, 0);
            assert_eq!(world.memory.run(move |m| m.load(at)).unwrap(), *value, "{}", world.what);
        }
    }
}

#[test]
fn pages_that_come_and_go_leave_the_room_of_a_sync() {
    trials::each_seed(1, 2, |seed| {
        let (mut random, mut world) = (Random(seed), World::new(seed, 24, Durability::Sync));
        let (mut extra, mut told, mut refused) = (ExtraPages::default(), 0, 0);
        for round in 0..24 {
            let (until, most) = (1 + random.below(10), random.below(300));
            told += world.write(&mut random, until, most);
            for _ in 0..random.below(12) {
                refused += u64::from(extra.change(&world, &mut random));
                told += u64::from(extra.write(&world, &mut random));
            }
            extra.check(&world);
            if random.one_in(2) {
                world.sync();
                world.goes_on(&mut random);
            }
            if round % 8 == 0 {
                world.check();
            }
        }
        assert!(told > 0 && refused > 0, "seed {seed}: {told} writes and {refused} changes of pages were told");
        world.sync();
        extra.check(&world);
        world.end();
    });
}

#[test]
fn a_device_that_dies_and_returns_has_the_room_that_was_claimed() {
    trials::each_seed(1, 2, |seed| {
        let (mut random, mut world) = (Random(seed), World::new(seed, 12, Durability::Sync));
        let mut told = 0;
        for round in 0..10 {
            let dies = random.below(3);
            if dies == 0 {
                world.server = None;
                world.server = Some(world.fixture.serve());
            }
            let (until, most) = (1 + random.below(30), random.below(2000));
            told += world.write(&mut random, until, most);
            if dies == 1 {
                world.server = None;
                world.server = Some(world.fixture.serve());
                told += world.write(&mut random, 1, 100);
            }
            if random.one_in(3) {
                continue;
            }
            world.sync();
            world.goes_on(&mut random);
            if round % 4 == 0 {
                world.check();
            }
        }
        assert!(told > 0, "seed {seed}");
        world.sync();
        world.end();
    });
}

/// While jobs write, and while a sync is under way.
#[test]
fn a_device_that_dies_at_any_moment_has_it_too() {
    trials::each_seed(1, 2, |seed| {
        let (mut random, mut world) = (Random(seed), World::new(seed, 12, Durability::Sync));
        let stop = Arc::new(AtomicBool::new(false));
        let (mut server, deaths) = (world.server.take(), Arc::new(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            let (fixture, stopped, counted) = (world.fixture.clone(), stop.clone(), deaths.clone());
            let mut its = Random(seed ^ 0x55);
            let killer = scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(its.below(40_000)));
                    drop(server.take());
                    server = Some(fixture.serve());
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                server
            });
            let over = Over(stop);
            for _ in 0..8 {
                world.write(&mut random, 5, 2000);
                world.sync_at_last();
                world.goes_on(&mut random);
            }
            drop(over);
            world.server = killer.join().unwrap();
        });
        assert!(deaths.load(Ordering::Relaxed) > 0, "seed {seed}");
        world.sync();
        world.end();
    });
}

#[test]
fn where_a_thread_syncs_writers_wait_for_it() {
    trials::each_seed(1, 2, |seed| {
        let never = Durability::Lazy { every: Duration::from_secs(3600), bytes: u64::MAX };
        let (mut random, mut world) = (Random(seed), World::new(seed, 12, never));
        let told = world.write(&mut random, 1, 1500);
        assert_eq!(told, 0, "seed {seed}: somebody was told");
        world.end();
    });
}
