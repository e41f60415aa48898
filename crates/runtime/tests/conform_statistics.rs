//! Goal: counters only grow until they are taken, and what is taken is taken once, also while a
//! worker is too busy to answer; a job that asks gets an error which says that it must not. Method:
//! a job keeps the only worker until the test has asked, which takes the two seconds that a
//! question waits. A job that asks by itself.

use std::sync::Arc;
use std::sync::mpsc;

use fulgurite_flash::MemoryFlash;
use fulgurite_runtime::{JobError, Runtime};

fn runtime() -> Runtime {
    Runtime::builder(Arc::new(MemoryFlash::new(256).unwrap())).dram(16 << 20).fibers(4).build().unwrap()
}

/// Asks while a job keeps the worker.
fn while_busy<R>(runtime: &Runtime, ask: impl FnOnce(&Runtime) -> R) -> R {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let job = runtime.submit(move |_| {
        begun.send(()).unwrap();
        let _ = goes_on.recv();
    });
    has_begun.recv().unwrap();
    let answer = ask(runtime);
    drop(go_on);
    job.unwrap().wait().unwrap();
    answer
}

#[test]
fn a_busy_worker_is_reported_as_it_was_last() {
    let runtime = runtime();
    for _ in 0..10 {
        runtime.run(|_| Ok(())).unwrap();
    }
    let before = runtime.statistics().total().counts.jobs_started;
    assert_eq!(before, 10);
    let meanwhile = while_busy(&runtime, |r| r.statistics().total().counts.jobs_started);
    assert_eq!(meanwhile, before, "a counter that falls is a restart to whoever reads it");
    assert_eq!(runtime.statistics().total().counts.jobs_started, 11);
}

#[test]
fn what_a_busy_worker_has_counted_is_taken_once() {
    let runtime = runtime();
    for _ in 0..10 {
        runtime.run(|_| Ok(())).unwrap();
    }
    let mut taken = while_busy(&runtime, |r| r.take_statistics().total().counts.jobs_started);
    taken += runtime.take_statistics().total().counts.jobs_started;
    assert_eq!(taken, 11);
    assert_eq!(runtime.take_statistics().total().counts.jobs_started, 0);
}

/// A question to the runtime, which nothing comes of.
type Question = fn(&Runtime);

#[test]
fn a_job_that_asks_gets_an_error() {
    let runtime = Arc::new(runtime());
    let questions: [Question; 2] = [|r| drop(r.statistics()), |r| drop(r.take_statistics())];
    for ask in questions {
        let its = runtime.clone();
        let error = runtime.submit(move |_| ask(&its)).unwrap().wait().unwrap_err();
        let JobError::Panicked { message, .. } = &error else { panic!("{error:?}") };
        for part in ["a job must not ask for statistics", "its worker would wait for itself", "from another thread"] {
            assert!(message.contains(part), "\"{part}\" is missing in {error}");
        }
    }
    // The worker continues, and a thread that may ask is answered.
    assert_eq!(runtime.run(|_| Ok(7)).unwrap(), 7);
    assert_eq!(runtime.statistics().total().counts.jobs_started, 3);
}
