//! A pool of another size: how much there is, and how much of it programs may fill.
//!
//! The superblock alone has the size. So a pool grows by its superblock, once there is flash behind
//! its end. To shrink, reclaim's means move what is behind the new end, and the metadata continues
//! before it. Then the superblock is written, twice. The first copy has the new size when it is
//! whole, and until then the second has the old one. Both sizes are valid at that moment. Objects
//! move like all else, and are packed again as they do. A pool without objects begins to pack them
//! by the same steps, as its superblock says that it may.
//!
//! Invariant: when a smaller superblock is written, no extent behind its end is used. Neither the
//! anchor in effect nor the journal behind it names one, or a page behind the end of the data.

use fulgurite_flash::FlashError;
use fulgurite_format::{Header, Kind, NO_EXTENT, NotMetadata, PageBuffer, PoolId, Superblock, format_bytes};

use super::Store;
use super::retention::least_leaf_bytes;
use crate::extents::Use;
use crate::geometry::{FIRST_EXTENT, Geometry, GeometryError, RECLAIM_AHEAD, SUBPAGES_PER_PAGE};
use crate::objects::PAGE_WEIGHT;
use crate::recover::ReadPages;

/// Why a pool cannot have another size. It keeps its size, but data may have moved. After
/// [`ResizeError::Unsure`] the size is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum ResizeError {
    /// No pool has this size.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error("the flash has {}, and {} are needed; make it larger first", format_bytes(*.found), format_bytes(*.needed))]
    Medium { found: u64, needed: u64 },
    #[error(
        "the data reaches to byte {0}, older states that tokens keep included; delete the data behind the new end, \
         drop old tokens, or choose at least that for the data"
    )]
    Data(u64),
    #[error(
        "{} are live, older versions that tokens keep included, and a pool of this size holds {}; drop old tokens, or choose more",
        format_bytes(*.live), format_bytes(*.most)
    )]
    Live { live: u64, most: u64 },
    #[error("live data cannot be compacted any further; drop old tokens, or choose more")]
    NoRoom,
    #[error("a pool that packs objects stays one; create another one, and copy the data")]
    Objects,
    #[error(
        "a pool of this size may need {} of DRAM for the locations of its objects, and this one was opened with {}; open it \
         with more DRAM, or use `fulgurite pool resize`",
        format_bytes(*.needed), format_bytes(*.found)
    )]
    Dram { found: u64, needed: u64 },
    #[error("a pool has less than 16 TiB; choose less")]
    TooLarge,
    #[error("the pool has {}, and shrinks only while nobody has it open; use `fulgurite pool resize`", format_bytes(*.0))]
    Smaller(u64),
    #[error("extent {0} cannot be emptied, because part of it cannot be read; check the pool for damage")]
    Damaged(u32),
    #[error(
        "it is unknown whether the new size was written, because {0}; leave the flash as large as it is, open the \
         pool, and read its size"
    )]
    Unsure(FlashError),
}
impl ResizeError {
    /// Whether the pool may have the new size all the same, so that its flash must not shrink.
    pub fn is_unsure(&self) -> bool {
        matches!(self, ResizeError::Unsure(_))
    }
}

/// How far a pool is on its way to be smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shrink {
    /// Something was begun. Ask again when the store is quiet.
    Working,
    /// Nothing is left behind the new end: the superblock may be written.
    Done,
}

/// A pool grows by itself when more than this share of its flash pages for data is needed.
const FULL: (u64, u64) = (3, 4);
/// The share at which it has grown enough.
const ENOUGH: (u64, u64) = (2, 3);

/// How many extents a pool that grows by itself should have, of at most `limit`, when `needed` of
/// `all` flash pages for data are needed: enough for the rest not to be reclaimed all the while.
/// `short`: there is hardly room for changes. None: it stays as it is.
fn grown(geometry: Geometry, all: u64, needed: u64, short: bool, limit: u32) -> Option<u32> {
    let now = geometry.extents;
    if now >= limit || (!short && needed * FULL.1 <= all * FULL.0) {
        return None;
    }
    let wanted = (needed * ENOUGH.1).div_ceil(ENOUGH.0);
    let missing = wanted.saturating_sub(all).div_ceil(geometry.data_pages().into());
    // An eighth at least, so that it grows seldom.
    let more = missing.max((now / 8).into()).max(1);
    Some(u64::from(now).saturating_add(more).min(limit.into()) as u32)
}

impl Store {
    /// The pool has `extents` extents from now on, and its superblock says so: the new ones are
    /// free.
    pub fn grow(&mut self, extents: u32) {
        if extents > self.geometry().extents {
            self.state.grow(extents);
            self.extents.grow(extents);
            self.objects.iter_mut().for_each(|log| log.grow(extents));
            self.space_checked = (0, 0);
        }
    }
    /// Whether it may have `extents` extents with the DRAM that it has.
    pub(crate) fn may_grow(&self, extents: u32) -> Result<(), ResizeError> {
        let found = self.state.leaf_budget();
        let needed = least_leaf_bytes(Geometry { extents, ..self.geometry() });
        if found == usize::MAX || needed <= found {
            return Ok(());
        }
        Err(ResizeError::Dram { found: found as u64, needed: needed as u64 })
    }
    /// As [`grown`], as things are when `claimed` subpages that differ in DRAM are to be written.
    /// What a sync would let go of is no reason to grow.
    pub(crate) fn wants_to_grow(&self, claimed: u64, limit: u32) -> Option<u32> {
        if self.objects.is_some() {
            return self.wants_to_grow_for_objects(claimed, limit);
        }
        let for_data = self.extents.for_data();
        let unsynced = (self.state.old_count() as u64).min(self.uncommitted);
        let all = u64::from(for_data) * u64::from(self.geometry().data_pages());
        let short = self.room_in_space() + unsynced < claimed + all / 8;
        let needed = (self.state.live_total() + self.placed).saturating_sub(unsynced);
        grown(self.geometry(), all, needed, short, limit)
    }
    /// As [`Store::wants_to_grow`], where objects are packed: their room is counted by weight.
    fn wants_to_grow_for_objects(&self, claimed: u64, limit: u32) -> Option<u32> {
        let pages = |weight: u64| weight / u64::from(PAGE_WEIGHT);
        let most = self.most_weight(self.geometry());
        let unsynced = (self.state.old_count() as u64).min(self.uncommitted);
        // What an older content weighs is not known, but what one does on average.
        let contents = self.state.live_subpages() + u64::from(self.state.objects().count());
        let older = self.live_weight() / contents.max(1) * unsynced;
        let needed = most.saturating_sub(self.room()).saturating_sub(older);
        let short = self.room_in_space() + unsynced < claimed + pages(most) / 8;
        grown(self.geometry(), pages(most), pages(needed), short, limit)
    }
    /// Whether the pool may become so small, as far as is known before anything is moved.
    pub fn may_shrink(&self, to: Geometry) -> Result<(), ResizeError> {
        let now = self.geometry();
        if now.objects && !to.objects {
            return Err(ResizeError::Objects);
        }
        let used = (to.pages()..self.geometry().pages()).rev().find(|page| self.state.is_used(*page));
        if let Some(page) = used {
            return Err(ResizeError::Data((u64::from(page) + 1) * u64::from(SUBPAGES_PER_PAGE) * 4096));
        }
        let most = if to.objects {
            self.most_weight(to) / u64::from(PAGE_WEIGHT)
        } else {
            Geometry::new(to.flash_pages(), to.extent_pages, None)?.subpages.into()
        };
        let live = self.state.live_total();
        // A pool that packs objects promises less of its flash.
        if (to.extents < now.extents || to.objects != now.objects) && live > most {
            return Err(ResizeError::Live { live: live * 4096, most: most * 4096 });
        }
        Ok(())
    }
    /// Begins the next step towards `extents` extents. The store must be quiet, with one caller.
    ///
    /// # Errors
    /// When it does not go on; the store is used as before then.
    pub fn shrink(&mut self, extents: u32) -> Result<Shrink, ResizeError> {
        self.shrink_step(extents).inspect_err(|_| self.stop_shrinking())
    }
    /// The pool keeps its size, and uses what is behind the end again. A new attempt finds nothing
    /// done, because later records may name places there.
    pub fn stop_shrinking(&mut self) {
        self.extents.set_limit(self.geometry().extents);
        (self.given_up, self.shrunk) = (None, false);
    }
    fn shrink_step(&mut self, to: u32) -> Result<Shrink, ResizeError> {
        let all = self.geometry().extents;
        if self.poisoned.is_some() || !(FIRST_EXTENT..=all).contains(&to) {
            return Err(ResizeError::NoRoom);
        }
        let free = (FIRST_EXTENT..to).filter(|extent| self.extents.use_of(*extent) == Use::Free).count() as u32;
        let enough = self.reserve() + RECLAIM_AHEAD + 1;
        if to < all && free < enough {
            // Room is made before the end, while there is still some behind it.
            if self.extents.free() <= self.reserve() {
                return Err(ResizeError::NoRoom);
            }
            let (most, state) = (Some(self.geometry().data_pages() - self.geometry().worth()), &self.state);
            let weighed = |e: u32| (state.live(e), state.weighed(e));
            let at_least = |e: u32| (state.live_at_least(e), state.weighed(e));
            let victim = self.extents.victim_among(FIRST_EXTENT..to, most, weighed);
            let victim = victim.or_else(|| self.extents.victim_among(FIRST_EXTENT..to, most, at_least));
            self.reclaim_extent(victim.ok_or(ResizeError::NoRoom)?, false);
            return Ok(Shrink::Working);
        }
        if self.extents.limit() != to {
            self.extents.set_limit(to);
            self.note_filled();
            self.close_objects_behind(to);
        }
        let used = |use_of: Use| (to..all).find(|extent| self.extents.use_of(*extent) == use_of);
        if (to..all).any(|extent| matches!(self.extents.use_of(extent), Use::Emptied { .. })) {
            self.commit_wanted = true;
            return Ok(Shrink::Working);
        }
        if used(Use::Closed).is_some() {
            let state = &self.state;
            let live = |e: u32| (state.live(e), state.weighed(e));
            let extent = self.extents.victim_among(to..all, None, live).expect("one was seen");
            // One that could not be emptied last time was given up, and is the youngest.
            if self.given_up == Some(extent) {
                self.extents.give_up(extent);
                return Err(ResizeError::Damaged(extent));
            }
            self.given_up = Some(extent);
            self.reclaim_extent(extent, true);
            return Ok(Shrink::Working);
        }
        self.given_up = None;
        let position = self.journal.stream.position();
        let next = self.journal.stream.next_extent();
        if position.extent >= to || (next != NO_EXTENT && next >= to) {
            // The journal goes on where it said it would; so the rest of that is left empty.
            for _ in 0..self.config.commit_after.max(1) {
                self.seal();
            }
            self.commit_wanted = true;
            return Ok(Shrink::Working);
        }
        if used(Use::Metadata).is_some() || !self.shrunk {
            // Records until now name places behind the end: a checkpoint takes all of it.
            self.shrunk = used(Use::Metadata).is_none();
            self.start_checkpoint();
            return if self.checkpoint.is_some() { Ok(Shrink::Working) } else { Err(ResizeError::NoRoom) };
        }
        self.shrunk = false;
        Ok(Shrink::Done)
    }
}

/// Both copies of a superblock.
#[must_use]
pub fn superblock_pages(pool: PoolId, superblock: &Superblock) -> [(u32, PageBuffer); 2] {
    let mut payload = Vec::new();
    superblock.encode(&mut payload);
    [0, 1].map(|place| {
        let header = Header::new(Kind::Superblock, pool, place);
        (place, header.page(&payload).0)
    })
}

/// What to write so that both copies of the superblock agree: with the first, or, if that is
/// unusable, with the second. Nothing when both do, or none is usable.
pub fn superblock_repairs(flash: &mut dyn ReadPages) -> Vec<(u32, PageBuffer)> {
    let pages = [0, 1].map(|place| flash.read(place, 0));
    let good = |place: u32| {
        let page = pages[place as usize].as_ref().ok()?;
        let (header, _, payload) = Header::open(page).ok()?;
        let is_one = header.kind == Kind::Superblock && header.place == place;
        is_one.then_some((header.pool, Superblock::decode(payload).ok()?))
    };
    // What a later program has begun to write is not turned back.
    if pages.iter().flatten().any(|page| matches!(Header::open(page), Err(NotMetadata::Newer(_)))) {
        return Vec::new();
    }
    let Some((pool, superblock)) = good(0).or_else(|| good(1)) else { return Vec::new() };
    let right = superblock_pages(pool, &superblock);
    right.into_iter().filter(|(place, page)| pages[*place as usize].as_ref().ok() != Some(page)).collect()
}
