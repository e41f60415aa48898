//! Another size for a pool: what is moved, and in which order it is recorded (`Store::shrink`
//! moves).

use std::time::Duration;

use super::{Pool, PoolError};
use crate::geometry::Geometry;
use crate::recover::superblock;
use crate::store::{ResizeError, Shrink, superblock_pages};

impl Pool {
    /// Gives the pool another size, of flash, data, or both. A growing pool's medium must have it
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
        if self.geometry.objects != to.objects {
            return Err(ResizeError::Objects.into());
        }
        let (found, needed) = (self.medium.subpages(), to.flash_pages());
        if found < needed {
            let bytes = |pages: u32| u64::from(pages) * 4096;
            return Err(ResizeError::Medium { found: bytes(found), needed: bytes(needed) }.into());
        }
        if to.extents < self.geometry.extents || to.subpages < self.geometry.subpages {
            self.lock_for_changes()?.store.may_shrink(to)?;
            loop {
                self.settled().inspect_err(|_| self.lock().store.stop_shrinking())?;
                if !go_on() {
                    self.lock().store.stop_shrinking();
                    return Ok(false);
                }
                if self.lock().store.shrink(to.extents.min(self.geometry.extents))? == Shrink::Done {
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
