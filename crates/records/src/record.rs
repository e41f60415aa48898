//! The bytes of a record, on flash and in DRAM alike.
//!
//! ```text
//! | checksum | bits | table   | key     | value   | flags | expiry | version |     |       |
//! |          |      |         | length  | length  |       |        |         | key | value |
//! |    4     |  1   | 1 to 5  | 1 to 3  | 1 to 5  |   4   |   6    |    8    |     |       |
//!                  |   LEB128, in their shortest form  | each only where its bit is set |
//! ```
//!
//! Numbers of a fixed length are little-endian. The checksum is the CRC32C of all bytes behind it,
//! XORed with a number that the caller's seed gives. So a record that another seed was meant for is
//! refused, for instance what an extent held before it was written anew. Two seeds that differ only
//! in their lower 32 bits never give the same number, and others do once in 2^32. A copy with
//! another seed needs no second pass over the bytes.
//!
//! Invariant: there is one sequence of bytes for each record and seed, and no bytes make parsing
//! panic.
//!
//! What it does not do: flags, expiry and version are carried, and mean nothing here.

use fulgurite_format::crc32c;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// The most bytes in front of the key.
pub const HEAD_BYTES_MAX: usize = 36;

const CHECKSUM_BYTES: usize = 4;
const REMOVED: u8 = 1;
const HAS_FLAGS: u8 = 1 << 1;
const HAS_EXPIRY: u8 = 1 << 2;
const HAS_VERSION: u8 = 1 << 3;
const PARTS: u8 = 1 << 4;
const KNOWN: u8 = REMOVED | HAS_FLAGS | HAS_EXPIRY | HAS_VERSION | PARTS;
const EXPIRY_BYTES: usize = 6;

/// Why bytes are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadRecord {
    /// There are fewer bytes than the record has.
    #[error("the record has at least {expected} bytes, and {got} are there")]
    Short {
        /// Bytes that it has at least.
        expected: usize,
        /// Bytes that are there.
        got: usize,
    },
    /// Bits that no record has.
    #[error("the record's bits are {got:#04x}, of which only {expected:#04x} are known")]
    UnknownBits {
        /// The bits that are known.
        expected: u8,
        /// All bits.
        got: u8,
    },
    /// A number that is not in its shortest form, or has more bits than its field.
    #[error("the record's {what} at byte {at} is no LEB128 number of at most {expected} bits in its shortest form")]
    BadNumber {
        /// The field.
        what: &'static str,
        /// Where it begins.
        at: usize,
        /// The bits of the field.
        expected: u32,
    },
    /// A key or value that is longer than any.
    #[error("the record's {what} has {got} bytes, of at most {expected}")]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// The most bytes.
        expected: usize,
        /// Its bytes.
        got: usize,
    },
    /// The record says that the key was removed, and has a value.
    #[error("the record of a removed key has a value of {got} bytes, expected none")]
    RemovedWithValue {
        /// Bytes of the value.
        got: usize,
    },
    /// The bytes are others, or were written with another seed.
    #[error("the record's checksum is {got:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The checksum of the bytes with the seed.
        expected: u32,
        /// What the record says.
        got: u32,
    },
}

/// The number of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

/// What a checksum is mixed with: what distinguishes one use of a place on flash from the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(pub u64);

impl Seed {
    fn mixed(self) -> u32 {
        // Both factors are odd, so that each half alone decides. 2^32 divided by the golden ratio
        // spreads neighbours.
        let (low, high) = (self.0 as u32, (self.0 >> 32) as u32);
        (low ^ high.wrapping_mul(0x85EB_CA6B).rotate_left(15)).wrapping_mul(0x9E37_79B9)
    }
}

/// When a record expires: milliseconds since 1970, below 2^48, which is the year 10889.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Expiry(u64);

impl Expiry {
    /// That many milliseconds after 1970 began. None from 2^48 on.
    pub fn new(milliseconds: u64) -> Option<Expiry> {
        (milliseconds >> (8 * EXPIRY_BYTES) == 0).then_some(Expiry(milliseconds))
    }
    /// Milliseconds since 1970.
    pub fn milliseconds(self) -> u64 {
        self.0
    }
}

/// A record: what is written, and a view of what was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The table of the key.
    pub table: TableId,
    /// At most [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// At most [`VALUE_BYTES_MAX`] bytes, none where the key was removed.
    pub value: &'a [u8],
    /// The key was removed.
    pub removed: bool,
    /// The value lists the records that hold its parts.
    pub parts: bool,
    /// The program's own flags.
    pub flags: Option<u32>,
    /// When it expires.
    pub expiry: Option<Expiry>,
    /// Its version.
    pub version: Option<u64>,
}

impl<'a> Record<'a> {
    /// A record of a key and its value alone.
    pub fn new(table: TableId, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record { table, key, value, removed: false, parts: false, flags: None, expiry: None, version: None }
    }
    /// The record that says that a key was removed.
    pub fn removal(table: TableId, key: &'a [u8]) -> Record<'a> {
        Record { removed: true, ..Record::new(table, key, &[]) }
    }
    fn bits(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.removed, REMOVED)
            | bit(self.flags.is_some(), HAS_FLAGS)
            | bit(self.expiry.is_some(), HAS_EXPIRY)
            | bit(self.version.is_some(), HAS_VERSION)
            | bit(self.parts, PARTS)
    }
    fn head(&self) -> Head {
        let bits = self.bits();
        let (key_bytes, value_bytes) = (self.key.len(), self.value.len());
        let numbers = [u64::from(self.table.0), key_bytes as u64, value_bytes as u64];
        let head_bytes = CHECKSUM_BYTES + 1 + numbers.map(number_bytes).iter().sum::<usize>() + fields_bytes(bits);
        Head { bits, table: self.table, key_bytes, value_bytes, head_bytes }
    }
    /// Its length, in bytes.
    pub fn bytes(&self) -> usize {
        self.head().bytes()
    }
    /// Writes it to the front of `to`. Returns its length in bytes.
    ///
    /// # Errors
    /// [`BadRecord::TooLong`], [`BadRecord::RemovedWithValue`], and [`BadRecord::Short`] where `to`
    /// has fewer bytes than [`Record::bytes`]. Nothing was written then.
    pub fn write(&self, seed: Seed, to: &mut [u8]) -> Result<usize, BadRecord> {
        let head = self.head().checked()?;
        let bytes = head.bytes();
        let got = to.len();
        let to = to.get_mut(..bytes).ok_or(BadRecord::Short { expected: bytes, got })?;
        let mut at = CHECKSUM_BYTES;
        let mut put = |part: &[u8]| {
            to[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&[head.bits]);
        for number in [u64::from(self.table.0), head.key_bytes as u64, head.value_bytes as u64] {
            let mut rest = number;
            while rest >= 0x80 {
                put(&[rest as u8 | 0x80]);
                rest >>= 7;
            }
            put(&[rest as u8]);
        }
        self.flags.iter().for_each(|flags| put(&flags.to_le_bytes()));
        self.expiry.iter().for_each(|expiry| put(&expiry.0.to_le_bytes()[..EXPIRY_BYTES]));
        self.version.iter().for_each(|version| put(&version.to_le_bytes()));
        put(self.key);
        put(self.value);
        let checksum = crc32c(&to[CHECKSUM_BYTES..]) ^ seed.mixed();
        to[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }
    /// Writes it behind what `to` holds. Returns its length in bytes.
    ///
    /// # Errors
    /// [`BadRecord::TooLong`] and [`BadRecord::RemovedWithValue`]. Nothing was written then.
    pub fn append(&self, seed: Seed, to: &mut Vec<u8>) -> Result<usize, BadRecord> {
        let bytes = self.head().checked()?.bytes();
        let start = to.len();
        to.resize(start + bytes, 0);
        self.write(seed, &mut to[start..])
    }

    /// The record at the front of these bytes, as it was written with this seed. Other bytes may
    /// follow it.
    ///
    /// # Errors
    /// [`BadRecord`]: the bytes are no record, not all of one, or were written with another seed.
    pub fn parse(seed: Seed, bytes: &'a [u8]) -> Result<Record<'a>, BadRecord> {
        let record = Record::view(bytes)?;
        let stored = u32::from_le_bytes(*bytes.first_chunk().expect("a head has a checksum"));
        let expected = crc32c(&bytes[CHECKSUM_BYTES..record.bytes()]) ^ seed.mixed();
        if stored != expected {
            return Err(BadRecord::Checksum { expected, got: stored });
        }
        Ok(record)
    }
    /// The record at the front of these bytes, whatever its checksum is: the bytes were checked
    /// before, or are copied in DRAM.
    ///
    /// # Errors
    /// As [`Record::parse`], except for the checksum.
    #[inline]
    pub fn view(bytes: &'a [u8]) -> Result<Record<'a>, BadRecord> {
        Head::read(bytes)?.record(bytes)
    }
}

/// Makes a record that was written with one seed into one of another, in place: reclaim moves it.
///
/// The bytes are not read, and damage stays visible. So what is copied is parsed before.
///
/// # Panics
/// When there are fewer than four bytes.
pub fn reseed(record: &mut [u8], from: Seed, to: Seed) {
    let stored = record.first_chunk_mut::<CHECKSUM_BYTES>().expect("a record has a checksum");
    *stored = (u32::from_le_bytes(*stored) ^ from.mixed() ^ to.mixed()).to_le_bytes();
}

/// What is in front of a record's key, for readers that do not have all of its bytes yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    bits: u8,
    /// The table of the key.
    pub table: TableId,
    /// Bytes of the key.
    pub key_bytes: usize,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Bytes in front of the key.
    pub head_bytes: usize,
}

impl Head {
    /// The head at the front of these bytes, which need not hold key and value. Nothing guards it
    /// but the checksum of the whole record.
    ///
    /// # Errors
    /// [`BadRecord`], except for the checksum. What is expected by [`BadRecord::Short`] is then at
    /// most [`HEAD_BYTES_MAX`].
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Head, BadRecord> {
        let short = |expected: usize| BadRecord::Short { expected, got: bytes.len() };
        let bits = *bytes.get(CHECKSUM_BYTES).ok_or(short(CHECKSUM_BYTES + 1))?;
        if bits & !KNOWN != 0 {
            return Err(BadRecord::UnknownBits { expected: KNOWN, got: bits });
        }
        let at = CHECKSUM_BYTES + 1;
        let (table, at) = number(bytes, at, "table")?;
        let (key_bytes, at) = number(bytes, at, "key length")?;
        let (value_bytes, at) = number(bytes, at, "value length")?;
        let head_bytes = at + fields_bytes(bits);
        let (table, key_bytes, value_bytes) = (TableId(table), key_bytes as usize, value_bytes as usize);
        let head = Head { bits, table, key_bytes, value_bytes, head_bytes }.checked()?;
        if bytes.len() < head_bytes {
            return Err(short(head_bytes));
        }
        Ok(head)
    }
    #[inline]
    fn checked(self) -> Result<Head, BadRecord> {
        let lengths = [("key", self.key_bytes, KEY_BYTES_MAX), ("value", self.value_bytes, VALUE_BYTES_MAX)];
        for (what, got, expected) in lengths {
            if got > expected {
                return Err(BadRecord::TooLong { what, expected, got });
            }
        }
        if self.bits & REMOVED != 0 && self.value_bytes > 0 {
            return Err(BadRecord::RemovedWithValue { got: self.value_bytes });
        }
        Ok(self)
    }
    /// Bytes of the whole record.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.head_bytes + self.key_bytes + self.value_bytes
    }
    /// The key in the bytes that the head was read from.
    ///
    /// # Panics
    /// When they end before it does.
    #[inline]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.head_bytes..self.head_bytes + self.key_bytes]
    }
    /// The record in the bytes that the head was read from.
    #[inline]
    pub(crate) fn record<'a>(&self, bytes: &'a [u8]) -> Result<Record<'a>, BadRecord> {
        let short = BadRecord::Short { expected: self.bytes(), got: bytes.len() };
        let contents = bytes.get(self.head_bytes..self.bytes()).ok_or(short)?;
        let (key, value) = contents.split_at(self.key_bytes);
        let mut at = self.head_bytes - fields_bytes(self.bits);
        let mut field = |bit: u8, length: usize| {
            if self.bits & bit == 0 {
                return None;
            }
            let mut wide = [0; 8];
            wide[..length].copy_from_slice(&bytes[at..at + length]);
            at += length;
            Some(u64::from_le_bytes(wide))
        };
        Ok(Record {
            table: self.table,
            key,
            value,
            removed: self.bits & REMOVED != 0,
            parts: self.bits & PARTS != 0,
            flags: field(HAS_FLAGS, 4).map(|flags| flags as u32),
            expiry: field(HAS_EXPIRY, EXPIRY_BYTES).map(Expiry),
            version: field(HAS_VERSION, 8),
        })
    }
}

/// The length of a record with these lengths of key and value, in bytes, before there is one.
///
/// Table, flags, expiry and version are as in `like`, whose key and value do not count.
pub fn bytes_of(like: &Record<'_>, key_bytes: usize, value_bytes: usize) -> usize {
    let numbers = number_bytes(key_bytes as u64) + number_bytes(value_bytes as u64);
    let head = CHECKSUM_BYTES + 1 + number_bytes(u64::from(like.table.0)) + numbers + fields_bytes(like.bits());
    head + key_bytes + value_bytes
}

/// Bytes of the fields that these bits announce.
#[inline]
fn fields_bytes(bits: u8) -> usize {
    let field = |bit: u8, bytes: usize| if bits & bit == 0 { 0 } else { bytes };
    field(HAS_FLAGS, 4) + field(HAS_EXPIRY, EXPIRY_BYTES) + field(HAS_VERSION, 8)
}

/// Bytes of a number in LEB128.
fn number_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// The number of 32 bits at a place, and where the next field begins.
#[inline(always)]
fn number(bytes: &[u8], start: usize, what: &'static str) -> Result<(u32, usize), BadRecord> {
    match bytes.get(start) {
        Some(byte) if *byte < 0x80 => Ok((u32::from(*byte), start + 1)),
        _ => long_number(bytes, start, what),
    }
}
fn long_number(bytes: &[u8], start: usize, what: &'static str) -> Result<(u32, usize), BadRecord> {
    let bad = BadRecord::BadNumber { what, at: start, expected: u32::BITS };
    let (mut value, mut at) = (0u64, start);
    for shift in [0, 7, 14, 21, 28] {
        let byte = *bytes.get(at).ok_or(BadRecord::Short { expected: at + 1, got: bytes.len() })?;
        at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            // A last byte of zero would have been left out.
            let is_shortest = byte != 0 || shift == 0;
            return u32::try_from(value).ok().filter(|_| is_shortest).map(|value| (value, at)).ok_or(bad);
        }
    }
    Err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_bytes_of_the_drawing() {
        let mut bytes = Vec::new();
        let record = Record::new(TableId(1), b"k", &[7; 200]);
        assert_eq!(record.append(Seed(0), &mut bytes), Ok(4 + 1 + 1 + 1 + 2 + 1 + 200));
        assert_eq!(bytes[4..10], [0, 1, 1, 0xC8, 1, b'k']);
        assert_eq!(bytes[..4], crc32c(&bytes[4..]).to_le_bytes(), "seed zero changes nothing");
        bytes.clear();
        let all = Record {
            flags: Some(0x0403_0201),
            expiry: Expiry::new(0x0605_0403_0201),
            version: Some(0x0807_0605_0403_0201),
            ..Record::removal(TableId(u32::MAX), &[9; KEY_BYTES_MAX])
        };
        assert_eq!(all.append(Seed(0), &mut bytes), Ok(all.bytes()));
        assert_eq!(bytes[4..14], [0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x80, 0x80, 4, 0]);
        assert_eq!(bytes[14..32], [1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Record::parse(Seed(0), &bytes), Ok(all));
    }
    #[test]
    fn the_longest_head_is_as_long_as_it_says() {
        let all = Head {
            bits: KNOWN & !REMOVED,
            table: TableId(u32::MAX),
            key_bytes: KEY_BYTES_MAX,
            value_bytes: VALUE_BYTES_MAX,
            head_bytes: 0,
        };
        let like =
            Record { flags: Some(0), expiry: Expiry::new(0), version: Some(0), ..Record::new(all.table, &[], &[]) };
        let bytes = bytes_of(&like, all.key_bytes, all.value_bytes);
        assert_eq!(bytes - all.key_bytes - all.value_bytes, HEAD_BYTES_MAX);
    }
    #[test]
    fn seeds_that_differ_in_one_half_never_mix_alike() {
        for bit in 0..64 {
            for seed in [0, 1, u64::MAX, 0x1234_5678_9ABC_DEF0] {
                assert_ne!(Seed(seed).mixed(), Seed(seed ^ 1 << bit).mixed());
            }
        }
    }
}
