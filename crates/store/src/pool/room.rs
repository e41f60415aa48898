//! Room for a sync: what may be changed, what is published of it, and the lock of both.
//!
//! The next sync must find places for all changes in DRAM ([`crate::Changes`] decides). A device
//! has its store here and its program in another process, which cannot wait for an answer at each
//! change. So the room is published ([`Pool::room`]) whenever the store is unlocked.
//!
//! Invariant: published is the store's room at its last unlock. An observer of a write's end sees
//! room without its place.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError, TryLockError};

use fulgurite_flash::{FlashError, Location};
use fulgurite_format::Status;

use super::{Inner, Pool, PoolError, SUBPAGES_PER_PAGE};
use crate::store::WriteError;

/// The room, for observers that do not ask.
#[derive(Debug, Default)]
pub(super) struct Published {
    wanted: AtomicBool,
    room: AtomicU64,
}

/// The locked store. A panic during a change may leave it half changed: nothing more of it is
/// written then.
pub(super) struct Locked<'p> {
    inner: MutexGuard<'p, Inner>,
    published: &'p Published,
    /// By one that may change it, and was not unwinding already.
    changes: bool,
}

impl Locked<'_> {
    fn for_changes(mut self) -> Self {
        self.changes = !std::thread::panicking();
        self
    }
}
impl Deref for Locked<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}
impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.changes && std::thread::panicking() {
            self.inner.half_changed = true;
        }
        // The lock is still held, so the later of two is published. Of a half changed store nothing
        // is.
        if self.published.wanted.load(Ordering::Relaxed) && !std::thread::panicking() && !self.inner.half_changed {
            self.published.room.store(self.inner.store.room_for_changes(), Ordering::Release);
        }
    }
}

impl Pool {
    fn locked<'p>(&'p self, inner: MutexGuard<'p, Inner>) -> Locked<'p> {
        Locked { inner, published: &self.published, changes: false }
    }
    pub(super) fn lock(&self) -> Locked<'_> {
        let mut inner = self.lock_to_read();
        inner.stirred = true;
        inner.for_changes()
    }
    /// The locked store, to be read only.
    pub(super) fn lock_to_read(&self) -> Locked<'_> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => inner.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                inner
            }
        };
        self.locked(inner)
    }
    /// The locked store, if it is free.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.locked(inner).for_changes()),
            Err(TryLockError::Poisoned(inner)) => Some(self.locked(inner.into_inner()).for_changes()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
    /// The locked store, for changes.
    pub(super) fn lock_for_changes(&self) -> Result<Locked<'_>, PoolError> {
        let inner = self.lock();
        inner.is_whole()?;
        if inner.read_only { Err(PoolError::ReadOnly) } else { Ok(inner) }
    }

    /// At most `frames` frames will differ from the pool in DRAM (0: changes are not announced).
    /// From now on, a change of one that does not asks first
    /// ([`fulgurite_flash::Backing::begin_change`]) while there is hardly more room than a sync
    /// needs. It gets `NoSpace` when there is no more. A sync can still be made, which makes room,
    /// and any frame can be written back until then.
    pub fn leave_for_sync(&self, frames: u64) {
        let inner = self.lock();
        self.changes.watch(frames, inner.store.room_for_changes());
    }
    /// From now on [`Pool::room`] says what there is.
    pub fn publish_room(&self) {
        self.published.wanted.store(true, Ordering::Relaxed);
        drop(self.lock_to_read());
    }
    /// How many subpages can certainly be written before the next sync, as of the last unlock: one
    /// load, after [`Pool::publish_room`]. Otherwise 0. A place is subtracted before its write
    /// ends.
    #[inline]
    pub fn room(&self) -> u64 {
        self.published.room.load(Ordering::Acquire)
    }
    /// Whether these pages may get another status. What each holds may become an older version.
    pub(super) fn leaves_room(&self, inner: &Inner, pages: &[u32], status: Status) -> Result<(), PoolError> {
        // A page, for the caller's notes of it.
        let noted = u64::from(SUBPAGES_PER_PAGE);
        let leaves = if self.changes.asks() {
            let older = pages.len() as u64 * u64::from(SUBPAGES_PER_PAGE);
            self.changes.leaves(inner.store.room_after(older), noted)
        } else {
            self.leaves_for_all(inner, pages, status)
        };
        if leaves { Ok(()) } else { Err(WriteError::NoSpace { uncommitted: inner.store.uncommitted() }.into()) }
    }
    /// Whether all frames would have room after a deletion, while changes do not ask for it.
    fn leaves_for_all(&self, inner: &Inner, pages: &[u32], status: Status) -> bool {
        // A page, for the caller's notes of it.
        let noted = u64::from(SUBPAGES_PER_PAGE);
        !status.has(Status::DELETED) || self.changes.leaves_for_all(inner.store.room_after_deleting(pages), noted)
    }
    /// How many pages can be deleted now, whatever they hold, in addition to what a sync needs.
    /// Deleting this number may still be refused by a full page table. Writers find no more room
    /// after it.
    pub fn pages_to_delete(&self) -> u32 {
        let inner = self.lock_to_read();
        let (mut least, mut most) = (0, u32::try_from(inner.store.room_for_deletions()).unwrap_or(u32::MAX));
        while least < most {
            let pages = least + (most - least).div_ceil(2);
            let older = u64::from(pages) * u64::from(SUBPAGES_PER_PAGE);
            if self.changes.has_room_for_sync(inner.store.room_after(older)) {
                least = pages;
            } else {
                most = pages - 1;
            }
        }
        least
    }
    /// Whether `count` subpages may be changed in addition to what a sync needs. If so, their room
    /// is kept until [`Pool::release_changes`].
    #[must_use]
    pub fn reserve_changes(&self, count: u64) -> bool {
        let inner = self.lock_to_read();
        self.changes.reserve_changes(inner.store.room_for_changes(), count)
    }
    /// These were changed, and claimed their places, or were not.
    pub fn release_changes(&self, count: u64) {
        self.changes.release(count);
    }
    /// Reserves the room for as many changes in parts ([`crate::Changes::release`]). Returns what.
    pub(super) fn reserve_for_statuses(&self, inner: &Inner, pages: &[u32], status: Status) -> Result<u64, PoolError> {
        let taken = self.room_for_statuses(inner, pages.len());
        let leaves = self.changes.asks() || self.leaves_for_all(inner, pages, status);
        if leaves && self.changes.reserve(inner.store.room_for_changes(), taken) {
            return Ok(taken);
        }
        Err(WriteError::NoSpace { uncommitted: inner.store.uncommitted() }.into())
    }
    /// What `pages` pages that get another status take of the room.
    pub(super) fn room_for_statuses(&self, inner: &Inner, pages: usize) -> u64 {
        let older = pages as u64 * u64::from(SUBPAGES_PER_PAGE);
        // A page, for the caller's notes of it.
        let taken = inner.store.room_for_changes().saturating_sub(inner.store.room_after(older));
        taken + u64::from(SUBPAGES_PER_PAGE)
    }
    /// As [`fulgurite_flash::Backing::begin_change`].
    pub(super) fn claim(&self, subpage: u32, for_sync: bool) -> Result<(), FlashError> {
        if !self.changes.asks() {
            return Ok(());
        }
        if for_sync {
            self.changes.claim_for_sync();
            return Ok(());
        }
        // Where addresses do not bound the data, what is new leaves room to change what is there.
        let grows = self.opened_as.objects && self.place_now(subpage) == Location::Unmapped;
        if self.changes.take(grows) {
            return Ok(());
        }
        if self.changes.repeat_refusal(grows) {
            return Err(FlashError::NoSpace);
        }
        let inner = self.lock_to_read();
        inner.failed()?;
        let left = match (grows, self.map.get(subpage)) {
            (false, _) => 0,
            (true, None) => inner.store.room_left_by_new_data(),
            // An object that was freed is used again. It was there when the pool became full.
            (true, Some(_)) => inner.store.room_left_by_new_data() / 2,
        };
        if !self.changes.claim(inner.store.room_for_changes(), left) {
            return Err(FlashError::NoSpace);
        }
        // Where a thread syncs for waiters, their time begins anew.
        self.helpers.note_places();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use fulgurite_flash::{Flash, Layer, MemoryFlash, VersionError, Versions};
    use fulgurite_format::PoolId;

    use super::*;
    use crate::{Geometry, Permissions, StoreConfig};

    fn open(medium: &Arc<dyn Flash>) -> Pool {
        Pool::open(medium.clone(), StoreConfig::default()).unwrap().0
    }

    #[test]
    fn of_a_store_that_somebody_left_half_changed_nothing_is_written() {
        let geometry = Geometry::new(100 * 8, 8, Some(96)).unwrap();
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry.flash_pages()).unwrap());
        Pool::format(&medium, geometry, PoolId([1; 16]), 0).unwrap();
        let pool = open(&medium);
        pool.set_permissions(2..3, Permissions::DEFAULT).unwrap();
        let token = pool.sync().unwrap();
        // A reader's panic leaves it as it was.
        let died = catch_unwind(AssertUnwindSafe(|| {
            let _inner = pool.lock_to_read();
            panic!("on the way");
        }));
        assert!(died.is_err());
        pool.set_permissions(3..4, Permissions::DEFAULT).unwrap();
        let died = catch_unwind(AssertUnwindSafe(|| {
            let _inner = pool.lock();
            panic!("in the midst of a change");
        }));
        assert!(died.is_err());
        // As if a writer waited for places.
        pool.starved.store(true, Ordering::Relaxed);
        assert!(!Layer::may_place(&pool));

        let poisoned = FlashError::Poisoned;
        let refused = |done: Result<(), PoolError>| {
            assert!(matches!(done, Err(PoolError::Flash(FlashError::Poisoned))), "{done:?}")
        };
        refused(pool.set_permissions(4..5, Permissions::DEFAULT));
        refused(pool.delete_pages(2..3));
        refused(pool.pin(token, true));
        refused(pool.roll_back(token));
        refused(pool.sync().map(drop));
        assert!(matches!(pool.name_state(), Err(VersionError::Flash(FlashError::Poisoned))));
        assert_eq!(Layer::place(&pool, &[0], &mut Vec::new()), Err(poisoned));
        assert_eq!(pool.written(&mut Vec::new()), Err(poisoned));
        assert_eq!(pool.begin_flush(), Err(poisoned));
        assert!(!pool.not_written(50, FlashError::Io(5)));
        // Nothing is left to be done, so that no thread goes on trying.
        assert!(!pool.work());
        assert!(Layer::may_place(&pool));
        // What was durable is known to be.
        assert_eq!(pool.is_flushed(token), Ok(true));
        drop(pool);

        let pool = open(&medium);
        assert!(pool.tokens().contains(token));
        assert_eq!((pool.permissions(2), pool.permissions(3)), (Some(Permissions::DEFAULT), None));
        assert_eq!(pool.audit(), Vec::<String>::new());
    }
}
