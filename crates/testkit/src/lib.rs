//! What the tests of all crates share: trials, random numbers, a test's own program as a
//! child, drivers of media and the suite that each medium passes.
//!
//! Only tests use it: it stands under `[dev-dependencies]` and nowhere else, and is not published.
#![forbid(unsafe_code)]

mod child;
mod decorated;
pub mod media;
mod random;
pub mod suite;
mod trials;

pub use child::{again, arguments, kill_after, kill_makers, sync_and_report};
pub use random::Random;
pub use trials::{cannot, each_seed, figure, file_system_of, first_seed, is_full, is_whole, runs, seed, seeds, share};
