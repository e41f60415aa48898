//! Changes the map: which kind a page has, and which blocks are free. [`super`] has the protocol
//! with readers.
//!
//! Invariants: a block is in one slot, in limbo, or free. So at most two for each page, two for the
//! change being made, and those in limbo exist. Free ones are chained by their first words.

use std::sync::Arc;

use super::{AtomicU64, BLOCKS_MAX, Block, Chunked, Located, Map, N, OUT, Ordering, Slot, WORDS};

/// Stands for no block.
const NO_BLOCK: u32 = u32::MAX;
/// The most blocks that wait before they are used again.
const LIMBO_MAX: u32 = 64;
/// The most pages of a map.
pub const PAGES_MAX: u32 = (BLOCKS_MAX - 2 - LIMBO_MAX) / 2;

/// Where the subpages of a page are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLocations([u64; N as usize]);

impl PageLocations {
    /// Nowhere.
    pub const NONE: PageLocations = PageLocations([0; N as usize]);

    /// Where a subpage is stored, by its number in the page.
    #[inline]
    pub fn get(&self, subpage: u32) -> Option<Located> {
        Located::of(self.0[subpage as usize])
    }
    /// Changes it.
    #[inline]
    pub fn set(&mut self, subpage: u32, located: Option<Located>) {
        self.0[subpage as usize] = located.map_or(0, Located::word);
    }
    fn place(&self, subpage: u32) -> u32 {
        (self.0[subpage as usize] >> 32) as u32
    }
    /// Where the first is stored, if the others follow it.
    fn run(&self) -> Option<u32> {
        let start = self.place(0);
        let follow = |s: u32| self.place(s) == start.wrapping_add(s);
        (start != 0 && start <= u32::MAX - N && (1..N).all(follow)).then_some(start)
    }
    fn which(&self) -> u32 {
        (0..N).fold(0, |which, s| which | (u32::from(self.0[s as usize] != 0) << s))
    }
}

/// Changes the map.
#[derive(Debug)]
pub struct MapWriter {
    map: Arc<Map>,
    /// The first free block.
    free: u32,
    /// The first that was never used.
    unused: u32,
    /// Free ones.
    free_blocks: u32,
    /// Let go, and perhaps still read.
    limbo: Vec<u32>,
    limbo_max: usize,
}

impl MapWriter {
    /// A map of `pages` pages, nothing of which was ever written.
    pub fn new(pages: u32) -> MapWriter {
        // Few in a small map, so that tests see blocks used again.
        let limbo_max = (pages / 64).clamp(1, LIMBO_MAX);
        assert!(pages <= PAGES_MAX, "a map of {pages} pages is too large");
        let blocks = 2 * pages + 2 + limbo_max;
        let map = Map { pages, slots: Chunked::new(pages), blocks: Chunked::new(blocks), reused: AtomicU64::new(0) };
        MapWriter {
            map: Arc::new(map),
            free: NO_BLOCK,
            unused: 0,
            free_blocks: 0,
            limbo: Vec::with_capacity(limbo_max as usize),
            limbo_max: limbo_max as usize,
        }
    }
    /// The map, to be read by anybody.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
    /// Where a subpage is stored; none if it was never written.
    #[inline]
    pub fn get(&self, subpage: u32) -> Option<Located> {
        // No other thread changes it.
        Located::of(self.map.word(self.slot(subpage / N), subpage % N))
    }
    /// Where all subpages of a page are stored.
    pub fn page(&self, page: u32) -> PageLocations {
        self.places(self.slot(page))
    }
    fn slot(&self, page: u32) -> Slot {
        self.map.slot(page).map_or(Slot::Empty, |slot| Slot::of(slot.load(Ordering::Relaxed)))
    }
    fn places(&self, slot: Slot) -> PageLocations {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let mut places = PageLocations::NONE;
        match slot {
            Slot::Empty => {}
            Slot::Run { start, block } => {
                let pairs = places.0.chunks_exact_mut(2).zip(&self.map.block(block).0);
                for ((pair, both), place) in pairs.zip((start..).step_by(2)) {
                    let both = load(both);
                    pair[0] = Located { place, checksum: both as u32 }.word();
                    pair[1] = Located { place: place + 1, checksum: (both >> 32) as u32 }.word();
                }
            }
            Slot::Few { which, block } => {
                let cells = &self.map.block(block).0;
                bits(which).zip(cells).for_each(|(s, cell)| places.0[s as usize] = load(cell));
            }
            Slot::Many { blocks } => {
                for (words, block) in places.0.chunks_exact_mut(WORDS as usize).zip(blocks) {
                    let cells = &self.map.block(block).0;
                    words.iter_mut().zip(cells).for_each(|(word, cell)| *word = load(cell));
                }
            }
        }
        places
    }

    /// Changes where a subpage is stored.
    pub fn set(&mut self, subpage: u32, located: Option<Located>) {
        let (page, at) = (subpage / N, subpage % N);
        let slot = self.slot(page);
        match (slot, located) {
            (Slot::Few { which, block }, Some(l)) if which & (1 << at) != 0 => {
                self.cell(block, (which & ((1 << at) - 1)).count_ones()).store(l.word(), Ordering::Release);
            }
            (Slot::Many { blocks }, Some(l)) => {
                self.cell(blocks[(at / WORDS) as usize], at % WORDS).store(l.word(), Ordering::Release);
                // The first one mostly says no: a run is written in order.
                let start = l.place.wrapping_sub(at);
                let follows = |s: u32| self.map.word(slot, s) >> 32 == u64::from(start.wrapping_add(s));
                // The neighbour first, as it is in the same cache line.
                if follows(at ^ 1) && (0..N).rev().all(follows) {
                    self.set_page(page, &self.places(slot));
                }
            }
            _ => {
                let mut places = self.places(slot);
                places.set(at, located);
                self.set_page(page, &places);
            }
        }
    }
    /// Changes where all subpages of a page are stored, at once. Concurrent readers find a subpage
    /// at its old or new place.
    pub fn set_page(&mut self, page: u32, places: &PageLocations) {
        let (old, which) = (self.slot(page), places.which());
        let new = match (which.count_ones(), old) {
            (0, Slot::Empty) => return,
            (0, _) => Slot::Empty,
            (_, Slot::Few { which: same, block }) if which == same => {
                return self.replace(block, bits(which).map(|s| places.0[s as usize]));
            }
            (1..=WORDS, _) => {
                let block = self.take();
                self.fill(block, bits(which).map(|s| places.0[s as usize]));
                Slot::Few { which, block }
            }
            _ => match (places.run(), old) {
                (Some(start), Slot::Run { start: same, .. }) if start == same && self.places(old) == *places => return,
                (Some(start), _) => {
                    let block = self.take();
                    let both = |pair: &[u64]| u64::from(pair[0] as u32) | (pair[1] << 32);
                    self.fill(block, places.0.chunks_exact(2).map(both));
                    Slot::Run { start, block }
                }
                (None, Slot::Many { blocks }) => {
                    let halves = blocks.into_iter().zip(places.0.chunks_exact(WORDS as usize));
                    return halves.for_each(|(block, half)| self.replace(block, half.iter().copied()));
                }
                (None, _) => {
                    let blocks = [self.take(), self.take()];
                    let halves = blocks.into_iter().zip(places.0.chunks_exact(WORDS as usize));
                    halves.for_each(|(block, half)| self.fill(block, half.iter().copied()));
                    Slot::Many { blocks }
                }
            },
        };
        self.map.slots.make(page, || AtomicU64::new(0)).store(new.word(), Ordering::Release);
        self.let_go_of(old);
    }
    fn let_go_of(&mut self, slot: Slot) {
        match slot {
            Slot::Empty => {}
            Slot::Run { block, .. } | Slot::Few { block, .. } => self.let_go(block),
            Slot::Many { blocks } => blocks.into_iter().for_each(|block| self.let_go(block)),
        }
    }

    /// What is known of a page is on flash alone, until it is set again.
    pub fn set_out(&mut self, page: u32) {
        let old = self.slot(page);
        self.map.slots.make(page, || AtomicU64::new(0)).store(OUT, Ordering::Release);
        self.let_go_of(old);
    }
    /// DRAM of the blocks that are not free.
    pub fn bytes_of_blocks(&self) -> usize {
        (self.unused - self.free_blocks) as usize * size_of::<Block>()
    }

    fn cell(&self, block: u32, word: u32) -> &AtomicU64 {
        &self.map.block(block).0[word as usize]
    }
    /// Stores the words of a block that was just taken.
    fn fill(&self, block: u32, words: impl Iterator<Item = u64>) {
        self.map.block(block).0.iter().zip(words).for_each(|(cell, word)| cell.store(word, Ordering::Release));
    }
    /// Stores those words of a block that have changed.
    fn replace(&self, block: u32, words: impl Iterator<Item = u64>) {
        for (cell, word) in self.map.block(block).0.iter().zip(words) {
            if cell.load(Ordering::Relaxed) != word {
                cell.store(word, Ordering::Release);
            }
        }
    }
    fn take(&mut self) -> u32 {
        if self.free != NO_BLOCK {
            let block = self.free;
            self.free = self.cell(block, 0).load(Ordering::Relaxed) as u32;
            self.free_blocks -= 1;
            return block;
        }
        self.unused += 1;
        self.map.blocks.make(self.unused - 1, Block::new);
        self.unused - 1
    }
    /// No slot names this block any more.
    fn let_go(&mut self, block: u32) {
        self.limbo.push(block);
        if self.limbo.len() < self.limbo_max {
            return;
        }
        // Before any of them changes. What the slots say instead came before.
        let reused = self.map.reused.load(Ordering::Relaxed);
        self.map.reused.store(reused + 1, Ordering::Release);
        while let Some(block) = self.limbo.pop() {
            self.cell(block, 0).store(self.free.into(), Ordering::Release);
            self.free = block;
            self.free_blocks += 1;
        }
    }
    /// Sentences about what is wrong with the blocks; none when all is well.
    pub fn audit(&self) -> Vec<String> {
        let mut owners = vec![0u32; self.unused as usize];
        let mut own = |block: u32| owners[block as usize] += 1;
        for page in 0..self.map.pages {
            match self.slot(page) {
                Slot::Empty => {}
                Slot::Run { block, .. } | Slot::Few { block, .. } => own(block),
                Slot::Many { blocks } => blocks.into_iter().for_each(&mut own),
            }
        }
        self.limbo.iter().copied().for_each(&mut own);
        let mut free = self.free;
        while free != NO_BLOCK && owners[free as usize] == 0 {
            owners[free as usize] += 1;
            free = self.cell(free, 0).load(Ordering::Relaxed) as u32;
        }
        let mut wrong = Vec::new();
        if free != NO_BLOCK {
            wrong.push(format!("block {free} of the map is free, and used as well"));
        }
        let odd = owners.iter().enumerate().filter(|(_, owners)| **owners != 1);
        wrong.extend(odd.map(|(block, owners)| format!("block {block} of the map has {owners} owners")));
        wrong
    }
}

/// The bits that are set, ascending.
fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block belongs to one page, or waits, or is free: what is two of these, or none, is named.
    #[test]
    fn an_audit_names_blocks_of_two_owners_or_of_none() {
        let mut writer = MapWriter::new(2);
        (0..N).for_each(|s| writer.set(s, Some(Located { place: 100 + 2 * s, checksum: s })));
        assert_eq!(writer.audit(), [""; 0]);
        let block = match writer.slot(0) {
            Slot::Run { block, .. } | Slot::Few { block, .. } => block,
            Slot::Many { blocks } => blocks[0],
            Slot::Empty => panic!("it has places"),
        };
        writer.limbo.push(block);
        assert_eq!(writer.audit(), [format!("block {block} of the map has 2 owners")]);
        writer.limbo.pop();
        let lost = writer.unused;
        writer.unused += 1;
        assert_eq!(writer.audit(), [format!("block {lost} of the map has 0 owners")]);
        writer.unused -= 1;
        let free = std::mem::replace(&mut writer.free, block);
        assert!(writer.audit().contains(&format!("block {block} of the map is free, and used as well")));
        writer.free = free;
        assert_eq!(writer.audit(), [""; 0]);
    }
}
