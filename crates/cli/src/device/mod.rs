//! `fulgurite device`: the storage device of the DRAM interface, served to other programs, and its evaluation.
//!
//! [`args`] is its command line, [`serve`] the process that other programs attach to, [`boot`] its boot region, [`info`] how it stands. What
//! lies behind its firmware, and the paper's figures live, are `fulgurite_bench::device`; the device itself is `fulgurite-device`, its block
//! export `fulgurite-nbd`. Nothing here decides anything about either.

pub mod args;
mod boot;
mod info;
mod serve;

use anyhow::Result;
use fulgurite_bench::commands;

use args::DeviceCommand;

/// Runs a command.
pub fn run(command: &DeviceCommand) -> Result<()> {
    match command {
        DeviceCommand::Serve(args) => serve::run(args),
        DeviceCommand::Info(args) => info::run(args),
        DeviceCommand::Boot(args) => boot::run(args),
        DeviceCommand::Bench(args) => commands::device(args),
        DeviceCommand::Beside(args) => commands::device_beside(args),
    }
}
