//! Processes under measurement: started and asked over pipes ([`own_process`]), in cgroups and on a
//! swap file of their own ([`privileged`]), with what they use ([`Usage`], [`kernel_threads`]),
//! their [`Latencies`], and the [`Spread`] of their rounds.
//!
//! It knows no benchmark.
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr)]

pub mod kernel_threads;
mod latencies;
pub mod own_process;
pub mod privileged;
mod spread;
mod usage;

pub use latencies::Latencies;
pub use own_process::{Answer, Measured, serve};
pub use privileged::{Capabilities, Helper, Request};
pub use spread::Spread;
pub use usage::Usage;
