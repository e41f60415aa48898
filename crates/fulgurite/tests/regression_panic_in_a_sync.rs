//! Goal: a medium that panics while a state is named or made durable does not leave the memory
//! waiting: jobs go on, and the next sync and roll back do what they say. (What a panic in a roll
//! back leaves is in `fault_roll_back.rs`.) Method: a pool in a wrapping that panics once, before
//! it passes the call on; each call in turn. After the panic jobs write many times what the frames
//! hold, so that frames must be written back; then everything is synced, changed and rolled back.
//! (A panic while a state was named once kept frames from being written back, until the next sync.)

use crate::guarded;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::{
    AccessError, Memory,
    media::{MemoryFlash, VersionError},
    runtime::Runtime,
};
use fulgurite_flash::{
    Backing, DeviceCounters, Flash, FlashError, FrameContract, Objects, OpenError, Queue, QueueUser, Traits, Versions,
};
use fulgurite_format::{PoolId, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Notifier};
use guarded::{with_frames, within, word};

const PAGES: u64 = 96;
const FRAMES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Name,
    Wait,
}

struct Panics {
    inner: Arc<dyn Flash>,
    at: Call,
    armed: AtomicBool,
}

impl Panics {
    fn pass(&self, call: Call) -> &dyn Versions {
        assert!(
            call != self.at || !self.armed.swap(false, Ordering::Relaxed),
            "the medium panics as it was planned to"
        );
        self.inner.versions().unwrap()
    }
}

impl Versions for Panics {
    fn name_state(&self) -> Result<u64, VersionError> {
        self.pass(Call::Name).name_state()
    }
    fn wait_durable(&self, token: u64) -> Result<(), VersionError> {
        self.pass(Call::Wait).wait_durable(token)
    }
    fn can_roll_back(&self, token: u64) -> Result<(), VersionError> {
        self.inner.versions().unwrap().can_roll_back(token)
    }
    fn roll_back(&self, token: u64) -> Result<(), VersionError> {
        self.inner.versions().unwrap().roll_back(token)
    }
    fn tokens(&self) -> Vec<u64> {
        self.inner.versions().unwrap().tokens()
    }
    fn uncommitted(&self) -> Option<u64> {
        self.inner.versions().unwrap().uncommitted()
    }
    fn sync_begins(&self) {
        self.inner.versions().unwrap().sync_begins();
    }
    fn sync_ended(&self, made: bool) {
        self.inner.versions().unwrap().sync_ended(made);
    }
    fn counting_begins(&self) {
        self.inner.versions().unwrap().counting_begins();
    }
    fn counted(&self, frames: u64) {
        self.inner.versions().unwrap().counted(frames);
    }
}

// SAFETY: the queues are the inner medium's, which keeps the contract itself.
unsafe impl FrameContract for Panics {}

impl Backing for Panics {
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

impl Flash for Panics {
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

/// On two workers side by side.
fn store_all(runtime: &Runtime, value: u64) {
    let job = |first: u64| {
        runtime.submit(move |c| (first..PAGES).step_by(2).try_for_each(|page| c.store(word(page, 0), value))).unwrap()
    };
    [job(0), job(1)].into_iter().for_each(|job| job.wait().unwrap().unwrap());
}
fn all(runtime: &Runtime) -> Vec<u64> {
    runtime.run(|c| (0..PAGES).map(|page| c.load(word(page, 0))).collect::<Result<Vec<_>, AccessError>>()).unwrap()
}

fn panics_once(at: Call) {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(medium.subpages(), 16, Some(1024)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let pool = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
    let layer = pool.layer().clone();
    // Every change asks for its place, so that a sync that forgets to give one back is noticed.
    layer.leave_for_sync(2 * FRAMES);
    let flash = Arc::new(Panics { inner: Arc::new(pool), at, armed: AtomicBool::new(false) });
    let runtime = with_frames(Runtime::builder(flash.clone()).fibers(8), 2, FRAMES);
    store_all(&runtime, 1);
    runtime.sync().unwrap();
    store_all(&runtime, 2);
    flash.armed.store(true, Ordering::Relaxed);
    let died = catch_unwind(AssertUnwindSafe(|| runtime.sync()));
    assert!(died.is_err(), "{at:?} did not panic: {died:?}");
    for round in 3..6 {
        store_all(&runtime, round);
        assert_eq!(all(&runtime), [round; PAGES as usize], "{at:?}");
        let token = runtime.sync().unwrap().token;
        store_all(&runtime, 100);
        runtime.roll_back(token).unwrap();
        assert_eq!(all(&runtime), [round; PAGES as usize], "{at:?}");
    }
    drop(runtime);
    assert_eq!(layer.audit(), Vec::<String>::new(), "{at:?}");
}

#[test]
fn regression_a_panic_while_a_state_is_named() {
    within(120, "after a panic", || panics_once(Call::Name));
}
#[test]
fn regression_a_panic_while_a_state_is_made_durable() {
    within(120, "after a panic", || panics_once(Call::Wait));
}
