//! `fulgurite-lab peers`: Fulgurite compared with the stores and caches that are its alternatives.
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
use fulgurite_term::exit_code;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("__store") => child::run(),
        Some("__privileged") => fulgurite_harness::privileged::run(),
        _ => exit_code("fulgurite-peers", contest::run(&args::Args::parse().sized())),
    }
}
