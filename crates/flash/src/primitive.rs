//! The atomics of the ring. `crates/loom` compiles the ring over loom's in their place.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
