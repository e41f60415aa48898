//! `fulgurite-lab`: the benchmarks, the simulator and the reproduction of the papers, as commands.
//!
//! Holds the command line ([`commands`], [`args`], [`values`]), checks before anything is created
//! (`checks` of the harness), a module for each command, and the processes that they start. What
//! commands share is `fulgurite-term`; how processes are measured is `fulgurite-harness`. Exit
//! codes: 0 done, 1 something failed or the results disagree, 2 bad input, 130 interrupted.
//!
//! It decides nothing about caching, scheduling or devices; those are the layers below.
#![deny(unsafe_code)]
// They panic where standard error has no reader: `stderr::log` does not.
#![deny(clippy::print_stderr)]

mod alloc;
mod args;
mod catalog;
mod checkpoint;
mod commands;
mod device;
#[expect(unsafe_code, reason = "kernel calls that only a benchmark makes")]
mod kernel;
mod live;
mod live_tables;
mod medium;
mod micro;
mod parallel;
mod peers;
mod policies;
mod reproduce;
mod reproduced;
mod run;
mod sim;
mod store;
mod tail;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fulgurite_harness::privileged;
use fulgurite_term::{exit_code, pages, words};

use catalog::WORKLOADS;
use commands::{Cli, Command};

fn main() -> ExitCode {
    let words = words::joined(std::env::args_os(), &Cli::command());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| words::refuse(&error));
    let result = match cli.command {
        Command::Child => return fulgurite_harness::child::run(WORKLOADS),
        Command::Allocating => return alloc::child::run(),
        Command::Privileged => return privileged::run(),
        Command::Touch => return run::touched::run(),
        Command::Completions { shell } => pages::completions(&Cli::command(), shell),
        Command::Man { directory } => pages::manual(&Cli::command(), &directory),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Sim(command) => sim::run(&command),
        Command::Micro(args) => micro::run(&args),
        Command::Live(args) => live::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Checkpoint(args) => checkpoint::run(&args),
        Command::Alloc(args) => alloc::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Device(args) => device::run(&args),
        Command::DeviceProcess(args) => device::process::run(&args),
        Command::Peers { arguments } => peers::run(&arguments),
    };
    exit_code("fulgurite-lab", result)
}
