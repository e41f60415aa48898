//! Goal: what was put into a pool is there after the last handle of its memory was dropped,
//! wherever that was. It may be in a job, in what a job returned, in a waker that a worker called,
//! on a worker of another memory, in a destructor of a thread local. No worker stands still for it,
//! an open of the same pool afterwards waits until it is free, and an exit waits for the sync.
//! Method: a value is put and not synced, the last handle is dropped there, and the pool is opened
//! at once. A sync that waited for the job that drops the handle would wait for an hour. For the
//! exit, the test's own program ends as soon as the handle was dropped.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use fulgurite::{Durability, Fulgurite, Medium};
use fulgurite_testkit as testkit;

/// A sync of the pool itself is far away, so that only the last handle can make one.
const RARELY: Durability = Durability::Lazy { every: Duration::from_secs(3600), bytes: 1 << 40 };

fn open(path: &Path, durability: Durability) -> Fulgurite {
    let medium = Medium::pool_or_new(path, "16M");
    let builder = Fulgurite::builder(medium).dram("8M").durability(durability);
    builder.with(|runtime| runtime.gate_timeout(Duration::from_secs(3600))).start().unwrap()
}

/// A memory whose value 42 was put and not synced.
fn with_a_put(path: &Path, durability: Durability) -> Arc<Fulgurite> {
    let memory = open(path, durability);
    let map = memory.named("map").hash_map::<u64, u64>(1000).unwrap();
    memory.run(|m| map.insert(m, &1, 42)).unwrap();
    memory.into()
}

fn value(path: &Path) -> Option<u64> {
    let memory = open(path, RARELY);
    let map = memory.named("map").hash_map::<u64, u64>(1000).unwrap();
    memory.run(|m| map.get(m, &1)).unwrap()
}

/// Hands the last handle to `drop_it`, which returns after it was dropped.
fn survives(durability: Durability, drop_it: impl FnOnce(Arc<Fulgurite>)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    drop_it(with_a_put(&path, durability));
    assert_eq!(value(&path), Some(42), "with {durability:?}");
}

/// Drops the last handle in a job of `of`, which has begun when this returns.
fn drop_in_a_job(of: &Fulgurite, last: Arc<Fulgurite>) -> fulgurite::JobHandle<()> {
    let (begin, begins) = mpsc::channel::<()>();
    let job = of.submit(move |_| {
        let _ = begins.recv();
        drop(last);
    });
    drop(begin);
    job.unwrap()
}

#[test]
fn dropped_in_a_job() {
    for durability in [RARELY, Durability::Sync] {
        survives(durability, |last| {
            let (given, is_given) = mpsc::channel::<Arc<Fulgurite>>();
            let job = last.submit(move |_| drop(is_given.recv())).unwrap();
            given.send(last).unwrap();
            job.wait().unwrap();
        });
    }
}

#[test]
fn dropped_on_a_worker_of_another_memory() {
    let other = Fulgurite::builder(Medium::memory("16M")).dram("8M").start().unwrap();
    for durability in [RARELY, Durability::Sync] {
        survives(durability, |last| drop_in_a_job(&other, last).wait().unwrap());
    }
    other.run(|_| Ok(())).unwrap();
}

#[test]
fn dropped_with_what_a_job_returned() {
    survives(RARELY, |last| {
        let (given, is_given) = mpsc::channel::<Arc<Fulgurite>>();
        let (ended, has_ended) = mpsc::channel::<()>();
        // Nobody waits for the result, so the worker drops it.
        drop(last.submit(move |_| (is_given.recv(), ended)).unwrap());
        given.send(last).unwrap();
        has_ended.recv().unwrap_err();
    });
}

#[test]
fn dropped_by_a_waker() {
    struct Holds(Mutex<Option<Arc<Fulgurite>>>, mpsc::Sender<()>);
    impl Wake for Holds {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.send(()).unwrap();
        }
    }
    survives(RARELY, |last| {
        let (go, goes) = mpsc::channel::<()>();
        let mut job = last.submit(move |_| goes.recv().is_ok()).unwrap();
        let (woken, is_woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Holds(Mutex::new(Some(last)), woken)));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(matches!(std::pin::Pin::new(&mut job).poll(&mut context), Poll::Pending));
        go.send(()).unwrap();
        is_woken.recv().unwrap();
    });
}

#[test]
fn dropped_by_a_panic_in_a_job() {
    survives(RARELY, |last| {
        let (given, is_given) = mpsc::channel::<Arc<Fulgurite>>();
        let job = last.submit(move |_| {
            let _last = is_given.recv();
            panic!("on purpose");
        });
        let job = job.unwrap();
        given.send(last).unwrap();
        job.wait().map(|()| unreachable!("it panics")).unwrap_err();
    });
}

#[test]
fn dropped_in_a_destructor_of_a_thread_local() {
    thread_local!(static LAST: RefCell<Option<Arc<Fulgurite>>> = const { RefCell::new(None) });
    for durability in [RARELY, Durability::Sync] {
        survives(durability, |last| {
            std::thread::spawn(|| LAST.set(Some(last))).join().unwrap();
        });
    }
    // Of a thread that ran the jobs of another memory.
    survives(RARELY, |last| {
        let other = Fulgurite::builder(Medium::memory("16M")).dram("8M").start().unwrap();
        other.submit(|_| LAST.set(Some(last))).unwrap().wait().unwrap();
        drop(other);
    });
}

#[test]
#[ignore = "the program of the next test"]
fn ends_at_once() {
    let Some(path) = std::env::var_os("FULGURITE_TEST_POOL") else { return };
    let memory = with_a_put(path.as_ref(), RARELY);
    let (given, is_given) = mpsc::channel::<Arc<Fulgurite>>();
    let job = memory.submit(move |_| drop(is_given.recv())).unwrap();
    given.send(memory).unwrap();
    job.wait().unwrap();
    std::process::exit(0);
}

#[test]
fn an_exit_waits_for_the_sync() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let mut child = testkit::again(module_path!(), "ends_at_once");
    assert!(child.env("FULGURITE_TEST_POOL", &path).status().unwrap().success());
    assert_eq!(value(&path), Some(42));
}
