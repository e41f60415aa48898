//! `fulgurite`: the demonstration, the benchmarks, and what they need.
//!
//! Holds the command line ([`words`], [`args`], [`values`]), the checks before anything is created ([`checks`]), the helper for what
//! needs rights ([`privileged`]), the process under measurement ([`child`]), the commands ([`bench`], [`device`], [`pool`]) and
//! what they print ([`report`]). Exit codes: 0 done, 1 something failed or the results disagree, 2 bad input, 130 interrupted.
//!
//! It decides nothing about caching, scheduling or devices; those are the layers below.

mod args;
mod bad_input;
mod bench;
mod checks;
mod child;
mod device;
mod interrupt;
mod kernel;
mod kernel_threads;
mod machine;
mod pages;
mod pool;
mod privileged;
mod progress;
mod report;
mod values;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{BenchCommand, Cli, Command};
use bad_input::BadInput;
use interrupt::Interrupted;

fn main() -> ExitCode {
    let cli = Cli::parse_from(words::joined(std::env::args_os(), &Cli::command()));
    let result = match cli.command {
        Command::Child => return child::run(),
        Command::Counter => return bench::survive::counter::run(),
        Command::Privileged => return privileged::run(),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { directory } => pages::manual(&directory),
        Command::Cleanup => pages::cleanup(),
        Command::Pool(command) => pool::run(&command),
        Command::Device(command) => device::run(&command),
        Command::Demo(args) => bench::demo::run(&args),
        Command::Bench(BenchCommand::Micro(args)) => bench::micro::run(&args),
        Command::Bench(BenchCommand::Live(args)) => bench::live::run(&args),
        Command::Bench(BenchCommand::Tail(args)) => bench::tail::run(&args),
        Command::Bench(BenchCommand::Store(args)) => bench::store::run(&args),
        Command::Bench(BenchCommand::Checkpoint(args)) => bench::checkpoint::run(&args),
        Command::Bench(BenchCommand::Policies(args)) => bench::policies::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("fulgurite: interrupted");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("fulgurite: {}", bad_input::told(&error));
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}
