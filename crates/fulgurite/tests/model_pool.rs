//! Goal: a pool keeps what has a name. Whatever was synced last is there after the program has
//! ended or was killed. A roll back makes an older state again, in DRAM and in the pool. An older
//! token can be read while the live state goes on. Temporary pages are removed with their process.
//! Method: random operations on containers of every kind, by jobs on one and on two workers, over a
//! pool in a small file and a cache that is smaller than the data, mirrored in models. A sync keeps
//! a copy of the model under its token. A restart closes the pool after a sync and opens it; a
//! crash copies the file while the pool is in use with changes that were not synced, and opens the
//! copy. All of it again with the store in a device of the process, which from one opening to the
//! next it is or is not. After each, everything must equal the model of the state that should be
//! there, and all checks pass. Seeds are printed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{
    AccessError, Address, Array, BPlusTree, Blobs, Context, Durability, Error, Fulgurite, HashMap, Heap, JobOptions,
    Medium, Memory, OrderedBlobs, Region, Rooted,
    containers::{Masstree, RootError},
    latches::{NoLatch, VersionLatch},
    pool::{Controller, Permissions, PoolError},
    views::{Pinned, Ptr},
};
use fulgurite_testkit::Random;

const KEYS: u64 = 4000;
const POOL_BYTES: u64 = 48 << 20;
const TOKENS: usize = 64;

#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    hashed: BTreeMap<u64, u64>,
    tree: BTreeMap<u64, u64>,
    trie: BTreeMap<Vec<u8>, u64>,
    array: BTreeMap<u64, u64>,
    objects: Vec<(Address, usize, u64)>,
    value: u64,
    blobs: BTreeMap<u64, Vec<u8>>,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Hashed = HashMap<u64, [u64; 4], VersionLatch>;

/// Handles.
#[derive(Clone)]
struct Data {
    hashed: Arc<Rooted<Hashed>>,
    tree: Arc<Rooted<BPlusTree<u64, VersionLatch>>>,
    trie: Arc<Rooted<Masstree<VersionLatch>>>,
    array: Array<u64>,
    heap: Arc<Heap>,
    value: Ptr<u64>,
    blobs: Arc<Rooted<Blobs<u64>>>,
    files: Arc<Rooted<OrderedBlobs>>,
}

/// Keys of blobs: few, so that they are often replaced.
const BLOBS: u64 = 200;

/// A value of a length and with bytes that follow from a number.
fn blob_of(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(40) { number % 30_000 } else { number % 700 };
    number.to_le_bytes().into_iter().cycle().take(len as usize).collect()
}

fn key_of(key: u64) -> Vec<u8> {
    format!("key number {key:08}").into_bytes()
}

impl Data {
    fn of(memory: &Fulgurite) -> Result<Data, Error> {
        Ok(Data {
            hashed: memory.named("hashed").hash_map(KEYS / 2)?,
            tree: memory.named("tree").b_plus_tree(2 << 20)?,
            trie: memory.named("trie").masstree(2 << 20)?,
            array: memory.named("array").array(KEYS, |_| 0)?,
            heap: memory.named("heap").heap(4 << 20)?,
            value: memory.named("value").value(0)?,
            blobs: memory.named("blobs").blobs(BLOBS / 2, 3 << 20)?,
            files: memory.named("files").ordered_blobs(BLOBS / 2, 3 << 20)?,
        })
    }

    fn step(&self, m: &mut Context, model: &mut Model, random: &mut Random) -> Result<(), AccessError> {
        let (key, value) = (random.below(KEYS), random.next());
        match random.below(18) {
            0 | 1 => {
                let old = self.hashed.insert(m, &key, [value; 4])?;
                assert_eq!(old, model.hashed.insert(key, value).map(|v| [v; 4]));
            }
            2 => assert_eq!(self.hashed.remove(m, &key)?, model.hashed.remove(&key).map(|v| [v; 4])),
            3 | 4 => assert_eq!(self.tree.insert(m, key, value)?, model.tree.insert(key, value)),
            5 => assert_eq!(self.tree.remove(m, key)?, model.tree.remove(&key)),
            6 | 7 => assert_eq!(self.trie.insert(m, &key_of(key), value)?, model.trie.insert(key_of(key), value)),
            8 | 9 => assert_eq!(self.trie.remove(m, &key_of(key))?, model.trie.remove(&key_of(key))),
            10 => {
                self.array.set(m, key, value)?;
                model.array.insert(key, value);
            }
            11 | 12 => {
                let (key, value) = (key % BLOBS, blob_of(value));
                assert_eq!(self.blobs.put(m, &key, &value)?, model.blobs.insert(key, value).is_some());
            }
            13 => assert_eq!(self.blobs.remove(m, &(key % BLOBS))?, model.blobs.remove(&(key % BLOBS)).is_some()),
            14 => {
                let (key, value) = (key_of(key % BLOBS), blob_of(value));
                assert_eq!(self.files.put(m, &key, &value)?, model.files.insert(key, value).is_some());
            }
            15 => {
                let (key, more) = (key_of(key % BLOBS), value.to_le_bytes());
                let now = model.files.entry(key.clone()).or_default();
                now.extend(more);
                assert_eq!(self.files.append(m, &key, &more)?, now.len());
            }
            16 => {
                let bytes = 8 * (1 + random.below(60) as usize);
                let at = self.heap.allocate(m, bytes)?;
                m.write_bytes(at, &value.to_le_bytes().repeat(bytes / 8))?;
                model.objects.push((at, bytes, value));
            }
            _ if !model.objects.is_empty() => {
                let index = random.below(model.objects.len() as u64) as usize;
                let (at, bytes, _) = model.objects.swap_remove(index);
                self.heap.free(m, at, bytes)?;
            }
            _ => {
                m.store(self.value, value)?;
                model.value = value;
            }
        }
        Ok(())
    }

    fn equals(&self, m: &mut Context, model: &Model) -> Result<(), AccessError> {
        self.hashed.check(m)?;
        self.tree.check(m)?;
        self.trie.check(m)?;
        self.blobs.check(m)?;
        self.files.check(m)?;
        for heap in [self.hashed.heap(), self.tree.heap(), self.trie.heap(), &self.heap] {
            heap.check(m)?;
        }
        let mut found = Model { value: m.load(self.value)?, ..Model::default() };
        self.hashed.for_each(m, |&key, value| found.hashed.extend([(key, value[0])]))?;
        self.tree.scan(m, 0, u64::MAX, |key, &value| {
            found.tree.insert(key, value);
            ControlFlow::Continue(())
        })?;
        self.trie.scan(m, b"", usize::MAX, |key, value| {
            found.trie.insert(key.to_vec(), value);
            ControlFlow::Continue(())
        })?;
        for key in 0..KEYS {
            found.array.extend(Some((key, self.array.get(m, key)?)).filter(|(_, value)| *value != 0));
        }
        for &(at, bytes, value) in &model.objects {
            let mut filled = vec![0; bytes];
            m.read_bytes(at, &mut filled)?;
            assert_eq!(filled, value.to_le_bytes().repeat(bytes / 8), "an object is somebody else's too");
        }
        let mut value = Vec::new();
        for key in 0..BLOBS {
            if self.blobs.get(m, &key, &mut value)? {
                found.blobs.insert(key, value.clone());
            }
        }
        self.files.scan(m, b"", usize::MAX, |key, value| {
            found.files.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        found.objects.clone_from(&model.objects);
        assert_eq!(found, *model);
        Ok(())
    }
}

/// Runs a job that may pin as much as any operation does.
fn job<T: Send + 'static>(
    memory: &Fulgurite,
    code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'static,
) -> T {
    let options = JobOptions::default().pins(16);
    memory.runtime().submit_with(&options, code).unwrap().wait().unwrap().unwrap()
}

/// The workers, and where the store runs.
#[derive(Clone, Copy)]
struct How {
    workers: usize,
    /// In a device, each time that this is odd; where it is none, never.
    on_device: Option<u32>,
}

fn start(medium: Medium, how: How) -> Fulgurite {
    let builder = Fulgurite::builder(medium).dram("6M").workers(how.workers).keep_tokens(TOKENS);
    let on_device = how.on_device.is_some_and(|time| time % 2 == 1);
    let builder = if on_device { builder.on_device(None) } else { builder };
    let memory = builder.with(|runtime| runtime.fibers(8).stack(128 << 10)).start().unwrap();
    // Its directory was read, by a device that has used its core for that, or by a worker.
    assert_eq!(memory.statistics().device.device_cpu_ns > 0, on_device);
    memory
}
fn open(path: &Path, how: &mut How) -> Fulgurite {
    how.on_device.iter_mut().for_each(|time| *time += 1);
    start(Medium::pool(path), *how)
}

struct Test {
    directory: tempfile::TempDir,
    path: PathBuf,
    how: How,
    memory: Option<Fulgurite>,
    data: Data,
    model: Model,
    /// What each token names.
    states: Vec<(u64, Model)>,
    random: Random,
}

impl Test {
    fn new(seed: u64, how: How) -> Test {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let memory = start(Medium::new_pool(path.clone(), POOL_BYTES), how);
        let data = Data::of(&memory).unwrap();
        let (memory, model, states, random) = (Some(memory), Model::default(), Vec::new(), Random(seed));
        Test { directory, path, how, memory, data, model, states, random }
    }
    fn memory(&self) -> &Fulgurite {
        self.memory.as_ref().expect("it is open")
    }
    fn work(&mut self) {
        let (data, mut model, mut random) = (self.data.clone(), self.model.clone(), self.random.clone());
        (self.model, self.random) = job(self.memory(), move |m| {
            for _ in 0..random.below(2000) {
                data.step(m, &mut model, &mut random)?;
            }
            Ok((model, random))
        });
    }
    fn sync(&mut self) {
        let token = self.memory().sync().unwrap();
        assert!(self.states.last().is_none_or(|(last, _)| *last < token));
        self.states.push((token, self.model.clone()));
    }
    /// The tokens whose states are known.
    fn tokens(&self) -> Vec<u64> {
        let kept = self.memory().tokens().unwrap();
        kept.into_iter().filter(|token| self.states.iter().any(|(known, _)| known == token)).collect()
    }
    fn state_of(&self, token: u64) -> Model {
        self.states.iter().find(|(known, _)| *known == token).expect("it is known").1.clone()
    }
    fn check(&self) {
        let (data, model) = (self.data.clone(), self.model.clone());
        job(self.memory(), move |m| data.equals(m, &model));
    }

    fn roll_back(&mut self) {
        let tokens = self.tokens();
        let token = tokens[self.random.below(tokens.len() as u64) as usize];
        self.memory().roll_back(token).unwrap();
        self.states.retain(|(known, _)| *known <= token);
        self.model = self.state_of(token);
        assert!(self.memory().tokens().unwrap().into_iter().all(|kept| kept <= token));
    }
    fn restart(&mut self) {
        self.sync();
        self.memory = None;
        let memory = open(&self.path, &mut self.how);
        self.data = Data::of(&memory).unwrap();
        self.memory = Some(memory);
    }
    fn crash(&mut self) {
        self.sync();
        let synced = self.model.clone();
        self.work();
        let copy = self.directory.path().join("copy");
        std::fs::copy(&self.path, &copy).unwrap();
        {
            let memory = open(&copy, &mut self.how);
            let data = Data::of(&memory).unwrap();
            job(&memory, move |m| data.equals(m, &synced));
        }
        std::fs::remove_file(copy).unwrap();
    }
    fn read_old(&mut self) {
        let tokens = self.tokens();
        let token = tokens[self.random.below(tokens.len() as u64) as usize];
        let (reader, then) = (self.memory().open_token(token, 4 << 20).unwrap(), self.state_of(token));
        // What it reads moves and is overwritten meanwhile.
        self.work();
        self.memory().runtime().write_back().unwrap();
        let hashed = reader.container::<HashMap<u64, [u64; 4], NoLatch>>("hashed").unwrap();
        let array = reader.container::<Array<u64>>("array").unwrap();
        let value = then.value;
        reader
            .run(move |m| {
                let (mut found, mut elements) = (BTreeMap::new(), BTreeMap::new());
                hashed.for_each(m, |&key, value| found.extend([(key, value[0])]))?;
                for key in 0..KEYS {
                    elements.extend(Some((key, array.get(m, key)?)).filter(|(_, value)| *value != 0));
                }
                assert_eq!((found, elements), (then.hashed, then.array));
                Ok(())
            })
            .unwrap();
        assert_eq!(reader.value::<u64>("value").unwrap(), value);
        assert!(matches!(reader.value::<u32>("value"), Err(Error::Root(RootError::WrongType { .. }))));
        if let Some(&older) = tokens.iter().find(|older| **older < token) {
            let refused = self.memory().roll_back(older);
            assert!(matches!(refused, Err(Error::Pool(PoolError::TokenInUse { .. }))), "{refused:?}");
        }
    }
}

fn run(seed: u64, how: How) {
    let mut test = Test::new(seed, how);
    test.sync();
    for _ in 0..12 {
        test.work();
        match test.random.below(7) {
            0..3 => test.sync(),
            3 => test.roll_back(),
            4 => test.restart(),
            5 => test.crash(),
            _ => test.read_old(),
        }
        test.check();
    }
}

fn run_all(workers: usize, on_device: Option<u32>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = number("FULGURITE_SEED").unwrap_or(1);
    for seed in first..first + number("FULGURITE_RUNS").unwrap_or(4) {
        eprintln!("seed {seed}; FULGURITE_SEED={seed} FULGURITE_RUNS=1 repeats it");
        run(seed, How { workers, on_device });
    }
}

#[test]
fn a_pool_is_what_its_model_is_with_one_worker() {
    run_all(1, None);
}
#[test]
fn a_pool_is_what_its_model_is_with_two_workers() {
    run_all(2, None);
}
#[test]
fn a_pool_whose_store_runs_in_a_device_is_what_its_model_is() {
    run_all(1, Some(1));
    run_all(2, Some(0));
}

fn small() -> (tempfile::TempDir, Fulgurite) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = Fulgurite::builder(Medium::new_pool(path, 16 << 20)).dram("4M").keep_tokens(4);
    let memory = memory.with(|runtime| runtime.fibers(8).stack(128 << 10)).start().unwrap();
    (directory, memory)
}

#[test]
fn a_name_is_one_thing_in_a_process() {
    let (_directory, memory) = small();
    let one = memory.named("map").hash_map::<u64, u64>(100).unwrap();
    let two = memory.named("map").hash_map::<u64, u64>(5000).unwrap();
    assert!(Arc::ptr_eq(&one, &two));
    let wrong = memory.named("map").hash_map::<u64, u32>(100).expect_err("another type is refused").to_string();
    assert!(wrong.contains("hash map of u64 to u64") && wrong.contains("hash map of u64 to u32"), "{wrong}");
    let otherwise =
        memory.named("map").container::<HashMap<u64, u64, NoLatch>>(0, 0, |_, _, _| Err(AccessError::Cancelled));
    assert!(matches!(otherwise, Err(Error::OpenOtherwise { .. })));
    assert!(matches!(memory.named("").value(1u64), Err(Error::Root(RootError::BadName { .. }))));
    let mut names: Vec<String> = memory.roots().unwrap().into_iter().map(|root| root.name).collect();
    names.sort();
    assert_eq!(names, ["map"]);

    memory.named("map").remove().unwrap();
    assert!(matches!(memory.named("map").remove(), Err(Error::Root(RootError::Unknown { .. }))));
    assert_eq!(memory.run(move |m| one.get(m, &1)), Err(AccessError::Poisoned));
    let other = memory.named("map").hash_map::<u64, u32>(100).unwrap();
    assert_eq!(memory.run(move |m| other.insert(m, &1, 2)), Ok(None));
}

#[test]
fn who_holds_what_a_roll_back_took_away_gets_an_error() {
    let (_directory, memory) = small();
    let old = memory.named("old").hash_map::<u64, u64>(100).unwrap();
    let before = memory.sync().unwrap();
    let new = memory.named("new").b_plus_tree::<u64>(1 << 20).unwrap();
    let (tree, map) = (new.clone(), old.clone());
    memory.run(move |m| tree.insert(m, 1, 1).and(map.insert(m, &1, 1))).unwrap();
    memory.sync().unwrap();
    memory.roll_back(before).unwrap();
    assert_eq!(memory.run(move |m| new.get(m, 1)), Err(AccessError::Poisoned));
    assert_eq!(memory.run(move |m| old.get(m, &1)), Ok(None));
    let again = memory.named("new").b_plus_tree::<u64>(1 << 20).unwrap();
    assert_eq!(memory.run(move |m| again.insert(m, 1, 5)), Ok(None));
    assert!(matches!(memory.roll_back(before + 100), Err(Error::Pool(PoolError::NoToken { .. }))));
    assert!(matches!(memory.open_token(before + 100, 4 << 20), Err(Error::Pool(PoolError::NoToken { .. }))));
}

/// Flat media behind a device of the process: the same data, and the device is seen to have worked.
#[test]
fn a_flat_medium_can_be_behind_a_device() {
    let directory = tempfile::tempdir().unwrap();
    let file = Medium::new_file(directory.path().join("flat"), 16 << 20);
    for medium in [file, Medium::memory(16 << 20)] {
        let memory = Fulgurite::builder(medium).dram("4M").on_device(None).start().unwrap();
        let map = memory.hash_map::<u64, [u64; 64]>(6_000).unwrap();
        let (written, read) = (map.clone(), map);
        // More than there is of DRAM, so that most of it went out and came back.
        memory.run(move |m| (0..6_000).try_for_each(|i| written.insert(m, &i, [i * 3 + 1; 64]).map(|_| ()))).unwrap();
        let found = memory.run(move |m| (0..6_000).map(|i| read.get(m, &i)).collect::<Result<Vec<_>, _>>()).unwrap();
        for (i, found) in (0..).zip(found) {
            assert_eq!(found, Some([i * 3 + 1; 64]));
        }
        let device = memory.statistics().device;
        assert!(device.device_cpu_ns > 0 && device.reads > 1024 && device.writes > 1024, "{device:?}");
    }
}

#[test]
fn what_has_no_pool_keeps_nothing_and_says_so() {
    let memory = Fulgurite::builder(Medium::memory(16 << 20)).dram("4M").start().unwrap();
    assert!(matches!(memory.sync(), Err(Error::NoPool { .. })));
    assert!(matches!(memory.named("x").value(1u64), Err(Error::NoPool { .. })));
    assert!(matches!(memory.tokens(), Err(Error::NoPool { .. })));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let medium = Medium::new_pool(path.clone(), 16 << 20);
    let cache = Fulgurite::builder(medium).dram("4M").durability(Durability::Cache).start().unwrap();
    cache.named("x").value(1u64).unwrap();
    assert!(matches!(cache.sync(), Err(Error::OnlyCache)));
    drop(cache);
    let small = Fulgurite::builder(Medium::new_pool(directory.path().join("no"), 64 << 10)).start();
    assert!(matches!(small, Err(Error::Geometry(_))), "{:?}", small.err());
    assert!(!directory.path().join("no").exists(), "refused before anything is created");
    let flat = directory.path().join("flat");
    std::fs::write(&flat, vec![1; 1 << 20]).unwrap();
    let none = Fulgurite::builder(Medium::pool(flat)).start().err().expect("there is no pool").to_string();
    assert!(none.contains("flat: this is no pool"), "{none}");
    let exists = Fulgurite::builder(Medium::new_pool(path, 16 << 20)).start();
    assert!(matches!(exists, Err(Error::Open(_))), "{:?}", exists.err());
}

#[test]
fn a_lazy_pool_syncs_by_itself_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let lazy = |every, bytes| Durability::Lazy { every, bytes };
    let medium = Medium::new_pool(path.clone(), 16 << 20);
    let memory = Fulgurite::builder(medium).dram("4M").durability(lazy(Duration::from_millis(1), u64::MAX));
    let memory = memory.start().unwrap();
    let map = memory.named("map").hash_map::<u64, u64>(100).unwrap();
    let first = memory.tokens().unwrap();
    let begun = Instant::now();
    while memory.tokens().unwrap() == first {
        assert!(begun.elapsed() < Duration::from_secs(10), "no token in 10 s");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(memory);

    // Only the end syncs here.
    let never = lazy(Duration::from_secs(1 << 30), u64::MAX);
    let open = |path: &Path| Fulgurite::builder(Medium::pool(path)).dram("4M").durability(never).start().unwrap();
    drop(map);
    let memory = open(&path);
    let map = memory.named("map").hash_map::<u64, u64>(100).unwrap();
    memory.run(move |m| map.insert(m, &1, 2)).unwrap();
    drop(memory);
    let memory = open(&path);
    let map = memory.named("map").hash_map::<u64, u64>(100).unwrap();
    assert_eq!(memory.run(move |m| map.get(m, &1)), Ok(Some(2)));
}

#[test]
fn pages_are_allocated_deleted_and_restricted_and_roll_back() {
    const PAGE: u64 = 64 << 10;
    let (_directory, memory) = small();
    let read_only = Permissions { write: false, ..Permissions::DEFAULT };
    let region = memory.alloc(3, Permissions::DEFAULT).unwrap();
    assert_eq!(region.bytes, 3 * PAGE);
    let before = memory.sync().unwrap();
    memory.set_permissions(region, read_only).unwrap();
    assert_eq!(memory.permissions(region.base.add(PAGE)).unwrap(), Some(read_only));
    let refused = memory.delete(region);
    assert!(matches!(refused, Err(Error::Pool(PoolError::NotPermitted { .. }))), "{refused:?}");
    memory.roll_back(before).unwrap();
    assert_eq!(memory.permissions(region.base).unwrap(), Some(Permissions::DEFAULT));

    let map = memory.named("map").value(7u64).unwrap();
    let root = Region::new(map.address(), PAGE);
    let beyond = Region::new(region.base, 1 << 30);
    for wrong in [root, beyond, Region::new(Address::from_linear(0), PAGE), Region::new(region.base, PAGE / 2)] {
        assert!(matches!(memory.delete(wrong), Err(Error::Root(RootError::NotHandedOut { .. }))), "{wrong:?}");
        let refused = memory.set_permissions(wrong, read_only);
        assert!(matches!(refused, Err(Error::Root(RootError::NotHandedOut { .. }))), "{wrong:?}");
    }
    memory.delete(region).unwrap();
    assert_eq!(memory.permissions(region.base).unwrap(), None);
    assert!(matches!(memory.delete(region), Err(Error::Root(RootError::NotHandedOut { .. }))));
    assert_eq!(memory.alloc(2, Permissions::DEFAULT).unwrap().base, region.base, "addresses are used again");
    assert!(matches!(memory.alloc(1 << 20, Permissions::DEFAULT), Err(Error::Root(RootError::NoSpace { .. }))));
}

#[test]
fn accesses_heed_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    for (workers, on_device) in [(1, None), (2, None), (1, Some(1)), (2, Some(1))] {
        let _ = std::fs::remove_file(&path);
        let memory = start(Medium::new_pool(path.clone(), 16 << 20), How { workers, on_device });
        let region = memory.alloc(2, Permissions::DEFAULT).unwrap();
        let word = move |n: u64| Ptr::<u64>::new(region.base.add(n * 4096));
        let write = |n: u64, value: u64| memory.run(move |m| m.store(word(n), value));
        let read = |n: u64| memory.run(move |m| m.load(word(n)));
        (0..32).for_each(|n| write(n, n + 1).unwrap());
        let before = memory.sync().unwrap();
        // What is dirty when a page becomes one that may only be read is not lost.
        write(3, 33).unwrap();
        let first = Region::new(region.base, fulgurite::pool::PAGE_BYTES as u64);
        memory.set_permissions(first, Permissions { write: false, ..Permissions::DEFAULT }).unwrap();
        assert_eq!(read(3), Ok(33));
        for n in [3, 5] {
            let at = word(n).address();
            assert_eq!(write(n, 0), Err(AccessError::NotPermitted { at, write: true }));
        }
        assert_eq!((read(3), read(5), write(20, 7)), (Ok(33), Ok(6), Ok(())), "and the other page is as it was");
        let pinned = memory.run(move |m| Ok(Pinned::view(&m.pin(word(5).address())?, 0, 8).load::<u64>(0)));
        assert_eq!(pinned, Ok(6), "a pin to read by");
        let written = memory.submit(move |m| {
            let pin = m.pin(word(5).address()).unwrap();
            Pinned::view_mut(&pin, 0, 8).store(0, 0u64);
        });
        let error = written.unwrap().wait().unwrap_err().to_string();
        assert!(error.contains("may not be written"), "{error}");
        // Out of DRAM and in again.
        memory
            .run(move |m| (0..2048).try_for_each(|n| m.load(Ptr::<u64>::new(Address::from_linear(n * 4096))).map(drop)))
            .unwrap();
        assert_eq!(write(5, 0), Err(AccessError::NotPermitted { at: word(5).address(), write: true }));
        let closed = memory.sync().unwrap();
        memory.set_permissions(first, Permissions { read: false, write: false, ..Permissions::DEFAULT }).unwrap();
        for n in [3, 5] {
            let at = word(n).address();
            assert_eq!(read(n), Err(AccessError::NotPermitted { at, write: false }));
            assert_eq!(write(n, 0), Err(AccessError::NotPermitted { at, write: false }));
        }
        // Permissions roll back with the data.
        memory.roll_back(closed).unwrap();
        assert_eq!(read(3), Ok(33));
        assert!(matches!(write(3, 0), Err(AccessError::NotPermitted { write: true, .. })));
        memory.set_permissions(first, Permissions::DEFAULT).unwrap();
        assert_eq!((write(3, 34), read(3), read(5)), (Ok(()), Ok(34), Ok(6)));
        memory.roll_back(before).unwrap();
        assert_eq!((read(3), write(3, 35)), (Ok(4), Ok(())));
        // An old state can be read, and not be written to.
        let reader = memory.open_token(before, 8 << 20).unwrap();
        assert_eq!(reader.run(move |m| m.load(word(3))), Ok(4));
        let refused = reader.run(move |m| m.store(word(3), 0));
        assert_eq!(refused, Err(AccessError::NotPermitted { at: word(3).address(), write: true }));
    }
}

#[test]
fn what_is_deleted_does_not_come_back_out_of_dram() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = start(Medium::new_pool(path.clone(), 16 << 20), How { workers: 2, on_device: None });
    let region = memory.alloc(1, Permissions::DEFAULT).unwrap();
    let word = move |n: u64| Ptr::<u64>::new(region.base.add(n * 4096));
    memory.run(move |m| (0..16).try_for_each(|n| m.store(word(n), 7))).unwrap();
    memory.sync().unwrap();
    memory.run(move |m| (0..8).try_for_each(|n| m.store(word(n), 8))).unwrap();
    memory.delete(region).unwrap();
    let zeros = |memory: &Fulgurite| {
        let sum = memory.run(move |m| (0..16).try_fold(0, |sum, n| Ok(sum + m.load(word(n))?)));
        assert_eq!(sum, Ok(0));
    };
    zeros(&memory);
    memory.sync().unwrap();
    drop(memory);
    zeros(&start(Medium::pool(path), How { workers: 1, on_device: None }));
}

#[test]
fn temporary_pages_go_with_their_process_however_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (path, killed) = (directory.path().join("pool"), directory.path().join("killed"));
    let memory = start(Medium::new_pool(path.clone(), 16 << 20), How { workers: 1, on_device: None });
    let stays = memory.alloc(2, Permissions::DEFAULT).unwrap();
    let goes = memory.alloc(2, Permissions { permanent: false, ..Permissions::DEFAULT }).unwrap();
    let write = move |m: &mut Context| {
        m.store(Ptr::<u64>::new(stays.base), 1)?;
        m.store(Ptr::<u64>::new(goes.base.add(65536)), 2)
    };
    memory.run(write).unwrap();
    let token = memory.sync().unwrap();
    // As a process that is killed leaves it.
    std::fs::copy(&path, &killed).unwrap();
    drop(memory);
    for path in [path, killed] {
        let memory = start(Medium::pool(path), How { workers: 1, on_device: None });
        let check = |memory: &Fulgurite| {
            assert_eq!(memory.permissions(stays.base).unwrap(), Some(Permissions::DEFAULT));
            assert_eq!(memory.permissions(goes.base).unwrap(), None);
            let read = memory.run(move |m| {
                Ok((m.load(Ptr::<u64>::new(stays.base))?, m.load(Ptr::<u64>::new(goes.base.add(65536)))?))
            });
            assert_eq!(read, Ok((1, 0)));
        };
        check(&memory);
        assert_eq!(memory.alloc(2, Permissions::DEFAULT).unwrap().base, goes.base, "its addresses are free again");
        // A state of the process that has ended: its temporary pages do not come back.
        memory.roll_back(token).unwrap();
        check(&memory);
        assert_eq!(memory.alloc(2, Permissions::DEFAULT).unwrap().base, goes.base, "its addresses are free again");
    }
}

#[test]
fn pages_are_allocated_on_the_controller_that_there_is() {
    let (_directory, memory) = small();
    for (pages, number) in [(1, 0), (2, 0xF_FFFF), (3, 1)] {
        let region = memory.alloc_on(Controller(number), pages, Permissions::DEFAULT).unwrap();
        assert_eq!((region.base.controller(), region.bytes), (1, u64::from(pages) * 65536), "by {number}");
        memory.run(move |m| m.store(Ptr::new(region.base), number)).unwrap();
        assert_eq!(memory.permissions(region.base).unwrap(), Some(Permissions::DEFAULT));
    }
    assert_eq!(memory.alloc(1, Permissions::DEFAULT).unwrap().base.controller(), Controller::FIRST.0);
    let before = memory.alloc(1, Permissions::DEFAULT).unwrap();
    for number in [2, 0xF_FFFE, 0x10_0000, u32::MAX] {
        let refused = memory.alloc_on(Controller(number), 1, Permissions::DEFAULT).unwrap_err();
        assert!(matches!(refused, Error::NoController { controller: Controller(n), .. } if n == number), "{refused}");
        assert!(refused.to_string().contains(&format!("no controller {number}; there are 1 ")), "{refused}");
    }
    let next = memory.alloc(1, Permissions::DEFAULT).unwrap();
    assert_eq!(next.base, before.base.add(65536), "what is refused takes nothing");
}

#[test]
fn a_write_makes_a_page_and_a_read_makes_none() {
    const PAGE: u64 = 64 << 10;
    let (_directory, memory) = small();
    let region = memory.region(3 * PAGE).unwrap();
    let word = move |page: u64| Ptr::<u64>::new(region.base.add(page * PAGE));
    memory.sync().unwrap();
    // What is read is zeros, whatever was in the frame or in flash before.
    assert_eq!(memory.run(move |m| (0..3).try_fold(0, |sum, page| Ok(sum + m.load(word(page))?))), Ok(0));
    memory.sync().unwrap();
    let there = |page| memory.permissions(word(page).address()).unwrap();
    assert_eq!([0, 1, 2].map(there), [None; 3], "reads make no page");
    memory.run(move |m| m.store(word(1), 7)).unwrap();
    let token = memory.sync().unwrap();
    assert_eq!([0, 1, 2].map(there), [None, Some(Permissions::DEFAULT), None], "a write makes its own");
    assert_eq!(memory.run(move |m| Ok((m.load(word(0))?, m.load(word(1))?, m.load(word(2))?))), Ok((0, 7, 0)));
    assert!(memory.tokens().unwrap().contains(&token));
}

#[test]
fn a_sync_says_how_long_it_held_writers_back() {
    let (_directory, memory) = small();
    let value = memory.named("value").value(0u64).unwrap();
    let before = memory.sync().unwrap();
    memory.run(move |m| m.store(value, 1)).unwrap();
    // A section that is open when the gate closes. On one worker, another fiber that has tried to
    // begin one and has not passed waits there.
    let (opened, is_open) = std::sync::mpsc::channel();
    let [tried, passed] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let (has_tried, has_passed) = (tried.clone(), passed.clone());
    let job = memory.submit(move |m| -> Result<(), AccessError> {
        let _section = m.write_section()?;
        opened.send(()).unwrap();
        while has_tried.load(Ordering::Relaxed) == has_passed.load(Ordering::Relaxed) {
            m.sleep(Duration::from_millis(1))?;
        }
        m.store(value, 2)
    });
    is_open.recv().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let other = memory.submit(move |m| -> Result<(), AccessError> {
        while !stopped.load(Ordering::Relaxed) {
            tried.fetch_add(1, Ordering::Relaxed);
            drop(m.write_section()?);
            passed.fetch_add(1, Ordering::Relaxed);
            m.yield_now()?;
        }
        Ok(())
    });
    let report = memory.sync_report().unwrap();
    stop.store(true, Ordering::Relaxed);
    [job, other].into_iter().for_each(|job| job.unwrap().wait().unwrap().unwrap());
    assert!(report.token > before && report.subpages > 0, "{report:?}");
    assert!(report.drain <= report.gate && report.gate <= report.took, "{report:?}");
    assert!(report.drain > Duration::ZERO, "it waited for the section: {report:?}");
    assert_eq!(memory.tokens().unwrap().last(), Some(&report.token));
}
