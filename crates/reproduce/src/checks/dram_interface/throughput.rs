//! C5 to C8: what the pipeline of processors, DMA engine, buffer and dies moves.

use fulgurite_sim::interface::InterfaceSystem;

use super::system::{Op, load, mb_per_s, prototype, run as run_load, ufs as ufs_system};
use crate::check::{CheckError, Finding, Found, Inputs};

pub const KIB: u64 = 1 << 10;
/// The chunks of figures 6, 7 and 9.
pub const CHUNKS: [u64; 8] = [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB];
/// The chunks and the buffers of figure 8.
pub const CHUNKS_OF_BUFFERS: [u64; 4] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB];
pub const BUFFERS: [u64; 5] = [128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB, 2048 * KIB];

/// Bandwidth of the interface and of the protocol at depth 1 without NAND, in bytes a second.
pub fn bandwidths(inputs: &Inputs<'_>, chunk: u64) -> Result<(f64, f64), CheckError> {
    bandwidths_of(inputs, prototype(inputs, false)?, chunk)
}

/// The two bandwidths over UFS.
pub fn bandwidths_of_ufs(inputs: &Inputs<'_>, chunk: u64) -> Result<(f64, f64), CheckError> {
    bandwidths_of(inputs, InterfaceSystem { bypass: true, ..ufs_system(inputs)? }, chunk)
}

fn bandwidths_of(inputs: &Inputs<'_>, system: InterfaceSystem, chunk: u64) -> Result<(f64, f64), CheckError> {
    // The trace has an event for each chunk, so a chunk is a command.
    let bypassed = InterfaceSystem { split: chunk, buffer: system.buffer.max(chunk), ..system };
    let interface = chunk as f64 / bypassed.moves(chunk).as_s();
    Ok((interface, run_load(&bypassed, load(Op::Read, chunk, 1, false, inputs))?.bytes_per_s))
}

/// What a chunk takes in addition to its transfer, in microseconds.
pub fn latency_us((interface, protocol): (f64, f64), chunk: u64) -> f64 {
    (1.0 / protocol - 1.0 / interface) * chunk as f64 * 1e6
}

pub fn overhead(inputs: &Inputs<'_>) -> Found {
    let mut overheads = Vec::new();
    let mut latencies = Vec::new();
    let mut largest = 0.0;
    for chunk in CHUNKS {
        let (interface, protocol) = bandwidths(inputs, chunk)?;
        overheads.push((1.0 - protocol / interface) * 100.0);
        largest = interface / 1e6;
        let ours = latency_us((interface, protocol), chunk);
        latencies.push((ours, latency_us(bandwidths_of_ufs(inputs, chunk)?, chunk)));
    }
    let (first, last) = (latencies[0], latencies[CHUNKS.len() - 1]);
    let (least, most) = (overheads[CHUNKS.len() - 1], overheads[0]);
    let why = "protocol bandwidth is of a whole command, interface bandwidth of its transfer alone";
    Ok(vec![
        Finding::of("interface", "366.7 MB/s at 512 KB")
            .within(largest, "MB/s", (366.7 * 0.97, 366.7 * 1.03))
            .by("512 KB through the DMA engine, its set-up, and the invalidation of 512 KB"),
        Finding::of("overhead-512k", "3.8% at 512 KB").within(least, "%", (2.8, 4.8)).by(why),
        Finding::of("overhead-4k", "66.8% at 4 KB").within(most, "%", (62.8, 70.8)).by(why),
        Finding::of("falls", "the relative overhead shrinks as the chunk grows")
            .trend(overheads.windows(2).all(|pair| pair[0] > pair[1]), overheads[4], "% at 64 KB")
            .by("a command costs the same for every chunk; the UFS curve of figure 7 has no number in the text"),
        Finding::of("ufs", "the protocol's latency is consistently smaller than that of UFS")
            .trend(
                latencies.iter().all(|(ours, ufs)| ours < ufs),
                first.1 / first.0,
                "times the prototype's latency at 4 KB, UFS",
            )
            .by("a command also goes through the host controller, and as UPIUs over the link. What it costs on \
                 processors and firmware is the prototype's, by our assumption")
            .also("at 512 KB", last.1 / last.0),
    ])
}

/// Read throughput at depth 4, in MB/s.
pub fn with_buffer(inputs: &Inputs<'_>, chunk: u64, buffer: u64) -> Result<f64, CheckError> {
    let mut system = prototype(inputs, true)?;
    system.buffer = buffer;
    mb_per_s(&system, load(Op::Read, chunk, 4, false, inputs))
}

pub fn buffers(inputs: &Inputs<'_>) -> Found {
    let mut by_chunk = Vec::new();
    for chunk in CHUNKS_OF_BUFFERS {
        let each: Result<Vec<f64>, _> = BUFFERS.iter().map(|buffer| with_buffer(inputs, chunk, *buffer)).collect();
        by_chunk.push(each?);
    }
    let [_, _, small, large] = &by_chunk[..] else { unreachable!("there are four chunks") };
    let flat = by_chunk.iter().map(|each| each[4] / each[2]).fold(0.0, f64::max);
    // The least buffer with 98% of the peak.
    let peaks: Vec<u64> = by_chunk
        .iter()
        .map(|each| {
            let peak = each.iter().copied().fold(0.0, f64::max);
            let at = each.iter().position(|value| *value >= 0.98 * peak).unwrap_or(0);
            BUFFERS[at]
        })
        .collect();
    Ok(vec![
        Finding::of("peak", "436 MB/s, 256 KB chunks, 512 KB buffer")
            .within(large[2], "MB/s", (436.0 * 0.97, 436.0 * 1.03))
            .by("four threads keep the DMA engine busy: its rate, less its set-up before each 256 KB"),
        Finding::of("flat", "no gain with more than 512 KB of buffer")
            .trend(flat < 1.02, flat, "times from 512 KB to 2 MB")
            .by("beyond 512 KB the DMA engine is the limit for every chunk"),
        Finding::of("contention", "at 128 KB, 256 KB chunks are slower than 64 KB")
            .trend(large[0] < small[0], large[0] / small[0], "of 64 KB chunks")
            .by("a command fills the buffer, so the next one waits until it has been read out")
            .also("MB/s of 256 KB chunks", large[0])
            .also("MB/s of 64 KB chunks", small[0]),
        Finding::of("small-chunks", "small chunks peak with less buffer")
            .trend(
                peaks.windows(2).all(|pair| pair[0] <= pair[1]) && peaks[0] < peaks[3],
                peaks[3] as f64 / KIB as f64,
                "KB for 98% of the peak, 256 KB chunks",
            )
            .by("four requests fit into less")
            .also("KB for 4 KB chunks", peaks[0] as f64 / KIB as f64),
    ])
}

/// Throughput of the prototype at a depth, in MB/s.
pub fn by_chunk(inputs: &Inputs<'_>, op: Op, depth: u32) -> Result<Vec<f64>, CheckError> {
    let system = prototype(inputs, true)?;
    CHUNKS.iter().map(|chunk| mb_per_s(&system, load(op, *chunk, depth, false, inputs))).collect()
}

pub fn chunks(inputs: &Inputs<'_>) -> Found {
    let (read, write) = (by_chunk(inputs, Op::Read, 4)?, by_chunk(inputs, Op::Write, 4)?);
    let last = CHUNKS.len() - 1;
    let saturated = CHUNKS.iter().zip(&write).find(|(_, rate)| **rate > 0.95 * write[last]).map(|(chunk, _)| *chunk);
    let grows = |each: &[f64]| each.windows(2).all(|pair| pair[1] >= pair[0]);
    Ok(vec![
        Finding::of("read", "432.2 MB/s at 512 KB, depth 4")
            .within(read[last], "MB/s", (432.2 * 0.97, 432.2 * 1.03))
            .by("the DMA engine is the limit, as in figure 8"),
        Finding::of("write", "95.8 MB/s at 512 KB, depth 4")
            .within(write[last], "MB/s", (95.8 * 0.95, 95.8 * 1.05))
            .by("all planes program at once, beside the bus; the text does not name the NAND"),
        Finding::of("saturates", "writes nearly saturated at 64 KB")
            .trend(saturated == Some(64 * KIB), write[4] / write[last] * 100.0, "% of the throughput at 512 KB")
            .by("the least chunk with 95%: four threads have two programs for each plane, and at 32 KB one")
            .also("% at 32 KB", write[3] / write[last] * 100.0),
        Finding::of("grows", "throughput grows with the chunk")
            .trend(grows(&read) && grows(&write), read[0], "MB/s of 4 KB reads, depth 4")
            .by("a command and a transfer cost the same for every chunk"),
    ])
}

/// The four bars of figure 10: prototype and UFS, in MB/s.
pub fn compared_with_ufs(inputs: &Inputs<'_>) -> Result<[(f64, f64); 4], CheckError> {
    let systems: [InterfaceSystem; 2] = [prototype(inputs, true)?, ufs_system(inputs)?];
    let mut bars = [(0.0, 0.0); 4];
    let cases = [
        (Op::Read, 512 * KIB, false),
        (Op::Write, 512 * KIB, false),
        (Op::Read, 4 * KIB, true),
        (Op::Write, 4 * KIB, true),
    ];
    for (bar, (op, chunk, random)) in bars.iter_mut().zip(cases) {
        let [ours, theirs] = &systems;
        *bar = (
            mb_per_s(ours, load(op, chunk, 4, random, inputs))?,
            mb_per_s(theirs, load(op, chunk, 4, random, inputs))?,
        );
    }
    Ok(bars)
}

pub fn ufs(inputs: &Inputs<'_>) -> Found {
    let bars = compared_with_ufs(inputs)?;
    let trend = |name, paper, (ours, theirs): (f64, f64), higher: bool, why| {
        let holds = if higher { ours > theirs } else { ours < theirs };
        Finding::of(name, paper)
            .trend(holds, ours / theirs, "of UFS")
            .by(why)
            .also("MB/s", ours)
            .also("MB/s of UFS", theirs)
    };
    Ok(vec![
        trend("sequential-read", "higher than UFS", bars[0], true, "the link of the phone's UFS is the limit there"),
        trend("write-512k", "lower than UFS", bars[1], false, "half the dies program"),
        trend("read-4k", "lower than UFS", bars[2], false, "fewer dies, and each transfer is set up by the host"),
        trend("write-4k", "lower than UFS", bars[3], false, "fewer dies, and a write waits for its program"),
    ])
}
