//! The size of chunk that keeps the medium busy, found by trying (the paper, 5.4).
//!
//! Not here: the splitting ([`super::transfer`]), and the data buffer ([`super::buddy`]).

/// The size of chunk that keeps the medium busy, found by trying.
///
/// Each power of two has its recent sectors a second. The smallest within [`Chunks::ENOUGH`] of the
/// best is in use. One in [`Chunks::TRY`] requests tries a neighbour, to notice a change of the
/// medium. Only requests of at least two chunks of a size count.
#[derive(Clone, Debug)]
pub struct Chunks {
    fixed: Option<u32>,
    largest: u32,
    depth: u32,
    /// By order: sectors a second; 0 where it was not tried.
    rates: Vec<f64>,
    requests: u32,
}

impl Chunks {
    /// Of the best, in percent: what is enough.
    pub const ENOUGH: u32 = 97;
    /// One in how many requests tries another size.
    pub const TRY: u32 = 16;
    /// 32 sectors, 128 KiB: what the paper's example splits 512 KiB into.
    const FIRST: u32 = 32;

    pub(super) fn new(largest: u32, depth: usize) -> Chunks {
        let orders = largest.max(1).ilog2() as usize + 1;
        Chunks { fixed: None, largest: largest.max(1), depth: depth as u32, rates: vec![0.0; orders], requests: 0 }
    }
    /// The size in use, in sectors.
    #[must_use]
    pub fn size(&self) -> u32 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let best = self.rates.iter().copied().fold(0.0, f64::max);
        let enough = best * f64::from(Chunks::ENOUGH) / 100.0;
        let found = self.rates.iter().position(|&rate| rate > 0.0 && rate >= enough);
        found.map_or(Chunks::FIRST, |order| 1 << order).min(self.largest_power())
    }
    /// What each size gave: sectors, and sectors a second.
    pub fn rates(&self) -> impl Iterator<Item = (u32, f64)> {
        self.rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0).map(|(order, &rate)| (1 << order, rate))
    }
    /// From now on always this one; none finds it by trying.
    pub(super) fn fix(&mut self, sectors: Option<u32>) {
        self.fixed = sectors.map(|sectors| sectors.clamp(1, self.largest));
    }
    fn largest_power(&self) -> u32 {
        1 << (self.rates.len() - 1)
    }
    /// The size of the chunks into which `sectors` sectors are split.
    pub(super) fn choose(&mut self, sectors: u32) -> u32 {
        let size = self.size();
        if self.fixed.is_some() {
            return size;
        }
        self.requests = self.requests.wrapping_add(1);
        // In turns below and above. A request no longer than the chunk has nothing to split.
        let tried = match self.requests % (2 * Chunks::TRY) {
            0 => size / 2,
            r if r == Chunks::TRY => size * 2,
            // Sizes never tried, while there are any: their neighbours may be worse than they are.
            r if r < self.rates.len() as u32 && self.rates[r as usize] == 0.0 => 1 << r,
            _ => size,
        };
        let most = self.largest_power().min(sectors.div_ceil(2).next_power_of_two());
        tried.clamp(1, most.max(1))
    }
    /// Notes that `sectors` sectors, in chunks of this size, took `ns`.
    pub(super) fn gave(&mut self, chunk: u32, sectors: u32, ns: u64) {
        // Without several at a time there is no pipeline to be measured.
        if self.fixed.is_some() || sectors < 2 * chunk || self.depth < 2 || !chunk.is_power_of_two() {
            return;
        }
        let rate = f64::from(sectors) * 1e9 / ns.max(1) as f64;
        let kept = &mut self.rates[chunk.ilog2() as usize];
        *kept = if *kept == 0.0 { rate } else { *kept * 0.75 + rate * 0.25 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium whose chunks take a fixed time and a time by size: the smallest size near the best
    /// is found again when the medium changes.
    #[test]
    fn the_smallest_chunk_that_is_enough_is_found() {
        let mut chunks = Chunks::new(1024, 4);
        for (overhead_ns, expected) in [(1_000, 16..=64), (20_000, 256..=1024), (10, 1..=2)] {
            for _ in 0..2000 {
                let chunk = chunks.choose(4096);
                let ns = u64::from(4096 / chunk) * overhead_ns + 4096 * 1_000;
                chunks.gave(chunk, 4096, ns);
            }
            assert!(expected.contains(&chunks.size()), "overhead {overhead_ns}: {chunks:?}");
        }
        chunks.fix(Some(7));
        assert_eq!(chunks.choose(4096), 7);
    }
    #[test]
    fn a_small_request_is_not_split_into_more_than_it_has() {
        let mut chunks = Chunks::new(128, 4);
        for sectors in [0, 1, 2, 3, 5, 128, 1 << 30] {
            for _ in 0..100 {
                assert!((1..=128).contains(&chunks.choose(sectors)));
            }
        }
    }
}
