//! The loop that keeps a queue busy: as many requests at a time as there are slots.

use std::time::Duration;

use crate::{Completion, FlashError, Queue, Request};

/// How long a completion is waited for at a time.
const CHECK: Duration = Duration::from_millis(10);

/// What asks a queue for requests, one in each slot.
pub trait Asks {
    /// How it fails.
    type Error: From<FlashError>;

    /// The queue is about to be polled. An implementation that needs the time reads it here, once.
    fn about_to_poll(&mut self) {}
    /// The next request of a free slot, whose number is the request's tag. None: there are no more.
    ///
    /// # Errors
    /// End the asking.
    fn next(&mut self, slot: u32) -> Result<Option<Request>, Self::Error>;
    /// A request has ended, and its slot is free.
    ///
    /// # Errors
    /// End the asking.
    fn ended(&mut self, completion: Completion) -> Result<(), Self::Error>;
}

/// Keeps up to `depth` requests in flight until there are no more, and waits for all of them.
/// New ones go out when at least `batch` slots are free: many at a time become large requests,
/// single ones keep the queue full.
///
/// # Errors
/// The first error of what asks or of the queue, after all that was in flight has ended.
pub fn keep_busy<A: Asks>(queue: &mut dyn Queue, depth: usize, batch: usize, asks: &mut A) -> Result<(), A::Error> {
    let (mut free, mut completions): (Vec<u32>, _) = ((0..depth as u32).rev().collect(), Vec::with_capacity(depth));
    let (mut more, mut outcome) = (true, Ok(()));
    let fails = |error: A::Error, more: &mut bool, outcome: &mut Result<(), A::Error>| {
        *more = false;
        if outcome.is_ok() {
            *outcome = Err(error);
        }
    };
    loop {
        asks.about_to_poll();
        let refill = free.len() >= batch;
        while more
            && refill
            && let Some(slot) = free.pop()
        {
            let asked = asks.next(slot);
            if let Ok(Some(request)) = asked {
                queue.submit(request).expect("a queue as deep as there are slots");
                continue;
            }
            free.push(slot);
            match asked {
                Err(error) => fails(error, &mut more, &mut outcome),
                Ok(_) => more = false,
            }
        }
        if queue.in_flight() == 0 {
            return outcome;
        }
        if let Err(error) = queue.flush() {
            fails(error.into(), &mut more, &mut outcome);
        }
        if queue.poll(&mut completions) == 0 && queue.in_flight() > 0 {
            queue.wait(Some(CHECK));
        }
        for completion in completions.drain(..) {
            free.push(completion.tag as u32);
            if let Err(error) = asks.ended(completion) {
                fails(error, &mut more, &mut outcome);
            }
        }
    }
}
