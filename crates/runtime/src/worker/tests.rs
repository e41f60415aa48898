//! Tests of a worker by itself: no thread runs it, so that its state can be looked at between any two steps.

use std::sync::Arc;

use fulgurite_flash::MemoryFlash;
use fulgurite_format::SubpageIndex;
use fulgurite_policy::{AnyReplacement, Replacement};

use super::Worker;
use crate::Runtime;
use crate::shared::Shared;
use fulgurite_cache::State;
use fulgurite_cache::frames::index;
use fulgurite_cache::marks::{CLEAN, DIRTY};
use std::sync::atomic::Ordering;

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

/// Gives frames to subpages, all of them dirty, until so many are free.
fn fill(worker: &mut Worker, free: usize) -> Vec<u32> {
    let mut frames = Vec::new();
    while worker.free.len() > free {
        let (frame, subpage) = (worker.free.pop().unwrap(), frames.len() as u32);
        worker.shared.table.begin(subpage, worker.id).unwrap();
        worker.held[(frame - worker.first_frame) as usize] =
            super::Held { subpage, linked: true, ..Default::default() };
        worker.replacement.inserted(index(frame - worker.first_frame), SubpageIndex(subpage));
        worker.shared.table.finish(subpage, worker.id, State::Resident(frame));
        worker.shared.frames.marks(frame).dirty.store(DIRTY, Ordering::Relaxed);
        frames.push(frame);
    }
    frames
}

fn main_len(worker: &Worker) -> usize {
    match &worker.replacement {
        AnyReplacement::S3Fifo(policy) => policy.main_len(),
        _ => panic!("the default is another policy"),
    }
}

#[test]
fn what_a_sync_holds_back_is_not_taken_for_used_again() {
    let mut worker = worker();
    let frames = fill(&mut worker, 8);
    assert_eq!(main_len(&worker), 0);
    worker.shared.cut.hold_back();
    for _ in 0..200 {
        worker.evict(64);
    }
    assert_eq!((main_len(&worker), worker.free.len()), (0, 8), "held back, not used again");
    // Deep behind those that are held back, there is one that may go.
    worker.shared.frames.marks(frames[frames.len() - 1]).dirty.store(CLEAN, Ordering::Relaxed);
    for _ in 0..frames.len() / 64 + 2 {
        worker.evict(64);
    }
    assert_eq!((main_len(&worker), worker.free.len()), (0, 9));
    worker.shared.cut.end();
    worker.evict(64);
    assert_eq!(worker.writing, 64);
    worker.replacement.check();
    // The medium's, not this test's.
    while worker.writing > 0 {
        worker.hand_over();
        worker.poll();
    }
    assert_eq!((main_len(&worker), worker.free.len()), (0, 9 + 64));
}

#[test]
fn what_there_is_no_room_to_write_is_not_taken_for_used_again() {
    let mut worker = worker();
    fill(&mut worker, 8);
    let most = worker.requests.len() / 2;
    for _ in 0..most / 64 + 200 {
        worker.evict(64);
    }
    assert_eq!((main_len(&worker), worker.writing, worker.free.len()), (0, most, 8));
    while worker.writing > 0 {
        worker.hand_over();
        worker.poll();
    }
    assert_eq!(worker.free.len(), 8 + most);
}
