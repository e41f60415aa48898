//! SSDAlloc's object-per-page allocation: each object is in a page of its own, and only its bytes
//! take DRAM and flash.
//!
//! ```text
//!   program:  | object 0, slack | object 1, slack | ..        (addresses: a page for each object)
//!                   |  ^
//!   page buffer:    |  +--- materialise: a page, filled in at a fault      (few pages)
//!                   +------ dematerialise: taken away, the bytes compared
//!                   v  ^
//!   object cache:  the bytes, compact                                       (most of the DRAM)
//!                   |  ^
//!   log:            |  +--- read: the page in which it lies
//!                   +------ written in the order in which they became dirty, side by side
//! ```
//!
//! In addition to an object's bytes, DRAM holds its location in the log (3 bytes), and a bit. The
//! store of pools is not below, because it keeps versions and tokens, which cost 17 bytes of DRAM
//! an object. At 128 bytes an object and a sixteenth of them in DRAM, there are only 8. This memory
//! ends with its process, so it needs neither versions nor tokens.
//!
//! Over a pool the store takes the place of the log. Arrays and pools of objects can be permanent
//! there, under names, as of the last [`ObjectAllocator::sync`]. All else is temporary.
//!
//! Invariants:
//! * An object's bytes are in its page, or in the cache, or in the log at its location. Threads
//!   wait for a page that is being filled or removed.
//! * No lock is held while an object's page is touched.
//! * Only the log's thread writes to the log and changes places.

mod allocator;
mod buffer;
mod kept;
mod log;
mod named;
mod names;
mod numbers;
mod packed;
mod pager;
mod places;
mod queue;
mod records;
mod settings;
mod statistics;
mod values;
mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use allocator::{ObjectAllocator, ObjectArray, ObjectPool};
pub use named::{NameError, Named, SyncError};
pub use packed::OBJECT_BYTES_MAX;
pub use records::{NAME_BYTES_MAX, NAMES_MAX};
pub use settings::{Mode, ObjectSettings, Overrun};
pub use statistics::ObjectSummary;
pub use values::ObjectValues;

/// The distance of two objects of an array, in bytes.
pub const OBJECT_STRIDE: usize = fulgurite_format::SUBPAGE_BYTES;

/// Locks what holds whole values at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
