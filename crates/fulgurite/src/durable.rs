//! What outlives the process: tokens, sync and roll back, and the thread that syncs by itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fulgurite_flash::FlashError;
use fulgurite_format::{SUBPAGE_BYTES, Size};
use fulgurite_runtime::{Runtime, SyncError, Synced};

use crate::containers::Directory;
use crate::durability::Durability;
use crate::give_back::{Limit, give_back};
use crate::growth::Growth;
use crate::leaving;
use crate::registry::Registry;
use crate::store::Store;
use crate::{Error, Fulgurite, Reader, Transactions};

/// How often the thread that syncs checks how much is uncommitted, at most.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Counting what differs in DRAM examines the marks of all frames. The pause after it is this many
/// times as long as it took.
const COUNT_PAUSE: u32 = 100;

/// How long the next sync waits after one that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The least time between two of these checks, however often is to be synced.
const CHECK_LEAST: Duration = Duration::from_millis(1);

/// The time between two checks where writers that wait wake the thread.
const CHECK_WHEN_WOKEN: Duration = Duration::from_secs(1);

/// The time for the search for empty pages between two syncs of the thread: a fourth of their
/// distance within these bounds. Then the same in a sync of a program without such a thread.
const GIVE_BACK_MOST: Duration = Duration::from_secs(1);
const GIVE_BACK_LEAST: Duration = Duration::from_millis(2);
const GIVE_BACK_IN_SYNC: Duration = Duration::from_millis(100);

/// After this number of searches in a row that ended for a sync of the program, one goes on in any
/// case: at first for the least time, then for twice as long each time.
const CUT_SHORT_MOST: u32 = 16;

/// How long a search goes on in any case, after `cut_short` that ended early.
fn least_after(cut_short: u32) -> Duration {
    match cut_short / CUT_SHORT_MOST {
        0 => Duration::ZERO,
        _ if !cut_short.is_multiple_of(CUT_SHORT_MOST) => Duration::ZERO,
        times => GIVE_BACK_LEAST.saturating_mul(1 << (times - 1).min(16)).min(GIVE_BACK_MOST),
    }
}

/// A pool, and what of it is in DRAM.
pub(crate) struct Kept {
    pub pool: Store,
    pub named: Arc<Registry>,
    /// Of a pool in this process.
    pub growth: Option<Growth>,
    durability: Durability,
}

impl Kept {
    /// Whether states are named without the program.
    pub fn syncs_by_itself(&self) -> bool {
        matches!(self.durability, Durability::Lazy { .. })
    }
}

impl Fulgurite {
    pub(crate) fn over(
        runtime: Arc<Runtime>,
        pool: Option<Store>,
        growth: Option<Growth>,
        durability: Durability,
        dram_bytes: u64,
    ) -> Result<Fulgurite, Error> {
        let transactions = Arc::new(Transactions::new());
        let Some(pool) = pool else { return Ok(Fulgurite { syncer: None, runtime, pool: None, transactions }) };
        // The directory hands addresses out from now on, and nobody else.
        let all = crate::registry::take_all(&runtime)?;
        let directory = runtime.run(move |m| Ok(Directory::open(m, all)))??;
        let named = Arc::new(Registry::new(directory));
        runtime.keep(named.clone());
        runtime.keep(transactions.clone());
        runtime.keep(Arc::new(crate::pages::Temporary::new(pool.clone(), named.clone())));
        let (opened, registry) = (pool.clone(), named.clone());
        runtime.run(move |m| crate::pages::give_temporary_back(m, &opened, &registry))?;
        if durability != Durability::Cache && pool.leave_for_sync(runtime.changes_max()) {
            runtime.count_changes();
        }
        let grows = growth.clone().filter(Growth::is_on);
        let syncs = match durability {
            Durability::Lazy { every, bytes } => {
                // At most all of the DRAM is dirty, and is written by a sync.
                let bytes = bytes.min(pool.unnamed_bytes_max());
                Some(Limits { every, bytes, dram: dram_bytes / SUBPAGE_BYTES as u64 })
            }
            Durability::Sync | Durability::Cache => None,
        };
        let syncer = match syncs.is_some() || grows.is_some() {
            true => Some(Syncer::start(runtime.clone(), pool.clone(), named.clone(), syncs, grows)?),
            false => None,
        };
        Ok(Fulgurite { syncer, runtime, pool: Some(Kept { pool, named, growth, durability }), transactions })
    }

    pub(crate) fn kept(&self, what: &'static str) -> Result<&Kept, Error> {
        self.runtime.check_process()?;
        self.pool.as_ref().ok_or(Error::NoPool { what })
    }

    /// Names the state of everything between two write sections, and returns its token when it is
    /// durable. Changes that belong together go in one `Context::write_section`. Each operation of
    /// a container is one by itself. From any thread that is not a worker.
    ///
    /// # Errors
    /// [`Error::NoPool`], [`Error::OnlyCache`]. [`Error::Sync`] when the medium fails, after which
    /// the pool takes no more changes. A retry can succeed after [`SyncError::NoSpace`], when a
    /// write section did not end, or when state in DRAM could not be saved.
    pub fn sync(&self) -> Result<u64, Error> {
        Ok(self.sync_report()?.token)
    }

    /// Makes a sync, and returns what it took: how long the gate was closed ([`Synced::gate`]), the
    /// wait for open sections ([`Synced::drain`]), and the subpages written.
    ///
    /// # Errors
    /// As [`Fulgurite::sync`].
    pub fn sync_report(&self) -> Result<Synced, Error> {
        let kept = self.kept("sync")?;
        if kept.durability == Durability::Cache {
            return Err(Error::OnlyCache);
        }
        if let Some(failed) = self.syncer.as_ref().and_then(Syncer::failed) {
            return Err(failed.into());
        }
        if !kept.syncs_by_itself() {
            // What cannot be given back stays free memory, and the sync says what is wrong.
            let _ = give_back(&self.runtime, &kept.pool, &kept.named, &Limit::of(GIVE_BACK_IN_SYNC));
        }
        let _waits = self.syncer.as_ref().map(Syncer::begin_sync);
        kept.pool.tick();
        let synced = match self.runtime.sync() {
            Err(error) if kept.pool.may_sync_again(&error) => self.runtime.sync()?,
            synced => synced?,
        };
        if !kept.syncs_by_itself() {
            // Now there is room. What fails goes on after the next sync, which names this.
            let _ = leaving::go_on(&self.runtime, &kept.pool, &kept.named);
        }
        Ok(synced)
    }

    /// Makes the state of a token the current state again, in DRAM and in the pool. Newer tokens
    /// are gone. Handles of containers of that state stay usable. Other handles return
    /// [`crate::AccessError::Poisoned`], as handles of damaged containers do
    /// ([`Fulgurite::damaged`]).
    ///
    /// Jobs go on before this returns, and changes wait. Until then, a read of an array, or of a
    /// container of an earlier process that the state does not have, may find what the state has
    /// at its addresses: zeros, or other data.
    ///
    /// # Errors
    /// [`Error::NoPool`]. [`Error::Pool`] when there is no such token, or a newer one is pinned or
    /// being read: nothing changed. [`Error::Sync`]: after [`SyncError::Poisoned`] the memory must
    /// be opened again, and after others nothing changed.
    pub fn roll_back(&self, token: u64) -> Result<(), Error> {
        self.kept("roll_back")?;
        self.runtime.roll_back(token).map_err(|error| match error {
            SyncError::Version(refusal) if refusal.is_refusal() => Error::Pool(crate::store::of_device(refusal)),
            error => error.into(),
        })?;
        Ok(())
    }

    /// The tokens that are kept, oldest first.
    ///
    /// # Errors
    /// [`Error::NoPool`]; [`Error::Pool`] when a device that has them does not say.
    pub fn tokens(&self) -> Result<Vec<u64>, Error> {
        Ok(self.kept("tokens")?.pool.tokens()?)
    }

    /// Keeps a token whatever comes, or no more.
    ///
    /// # Errors
    /// [`Error::NoPool`]. [`Error::Pool`] when there is no such token, or the medium fails.
    /// [`Error::Sync`] when it fails while a sync is waited for.
    pub fn pin_token(&self, token: u64, pinned: bool) -> Result<(), Error> {
        // Not between the question whether a roll back may be made and its end.
        let _held = self.runtime.hold_state()?;
        Ok(self.kept("pin_token")?.pool.pin(token, pinned)?)
    }

    /// Opens the state of a token for reading while the live one goes on, with a DRAM budget of its
    /// own. The token stays while the reader lives. When the process dies, it is kept as before. A
    /// device serves one reader after the other. If only the device dies and returns without the
    /// token, the reader's accesses fail.
    ///
    /// # Errors
    /// [`Error::NoPool`]. [`Error::Pool`] when there is no such token. [`Error::Sync`] when the
    /// medium fails while a sync is waited for. [`Error::Build`] when the budget is too small.
    pub fn open_token(&self, token: u64, dram: impl Into<Size>) -> Result<Reader, Error> {
        let dram_bytes = dram.into().bytes()?;
        let kept = self.kept("open_token")?;
        let view = {
            // Not between the question whether a roll back may be made and its end.
            let _held = self.runtime.hold_state()?;
            kept.pool.view(token)?
        };
        Reader::open(view, token, dram_bytes)
    }

    /// Bytes of the pool's flash, of which reclaim and metadata need a part.
    ///
    /// # Errors
    /// [`Error::NoPool`]. [`Error::NotHonoured`] over a device, whose store has a size of its own.
    pub fn size(&self) -> Result<u64, Error> {
        Ok(self.growth("size")?.bytes())
    }

    /// Makes the pool `size` bytes large while it is in use, rounded down to whole extents. Of
    /// several files each gets about as much, and may get an extent more than the pool uses. There
    /// is more room for data then, up to the addresses that the pool has
    /// ([`Builder::growing`](crate::Builder::growing)), and for what tokens and unsynced changes
    /// keep. A kill leaves the old size or the new one.
    ///
    /// ```
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("sessions.pool");
    /// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
    /// memory.set_size("32M")?;
    /// assert_eq!(memory.size()?, 32 << 20);
    /// assert!(memory.set_size("16M").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoPool`], [`Error::Unit`]. [`Error::NotHonoured`] over a device. [`Error::Open`]
    /// for a full disk, or a block device that has less: make it larger first, which may be while
    /// the pool is open. [`Error::Members`] when several files cannot note what they have.
    /// [`Error::Pool`] when the pool is larger, its superblock cannot be written, or no pool has
    /// that size: 16 TiB, or 8 TiB with objects. Also where the DRAM budget, as it was divided at
    /// the start, is not enough for the places of objects in a pool of that size.
    pub fn set_size(&self, size: impl Into<Size>) -> Result<(), Error> {
        let bytes = size.into().bytes()?;
        self.growth("set_size")?.set_bytes(bytes)
    }

    fn growth(&self, what: &'static str) -> Result<&Growth, Error> {
        self.kept(what)?.growth.as_ref().ok_or(Error::NotHonoured {
            setting: what,
            medium: "Medium::device_pool",
            remedy: "the device has a size of its own; make that larger",
        })
    }
}

/// The thread that syncs by itself, and grows the pool. Dropping it stops it, after a last sync.
pub(crate) struct Syncer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<SyncError>>>,
    program_syncs: Arc<ProgramSyncs>,
}

/// Syncs of the program, as the thread knows of them.
#[derive(Default)]
struct ProgramSyncs {
    /// How many are under way.
    begun: AtomicUsize,
    /// One has ended: there may be pages to be given back.
    ended: AtomicBool,
}

/// A sync of the program, until it is dropped.
struct ProgramSync<'s>(&'s Syncer);

impl Drop for ProgramSync<'_> {
    fn drop(&mut self) {
        let program_syncs = &self.0.program_syncs;
        program_syncs.begun.fetch_sub(1, Ordering::AcqRel);
        program_syncs.ended.store(true, Ordering::Release);
        self.0.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Syncer {
    fn start(
        runtime: Arc<Runtime>,
        pool: Store,
        named: Arc<Registry>,
        syncs: Option<Limits>,
        grows: Option<Growth>,
    ) -> Result<Syncer, Error> {
        // Writers wait for growth as they do for a sync.
        pool.set_syncs_for_writers(Some(syncs.map_or(0, |limits| limits.dram)));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let failed = Arc::new(Mutex::new(None));
        let noted = failed.clone();
        let program_syncs = Arc::new(ProgramSyncs::default());
        let noticed = program_syncs.clone();
        fulgurite_sys::planted::start_thread().map_err(Error::Thread)?;
        let thread = std::thread::Builder::new().name("fulgurite-sync".into()).spawn(move || {
            let is_woken = pool.set_woken_by_writers(Some(std::thread::current()));
            let mut grower = grows.map(Grower::new);
            let ended = match syncs {
                Some(limits) => {
                    let watched = (&stopped, &noticed);
                    sync_until(watched, (&runtime, &pool, &named), limits, is_woken, &mut grower)
                }
                None => {
                    grow_until(&stopped, &mut grower);
                    Ok(())
                }
            };
            pool.set_syncs_for_writers(None);
            pool.set_woken_by_writers(None);
            if let Err(error) = ended {
                eprintln!("fulgurite: the pool was not synced, and will not be any more: {error}");
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
            // Before the runtime, which may end here, and whose medium must be closed then.
            drop((pool, named, grower));
            drop(runtime);
        });
        Ok(Syncer { stop, thread: Some(thread.map_err(Error::Thread)?), failed, program_syncs })
    }
    /// Stops it without waiting for its last sync. It then drops the runtime, if nobody else does.
    pub fn end_by_itself(mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().iter().for_each(|thread| thread.thread().unpark());
    }
    /// Leaves it to the process whose it is: this one is a child, without its thread.
    pub fn forget(mut self) {
        std::mem::forget(self.thread.take());
    }
    /// A sync of the program begins, which is not kept waiting.
    fn begin_sync(&self) -> ProgramSync<'_> {
        self.program_syncs.begun.fetch_add(1, Ordering::AcqRel);
        ProgramSync(self)
    }
    /// Why it syncs no more, if it does not.
    fn failed(&self) -> Option<SyncError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// When to sync: after how long, or how many changed bytes, and the most subpages that a sync
/// writes.
#[derive(Clone, Copy)]
struct Limits {
    every: Duration,
    bytes: u64,
    dram: u64,
}

/// Whether no later sync can succeed, because the medium lost data, or a part that saves state has
/// died.
fn is_final(error: &SyncError) -> bool {
    let lost = SyncError::from(FlashError::Poisoned);
    *error == lost
        || matches!(error, SyncError::NoVersions { .. } | SyncError::PartDied { .. } | SyncError::Poisoned { .. })
}
/// Whether writers, or the holder of an open section, report it.
fn is_reported(error: &SyncError) -> bool {
    matches!(error, SyncError::SectionOpen { .. } | SyncError::NoSpace { .. })
}

/// Grows a pool, and says once that it cannot.
struct Grower {
    growth: Growth,
    failed: Option<Instant>,
    said: bool,
}

impl Grower {
    fn new(growth: Growth) -> Grower {
        growth.watch(true);
        Grower { growth, failed: None, said: false }
    }
    fn turn(&mut self) {
        if self.failed.is_some_and(|at| at.elapsed() < AGAIN_AFTER) {
            return;
        }
        let grown = self.growth.turn();
        self.growth.watch(grown.is_ok());
        match grown {
            Ok(()) => (self.failed, self.said) = (None, false),
            Err(error) => {
                self.failed = Some(Instant::now());
                if !std::mem::replace(&mut self.said, true) {
                    eprintln!("fulgurite: the pool could not grow, and will be tried again every second: {error}");
                }
            }
        }
    }
}

/// For a pool that nobody syncs but the program.
fn grow_until(stopped: &AtomicBool, grower: &mut Option<Grower>) {
    while !stopped.load(Ordering::Acquire)
        && let Some(grower) = grower.as_mut().filter(|grower| !grower.growth.is_at_limit())
    {
        grower.turn();
        if !stopped.load(Ordering::Acquire) {
            std::thread::park_timeout(CHECK_WHEN_WOKEN);
        }
    }
}

fn sync_until(
    (stopped, program_syncs): (&Arc<AtomicBool>, &Arc<ProgramSyncs>),
    (runtime, pool, named): (&Runtime, &Store, &Registry),
    Limits { every, bytes, dram }: Limits,
    is_woken: bool,
    grower: &mut Option<Grower>,
) -> Result<(), SyncError> {
    let check_most = if is_woken && bytes == u64::MAX { CHECK_WHEN_WOKEN } else { CHECK_EVERY };
    let check = every.clamp(CHECK_LEAST, check_most);
    let mut last = Instant::now();
    let mut failed: Option<Instant> = None;
    let mut count_from = last;
    // That it cannot, and nobody else would notice, is said once.
    let mut said = false;
    let mut cut_short: u32 = 0;
    let mut gives_back = || {
        let (stopped, program_syncs) = (stopped.clone(), program_syncs.clone());
        let is_wanted = move || stopped.load(Ordering::Acquire) || program_syncs.begun.load(Ordering::Acquire) > 0;
        // So that the next sync is not much later than it should be.
        let limit = Limit::of((every / 4).clamp(GIVE_BACK_LEAST, GIVE_BACK_MOST)).unless(is_wanted);
        let limit = limit.with_writers().at_least(least_after(cut_short));
        // What fails goes on after the next sync.
        let _ = leaving::go_on(runtime, pool, named);
        // What cannot be given back stays free memory.
        let is_cut_short = give_back(runtime, pool, named, &limit).unwrap_or(false);
        cut_short = if is_cut_short { cut_short.saturating_add(1) } else { 0 };
    };
    loop {
        if !stopped.load(Ordering::Acquire) {
            std::thread::park_timeout(check);
        }
        let stop = stopped.load(Ordering::Acquire);
        grower.iter_mut().for_each(Grower::turn);
        let mut changed = pool.unnamed_bytes();
        // Only where what differs in DRAM could be what is missing.
        let may_be_enough = changed.saturating_add(dram.saturating_mul(SUBPAGE_BYTES as u64)) >= bytes;
        let begun = Instant::now();
        if changed < bytes && may_be_enough && begun >= count_from {
            changed = changed.saturating_add(runtime.changed_frames() * SUBPAGE_BYTES as u64);
            count_from = begun + begun.elapsed() * COUNT_PAUSE;
        }
        let is_due = || last.elapsed() >= every || changed >= bytes.max(1) || pool.wants_sync();
        if stop || (failed.is_none_or(|at| at.elapsed() > AGAIN_AFTER) && is_due()) {
            pool.tick();
            // A device that has died and returned took the first try with it.
            let synced = runtime.sync();
            let synced = if synced.as_ref().is_err_and(|e| pool.may_sync_again(e)) { runtime.sync() } else { synced };
            match synced {
                Ok(_) => {
                    if std::mem::take(&mut said) {
                        eprintln!("fulgurite: the pool is synced again");
                    }
                    failed = None;
                    pool.set_syncs_for_writers(Some(dram));
                    // Now there is room for it, and no writer waits. The next sync names it.
                    if !stop {
                        gives_back();
                    }
                }
                Err(error) if stop || is_final(&error) => return Err(error),
                Err(error) => {
                    if !is_reported(&error) && !std::mem::replace(&mut said, true) {
                        eprintln!(
                            "fulgurite: the pool could not be synced, and will be tried again every second: {error}"
                        );
                    }
                    failed = Some(Instant::now());
                }
            }
            last = Instant::now();
        } else if program_syncs.ended.swap(false, Ordering::AcqRel) {
            gives_back();
        }
        if stop {
            return Ok(());
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It says itself why it failed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_that_are_always_cut_short_get_time_in_the_end() {
        let times: Vec<u128> = (0..400).map(|cut_short| least_after(cut_short).as_millis()).collect();
        assert!((0..16).chain(17..32).all(|cut_short| times[cut_short] == 0));
        assert_eq!((times[16], times[32], times[48]), (2, 4, 8));
        assert_eq!(times.iter().max(), Some(&1000));
        assert_eq!(least_after(u32::MAX / 16 * 16), GIVE_BACK_MOST);
    }
}
