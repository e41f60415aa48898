//! Flash pages that failed, and the extents that have too many of them.
//!
//! Invariants: places ascend, each once; an extent is out of use as long as more than a quarter of the flash pages that it has for
//! data failed. It is not written down which extents are: the same pages say the same.

use crate::geometry::{FIRST_EXTENT, Geometry};

/// An extent with more than one in so many bad flash pages is used no more.
const RETIRED_SHARE: u32 = 4;

/// The flash pages that failed.
#[derive(Debug)]
pub struct BadPages {
    geometry: Geometry,
    places: Vec<u32>,
}

impl BadPages {
    /// None yet.
    pub fn new(geometry: Geometry) -> BadPages {
        BadPages { geometry, places: Vec::new() }
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
        let before = |place: u32| self.places.partition_point(|p| *p < place) as u32;
        let first = self.geometry.first_of(extent);
        if self.places.is_empty() { 0 } else { before(first + self.geometry.extent_pages) - before(first) }
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
    /// DRAM.
    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_with_too_many_is_out_of_use() {
        let g = Geometry { extent_pages: 16, extents: 40, subpages: 64 };
        let mut bad = BadPages::new(g);
        for place in [16 * 5 + 3, 16 * 5, 16 * 5 + 15, 7] {
            assert!(bad.insert(place));
            assert!(!bad.insert(place) && bad.contains(place));
        }
        assert_eq!((bad.in_extent(5), bad.in_extent(4), bad.in_extent(0), bad.retired()), (3, 0, 1, 0));
        bad.insert(16 * 5 + 9);
        assert!(bad.is_retired(5) && bad.retired() == 1);
        assert_eq!(bad.places(), [7, 80, 83, 89, 95]);
        // What is never given out is never taken out.
        (1..16).for_each(|place| assert!(place == 7 || bad.insert(place)));
        assert!(!bad.is_retired(0));
    }
}
