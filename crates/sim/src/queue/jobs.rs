//! The queue front end: jobs of random lengths that miss at random intervals.

use crate::front_end::{FrontEnd, Step};
use crate::random::Random;
use crate::time::Time;

/// How spans are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spans {
    /// All the same.
    Fixed(Time),
    /// Exponentially, with this mean.
    Exponential(Time),
    /// Evenly from the first to the second.
    Uniform(Time, Time),
}

impl Spans {
    fn draw(self, random: &mut Random) -> Time {
        match self {
            Spans::Fixed(span) => span,
            Spans::Exponential(mean) => random.exponential(mean),
            Spans::Uniform(low, high) => random.uniform(low, high),
        }
    }
}

/// Jobs of random lengths that miss at random intervals.
///
/// The stream of misses is the core's, not the job's: a job takes over what the last one has left
/// of the interval. So short jobs miss seldom, and the interval is the same for all lengths.
#[derive(Clone, Debug)]
pub struct Jobs {
    lengths: Spans,
    intervals: Spans,
    /// Until this much has been computed, intervals are `cold`: the cache has only begun to fill.
    cold_until: Time,
    cold: Spans,
    computed: Time,
    /// Computing left until the next miss of whichever job runs.
    until_miss: Time,
    /// Computing left in the job of each thread.
    left: Vec<Option<Time>>,
    length_random: Random,
    interval_random: Random,
}

impl Jobs {
    /// Jobs for `threads` threads.
    pub fn new(lengths: Spans, intervals: Spans, threads: usize, seed: u64) -> Jobs {
        let mut interval_random = Random::new(seed, 3);
        Jobs {
            lengths,
            intervals,
            cold_until: Time::ZERO,
            cold: intervals,
            computed: Time::ZERO,
            until_miss: intervals.draw(&mut interval_random),
            left: vec![None; threads],
            length_random: Random::new(seed, 2),
            interval_random,
        }
    }
    /// With a cache that is cold at first: intervals are `cold` until `until` was computed.
    #[must_use]
    pub fn cold_start(mut self, cold: Spans, until: Time) -> Jobs {
        (self.cold, self.cold_until) = (cold, until);
        self.until_miss = cold.draw(&mut self.interval_random);
        self
    }
}

impl FrontEnd for Jobs {
    fn next(&mut self, thread: u32) -> Step {
        let left = &mut self.left[thread as usize];
        match left {
            None => {
                *left = Some(self.lengths.draw(&mut self.length_random));
                self.next(thread)
            }
            // Before the end: a miss that the next job took over would meet it before it computes,
            // and a thread that resumes could miss again and again.
            Some(_) if self.until_miss == Time::ZERO => {
                let cold = self.computed < self.cold_until;
                self.until_miss = if cold { self.cold } else { self.intervals }.draw(&mut self.interval_random);
                Step::Miss
            }
            Some(Time::ZERO) => {
                *left = None;
                Step::End
            }
            Some(left) => {
                let span = (*left).min(self.until_miss);
                *left = *left - span;
                self.until_miss = self.until_miss - span;
                self.computed += span;
                Step::Compute(span)
            }
        }
    }
}
