//! Which cores hold a block in their L1: the directory next to the tiles of the LLC.
//!
//! ```text
//!   heads, by a hash of the block     entries                        holders
//!   [ 7 | - | 2 | .. ] ------------>  [block | ready | next | ..] -> [a bit for each core]
//! ```
//!
//! It has an entry for each block that is in an L1, and an L1 tells what it drops. So it is as
//! exact as a copy of the tags of all L1s. It has room for all of them, and never takes a block out
//! of an L1 for want of room.
//!
//! | MESI | here |
//! |---|---|
//! | modified | alone, and written |
//! | exclusive | alone |
//! | shared | not alone |
//! | invalid | no entry, or not a holder |
//!
//! Invariants ([`Directory::check`]): holders are the L1s that have the block. A block that is
//! alone has one holder. A written one is alone.

use super::sram::Sram;
use crate::time::Time;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    block: u64,
    /// When the last core that got it has it.
    ready: Time,
    /// The next entry of its head, or the next free one.
    next: u32,
    alone: bool,
    written: bool,
}

/// Where a block's entry is, as long as a core has it. Entries do not move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryIndex(usize);

/// The holders of all blocks in L1s.
#[derive(Clone, Debug)]
pub struct Directory {
    heads: Vec<u32>,
    entries: Vec<Entry>,
    /// Words of holders of each entry.
    holders: Vec<u64>,
    words: usize,
    /// The most entries that there can be.
    most: usize,
    free: u32,
}

impl Directory {
    /// Of `cores` cores, whose L1s have `blocks` blocks together. No L1 has any yet.
    pub fn new(cores: u32, blocks: u64) -> Directory {
        Directory {
            heads: vec![NONE; blocks.next_power_of_two().max(2) as usize],
            entries: Vec::new(),
            holders: Vec::new(),
            words: cores.div_ceil(64) as usize,
            most: blocks as usize,
            free: NONE,
        }
    }
    fn head(&self, block: u64) -> usize {
        (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.heads.len().trailing_zeros())) as usize
    }
    /// The place of a block. None: no core has it.
    pub fn find(&self, block: u64) -> Option<EntryIndex> {
        let mut at = self.heads[self.head(block)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.block == block {
                return Some(EntryIndex(at as usize));
            }
            at = entry.next;
        }
        None
    }
    fn words(&self, at: usize) -> &[u64] {
        &self.holders[at * self.words..][..self.words]
    }
    fn word(&mut self, at: usize, core: u32) -> &mut u64 {
        &mut self.holders[at * self.words + core as usize / 64]
    }
    fn has(&self, at: usize, core: u32) -> bool {
        self.words(at)[core as usize / 64] & bit(core) != 0
    }
    fn count(&self, at: usize) -> u32 {
        self.words(at).iter().map(|word| word.count_ones()).sum()
    }

    /// Whether a core has a block for itself, so that it may write it. The block is written then.
    pub fn write(&mut self, core: u32, block: u64) -> bool {
        match self.find(block) {
            Some(EntryIndex(at)) if self.entries[at].alone && self.has(at, core) => {
                self.entries[at].written = true;
                true
            }
            _ => false,
        }
    }
    /// Whether a core has a block.
    pub fn holds(&self, EntryIndex(at): EntryIndex, core: u32) -> bool {
        self.has(at, core)
    }
    /// Whether other cores have to act before a core may read or write a block.
    pub fn concerns_others(&self, EntryIndex(at): EntryIndex, core: u32, writes: bool) -> bool {
        let others = self.count(at) - u32::from(self.has(at, core));
        others > 0 && (writes || self.entries[at].alone)
    }
    /// The other core that has a block for itself.
    pub fn owner(&self, entry: EntryIndex, core: u32) -> Option<u32> {
        if self.entries[entry.0].alone { self.others(entry, core).next() } else { None }
    }
    /// The other cores that have a block, in their order.
    pub fn others(&self, EntryIndex(at): EntryIndex, core: u32) -> impl Iterator<Item = u32> + '_ {
        let words = self.words(at).iter().enumerate();
        let all = words.flat_map(|(word, bits)| Bits(*bits).map(move |at| word as u32 * 64 + at));
        all.filter(move |other| *other != core)
    }
    /// When the last core that got a block has it.
    pub fn ready(&self, EntryIndex(at): EntryIndex) -> Time {
        self.entries[at].ready
    }

    /// A core has a block from `ready` on, which has a place if another one has it. It has it for
    /// itself if no other core has it, as it must be where the core writes.
    pub fn add(&mut self, entry: Option<EntryIndex>, core: u32, block: u64, writes: bool, ready: Time) {
        let EntryIndex(at) = entry.unwrap_or_else(|| self.insert(block));
        *self.word(at, core) |= bit(core);
        let alone = self.count(at) == 1;
        assert!(alone || !writes, "a core writes a block that others have");
        let entry = &mut self.entries[at];
        entry.alone = alone;
        entry.written = writes;
        entry.ready = entry.ready.max(ready);
    }
    /// A block is for no core alone any more. Returns whether it was written.
    pub fn share(&mut self, EntryIndex(at): EntryIndex) -> bool {
        let entry = &mut self.entries[at];
        entry.alone = false;
        std::mem::take(&mut entry.written)
    }
    /// A core does not have a block any more.
    pub fn drop(&mut self, core: u32, block: u64) {
        let Some(entry) = self.find(block) else { return };
        *self.word(entry.0, core) &= !bit(core);
        self.ends(entry);
    }
    /// No other core has a block any more. Notifies each that had it, in their order. Where the
    /// core does not have it either, it has to be added next, or its entry ends
    /// ([`Directory::ends`]).
    pub fn take_from_others(&mut self, EntryIndex(at): EntryIndex, core: u32, mut notify: impl FnMut(u32)) {
        for word in 0..self.words {
            let own = if core as usize / 64 == word { bit(core) } else { 0 };
            let bits = &mut self.holders[at * self.words + word];
            let others = *bits & !own;
            *bits &= own;
            Bits(others).for_each(|other| notify(word as u32 * 64 + other));
        }
    }
    /// The entry of a block is removed if no core has it.
    pub fn ends(&mut self, EntryIndex(at): EntryIndex) {
        if self.words(at).iter().all(|word| *word == 0) {
            self.remove(at);
        }
    }
    fn insert(&mut self, block: u64) -> EntryIndex {
        let head = self.head(block);
        let entry = Entry { block, ready: Time::ZERO, next: self.heads[head], alone: false, written: false };
        let at = match self.free {
            NONE => {
                assert!(self.entries.len() < self.most, "there is room for all that the L1s have");
                self.entries.push(entry);
                self.holders.resize(self.holders.len() + self.words, 0);
                self.entries.len() - 1
            }
            free => {
                self.free = self.entries[free as usize].next;
                self.entries[free as usize] = entry;
                free as usize
            }
        };
        self.heads[head] = at as u32;
        EntryIndex(at)
    }
    fn remove(&mut self, at: usize) {
        let Entry { block, next, .. } = self.entries[at];
        let head = self.head(block);
        if self.heads[head] == at as u32 {
            self.heads[head] = next;
        } else {
            let mut before = self.heads[head] as usize;
            while self.entries[before].next != at as u32 {
                before = self.entries[before].next as usize;
            }
            self.entries[before].next = next;
        }
        self.entries[at].next = self.free;
        self.free = at as u32;
    }

    /// Checks the invariants against the L1s, in the order of the cores.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self, l1s: &[Sram<Time>]) {
        let mut in_l1s = 0;
        for (core, l1) in l1s.iter().enumerate() {
            for block in l1.tags() {
                assert!(
                    self.find(block).is_some_and(|entry| self.holds(entry, core as u32)),
                    "core {core} has block {block}, and the directory does not know"
                );
                in_l1s += 1;
            }
        }
        let mut held = 0;
        for head in &self.heads {
            let mut at = *head;
            while at != NONE {
                let entry = &self.entries[at as usize];
                let count = self.count(at as usize);
                assert!(count > 0 && (!entry.alone || count == 1), "{entry:?} has {count} holders");
                assert!(entry.alone || !entry.written, "{entry:?} was written and is shared");
                held += count;
                at = entry.next;
            }
        }
        assert_eq!(held, in_l1s, "blocks of the directory and of the L1s");
    }
}

const fn bit(core: u32) -> u64 {
    1 << (core % 64)
}

/// The places of the bits that are set, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writes_or_many_read() {
        let mut directory = Directory::new(130, 8);
        directory.add(None, 3, 7, false, Time::ns(1));
        let entry = directory.find(7).unwrap();
        assert!(!directory.concerns_others(entry, 3, true) && directory.concerns_others(entry, 0, false));
        assert!(directory.write(3, 7) && !directory.write(0, 7) && directory.owner(entry, 0) == Some(3));
        assert!(directory.share(entry) && !directory.share(entry) && directory.owner(entry, 0).is_none());
        directory.add(Some(entry), 129, 7, false, Time::ns(5));
        directory.add(Some(entry), 64, 7, false, Time::ns(2));
        assert_eq!(directory.others(entry, 64).collect::<Vec<u32>>(), [3, 129]);
        assert_eq!((directory.ready(entry), directory.find(7)), (Time::ns(5), Some(entry)));
        assert!(!directory.concerns_others(entry, 0, false) && directory.concerns_others(entry, 64, true));
        let mut told = Vec::new();
        directory.take_from_others(entry, 64, |other| told.push(other));
        assert_eq!(told, [3, 129]);
        // It has the block alone, and does not know so.
        assert!(!directory.write(64, 7) && !directory.concerns_others(entry, 64, true));
        directory.add(Some(entry), 64, 7, true, Time::ns(9));
        assert!(directory.write(64, 7));
        directory.drop(64, 7);
        assert_eq!(directory.find(7), None);
    }
    #[test]
    fn what_no_core_has_any_more_ends() {
        let mut directory = Directory::new(2, 4);
        directory.add(None, 0, 5, false, Time::ns(1));
        let entry = directory.find(5).unwrap();
        directory.take_from_others(entry, 1, |other| assert_eq!(other, 0));
        directory.ends(entry);
        assert_eq!(directory.find(5), None);
        directory.check(&[Sram::new(4, 2), Sram::new(4, 2)]);
    }
    #[test]
    fn entries_are_used_again() {
        let mut directory = Directory::new(1, 4);
        for round in 0..1000u64 {
            (0..4).for_each(|block| directory.add(None, 0, round * 4 + block, false, Time::ZERO));
            // From the middle of a head's entries, too.
            for block in [2, 0, 3, 1] {
                directory.drop(0, round * 4 + block);
            }
        }
        assert_eq!(directory.entries.len(), 4);
        directory.check(&[Sram::new(4, 2)]);
    }
    #[test]
    #[should_panic(expected = "the directory does not know")]
    fn a_copy_that_was_forgotten_is_found() {
        let mut l1 = Sram::new(4, 2);
        l1.put(9, Time::ZERO);
        Directory::new(1, 4).check(&[l1]);
    }
}
