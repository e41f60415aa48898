//! What came of a run.

use serde::Serialize;

use super::energy::Power;
use crate::report::{Counted, percent, times};
use crate::stages::Split;
use crate::statistics::{Distribution, Law};

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PagingReport {
    /// Accesses that ended, a second of simulated time.
    pub accesses_per_s: f64,
    /// From an access to its data.
    pub access: Distribution,
    /// Little's law over accesses.
    pub law: Law,
    /// Accesses that found nothing in DRAM, not even on its way. None where all memory is alike.
    pub miss_ratio: Option<f64>,
    /// Accesses to what was on its way.
    pub joined: u64,
    /// Accesses to objects that were in DRAM and not mapped.
    pub remapped: u64,
    /// Pages that were read together with the one that missed, for each access.
    pub read_ahead_per_access: f64,
    /// Of those, the ones that were evicted without a touch. None without any.
    pub wasted_share: Option<f64>,
    /// Pages that the device read, a second.
    pub device_reads_per_s: f64,
    /// Pages that it was asked to write.
    pub device_writes_per_s: f64,
    /// Bytes that it was asked to write, for each access.
    pub written_bytes_per_access: f64,
    /// What the log wrote for each unit that left DRAM. None without a log, or without any.
    pub log_amplification: Option<f64>,
    /// Share of the cores' time that the software of misses took.
    pub software: f64,
    /// Share of it that the program computed.
    pub computing: f64,
    /// Misses that waited for the evict buffer.
    pub throttled: u64,
    /// Batches of translations that other cores had to forget.
    pub shootdowns: u64,
    /// Power and energy.
    pub power: Power,
    /// What the time of misses is spent on.
    pub miss_stages: Option<Split>,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Accesses and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl PagingReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("accesses/s", format!("{:.0}", self.accesses_per_s))];
        times(&mut rows, ["accesses", "mean us", "p50 us", "p99 us", "p99.99 us"], &self.access);
        rows.push(("under way", format!("{:.2}", self.law.mean_present)));
        rows.extend(self.miss_ratio.map(|share| ("misses", percent(share))));
        if self.read_ahead_per_access > 0.0 {
            rows.push(("read ahead/access", format!("{:.3}", self.read_ahead_per_access)));
        }
        rows.extend(self.wasted_share.map(|share| ("read ahead in vain", percent(share))));
        rows.push(("time computing", percent(self.computing)));
        rows.push(("time of software", percent(self.software)));
        if self.miss_ratio.is_some() {
            rows.push(("device reads/s", format!("{:.0}", self.device_reads_per_s)));
            rows.push(("device writes/s", format!("{:.0}", self.device_writes_per_s)));
            rows.push(("bytes written/access", format!("{:.1}", self.written_bytes_per_access)));
        }
        rows.extend(self.log_amplification.map(|times| ("written by the log", format!("{times:.2}x"))));
        let power = &self.power;
        rows.extend([
            ("DRAM standby W", format!("{:.3}", power.dram_standby_w)),
            ("DRAM refresh W", format!("{:.3}", power.dram_refresh_w)),
            ("DRAM access W", format!("{:.3}", power.dram_access_w)),
            ("controllers W", format!("{:.3}", power.controllers_w)),
            ("device W", format!("{:.3}", power.device_w)),
            ("W", format!("{:.3}", power.total_w)),
            ("nJ/access", format!("{:.1}", power.access_nj)),
        ]);
        rows
    }
}
