//! Goal: a process that is killed while it writes blobs and records loses nothing that a sync had
//! named, keeps nothing of half an operation, and leaves whole values only. Method: six writers in
//! a process of its own put, append to, change and remove values of 0 to 60,000 bytes, in blobs
//! under numbers and under strings and in a map of records, which empties segments of its log and
//! writes checkpoints meanwhile. Half of them are jobs, and half are threads that execute their
//! steps themselves. Now and then one removes all of its own, and their pages are given back. What
//! a writer does at each of its steps follows from the step's number. A step changes two blobs in
//! one write section, its own and the writer's count of steps, unless it removes all. Another
//! thread syncs, and reports through a pipe how many steps each writer had done before. The process
//! is killed at a random moment. The pool is opened and compared: each writer's blobs must be what
//! its first N steps leave, where N is its count, and no less than was reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{AccessError, Blobs, Error, Fulgurite, Map, Medium, Memory, OrderedBlobs, Rooted, Store};
use fulgurite_testkit as trials;
use trials::Random;

const CHILD: &str = "FULGURITE_TEST_BLOBS";
const WRITERS: u64 = 6;
/// Blobs of each writer.
const KEYS: u64 = 40;
const POOL_BYTES: u64 = 64 << 20;

/// What a step does.
enum Step {
    Put(u64, Vec<u8>),
    Remove(u64),
    Append(u64, Vec<u8>),
    /// Its first bytes become these, as far as it has as many.
    WriteAt(u64, Vec<u8>),
    /// All are removed, so that pages are given back.
    Clear,
}

fn step(writer: u64, number: u64) -> Step {
    let mut random = Random((writer << 56) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let key = random.below(KEYS);
    let len = [0, 100, 3000, 4096, 4097, 60_000][random.below(6usize)];
    if random.one_in(60) {
        return Step::Clear;
    }
    match random.below(8) {
        0 => Step::Remove(key),
        1 => Step::Append(key, random.bytes(50)),
        2 => Step::WriteAt(key, random.bytes(5000)),
        _ => Step::Put(key, random.bytes(len)),
    }
}

fn apply(model: &mut BTreeMap<u64, Vec<u8>>, step: Step) {
    match step {
        Step::Put(key, value) => drop(model.insert(key, value)),
        Step::Remove(key) => drop(model.remove(&key)),
        Step::Clear => model.clear(),
        Step::Append(key, bytes) => model.entry(key).or_default().extend(bytes),
        Step::WriteAt(key, bytes) => {
            if let Some(value) = model.get_mut(&key).filter(|value| value.len() >= bytes.len()) {
                value[..bytes.len()].copy_from_slice(&bytes);
            }
        }
    }
}

/// What a writer's values are in.
enum Kind {
    Numbers,
    Strings,
    Records,
}

impl Kind {
    fn of(writer: u64) -> Kind {
        match writer % 3 {
            0 => Kind::Numbers,
            1 => Kind::Strings,
            _ => Kind::Records,
        }
    }
}

struct Data {
    numbers: Arc<Rooted<Blobs<u64>>>,
    strings: Arc<Rooted<OrderedBlobs>>,
    records: Arc<Map<u64, [u8]>>,
}

impl Data {
    fn open(memory: &Store) -> Result<Data, Error> {
        Ok(Data {
            numbers: memory.named("numbers").blobs(100, 16 << 20)?,
            strings: memory.named("strings").ordered_blobs(16 << 10, 16 << 20)?,
            records: memory.map("records")?,
        })
    }
    fn number(writer: u64, key: u64) -> u64 {
        (writer << 32) | key
    }
    fn string(writer: u64, key: u64) -> Vec<u8> {
        format!("/writers/{writer}/{key:05}").into_bytes()
    }
    fn count<M: Memory>(&self, m: &mut M, writer: u64) -> Result<u64, AccessError> {
        let mut count = Vec::new();
        self.numbers.get(m, &Self::number(writer, KEYS), &mut count)?;
        Ok(count.try_into().map_or(0, u64::from_le_bytes))
    }
    /// One step, and its number.
    fn make<M: Memory>(&self, m: &mut M, writer: u64, number: u64) -> Result<(), AccessError> {
        let _section = m.write_section()?;
        self.numbers.put(m, &Self::number(writer, KEYS), &number.to_le_bytes())?;
        let step = step(writer, number);
        let mut value = Vec::new();
        match Kind::of(writer) {
            Kind::Numbers => {
                let at = |key| Self::number(writer, key);
                match step {
                    Step::Put(key, value) => drop(self.numbers.put(m, &at(key), &value)?),
                    Step::Remove(key) => drop(self.numbers.remove(m, &at(key))?),
                    Step::Clear => (0..KEYS).try_for_each(|key| self.numbers.remove(m, &at(key)).map(drop))?,
                    Step::Append(key, bytes) => drop(self.numbers.append(m, &at(key), &bytes)?),
                    Step::WriteAt(key, bytes) => drop(self.numbers.write_at(m, &at(key), 0, &bytes)?),
                }
            }
            Kind::Strings => {
                let at = |key| Self::string(writer, key);
                match step {
                    Step::Put(key, value) => drop(self.strings.put(m, &at(key), &value)?),
                    Step::Remove(key) => drop(self.strings.remove(m, &at(key))?),
                    Step::Clear => (0..KEYS).try_for_each(|key| self.strings.remove(m, &at(key)).map(drop))?,
                    Step::Append(key, bytes) => drop(self.strings.append(m, &at(key), &bytes)?),
                    Step::WriteAt(key, bytes) => drop(self.strings.write_at(m, &at(key), 0, &bytes)?),
                }
            }
            Kind::Records => {
                let at = |key| Self::number(writer, key);
                match step {
                    Step::Put(key, value) => self.records.within(m).put(&at(key), &value)?,
                    Step::Remove(key) => drop(self.records.within(m).remove(&at(key))?),
                    Step::Clear => (0..KEYS).try_for_each(|key| self.records.within(m).remove(&at(key)).map(drop))?,
                    Step::Append(key, bytes) => {
                        self.records.within(m).get_into(&at(key), &mut value)?;
                        value.extend_from_slice(&bytes);
                        self.records.within(m).put(&at(key), &value)?;
                    }
                    Step::WriteAt(key, bytes) => {
                        self.records.within(m).get_into(&at(key), &mut value)?;
                        if value.len() >= bytes.len() {
                            value[..bytes.len()].copy_from_slice(&bytes);
                            self.records.within(m).put(&at(key), &value)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
    fn blobs<M: Memory>(&self, m: &mut M, writer: u64) -> Result<BTreeMap<u64, Vec<u8>>, AccessError> {
        let mut blobs = BTreeMap::new();
        for key in 0..KEYS {
            let mut value = Vec::new();
            let found = match Kind::of(writer) {
                Kind::Numbers => self.numbers.get(m, &Self::number(writer, key), &mut value)?,
                Kind::Strings => self.strings.get(m, &Self::string(writer, key), &mut value)?,
                Kind::Records => self.records.within(m).get_into(&Self::number(writer, key), &mut value)?,
            };
            if found {
                blobs.insert(key, value);
            }
        }
        Ok(blobs)
    }
}

fn open(path: &Path, medium: Medium) -> (Store, Arc<Data>) {
    // Less DRAM than there is data, so that much of a step is on flash before it is named. A pool
    // of objects has larger tables.
    let dram = if path.ends_with("objects") { "22M" } else { "10M" };
    let builder = Fulgurite::builder(medium).dram(dram).object_cache("1M").record_cache("2M");
    let memory = Store::from(builder.workers(2).start().unwrap());
    let data = Data::open(&memory).unwrap().into();
    (memory, data)
}

/// The process that is killed.
#[test]
#[ignore = "started by the test below"]
fn writers() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (memory, data) = open(path.as_ref(), Medium::pool(&path));
    let its = data.clone();
    let done: Vec<AtomicU64> =
        memory.run(move |m| (0..WRITERS).map(|writer| its.count(m, writer).map(AtomicU64::new)).collect()).unwrap();
    std::thread::scope(|scope| {
        for (writer, done) in done.iter().enumerate() {
            let (memory, data) = (&memory, &data);
            scope.spawn(move || {
                loop {
                    let (number, its) = (done.load(Ordering::SeqCst) + 1, data.clone());
                    let made = match writer < WRITERS as usize / 2 {
                        true => memory.run(move |m| its.make(m, writer as u64, number)),
                        false => memory.run_here(|m| its.make(m, writer as u64, number)),
                    };
                    match made {
                        Ok(()) => done.store(number, Ordering::SeqCst),
                        // A step that failed may have changed one of its two blobs.
                        Err(error) => panic!("step {number} of {writer}: {error}"),
                    }
                }
            });
        }
        trials::sync_and_report(&done, Duration::from_millis(5), || {
            memory.sync().unwrap();
        });
    });
}

#[test]
fn a_killed_process_leaves_blobs_whole_and_of_one_state() {
    kill_and_compare("blobs", 0, 1);
}
#[test]
fn a_killed_process_leaves_objects_whole_and_of_one_state() {
    kill_and_compare("objects", 20_000, 2);
}

fn kill_and_compare(what: &str, objects: u64, seed: u64) {
    let kills = trials::runs(20);
    let mut random = Random::seeded(&format!("kills among {what}"), trials::first_seed(seed));
    // The directory of the built programs is more likely on a disk than the one of temporary files.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join(what);
    drop(open(&path, Medium::new_pool(&path, POOL_BYTES).objects(objects)));
    let mut models = vec![(0, BTreeMap::new()); WRITERS as usize];
    for kill in 0..kills {
        let told = run_and_kill(&path, Duration::from_millis(300 + random.below(700u64)));
        let (memory, data) = open(path.as_ref(), Medium::pool(&path));
        for (writer, (steps, model)) in models.iter_mut().enumerate() {
            let (its, writer) = (data.clone(), writer as u64);
            let (count, found) = memory.run(move |m| Ok((its.count(m, writer)?, its.blobs(m, writer)?))).unwrap();
            assert!(count >= told[writer as usize], "kill {kill}: writer {writer} lost steps: {count} of {told:?}");
            for number in *steps + 1..=count {
                apply(model, step(writer, number));
            }
            *steps = count;
            assert!(found == *model, "kill {kill}: blobs of writer {writer} are not those after {count} steps");
        }
        let its = data.clone();
        memory.run(move |m| its.numbers.check(m).and(its.strings.check(m))).unwrap();
    }
    let steps: u64 = models.iter().map(|(steps, _)| steps).sum();
    println!("{kills} kills, {steps} steps");
    assert!(steps > kills * 20, "only {steps} steps were named");
    trials::figure(23, &format!("kills among writers of {what}"), kills);
}

/// Lets the writers run for a while, and returns what they reported last.
fn run_and_kill(path: &Path, time: Duration) -> Vec<u64> {
    trials::kill_after(trials::again(module_path!(), "writers").env(CHILD, path), WRITERS as usize, time, |_| ())
}
