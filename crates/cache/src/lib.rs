//! The cache: the DRAM that holds subpages of flash; misses, eviction, and the sealing of a cut. What decides exists once, whoever
//! drives it.
//!
//! ```text
//!  access --> near table --> absent bit --> residency word --resident--> frame, its marks
//!                                                |
//!                                                +--absent--> Cache::begin_miss --> requests --> medium
//!                 waiter <-- Cache::take_told <-- Cache::poll <-- completions <------------------+
//! ```
//!
//! Invariants:
//! * A subpage is in at most one frame, and a frame holds at most one subpage; the residency word is the only truth.
//! * A frame that may be in use, or that is pinned, is not given to another subpage.
//! * A waiter that was told of its subpage finds it in its frame: forward progress, with a single frame too.
//! * Everything is bounded when it is made.
//!
//! One [`Cache`] belongs to one worker; what several share is [`Shared`]. A cache is generic over what uses its frames
//! ([`Users`]). It has no threads, no fibers, no scheduler and no clock: its driver brings the time as a number, names its waiters by
//! numbers of its own, and is told what became of their waits. It decides nothing that `policy` decides.

mod ahead;
mod cache;
pub mod cut;
mod evict;
pub mod frames;
pub mod marks;
mod miss;
pub mod near;
mod planted;
mod primitive;
mod request;
mod requests;
pub mod residency;
mod seal;
mod shared;
pub mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod users;
mod write_back;

pub use ahead::Ahead;
pub use cache::{BYTES_PER_FRAME, Cache, Counts, Others, Outcome, Setup, Wait};
pub use cut::Cut;
pub use frames::Frames;
pub use marks::Marks;
pub use miss::{Miss, Step};
pub use near::{Near, NearView};
#[doc(hidden)]
pub use planted::Planted;
pub use residency::State;
pub use seal::{Sealed, Unsealed};
pub use shared::{Shape, Shared};
pub use table::Table;
pub use users::Users;
pub use write_back::StillThere;
