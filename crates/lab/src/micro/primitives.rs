//! Primitives without a runtime: a switch between fibers, a request to the device, a barrier.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fulgurite_fiber::{Fiber, StackPool};
use fulgurite_flash::{Flash, Op, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, affinity, barrier};

use fulgurite_harness::Spread;

/// Requests handed over at once, as many as a worker has fibers.
const BATCH: u32 = 64;
/// Batches that only show how long one takes.
const TRIED: u64 = 5;

/// Runs `code` on a thread of its own, pinned to `core`.
pub fn on_core<T: Send>(core: usize, code: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let run = || {
        affinity::pin(core).with_context(|| format!("core {core} cannot be had"))?;
        code()
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ns_each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// Nanoseconds of a switch to a fiber or back.
pub fn switch(count: u64) -> Result<f64> {
    let pool = StackPool::new(1, 32 * 1024)?;
    let stack = pool.take().context("a new pool has a stack")?;
    let mut fiber = Fiber::new(stack, |suspender| {
        loop {
            suspender.suspend();
        }
    });
    fiber.resume();
    let start = Instant::now();
    for _ in 0..count {
        fiber.resume();
    }
    Ok(ns_each(start.elapsed(), count * 2))
}

/// Nanoseconds of a barrier on all threads of the process; none where the kernel has none.
pub fn expedited_barrier(count: u64) -> Option<f64> {
    if !barrier::register() {
        return None;
    }
    let start = Instant::now();
    for _ in 0..count {
        barrier::expedited();
    }
    Some(ns_each(start.elapsed(), count))
}

/// Nanoseconds that a caller pays for a read of the device: submitting a batch, and polling
/// completions that are there. In between the device has three times a batch's time. Median of the
/// batches.
pub fn submit_and_poll(flash: &dyn Flash, batches: u64) -> Result<f64> {
    let frames = Arc::new(Arena::anonymous(BATCH as usize * SUBPAGE_BYTES, Backed::HugePages)?);
    frames.zero(0, frames.len());
    let mut queue = flash.open_queue(frames, BATCH as usize, Arc::new(Notifier::new()?))?;
    let clock = Clock::get();
    let mut done = Vec::with_capacity(BATCH as usize);
    let mut costs = Vec::new();
    let mut taken = Duration::MAX;
    for batch in 0..TRIED + batches {
        let start = Instant::now();
        for i in 0..BATCH {
            let subpage = SubpageIndex((batch as u32 * BATCH + i) % flash.subpages());
            queue.submit(Request { tag: u64::from(i), op: Op::Read, subpage, frame: FrameIndex(i) })?;
        }
        queue.flush()?;
        if batch < TRIED {
            while queue.in_flight() > 0 {
                queue.poll(&mut done);
            }
            taken = taken.min(start.elapsed());
        } else {
            let submitted = start.elapsed();
            clock.spin(3 * taken.as_nanos() as u64);
            let start = Instant::now();
            let came = queue.poll(&mut done);
            let polled = start.elapsed();
            if came == BATCH as usize {
                costs.push(ns_each(submitted + polled, u64::from(BATCH)));
            }
            // Late: this batch says nothing.
            while queue.in_flight() > 0 {
                queue.wait(Some(Duration::from_millis(1)));
                queue.poll(&mut done);
            }
        }
        for completion in done.drain(..) {
            completion.result?;
        }
    }
    anyhow::ensure!(!costs.is_empty(), "the device never served {BATCH} reads in {:?}; is its core taken?", 3 * taken);
    Ok(Spread::of(costs).median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_flash::{EmulatedConfig, EmulatedFlash};

    #[test]
    fn primitives_cost_something() {
        let core = affinity::cores()[0];
        assert!(on_core(core, || switch(1000)).unwrap() > 0.0);
        assert!(expedited_barrier(10).is_none_or(|ns| ns > 0.0));
        let flash = EmulatedFlash::new(EmulatedConfig::new(256)).unwrap();
        // A machine with other work may be late every time; then it says so.
        match submit_and_poll(&flash, 20) {
            Ok(ns) => assert!(ns > 0.0),
            Err(error) => assert!(error.to_string().contains("never served")),
        }
    }
}
