//! A13: response times of TATP under Poisson arrivals. Response includes the job queue.
//!
//! AstriFlash loses what a miss costs its core, so that its queue behaves like DRAM-only's at a
//! higher load. The flash itself overlaps with the queue. The check asks at which load DRAM-only
//! has the p99 that AstriFlash has at the paper's load.
//!
//! TATP's interval between misses, and what a miss costs, come from A11's runs of TATP.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::Time;
use fulgurite_sim::closed_forms;
use fulgurite_sim::cores::Workload;
use fulgurite_sim::queue::{Core, Jobs, Misses, Spans};

use super::cores::measured;
use super::overhead::MissCost;
use crate::check::{self, CheckError, Finding, Found, Inputs};

/// Jobs of a run that is reported.
const JOBS: u64 = 800_000;
const QUANTILE: f64 = 0.99;
/// What figure 10 is drawn from.
pub const COMPUTING: &str = "µs of it computing";
pub const COST: &str = "ns of a miss without the switch";

/// What A11 has found of TATP.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    /// Computing between two misses.
    pub interval: Time,
    /// What a miss costs the core before the threads' switch.
    pub miss_cost: Time,
    /// The switch.
    pub switch: Time,
}

/// The p99 of response times at a load, in nanoseconds.
pub fn p99_ns(inputs: &Inputs<'_>, tatp: Tatp, misses: Misses, load: f64) -> Result<f64, CheckError> {
    let length = inputs.time("jobs.tatp")?;
    let (miss_cost, switch_cost) = match misses {
        Misses::Switch { .. } => (tatp.miss_cost, tatp.switch),
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
    let source = Jobs::new(Spans::Exponential(length), Spans::Exponential(tatp.interval), core.threads(), inputs.seed);
    let response = core.run(source, inputs.seed)?.response;
    check::p99_ns(&response.ok_or_else(|| CheckError::no_answer("jobs do not arrive"))?)
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let measured = measured(inputs)?;
    let of_tatp = measured.of(Workload::Tatp)?;
    let cost = MissCost::of(inputs, &[of_tatp])?;
    let interval = Time::from_ns(of_tatp.computing_ns);
    let tatp = Tatp { interval, miss_cost: cost.without_switch(), switch: cost.switch };
    let threads = inputs.count("threads.of_core")? as usize;
    let astriflash = Misses::Switch { policy: SchedulingPolicy::PriorityAging, threads };
    let (load, low) = (inputs.share("load.astriflash")?, inputs.share("load.low")?);
    let service = inputs.time("jobs.tatp")?.as_ns();
    let p99 = p99_ns(inputs, tatp, astriflash, load)?;
    let load_with = |p99: f64| {
        let rate = closed_forms::rate_within(1, service, QUANTILE, p99);
        rate.map(|rate| rate * service)
            .ok_or_else(|| CheckError::NoAnswer(format!("a p99 of {p99} ns is below that of a single job")))
    };
    // DRAM-only with the same arrivals and jobs, near the load that is looked for. What it differs
    // by from the closed form is this seed's chance, which both systems share.
    let near = load_with(p99)?;
    let chance = p99_ns(inputs, tatp, Misses::Absent, near)? / p99;
    let equal = load_with(p99 / chance)?;
    let parts = cost.parts();
    let in_all: Time = parts.into_iter().sum();
    let (ours_low, dram_low) = (p99_ns(inputs, tatp, astriflash, low)?, p99_ns(inputs, tatp, Misses::Absent, low)?);
    Ok(vec![
        Finding::of("gap", "3 points: the p99 at 93% is DRAM-only's at 96%")
            .within((equal - load) * 100.0, "points of load", (1.0, 5.0))
            .by("what each miss costs the core raises its load; the flash overlaps with the queue")
            .also("p99 in service times", p99 / service)
            .also("µs between TATP's misses in A11", of_tatp.interval_ns / 1e3)
            .also(COMPUTING, interval.as_us())
            .also(COST, cost.without_switch().as_ns())
            .also("µs of TATP's job in A11", of_tatp.job_ns / 1e3),
        Finding::of("miss-cost", "tag comparisons and response, the pipeline's flush, the switch")
            .trend(
                parts.iter().all(|part| *part > Time::ZERO) && in_all < interval,
                in_all.as_ns(),
                "ns of the core for each miss",
            )
            .by("TATP on A11's cores: the time that they lose beside DRAM-only, for each miss")
            .also("signal", cost.signal.as_ns())
            .also("flush", cost.flush.as_ns())
            .also("tags before hits, and cold caches", cost.rest.as_ns()),
        Finding::of("low-load", "higher p99 at low loads")
            .trend(ours_low > dram_low, ours_low / dram_low, "of DRAM-only's p99")
            .by("without a queue the flash is not overlapped"),
    ])
}
