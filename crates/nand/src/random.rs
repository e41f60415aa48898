//! Random numbers that are the same for the same seed: SplitMix64 (Steele, Lea and Flood, OOPSLA
//! 2014). Functions are of `libm`, so that every build draws the same.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of one thing among many with the same seed.
    pub fn of(seed: u64, thing: u64) -> Random {
        let mut random = Random(seed ^ thing.wrapping_mul(0xd605_1a5f_f91c_a5a3));
        random.next();
        random
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Of the normal distribution with mean 0 and deviation 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
    /// How many of very many rare things happen, where that many are expected and none has the
    /// probability `none` = e^-expected.
    pub fn poisson(&mut self, expected: f64, none: f64) -> u32 {
        let mut left = self.unit();
        let (mut probability, mut count) = (none, 0);
        // Where e^-expected is 0 in a double, the answer is far beyond what anything corrects.
        if none == 0.0 {
            return expected as u32;
        }
        while left >= probability && count < 4096 {
            left -= probability;
            count += 1;
            probability *= expected / f64::from(count);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_and_the_deviation_are_the_distributions() {
        let mut random = Random::of(7, 0);
        let normal: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = normal.iter().sum::<f64>() / 1e5;
        let variance = normal.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        for expected in [0.01_f64, 0.7, 12.0] {
            let none = (-expected).exp();
            let sum: u64 = (0..200_000).map(|_| u64::from(random.poisson(expected, none))).sum();
            let mean = sum as f64 / 2e5;
            assert!((mean / expected - 1.0).abs() < 0.08, "{expected}: {mean}");
        }
    }
}
