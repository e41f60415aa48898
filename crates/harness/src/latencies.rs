//! Latencies of requests, counted by value.

use hdrhistogram::Histogram;

/// Latencies of one thread, to 1 part in 1000, up to two minutes. They are counted in batches, as
/// counting touches many cache lines that the program under test would miss.
#[derive(Debug)]
pub struct Latencies {
    counts: Histogram<u64>,
    collected: Vec<u64>,
}

/// Latencies that are collected before they are counted.
const COLLECTED: usize = 512;

const LONGEST_NS: u64 = 120_000_000_000;

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Latencies {
        let counts = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("valid bounds");
        Latencies { counts, collected: Vec::with_capacity(COLLECTED) }
    }
    /// Adds one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if self.collected.len() == COLLECTED {
            self.count();
        }
        self.collected.push(ns);
    }
    #[inline(never)]
    fn count(&mut self) {
        self.collected.drain(..).for_each(|ns| self.counts.saturating_record(ns.max(1)));
    }
    /// Adds another thread's.
    pub fn add(&mut self, other: &mut Latencies) {
        other.count();
        self.counts.add(&other.counts).expect("the same bounds");
    }
    /// Values, and how often each was seen.
    pub fn pairs(&mut self) -> Vec<(u64, u64)> {
        self.count();
        self.counts.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }
}
