//! The log that holds cached records: a ring of entries, each a header and the record's bytes.
//!
//! An entry is contiguous. Where one does not fit before the end of the ring, a dead entry fills
//! what is left.
//!
//! ```text
//! | page, 32 bits | tag, 28 bits | uses, 2 | 2 free | units, 28 bits | flags, 4 | record .. |
//! ```
//!
//! A header takes 12 bytes. The tag leads from an entry to its word, without the key's hash, which
//! only the driver can make. Eight bytes would hold no tag. That would save 4 bytes of an entry on
//! average, since entries are rounded up, and cost a hash for each entry that moves or leaves. The
//! length of the record is in the record.

use crate::word::{EntryUnit, LogPage, Tag};

/// Bytes that everything in a ring is a multiple of.
pub const UNIT: usize = 16;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// The uses that are counted.
pub const USES_MAX: u32 = 3;

const TAG_SHIFT: u32 = 4;
const USES_SHIFT: u32 = 2;
const USES: u32 = 3 << USES_SHIFT;
const UNITS_SHIFT: u32 = 4;
/// It is in the index.
const LIVE: u32 = 1;

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    page: u32,
    tag: u32,
    units: u32,
}

impl Header {
    /// Of a record in the index.
    pub fn live(page: LogPage, tag: Tag, size: usize) -> Header {
        Header {
            page: page.number(),
            tag: tag.number() << TAG_SHIFT,
            units: ((size / UNIT) as u32) << UNITS_SHIFT | LIVE,
        }
    }
    fn filler(size: usize) -> Header {
        Header { page: 0, tag: 0, units: ((size / UNIT) as u32) << UNITS_SHIFT }
    }
    #[inline]
    pub fn read(buffer: &[u8], at: usize) -> Header {
        let bytes: &[u8; HEADER_BYTES] = buffer[at..].first_chunk().expect("a header is inside the buffer");
        let part = |from: usize| u32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
        Header { page: part(0), tag: part(4), units: part(8) }
    }
    #[inline]
    pub fn write(self, buffer: &mut [u8], at: usize) {
        let parts = [self.page, self.tag, self.units];
        for (part, to) in parts.iter().zip(buffer[at..at + HEADER_BYTES].chunks_exact_mut(4)) {
            to.copy_from_slice(&part.to_le_bytes());
        }
    }
    pub fn is_live(self) -> bool {
        self.units & LIVE != 0
    }
    pub fn dead(self) -> Header {
        Header { units: self.units & !LIVE, ..self }
    }
    /// Where the record is on flash.
    pub fn page(self) -> LogPage {
        LogPage::new(self.page).expect("a live entry has a page")
    }
    pub fn with_page(self, page: LogPage) -> Header {
        Header { page: page.number(), ..self }
    }
    pub fn tag(self) -> Tag {
        Tag::new(self.tag >> TAG_SHIFT).expect("28 bits are left")
    }
    #[inline]
    pub fn uses(self) -> u32 {
        (self.tag & USES) >> USES_SHIFT
    }
    #[inline]
    pub fn used(self, uses: u32) -> Header {
        Header { tag: self.tag & !USES | uses.min(USES_MAX) << USES_SHIFT, ..self }
    }
    /// Bytes of the entry.
    #[inline]
    pub fn size(self) -> usize {
        (self.units >> UNITS_SHIFT) as usize * UNIT
    }
}

/// Bytes of an entry for a record of `length` bytes.
pub fn size(length: usize) -> usize {
    (HEADER_BYTES + length).next_multiple_of(UNIT)
}
/// What a word says of the entry at a byte of the buffer.
pub fn unit(at: usize) -> EntryUnit {
    EntryUnit((at / UNIT) as u32)
}
/// Where the entry of a word begins in the buffer.
#[inline]
pub fn byte(unit: EntryUnit) -> usize {
    unit.0 as usize * UNIT
}

/// A part of the buffer, filled from `head` on and emptied at `tail`.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Where it is in the buffer, and how long. Multiples of a unit, as all that follows.
    start: usize,
    bytes: usize,
    head: usize,
    tail: usize,
    used: usize,
}

impl Ring {
    pub fn new(start: usize, bytes: usize) -> Ring {
        Ring { start, bytes, head: 0, tail: 0, used: 0 }
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn used(&self) -> usize {
        self.used
    }
    /// Behind its last byte in the buffer.
    pub fn end(&self) -> usize {
        self.start + self.bytes
    }
    /// Without entries.
    pub fn emptied(&self) -> Ring {
        Ring::new(self.start, self.bytes)
    }
    /// Where the oldest entry is.
    pub fn oldest(&self) -> Option<usize> {
        (self.used > 0).then_some(self.start + self.tail)
    }
    /// The oldest entry, of this size, is gone.
    pub fn pop(&mut self, size: usize) {
        self.tail += size;
        self.used -= size;
        if self.tail == self.bytes {
            self.tail = 0;
        }
        if self.used == 0 {
            (self.head, self.tail) = (0, 0);
        }
    }
    /// A place for an entry of this size, if there is one now.
    ///
    /// An entry that was just popped always finds one. Its bytes are still where they were then,
    /// and only a move of all of them may overwrite them.
    pub fn push(&mut self, buffer: &mut [u8], size: usize) -> Option<usize> {
        let to_end = self.bytes - self.head;
        let filler = if size > to_end { to_end } else { 0 };
        if self.used + filler + size > self.bytes {
            return None;
        }
        if filler > 0 {
            Header::filler(filler).write(buffer, self.start + self.head);
            self.used += filler;
            self.head = 0;
        }
        let at = self.start + self.head;
        self.head += size;
        self.used += size;
        if self.head == self.bytes {
            self.head = 0;
        }
        Some(at)
    }
    /// Where each entry is, oldest first.
    pub fn entries(self, buffer: &[u8]) -> impl Iterator<Item = (usize, Header)> {
        let mut ring = self;
        std::iter::from_fn(move || {
            let at = ring.oldest()?;
            let header = Header::read(buffer, at);
            ring.pop(header.size());
            Some((at, header))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_its_parts() {
        let (page, tag) = (LogPage::new(u32::MAX).unwrap(), Tag::new(0x0FFF_FFFF).unwrap());
        let header = Header::live(page, tag, size(1 << 30));
        let mut buffer = [0; 64];
        header.used(7).write(&mut buffer, 16);
        let read = Header::read(&buffer, 16);
        assert_eq!((read.page(), read.tag(), read.uses(), read.size()), (page, tag, 3, (1 << 30) + 16));
        assert!(read.is_live() && !read.dead().is_live());
        assert_eq!(read.used(0), header);
    }
    #[test]
    fn an_entry_that_was_popped_fits_at_the_other_end() {
        let mut buffer = [0; 160];
        let mut ring = Ring::new(0, 160);
        for size in [48, 64, 32] {
            let at = ring.push(&mut buffer, size).unwrap();
            Header::filler(size).write(&mut buffer, at);
        }
        for step in 0..1000 {
            let at = ring.oldest().unwrap();
            let header = Header::read(&buffer, at);
            ring.pop(header.size());
            if header.size() > 16 || step < 10 {
                let to = ring.push(&mut buffer, header.size()).unwrap();
                header.write(&mut buffer, to);
            }
        }
        assert_eq!(ring.entries(&buffer).map(|(_, header)| header.size()).sum::<usize>(), ring.used());
    }
}
