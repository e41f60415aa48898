//! A12: the p99 of service times compared with Flash-Sync's. Service excludes the job queue.
//!
//! The jobs' queue is never empty ("a large job queue", section V-A). What decides which thread
//! runs next is `policy::Scheduler` as the runtime has it: `priority-aging` is AstriFlash, `fifo`
//! is noPS.
//!
//! Under `fifo` a miss adds one thread to the queue and takes one from it, so that a queue which
//! has grown in a burst never shrinks. The burst is the cold start: until the DRAM cache has
//! filled, nearly every page that is touched misses. From then on all threads wait at all times,
//! and a miss costs its job N times the interval between misses.
//!
//! What a miss costs the core is the mean of A11's workloads. noDP is TATP on A11's cores with page
//! tables in flash, as far as DRAM has not cached them. Its bound is a table that is never there.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::cores::{CoresSystem, Paging, Workload};
use fulgurite_sim::queue::{Core, Jobs, Misses, Spans};
use fulgurite_sim::{FrontEnd, Step, Time};

use super::cores::{Measured, measured, system};
use super::overhead::MissCost;
use crate::check::{self, CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// Jobs of a run that is reported.
const JOBS: u64 = 120_000;
/// The least of a shorter run: with fewer, those under way at both ends break Little's law.
const JOBS_LEAST: u64 = 8_000;
/// Jobs of a run on A11's cores, whatever its length: with fewer, randomness decides their p99.
const CORES_JOBS: u64 = 10_000;

/// Jobs whose page tables are never in DRAM: each miss is two, one after the other.
struct ColdTables {
    jobs: Jobs,
    /// Threads that have missed a table and go on to miss their data.
    walked: Vec<bool>,
}

impl FrontEnd for ColdTables {
    fn next(&mut self, thread: u32) -> Step {
        let walked = &mut self.walked[thread as usize];
        if std::mem::take(walked) {
            return Step::Miss;
        }
        let step = self.jobs.next(thread);
        *walked = matches!(step, Step::Miss);
        step
    }
}

/// The p99 of a system's service times, in nanoseconds.
fn p99_ns(
    inputs: &Inputs<'_>,
    cost: MissCost,
    misses: Misses,
    length: Time,
    cold_tables: bool,
) -> Result<f64, CheckError> {
    let jobs = inputs.volume(JOBS).max(JOBS_LEAST);
    let (miss_cost, switch_cost) = match misses {
        Misses::Switch { .. } => (cost.without_switch(), cost.switch),
        Misses::Absent | Misses::Stall => (Time::ZERO, Time::ZERO),
    };
    let cold_span = inputs.time("jobs.cold_span")?;
    // Warm-up ends after the cold start, by the jobs that fit into its computing, and as many
    // again.
    let warm_up = 2 * cold_span.0 / length.0.max(1) + jobs / 10;
    let core = Core { misses, flash: inputs.time("flash.read")?, miss_cost, switch_cost, between: None, warm_up, jobs };
    let interval = Spans::Exponential(inputs.time("miss.interval")?);
    let cold = Spans::Exponential(inputs.time("jobs.cold_interval")?);
    let source =
        Jobs::new(Spans::Exponential(length), interval, core.threads(), inputs.seed).cold_start(cold, cold_span);
    let report = if cold_tables {
        core.run(ColdTables { jobs: source, walked: vec![false; core.threads()] }, inputs.seed)?
    } else {
        core.run(source, inputs.seed)?
    };
    check::p99_ns(&report.service)
}

/// The p99 of TATP's service times on A11's cores, compared with Flash-Sync's: with page tables in
/// a partition of DRAM of their own, and cached with the data. Also the share of misses that are of
/// tables then.
fn on_cores(inputs: &Inputs<'_>, measured: &Measured, threads: usize) -> Result<[f64; 3], CheckError> {
    let (cost, policy) = (inputs.time("miss.switch")?, SchedulingPolicy::PriorityAging);
    let switch = Paging::Switch { cost, policy, threads: threads as u32 };
    let p99 = |paging, cached_tables| -> Result<(f64, f64), CheckError> {
        let flat = system(inputs, Workload::Tatp, measured.exponent, paging, CORES_JOBS)?;
        let report = CoresSystem { cached_tables, ..flat }.run(inputs.seed)?;
        Ok((check::p99_ns(&report.service)?, report.table_misses as f64 / report.misses.max(1) as f64))
    };
    let ((wait, _), (flat, _), (cached, of_tables)) =
        (p99(Paging::Wait, false)?, p99(switch, false)?, p99(switch, true)?);
    Ok([flat / wait, cached / wait, of_tables])
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let measured = measured(inputs)?;
    let cost = MissCost::of(inputs, &measured.of.iter().collect::<Vec<_>>())?;
    let threads = inputs.count("threads.of_core")? as usize;
    let switch = |policy, threads| Misses::Switch { policy, threads };
    let times = |name: &str| -> Result<Vec<Time>, CheckError> {
        Ok(inputs.numbers(name, Dimension::Time)?.into_iter().map(|ps| Time(ps as u64)).collect())
    };
    let (structures, others, tatp) = (times("jobs.data_structures")?, times("jobs.others")?, inputs.time("jobs.tatp")?);
    let ratio = |misses: Misses, length: Time| -> Result<f64, CheckError> {
        Ok(p99_ns(inputs, cost, misses, length, false)? / p99_ns(inputs, cost, Misses::Stall, length, false)?)
    };
    let mut lengths: Vec<Time> = structures.iter().chain(&others).copied().chain([tatp]).collect();
    lengths.sort();
    let mut ratios = Vec::new();
    for length in &lengths {
        ratios.push(ratio(switch(SchedulingPolicy::PriorityAging, threads), *length)?);
    }
    let of = |length: &Time| ratios[lengths.iter().position(|other| other == length).expect("it is one of them")];
    let worst = structures.iter().map(of).fold(0.0, f64::max);
    let mut priority = Finding::of("data-structures", "1.02")
        .within(worst, "of Flash-Sync's p99", (0.99, 1.06))
        .by("priority-aging: data that is here waits for the running job, so short jobs keep it near 1; the text's \
             10-100 µs do not");
    priority = priority
        .also("TATP, 10 µs", of(&tatp))
        .also("ns that a miss costs, from A11's cores", cost.parts().into_iter().sum::<Time>().as_ns());
    let rises = ratios.windows(2).all(|pair| pair[1] >= pair[0] - 0.01);
    let monotone = Finding::of("monotone", "data waits for the current job to finish")
        .trend(rises, *ratios.last().expect("there are lengths"), "of Flash-Sync's p99, longest jobs")
        .by("the longer the jobs, the longer data that is here waits");
    let fifo = ratio(switch(SchedulingPolicy::Fifo, threads), tatp)?;
    let mut no_priority = Finding::of("noPS", "~7")
        .within(fifo, "of Flash-Sync's p99", (5.0, 9.0))
        .by("fifo: a miss adds one thread and takes one, so the queue that the cold start fills never shrinks: N x \
             interval / flash");
    for (more, name) in inputs.numbers("threads.also", Dimension::Count)?.into_iter().zip(["48 threads", "64 threads"])
    {
        no_priority = no_priority.also(name, ratio(switch(SchedulingPolicy::Fifo, more as usize), tatp)?);
    }
    let aging = switch(SchedulingPolicy::PriorityAging, threads);
    let always = p99_ns(inputs, cost, aging, tatp, true)? / p99_ns(inputs, cost, Misses::Stall, tatp, false)?;
    let [partition, cached, of_tables] = on_cores(inputs, &measured, threads)?;
    let no_partition = Finding::of("noDP", "~1.7")
        .trend(
            of_tables > 0.0 && cached > 0.97 * partition && always > of(&tatp),
            cached,
            "of Flash-Sync's p99, TATP on A11's cores",
        )
        .by("a walk may miss before its data does. Leaves of the table are touched too often to miss once they are \
             there, so 1.7 lies between the steady state and tables that are never there")
        .also("% of misses that are of tables", 100.0 * of_tables)
        .also("with the partition, the same cores", partition)
        .also("tables never in DRAM, on the queue", always);
    Ok(vec![priority, monotone, no_priority, no_partition])
}
