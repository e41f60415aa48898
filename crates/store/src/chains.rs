//! The lengths that chains of pages would have in NVMM, for reclaim by them
//! ([`Victims::LongestChains`]).
//!
//! In NVMM each write of a page adds a version to its chain, and hidden ones stay until reclaim
//! consolidates the page: "blocks are freed from the longest chains first". Here an unneeded
//! version leaves its chain at once, so NVMM's lengths are counted separately. An extent has parts
//! of many chains. Its value is the sum, over its dead versions, of their chain's length when they
//! died.
//!
//! A record costs a few additions, and flash nothing. An opened pool starts counting anew, as it
//! does with heat.
//!
//! [`Victims::LongestChains`]: crate::Victims::LongestChains

/// The counts.
#[derive(Debug)]
pub struct Chains {
    /// Versions of each page since it was consolidated, up to 65,535.
    lengths: Vec<u16>,
    /// The sum of each extent, see above.
    sums: Vec<u64>,
}

impl Chains {
    /// Counts of no versions.
    pub fn new(pages: u32, extents: u32) -> Chains {
        Chains { lengths: vec![0; pages as usize], sums: vec![0; extents as usize] }
    }
    /// There are `extents` extents from now on.
    pub fn grow(&mut self, extents: u32) {
        self.sums.resize(extents as usize, 0);
    }
    /// DRAM in bytes.
    pub fn bytes(&self) -> usize {
        self.lengths.capacity() * size_of::<u16>() + self.sums.capacity() * size_of::<u64>()
    }
    /// A version was added to the chain of a page.
    pub fn added(&mut self, page: u32) {
        let length = &mut self.lengths[page as usize];
        *length = length.saturating_add(1);
    }
    /// A version of a page that is stored in this extent is not needed any more. It has this
    /// weight.
    pub fn superseded(&mut self, page: u32, extent: u32, weight: u32) {
        // What was there before the counts began has a chain, too.
        let length = self.lengths[page as usize].max(1);
        let sum = &mut self.sums[extent as usize];
        *sum = sum.saturating_add(u64::from(length) * u64::from(weight));
    }
    /// Reclaim has moved part of a page: NVMM writes all of it anew then, as one version.
    pub fn consolidated(&mut self, page: u32) {
        self.lengths[page as usize] = 1;
    }
    /// An extent begins anew.
    pub fn begun(&mut self, extent: u32) {
        self.sums[extent as usize] = 0;
    }
    /// The sum for an extent.
    pub fn of(&self, extent: u32) -> u64 {
        self.sums[extent as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_of_long_chains_comes_before_one_that_lost_more() {
        let mut chains = Chains::new(8, 4);
        // Page 7 is written ten times; the last three of the versions that this hides are in extent
        // 1.
        for write in 1..=10 {
            chains.added(7);
            chains.superseded(7, if write > 7 { 1 } else { 0 }, 1);
        }
        // Five pages are written a second time; the versions that this hides are in extent 2.
        for page in 0..5 {
            chains.added(page);
            chains.added(page);
            chains.superseded(page, 2, 1);
        }
        assert_eq!((chains.of(1), chains.of(2)), (8 + 9 + 10, 5 * 2));
        chains.consolidated(7);
        chains.added(7);
        chains.superseded(7, 3, 1);
        assert_eq!(chains.of(3), 2, "a chain that was consolidated begins anew");
        chains.begun(1);
        assert_eq!((chains.of(1), chains.of(2)), (0, 10));
    }
    #[test]
    fn what_cannot_be_counted_stays_at_the_maximum() {
        let mut chains = Chains::new(1, 1);
        (0..70_000).for_each(|_| chains.added(0));
        chains.superseded(0, 0, 1);
        assert_eq!(chains.of(0), 65_535);
        chains.superseded(0, 0, u32::MAX);
        assert!(chains.of(0) > u64::from(u32::MAX));
        let mut unknown = Chains::new(1, 1);
        unknown.superseded(0, 0, 3);
        assert_eq!(unknown.of(0), 3, "older than the counts");
    }
}
