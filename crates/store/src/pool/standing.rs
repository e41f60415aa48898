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
    /// DRAM in bytes that it has now, with its medium's. [`fulgurite_flash::Traits::dram_bytes`] is
    /// its maximum.
    pub fn dram_taken(&self) -> usize {
        let inner = self.lock();
        self.medium.traits().dram_bytes + inner.store.info().dram_bytes + inner.driver.bytes()
    }
    /// DRAM in bytes that a pool of this geometry sets aside, without its medium's and its queue's
    /// there. Known before there is one.
    #[must_use]
    pub fn dram_needed(geometry: Geometry, config: StoreConfig) -> usize {
        Store::dram_needed(geometry, config) + (depth_of(&config) + 1) * SUBPAGE_BYTES
    }
}
