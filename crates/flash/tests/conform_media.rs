//! Goal: every medium keeps the contract of `Flash` and `Queue`: what was written is what is read, each request completes
//! exactly once, bounds and depths hold, and dropping a queue with requests in flight harms nobody.
//! Method: one suite, run over every medium; random reads and writes are compared with a map; frames are stamped so that
//! misplaced and torn data show. Seeds are printed.

use crate::common;
use crate::suite;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use fulgurite_flash::*;
use fulgurite_sys::Notifier;
use suite::{SUBPAGES, conform};

#[test]
fn memory_conforms() {
    conform(&MemoryFlash::new(SUBPAGES).unwrap(), seed());
}

#[test]
fn emulated_conforms() {
    for planes in [1, 3, 64] {
        let latency = Duration::from_micros(2);
        let config = EmulatedConfig {
            read_latency: latency,
            write_latency: 2 * latency,
            planes,
            ..EmulatedConfig::new(SUBPAGES)
        };
        conform(&EmulatedFlash::new(config).unwrap(), seed());
    }
}

#[test]
fn timed_conforms() {
    for planes in [1, 3, 64] {
        let latency = Duration::from_micros(2);
        let config = EmulatedConfig {
            read_latency: latency,
            write_latency: 2 * latency,
            planes,
            ..EmulatedConfig::new(SUBPAGES)
        };
        conform(&TimedFlash::new(config).unwrap(), seed());
    }
}

/// A medium on a fresh file in a directory that goes with it.
fn file_flash(backend: FileBackend) -> (FileFlash, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let config = FileConfig::create(directory.path().join("flash"), u64::from(SUBPAGES) * 4096);
    (FileFlash::open(&FileConfig { backend, ..config }).unwrap(), directory)
}

#[test]
fn files_conform() {
    for backend in [FileBackend::Auto, FileBackend::UringUnregistered, FileBackend::Threads(1), FileBackend::Threads(8)]
    {
        let (flash, _directory) = file_flash(backend);
        // Where io_uring is missing there is nothing to test of it.
        if flash.open_queue(arena(1), 1, Arc::new(Notifier::new().unwrap())).is_ok() {
            conform(&flash, seed());
        }
        println!("{:?}", flash.warnings());
    }
}

#[test]
fn faulty_media_without_faults_conform() {
    let plan = FaultPlan { seed: seed(), reorder: true, record: true, ..FaultPlan::default() };
    conform(&FaultyFlash::new(MemoryFlash::new(SUBPAGES).unwrap(), plan), seed());
}

/// Three members, the second smaller, in two bands; their own numbers do not begin at 0.
fn striped<F: Flash + 'static>(mut member: impl FnMut(u32) -> F) -> StripedFlash {
    let column = |member, first| Column { member, first };
    let mut layout = StripeLayout::new(4);
    layout.push(12, vec![column(0, 0), column(1, 1), column(2, 1)]);
    layout.push(7, vec![column(0, 12), column(2, 13)]);
    let members = (0..3).map(|i| Arc::new(member(layout.extents_of(i) * 4)) as Arc<dyn Flash>).collect();
    StripedFlash::new(members, layout)
}

#[test]
fn striped_media_conform() {
    let seed = seed();
    conform(&striped(|subpages| MemoryFlash::new(subpages).unwrap()), seed);
    let plan = FaultPlan { seed, reorder: true, ..FaultPlan::default() };
    conform(&striped(|subpages| FaultyFlash::new(MemoryFlash::new(subpages).unwrap(), plan.clone())), seed);
    let directory = tempfile::tempdir().unwrap();
    for (i, backend) in [FileBackend::Auto, FileBackend::Threads(2)].into_iter().enumerate() {
        let file = |subpages| {
            let path = directory.path().join(format!("{i}-{}", std::fs::read_dir(directory.path()).unwrap().count()));
            FileFlash::open(&FileConfig { backend, ..FileConfig::create(path, u64::from(subpages) * 4096) }).unwrap()
        };
        conform(&striped(file), seed);
    }
}

/// A lower bound alone is a matter of correctness; an upper one would be a matter of luck.
#[test]
fn an_emulated_device_is_never_early() {
    never_early(|config| EmulatedFlash::new(config).unwrap());
    never_early(|config| TimedFlash::new(config).unwrap());
}

fn never_early<F: Flash>(make: impl Fn(EmulatedConfig) -> F) {
    let clock = fulgurite_sys::Clock::get();
    let (read, write) = (Duration::from_micros(300), Duration::from_micros(700));
    let config =
        EmulatedConfig { read_latency: read, write_latency: write, planes: 4, ..EmulatedConfig::new(SUBPAGES) };
    let flash = make(config);
    let frames = arena(8);
    let mut queue = Driver::new(&flash, &frames, 8);
    for i in 0..40u32 {
        let op = if i % 2 == 0 { Op::Read } else { Op::Write };
        let start = clock.now_ns();
        queue.one(op, i, 0).unwrap();
        let took = Duration::from_nanos(clock.now_ns() - start);
        assert!(took >= if op == Op::Read { read } else { write }, "{op:?} after {took:?}");
    }
    // Eight reads on one plane are served one after the other.
    let start = clock.now_ns();
    for i in 0..8 {
        queue.submit(Op::Read, i * 4, i);
    }
    queue.finish_all();
    assert!(Duration::from_nanos(clock.now_ns() - start) >= 8 * read);
    // A flush comes after the writes before it.
    let start = clock.now_ns();
    queue.submit(Op::Write, 0, 0);
    let flush = queue.submit(Op::Flush, 0, 0);
    queue.queue.flush().unwrap();
    let mut completions = Vec::new();
    while completions.is_empty() || completions.iter().all(|c: &Completion| c.tag != flush) {
        queue.queue.wait(None);
        queue.queue.poll(&mut completions);
    }
    assert!(Duration::from_nanos(clock.now_ns() - start) >= write);
    let counters = flash.counters();
    assert_eq!((counters.reads, counters.writes, counters.flushes), (28, 21, 1));
    assert!(counters.lateness_ns_max >= counters.lateness_ns_mean());
}

/// By a simulated clock nothing is early, nothing late, and nothing is waited for.
#[test]
fn a_timed_device_by_a_simulated_clock_takes_exactly_its_latencies() {
    let (clock, time) = fulgurite_sys::Clock::simulated();
    let (read, write) = (Duration::from_secs(300), Duration::from_nanos(1));
    let config =
        EmulatedConfig { read_latency: read, write_latency: write, planes: 4, ..EmulatedConfig::new(SUBPAGES) };
    let flash = TimedFlash::new(EmulatedConfig { clock: clock.clone(), ..config }).unwrap();
    let frames = arena(8);
    let mut queue = Driver::new(&flash, &frames, 8);
    for i in 0..40u32 {
        let op = if i % 2 == 0 { Op::Read } else { Op::Write };
        let start = clock.now_ns();
        queue.one(op, i, 0).unwrap();
        assert_eq!(clock.since(start), if op == Op::Read { read } else { write });
    }
    // Eight reads on one plane are served one after the other. Who only polls moves no time.
    let start = clock.now_ns();
    for i in 0..8 {
        queue.submit(Op::Read, i * 4, i);
    }
    queue.queue.flush().unwrap();
    let mut completions = Vec::new();
    for done in 1..=8 {
        time.advance(read - Duration::from_nanos(1));
        assert_eq!(queue.queue.poll(&mut completions), 0);
        time.advance(Duration::from_nanos(1));
        assert_eq!((queue.queue.poll(&mut completions), clock.since(start)), (1, done * read));
    }
    assert_eq!(flash.counters().lateness_ns_max, 0);
}

/// Worker and device go to sleep at about the same time, over and over: a lost wake-up would be a wait to the end of its time.
#[test]
fn no_wake_up_is_lost_between_two_sleepers() {
    const HANG: Duration = Duration::from_secs(20);
    let clock = fulgurite_sys::Clock::get();
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    let latency = Duration::from_micros(1);
    let config = EmulatedConfig { read_latency: latency, write_latency: latency, ..EmulatedConfig::new(SUBPAGES) };
    let flash = EmulatedFlash::new(config).unwrap();
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(arena(1), 1, wake).unwrap();
    let mut completions = Vec::new();
    for tag in 0..1500 {
        // The device spins for 200 µs after the last request.
        clock.spin(if tag % 3 == 0 { 190_000 + random.below(40_000) } else { random.below(3_000) });
        queue.submit(request(tag, Op::Read, 0, 0)).unwrap();
        queue.flush().unwrap();
        let start = std::time::Instant::now();
        while queue.poll(&mut completions) == 0 {
            queue.wait(Some(HANG));
            assert!(start.elapsed() < HANG, "a wake-up was lost at request {tag}");
        }
    }
    assert_eq!(completions.len(), 1500);
}
