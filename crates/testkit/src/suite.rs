//! What every medium must do: one suite, for all crates that make media.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::*;
use fulgurite_format::SubpageIndex;
use fulgurite_sys::Notifier;

pub use crate::decorated::conform_decorated;

use crate::Random;
use crate::media::{Driver, arena, fill, request, stamp_of};

/// The size of a medium that the suite takes.
pub const SUBPAGES: u32 = 200;

/// Runs the whole suite on one medium of `SUBPAGES` subpages.
pub fn conform(flash: &dyn Flash, seed: u64) {
    behaves(flash, seed);
    counts(flash);
}

/// The suite but for the counters, because a medium over a layer counts the layer's writes and
/// flushes.
pub fn behaves(flash: &dyn Flash, seed: u64) {
    println!("{}: seed {seed}", flash.describe());
    assert_eq!(flash.subpages(), SUBPAGES);
    for depth in [1, 2, 64] {
        model(flash, depth, 600, seed ^ depth as u64);
    }
    two_queues(flash, seed);
    bounds(flash);
    full(flash);
    dropped_in_flight(flash);
    wakes(flash);
    checksums(flash, seed);
    switches(flash, seed);
    trims(flash, seed);
}

/// Random operations with as much in flight as fits, never two on one subpage, against a map of
/// stamps.
pub fn model(flash: &dyn Flash, depth: usize, operations: u64, seed: u64) {
    let mut random = Random(seed | 1);
    let frames = arena(depth as u32);
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(frames.clone(), depth, wake).unwrap();
    assert_eq!(queue.depth(), depth);
    let mut written: BTreeMap<u32, u64> = BTreeMap::new();
    let mut free: Vec<u32> = (0..depth as u32).collect();
    let mut under_way: HashMap<u64, (Op, u32, u32, u64)> = HashMap::new();
    let mut completions = Vec::new();
    let mut next = 0;
    while next < operations || !under_way.is_empty() {
        while next < operations && !free.is_empty() && random.below(8) != 0 {
            let subpage = random.below(u64::from(SUBPAGES)) as u32;
            if under_way.values().any(|&(_, s, ..)| s == subpage) {
                break;
            }
            let frame = free.pop().unwrap();
            let op = if random.below(2) == 0 || !written.contains_key(&subpage) { Op::Write } else { Op::Read };
            let stamp = random.next();
            fill(&frames, frame, stamp);
            queue.submit(request(next, op, subpage, frame)).unwrap();
            under_way.insert(next, (op, subpage, frame, stamp));
            next += 1;
        }
        if random.below(3) != 0 || next == operations || free.is_empty() {
            queue.flush().unwrap();
        }
        if queue.poll(&mut completions) == 0 && (free.is_empty() || next == operations) {
            queue.wait(Some(Duration::from_secs(10)));
        }
        for completion in completions.drain(..) {
            assert_eq!(completion.result, Ok(()));
            let (op, subpage, frame, stamp) = under_way.remove(&completion.tag).expect("completed once");
            match op {
                Op::Write => drop(written.insert(subpage, stamp)),
                _ => assert_eq!(stamp_of(&frames, frame), Some(written[&subpage]), "subpage {subpage}"),
            }
            free.push(frame);
        }
        assert_eq!(queue.in_flight(), under_way.len());
    }
}

/// What one queue wrote, the other reads.
fn two_queues(flash: &dyn Flash, seed: u64) {
    let (a_frames, b_frames) = (arena(32), arena(32));
    let mut a = Driver::new(flash, &a_frames, 32);
    let mut b = Driver::new(flash, &b_frames, 32);
    for round in 0..20 {
        for i in 0..32 {
            fill(&a_frames, i, seed ^ (round << 32) ^ u64::from(i));
            a.submit(Op::Write, i * 3, i);
        }
        a.finish_all();
        for i in 0..32 {
            b.submit(Op::Read, i * 3, 31 - i);
        }
        b.finish_all();
        for i in 0..32 {
            assert_eq!(stamp_of(&b_frames, 31 - i), Some(seed ^ (round << 32) ^ u64::from(i)));
        }
    }
}

/// Requests for what does not exist complete with an error and touch nothing; depths that cannot be
/// are refused.
fn bounds(flash: &dyn Flash) {
    let frames = arena(2);
    let wake = Arc::new(Notifier::new().unwrap());
    for depth in [0, DEPTH_MAX + 1, usize::MAX] {
        assert!(matches!(flash.open_queue(frames.clone(), depth, wake.clone()), Err(OpenError::Depth { .. })));
    }
    let mut queue = Driver::new(flash, &frames, 4);
    for (op, subpage, frame) in
        [(Op::Read, SUBPAGES, 0), (Op::Write, u32::MAX, 1), (Op::Read, 0, 2), (Op::Write, 0, (1 << 30) + 1)]
    {
        queue.submit(op, subpage, frame);
    }
    assert_eq!(queue.queue.submit(request(99, Op::Read, 0, 0)), Err(QueueFull));
    let results = queue.finish_all();
    assert_eq!(results.len(), 4);
    assert!(results.values().all(|&r| r == Err(FlashError::OutOfRange)), "{results:?}");
    fill(&frames, 0, 5);
    assert!(queue.one(Op::Write, SUBPAGES - 1, 0).is_ok());
    assert!(queue.one(Op::Read, SUBPAGES - 1, 1).is_ok());
    assert_eq!(stamp_of(&frames, 1), Some(5));
}

/// A queue takes as many as it is deep, and takes more once it was polled.
fn full(flash: &dyn Flash) {
    let frames = arena(5);
    let mut queue = Driver::new(flash, &frames, 5);
    for _ in 0..10 {
        for i in 0..5 {
            queue.submit(Op::Read, i, i);
        }
        assert_eq!(queue.queue.submit(request(99, Op::Read, 0, 0)), Err(QueueFull));
        assert_eq!(queue.queue.in_flight(), 5);
        assert_eq!(queue.finish_all().len(), 5);
        assert_eq!(queue.queue.in_flight(), 0);
    }
    assert!(queue.queue.bytes() > 0 && queue.queue.bytes() < 1 << 20);
}

/// A queue dropped with requests under way leaves the frames alone afterwards, and what it wrote is
/// old or new, whole.
fn dropped_in_flight(flash: &dyn Flash) {
    for round in 0..5u64 {
        let frames = arena(16);
        let mut queue = Driver::new(flash, &frames, 16);
        for i in 0..16 {
            fill(&frames, i, round << 8 | u64::from(i));
            queue.submit(if i < 8 { Op::Write } else { Op::Read }, i, i);
        }
        if round % 2 == 0 {
            queue.queue.flush().unwrap();
        }
        drop(queue);
        for i in 0..16 {
            fill(&frames, i, 1 << 40);
        }
        std::thread::sleep(Duration::from_millis(1));
        for i in 0..16 {
            assert_eq!(stamp_of(&frames, i), Some(1 << 40), "frame {i} was touched after its queue was dropped");
        }
        let mut queue = Driver::new(flash, &frames, 16);
        for i in 0..8 {
            assert!(queue.one(Op::Read, i, i).is_ok());
            assert!(stamp_of(&frames, i).is_some(), "subpage {i} is torn");
        }
    }
}

/// A wait ends by the wake-up, by its time, and by a completion.
fn wakes(flash: &dyn Flash) {
    let frames = arena(1);
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(frames, 1, wake.clone()).unwrap();
    for _ in 0..3 {
        wake.notify();
        queue.wait(None);
    }
    queue.wait(Some(Duration::from_millis(2)));
    let sleeper = wake.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        sleeper.notify();
    });
    queue.wait(Some(Duration::from_secs(10)));
    thread.join().unwrap();
    queue.submit(request(1, Op::Read, 3, 0)).unwrap();
    let mut completions = Vec::new();
    while queue.poll(&mut completions) == 0 {
        // Hands the batch over by itself. Without the completion as an end this would hang.
        queue.wait(None);
    }
    assert_eq!(completions, [Completion { tag: 1, result: Ok(()), checksum: 0 }]);
}

/// Flushes complete, among others and alone; they and writes are counted.
fn counts(flash: &dyn Flash) {
    let frames = arena(4);
    let mut queue = Driver::new(flash, &frames, 4);
    // A write buffer may still hold earlier writes, which count once they are programmed.
    assert!(queue.one(Op::Flush, 0, 0).is_ok());
    let before = flash.counters();
    for i in 0..3 {
        queue.submit(Op::Write, i, i);
    }
    queue.submit(Op::Flush, u32::MAX, u32::MAX);
    assert!(queue.finish_all().values().all(|r| r.is_ok()));
    assert!(queue.one(Op::Flush, 0, 0).is_ok());
    let after = flash.counters();
    assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (3, 2));
}

/// A queue that reports checksums reports them of the bytes that were moved, whatever their bits
/// are.
fn checksums(flash: &dyn Flash, seed: u64) {
    let mut random = Random(seed);
    let frames = arena(2);
    let mut queue = flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
    let says = queue.switch(Switches { checksums: true, ..Switches::default() }).checksums;
    for tag in 0..64u64 {
        fill(&frames, 0, random.next());
        for (op, frame) in [(Op::Write, 0), (Op::Read, 1)] {
            queue.submit(request(tag, op, 1, frame)).unwrap();
            queue.flush().unwrap();
            let mut ended = Vec::new();
            while queue.poll(&mut ended) == 0 {
                queue.wait(Some(std::time::Duration::from_secs(5)));
            }
            let mut bytes = [0; 4096];
            frames.read(frame as usize * 4096, &mut bytes);
            let expected = if says { fulgurite_format::crc32c(&bytes) } else { 0 };
            assert_eq!((ended[0].tag, ended[0].result, ended[0].checksum), (tag, Ok(()), expected), "seed {seed}");
        }
    }
}

/// Switches change what requests cost, not what they do, and what is heeded was asked for.
fn switches(flash: &dyn Flash, seed: u64) {
    let frames = arena(16);
    let mut queue = Driver::new(flash, &frames, 16);
    queue.queue.use_frames(0..16);
    for bits in (0..32u64).chain([0]) {
        let bit = |i: u64| bits >> i & 1 == 1;
        let asked = Switches {
            gather_reads: bit(0),
            checksums: bit(1),
            hold_writes: bit(2),
            own_work: bit(3),
            notifies: bit(4),
        };
        let heeded = queue.queue.switch(asked);
        let within = |heeded: bool, asked: bool| asked || !heeded;
        assert!(within(heeded.gather_reads, asked.gather_reads) && within(heeded.checksums, asked.checksums));
        assert!(within(heeded.hold_writes, asked.hold_writes) && within(heeded.own_work, asked.own_work));
        for i in 0..16 {
            fill(&frames, i, seed ^ (bits << 8) ^ u64::from(i));
            queue.submit(Op::Write, 40 + i, i);
        }
        assert!(queue.finish_all().values().all(Result::is_ok));
        for i in 0..16 {
            queue.submit(Op::Read, 40 + i, 15 - i);
        }
        assert!(queue.finish_all().values().all(Result::is_ok));
        for i in 0..16 {
            assert_eq!(stamp_of(&frames, 15 - i), Some(seed ^ (bits << 8) ^ u64::from(i)), "{asked:?}");
        }
    }
}

/// A trim touches nothing outside its range, and leaves what can be read.
fn trims(flash: &dyn Flash, seed: u64) {
    for (first, count) in [(SUBPAGES, 1), (SUBPAGES - 1, 2), (0, SUBPAGES + 1), (u32::MAX, 2), (1, u32::MAX)] {
        assert_eq!(flash.trim(SubpageIndex(first), count), Err(FlashError::OutOfRange));
    }
    let frames = arena(1);
    let mut queue = Driver::new(flash, &frames, 1);
    let stamp = |subpage: u32| seed ^ u64::from(subpage) << 3;
    for subpage in 0..SUBPAGES {
        fill(&frames, 0, stamp(subpage));
        assert!(queue.one(Op::Write, subpage, 0).is_ok());
    }
    // Across extents of a striped medium, whose members are trimmed one by one.
    let gone = [30..37, 50..50, SUBPAGES - 3..SUBPAGES];
    for range in &gone {
        assert_eq!(flash.trim(SubpageIndex(range.start), range.end - range.start), Ok(()));
    }
    for subpage in 0..SUBPAGES {
        assert!(queue.one(Op::Read, subpage, 0).is_ok());
        if !gone.iter().any(|range| range.contains(&subpage)) {
            assert_eq!(stamp_of(&frames, 0), Some(stamp(subpage)), "subpage {subpage} was not trimmed");
        }
    }
}
