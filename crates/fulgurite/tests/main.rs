//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

#[path = "../../memory/tests/guarded/mod.rs"]
mod guarded;
mod guide;
mod history;
#[path = "../../house/tests/tree/mod.rs"]
mod tree;

mod conform_calls;
mod conform_device;
mod conform_device_pool;
mod conform_dram_moves;
mod conform_give_back;
mod conform_growth;
mod conform_guide;
mod conform_limits;
mod conform_removal;
mod conform_striped_pool;
mod conform_threads;
mod conform_upkeep;
mod crash_blobs;
mod crash_device_pool;
mod crash_histories;
mod crash_roll_back;
mod crash_transactions;
mod fault_blobs;
mod fault_containers;
mod fault_roll_back;
mod fault_setup;
mod fault_stopped_device;
mod fault_surroundings;
mod model_device_pool;
mod model_device_room;
mod model_history;
mod model_object_blobs;
mod model_paged_map;
mod model_pool;
mod model_records;
mod model_sync;
mod model_transactions;
mod model_views;
mod regression_failed_syncs;
mod regression_full_objects;
mod regression_full_pool;
mod regression_halted_workers;
mod regression_last_handle;
mod regression_least_dram;
mod regression_other_memory;
mod regression_overflow_in_a_miss;
mod regression_pages_and_tokens;
mod regression_panic_in_a_sync;
mod regression_roll_back_in_a_read;
