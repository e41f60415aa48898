//! For tests only: the protocols between threads, compiled over loom's atomics.
//!
//! Holds no code of its own but what replaces the atomics ([`primitive`]) and the shared memory
//! ([`window`]). The modules below are the source files of the crates that use them in production,
//! compiled a second time, so that the code that runs is the code that is checked. Only this crate
//! is compiled with `cfg(loom)`, so everything else is built once.
//!
//! A source file can be checked here when it takes its atomics from `crate::primitive` (or its
//! shared memory from `crate::window`), and nothing else from its crate that is not listed here.
#![forbid(unsafe_code)]
#![allow(dead_code, missing_docs, reason = "these are parts of other crates, where they are used and documented")]

/// `crates/cache`: phases of the cut, residency words and marks of frames.
#[path = "../../cache/src/cut.rs"]
pub mod cut;
#[path = "../../cache/src/marks.rs"]
pub mod marks;
#[path = "../../cache/src/residency.rs"]
pub mod residency;

/// `crates/flash`: the ring between a worker and the emulated device.
#[path = "../../flash/src/ring.rs"]
pub mod flash_ring;

/// `crates/store`: the map from subpages to flash pages, which readers use while it changes.
#[path = "../../store/src/chunked.rs"]
mod chunked;
#[path = "../../store/src/map.rs"]
pub mod map;
mod geometry {
    pub use fulgurite_format::SUBPAGE_BYTES;
    /// As in `crates/store/src/geometry.rs`.
    pub const SUBPAGES_PER_PAGE: u32 = fulgurite_format::subpages_per_page(SUBPAGE_BYTES);
}

/// `crates/device`: the rings and the bell between host and device.
#[path = "../../device/src/bell.rs"]
pub mod bell;
#[path = "../../device/src/ring.rs"]
pub mod ring;

// The files above call it, to fetch lines and for the expedited barrier.
use fulgurite_sys as _;

pub mod primitive;
pub mod window;
