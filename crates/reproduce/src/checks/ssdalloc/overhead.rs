//! B1 and B3: the runtime's own table, and what objects spare the SSD.

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::Planted;
use crate::models::written::written_for_each_byte;
use crate::units::Dimension;

pub fn overhead(inputs: &Inputs<'_>) -> Found {
    let parts = inputs.numbers("overhead.parts", Dimension::Time)?;
    let (combined, flash) = (inputs.time("overhead.combined")?, inputs.time("overhead.flash")?);
    let sum = parts.iter().sum::<f64>() / 1e6;
    Ok(vec![
        Finding::of("combined", "0.833 µs combined")
            .trend(sum >= combined.as_us(), sum, "µs")
            .by("the parts are maxima, so their sum is above the combined maximum"),
        Finding::of("iops", "can reach 1 million IOPS")
            .within(1.0 / combined.as_us(), "million a second", (1.0, f64::INFINITY))
            .by("one core that only runs the runtime, all flash overlapped"),
        Finding::of("below-flash", "flash latency 30-50 µs")
            .trend(
                combined.as_us() < 0.1 * flash.as_us(),
                combined.as_us() / flash.as_us() * 100.0,
                "% of a flash read",
            )
            .by("the runtime beside the fastest flash"),
    ])
}

pub fn written(inputs: &Inputs<'_>) -> Found {
    let (page, object) = (inputs.bytes("page.size")?, inputs.bytes("object.size")?);
    let full = inputs.share("log.full")?;
    let packs = inputs.planted != Some(Planted::Unpacked);
    let count = |packed| written_for_each_byte(object as usize, packed, full).map_err(CheckError::NoAnswer);
    let (packed, paged) = (count(packs)?, count(false)?);
    Ok(vec![
        Finding::of("less", "up to 32x")
            .exact(32.0, page / object, "times less")
            .by("a page for each dirty object, or the object alone"),
        Finding::of("by-the-store", "up to 32x")
            .within(paged / packed, "times less", (16.0, 32.0 * 1.01))
            .by("store as it is: objects packed to a log beside a flash page for each, with all metadata and reclaim")
            .also("bytes for each byte, packed", packed),
    ])
}
