//! How much may be live in a pool of objects, so that every overwrite can be reclaimed, whatever
//! the mix.
//!
//! A pool of subpages limits its promise when it is made, and one of objects when it is full. Live
//! data is weighed ([`crate::objects::weight`]), so of extents below an average weight one can
//! always be packed into fewer flash pages. A write gets room when it is taken, for what it weighs
//! more than what it replaces. So in a full pool, overwrites of at most the old weight succeed.
//! Older versions that tokens keep are live as well. A writer that exceeds the rest between two
//! syncs gets [`WriteError::NoSpace`] until a sync drops them.
//!
//! Invariant: what programs see, or will see, weighs no more than `most_weight` said when it was
//! taken.

use fulgurite_format::{PAYLOAD_BYTES, SUBPAGE_BYTES};

use super::super::{Store, WriteError};
use super::streams;
use crate::extents;
use crate::geometry::{FIRST_EXTENT, Geometry, METADATA_RESERVE, RECLAIM_RESERVE};
use crate::objects::{PAGE_WEIGHT, weight};

/// Extents of the journal at which a checkpoint begins when space is scarce.
const JOURNAL: u32 = 4;
/// Bytes of a checkpoint for a subpage, and for a version of one.
const SUBPAGE_BYTES_OF_CHECKPOINT: u64 = 4;
const VERSION_BYTES_OF_CHECKPOINT: u64 = 40;
/// The most checkpoints of which the room is kept free.
const CHECKPOINTS: u32 = 4;
/// What new data leaves to changes of what is there: a part of the pool, within these bounds.
const PART_LEFT: u64 = 64;
const LEFT_LEAST: u64 = 64;
const LEFT_MOST: u64 = 1024;

impl Store {
    /// Bytes of a checkpoint: a page 22 and its share of a header, an object 12, a subpage 4 as in
    /// other pools.
    pub(in super::super) fn checkpoint_bytes_of_objects(&self) -> u64 {
        let state = &self.state;
        u64::from(state.geometry().pages()) * 24
            + u64::from(state.objects().count()) * 12
            + state.live_subpages() * SUBPAGE_BYTES_OF_CHECKPOINT
            + u64::from(state.table().versions()) * VERSION_BYTES_OF_CHECKPOINT
    }
    /// The most live weight in a pool of objects of this geometry, in addition to this pool's
    /// metadata.
    ///
    /// Extents that writers leave free, open ones, and the extents of journal and checkpoints hold
    /// nothing to reclaim. One of the others must always be worth it. It weighs its flash pages,
    /// less the gain, less one for the packing. A sixteenth stays free, as in a pool without
    /// objects, so that reclaim finds extents well worth it.
    pub(in super::super) fn most_weight(&self, g: Geometry) -> u64 {
        let wear = self.state.wear();
        let extents = g.extents.saturating_sub(wear.retired());
        // A checkpoint takes an extent more than it fills. Its fill is not rounded to extents, so
        // no write crosses a step.
        let metadata = self.checkpoint_bytes_of_objects() * u64::from(PAGE_WEIGHT) / PAYLOAD_BYTES as u64;
        let weight = |kept: u32, checkpoints: u32, of_each: u32| {
            let all =
                u64::from(extents.saturating_sub(kept + checkpoints)) * u64::from(of_each) * u64::from(PAGE_WEIGHT);
            all.saturating_sub(metadata * u64::from(checkpoints * of_each) / u64::from(g.extent_pages))
        };
        let left_free = RECLAIM_RESERVE + METADATA_RESERVE + 2;
        let open = streams::open_at_most(g) + extents::open_at_most(g);
        let kept = FIRST_EXTENT + left_free + open + JOURNAL;
        let closed = weight(kept, 3, g.data_pages() - g.worth() - 1);
        let roomy = weight(FIRST_EXTENT + RECLAIM_RESERVE + 4, CHECKPOINTS, g.data_pages());
        let failed = wear.places().len() as u64 * u64::from(PAGE_WEIGHT);
        closed.min(roomy - roomy / 16).saturating_sub(failed)
    }
    pub(in super::super) fn live_weight(&self) -> u64 {
        self.state.live_subpages() * u64::from(PAGE_WEIGHT) + self.state.objects().weight()
    }
    /// How much more may become live, in a pool of objects.
    pub(in super::super) fn room(&self) -> u64 {
        let Some(log) = &self.objects else { return 0 };
        let waiting: u64 = log.queue.iter().map(|page| page.objects.len() as u64).sum();
        let placed = self.placed.saturating_sub(waiting) * u64::from(PAGE_WEIGHT);
        self.most_weight(self.geometry()).saturating_sub(self.live_weight() + log.grows + placed)
    }
    /// Of the room for changes, how much a change that adds data leaves to those that replace or
    /// remove some. A removal writes some five subpages, and a sync follows when three quarters of
    /// this are taken, so about ten can be made in the smallest pools and 150 in large ones.
    pub(crate) fn room_left_by_new_data(&self) -> u64 {
        let pages = u64::from(self.extents.for_data()) * u64::from(self.geometry().data_pages());
        if self.objects.is_none() { 0 } else { (pages / PART_LEFT).clamp(LEFT_LEAST, LEFT_MOST) }
    }
    /// How many whole subpages may become live at least, whatever they replace. Without an end in a
    /// pool without objects.
    pub(in super::super) fn whole_subpages_allowed(&self) -> u64 {
        if self.objects.is_none() {
            return u64::MAX;
        }
        // A write makes one version for itself and one for what it hides. Checkpoints grow by that.
        let longer = u64::from(CHECKPOINTS) * (SUBPAGE_BYTES_OF_CHECKPOINT + 2 * VERSION_BYTES_OF_CHECKPOINT);
        let payload = PAYLOAD_BYTES as u64;
        self.room() * payload / (u64::from(PAGE_WEIGHT) * (payload + longer))
    }
    /// By how much a content of `bytes` bytes weighs more than what it replaces.
    pub(in super::super) fn growth(&self, subpage: u32, bytes: usize) -> u64 {
        let located = self.state.map().get(subpage);
        let before = located.map_or(0, |located| match self.state.objects().get(located.place) {
            Some(at) => weight(at.length.into()),
            None => PAGE_WEIGHT,
        });
        u64::from(weight(bytes).saturating_sub(before))
    }
    /// How many of these whole subpages the live weight allows. All of them in a pool without
    /// objects.
    pub(in super::super) fn fitting(&self, subpages: &[u32]) -> usize {
        if self.objects.is_none() {
            return subpages.len();
        }
        let mut room = self.room();
        let fits = |subpage: &&u32| {
            let whole = self.state.map().get(**subpage).is_some_and(|l| !self.state.objects().has(l.place));
            let grows = if whole { 0 } else { self.growth(**subpage, SUBPAGE_BYTES) };
            let left = room.checked_sub(grows);
            room = left.unwrap_or(room);
            left.is_some()
        };
        subpages.iter().take_while(fits).count()
    }
    pub(super) fn no_space(&self) -> WriteError {
        WriteError::NoSpace { uncommitted: self.uncommitted }
    }
}
