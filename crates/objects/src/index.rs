//! From numbers to positions in the buffer, by linear probing. A tag of 8 bits avoids most reads of
//! other objects' headers.

use fulgurite_sys::Mapping;

use crate::ring::{Header, UNIT};

/// A slot: 0, or a tag above a position in units, plus one.
const TAG_SHIFT: u32 = 24;
const POSITION: u32 = (1 << TAG_SHIFT) - 1;

#[derive(Debug)]
pub struct Index {
    slots: Mapping<u32>,
    count: usize,
}

/// Spreads numbers, which are mostly neighbours.
pub fn spread(number: u32) -> u64 {
    u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Index {
    pub fn new(slots: usize) -> Index {
        Index { slots: Mapping::zeroed(slots), count: 0 }
    }
    pub fn len(&self) -> usize {
        self.count
    }
    pub fn slots(&self) -> usize {
        self.slots.len()
    }
    /// One in eight slots stays empty, so that searches end soon.
    pub fn is_full(&self) -> bool {
        self.count >= self.slots.len() / 8 * 7
    }
    fn home(&self, number: u32) -> usize {
        (((spread(number) >> 32) * self.slots.len() as u64) >> 32) as usize
    }
    fn word(number: u32, at: usize) -> u32 {
        let tag = (spread(number) >> 24) as u8;
        u32::from(tag) << TAG_SHIFT | ((at / UNIT) as u32 + 1)
    }
    fn place(word: u32) -> usize {
        ((word & POSITION) as usize - 1) * UNIT
    }
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }
    /// The slot of a number, its place and header.
    #[inline]
    pub fn find(&self, buffer: &[u8], number: u32) -> Option<(usize, usize, Header)> {
        let tag = Index::word(number, 0) & !POSITION;
        let mut slot = self.home(number);
        loop {
            let word = self.slots[slot];
            if word == 0 {
                return None;
            }
            if word & !POSITION == tag {
                let at = Index::place(word);
                let header = Header::read(buffer, at);
                if header.number() == number {
                    return Some((slot, at, header));
                }
            }
            slot = self.next(slot);
        }
    }
    /// Enters a number that is not there, with the position of its entry.
    pub fn insert(&mut self, number: u32, at: usize) {
        let mut slot = self.home(number);
        while self.slots[slot] != 0 {
            slot = self.next(slot);
        }
        self.slots[slot] = Index::word(number, at);
        self.count += 1;
    }
    /// The entry of a slot's number moved to this position.
    pub fn moved(&mut self, slot: usize, number: u32, at: usize) {
        self.slots[slot] = Index::word(number, at);
    }
    /// Empties a slot. Those behind it close up, so that searches need no mark.
    pub fn remove(&mut self, buffer: &[u8], mut hole: usize) {
        let slots = self.slots.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + slots - from };
        let mut slot = self.next(hole);
        while self.slots[slot] != 0 {
            let home = self.home(Header::read(buffer, Index::place(self.slots[slot])).number());
            if distance(home, slot) >= distance(hole, slot) {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
            slot = self.next(slot);
        }
        self.slots[hole] = 0;
        self.count -= 1;
    }
    pub fn clear(&mut self) {
        self.slots.fill(0);
        self.count = 0;
    }
}
