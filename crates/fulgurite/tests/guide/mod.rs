//! The programs that README.md and `docs/guide` show. `conform_guide` runs them.

pub mod backup;
pub mod counters;
#[path = "../../examples/first.rs"]
pub mod first;
pub mod growing;
pub mod index;
pub mod sessions;
