//! Goal: a map of records has the value that was put last under each key, whatever its length,
//! whether it is cached or on flash, after segments were reclaimed, checkpoints made, states rolled
//! back and the program started again. Method: random puts, removals, gets and transactions against
//! a `BTreeMap`, by threads that are no workers and by jobs, with segments of a few pages and DRAM
//! for a few records. Tokens are kept with their model. The map is checked from top to bottom at
//! each token. Seeds are printed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fulgurite::containers::{RecordMap, TypedRecords};
use fulgurite::{AccessError, Error, Fulgurite, Medium, Rooted, Store};
use fulgurite_testkit as testkit;
use testkit::Random;

type Map = Arc<Rooted<TypedRecords<[u8], [u8]>>>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pages of a segment: few, so that reclaim has much to do.
const SEGMENT_PAGES: u32 = 16;
/// Tokens that are kept.
const TOKENS: usize = 4;

fn open(path: &Path) -> (Store, Map) {
    let builder = Fulgurite::builder(Medium::pool_or_new(path, "64M")).dram("10M").record_cache("2M");
    let store = Store::from(builder.keep_tokens(TOKENS).start().unwrap());
    let map = store
        .named("map")
        .container("4M", 0, |m, heap, _| TypedRecords::create_with(m, heap.clone(), [1, 2], SEGMENT_PAGES));
    (store, map.unwrap())
}

fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(400u64);
    match number {
        0 => Vec::new(),
        1..20 => vec![number as u8; 3000 + 40 * number as usize],
        _ => format!("key {number}").into_bytes(),
    }
}
fn value(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(40) {
        0 => 0,
        1 => 4096,
        2 => 4000 + random.below(200usize),
        3 => random.below(20_000usize),
        _ => random.below(600usize),
    };
    random.bytes(bytes)
}
fn get(store: &Store, map: &Map, by_job: bool, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let found = match by_job {
        true => store.run(|m| map.get(m, key, &mut value)),
        false => store.run_here(|m| map.get(m, key, &mut value)),
    };
    found.unwrap().then_some(value)
}

/// Some puts and removals, of which a transaction makes all or none.
fn transaction(store: &Store, map: &Map, model: &mut Model, random: &mut Random) {
    let mut after = model.clone();
    let changes: Vec<_> =
        (0..random.below(6)).map(|_| (key(random), random.one_in(3).then(|| value(random)))).collect();
    let fails = random.one_in(4);
    let made = store.transaction(|t| {
        for (key, value) in &changes {
            assert_eq!(t.get(map, key)?, after.get(key).cloned(), "what it has put itself is there");
            match value {
                Some(value) => t.put(map, key, value)?,
                None => assert_eq!(t.remove(map, key)?, after.contains_key(key)),
            }
            match value {
                Some(value) => drop(after.insert(key.clone(), value.clone())),
                None => drop(after.remove(key)),
            }
        }
        if fails { Err(Error::Access(AccessError::Cancelled)) } else { Ok(()) }
    });
    assert_eq!(made.is_ok(), !fails, "{made:?}");
    if !fails {
        *model = after;
    }
}

fn same(store: &Store, map: &Map, model: &Model) {
    for (key, value) in model {
        assert_eq!(get(store, map, false, key).as_ref(), Some(value), "key {:?}", String::from_utf8_lossy(key));
    }
    let (keys, _) = store.run_here(|m| map.check_all(m)).unwrap();
    assert_eq!((map.len(), keys), (model.len() as u64, model.len() as u64));
}

#[test]
fn a_map_is_as_its_model() {
    testkit::each_seed(1, 4, |seed| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let mut random = Random(seed);
        let (mut store, mut map) = open(&path);
        let mut model = Model::new();
        let mut kept: Vec<(u64, Model)> = Vec::new();
        for step in 0..6000 {
            let (key, by_job) = (key(&mut random), random.one_in(3));
            match random.below(100) {
                0..55 => {
                    let value = value(&mut random);
                    let had = match by_job {
                        true => store.run(|m| map.put(m, &key, &value)),
                        false => store.run_here(|m| map.put(m, &key, &value)),
                    };
                    assert_eq!(had.unwrap(), model.insert(key, value).is_some(), "step {step}");
                }
                55..65 => {
                    let had = store.run_here(|m| map.remove(m, &key)).unwrap();
                    assert_eq!(had, model.remove(&key).is_some(), "step {step}");
                }
                65..92 => assert_eq!(get(&store, &map, by_job, &key).as_ref(), model.get(&key), "step {step}"),
                92..98 => transaction(&store, &map, &mut model, &mut random),
                _ => match random.below(10) {
                    0 => {
                        drop((store, map));
                        (store, map) = open(&path);
                        same(&store, &map, &model);
                        // The end made a token.
                        kept.clear();
                    }
                    1..3 if !kept.is_empty() => {
                        let (token, then) = kept[random.below(kept.len())].clone();
                        store.roll_back(token).unwrap();
                        kept.retain(|(other, _)| *other <= token);
                        model = then;
                        same(&store, &map, &model);
                    }
                    _ => {
                        let token = store.sync().unwrap();
                        kept.push((token, model.clone()));
                        let tokens = store.tokens().unwrap();
                        kept.retain(|(token, _)| tokens.contains(token));
                        if random.one_in(4) {
                            same(&store, &map, &model);
                        }
                    }
                },
            }
        }
        same(&store, &map, &model);
        let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        let (segments, needed) = (map.counts().segments, bytes as u64 / (u64::from(SEGMENT_PAGES) * 4096) + 1);
        assert!(segments <= 8 + 3 * needed, "{segments} segments, of which {needed} are needed");
        let mut reclaimed = 0;
        while store.run_here(|m| map.reclaim(m)).unwrap() {
            reclaimed += 1;
        }
        same(&store, &map, &model);
        let counts = map.counts();
        println!("seed {seed}: {} keys, {reclaimed} segments more were reclaimed, {counts:?}", model.len());
        assert!(counts.reclaimed > reclaimed && counts.copied > 0, "{counts:?}");
    });
}

#[test]
fn a_key_or_value_that_is_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, map) = open(&directory.path().join("pool"));
    let long = vec![7; (64 << 10) + 1];
    let refused = store.run_here(|m| map.put(m, &long, b""));
    assert!(matches!(refused, Err(AccessError::TooLong { what: "key", .. })), "{refused:?}");
    assert!(!store.run_here(|m| map.get(m, &long, &mut Vec::new())).unwrap());
    let refused = store.run_here(|m| map.put(m, b"key", &long));
    assert!(matches!(refused, Err(AccessError::TooLong { what: "value", .. })), "{refused:?}");
    assert!(map.is_empty());
}

#[test]
fn a_memory_without_dram_for_records_says_so() {
    let memory = Fulgurite::builder(Medium::memory("16M")).dram("8M").start().unwrap();
    let heap = memory.heap("2M").unwrap();
    let made = memory.run(|m| Ok(RecordMap::create(m, heap, [0; 2]).err()));
    assert_eq!(made.unwrap(), Some(AccessError::NoRecords));
}
