//! What is measured around a batch: latencies, CPU time, faults and kernel I/O of this process.

use std::fs;

use fulgurite_memory::{AccessError, Memory};
use fulgurite_sys::clock;
use fulgurite_workloads::{Workload, mix};
use hdrhistogram::Histogram;

use super::added_work;
use super::protocol::{Batch, Load, Outcome};

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

/// What one thread did of a batch.
#[derive(Debug)]
pub struct Taken {
    pub requests: u64,
    pub end_ns: u64,
    pub latency: Latencies,
    /// From start to end. Empty in a closed loop, whose requests arrive when they are begun.
    pub service: Latencies,
    /// Sum over the answers that do not depend on order.
    pub answers: u64,
    pub failed: Option<AccessError>,
    /// Time in which it was runnable without its core, where the thread itself can tell.
    pub taken_ns: Option<u64>,
}

impl Taken {
    pub fn from(start_ns: u64) -> Taken {
        Taken {
            requests: 0,
            end_ns: start_ns,
            latency: Latencies::new(),
            service: Latencies::new(),
            answers: 0,
            failed: None,
            taken_ns: None,
        }
    }
}

/// Executes a request's transactions. Returns the sum of the answers that do not depend on order.
#[inline]
pub fn execute<W: Workload, M: Memory>(
    workload: &W,
    memory: &mut M,
    batch: &Batch,
    offset: u64,
) -> Result<u64, AccessError> {
    let mut answers = 0u64;
    for number in batch.transactions_of(offset) {
        let request = workload.request(batch.seed, number);
        let found = std::hint::black_box(workload.execute(memory, &request)?);
        if workload.answer_is_fixed(&request) {
            answers = answers.wrapping_add(answer_hash(number, found));
        }
        added_work::compute(batch.work_iterations);
    }
    Ok(answers)
}

/// The outcome of a batch, as far as its threads tell it.
pub fn outcome<W: Workload>(workload: &W, batch: &Batch, start_ns: u64, taken: &mut [Taken]) -> Outcome {
    let (mut latency, mut service) = (Latencies::new(), Latencies::new());
    for one in &mut *taken {
        latency.add(&mut one.latency);
        service.add(if batch.load == Load::Closed { &mut one.latency } else { &mut one.service });
    }
    Outcome {
        elapsed_ns: taken.iter().map(|t| t.end_ns).max().unwrap_or(start_ns).saturating_sub(start_ns),
        requests: taken.iter().map(|t| t.requests).sum(),
        request_hash: taken.iter().fold(request_hash(workload, batch), |hash, one| hash.wrapping_add(one.answers)),
        latency: latency.pairs(),
        service: service.pairs(),
        taken_ns: taken.iter().filter_map(|t| t.taken_ns).max(),
        ..Outcome::default()
    }
}

/// A share of all requests whose content goes into the hash as well as their number.
const SAMPLED: u64 = 256;

/// A hash of the transactions of a batch: of all their numbers, and of the content of some.
fn request_hash<W: Workload>(workload: &W, batch: &Batch) -> u64 {
    let all = batch.transactions_of(0).start..batch.transactions_of(batch.count).start;
    let numbers = all.clone().fold(0u64, |sum, n| sum.wrapping_add(mix(batch.seed ^ mix(n))));
    let step = ((all.end - all.start) / SAMPLED).max(1) as usize;
    all.step_by(step).fold(numbers, |sum, n| {
        let text = format!("{:?}", workload.request(batch.seed, n));
        sum.wrapping_add(text.bytes().fold(n, |hash, byte| mix(hash ^ u64::from(byte))))
    })
}

/// What one answer adds to the hash of a batch.
#[inline]
fn answer_hash(number: u64, answer: u64) -> u64 {
    mix(number ^ mix(answer))
}

/// Counters of this process, of which only differences mean anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of all threads, user and kernel.
    pub cpu_ns: u64,
    /// Pages that had to be read first.
    pub major_faults: u64,
    /// 4 KiB blocks that this process has caused to be read.
    pub blocks_read: u64,
    /// Written: its own, and what the machine has swapped out.
    pub blocks_written: u64,
}

impl Usage {
    /// Until now.
    pub fn now() -> Usage {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // proc_pid_stat(5): `majflt` is field 12, the tenth after the name in parentheses.
        let faults = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(9)?.parse().ok());
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let vm = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let number = |text: &str, key: &str| -> u64 {
            text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
        };
        Usage {
            cpu_ns: clock::process_cpu().as_nanos() as u64,
            major_faults: faults.unwrap_or(0),
            blocks_read: number(&io, "read_bytes:") / 4096,
            blocks_written: number(&io, "write_bytes:") / 4096 + number(&vm, "pswpout "),
        }
    }
    /// What was used since `before`.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            blocks_read: self.blocks_read.saturating_sub(before.blocks_read),
            blocks_written: self.blocks_written.saturating_sub(before.blocks_written),
        }
    }
}
