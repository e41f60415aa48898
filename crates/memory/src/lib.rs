//! Memory: how programs reach data that may lie in flash, and what is built on it.
//!
//! Has the [`Memory`] trait (what a container needs of its memory), plain memory, typed pointers,
//! latches, all-or-nothing write sets, the small-object allocator and the containers. Everything
//! above is generic over [`Memory`]. The same code runs on plain memory, under kernel paging, and
//! on the guarded path.
//!
//! Invariants:
//! * A view lives until the next access through the same `&mut` memory, by the borrow checker.
//! * Shared memory is reached as relaxed atomics only. Latches, in DRAM and never in the pool,
//!   decide what may change.
//! * Nothing typed straddles a subpage.
//! * Only this crate's implementations of [`Memory`] are trusted. A view from another one is
//!   checked before its use.
//!
//! It does not decide what stays in DRAM (`policy`) nor move data (`runtime`).

mod array;
mod b_plus_tree;
mod blobs;
mod container;
mod directory;
mod guarded;
mod hash;
mod hash_map;
mod heap;
mod latch;
mod layout;
mod masstree;
mod optimistic;
mod owned;
mod plain;
mod ptr;
mod red_black_tree;
mod region;
mod stored;
mod transaction;
mod tree;
mod view;
mod write_set;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

pub use array::{Array, ArrayRoot};
pub use b_plus_tree::{BPlusTree, BPlusTreeRoot, BPlusTreeShape};
pub use blobs::{BlobIndex, BlobMap, Blobs, KEY_BYTES_MAX, OrderedBlobs, VALUE_BYTES_MAX, ValueReader, ValueWriter};
pub use container::{Container, Rooted, further_ranges};
pub use directory::{Directory, RootError};
pub use fulgurite_derive::Stored;
pub use fulgurite_format::{Address, PAGE_BYTES, Plain, RootEntry, SUBPAGE_BYTES, SubpageIndex, TypePart};
pub use fulgurite_runtime::AccessError;
pub use hash::{KeyHash, hash_bytes};
pub use hash_map::{HashMap, HashMapRoot};
pub use heap::{CACHED_OBJECTS, Heap};
pub use latch::{Exclusive, FiberLatch, Latch, LatchTable, NoLatch, VersionLatch};
pub use layout::{Layout, Reservation};
pub use masstree::{Masstree, MasstreeRoot, MasstreeShape};
pub use owned::{OwnedPin, OwnedRegion};
pub use plain::{PlainMemory, PlainPin};
pub use ptr::Ptr;
pub use red_black_tree::{RedBlackTree, RedBlackTreeRoot};
pub use region::Region;
pub use stored::Stored;
pub use transaction::{Bug as TransactionBug, Ranged, Staged, Transact, Transaction, Transactions};
pub use view::{View, ViewMut};
pub use write_set::WriteSet;

/// A memory that containers can live in: byte-addressable, reached a subpage at a time.
///
/// A method that takes `&mut self` may switch to other work when data is not at hand, so no view
/// survives it.
pub trait Memory {
    /// Keeps one subpage at hand across accesses.
    type Pin: Pinned;
    /// Ends a write section when it is dropped.
    type Section;

    /// `len` bytes at `at`, for reading, until the next access.
    ///
    /// # Errors
    /// Any [`AccessError`]: the medium failed, the range is not inside one subpage, the job was
    /// cancelled.
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError>;

    /// `len` bytes at `at`, to read and write until the next access. Marks the subpage dirty.
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError>;

    /// Brings the subpage of `at` in and keeps it at hand until the pin is dropped.
    ///
    /// # Errors
    /// As [`Memory::view`], and [`AccessError::TooManyPins`] when the job holds as many as it
    /// declared.
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError>;

    /// Says that `at` will be wanted soon. Never waits; may do nothing.
    fn prefetch(&mut self, at: Address);

    /// Says that all of the subpage of `at` will be written next. Until then it holds what it held,
    /// or zeros. May spare a read. Never waits.
    fn will_overwrite(&mut self, _at: Address) {}

    /// Waits until [`Memory::unpark_all`] is called with the same word. Returns at once when the
    /// word is not `expected`, which is checked under `unpark_all`'s lock, so that no wake-up is
    /// lost. May return early: callers loop.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed while it waited.
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError>;

    /// Wakes all waiters for `word` through this kind of memory.
    fn unpark_all(word: &AtomicU64);

    /// Opens a write section: a named state has all that is written until the guard is dropped, or
    /// none. Sections nest. Waits while a sync is about to cut, so it is taken before latches,
    /// never with one held. It isolates nothing: others see the writes at once, and an error leaves
    /// them. For changes that belong together there is [`Transactions`].
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed while it waited.
    fn write_section(&mut self) -> Result<Self::Section, AccessError>;

    /// Lets other work run, if there is any.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed.
    fn yield_now(&mut self) -> Result<(), AccessError>;

    /// Whether subpages can be used as objects: cached by their length, and changed all at once.
    fn has_objects(&self) -> bool {
        false
    }
    /// What `read` makes of the first `len` bytes of the subpage at `at`, which was written as an
    /// object of this length.
    ///
    /// # Errors
    /// As [`Memory::view`], and [`AccessError::Corrupt`] when it has another length.
    fn read_object<R>(&mut self, at: Address, len: usize, mut read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        let mut bytes = vec![0; len];
        self.read_bytes(at, &mut bytes)?;
        Ok(read(&bytes))
    }
    /// Writes the subpage at `at` as an object: all at once where [`Memory::has_objects`]. It is
    /// read and written as one from then on. The caller is in a write section.
    ///
    /// # Errors
    /// As [`Memory::view_mut`]; nothing has changed then, where it has objects.
    fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        self.write_bytes(at, bytes)
    }
    /// Waits until the object at `at` can be written without a long wait. Never needed, and no
    /// promise.
    ///
    /// # Errors
    /// As [`Memory::yield_now`]; that the medium failed.
    fn wait_for_object_room(&mut self, _at: Address) -> Result<(), AccessError> {
        Ok(())
    }
    /// Says that nothing leads to this object any more.
    fn free_object(&mut self, _at: Address) {}

    /// How often the memory has been rolled back. Changes only in calls that take `&mut self`.
    fn roll_backs(&self) -> u64 {
        0
    }

    /// As [`Memory::yield_now`], for about `time` where the memory has a clock.
    ///
    /// # Errors
    /// As [`Memory::yield_now`].
    fn pause(&mut self, _time: Duration) -> Result<(), AccessError> {
        self.yield_now()
    }

    /// Whether the job must end.
    ///
    /// # Errors
    /// When it was cancelled or its deadline has passed.
    fn verdict(&mut self) -> Result<(), AccessError> {
        Ok(())
    }

    /// Whether this is the memory of a transaction, which notes latches instead of taking them.
    #[doc(hidden)]
    const TRACKED: bool = false;
    /// A read is valid as long as the latch with this word has this version. This and those below
    /// without a body are of a transaction only.
    #[doc(hidden)]
    fn note_read(&mut self, _latch: &AtomicU64, _version: u64) {
        unreachable!("not the memory of a transaction")
    }
    /// A write needs the latch with this word, at this version.
    #[doc(hidden)]
    fn note_lock(&mut self, _latch: &AtomicU64, _version: u64) {
        unreachable!("not the memory of a transaction")
    }
    /// Does something that is no part of the transaction.
    #[doc(hidden)]
    fn apart<A: Apart>(&mut self, _action: &A) -> Result<(), AccessError> {
        unreachable!("not the memory of a transaction")
    }
    /// Adds to a count in DRAM; of a transaction, when it commits.
    #[doc(hidden)]
    fn add(&mut self, count: &AtomicI64, number: i64) {
        count.fetch_add(number, Ordering::Relaxed);
    }
    #[doc(hidden)]
    fn allocate_from<A: Allocator>(&mut self, _from: &A, _bytes: usize) -> Result<Address, AccessError> {
        unreachable!("not the memory of a transaction")
    }
    #[doc(hidden)]
    fn free_to<A: Allocator>(&mut self, _to: &A, _at: Address, _bytes: usize) {
        unreachable!("not the memory of a transaction")
    }

    /// Copies a value out.
    ///
    /// # Panics
    /// When [`Memory::view`] returns something else than what it was asked for.
    #[inline(always)]
    fn load<T: Plain>(&mut self, at: Ptr<T>) -> Result<T, AccessError> {
        let (address, len) = at.checked()?;
        Ok(self.view(address, len)?.load(0))
    }

    /// Copies a value in.
    ///
    /// # Panics
    /// As [`Memory::load`].
    #[inline(always)]
    fn store<T: Plain>(&mut self, at: Ptr<T>, value: T) -> Result<(), AccessError> {
        let (address, len) = at.checked()?;
        self.view_mut(address, len)?.store(0, value);
        Ok(())
    }

    /// Copies bytes out, from as many subpages as it takes.
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
}

/// What an operation does that leaves all contents as they are, so that it is no part of a
/// transaction: a map grows.
#[doc(hidden)]
pub trait Apart {
    fn run<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError>;
}

/// What a transaction allocates from: a heap.
#[doc(hidden)]
pub trait Allocator {
    /// Bytes that an object of `bytes` has room for.
    fn room_of(bytes: usize) -> usize;
    fn take<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Address, AccessError>;
    fn give_back<M: Memory>(&self, memory: &mut M, at: Address, bytes: usize) -> Result<(), AccessError>;
}

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
fn whole(at: Address, len: usize) -> Result<(), AccessError> {
    if len <= SUBPAGE_BYTES - at.subpage_offset() { Ok(()) } else { Err(AccessError::Straddles { at, len }) }
}

/// Panics where a range is not inside a pinned subpage.
#[inline(always)]
fn assert_inside(offset: usize, len: usize) {
    assert!(offset <= SUBPAGE_BYTES && len <= SUBPAGE_BYTES - offset, "bytes {offset}..+{len} are outside a subpage");
}

/// [`Memory::load`] without looking at the view: the hit path of the memories of this crate.
///
/// # Safety
/// `M::view` must return exactly the range asked for, as far behind a multiple of a subpage as its
/// address is.
#[inline(always)]
unsafe fn load_trusting<M: Memory, T: Plain>(memory: &mut M, at: Ptr<T>) -> Result<T, AccessError> {
    let (address, len) = at.checked()?;
    let view = memory.view(address, len)?;
    // SAFETY: the view is as long as the value (the caller's contract). Subpages are aligned to
    // more than any value, so an aligned address (checked) is so in DRAM too.
    Ok(unsafe { view.load_unchecked(0) })
}

/// [`Memory::store`] without looking at the view.
///
/// # Safety
/// As [`load_trusting`], of `M::view_mut`.
#[inline(always)]
unsafe fn store_trusting<M: Memory, T: Plain>(memory: &mut M, at: Ptr<T>, value: T) -> Result<(), AccessError> {
    let (address, len) = at.checked()?;
    let view = memory.view_mut(address, len)?;
    // SAFETY: as in `load_trusting`.
    unsafe { view.store_unchecked(0, value) };
    Ok(())
}
