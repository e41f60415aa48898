//! `fulgurite device`: the storage device of the DRAM interface, served to other programs.
//!
//! [`args`] has its command line, [`serve`] its process, [`boot`] its boot region, [`info`] its
//! state. `fulgurite_term::media` has the media, `fulgurite-device` the device, `fulgurite-nbd` the
//! block export.

pub mod args;
mod boot;
mod info;
mod serve;

use anyhow::Result;
use args::DeviceCommand;

pub fn run(command: &DeviceCommand) -> Result<()> {
    match command {
        DeviceCommand::Serve(args) => serve::run(args),
        DeviceCommand::Info(args) => info::run(args),
        DeviceCommand::Boot(args) => boot::run(args),
        DeviceCommand::Bench(moved) => moved.refuse("device bench"),
    }
}
