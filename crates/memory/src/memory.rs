//! Memory, as containers see it: what a kind of memory has to provide ([`RawMemory`]), what
//! programs use of each ([`Memory`]), and what only some kinds can do (`ByKind`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::{AccessError, Context, Guest, Records};

use crate::transaction::Tracker;
use crate::{Identity, MemoryId};
use crate::{PlainMemory, Ptr, View, ViewMut};

/// A memory that containers can live in: byte-addressable, reached a subpage at a time.
///
/// A method that takes `&mut self` may switch to other work when data is not at hand, so no view
/// survives it.
pub trait RawMemory: Sized {
    /// Keeps one subpage at hand across accesses.
    type Pin: Pinned;
    /// Ends a write section when it is dropped.
    type Section;
    /// What a transaction's memory is over, and `Self` of all others.
    type Inner: Memory;
    /// Whether a transaction's memory notes latches instead of taking them.
    #[doc(hidden)]
    const TRACKED: bool = false;
    /// What views are known to be.
    #[doc(hidden)]
    const VIEWS: Views = Views::CHECKED;

    /// Which memory this is, and how often it was rolled back. Changes only in calls that take
    /// `&mut self`.
    fn identity(&self) -> Identity<'_>;

    /// `len` bytes at `at`, for reading, until the next access.
    ///
    /// # Errors
    /// Any [`AccessError`]: the medium failed, the range is not inside one subpage, the job was
    /// cancelled.
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError>;

    /// `len` bytes at `at`, to read and write until the next access. Marks the subpage dirty.
    ///
    /// # Errors
    /// As [`RawMemory::view`].
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError>;

    /// Brings the subpage of `at` in and keeps it at hand until the pin is dropped.
    ///
    /// # Errors
    /// As [`RawMemory::view`], and [`AccessError::TooManyPins`] when the job holds as many as it
    /// declared.
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError>;

    /// Waits until a latch with this word is let go that has waiters. Returns at once when the word
    /// is not `expected`, which is checked under the lock that waking takes, so that no wake-up is
    /// lost. May return early: callers loop.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed while it waited.
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError>;

    /// Opens a write section: a named state has all that is written until the guard is dropped, or
    /// none. Sections nest. Waits while a sync is about to cut, so it is taken before latches,
    /// never with one held. It isolates nothing: others see the writes at once, and an error leaves
    /// them. For changes that belong together there is [`crate::Transactions`].
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed while it waited.
    fn write_section(&mut self) -> Result<Self::Section, AccessError>;

    /// Lets other work run, if there is any.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed.
    fn yield_now(&mut self) -> Result<(), AccessError>;

    /// Which of the kinds this is, for what only some of them can do.
    fn kind(&mut self) -> Kind<'_, Self::Inner> {
        Kind::Other
    }
}

/// What programs and containers use of a memory, whatever its kind. See [`RawMemory`] for what each
/// kind provides.
pub trait Memory: RawMemory {
    /// Which memory this is.
    #[inline(always)]
    fn id(&self) -> MemoryId {
        self.identity().id
    }

    /// How often the memory has been rolled back. Changes only in calls that take `&mut self`.
    #[inline(always)]
    fn roll_backs(&self) -> u64 {
        self.identity().roll_backs.load(Ordering::Acquire)
    }

    /// Copies a value out.
    ///
    /// # Errors
    /// As [`RawMemory::view`].
    ///
    /// # Panics
    /// When [`RawMemory::view`] returns something else than what it was asked for.
    #[inline(always)]
    fn load<T: Plain>(&mut self, at: Ptr<T>) -> Result<T, AccessError> {
        let (address, len) = at.checked()?;
        let view = self.view(address, len)?;
        if Self::VIEWS.exact {
            // SAFETY: the view is as long as the value (the contract of `Views::exact`). Subpages
            // are aligned to more than any value, so an aligned address (checked) is so in DRAM,
            // too.
            return Ok(unsafe { view.load_unchecked(0) });
        }
        Ok(view.load(0))
    }

    /// Copies a value in.
    ///
    /// # Errors
    /// As [`RawMemory::view`].
    ///
    /// # Panics
    /// As [`Memory::load`].
    #[inline(always)]
    fn store<T: Plain>(&mut self, at: Ptr<T>, value: T) -> Result<(), AccessError> {
        let (address, len) = at.checked()?;
        let view = self.view_mut(address, len)?;
        if Self::VIEWS.exact {
            // SAFETY: as in `load`.
            unsafe { view.store_unchecked(0, value) };
        } else {
            view.store(0, value);
        }
        Ok(())
    }

    /// Copies bytes out, from as many subpages as it takes.
    ///
    /// # Errors
    /// As [`RawMemory::view`].
    fn read_bytes(&mut self, at: Address, into: &mut [u8]) -> Result<(), AccessError> {
        let mut done = 0;
        while done < into.len() {
            let here = at.add(done as u64);
            let len = (into.len() - done).min(SUBPAGE_BYTES - here.subpage_offset());
            self.view(here, len)?.copy_to(0, &mut into[done..done + len]);
            done += len;
        }
        Ok(())
    }

    /// Copies bytes in, to as many subpages as it takes. After an error, earlier subpages have been
    /// written.
    ///
    /// # Errors
    /// As [`RawMemory::view`].
    fn write_bytes(&mut self, at: Address, from: &[u8]) -> Result<(), AccessError> {
        let _section = self.write_section()?;
        let mut done = 0;
        while done < from.len() {
            let here = at.add(done as u64);
            let len = (from.len() - done).min(SUBPAGE_BYTES - here.subpage_offset());
            self.view_mut(here, len)?.copy_from(0, &from[done..done + len]);
            done += len;
        }
        Ok(())
    }

    /// Says that `at` will be wanted soon. Never waits; may do nothing.
    #[inline(always)]
    fn prefetch(&mut self, at: Address) {
        match self.kind() {
            Kind::Dram(plain) => plain.fetch(at),
            Kind::Job(context) => Context::prefetch(context, at),
            Kind::Transaction(tracker) => tracker.memory.prefetch(at),
            Kind::Thread(_) | Kind::Other => {}
        }
    }

    /// Says that all of the subpage of `at` will be written next. Until then it holds what it held,
    /// or zeros. May spare a read. Never waits.
    fn will_overwrite(&mut self, at: Address) {
        if let Kind::Job(context) = self.kind() {
            Context::will_overwrite(context, at);
        }
    }
}

impl<M: RawMemory> Memory for M {}

/// A subpage that stays at hand while this lives.
pub trait Pinned {
    /// The subpage's address.
    fn address(&self) -> Address;
    /// `len` bytes of it, `offset` bytes in.
    ///
    /// # Panics
    /// When the range is not inside the subpage.
    fn view(&self, offset: usize, len: usize) -> View<'_>;
    /// `len` bytes of it, `offset` bytes in, for writing. Marks it dirty.
    ///
    /// # Panics
    /// When the range is not inside the subpage.
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_>;
}

/// Refuses a range that is not inside one subpage.
#[inline(always)]
pub(crate) fn whole(at: Address, len: usize) -> Result<(), AccessError> {
    if len <= SUBPAGE_BYTES - at.subpage_offset() { Ok(()) } else { Err(AccessError::Straddles { at, len }) }
}

/// Panics where a range is not inside a pinned subpage.
#[inline(always)]
pub(crate) fn assert_inside(offset: usize, len: usize) {
    assert!(offset <= SUBPAGE_BYTES && len <= SUBPAGE_BYTES - offset, "bytes {offset}..+{len} are outside a subpage");
}

/// What is known of the views that a memory returns.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Views {
    pub(crate) exact: bool,
}

impl Views {
    /// They are checked before their use.
    pub const CHECKED: Views = Views { exact: false };
    /// Each is the range asked for.
    ///
    /// # Safety
    /// `view` and `view_mut` must return exactly the range asked for, as far behind a multiple of a
    /// subpage as its address is.
    pub(crate) const unsafe fn exact() -> Views {
        Views { exact: true }
    }
}

/// A memory by its kind.
#[non_exhaustive]
pub enum Kind<'m, M: Memory> {
    /// Memory that is always at hand.
    Dram(&'m mut PlainMemory),
    /// A job's, over flash.
    Job(&'m mut Context),
    /// A thread's, over flash.
    Thread(Guest<'m>),
    /// A transaction's.
    #[doc(hidden)]
    Transaction(Tracker<'m, M>),
    /// Another, which can do nothing more than each has to.
    Other,
}

impl<M: Memory> std::fmt::Debug for Kind<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Dram(_) => "Dram",
            Kind::Job(_) => "Job",
            Kind::Thread(_) => "Thread",
            Kind::Transaction(_) => "Transaction",
            Kind::Other => "Other",
        })
    }
}

/// What an operation does that leaves all contents as they are, so that it is no part of a
/// transaction: a map grows.
pub(crate) trait Apart {
    fn run<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError>;
}

/// What a transaction allocates from: a heap.
pub(crate) trait Allocator {
    /// Bytes that an object of `bytes` has room for.
    fn room_of(bytes: usize) -> usize;
    fn take<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Address, AccessError>;
    fn give_back<M: Memory>(&self, memory: &mut M, at: Address, bytes: usize) -> Result<(), AccessError>;
}

/// What containers ask of a memory that only some kinds have, with what the others do instead.
pub(crate) trait ByKind: Memory {
    /// Whether subpages can be used as objects: cached by their length, and changed all at once. A
    /// transaction has none, because it changes no object in its place: it writes a new one, to
    /// which nothing leads yet.
    #[inline]
    fn takes_objects(&mut self) -> bool {
        match self.kind() {
            Kind::Job(context) => Context::has_objects(context),
            Kind::Thread(guest) => guest.has_objects(),
            _ => false,
        }
    }
    /// What `read` makes of the first `len` bytes of the subpage at `at`, which was written as an
    /// object of this length.
    ///
    /// # Errors
    /// As [`RawMemory::view`], and [`AccessError::Corrupt`] when it has another length.
    #[inline]
    #[allow(clippy::collapsible_match, reason = "a guard cannot borrow what it matches")]
    fn read_object<R>(&mut self, at: Address, len: usize, mut read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        match self.kind() {
            Kind::Transaction(tracker) => {
                if tracker.memory.takes_objects() {
                    return tracker.memory.read_object(at, len, read);
                }
            }
            Kind::Job(context) if Context::has_objects(context) => return Context::read_object(context, at, len, read),
            Kind::Thread(mut guest) if guest.has_objects() => return Guest::read_object(&mut guest, at, len, read),
            _ => {}
        }
        let mut bytes = vec![0; len];
        self.read_bytes(at, &mut bytes)?;
        Ok(read(&bytes))
    }
    /// Writes the subpage at `at` as an object: all at once where there are objects. It is read and
    /// written as one from then on. The caller is in a write section.
    ///
    /// # Errors
    /// As [`RawMemory::view_mut`]; nothing has changed then, where there are objects.
    #[allow(clippy::collapsible_match, reason = "a guard cannot borrow what it matches")]
    fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        match self.kind() {
            Kind::Transaction(mut tracker) => {
                if tracker.memory.takes_objects() {
                    return tracker.write_object(at, bytes);
                }
            }
            Kind::Job(context) if Context::has_objects(context) => return Context::write_object(context, at, bytes),
            Kind::Thread(mut guest) if guest.has_objects() => return Guest::write_object(&mut guest, at, bytes),
            _ => {}
        }
        self.write_bytes(at, bytes)
    }
    /// Waits until the object at `at` can be written without a long wait. Never needed, and no
    /// promise.
    ///
    /// # Errors
    /// As [`RawMemory::yield_now`]; that the medium failed.
    fn wait_for_object_room(&mut self, at: Address) -> Result<(), AccessError> {
        match self.kind() {
            Kind::Job(context) if Context::has_objects(context) => Context::wait_for_object_room(context, at),
            Kind::Thread(mut guest) if guest.has_objects() => Guest::wait_for_object_room(&mut guest, at),
            _ => Ok(()),
        }
    }
    /// Says that nothing leads to this object any more.
    fn free_object(&mut self, at: Address) {
        match self.kind() {
            Kind::Job(context) => Context::free_object(context, at),
            Kind::Thread(mut guest) => Guest::free_object(&mut guest, at),
            _ => {}
        }
    }

    /// A transaction's notes, in one.
    fn tracker(&mut self) -> Option<Tracker<'_, Self::Inner>> {
        match self.kind() {
            Kind::Transaction(tracker) => Some(tracker),
            _ => None,
        }
    }
    /// The index and the cache of records of this memory, where it has one.
    fn records(&mut self) -> Option<Arc<Records>> {
        match self.kind() {
            Kind::Job(context) => Context::records(context).cloned(),
            Kind::Thread(guest) => guest.records().cloned(),
            Kind::Transaction(tracker) => tracker.memory.records(),
            _ => None,
        }
    }
    /// Copies the subpage at `at` out. It takes the place of no other in DRAM where that can be.
    ///
    /// # Errors
    /// As [`RawMemory::view`].
    fn read_around(&mut self, at: Address, into: &mut [u8; SUBPAGE_BYTES]) -> Result<(), AccessError> {
        match self.kind() {
            Kind::Job(context) => return Context::read_around(context, at, into),
            Kind::Thread(mut guest) => return Guest::read_around(&mut guest, at, into),
            Kind::Transaction(tracker) => return tracker.memory.read_around(at, into),
            _ => {}
        }
        self.read_bytes(at, into)
    }
    /// As [`Memory::will_overwrite`], of this number of subpages.
    fn will_overwrite_all(&mut self, at: Address, count: u32) {
        match self.kind() {
            Kind::Thread(mut guest) => guest.will_overwrite(at, count),
            _ => (0..u64::from(count)).for_each(|n| self.will_overwrite(at.add(n * SUBPAGE_BYTES as u64))),
        }
    }

    /// As [`RawMemory::yield_now`], for about `time` where the memory has a clock.
    ///
    /// # Errors
    /// As [`RawMemory::yield_now`].
    fn pause(&mut self, time: Duration) -> Result<(), AccessError> {
        match self.kind() {
            Kind::Job(context) => context.sleep(time),
            Kind::Thread(mut guest) => guest.sleep(time),
            Kind::Transaction(tracker) => tracker.memory.pause(time),
            _ => self.yield_now(),
        }
    }
    /// Whether the job must end.
    ///
    /// # Errors
    /// When it was cancelled or its deadline has passed.
    fn verdict(&mut self) -> Result<(), AccessError> {
        match self.kind() {
            Kind::Job(context) => Context::verdict(context),
            Kind::Transaction(tracker) => tracker.memory.verdict(),
            _ => Ok(()),
        }
    }

    /// Notes for a transaction that a read is valid as long as the latch with this word has this
    /// version.
    #[inline]
    fn note_read(&mut self, latch: &AtomicU64, version: u64) {
        if let Kind::Transaction(tracker) = self.kind() {
            tracker.notes.read(latch, version);
        }
    }
    /// Notes for a transaction that a write needs the latch with this word, at this version.
    #[inline]
    fn note_lock(&mut self, latch: &AtomicU64, version: u64) {
        if let Kind::Transaction(tracker) = self.kind() {
            tracker.notes.lock(latch, version);
        }
    }
    /// Does something that is no part of a transaction.
    fn apart<A: Apart>(&mut self, action: &A) -> Result<(), AccessError> {
        match self.kind() {
            Kind::Transaction(tracker) => action.run(tracker.memory),
            _ => action.run(self),
        }
    }
    /// Adds to a count in DRAM; of a transaction, when it commits.
    #[inline]
    fn add(&mut self, count: &AtomicI64, number: i64) {
        match self.kind() {
            Kind::Transaction(tracker) => tracker.notes.count(count, number),
            _ => _ = count.fetch_add(number, Ordering::Relaxed),
        }
    }
    /// Allocates for a transaction, which gives it back unless it commits. None outside of one.
    fn allocate_tracked<A: Allocator>(&mut self, from: &A, bytes: usize) -> Option<Result<Address, AccessError>> {
        match self.kind() {
            Kind::Transaction(mut tracker) => Some(tracker.allocate(from, bytes)),
            _ => None,
        }
    }
    /// Leaves to a transaction's commit what is to be given back. Returns whether there is one.
    fn free_tracked<A: Allocator>(&mut self, to: &A, at: Address, bytes: usize) -> bool {
        match self.kind() {
            Kind::Transaction(tracker) => {
                tracker.notes.free(to, at, bytes);
                true
            }
            _ => false,
        }
    }
}

impl<M: Memory> ByKind for M {}
