//! Pages of metadata: a header of 64 bytes that says what the page is and where it belongs, and a
//! payload.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "FULGMETA"
//!      8      2  version of the format
//!     10      1  kind
//!     11      1  zero
//!     12      2  bytes of the payload that are used
//!     14      2  journal: earlier pages of the same commit, at most 0xFFFF. Others: zero
//!     16     16  identity of the pool
//!     32      4  flash page that the page was written to
//!     36      4  extent in which its stream goes on; 0xFFFFFFFF: none
//!     40      8  sequence number in its stream
//!     48      8  next token: the base of the 24-bit times in the payload
//!     56      4  checksum of the page before in its stream
//!     60      4  CRC32C of the page with these four bytes zero
//!     64   4032  payload, zeros behind what is used
//! ```
//! All numbers are little-endian.

use crate::{SUBPAGE_BYTES, crc32c};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a page of metadata behind its header.
pub const PAYLOAD_BYTES: usize = SUBPAGE_BYTES - HEADER_BYTES;
/// The version of the format that is written. Higher ones are refused.
pub const FORMAT_VERSION: u16 = 1;
/// "No extent".
pub const NO_EXTENT: u32 = u32::MAX;
const MAGIC: [u8; 8] = *b"FULGMETA";
pub(crate) const CRC_AT: usize = 60;

/// A page of flash in DRAM.
pub type PageBuffer = Box<[u8; SUBPAGE_BYTES]>;

/// A page of zeros.
#[must_use]
pub fn zero_page() -> PageBuffer {
    Box::new([0; SUBPAGE_BYTES])
}

/// Identity of a pool: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PoolId(pub [u8; 16]);

/// What a page of metadata holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Geometry: written when the pool is made, and when its size changes.
    Superblock = 1,
    /// Where checkpoint and journal begin.
    Anchor = 2,
    /// Records of changes.
    Journal = 3,
    /// Histories of pages.
    Checkpoint = 4,
    /// Owners and checksums of an extent's flash pages.
    Summary = 5,
    /// Which files or devices a pool spans.
    Member = 6,
}

/// The header of a page of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the page holds.
    pub kind: Kind,
    /// Bytes of payload.
    pub used: usize,
    /// In a journal: pages of the same commit before this one. All that come before those were
    /// durable before this was written.
    pub commit_offset: u16,
    /// Whose it is.
    pub pool: PoolId,
    /// Where it was written.
    pub place: u32,
    /// Extent in which the stream goes on, or [`NO_EXTENT`].
    pub next_extent: u32,
    /// Number in its stream.
    pub sequence: u64,
    /// Base of the times in the payload.
    pub next_token: u64,
    /// Checksum of the page before it in its stream.
    pub before: u32,
}

/// Why a page is not the page of metadata that was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotMetadata {
    /// It does not begin with the magic.
    #[error("it is not a page of metadata")]
    Magic,
    /// A later version of the format.
    #[error(
        "its format is version {0}, and this program knows {FORMAT_VERSION}; use the program that made it, or a later one"
    )]
    Newer(u16),
    /// Version 0, an unknown kind, a payload that is too long.
    #[error("its header is invalid")]
    Header,
    /// The checksum does not match.
    #[error("its checksum does not match its content")]
    Checksum,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

/// The checksum that a page says, and the one that it has.
pub(crate) fn stored_and_computed(page: &[u8; SUBPAGE_BYTES]) -> (u32, u32) {
    let stored = u32::from_le_bytes(number(page, CRC_AT));
    let mut copy = *page;
    copy[CRC_AT..HEADER_BYTES].fill(0);
    (stored, crc32c(&copy))
}

impl Header {
    /// The header of a page that is no part of a stream, in a pool without tokens.
    pub const fn new(kind: Kind, pool: PoolId, place: u32) -> Header {
        let (next_extent, next_token) = (NO_EXTENT, 1);
        Header { kind, used: 0, commit_offset: 0, pool, place, next_extent, sequence: 0, next_token, before: 0 }
    }
    /// Writes header and checksum into a page whose payload is in place. Returns the checksum.
    pub fn seal(&self, page: &mut [u8; SUBPAGE_BYTES]) -> u32 {
        page[..8].copy_from_slice(&MAGIC);
        page[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        page[10] = self.kind as u8;
        page[11] = 0;
        page[12..14].copy_from_slice(&(self.used as u16).to_le_bytes());
        page[14..16].copy_from_slice(&self.commit_offset.to_le_bytes());
        page[16..32].copy_from_slice(&self.pool.0);
        page[32..36].copy_from_slice(&self.place.to_le_bytes());
        page[36..40].copy_from_slice(&self.next_extent.to_le_bytes());
        page[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        page[48..56].copy_from_slice(&self.next_token.to_le_bytes());
        page[56..60].copy_from_slice(&self.before.to_le_bytes());
        page[HEADER_BYTES + self.used..].fill(0);
        page[CRC_AT..HEADER_BYTES].fill(0);
        let crc = crc32c(page);
        page[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        crc
    }
    /// The page with this header (its `used` is the payload's length) and payload, and its
    /// checksum.
    ///
    /// # Panics
    /// With a payload of more than [`PAYLOAD_BYTES`].
    pub fn page(&self, payload: &[u8]) -> (PageBuffer, u32) {
        let mut page = zero_page();
        page[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let checksum = Header { used: payload.len(), ..*self }.seal(&mut page);
        (page, checksum)
    }
    /// Reads a page: its header, its checksum, its payload.
    ///
    /// # Errors
    /// When it is not a whole page of metadata that this version understands.
    pub fn open(page: &[u8; SUBPAGE_BYTES]) -> Result<(Header, u32, &[u8]), NotMetadata> {
        Self::read(page, true)
    }
    /// Opens a page without checking the checksum: a bug that tests plant.
    #[doc(hidden)]
    pub fn open_unchecked(page: &[u8; SUBPAGE_BYTES]) -> Result<(Header, u32, &[u8]), NotMetadata> {
        Self::read(page, false)
    }
    /// Whether a page is none of metadata by its magic alone: with the right one in its place it
    /// would be whole. So is one whose first eight bytes were damaged.
    #[must_use]
    pub fn lacks_magic(page: &[u8; SUBPAGE_BYTES]) -> bool {
        if page[..8] == MAGIC {
            return false;
        }
        let mut restored = *page;
        restored[..8].copy_from_slice(&MAGIC);
        Self::read(&restored, true).is_ok()
    }
    /// Whether the first `bytes` of a page belong to no page of metadata: header and payload end
    /// there, by what the header says, and do not match the checksum.
    #[must_use]
    pub fn begins_wrong(page: &[u8; SUBPAGE_BYTES], bytes: usize) -> bool {
        if HEADER_BYTES + usize::from(u16::from_le_bytes(number(page, 12))) > bytes {
            return false;
        }
        let mut first = *page;
        first[bytes..].fill(0);
        let (stored, computed) = stored_and_computed(&first);
        stored != computed
    }
    /// The version of a page that a later program wrote to this place of this pool. None when it is
    /// anything else.
    #[must_use]
    pub fn newer(page: &[u8; SUBPAGE_BYTES], pool: PoolId, place: u32) -> Option<u16> {
        let Err(NotMetadata::Newer(version)) = Self::open(page) else { return None };
        // These fields of the header must match its place as well, because a page of random bytes,
        // or of a program's data, is none of the pool's pages.
        (PoolId(number(page, 16)) == pool && u32::from_le_bytes(number(page, 32)) == place).then_some(version)
    }
    fn read(page: &[u8; SUBPAGE_BYTES], check: bool) -> Result<(Header, u32, &[u8]), NotMetadata> {
        if page[..8] != MAGIC {
            return Err(NotMetadata::Magic);
        }
        let (stored, computed) = stored_and_computed(page);
        // The version is believed only under a right checksum. Every version keeps magic, version
        // and checksum in place.
        if check && computed != stored {
            return Err(NotMetadata::Checksum);
        }
        let version = u16::from_le_bytes(number(page, 8));
        if version > FORMAT_VERSION {
            return Err(NotMetadata::Newer(version));
        }
        let kind = match page[10] {
            1 => Kind::Superblock,
            2 => Kind::Anchor,
            3 => Kind::Journal,
            4 => Kind::Checkpoint,
            5 => Kind::Summary,
            6 => Kind::Member,
            _ => return Err(NotMetadata::Header),
        };
        let used = usize::from(u16::from_le_bytes(number(page, 12)));
        if version == 0 || used > PAYLOAD_BYTES {
            return Err(NotMetadata::Header);
        }
        let header = Header {
            kind,
            used,
            commit_offset: u16::from_le_bytes(number(page, 14)),
            pool: PoolId(number(page, 16)),
            place: u32::from_le_bytes(number(page, 32)),
            next_extent: u32::from_le_bytes(number(page, 36)),
            sequence: u64::from_le_bytes(number(page, 40)),
            next_token: u64::from_le_bytes(number(page, 48)),
            before: u32::from_le_bytes(number(page, 56)),
        };
        Ok((header, stored, &page[HEADER_BYTES..HEADER_BYTES + used]))
    }
}

/// An invalid payload with the right checksum: a defect of its writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a page of metadata holds invalid records; it was written by a defective program")]
pub struct Malformed;

/// Reads numbers off a payload.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'p>(pub &'p [u8]);

impl Reader<'_> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The next `N` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }
    /// One byte.
    ///
    /// # Errors
    /// When none is left.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes::<1>()?[0])
    }
    /// Four bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }
    /// Eight bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> (Header, PageBuffer, u32) {
        let header = Header {
            kind: Kind::Journal,
            used: 3,
            commit_offset: 4,
            pool: PoolId(*b"0123456789abcdef"),
            place: 77,
            next_extent: NO_EXTENT,
            sequence: 5,
            next_token: 1 << 40,
            before: 0xDEAD_BEEF,
        };
        let mut page = zero_page();
        page[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&[1, 2, 3, 4]);
        let crc = header.seal(&mut page);
        (header, page, crc)
    }

    #[test]
    fn what_was_sealed_opens() {
        let (header, page, crc) = sealed();
        assert_eq!(Header::open(&page), Ok((header, crc, &[1, 2, 3][..])));
        assert_eq!(page[HEADER_BYTES + 3], 0, "nothing of an older page stays behind the payload");
        assert_eq!(Header { used: 77, ..header }.page(&[1, 2, 3]), (page, crc), "as long as the payload");
    }
    #[test]
    fn every_kind_comes_back() {
        use Kind::{Anchor, Checkpoint, Journal, Member, Summary, Superblock};
        for kind in [Superblock, Anchor, Journal, Checkpoint, Summary, Member] {
            let (header, mut page, _) = sealed();
            let header = Header { kind, ..header };
            let crc = header.seal(&mut page);
            assert_eq!(Header::open(&page), Ok((header, crc, &[1, 2, 3][..])));
        }
    }
    #[test]
    fn every_bit_counts() {
        let (.., page, _) = sealed();
        for bit in 0..SUBPAGE_BYTES * 8 {
            let mut page = page.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::open(&page).is_err(), "bit {bit}");
        }
    }
    #[test]
    fn a_page_without_its_magic_is_known_by_the_rest() {
        let (.., page, _) = sealed();
        assert!(!Header::lacks_magic(&page) && !Header::lacks_magic(&zero_page()));
        for damaged in [0..1, 7..8, 0..8] {
            let mut page = page.clone();
            page[damaged].iter_mut().for_each(|byte| *byte ^= 0x40);
            assert!(Header::lacks_magic(&page));
            page[100] ^= 1;
            assert!(!Header::lacks_magic(&page), "nor is it whole then");
        }
    }
    #[test]
    fn a_newer_version_is_refused_by_its_name() {
        let (.., mut page, _) = sealed();
        page[8] = 2;
        page[CRC_AT..HEADER_BYTES].fill(0);
        let crc = crc32c(&page[..]);
        page[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        let error = Header::open(&page).unwrap_err();
        assert_eq!(error, NotMetadata::Newer(2));
        assert!(error.to_string().contains("version 2"));
        let (pool, place) = (PoolId(number(&page[..], 16)), u32::from_le_bytes(number(&page[..], 32)));
        assert_eq!(Header::newer(&page, pool, place), Some(2));
        assert_eq!(Header::newer(&page, pool, place + 1), None);
        assert_eq!(Header::newer(&page, PoolId([0xee; 16]), place), None);
        page[100] ^= 1;
        assert_eq!(Header::newer(&page, pool, place), None, "a damaged page is none of a later version");
    }
}
