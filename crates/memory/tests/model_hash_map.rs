//! Goal: the map in flash behaves as `std`'s, whatever its capacity; an access that fails leaves it
//! as it was; threads see whole values and lose none. Method: random operations on few keys against
//! `std::collections::HashMap`; every access of every operation made to fail in turn; four threads
//! that add to counters; capacities of one and two, and a heap that runs full.

use crate::{common, maps};

use std::cell::Cell;
use std::collections::HashMap as Model;
use std::sync::Arc;

use common::{FaultyMemory, Random, change_or_fail, errors, plain, same};
use fulgurite_memory::{
    AccessError, Address, HashMap, Heap, KeyHash, Latch, Memory, NoLatch, PAGE_BYTES, Plain, PlainMemory, Region,
    VersionLatch,
};
use maps::{Found, Map, Plan};

const PAGE: u64 = PAGE_BYTES as u64;

/// A heap of `pages`, and the buckets behind it.
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

/// Such a map, growing or with all of its buckets.
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

impl<K, V> Map for HashMap<K, V, VersionLatch>
where
    K: KeyHash + Ord + std::fmt::Debug + Send + Sync,
    V: Plain + PartialEq + std::fmt::Debug + Send + Sync,
{
    type Key = K;
    type Value = V;
    const ORDERED: bool = false;

    fn get<M: Memory>(&self, memory: &mut M, key: &K) -> Found<V> {
        self.get(memory, key)
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: &K, value: V) -> Found<V> {
        self.insert(memory, key, value)
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: &K) -> Found<V> {
        self.remove(memory, key)
    }
    fn update<M: Memory>(&self, memory: &mut M, key: &K, mut change: impl FnMut(&mut V)) -> Found<V> {
        self.update(memory, key, |value| {
            let old = *value;
            change(value);
            old
        })
    }
    fn scan<M: Memory>(&self, memory: &mut M, _: &K, _: usize) -> Result<Vec<(K, V)>, AccessError> {
        let mut all = Vec::new();
        self.for_each(memory, |&key, &value| all.push((key, value)))?;
        Ok(all)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> u64 {
        self.check(memory).unwrap()
    }
}

fn random_operations<K, V>(
    what: &str,
    (capacity, grows): (u64, bool),
    key: impl Fn(u64) -> K + Sync,
    value: impl Fn(u64) -> V + Sync,
) where
    K: KeyHash + Ord + std::fmt::Debug + Send + Sync,
    V: Plain + PartialEq + std::fmt::Debug + Send + Sync,
{
    let mut memory = plain();
    let (map, heap) = make_either::<K, V, VersionLatch, _>(&mut memory, 40, capacity, grows);
    let random = Random::seeded(what, capacity);
    let plan = Plan { random, first: key(0), key: &key, value: &value, keys: 150, steps: 6000 };
    let map = maps::agrees_with_a_model(map, &mut memory, plan, Some(&heap), |memory, map| {
        for key in (0..150).map(&key) {
            assert_eq!(map.contains_key(memory, &key), map.get(memory, &key).map(|found| found.is_some()));
        }
        map.save(memory).unwrap();
        HashMap::open(map.root(), heap.clone(), 1).unwrap()
    });
    assert_eq!((map.len(&mut memory), map.contains_key(&mut memory, &key(0))), (Ok(0), Ok(false)));
    if grows {
        assert_eq!(map.buckets(&mut memory), Ok(1), "{what}: an empty map has one bucket");
    }
    assert_eq!(heap.used_bytes(), 0, "blocks without entries go back to the heap");
}

/// Numbers are keys.
fn plan<const PARTS: usize>(
    what: &str,
    seed: u64,
    keys: u64,
    steps: u64,
) -> Plan<'static, HashMap<u64, [u64; PARTS], VersionLatch>> {
    Plan { random: Random::seeded(what, seed), first: 0, key: &|n| n, value: &|n| [n; PARTS], keys, steps }
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
    for (capacity, grows) in [(1, false), (40, false), (40, true)] {
        let mut memory = FaultyMemory::new();
        let (map, heap) = make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 8, capacity, grows);
        maps::survives_failed_accesses(&map, &mut memory, plan("hash map faults", 7 + capacity, 60, 600), 1000);
        heap.check(&mut memory).unwrap();
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
    let mut memory = plain();
    let capacity = if grows { 60 } else { 6 };
    let (map, heap) = make_either::<u64, [u64; 4], VersionLatch, _>(&mut memory, 20, capacity, grows);
    let count = |value: &[u64; 4]| {
        assert!(value.iter().all(|&part| part == value[0]), "torn: {value:?}");
        value[0]
    };
    let add = |value: &mut [u64; 4]| value.iter_mut().for_each(|part| *part += 1);
    maps::serves_threads(&map, &memory, &plan("hash map threads", 5, 12, 4000), add, count);
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

#[test]
fn another_fiber_may_run_at_any_access() {
    for (capacity, grows) in [(1, false), (30, false), (30, true)] {
        let mut memory = plain();
        let (map, _heap) = make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 4, capacity, grows);
        maps::lets_others_run(&map, &memory, &plan("hash map interleaved", 21, 25, 6000), 4, (2, 2), |_| ());
    }
}

#[test]
fn a_map_grows_inside_other_operations() {
    let random = Random::seeded("growing hash map interleaved", 22);
    for map in 0..12 {
        let mut memory = plain();
        let (random, (map, _heap)) =
            (random.split(map), make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 9, 500, true));
        // Some are new, and some are the other operation's.
        let key = |n: u64| if n < 500 { n } else { n % 6 };
        let plan = Plan { random, key: &key, ..plan("growing hash map interleaved", 22, 1000, 1000) };
        maps::lets_others_run(&map, &memory, &plan, 8, (5, 1), |_| ());
        let buckets = map.buckets(&mut memory).unwrap();
        assert!(buckets > 20, "only {buckets} buckets");
    }
}

/// Keys that stay are seen once by each walk, whatever is split and merged meanwhile.
#[test]
fn a_map_shrinks_inside_other_operations() {
    let random = Random::seeded("shrinking hash map interleaved", 24);
    for map in 0..12 {
        let mut memory = plain();
        let (random, (map, _heap)) =
            (random.split(map), make_either::<u64, [u64; 3], VersionLatch, _>(&mut memory, 20, 120, true));
        for key in 0..120 {
            map.insert(&mut memory, &key, [key; 3]).unwrap();
        }
        let (most, least) = (map.buckets(&mut memory).unwrap(), Cell::new(u64::MAX));
        let key = |n: u64| if n < 120 { n } else { n % 6 };
        let plan = Plan { random, key: &key, ..plan("shrinking hash map interleaved", 24, 240, 1000) };
        maps::lets_others_run(&map, &memory, &plan, 8, (1, 5), |memory| {
            least.set(least.get().min(map.buckets(memory).unwrap()));
        });
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
