//! The index of maps in DRAM, one word of 8 bytes a key, and the bytes of their records.
//!
//! What this crate does not do: it has no I/O, no clock and no threads.
#![forbid(unsafe_code)]

mod planted;
mod record;
mod table;
#[allow(dead_code, reason = "the cache of records will use the rest")]
mod word;

#[doc(hidden)]
pub use planted::Planted;
pub use record::{
    BadRecord, Expiry, HEAD_BYTES_MAX, Head, KEY_BYTES_MAX, Record, Seed, TableId, VALUE_BYTES_MAX, bytes_of, reseed,
};
pub use table::{Matches, NoDram, Slot, Table};
pub use word::{KeyHash, Location, LogPage, SHARD_BITS, Span, TAG_BITS, Tag, Word};
