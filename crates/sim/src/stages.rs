//! What the time of a request is spent on: each has a time in each stage, and they add up to the
//! whole.
//!
//! Means are kept always. To split a percentile, all requests have to be kept: the split of the
//! p99 is the mean of those next to it in the order of their times. Some of those that are kept are
//! shown one by one, too ([`Span`]).

use serde::Serialize;

use crate::time::Time;

/// Of the requests, the share on both sides of a percentile whose mean splits it.
const NEIGHBOURS: f64 = 0.0005;
/// The most requests that are shown one by one.
const SPANS_MAX: usize = 2000;

/// The stages of all requests of one kind.
#[derive(Clone, Debug)]
pub struct Stages<const N: usize> {
    names: [&'static str; N],
    sums: [u128; N],
    count: u64,
    /// Each request's times, and when it ended.
    kept: Option<Vec<([Time; N], Time)>>,
}

/// The time of one stage, on average.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Of all requests.
    pub mean_ns: f64,
    /// Of those at the 99th percentile. None unless it was asked for.
    pub p99_ns: Option<f64>,
}

/// One request by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// When it began.
    pub begins: Time,
    /// Its time in each stage, in order.
    pub stages: Vec<Time>,
}

/// How requests spend their time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Split {
    /// Each stage, in order.
    pub stages: Vec<Stage>,
    /// Their sum: the mean of the whole.
    pub mean_ns: f64,
    /// Their sum at the 99th percentile.
    pub p99_ns: Option<f64>,
    /// Requests from the middle of the measurement, in the order in which they ended. None unless
    /// percentiles were asked for. Not in JSON.
    #[serde(skip)]
    pub spans: Vec<Span>,
}

impl<const N: usize> Stages<N> {
    /// None yet. With `keep`, percentiles can be split.
    pub fn new(names: [&'static str; N], keep: bool) -> Stages<N> {
        Stages { names, sums: [0; N], count: 0, kept: keep.then(Vec::new) }
    }
    /// Adds a request that ends at `end`.
    pub fn record(&mut self, end: Time, times: [Time; N]) {
        for (sum, time) in self.sums.iter_mut().zip(times) {
            *sum += u128::from(time.0);
        }
        self.count += 1;
        if let Some(kept) = &mut self.kept {
            kept.push((times, end));
        }
    }
    /// Forgets them all.
    pub fn clear(&mut self) {
        *self = Stages::new(self.names, self.kept.is_some());
    }
    fn spans(&self) -> Vec<Span> {
        let kept = self.kept.as_deref().unwrap_or(&[]);
        let shown = kept.len().min(SPANS_MAX);
        let first = (kept.len() - shown) / 2;
        let span = |(times, end): &([Time; N], Time)| {
            let whole: Time = times.iter().copied().sum();
            Span { begins: end.since(whole), stages: times.to_vec() }
        };
        kept[first..first + shown].iter().map(span).collect()
    }
    /// The split of the mean, and of the 99th percentile if requests were kept. None without
    /// requests.
    pub fn split(&self) -> Option<Split> {
        if self.count == 0 {
            return None;
        }
        let mean = |sum: u128, of: u64| sum as f64 / of as f64 / 1e3;
        let at_p99 = self.kept.as_ref().map(|kept| {
            let whole = |times: &[Time; N]| times.iter().copied().sum::<Time>();
            let mut order: Vec<&[Time; N]> = kept.iter().map(|(times, _)| times).collect();
            order.sort_by_key(|times| whole(times));
            let place = |share: f64| ((order.len() as f64 * share) as usize).min(order.len() - 1);
            let near = &order[place(0.99 - NEIGHBOURS)..=place(0.99 + NEIGHBOURS)];
            let mut sums = [0u128; N];
            for times in near {
                sums.iter_mut().zip(times.iter()).for_each(|(sum, time)| *sum += u128::from(time.0));
            }
            sums.map(|sum| mean(sum, near.len() as u64))
        });
        let stages: Vec<Stage> = (0..N)
            .map(|at| Stage {
                name: self.names[at],
                mean_ns: mean(self.sums[at], self.count),
                p99_ns: at_p99.map(|times| times[at]),
            })
            .collect();
        Some(Split {
            mean_ns: stages.iter().map(|stage| stage.mean_ns).sum(),
            p99_ns: at_p99.map(|times| times.iter().sum()),
            spans: self.spans(),
            stages,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up() {
        let mut stages = Stages::new(["wait", "work"], true);
        (0..1000).for_each(|i| stages.record(Time::ns(2000 + i), [Time::ns(i), Time::ns(50)]));
        let split = stages.split().unwrap();
        assert!((split.mean_ns - 549.5).abs() < 1e-9, "{split:?}");
        assert_eq!(split.stages[1].mean_ns, 50.0);
        assert!((split.p99_ns.unwrap() - 1040.0).abs() < 1.0, "{split:?}");
        stages.clear();
        assert!(stages.split().is_none());
        stages.record(Time::ns(9), [Time::ns(1), Time::ns(2)]);
        assert_eq!(stages.split().unwrap().p99_ns, Some(3.0));
    }
    #[test]
    fn requests_of_the_middle_are_shown() {
        let mut stages = Stages::new(["wait", "work"], true);
        (0..5000).for_each(|i| stages.record(Time::ns(100 + i), [Time::ns(i % 7), Time::ns(50)]));
        let spans = stages.split().unwrap().spans;
        assert_eq!(spans.len(), SPANS_MAX);
        // The 1,500th ended at 1,600 ns.
        let first = Span { begins: Time::ns(1600 - 50 - 1500 % 7), stages: vec![Time::ns(1500 % 7), Time::ns(50)] };
        assert_eq!(spans[0], first);
        let mut means = Stages::new(["wait", "work"], false);
        means.record(Time::ns(9), [Time::ns(1), Time::ns(2)]);
        assert!(means.split().unwrap().spans.is_empty());
    }
}
