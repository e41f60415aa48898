//! Journal pages and anchors that cannot be written where they belong go elsewhere, where recovery
//! looks for them.
//!
//! A page of the journal belongs behind the one before it. Recovery also looks for it at the first
//! places of the extent named next. It looks for the first page of an extent at the first places of
//! that, and there first. So the pages of a commit from the failed one on are sealed again for such
//! places, with their old numbers and records. Their old places do not count, whether they arrived
//! there or not.
//!
//! Invariants: nothing is sent to an extent before all earlier pages were written, and nothing
//! behind its first page before that one was. So the places that a page may go to were not written
//! since the extent was taken. A failed flash page is suspected, and recorded when another one was
//! written instead.

use fulgurite_format::{Header, Kind, NO_EXTENT, PageBuffer, StreamPosition};

use super::request::may_be_repeated;
use super::{Io, Outcome, Purpose, Store};
use crate::geometry::{ANCHOR_PAIRS_WITHOUT, FIRST_PLACES};
use crate::stream::Stream;

impl Store {
    /// Sends the pages of the commit that can go together: those that follow in one extent, or the
    /// first of an extent alone. Returns whether there were any.
    pub(super) fn send_journal(&mut self) -> bool {
        let geometry = self.state.geometry();
        let Some(commit) = &mut self.commit else { return false };
        let left = &commit.pages[commit.sent..];
        let Some((place, _)) = left.first() else { return false };
        let extent = geometry.extent_of(*place);
        let sequence = commit.end - left.len() as u64;
        let together = left.iter().take_while(|(place, _)| geometry.extent_of(*place) == extent).count();
        let together = if self.journal.extents.contains(&(extent, sequence)) { 1 } else { together };
        let copies: Vec<(u32, PageBuffer)> = left[..together].to_vec();
        let first = commit.sent;
        commit.sent += together;
        commit.pending = together;
        for (at, (place, page)) in (first..).zip(copies) {
            self.send(Purpose::Journal { at }, Io::Write { place, page });
        }
        true
    }
    /// A page of the commit was written, or not.
    pub(super) fn journal_done(&mut self, at: usize, outcome: &Outcome) {
        if let Outcome::Failed(error) = *outcome {
            if !may_be_repeated(error) {
                self.poison(error);
                return;
            }
            let commit = self.commit.as_mut().expect("its page was under way");
            let place = commit.pages[at].0;
            if commit.failed.is_none_or(|(first, _)| at < first) {
                commit.failed = Some((at, error));
            }
            self.suspect(place, error);
        }
        self.commit_done();
    }
    /// An anchor was written, or not.
    pub(super) fn anchor_done(&mut self, place: u32, outcome: &Outcome) {
        if let Outcome::Failed(error) = *outcome {
            if !may_be_repeated(error) {
                self.poison(error);
                return;
            }
            self.commit.as_mut().expect("its anchor was under way").failed = Some((usize::MAX, error));
            self.suspect(place, error);
        }
        self.commit_done();
    }
    /// The sent part of the commit has ended. Sends failed pages to another place, or else the next
    /// ones. Returns whether there were any.
    pub(super) fn commit_goes_on(&mut self) -> bool {
        let Some(commit) = &mut self.commit else { return false };
        match commit.failed.take() {
            Some((usize::MAX, error)) => {
                self.counters.repeated += 1;
                if self.turn_to_other_anchors() {
                    self.write_anchor();
                } else {
                    self.poison(error);
                }
                return true;
            }
            Some((at, error)) => {
                self.counters.repeated += 1;
                if self.seal_again(at).is_none() {
                    self.poison(error);
                }
                return self.poisoned.is_some() || self.send_journal();
            }
            None => {}
        }
        // Something was written: what failed before it is bad.
        let was_sent = commit.sent > 0;
        if was_sent {
            self.condemn();
        }
        was_sent && self.send_journal()
    }
    /// Makes journal pages from one of the commit on for places where recovery looks for it. None
    /// when no such place is left.
    fn seal_again(&mut self, from: usize) -> Option<()> {
        let geometry = self.state.geometry();
        let commit = self.commit.as_mut()?;
        let pages = commit.pages.split_off(from);
        commit.sent = from;
        let sequence = commit.end - pages.len() as u64;
        let (place, page) = pages.first()?;
        let (header, ..) = Header::open(page).expect("a page of the store");
        let failed = geometry.extent_of(*place);
        let (extent, index) = if self.journal.extents.contains(&(failed, sequence)) {
            (failed, place - geometry.first_of(failed) + 1)
        } else {
            (header.next_extent, 0)
        };
        if index == FIRST_PLACES {
            return None;
        }
        let at = self.journal.extents.iter().position(|(e, _)| *e == extent).expect("the page before names it");
        self.journal.extents[at].1 = sequence;
        self.journal.named = self.journal.extents.drain(at + 1..).map(|(extent, _)| extent).collect();
        let position = StreamPosition { extent, index, sequence, before: header.before };
        self.journal.stream = Stream::new(geometry, self.pool, Kind::Journal, position, NO_EXTENT);
        let count = pages.len();
        let waiting = std::mem::take(&mut self.journal.sealed);
        for (at, (_, page)) in pages.into_iter().chain(waiting).enumerate() {
            self.move_checkpoint();
            self.name_next_extent();
            if self.poisoned.is_some() {
                return Some(());
            }
            let (header, _, payload) = Header::open(&page).expect("a page of the store");
            let sealed = self.journal.stream.seal(payload, header.next_token, header.commit_offset);
            let commit = self.commit.as_mut().expect("it goes on");
            if at < count { commit.pages.push(sealed) } else { self.journal.sealed.push(sealed) }
        }
        self.move_checkpoint();
        assert!(self.poisoned.is_some() || self.journal.named.is_empty(), "pages further on need as many extents");
        Some(())
    }
    /// Where the journal behind a checkpoint begins is said by the anchor to come.
    fn move_checkpoint(&mut self) {
        let position = self.journal.stream.position();
        if self.checkpoint.as_ref().is_some_and(|writer| writer.anchor().journal.sequence == position.sequence) {
            self.name_next_extent();
            let next = self.journal.stream.next_extent();
            self.checkpoint.as_mut().expect("seen above").move_journal(position, next);
        }
    }
    /// The next anchor is written behind the failed pair. After as many failures as the search or
    /// the extent allows, it is written to the other extent, unless the one in effect is there.
    fn turn_to_other_anchors(&mut self) -> bool {
        let pairs = self.geometry().extent_pages / 2;
        let anchors = &mut self.anchors;
        anchors.failed += 1;
        if anchors.failed < ANCHOR_PAIRS_WITHOUT.min(pairs) {
            return true;
        }
        let is_last = anchors.extent != anchors.in_effect;
        (anchors.extent, anchors.index, anchors.failed) = (1 - anchors.in_effect, 0, 0);
        !is_last
    }
}
