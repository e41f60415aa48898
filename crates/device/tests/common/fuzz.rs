//! One seed after the other, for as long as there is time.

use std::time::Duration;

use crate::common::{Random, seed};

/// Runs it with one seed after the other until its budget is used up: `FULGURITE_FUZZ_SECONDS`, 2 each in CI, more in `make soak`. The first
/// seed is that of the run; what fails with a later one fails with that one as `FULGURITE_SEED`.
pub fn fuzz(once: impl Fn(u64)) {
    let seconds = std::env::var("FULGURITE_FUZZ_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (begun, mut seed, mut rounds) = (std::time::Instant::now(), seed(), 0);
    while rounds == 0 || begun.elapsed() < Duration::from_secs(seconds) {
        println!("seed {seed}");
        once(seed);
        (seed, rounds) = (Random(seed).next(), rounds + 1);
    }
    println!("{rounds} rounds");
}
