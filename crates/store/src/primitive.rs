//! The atomics that the map is built from: std's, or loom's under `--cfg loom`, so that the very code that runs is the code that
//! is model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
