//! A13: response times of TATP under Poisson arrivals. Response includes the job queue.
//!
//! AstriFlash loses what a miss costs its core, so that its queue is that of DRAM-only at a higher
//! load. The flash itself overlaps with the queue. The check asks at which load DRAM-only has the
//! p99 that AstriFlash has at the paper's load.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::closed_forms;
use fulgurite_sim::queue::{Core, Jobs, Misses, Spans};

use super::overhead::MissCost;
use crate::check::{CheckError, Finding, Inputs};

/// Jobs of a run that is reported.
const JOBS: u64 = 1_500_000;
const QUANTILE: f64 = 0.99;

pub fn p99_ns(inputs: &Inputs<'_>, misses: Misses, load: f64) -> Result<f64, CheckError> {
    let (length, cost) = (inputs.time("jobs.tatp")?, MissCost::read(inputs)?);
    let (miss_cost, switch_cost) = match misses {
        Misses::Switch { .. } => (cost.without_switch(), cost.switch),
        Misses::Absent | Misses::Stall => (Time::ZERO, Time::ZERO),
    };
    let jobs = inputs.volume(JOBS);
    let core = Core {
        misses,
        flash: inputs.time("flash.read")?,
        miss_cost,
        switch_cost,
        between: Some(Time((length.0 as f64 / load) as u64)),
        warm_up: jobs / 10,
        jobs,
    };
    let interval = Spans::Exponential(inputs.time("jobs.tatp_interval")?);
    let source = Jobs::new(Spans::Exponential(length), interval, core.threads(), inputs.seed);
    let response = core.run(source, inputs.seed)?.response.and_then(|times| times.p99_ns);
    response.map(|p99| p99.value).ok_or_else(|| CheckError::NoAnswer("too few jobs for a p99".to_owned()))
}

pub fn run(inputs: &Inputs<'_>) -> Result<Vec<Finding>, CheckError> {
    let threads = inputs.count("threads.of_core")? as usize;
    let astriflash = Misses::Switch { policy: SchedulingPolicy::PriorityAging, threads };
    let (load, low) = (inputs.share("load.astriflash")?, inputs.share("load.low")?);
    let service = inputs.time("jobs.tatp")?.as_ns();
    let p99 = p99_ns(inputs, astriflash, load)?;
    let load_with = |p99: f64| {
        let rate = closed_forms::rate_within(1, service, QUANTILE, p99);
        rate.map(|rate| rate * service)
            .ok_or_else(|| CheckError::NoAnswer(format!("a p99 of {p99} ns is below that of a single job")))
    };
    // DRAM-only with the same arrivals and jobs, near the load that is looked for. What it differs
    // by from the closed form is this seed's chance, which both systems share.
    let near = load_with(p99)?;
    let chance = p99_ns(inputs, Misses::Absent, near)? / p99;
    let equal = load_with(p99 / chance)?;
    let parts = MissCost::read(inputs)?.parts();
    let cost: Time = parts.into_iter().sum();
    let (ours_low, dram_low) = (p99_ns(inputs, astriflash, low)?, p99_ns(inputs, Misses::Absent, low)?);
    Ok(vec![
        Finding::within(
            "gap",
            "3 points: the p99 at 93% is DRAM-only's at 96%",
            (equal - load) * 100.0,
            "points of load",
            (1.0, 5.0),
            "what each miss costs the core raises its load; the flash overlaps with the queue",
        )
        .also("p99 in service times", p99 / service),
        Finding::trend(
            "miss-cost",
            "tag comparisons and response, the pipeline's flush, the switch",
            parts.iter().all(|part| *part > Time::ZERO) && cost < inputs.time("jobs.tatp_interval")?,
            (cost.as_ns(), "ns of the core for each miss"),
            "the sum of its parts: detection, flush, cold caches, tags before hits, switch",
        ),
        Finding::trend(
            "low-load",
            "higher p99 at low loads",
            ours_low > dram_low,
            (ours_low / dram_low, "of DRAM-only's p99"),
            "without a queue the flash is not overlapped",
        ),
    ])
}
