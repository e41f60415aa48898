//! Leaves: what the map and the slots know of a page of objects. They may be on flash alone.
//!
//! A pool may have more objects than there is DRAM for 16 bytes of each. Then leaves leave DRAM.
//! Their only copy is the checkpoint in effect, which has all of them anyway. The entry of the page
//! table and the slot of the map stay, 24 bytes for 16 objects.
//!
//! A page may go *out* when
//! * it has one version, and that is objects alone: so whatever asks for flash pages of whole
//!   subpages, or for older versions, need not read it;
//! * the oldest kept token sees that version: so no roll back changes it;
//! * it stays when its process ends;
//! * it has not changed since its piece of the checkpoint in effect was made;
//! * it is not pinned.
//!
//! Which leaves go is decided by a clock, over the pages whose leaves are here.
//!
//! Invariants: what is out is needed and counted as before ([`crate::objects`]). A piece is read
//! under the checksum that it had when it was written. Nothing here differs from a pool whose
//! leaves all stay, but for what is where.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::fast::FixedState;
use fulgurite_format::{
    EntryIndex, FlashPage, Header, History, Kind, Malformed, ObjectLocation, PageBuffer, PageEntry, PoolId, Reader,
    Status,
};

use super::objects::objects_of;
use super::{N, PageSet, State, bits, status_of};
use crate::geometry::SUBPAGES_PER_PAGE;
use crate::map::{Located, PageLocations};
use crate::table::EMPTY;

/// The most DRAM of a leaf: two blocks of the map, and 16 slots.
pub const LEAF_BYTES: usize = 2 * 64 + N as usize * 12;
/// DRAM of a page of whole subpages: two blocks of the map.
pub const WHOLE_BYTES: usize = 2 * 64;
/// The least DRAM for leaves of objects that a budget is divided into, so that what is under way at
/// a time fits.
pub const LEAVES_MIN: usize = 1 << 20;
/// DRAM in addition to the leaves: pieces that were read for the next checkpoint and for reclaim,
/// and what is noted of writes under way.
const LEAVES_SLACK: usize = 512 << 10;
/// DRAM of a block of the map, and of a leaf of one object.
const BLOCK: usize = 64;
const LEAF_ONE: usize = BLOCK + 12;
/// The most DRAM for blocks that come at once.
const BLOCKS_AT_ONCE: usize = 256 << 10;
/// The mark of a page whose leaf stays in DRAM.
const HELD: u8 = 2;
/// Bytes of a checkpoint's header before its histories.
const PIECE_HEAD: usize = 16;

/// Objects of a page: the subpage's number in the page, where it is stored, and its checksum.
pub type Leaf = Vec<(u32, ObjectLocation, u32)>;

/// A page of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first page that it is about.
    pub first: u32,
    /// Its flash page.
    pub place: u32,
    /// Its checksum.
    pub checksum: u32,
}

impl Piece {
    /// The leaves in it, when this is what was read from its flash page.
    ///
    /// # Errors
    /// When something else is there.
    pub fn open(&self, pool: PoolId, page: &PageBuffer) -> Result<Vec<(u32, Leaf)>, Malformed> {
        let (header, checksum, payload) = Header::open(page).map_err(|_| Malformed)?;
        let right = header.kind == Kind::Checkpoint && header.pool == pool && header.place == self.place;
        if !right || checksum != self.checksum || payload.len() < PIECE_HEAD {
            return Err(Malformed);
        }
        let (mut r, mut leaves) = (Reader(&payload[PIECE_HEAD..]), Vec::new());
        while !r.is_empty() {
            let history = History::decode(&mut r, SUBPAGES_PER_PAGE)?;
            leaves.extend(leaf_of(&history.versions).map(|leaf| (history.page, leaf)));
        }
        Ok(leaves)
    }
}

/// The leaf of a history, if it may go out as far as the history shows.
pub fn leaf_of(versions: &[(PageEntry, Vec<u32>)]) -> Option<Leaf> {
    let [(entry, words)] = versions else { return None };
    let only_objects = entry.status().has(Status::OBJECTS) && !entry.status().has(Status::DELETED);
    only_objects.then(|| bits(entry.valid()).zip(objects_of(words)).map(|(s, (at, sum))| (s, at, sum)).collect())
}

/// What is known of leaves.
#[derive(Debug)]
pub(super) struct Leaves {
    /// The most DRAM that they should take.
    budget: usize,
    /// Pages that have changed since their piece of the checkpoint in effect was made, and how many
    /// of them may leave DRAM once the next one is. Then both numbers for the checkpoint that is
    /// being made, or of which there is no piece yet.
    changed: PageSet,
    changed_count: usize,
    since: PageSet,
    /// Changed pages that had whole subpages or older versions when the checkpoint came into
    /// effect, so that they cannot leave as they are. Then their number and the DRAM that they
    /// take.
    rigid: PageSet,
    rigid_count: usize,
    rigid_bytes: usize,
    /// Others that have changed since the newest token, or since the oldest that has to be kept.
    unsettled: PageSet,
    unsettled_count: usize,
    /// Pages whose leaves are here, or were when the hand came by last.
    here: Vec<u32>,
    /// Pages that have changed since that checkpoint came into effect.
    fresh: usize,
    listed: PageSet,
    hand: usize,
    /// This number at the front of `here` could not go out, and nothing since could have changed
    /// that.
    stuck: usize,
    /// How many of `here` were checked.
    #[cfg(test)]
    leaves_checked: usize,
    /// By page: it was used since the hand came by, or does not go whatever the hand does.
    used: Arc<[AtomicU8]>,
    pinned: HashMap<u32, u32, FixedState>,
    /// The pieces of the checkpoint in effect, ascending.
    pieces: Vec<Piece>,
    out: u32,
}

impl Leaves {
    fn fixed_bytes(&self) -> usize {
        let sets = [&self.changed, &self.since, &self.rigid, &self.unsettled, &self.listed];
        sets.iter().map(|set| set.0.capacity() * 8).sum::<usize>() + self.used.len()
    }
    /// What comes with leaves and pieces.
    fn grown_bytes(&self) -> usize {
        self.here.capacity() * 4 + self.pieces.capacity() * size_of::<Piece>()
    }
}

/// Says of a page that its leaf is used, from any thread.
#[derive(Clone, Debug)]
pub struct Used(Option<Arc<[AtomicU8]>>);

impl Used {
    /// It is.
    #[inline]
    pub fn note(&self, page: u32) {
        if let Some(used) = self.0.as_ref().and_then(|used| used.get(page as usize))
            && used.load(Ordering::Relaxed) == 0
        {
            used.store(1, Ordering::Relaxed);
        }
    }
    /// Whether leaves may be out at all.
    pub fn is_paged(&self) -> bool {
        self.0.is_some()
    }
}

impl State {
    /// From now on leaves take at most `bytes` bytes of DRAM, as far as they may go out. This has
    /// no effect in a pool without objects.
    pub fn page_leaves(&mut self, bytes: usize) {
        if !self.geometry.objects || bytes == usize::MAX {
            return;
        }
        let set = || PageSet(vec![0; (self.geometry.pages() as usize).div_ceil(64)]);
        let used = (0..self.geometry.pages()).map(|_| AtomicU8::new(0)).collect();
        self.leaves = Some(Box::new(Leaves {
            budget: bytes,
            changed: set(),
            changed_count: 0,
            since: set(),
            rigid: set(),
            rigid_count: 0,
            rigid_bytes: 0,
            unsettled: set(),
            unsettled_count: 0,
            here: Vec::new(),
            fresh: 0,
            listed: set(),
            hand: 0,
            stuck: 0,
            #[cfg(test)]
            leaves_checked: 0,
            used,
            pinned: HashMap::default(),
            pieces: Vec::new(),
            out: 0,
        }));
    }
    /// The most DRAM of map and slots, where leaves may be out, and of what is noted of leaves as
    /// they grow.
    pub(super) fn leaves_bytes_at_most(&self) -> usize {
        let (whole, pages) = (self.map().bytes_max(), self.geometry.pages() as usize);
        let budget = self.leaf_budget().min(whole + self.objects.bytes_max());
        // What came once stays for others. Most blocks are there when each page has one object, and
        // most slots when it has sixteen.
        let (blocks, slots) = (budget / LEAF_ONE * BLOCK, budget / LEAF_BYTES * (LEAF_BYTES - WHOLE_BYTES));
        let blocks = whole.min(self.map().bytes_of_slots() + blocks + BLOCKS_AT_ONCE);
        // The list of the leaves that are here doubles, each of a block and a slot at least. So do
        // pieces, which hold some eighteen pages, and two checkpoints have them.
        let list = (budget / LEAF_ONE).min(pages) * 8;
        blocks + self.objects.bytes_max_with(slots) + list + pages / 4 * size_of::<Piece>() + LEAVES_SLACK
    }
    /// Whether leaves may be out.
    pub fn is_paged(&self) -> bool {
        self.leaves.is_some()
    }
    /// What says which leaves are used.
    pub fn used(&self) -> Used {
        Used(self.leaves.as_ref().map(|leaves| leaves.used.clone()))
    }
    /// Pages whose leaves are on flash alone.
    pub fn out_count(&self) -> u32 {
        self.leaves.as_ref().map_or(0, |leaves| leaves.out)
    }
    /// Whether the leaf of a page is on flash alone.
    pub fn is_out(&self, page: u32) -> bool {
        self.leaves.is_some() && self.map().is_out(page)
    }
    pub(super) fn leaves_fixed_bytes(&self) -> usize {
        self.leaves.as_ref().map_or(0, |leaves| leaves.fixed_bytes())
    }
    pub(super) fn leaves_grown_bytes(&self) -> usize {
        self.leaves.as_ref().map_or(0, |leaves| leaves.grown_bytes())
    }
    /// DRAM of the leaves that are here, without slots of older versions.
    pub fn leaf_bytes(&self) -> usize {
        let all = self.map.bytes_of_blocks() + self.objects.bytes_of_slots();
        all.saturating_sub(self.old.len() * 12)
    }
    /// The most DRAM that they should take.
    pub fn leaf_budget(&self) -> usize {
        self.leaves.as_ref().map_or(usize::MAX, |leaves| leaves.budget)
    }
    /// The part of it that is for leaves of objects.
    pub fn leaf_share(&self) -> usize {
        let budget = self.leaf_budget();
        // Where whole subpages have all of it, some is left, so that not each change waits for a
        // checkpoint.
        budget.saturating_sub(self.leaf_bytes_rigid()).max(budget / 4)
    }
    /// DRAM of the leaves that have to stay until a checkpoint is made, and of those in use.
    pub fn leaf_bytes_kept(&self) -> usize {
        self.leaves.as_ref().map_or(0, |leaves| (leaves.changed_count + leaves.pinned.len()) * LEAF_BYTES)
    }
    /// DRAM of the leaves that have changed since the last checkpoint came into effect.
    pub fn leaf_bytes_changed(&self) -> usize {
        self.leaves.as_ref().map_or(0, |leaves| leaves.fresh * LEAF_BYTES)
    }
    /// DRAM of the leaves that no checkpoint has go.
    fn leaf_bytes_rigid(&self) -> usize {
        self.leaves.as_ref().map_or(0, |leaves| leaves.rigid_bytes)
    }
    /// How many more pages of objects may change before the next token. Without a bound, of all.
    pub fn leaf_room(&self) -> u64 {
        let Some(leaves) = &self.leaves else { return u64::MAX };
        // The leaves of writes under way are pinned.
        let taken = leaves.rigid_bytes + (leaves.unsettled_count + leaves.pinned.len()) * LEAF_BYTES;
        (leaves.budget.saturating_sub(taken) / LEAF_BYTES) as u64
    }
    /// How many a token would make room for.
    pub fn unsettled_leaves(&self) -> u64 {
        self.leaves.as_ref().map_or(0, |leaves| leaves.unsettled_count as u64)
    }
    /// The piece of the checkpoint in effect that has the leaf of a page.
    pub fn piece_of(&self, page: u32) -> Option<Piece> {
        let leaves = self.leaves.as_ref()?;
        let behind = leaves.pieces.partition_point(|piece| piece.first <= page);
        behind.checked_sub(1).map(|at| leaves.pieces[at])
    }
    /// The piece behind the one that begins with this page.
    pub fn piece_behind(&self, piece: Piece) -> Option<Piece> {
        let leaves = self.leaves.as_ref()?;
        leaves.pieces.get(leaves.pieces.partition_point(|other| other.first <= piece.first)).copied()
    }

    /// A page has changed: its leaf stays until a checkpoint has it.
    pub(super) fn note_leaf(&mut self, page: u32) {
        let Some(leaves) = &mut self.leaves else { return };
        let new = usize::from(!leaves.changed.has(page));
        leaves.changed_count += new;
        leaves.fresh += new;
        leaves.changed.set(page, true);
        leaves.since.set(page, true);
        leaves.unsettle(page);
        leaves.list(page);
    }
    /// A page has changed, and its leaf stays if it has one: what programs see stays where it is.
    pub(super) fn note_leaf_if_any(&mut self, page: u32) {
        if self.leaves.is_some() && self.has_places(page) {
            self.note_leaf(page);
        }
    }
    /// The leaf of a page is here, as a checkpoint has it.
    pub(super) fn note_loaded(&mut self, page: u32) {
        if self.leaves.is_none() {
            return;
        }
        let (time, stays) = (self.time(self.table.head(page)), self.history.has(page) || self.has_whole(page));
        let unsettled = self.tokens.oldest_pinned().is_some_and(|pinned| time > pinned);
        let Some(leaves) = &mut self.leaves else { return };
        if unsettled {
            leaves.unsettle(page);
        }
        if stays {
            leaves.since.set(page, true);
        }
        leaves.list(page);
    }
    /// There is a new token. Older ones can be dropped for want of room, unless they are pinned.
    pub(super) fn settle_leaves(&mut self) {
        let all = self.tokens.as_slice().len();
        let is_free = self.tokens.superfluous(1).len() + 1 >= all;
        if let Some(leaves) = &mut self.leaves {
            leaves.stuck = 0;
            if is_free {
                leaves.unsettled.0.fill(0);
                leaves.unsettled_count = 0;
            }
        }
    }
    /// What kept leaves here may be otherwise.
    pub fn stir_leaves(&mut self) {
        if let Some(leaves) = &mut self.leaves {
            leaves.stuck = 0;
        }
    }
    /// A checkpoint begins: it has no piece yet.
    pub fn begin_pieces(&mut self) {
        if let Some(leaves) = &mut self.leaves {
            leaves.since.0.fill(u64::MAX);
        }
    }
    /// A piece of it has the leaf of this page, or nothing, because there is none.
    pub fn note_in_piece(&mut self, page: u32) {
        if let Some(leaves) = &mut self.leaves {
            leaves.since.set(page, false);
        }
    }
    /// Whether programs see anything of a page.
    fn has_places(&self, page: u32) -> bool {
        let places = self.map.page(page);
        (0..N).any(|subpage| places.get(subpage).is_some())
    }
    /// Whether programs see whole subpages of a page.
    fn has_whole(&self, page: u32) -> bool {
        let places = self.map.page(page);
        (0..N).filter_map(|s| places.get(s)).any(|located| !self.objects.has(located.place))
    }
    /// These are the pieces from now on.
    pub fn use_pieces(&mut self, pieces: Vec<Piece>) {
        let pages = self.geometry.pages();
        let Some(mut leaves) = self.leaves.take() else { return };
        leaves.pieces = pieces;
        leaves.fresh = 0;
        leaves.changed.0.copy_from_slice(&leaves.since.0);
        // Bits behind the last page stand for none.
        if !pages.is_multiple_of(64)
            && let Some(last) = leaves.changed.0.last_mut()
        {
            *last &= (1 << (pages % 64)) - 1;
        }
        leaves.stuck = 0;
        leaves.rigid.0.fill(0);
        (leaves.changed_count, leaves.rigid_count, leaves.rigid_bytes) = (0, 0, 0);
        let mut from = 0;
        while let Some(page) = leaves.changed.next(from).filter(|page| *page < pages) {
            if !self.has_places(page) {
                // It has no leaf, and will have changed when it has one.
                leaves.changed.set(page, false);
                leaves.settle(page);
            } else if self.history.has(page) || self.has_whole(page) {
                leaves.rigid_count += 1;
                leaves.rigid_bytes += if self.history.has(page) { LEAF_BYTES } else { WHOLE_BYTES };
                leaves.rigid.set(page, true);
                leaves.settle(page);
            } else {
                leaves.changed_count += 1;
            }
            from = page + 1;
        }
        self.leaves = Some(leaves);
    }
    /// The leaf of a page stays until as many calls of [`State::unpin_leaf`].
    pub fn pin_leaf(&mut self, page: u32) {
        if let Some(leaves) = &mut self.leaves {
            *leaves.pinned.entry(page).or_default() += 1;
        }
    }
    /// One reason less for it to stay.
    pub fn unpin_leaf(&mut self, page: u32) {
        let Some(leaves) = &mut self.leaves else { return };
        if let Some(pins) = leaves.pinned.get_mut(&page) {
            *pins -= 1;
            if *pins == 0 {
                leaves.pinned.remove(&page);
                leaves.stuck = 0;
            }
        }
    }

    /// Whether the oldest kept token sees the only version of a page, which is permanent.
    fn is_settled(&self, head: PageEntry) -> bool {
        let oldest = self.tokens.as_slice().first();
        head.previous() == EntryIndex::NONE
            && head.valid() != 0
            && !head.status().has(Status::DELETED)
            && head.status().has(Status::PERMANENT)
            && oldest.is_some_and(|oldest| self.time(head) <= oldest.token)
    }
    fn may_go_out(&self, page: u32) -> bool {
        let Some(leaves) = &self.leaves else { return false };
        if self.history.has(page)
            || leaves.changed.has(page)
            || leaves.pinned.contains_key(&page)
            || !self.is_settled(self.table.head(page))
        {
            return false;
        }
        let places = self.map.page(page);
        let mut lie = (0..N).filter_map(|subpage| places.get(subpage));
        lie.all(|located| self.objects.has(located.place))
    }
    fn put_out(&mut self, page: u32) {
        let (head, places) = (self.table.head(page), self.map.page(page));
        let valid = (0..N).filter(|subpage| places.get(*subpage).is_some()).fold(0, |valid, s| valid | (1 << s));
        let status = status_of(head).with(Status::MAPPED);
        // The map first: a reader that finds a slot unchanged knows what it was.
        self.map.set_out(page);
        self.table.set_head(page, PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, head.time(), status));
        (0..N).filter_map(|subpage| places.get(subpage)).for_each(|l| _ = self.objects.put_out(l.place));
        self.leaves.as_mut().expect("leaves may be out").out += 1;
    }
    /// Keeps the leaves of these pages in DRAM, as far as they are there, even when room is needed
    /// (`held`), or lets them leave again.
    pub fn hold_back_leaves(&self, pages: impl Iterator<Item = u32>, held: bool) {
        let Some(leaves) = &self.leaves else { return };
        pages.for_each(|page| leaves.used[page as usize].store(if held { HELD } else { 1 }, Ordering::Relaxed));
    }
    /// How many leaves were checked to make room.
    #[cfg(test)]
    pub fn leaves_checked(&self) -> usize {
        self.leaves.as_ref().map_or(0, |leaves| leaves.leaves_checked)
    }
    /// Makes room for `bytes` more bytes of leaves. Returns whether there is. Where none could
    /// leave DRAM, only those are checked that have come since.
    pub fn make_leaf_room(&mut self, bytes: usize) -> bool {
        let Some(mut leaves) = self.leaves.take() else { return true };
        let budget = leaves.budget;
        let first = leaves.stuck;
        // Three times around: those that are used all the time go in the end.
        let mut left = 3 * (leaves.here.len() - first);
        self.leaves = Some(leaves);
        while self.leaf_bytes() + bytes > budget {
            leaves = self.leaves.take().expect("put back");
            let count = leaves.here.len() - first;
            if left == 0 || count == 0 {
                leaves.note_stuck(first);
                self.leaves = Some(leaves);
                return false;
            }
            left -= 1;
            #[cfg(test)]
            {
                leaves.leaves_checked += 1;
            }
            let at = first + leaves.hand.saturating_sub(first) % count;
            let page = leaves.here[at];
            let used = match leaves.used[page as usize].load(Ordering::Relaxed) {
                HELD => true,
                0 => false,
                _ => {
                    leaves.used[page as usize].store(0, Ordering::Relaxed);
                    left >= count
                }
            };
            self.leaves = Some(leaves);
            let gone = self.table.head(page) == EMPTY;
            let goes = !gone && !used && self.may_go_out(page);
            if goes {
                self.put_out(page);
            }
            let leaves = self.leaves.as_mut().expect("put back");
            if gone || goes {
                leaves.here.swap_remove(at);
                leaves.listed.set(page, false);
            } else {
                leaves.hand = at + 1;
            }
        }
        true
    }
    /// The leaf of a page that is out comes back. There should be room. Nothing changes where the
    /// page is not out.
    ///
    /// # Errors
    /// When it cannot be that page's.
    pub fn bring_in(&mut self, page: u32, leaf: &Leaf) -> Result<(), Malformed> {
        if !self.is_out(page) {
            return Ok(());
        }
        let head = self.table.head(page);
        let valid = leaf.iter().fold(0, |valid, (subpage, ..)| valid | (1 << subpage));
        let sane =
            |(_, at, checksum): &(u32, ObjectLocation, u32)| self.is_inside(*at) && (at.length > 0 || *checksum == 0);
        if valid != head.valid() || !leaf.iter().all(sane) {
            return Err(Malformed);
        }
        let mut places = PageLocations::NONE;
        for (subpage, at, checksum) in leaf {
            let place = self.objects.bring_in(*at);
            places.set(*subpage, Some(Located { place, checksum: *checksum }));
        }
        self.map.set_page(page, &places);
        let leaves = self.leaves.as_mut().expect("leaves may be out");
        leaves.out -= 1;
        leaves.used[page as usize].store(1, Ordering::Relaxed);
        leaves.list(page);
        Ok(())
    }
    /// Sets the versions of a page, as a checkpoint has them, without its leaf. Returns false, and
    /// changes nothing, where that has to stay.
    pub(super) fn load_out(&mut self, page: u32, versions: &[(PageEntry, Vec<u32>)]) -> bool {
        let Some(leaves) = &self.leaves else { return false };
        // A quarter is loaded, for what is replayed to fit as well.
        if self.leaf_bytes() < leaves.budget / 4 {
            return false;
        }
        let Some(leaf) = leaf_of(versions) else { return false };
        let (entry, _) = versions[0];
        let status = status_of(entry).with(Status::MAPPED);
        let head = PageEntry::new(FlashPage(0), EntryIndex::NONE, entry.valid(), entry.time(), status);
        let settled = self.is_settled(head) && leaf.len() == entry.valid().count_ones() as usize;
        if !settled || self.table.replace(page, &[head]).is_err() {
            return false;
        }
        leaf.iter().for_each(|(_, at, _)| self.objects.gain_out(*at));
        self.map.set_out(page);
        self.leaves.as_mut().expect("seen above").out += 1;
        true
    }
    /// Computes by other means what is noted of leaves. Returns how many objects are out.
    pub(super) fn audit_leaves(&self, wrong: &mut Vec<String>) -> u32 {
        let Some(leaves) = &self.leaves else { return 0 };
        let (mut out, mut objects, mut unlisted) = (0, 0, 0);
        for page in 0..self.geometry.pages() {
            let head = self.table.head(page);
            if !self.is_out(page) {
                unlisted += u32::from(self.has_places(page) && !leaves.listed.has(page));
                continue;
            }
            out += 1;
            objects += head.valid().count_ones();
            if !self.is_settled(head) || leaves.changed.has(page) {
                wrong.push(format!("page {page}: its leaf went out, and should be here"));
            }
            if self.piece_of(page).is_none() {
                wrong.push(format!("page {page}: no piece of the checkpoint has its leaf"));
            }
        }
        if (out, 0) != (leaves.out, unlisted) {
            let counted = leaves.out;
            wrong.push(format!("{counted} pages out counted, {out} found; {unlisted} others not listed"));
        }
        let count = |set: &PageSet| set.0.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        let found = [&leaves.changed, &leaves.rigid, &leaves.unsettled].map(count);
        let counted = [leaves.changed_count + leaves.rigid_count, leaves.rigid_count, leaves.unsettled_count];
        if found != counted {
            wrong.push(format!("{counted:?} pages noted, {found:?} found"));
        }
        objects
    }
    /// Whether a roll back to this token, or to the empty pool, changes a page.
    pub fn is_behind(&self, page: u32, token: u64) -> bool {
        let head = self.table.head(page);
        head != EMPTY && self.time(head) > token
    }
}

impl Leaves {
    fn unsettle(&mut self, page: u32) {
        if !self.rigid.has(page) && !self.unsettled.has(page) {
            self.unsettled.set(page, true);
            self.unsettled_count += 1;
        }
    }
    fn settle(&mut self, page: u32) {
        self.unsettled_count -= usize::from(self.unsettled.has(page));
        self.unsettled.set(page, false);
    }
    /// None of those from `first` on could go. Those that are held may later, and come last.
    fn note_stuck(&mut self, first: usize) {
        let mut end = first;
        for at in first..self.here.len() {
            if self.used[self.here[at] as usize].load(Ordering::Relaxed) != HELD {
                self.here.swap(end, at);
                end += 1;
            }
        }
        self.stuck = end;
    }
    /// Behind those that could not go out.
    fn list(&mut self, page: u32) {
        if !self.listed.has(page) {
            self.listed.set(page, true);
            self.here.push(page);
        }
    }
}
