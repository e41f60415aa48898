//! Requests without state: randomness that is a function of (seed, number), and keys with a Zipf
//! distribution.
//!
//! [`Random`] is a generator so cheap to start that every request has its own. [`ZipfKeys`] draws a
//! rank (0 is the most popular) and scatters ranks over the keys, so that popular keys are not
//! neighbours. In a store that has been used for a while, what is popular has nothing to do with
//! where it is stored, so a page holds at most a few popular rows.
//!
//! Powers, logarithms and exponentials come from `libm`. The platform's differ in the last digit,
//! so that builds would draw other keys.
//!
//! Nothing here is good enough for cryptography.

use crate::WorkloadError;

/// The odd number next to 2^64 / golden ratio: the step of SplitMix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads 64 bits over 64 bits, one to one (the finalizer of SplitMix64, Steele, Lea and Flood,
/// OOPSLA 2014).
#[inline(always)]
#[must_use]
pub const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Random numbers of one request (SplitMix64). Two requests with different seeds or numbers share
/// nothing.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of request `number` in the stream of `seed`.
    #[inline(always)]
    #[must_use]
    pub const fn new(seed: u64, number: u64) -> Random {
        // The second mix keeps neighbours apart: without it, request n + 1 would see the numbers of
        // request n, one later.
        Random(mix(mix(seed ^ STEP).wrapping_add(number.wrapping_mul(STEP))))
    }
    /// The next 64 bits.
    #[inline(always)]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
    /// A number in `0..bound`, each as likely as the others up to one part in 2^64 / `bound`. Zero
    /// when `bound` is zero.
    #[inline(always)]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
    /// A number in `low..=high`.
    #[inline(always)]
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    /// A number in [0, 1) with 53 bits.
    #[inline(always)]
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
    /// True with this many percent.
    #[inline(always)]
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Keys `0..count` with Zipf popularity: the key of rank r (from 1) is drawn with a share
/// proportional to r^-exponent.
///
/// Ranks come by rejection from the inverse of the integral (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996): one
/// power and seldom a second try, in constant memory.
#[derive(Clone, Copy, Debug)]
pub struct ZipfKeys {
    count: u64,
    shape: Shape,
    /// Integral of the density up to 1.5, less the weight of rank 1: where the range of the
    /// integral begins.
    low: f64,
    /// Integral of the density up to `count` + 0.5: where it ends.
    high: f64,
    /// A point this close below its rank is accepted without looking further.
    near: f64,
    scatter: Scatter,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    Uniform,
    /// Exponent 1, whose integral is the logarithm.
    Harmonic,
    Power {
        exponent: f64,
        /// 1 - exponent.
        rest: f64,
        /// 1 / (1 - exponent).
        inverse: f64,
    },
}

/// A power of a positive number. Half the time of `libm::pow`, whose last digit is of no use here:
/// the exponent takes as many digits from what is drawn.
#[inline(always)]
fn power(x: f64, exponent: f64) -> f64 {
    libm::exp(exponent * libm::log(x))
}

impl Shape {
    fn density(self, x: f64) -> f64 {
        match self {
            Shape::Uniform => 1.0,
            Shape::Harmonic => 1.0 / x,
            Shape::Power { exponent, .. } => power(x, -exponent),
        }
    }
    fn integral(self, x: f64) -> f64 {
        match self {
            Shape::Uniform => x,
            Shape::Harmonic => libm::log(x),
            Shape::Power { rest, inverse, .. } => power(x, rest) * inverse,
        }
    }
    #[inline(always)]
    fn integral_inverse(self, area: f64) -> f64 {
        match self {
            Shape::Uniform => area,
            Shape::Harmonic => libm::exp(area),
            Shape::Power { rest, inverse, .. } => power(area * rest, inverse),
        }
    }
}

impl ZipfKeys {
    /// The largest exponent: beyond it all requests go to a handful of keys.
    pub const EXPONENT_MAX: f64 = 4.0;
    /// So close to 1 that the two formulas agree to a few parts in ten thousand, and the general
    /// one loses digits.
    const HARMONIC_WITHIN: f64 = 1e-5;

    /// Keys `0..count`. Exponent 0 is uniform. `workload` is named in the error.
    ///
    /// # Errors
    /// [`WorkloadError::Unusable`] when there is no key, or the exponent is not in 0 to
    /// [`ZipfKeys::EXPONENT_MAX`].
    pub fn new(workload: &'static str, count: u64, exponent: f64) -> Result<ZipfKeys, WorkloadError> {
        let unusable = |what| Err(WorkloadError::Unusable { workload, what });
        if count == 0 || count > 1 << 44 {
            return unusable(format!("{count} keys; choose a size with 1 to 2^44 of them"));
        }
        if !(0.0..=Self::EXPONENT_MAX).contains(&exponent) {
            let limit = Self::EXPONENT_MAX;
            return unusable(format!("a Zipf exponent of {exponent}; choose one from 0 (uniform) to {limit}"));
        }
        let shape = if exponent == 0.0 {
            Shape::Uniform
        } else if (exponent - 1.0).abs() < Self::HARMONIC_WITHIN {
            Shape::Harmonic
        } else {
            Shape::Power { exponent, rest: 1.0 - exponent, inverse: 1.0 / (1.0 - exponent) }
        };
        Ok(ZipfKeys {
            count,
            shape,
            low: shape.integral(1.5) - 1.0,
            high: shape.integral(count as f64 + 0.5),
            near: 2.0 - shape.integral_inverse(shape.integral(2.5) - shape.density(2.0)),
            scatter: Scatter::new(count),
        })
    }
    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Draws a key in `0..count`.
    #[inline(always)]
    pub fn sample(&self, random: &mut Random) -> u64 {
        if self.shape == Shape::Uniform { random.below(self.count) } else { self.key(self.rank(random)) }
    }
    /// Draws a rank in `0..count`. 0 is the most popular.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        if self.shape == Shape::Uniform {
            return random.below(self.count);
        }
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = self.shape.integral_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count as f64);
            if rank - x <= self.near || area >= self.shape.integral(rank + 0.5) - self.shape.density(rank) {
                return rank as u64 - 1;
            }
        }
    }
    /// The key that has this rank: a fixed permutation of `0..count`.
    ///
    /// # Panics
    /// When the rank is not below `count`.
    #[inline]
    #[must_use]
    pub fn key(&self, rank: u64) -> u64 {
        self.scatter.of(rank)
    }
}

/// A pseudo-random permutation of `0..count`: a number is cut into a low part of `low_bits` bits
/// and a high part below `highs` (at most 128), and each is shifted in turn by a hash of the other.
/// This is a Feistel network of unequal halves (Black and Rogaway, "Ciphers with arbitrary finite
/// domains", 2002). Where the result is not below `count`, it is permuted again. As `highs` whole
/// low parts are less than 2% more than `count`, a second round is so rare that it is predicted
/// well. With a power of two instead it costs more than all the rest.
#[derive(Clone, Copy, Debug)]
struct Scatter {
    count: u64,
    highs: u64,
    low_mask: u64,
    low_bits: u32,
    fold: u32,
}

impl Scatter {
    fn new(count: u64) -> Scatter {
        let low_bits = (u64::BITS - count.leading_zeros()).saturating_sub(7);
        Scatter {
            count,
            highs: count.div_ceil(1 << low_bits),
            low_mask: (1 << low_bits) - 1,
            low_bits,
            fold: low_bits.div_ceil(2).max(1),
        }
    }
    #[inline(always)]
    fn of(&self, rank: u64) -> u64 {
        assert!(rank < self.count, "rank {rank} of {} keys", self.count);
        let mut at = rank;
        loop {
            let (mut low, mut high) = (at & self.low_mask, at >> self.low_bits);
            for odd in [0xD605_1ACC_BB8D_A2A5u64, 0xF135_7AEA_2E62_A9C5] {
                // One to one on the low bits: a sum, a product with an odd number, a shift that
                // folds high bits in.
                low = low.wrapping_add(high.wrapping_mul(odd) >> 20).wrapping_mul(odd) & self.low_mask;
                low ^= low >> self.fold;
                // One to one on the high part: a sum modulo `highs`.
                high += ((u128::from((low ^ odd).wrapping_mul(STEP)) * u128::from(self.highs)) >> 64) as u64;
                high -= if high >= self.highs { self.highs } else { 0 };
            }
            at = high << self.low_bits | low;
            if at < self.count {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_a_function_of_seed_and_number() {
        let draw = |seed, number| {
            let mut r = Random::new(seed, number);
            [r.next(), r.next(), r.next()]
        };
        assert_eq!(draw(7, 3), draw(7, 3));
        let mut all: Vec<u64> = (0..8).flat_map(|s| (0..1000).flat_map(move |n| draw(s, n))).collect();
        let drawn = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), drawn, "neighbouring requests share numbers");
    }
    #[test]
    fn bounds_are_kept_and_filled() {
        let mut r = Random::new(1, 1);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[r.below(7) as usize] += 1;
            let unit = r.unit();
            assert!((0.0..1.0).contains(&unit));
            assert!((3..=5).contains(&r.between(3, 5)));
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(r.below(0), 0);
    }
    #[test]
    fn scatter_is_a_permutation_that_spreads() {
        for count in [1u64, 2, 3, 4, 5, 100, 127, 128, 129, 255, 256, 257, 1000, 1024, 1025, 65_537] {
            let scatter = Scatter::new(count);
            let mut seen = vec![false; count as usize];
            for rank in 0..count {
                assert!(!std::mem::replace(&mut seen[scatter.of(rank) as usize], true), "{count}: twice {rank}");
            }
        }
        // The most popular of a million keys, and any others that follow each other, fall into
        // about as many of 4096 blocks as random ones would: 4096 * (1 - (1 - 1/4096)^1000) = 887,
        // give or take 10.
        let scatter = Scatter::new(1_000_000);
        for first in [0, 1000, 31_337, 999_000] {
            let blocks = |block: &dyn Fn(u64) -> u64| {
                (first..first + 1000).map(|r| block(scatter.of(r))).collect::<std::collections::HashSet<_>>().len()
            };
            let (by_place, by_low_bits) = (blocks(&|key| key * 4096 / 1_000_000), blocks(&|key| key % 4096));
            assert!((840..935).contains(&by_place), "from {first}: {by_place}");
            assert!((840..935).contains(&by_low_bits), "from {first}, low bits: {by_low_bits}");
        }
    }
    #[test]
    fn shares_follow_the_law() {
        for exponent in [0.0, 0.5, 0.9, 0.99, 1.0, 1.000_01, 1.2, 1.5] {
            for count in [1u64, 2, 10, 1000] {
                let keys = ZipfKeys::new("test", count, exponent).unwrap();
                let total: f64 = (1..=count).map(|r| (r as f64).powf(-exponent)).sum();
                let mut random = Random::new(5, 0);
                let draws = 40_000;
                let mut seen = vec![0u32; count as usize];
                for _ in 0..draws {
                    seen[keys.rank(&mut random) as usize] += 1;
                }
                for (rank, &n) in seen.iter().enumerate() {
                    let expected = draws as f64 * (rank as f64 + 1.0).powf(-exponent) / total;
                    // Five standard deviations of a binomial, and a little for the smallest.
                    let slack = 5.0 * expected.sqrt() + 3.0;
                    let off = (f64::from(n) - expected).abs();
                    assert!(off <= slack, "exponent {exponent}, {count} keys, rank {rank}: {n} for {expected:.1}");
                }
            }
        }
    }
    #[test]
    fn large_counts_stay_inside() {
        for exponent in [0.3, 0.99, 1.0, 1.4] {
            let keys = ZipfKeys::new("test", 1 << 40, exponent).unwrap();
            let mut random = Random::new(9, 9);
            assert!((0..10_000).all(|_| keys.sample(&mut random) < 1 << 40));
        }
    }
    #[test]
    fn nonsense_is_refused() {
        for (count, exponent) in [(0, 1.0), (5, -0.1), (5, f64::NAN), (5, f64::INFINITY), (5, 4.1)] {
            assert!(matches!(ZipfKeys::new("test", count, exponent), Err(WorkloadError::Unusable { .. })));
        }
    }
}
