//! All tests of this crate, as one program: linked once, with a process for each test.

#[path = "../../cli/tests/common/blocks.rs"]
mod blocks;
mod common;
#[path = "../../cli/tests/common/help.rs"]
mod help;
#[allow(dead_code, reason = "tests of the demonstration use all of it")]
#[path = "common/interrupted.rs"]
mod interrupted;
#[path = "common/quick.rs"]
mod quick;
#[path = "../../cli/tests/common/refused.rs"]
mod refused;
#[allow(dead_code, reason = "tests of the command use all of it")]
#[path = "../../cli/tests/common/served.rs"]
mod served;

mod conform_alloc_quick;
mod conform_bad_input;
mod conform_bench_quick;
mod conform_bench_run;
mod conform_device_flash;
mod conform_device_quick;
mod conform_documents;
mod conform_flash_choice;
mod conform_reproduce;
mod conform_sim;
mod conform_store_quick;
mod conform_tail_quick;
mod fault_devices;
mod fault_interrupt;
mod fault_killed_baseline;
mod fault_leftovers;
mod fault_lost_process;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite-lab");

/// `fulgurite`, next to it: what serves a device, makes a pool or runs a program for a test.
fn fulgurite() -> std::path::PathBuf {
    let program = std::path::Path::new(PROGRAM).with_file_name("fulgurite");
    assert!(program.is_file(), "{} is not there; cargo build -p fulgurite-cli", program.display());
    program
}
