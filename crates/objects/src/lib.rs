//! A compact DRAM cache of objects, which are contents of 0 to 4096 bytes under a number.
//!
//! ```text
//!          puts, reads from flash                 evicted, and remembered
//!                    |                                       ^
//!   buffer:  | small, a tenth: first in, first out | main: the same, used ones go round again |
//!                    +------ used twice, or dirty ----->
//!
//!   index: number -> place      ghost: numbers that left      queue: dirty numbers, oldest first
//! ```
//!
//! Replacement is S3-FIFO by bytes. The buffer is a log: an object follows its header of 8 bytes
//! and takes no more than its length, rounded up to 8. So an object of 128 bytes costs 147 bytes
//! with its shares of index, queue and ghost.
//!
//! Invariants:
//! * An object that is dirty, or is being written, stays. Everything else may leave at any time.
//! * A read of flash enters only if the object was neither changed nor freed since it began.
//! * Dirty objects are written in the order in which they became dirty. One that changes again
//!   keeps its turn, so that each is on flash in bounded time.
//! * [`Cache::bytes`] are all it ever takes, and it allocates nothing after it was made, except
//!   what reads under way and a batch take, and for a moment in [`Cache::resize`].
//! * Its large tables are mapped by themselves. So what it gives up goes back to the kernel.
//!
//! What this crate does not do: it has no I/O, no clock and no threads. Its driver writes batches,
//! reads what is missing, and has a lock around each cache.
#![forbid(unsafe_code)]

mod batch;
mod cache;
mod index;
mod planted;
mod ring;

pub use batch::Batch;
pub use cache::{Cache, Counts, Full, Pressure, Ticket};
#[doc(hidden)]
pub use planted::Planted;

/// The longest object.
pub const OBJECT_BYTES_MAX: usize = 4096;
/// The least bytes that a cache is made of.
pub const CACHE_BYTES_MIN: usize = 256 << 10;
/// The most: positions have 24 bits, in units of 8 bytes.
pub const CACHE_BYTES_MAX: usize = 128 << 20;
