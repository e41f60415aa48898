//! The superblock, the anchor and the summary of an extent: where everything else is.

use crate::metadata::{Malformed, PAYLOAD_BYTES, Reader};

/// The pool may hold objects that are packed several to a flash page.
pub const FEATURE_OBJECTS: u64 = 1;
/// The pool grows while it is open, and has addresses for more than it has room for.
pub const FEATURE_GROWING: u64 = 2;

/// Geometry of a pool, in the first two flash pages: written when it is made, and when its size
/// changes.
///
/// ```text
/// offset  bytes
///      0      4  flash pages in an extent
///      4      4  extents
///      8      4  subpages that programs may address
///     12      4  bytes of a subpage
///     16      8  when it was made, in seconds since 1970
///     24      8  features without which it cannot be read, a bit each: 0 objects, 1 growing
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Flash pages in an extent.
    pub extent_pages: u32,
    /// Extents.
    pub extents: u32,
    /// Subpages that programs may address.
    pub subpages: u32,
    /// Bytes of a subpage.
    pub subpage_bytes: u32,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// Features without which it cannot be read.
    pub features: u64,
}

impl Superblock {
    /// Appends the payload.
    pub fn encode(&self, into: &mut Vec<u8>) {
        for word in [self.extent_pages, self.extents, self.subpages, self.subpage_bytes] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        into.extend_from_slice(&self.made.to_le_bytes());
        into.extend_from_slice(&self.features.to_le_bytes());
    }
    /// Reads a payload.
    ///
    /// # Errors
    /// When it is too short.
    pub fn decode(payload: &[u8]) -> Result<Superblock, Malformed> {
        let mut r = Reader(payload);
        Ok(Superblock {
            extent_pages: r.u32()?,
            extents: r.u32()?,
            subpages: r.u32()?,
            subpage_bytes: r.u32()?,
            made: r.u64()?,
            features: r.u64()?,
        })
    }
}

/// A token that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptToken {
    /// Its number.
    pub token: u64,
    /// A user wants it kept, whatever the policy says.
    pub pinned: bool,
}

/// Where a stream of metadata goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamPosition {
    /// Extent.
    pub extent: u32,
    /// Flash page inside the extent.
    pub index: u32,
    /// Sequence number of the page there.
    pub sequence: u64,
    /// Checksum of the page before.
    pub before: u32,
}

/// Where a pool's state is: the checkpoint, and the journal from where that began. Each anchor is
/// written twice, side by side.
///
/// ```text
/// offset  bytes
///      0      8  the next token
///      8     20  checkpoint: extent 4, index 4, sequence 8, checksum before 4
///     28      8  pages of the checkpoint
///     36     20  journal: the same four
///     56      4  extent in which the journal goes on; 0xFFFFFFFF: not yet named
///     60      8  the page of the journal up to which all were durable when the anchor was written
///     68      4  checksum of the checkpoint's last page
///     72      4  tokens that are kept, n
///     76    9 n  each: token 8, pinned 1
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Anchor {
    /// The token that was next when the checkpoint began.
    pub next_token: u64,
    /// Where the checkpoint begins.
    pub checkpoint: StreamPosition,
    /// Its pages.
    pub checkpoint_pages: u64,
    /// Checksum of its last page. Each page holds the checksum of the one before, so no page of an
    /// earlier checkpoint passes for one of this checkpoint.
    pub checkpoint_checksum: u32,
    /// Where the journal begins that belongs to it.
    pub journal: StreamPosition,
    /// The extent in which the journal goes on after that one.
    pub journal_next: u32,
    /// All pages of the journal before this one were durable when the anchor was written.
    pub journal_end: u64,
    /// Tokens kept at that time, ascending.
    pub tokens: Vec<KeptToken>,
}

/// The most tokens that a pool keeps: as many as an anchor has room for.
pub const TOKENS_MAX: usize = (PAYLOAD_BYTES - 76) / 9;

impl StreamPosition {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.extent.to_le_bytes());
        into.extend_from_slice(&self.index.to_le_bytes());
        into.extend_from_slice(&self.sequence.to_le_bytes());
        into.extend_from_slice(&self.before.to_le_bytes());
    }
    fn decode(r: &mut Reader<'_>) -> Result<StreamPosition, Malformed> {
        Ok(StreamPosition { extent: r.u32()?, index: r.u32()?, sequence: r.u64()?, before: r.u32()? })
    }
}

impl Anchor {
    /// Appends the payload.
    ///
    /// # Panics
    /// With more than [`TOKENS_MAX`] tokens.
    pub fn encode(&self, into: &mut Vec<u8>) {
        assert!(self.tokens.len() <= TOKENS_MAX, "{} tokens do not fit in an anchor", self.tokens.len());
        into.extend_from_slice(&self.next_token.to_le_bytes());
        self.checkpoint.encode(into);
        into.extend_from_slice(&self.checkpoint_pages.to_le_bytes());
        self.journal.encode(into);
        into.extend_from_slice(&self.journal_next.to_le_bytes());
        into.extend_from_slice(&self.journal_end.to_le_bytes());
        into.extend_from_slice(&self.checkpoint_checksum.to_le_bytes());
        into.extend_from_slice(&(self.tokens.len() as u32).to_le_bytes());
        for token in &self.tokens {
            into.extend_from_slice(&token.token.to_le_bytes());
            into.push(token.pinned.into());
        }
    }
    /// Reads a payload.
    ///
    /// # Errors
    /// When it is too short, or its tokens are not ascending.
    pub fn decode(payload: &[u8]) -> Result<Anchor, Malformed> {
        let mut r = Reader(payload);
        let (next_token, checkpoint) = (r.u64()?, StreamPosition::decode(&mut r)?);
        let (checkpoint_pages, journal) = (r.u64()?, StreamPosition::decode(&mut r)?);
        let (journal_next, journal_end, checkpoint_checksum) = (r.u32()?, r.u64()?, r.u32()?);
        let count = r.u32()? as usize;
        if count > TOKENS_MAX {
            return Err(Malformed);
        }
        let mut tokens = Vec::with_capacity(count);
        for _ in 0..count {
            tokens.push(KeptToken { token: r.u64()?, pinned: r.u8()? != 0 });
        }
        if !tokens.is_sorted_by(|a, b| a.token < b.token) {
            return Err(Malformed);
        }
        Ok(Anchor {
            next_token,
            checkpoint,
            checkpoint_pages,
            checkpoint_checksum,
            journal,
            journal_next,
            journal_end,
            tokens,
        })
    }
}

/// Which page a flash page of an extent belongs to, and what it holds: 8 bytes in the extent's
/// summary, which is stored in its last flash pages.
///
/// ```text
/// offset  bytes
///      0      4  subpage of the pool; 0xFFFFFFFF: nobody's
///      4      4  CRC32C of the content
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The subpage, or [`Owner::NOBODY`].
    pub subpage: u32,
    /// CRC32C of the content.
    pub checksum: u32,
}

impl Owner {
    /// The subpage of a flash page that holds nothing.
    pub const NOBODY: u32 = u32::MAX;
    /// What stands for a flash page that holds nothing.
    pub const NONE: Owner = Owner { subpage: Owner::NOBODY, checksum: 0 };
    /// How many fit in a page of a summary.
    pub const PER_PAGE: usize = PAYLOAD_BYTES / 8;

    /// Appends it.
    pub fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.subpage.to_le_bytes());
        into.extend_from_slice(&self.checksum.to_le_bytes());
    }
    /// Reads all of a payload.
    ///
    /// # Errors
    /// When it does not divide.
    pub fn decode_all(payload: &[u8], into: &mut Vec<Owner>) -> Result<(), Malformed> {
        let mut r = Reader(payload);
        while !r.is_empty() {
            into.push(Owner { subpage: r.u32()?, checksum: r.u32()? });
        }
        Ok(())
    }
}

/// How many pages the summary of an extent of `extent_pages` flash pages takes.
#[must_use]
pub const fn summary_pages(extent_pages: u32) -> u32 {
    // Of n pages, s hold the owners of n - s.
    let mut s = 1;
    while s * (Owner::PER_PAGE as u32) < extent_pages - s {
        s += 1;
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_come_back() {
        let block =
            Superblock { extent_pages: 512, extents: 9, subpages: 77, subpage_bytes: 4096, made: 1 << 40, features: 0 };
        let mut bytes = Vec::new();
        block.encode(&mut bytes);
        assert_eq!(Superblock::decode(&bytes), Ok(block));
        assert_eq!(Superblock::decode(&bytes[..31]), Err(Malformed));
    }
    #[test]
    fn owners_come_back() {
        let owners = [Owner { subpage: 0x0403_0201, checksum: 0x0807_0605 }, Owner::NONE];
        let mut bytes = Vec::new();
        owners.iter().for_each(|owner| owner.encode(&mut bytes));
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 255, 255, 255, 255, 0, 0, 0, 0]);
        let mut read = Vec::new();
        assert_eq!(Owner::decode_all(&bytes, &mut read), Ok(()));
        assert_eq!(read, owners);
        assert_eq!(Owner::decode_all(&bytes[..15], &mut read), Err(Malformed));
    }
    #[test]
    fn anchors_come_back() {
        let token = |token| KeptToken { token, pinned: token % 2 == 1 };
        let anchor = Anchor {
            next_token: 9,
            checkpoint: StreamPosition { extent: 1, index: 2, sequence: 3, before: 4 },
            checkpoint_pages: 5,
            checkpoint_checksum: 12,
            journal: StreamPosition { extent: 6, index: 7, sequence: 8, before: 9 },
            journal_next: 10,
            journal_end: 11,
            tokens: (0..TOKENS_MAX as u64).map(token).collect(),
        };
        let mut bytes = Vec::new();
        anchor.encode(&mut bytes);
        assert!(bytes.len() <= PAYLOAD_BYTES);
        assert_eq!(Anchor::decode(&bytes), Ok(anchor.clone()));
        let mut twice = Vec::new();
        Anchor { tokens: vec![token(3), token(3)], ..anchor }.encode(&mut twice);
        assert_eq!(Anchor::decode(&twice), Err(Malformed));
    }
    #[test]
    fn summaries_have_room_for_all_owners() {
        assert_eq!(summary_pages(8), 1);
        assert_eq!(summary_pages(505), 1);
        assert_eq!(summary_pages(506), 2);
        assert_eq!(summary_pages(1024), 3);
    }
}
