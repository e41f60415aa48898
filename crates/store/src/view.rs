//! An old state of a pool next to the live one: a layer that answers where subpages were at a
//! token.
//!
//! It has no tables of its own: it asks the live store, which knows where reclaim moved the data.
//! So nothing is recovered twice, and a reader costs no DRAM of the store's. The token stays while
//! the view lives, and the pool is not rolled back to before it. Flash does not record that: when
//! the process dies, the token is as before.

use std::sync::Arc;

use fulgurite_flash::{Backing, Flash, FlashError, Layer, Layered, Location, ReadOnly, Written};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_sys::Clock;

use crate::pool::{Pool, PoolError};

/// The state of a token, to be read.
#[derive(Debug)]
pub struct View {
    pool: Arc<Pool>,
    token: u64,
}

impl Pool {
    /// The state of a token, to be read while this one continues.
    ///
    /// # Errors
    /// When there is no such token; where the pool takes no more changes, because what failed.
    pub fn view(self: &Arc<Self>, token: u64) -> Result<View, PoolError> {
        self.begin_read(token)?;
        Ok(View { pool: self.clone(), token })
    }
}

impl View {
    /// The view as a medium for a runtime. Every write to it fails.
    #[must_use]
    pub fn into_flash(self) -> Layered<View> {
        Layered::new(Arc::new(self))
    }
    /// The token.
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.pool.end_read(self.token);
    }
}

impl Layer for View {
    fn medium(&self) -> &Arc<dyn Flash> {
        self.pool.medium()
    }
    fn clock(&self) -> &Clock {
        self.pool.clock()
    }
    fn subpages(&self) -> u32 {
        self.pool.subpages()
    }
    fn describe(&self) -> String {
        let bytes = u64::from(self.pool.subpages()) << 12;
        format!("token {} of a pool of {}", self.token, format_bytes(bytes))
    }
    fn dram_bytes(&self) -> usize {
        size_of::<View>()
    }
    fn locate(&self, subpage: u32) -> Location {
        self.pool.locate_at(subpage, self.token)
    }
    fn learn(&self, subpage: u32, flash_page: u32, content: &[u8; SUBPAGE_BYTES]) -> Result<(), FlashError> {
        self.pool.learn(subpage, flash_page, content)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(&ReadOnly)
    }
    fn place(&self, _: &[u32], _: &mut Vec<u32>) -> Result<(), FlashError> {
        Err(ReadOnly::ERROR)
    }
    fn written(&self, _: &mut Vec<Written>) -> Result<(), FlashError> {
        Err(ReadOnly::ERROR)
    }
    fn not_written(&self, _: u32, _: FlashError) -> bool {
        false
    }
    fn unreadable(&self, flash_page: u32, error: FlashError) {
        self.pool.unreadable(flash_page, error);
    }
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
