//! A8: a miss switches threads, and a thread that is resumed makes progress (figure 6).
//!
//! Two cores of table I run over a DRAM of fewer pages than there are threads. So pages are gone
//! again when their threads are resumed, which is what the forward-progress bit is for.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::cores::{CoresSystem, Paging, Workload};

use super::cores::system;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// Sets of the small DRAM, and pages of its data.
const SETS: u32 = 12;
const PAGES: u64 = 1 << 15;
const CORES: u32 = 2;
/// Jobs of a run that is reported.
const JOBS: u64 = 60_000;

pub fn run(inputs: &Inputs<'_>) -> Found {
    let threads = inputs.count("threads.of_core")? as u32;
    let switch = inputs.time("miss.switch")?;
    let paging = Paging::Switch { cost: switch, policy: SchedulingPolicy::PriorityAging, threads };
    let jobs = inputs.volume(JOBS).max(20_000);
    let whole = system(inputs, Workload::HashTable, 1.0, paging, jobs)?;
    let mut small = CoresSystem { cores: CORES, controllers: 1, pages: PAGES, ..whole };
    small.cache.sets = SETS;
    small.parts.row = CORES;
    let report = small.run(inputs.seed)?;
    let cost = report.miss_cost.ok_or_else(|| CheckError::no_answer("nothing missed"))?;
    let cycle_ns = 1e9 / inputs.number("core.clock", Dimension::Frequency)?;
    let front_end = inputs.number("core.front_end", Dimension::Cycles)?;
    let resumed = report.resumed.max(1) as f64;
    Ok(vec![
        Finding::of("progress", "not de-scheduled again before retiring at least one instruction")
            .within(report.switched_again as f64, "threads switched out twice at one instruction", (0.0, 0.0))
            .by("the forward-progress bit: the repeated access completes synchronously")
            .also("threads resumed", resumed),
        Finding::of("blocks", "a resumed thread whose page was evicted blocks the core")
            .trend(
                report.blocked > 0 && report.service.count == jobs,
                100.0 * report.blocked as f64 / resumed,
                "% of resumed threads",
            )
            .by("DRAM of 48 pages under 66 threads; every job ends, and without the bit none does"),
        Finding::of("switch", "around 100 ns a switch")
            .exact(100.0, cost.switch_ns, "ns")
            .by("from the handler's first instruction to the next thread's, measured"),
        Finding::of("flush", "older instructions retire, then the ROB is flushed")
            .within(
                cost.flush_ns / cycle_ns,
                "cycles until the handler's first instruction",
                (front_end - 0.5, front_end + 0.5),
            )
            .by("measured from the miss signal: the front end fills anew")
            .also("ns from the access to the signal", cost.signal_ns),
    ])
}
