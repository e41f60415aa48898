//! A11: throughput of the configurations compared with DRAM-only, over the seven workloads.
//!
//! Cores, caches, DRAM, controllers, threads and flash are simulated (`fulgurite_sim::cores`). The
//! text says how often the workloads miss, and not what they are. So Zipf's exponent is the one at
//! which the mean interval between misses is in the middle of the text's. It is the same for all
//! workloads. Each one's interval comes out.
//!
//! These runs also give what a miss costs a core ([`Measured`]), which A12 and A13 use.

use std::sync::Arc;

use fulgurite_nand::{Cell, Parts, Profile, Queues, Timing};
use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::closed_forms::bisect;
use fulgurite_sim::cores::{CoreParts, CoresSystem, MissCost, Paging, Shape, Workload, miss_ratio};
use fulgurite_sim::energy::DramEnergy;
use fulgurite_sim::memory::{CacheShape, DramTiming};

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::flash::timed;
use crate::units::Dimension;

/// Bytes of a page.
const PAGE: f64 = 4096.0;
/// Simulated time of a core in a run that is reported, and the least of a shorter one.
const SPAN: Time = Time::us(6_000);
const SPAN_LEAST: Time = Time::us(3_000);
/// The least jobs of a core.
const JOBS_LEAST: f64 = 600.0;

/// What the system is divided by: a power of two, so that its parts divide.
fn scale(inputs: &Inputs<'_>) -> Result<u64, CheckError> {
    Ok((inputs.share("miss.scale")?.max(1.0) as u64).next_power_of_two())
}

/// The flash: 50 µs and 100 µs are what a page takes in all.
pub fn flash_of(inputs: &Inputs<'_>, planes: u32) -> Result<Profile, CheckError> {
    let bus = inputs.number("flash.bus", Dimension::Rate)?;
    let command = inputs.time("flash.command")?;
    let transfer = Time((PAGE * 1e12 / bus) as u64 + 1000);
    let array = |name: &str| Ok::<u64, CheckError>(inputs.time(name)?.since(command + transfer).whole_ns());
    let divided: Vec<u32> = inputs.counts("flash.parts")?.into_iter().map(|count| count as u32).collect();
    let [packages_per_channel, dies_per_package, planes_per_die] = divided[..] else {
        return Err(CheckError::no_answer("flash.parts needs packages, dies and planes"));
    };
    let parts = Parts {
        channels: (planes / (packages_per_channel * dies_per_package * planes_per_die)).max(1),
        packages_per_channel,
        dies_per_package,
        planes_per_die,
        blocks_per_plane: inputs.count("flash.plane_blocks")? as u32,
        pages_per_block: inputs.count("flash.block")? as u32,
        page_bytes: PAGE as u64,
    };
    let timing = Timing {
        cell: Cell::Tlc,
        command_ns: command.whole_ns(),
        read_ns: array("flash.read")?,
        program_ns: array("flash.write")?,
        erase_ns: inputs.time("flash.erase")?.whole_ns(),
        bus_bytes_per_second: bus as u64,
        commands_first: true,
        registers: 2,
    };
    let queues = Queues { die_queue: inputs.count("flash.die_queue")? as u32, reorder: true };
    timed(parts, timing, queues).map_err(CheckError::no_answer)
}

/// What an operation of a workload is like. How many nodes of the red-black tree are outside of
/// DRAM's constant part are its records.
fn shape(inputs: &Inputs<'_>, workload: Workload) -> Result<Shape, CheckError> {
    let leaf = |value: &str| format!("workloads.{}.{value}", workload.name());
    let count = |value: &str| inputs.number(&leaf(value), Dimension::Count);
    Ok(Shape {
        operations: count("operations")?,
        compute: count("compute")?,
        levels: count("levels")?,
        records: count("records")?,
        blocks: count("blocks")?,
        writes: 100.0 * inputs.share(&leaf("writes"))?,
        own: count("own")?,
        // Its nodes are found one by the other. In all others an index leads to each record.
        path: workload == Workload::Rbt,
    })
}

/// Misses in the backside's queue, and pages of the evict buffer.
pub fn buffers(inputs: &Inputs<'_>) -> Result<(u32, u32), CheckError> {
    match inputs.counts("cache.buffers")?[..] {
        [queue, pages] => Ok((queue as u32, pages as u32)),
        _ => Err(CheckError::no_answer("cache.buffers needs a queue and an evict buffer")),
    }
}

/// Table I, with a workload.
pub fn system(
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
    let [rows, columns] = inputs.exactly("system.mesh", Dimension::Count)?.map(|tiles| tiles as u32);
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
        directory: cycles("directory.lookup")?,
        hop: cycles("mesh.hop")?,
        row: if cores == rows * columns { rows } else { rows.min(cores) },
        link: inputs.bytes("mesh.link")? as u64,
    };
    let (queue, evict_pages) = buffers(inputs)?;
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
        queue,
        evict_pages,
    };
    Ok(CoresSystem {
        cores,
        parts,
        controllers: (inputs.count("cache.controllers")? / scale).max(1) as u32,
        cache,
        flash: Some(flash_of(inputs, (inputs.count("flash.planes")? / scale).max(8) as u32)?),
        filled: 1.0 - inputs.share("flash.spare")?,
        // Energy plays no part.
        energy: DramEnergy::default(),
        pages: (inputs.bytes("system.flash")? / PAGE) as u64 / scale,
        cached_tables: false,
        workload,
        shape: Some(shape(inputs, workload)?),
        exponent,
        paging,
        warm_up: (jobs / 4).max(1),
        jobs,
        planted: inputs.simulated_bug(),
    })
}

/// Runs that are shorter than this have two workloads only.
const VERY_SHORT: u64 = 10;
/// Jobs of a first run, which tells how long one takes.
const FIRST: u64 = 4_000;

/// A workload, how many jobs fill the time, and how many end in a second on DRAM-only.
struct Base {
    workload: Workload,
    jobs: u64,
    jobs_per_s: f64,
}

fn cores_of(inputs: &Inputs<'_>) -> Result<f64, CheckError> {
    let scale = scale(inputs)?;
    Ok((inputs.count("system.cores")? / scale).max(1) as f64)
}

/// DRAM-only with each workload, in a short run.
fn bases(inputs: &Inputs<'_>, workloads: &[Workload]) -> Result<Vec<Base>, CheckError> {
    let span = Time(SPAN.0 / inputs.shorter).max(SPAN_LEAST);
    let cores = cores_of(inputs)?;
    let base = |workload: &Workload| -> Result<Base, CheckError> {
        // The exponent hardly matters where all is in DRAM.
        let first = system(inputs, *workload, 1.0, Paging::DramOnly, FIRST)?.run(inputs.seed)?;
        let jobs = (first.jobs_per_s * span.as_s()).max(JOBS_LEAST * cores) as u64;
        Ok(Base { workload: *workload, jobs, jobs_per_s: first.jobs_per_s })
    };
    workloads.iter().map(base).collect()
}

/// The interval between misses that is expected of a workload, in nanoseconds.
fn expected_ns(inputs: &Inputs<'_>, base: &Base, exponent: f64) -> Result<f64, CheckError> {
    let of = system(inputs, base.workload, exponent, Paging::DramOnly, 1)?;
    let frames = u64::from(of.cache.sets) * u64::from(of.cache.ways) * u64::from(of.controllers);
    let records = shape(inputs, base.workload)?.records_of_job();
    let job_ns = f64::from(of.cores) * 1e9 / base.jobs_per_s;
    Ok(job_ns / (records * miss_ratio(of.pages, exponent, frames)))
}

/// The exponent at which the mean interval is expected to be this long, in nanoseconds.
fn exponent(inputs: &Inputs<'_>, bases: &[Base], wanted_ns: f64) -> Result<f64, CheckError> {
    let mean = |exponent: f64| -> Result<f64, CheckError> {
        let all = bases.iter().map(|base| expected_ns(inputs, base, exponent)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.iter().sum::<f64>() / all.len() as f64)
    };
    mean(1.0)?;
    Ok(bisect(0.5, 2.0, |exponent| mean(exponent).is_ok_and(|mean| mean >= wanted_ns)))
}

/// What the runs have found of one workload.
#[derive(Clone, Debug)]
pub struct OfWorkload {
    /// Which.
    pub workload: Workload,
    /// Nanoseconds of a core for a job on DRAM-only.
    pub job_ns: f64,
    /// Nanoseconds of a core between two misses, on AstriFlash.
    pub interval_ns: f64,
    /// A core's computing between two misses: that time on DRAM-only.
    pub computing_ns: f64,
    /// Percent of DRAM-only: AstriFlash, Ideal, OS-Swap, Flash-Sync.
    pub shares: [f64; 4],
    /// Percent of the accesses to DRAM that find their page there, on AstriFlash.
    pub absorbed: f64,
    /// Nanoseconds that a miss costs the core on AstriFlash, in all.
    pub cost_ns: f64,
    /// The parts of it that the core sees at the miss itself.
    pub parts: MissCost,
}

/// What the runs have found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Zipf's exponent at which the mean interval is in the middle of the text's.
    pub exponent: f64,
    /// Each workload.
    pub of: Vec<OfWorkload>,
}

impl Measured {
    /// The mean of all workloads.
    pub fn mean(&self, of: impl Fn(&OfWorkload) -> f64) -> f64 {
        self.of.iter().map(of).sum::<f64>() / self.of.len() as f64
    }
    /// One workload.
    ///
    /// # Errors
    /// It was not run.
    pub fn of(&self, workload: Workload) -> Result<&OfWorkload, CheckError> {
        let found = self.of.iter().find(|of| of.workload == workload);
        found.ok_or_else(|| CheckError::NoAnswer(format!("{} was not run", workload.name())))
    }
}

/// AstriFlash, Ideal, OS-Swap and Flash-Sync.
fn ways(inputs: &Inputs<'_>) -> Result<[Paging; 4], CheckError> {
    let threads = inputs.count("threads.of_core")? as u32;
    let switch = |cost| Paging::Switch { cost, policy: SchedulingPolicy::PriorityAging, threads };
    let (fault, cost) = (inputs.time("paging.fault")?, inputs.time("paging.switch")?);
    Ok([
        switch(inputs.time("miss.switch")?),
        switch(Time::ZERO),
        Paging::System { fault, cost, threads: inputs.count("paging.threads")? as u32 },
        Paging::Wait,
    ])
}

/// The runs of A11, once for all checks that need them.
pub fn measured(inputs: &Inputs<'_>) -> Result<Arc<Measured>, CheckError> {
    inputs.shared.get(inputs, measure)
}

fn measure(inputs: &Inputs<'_>) -> Result<Measured, CheckError> {
    // A very short run has two of them: one of short jobs, and A13's.
    let workloads =
        if inputs.shorter > VERY_SHORT { &[Workload::HashTable, Workload::Tatp][..] } else { &Workload::ALL };
    let bases = bases(inputs, workloads)?;
    let ways = ways(inputs)?;
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
    let core_ns = cores_of(inputs)? * 1e9;
    let mut of = Vec::new();
    for base in &bases {
        // With the same exponent: it decides how much of the data is in the chip's caches.
        let dram = system(inputs, base.workload, exponent, Paging::DramOnly, base.jobs)?.run(inputs.seed)?;
        let job_ns = core_ns / dram.jobs_per_s;
        let mut shares = [0.0; 4];
        let mut ours = None;
        for (way, share) in ways.into_iter().zip(&mut shares) {
            let report = system(inputs, base.workload, exponent, way, base.jobs)?.run(inputs.seed)?;
            *share = 100.0 * report.jobs_per_s / dram.jobs_per_s;
            if way == ways[0] {
                let accesses = report.memory_accesses_per_job;
                ours = Some((core_ns / report.jobs_per_s, accesses, report.interval_ns, report.miss_cost));
            }
        }
        let Some((on_flash_ns, accesses, Some(interval_ns), Some(parts))) = ours else {
            return Err(CheckError::NoAnswer(format!("{} has no miss", base.workload.name())));
        };
        let misses = on_flash_ns / interval_ns;
        of.push(OfWorkload {
            workload: base.workload,
            job_ns,
            interval_ns,
            computing_ns: job_ns / misses,
            shares,
            absorbed: 100.0 * (1.0 - misses / accesses),
            cost_ns: (on_flash_ns - job_ns) / misses,
            parts,
        });
    }
    Ok(Measured { exponent, of })
}

pub(super) fn run(inputs: &Inputs<'_>) -> Found {
    let measured = measured(inputs)?;
    let share = |way: usize| measured.mean(|of| of.shares[way]);
    let interval_us = |of: &OfWorkload| of.interval_ns / 1e3;
    let shortest = measured.of.iter().map(interval_us).fold(f64::INFINITY, f64::min);
    let longest = measured.of.iter().map(interval_us).fold(0.0, f64::max);
    let of_dram = "% of DRAM-only";
    // With each workload's bar of figure 9.
    let bars = |mut finding: Finding, way: usize| {
        for of in &measured.of {
            finding = finding.also(of.workload.name(), of.shares[way]);
        }
        finding
    };
    let ours = Finding::of("astriflash", "95%")
        .within(share(0), of_dram, (93.0, 97.0))
        .by("at a miss: tags, signal, flush, switch, and L1 and TLB that others have used; at a hit: the tag column. \
             The exponent meets the mean of the text's 5-25 µs between misses, and not its ends")
        .also("Zipf's exponent", measured.exponent)
        .also("µs between misses, mean", measured.mean(interval_us))
        .also("shortest", shortest)
        .also("longest", longest);
    let tpcc = measured.of.iter().find(|of| of.workload == Workload::Tpcc);
    let least = measured.of.iter().map(|of| of.shares[0]).fold(f64::INFINITY, f64::min);
    let tpcc_share = tpcc.map_or(f64::NAN, |of| of.shares[0]);
    let others_ns: Vec<f64> =
        measured.of.iter().filter(|of| of.workload != Workload::Tpcc).map(|of| of.cost_ns).collect();
    // All that a full window can lose is done again at the pipeline's pace.
    let cycle_ns = 1e9 / inputs.number("core.clock", Dimension::Frequency)?;
    let window_ns =
        inputs.count("core.reorder_buffer")? as f64 / inputs.number("core.per_cycle", Dimension::Count)? * cycle_ns;
    let mut found = vec![
        bars(ours, 0),
        bars(
            Finding::of("ideal", "96%")
                .within(share(1), of_dram, (94.0, 98.0))
                .by("the same without the switch's own time"),
            1,
        ),
        Finding::of("gap", "1 point between them")
            .within(share(1) - share(0), "points", (0.3, 1.7))
            .by("100 ns of each interval"),
        bars(
            Finding::of("os-swap", "58%")
                .within(share(2), of_dram, (54.0, 62.0))
                .by("a fault and a context switch of each interval"),
            2,
        ),
        bars(
            Finding::of("flash-sync", "27%")
                .within(share(3), of_dram, (20.0, 32.0))
                .by("the core waits for the whole flash; 27% would need a stall of 38.9 µs, and the text says 50"),
            3,
        ),
    ];
    found.push(
        Finding::of("absorbed", "3% of the data absorbs more than 95% of the accesses (slides, AS2)")
            .within(measured.mean(|of| of.absorbed), "% of the accesses to DRAM", (95.0, 100.0))
            .by(
                "of what leaves the chip's caches. The slide does not say whether its 95% have the accesses that those \
                 caches serve. It has them beside a miss every 10 µs, which is reached here",
            )
            .also("the least of all workloads", measured.of.iter().map(|of| of.absorbed).fold(100.0, f64::min)),
    );
    // Very short runs have no TPCC.
    if let Some(tpcc) = tpcc {
        found.push(
            Finding::of("tpcc", "TPCC loses most")
                .trend(tpcc_share <= least + 1e-9, tpcc_share, of_dram)
                .by(
                    "the text's reason is a costlier flush. A window of 128 instructions (table I) bounds that. By our \
                     assumption one exponent holds for all workloads, so TPCC, which computes most, also misses least \
                     often",
                )
                .also("the least of all", least)
                .also("ns that a miss costs, TPCC", tpcc.cost_ns)
                .also("ns, mean of the others", others_ns.iter().sum::<f64>() / others_ns.len().max(1) as f64)
                .also("ns of a whole window", window_ns)
                .also("points that a window is of an interval of 5 µs", window_ns / 50.0),
        );
    }
    Ok(found)
}
