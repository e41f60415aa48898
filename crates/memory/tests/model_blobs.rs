//! Goal: blobs are a map from keys to byte strings, whatever the lengths, the failures and other
//! users; a read is whole or an error, never torn. Method: random operations of all kinds, compared
//! with a `BTreeMap`, with lengths around every border, under numbers and under byte strings that
//! are prefixes of each other. Every access of every operation fails in turn, after which the old
//! value is there. Another operation runs inside each access of one, and so do the writes that tear
//! the obvious way of doing it: an address in a hash map. Threads write and read the same keys, and
//! each value read must be one that was put.

use crate::common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{FaultyMemory, NeverParks, Random, SwitchingMemory, errors, interleave, plain};
use fulgurite_memory::{
    AccessError, Address, BlobIndex, BlobMap, Blobs, HashMap, Heap, KEY_BYTES_MAX, Memory, OrderedBlobs, PAGE_BYTES,
    PlainMemory, Region, VALUE_BYTES_MAX, VersionLatch,
};

const PAGE: u64 = PAGE_BYTES as u64;
const LENGTHS: [usize; 12] = [0, 1, 7, 8, 100, 128, 4000, 4095, 4096, 4097, 20_000, 70_000];
/// Keys of the random operations.
const KEYS: u64 = 30;

fn heap<M: Memory>(memory: &mut M, pages: u64) -> Arc<Heap> {
    Arc::new(Heap::create(memory, Region::new(Address::from_linear(PAGE), pages * PAGE)).unwrap())
}
fn hashed<M: Memory>(memory: &mut M, pages: u64, capacity: u64, latches: usize) -> (Blobs<u64>, Arc<Heap>) {
    let heap = heap(memory, pages);
    let buckets = Region::new(Address::from_linear((1 + pages) * PAGE), Blobs::<u64>::bytes_needed(capacity));
    (Blobs::create(memory, buckets, heap.clone(), capacity, latches).unwrap(), heap)
}
fn ordered<M: Memory>(memory: &mut M, pages: u64, latches: usize) -> (OrderedBlobs, Arc<Heap>) {
    let heap = heap(memory, pages);
    (OrderedBlobs::create(memory, heap.clone(), latches).unwrap(), heap)
}

/// A key that is a prefix of others.
fn text(key: u64) -> Box<[u8]> {
    let length = [0, 1, 7, 8, 9, 16, 40, 300][key as usize % 8];
    let mut text = vec![b'p'; length];
    text.extend((key / 8).to_string().bytes());
    text.into_boxed_slice()
}

/// A value that says which one it is, in each of its bytes.
fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 8 * 8)) as u8 ^ i as u8).collect()
}

#[derive(Clone, Debug)]
enum Operation {
    Get,
    ReadAt(usize, usize),
    Put(Vec<u8>),
    Remove,
    Compare(Option<Vec<u8>>, Vec<u8>),
    Update(Vec<u8>),
    Append(Vec<u8>),
    WriteAt(usize, Vec<u8>),
}

type Model = BTreeMap<u64, Vec<u8>>;

/// What an operation returned.
#[derive(Clone, PartialEq, Debug)]
enum Answer {
    Value(Option<Vec<u8>>),
    Was(bool),
    Length(usize),
}

fn choose(random: &mut Random, now: Option<&Vec<u8>>) -> Operation {
    let len = LENGTHS[random.below(LENGTHS.len())] + random.below(3usize);
    let new = value(random.next(), len);
    let short = value(random.next(), random.below(40usize));
    match random.below(12) {
        0 | 1 => Operation::Get,
        2 => Operation::ReadAt(random.below(10_000usize), random.below(10_000usize)),
        3..=5 => Operation::Put(new),
        6 => Operation::Remove,
        7 => Operation::Compare(now.filter(|_| random.below(3) > 0).cloned(), new),
        8 => Operation::Update(short),
        9 => Operation::Append(short),
        10 => Operation::Append(new),
        _ => {
            let long = if random.one_in(2) { value(random.next(), 18_000) } else { short };
            let room = now.map_or(0, |now| now.len().saturating_sub(long.len()));
            // One byte too far now and then.
            Operation::WriteAt(random.below(room + 2), long)
        }
    }
}

fn run<I: BlobIndex, M: Memory>(
    blobs: &BlobMap<I>,
    memory: &mut M,
    key: &I::Key,
    operation: &Operation,
) -> Result<Answer, AccessError> {
    Ok(match operation {
        Operation::Get => {
            let mut into = b"what was there before".to_vec();
            let found = blobs.get(memory, key, &mut into)?;
            assert!(found || into.is_empty());
            Answer::Value(found.then_some(into))
        }
        Operation::ReadAt(offset, len) => {
            let mut into = vec![0; *len];
            Answer::Value(blobs.read_at(memory, key, *offset, &mut into)?.map(|read| into[..read].to_vec()))
        }
        Operation::Put(new) => Answer::Was(blobs.put(memory, key, new)?),
        Operation::Remove => Answer::Was(blobs.remove(memory, key)?),
        Operation::Compare(expected, new) => {
            Answer::Was(blobs.compare_and_put(memory, key, expected.as_deref(), new)?)
        }
        Operation::Update(new) => {
            Answer::Value(blobs.update(memory, key, |now| std::mem::replace(now, [&now[..], new].concat()))?)
        }
        Operation::Append(bytes) => Answer::Length(blobs.append(memory, key, bytes)?),
        Operation::WriteAt(offset, bytes) => Answer::Was(blobs.write_at(memory, key, *offset, bytes)?),
    })
}

fn apply(model: &mut Model, key: u64, operation: &Operation) -> Answer {
    let now = model.get(&key).cloned();
    match operation.clone() {
        Operation::Get => Answer::Value(now),
        Operation::ReadAt(offset, len) => {
            Answer::Value(now.map(|now| now.into_iter().skip(offset).take(len).collect()))
        }
        Operation::Put(new) => Answer::Was(model.insert(key, new).is_some()),
        Operation::Remove => Answer::Was(model.remove(&key).is_some()),
        Operation::Compare(expected, new) => {
            let same = now == expected;
            if same {
                model.insert(key, new);
            }
            Answer::Was(same)
        }
        Operation::Update(new) => {
            if let Some(value) = model.get_mut(&key) {
                value.extend(new);
            }
            Answer::Value(now)
        }
        Operation::Append(bytes) => {
            let value = model.entry(key).or_default();
            value.extend(bytes);
            Answer::Length(value.len())
        }
        Operation::WriteAt(offset, bytes) => match model.get_mut(&key) {
            Some(value) if offset + bytes.len() <= value.len() => {
                value[offset..offset + bytes.len()].copy_from_slice(&bytes);
                Answer::Was(true)
            }
            _ => Answer::Was(false),
        },
    }
}

/// Every key has what the model says, and the checks pass.
fn same<I: BlobIndex, M: Memory>(blobs: &BlobMap<I>, memory: &mut M, model: &Model, key: impl Fn(u64) -> Box<I::Key>) {
    let bytes: usize = model.values().map(Vec::len).sum();
    assert_eq!(blobs.check(memory), Ok((model.len() as u64, bytes as u64)));
    let mut now = Vec::new();
    for number in 0..KEYS {
        let found = blobs.get(memory, &key(number), &mut now).unwrap();
        assert_eq!(found.then_some(&now), model.get(&number));
        assert_eq!(blobs.value_len(memory, &key(number)), Ok(model.get(&number).map(Vec::len)));
    }
}

fn random_operations<I: BlobIndex>(
    what: &str,
    (blobs, heap): (BlobMap<I>, Arc<Heap>),
    memory: &mut PlainMemory,
    key: impl Fn(u64) -> Box<I::Key>,
) {
    let empty = heap.used_bytes();
    let mut random = Random::seeded(what, 25);
    let mut model = Model::new();
    for step in 0..4000 {
        let number = random.below(KEYS);
        let operation = choose(&mut random, model.get(&number));
        let got = run(&blobs, memory, &key(number), &operation).unwrap();
        assert_eq!(got, apply(&mut model, number, &operation), "step {step}");
        if step % 200 == 0 {
            same(&blobs, memory, &model, &key);
        }
    }
    same(&blobs, memory, &model, &key);
    for number in model.keys() {
        assert_eq!(blobs.remove(memory, &key(*number)), Ok(true));
    }
    same(&blobs, memory, &Model::new(), &key);
    assert_eq!(heap.used_bytes(), empty, "{what}: what is removed is free");
}

#[test]
fn random_operations_of_all_lengths() {
    for capacity in [1, 1000] {
        let mut memory = plain();
        random_operations("blobs by numbers", hashed(&mut memory, 400, capacity, 4), &mut memory.clone(), Box::new);
    }
    let mut memory = plain();
    random_operations("blobs by strings", ordered(&mut memory, 400, 4), &mut memory.clone(), text);
}

fn every_access_fails<I: BlobIndex>(
    what: &str,
    (blobs, heap): (BlobMap<I>, Arc<Heap>),
    memory: &mut FaultyMemory,
    key: impl Fn(u64) -> Box<I::Key>,
) {
    let empty = heap.used_bytes();
    let mut random = Random::seeded(what, 9);
    let mut model = Model::new();
    let mut failures = 0;
    for step in 0..300usize {
        let number = random.below(12u64);
        let operation = choose(&mut random, model.get(&number));
        // Half of them are cut short once, and the others at each access.
        for fail_at in (0..).step_by(if step % 2 == 0 { 1 } else { 3 }) {
            let error = errors()[step % 3];
            memory.fail_after(fail_at, error);
            let result = run(&blobs, memory, &key(number), &operation);
            let met = !memory.heal();
            match result {
                Ok(answer) => {
                    assert_eq!(answer, apply(&mut model, number, &operation), "step {step}: {operation:?}");
                    break;
                }
                Err(got) => {
                    assert!(met && got == error, "{got}");
                    failures += 1;
                    let now = run(&blobs, memory, &key(number), &Operation::Get).unwrap();
                    assert_eq!(now, Answer::Value(model.get(&number).cloned()), "step {step}: {operation:?}");
                }
            }
        }
        if step % 30 == 0 {
            same(&blobs, memory, &model, &key);
        }
    }
    assert!(failures > 1000, "only {failures} failures");
    for number in model.keys() {
        assert_eq!(blobs.remove(memory, &key(*number)), Ok(true));
    }
    assert_eq!(heap.used_bytes(), empty, "{what}: failed operations leak nothing");
    heap.check(memory).unwrap();
}

#[test]
fn a_failed_operation_leaves_the_old_value() {
    let mut memory = FaultyMemory::new();
    every_access_fails("blobs by numbers, faults", hashed(&mut memory, 400, 4, 4), &mut memory, Box::new);
    let mut memory = FaultyMemory::new();
    every_access_fails("blobs by strings, faults", ordered(&mut memory, 400, 4), &mut memory, text);
}

/// An operation of a number, because [`interleave`] copies it.
fn small(number: u64) -> Operation {
    let bytes = value(number, [0, 5, 3000, 4096, 9000][number as usize / 16 % 5]);
    // Many reads: a write waits for another one of its latch, which is below it on the stack here.
    match number % 12 {
        0..=6 => Operation::Get,
        7 | 8 => Operation::Put(bytes),
        9 => Operation::Remove,
        10 => Operation::Append(value(number, 20)),
        _ => Operation::WriteAt(0, value(number, 4)),
    }
}

fn interleaved<I: BlobIndex>(what: &str, memory: &PlainMemory, blobs: &BlobMap<I>, key: impl Fn(u64) -> Box<I::Key>) {
    interleave(
        6000,
        4,
        memory,
        Random::seeded(what, 3),
        BTreeMap::new(),
        |random| (random.below(4u64), random.next()),
        |model: &mut Model, (number, rest)| apply(model, number, &small(rest)),
        |memory, (number, rest)| run(blobs, memory, &key(number), &small(rest)),
        |memory, (number, rest)| run(blobs, memory, &key(number), &small(rest)),
        |memory| {
            blobs.check(memory).unwrap();
            let mut all = BTreeMap::new();
            for number in 0..4 {
                let mut value = Vec::new();
                if blobs.get(memory, &key(number), &mut value).unwrap() {
                    all.insert(number, value);
                }
            }
            all
        },
    );
}

#[test]
fn another_fiber_may_run_at_any_access() {
    // With one latch, all keys share it.
    for latches in [1, 64] {
        let memory = plain();
        let (blobs, _) = hashed(&mut memory.clone(), 100, 4, latches);
        interleaved("blobs by numbers, interleaved", &memory, &blobs, Box::new);
        let memory = plain();
        let (blobs, _) = ordered(&mut memory.clone(), 100, latches);
        interleaved("blobs by strings, interleaved", &memory, &blobs, text);
    }
}

/// A value of 9,000 bytes is read while `write` puts others of that length, at each access. Returns
/// how many reads were torn.
fn torn<W: FnMut(&mut NeverParks, u64)>(
    memory: &PlainMemory,
    mut write: W,
    mut read: impl FnMut(&mut SwitchingMemory<'_>) -> Vec<u8>,
) -> usize {
    let whole = |bytes: &[u8]| (0..1000).any(|number| bytes[..8] == value(number, 8) && bytes == value(number, 9000));
    let mut torn = 0;
    for round in 0..200 {
        let mut other = |memory: &mut NeverParks| write(memory, round);
        let bytes = read(&mut SwitchingMemory::new(memory.clone(), round % 8, &mut other));
        torn += usize::from(!whole(&bytes));
    }
    torn
}

#[test]
fn a_read_is_whole_where_an_address_in_a_map_tears() {
    // The obvious way: allocate, write, swing, free; and read what the map leads to.
    let memory = plain();
    let plain_heap = heap(&mut memory.clone(), 100);
    let buckets = Region::new(Address::from_linear(200 * PAGE), HashMap::<u64, u64, VersionLatch>::bytes_needed(10));
    let map = HashMap::<u64, u64, VersionLatch>::create(&mut memory.clone(), buckets, plain_heap.clone(), 10, 16);
    let map = map.unwrap();
    let put = |memory: &mut NeverParks, number: u64| {
        let at = plain_heap.allocate(memory, 9000).unwrap();
        memory.write_bytes(at, &value(number, 9000)).unwrap();
        let old = map.insert(memory, &1, at.bits()).unwrap();
        if let Some(old) = old {
            plain_heap.free(memory, Address::from_bits(old), 9000).unwrap();
        }
    };
    let at = plain_heap.allocate(&mut memory.clone(), 9000).unwrap();
    memory.clone().write_bytes(at, &value(0, 9000)).unwrap();
    map.insert(&mut memory.clone(), &1, at.bits()).unwrap();
    let naive = torn(
        &memory,
        |memory, round| {
            put(memory, 2 * round);
            put(memory, 2 * round + 1);
        },
        |memory| {
            let at = map.get(memory, &1).unwrap().expect("it is there");
            let mut bytes = vec![0; 9000];
            memory.read_bytes(Address::from_bits(at), &mut bytes).unwrap();
            bytes
        },
    );
    assert!(naive > 10, "the obvious way tore {naive} reads: the test does not hit what it is for");

    let memory = plain();
    let (blobs, _) = hashed(&mut memory.clone(), 100, 10, 16);
    blobs.put(&mut memory.clone(), &1, &value(0, 9000)).unwrap();
    let torn = torn(
        &memory,
        |memory, round| {
            blobs.put(memory, &1, &value(2 * round, 9000)).unwrap();
            blobs.put(memory, &1, &value(2 * round + 1, 9000)).unwrap();
        },
        |memory| {
            let mut bytes = Vec::new();
            assert!(blobs.get(memory, &1, &mut bytes).unwrap());
            bytes
        },
    );
    println!("torn: {naive} of 200 the obvious way, {torn} here");
    assert_eq!(torn, 0);
}

/// A value that names its key, and whose bytes follow from its first eight.
fn signed(key: u64, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = ((number << 8) | key).to_le_bytes().to_vec();
    bytes.extend(value((number << 8) | key, len));
    bytes
}
fn is_signed(key: u64, bytes: &[u8]) -> bool {
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    word & 0xFF == key && bytes[8..] == value(word, bytes.len() - 8)
}

#[test]
fn threads_read_whole_values() {
    const SHARED: u64 = 6;
    let memory = plain();
    let (blobs, heap) = hashed(&mut memory.clone(), 400, 6, 16);
    for key in 0..SHARED {
        blobs.put(&mut memory.clone(), &key, &signed(key, 0, 100)).unwrap();
    }
    let reads = AtomicU64::new(0);
    let random = Random::seeded("blobs, threads", 4);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (mut memory, mut random, blobs) = (memory.clone(), random.split(thread), &blobs);
            scope.spawn(move || {
                for number in 0..2000 {
                    let key = random.below(SHARED);
                    let new = signed(key, (number << 4) | thread, LENGTHS[random.below(LENGTHS.len() - 1)]);
                    match random.below(8) {
                        0 => drop(blobs.remove(&mut memory, &key).unwrap()),
                        1 => drop(blobs.update(&mut memory, &key, |now| *now = new).unwrap()),
                        _ => drop(blobs.put(&mut memory, &key, &new).unwrap()),
                    }
                }
            });
        }
        for thread in 4..8u64 {
            let (mut memory, mut random, blobs, reads) = (memory.clone(), random.split(thread), &blobs, &reads);
            scope.spawn(move || {
                let mut bytes = Vec::new();
                for _ in 0..4000 {
                    let key = random.below(SHARED);
                    if blobs.get(&mut memory, &key, &mut bytes).unwrap() {
                        assert!(is_signed(key, &bytes), "torn: {} bytes of {key}", bytes.len());
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(reads.load(Ordering::Relaxed) > 8000);
    let mut memory = memory;
    blobs.check(&mut memory).unwrap();
    for key in 0..SHARED {
        blobs.remove(&mut memory, &key).unwrap();
    }
    assert_eq!(heap.used_bytes(), 0, "nothing is lost among threads");
}

#[test]
fn a_full_heap_leaves_the_old_value() {
    let mut memory = plain();
    let (blobs, _) = hashed(&mut memory, 4, 100, 4);
    let old = value(1, 50_000);
    blobs.put(&mut memory, &1, &old).unwrap();
    let mut now = Vec::new();
    for len in [250_000, 300_000, VALUE_BYTES_MAX] {
        let refused = blobs.put(&mut memory, &1, &vec![7; len]).unwrap_err();
        assert!(matches!(refused, AccessError::NoSpace { .. }), "{refused}");
        let refused = blobs.append(&mut memory, &1, &vec![7; len - 50_000]).unwrap_err();
        assert!(matches!(refused, AccessError::NoSpace { .. }), "{refused}");
        assert!(blobs.get(&mut memory, &1, &mut now).unwrap() && now == old);
    }
    blobs.check(&mut memory).unwrap();
}

#[test]
fn a_damaged_word_is_an_error_to_readers_and_is_replaced_by_a_put() {
    let mut memory = plain();
    let (blobs, heap) = hashed(&mut memory, 40, 10, 4);
    let words = HashMap::<u64, u64, VersionLatch>::open(blobs.root(), heap.clone(), 4).unwrap();
    let mut now = Vec::new();
    for bad in [0xC000_0000_0000_0007, u64::MAX] {
        words.insert(&mut memory, &1, bad).unwrap();
        let refused = blobs.get(&mut memory, &1, &mut now).unwrap_err();
        assert!(matches!(refused, AccessError::Corrupt { got, .. } if got == bad), "{refused}");
        // The key leads to the new value, so it must not be free.
        let new = value(bad, 9000);
        assert_eq!(blobs.put(&mut memory, &1, &new), Ok(true));
        blobs.put(&mut memory, &2, &value(2, 9000)).unwrap();
        assert!(blobs.get(&mut memory, &1, &mut now).unwrap() && now == new);
        assert_eq!(blobs.check(&mut memory), Ok((2, 18_000)));
        words.insert(&mut memory, &2, bad).unwrap();
        assert_eq!(blobs.remove(&mut memory, &2), Ok(true));
    }
}

#[test]
fn keys_and_values_at_their_limits() {
    let mut memory = plain();
    let (blobs, heap) = ordered(&mut memory, 1 << 12, 4);
    // Each a prefix of the next, the empty one too.
    let lengths = [0, 1, 8, 100, KEY_BYTES_MAX - 1, KEY_BYTES_MAX];
    let mut keys: Vec<Vec<u8>> = lengths.iter().map(|len| vec![0; *len]).collect();
    if !fulgurite_testkit::is_full() {
        // A removal searches from the top for each layer that it empties, which takes long here.
        keys[5][200] = 1;
    }
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(blobs.put(&mut memory, key, &[i as u8]), Ok(false));
    }
    let mut seen = Vec::new();
    let shown = blobs.scan(&mut memory, b"", usize::MAX, |key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(shown, Ok(keys.len()));
    assert_eq!(seen, keys.iter().cloned().zip((0..6).map(|i| vec![i])).collect::<Vec<_>>());
    let long = vec![0; KEY_BYTES_MAX + 1];
    let too_long = AccessError::TooLong { what: "key", bytes: KEY_BYTES_MAX as u64 + 1, most: KEY_BYTES_MAX as u64 };
    assert_eq!(blobs.put(&mut memory, &long, b""), Err(too_long));
    assert_eq!(blobs.append(&mut memory, &long, b""), Err(too_long));
    assert_eq!(blobs.compare_and_put(&mut memory, &long, None, b""), Err(too_long));
    // An append that would pass the limit, without as much data.
    let refused = blobs.write_at(&mut memory, b"", usize::MAX, b"x");
    assert_eq!(refused, Ok(false));
    for key in &keys {
        assert_eq!(blobs.remove(&mut memory, key), Ok(true));
    }
    blobs.check(&mut memory).unwrap();
    heap.check(&mut memory).unwrap();
}

#[test]
fn a_scan_goes_on_among_changes() {
    let memory = plain();
    let (blobs, _) = ordered(&mut memory.clone(), 400, 16);
    let name = |n: u64| format!("{n:05}").into_bytes();
    for n in (0..1000).step_by(2) {
        blobs.put(&mut memory.clone(), &name(n), &signed(n % 200, n, 30)).unwrap();
    }
    // Every second key stays; the others come and go.
    let mut shown = Vec::new();
    let mut writer = memory.clone();
    let mut random = Random::seeded("blobs, scan", 8);
    let count = blobs.scan(&mut memory.clone(), &name(100), usize::MAX, |key, value| {
        for _ in 0..4 {
            let odd = name(random.below(500u64) * 2 + 1);
            if random.one_in(2) {
                blobs.put(&mut writer, &odd, &signed(1, 1, random.below(5000usize))).unwrap();
            } else {
                blobs.remove(&mut writer, &odd).unwrap();
            }
        }
        let number: u64 = std::str::from_utf8(key).unwrap().parse().unwrap();
        assert!(is_signed(if number.is_multiple_of(2) { number % 200 } else { 1 }, value));
        shown.push(number);
        if number >= 900 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(count, Ok(shown.len()));
    assert!(shown.is_sorted_by(|a, b| a < b), "ascending, and none twice");
    assert_eq!(shown.iter().filter(|n| **n % 2 == 0).count(), 401, "what stays is shown");
    assert!(shown.len() > 401, "some of what comes is shown");
}

#[test]
fn a_panic_in_a_change_changes_nothing() {
    let mut memory = plain();
    let (blobs, _) = hashed(&mut memory, 40, 10, 1);
    blobs.put(&mut memory, &1, b"old").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        blobs.update(&mut memory, &1, |value| {
            value.clear();
            panic!("of the program");
        })
    }));
    assert!(panicked.is_err());
    let mut now = Vec::new();
    assert!(blobs.get(&mut memory, &1, &mut now).unwrap() && now == b"old");
    // The only latch is not poisoned.
    assert_eq!(blobs.put(&mut memory, &2, b"new"), Ok(false));
}

/// An update once let go of the key after its change, and before the new value was there.
#[test]
fn an_update_inside_an_update_is_not_lost() {
    let memory = plain();
    let (blobs, _) = hashed(&mut memory.clone(), 64, 10, 4);
    let mut asked = 0;
    for count in 0..200 {
        blobs.put(&mut memory.clone(), &1, &0u64.to_le_bytes()).unwrap();
        let add = |value: &mut Vec<u8>| {
            let number = u64::from_le_bytes(value[..8].try_into().unwrap()) + 1;
            value[..8].copy_from_slice(&number.to_le_bytes());
            // Longer each time, so that it is written elsewhere.
            value.extend([0; 100]);
        };
        let mut done = 0;
        let mut other = |memory: &mut NeverParks| {
            asked += 1;
            done = u64::from(blobs.update(memory, &1, add).is_ok());
        };
        let mut outer = SwitchingMemory::new(memory.clone(), count, &mut other);
        assert_eq!(blobs.update(&mut outer, &1, add), Ok(Some(())));
        let mut found = Vec::new();
        blobs.get(&mut memory.clone(), &1, &mut found).unwrap();
        assert_eq!(found[..8], (1 + done).to_le_bytes(), "with another one at access {count}");
    }
    assert!(asked > 5, "only {asked} updates came between");
}
