//! D16: what a plane's second register, the order on the bus and the queues of the device do, by
//! `nand` as it is.

use fulgurite_nand::{Geometry, Parts, Profile};
use fulgurite_sim::flash::{Arrivals, Pattern};
use fulgurite_sim::paging::DeviceKind;

use super::memory::flash;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::flash::asked;

/// Reads of a run that is reported, and the least.
const READS: u64 = 40_000;
const READS_LEAST: u64 = 2_000;
/// Requests that may wait at a die: "a few entries", and enough for all.
const QUEUES: (u32, u32) = (4, 64);
/// Requests under way: more than short queues hold, and fewer than long ones do.
const DEPTH: u32 = 256;

/// Pages that a device reads in a second, with a number of requests under way.
fn reads_per_s(inputs: &Inputs<'_>, nand: (Profile, f64), pattern: Pattern, depth: u32) -> Result<f64, CheckError> {
    let count = inputs.volume(READS).max(READS_LEAST);
    let requests = (Arrivals::Closed(depth), pattern, 1.0);
    Ok(asked((nand.0, nand.1, 0), requests, count, inputs.seed)?.requests_per_s)
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let device = flash(inputs, inputs.time("technology.mlc.read")?)?.device().map_err(CheckError::no_answer)?;
    let DeviceKind::Nand(whole, filled) = device else {
        return Err(CheckError::no_answer("the flash is no NAND"));
    };
    // One package with `planes_per_die` planes.
    let package = |planes_per_die: u32| -> Result<Profile, CheckError> {
        let parts = Parts { channels: 1, planes_per_die, ..whole.geometry.parts() };
        Ok(Profile { geometry: Geometry::new(parts).map_err(CheckError::no_answer)?, ..whole })
    };
    let with = |registers: u32| -> Result<f64, CheckError> {
        let mut plane = package(1)?;
        plane.timing.registers = registers;
        reads_per_s(inputs, (plane, filled), Pattern::Sequential, 4)
    };
    let first = |commands: bool| -> Result<f64, CheckError> {
        let mut four = package(4)?;
        four.timing.commands_first = commands;
        reads_per_s(inputs, (four, filled), Pattern::Sequential, 16)
    };
    let queued = |die_queue: u32, reorder: bool| -> Result<f64, CheckError> {
        let mut all = whole;
        (all.queues.die_queue, all.queues.reorder) = (die_queue, reorder);
        reads_per_s(inputs, (all, filled), Pattern::Random, DEPTH)
    };
    let registers = with(2)? / with(1)?;
    let order = first(true)? / first(false)?;
    let (blocked, longer, passing) = (queued(QUEUES.0, false)?, queued(QUEUES.1, false)?, queued(QUEUES.0, true)?);
    Ok(vec![
        Finding::of("registers", "two registers hide the transfer time of the interface")
            .trend(registers > 1.0, registers, "times the reads of a plane with one")
            .by("one register sends while the other one reads"),
        Finding::of("commands-first", "commands before return data keep planes from being idle")
            .trend(order > 1.0, order, "times the reads, four planes on a bus")
            .by("a command that waits for data leaves its plane idle for a transfer"),
        Finding::of(
            "head-of-line",
            "a command whose die has no place in its queue holds up the whole queue of the FTL",
        )
        .trend(blocked < longer && blocked < passing, passing / blocked, "times the reads where commands may pass it")
        .by("queues of four at each die; longer ones make it rarer")
        .also("times the reads with queues of 64", longer / blocked),
    ])
}
