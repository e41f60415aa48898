//! The atomics of the map: std's, or loom's under `--cfg loom`, so that the code that runs is the
//! code that is checked.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
