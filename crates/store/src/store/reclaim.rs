//! Reclaim: extents with little live data are emptied, ahead of need.

use fulgurite_format::{FlashPage, Owner, Record};

use super::{Io, N, Outcome, Purpose, Store};
use crate::extents::Writer;
use crate::geometry::{METADATA_RESERVE, RECLAIM_AHEAD};
use crate::reclaim::Reclaim;
use crate::state::Held;

impl Store {
    pub(super) fn start_reclaim(&mut self) -> bool {
        if self.reclaim.is_some() || self.poisoned.is_some() {
            return self.reclaim.is_some();
        }
        let worth = (self.geometry().data_pages() / 64).max(1);
        let full = self.geometry().data_pages() - worth;
        let state = &self.state;
        let Some(extent) = self.extents.victim(self.config.victims, |e| state.live(e)) else { return false };
        if self.state.live(extent) > full {
            self.extents.give_up(extent);
            return false;
        }
        self.reclaim = Some(Reclaim::new(extent, self.geometry()));
        true
    }
    pub(super) fn advance_reclaim(&mut self) {
        // Ahead of need: before writers have to wait.
        let low = self.reserve() + RECLAIM_AHEAD + self.geometry().extents / 64;
        if self.extents.free() < low {
            if self.reclaim.is_none() {
                self.start_reclaim();
            }
            if self.extents.emptied() > 0 && self.extents.free() <= self.reserve() + 1 {
                self.commit_wanted = true;
                self.advance_commit();
            }
        }
        let Some(mut reclaim) = self.reclaim.take() else { return };
        if let Some(place) = reclaim.next_read() {
            self.send(Purpose::ReclaimRead, Io::Read { place });
        }
        let reserve = METADATA_RESERVE + self.checkpoint_extents();
        while let Some((subpage, from)) = reclaim.next_copy(&self.state) {
            let Some(to) = self.extents.give(Writer::Reclaim, self.heat.degree(subpage), reserve) else {
                self.commit_wanted |= self.extents.emptied() > 0;
                reclaim.found_no_room();
                break;
            };
            reclaim.begun();
            self.send(Purpose::ReclaimCopy { from, to }, Io::Copy { from, to });
        }
        self.note_filled();
        if reclaim.is_over() {
            self.end_reclaim(&mut reclaim);
        } else {
            self.reclaim = Some(reclaim);
        }
    }
    pub(super) fn end_reclaim(&mut self, reclaim: &mut Reclaim) {
        let extent = reclaim.extent();
        if self.state.live(extent) > 0 {
            if reclaim.walk(&self.state) {
                // The summary did not name all owners: the page table does.
                self.reclaim = Some(std::mem::replace(reclaim, Reclaim::new(extent, self.geometry())));
                return;
            }
            self.extents.give_up(extent);
        } else {
            self.counters.reclaimed += 1;
        }
    }
    pub(super) fn reclaim_read(&mut self, outcome: Outcome) {
        let (pool, state) = (self.pool, &self.state);
        if let Some(reclaim) = &mut self.reclaim {
            match outcome {
                Outcome::Read(page) => reclaim.read(&page, pool, state),
                _ => reclaim.unreadable(state),
            }
        }
    }
    pub(super) fn reclaim_copied(&mut self, from: u32, to: u32, outcome: Outcome) {
        let Some(subpage) = self.reclaim.as_mut().and_then(|r| r.copied(from)) else {
            self.extents.settled(to, None);
            return;
        };
        let Outcome::Copied(checksum) = outcome else {
            // It stays where it is; its extent is not reclaimed this time.
            self.extents.settled(to, None);
            self.counters.damaged += 1;
            self.note_filled();
            return;
        };
        let (page, old) = (subpage / N, Held { subpage: subpage % N, place: from });
        let expected = self.state.checksum(page, old).filter(|_| self.state.is_live(page, old));
        let Some(expected) = expected else {
            // Overwritten meanwhile.
            self.extents.settled(to, None);
            self.note_filled();
            return;
        };
        if checksum != expected {
            // What is wrong stays recognisable: the checksum that is expected does not change.
            self.counters.damaged += 1;
        }
        self.extents.settled(to, Some(Owner { subpage, checksum: expected }));
        let record =
            Record::Move { page, subpages: 1 << old.subpage, from: FlashPage(from.into()), to: FlashPage(to.into()) };
        self.counters.copied += 1;
        let _ = self.record(record);
        self.note_filled();
    }
}
