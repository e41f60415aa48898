//! SSDAlloc (B).

use crate::check::{Check, CheckError, Finding, Inputs};
use crate::paper::Paper;
use crate::units::Dimension;

/// The checks.
pub static CHECKS: [Check; 2] = [
    Check { id: "B1", about: "overhead of the runtime", paper: Paper::SsdAlloc, simulated: false, run: overhead },
    Check { id: "B3", about: "bytes written beside swap", paper: Paper::SsdAlloc, simulated: false, run: written },
];

fn overhead(inputs: &Inputs<'_>) -> Result<Vec<Finding>, CheckError> {
    let parts = inputs.numbers("overhead.parts", Dimension::Time)?;
    let (combined, flash) = (inputs.time("overhead.combined")?, inputs.time("overhead.flash")?);
    let sum = parts.iter().sum::<f64>() / 1e6;
    Ok(vec![
        Finding::trend(
            "combined",
            "0.833 µs combined",
            sum >= combined.as_us(),
            (sum, "µs"),
            "the parts are maxima, so their sum is above the combined maximum",
        ),
        Finding::within(
            "iops",
            "can reach 1 million IOPS",
            1.0 / combined.as_us(),
            "million a second",
            (1.0, f64::INFINITY),
            "one core that only runs the runtime, all flash overlapped",
        ),
        Finding::trend(
            "below-flash",
            "flash latency 30-50 µs",
            combined.as_us() < 0.1 * flash.as_us(),
            (combined.as_us() / flash.as_us() * 100.0, "% of a flash read"),
            "the runtime beside the fastest flash",
        ),
    ])
}

fn written(inputs: &Inputs<'_>) -> Result<Vec<Finding>, CheckError> {
    let ours = inputs.bytes("page.size")? / inputs.bytes("object.size")?;
    Ok(vec![Finding::exact(
        "less",
        "up to 32x",
        32.0,
        ours,
        "times less",
        "a page for each dirty object, or the object alone",
    )])
}
