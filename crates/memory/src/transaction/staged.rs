//! The memory of a transaction's operations: it keeps what they write to itself, and notes the
//! latches that they would take.
//!
//! ```text
//!  read_begin --> reads: (latch, version)      lock, upgrade --> locks: (latch, version)
//!  view       --> the memory, with the transaction's own bytes over it
//!  view_mut   --> a copy of the subpage, or the memory itself in an object that is not yet reached
//!  allocate   --> at once, given back unless the transaction commits       free --> at the commit
//! ```
//!
//! Invariants:
//! * Nobody but the transaction sees what it has staged.
//! * A noted latch, count or allocator belongs to a container that the transaction keeps. Only this
//!   module's parents hand a `Staged` to an operation, and only to one of such a container.
//! * What a write that failed was part of does not commit, even where its caller goes on (a merge
//!   of nodes).
//! * A section is open while an object is allocated for the transaction, and while it installs.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use std::time::Duration;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use super::bug::Bug;
use super::page::Page;
use crate::latch::{is_at, let_go, try_lock};
use crate::{Allocator, Apart, Memory, Pinned, PlainPin, View, ViewMut, whole};

/// Most subpages that a transaction may change, objects of its own aside: 4 MiB.
const SUBPAGES_MAX: usize = 1024;

/// The word of a latch, and the version at which it was seen.
type Noted = (NonNull<AtomicU64>, u64);

/// Why a run of a transaction did not commit.
pub(super) enum Stop {
    /// What it read has changed, or may have.
    Conflict,
    Failed(AccessError),
}

impl From<AccessError> for Stop {
    fn from(error: AccessError) -> Stop {
        Stop::Failed(error)
    }
}

/// An object of an allocator, and how to give it back there.
struct Object<M> {
    allocator: NonNull<()>,
    give_back: unsafe fn(NonNull<()>, &mut M, Address, usize) -> Result<(), AccessError>,
    at: Address,
    bytes: usize,
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

/// See the top of the file.
pub struct Staged<'m, M: Memory> {
    memory: &'m mut M,
    /// Latches under which it has read, and those that it must hold to install.
    reads: Vec<Noted>,
    locks: Vec<Noted>,
    pages: BTreeMap<Address, Page>,
    /// Objects that nothing leads to before the commit: how long, by address.
    unreached: BTreeMap<Address, usize>,
    allocated: Vec<Object<M>>,
    freed: Vec<Object<M>>,
    /// What the commit adds to counts in DRAM.
    counts: Vec<(NonNull<AtomicI64>, i64)>,
    section: Option<M::Section>,
    /// A write that failed. What it was part of is half staged, whatever its caller made of that.
    failed: Option<AccessError>,
    bug: Option<Bug>,
}

/// The transaction holds latches: it lets go when dropped, as if it had never held them, or tells
/// their readers that something has changed.
struct Held<'l, M: Memory> {
    latches: &'l [Noted],
    changed: bool,
    memory: std::marker::PhantomData<fn(M)>,
}

impl<M: Memory> Drop for Held<'_, M> {
    fn drop(&mut self) {
        for (latch, _) in self.latches {
            // SAFETY: a noted latch is kept (see the top of the file).
            let latch = unsafe { latch.as_ref() };
            if let_go(latch, self.changed) {
                M::unpark_all(latch);
            }
        }
    }
}

fn subpage_of(at: Address) -> Address {
    Address::from_bits(at.bits() - at.subpage_offset() as u64)
}

impl<'m, M: Memory> Staged<'m, M> {
    pub(super) fn over(memory: &'m mut M, bug: Option<Bug>) -> Self {
        Staged {
            memory,
            reads: Vec::new(),
            locks: Vec::new(),
            pages: BTreeMap::new(),
            unreached: BTreeMap::new(),
            allocated: Vec::new(),
            freed: Vec::new(),
            counts: Vec::new(),
            section: None,
            failed: None,
            bug,
        }
    }

    /// Whether all that was read is still so.
    pub(super) fn is_valid(&self) -> bool {
        if self.bug == Some(Bug::ReadsNotValidated) {
            return true;
        }
        // What the operations read must not be read below this.
        fence(Ordering::SeqCst);
        // SAFETY: a noted latch is kept (see the top of the file).
        self.reads.iter().all(|(latch, version)| is_at(unsafe { latch.as_ref() }, *version))
    }

    /// The same, where the transaction itself holds some of the latches.
    fn is_valid_but_for(&self, held: &[Noted]) -> bool {
        if self.bug == Some(Bug::ReadsNotValidated) {
            return true;
        }
        self.reads.iter().all(|&(latch, version)| {
            // SAFETY: a noted latch is kept (see the top of the file).
            let same = is_at(unsafe { latch.as_ref() }, version);
            // Held ones had the version that they were noted with.
            same || held.binary_search(&(latch, version)).is_ok()
        })
    }

    /// Makes everything that was staged visible at one moment, at which everything that was read is
    /// so. On an error nothing has changed.
    pub(super) fn commit(&mut self) -> Result<(), Stop> {
        self.memory.verdict()?;
        if let Some(error) = self.failed {
            return if self.is_valid() { Err(Stop::Failed(error)) } else { Err(Stop::Conflict) };
        }
        if self.pages.is_empty() && self.locks.is_empty() {
            return if self.is_valid() { Ok(()) } else { Err(Stop::Conflict) };
        }
        self.open_section()?;
        // All that may wait or fail comes first, with no latch held.
        let mut pins = Vec::with_capacity(self.pages.len());
        for at in self.pages.keys() {
            // Whether it may be written is told here. A pin does not ask.
            self.memory.view_mut(*at, SUBPAGE_BYTES)?;
            pins.push(self.memory.pin(*at)?);
        }
        let mut locks = std::mem::take(&mut self.locks);
        // In one order for all, so that of two transactions one gets on.
        locks.sort_unstable();
        locks.dedup();
        let result = self.install(&locks, &pins);
        self.locks = locks;
        result?;
        drop(pins);
        self.allocated.clear();
        for (count, number) in self.counts.drain(..) {
            // SAFETY: a noted count is kept (see the top of the file).
            unsafe { count.as_ref() }.fetch_add(number, Ordering::Relaxed);
        }
        self.give_back_freed();
        self.section = None;
        Ok(())
    }

    fn install(&self, locks: &[Noted], pins: &[M::Pin]) -> Result<(), Stop> {
        let mut held = Held::<M> { latches: &locks[..0], changed: false, memory: std::marker::PhantomData };
        for (i, (latch, version)) in locks.iter().enumerate() {
            // SAFETY: a noted latch is kept (see the top of the file).
            let latch = unsafe { latch.as_ref() };
            if self.bug != Some(Bug::LatchesNotHeld) {
                // Two versions of one latch: it has changed in between. The second try fails.
                if !try_lock(latch, *version) {
                    return Err(Stop::Conflict);
                }
                held.latches = &locks[..=i];
            }
        }
        // The latches are held before anything is validated, for all to see: of two transactions
        // that each wrote what the other read, at least one finds out.
        fence(Ordering::SeqCst);
        if !self.is_valid_but_for(held.latches) {
            return Err(Stop::Conflict);
        }
        // Nothing below can fail.
        held.changed = true;
        let forgotten = usize::from(self.bug == Some(Bug::PageForgotten) && pins.len() > 1);
        for (page, pin) in self.pages.values().zip(pins).skip(forgotten) {
            page.install(&pin.view_mut(0, SUBPAGE_BYTES));
        }
        Ok(())
    }

    fn open_section(&mut self) -> Result<(), AccessError> {
        if self.section.is_none() {
            self.section = Some(self.memory.write_section()?);
        }
        Ok(())
    }

    /// Nothing leads to these any more. What cannot be given back is lost, as after any failed
    /// free.
    fn give_back_freed(&mut self) {
        for object in std::mem::take(&mut self.freed) {
            self.give_back(&object);
        }
    }
    fn give_back(&mut self, object: &Object<M>) {
        // A reader may still look at what was here. When it sees other bytes, it must see that its
        // version has passed, too.
        fence(Ordering::Release);
        // SAFETY: a noted allocator is kept (see the top of the file).
        let freed = unsafe { (object.give_back)(object.allocator, self.memory, object.at, object.bytes) };
        debug_assert!(freed.is_ok() || freed == Err(AccessError::Poisoned), "{freed:?}");
    }

    /// Forgets everything, and gives back what was allocated.
    pub(super) fn abort(&mut self) {
        self.reads.clear();
        self.locks.clear();
        self.pages.clear();
        self.unreached.clear();
        self.freed.clear();
        self.counts.clear();
        for object in std::mem::take(&mut self.allocated) {
            self.give_back(&object);
        }
        self.section = None;
    }
}

impl<M: Memory> Drop for Staged<'_, M> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl<M: Memory> Memory for Staged<'_, M> {
    /// No operation of a transaction pins, so that there is none of these.
    type Pin = PlainPin;
    type Section = ();
    const TRACKED: bool = true;

    // No object is changed in its place: a new one is written, to which nothing leads yet.
    fn has_objects(&self) -> bool {
        false
    }
    fn read_object<R>(&mut self, at: Address, len: usize, mut read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        if self.memory.has_objects() {
            return self.memory.read_object(at, len, read);
        }
        let mut bytes = vec![0; len];
        self.read_bytes(at, &mut bytes)?;
        Ok(read(&bytes))
    }
    fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        if self.memory.has_objects() {
            assert!(self.unreached.contains_key(&at), "a transaction changes no object in its place");
            return self.memory.write_object(at, bytes).inspect_err(|error| _ = self.failed.get_or_insert(*error));
        }
        self.write_bytes(at, bytes)
    }

    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        if self.pages.is_empty() {
            return self.memory.view(at, len);
        }
        whole(at, len)?;
        let Some(page) = self.pages.get_mut(&subpage_of(at)) else { return self.memory.view(at, len) };
        if self.bug == Some(Bug::StaleCopies) {
            return Ok(page.view(at.subpage_offset(), len));
        }
        let now = self.memory.view(at, len)?;
        assert_eq!(now.len(), len, "a view is as long as it was asked for");
        page.refresh(at.subpage_offset(), &now);
        Ok(page.view(at.subpage_offset(), len))
    }

    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        whole(at, len)?;
        let unreached = self.unreached.range(..=at).next_back();
        if unreached.is_some_and(|(start, bytes)| at.bits() - start.bits() + len as u64 <= *bytes as u64) {
            // Where this fails, its caller has written a part of an object that nothing leads to.
            let failed = &mut self.failed;
            return self.memory.view_mut(at, len).inspect_err(|error| _ = failed.get_or_insert(*error));
        }
        let subpage = subpage_of(at);
        // With the bug, all of the subpage is of the moment of the first write to it.
        let (from, count) = if self.bug == Some(Bug::StaleCopies) { (subpage, SUBPAGE_BYTES) } else { (at, len) };
        let now = match self.memory.view(from, count) {
            Ok(now) => now,
            Err(error) => {
                self.failed.get_or_insert(error);
                return Err(error);
            }
        };
        assert_eq!(now.len(), count, "a view is as long as it was asked for");
        if self.pages.len() == SUBPAGES_MAX && !self.pages.contains_key(&subpage) {
            let bytes = (SUBPAGES_MAX as u64 + 1) * SUBPAGE_BYTES as u64;
            let error = AccessError::TooLong { what: "transaction", bytes, most: bytes - SUBPAGE_BYTES as u64 };
            self.failed.get_or_insert(error);
            return Err(error);
        }
        if self.bug != Some(Bug::StaleCopies) || !self.pages.contains_key(&subpage) {
            self.pages.entry(subpage).or_insert_with(Page::new).refresh(from.subpage_offset(), &now);
        }
        let page = self.pages.get_mut(&subpage).expect("it was made just now");
        Ok(page.write(at.subpage_offset(), len))
    }

    fn pin(&mut self, _: Address) -> Result<PlainPin, AccessError> {
        Err(AccessError::TooManyPins { limit: 0 })
    }
    fn prefetch(&mut self, at: Address) {
        self.memory.prefetch(at);
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.memory.park(word, expected)
    }
    fn unpark_all(word: &AtomicU64) {
        M::unpark_all(word);
    }
    /// What is staged needs none. The commit has one.
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.memory.yield_now()
    }
    fn roll_backs(&self) -> u64 {
        self.memory.roll_backs()
    }
    fn verdict(&mut self) -> Result<(), AccessError> {
        self.memory.verdict()
    }
    fn pause(&mut self, time: Duration) -> Result<(), AccessError> {
        self.memory.pause(time)
    }

    #[inline]
    fn note_read(&mut self, latch: &AtomicU64, version: u64) {
        let noted = (NonNull::from(latch), version);
        // An operation asks for the same latch again and again.
        if !self.reads.iter().rev().take(4).any(|last| *last == noted) {
            self.reads.push(noted);
        }
    }
    fn note_lock(&mut self, latch: &AtomicU64, version: u64) {
        self.locks.push((NonNull::from(latch), version));
    }
    fn apart<A: Apart>(&mut self, action: &A) -> Result<(), AccessError> {
        action.run(self.memory)
    }
    fn add(&mut self, count: &AtomicI64, number: i64) {
        self.counts.push((NonNull::from(count), number));
    }
    fn allocate_from<A: Allocator>(&mut self, from: &A, bytes: usize) -> Result<Address, AccessError> {
        self.open_section()?;
        let at = from.take(self.memory, bytes)?;
        self.allocated.push(Object::of(from, at, bytes));
        self.unreached.insert(at, A::room_of(bytes));
        Ok(at)
    }
    fn free_to<A: Allocator>(&mut self, to: &A, at: Address, bytes: usize) {
        self.freed.push(Object::of(to, at, bytes));
    }
}
