//! All tests of this crate, as one program.

mod conform_closed_forms;
mod conform_determinism;
mod conform_sources;
mod model_core;
