//! Tests of a worker without a thread, so that its state can be examined between any two steps.

use std::sync::Arc;

use fulgurite_flash::MemoryFlash;

use super::Worker;
use crate::jobs::Jobs;
use crate::runtime::Runtime;
use crate::shared::Shared;

fn worker() -> Worker {
    let flash = Arc::new(MemoryFlash::new(4096).unwrap());
    let config = Runtime::builder(flash).dram(24 << 20).fibers(4);
    let shared = Arc::new(Shared::new(&config).unwrap());
    Worker::new(0, shared.clone(), Arc::new(Jobs::new(shared))).unwrap()
}

#[test]
fn a_timer_of_a_wait_that_has_ended_costs_nothing() {
    let mut worker = worker();
    worker.fibers.statistics.counts.jobs_started = 1;
    assert!(worker.nothing_between());
    let (hour, now) = (3_600_000_000_000, worker.shared.clock.now_ns());
    // A wait that ends by its time, like a deadline. Something else ends it first.
    let ticket = worker.fibers.will_sleep(2, now + hour);
    worker.fibers.wake_ticket(2, ticket, crate::mailbox::Wake::Retry);
    assert_eq!(worker.fibers.timers.len(), 1);
    assert!(worker.nothing_between(), "a stale timer keeps the fast path off");
    assert!(worker.fibers.timers.is_empty(), "and it is gone");
    // One that somebody does wait for: not before it is due.
    worker.fibers.will_sleep(1, now + hour);
    assert!(worker.nothing_between());
    worker.fibers.will_sleep(3, now);
    assert!(!worker.nothing_between());
    worker.fibers.ring_timers();
    assert!(worker.nothing_between() && worker.fibers.timers.len() == 1);
}
