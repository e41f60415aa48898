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
use std::sync::atomic::{AtomicU64, Ordering, fence};

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use super::bug::Bug;
use super::notes::{Noted, Notes, Object, Tracker};
use super::page::Page;
use crate::Identity;
use crate::latch::{is_at, let_go, try_lock, wake_all};
use crate::{ByKind, Kind, Memory, Pinned, PlainPin, RawMemory, View, ViewMut, whole};

/// Most subpages that a transaction may change, objects of its own aside: 4 MiB.
const SUBPAGES_MAX: usize = 1024;

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

/// See the top of the file.
pub struct Staged<'m, M: Memory> {
    memory: &'m mut M,
    notes: Notes<M>,
    pages: BTreeMap<Address, Page>,
    bug: Option<Bug>,
}

/// The transaction holds latches: it lets go when dropped, as if it had never held them, or tells
/// their readers that something has changed.
struct Held<'l> {
    latches: &'l [Noted],
    changed: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (latch, _) in self.latches {
            // SAFETY: a noted latch is kept (see the top of the file).
            let latch = unsafe { latch.as_ref() };
            if let_go(latch, self.changed) {
                wake_all(latch);
            }
        }
    }
}

fn subpage_of(at: Address) -> Address {
    Address::from_bits(at.bits() - at.subpage_offset() as u64)
}

impl<'m, M: Memory> Staged<'m, M> {
    pub(super) fn over(memory: &'m mut M, bug: Option<Bug>) -> Self {
        Staged { memory, notes: Notes::new(), pages: BTreeMap::new(), bug }
    }

    /// Whether all that was read is still so.
    pub(super) fn is_valid(&self) -> bool {
        if self.bug == Some(Bug::ReadsNotValidated) {
            return true;
        }
        // What the operations read must not be read below this.
        fence(Ordering::SeqCst);
        // SAFETY: a noted latch is kept (see the top of the file).
        self.notes.reads.iter().all(|(latch, version)| is_at(unsafe { latch.as_ref() }, *version))
    }

    /// Whether the notes are valid, where the transaction itself holds some of the latches.
    fn is_valid_but_for(&self, held: &[Noted]) -> bool {
        if self.bug == Some(Bug::ReadsNotValidated) {
            return true;
        }
        self.notes.reads.iter().all(|&(latch, version)| {
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
        if let Some(error) = self.notes.failed {
            return if self.is_valid() { Err(Stop::Failed(error)) } else { Err(Stop::Conflict) };
        }
        if self.pages.is_empty() && self.notes.locks.is_empty() {
            return if self.is_valid() { Ok(()) } else { Err(Stop::Conflict) };
        }
        self.notes.open_section(self.memory)?;
        // All that may wait or fail comes first, with no latch held.
        let mut pins = Vec::with_capacity(self.pages.len());
        for at in self.pages.keys() {
            // Whether it may be written is checked here. A pin does not ask.
            self.memory.view_mut(*at, SUBPAGE_BYTES)?;
            pins.push(self.memory.pin(*at)?);
        }
        for change in &mut self.notes.changes {
            change.prepare(self.memory)?;
        }
        let mut locks = std::mem::take(&mut self.notes.locks);
        // In one order for all, so that one of two transactions gets on.
        locks.sort_unstable();
        locks.dedup();
        let result = self.install(&locks, &pins);
        self.notes.locks = locks;
        result?;
        drop(pins);
        self.notes.allocated.clear();
        for (count, number) in self.notes.counts.drain(..) {
            // SAFETY: a noted count is kept (see the top of the file).
            unsafe { count.as_ref() }.fetch_add(number, Ordering::Relaxed);
        }
        self.give_back_freed();
        self.notes.section = None;
        Ok(())
    }

    fn install(&mut self, locks: &[Noted], pins: &[M::Pin]) -> Result<(), Stop> {
        let mut held = Held { latches: &locks[..0], changed: false };
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
        for mut change in std::mem::take(&mut self.notes.changes) {
            change.install();
        }
        Ok(())
    }

    /// Nothing leads to these any more. What cannot be given back is lost, as after any failed
    /// free.
    fn give_back_freed(&mut self) {
        for object in std::mem::take(&mut self.notes.freed) {
            self.give_back(&object);
        }
    }
    fn give_back(&mut self, object: &Object<M>) {
        // A reader may still be reading what was here. When it sees other bytes, it must see that
        // its version has passed, too.
        fence(Ordering::Release);
        // SAFETY: a noted allocator is kept (see the top of the file).
        let freed = unsafe { (object.give_back)(object.allocator, self.memory, object.at, object.bytes) };
        debug_assert!(freed.is_ok() || freed == Err(AccessError::Poisoned), "{freed:?}");
    }

    /// Forgets everything, and gives back what was allocated.
    pub(super) fn abort(&mut self) {
        self.notes.reads.clear();
        self.notes.locks.clear();
        self.pages.clear();
        self.notes.unreached.clear();
        self.notes.freed.clear();
        self.notes.counts.clear();
        self.notes.changes.clear();
        for object in std::mem::take(&mut self.notes.allocated) {
            self.give_back(&object);
        }
        self.notes.section = None;
    }
}

impl<M: Memory> Drop for Staged<'_, M> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl<M: Memory> RawMemory for Staged<'_, M> {
    /// No operation of a transaction pins, so that there is none of these.
    type Pin = PlainPin;
    type Section = ();
    type Inner = M;
    const TRACKED: bool = true;

    fn identity(&self) -> Identity<'_> {
        self.memory.identity()
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
        let unreached = self.notes.unreached.range(..=at).next_back();
        if unreached.is_some_and(|(start, bytes)| at.bits() - start.bits() + len as u64 <= *bytes as u64) {
            // Where this fails, its caller has written a part of an object that nothing leads to.
            let failed = &mut self.notes.failed;
            return self.memory.view_mut(at, len).inspect_err(|error| _ = failed.get_or_insert(*error));
        }
        let subpage = subpage_of(at);
        // With the bug, all of the subpage is of the moment of the first write to it.
        let (from, count) = if self.bug == Some(Bug::StaleCopies) { (subpage, SUBPAGE_BYTES) } else { (at, len) };
        let now = match self.memory.view(from, count) {
            Ok(now) => now,
            Err(error) => {
                self.notes.failed.get_or_insert(error);
                return Err(error);
            }
        };
        assert_eq!(now.len(), count, "a view is as long as it was asked for");
        if self.pages.len() == SUBPAGES_MAX && !self.pages.contains_key(&subpage) {
            let bytes = (SUBPAGES_MAX as u64 + 1) * SUBPAGE_BYTES as u64;
            let error = AccessError::TooLong { what: "transaction", bytes, most: bytes - SUBPAGE_BYTES as u64 };
            self.notes.failed.get_or_insert(error);
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
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.memory.park(word, expected)
    }
    /// What is staged needs none. The commit has one.
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.memory.yield_now()
    }
    #[inline]
    fn kind(&mut self) -> Kind<'_, M> {
        Kind::Transaction(Tracker { memory: self.memory, notes: &mut self.notes })
    }
}
