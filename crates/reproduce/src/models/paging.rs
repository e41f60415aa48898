//! Systems for `sim::paging`: what all checks that run it have in common.
//!
//! Checks say what a system is, from their calibration. Energy is none of their findings.

use fulgurite_nand::{Cell, GeometryError, Parts, Queues, Timing};
use fulgurite_policy::ReplacementPolicy;
use fulgurite_sim::energy::DramEnergy;
use fulgurite_sim::paging::{Backend, DeviceKind, Energy, PagingSystem, Program};
use fulgurite_sim::{Planted, RunError, Time};

use super::flash::timed;

/// Pages of the evict buffer of each controller.
const BUFFER: u32 = 64;
/// Blocks of a plane, and pages of a block: more than the programs' data needs.
const BLOCKS: (u32, u32) = (256, 128);
/// The share of the flash's pages that can be written: the rest is spare for reclaim.
pub const FILLED: f64 = 0.45;

/// A thread that does nothing. A check says what is different.
pub const PLAIN: Program = Program {
    threads: 1,
    data: 0,
    object: 4096,
    run: 1,
    random: 1.0,
    skew: 0.0,
    writes: 0.0,
    synced: 0.0,
    work: Time::ZERO,
    untimed: 0,
    warm_up: 0,
    count: 0,
};

/// A program on one core, over memory of one kind. A check says what is different.
pub fn base(program: Program, backend: Backend) -> PagingSystem {
    PagingSystem {
        program,
        cores: 1,
        dram: program.data,
        page: 4096,
        access: Time::ZERO,
        replacement: ReplacementPolicy::Lru,
        controllers: 1,
        buffer: BUFFER,
        backend,
        device: None,
        energy: Energy { dram: DramEnergy::default(), controller_w: 0.0, request_j: 0.0, idle_w: 0.0, busy_w: None },
        explain: false,
        planted: Planted::None,
    }
}

/// NAND with a channel for each package.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flash {
    /// Packages, and planes of each.
    pub packages: u32,
    /// Planes of a package.
    pub planes: u32,
    /// Bytes of a page.
    pub page: u64,
    /// Cycles of a command on the bus.
    pub command: Time,
    /// From the array to a register.
    pub read: Time,
    /// From a register to the array.
    pub program: Time,
    /// Of a block.
    pub erase: Time,
    /// Bytes a second on the bus of a package.
    pub bus: u64,
    /// Requests that wait at a die.
    pub queue: u32,
}

impl Flash {
    /// A page on a package's bus.
    pub fn transfer(&self) -> Time {
        Time((self.page as f64 / self.bus as f64 * 1e12) as u64)
    }
    /// As a device.
    ///
    /// # Errors
    /// When no device divides like that.
    pub fn device(&self) -> Result<DeviceKind, GeometryError> {
        let parts = Parts {
            channels: self.packages,
            packages_per_channel: 1,
            dies_per_package: 1,
            planes_per_die: self.planes,
            blocks_per_plane: BLOCKS.0,
            pages_per_block: BLOCKS.1,
            page_bytes: self.page,
        };
        let timing = Timing {
            cell: Cell::Mlc,
            command_ns: self.command.whole_ns(),
            read_ns: self.read.whole_ns(),
            program_ns: self.program.whole_ns(),
            erase_ns: self.erase.whole_ns(),
            bus_bytes_per_second: self.bus,
            commands_first: true,
            registers: 2,
        };
        let profile = timed(parts, timing, Queues { die_queue: self.queue, reorder: false })?;
        Ok(DeviceKind::Nand(profile, FILLED))
    }
}

/// What came of a run whose every access is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// From the beginning to the end of the last access.
    pub time: Time,
    /// Accesses that found no page, not even one on its way, for each access.
    pub miss_ratio: f64,
    /// Bytes that the device was asked to write, for each access.
    pub written: f64,
    /// Accesses a second.
    pub rate: f64,
}

/// Runs a system.
///
/// # Errors
/// What the run returns.
pub fn run(system: &PagingSystem, seed: u64) -> Result<Outcome, RunError> {
    let report = system.run(seed)?;
    Ok(Outcome {
        time: Time((report.simulated_s * 1e12 + 0.5) as u64),
        miss_ratio: report.miss_ratio.unwrap_or(0.0),
        written: report.written_bytes_per_access,
        rate: report.accesses_per_s,
    })
}
