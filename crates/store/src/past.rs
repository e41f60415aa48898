//! A state of the past, read beside the live pool.
//!
//! Where a subpage lay then is asked of the pool for each read, as the live pool may move it; the token is pinned for as long as
//! somebody reads, so that nothing of it is reclaimed.

use std::sync::Arc;

use fulgurite_flash::{Flash, FlashError, Layer, Layered, Place, Written};

use crate::pool::{EROFS, Pool, PoolError};

/// The state that a token names, as a medium that may only be read.
pub struct Past {
    pool: Arc<Pool>,
    token: u64,
    /// It was pinned for this.
    pinned: bool,
}

impl std::fmt::Debug for Past {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Past").field("token", &self.token).field("pool", &self.pool).finish()
    }
}

impl Past {
    /// The state of a token.
    ///
    /// # Errors
    /// When there is no such token, or it cannot be pinned.
    pub fn open(pool: Arc<Pool>, token: u64) -> Result<Past, PoolError> {
        let pinned = pool.pin_for_reader(token)?;
        Ok(Past { pool, token, pinned })
    }
    /// The token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }
    /// The same, as a medium for a runtime.
    #[must_use]
    pub fn into_flash(self) -> Layered<Past> {
        Layered::new(Arc::new(self))
    }
}

impl Drop for Past {
    fn drop(&mut self) {
        if self.pinned {
            // A pool that fails keeps it, which costs space only; a token that was rolled back is gone.
            let _ = self.pool.pin(self.token, false);
        }
    }
}

impl Layer for Past {
    fn medium(&self) -> &Arc<dyn Flash> {
        self.pool.medium()
    }
    fn subpages(&self) -> u32 {
        self.pool.subpages()
    }
    fn describe(&self) -> String {
        format!("token {} of a {}", self.token, self.pool.describe())
    }
    fn dram_bytes(&self) -> usize {
        // The live pool's, which counts where that is used.
        0
    }
    fn locate(&self, subpage: u32) -> Result<Option<Place>, FlashError> {
        self.pool.locate_in(self.token, subpage)
    }
    fn place(&self, _: &[u32], _: &mut Vec<u32>) -> Result<(), FlashError> {
        Err(FlashError::Io(EROFS))
    }
    fn written(&self, _: &mut Vec<Written>) -> Result<(), FlashError> {
        Err(FlashError::Io(EROFS))
    }
    fn not_written(&self, _: u32) {}
    fn work(&self) -> bool {
        false
    }
    fn begin_flush(&self) -> Result<u64, FlashError> {
        Ok(0)
    }
    fn is_flushed(&self, _: u64) -> Result<bool, FlashError> {
        Ok(true)
    }
}
