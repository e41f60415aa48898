//! Added work: a chain of integer operations that cannot be shortened. Iterations make it the same
//! in every configuration, and are translated to time once per machine.

use std::hint::black_box;

use fulgurite_sys::Clock;

/// Computes for this number of iterations, about a nanosecond each.
#[inline(never)]
pub fn compute(iterations: u64) {
    let mut x = black_box(iterations) | 1;
    for _ in 0..iterations {
        // Each step needs the last: a multiplication (3 cycles), an exclusive or with a shift (2).
        x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^= x >> 29;
    }
    black_box(x);
}

/// Nanoseconds that this number of iterations takes: the shortest of five times.
pub fn time(iterations: u64) -> u64 {
    let clock = Clock::get();
    let once = || {
        let start = clock.now_ns();
        compute(iterations);
        clock.now_ns() - start
    };
    (0..5).map(|_| once()).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn more_iterations_take_longer() {
        assert!(super::time(4_000_000) > super::time(40_000) * 5);
    }
}
