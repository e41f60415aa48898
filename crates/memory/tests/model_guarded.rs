//! Goal: through misses, evictions and write-backs, with any number of frames, workers and fibers,
//! under every policy: a read returns the last write or one that overlaps it, and nothing is lost
//! on the way to the medium. Method: fibers load and store at random. Each word has one fiber that
//! writes it, increasing numbers that it also notes in DRAM before the store (`begun`) and after it
//! (`done`). Its owner must read exactly what it wrote; everybody else must read no less than was
//! done before the load began, and no more than was begun when the load had ended. Words of many
//! owners share every subpage, so that a subpage that is dropped, stale or torn is seen. At the end
//! everything is written back, and the medium's bytes are compared. A million operations over all
//! runs.

use crate::common;
use crate::guarded;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::Random;
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, FaultPlan, FaultyFlash, Flash, MemoryFlash};
use fulgurite_memory::{Memory, Pinned};
use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy, SchedulingPolicy};
use fulgurite_runtime::{JobOptions, Runtime};
use fulgurite_sys::{Arena, Backed};
use guarded::{with_frames, within, word};

/// Words in use of each subpage: the first, the last and one between.
const WORDS: [u64; 4] = [0, 1, 300, 511];
const SUBPAGES: u64 = 48;

const PREFETCHES: [PrefetchPolicy; 4] =
    [PrefetchPolicy::Off, PrefetchPolicy::Adaptive, PrefetchPolicy::Fixed(4), PrefetchPolicy::Next(3)];

#[derive(Clone, Copy, Debug)]
enum MediumKind {
    Memory,
    Emulated,
    Reordering,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    medium: MediumKind,
    workers: usize,
    frames: u64,
    fibers: usize,
    replacement: ReplacementPolicy,
    scheduling: SchedulingPolicy,
    prefetch: usize,
    operations: u64,
    pins: u32,
}

struct Model {
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
}

fn run(case: Case, seed: &Random, number: u64) {
    let storage = Arc::new(Arena::anonymous(64 * 4096, Backed::BasePages).unwrap());
    let seeded = seed.split(number).next();
    let memory = MemoryFlash::new(64).unwrap();
    let (flash, bytes): (Arc<dyn Flash>, Arc<Arena>) = match case.medium {
        MediumKind::Memory => {
            let bytes = memory.storage().clone();
            (Arc::new(memory), bytes)
        }
        MediumKind::Reordering => {
            let bytes = memory.storage().clone();
            let plan = FaultPlan { seed: seeded, reorder: true, ..FaultPlan::default() };
            (Arc::new(FaultyFlash::new(memory, plan)), bytes)
        }
        MediumKind::Emulated => {
            let config = EmulatedConfig {
                read_latency: Duration::from_micros(1),
                write_latency: Duration::from_micros(2),
                storage: Some(storage.clone()),
                ..EmulatedConfig::new(64)
            };
            (Arc::new(EmulatedFlash::new(config).unwrap()), storage)
        }
    };
    let builder = Runtime::builder(flash)
        .fibers(case.fibers)
        .replacement(case.replacement)
        .scheduling(case.scheduling)
        .prefetch(PREFETCHES[case.prefetch % PREFETCHES.len()])
        .submit_batch(1 + number as usize % 4)
        .spin(Duration::from_micros(20));
    let runtime = with_frames(builder, case.workers, case.frames);
    let words = SUBPAGES * WORDS.len() as u64;
    let model = Arc::new(Model {
        begun: (0..words).map(|_| AtomicU64::new(0)).collect(),
        done: (0..words).map(|_| AtomicU64::new(0)).collect(),
    });
    let writers = (case.workers * case.fibers) as u64;
    let place = |n: u64| word(n / WORDS.len() as u64, WORDS[(n % WORDS.len() as u64) as usize]);
    let handles: Vec<_> = (0..writers)
        .map(|id| {
            let (model, mut random) = (model.clone(), seed.split(number << 32 | id));
            let options = JobOptions::new().pins(case.pins).worker(id as usize % case.workers);
            let job = move |c: &mut fulgurite_runtime::Context| {
                for step in 0..case.operations / writers {
                    // Runs of neighbours wake the prefetcher.
                    let n = if step % 64 < 16 { (id * 7 + step) % words } else { random.below(words) };
                    let own = n - n % writers + id;
                    if own < words && random.below(2) == 0 {
                        let value = model.begun[own as usize].load(SeqCst) + 1;
                        assert_eq!(
                            c.load(place(own)).unwrap(),
                            value - 1,
                            "word {own}: its only writer reads what it wrote"
                        );
                        model.begun[own as usize].store(value, SeqCst);
                        if case.pins > 0 && random.below(4) == 0 {
                            let pin = c.pin(place(own).address()).unwrap();
                            c.load(place(n)).unwrap();
                            let offset = place(own).address().subpage_offset();
                            pin.view_mut(offset, 8).store(0, value);
                        } else {
                            c.store(place(own), value).unwrap();
                        }
                        model.done[own as usize].store(value, SeqCst);
                    } else {
                        let least = model.done[n as usize].load(SeqCst);
                        let got = c.load(place(n)).unwrap();
                        let most = model.begun[n as usize].load(SeqCst);
                        assert!((least..=most).contains(&got), "word {n}: {got} is not in {least}..={most}");
                    }
                    match random.below(256) {
                        0 => c.yield_now().unwrap(),
                        1 => c.prefetch(place(random.below(words)).address()),
                        2 if step % 8 == 0 => c.sleep(Duration::from_micros(20)).unwrap(),
                        _ => {}
                    }
                }
            };
            runtime.submit_with(&options, job).unwrap()
        })
        .collect();
    for handle in handles {
        handle.wait().unwrap_or_else(|error| panic!("{case:?}: {error}"));
    }
    runtime.write_back().unwrap();
    let compare = |when: &str| {
        for n in 0..words {
            let mut found = [0; 8];
            bytes.read(place(n).address().linear() as usize, &mut found);
            let expected = model.done[n as usize].load(SeqCst);
            assert_eq!(u64::from_ne_bytes(found), expected, "word {n} on the medium {when}: {case:?}");
        }
    };
    compare("after writing back");
    // What is written last of all reaches the medium when the runtime ends.
    for n in (0..words).step_by(5) {
        let value = model.done[n as usize].load(SeqCst) + 1;
        model.done[n as usize].store(value, SeqCst);
        let worker = n as usize % case.workers;
        let job = runtime.submit_with(&JobOptions::new().pins(0).worker(worker), move |c| c.store(place(n), value));
        job.unwrap().wait().unwrap().unwrap();
    }
    let counts = runtime.statistics().total().counts;
    assert!(case.frames >= SUBPAGES || counts.misses > 0 && counts.evicted_dirty > 0, "{case:?}: {counts:?}");
    drop(runtime);
    compare("after the end");
}

#[test]
fn a_read_returns_the_last_write_or_one_that_overlaps() {
    within(100, "model_guarded", || {
        let seed = Random::seeded("model_guarded", 20_261_121);
        let media = [MediumKind::Memory, MediumKind::Emulated, MediumKind::Reordering];
        let mut number = 0;
        let mut operations = 0;
        for (workers, frames, share) in [
            (1, 1, 6_000),
            (1, 2, 8_000),
            (1, 3, 8_000),
            (1, 8, 20_000),
            (1, 64, 120_000),
            (2, 1, 6_000),
            (2, 2, 8_000),
            (2, 3, 8_000),
            (2, 8, 20_000),
            (2, 64, 120_000),
            (3, 1, 4_000),
            (3, 8, 12_000),
        ] {
            for (m, medium) in media.into_iter().enumerate() {
                let case = Case {
                    medium,
                    workers,
                    frames,
                    fibers: [3, 12, 5][m],
                    replacement: ReplacementPolicy::ALL[number % ReplacementPolicy::ALL.len()],
                    scheduling: SchedulingPolicy::ALL[(number + number / 3) % 3],
                    prefetch: number / 2,
                    operations: share,
                    pins: if frames > 2 { 1 } else { 0 },
                };
                run(case, &seed, number as u64);
                number += 1;
                operations += share;
            }
        }
        println!("{number} runs, {operations} operations");
        assert!(operations >= 1_000_000);
    });
}
