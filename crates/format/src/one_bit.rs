//! Whether a page of metadata that is not whole lacks a single bit.
//!
//! A power cut leaves of a page whole sectors, each as it was or as it was to be. A bit that rots
//! is another thing, and a page that would be whole but for one bit was not cut off. The checksum
//! shows which it is: CRC32C is linear, so that a bit that changed adds to it what depends on its
//! position alone.

use crate::SUBPAGE_BYTES;
use crate::metadata::{CRC_AT, HEADER_BYTES, Header, stored_and_computed};

/// The polynomial of CRC32C, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// What a byte adds to the checksum, as the last one.
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}
const TABLE: [u32; 256] = table();
/// By the highest byte of a sum in the table, its index: no two have the same.
const BY_HIGHEST: [u8; 256] = {
    let mut inverse = [0; 256];
    let mut index = 0;
    while index < 256 {
        inverse[(TABLE[index] >> 24) as usize] = index as u8;
        index += 1;
    }
    inverse
};

impl Header {
    /// Whether a page whose checksum does not match ([`crate::NotMetadata::Checksum`]) would be
    /// whole with one bit changed. Of other pages, one in 130,000 is taken for such a page.
    #[must_use]
    pub fn is_one_bit_off(page: &[u8; SUBPAGE_BYTES]) -> bool {
        let (stored, computed) = stored_and_computed(page);
        let difference = stored ^ computed;
        if difference.count_ones() == 1 {
            // The bit is one of the checksum itself.
            return true;
        }
        // What it adds at the end of the page, taken back byte by byte to where it was added.
        let mut state = difference;
        (0..SUBPAGE_BYTES).rev().any(|at| {
            let index = BY_HIGHEST[(state >> 24) as usize];
            state = ((state ^ TABLE[usize::from(index)]) << 8) | u32::from(index);
            state < 256 && state.count_ones() == 1 && !(CRC_AT..HEADER_BYTES).contains(&at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, NotMetadata, PageBuffer, PoolId, zero_page};

    fn page(payload: &[u8]) -> PageBuffer {
        let journal = Header::new(Kind::Journal, PoolId([7; 16]), 99);
        let header = Header { commit_offset: 3, sequence: 12, next_token: 5, before: 0x1234_5678, ..journal };
        header.page(payload).0
    }

    #[test]
    fn each_bit_is_known_and_no_torn_page_is_one() {
        let whole = page(&[0xA5; 3000]);
        for bit in (0..8 * SUBPAGE_BYTES).filter(|bit| bit / 8 >= 8) {
            let mut rotten = whole.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::open(&rotten).err(), Some(NotMetadata::Checksum));
            assert!(Header::is_one_bit_off(&rotten), "bit {bit}");
        }
        // Torn at each sector, over nothing and over another page.
        for old in [zero_page(), page(&[0x5A; 4000])] {
            for sectors in 1..255u32 {
                let mut torn = whole.clone();
                for sector in (0..8).filter(|sector| sectors >> sector & 1 == 1) {
                    torn[512 * sector..][..512].copy_from_slice(&old[512 * sector..][..512]);
                }
                if Header::open(&torn).is_err() {
                    assert!(!Header::is_one_bit_off(&torn), "sectors {sectors:#b}");
                }
            }
        }
    }
}
