//! The ranges of addresses that a heap has: its region, and those that it was given since.
//!
//! Offsets count through all of them, one after the other. A heap of a container under a root gets
//! another range from the pool's directory when it is full ([`Grounds`]). The range is recorded in
//! the container's header, in the write section that takes it, so each named state has both or
//! neither.
//!
//! ```text
//! record: | check 8 | ranges 8 | base 8, bytes 8 | base 8, bytes 8 | ... |
//! ```
//!
//! Invariant: ranges are only added, but by a roll back.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use fulgurite_format::{Address, PAGE_BYTES};
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Directory, Memory, Ptr, Region, RootError, hash_bytes};

/// The most ranges after the first. Each is as large as all before it, if the directory has that.
const RANGES: usize = 100;

/// Where in its container's header a heap's ranges are recorded.
pub(crate) const RECORD_AT: u64 = 256;

/// What stands before the ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Record {
    check: u64,
    count: u64,
}
/// Bytes of the record with all ranges that there can be.
pub(crate) const RECORD_BYTES: usize = size_of::<Record>() + RANGES * size_of::<Region>();

impl Record {
    fn of(ranges: &[Region]) -> Record {
        let check = hash_bytes(ranges.as_bytes()) ^ u64::from_le_bytes(*b"flgmore1");
        Record { check: check.wrapping_add(ranges.len() as u64), count: ranges.len() as u64 }
    }
}

/// Where a heap gets further ranges, and the header of its container.
#[derive(Clone, Debug)]
pub(crate) struct Grounds {
    pub directory: Arc<Directory>,
    pub header: Address,
}

fn record_of(header: Address) -> Ptr<Record> {
    Ptr::new(header.add(RECORD_AT))
}
fn range_of(header: Address, number: usize) -> Ptr<Region> {
    Ptr::new(header.add(RECORD_AT + (size_of::<Record>() + number * size_of::<Region>()) as u64))
}

/// The ranges that the heap of the container at `header` was given since it was made. There are
/// none where a version before this record left what it found.
///
/// # Errors
/// What the memory says.
pub(crate) fn ranges_of<M: Memory>(memory: &mut M, header: Address) -> Result<Vec<Region>, AccessError> {
    let record = memory.load(record_of(header))?;
    let count = usize::try_from(record.count).ok().filter(|count| *count <= RANGES).unwrap_or(0);
    let ranges = (0..count).map(|number| memory.load(range_of(header, number))).collect::<Result<Vec<_>, _>>()?;
    Ok(if Record::of(&ranges) == record { ranges } else { Vec::new() })
}
/// A new container's heap has none.
pub(crate) fn clear_ranges<M: Memory>(memory: &mut M, header: Address) -> Result<(), AccessError> {
    memory.store(record_of(header), Record::of(&[]))
}

/// All ranges of a heap.
#[derive(Debug)]
pub(super) struct Parts {
    first: Region,
    more: RwLock<Vec<Region>>,
}

impl Parts {
    pub fn new(first: Region, more: Vec<Region>) -> Parts {
        Parts { first, more: RwLock::new(more) }
    }
    fn more(&self) -> RwLockReadGuard<'_, Vec<Region>> {
        self.more.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn set_more(&self, more: Vec<Region>) {
        *self.more.write().unwrap_or_else(PoisonError::into_inner) = more;
    }
    pub fn first(&self) -> Region {
        self.first
    }
    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.first.bytes + self.more().iter().map(|part| part.bytes).sum::<u64>()
    }
    /// Whether `len` bytes at `at` are inside one of them.
    #[inline]
    pub fn contains(&self, at: Address, len: u64) -> bool {
        self.first.contains(at, len) || self.more().iter().any(|part| part.contains(at, len))
    }
    /// The offset of an address in them; past the end for others.
    #[inline]
    pub fn offset(&self, at: Address) -> u64 {
        let inside = at.bits().wrapping_sub(self.first.base.bits());
        if inside < self.first.bytes { inside } else { self.offset_in_more(at) }
    }
    #[cold]
    fn offset_in_more(&self, at: Address) -> u64 {
        let mut before = self.first.bytes;
        for part in &*self.more() {
            let inside = at.bits().wrapping_sub(part.base.bits());
            if inside < part.bytes {
                return before + inside;
            }
            before += part.bytes;
        }
        before
    }
    /// The address of an offset, and how many bytes follow it in its range; none past the end.
    #[inline]
    pub fn at(&self, offset: u64) -> Option<(Address, u64)> {
        if offset < self.first.bytes {
            return Some((self.first.base.add(offset), self.first.bytes - offset));
        }
        self.at_in_more(offset - self.first.bytes)
    }
    #[cold]
    fn at_in_more(&self, mut offset: u64) -> Option<(Address, u64)> {
        for part in &*self.more() {
            if offset < part.bytes {
                return Some((part.base.add(offset), part.bytes - offset));
            }
            offset -= part.bytes;
        }
        None
    }

    /// Takes another range for at least `len` bytes: as much as there is already, or less where the
    /// directory has less. Returns whether there was one. The caller is in a write section, and the
    /// only one to do so.
    pub fn grow<M: Memory>(&self, memory: &mut M, grounds: &Grounds, len: u64) -> Result<bool, AccessError> {
        let (mut ranges, page) = (self.more().clone(), PAGE_BYTES as u64);
        if ranges.len() == RANGES {
            return Ok(false);
        }
        let least = len.saturating_add(page);
        let mut bytes = self.bytes().max(least);
        let range = loop {
            match grounds.directory.reserve(memory, bytes) {
                Ok(range) => break range,
                Err(RootError::NoSpace { .. }) if bytes > least => bytes = (bytes / 2).max(least),
                Err(RootError::NoSpace { .. }) => return Ok(false),
                Err(RootError::Access(error)) => return Err(error),
                Err(RootError::Damaged { at, .. }) => {
                    return Err(AccessError::Corrupt { what: "directory of roots", at, expected: 1, got: 0 });
                }
                Err(_) => return Ok(false),
            }
        };
        ranges.push(range);
        // The record counts it when it is there.
        let added = memory.store(range_of(grounds.header, ranges.len() - 1), range);
        let recorded = added.and_then(|()| memory.store(record_of(grounds.header), Record::of(&ranges)));
        if let Err(error) = recorded {
            // Only what cannot be given back is lost.
            let _ = grounds.directory.give_back(memory, range);
            return Err(error);
        }
        self.set_more(ranges);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_sys::Backed;

    use super::*;
    use crate::PlainMemory;

    #[test]
    fn offsets_count_through_all_ranges() {
        let region = |page: u64, pages: u64| Region::new(Address::from_linear(page << 16), pages << 16);
        let parts = Parts::new(region(10, 2), vec![region(3, 1), region(40, 5)]);
        assert_eq!(parts.bytes(), 8 << 16);
        for offset in (0..8 << 16).step_by(4096) {
            let (at, left) = parts.at(offset).unwrap();
            assert!(parts.contains(at, left) && !parts.contains(at, left + 1), "{offset}");
            assert_eq!(parts.offset(at), offset);
        }
        assert_eq!(parts.at(8 << 16), None);
        assert_eq!(parts.offset(Address::from_linear(0)), 8 << 16);
        assert!(!parts.contains(Address::from_linear(4 << 16), 1));
    }
    #[test]
    fn a_record_is_distinguished_from_what_was_there_before() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let header = Address::from_linear(1 << 20);
        let one = Region::new(Address::from_linear(1 << 16), 1 << 16);
        assert_eq!(ranges_of(&mut memory, header).unwrap(), []);
        let ranges = [one, one];
        for (number, range) in ranges.into_iter().enumerate() {
            memory.store(range_of(header, number), range).unwrap();
        }
        memory.store(record_of(header), Record::of(&ranges)).unwrap();
        assert_eq!(ranges_of(&mut memory, header).unwrap(), ranges);
        for wrong in [Record { count: 1, ..Record::of(&ranges) }, Record { count: u64::MAX, ..Record::of(&ranges) }] {
            memory.store(record_of(header), wrong).unwrap();
            assert_eq!(ranges_of(&mut memory, header).unwrap(), [], "{wrong:?}");
        }
        clear_ranges(&mut memory, header).unwrap();
        assert_eq!(ranges_of(&mut memory, header).unwrap(), []);
    }
}
