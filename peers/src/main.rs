//! `fulgurite bench peers`: Fulgurite beside the stores and caches that one would take instead.
//!
//! Holds the stores behind one trait ([`stores`]), what a client does ([`drive`]), the process of
//! one store ([`child`]), what runs them in turns ([`contest`], [`series`]), and the parts of the
//! comparison ([`values`], [`small`], [`bank`], [`hits`]). Exit codes: 0 done, 1 something failed,
//! 2 bad input, 130 interrupted.
#![deny(unsafe_code)]

mod args;
mod bank;
mod child;
mod contest;
mod drive;
mod hits;
mod series;
mod small;
mod stores;
mod values;

use std::process::ExitCode;

use clap::Parser as _;
use fulgurite_bench::bad_input::{BadInput, told};
use fulgurite_bench::commands;
use fulgurite_bench::interrupt::Interrupted;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("__store") => return child::run(),
        Some("__privileged") => return commands::privileged(),
        _ => {}
    }
    match contest::run(&args::Args::parse().sized()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("fulgurite: interrupted");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("fulgurite: {}", told(&error));
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}
