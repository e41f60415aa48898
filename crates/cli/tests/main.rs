//! All tests of this crate but those under loom, as one program: linked once, with a process for
//! each test.

#[path = "common/blocks.rs"]
mod blocks;
#[path = "common/help.rs"]
mod help;
#[path = "common/refused.rs"]
mod refused;
#[path = "common/runs.rs"]
mod runs;
#[path = "common/served.rs"]
mod served;
#[path = "../../store/tests/world/mod.rs"]
mod world;

mod conform_bad_input;
mod conform_device_serve;
mod conform_guide;
mod conform_pool_cli;
mod conform_pool_files;
mod conform_pool_objects;
mod conform_pool_served;
mod conform_run;
mod conform_run_allocators;
mod conform_run_memcached;
mod conform_run_pitfalls;
mod conform_run_programs;
mod conform_run_surroundings;
mod conform_run_ways;
mod conform_top;
mod crash_pool_check;
mod crash_run_pool;
mod fault_device_data;
mod fault_full_disk;
mod regression_crafted_journal;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");

/// Its path, for what tests of several programs share.
fn fulgurite() -> std::path::PathBuf {
    PROGRAM.into()
}
