//! Goal: a pool may have many more objects than there is DRAM for their locations, and a program of
//! little DRAM uses it as any other. Method: blobs of a few bytes, in a pool whose tables alone
//! would take more than all of the budget. All are put, without a sync of the program's own, and
//! changed by two workers. What is read must be what a model has, also after a roll back and a
//! restart. Then processes that change them are killed. What is there must be what their first N
//! steps leave, where N is no less than they have synced. The memory of such a process stays below
//! its budget.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::{AccessError, Blobs, Context, Fulgurite, Medium, Rooted};
use fulgurite_flash::{FileConfig, FileFlash};
use fulgurite_store::{Pool, Store, StoreConfig};
use fulgurite_testkit as trials;
use trials::Random;

const CHILD: &str = "FULGURITE_TEST_PAGED";
const DRAM_BYTES: u64 = 40 << 20;
/// Address space for this number of objects. Words of the cache and tables of the pool, of 22 bytes
/// for each, would take more than the budget.
const ADDRESSED: u64 = 2_000_000;
/// Objects that there are: more than there is DRAM for their locations.
const KEYS: u64 = 70_000;
/// Changes of a job before it ends.
const STEPS: u64 = 1000;

type Numbers = Arc<Rooted<Blobs<u64>>>;

/// A value of a key after `number` changes. Each byte depends on both.
fn value(key: u64, number: u64) -> Vec<u8> {
    let word = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03);
    word.to_le_bytes().repeat(1 + key as usize % 6)
}

fn open(medium: Medium) -> (Fulgurite, Numbers) {
    let memory = Fulgurite::builder(medium).dram(DRAM_BYTES).object_cache("1M").workers(2).start().unwrap();
    let numbers = memory.named("numbers").blobs::<u64>(KEYS + 2, 16 << 20).unwrap();
    (memory, numbers)
}

/// The key that a step of a writer changes. Each writer has every second one.
fn key_of(writer: u64, step: u64) -> u64 {
    Random(step.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ writer).below(KEYS / 2) * 2 + writer
}
/// Changes the key of a step, and the writer's count of steps with it.
fn make(m: &mut Context, numbers: &Numbers, writer: u64, step: u64) -> Result<(), AccessError> {
    let key = key_of(writer, step);
    let _section = m.write_section()?;
    numbers.put(m, &(KEYS + writer), &step.to_le_bytes())?;
    numbers.put(m, &key, &value(key, step)).map(drop)
}
fn count(m: &mut Context, numbers: &Numbers, writer: u64) -> Result<u64, AccessError> {
    let mut count = Vec::new();
    numbers.get(m, &(KEYS + writer), &mut count)?;
    Ok(count.try_into().map_or(0, u64::from_le_bytes))
}

/// The step that changed each key last, after a number of steps of each writer.
struct Model {
    steps: [u64; 2],
    last: Vec<u64>,
}

impl Model {
    fn new() -> Model {
        Model { steps: [0; 2], last: vec![0; KEYS as usize] }
    }
    fn go_to(&mut self, steps: [u64; 2]) {
        for (writer, to) in (0..).zip(steps) {
            let from = self.steps[writer as usize];
            (from + 1..=to).for_each(|step| self.last[key_of(writer, step) as usize] = step);
        }
        self.steps = steps;
    }
    fn compare(&self, memory: &Fulgurite, numbers: &Numbers) {
        memory
            .run(|m| {
                let mut found = Vec::new();
                for key in 0..KEYS {
                    let there = numbers.get(m, &key, &mut found)?;
                    assert!(there && found == value(key, self.last[key as usize]), "key {key}");
                }
                Ok(())
            })
            .unwrap();
    }
}

/// The steps of both writers that are there.
fn steps(memory: &Fulgurite, numbers: &Numbers) -> [u64; 2] {
    memory.run(|m| Ok([count(m, numbers, 0)?, count(m, numbers, 1)?])).unwrap()
}

/// Both writers at once, until they have made `to` steps.
fn work(memory: &Fulgurite, numbers: &Numbers, model: &Model, to: [u64; 2]) {
    std::thread::scope(|scope| {
        for (writer, to) in (0..).zip(to) {
            let from = model.steps[writer as usize];
            scope.spawn(move || {
                memory.run(|m| (from + 1..=to).try_for_each(|step| make(m, numbers, writer, step))).unwrap();
            });
        }
    });
}

/// The DRAM of this process that is no file's, in bytes.
fn memory_of_process() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The process that is killed.
#[test]
#[ignore = "started by the test below"]
fn writers() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let before = memory_of_process();
    let (memory, numbers) = open(Medium::pool(&path));
    let done = steps(&memory, &numbers).map(AtomicU64::new);
    std::thread::scope(|scope| {
        for (writer, done) in (0..).zip(&done) {
            let (memory, numbers) = (&memory, &numbers);
            scope.spawn(move || {
                loop {
                    let step = done.load(Ordering::SeqCst) + 1;
                    memory.run(|m| make(m, numbers, writer, step)).unwrap();
                    done.store(step, Ordering::SeqCst);
                }
            });
        }
        loop {
            let [first, second] = [0, 1].map(|writer: usize| done[writer].load(Ordering::SeqCst));
            memory.sync().unwrap();
            println!("\nsynced {first} {second} {}", memory_of_process().saturating_sub(before));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Lets the writers run for a while. Returns what they reported last: steps, and bytes of DRAM.
fn run_and_kill(path: &Path, time: Duration) -> [u64; 3] {
    let mut child = trials::again(module_path!(), "writers");
    trials::kill_after(child.env(CHILD, path), 3, time, |_| ()).try_into().unwrap()
}

/// What the pool says of itself, opened as programs open it.
fn show_pool(path: &Path) {
    let file = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    let mut config = StoreConfig::default();
    config.history_bytes = DRAM_BYTES as usize / 16;
    let (pool, _) = Pool::open(file.clone(), config).unwrap();
    let geometry = pool.geometry();
    let all = Store::dram_needed(geometry, config) as u64 + u64::from(geometry.subpages) * 33 / 8;
    assert!(all > DRAM_BYTES, "all tables take {all} bytes, for which there is room");
    assert_eq!(pool.audit(), Vec::<String>::new());
    let objects = pool.info().objects;
    drop(pool);
    config.leaf_bytes = Store::leaf_bytes_within(geometry, config, 0);
    let (pool, _) = Pool::open(file, config).unwrap();
    let info = pool.info();
    println!("{objects} objects, {} with all in DRAM: {info:?}", all);
    assert_eq!((pool.audit(), info.objects), (Vec::new(), objects));
    // How many depends on the journal that a kill leaves: what is about a page brings its leaf in.
    assert!(info.pages_out > 0, "{info:?}");
}

#[test]
fn a_program_of_little_dram_has_more_objects_than_it_could_say_where_they_lie() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("pool");
    let (mut memory, mut numbers) = open(Medium::new_pool(&path, "96M").objects(ADDRESSED));
    // Nobody syncs but the pool itself.
    for first in (0..KEYS).step_by(3500) {
        memory
            .run(|m| (first..first + 3500).try_for_each(|key| numbers.put(m, &key, &value(key, 0)).map(drop)))
            .unwrap();
    }
    let mut model = Model::new();
    let rounds = if trials::is_full() { 3 } else { 1 };
    for round in 1..=rounds {
        let to = [round * STEPS; 2];
        work(&memory, &numbers, &model, to);
        model.go_to(to);
        let token = memory.sync().unwrap();
        memory.pin_token(token, true).unwrap();
        // What comes after the token is undone.
        work(&memory, &numbers, &model, [to[0] + 200, to[1] + 300]);
        memory.roll_back(token).unwrap();
        memory.pin_token(token, false).unwrap();
        assert_eq!(steps(&memory, &numbers), to);
    }
    model.compare(&memory, &numbers);
    memory.run(|m| numbers.check(m)).unwrap();
    drop((memory, numbers));
    show_pool(&path);
    let kills = trials::runs(5);
    let mut random = Random::seeded("kills of a pool of many objects", trials::first_seed(4));
    for kill in 0..kills {
        let told = run_and_kill(&path, Duration::from_millis(200 + random.below(600u64)));
        (memory, numbers) = open(Medium::pool(&path));
        let there = steps(&memory, &numbers);
        assert!(there[0] >= told[0] && there[1] >= told[1], "kill {kill}: {there:?} are there of {told:?}");
        model.go_to(there);
        model.compare(&memory, &numbers);
        drop((memory, numbers));
        // Stacks of threads and what the test allocates are no part of the budget.
        println!("kill {kill}: {there:?} steps, {} bytes of DRAM", told[2]);
        assert!(told[2] < DRAM_BYTES + (4 << 20), "kill {kill}: {} bytes of DRAM", told[2]);
    }
    show_pool(&path);
    // All leaves at once would be more than there is DRAM for, and the last token's objects cannot
    // all be remembered: they go in parts. Without any room nothing is removed, and writers have
    // their leaves all the same.
    (memory, numbers) = open(Medium::pool(&path));
    drop(numbers);
    let removed = memory.named("numbers").remove();
    let numbers = memory.named("numbers").blobs::<u64>(KEYS + 2, 16 << 20).unwrap();
    match removed {
        Ok(()) => assert_eq!(memory.run(|m| numbers.check(m)), Ok((0, 0))),
        Err(error) => {
            println!("not removed: {error}");
            model.compare(&memory, &numbers);
        }
    }
    for first in (0..KEYS).step_by(3500) {
        memory
            .run(|m| (first..first + 3500).try_for_each(|key| numbers.put(m, &key, &value(key, 9)).map(drop)))
            .unwrap();
    }
    memory.sync().unwrap();
    drop((memory, numbers));
    show_pool(&path);
}
