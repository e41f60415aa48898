//! Statistics: what a worker counts, and how it is reported, as numbers and as Prometheus text.

use std::fmt::Write;

use hdrhistogram::Histogram;

use crate::records::Records;

/// What one worker has counted since it started or since the last reset.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStatistics {
    /// Plain counts.
    pub counts: Counts,
    /// From the miss, or the fault that switched, to the fiber's being runnable again, in
    /// nanoseconds.
    pub miss_ns: Histogram<u64>,
    /// From the moment a submitted job was accepted to its end, in nanoseconds.
    pub job_ns: Histogram<u64>,
}

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident, $kind:literal;)*) => {
        /// Counts of one worker, or their sum over workers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[doc = $doc])+ pub $name: u64,)* }
        impl Counts {
            /// Adds another worker's counts.
            pub fn add(&mut self, other: &Counts) { $(self.$name += other.$name;)* }
            /// Name, Prometheus type and value of each.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), $kind, self.$name)),*].into_iter()
            }
            /// What each of them says, in the same order.
            fn help() -> &'static [&'static str] {
                &[$(concat!($($doc),+)),*]
            }
        }
    };
}

counts! {
    /// Guarded accesses of jobs that have ended.
    accesses, "counter";
    /// Accesses that started a read of flash.
    misses, "counter";
    /// Accesses that joined a read or write-back under way.
    misses_joined, "counter";
    /// Subpages that had no contents and were given a zeroed frame.
    fresh, "counter";
    /// Reads that failed.
    read_errors, "counter";
    /// Write-backs that failed; the data stayed in its frame.
    write_errors, "counter";
    /// Frames freed without a write.
    evicted_clean, "counter";
    /// Frames written back.
    evicted_dirty, "counter";
    /// Frames written back ahead of eviction, while there was nothing else to do.
    written_ahead, "counter";
    /// Frames checked for that.
    looks_ahead, "counter";
    /// Victims that turned out to be in use.
    evict_in_use, "counter";
    /// Expedited barriers.
    barriers, "counter";
    /// Times that a fiber waited because no frame was free.
    frame_waits, "counter";
    /// Subpages read ahead.
    prefetched, "counter";
    /// Of these, touched before they were evicted.
    prefetch_used, "counter";
    /// Of these, evicted untouched.
    prefetch_wasted, "counter";
    /// Fibers resumed.
    resumes, "counter";
    /// Jobs and service requests begun.
    jobs_started, "counter";
    /// Jobs and service requests that panicked or overflowed.
    jobs_died, "counter";
    /// Nanoseconds in which the worker had nothing to run, polling or asleep.
    wait_ns, "counter";
    /// Times that the worker slept.
    sleeps, "counter";
    /// Times that a fiber waited for a sync's gate.
    gate_waits, "counter";
    /// Nanoseconds that fibers waited there.
    gate_wait_ns, "counter";
    /// Frames that a sync had to write.
    sealed, "counter";
    /// Frames that were copied for a sync, as they were pinned or written to.
    copied, "counter";
    /// Requests to the medium that were given up.
    timeouts, "counter";
    /// Frames that the worker has.
    frames, "gauge";
    /// Of these, free.
    frames_free, "gauge";
    /// Fibers that wait.
    pending, "gauge";
    /// Requests in flight.
    in_flight, "gauge";
}

macro_rules! add_cache {
    ($($name:ident)*) => {
        impl Counts {
            /// Adds what a worker's cache has counted.
            pub(crate) fn add_cache(&mut self, cache: &fulgurite_cache::Counts) {
                let fulgurite_cache::Counts { $($name),* } = *cache;
                self.add(&Counts { $($name,)* ..Counts::default() });
            }
        }
    };
}

add_cache! {
    misses misses_joined fresh read_errors write_errors evicted_clean evicted_dirty written_ahead looks_ahead
    evict_in_use barriers frame_waits prefetched prefetch_used prefetch_wasted sealed copied timeouts
}

/// A histogram for latencies: up to 17 minutes, to one part in 128.
pub(crate) fn latencies() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 1 << 40, 2).expect("constant bounds are valid");
    histogram.auto(false);
    histogram
}

/// Upper bounds of the buckets for Prometheus, in nanoseconds: from a microsecond to ten seconds,
/// three for a factor of ten. Buckets add up over workers and machines, which quantiles do not.
fn bounds() -> impl Iterator<Item = u64> {
    (3..=10).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power))).filter(|bound| *bound <= 10_000_000_000)
}

/// For each bound, in seconds, how many times were no longer; to the histogram's precision.
fn cumulative(histogram: &Histogram<u64>) -> impl Iterator<Item = (f64, u64)> {
    let mut recorded = histogram.iter_recorded().peekable();
    let mut count = 0;
    bounds().map(move |bound| {
        while let Some(step) = recorded.next_if(|step| step.value_iterated_to() <= bound) {
            count += step.count_at_value();
        }
        (bound as f64 / 1e9, count)
    })
}

impl WorkerStatistics {
    pub(crate) fn new() -> Self {
        WorkerStatistics { counts: Counts::default(), miss_ns: latencies(), job_ns: latencies() }
    }
    /// Adds another worker's.
    pub fn add(&mut self, other: &WorkerStatistics) {
        self.counts.add(&other.counts);
        // Same bounds by construction.
        let _ = self.miss_ns.add(&other.miss_ns);
        let _ = self.job_ns.add(&other.job_ns);
    }
}

/// What maps of records have counted since the start, and the DRAM that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordStatistics {
    /// Look-ups whose record was in DRAM.
    pub hits: u64,
    /// Look-ups that needed flash.
    pub misses: u64,
    /// Look-ups of keys that the index does not have.
    pub absent: u64,
    /// Records that were read from flash and had left DRAM a short time ago.
    pub returned: u64,
    /// Records that left DRAM.
    pub evicted: u64,
    /// DRAM of the index, in bytes.
    pub index_bytes: u64,
    /// DRAM of the cached records, in bytes.
    pub cached_bytes: u64,
}

impl RecordStatistics {
    pub(crate) fn of(records: &Records) -> RecordStatistics {
        let (counts, index_bytes, cached_bytes) = records.counts();
        let fulgurite_records::Counts { hits, misses, absent, returned, evicted } = counts;
        RecordStatistics { hits, misses, absent, returned, evicted, index_bytes, cached_bytes }
    }
}

/// What a runtime has counted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Each worker's.
    pub workers: Vec<WorkerStatistics>,
    /// The DRAM budget, in bytes.
    pub dram_bytes: u64,
    /// Of the medium.
    pub device: fulgurite_flash::DeviceCounters,
    /// Of maps of records.
    pub records: RecordStatistics,
}

impl Statistics {
    /// The sum over all workers.
    pub fn total(&self) -> WorkerStatistics {
        let mut total = WorkerStatistics::new();
        self.workers.iter().for_each(|w| total.add(w));
        total
    }

    /// As Prometheus text, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        let kinds: Vec<_> = Counts::default().each().map(|(name, kind, _)| (name, kind)).collect();
        for (i, (name, kind)) in kinds.into_iter().enumerate() {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let help = Counts::help()[i].trim();
            let _ = writeln!(out, "# HELP fulgurite_{name}{suffix} {help}");
            let _ = writeln!(out, "# TYPE fulgurite_{name}{suffix} {kind}");
            for (worker, w) in self.workers.iter().enumerate() {
                let value = w.counts.each().nth(i).map_or(0, |(_, _, v)| v);
                let _ = writeln!(out, "fulgurite_{name}{suffix}{{worker=\"{worker}\"}} {value}");
            }
        }
        let times = [
            ("miss", "From a miss to its fiber's being runnable again."),
            ("job", "From a job's acceptance to its end."),
        ];
        for (of, (name, help)) in times.into_iter().enumerate() {
            let _ = writeln!(out, "# HELP fulgurite_{name}_seconds {help}");
            let _ = writeln!(out, "# TYPE fulgurite_{name}_seconds histogram");
            for (worker, w) in self.workers.iter().enumerate() {
                let histogram = if of == 0 { &w.miss_ns } else { &w.job_ns };
                for (bound, count) in cumulative(histogram) {
                    let _ =
                        writeln!(out, "fulgurite_{name}_seconds_bucket{{worker=\"{worker}\",le=\"{bound}\"}} {count}");
                }
                let all = histogram.len();
                let _ = writeln!(out, "fulgurite_{name}_seconds_bucket{{worker=\"{worker}\",le=\"+Inf\"}} {all}");
                let sum = histogram.mean() * histogram.len() as f64 / 1e9;
                let _ = writeln!(out, "fulgurite_{name}_seconds_sum{{worker=\"{worker}\"}} {sum:.9}");
                let _ = writeln!(out, "fulgurite_{name}_seconds_count{{worker=\"{worker}\"}} {}", histogram.len());
            }
        }
        let d = &self.device;
        let device = [
            ("device_reads", "Subpages read from the medium.", d.reads),
            ("device_writes", "Subpages written to the medium.", d.writes),
            ("device_write_requests", "Requests that wrote them, where the medium counts these.", d.write_requests),
            ("device_read_requests", "Requests that read them, where the medium counts these.", d.read_requests),
            ("device_errors", "Requests that the medium ended with an error.", d.errors),
        ];
        for (name, help, value) in device {
            let _ = writeln!(out, "# HELP fulgurite_{name}_total {help}");
            let _ = writeln!(out, "# TYPE fulgurite_{name}_total counter\nfulgurite_{name}_total {value}");
        }
        let r = &self.records;
        let records = [
            ("record_hits", "Look-ups in maps whose record was in DRAM.", r.hits),
            ("record_misses", "Look-ups in maps that needed flash.", r.misses),
            ("record_absent", "Look-ups in maps of keys that they do not have.", r.absent),
            ("record_returned", "Records read from flash that had left DRAM a short time ago.", r.returned),
            ("record_evicted", "Records that left DRAM.", r.evicted),
        ];
        for (name, help, value) in records {
            let _ = writeln!(out, "# HELP fulgurite_{name}_total {help}");
            let _ = writeln!(out, "# TYPE fulgurite_{name}_total counter\nfulgurite_{name}_total {value}");
        }
        let gauges = [
            ("record_index_bytes", "DRAM of the index of maps.", r.index_bytes),
            ("record_cached_bytes", "DRAM of the cached records of maps.", r.cached_bytes),
            ("dram_bytes", "The DRAM budget.", self.dram_bytes),
        ];
        for (name, help, value) in gauges {
            let _ = writeln!(out, "# HELP fulgurite_{name} {help}");
            let _ = writeln!(out, "# TYPE fulgurite_{name} gauge\nfulgurite_{name} {value}");
        }
        out
    }
}
