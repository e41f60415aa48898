//! The prototype and the UFS device as systems of [`crate::models::device`].

use crate::check::{CheckError, Inputs};
use crate::models::device::{Controller, Driver, Load, Media, Op, Report, System};
use crate::units::Dimension;

/// Requests of each thread in a run. As many as a fifth of them come before, which are not
/// measured.
const REQUESTS: u64 = 300;

/// Picoseconds of a byte at a rate.
fn byte_at(inputs: &Inputs<'_>, rate: &str) -> Result<f64, CheckError> {
    Ok(1e12 / inputs.number(rate, Dimension::Rate)?)
}

/// The largest power of two in it: other ranges would waste what the buddy allocator gives.
fn power_of_two(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}

fn media(inputs: &Inputs<'_>) -> Result<Media, CheckError> {
    let pins = inputs.number("nand.width", Dimension::Bits)?;
    let transfers = inputs.number("chip.nand_interface", Dimension::Frequency)? * inputs.share("chip.edges")?;
    Ok(Media {
        dies: inputs.count("nand.chips")? as u32,
        unit: inputs.bytes("nand.unit")? as u64,
        read: inputs.time("nand.read")?,
        program: inputs.time("nand.program")?,
        bus_byte: 1e12 / (transfers * pins / 8.0),
    })
}

/// The prototype, with its NAND or without.
pub fn prototype(inputs: &Inputs<'_>, with_nand: bool) -> Result<System, CheckError> {
    let command = inputs.time("driver.command")?;
    let host = inputs.share("driver.host_share")?;
    let of_host = crate::Time((command.0 as f64 * host) as u64);
    let invalidation = inputs.time("driver.invalidation")?;
    Ok(System {
        driver: Driver {
            processors: inputs.count("driver.processors")? as u32,
            dma_byte: byte_at(inputs, "driver.dma")?,
            dma_set_up: inputs.time("driver.dma_set_up")?,
            invalidate_byte: invalidation.0 as f64 / inputs.bytes("driver.invalidation_area")?,
            command: of_host,
            command_max: power_of_two(inputs.bytes("driver.command_max")? as u64),
            buffer: inputs.bytes("driver.buffer")? as u64,
        },
        controller: Controller {
            command: command - of_host,
            media: if with_nand { Some(media(inputs)?) } else { None },
            cached_write: false,
        },
        planted: inputs.planted,
    })
}

/// The UFS device: its controller moves the data, it has twice the media, and it answers a write
/// from its buffer.
pub fn ufs(inputs: &Inputs<'_>) -> Result<System, CheckError> {
    let mut system = prototype(inputs, true)?;
    let more = inputs.bytes("ufs.storage")? / (inputs.count("nand.chips")? as f64 * inputs.bytes("nand.chip")?);
    system.driver.processors = inputs.count("ufs.processors")? as u32;
    system.driver.dma_byte = byte_at(inputs, "ufs.link")?;
    system.driver.dma_set_up = crate::Time::ZERO;
    system.driver.invalidate_byte = 0.0;
    if let Some(media) = &mut system.controller.media {
        media.dies = (f64::from(media.dies) * more + 0.5) as u32;
    }
    system.controller.cached_write = true;
    Ok(system)
}

/// A load of so many threads.
pub fn load(op: Op, chunk: u64, depth: u32, random: bool, inputs: &Inputs<'_>) -> Load {
    // Little's law is off by what is under way at both ends.
    Load { op, chunk, depth, random, requests: REQUESTS * u64::from(depth), seed: inputs.seed }
}

/// Runs it.
pub fn run(system: &System, load: Load) -> Result<Report, CheckError> {
    let report = system.run(load);
    report.ok_or_else(|| CheckError::NoAnswer("Little's law does not hold of the device's requests".to_owned()))
}

/// Megabytes a second.
pub fn mb_per_s(system: &System, load: Load) -> Result<f64, CheckError> {
    Ok(run(system, load)?.bytes_per_s / 1e6)
}
