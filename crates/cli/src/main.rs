//! `fulgurite`: the command line, and the commands for pools, devices that are served, and programs
//! that run with memory larger than their DRAM.
//!
//! Holds the command line ([`args`]) and the commands ([`device`], [`pool`], [`run`], [`top`]).
//! What measures is `fulgurite-lab`, and none of it is in this program. Exit codes: 0 done, 1
//! something failed, 2 bad input, 130 interrupted.
//!
//! It decides nothing about caching, scheduling or devices; those are the layers below.
#![forbid(unsafe_code)]
// They panic where standard error has no reader: `stderr::log` does not.
#![deny(clippy::print_stderr)]

mod args;
mod device;
mod pool;
mod run;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};
use fulgurite_term::{exit_code, leftovers, pages, words};

use args::{Cli, Command};

fn main() -> ExitCode {
    let words = words::joined(std::env::args_os(), &Cli::command());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| words::refuse(&error));
    exit_code("fulgurite", execute(&cli.command))
}

fn execute(command: &Command) -> Result<()> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Top(args) => top::run(args),
        Command::Pool(command) => pool::run(command),
        Command::Device(command) => device::run(command),
        Command::Cleanup { directories } => cleanup(directories),
        Command::Completions { shell } => pages::completions(&Cli::command(), *shell),
        Command::Man { directory } => pages::manual(&Cli::command(), directory),
        Command::Bench(moved) => moved.refuse("bench"),
        Command::Demo(moved) => moved.refuse("demo"),
        Command::Reproduce(moved) => moved.refuse("reproduce"),
        Command::Sim(moved) => moved.refuse("sim"),
    }
}

/// Removes what ended runs have left, and flash files of killed starts in these directories.
fn cleanup(directories: &[PathBuf]) -> Result<()> {
    let mut cleaned = leftovers::clean();
    let usual = [PathBuf::from("."), std::env::temp_dir()];
    run::leftovers::remove(if directories.is_empty() { &usual } else { directories }, &mut cleaned);
    for removed in &cleaned.removed {
        println!("removed {removed}");
    }
    for in_use in &cleaned.in_use {
        println!("{in_use}");
    }
    if !cleaned.failed.is_empty() {
        bail!("{}; run as the user whose run it was, or as root", cleaned.failed.join("; "));
    }
    if cleaned.removed.is_empty() && cleaned.in_use.is_empty() {
        println!("nothing to remove");
    }
    Ok(())
}
