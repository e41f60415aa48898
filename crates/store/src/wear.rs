//! Failed flash pages, the extents with too many of them, and how often each extent was filled.
//!
//! Invariants: places ascend, each once. An extent is out of use while more than a quarter of its
//! flash pages for data failed. That is not recorded, because the same pages say the same.

use crate::geometry::{FIRST_EXTENT, Geometry};

/// An extent with more than one bad flash page in this number is used no more.
const RETIRED_SHARE: u32 = 4;

/// What the flash has gone through.
#[derive(Debug)]
pub struct Wear {
    geometry: Geometry,
    places: Vec<u32>,
    fills: Vec<u32>,
}

/// How often extents were filled, over those that are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fills {
    /// The least.
    pub min: u32,
    /// The median.
    pub median: u32,
    /// The most.
    pub max: u32,
    /// The sum of all.
    pub sum: u64,
}

impl Wear {
    /// None yet.
    pub fn new(geometry: Geometry) -> Wear {
        Wear { geometry, places: Vec::new(), fills: vec![0; geometry.extents as usize] }
    }
    /// There are `extents` extents from now on, and the new ones were never filled.
    pub fn grow(&mut self, extents: u32) {
        self.geometry.extents = extents;
        self.fills.resize(extents as usize, 0);
    }
    /// All, ascending.
    pub fn places(&self) -> &[u32] {
        &self.places
    }
    /// Whether a flash page is one of them.
    pub fn contains(&self, place: u32) -> bool {
        self.places.binary_search(&place).is_ok()
    }
    /// One more. Returns whether it was not known.
    pub fn insert(&mut self, place: u32) -> bool {
        let at = self.places.binary_search(&place);
        at.is_err_and(|at| {
            self.places.insert(at, place);
            true
        })
    }
    /// How many of an extent's failed.
    pub fn in_extent(&self, extent: u32) -> u32 {
        self.in_first_of(extent, self.geometry.extent_pages)
    }
    fn in_first_of(&self, extent: u32, pages: u32) -> u32 {
        let before = |place: u32| self.places.partition_point(|p| *p < place) as u32;
        let first = self.geometry.first_of(extent);
        if self.places.is_empty() { 0 } else { before(first + pages) - before(first) }
    }
    /// How many flash pages of an extent data can be written to.
    pub fn usable(&self, extent: u32) -> u32 {
        let pages = self.geometry.data_pages();
        pages - self.in_first_of(extent, pages)
    }
    /// Whether an extent is out of use.
    pub fn is_retired(&self, extent: u32) -> bool {
        extent >= FIRST_EXTENT && self.in_extent(extent) * RETIRED_SHARE > self.geometry.data_pages()
    }
    /// Extents that are out of use.
    pub fn retired(&self) -> u32 {
        let extents = self.places.chunk_by(|a, b| self.geometry.extent_of(*a) == self.geometry.extent_of(*b));
        extents.filter(|places| self.is_retired(self.geometry.extent_of(places[0]))).count() as u32
    }
    /// How often an extent was filled.
    pub fn fills(&self, extent: u32) -> u32 {
        self.fills[extent as usize]
    }
    /// The fills of all extents.
    pub fn all_fills(&self) -> &[u32] {
        &self.fills
    }
    /// Sets the fills of contiguous extents.
    pub fn set_fills(&mut self, first: u32, fills: &[u32]) {
        self.fills[first as usize..][..fills.len()].copy_from_slice(fills);
    }
    /// Over all extents that may hold anything.
    pub fn summary(&self) -> Fills {
        let in_use = (FIRST_EXTENT..self.geometry.extents).filter(|e| !self.is_retired(*e));
        let mut fills: Vec<u32> = in_use.map(|e| self.fills(e)).collect();
        fills.sort_unstable();
        let (Some(min), Some(max)) = (fills.first(), fills.last()) else { return Fills::default() };
        Fills { min: *min, median: fills[fills.len() / 2], max: *max, sum: fills.iter().map(|n| u64::from(*n)).sum() }
    }
    /// DRAM.
    pub fn bytes(&self) -> usize {
        (self.places.capacity() + self.fills.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_with_too_many_is_out_of_use() {
        let g = Geometry { extent_pages: 16, extents: 40, subpages: 64, objects: false };
        let mut bad = Wear::new(g);
        for place in [16 * 5 + 3, 16 * 5, 16 * 5 + 15, 7] {
            assert!(bad.insert(place));
            assert!(!bad.insert(place) && bad.contains(place));
        }
        assert_eq!((bad.in_extent(5), bad.in_extent(4), bad.in_extent(0), bad.retired()), (3, 0, 1, 0));
        // The last one is of the summary.
        assert_eq!((bad.usable(5), bad.usable(4)), (g.data_pages() - 2, g.data_pages()));
        bad.insert(16 * 5 + 9);
        assert!(bad.is_retired(5) && bad.retired() == 1);
        assert_eq!(bad.places(), [7, 80, 83, 89, 95]);
        // What is never given out is never taken out.
        (1..16).for_each(|place| assert!(place == 7 || bad.insert(place)));
        assert!(!bad.is_retired(0));
    }
    #[test]
    fn fills_are_summed_up_over_the_extents_in_use() {
        let g = Geometry { extent_pages: 16, extents: 8, subpages: 64, objects: false };
        let mut wear = Wear::new(g);
        assert_eq!(wear.summary(), Fills::default());
        wear.set_fills(3, &[5, 1, 9]);
        wear.set_fills(6, &[4]);
        wear.set_fills(0, &[100, 100, 100]);
        assert_eq!((wear.fills(4), wear.all_fills()[5]), (1, 9));
        assert_eq!(wear.summary(), Fills { min: 0, median: 4, max: 9, sum: 19 });
        (0..4).for_each(|i| _ = wear.insert(5 * 16 + i));
        assert_eq!(wear.summary(), Fills { min: 0, median: 4, max: 5, sum: 10 });
        wear.insert(2 * 16 + 15);
        wear.insert(3 * 16);
        assert_eq!((wear.in_extent(2), wear.in_extent(3), wear.in_extent(5), wear.retired()), (1, 1, 4, 1));
    }
}
