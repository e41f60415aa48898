//! Division by numbers that are known when a device is made, and are no powers of two: by
//! multiplication, at a quarter of the price.
//!
//! The method: D. Lemire, O. Kaser, N. Kurz, "Faster remainder by direct computation", Software:
//! Practice and Experience 49 (6), 2019, section 3.1: for all numbers of 32 bits, n / d is the
//! upper half of n x ceil(2^64 / d).

/// A number to divide by, at least 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divisor {
    by: u32,
    /// ceil(2^64 / by); 0 for 1.
    reciprocal: u64,
}

impl std::fmt::Debug for Divisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.by.fmt(f)
    }
}

impl Divisor {
    /// # Panics
    /// When it is 0.
    pub const fn new(by: u32) -> Divisor {
        assert!(by > 0, "nothing is divided by 0");
        Divisor { by, reciprocal: (u64::MAX / by as u64).wrapping_add(1) }
    }
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.by
    }
    #[inline(always)]
    pub const fn divide(self, number: u32) -> u32 {
        if self.reciprocal == 0 {
            return number;
        }
        ((self.reciprocal as u128 * number as u128) >> 64) as u32
    }
    #[inline(always)]
    pub const fn remainder(self, number: u32) -> u32 {
        number - self.divide(number) * self.by
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn it_divides_as_division_does() {
        let mut random = Random::of(11, 0);
        let edges = [1, 2, 3, 5, 6, 7, 12, 24, 64, 127, 128, 641, 65_535, 65_536, 1 << 31, u32::MAX - 1, u32::MAX];
        let drawn: Vec<u32> = (0..300).map(|i| (random.next() >> (32 + i % 32)) as u32).collect();
        for by in edges.into_iter().chain(drawn.iter().copied()).filter(|by| *by > 0) {
            let divisor = Divisor::new(by);
            let multiple = u32::MAX / by * by;
            let about = [0, 1, by - 1, by, multiple - 1, multiple, u32::MAX];
            for number in about.into_iter().chain(edges).chain(drawn.iter().copied()) {
                assert_eq!((divisor.divide(number), divisor.remainder(number)), (number / by, number % by));
            }
        }
    }
}
