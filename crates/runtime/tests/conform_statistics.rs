//! Goal: counters only grow until they are taken, and what is taken is taken once, also while a worker is too busy to answer.
//! Method: a job keeps the only worker until the test has asked, which takes the two seconds that a question waits.

use std::sync::Arc;
use std::sync::mpsc;

use fulgurite_flash::MemoryFlash;
use fulgurite_runtime::Runtime;

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
fn a_busy_worker_is_told_of_as_it_was_last() {
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
