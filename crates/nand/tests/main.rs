//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod conform_closed_forms;
mod fault_profile;
mod fault_state;
mod fault_wear;
mod model_fil;
mod model_nand;
mod model_queues;
mod model_reclaim_share;
