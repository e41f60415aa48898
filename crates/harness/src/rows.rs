//! Rows of results: what JSON carries and tables show.

use crate::Spread;
use hdrhistogram::Histogram;
use serde::Serialize;

use fulgurite_term::media::{NandCounts, NandShape};

/// How `--miss-every` was reached; the same for all configurations.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Calibration {
    pub zipf: f64,
    pub added_work_ns: f64,
    /// The added work as iterations of the loop, for each transaction.
    pub added_work_iterations: u64,
    /// Time of a request in dram-only without added work.
    pub own_work_ns: f64,
    pub miss_every_ns: Option<u64>,
}

/// One setup in which a kernel-paging configuration was run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Variant {
    pub threads: usize,
    /// `vm.page-cluster`, where it matters.
    pub page_cluster: Option<u32>,
    /// Rounds: fewer than the best's where it was clearly slower in the first.
    pub rounds: usize,
    /// Requests a second, median.
    pub ops_per_s: f64,
    /// As a share of dram-only, round by round.
    pub share_of_dram_only: Option<Spread>,
    /// 99th percentile of latency.
    pub p99_us: f64,
}

/// What checksums cost a pool, measured against one that has none.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Checksums {
    /// Throughput that they take, as a share of dram-only's. Below 0: faster with them.
    pub share_of_dram_only: Spread,
    pub cpu_us_per_op: f64,
    /// Of that, the emulated device's thread: it makes them of what it moves.
    pub device_cpu_us_per_op: f64,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct LiveRow {
    pub workload: String,
    pub config: String,
    pub flash: String,
    /// The medium as it was asked for, which tells several NAND devices of one run apart.
    pub medium: String,
    /// How many media there are in the run.
    #[serde(skip)]
    pub media: usize,
    pub workers: u32,
    /// Fibers of each worker, or threads in all.
    pub fibers_or_threads: usize,
    /// `vm.page-cluster`, for os-swap.
    pub page_cluster: Option<u32>,
    /// Budget of DRAM (dram-only: the data itself).
    pub dram_bytes: u64,
    /// Of that, what the workload's own latches and tables use on the guarded path.
    pub workload_dram_bytes: u64,
    pub data_bytes: u64,
    pub rounds: usize,
    /// Requests in all rounds.
    pub requests: u64,
    /// Requests a second, median of the rounds.
    pub ops_per_s: f64,
    /// Throughput as a share of dram-only's in the same round; none where dram-only ended no round.
    pub share_of_dram_only: Option<Spread>,
    /// Throughput as a multiple of one worker's in the same round, where there are several.
    pub speedup_over_one_worker: Option<Spread>,
    /// Throughput of the guarded path as a multiple of the best of os-swap in the same round.
    pub over_os_swap: Option<Spread>,
    pub over_mmap: Option<Spread>,
    /// What checksums take of the pool's throughput, where pool-unchecked ran, too.
    pub checksums: Option<Checksums>,
    /// Misses a second (plain memory: major faults).
    pub misses_per_s: f64,
    /// Computing between misses: dram-only's time times requests per miss. None without misses.
    pub work_us_per_miss: Option<f64>,
    /// Guarded accesses per miss; none without misses, or where accesses are not guarded.
    pub accesses_per_miss: Option<f64>,
    /// Misses per guarded access; none where accesses are not guarded.
    pub miss_ratio: Option<f64>,
    pub misses_per_op: f64,
    /// Latency from arrival, median.
    pub p50_us: f64,
    /// 99%.
    pub p99_us: f64,
    /// 99.9%.
    pub p999_us: f64,
    /// CPU time per request of all threads, an emulated device's and the kernel's own included.
    pub cpu_us_per_op: f64,
    /// Of that, the emulated device's thread.
    pub device_cpu_us_per_op: f64,
    /// Of that, the kernel's own threads during the rounds, for any process. None: unknown.
    pub kernel_cpu_us_per_op: Option<f64>,
    /// Subpages read from flash, swap or file.
    pub device_reads: u64,
    pub device_writes: u64,
    /// Write requests, of which neighbouring subpages share one. 0 where they are not counted.
    pub device_write_requests: u64,
    pub device_read_requests: u64,
    /// Requests a second of the file or device itself in the same mix at the same depth: the better
    /// of Fulgurite's own requests and fio's. Median of measurements right after each round.
    pub device_limit_per_s: Option<f64>,
    pub device_limit_spread: Option<Spread>,
    /// Requests a second of fio on the same file (with writes, on a second file next to it), in the
    /// same mix, at the same depth, on the same core. Median of measurements right after each
    /// round.
    pub fio_per_s: Option<f64>,
    pub fio_spread: Option<Spread>,
    /// Requests to the file a second, as a share of what fio got right after; median of the rounds.
    pub share_of_fio: Option<f64>,
    pub share_of_fio_spread: Option<Spread>,
    /// Throughput as a share of what the device allowed right after (or of dram-only's, where
    /// less). Median of the rounds. flash-sync may pass 1 where it writes: it waits for single
    /// reads, and its writes go on meanwhile.
    pub share_of_device_limit: Option<f64>,
    pub share_of_device_limit_spread: Option<Spread>,
    /// Completions of the emulated device that came more than 5 µs late.
    pub device_late: u64,
    /// Mean lateness of its completions, in µs.
    pub device_lateness_us: f64,
    /// The share of its completions that came more than 5 µs late.
    pub device_late_share: f64,
    /// The longest lateness since it was opened, in µs.
    pub device_lateness_us_max: f64,
    /// The latency of reads that the emulated device was asked for, in µs.
    pub device_latency_us: Option<f64>,
    /// The share of a round's time that other work took from one of the run's threads.
    pub taken_share: Spread,
    /// Rounds that count although other work took more than 5% of their time.
    pub disturbed_rounds: usize,
    /// Rounds that were run again because other work took more than 5% of their time.
    pub repeated_rounds: u32,
    /// Share of the workers' time with nothing to run. In a closed loop all fibers wait for flash
    /// then: more fibers or a punctual device would win it back.
    pub wait_share: f64,
    /// Hash of the requests and the order-free invariant: equal in all configurations.
    pub work_hash: Option<String>,
    /// Limit of the memory cgroup, if it ran in one.
    pub cgroup_limit_bytes: Option<u64>,
    pub cgroup_peak_bytes: Option<u64>,
    pub calibration: Calibration,
    /// Cores that the workers were pinned to.
    pub cores: Vec<usize>,
    /// What the NAND of a device did, where there is one.
    pub nand: Option<NandCounts>,
    pub nand_shape: Option<NandShape>,
    /// Share of the host's reads that waited for an erase or the store's work on their plane.
    pub blocked_by_reclaim_share: Option<f64>,
    /// Share of all planes' time that erases took: the chance of any read to meet one.
    pub erasing_share: Option<f64>,
    pub device_core: Option<usize>,
    /// All setups that were tried, where this row is the best of several.
    pub variants: Vec<Variant>,
    /// Latencies at these percentiles, in µs, for curves.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

impl LiveRow {
    /// The configuration, with its medium where the run has several.
    pub fn label(&self) -> String {
        if self.media > 1 && self.config != "dram-only" {
            format!("{} {}", self.config, self.medium)
        } else {
            self.config.clone()
        }
    }
}

/// Latencies of several rounds and their percentiles.
#[derive(Clone, Debug)]
pub struct Percentiles(Histogram<u64>);

impl Default for Percentiles {
    fn default() -> Percentiles {
        Percentiles(Histogram::new_with_bounds(1, 120_000_000_000, 3).expect("valid bounds"))
    }
}

impl Percentiles {
    /// Adds a round's.
    pub fn add(&mut self, pairs: &[(u64, u64)]) {
        for (ns, count) in pairs {
            self.0.saturating_record_n(*ns, *count);
        }
    }
    /// In µs; 0 when there are none.
    pub fn us(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1000.0
    }
    /// Points of a curve: (percentile, µs), denser towards the tail.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let nines = (0..=80).map(|i| 100.0 - 100.0 * 10f64.powf(-f64::from(i) / 20.0));
        nines.map(|p| (p, self.us(p))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = |v: &[f64]| {
            let s = Spread::of(v.iter().copied());
            (s.min, s.median, s.max)
        };
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), (1.0, 2.5, 4.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
        assert!(Spread::of_any([]).is_none() && Spread::of_any([1.0]).is_some());
    }
    #[test]
    fn percentiles_of_rounds() {
        let mut all = Percentiles::default();
        all.add(&[(1000, 90), (50_000, 10)]);
        all.add(&[(1000, 100)]);
        assert!((all.us(50.0) - 1.0).abs() < 0.01 && (all.us(99.0) - 50.0).abs() < 0.1);
        assert!(all.curve().is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }
}
