//! Goal: a crash after any write leaves what the last sync has named, or the one under way: of
//! blobs, those that are objects included, of maps, transactions, and containers that are removed.
//! Method: short workloads over flash in memory. Each is run once for each of its writes, of which
//! that one and all later ones fail. The pool is opened on what the flash holds then, and compared
//! with a model of both states. It is checked, and goes on. A sync that leaves objects out must be
//! found.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, When};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_memory::{AccessError, Blobs, HashMap, OrderedBlobs, VersionLatch};
use fulgurite_runtime::{PlantedInObjects, Runtime};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_testkit as trials;
use trials::Random;

use crate::registry::Handle;
use crate::store::Store;
use crate::{Durability, Error, Fulgurite};

/// Flash pages: 16 MiB.
const PAGES: u32 = 4096;
/// Of a pool of objects, 12 bytes of each address are in DRAM.
const DRAM_BYTES: u64 = 16 << 20;
/// Of these the even ones are under numbers, and the others under strings.
const KEYS: u64 = 6;
/// Where the map counts transactions.
const MOVES: u64 = 0;

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, usize, u64),
    Append(u64, usize, u64),
    /// Its first bytes, as far as it has so many.
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
            strings: memory.named("strings").ordered_blobs(1 << 20)?,
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

/// A memory over a pool on this medium.
fn start(medium: Arc<dyn Flash>, how: How) -> (Fulgurite, Arc<Pool>) {
    let flash = Arc::new(Pool::open(medium, how.config).unwrap().0.into_flash());
    let pool = flash.layer().clone();
    let bytes = u64::from(flash.subpages()) * SUBPAGE_BYTES as u64;
    let runtime = Runtime::builder(flash).workers(1).dram(DRAM_BYTES).objects(1 << 20).objects_move(false);
    let runtime = match how.bug {
        Some(bug) => runtime.plant_in_objects(bug),
        None => runtime,
    };
    // A build without optimization takes more stack than the 32 KiB of a fiber.
    let runtime = Arc::new(runtime.stack(128 << 10).fibers(8).existing(bytes).build().unwrap());
    let memory = Fulgurite::over(runtime, Some(Store::Here(pool.clone())), None, Durability::Sync, DRAM_BYTES);
    (memory.unwrap(), pool)
}

/// What must be there after a crash.
struct Promise {
    named: Model,
    /// A sync was under way.
    or: Option<Model>,
}

/// Runs the steps, of whose writes all from one on fail. None: there are not so many.
fn crash(faulty: &Arc<FaultyFlash<MemoryFlash>>, how: How, steps: &[Step], from: u64) -> Option<Promise> {
    let (memory, _pool) = start(faulty.clone(), how);
    let mut data = Data::open(&memory).unwrap();
    memory.sync().unwrap();
    let fault = Fault::Fails(FlashError::Poisoned);
    faulty.set_plan(FaultPlan::rule(Some(Op::Write), When::From(from), fault));
    let (mut model, mut named) = (Model::default(), Model::default());
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

/// Crashes at each write of the steps. Returns at how many, or what is wrong.
fn crashes(steps: &[Step], how: How) -> Result<u64, String> {
    for from in 1.. {
        let medium = MemoryFlash::new(PAGES).unwrap();
        let storage = medium.storage().clone();
        let faulty = Arc::new(FaultyFlash::new(medium, FaultPlan::default()));
        let formatted: Arc<dyn Flash> = faulty.clone();
        Pool::format(&formatted, how.geometry, PoolId([7; 16]), 0).unwrap();
        let Some(promise) = crash(&faulty, how, steps, from) else { return Ok(from - 1) };
        let wrong = |what: String| Err(format!("write {from}: {what}"));
        let (memory, pool) = start(Arc::new(MemoryFlash::over(storage, PAGES).unwrap()), how);
        let mut data = Data::open(&memory).map_err(|error| format!("write {from}: {error}"))?;
        let found = data.contents(&memory).map_err(|error| format!("write {from}: {error}"))?;
        if found != promise.named && promise.or.is_none_or(|or| found != or) {
            return wrong("blobs are of no state that a sync has named".to_owned());
        }
        // It goes on.
        let mut model = found;
        for step in steps {
            model.apply(*step);
            data.make(&memory, *step).map_err(|error| format!("write {from}, later: {error}"))?;
        }
        memory.sync().map_err(|error| format!("write {from}, later: {error}"))?;
        if data.contents(&memory) != Ok(model) {
            return wrong("it does not go on".to_owned());
        }
        let audit = pool.audit();
        if !audit.is_empty() {
            return wrong(format!("{audit:?}"));
        }
    }
    Ok(0)
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
        images += crashes(&steps, how).unwrap_or_else(|why| panic!("seed {seed}, {steps:?}: {why}"));
    });
    println!("{images} images of {workloads} workloads");
    assert!(images >= 5 * workloads, "only {images} images");
    trials::figure(1, "images of crashes at every write of short workloads of blobs and transactions", images);
}

#[test]
fn a_sync_that_leaves_objects_out_is_found() {
    let found = (2..40).step_by(2).find_map(|seed| {
        let (steps, how) = workload(seed, 3);
        crashes(&steps, How { bug: Some(PlantedInObjects::LeftOut), ..how }).err()
    });
    println!("{}", found.expect("the planted bug is found"));
}
