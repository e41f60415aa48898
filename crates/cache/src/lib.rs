//! The cache: the DRAM that holds subpages of flash. Misses, eviction and the sealing of a cut
//! exist once, for every driver.
//!
//! ```text
//!  access --> near table --> absent bit --> residency word --resident--> frame, its marks
//!                                                | absent
//!                                                +--> Cache::begin_miss --> requests --> medium
//!           waiter <-- Cache::take_notices <-- Cache::poll <-- completions <------------------+
//! ```
//!
//! Invariants:
//! * A subpage is in at most one frame, and a frame holds at most one subpage. The residency word
//!   decides.
//! * A frame that may be in use, or that is pinned, is not given to another subpage.
//! * A waiter that was notified of its subpage finds it in its frame, even with a single frame.
//! * Everything is bounded when it is made.
//!
//! One [`Cache`] belongs to one worker, and [`Shared`] to all of them. A cache is generic over the
//! users of its frames ([`Users`]) and over the replacement policy. It has no threads, fibers,
//! scheduler or clock. Its driver passes the time as a number, numbers its waiters, and is notified
//! how their waits ended. It decides nothing that `policy` decides.
//!
//! A cache touches the memory of a frame only to fill it with zeros, or to copy it for a cut. Over
//! a medium without data (`flash`'s `DrivenFlash`), frames are addresses whose memory is never
//! taken. So the simulator drives this cache as the runtime does.

mod ahead;
mod cache;
pub mod cut;
mod evict;
pub mod frames;
mod free;
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
#[cfg(test)]
mod tests;
mod users;
mod write_back;

pub use ahead::Ahead;
pub use cache::{BYTES_PER_FRAME, Cache, Counts, FrameSources, Outcome, Setup, Wait, depth_for, stock_max};
pub use cut::{Cut, Phase};
pub use frames::Frames;
pub use marks::Marks;
pub use miss::{Miss, Step};
pub use near::{Near, NearView};
#[doc(hidden)]
pub use planted::Planted;
pub use residency::State;
pub use seal::{Sealed, Unsealed, Writer};
pub use shared::{Shape, Shared};
pub use table::Table;
pub use users::Users;
pub use write_back::StillThere;
