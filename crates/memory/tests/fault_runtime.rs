//! Goal: what a job, a medium or a user's code does at the worst moment costs that job, and neither
//! data nor other jobs. Method: each test once showed the opposite: frames given back while
//! io_uring still used them, write-backs said to be done that were not, overflows inside the
//! worker, panics that carry panics, runtimes dropped where nobody may wait.

#![forbid(unsafe_code)]

use crate::guarded;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_flash::{
    EmulatedConfig, EmulatedFlash, Fault, FaultPlan, FaultyFlash, FileBackend, FileConfig, FileFlash, FlashError,
    MemoryFlash, Op, When,
};
use fulgurite_memory::{AccessError, Memory, Pinned};
use fulgurite_runtime::{
    Builder, Context, JobError, JobHandle, JobOptions, Next, PinnedFrame, Runtime, ServeError, Service, SubmitError,
};
use fulgurite_sys::Arena;
use guarded::{with_frames, within, word};

fn builder(subpages: u32, fibers: usize) -> Builder {
    Runtime::builder(Arc::new(MemoryFlash::new(subpages).unwrap())).fibers(fibers)
}

fn first_bytes(storage: &Arena, count: usize) -> Vec<u8> {
    let byte = |subpage: usize| {
        let mut byte = [0; 1];
        storage.read(subpage * 4096, &mut byte);
        byte[0]
    };
    (0..count).map(byte).collect()
}

#[test]
fn frames_given_back_and_taken_again_hold_what_flash_holds() {
    within(120, "frames", || {
        let path = std::env::temp_dir().join(format!("fulgurite-frames-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for backend in [FileBackend::Auto, FileBackend::UringUnregistered] {
            let config = FileConfig { backend, ..FileConfig::create(&path, 32 << 20) };
            let flash = Arc::new(FileFlash::open(&config).unwrap());
            let runtime = Runtime::builder(flash)
                .dram(16 << 20)
                .dram_max(24 << 20)
                .prefetch("off".parse().unwrap())
                .build()
                .unwrap();
            let all = (32 << 20) / 4096;
            runtime.run(move |m| (0..all).try_for_each(|i| m.store(word(i, 0), i + 1))).unwrap();
            let wrong = || {
                let count = move |m: &mut Context| {
                    let mut wrong = 0;
                    for i in (0..all).chain(0..all) {
                        wrong += u64::from(m.load(word(i, 0))? != i + 1);
                    }
                    Ok(wrong)
                };
                runtime.run(count).unwrap()
            };
            assert_eq!(wrong(), 0, "as built");
            for mib in [24, 8, 24, 7, 16] {
                runtime.set_dram(mib << 20).unwrap();
                assert_eq!(wrong(), 0, "with {mib} MiB");
            }
            drop(runtime);
            std::fs::remove_file(&path).unwrap();
        }
    });
}

#[test]
fn a_budget_that_shrinks_takes_no_frame_from_who_waits_for_one() {
    const ALL: u64 = 8192;
    within(120, "shrinking", || {
        let flash = Arc::new(MemoryFlash::new(ALL as u32).unwrap());
        // So that the next victims are now these frames, now those: all that are free at first go
        // with a smaller budget.
        for before in (7000..15_000).step_by(531) {
            let builder = Runtime::builder(flash.clone()).dram(24 << 20).existing(ALL << 12);
            // Victims go in the order in which they came.
            let builder = builder.prefetch("off".parse().unwrap()).replacement("lru".parse().unwrap());
            let runtime = builder.build().unwrap();
            let read = |from: u64, count: u64| {
                runtime.run(move |m| (from..from + count).try_for_each(|i| m.load(word(i % ALL, 0)).map(|_: u64| ())))
            };
            read(0, before).unwrap();
            runtime.set_dram(8 << 20).unwrap();
            assert_eq!(read(before, ALL), Ok(()), "after {before} loads");
        }
    });
}

/// Flash whose first write fails, and where its bytes are.
fn first_write_fails() -> (Arc<FaultyFlash<MemoryFlash>>, Arc<Arena>) {
    let memory = MemoryFlash::new(64).unwrap();
    let storage = memory.storage().clone();
    let plan = FaultPlan::rule(Some(Op::Write), When::Nth(1), Fault::Fails(FlashError::Io(5)));
    (Arc::new(FaultyFlash::new(memory, plan)), storage)
}

#[test]
fn a_write_back_says_what_failed_even_if_later_writes_succeed() {
    within(60, "write-back", || {
        let (flash, storage) = first_write_fails();
        let runtime = with_frames(Runtime::builder(flash).fibers(4), 1, 16);
        runtime.run(|m| (0..3).try_for_each(|i| m.store(word(i, 0), 7))).unwrap();
        assert_eq!(runtime.write_back(), Err(FlashError::Io(5)));
        assert_eq!(runtime.write_back(), Ok(()));
        assert_eq!(first_bytes(&storage, 3), [7; 3]);
        // And at the end it is tried again.
        let (flash, storage) = first_write_fails();
        let runtime = with_frames(Runtime::builder(flash).fibers(4), 1, 16);
        runtime.run(|m| (0..3).try_for_each(|i| m.store(word(i, 0), 7))).unwrap();
        drop(runtime);
        assert_eq!(first_bytes(&storage, 3), [7; 3]);
    });
}

#[test]
fn a_write_back_reaches_what_jobs_hold_on_to() {
    for workers in 1..=2 {
        within(60, "pinned", move || {
            let memory = MemoryFlash::new(64).unwrap();
            let storage = memory.storage().clone();
            let runtime = with_frames(Runtime::builder(Arc::new(memory)).fibers(4), workers, 8);
            runtime.run(|m| (0..4).try_for_each(|i| m.store(word(i, 0), 7))).unwrap();
            let (pinned, is_pinned) = mpsc::channel();
            let go = Arc::new(AtomicBool::new(false));
            let may_go = go.clone();
            let holder = runtime
                .submit_with(&JobOptions::new().pins(2).worker(workers - 1), move |m| {
                    let _pins = [0, 2].map(|i| m.pin(word(i, 0).address()).unwrap());
                    pinned.send(()).unwrap();
                    while !may_go.load(Ordering::Relaxed) {
                        m.sleep(Duration::from_millis(1)).unwrap();
                    }
                })
                .unwrap();
            is_pinned.recv().unwrap();
            assert_eq!(runtime.write_back(), Ok(()));
            assert_eq!(first_bytes(&storage, 4), [7; 4]);
            // What is stored afterwards is not forgotten because it was written once.
            runtime.run(|m| m.store(word(2, 0), 9)).unwrap();
            go.store(true, Ordering::Relaxed);
            holder.wait().unwrap();
            drop(runtime);
            assert_eq!(first_bytes(&storage, 4), [7, 7, 9, 7]);
        });
    }
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 32]);
    if depth == u64::MAX { room[3] } else { recurse(depth + 1) + room[1] }
}

/// Stores all over the pool, deeper and deeper, whatever the stores say.
#[inline(never)]
fn descend(m: &mut Context, seed: u64, until: u64) -> u64 {
    let next = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    let at = (next >> 33) % 512;
    let _ = m.store(word(at, 0), at + (next << 16));
    if until == 0 { 0 } else { std::hint::black_box(descend(m, next, until - 1) + 1) }
}

#[test]
fn deep_recursion_never_strikes_inside_the_worker() {
    within(120, "deep", || {
        let emulated = EmulatedConfig {
            read_latency: Duration::from_micros(5),
            write_latency: Duration::from_micros(5),
            ..EmulatedConfig::new(512)
        };
        let slow: Builder = Runtime::builder(Arc::new(EmulatedFlash::new(emulated).unwrap())).fibers(4);
        for (builder, rounds) in [(builder(512, 4), 2000), (slow, 200)] {
            let runtime = with_frames(builder, 1, 32);
            runtime.run(|m| (0..512).try_for_each(|i| m.store(word(i, 0), i))).unwrap();
            let mut overflowed = 0;
            for i in 0..rounds {
                let job = runtime.submit(move |m| descend(m, i, u64::MAX)).unwrap();
                overflowed += u64::from(matches!(job.wait(), Err(JobError::StackOverflow { .. })));
                // An innocent job after it meets nothing unusual.
                let sound = runtime.run(move |m| {
                    for j in 0..16 {
                        let at = (i * 16 + j * 7) % 512;
                        if m.load(word(at, 0))? & 511 != at {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                });
                assert_eq!(sound, Ok(true), "after {overflowed} overflows");
            }
            assert_eq!(overflowed, rounds);
        }
    });
}

#[test]
fn a_job_that_is_nearly_out_of_stack_gets_an_error() {
    #[inline(never)]
    fn deep(m: &mut Context, depth: u64) -> Result<u64, AccessError> {
        let room = std::hint::black_box([depth; 16]);
        m.load(word(depth % 64, 0))?;
        Ok(deep(m, depth + 1)? + room[3])
    }
    within(60, "stack", || {
        let runtime = with_frames(builder(64, 4).stack(32 << 10), 1, 4);
        let told = runtime.run(|m| deep(m, 0));
        assert!(matches!(told, Err(AccessError::StackExhausted { stack_bytes: 32_768 })), "{told:?}");
    });
}

thread_local!(static KEPT: std::cell::RefCell<Option<PinnedFrame>> = const { std::cell::RefCell::new(None) });

#[test]
fn what_a_dead_fiber_pinned_and_lent_out_stays_as_it_is() {
    static CHANGED: AtomicU64 = AtomicU64::new(0);
    static QUIT: AtomicBool = AtomicBool::new(false);
    const MINE: u64 = 0x1111_1111_1111_1111;
    within(60, "lent", || {
        let runtime = with_frames(builder(256, 2), 1, 8);
        runtime.run(|m| (0..256).try_for_each(|i| m.store(word(i, 0), 1000 + i))).unwrap();
        let job = runtime.submit(|m| {
            KEPT.set(Some(m.pin(word(5, 0).address()).unwrap()));
            recurse(0)
        });
        assert!(matches!(job.unwrap().wait(), Err(JobError::StackOverflow { .. })));
        let shown = runtime.run(|m| {
            (100..200).try_for_each(|i| m.load(word(i, 0)).map(drop))?;
            Ok(KEPT.with_borrow(|pin| Pinned::view(pin.as_ref().unwrap(), 0, 8).load::<u64>(0)))
        });
        assert_eq!(shown, Ok(1005));
        // A scoped thread goes on with what it was lent.
        let job = runtime.submit(|_| {
            let mine = std::hint::black_box([MINE; 64]);
            std::thread::scope(|s| {
                s.spawn(|| {
                    while !QUIT.load(Ordering::SeqCst) {
                        if mine.iter().any(|&x| *std::hint::black_box(&x) != MINE) {
                            CHANGED.store(1, Ordering::SeqCst);
                        }
                        std::thread::yield_now();
                    }
                });
                recurse(0)
            })
        });
        assert!(matches!(job.unwrap().wait(), Err(JobError::StackOverflow { .. })));
        for _ in 0..20 {
            let scribble = runtime.run(|m| {
                let room = std::hint::black_box([2u64; 500]);
                m.sleep(Duration::from_millis(1))?;
                Ok(room[7])
            });
            assert_eq!(scribble, Ok(2));
        }
        QUIT.store(true, Ordering::SeqCst);
        assert_eq!(CHANGED.load(Ordering::SeqCst), 0, "the dead stack was used again");
    });
}

#[test]
fn panics_in_panics_reach_nobody_else() {
    /// Panics when it is dropped, and carries another.
    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() && self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }
    within(60, "payload", || {
        for depth in [0, 1, 2, 20] {
            let runtime = with_frames(builder(64, 2), 1, 8);
            let job: JobHandle<()> = runtime.submit(move |_| std::panic::panic_any(Bomb(depth))).unwrap();
            assert!(matches!(job.wait(), Err(JobError::Panicked { .. })));
            let refused: JobHandle<()> = runtime
                .submit_with(&JobOptions::new().deadline(Duration::ZERO), {
                    let bomb = Bomb(depth);
                    move |_| drop(bomb)
                })
                .unwrap();
            assert!(refused.wait().is_err());
            assert_eq!(runtime.run(|m| m.load(word(1, 1))), Ok(0));
            assert_eq!(runtime.write_back(), Ok(()));
        }
    });
}

#[test]
fn the_last_handle_may_be_dropped_in_a_job() {
    for workers in 1..=3 {
        within(30, "last handle", move || {
            let runtime = Arc::new(with_frames(builder(64, 2), workers, 4));
            let (inside, (done, is_done)) = (runtime.clone(), mpsc::channel());
            let (go, may_go) = mpsc::channel::<()>();
            let _handle = runtime
                .submit(move |_| {
                    may_go.recv().unwrap();
                    drop(inside);
                    done.send(()).unwrap();
                })
                .unwrap();
            drop(runtime);
            go.send(()).unwrap();
            is_done.recv().unwrap();
        });
    }
}

#[test]
fn a_job_that_fits_on_an_idle_worker_does_not_wait_for_a_busy_one() {
    within(30, "idle worker", || {
        let runtime = with_frames(builder(256, 4).spin(Duration::ZERO), 2, 16);
        for turn in 0..20 {
            let go = Arc::new(AtomicBool::new(false));
            let may_go = go.clone();
            // Worker 0 has promised nearly all of its frames, and sleeps.
            let holder = runtime
                .submit_with(&JobOptions::new().pins(12).worker(turn % 2), move |m| {
                    while !may_go.load(Ordering::Relaxed) {
                        m.sleep(Duration::from_millis(1)).unwrap();
                    }
                })
                .unwrap();
            std::thread::sleep(Duration::from_millis(2));
            let other = runtime.submit_with(&JobOptions::new().pins(12), |m| m.worker()).unwrap();
            assert_eq!(other.wait(), Ok(1 - turn % 2));
            go.store(true, Ordering::Relaxed);
            holder.wait().unwrap();
        }
    });
}

#[test]
fn a_service_that_wants_more_pins_than_there_are_frames_is_refused() {
    struct Greedy(u32);
    impl Service for Greedy {
        fn next(&self) -> Next {
            Next::Finished
        }
        fn run(&self, _: &mut Context) {}
        fn pins(&self) -> u32 {
            self.0
        }
    }
    within(30, "pins of a service", || {
        let runtime = with_frames(builder(64, 2), 1, 16);
        for pins in [16, 1000, u32::MAX] {
            let refused = runtime.serve(move |_| Greedy(pins));
            let expected = Err(ServeError::Refused(SubmitError::TooManyPins { pins, frames: 16 }));
            assert_eq!(refused, expected);
        }
        assert_eq!(runtime.serve(|_| Greedy(15)), Ok(()));
    });
}
