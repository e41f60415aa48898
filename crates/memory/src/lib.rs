//! Memory: how programs reach data that may be in flash, and what is built on it.
//!
//! Has the [`Memory`] trait (what a container needs of its memory), [`RawMemory`] (what a kind of
//! memory provides), plain memory, typed pointers, latches, all-or-nothing write sets, the
//! small-object allocator and the containers. Everything above is generic over [`Memory`], so the
//! code of a program runs unchanged on plain memory, under kernel paging, and on the guarded path.
//!
//! Invariants:
//! * A view lives until the next access through the same `&mut` memory, by the borrow checker.
//! * Shared memory is reached as relaxed atomics only. Latches, in DRAM and never in the pool,
//!   decide what may change.
//! * Nothing typed straddles a subpage.
//! * Only this crate's implementations of [`RawMemory`] are trusted. A view from another one is
//!   checked before its use.
//!
//! It does not decide what stays in DRAM (`policy`) nor move data (`runtime`).

mod array;
mod b_plus_tree;
mod blobs;
mod container;
mod directory;
mod guarded;
mod guest;
mod hash;
mod hash_map;
mod heap;
mod latch;
mod layout;
mod masstree;
mod memory;
mod memory_id;
pub mod optimistic;
mod owned;
mod plain;
mod ptr;
mod records;
mod region;
mod stored;
mod transaction;
mod tree;
mod view;
mod write_set;

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
#[doc(hidden)]
pub use memory::Views;
pub(crate) use memory::{Allocator, Apart, ByKind, assert_inside, whole};
pub use memory::{Kind, Memory, Pinned, RawMemory};
pub use memory_id::{Identity, MemoryId};
pub use owned::{OwnedPin, OwnedRegion};
pub use plain::{PlainMemory, PlainPin};
pub use ptr::Ptr;
pub use records::{RecordCounts, RecordMap, RecordMapRoot, RecordType, TypedRecords};
pub use region::Region;
pub use stored::Stored;
#[doc(hidden)]
pub use transaction::Keyed;
pub use transaction::{Bug as TransactionBug, Ranged, Staged, Transact, Transaction, Transactions};
pub use view::{View, ViewMut};
pub use write_set::WriteSet;
