//! Simulated time: points and spans, in picoseconds.
//!
//! A `u64` of picoseconds is 213 days. Sums and products end there, and do not wrap. A run that
//! passes [`Time::LONGEST_RUN`] has no result. The scheduler and the NAND model count nanoseconds,
//! which [`Time::whole_ns`] gives them.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Sub};

/// A point in simulated time, or a span of it, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The beginning, and the empty span.
    pub const ZERO: Time = Time(0);
    /// A hundred days: what ends later may be wrong by what was cut off.
    pub const LONGEST_RUN: Time = Time(100 * 24 * 3600 * 1_000_000_000_000);

    /// `ns` nanoseconds.
    pub const fn ns(ns: u64) -> Time {
        Time(ns.saturating_mul(1000))
    }
    /// `us` microseconds.
    pub const fn us(us: u64) -> Time {
        Time(us.saturating_mul(1_000_000))
    }
    /// The nearest picosecond to `ns` nanoseconds. Below zero it is zero.
    pub fn from_ns(ns: f64) -> Time {
        Time((ns * 1000.0 + 0.5) as u64)
    }
    /// In nanoseconds, rounded down.
    pub const fn whole_ns(self) -> u64 {
        self.0 / 1000
    }
    /// In nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 / 1e3
    }
    /// In microseconds.
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// In seconds.
    pub fn as_s(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// The span from another point until this one, and zero where that is later.
    pub const fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}
impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        debug_assert!(self >= other || other > Time::LONGEST_RUN, "{other} before {self}");
        self.since(other)
    }
}
impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        *self = *self + other;
    }
}
impl Mul<u64> for Time {
    type Output = Time;
    fn mul(self, times: u64) -> Time {
        Time(self.0.saturating_mul(times))
    }
}
impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(times: I) -> Time {
        times.fold(Time::ZERO, Time::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps < 1_000_000 => write!(f, "{} ns", self.as_ns()),
            _ => write!(f, "{} µs", self.as_us()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_end_where_the_count_does() {
        let last = Time(u64::MAX);
        assert_eq!((last + Time::ns(1), Time::us(u64::MAX), Time::LONGEST_RUN * 3), (last, last, last));
        assert_eq!((Time::ns(5) - last, Time::ns(5) - Time::ns(2)), (Time::ZERO, Time::ns(3)));
        assert_eq!([last, last].into_iter().sum::<Time>(), last);
        assert_eq!(Time::LONGEST_RUN.as_s(), 100.0 * 86_400.0);
    }
}
