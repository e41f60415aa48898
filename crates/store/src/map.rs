//! Where the current content of each subpage is stored, and its checksum: read without a lock, in
//! two loads.
//!
//! ```text
//! slot of a page, 8 bytes                    blocks of 64 bytes
//! bits  62..64     32..61     0..32
//!       0          0          0              nothing of the page was ever written
//!       0          0          1              what is known of the page is on flash
//!       1 run      block      start          all side by side from `start` on; 16 checksums
//!       2 few      block      which (16 bits); up to 8 places and checksums
//!       3 many     block      block          all 16 places and checksums, 0 for none
//! ```
//!
//! A page written at once, or copied as a whole, is contiguous and needs 72 bytes. Scattered pages
//! need 136, and a page of few subpages 72. Slots and blocks are in tables that grow by parts
//! ([`Chunked`]), so a sparse pool takes little.
//!
//! **One writer, many readers.** Readers share [`Map`], and the only [`MapWriter`] changes it. A
//! reader gets place and checksum of one write, true at some moment of its call, whatever the
//! writer does:
//!
//! * A word of `few` or `many` is a place and its checksum together, and is replaced by one store.
//! * A `run` block never changes while a slot names it. Another start or checksum is another block,
//!   and one store to the slot. So is each change of a page's kind, or of the subpages of `few`.
//! * A block without a slot may be used for another page while a reader is on its way to it. So
//!   such blocks wait (`limbo`), and before their reuse `reused` is counted up. A reader loads that
//!   before the slot and after the block, and starts again if it changed. That is enough. Let a
//!   reader see the slot word W, and a word of its block that was stored in a later use. That store
//!   follows the count, by release and acquire, so the second load sees the new count. If the first
//!   load had seen it too, it would also have seen that W was replaced. It cannot see a store of an
//!   earlier use, because all words that W leads to were stored before W. `loom_map.rs`
//!   checks this on this code.
//! * Without reuse, a block in limbo keeps its words: the last true ones of its page.
//!
//! The count changes once for `limbo` blocks, so readers find it in their caches, and start again
//! about never.
//!
//! When a reader finds the same place and checksum after its read of the flash as before, the place
//! was not reused in between: the map changes before a place is reused.

// Named, as `crates/loom` compiles this file too.
#[path = "map/writer.rs"]
mod writer;

use crate::chunked::Chunked;
use crate::geometry::SUBPAGES_PER_PAGE;
use crate::primitive::{AtomicU64, Ordering};

pub use writer::{MapWriter, PAGES_MAX, PageLocations};

const N: u32 = SUBPAGES_PER_PAGE;
/// Words of a block: a line of the cache.
const WORDS: u32 = 8;
const _: () = assert!(N == 2 * WORDS, "a run's checksums fill a block, and a scattered page two");

/// Where a subpage is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// The flash page.
    pub place: u32,
    /// CRC32C of its content.
    pub checksum: u32,
}

impl Located {
    /// Both in a word. A place of 0, where the superblock is, stands for "was never written".
    fn word(self) -> u64 {
        (u64::from(self.place) << 32) | u64::from(self.checksum)
    }
    fn of(word: u64) -> Option<Located> {
        (word != 0).then_some(Located { place: (word >> 32) as u32, checksum: word as u32 })
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Block([AtomicU64; WORDS as usize]);

impl Block {
    fn new() -> Block {
        Block(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// What the map says of a subpage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Find {
    /// It was never written.
    Nowhere,
    /// It is stored there.
    At(Located),
    /// What is known of its page is on flash.
    Out,
}

/// The slot of a page of which all is on flash. As for an empty one, no block belongs to it.
const OUT: u64 = 1;

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Empty,
    Run { start: u32, block: u32 },
    Few { which: u32, block: u32 },
    Many { blocks: [u32; 2] },
}

/// Block numbers that a slot has room for: two for each of 2^28 pages, the most with places of 32
/// bits.
const BLOCKS_MAX: u32 = 1 << 29;

impl Slot {
    #[inline(always)]
    fn of(word: u64) -> Slot {
        let (high, low) = ((word >> 32) as u32 & (BLOCKS_MAX - 1), word as u32);
        match word >> 62 {
            0 => Slot::Empty,
            1 => Slot::Run { start: low, block: high },
            2 => Slot::Few { which: low, block: high },
            _ => Slot::Many { blocks: [high, low] },
        }
    }
    fn word(self) -> u64 {
        let (kind, high, low) = match self {
            Slot::Empty => (0, 0, 0),
            Slot::Run { start, block } => (1, block, start),
            Slot::Few { which, block } => (2, block, which),
            Slot::Many { blocks: [first, second] } => (3, first, second),
        };
        (kind << 62) | (u64::from(high) << 32) | u64::from(low)
    }
}

/// The map.
#[derive(Debug)]
pub struct Map {
    pages: u32,
    slots: Chunked<AtomicU64>,
    blocks: Chunked<Block>,
    /// How often blocks that had been let go were set free to be used again.
    reused: AtomicU64,
}

impl Map {
    /// DRAM of the map as it is.
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.blocks.bytes()
    }
    /// DRAM of the map when all pages are scattered: it never takes more.
    pub fn bytes_max(&self) -> usize {
        self.slots.bytes_max() + self.blocks.bytes_max()
    }
    /// Where a subpage is stored; none if it was never written.
    ///
    /// # Panics
    /// When there is no such subpage.
    #[inline]
    pub fn get(&self, subpage: u32) -> Option<Located> {
        match self.find(subpage) {
            Find::At(located) => Some(located),
            Find::Nowhere | Find::Out => None,
        }
    }
    /// Where a subpage is stored, and whether that is known here.
    ///
    /// # Panics
    /// When there is no such subpage.
    #[inline]
    pub fn find(&self, subpage: u32) -> Find {
        let Some(slot) = self.slot(subpage / N) else { return Find::Nowhere };
        let mut before = self.reused.load(Ordering::Acquire);
        loop {
            // Acquire: a reader that sees a place sees that its write has completed.
            let loaded = slot.load(Ordering::Acquire);
            let word = self.word(Slot::of(loaded), subpage % N);
            let after = self.reused.load(Ordering::Acquire);
            if before == after {
                return match Located::of(word) {
                    Some(located) => Find::At(located),
                    None if loaded == OUT => Find::Out,
                    None => Find::Nowhere,
                };
            }
            before = after;
        }
    }
    /// Whether what is known of a page is on flash.
    pub fn is_out(&self, page: u32) -> bool {
        self.slot(page).is_some_and(|slot| slot.load(Ordering::Acquire) == OUT)
    }
    /// DRAM of the slots of all pages, which are never on flash alone.
    pub fn bytes_of_slots(&self) -> usize {
        self.slots.bytes_max()
    }
    /// As [`Map::get`] without the second check, which the model must find to be wrong.
    #[cfg(loom)]
    pub fn get_and_trust(&self, subpage: u32) -> Option<Located> {
        let slot = self.slot(subpage / N)?;
        Located::of(self.word(Slot::of(slot.load(Ordering::Acquire)), subpage % N))
    }
    /// Starts loading the words that say where it is stored.
    #[inline]
    pub fn prefetch(&self, subpage: u32) {
        if subpage / N >= self.pages {
            return;
        }
        let Some(slot) = self.slot(subpage / N) else { return };
        // The load of the slot is waited for by nothing but the hint.
        let block = match Slot::of(slot.load(Ordering::Relaxed)) {
            Slot::Empty => return,
            Slot::Run { block, .. } | Slot::Few { block, .. } => block,
            Slot::Many { blocks } => blocks[(subpage % N / WORDS) as usize],
        };
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.block(block)).cast());
    }
    /// Starts loading the words of all of a page.
    pub fn prefetch_page(&self, page: u32) {
        self.prefetch(page * N);
        self.prefetch(page * N + N - 1);
    }

    #[inline(always)]
    fn slot(&self, page: u32) -> Option<&AtomicU64> {
        assert!(page < self.pages, "a map of {} pages has no page {page}", self.pages);
        self.slots.get(page)
    }
    #[inline(always)]
    fn block(&self, block: u32) -> &Block {
        self.blocks.get(block).expect("a slot names only blocks that are there")
    }
    /// Place and checksum of a subpage of a page that has this slot.
    #[inline(always)]
    fn word(&self, slot: Slot, subpage: u32) -> u64 {
        let load = |block: u32, word: u32| self.block(block).0[word as usize].load(Ordering::Acquire);
        match slot {
            Slot::Empty => 0,
            Slot::Run { start, block } => {
                let checksum = (load(block, subpage / 2) >> (subpage % 2 * 32)) as u32;
                Located { place: start.wrapping_add(subpage), checksum }.word()
            }
            Slot::Few { which, .. } if which & (1 << subpage) == 0 => 0,
            Slot::Few { which, block } => load(block, (which & ((1 << subpage) - 1)).count_ones()),
            Slot::Many { blocks } => load(blocks[(subpage / WORDS) as usize], subpage % WORDS),
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "map/tests.rs"]
mod tests;
