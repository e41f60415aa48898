//! Reclaim: extents with little live data are emptied, ahead of need.

use fulgurite_flash::FlashError;
use fulgurite_format::{FlashPage, Owner, Record};

use super::request::is_of_the_page;
use super::{Io, N, Outcome, Purpose, Store};
use crate::extents::{Content, Writer};
use crate::geometry::{METADATA_RESERVE, RECLAIM_AHEAD};
use crate::reclaim::{Need, Reclaim};
use crate::state::Held;

impl Store {
    pub(super) fn start_reclaim(&mut self) -> bool {
        if self.is_reclaiming() || self.poisoned.is_some() {
            return self.is_reclaiming();
        }
        let roomy = self.extents.free() > self.reserve();
        let (state, policy) = (&self.state, self.config.victims);
        let content = |e: u32, live: u32| Content { live, compared: state.weighed(e), chains: state.chains_of(e) };
        let weighed = |e: u32| content(e, state.live(e));
        let mut victim = self.extents.victim(policy, roomy, state.wear(), weighed);
        if victim.is_none() && self.objects.is_some() {
            // Objects of many sizes may pack closer than their weight, which only a try shows.
            let at_least = |e: u32| content(e, state.live_at_least(e));
            victim = self.extents.victim(policy, roomy, state.wear(), at_least);
        }
        let Some(extent) = victim else { return false };
        self.levelling = false;
        self.reclaim_extent(extent, false);
        true
    }
    pub(super) fn is_reclaiming(&self) -> bool {
        self.reclaim.is_some() || self.objects.as_ref().is_some_and(|objects| objects.reclaim_moves().is_some())
    }
    /// Begins to empty an extent; one of objects whatever that gains, if it is `forced`.
    pub(super) fn reclaim_extent(&mut self, extent: u32, forced: bool) {
        if self.state.objects().live(extent) > 0 {
            self.reclaim_objects(extent, forced);
        } else {
            self.reclaim = Some(Reclaim::new(extent, self.geometry()));
        }
    }
    /// Begins to empty a seldom filled extent, if one is due. Without a gain of space, all of it
    /// must have room.
    fn start_levelling(&mut self) {
        if self.is_reclaiming() || self.poisoned.is_some() || self.extents.free() <= self.reserve() {
            return;
        }
        if let Some(extent) = self.extents.due_for_levelling(self.config.wear_spread, self.state.wear()) {
            self.levelling = true;
            self.reclaim_extent(extent, true);
        }
    }
    pub(super) fn advance_reclaim(&mut self) {
        self.start_levelling();
        // Ahead of need: before writers have to wait.
        let ahead = RECLAIM_AHEAD + self.geometry().extents / 64;
        let low = self.reserve() + ahead;
        if self.extents.free() < low {
            if !self.is_reclaiming() {
                self.start_reclaim();
            }
            if self.extents.emptied() > 0 && self.extents.free() <= self.reserve() + 1 {
                self.commit_wanted = true;
                self.advance_commit();
            }
        }
        self.note_copied_from();
        let Some(mut reclaim) = self.reclaim.take() else { return };
        if let Some(place) = reclaim.next_read() {
            self.send(Purpose::ReclaimRead, Io::Read { place });
        }
        // Objects are copied to an extent of their own, which is left to them.
        let reserve = METADATA_RESERVE + self.checkpoint_extents() + u32::from(self.objects.is_some());
        // Its records wait for the journal, too.
        let waiting =
            self.config.history_bytes != usize::MAX && self.journal.sealed.len() >= 2 * self.config.commit_after;
        self.commit_wanted |= waiting;
        let need = match self.extents.free() {
            free if free <= self.reserve() => Need::Now,
            free if free < low - ahead / 2 => Need::Soon,
            _ => Need::Ahead,
        };
        while !waiting && let Some((subpage, from)) = reclaim.next_copy(&self.state, &self.heat, need) {
            let degree = self.heat.degree(subpage);
            let Some(to) = self.extents.give(Writer::Reclaim, degree, reserve, self.state.wear()) else {
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
        self.note_copied_from();
    }
    /// What is being copied stays where it is until it was read, dead or not.
    pub(super) fn note_copied_from(&mut self) {
        let copying = self.reclaim.as_ref().filter(|reclaim| reclaim.is_copying()).map(Reclaim::extent);
        let objects = self.objects.as_ref().and_then(|objects| objects.copied_from());
        self.extents.set_copied_from(copying.or(objects), self.state.wear());
    }
    pub(super) fn end_reclaim(&mut self, reclaim: &mut Reclaim) {
        let extent = reclaim.extent();
        if self.state.live(extent) > 0 {
            if reclaim.walk(&self.state) {
                // The summary did not name all owners: the page table does.
                self.reclaim = Some(std::mem::replace(reclaim, Reclaim::new(extent, self.geometry())));
                return;
            }
            if reclaim.unreadable {
                self.extents.give_up_for_now(extent, self.state.weighed(extent));
            } else {
                self.extents.give_up(extent);
            }
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
        let checksum = match outcome {
            Outcome::Copied(checksum) => checksum,
            Outcome::NotWritten(error) => {
                if self.give_back(to, error)
                    && let Some(reclaim) = &mut self.reclaim
                {
                    reclaim.again(subpage, from);
                }
                return;
            }
            // It stays where it is; its extent is not reclaimed this time.
            Outcome::Failed(error) => {
                self.extents.settled(to, None);
                self.counters.damaged += 1;
                self.suspect(from, error);
                if let Some(reclaim) = &mut self.reclaim {
                    reclaim.unreadable |= is_of_the_page(error);
                }
                self.note_filled();
                return;
            }
            Outcome::Done | Outcome::Read(_) => unreachable!("the end of a copy"),
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
            self.suspect(from, FlashError::Corrupt);
        }
        self.extents.settled(to, Some(Owner { subpage, checksum: expected }));
        let record =
            Record::Move { page, subpages: 1 << old.subpage, from: FlashPage(from.into()), to: FlashPage(to.into()) };
        self.counters.copied += 1;
        self.counters.levelled += u64::from(self.levelling);
        self.record_move(record);
        self.note_filled();
        self.condemn();
    }
    /// Records a move. There is room for that ([`crate::state::State::room_for`]). Without it, the
    /// data would stay, and its extent would not be empty.
    pub(super) fn record_move(&mut self, record: Record) {
        let recorded = self.record(record);
        debug_assert!(recorded.is_ok() || self.poisoned.is_some(), "there is always room to move what is there");
    }
}
