//! Goal: the map in flash behaves as `std`'s, whatever its capacity; an access that fails leaves it
//! as it was; threads see whole values and lose none. Method: random operations on few keys against
//! `std::collections::HashMap`; every access of every operation made to fail in turn; four threads
//! that add to counters; capacities of one and two, and a heap that runs full.

use crate::common;

use std::cell::Cell;
use std::collections::HashMap as Model;
use std::sync::Arc;

use common::{FaultyMemory, Random, change_or_fail, entries, errors, interleave, plain, same};
use fulgurite_memory::{
    AccessError, Address, HashMap, Heap, KeyHash, Latch, Memory, NoLatch, PAGE_BYTES, Plain, PlainMemory, Region,
    VersionLatch,
};

const PAGE: u64 = PAGE_BYTES as u64;

/// A heap of `pages` behind which the buckets lie.
fn places<M: Memory>(memory: &mut M, pages: u64, bucket_bytes: u64) -> (Arc<Heap>, Region) {
    let heap = Heap::create(memory, Region::new(Address::from_linear(PAGE), pages * PAGE)).unwrap();
    (Arc::new(heap), Region::new(Address::from_linear((1 + pages) * PAGE), bucket_bytes))
}

fn make<K: KeyHash + Eq, V: Plain, L: Latch, M: Memory>(
    memory: &mut M,
    pages: u64,
    capacity: u64,
) -> (HashMap<K, V, L>, Arc<Heap>) {
    let (heap, region) = places(memory, pages, HashMap::<K, V, L>::bytes_needed(capacity));
    (HashMap::create(memory, region, heap.clone(), capacity, 16).unwrap(), heap)
}

/// The same map, growing or with all of its buckets.
fn make_either<K: KeyHash + Eq, V: Plain, L: Latch, M: Memory>(
    memory: &mut M,
    pages: u64,
    capacity: u64,
    grows: bool,
) -> (HashMap<K, V, L>, Arc<Heap>) {
    if !grows {
        return make(memory, pages, capacity);
    }
    let (heap, region) = places(memory, pages, HashMap::<K, V, L>::bytes_to_grow(capacity));
    (HashMap::create_growing(memory, region, heap.clone(), capacity, 16).unwrap(), heap)
}

fn random_operations<K, V>(what: &str, (capacity, grows): (u64, bool), key: impl Fn(u64) -> K, value: impl Fn(u64) -> V)
where
    K: KeyHash + Eq + std::hash::Hash + std::fmt::Debug,
    V: Plain + PartialEq + std::fmt::Debug,
{
    let mut random = Random::seeded(what, capacity);
    let mut memory = plain();
    let (mut map, heap) = make_either::<K, V, VersionLatch, _>(&mut memory, 40, capacity, grows);
    let mut model = Model::new();
    for step in 0..6000 {
        let (k, v) = (key(random.below(150)), value(random.next()));
        let growing = step / 1000 % 2 == 0;
        match random.below(10) {
            0..=4 if growing => assert_eq!(map.insert(&mut memory, &k, v), Ok(model.insert(k, v))),
            0..=4 => assert_eq!(map.remove(&mut memory, &k), Ok(model.remove(&k))),
            5 => assert_eq!(map.insert(&mut memory, &k, v), Ok(model.insert(k, v))),
            6 => assert_eq!(map.remove(&mut memory, &k), Ok(model.remove(&k))),
            7 => {
                let old = map.update(&mut memory, &k, |now| std::mem::replace(now, v)).unwrap();
                assert_eq!(old, model.get_mut(&k).map(|now| std::mem::replace(now, v)));
            }
            8 => assert_eq!(map.contains_key(&mut memory, &k), Ok(model.contains_key(&k))),
            _ => assert_eq!(map.get(&mut memory, &k), Ok(model.get(&k).copied())),
        }
        if step % 500 == 0 {
            same(&mut memory, &map, &model);
            heap.check(&mut memory).unwrap();
        }
        if step % 1500 == 1400 {
            map.save(&mut memory).unwrap();
            map = HashMap::open(map.root(), heap.clone(), 1).unwrap();
        }
    }
    for k in model.drain().map(|(k, _)| k).collect::<Vec<_>>() {
        assert!(map.remove(&mut memory, &k).unwrap().is_some());
    }
    same(&mut memory, &map, &model);
    assert_eq!(map.len(&mut memory), Ok(0));
    if grows {
        assert_eq!(map.buckets(&mut memory), Ok(1), "{what}: an empty map has one bucket");
    }
    assert_eq!(heap.used_bytes(), 0, "blocks without entries go back to the heap");
}

#[test]
fn random_operations_on_keys_and_values_of_several_sizes() {
    for capacity in [0, 1, 2, 20, 150, 1000].into_iter().flat_map(|capacity| [(capacity, false), (capacity, true)]) {
        random_operations("u64 -> u64", capacity, |n| n, |n| n);
        random_operations("[u8; 3] -> [u8; 5]", capacity, |n| [n as u8, 0, 1], |n| [n as u8; 5]);
        random_operations("u32 -> [u64; 30]", capacity, |n| n as u32, |n| [n; 30]);
        random_operations("u64 -> [u64; 509]", capacity, |n| n << 40, |n| [n; 509]);
        random_operations("[u64; 2] -> ()", capacity, |n| [n, n], |_| ());
    }
}

#[test]
fn every_access_may_fail() {
    let random = Random::seeded("hash map faults", 7);
    for (capacity, grows) in [(1, false), (40, false), (40, true)] {
        let mut random = random.split(capacity);
        let mut memory = FaultyMemory::new();
        let (map, heap) = make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 8, capacity, grows);
        let mut model = Model::new();
        let mut failures = 0;
        for step in 0..600u64 {
            let (key, value) = (random.below(60), [random.next(); 3]);
            let operation = random.below(3);
            for fail_at in 0.. {
                let error = errors()[(step % 3) as usize];
                memory.fail_after(fail_at, error);
                let result = match operation {
                    0 => map.insert(&mut memory, &key, value),
                    1 => map.remove(&mut memory, &key),
                    _ => map.update(&mut memory, &key, |now| std::mem::replace(now, value)),
                };
                let met = !memory.heal();
                match result {
                    Err(got) => {
                        assert!(met && got == error, "{got}");
                        failures += 1;
                        assert_eq!(map.check(&mut memory), Ok(model.len() as u64));
                        assert_eq!(map.get(&mut memory, &key), Ok(model.get(&key).copied()));
                    }
                    Ok(old) => {
                        let want = match operation {
                            0 => model.insert(key, value),
                            1 => model.remove(&key),
                            _ => model.get_mut(&key).map(|now| std::mem::replace(now, value)),
                        };
                        assert_eq!(old, want);
                        break;
                    }
                }
            }
            if step % 50 == 0 {
                same(&mut memory, &map, &model);
                heap.check(&mut memory).unwrap();
            }
        }
        assert!(failures > 1000, "only {failures} failures");
        for key in 0..60 {
            map.remove(&mut memory, &key).unwrap();
        }
        assert_eq!(heap.used_bytes(), 0, "failed operations leak nothing");
    }
}

#[test]
fn a_full_heap_refuses_and_changes_nothing() {
    let mut memory = plain();
    let (map, heap) = make::<u64, [u64; 60], NoLatch, _>(&mut memory, 1, 4);
    let mut model = Model::new();
    let refused = (0..).find(|&key| match map.insert(&mut memory, &key, [key; 60]) {
        Ok(old) => {
            assert_eq!(old, None);
            model.insert(key, [key; 60]);
            false
        }
        Err(error) => {
            assert!(matches!(error, AccessError::NoSpace { .. }), "{error}");
            true
        }
    });
    same(&mut memory, &map, &model);
    heap.check(&mut memory).unwrap();
    // What needs no new block still works.
    assert!(map.insert(&mut memory, &0, [9; 60]).unwrap().is_some());
    assert!(map.remove(&mut memory, &1).unwrap().is_some());
    assert_eq!(map.get(&mut memory, &refused.unwrap()), Ok(None));
}

#[test]
fn threads_lose_nothing_and_see_whole_values() {
    for grows in [false, true] {
        threads(grows);
    }
}

fn threads(grows: bool) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 4000;
    let memory = plain();
    let capacity = if grows { 60 } else { 6 };
    let (map, heap) = make_either::<u64, [u64; 4], VersionLatch, _>(&mut memory.clone(), 20, capacity, grows);
    for shared in 0..8 {
        map.insert(&mut memory.clone(), &shared, [0; 4]).unwrap();
    }
    let random = Random::seeded("hash map threads", 5);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (mut memory, mut random, map) = (memory.clone(), random.split(thread), &map);
            scope.spawn(move || {
                let mut mine = Model::new();
                for round in 0..ROUNDS {
                    let shared = random.below(8);
                    map.update(&mut memory, &shared, |value| value.iter_mut().for_each(|part| *part += 1)).unwrap();
                    let seen = map.get(&mut memory, &random.below(8)).unwrap().expect("nobody removes these");
                    assert!(seen.iter().all(|&part| part == seen[0]), "torn: {seen:?}");
                    // Keys of our own, in the same buckets as the others'.
                    let key = 100 + random.below(12) * THREADS + thread;
                    if random.below(2) == 0 {
                        let value = [round; 4];
                        assert_eq!(map.insert(&mut memory, &key, value), Ok(mine.insert(key, value)));
                    } else {
                        assert_eq!(map.remove(&mut memory, &key), Ok(mine.remove(&key)));
                    }
                }
                for (key, value) in mine {
                    assert_eq!(map.remove(&mut memory, &key), Ok(Some(value)));
                }
            });
        }
    });
    let mut memory = memory;
    assert_eq!(map.check(&mut memory), Ok(8));
    let sum: u64 = (0..8).map(|shared| map.get(&mut memory, &shared).unwrap().unwrap()[0]).sum();
    assert_eq!(sum, THREADS * ROUNDS);
    heap.check(&mut memory).unwrap();
}

#[test]
fn bulk_and_open() {
    let mut memory = plain();
    let (heap, region) = places(&mut memory, 40, HashMap::<u64, u64, NoLatch>::bytes_needed(5000));
    let entries = (0..5000u64).map(|n| (n * n, n)).chain([(49, 70)]);
    let map = HashMap::<u64, u64, NoLatch>::bulk(&mut memory, region, heap.clone(), 5000, 1, entries).unwrap();
    assert_eq!(map.check(&mut memory), Ok(5000));
    let again = HashMap::<u64, u64, VersionLatch>::open(map.root(), heap.clone(), 100).unwrap();
    assert_eq!(again.get(&mut memory, &49), Ok(Some(70)));
    assert_eq!(again.get(&mut memory, &(4999 * 4999)), Ok(Some(4999)));
    assert_eq!(again.get(&mut memory, &2), Ok(None));
    let wrong = HashMap::<u64, u32, VersionLatch>::open(map.root(), heap.clone(), 100);
    assert!(matches!(wrong, Err(AccessError::Corrupt { .. })));
    let small = Region::new(region.base, region.bytes - 4096);
    let short = HashMap::<u64, u64, NoLatch>::create(&mut memory, small, heap, 5000, 1);
    assert!(matches!(short, Err(AccessError::NoSpace { .. })));
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    Update(u64, u64),
}

fn run<L: Latch, M: Memory>(
    map: &HashMap<u64, [u64; 3], L>,
    memory: &mut M,
    operation: Operation,
) -> Result<Option<[u64; 3]>, AccessError> {
    match operation {
        Operation::Get(key) => map.get(memory, &key),
        Operation::Insert(key, value) => map.insert(memory, &key, [value; 3]),
        Operation::Remove(key) => map.remove(memory, &key),
        Operation::Update(key, value) => map.update(memory, &key, |now| std::mem::replace(now, [value; 3])),
    }
}

fn expected(model: &mut Model<u64, [u64; 3]>, operation: Operation) -> Option<[u64; 3]> {
    match operation {
        Operation::Get(key) => model.get(&key).copied(),
        Operation::Insert(key, value) => model.insert(key, [value; 3]),
        Operation::Remove(key) => model.remove(&key),
        Operation::Update(key, value) => model.get_mut(&key).map(|now| std::mem::replace(now, [value; 3])),
    }
}

#[test]
fn another_fiber_may_run_at_any_access() {
    for (capacity, grows) in [(1, false), (30, false), (30, true)] {
        let memory = plain();
        let (map, _heap) = make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory.clone(), 4, capacity, grows);
        interleave(
            6000,
            4,
            &memory,
            Random::seeded("hash map interleaved", 21),
            Model::new(),
            |random| {
                let (key, value) = (random.below(25), random.next());
                match random.below(4) {
                    0 => Operation::Get(key),
                    1 => Operation::Insert(key, value),
                    2 => Operation::Remove(key),
                    _ => Operation::Update(key, value),
                }
            },
            expected,
            |memory, operation| run(&map, memory, operation),
            |memory, operation| run(&map, memory, operation),
            |memory| entries(memory, &map),
        );
    }
}

#[test]
fn a_map_grows_inside_other_operations() {
    let random = Random::seeded("growing hash map interleaved", 22);
    for map in 0..12 {
        let memory = plain();
        let (map, random) =
            (make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory.clone(), 9, 500, true).0, random.split(map));
        interleave(
            1000,
            8,
            &memory,
            random,
            Model::new(),
            |random| {
                // Some are new, and some are those of the other operation.
                let (key, value) =
                    (if random.below(2) == 0 { random.below(500) } else { random.below(6) }, random.next());
                match random.below(6) {
                    0 | 1 => Operation::Get(key),
                    2 => Operation::Remove(key),
                    _ => Operation::Insert(key, value),
                }
            },
            expected,
            |memory, operation| run(&map, memory, operation),
            |memory, operation| run(&map, memory, operation),
            |memory| entries(memory, &map),
        );
        let buckets = map.buckets(&mut memory.clone()).unwrap();
        assert!(buckets > 20, "only {buckets} buckets");
    }
}

/// Keys that stay are seen once by each walk, whatever is split and merged meanwhile.
#[test]
fn a_map_shrinks_inside_other_operations() {
    let random = Random::seeded("shrinking hash map interleaved", 24);
    for map in 0..12 {
        let memory = plain();
        let (map, random) =
            (make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory.clone(), 20, 120, true).0, random.split(map));
        let mut first = Model::new();
        for key in 0..120 {
            map.insert(&mut memory.clone(), &key, [key; 3]).unwrap();
            first.insert(key, [key; 3]);
        }
        let (most, least) = (map.buckets(&mut memory.clone()).unwrap(), Cell::new(u64::MAX));
        interleave(
            1000,
            8,
            &memory,
            random.split(1),
            first,
            |random| {
                let key = if random.below(2) == 0 { random.below(120) } else { random.below(6) };
                let value = random.next();
                match random.below(8) {
                    0 | 1 => Operation::Get(key),
                    2 => Operation::Insert(key, value),
                    _ => Operation::Remove(key),
                }
            },
            expected,
            |memory, operation| run(&map, memory, operation),
            |memory, operation| run(&map, memory, operation),
            |memory| {
                least.set(least.get().min(map.buckets(memory).unwrap()));
                entries(memory, &map)
            },
        );
        assert!(least.get() * 2 < most, "{most} buckets became {}", least.get());
    }
}

#[test]
fn a_walk_sees_what_stays_once_while_the_map_shrinks_and_grows() {
    let mut random = Random::seeded("walks of a shrinking hash map", 25);
    let mut memory = plain();
    let (map, _heap) = make_either::<u64, u64, VersionLatch, _>(&mut memory, 40, 100, true);
    let mut seen = Vec::new();
    for round in 0..40u64 {
        // Those below 100 stay. A walk over as many as there were, from many to few or back.
        let many: Vec<u64> = (0..3000).collect();
        let change = |memory: &mut PlainMemory, fill: bool| {
            for key in many.iter().skip(100) {
                if fill { map.insert(memory, key, *key).map(drop) } else { map.remove(memory, key).map(drop) }.unwrap();
            }
        };
        for key in &many[..100] {
            map.insert(&mut memory, key, *key).unwrap();
        }
        change(&mut memory, round % 2 == 0);
        seen.clear();
        let (mut other, mut at) = (memory.clone(), random.below(100u64));
        map.for_each(&mut memory, |key, _| {
            seen.push(*key);
            at = at.saturating_sub(1);
            if at == 0 {
                at = u64::MAX;
                change(&mut other, round % 2 == 1);
            }
        })
        .unwrap();
        let mut stayed: Vec<u64> = seen.iter().copied().filter(|key| *key < 100).collect();
        stayed.sort_unstable();
        assert_eq!(stayed, many[..100], "round {round}");
    }
}

#[test]
fn a_map_shrinks_among_failed_accesses() {
    let mut random = Random::seeded("shrinking hash map faults", 26);
    let mut memory = FaultyMemory::new();
    let (map, heap) = make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 60, 1000, true);
    let (mut model, mut failures) = (Model::new(), 0);
    let (mut most, mut least) = (0, u64::MAX);
    for step in 0..24_000 {
        let (key, value) = (random.below(1000), [random.next(); 3]);
        memory.fail_after(random.below(60), errors()[step % 3]);
        let removes = random.below(16) < if step / 6000 % 2 == 0 { 1 } else { 15 };
        failures += u64::from(change_or_fail(&mut memory, &map, &mut model, (key, value), removes));
        if step % 200 == 0 {
            same(&mut memory, &map, &model);
            heap.check(&mut memory).unwrap();
            let buckets = map.buckets(&mut memory).unwrap();
            (most, least) = (most.max(buckets), if step > 6000 { least.min(buckets) } else { least });
        }
    }
    same(&mut memory, &map, &model);
    assert!(failures > 500 && least * 3 < most, "{failures} failures, {most} buckets became {least}");
    for key in model.drain().map(|(key, _)| key).collect::<Vec<_>>() {
        map.remove(&mut memory, &key).unwrap();
    }
    assert_eq!((map.check(&mut memory), map.buckets(&mut memory)), (Ok(0), Ok(1)));
    // A later run goes on with it.
    let again = HashMap::<u64, [u64; 3], VersionLatch>::open(map.root(), heap, 4).unwrap();
    for key in 0..2000 {
        again.insert(&mut memory, &key, [key; 3]).unwrap();
    }
    assert_eq!(again.check(&mut memory), Ok(2000));
}

/// A map that was not saved may believe that it has far fewer entries, or more.
#[test]
fn a_map_with_a_wrong_count_keeps_short_chains() {
    let mut memory = plain();
    let (map, heap) = make_either::<u64, u64, VersionLatch, _>(&mut memory, 100, 20_000, true);
    for key in 0..10_000 {
        map.insert(&mut memory, &key, key).unwrap();
    }
    for key in 3000..10_000 {
        map.remove(&mut memory, &key).unwrap();
    }
    map.save(&mut memory).unwrap();
    // No bucket is split or merged by these.
    for key in 3000..5500 {
        map.insert(&mut memory, &key, key).unwrap();
    }
    let map = HashMap::<u64, u64, VersionLatch>::open(map.root(), heap, 16).unwrap();
    for key in 0..3000 {
        map.remove(&mut memory, &key).unwrap();
    }
    let buckets = map.buckets(&mut memory).unwrap();
    assert!(buckets > 100, "2,500 entries in {buckets} buckets");
    assert_eq!(map.check(&mut memory), Ok(2500));
}

#[test]
fn a_remove_from_a_map_that_shrinks_makes_few_accesses() {
    let mut memory = FaultyMemory::new();
    let (map, _heap) = make_either::<u64, u64, VersionLatch, _>(&mut memory, 400, 1000, true);
    for key in 0..50_000 {
        map.insert(&mut memory, &key, key).unwrap();
    }
    let mut most = 0;
    for key in 0..50_000 {
        let before = memory.accesses;
        map.remove(&mut memory, &key).unwrap();
        most = most.max(memory.accesses - before);
    }
    assert!(most < 100, "a remove made {most} accesses");
    assert_eq!(map.buckets(&mut memory), Ok(1));
}

#[test]
fn a_map_grows_among_failed_accesses() {
    let mut random = Random::seeded("growing hash map faults", 23);
    let mut memory = FaultyMemory::new();
    let (map, heap) = make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 20, 8000, true);
    let (mut model, mut failures) = (Model::new(), 0);
    for step in 0..6000 {
        let (key, value) = (random.below(3000), [random.next(); 3]);
        memory.fail_after(random.below(24), errors()[step % 3]);
        let removes = random.below(8) == 0;
        failures += u64::from(change_or_fail(&mut memory, &map, &mut model, (key, value), removes));
        if step % 100 == 0 {
            same(&mut memory, &map, &model);
            heap.check(&mut memory).unwrap();
        }
    }
    same(&mut memory, &map, &model);
    let buckets = map.buckets(&mut memory).unwrap();
    assert!(failures > 500 && buckets > 100, "{failures} failures, {buckets} buckets");
    // A later run goes on with it.
    let again = HashMap::<u64, [u64; 3], VersionLatch>::open(map.root(), heap.clone(), 4).unwrap();
    for key in 10_000..12_000 {
        again.insert(&mut memory, &key, [key; 3]).unwrap();
        model.insert(key, [key; 3]);
    }
    same(&mut memory, &again, &model);
    assert!(again.buckets(&mut memory).unwrap() > buckets);
}

#[test]
fn an_insert_into_a_map_that_grows_makes_few_accesses() {
    let mut memory = FaultyMemory::new();
    let (map, _heap) = make_either::<u64, u64, VersionLatch, _>(&mut memory, 400, 100_000, true);
    let mut most = 0;
    for key in 0..100_000 {
        let before = memory.accesses;
        map.insert(&mut memory, &key, key).unwrap();
        most = most.max(memory.accesses - before);
    }
    assert!(most < 60, "an insert made {most} accesses");
    let buckets = map.buckets(&mut memory).unwrap();
    assert!(buckets > 15_000, "{buckets} buckets");
    assert_eq!(map.check(&mut memory), Ok(100_000));
}
