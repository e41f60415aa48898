//! `device bench`: the evaluation of *Design and Implementation of a Mobile Storage Leveraging the DRAM Interface* (6.2 to 6.4), live.
//!
//! Everything is measured once in each round, the ways to do the same thing one after the other, so that whatever disturbs the machine
//! disturbs all of them; shares are of the same round. The host has the first core and the firmware the last one. What cannot be
//! compared is said: the paper's device had its data moved by DMA at up to 450 MB/s, here the host's core copies.

mod nbd_client;
mod shown;
mod ways;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use fulgurite_device::{DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, SECTOR_BYTES};
use fulgurite_flash::{FileConfig, FileFlash, Flash, MemoryFlash, Op};
use fulgurite_format::format_bytes;
use fulgurite_nbd::{NbdAddress, NbdConfig, NbdServer};
use fulgurite_sys::affinity;
use serde::Serialize;

use super::args::{BenchArgs, Figure};
use super::medium::{self, Plan};
use crate::bad_input::bad_input;
use crate::checks;
use crate::interrupt::{Interrupt, Interrupted};
use crate::machine::Machine;
use crate::pool::mover::Mover;
use crate::progress;
use crate::report::charts::stack;
use crate::report::rows::Spread;
use crate::report::{self, Report};

use ways::{Copies, Driver, OverNbd, Queued, Ran, Way, Work};

/// The paper's chunks: 4 KiB to 512 KiB, in sectors.
const CHUNKS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Commands in flight.
const DEPTHS: [usize; 6] = [1, 4, 8, 16, 32, 64];
/// Data buffers of figure 8: 64 KiB to 1 MiB, in sectors.
const BUFFERS: [u32; 5] = [16, 32, 64, 128, 256];
/// Its chunks: 4 KiB to 256 KiB.
const BUFFER_CHUNKS: [u32; 4] = [1, 4, 16, 64];

/// How long a firmware that has nothing to do spins: two are on one core, and the one that is not measured must be asleep. Less than
/// [`SETTLE`], more than a host that measures ever pauses.
const SPIN: Duration = Duration::from_micros(500);
/// Between two measurements, so that whoever served the last one sleeps.
const SETTLE: Duration = Duration::from_millis(1);

/// How a chunk is moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum How {
    Copy,
    Bypassed,
    Device,
    File,
    Nbd,
}

impl How {
    const ALL: [How; 5] = [How::Copy, How::Bypassed, How::Device, How::File, How::Nbd];
    fn name(self) -> &'static str {
        match self {
            How::Copy => "copy",
            How::Bypassed => "device-bypassed",
            How::Device => "device",
            How::File => "file",
            How::Nbd => "nbd",
        }
    }
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug)]
struct Cell {
    figure: Figure,
    how: How,
    work: Work,
}

/// It, over all rounds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    figure: &'static str,
    way: &'static str,
    op: &'static str,
    chunk_bytes: u64,
    depth: usize,
    /// Of data buffer, where that is what is varied.
    buffer_bytes: Option<u64>,
    rounds: usize,
    /// Chunks moved, in all rounds.
    chunks: u64,
    /// Of a chunk: the time of one alone, the middle one of a round; with several at a time, the time by their number.
    us: Spread,
    bytes_per_s: Spread,
    chunks_per_s: Spread,
    /// Time in which the host did something for a chunk, looking in vain left out.
    host_ns: Spread,
    /// CPU time of the host's thread for a chunk, the kernel's on its behalf included; it polls without end but over file and NBD.
    host_cpu_ns: Spread,
    /// Interface: what was added to the copies alone, in the same round.
    overhead_us: Option<Spread>,
    /// The same as a share of the interface's bandwidth: one less what the copies take of it all (6.2).
    overhead_share: Option<Spread>,
    /// What the paper reports of its prototype for this.
    paper: Option<Paper>,
}

/// What the paper says in words; its curves are pictures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Paper {
    bytes_per_s: Option<f64>,
    overhead_us: Option<f64>,
    overhead_share: Option<f64>,
    from: &'static str,
}

impl Paper {
    /// Of a cell, if there is anything.
    fn of(cell: &Cell) -> Option<Paper> {
        let none = Paper { bytes_per_s: None, overhead_us: None, overhead_share: None, from: "" };
        let Work { op, chunk, depth, buffer, .. } = cell.work;
        match (cell.figure, cell.how, chunk, op, depth) {
            // 66.8% of what 4 KiB took; the time follows from it and the interface's bandwidth, some 370 MB/s.
            (Figure::Interface, How::Bypassed, 1, ..) => Some(Paper {
                overhead_us: Some(22.0),
                overhead_share: Some(0.668),
                from: "6.2, figures 6 and 7",
                ..none
            }),
            (Figure::Interface, How::Bypassed, 128, ..) => {
                Some(Paper { overhead_share: Some(0.038), from: "6.2, figure 6", ..none })
            }
            (Figure::Interface, How::Copy, 128, ..) => {
                Some(Paper { bytes_per_s: Some(366.7e6), from: "6.2, figure 6: by DMA", ..none })
            }
            (Figure::Buffer, _, 64, ..) if buffer == Some(128) => {
                Some(Paper { bytes_per_s: Some(436e6), from: "6.3, figure 8", ..none })
            }
            (Figure::Chunk, How::Device, 128, Op::Read, 4) => {
                Some(Paper { bytes_per_s: Some(432.2e6), from: "6.4, figure 9", ..none })
            }
            (Figure::Chunk, How::Device, 128, Op::Write, 4) => {
                Some(Paper { bytes_per_s: Some(95.8e6), from: "6.4, figure 9", ..none })
            }
            _ => None,
        }
    }
}

/// All that is to be measured in a round, in this order.
fn cells(figures: &[Figure], time: Duration, seed: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |figure, how, op, chunk, depth, buffer| {
        cells.push(Cell { figure, how, work: Work { op, chunk, depth, buffer, time, seed } });
    };
    if figures.contains(&Figure::Interface) {
        for chunk in CHUNKS {
            for how in How::ALL {
                add(Figure::Interface, how, Op::Read, chunk, 1, None);
            }
        }
    }
    if figures.contains(&Figure::Depth) {
        for depth in DEPTHS {
            for how in [How::Bypassed, How::Device, How::File, How::Nbd] {
                add(Figure::Depth, how, Op::Read, 1, depth, None);
            }
        }
    }
    if figures.contains(&Figure::Buffer) {
        for buffer in BUFFERS {
            for chunk in BUFFER_CHUNKS {
                add(Figure::Buffer, How::Device, Op::Read, chunk, 4, Some(buffer));
            }
        }
    }
    if figures.contains(&Figure::Chunk) {
        for op in [Op::Read, Op::Write] {
            for depth in [1, 4] {
                for chunk in CHUNKS {
                    for how in [How::Device, How::File, How::Nbd] {
                        add(Figure::Chunk, how, op, chunk, depth, None);
                    }
                }
            }
        }
    }
    cells
}

/// What is measured on. What comes first is dropped first: who uses something goes before it.
struct Rig {
    copies: Copies,
    bypassed: Driver,
    bypassed_queue: Queued,
    device: Driver,
    device_queue: Queued,
    file: Queued,
    nbd: OverNbd,
    _server: NbdServer,
    _files: tempfile::TempDir,
    about: String,
}

impl Rig {
    fn start(plan: &Plan, directory: &PathBuf, device_core: Option<usize>, interrupt: &Interrupt) -> Result<Rig> {
        let sectors = (plan.bytes() / SECTOR_BYTES as u64) as u32;
        let files = tempfile::Builder::new().prefix("fulgurite-device-").tempdir_in(directory)?;
        let preparing = progress::waiting("a file of the same size");
        let file: Arc<dyn Flash> =
            Arc::new(FileFlash::open(&FileConfig::create(files.path().join("file"), plan.bytes()))?);
        preparing.finish_and_clear();
        let memory = || -> Result<Arc<dyn Flash>> {
            let memory = MemoryFlash::new(sectors)?;
            // All of it is there before it is timed.
            memory.storage().zero(0, memory.storage().len());
            Ok(Arc::new(memory))
        };
        let device = |flash: Arc<dyn Flash>, bypass: bool, copies: bool| -> Result<Arc<DeviceFlash>> {
            let firmware = FirmwareConfig { bypass, ..FirmwareConfig::default() };
            let config = DeviceConfig { core: device_core, spin: SPIN, firmware };
            Ok(Arc::new(DeviceFlash::start(flash, config, HostConfig { copies, ..HostConfig::default() })?))
        };
        let config = DeviceConfig { core: device_core, spin: SPIN, ..DeviceConfig::default() };
        let medium = plan.open(interrupt)?;
        let stored = medium.nand().is_some();
        let medium = medium.start(config)?;
        let about = format!("{}; the file: {}", medium.flash().describe(), file.describe());
        if stored {
            // What was never written is not read from NAND.
            let mut rest = 0..sectors;
            Mover::new(&**medium.flash())?.write(|page| {
                page.fill(1);
                Ok(rest.next())
            })?;
        }
        let nothing = device(Arc::new(MemoryFlash::new(sectors)?), true, false)?;
        let over_medium = Arc::new(DeviceFlash::on(medium, HostConfig::default()));
        let socket = files.path().join("nbd");
        let mut config = NbdConfig::new(NbdAddress::Unix(socket.clone()));
        config.depth = 256;
        let server = NbdServer::start(memory()?, config)?;
        Ok(Rig {
            copies: Copies::new(CHUNKS[CHUNKS.len() - 1])?,
            bypassed: Driver::new(nothing.clone()),
            bypassed_queue: Queued::new(nothing, true),
            device: Driver::new(over_medium.clone()),
            device_queue: Queued::new(over_medium, true),
            file: Queued::new(file, false),
            nbd: OverNbd::new(nbd_client::Client::connect(&socket)?),
            _server: server,
            _files: files,
            about,
        })
    }
    fn run(&mut self, cell: &Cell) -> Result<Ran> {
        std::thread::sleep(SETTLE);
        let without_copies = cell.figure == Figure::Depth;
        let way: &mut dyn Way = match (cell.how, without_copies) {
            (How::Copy, _) => &mut self.copies,
            (How::Bypassed, false) => &mut self.bypassed,
            (How::Bypassed, true) => &mut self.bypassed_queue,
            (How::Device, false) => &mut self.device,
            (How::Device, true) => &mut self.device_queue,
            (How::File, _) => &mut self.file,
            (How::Nbd, _) => &mut self.nbd,
        };
        way.run(&cell.work).with_context(|| format!("{} failed at {:?}", cell.how.name(), cell.work))
    }
}

/// Runs it.
pub fn run(args: &BenchArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let machine = Machine::describe();
    let quick = args.output.quick;
    let bytes = args.size.unwrap_or(if quick { 64 << 20 } else { 256 << 20 });
    let plan = Plan::of(&args.nand, Some(bytes), None, &machine)?;
    if bytes < 4 << 20 {
        bad_input!("--size {} is less than 4 MiB, eight of the largest chunks; choose more", format_bytes(bytes));
    }
    let device_core = medium::core(args.core)?;
    let directory = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    if !directory.is_dir() {
        bad_input!("--dir {} is no directory", directory.display());
    }
    checks::space("--dir", &directory, bytes)?;
    // The device's medium, what is behind NBD, and some buffers.
    checks::memory(2 * bytes + (64 << 20), bytes, &machine)?;
    let rounds = args.rounds.unwrap_or(if quick { 3 } else { 7 });
    let time = Duration::from_millis(if quick { 4 } else { 20 });
    let cores = affinity::cores();
    let mut rig = Rig::start(&plan, &directory, device_core, &interrupt)?;
    // From here on: the threads of devices and of the server are there, and not held to this core.
    affinity::pin(cores[0]).with_context(|| format!("core {} cannot be had", cores[0]))?;

    let cells = cells(&args.figure, time, args.output.seed);
    let mut ran: Vec<Vec<Ran>> = vec![Vec::new(); cells.len()];
    let bar = progress::steps("rounds", u64::from(rounds) * cells.len() as u64);
    let mut interrupted = false;
    'rounds: for _ in 0..rounds {
        let mut round = Vec::with_capacity(cells.len());
        for cell in &cells {
            if interrupt.asked() {
                interrupted = true;
                break 'rounds;
            }
            bar.set_message(format!("{} {}", cell.figure.name(), cell.how.name()));
            round.push(rig.run(cell)?);
            bar.inc(1);
        }
        for (all, one) in ran.iter_mut().zip(round) {
            all.push(one);
        }
    }
    bar.finish_and_clear();
    let rows = if ran.iter().any(Vec::is_empty) { Vec::new() } else { rows(&cells, &ran) };

    report::print(&args.output, &machine.line())?;
    let cores_line = format!(
        "the host on core {}, the firmware on {}; {}, {rounds} rounds",
        cores[0],
        device_core.map_or("any".to_owned(), |core| format!("core {core}")),
        rig.about
    );
    report::print(&args.output, &cores_line)?;
    report::print(&args.output, &shown::tables(&rows))?;
    let goals = shown::goals(&rows);
    for goal in &goals {
        report::print(&args.output, &goal.line())?;
    }
    if device_core.is_none() || device_core == Some(cores[0]) {
        report::print(&args.output, "Host and firmware share a core: they take turns, and all of it says little.")?;
    }
    let setting = serde_json::json!({
        "size_bytes": bytes,
        "round_ms": time.as_secs_f64() * 1e3,
        "host_core": cores[0],
        "device_core": device_core,
        "media": rig.about,
        "nand": args.nand.to_string(),
        "goals": goals,
        "optimised": !cfg!(debug_assertions),
    });
    let command = report::command_line();
    report::write_json(
        &args.output,
        &Report { machine: &machine, command, setting, interrupted, failed: &[], rows: &rows },
    )?;
    report::write_plot(&args.output, || stack(&shown::drawings(&rows)))?;
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

/// Time of a chunk.
fn ns_each(ran: &Ran) -> f64 {
    ran.median_ns.unwrap_or(ran.ns / ran.chunks as f64)
}

/// What all rounds came to.
fn rows(cells: &[Cell], ran: &[Vec<Ran>]) -> Vec<Row> {
    // The copies alone, by chunk.
    let copies: BTreeMap<u32, &Vec<Ran>> = cells
        .iter()
        .zip(ran)
        .filter(|(cell, _)| cell.figure == Figure::Interface && cell.how == How::Copy)
        .map(|(cell, ran)| (cell.work.chunk, ran))
        .collect();
    let row = |(cell, ran): (&Cell, &Vec<Ran>)| {
        let by_round = |of: &dyn Fn(&Ran) -> f64| Spread::of(&ran.iter().map(of).collect::<Vec<_>>());
        let bytes = f64::from(cell.work.chunk) * SECTOR_BYTES as f64;
        let alone =
            (cell.figure == Figure::Interface && cell.how != How::Copy).then(|| copies.get(&cell.work.chunk)).flatten();
        let beside = |of: &dyn Fn(f64, f64) -> f64| {
            let pairs = alone?.iter().zip(ran).map(|(copy, it)| of(ns_each(copy), ns_each(it)));
            Some(Spread::of(&pairs.collect::<Vec<_>>()))
        };
        // Only through the device are the copies part of the time.
        let through = matches!(cell.how, How::Bypassed | How::Device);
        Row {
            figure: cell.figure.name(),
            way: cell.how.name(),
            op: if cell.work.op == Op::Write { "write" } else { "read" },
            chunk_bytes: bytes as u64,
            depth: cell.work.depth,
            buffer_bytes: cell.work.buffer.map(|sectors| u64::from(sectors) * SECTOR_BYTES as u64),
            rounds: ran.len(),
            chunks: ran.iter().map(|ran| ran.chunks).sum(),
            us: by_round(&|ran| ns_each(ran) / 1e3),
            bytes_per_s: by_round(&|ran| bytes * 1e9 / ns_each(ran)),
            chunks_per_s: by_round(&|ran| 1e9 / ns_each(ran)),
            host_ns: by_round(&|ran| ran.own_ns / ran.chunks as f64),
            host_cpu_ns: by_round(&|ran| ran.cpu_ns / ran.chunks as f64),
            overhead_us: beside(&|copy, it| (it - copy) / 1e3).filter(|_| through),
            overhead_share: beside(&|copy, it| 1.0 - copy / it).filter(|_| through),
            paper: Paper::of(cell),
        }
    };
    cells.iter().zip(ran).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_same_round() {
        let cells: Vec<Cell> = cells(&[Figure::Interface], Duration::ZERO, 1);
        let ran = |ns: f64| Ran { chunks: 1, ns, median_ns: Some(ns), own_ns: 0.0, cpu_ns: 0.0 };
        // Each round is twice as slow as the one before, in all ways; the device takes four times the copies.
        let of = |cell: &Cell| if cell.how == How::Copy { 100.0 } else { 400.0 };
        let all: Vec<Vec<Ran>> = cells.iter().map(|cell| vec![ran(of(cell)), ran(2.0 * of(cell))]).collect();
        let rows = rows(&cells, &all);
        let device = rows.iter().find(|row| row.way == "device-bypassed").unwrap();
        let share = device.overhead_share.unwrap();
        assert_eq!((share.min, share.max), (0.75, 0.75));
        assert!((device.overhead_us.unwrap().median - 0.45).abs() < 1e-9);
        assert!(rows.iter().all(|row| row.overhead_us.is_some() == row.way.starts_with("device")));
        assert!(How::ALL.iter().all(|how| rows.iter().any(|row| row.way == how.name())));
    }
    #[test]
    fn the_papers_words_are_where_they_belong() {
        let all = [Figure::Interface, Figure::Depth, Figure::Buffer, Figure::Chunk];
        let said: Vec<(&str, Paper)> = cells(&all, Duration::ZERO, 1)
            .iter()
            .filter_map(|cell| Some((cell.figure.name(), Paper::of(cell)?)))
            .collect();
        let figures: Vec<&str> = said.iter().map(|(figure, _)| *figure).collect();
        assert_eq!(figures, ["interface", "interface", "interface", "buffer", "chunk", "chunk"]);
    }
}
