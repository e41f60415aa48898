//! Where the nodes of a structure that is built at once are placed: in order, or scattered.
//!
//! Invariant: for every layout, ranks `0..count` and slots `0..count` correspond one to one, as a
//! pure function of the seed.

use fulgurite_format::{Address, SUBPAGE_BYTES};

/// How nodes are placed by the constructors that build a structure at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Pseudo-random, as in a heap filled in random order: neighbours in key order share no
    /// subpage. Equal seeds give equal placements.
    Scattered {
        /// Chooses the placement.
        seed: u64,
    },
    /// In key order: neighbours share a subpage.
    Clustered,
}

impl Default for Layout {
    fn default() -> Self {
        Layout::Scattered { seed: 0 }
    }
}

/// Objects that [`crate::Heap::reserve`] handed out together.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    base: Address,
    size: u64,
    per_subpage: u64,
    pub(crate) count: u64,
    pub(crate) bytes: usize,
    scatter: Option<Scatter>,
}

impl Reservation {
    pub(crate) fn new(base: Address, size: u64, count: u64, bytes: usize, scatter: Option<Scatter>) -> Self {
        Reservation { base, size, per_subpage: SUBPAGE_BYTES as u64 / size, count, bytes, scatter }
    }
    /// The slot's address, in order of addresses.
    pub(crate) fn slot(&self, slot: u64) -> Address {
        let (subpage, inside) = (slot / self.per_subpage, slot % self.per_subpage);
        self.base.add(subpage * SUBPAGE_BYTES as u64 + inside * self.size)
    }
    /// Where the object with this rank is placed. Each rank has its own place.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn at(&self, rank: u64) -> Address {
        assert!(rank < self.count, "object {rank} of a reservation of {}", self.count);
        self.slot(self.scatter.map_or(rank, |scatter| scatter.permute(rank)))
    }
    /// How many objects.
    pub fn len(&self) -> u64 {
        self.count
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A pseudo-random permutation of `0..count` without a table: a Feistel network over the next even
/// number of bits, walked until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite
/// domains", 2002).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Scatter {
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Scatter { count, half_bits: bits.div_ceil(2).max(1), seed }
    }
    pub(crate) fn permute(&self, rank: u64) -> u64 {
        debug_assert!(rank < self.count);
        let mask = (1u64 << self.half_bits) - 1;
        let mut at = rank;
        loop {
            let (mut left, mut right) = (at >> self.half_bits, at & mask);
            for round in 0..3u64 {
                let mixed = crate::hash::mix(right ^ self.seed, round + 1);
                (left, right) = (right, (left ^ mixed) & mask);
            }
            at = (left << self.half_bits) | right;
            if at < self.count {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_is_a_permutation() {
        for count in [1u64, 2, 3, 4, 5, 63, 64, 65, 1000] {
            for seed in 0..4 {
                let scatter = Scatter::new(count, seed);
                let mut seen: Vec<u64> = (0..count).map(|rank| scatter.permute(rank)).collect();
                if count >= 64 {
                    let moved = seen.iter().enumerate().filter(|&(rank, &slot)| slot != rank as u64).count();
                    assert!(moved as u64 > count / 2, "{count} {seed}");
                }
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..count), "{count} {seed}");
            }
        }
    }
}
