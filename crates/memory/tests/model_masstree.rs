//! Goal: the trie of trees is an ordered map of byte strings, whatever the keys share, the failures
//! and other users. Method: random operations beside a `BTreeMap` with keys made to meet: prefixes
//! of each other, ends at and beside the boundaries of slices, NUL bytes, long common prefixes,
//! suffixes too long for a node. Every access of an operation fails in turn, once and for good,
//! after which the trie is what it was before. Threads use keys of their own that share nodes and
//! layers, and keys they fight over.

use crate::common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{FaultyMemory, Random, interleave};
use fulgurite_memory::{
    AccessError, Address, Heap, Latch, Masstree, MasstreeRoot, Memory, NoLatch, PlainMemory, Region, VersionLatch,
};
use fulgurite_sys::Backed;

type Model = BTreeMap<Vec<u8>, u64>;

fn memory() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).unwrap()
}
fn heap(memory: &mut impl Memory) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(1 << 20), 1 << 30)).unwrap())
}

/// A key that has much in common with others: parts from a small choice, then a few bytes of a
/// small alphabet.
fn key(random: &mut Random) -> Vec<u8> {
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

fn contents<L: Latch, M: Memory>(trie: &Masstree<L>, memory: &mut M, from: &[u8], limit: usize) -> Vec<(Vec<u8>, u64)> {
    let mut all = Vec::new();
    let shown = trie.scan(memory, from, limit, |key, value| {
        all.push((key.to_vec(), value));
        ControlFlow::Continue(())
    });
    assert_eq!(shown.unwrap(), all.len());
    all
}

/// Checks the trie and that it holds what the model holds.
fn assert_equal<L: Latch, M: Memory>(trie: &Masstree<L>, memory: &mut M, model: &Model) {
    assert_eq!(trie.check(memory).unwrap().keys, model.len() as u64);
    let all = contents(trie, memory, &[], usize::MAX);
    assert!(all.iter().map(|(k, v)| (k, v)).eq(model.iter()));
}

#[test]
fn keys_at_the_edges() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let trie = Masstree::<NoLatch>::create(&mut memory, heap.clone(), 1).unwrap();
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
    assert_equal(&trie, &mut memory, &model);
    for (key, value) in &model {
        assert_eq!(trie.get(&mut memory, key).unwrap(), Some(*value));
        let first = model.range(key.clone()..).take(3).map(|(k, v)| (k.clone(), *v)).collect::<Vec<_>>();
        assert_eq!(contents(&trie, &mut memory, key, 3), first);
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
        let mut random = Random::seeded("masstree", seed);
        let mut memory = memory();
        let heap = heap(&mut memory);
        let trie = Masstree::<VersionLatch>::create(&mut memory, heap.clone(), 4).unwrap();
        let used = heap.used_bytes();
        let mut model = Model::new();
        for step in 0..15_000u64 {
            let growing = (step / 3000) % 2 == 0;
            let key = key(&mut random);
            match random.below(10) {
                0..5 if growing => assert_eq!(trie.insert(&mut memory, &key, step).unwrap(), model.insert(key, step)),
                // Keys that are there, rather than any.
                0..5 => {
                    let key = model.range(key.clone()..).next().map_or(key, |(k, _)| k.clone());
                    assert_eq!(trie.remove(&mut memory, &key).unwrap(), model.remove(&key));
                }
                5 => assert_eq!(trie.insert(&mut memory, &key, step).unwrap(), model.insert(key, step)),
                6 => assert_eq!(trie.remove(&mut memory, &key).unwrap(), model.remove(&key)),
                7 => {
                    assert_eq!(trie.update(&mut memory, &key, |v| *v ^= 5).unwrap(), model.contains_key(&key));
                    model.entry(key).and_modify(|v| *v ^= 5);
                }
                8 => assert_eq!(trie.get(&mut memory, &key).unwrap(), model.get(&key).copied()),
                _ => {
                    let limit = random.below(30) as usize;
                    let expected: Vec<_> =
                        model.range(key.clone()..).take(limit).map(|(k, v)| (k.clone(), *v)).collect();
                    assert_eq!(contents(&trie, &mut memory, &key, limit), expected);
                }
            }
            if step % 1500 == 1499 {
                assert_equal(&trie, &mut memory, &model);
            }
        }
        let trie = Masstree::<NoLatch>::open(&mut memory, heap.clone(), trie.root(), 1).unwrap();
        assert_equal(&trie, &mut memory, &model);
        for key in model.keys() {
            assert!(trie.remove(&mut memory, key).unwrap().is_some());
        }
        assert_eq!(trie.check(&mut memory).unwrap().layers, 1);
        assert_eq!(heap.used_bytes(), used);
    }
}

#[test]
fn many_short_keys_make_a_deep_tree() {
    let mut random = Random::seeded("masstree", 9);
    let mut memory = memory();
    let heap = heap(&mut memory);
    let trie = Masstree::<NoLatch>::create(&mut memory, heap, 1).unwrap();
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
    assert_equal(&trie, &mut memory, &model);
    println!("{:?}", trie.check(&mut memory).unwrap());
}

#[test]
fn every_access_may_fail_and_nothing_changes() {
    let mut random = Random::seeded("masstree", 3);
    let mut memory = FaultyMemory::new();
    let heap = heap(&mut memory);
    let trie = Masstree::<VersionLatch>::create(&mut memory, heap, 8).unwrap();
    let mut model = Model::new();
    let mut failures = 0;
    for step in 0..1500u64 {
        let (key, kind) = (key(&mut random), random.below(4) + 4 * ((step / 300) % 2));
        for good in 0.. {
            memory.fail_after(
                good,
                [AccessError::Cancelled, AccessError::OutOfRange { at: Address::NULL }][good as usize % 2],
            );
            let done = match kind {
                0 | 1 | 2 | 4 => {
                    trie.insert(&mut memory, &key, step).map(|old| assert_eq!(old, model.insert(key.clone(), step)))
                }
                3 | 5 | 6 => {
                    let key = model.range(key.clone()..).next().map_or(key.clone(), |(k, _)| k.clone());
                    trie.remove(&mut memory, &key).map(|old| assert_eq!(old, model.remove(&key)))
                }
                _ => trie.update(&mut memory, &key, |v| *v ^= 1).map(|hit| {
                    assert_eq!(hit, model.contains_key(&key));
                    model.entry(key.clone()).and_modify(|v| *v ^= 1);
                }),
            };
            memory.heal();
            assert!(memory.take_most_pins() <= 2, "a change pins a node and its parent at most");
            if good % 4 == 0 || done.is_ok() {
                assert_equal(&trie, &mut memory, &model);
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
    /// The first key at or after this one; the value alone is compared.
    First(u64),
}

/// Twenty-seven keys: one to three parts of eight bytes, or with a short end, so that layers come
/// and go.
fn numbered(number: u64) -> Vec<u8> {
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
        let heap = heap(&mut memory);
        let trie = Masstree::<VersionLatch>::create(&mut memory, heap, latches).unwrap();
        fn run<L: Latch, M: Memory>(
            trie: &Masstree<L>,
            memory: &mut M,
            operation: Operation,
        ) -> Result<Option<u64>, AccessError> {
            match operation {
                Operation::Get(key) => trie.get(memory, &numbered(key)),
                Operation::Insert(key, value) => trie.insert(memory, &numbered(key), value),
                Operation::Remove(key) => trie.remove(memory, &numbered(key)),
                Operation::Update(key, value) => {
                    let mut old = None;
                    trie.update(memory, &numbered(key), |now| old = Some(std::mem::replace(now, value)))?;
                    Ok(old)
                }
                Operation::First(key) => {
                    let mut first = None;
                    trie.scan(memory, &numbered(key), 1, |_, value| {
                        first = Some(value);
                        ControlFlow::Continue(())
                    })?;
                    Ok(first)
                }
            }
        }
        interleave(
            9000,
            12,
            &memory,
            Random::seeded("masstree interleaved", 21),
            Model::new(),
            |random| {
                let (key, value) = (random.below(54), random.next());
                match random.below(6) {
                    0 => Operation::Get(key),
                    1 => Operation::Update(key, value),
                    2 => Operation::First(key),
                    3 => Operation::Insert(key, value),
                    4 => Operation::Insert(key % 27, value),
                    _ => Operation::Remove(key),
                }
            },
            |model: &mut Model, operation| match operation {
                Operation::Get(key) => model.get(&numbered(key)).copied(),
                Operation::Insert(key, value) => model.insert(numbered(key), value),
                Operation::Remove(key) => model.remove(&numbered(key)),
                Operation::Update(key, value) => model.get_mut(&numbered(key)).map(|now| std::mem::replace(now, value)),
                Operation::First(key) => model.range(numbered(key)..).next().map(|(_, &value)| value),
            },
            |memory, operation| run(&trie, memory, operation),
            |memory, operation| run(&trie, memory, operation),
            |memory| {
                trie.check(memory).unwrap();
                contents(&trie, memory, &[], usize::MAX).into_iter().collect()
            },
        );
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

#[test]
fn threads_share_layers() {
    const THREADS: u64 = 4;
    for latches in [1, 16, 1024] {
        let mut memory = memory();
        let heap = heap(&mut memory);
        let trie = Masstree::<VersionLatch>::create(&mut memory, heap.clone(), latches).unwrap();
        let models = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (mut memory, trie) = (memory.clone(), &trie);
                    scope.spawn(move || {
                        let mut random = Random::seeded("masstree", 100 + thread);
                        let mut model = Model::new();
                        for step in 0..5000u64 {
                            // Keys of its own: the last byte says whose.
                            let mut key = key(&mut random);
                            key.push(b'0' + thread as u8);
                            match (random.below(8), (step / 1000) % 2) {
                                (0..4, 0) | (0, 1) => {
                                    assert_eq!(trie.insert(&mut memory, &key, step).unwrap(), model.insert(key, step));
                                }
                                (0..4, _) | (4, _) => {
                                    let key = model.range(key.clone()..).next().map_or(key, |(k, _)| k.clone());
                                    assert_eq!(trie.remove(&mut memory, &key).unwrap(), model.remove(&key));
                                }
                                (5, _) => {
                                    let got = contents(trie, &mut memory, &key, 20);
                                    assert!(got.windows(2).all(|pair| pair[0].0 < pair[1].0));
                                    // Its own keys between the first and the last shown are all
                                    // there.
                                    if let Some((last, _)) = got.last().cloned() {
                                        let mine = got.into_iter().filter(|(k, _)| k.last() == key.last());
                                        let expected = model.range(key.clone()..=last).map(|(k, v)| (k.clone(), *v));
                                        assert!(mine.eq(expected));
                                    }
                                }
                                _ => assert_eq!(trie.get(&mut memory, &key).unwrap(), model.get(&key).copied()),
                            }
                        }
                        model
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert_equal(&trie, &mut memory, &models.into_iter().flatten().collect());
        heap.check(&mut memory).unwrap();
    }
}

#[test]
fn threads_fight_over_keys() {
    let mut memory = memory();
    let heap = heap(&mut memory);
    let trie = Masstree::<VersionLatch>::create(&mut memory, heap.clone(), 16).unwrap();
    let counter = |i: u64| [b"counter ".as_slice(), &[b'0' + i as u8]].concat();
    for i in 0..4 {
        trie.insert(&mut memory, &counter(i), 0).unwrap();
    }
    let (adds, balance) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (mut memory, trie) = (memory.clone(), &trie);
                scope.spawn(move || {
                    let mut random = Random::seeded("masstree", 200 + thread);
                    let (mut adds, mut balance) = (0, 0i64);
                    for _ in 0..4000 {
                        let mut key = counter(random.below(4));
                        adds += u64::from(trie.update(&mut memory, &key, |v| *v += 1).unwrap());
                        // Makes and removes layers below the counters.
                        key.extend_from_slice(&b"the same and then "[..random.below(18) as usize + 1]);
                        if random.below(2) == 0 {
                            balance += i64::from(trie.insert(&mut memory, &key, thread).unwrap().is_none());
                        } else {
                            balance -= i64::from(trie.remove(&mut memory, &key).unwrap().is_some());
                        }
                    }
                    (adds, balance)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    });
    let all = contents(&trie, &mut memory, &[], usize::MAX);
    assert_eq!(all.iter().filter(|e| e.0.len() == 9).map(|e| e.1).sum::<u64>(), adds);
    assert_eq!(all.len() as i64, 4 + balance);
    assert_eq!(trie.check(&mut memory).unwrap().keys, all.len() as u64);
    heap.check(&mut memory).unwrap();
}
