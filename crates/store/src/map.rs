//! Where the current content of each subpage lies, and its checksum: read without a lock, in two loads.
//!
//! ```text
//! slot of a page, 8 bytes                    blocks of 64 bytes
//! bits  62..64     32..61     0..32
//!       0          0          0              nothing of the page was ever written
//!       1 run      block      start          all of it lies side by side from `start` on; 16 checksums
//!       2 few      block      which, 16 bits up to 8 subpages, ascending; place and checksum of each
//!       3 many     block      block          all 16 subpages by number; place and checksum of each, 0 for none
//! ```
//!
//! A page that was written at once lies side by side, and so does one that was copied by reclaim as a whole: it needs 72 bytes. Scattered
//! pages need 136, and a page of few subpages 72. Slots and blocks are in tables that grow by parts ([`Chunked`]), so that
//! a pool of which little was written takes little.
//!
//! **One writer, many readers.** [`Map`] is what readers share; [`MapWriter`], of which there is one, changes it. What a reader
//! gets was true at some moment of its call, place and checksum of the same write, whatever the writer does meanwhile:
//!
//! * A word of `few` or `many` is a place and its checksum together, and is replaced by one store.
//! * A block of `run` never changes while a slot names it: another start, or another checksum, is another block, and one store to the
//!   slot. So is each change of a page's kind, or of which subpages `few` has.
//! * A block that no slot names any more may be used for another page while a reader is still on its way from the slot that it has
//!   seen to the block. So blocks that were let go wait (`limbo`), and before any of them is used again `reused` is counted up. A
//!   reader looks at that before the slot and behind the block, and starts again when it has changed. That is enough: let a reader
//!   see the slot word W, and a word of its block that was stored in a later use of the block. That store follows the count, by
//!   release and acquire; so the reader's second look sees the new count. Had its first look seen it too, then it would have seen
//!   what came before the count: that W was replaced. A store of an earlier use it cannot see, as all words that W leads to were
//!   stored before W. `tests/loom_map.rs` checks just this, on this code.
//! * While nothing is used again, a block that was let go keeps its words: the last ones that were true of its page.
//!
//! The count changes once for `limbo` blocks, so readers find it in their caches, and start again about never.
//!
//! A reader that finds the same place and checksum after its read of the flash as before knows that the place was not used for anything else
//! in between: a place is used again only after the map has changed.

mod writer;

use crate::chunked::Chunked;
use crate::geometry::SUBPAGES_PER_PAGE;
use crate::primitive::{AtomicU64, Ordering};

pub use writer::{MapWriter, PAGES_MAX, Places};

const N: u32 = SUBPAGES_PER_PAGE;
/// Words of a block: a line of the cache.
const WORDS: u32 = 8;
const _: () = assert!(N == 2 * WORDS, "a run's checksums fill a block, and a scattered page two");

/// Where a subpage lies.
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

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Empty,
    Run { start: u32, block: u32 },
    Few { which: u32, block: u32 },
    Many { blocks: [u32; 2] },
}

/// Numbers of blocks that a slot has room for: two for each of 2^28 pages, the most that places of 32 bits make.
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
    /// Where a subpage lies; none where it was never written.
    ///
    /// # Panics
    /// When there is no such subpage.
    #[inline]
    pub fn get(&self, subpage: u32) -> Option<Located> {
        let slot = self.slot(subpage / N)?;
        let mut before = self.reused.load(Ordering::Acquire);
        loop {
            // Acquire: whoever sees a place sees that its write has completed.
            let word = self.word(Slot::of(slot.load(Ordering::Acquire)), subpage % N);
            let after = self.reused.load(Ordering::Acquire);
            if before == after {
                return Located::of(word);
            }
            before = after;
        }
    }
    /// The same without the second look: what the model must find to be wrong.
    #[cfg(loom)]
    pub fn get_and_trust(&self, subpage: u32) -> Option<Located> {
        let slot = self.slot(subpage / N)?;
        Located::of(self.word(Slot::of(slot.load(Ordering::Acquire)), subpage % N))
    }
    /// Starts loading what says where it lies.
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
    /// The same for all of a page.
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
mod tests;
