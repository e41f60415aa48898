//! Where permanent objects, and what is known of them, are stored in a pool, bit for bit. No I/O.
//!
//! ```text
//! subpage:   0        16 .. 1040     1040      1056 .. 2080    2080     2096 ..
//!         +--------+--------------+--------+----------------+--------+-----------+----
//!         | header | names, each  | record | objects        | record | objects   | ..
//!         |        | in a subpage | of the | 0 .. 1023      | of the | 1024 ..   |
//!         |        |              | first  |                | second |           |
//!         +--------+--------------+--------+----------------+--------+-----------+----
//!                                   chunk of numbers          chunk
//! ```
//!
//! Each of them is an object of the store, as long as what it holds, because the store has its
//! checksum and packs it. A page of the store has objects of one chunk, or none. So it is permanent
//! or temporary as the chunk is. Numbers are little-endian.

use fulgurite_format::{OBJECT_ALIGNMENT, SUBPAGE_BYTES};
use fulgurite_store::SUBPAGES_PER_PAGE;

use super::numbers::{CHUNK, Kind, NOBODY, Record, WORDS};
use super::packed::OBJECT_BYTES_MAX;

/// The most names of a pool.
pub const NAMES_MAX: u32 = 1024;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
const FIRST_CHUNK: u32 = SUBPAGES_PER_PAGE + NAMES_MAX;
/// Subpages of a chunk.
const GROUP: u32 = SUBPAGES_PER_PAGE + CHUNK;
const _: () = assert!(FIRST_CHUNK.is_multiple_of(SUBPAGES_PER_PAGE) && GROUP.is_multiple_of(SUBPAGES_PER_PAGE));
/// Pages of the store that hold the objects of a chunk.
pub const PAGES_PER_CHUNK: u32 = CHUNK / SUBPAGES_PER_PAGE;

/// Where the header is stored.
pub const HEADER: u32 = 0;
/// The most bytes of a header, name or record.
pub const BYTES_MAX: usize = 256;

/// Where a name is stored.
pub fn of_name(slot: u32) -> u32 {
    SUBPAGES_PER_PAGE + slot
}
/// Where the record of a chunk is stored.
pub fn of_chunk(chunk: u32) -> u32 {
    FIRST_CHUNK + chunk * GROUP
}
/// Where an object is stored.
pub fn of_object(number: u32) -> u32 {
    of_chunk(number / CHUNK) + SUBPAGES_PER_PAGE + number % CHUNK
}
/// The first page of the store with objects of a chunk.
pub fn first_page(chunk: u32) -> u32 {
    of_object(chunk * CHUNK) / SUBPAGES_PER_PAGE
}
/// Subpages of a pool for `chunks` chunks.
pub fn addresses(chunks: u32) -> u64 {
    u64::from(FIRST_CHUNK) + u64::from(chunks) * u64::from(GROUP)
}
/// How many chunks have their subpages in a pool of `subpages` subpages.
pub fn chunks_in(subpages: u32) -> u32 {
    subpages.saturating_sub(FIRST_CHUNK) / GROUP
}

/// Bytes of flash that an object takes at worst: its share of a flash page of its own kind, and its
/// line in a summary of the store, of which a page has some 500.
pub fn weight(size: usize) -> u64 {
    let units = size.div_ceil(OBJECT_ALIGNMENT).max(1);
    let per_page = SUBPAGE_BYTES / OBJECT_ALIGNMENT / units;
    (SUBPAGE_BYTES as u64).div_ceil(per_page as u64) + 9
}

/// What a header begins with.
pub const MAGIC: &[u8] = b"FLGOBJPP";
const VERSION: u32 = 1;

/// What a header is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// The header of a pool of objects.
    Own,
    /// The header of a pool of objects that a later program has made.
    Newer(u32),
    /// Something else.
    Foreign,
}

/// A header.
pub fn header() -> Vec<u8> {
    [MAGIC, &VERSION.to_le_bytes()].concat()
}
/// What was read where the header should be.
pub fn judge_header(bytes: &[u8]) -> Header {
    match bytes.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk()).map(|version| u32::from_le_bytes(*version)) {
        Some(VERSION) => Header::Own,
        Some(version) => Header::Newer(version),
        None => Header::Foreign,
    }
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An array: its first number, and how many objects it has.
    Array {
        /// The number of the first object.
        first: u32,
        /// How many it has.
        count: u32,
    },
    /// A pool.
    Pool {
        /// Whose chunks are its own.
        owner: u32,
        /// The number of its root, if it has one.
        root: Option<u32>,
    },
}

const OF_POOL: u8 = 1;
const OF_ARRAY: u8 = 2;

/// A name, and what it leads to, with the bytes of each object.
pub fn encode_name(name: &str, size: u16, named: Target) -> Vec<u8> {
    let (kind, of, more) = match named {
        Target::Array { first, count } => (OF_ARRAY, first, count),
        Target::Pool { owner, root } => (OF_POOL, owner, root.map_or(0, |root| root + 1)),
    };
    let mut bytes = vec![kind, name.len() as u8];
    bytes.extend(size.to_le_bytes());
    bytes.extend(of.to_le_bytes());
    bytes.extend(more.to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes
}
/// The name that was read, with zeros behind it. None where it cannot be one.
pub fn decode_name(bytes: &[u8]) -> Option<(String, u16, Target)> {
    let ([kind, length, low, high], rest) = bytes.split_first_chunk()?;
    let (of, rest) = rest.split_first_chunk().map(|(word, rest)| (u32::from_le_bytes(*word), rest))?;
    let (more, rest) = rest.split_first_chunk().map(|(word, rest)| (u32::from_le_bytes(*word), rest))?;
    let name = std::str::from_utf8(rest.get(..usize::from(*length))?).ok().filter(|name| is_name(name))?;
    let size = u16::from_le_bytes([*low, *high]);
    let named = match *kind {
        OF_ARRAY if more > 0 => Target::Array { first: of, count: more },
        OF_POOL if of != NOBODY => Target::Pool { owner: of, root: more.checked_sub(1) },
        _ => return None,
    };
    is_size(size).then(|| (name.to_owned(), size, named))
}
/// Whether something can have this name.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
}
fn is_size(size: u16) -> bool {
    (1..=OBJECT_BYTES_MAX).contains(&size.into())
}

/// The record of a chunk.
pub fn encode_chunk(record: &Record) -> Vec<u8> {
    let (kind, of) = match record.kind {
        Kind::Pool(owner) => (OF_POOL, owner),
        Kind::Array(first) => (OF_ARRAY, first),
        Kind::Free => return Vec::new(),
    };
    let mut bytes = vec![kind, 0];
    bytes.extend(record.size.to_le_bytes());
    bytes.extend(of.to_le_bytes());
    bytes.extend(record.bits.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}
/// The record that was read, with zeros behind it. None where it cannot be one.
pub fn decode_chunk(bytes: &[u8]) -> Option<Record> {
    let ([kind, _, low, high], rest) = bytes.split_first_chunk()?;
    let (of, rest) = rest.split_first_chunk().map(|(word, rest)| (u32::from_le_bytes(*word), rest))?;
    let kind = match *kind {
        OF_POOL if of != NOBODY => Kind::Pool(of),
        OF_ARRAY => Kind::Array(of),
        _ => return None,
    };
    let mut bits = [0; WORDS];
    let words = rest.get(..8 * WORDS)?.as_chunks().0;
    bits.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    let size = u16::from_le_bytes([*low, *high]);
    is_size(size).then_some(Record { kind, size, bits })
}

#[cfg(test)]
mod tests {
    use fulgurite_testkit::Random;

    use super::*;

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(judge_header(&header()), Header::Own);
        assert_eq!(judge_header(b"FLGOBJPP\x02\0\0\0"), Header::Newer(2));
        assert_eq!((judge_header(b"FLGOBJPP\x01\0"), judge_header(&[])), (Header::Foreign, Header::Foreign));
        let longest = "x".repeat(NAME_BYTES_MAX);
        for (name, size, named) in [
            ("a", 1, Target::Array { first: 0, count: 1 }),
            (&longest, 4082, Target::Array { first: u32::MAX, count: u32::MAX }),
            ("ö", 128, Target::Pool { owner: 1, root: None }),
            ("pool", 128, Target::Pool { owner: 7, root: Some(0) }),
        ] {
            let mut bytes = encode_name(name, size, named);
            assert!(bytes.len() <= BYTES_MAX);
            bytes.resize(SUBPAGE_BYTES, 0);
            assert_eq!(decode_name(&bytes), Some((name.to_owned(), size, named)));
            // A record of neither kind, one without a size, and one without a name.
            for at in [0, 1, 2] {
                let mut other = bytes.clone();
                other[at..at + 1 + at / 2].fill(0);
                assert_eq!(decode_name(&other), None, "{at}");
            }
        }
        let mut random = Random::seeded("chunks", 1);
        for kind in [Kind::Pool(3), Kind::Array(0), Kind::Array(2048)] {
            let mut bits = [0; WORDS];
            bits.iter_mut().for_each(|word| *word = random.next());
            let record = Record { kind, size: 128, bits };
            let mut bytes = encode_chunk(&record);
            assert!(bytes.len() <= BYTES_MAX);
            bytes.resize(SUBPAGE_BYTES, 0);
            assert_eq!(decode_chunk(&bytes), Some(record));
            assert_eq!(decode_chunk(&bytes[..100]), None);
            bytes[2..4].fill(0xff);
            assert_eq!(decode_chunk(&bytes), None, "no object has that size");
        }
        assert_eq!((decode_chunk(&[0; SUBPAGE_BYTES]), decode_name(&[0; SUBPAGE_BYTES])), (None, None));
    }
    #[test]
    fn nothing_overlaps_anything_else() {
        assert!(of_name(0) > HEADER && of_name(NAMES_MAX - 1) < of_chunk(0));
        assert_eq!(of_object(CHUNK - 1) + 1, of_chunk(1));
        assert_eq!(u64::from(of_object(3 * CHUNK - 1)) + 1, addresses(3));
        assert_eq!((chunks_in(addresses(3) as u32), chunks_in(addresses(3) as u32 - 1), chunks_in(0)), (3, 2, 0));
        assert_eq!((first_page(0), first_page(1)), (66, 66 + 65));
        assert_eq!(first_page(0) + PAGES_PER_CHUNK, of_chunk(1) / SUBPAGES_PER_PAGE);
    }
}
