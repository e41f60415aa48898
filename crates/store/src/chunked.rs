//! A table by number that has only those parts which were asked for.
//!
//! Invariants: a part never moves and is never freed, so readers need no lock while one thread adds
//! parts. Their size follows from the table's, so that the directory stays in the nearest caches,
//! and growth is in small steps.

use std::sync::OnceLock;

/// Parts of a full table, unless they would be too small or too large for that.
const PARTS: usize = 128;
/// The fewest bytes of a part: the directory and the allocator take 2% of that. And the most.
const PART_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

/// The table.
#[derive(Debug)]
pub struct Chunked<T> {
    parts: Box<[OnceLock<Box<[T]>>]>,
    /// Items of a part, as a power of two.
    shift: u32,
}

impl<T> Chunked<T> {
    /// A table of at most `most` items, of which none is there.
    pub fn new(most: u32) -> Chunked<T> {
        let bytes = (most as usize * size_of::<T>() / PARTS).clamp(*PART_BYTES.start(), *PART_BYTES.end());
        // loom follows each item.
        let part = if cfg!(loom) { 1 } else { (bytes / size_of::<T>()).min(most as usize).next_power_of_two() as u32 };
        Chunked { parts: (0..most.div_ceil(part)).map(|_| OnceLock::new()).collect(), shift: part.ilog2() }
    }
    fn part(&self) -> usize {
        1 << self.shift
    }
    fn split(&self, item: u32) -> (usize, usize) {
        ((item >> self.shift) as usize, item as usize & (self.part() - 1))
    }
    /// An item; none where its part is not there.
    ///
    /// # Panics
    /// When the table has no such item.
    #[inline]
    pub fn get(&self, item: u32) -> Option<&T> {
        let (part, at) = self.split(item);
        self.parts[part].get().map(|part| &part[at])
    }
    /// An item, to be changed; none where its part is not there.
    pub fn get_mut(&mut self, item: u32) -> Option<&mut T> {
        let (part, at) = self.split(item);
        self.parts[part].get_mut().map(|part| &mut part[at])
    }
    /// An item, after its part is made with all items as `new` makes them, if need be. Only one
    /// thread at a time.
    pub fn make(&self, item: u32, new: impl Fn() -> T) -> &T {
        let (part, at) = self.split(item);
        &self.parts[part].get_or_init(|| (0..self.part()).map(|_| new()).collect())[at]
    }
    /// DRAM.
    pub fn bytes(&self) -> usize {
        self.bytes_with(self.parts.iter().filter(|part| part.get().is_some()).count())
    }
    /// DRAM when all is there.
    pub fn bytes_max(&self) -> usize {
        self.bytes_with(self.parts.len())
    }
    fn bytes_with(&self, parts: usize) -> usize {
        // The allocator takes a header, and what the alignment costs.
        let part = self.part() * size_of::<T>() + 16 + align_of::<T>();
        size_of_val(&*self.parts) + parts * part
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_there() {
        for most in [1, 15, 16, 1000, 1 << 20] {
            let mut table = Chunked::<u32>::new(most);
            let (empty, full) = (table.bytes(), table.bytes_max());
            assert!(table.get(most - 1).is_none() && empty < full);
            assert_eq!(*table.make(most - 1, || 7), 7);
            *table.get_mut(most - 1).unwrap() = 8;
            assert_eq!(table.get(most - 1), Some(&8));
            assert!(table.bytes() <= full && table.bytes() > empty);
            (0..most).for_each(|item| assert!([7, 8].contains(table.make(item, || 7))));
            assert_eq!(table.bytes(), full);
            // What is full costs little more than its items.
            assert!(most < 1 << 20 || full <= most as usize * 4 * 51 / 50, "{most}: {full}");
        }
    }
    #[test]
    #[should_panic(expected = "out of bounds")]
    fn there_is_nothing_behind_the_last_part() {
        let _ = Chunked::<u32>::new(64).get(64);
    }
}
