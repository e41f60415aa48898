//! Blocks: which addresses are handed out. Decisions only: no address is followed here.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_format::SUBPAGE_BYTES;

use crate::classes::{CLASSES, class_of};
use crate::error::FreeError;
use crate::slab::{SLAB_BYTES, Slab};

/// Where addresses come from, in whole pages.
pub trait Source {
    /// Maps `bytes` that read as zero, at a multiple of a page. None when there is no room.
    fn map(&self, bytes: usize) -> Option<usize>;
    /// Unmaps some of what was mapped. What cannot be unmapped stays mapped, and is not used.
    fn unmap(&self, address: usize, bytes: usize);
}

/// What is handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes of blocks, as rounded up.
    pub used_bytes: usize,
    /// Bytes of pages that hold them, free slots included.
    pub mapped_bytes: usize,
}

/// A block that was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it begins.
    pub address: usize,
    /// Bytes that it has.
    pub bytes: usize,
    /// Whether it still reads as zero.
    pub is_zeroed: bool,
}

/// See the module. Slabs of one class are filled from the lowest address on, so that the others
/// come free.
#[derive(Debug)]
pub struct Blocks {
    slabs: BTreeMap<usize, Slab>,
    /// Slabs with a free slot, of each class.
    open: [BTreeSet<usize>; CLASSES.len()],
    /// Blocks of whole pages, and their bytes.
    large: BTreeMap<usize, usize>,
    usage: Usage,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks {
            slabs: BTreeMap::new(),
            open: std::array::from_fn(|_| BTreeSet::new()),
            large: BTreeMap::new(),
            usage: Usage::default(),
        }
    }
}

impl Blocks {
    /// What is handed out.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Allocates. `alignment` is a power of two.
    pub fn allocate(&mut self, source: &impl Source, bytes: usize, alignment: usize) -> Option<Block> {
        match class_of(bytes, alignment) {
            Some(class) => self.allocate_small(source, class),
            None => self.allocate_large(source, bytes, alignment),
        }
    }

    fn allocate_small(&mut self, source: &impl Source, class: usize) -> Option<Block> {
        let at = match self.open[class].first() {
            Some(at) => *at,
            None => {
                let at = source.map(SLAB_BYTES)?;
                self.slabs.insert(at, Slab::new(class));
                self.open[class].insert(at);
                self.usage.mapped_bytes += SLAB_BYTES;
                at
            }
        };
        let slab = self.slabs.get_mut(&at).expect("an open slab is a slab");
        let address = at + slab.take();
        if slab.is_full() {
            self.open[class].remove(&at);
        }
        self.usage.used_bytes += CLASSES[class];
        Some(Block { address, bytes: CLASSES[class], is_zeroed: false })
    }

    fn allocate_large(&mut self, source: &impl Source, bytes: usize, alignment: usize) -> Option<Block> {
        let bytes = bytes.max(1).checked_next_multiple_of(SUBPAGE_BYTES)?;
        let alignment = alignment.max(SUBPAGE_BYTES);
        let whole = bytes.checked_add(alignment - SUBPAGE_BYTES)?;
        let start = source.map(whole)?;
        let address = start.next_multiple_of(alignment);
        let (head, tail) = (address - start, (start + whole) - (address + bytes));
        for (at, len) in [(start, head), (address + bytes, tail)] {
            if len > 0 {
                source.unmap(at, len);
            }
        }
        self.large.insert(address, bytes);
        self.usage.used_bytes += bytes;
        self.usage.mapped_bytes += bytes;
        Some(Block { address, bytes, is_zeroed: true })
    }

    fn slab_of(&self, address: usize) -> Option<(usize, &Slab)> {
        let (at, slab) = self.slabs.range(..=address).next_back()?;
        (address - at < SLAB_BYTES).then_some((*at, slab))
    }

    /// Bytes of the block at an address.
    ///
    /// # Errors
    /// [`FreeError::NotABlock`].
    pub fn bytes_of(&self, address: usize) -> Result<usize, FreeError> {
        if let Some((at, slab)) = self.slab_of(address) {
            return if slab.has(address - at) { Ok(CLASSES[slab.class]) } else { Err(FreeError::NotABlock(address)) };
        }
        self.large.get(&address).copied().ok_or(FreeError::NotABlock(address))
    }

    /// Frees a block. Returns the pages that are to be unmapped, if any have come free.
    ///
    /// # Errors
    /// [`FreeError::NotABlock`]: nothing was changed.
    pub fn free(&mut self, address: usize) -> Result<Option<(usize, usize)>, FreeError> {
        let Some((at, _)) = self.slab_of(address) else {
            let bytes = self.large.remove(&address).ok_or(FreeError::NotABlock(address))?;
            self.usage.used_bytes -= bytes;
            self.usage.mapped_bytes -= bytes;
            return Ok(Some((address, bytes)));
        };
        let slab = self.slabs.get_mut(&at).expect("it was found just now");
        let class = slab.class;
        if !slab.give(address - at) {
            return Err(FreeError::NotABlock(address));
        }
        self.usage.used_bytes -= CLASSES[class];
        self.open[class].insert(at);
        // One slab with room is kept, because a lone object that is allocated and freed again and
        // again would map pages each time.
        if slab.is_empty() && self.open[class].len() > 1 {
            self.open[class].remove(&at);
            self.slabs.remove(&at);
            self.usage.mapped_bytes -= SLAB_BYTES;
            return Ok(Some((at, SLAB_BYTES)));
        }
        Ok(None)
    }

    /// Cuts a block of whole pages in two, each a block by itself. `first_bytes` is a multiple of a
    /// page.
    ///
    /// # Errors
    /// [`FreeError::NotABlock`] when no block of more pages begins there: nothing was changed.
    pub fn split(&mut self, address: usize, first_bytes: usize) -> Result<(), FreeError> {
        let bytes = self.large.get_mut(&address).ok_or(FreeError::NotABlock(address))?;
        if first_bytes == 0 || !first_bytes.is_multiple_of(SUBPAGE_BYTES) || first_bytes >= *bytes {
            return Err(FreeError::NotABlock(address));
        }
        let rest = *bytes - first_bytes;
        *bytes = first_bytes;
        self.large.insert(address + first_bytes, rest);
        Ok(())
    }
    /// Makes one block of two blocks of whole pages, the second of which begins where the first
    /// ends.
    ///
    /// # Errors
    /// [`FreeError::NotABlock`] when they are not: nothing was changed.
    pub fn join(&mut self, first: usize, second: usize) -> Result<(), FreeError> {
        let before = *self.large.get(&first).ok_or(FreeError::NotABlock(first))?;
        let after = *self.large.get(&second).ok_or(FreeError::NotABlock(second))?;
        if first + before != second {
            return Err(FreeError::NotABlock(second));
        }
        self.large.remove(&second);
        self.large.insert(first, before + after);
        Ok(())
    }
    /// Whether all of a range is of one block of whole pages.
    pub fn has_pages(&self, address: usize, bytes: usize) -> bool {
        let block = self.large.range(..=address).next_back();
        block.is_some_and(|(at, all)| address.checked_add(bytes).is_some_and(|end| end <= at + all))
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut end = 0;
        let mut usage = Usage::default();
        let slabs = self.slabs.iter().map(|(at, slab)| (*at, SLAB_BYTES, slab.taken_bytes()));
        let mut all: Vec<_> = slabs.chain(self.large.iter().map(|(at, bytes)| (*at, *bytes, *bytes))).collect();
        all.sort_unstable();
        for (at, mapped, used) in all {
            assert!(at >= end, "{at:#x} is inside of what ends at {end:#x}");
            end = at + mapped;
            usage.mapped_bytes += mapped;
            usage.used_bytes += used;
        }
        assert_eq!(usage, self.usage);
        for (at, slab) in &self.slabs {
            assert_eq!(self.open[slab.class].contains(at), !slab.is_full(), "the slab at {at:#x}");
        }
        assert!(self.open.iter().map(BTreeSet::len).sum::<usize>() <= self.slabs.len());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use fulgurite_testkit::Random;

    use super::*;

    /// A number of addresses without memory: the lowest free pages.
    struct Pages(RefCell<Vec<bool>>);

    impl Source for Pages {
        fn map(&self, bytes: usize) -> Option<usize> {
            let (mut taken, count) = (self.0.borrow_mut(), bytes / SUBPAGE_BYTES);
            assert!(bytes > 0 && bytes.is_multiple_of(SUBPAGE_BYTES));
            let start = taken.windows(count).position(|pages| !pages.contains(&true))?;
            taken[start..start + count].fill(true);
            // Not at a multiple of more than a page.
            Some((start + 1) * SUBPAGE_BYTES)
        }
        fn unmap(&self, address: usize, bytes: usize) {
            let start = address / SUBPAGE_BYTES - 1;
            let mut taken = self.0.borrow_mut();
            let pages = &mut taken[start..start + bytes / SUBPAGE_BYTES];
            assert!(!pages.contains(&false), "what is unmapped was mapped");
            pages.fill(false);
        }
    }

    #[test]
    fn blocks_of_pages_are_cut_and_joined() {
        const PAGE: usize = SUBPAGE_BYTES;
        let pages = Pages(RefCell::new(vec![false; 64]));
        let mut blocks = Blocks::default();
        let at = blocks.allocate(&pages, 10 * PAGE, 1).unwrap().address;
        for bad in [0, 100, 10 * PAGE, 11 * PAGE] {
            assert_eq!(blocks.split(at, bad), Err(FreeError::NotABlock(at)));
        }
        blocks.split(at, 4 * PAGE).unwrap();
        assert_eq!((blocks.bytes_of(at), blocks.bytes_of(at + 4 * PAGE)), (Ok(4 * PAGE), Ok(6 * PAGE)));
        assert!(blocks.has_pages(at + PAGE, 3 * PAGE) && !blocks.has_pages(at + PAGE, 4 * PAGE));
        blocks.split(at + 4 * PAGE, PAGE).unwrap();
        assert_eq!(blocks.join(at, at + 5 * PAGE), Err(FreeError::NotABlock(at + 5 * PAGE)), "there is one between");
        blocks.join(at + 4 * PAGE, at + 5 * PAGE).unwrap();
        blocks.join(at, at + 4 * PAGE).unwrap();
        blocks.check();
        assert_eq!(blocks.free(at), Ok(Some((at, 10 * PAGE))));
        let small = blocks.allocate(&pages, 16, 1).unwrap().address;
        assert_eq!(blocks.split(small, PAGE), Err(FreeError::NotABlock(small)));
        assert!(!blocks.has_pages(small, 16));
    }

    #[test]
    fn as_a_list_of_blocks_says() {
        let mut random = Random::seeded("blocks", 5);
        for _ in 0..20 {
            let pages = Pages(RefCell::new(vec![false; 600]));
            let (mut blocks, mut model) = (Blocks::default(), Vec::<Block>::new());
            let mut refused = 0;
            for step in 0..2000 {
                if model.is_empty() || random.below(100) < 55 {
                    let bytes = match random.below(10) {
                        0 => random.below(100_000),
                        1..=3 => random.below(5000),
                        _ => random.below(300),
                    };
                    let alignment = 1usize << random.below(15);
                    let Some(block) = blocks.allocate(&pages, bytes, alignment) else {
                        refused += 1;
                        continue;
                    };
                    assert!(block.bytes >= bytes && block.address.is_multiple_of(alignment.max(16)));
                    assert!(model.iter().all(|other| {
                        other.address + other.bytes <= block.address || block.address + block.bytes <= other.address
                    }));
                    assert_eq!(blocks.bytes_of(block.address), Ok(block.bytes));
                    model.push(block);
                } else {
                    let block = model.swap_remove(random.below(model.len()));
                    assert_eq!(blocks.free(block.address + 8), Err(FreeError::NotABlock(block.address + 8)));
                    if let Some((at, bytes)) = blocks.free(block.address).unwrap() {
                        pages.unmap(at, bytes);
                    }
                    assert_eq!(blocks.free(block.address), Err(FreeError::NotABlock(block.address)));
                }
                if step % 100 == 0 {
                    blocks.check();
                    assert_eq!(blocks.usage().used_bytes, model.iter().map(|block| block.bytes).sum());
                }
            }
            assert!(refused > 0, "the pages were used up");
            for block in model {
                if let Some((at, bytes)) = blocks.free(block.address).unwrap() {
                    pages.unmap(at, bytes);
                }
            }
            blocks.check();
            let left = pages.0.borrow().iter().filter(|taken| **taken).count() * SUBPAGE_BYTES;
            assert!(left == blocks.usage().mapped_bytes && left <= CLASSES.len() * SLAB_BYTES, "{left} bytes are left");
        }
    }
}
