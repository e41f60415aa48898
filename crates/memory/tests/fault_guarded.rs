//! Goal: whatever the medium does, the jobs concerned get a typed error, the others go on, nothing
//! that was written is lost while it is in DRAM, nobody hangs, and the runtime can be dropped.
//! Method: a medium that misbehaves by plan under runtimes of few frames; then the plan ends, and
//! everything must be there.

use crate::common;
use crate::guarded;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Random;
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, Rule, When};
use fulgurite_memory::{AccessError, Memory};
use fulgurite_runtime::{JobOptions, Runtime};
use fulgurite_sys::Arena;
use guarded::{with_frames, within, word};

const EIO: FlashError = FlashError::Io(5);
const TIMEOUT: Duration = Duration::from_millis(100);

fn faulty(plan: FaultPlan) -> (Arc<FaultyFlash<MemoryFlash>>, Arc<Arena>) {
    let memory = MemoryFlash::new(64).unwrap();
    let bytes = memory.storage().clone();
    (Arc::new(FaultyFlash::new(memory, plan)), bytes)
}

fn runtime(flash: &Arc<FaultyFlash<MemoryFlash>>, workers: usize, frames: u64) -> Runtime {
    let builder = Runtime::builder(flash.clone())
        .fibers(8)
        .device_timeout(TIMEOUT)
        .prefetch("off".parse().unwrap())
        .spin(Duration::from_micros(20));
    with_frames(builder, workers, frames)
}

fn source(error: AccessError) -> FlashError {
    match error {
        AccessError::Flash { source, .. } => source,
        other => panic!("{other}"),
    }
}

/// Runs `count` jobs of one access each and says how they ended.
fn touch_all(runtime: &Runtime, count: u64, write: bool) -> Vec<Result<u64, AccessError>> {
    let jobs: Vec<_> = (0..count)
        .map(|i| {
            let options = JobOptions::new().pins(0).worker(i as usize % runtime.workers());
            runtime
                .submit_with(&options, move |c| {
                    if write {
                        c.store(word(i, 2), i + 1)?;
                    }
                    c.load(word(i, 2))
                })
                .unwrap()
        })
        .collect();
    jobs.into_iter().map(|j| j.wait().unwrap()).collect()
}

#[test]
fn a_read_that_fails_fails_its_waiters_alone() {
    within(60, "failing reads", || {
        for error in [EIO, FlashError::Short, FlashError::Io(11)] {
            for workers in 1..=2 {
                let (flash, _) = faulty(FaultPlan::default());
                let runtime = runtime(&flash, workers, 2);
                assert!(touch_all(&runtime, 40, true).iter().all(Result::is_ok));
                runtime.write_back().unwrap();
                flash.set_plan(FaultPlan::rule(Some(Op::Read), When::Nth(3), Fault::Fails(error)));
                let failed: Vec<_> =
                    touch_all(&runtime, 40, false).into_iter().enumerate().filter(|(_, r)| r.is_err()).collect();
                assert_eq!(failed.len(), 1, "{failed:?}");
                assert_eq!(source(failed[0].1.unwrap_err()), error);
                flash.set_plan(FaultPlan::rule(Some(Op::Read), When::From(1), Fault::Fails(error)));
                let failed = touch_all(&runtime, 40, false).into_iter().filter_map(Result::err).count();
                assert!(failed >= 40 - 2 * workers, "{failed}");
                flash.set_plan(FaultPlan::default());
                for (i, result) in touch_all(&runtime, 40, false).into_iter().enumerate() {
                    assert_eq!(result, Ok(i as u64 + 1));
                }
                assert!(runtime.statistics().total().counts.read_errors > 0);
            }
        }
    });
}

#[test]
fn a_write_back_that_fails_loses_nothing() {
    within(60, "failing writes", || {
        for workers in 1..=2 {
            for frames in [1, 2, 9] {
                let (flash, bytes) = faulty(FaultPlan::default());
                let runtime = runtime(&flash, workers, frames);
                flash.set_plan(FaultPlan::rule(Some(Op::Write), When::Every(3), Fault::Fails(EIO)));
                let mut stored = [0u64; 40];
                for round in 1..=20u64 {
                    for i in 0..40u64 {
                        let value = round * 100 + i;
                        let options = JobOptions::new().pins(0).worker((round + i) as usize % workers);
                        let job = runtime.submit_with(&options, move |c| c.store(word(i, 2), value)).unwrap();
                        match job.wait().unwrap() {
                            Ok(()) => stored[i as usize] = value,
                            Err(error) => assert_eq!(source(error), EIO),
                        }
                    }
                }
                // Failing for good: jobs that need a frame get an error, and those whose data is
                // here continue.
                flash.set_plan(FaultPlan::rule(Some(Op::Write), When::From(1), Fault::Fails(EIO)));
                for _ in 0..3 {
                    for (i, result) in touch_all(&runtime, 40, false).into_iter().enumerate() {
                        match result {
                            Ok(value) => assert_eq!(value, stored[i]),
                            Err(error) => assert_eq!(source(error), EIO),
                        }
                    }
                }
                let dirty = runtime.submit(|c| c.load(word(0, 2))).unwrap().wait().unwrap();
                assert!(runtime.write_back() == Err(EIO) || dirty.is_ok());
                flash.set_plan(FaultPlan::default());
                runtime.write_back().unwrap();
                for (i, &value) in stored.iter().enumerate() {
                    let mut found = [0; 8];
                    bytes.read(i * 4096 + 16, &mut found);
                    assert_eq!(
                        u64::from_ne_bytes(found),
                        value,
                        "word of subpage {i}, {workers} workers, {frames} frames"
                    );
                }
                assert!(touch_all(&runtime, 40, false).into_iter().zip(stored).all(|(got, value)| got == Ok(value)));
                let counts = runtime.statistics().total().counts;
                assert!(counts.write_errors > 0, "{counts:?}");
            }
        }
    });
}

#[test]
fn all_frames_dirty_and_no_write_succeeds() {
    within(60, "nothing can be written", || {
        for workers in 1..=2 {
            for fault in [Fault::Fails(EIO), Fault::Hangs] {
                let plan = FaultPlan::rule(Some(Op::Write), When::From(1), fault);
                let (flash, _) = faulty(plan);
                let runtime = runtime(&flash, workers, 3);
                let results = touch_all(&runtime, 60, true);
                let errors: Vec<_> = results.iter().filter_map(|r| r.err()).map(source).collect();
                assert!(errors.len() >= 60 - 3 * workers, "{}", errors.len());
                let expected = if fault == Fault::Hangs { FlashError::TimedOut } else { EIO };
                assert!(errors.iter().all(|&e| e == expected), "{errors:?}");
                assert!(runtime.write_back().is_err());
                let begin = Instant::now();
                drop(runtime);
                assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
            }
        }
    });
}

#[test]
fn a_medium_that_stops_answering_is_an_error() {
    within(60, "no answer", || {
        for workers in 1..=2 {
            for frames in [1, 3] {
                let (flash, _) = faulty(FaultPlan::default());
                let runtime = runtime(&flash, workers, frames);
                assert!(touch_all(&runtime, 40, true).iter().all(Result::is_ok));
                runtime.write_back().unwrap();
                flash.set_plan(FaultPlan::rule(Some(Op::Read), When::From(1), Fault::Hangs));
                let results = touch_all(&runtime, 40, false);
                let errors: Vec<_> = results.iter().filter_map(|r| r.err()).map(source).collect();
                assert!(errors.len() as u64 >= 40 - frames * workers as u64, "{}", errors.len());
                assert!(errors.iter().all(|&e| e == FlashError::TimedOut), "{errors:?}");
                assert!(runtime.statistics().total().counts.timeouts > 0);
            }
        }
    });
}

#[test]
fn others_keep_a_worker_busy_and_the_silent_request_still_times_out() {
    within(60, "busy and silent", || {
        let (flash, _) = faulty(FaultPlan::default());
        let runtime = runtime(&flash, 1, 8);
        assert!(touch_all(&runtime, 1, true)[0].is_ok());
        runtime.write_back().unwrap();
        flash.set_plan(FaultPlan::rule(Some(Op::Read), When::Nth(1), Fault::Hangs));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let its = stop.clone();
        let options = JobOptions::new().pins(0);
        let busy = runtime.submit_with(&options, move |c| {
            while !its.load(std::sync::atomic::Ordering::SeqCst) {
                c.load(word(60, 0)).unwrap();
                c.yield_now().unwrap();
            }
        });
        let silent = runtime.submit_with(&options, |c| c.load(word(0, 2))).unwrap();
        assert_eq!(silent.wait().unwrap().map_err(source), Err(FlashError::TimedOut));
        // The next one asks again, and is answered.
        let again = runtime.submit_with(&options, |c| c.load(word(0, 2))).unwrap();
        assert_eq!(again.wait(), Ok(Ok(1)));
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        busy.unwrap().wait().unwrap();
    });
}

#[test]
fn late_and_reordered_answers_are_right_answers() {
    within(60, "late", || {
        let random = Random::seeded("fault_guarded", 4);
        for round in 0..6 {
            let seed = random.split(round).next();
            let rules = vec![
                Rule { op: None, when: When::OneIn(5), fault: Fault::Late { polls: 200 } },
                Rule { op: Some(Op::Write), when: When::OneIn(7), fault: Fault::Fails(EIO) },
                Rule { op: Some(Op::Read), when: When::OneIn(11), fault: Fault::Fails(FlashError::Short) },
            ];
            let (flash, bytes) = faulty(FaultPlan { seed, rules, reorder: true, record: false });
            let workers = 1 + round as usize % 2;
            let runtime = runtime(&flash, workers, [1, 2, 5][round as usize % 3]);
            // Each job owns a word; a store that fails changes nothing.
            let jobs: Vec<_> = (0..12u64)
                .map(|id| {
                    let mut random = random.split(round << 8 | id);
                    let options = JobOptions::new().pins(0).worker(id as usize % workers);
                    let job = move |c: &mut fulgurite_runtime::Context| {
                        let mut mine = [0u64; 40];
                        for step in 1..400u64 {
                            let at = random.below(40);
                            let place = word(at, id);
                            if random.below(2) == 0 {
                                if c.store(place, step).is_ok() {
                                    mine[at as usize] = step;
                                }
                            } else if let Ok(got) = c.load(place) {
                                assert_eq!(got, mine[at as usize], "subpage {at}, job {id}");
                            }
                        }
                        mine
                    };
                    runtime.submit_with(&options, job).unwrap()
                })
                .collect();
            let expected: Vec<_> = jobs.into_iter().map(|j| j.wait().unwrap()).collect();
            flash.set_plan(FaultPlan::default());
            // A read that failed a moment ago may have left a late one behind; what counts is the
            // end.
            runtime.write_back().unwrap();
            for (id, mine) in expected.iter().enumerate() {
                for (at, value) in mine.iter().enumerate() {
                    let mut found = [0; 8];
                    bytes.read(at * 4096 + id * 8, &mut found);
                    assert_eq!(u64::from_ne_bytes(found), *value, "round {round}, subpage {at}, job {id}");
                }
            }
        }
    });
}

#[test]
fn a_flush_that_fails_is_reported_and_poisons() {
    within(60, "flush", || {
        let (flash, _) = faulty(FaultPlan::rule(Some(Op::Flush), When::Nth(1), Fault::Fails(EIO)));
        let runtime = runtime(&flash, 1, 4);
        assert!(touch_all(&runtime, 3, true).iter().all(Result::is_ok));
        assert_eq!(runtime.write_back(), Err(EIO));
        assert!(touch_all(&runtime, 2, true).iter().all(Result::is_ok));
        assert_eq!(runtime.write_back(), Err(FlashError::Poisoned));
        drop(runtime);
        // A flush that never comes back must not be taken for a later one.
        let (flash, _) = faulty(FaultPlan::rule(Some(Op::Flush), When::Nth(1), Fault::Hangs));
        let second = self::runtime(&flash, 1, 4);
        assert_eq!(second.write_back(), Err(FlashError::TimedOut));
        assert_eq!(second.write_back(), Ok(()));
    });
}
