//! Goal: the tree in flash behaves as `BTreeMap`, keeps the red-black rules after every operation,
//! also when an access fails in its middle, and never pins more than it says; threads see whole
//! values and lose none. Method: random operations, and orders that are hard for balancing, against
//! `BTreeMap`; every access of every operation made to fail in turn; four threads that insert,
//! remove, change and scan; trees built at once, then changed.

use crate::common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use common::{FaultyMemory, Random, errors, interleave, plain};
use fulgurite_memory::{
    AccessError, Address, Heap, Latch, Layout, Memory, NoLatch, PAGE_BYTES, Plain, RedBlackTree, Region, VersionLatch,
};

const PAGE: u64 = PAGE_BYTES as u64;

fn heap_of<M: Memory>(memory: &mut M, pages: u64) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(PAGE), pages * PAGE)).unwrap())
}

fn same<K, V, L, M>(memory: &mut M, tree: &RedBlackTree<K, V, L>, model: &BTreeMap<K, V>)
where
    K: Plain + Ord + std::fmt::Debug,
    V: Plain + PartialEq + std::fmt::Debug,
    L: Latch,
    M: Memory,
{
    assert_eq!(tree.check(memory), Ok(model.len() as u64));
    let mut all = model.iter();
    tree.range(memory, .., |key, value| {
        assert_eq!(all.next(), Some((key, value)));
        true
    })
    .unwrap();
    assert_eq!(all.next(), None);
    assert_eq!(tree.first(memory), Ok(model.first_key_value().map(|(&key, &value)| (key, value))));
}

fn random_operations<K, V>(what: &str, keys: u64, key: impl Fn(u64) -> K, value: impl Fn(u64) -> V)
where
    K: Plain + Ord + std::fmt::Debug,
    V: Plain + PartialEq + std::fmt::Debug,
{
    let mut random = Random::seeded(what, keys);
    let mut memory = plain();
    let heap = heap_of(&mut memory, 40);
    let mut tree = RedBlackTree::<K, V, VersionLatch>::create(&mut memory, heap.clone(), 4).unwrap();
    let mut model = BTreeMap::new();
    for step in 0..5000 {
        let (k, v) = (key(random.below(keys)), value(random.next()));
        let growing = step / 1000 % 2 == 0;
        match random.below(10) {
            0..=4 if growing => assert_eq!(tree.insert(&mut memory, &k, v), Ok(model.insert(k, v))),
            0..=4 => assert_eq!(tree.remove(&mut memory, &k), Ok(model.remove(&k))),
            5 => assert_eq!(tree.insert(&mut memory, &k, v), Ok(model.insert(k, v))),
            6 => assert_eq!(tree.remove(&mut memory, &k), Ok(model.remove(&k))),
            7 => {
                let old = tree.update(&mut memory, &k, |now| std::mem::replace(now, v)).unwrap();
                assert_eq!(old, model.get_mut(&k).map(|now| std::mem::replace(now, v)));
            }
            8 => {
                let other = key(random.below(keys));
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
            _ => assert_eq!(tree.get(&mut memory, &k), Ok(model.get(&k).copied())),
        }
        assert_eq!(tree.check(&mut memory), Ok(model.len() as u64), "step {step}");
        if step % 500 == 0 {
            same(&mut memory, &tree, &model);
            heap.check(&mut memory).unwrap();
            tree = RedBlackTree::open(tree.root(), heap.clone(), 1).unwrap();
        }
    }
    while let Some((k, v)) = model.pop_first() {
        assert_eq!(tree.remove(&mut memory, &k), Ok(Some(v)));
    }
    same(&mut memory, &tree, &model);
    assert_eq!(heap.used_bytes(), 8, "only the cell is left");
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

#[test]
fn every_access_may_fail() {
    let mut random = Random::seeded("red-black faults", 11);
    let mut memory = FaultyMemory::new();
    let heap = heap_of(&mut memory, 8);
    let tree = RedBlackTree::<u64, [u64; 40], VersionLatch>::create(&mut memory, heap.clone(), 4).unwrap();
    let mut model = BTreeMap::new();
    let mut failures = 0;
    for step in 0..700u64 {
        let (key, value) = (random.below(90), [random.next(); 40]);
        let operation = random.below(5);
        for fail_at in 0.. {
            let error = errors()[(step % 3) as usize];
            memory.fail_after(fail_at, error);
            let result = match operation {
                0 | 1 => tree.insert(&mut memory, &key, value),
                2 | 3 => tree.remove(&mut memory, &key),
                _ => tree.update(&mut memory, &key, |now| std::mem::replace(now, value)),
            };
            let met = !memory.heal();
            match result {
                Err(got) => {
                    assert!(met && got == error, "{got}");
                    failures += 1;
                    assert_eq!(tree.check(&mut memory), Ok(model.len() as u64));
                    assert_eq!(tree.get(&mut memory, &key), Ok(model.get(&key).copied()));
                }
                Ok(old) => {
                    let want = match operation {
                        0 | 1 => model.insert(key, value),
                        2 | 3 => model.remove(&key),
                        _ => model.get_mut(&key).map(|now| std::mem::replace(now, value)),
                    };
                    assert_eq!(old, want);
                    break;
                }
            }
        }
        if step % 50 == 0 {
            same(&mut memory, &tree, &model);
            heap.check(&mut memory).unwrap();
        }
    }
    assert!(failures > 2000, "only {failures} failures");
    for key in 0..90 {
        tree.remove(&mut memory, &key).unwrap();
    }
    assert_eq!(heap.used_bytes(), 8, "failed operations leak nothing");
}

#[test]
fn threads_lose_nothing_and_see_whole_values() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2500;
    let memory = plain();
    let heap = heap_of(&mut memory.clone(), 40);
    let tree = RedBlackTree::<u64, [u64; 4], VersionLatch>::create(&mut memory.clone(), heap.clone(), 2).unwrap();
    for shared in 0..8u64 {
        tree.insert(&mut memory.clone(), &(shared * 100), [0; 4]).unwrap();
    }
    let random = Random::seeded("red-black threads", 5);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (mut memory, mut random, tree) = (memory.clone(), random.split(thread), &tree);
            scope.spawn(move || {
                let mut mine = BTreeMap::new();
                for round in 0..ROUNDS {
                    let shared = random.below(8) * 100;
                    tree.update(&mut memory, &shared, |value| value.iter_mut().for_each(|part| *part += 1))
                        .unwrap()
                        .expect("nobody removes these");
                    let seen = tree.get(&mut memory, &(random.below(8) * 100)).unwrap().expect("nobody removes these");
                    assert!(seen.iter().all(|&part| part == seen[0]), "torn: {seen:?}");
                    let key = random.below(8) * 100 + 1 + random.below(5) * THREADS + thread;
                    if random.below(2) == 0 {
                        let value = [round; 4];
                        assert_eq!(tree.insert(&mut memory, &key, value), Ok(mine.insert(key, value)));
                    } else {
                        assert_eq!(tree.remove(&mut memory, &key), Ok(mine.remove(&key)));
                    }
                    if round % 50 == 0 {
                        let (mut last, mut permanent) = (None, 0);
                        tree.range(&mut memory, .., |&key, value| {
                            assert!(last.is_none_or(|last| last < key));
                            assert!(value.iter().all(|&part| part == value[0]), "torn: {value:?}");
                            last = Some(key);
                            permanent += u64::from(key % 100 == 0);
                            true
                        })
                        .unwrap();
                        assert_eq!(permanent, 8);
                    }
                }
                for (key, value) in mine {
                    assert_eq!(tree.remove(&mut memory, &key), Ok(Some(value)));
                }
            });
        }
    });
    let mut memory = memory;
    assert_eq!(tree.check(&mut memory), Ok(8));
    let mut sum = 0;
    tree.range(&mut memory, .., |_, value| {
        sum += value[0];
        true
    })
    .unwrap();
    assert_eq!(sum, THREADS * ROUNDS);
    heap.check(&mut memory).unwrap();
}

#[test]
fn trees_built_at_once() {
    for layout in [Layout::Clustered, Layout::Scattered { seed: 4 }] {
        for count in (0..20u64).chain([31, 32, 33, 1000]) {
            let mut memory = plain();
            let heap = heap_of(&mut memory, 20);
            let entries = (0..count).map(|n| (n * 3, n));
            let tree =
                RedBlackTree::<u64, u64, NoLatch>::bulk(&mut memory, heap.clone(), 1, count, entries.clone(), layout)
                    .unwrap();
            let mut model: BTreeMap<u64, u64> = entries.collect();
            same(&mut memory, &tree, &model);
            for key in 0..count * 2 {
                assert_eq!(tree.insert(&mut memory, &key, key), Ok(model.insert(key, key)));
                assert_eq!(tree.remove(&mut memory, &(key * 2)), Ok(model.remove(&(key * 2))));
            }
            same(&mut memory, &tree, &model);
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

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    Update(u64, u64),
    /// The third entry from here on.
    Scan(u64),
}

type Tree = RedBlackTree<u64, [u64; 3], VersionLatch>;

fn run<M: Memory>(tree: &Tree, memory: &mut M, operation: Operation) -> Result<Option<[u64; 3]>, AccessError> {
    match operation {
        Operation::Get(key) => tree.get(memory, &key),
        Operation::Insert(key, value) => tree.insert(memory, &key, [value; 3]),
        Operation::Remove(key) => tree.remove(memory, &key),
        Operation::Update(key, value) => tree.update(memory, &key, |now| std::mem::replace(now, [value; 3])),
        Operation::Scan(key) => {
            let (mut left, mut third) = (3, None);
            tree.range(memory, key.., |_, &value| {
                left -= 1;
                if left == 0 {
                    third = Some(value);
                }
                left > 0
            })?;
            Ok(third)
        }
    }
}

#[test]
fn another_fiber_may_run_at_any_access() {
    let memory = plain();
    let heap = heap_of(&mut memory.clone(), 4);
    let tree = Tree::create(&mut memory.clone(), heap, 1).unwrap();
    interleave(
        8000,
        16,
        &memory,
        Random::seeded("red-black interleaved", 22),
        BTreeMap::new(),
        |random| {
            let (key, value) = (random.below(40), random.next());
            match random.below(6) {
                0 => Operation::Get(key),
                1 | 2 => Operation::Insert(key, value),
                3 => Operation::Remove(key),
                4 => Operation::Update(key, value),
                _ => Operation::Scan(key),
            }
        },
        |model: &mut BTreeMap<u64, [u64; 3]>, operation| match operation {
            Operation::Get(key) => model.get(&key).copied(),
            Operation::Insert(key, value) => model.insert(key, [value; 3]),
            Operation::Remove(key) => model.remove(&key),
            Operation::Update(key, value) => model.get_mut(&key).map(|now| std::mem::replace(now, [value; 3])),
            Operation::Scan(key) => model.range(key..).nth(2).map(|(_, &value)| value),
        },
        |memory, operation| run(&tree, memory, operation),
        |memory, operation| run(&tree, memory, operation),
        |memory| {
            tree.check(memory).unwrap();
            let mut all = BTreeMap::new();
            tree.range(memory, .., |&key, &value| all.insert(key, value).is_none()).unwrap();
            all
        },
    );
}
