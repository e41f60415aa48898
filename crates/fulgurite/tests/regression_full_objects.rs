//! Goal: a pool that is full to the brim can be emptied, whatever its kind, the durability and the
//! length of its values, and takes values again once some were removed. Method: blobs are put until
//! several in a row are refused, with a sync after each. A tenth is removed, and half of it put
//! back. Then the rest is removed, and the pool is filled once more. Syncs and refusals are
//! counted, not time.

use std::time::Duration;

use fulgurite::{AccessError, Blobs, Durability, Error, Fulgurite, Medium, Rooted};
use fulgurite_testkit as testkit;
use testkit::Random;

/// Refusals in a row, each followed by a sync, after which a pool counts as full.
const IN_A_ROW: u64 = 4;
/// Values that one job puts or removes.
const OF_A_JOB: u64 = 50;

type Map = Rooted<Blobs<u64>>;

/// Makes a sync, where the durability has any.
fn make_room(memory: &Fulgurite) {
    match memory.sync() {
        Ok(_) | Err(Error::OnlyCache) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Puts values under the keys from `first` on, until the pool is full or has `most` more. Returns
/// how many, and how many were refused before.
fn fill(memory: &Fulgurite, map: &Map, first: u64, most: u64, len: usize) -> (u64, u64) {
    let value = vec![7u8; len];
    let (mut put, mut refused, mut in_a_row) = (0, 0, 0);
    while in_a_row < IN_A_ROW && put < most {
        let before = put;
        let result = memory.run(|m| {
            for _ in 0..OF_A_JOB.min(most - before) {
                map.put(m, &(first + put), &value)?;
                put += 1;
            }
            Ok(())
        });
        in_a_row = if put > before { 0 } else { in_a_row };
        match result {
            Ok(()) => {}
            // Of a pool without objects, the addresses end first.
            Err(AccessError::PoolFull { .. } | AccessError::NoSpace { .. }) => {
                (refused, in_a_row) = (refused + 1, in_a_row + 1);
                make_room(memory);
            }
            Err(error) => panic!("{error}"),
        }
    }
    (put, refused)
}

/// Removes these keys, with a sync whenever that is refused. Returns how often it was.
fn remove(memory: &Fulgurite, map: &Map, keys: &[u64]) -> u64 {
    let (mut done, mut refused, mut in_a_row) = (0, 0, 0);
    while done < keys.len() {
        let before = done;
        let result = memory.run(|m| {
            for key in keys[before..].iter().take(OF_A_JOB as usize) {
                assert!(map.remove(m, key)?, "key {key} is there");
                done += 1;
            }
            Ok(())
        });
        match result {
            Ok(()) => {}
            Err(AccessError::PoolFull { .. }) => {
                refused += 1;
                in_a_row = if done > before { 1 } else { in_a_row + 1 };
                assert!(in_a_row <= IN_A_ROW, "nothing could be removed after {in_a_row} syncs");
                make_room(memory);
            }
            Err(error) => panic!("{error}"),
        }
    }
    refused
}

fn full_and_empty(objects: bool, durability: Durability, len: usize) {
    let directory = tempfile::tempdir().unwrap();
    // Short values are many.
    let mib = match (testkit::is_full() || objects, len < 1000) {
        (true, true) => 16,
        (true, false) => 32,
        (false, true) => 4,
        (false, false) => 16,
    };
    let pool_bytes = mib << 20;
    let mut medium = Medium::new_pool(directory.path().join("pool"), pool_bytes);
    if objects {
        medium = medium.objects(4000);
    }
    let lazy = matches!(durability, Durability::Lazy { .. });
    let builder = Fulgurite::builder(medium).dram("16M").workers(2).durability(durability);
    let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(8).spin(Duration::ZERO)).start().unwrap();
    // Some are objects, the others are in whole subpages.
    let map = memory.named("values").blobs::<u64>(2000, "1M").unwrap();
    let syncs = || memory.tokens().map_or(0, |tokens| tokens.last().copied().unwrap_or(0));

    let (count, refused) = fill(&memory, &map, 0, u64::MAX, len);
    assert!(count * len as u64 > pool_bytes / 4, "{count} values of {len} bytes");
    // As much as a sync can make room for comes at once, and not a value a sync.
    assert!(refused <= 20 + count / 400, "{refused} refusals until {count} values of {len} bytes filled it");
    let mut keys: Vec<u64> = (0..count).collect();
    let mut random = Random::seeded("full pools", len as u64);
    (1..keys.len()).rev().for_each(|at| keys.swap(at, random.below(at as u64 + 1) as usize));
    let (some, rest) = keys.split_at(keys.len().div_ceil(10));

    let before = syncs();
    let mut refused = remove(&memory, &map, some);
    (0..2).for_each(|_| make_room(&memory));
    let (put, refused_puts) = fill(&memory, &map, count, (some.len() as u64).div_ceil(2), len);
    assert_eq!(put, (some.len() as u64).div_ceil(2), "{} were removed, {refused_puts} refused", some.len());

    let again: Vec<u64> = (count..count + put).collect();
    refused += remove(&memory, &map, rest) + remove(&memory, &map, &again);
    let (removed, made) = (count + put, syncs() - before);
    println!("objects {objects}, {durability:?}, {len} bytes: {removed} removed, {made} syncs, {refused} refused");
    // A removal writes a few subpages, and there is room for some dozens of them between two syncs.
    assert!(made <= 20 + removed / 10, "{made} syncs for {removed} values");
    assert!(if lazy { refused == 0 } else { refused <= made }, "{refused} of {removed} removals were refused");

    assert_eq!(memory.run(|m| map.check(m)).unwrap().0, 0);
    make_room(&memory);
    let (again, _) = fill(&memory, &map, 0, u64::MAX, len);
    assert!(again >= count - count / 8, "{again} values the second time, {count} the first");
    memory.run(|m| map.check(m)).unwrap();
    testkit::figure(25, "values removed from full pools", removed);
}

/// Lengths of values in pools of objects. Short ones, which take the longest, are for `make
/// test-full`.
fn lengths() -> &'static [usize] {
    if testkit::is_full() { &[100, 1000, 4090, 60_000] } else { &[1500, 60_000] }
}
#[test]
fn a_full_pool_of_objects_is_emptied_with_a_lazy_durability() {
    lengths().iter().for_each(|len| full_and_empty(true, Durability::default(), *len));
}
#[test]
fn a_full_pool_of_objects_is_emptied_with_syncs_of_the_program() {
    lengths().iter().for_each(|len| full_and_empty(true, Durability::Sync, *len));
}
#[test]
fn a_full_pool_is_emptied_with_a_lazy_durability() {
    [100, 4090, 60_000].iter().for_each(|len| full_and_empty(false, Durability::default(), *len));
}
#[test]
fn a_full_pool_is_emptied_with_syncs_of_the_program() {
    [100, 4090, 60_000].iter().for_each(|len| full_and_empty(false, Durability::Sync, *len));
}
#[test]
fn a_full_pool_is_emptied_as_a_cache() {
    [100, 4090, 60_000].iter().for_each(|len| full_and_empty(false, Durability::Cache, *len));
}
