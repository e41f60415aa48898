//! The index's layout in its region: every structure, byte by byte. It knows bytes, not memories.
//!
//! ```text
//!  region   +--------+-----------+-------------------------+----------+------------+----------+
//!           | header | documents | texts, path before text | postings | dictionary | passages |
//!           +--------+-----------+-------------------------+----------+------------+----------+
//!             4096 B   32 B each   raw bytes, no gaps        blocks     buckets      72 B each   (each from a subpage)
//!
//!  document   0          8         16          20       24            28
//!             +----------+---------+-----------+--------+-------------+----------+
//!             | place    | hash    | text      | words  | path        | reserved |
//!             | of path  | of text | bytes u32 | u32    | bytes u32   | u32      |
//!             +----------+---------+-----------+--------+-------------+----------+
//!
//!  bucket     0       2           4          8                      8 + 4 count                       4096
//!  (a sub-    +-------+-----------+----------+----------------------+----------------------------------+
//!  page)      | count | overflows | reserved | (tag, offset) u16 x2 | entries, packed                  |
//!             +-------+-----------+----------+----------------------+----------------------------------+
//!  entry      0                          4             12
//!             +--------------------------+-------------+------------------+
//!             | df << 5 | word bytes u32 | list u64    | the word, folded |
//!             +--------------------------+-------------+------------------+
//!
//!  list       df = 1:      the posting itself, in the entry: document 27 bits | impact 8 | first 23
//!             df <= 128:   place of one block
//!             df > 128:    place of   +--------+------------+----------+----------------------------------+
//!                                     | blocks | max impact | reserved | skip entries: last document u32, |
//!                                     | u32    | u32        | u64      | max impact u32, block's place u64 |
//!                                     +--------+------------+----------+----------------------------------+
//!  block      0       2            4       6
//!             +-------+------------+-------+-----------------------+--------------------+-------------------+
//!             | bytes | document   | count | documents: LEB128 of  | impacts: a byte    | first occurrences:|
//!             | u16   | bytes u16  | u16   | the first, then gaps  | each               | LEB128 of offsets |
//!             +-------+------------+-------+-----------------------+--------------------+-------------------+
//! ```
//!
//! Places are bytes from the start of the region. Blocks are never across a subpage boundary, typed
//! records are aligned to their size, and a bucket is a subpage, so only texts and passages
//! straddle. They are raw bytes. A word belongs in the bucket that its hash selects, and, while
//! buckets from there on say that they overflow, maybe in the next one.
//!
//! An *impact* is what a posting adds to its document's BM25 score, without the word's weight, in
//! 255ths of the most it can be (Anh and Moffat, "Pruned query evaluation using pre-computed
//! impacts", 2006). So ranking needs no table of document lengths. Invariant: an impact is at least
//! 1.

use fulgurite_memory::SUBPAGE_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::word::{WORD_BYTES_MAX, Word, mix};

/// First bytes of a region that holds an index in this layout.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"FLGSRCH1");
/// Postings in a full block. 128 as in most engines since: about one view's worth of decoding.
pub(super) const BLOCK_POSTINGS: usize = 128;
/// Bytes of the largest block: header, and 4 + 1 + 4 bytes a posting.
pub(super) const BLOCK_BYTES_MAX: usize = BLOCK_HEADER_BYTES + BLOCK_POSTINGS * 9;
pub(super) const BLOCK_HEADER_BYTES: usize = 6;
pub(super) const BUCKET_HEADER_BYTES: usize = 8;
pub(super) const BUCKET_SLOT_BYTES: usize = 4;
pub(super) const ENTRY_BYTES: usize = 12;
pub(super) const ENTRY_BYTES_MAX: usize = ENTRY_BYTES + WORD_BYTES_MAX;
/// Documents an index holds at most: 27 bits of an inline posting.
pub(super) const DOCUMENTS_MAX: usize = 1 << 27;
const FIRST_BITS: u32 = 23;
const IMPACT_BITS: u32 = 8;
const _: () = assert!(super::corpus::FILE_BYTES_MAX <= 1 << FIRST_BITS);
const _: () = assert!(BLOCK_BYTES_MAX <= SUBPAGE_BYTES && WORD_BYTES_MAX < 32);

/// The first subpage. Written last, so that a half-built index is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Header {
    pub magic: u64,
    /// Of all fields after it.
    pub checksum: u64,
    pub documents: u64,
    pub documents_at: u64,
    pub texts_at: u64,
    pub postings_at: u64,
    pub dictionary_at: u64,
    /// Buckets that words can belong in.
    pub home_buckets: u64,
    /// And those that only take what overflows, after them.
    pub buckets: u64,
    pub passages_at: u64,
    pub passages: u64,
    /// Bytes of the region in use.
    pub used_bytes: u64,
    pub words: u64,
    pub postings: u64,
    pub text_bytes: u64,
    /// Mean words of a document, rounded, at least 1.
    pub average_words: u64,
}

impl Header {
    pub(super) fn checksum(&self) -> u64 {
        let words = self.as_bytes()[16..].chunks_exact(8);
        words.fold(MAGIC, |sum, w| mix(sum, u64::from_le_bytes(w.try_into().expect("eight bytes"))))
    }
    /// Which bucket a word with this hash belongs in.
    #[inline]
    pub(super) fn home_bucket(&self, hash: u64) -> u64 {
        home_bucket(hash, self.home_buckets)
    }
}

#[inline]
pub(super) fn home_bucket(hash: u64, home_buckets: u64) -> u64 {
    ((u128::from(hash) * u128::from(home_buckets)) >> 64) as u64
}

/// Low bits of the hash: the high ones selected the bucket.
#[inline]
pub(super) fn tag(hash: u64) -> u16 {
    hash as u16
}

/// A row of the document table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Document {
    /// Of its path. Its text follows the path.
    pub place: u64,
    pub hash: u64,
    pub text_bytes: u32,
    pub words: u32,
    pub path_bytes: u32,
    pub reserved: u32,
}
pub(super) const DOCUMENT_BYTES: u64 = 32;
const _: () = assert!(size_of::<Document>() as u64 == DOCUMENT_BYTES);

/// Front of a list of more than one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ListHeader {
    pub blocks: u32,
    pub max_impact: u32,
    pub reserved: u64,
}

/// What is known of a block without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct SkipEntry {
    pub last_document: u32,
    pub max_impact: u32,
    pub place: u64,
}
pub(super) const SKIP_BYTES: usize = 16;
const _: () = assert!(size_of::<SkipEntry>() == SKIP_BYTES && size_of::<ListHeader>() == SKIP_BYTES);

/// A word in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Posting {
    pub document: u32,
    pub impact: u8,
    /// Byte of the text at which the word first starts.
    pub first: u32,
}

impl Posting {
    /// As it is stored in the entry of a word that one document has.
    pub(super) fn to_inline(self) -> u64 {
        u64::from(self.document) << (FIRST_BITS + IMPACT_BITS)
            | u64::from(self.impact) << FIRST_BITS
            | u64::from(self.first)
    }
    pub(super) fn from_inline(bits: u64) -> Posting {
        Posting {
            document: (bits >> (FIRST_BITS + IMPACT_BITS)) as u32,
            impact: (bits >> FIRST_BITS) as u8,
            first: bits as u32 & ((1 << FIRST_BITS) - 1),
        }
    }
}

/// Okapi BM25's two parameters, at the values most engines have (Robertson and Zaragoza, 2009,
/// section 3.5).
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// Weights of words are in this many parts of one.
pub(super) const WEIGHT_ONE: f64 = 1024.0;
/// The most that a posting's part of the score can be, without the weight. Impacts are 255ths of
/// it.
pub(super) const PART_MAX: f64 = K1 + 1.0;

/// What `count` occurrences in a document of `words` words add to its score: see the module. Sums
/// and quotients only, so the same on every machine.
pub(super) fn impact(count: u32, words: u32, average_words: u64) -> u8 {
    let count = f64::from(count);
    let length = 1.0 - B + B * f64::from(words) / average_words as f64;
    (255.0 * count / (count + K1 * length)).round().clamp(1.0, 255.0) as u8
}

/// How much a word in `df` of `documents` documents says, in 1024ths: the inverse document
/// frequency of BM25.
pub(super) fn weight(df: u32, documents: u64) -> u32 {
    let (df, documents) = (f64::from(df), documents as f64);
    let idf = (1.0 + (documents - df + 0.5).max(0.5) / (df + 0.5)).ln();
    (idf * WEIGHT_ONE).round().max(1.0) as u32
}

/// An entry of the dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// How many documents have the word.
    pub df: u32,
    pub list: u64,
    pub word: Word,
}

impl Entry {
    /// Bytes of the entry of a word this long.
    pub(super) fn bytes(word: &Word) -> usize {
        ENTRY_BYTES + word.as_bytes().len()
    }
    /// Writes it to the front of `into`.
    pub(super) fn encode(&self, into: &mut [u8]) {
        let word = self.word.as_bytes();
        into[..4].copy_from_slice(&(self.df << 5 | word.len() as u32).to_le_bytes());
        into[4..12].copy_from_slice(&self.list.to_le_bytes());
        into[ENTRY_BYTES..ENTRY_BYTES + word.len()].copy_from_slice(word);
    }
    /// Reads the one at the front of `from`. `None` when that cannot be one.
    #[inline]
    pub(super) fn decode(from: &[u8]) -> Option<Entry> {
        let head = u32::from_le_bytes(from.get(..4)?.try_into().ok()?);
        let list = u64::from_le_bytes(from.get(4..12)?.try_into().ok()?);
        let word = Word::from_bytes(from.get(ENTRY_BYTES..)?.get(..(head & 31) as usize)?)?;
        (head >> 5 > 0).then_some(Entry { df: head >> 5, list, word })
    }
}

fn push_leb(mut value: u32, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// The number at `*at`, which moves past it. `None` past the end or 32 bits.
#[inline(always)]
fn leb(from: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(7) {
        let byte = *from.get(*at)?;
        *at += 1;
        value |= u32::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Appends the block of these postings, which are ordered by document.
///
/// # Panics
/// When they are none, or more than a block holds.
pub(super) fn encode_block(postings: &[Posting], into: &mut Vec<u8>) {
    assert!((1..=BLOCK_POSTINGS).contains(&postings.len()), "a block of {} postings", postings.len());
    let start = into.len();
    into.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
    let mut last = 0;
    for posting in postings {
        push_leb(posting.document - last, into);
        last = posting.document;
    }
    let document_bytes = into.len() - start - BLOCK_HEADER_BYTES;
    into.extend(postings.iter().map(|p| p.impact));
    postings.iter().for_each(|p| push_leb(p.first, into));
    let bytes = into.len() - start;
    assert!(bytes <= BLOCK_BYTES_MAX, "a block of {bytes} bytes");
    for (i, field) in [bytes, document_bytes, postings.len()].into_iter().enumerate() {
        into[start + i * 2..][..2].copy_from_slice(&(field as u16).to_le_bytes());
    }
}

/// Writes the block of one posting, without its document: as if it had been read.
pub(super) fn encode_inline(posting: Posting, raw: &mut [u8; BLOCK_BYTES_MAX]) -> BlockHeader {
    raw[BLOCK_HEADER_BYTES] = posting.impact;
    for i in 0..4 {
        raw[BLOCK_HEADER_BYTES + 1 + i] = (posting.first >> (7 * i)) as u8 & 0x7F | if i < 3 { 0x80 } else { 0 };
    }
    BlockHeader { bytes: BLOCK_HEADER_BYTES + 5, impacts_at: BLOCK_HEADER_BYTES, count: 1 }
}

/// The lengths at the front of a block, found possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHeader {
    pub bytes: usize,
    pub impacts_at: usize,
    pub count: usize,
}

impl BlockHeader {
    #[inline]
    pub(super) fn decode(head: [u8; BLOCK_HEADER_BYTES]) -> Option<BlockHeader> {
        let field = |i: usize| usize::from(u16::from_le_bytes([head[i], head[i + 1]]));
        let (bytes, impacts_at, count) = (field(0), BLOCK_HEADER_BYTES + field(2), field(4));
        let possible = (1..=BLOCK_POSTINGS).contains(&count)
            && bytes <= BLOCK_BYTES_MAX
            && field(2) >= count
            && impacts_at + 2 * count <= bytes;
        possible.then_some(BlockHeader { bytes, impacts_at, count })
    }
    /// The documents of the block `raw`, into the front of `documents`. `None` when they are not
    /// ascending.
    #[inline]
    pub(super) fn documents(&self, raw: &[u8], documents: &mut [u32; BLOCK_POSTINGS]) -> Option<()> {
        let from = &raw[..self.impacts_at];
        let (mut at, mut last) = (BLOCK_HEADER_BYTES, 0u32);
        for (i, document) in documents[..self.count].iter_mut().enumerate() {
            // Most gaps are one byte.
            let gap = match from.get(at) {
                Some(&byte) if byte < 0x80 => {
                    at += 1;
                    u32::from(byte)
                }
                _ => leb(from, &mut at)?,
            };
            if gap == 0 && i > 0 {
                return None;
            }
            last = last.checked_add(gap)?;
            *document = last;
        }
        (at == self.impacts_at).then_some(())
    }
    /// The impacts of the block `raw`.
    #[inline]
    pub(super) fn impacts<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        &raw[self.impacts_at..self.impacts_at + self.count]
    }
    /// Where the word of posting `index` of the block `raw` first occurs in its document.
    pub(super) fn first(&self, raw: &[u8], index: usize) -> Option<u32> {
        let mut at = self.impacts_at + self.count;
        let mut first = 0;
        for _ in 0..=index {
            first = leb(&raw[..self.bytes], &mut at)?;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(raw: &[u8]) -> Option<Vec<Posting>> {
        let header = BlockHeader::decode(raw[..BLOCK_HEADER_BYTES].try_into().unwrap())?;
        let mut documents = [0; BLOCK_POSTINGS];
        header.documents(raw, &mut documents)?;
        let posting = |i: usize| {
            Some(Posting { document: documents[i], impact: header.impacts(raw)[i], first: header.first(raw, i)? })
        };
        (0..header.count).map(posting).collect()
    }

    #[test]
    fn blocks_come_back() {
        let extreme = |i: u32| Posting {
            document: i * ((1 << 27) / BLOCK_POSTINGS as u32) + if i == 127 { (1 << 20) - 1 } else { 0 },
            impact: (i + 1) as u8,
            first: (1 << 23) - 1 - i,
        };
        for count in [1u32, 2, 127, 128] {
            let postings: Vec<Posting> = (0..count).map(extreme).collect();
            let mut raw = Vec::new();
            encode_block(&postings, &mut raw);
            assert_eq!(decode(&raw), Some(postings));
        }
    }
    #[test]
    fn damaged_blocks_are_refused_or_decoded_but_never_panic() {
        let postings: Vec<Posting> =
            (0..100).map(|i| Posting { document: i * 1000, impact: 9, first: i * 70 }).collect();
        let mut raw = Vec::new();
        encode_block(&postings, &mut raw);
        raw.resize(BLOCK_BYTES_MAX, 0xFF);
        for at in 0..raw.len() {
            for bit in [0x01, 0x80] {
                let mut damaged = raw.clone();
                damaged[at] ^= bit;
                let _ = decode(&damaged);
            }
        }
    }
    #[test]
    fn inline_postings_come_back() {
        let posting = Posting { document: (1 << 27) - 1, impact: 255, first: (1 << 23) - 1 };
        assert_eq!(Posting::from_inline(posting.to_inline()), posting);
        let posting = Posting { document: 1, impact: 1, first: 0 };
        assert_eq!(Posting::from_inline(posting.to_inline()), posting);
    }
    #[test]
    fn entries_come_back() {
        let entry = Entry { df: 7, list: u64::MAX, word: Word::from_bytes(b"flash").unwrap() };
        let mut bytes = [0; ENTRY_BYTES_MAX];
        entry.encode(&mut bytes);
        assert_eq!(Entry::decode(&bytes[..Entry::bytes(&entry.word)]), Some(entry));
        assert_eq!(Entry::decode(&bytes[..14]), None);
        assert_eq!(Entry::decode(&[0; 40]), None);
    }
    #[test]
    fn impacts_grow_with_the_count_and_shrink_with_the_length() {
        assert!(impact(2, 100, 100) > impact(1, 100, 100) && impact(1, 10, 100) > impact(1, 1000, 100));
        assert_eq!(impact(1, u32::MAX, 1), 1);
        assert!(weight(1, 1000) > weight(900, 1000) && weight(1000, 1000) >= 1);
    }
}
