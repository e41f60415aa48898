//! All tests of this crate, as one program.

mod conform_honesty;
mod conform_reproduction;
mod conform_scale;
mod fault_calibration;
