//! Storage on the DRAM interface (C).

mod driver;
mod protocol;
mod suggestions;
pub(crate) mod system;
mod tables;
pub(crate) mod throughput;

use crate::check::Check;
use crate::paper::Paper;

/// The checks.
pub static CHECKS: [Check; 10] = [
    Paper::DramInterface.check("C1", "the controller chip (table 1)", false, tables::chip),
    Paper::DramInterface.check("C2", "the platforms (tables 2 and 3)", false, tables::platforms),
    Paper::DramInterface.check("C3", "the protocol's nine steps (figures 1 to 4)", true, protocol::run),
    Paper::DramInterface.check("C4", "the driver's optimisations (figure 5)", false, driver::run),
    Paper::DramInterface.check("C5", "protocol overhead at depth 1 (figures 6 and 7)", false, throughput::overhead),
    Paper::DramInterface.check("C6", "throughput by buffer and chunk (figure 8)", false, throughput::buffers),
    Paper::DramInterface.check("C7", "throughput by chunk (figure 9)", false, throughput::chunks),
    Paper::DramInterface.check("C8", "beside a UFS 2.0 device (figure 10)", true, throughput::ufs),
    Paper::DramInterface.check("C9", "interfaces, their rates and pins", false, tables::interfaces),
    Paper::DramInterface.check("C10", "suggestions (section 7)", false, suggestions::run),
];
