//! Records of the journal, and histories of pages in a checkpoint.
//!
//! A record, by its first byte:
//!
//! ```text
//! 1 write      status 1, valid bits 4, page 4, start 5, CRC32C 4 of each subpage, ascending
//! 2 status     status 1, page 4
//! 3 move       valid bits 4 (of the subpages that moved), page 4, from 5 (the first of them), to 5
//! 4 token      token 8: the state up to here has this name
//! 5 drop       token 8: this token is kept no more
//! 6 pin        token 8, pinned 1
//! 7 roll back  token 8: what was written after that token is gone
//! 8 bad        flash page 5: not to be used again
//! 9 restamp    token 8: older versions get the time of the first kept token that sees them
//! 10 wear      extent 4, n 1, fills 4 n: how often this extent and those that follow were filled
//! 11 time      token 8, age 8, clock 8: when this token was made
//! 12 objects   see [`crate::ObjectsWritten`]
//! 13 moved     see [`crate::ObjectsMoved`]
//! ```

use crate::entry::{FlashPage, PageEntry, Status};
use crate::metadata::{Malformed, Reader};
use crate::objects::{ObjectsMoved, ObjectsWritten, WORDS_OF_AN_OBJECT};

/// The most subpages in a page: of 2 KiB there would be 32.
pub const SUBPAGES_MAX: usize = 32;

/// CRC32C of the subpages that a version holds, in ascending order of the subpages, or as many
/// other numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksums {
    values: [u32; SUBPAGES_MAX],
    len: u8,
}

impl Checksums {
    /// None yet.
    pub const EMPTY: Checksums = Checksums { values: [0; SUBPAGES_MAX], len: 0 };
    /// Appends one.
    ///
    /// # Panics
    /// When there are as many as a page can have subpages.
    pub fn push(&mut self, checksum: u32) {
        self.values[usize::from(self.len)] = checksum;
        self.len += 1;
    }
    /// All of them.
    pub fn as_slice(&self) -> &[u32] {
        &self.values[..usize::from(self.len)]
    }
}

/// One change of a pool's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the table of this module says what each field is")]
pub enum Record {
    /// A new version of some subpages. `valid` has a bit for each, and `status` their placement.
    Write { page: u32, start: FlashPage, valid: u32, status: Status, checksums: Checksums },
    /// A page was allocated, deleted, or has other permissions.
    Status { page: u32, status: Status },
    /// Subpages of a version, a bit each, have moved, and are packed from `to` on.
    Move { page: u32, subpages: u32, from: FlashPage, to: FlashPage },
    /// A sync named the state up to here.
    Token { token: u64 },
    /// A token is kept no more.
    Drop { token: u64 },
    /// A user wants a token kept, or no more.
    Pin { token: u64, pinned: bool },
    /// The state is again the state of a token.
    RollBack { token: u64 },
    /// A flash page failed and is not used again.
    Bad { place: FlashPage },
    /// Versions with older times get the time of the first kept token that sees them, or of the
    /// next token. No token can tell the difference, and times of 24 bits stay near the token that
    /// they are read against.
    Restamp { token: u64 },
    /// How often this extent and those that follow were filled.
    Wear { extent: u32, fills: Checksums },
    /// When a token was made: by the pool's own time, which never goes back, and by the clock.
    Time { token: u64, age: u64, clock: u64 },
    /// New versions of objects, packed in one flash page.
    Objects(ObjectsWritten),
    /// Objects have moved, and are packed in one flash page.
    MoveObjects(ObjectsMoved),
}

fn put_place(into: &mut Vec<u8>, place: FlashPage) {
    into.extend_from_slice(&place.0.to_le_bytes()[..5]);
}
fn place(r: &mut Reader<'_>) -> Result<FlashPage, Malformed> {
    let [a, b, c, d, e] = r.bytes()?;
    Ok(FlashPage(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])))
}
fn status(r: &mut Reader<'_>) -> Result<Status, Malformed> {
    Status::from_bits(r.u8()?).ok_or(Malformed)
}

impl Record {
    /// The most bytes that a record takes.
    pub const BYTES_MAX: usize = 15 + 4 * SUBPAGES_MAX;

    /// Appends it.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let token_record = |into: &mut Vec<u8>, kind: u8, token: u64| {
            into.push(kind);
            into.extend_from_slice(&token.to_le_bytes());
        };
        match self {
            Record::Write { page, start, valid, status, checksums } => {
                // In one piece, for this is what a journal is full of.
                let mut fixed = [0; 15];
                (fixed[0], fixed[1]) = (1, status.bits());
                fixed[2..6].copy_from_slice(&valid.to_le_bytes());
                fixed[6..10].copy_from_slice(&page.to_le_bytes());
                fixed[10..].copy_from_slice(&start.0.to_le_bytes()[..5]);
                into.extend_from_slice(&fixed);
                checksums.as_slice().iter().for_each(|c| into.extend_from_slice(&c.to_le_bytes()));
            }
            Record::Status { page, status } => {
                into.extend_from_slice(&[2, status.bits()]);
                into.extend_from_slice(&page.to_le_bytes());
            }
            Record::Move { page, subpages, from, to } => {
                let mut all = [0; 19];
                all[0] = 3;
                all[1..5].copy_from_slice(&subpages.to_le_bytes());
                all[5..9].copy_from_slice(&page.to_le_bytes());
                all[9..14].copy_from_slice(&from.0.to_le_bytes()[..5]);
                all[14..].copy_from_slice(&to.0.to_le_bytes()[..5]);
                into.extend_from_slice(&all);
            }
            Record::Token { token } => token_record(into, 4, *token),
            Record::Drop { token } => token_record(into, 5, *token),
            Record::Pin { token, pinned } => {
                token_record(into, 6, *token);
                into.push((*pinned).into());
            }
            Record::RollBack { token } => token_record(into, 7, *token),
            Record::Restamp { token } => token_record(into, 9, *token),
            Record::Bad { place } => {
                into.push(8);
                put_place(into, *place);
            }
            Record::Wear { extent, fills } => {
                into.push(10);
                into.extend_from_slice(&extent.to_le_bytes());
                into.push(fills.as_slice().len() as u8);
                fills.as_slice().iter().for_each(|n| into.extend_from_slice(&n.to_le_bytes()));
            }
            Record::Time { token, age, clock } => {
                token_record(into, 11, *token);
                into.extend_from_slice(&age.to_le_bytes());
                into.extend_from_slice(&clock.to_le_bytes());
            }
            Record::Objects(written) => {
                into.push(12);
                written.encode(into);
            }
            Record::MoveObjects(moved) => {
                into.push(13);
                moved.encode(into);
            }
        }
    }

    /// Reads one.
    pub fn decode(r: &mut Reader<'_>) -> Result<Record, Malformed> {
        Ok(match r.u8()? {
            1 => {
                let (status, valid, page, start) = (status(r)?, r.u32()?, r.u32()?, place(r)?);
                let mut checksums = Checksums::EMPTY;
                for _ in 0..valid.count_ones() {
                    checksums.push(r.u32()?);
                }
                Record::Write { page, start, valid, status, checksums }
            }
            2 => Record::Status { status: status(r)?, page: r.u32()? },
            3 => {
                let subpages = r.u32()?;
                Record::Move { page: r.u32()?, subpages, from: place(r)?, to: place(r)? }
            }
            4 => Record::Token { token: r.u64()? },
            5 => Record::Drop { token: r.u64()? },
            6 => Record::Pin { token: r.u64()?, pinned: r.u8()? != 0 },
            7 => Record::RollBack { token: r.u64()? },
            8 => Record::Bad { place: place(r)? },
            9 => Record::Restamp { token: r.u64()? },
            10 => {
                let (extent, count) = (r.u32()?, r.u8()?);
                if usize::from(count) > SUBPAGES_MAX {
                    return Err(Malformed);
                }
                let mut fills = Checksums::EMPTY;
                for _ in 0..count {
                    fills.push(r.u32()?);
                }
                Record::Wear { extent, fills }
            }
            11 => Record::Time { token: r.u64()?, age: r.u64()?, clock: r.u64()? },
            12 => Record::Objects(ObjectsWritten::decode(r)?),
            13 => Record::MoveObjects(ObjectsMoved::decode(r)?),
            _ => return Err(Malformed),
        })
    }
}

/// The history of a page in a checkpoint: its versions, the newest first, each with the checksums
/// of what it holds.
///
/// ```text
/// offset  bytes
///      0      4  page
///      4      2  versions
///      6         each version: the 16 bytes of its entry (the previous index means nothing here),
///                then CRC32C 4 of each subpage that it holds, ascending. Of an entry of
///                objects: flash page 4, offset 2, length 2, CRC32C 4
/// ```
/// A history may be longer than a page. Checkpoints cut it in several pieces of the same page, in
/// order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// The page.
    pub page: u32,
    /// Versions, newest first, each with a checksum for each subpage, of an entry of objects with
    /// three words for each ([`crate::ObjectLocation::words`]).
    pub versions: Vec<(PageEntry, Vec<u32>)>,
}

impl History {
    /// Bytes of the piece before its first version.
    pub const FIXED_BYTES: usize = 6;

    /// Bytes that a version takes with this number of checksums or words.
    #[must_use]
    pub fn version_bytes(checksums: usize) -> usize {
        16 + 4 * checksums
    }
    /// Appends it.
    ///
    /// # Panics
    /// With more than 65,535 versions in one piece.
    pub fn encode(&self, into: &mut Vec<u8>) {
        History::begin(self.page, self.versions.len(), into);
        for (entry, checksums) in &self.versions {
            History::encode_version(*entry, checksums.iter().copied(), into);
        }
    }
    /// Appends the beginning of one, which `versions` versions follow.
    ///
    /// # Panics
    /// With more than 65,535 versions.
    pub fn begin(page: u32, versions: usize, into: &mut Vec<u8>) {
        into.extend_from_slice(&page.to_le_bytes());
        into.extend_from_slice(&u16::try_from(versions).expect("a piece fits in a page").to_le_bytes());
    }
    /// Appends a version: its entry, and the checksums of what that holds.
    pub fn encode_version(entry: PageEntry, checksums: impl Iterator<Item = u32>, into: &mut Vec<u8>) {
        into.extend_from_slice(&entry.to_bytes());
        checksums.for_each(|c| into.extend_from_slice(&c.to_le_bytes()));
    }
    /// Reads one, of a pool with `n` subpages in a page.
    pub fn decode(r: &mut Reader<'_>, n: u32) -> Result<History, Malformed> {
        let page = r.u32()?;
        let count = u16::from_le_bytes(r.bytes()?);
        let mut versions = Vec::with_capacity(count.into());
        for _ in 0..count {
            let entry = PageEntry::from_bytes(r.bytes()?).ok_or(Malformed)?;
            let words = if entry.status().has(Status::OBJECTS) { WORDS_OF_AN_OBJECT } else { 1 };
            let held = entry.subpages(n).count_ones() * words;
            let checksums = (0..held).map(|_| r.u32()).collect::<Result<_, _>>()?;
            versions.push((entry, checksums));
        }
        Ok(History { page, versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryIndex;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Record> {
        let place = (0..1u64 << 34).prop_map(FlashPage);
        let status = (0..64u8).prop_map(|bits| Status::from_bits(bits).unwrap());
        prop_oneof![
            (any::<u32>(), place.clone(), any::<u32>(), status.clone()).prop_map(|(page, start, valid, status)| {
                let mut checksums = Checksums::EMPTY;
                (0..valid.count_ones()).for_each(|i| checksums.push(i.wrapping_mul(page)));
                Record::Write { page, start, valid, status, checksums }
            }),
            (any::<u32>(), status).prop_map(|(page, status)| Record::Status { page, status }),
            (any::<u32>(), any::<u32>(), place.clone(), place.clone())
                .prop_map(|(page, subpages, from, to)| Record::Move { page, subpages, from, to }),
            any::<u64>().prop_map(|token| Record::Token { token }),
            any::<u64>().prop_map(|token| Record::Drop { token }),
            (any::<u64>(), any::<bool>()).prop_map(|(token, pinned)| Record::Pin { token, pinned }),
            any::<u64>().prop_map(|token| Record::RollBack { token }),
            place.prop_map(|place| Record::Bad { place }),
            any::<u64>().prop_map(|token| Record::Restamp { token }),
            (any::<u32>(), proptest::collection::vec(any::<u32>(), 0..=SUBPAGES_MAX)).prop_map(|(extent, counts)| {
                let mut fills = Checksums::EMPTY;
                counts.into_iter().for_each(|n| fills.push(n));
                Record::Wear { extent, fills }
            }),
            any::<[u64; 3]>().prop_map(|[token, age, clock]| Record::Time { token, age, clock }),
            crate::objects::tests::written().prop_map(Record::Objects),
            crate::objects::tests::moved().prop_map(Record::MoveObjects),
        ]
    }

    proptest! {
        #[test]
        fn records_come_back(records in proptest::collection::vec(records(), 0..20)) {
            let mut bytes = Vec::new();
            for record in &records {
                let before = bytes.len();
                record.encode(&mut bytes);
                prop_assert!(bytes.len() - before <= Record::BYTES_MAX);
            }
            let mut r = Reader(&bytes);
            for record in records {
                prop_assert_eq!(Record::decode(&mut r), Ok(record));
            }
            prop_assert!(r.is_empty());
        }
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut r = Reader(&bytes);
            while Record::decode(&mut r).is_ok() {}
            let mut r = Reader(&bytes);
            while History::decode(&mut r, 16).is_ok() {}
        }
    }
    #[test]
    fn histories_come_back() {
        let entry = |valid| PageEntry::new(FlashPage(9), EntryIndex::NONE, valid, 3, Status::PACKED);
        let history = History { page: 5, versions: vec![(entry(0b101), vec![7, 8]), (entry(0), vec![])] };
        let mut bytes = Vec::new();
        history.encode(&mut bytes);
        assert_eq!(bytes.len(), History::FIXED_BYTES + History::version_bytes(2) + History::version_bytes(0));
        assert_eq!(History::decode(&mut Reader(&bytes), 16), Ok(history));
        // An object's location is stored with its checksum.
        let status = Status::PACKED.with(Status::OBJECTS);
        let objects = PageEntry::new(FlashPage(9), EntryIndex::NONE, 0b101, 3, status);
        let words = (0..2 * WORDS_OF_AN_OBJECT).collect();
        let history = History { page: 5, versions: vec![(objects, words), (entry(0b1), vec![7])] };
        bytes.clear();
        history.encode(&mut bytes);
        assert_eq!(History::decode(&mut Reader(&bytes), 16), Ok(history));
    }
}
