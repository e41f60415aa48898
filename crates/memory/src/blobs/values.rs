//! Values of any length in a heap, or up to a subpage as objects, each named by one word.
//!
//! ```text
//!  63   61 60          48 47                                     0
//! +-------+--------------+----------------------------------------+
//! |   0   |    length    |  8-byte units from the heap's region   |   up to a subpage
//! +-------+--------------+----------------------------------------+
//! |  010  |    length    |        number of the object            |   the same, as an object
//! +-------+--------------+----------------------------------------+
//! | 1 |      length      |    subpages from the heap's region     |   longer
//! +---+------------------+----------------------------------------+
//!  63  62              32 31                                     0
//! ```
//!
//! The word 0 is the empty value, which takes no space. A value is contiguous, so a reader needs no
//! list of its parts, and a short one never straddles a subpage.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use super::space::Space;
use crate::{ByKind, Heap, Latch, Memory};

/// The longest value: 1 GiB.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Set in the word of a value that is longer than a subpage.
const LONG: u64 = 1 << 63;
/// Set in the word of one that is an object.
const OBJECT: u64 = 1 << 62;
const LENGTH_SHIFT: u32 = 48;
/// The bits of a length up to a subpage.
const LENGTH: u64 = (1 << 13) - 1;
const LONG_LENGTH_SHIFT: u32 = 32;
const UNIT: u64 = 8;
const SUBPAGE: u64 = SUBPAGE_BYTES as u64;
/// Subpages that a reader of a long value asks for ahead.
pub(super) const AHEAD: usize = 16;
/// Bytes that are copied between two points where other work may run: some 100 µs of copying.
pub(super) const YIELD_BYTES: usize = 1 << 20;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub at: Address,
    pub len: usize,
    /// It is an object, at the start of its subpage.
    pub object: bool,
}

/// The heap of the values, and the numbers of those that are objects.
#[derive(Debug)]
pub(super) struct Values<L> {
    pub heap: Arc<Heap>,
    pub space: Option<Space<L>>,
}

impl<L: Latch> Values<L> {
    /// The word for a value.
    pub fn word(&self, Span { at, len, object }: Span) -> u64 {
        if let Some(space) = self.space.as_ref().filter(|_| object) {
            return OBJECT | ((len as u64) << LENGTH_SHIFT) | space.number(at);
        }
        let offset = self.heap.offset(at);
        match len {
            0 => 0,
            1..=SUBPAGE_BYTES => ((len as u64) << LENGTH_SHIFT) | (offset / UNIT),
            _ => LONG | ((len as u64) << LONG_LENGTH_SHIFT) | (offset / SUBPAGE),
        }
    }

    /// Where the value of a word is.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when it is no word of this heap.
    pub fn span(&self, word: u64) -> Result<Span, AccessError> {
        let region = self.heap.region();
        if word & (LONG | OBJECT) == OBJECT {
            return self.span_of_object(word);
        }
        let (len, offset) = if word & LONG == 0 {
            (word >> LENGTH_SHIFT, (word & ((1 << LENGTH_SHIFT) - 1)) * UNIT)
        } else {
            ((word & !LONG) >> LONG_LENGTH_SHIFT, u64::from(word as u32) * SUBPAGE)
        };
        let longest = if word & LONG == 0 { SUBPAGE } else { VALUE_BYTES_MAX as u64 };
        // The one word without a length is the empty value's.
        if word == 0 {
            return Ok(self.empty());
        }
        let leads = (1..=longest).contains(&len).then(|| self.heap.at(offset, len)).flatten();
        let Some(at) = leads else {
            let (what, at, expected) = ("place of a value", region.base, region.bytes);
            return Err(AccessError::Corrupt { what, at, expected, got: word });
        };
        Ok(Span { at, len: len as usize, object: false })
    }
    fn span_of_object(&self, word: u64) -> Result<Span, AccessError> {
        let (len, number) = ((word >> LENGTH_SHIFT) & LENGTH, word & ((1 << LENGTH_SHIFT) - 1));
        let is_one = |space: &&Space<L>| number < space.count() && (1..=SUBPAGE).contains(&len) && word >> 61 == 2;
        let Some(space) = self.space.as_ref().filter(is_one) else {
            let (what, at) = ("number of an object", self.heap.region().base);
            return Err(AccessError::Corrupt { what, at, expected: 0, got: word });
        };
        Ok(Span { at: space.at(number), len: len as usize, object: true })
    }

    /// Writes a value where no reader is led yet, with room for `len` bytes. Nothing is taken on an
    /// error. The caller is in a write section.
    pub fn write<M: Memory>(&self, memory: &mut M, value: &[u8]) -> Result<Span, AccessError> {
        fits(value.len())?;
        if value.is_empty() {
            return Ok(self.empty());
        }
        let len = value.len();
        let number = match &self.space {
            // Without a number it goes to the heap.
            Some(space) if len <= SUBPAGE_BYTES => space.allocate(memory, len)?,
            _ => None,
        };
        let (at, object) = match number {
            Some(at) => (at, true),
            None => (self.heap.allocate(memory, len)?, false),
        };
        let span = Span { at, len, object };
        let written = if object { self.write_object(memory, at, value) } else { self.fill(memory, at, value) };
        match written {
            Ok(()) => Ok(span),
            Err(error) => {
                if object {
                    self.free(memory, span);
                } else {
                    let freed = self.heap.free_unwritten(memory, at, len);
                    debug_assert!(freed.is_ok(), "a value that was allocated");
                }
                Err(error)
            }
        }
    }

    /// The span of the empty value.
    pub fn empty(&self) -> Span {
        Span { at: self.heap.region().base, len: 0, object: false }
    }
    fn write_object<M: Memory>(&self, memory: &mut M, at: Address, value: &[u8]) -> Result<(), AccessError> {
        // As in `fill`.
        fence(Ordering::Release);
        memory.write_object(at, value)
    }
    /// Whether a value can be changed in its place, all at once, to one of this length.
    pub fn can_overwrite<M: Memory>(&self, memory: &mut M, old: Span, len: usize) -> bool {
        old.object && old.len == len && memory.takes_objects()
    }

    /// Writes bytes that no word covers yet. The caller is in a write section.
    pub fn fill<M: Memory>(&self, memory: &mut M, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        // A reader may still be reading the value that was here. When it sees any of these bytes,
        // it must see that its version has passed, too.
        fence(Ordering::Release);
        for (i, part) in bytes.chunks(YIELD_BYTES).enumerate() {
            if i > 0 {
                memory.yield_now()?;
            }
            let (at, mut done) = (at.add((i * YIELD_BYTES) as u64), 0);
            while done < part.len() {
                let here = at.add(done as u64);
                let len = (part.len() - done).min(SUBPAGE_BYTES - here.subpage_offset());
                if len == SUBPAGE_BYTES {
                    // Nothing of what is there is read.
                    memory.will_overwrite(here);
                }
                memory.view_mut(here, len)?.copy_from(0, &part[done..done + len]);
                done += len;
            }
        }
        Ok(())
    }

    /// Copies the bytes of a value from `offset` on. An error that garbage explains when it is no
    /// more one state.
    pub fn read<M: Memory>(
        &self,
        memory: &mut M,
        span: Span,
        offset: usize,
        into: &mut [u8],
        still: &dyn Fn() -> bool,
    ) -> Result<(), AccessError> {
        if span.object {
            let end = offset + into.len();
            return memory.read_object(span.at, span.len, |bytes| into.copy_from_slice(&bytes[offset..end]));
        }
        let at = span.at.add(offset as u64);
        let ends = at.subpage_offset() + into.len();
        for ahead in (SUBPAGE_BYTES..ends).step_by(SUBPAGE_BYTES).take(AHEAD) {
            memory.prefetch(subpage_of(at).add(ahead as u64));
        }
        let (mut done, mut yielded) = (0, 0);
        while done < into.len() {
            let here = at.add(done as u64);
            let len = (into.len() - done).min(SUBPAGE_BYTES - here.subpage_offset());
            let ahead = at.subpage_offset() + done + AHEAD * SUBPAGE_BYTES;
            if done > 0 && ahead < ends {
                memory.prefetch(subpage_of(here).add((AHEAD * SUBPAGE_BYTES) as u64));
            }
            memory.view(here, len)?.copy_to(0, &mut into[done..done + len]);
            done += len;
            if done - yielded >= YIELD_BYTES {
                yielded = done;
                memory.yield_now()?;
            }
            if done < into.len() && !still() {
                return Err(AccessError::Corrupt { what: "value that was replaced", at, expected: 1, got: 0 });
            }
        }
        Ok(())
    }

    /// Bytes that the space of a value has room for.
    pub fn room(&self, Span { len, object, .. }: Span) -> usize {
        match len {
            0 => 0,
            _ if object => SUBPAGE_BYTES,
            _ => Heap::room(len).min(VALUE_BYTES_MAX),
        }
    }

    /// Gives the space of a value back, which nothing leads to any more.
    pub fn free<M: Memory>(&self, memory: &mut M, Span { at, len, object }: Span) {
        if let Some(space) = self.space.as_ref().filter(|_| object) {
            fence(Ordering::Release);
            space.free(memory, at);
        } else if len > 0 {
            // As in `fill`: the heap writes links into free objects.
            fence(Ordering::Release);
            let freed = self.heap.free(memory, at, len);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    /// Gives back what a word led to. A damaged word led to nothing that could be given back.
    pub fn free_word<M: Memory>(&self, memory: &mut M, word: u64) {
        if let Ok(span) = self.span(word) {
            self.free(memory, span);
        }
    }
}

/// Refuses what is too long.
pub(super) fn fits(len: usize) -> Result<(), AccessError> {
    if len <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(AccessError::TooLong { what: "value", bytes: len as u64, most: VALUE_BYTES_MAX as u64 })
}

pub(super) fn subpage_of(at: Address) -> Address {
    Address::from_bits(at.bits() - at.subpage_offset() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlainMemory, Region, VersionLatch};
    use fulgurite_sys::Backed;

    #[test]
    fn words_lead_back() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(3 * SUBPAGE), (1 << 44) - 3 * SUBPAGE);
        let heap = Arc::new(Heap::create(&mut memory, region).unwrap());
        let objects = Region::new(Address::from_linear(0), 3 * SUBPAGE);
        let space = Space::<VersionLatch>::create(&mut memory, objects).unwrap();
        let values = Values { heap, space: Some(space) };
        for len in [1, 7, 8, 4095, 4096, 4097, 100_000, VALUE_BYTES_MAX] {
            let last = region.bytes - (len as u64).next_multiple_of(SUBPAGE);
            for offset in [2 * SUBPAGE, last] {
                let span = Span { at: region.base.add(offset), len, object: false };
                assert_eq!(values.span(values.word(span)), Ok(span));
            }
        }
        let object = Span { at: Address::from_linear(2 * SUBPAGE), len: 4096, object: true };
        assert_eq!(values.span(values.word(object)), Ok(object));
        let empty = values.empty();
        assert_eq!((values.word(empty), values.span(0)), (0, Ok(empty)));
        // No word leads out of the heap, whatever its bits.
        let mut word = 1u64;
        for _ in 0..100_000 {
            word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (word >> 29);
            if let Ok(Span { at, len, object }) = values.span(word) {
                let inside = if object { objects } else { region }.contains(at, len as u64);
                assert!(inside && len <= VALUE_BYTES_MAX, "{word:x}");
            }
        }
    }
}
