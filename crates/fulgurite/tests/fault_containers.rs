//! Goal: a container on flash is what a container in DRAM is, whatever the medium does. A failed
//! operation has changed nothing, a successful one has changed what it says, and no reader sees
//! half of a value.
//!
//! Method: jobs on two workers share a container behind a cache of a few frames, on a medium whose
//! reads fail or come short, whose write-backs fail, and whose completions come late and out of
//! order. Each job has keys of its own and keeps a `BTreeMap` of them, which changes only when an
//! operation says that it succeeded. After a failure the very next operation must find what the map
//! has. At the end the medium is well: the container must pass its check and hold what all the maps
//! hold, on the runtime and in the medium's bytes. The heap is tested in the same way, with objects
//! filled with what only their owner knows. All of it again with one worker and latches for one
//! thread. Seeds are printed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::Duration;

use fulgurite::{
    AccessError, Address, BPlusTree, Blobs, Context, HashMap, Heap, JobOptions, Memory, OrderedBlobs, Region,
    Transactions,
    latches::{FiberLatch, Latch, VersionLatch},
    media::Flash,
    runtime::{BuildError, Runtime},
    views::{Identity, MemoryId, RawMemory, SUBPAGE_BYTES, View, ViewMut},
};
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, Rule, When};
use fulgurite_memory::{Masstree, PlainMemory};
use fulgurite_sys::Backed;
use fulgurite_testkit::Random;

/// Jobs at a time: as many as two workers have fibers.
const JOBS: u64 = 12;
/// Keys of each job.
const KEYS: u64 = 1500;
const STEPS: u64 = 6000;
const POOL_BYTES: u64 = 4 << 20;
/// Scratch space for a heap or the buckets of a map begins here.
const BASE: u64 = 3 * SUBPAGE_BYTES as u64;
const LATCHES: usize = 64;

/// A value of several words, all of them equal: what is seen half is seen.
type Value = [u64; 6];

type FaultyMemory = Arc<FaultyFlash<MemoryFlash>>;

/// What the test needs of a map from numbers to numbers.
trait Map: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// Pins that an operation may take.
    const PINS: u32;
    fn create<M: Memory>(memory: &mut M) -> Result<Self, AccessError>;
    fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError>;
    fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: u64) -> Result<Option<u64>, AccessError>;
    fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError>;
    /// Adds [`JOBS`] to a value; says whether the key was there.
    fn increase<M: Memory>(&self, memory: &mut M, key: u64) -> Result<bool, AccessError>;
    /// Everything in it, in no order.
    fn entries<M: Memory>(&self, memory: &mut M) -> Result<Vec<(u64, u64)>, AccessError>;
    /// Checks all invariants; returns the number of keys.
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError>;
}

fn whole(value: &Value) -> u64 {
    assert!(value.iter().all(|word| *word == value[0]), "half a value: {value:?}");
    value[0]
}

fn heap<M: Memory>(memory: &mut M) -> Result<Arc<Heap>, AccessError> {
    Heap::create(memory, Region::new(Address::from_linear(BASE), POOL_BYTES / 2)).map(Arc::new)
}

impl<L: Latch> Map for HashMap<u64, Value, L> {
    const NAME: &'static str = "hash map";
    const PINS: u32 = HashMap::<u64, Value, L>::PINS;
    fn create<M: Memory>(memory: &mut M) -> Result<Self, AccessError> {
        let buckets = Region::new(Address::from_linear(POOL_BYTES / 2 + BASE), POOL_BYTES / 4);
        let heap = heap(memory)?;
        // Half of what comes will overflow.
        HashMap::create(memory, buckets, heap, JOBS * KEYS / 4, LATCHES)
    }
    fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        Ok(HashMap::get(self, memory, &key)?.as_ref().map(whole))
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: u64) -> Result<Option<u64>, AccessError> {
        Ok(HashMap::insert(self, memory, &key, [value; 6])?.as_ref().map(whole))
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        Ok(HashMap::remove(self, memory, &key)?.as_ref().map(whole))
    }
    fn increase<M: Memory>(&self, memory: &mut M, key: u64) -> Result<bool, AccessError> {
        Ok(HashMap::update(self, memory, &key, |value| *value = [whole(value) + JOBS; 6])?.is_some())
    }
    fn entries<M: Memory>(&self, memory: &mut M) -> Result<Vec<(u64, u64)>, AccessError> {
        let mut entries = Vec::new();
        self.for_each(memory, |key, value| entries.push((*key, whole(value))))?;
        Ok(entries)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        HashMap::check(self, memory)
    }
}

impl<L: Latch> Map for BPlusTree<Value, L> {
    const NAME: &'static str = "B+-tree";
    const PINS: u32 = 2;
    fn create<M: Memory>(memory: &mut M) -> Result<Self, AccessError> {
        let heap = heap(memory)?;
        BPlusTree::create_with_nodes(memory, heap, LATCHES, 512)
    }
    fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        Ok(BPlusTree::get(self, memory, key)?.as_ref().map(whole))
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: u64) -> Result<Option<u64>, AccessError> {
        Ok(BPlusTree::insert(self, memory, key, [value; 6])?.as_ref().map(whole))
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        Ok(BPlusTree::remove(self, memory, key)?.as_ref().map(whole))
    }
    fn increase<M: Memory>(&self, memory: &mut M, key: u64) -> Result<bool, AccessError> {
        BPlusTree::update(self, memory, key, |value| *value = [whole(value) + JOBS; 6])
    }
    fn entries<M: Memory>(&self, memory: &mut M) -> Result<Vec<(u64, u64)>, AccessError> {
        let mut entries = Vec::new();
        self.scan(memory, 0, u64::MAX, |key, value| {
            entries.push((key, whole(value)));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        Ok(BPlusTree::check(self, memory)?.keys)
    }
}

/// A string for a number: of different lengths, many with long prefixes in common, so that there
/// are layers of tries.
fn text(key: u64) -> Vec<u8> {
    match key % 3 {
        0 => key.to_be_bytes().to_vec(),
        1 => format!("/names/of/{}/{key}", key % 7).into_bytes(),
        _ => format!("{key}/as a string that has more bytes than lie in a node beside others").into_bytes(),
    }
}

fn number(text: &[u8]) -> u64 {
    if let Ok(bytes) = <[u8; 8]>::try_from(text) {
        return u64::from_be_bytes(bytes);
    }
    let text = std::str::from_utf8(text).unwrap();
    let part = if text.starts_with('/') { text.rsplit('/').next() } else { text.split('/').next() };
    part.unwrap().parse().unwrap()
}

impl<L: Latch> Map for Masstree<L> {
    const NAME: &'static str = "trie of trees";
    const PINS: u32 = 2;
    fn create<M: Memory>(memory: &mut M) -> Result<Self, AccessError> {
        let heap = heap(memory)?;
        Masstree::create(memory, heap, LATCHES)
    }
    fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        Masstree::get(self, memory, &text(key))
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: u64) -> Result<Option<u64>, AccessError> {
        Masstree::insert(self, memory, &text(key), value)
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        Masstree::remove(self, memory, &text(key))
    }
    fn increase<M: Memory>(&self, memory: &mut M, key: u64) -> Result<bool, AccessError> {
        Masstree::update(self, memory, &text(key), |value| *value += JOBS)
    }
    fn entries<M: Memory>(&self, memory: &mut M) -> Result<Vec<(u64, u64)>, AccessError> {
        let mut entries = Vec::new();
        self.scan(memory, &[], usize::MAX, |key, value| {
            entries.push((number(key), value));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        Ok(Masstree::check(self, memory)?.keys)
    }
}

/// A number as a blob: its words are all the same, and how many there are follows from it.
fn blob(number: u64) -> Vec<u8> {
    let mixed = (number / JOBS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let words = if mixed.is_multiple_of(150) { 600 } else { 1 + mixed % 12 };
    number.to_le_bytes().repeat(words as usize)
}
fn number_of(blob: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*blob.first_chunk().expect("eight bytes and more"));
    assert!(blob == self::blob(number), "half a blob of {number}: {} bytes", blob.len());
    number
}
/// What a key of blobs had, and whether `change` changed it: they do not say what was there before.
fn before<T>(
    old: Result<Option<u64>, AccessError>,
    change: impl FnOnce() -> Result<T, AccessError>,
) -> Result<Option<u64>, AccessError> {
    let old = old?;
    change()?;
    Ok(old)
}

macro_rules! blob_maps {
    ($blobs:ty, $name:literal, $key:expr, $create:expr, $entries:expr) => {
        const NAME: &'static str = $name;
        const PINS: u32 = 4;
        fn create<M: Memory>(memory: &mut M) -> Result<Self, AccessError> {
            let heap = heap(memory)?;
            $create(memory, heap)
        }
        fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
            let mut value = Vec::new();
            Ok(<$blobs>::get(self, memory, &$key(key), &mut value)?.then(|| number_of(&value)))
        }
        fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: u64) -> Result<Option<u64>, AccessError> {
            before(Map::get(self, memory, key), || self.put(memory, &$key(key), &blob(value)))
        }
        fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
            before(Map::get(self, memory, key), || <$blobs>::remove(self, memory, &$key(key)))
        }
        fn increase<M: Memory>(&self, memory: &mut M, key: u64) -> Result<bool, AccessError> {
            Ok(self.update(memory, &$key(key), |value| *value = blob(number_of(value) + JOBS))?.is_some())
        }
        fn entries<M: Memory>(&self, memory: &mut M) -> Result<Vec<(u64, u64)>, AccessError> {
            $entries(self, memory)
        }
        fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
            Ok(<$blobs>::check(self, memory)?.0)
        }
    };
}

impl<L: Latch> Map for Blobs<u64, L> {
    blob_maps! {
        Blobs<u64, L>, "blobs by numbers", std::convert::identity::<u64>,
        |memory, heap| {
            let buckets = Region::new(Address::from_linear(POOL_BYTES / 2 + BASE), POOL_BYTES / 4);
            Blobs::<u64, L>::create(memory, buckets, heap, JOBS * KEYS / 4, LATCHES)
        },
        |blobs: &Self, memory: &mut M| {
            let (mut keys, mut entries) = (Vec::new(), Vec::new());
            blobs.for_each_key(&mut *memory, |key, _| keys.push(*key))?;
            for key in keys {
                entries.extend(Map::get(blobs, &mut *memory, key)?.map(|value| (key, value)));
            }
            Ok(entries)
        }
    }
}

impl<L: Latch> Map for OrderedBlobs<L> {
    blob_maps! {
        OrderedBlobs<L>, "blobs by strings", text,
        |memory, heap| OrderedBlobs::<L>::create(memory, heap, LATCHES),
        |blobs: &Self, memory: &mut M| {
            let mut entries = Vec::new();
            blobs.scan(memory, &[], usize::MAX, |key, value| {
                entries.push((number(key), number_of(value)));
                ControlFlow::Continue(())
            })?;
            Ok(entries)
        }
    }
}

/// A hash map and a tree that transactions keep alike.
struct Both {
    map: Arc<HashMap<u64, Value, VersionLatch>>,
    tree: Arc<BPlusTree<Value, VersionLatch>>,
    transactions: Transactions,
}

impl Both {
    /// Replaces the value of a key in both by what `change` makes of it, and returns the old one.
    fn change<M: Memory>(
        &self,
        memory: &mut M,
        key: u64,
        change: impl Fn(Option<u64>) -> Option<u64>,
    ) -> Result<Option<u64>, AccessError> {
        self.transactions.run(memory, |t| {
            let old = t.get(&self.map, &key)?;
            match change(old.as_ref().map(whole)) {
                Some(value) => {
                    t.put(&self.map, &key, &[value; 6])?;
                    t.put(&self.tree, &key, &[value; 6])?;
                }
                None => {
                    let removed = t.remove(&self.map, &key)?;
                    let also = t.remove(&self.tree, &key)?;
                    assert_eq!((removed, also), (old.is_some(), old.is_some()));
                }
            }
            Ok(old.as_ref().map(whole))
        })
    }
}

impl Map for Both {
    const NAME: &'static str = "hash map and B+-tree by transactions";
    /// Of the subpages that a change of both writes, with the splits of nodes on its way.
    const PINS: u32 = 16;
    fn create<M: Memory>(memory: &mut M) -> Result<Self, AccessError> {
        let buckets = Region::new(Address::from_linear(POOL_BYTES / 2 + BASE), POOL_BYTES / 4);
        let heap = heap(memory)?;
        Ok(Both {
            map: HashMap::create_growing(memory, buckets, heap.clone(), JOBS * KEYS / 2, LATCHES)?.into(),
            tree: BPlusTree::create_with_nodes(memory, heap, LATCHES, 512)?.into(),
            transactions: Transactions::new(),
        })
    }
    fn get<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        let both = self
            .transactions
            .run(memory, |t| Ok::<_, AccessError>((t.get(&self.map, &key)?, t.get(&self.tree, &key)?)))?;
        assert_eq!(both.0, both.1, "half of a transaction on {key}");
        Ok(both.0.as_ref().map(whole))
    }
    fn insert<M: Memory>(&self, memory: &mut M, key: u64, value: u64) -> Result<Option<u64>, AccessError> {
        self.change(memory, key, |_| Some(value))
    }
    fn remove<M: Memory>(&self, memory: &mut M, key: u64) -> Result<Option<u64>, AccessError> {
        self.change(memory, key, |_| None)
    }
    fn increase<M: Memory>(&self, memory: &mut M, key: u64) -> Result<bool, AccessError> {
        Ok(self.change(memory, key, |old| Some(old? + JOBS))?.is_some())
    }
    fn entries<M: Memory>(&self, memory: &mut M) -> Result<Vec<(u64, u64)>, AccessError> {
        self.tree.entries(memory)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        assert_eq!(
            self.map.entries(memory)?.into_iter().collect::<BTreeMap<_, _>>(),
            self.tree.entries(memory)?.into_iter().collect()
        );
        Map::check(&*self.map, memory)?;
        Map::check(&*self.tree, memory)
    }
}

#[test]
fn transactions() {
    within("transactions", || conform::<Both>(2, 75));
}

/// What fails. The more frames there are, the fewer requests reach the medium, and the more of them
/// fail.
fn plan(seed: u64, frames: u64) -> FaultPlan {
    let rule = |op, one_in, fault| Rule { op: Some(op), when: When::OneIn(one_in), fault };
    let reads_one_in = if frames < 20 { 50 } else { 20 };
    let rules = vec![
        rule(Op::Read, reads_one_in, Fault::Fails(FlashError::Io(5))),
        rule(Op::Read, 2 * reads_one_in, Fault::Fails(FlashError::Short)),
        rule(Op::Read, 12, Fault::Late { polls: 40 }),
        rule(Op::Write, 5, Fault::Fails(FlashError::Io(5))),
        rule(Op::Write, 6, Fault::Late { polls: 100 }),
    ];
    FaultPlan { seed, rules, reorder: true, record: false }
}

fn medium() -> FaultyMemory {
    let memory = MemoryFlash::new((POOL_BYTES / SUBPAGE_BYTES as u64) as u32).unwrap();
    Arc::new(FaultyFlash::new(memory, FaultPlan::default()))
}

/// A runtime over all of the medium, with `frames` frames for each worker.
fn runtime(medium: &FaultyMemory, workers: usize, frames: u64) -> Runtime {
    let flash: Arc<dyn Flash> = medium.clone();
    let fibers = JOBS as usize / workers;
    let builder = Runtime::builder(flash).workers(workers).fibers(fibers).spin(Duration::from_micros(20));
    let Err(BuildError::TooSmall { fixed, least, .. }) = builder.clone().dram(1).build() else {
        panic!("a byte of DRAM is too small");
    };
    builder.dram(fixed + frames * (least - fixed)).build().unwrap()
}

/// Plain memory with the bytes of the medium.
/// What the medium has, as the memory whose it is: with its identity, for handles of it.
struct Contents {
    inner: PlainMemory,
    id: MemoryId,
    roll_backs: AtomicU64,
}

impl RawMemory for Contents {
    type Pin = <PlainMemory as RawMemory>::Pin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> Identity<'_> {
        Identity::new(self.id, &self.roll_backs)
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError> {
        self.inner.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

fn contents(medium: &FaultyMemory, id: MemoryId) -> Contents {
    let mut to = PlainMemory::new(Backed::BasePages).expect("address space for a test");
    let mut subpage = [0; SUBPAGE_BYTES];
    for at in (0..POOL_BYTES).step_by(SUBPAGE_BYTES) {
        medium.inner().storage().read(at as usize, &mut subpage);
        to.write_bytes(Address::from_linear(at), &subpage).unwrap();
    }
    Contents { inner: to, id, roll_backs: AtomicU64::new(0) }
}

fn is_injected(error: AccessError) -> bool {
    matches!(error, AccessError::Flash { source: FlashError::Io(5) | FlashError::Short, .. })
}

/// The result, or nothing when the medium failed as it was planned to.
fn unless_injected<T>(result: Result<T, AccessError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(is_injected(error), "{error}");
            None
        }
    }
}

/// Runs one job for each id at once, then everything that must be true at the end: the medium is
/// well, all is written.
fn run_jobs<T: Send + 'static>(
    (runtime, medium): (&Runtime, &FaultyMemory),
    (pins, seed, frames): (u32, u64, u64),
    job: impl Fn(&mut Context, u64) -> T + Send + Clone + 'static,
) -> Vec<T> {
    medium.set_plan(plan(seed ^ frames << 32, frames));
    let handles: Vec<_> = (0..JOBS)
        .map(|id| {
            let job = job.clone();
            let options = JobOptions::new().pins(pins).worker(id as usize % runtime.workers());
            runtime.submit_with(&options, move |context| job(context, id)).unwrap()
        })
        .collect();
    let results = handles.into_iter().map(|handle| handle.wait().unwrap_or_else(|error| panic!("{error}"))).collect();
    medium.set_plan(FaultPlan::default());
    // What was handed to the medium under the plan may fail still, once.
    runtime.write_back().or_else(|_| runtime.write_back()).unwrap();
    let counts = runtime.statistics().total().counts;
    println!("  {} misses, {} reads failed, {} writes failed", counts.misses, counts.read_errors, counts.write_errors);
    assert_eq!(counts.jobs_died, 0);
    assert!(counts.read_errors > 10 && counts.write_errors > 10, "hardly anything failed: {counts:?}");
    results
}

/// Whose a key or a value is.
fn owner(number: u64) -> u64 {
    number % JOBS
}

/// What one job does, and the map that it ends with.
fn work<C: Map>(map: &C, context: &mut Context, id: u64, mut random: Random) -> (BTreeMap<u64, u64>, u64) {
    let (mut model, mut failed) = (BTreeMap::<u64, u64>::new(), 0);
    let (mut key, mut just_failed) = (0, false);
    for step in 0..STEPS {
        // After a failure, the same key again: it must be as it was.
        if !just_failed {
            key = random.below(KEYS) * JOBS + id;
        }
        let value = step * 1000 * JOBS + id;
        let growing = step / 1500 % 2 == 0;
        let done = match random.below(20) {
            0..7 if growing => unless_injected(map.insert(context, key, value))
                .map(|old| assert_eq!(old, model.insert(key, value), "insert {key}")),
            0..10 => {
                unless_injected(map.remove(context, key)).map(|old| assert_eq!(old, model.remove(&key), "remove {key}"))
            }
            10..13 => unless_injected(map.increase(context, key)).map(|found| {
                assert_eq!(found, model.contains_key(&key), "increase {key}");
                model.entry(key).and_modify(|value| *value += JOBS);
            }),
            13..19 if random.below(3) > 0 => unless_injected(map.get(context, key))
                .map(|found| assert_eq!(found, model.get(&key).copied(), "get {key}, step {step}")),
            13..19 => {
                let foreign = random.below(KEYS * JOBS);
                unless_injected(map.get(context, foreign)).map(|found| {
                    assert!(
                        found.is_none_or(|v| owner(v) == owner(foreign)),
                        "{foreign} has another's value: {found:?}"
                    );
                })
            }
            _ if step % 32 == 0 => unless_injected(map.entries(context)).map(|entries| {
                let mine: BTreeMap<_, _> = entries.into_iter().filter(|(key, _)| owner(*key) == id).collect();
                assert!(mine == model, "a walk misses keys or invents some, step {step}");
            }),
            _ => Some(()),
        };
        just_failed = done.is_none();
        failed += u64::from(just_failed);
    }
    (model, failed)
}

fn conform<C: Map>(workers: usize, seed: u64) {
    let few = u64::from(C::PINS) + 1;
    for frames in [few, few + 5, few + 20] {
        println!("{}, {workers} workers, {frames} frames each, seed {seed}", C::NAME);
        let medium = medium();
        let runtime = runtime(&medium, workers, frames);
        let options = JobOptions::new().pins(C::PINS).worker(0);
        let map = runtime.submit_with(&options, |context| C::create(context).map(Arc::new)).unwrap();
        let map = map.wait().unwrap().unwrap();
        let its = map.clone();
        let results = run_jobs((&runtime, &medium), (C::PINS, seed, frames), move |context, id| {
            work(&*its, context, id, Random(seed ^ id << 48))
        });
        let failed: u64 = results.iter().map(|(_, failed)| failed).sum();
        println!("  {failed} operations failed");
        assert!(failed > 20, "{failed} operations failed");
        let model: BTreeMap<u64, u64> = results.into_iter().flat_map(|(model, _)| model).collect();
        let its = map.clone();
        let last = runtime.submit_with(&options, move |context| Ok((its.check(context)?, its.entries(context)?)));
        let (keys, entries) = last.unwrap().wait().unwrap().unwrap_or_else(|error: AccessError| panic!("{error}"));
        assert_eq!(keys, model.len() as u64);
        assert_eq!(entries.len(), model.len());
        assert!(entries.into_iter().collect::<BTreeMap<_, _>>() == model);
        let id = runtime.run(|context| Ok(Memory::id(context))).unwrap();
        drop(runtime);
        // Latches for one thread were used by the worker's, which has ended.
        if workers > 1 {
            let mut memory = contents(&medium, id);
            assert_eq!(map.check(&mut memory), Ok(model.len() as u64), "on the medium");
            assert!(map.entries(&mut memory).unwrap().into_iter().collect::<BTreeMap<_, _>>() == model);
        }
    }
}

/// Runs `test` and ends the process when it takes longer than two minutes: a hang is a failure, not
/// a wait.
fn within(what: &'static str, test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(what.into())
        .spawn(move || {
            test();
            let _ = done.send(());
        })
        .unwrap();
    if is_done.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("{what}: hangs");
        std::process::abort();
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

macro_rules! maps {
    ($($test:ident, $map:ident<$($parameter:ty),*>, $seed:literal;)*) => {
        $(#[test]
        fn $test() {
            within(stringify!($test), || {
                conform::<$map<$($parameter,)* VersionLatch>>(2, $seed);
                conform::<$map<$($parameter,)* FiberLatch>>(1, $seed + 1);
            });
        })*
    };
}

maps! {
    hash_maps, HashMap<u64, Value>, 61;
    b_plus_trees, BPlusTree<Value>, 63;
    tries_of_trees, Masstree<>, 67;
    blobs_by_numbers, Blobs<u64>, 71;
    blobs_by_strings, OrderedBlobs<>, 73;
}

/// An object that a job has from the heap: where, how large, and what it is filled with.
type Object = (Address, usize, u8);

/// Allocates, fills, checks and frees objects; returns how many operations failed. All are free at
/// the end.
fn use_heap(heap: &Heap, context: &mut Context, id: u64, mut random: Random) -> u64 {
    let (mut objects, mut failed): (Vec<Object>, u64) = (Vec::new(), 0);
    let sizes = [8, 24, 64, 200, 700, 4096, 9000];
    let whole = |object: &Object, context: &mut Context| -> Result<(), AccessError> {
        let (at, bytes, fill) = *object;
        let mut found = vec![0; bytes];
        context.read_bytes(at, &mut found)?;
        assert!(found.iter().all(|byte| *byte == fill), "an object of {bytes} bytes at {at} is not only its owner's");
        Ok(())
    };
    for step in 0..STEPS {
        let grow = if step / 100 % 2 == 0 { 7 } else { 3 };
        if objects.is_empty() || random.below(10) < grow {
            let bytes = sizes[random.below(sizes.len() as u64) as usize];
            let at = match heap.allocate(context, bytes) {
                // Others have it all; it is no fault, and nothing was handed out.
                Err(AccessError::NoSpace { .. }) => continue,
                other => unless_injected(other),
            };
            let Some(at) = at else {
                failed += 1;
                continue;
            };
            let fill = (id * 16 + random.below(16)) as u8;
            while unless_injected(context.write_bytes(at, &vec![fill; bytes])).is_none() {
                failed += 1;
            }
            objects.push((at, bytes, fill));
        } else {
            let object = objects.swap_remove(random.below(objects.len() as u64) as usize);
            while unless_injected(whole(&object, context)).is_none() {
                failed += 1;
            }
            heap.free(context, object.0, object.1).expect("a failed access is none of its caller's business");
        }
    }
    for object in objects {
        while unless_injected(whole(&object, context)).is_none() {
            failed += 1;
        }
        heap.free(context, object.0, object.1).expect("a failed access is none of its caller's business");
    }
    failed
}

#[test]
fn heaps() {
    within("heaps", || {
        let seed = 69;
        for workers in 1..=2 {
            for frames in [3, 8, 24] {
                println!("heap, {workers} workers, {frames} frames each, seed {seed}");
                let medium = medium();
                let runtime = runtime(&medium, workers, frames);
                let its = runtime.run(heap).unwrap();
                let heap = its.clone();
                let failed = run_jobs((&runtime, &medium), (2, seed, frames), move |context, id| {
                    use_heap(&its, context, id, Random(seed ^ id << 48))
                });
                assert!(failed.iter().sum::<u64>() > 20, "{failed:?}");
                assert_eq!(heap.used_bytes(), 0, "everything was freed");
                let its = heap.clone();
                runtime.run(move |context| its.check(context)).unwrap();
                let id = runtime.run(|context| Ok(Memory::id(context))).unwrap();
                drop(runtime);
                heap.check(&mut contents(&medium, id)).unwrap();
            }
        }
    });
}
