//! Leaves that are on flash alone ([`crate::state`]): a caller that needs one says so, and asks
//! again.
//!
//! Programs read pieces with their own queues and hand them over ([`Store::learn`]). The store
//! reads for writes, which change leaves, and for reclaim, which only reads them, piece by piece.
//! It reads for the next checkpoint, which has to have all that the one in effect has.
//!
//! Half of the leaves' DRAM may have changed since the checkpoint in effect. When a quarter has
//! changed, the next one is made. So there are always leaves that can leave DRAM, unless a token
//! older than most of them is kept. For want of room such tokens are dropped, but for those that
//! are pinned and the newest. Then writers get [`WriteError::NoSpace`] until a sync. Room for what
//! a sync has to write is counted beforehand ([`Store::leaf_room_after`]).

use fulgurite_flash::FlashError;
use fulgurite_format::PageBuffer;

use super::request::is_of_the_page;
use super::{Io, N, Outcome, Purpose, Store, WriteError};
use crate::checkpoint::PIECES_AHEAD;
use crate::state::{LEAF_BYTES, Leaf, Piece, Used};

/// Pieces that are read at a time, for writes.
const DEPTH: usize = 16;
/// How often a checkpoint tries to read a piece again. The reads follow each other, as for data.
const TRIES: u32 = 24;

impl Store {
    /// What says which leaves are used; for readers.
    pub fn used(&self) -> Used {
        self.state.used()
    }
    /// The flash page to be read first, where the leaf of a page is on flash alone. If no piece has
    /// the leaf, [`Store::learn`] says so of any flash page.
    pub fn is_behind(&self, page: u32) -> Option<u32> {
        self.state.is_out(page).then(|| self.state.piece_of(page).map_or(0, |piece| piece.place))
    }
    /// This was read from a flash page, because [`Store::is_behind`] said so of a page.
    ///
    /// # Errors
    /// [`FlashError::Corrupt`] when it is not what was written there, or no piece has the leaf.
    pub fn learn(&mut self, page: u32, flash_page: u32, content: &PageBuffer) -> Result<(), FlashError> {
        if !self.state.is_out(page) {
            return Ok(());
        }
        let piece = self.state.piece_of(page).ok_or(FlashError::Corrupt)?;
        if piece.place != flash_page {
            return Ok(());
        }
        let leaves = piece.open(self.pool, content).map_err(|_| FlashError::Corrupt)?;
        let leaf = leaves.iter().find(|(of, _)| *of == page).ok_or(FlashError::Corrupt)?;
        self.bring_in(page, &leaf.1)
    }
    fn bring_in(&mut self, page: u32, leaf: &Leaf) -> Result<(), FlashError> {
        // Where there is none, it comes all the same: it can go again at once.
        self.state.make_leaf_room(LEAF_BYTES);
        self.wanted.failed.remove(&page);
        self.state.bring_in(page, leaf).map_err(|_| FlashError::Corrupt)
    }

    /// The number of pages whose leaves may have to stay for one change: a quarter of their share,
    /// and at least one. All where none is ever out.
    pub fn leaves_at_once(&self) -> usize {
        if self.state.is_paged() { (self.state.leaf_share() / 4 / LEAF_BYTES).max(1) } else { usize::MAX }
    }
    /// Whether the leaf of a page is here. Otherwise it is brought in; ask again.
    ///
    /// # Errors
    /// When its piece could not be read.
    fn want_leaf(&mut self, page: u32) -> Result<bool, WriteError> {
        if !self.state.is_out(page) {
            return Ok(true);
        }
        if let Some(error) = self.wanted.failed.remove(&page) {
            return Err(WriteError::Leaf(error));
        }
        if self.state.piece_of(page).is_none() {
            return Err(WriteError::Leaf(FlashError::Corrupt));
        }
        self.wanted.pages.insert(page);
        Ok(false)
    }
    /// How many of these subpages, counted from the first, can be written as far as it is about
    /// leaves. 0 while something must end first. The leaves of the others are brought in.
    ///
    /// # Errors
    /// When the leaf of the first cannot be read; when leaves that cannot go have all the room.
    pub(super) fn admit_leaves(
        &mut self,
        subpages: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Result<usize, WriteError> {
        if !self.state.is_paged() {
            return Ok(subpages.len());
        }
        // The first of them have come for this. They do not go again before it is done.
        let count = self.leaves_at_once();
        let first = || subpages.clone().take(count).map(|subpage| subpage / N);
        self.state.hold_back_leaves(first(), true);
        let most = self.room_for_leaves(subpages.len());
        self.state.hold_back_leaves(first(), false);
        let most = most?;
        let mut ready = 0;
        for (at, subpage) in subpages.take(most).enumerate() {
            match self.want_leaf(subpage / N) {
                Ok(true) if ready == at => ready += 1,
                Err(error) if at == 0 => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(ready)
    }
    /// The most pages whose leaves may change or come now.
    fn room_for_leaves(&mut self, pages: usize) -> Result<usize, WriteError> {
        let (share, kept) = (self.state.leaf_share(), self.state.leaf_bytes_kept());
        let may = (share / 2).saturating_sub(kept) / LEAF_BYTES;
        let mut count = pages.min(if kept == 0 { may.max(1) } else { may });
        while count > 0 {
            if self.state.make_leaf_room(count * LEAF_BYTES) {
                self.wanted.asked = None;
                return Ok(count);
            }
            count /= 2;
        }
        // The leaves of writes under way change, and can leave after the next checkpoint.
        let under_way = self.placed > 0 || self.objects.as_ref().is_some_and(|objects| objects.is_moving());
        if pages == 0 || under_way || self.checkpoint.is_some() {
            return Ok(0);
        }
        if let Some(error) = self.checkpoint_put_off() {
            // Nothing is full: what would make room cannot be read.
            return Err(WriteError::Leaf(error));
        }
        if self.wanted.asked.is_none_or(|before| self.counters.checkpoints <= before) {
            self.start_checkpoint();
            if self.checkpoint.is_some() {
                self.wanted.asked = Some(self.counters.checkpoints);
                return Ok(0);
            }
        }
        self.wanted.asked = None;
        // What a token keeps that can be dropped can go after one more.
        if self.drop_oldest()? {
            return Ok(0);
        }
        Err(WriteError::NoSpace { uncommitted: self.uncommitted })
    }
    /// For how many subpages, each of another page, leaves may change before the next sync.
    pub(super) fn leaf_room_after(&self, older: u64) -> u64 {
        // A page whose status changes changes one leaf.
        self.state.leaf_room().saturating_sub(older.div_ceil(N.into()))
    }
    /// Whether leaves for `subpages` changes are hardly left, and a sync would let others leave.
    pub(super) fn is_short_of_leaves(&self, subpages: u64) -> bool {
        let (room, unsettled) = (self.state.leaf_room(), self.state.unsettled_leaves());
        let wanted = subpages.min(room.saturating_add(unsettled) / 2);
        unsettled > wanted / 4 && room < wanted
    }
    /// Whether enough leaves have changed that a checkpoint should be made for them.
    pub(super) fn leaves_want_checkpoint(&self) -> bool {
        self.state.is_paged() && self.state.leaf_bytes_changed() > self.state.leaf_share() / 4
    }
    /// A place was given to a subpage: the leaf stays until the write has ended.
    pub(super) fn pin_placed(&mut self, place: u32, subpage: u32) {
        if self.state.is_paged() {
            self.state.pin_leaf(subpage / N);
            self.wanted.placed.insert(place, subpage / N);
        }
    }
    pub(super) fn unpin_placed(&mut self, place: u32) {
        if let Some(page) = self.wanted.placed.remove(&place) {
            self.state.unpin_leaf(page);
        }
    }
    /// Whether the leaves of all these pages are here, where they stay until
    /// [`Store::set_statuses`] or the next call of this. Otherwise they are brought in; ask again.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn hold_leaves(&mut self, pages: &[u32]) -> Result<bool, WriteError> {
        self.let_go_of_leaves();
        if !self.state.is_paged() {
            return Ok(true);
        }
        let mut all = true;
        for page in pages.iter().filter(|page| self.state.is_used(**page)).collect::<Vec<_>>() {
            self.state.pin_leaf(*page);
            self.wanted.statuses.push(*page);
            match self.want_leaf(*page) {
                Ok(here) => all &= here,
                Err(error) => {
                    self.let_go_of_leaves();
                    return Err(error);
                }
            }
        }
        Ok(all)
    }
    /// These leaves may leave DRAM again.
    pub fn let_go_of_leaves(&mut self) {
        for page in std::mem::take(&mut self.wanted.statuses) {
            self.state.unpin_leaf(page);
        }
    }
    /// Wants the leaves of objects that were moved, which were pinned. Returns whether all of them
    /// are here.
    pub(super) fn want_leaves(&mut self, pages: impl Iterator<Item = u32>) -> Result<bool, WriteError> {
        let mut all = true;
        for page in pages {
            all &= self.want_leaf(page)?;
        }
        Ok(all)
    }
    /// Whether no request waits for a leaf.
    pub(super) fn is_quiet_about_leaves(&self) -> bool {
        self.wanted.pages.is_empty() && self.wanted.reading.is_empty()
    }

    /// Reads pieces of which leaves are wanted.
    pub(super) fn advance_leaves(&mut self) {
        if self.wanted.pages.is_empty() || self.poisoned.is_some() {
            return;
        }
        let state = &self.state;
        self.wanted.pages.retain(|page| state.is_out(*page));
        let mut pieces = Vec::new();
        for page in &self.wanted.pages {
            if self.wanted.reading.len() == DEPTH {
                break;
            }
            let Some(piece) = state.piece_of(*page) else { continue };
            if self.wanted.reading.insert(piece.place) {
                pieces.push(piece);
            }
        }
        for piece in pieces {
            self.send(Purpose::Leaves(piece), Io::Read { place: piece.place });
        }
    }
    pub(super) fn leaves_read(&mut self, piece: Piece, outcome: Outcome) {
        self.wanted.reading.remove(&piece.place);
        let leaves = self.opened(piece, outcome);
        let of_it = |page: &u32| self.state.piece_of(*page) == Some(piece);
        // It is not the piece any more where another checkpoint has come into effect.
        let pages: Vec<u32> = self.wanted.pages.range(piece.first..).copied().take_while(of_it).collect();
        // Writes may need room that was not there.
        self.state.stir_leaves();
        for page in pages {
            self.wanted.pages.remove(&page);
            let brought = leaves
                .as_ref()
                .map_err(|error| *error)
                .and_then(|leaves| leaves.iter().find(|(of, _)| *of == page).ok_or(FlashError::Corrupt).cloned());
            if let Err(error) = brought.and_then(|(_, leaf)| self.bring_in(page, &leaf)) {
                self.wanted.failed.insert(page, error);
            }
        }
    }
    /// The leaves of a piece that was read.
    pub(super) fn opened(&mut self, piece: Piece, outcome: Outcome) -> Result<Vec<(u32, Leaf)>, FlashError> {
        match outcome {
            Outcome::Read(page) => piece.open(self.pool, &page).map_err(|_| FlashError::Corrupt),
            Outcome::Failed(error) => Err(error),
            Outcome::Done | Outcome::Copied(_) | Outcome::NotWritten(_) => unreachable!("the end of a read"),
        }
    }
    /// The checkpoint waits for the leaf of this page: reads its piece, and some behind it.
    pub(super) fn read_sources(&mut self, page: u32) {
        if self.state.piece_of(page).is_none() {
            // Nothing says where its objects are stored.
            self.poison(FlashError::Corrupt);
            return;
        }
        let Some(writer) = &mut self.checkpoint else { return };
        let mut next = self.state.piece_of(page);
        let mut asked = Vec::new();
        for _ in 0..PIECES_AHEAD {
            let Some(piece) = next else { break };
            if writer.sources.ask(piece) {
                asked.push(piece);
            }
            next = self.state.piece_behind(piece);
        }
        for piece in asked {
            self.send(Purpose::Source(piece), Io::Read { place: piece.place });
        }
    }
    pub(super) fn source_read(&mut self, piece: Piece, outcome: Outcome) {
        let leaves = self.opened(piece, outcome);
        let Some(writer) = &mut self.checkpoint else { return };
        match leaves {
            Ok(leaves) => {
                self.wanted.tries.remove(&piece.place);
                writer.sources.read(piece.first, Some(leaves));
            }
            Err(error) if is_of_the_page(error) => {
                writer.sources.read(piece.first, None);
                let tries = self.wanted.tries.entry(piece.place).or_default();
                *tries += 1;
                if *tries > TRIES {
                    // What the checkpoint in effect says can be read no more, and only there it is.
                    self.poison(error);
                }
            }
            // It says nothing of the page, which may be read later. The one in effect stays.
            Err(error) => {
                writer.sources.read(piece.first, None);
                writer.failed = true;
                self.wanted.put_off = Some((self.journal.stream.position().sequence, error));
            }
        }
    }
    /// Why a checkpoint was given up, if the journal has not grown since.
    pub(super) fn checkpoint_put_off(&self) -> Option<FlashError> {
        let now = self.journal.stream.position().sequence;
        self.wanted.put_off.filter(|(before, _)| now <= *before).map(|(_, error)| error)
    }
}
