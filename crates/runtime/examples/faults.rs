//! What jobs do while pages of an allocator's memory are read: by plain accesses they wait with
//! their worker, by `reach` alone.
//!
//! ```text
//! cargo run --release -p fulgurite-runtime --example faults -- /mnt/nvme
//! ```
//!
//! One worker. Each job loads random words from eight times the DRAM for pages. A job that never
//! touches that memory counts how often it had its turn.

use std::alloc::Layout;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite_alloc::{Allocator, Mode, reach};
use fulgurite_backing::Medium;
use fulgurite_flash::MemoryFlash;
use fulgurite_runtime::{Context, Runtime};
use fulgurite_testkit::Random;

const PAGE: usize = 4096;
const PAGES: usize = 64 << 10;
const TIME: Duration = Duration::from_secs(2);
const JOBS: [usize; 3] = [1, 8, 64];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Plain,
    Reach,
}

fn main() {
    let directory: PathBuf = std::env::args_os().nth(1).expect("a directory for 256 MiB of flash").into();
    let own = Arc::new(MemoryFlash::new(1024).expect("memory"));
    let runtime = Runtime::builder(own).dram(16 << 20).fibers(65).build().expect("a runtime");
    let file = directory.join("faults.flash");
    let medium = Medium::new_file(&file, (PAGES * PAGE + (16 << 20)) as u64);
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells memory");
    let resident: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    let dram = resident * PAGE as u64 + (PAGES * PAGE / 8) as u64 + (8 << 20);
    let allocator = Allocator::start_in(Mode::InLine, medium, dram).expect("an allocator");
    let _ = std::fs::remove_file(file);
    println!("{}", allocator.describe());
    let layout = Layout::from_size_align(PAGES * PAGE, PAGE).expect("a layout");
    let base = allocator.allocate(layout).expect("there is room").as_ptr() as usize;
    for page in 0..PAGES {
        // SAFETY: the word is in the block, which only this function has.
        unsafe { ((base + page * PAGE) as *mut u64).write(page as u64) };
    }
    println!("jobs  how    loads/s  p(fault)  switched  turns of the other job/s");
    for jobs in JOBS {
        for (turn, how) in [How::Plain, How::Reach, How::Plain, How::Reach].into_iter().enumerate() {
            let before = allocator.summary();
            let (loads, turns) = round(&runtime, base, (jobs, turn), how);
            let after = allocator.summary();
            let share = |count: u64, of: u64| 100.0 * count as f64 / of.max(1) as f64;
            let (faults, switched) = (after.faults - before.faults, after.faults_switched - before.faults_switched);
            let per_s = |count: u64| count as f64 / TIME.as_secs_f64();
            println!(
                "{jobs:4}  {how:5?}  {:7.0}  {:7.0}%  {:7.0}%  {:.0}",
                per_s(loads),
                share(faults, loads),
                share(switched, faults),
                per_s(turns)
            );
        }
    }
}

/// Runs `jobs` jobs for a while. Returns their loads, and the turns of another job.
fn round(runtime: &Runtime, base: usize, (jobs, turn): (usize, usize), how: How) -> (u64, u64) {
    let end = Instant::now() + TIME;
    let turns = Arc::new(AtomicU64::new(0));
    let count = turns.clone();
    let other = move |m: &mut Context| {
        while Instant::now() < end {
            count.fetch_add(1, Ordering::Relaxed);
            m.sleep(Duration::from_micros(20)).expect("nothing ends it");
        }
    };
    let other = runtime.submit(other).expect("it is accepted");
    let load = |job: usize| {
        let code = move |m: &mut Context| {
            let (mut random, mut loads) = (Random::seeded("faults", (jobs << 16 | turn << 8 | job) as u64), 0);
            while Instant::now() < end {
                let page = random.below(PAGES);
                // SAFETY: the word is in the block, which lives as long as the process. Nothing
                // writes to it now.
                let word = unsafe { &*((base + page * PAGE) as *const u64) };
                let found = match how {
                    How::Plain => *std::hint::black_box(word),
                    How::Reach => reach::load(m, word),
                };
                assert_eq!(found, page as u64);
                loads += 1;
                if how == How::Plain {
                    m.yield_now().expect("nothing ends it");
                }
            }
            loads
        };
        runtime.submit(code).expect("it is accepted")
    };
    let jobs: Vec<_> = (0..jobs).map(load).collect();
    let loads = jobs.into_iter().map(|job| job.wait().expect("it ends")).sum();
    other.wait().expect("it ends");
    (loads, turns.load(Ordering::Relaxed))
}
