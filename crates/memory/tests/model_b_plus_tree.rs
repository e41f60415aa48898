//! Goal: the B+-tree is an ordered map, whatever its nodes' size, failures and other users. Method:
//! random operations beside a `BTreeMap`, with nodes of three keys so that splits, merges and the
//! root's growth and shrinking happen all the time, and keys at the ends of the range. Every access
//! of an operation fails in turn, after which the tree is what it was before. Threads use keys of
//! their own that share leaves, and keys they fight over.

use crate::common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{FaultyMemory, Random, interleave};
use fulgurite_memory::{
    AccessError, Address, BPlusTree, Heap, Latch, Memory, NoLatch, Plain, PlainMemory, Ptr, Region, VersionLatch,
};
use fulgurite_sys::Backed;

fn memory() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).unwrap()
}
fn heap(memory: &mut impl Memory) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(1 << 20), 1 << 30)).unwrap())
}

/// One of `space` keys, some of which lie at the ends of the range.
fn any_key(random: &mut Random, space: u64) -> u64 {
    match random.below(space) {
        k if k < 4 => k,
        k if k < 8 => u64::MAX - (k - 4),
        k => k.wrapping_mul(0x0123_4567_89AB_CDEF),
    }
}

fn contents<V: Plain, L: Latch, M: Memory>(
    tree: &BPlusTree<V, L>,
    memory: &mut M,
    from: u64,
    to: u64,
) -> Vec<(u64, V)> {
    let mut all = Vec::new();
    tree.scan(memory, from, to, |key, value| {
        all.push((key, *value));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Checks the tree and that it holds what the model holds.
fn assert_equal<L: Latch, M: Memory>(tree: &BPlusTree<u64, L>, memory: &mut M, model: &BTreeMap<u64, u64>) {
    assert_eq!(tree.check(memory).unwrap().keys, model.len() as u64);
    assert!(contents(tree, memory, 0, u64::MAX).into_iter().eq(model.iter().map(|(&k, &v)| (k, v))));
}

#[test]
fn random_operations_agree_with_a_model() {
    for (seed, (node_bytes, space)) in
        [(72, 300), (72, 40), (128, 1000), (256, 3000), (4096, 20_000)].into_iter().enumerate()
    {
        let mut random = Random::seeded("B+-tree", seed as u64);
        let mut memory = memory();
        let heap = heap(&mut memory);
        let used = heap.used_bytes();
        let tree = BPlusTree::<u64, VersionLatch>::create_with_nodes(&mut memory, heap.clone(), 4, node_bytes).unwrap();
        let mut model = BTreeMap::new();
        for step in 0..20_000u64 {
            // Grows, then shrinks, again and again.
            let growing = (step / 2500) % 2 == 0;
            let key = any_key(&mut random, space);
            match random.below(12) {
                0..6 if growing => assert_eq!(tree.insert(&mut memory, key, step).unwrap(), model.insert(key, step)),
                0..6 => assert_eq!(tree.remove(&mut memory, key).unwrap(), model.remove(&key)),
                6 => assert_eq!(tree.insert(&mut memory, key, step).unwrap(), model.insert(key, step)),
                7 => assert_eq!(tree.remove(&mut memory, key).unwrap(), model.remove(&key)),
                8 => assert_eq!(tree.get(&mut memory, key).unwrap(), model.get(&key).copied()),
                9 => {
                    let hit = tree.update(&mut memory, key, |v| *v = v.wrapping_mul(3) + 1).unwrap();
                    assert_eq!(hit, model.contains_key(&key));
                    model.entry(key).and_modify(|v| *v = v.wrapping_mul(3) + 1);
                }
                10 => {
                    let first = model.range(key..).next().map(|(&k, &v)| (k, v));
                    assert_eq!(tree.first_at_or_after(&mut memory, key).unwrap(), first);
                    let last = model.range(..=key).next_back().map(|(&k, &v)| (k, v));
                    assert_eq!(tree.last_at_or_before(&mut memory, key).unwrap(), last);
                }
                _ => {
                    let (a, b) = (key, any_key(&mut random, space));
                    let got = contents(&tree, &mut memory, a, b);
                    if a <= b {
                        assert!(got.into_iter().eq(model.range(a..=b).map(|(&k, &v)| (k, v))));
                    } else {
                        assert!(got.is_empty());
                    }
                }
            }
            if step % 1000 == 999 {
                assert_equal(&tree, &mut memory, &model);
            }
        }
        let tree = BPlusTree::<u64, NoLatch>::open(&mut memory, heap.clone(), tree.root(), 1).unwrap();
        assert_equal(&tree, &mut memory, &model);
        for &key in model.keys() {
            assert!(tree.remove(&mut memory, key).unwrap().is_some());
        }
        let shape = tree.check(&mut memory).unwrap();
        assert_eq!((shape.keys, shape.leaves, shape.depth), (0, 1, 1), "an empty tree gives its nodes back");
        assert!(heap.used_bytes() - used <= 4096);
    }
}

#[test]
fn a_queue_does_not_leave_empty_leaves_behind() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let tree = BPlusTree::<u32, NoLatch>::create_with_nodes(&mut memory, heap, 1, 128).unwrap();
    for i in 0..20_000u64 {
        tree.insert(&mut memory, i, i as u32).unwrap();
        if i >= 100 {
            let (first, _) = tree.first_at_or_after(&mut memory, 0).unwrap().unwrap();
            assert_eq!(first, i - 100);
            tree.remove(&mut memory, first).unwrap();
        }
    }
    let shape = tree.check(&mut memory).unwrap();
    assert_eq!(shape.keys, 100);
    assert!(shape.leaves < 60 && shape.depth < 6, "{shape:?}");
}

#[test]
fn loading_at_once_makes_the_same_map() {
    for node_bytes in [72, 4096] {
        for count in [0u64, 1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 1000, 30_000] {
            for fill in [1.0, 0.7, 0.0] {
                let mut memory = memory();
                let heap = heap(&mut memory);
                let tree = BPlusTree::<u64, NoLatch>::create_with_nodes(&mut memory, heap, 1, node_bytes).unwrap();
                let mut model: BTreeMap<u64, u64> = (0..count).map(|i| (i * 5 + 1, i)).collect();
                let loaded = tree.bulk_load(&mut memory, model.iter().map(|(&k, &v)| (k, v)), fill).unwrap();
                assert_eq!(loaded, count);
                assert_equal(&tree, &mut memory, &model);
                for key in 0..200 {
                    assert_eq!(tree.insert(&mut memory, key, key).unwrap(), model.insert(key, key));
                    let gone = count * 5 - key.min(count * 5);
                    assert_eq!(tree.remove(&mut memory, gone).unwrap(), model.remove(&gone));
                }
                assert_equal(&tree, &mut memory, &model);
            }
        }
    }
}

#[test]
fn values_of_other_sizes() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let empty = BPlusTree::<[u8; 0], NoLatch>::create(&mut memory, heap.clone(), 1).unwrap();
    let odd = BPlusTree::<[u8; 11], NoLatch>::create(&mut memory, heap.clone(), 1).unwrap();
    let large = BPlusTree::<[u64; 100], NoLatch>::create(&mut memory, heap.clone(), 1).unwrap();
    let pointers = BPlusTree::<Ptr<u64>, NoLatch>::create(&mut memory, heap.clone(), 1).unwrap();
    for i in 0..2000u64 {
        let key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        empty.insert(&mut memory, key, []).unwrap();
        odd.insert(&mut memory, key, [i as u8; 11]).unwrap();
        large.insert(&mut memory, key, [i; 100]).unwrap();
        pointers.insert(&mut memory, key, Ptr::new(Address::from_linear(i * 8))).unwrap();
    }
    for i in 0..2000u64 {
        let key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert_eq!(empty.get(&mut memory, key).unwrap(), Some([]));
        assert_eq!(odd.get(&mut memory, key).unwrap(), Some([i as u8; 11]));
        assert_eq!(large.get(&mut memory, key).unwrap(), Some([i; 100]));
        assert_eq!(pointers.get(&mut memory, key).unwrap(), Some(Ptr::new(Address::from_linear(i * 8))));
    }
    for keys in [empty.check(&mut memory), odd.check(&mut memory), large.check(&mut memory)] {
        assert_eq!(keys.unwrap().keys, 2000);
    }
    // Opened as something else, it is refused.
    let wrong = BPlusTree::<u64, NoLatch>::open(&mut memory, heap.clone(), odd.root(), 1);
    assert!(matches!(wrong, Err(AccessError::Corrupt { .. })));
    let mut root = odd.root();
    root.root = Address::from_linear(1 << 40);
    let nothing = BPlusTree::<[u8; 11], NoLatch>::open(&mut memory, heap, root, 1);
    assert!(matches!(nothing, Err(AccessError::Corrupt { .. })));
}

#[test]
fn every_access_may_fail_and_nothing_changes() {
    let mut random = Random::seeded("B+-tree", 3);
    let mut memory = memory();
    let heap = heap(&mut memory);
    let tree = BPlusTree::<u64, VersionLatch>::create_with_nodes(&mut memory, heap, 8, 72).unwrap();
    let mut memory = FaultyMemory::over(memory);
    let mut model = BTreeMap::new();
    let mut failures = 0;
    for step in 0..3000u64 {
        let (key, kind) = (any_key(&mut random, 120), random.below(4) + 4 * ((step / 500) % 2));
        for good in 0.. {
            memory.fail_after(good, common::errors()[good as usize % 3]);
            let done = match kind {
                0 | 1 | 4 => tree.insert(&mut memory, key, step).map(|old| assert_eq!(old, model.insert(key, step))),
                2 | 5 | 6 => tree.remove(&mut memory, key).map(|old| assert_eq!(old, model.remove(&key))),
                _ => tree.update(&mut memory, key, |v| *v ^= 1).map(|hit| {
                    assert_eq!(hit, model.contains_key(&key));
                    model.entry(key).and_modify(|v| *v ^= 1);
                }),
            };
            memory.heal();
            assert!(memory.take_most_pins() <= 2, "a change pins a node and its parent at most");
            if good % 3 == 0 || done.is_ok() {
                assert_equal(&tree, &mut memory, &model);
            }
            match done {
                Ok(()) => break,
                Err(_) => failures += 1,
            }
        }
    }
    assert!(failures > 3000, "{failures}");
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    Update(u64, u64),
    First(u64),
    Last(u64),
}

#[test]
fn another_fiber_may_run_at_any_access() {
    fn run<L: Latch, M: Memory>(
        tree: &BPlusTree<u64, L>,
        memory: &mut M,
        operation: Operation,
    ) -> Result<Option<u64>, AccessError> {
        match operation {
            Operation::Get(key) => tree.get(memory, key),
            Operation::Insert(key, value) => tree.insert(memory, key, value),
            Operation::Remove(key) => tree.remove(memory, key),
            Operation::Update(key, value) => {
                let mut old = None;
                tree.update(memory, key, |now| old = Some(std::mem::replace(now, value)))?;
                Ok(old)
            }
            Operation::First(key) => Ok(tree.first_at_or_after(memory, key)?.map(|(_, value)| value)),
            Operation::Last(key) => Ok(tree.last_at_or_before(memory, key)?.map(|(_, value)| value)),
        }
    }
    for latches in [1, 4, 1024] {
        let mut memory = memory();
        let heap = heap(&mut memory);
        let tree = BPlusTree::<u64, VersionLatch>::create_with_nodes(&mut memory, heap, latches, 72).unwrap();
        interleave(
            9000,
            12,
            &memory,
            Random::seeded("B+-tree interleaved", 21),
            BTreeMap::new(),
            |random| {
                let (key, value) = (random.below(30), random.next());
                match random.below(7) {
                    0 => Operation::Get(key),
                    1 => Operation::Update(key, value),
                    2 => Operation::First(key),
                    3 => Operation::Last(key),
                    4 | 5 => Operation::Insert(key, value),
                    _ => Operation::Remove(key),
                }
            },
            |model: &mut BTreeMap<u64, u64>, operation| match operation {
                Operation::Get(key) => model.get(&key).copied(),
                Operation::Insert(key, value) => model.insert(key, value),
                Operation::Remove(key) => model.remove(&key),
                Operation::Update(key, value) => model.get_mut(&key).map(|now| std::mem::replace(now, value)),
                Operation::First(key) => model.range(key..).next().map(|(_, &value)| value),
                Operation::Last(key) => model.range(..=key).next_back().map(|(_, &value)| value),
            },
            |memory, operation| run(&tree, memory, operation),
            |memory, operation| run(&tree, memory, operation),
            |memory| {
                tree.check(memory).unwrap();
                contents(&tree, memory, 0, u64::MAX).into_iter().collect()
            },
        );
    }
}

#[test]
fn a_failed_load_leaves_the_tree_empty() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let tree = BPlusTree::<u64, NoLatch>::create_with_nodes(&mut memory, heap.clone(), 1, 72).unwrap();
    let used = heap.used_bytes();
    let mut memory = FaultyMemory::over(memory);
    for good in (0..200).step_by(7) {
        memory.fail_after(good, common::errors()[good as usize % 3]);
        let done = tree.bulk_load(&mut memory, (0..500).map(|k| (k, k)), 1.0);
        memory.heal();
        assert!(memory.take_most_pins() <= 2, "a change pins a node and its parent at most");
        assert!(done.is_err());
        assert_eq!(tree.check(&mut memory).unwrap().keys, 0);
    }
    // The heap keeps what was freed last in DRAM, so that freeing did not fail with the rest.
    heap.check(&mut memory).unwrap();
    assert_eq!(heap.used_bytes(), used);
    assert_eq!(tree.bulk_load(&mut memory, (0..500).map(|k| (k, k)), 1.0).unwrap(), 500);
}

#[test]
fn threads_share_leaves() {
    const THREADS: u64 = 4;
    for (latches, node_bytes) in [(1, 72), (8, 72), (1024, 128), (64, 4096)] {
        let mut memory = memory();
        let heap = heap(&mut memory);
        let tree =
            BPlusTree::<u64, VersionLatch>::create_with_nodes(&mut memory, heap.clone(), latches, node_bytes).unwrap();
        let models = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (mut memory, tree) = (memory.clone(), &tree);
                    scope.spawn(move || {
                        let mut random = Random::seeded("B+-tree", 100 + thread);
                        let mut model = BTreeMap::new();
                        for step in 0..6000u64 {
                            // Keys of its own, between those of the others.
                            let key = random.below(200) * THREADS + thread;
                            match (random.below(8), (step / 1000) % 2) {
                                (0..4, 0) | (0, 1) => {
                                    assert_eq!(tree.insert(&mut memory, key, step).unwrap(), model.insert(key, step));
                                }
                                (0..4, _) | (4, _) => {
                                    assert_eq!(tree.remove(&mut memory, key).unwrap(), model.remove(&key));
                                }
                                (5, _) => {
                                    let last = model.range(..=key).next_back().map(|(&k, _)| k);
                                    let got = tree.last_at_or_before(&mut memory, key).unwrap().map(|(k, _)| k);
                                    assert!(got >= last && got.is_none_or(|got| got <= key));
                                }
                                (6, _) => {
                                    let mine = |&(k, _): &(u64, u64)| k % THREADS == thread;
                                    let got = contents(tree, &mut memory, key, key + 100);
                                    assert!(got.windows(2).all(|pair| pair[0].0 < pair[1].0));
                                    let model = model.range(key..=key + 100).map(|(&k, &v)| (k, v));
                                    assert!(got.into_iter().filter(mine).eq(model));
                                }
                                _ => assert_eq!(tree.get(&mut memory, key).unwrap(), model.get(&key).copied()),
                            }
                        }
                        model
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert_equal(&tree, &mut memory, &models.into_iter().flatten().collect());
        heap.check(&mut memory).unwrap();
    }
}

#[test]
fn threads_fight_over_keys() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let tree = BPlusTree::<u64, VersionLatch>::create_with_nodes(&mut memory, heap, 16, 72).unwrap();
    for key in 0..8 {
        tree.insert(&mut memory, key * 1000, 0).unwrap();
    }
    let (adds, balance) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (mut memory, tree) = (memory.clone(), &tree);
                scope.spawn(move || {
                    let mut random = Random::seeded("B+-tree", 200 + thread);
                    let (mut adds, mut balance) = (0, 0i64);
                    for _ in 0..4000 {
                        let counter = random.below(8) * 1000;
                        adds += u64::from(tree.update(&mut memory, counter, |v| *v += 1).unwrap());
                        let key = counter + 1 + random.below(5);
                        if random.below(2) == 0 {
                            balance += i64::from(tree.insert(&mut memory, key, thread).unwrap().is_none());
                        } else {
                            balance -= i64::from(tree.remove(&mut memory, key).unwrap().is_some());
                        }
                    }
                    (adds, balance)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    });
    let all = contents(&tree, &mut memory, 0, u64::MAX);
    assert_eq!(all.iter().filter(|e| e.0 % 1000 == 0).map(|e| e.1).sum::<u64>(), adds);
    assert_eq!(all.len() as i64, 8 + balance);
    assert_eq!(tree.check(&mut memory).unwrap().keys, all.len() as u64);
}
