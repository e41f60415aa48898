//! Goal: any thread reads and writes a store by itself, whatever kind of thread it is and however
//! it ends, and what it has no right to is an error at once. Method: threads that come and go by
//! the thousand, all at the same time or one after the other, that panic in the middle, that use
//! the store while they end, that are signalled all the time. Operations inside of operations, in
//! jobs, and with handles of another store. Syncs and roll backs go on meanwhile. A process that is
//! killed finds what it had synced.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fulgurite::{AccessError, Error, Map, Store};
use fulgurite_testkit as testkit;
use testkit::Random;

const CHILD: &str = "FULGURITE_TEST_STORE";

fn open(path: &Path) -> Store {
    Store::at(path).dram("8M").size("64M").open().unwrap()
}
fn new(directory: &tempfile::TempDir) -> Store {
    open(&directory.path().join("pool"))
}
fn values(store: &Store) -> Arc<Map<u64, [u8]>> {
    store.map("values").unwrap()
}
/// A value that names its key and its number.
fn value(key: u64, number: u64) -> Vec<u8> {
    let mut bytes = [key.to_le_bytes(), number.to_le_bytes()].concat();
    bytes.resize(16 + (key * 37 + number * 11) as usize % 3000, key as u8);
    bytes
}
fn number_of(key: u64, bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*bytes[8..].first_chunk().unwrap());
    assert_eq!(bytes, value(key, number), "key {key}");
    number
}

#[test]
fn a_store_is_made_and_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    {
        let store = open(&path);
        let (users, pages) = (store.map::<u64, [u8]>("users").unwrap(), store.map::<[u8], u32>("pages").unwrap());
        users.put(&42, b"Ada").unwrap();
        users.put(&43, b"").unwrap();
        pages.put(b"/about", &7).unwrap();
        assert_eq!(users.get_with(&42, <[u8]>::len).unwrap(), Some(3));
        let token = store.sync().unwrap();
        users.put(&42, b"Grace").unwrap();
        assert!(pages.remove(b"/about").unwrap() && !pages.remove(b"/about").unwrap());
        store.roll_back(token).unwrap();
        assert_eq!(users.get(&42).unwrap().as_deref(), Some(&b"Ada"[..]));
        assert_eq!(pages.get(b"/about").unwrap(), Some(7));
        users.put(&44, &[9; 100_000]).unwrap();
    }
    let store = open(&path);
    let (users, pages) = (store.map::<u64, [u8]>("users").unwrap(), store.map::<[u8], u32>("pages").unwrap());
    let found: Vec<_> = (42..46).map(|key| users.get(&key).unwrap().map(|value| value.len())).collect();
    assert_eq!(found, [Some(3), Some(0), Some(100_000), None]);
    assert_eq!(pages.get(b"/about").unwrap(), Some(7));
    // Another type of keys is another kind of map.
    assert!(matches!(store.map::<[u8], [u8]>("users"), Err(Error::Root(_))));
    assert!(matches!(store.map::<u64, u64>("users"), Err(Error::Root(_))));
}

#[test]
fn many_values_are_loaded_and_read_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = new(&directory);
    let map = values(&store);
    // Twice as much as is cached.
    let keys = 6000;
    let pairs = (0..keys).rev().map(|key| (key, value(key, key % 5)));
    assert_eq!(map.load(pairs.clone().chain([(7, value(7, 9))])).unwrap(), keys + 1);
    let number = |key| if key == 7 { 9 } else { key % 5 };
    let mut random = Random(testkit::first_seed(1));
    for round in 0..10 {
        let some: Vec<u64> = (0..500).map(|_| random.below(keys + 100)).collect();
        let found = map.get_many(&some).unwrap();
        assert_eq!(found.len(), some.len());
        for (key, found) in some.iter().zip(found) {
            assert_eq!(found, (*key < keys).then(|| value(*key, number(*key))), "round {round}: key {key}");
        }
    }
    let (reads, records) = (store.statistics().device.reads, store.statistics().records);
    assert!(reads > 1000 && records.misses > 1000 && records.hits > 500 && records.absent > 0, "{reads}, {records:?}");
    assert!(records.index_bytes >= 8 * keys && records.index_bytes + records.cached_bytes <= 4 << 20, "{records:?}");
    let text = store.statistics().prometheus();
    assert!(text.contains(&format!("\nfulgurite_record_misses_total {}\n", records.misses)), "{text}");
    // Futures of a thread, and of a job.
    let asked = || (0..keys).step_by(100).map(|key| (key, map.get_async(&key)));
    let mut futures: Vec<_> = asked().collect();
    futures.extend(store.run(|_| Ok(asked().collect::<Vec<_>>())).unwrap());
    for (key, future) in futures {
        let found = store.run(|m| m.await_future(future)).unwrap();
        assert_eq!(found.unwrap(), Some(value(key, number(key))), "key {key}");
    }
    assert!(map.get_many::<u64>([]).unwrap().is_empty() && map.load::<u64, &[u8]>([]).unwrap() == 0);
}

#[test]
fn threads_and_jobs_use_one_map() {
    let directory = tempfile::tempdir().unwrap();
    let store = new(&directory);
    let map = values(&store);
    let (keys, threads, rounds) = (300, 8, 40 * testkit::runs(1));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, map) = (&store, &map);
            scope.spawn(move || {
                let mut random = Random(thread);
                for round in 0..rounds {
                    for key in (thread..keys).step_by(threads as usize) {
                        // Of its own keys it knows what they have; the others' are whole.
                        if thread % 2 == 0 {
                            map.put(&key, &value(key, round)).unwrap();
                        } else {
                            store.run(|m| map.within(m).put(&key, &value(key, round))).unwrap();
                        }
                        let mine = store.run(|m| map.within(m).get(&key)).unwrap().unwrap();
                        assert_eq!(number_of(key, &mine), round);
                        let other = random.below(keys);
                        if let Some(bytes) = map.get(&other).unwrap() {
                            number_of(other, &bytes);
                        }
                    }
                    if thread == 0 && round % 8 == 0 {
                        store.sync().unwrap();
                    }
                }
            });
        }
    });
    for key in 0..keys {
        assert_eq!(number_of(key, &map.get(&key).unwrap().unwrap()), rounds - 1);
    }
}

#[test]
fn a_thousand_threads_at_once_and_ten_thousand_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = new(&directory);
    let map = values(&store);
    let at_once = 1000;
    let barrier = Barrier::new(at_once);
    let get_together = |thread: u64| {
        map.put(&thread, &value(thread, 1)).unwrap();
        // All have a seat now.
        barrier.wait();
        for _ in 0..3 {
            let other = (thread * 7 + 1) % at_once as u64;
            assert_eq!(number_of(other, &map.get(&other).unwrap().unwrap()), 1);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..at_once as u64 {
            let builder = std::thread::Builder::new().stack_size(256 << 10);
            builder.spawn_scoped(scope, move || get_together(thread)).unwrap();
        }
    });
    // Each takes the seat of one that has ended, so that there is always one.
    for thread in 0..testkit::share(10_000) {
        let map = map.clone();
        let joined = std::thread::spawn(move || map.get(&(thread % at_once as u64)).unwrap().is_some()).join();
        assert!(joined.unwrap());
    }
    store.sync().unwrap();
}

/// Uses the store when its thread ends, whether its seat was given back by then or not.
type Numbers = Map<u64, [u8]>;
struct AtTheEnd(RefCell<Option<(Arc<Numbers>, u64)>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        if let Some((map, key)) = self.0.borrow_mut().take() {
            map.put(&key, &value(key, 2)).unwrap();
            assert_eq!(number_of(key, &map.get(&key).unwrap().unwrap()), 2);
        }
    }
}

thread_local! {
    static AT_THE_END: AtTheEnd = const { AtTheEnd(RefCell::new(None)) };
}

#[test]
fn destructors_of_thread_locals_use_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = new(&directory);
    let map = values(&store);
    for key in 0..40 {
        let its = map.clone();
        let thread = std::thread::spawn(move || {
            // Thread locals end in the reverse order of their first use, or in that order.
            if key % 2 == 0 {
                its.put(&key, &value(key, 1)).unwrap();
            }
            AT_THE_END.with(|end| *end.0.borrow_mut() = Some((its.clone(), key)));
            its.put(&(100 + key), &value(100 + key, 1)).unwrap();
        });
        thread.join().unwrap();
        assert_eq!(number_of(key, &map.get(&key).unwrap().unwrap()), 2);
    }
    // The last handle of all goes in a destructor.
    let path = directory.path().join("pool");
    std::thread::spawn(move || {
        drop(store);
        AT_THE_END.with(|end| *end.0.borrow_mut() = Some((map, 1000)));
    })
    .join()
    .unwrap();
    assert_eq!(number_of(1000, &values(&open(&path)).get(&1000).unwrap().unwrap()), 2);
}

#[test]
fn a_panic_in_an_operation_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let store = new(&directory);
    let map = values(&store);
    map.put(&1, &value(1, 1)).unwrap();
    let before = store.sync().unwrap();
    for round in 0..20 {
        let (store, map) = (store.clone(), map.clone());
        let thread = std::thread::spawn(move || match round % 3 {
            0 => store.run_here(|m| -> Result<(), AccessError> {
                let _section = fulgurite::views::RawMemory::write_section(m)?;
                let _pin = m.pin(fulgurite::Address::from_linear(0))?;
                panic!("out of paper");
            }),
            1 => map.get_with(&1, |_| panic!("out of paper")).map(drop).map_err(|_| AccessError::Poisoned),
            _ => store
                .transaction(|t| -> Result<(), Error> {
                    t.put(&map, &1, &value(1, 7))?;
                    panic!("out of paper");
                })
                .map_err(|_| AccessError::Poisoned),
        });
        assert!(thread.join().is_err());
    }
    assert_eq!(number_of(1, &map.get(&1).unwrap().unwrap()), 1);
    map.put(&1, &value(1, 2)).unwrap();
    // No section, no pin and no latch has stayed.
    let token = store.sync().unwrap();
    assert!(token > before);
    store.roll_back(token).unwrap();
    assert_eq!(number_of(1, &map.get(&1).unwrap().unwrap()), 2);
}

#[test]
fn what_a_thread_may_not_do_is_an_error_at_once() {
    let (directory, other_directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, other) = (new(&directory), new(&other_directory));
    let (map, others) = (values(&store), values(&other));
    others.put(&1, b"one").unwrap();
    // What is shown is under a lock, which another read might need.
    map.put(&1, b"one").unwrap();
    let transaction = || store.transaction(|t| t.get(&map, &1));
    let in_a_read = map.get_with(&1, |_| (map.get(&2), others.get(&1), transaction())).unwrap().unwrap();
    assert!(matches!(in_a_read.0, Err(Error::Access(AccessError::Nested))), "{in_a_read:?}");
    assert!(matches!(in_a_read.1, Err(Error::Access(AccessError::Nested))), "{in_a_read:?}");
    assert!(matches!(in_a_read.2, Err(Error::Access(AccessError::Nested))), "{in_a_read:?}");
    assert!(map.remove(&1).unwrap());
    // In a job, which has a memory of its own.
    let in_job = store.run(|_| Ok(map.get(&1).unwrap_err().to_string())).unwrap();
    assert!(in_job.contains("job's context"), "{in_job}");
    // With the memory of another store.
    assert_eq!(store.run_here(|m| others.within(m).get(&1)), Err(AccessError::OtherMemory));
    let mixed = store.transaction(|t| t.get(&others, &1).map(drop));
    assert!(matches!(mixed, Err(Error::Access(AccessError::OtherMemory))), "{mixed:?}");
    // In the body of a transaction an operation runs for itself, and no deeper.
    let seen = store.transaction(|t| {
        t.put(&map, &1, b"new")?;
        let outside = map.get(&1)?;
        let deeper = store.transaction(|_| store.run_here(|_| Ok::<(), AccessError>(())).map_err(Error::from));
        assert!(matches!(deeper, Err(Error::Access(AccessError::Nested))), "{deeper:?}");
        Ok::<_, Error>((outside, t.get(&map, &1)?))
    });
    assert_eq!(seen.unwrap(), (None, Some(b"new".to_vec())));
    // Two stores in one operation.
    store.run_here(|_| others.put(&2, b"two").map_err(|_| AccessError::Poisoned)).unwrap();
    assert_eq!(others.get(&2).unwrap().as_deref(), Some(&b"two"[..]));
    // As many pins as a thread may hold.
    let pins = store.run_here(|m| {
        let pins: Vec<_> = (0..33).map(|_| m.pin(fulgurite::Address::from_linear(0))).collect();
        Ok::<_, AccessError>((pins[31].is_ok(), pins[32].as_ref().err().copied()))
    });
    assert_eq!(pins.unwrap(), (true, Some(AccessError::TooManyPins { limit: 32 })));
}

#[test]
fn a_transaction_of_threads_is_all_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = new(&directory);
    let (accounts, each) = (store.map::<u64, u64>("accounts").unwrap(), 1000);
    let count = 20;
    (0..count).for_each(|key| accounts.put(&key, &each).unwrap());
    let stop = AtomicBool::new(false);
    let sum = |get: &mut dyn FnMut(u64) -> Result<Option<u64>, Error>| -> Result<u64, Error> {
        (0..count).map(|key| Ok(get(key)?.expect("an account"))).sum()
    };
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..4u64)
            .map(|thread| {
                let (store, accounts) = (&store, &accounts);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for _ in 0..testkit::share(4000) {
                        let (from, to) = (random.below(count), random.below(count));
                        let amount = random.below(10);
                        store
                            .transaction(|t| {
                                let has = t.get(accounts, &from)?.unwrap_or(0);
                                t.put(accounts, &from, &has.saturating_sub(amount))?;
                                let into = t.get(accounts, &to)?.unwrap_or(0);
                                t.put(accounts, &to, &(into + amount.min(has)))?;
                                Ok::<_, Error>(())
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let total = store.transaction(|t| sum(&mut |key| t.get(&accounts, &key)));
                assert_eq!(total.unwrap(), count * each);
                store.sync().unwrap();
            }
        });
        for mover in movers {
            mover.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(sum(&mut |key| accounts.get(&key)).unwrap(), count * each);
}

/// The process that is killed.
#[test]
#[ignore = "started by the test below"]
fn putters() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = open(path.as_ref());
    let map = values(&store);
    let done: Vec<_> = (0..2).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let map = &map;
            scope.spawn(move || {
                for number in 1.. {
                    let key = number % 50 * 2 + thread as u64;
                    map.put(&key, &value(key, number)).unwrap();
                    done.store(number, Ordering::SeqCst);
                }
            });
        }
        testkit::sync_and_report(&done, Duration::from_millis(5), || {
            store.sync().unwrap();
        });
    });
}

#[test]
fn a_killed_process_leaves_what_it_had_synced() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for kill in 0..testkit::runs(4) {
        let path = directory.path().join(format!("pool {kill}"));
        let mut child = testkit::again(module_path!(), "putters");
        let told = testkit::kill_after(child.env(CHILD, &path), 2, Duration::from_millis(500), |_| ());
        let map = values(&open(&path));
        for (thread, told) in told.into_iter().enumerate() {
            // The last 50 puts that were reported have each a key of its own.
            for number in told.saturating_sub(49).max(1)..=told {
                let key = number % 50 * 2 + thread as u64;
                let found = number_of(key, &map.get(&key).unwrap().expect("it was synced"));
                assert!(
                    found >= number && (found - number).is_multiple_of(50),
                    "key {key}: {found}, and {number} was synced"
                );
            }
        }
    }
}
