//! NAND flash as a model, and the flash interface layer that drives it: decided and computed,
//! without I/O, clock, threads or unsafe code.
//!
//! * [`geometry`]: channels, packages, dies, planes, blocks, pages, and their numbers.
//! * [`profile`]: a device in a TOML file, with the built-in ones.
//! * [`nand`]: the device as a state machine in nanoseconds of its driver: buses, planes with
//!   registers, queues, wear, errors.
//! * [`fil`]: the flash interface layer: a flat space of flash pages of 4 KiB, as the journaled
//!   store writes it, on that device.
//! * [`counters`]: what both have done.
//!
//! Invariants: the same requests at the same times with the same seed give the same answers. Time
//! never goes back. NAND's rules (program once, in order, erase whole blocks) are checked at every
//! request. No data is here: the driver moves the data.
//!
//! Not here: a clock (the device and the simulator bring their own), the data, and what a place on
//! flash means (the store).

#![forbid(unsafe_code)]

pub mod counters;
pub mod fil;
pub mod geometry;
pub mod nand;
pub mod profile;

mod blocks;
mod divisor;
mod events;
mod random;
mod request;
mod slots;
mod units;

pub use counters::{FilCounters, NandCounters};
pub use fil::{Fil, FilConfig, FilError, FlashDone, FlashOp, FlashRequest, FlashStatus, STATE_MAGIC, StateError};
pub use geometry::{BLOCK_PAGES_MAX, BLOCKS_MAX, Block, Geometry, GeometryError, NandPage, Parts, Plane};
pub use nand::{Command, Done, Nand, NandOp, Resource, Span, Status, SubmitError, Violation};
pub use profile::{Cell, Ecc, Energy, Profile, ProfileError, Queues, Timing, Wear};
