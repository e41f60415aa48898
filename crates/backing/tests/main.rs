//! All tests of this crate, as one program.

mod fault_pool_or_new;
mod fault_settings;
