//! Goal: containers made for a few entries go on growing beyond them, by bounded work in each
//! operation, and shrink again; what is freed serves other sizes; a roll back and a later run find
//! what there was. Method: maps and blobs made for ten entries in a directory get thousands,
//! compared with a model, also while accesses fail in turn. Accesses of each insert are counted. A
//! directory that runs full. Values that are replaced by longer and by shorter ones, with empty
//! pages lent in between.

use crate::common;

use std::collections::HashMap as Model;
use std::sync::Arc;

use common::{FaultyMemory, Random, Wide as Map, change_or_fail, errors, plain, same};
use fulgurite_memory::{AccessError, Blobs, Container, Directory, Memory, PAGE_BYTES, Rooted, further_ranges};

const PAGE: u64 = PAGE_BYTES as u64;
const LATCHES: usize = 16;

/// A map for ten entries, in a directory of `pages` pages.
fn map<M: Memory>(memory: &mut M, pages: u64) -> (Arc<Directory>, Rooted<Map>) {
    let directory = Arc::new(Directory::open(memory, pages * PAGE).unwrap());
    let sizes = (1 << 16, Map::bytes_to_grow(10));
    let made = Rooted::create(memory, &directory, "map", sizes, |m, heap, region| {
        Map::create_growing(m, region, heap.clone(), 10, LATCHES)
    });
    let made = made.unwrap();
    made.grow_in(&directory);
    (directory, made)
}
fn again<C: Container, M: Memory>(memory: &mut M, directory: &Arc<Directory>, name: &str) -> Rooted<C> {
    let opened: Rooted<C> = Rooted::open(memory, directory, name, LATCHES).unwrap();
    opened.grow_in(directory);
    opened
}
#[test]
fn a_map_made_for_ten_entries_gets_many_more() {
    let mut memory = FaultyMemory::new();
    let (directory, map) = map(&mut memory, 1 << 12);
    let (mut model, mut most) = (Model::new(), 0);
    for key in 0..40_000u64 {
        let before = memory.accesses;
        map.insert(&mut memory, &key, [key; 3]).unwrap();
        most = most.max(memory.accesses - before);
        model.insert(key, [key; 3]);
    }
    assert!(most < 80, "an insert made {most} accesses");
    assert!(map.buckets(&mut memory).unwrap() > 5_000);
    same(&mut memory, &map, &model);
    map.heap().check(&mut memory).unwrap();
    assert!(!further_ranges(&mut memory, map.entry()).unwrap().is_empty());
    // What does not grow itself has all ranges, too, after a roll back as well.
    map.save(&mut memory).unwrap();
    let found: Rooted<Map> = Rooted::open(&mut memory, &directory, "map", LATCHES).unwrap();
    assert_eq!(found.reload(&mut memory, &directory), Ok(true));
    same(&mut memory, &found, &model);
    found.heap().check(&mut memory).unwrap();
    // A later run, after a save and after none.
    for saved in [true, false] {
        if saved {
            map.save(&mut memory).unwrap();
        }
        let found: Rooted<Map> = again(&mut memory, &directory, "map");
        same(&mut memory, &found, &model);
        for key in 0..1000 {
            assert_eq!(found.remove(&mut memory, &key), Ok(model.remove(&key)));
            let key = 1_000_000 + key + 1000 * u64::from(saved);
            found.insert(&mut memory, &key, [1; 3]).unwrap();
            model.insert(key, [1; 3]);
        }
        same(&mut memory, &found, &model);
        found.heap().check(&mut memory).unwrap();
    }
}

#[test]
fn a_map_grows_beyond_its_capacity_among_failed_accesses() {
    let mut random = Random::seeded("growth beyond capacity", 31);
    let mut memory = FaultyMemory::new();
    let (directory, map) = map(&mut memory, 1 << 10);
    let (mut model, mut failures) = (Model::new(), 0);
    for step in 0..6000 {
        let (key, value) = (random.below(3000), [random.next(); 3]);
        memory.fail_after(random.below(30), errors()[step % 3]);
        let removes = random.below(8) == 0;
        failures += u64::from(change_or_fail(&mut memory, &map, &mut model, (key, value), removes));
        if step % 200 == 0 {
            same(&mut memory, &map, &model);
            map.heap().check(&mut memory).unwrap();
        }
    }
    same(&mut memory, &map, &model);
    let buckets = map.buckets(&mut memory).unwrap();
    assert!(failures > 500 && buckets > 100, "{failures} failures, {buckets} buckets");
    let found: Rooted<Map> = again(&mut memory, &directory, "map");
    same(&mut memory, &found, &model);
}

/// Nearly all buckets are in segments of the heap, which go back to it.
#[test]
fn a_map_beyond_its_capacity_shrinks_among_failed_accesses() {
    let mut random = Random::seeded("shrinking beyond capacity", 33);
    let mut memory = FaultyMemory::new();
    let (directory, map) = map(&mut memory, 1 << 10);
    let (mut model, mut failures) = (Model::new(), 0);
    let (mut most, mut least) = (0, u64::MAX);
    for step in 0..12_000 {
        let (key, value) = (random.below(600), [random.next(); 3]);
        memory.fail_after(random.below(60), errors()[step % 3]);
        let removes = random.below(16) < if step / 3000 % 2 == 0 { 1 } else { 15 };
        failures += u64::from(change_or_fail(&mut memory, &map, &mut model, (key, value), removes));
        if step % 200 == 0 {
            same(&mut memory, &map, &model);
            map.heap().check(&mut memory).unwrap();
            let buckets = map.buckets(&mut memory).unwrap();
            (most, least) = (most.max(buckets), if step > 3000 { least.min(buckets) } else { least });
        }
    }
    same(&mut memory, &map, &model);
    assert!(failures > 500 && least * 3 < most, "{failures} failures, {most} buckets became {least}");
    let found: Rooted<Map> = again(&mut memory, &directory, "map");
    same(&mut memory, &found, &model);
    for key in model.drain().map(|(key, _)| key).collect::<Vec<_>>() {
        found.remove(&mut memory, &key).unwrap();
    }
    found.heap().check(&mut memory).unwrap();
    assert_eq!((found.check(&mut memory), found.buckets(&mut memory)), (Ok(0), Ok(1)));
}

#[test]
fn a_map_that_was_emptied_has_nothing_of_its_heap() {
    let mut memory = plain();
    let (_, map) = map(&mut memory, 1 << 12);
    for round in 0..3 {
        for key in 0..30_000 {
            map.insert(&mut memory, &key, [key; 3]).unwrap();
        }
        let buckets = map.buckets(&mut memory).unwrap();
        assert!(buckets > 4000 && map.heap().used_bytes() > 1 << 20, "{buckets} buckets");
        (0..30_000).for_each(|key| assert_eq!(map.remove(&mut memory, &(key ^ round)), Ok(Some([key ^ round; 3]))));
        assert_eq!((map.heap().used_bytes(), map.buckets(&mut memory)), (0, Ok(1)), "round {round}");
        map.heap().check(&mut memory).unwrap();
    }
}

#[test]
fn a_full_directory_ends_growth_and_nothing_else() {
    let mut memory = plain();
    let (_, map) = map(&mut memory, 12);
    let mut model = Model::new();
    let full = (0..100_000u64).find_map(|key| match map.insert(&mut memory, &key, [key; 3]) {
        Ok(_) => {
            model.insert(key, [key; 3]);
            None
        }
        Err(error) => Some(error),
    });
    assert!(matches!(full, Some(AccessError::NoSpace { .. })), "{full:?}");
    same(&mut memory, &map, &model);
    let keys: Vec<u64> = model.keys().copied().collect();
    for key in keys {
        assert_eq!(map.remove(&mut memory, &key), Ok(model.remove(&key)));
    }
    same(&mut memory, &map, &model);
    map.heap().check(&mut memory).unwrap();
}

#[test]
fn blobs_made_for_little_get_more_and_what_is_freed_serves_other_lengths() {
    let mut random = Random::seeded("growth of blobs", 32);
    let mut memory = plain();
    let directory = Arc::new(Directory::open(&mut memory, (PAGE << 10) * 4).unwrap());
    let sizes = (1 << 16, Blobs::<u64>::bytes_needed(10).next_multiple_of(4096));
    let blobs = Rooted::create(&mut memory, &directory, "blobs", sizes, |m, heap, region| {
        Blobs::<u64>::create(m, region, heap.clone(), 10, LATCHES)
    });
    let blobs = blobs.unwrap();
    blobs.grow_in(&directory);
    let mut model: Model<u64, Vec<u8>> = Model::new();
    for step in 0..6000u64 {
        // Long ones first, then short ones in what those leave.
        let most = if step < 3000 { 100_000 } else { 20_000 };
        let (key, value) = (random.below(300), random.next() as u8);
        let value = vec![value; random.below(most) as usize];
        blobs.put(&mut memory, &key, &value).unwrap();
        model.insert(key, value);
        if step == 3000 {
            let keys: Vec<u64> = model.keys().copied().collect();
            for key in keys {
                blobs.remove(&mut memory, &key).unwrap();
            }
            model.clear();
            let bytes = blobs.heap().bytes();
            assert!(bytes > 8 << 20, "{bytes}");
            // Its ranges are adjacent, and empty pages of two of them, too.
            let lent = blobs.heap().take_empty(&mut memory).unwrap();
            assert!(lent.iter().any(|region| region.bytes > 4 << 20), "{lent:?}");
            blobs.heap().put_back(&lent);
            blobs.heap().check(&mut memory).unwrap();
        }
    }
    let long = blobs.heap().bytes();
    let mut found = Vec::new();
    for (key, value) in &model {
        assert!(blobs.get(&mut memory, key, &mut found).unwrap() && found == *value, "{key}");
    }
    blobs.heap().check(&mut memory).unwrap();
    // The short ones took nothing more.
    let ranges = further_ranges(&mut memory, blobs.entry()).unwrap();
    assert_eq!(long, blobs.heap().region().bytes + ranges.iter().map(|range| range.bytes).sum::<u64>());
    assert!(long < 64 << 20, "{long}");
}
