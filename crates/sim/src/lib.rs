//! The simulator: an event kernel in picoseconds, statistics, and models that the kernel drives.
//!
//! | part | holds |
//! |---|---|
//! | [`events`] | the order in which things happen |
//! | [`statistics`] | histograms with intervals, and Little's law |
//! | [`random`] | random numbers that are the same for the same seed |
//! | [`front_end`] | what a thread does next: the one trait of all sources of work |
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
pub mod events;
pub mod front_end;
pub mod queue;
pub mod random;
pub mod statistics;
pub mod time;

pub use events::Events;
pub use front_end::{FrontEnd, Step};
pub use random::Random;
pub use statistics::{Distribution, Estimate, Law, Population, Times};
pub use time::Time;
