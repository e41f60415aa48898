//! Goal: a fault reaches exactly the requests it was planned for, as a typed error, and the rest go
//! on. A failed flush poisons. A device that hangs can be left.
//! Method: plans over plain memory, one request at a time or many; every rule is checked against
//! its own definition.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use fulgurite_flash::*;
use fulgurite_format::SubpageIndex;
use fulgurite_sys::Notifier;

fn faulty(plan: FaultPlan) -> FaultyFlash<MemoryFlash> {
    FaultyFlash::new(MemoryFlash::new(64).unwrap(), plan)
}

const EIO: FlashError = FlashError::Io(5);

#[test]
fn the_planned_requests_fail_and_no_others() {
    for error in [EIO, FlashError::Io(11), FlashError::Io(28), FlashError::Short, FlashError::TimedOut] {
        for (when, hit) in [
            (When::Nth(3), vec![3]),
            (When::From(5), vec![5, 6, 7, 8]),
            (When::Every(4), vec![4, 8]),
            (When::Nth(9), vec![]),
        ] {
            let flash = faulty(FaultPlan::rule(Some(Op::Read), when, Fault::Fails(error)));
            let frames = arena(2);
            let mut queue = Driver::new(&flash, &frames, 2);
            for n in 1..=8u32 {
                fill(&frames, 0, n.into());
                fill(&frames, 1, 99);
                assert_eq!(queue.one(Op::Write, n, 0), Ok(()), "writes are not in the plan");
                let result = queue.one(Op::Read, n, 1);
                assert_eq!(result, if hit.contains(&n) { Err(error) } else { Ok(()) }, "{when:?}, request {n}");
                // A read that fails moves nothing.
                assert_eq!(stamp_of(&frames, 1), Some(if hit.contains(&n) { 99 } else { n.into() }));
            }
            assert_eq!(flash.counters().errors, hit.len() as u64);
        }
    }
}

#[test]
fn a_failed_write_leaves_what_was_there() {
    let flash = faulty(FaultPlan::rule(Some(Op::Write), When::Nth(2), Fault::Fails(FlashError::Io(28))));
    let frames = arena(1);
    let mut queue = Driver::new(&flash, &frames, 1);
    fill(&frames, 0, 1);
    assert!(queue.one(Op::Write, 7, 0).is_ok());
    fill(&frames, 0, 2);
    assert_eq!(queue.one(Op::Write, 7, 0), Err(FlashError::Io(28)));
    assert!(queue.one(Op::Read, 7, 0).is_ok());
    assert_eq!(stamp_of(&frames, 0), Some(1));
}

#[test]
fn a_failed_flush_poisons() {
    let flash = faulty(FaultPlan::rule(Some(Op::Flush), When::Nth(2), Fault::Fails(EIO)));
    let frames = arena(1);
    let mut queue = Driver::new(&flash, &frames, 4);
    assert!(queue.one(Op::Write, 0, 0).is_ok() && queue.one(Op::Flush, 0, 0).is_ok());
    assert_eq!(queue.one(Op::Flush, 0, 0), Err(EIO));
    let mut other = Driver::new(&flash, &frames, 4);
    for queue in [&mut queue, &mut other] {
        assert_eq!(queue.one(Op::Write, 0, 0), Err(FlashError::Poisoned));
        assert_eq!(queue.one(Op::Flush, 0, 0), Err(FlashError::Poisoned));
        assert_eq!(queue.one(Op::Read, 0, 0), Ok(()));
    }
    assert_eq!(flash.inner().counters().writes, 1);
}

/// Two members in extents of 4, of which the second misbehaves.
fn striped(plan: FaultPlan) -> (StripedFlash, Arc<FaultyFlash<MemoryFlash>>) {
    let bad = Arc::new(FaultyFlash::new(MemoryFlash::new(64).unwrap(), plan));
    let mut layout = StripeLayout::new(4);
    layout.push(8, vec![Column { member: 0, first: 0 }, Column { member: 1, first: 0 }]);
    (StripedFlash::new(vec![Arc::new(MemoryFlash::new(64).unwrap()), bad.clone()], layout), bad)
}

#[test]
fn a_failed_flush_of_one_member_poisons_all() {
    let (flash, bad) = striped(FaultPlan::rule(Some(Op::Flush), When::Nth(2), Fault::Fails(EIO)));
    let frames = arena(1);
    let mut queue = Driver::new(&flash, &frames, 4);
    // Extents 0 and 1: one on each.
    for subpage in [0, 4] {
        assert_eq!(queue.one(Op::Write, subpage, 0), Ok(()));
    }
    assert_eq!(queue.one(Op::Flush, 0, 0), Ok(()));
    assert_eq!(queue.one(Op::Flush, 0, 0), Err(EIO));
    let mut other = Driver::new(&flash, &frames, 4);
    let before = flash.counters();
    for queue in [&mut queue, &mut other] {
        for subpage in [0, 4] {
            assert_eq!(queue.one(Op::Write, subpage, 0), Err(FlashError::Poisoned), "subpage {subpage}");
            assert_eq!(queue.one(Op::Read, subpage, 0), Ok(()), "subpage {subpage}");
        }
        assert_eq!(queue.one(Op::Flush, 0, 0), Err(FlashError::Poisoned));
    }
    assert_eq!(flash.counters().writes, before.writes, "a write reached a member after a failed flush");
    assert_eq!(bad.inner().counters().writes, 1);
}

#[test]
fn faults_of_one_member_are_reported_for_its_requests_alone() {
    let (flash, _) = striped(FaultPlan::rule(Some(Op::Read), When::Every(2), Fault::Fails(EIO)));
    let frames = arena(1);
    let mut queue = Driver::new(&flash, &frames, 4);
    let results: Vec<_> = (0..16).map(|subpage| queue.one(Op::Read, subpage, 0).is_ok()).collect();
    let expected: Vec<_> = (0..16).map(|subpage| (subpage / 4) % 2 == 0 || subpage % 2 == 0).collect();
    assert_eq!(results, expected);
    // A member that hangs keeps its own, and the others go on.
    let (flash, _) = striped(FaultPlan::rule(Some(Op::Read), When::From(1), Fault::Hangs));
    let mut queue = flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
    queue.submit(request(1, Op::Read, 4, 0)).unwrap();
    queue.submit(request(2, Op::Read, 0, 0)).unwrap();
    let mut completions = Vec::new();
    while completions.is_empty() {
        queue.wait(Some(Duration::from_secs(1)));
        queue.poll(&mut completions);
    }
    assert_eq!((completions[0].tag, queue.in_flight()), (2, 1));
}

#[test]
fn a_device_that_hangs_can_be_left() {
    let flash = faulty(FaultPlan::rule(None, When::From(3), Fault::Hangs));
    let frames = arena(4);
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(frames.clone(), 4, wake).unwrap();
    for tag in 0..4 {
        queue.submit(request(tag, Op::Read, 0, tag as u32)).unwrap();
    }
    assert_eq!(queue.submit(request(9, Op::Read, 0, 0)), Err(QueueFull));
    queue.flush().unwrap();
    let mut completions = Vec::new();
    for _ in 0..5 {
        queue.wait(Some(Duration::from_millis(1)));
        queue.poll(&mut completions);
    }
    assert_eq!(completions.iter().map(|c| c.tag).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(queue.in_flight(), 2);
    drop(queue);
    assert_eq!(Arc::strong_count(&frames), 1, "the frames are free once the queue is gone");
}

#[test]
fn late_completions_come_after_a_number_of_polls() {
    let flash = faulty(FaultPlan::rule(None, When::Nth(1), Fault::Late { polls: 3 }));
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(arena(2), 2, wake).unwrap();
    for tag in 0..2 {
        queue.submit(request(tag, Op::Read, 0, tag as u32)).unwrap();
    }
    queue.flush().unwrap();
    let mut completions = Vec::new();
    let counts: Vec<usize> = (0..5).map(|_| queue.poll(&mut completions)).collect();
    assert_eq!(counts, [1, 0, 0, 1, 0]);
    assert_eq!(completions.iter().map(|c| c.tag).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn late_requests_end_at_a_call_wherever_they_are() {
    let late = |polls| FaultPlan::rule(None, When::Nth(1), Fault::Late { polls });
    // By then the medium within has ended the request, or has not yet.
    for (within, counts) in [(0, [0, 1, 0, 0, 0]), (3, [0, 0, 0, 1, 0])] {
        let flash = FaultyFlash::new(faulty(late(within)), late(u32::MAX));
        let mut queue = flash.open_queue(arena(1), 1, Arc::new(Notifier::new().unwrap())).unwrap();
        queue.submit(request(0, Op::Read, 0, 0)).unwrap();
        queue.flush().unwrap();
        let mut completions = Vec::new();
        let found: Vec<usize> = (0..5)
            .map(|poll| {
                if poll == 1 {
                    flash.end_late();
                }
                queue.poll(&mut completions)
            })
            .collect();
        assert_eq!(found, counts);
    }
}

#[test]
fn reordering_loses_and_repeats_nothing() {
    let seed = seed();
    println!("seed {seed}");
    let run = || {
        let flash = faulty(FaultPlan { seed, reorder: true, record: true, ..FaultPlan::default() });
        let wake = Arc::new(Notifier::new().unwrap());
        let mut queue = flash.open_queue(arena(16), 16, wake).unwrap();
        let (mut completions, mut tag) = (Vec::new(), 0);
        while completions.len() < 500 {
            while tag < 500 && queue.submit(request(tag, Op::Read, tag as u32 % 64, tag as u32 % 16)).is_ok() {
                tag += 1;
            }
            queue.flush().unwrap();
            queue.poll(&mut completions);
        }
        let expected: Vec<_> = (0..500).map(|n| (Op::Read, SubpageIndex(n % 64))).collect();
        assert_eq!(flash.record(), expected);
        completions.iter().map(|c| c.tag).collect::<Vec<_>>()
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second, "the same seed gives the same order");
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..500).collect::<Vec<_>>());
    assert_ne!(sorted, first);
}

#[test]
fn chance_is_about_right_and_repeats() {
    let count = |seed| {
        let rule = Rule { op: None, when: When::OneIn(10), fault: Fault::Fails(EIO) };
        let flash = faulty(FaultPlan { seed, rules: vec![rule], ..FaultPlan::default() });
        let mut queue = Driver::new(&flash, &arena(1), 1);
        let failed = (0..1000).filter(|_| queue.one(Op::Read, 0, 0).is_err()).count();
        assert_eq!(flash.submitted(), 1000);
        failed
    };
    assert!((50..200).contains(&count(1)), "{}", count(1));
    assert_eq!(count(7), count(7));
}

#[test]
fn queues_that_outlive_the_emulated_device_say_so() {
    let frames = arena(4);
    let flash =
        EmulatedFlash::new(EmulatedConfig { read_latency: Duration::from_secs(3600), ..EmulatedConfig::new(16) })
            .unwrap();
    let mut queue = Driver::new(&flash, &frames, 4);
    let first = queue.submit(Op::Read, 0, 0);
    queue.queue.flush().unwrap();
    let second = queue.submit(Op::Read, 1, 1);
    drop(flash);
    let results = queue.finish_all();
    assert_eq!((results[&first], results[&second]), (Err(FlashError::Closed), Err(FlashError::Closed)));
    assert_eq!(queue.one(Op::Read, 0, 0), Err(FlashError::Closed));
}

#[test]
fn an_emulated_device_that_cannot_be_is_refused() {
    let ok = || EmulatedConfig::new(16);
    assert!(matches!(EmulatedFlash::new(EmulatedConfig { subpages: 0, ..ok() }), Err(OpenError::Size { .. })));
    assert!(matches!(EmulatedFlash::new(EmulatedConfig { planes: 0, ..ok() }), Err(OpenError::NoPlanes)));
    let small = EmulatedConfig { storage: Some(arena(15)), ..ok() };
    assert!(matches!(EmulatedFlash::new(small), Err(OpenError::Storage { .. })));
    let nowhere = EmulatedConfig { core: Some(100_000), ..ok() };
    assert!(matches!(EmulatedFlash::new(nowhere), Err(OpenError::System { .. })));
    let storage = arena(16);
    let flash = EmulatedFlash::new(EmulatedConfig { storage: Some(storage.clone()), ..ok() }).unwrap();
    let wake = Arc::new(Notifier::new().unwrap());
    assert!(matches!(flash.open_queue(storage, 4, wake), Err(OpenError::SameArena)));
}

#[test]
fn a_ring_that_fails_keeps_what_the_kernel_may_still_move() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        FileConfig { backend: FileBackend::Uring, ..FileConfig::create(directory.path().join("flash"), 8 << 12) };
    let flash = FileFlash::open(&config).unwrap();
    let frames = arena(4);
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = match flash.open_queue(frames.clone(), 4, wake) {
        Ok(queue) => queue,
        Err(error) => return println!("not tested here: {error}"),
    };
    let mut ended = Vec::new();
    fill(&frames, 0, 11);
    queue.submit(request(0, Op::Write, 3, 0)).unwrap();
    while queue.poll(&mut ended) == 0 {
        queue.wait(Some(Duration::from_secs(5)));
    }
    fill(&frames, 0, 99);
    // One in the kernel's hands, one in the ring.
    queue.submit(request(1, Op::Read, 3, 0)).unwrap();
    queue.flush().unwrap();
    queue.submit(request(2, Op::Read, 3, 1)).unwrap();
    ended.clear();
    // A ring is its first thread's: to another one, it has failed.
    let failed = std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            let failed = queue.flush().err()?;
            for _ in 0..20 {
                queue.wait(Some(Duration::from_millis(1)));
                queue.poll(&mut ended);
            }
            assert_eq!(ended, [], "nothing can be known of either");
            assert_eq!(queue.in_flight(), 2);
            queue.submit(request(3, Op::Read, 3, 2)).unwrap();
            assert_eq!(queue.poll(&mut ended), 1);
            assert_eq!(
                ended.pop(),
                Some(Completion { tag: 3, result: Err(failed), checksum: 0 }),
                "nothing new is taken"
            );
            Some(failed)
        });
        elsewhere.join().unwrap()
    });
    let Some(failed) = failed else { return println!("not tested here: this kernel lets any thread use a ring") };
    for _ in 0..1000 {
        if queue.in_flight() == 0 {
            break;
        }
        queue.wait(Some(Duration::from_millis(10)));
        queue.poll(&mut ended);
    }
    ended.sort_by_key(|c| c.tag);
    assert_eq!(
        ended,
        [1, 2].map(|tag| Completion { tag, result: Ok(()), checksum: 0 }),
        "what was moved is completed as that"
    );
    assert_eq!((stamp_of(&frames, 0), stamp_of(&frames, 1)), (Some(11), Some(11)));
    assert_eq!(queue.flush(), Err(failed), "it stays failed");
}
