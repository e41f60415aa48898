//! `fulgurite device`: the storage device of the DRAM interface, served to other programs, and its evaluation.
//!
//! [`args`] is its command line, [`medium`] what lies behind its firmware, [`contents`] what its file holds already, [`places`] which paths are of
//! the same file, [`wear`] the file of the NAND's state, [`serve`] the process that other programs attach to, [`boot`] its boot region, [`info`]
//! how it stands, [`bench`] the paper's figures live. The device itself is `fulgurite-device`, its block export `fulgurite-nbd`; nothing here
//! decides anything about either.

pub mod args;
mod bench;
mod boot;
mod contents;
mod info;
mod medium;
mod places;
mod serve;
mod wear;

use anyhow::Result;

use args::DeviceCommand;

/// Runs a command.
pub fn run(command: &DeviceCommand) -> Result<()> {
    match command {
        DeviceCommand::Serve(args) => serve::run(args),
        DeviceCommand::Info(args) => info::run(args),
        DeviceCommand::Boot(args) => boot::run(args),
        DeviceCommand::Bench(args) => bench::run(args),
        DeviceCommand::Beside(args) => bench::process::run(args),
    }
}
