//! The log that holds the objects: a ring of entries, each a header and the object's bytes.
//!
//! An entry is contiguous. Where one does not fit before the end of the ring, a dead entry fills
//! what is left.

/// Bytes that everything in a ring is a multiple of, and the bytes of a header.
pub const UNIT: usize = 8;

/// What a header says.
///
/// ```text
/// 63 .................... 32 31 ...... 13  12 ....... 0
/// |         number          |   flags    |   length   |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(u64);

const LENGTH: u64 = (1 << 13) - 1;
const USES_SHIFT: u32 = 13;
const USES: u64 = 3 << USES_SHIFT;
/// It is in the index.
pub const LIVE: u64 = 1 << 16;
/// Flash has something else.
pub const DIRTY: u64 = 1 << 17;
/// A batch that is under way has it.
pub const WRITING: u64 = 1 << 18;

impl Header {
    pub fn new(number: u32, length: usize, flags: u64) -> Header {
        debug_assert!(length as u64 <= LENGTH);
        Header(u64::from(number) << 32 | flags | length as u64)
    }
    pub fn read(buffer: &[u8], at: usize) -> Header {
        Header(u64::from_le_bytes(*buffer[at..].first_chunk().expect("a header is inside the buffer")))
    }
    pub fn write(self, buffer: &mut [u8], at: usize) {
        buffer[at..at + UNIT].copy_from_slice(&self.0.to_le_bytes());
    }
    pub fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }
    pub fn length(self) -> usize {
        (self.0 & LENGTH) as usize
    }
    pub fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }
    pub fn with(self, flags: u64) -> Header {
        Header(self.0 | flags)
    }
    pub fn without(self, flags: u64) -> Header {
        Header(self.0 & !flags)
    }
    pub fn uses(self) -> u64 {
        (self.0 & USES) >> USES_SHIFT
    }
    pub fn used(self, uses: u64) -> Header {
        Header(self.0 & !USES | uses.min(3) << USES_SHIFT)
    }
    /// Flash does not have what it says, or may not have it yet.
    pub fn stays(self) -> bool {
        self.has(DIRTY | WRITING)
    }
    /// Bytes of the entry.
    pub fn size(self) -> usize {
        size(self.length())
    }
}

/// Bytes of an entry for an object of `length` bytes.
pub fn size(length: usize) -> usize {
    UNIT + length.next_multiple_of(UNIT)
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
    pub fn push(&mut self, buffer: &mut [u8], size: usize) -> Option<usize> {
        let to_end = self.bytes - self.head;
        let filler = if size > to_end { to_end } else { 0 };
        if self.used + filler + size > self.bytes {
            return None;
        }
        if filler > 0 {
            Header::new(0, filler - UNIT, 0).write(buffer, self.start + self.head);
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
