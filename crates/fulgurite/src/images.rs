//! Goal: a crash after any write leaves what the last sync has named, or the one under way: of
//! blobs, those that are objects included, of maps, transactions, and containers that are removed.
//! Method: short workloads over flash in memory. Each is run once for each of its writes, of which
//! that one and all later ones fail. Of those since the last flush some are lost, whole or in part.
//! The pool is opened on what the flash holds then, and compared with a model of both states. It is
//! checked, and goes on. Long workloads crash at any of their writes, crash again while they are
//! recovered, and go on from there. A sync that leaves objects out must be found.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, When};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_memory::{AccessError, Blobs, HashMap, OrderedBlobs, VersionLatch};
use fulgurite_runtime::{PlantedInObjects, Runtime};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Arena;
use fulgurite_testkit as trials;
use trials::Random;

use crate::registry::Handle;
use crate::store::Store;
use crate::{Durability, Error, Fulgurite};

/// Flash pages: 16 MiB.
const PAGES: u32 = 4096;
/// A pool of objects takes more for its addresses.
const DRAM_BYTES: u64 = 16 << 20;
/// Of these the even ones are under numbers, and the others under strings.
const KEYS: u64 = 6;
/// What a medium writes whole.
const SECTOR: usize = 512;
/// Where the map counts transactions.
const MOVES: u64 = 0;

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, usize, u64),
    Append(u64, usize, u64),
    /// Its first bytes, at most this number.
    Part(u64, usize, u64),
    Remove(u64),
    /// A transaction: the value of one gets the key of the other, and is counted.
    Move(u64, u64),
    /// The blobs under numbers are removed, and made anew.
    Renew,
    Sync,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Model {
    blobs: BTreeMap<u64, Vec<u8>>,
    moves: u64,
}

struct Data {
    numbers: Handle<Blobs<u64>>,
    strings: Handle<OrderedBlobs>,
    counts: Handle<HashMap<u64, u64, VersionLatch>>,
}

fn choose(random: &mut Random) -> Step {
    let (key, other) = (random.below(KEYS), random.below(KEYS));
    let len = [0, 40, 900, 4096, 5000, 20_000][random.below(6usize)];
    let seed = random.next();
    match random.below(9) {
        0..=2 => Step::Put(key, len, seed),
        3 => Step::Append(key, 1 + len / 10, seed),
        4 => Step::Part(key, 1 + len / 8, seed),
        5 => Step::Remove(key),
        6 => Step::Renew,
        _ => Step::Move(key, other),
    }
}
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    Random(seed).bytes(len)
}

impl Model {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Put(key, len, seed) => drop(self.blobs.insert(key, bytes(seed, len))),
            Step::Append(key, len, seed) => self.blobs.entry(key).or_default().extend(bytes(seed, len)),
            Step::Part(key, len, seed) => {
                if let Some(value) = self.blobs.get_mut(&key).filter(|value| value.len() >= len) {
                    value[..len].copy_from_slice(&bytes(seed, len));
                }
            }
            Step::Remove(key) => drop(self.blobs.remove(&key)),
            Step::Move(from, to) => {
                if let Some(value) = self.blobs.remove(&from) {
                    self.blobs.insert(to, value);
                }
                self.moves += 1;
            }
            Step::Renew => self.blobs.retain(|key, _| !key.is_multiple_of(2)),
            Step::Sync => {}
        }
    }
}

impl Data {
    fn open(memory: &Fulgurite) -> Result<Data, Error> {
        Ok(Data {
            numbers: memory.named("numbers").blobs(20, 1 << 20)?,
            strings: memory.named("strings").ordered_blobs(20, 1 << 20)?,
            counts: memory.named("counts").hash_map(20)?,
        })
    }
    fn make(&mut self, memory: &Fulgurite, step: Step) -> Result<(), Error> {
        let (numbers, strings, counts) = (&self.numbers, &self.strings, &self.counts);
        let text = u64::to_be_bytes;
        let has_number = |key: u64| key.is_multiple_of(2);
        match step {
            Step::Put(key, len, seed) => memory.run(|m| match has_number(key) {
                true => numbers.put(m, &key, &bytes(seed, len)).map(drop),
                false => strings.put(m, &text(key), &bytes(seed, len)).map(drop),
            })?,
            Step::Append(key, len, seed) => memory.run(|m| match has_number(key) {
                true => numbers.append(m, &key, &bytes(seed, len)).map(drop),
                false => strings.append(m, &text(key), &bytes(seed, len)).map(drop),
            })?,
            Step::Part(key, len, seed) => memory.run(|m| match has_number(key) {
                true => numbers.write_at(m, &key, 0, &bytes(seed, len)).map(drop),
                false => strings.write_at(m, &text(key), 0, &bytes(seed, len)).map(drop),
            })?,
            Step::Remove(key) => memory.run(|m| match has_number(key) {
                true => numbers.remove(m, &key).map(drop),
                false => strings.remove(m, &text(key)).map(drop),
            })?,
            Step::Move(from, to) => memory.transaction(|t| {
                let value = match has_number(from) {
                    true => t.get(numbers, &from)?,
                    false => t.get(strings, &text(from)[..])?,
                };
                if let Some(value) = value {
                    match has_number(from) {
                        true => t.remove(numbers, &from)?,
                        false => t.remove(strings, &text(from)[..])?,
                    };
                    match has_number(to) {
                        true => t.put(numbers, &to, &value[..])?,
                        false => t.put(strings, &text(to)[..], &value[..])?,
                    }
                }
                let moves = t.get(counts, &MOVES)?.unwrap_or(0);
                t.put(counts, &MOVES, &(moves + 1))
            })?,
            Step::Renew => {
                memory.named("numbers").remove()?;
                self.numbers = memory.named("numbers").blobs(20, 1 << 20)?;
            }
            Step::Sync => {}
        }
        Ok(())
    }
    fn contents(&self, memory: &Fulgurite) -> Result<Model, AccessError> {
        memory.run(|m| {
            self.numbers.check(m)?;
            self.strings.check(m)?;
            self.counts.check(m)?;
            let mut model = Model { moves: self.counts.get(m, &MOVES)?.unwrap_or(0), ..Model::default() };
            for key in 0..KEYS {
                let mut value = Vec::new();
                let there = match key.is_multiple_of(2) {
                    true => self.numbers.get(m, &key, &mut value)?,
                    false => self.strings.get(m, &key.to_be_bytes(), &mut value)?,
                };
                model.blobs.extend(there.then_some((key, value)));
            }
            Ok(model)
        })
    }
}

/// How the pool is made and opened.
#[derive(Clone, Copy)]
struct How {
    geometry: Geometry,
    config: StoreConfig,
    bug: Option<PlantedInObjects>,
}

/// Where a write went, and what was there.
type Before = (usize, Vec<u8>);

/// Flash in memory. A crash may lose what was written since the last flush.
struct Volatile {
    faulty: Arc<FaultyFlash<MemoryFlash>>,
    storage: Arc<Arena>,
    /// Of each write since the last flush.
    before: Arc<Mutex<Vec<Before>>>,
}

impl Volatile {
    /// With what there is, or formatted.
    fn over(storage: Option<Arc<Arena>>, how: How) -> Volatile {
        let is_new = storage.is_none();
        let medium = match storage {
            Some(storage) => MemoryFlash::over(storage, PAGES).unwrap(),
            None => MemoryFlash::new(PAGES).unwrap(),
        };
        let (storage, before) = (medium.storage().clone(), Arc::new(Mutex::new(Vec::new())));
        let faulty = Arc::new(FaultyFlash::new(medium, FaultPlan::default()));
        if is_new {
            let flash: Arc<dyn Flash> = faulty.clone();
            Pool::format(&flash, how.geometry, PoolId([7; 16]), 0).unwrap();
        }
        let (seen, kept) = (storage.clone(), before.clone());
        faulty.watch(move |request| match request.op {
            Op::Read => {}
            Op::Write => {
                let (at, mut bytes) = (request.subpage.0 as usize * SUBPAGE_BYTES, vec![0; SUBPAGE_BYTES]);
                seen.read(at, &mut bytes);
                kept.lock().unwrap().push((at, bytes));
            }
            Op::Flush => kept.lock().unwrap().clear(),
        });
        Volatile { faulty, storage, before }
    }
    /// From this write on, all fail.
    fn fail_from(&self, write: u64) {
        let fault = Fault::Fails(FlashError::Poisoned);
        self.faulty.set_plan(FaultPlan::rule(Some(Op::Write), When::From(write), fault));
    }
    /// What a crash leaves: of the writes since the last flush all, none, or some, whole or torn.
    fn crash(self, random: &mut Random) -> Arc<Arena> {
        let lost_of_four = [0, 4, 1, 2][random.below(4usize)];
        let before = std::mem::take(&mut *self.before.lock().unwrap());
        for (at, bytes) in before.into_iter().rev() {
            if random.below(4u64) >= lost_of_four {
                continue;
            }
            let is_torn = random.one_in(4u64);
            for (sector, old) in bytes.chunks(SECTOR).enumerate() {
                if !is_torn || random.one_in(2u64) {
                    self.storage.write(at + sector * SECTOR, old);
                }
            }
        }
        self.storage
    }
}

/// A memory over a pool on this medium.
fn start(medium: Arc<dyn Flash>, how: How) -> Result<(Fulgurite, Arc<Pool>), String> {
    let flash = Arc::new(Pool::open(medium, how.config).map_err(|error| error.to_string())?.0.into_flash());
    let pool = flash.layer().clone();
    let bytes = u64::from(flash.subpages()) * SUBPAGE_BYTES as u64;
    let runtime = Runtime::builder(flash).workers(1).dram(DRAM_BYTES).objects(1 << 20).objects_move(false);
    let runtime = match how.bug {
        Some(bug) => runtime.plant_in_objects(bug),
        None => runtime,
    };
    // A build without optimization takes more stack than the 32 KiB of a fiber.
    let runtime = runtime.stack(128 << 10).fibers(8).existing(bytes);
    // What cannot be written back stays in DRAM, and is not waited for.
    let runtime = runtime.gate_timeout(Duration::from_millis(100)).build().map_err(|error| error.to_string())?;
    let store = Some(Store::Here(pool.clone()));
    let memory = Fulgurite::over(Arc::new(runtime), store, None, Durability::Sync, DRAM_BYTES);
    Ok((memory.map_err(|error| error.to_string())?, pool))
}

/// What must be there after a crash.
struct Promise {
    named: Model,
    /// A sync was under way.
    or: Option<Model>,
}

impl Promise {
    /// The state that is there, if it is one of these.
    fn find(&self, data: &Data, memory: &Fulgurite) -> Result<Model, String> {
        let found = data.contents(memory).map_err(|error| error.to_string())?;
        match found == self.named || self.or.as_ref() == Some(&found) {
            true => Ok(found),
            false => Err("blobs are of no state that a sync has named".to_owned()),
        }
    }
}

/// Runs the steps on what there is, where all writes from the `from`th on fail. None: there are
/// fewer writes.
fn run(flash: &Volatile, how: How, mut model: Model, steps: &[Step], from: u64) -> Option<Promise> {
    let (memory, _pool) = start(flash.faulty.clone(), how).unwrap();
    let mut data = Data::open(&memory).unwrap();
    memory.sync().unwrap();
    flash.fail_from(from);
    let mut named = model.clone();
    for step in steps {
        model.apply(*step);
        if let Step::Sync = step {
            if memory.sync().is_err() {
                return Some(Promise { named, or: Some(model) });
            }
            named = model.clone();
        } else if data.make(&memory, *step).is_err() {
            return Some(Promise { named, or: None });
        }
    }
    None
}

/// Opens what a crash has left, and crashes before anything was named.
fn recover_and_crash(storage: Arc<Arena>, how: How, random: &mut Random) -> Arc<Arena> {
    let flash = Volatile::over(Some(storage), how);
    flash.fail_from(1 + random.below(8u64));
    if let Ok((memory, _pool)) = start(flash.faulty.clone(), how)
        && let Ok(mut data) = Data::open(&memory)
    {
        let steps = (0..random.below(8u64)).map(|_| choose(random)).collect::<Vec<Step>>();
        // Until one fails.
        let _ = steps.into_iter().try_for_each(|step| data.make(&memory, step));
        // Or at the latest now, before the runtime names a last state.
        flash.fail_from(1);
    }
    flash.crash(random)
}

/// Crashes at each write of the steps. Returns at how many, or what is wrong.
fn crashes(steps: &[Step], how: How, random: &mut Random) -> Result<u64, String> {
    for from in 1.. {
        let flash = Volatile::over(None, how);
        let Some(promise) = run(&flash, how, Model::default(), steps, from) else { return Ok(from - 1) };
        let wrong = |what: String| format!("write {from}: {what}");
        let flash = Volatile::over(Some(flash.crash(random)), how);
        let (memory, pool) = start(flash.faulty.clone(), how).map_err(wrong)?;
        let mut data = Data::open(&memory).map_err(|error| wrong(error.to_string()))?;
        let mut model = promise.find(&data, &memory).map_err(wrong)?;
        // It goes on.
        let later = |error: Error| wrong(format!("later: {error}"));
        for step in steps {
            model.apply(*step);
            data.make(&memory, *step).map_err(later)?;
        }
        memory.sync().map_err(later)?;
        if data.contents(&memory) != Ok(model) {
            return Err(wrong("it does not go on".to_owned()));
        }
        let audit = pool.audit();
        if !audit.is_empty() {
            return Err(wrong(format!("{audit:?}")));
        }
    }
    Ok(0)
}

/// Crashes a pool several times, and some of its recoveries. Returns the crashes, or what is wrong.
fn long_crashes(seed: u64) -> Result<u64, String> {
    let (_, how) = workload(seed, 1);
    let (mut random, mut count) = (Random(seed ^ 0x5EED), 0);
    let mut flash = Volatile::over(None, how);
    let mut model = Model::default();
    for round in 0..4 {
        let wrong = |what: String| format!("round {round}: {what}");
        let steps: Vec<Step> =
            (0..150).map(|_| if random.one_in(4u64) { Step::Sync } else { choose(&mut random) }).collect();
        let from = 1 + random.below(120u64);
        let Some(promise) = run(&flash, how, model.clone(), &steps, from) else {
            return Err(wrong(format!("{} steps have fewer than {from} writes", steps.len())));
        };
        let mut storage = flash.crash(&mut random);
        count += 1;
        while random.one_in(2u64) {
            storage = recover_and_crash(storage, how, &mut random);
            count += 1;
        }
        flash = Volatile::over(Some(storage), how);
        let (memory, pool) = start(flash.faulty.clone(), how).map_err(wrong)?;
        let data = Data::open(&memory).map_err(|error| wrong(error.to_string()))?;
        model = promise.find(&data, &memory).map_err(wrong)?;
        let audit = pool.audit();
        if !audit.is_empty() {
            return Err(wrong(format!("{audit:?}")));
        }
    }
    Ok(count)
}

fn workload(seed: u64, most: u64) -> (Vec<Step>, How) {
    let mut random = Random(seed);
    let mut steps = Vec::new();
    for _ in 0..1 + random.below(most) {
        steps.push(choose(&mut random));
        steps.extend(random.one_in(2u64).then_some(Step::Sync));
    }
    steps.push(Step::Sync);
    let objects = Geometry::with_objects(PAGES, 64, 2 * PAGES).unwrap();
    let geometry = if seed.is_multiple_of(2) { objects } else { Geometry::new(PAGES, 64, None).unwrap() };
    let mut config = StoreConfig::default();
    config.keep_tokens = 1 + random.below(3usize);
    // Some make a checkpoint at each sync.
    config.checkpoint_after = if random.one_in(3u64) { 1 } else { config.checkpoint_after };
    (steps, How { geometry, config, bug: None })
}

#[test]
fn a_crash_at_any_write_leaves_what_was_named() {
    let (mut images, mut workloads) = (0, 0);
    trials::each_seed(1, 60, |seed| {
        workloads += 1;
        let (steps, how) = workload(seed, 3);
        let mut random = Random(seed ^ 0xC4A5);
        images += crashes(&steps, how, &mut random).unwrap_or_else(|why| panic!("seed {seed}, {steps:?}: {why}"));
    });
    println!("{images} images of {workloads} workloads");
    assert!(images >= 5 * workloads, "only {images} images");
    trials::figure(1, "images of crashes at every write of short workloads of blobs and transactions", images);
}

#[test]
fn crashes_of_long_workloads_and_of_their_recovery_leave_what_was_named() {
    let mut count = 0;
    trials::each_seed(1, 100, |seed| {
        count += long_crashes(seed).unwrap_or_else(|why| panic!("seed {seed}, {why}"));
    });
    trials::figure(2, "crashes and recoveries of long workloads of blobs and transactions", count);
}

#[test]
fn a_sync_that_leaves_objects_out_is_found() {
    let found = (2..40).step_by(2).find_map(|seed| {
        let (steps, how) = workload(seed, 3);
        crashes(&steps, How { bug: Some(PlantedInObjects::LeftOut), ..how }, &mut Random(seed)).err()
    });
    println!("{}", found.expect("the planted bug is found"));
}
