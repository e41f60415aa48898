//! Objects: where each is in the flash page that it shares with others.
//!
//! The store knows one number for the place of a subpage. For an object it is a *slot* with flash
//! page, offset and length, which its highest bit distinguishes from a flash page. So versions,
//! tokens and the map treat objects as subpages, and reclaim moves an object by changing its slot
//! only.
//!
//! Slots are read without a lock. A slot is reused only after its version, and the map's word that
//! led there, are deleted. A reader that finds word and slot unchanged knows that the place was not
//! reused in between.
//!
//! Objects are counted by weight, what packing takes for one at worst ([`weight`]), and not by
//! bytes. So what is counted can be packed into as much, whatever the mix.
//!
//! Invariants: a slot belongs to one version of one subpage, or is free. Each extent's weight of
//! needed objects is counted. A pool without objects has no slots, and an empty table of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fulgurite_format::{OBJECT_ALIGNMENT, ObjectLocation, Owner, SUBPAGE_BYTES};

use crate::geometry::Geometry;

/// The bit that distinguishes a slot from a flash page.
const SLOT: u32 = 1 << 31;
/// Slots come in pieces of this number, which stay where they are.
const PIECE: usize = 1 << 13;
/// DRAM of such a piece.
pub const SLOT_PIECE_BYTES: usize = PIECE * size_of::<AtomicU64>();
/// Free slots that there is room for at once, at least; that room grows by an eighth.
const FREE_MIN: usize = 1 << 10;
/// DRAM for the slot of one more older version, with what is noted of it when it is free.
pub const OLDER_SLOT_BYTES: usize = 13;
/// Units of a flash page.
pub const UNITS_PER_PAGE: u32 = (SUBPAGE_BYTES / OBJECT_ALIGNMENT) as u32;
/// The weight of a flash page. An extent of 65,536 of the heaviest weighs less than 2^32.
pub const PAGE_WEIGHT: u32 = 1 << 14;

/// By units.
const WEIGHTS: [u32; UNITS_PER_PAGE as usize + 1] = {
    let mut weights = [0; UNITS_PER_PAGE as usize + 1];
    let mut units = 1;
    while units <= UNITS_PER_PAGE {
        // Its share of the flash page, and of a page of the summary.
        let page = PAGE_WEIGHT.div_ceil(UNITS_PER_PAGE / units);
        weights[units as usize] = page + PAGE_WEIGHT.div_ceil(Owner::PER_PAGE as u32);
        units += 1;
    }
    weights
};

/// What an object takes of flash at worst, in parts of [`PAGE_WEIGHT`]: its share of a flash page
/// of its own kind, and its line in the extent's summary. Objects of any sizes that weigh as much
/// as n flash pages can be packed into n + 1, and mostly into fewer ([`TightPacker`]). One of no
/// bytes weighs nothing.
#[must_use]
pub const fn weight(length: usize) -> u32 {
    WEIGHTS[length.div_ceil(OBJECT_ALIGNMENT)]
}

fn pack(place: ObjectLocation) -> u64 {
    // 32 + 16 + 16 bits.
    u64::from(place.flash_page) << 32 | u64::from(place.offset) << 16 | u64::from(place.length)
}
fn unpack(word: u64) -> ObjectLocation {
    ObjectLocation { flash_page: (word >> 32) as u32, offset: (word >> 16) as u16, length: word as u16 }
}

/// The most slots: the objects that fit in flash, and a freed one for each subpage, twice.
fn most(geometry: Geometry) -> u32 {
    let room = u64::from(geometry.flash_pages()) * u64::from(UNITS_PER_PAGE) + 2 * u64::from(geometry.subpages);
    if geometry.objects { room.min(u64::from(SLOT)) as u32 } else { 0 }
}

/// DRAM of `slots` slots, with the tables that lead to their pieces.
fn piece_bytes(slots: u32) -> usize {
    let pieces = (slots as usize).div_ceil(PIECE);
    pieces * SLOT_PIECE_BYTES + table_bytes(pieces)
}
fn table_bytes(pieces: usize) -> usize {
    let entries = pieces.checked_ilog2().map_or(0, |last| (2 << last) - 1);
    entries * size_of::<OnceLock<Piece>>()
}

/// A piece of the slots.
type Piece = Box<[AtomicU64]>;
/// Pieces as they are needed. Each table has twice as many as the one before, and the first has
/// one. So a pool that grows needs no other tables.
type Table = Box<[OnceLock<Piece>]>;
/// The tables of the most slots that a pool can have.
const TABLES: usize = (SLOT as usize / PIECE).ilog2() as usize + 1;

/// The table of a piece, and its position there.
fn table_of(piece: usize) -> (usize, usize) {
    let table = (piece + 1).ilog2();
    (table as usize, piece + 1 - (1 << table))
}

/// The slots: eight bytes each, which any thread may read while they change.
#[derive(Debug)]
pub struct Slots {
    /// [`SLOT`]; 0 in a pool without objects, which may have that many flash pages.
    mark: u32,
    tables: Box<[OnceLock<Table>]>,
}

impl Slots {
    fn new(geometry: Geometry) -> Slots {
        let (mark, tables) = if geometry.objects { (SLOT, TABLES) } else { (0, 0) };
        Slots { mark, tables: (0..tables).map(|_| OnceLock::new()).collect() }
    }
    /// Whether the place of a subpage is a slot.
    #[inline]
    pub fn has(&self, place: u32) -> bool {
        place & self.mark != 0
    }
    fn word(&self, place: u32) -> Option<&AtomicU64> {
        if !self.has(place) {
            return None;
        }
        let slot = (place & !SLOT) as usize;
        let (table, at) = table_of(slot / PIECE);
        self.tables.get(table)?.get()?[at].get()?.get(slot % PIECE)
    }
    /// The word of a slot that may be the first of its piece, which is made if it is missing.
    fn made(&self, slot: u32) -> &AtomicU64 {
        let (table, at) = table_of(slot as usize / PIECE);
        let table = self.tables[table].get_or_init(|| (0..1 << table).map(|_| OnceLock::new()).collect());
        let piece = table[at].get_or_init(|| (0..PIECE).map(|_| AtomicU64::new(0)).collect());
        &piece[slot as usize % PIECE]
    }
    /// Where the object of a place is stored; none when the place is not a slot.
    #[inline]
    pub fn get(&self, place: u32) -> Option<ObjectLocation> {
        // Acquire: a reader that sees a place sees that its write has completed.
        Some(unpack(self.word(place)?.load(Ordering::Acquire)))
    }
}

/// The slots that are used, and what they make live.
#[derive(Debug)]
pub struct Objects {
    geometry: Geometry,
    slots: Arc<Slots>,
    /// Slots that were ever used, and the free ones of them.
    used: u32,
    free: Vec<u32>,
    /// Objects that are needed and whose slots are not in DRAM.
    out: u32,
    /// What is needed of each extent: its weight, and its units. Empty in a pool without objects.
    needed: Vec<Needed>,
    /// The weight of all that is needed.
    weight: u64,
}

/// The objects of an extent that are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needed {
    pub weight: u32,
    /// Their units of [`OBJECT_ALIGNMENT`] bytes.
    pub units: u32,
}

impl Needed {
    /// One more.
    pub fn add(&mut self, at: ObjectLocation) {
        self.weight += weight(at.length.into());
        self.units += at.units();
    }
    fn remove(&mut self, at: ObjectLocation) {
        self.weight -= weight(at.length.into());
        self.units -= at.units();
    }
}

impl Objects {
    /// None.
    pub fn new(geometry: Geometry) -> Objects {
        let extents = if geometry.objects { geometry.extents as usize } else { 0 };
        let needed = vec![Needed::default(); extents];
        Objects {
            geometry,
            slots: Arc::new(Slots::new(geometry)),
            used: 0,
            free: Vec::new(),
            out: 0,
            needed,
            weight: 0,
        }
    }
    /// The pool has `extents` extents from now on, more than before.
    pub fn grow(&mut self, extents: u32) {
        self.geometry.extents = extents;
        if self.geometry.objects {
            self.needed.reserve_exact(extents as usize - self.needed.len());
            self.needed.resize(extents as usize, Needed::default());
        }
    }
    /// The slots, which may be read while they change.
    pub fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }
    /// Objects that are needed, including older versions and freed ones that a token distinguishes.
    pub fn count(&self) -> u32 {
        self.slots_in_use() + self.out
    }
    fn slots_in_use(&self) -> u32 {
        self.used - self.free.len() as u32
    }
    /// How many more there may be.
    pub fn room(&self) -> u32 {
        most(self.geometry).saturating_sub(self.count())
    }
    /// DRAM of the slots in use, with what is noted of each when it is free.
    pub fn bytes_of_slots(&self) -> usize {
        self.slots_in_use() as usize * (size_of::<AtomicU64>() + size_of::<u32>())
    }
    /// DRAM when `slots` bytes of slots are here, and the slots of all other subpages are
    /// elsewhere.
    pub fn bytes_max_with(&self, slots: usize) -> usize {
        let in_use = slots / (size_of::<AtomicU64>() + size_of::<u32>());
        let pieces = SLOT_PIECE_BYTES + table_bytes(in_use / PIECE + 2);
        let taken = slots + in_use / 8 * 4 + FREE_MIN * 4 + pieces;
        self.bytes_max().min(self.fixed_bytes() + taken)
    }
    /// The slot of an object leaves DRAM. It is needed as before. Returns where the object is
    /// stored.
    pub fn put_out(&mut self, place: u32) -> ObjectLocation {
        let at = self.of(place);
        self.release(place);
        self.out += 1;
        at
    }
    /// An object is needed whose slot is not in DRAM from the beginning.
    pub fn gain_out(&mut self, at: ObjectLocation) {
        let extent = self.extent_of(at);
        self.needed[extent].add(at);
        self.weight += u64::from(weight(at.length.into()));
        self.out += 1;
    }
    /// The slot of an object comes back to DRAM.
    ///
    /// # Panics
    /// As [`Objects::take`].
    pub fn bring_in(&mut self, at: ObjectLocation) -> u32 {
        self.out -= 1;
        self.take(at)
    }
    /// DRAM as it is.
    pub fn bytes(&self) -> usize {
        self.fixed_bytes() + piece_bytes(self.used) + self.free.capacity() * 4
    }
    /// DRAM when all subpages are objects, without older versions ([`Objects::history_bytes`]).
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
        self.slots.tables.len() * size_of::<OnceLock<Table>>() + self.needed.capacity() * size_of::<Needed>()
    }
    /// Where the object of a place is stored; none when the place is not a slot.
    pub fn get(&self, place: u32) -> Option<ObjectLocation> {
        self.slots.get(place)
    }
    /// Whether the place of a subpage is a slot.
    #[inline]
    pub fn has(&self, place: u32) -> bool {
        self.slots.has(place)
    }
    /// The objects of an extent that are needed.
    pub fn needed(&self, extent: u32) -> Needed {
        self.needed.get(extent as usize).copied().unwrap_or_default()
    }
    /// Flash pages that the objects of an extent take at the worst, by their weight.
    pub fn live(&self, extent: u32) -> u32 {
        self.needed(extent).weight.div_ceil(PAGE_WEIGHT)
    }
    /// Flash pages that they take at least, however they are packed.
    pub fn live_at_least(&self, extent: u32) -> u32 {
        self.needed(extent).units.div_ceil(UNITS_PER_PAGE)
    }
    /// The weight of all objects that are needed.
    pub fn weight(&self) -> u64 {
        self.weight
    }
    /// Flash pages that all of them take at the worst.
    pub fn live_total(&self) -> u64 {
        self.weight.div_ceil(PAGE_WEIGHT.into())
    }
    /// Takes a slot for an object. Nothing is counted until [`Objects::gain`].
    ///
    /// # Panics
    /// When there is no room, or the object's location is not valid.
    pub fn take(&mut self, place: ObjectLocation) -> u32 {
        assert!(self.room() > 0 && place.is_sane(), "no slot for {place:?}");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        self.slots.made(slot).store(pack(place), Ordering::Release);
        slot | SLOT
    }
    fn of(&self, place: u32) -> ObjectLocation {
        self.get(place).expect("a slot that is used")
    }
    fn extent_of(&self, at: ObjectLocation) -> usize {
        self.geometry.extent_of(at.flash_page) as usize
    }
    /// The version of a slot is needed.
    pub fn gain(&mut self, place: u32) {
        let at = self.of(place);
        let extent = self.extent_of(at);
        self.needed[extent].add(at);
        self.weight += u64::from(weight(at.length.into()));
    }
    /// The version of a slot is not needed any more, and its slot is free. Returns its extent if
    /// that lost its last object.
    pub fn lose(&mut self, place: u32) -> Option<u32> {
        let at = self.of(place);
        self.release(place);
        self.discount(at)
    }
    fn release(&mut self, place: u32) {
        // A slot that is free holds nothing that could pass for its object.
        self.word_of(place).store(0, Ordering::Release);
        if self.free.len() == self.free.capacity() {
            // What is counted against a budget must not double.
            self.free.reserve_exact((self.free.len() / 8).max(FREE_MIN));
        }
        self.free.push(place & !SLOT);
    }
    fn discount(&mut self, at: ObjectLocation) -> Option<u32> {
        let extent = self.extent_of(at);
        self.needed[extent].remove(at);
        self.weight -= u64::from(weight(at.length.into()));
        (at.length > 0 && self.needed[extent] == Needed::default()).then_some(extent as u32)
    }
    /// The object of a slot has moved. Returns its old extent if that lost its last object.
    pub fn relocate(&mut self, place: u32, to: ObjectLocation) -> Option<u32> {
        let from = self.of(place);
        assert!(to.is_sane() && from.length == to.length, "{from:?} cannot be moved to {to:?}");
        self.word_of(place).store(pack(to), Ordering::Release);
        self.gain(place);
        self.discount(from)
    }
    fn word_of(&self, place: u32) -> &AtomicU64 {
        self.slots.word(place).expect("a slot that is used")
    }
    /// Compares what is counted with what was found: what is needed of each extent, and objects.
    /// Of objects that are out it is known only how many there should be: `out`.
    pub fn audit(&self, found: &[Needed], count: u32, out: u32, wrong: &mut Vec<String>) {
        if count + out != self.count() {
            wrong.push(format!("{} objects counted, {} found", self.count(), count + out));
        }
        if out != self.out {
            wrong.push(format!("{} objects on flash alone counted, {out} found", self.out));
        }
        if out > 0 {
            let more =
                |(found, counted): &(&Needed, &Needed)| found.weight > counted.weight || found.units > counted.units;
            if let Some((found, counted)) = found.iter().zip(&self.needed).find(more) {
                wrong.push(format!("{counted:?} of objects of an extent counted, {found:?} found"));
            }
            return;
        }
        for (extent, counted) in self.needed.iter().enumerate() {
            if found[extent] != *counted {
                wrong.push(format!("extent {extent}: {counted:?} of objects counted, {:?} found", found[extent]));
            }
        }
        let weight: u64 = found.iter().map(|needed| u64::from(needed.weight)).sum();
        if weight != self.weight {
            wrong.push(format!("objects of weight {} counted, of {weight} found", self.weight));
        }
    }
}

/// Packs objects of these lengths, in this order, into one of the last [`OPEN_PAGES`] flash pages
/// that has room. For each: its page, counted from 0, and its offset.
#[derive(Debug)]
pub struct Packer {
    /// Units that are taken of each page.
    pages: Vec<u32>,
}

/// Pages that are checked for room.
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
    /// Where the next object is put.
    pub fn put(&mut self, length: u16) -> (usize, u16) {
        let units = ObjectLocation { flash_page: 0, offset: 0, length }.units();
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

/// Packs objects into few flash pages when the longest come first: each into the fullest of all
/// pages that has room.
///
/// Objects that weigh less than n pages together, without their summary lines, need at most n + 1
/// pages. For let k objects fit in a page, of the size of the object that opened the last page: all
/// other pages are filled beyond 1 - 1/k. A page opened by an object of kind j has j of these
/// before any smaller one comes, and so weighs at least 1, but for the last page of each kind up to
/// k. Those k - 1 lack less than 1/k each.
#[derive(Debug)]
pub struct TightPacker {
    /// The pages with a given number of units left, and which of these lists have any, a bit each.
    with_room: Vec<Vec<u32>>,
    any: [u64; UNITS_PER_PAGE as usize / 64 + 1],
    pages: u32,
}

impl TightPacker {
    /// No page yet.
    pub fn new() -> TightPacker {
        let with_room = vec![Vec::new(); UNITS_PER_PAGE as usize + 1];
        TightPacker { with_room, any: [0; UNITS_PER_PAGE as usize / 64 + 1], pages: 0 }
    }
    /// Pages so far.
    pub fn pages(&self) -> usize {
        self.pages as usize
    }
    /// The least room that is enough.
    fn enough(&self, units: usize) -> Option<usize> {
        let mut word = units / 64;
        let mut bits = self.any[word] & (u64::MAX << (units % 64));
        while bits == 0 {
            word += 1;
            bits = *self.any.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
    /// Where the next object is put, which is no longer than the objects before it.
    pub fn put(&mut self, length: u16) -> (usize, u16) {
        let units = ObjectLocation { flash_page: 0, offset: 0, length }.units() as usize;
        let (room, page) = match self.enough(units) {
            Some(room) => {
                let page = self.with_room[room].pop().expect("its bit says that there is one");
                if self.with_room[room].is_empty() {
                    self.any[room / 64] &= !(1 << (room % 64));
                }
                (room, page)
            }
            None => {
                self.pages += 1;
                (UNITS_PER_PAGE as usize, self.pages - 1)
            }
        };
        let left = room - units;
        self.with_room[left].push(page);
        self.any[left / 64] |= 1 << (left % 64);
        (page as usize, ((UNITS_PER_PAGE as usize - room) * OBJECT_ALIGNMENT) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::with_objects(1024, 8, 1 << 16).unwrap()
    }
    fn place(flash_page: u32, offset: u16, length: u16) -> ObjectLocation {
        ObjectLocation { flash_page, offset, length }
    }

    #[test]
    fn live_units_follow_the_objects() {
        let mut objects = Objects::new(geometry());
        let (a, b) = (objects.take(place(40, 0, 100)), objects.take(place(41, 112, 4000 - 112)));
        [a, b].into_iter().for_each(|slot| objects.gain(slot));
        assert_eq!((objects.needed(5).units, objects.live_at_least(5)), (7 + 243, 1));
        assert_eq!(objects.needed(5).weight, weight(100) + weight(4000 - 112));
        // The larger one takes a flash page for itself, when all are like it.
        assert_eq!((objects.live(5), objects.live_total()), (2, 2));
        assert_eq!(objects.relocate(a, place(80, 16, 100)), None);
        assert_eq!((objects.needed(5).units, objects.needed(10).units), (243, 7));
        assert_eq!(objects.lose(b), Some(5));
        assert_eq!(objects.lose(a), Some(10));
        assert_eq!((objects.count(), objects.weight()), (0, 0));
        // The slots are used again.
        assert_eq!(objects.take(ObjectLocation::FREED), a);
    }
    #[test]
    fn what_was_freed_takes_no_flash() {
        let mut objects = Objects::new(geometry());
        let freed = objects.take(ObjectLocation::FREED);
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
    #[test]
    fn an_object_weighs_what_packing_takes() {
        let line = PAGE_WEIGHT.div_ceil(Owner::PER_PAGE as u32);
        for (length, in_a_page) in
            [(1, 256), (16, 256), (17, 128), (128, 32), (819, 4), (1024, 4), (1365, 2), (2048, 2)]
        {
            assert_eq!(weight(length), PAGE_WEIGHT.div_ceil(in_a_page) + line, "{length} bytes");
        }
        assert_eq!((weight(0), weight(2049), weight(4096)), (0, PAGE_WEIGHT + line, PAGE_WEIGHT + line));
        // The most that an extent may weigh: pages of 1 + 1/2 + 1/6 + 1/42, and lines for the
        // smallest objects.
        assert!(u64::from(PAGE_WEIGHT * 2 + 256 * line) * 65_536 < 1 << 32);
    }
    #[test]
    fn what_is_weighed_is_packed() {
        let mut state = fulgurite_testkit::Random(7);
        let mut random = |below: u64| state.below(below);
        let line = f64::from(PAGE_WEIGHT.div_ceil(Owner::PER_PAGE as u32));
        let (mut most, mut saved) = (0.0f64, 0);
        for _ in 0..3000 {
            // Few sizes, so that what packs badly comes up.
            let sizes: Vec<u16> = (0..1 + random(6)).map(|_| 1 + (random(4096) >> random(6)) as u16).collect();
            let count = 1 + random(300);
            let in_order: Vec<u16> = (0..count).map(|_| sizes[random(sizes.len() as u64) as usize]).collect();
            let mut lengths = in_order.clone();
            lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
            let (mut tight, mut packer) = (TightPacker::new(), Packer::new());
            let mut taken = vec![[false; UNITS_PER_PAGE as usize]; lengths.len()];
            for length in &lengths {
                let (page, offset) = tight.put(*length);
                let at = place(page as u32, offset, *length);
                assert!(at.is_sane());
                for unit in &mut taken[page][usize::from(offset) / OBJECT_ALIGNMENT..][..at.units() as usize] {
                    assert!(!std::mem::replace(unit, true), "{at:?} is where something else is");
                }
            }
            in_order.iter().for_each(|length| _ = packer.put(*length));
            let weight: f64 = lengths.iter().map(|length| f64::from(weight(usize::from(*length))) - line).sum();
            let weight = weight / f64::from(PAGE_WEIGHT);
            assert!((tight.pages() as f64) < weight + 2.0, "{} pages for {weight}: {lengths:?}", tight.pages());
            most = most.max(tight.pages() as f64 - weight);
            saved += packer.pages() as i64 - tight.pages() as i64;
        }
        assert!(most > 0.5 && saved > 0, "{most}, {saved}");
    }
    /// Both packers put each object where a search through all pages would.
    #[test]
    fn model_each_object_is_put_where_it_is_said_to_be() {
        let mut state = fulgurite_testkit::Random(11);
        let mut random = |below: u64| state.below(below);
        for round in 0..200 {
            let largest = 1 + random(4096);
            let mut lengths: Vec<u16> = (0..random(200)).map(|_| 1 + random(largest) as u16).collect();
            // In order: the first of the last eight pages that has room.
            let (mut packer, mut taken) = (Packer::new(), Vec::<u32>::new());
            for length in &lengths {
                let units = u32::from(*length).div_ceil(16);
                let first = taken.len().saturating_sub(8);
                let page = (first..taken.len()).find(|page| taken[*page] + units <= 256).unwrap_or(taken.len());
                if page == taken.len() {
                    taken.push(0);
                }
                assert_eq!(packer.put(*length), (page, taken[page] as u16 * 16), "round {round}");
                taken[page] += units;
                assert_eq!((packer.pages(), packer.first_open()), (taken.len(), taken.len().saturating_sub(8)));
            }
            // The longest first: the fullest with room, and of equally full ones the last that
            // became so.
            lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
            let (mut tight, mut taken) = (TightPacker::new(), Vec::<(u32, usize)>::new());
            for (time, length) in lengths.iter().enumerate() {
                let units = u32::from(*length).div_ceil(16);
                let fits = (0..taken.len()).filter(|page| taken[*page].0 + units <= 256);
                let page = fits.max_by_key(|page| taken[*page]).unwrap_or(taken.len());
                if page == taken.len() {
                    taken.push((0, time));
                }
                assert_eq!(tight.put(*length), (page, taken[page].0 as u16 * 16), "round {round}");
                taken[page] = (taken[page].0 + units, time);
                assert_eq!(tight.pages(), taken.len());
            }
        }
    }
    /// The most there may be: those that fit in flash, and twice the subpages.
    #[test]
    fn slots_are_as_many_as_may_be_needed() {
        let mut objects = Objects::new(geometry());
        let room = 1024 * 256 + 2 * (1 << 16);
        assert_eq!((objects.room(), objects.count()), (room, 0));
        let slots = [objects.take(place(40, 0, 16)), objects.take(ObjectLocation::FREED)];
        slots.iter().for_each(|slot| objects.gain(*slot));
        assert_eq!((objects.room(), objects.count(), slots), (room - 2, 2, [SLOT, SLOT | 1]));
        assert_eq!(
            (objects.get(slots[0]), objects.get(slots[1])),
            (Some(place(40, 0, 16)), Some(ObjectLocation::FREED))
        );
        // One that was let go leads nowhere, and neither does one that nobody took.
        assert_eq!(
            (objects.lose(slots[0]), objects.get(slots[0]), objects.get(SLOT | 9000)),
            (Some(5), Some(unpack(0)), None)
        );
        assert_eq!((objects.room(), objects.count()), (room - 1, 1));
        let (least, most) = (Geometry { subpages: 16, ..geometry() }, Geometry { extents: 1 << 28, ..geometry() });
        assert_eq!((super::most(least), super::most(most)), (1024 * 256 + 32, SLOT));
        assert_eq!(super::most(Geometry { objects: false, ..geometry() }), 0);
    }
}
