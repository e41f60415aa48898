//! All tests of this crate but those under loom, as one program: linked once, with a process for
//! each test.

mod common;
#[path = "common/quick.rs"]
mod quick;
#[path = "common/refused.rs"]
mod refused;
#[path = "common/runs.rs"]
mod runs;
#[path = "common/served.rs"]
mod served;
#[path = "../../store/tests/world/mod.rs"]
mod world;

mod conform_alloc_quick;
mod conform_bad_input;
mod conform_bench_quick;
mod conform_bench_run;
mod conform_demo_survive;
mod conform_device_flash;
mod conform_device_quick;
mod conform_flash_choice;
mod conform_guide;
mod conform_pool_cli;
mod conform_pool_files;
mod conform_pool_objects;
mod conform_pool_served;
mod conform_reproduce;
mod conform_run;
mod conform_run_allocators;
mod conform_run_memcached;
mod conform_run_pitfalls;
mod conform_run_programs;
mod conform_run_ways;
mod conform_sim;
mod conform_store_quick;
mod conform_tail_quick;
mod conform_top;
mod crash_pool_check;
mod crash_run_pool;
mod fault_device_data;
mod fault_devices;
mod fault_full_disk;
mod fault_interrupt;
mod fault_leftovers;
mod fault_lost_process;
