//! Silo: serialisable transactions by optimistic concurrency control, over records that B+-trees
//! find.
//!
//! ```text
//! tid           identifiers, the versions of records
//! transaction   read, write, commit
//! ycsb          "silo": few keys, mostly read
//! ```

mod tid;
mod transaction;
mod ycsb;

pub use tid::Tid;
pub use transaction::{Record, Silo, Stop, Transaction, WRITES_MAX};
pub use ycsb::{SiloYcsb, YCSB_KEYS, YcsbRequest};
