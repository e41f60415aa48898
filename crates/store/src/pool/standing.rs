//! How a pool stands: its counts, and what it takes of DRAM.

use fulgurite_format::SUBPAGE_BYTES;

use super::{Pool, depth_of};
use crate::geometry::Geometry;
use crate::store::{Store, StoreConfig, StoreCounters, StoreInfo};

impl Pool {
    /// How it stands.
    pub fn info(&self) -> StoreInfo {
        self.lock().store.info()
    }
    /// What it has done since it was opened.
    pub fn counters(&self) -> StoreCounters {
        self.lock().store.counters()
    }
    /// DRAM in bytes that it has now, with its medium's; what it may come to is [`fulgurite_flash::Traits::dram_bytes`] of it as a flash.
    pub fn dram_taken(&self) -> usize {
        let inner = self.lock();
        self.medium.traits().dram_bytes + inner.store.info().dram_bytes + inner.driver.bytes()
    }
    /// DRAM in bytes that a pool of this geometry sets aside, beside its medium's and what the queue of its own takes there; known before
    /// there is one.
    #[must_use]
    pub fn dram_needed(geometry: Geometry, config: StoreConfig) -> usize {
        Store::dram_needed(geometry, config) + (depth_of(&config) + 1) * SUBPAGE_BYTES
    }
}
