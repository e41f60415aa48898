//! The tests of this crate, one program.

mod conform_dram;
mod conform_memory;
mod model_cache;
