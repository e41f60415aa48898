//! All tests of this crate but those under loom, as one program: linked once, and each test runs in a process of its own.

mod common;
#[path = "common/nand.rs"]
mod nand;
mod suite;

mod conform_decorators;
mod conform_media;
mod conform_nand;
mod fault_media;
mod fault_merged_writes;
mod fault_nand;
mod fault_paths;
mod fault_rights;
mod regression_ended_holder;
