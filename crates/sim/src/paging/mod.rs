//! Programs over more memory than DRAM, by each of the backends that the papers compare.
//!
//! | backend | at an access whose page is not in DRAM |
//! |---|---|
//! | [`Backend::Flat`] | there is none: all of it is DRAM, or PCM |
//! | [`Backend::Controller`] | NVMM: the memory's controller reads the page, and the core waits |
//! | [`Backend::System`] | swap, or a file on an SSD: a fault in its parts. Another thread runs |
//! | [`Backend::Runtime`] | SSDAlloc: a signal. Its runtime reads an object or page from its log |
//!
//! ```text
//!   threads -> cores -> frames of DRAM --miss-> the backend's software -> device -> waiting thread
//!                          |victim, written to                              ^
//!                          +--> evict buffer -----> in place, or a log -----+
//! ```
//!
//! The frames are this model's own (`frames`): one is evicted when one is needed, as in the
//! hardware and the kernels of the papers. `policy` decides which one is evicted and what is read
//! ahead, as in the runtime. The device is `nand` as it is, or a drive of which a data sheet tells
//! how many requests it serves. A core runs one thread until it waits: time slices are not
//! simulated. A victim's frame is free once its contents are in the evict buffer. A miss waits
//! while that is full.

mod device;
mod energy;
mod frames;
mod home;
mod log;
mod misses;
mod report;
mod run;
mod system;

pub use device::RatedShape;
pub use energy::{Energy, Power};
pub use report::PagingReport;
pub use system::{Backend, DeviceKind, PagingSystem, Program, RuntimeCosts, Slots, SystemCosts, Unit};
