//! What a medium counts, over all its queues.

use crate::{FlashError, Op};

/// From how many nanoseconds on a completion of the emulated device counts as late.
pub const LATE_NS: u64 = 5_000;

fulgurite_sys::counters! {
    /// What a medium has done since it was opened. Fields that a medium cannot know stay 0.
    pub DeviceCounters, pub(crate) Counters {
        /// Subpages read.
        reads,
        /// Subpages written.
        writes,
        /// Requests of the kernel or device that wrote, retries included. They are fewer than the
        /// writes where neighbouring places go out as one. 0 where the medium does not count them.
        write_requests,
        /// Requests for reads, which [`crate::Switches::gather_reads`] makes fewer.
        read_requests,
        /// Flushes completed.
        flushes,
        /// Requests that ended in an error.
        errors,
        /// CPU time of the medium's own threads, up to about a millisecond ago.
        device_cpu_ns,
        /// Emulated device: completions posted more than [`LATE_NS`] after they were due.
        late,
        /// Emulated device: how long after they were due all completions were posted, in sum.
        lateness_ns_total,
        /// Emulated device: the longest of these.
        lateness_ns_max,
    }
}

impl DeviceCounters {
    /// Mean lateness of a completion, in nanoseconds.
    #[must_use]
    pub fn lateness_ns_mean(&self) -> u64 {
        self.lateness_ns_total / (self.reads + self.writes + self.flushes + self.errors).max(1)
    }
    /// Counts the end of a request.
    #[inline]
    pub(crate) fn ended(&mut self, op: Op, result: Result<(), FlashError>) {
        *match (result, op) {
            (Err(_), _) => &mut self.errors,
            (_, Op::Read) => &mut self.reads,
            (_, Op::Write) => &mut self.writes,
            (_, Op::Flush) => &mut self.flushes,
        } += 1;
    }
    /// Counts how long after its time a request ended.
    #[inline]
    pub(crate) fn add_lateness(&mut self, ns: u64) {
        self.lateness_ns_total += ns;
        self.lateness_ns_max = self.lateness_ns_max.max(ns);
        self.late += u64::from(ns > LATE_NS);
    }
}

impl Counters {
    /// Adds what was done. It must come before the completions are seen.
    #[inline]
    pub(crate) fn add(&self, done: &DeviceCounters) {
        self.reads.add(done.reads);
        self.writes.add(done.writes);
        self.flushes.add(done.flushes);
        self.errors.add(done.errors);
        self.late.add(done.late);
        self.lateness_ns_total.add(done.lateness_ns_total);
        self.lateness_ns_max.raise(done.lateness_ns_max);
    }
}
