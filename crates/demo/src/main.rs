//! `fulgurite-demo`: a search over the text of this machine with a few percent of its index in DRAM
//! ([`search`]), then the act in which memory survives kills ([`survive`]).
//!
//! Exit codes: 0 done, 1 something failed or the results disagree, 2 bad input, 130 interrupted.
#![forbid(unsafe_code)]
// They panic where standard error has no reader: `stderr::log` does not.
#![deny(clippy::print_stderr)]

mod args;
mod search;
mod survive;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fulgurite_harness::{Catalog, Workloads, child, privileged};
use fulgurite_memory::Latch;
use fulgurite_term::{exit_code, words};
use fulgurite_workloads::{Search, UnknownWorkload, Visitor, Workload as _};

/// The one workload of this program.
const WORKLOADS: Workloads = Workloads::of::<SearchAlone>();

struct SearchAlone;

impl Catalog for SearchAlone {
    fn dispatch<L: Latch, V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownWorkload> {
        if name == Search::<L>::NAME {
            return Ok(visitor.visit::<Search<L>>());
        }
        Err(UnknownWorkload { name: name.to_owned(), nearest: Search::<L>::NAME })
    }
}

fn main() -> ExitCode {
    // One configuration under measurement, the program that is killed, and the helper with rights.
    match std::env::args().nth(1).as_deref() {
        Some("__child") => return child::run(WORKLOADS),
        Some("__counter") => return survive::counter::run(),
        Some("__privileged") => return privileged::run(),
        _ => {}
    }
    let words = words::joined(std::env::args_os(), &args::Args::command());
    let args = args::Args::try_parse_from(words).unwrap_or_else(|error| words::refuse(&error));
    exit_code("fulgurite-demo", search::run(&args))
}
