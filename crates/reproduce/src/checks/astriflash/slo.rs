//! A5: M/M/1 and M/M/k, in closed form and through the event loop.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::queue::{Core, Jobs, Misses, Servers, Spans};
use fulgurite_sim::{Time, closed_forms};

use crate::check::{self, CheckError, Finding, Found, Inputs};

/// Jobs of a run that is reported.
const JOBS: u64 = 12_000_000;
const QUANTILE: f64 = 0.99;

/// The loads at which DRAM-only and AstriFlash have a p99 of `limit` service times, by M/M/1 and
/// M/M/k. Both are of the maximum of DRAM-only.
fn loads(inputs: &Inputs<'_>, limit: f64) -> Result<(f64, f64), CheckError> {
    let (work, flash) = (inputs.time("miss.interval")?, inputs.time("flash.read")?);
    let span = (work + flash).as_us() / work.as_us();
    let dram_only = closed_forms::rate_within(1, 1.0, QUANTILE, limit);
    let overlapped = closed_forms::rate_within((span + 0.5) as u32, span, QUANTILE, limit);
    let short = || CheckError::no_answer("even a single job takes longer than the objective");
    dram_only.zip(overlapped).ok_or_else(short)
}

/// Beyond the objective at which AstriFlash comes near to DRAM-only, it comes nearer.
pub fn relaxed(inputs: &Inputs<'_>) -> Result<Finding, CheckError> {
    let limit = inputs.share("service.slo")?;
    let share = |times: f64| loads(inputs, limit * times).map(|(dram_only, overlapped)| overlapped / dram_only);
    let (at, twice, four) = (share(1.0)?, share(2.0)?, share(4.0)?);
    Ok(Finding::of(
        "high-loads",
        "similar performance as DRAM at high loads, with an SLO of more than 40x the service time",
    )
    .trend(at > 0.9 && at < twice && twice < four && four < 1.0, twice, "of DRAM-only's load at an SLO of 80x")
    .by("M/M/k beside M/M/1 at the same p99: the flash is a smaller part of a longer wait")
    .also("at 40x", at)
    .also("at 160x", four))
}

/// The share of the time in which a core computes that always has a job, each of which computes for
/// an interval between misses and has one miss. That costs the core a time, and the next thread
/// another one. `warm_up` jobs run before `jobs` that are measured.
pub fn computing(
    inputs: &Inputs<'_>,
    misses: Misses,
    (miss_cost, switch_cost): (Time, Time),
    (warm_up, jobs): (u64, u64),
) -> Result<f64, CheckError> {
    let (work, flash) = (Spans::Fixed(inputs.time("miss.interval")?), inputs.time("flash.read")?);
    let core = Core { misses, flash, miss_cost, switch_cost, between: None, warm_up, jobs };
    // One endless job a thread would never end: its pieces are jobs.
    Ok(core.run(Jobs::new(work, work, core.threads(), inputs.seed), inputs.seed)?.computing)
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let (work, flash) = (inputs.time("miss.interval")?, inputs.time("flash.read")?);
    let fault = inputs.time("paging.fault")?;
    let paging_switch = inputs.time("paging.switch")?;
    let switch = inputs.time("miss.switch")?;
    let threads = inputs.count("threads.of_core")? as usize;
    let overlaps = Misses::Switch { policy: SchedulingPolicy::PriorityAging, threads };
    // The most that a core does.
    let jobs = inputs.volume(JOBS / 600);
    let highest = |misses, costs| computing(inputs, misses, costs, (jobs / 10, jobs));
    let flash_sync = highest(Misses::Stall, (Time::ZERO, Time::ZERO))?;
    let os_swap = highest(overlaps, (fault, paging_switch))?;
    let astriflash = highest(overlaps, (Time::ZERO, switch))?;

    // Loads are of the maximum of DRAM-only, one job in `work`. The limit is in its service times.
    let limit = inputs.share("service.slo")?;
    let span = (work + flash).as_us() / work.as_us();
    let servers = (span + 0.5) as u32;
    let (dram_only, overlapped) = loads(inputs, limit)?;
    let between = Time((work.0 as f64 / overlapped) as u64);
    let simulated = Servers { servers, service: work + flash, between, jobs: inputs.volume(JOBS) }.run(inputs.seed)?;
    let p99 = check::p99_ns(&simulated.response)?;
    let closed = limit * work.as_ns();
    Ok(vec![
        Finding::of("flash-sync", ">80% lost")
            .within(flash_sync, "of DRAM-only", (0.0, 0.20))
            .by("event loop: the core waits 50 µs at each miss"),
        Finding::of("os-swap", "~50% lost")
            .within(os_swap, "of DRAM-only", (0.45, 0.55))
            .by("event loop: 10 µs of fault and switch at each miss, flash overlapped"),
        Finding::of("astriflash", "approaches DRAM-only")
            .within(astriflash, "of DRAM-only", (0.95, 1.0))
            .by("event loop: 100 ns of switch at each miss, flash overlapped"),
        Finding::of("load-at-slo", "within ~20% of DRAM-only at an SLO of 40x")
            .within(overlapped, "of DRAM-only's maximum", (0.80, 0.90))
            .by("Erlang C: the load at which the p99 of M/M/k, k = (work + flash) / work, is the SLO")
            .also("DRAM-only at the same SLO", dram_only),
        Finding::of("event-loop", "the same queue")
            .within(p99 / closed, "of the closed form's p99", (0.98, 1.02))
            .by("M/M/k through the event loop at that load"),
    ])
}
