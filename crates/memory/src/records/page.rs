//! A page of the log: a subpage with a head and records behind it.
//!
//! ```text
//! | segment 8 | first 2 | used 2 | 0 4 | records, from `first` to `used`                |
//! | segment 8 | 16      | 4096   | 0 4 | a long record: goes on in the next pages ..    |
//! | segment 8 | 1000    | 1400   | 0 4 | .. and ends here | further records             |
//! ```
//!
//! A record that fits into a page is inside one. A longer one begins at the front of a page. A page
//! that was overwritten by something else reads as garbage, in which no search runs wild.

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_records::{Head, Record, TableId};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the head.
pub const HEAD: usize = size_of::<PageHead>();
/// Bytes for records.
pub const ROOM: usize = SUBPAGE_BYTES - HEAD;

/// The head of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct PageHead {
    /// The number of its segment.
    pub segment: u64,
    /// Where the first record begins; the end of the page where none does.
    pub first: u16,
    /// Where the last one ends.
    pub used: u16,
    pub zero: u32,
}

/// A page's bytes.
pub type Page = [u8; SUBPAGE_BYTES];

/// The head of a page that was read.
pub fn head_of(page: &Page) -> PageHead {
    PageHead::read_from_bytes(&page[..HEAD]).expect("a page has a head")
}

/// A record that begins in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it, from this byte on.
    Whole { at: usize, bytes: usize },
    /// Its beginning, and its length.
    Long { bytes: usize },
}

/// The records that begin in a page, in their order.
pub fn parts(page: &Page) -> impl Iterator<Item = Part> {
    let head = head_of(page);
    let (mut at, end) = (usize::from(head.first), usize::from(head.used).min(SUBPAGE_BYTES));
    std::iter::from_fn(move || {
        if at < HEAD || at >= end {
            return None;
        }
        // What is garbage ends the search.
        let record = Head::read(&page[at..end]).ok()?;
        let (from, bytes) = (at, record.bytes());
        at += bytes;
        if at <= end {
            return Some(Part::Whole { at: from, bytes });
        }
        (from == HEAD && end == SUBPAGE_BYTES && bytes > ROOM).then_some(Part::Long { bytes })
    })
}

/// Where the last record of a key in a page is, or how long the one that begins there is.
pub fn find(page: &Page, table: TableId, key: &[u8]) -> Option<Part> {
    let is_its = |part: &Part| match *part {
        Part::Whole { at, bytes } => {
            Record::view(&page[at..at + bytes]).is_ok_and(|record| record.key == key && record.table == table)
        }
        // Its key may go on in the next page.
        Part::Long { .. } => true,
    };
    parts(page).filter(is_its).last()
}

/// Pages that a long record of this length takes.
pub fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(ROOM)
}

#[cfg(test)]
mod tests {
    use fulgurite_records::Seed;

    use super::*;

    fn page(records: &[(&[u8], &[u8])]) -> Page {
        let mut page = [0; SUBPAGE_BYTES];
        let mut at = HEAD;
        for (key, value) in records {
            at += Record::new(TableId(7), key, value).write(Seed(0), &mut page[at..]).unwrap();
        }
        let head = PageHead { segment: 1, first: HEAD as u16, used: at as u16, zero: 0 };
        page[..HEAD].copy_from_slice(head.as_bytes());
        page
    }

    #[test]
    fn the_last_record_of_a_key_counts() {
        let page = page(&[(b"a", b"1"), (b"b", b"2"), (b"a", b"three")]);
        assert_eq!(parts(&page).count(), 3);
        let Some(Part::Whole { at, bytes }) = find(&page, TableId(7), b"a") else { panic!("it is there") };
        assert_eq!(Record::view(&page[at..at + bytes]).unwrap().value, b"three");
        assert_eq!(find(&page, TableId(7), b"c"), None);
        assert_eq!(find(&page, TableId(8), b"a"), None);
    }
    #[test]
    fn garbage_ends_a_search() {
        for byte in 0..=u8::MAX {
            let mut page = [byte; SUBPAGE_BYTES];
            assert!(parts(&page).count() < SUBPAGE_BYTES);
            page[8..12].copy_from_slice(&[HEAD as u8, 0, 0, 16]);
            assert!(parts(&page).count() < SUBPAGE_BYTES);
        }
    }
}
