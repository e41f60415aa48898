//! What comes of a run of cores.

use serde::Serialize;

use crate::energy::DramPower;
use crate::report::{Counted, percent, times};
use crate::stages::Split;
use crate::statistics::{Distribution, Law};

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CoresReport {
    /// Jobs that ended, a second of simulated time, on all cores.
    pub jobs_per_s: f64,
    /// From a job's first instruction to its end.
    pub service: Distribution,
    /// Little's law over jobs that have begun and not ended.
    pub law: Law,
    /// A core's time between two misses of DRAM, in nanoseconds. None without any.
    pub interval_ns: Option<f64>,
    /// Misses of DRAM.
    pub misses: u64,
    /// Misses of DRAM in walks of the page table.
    pub table_misses: u64,
    /// Of all, those whose page was on its way.
    pub duplicates: u64,
    /// Accesses that left the on-chip caches, of a job.
    pub memory_accesses_per_job: f64,
    /// Times that a resumed thread found its page gone.
    pub blocked: u64,
    /// Times that a thread repeated the instruction that had missed.
    pub resumed: u64,
    /// Of them, those in which the thread was switched out before that instruction had retired.
    pub switched_again: u64,
    /// What a miss that switches takes of its core. None without any.
    pub miss_cost: Option<MissCost>,
    /// Pages written back to flash.
    pub written_back: u64,
    /// Misses of the whole run for which the frontside stalled, as the backside's queue was full.
    pub frontside_stalls: u64,
    /// Times in the whole run that a miss waited for the evict buffer.
    pub evict_waits: u64,
    /// What DRAM takes. Page tables that have DRAM of their own are without it.
    pub dram: DramPower,
    /// Joules that the flash has taken. None where all pages are in DRAM.
    pub energy_j: Option<f64>,
    /// The flash's mean power in watts: the energy over the time. None where there is no energy.
    pub power_w: Option<f64>,
    /// Blocks that one core's L1 sent to another core.
    pub forwards: u64,
    /// Copies in L1s that were dropped because another core writes.
    pub invalidations: u64,
    /// The share of their time that links of the mesh are busy. None without links.
    pub links_busy: Option<f64>,
    /// What a message waits for links on average, in nanoseconds. None without messages.
    pub links_wait_ns: Option<f64>,
    /// What the time of misses is spent on. None without any that a thread or core has waited for.
    pub miss_stages: Option<Split>,
    /// What the time is spent on of accesses for which other cores had to act, without those whose
    /// page was not in DRAM. None without any.
    pub coherence_stages: Option<Split>,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Accesses to DRAM and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

/// What a miss takes of the core before another thread runs: means in nanoseconds.
///
/// In addition to these, what the threads that ran in between have displaced has to be fetched
/// again. That shows in the throughput only.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MissCost {
    /// From the access to the miss signal. Older loads end in this time, too.
    pub signal_ns: f64,
    /// From the signal to the first instruction of the handler: the flush, or the system's fault.
    pub flush_ns: f64,
    /// The switch to the next thread.
    pub switch_ns: f64,
}

impl CoresReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("jobs/s", format!("{:.0}", self.jobs_per_s))];
        times(&mut rows, ["jobs", "service mean us", "p50 us", "p99 us", "p99.99 us"], &self.service);
        rows.push(("under way", format!("{:.2}", self.law.mean_present)));
        rows.extend(self.interval_ns.map(|ns| ("us between misses", format!("{:.2}", ns / 1e3))));
        rows.push(("DRAM accesses/job", format!("{:.1}", self.memory_accesses_per_job)));
        rows.push(("misses", self.misses.to_string()));
        rows.push(("misses on their way", percent(self.duplicates as f64 / self.misses.max(1) as f64)));
        rows.push(("pages written back", self.written_back.to_string()));
        rows.extend(self.dram.rows());
        rows.extend(self.power_w.map(|watts| ("flash W", format!("{watts:.3}"))));
        let some = |name, count: u64| (count > 0).then(|| (name, count.to_string()));
        rows.extend(some("frontside stalls", self.frontside_stalls));
        rows.extend(some("waits for the evict buffer", self.evict_waits));
        let each = |count: u64| format!("{:.2}", count as f64 / self.service.count.max(1) as f64);
        rows.push(("L1 to L1 forwards/job", each(self.forwards)));
        rows.push(("invalidations/job", each(self.invalidations)));
        rows.extend(self.links_busy.map(|busy| ("mesh links busy", percent(busy))));
        rows.extend(self.links_wait_ns.map(|ns| ("ns a message waits", format!("{ns:.3}"))));
        if let Some(cost) = self.miss_cost {
            let MissCost { signal_ns, flush_ns, switch_ns } = cost;
            rows.push(("signal/flush/switch ns", format!("{signal_ns:.0}/{flush_ns:.0}/{switch_ns:.0}")));
        }
        rows
    }
}
