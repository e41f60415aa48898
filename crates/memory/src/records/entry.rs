//! What the log says of its records, in the order in which they counted: from these entries the
//! index is made again, without the records.
//!
//! ```text
//!  63 ............ 30  29 28  27 26   25 .. 0     31 ..... 0   31 ..... 0
//! | hash, 34 bits    | kind | span |  0         |  page      |  page before |
//! ```

use fulgurite_records::{KeyHash, Location, LogPage, SHARD_BITS, Span, TAG_BITS};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const HASH_SHIFT: u32 = 64 - SHARD_BITS - TAG_BITS;
const KIND_SHIFT: u32 = 28;
const SPAN_SHIFT: u32 = 26;
const SPANS: [Span; 4] = [Span::One, Span::Two, Span::UpToFour, Span::More];

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A key got a record, in the place of the one before, if there was one.
    Put,
    /// A key was removed.
    Removed,
    /// A record was copied.
    Moved,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The hash of the key, as far as the index knows it.
    pub hash: KeyHash,
    pub kind: Kind,
    /// Where the record is; of a removal, none.
    pub to: Option<Location>,
    /// The page of the record before.
    pub from: Option<LogPage>,
}

/// An entry as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Stored {
    word: u64,
    page: u32,
    before: u32,
}

impl Entry {
    pub fn stored(&self) -> Stored {
        let span = self.to.map_or(0, |to| SPANS.iter().position(|span| *span == to.span).expect("it is one of them"));
        let kind = self.kind as u64;
        Stored {
            word: self.hash.0 >> HASH_SHIFT << HASH_SHIFT | kind << KIND_SHIFT | (span as u64) << SPAN_SHIFT,
            page: self.to.map_or(0, |to| to.page.number()),
            before: self.from.map_or(0, LogPage::number),
        }
    }
}

impl Stored {
    /// What it says. None for bytes that no entry has.
    pub fn entry(self) -> Option<Entry> {
        let kind = [Kind::Put, Kind::Removed, Kind::Moved].get((self.word >> KIND_SHIFT) as usize & 3).copied()?;
        let span = SPANS[(self.word >> SPAN_SHIFT) as usize & 3];
        let to = LogPage::new(self.page).map(|page| Location { page, span });
        let from = LogPage::new(self.before);
        let is_whole = match kind {
            Kind::Put => to.is_some(),
            Kind::Removed => to.is_none() && from.is_some(),
            Kind::Moved => to.is_some() && from.is_some(),
        };
        let hash = KeyHash(self.word >> HASH_SHIFT << HASH_SHIFT);
        is_whole.then_some(Entry { hash, kind, to, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let hash = KeyHash(0xFEDC_BA98_7654_3210);
        for span in SPANS {
            let to = Some(Location { page: LogPage::new(u32::MAX).unwrap(), span });
            for (kind, to, from) in
                [(Kind::Put, to, None), (Kind::Put, to, LogPage::new(1)), (Kind::Moved, to, LogPage::new(9))]
            {
                let entry = Entry { hash, kind, to, from }.stored().entry().unwrap();
                assert_eq!((entry.kind, entry.to, entry.from), (kind, to, from));
                assert_eq!((entry.hash.tag(), entry.hash.shard(SHARD_BITS)), (hash.tag(), hash.shard(SHARD_BITS)));
            }
        }
        let removed = Entry { hash, kind: Kind::Removed, to: None, from: LogPage::new(3) };
        assert_eq!(removed.stored().entry().unwrap().from, LogPage::new(3));
        assert_eq!(Stored { word: 3 << KIND_SHIFT, page: 1, before: 1 }.entry(), None);
        assert_eq!(Stored { word: 0, page: 0, before: 1 }.entry(), None);
    }
}
