//! What is measured and what came of it: a [`Cell`] for each combination, and its [`Row`].

use std::time::Duration;

use fulgurite_device::SECTOR_BYTES;
use fulgurite_flash::Op;
use serde::Serialize;

use super::args::Figure;
use super::movers::{Ran, Work};
use fulgurite_harness::Spread;
use fulgurite_term::names;

/// The paper's chunks: 4 KiB to 512 KiB, in sectors.
pub const CHUNKS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const DEPTHS: [usize; 6] = [1, 4, 8, 16, 32, 64];
/// Data buffers of figure 8 in sectors, the largest for four of the largest chunks, twice.
const BUFFERS: [u32; 6] = [16, 32, 64, 128, 256, 512];
/// Its chunks: 4 KiB to 256 KiB.
const BUFFER_CHUNKS: [u32; 4] = [1, 4, 16, 64];

/// Sectors that the paper's driver reads into: 64 MiB, twice a last-level cache.
const INTO: u32 = 16 << 10;
/// The most that the paper's DMA moves, in bytes a second (7.2 and the footnote in 6.2).
const PAPERS_DMA: u64 = 450_000_000;

names! {
    /// How a chunk is moved.
    How {
        /// The host's copies alone, measured with [`How::Bypassed`], in turns.
        Copy = "copy",
        /// The device with nothing behind its firmware.
        Bypassed = "device-bypassed",
        /// Both of these, into one place that stays in the core's caches.
        CopyNear = "copy-near",
        BypassedNear = "device-bypassed-near",
        Device = "device",
        /// The device, where the host computes between two polls, as a worker does.
        DeviceComputing = "device-computing",
        /// The device over plain memory, with copies through the data buffer.
        DeviceCopies = "device-copies",
        /// The device in a process of its own, nothing behind its firmware.
        ProcessBypassed = "process-bypassed",
        Process = "process",
        /// The device in a process of its own, with copies through the data buffer.
        ProcessCopies = "process-copies",
        /// The device over the store over NAND.
        Nand = "nand",
        /// The device over the store over NAND, with copies held to the speed of the paper's DMA.
        NandDma = "nand-dma",
        /// io_uring on a file; the host polls.
        File = "file",
        FileAsleep = "file-asleep",
        /// io_uring on a file, where the host computes between two polls.
        FileComputing = "file-computing",
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub figure: Figure,
    pub how: How,
    pub work: Work,
}

/// How long each is measured in a round.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub each: Duration,
    pub nand: Duration,
}

/// All that is to be measured in a round, in this order.
pub fn cells(figures: &[Figure], times: Times, seed: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |figure, how, op, chunk, depth, buffer| {
        let nand = matches!(how, How::Nand | How::NandDma);
        let time = if nand { times.nand } else { times.each };
        let with_copies = figure == Figure::Interface;
        let into_sectors = if with_copies && how != How::BypassedNear { INTO } else { chunk };
        let copies_per_s = (how == How::NandDma).then_some(PAPERS_DMA);
        let work = Work { op, chunk, depth, buffer, time, seed, with_copies, into_sectors, copies_per_s };
        cells.push(Cell { figure, how, work });
    };
    if figures.contains(&Figure::Interface) {
        for chunk in CHUNKS {
            for how in [How::Bypassed, How::BypassedNear, How::Device, How::ProcessBypassed, How::Process, How::File] {
                add(Figure::Interface, how, Op::Read, chunk, 1, None);
            }
        }
    }
    if figures.contains(&Figure::Depth) {
        for depth in DEPTHS {
            for how in [
                How::Bypassed,
                How::Device,
                How::DeviceComputing,
                How::DeviceCopies,
                How::ProcessBypassed,
                How::Process,
                How::ProcessCopies,
                How::File,
                How::FileAsleep,
                How::FileComputing,
            ] {
                add(Figure::Depth, how, Op::Read, 1, depth, None);
            }
        }
    }
    if figures.contains(&Figure::Buffer) {
        for how in [How::Device, How::Nand, How::NandDma] {
            for buffer in BUFFERS {
                for chunk in BUFFER_CHUNKS {
                    add(Figure::Buffer, how, Op::Read, chunk, 4, Some(buffer));
                }
            }
        }
    }
    if figures.contains(&Figure::Chunk) {
        for op in [Op::Read, Op::Write] {
            for depth in [1, 4] {
                for chunk in CHUNKS {
                    for how in [How::Device, How::Nand, How::File] {
                        add(Figure::Chunk, how, op, chunk, depth, None);
                    }
                }
            }
        }
    }
    cells
}

/// What a cell came to, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub figure: &'static str,
    pub way: &'static str,
    pub op: &'static str,
    pub chunk_bytes: u64,
    pub depth: usize,
    /// Of data buffer, where that is what is varied.
    pub buffer_bytes: Option<u64>,
    pub rounds: usize,
    /// Chunks moved, in all rounds.
    pub chunks: u64,
    /// Time of a chunk: the median for one at a time, else the time by the number of chunks.
    pub us: Spread,
    pub bytes_per_s: Spread,
    pub chunks_per_s: Spread,
    /// CPU time of the host's thread for a chunk, without polls in vain. None for single ones.
    pub host_productive_ns: Option<Spread>,
    /// CPU time of the host's thread for a chunk, user and system, all of it.
    pub host_cpu_ns: Spread,
    /// CPU time for a chunk of the device's thread, and of kernel workers.
    pub other_cpu_ns: Spread,
    /// Interface: what was added to the same copies alone, in the same round.
    pub overhead_us: Option<Spread>,
    /// That overhead as a share of the interface's bandwidth: one less the copies' share (6.2).
    pub overhead_share: Option<Spread>,
    /// What the paper reports of its prototype for this.
    pub paper: Option<Paper>,
    /// Bytes a second by round, for what is compared within a round.
    #[serde(skip)]
    pub by_round: Vec<f64>,
}

/// What the paper says in words; its curves are pictures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Paper {
    pub bytes_per_s: Option<f64>,
    pub overhead_share: Option<f64>,
}

impl Paper {
    /// Of a cell, if there is anything.
    pub fn of(cell: &Cell) -> Option<Paper> {
        let overhead = |share| Some(Paper { bytes_per_s: None, overhead_share: Some(share) });
        let speed = |bytes_per_s| Some(Paper { bytes_per_s: Some(bytes_per_s), overhead_share: None });
        let Work { op, chunk, depth, buffer, .. } = cell.work;
        match (cell.figure, cell.how, chunk, op, depth) {
            // 6.2 and figure 6, its copies by DMA.
            (Figure::Interface, How::Bypassed, 1, ..) => overhead(0.668),
            (Figure::Interface, How::Bypassed, 128, ..) => overhead(0.038),
            (Figure::Interface, How::Copy, 128, ..) => speed(366.7e6),
            // 6.3 and figure 8.
            (Figure::Buffer, How::NandDma, 64, ..) if buffer == Some(128) => speed(436e6),
            // 6.4 and figure 9.
            (Figure::Chunk, How::Nand, 128, Op::Read, 4) => speed(432.2e6),
            (Figure::Chunk, How::Nand, 128, Op::Write, 4) => speed(95.8e6),
            _ => None,
        }
    }
}

fn ns_each(ran: &Ran) -> f64 {
    ran.median_ns.unwrap_or(ran.ns / ran.chunks as f64)
}

/// Sums up all rounds. The copies alone get rows of their own.
pub fn rows(cells: &[Cell], ran: &[Vec<Ran>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (cell, ran) in cells.iter().zip(ran) {
        let copies = match cell.how {
            How::Bypassed => Some(How::Copy),
            How::BypassedNear => Some(How::CopyNear),
            _ => None,
        };
        let alone: Vec<Ran> = ran.iter().filter_map(Ran::copy).collect();
        if let Some(how) = copies.filter(|_| !alone.is_empty()) {
            rows.push(row(&Cell { how, ..*cell }, &alone));
        }
        rows.push(row(cell, ran));
    }
    rows
}

fn row(cell: &Cell, ran: &[Ran]) -> Row {
    let by_round = |of: &dyn Fn(&Ran) -> f64| Spread::of(ran.iter().map(of));
    let known = |of: &dyn Fn(&Ran) -> Option<f64>| Spread::of_any(ran.iter().filter_map(of));
    let bytes = f64::from(cell.work.chunk) * SECTOR_BYTES as f64;
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
        host_productive_ns: known(&|ran| Some((ran.cpu_ns - ran.vain_ns?).max(0.0) / ran.chunks as f64)),
        host_cpu_ns: by_round(&|ran| ran.cpu_ns / ran.chunks as f64),
        other_cpu_ns: by_round(&|ran| ran.other_cpu_ns / ran.chunks as f64),
        overhead_us: known(&|ran| Some((ns_each(ran) - ran.copy_ns?) / 1e3)),
        overhead_share: known(&|ran| Some(1.0 - ran.copy_ns? / ns_each(ran))),
        paper: Paper::of(cell),
        by_round: ran.iter().map(|ran| bytes * 1e9 / ns_each(ran)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { each: Duration::ZERO, nand: Duration::ZERO };
    const ALL: [Figure; 4] = [Figure::Interface, Figure::Depth, Figure::Buffer, Figure::Chunk];

    fn ran(ns: f64) -> Ran {
        Ran { chunks: 1, ns, all_ns: ns, median_ns: Some(ns), cpu_ns: ns, ..Ran::default() }
    }

    #[test]
    fn shares_are_of_the_same_round() {
        let cells: Vec<Cell> = cells(&[Figure::Interface], TIMES, 1);
        // Each round is twice as slow as the last, and the device takes four times the copies.
        let of = |cell: &Cell, times: f64| {
            let copy_ns = (cell.how != How::File).then_some(100.0 * times);
            Ran { copy_ns, ..ran(400.0 * times) }
        };
        let all: Vec<Vec<Ran>> = cells.iter().map(|cell| vec![of(cell, 1.0), of(cell, 2.0)]).collect();
        let rows = rows(&cells, &all);
        let device = rows.iter().find(|row| row.way == "device-bypassed").unwrap();
        let share = device.overhead_share.unwrap();
        assert_eq!((share.min, share.max), (0.75, 0.75));
        assert!((device.overhead_us.unwrap().median - 0.45).abs() < 1e-9);
        for row in &rows {
            let device = row.way.starts_with("device") || row.way.starts_with("process");
            assert_eq!(row.overhead_us.is_some(), device, "{}", row.way);
        }
        // The copies alone stand before what they are in.
        let copies: Vec<&Row> = rows.iter().filter(|row| row.way == "copy").collect();
        assert_eq!(copies.len(), CHUNKS.len());
        assert_eq!(rows.iter().filter(|row| row.way == "copy-near").count(), CHUNKS.len());
        assert!((copies[0].us.median - 0.15).abs() < 1e-9);
    }
    #[test]
    fn polling_in_vain_is_measured_separately() {
        let cells: Vec<Cell> = cells(&[Figure::Depth], TIMES, 1);
        let all: Vec<Vec<Ran>> = cells.iter().map(|_| vec![Ran { vain_ns: Some(300.0), ..ran(400.0) }]).collect();
        let rows = rows(&cells, &all);
        let row = rows.first().unwrap();
        assert_eq!((row.host_cpu_ns.median, row.host_productive_ns.unwrap().median), (400.0, 100.0));
        // More than all cannot have been in vain: the clocks differ a little.
        let more: Vec<Vec<Ran>> = cells.iter().map(|_| vec![Ran { vain_ns: Some(401.0), ..ran(400.0) }]).collect();
        assert_eq!(super::rows(&cells, &more)[0].host_productive_ns.unwrap().median, 0.0);
    }
    #[test]
    fn the_papers_words_are_where_they_belong() {
        let cells = cells(&ALL, TIMES, 1);
        let all: Vec<Vec<Ran>> = cells.iter().map(|_| vec![Ran { copy_ns: Some(1.0), ..ran(2.0) }]).collect();
        let rows = rows(&cells, &all);
        let said: Vec<&str> = rows.iter().filter(|row| row.paper.is_some()).map(|row| row.figure).collect();
        assert_eq!(said, ["interface", "interface", "interface", "buffer", "chunk", "chunk"]);
    }
}
