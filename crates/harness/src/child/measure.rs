//! What is measured around a batch: latencies, CPU time, faults and kernel I/O of this process.

use fulgurite_memory::{AccessError, Memory};
use fulgurite_workloads::{Workload, mix};

use crate::Latencies;

use super::added_work;
use super::protocol::{Batch, Load, Outcome};

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
