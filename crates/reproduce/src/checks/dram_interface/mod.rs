//! Storage on the DRAM interface (C).

mod driver;
mod protocol;
mod suggestions;
pub(crate) mod system;
mod tables;
pub(crate) mod throughput;

use crate::check::{Check, Found, Inputs};
use crate::paper::Paper;

const fn check(id: &'static str, about: &'static str, simulated: bool, run: fn(&Inputs<'_>) -> Found) -> Check {
    Check { id, about, paper: Paper::DramInterface, simulated, run }
}

/// The checks.
pub static CHECKS: [Check; 10] = [
    check("C1", "the controller chip (table 1)", false, tables::chip),
    check("C2", "the platforms (tables 2 and 3)", false, tables::platforms),
    check("C3", "the protocol's nine steps (figures 1 to 4)", true, protocol::run),
    check("C4", "the driver's optimisations (figure 5)", false, driver::run),
    check("C5", "protocol overhead at depth 1 (figures 6 and 7)", false, throughput::overhead),
    check("C6", "throughput by buffer and chunk (figure 8)", false, throughput::buffers),
    check("C7", "throughput by chunk (figure 9)", false, throughput::chunks),
    check("C8", "beside a UFS 2.0 device (figure 10)", true, throughput::ufs),
    check("C9", "interfaces, their rates and pins", false, tables::interfaces),
    check("C10", "suggestions (section 7)", false, suggestions::run),
];
