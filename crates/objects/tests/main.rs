//! The tests of this crate, one program.

mod conform_dram;
mod model_cache;
