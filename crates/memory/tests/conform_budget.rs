//! Goal: the DRAM budget is a cap, live and whole. It can be changed under load without losing
//! anything, what cannot work is refused with a reason before anything starts, and a process in a
//! memory cgroup of the budget and 64 MiB is never killed. Method: resizing under a model; bad
//! input by bad input. Then this binary again as a child in a cgroup (as root, with cgroup v1 or
//! v2; else that test says that it was skipped), in a miss storm of 2 workers x 10,000 fibers over
//! 4 x its DRAM.

use crate::common;
use crate::guarded;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::Random;
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, MemoryFlash};
use fulgurite_memory::Memory;
use fulgurite_runtime::{BuildError, Context, JobOptions, Runtime};
use fulgurite_sys::{Arena, Backed};
use guarded::{quick_device, with_frames, within, word};

#[test]
fn the_budget_changes_under_load() {
    within(60, "set_dram", || {
        let random = Random::seeded("conform_budget", 9);
        for workers in 1..=2 {
            let w = workers as u64;
            let max = 16 << 20;
            let builder = Runtime::builder(quick_device(256)).fibers(6).dram_max(max).workers(workers);
            let Err(BuildError::TooSmall { fixed, least, .. }) = builder.clone().dram(1).build() else { panic!() };
            // What is kept for the frames of the maximum is more the further off that is.
            assert!(least > fixed);
            let runtime = Arc::new(builder.dram(8 << 20).build().unwrap());
            let (fixed, most) = (runtime.fixed_bytes(), runtime.frames());
            assert!(matches!(runtime.set_dram(fixed), Err(BuildError::TooSmall { .. })));
            assert!(matches!(runtime.set_dram(max + 1), Err(BuildError::Unusable { .. })));
            let Err(BuildError::TooSmall { least, .. }) = runtime.set_dram(0) else { panic!() };
            let per_frame = (least - fixed) / w;
            let stop = Arc::new(AtomicBool::new(false));
            let jobs: Vec<_> = (0..6 * w)
                .map(|id| {
                    let (stop, mut random) = (stop.clone(), random.split(w << 8 | id));
                    let options = JobOptions::new().pins(0).worker(id as usize % workers);
                    let job = move |c: &mut Context| {
                        let mut mine = vec![0u64; 256];
                        let mut step = 0;
                        while !stop.load(SeqCst) || step < 500 {
                            step += 1;
                            let at = random.below(256);
                            if random.below(2) == 0 {
                                c.store(word(at, id), step).unwrap();
                                mine[at as usize] = step;
                            } else {
                                assert_eq!(c.load(word(at, id)).unwrap(), mine[at as usize]);
                            }
                            if step % 64 == 0 {
                                c.yield_now().unwrap();
                            }
                        }
                        mine
                    };
                    runtime.submit_with(&options, job).unwrap()
                })
                .collect();
            for frames in [1, 100, 2, 17, 1, 64, 3] {
                runtime.set_dram(fixed + frames * w * per_frame).unwrap();
                assert_eq!(runtime.frames(), (frames * w).min(most));
                std::thread::sleep(Duration::from_millis(15));
                assert_eq!(runtime.statistics().total().counts.frames, runtime.frames());
            }
            stop.store(true, SeqCst);
            let mine: Vec<_> = jobs.into_iter().map(|j| j.wait().unwrap()).collect();
            runtime.set_dram(fixed + w * per_frame).unwrap();
            for (id, mine) in mine.into_iter().enumerate() {
                for (at, value) in mine.into_iter().enumerate().step_by(37) {
                    assert_eq!(runtime.run(move |c| c.load(word(at as u64, id as u64))), Ok(value));
                }
            }
        }
    });
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let new = || Runtime::builder(Arc::new(MemoryFlash::new(256).unwrap()));
    let refused: Vec<(&str, fulgurite_runtime::Builder, &str)> = vec![
        ("no worker", new().workers(0), "workers"),
        ("too many workers", new().workers(1 << 20), "workers"),
        ("no fiber", new().fibers(0), "fibers"),
        ("too many fibers", new().fibers(usize::MAX), "fibers"),
        ("a stack of nothing", new().stack(0), "stack"),
        ("a stack beyond all", new().stack(usize::MAX / 2), "stack"),
        ("no DRAM", new().dram(0), "too small"),
        ("little DRAM", new().dram(4096), "too small"),
        ("all DRAM", new().dram(u64::MAX), "more than"),
        ("all DRAM one day", new().dram_max(u64::MAX), "more than"),
        ("no pool", new().pool(0), "pool"),
        ("an odd pool", new().pool(4096), "pool"),
        ("a pool beyond the flash", new().pool(1 << 30), "does not fit"),
        ("a pool beyond all", new().pool(!0xFFFF), "does not fit"),
        ("more contents than pool", new().existing(1 << 30), "existing"),
        ("more owned than pool", new().owned(1 << 30), "owned"),
        ("an odd owned part", new().owned(100), "owned"),
        ("no batch", new().submit_batch(0), "batch"),
        ("a core that is not there", new().cores(&[100_000]), "worker"),
    ];
    for (what, builder, reason) in refused {
        let error = builder.build().err().unwrap_or_else(|| panic!("{what} was accepted")).to_string();
        assert!(error.contains(reason), "{what}: {error}");
    }
}

#[test]
fn one_frame_and_ten_thousand_fibers() {
    within(60, "ten thousand fibers", || {
        let flash = Runtime::builder(quick_device(64)).fibers(10_000).stack(12 << 10).existing(256 << 10);
        let runtime = with_frames(flash, 1, 1);
        let jobs: Vec<_> = (0..10_000u64)
            .map(|i| runtime.submit_with(&JobOptions::new().pins(0), move |c| c.load(word(i % 64, i % 512))).unwrap())
            .collect();
        assert!(jobs.into_iter().all(|j| j.wait() == Ok(Ok(0))));
    });
}

/// The miss storm: each fiber of two workers touches subpages all over a pool of four times the
/// DRAM, and writes some.
fn storm(budget: u64, group: &Path) {
    let subpages = 4 * budget / 4096;
    // The device's memory is flash, not DRAM: it is touched before the process enters the group,
    // and not counted there.
    let storage = Arc::new(Arena::anonymous(subpages as usize * 4096, Backed::HugePages).unwrap());
    (0..subpages as usize).for_each(|at| storage.write(at * 4096, &[0]));
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let config = EmulatedConfig { planes: 4096, storage: Some(storage), ..EmulatedConfig::new(subpages as u32) };
    let flash = Arc::new(EmulatedFlash::new(config).unwrap());
    let builder = Runtime::builder(flash).workers(2).fibers(10_000).stack(12 << 10).dram(budget).existing(4 * budget);
    let runtime = builder.build().unwrap();
    let jobs: Vec<_> = (0..20_000u64)
        .map(|id| {
            let options = JobOptions::new().pins(0).worker(id as usize % 2);
            let job = move |c: &mut Context| {
                let each = subpages.div_ceil(20_000);
                for i in 0..each {
                    let at = (id + i * 20_000) % subpages;
                    let before = c.load(word(at, 0)).unwrap();
                    if at.is_multiple_of(4) {
                        c.store(word(at, 0), before + 1).unwrap();
                    }
                }
            };
            runtime.submit_with(&options, job).unwrap()
        })
        .collect();
    jobs.into_iter().for_each(|j| j.wait().unwrap());
    let counts = runtime.statistics().total().counts;
    println!(
        "{} frames, {} misses and {} fresh, {} written back",
        runtime.frames(),
        counts.misses,
        counts.fresh,
        counts.evicted_dirty
    );
    assert!(counts.fresh + counts.misses >= subpages);
}

/// A memory cgroup for one child; removed when dropped.
struct Group {
    path: PathBuf,
    peak: &'static str,
}
impl Group {
    fn new(limit: u64) -> Option<Group> {
        let name = format!("fulgurite-test-{}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ];
        for (root, max, peak) in kinds {
            let path = Path::new(root).join(&name);
            if std::fs::create_dir(&path).is_ok() {
                let group = Group { path, peak };
                if std::fs::write(group.path.join(max), limit.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }
}
impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[test]
fn a_cgroup_of_the_budget_and_64_mib_never_kills() {
    const CHILD: &str = "FULGURITE_TEST_STORM";
    const NAME: &str = "a_cgroup_of_the_budget_and_64_mib_never_kills";
    // 10,000 stacks of 8 KiB, their guards and tables on each worker, and some MiB of frames.
    let budget: u64 = 384 << 20;
    if let Ok(group) = std::env::var(CHILD) {
        return storm(budget, Path::new(&group));
    }
    let limit = budget + (64 << 20);
    let Some(group) = Group::new(limit) else {
        println!("SKIPPED: no right to make a memory cgroup; run as root to test the cap");
        return;
    };
    let child = fulgurite_testkit::again(module_path!(), NAME).env(CHILD, &group.path).output().unwrap();
    let peak = std::fs::read_to_string(group.path.join(group.peak)).unwrap_or_default();
    println!("{}", String::from_utf8_lossy(&child.stdout));
    println!("peak {} of {} bytes", peak.trim(), limit);
    assert!(child.status.success(), "{:?}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}
