//! Which page of NAND a flash page belongs to.
//!
//! An extent is one erase block in each of N planes. Its flash pages are spread over them: with
//! pages of NAND of 4 KiB, flash page k is on the k mod N-th plane, in page k / N of that plane's
//! block. Larger pages of NAND hold neighbours.
//!
//! ```text
//!   page of the block   plane 0        plane 1        plane 2        plane 3  (N = 4, 8 KiB)
//!         0             k = 0, 1       k = 2, 3       k = 4, 5       k = 6, 7
//!         1             k = 8, 9       k = 10, 11     ...
//! ```
//!
//! The planes are divided into groups of N neighbours. Extent e is in group e mod (planes / N), so
//! that extents that are begun one after the other are on different planes. Of each plane some
//! blocks are kept for the log, and some to replace bad ones.

use super::config::{FilConfig, FilError, StateError};
use crate::divisor::Divisor;
use crate::geometry::{Block, Geometry, NandPage, Plane};
use crate::nand::Nand;

/// Where a flash page belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Home {
    pub extent: u32,
    /// Its number in the extent.
    pub index: u32,
    pub page: NandPage,
    /// Which flash page of that page.
    pub slot: u32,
}

/// The division.
#[derive(Debug)]
pub(super) struct Layout {
    pub geometry: Geometry,
    /// Flash pages in a page of NAND.
    pub per_page: u32,
    /// Planes of an extent.
    pub width: u32,
    groups: Divisor,
    pub extent_pages: u32,
    /// To divide by these numbers.
    by_extent: Divisor,
    by_page: Divisor,
    by_width: Divisor,
    pub extents: u32,
    /// Blocks of a plane that hold extents.
    data_blocks: u32,
    /// The block behind each of these, plane by plane.
    blocks: Vec<u32>,
    /// Blocks of each plane that replace bad ones.
    spare: Vec<Vec<Block>>,
}

impl Layout {
    /// Divides a device. Also returns the blocks of each plane for the log.
    pub fn new(nand: &Nand, config: &FilConfig) -> Result<(Layout, Vec<Vec<Block>>), FilError> {
        let g = nand.geometry();
        let width = if config.planes_per_extent == 0 { g.planes() } else { config.planes_per_extent };
        if !g.planes().is_multiple_of(width) {
            return Err(FilError::Width { width, planes: g.planes() });
        }
        let per_page = g.flash_pages_per_page();
        let whole = u64::from(width) * u64::from(g.pages_per_block()) * u64::from(per_page);
        let extent_pages = if config.extent_pages == 0 { whole } else { u64::from(config.extent_pages) };
        let fits = u32::try_from(extent_pages).ok().filter(|pages| u64::from(*pages) <= whole);
        let extent_pages = fits.ok_or(FilError::Extent { asked: extent_pages, whole })?;
        let mut good: Vec<Vec<Block>> = (0..g.planes())
            .map(|plane| {
                let all = (0..g.blocks_per_plane()).map(|index| g.block(Plane(plane), index));
                all.filter(|block| !nand.is_bad(*block)).collect()
            })
            .collect();
        let fewest = good.iter().map(Vec::len).min().expect("a device has a plane") as u32;
        let kept = config.log_blocks.max(2).saturating_add(config.spare_blocks);
        let data_blocks = fewest.saturating_sub(kept);
        let groups = g.planes() / width;
        let extents = groups * data_blocks;
        if extents <= config.fixed_extents {
            return Err(FilError::Blocks {
                good: fewest,
                needed: kept.saturating_add(config.fixed_extents / groups).saturating_add(1),
            });
        }
        let log = good.iter_mut().map(|blocks| blocks.drain(..config.log_blocks.max(2) as usize).collect()).collect();
        let blocks = good.iter_mut().flat_map(|blocks| blocks.drain(..data_blocks as usize)).map(|b| b.0).collect();
        let [groups, by_extent, by_page, by_width] = [groups, extent_pages, per_page, width].map(Divisor::new);
        let layout = Layout {
            geometry: g,
            per_page,
            width,
            groups,
            extent_pages,
            by_extent,
            by_page,
            by_width,
            extents,
            data_blocks,
            blocks,
            spare: good,
        };
        Ok((layout, log))
    }
    /// DRAM that it takes.
    pub fn bytes(&self) -> usize {
        (self.blocks.capacity() + self.spare.iter().map(Vec::capacity).sum::<usize>()) * 4 + self.spare.len() * 24
    }
    pub fn flash_pages(&self) -> u32 {
        self.extents * self.extent_pages
    }
    /// The extent of a flash page.
    #[inline]
    pub fn extent_of(&self, flash_page: u32) -> u32 {
        self.by_extent.divide(flash_page)
    }
    /// Where a flash page belongs.
    #[inline]
    pub fn home(&self, flash_page: u32) -> Home {
        let (extent, index) = (self.by_extent.divide(flash_page), self.by_extent.remainder(flash_page));
        let (wide, slot) = (self.by_page.divide(index), self.by_page.remainder(index));
        let (row, column) = (self.by_width.divide(wide), self.by_width.remainder(wide));
        let page = self.geometry.page(self.block(extent, column), row);
        Home { extent, index, page, slot }
    }
    /// Of how many flash pages the page of NAND consists in which this flash page of an extent is:
    /// fewer at its end.
    pub fn slots_of(&self, index: u32) -> u32 {
        let first = self.by_page.divide(index) * self.per_page;
        self.per_page.min(self.extent_pages - first)
    }
    fn at(&self, extent: u32, column: u32) -> (Plane, usize) {
        let plane = self.groups.remainder(extent) * self.width + column;
        (Plane(plane), (plane * self.data_blocks + self.groups.divide(extent)) as usize)
    }
    /// The block of an extent in one of its planes.
    pub fn block(&self, extent: u32, column: u32) -> Block {
        Block(self.blocks[self.at(extent, column).1])
    }
    /// Takes a spare block of a plane.
    pub fn take_spare(&mut self, plane: Plane) -> Option<Block> {
        self.spare[plane.0 as usize].pop()
    }
    /// Puts a spare block in the place of one, if there is any. Returns whether there was.
    pub fn replace(&mut self, extent: u32, column: u32) -> bool {
        let (plane, at) = self.at(extent, column);
        let Some(spare) = self.take_spare(plane) else { return false };
        self.blocks[at] = spare.0;
        true
    }
    /// Which block is where, as words.
    pub fn save(&self, words: &mut Vec<u32>) {
        words.extend(&self.blocks);
        for spare in &self.spare {
            words.push(spare.len() as u32);
            words.extend(spare.iter().map(|block| block.0));
        }
    }
    /// The inverse. `take` judges a block of a plane.
    pub fn restore(
        &mut self,
        mut next: impl FnMut() -> Result<u32, StateError>,
        mut take: impl FnMut(u32, u32) -> Result<Block, StateError>,
    ) -> Result<(), StateError> {
        for (at, block) in self.blocks.iter_mut().enumerate() {
            *block = take(next()?, at as u32 / self.data_blocks)?.0;
        }
        for (plane, spare) in self.spare.iter_mut().enumerate() {
            // They only become fewer.
            let count = next()? as usize;
            if count > spare.len() {
                return Err(StateError::Nonsense("the blocks to spare"));
            }
            spare.truncate(count);
            for block in spare {
                *block = take(next()?, plane as u32)?;
            }
        }
        Ok(())
    }
    /// Spare blocks that are left.
    pub fn spares(&self) -> usize {
        self.spare.iter().map(Vec::len).sum()
    }
}
