//! The cache: the DRAM that holds subpages of flash, and the words that say where each subpage is.
//!
//! ```text
//!  access --> near table --> absent bit --> residency word --resident--> frame, its marks
//! ```
//!
//! Invariants:
//! * A subpage is in at most one frame, and a frame holds at most one subpage; the residency word is the only truth.
//! * A frame that may be in use, or that is pinned, is not given to another subpage.
//!
//! It has no threads, no fibers, no scheduler and no clock: a driver brings these.

pub mod frames;
pub mod marks;
pub mod near;
mod primitive;
pub mod residency;
pub mod table;

pub use frames::Frames;
pub use marks::Marks;
pub use near::{Near, NearView};
pub use residency::State;
pub use table::Table;
