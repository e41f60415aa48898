//! A simulation of service times without preemption: one server, requests that compute in pieces
//! between reads of flash, arrived data before new requests, oldest first.
//!
//! Arrived data waits until the running request misses or ends. `tail` shows the resulting
//! p99, as a multiple of a server's that waits for every miss. It is an estimate and no bound:
//! misses come at random points, switching, guards and eviction cost nothing, and another order may
//! serve the slowest requests better. Misses and reads are drawn from measurements of a waiting
//! server. Without these, misses are independent, and all reads are equal.
//!
//! All loads see the same requests and the same gaps, scaled, and the figure is the median of
//! several streams. So it repeats for the same measurement, and does not fall as the load grows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fulgurite_workloads::Random;

use fulgurite_harness::Spread;

#[derive(Clone, Debug)]
pub struct Service {
    work_us: f64,
    reads: Reads,
}

/// How long requests wait for flash.
#[derive(Clone, Debug)]
enum Reads {
    /// Independent misses (Poisson): `misses` per request on average, each for `read_us`.
    Independent { misses: f64, read_us: f64 },
    /// As measured: (µs beyond computing, requests up to here), ascending, and the time of a read.
    Measured { waits: Vec<(f64, u64)>, read_us: f64 },
}

const REQUESTS: usize = 50_000;
/// Streams of requests; the median of an odd number is one of them.
const STREAMS: u64 = 5;
/// A longer wait, in reads, has another cause and is left out.
const MISSES_MAX: f64 = 64.0;

#[derive(Clone, Debug)]
struct Request {
    arrival: f64,
    start: f64,
    read_us: f64,
    /// Pieces of computing that are left, last first.
    pieces: Vec<f64>,
}

impl Service {
    pub fn independent(work_us: f64, misses: f64, read_us: f64) -> Service {
        Service { work_us, reads: Reads::Independent { misses, read_us } }
    }

    /// From a waiting server's service times: (ns, count). A request's misses are its time beyond
    /// computing, in reads of about `read_us`, which may exceed the device's latency.
    pub fn measured(work_us: f64, misses: f64, read_us: f64, service: &[(u64, u64)]) -> Service {
        let mut waits: Vec<(f64, u64)> =
            service.iter().map(|(ns, count)| ((*ns as f64 / 1000.0 - work_us).max(0.0), *count)).collect();
        waits.retain(|(us, _)| *us < read_us * MISSES_MAX);
        waits.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = waits.iter().map(|(us, count)| us * *count as f64).sum();
        let mut requests = 0;
        for (_, count) in &mut waits {
            requests += *count;
            *count = requests;
        }
        if requests == 0 || misses <= 0.0 || read_us <= 0.0 {
            return Service::independent(work_us, misses, read_us);
        }
        let read_us = (total / requests as f64 / misses).clamp(read_us, 1.5 * read_us);
        Service { work_us, reads: Reads::Measured { waits, read_us } }
    }

    /// The p99 of service time as a multiple of a waiting server's, at this share of computing.
    pub fn p99_ratio(&self, load: f64) -> f64 {
        let ratio = |stream| {
            let mut requests = self.requests(load, stream);
            let alone = requests.iter().map(|r| self.work_us + (r.pieces.len() - 1) as f64 * r.read_us).collect();
            p99(run(&mut requests)) / p99(alone)
        };
        Spread::of((0..STREAMS).map(ratio)).median
    }

    fn requests(&self, load: f64, stream: u64) -> Vec<Request> {
        // One generator for the gaps and one for the requests: neither depends on the load.
        let (mut gaps, mut random) = (Random::new(7, 2 * stream), Random::new(7, 2 * stream + 1));
        let mut now = 0.0;
        let one = |_| {
            now += exponential(&mut gaps) * self.work_us / load.max(1e-3);
            let (misses, read_us) = self.reads.draw(&mut random);
            let mut at: Vec<f64> = (0..misses).map(|_| random.unit()).collect();
            at.sort_by(|a, b| b.total_cmp(a));
            let mut end = 1.0;
            let mut pieces = Vec::with_capacity(at.len() + 1);
            for at in at.into_iter().chain([0.0]) {
                pieces.push((end - at) * self.work_us);
                end = at;
            }
            Request { arrival: now, start: f64::NAN, read_us, pieces }
        };
        (0..REQUESTS).map(one).collect()
    }
}

impl Reads {
    /// A request's misses, and how long each takes.
    fn draw(&self, random: &mut Random) -> (u64, f64) {
        match self {
            Reads::Independent { misses, read_us } => {
                let (mut count, mut at) = (0, exponential(random));
                while at < *misses {
                    count += 1;
                    at += exponential(random);
                }
                (count, *read_us)
            }
            Reads::Measured { waits, read_us } => {
                let drawn = random.below(waits.last().map_or(0, |(_, requests)| *requests));
                let waited = waits[waits.partition_point(|(_, requests)| *requests <= drawn)].0;
                let misses = (waited / read_us).round();
                (misses as u64, waited / misses.max(1.0))
            }
        }
    }
}

/// Gaps of a Poisson process, 1 on average.
fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.unit()).ln()
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or(0.0)
}

/// Service times of all requests. Times are whole nanoseconds in the heaps, which need an order.
fn run(requests: &mut [Request]) -> Vec<f64> {
    let (mut waiting, mut ready) = (BinaryHeap::new(), BinaryHeap::new());
    let (mut clock, mut next, mut served) = (0.0f64, 0, Vec::with_capacity(requests.len()));
    let ns = |us: f64| (us * 1000.0) as u64;
    loop {
        while let Some(Reverse((_, i))) = waiting.peek().copied().filter(|Reverse((due, _))| *due <= ns(clock)) {
            waiting.pop();
            ready.push(Reverse(i));
        }
        // Arrived fibers, the oldest first (in order of index), then new requests, else waiting.
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
            waiting.push(Reverse((ns(clock + requests[i].read_us), i)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of 10 µs, reads of 54 µs, some late. `counts` has them by number of misses.
    fn measured(counts: &[u64]) -> Service {
        let mut times = Vec::new();
        for (misses, count) in counts.iter().enumerate() {
            let at = |late_ns| 10_000 + misses as u64 * 54_000 + late_ns;
            times.extend([(at(0), count * 6), (at(1_500), count * 3), (at(12_000), *count)]);
        }
        let requests: u64 = counts.iter().sum();
        let misses: u64 = counts.iter().enumerate().map(|(misses, count)| misses as u64 * count).sum();
        Service::measured(10.0, misses as f64 / requests as f64, 50.0, &times)
    }

    #[test]
    fn an_idle_server_has_no_delay() {
        for service in [Service::independent(10.0, 1.0, 50.0), measured(&[40, 35, 15, 8, 2])] {
            let at = service.p99_ratio(0.01);
            assert!((at - 1.0).abs() < 0.05, "{at}");
        }
    }
    #[test]
    fn it_does_not_fall_as_the_load_grows_and_is_the_same_each_time() {
        let loads = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98];
        let independent = |misses| Service::independent(10.0, misses, 50.0);
        for service in [independent(0.92), independent(1.2), measured(&[400, 360, 150, 60, 20, 10])] {
            let at: Vec<f64> = loads.iter().map(|load| service.p99_ratio(*load)).collect();
            println!("{at:?}");
            assert!(at.is_sorted_by(|a, b| *b >= a - 0.002), "{at:?}");
            assert!(at[12] > at[2] + 0.02 && at[0] > 0.99 && at[12] < 2.0, "{at:?}");
            assert_eq!(service.p99_ratio(0.9), at[9]);
        }
    }
    #[test]
    fn without_misses_nothing_waits() {
        for service in [Service::independent(10.0, 0.0, 50.0), Service::measured(10.0, 0.0, 50.0, &[(10_200, 5)])] {
            assert!((service.p99_ratio(0.9) - 1.0).abs() < 1e-6);
        }
    }
    #[test]
    fn misses_and_reads_are_drawn_from_service_times() {
        // The last one was held up by the machine.
        let times = [(10_100, 40), (64_000, 40), (63_500, 10), (118_300, 8), (226_000, 2), (9_000_000, 1)];
        let Reads::Measured { waits, read_us } = Service::measured(10.0, 0.74, 50.0, &times).reads else {
            panic!("there are measured times")
        };
        assert!((read_us - 54.0).abs() < 1.0 && waits.last().is_some_and(|w| w.1 == 100), "{read_us} {waits:?}");
        let (reads, mut random) = (Reads::Measured { waits, read_us }, Random::new(1, 1));
        let mut seen = [0; 5];
        for _ in 0..10_000 {
            let (misses, read_us) = reads.draw(&mut random);
            seen[misses as usize] += 1;
            assert!(misses == 0 || (53.0..55.0).contains(&read_us), "{misses} {read_us}");
        }
        let close = |seen: i32, percent: i32| (seen - 100 * percent).abs() < 150;
        assert!(close(seen[0], 40) && close(seen[1], 50) && close(seen[2], 8) && seen[3] == 0 && close(seen[4], 2));
        assert!(matches!(Service::measured(10.0, 0.5, 50.0, &[]).reads, Reads::Independent { .. }));
    }
}
