//! D15: how long flash lasts while the pages that live share what is written.

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::Planted;
use crate::models::wear::Wear;
use crate::models::written::written_for_each_byte;
use crate::units::Dimension;

const FLASH_PAGE: usize = 4096;

/// The model of one device.
pub fn model(inputs: &Inputs<'_>) -> Result<Wear, CheckError> {
    let pages = inputs.count("wear.pages")? as u32;
    let shared = inputs.planted == Some(Planted::DeadPagesWear);
    Ok(Wear::new(pages, inputs.share("wear.shape")?, inputs.seed, shared))
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let wear = model(inputs)?;
    let later = wear.until(1.0) / wear.until(0.5);
    let day = 86_400e12;
    let half = inputs.number("wear.half", Dimension::Time)? / day;
    let all = inputs.number("wear.all", Dimension::Time)? / day;
    let stated = all / half;
    let devices = inputs.count("wear.devices")? as f64;
    let full = inputs.share("wear.full")?;
    let amplification = written_for_each_byte(FLASH_PAGE, false, full).map_err(CheckError::NoAnswer)?;
    let year = 365.25;
    let years = half * devices / year / amplification;
    Ok(vec![
        Finding::of("one-device", "half in just under two days, all in three")
            .within(later, "times as long until all is gone", (stated * 0.95, stated * 1.05))
            .by("living pages share the writes; how far pages differ was chosen to fit"),
        Finding::of("half", "1,000 devices: half in two to three years")
            .within(years, "years", (2.0, 3.0))
            .by("a thousand times one device's days, over what the store writes for each page at 80% full, which the \
                 text does not say")
            .also("pages written for each page", amplification)
            .also("years without that", half * devices / year),
        Finding::of("all", "all in four to five")
            .within(years * later, "years", (4.0, 5.0))
            .by("the same pages, a thousand times as many. The text's days and years differ by a factor that it does \
                 not name: what is written for each page")
            .also("the least factor between the text's days and years", all * devices / year / 5.0)
            .also("the most", half * devices / year / 2.0),
    ])
}
