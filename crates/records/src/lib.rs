//! The index of maps in DRAM, and a cache of their records.
//!
//! A map's key and value are a record, which is appended once to a log on flash. This crate holds
//! the bytes of a record, a word of 8 bytes for each key, and a cache of whole records in DRAM.
//!
//! ```text
//!   key, hash -> bucket: | word | word | ..         | small | main |   entries: header, record
//!                             |    |                    ^
//!                             |    +--- cached ---------+
//!                             +-------- cold: page of the log, and how many pages to read
//! ```
//!
//! A get of a cached record touches a bucket and the entry, and one of a cold record is one read of
//! flash. A key that is absent needs none, but for a false tag: with `n` keys in a table of a shard
//! that is once in 2^28 / n look-ups.
//!
//! * [`Record`]: the bytes of records, with a checksum that refuses old ones.
//! * [`Table`]: words in the order of their tags, at 9.1 to 10.5 bytes a key while it grows.
//! * [`Shard`]: tables by number, and the cache of their records by S3-FIFO (SOSP '23).
//!
//! A driver appends a record, enters it, and reads it when it is not cached any more:
//!
//! ```
//! use fulgurite_records::{Changed, Found, KeyHash, KeyRef, Location, LogPage};
//! use fulgurite_records::{Record, Seed, Shard, Span, TableId};
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! let mut shard = Shard::new(256 << 10, 64 << 10);
//! shard.add_table(TableId(1))?;
//! let key = KeyRef { table: TableId(1), hash: KeyHash(0x0123_4567_89AB_CDEF), bytes: b"42" };
//!
//! let mut page = Vec::new();
//! Record::new(key.table, key.bytes, b"Ada").append(Seed(7), &mut page)?;
//! let location = Location { page: LogPage::new(9).expect("not zero"), span: Span::One };
//! assert_eq!(shard.put(key.hash, &page, location)?, Changed::Absent);
//! assert_eq!(shard.get(key, |record| record.value.to_vec()), Found::Here(b"Ada".to_vec()));
//!
//! shard.forget();
//! let Found::Cold(cold) = shard.get(key, |_| ()) else { panic!("its word is in the index") };
//! for candidate in cold.candidates() {
//!     assert_eq!(candidate.location(), location);
//!     // Here the page is read, without the shard's lock.
//!     let record = Record::parse(Seed(7), &page)?;
//!     if record.key == key.bytes {
//!         assert_eq!(record.value, b"Ada");
//!         assert!(shard.admit(key, candidate, &page));
//!     }
//! }
//! assert_eq!(shard.get(key, |record| record.value.len()), Found::Here(3));
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! * For each key there is one word, whatever is read late, moved or removed meanwhile.
//! * All cached records are on flash too, and may leave at any time.
//! * [`Shard::bytes`] are all that a shard ever takes, except what [`Shard::resize`] and a table
//!   that grows take for a moment. Growth is refused where there is no DRAM for it.
//!
//! What this crate does not do: it has no I/O, no clock and no threads, and does not hash. Its
//! driver appends to the log, reads what is cold, and has a lock around each shard.
#![forbid(unsafe_code)]

mod cache;
mod ghost;
mod planted;
mod record;
mod ring;
mod shard;
mod stamps;
mod table;
mod tables;
mod word;

pub use cache::{CACHE_BYTES_MAX, CACHE_BYTES_MIN, Counts};
#[doc(hidden)]
pub use planted::Planted;
pub use record::{
    BadRecord, Expiry, HEAD_BYTES_MAX, Head, KEY_BYTES_MAX, Record, Seed, TableId, VALUE_BYTES_MAX, bytes_of, reseed,
};
pub use shard::{Candidate, Changed, Cold, Found, KeyRef, Old, Refused, Shard, Verified};
pub use table::{Matches, NoDram, Slot, Table};
pub use word::{KeyHash, Location, LogPage, SHARD_BITS, Span, TAG_BITS, Tag, Word};
