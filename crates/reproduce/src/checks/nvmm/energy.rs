//! D7: power of DRAM alone and of flash behind DRAM.

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// Watts that a size of DRAM takes without being used: standby, and what refresh adds.
fn background(inputs: &Inputs<'_>, bytes: f64) -> Result<(f64, f64), CheckError> {
    let ampere = |name| inputs.number(name, Dimension::Current);
    let volts = inputs.number("energy.voltage", Dimension::Voltage)?;
    let share = inputs.time("energy.refresh_time")?.as_ns() / inputs.time("energy.refresh_every")?.as_ns();
    let chips = bytes / inputs.bytes("energy.chip")?;
    let standby = ampere("energy.standby")?;
    let refresh = (ampere("energy.refresh")? - standby).max(0.0) * share;
    Ok((chips * volts * standby, chips * volts * refresh))
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let [small, large] = inputs.exactly("energy.sizes", Dimension::Bytes)?;
    let [small_cache, large_cache] = inputs.exactly("energy.cache", Dimension::Bytes)?;
    let rate = inputs.number("energy.bandwidth", Dimension::Rate)?;
    let active = rate * inputs.number("energy.byte", Dimension::Energy)?;
    let of_flash =
        rate * inputs.share("energy.flash_share")? * inputs.number("energy.flash_byte", Dimension::Energy)?;
    let dram = |bytes: f64| -> Result<f64, CheckError> {
        let (standby, refresh) = background(inputs, bytes)?;
        Ok(standby + refresh + active)
    };
    let hybrid = |cache: f64| -> Result<f64, CheckError> { Ok(dram(cache)? + of_flash) };
    let (standby, refresh) = background(inputs, large)?;
    let (small_standby, small_refresh) = background(inputs, small)?;
    let idle = standby + refresh;
    let equal = hybrid(small_cache)? / dram(small)?;
    let saved = hybrid(large_cache)? / dram(large)?;
    Ok(vec![
        Finding::of("terabyte", "without low-power modes 1 TB would approach 100 W")
            .within(idle, "W", (60.0, 105.0))
            .by("standby and refresh of 1,024 chips; the text does not give the currents")
            .also("of it by refresh", refresh),
        Finding::of("small", "roughly equivalent at 8 GB")
            .within(equal, "of all-DRAM's power", (0.75, 1.25))
            .by("at the same bandwidth moving the data dominates"),
        Finding::of("dominates", "at 8 GB active power dominates, at 1 TB background")
            .trend(
                small_standby + small_refresh < active && idle > active,
                idle / active,
                "times the active power, 1 TB",
            )
            .by("background grows with the chips, and the bandwidth is held"),
        Finding::of("large", "at 1 TB flash takes significantly less")
            .trend(saved < 0.5, saved, "of all-DRAM's power")
            .by("flash has no background: its power follows the bandwidth, not the capacity"),
    ])
}
