//! Goal: a waiting job is judged by the waits of those before it, and begins in that order,
//! wherever it was sent. Jobs that begin can all hold the pins that they declared. Method: a job
//! keeps the only worker while others are queued, and then the order in which they begin, or the
//! refusals, are examined. Jobs on two workers with a few frames pin pages of one region, each as
//! many as it declared, in orders of their own.

#![forbid(unsafe_code)]

use crate::guarded;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fulgurite_flash::MemoryFlash;
use fulgurite_memory::Memory;
use fulgurite_policy::AdmissionPolicy;
use fulgurite_runtime::{Builder, JobHandle, JobOptions, Priority, Runtime, SubmitError};
use guarded::{with_frames, within, word};

fn builder(subpages: u32, fibers: usize) -> Builder {
    Runtime::builder(Arc::new(MemoryFlash::new(subpages).unwrap())).fibers(fibers)
}

/// A job that keeps its worker until the sender is dropped.
fn keep_busy(runtime: &Runtime) -> (mpsc::Sender<()>, JobHandle<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let options = JobOptions::new().pins(0);
    let job = runtime.submit_with(&options, move |_| {
        begun.send(()).unwrap();
        let _ = gate.recv();
    });
    has_begun.recv().unwrap();
    (go, job.unwrap())
}

fn policy(target: Duration) -> AdmissionPolicy {
    AdmissionPolicy::QueueDelay { target_ns: target.as_nanos() as u64, interval_ns: 1 }
}

#[test]
fn too_much_for_one_worker_is_turned_away() {
    within(60, "routed", || {
        let runtime = with_frames(builder(64, 4).admission(policy(Duration::from_micros(1))), 1, 8);
        let (go, first) = keep_busy(&runtime);
        let mut taken = Vec::new();
        let refused = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_micros(100));
            match runtime.submit_with(&JobOptions::new().worker(0), |_| ()) {
                Ok(handle) => taken.push(handle),
                Err(SubmitError::Overloaded { wait_ns }) => return wait_ns > 1_000,
                Err(other) => panic!("{other}"),
            }
            false
        });
        assert!(refused, "{} jobs wait for a worker that does not take any", taken.len());
        drop(go);
        first.wait().unwrap();
        taken.into_iter().for_each(|handle| handle.wait().unwrap());
    });
}

#[test]
fn a_job_is_judged_by_those_before_it() {
    within(60, "priorities", || {
        let target = Duration::from_millis(200);
        let runtime = with_frames(builder(64, 4).admission(policy(target)), 1, 8);
        let (go, first) = keep_busy(&runtime);
        let submit = |priority| runtime.submit_with(&JobOptions::new().priority(priority), |_| ());
        let mut taken = vec![submit(Priority::Normal).unwrap()];
        std::thread::sleep(2 * target);
        // Nothing that is as urgent waits.
        taken.push(submit(Priority::High).unwrap());
        // Among those that are, one has waited for long, though it is not at the head any more.
        for priority in [Priority::Normal, Priority::Low] {
            let mut refused = false;
            for _ in 0..3 {
                match submit(priority) {
                    Ok(handle) => taken.push(handle),
                    Err(error) => refused |= matches!(error, SubmitError::Overloaded { .. }),
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(refused, "{priority:?}");
        }
        drop(go);
        first.wait().unwrap();
        taken.into_iter().for_each(|handle| handle.wait().unwrap());
    });
}

#[test]
fn the_more_urgent_job_goes_first_wherever_it_was_sent() {
    within(60, "order", || {
        let runtime = with_frames(builder(64, 4), 1, 8);
        let (go, first) = keep_busy(&runtime);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut handles = Vec::new();
        let sent = [
            (Priority::Low, true),
            (Priority::Normal, true),
            (Priority::High, false),
            (Priority::Normal, false),
            (Priority::High, true),
            (Priority::Low, false),
        ];
        for (priority, routed) in sent {
            let options = JobOptions::new().priority(priority).pins(0);
            let options = if routed { options.worker(0) } else { options };
            let order = order.clone();
            handles
                .push(runtime.submit_with(&options, move |_| order.lock().unwrap().push((priority, routed))).unwrap());
            std::thread::sleep(Duration::from_micros(50));
        }
        drop(go);
        first.wait().unwrap();
        handles.into_iter().for_each(|handle| handle.wait().unwrap());
        let expected = [sent[2], sent[4], sent[1], sent[3], sent[0], sent[5]];
        assert_eq!(*order.lock().unwrap(), expected, "the most urgent first, the oldest of these first");
    });
}

#[test]
fn a_job_that_does_not_fit_does_not_keep_all_others_waiting() {
    within(60, "passing", || {
        let runtime = with_frames(builder(64, 8), 1, 16);
        let stop = Arc::new(AtomicBool::new(false));
        let ends = stop.clone();
        let (begun, has_begun) = mpsc::channel();
        let holder = runtime
            .submit_with(&JobOptions::new().pins(8), move |m| {
                begun.send(()).unwrap();
                while !ends.load(Ordering::Relaxed) {
                    m.sleep(Duration::from_millis(1)).unwrap();
                }
            })
            .unwrap();
        has_begun.recv().unwrap();
        let large = runtime.submit_with(&JobOptions::new().pins(12).worker(0), |_| ()).unwrap();
        let small = Vec::from_iter(
            (0..40).map(|_| runtime.submit_with(&JobOptions::new().pins(1), |m| m.yield_now().unwrap()).unwrap()),
        );
        let finished = || small.iter().filter(|handle| handle.is_finished()).count();
        let begun = Instant::now();
        while finished() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "one that waits for pins keeps all others waiting");
            std::thread::sleep(Duration::from_millis(1));
        }
        // A few pass, not all: it would wait for ever where there are always others.
        std::thread::sleep(Duration::from_millis(50));
        assert!(finished() <= 16, "{} have passed", finished());
        assert!(!large.is_finished());
        stop.store(true, Ordering::Relaxed);
        holder.wait().unwrap();
        large.wait().unwrap();
        small.into_iter().for_each(|handle| handle.wait().unwrap());
    });
}

/// Pins of a worker's jobs may hold frames of another one. Still not all jobs can wait for frames
/// at once, because the jobs of a worker hold fewer pins than it has frames. If all frames of some
/// workers were pinned by jobs that wait there, one of these jobs would hold more than it declared.
#[test]
fn jobs_of_several_workers_get_all_pins_that_they_declared() {
    within(120, "pins", || {
        let runtime = Arc::new(with_frames(builder(64, 8), 2, 8));
        runtime.run(|m| (0..32).try_for_each(|i| m.store(word(i, 0), i))).unwrap();
        let job = |seed: u64| {
            move |m: &mut fulgurite_runtime::Context| {
                let mut random = fulgurite_testkit::Random(seed);
                for _ in 0..20 {
                    let mut pins = Vec::new();
                    for _ in 0..6 {
                        pins.push(m.pin(word(random.below(32), 0).address())?);
                        m.yield_now()?;
                    }
                }
                Ok::<_, fulgurite_runtime::AccessError>(())
            }
        };
        let handles = Vec::from_iter((0..12).map(|n| {
            let options = JobOptions::new().pins(6).worker(n as usize % 2);
            runtime.submit_with(&options, job(n)).unwrap()
        }));
        for handle in handles {
            assert_eq!(handle.wait(), Ok(Ok(())));
        }
    });
}
