//! Goal: the trie of trees is an ordered map of byte strings, whatever the keys share, the failures
//! and other users. Method: random operations, compared with a `BTreeMap`, with keys made to meet:
//! prefixes of each other, ends at and next to the boundaries of slices, NUL bytes, long common
//! prefixes, suffixes too long for a node. Every access of an operation fails in turn, once and for
//! good, after which the trie is what it was before. Threads use keys of their own that share nodes
//! and layers, and keys they fight over.

use crate::{common, maps};

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{FaultyMemory, Random};
use fulgurite_memory::{
    AccessError, Address, Heap, Masstree, MasstreeRoot, Memory, NoLatch, PlainMemory, Region, VersionLatch,
};
use fulgurite_sys::Backed;
use maps::{Found, Map, Plan};

type Model = BTreeMap<Vec<u8>, u64>;

fn memory() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).unwrap()
}
fn heap(memory: &mut impl Memory) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(1 << 20), 1 << 30)).unwrap())
}

/// The key of a number, which has much in common with others: parts from a small choice, then a few
/// bytes of a small alphabet.
fn numbered(number: u64) -> Vec<u8> {
    let random = &mut Random(number);
    let mut key = Vec::new();
    for _ in 0..random.below(4) {
        match random.below(6) {
            0 => key.extend_from_slice(b"prefix 8"),
            1 => key.extend_from_slice(&[0; 8]),
            2 => key.extend_from_slice(&[255; 8]),
            3 => key.extend_from_slice(b"abc"),
            4 => key.extend_from_slice(&[b'l'; 40]),
            _ => {}
        }
    }
    for _ in 0..random.below(10) {
        key.push([0, 1, b'a', b'b', 255][random.below(5) as usize]);
    }
    if random.below(40) == 0 {
        // Too long for a node, and now and then for a subpage.
        let length = [200, 209, 300, 5000][random.below(4) as usize];
        key.resize(key.len() + length, b'x');
    }
    key
}

impl Map for Masstree<VersionLatch> {
    type Key = Vec<u8>;
    type Value = u64;
    /// A node and its parent.
    const PINS: u64 = 2;

    fn get<M: Memory>(&self, memory: &mut M, key: &Vec<u8>) -> Found<u64> {
        self.get(memory, key)
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: &Vec<u8>, value: u64) -> Found<u64> {
        self.insert(memory, key, value)
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: &Vec<u8>) -> Found<u64> {
        self.remove(memory, key)
    }
    fn update<M: Memory>(&self, memory: &mut M, key: &Vec<u8>, mut change: impl FnMut(&mut u64)) -> Found<u64> {
        let mut old = None;
        let hit = self.update(memory, key, |value| {
            old = Some(*value);
            change(value);
        })?;
        assert_eq!(hit, old.is_some());
        Ok(old)
    }
    fn scan<M: Memory>(
        &self,
        memory: &mut M,
        from: &Vec<u8>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, AccessError> {
        let mut all = Vec::new();
        let shown = self.scan(memory, from, limit, |key, value| {
            all.push((key.to_vec(), value));
            ControlFlow::Continue(())
        })?;
        assert_eq!(shown, all.len());
        Ok(all)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> u64 {
        self.check(memory).unwrap().keys
    }
}

fn create(memory: &mut impl Memory, latches: usize) -> (Masstree<VersionLatch>, Arc<Heap>) {
    let heap = heap(memory);
    (Masstree::create(memory, heap.clone(), latches).unwrap(), heap)
}

fn plan<'p>(
    seed: u64,
    key: &'p (dyn Fn(u64) -> Vec<u8> + Sync),
    keys: u64,
    steps: u64,
) -> Plan<'p, Masstree<VersionLatch>> {
    Plan { random: Random::seeded("masstree", seed), first: Vec::new(), key, value: &|n| n, keys, steps }
}

#[test]
fn keys_at_the_edges() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let trie = Masstree::<VersionLatch>::create(&mut memory, heap.clone(), 1).unwrap();
    let used = heap.used_bytes();
    let mut model = Model::new();
    for byte in [0u8, 1, 255] {
        for length in (0..=40).chain([208, 216, 217, 500, 4095, 4096, 10_000]) {
            let key = vec![byte; length];
            let value = length as u64 * 256 + u64::from(byte);
            assert_eq!(trie.get(&mut memory, &key).unwrap(), model.get(&key).copied());
            assert_eq!(trie.insert(&mut memory, &key, value).unwrap(), model.insert(key, value));
        }
    }
    maps::assert_same(&trie, &mut memory, &Vec::new(), &model);
    for (key, value) in &model {
        assert_eq!(trie.get(&mut memory, key).unwrap(), Some(*value));
        let first = model.range(key.clone()..).take(3).map(|(k, v)| (k.clone(), *v)).collect::<Vec<_>>();
        assert_eq!(Map::scan(&trie, &mut memory, key, 3), Ok(first));
    }
    for (i, key) in model.keys().enumerate() {
        assert!(trie.remove(&mut memory, key).unwrap().is_some());
        assert_eq!(trie.check(&mut memory).unwrap().keys as usize, model.len() - i - 1);
    }
    let shape = trie.check(&mut memory).unwrap();
    assert_eq!((shape.layers, shape.borders, shape.records), (1, 1, 0), "an empty trie gives its layers back");
    assert_eq!(heap.used_bytes(), used);
}

#[test]
fn random_operations_agree_with_a_model() {
    for seed in 0..4 {
        let mut memory = memory();
        let (trie, heap) = create(&mut memory, 4);
        let used = heap.used_bytes();
        let plan = plan(seed, &numbered, 1 << 40, 15_000);
        let trie = maps::agrees_with_a_model(trie, &mut memory, plan, Some(&heap), |memory, trie| {
            Masstree::open(memory, heap.clone(), trie.root(), 1).unwrap()
        });
        assert_eq!(trie.check(&mut memory).unwrap().layers, 1);
        assert_eq!(heap.used_bytes(), used);
    }
}

#[test]
fn many_short_keys_make_a_deep_tree() {
    let mut random = Random::seeded("masstree", 9);
    let mut memory = memory();
    let heap = heap(&mut memory);
    let trie = Masstree::<VersionLatch>::create(&mut memory, heap, 1).unwrap();
    let mut model = Model::new();
    for i in 0..40_000u64 {
        // Decimal numbers of one to ten digits, as in section 6.1 of the paper.
        let key = (random.next() % (1 << 31)).to_string().into_bytes();
        assert_eq!(trie.insert(&mut memory, &key, i).unwrap(), model.insert(key, i));
    }
    for i in 0..5000u64 {
        let key = format!("user{i:012}").into_bytes();
        assert_eq!(trie.insert(&mut memory, &key, i).unwrap(), model.insert(key, i));
    }
    maps::assert_same(&trie, &mut memory, &Vec::new(), &model);
    println!("{:?}", trie.check(&mut memory).unwrap());
}

#[test]
fn every_access_may_fail_and_nothing_changes() {
    let mut memory = FaultyMemory::new();
    let (trie, _heap) = create(&mut memory, 8);
    maps::survives_failed_accesses(&trie, &mut memory, plan(3, &numbered, 1 << 40, 1500), 3000);
}

/// Twenty-seven keys: one to three parts of eight bytes, or with a short end, so that layers come
/// and go.
fn in_parts(number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    for digit in [number % 3, number / 3 % 3, number / 9 % 3] {
        match digit {
            0 => break,
            1 => key.extend_from_slice(b"one part"),
            _ => key.extend_from_slice(b"other"),
        }
    }
    key.push(number as u8);
    key
}

#[test]
fn another_fiber_may_run_at_any_access() {
    for latches in [1, 4, 1024] {
        let mut memory = memory();
        let (trie, _heap) = create(&mut memory, latches);
        maps::lets_others_run(&trie, &memory, &plan(21, &in_parts, 54, 9000), 12, (3, 1), |_| ());
    }
}

#[test]
fn what_is_no_trie_is_refused() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let root = MasstreeRoot { root: Address::from_linear(1 << 40) };
    let trie = Masstree::<NoLatch>::open(&mut memory, heap, root, 1);
    assert!(matches!(trie, Err(AccessError::Corrupt { .. })));
}

/// Counters, keys of threads whose last bytes say whose they are, and keys below the counters, with
/// which layers come and go.
fn of_threads(number: u64) -> Vec<u8> {
    let counter = |n: u64| [b"counter ".as_slice(), &[b'0' + n as u8]].concat();
    let Some(number) = number.checked_sub(maps::COUNTERS) else { return counter(number) };
    let (number, thread) = (number / (maps::THREADS + 1), number % (maps::THREADS + 1));
    if thread == maps::THREADS {
        let end = &b"the same and then "[..number as usize % 18 + 1];
        return [&counter(number % maps::COUNTERS), end].concat();
    }
    let mut key = numbered(number);
    key.push(b'0' + thread as u8);
    key
}

#[test]
fn threads_share_layers() {
    for latches in [1, 16, 1024] {
        let mut memory = memory();
        let (trie, heap) = create(&mut memory, latches);
        maps::serves_threads(&trie, &memory, &plan(100, &of_threads, 1 << 40, 5000), |n| *n += 1, |n| *n);
        heap.check(&mut memory).unwrap();
    }
}
