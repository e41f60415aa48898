//! Memory as a core sees it beyond its caches: DRAM banks, DRAM as a cache of flash with its two
//! controllers, and the flash behind them.
//!
//! ```text
//!   access --> frontside: row, tags, data --hit--> core
//!                  |miss
//!                  v
//!              backside: miss status row --> victim to the evict buffer, flash read
//!                                            ... page arrives --> row, tags, entry removed
//! ```
//!
//! Each resource has the time from which it is free: accesses come in the order of time, and each
//! takes the first moment at which its bank is free (reservation). The placement of pages is set
//! associative, least recently used first, as AstriFlash has it.

mod cache;
mod controller;
mod dram;
mod pages;

pub use cache::{CacheCounters, CacheShape, DramCache, LookUp, Replaced, Tags};
pub use controller::{Controller, ControllerTiming, Met, Wanted};
pub use dram::{Banks, DramTiming};
pub use pages::FlashPages;
