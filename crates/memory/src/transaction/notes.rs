//! What the operations of a transaction have noted: latches, objects and counts. See `staged` for
//! when they hold.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64};

use fulgurite_format::Address;
use fulgurite_runtime::AccessError;

use crate::{Allocator, ByKind, Memory};

/// The word of a latch, and the version at which it was seen.
pub(super) type Noted = (NonNull<AtomicU64>, u64);

/// An object of an allocator, and how to give it back there.
pub(super) struct Object<M> {
    pub allocator: NonNull<()>,
    pub give_back: unsafe fn(NonNull<()>, &mut M, Address, usize) -> Result<(), AccessError>,
    pub at: Address,
    pub bytes: usize,
}

impl<M: Memory> Object<M> {
    fn of<A: Allocator>(allocator: &A, at: Address, bytes: usize) -> Self {
        /// # Safety
        /// The pointer must be of an `A` that lives.
        unsafe fn give_back<A: Allocator, M: Memory>(
            allocator: NonNull<()>,
            memory: &mut M,
            at: Address,
            bytes: usize,
        ) -> Result<(), AccessError> {
            // SAFETY: the caller's contract.
            unsafe { allocator.cast::<A>().as_ref() }.give_back(memory, at, bytes)
        }
        Object { allocator: NonNull::from(allocator).cast(), give_back: give_back::<A, M>, at, bytes }
    }
}

/// What a transaction does to a key of a container, which is not seen before the commit.
pub(crate) trait Change<M> {
    /// Whether it is this container's, and of this key.
    fn is_of(&self, container: NonNull<()>, key: &[u8]) -> bool;
    /// The value that the key will have. None where it will be removed.
    fn value(&self) -> Option<&[u8]>;
    /// Does all that may wait or fail. The transaction is in a write section.
    fn prepare(&mut self, memory: &mut M) -> Result<(), AccessError>;
    /// Makes it so. The transaction has the key's latches.
    fn install(&mut self);
}

/// What the operations of a transaction have noted, its pages aside.
#[doc(hidden)]
pub struct Notes<M: Memory> {
    /// Latches under which it has read, and those that it must hold to install.
    pub(super) reads: Vec<Noted>,
    pub(super) locks: Vec<Noted>,
    /// Objects that nothing leads to before the commit: how long, by address.
    pub(super) unreached: BTreeMap<Address, usize>,
    pub(super) allocated: Vec<Object<M>>,
    pub(super) freed: Vec<Object<M>>,
    /// What it does to containers that keep its changes themselves until the commit.
    pub(crate) changes: Vec<Box<dyn Change<M>>>,
    /// What the commit adds to counts in DRAM.
    pub(super) counts: Vec<(NonNull<AtomicI64>, i64)>,
    pub(super) section: Option<M::Section>,
    /// A write that failed. What it was part of is half staged, whatever its caller made of that.
    pub(super) failed: Option<AccessError>,
}

impl<M: Memory> Notes<M> {
    pub(super) fn new() -> Self {
        Notes {
            reads: Vec::new(),
            locks: Vec::new(),
            unreached: BTreeMap::new(),
            allocated: Vec::new(),
            freed: Vec::new(),
            changes: Vec::new(),
            counts: Vec::new(),
            section: None,
            failed: None,
        }
    }
    #[inline]
    pub(crate) fn read(&mut self, latch: &AtomicU64, version: u64) {
        let noted = (NonNull::from(latch), version);
        // An operation asks for the same latch again and again.
        if !self.reads.iter().rev().take(4).any(|last| *last == noted) {
            self.reads.push(noted);
        }
    }
    pub(crate) fn lock(&mut self, latch: &AtomicU64, version: u64) {
        self.locks.push((NonNull::from(latch), version));
    }
    pub(crate) fn count(&mut self, count: &AtomicI64, number: i64) {
        self.counts.push((NonNull::from(count), number));
    }
    pub(crate) fn free<A: Allocator>(&mut self, to: &A, at: Address, bytes: usize) {
        self.freed.push(Object::of(to, at, bytes));
    }
    pub(super) fn open_section(&mut self, memory: &mut M) -> Result<(), AccessError> {
        if self.section.is_none() {
            self.section = Some(memory.write_section()?);
        }
        Ok(())
    }
}

/// A transaction's notes, and the memory that it is over.
#[doc(hidden)]
pub struct Tracker<'m, M: Memory> {
    pub(crate) memory: &'m mut M,
    pub(crate) notes: &'m mut Notes<M>,
}

impl<M: Memory> Tracker<'_, M> {
    pub(crate) fn allocate<A: Allocator>(&mut self, from: &A, bytes: usize) -> Result<Address, AccessError> {
        self.notes.open_section(self.memory)?;
        let at = from.take(self.memory, bytes)?;
        self.notes.allocated.push(Object::of(from, at, bytes));
        self.notes.unreached.insert(at, A::room_of(bytes));
        Ok(at)
    }
    pub(crate) fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        assert!(self.notes.unreached.contains_key(&at), "a transaction changes no object in its place");
        self.memory.write_object(at, bytes).inspect_err(|error| _ = self.notes.failed.get_or_insert(*error))
    }
}
