//! A11: throughput of the configurations beside DRAM-only, over the seven workloads.
//!
//! Cores, caches, DRAM, controllers, threads and flash are simulated (`fulgurite_sim::cores`). The
//! text says how often the workloads miss, and not what they are. So Zipf's exponent is the one at
//! which the mean interval between misses is in the middle of the text's. It is the same for all
//! workloads. Each one's interval comes out.

use fulgurite_nand::{Cell, Ecc, Energy, Geometry, Parts, Profile, Queues, Timing, Wear};
use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::closed_forms::bisect;
use fulgurite_sim::cores::{CoreParts, CoresReport, CoresSystem, Paging, Workload, miss_ratio};
use fulgurite_sim::memory::{CacheShape, DramTiming};
use fulgurite_sim::{Planted, Time};

use crate::check::{CheckError, Finding, Inputs};
use crate::units::Dimension;

/// Bytes of a page.
const PAGE: f64 = 4096.0;
/// Simulated time of a core in a run that is reported, and the least of a shorter one.
const SPAN: Time = Time::us(12_000);
const SPAN_LEAST: Time = Time::us(5_000);

/// What the system is divided by: a power of two, so that its parts divide.
fn scale(inputs: &Inputs<'_>) -> Result<u64, CheckError> {
    Ok((inputs.share("miss.scale")?.max(1.0) as u64).next_power_of_two())
}

/// The flash: 50 µs and 100 µs are what a page takes in all.
pub fn flash_of(inputs: &Inputs<'_>, planes: u32) -> Result<Profile, CheckError> {
    let bus = inputs.number("flash.bus", Dimension::Rate)?;
    let command = Time::ns(200);
    let transfer = Time((PAGE * 1e12 / bus) as u64 + 1000);
    let array = |name: &str| Ok::<u64, CheckError>(inputs.time(name)?.since(command + transfer).whole_ns());
    let geometry = Geometry::new(Parts {
        channels: (planes / 8).max(1),
        packages_per_channel: 2,
        dies_per_package: 2,
        planes_per_die: 2,
        blocks_per_plane: 64,
        pages_per_block: inputs.count("flash.block")? as u32,
        page_bytes: PAGE as u64,
    });
    Ok(Profile {
        geometry: geometry.map_err(|error| CheckError::NoAnswer(error.to_string()))?,
        timing: Timing {
            cell: Cell::Tlc,
            command_ns: command.whole_ns(),
            read_ns: array("flash.read")?,
            program_ns: array("flash.write")?,
            erase_ns: inputs.time("flash.erase")?.whole_ns(),
            bus_bytes_per_second: bus as u64,
            commands_first: true,
            registers: 2,
        },
        queues: Queues { die_queue: 64, reorder: true },
        // Wear, errors and energy play no part.
        wear: Wear { endurance: 1_000_000, failure: 2_000_000, spread: 0.0, factory_bad: 0.0 },
        ecc: Ecc { codeword_bytes: 1024, corrects: 40, bit_errors_fresh: 0.0, bit_errors_worn: 0.0 },
        energy: Energy { read_pj: 0, program_pj: 0, erase_pj: 0, transfer_pj: 0 },
    })
}

/// Table I, with a workload.
fn system(
    inputs: &Inputs<'_>,
    workload: Workload,
    exponent: f64,
    paging: Paging,
    jobs: u64,
) -> Result<CoresSystem, CheckError> {
    let clock = "core.clock";
    let cycle = Time((1e12 / inputs.number(clock, Dimension::Frequency)? + 0.5) as u64);
    let cycles =
        |name: &str| -> Result<u64, CheckError> { Ok((inputs.number(name, Dimension::Cycles)? + 0.5).max(0.0) as u64) };
    let time = |name: &str| -> Result<Time, CheckError> { Ok(cycle * cycles(name)?) };
    let scale = scale(inputs)?;
    let cores = (inputs.count("system.cores")? / scale).max(1) as u32;
    let (rows, columns) = match inputs.numbers("system.mesh", Dimension::Count)?[..] {
        [rows, columns] => (rows as u32, columns as u32),
        _ => return Err(CheckError::NoAnswer("a mesh has two numbers of tiles".to_owned())),
    };
    let parts = CoreParts {
        cycle,
        per_cycle: inputs.number("core.per_cycle", Dimension::Count)?,
        reorder_buffer: inputs.count("core.reorder_buffer")?,
        store_buffer: inputs.count("core.store_buffer")? as usize,
        front_end: cycles("core.front_end")?,
        mshrs: inputs.count("l1.mshrs")? as usize,
        tlb: [
            (inputs.count("tlb.first")?, inputs.count("tlb.first")?),
            (inputs.count("tlb.second")?, inputs.count("tlb.ways")?),
        ],
        tlb_cycles: cycles("tlb.latency")?,
        l1: (inputs.bytes("l1.size")? as u64, inputs.count("l1.ways")?, cycles("l1.latency")?),
        llc: (inputs.bytes("llc.size")? as u64, inputs.count("llc.ways")?, cycles("llc.latency")?),
        hop: cycles("mesh.hop")?,
        row: if cores == rows * columns { rows } else { rows.min(cores) },
    };
    let cache = CacheShape {
        sets: inputs.count("cache.sets")? as u32,
        ways: inputs.count("cache.ways")? as u32,
        page_bytes: PAGE as u64,
        status_entries: (inputs.bytes("cache.row")? / inputs.bytes("cache.tag")?) as u32,
        banks: inputs.count("cache.banks")? as u32,
        timing: DramTiming {
            command: time("cache.command")?,
            open: time("cache.ras")?,
            // The text's cycles for a row contain it.
            close: Time::ZERO,
            column: time("cache.cas")?,
            refresh_every: inputs.time("cache.refresh_every")?,
            refresh: inputs.time("cache.refresh")?,
        },
        backside_command: time("cache.backside")?,
    };
    Ok(CoresSystem {
        cores,
        parts,
        controllers: (inputs.count("cache.controllers")? / scale).max(1) as u32,
        cache,
        flash: flash_of(inputs, (inputs.count("flash.planes")? / scale).max(8) as u32)?,
        filled: 1.0 - inputs.share("flash.spare")?,
        pages: (inputs.bytes("system.flash")? / PAGE) as u64 / scale,
        workload,
        exponent,
        paging,
        warm_up: (jobs / 4).max(1),
        jobs,
        planted: Planted::None,
    })
}

/// A workload, how long one of its jobs takes on DRAM-only, and that run.
struct Base {
    workload: Workload,
    jobs: u64,
    report: CoresReport,
}

fn cores_of(inputs: &Inputs<'_>) -> Result<f64, CheckError> {
    let scale = scale(inputs)?;
    Ok((inputs.count("system.cores")? / scale).max(1) as f64)
}

/// DRAM-only with each workload. First a short run, which tells how many jobs fill the time.
fn bases(inputs: &Inputs<'_>, workloads: &[Workload]) -> Result<Vec<Base>, CheckError> {
    let span = Time(SPAN.0 / inputs.shorter).max(SPAN_LEAST);
    let cores = cores_of(inputs)?;
    let run = |workload, jobs| -> Result<CoresReport, CheckError> {
        // The exponent hardly matters where all is in DRAM.
        Ok(system(inputs, workload, 1.0, Paging::DramOnly, jobs)?.run(inputs.seed)?)
    };
    let base = |workload: &Workload| -> Result<Base, CheckError> {
        let first = run(*workload, 4000)?;
        let jobs = (first.jobs_per_s * span.as_s()).max(100.0 * cores) as u64;
        Ok(Base { workload: *workload, jobs, report: run(*workload, jobs)? })
    };
    workloads.iter().map(base).collect()
}

/// The interval between misses that is expected of a workload, in nanoseconds.
fn expected_ns(inputs: &Inputs<'_>, base: &Base, exponent: f64) -> Result<f64, CheckError> {
    let of = system(inputs, base.workload, exponent, Paging::DramOnly, 1)?;
    let frames = u64::from(of.cache.sets) * u64::from(of.cache.ways) * u64::from(of.controllers);
    let shape = base.workload.shape(exponent);
    let records = f64::from(shape.operations * shape.records);
    let job_ns = f64::from(of.cores) * 1e9 / base.report.jobs_per_s;
    Ok(job_ns / (records * miss_ratio(of.pages, exponent, frames)))
}

/// The exponent at which the mean interval is expected to be so long, in nanoseconds.
fn exponent(inputs: &Inputs<'_>, bases: &[Base], wanted_ns: f64) -> Result<f64, CheckError> {
    let mean = |exponent: f64| -> Result<f64, CheckError> {
        let all = bases.iter().map(|base| expected_ns(inputs, base, exponent)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.iter().sum::<f64>() / all.len() as f64)
    };
    mean(1.0)?;
    Ok(bisect(0.5, 2.0, |exponent| mean(exponent).is_ok_and(|mean| mean >= wanted_ns)))
}

pub fn run(inputs: &Inputs<'_>) -> Result<Vec<Finding>, CheckError> {
    // A short run has two of them: one of short jobs, and one of long ones.
    let workloads = if inputs.shorter > 1 { &[Workload::HashTable, Workload::Silo][..] } else { &Workload::ALL };
    let bases = bases(inputs, workloads)?;
    let threads = inputs.count("threads.of_core")? as u32;
    let switch = |cost| Paging::Switch { cost, policy: SchedulingPolicy::PriorityAging, threads };
    let (fault, cost) = (inputs.time("paging.fault")?, inputs.time("paging.switch")?);
    let ways = [
        switch(inputs.time("miss.switch")?),
        switch(Time::ZERO),
        Paging::System { fault, cost, threads: inputs.count("paging.threads")? as u32 },
        Paging::Wait,
    ];
    let ends = inputs.numbers("miss.intervals", Dimension::Time)?;
    let middle_ns = ends.iter().sum::<f64>() / ends.len() as f64 / 1e3;
    // What is expected is of a cache in which every page may be anywhere. With sets of a few ways
    // it misses more often, which a first run tells.
    let first = exponent(inputs, &bases, middle_ns)?;
    let mut found_ns = 0.0;
    for base in &bases {
        let report = system(inputs, base.workload, first, ways[0], base.jobs)?.run(inputs.seed)?;
        found_ns += report.interval_ns.unwrap_or(f64::INFINITY) / bases.len() as f64;
    }
    let exponent = exponent(inputs, &bases, middle_ns * middle_ns / found_ns)?;
    let mut shares = [const { Vec::new() }; 4];
    let mut intervals = Vec::new();
    for base in &bases {
        // With the same exponent: it decides how much of the data is in the chip's caches.
        let dram = system(inputs, base.workload, exponent, Paging::DramOnly, base.jobs)?.run(inputs.seed)?;
        for (way, shares) in ways.into_iter().zip(&mut shares) {
            let report = system(inputs, base.workload, exponent, way, base.jobs)?.run(inputs.seed)?;
            shares.push(100.0 * report.jobs_per_s / dram.jobs_per_s);
            if way == ways[0] {
                intervals.push(report.interval_ns.unwrap_or(f64::INFINITY) / 1e3);
            }
        }
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let [astriflash, ideal, system, wait] = shares;
    let shortest = intervals.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = intervals.iter().copied().fold(0.0, f64::max);
    let of_dram = "% of DRAM-only";
    let mut ours = Finding::within(
        "astriflash",
        "95%",
        mean(&astriflash),
        of_dram,
        (93.0, 97.0),
        "at a miss: tags, signal, flush, switch, and L1 and TLB that others have used; at a hit: the tag column",
    )
    .also("Zipf's exponent", exponent)
    .also("us between misses, mean", mean(&intervals))
    .also("shortest", shortest)
    .also("longest", longest);
    let tatp = bases.iter().position(|base| base.workload == Workload::Tatp);
    ours = ours.also("TATP", tatp.map_or(f64::NAN, |at| intervals[at]));
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let tpcc = bases.iter().position(|base| base.workload == Workload::Tpcc);
    let tpcc_share = tpcc.map_or(f64::NAN, |at| astriflash[at]);
    Ok(vec![
        ours,
        Finding::within(
            "ideal",
            "96%",
            mean(&ideal),
            of_dram,
            (94.0, 98.0),
            "the same without the switch's own time",
        ),
        Finding::within(
            "gap",
            "1 point between them",
            mean(&ideal) - mean(&astriflash),
            "points",
            (0.3, 1.7),
            "100 ns of each interval",
        ),
        Finding::within(
            "os-swap",
            "58%",
            mean(&system),
            of_dram,
            (54.0, 62.0),
            "a fault and a context switch of each interval",
        ),
        Finding::within(
            "flash-sync",
            "27%",
            mean(&wait),
            of_dram,
            (20.0, 32.0),
            "the core waits for the whole flash; 27% would need a stall of 38.9 µs, and the text says 50",
        ),
        Finding::trend(
            "tpcc",
            "TPCC loses most",
            tpcc_share <= least(&astriflash) + 1e-9,
            (tpcc_share, of_dram),
            "TPCC misses least often here; the text's reason, a costlier flush, is 128 instructions whatever they compute",
        )
        .also("the least of all", least(&astriflash)),
    ])
}
