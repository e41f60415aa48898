//! All tests of this crate, as one program.

mod fault_settings;
