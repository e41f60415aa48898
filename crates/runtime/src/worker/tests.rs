//! Tests of a worker by itself: no thread runs it, so that its state can be looked at between any two steps.

use std::sync::Arc;

use fulgurite_flash::MemoryFlash;

use super::Worker;
use crate::Runtime;
use crate::shared::Shared;

fn worker() -> Worker {
    let flash = Arc::new(MemoryFlash::new(4096).unwrap());
    let config = Runtime::builder(flash).dram(24 << 20).fibers(4);
    Worker::new(0, Arc::new(Shared::new(&config).unwrap())).unwrap()
}

#[test]
fn a_timer_of_a_wait_that_has_ended_costs_nothing() {
    let mut worker = worker();
    worker.statistics.counts.jobs_started = 1;
    assert!(worker.nothing_between());
    let (hour, now) = (3_600_000_000_000, worker.shared.clock.now_ns());
    // A wait that ends by its time, as a job's deadline would have it; something else ends it first.
    let ticket = worker.will_sleep(2, now + hour);
    worker.wake_ticket(2, ticket, crate::mailbox::Wake::Retry);
    assert_eq!(worker.timers.len(), 1);
    assert!(worker.nothing_between(), "a stale timer keeps the fast path off");
    assert!(worker.timers.is_empty(), "and it is gone");
    // One that somebody does wait for: not before it is due.
    worker.will_sleep(1, now + hour);
    assert!(worker.nothing_between());
    worker.will_sleep(3, now);
    assert!(!worker.nothing_between());
    worker.ring_timers();
    assert!(worker.nothing_between() && worker.timers.len() == 1);
}
