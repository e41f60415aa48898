//! Goal: what containers do not use any more is free in their pool after a sync, serves other
//! sizes, and comes back with a roll back.
//! Method: a tree, a trie and blobs are filled, and most of each is removed. Before and after, the
//! flash pages of the pool that are needed are counted, and what is left is read. Then the freed
//! space is used for values of other lengths, without more addresses. States from before are rolled
//! back to and opened. Then subpages are overwritten in a small pool next to more small free
//! objects than are walked at a time: syncs go on, and no write may find the pool full. A
//! pinned token keeps what it sees, a full pool gets its space back, and a page that a job has
//! pinned stays. More than a sync can let go of is freed at once, and is given back with several
//! syncs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite::containers::Masstree;
use fulgurite::latches::VersionLatch;
use fulgurite::{AccessError, Address, BPlusTree, Blobs, Context, Durability, Fulgurite, Medium, Memory, Rooted};
use fulgurite_flash::{FileConfig, FileFlash};
use fulgurite_store::{Pool, StoreConfig};
use fulgurite_testkit as trials;

/// Flash pages of the pool that are needed.
pub(crate) fn live(path: &Path) -> u64 {
    let file = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    let (pool, _) = Pool::open(file, StoreConfig::default()).unwrap();
    pool.info().live
}

fn open(path: &Path, medium: Medium, tokens: usize) -> Fulgurite {
    let builder = Fulgurite::builder(medium).dram("12M").durability(Durability::Sync).keep_tokens(tokens);
    let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start();
    memory.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A container's keys: put, and removed.
trait Filled {
    fn fill(&self, m: &mut Context, key: u64) -> Result<(), AccessError>;
    fn drain(&self, m: &mut Context, key: u64) -> Result<bool, AccessError>;
    fn check_whole(&self, m: &mut Context) -> Result<(), AccessError>;
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; 100 + (key as usize * 37) % 5000]
}

impl Filled for Arc<Rooted<Blobs<u64>>> {
    fn fill(&self, m: &mut Context, key: u64) -> Result<(), AccessError> {
        Blobs::put(self, m, &key, &value(key)).map(drop)
    }
    fn drain(&self, m: &mut Context, key: u64) -> Result<bool, AccessError> {
        let mut found = Vec::new();
        if self.get(m, &key, &mut found)? {
            assert!(found == value(key), "key {key}");
        }
        Blobs::remove(self, m, &key)
    }
    fn check_whole(&self, m: &mut Context) -> Result<(), AccessError> {
        Blobs::check(self, m).map(drop)
    }
}

impl Filled for Arc<Rooted<BPlusTree<[u64; 7], VersionLatch>>> {
    fn fill(&self, m: &mut Context, key: u64) -> Result<(), AccessError> {
        self.insert(m, key, [key; 7]).map(drop)
    }
    fn drain(&self, m: &mut Context, key: u64) -> Result<bool, AccessError> {
        let removed = BPlusTree::remove(self, m, key)?;
        assert!(removed.is_none_or(|value| value == [key; 7]));
        Ok(removed.is_some())
    }
    fn check_whole(&self, m: &mut Context) -> Result<(), AccessError> {
        BPlusTree::check(self, m).map(drop)
    }
}

impl Filled for Arc<Rooted<Masstree<VersionLatch>>> {
    fn fill(&self, m: &mut Context, key: u64) -> Result<(), AccessError> {
        self.insert(m, format!("a longer key {key:08}").as_bytes(), key).map(drop)
    }
    fn drain(&self, m: &mut Context, key: u64) -> Result<bool, AccessError> {
        let removed = Masstree::remove(self, m, format!("a longer key {key:08}").as_bytes())?;
        assert!(removed.is_none_or(|value| value == key));
        Ok(removed.is_some())
    }
    fn check_whole(&self, m: &mut Context) -> Result<(), AccessError> {
        Masstree::check(self, m).map(drop)
    }
}

/// Fills, removes all but one key in 50, and compares what is live.
fn gives_back<C: Filled + Send + Sync>(what: &str, keys: u64, container: impl Fn(&Fulgurite) -> C) {
    const LEFT: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(&path, Medium::new_pool(&path, "128M"), 1);
    let its = container(&memory);
    memory.run(|m| (0..keys).try_for_each(|key| its.fill(m, key))).unwrap();
    memory.sync().unwrap();
    drop((its, memory));
    let full = live(&path);

    let memory = open(&path, Medium::pool(&path), 1);
    let its = container(&memory);
    // The last keys, so that what is left is contiguous, as in a service that forgets old ones.
    let removed = memory.run(|m| {
        let mut removed = 0;
        for key in 0..keys - keys / LEFT {
            removed += u64::from(its.drain(m, key)?);
        }
        Ok(removed)
    });
    assert_eq!(removed, Ok(keys - keys / LEFT));
    memory.sync().unwrap();
    memory.run(|m| its.check_whole(m)).unwrap();
    drop((its, memory));
    let after = live(&path);
    println!("{what}: {full} flash pages needed, {after} after most was removed");
    assert!(after * 4 < full, "{what}: {after} of {full} flash pages are still needed");

    // What is left is there, and all can be put again.
    let memory = open(&path, Medium::pool(&path), 1);
    let its = container(&memory);
    memory.run(|m| (0..keys - keys / LEFT).try_for_each(|key| its.fill(m, key))).unwrap();
    memory.sync().unwrap();
    let removed = memory.run(|m| (0..keys).try_fold(0, |sum, key| Ok(sum + u64::from(its.drain(m, key)?))));
    assert_eq!(removed, Ok(keys));
    memory.run(|m| its.check_whole(m)).unwrap();
}

#[test]
fn blobs_give_back() {
    gives_back("blobs", 4000, |memory| memory.named("data").blobs::<u64>(4000, 16 << 20).unwrap());
}
#[test]
fn trees_give_back() {
    gives_back("a B+-tree", 60_000, |memory| memory.named("data").b_plus_tree::<[u64; 7]>(16 << 20).unwrap());
}
#[test]
fn tries_give_back() {
    gives_back("a trie", 60_000, |memory| memory.named("data").masstree(16 << 20).unwrap());
}

#[test]
fn what_was_given_back_serves_other_sizes_and_rolls_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(&path, Medium::new_pool(&path, "128M"), 3);
    let blobs = memory.named("data").blobs::<u64>(10_000, 16 << 20).unwrap();
    let put = |keys: std::ops::Range<u64>, len: usize| {
        let its = blobs.clone();
        memory.run(move |m| keys.into_iter().try_for_each(|key| its.put(m, &key, &vec![key as u8; len]).map(drop)))
    };
    let remove = |keys: std::ops::Range<u64>| {
        let its = blobs.clone();
        memory.run(move |m| keys.into_iter().try_for_each(|key| its.remove(m, &key).map(drop)))
    };
    let mut states = Vec::new();
    let bytes = blobs.heap().bytes();
    let fills = [(10_000, 700), (140, 90_000), (3300, 3000), (60, 200_000), (10_000, 100)];
    for (round, (keys, len)) in fills.into_iter().enumerate() {
        put(0..keys, len).unwrap();
        states.push((memory.sync().unwrap(), keys, len));
        remove(0..keys).unwrap();
        memory.sync().unwrap();
        let its = blobs.clone();
        assert_eq!(memory.run(move |m| its.check(m)), Ok((0, 0)), "round {round}");
    }
    assert_eq!(blobs.heap().bytes(), bytes, "freed space of one size has not served another");
    // The data of a state from before it was given back.
    let tokens = memory.tokens().unwrap();
    let (token, keys, len) = states.into_iter().rev().find(|(token, ..)| tokens.contains(token)).unwrap();
    memory.roll_back(token).unwrap();
    let its = blobs.clone();
    let all = memory.run(move |m| {
        let mut found = Vec::new();
        for key in 0..keys {
            assert!(its.get(m, &key, &mut found)? && found == vec![key as u8; len], "key {key}");
        }
        its.check(m)
    });
    assert_eq!(all, Ok((keys, keys * len as u64)));
}

#[test]
fn syncs_go_on_next_to_many_free_objects() {
    const OVERWRITTEN: u64 = 512;
    const SUBPAGE: usize = 4096;
    const SYNCS: u32 = 6;
    let objects = if trials::is_full() { 1_000_000 } else { 60_000 };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let durability = Durability::Lazy { every: Duration::from_millis(100), bytes: u64::MAX };
    let builder = Fulgurite::builder(Medium::new_pool(&path, "64M")).dram("12M").durability(durability).keep_tokens(1);
    let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start().unwrap();
    let (small, large) = (memory.named("small").heap("24M").unwrap(), memory.named("large").heap("4M").unwrap());
    let its = small.clone();
    let all = memory.run(move |m| (0..objects).map(|_| its.allocate(m, 16)).collect::<Result<Vec<_>, _>>()).unwrap();
    let its = large.clone();
    let written =
        memory.run(move |m| (0..OVERWRITTEN).map(|_| its.allocate(m, SUBPAGE)).collect::<Result<Vec<_>, _>>());
    let written = written.unwrap();

    // Where syncs stop, a write finds the pool full, and this ends with an error.
    let (mut newest, mut syncs, mut syncs_beside) = (0, 0, 0);
    // A few stay, so that some pages become empty, and others do not.
    let mut freed = all.chunks(all.len() / 100).map(<[_]>::to_vec);
    let mut round = 0u64;
    while syncs_beside < SYNCS {
        let (its, some) = (small.clone(), freed.next().unwrap_or_default());
        let stays = move |i: usize| round.is_multiple_of(16) && i % 4096 == 1;
        let goes = some.into_iter().enumerate().filter(move |(i, _)| !stays(*i)).map(|(_, at)| at);
        memory
            .run(move |m| {
                let mut goes = goes;
                goes.try_for_each(|at| its.free(m, at, 16))
            })
            .unwrap();
        let at = written.clone();
        let overwrite = move |m: &mut Context| at.iter().try_for_each(|at| m.write_bytes(*at, &[round as u8; SUBPAGE]));
        memory.run(overwrite).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let token = memory.tokens().unwrap().last().copied().unwrap_or(0);
        if token > newest {
            (newest, syncs) = (token, syncs + 1);
            // All objects that go are free.
            syncs_beside += u32::from(freed.len() == 0);
        }
        round += 1;
    }
    println!("{round} rounds, {syncs} syncs seen, {syncs_beside} of them beside all free objects");
    drop((small, large, memory));
    let memory = open(&path, Medium::pool(&path), 1);
    let its = memory.named("small").heap("24M").unwrap();
    memory.run(move |m| its.check(m)).unwrap();
    let at = written[7];
    let mut found = [0; SUBPAGE];
    memory.run(|m| m.read_bytes(at, &mut found)).unwrap();
    assert_eq!(found, [(round - 1) as u8; SUBPAGE]);
}

#[test]
fn a_pinned_token_keeps_what_was_given_back() {
    const KEYS: u64 = 2000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(&path, Medium::new_pool(&path, "64M"), 1);
    let blobs = memory.named("data").blobs::<u64>(KEYS, 16 << 20).unwrap();
    memory.run(|m| (0..KEYS).try_for_each(|key| blobs.fill(m, key))).unwrap();
    let token = memory.sync().unwrap();
    memory.pin_token(token, true).unwrap();
    let remove = |memory: &Fulgurite, blobs: &Arc<Rooted<Blobs<u64>>>| {
        memory.run(|m| (0..KEYS).try_fold(0, |sum, key| Ok(sum + u64::from(blobs.drain(m, key)?))))
    };
    assert_eq!(remove(&memory, &blobs), Ok(KEYS));
    memory.sync().unwrap();
    memory.sync().unwrap();
    drop((memory, blobs));
    let pinned = live(&path);

    let memory = open(&path, Medium::pool(&path), 1);
    memory.roll_back(token).unwrap();
    let blobs = memory.named("data").blobs::<u64>(KEYS, 16 << 20).unwrap();
    memory.run(|m| blobs.check_whole(m)).unwrap();
    // It compares what it removes.
    assert_eq!(remove(&memory, &blobs), Ok(KEYS));
    memory.pin_token(token, false).unwrap();
    memory.sync().unwrap();
    memory.sync().unwrap();
    drop((memory, blobs));
    let free = live(&path);
    println!("{pinned} flash pages needed with the pinned token, {free} without");
    assert!(free * 4 < pinned, "{free} of {pinned} flash pages are still needed");
}

#[test]
fn a_full_pool_gets_its_space_back() {
    const BYTES: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = open(&path, Medium::new_pool(&path, "32M"), 1);
    let blobs = memory.named("data").blobs::<u64>(4000, 8 << 20).unwrap();
    let mut filled = Vec::new();
    for round in 0..4u8 {
        let value = vec![round; BYTES];
        let mut keys = 0;
        while keys < 4000 && memory.run(|m| Blobs::put(&blobs, m, &keys, &value).map(drop)).is_ok() {
            keys += 1;
            if keys.is_multiple_of(100) {
                memory.sync().unwrap();
            }
        }
        filled.push(keys);
        memory.sync().unwrap();
        let mut found = Vec::new();
        for key in 0..keys {
            assert!(memory.run(|m| blobs.get(m, &key, &mut found)).unwrap() && found == value, "key {key}");
            // What is removed is the last token's until a sync.
            let removed = (0..10).find_map(|_| match memory.run(|m| Blobs::remove(&blobs, m, &key)) {
                Err(AccessError::PoolFull { .. }) => {
                    memory.sync().unwrap();
                    None
                }
                removed => Some(removed),
            });
            assert_eq!(removed, Some(Ok(true)), "key {key} of {keys}");
        }
        memory.sync().unwrap();
        memory.run(|m| blobs.check_whole(m)).unwrap();
    }
    println!("{filled:?} values were put");
    assert!(filled[0] > 200 && filled.iter().all(|keys| keys * 2 > filled[0]), "{filled:?}");
}

#[test]
fn more_than_a_sync_can_let_go_of_is_given_back_by_several() {
    // 24 MiB, of which a pool with 4 MiB of DRAM remembers some 14 MiB.
    const OBJECTS: usize = 6000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let builder = Fulgurite::builder(Medium::new_pool(&path, "64M")).dram("4M").durability(Durability::Sync);
    let memory = builder.keep_tokens(1).start().unwrap();
    let heap = memory.named("data").heap("32M").unwrap();
    let fill = || {
        let mut all = Vec::new();
        for _ in 0..OBJECTS / 250 {
            let part = memory.run(|m| {
                let mut one = || -> Result<Address, AccessError> {
                    let at = heap.allocate(m, 4096)?;
                    m.write_bytes(at, &[7; 4096])?;
                    Ok(at)
                };
                (0..250).map(|_| one()).collect::<Result<Vec<_>, _>>()
            });
            all.extend(part.unwrap());
            memory.sync().unwrap();
        }
        all
    };
    for _ in 0..2 {
        let all = fill();
        memory.run(|m| all.iter().try_for_each(|at| heap.free(m, *at, 4096))).unwrap();
        for _ in 0..6 {
            memory.sync().unwrap();
        }
        memory.run(|m| heap.check(m)).unwrap();
    }
    drop((heap, memory));
    let left = live(&path);
    assert!(left < OBJECTS as u64 / 10, "{left} flash pages are still needed");
}

/// Ends the job that has the pin, also where the test panics.
struct Ends<'o>(&'o AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_pinned_page_is_not_given_back() {
    const COUNT: usize = 1500;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let builder = Fulgurite::builder(Medium::new_pool(&path, "64M")).dram("16M").durability(Durability::Sync);
    let patience = Duration::from_millis(200);
    let builder =
        builder.keep_tokens(1).with(move |runtime| runtime.stack(128 << 10).fibers(16).gate_timeout(patience));
    let memory = builder.start().unwrap();
    let heap = memory.named("data").heap("8M").unwrap();
    let take = || memory.run(|m| (0..COUNT).map(|_| heap.allocate(m, 4096)).collect::<Result<Vec<_>, _>>());
    let free = |all: &[Address]| memory.run(|m| all.iter().try_for_each(|at| heap.free(m, *at, 4096)));
    let all = take().unwrap();
    memory.run(|m| all.iter().try_for_each(|at| m.write_bytes(*at, &[7; 4096]))).unwrap();
    memory.sync().unwrap();
    let (has_pin, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            memory.run(|m| {
                let pin = m.pin(all[COUNT / 2])?;
                has_pin.store(true, Ordering::Release);
                while !over.load(Ordering::Acquire) {
                    m.sleep(Duration::from_millis(1))?;
                }
                drop(pin);
                Ok(())
            })
        });
        let ends = Ends(&over);
        while !has_pin.load(Ordering::Acquire) {
            assert!(!holder.is_finished());
            std::thread::yield_now();
        }
        free(&all).unwrap();
        memory.sync().unwrap();
        // All of it is free memory, and nobody waits for what was lent.
        let again = take().unwrap();
        memory.sync().unwrap();
        free(&again).unwrap();
        memory.sync().unwrap();
        drop(ends);
        holder.join().unwrap().unwrap();
    });
    memory.run(|m| heap.check(m)).unwrap();
    let again = take().unwrap();
    memory.sync().unwrap();
    free(&again).unwrap();
    memory.sync().unwrap();
    memory.sync().unwrap();
    drop((heap, memory));
    let left = live(&path);
    assert!(left < COUNT as u64 / 4, "{left} flash pages are still needed");
}
