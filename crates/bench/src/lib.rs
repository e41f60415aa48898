//! The benchmarks, the demonstration, and what they need.
//!
//! Options ([`args`], [`values`]), checks before anything is created ([`checks`]), output
//! ([`report`]), the evaluation of the DRAM interface with the media of served devices
//! ([`device`]), and the subcommands ([`commands`]), which measure, print and write.
//!
//! It parses no command line, and decides nothing about caching, scheduling or devices; those are
//! the layers below.
#![deny(unsafe_code)]
// They panic where standard error has no reader: `stderr::tell` does not.
#![deny(clippy::print_stderr)]

mod alloc;
pub mod args;
pub mod bad_input;

mod beside;
mod calibrate;
mod checkpoint;
pub mod checks;
mod child;
mod demo;
pub mod device;
mod disturbance;
mod fio;
mod floor;
mod image;
pub mod interrupt;
#[expect(unsafe_code, reason = "kernel calls that only a benchmark makes")]
mod kernel;
mod kernel_threads;
mod live;
pub mod machine;
mod medium;
mod micro;
mod own_process;
mod policies;
mod privileged;
pub mod progress;
pub mod report;
mod rounds;
pub mod run;
mod session;
pub mod stderr;
mod store;
mod survive;
mod tail;
pub mod values;

/// The subcommands, and the processes that they start.
pub mod commands {
    pub use crate::alloc::child::run as allocating;
    pub use crate::alloc::run as alloc;
    pub use crate::checkpoint::run as checkpoint;
    pub use crate::child::run as child;
    pub use crate::demo::run as demo;
    pub use crate::device::process::run as device_beside;
    pub use crate::device::run as device;
    pub use crate::live::run as live;
    pub use crate::micro::run as micro;
    pub use crate::policies::run as policies;
    pub use crate::privileged::{clean, run as privileged};
    pub use crate::run::run as unmodified;
    pub use crate::run::touched::run as touched;
    pub use crate::store::run as store;
    pub use crate::survive::counter::run as counter;
    pub use crate::tail::run as tail;
}
/// What another program measures with: processes in cgroups, latencies, rounds.
pub mod measuring {
    pub use crate::child::measure::{Latencies, Usage};
    pub use crate::kernel_threads::during as with_kernel_threads;
    pub use crate::own_process::{Answer, Measured, serve};
    pub use crate::privileged::{Capabilities, Helper, Request};
    pub use crate::report::rows::Spread;
}
pub use child::nand_counts::NandCounts;
pub use medium::open_base;
