//! Goal: a roll back that is refused changes nothing, whenever that turns out. A roll back that
//! fails half way leaves a memory of which nothing is read or synced any more, and a medium with
//! one of the two states, whole. Never does live memory, or a token made afterwards, show half a
//! write section. Method: the store's versions behind a wrapping that calls the test before and
//! behind each question: there the token is dropped, a newer one pinned, the medium broken, or a
//! panic thrown. Memory has few frames, so that some of each section is on flash and some in DRAM.
//! All of it is compared afterwards, live, and after opening the medium once more.

use crate::guarded;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{
    AccessError, Context, Durability, Fulgurite, JobOptions, Medium, Memory, SyncError,
    media::{MemoryFlash, VersionError},
    pool::Permissions,
    runtime::{Durable, Runtime},
};
use fulgurite_flash::{
    Backing, DeviceCounters, Fault, FaultPlan, FaultyFlash, Flash, FlashError, FrameContract, Objects, Op, OpenError,
    Queue, QueueUser, Traits, Versions, When,
};
use fulgurite_format::{PoolId, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Notifier};
use guarded::{with_frames, within, word};

const PAGES: u64 = 64;
/// For each of two workers: half of the pages are on flash.
const FRAMES: u64 = 16;

/// Where the test is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// It was asked whether a roll back may be made, and said yes.
    Asked,
    /// The roll back is about to be made.
    Before,
    /// It has been.
    After,
}

type Hook = Box<dyn FnMut(Point) + Send>;

/// Versions that call the test.
struct Hooked {
    inner: Arc<dyn Flash>,
    hook: Mutex<Option<Hook>>,
}

impl Hooked {
    fn of(&self) -> &dyn Versions {
        self.inner.versions().unwrap()
    }
    fn reach(&self, point: Point) {
        // Not under the lock: a hook may panic.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(point);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
    }
    fn calls(&self, hook: impl FnMut(Point) + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl Versions for Hooked {
    fn name_state(&self) -> Result<u64, VersionError> {
        self.of().name_state()
    }
    fn wait_durable(&self, token: u64) -> Result<(), VersionError> {
        self.of().wait_durable(token)
    }
    fn can_roll_back(&self, token: u64) -> Result<(), VersionError> {
        self.of().can_roll_back(token).inspect(|()| self.reach(Point::Asked))
    }
    fn roll_back(&self, token: u64) -> Result<(), VersionError> {
        self.reach(Point::Before);
        self.of().roll_back(token).inspect(|()| self.reach(Point::After))
    }
    fn tokens(&self) -> Vec<u64> {
        self.of().tokens()
    }
    fn uncommitted(&self) -> Option<u64> {
        self.of().uncommitted()
    }
    fn sync_begins(&self) {
        self.of().sync_begins();
    }
    fn sync_ended(&self, made: bool) {
        self.of().sync_ended(made);
    }
    fn counting_begins(&self) {
        self.of().counting_begins();
    }
    fn counted(&self, frames: u64) {
        self.of().counted(frames);
    }
}

// SAFETY: the queues are the inner medium's, which keeps the contract itself.
unsafe impl FrameContract for Hooked {}

impl Backing for Hooked {
    fn may(&self, subpage: u32, write: bool) -> bool {
        self.inner.backing().unwrap().may(subpage, write)
    }
    fn asks(&self) -> bool {
        self.inner.backing().unwrap().asks()
    }
    fn begin_change(&self, subpage: u32, for_sync: bool) -> Result<(), FlashError> {
        self.inner.backing().unwrap().begin_change(subpage, for_sync)
    }
    fn waits_for_room(&self) -> bool {
        self.inner.backing().unwrap().waits_for_room()
    }
    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
    fn objects(&self) -> Option<&dyn Objects> {
        self.inner.backing().unwrap().objects()
    }
}

impl Flash for Hooked {
    fn subpages(&self) -> u32 {
        self.inner.subpages()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn traits(&self) -> Traits {
        self.inner.traits()
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(
        &self,
        user: QueueUser,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<Box<dyn Queue>, OpenError> {
        self.inner.open_queue_for(user, frames, depth, wake)
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        self.inner.trim(first, count)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

/// A memory over a pool that can be broken.
struct World {
    medium: Arc<FaultyFlash<MemoryFlash>>,
    flash: Arc<Hooked>,
    pool: Arc<Pool>,
    runtime: Runtime,
}

fn opened(medium: Arc<dyn Flash>, existing: bool) -> (Arc<Hooked>, Arc<Pool>, Runtime) {
    let mut config = StoreConfig::default();
    config.keep_tokens = 8;
    let pool = Pool::open(medium, config).unwrap().0.into_flash();
    let layer = pool.layer().clone();
    let flash = Arc::new(Hooked { inner: Arc::new(pool), hook: Mutex::default() });
    let bytes = if existing { u64::from(flash.subpages()) * 4096 } else { 0 };
    let builder = Runtime::builder(flash.clone()).existing(bytes).fibers(8).device_timeout(Duration::from_secs(5));
    (flash, layer, with_frames(builder, 2, FRAMES))
}

impl World {
    fn new() -> World {
        let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(4096).unwrap(), FaultPlan::default()));
        let geometry = Geometry::new(4096, 16, Some(1024)).unwrap();
        let shared: Arc<dyn Flash> = medium.clone();
        Pool::format(&shared, geometry, PoolId([9; 16]), 0).unwrap();
        let (flash, pool, runtime) = opened(shared, false);
        World { medium, flash, pool, runtime }
    }
    /// Stores a value to all pages in one section.
    fn store_all(&self, value: u64) {
        self.runtime.run(move |m| section(m, value)).unwrap();
    }
    fn sync(&self) -> u64 {
        self.runtime.sync().unwrap().token
    }
    /// The value of all pages.
    fn value(&self) -> u64 {
        let all = self.runtime.run(|m| (0..PAGES).map(|n| m.load(word(n, 0))).collect::<Result<Vec<_>, _>>()).unwrap();
        assert_eq!(all, [all[0]; PAGES as usize], "a section is torn");
        all[0]
    }
    /// The memory goes on, and what it has is what it names.
    fn goes_on(self, expected: u64) {
        assert_eq!(self.value(), expected);
        self.sync();
        assert_eq!(self.reopened(), expected);
    }
    /// Nothing of the memory may be used.
    fn assert_poisoned(&self) {
        let poisoned = |result: Result<(), SyncError>| matches!(result, Err(SyncError::Poisoned { .. }));
        for page in 0..PAGES {
            let (read, written) = (
                self.runtime.run(move |m| m.load(word(page, 0))),
                self.runtime.run(move |m| m.store(word(page, 0), 9)),
            );
            assert_eq!(
                (read, written),
                (Err(AccessError::MemoryPoisoned), Err(AccessError::MemoryPoisoned)),
                "page {page}"
            );
        }
        assert!(poisoned(self.runtime.sync().map(drop)) && poisoned(self.runtime.hold_state().map(drop)));
        self.runtime.tokens().into_iter().for_each(|token| assert!(poisoned(self.runtime.roll_back(token))));
    }
    /// The value after it was opened anew.
    fn reopened(self) -> u64 {
        let World { medium, flash, pool, runtime } = self;
        drop((runtime, flash, pool));
        // As a new process does: that a flush has failed is not known to it.
        let storage = MemoryFlash::over(medium.inner().storage().clone(), medium.subpages()).unwrap();
        let medium = Arc::new(FaultyFlash::new(storage, FaultPlan::default()));
        let shared: Arc<dyn Flash> = medium.clone();
        let (flash, pool, runtime) = opened(shared, true);
        World { medium, flash, pool, runtime }.value()
    }
}

fn section(m: &mut Context, value: u64) -> Result<(), AccessError> {
    let _section = m.write_section()?;
    (0..PAGES).try_for_each(|n| m.store(word(n, 0), value))
}

/// What makes a roll back to the older of two tokens impossible.
fn spoils(pool: &Pool, pins: bool, newer: u64) {
    if pins {
        pool.pin(newer, true).unwrap();
    } else {
        assert!(pool.drop_tokens(1).unwrap() > 0);
    }
}

/// Goes back to 1 when 2 has a name and 3 has none.
fn refused_at(point: Point, nth: u32, pins: bool) {
    let world = World::new();
    world.store_all(1);
    let token = world.sync();
    world.store_all(2);
    let newer = world.sync();
    world.store_all(3);
    let (pool, mut seen) = (world.pool.clone(), 0);
    world.flash.calls(move |at| {
        seen += u32::from(at == point);
        if at == point && seen == nth {
            spoils(&pool, pins, newer);
        }
    });
    let refused = world.runtime.roll_back(token);
    match refused {
        Err(SyncError::Version(VersionError::Pinned { pinned, .. })) if pins => assert_eq!(pinned, newer),
        Err(SyncError::Version(VersionError::NoToken { kept, .. })) if !pins => assert_eq!(kept, [newer]),
        other => panic!("{point:?} {nth}: {other:?}"),
    }
    world.goes_on(3);
}

#[test]
fn regression_a_roll_back_that_is_refused_late_changes_nothing() {
    within(120, "refused roll backs", || {
        for pins in [false, true] {
            refused_at(Point::Asked, 1, pins);
            refused_at(Point::Asked, 2, pins);
            refused_at(Point::Before, 1, pins);
        }
    });
}

/// A section that goes on while a roll back waits for it costs the token its place, as the pool
/// keeps tokens only as long as space is free.
#[test]
fn regression_a_section_that_costs_the_token_is_not_torn() {
    within(120, "a section that costs the token", || {
        let world = World::new();
        world.store_all(1);
        let token = world.sync();
        world.store_all(2);
        world.sync();
        let (asked, pool) = (Arc::new(AtomicBool::new(false)), world.pool.clone());
        let (has_asked, begun) = (asked.clone(), Arc::new(AtomicBool::new(false)));
        world.flash.calls(move |at| has_asked.store(at == Point::Asked, Ordering::SeqCst));
        let is_open = begun.clone();
        let writer = world
            .runtime
            .submit(move |m| -> Result<(), AccessError> {
                let _section = m.write_section()?;
                for n in 0..PAGES / 2 {
                    m.store(word(n, 0), 3)?;
                }
                is_open.store(true, Ordering::SeqCst);
                while !asked.load(Ordering::SeqCst) {
                    m.yield_now()?;
                }
                // What a write does to whose place the pool has to drop a token.
                assert!(pool.drop_tokens(1).unwrap() > 0);
                (PAGES / 2..PAGES).try_for_each(|n| m.store(word(n, 0), 3))
            })
            .unwrap();
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let refused = world.runtime.roll_back(token);
        assert!(matches!(refused, Err(SyncError::Version(VersionError::NoToken { .. }))), "{refused:?}");
        writer.wait().unwrap().unwrap();
        world.goes_on(3);
    });
}

/// The medium breaks at a point of a roll back from 3 to 1, 2 being the newest token.
fn breaks(at: Point, plan: FaultPlan) -> World {
    let world = World::new();
    world.store_all(1);
    let token = world.sync();
    world.store_all(2);
    world.sync();
    world.store_all(3);
    let medium = world.medium.clone();
    world.flash.calls(move |point| {
        if point == at {
            medium.set_plan(plan.clone());
        }
    });
    let rolled_back = world.runtime.roll_back(token);
    world.medium.set_plan(FaultPlan::default());
    match rolled_back {
        Ok(()) => assert_eq!(world.value(), 1),
        Err(SyncError::Poisoned { .. }) => world.assert_poisoned(),
        Err(error) => {
            println!("{at:?}: {error}");
            assert_eq!(world.value(), 3);
        }
    }
    world
}

#[test]
fn a_roll_back_whose_medium_fails_poisons_the_memory_and_leaves_a_whole_state() {
    within(300, "a failing medium", || {
        let mut poisoned = 0;
        for error in [5, 28] {
            for op in [None, Some(Op::Write), Some(Op::Flush), Some(Op::Read)] {
                for when in [When::From(1), When::From(2), When::Nth(1), When::Nth(2)] {
                    for point in [Point::Asked, Point::Before, Point::After] {
                        let world = breaks(point, FaultPlan::rule(op, when, Fault::Fails(FlashError::Io(error))));
                        let is_poisoned = matches!(world.runtime.sync(), Err(SyncError::Poisoned { .. }));
                        poisoned += u32::from(is_poisoned);
                        let found = world.reopened();
                        let all = if is_poisoned { [1, 2, 2] } else { [1, 2, 3] };
                        assert!(all.contains(&found), "{found} at {point:?}, {op:?} {when:?}");
                    }
                }
            }
        }
        assert!(poisoned > 10, "{poisoned}");
    });
}

/// After a sync has failed, a roll back is made, is refused, or fails: the memory is whole or
/// poisoned, and so is the medium.
#[test]
fn regression_a_roll_back_after_a_sync_that_failed() {
    within(300, "a failed sync", || {
        let (mut failed, mut refused) = (0, 0);
        for error in [5, 28] {
            for (op, nth) in [Op::Write, Op::Flush].into_iter().flat_map(|op| (1..24).step_by(3).map(move |n| (op, n)))
            {
                for heals in [false, true] {
                    let world = World::new();
                    world.store_all(1);
                    let token = world.sync();
                    world.store_all(2);
                    let rule = FaultPlan::rule(Some(op), When::From(nth), Fault::Fails(FlashError::Io(error)));
                    world.medium.set_plan(rule);
                    if world.runtime.sync().is_ok() {
                        continue;
                    }
                    failed += 1;
                    if heals {
                        world.medium.set_plan(FaultPlan::default());
                    }
                    let all = match world.runtime.roll_back(token) {
                        Ok(()) => {
                            assert_eq!(world.value(), 1);
                            vec![1]
                        }
                        Err(SyncError::Poisoned { .. }) => {
                            world.assert_poisoned();
                            vec![1, 2]
                        }
                        Err(_) => {
                            refused += 1;
                            // What is on flash cannot be read where the medium fails that, too: it
                            // does not.
                            assert_eq!(world.value(), 2, "{op:?} {nth} {heals}");
                            vec![1, 2]
                        }
                    };
                    let found = world.reopened();
                    assert!(all.contains(&found), "{found} of {all:?}: {op:?} {nth} {heals}");
                }
            }
        }
        assert!(failed > 10 && refused > 0, "{failed} failed, {refused} refused");
    });
}

/// State in DRAM that cannot be taken up again.
struct Part {
    panics: bool,
    reads: AtomicU64,
}

impl Durable for Part {
    fn save(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
    fn reload(&self, context: &mut Context) -> Result<(), AccessError> {
        // Jobs go on meanwhile, and pin what they read.
        context.sleep(Duration::from_millis(20))?;
        self.reads.store(context.load(word(0, 0))?, Ordering::SeqCst);
        assert!(!self.panics, "the part panics as it was planned to");
        Err(AccessError::Corrupt { what: "part", at: word(0, 0).address(), expected: 1, got: 0 })
    }
}

#[test]
fn a_part_that_cannot_be_reloaded_poisons_the_memory_also_where_jobs_hold_pins_of_it() {
    within(120, "a part that is not reloaded", || {
        for panics in [false, true] {
            let world = World::new();
            let part = Arc::new(Part { panics, reads: AtomicU64::new(0) });
            world.runtime.keep(part.clone());
            world.store_all(1);
            let token = world.sync();
            world.store_all(2);
            let (went_back, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let has = went_back.clone();
            world.flash.calls(move |at| has.store(at == Point::After, Ordering::SeqCst));
            let end = ends.clone();
            let job = world.runtime.submit_with(&JobOptions::new().pins(1), move |m| -> Result<u64, AccessError> {
                while !went_back.load(Ordering::SeqCst) {
                    m.yield_now()?;
                }
                let pin = m.pin(word(5, 0).address())?;
                while !end.load(Ordering::SeqCst) {
                    m.sleep(Duration::from_millis(1))?;
                }
                drop(pin);
                m.load(word(5, 0))
            });
            let failed = world.runtime.roll_back(token);
            assert!(matches!(failed, Err(SyncError::Poisoned { .. })), "{failed:?}");
            assert_eq!(part.reads.load(Ordering::SeqCst), 1, "the part finds the state that was gone back to");
            world.assert_poisoned();
            ends.store(true, Ordering::SeqCst);
            assert_eq!(job.unwrap().wait().unwrap(), Err(AccessError::MemoryPoisoned));
            world.assert_poisoned();
            assert_eq!(world.reopened(), 1);
        }
    });
}

#[test]
fn a_panic_of_the_medium_in_a_roll_back_poisons_the_memory() {
    within(120, "a panic in a roll back", || {
        for point in [Point::Before, Point::After] {
            let world = World::new();
            world.store_all(1);
            let token = world.sync();
            world.store_all(2);
            world.flash.calls(move |at| assert!(at != point, "the medium panics as it was planned to"));
            assert!(catch_unwind(AssertUnwindSafe(|| world.runtime.roll_back(token))).is_err());
            world.assert_poisoned();
            // Only what has a name is found again, and 2 has none.
            assert_eq!(world.reopened(), 1);
        }
    });
}

/// What holds a state and changes it needs no fiber of the jobs, which may wait for its end. (They
/// once did, and a roll back waited for a sync that gave memory back just then.)
#[test]
fn regression_changes_of_a_held_state_end_while_jobs_hold_all_fibers() {
    within(120, "changes while jobs wait for them", || {
        let directory = tempfile::tempdir().unwrap();
        let medium = Medium::new_pool(directory.path().join("pool"), 16_u64 << 20);
        let builder = Fulgurite::builder(medium).dram("4M").durability(Durability::Sync);
        let memory = builder.with(|runtime| runtime.fibers(1)).start().unwrap();
        let blobs = memory.named("blobs").blobs::<u64>(2_000, "4M").unwrap();
        memory.named("leaves").hash_map::<u64, u64>(1_000).unwrap();
        memory.run(|m| (0..2_000).try_for_each(|key| blobs.put(m, &key, &[7; 900]).map(drop))).unwrap();
        memory.sync().unwrap();
        memory.run(|m| (0..2_000).try_for_each(|key| blobs.remove(m, &key).map(drop))).unwrap();
        assert!(blobs.heap().look_for_freed());
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = ended.clone();
        let waits = memory.submit(move |m| -> Result<(), AccessError> {
            while !has_ended.load(Ordering::SeqCst) {
                m.sleep(Duration::from_millis(1))?;
            }
            Ok(())
        });
        let region = memory.alloc(2, Permissions::DEFAULT).unwrap();
        for write in [false, true] {
            memory.set_permissions(region, Permissions { write, ..Permissions::DEFAULT }).unwrap();
        }
        memory.delete(region).unwrap();
        memory.named("leaves").remove().unwrap();
        // Gives back what the values have left.
        memory.sync().unwrap();
        assert!(!blobs.heap().look_for_freed());
        ended.store(true, Ordering::SeqCst);
        assert_eq!(waits.unwrap().wait().unwrap(), Ok(()));
    });
}

/// All that a roll back changes in memory is changed by jobs of the runtime's own. (The addresses
/// of temporary pages were once given back by one that waited for a fiber.)
#[test]
fn regression_a_roll_back_ends_while_jobs_hold_all_fibers() {
    within(120, "a roll back while jobs wait for it", || {
        let directory = tempfile::tempdir().unwrap();
        let medium = Medium::new_pool(directory.path().join("pool"), 16_u64 << 20);
        let builder = Fulgurite::builder(medium).dram("4M").with(|runtime| runtime.fibers(1));
        let memory = builder.start().unwrap();
        let value = memory.named("value").value(1u64).unwrap();
        let token = memory.sync().unwrap();
        memory.run(move |m| m.store(value, 2)).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = ended.clone();
        let waits = memory.submit(move |m| -> Result<u64, AccessError> {
            while !has_ended.load(Ordering::SeqCst) {
                m.sleep(Duration::from_millis(1))?;
            }
            m.load(value)
        });
        memory.roll_back(token).unwrap();
        ended.store(true, Ordering::SeqCst);
        assert_eq!(waits.unwrap().wait().unwrap(), Ok(1));
    });
}
