//! The image in a device's boot region. Plain loads read it, without a driver and before the device
//! is up (7.2 of the paper).
//!
//! As with the boot partitions of eMMC it is an image of its own: where a store is the translation
//! layer, only its recovery finds the medium's first sectors.
//!
//! Invariant: it never changes while a device runs.

use std::sync::Arc;

use crate::entry::SECTOR_BYTES;
use crate::region::{Region, RegionError};

/// An image for the boot region. Without bytes there is no such region. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BootImage(Arc<[u8]>);

impl std::fmt::Debug for BootImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootImage({} bytes)", self.0.len())
    }
}

impl BootImage {
    /// The most bytes of an image, 64 MiB: each queue pair of another process has a copy.
    pub const BYTES_MAX: usize = 64 << 20;

    /// An image of these bytes, filled up with zeros to a whole number of sectors.
    ///
    /// # Errors
    /// [`RegionError::Shape`] when there are more than [`BootImage::BYTES_MAX`].
    pub fn new(mut bytes: Vec<u8>) -> Result<BootImage, RegionError> {
        if bytes.len() > BootImage::BYTES_MAX {
            let (found, most) = (bytes.len() as u64, BootImage::BYTES_MAX as u64);
            return Err(RegionError::Shape { what: "bytes of a boot image", found, least: 0, most });
        }
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        Ok(BootImage(bytes.into()))
    }
    /// Bytes of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
    /// Sectors of it.
    #[must_use]
    pub fn sectors(&self) -> u32 {
        // At most 2^14 of them.
        (self.0.len() / SECTOR_BYTES) as u32
    }
    /// Puts it into the boot region of a region, which was made for as many sectors.
    pub(crate) fn fill(&self, region: &Region) {
        let (sectors, _) = self.0.as_chunks::<SECTOR_BYTES>();
        (0..).zip(sectors).for_each(|(sector, bytes)| region.write_boot(sector, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_whole_sectors_and_not_too_many() {
        assert_eq!(BootImage::default().sectors(), 0);
        assert_eq!(BootImage::new(vec![1; SECTOR_BYTES]).unwrap().sectors(), 1);
        assert_eq!(BootImage::new(vec![1; SECTOR_BYTES + 1]).unwrap().sectors(), 2);
        assert!(matches!(BootImage::new(vec![0; BootImage::BYTES_MAX + 1]), Err(RegionError::Shape { .. })));
    }
}
