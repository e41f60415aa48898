//! `--miss-every`: the computing between two misses, the same for all configurations.
//!
//! It comes from the request itself, then from fewer misses (a larger Zipf exponent), then from a
//! fixed number of added iterations. The time between misses is dram-only's time per request
//! divided by `fulgurite`'s misses per request. The processes used here end before the measurement.

use std::time::Duration;

use anyhow::Result;
use fulgurite_format::format_duration;

use crate::args::WorkArgs;
use crate::child::protocol::{Batch, Load};
use crate::image::Image;
use crate::rows::Calibration;
use crate::session::{Running, Session, Setup};
use crate::values::Config;
use fulgurite_term::progress;

/// Exponents to try, ascending; YCSB's 0.99 is among them.
const EXPONENTS: [f64; 7] = [0.8, 0.9, 0.99, 1.05, 1.1, 1.15, 1.2];
/// The exponent where nobody asked for a distance between misses: YCSB's.
const EXPONENT_DEFAULT: f64 = 0.99;
/// Requests of calibration have numbers of their own, far from those that are measured.
const FIRST: u64 = 1 << 40;

/// What a run's batches look like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// How misses were spaced.
    pub calibration: Calibration,
    /// Transactions of the workload in a request.
    pub transactions: u64,
    /// Misses per request with this much DRAM.
    pub misses_per_op: f64,
    /// Requests in a round.
    pub count: u64,
    /// Unmeasured requests before a round, which refill the processor's caches.
    pub lead_in: u64,
    /// Requests before the first round, until the cache holds what it will hold.
    pub warm_up: u64,
}

impl Plan {
    pub fn batch(&self, seed: u64, first: u64, count: u64, load: Load) -> Batch {
        let (transactions, work_iterations) = (self.transactions, self.calibration.added_work_iterations);
        Batch { seed, first, count, transactions, work_iterations, load }
    }
    /// This plan with enough transactions in each request that computing it takes about `time`.
    #[must_use]
    pub fn with_request_time(mut self, time: Duration) -> Plan {
        let c = &mut self.calibration;
        let times = (time.as_nanos() as f64 / (c.own_work_ns + c.added_work_ns)).round().max(1.0);
        (c.own_work_ns, c.added_work_ns) = (c.own_work_ns * times, c.added_work_ns * times);
        self.misses_per_op *= times;
        self.transactions *= times as u64;
        self.count = (self.count / times as u64).max(64);
        self.lead_in /= times as u64;
        self.warm_up = (self.warm_up / times as u64).max(64);
        self
    }
    pub fn sentence(&self, workload: &str) -> String {
        let c = &self.calibration;
        let time = |ns: f64| format_duration(Duration::from_nanos(ns as u64));
        let target = c.miss_every_ns.map_or(String::new(), |ns| format!(" for a miss every {}", time(ns as f64)));
        format!(
            "{workload}: Zipf exponent {:.3}, {} transactions a request, {} of its own and {} of added computing per \
             request{target}; {:.3} misses per request",
            c.zipf,
            self.transactions,
            time(c.own_work_ns),
            time(c.added_work_ns),
            self.misses_per_op
        )
    }
}

/// How many times as long as dram-only's round time the slowest configuration may take, about.
const LONGEST_ROUND: f64 = 8.0;
/// Time of the unmeasured requests: to fill a last-level cache of 32 MiB from DRAM takes some 20
/// ms. At most a quarter of a round.
const LEAD_IN_S: f64 = 0.02;
/// The longest part of the search, in seconds, for the misses of a request at one exponent.
const LONGEST_SEARCH: f64 = 20.0;
/// A miss that is waited for, in seconds: AstriFlash's 50 µs and what it costs around it.
const MISS_S: f64 = 60e-6;

struct Bench<'b> {
    dram_only: Running,
    fulgurite: Option<Running>,
    seed: u64,
    next: u64,
    round_time: Duration,
    session: &'b Session,
}

/// Finds exponent, added work and the number of requests in a round.
pub fn calibrate(
    session: &mut Session,
    image: &Image,
    work: &WorkArgs,
    round_time: Duration,
    misses_matter: bool,
) -> Result<Plan> {
    let waiting = progress::waiting(&format!("{}: calibrating", image.label()));
    let setup = |config| Setup { config, threads: session.flash.workers as usize, page_cluster: None };
    let setups = (setup(Config::DramOnly), setup(Config::Fulgurite));
    let dram_only = session.spawn(image, setups.0)?;
    let fulgurite = if misses_matter { Some(session.spawn(image, setups.1)?) } else { None };
    let mut bench = Bench { dram_only, fulgurite, seed: image.params.seed, next: FIRST, round_time, session };
    let uniform = fulgurite_workloads::UNIFORM.contains(&image.workload.as_str());
    let plan = bench.plan(work, work.zipf.or(uniform.then_some(0.0)));
    let Bench { dram_only, fulgurite, .. } = bench;
    session.end(dram_only)?;
    if let Some(fulgurite) = fulgurite {
        session.end(fulgurite)?;
    }
    waiting.finish_and_clear();
    plan
}

impl Bench<'_> {
    /// `zipf`: an exponent that stays as it is.
    fn plan(&mut self, work: &WorkArgs, zipf: Option<f64>) -> Result<Plan> {
        // A million iterations take about a millisecond: long for the clock, seldom interrupted.
        let iteration_ns = self.dram_only.child.time_work(1 << 20)? as f64 / f64::from(1 << 20);
        let target = work.miss_every.map(|t| t.as_nanos() as f64).filter(|_| self.fulgurite.is_some());
        let (zipf, own_ns, misses) = match (target, zipf) {
            (Some(target), None) => self.exponent(target)?,
            (_, fixed) => self.at(fixed.unwrap_or(EXPONENT_DEFAULT))?,
        };
        let added_ns = match (target, work.work) {
            (Some(target), _) => (target * misses - own_ns).max(0.0),
            (None, Some(added)) => added.as_nanos() as f64,
            (None, None) => 0.0,
        };
        let iterations = (added_ns / iteration_ns) as u64;
        let per_second = 1e9 / (own_ns + added_ns) * f64::from(self.session.flash.workers);
        let round_s = self.round_time.as_secs_f64();
        // A configuration that waits for every miss must end, too.
        let bearable = if misses > 0.0 { LONGEST_ROUND * round_s / (misses * MISS_S) } else { f64::MAX };
        let count = (per_second * round_s).min(bearable).max(64.0) as u64;
        let calibration = Calibration {
            zipf,
            added_work_ns: iterations as f64 * iteration_ns,
            added_work_iterations: iterations,
            own_work_ns: own_ns,
            miss_every_ns: work.miss_every.map(|t| t.as_nanos() as u64),
        };
        // Each frame filled about twice, but no longer than three rounds.
        let frames = (self.session.dram_bytes / 4096) as f64;
        let fill = if misses > 0.0 { 2.0 * frames / misses } else { 0.0 };
        let warm_up = (fill as u64).clamp(count / 2, count * 3);
        let lead_in = ((per_second * LEAD_IN_S) as u64).min(count / 4);
        Ok(Plan { calibration, transactions: 1, misses_per_op: misses, count, lead_in, warm_up })
    }

    /// The smallest exponent whose own computing reaches the distance, or the largest.
    fn exponent(&mut self, target_ns: f64) -> Result<(f64, f64, f64)> {
        let mut tried = None;
        for exponent in EXPONENTS {
            let (_, own_ns, misses) = self.at(exponent)?;
            tried = Some((exponent, own_ns, misses));
            if own_ns >= target_ns * misses {
                break;
            }
        }
        Ok(tried.expect("there are exponents"))
    }

    fn batch(&mut self, count: u64) -> Batch {
        let first = self.next;
        self.next += count;
        Batch { seed: self.seed, first, count, transactions: 1, work_iterations: 0, load: Load::Closed }
    }

    /// Measures the time of a request in dram-only, and the misses per request of a warm cache.
    fn at(&mut self, exponent: f64) -> Result<(f64, f64, f64)> {
        self.dram_only.child.zipf(exponent)?;
        let trial = self.batch(2000);
        let first = self.dram_only.child.run(&trial)?;
        let rate = first.requests as f64 / first.elapsed_ns.max(1) as f64;
        let count = (rate * self.round_time.as_nanos() as f64 / 4.0).clamp(2000.0, 5e7) as u64;
        let mut own_ns = f64::INFINITY;
        for _ in 0..3 {
            let batch = self.batch(count);
            let outcome = self.dram_only.child.run(&batch)?;
            own_ns =
                own_ns.min(outcome.elapsed_ns as f64 / outcome.requests as f64 * f64::from(self.session.flash.workers));
        }
        let misses = if self.fulgurite.is_some() { self.misses(exponent)? } else { 0.0 };
        Ok((exponent, own_ns, misses))
    }

    /// Misses per request once they no longer fall.
    fn misses(&mut self, exponent: f64) -> Result<f64> {
        let frames = self.fulgurite.as_ref().map_or(0, |f| f.opened.frames).max(256);
        let mut count = 2000;
        let mut last = f64::INFINITY;
        // A large cache fills slowly, and while it does, misses fall from batch to batch.
        let mut left_ns = LONGEST_SEARCH * self.round_time.as_nanos() as f64;
        if let Some(fulgurite) = &mut self.fulgurite {
            fulgurite.child.zipf(exponent)?;
        }
        for _ in 0..12 {
            let batch = self.batch(count);
            let Some(fulgurite) = &mut self.fulgurite else { break };
            let outcome = fulgurite.child.run(&batch)?;
            let misses = outcome.misses as f64 / outcome.requests as f64;
            let filled = outcome.misses >= frames / 2 || outcome.elapsed_ns > 2 * self.round_time.as_nanos() as u64;
            if filled && misses > last * 0.97 {
                return Ok(misses);
            }
            last = misses;
            left_ns -= outcome.elapsed_ns as f64;
            if left_ns < 0.0 {
                break;
            }
            // Enough requests that half of the frames are replaced, within reason.
            if !filled {
                count = (count * 4).min(4_000_000);
            }
        }
        Ok(last)
    }
}
