//! How a store stands, and what its extents are used for.

use super::{Store, StoreCounters};
use crate::extents::Use;
use crate::wear::Fills;

/// How a store stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StoreInfo {
    /// Extents, and how many of them are free.
    pub extents: u32,
    /// Free extents.
    pub free_extents: u32,
    /// Flash pages with data that is needed.
    pub live: u64,
    /// Subpages written since the last token.
    pub uncommitted: u64,
    /// The fewest subpages that can be written before the next sync.
    pub room: u64,
    /// Subpages that may be unsynced, as things are, before writers get
    /// [`WriteError::NoSpace`](crate::WriteError::NoSpace). Bounded by
    /// [`StoreConfig::uncommitted_max`](crate::StoreConfig::uncommitted_max) or by the certain
    /// room.
    pub uncommitted_max: u64,
    /// Versions other than the newest.
    pub versions: u32,
    /// Pages of the journal since the last checkpoint.
    pub journal_pages: u64,
    /// Flash pages that failed and are not used any more.
    pub bad_pages: u32,
    /// Extents with too many of those, which are not used any more.
    pub retired_extents: u32,
    /// How often extents were filled since the pool was made.
    pub fills: Fills,
    /// Objects that are needed, older versions included.
    pub objects: u32,
    /// Pages whose objects' locations are on flash alone.
    pub pages_out: u32,
    /// DRAM in bytes, as it is.
    pub dram_bytes: usize,
    /// DRAM in bytes that it may come to, with all pages written and scattered, and history at its
    /// bound ([`StoreConfig::history_bytes`](crate::StoreConfig::history_bytes)), or as it is
    /// without one.
    pub dram_bytes_max: usize,
}

/// What the extents of a store are used for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ExtentUses {
    /// Superblock and anchors.
    pub fixed: Vec<u32>,
    /// Nothing.
    pub free: Vec<u32>,
    /// Data of programs, and summaries of it.
    pub data: Vec<u32>,
    /// Journal and checkpoint.
    pub metadata: Vec<u32>,
    /// Nothing any more: too many of their flash pages failed.
    pub retired: Vec<u32>,
}

impl Store {
    /// What it has done.
    pub fn counters(&self) -> StoreCounters {
        self.counters
    }
    /// How it stands.
    pub fn info(&self) -> StoreInfo {
        let room = self.room_for_changes();
        StoreInfo {
            extents: self.geometry().extents,
            free_extents: self.extents.free(),
            live: self.state.live_total(),
            uncommitted: self.uncommitted,
            room,
            uncommitted_max: self.uncommitted + room,
            versions: self.state.table().versions(),
            journal_pages: self.journal.stream.position().sequence - self.journal.since,
            bad_pages: self.state.wear().places().len() as u32,
            retired_extents: self.state.wear().retired(),
            fills: self.state.wear().summary(),
            objects: self.state.objects().count(),
            pages_out: self.state.out_count(),
            dram_bytes: self.dram_bytes(),
            dram_bytes_max: self.dram_bytes_max(),
        }
    }
    /// Whether the flash page at this place certainly holds a whole page of metadata: one of the
    /// journal, or of the checkpoint, that was durable before the state was that recovery found.
    /// Whatever else is in an extent of metadata may have been cut off by a power failure, in this
    /// life of the pool or an earlier one.
    pub fn was_durable(&self, place: u32) -> bool {
        let (extent, index) = (self.geometry().extent_of(place), place % self.geometry().extent_pages);
        if self.state.wear().contains(place) {
            return false;
        }
        let pages = &self.journal.extents;
        let of_journal = pages.iter().position(|(journal, _)| *journal == extent).is_some_and(|at| {
            // Where the journal broke off inside an extent, it goes on in the next one with the
            // number that was missing.
            let end = pages.get(at + 1).map_or(self.journal.stream.position().sequence, |(_, first)| *first);
            pages[at].1 + u64::from(index) < end
        });
        let (checkpoint, count) = &self.last_checkpoint;
        let number = |at: usize| at as u64 * u64::from(self.geometry().extent_pages) + u64::from(index);
        of_journal || checkpoint.iter().position(|used| *used == extent).is_some_and(|at| number(at) < *count)
    }
    /// What its extents are used for.
    pub fn uses(&self) -> ExtentUses {
        let mut uses = ExtentUses::default();
        for extent in 0..self.geometry().extents {
            match self.extents.use_of(extent) {
                Use::Fixed => uses.fixed.push(extent),
                Use::Free => uses.free.push(extent),
                Use::Metadata => uses.metadata.push(extent),
                Use::Retired => uses.retired.push(extent),
                Use::Open | Use::Closed | Use::Reclaimed | Use::Emptied { .. } => uses.data.push(extent),
            }
        }
        uses
    }
    /// Extents that hold nothing, ascending, none of whose flash pages failed.
    pub fn unused_extents(&self) -> Vec<u32> {
        let wear = self.state.wear();
        self.uses().free.into_iter().filter(|extent| wear.in_extent(*extent) == 0).collect()
    }
}
