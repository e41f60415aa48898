//! Goal: NAND in real time keeps the contract of a medium, is never earlier than its model, and
//! loses no completion, whichever queue's thread finds it.
//! Method: the suite of all media; a store's order of writes with stamps; lower bounds of times
//! alone; two queues, in one thread and in two, one of them dropped in flight; waits on a read that
//! outlasts any test.

use crate::common;
use crate::nand;
use crate::suite;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use fulgurite_flash::*;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_nand::{FilConfig, Geometry, Parts};
use fulgurite_sys::{Arena, Notifier};
use nand::{EXTENT_PAGES, EXTENTS, PARTS, device, small};

/// Writes an extent in ascending order, in one batch.
fn write_extent(queue: &mut Driver, frames: &Arena, extent: u32, stamp: u64) {
    for i in 0..EXTENT_PAGES {
        fill(frames, i, stamp + u64::from(i));
        queue.submit(Op::Write, extent * EXTENT_PAGES + i, i);
    }
    assert!(queue.finish_all().values().all(Result::is_ok));
}
fn check_extent(queue: &mut Driver, frames: &Arena, extent: u32, stamp: u64) {
    for i in 0..EXTENT_PAGES {
        fill(frames, i, 0);
        queue.submit(Op::Read, extent * EXTENT_PAGES + i, i);
    }
    assert!(queue.finish_all().values().all(Result::is_ok));
    for i in 0..EXTENT_PAGES {
        assert_eq!(stamp_of(frames, i), Some(stamp + u64::from(i)), "flash page {i} of extent {extent}");
    }
}

/// The suite writes in any order, which is not NAND's: late pages stay in the log, which has room
/// for the whole device here.
#[test]
fn the_suite_of_all_media() {
    assert_eq!(EXTENTS * EXTENT_PAGES, suite::SUBPAGES);
    let mut profile = small();
    profile.geometry = Geometry::new(Parts { blocks_per_plane: 13 + 10, ..PARTS }).unwrap();
    let config = FilConfig { log_blocks: 2 + 10, ..nand::config() };
    let flash = NandFlash::new(Arc::new(MemoryFlash::new(300).unwrap()), profile, config).unwrap();
    suite::conform(&flash, seed());
    let report = flash.report();
    assert_eq!((report.nand.violations, report.fil.write_failures), (0, 0));
}

#[test]
fn extents_are_read_back_also_when_they_begin_anew() {
    let (flash, _) = device(small());
    let frames = arena(EXTENT_PAGES);
    let mut queue = Driver::new(&flash, &frames, EXTENT_PAGES as usize);
    for round in 1..=4u64 {
        (1..EXTENTS).for_each(|e| write_extent(&mut queue, &frames, e, round << 32 | u64::from(e) << 16));
        (1..EXTENTS).for_each(|e| check_extent(&mut queue, &frames, e, round << 32 | u64::from(e) << 16));
    }
    let report = flash.report();
    assert_eq!(report.nand.violations, 0);
    assert_eq!(report.fil.writes, u64::from(4 * (EXTENTS - 1) * EXTENT_PAGES));
    assert!(report.nand.erases >= u64::from(3 * (EXTENTS - 1)), "what is written again is erased before: {report:?}");
}

/// A lower bound alone is a matter of correctness; an upper one would be a matter of luck.
#[test]
fn nothing_ends_before_its_time() {
    let mut profile = small();
    (profile.timing.read_ns, profile.timing.program_ns) = (300_000, 700_000);
    let timing = profile.timing;
    let transfer = SUBPAGE_BYTES as u64 * 1_000_000_000 / timing.bus_bytes_per_second;
    let least = |array: u64| Duration::from_nanos(timing.command_ns + array + transfer);
    let (flash, memory) = device(profile);
    let frames = arena(EXTENT_PAGES);
    let mut queue = Driver::new(&flash, &frames, EXTENT_PAGES as usize);
    let start = Instant::now();
    write_extent(&mut queue, &frames, 1, 7);
    assert!(start.elapsed() >= least(timing.program_ns), "a write after {:?}", start.elapsed());
    assert!(queue.one(Op::Flush, 0, 0).is_ok());
    let again = NandFlash::reopened(memory, profile, nand::config()).unwrap();
    let mut reopened = Driver::new(&again, &frames, EXTENT_PAGES as usize);
    for (name, queue) in [("new", &mut queue), ("reopened", &mut reopened)] {
        for i in 0..EXTENT_PAGES {
            let start = Instant::now();
            queue.one(Op::Read, EXTENT_PAGES + i, i).unwrap();
            let took = start.elapsed();
            assert!(took >= least(timing.read_ns), "{name}: a read after {took:?}");
            assert_eq!(stamp_of(&frames, i), Some(7 + u64::from(i)));
        }
    }
    // One page of an extent: it waits for nobody, and the flush for it.
    for i in 0..4 {
        let start = Instant::now();
        let write = queue.submit(Op::Write, 2 * EXTENT_PAGES + i, 0);
        let flush = queue.submit(Op::Flush, 0, 0);
        queue.queue.flush().unwrap();
        let mut ended: Vec<Completion> = Vec::new();
        while !ended.iter().any(|c| c.tag == flush) {
            queue.queue.wait(None);
            queue.queue.poll(&mut ended);
        }
        assert!(start.elapsed() >= least(timing.program_ns), "a flush after {:?}", start.elapsed());
        assert!(ended.iter().any(|c| c.tag == write), "a flush ended before the write before it");
        assert!(ended.iter().all(|c| c.result.is_ok()) && queue.queue.in_flight() == 0);
    }
}

/// By a simulated clock nothing is late either, and times that no test could wait for pass at once.
#[test]
fn by_a_simulated_clock_all_ends_when_the_model_says() {
    let mut profile = small();
    (profile.timing.read_ns, profile.timing.program_ns) = (3_600_000_000_000, 7_200_000_000_000);
    let (clock, time) = fulgurite_sys::Clock::simulated();
    let (flash, memory) = device(profile);
    let flash = flash.with_clock(clock);
    let frames = arena(EXTENT_PAGES);
    let mut queue = Driver::new(&flash, &frames, EXTENT_PAGES as usize);
    let begun = time.now_ns();
    write_extent(&mut queue, &frames, 1, 1 << 32);
    check_extent(&mut queue, &frames, 1, 1 << 32);
    let hours = (time.now_ns() - begun) / 3_600_000_000_000;
    // 20 pages on 4 planes, each read by itself or after others of its plane.
    assert!((5 * 2 + 5..=6 * 2 + 20).contains(&hours), "{hours} h");
    assert_eq!((flash.counters().lateness_ns_max, memory.counters().reads), (0, u64::from(EXTENT_PAGES)));
}

#[test]
fn queues_get_their_own_also_when_one_is_dropped() {
    let (flash, _) = device(small());
    let (a_frames, b_frames) = (arena(EXTENT_PAGES), arena(EXTENT_PAGES));
    let mut a = Driver::new(&flash, &a_frames, EXTENT_PAGES as usize);
    for round in 1..30u64 {
        let mut b = Driver::new(&flash, &b_frames, EXTENT_PAGES as usize);
        for i in 0..EXTENT_PAGES {
            fill(&a_frames, i, round << 8 | u64::from(i));
            a.submit(Op::Write, EXTENT_PAGES + i, i);
            fill(&b_frames, i, round << 8 | u64::from(i) | 1 << 60);
            b.submit(Op::Write, 2 * EXTENT_PAGES + i, i);
        }
        a.queue.flush().unwrap();
        match round % 3 {
            0 => assert_eq!(b.finish_all().len(), EXTENT_PAGES as usize),
            1 => b.queue.flush().unwrap(),
            // Nothing of it was handed over.
            _ => {}
        }
        drop(b);
        assert_eq!(a.finish_all().len(), EXTENT_PAGES as usize);
        check_extent(&mut a, &a_frames, 1, round << 8);
        // The next owner gets nothing of the one that is gone.
        let mut c = flash.open_queue(b_frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
        assert_eq!(c.poll(&mut Vec::new()), 0);
        c.submit(request(5, Op::Read, EXTENT_PAGES, 0)).unwrap();
        let mut ended = Vec::new();
        while c.poll(&mut ended) == 0 {
            c.wait(None);
        }
        assert_eq!(ended.iter().map(|c| c.tag).collect::<Vec<_>>(), [5]);
    }
    assert_eq!(flash.report().nand.violations, 0);
}

#[test]
fn what_is_outside_ends_so_and_changes_nothing() {
    let (flash, memory) = device(small());
    let before: u8 = 0xA5;
    memory.storage().write(flash.subpages() as usize * SUBPAGE_BYTES, &[before; SUBPAGE_BYTES]);
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 4);
    fill(&frames, 0, 1);
    for (op, subpage, frame) in [
        (Op::Write, flash.subpages(), 0),
        (Op::Read, flash.subpages(), 1),
        (Op::Write, u32::MAX, 0),
        (Op::Write, EXTENT_PAGES, 2),
        (Op::Read, EXTENT_PAGES, u32::MAX >> 2),
    ] {
        assert_eq!(queue.one(op, subpage, frame), Err(FlashError::OutOfRange), "{op:?} {subpage} {frame}");
    }
    let mut page = [0; SUBPAGE_BYTES];
    memory.storage().read(flash.subpages() as usize * SUBPAGE_BYTES, &mut page);
    assert_eq!(page, [before; SUBPAGE_BYTES], "the medium within was written outside of the device");
    let report = flash.report();
    assert_eq!((report.fil.reads, report.fil.writes), (0, 0), "the model took what does not exist");
    assert_eq!(flash.counters().errors, 5);
}

/// A read takes longer than a test may: a wait that ends with it, and not before, shows.
#[test]
fn a_wait_ends_by_its_time_and_by_the_wake_up() {
    let mut profile = small();
    profile.timing.read_ns = 20_000_000_000;
    let (_, memory) = device(profile);
    let flash = NandFlash::reopened(memory, profile, nand::config()).unwrap();
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(arena(1), 1, wake.clone()).unwrap();
    let mut ended = Vec::new();
    let start = Instant::now();
    queue.submit(request(1, Op::Read, EXTENT_PAGES, 0)).unwrap();
    // The medium within has its completion before that.
    queue.flush().unwrap();
    queue.poll(&mut ended);
    queue.wait(Some(Duration::from_millis(1)));
    wake.notify();
    queue.wait(None);
    assert!(start.elapsed() < Duration::from_nanos(profile.timing.read_ns), "it slept as long as the read takes");
    assert_eq!((queue.poll(&mut ended), queue.in_flight()), (0, 1));
}

/// A thread with its own extents: ascending writes, reads of them, flushes. Returns its requests.
fn mixed(flash: &dyn Flash, extents: std::ops::Range<u32>, requests: u64, seed: u64) -> u64 {
    let (mut random, depth) = (Random(seed), 16usize);
    let frames = arena(depth as u32);
    let mut queue = flash.open_queue(frames.clone(), depth, Arc::new(Notifier::new().unwrap())).unwrap();
    let own = u64::from((extents.end - extents.start) * EXTENT_PAGES);
    let first = extents.start * EXTENT_PAGES;
    let mut stamps = vec![None; own as usize];
    let mut free: Vec<u32> = (0..depth as u32).collect();
    let mut under_way = std::collections::HashMap::new();
    let mut seen = HashSet::new();
    let (mut next, mut written, mut ended) = (0, 0u64, Vec::new());
    while next < requests || !under_way.is_empty() {
        while next < requests && !free.is_empty() && random.below(6) != 0 {
            let (op, index) = match random.below(20) {
                0 => (Op::Flush, 0),
                1..10 => (Op::Write, written % own),
                _ => (Op::Read, random.below(own)),
            };
            let busy = under_way.values().any(|&(op, i, _, _)| op != Op::Flush && i == index);
            if op != Op::Flush && (busy || (op == Op::Read && stamps[index as usize].is_none())) {
                break;
            }
            let (frame, stamp) = (free.pop().unwrap(), random.next());
            if op == Op::Write {
                fill(&frames, frame, stamp);
                written += 1;
            }
            queue.submit(request(next, op, first + index as u32, frame)).unwrap();
            under_way.insert(next, (op, index, frame, stamp));
            next += 1;
        }
        if queue.poll(&mut ended) == 0 {
            // Without a limit: a completion that another thread's turn found and nothing reports
            // would hang.
            queue.wait(if under_way.is_empty() { Some(Duration::ZERO) } else { None });
        }
        for done in ended.drain(..) {
            assert!(seen.insert(done.tag), "request {} ended twice", done.tag);
            let (op, index, frame, stamp) = under_way.remove(&done.tag).unwrap();
            assert_eq!(done.result, Ok(()), "{op:?}");
            match op {
                Op::Write => stamps[index as usize] = Some(stamp),
                Op::Read => assert_eq!(stamp_of(&frames, frame), stamps[index as usize], "flash page {index}"),
                Op::Flush => {}
            }
            free.push(frame);
        }
    }
    assert_eq!(queue.in_flight(), 0);
    seen.len() as u64
}

#[test]
fn each_request_ends_once_under_mixed_load_of_two_threads() {
    let seed = seed();
    println!("seed {seed}");
    let mut profile = small();
    // Long enough that waits sleep.
    profile.timing.program_ns = 250_000;
    let (flash, _) = device(profile);
    let made: u64 = std::thread::scope(|scope| {
        let threads = [(1..5, seed), (5..10, seed ^ 77)].map(|(extents, seed)| {
            let flash = &flash;
            scope.spawn(move || mixed(flash, extents, 3000, seed))
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, 6000);
    let (counters, report) = (flash.counters(), flash.report());
    assert_eq!(counters.reads + counters.writes + counters.flushes, made);
    assert_eq!((counters.reads, counters.writes, counters.errors), (report.fil.reads, report.fil.writes, 0));
    assert_eq!(counters.late == 0, counters.lateness_ns_max == 0, "{counters:?}");
    assert!(counters.late <= made && counters.lateness_ns_max <= counters.lateness_ns_total, "{counters:?}");
    assert!(counters.late * LATE_NS <= counters.lateness_ns_total, "{counters:?}");
    assert_eq!(report.nand.violations, 0);
}

/// Over a file a queue may be bound to the thread that uses it first, unless a store asks
/// otherwise.
#[test]
fn a_queue_for_any_thread_goes_from_one_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = u64::from(EXTENTS * EXTENT_PAGES) * SUBPAGE_BYTES as u64;
    let config = FileConfig::create(directory.path().join("flash"), bytes);
    let file = FileFlash::open(&FileConfig { backend: FileBackend::Uring, ..config }).unwrap();
    if file.open_queue(arena(1), 1, Arc::new(Notifier::new().unwrap())).is_err() {
        // Without io_uring no queue is bound to a thread.
        return;
    }
    let flash = NandFlash::new(Arc::new(file), small(), nand::config()).unwrap();
    let frames = arena(2);
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue_for(QueueUser::AnyThread, frames.clone(), 4, wake).unwrap();
    for turn in 0..4u64 {
        fill(&frames, 0, 50 + turn);
        queue = std::thread::spawn(move || {
            for (op, frame) in [(Op::Write, 0), (Op::Read, 1)] {
                queue.submit(request(turn, op, EXTENT_PAGES + turn as u32, frame)).unwrap();
                queue.flush().unwrap();
                let mut ended = Vec::new();
                while queue.poll(&mut ended) == 0 {
                    queue.wait(None);
                }
                assert_eq!(ended, [Completion { tag: turn, result: Ok(()), checksum: 0 }], "{op:?}");
            }
            queue
        })
        .join()
        .unwrap();
        assert_eq!(stamp_of(&frames, 1), Some(50 + turn));
    }
}
