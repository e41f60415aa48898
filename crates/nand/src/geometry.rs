//! How a NAND device divides: channels, packages, dies, planes, blocks, pages, and the numbers of
//! each.
//!
//! Planes are numbered so that neighbours are on different channels, then on different packages,
//! then on different dies:
//! `plane = channel + channels x (package + packages x (die + dies x plane of the die))`. Writing
//! to planes in the order of their numbers keeps all channels busy first. Blocks are numbered plane
//! by plane, pages block by block.
//!
//! Invariants: a [`Geometry`] that exists has no part of size 0, no number of it overflows 32 bits,
//! and it has no more planes, blocks and pages of a block than [`PLANES_MAX`], [`BLOCKS_MAX`] and
//! [`BLOCK_PAGES_MAX`].

use fulgurite_format::{SUBPAGE_BYTES, format_bytes};

use crate::divisor::Divisor;

/// The most planes of a device.
pub const PLANES_MAX: u32 = 1 << 16;
/// The most pages of a block. Real blocks have up to some thousands (3D NAND); queues of the model
/// are as long as a block.
pub const BLOCK_PAGES_MAX: u32 = 1 << 16;
/// The most erase blocks of a device: the model keeps a state for each.
pub const BLOCKS_MAX: u32 = 1 << 24;
/// The sizes that a page may have, in bytes.
pub const PAGE_BYTES: [u32; 3] = [4096, 8192, 16_384];

/// A plane, by its number in the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Plane(pub u32);
/// An erase block, by its number in the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Block(pub u32);
/// A page of NAND (4, 8 or 16 KiB), by its number in the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NandPage(pub u32);

/// Why there is no such device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// A part of size 0.
    #[error("{0} is 0; write 1 or more")]
    Zero(&'static str),
    /// No such page.
    #[error("a page of {} is not supported; write \"4K\", \"8K\" or \"16K\"", format_bytes(*.0))]
    Page(u64),
    /// Too many planes.
    #[error(
        "{0} planes in all are too many; write at most {PLANES_MAX} as the product of channels, packages, dies and planes"
    )]
    Planes(u64),
    /// Too many pages in a block.
    #[error("pages_per_block = {0} is too many; write at most {BLOCK_PAGES_MAX}")]
    BlockPages(u32),
    /// Too many erase blocks.
    #[error(
        "{0} erase blocks in all are too many; write at most {BLOCKS_MAX} as the product of planes and blocks_per_plane, more \
         pages_per_block, or choose less capacity"
    )]
    Blocks(u64),
    /// Too many flash pages of 4 KiB.
    #[error(
        "the device would have more than {} flash pages of 4 KiB (16 TiB), which is all that places on flash can number; write fewer \
         blocks_per_plane or pages_per_block",
        u32::MAX
    )]
    TooLarge,
    /// That capacity cannot be had with that many planes.
    #[error("{} on {planes} planes is impossible: {what}", format_bytes(*.bytes))]
    Scale {
        /// Bytes asked for.
        bytes: u64,
        /// Planes asked for.
        planes: u32,
        /// Why, and what to choose.
        what: &'static str,
    },
}

/// How many of each part there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    channels: Divisor,
    packages: u32,
    dies: u32,
    planes: u32,
    blocks: Divisor,
    pages: Divisor,
    page_bytes: u32,
    /// Dies of the device.
    all_dies: Divisor,
}

/// The parts of a geometry, not yet checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Channels: each has a bus.
    pub channels: u32,
    /// Packages on each channel.
    pub packages_per_channel: u32,
    /// Dies in each package.
    pub dies_per_package: u32,
    /// Planes of each die.
    pub planes_per_die: u32,
    /// Erase blocks of each plane.
    pub blocks_per_plane: u32,
    /// Pages of each block.
    pub pages_per_block: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
}

impl Geometry {
    /// Checks that such a device can be.
    ///
    /// # Errors
    /// When a part is 0, there are too many of one, or a number does not fit.
    pub fn new(parts: Parts) -> Result<Geometry, GeometryError> {
        for (count, name) in [
            (parts.channels, "channels"),
            (parts.packages_per_channel, "packages_per_channel"),
            (parts.dies_per_package, "dies_per_package"),
            (parts.planes_per_die, "planes_per_die"),
            (parts.blocks_per_plane, "blocks_per_plane"),
            (parts.pages_per_block, "pages_per_block"),
        ] {
            if count == 0 {
                return Err(GeometryError::Zero(name));
            }
        }
        let page_bytes = PAGE_BYTES.into_iter().find(|b| u64::from(*b) == parts.page_bytes);
        let page_bytes = page_bytes.ok_or(GeometryError::Page(parts.page_bytes))?;
        let saturated = |counts: &[u32]| counts.iter().fold(1u64, |product, n| product.saturating_mul(u64::from(*n)));
        let planes =
            saturated(&[parts.channels, parts.packages_per_channel, parts.dies_per_package, parts.planes_per_die]);
        if planes > u64::from(PLANES_MAX) {
            return Err(GeometryError::Planes(planes));
        }
        if parts.pages_per_block > BLOCK_PAGES_MAX {
            return Err(GeometryError::BlockPages(parts.pages_per_block));
        }
        let flash_pages = planes
            .saturating_mul(saturated(&[parts.blocks_per_plane, parts.pages_per_block]))
            .saturating_mul(u64::from(page_bytes) / SUBPAGE_BYTES as u64);
        if flash_pages > u64::from(u32::MAX) {
            return Err(GeometryError::TooLarge);
        }
        let blocks = planes.saturating_mul(u64::from(parts.blocks_per_plane));
        if blocks > u64::from(BLOCKS_MAX) {
            return Err(GeometryError::Blocks(blocks));
        }
        let all_dies = parts.channels * parts.packages_per_channel * parts.dies_per_package;
        Ok(Geometry {
            channels: Divisor::new(parts.channels),
            packages: parts.packages_per_channel,
            dies: parts.dies_per_package,
            planes: parts.planes_per_die,
            blocks: Divisor::new(parts.blocks_per_plane),
            pages: Divisor::new(parts.pages_per_block),
            page_bytes,
            all_dies: Divisor::new(all_dies),
        })
    }
    /// Its parts.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts {
            channels: self.channels.get(),
            packages_per_channel: self.packages,
            dies_per_package: self.dies,
            planes_per_die: self.planes,
            blocks_per_plane: self.blocks.get(),
            pages_per_block: self.pages.get(),
            page_bytes: u64::from(self.page_bytes),
        }
    }
    /// A device of the same pages, with `planes` planes and at least `bytes` of capacity (by less
    /// than a block in each plane more). It is made first with fewer channels, packages, dies and
    /// planes per die, or more dies, then with as many blocks as that takes. Where a plane would
    /// have fewer than `blocks_least` blocks, blocks become shorter, so that what is reclaimed at a
    /// time stays a small part of the whole.
    ///
    /// # Errors
    /// When it cannot be: planes are not a multiple of what is left, or the capacity is too small
    /// for `planes` planes.
    pub fn scaled(&self, bytes: u64, planes: u32, blocks_least: u32) -> Result<Geometry, GeometryError> {
        let wrong = |what| GeometryError::Scale { bytes, planes, what };
        if planes == 0 || planes > PLANES_MAX {
            return Err(wrong("choose 1 to 65536 planes"));
        }
        let mut parts = self.parts();
        // Halved from the inside out, so that channels stay as long as they can.
        let of = |p: &Parts| p.channels * p.packages_per_channel * p.dies_per_package * p.planes_per_die;
        while of(&parts) > planes {
            let halved = [
                &mut parts.planes_per_die,
                &mut parts.dies_per_package,
                &mut parts.packages_per_channel,
                &mut parts.channels,
            ]
            .into_iter()
            .find(|n| **n > 1);
            let Some(halved) = halved else { break };
            *halved /= 2;
        }
        if !planes.is_multiple_of(of(&parts)) {
            return Err(wrong("choose a power of two of planes"));
        }
        let more = planes / of(&parts);
        parts.dies_per_package *= more;
        let per_plane = bytes.div_ceil(u64::from(planes)).div_ceil(u64::from(self.page_bytes));
        let least = u64::from(blocks_least.max(1));
        if per_plane < 2 * least {
            return Err(wrong("choose more capacity, or fewer planes"));
        }
        while per_plane < least * u64::from(parts.pages_per_block) {
            parts.pages_per_block = parts.pages_per_block.div_ceil(2);
        }
        let blocks = per_plane.div_ceil(u64::from(parts.pages_per_block));
        parts.blocks_per_plane = u32::try_from(blocks).map_err(|_| GeometryError::TooLarge)?;
        Geometry::new(parts)
    }

    /// Channels.
    #[must_use]
    pub fn channels(&self) -> u32 {
        self.channels.get()
    }
    /// Dies of the device.
    #[must_use]
    pub fn dies(&self) -> u32 {
        self.all_dies.get()
    }
    /// Planes of the device.
    #[must_use]
    pub fn planes(&self) -> u32 {
        self.dies() * self.planes
    }
    /// Erase blocks of a plane.
    #[must_use]
    pub fn blocks_per_plane(&self) -> u32 {
        self.blocks.get()
    }
    /// Erase blocks of the device.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.planes() * self.blocks.get()
    }
    /// Pages of a block.
    #[must_use]
    pub fn pages_per_block(&self) -> u32 {
        self.pages.get()
    }
    /// Pages of the device.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.blocks() * self.pages.get()
    }
    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }
    /// Flash pages of 4 KiB in a page: 1, 2 or 4.
    #[must_use]
    pub fn flash_pages_per_page(&self) -> u32 {
        self.page_bytes / SUBPAGE_BYTES as u32
    }
    /// Bytes of the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages()) * u64::from(self.page_bytes)
    }

    /// The channel of a plane.
    #[inline]
    #[must_use]
    pub fn channel_of(&self, plane: Plane) -> u32 {
        self.channels.remainder(plane.0)
    }
    /// The die of a plane, by its number in the device.
    #[inline]
    #[must_use]
    pub fn die_of(&self, plane: Plane) -> u32 {
        self.all_dies.remainder(plane.0)
    }
    /// The plane of a block.
    #[inline]
    #[must_use]
    pub fn plane_of(&self, block: Block) -> Plane {
        Plane(self.blocks.divide(block.0))
    }
    /// The block of a page.
    #[inline]
    #[must_use]
    pub fn block_of(&self, page: NandPage) -> Block {
        Block(self.pages.divide(page.0))
    }
    /// A block of a plane.
    #[inline]
    #[must_use]
    pub fn block(&self, plane: Plane, index: u32) -> Block {
        Block(plane.0 * self.blocks.get() + index)
    }
    /// A page of a block.
    #[inline]
    #[must_use]
    pub fn page(&self, block: Block, index: u32) -> NandPage {
        NandPage(block.0 * self.pages.get() + index)
    }
    /// The number of a page in its block.
    #[inline]
    #[must_use]
    pub fn index_of(&self, page: NandPage) -> u32 {
        self.pages.remainder(page.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: Parts = Parts {
        channels: 3,
        packages_per_channel: 2,
        dies_per_package: 2,
        planes_per_die: 2,
        blocks_per_plane: 5,
        pages_per_block: 7,
        page_bytes: 16_384,
    };

    #[test]
    fn numbers_are_of_what_each_is_in() {
        let g = Geometry::new(PARTS).unwrap();
        assert_eq!((g.dies(), g.planes(), g.blocks(), g.pages(), g.flash_pages_per_page()), (12, 24, 120, 840, 4));
        for page in (0..g.pages()).map(NandPage) {
            let (block, index) = (g.block_of(page), g.index_of(page));
            assert_eq!((g.page(block, index), index), (page, page.0 % 7));
            let plane = g.plane_of(block);
            assert_eq!((g.block(plane, block.0 % 5), plane.0), (block, page.0 / 7 / 5));
            assert_eq!((g.channel_of(plane), g.die_of(plane)), (plane.0 % 3, plane.0 % 12));
        }
        // Neighbours are on different channels.
        assert_eq!([0, 1, 2, 3].map(|p| g.channel_of(Plane(p))), [0, 1, 2, 0]);
    }
    #[test]
    fn what_cannot_be_is_refused() {
        let with = |change: fn(&mut Parts)| {
            let mut parts = PARTS;
            change(&mut parts);
            Geometry::new(parts)
        };
        assert_eq!(with(|p| p.channels = 0), Err(GeometryError::Zero("channels")));
        assert_eq!(with(|p| p.pages_per_block = 0), Err(GeometryError::Zero("pages_per_block")));
        assert_eq!(with(|p| p.page_bytes = 2048), Err(GeometryError::Page(2048)));
        assert_eq!(with(|p| p.channels = u32::MAX), Err(GeometryError::Planes(u64::from(u32::MAX) * 8)));
        assert_eq!(with(|p| p.blocks_per_plane = u32::MAX), Err(GeometryError::TooLarge));
        let of_one = |pages_per_block, blocks_per_plane| {
            let one = Parts { channels: 1, packages_per_channel: 1, dies_per_package: 1, planes_per_die: 1, ..PARTS };
            Geometry::new(Parts { pages_per_block, blocks_per_plane, page_bytes: 4096, ..one })
        };
        // Each limit, and one more.
        assert!(of_one(BLOCK_PAGES_MAX, 3).is_ok() && of_one(1, BLOCKS_MAX).is_ok());
        assert_eq!(of_one(BLOCK_PAGES_MAX + 1, 3), Err(GeometryError::BlockPages(BLOCK_PAGES_MAX + 1)));
        assert_eq!(of_one(1, BLOCKS_MAX + 1), Err(GeometryError::Blocks(u64::from(BLOCKS_MAX) + 1)));
    }
    #[test]
    fn a_scaled_device_has_what_was_asked_for() {
        let full = Parts { channels: 8, blocks_per_plane: 1024, pages_per_block: 256, ..PARTS };
        let g = Geometry::new(full).unwrap();
        for (bytes, planes) in [(1u64 << 30, 64), (4 << 30, 256), (64 << 20, 1), (1 << 30, 16)] {
            let scaled = g.scaled(bytes, planes, 16).unwrap();
            assert_eq!(scaled.planes(), planes);
            assert!(scaled.bytes() >= bytes && scaled.bytes() < bytes + bytes / 8, "{} for {bytes}", scaled.bytes());
            assert!(scaled.blocks_per_plane() >= 16);
        }
        assert!(g.scaled(1 << 30, 48, 16).is_err());
        assert!(g.scaled(1 << 20, 256, 16).is_err());
        assert!(g.scaled(1 << 30, 0, 16).is_err());
    }
}
