//! Goal: the tree in flash behaves as `BTreeMap`, keeps the red-black rules after every operation,
//! also when an access fails in its middle, and never pins more than it says; threads see whole
//! values and lose none. What it writes, it writes in a write section. Method: the suite of the
//! containers in `crates/memory`: random operations, and orders that are hard for balancing,
//! against `BTreeMap`; every access of every operation made to fail in turn; four threads that
//! insert, remove and change; trees built at once, then changed; a memory that is not written
//! outside of a section.

#[expect(dead_code, reason = "some of it is for other containers")]
#[path = "../../memory/tests/common/mod.rs"]
mod common;
#[path = "../../memory/tests/maps/mod.rs"]
mod maps;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{FaultyMemory, Random, Strict, plain};
use fulgurite_memory::{
    AccessError, Address, Heap, Layout, Memory, NoLatch, PAGE_BYTES, Plain, Ptr, RawMemory, Region, VersionLatch,
};
use fulgurite_workloads::RedBlackTree;
use maps::{Found, Map, Plan, Scanned, assert_same};

const PAGE: u64 = PAGE_BYTES as u64;

fn heap_of<M: Memory>(memory: &mut M, pages: u64) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(PAGE), pages * PAGE)).unwrap())
}

impl<V: Plain + PartialEq + std::fmt::Debug + Send + Sync> Map for RedBlackTree<V, VersionLatch> {
    type Key = u64;
    type Value = V;
    const ORDERED: bool = false;
    const CHECKED: bool = true;
    const PINS: u64 = Self::PINS as u64;

    fn get<M: Memory>(&self, memory: &mut M, key: &u64) -> Found<V> {
        self.get(memory, *key)
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: &u64, value: V) -> Found<V> {
        self.insert(memory, *key, value)
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: &u64) -> Found<V> {
        self.remove(memory, *key)
    }
    fn update<M: Memory>(&self, memory: &mut M, key: &u64, mut change: impl FnMut(&mut V)) -> Found<V> {
        self.update(memory, *key, |value| {
            let old = *value;
            change(value);
            old
        })
    }
    fn scan<M: Memory>(&self, memory: &mut M, _: &u64, _: usize) -> Scanned<u64, V> {
        let mut all = Vec::new();
        self.check(memory, |key, value| all.push((key, value)))?;
        Ok(all)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> u64 {
        self.check(memory, |_, _| ()).unwrap()
    }
}

fn random_operations<V>(what: &str, keys: u64, value: impl Fn(u64) -> V + Sync)
where
    V: Plain + PartialEq + std::fmt::Debug + Send + Sync,
{
    let mut memory = plain();
    let heap = heap_of(&mut memory, 40);
    let tree = RedBlackTree::<V, VersionLatch>::create(&mut memory, heap.clone(), 4).unwrap();
    let random = Random::seeded(what, keys);
    let plan = Plan { random, first: 0, key: &|n| n, value: &value, keys, steps: 5000 };
    maps::agrees_with_a_model(tree, &mut memory, plan, Some(&heap), |_, tree| {
        RedBlackTree::open(tree.cell(), heap.clone(), 1).unwrap()
    });
    assert_eq!(heap.used_bytes(), 8, "only the cell is left");
}

#[test]
fn random_operations_on_values_of_several_sizes() {
    for keys in [1, 2, 3, 10, 120] {
        random_operations("u64 -> u64", keys, |n| n);
        random_operations("u64 -> [u8; 3]", keys, |n| [n as u8; 3]);
        random_operations("u64 -> [u64; 9]", keys, |n| [n; 9]);
    }
    random_operations("u64 -> ()", 50, |_| ());
    random_operations("u64 -> [u64; 509]", 30, |n| [n; 509]);
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
            let tree = RedBlackTree::<[u64; 2], VersionLatch>::create(&mut memory, heap, 4).unwrap();
            for (n, key) in insert.iter().enumerate() {
                tree.insert(&mut memory, *key, [*key; 2]).unwrap();
                pins_most = pins_most.max(memory.take_most_pins());
                if n % 300 == 0 {
                    assert_eq!(Map::check(&tree, &mut memory), n as u64 + 1);
                }
            }
            for (n, key) in remove.iter().enumerate() {
                assert_eq!(tree.remove(&mut memory, *key), Ok(Some([*key; 2])));
                pins_most = pins_most.max(memory.take_most_pins());
                if n % 300 == 0 {
                    assert_eq!(Map::check(&tree, &mut memory), COUNT - n as u64 - 1);
                }
            }
        }
    }
    println!("most pins at once: {pins_most}");
    assert!(pins_most <= u64::from(RedBlackTree::<[u64; 2], VersionLatch>::PINS), "{pins_most}");
}

/// Numbers are keys.
fn plan<const PARTS: usize>(what: &str, seed: u64, keys: u64, steps: u64) -> Plan<'static, Tree<PARTS>> {
    Plan { random: Random::seeded(what, seed), first: 0, key: &|n| n, value: &|n| [n; PARTS], keys, steps }
}

type Tree<const PARTS: usize> = RedBlackTree<[u64; PARTS], VersionLatch>;

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
            let entry = |n| (n * 3, n);
            let tree =
                RedBlackTree::<u64, VersionLatch>::bulk(&mut memory, heap.clone(), count, layout, entry).unwrap();
            let mut model: BTreeMap<u64, u64> = (0..count).map(entry).collect();
            assert_same(&tree, &mut memory, &0, &model);
            for key in 0..count * 2 {
                assert_eq!(tree.insert(&mut memory, key, key), Ok(model.insert(key, key)));
                assert_eq!(tree.remove(&mut memory, key * 2), Ok(model.remove(&(key * 2))));
            }
            assert_same(&tree, &mut memory, &0, &model);
            heap.check(&mut memory).unwrap();
            while let Some((key, value)) = model.pop_first() {
                assert_eq!(tree.remove(&mut memory, key), Ok(Some(value)));
            }
            assert_eq!(heap.used_bytes(), 8);
        }
    }
}

#[test]
fn wrong_use_is_refused_and_leaks_nothing() {
    let mut memory = plain();
    let heap = heap_of(&mut memory, 1);
    type Tree = RedBlackTree<u64, VersionLatch>;
    let large = Tree::bulk(&mut memory, heap.clone(), 1 << 40, Layout::default(), |n| (n, n));
    assert!(matches!(large, Err(AccessError::NoSpace { .. })));
    heap.check(&mut memory).unwrap();

    let tree = Tree::create(&mut memory, heap.clone(), 1).unwrap();
    let outside = [heap.region().base.add(PAGE), tree.cell().address().add(1), Address::NULL];
    assert!(outside.iter().all(|at| Tree::open(Ptr::new(*at), heap.clone(), 1).is_err()));
    let full = (0..).find(|key| tree.insert(&mut memory, *key, 0).is_err()).unwrap();
    assert!(matches!(tree.insert(&mut memory, full, 0), Err(AccessError::NoSpace { .. })));
    assert_eq!(Map::check(&tree, &mut memory), full);
    assert_eq!(tree.insert(&mut memory, 0, 9), Ok(Some(0)), "what needs no new node still works");
    assert_eq!(tree.remove(&mut memory, 1), Ok(Some(0)));
    assert_eq!(tree.insert(&mut memory, full, 0), Ok(None));
    assert_eq!(Map::check(&tree, &mut memory), full);
}

#[test]
fn it_is_written_in_sections_only() {
    let m = &mut Strict::new();
    let section = m.write_section().unwrap();
    let heap = heap_of(m, 40);
    let tree = RedBlackTree::<[u64; 2], NoLatch>::create(m, heap.clone(), 1).unwrap();
    drop(section);
    let mut random = Random::seeded("red-black sections", 1);
    for step in 0..20_000u64 {
        // Grows, then shrinks.
        let (key, add, begun) =
            (random.below(400), random.below(4_u64) < if step % 4000 < 2500 { 3 } else { 1 }, m.begun);
        match random.below(3_u64) {
            0 => _ = tree.update(m, key, |value| value[0] += 1).unwrap(),
            _ if add => _ = tree.insert(m, key, [step; 2]).unwrap(),
            _ => _ = tree.remove(m, key).unwrap(),
        }
        assert_eq!((m.open(), m.begun), (0, begun + 1), "an operation is one section");
    }
    tree.check(m, |_, _| ()).unwrap();
    heap.check(m).unwrap();
}

#[test]
fn another_fiber_may_run_at_any_access() {
    let mut memory = plain();
    let heap = heap_of(&mut memory, 4);
    let tree = Tree::<3>::create(&mut memory, heap, 1).unwrap();
    maps::lets_others_run(&tree, &memory, &plan("red-black interleaved", 22, 40, 8000), 16, (3, 1), |_| ());
}
