//! How large a randomised test is, where it begins, and how it reports.
//!
//! `FULGURITE_SEED` is the first seed, and the seeds count up. `FULGURITE_RUNS` is their number,
//! whatever the test counts. Unset, the first seed is the test's own, and the number a share of its
//! own: `FULGURITE_VOLUME` per cent, 20 unless set. `make test-full` sets 100. So `FULGURITE_SEED=s
//! FULGURITE_RUNS=1` replays one.
//!
//! `scripts/test` and `scripts/soak` name a file in `FULGURITE_FIGURES`. Each test adds its figures
//! for the table in `scripts/figures`, and the scripts compare the sums with the aims there.

use std::io::Write;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Per cent of a test's own number where nothing else is asked for.
const SMALL_PERCENT: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// `FULGURITE_SEED`, or the test's own first seed.
pub fn first_seed(own: u64) -> u64 {
    number("FULGURITE_SEED").unwrap_or(own)
}
/// `FULGURITE_SEED`, or the time; prints it.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let seed = first_seed(now);
    println!("seed {seed}; FULGURITE_SEED={seed} repeats it");
    seed
}
/// `FULGURITE_RUNS`, or the share of the test's own number in `FULGURITE_VOLUME`, at least one.
pub fn runs(own: u64) -> u64 {
    number("FULGURITE_RUNS").unwrap_or_else(|| (own * percent()).div_ceil(100).max(1))
}
/// Whether all that a test may do is asked for.
pub fn is_full() -> bool {
    number("FULGURITE_RUNS").is_some() || percent() >= 100
}
/// A run's share of its steps or operations, where seeds are not the measure.
pub fn share(own: u64) -> u64 {
    if is_full() { own } else { (own * percent()).div_ceil(100) }
}
fn percent() -> u64 {
    number("FULGURITE_VOLUME").unwrap_or(SMALL_PERCENT)
}
/// The seeds of this run.
pub fn seeds(own_first: u64, own_count: u64) -> Range<u64> {
    let first = first_seed(own_first);
    first..first.saturating_add(runs(own_count))
}
/// Whether a test has its full number, as the planned figures need.
pub fn is_whole(own: u64) -> bool {
    runs(own) >= own
}
/// Runs with each seed, and says which one failed and how it is replayed.
pub fn each_seed(own_first: u64, own_count: u64, mut run: impl FnMut(u64)) {
    for seed in seeds(own_first, own_count) {
        let hint = ReplayHint(seed);
        run(seed);
        std::mem::forget(hint);
    }
}
struct ReplayHint(u64);
impl Drop for ReplayHint {
    fn drop(&mut self) {
        eprintln!("seed {0}; replay with FULGURITE_SEED={0} FULGURITE_RUNS=1", self.0);
    }
}

/// Reports a figure for a row of the table in `scripts/figures`, after all checks of the test.
pub fn figure(row: u32, what: &str, count: u64) {
    report(&format!("row {row} | {what} | {count} | violations 0\n"));
}
/// Tells that this machine has no means to do it, and which.
pub fn cannot(row: u32, what: &str, why: &str) {
    report(&format!("row {row} | {what} | skipped | {}\n", why.replace(['\n', '|'], " ")));
}
fn report(line: &str) {
    print!("{line}");
    if let Some(path) = std::env::var_os("FULGURITE_FIGURES") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
        // In one piece: others write there at the same time.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|e| panic!("FULGURITE_FIGURES={}: {e}", path.display()));
    }
}

/// The type of the file system that a path is on, as /proc/self/mountinfo names it.
pub fn file_system_of(path: &std::path::Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Mount point, and behind a dash the type. The longest of those that hold the path, and its
    // last.
    let holds = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.replace("\\040", " ");
        path.starts_with(&point).then(|| (point.len(), rest.split(' ').next().unwrap_or_default().to_owned()))
    };
    mounts.lines().filter_map(holds).max_by_key(|(length, _)| *length).map_or("unknown".into(), |(_, kind)| kind)
}
