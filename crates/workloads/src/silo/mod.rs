//! Silo: serialisable transactions by optimistic concurrency control, over records that B+-trees
//! find.
//!
//! ```text
//! tid           identifiers, the versions of records
//! transaction   read, write, commit
//! ycsb          "silo": few keys, mostly read
//! tpcc          "silo-tpcc": TPC-C's new orders
//! ```

mod index;
mod tid;
mod tpcc;
mod transaction;
mod ycsb;

pub use tid::Tid;
pub use tpcc::SiloTpcc;
pub use transaction::{Record, Silo, Stop, Transaction, WRITES_MAX};
pub use ycsb::{SiloYcsb, YCSB_KEYS, YcsbRequest};
