//! A12: the p99 of service times beside Flash-Sync's. Service excludes the job queue.
//!
//! The jobs' queue is never empty ("a large job queue", section V-A). What decides which thread
//! runs next is `policy::Scheduler` as the runtime has it: `priority-aging` is AstriFlash, `fifo`
//! is noPS.
//!
//! Under `fifo` a miss adds one thread to the queue and takes one from it, so that a queue which
//! has grown in a burst never shrinks. The burst is the cold start: until the DRAM cache has
//! filled, nearly every page that is touched misses. From then on all threads wait at all times,
//! and a miss costs its job N times the interval between misses.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::queue::{Core, Jobs, Misses, Spans};

use super::overhead::MissCost;
use crate::check::{CheckError, Finding, Inputs};
use crate::units::Dimension;

/// Jobs of a run that is reported.
const JOBS: u64 = 300_000;

/// The p99 of a system's service times, in nanoseconds.
fn p99_ns(inputs: &Inputs<'_>, misses: Misses, length: Time) -> Result<f64, CheckError> {
    let cost = MissCost::read(inputs)?;
    let jobs = inputs.volume(JOBS);
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
    let report = core.run(source, inputs.seed)?;
    report.service.p99_ns.map(|p99| p99.value).ok_or_else(|| CheckError::NoAnswer("too few jobs for a p99".to_owned()))
}

pub fn run(inputs: &Inputs<'_>) -> Result<Vec<Finding>, CheckError> {
    let threads = inputs.count("threads.of_core")? as usize;
    let switch = |policy, threads| Misses::Switch { policy, threads };
    let times = |name: &str| -> Result<Vec<Time>, CheckError> {
        Ok(inputs.numbers(name, Dimension::Time)?.into_iter().map(|ps| Time(ps as u64)).collect())
    };
    let (structures, others, tatp) = (times("jobs.data_structures")?, times("jobs.others")?, inputs.time("jobs.tatp")?);
    let ratio = |misses: Misses, length: Time| -> Result<f64, CheckError> {
        Ok(p99_ns(inputs, misses, length)? / p99_ns(inputs, Misses::Stall, length)?)
    };
    let mut lengths: Vec<Time> = structures.iter().chain(&others).copied().chain([tatp]).collect();
    lengths.sort();
    let mut ratios = Vec::new();
    for length in &lengths {
        ratios.push(ratio(switch(SchedulingPolicy::PriorityAging, threads), *length)?);
    }
    let of = |length: &Time| ratios[lengths.iter().position(|other| other == length).expect("it is one of them")];
    let worst = structures.iter().map(of).fold(0.0, f64::max);
    let mut priority = Finding::within(
        "data-structures",
        "1.02",
        worst,
        "of Flash-Sync's p99",
        (0.99, 1.06),
        "priority-aging: data that is here waits for the running job, so short jobs keep it near 1; the text's 10-100 µs do not",
    );
    priority = priority.also("TATP, 10 µs", of(&tatp));
    let rises = ratios.windows(2).all(|pair| pair[1] >= pair[0] - 0.01);
    let monotone = Finding::trend(
        "monotone",
        "data waits for the current job to finish",
        rises,
        (*ratios.last().expect("there are lengths"), "of Flash-Sync's p99, longest jobs"),
        "the longer the jobs, the longer data that is here waits",
    );
    let fifo = ratio(switch(SchedulingPolicy::Fifo, threads), tatp)?;
    let mut no_priority = Finding::within(
        "noPS",
        "~7",
        fifo,
        "of Flash-Sync's p99",
        (5.0, 9.0),
        "fifo: a miss adds one thread and takes one, so the queue that the cold start fills never shrinks: N x interval / flash",
    );
    for (more, name) in inputs.numbers("threads.also", Dimension::Count)?.into_iter().zip(["48 threads", "64 threads"])
    {
        no_priority = no_priority.also(name, ratio(switch(SchedulingPolicy::Fifo, more as usize), tatp)?);
    }
    Ok(vec![priority, monotone, no_priority])
}
