//! Goal: the B+-tree is an ordered map, whatever its nodes' size, failures and other users. Method:
//! random operations, compared with a `BTreeMap`, with nodes of three keys so that splits, merges
//! and the root's growth and shrinking happen all the time, and keys at the ends of the range.
//! Every access of an operation fails in turn, after which the tree is what it was before. Threads
//! use keys of their own that share leaves, and keys they fight over.

use crate::{common, maps};

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{FaultyMemory, Random};
use fulgurite_memory::{
    AccessError, Address, BPlusTree, Heap, Latch, Memory, NoLatch, Plain, PlainMemory, Ptr, Region, VersionLatch,
};
use fulgurite_sys::Backed;
use maps::{Found, Map, Plan};

fn memory() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).unwrap()
}
fn heap(memory: &mut impl Memory) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(1 << 20), 1 << 30)).unwrap())
}

/// A key by its number: some are at the ends of the range.
fn any_key(number: u64) -> u64 {
    match number {
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

impl Map for BPlusTree<u64, VersionLatch> {
    type Key = u64;
    type Value = u64;
    /// A node and its parent.
    const PINS: u64 = 2;

    fn get<M: Memory>(&self, memory: &mut M, key: &u64) -> Found<u64> {
        self.get(memory, *key)
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: &u64, value: u64) -> Found<u64> {
        self.insert(memory, *key, value)
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: &u64) -> Found<u64> {
        self.remove(memory, *key)
    }
    fn update<M: Memory>(&self, memory: &mut M, key: &u64, mut change: impl FnMut(&mut u64)) -> Found<u64> {
        let mut old = None;
        let hit = self.update(memory, *key, |value| {
            old = Some(*value);
            change(value);
        })?;
        assert_eq!(hit, old.is_some());
        Ok(old)
    }
    fn scan<M: Memory>(&self, memory: &mut M, from: &u64, limit: usize) -> Result<Vec<(u64, u64)>, AccessError> {
        if limit == 1 {
            return Ok(self.first_at_or_after(memory, *from)?.into_iter().collect());
        }
        let mut all = Vec::new();
        self.scan(memory, *from, u64::MAX, |key, value| {
            all.push((key, *value));
            if all.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(all)
    }
    fn last<M: Memory>(&self, memory: &mut M, key: &u64) -> Option<Found<(u64, u64)>> {
        Some(self.last_at_or_before(memory, *key))
    }
    fn check<M: Memory>(&self, memory: &mut M) -> u64 {
        self.check(memory).unwrap().keys
    }
}

fn tree(memory: &mut PlainMemory, latches: usize, node_bytes: usize) -> (BPlusTree<u64, VersionLatch>, Arc<Heap>) {
    let heap = heap(memory);
    (BPlusTree::create_with_nodes(memory, heap.clone(), latches, node_bytes).unwrap(), heap)
}

/// Numbers are keys.
fn plan(what: &str, seed: u64, keys: u64, steps: u64) -> Plan<'static, BPlusTree<u64, VersionLatch>> {
    Plan { random: Random::seeded(what, seed), first: 0, key: &|n| n, value: &|n| n, keys, steps }
}

#[test]
fn random_operations_agree_with_a_model() {
    for (seed, (node_bytes, space)) in
        [(72, 300), (72, 40), (128, 1000), (256, 3000), (4096, 20_000)].into_iter().enumerate()
    {
        let mut memory = memory();
        let (tree, heap) = tree(&mut memory, 4, node_bytes);
        let used = heap.used_bytes();
        let plan = Plan { key: &any_key, ..plan("B+-tree", seed as u64, space, 20_000) };
        let tree = maps::agrees_with_a_model(tree, &mut memory, plan, Some(&heap), |memory, tree| {
            BPlusTree::open(memory, heap.clone(), tree.root(), 1).unwrap()
        });
        let shape = tree.check(&mut memory).unwrap();
        assert_eq!((shape.keys, shape.leaves, shape.depth), (0, 1, 1), "an empty tree gives its nodes back");
        assert!(heap.used_bytes() <= used);
    }
}

#[test]
fn scans_end_where_they_are_asked_to() {
    let mut memory = memory();
    let (tree, _heap) = tree(&mut memory, 4, 72);
    let model: BTreeMap<u64, u64> = (0..300).map(|n| (any_key(n), n)).collect();
    model.iter().for_each(|(&key, &value)| assert_eq!(tree.insert(&mut memory, key, value), Ok(None)));
    let mut random = Random::seeded("B+-tree", 5);
    for _ in 0..2000 {
        let (a, b) = (any_key(random.below(300)), any_key(random.below(300)));
        let got = contents(&tree, &mut memory, a, b);
        if a <= b {
            assert!(got.into_iter().eq(model.range(a..=b).map(|(&k, &v)| (k, v))));
        } else {
            assert!(got.is_empty());
        }
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
                let tree = BPlusTree::<u64, VersionLatch>::create_with_nodes(&mut memory, heap, 1, node_bytes).unwrap();
                let mut model: BTreeMap<u64, u64> = (0..count).map(|i| (i * 5 + 1, i)).collect();
                let loaded = tree.bulk_load(&mut memory, model.iter().map(|(&k, &v)| (k, v)), fill).unwrap();
                assert_eq!(loaded, count);
                maps::assert_same(&tree, &mut memory, &0, &model);
                for key in 0..200 {
                    assert_eq!(tree.insert(&mut memory, key, key).unwrap(), model.insert(key, key));
                    let gone = count * 5 - key.min(count * 5);
                    assert_eq!(tree.remove(&mut memory, gone).unwrap(), model.remove(&gone));
                }
                maps::assert_same(&tree, &mut memory, &0, &model);
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
    let mut memory = memory();
    let (tree, _heap) = tree(&mut memory, 8, 72);
    let plan = Plan { key: &any_key, ..plan("B+-tree", 3, 120, 3000) };
    maps::survives_failed_accesses(&tree, &mut FaultyMemory::over(memory), plan, 3000);
}

#[test]
fn another_fiber_may_run_at_any_access() {
    for latches in [1, 4, 1024] {
        let mut memory = memory();
        let (tree, _heap) = tree(&mut memory, latches, 72);
        maps::lets_others_run(&tree, &memory, &plan("B+-tree interleaved", 21, 30, 9000), 12, (2, 1), |_| ());
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
    for (latches, node_bytes) in [(1, 72), (8, 72), (1024, 128), (64, 4096)] {
        let mut memory = memory();
        let (tree, heap) = tree(&mut memory, latches, node_bytes);
        maps::serves_threads(&tree, &memory, &plan("B+-tree", 100, 200, 6000), |n| *n += 1, |n| *n);
        heap.check(&mut memory).unwrap();
    }
}
