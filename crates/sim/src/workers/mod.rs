//! Workers that run fibers over frames over a device: the runtime itself on a machine whose costs
//! were measured, and kernel paging to compare with.
//!
//! ```text
//!   executed workload --> accesses --> fulgurite_cache::Cache -- requests --> device
//!                            |                                                  |
//!                            +-- hit: a measured cost       runnable (policy's scheduler)
//! ```
//!
//! Frames, misses, prefetch, eviction and write-backs are the runtime's cache as it is (`frames`).
//! A worker does between two fibers what the runtime's does, in its order. The cache stands over
//! a medium without data, whose requests end when the device of the model says so.
//!
//! A request computes between its accesses. An access that hits costs what a guard costs. One that
//! misses costs its core the measured CPU time of a miss, and its fiber waits for the device. A
//! victim that is written back costs its time when the request is handed over. The worker sees
//! completions when it chooses what runs next, as the runtime does.
//!
//! Kernel paging is the same model with other costs: threads for fibers, a fault and a context
//! switch for a miss, nothing for a hit.
//!
//! What it predicts is throughput as a share of plain memory. The simple prediction to compare with
//! is W / (W + o), of W computing between two misses and o CPU time of a miss.

mod device;
mod frames;
mod run;

pub use device::{Device, DeviceShape};
pub use run::{Computing, Costs, FrameCounts, WorkersReport, WorkersSystem};
