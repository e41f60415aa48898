//! What is below a cache, opened by one interface: which medium, whether it keeps a pool, and how
//! requests get there.
//!
//! | | flat | a pool |
//! |---|---|---|
//! | memory, an emulated device | [`Medium::memory`], [`Medium::emulated`] | |
//! | a file | [`Medium::file`], [`Medium::new_file`] | [`Medium::pool`], [`Medium::new_pool`] |
//! | a device of another process | [`Medium::device`] | [`Medium::device_pool`] |
//!
//! [`Base`] is what is at the bottom of each of them, and one function opens it.
//!
//! The unused part of a pool is a flat medium, too ([`unused_of_pool`]).
//!
//! A medium of this process is reached directly, or through a device of this process on a core of
//! its own ([`Settings::on_device`]).
//!
//! Invariants: a setting that a medium cannot honour is refused by name, before anything is created
//! or changed. Each medium says itself how workers drive it ([`fulgurite_flash::Tuning`]), so that
//! every program drives it alike.
//!
//! What this crate does not do: it holds no frames and runs no jobs, and it makes no pool for
//! benchmarks.
#![forbid(unsafe_code)]

mod base;
mod devices;
mod error;
mod files;
mod medium;
mod open;
mod unused;

pub use base::{Base, NandBase, NandHistory, OpenBase};
pub use devices::{flat_on_device, names_states, on_device};
pub use error::Error;
pub use files::Files;
pub use medium::Medium;
pub use open::{HISTORY_SHARE, Kept, Opened, Settings, leaf_bytes, nameless_file};
pub use unused::unused_of_pool;
