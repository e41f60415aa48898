//! All tests of this crate, as one program.

mod conform_unused;
mod fault_pool_or_new;
mod fault_settings;
