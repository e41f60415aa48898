//! Numbers for the values that are objects: one subpage of address space each.
//!
//! ```text
//!  | header, a subpage | free numbers, 4 bytes each | objects, a subpage each                  |
//! ```
//!
//! Header and list are ordinary memory, so what a number is follows each sync and roll back. In
//! DRAM are the latch, and numbers that a failed access kept out of the list.
//!
//! Invariants: a number below `next` is free and listed once, or a word leads to it, or it was kept
//! out of the list. A change that fails has changed nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Allocator, ByKind, Latch, Memory, Ptr, Region};

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;
const MAGIC: u64 = u64::from_le_bytes(*b"flgobjs1");
/// More than any pool has subpages.
const COUNT_MAX: u64 = 1 << 31;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    magic: u64,
    /// Numbers that there are.
    count: u64,
    /// Below which each was handed out once.
    next: u64,
    /// Of these, how many are free and listed.
    free: u64,
}

/// See the top of the file.
#[derive(Debug)]
pub(super) struct Space<L> {
    region: Region,
    count: u64,
    latch: L,
    /// Free numbers that are not listed. The next ones that are taken; lost when the program ends.
    unlisted: Mutex<Vec<u32>>,
}

impl<L: Latch> Space<L> {
    fn list_bytes(count: u64) -> u64 {
        count.saturating_mul(size_of::<u32>() as u64).next_multiple_of(SUBPAGE)
    }
    /// Bytes of address space for `count` objects.
    pub const fn bytes_needed(count: u64) -> u64 {
        let list = count.saturating_mul(size_of::<u32>() as u64).div_ceil(SUBPAGE).saturating_mul(SUBPAGE);
        count.saturating_mul(SUBPAGE).saturating_add(list).saturating_add(SUBPAGE)
    }
    fn over(region: Region, count: u64) -> Self {
        Space { region, count, latch: L::default(), unlisted: Mutex::new(Vec::new()) }
    }
    /// Makes one with as many numbers as fit into a region of whole subpages.
    pub fn create<M: Memory>(memory: &mut M, region: Region) -> Result<Self, AccessError> {
        let subpages = region.bytes / SUBPAGE;
        let mut count = (subpages.saturating_mul(1024) / 1025).min(COUNT_MAX);
        while count > 0 && Self::bytes_needed(count) > region.bytes {
            count -= 1;
        }
        if count == 0 {
            return Err(AccessError::NoSpace { requested: Self::bytes_needed(1), free: region.bytes });
        }
        memory.store(Ptr::new(region.base), Header { magic: MAGIC, count, next: 0, free: 0 })?;
        Ok(Self::over(region, count))
    }
    /// Opens the one that was made in this region.
    pub fn open<M: Memory>(memory: &mut M, region: Region) -> Result<Self, AccessError> {
        let header: Header = memory.load(Ptr::new(region.base))?;
        let corrupt = |what, expected, got| Err(AccessError::Corrupt { what, at: region.base, expected, got });
        if header.magic != MAGIC {
            return corrupt("header of objects", MAGIC, header.magic);
        }
        if header.count == 0 || header.count > COUNT_MAX || Self::bytes_needed(header.count) > region.bytes {
            return corrupt("number of objects", region.bytes / SUBPAGE, header.count);
        }
        Ok(Self::over(region, header.count))
    }
    pub fn region(&self) -> Region {
        self.region
    }
    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Where the object of a number is.
    pub fn at(&self, number: u64) -> Address {
        self.region.base.add(SUBPAGE + Self::list_bytes(self.count) + number * SUBPAGE)
    }
    /// The number of an object.
    pub fn number(&self, at: Address) -> u64 {
        at.bits().wrapping_sub(self.at(0).bits()) / SUBPAGE
    }
    fn unlisted(&self) -> MutexGuard<'_, Vec<u32>> {
        // A vector of numbers is whole whenever somebody dies.
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn header(&self) -> Ptr<Header> {
        Ptr::new(self.region.base)
    }
    fn slot(&self, place: u64) -> Ptr<u32> {
        Ptr::<u32>::new(self.region.base.add(SUBPAGE)).offset(place)
    }
    fn load<M: Memory>(&self, memory: &mut M) -> Result<Header, AccessError> {
        let header = memory.load(self.header())?;
        if header.next > self.count || header.free > header.next {
            let (what, at) = ("free numbers of objects", self.region.base);
            return Err(AccessError::Corrupt { what, at, expected: header.next, got: header.free });
        }
        Ok(header)
    }
    /// Takes the place of an object of `bytes` bytes. None when all are in use. The caller is in a
    /// write section.
    pub fn allocate<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Option<Address>, AccessError> {
        let taken = memory.allocate_tracked(self, bytes).unwrap_or_else(|| self.take(memory, bytes));
        match taken {
            Err(AccessError::NoSpace { .. }) => Ok(None),
            taken => taken.map(Some),
        }
    }
    /// Gives the place of an object back, to which nothing leads.
    pub fn free<M: Memory>(&self, memory: &mut M, at: Address) {
        if memory.free_tracked(self, at, SUBPAGE_BYTES) {
            return;
        }
        memory.free_object(at);
        let number = self.number(at);
        if self.list(memory, number).is_err() && number < self.count {
            self.unlisted().push(number as u32);
        }
    }

    fn take_number<M: Memory>(&self, memory: &mut M) -> Result<Option<u64>, AccessError> {
        if let Some(number) = self.unlisted().pop() {
            return Ok(Some(number.into()));
        }
        let _held = self.latch.lock(memory)?;
        let mut header = self.load(memory)?;
        let number = if header.free > 0 {
            header.free -= 1;
            let number = u64::from(memory.load(self.slot(header.free))?);
            if number >= header.next {
                let (what, at) = ("free number of an object", self.slot(header.free).address());
                return Err(AccessError::Corrupt { what, at, expected: header.next, got: number });
            }
            number
        } else if header.next < self.count {
            header.next += 1;
            header.next - 1
        } else {
            return Ok(None);
        };
        memory.store(self.header(), header)?;
        Ok(Some(number))
    }
    /// Lists a free number.
    fn list<M: Memory>(&self, memory: &mut M, number: u64) -> Result<(), AccessError> {
        let _held = self.latch.lock(memory)?;
        let mut header = self.load(memory)?;
        if header.free >= header.next || number >= header.next {
            let (what, at) = ("number of an object given back", self.at(number));
            return Err(AccessError::Corrupt { what, at, expected: header.next, got: number });
        }
        // Beyond the list until the header says otherwise.
        memory.store(self.slot(header.free), number as u32)?;
        header.free += 1;
        memory.store(self.header(), header)
    }
    /// Checks the list against the numbers that words lead to. Nothing may change meanwhile.
    pub fn check<M: Memory>(&self, memory: &mut M, used: &[u64]) -> Result<(), AccessError> {
        let header = self.load(memory)?;
        let mut seen = used.to_vec();
        for place in 0..header.free {
            seen.push(memory.load(self.slot(place))?.into());
        }
        seen.sort_unstable();
        let twice = seen.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(number) = twice.or_else(|| seen.last().copied().filter(|last| *last >= header.next)) {
            let (what, at) = ("number of an object that is used and free", self.at(number));
            return Err(AccessError::Corrupt { what, at, expected: header.next, got: number });
        }
        Ok(())
    }
    pub fn bytes(&self) -> usize {
        size_of::<L>()
    }
    pub fn disturb(&self, gone: bool) {
        // They are free in the state that is gone.
        self.unlisted().clear();
        self.latch.disturb(gone);
    }
}

impl<L: Latch> Allocator for Space<L> {
    fn room_of(_: usize) -> usize {
        SUBPAGE_BYTES
    }
    fn take<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Address, AccessError> {
        let none = AccessError::NoSpace { requested: bytes as u64, free: 0 };
        Ok(self.at(self.take_number(memory)?.ok_or(none)?))
    }
    fn give_back<M: Memory>(&self, memory: &mut M, at: Address, _: usize) -> Result<(), AccessError> {
        self.free(memory, at);
        Ok(())
    }
}
