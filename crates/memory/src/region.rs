//! Regions: contiguous ranges of flash memory, the unit that heaps and containers get.

use fulgurite_format::{Address, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A range of whole subpages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Region {
    /// Its first byte, at the start of a subpage.
    pub base: Address,
    /// Its length in bytes, a multiple of the subpage.
    pub bytes: u64,
}

impl Region {
    /// A region from `base`, `bytes` long.
    ///
    /// # Panics
    /// When base or length is not a whole number of subpages, or the end is outside the
    /// controller's 16 TiB.
    pub fn new(base: Address, bytes: u64) -> Region {
        assert!(base.subpage_offset() == 0 && bytes.is_multiple_of(SUBPAGE_BYTES as u64), "regions are whole subpages");
        assert!(bytes <= (1 << 44) - base.linear(), "a region ends inside its controller");
        Region { base, bytes }
    }
    /// Whether `len` bytes at `at` are inside.
    #[inline]
    pub fn contains(&self, at: Address, len: u64) -> bool {
        let offset = at.bits().wrapping_sub(self.base.bits());
        offset <= self.bytes && len <= self.bytes - offset
    }
    /// Cuts the region after `bytes` (rounded up to whole subpages).
    ///
    /// # Panics
    /// When it is not that long.
    #[must_use]
    pub fn split(&self, bytes: u64) -> (Region, Region) {
        let bytes = bytes.next_multiple_of(SUBPAGE_BYTES as u64);
        assert!(bytes <= self.bytes, "cannot cut {bytes} bytes from a region of {}", self.bytes);
        (Region::new(self.base, bytes), Region::new(self.base.add(bytes), self.bytes - bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        let r = Region::new(Address::from_linear(8192), 8192);
        assert!(r.contains(Address::from_linear(8192), 8192) && !r.contains(Address::from_linear(8192), 8193));
        assert!(!r.contains(Address::from_linear(8191), 1) && !r.contains(Address::NULL, 0));
        let (a, b) = r.split(1);
        assert_eq!((a.bytes, b.base.linear(), b.bytes), (4096, 12288, 4096));
    }
}
