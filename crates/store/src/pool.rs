//! A pool as a medium: the store behind the requests of programs.

mod objects;
mod processes;
mod room;
mod size;
mod standing;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use fulgurite_flash::{
    Backing, Flash, FlashError, Layer, Layered, Location, Objects, ReadOnly, Shortage, VersionError, Versions, Written,
};
use fulgurite_format::{ObjectLocation, PoolId, SUBPAGE_BYTES, Status, format_bytes};
use fulgurite_sys::{Clock, Notifier};

use crate::changes::Changes;
use crate::driver::{Driver, DriverError};
use crate::geometry::{Geometry, SUBPAGES_PER_PAGE};
use crate::helpers::Helpers;
use crate::map::Map;
use crate::objects::Slots;
use crate::pages::{Permissions, Survey};
use crate::recover::{RecoverError, RecoverReport, recover};
use crate::state::Used;
use crate::store::{Durability, ExtentUses, ResizeError, Store, StoreConfig, WriteError, superblock_repairs};
use crate::tokens::Tokens;
pub use objects::Object;
use room::Published;

/// The store's own requests in flight: a reclaim's copies for which programs wait, journal and
/// checkpoint.
const DEPTH: usize = 128;
/// The number with a history bound below [`SMALL`], because buffers for 128 take half a mebibyte.
const DEPTH_SMALL: usize = 64;
const SMALL: usize = 1 << 20;
fn depth_of(config: &StoreConfig) -> usize {
    if config.history_bytes < SMALL { DEPTH_SMALL } else { DEPTH }
}
/// Turns in a row that ask for nothing, because nothing has happened that could have made work.
const IDLE_TURNS: u32 = 32;

/// A needed flash page: the current content of a subpage, or an older one that a token keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LivePage {
    /// The subpage.
    pub subpage: u32,
    /// Where it is stored.
    pub place: u32,
    /// CRC32C of its content.
    pub checksum: u32,
    /// Whether this is what programs read.
    pub current: bool,
    /// The token that was next when it was written.
    pub time: u64,
    /// Where an object is in the flash page. None for a whole subpage.
    pub object: Option<ObjectLocation>,
}

impl LivePage {
    /// What of the flash page is its content.
    pub fn of<'c>(&self, content: &'c [u8]) -> &'c [u8] {
        self.object.map_or(content, |at| &content[at.range()])
    }
}

/// Why a pool cannot be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum PoolError {
    /// What is there is no pool that can be used.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Frames or a queue of the store's own.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The flash failed.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// A change was refused.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It cannot have another size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    #[error("only an empty pool that keeps nothing can be without checksums; create a new one, and open it as a cache")]
    MustCheck,
    #[error("the pool was opened read-only; open it for changes")]
    ReadOnly,
    #[error("token {read} is being read, and a roll back to token {token} would drop it; close its reader first")]
    TokenInUse { token: u64, read: u64 },
    #[error("token {pinned} is pinned, and a roll back to token {token} would drop it; unpin it first")]
    TokenPinned { token: u64, pinned: u64 },
    #[error("page {page} may not be written or deleted; make it writable first")]
    NotPermitted { page: u32 },
    #[error("pages {first} to {end} are not all in the pool, which has {pages}")]
    NoSuchPages { first: u32, end: u32, pages: u32 },
    #[error("{}", VersionError::no_token(*.token, .kept))]
    NoToken { token: u64, kept: Vec<u64> },
}

impl From<WriteError> for FlashError {
    fn from(error: WriteError) -> FlashError {
        match error {
            WriteError::NoSpace { .. } | WriteError::Table(_) | WriteError::TokenTooOld(_) => FlashError::NoSpace,
            WriteError::NoObjects | WriteError::NotAnObject { .. } => FlashError::OutOfRange,
            WriteError::Flash(error) | WriteError::Leaf(error) | WriteError::Poisoned(error) => error,
        }
    }
}

#[derive(Debug)]
struct Inner {
    store: Store,
    driver: Driver,
    /// What ended the driver's turns for good.
    failed: Option<FlashError>,
    /// A thread has panicked in the midst of a change: nothing more is written.
    half_changed: bool,
    /// A caller has had the store since the last turn.
    stirred: bool,
    /// Turns since in which nothing ended.
    idle: u32,
    /// Nothing is ever written: the driver does not turn.
    read_only: bool,
    scratch: Vec<(u32, u32, u32)>,
}

/// An identity that no other pool has.
///
/// # Errors
/// When /dev/urandom gives no random numbers.
pub fn random_id() -> std::io::Result<PoolId> {
    let what = |e: std::io::Error| std::io::Error::new(e.kind(), format!("no random numbers from /dev/urandom: {e}"));
    Ok(PoolId(fulgurite_sys::random_bytes().map_err(what)?))
}

/// A pool: a store over a medium, shared by all queues.
pub struct Pool {
    medium: Arc<dyn Flash>,
    map: Arc<Map>,
    /// Where objects are stored, and the reader for callers without a queue.
    slots: Arc<Slots>,
    /// Which of what says that are used, where not all of it has to be in DRAM.
    used: Used,
    reader: Mutex<Option<Driver>>,
    /// As it was opened; it may have more extents by now.
    opened_as: Geometry,
    extents: AtomicU32,
    size_turn: Mutex<()>,
    /// Writers wake the thread that syncs when the pool should grow, to at most this number of
    /// extents.
    grows_to: AtomicU32,
    id: PoolId,
    durability: Durability,
    checks: bool,
    /// No places were left, and nothing since could have made any. The lock's holder changes it.
    starved: AtomicBool,
    /// Tokens before this one are of processes that have ended.
    opened_at: AtomicU64,
    /// Temporary pages of processes that have ended may be in the state.
    temporary_stays: bool,
    inner: Mutex<Inner>,
    /// How many threads wait for that lock.
    waiting: AtomicUsize,
    /// Some page may be one that may not be read, or not be written.
    pub(crate) restricted: AtomicBool,
    /// Temporary pages of earlier processes that were deleted, and that were not reported to a
    /// caller yet.
    dropped: Mutex<Vec<u32>>,
    helpers: Helpers,
    /// What differs in DRAM, where changes are announced.
    changes: Changes,
    /// What room there is, where a reader wants to know all the while.
    published: Published,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("id", &self.id).field("geometry", &self.geometry()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Whether there is more to do. What it has done may have made places.
    fn turn(&mut self, starved: &AtomicBool) -> bool {
        if self.read_only {
            return false;
        }
        if self.half_changed {
            // Waiters for places are notified.
            starved.store(false, Ordering::Relaxed);
            return false;
        }
        if self.failed.is_none() {
            // Most turns come while everything is on its way.
            self.idle = if std::mem::take(&mut self.stirred) { 0 } else { self.idle + 1 };
            if !self.idle.is_multiple_of(IDLE_TURNS) && !self.driver.poll_news() {
                return !self.store.is_quiet();
            }
            match self.driver.turn(&mut self.store) {
                Ok(0) if !self.store.is_quiet() => {}
                Ok(_) => starved.store(false, Ordering::Relaxed),
                Err(error) => {
                    self.failed = Some(error);
                    starved.store(false, Ordering::Relaxed);
                }
            }
        }
        self.failed.is_none() && !self.store.is_quiet()
    }
    fn is_whole(&self) -> Result<(), FlashError> {
        if self.half_changed { Err(FlashError::Poisoned) } else { Ok(()) }
    }
    fn failed(&self) -> Result<(), FlashError> {
        if self.read_only { self.is_whole().and(Err(ReadOnly::ERROR)) } else { self.goes_on() }
    }
    /// Whether nothing has ended its changes, where it was opened for any.
    fn goes_on(&self) -> Result<(), FlashError> {
        self.is_whole()?;
        self.failed.or(self.store.poisoned()).map_or(Ok(()), Err)
    }
    /// The kept tokens, ascending. When nothing can become durable any more, the durable ones.
    /// Later names are lost, and the next opening has those that they were to replace.
    fn tokens(&self) -> Vec<u64> {
        match self.goes_on() {
            Ok(()) => self.store.state().tokens().to_vec(),
            Err(_) => self.store.durable_tokens().to_vec(),
        }
    }
}

impl Pool {
    /// Makes a pool of a medium; what was on it is gone.
    pub fn format(medium: &Arc<dyn Flash>, geometry: Geometry, id: PoolId, made: u64) -> Result<(), PoolError> {
        let mut driver = Driver::new(&**medium, 4)?;
        Ok(driver.write_all(Store::format(geometry, id, made))?)
    }
    /// Opens a pool in the state of its last token. The loss of promised data is an error, unless
    /// it is accepted ([`StoreConfig::accept_loss`]). [`RecoverReport::lost`] names it.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn open(medium: Arc<dyn Flash>, config: StoreConfig) -> Result<(Pool, RecoverReport), PoolError> {
        Pool::open_with_clock(medium, config, Clock::get())
    }
    /// Opens a pool with another clock than the real one, for patience, held writes, and the age of
    /// tokens.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_with_clock(
        medium: Arc<dyn Flash>,
        config: StoreConfig,
        clock: Clock,
    ) -> Result<(Pool, RecoverReport), PoolError> {
        Self::recovered(medium, config, false, clock)
    }
    /// Opens a pool for inspection, in the state of its last token or of another one. Nothing is
    /// ever written, not even recovery's records, and losses are in the report. Writers get
    /// [`PoolError::ReadOnly`] or `EROFS`.
    ///
    /// # Errors
    /// When there is none, or it cannot be read; when there is no such token.
    pub fn inspect(
        medium: Arc<dyn Flash>,
        config: StoreConfig,
        token: Option<u64>,
    ) -> Result<(Pool, RecoverReport), PoolError> {
        let (pool, report) = Self::recovered(medium, config, true, Clock::get())?;
        if let Some(token) = token
            && !pool.lock().store.roll_back(token)?
        {
            return Err(pool.no_token(token));
        }
        Ok((pool, report))
    }
    fn recovered(
        medium: Arc<dyn Flash>,
        config: StoreConfig,
        read_only: bool,
        clock: Clock,
    ) -> Result<(Pool, RecoverReport), PoolError> {
        if config.unchecked && (config.durability != Durability::Cache || read_only) {
            return Err(PoolError::MustCheck);
        }
        let mut driver = Driver::that_checks(&*medium, depth_of(&config), !config.unchecked)?;
        if !read_only {
            // Copies differ when a change of size was cut off between them, or one is damaged.
            for repair in superblock_repairs(&mut driver) {
                // An unwritable copy has no other place, but the other copy does. A failed flush
                // fails what follows, too.
                let _ = driver.write_all(vec![repair]);
            }
        }
        // An inspection may see what is left.
        let config = StoreConfig { accept_loss: config.accept_loss || read_only, ..config };
        // It may go back to a token that does not see what is on flash alone.
        let config = if read_only { StoreConfig { leaf_bytes: usize::MAX, ..config } } else { config };
        let (mut store, report) = recover(&mut driver, config)?;
        if !read_only {
            // A killed process may have left its last token in the device's cache. It is reported
            // now, so the next crash must not take it away.
            driver.flush()?;
        }
        if config.unchecked && store.info().live > 0 {
            return Err(PoolError::MustCheck);
        }
        if report.lost.is_some() && !read_only {
            store.begin_checkpoint();
            driver.settle(&mut store)?;
            if store.counters().checkpoints == 0 {
                return Err(WriteError::NoSpace { uncommitted: 0 }.into());
            }
        }
        if !read_only && store.is_scattered() {
            store.begin_checkpoint();
            driver.settle(&mut store)?;
        }
        let Survey { restricted, temporary: dropped } = store.survey_at_opening(config.temporary_stays)?;
        let pool = Pool {
            medium,
            opened_at: AtomicU64::new(store.state().next_token()),
            temporary_stays: config.temporary_stays,
            map: store.map(),
            slots: store.state().objects().slots().clone(),
            used: store.used(),
            reader: Mutex::new(None),
            opened_as: store.geometry(),
            extents: AtomicU32::new(store.geometry().extents),
            size_turn: Mutex::new(()),
            grows_to: AtomicU32::new(0),
            id: store.pool(),
            durability: config.durability,
            checks: !config.unchecked,
            starved: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                store,
                driver,
                failed: None,
                half_changed: false,
                stirred: true,
                idle: 0,
                read_only,
                scratch: Vec::new(),
            }),
            restricted: AtomicBool::new(restricted),
            dropped: Mutex::new(dropped),
            helpers: Helpers::new(clock),
            changes: Changes::default(),
            published: Published::default(),
        };
        Ok((pool, report))
    }
    /// The pool as a medium for a runtime.
    #[must_use]
    pub fn into_flash(self) -> Layered<Pool> {
        Layered::new(Arc::new(self))
    }

    /// One more reader of a token.
    pub(crate) fn begin_read(&self, token: u64) -> Result<(), PoolError> {
        let mut inner = self.lock();
        if inner.store.begin_read(token) {
            return Ok(());
        }
        // What a sync that failed was to take the place of is gone here, and only here.
        inner.goes_on()?;
        drop(inner);
        Err(self.no_token(token))
    }
    /// One reader less.
    pub(crate) fn end_read(&self, token: u64) {
        self.lock().store.end_read(token);
    }
    /// Where a subpage was stored at a token that is kept.
    pub(crate) fn locate_at(&self, subpage: u32, token: u64) -> Location {
        let inner = self.lock();
        if let Some(flash_page) = inner.store.is_behind(subpage / SUBPAGES_PER_PAGE) {
            return Location::Indirect(flash_page);
        }
        let located = inner.store.state().located_at(subpage, token);
        located.and_then(|located| self.place_of(located)).into()
    }
    /// Goes on until `done`, letting others in between.
    fn until(&self, done: impl Fn(&Store) -> bool) -> Result<(), FlashError> {
        loop {
            {
                let mut inner = self.lock();
                inner.turn(&self.starved);
                inner.failed()?;
                if done(&inner.store) {
                    if !inner.store.is_quiet() {
                        self.helpers.leave_work();
                    }
                    return Ok(());
                }
                if inner.driver.in_flight() > 0 {
                    inner.driver.wait(Duration::from_micros(50));
                }
            }
            // Only to waiters for the lock: on a busy machine it takes milliseconds.
            if self.waiting.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Its identity.
    pub fn id(&self) -> PoolId {
        self.id
    }
    /// Its geometry.
    pub fn geometry(&self) -> Geometry {
        Geometry { extents: self.extents.load(Ordering::Acquire), ..self.opened_as }
    }
    /// The tokens that are kept.
    pub fn tokens(&self) -> Tokens {
        self.lock().store.state().tokens().clone()
    }
    /// Sentences about what is wrong with its tables; none when all is well.
    pub fn audit(&self) -> Vec<String> {
        self.lock().store.state().audit()
    }

    /// How often each extent was filled.
    pub fn fills(&self) -> Vec<u32> {
        self.lock().store.state().wear().all_fills().to_vec()
    }
    /// Subpages written since the last token, whose older versions must be kept.
    pub fn uncommitted(&self) -> u64 {
        self.lock().store.uncommitted()
    }
    /// A thread syncs from now on when [`Pool::wants_sync`], with at most `subpages` subpages a
    /// sync, or no longer. Meanwhile a write without a place waits for that, up to two seconds
    /// without progress, instead of failing.
    pub fn set_syncs_for_writers(&self, subpages: Option<u64>) {
        self.helpers.set_syncs(subpages);
    }
    /// Unparks this thread whenever a writer begins to wait for it to sync; none: no thread.
    pub fn set_woken_by_writers(&self, thread: Option<Thread>) {
        self.helpers.set_woken(thread);
    }
    /// Unparks that thread when the pool should have more extents, up to `extents`; 0: never.
    pub fn set_grows_to(&self, extents: u32) {
        self.grows_to.store(extents, Ordering::Relaxed);
    }
    /// Whether a sync would bring places: writers wait for some, or there are hardly more than a
    /// sync needs.
    pub fn wants_sync(&self) -> bool {
        self.helpers.is_short()
            || self.helpers.to_be_left().is_some_and(|left| self.lock().store.check_for_shortage(left))
    }
    /// Tells the store the time, in milliseconds of the wall clock, for tokens kept by age
    /// ([`StoreConfig::keep_age`]).
    pub fn tick(&self) {
        let now = self.clock().wall_ms();
        self.lock().store.tick(now);
    }
    /// Names the state of all that was written, and waits until that is durable. Returns the token.
    ///
    /// # Errors
    /// When the flash fails; the pool takes no more changes then. When it has no checksums.
    pub fn sync(&self) -> Result<u64, PoolError> {
        if !self.checks {
            // What is in it would never be found again.
            return Err(PoolError::MustCheck);
        }
        let token = self.lock_for_changes()?.store.sync()?;
        self.durable(token)?;
        Ok(token)
    }
    /// Waits until a token that was named is durable.
    ///
    /// # Errors
    /// When the pool is rolled back to before it meanwhile; when the flash fails.
    fn durable(&self, token: u64) -> Result<(), PoolError> {
        self.until(|store| store.durable_token() >= token || store.is_gone(token))?;
        let is_there = {
            let inner = self.lock();
            // A newer token, of a state without this one, may have become durable meanwhile.
            !inner.store.is_gone(token) && inner.store.durable_token() >= token
        };
        if is_there { Ok(()) } else { Err(self.no_token(token)) }
    }
    /// Makes the state of a token the present one again, and waits until that is durable. Newer
    /// tokens are dropped. The caller first forgets its frames.
    ///
    /// # Errors
    /// When there is no such token, or a newer one is pinned or being read: nothing was changed.
    /// When the flash fails: the state may be either.
    pub fn roll_back(&self, token: u64) -> Result<(), PoolError> {
        {
            let mut inner = self.lock_for_changes()?;
            inner.goes_on()?;
            let store = &mut inner.store;
            Self::may_roll_back(store.state().tokens(), token)?;
            store.roll_back(token)?;
            let restricted = if token < self.opened_at.load(Ordering::Acquire) {
                let survey = store.drop_temporary()?;
                *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) = survey.temporary;
                survey.restricted
            } else {
                Survey::of(store.state()).restricted
            };
            self.restricted.fetch_or(restricted, Ordering::AcqRel);
        }
        self.changes.forgotten();
        Ok(self.until(Store::is_quiet)?)
    }
    /// Whether [`Pool::roll_back`] would be refused, as things are.
    ///
    /// # Errors
    /// When there is no such token, a newer one is pinned or being read, or the flash failed.
    pub fn can_roll_back(&self, token: u64) -> Result<(), PoolError> {
        let inner = self.lock_to_read();
        inner.goes_on()?;
        Self::may_roll_back(inner.store.state().tokens(), token)
    }
    fn may_roll_back(tokens: &Tokens, token: u64) -> Result<(), PoolError> {
        if !tokens.contains(token) {
            return Err(PoolError::NoToken { token, kept: tokens.to_vec() });
        }
        if let Some(read) = tokens.read_behind(token) {
            return Err(PoolError::TokenInUse { token, read });
        }
        tokens.pinned_behind(token).map_or(Ok(()), |pinned| Err(PoolError::TokenPinned { token, pinned }))
    }
    /// Keeps a token whatever the policy says, or no more.
    ///
    /// # Errors
    /// When there is no such token; when the flash fails.
    pub fn pin(&self, token: u64, pinned: bool) -> Result<(), PoolError> {
        if !self.lock_for_changes()?.store.pin(token, pinned)? {
            return Err(self.no_token(token));
        }
        Ok(self.until(Store::is_quiet)?)
    }
    pub(crate) fn no_token(&self, token: u64) -> PoolError {
        PoolError::NoToken { token, kept: Versions::tokens(self) }
    }
    /// Allocates a page, changes its permissions, or deletes it.
    ///
    /// # Errors
    /// When there is no such page, or it cannot be recorded.
    pub fn set_status(&self, page: u32, status: Status) -> Result<(), PoolError> {
        self.check_pages(&(page..page.saturating_add(1)))?;
        self.set_statuses_in(&mut *self.lock_with_leaves(&[page])?, &[page], status)
    }
    /// Sets the status of many pages: of all, or of none if they have no room in addition to a
    /// sync's. If their leaves would be too many to stay at a time, they are changed in parts. An
    /// error of the flash may come after some then.
    pub(crate) fn set_statuses(&self, pages: &[u32], status: Status) -> Result<(), PoolError> {
        let at_once = self.lock_to_read().store.leaves_at_once();
        if pages.len() > at_once {
            return self.set_statuses_in_parts(pages, status, at_once);
        }
        let mut inner = self.lock_with_leaves(pages)?;
        // They stay here while the store is locked. Pinned they would count twice.
        inner.store.let_go_of_leaves();
        self.leaves_room(&inner, pages, status)?;
        self.restricts(status);
        self.set_statuses_in(&mut inner, pages, status)
    }
    fn set_statuses_in_parts(&self, pages: &[u32], status: Status, at_once: usize) -> Result<(), PoolError> {
        // The room for all of them is theirs until they have it.
        let mut reserved = {
            let mut inner = self.lock_for_changes()?;
            inner.failed()?;
            inner.store.may_set_statuses(pages, status)?;
            self.reserve_for_statuses(&inner, pages, status)?
        };
        self.restricts(status);
        let mut left = pages.len();
        let result = pages.chunks(at_once).try_for_each(|part| {
            let mut inner = self.lock_with_leaves(part)?;
            self.set_statuses_in(&mut inner, part, status)?;
            left -= part.len();
            let rest = self.room_for_statuses(&inner, left).min(reserved);
            self.changes.release(reserved - rest);
            reserved = rest;
            Ok(())
        });
        self.changes.release(reserved);
        result
    }
    /// Before a status is set, so that every later access asks.
    fn restricts(&self, status: Status) {
        if Permissions::of(status).is_some_and(|p| !(p.read && p.write)) {
            self.restricted.store(true, Ordering::Release);
        }
    }
    fn set_statuses_in(&self, inner: &mut Inner, pages: &[u32], status: Status) -> Result<(), PoolError> {
        inner.store.set_statuses(pages, status)?;
        // What the pages held becomes an older version.
        if self.changes.took(pages.len() as u64 * u64::from(SUBPAGES_PER_PAGE)) {
            self.changes.note_room(inner.store.room_for_changes());
        }
        Ok(())
    }
    pub(crate) fn on_state<T>(&self, look: impl FnOnce(&crate::state::State) -> T) -> T {
        look(self.lock_to_read().store.state())
    }
    /// Status of a page.
    pub fn status(&self, page: u32) -> Status {
        self.lock_to_read().store.state().status(page)
    }
    /// Makes a checkpoint, so that the next opening replays little, and waits for all that is under
    /// way.
    pub fn checkpoint(&self) -> Result<(), PoolError> {
        self.lock_for_changes()?.store.begin_checkpoint();
        Ok(self.until(Store::is_quiet)?)
    }
    /// Drops the unpinned tokens but the newest `keep`, and waits until that is durable. Returns
    /// how many.
    pub fn drop_tokens(&self, keep: usize) -> Result<usize, PoolError> {
        let dropped = self.lock_for_changes()?.store.drop_tokens(keep)?;
        self.until(Store::is_quiet)?;
        Ok(dropped)
    }
    /// Reclaims one extent, and waits until it is free. Returns false when none is worth it.
    pub fn reclaim_one(&self) -> Result<bool, PoolError> {
        if !self.lock_for_changes()?.store.begin_reclaim() {
            return Ok(false);
        }
        self.until(Store::is_quiet)?;
        // What was copied away is free once that is durable.
        self.lock().store.commit();
        self.until(Store::is_quiet)?;
        Ok(true)
    }
    /// Gives up a subpage's unreadable flash page, and frees it. Reads fail until it is written
    /// again. Returns whether it was needed.
    ///
    /// # Errors
    /// When there is no such subpage ([`FlashError::OutOfRange`]) or no space, or the flash fails.
    pub fn mark_lost(&self, subpage: u32, place: u32) -> Result<bool, PoolError> {
        if subpage >= self.opened_as.subpages {
            return Err(FlashError::OutOfRange.into());
        }
        let objects = self.mark_objects_lost(subpage, place)?;
        let needed = objects || self.lock_for_changes()?.store.mark_lost(subpage, place)?;
        self.until(Store::is_quiet)?;
        Ok(needed)
    }
    /// What its extents are used for.
    pub fn uses(&self) -> ExtentUses {
        self.lock().store.uses()
    }
    /// Extents that hold nothing, ascending, none of whose flash pages failed. What is written
    /// there past the pool is never read by it.
    pub fn unused_extents(&self) -> Vec<u32> {
        self.lock().store.unused_extents()
    }
    /// As [`Store::was_durable`].
    pub fn was_durable(&self, place: u32) -> bool {
        self.lock_to_read().store.was_durable(place)
    }
    /// Appends the flash pages that are needed for a page, including those that older versions
    /// need.
    ///
    /// # Errors
    /// When where they are is on flash alone, and cannot be read.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn live_pages(&self, page: u32, into: &mut Vec<LivePage>) -> Result<(), PoolError> {
        let inner = self.lock_with_leaf(page)?;
        let state = inner.store.state();
        for version in state.versions_of(page) {
            for h in version.held() {
                let subpage = page * SUBPAGES_PER_PAGE + h.subpage;
                let current = self.map.get(subpage).is_some_and(|l| l.place == h.place);
                let object = self.slots.get(h.place);
                if object == Some(ObjectLocation::FREED) {
                    continue;
                }
                let place = object.map_or(h.place, |at| at.flash_page);
                if let Some(checksum) = state.checksum(page, h) {
                    into.push(LivePage { subpage, place, checksum, current, time: version.time, object });
                }
            }
        }
        Ok(())
    }
}

impl From<PoolError> for VersionError {
    fn from(error: PoolError) -> VersionError {
        match error {
            PoolError::NoToken { token, kept } => VersionError::NoToken { token, kept },
            PoolError::Flash(error) => error.into(),
            PoolError::Write(error) => FlashError::from(error).into(),
            PoolError::TokenInUse { token, read } => VersionError::InUse { token, read },
            PoolError::TokenPinned { token, pinned } => VersionError::Pinned { token, pinned },
            PoolError::ReadOnly => ReadOnly::ERROR.into(),
            PoolError::Recover(_)
            | PoolError::MustCheck
            | PoolError::Driver(_)
            | PoolError::Resize(_)
            | PoolError::NotPermitted { .. }
            | PoolError::NoSuchPages { .. } => FlashError::Closed.into(),
        }
    }
}

impl Versions for Pool {
    fn name_state(&self) -> Result<u64, VersionError> {
        if self.durability == Durability::Cache {
            return Ok(0);
        }
        self.helpers.names_state();
        let token = {
            let mut inner = self.lock_for_changes()?;
            inner.failed()?;
            inner.store.sync().map_err(PoolError::from)?
        };
        self.changes.named();
        Ok(token)
    }
    fn wait_durable(&self, token: u64) -> Result<(), VersionError> {
        Ok(self.durable(token)?)
    }
    fn can_roll_back(&self, token: u64) -> Result<(), VersionError> {
        Ok(Pool::can_roll_back(self, token)?)
    }
    fn roll_back(&self, token: u64) -> Result<(), VersionError> {
        Ok(Pool::roll_back(self, token)?)
    }
    fn tokens(&self) -> Vec<u64> {
        self.lock().tokens()
    }
    fn uncommitted(&self) -> Option<u64> {
        Some(self.lock_to_read().store.uncommitted() + self.changes.claimed())
    }
    fn shortage(&self) -> Option<Shortage> {
        Some(self.lock_to_read().store.shortage())
    }
    fn sync_begins(&self) {
        self.helpers.set_at_it(true);
        self.changes.sync_begins();
    }
    fn sync_ended(&self, made: bool) {
        self.changes.sync_ended(made);
        self.helpers.set_at_it(false);
    }
    fn counting_begins(&self) {
        self.changes.counting_begins();
    }
    fn counted(&self, frames: u64) {
        self.changes.counted(frames);
    }
}

impl Backing for Pool {
    fn may(&self, subpage: u32, write: bool) -> bool {
        Pool::may(self, subpage, write)
    }
    fn asks(&self) -> bool {
        self.changes.asks()
    }
    fn begin_change(&self, subpage: u32, for_sync: bool) -> Result<(), FlashError> {
        self.claim(subpage, for_sync)
    }
    fn waits_for_room(&self) -> bool {
        self.helpers.waits_for_sync()
    }
    fn is_low(&self) -> bool {
        self.changes.is_low()
    }
    fn versions(&self) -> Option<&dyn Versions> {
        if self.lock_to_read().read_only { None } else { Some(self) }
    }
    fn objects(&self) -> Option<&dyn Objects> {
        (self.opened_as.objects && !self.lock_to_read().read_only).then_some(self)
    }
}

impl Layer for Pool {
    fn medium(&self) -> &Arc<dyn Flash> {
        &self.medium
    }
    fn clock(&self) -> &Clock {
        self.helpers.clock()
    }
    fn subpages(&self) -> u32 {
        self.opened_as.subpages
    }
    fn describe(&self) -> String {
        format!("pool of {} on {}", format_bytes(u64::from(self.opened_as.subpages) << 12), self.medium.describe())
    }
    fn dram_bytes(&self) -> usize {
        let inner = self.lock();
        // What a budget must set aside: the tables grow with what is written.
        self.medium.traits().dram_bytes + inner.store.info().dram_bytes_max + inner.driver.bytes()
    }
    fn locate(&self, subpage: u32) -> Location {
        self.place_now(subpage)
    }
    fn learn(&self, subpage: u32, flash_page: u32, content: &[u8; SUBPAGE_BYTES]) -> Result<(), FlashError> {
        Pool::learn(self, subpage, flash_page, content)
    }
    fn will_locate(&self, subpage: u32) {
        self.map.prefetch(subpage);
    }
    fn place(&self, subpages: &[u32], places: &mut Vec<u32>) -> Result<(), FlashError> {
        let mut inner = self.lock();
        inner.failed()?;
        let before = places.len();
        let must_wait = self.helpers.to_be_left().is_some_and(|left| inner.store.check_for_shortage(left));
        match inner.store.place(if must_wait && self.helpers.waits_for_sync() { &[] } else { subpages }, places) {
            Ok(()) => {}
            Err(WriteError::NoSpace { .. } | WriteError::Table(_))
                if inner.store.uncommitted() > 0 && self.helpers.waits_for_sync() => {}
            Err(error) => return Err(error.into()),
        }
        self.ask_to_grow(&inner);
        if places.len() > before {
            self.helpers.note_places();
            if self.changes.placed((places.len() - before) as u64) {
                self.changes.note_room(inner.store.room_for_changes());
            }
        }
        self.starved.store(places.len() == before && !subpages.is_empty(), Ordering::Relaxed);
        Ok(())
    }
    fn may_place(&self) -> bool {
        !self.starved.load(Ordering::Relaxed)
    }
    fn written(&self, writes: &mut Vec<Written>) -> Result<(), FlashError> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.starved.store(false, Ordering::Relaxed);
        inner.is_whole()?;
        inner.scratch.clear();
        inner.scratch.extend(writes.iter().map(|w| (w.subpage, w.place.flash_page, w.place.checksum)));
        let mut scratch = std::mem::take(&mut inner.scratch);
        let result = inner.store.written(&mut scratch);
        inner.scratch = scratch;
        Ok(result?)
    }
    fn not_written(&self, flash_page: u32, error: FlashError) -> bool {
        let mut inner = self.lock();
        let again = inner.is_whole().is_ok() && inner.store.not_written(flash_page, error);
        // What was to be there still differs, or is given a place once more.
        self.changes.displaced();
        self.starved.store(false, Ordering::Relaxed);
        again
    }
    fn unreadable(&self, flash_page: u32, error: FlashError) {
        let mut inner = self.lock();
        if inner.is_whole().is_ok() {
            inner.store.unreadable(flash_page, error);
        }
    }
    fn checks(&self) -> bool {
        self.checks
    }
    fn work(&self) -> bool {
        // The lock's holder does it.
        let Some(mut inner) = self.try_lock() else { return true };
        let more = inner.turn(&self.starved);
        if !more {
            self.helpers.mark_done();
        }
        more
    }
    fn has_work(&self) -> bool {
        self.helpers.has_work()
    }
    fn opened(&self, wake: &Arc<Notifier>) {
        self.helpers.add_sleeper(wake);
    }
    fn begin_flush(&self) -> Result<u64, FlashError> {
        if self.durability == Durability::Cache {
            return Ok(0);
        }
        let mut inner = self.lock();
        inner.failed()?;
        Ok(inner.store.sync()?)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
    fn is_flushed(&self, flush: u64) -> Result<bool, FlashError> {
        let inner = self.lock_to_read();
        if inner.store.durable_token() >= flush {
            return Ok(true);
        }
        inner.failed()?;
        // Rolled back over: what it covered is not to be kept any more.
        Ok(inner.store.is_gone(flush))
    }
}
