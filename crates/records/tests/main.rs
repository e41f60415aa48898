//! The tests of this crate, one program.

mod conform_dram;
mod conform_memory;
mod fault_record;
mod model_record;
mod model_shard;
mod model_table;
