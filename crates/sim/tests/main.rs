//! All tests of this crate, as one program.

mod common;
mod conform_closed_forms;
mod conform_determinism;
mod conform_flash;
mod conform_interface;
mod conform_law;
mod conform_memory;
mod conform_recorded;
mod conform_sources;
mod conform_systems;
mod conform_ufs;
mod fault_recording;
mod fault_system;
mod fault_trace;
mod model_coherence;
mod model_core;
mod model_cores;
mod model_paging;
mod model_traced;
mod model_workers;
#[path = "../examples/own_policy.rs"]
#[expect(dead_code, reason = "its main is the example's")]
mod own_policy;
