//! What of a device outlives the model of it: wear, blocks that have failed, blocks that were put
//! in the place of others, and how far the log has come. It is written as bytes, so that the keeper
//! of the data can keep it next to the data.
//!
//! ```text
//!   8  magic "FULGNAND"          4  version             4  CRC32C of all that follows
//!   4  length of the key, key: geometry and division, as words of 4 bytes (names the device)
//!   4  for each block of the log, plane by plane: the block that is there (not in version 2)
//!   8  for each block: erases; pages programmed (of the log's, else 0), 1 << 31 if it failed
//!   4  for each place of an extent in a plane: the block that is there
//!   4  for each plane: count of its spare blocks, then these
//!   4  for each plane: which of its blocks of the log is being filled;  4  the plane that is next
//! ```
//! All numbers are little-endian.
//!
//! Not here: which flash pages are in the log. Reopening a device takes all of it for written at
//! home ([`Fil::assume_written`]), so that nothing in the log counts.

use fulgurite_format::crc32c;

use super::Fil;
use super::config::{STATE_VERSION as VERSION, StateError};
use crate::geometry::{Block, Plane};

/// What the state of a NAND device begins with.
pub const STATE_MAGIC: [u8; 8] = *b"FULGNAND";
/// The version without the blocks of the log. The blocks of a new device's log are taken then.
const WITHOUT_LOG: u32 = 2;
const FAILED: u32 = 1 << 31;

/// Words of 4 bytes, one after the other.
struct Words<'b>(&'b [u8]);

impl Words<'_> {
    fn next(&mut self) -> Result<u32, StateError> {
        let (word, rest) = self.0.split_first_chunk().ok_or(StateError::Nonsense("its length"))?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*word))
    }
}

impl Fil {
    /// All that must be the same.
    fn key(&self) -> Vec<u32> {
        let parts = self.nand.geometry().parts();
        let wear = self.nand.profile().wear;
        vec![
            parts.channels,
            parts.packages_per_channel,
            parts.dies_per_package,
            parts.planes_per_die,
            parts.blocks_per_plane,
            parts.pages_per_block,
            self.nand.geometry().page_bytes(),
            self.layout.width,
            self.layout.extent_pages,
            self.layout.extents,
            self.config.log_blocks.max(2),
            self.config.spare_blocks,
            self.config.fixed_extents,
            // What is drawn: which blocks are bad from the beginning, and the limit of each.
            self.config.seed as u32,
            (self.config.seed >> 32) as u32,
            (wear.factory_bad * 1e9) as u32,
            wear.endurance,
            wear.failure,
            (wear.spread * 1e9) as u32,
        ]
    }
    /// What outlives this model, as bytes.
    #[must_use]
    pub fn state(&self) -> Vec<u8> {
        let g = self.nand.geometry();
        let key = self.key();
        let mut words = vec![key.len() as u32];
        words.extend(key);
        self.log.save_blocks(&mut words);
        for block in (0..g.blocks()).map(Block) {
            let failed = self.nand.is_bad(block) && !self.nand.is_factory_bad(block);
            let next = if self.log.has(block) { self.nand.next_page(block) } else { 0 };
            words.extend([self.nand.erases(block), next | if failed { FAILED } else { 0 }]);
        }
        self.layout.save(&mut words);
        self.log.save(&mut words);
        let body: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let head = [&STATE_MAGIC[..], &VERSION.to_le_bytes(), &crc32c(&body).to_le_bytes()].concat();
        [head, body].concat()
    }
    /// Goes on from the state of an earlier model of this device. Before anything else is asked of
    /// this one.
    ///
    /// # Errors
    /// When it is not a state of this device. Nothing may be asked of this model then.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        let (magic, rest) = state.split_first_chunk::<8>().ok_or(StateError::Magic)?;
        if *magic != STATE_MAGIC {
            return Err(StateError::Magic);
        }
        let mut head = Words(rest);
        let (found, expected) = (head.next()?, head.next()?);
        if !matches!(found, VERSION | WITHOUT_LOG) {
            return Err(StateError::Version { found });
        }
        let got = crc32c(head.0);
        if got != expected {
            return Err(StateError::Checksum { expected, got });
        }
        let mut words = head;
        let key = self.key();
        if words.next()? as usize != key.len() {
            return Err(StateError::Geometry);
        }
        for word in key {
            if words.next()? != word {
                return Err(StateError::Geometry);
            }
        }
        let g = self.nand.geometry();
        // Each block has one place: an extent's, a spare one's, the log's, or it was bad from the
        // beginning or has failed.
        let factory_bad: Vec<bool> = (0..g.blocks()).map(|block| self.nand.is_factory_bad(Block(block))).collect();
        let mut taken = factory_bad;
        let mut take = |block: u32, plane: u32| {
            let there = block < g.blocks() && g.plane_of(Block(block)) == Plane(plane);
            let good = there && !std::mem::replace(&mut taken[block as usize], true);
            if good { Ok(Block(block)) } else { Err(StateError::Nonsense("the place of a block")) }
        };
        let of_version_2 = (found == WITHOUT_LOG).then(|| self.log.blocks_by_plane());
        let mut of_version_2 = of_version_2.into_iter().flatten().map(|block| block.0);
        self.log.restore_blocks(|| of_version_2.next().map_or_else(|| words.next(), Ok), &mut take)?;
        for block in (0..g.blocks()).map(Block) {
            let (erases, next) = (words.next()?, words.next()?);
            if next & !FAILED > g.pages_per_block() {
                return Err(StateError::Nonsense("the pages of a block"));
            }
            self.nand.assume_worn(block, erases, next & FAILED != 0);
            if self.log.has(block) {
                self.nand.assume_programmed(block, next & !FAILED);
            }
        }
        self.layout.restore(|| words.next(), &mut take)?;
        self.log.restore(|| words.next())?;
        if words.0.is_empty() { Ok(()) } else { Err(StateError::Nonsense("its length")) }
    }
}
