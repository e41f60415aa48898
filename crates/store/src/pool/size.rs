//! Another size for a pool: what is moved, and in which order it is recorded (`Store::shrink`
//! moves).

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::{Inner, Pool, PoolError};
use crate::driver::Driver;
use crate::geometry::Geometry;
use crate::recover::superblock;
use crate::store::{ResizeError, Shrink, superblock_pages};

impl Pool {
    /// Gives the pool another size, of flash, data, or both. One without objects may begin to pack
    /// them. A growing pool's medium must have it
    /// already, and a shrunk one's may lose what is behind the end. A crash leaves the old size or
    /// the new one. Afterwards the pool takes no more changes: open it again. `go_on` is asked
    /// between the steps, and may stop it.
    ///
    /// # Errors
    /// When the live data does not fit, or the flash fails. The pool then has its old size. After
    /// [`ResizeError::Unsure`], the flash failed during the superblock's write, and it has either.
    /// The medium must then keep its size until the pool was opened again, which makes the
    /// superblock's copies equal.
    pub fn resize(&self, to: Geometry, go_on: &mut dyn FnMut() -> bool) -> Result<bool, PoolError> {
        let _turn = self.size_turn();
        let now = self.geometry();
        if now.objects && !to.objects {
            return Err(ResizeError::Objects.into());
        }
        let begins_to_pack = to.objects && !now.objects;
        let (found, needed) = (self.medium.subpages(), to.flash_pages());
        if found < needed {
            let bytes = |pages: u32| u64::from(pages) * 4096;
            return Err(ResizeError::Medium { found: bytes(found), needed: bytes(needed) }.into());
        }
        if to.extents < now.extents || to.subpages < now.subpages || begins_to_pack {
            self.lock_for_changes()?.store.may_shrink(to)?;
            loop {
                self.settled().inspect_err(|_| self.lock().store.stop_shrinking())?;
                if !go_on() {
                    self.lock().store.stop_shrinking();
                    return Ok(false);
                }
                if self.lock().store.shrink(to.extents.min(now.extents))? == Shrink::Done {
                    break;
                }
            }
        }
        let mut inner = self.lock_for_changes()?;
        inner.failed()?;
        // It goes on in its old size then.
        let found = superblock(&mut inner.driver).inspect_err(|_| inner.store.stop_shrinking());
        let (pool, _, block) = found?;
        let pages = superblock_pages(pool, &to.superblock(block.made));
        inner.read_only = true;
        // The first copy may be there when the second fails, and also what was said to have failed.
        inner.driver.write_all(pages.to_vec()).map_err(ResizeError::Unsure)?;
        Ok(true)
    }
    /// Gives the pool `extents` extents, more than it has, while it is open. Its medium must have
    /// the flash already. A crash leaves the old size or the new one.
    ///
    /// # Errors
    /// When it has more already, the medium or the DRAM for it has less, or no pool of its kind is
    /// so large. After
    /// [`ResizeError::Unsure`] the pool goes on in its old size, and the next opening may find the
    /// new one: the medium must keep its size.
    pub fn grow(&self, extents: u32) -> Result<(), PoolError> {
        let _turn = self.size_turn();
        let pages = self.may_grow(extents)?;
        let now = self.geometry();
        let bytes = |extents: u32| u64::from(extents) * u64::from(now.extent_pages) * 4096;
        if self.medium.subpages() < pages {
            let (found, needed) = (u64::from(self.medium.subpages()) * 4096, bytes(extents));
            return Err(ResizeError::Medium { found, needed }.into());
        }
        if extents == now.extents {
            return Ok(());
        }
        self.lock_for_changes()?.failed()?;
        // Requests of its own, because the store's continue.
        let mut driver = Driver::new(&*self.medium, 4)?;
        let (pool, _, block) = superblock(&mut driver)?;
        let grown = Geometry { extents, ..now };
        let written = driver.write_all(superblock_pages(pool, &grown.superblock(block.made)).to_vec());
        written.map_err(ResizeError::Unsure)?;
        let mut inner = self.lock_for_changes()?;
        inner.failed()?;
        inner.driver.medium_has(self.medium.subpages());
        inner.store.grow(extents);
        self.extents.store(extents, Ordering::Release);
        // Waiters for places check again.
        self.starved.store(false, Ordering::Relaxed);
        self.helpers.note_places();
        // Nor are they refused without a check.
        let _ = self.changes.took(0);
        Ok(())
    }
    /// Whether it may have `extents` extents, if its medium has them. Returns their flash pages.
    ///
    /// # Errors
    /// As [`Pool::grow`].
    pub fn may_grow(&self, extents: u32) -> Result<u32, PoolError> {
        let now = self.geometry();
        if extents < now.extents {
            let has = u64::from(now.flash_pages()) * 4096;
            return Err(ResizeError::Smaller(has).into());
        }
        let pages = extents.checked_mul(now.extent_pages).ok_or(ResizeError::TooLarge)?;
        if now.objects {
            Geometry::with_objects(pages, now.extent_pages, now.subpages).map_err(ResizeError::from)?;
        }
        self.lock_to_read().store.may_grow(extents)?;
        Ok(pages)
    }
    /// How many extents it should have, if it grows by itself up to `limit`.
    pub fn wants_to_grow(&self, limit: u32) -> Option<u32> {
        self.lock_to_read().store.wants_to_grow(self.changes.claimed(), limit)
    }
    /// Wakes the thread that makes the pool larger, if it should be.
    pub(super) fn ask_to_grow(&self, inner: &Inner) {
        let limit = self.grows_to.load(Ordering::Relaxed);
        if limit > 0 && inner.store.wants_to_grow(self.changes.claimed(), limit).is_some() {
            self.helpers.wake();
        }
    }
    /// One change of size at a time.
    fn size_turn(&self) -> MutexGuard<'_, ()> {
        self.size_turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether the pool may become so small, as far as is known before anything is moved.
    pub fn may_shrink(&self, to: Geometry) -> Result<(), PoolError> {
        Ok(self.lock().store.may_shrink(to)?)
    }
    /// Goes on until nothing is under way; what waits for space that does not come is an error.
    fn settled(&self) -> Result<(), PoolError> {
        let mut idle = 0;
        loop {
            let mut inner = self.lock();
            inner.turn(&self.starved);
            inner.failed()?;
            if inner.store.is_quiet() {
                return Ok(());
            }
            if inner.driver.in_flight() > 0 {
                idle = 0;
                inner.driver.wait(Duration::from_millis(1));
            } else {
                idle += 1;
                if idle > 1000 {
                    return Err(ResizeError::NoRoom.into());
                }
            }
        }
    }
}
