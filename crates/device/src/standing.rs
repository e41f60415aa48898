//! What the command *standing* answers: one sector that says how the store of a device stands.
//!
//! ```text
//!   word 0      "FULGSTND"
//!   word 1      CRC32C of what follows
//!   from word 2 the numbers of [`Standing`], in their order, and then zeros
//! ```
//!
//! All numbers are little-endian words of 64 bits, but for the identity, which is 16 bytes.

use fulgurite_format::{PoolId, crc32c};
use fulgurite_store::Pool;

use crate::entry::SECTOR_BYTES;

/// "FULGSTND".
const MAGIC: u64 = u64::from_le_bytes(*b"FULGSTND");
const BODY: usize = 16;
const WORDS: usize = 21;

/// How the store of a device stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Its identity.
    pub id: PoolId,
    /// Flash pages of 4 KiB.
    pub flash_pages: u64,
    /// Sectors that programs may fill.
    pub sectors: u64,
    /// Flash pages of an extent.
    pub extent_pages: u64,
    /// Extents by use. The rest are those with too many failed flash pages.
    pub extents: u64,
    /// With nothing in them.
    pub extents_free: u64,
    /// With data of programs.
    pub extents_data: u64,
    /// With journal, checkpoint, superblock or anchors.
    pub extents_metadata: u64,
    /// With too many failed flash pages, not used any more.
    pub extents_retired: u64,
    /// Of all extents those that never hold data.
    pub extents_fixed: u64,
    /// Flash pages with data that is needed, older versions included.
    pub live: u64,
    /// Versions of pages other than the newest.
    pub versions: u64,
    /// Sectors written and not synced, and as many as may be.
    pub uncommitted: u64,
    /// See there.
    pub uncommitted_max: u64,
    /// Flash pages that failed.
    pub bad_pages: u64,
    /// How often extents were filled: the least, the median, the most, and all of them together.
    pub fills_min: u64,
    /// See there.
    pub fills_median: u64,
    /// See there.
    pub fills_max: u64,
    /// See there.
    pub fills_sum: u64,
    /// DRAM of its tables in bytes, and what it may come to.
    pub dram_bytes: u64,
    /// See there.
    pub dram_bytes_max: u64,
    /// Pages of the journal since the last checkpoint.
    pub journal_pages: u64,
}

impl Standing {
    /// How a pool stands.
    pub fn of_pool(pool: &Pool) -> Standing {
        let (geometry, info, uses) = (pool.geometry(), pool.info(), pool.uses());
        Standing {
            id: pool.id(),
            flash_pages: geometry.flash_pages().into(),
            sectors: geometry.subpages.into(),
            extent_pages: geometry.extent_pages.into(),
            extents: info.extents.into(),
            extents_free: uses.free.len() as u64,
            extents_data: uses.data.len() as u64,
            extents_metadata: (uses.metadata.len() + uses.fixed.len()) as u64,
            extents_retired: uses.retired.len() as u64,
            extents_fixed: geometry.fixed_extents().into(),
            live: info.live,
            versions: info.versions.into(),
            uncommitted: info.uncommitted,
            uncommitted_max: info.uncommitted_max,
            bad_pages: info.bad_pages.into(),
            fills_min: info.fills.min.into(),
            fills_median: info.fills.median.into(),
            fills_max: info.fills.max.into(),
            fills_sum: info.fills.sum,
            dram_bytes: info.dram_bytes as u64,
            dram_bytes_max: info.dram_bytes_max as u64,
            journal_pages: info.journal_pages,
        }
    }
    fn words(&mut self) -> [&mut u64; WORDS] {
        [
            &mut self.flash_pages,
            &mut self.sectors,
            &mut self.extent_pages,
            &mut self.extents,
            &mut self.extents_free,
            &mut self.extents_data,
            &mut self.extents_metadata,
            &mut self.extents_retired,
            &mut self.extents_fixed,
            &mut self.live,
            &mut self.versions,
            &mut self.uncommitted,
            &mut self.uncommitted_max,
            &mut self.bad_pages,
            &mut self.fills_min,
            &mut self.fills_median,
            &mut self.fills_max,
            &mut self.fills_sum,
            &mut self.dram_bytes,
            &mut self.dram_bytes_max,
            &mut self.journal_pages,
        ]
    }
    /// The bytes of the sector.
    #[must_use]
    pub fn to_bytes(mut self) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        let body = &mut bytes[BODY..];
        body[..16].copy_from_slice(&self.id.0);
        for (chunk, word) in body[16..].chunks_exact_mut(8).zip(self.words()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let sum = u64::from(crc32c(&bytes[BODY..]));
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..BODY].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
    /// The inverse; none when that cannot be an answer.
    #[must_use]
    pub fn of(bytes: &[u8; SECTOR_BYTES]) -> Option<Standing> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if word(0) != MAGIC || word(8) != u64::from(crc32c(&bytes[BODY..])) {
            return None;
        }
        let mut standing = Standing { id: PoolId(bytes[BODY..BODY + 16].try_into().ok()?), ..Standing::default() };
        for (i, number) in standing.words().into_iter().enumerate() {
            *number = word(BODY + 16 + 8 * i);
        }
        Some(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_nonsense_does_not() {
        let mut standing = Standing { id: PoolId([9; 16]), ..Standing::default() };
        for (i, number) in (1..).zip(standing.words()) {
            *number = i << 40 | i;
        }
        let bytes = standing.to_bytes();
        assert_eq!(Standing::of(&bytes), Some(standing));
        for at in [0, 8, BODY, BODY + 16 + 8 * WORDS - 1, SECTOR_BYTES - 1] {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Standing::of(&bytes), None, "byte {at}");
        }
        assert_eq!(Standing::of(&[0; SECTOR_BYTES]), None);
    }
}
