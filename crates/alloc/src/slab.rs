//! Slabs: pages that are cut into slots of one class, and a bit for each slot.

use fulgurite_format::SUBPAGE_BYTES;

use crate::classes::{CLASSES, per_page};

/// Pages of a slab. More make fewer slabs. Fewer come free sooner.
const PAGES: usize = 16;
/// Bytes of a slab.
pub const SLAB_BYTES: usize = PAGES * SUBPAGE_BYTES;

/// See the module.
#[derive(Debug)]
pub struct Slab {
    pub class: usize,
    /// Slots that are taken.
    taken: usize,
    bits: Box<[u64]>,
    /// No word before this one has a free bit.
    first: usize,
}

impl Slab {
    pub fn new(class: usize) -> Slab {
        Slab { class, taken: 0, bits: vec![0; (PAGES * per_page(class)).div_ceil(64)].into(), first: 0 }
    }
    fn slots(&self) -> usize {
        PAGES * per_page(self.class)
    }
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }
    pub fn is_full(&self) -> bool {
        self.taken == self.slots()
    }
    pub fn taken_bytes(&self) -> usize {
        self.taken * CLASSES[self.class]
    }

    /// Takes the lowest free slot, and returns where it is in the slab.
    ///
    /// # Panics
    /// When it is full.
    pub fn take(&mut self) -> usize {
        assert!(!self.is_full(), "a full slab is not asked");
        while self.bits[self.first] == u64::MAX {
            self.first += 1;
        }
        let bit = self.bits[self.first].trailing_ones();
        self.bits[self.first] |= 1 << bit;
        self.taken += 1;
        let slot = self.first * 64 + bit as usize;
        slot / per_page(self.class) * SUBPAGE_BYTES + slot % per_page(self.class) * CLASSES[self.class]
    }

    /// The word and bit of the slot at this place, if one that is taken begins there.
    fn find(&self, offset: usize) -> Option<(usize, u32)> {
        let (page, inside, size) = (offset / SUBPAGE_BYTES, offset % SUBPAGE_BYTES, CLASSES[self.class]);
        if !inside.is_multiple_of(size) || inside / size >= per_page(self.class) {
            return None;
        }
        let slot = page * per_page(self.class) + inside / size;
        let (word, bit) = (slot / 64, slot as u32 % 64);
        (self.bits[word] >> bit & 1 == 1).then_some((word, bit))
    }
    /// Whether a slot that is taken begins there.
    pub fn has(&self, offset: usize) -> bool {
        self.find(offset).is_some()
    }
    /// Gives a slot back. False when none that is taken begins there.
    pub fn give(&mut self, offset: usize) -> bool {
        let Some((word, bit)) = self.find(offset) else { return false };
        self.bits[word] &= !(1 << bit);
        self.first = self.first.min(word);
        self.taken -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_come_back() {
        for (class, size) in CLASSES.iter().enumerate() {
            let mut slab = Slab::new(class);
            let mut places = Vec::new();
            while !slab.is_full() {
                places.push(slab.take());
            }
            assert!(places.windows(2).all(|pair| pair[0] + size <= pair[1]), "{size}");
            for place in &places {
                assert!(place % SUBPAGE_BYTES + size <= SUBPAGE_BYTES && place + size <= SLAB_BYTES, "{size}");
                assert!(slab.has(*place) && !slab.has(place + 8));
            }
            let (early, late) = (places[places.len() / 3], places[places.len() - 1]);
            assert!(slab.give(late) && slab.give(early) && !slab.give(early) && !slab.give(early + 1));
            assert_eq!((slab.take(), slab.take()), (early, late), "the lowest first");
            assert!(places.iter().all(|place| slab.give(*place)) && slab.is_empty() && slab.taken_bytes() == 0);
        }
    }
}
