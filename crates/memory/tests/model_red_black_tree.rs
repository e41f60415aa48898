//! Goal: the tree in flash behaves as `BTreeMap`, keeps the red-black rules after every operation,
//! also when an access fails in its middle, and never pins more than it says; threads see whole
//! values and lose none. Method: random operations, and orders that are hard for balancing, against
//! `BTreeMap`; every access of every operation made to fail in turn; four threads that insert,
//! remove, change and scan; trees built at once, then changed.

use crate::{common, maps};

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use common::{FaultyMemory, Random, plain};
use fulgurite_memory::{
    AccessError, Address, Heap, Layout, Memory, PAGE_BYTES, Plain, PlainMemory, RedBlackTree, Region, VersionLatch,
};
use maps::{Found, Map, Plan};

const PAGE: u64 = PAGE_BYTES as u64;

fn heap_of<M: Memory>(memory: &mut M, pages: u64) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(PAGE), pages * PAGE)).unwrap())
}

impl<K, V> Map for RedBlackTree<K, V, VersionLatch>
where
    K: Plain + Ord + std::fmt::Debug + Send + Sync,
    V: Plain + PartialEq + std::fmt::Debug + Send + Sync,
{
    type Key = K;
    type Value = V;
    const SCANNED: usize = 3;
    const CHECKED: bool = true;
    const PINS: u64 = Self::PINS as u64;

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
    fn scan<M: Memory>(&self, memory: &mut M, from: &K, limit: usize) -> Result<Vec<(K, V)>, AccessError> {
        let mut all = Vec::new();
        self.range(memory, *from.., |&key, &value| {
            all.push((key, value));
            all.len() < limit
        })?;
        Ok(all)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> u64 {
        self.check(memory).unwrap()
    }
}

fn same<K, V>(memory: &mut PlainMemory, tree: &RedBlackTree<K, V, VersionLatch>, model: &BTreeMap<K, V>, first: K)
where
    K: Plain + Ord + std::fmt::Debug + Send + Sync,
    V: Plain + PartialEq + std::fmt::Debug + Send + Sync,
{
    maps::assert_same(tree, memory, &first, model);
    assert_eq!(tree.first(memory), Ok(model.first_key_value().map(|(&key, &value)| (key, value))));
}

fn random_operations<K, V>(what: &str, keys: u64, key: impl Fn(u64) -> K + Sync, value: impl Fn(u64) -> V + Sync)
where
    K: Plain + Ord + std::fmt::Debug + Send + Sync,
    V: Plain + PartialEq + std::fmt::Debug + Send + Sync,
{
    let mut memory = plain();
    let heap = heap_of(&mut memory, 40);
    let tree = RedBlackTree::<K, V, VersionLatch>::create(&mut memory, heap.clone(), 4).unwrap();
    let random = Random::seeded(what, keys);
    let plan = Plan { random, first: key(0), key: &key, value: &value, keys, steps: 5000 };
    maps::agrees_with_a_model(tree, &mut memory, plan, Some(&heap), |_, tree| {
        RedBlackTree::open(tree.root(), heap.clone(), 1).unwrap()
    });
    assert_eq!(heap.used_bytes(), 8, "only the cell is left");
}

#[test]
fn ranges_have_bounds_of_all_kinds() {
    let mut random = Random::seeded("red-black ranges", 4);
    let mut memory = plain();
    let heap = heap_of(&mut memory, 40);
    let tree = RedBlackTree::<u64, u64, VersionLatch>::create(&mut memory, heap, 4).unwrap();
    let model: BTreeMap<u64, u64> = (0..120).map(|n| (n * 2, n)).collect();
    model.iter().for_each(|(key, &value)| assert_eq!(tree.insert(&mut memory, key, value), Ok(None)));
    same(&mut memory, &tree, &model, 0);
    for _ in 0..500 {
        let (k, other) = (random.below(250_u64), random.below(250));
        let (low, high) = (k.min(other), k.max(other));
        for bounds in [
            (Bound::Included(low), Bound::Included(high)),
            (Bound::Excluded(low), Bound::Unbounded),
            (Bound::Unbounded, Bound::Excluded(high)),
        ] {
            let mut all = model.range(bounds);
            let limit = random.below(40_u64);
            let mut left = limit;
            let calls = tree.range(&mut memory, bounds, |key, value| {
                assert_eq!(all.next(), Some((key, value)));
                left = left.saturating_sub(1);
                left > 0
            });
            assert_eq!(calls, Ok((model.range(bounds).count() as u64).min(limit.max(1))));
        }
    }
}

#[test]
fn random_operations_on_keys_and_values_of_several_sizes() {
    for keys in [1, 2, 3, 10, 120] {
        random_operations("u64 -> u64", keys, |n| n, |n| n);
        random_operations("i32 -> [u8; 3]", keys, |n| n as i32 - 50, |n| [n as u8; 3]);
        random_operations("[u8; 5] -> [u64; 9]", keys, |n| [0, n as u8, 0, 0, 1], |n| [n; 9]);
    }
    random_operations("u64 -> ()", 50, |n| n, |_| ());
    random_operations("u64 -> [u64; 509]", 30, |n| n, |n| [n; 509]);
}

#[test]
fn orders_that_are_hard_for_balancing_and_how_many_pins_they_take() {
    const COUNT: u64 = 3000;
    let mut random = Random::seeded("red-black orders", 3);
    let mut shuffled: Vec<u64> = (0..COUNT).collect();
    for i in (1..COUNT).rev() {
        shuffled.swap(i as usize, random.below(i + 1) as usize);
    }
    let ascending: Vec<u64> = (0..COUNT).collect();
    let descending: Vec<u64> = (0..COUNT).rev().collect();
    let inward: Vec<u64> = (0..COUNT / 2).flat_map(|i| [i, COUNT - 1 - i]).collect();
    let orders = [&ascending, &descending, &inward, &shuffled];
    let mut pins_most = 0;
    for insert in orders {
        for remove in orders {
            let mut memory = FaultyMemory::new();
            let heap = heap_of(&mut memory, 40);
            let tree = RedBlackTree::<u64, [u64; 2], VersionLatch>::create(&mut memory, heap, 4).unwrap();
            for (n, key) in insert.iter().enumerate() {
                tree.insert(&mut memory, key, [*key; 2]).unwrap();
                pins_most = pins_most.max(memory.take_most_pins());
                if n % 300 == 0 {
                    assert_eq!(tree.check(&mut memory), Ok(n as u64 + 1));
                }
            }
            for (n, key) in remove.iter().enumerate() {
                assert_eq!(tree.remove(&mut memory, key), Ok(Some([*key; 2])));
                pins_most = pins_most.max(memory.take_most_pins());
                if n % 300 == 0 {
                    assert_eq!(tree.check(&mut memory), Ok(COUNT - n as u64 - 1));
                }
            }
        }
    }
    println!("most pins at once: {pins_most}");
    assert!(pins_most <= u64::from(RedBlackTree::<u64, [u64; 2], VersionLatch>::PINS), "{pins_most}");
}

/// Numbers are keys.
fn plan<const PARTS: usize>(what: &str, seed: u64, keys: u64, steps: u64) -> Plan<'static, Tree<PARTS>> {
    Plan { random: Random::seeded(what, seed), first: 0, key: &|n| n, value: &|n| [n; PARTS], keys, steps }
}

type Tree<const PARTS: usize> = RedBlackTree<u64, [u64; PARTS], VersionLatch>;

#[test]
fn every_access_may_fail() {
    let mut memory = FaultyMemory::new();
    let heap = heap_of(&mut memory, 8);
    let tree = Tree::<40>::create(&mut memory, heap.clone(), 4).unwrap();
    maps::survives_failed_accesses(&tree, &mut memory, plan("red-black faults", 11, 90, 700), 2000);
    heap.check(&mut memory).unwrap();
    assert_eq!(heap.used_bytes(), 8, "failed operations leak nothing");
}

#[test]
fn threads_lose_nothing_and_see_whole_values() {
    let mut memory = plain();
    let heap = heap_of(&mut memory, 40);
    let tree = Tree::<4>::create(&mut memory, heap.clone(), 2).unwrap();
    let count = |value: &[u64; 4]| {
        assert!(value.iter().all(|&part| part == value[0]), "torn: {value:?}");
        value[0]
    };
    let add = |value: &mut [u64; 4]| value.iter_mut().for_each(|part| *part += 1);
    maps::serves_threads(&tree, &memory, &plan("red-black threads", 5, 40, 2500), add, count);
    heap.check(&mut memory).unwrap();
}

#[test]
fn trees_built_at_once() {
    for layout in [Layout::Clustered, Layout::Scattered { seed: 4 }] {
        for count in (0..20u64).chain([31, 32, 33, 1000]) {
            let mut memory = plain();
            let heap = heap_of(&mut memory, 20);
            let entries = (0..count).map(|n| (n * 3, n));
            let tree = RedBlackTree::<u64, u64, VersionLatch>::bulk(
                &mut memory,
                heap.clone(),
                1,
                count,
                entries.clone(),
                layout,
            )
            .unwrap();
            let mut model: BTreeMap<u64, u64> = entries.collect();
            same(&mut memory, &tree, &model, 0);
            for key in 0..count * 2 {
                assert_eq!(tree.insert(&mut memory, &key, key), Ok(model.insert(key, key)));
                assert_eq!(tree.remove(&mut memory, &(key * 2)), Ok(model.remove(&(key * 2))));
            }
            same(&mut memory, &tree, &model, 0);
            heap.check(&mut memory).unwrap();
            while let Some((key, value)) = model.pop_first() {
                assert_eq!(tree.remove(&mut memory, &key), Ok(Some(value)));
            }
            assert_eq!(heap.used_bytes(), 8);
        }
    }
}

#[test]
fn wrong_use_is_refused_and_leaks_nothing() {
    let mut memory = plain();
    let heap = heap_of(&mut memory, 1);
    type Tree = RedBlackTree<u64, u64, VersionLatch>;
    let mut bulk = |count, keys: &[u64]| {
        let entries = keys.iter().map(|&key| (key, key));
        Tree::bulk(&mut memory, heap.clone(), 1, count, entries, Layout::default()).map(|_| ())
    };
    for (count, keys) in [(3, &[1, 2][..]), (2, &[1, 2, 3]), (3, &[1, 3, 2]), (2, &[1, 1])] {
        assert!(matches!(bulk(count, keys), Err(AccessError::Corrupt { .. })), "{keys:?}");
    }
    assert!(matches!(bulk(1 << 40, &[]), Err(AccessError::NoSpace { .. })));
    heap.check(&mut memory).unwrap();
    assert_eq!(heap.used_bytes(), 0);

    let tree = Tree::create(&mut memory, heap.clone(), 1).unwrap();
    assert!(RedBlackTree::<u64, u32, VersionLatch>::open(tree.root(), heap.clone(), 1).is_err());
    let full = (0..).find(|key| tree.insert(&mut memory, key, 0).is_err()).unwrap();
    assert!(matches!(tree.insert(&mut memory, &full, 0), Err(AccessError::NoSpace { .. })));
    assert_eq!(tree.check(&mut memory), Ok(full));
    assert_eq!(tree.insert(&mut memory, &0, 9), Ok(Some(0)), "what needs no new node still works");
    assert_eq!(tree.remove(&mut memory, &1), Ok(Some(0)));
    assert_eq!(tree.insert(&mut memory, &full, 0), Ok(None));
    assert_eq!(tree.check(&mut memory), Ok(full));
}

#[test]
fn another_fiber_may_run_at_any_access() {
    let mut memory = plain();
    let heap = heap_of(&mut memory, 4);
    let tree = Tree::<3>::create(&mut memory, heap, 1).unwrap();
    maps::lets_others_run(&tree, &memory, &plan("red-black interleaved", 22, 40, 8000), 16, (3, 1), |_| ());
}
