//! All tests of this crate but those under loom, as one program, whose tests run in processes of
//! their own.

use fulgurite_testkit::suite;

/// What all files use.
mod common {
    pub use fulgurite_testkit::media::*;
    pub use fulgurite_testkit::{self as trials, Random, seed};
}
#[path = "common/fuzz.rs"]
mod fuzz;
#[path = "common/mod.rs"]
mod hand;
#[path = "common/process.rs"]
mod process;
#[path = "common/tapped.rs"]
mod tapped;

mod conform_device;
mod conform_memory;
mod conform_session;
mod conform_steps;
mod crash_process;
mod fault_attach;
mod fault_device;
mod fault_fuzz_driver;
mod fault_fuzz_parsers;
mod fault_hostile;
mod fault_hostile_answers;
mod fault_hostile_device;
mod fault_hostile_store;
mod fault_panic;
mod fault_registers;
mod fault_room;
mod fault_shared;
mod fault_socket;
mod fault_stopped;
mod fault_unflushed;
mod regression_commands_under_way;
mod regression_unflushed_fills_no_store;
