//! The floor of service time without preemption, simulated: one server, requests that compute in pieces with a read of
//! flash after each, arrived requests before new ones, oldest first; switching, guards and eviction cost nothing.
//!
//! What `bench tail` measures cannot be below this multiple of flash-sync's service time, as a request whose data has
//! arrived waits until the one that computes reaches its next miss or its end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fulgurite_workloads::Random;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Computing per request.
    pub work_us: f64,
    /// Misses per request, on average.
    pub misses: f64,
    /// From a miss to its data.
    pub flash_us: f64,
    /// Share of the server's time that computing takes.
    pub load: f64,
}

/// Chances of a miss in a request: misses are spread over so many accesses.
const ACCESSES: u32 = 8;
const REQUESTS: usize = 100_000;

#[derive(Clone, Debug)]
struct Request {
    arrival: f64,
    start: f64,
    /// Pieces of computing that are left, last first.
    pieces: Vec<f64>,
}

/// p99 of service time (start to end) as a multiple of what it is when the server waits for every miss.
pub fn service_p99_ratio(service: &Service) -> f64 {
    let mut random = Random::new(7, service.load.to_bits());
    let chance = (service.misses / f64::from(ACCESSES)).min(1.0);
    let mut alone = Vec::with_capacity(REQUESTS);
    let mut now = 0.0;
    let mut arriving: Vec<Request> = (0..REQUESTS)
        .map(|_| {
            now -= service.work_us / service.load.max(1e-3) * (1.0 - random.unit()).ln();
            let mut pieces = vec![service.work_us / f64::from(ACCESSES)];
            for _ in 1..ACCESSES {
                let piece = service.work_us / f64::from(ACCESSES);
                match pieces.last_mut() {
                    Some(last) if random.unit() >= chance => *last += piece,
                    _ => pieces.push(piece),
                }
            }
            // The first access may miss too.
            if random.unit() < chance {
                pieces.push(0.0);
            }
            alone.push(service.work_us + (pieces.len() - 1) as f64 * service.flash_us);
            Request { arrival: now, start: f64::NAN, pieces }
        })
        .collect();
    let served = run(&mut arriving, service.flash_us);
    p99(served) / p99(alone)
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or(0.0)
}

/// Service times of all requests. Times are whole nanoseconds in the heaps, which need an order.
fn run(requests: &mut [Request], flash_us: f64) -> Vec<f64> {
    let (mut waiting, mut ready) = (BinaryHeap::new(), BinaryHeap::new());
    let (mut clock, mut next, mut served) = (0.0f64, 0, Vec::with_capacity(requests.len()));
    let ns = |us: f64| (us * 1000.0) as u64;
    loop {
        while let Some(Reverse((_, i))) = waiting.peek().copied().filter(|Reverse((due, _))| *due <= ns(clock)) {
            waiting.pop();
            ready.push(Reverse(i));
        }
        // Arrived fibers, the oldest first (indices are in the order of arrival); then new requests; else time passes.
        let i = if let Some(Reverse(i)) = ready.pop() {
            i
        } else if requests.get(next).is_some_and(|r| r.arrival <= clock) {
            next += 1;
            requests[next - 1].start = clock;
            next - 1
        } else {
            let arrival = requests.get(next).map_or(f64::INFINITY, |r| r.arrival);
            let due = waiting.peek().map_or(f64::INFINITY, |Reverse((due, _))| (*due + 1) as f64 / 1000.0);
            if arrival.is_infinite() && due.is_infinite() {
                return served;
            }
            clock = arrival.min(due).max(clock);
            continue;
        };
        clock += requests[i].pieces.pop().unwrap_or(0.0);
        if requests[i].pieces.is_empty() {
            served.push(clock - requests[i].start);
        } else {
            waiting.push(Reverse((ns(clock + flash_us), i)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_server_is_at_the_floor_and_a_busy_one_above() {
        let at = |load| service_p99_ratio(&Service { work_us: 10.0, misses: 1.0, flash_us: 50.0, load });
        assert!((at(0.01) - 1.0).abs() < 0.05, "{}", at(0.01));
        assert!(at(0.9) > at(0.3) && at(0.3) >= 0.99, "{} {}", at(0.9), at(0.3));
    }
    #[test]
    fn without_misses_nothing_waits() {
        assert!(
            (service_p99_ratio(&Service { work_us: 10.0, misses: 0.0, flash_us: 50.0, load: 0.9 }) - 1.0).abs() < 1e-6
        );
    }
}
