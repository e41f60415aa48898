//! All tests of this crate but those under loom, as one program: linked once, and each test runs in
//! a process of its own.

mod common;

mod conform_workloads;
mod fault_workloads;
mod model_rbt;
mod model_search;
mod model_silo;
mod model_tpcc;
