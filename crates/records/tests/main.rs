//! The tests of this crate, one program.

mod fault_record;
mod model_record;
mod model_shard;
mod model_table;
