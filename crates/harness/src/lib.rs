//! Processes under measurement: in cgroups, in turns, by rounds. What the laboratory and the
//! demonstration share.
//!
//! Processes are started and asked over pipes ([`own_process`]), in cgroups and on a swap file of
//! their own ([`privileged`]), with what they use ([`Usage`], [`kernel_threads`]), their
//! [`Latencies`], and the [`Spread`] of their rounds. An [`experiment`] has them do the same in
//! turns, by rounds, and makes rows, a table and a drawing of that.
//!
//! A comparison is an experiment with a workload's data, built once ([`image`]), configurations in
//! processes of their own ([`session`], [`child`]), and requests that are the same for all
//! ([`calibrate`]). Other work does not disturb its rounds ([`rounds`], [`disturbance`]), and its
//! rows have bars and curves ([`comparison`], [`rows`]).
//!
//! A program says which workloads it has ([`Catalog`]): no others are built into it.
#![deny(unsafe_code)]
#![deny(clippy::print_stderr)]
#![allow(
    missing_docs,
    reason = "fields of rows and of messages are named for what they are, and no other package sees them"
)]

pub mod args;
pub mod calibrate;
mod catalog;
pub mod checks;
pub mod child;
pub mod comparison;
pub mod disturbance;
pub mod experiment;
pub mod fio;
pub mod image;
#[expect(unsafe_code, reason = "kernel calls that only measuring makes")]
pub mod kernel;
pub mod kernel_threads;
mod latencies;
pub mod own_process;
pub mod privileged;
pub mod rounds;
pub mod rows;
pub mod session;
mod share;
mod spread;
mod usage;
pub mod values;
pub mod yardstick;

pub use catalog::{Catalog, Workloads};
pub use latencies::Latencies;
pub use own_process::{Answer, Measured, serve};
pub use privileged::{Capabilities, Helper, Request};
pub use share::Share;
pub use spread::Spread;
pub use usage::Usage;
