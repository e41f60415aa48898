//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

/// What all files use.
mod common {
    pub use fulgurite_testkit::media::*;
    pub use fulgurite_testkit::{Random, seed};
}
mod world;

mod conform_leaves;
mod conform_nand;
mod conform_objects;
mod conform_pool;
mod conform_processes;
mod conform_requests;
mod conform_upkeep;
mod crash_elsewhere;
mod crash_kill;
mod crash_objects;
mod crash_resize;
mod crash_store;
mod crash_upkeep;
mod fault_full_index;
mod fault_leaves;
mod fault_loss;
mod fault_reads_of_reclaim;
mod fault_store;
mod fault_wear;
mod model_leaves;
mod model_nand_pool;
mod model_objects;
mod model_retention;
mod model_room;
mod model_store;
mod model_wear;
mod regression_copies_of_places_given_away;
mod regression_crafted_journal;
mod regression_crash_loop;
mod regression_late_summaries;
mod regression_overlapping_writes;
mod regression_pages_all_or_none;
mod regression_reclaim_without_room;
mod regression_resize_after_a_stop;
mod regression_writers_and_reclaim;
