//! Random numbers that are the same for the same seed, in debug and release builds.
//!
//! The generator is xoshiro256++. Streams of one seed are 2^128 numbers apart, so that two parts of
//! a system never share any. Distributions use the logarithm of `libm`, not the platform's.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::time::Time;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Stream `stream` of a seed.
    pub fn new(seed: u64, stream: u32) -> Random {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..stream).for_each(|_| generator.jump());
        Random(generator)
    }
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// In [0, 1), in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Below a limit. The bias is below limit / 2^64.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }
    /// Of the exponential distribution.
    pub fn exponential(&mut self, mean: Time) -> Time {
        Time((-libm::log(1.0 - self.unit()) * mean.0 as f64 + 0.5) as u64)
    }
    /// Of the uniform distribution from `low` up to `high`.
    pub fn uniform(&mut self, low: Time, high: Time) -> Time {
        Time(low.0 + self.below((high.0 - low.0).saturating_add(1)))
    }
    /// Of the normal distribution with mean 0 and deviation 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_distributions() {
        let mut random = Random::new(1, 0);
        let mut mean =
            |of: &mut dyn FnMut(&mut Random) -> f64| (0..200_000).map(|_| of(&mut random)).sum::<f64>() / 200_000.0;
        assert!((mean(&mut |r| r.exponential(Time::us(10)).as_us()) - 10.0).abs() < 0.1);
        assert!((mean(&mut |r| r.uniform(Time::us(5), Time::us(25)).as_us()) - 15.0).abs() < 0.1);
        assert!(mean(&mut |r| r.normal()).abs() < 0.01);
        assert!((mean(&mut |r| r.below(7) as f64) - 3.0).abs() < 0.02);
    }
    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, stream| Random::new(seed, stream).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert!(first(1, 0) != first(1, 1) && first(1, 0) != first(2, 0));
    }
}
