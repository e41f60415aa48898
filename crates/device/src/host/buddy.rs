//! A buddy allocator for the sectors of a data buffer (Knuth, The Art of Computer Programming 1,
//! 2.5; the paper, 5.4).
//!
//! A command names one contiguous range, so large ranges must stay possible. Blocks are powers of
//! two at multiples of their size, and free buddies are joined at once. The lowest block is taken.
//! One bit for each possible block says that it is free.
//!
//! Invariant ([`Buddy::check`]): free blocks do not overlap, no two buddies are both free, and free
//! and taken make up the buffer.

/// An allocator of sectors.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// By order: a bit for each block of 2^order sectors, set when it is free.
    free: Vec<Vec<u64>>,
    /// By order: how many are.
    counts: Vec<u32>,
    sectors: u32,
    free_sectors: u32,
}

fn order_of(count: u32) -> Option<usize> {
    let size = count.checked_next_power_of_two().filter(|_| count > 0)?;
    Some(size.trailing_zeros() as usize)
}

impl Buddy {
    /// All free. Where the size is not a power of two, it is made of several blocks that are.
    #[must_use]
    pub fn new(sectors: u32) -> Buddy {
        let orders = (u32::BITS - sectors.leading_zeros()) as usize;
        let words = |order: usize| (sectors >> order).div_ceil(64) as usize;
        let mut buddy = Buddy {
            free: (0..orders).map(|order| vec![0; words(order)]).collect(),
            counts: vec![0; orders],
            sectors,
            free_sectors: sectors,
        };
        let mut first = 0;
        for order in (0..orders).rev() {
            if sectors & 1 << order != 0 {
                buddy.set(order, first >> order);
                first += 1 << order;
            }
        }
        buddy
    }
    fn set(&mut self, order: usize, block: u32) {
        self.free[order][block as usize / 64] |= 1 << (block % 64);
        self.counts[order] += 1;
    }
    fn clear(&mut self, order: usize, block: u32) {
        self.free[order][block as usize / 64] &= !(1 << (block % 64));
        self.counts[order] -= 1;
    }
    fn is_free(&self, order: usize, block: u32) -> bool {
        self.free[order].get(block as usize / 64).is_some_and(|word| word & 1 << (block % 64) != 0)
    }
    /// Takes a range of at least `count` sectors. None without a block that large, or for a `count`
    /// of 0.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let order = order_of(count)?;
        let mut found = (order..self.free.len()).find(|&order| self.counts[order] > 0)?;
        let word = self.free[found].iter().position(|&word| word != 0)?;
        let mut block = word as u32 * 64 + self.free[found][word].trailing_zeros();
        self.clear(found, block);
        while found > order {
            // The upper half stays free.
            (found, block) = (found - 1, block * 2);
            self.set(found, block + 1);
        }
        self.free_sectors -= 1 << order;
        Some(block << order)
    }
    /// Gives back what [`Buddy::take`] returned for this count.
    ///
    /// # Panics
    /// When that is no such range, or is free already.
    pub fn give(&mut self, first: u32, count: u32) {
        let mut order = order_of(count).expect("a range of sectors");
        let mut block = first >> order;
        assert!(block << order == first && first < self.sectors, "no block of 2^{order} sectors begins at {first}");
        assert!(
            (order..self.free.len()).all(|above| !self.is_free(above, first >> above)),
            "sectors from {first} on were given back twice"
        );
        self.free_sectors += 1 << order;
        while order + 1 < self.free.len() && self.is_free(order, block ^ 1) {
            self.clear(order, block ^ 1);
            (order, block) = (order + 1, block / 2);
        }
        self.set(order, block);
    }
    /// Sectors that are free.
    #[must_use]
    pub fn free_sectors(&self) -> u32 {
        self.free_sectors
    }
    /// The largest range that can be taken.
    #[must_use]
    pub fn largest(&self) -> u32 {
        (0..self.free.len()).rev().find(|&order| self.counts[order] > 0).map_or(0, |order| 1 << order)
    }
    /// Sentences about what is wrong; none when all is well.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut covered = vec![false; self.sectors as usize];
        let mut total = 0;
        for order in 0..self.free.len() {
            let mut count = 0;
            for block in (0..self.sectors >> order).filter(|&block| self.is_free(order, block)) {
                count += 1;
                total += 1 << order;
                for sector in &mut covered[(block << order) as usize..((block + 1) << order) as usize] {
                    if std::mem::replace(sector, true) {
                        wrong.push(format!("block {block} of order {order} overlaps another free one"));
                    }
                }
                if block & 1 == 0 && self.is_free(order, block ^ 1) && order + 1 < self.free.len() {
                    wrong.push(format!("blocks {block} and {} of order {order} are both free", block ^ 1));
                }
            }
            if count != self.counts[order] {
                wrong.push(format!("order {order} has {count} free blocks and counts {}", self.counts[order]));
            }
        }
        if total != self.free_sectors {
            wrong.push(format!("{total} sectors are free, and {} are counted", self.free_sectors));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_block_is_split_and_put_together_again() {
        let mut buddy = Buddy::new(16);
        assert_eq!(buddy.take(3), Some(0));
        assert_eq!(buddy.take(1), Some(4));
        assert_eq!(buddy.take(8), Some(8));
        assert_eq!((buddy.take(4), buddy.largest(), buddy.free_sectors()), (None, 2, 3));
        buddy.give(0, 3);
        buddy.give(4, 1);
        assert_eq!(buddy.take(8), Some(0));
        buddy.give(8, 8);
        buddy.give(0, 8);
        assert_eq!((buddy.largest(), buddy.check()), (16, vec![]));
    }
    #[test]
    fn what_cannot_be_is_none() {
        let mut buddy = Buddy::new(5);
        assert_eq!((buddy.take(0), buddy.take(8), buddy.take(u32::MAX)), (None, None, None));
        assert_eq!((buddy.take(4), buddy.take(1), buddy.take(1)), (Some(0), Some(4), None));
        assert_eq!(Buddy::new(0).take(1), None);
    }
    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_range_is_given_back_once() {
        let mut buddy = Buddy::new(8);
        let first = buddy.take(2).unwrap();
        buddy.give(first, 2);
        buddy.give(first, 2);
    }
    /// Against a map of owners by sector, for buffers of any size.
    #[test]
    fn it_never_gives_a_sector_twice() {
        let mut state = fulgurite_testkit::Random(12345);
        let mut next = |n: u64| state.below(n);
        for sectors in [1, 7, 64, 100, 1000] {
            let (mut buddy, mut owned) = (Buddy::new(sectors), vec![false; sectors as usize]);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for _ in 0..2000 {
                let count = 1 << next(5);
                if next(2) == 0 {
                    if let Some(first) = buddy.take(count) {
                        for sector in &mut owned[first as usize..(first + count) as usize] {
                            assert!(!std::mem::replace(sector, true));
                        }
                        taken.push((first, count));
                    } else {
                        assert!(buddy.largest() < count);
                    }
                } else if !taken.is_empty() {
                    let (first, count) = taken.swap_remove(next(taken.len() as u64) as usize);
                    owned[first as usize..(first + count) as usize].fill(false);
                    buddy.give(first, count);
                }
                assert_eq!(buddy.check(), Vec::<String>::new());
                assert_eq!(owned.iter().filter(|&&owned| !owned).count() as u32, buddy.free_sectors());
            }
            for (first, count) in taken {
                buddy.give(first, count);
            }
            assert_eq!(buddy.largest(), 1 << sectors.ilog2());
        }
    }
}
