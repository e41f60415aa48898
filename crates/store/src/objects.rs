//! Objects: where each lies in the flash page that it shares with others.
//!
//! The rest of the store knows one number for the place of a subpage. For an object that number is a *slot*, told from a flash page by
//! its highest bit; a slot holds the flash page, the offset and the length. So versions, tokens and the map treat objects as they treat
//! subpages, and reclaim, which moves an object, changes its slot and nothing else.
//!
//! Slots are read without a lock. A slot is used again only after the version that had it is gone, and with it the word of the map that
//! led there: a reader who finds word and slot as before knows that the place was not used for anything else in between.
//!
//! Invariants: a slot belongs to one version of one subpage, or is free; of each extent, the units of the objects that are needed are
//! counted. A pool without objects has no slots, and an empty table of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fulgurite_format::{OBJECT_ALIGNMENT, ObjectPlace, SUBPAGE_BYTES};

use crate::geometry::Geometry;

/// The bit that tells a slot from a flash page.
const SLOT: u32 = 1 << 31;
/// Slots come in pieces of so many, which stay where they are.
const PIECE: usize = 1 << 13;
/// DRAM of such a piece.
pub const SLOT_PIECE_BYTES: usize = PIECE * size_of::<AtomicU64>();
/// Free slots that there is room for at once, at least; that room grows by an eighth.
const FREE_MIN: usize = 1 << 10;
/// DRAM for the slot of one more older version, with what is noted of it when it is free.
pub const OLDER_SLOT_BYTES: usize = 13;
/// Units of a flash page.
pub const UNITS_PER_PAGE: u32 = (SUBPAGE_BYTES / OBJECT_ALIGNMENT) as u32;

fn pack(place: ObjectPlace) -> u64 {
    // 32 + 16 + 16 bits.
    u64::from(place.flash_page) << 32 | u64::from(place.offset) << 16 | u64::from(place.length)
}
fn unpack(word: u64) -> ObjectPlace {
    ObjectPlace { flash_page: (word >> 32) as u32, offset: (word >> 16) as u16, length: word as u16 }
}

/// The most slots: as many objects as have room in flash, and as many again as there are subpages that were freed.
fn most(geometry: Geometry) -> u32 {
    let room = u64::from(geometry.flash_pages()) * u64::from(UNITS_PER_PAGE) + 2 * u64::from(geometry.subpages);
    if geometry.objects { room.min(u64::from(SLOT)) as u32 } else { 0 }
}

/// DRAM of so many slots.
fn piece_bytes(slots: u32) -> usize {
    (slots as usize).div_ceil(PIECE) * SLOT_PIECE_BYTES
}

/// A piece of the slots.
type Piece = Box<[AtomicU64]>;

/// The slots: eight bytes each, which any thread may read while they change.
#[derive(Debug)]
pub struct Slots {
    /// [`SLOT`]; 0 in a pool without objects, which may have that many flash pages.
    mark: u32,
    pieces: Box<[OnceLock<Piece>]>,
}

impl Slots {
    fn new(geometry: Geometry) -> Slots {
        let pieces = (most(geometry) as usize).div_ceil(PIECE);
        let mark = if geometry.objects { SLOT } else { 0 };
        Slots { mark, pieces: (0..pieces).map(|_| OnceLock::new()).collect() }
    }
    /// Whether the place of a subpage is a slot.
    #[inline]
    pub fn has(&self, place: u32) -> bool {
        place & self.mark != 0
    }
    fn word(&self, place: u32) -> Option<&AtomicU64> {
        let slot = (place & !SLOT) as usize;
        if self.has(place) { self.pieces.get(slot / PIECE)?.get()?.get(slot % PIECE) } else { None }
    }
    /// Where the object of a place lies; none when the place is not a slot.
    #[inline]
    pub fn get(&self, place: u32) -> Option<ObjectPlace> {
        // Acquire: whoever sees a place sees that its write has completed.
        Some(unpack(self.word(place)?.load(Ordering::Acquire)))
    }
}

/// The slots that are used, and what they make live.
#[derive(Debug)]
pub struct Objects {
    geometry: Geometry,
    slots: Arc<Slots>,
    /// Slots that were ever used, and those of them that are free.
    used: u32,
    free: Vec<u32>,
    /// Units of each extent that are needed. Empty in a pool without objects.
    units: Vec<u32>,
}

impl Objects {
    /// None.
    pub fn new(geometry: Geometry) -> Objects {
        let extents = if geometry.objects { geometry.extents as usize } else { 0 };
        Objects { geometry, slots: Arc::new(Slots::new(geometry)), used: 0, free: Vec::new(), units: vec![0; extents] }
    }
    /// The slots, which may be read while they change.
    pub fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }
    /// Objects that are needed, older versions and freed ones that a token tells apart included.
    pub fn count(&self) -> u32 {
        self.used - self.free.len() as u32
    }
    /// How many more there may be.
    pub fn room(&self) -> u32 {
        most(self.geometry) - self.count()
    }
    /// DRAM as it is.
    pub fn bytes(&self) -> usize {
        self.fixed_bytes() + piece_bytes(self.used) + self.free.capacity() * 4
    }
    /// DRAM when all subpages are objects, without that for older versions ([`Objects::history_bytes`]).
    pub fn bytes_max(&self) -> usize {
        let most = most(self.geometry).min(self.geometry.subpages);
        if most == 0 {
            return 0;
        }
        // An object that is overwritten has its slot until the new one is in its place.
        let free = most as usize;
        self.fixed_bytes() + piece_bytes(most) + (free + free / 8 + FREE_MIN) * 4
    }
    /// DRAM beyond that: for objects of older versions.
    pub fn history_bytes(&self) -> usize {
        self.bytes().saturating_sub(self.bytes_max())
    }
    fn fixed_bytes(&self) -> usize {
        self.slots.pieces.len() * size_of::<OnceLock<Piece>>() + self.units.capacity() * 4
    }
    /// Where the object of a place lies; none when the place is not a slot.
    pub fn get(&self, place: u32) -> Option<ObjectPlace> {
        self.slots.get(place)
    }
    /// Whether the place of a subpage is a slot.
    #[inline]
    pub fn has(&self, place: u32) -> bool {
        self.slots.has(place)
    }
    /// Flash pages that the objects of an extent would fill.
    pub fn live(&self, extent: u32) -> u32 {
        self.units(extent).div_ceil(UNITS_PER_PAGE)
    }
    /// Units of an extent that are needed.
    pub fn units(&self, extent: u32) -> u32 {
        self.units.get(extent as usize).copied().unwrap_or(0)
    }
    /// Flash pages that all objects would fill.
    pub fn live_total(&self) -> u64 {
        (0..self.units.len() as u32).map(|extent| u64::from(self.live(extent))).sum()
    }
    /// Takes a slot for an object. Nothing is counted until [`Objects::gain`].
    ///
    /// # Panics
    /// When there is no room, or the object lies nowhere.
    pub fn take(&mut self, place: ObjectPlace) -> u32 {
        assert!(self.room() > 0 && place.is_sane(), "no slot for {place:?}");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        let piece =
            self.slots.pieces[slot as usize / PIECE].get_or_init(|| (0..PIECE).map(|_| AtomicU64::new(0)).collect());
        piece[slot as usize % PIECE].store(pack(place), Ordering::Release);
        slot | SLOT
    }
    fn of(&self, place: u32) -> ObjectPlace {
        self.get(place).expect("a slot that is used")
    }
    fn extent_of(&self, at: ObjectPlace) -> usize {
        self.geometry.extent_of(at.flash_page) as usize
    }
    /// The version of a slot is needed.
    pub fn gain(&mut self, place: u32) {
        let at = self.of(place);
        let extent = self.extent_of(at);
        self.units[extent] += at.units();
    }
    /// The version of a slot is not needed any more, and its slot is free. Returns the extent that has lost its last object by that.
    pub fn lose(&mut self, place: u32) -> Option<u32> {
        let at = self.of(place);
        // A slot that is free holds nothing that could pass for its object.
        self.word_of(place).store(0, Ordering::Release);
        if self.free.len() == self.free.capacity() {
            // What is counted against a budget must not double.
            self.free.reserve_exact((self.free.len() / 8).max(FREE_MIN));
        }
        self.free.push(place & !SLOT);
        self.discount(at)
    }
    fn discount(&mut self, at: ObjectPlace) -> Option<u32> {
        let extent = self.extent_of(at);
        self.units[extent] -= at.units();
        (at.length > 0 && self.units[extent] == 0).then_some(extent as u32)
    }
    /// The object of a slot lies elsewhere. Returns the extent that has lost its last object by that.
    pub fn relocate(&mut self, place: u32, to: ObjectPlace) -> Option<u32> {
        let from = self.of(place);
        assert!(to.is_sane() && from.length == to.length, "{from:?} cannot be moved to {to:?}");
        self.word_of(place).store(pack(to), Ordering::Release);
        self.gain(place);
        self.discount(from)
    }
    fn word_of(&self, place: u32) -> &AtomicU64 {
        self.slots.word(place).expect("a slot that is used")
    }
    /// Compares what is counted with what was found: units of each extent, and objects.
    pub fn audit(&self, units: &[u32], count: u32, wrong: &mut Vec<String>) {
        for (extent, counted) in self.units.iter().enumerate() {
            if units[extent] != *counted {
                wrong.push(format!("extent {extent}: {counted} units of objects counted, {} found", units[extent]));
            }
        }
        if count != self.count() {
            wrong.push(format!("{} objects counted, {count} found", self.count()));
        }
    }
}

/// Packs objects of these lengths, in this order, into as few flash pages as a look at the last [`OPEN_PAGES`] allows: for each its page,
/// counted from 0, and its offset.
#[derive(Debug)]
pub struct Packer {
    /// Units that are taken of each page.
    pages: Vec<u32>,
}

/// Pages that are looked at for room.
pub const OPEN_PAGES: usize = 8;

impl Packer {
    /// No page yet.
    pub fn new() -> Packer {
        Packer { pages: Vec::new() }
    }
    /// Pages so far.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }
    /// The first page that may still take objects.
    pub fn first_open(&self) -> usize {
        self.pages.len().saturating_sub(OPEN_PAGES)
    }
    /// Where the next object goes.
    pub fn put(&mut self, length: u16) -> (usize, u16) {
        let units = ObjectPlace { flash_page: 0, offset: 0, length }.units();
        let open = self.first_open();
        let fits = self.pages[open..].iter().position(|taken| taken + units <= UNITS_PER_PAGE);
        let page = fits.map_or(self.pages.len(), |at| open + at);
        if page == self.pages.len() {
            self.pages.push(0);
        }
        let offset = self.pages[page] * OBJECT_ALIGNMENT as u32;
        self.pages[page] += units;
        (page, offset as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::with_objects(1024, 8, 1 << 16).unwrap()
    }
    fn place(flash_page: u32, offset: u16, length: u16) -> ObjectPlace {
        ObjectPlace { flash_page, offset, length }
    }

    #[test]
    fn live_units_follow_the_objects() {
        let mut objects = Objects::new(geometry());
        let (a, b) = (objects.take(place(40, 0, 100)), objects.take(place(41, 112, 4000 - 112)));
        [a, b].into_iter().for_each(|slot| objects.gain(slot));
        assert_eq!((objects.units(5), objects.live(5), objects.live_total()), (7 + 243, 1, 1));
        assert_eq!(objects.relocate(a, place(80, 16, 100)), None);
        assert_eq!((objects.units(5), objects.units(10)), (243, 7));
        assert_eq!(objects.lose(b), Some(5));
        assert_eq!(objects.lose(a), Some(10));
        assert_eq!(objects.count(), 0);
        // The slots are used again.
        assert_eq!(objects.take(ObjectPlace::FREED), a);
    }
    #[test]
    fn what_was_freed_takes_no_flash() {
        let mut objects = Objects::new(geometry());
        let freed = objects.take(ObjectPlace::FREED);
        objects.gain(freed);
        assert_eq!(objects.live_total(), 0);
        assert_eq!(objects.lose(freed), None);
    }
    #[test]
    fn it_never_takes_more_than_it_says() {
        let mut objects = Objects::new(geometry());
        let most = objects.bytes_max();
        assert!(objects.bytes() < most / 16, "{} of {most}", objects.bytes());
        let take = |objects: &mut Objects, n| {
            let slots: Vec<u32> = (0..n).map(|_| objects.take(place(40, 0, 16))).collect();
            slots.iter().for_each(|slot| objects.gain(*slot));
            slots
        };
        let slots = take(&mut objects, 1 << 16);
        slots.into_iter().for_each(|slot| _ = objects.lose(slot));
        assert!(objects.bytes() <= most && objects.history_bytes() == 0, "{} of {most}", objects.bytes());
        take(&mut objects, (1 << 16) + 20_000);
        assert!(objects.history_bytes() > 20_000 * 8 - (64 << 10), "{}", objects.history_bytes());
        assert!(objects.history_bytes() < 20_000 * OLDER_SLOT_BYTES + (64 << 10), "{}", objects.history_bytes());
    }
    #[test]
    fn a_pool_without_objects_has_no_table() {
        let objects = Objects::new(Geometry::new(1024, 8, None).unwrap());
        assert_eq!((objects.bytes(), objects.bytes_max()), (0, 0));
        assert_eq!((objects.room(), objects.get(5), objects.get(SLOT | 5)), (0, None, None));
    }
    #[test]
    fn pages_are_filled() {
        let mut packer = Packer::new();
        let at: Vec<(usize, u16)> = (0..33).map(|_| packer.put(128)).collect();
        assert_eq!((at[0], at[31], at[32]), ((0, 0), (0, 31 * 128), (1, 0)));
        let mut packer = Packer::new();
        let at: Vec<(usize, u16)> = [4000, 4096, 1, 80, 16].map(|length| packer.put(length)).into();
        // 4000 bytes leave six units: one byte takes one of them, 80 bytes five.
        assert_eq!(at, [(0, 0), (1, 0), (0, 4000), (0, 4016), (2, 0)]);
    }
}
