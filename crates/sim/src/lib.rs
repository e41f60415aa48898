//! The simulator: an event kernel in picoseconds, statistics, and models that the kernel drives.
//!
//! | part | holds |
//! |---|---|
//! | [`system`] | systems in TOML files, strictly read, and their runs |
//! | [`energy`] | what DRAM takes |
//! | [`events`] | the order in which things happen |
//! | [`statistics`] | histograms with intervals, and Little's law |
//! | [`random`] | random numbers that are the same for the same seed |
//! | [`front_end`] | what a thread of the queue core does next: the trait of its sources of jobs |
//! | [`flash`] | flash behind a link: `nand` as it is, a map of pages, reclaim |
//! | [`memory`] | DRAM banks, DRAM as a cache of flash with its two controllers |
//! | [`executed`] | workloads that run as they are, and what they touch |
//! | [`workers`] | the runtime on a machine whose costs were measured |
//! | [`path`] | requests over a link to DRAM that may be a cache of flash pages |
//! | [`paging`] | programs over more memory than DRAM: NVMM, SSDs, swap, SSDAlloc |
//! | [`cores`] | cores by intervals, their caches, threads, and workloads from models to traces |
//! | [`interface`] | a device on the DRAM interface: the steps of its protocol |
//! | [`trace`] | traces of other programs, read and written |
//! | [`stages`] | what the time of a request is spent on |
//! | [`queue`] | queues of jobs: servers, and a core that switches at misses |
//! | [`closed_forms`] | what theory says about the same queues |
//!
//! Invariants: a run is a function of its configuration and its seed. Two events never change
//! places: their order is (time, rank, sequence). Nothing here reads a clock, a file or the
//! environment, and no thread is started. Logarithms and exponentials come from `libm`, so that
//! debug and release builds of every platform give the same bytes.
//!
//! It does not hold the papers' parameters or results. `fulgurite-reproduce` does.
#![forbid(unsafe_code)]

pub mod closed_forms;
pub mod cores;
pub mod energy;
pub mod events;
pub mod executed;
pub mod flash;
mod fnv;
pub mod front_end;
pub mod interface;
pub mod memory;
pub mod paging;
pub mod path;
pub mod planted;
pub mod queue;
pub mod random;
pub mod report;
mod servers;
mod slots;
pub mod stages;
pub mod statistics;
pub mod system;
pub mod time;
pub mod trace;
pub mod workers;

pub use cores::{Recording, RecordingError};
pub use events::Events;
pub use fnv::Fnv;
pub use front_end::{FrontEnd, Step};
pub use planted::Planted;
pub use random::Random;
pub use report::{Counted, RunError};
pub use statistics::{Distribution, Estimate, Law, Population, Times};
pub use system::{Report, RunInput, System, SystemError};
pub use time::Time;
pub use trace::Trace;
