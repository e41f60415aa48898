//! What a run reports: times with their percentiles and intervals, and Little's law.
//!
//! Intervals are those that batch means give (Law and Kelton): the run is cut into batches, long
//! ones where there is much, and the statistic of each batch is one observation. Between 16 and 31
//! batches exist at any time: with the 32nd, neighbours are joined. So nothing has to be known in
//! advance.
//!
//! A statistic of nothing is none, never zero or NaN. A percentile needs at least one time beyond
//! it.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::time::Time;

/// Batches at which neighbours are joined.
const BATCHES_MAX: usize = 32;
/// Times in the first batches.
const BATCH_TIMES: u64 = 64;
/// Significant digits of a recorded time: a bucket is 0.1% wide.
const DIGITS: u8 = 3;

/// A value, with the interval that holds it in 95 of 100 runs where that is known.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Half of the interval's width.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// A value that is exact.
    pub fn exact(value: f64) -> Estimate {
        Estimate { value, half_width: None }
    }
    /// Of independent observations: their mean, and the interval by Student's distribution.
    pub fn of(observations: &[f64]) -> Option<Estimate> {
        let count = observations.len();
        if count == 0 {
            return None;
        }
        let mean = observations.iter().sum::<f64>() / count as f64;
        Some(Estimate { value: mean, half_width: half_width(observations, mean) })
    }
    /// The ends of the interval.
    pub fn interval(&self) -> (f64, f64) {
        let half = self.half_width.unwrap_or(0.0);
        (self.value - half, self.value + half)
    }
    /// In another unit.
    pub fn times(self, factor: f64) -> Estimate {
        Estimate { value: self.value * factor, half_width: self.half_width.map(|half| half * factor.abs()) }
    }
}

fn half_width(observations: &[f64], mean: f64) -> Option<f64> {
    let count = observations.len();
    if count < 2 {
        return None;
    }
    let squares: f64 = observations.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some(student(count - 1) * (squares / (count - 1) as f64 / count as f64).sqrt())
}

/// The 97.5% quantile of Student's distribution with `freedom` degrees of freedom (to 30 from
/// tables, beyond by Cornish and Fisher's expansion).
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let normal = 1.959_964;
    TABLE
        .get(freedom.wrapping_sub(1))
        .copied()
        .unwrap_or(normal + (normal * normal * normal + normal) / 4.0 / freedom as f64)
}

/// Times of one kind, such as the responses of all jobs.
#[derive(Clone, Debug)]
pub struct Times {
    batches: Vec<Batch>,
    batch_times: u64,
    longest: Time,
}

#[derive(Clone, Debug)]
struct Batch {
    histogram: Histogram<u64>,
    sum_ps: u128,
}

impl Batch {
    fn new() -> Batch {
        Batch { histogram: Histogram::new(DIGITS).expect("three digits are a valid precision"), sum_ps: 0 }
    }
    fn join(&mut self, other: &Batch) {
        self.histogram.add(&other.histogram).expect("a histogram that grows holds every value");
        self.sum_ps += other.sum_ps;
    }
    fn quantile_ns(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }
    fn mean_ns(&self) -> f64 {
        self.sum_ps as f64 / self.histogram.len() as f64 / 1e3
    }
}

impl Default for Times {
    fn default() -> Times {
        Times { batches: Vec::new(), batch_times: BATCH_TIMES, longest: Time::ZERO }
    }
}

impl Times {
    /// None yet.
    pub fn new() -> Times {
        Times::default()
    }
    /// Adds one.
    pub fn record(&mut self, time: Time) {
        if self.batches.last().is_none_or(|batch| batch.histogram.len() >= self.batch_times) {
            if self.batches.len() + 1 == BATCHES_MAX {
                self.join_neighbours();
            }
            // The joined batches may have left the last one with room.
            if self.batches.last().is_none_or(|batch| batch.histogram.len() >= self.batch_times) {
                self.batches.push(Batch::new());
            }
        }
        let batch = self.batches.last_mut().expect("there is one with room");
        // Zero is no value of a histogram of three digits.
        batch.histogram.record(time.0.max(1)).expect("a histogram that grows holds every value");
        batch.sum_ps += u128::from(time.0);
        self.longest = self.longest.max(time);
    }

    fn join_neighbours(&mut self) {
        self.batch_times *= 2;
        let mut joined: Vec<Batch> = Vec::with_capacity(BATCHES_MAX);
        for (i, batch) in self.batches.drain(..).enumerate() {
            match joined.last_mut() {
                Some(last) if i % 2 == 1 => last.join(&batch),
                _ => joined.push(batch),
            }
        }
        self.batches = joined;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.batches.iter().map(|batch| batch.histogram.len()).sum()
    }
    /// Their sum.
    pub fn sum_s(&self) -> f64 {
        self.batches.iter().map(|batch| batch.sum_ps).sum::<u128>() as f64 / 1e12
    }

    fn all(&self) -> Option<Batch> {
        let (first, rest) = self.batches.split_first()?;
        let mut all = first.clone();
        rest.iter().for_each(|batch| all.join(batch));
        Some(all)
    }

    /// A statistic of everything, with the interval that its values in whole batches give.
    fn estimate(&self, all: &Batch, of: impl Fn(&Batch) -> f64) -> Estimate {
        let whole: Vec<f64> = self.batches.iter().filter(|b| b.histogram.len() >= self.batch_times).map(&of).collect();
        let mean = whole.iter().sum::<f64>() / whole.len().max(1) as f64;
        Estimate { value: of(all), half_width: half_width(&whole, mean) }
    }

    /// A quantile in nanoseconds. None unless at least one time is beyond it.
    pub fn quantile_ns(&self, quantile: f64) -> Option<Estimate> {
        self.all().and_then(|all| self.quantile_of(&all, quantile))
    }
    fn quantile_of(&self, all: &Batch, quantile: f64) -> Option<Estimate> {
        // In integers, so that a count of 100 has one beyond its 99th percentile on every platform.
        let beyond = ((1.0 - quantile) * 1e6 + 0.5) as u64 * all.histogram.len();
        (beyond >= 1_000_000).then(|| self.estimate(all, |batch| batch.quantile_ns(quantile)))
    }

    /// What is reported of them.
    pub fn distribution(&self) -> Distribution {
        let all = self.all();
        let quantile = |quantile| all.as_ref().and_then(|all| self.quantile_of(all, quantile));
        Distribution {
            count: self.count(),
            mean_ns: all.as_ref().map(|all| self.estimate(all, Batch::mean_ns)),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: all.is_some().then(|| self.longest.as_ns()),
        }
    }
}

/// Times as they are reported, in nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: Option<Estimate>,
    /// Median.
    pub p50_ns: Option<Estimate>,
    /// 90% are at most this long.
    pub p90_ns: Option<Estimate>,
    /// 99%.
    pub p99_ns: Option<Estimate>,
    /// 99.9%.
    pub p999_ns: Option<Estimate>,
    /// 99.99%.
    pub p9999_ns: Option<Estimate>,
    /// The longest.
    pub max_ns: Option<f64>,
}

/// How many are in a system, over time.
#[derive(Clone, Debug, Default)]
pub struct Population {
    present: u64,
    /// Present times picoseconds.
    area: u128,
    begun: Time,
    changed: Time,
    times: Times,
    /// Picoseconds that those inside at the beginning had spent by then.
    before: u128,
}

impl Population {
    /// One enters.
    pub fn enter(&mut self, now: Time) {
        self.advance(now);
        self.present += 1;
    }
    /// One that entered at `entered` leaves.
    pub fn leave(&mut self, entered: Time, now: Time) {
        self.advance(now);
        self.present -= 1;
        self.times.record(now - entered);
    }
    /// Forgets what was, but not what is in the system: each of those has entered at a time.
    pub fn measure_from(&mut self, now: Time, entered: impl IntoIterator<Item = Time>) {
        self.advance(now);
        let before = spent(now, entered);
        *self = Population { present: self.present, area: 0, begun: now, changed: now, times: Times::new(), before };
    }
    /// How many are in the system.
    pub fn present(&self) -> u64 {
        self.present
    }
    /// The times that those which have left had spent in it.
    pub fn times(&self) -> &Times {
        &self.times
    }
    /// Little's law at this moment, with when those inside have entered. None before anything has
    /// left.
    ///
    /// With what those inside at both ends have spent, the law holds to the last picosecond. So it
    /// does in runs of any length, if each has entered when it says. It holds of a queue that still
    /// grows, too. [`Law::is_steady`] tells that.
    pub fn law(&mut self, now: Time, entered: impl IntoIterator<Item = Time>) -> Option<Law> {
        self.advance(now);
        let span = (now - self.begun).as_s();
        let count = self.times.count();
        if count == 0 || span == 0.0 {
            return None;
        }
        let mean_present = self.area as f64 / 1e12 / span;
        let rate_per_s = count as f64 / span;
        let mean_s = self.times.sum_s() / count as f64;
        // What jobs inside at an end have spent on this side of it.
        let ends_s = (spent(now, entered) as f64 - self.before as f64) / 1e12;
        let present = (rate_per_s * mean_s * span + ends_s) / span;
        let of_present = |part: f64| if mean_present > 0.0 { part / mean_present } else { 0.0 };
        let (deviation, unended) = (of_present(present - mean_present).abs(), of_present(ends_s / span));
        Some(Law { mean_present, rate_per_s, mean_ns: mean_s * 1e9, deviation, unended })
    }

    fn advance(&mut self, now: Time) {
        self.area += u128::from(self.present) * u128::from((now - self.changed).0);
        self.changed = now;
    }
}

/// Picoseconds since each has entered.
fn spent(now: Time, entered: impl IntoIterator<Item = Time>) -> u128 {
    entered.into_iter().map(|entered| u128::from(now.since(entered).0)).sum()
}

/// Little's law: the mean number in a system is the rate times the mean time in it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Law {
    /// Mean number in the system, over time.
    pub mean_present: f64,
    /// Those that left, a second of simulated time.
    pub rate_per_s: f64,
    /// Mean time that those which left had spent.
    pub mean_ns: f64,
    /// By what share the two sides differ, those inside at both ends counted with what they have
    /// spent on this side of the end.
    pub deviation: f64,
    /// What those inside at the end have spent, less what those inside at the beginning had spent
    /// before it. A share of all time inside, and near zero in a steady run.
    pub unended: f64,
}

impl Law {
    /// The largest deviation of a result that may be reported: what sums of floating point leave,
    /// many times over. An entry or an end that is counted wrongly is beyond it.
    pub const DEVIATION_MAX: f64 = 1e-6;
    /// The largest share of [`Law::unended`] of a steady run.
    pub const UNENDED_MAX: f64 = 0.01;

    /// Whether the law holds.
    pub fn holds(&self) -> bool {
        self.deviation <= Law::DEVIATION_MAX
    }
    /// Whether as much has left as has come. Where more comes than leaves, times depend on how long
    /// the run is.
    pub fn is_steady(&self) -> bool {
        self.unended.abs() <= Law::UNENDED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn nothing_is_none() {
        let nothing = Times::new().distribution();
        assert_eq!((nothing.count, nothing.mean_ns, nothing.p50_ns, nothing.max_ns), (0, None, None, None));
        assert!(Population::default().law(Time::us(1), []).is_none());
    }
    #[test]
    fn one_is_finite() {
        let mut population = Population::default();
        population.enter(Time::us(1));
        population.leave(Time::us(1), Time::us(3));
        let law = population.law(Time::us(4), []).unwrap();
        assert!(law.holds() && (law.mean_present - 0.5).abs() < 1e-12, "{law:?}");
        let one = population.times().distribution();
        assert_eq!((one.count, one.p99_ns), (1, None), "no time is beyond the 99th percentile of one");
        assert!((one.mean_ns.unwrap().value - 2000.0).abs() < 1e-9);
    }
    #[test]
    fn with_its_ends_the_law_is_exact() {
        // Two are inside at the beginning, and two at the end.
        let of = |says: u64| {
            let mut population = Population::default();
            population.enter(Time::us(1));
            population.enter(Time::us(4));
            population.measure_from(Time::us(10), [Time::us(1), Time::us(4)]);
            population.leave(Time::us(says), Time::us(12));
            population.enter(Time::us(13));
            population.law(Time::us(20), [Time::us(4), Time::us(13)]).unwrap()
        };
        let law = of(1);
        assert!((law.mean_present - 1.9).abs() < 1e-12 && law.deviation < 1e-12, "{law:?}");
        // Those at the end have spent 16 and 7 of 19 µs, and those at the beginning had spent 15.
        assert!((law.unended - 8.0 / 19.0).abs() < 1e-12 && !law.is_steady(), "{law:?}");
        // One that says it had entered a microsecond earlier or later is found.
        assert!(!of(0).holds() && !of(2).holds());
    }
    #[test]
    fn batches_hold_everything_and_intervals_hold_the_truth() {
        let (mut inside, runs) = (0, 60);
        for seed in 0..runs {
            let (mut times, mut random) = (Times::new(), Random::new(seed, 0));
            (0..20_000).for_each(|_| times.record(random.exponential(Time::us(10))));
            assert_eq!(times.count(), 20_000);
            let (low, high) = times.distribution().mean_ns.unwrap().interval();
            inside += u64::from((low..=high).contains(&10_000.0));
            let p99 = times.quantile_ns(0.99).unwrap().value;
            assert!((p99 / (10_000.0 * libm::log(100.0)) - 1.0).abs() < 0.1, "{p99}");
        }
        // 95% of 60 are 57; 50 or fewer have a probability below 1 in 1,000.
        assert!(inside > 50, "{inside} of {runs} intervals hold the mean");
    }
    #[test]
    fn students_quantiles_go_over_into_the_normal_one() {
        assert!((student(2) - 4.303).abs() < 1e-9 && (student(31) - 2.040).abs() < 0.005);
        assert!((student(100_000) - 1.96).abs() < 0.001);
    }
}
