//! `fulgurite`: the command line, and the commands for pools and for devices that are served.
//!
//! Holds the words and what they mean ([`words`], [`args`]), the commands ([`device`], [`pool`],
//! [`reproduce`] with [`reproduced`], [`run`], [`sim`], [`top`]), completions and manual pages
//! ([`pages`]). What measures is `fulgurite-bench`. Exit codes: 0 done, 1 something failed or the
//! results disagree, 2 bad input, 130 interrupted.
//!
//! It decides nothing about caching, scheduling or devices; those are the layers below.
#![forbid(unsafe_code)]
// They panic where standard error has no reader: `stderr::tell` does not.
#![deny(clippy::print_stderr)]

mod args;
mod device;
mod pages;
mod peers;
mod pool;
mod reproduce;
mod reproduced;
mod run;
mod sim;
mod top;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{BenchCommand, Cli, Command};
use fulgurite_bench::bad_input::{self, BadInput};
use fulgurite_bench::commands;
use fulgurite_bench::interrupt::Interrupted;
use fulgurite_bench::stderr::tell;

fn main() -> ExitCode {
    let words = words::joined(std::env::args_os(), &Cli::command());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| words::refuse(&error));
    let result = match cli.command {
        Command::Child => return commands::child(),
        Command::Allocating => return commands::allocating(),
        Command::Counter => return commands::counter(),
        Command::Privileged => return commands::privileged(),
        Command::Touch => return commands::touched(),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { directory } => pages::manual(&directory),
        Command::Cleanup => pages::cleanup(),
        Command::Run(args) => run::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Pool(command) => pool::run(&command),
        Command::Device(command) => device::run(&command),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Sim(command) => sim::run(&command),
        Command::Demo(args) => commands::demo(&args),
        Command::Bench(BenchCommand::Micro(args)) => commands::micro(&args),
        Command::Bench(BenchCommand::Live(args)) => commands::live(&args),
        Command::Bench(BenchCommand::Tail(args)) => commands::tail(&args),
        Command::Bench(BenchCommand::Store(args)) => commands::store(&args),
        Command::Bench(BenchCommand::Checkpoint(args)) => commands::checkpoint(&args),
        Command::Bench(BenchCommand::Alloc(args)) => commands::alloc(&args),
        Command::Bench(BenchCommand::Policies(args)) => commands::policies(&args),
        Command::Bench(BenchCommand::Run(args)) => commands::unmodified(&args),
        Command::Bench(BenchCommand::Peers { arguments }) => peers::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            tell("fulgurite: interrupted");
            ExitCode::from(130)
        }
        Err(error) => {
            tell(format_args!("fulgurite: {}", bad_input::told(&error)));
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}
