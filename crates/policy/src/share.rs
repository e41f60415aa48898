//! How DRAM is divided between two caches: page frames, and objects.
//!
//! Each cache remembers what it evicted lately (its ghost). A miss of something that it remembers
//! would have been a hit in a cache that is larger by what the ghost stands for. So these misses,
//! divided by those bytes, are what a cache would gain by more DRAM. DRAM moves a step at a time to
//! the cache that would gain more, unless the two differ too little to be sure.
//!
//! Half of what is measured is forgotten at each question, so that a change of the load is followed
//! and a burst is not. After a step all of it is forgotten, because it was true of other sizes.
//!
//! Not here: how DRAM is moved, and what a miss costs, which is a read of flash in both.

use std::ops::RangeInclusive;

/// Misses of remembered things on both sides before anything is decided.
const NOTICE: u64 = 128;
/// By how much one side has to gain more than the other: 3 / 2.
const MORE: (u128, u128) = (3, 2);

/// What a cache would gain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marginal {
    /// Misses, since the last report, of what the cache remembers to have evicted.
    pub missed: u64,
    /// Bytes of DRAM with which these would have been hits.
    pub bytes: u64,
}

/// Divides DRAM. See the module.
#[derive(Clone, Debug)]
pub struct Share {
    step: u64,
    frames: u64,
    objects: u64,
}

impl Share {
    /// Moves `step` bytes at a time.
    pub fn new(step: u64) -> Share {
        Share { step, frames: 0, objects: 0 }
    }

    /// How many bytes objects should have that have `now`, inside of `bounds`.
    pub fn decide(&mut self, now: u64, bounds: &RangeInclusive<u64>, frames: Marginal, objects: Marginal) -> u64 {
        self.frames = self.frames / 2 + frames.missed;
        self.objects = self.objects / 2 + objects.missed;
        let inside = now.clamp(*bounds.start(), (*bounds.end()).max(*bounds.start()));
        if inside != now {
            return inside;
        }
        if self.frames + self.objects < NOTICE || frames.bytes == 0 || objects.bytes == 0 {
            return now;
        }
        let frames_gain = u128::from(self.frames) * u128::from(objects.bytes);
        let objects_gain = u128::from(self.objects) * u128::from(frames.bytes);
        let wanted = if objects_gain * MORE.1 > frames_gain * MORE.0 {
            now.saturating_add(self.step).min(*bounds.end())
        } else if frames_gain * MORE.1 > objects_gain * MORE.0 {
            now.saturating_sub(self.step).max(*bounds.start())
        } else {
            now
        };
        if wanted != now {
            (self.frames, self.objects) = (0, 0);
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(missed: u64) -> Marginal {
        Marginal { missed, bytes: 1 << 20 }
    }

    #[test]
    fn dram_moves_to_the_cache_that_gains_more() {
        let mut share = Share::new(10);
        let bounds = 20..=85;
        assert_eq!(share.decide(50, &bounds, missed(10), missed(90)), 50, "too few to decide");
        assert_eq!(share.decide(50, &bounds, missed(10), missed(90)), 60);
        assert_eq!(share.decide(60, &bounds, missed(0), missed(100)), 60, "what was true of 50 is forgotten");
        assert_eq!(share.decide(60, &bounds, missed(0), missed(100)), 70);
        assert_eq!(share.decide(70, &bounds, missed(100), missed(100)), 70, "as good on both sides");
        assert_eq!(share.decide(80, &bounds, missed(0), missed(500)), 85, "no more than there is");
        assert_eq!(share.decide(85, &bounds, missed(0), missed(500)), 85);
        assert_eq!(share.decide(85, &bounds, missed(5000), missed(0)), 75);
    }
    #[test]
    fn a_miss_counts_by_the_bytes_that_would_have_spared_it() {
        let mut share = Share::new(10);
        let large = Marginal { missed: 300, bytes: 4 << 20 };
        assert_eq!(share.decide(50, &(0..=100), large, missed(200)), 60);
        let nothing = Marginal { missed: 1000, bytes: 0 };
        assert_eq!(share.decide(60, &(0..=100), nothing, missed(0)), 60, "a cache that remembers nothing says nothing");
    }
    #[test]
    fn bounds_come_first() {
        let mut share = Share::new(10);
        assert_eq!(share.decide(50, &(60..=80), missed(0), missed(0)), 60);
        assert_eq!(share.decide(90, &(60..=80), missed(0), missed(0)), 80);
        #[allow(clippy::reversed_empty_ranges, reason = "a budget that leaves no room")]
        let none = 60..=40;
        assert_eq!(share.decide(90, &none, missed(0), missed(0)), 60);
    }
    /// Two caches over Zipf-like loads: the hits of each are a concave function of its bytes.
    #[test]
    fn it_settles_where_both_gain_alike() {
        const ALL: f64 = 1000.0;
        let hits = |weight: f64, bytes: f64| weight * (1.0 + bytes).ln();
        // Misses that another `bytes` would have spared.
        let gain = |weight: f64, bytes: f64| (1000.0 * (hits(weight, 1.5 * bytes) - hits(weight, bytes))) as u64;
        for (frames_weight, objects_weight) in [(1.0, 1.0), (1.0, 3.0), (4.0, 1.0)] {
            for start in [100, 500, 900] {
                let (mut share, mut now, mut moves) = (Share::new(20), start, 0);
                for round in 0..300 {
                    let (frames, objects) = (ALL - now as f64, now as f64);
                    let marginal =
                        |weight, bytes: f64| Marginal { missed: gain(weight, bytes), bytes: (bytes / 2.0) as u64 };
                    let wanted = share.decide(
                        now,
                        &(50..=950),
                        marginal(frames_weight, frames),
                        marginal(objects_weight, objects),
                    );
                    moves += u32::from(round > 200 && wanted != now);
                    now = wanted;
                }
                // A logarithm's best split is in proportion to the weights.
                let best = ALL * objects_weight / (frames_weight + objects_weight);
                assert!((now as f64 - best).abs() < 130.0, "{now}, and the best is {best}, from {start}");
                assert_eq!(moves, 0, "it moves to and fro");
            }
        }
    }
}
