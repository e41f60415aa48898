//! The prototype and the UFS device as systems of [`fulgurite_sim::interface`].

use fulgurite_nand::{Cell, Parts, Profile, Queues, Timing};
use fulgurite_sim::Time;
use fulgurite_sim::interface::{Dma, InterfaceReport, InterfaceSystem, Transport, Ufs};

use crate::check::{CheckError, Inputs};
use crate::models::flash::timed;
use crate::units::Dimension;

/// Requests of each thread in a run. As many as a fifth of them come before, which are not
/// measured.
const REQUESTS: u64 = 300;
/// The share of the NAND that is used: enough is spare that no program waits for an erase.
const FILLED: f64 = 0.5;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// The largest power of two in it: other ranges would waste what the buddy allocator gives.
fn power_of_two(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}

/// NAND of `dies` dies, each with a channel of its own and two planes.
fn nand(inputs: &Inputs<'_>, dies: u32) -> Result<Profile, CheckError> {
    let pins = inputs.number("nand.width", Dimension::Bits)?;
    let transfers = inputs.number("chip.nand_interface", Dimension::Frequency)? * inputs.share("chip.edges")?;
    let planes = 2;
    let page_bytes = power_of_two(inputs.bytes("nand.unit")? as u64 / u64::from(planes)).max(4096);
    let block = inputs.count("nand.block")? as u32;
    let parts = Parts {
        channels: dies,
        packages_per_channel: 1,
        dies_per_package: 1,
        planes_per_die: planes,
        // A part of the chip: addresses play no part, and a table of all of it takes time.
        blocks_per_plane: 64,
        pages_per_block: block,
        page_bytes,
    };
    let timing = Timing {
        cell: Cell::Mlc,
        command_ns: 0,
        read_ns: inputs.time("nand.read")?.whole_ns(),
        program_ns: inputs.time("nand.program")?.whole_ns(),
        erase_ns: inputs.time("nand.erase")?.whole_ns(),
        bus_bytes_per_second: (transfers * pins / 8.0) as u64,
        commands_first: true,
        registers: 2,
    };
    timed(parts, timing, Queues { die_queue: 64, reorder: true }).map_err(CheckError::no_answer)
}

/// How the prototype moves data.
pub fn dma(inputs: &Inputs<'_>) -> Result<Dma, CheckError> {
    Ok(Dma {
        setup: inputs.time("driver.dma_set_up")?,
        rate: inputs.number("driver.dma", Dimension::Rate)?,
        invalidate_rate: inputs.bytes("driver.invalidation_area")? / inputs.time("driver.invalidation")?.as_s(),
    })
}

/// The prototype, with its NAND or without. A load says what its threads do.
pub fn prototype(inputs: &Inputs<'_>, with_nand: bool) -> Result<InterfaceSystem, CheckError> {
    let command = inputs.time("driver.command")?;
    let of_host = Time((command.0 as f64 * inputs.share("driver.host_share")?) as u64);
    Ok(InterfaceSystem {
        threads: 1,
        request: 4096,
        writes: false,
        warm_up: REQUESTS / 5,
        count: REQUESTS,
        buffer: inputs.bytes("driver.buffer")? as u64,
        split: power_of_two(inputs.bytes("driver.command_max")? as u64),
        processors: inputs.count("driver.processors")? as u32,
        protocol: of_host,
        firmware: command - of_host,
        random: false,
        cached_writes: false,
        bypass: !with_nand,
        transport: Transport::Dram(dma(inputs)?),
        nand: nand(inputs, inputs.count("nand.chips")? as u32)?,
        filled: FILLED,
        explain: false,
        planted: inputs.simulated_bug(),
    })
}

/// The UFS device: a link of its own, twice the media, and it answers a write from its buffer. A
/// command costs as much on processors and firmware as on the prototype.
pub fn ufs(inputs: &Inputs<'_>) -> Result<InterfaceSystem, CheckError> {
    let dies = inputs.count("nand.chips")? as f64;
    let more = inputs.bytes("ufs.storage")? / (dies * inputs.bytes("nand.chip")?);
    let bytes = |name: &str| Ok::<u64, CheckError>((inputs.bytes(name)? as u64).max(1));
    let link = Ufs {
        slots: inputs.count("ufs.slots")?.max(1) as u32,
        controller: inputs.time("ufs.controller")?,
        rate: inputs.number("ufs.link", Dimension::Rate)?,
        frame: bytes("ufs.frame")?,
        frame_overhead: bytes("ufs.frame_overhead")?,
        upiu: bytes("ufs.upiu")?,
        data: bytes("ufs.data")?,
        transfers: inputs.count("ufs.transfers")?.max(1) as u32,
    };
    Ok(InterfaceSystem {
        processors: inputs.count("ufs.processors")? as u32,
        transport: Transport::Ufs(link),
        nand: nand(inputs, (dies * more + 0.5) as u32)?,
        cached_writes: true,
        ..prototype(inputs, true)?
    })
}

/// Threads that each wait for their request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// What they do.
    pub op: Op,
    /// Bytes of a request.
    pub chunk: u64,
    /// Threads.
    pub depth: u32,
    /// Requests are anywhere, and not one after the other.
    pub random: bool,
    /// Of the addresses.
    pub seed: u64,
}

/// A load of `depth` threads.
pub fn load(op: Op, chunk: u64, depth: u32, random: bool, inputs: &Inputs<'_>) -> Load {
    Load { op, chunk, depth, random, seed: inputs.seed }
}

/// Runs it.
pub fn run(system: &InterfaceSystem, load: Load) -> Result<InterfaceReport, CheckError> {
    let count = REQUESTS * u64::from(load.depth);
    let loaded = InterfaceSystem {
        threads: load.depth,
        request: load.chunk,
        writes: load.op == Op::Write,
        random: load.random,
        warm_up: count / 5,
        count,
        ..system.clone()
    };
    Ok(loaded.run(load.seed)?)
}

/// Megabytes a second.
pub fn mb_per_s(system: &InterfaceSystem, load: Load) -> Result<f64, CheckError> {
    Ok(run(system, load)?.bytes_per_s / 1e6)
}
