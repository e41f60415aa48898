//! Flash pages that fail: they are recorded, and nothing is written to them again.
//!
//! One failure means little: with a loose cable, all flash pages fail. So a failed flash page is
//! first suspected, and recorded only after a later write elsewhere. When very many fail without
//! that, the device fails, and none of them is recorded.

use fulgurite_flash::FlashError;
use fulgurite_format::{FlashPage, Record};

use super::request::{is_of_the_page, may_be_repeated};
use super::{Outcome, Store};

/// Suspects beyond which it is the device that fails.
const SUSPECTS_MAX: usize = 64;
/// Checkpoints that may fail one after the other before the pool is poisoned.
const CHECKPOINT_TRIES: u32 = 3;

impl Store {
    /// A write failed, so nothing is stored at this place. Returns whether to try another one.
    pub fn not_written(&mut self, place: u32, error: FlashError) -> bool {
        self.placed = self.placed.saturating_sub(1);
        self.unpin_placed(place);
        self.give_back(place, error)
    }
    /// As [`Store::not_written`], for a copy.
    pub(super) fn give_back(&mut self, place: u32, error: FlashError) -> bool {
        self.extents.settled(place, None);
        self.suspect(place, error);
        self.note_filled();
        let repeat = self.poisoned.is_none() && may_be_repeated(error);
        self.counters.repeated += u64::from(repeat);
        repeat
    }
    /// A flash page could not be read, or did not hold what was written.
    pub fn unreadable(&mut self, place: u32, error: FlashError) {
        self.suspect(place, error);
    }
    pub(super) fn suspect(&mut self, place: u32, error: FlashError) {
        let known = self.state.wear().contains(place) || self.suspects.contains(&place);
        if is_of_the_page(error) && !known && place < self.geometry().flash_pages() {
            if self.suspects.len() == SUSPECTS_MAX {
                self.suspects.clear();
            }
            self.suspects.push(place);
        }
    }
    /// Something was written: so those that failed before are bad.
    pub(super) fn condemn(&mut self) {
        if self.suspects.is_empty() || self.poisoned.is_some() {
            return;
        }
        for place in std::mem::take(&mut self.suspects) {
            if !self.state.wear().contains(place) && self.record(Record::Bad { place: FlashPage(place.into()) }).is_ok()
            {
                self.extents.note_bad(place, self.state.wear());
            }
        }
    }

    /// A page of a checkpoint was written, or not: then it never takes effect, and another one is
    /// begun elsewhere.
    pub(super) fn checkpoint_done(&mut self, place: u32, outcome: &Outcome) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        checkpoint.in_flight -= 1;
        let Outcome::Failed(error) = *outcome else { return };
        checkpoint.failed = true;
        if !may_be_repeated(error) || self.failed_checkpoints == CHECKPOINT_TRIES {
            self.poison(error);
        }
        self.suspect(place, error);
    }
    /// Begins another checkpoint in place of a failed one, once nothing of that is in flight. Not
    /// where the medium did not read what it needs.
    pub(super) fn repeat_checkpoint(&mut self) {
        let Some(checkpoint) = self.checkpoint.take_if(|c| c.failed && c.in_flight == 0) else { return };
        if self.wanted.put_off.is_none() {
            self.failed_checkpoints += 1;
            self.counters.repeated += 1;
            self.start_checkpoint();
        }
        for extent in checkpoint.extents {
            self.extents.free_metadata(extent, self.state.wear());
        }
    }
}
