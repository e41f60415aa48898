//! The benchmarks, the demonstration, and what they need.
//!
//! Holds what each is told ([`args`], [`values`]), the checks before anything is created ([`checks`]), the helper for what needs rights
//! ([`privileged`]), the process under measurement ([`child`]), and what is printed, written and drawn ([`report`]).
//! [`device`] is the evaluation of the DRAM interface, and the media of the devices that this program serves. Each benchmark has a
//! `run`, which measures, prints and writes.
//!
//! It parses no command line, and decides nothing about caching, scheduling or devices; those are the layers below.
#![deny(unsafe_code)]

pub mod args;
pub mod bad_input;

mod beside;
mod calibrate;
pub mod checkpoint;
pub mod checks;
pub mod child;
pub mod demo;
pub mod device;
mod disturbance;
mod fio;
mod floor;
mod image;
pub mod interrupt;
#[expect(unsafe_code, reason = "kernel calls that only a benchmark makes")]
mod kernel;
mod kernel_threads;
pub mod live;
pub mod machine;
mod medium;
pub mod micro;
pub mod policies;
pub mod privileged;
pub mod progress;
pub mod report;
mod rounds;
mod session;
pub mod store;
pub mod survive;
pub mod tail;
pub mod values;
