//! Commits, and the checkpoints that take effect with them.

use fulgurite_format::{Anchor, FlashPage, Header, Kind, NO_EXTENT, Record, StreamPosition};

use super::{CHECKPOINT_DEPTH, Commit, Durability, Io, Phase, Purpose, Store, stamp};
use crate::checkpoint::CheckpointWriter;
use crate::geometry::{ANCHOR_EXTENTS, METADATA_RESERVE};
use crate::planted::Planted;
use crate::stream;

/// Extents of the journal that are no matter, however little they hold.
const SPARSE_JOURNAL: u64 = 4;

impl Store {
    pub(super) fn advance_commit(&mut self) {
        let checkpoint_written = self.checkpoint.as_ref().is_some_and(CheckpointWriter::is_written);
        if self.commit.is_some() {
            return;
        }
        if !(self.commit_wanted || checkpoint_written) {
            self.witness();
            return;
        }
        self.commit_wanted = false;
        if !self.journal.current.is_empty() {
            self.seal();
        }
        if self.poisoned.is_some() {
            return;
        }
        let pages = std::mem::take(&mut self.journal.sealed);
        // A commit without pages is no witness of the one before.
        self.witness_wanted &= pages.is_empty();
        let end = self.journal.stream.position().sequence;
        let token = self.state.tokens().newest();
        let tokens = self.state.tokens().to_vec();
        self.commit = Some(Commit {
            phase: Phase::Data,
            pending: 1,
            promises: !pages.is_empty(),
            pages,
            sent: 0,
            failed: None,
            end,
            token,
            tokens,
            checkpoint: checkpoint_written,
        });
        if self.config.planted == Some(Planted::AnchorFirst) && checkpoint_written {
            self.write_anchor();
            self.commit.as_mut().expect("made above").pending += 1;
        }
        if self.config.planted == Some(Planted::SkipDataFlush) {
            self.commit_done();
        } else {
            self.send(Purpose::Commit, Io::Flush);
        }
    }
    pub(super) fn commit_done(&mut self) {
        let Some(commit) = &mut self.commit else { return };
        commit.pending -= 1;
        if commit.pending > 0 || self.commit_goes_on() {
            return;
        }
        let Some(commit) = &mut self.commit else { return };
        let next = match commit.phase {
            Phase::Data if commit.pages.is_empty() => Phase::JournalFlush,
            Phase::Data => Phase::Journal,
            Phase::Journal => Phase::JournalFlush,
            Phase::JournalFlush => Phase::Anchor,
            Phase::Anchor => Phase::AnchorFlush,
            Phase::Witness => {
                self.commit = None;
                return;
            }
            Phase::AnchorFlush => {
                (self.anchors.in_effect, self.anchors.failed) = (self.anchors.extent, 0);
                self.retire_old_checkpoint();
                self.commit = None;
                return;
            }
        };
        let skip_flush = next == Phase::JournalFlush && commit.phase == Phase::Data;
        commit.phase = next;
        match next {
            Phase::Journal => {
                self.send_journal();
            }
            // Nothing was in the journal: the flush before was all.
            Phase::JournalFlush if skip_flush || self.config.planted == Some(Planted::SkipJournalFlush) => {
                commit.pending = 1;
                self.commit_done();
            }
            Phase::JournalFlush | Phase::AnchorFlush => {
                commit.pending = 1;
                self.send(Purpose::Commit, Io::Flush);
            }
            Phase::Anchor => {
                let (end, token, checkpoint) = (commit.end, commit.token, commit.checkpoint);
                self.durable_tokens = std::mem::take(&mut commit.tokens);
                // An anchor is a witness, too.
                let promises = commit.promises || self.witness_wanted;
                self.witness_wanted = promises && !checkpoint && self.config.durability != Durability::Cache;
                self.counters.commits += 1;
                self.extents.durable(end, self.state.wear());
                if let Some(token) = token {
                    self.durable_token = self.durable_token.max(token);
                }
                if checkpoint {
                    self.write_anchor();
                } else {
                    self.commit = None;
                }
            }
            Phase::Data | Phase::Witness => unreachable!("a first phase"),
        }
    }
    /// When nothing follows a commit, an empty page of the journal proves that it was durable,
    /// which distinguishes damage from a crash. It needs no flush of its own, because the next
    /// commit waits for its write.
    fn witness(&mut self) {
        if !std::mem::take(&mut self.witness_wanted) || self.poisoned.is_some() {
            return;
        }
        // Records made meanwhile must wait for their data. Then the next commit is the witness, as
        // it is when space is scarce.
        let idle = self.journal.current.is_empty() && self.journal.sealed.is_empty();
        if !idle || (self.journal.stream.wants_extent() && self.extents.free() <= METADATA_RESERVE) {
            return;
        }
        self.seal();
        if self.poisoned.is_some() {
            return;
        }
        let end = self.journal.stream.position().sequence;
        let pages = std::mem::take(&mut self.journal.sealed);
        let (promises, sent, failed, token, tokens) = (false, 0, None, None, Vec::new());
        let (phase, pending, checkpoint) = (Phase::Witness, 0, false);
        let commit = Commit { phase, pending, promises, pages, sent, failed, end, token, tokens, checkpoint };
        self.commit = Some(commit);
        self.send_journal();
    }

    // ---- checkpoint ----

    /// Whether an opened pool's metadata takes too many extents, and a checkpoint, for which there
    /// is room, would free them. Each life of a pool continues in a new extent of the journal. With
    /// crashes faster than checkpoints, all extents would come to hold a page of the journal each.
    pub(crate) fn is_scattered(&self) -> bool {
        let extents = self.journal.extents.len() as u64;
        let pages = self.journal.stream.position().sequence - self.journal.since;
        let sparse = extents > SPARSE_JOURNAL && 2 * pages < extents * u64::from(self.geometry().extent_pages);
        (sparse || self.is_scarce()) && self.has_room_for_checkpoint()
    }

    pub(super) fn start_checkpoint(&mut self) {
        if self.checkpoint.is_some() || self.poisoned.is_some() {
            return;
        }
        // The page being filled belongs to both, so it is ended. Records from the next page on are
        // replayed.
        if !self.journal.current.is_empty() {
            self.seal();
        }
        // The anchor says where the journal continues, so that damage to its first page hides
        // nothing.
        if self.extents.free() < 1 + u32::from(self.journal.stream.wants_extent()) {
            return;
        }
        self.name_next_extent();
        let Some(extent) = self.extents.take_for_metadata(self.state.wear()) else { return };
        let journal = self.journal.stream.position();
        let tokens = self.state.tokens().as_slice().to_vec();
        let at = StreamPosition { extent, ..StreamPosition::default() };
        let stream = stream::Stream::new(self.geometry(), self.pool, Kind::Checkpoint, at, NO_EXTENT);
        let journal_next = self.journal.stream.next_extent();
        let anchor = Anchor {
            next_token: self.state.next_token(),
            checkpoint: at,
            checkpoint_pages: 0,
            journal,
            journal_next,
            tokens,
            ..Anchor::default()
        };
        self.checkpoint = Some(CheckpointWriter::new(stream, anchor));
        self.wanted.put_off = None;
        self.state.begin_pieces();
        let _ = self.record_wear();
        let _ = self.record_times();
        let end = self.extents.limit() * self.geometry().extent_pages;
        for place in self.state.wear().places().iter().copied().filter(|place| *place < end).collect::<Vec<u32>>() {
            // What belongs to no page is not in the checkpoint but at the beginning of the journal
            // behind it.
            let _ = self.record(Record::Bad { place: FlashPage(place.into()) });
        }
    }
    /// Whether space is scarce, and it is the journal's that comes back.
    pub(super) fn is_scarce(&self) -> bool {
        self.extents.free() <= self.reserve() && self.journal.extents.len() > 3
    }
    /// Whether there is room for a checkpoint, and for the extent in which the journal goes on.
    pub(super) fn has_room_for_checkpoint(&self) -> bool {
        self.extents.free() >= self.checkpoint_extents() + u32::from(self.journal.stream.wants_extent())
    }
    pub(super) fn advance_checkpoint(&mut self) {
        let pages = self.journal.stream.position().sequence - self.journal.since;
        let long = pages >= self.config.checkpoint_after.max(2 * self.last_checkpoint.1);
        let long = long || self.leaves_want_checkpoint();
        let wanted = (long || self.is_scarce()) && self.checkpoint_put_off().is_none();
        if self.checkpoint.is_none() && wanted && self.has_room_for_checkpoint() {
            self.start_checkpoint();
        }
        self.repeat_checkpoint();
        let Some(mut writer) = self.checkpoint.take_if(|c| !c.failed) else { return };
        while writer.in_flight < CHECKPOINT_DEPTH && !writer.is_complete() {
            if writer.stream.wants_extent() && writer.stream.position().index + 1 == self.geometry().extent_pages {
                let Some(extent) = self.extents.take_for_metadata(self.state.wear()) else { break };
                writer.stream.go_on_in(extent);
                writer.extents.push(extent);
            }
            // Up to which record the piece is: the journal page being filled, and how far.
            let stamp = stamp(self.journal.stream.position().sequence, self.journal.current.len());
            match writer.next_page(&mut self.state, stamp) {
                Ok((place, page)) => {
                    writer.in_flight += 1;
                    self.send(Purpose::Checkpoint { place }, Io::Write { place, page });
                }
                Err(page) => {
                    self.checkpoint = Some(writer);
                    self.read_sources(page);
                    return;
                }
            }
        }
        self.checkpoint = Some(writer);
    }
    pub(super) fn write_anchor(&mut self) {
        let end = self.commit.as_ref().expect("in a commit").end;
        let writer = self.checkpoint.as_mut().expect("a checkpoint was written");
        writer.finish(end);
        let mut payload = Vec::new();
        writer.anchor().encode(&mut payload);
        let geometry = self.geometry();
        // Two neighbouring copies, so that damage to one flash page cannot bring back the anchor
        // before.
        if self.anchors.index + 2 > geometry.extent_pages {
            self.anchors.extent = 1 - self.anchors.extent;
            (self.anchors.index, self.anchors.failed) = (0, 0);
        }
        let first = geometry.first_of(ANCHOR_EXTENTS[self.anchors.extent]) + self.anchors.index;
        self.commit.as_mut().expect("in a commit").pending = 2;
        for place in [first, first + 1] {
            let header = Header {
                sequence: self.anchors.sequence,
                next_token: self.state.next_token(),
                ..Header::new(Kind::Anchor, self.pool, place)
            };
            let (page, _) = header.page(&payload);
            self.send(Purpose::Anchor { place }, Io::Write { place, page });
        }
        self.anchors.index += 2;
        self.anchors.sequence += 1;
    }
    /// The new checkpoint is in effect: what the one before needed is free.
    pub(super) fn retire_old_checkpoint(&mut self) {
        let Some(writer) = self.checkpoint.take() else { return };
        let anchor = writer.anchor().clone();
        let pages = anchor.checkpoint_pages;
        let old = std::mem::replace(&mut self.last_checkpoint, (writer.extents, pages));
        self.state.use_pieces(writer.pieces);
        for extent in old.0 {
            self.extents.free_metadata(extent, self.state.wear());
        }
        self.journal.since = anchor.journal.sequence;
        // An extent of the journal is past when the next one begins no later than the needed
        // journal.
        while self.journal.extents.get(1).is_some_and(|(_, first)| *first <= anchor.journal.sequence) {
            let (extent, _) = self.journal.extents.pop_front().expect("there are two");
            self.extents.free_metadata(extent, self.state.wear());
        }
        self.counters.checkpoints += 1;
        self.failed_checkpoints = 0;
        self.wanted.tries.clear();
        self.condemn();
    }
}
