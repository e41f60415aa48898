//! A pool that grows while it is open: its files first, then the list of them, where there are
//! several, then its superblock, then its tables.
//!
//! At every moment the pool is whole in its old size or its new one, because nothing is written
//! behind the old end before the superblock says the new one. The store decides when to grow
//! ([`Pool::wants_to_grow`]).

use std::sync::Arc;

use fulgurite_backing::{Files, Kept, Opened};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_store::Pool;

use crate::error::Error;

/// A pool in this process, and the files that it is stored in.
#[derive(Clone)]
pub(crate) struct Growth {
    pool: Arc<Pool>,
    files: Arc<Files>,
    /// Extents up to which it grows by itself; 0: it does not.
    limit: u32,
}

impl Growth {
    pub fn of(opened: &Opened) -> Option<Growth> {
        match (&opened.kept, &opened.files) {
            (Some(Kept::Here(pool)), Some(files)) => {
                Some(Growth { pool: pool.clone(), files: files.clone(), limit: opened.grows_to })
            }
            _ => None,
        }
    }
    /// Whether it grows by itself.
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }
    /// Grows to `bytes` bytes.
    pub fn set_bytes(&self, bytes: u64) -> Result<(), Error> {
        self.grow(u32::try_from(bytes / self.extent_bytes()).unwrap_or(u32::MAX))
    }
    fn extent_bytes(&self) -> u64 {
        u64::from(self.pool.geometry().extent_pages) * SUBPAGE_BYTES as u64
    }
    /// Bytes of flash that it has.
    pub fn bytes(&self) -> u64 {
        u64::from(self.pool.geometry().extents) * self.extent_bytes()
    }
    /// Whether it is as large as it may become by itself.
    pub fn is_at_limit(&self) -> bool {
        self.pool.geometry().extents >= self.limit
    }
    /// Has writers wake the thread that syncs when the pool should grow.
    pub fn watch(&self, watched: bool) {
        self.pool.set_grows_to(if watched && !self.is_at_limit() { self.limit } else { 0 });
    }
    /// Grows if it should.
    pub fn turn(&self) -> Result<(), Error> {
        while let Some(extents) = self.pool.wants_to_grow(self.limit) {
            self.grow(extents)?;
        }
        Ok(())
    }
    fn grow(&self, extents: u32) -> Result<(), Error> {
        // Checked before a file is touched.
        self.pool.may_grow(extents)?;
        self.files.grow(extents, self.pool.geometry().extent_pages)?;
        Ok(self.pool.grow(extents)?)
    }
}
