//! Goal: blobs whose small values are objects hold what was put last, whole, through eviction,
//! syncs, roll backs and restarts, and a cached one is read without the medium.
//! Method: more values than the object cache holds, of lengths up to and past a subpage. Jobs on
//! two workers change keys of their own and read other jobs' keys, while another thread syncs. A
//! model has what each key must be. Objects and elements of an array change together, and a roll
//! back must find them of one state. Bugs planted in how a sync writes objects and holds them back
//! are found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::{AccessError, Blobs, Context, Durability, Error, Fulgurite, Medium, Rooted};
use fulgurite_flash::{FileConfig, FileFlash};
use fulgurite_format::{ObjectLocation, SUBPAGE_BYTES};
use fulgurite_runtime::PlantedInObjects;
use fulgurite_store::{Pool, StoreConfig};
use fulgurite_testkit as trials;
use trials::Random;

type Numbers = Arc<Rooted<Blobs<u64>>>;
type Model = BTreeMap<u64, Vec<u8>>;

const JOBS: u64 = 6;
/// Keys of each job.
const KEYS: u64 = 1500;

/// A value that tells its key, and by its check whether it is whole.
fn value(key: u64, number: u64, len: usize) -> Vec<u8> {
    let mut value = vec![(number ^ key) as u8; len.max(24)];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..16].copy_from_slice(&number.to_le_bytes());
    let check = fulgurite::containers::hash_bytes(&value[..value.len() - 8]);
    let at = value.len() - 8;
    value[at..].copy_from_slice(&check.to_le_bytes());
    value
}
fn is_whole(key: u64, value: &[u8]) -> bool {
    let (body, check) = value.split_at(value.len() - 8);
    body[..8] == key.to_le_bytes() && fulgurite::containers::hash_bytes(body).to_le_bytes() == check
}

fn open(medium: Medium) -> (Fulgurite, Numbers) {
    open_with(medium, Durability::default())
}
fn open_with(medium: Medium, durability: Durability) -> (Fulgurite, Numbers) {
    let builder = Fulgurite::builder(medium).dram("24M").object_cache("1M").workers(2).durability(durability);
    let memory = builder.start().unwrap();
    let numbers = memory.named("numbers").blobs::<u64>(JOBS * KEYS, 16 << 20).unwrap();
    (memory, numbers)
}

/// A job's changes and reads.
fn work(
    m: &mut Context,
    numbers: &Numbers,
    job: u64,
    seed: u64,
    steps: u64,
    model: &mut Model,
) -> Result<(), AccessError> {
    let mut random = Random(seed ^ job.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut found = Vec::new();
    for step in 0..steps {
        let key = job * KEYS + random.below(KEYS);
        match random.below(10) {
            0 => {
                assert_eq!(numbers.remove(m, &key)?, model.remove(&key).is_some());
            }
            1..5 => {
                // Mostly of the key's own length, so that they are overwritten in place.
                let len = if random.below(4) == 0 { random.below(5000usize) } else { 30 + key as usize % 400 };
                let new = value(key, seed + step, len);
                numbers.put(m, &key, &new)?;
                model.insert(key, new);
            }
            5 => {
                // All behind the key changes, so that it is whole again.
                let Some(old) = model.get(&key) else { continue };
                let new = value(key, seed + step, old.len());
                match random.below(3) {
                    0 => assert!(numbers.write_at(m, &key, 8, &new[8..])?),
                    1 => assert_eq!(numbers.update(m, &key, |bytes| bytes.copy_from_slice(&new))?, Some(())),
                    _ => {
                        assert!(numbers.remove(m, &key)?);
                        assert_eq!(numbers.append(m, &key, &new)?, new.len());
                    }
                }
                model.insert(key, new);
            }
            6..8 => {
                assert_eq!(numbers.get(m, &key, &mut found)?, model.contains_key(&key));
                assert_eq!(found, *model.get(&key).unwrap_or(&Vec::new()), "key {key}");
            }
            _ => {
                let other = random.below(JOBS * KEYS);
                if numbers.get(m, &other, &mut found)? {
                    assert!(is_whole(other, &found), "key {other} was read torn");
                }
            }
        }
    }
    Ok(())
}

/// All jobs at once, and syncs meanwhile.
fn work_and_sync(memory: &Fulgurite, numbers: &Numbers, seed: u64, steps: u64, models: &mut [Model]) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                memory.sync().unwrap();
            }
        });
        let jobs: Vec<_> = models
            .iter_mut()
            .enumerate()
            .map(|(job, model)| {
                let (its, mut own) = (numbers.clone(), std::mem::take(model));
                scope.spawn(move || {
                    *model = memory
                        .run(move |m| {
                            work(m, &its, job as u64, seed, steps, &mut own)?;
                            Ok(own)
                        })
                        .unwrap();
                })
            })
            .collect();
        let ended: Vec<_> = jobs.into_iter().map(|job| job.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a job failed");
    });
}

fn compare(memory: &Fulgurite, numbers: &Numbers, models: &[Model]) {
    let all: Model = models.iter().flat_map(|model| model.iter().map(|(key, value)| (*key, value.clone()))).collect();
    let its = numbers.clone();
    memory
        .run(move |m| {
            let mut found = Vec::new();
            for key in 0..JOBS * KEYS {
                assert_eq!(its.get(m, &key, &mut found)?, all.contains_key(&key), "key {key}");
                assert_eq!(found, *all.get(&key).unwrap_or(&Vec::new()), "key {key}");
            }
            let bytes = all.values().map(|value| value.len() as u64).sum();
            assert_eq!(its.check(m)?, (all.len() as u64, bytes));
            Ok(())
        })
        .unwrap();
}

#[test]
fn values_are_whole_through_syncs_roll_backs_and_restarts() {
    trials::each_seed(1, trials::runs(5), |seed| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let (mut memory, mut numbers) = open(Medium::new_pool(&path, "64M").objects(20_000));
        let mut models = vec![Model::new(); JOBS as usize];
        for round in 0..3 {
            let seed = seed * 1000 + round * 100;
            work_and_sync(&memory, &numbers, seed, 2500, &mut models);
            let token = memory.sync().unwrap();
            compare(&memory, &numbers, &models);
            // What comes after the token is undone.
            let mut undone = models.clone();
            for (job, model) in undone.iter_mut().enumerate() {
                let (its, mut own) = (numbers.clone(), std::mem::take(model));
                memory.run(move |m| work(m, &its, job as u64, seed + 1, 300, &mut own)).unwrap();
            }
            memory.roll_back(token).unwrap();
            compare(&memory, &numbers, &models);
            drop((memory, numbers));
            (memory, numbers) = open(Medium::pool(&path));
            compare(&memory, &numbers, &models);
        }
    });
}

#[test]
fn a_cached_value_is_read_without_the_medium() {
    let directory = tempfile::tempdir().unwrap();
    let (memory, numbers) = open(Medium::new_pool(directory.path().join("pool"), "64M").objects(20_000));
    let its = numbers.clone();
    memory
        .run(move |m| {
            for key in 0..2000 {
                its.put(m, &key, &value(key, key, 128))?;
            }
            Ok(())
        })
        .unwrap();
    memory.sync().unwrap();
    let read_all = || {
        let its = numbers.clone();
        memory
            .run(move |m| {
                let mut found = Vec::new();
                for key in 0..2000 {
                    assert!(its.get(m, &key, &mut found)? && found == value(key, key, 128));
                }
                Ok(())
            })
            .unwrap();
    };
    read_all();
    let before = memory.runtime().statistics().device;
    read_all();
    let after = memory.runtime().statistics().device;
    assert_eq!(after.reads, before.reads, "cached values were read from the medium");
}

/// Objects of many lengths in a pool that was opened just now, so that none is cached.
fn cold(count: u64, len: impl Fn(u64) -> usize + Sync) -> (tempfile::TempDir, Fulgurite, Numbers) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (memory, numbers) = open(Medium::new_pool(&path, "64M").objects(20_000));
    memory
        .run(|m| {
            for key in 0..count {
                numbers.put(m, &key, &value(key, 1, len(key)))?;
            }
            Ok(())
        })
        .unwrap();
    memory.sync().unwrap();
    drop((memory, numbers));
    let (memory, numbers) = open(Medium::pool(&path));
    (directory, memory, numbers)
}

/// Jobs change an object and an element of an array in one section each, while a thread syncs. Then
/// the last token is restored. What is wrong, if anything is.
fn of_one_state(seed: u64, bug: Option<PlantedInObjects>) -> Result<u64, String> {
    const EACH: u64 = 2000;
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), "64M").objects(20_000);
    let builder = Fulgurite::builder(medium).dram("24M").object_cache("1M").workers(2).durability(Durability::Sync);
    let builder = builder.with(move |runtime| match bug {
        Some(bug) => runtime.plant_in_objects(bug),
        None => runtime,
    });
    let memory = builder.start().unwrap();
    let numbers: Numbers = memory.named("numbers").blobs::<u64>(4 * EACH, 1 << 20).unwrap();
    let counts = memory.named("counts").array(4 * EACH, |_| 0u64).unwrap();
    let is = |m: &mut Context, key: u64| {
        let (mut found, count) = (Vec::new(), counts.get(m, key)?);
        let there = numbers.get(m, &key, &mut found)?;
        Ok(if count == 0 { !there } else { there && found == value(key, count, 200) })
    };
    let mut changes = 0;
    for round in 0..2 {
        let over = AtomicBool::new(false);
        let (ended, token) = std::thread::scope(|scope| {
            let syncs = scope.spawn(|| {
                let mut token = memory.sync().unwrap();
                while !over.load(Ordering::Relaxed) {
                    token = memory.sync().unwrap();
                }
                token
            });
            let jobs: Vec<_> = (0..4u64)
                .map(|job| {
                    let mut random = Random(seed << 8 | round).split(job);
                    let (memory, numbers, is) = (&memory, &numbers, &is);
                    scope.spawn(move || {
                        memory.run(|m| {
                            for step in 0..3000 {
                                let key = job * EACH + random.below(EACH);
                                if random.one_in(3u64) {
                                    // Also of others, which change them meanwhile.
                                    numbers.get(m, &(random.below(4 * EACH)), &mut Vec::new())?;
                                    if !is(m, key)? {
                                        return Ok(Err(format!("key {key} is not what its job has put")));
                                    }
                                    continue;
                                }
                                let _section = m.write_section()?;
                                let count = counts.get(m, key)? + 1;
                                match numbers.put(m, &key, &value(key, count, 200)) {
                                    Err(AccessError::PoolFull { .. }) => return Ok(Ok(step)),
                                    put => put?,
                                };
                                counts.set(m, key, count)?;
                            }
                            Ok(Ok(3000))
                        })
                    })
                })
                .collect();
            let ended: Vec<_> = jobs.into_iter().map(|job| job.join().unwrap()).collect();
            over.store(true, Ordering::Relaxed);
            (ended, syncs.join().unwrap())
        });
        for job in ended {
            changes += job.map_err(|error| error.to_string())??;
        }
        memory.roll_back(token).map_err(|error| error.to_string())?;
        for key in 0..4 * EACH {
            if !memory.run(|m| is(m, key)).map_err(|error| error.to_string())? {
                return Err(format!("round {round}: key {key} and its count are of two states"));
            }
        }
    }
    Ok(changes)
}

#[test]
fn objects_and_pages_are_of_one_state() {
    let mut changes = 0;
    trials::each_seed(1, 2, |seed| {
        changes += of_one_state(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    });
    assert!(changes > 1000, "only {changes} changes");
}

#[test]
fn planted_bugs_are_found() {
    for bug in PlantedInObjects::ALL {
        let found = (1..40).find_map(|seed| of_one_state(seed, Some(bug)).err());
        let why = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: {why}");
    }
}

#[test]
fn a_cold_value_costs_one_read() {
    const COUNT: u64 = 200;
    let len = |key| 1 + key as usize * SUBPAGE_BYTES / COUNT as usize;
    let (_directory, memory, numbers) = cold(COUNT, len);
    let reads = |memory: &Fulgurite| memory.runtime().statistics().device.reads;
    for key in 0..COUNT {
        // Its part of the index is resident then, and nothing of the value.
        let length = memory.run(|m| numbers.value_len(m, &key)).unwrap();
        assert_eq!(length, Some(len(key).max(24)));
        let before = reads(&memory);
        let found = memory.run(|m| {
            let mut found = Vec::new();
            Ok(numbers.get(m, &key, &mut found)? && found == value(key, 1, len(key)))
        });
        assert_eq!((found, reads(&memory) - before), (Ok(true), 1), "key {key}");
    }
}

#[test]
fn jobs_that_miss_one_object_share_a_read() {
    const JOBS: u64 = 40;
    let (_directory, memory, numbers) = cold(100, |_| 700);
    for key in 0..100 {
        memory.run(|m| numbers.value_len(m, &key)).unwrap();
        let before = memory.runtime().statistics().device.reads;
        let ready = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let jobs: Vec<_> = (0..JOBS)
            .map(|job| {
                let (numbers, ready) = (numbers.clone(), ready.clone());
                let options = fulgurite::JobOptions::new().worker(job as usize % 2);
                let code = move |m: &mut Context| {
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < JOBS {
                        m.yield_now()?;
                    }
                    let mut found = Vec::new();
                    Ok::<_, AccessError>(numbers.get(m, &key, &mut found)? && is_whole(key, &found))
                };
                memory.submit_with(&options, code).unwrap()
            })
            .collect();
        jobs.into_iter().for_each(|job| assert_eq!(job.wait().unwrap(), Ok(true)));
        assert_eq!(memory.runtime().statistics().device.reads - before, 1, "key {key}");
    }
}

/// Each object that changes is remembered as it was until the next sync, however small it is. A
/// pool that syncs by itself does so in time.
#[test]
fn changes_that_would_leave_a_sync_no_room_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (memory, numbers) = open_with(Medium::new_pool(&path, "64M").objects(20_000), Durability::Sync);
    let put_all = |number| {
        let (its, mut done) = (numbers.clone(), 0);
        let result = memory.run(|m| {
            for key in 0..JOBS * KEYS {
                its.put(m, &key, &value(key, number, 100))?;
                done += 1;
            }
            Ok(())
        });
        (result, done)
    };
    put_all(1).0.unwrap();
    memory.sync().unwrap();
    let (result, done) = put_all(2);
    assert!(matches!(result, Err(AccessError::PoolFull { .. })), "{result:?}");
    memory.sync().unwrap();
    // After the sync there is room again.
    memory.run(|m| numbers.put(m, &(JOBS * KEYS - 1), &value(JOBS * KEYS - 1, 3, 100)).map(drop)).unwrap();
    memory.sync().unwrap();
    drop((memory, numbers));
    let (memory, numbers) = open(Medium::pool(&path));
    memory
        .run(|m| {
            let mut found = Vec::new();
            for key in 0..JOBS * KEYS {
                let number = if key + 1 == JOBS * KEYS { 3 } else { 1 + u64::from(key < done) };
                assert!(numbers.get(m, &key, &mut found)? && found == value(key, number, 100), "key {key}");
            }
            numbers.check(m)
        })
        .unwrap();
    let put = |number, key| memory.run(|m| numbers.put(m, &key, &value(key, number, 100)).map(drop));
    (3..6).for_each(|number| (0..JOBS * KEYS).for_each(|key| put(number, key).unwrap()));
}

/// Freed objects wait to be reported to the pool, and must not wait for a sync.
#[test]
fn after_many_removals_what_is_read_is_cached_and_the_rest_is_free() {
    const LEFT: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (memory, numbers) = open(Medium::new_pool(&path, "64M").objects(20_000));
    let its = numbers.clone();
    memory.run(move |m| (0..JOBS * KEYS).try_for_each(|key| its.put(m, &key, &value(key, 1, 100)).map(drop))).unwrap();
    memory.sync().unwrap();
    // More than may wait in the cache, and fewer than the pool has room for between two syncs.
    for keys in [LEFT..6000, 6000..JOBS * KEYS] {
        let its = numbers.clone();
        memory.run(move |m| keys.clone().try_for_each(|key| its.remove(m, &key).map(drop))).unwrap();
        memory.sync().unwrap();
    }
    let read_all = || {
        let its = numbers.clone();
        let read = move |m: &mut Context| {
            let mut found = Vec::new();
            for key in 0..LEFT {
                assert!(its.get(m, &key, &mut found)? && is_whole(key, &found));
            }
            Ok(())
        };
        memory.run(read).unwrap();
    };
    read_all();
    let before = memory.runtime().statistics().device.reads;
    read_all();
    assert_eq!(memory.runtime().statistics().device.reads, before, "the freed objects have taken the cache");
    // The older state is dropped with the second one.
    memory.sync().unwrap();
    memory.sync().unwrap();
    drop((memory, numbers));
    let file = Arc::new(FileFlash::open(&FileConfig::existing(&path)).unwrap());
    let (pool, _) = Pool::open(file, StoreConfig::default()).unwrap();
    let is_object = |subpage: &u32| {
        let found = pool.locate_object(*subpage).unwrap();
        found.is_some_and(|found| found.at != ObjectLocation::FREED && found.at.length < SUBPAGE_BYTES as u16)
    };
    let left = (0..pool.geometry().subpages).filter(is_object).count();
    assert_eq!(left as u64, LEFT, "freed objects keep space in the pool");
}

#[test]
fn pools_of_both_kinds_open_as_before() {
    let directory = tempfile::tempdir().unwrap();
    for objects in [0, 20_000] {
        let path = directory.path().join(objects.to_string());
        let (memory, numbers) = open(Medium::new_pool(&path, "64M").objects(objects));
        assert_eq!(numbers.objects().is_some(), objects > 0);
        let its = numbers.clone();
        memory.run(move |m| (0..500).try_for_each(|key| its.put(m, &key, &value(key, 1, 100)).map(drop))).unwrap();
        drop((memory, numbers));
        // Without an object cache, objects are cached in frames.
        for cache in ["0", "1M", "0", "1M"] {
            let memory = Fulgurite::builder(Medium::pool(&path)).dram("24M").object_cache(cache).start().unwrap();
            let numbers = memory.named("numbers").blobs::<u64>(JOBS * KEYS, 16 << 20).unwrap();
            let its = numbers.clone();
            memory
                .run(move |m| {
                    let mut found = Vec::new();
                    for key in 0..500 {
                        assert!(its.get(m, &key, &mut found)? && is_whole(key, &found), "key {key}");
                        if key % 3 == 0 {
                            its.put(m, &key, &value(key, 2, found.len()))?;
                        }
                    }
                    its.check(m)
                })
                .unwrap();
        }
    }
}

#[test]
fn a_pool_that_was_made_without_objects_has_them_when_it_is_opened_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (memory, old) = open(Medium::new_pool(&path, "64M"));
    let fill = |memory: &Fulgurite, numbers: &Numbers, number: u64| {
        let its = numbers.clone();
        memory.run(move |m| (0..500).try_for_each(|key| its.put(m, &key, &value(key, number, 100)).map(drop))).unwrap();
    };
    fill(&memory, &old, 1);
    drop((memory, old));
    let opened = |medium: Medium| {
        let (memory, old) = open(medium);
        let new = memory.named("new").blobs::<u64>(JOBS * KEYS, 1 << 20).unwrap();
        (memory, old, new)
    };
    // First a pool made so, then a pool that is so already, then one opened without saying so.
    for (round, medium) in
        [Medium::pool(&path).objects(20_000), Medium::pool_or_new(&path, "64M").objects(20_000), Medium::pool(&path)]
            .into_iter()
            .enumerate()
    {
        let (memory, old, new) = opened(medium);
        // What was made before stays where it is.
        assert_eq!((old.objects().is_some(), new.objects().is_some()), (false, true));
        fill(&memory, &new, round as u64);
        let its = old.clone();
        memory
            .run(move |m| {
                let mut found = Vec::new();
                for key in 0..500 {
                    assert!(its.get(m, &key, &mut found)? && found == value(key, 1, 100), "key {key}");
                }
                its.check(m)?;
                new.check(m)
            })
            .unwrap();
    }
}

#[test]
fn a_pool_too_full_for_objects_says_so_and_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("24M").start().unwrap();
    // All that it promises.
    let room: u64 = 12 << 20;
    memory.named("all").array(room / 8, |at| at).unwrap();
    memory.sync().unwrap();
    drop(memory);
    let error = Fulgurite::builder(Medium::pool(&path).objects(1000)).dram("24M").start().err().unwrap();
    assert!(error.to_string().contains("choose more"), "{error}");
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("24M").start().unwrap();
    let all = memory.named("all").array(room / 8, |_| 0).unwrap();
    assert_eq!(memory.run(|m| all.get(m, room / 8 - 1)).unwrap(), room / 8 - 1);
}

#[test]
fn a_transaction_changes_objects_all_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (memory, numbers) = open(Medium::new_pool(&path, "64M").objects(20_000));
    let put = |keys: std::ops::Range<u64>, number: u64| {
        memory.transaction(|t| {
            for key in keys.clone() {
                let new = value(key, number, 100);
                t.put(&numbers, &key, &new)?;
                // The last of two puts counts, and the transaction sees it.
                t.put(&numbers, &key, &new)?;
                assert_eq!(t.get(&numbers, &key)?, Some(new));
            }
            if number == 2 { Err(Error::Access(AccessError::Cancelled)) } else { Ok(()) }
        })
    };
    put(0..20, 1).unwrap();
    let token = memory.sync().unwrap();
    assert!(put(10..30, 2).is_err());
    put(15..25, 3).unwrap();
    let removed = memory.transaction(|t| Ok::<_, Error>((t.remove(&numbers, &0)?, t.remove(&numbers, &900)?)));
    assert_eq!(removed.unwrap(), (true, false));
    let compare = |memory: &Fulgurite, numbers: &Numbers, expected: &dyn Fn(u64) -> Option<u64>| {
        for key in 0..40 {
            let found = memory.run(|m| {
                let mut found = Vec::new();
                Ok(numbers.get(m, &key, &mut found)?.then_some(found))
            });
            assert_eq!(found.unwrap(), expected(key).map(|number| value(key, number, 100)), "key {key}");
        }
        memory.run(|m| numbers.check(m)).unwrap();
    };
    let after = |key: u64| match key {
        1..15 => Some(1),
        15..25 => Some(3),
        _ => None,
    };
    compare(&memory, &numbers, &after);
    memory.roll_back(token).unwrap();
    compare(&memory, &numbers, &|key| (key < 20).then_some(1));
    put(15..25, 3).unwrap();
    memory.transaction(|t| t.remove(&numbers, &0)).unwrap();
    memory.sync().unwrap();
    drop((memory, numbers));
    let (memory, numbers) = open(Medium::pool(&path));
    compare(&memory, &numbers, &after);
}
