//! Goal: DRAM moves to objects while objects are missed, and back to frames while pages are, and
//! what is resident never passes the budget. Method: this binary again as a child in a memory
//! cgroup of the budget and what the test takes itself (as root; else without one). It reads more
//! objects than their first share holds until their share has grown, then more pages, until theirs
//! has, and so to and fro. The budget is lowered and raised again meanwhile. Each value that is
//! read must be what was put. A thread checks all the time how much anonymous memory is resident.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::{AccessError, Array, Blobs, Fulgurite, Medium, Rooted};
use fulgurite_testkit as trials;
use trials::Random;

const CHILD: &str = "FULGURITE_TEST_MOVES";
const NAME: &str = "dram_moves_to_where_it_is_missed_and_stays_below_the_cap";
const BUDGET: u64 = 96 << 20;
/// What the test takes itself: 32 jobs, threads, and what was touched before the start.
const BESIDE: u64 = 4 << 20;
/// Pages of the program, which the cgroup counts too.
const PROGRAM: u64 = 8 << 20;
/// How often DRAM moves to objects and back.
fn rounds() -> u64 {
    if trials::is_full() { 3 } else { 1 }
}
/// Passes of 16,000 reads until a share has changed, at most. It takes some ten.
const PASSES: u64 = 200;
/// Objects of 200 bytes, which take 35 MiB of DRAM. A quarter of the budget is 24.
const OBJECTS: u64 = 160_000;
/// Subpages: 80 MiB.
const PAGES: u64 = 20_000;

fn value(key: u64, number: u64) -> Vec<u8> {
    (key ^ (number << 32)).to_le_bytes().repeat(25)
}

struct Data {
    objects: Arc<Rooted<Blobs<u64>>>,
    pages: Array<[u64; 512]>,
}

/// Reads at random until `is_enough`.
fn read(memory: &Fulgurite, data: &Data, pages: bool, is_enough: &dyn Fn() -> bool) {
    for seed in 0..PASSES {
        if is_enough() {
            return;
        }
        let jobs: Vec<_> = (0..32u64)
            .map(|job| {
                let (objects, pages_of, mut random) = (data.objects.clone(), data.pages, Random(seed << 8).split(job));
                let code = move |m: &mut fulgurite::Context| {
                    let mut found = Vec::new();
                    for _ in 0..500 {
                        if pages {
                            let at = random.below(PAGES);
                            assert_eq!(pages_of.get(m, at)?[511], at, "a page");
                        } else {
                            let key = random.below(OBJECTS);
                            assert!(objects.get(m, &key, &mut found)? && found == value(key, 1), "object {key}");
                        }
                        // Some change, so that what is dirty moves, too.
                        if random.one_in(50u64) {
                            let key = random.below(OBJECTS);
                            objects.put(m, &key, &value(key, 1))?;
                        }
                    }
                    Ok::<_, AccessError>(())
                };
                memory.submit(code).unwrap()
            })
            .collect();
        jobs.into_iter().for_each(|job| job.wait().unwrap().unwrap());
        memory.sync().unwrap();
    }
    panic!("objects still have {} bytes", memory.runtime().objects_bytes());
}

/// Anonymous memory of this process that is resident.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    kib.unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Checks each millisecond, until it is notified that it is over. Returns the most.
fn peak(over: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !over.load(Ordering::Acquire) {
        peak = peak.max(resident());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    peak
}

fn moves(directory: &Path) {
    let medium = Medium::new_pool(directory.join("pool"), "256M").objects(300_000);
    let memory = Fulgurite::builder(medium).dram(BUDGET).workers(2).start().unwrap();
    let data = Data {
        objects: memory.named("objects").blobs(OBJECTS, 1 << 20).unwrap(),
        pages: memory.named("pages").array(PAGES, |at| [at; 512]).unwrap(),
    };
    for first in (0..OBJECTS).step_by(4000) {
        let objects = data.objects.clone();
        let put = move |m: &mut fulgurite::Context| {
            (first..first + 4000).try_for_each(|key| objects.put(m, &key, &value(key, 1)).map(drop))
        };
        memory.run(put).unwrap();
        memory.sync().unwrap();
    }
    let now = || memory.runtime().objects_bytes();
    let first = now();
    assert!(first <= BUDGET / 4 && first > BUDGET / 5, "{first}");
    for round in 0..rounds() {
        let start = now();
        read(&memory, &data, false, &|| now() > start * 5 / 4);
        let most = now();
        if round == 0 {
            // Then there is less than objects have, and they give it although they are missed.
            memory.runtime().set_dram(BUDGET - (16 << 20)).unwrap();
            read(&memory, &data, false, &|| now() < most * 9 / 10);
            memory.runtime().set_dram(BUDGET).unwrap();
        }
        let before = now();
        read(&memory, &data, true, &|| now() < before * 3 / 4);
        println!("round {round}: objects had {start}, {most} and {} bytes; {} are resident", now(), resident());
    }
    let objects = data.objects.clone();
    memory.run(move |m| objects.check(m)).unwrap();
}

/// A memory cgroup for one child; removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Group> {
        let name = format!("fulgurite-moves-{}", std::process::id());
        for (root, max) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let path = Path::new(root).join(&name);
            if std::fs::create_dir(&path).is_ok() {
                let group = Group(path);
                if std::fs::write(group.0.join(max), limit.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }
}
impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn dram_moves_to_where_it_is_missed_and_stays_below_the_cap() {
    if let Some(group) = std::env::var_os(CHILD) {
        if !group.is_empty() {
            std::fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
        }
        // On a disk: what a file in memory takes would count.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let looks = std::thread::spawn({
            let over = over.clone();
            move || peak(&over)
        });
        moves(directory.path());
        over.store(true, Ordering::Release);
        let peak = looks.join().unwrap();
        println!("at most {peak} bytes were resident");
        assert!(peak <= BUDGET + BESIDE, "{peak} bytes were resident of a budget of {BUDGET}");
        return;
    }
    let group = Group::new(BUDGET + BESIDE + PROGRAM);
    let path = group.as_ref().map(|group| group.0.clone()).unwrap_or_default();
    let child = trials::again(module_path!(), NAME).env(CHILD, &path).output().unwrap();
    println!("{}{}", if group.is_some() { "" } else { "without a cgroup: " }, String::from_utf8_lossy(&child.stdout));
    assert!(child.status.success(), "{:?}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}
