//! The loop that keeps a queue busy, for every benchmark of a medium.

use std::time::Duration;

use anyhow::{Result, bail};
use fulgurite_flash::{FlashError, Queue, Request};
use fulgurite_sys::Clock;

/// How long completions may stay away before the medium is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the thread sleeps at most when nothing has completed.
const SLEEP: Duration = Duration::from_millis(10);

/// What a loop asks for. The time is read once a look.
pub trait Asks {
    /// The next request in a slot that is free, which is its tag; none once there are no more.
    fn next(&mut self, slot: u32, now_ns: u64) -> Option<Request>;
    /// A slot's request has completed.
    fn done(&mut self, _slot: u32, _now_ns: u64) {}
}

/// Asks for requests in `depth` slots until there are no more, and waits for all of them. Slots are
/// filled once `batch` of them are free. A failure ends the asking.
///
/// # Errors
/// The first failure of a request; that the medium does not answer.
pub fn keep_busy(queue: &mut dyn Queue, depth: usize, batch: usize, asks: &mut impl Asks) -> Result<()> {
    let clock = Clock::get();
    let (mut free, mut completions): (Vec<u32>, _) = ((0..depth as u32).collect(), Vec::with_capacity(depth));
    let (mut more, mut failed): (bool, Option<FlashError>) = (true, None);
    let mut last = clock.now_ns();
    loop {
        let now = clock.now_ns();
        let enough = free.len() >= batch;
        while more
            && enough
            && let Some(slot) = free.pop()
        {
            match asks.next(slot, now) {
                Some(request) => queue.submit(request)?,
                None => more = false,
            }
        }
        if queue.in_flight() == 0 {
            return failed.map_or(Ok(()), |error| Err(error.into()));
        }
        queue.flush()?;
        if queue.poll(&mut completions) > 0 {
            last = now;
        } else if now > last + PATIENCE.as_nanos() as u64 {
            bail!("{} requests did not end in {PATIENCE:?}", queue.in_flight());
        } else {
            queue.wait(Some(SLEEP));
        }
        for completion in completions.drain(..) {
            let slot = completion.tag as u32;
            free.push(slot);
            match completion.result {
                Ok(()) => asks.done(slot, now),
                Err(error) => (more, failed) = (false, failed.or(Some(error))),
            }
        }
    }
}
