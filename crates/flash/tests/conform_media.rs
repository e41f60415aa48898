//! Goal: every medium keeps the contract of `Flash` and `Queue`: what was written is what is read,
//! each request completes exactly once, bounds and depths hold, and dropping a queue with requests
//! in flight harms nobody. So does every decorator, over every medium.
//! Method: one suite, run over every medium and under every decorator; random reads and writes are
//! compared with a map; frames are stamped so that misplaced and torn data show. Seeds are printed.

use crate::{common, nand, suite};

use std::sync::Arc;
use std::time::Duration;

use common::*;
use fulgurite_flash::*;
use fulgurite_sys::Notifier;
use suite::{SUBPAGES, conform};

#[test]
fn memory_conforms() {
    conform_under_all(|subpages| MemoryFlash::new(subpages).unwrap());
}

fn emulated(subpages: u32, planes: usize) -> EmulatedConfig {
    let latency = Duration::from_micros(2);
    EmulatedConfig { read_latency: latency, write_latency: 2 * latency, planes, ..EmulatedConfig::new(subpages) }
}

#[test]
fn emulated_conforms() {
    for planes in [1, 64] {
        conform(&EmulatedFlash::new(emulated(SUBPAGES, planes)).unwrap(), seed());
    }
    conform_under_all(|subpages| EmulatedFlash::new(emulated(subpages, 3)).unwrap());
}

/// No request may count later than its completion is there to be polled.
#[test]
fn emulated_counts_before_it_completes() {
    const DEPTH: u32 = 32;
    let flash = EmulatedFlash::new(emulated(SUBPAGES, 64)).unwrap();
    let frames = arena(DEPTH);
    let mut queue = Driver::new(&flash, &frames, DEPTH as usize);
    let (mut ended, mut completions) = (0, Vec::new());
    for _ in 0..500 {
        for i in 0..DEPTH {
            queue.submit(Op::Read, i, i);
        }
        queue.queue.flush().unwrap();
        while queue.queue.in_flight() > 0 {
            ended += queue.queue.poll(&mut completions) as u64;
            assert!(flash.counters().reads >= ended, "a read completed before it was counted");
        }
    }
}

#[test]
fn timed_conforms() {
    for planes in [1, 64] {
        conform(&TimedFlash::new(emulated(SUBPAGES, planes)).unwrap(), seed());
    }
    conform_under_all(|subpages| TimedFlash::new(emulated(subpages, 3)).unwrap());
}

#[test]
fn files_conform() {
    for backend in [FileBackend::Auto, FileBackend::UringUnregistered, FileBackend::Threads(1), FileBackend::Threads(8)]
    {
        let (directory, mut number) = (tempfile::tempdir().unwrap(), 0);
        let mut file = |subpages: u32| {
            number += 1;
            let path = directory.path().join(format!("{number}"));
            FileFlash::open(&FileConfig { backend, ..FileConfig::create(path, u64::from(subpages) * 4096) }).unwrap()
        };
        // Where io_uring is missing there is nothing to test of it.
        let flash = file(SUBPAGES);
        if flash.open_queue(arena(1), 1, Arc::new(Notifier::new().unwrap())).is_err() {
            continue;
        }
        println!("{:?}", flash.warnings());
        match backend {
            FileBackend::Auto | FileBackend::Threads(8) => conform_under_all(file),
            _ => conform(&flash, seed()),
        }
    }
}

/// The suite over a medium, which `make` makes with a given number of subpages, as it is and under
/// every decorator.
fn conform_under_all<F: Flash + 'static>(mut make: impl FnMut(u32) -> F) {
    let seed = seed();
    conform(&over_nand(Arc::new(make(300))), seed);
    suite::conform_decorated(make, seed);
}

/// NAND whose log has room for the whole device: the suite writes in any order, which is not
/// NAND's. What comes late stays in the log, and where that is full a write may fail.
fn over_nand(data: Arc<dyn Flash>) -> NandFlash {
    let mut profile = nand::small();
    profile.geometry =
        fulgurite_nand::Geometry::new(fulgurite_nand::Parts { blocks_per_plane: 13 + 10, ..nand::PARTS }).unwrap();
    let config = fulgurite_nand::FilConfig { log_blocks: 2 + 10, ..nand::config() };
    NandFlash::new(data, profile, config).unwrap()
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
    // Eight reads on one plane are served one after the other. Polling alone moves no time.
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

/// Worker and device go to sleep at about the same time, over and over: a lost wake-up would be a
/// wait to the end of its time.
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
