//! Walks over all data of a program, by several threads.

use std::ops::Range;

use anyhow::{Context, Result};

/// Threads of a walk over all data.
const WALKERS: usize = 4;

/// Walks `0..count` in as many parts as there are walkers, each with a thread of its own: a walk
/// by one would wait for the flash at each object.
///
/// # Errors
/// The first that a part returns.
pub fn walk<T: Send>(count: usize, part: impl Fn(Range<usize>) -> Result<T> + Sync) -> Result<Vec<T>> {
    let step = count.div_ceil(WALKERS).max(1);
    std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..count)
            .step_by(step)
            .map(|from| {
                let part = &part;
                scope.spawn(move || part(from..(from + step).min(count)))
            })
            .collect();
        walkers.into_iter().map(|walker| walker.join().ok().context("a walk panicked")?).collect()
    })
}
