//! Goal: transactions of jobs on several workers are serializable, with each other and with single
//! operations of containers, whatever is evicted, synced or rolled back meanwhile. Errors, panics,
//! cancellation, deadlines, removed names, roll backs and nesting end a transaction without a
//! trace, and are reported. So does the end of its memory, or the transaction is whole.
//!
//! Method: jobs on two workers run transactions that read some keys and overwrite some of them, in
//! arrays, hash maps, trees and blobs, over a cache of a few frames and on a pool that is synced.
//! Every value is written once. What each transaction found, and when it began and ended, decides
//! whether some order explains the history (`history/serial.rs`). That decision is tested on
//! histories made by hand. Bugs that are planted in transactions must be found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::history::serial::{Committed, INITIAL, Violation, serializable};
use fulgurite::{
    AccessError, Array, BPlusTree, Blobs, Context, Error, Fulgurite, HashMap, JobError, JobOptions, Medium,
    OrderedBlobs, Rooted, Transactions, latches::VersionLatch,
};
use fulgurite_memory::{Transaction, TransactionBug};
use fulgurite_testkit as trials;
use trials::Random;

/// Keys of each container. Some share a subpage, and a latch.
const KEYS: u64 = 10;
const KINDS: u64 = 5;
const JOBS: u64 = 12;

#[derive(Clone)]
struct Data {
    array: Array<u64>,
    map: Arc<Rooted<HashMap<u64, u64, VersionLatch>>>,
    tree: Arc<Rooted<BPlusTree<u64, VersionLatch>>>,
    blobs: Arc<Rooted<Blobs<u64>>>,
    strings: Arc<Rooted<OrderedBlobs>>,
}

/// The key that stands for one key of one container in a history.
fn key(kind: u64, key: u64) -> u64 {
    kind * KEYS + key
}
fn bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(if number.is_multiple_of(5) { 700 } else { 2 })
}
fn number(bytes: &[u8]) -> u64 {
    assert!(bytes.chunks(8).all(|chunk| chunk == &bytes[..8]), "a torn blob");
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

impl Data {
    fn open(memory: &Fulgurite) -> Result<Data, Error> {
        Ok(Data {
            array: memory.named("array").array(KEYS, |_| INITIAL)?,
            map: memory.named("map").hash_map(KEYS)?,
            tree: memory.named("tree").b_plus_tree(1 << 20)?,
            blobs: memory.named("blobs").blobs(KEYS, 1 << 20)?,
            strings: memory.named("strings").ordered_blobs(1000, 1 << 20)?,
        })
    }
    fn get(&self, t: &mut Transaction<'_, Context>, at: u64) -> Result<u64, AccessError> {
        let (kind, at) = (at / KEYS, at % KEYS);
        let found = match kind {
            0 => t.get(&self.array, &at)?,
            1 => t.get(&self.map, &at)?,
            2 => t.get(&self.tree, &at)?,
            3 => t.get(&self.blobs, &at)?.as_deref().map(number),
            _ => t.get(&self.strings, &at.to_be_bytes())?.as_deref().map(number),
        };
        Ok(found.unwrap_or(INITIAL))
    }
    fn put(&self, t: &mut Transaction<'_, Context>, at: u64, value: u64) -> Result<(), AccessError> {
        let (kind, at) = (at / KEYS, at % KEYS);
        match kind {
            0 => t.put(&self.array, &at, &value),
            1 => t.put(&self.map, &at, &value),
            2 => t.put(&self.tree, &at, &value),
            3 => t.put(&self.blobs, &at, &bytes(value)),
            _ => t.put(&self.strings, &at.to_be_bytes(), &bytes(value)),
        }
    }
    /// All keys of the tree, and what they hold.
    fn range(&self, t: &mut Transaction<'_, Context>) -> Result<Vec<(u64, u64)>, AccessError> {
        let found = t.range(&self.tree, &0, usize::MAX)?;
        let value = |key: u64| found.iter().find(|(found, _)| *found == key).map_or(INITIAL, |(_, value)| *value);
        Ok((0..KEYS).map(|at| (key(2, at), value(at))).collect())
    }
}

/// What jobs share.
struct World {
    data: Data,
    transactions: Arc<Transactions>,
    /// Counts begins and ends.
    clock: AtomicU64,
    numbers: AtomicU64,
}

impl World {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// One transaction, or one operation. None: it was given up.
    fn one(&self, m: &mut Context, random: &mut Random) -> Result<Option<Committed>, AccessError> {
        let number = self.numbers.fetch_add(1, Ordering::SeqCst);
        let keys: Vec<u64> = (0..2 + random.below(3u64)).map(|_| random.below(KINDS * KEYS)).collect();
        let (what, begun) = (random.below(10u64), self.now());
        let (reads, writes) = match what {
            0 => (self.transactions.run(m, |t| self.data.range(t))?, Vec::new()),
            1 => {
                let at = random.below(KEYS);
                (vec![(key(1, at), self.data.map.get(m, &at)?.unwrap_or(INITIAL))], Vec::new())
            }
            2 if number.is_multiple_of(2) => {
                let at = random.below(KEYS);
                let old = self.data.map.insert(m, &at, number)?;
                (vec![(key(1, at), old.unwrap_or(INITIAL))], vec![key(1, at)])
            }
            // Where it has the length of the old value, an object changes in its place.
            2 => {
                let at = random.below(KEYS);
                let mut old = INITIAL;
                let change = |value: &mut Vec<u8>| old = self::number(&std::mem::replace(value, bytes(number)));
                let there = self.data.blobs.update(m, &at, change)?.is_some();
                (vec![(key(3, at), old)], if there { vec![key(3, at)] } else { Vec::new() })
            }
            _ => {
                let (writes, fails) = (keys.len() * usize::from(what > 4), what == 9);
                let ended = self.transactions.run(m, |t| {
                    let mut reads: Vec<(u64, u64)> = Vec::new();
                    for (i, &at) in keys.iter().enumerate() {
                        if reads.iter().any(|(read, _)| *read == at) {
                            continue;
                        }
                        reads.push((at, self.data.get(t, at)?));
                        if i % 2 == 0 && writes > 0 {
                            self.data.put(t, at, number)?;
                            assert_eq!(self.data.get(t, at)?, number, "its own write");
                        }
                    }
                    if fails { Err(Failure::Own) } else { Ok(reads) }
                });
                match ended {
                    Ok(reads) => {
                        let mut written: Vec<u64> =
                            keys.iter().step_by(2).copied().take(if writes > 0 { keys.len() } else { 0 }).collect();
                        // A key that was read at an odd place first was not written.
                        written.retain(|at| keys.iter().position(|key| key == at).is_some_and(|first| first % 2 == 0));
                        (reads, written)
                    }
                    Err(Failure::Own) => return Ok(None),
                    Err(Failure::Access(AccessError::Conflict { .. })) => return Ok(None),
                    Err(Failure::Access(error)) => return Err(error),
                }
            }
        };
        Ok(Some(Committed { number, reads, writes, begun, ended: self.now() }))
    }
}

enum Failure {
    Own,
    Access(AccessError),
}
impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Failure {
        Failure::Access(error)
    }
}

struct Bench {
    // First, so that it ends before the directory is removed.
    memory: Fulgurite,
    _directory: tempfile::TempDir,
}

fn bench(dram: &str) -> Bench {
    bench_with_objects(dram, 0)
}

/// With objects, short blobs are objects.
fn bench_with_objects(dram: &str, objects: u64) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), "64M").objects(objects);
    let builder = Fulgurite::builder(medium).dram(dram).workers(2).durability(fulgurite::Durability::Sync);
    let builder = if objects > 0 { builder.object_cache("1M") } else { builder };
    // A build without optimization takes more stack than the 32 KiB of a fiber.
    let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap();
    Bench { memory, _directory: directory }
}

fn history(seed: u64, count: u64, objects: u64, bug: Option<TransactionBug>) -> Result<Vec<Committed>, Violation> {
    let bench = if objects > 0 { bench_with_objects("24M", objects) } else { bench("8M") };
    let memory = &bench.memory;
    let data = Data::open(memory).unwrap();
    assert_eq!(data.blobs.objects().is_some(), objects > 0);
    let transactions = match bug {
        Some(bug) => Arc::new(Transactions::new().plant(bug)),
        None => memory.transactions(),
    };
    let world = Arc::new(World { data, transactions, clock: AtomicU64::new(1), numbers: AtomicU64::new(1) });
    let jobs: Vec<_> = (0..JOBS)
        .map(|job| {
            let (world, mut random) = (world.clone(), Random(seed).split(job));
            let options = JobOptions::new().pins(24).worker(job as usize % 2);
            let code = move |m: &mut Context| {
                let mut all = Vec::new();
                for _ in 0..count / JOBS {
                    all.extend(world.one(m, &mut random)?);
                    if random.one_in(4u64) {
                        m.yield_now()?;
                    }
                }
                Ok::<_, AccessError>(all)
            };
            memory.submit_with(&options, code).unwrap()
        })
        .collect();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(5));
        memory.sync().unwrap();
    }
    let all: Vec<Committed> = jobs.into_iter().flat_map(|job| job.wait().unwrap().unwrap()).collect();
    serializable(&all)?;
    let its = world.clone();
    memory.run(move |m| its.data.map.check(m).and(its.data.blobs.check(m)).and(its.data.strings.check(m))).unwrap();
    Ok(all)
}

#[test]
fn histories_are_serializable() {
    let (mut total, mut writers) = (0, 0);
    trials::each_seed(1, 10, |seed| {
        // Blobs in a heap, and as objects.
        let objects = if seed % 2 == 0 { 20_000 } else { 0 };
        let all = history(seed, 12_000, objects, None).unwrap_or_else(|why| panic!("seed {seed}: {why:?}"));
        total += all.len() as u64;
        writers += all.iter().filter(|t| !t.writes.is_empty()).count();
    });
    assert!(writers as u64 > total / 4, "{writers} of {total}");
    trials::figure(23, "transactions of histories", total);
}

#[test]
fn planted_bugs_are_found_in_histories() {
    let wanted = [TransactionBug::ReadsNotValidated, TransactionBug::LatchesNotHeld, TransactionBug::PageForgotten];
    for bug in wanted {
        // Some are found by the job itself, which finds its own write gone.
        let objects = |seed| if seed % 2 == 0 { 20_000 } else { 0 };
        let run = |seed| history(seed, 4000, objects(seed), Some(bug)).is_err();
        let found = |seed| std::panic::catch_unwind(|| run(seed)).unwrap_or(true);
        assert!((1..10).any(found), "{bug:?} is not found");
    }
}

#[test]
fn the_decision_is_right_where_it_is_known() {
    let one = |number, reads: &[(u64, u64)], writes: &[u64], begun, ended| Committed {
        number,
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        begun,
        ended,
    };
    let circle = |result| matches!(result, Err(Violation::Circle { .. }));
    // One after the other, and overlapping.
    let chain = [one(1, &[(5, 0)], &[5], 1, 2), one(2, &[(5, 1)], &[5], 3, 4), one(3, &[(5, 1)], &[], 1, 9)];
    assert_eq!(serializable(&chain), Ok(()));
    // What had been overwritten before the reader began.
    let late = [one(1, &[(5, 0)], &[5], 1, 2), one(2, &[(5, 1)], &[5], 3, 4), one(3, &[(5, 1)], &[], 5, 9)];
    assert!(circle(serializable(&late)));
    let lost = [one(1, &[(5, 0)], &[5], 1, 9), one(2, &[(5, 0)], &[5], 1, 9)];
    assert_eq!(serializable(&lost), Err(Violation::LostUpdate { first: 1, second: 2, key: 5 }));
    // Each writes what the other has read: write skew.
    let skew = [one(1, &[(5, 0), (6, 0)], &[5], 1, 9), one(2, &[(5, 0), (6, 0)], &[6], 1, 9)];
    assert!(circle(serializable(&skew)));
    // Half of a transaction.
    let torn = [one(1, &[(5, 0), (6, 0)], &[5, 6], 1, 9), one(2, &[(5, 1), (6, 0)], &[], 1, 9)];
    assert!(circle(serializable(&torn)));
    let aborted = [one(1, &[(5, 7)], &[], 1, 9)];
    assert_eq!(serializable(&aborted), Err(Violation::NeverWritten { reader: 1, key: 5, value: 7 }));
}

type Accounts = Arc<Rooted<HashMap<u64, u64, VersionLatch>>>;

fn value(memory: &Fulgurite, map: &Accounts, key: u64) -> Option<u64> {
    let map = map.clone();
    memory.run(move |m| map.get(m, &key)).unwrap()
}

#[test]
fn whatever_ends_a_transaction_early_leaves_no_trace() {
    let bench = bench("8M");
    let memory = &bench.memory;
    let map: Accounts = memory.named("map").hash_map(1000).unwrap();
    let its = map.clone();
    memory.transaction(move |t| t.put(&its, &1, &1)).unwrap();

    let its = map.clone();
    let panicked: Result<(), Error> = memory.transaction(move |t| {
        t.put(&its, &1, &2)?;
        panic!("of the program");
    });
    assert!(matches!(panicked, Err(Error::Job(JobError::Panicked { .. }))), "{panicked:?}");
    assert_eq!(value(memory, &map, 1), Some(1));

    // A deadline that passes while the body computes.
    let its = map.clone();
    let options = JobOptions::new().deadline(Duration::from_millis(20));
    let late = memory.transaction_with(&options, move |t| {
        t.put(&its, &1, &3)?;
        std::thread::sleep(Duration::from_millis(40));
        Ok::<_, Error>(())
    });
    assert!(matches!(late, Err(Error::Access(AccessError::DeadlineExceeded))), "{late:?}");
    assert_eq!(value(memory, &map, 1), Some(1));

    // Cancelled while the body computes.
    let (its, transactions, (begun, has_begun), (go, goes)) =
        (map.clone(), memory.transactions(), std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let job = memory
        .submit(move |m| {
            transactions.run(m, |t| {
                t.put(&its, &1, &4)?;
                begun.send(()).unwrap();
                goes.recv().unwrap();
                Ok::<_, AccessError>(())
            })
        })
        .unwrap();
    has_begun.recv().unwrap();
    job.cancel();
    go.send(()).unwrap();
    assert_eq!(job.wait(), Ok(Err(AccessError::Cancelled)));
    assert_eq!(value(memory, &map, 1), Some(1));

    // More subpages than the job has pins.
    let wide = memory.named("wide").array::<[u64; 512]>(10, |_| [0; 512]).unwrap();
    let options = JobOptions::new().pins(4);
    let many = memory.transaction_with(&options, move |t| {
        (0..5).try_for_each(|index| t.put(&wide, &index, &[1; 512]))?;
        Ok::<_, Error>(())
    });
    assert!(matches!(many, Err(Error::Access(AccessError::TooManyPins { limit: 4 }))), "{many:?}");
    assert_eq!(memory.run(move |m| wide.get(m, 0)).unwrap(), [0; 512]);
}

#[test]
fn transactions_that_outlive_their_memory_are_whole_or_nothing() {
    const PAIRS: u64 = 60;
    let Bench { memory, _directory: directory } = bench("8M");
    let map: Accounts = memory.named("map").hash_map(1000).unwrap();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let goes = Arc::new(AtomicBool::new(false));
    // The first job of each worker keeps it busy. Most have not begun when the memory is dropped.
    let job = |pair: u64| {
        let (its, transactions, begun, goes) = (map.clone(), memory.transactions(), begun.clone(), goes.clone());
        let body = move |m: &mut Context| {
            transactions.run(m, |t| {
                t.put(&its, &(2 * pair), &1)?;
                let _ = begun.send(());
                loop {
                    std::thread::sleep(Duration::from_millis(2));
                    if goes.load(Ordering::Acquire) {
                        break;
                    }
                }
                t.put(&its, &(2 * pair + 1), &1)
            })
        };
        memory.submit(body).unwrap()
    };
    let jobs: Vec<_> = (0..PAIRS).map(job).collect();
    has_begun.recv().unwrap();
    let (drops, is_dropping) = std::sync::mpsc::channel();
    let gone = std::thread::spawn(move || {
        drops.send(()).unwrap();
        drop(memory);
    });
    is_dropping.recv().unwrap();
    goes.store(true, Ordering::Release);
    gone.join().unwrap();
    let (mut ended, mut refused) = (0, 0);
    for job in jobs {
        match job.wait() {
            Ok(Ok(())) => ended += 1,
            Ok(Err(AccessError::ShuttingDown)) | Err(JobError::ShutDown { .. }) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(ended > 0);
    drop(map);
    let memory = Fulgurite::builder(Medium::pool(directory.path().join("pool"))).dram("8M").start().unwrap();
    let map: Accounts = memory.named("map").hash_map(1000).unwrap();
    let mut found = 0;
    for pair in 0..PAIRS {
        let (first, second) = (value(&memory, &map, 2 * pair), value(&memory, &map, 2 * pair + 1));
        assert_eq!(first, second, "half of transaction {pair}");
        found += u64::from(first.is_some());
    }
    println!("{ended} ended, {found} of them before the last sync, {refused} were refused");
    assert!(found <= ended, "{found} of {ended}");
    assert_eq!(memory.run(|m| map.check(m)), Ok(2 * found));
}

#[test]
fn a_transaction_inside_a_job_is_refused() {
    let bench = bench("8M");
    let memory = Arc::new(bench.memory);
    let its = memory.clone();
    let nested = memory.transaction(move |_| {
        let inner = its.transaction(|_| Ok::<_, Error>(()));
        assert!(matches!(inner, Err(Error::InsideJob { what: "transaction" })), "{inner:?}");
        inner
    });
    assert!(matches!(nested, Err(Error::InsideJob { .. })), "{nested:?}");
}

#[test]
fn names_that_go_and_states_that_come_back_are_noticed() {
    let bench = bench("8M");
    let memory = &bench.memory;
    let map: Accounts = memory.named("map").hash_map(1000).unwrap();
    let array = memory.named("array").array::<u64>(10, |_| 0).unwrap();
    // More than there is DRAM.
    let wide = memory.named("wide").array::<[u64; 64]>(30_000, |_| [0; 64]).unwrap();
    let token = memory.sync().unwrap();
    // The body misses after the gate is closed, so that the roll back comes before the commit. One
    // that is late undoes the transaction.
    let twice = (0..20).any(|_| {
        let (its, transactions) = (map.clone(), memory.transactions());
        let ((begun, has_begun), (go, goes)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let job = memory.submit(move |m| {
            let mut runs = 0;
            let ended = transactions.run(m, |t| {
                runs += 1;
                let found = (t.get(&its, &1)?, t.get(&array, &1)?);
                t.put(&array, &2, &9)?;
                t.put(&its, &2, &9)?;
                begun.send(()).unwrap();
                if runs == 1 {
                    goes.recv().unwrap();
                    for row in (0..30_000).step_by(100) {
                        t.get(&wide, &row)?;
                    }
                }
                Ok::<_, AccessError>(found)
            });
            (ended, runs)
        });
        has_begun.recv().unwrap();
        let (ended, runs) = std::thread::scope(|scope| {
            let rolled_back = scope.spawn(|| memory.roll_back(token));
            std::thread::sleep(Duration::from_millis(20));
            go.send(()).unwrap();
            rolled_back.join().unwrap().unwrap();
            job.unwrap().wait().unwrap()
        });
        assert_eq!(ended, Ok((None, Some(0))));
        let left = (value(memory, &map, 2), memory.run(move |m| array.get(m, 2)).unwrap());
        assert_eq!(left, if runs == 2 { (Some(9), 9) } else { (None, 0) }, "{runs} runs");
        memory.roll_back(token).unwrap();
        runs == 2
    });
    assert!(twice, "no roll back came between");

    memory.named("map").remove().unwrap();
    let its = map.clone();
    let gone = memory.transaction(move |t| {
        t.put(&array, &3, &1)?;
        t.put(&its, &1, &1)
    });
    assert!(matches!(gone, Err(Error::Access(AccessError::Poisoned))), "{gone:?}");
    assert_eq!(memory.run(move |m| array.get(m, 3)).unwrap(), 0);
}

#[test]
fn a_full_pool_leaves_no_half_of_a_transaction() {
    const ROWS: u64 = 2500;
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), "24M");
    // The default would sync before the pool is full.
    let builder = Fulgurite::builder(medium).durability(fulgurite::Durability::Sync).dram("8M").workers(2);
    // Rows of a subpage are on the stack, some at a time.
    let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap();
    // A row a subpage, more than fit into DRAM.
    let rows = memory.named("rows").array::<[u64; 512]>(ROWS, |_| [100; 512]).unwrap();
    memory.sync().unwrap();
    let mut random = Random::seeded("transactions in a full pool", trials::seed());
    let mut refused = 0;
    for round in 0..3 {
        for _ in 0..4 * ROWS {
            let (from, to) = (random.below(ROWS), random.below(ROWS));
            let moved = memory.transaction(move |t| {
                let mut row = t.get(&rows, &from)?.unwrap_or([0; 512]);
                row[511] = row[511].wrapping_sub(7);
                t.put(&rows, &from, &row)?;
                let mut row = t.get(&rows, &to)?.unwrap_or([0; 512]);
                row[511] = row[511].wrapping_add(7);
                t.put(&rows, &to, &row)
            });
            match moved {
                Ok(()) => {}
                Err(Error::Access(AccessError::PoolFull { .. })) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        let sum = memory.run(move |m| (0..ROWS).try_fold(0u64, |sum, at| Ok(sum.wrapping_add(rows.get(m, at)?[511]))));
        assert_eq!(sum, Ok(ROWS * 100), "round {round}");
        memory.sync().unwrap();
    }
    assert_eq!(refused, 3, "the pool filled up in each round");
}
