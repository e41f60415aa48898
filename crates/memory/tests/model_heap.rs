//! Goal: the heap never hands out a byte twice, never an object that straddles, and survives failed
//! accesses and reopening. Method: random sizes allocated and freed against an interval map; each
//! object is filled with its number and read back when it is freed; small regions, so that
//! everything runs full; injected errors; several threads. Empty pages are taken out and put back
//! in between, and what they held is overwritten meanwhile.

use crate::common;

use std::collections::BTreeMap;

use common::{FaultyMemory, Random, errors, plain};
use fulgurite_memory::{
    AccessError, Address, Heap, Layout, Memory, PAGE_BYTES, PlainMemory, Ptr, Region, SUBPAGE_BYTES,
};

const PAGE: u64 = PAGE_BYTES as u64;

fn region(pages: u64) -> Region {
    Region::new(Address::from_linear(5 * PAGE), pages * PAGE)
}

/// What is handed out: start, length, size asked for, number written into it.
#[derive(Default)]
struct Model {
    objects: BTreeMap<u64, (u64, u64)>,
    number: u64,
}

impl Model {
    fn add<M: Memory>(&mut self, memory: &mut M, region: Region, at: Address, bytes: u64) {
        let (start, len) = (at.linear(), bytes.max(1));
        assert!(at.bits().is_multiple_of(8), "{at} is not aligned");
        assert!(region.contains(at, len), "{at}+{len} is outside");
        if bytes <= SUBPAGE_BYTES as u64 {
            assert!(at.subpage_offset() as u64 + len <= SUBPAGE_BYTES as u64, "{at}+{len} straddles");
        } else {
            assert_eq!(at.subpage_offset(), 0);
        }
        if let Some((&before, &(before_len, _))) = self.objects.range(..=start).next_back() {
            assert!(before + before_len <= start, "{at} overlaps the object before it");
        }
        if let Some((&after, _)) = self.objects.range(start..).next() {
            assert!(start + len <= after, "{at} overlaps the object after it");
        }
        self.number += 1;
        if bytes >= 8 {
            memory.store(Ptr::new(at), self.number).unwrap();
        }
        self.objects.insert(start, (len, self.number));
    }
    fn take<M: Memory>(&mut self, memory: &mut M, nth: u64) -> (Address, u64) {
        let (&start, &(len, number)) = self.objects.iter().nth(nth as usize).unwrap();
        self.objects.remove(&start);
        let at = Address::from_linear(start);
        if len >= 8 {
            assert_eq!(memory.load(Ptr::<u64>::new(at)), Ok(number), "{at} was overwritten while in use");
        }
        (at, len)
    }
}

fn random_size(random: &mut Random, largest: u64) -> u64 {
    match random.below(4) {
        0 => 1 + random.below(64),
        1 => 1 + random.below(600),
        2 => 1 + random.below(4096),
        _ => 1 + random.below(largest),
    }
}

#[test]
fn random_sizes_in_a_region_that_fills_up() {
    let random = Random::seeded("heap", 1);
    for (round, pages) in [1, 2, 8].into_iter().enumerate() {
        let mut random = random.split(round as u64);
        let (mut memory, region) = (plain(), region(pages));
        let mut heap = Heap::create(&mut memory, region).unwrap();
        let mut model = Model::default();
        let mut full = 0;
        for step in 0..4000u64 {
            let growing = step / 500 % 2 == 0;
            if model.objects.is_empty() || random.below(10) < if growing { 7 } else { 3 } {
                let bytes = random_size(&mut random, 20_000);
                match heap.allocate(&mut memory, bytes as usize) {
                    Ok(at) => model.add(&mut memory, region, at, bytes),
                    Err(AccessError::NoSpace { requested, .. }) => {
                        assert_eq!(requested, bytes);
                        full += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            } else {
                let nth = random.below(model.objects.len() as u64);
                let (at, bytes) = model.take(&mut memory, nth);
                heap.free(&mut memory, at, bytes as usize).unwrap();
            }
            if step % 500 == 250 {
                heap.check(&mut memory).unwrap();
            }
            if step % 1000 == 900 {
                let used = heap.used_bytes();
                heap.save(&mut memory).unwrap();
                heap.check(&mut memory).unwrap();
                heap = Heap::open(&mut memory, region).unwrap();
                assert_eq!(heap.used_bytes(), used);
            }
        }
        let asked: u64 = model.objects.values().map(|&(len, _)| len).sum();
        assert!(heap.used_bytes() >= asked);
        while !model.objects.is_empty() {
            let (at, bytes) = model.take(&mut memory, 0);
            heap.free(&mut memory, at, bytes as usize).unwrap();
        }
        heap.check(&mut memory).unwrap();
        assert_eq!(heap.used_bytes(), 0);
        assert!(full > 0, "the region of {pages} pages never ran full");
    }
}

/// Takes the empty pages out, and overwrites them. Returns how many there were.
fn give(heap: &Heap, memory: &mut PlainMemory, model: &Model, region: Region) -> u64 {
    let used = heap.used_bytes();
    let subpages = |memory: &mut PlainMemory| {
        let mut bytes = vec![0; region.bytes as usize];
        memory.read_bytes(region.base, &mut bytes).unwrap();
        bytes.chunks(SUBPAGE_BYTES).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    // Without room nothing is taken or written.
    let before = subpages(memory);
    assert_eq!(heap.take_empty_while(memory, || true, |_| false), Ok(None));
    assert_eq!(heap.used_bytes(), used);
    heap.check(memory).unwrap();
    let written = before.iter().zip(subpages(memory)).filter(|(before, after)| *before != after).count();
    assert!(written <= 1, "{written} subpages were written, and the header alone may be");
    let (before, mut most) = (subpages(memory), 0);
    let taken = heap.take_empty_while(
        memory,
        || true,
        |writes| {
            most = writes;
            true
        },
    );
    let regions = taken.unwrap().expect("it went on");
    // And the header.
    let written = before.iter().zip(subpages(memory)).filter(|(before, after)| *before != after).count() as u64;
    assert!(written <= most + 1, "{written} subpages were written, and {most} announced");
    for empty in &regions {
        assert!(empty.base.linear().is_multiple_of(PAGE) && empty.bytes.is_multiple_of(PAGE));
        assert!(region.contains(empty.base, empty.bytes));
        let (start, end) = (empty.base.linear(), empty.base.linear() + empty.bytes);
        let before = model.objects.range(..end).next_back();
        assert!(before.is_none_or(|(at, (len, _))| at + len <= start), "{empty:?} is in use");
        memory.write_bytes(empty.base, &vec![0xFF; empty.bytes as usize]).unwrap();
    }
    assert!(
        regions.windows(2).all(|pair| pair[0].base.add(pair[0].bytes) < pair[1].base),
        "they ascend, and are whole"
    );
    heap.check(memory).unwrap();
    heap.put_back(&regions);
    heap.check(memory).unwrap();
    assert_eq!(heap.used_bytes(), used);
    regions.iter().map(|empty| empty.bytes / PAGE).sum()
}

#[test]
fn empty_pages_are_lent_and_serve_other_sizes() {
    let mut random = Random::seeded("empty pages", 5);
    let (mut memory, region) = (plain(), region(64));
    let mut heap = Heap::create(&mut memory, region).unwrap();
    let (mut model, mut given, mut full) = (Model::default(), 0, 0);
    for step in 0..24_000u64 {
        // Sizes come and go, so that pages of one size become pages of others.
        let growing = step / 1000 % 2 == 0;
        if model.objects.is_empty() || random.below(10) < if growing { 9 } else { 1 } {
            let bytes = match step / 2000 % 4 {
                0 => 8 + random.below(60),
                1 => 400 + random.below(4000),
                2 => random_size(&mut random, 300_000),
                _ => 4096,
            };
            match heap.allocate(&mut memory, bytes as usize) {
                Ok(at) => model.add(&mut memory, region, at, bytes),
                Err(AccessError::NoSpace { .. }) => full += 1,
                Err(error) => panic!("{error}"),
            }
        } else {
            let (at, bytes) = model.take(&mut memory, random.below(model.objects.len() as u64));
            heap.free(&mut memory, at, bytes as usize).unwrap();
        }
        if step % 400 == 0 {
            given += give(&heap, &mut memory, &model, region);
        }
        if step % 3000 == 2900 {
            heap.save(&mut memory).unwrap();
            heap = Heap::open(&mut memory, region).unwrap();
            heap.check(&mut memory).unwrap();
        }
    }
    println!("{given} pages were lent, {full} allocations found none");
    assert!(given > 100, "{given}");
    while !model.objects.is_empty() {
        let (at, bytes) = model.take(&mut memory, 0);
        heap.free(&mut memory, at, bytes as usize).unwrap();
    }
    // All but the page with the header, and those that nobody has used yet.
    let all = give(&heap, &mut memory, &model, region);
    assert!(all >= 40, "{all} of 63");
    // One object of nearly all that there is.
    let bytes = (all - 1) * PAGE * 7 / 8;
    let at = heap.allocate(&mut memory, bytes as usize).unwrap();
    heap.free(&mut memory, at, bytes as usize).unwrap();
    assert_eq!(heap.used_bytes(), 0);
}

#[test]
fn slabs_of_each_size_become_empty_pages() {
    for bytes in [8usize, 24, 64, 112, 500, 584, 816, 1000, 2000, 4096, 5000, 70_000] {
        let (mut memory, region) = (plain(), region(40));
        let heap = Heap::create(&mut memory, region).unwrap();
        let mut all = Vec::new();
        while let Ok(at) = heap.allocate(&mut memory, bytes) {
            all.push(at);
        }
        let mut random = Random::seeded("slabs", bytes as u64);
        for i in (1..all.len()).rev() {
            all.swap(i, random.below(i as u64 + 1) as usize);
        }
        // One is in use, so its page is.
        let last = all.pop().unwrap();
        for at in all {
            heap.free(&mut memory, at, bytes).unwrap();
        }
        assert!(heap.look_for_freed());
        let given = give(&heap, &mut memory, &Model::default(), region);
        assert!(!heap.look_for_freed());
        let least = if bytes > 4096 { 34 } else { 37 };
        assert!((least..40).contains(&given), "{given} of 40 pages of {bytes} bytes");
        heap.free(&mut memory, last, bytes).unwrap();
        heap.save(&mut memory).unwrap();
        let heap = Heap::open(&mut memory, region).unwrap();
        assert!(give(&heap, &mut memory, &Model::default(), region) > given);
        heap.check(&mut memory).unwrap();
    }
}

#[test]
fn a_failed_search_for_empty_pages_hands_nothing_out_twice() {
    let random = Random::seeded("empty pages, faults", 7);
    let (mut met, mut lost) = (0, 0);
    let rounds = (0..60).step_by(if fulgurite_testkit::is_full() { 1 } else { 4 });
    let count = rounds.clone().count() as u64;
    for round in rounds {
        let (mut memory, region) = (FaultyMemory::new(), region(80));
        let heap = Heap::create(&mut memory, region).unwrap();
        let (mut model, mut random) = (Model::default(), random.split(round));
        for _ in 0..6000 {
            let bytes = [40, 100, 600, 2000][random.below(4) as usize];
            if let Ok(at) = heap.allocate(&mut memory, bytes) {
                model.add(&mut memory, region, at, bytes as u64);
            }
        }
        while model.objects.len() > 200 {
            let (at, bytes) = model.take(&mut memory, random.below(model.objects.len() as u64));
            heap.free(&mut memory, at, bytes as usize).unwrap();
        }
        let used = heap.used_bytes();
        memory.fail_after(round * 7, errors()[round as usize % 3]);
        let taken = heap.take_empty(&mut memory);
        met += u64::from(!memory.heal());
        match taken {
            Ok(regions) => heap.put_back(&regions),
            Err(error) => assert!(errors().contains(&error), "{error}"),
        }
        lost += u64::from(heap.used_bytes() > used);
        heap.check(&mut memory).unwrap();
        for _ in 0..2000 {
            let bytes = [40, 100, 600, 2000][random.below(4) as usize];
            if let Ok(at) = heap.allocate(&mut memory, bytes) {
                model.add(&mut memory, region, at, bytes as u64);
            }
        }
        while !model.objects.is_empty() {
            let (at, bytes) = model.take(&mut memory, 0);
            heap.free(&mut memory, at, bytes as usize).unwrap();
        }
        heap.check(&mut memory).unwrap();
    }
    println!("{met} accesses failed, {lost} of them cost space");
    assert!(met > count / 2 && lost < met, "{met} of {count}, {lost}");
}

#[test]
fn empty_pages_are_looked_for_among_threads() {
    let (memory, region) = (plain(), region(64));
    let heap = Heap::create(&mut memory.clone(), region).unwrap();
    let random = Random::seeded("empty pages, threads", 8);
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut given = 0;
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (mut memory, mut random, heap, over) = (memory.clone(), random.split(thread), &heap, &over);
            scope.spawn(move || {
                let mut mine: Vec<(Address, u64, u64)> = Vec::new();
                for step in 0.. {
                    if over.load(std::sync::atomic::Ordering::SeqCst) {
                        break;
                    }
                    if mine.is_empty() || random.below(100) < if step / 800 % 2 == 0 { 90 } else { 10 } {
                        let bytes = [48, 96, 512, 1000][(step / 1600 + random.below(2)) as usize % 4];
                        // Pages that are lent at this moment are not there for others.
                        let at = match heap.allocate(&mut memory, bytes as usize) {
                            Err(AccessError::NoSpace { .. }) => continue,
                            result => result.unwrap(),
                        };
                        let mark = (thread << 32) | step;
                        memory.store(Ptr::new(at), mark).unwrap();
                        memory.store(Ptr::new(at.add(bytes - 8)), mark).unwrap();
                        mine.push((at, bytes, mark));
                    } else {
                        let (at, bytes, mark) = mine.swap_remove(random.below(mine.len() as u64) as usize);
                        assert_eq!(memory.load(Ptr::<u64>::new(at)), Ok(mark));
                        assert_eq!(memory.load(Ptr::<u64>::new(at.add(bytes - 8))), Ok(mark));
                        heap.free(&mut memory, at, bytes as usize).unwrap();
                    }
                }
                for (at, bytes, _) in mine {
                    heap.free(&mut memory, at, bytes as usize).unwrap();
                }
            });
        }
        let mut memory = memory.clone();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while given < 200 && std::time::Instant::now() < until {
            let regions = heap.take_empty(&mut memory).unwrap();
            for region in &regions {
                memory.write_bytes(region.base, &vec![0xFF; region.bytes as usize]).unwrap();
                given += region.bytes / PAGE;
            }
            heap.put_back(&regions);
            std::thread::yield_now();
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    heap.check(&mut memory.clone()).unwrap();
    assert_eq!(heap.used_bytes(), 0);
    assert!(given >= 200, "only {given} pages were lent");
}

/// Each search begins where there was no room for more, and finds all that is behind.
#[test]
fn what_is_left_is_found_by_the_next_search() {
    const PAGES: u64 = 300;
    let mut random = Random::seeded("left of empty pages", 12);
    for _ in 0..10 {
        let (mut memory, region) = (plain(), region(PAGES));
        let heap = Heap::create(&mut memory, region).unwrap();
        let all: Vec<Address> = (0..(PAGES - 2) * 16).map(|_| heap.allocate(&mut memory, 4096).unwrap()).collect();
        all.iter().for_each(|at| heap.free(&mut memory, *at, 4096).unwrap());
        let mut given = 0;
        for _ in 0..1000 {
            if !heap.look_for_freed() {
                break;
            }
            let regions = heap.take_empty(&mut memory).unwrap();
            let (first, end) = (regions[0].base, regions.last().map(|last| last.base.add(last.bytes)).unwrap());
            let pages = (end.linear() - first.linear()) / PAGE;
            let some = 1 + random.below(40);
            if some < pages {
                heap.put_back_left(&regions, first.add(some * PAGE));
            } else {
                heap.put_back(&regions);
            }
            given += some.min(pages);
            heap.check(&mut memory).unwrap();
        }
        assert!(given >= PAGES - 3, "{given} of {PAGES} pages");
        assert_eq!(heap.used_bytes(), 0);
    }
}

#[test]
fn everything_that_was_freed_can_be_had_again() {
    let (mut memory, region) = (plain(), region(4));
    for bytes in [8usize, 24, 64, 112, 500, 1000, 2000, 4096] {
        let heap = Heap::create(&mut memory, region).unwrap();
        let mut counts = Vec::new();
        for _ in 0..2 {
            let mut all = Vec::new();
            while let Ok(at) = heap.allocate(&mut memory, bytes) {
                all.push(at);
            }
            heap.check(&mut memory).unwrap();
            counts.push(all.len());
            for at in all {
                heap.free(&mut memory, at, bytes).unwrap();
            }
            heap.check(&mut memory).unwrap();
        }
        let fit =
            (4 * PAGE - Heap::HEADER_BYTES) as usize / SUBPAGE_BYTES * (SUBPAGE_BYTES / bytes.next_multiple_of(8));
        assert!(counts[0] > fit * 7 / 8 && counts[0] == counts[1], "{bytes}: {counts:?}, {fit} fit");
    }
}

/// Objects a little smaller than a page reach into two. What is left of one next to lent pages is
/// one piece with them afterwards, so hardly fewer can be had again.
#[test]
fn objects_that_reach_into_lent_pages_can_be_had_again() {
    const SIZE: usize = 15 * SUBPAGE_BYTES;
    let random = Random::seeded("reaching objects", 1);
    let (mut lost, mut lent) = (0, 0);
    for round in 0..20 {
        let mut random = random.split(round);
        let mut memory = plain();
        let heap = Heap::create(&mut memory, region(200)).unwrap();
        let fill = |memory: &mut PlainMemory| std::iter::from_fn(|| heap.allocate(memory, SIZE).ok()).collect();
        let all: Vec<Address> = fill(&mut memory);
        // An eighth stays in use during the search, and is freed afterwards.
        let (others, first): (Vec<Address>, Vec<Address>) = all.iter().partition(|_| random.below(8) == 0);
        first.iter().for_each(|at| heap.free(&mut memory, *at, SIZE).unwrap());
        let regions = heap.take_empty(&mut memory).unwrap();
        heap.put_back(&regions);
        others.iter().for_each(|at| heap.free(&mut memory, *at, SIZE).unwrap());
        heap.check(&mut memory).unwrap();
        let again: Vec<Address> = fill(&mut memory);
        (lost, lent) = (lost + all.len() - again.len(), lent + regions.len());
    }
    // About one a region, which is divided into sizes of other objects.
    assert!(lent > 100 && lost <= lent + lent / 4, "{lost} objects were lost by {lent} regions");
}
#[test]
fn whole_subpages_become_slabs_of_other_sizes() {
    let (mut memory, region) = (plain(), region(2));
    let heap = Heap::create(&mut memory, region).unwrap();
    let mut all = Vec::new();
    for bytes in [3 * SUBPAGE_BYTES, SUBPAGE_BYTES] {
        while let Ok(at) = heap.allocate(&mut memory, bytes) {
            all.push((at, bytes));
        }
    }
    for (at, bytes) in all {
        heap.free(&mut memory, at, bytes).unwrap();
    }
    let mut model = Model::default();
    while let Ok(at) = heap.allocate(&mut memory, 64) {
        model.add(&mut memory, region, at, 64);
    }
    heap.check(&mut memory).unwrap();
    assert_eq!(model.objects.len() as u64 * 64, region.bytes - Heap::HEADER_BYTES);
}

#[test]
fn a_failed_access_changes_nothing() {
    let random = Random::seeded("heap faults", 2);
    let (mut memory, region) = (FaultyMemory::new(), region(6));
    let heap = Heap::create(&mut memory, region).unwrap();
    let mut model = Model::default();
    let mut random = random.split(0);
    let mut failed = 0;
    for step in 0..6000u64 {
        let used = heap.used_bytes();
        memory.fail_after(random.below(2), errors()[random.below(3) as usize]);
        if model.objects.is_empty() || random.below(100) < if step / 1500 % 2 == 0 { 80 } else { 20 } {
            let bytes = 16 * (1 + random.below(4));
            let got = heap.allocate(&mut memory, bytes as usize);
            memory.heal();
            match got {
                Ok(at) => model.add(&mut memory, region, at, bytes),
                Err(error) => {
                    assert!(errors().contains(&error), "{error}");
                    assert_eq!(heap.used_bytes(), used);
                    failed += 1;
                }
            }
        } else {
            memory.heal();
            let (at, bytes) = model.take(&mut memory, 0);
            memory.fail_after(random.below(2), AccessError::Cancelled);
            let freed = heap.free(&mut memory, at, bytes as usize);
            if !memory.heal() {
                failed += 1;
            }
            assert_eq!(freed, Ok(()), "the object is free whatever happens");
        }
        if step % 500 == 0 {
            heap.check(&mut memory).unwrap();
        }
    }
    assert!(failed > 10, "only {failed} accesses failed");
    while !model.objects.is_empty() {
        let (at, bytes) = model.take(&mut memory, 0);
        heap.free(&mut memory, at, bytes as usize).unwrap();
    }
    heap.check(&mut memory).unwrap();
    assert_eq!(heap.used_bytes(), 0);
}

#[test]
fn after_a_crash_nothing_is_handed_out_twice() {
    let (mut memory, region) = (plain(), region(64));
    let heap = Heap::create(&mut memory, region).unwrap();
    let mut model = Model::default();
    let mut random = Random::seeded("heap crash", 3);
    for _ in 0..500 {
        let bytes = random_size(&mut random, 9000);
        let at = heap.allocate(&mut memory, bytes as usize).unwrap();
        model.add(&mut memory, region, at, bytes);
    }
    heap.save(&mut memory).unwrap();
    for _ in 0..200 {
        let bytes = random_size(&mut random, 9000);
        let at = heap.allocate(&mut memory, bytes as usize).unwrap();
        model.add(&mut memory, region, at, bytes);
    }
    drop(heap);
    let heap = Heap::open(&mut memory, region).unwrap();
    heap.check(&mut memory).unwrap();
    for _ in 0..200 {
        let bytes = random_size(&mut random, 2000);
        let at = heap.allocate(&mut memory, bytes as usize).unwrap();
        model.add(&mut memory, region, at, bytes);
    }
    while !model.objects.is_empty() {
        let (at, bytes) = model.take(&mut memory, 0);
        heap.free(&mut memory, at, bytes as usize).unwrap();
    }
    heap.check(&mut memory).unwrap();
}

#[test]
fn threads_share_a_heap() {
    let (memory, region) = (plain(), region(40));
    let heap = Heap::create(&mut memory.clone(), region).unwrap();
    let random = Random::seeded("heap threads", 4);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (mut memory, mut random, heap) = (memory.clone(), random.split(thread), &heap);
            scope.spawn(move || {
                let mut mine: Vec<(Address, u64, u64)> = Vec::new();
                for step in 0..5000u64 {
                    if mine.is_empty() || random.below(100) < if step / 1000 % 2 == 0 { 70 } else { 30 } {
                        let bytes = 8 * (1 + random.below(12));
                        // Pages that are lent at this moment are not there for others.
                        let at = match heap.allocate(&mut memory, bytes as usize) {
                            Err(AccessError::NoSpace { .. }) => continue,
                            result => result.unwrap(),
                        };
                        let mark = (thread << 32) | step;
                        memory.store(Ptr::new(at), mark).unwrap();
                        memory.store(Ptr::new(at.add(bytes - 8)), mark).unwrap();
                        mine.push((at, bytes, mark));
                    } else {
                        let (at, bytes, mark) = mine.swap_remove(random.below(mine.len() as u64) as usize);
                        assert_eq!(memory.load(Ptr::<u64>::new(at)), Ok(mark));
                        assert_eq!(memory.load(Ptr::<u64>::new(at.add(bytes - 8))), Ok(mark));
                        heap.free(&mut memory, at, bytes as usize).unwrap();
                    }
                }
                for (at, bytes, _) in mine {
                    heap.free(&mut memory, at, bytes as usize).unwrap();
                }
            });
        }
    });
    heap.check(&mut memory.clone()).unwrap();
    assert_eq!(heap.used_bytes(), 0);
    assert!(heap.dram_bytes() < 256 << 10, "{}", heap.dram_bytes());
}

#[test]
fn threads_that_race_for_the_last_large_objects_all_get_one() {
    let sizes: Vec<usize> = (2..=16).map(|subpages| subpages * SUBPAGE_BYTES).collect();
    let bytes = Heap::HEADER_BYTES + sizes.iter().sum::<usize>() as u64;
    let region = Region::new(Address::from_linear(5 * PAGE), bytes);
    let memory = plain();
    for round in 0..200 {
        let mut m = memory.clone();
        let heap = Heap::create(&mut m, region).unwrap();
        let objects: Vec<_> = sizes.iter().map(|&size| (heap.allocate(&mut m, size).unwrap(), size)).collect();
        for &(at, size) in &objects {
            heap.free(&mut m, at, size).unwrap();
        }
        // Into the lists in flash, one object each.
        heap.save(&mut m).unwrap();
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (mut m, heap, start) = (memory.clone(), &heap, &start);
                scope.spawn(move || {
                    start.wait();
                    for size in (0..5).map(|i| 8 * (1 + thread * 5 + i)) {
                        let got = heap.allocate(&mut m, size);
                        assert!(got.is_ok(), "round {round}, {size} bytes: {got:?}");
                    }
                });
            }
        });
        assert!(matches!(heap.allocate(&mut m, 512), Err(AccessError::NoSpace { .. })), "all fifteen were needed");
    }
}

#[test]
fn reservations_are_objects() {
    let (mut memory, region) = (plain(), region(8));
    let heap = Heap::create(&mut memory, region).unwrap();
    for layout in [Layout::Clustered, Layout::Scattered { seed: 9 }] {
        for count in [0u64, 1, 2, 63, 64, 65, 300] {
            let mut model = Model::default();
            let reservation = heap.reserve(&mut memory, 60, count, layout).unwrap();
            for rank in 0..count {
                model.add(&mut memory, region, reservation.at(rank), 60);
            }
            for _ in 0..70 {
                let at = heap.allocate(&mut memory, 60).unwrap();
                model.add(&mut memory, region, at, 60);
            }
            while !model.objects.is_empty() {
                let (at, bytes) = model.take(&mut memory, 0);
                heap.free(&mut memory, at, bytes as usize).unwrap();
            }
            heap.check(&mut memory).unwrap();
            assert_eq!(heap.used_bytes(), 0);
        }
    }
    let too_many = heap.reserve(&mut memory, 64, 1 << 40, Layout::Clustered);
    assert!(matches!(too_many, Err(AccessError::NoSpace { .. })));
}

#[test]
fn wrong_use_is_refused() {
    let (mut memory, region) = (plain(), region(1));
    let small = Region::new(region.base, 2 * SUBPAGE_BYTES as u64);
    assert!(matches!(Heap::create(&mut memory, small), Err(AccessError::NoSpace { .. })));
    assert!(matches!(Heap::open(&mut memory, region), Err(AccessError::Corrupt { .. })));
    let heap = Heap::create(&mut memory, region).unwrap();
    let at = heap.allocate(&mut memory, 64).unwrap();
    for wrong in [at.add(8), region.base, Address::NULL, region.base.add(region.bytes)] {
        assert!(matches!(heap.free(&mut memory, wrong, 64), Err(AccessError::Corrupt { .. })), "{wrong}");
    }
    heap.free(&mut memory, at, 64).unwrap();
    assert!(matches!(heap.free(&mut memory, at, 64), Err(AccessError::Corrupt { .. })), "freed twice");
    assert!(matches!(heap.allocate(&mut memory, usize::MAX), Err(AccessError::NoSpace { .. })));
    assert!(matches!(heap.allocate(&mut memory, 1 << 20), Err(AccessError::NoSpace { .. })));
    // A damaged list is found, not followed.
    let objects: Vec<_> = (0..2).map(|_| heap.allocate(&mut memory, 512).unwrap()).collect();
    for &at in &objects {
        heap.free(&mut memory, at, 512).unwrap();
    }
    heap.save(&mut memory).unwrap();
    for at in objects {
        memory.store(Ptr::new(at.add(8)), 12345u64).unwrap();
    }
    assert!(matches!(heap.check(&mut memory), Err(AccessError::Corrupt { .. })));
    assert!(matches!(heap.allocate(&mut memory, 512), Err(AccessError::Corrupt { .. })));
}
