//! Arrival times that do not depend on the server (no coordinated omission).

use fulgurite_workloads::Random;

/// A Poisson process: gaps are exponential with the given mean.
#[derive(Clone, Debug)]
pub struct Arrivals {
    random: Random,
    mean_gap_ns: f64,
    next_ns: f64,
}

impl Arrivals {
    /// Arrivals from `start_ns` on.
    pub fn new(seed: u64, stream: u64, per_second: f64, start_ns: u64) -> Arrivals {
        let mut arrivals = Arrivals {
            random: Random::new(seed ^ 0x0061_7272_6976_616c, stream),
            mean_gap_ns: 1e9 / per_second,
            next_ns: start_ns as f64,
        };
        arrivals.advance();
        arrivals
    }
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }
    /// Goes on to the one after it.
    #[inline]
    pub fn advance(&mut self) {
        self.next_ns -= self.mean_gap_ns * (1.0 - self.random.unit()).ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_spread_of_an_exponential() {
        let mut arrivals = Arrivals::new(1, 0, 1e6, 1000);
        let (mut sum, mut squares, mut last) = (0.0, 0.0, 1000.0);
        for _ in 0..100_000 {
            let gap = arrivals.next_ns - last;
            last = arrivals.next_ns;
            arrivals.advance();
            assert!(gap >= 0.0);
            sum += gap;
            squares += gap * gap;
        }
        let mean = sum / 1e5;
        let deviation = (squares / 1e5 - mean * mean).sqrt();
        assert!((mean / 1000.0 - 1.0).abs() < 0.02 && (deviation / mean - 1.0).abs() < 0.02, "{mean} {deviation}");
    }
}
