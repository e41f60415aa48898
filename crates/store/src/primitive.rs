//! The atomics of the map. `crates/loom` compiles the map over loom's in their place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
