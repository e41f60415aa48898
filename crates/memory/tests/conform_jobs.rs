//! Goal: a job ends in exactly one way, and its handle says which; what one job does wrong fails
//! that job and nobody else. Method: each way of ending, waiting and being turned away on its own,
//! on runtimes of few frames; the whole test binary is under a watch, since most faults of this
//! kind are hangs.

use crate::guarded;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use fulgurite_flash::{EmulatedConfig, MemoryFlash, TimedFlash};
use fulgurite_memory::{AccessError, Exclusive, Latch, Memory, OwnedRegion, Ptr, VersionLatch};
use fulgurite_policy::AdmissionPolicy;
use fulgurite_runtime::{
    Builder, Context, JobError, JobOptions, Next, Priority, Runtime, ServeError, Service, SubmitError,
};
use guarded::{quick_device, with_frames, within, word};

fn builder(fibers: usize) -> Builder {
    Runtime::builder(Arc::new(MemoryFlash::new(256).unwrap())).fibers(fibers).spin(Duration::from_micros(10))
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Thread(Mutex<bool>, Condvar);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
    }
    let mut future = std::pin::pin!(future);
    let thread = Arc::new(Thread(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(thread.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return output;
        }
        let mut woken = thread.0.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = thread.1.wait(woken).unwrap();
        }
    }
}

/// A value that somebody sends later. Keeps every waker that it was given.
#[derive(Clone, Default)]
struct Later(Arc<Mutex<(Option<u64>, Vec<Waker>)>>);
impl Later {
    fn send(&self, value: u64) {
        let wakers = {
            let mut inner = self.0.lock().unwrap();
            inner.0 = Some(value);
            inner.1.clone()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
    fn wake_all_again(&self) {
        let wakers = self.0.lock().unwrap().1.clone();
        wakers.into_iter().for_each(Waker::wake);
    }
    fn is_awaited(&self) -> bool {
        !self.0.lock().unwrap().1.is_empty()
    }
}
impl Future for Later {
    type Output = u64;
    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<u64> {
        let mut inner = self.0.lock().unwrap();
        inner.1.push(context.waker().clone());
        inner.0.map_or(Poll::Pending, Poll::Ready)
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited too long: {what}");
}

#[test]
fn results_are_waited_for_and_awaited() {
    within(60, "results", || {
        let runtime = with_frames(builder(4), 1, 8);
        assert_eq!(runtime.submit(|_| 7).unwrap().wait(), Ok(7));
        assert_eq!(block_on(runtime.submit(|c| c.worker()).unwrap()), Ok(0));
        let handle = runtime.submit(|_| ()).unwrap();
        wait_until("the job ends", || handle.is_finished());
        assert_eq!(runtime.run(|c| c.load(word(3, 3))), Ok(0));
        // One job awaits another, and a value from outside; a handle that was dropped takes nothing
        // with it.
        let ran = Arc::new(AtomicBool::new(false));
        let told = ran.clone();
        drop(runtime.submit(move |_| told.store(true, SeqCst)).unwrap());
        let inner = runtime.submit(|c| c.load(word(1, 0)).map(|v| v + 1)).unwrap();
        let later = Later::default();
        let outer = {
            let later = later.clone();
            runtime.submit(move |c| (c.await_future(inner), c.await_future(later))).unwrap()
        };
        wait_until("the job awaits", || later.is_awaited());
        later.send(5);
        assert_eq!(outer.wait(), Ok((Ok(Ok(Ok(1))), Ok(5))));
        wait_until("the other job ran", || ran.load(SeqCst));
    });
}

#[test]
fn a_waker_that_comes_late_ends_no_other_wait() {
    within(60, "late wakers", || {
        let runtime = with_frames(Runtime::builder(quick_device(256)).fibers(2).existing(1 << 20), 1, 2);
        let later = Later::default();
        let stop = Arc::new(AtomicBool::new(false));
        let handles: Vec<_> = (0..2u64)
            .map(|id| {
                let (later, stop) = (later.clone(), stop.clone());
                let options = JobOptions::new().pins(0);
                runtime
                    .submit_with(&options, move |c| {
                        c.await_future(later)?;
                        let mut rounds = 0;
                        // Each access misses, on the same fiber that awaited.
                        while !stop.load(SeqCst) || rounds < 100 {
                            c.load(word((id * 100 + rounds % 100) % 256, 0))?;
                            rounds += 1;
                        }
                        Ok::<u64, AccessError>(rounds)
                    })
                    .unwrap()
            })
            .collect();
        wait_until("the jobs await", || later.is_awaited());
        later.send(0);
        for _ in 0..300 {
            later.wake_all_again();
            std::thread::sleep(Duration::from_micros(50));
        }
        stop.store(true, SeqCst);
        for handle in handles {
            assert!(handle.wait().unwrap().unwrap() >= 100);
        }
        // The waits of later jobs on the same fibers are as safe.
        let sleeper = runtime.submit(|c| c.sleep(Duration::from_millis(30))).unwrap();
        later.wake_all_again();
        assert_eq!(sleeper.wait(), Ok(Ok(())));
    });
}

#[test]
fn urgent_jobs_begin_first_and_cancelled_ones_never() {
    within(60, "priorities", || {
        let runtime = with_frames(builder(1), 1, 8);
        let (go, gate) = mpsc::channel::<()>();
        let first = runtime.submit(move |_| gate.recv().unwrap()).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut handles = Vec::new();
        for (priority, name) in
            [(Priority::Low, "low"), (Priority::Normal, "normal"), (Priority::High, "high"), (Priority::High, "high 2")]
        {
            let order = order.clone();
            let options = JobOptions::new().name(name).priority(priority);
            handles.push(runtime.submit_with(&options, move |_| order.lock().unwrap().push(name)).unwrap());
        }
        let cancelled = runtime.submit_with(&JobOptions::new().name("cancelled"), |_| ()).unwrap();
        cancelled.cancel();
        let late = JobOptions::new().name("late").deadline(Duration::ZERO);
        let late = runtime.submit_with(&late, |_| ()).unwrap();
        let patient = JobOptions::new().deadline(Duration::from_secs(18_446_744_074));
        let patient = runtime.submit_with(&patient, |_| 1).unwrap();
        go.send(()).unwrap();
        first.wait().unwrap();
        handles.into_iter().for_each(|h| h.wait().unwrap());
        assert_eq!(*order.lock().unwrap(), ["high", "high 2", "normal", "low"]);
        assert_eq!(cancelled.wait(), Err(JobError::Cancelled { name: "cancelled" }));
        assert_eq!(late.wait(), Err(JobError::DeadlineExceeded { name: "late" }));
        assert_eq!(patient.wait(), Ok(1), "a deadline of centuries is not one of milliseconds");
    });
}

#[test]
fn a_running_job_learns_of_deadline_and_cancellation_where_it_would_wait() {
    within(60, "deadlines", || {
        let runtime = with_frames(builder(4), 1, 1);
        let options = JobOptions::new().deadline(Duration::from_millis(20)).pins(0);
        let job = runtime.submit_with(&options, |c| {
            let mut at = 0;
            loop {
                match c.load(word(at % 256, 0)) {
                    Ok(_) => at += 1,
                    Err(error) => return (error, c.yield_now(), c.sleep(Duration::ZERO)),
                }
            }
        });
        let end = AccessError::DeadlineExceeded;
        assert_eq!(job.unwrap().wait(), Ok((end, Err(end), Err(end))));
        let job = runtime.submit_with(&JobOptions::new().pins(0), |c| {
            let mut at = 0;
            loop {
                match c.load(word(at % 256, 0)) {
                    Ok(_) => at += 1,
                    Err(error) => return error,
                }
            }
        });
        let job = job.unwrap();
        job.cancel();
        match job.wait() {
            Ok(error) => assert_eq!(error, AccessError::Cancelled),
            Err(error) => assert_eq!(error, JobError::Cancelled { name: "job" }),
        }
        assert_eq!(runtime.run(|c| c.load(word(9, 0))), Ok(0));
    });
}

#[test]
fn deadlines_and_cancellation_end_waits_that_would_last() {
    within(60, "waits", || {
        let runtime = with_frames(builder(8), 2, 4);
        type Wait = fn(&mut Context) -> Result<(), AccessError>;
        let kinds: [Wait; 3] = [
            |c| c.sleep(Duration::from_secs(3600)),
            |c| c.park(&std::sync::atomic::AtomicU64::new(7), 7),
            |c| c.await_future(std::future::pending::<()>()),
        ];
        for wait in kinds {
            for worker in 0..2 {
                let options = JobOptions::new().pins(0).worker(worker);
                let deadline = options.clone().deadline(Duration::from_millis(5));
                // Many waits before: what they left behind ends none of the later ones.
                let timed = move |c: &mut Context| {
                    (0..100).try_for_each(|_| c.sleep(Duration::from_micros(1)))?;
                    wait(c)
                };
                let job = runtime.submit_with(&deadline, timed).unwrap();
                let result = job.wait();
                let late = Err(JobError::DeadlineExceeded { name: "job" });
                assert!(result == Ok(Err(AccessError::DeadlineExceeded)) || result == late, "{result:?}");
                let (begun, has_begun) = std::sync::mpsc::channel();
                let job = runtime.submit_with(&options, move |c| {
                    begun.send(()).unwrap();
                    wait(c)
                });
                let job = job.unwrap();
                has_begun.recv().unwrap();
                job.cancel();
                assert_eq!(job.wait(), Ok(Err(AccessError::Cancelled)));
            }
        }
    });
}

#[inline(never)]
fn overflow(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { overflow(depth + 1) + room[(depth % 64) as usize] }
}

#[test]
fn panics_and_overflows_fail_their_job_and_panics_give_pins_back() {
    within(60, "panics", || {
        struct PanicsInDrop;
        impl Drop for PanicsInDrop {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    panic!("in drop");
                }
            }
        }
        for workers in 1..=2 {
            // Every job may pin all the frames but one: a pin that is lost is missed at once.
            let runtime = with_frames(builder(4), workers, 5);
            for round in 0..8u64 {
                let options = JobOptions::new().name("dies").pins(4).worker(round as usize / 2 % workers);
                let pin_four = move |c: &mut Context| {
                    let pins: Vec<_> = (0..4).map(|i| c.pin(word(round * 8 + i, 0).address()).unwrap()).collect();
                    assert_eq!(
                        c.pin(word(200, 0).address()).err(),
                        Some(AccessError::TooManyPins { limit: 4 }),
                        "a fifth pin"
                    );
                    pins
                };
                let job = runtime.submit_with(&options, move |c| {
                    if round % 2 == 0 {
                        return overflow(0);
                    }
                    let _pins = pin_four(c);
                    panic!("round {round}")
                });
                let result = job.unwrap().wait();
                if round % 2 == 0 {
                    assert!(matches!(result, Err(JobError::StackOverflow { name: "dies", .. })), "{result:?}");
                } else {
                    assert_eq!(result, Err(JobError::Panicked { name: "dies", message: format!("round {round}") }));
                }
            }
            // Closures and results that panic when they are dropped. The last owner of a result
            // drops it, and has the panic: the worker, or this thread if the job is done.
            let handle = runtime.submit(|_| PanicsInDrop).unwrap();
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(handle)));
            let handle = runtime.submit_with(&JobOptions::new().deadline(Duration::ZERO), {
                let bomb = PanicsInDrop;
                move |_| drop(bomb)
            });
            assert!(handle.unwrap().wait().is_err());
            assert_eq!(runtime.run(|c| c.load(word(7, 7))), Ok(0));
            assert!(runtime.statistics().total().counts.jobs_died >= 8);
        }
    });
}

#[test]
fn a_job_that_would_wait_for_its_own_worker_gets_an_error() {
    within(60, "own worker", || {
        let runtime = Arc::new(with_frames(builder(2), 1, 8));
        let inner = runtime.clone();
        let job = runtime.submit(move |_| inner.run(|c| c.load(word(0, 0)))).unwrap();
        let Err(JobError::Panicked { message, .. }) = job.wait() else { panic!("it must get an error") };
        assert!(message.contains("another thread"), "{message}");
        // Submitting from a job, and awaiting it there, is fine.
        let inner = runtime.clone();
        let options = JobOptions::new().pins(0);
        let job = runtime.submit_with(&options.clone(), move |c| {
            let handle = inner.submit_with(&options, |_| 3).unwrap();
            c.await_future(handle)
        });
        assert_eq!(job.unwrap().wait(), Ok(Ok(Ok(3))));
    });
}

#[test]
fn too_much_is_turned_away() {
    within(60, "admission", || {
        let policy = AdmissionPolicy::QueueDelay { target_ns: 1_000, interval_ns: 1 };
        let runtime = with_frames(builder(1).admission(policy), 1, 8);
        let (go, gate) = mpsc::channel::<()>();
        let first = runtime.submit(move |_| gate.recv().unwrap()).unwrap();
        let (mut taken, mut refused) = (Vec::new(), 0);
        while refused == 0 {
            match runtime.submit(|_| ()) {
                Ok(handle) => taken.push(handle),
                Err(SubmitError::Overloaded { wait_ns }) => refused += u64::from(wait_ns > 1_000),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(matches!(runtime.run(|_| Ok(())), Err(AccessError::Overloaded { .. }) | Ok(())) || taken.is_empty());
        go.send(()).unwrap();
        first.wait().unwrap();
        taken.into_iter().for_each(|h| h.wait().unwrap());
        assert_eq!(runtime.run(|_| Ok(2)), Ok(2), "it takes jobs again");
        assert_eq!(
            runtime.submit_with(&JobOptions::new().pins(8), |_| ()).err(),
            Some(SubmitError::TooManyPins { pins: 8, frames: 8 })
        );
        assert_eq!(
            runtime.submit_with(&JobOptions::new().worker(1), |_| ()).err(),
            Some(SubmitError::NoSuchWorker { worker: 1, workers: 1 })
        );
    });
}

#[test]
fn many_threads_submit() {
    within(60, "many threads", || {
        for workers in 1..=2 {
            let runtime = with_frames(builder(8), workers, 16);
            let sum = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    let (runtime, sum) = (&runtime, &sum);
                    scope.spawn(move || {
                        for i in 0..100 {
                            let at = word(thread * 16 + i % 16, i);
                            let v = runtime.run(move |c| {
                                c.store(at, i)?;
                                c.yield_now()?;
                                c.load(at)
                            });
                            sum.fetch_add(v.unwrap(), SeqCst);
                        }
                    });
                }
            });
            assert_eq!(sum.into_inner(), 4 * 4950);
        }
    });
}

#[test]
fn dropping_the_runtime_ends_everything_in_one_way_or_another() {
    within(60, "drop", || {
        for workers in 1..=2 {
            let runtime = with_frames(builder(8).device_timeout(Duration::from_millis(200)), workers, 64);
            let begun = Arc::new(AtomicU32::new(0));
            let note = || {
                let begun = begun.clone();
                move || begun.fetch_add(1, SeqCst)
            };
            let (n1, n2, n3, n4) = (note(), note(), note(), note());
            let options = JobOptions::new().pins(0);
            let sleeper = runtime.submit_with(&options, move |c| (n1(), c.sleep(Duration::from_secs(3600))).1).unwrap();
            let awaiter =
                runtime.submit_with(&options, move |c| (n2(), c.await_future(std::future::pending::<()>())).1).unwrap();
            let parked = runtime
                .submit_with(&options, move |c| (n3(), c.park(&std::sync::atomic::AtomicU64::new(7), 7)).1)
                .unwrap();
            let worker = runtime
                .submit_with(&options, move |c| {
                    n4();
                    for i in 0..200 {
                        c.store(word(i % 100, 1), i)?;
                        c.yield_now()?;
                    }
                    Ok::<_, AccessError>(())
                })
                .unwrap();
            wait_until("all four have begun", || begun.load(SeqCst) == 4);
            let (mut blocked, mut gates) = (Vec::new(), Vec::new());
            for worker in 0..workers {
                let (go, gate) = mpsc::channel::<()>();
                let (here, is_here) = mpsc::channel();
                let options = JobOptions::new().pins(0).worker(worker);
                let job = runtime.submit_with(&options, move |_| {
                    here.send(()).unwrap();
                    let _ = gate.recv();
                });
                blocked.push(job.unwrap());
                is_here.recv().unwrap();
                gates.push(go);
            }
            let queued: Vec<_> = (0..10)
                .map(|i| {
                    let options = JobOptions::new().name("queued").worker((i % 3) % workers);
                    if i < 5 {
                        runtime.submit_with(&options, |_| ())
                    } else {
                        runtime.submit_with(&JobOptions::new().name("queued"), |_| ())
                    }
                    .unwrap()
                })
                .collect();
            let dropping = std::thread::spawn(move || drop(runtime));
            std::thread::sleep(Duration::from_millis(20));
            drop(gates);
            blocked.into_iter().for_each(|j| j.wait().unwrap());
            assert_eq!(worker.wait(), Ok(Ok(())), "a job that has begun ends");
            assert_eq!(sleeper.wait(), Ok(Err(AccessError::ShuttingDown)));
            assert_eq!(awaiter.wait(), Ok(Err(AccessError::ShuttingDown)));
            assert_eq!(parked.wait(), Ok(Err(AccessError::ShuttingDown)));
            for job in queued {
                assert_eq!(job.wait(), Err(JobError::ShutDown { name: "queued" }));
            }
            dropping.join().unwrap();
        }
    });
}

#[test]
fn owned_regions_belong_to_one_worker() {
    within(60, "owned", || {
        let runtime = with_frames(builder(4).owned(64 << 10), 2, 2);
        let region = OwnedRegion::reserve(&runtime, 1, 8192).unwrap();
        let at = Ptr::<u64>::new(region.region().base.add(4088));
        let other = Ptr::<u64>::new(region.region().base.add(4096));
        let on = |worker: usize| JobOptions::new().worker(worker).pins(1);
        let wrong = runtime.submit_with(&on(0), move |c| region.get(c, at).copied()).unwrap();
        assert_eq!(wrong.wait(), Ok(Err(AccessError::NotOwner { at: at.address(), owner: 1 })));
        for round in 0..50u64 {
            let job = runtime.submit_with(&on(1), move |c| {
                *region.get_mut(c, at)? += 1;
                *region.get_mut(c, other)? += 2;
                let mut pin = region.pin(c, at)?;
                c.load(word(round % 20, 0))?;
                c.load(word(20 + round % 20, 0))?;
                *pin.get_mut(c) += 1;
                assert_eq!(region.pin(c, other).err(), Some(AccessError::TooManyPins { limit: 1 }));
                assert_eq!(c.load(at).err(), Some(AccessError::OutOfRange { at: at.address() }), "shared access");
                assert!(matches!(
                    region.get(c, Ptr::<u64>::new(at.address().add(1))),
                    Err(AccessError::Straddles { .. })
                ));
                assert!(matches!(region.get(c, word(0, 0)), Err(AccessError::OutOfRange { .. })));
                Ok::<_, AccessError>((*pin.get(c), *region.get(c, other)?))
            });
            assert_eq!(job.unwrap().wait(), Ok(Ok((2 * round + 2, 2 * round + 2))));
        }
        assert!(matches!(OwnedRegion::reserve(&runtime, 0, 1 << 20), Err(AccessError::NoSpace { .. })));
    });
}

#[test]
fn yielding_fibers_take_turns() {
    within(60, "yield", || {
        let runtime = with_frames(builder(4), 1, 8);
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let handles: Vec<_> = (0..3)
            .map(|i| {
                let (counts, stop) = (counts.clone(), stop.clone());
                runtime.submit_with(&JobOptions::new().pins(0), move |c| {
                    while !stop.load(SeqCst) {
                        counts[i].fetch_add(1, SeqCst);
                        c.yield_now().unwrap();
                    }
                })
            })
            .collect();
        // Nobody starves, and neither does a new job.
        assert_eq!(runtime.submit_with(&JobOptions::new().pins(0), |c| c.load(word(1, 1))).unwrap().wait(), Ok(Ok(0)));
        wait_until("all have had turns", || counts.iter().all(|c| c.load(SeqCst) > 100));
        stop.store(true, SeqCst);
        handles.into_iter().for_each(|h| h.unwrap().wait().unwrap());
    });
}

#[test]
fn a_latch_excludes_across_misses_and_a_dead_holder_poisons() {
    within(60, "latch", || {
        for (workers, frames) in [(1, 1), (1, 3), (2, 1), (2, 2)] {
            let flash = Runtime::builder(quick_device(64)).fibers(6).existing(256 << 10);
            let runtime = Arc::new(with_frames(flash, workers, frames));
            let latch = Arc::new(VersionLatch::default());
            let inside = Arc::new(AtomicU32::new(0));
            let handles: Vec<_> = (0..12u64)
                .map(|id| {
                    let (latch, inside) = (latch.clone(), inside.clone());
                    let options = JobOptions::new().pins(0).worker(id as usize % workers);
                    runtime
                        .submit_with(&options, move |c| {
                            for round in 0..25 {
                                let guard = latch.lock(c)?;
                                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold the latch");
                                // Each of these may miss and switch while the latch is held.
                                let (a, b) = (c.load(word(0, 0))?, c.load(word(33, 5))?);
                                assert_eq!(a, b);
                                c.load(word(id + round, 0))?;
                                c.store(word(0, 0), a + 1)?;
                                c.store(word(33, 5), a + 1)?;
                                inside.fetch_sub(1, SeqCst);
                                drop(guard);
                                let version = latch.read_begin(c)?;
                                let (a, b) = (c.load(word(0, 0))?, c.load(word(33, 5))?);
                                assert!(a == b || !latch.read_validate(version));
                            }
                            Ok::<(), AccessError>(())
                        })
                        .unwrap()
                })
                .collect();
            for handle in handles {
                assert_eq!(handle.wait(), Ok(Ok(())), "{workers} workers, {frames} frames");
            }
            assert_eq!(runtime.run(|c| c.load(word(0, 0))), Ok(12 * 25));
            // The holder dies while others wait.
            let held = Arc::new(AtomicBool::new(false));
            let (its, latch_of) = (held.clone(), latch.clone());
            let holder = runtime
                .submit_with(&JobOptions::new().pins(0), move |c| {
                    let _guard: Exclusive<'_, _, Context> = latch_of.lock(c).unwrap();
                    its.store(true, SeqCst);
                    c.sleep(Duration::from_millis(5)).unwrap();
                    panic!("the holder dies");
                })
                .unwrap();
            wait_until("it is held", || held.load(SeqCst));
            for worker in 0..workers {
                let latch = latch.clone();
                let options = JobOptions::new().pins(0).worker(worker);
                let waiter = runtime.submit_with(&options, move |c| latch.lock(c).map(drop));
                assert_eq!(waiter.unwrap().wait(), Ok(Err(AccessError::Poisoned)));
            }
            assert!(matches!(holder.wait(), Err(JobError::Panicked { .. })));
        }
    });
}

struct Requests {
    left: Cell<u32>,
    gap: Duration,
    due_ns: Cell<u64>,
    /// Which request panics, and which call of `next`.
    dies_at: u32,
    next_dies_at: u32,
    sum: Arc<AtomicU64>,
    order: RefCell<u32>,
}
impl Requests {
    fn new(count: u32, sum: &Arc<AtomicU64>) -> Requests {
        Requests {
            left: Cell::new(count),
            gap: Duration::ZERO,
            due_ns: Cell::new(0),
            dies_at: u32::MAX,
            next_dies_at: u32::MAX,
            sum: sum.clone(),
            order: RefCell::new(0),
        }
    }
}
impl Service for Requests {
    fn next(&self) -> Next {
        if self.left.get() == 0 {
            return Next::Finished;
        }
        assert!(self.left.get() > 0 && *self.order.borrow() < self.next_dies_at, "next dies");
        let now = fulgurite_sys::Clock::get().now_ns();
        if now < self.due_ns.get() { Next::At(self.due_ns.get()) } else { Next::Ready }
    }
    fn run(&self, context: &mut Context) {
        let n = self.left.get();
        self.left.set(n - 1);
        let now = fulgurite_sys::Clock::get().now_ns();
        self.due_ns.set(now + self.gap.as_nanos() as u64);
        let order = self.order.replace_with(|n| *n + 1);
        context.set_arrival(now);
        let v = context.load(word(u64::from(n) % 250, 0)).unwrap();
        assert!(order != self.dies_at, "request {order} dies");
        self.sum.fetch_add(v + 1, SeqCst);
    }
    fn pins(&self) -> u32 {
        0
    }
}

/// By a simulated clock misses, sleeps and time-outs take their time, and none of it is waited for.
#[test]
fn by_a_simulated_clock_minutes_pass_at_once() {
    const MINUTE: Duration = Duration::from_secs(60);
    within(60, "minutes", || {
        for device_timeout in [2 * MINUTE, MINUTE / 2] {
            let (clock, time) = fulgurite_sys::Clock::simulated();
            let quick = EmulatedConfig::new(256);
            let flash =
                TimedFlash::new(EmulatedConfig { read_latency: MINUTE, clock: clock.clone(), ..quick }).unwrap();
            let builder =
                Runtime::builder(Arc::new(flash)).fibers(8).existing(1 << 20).prefetch("off".parse().unwrap());
            let runtime = with_frames(builder.clock(clock.clone()).device_timeout(device_timeout), 1, 3);
            let begun = time.now_ns();
            let read = runtime.submit(|c: &mut Context| c.load(word(3, 0))).unwrap().wait().unwrap();
            let took = clock.since(begun);
            // The worker looks for late requests once in a while. Time goes on without it.
            let least = if device_timeout > MINUTE { MINUTE } else { device_timeout };
            assert!(took >= least && took < least + MINUTE / 4, "a read took {took:?}");
            match read {
                Ok(found) => assert_eq!((found, device_timeout), (0, 2 * MINUTE)),
                Err(error) => assert!(took < MINUTE && matches!(error, AccessError::Flash { .. }), "{error}"),
            }
            let begun = time.now_ns();
            runtime.submit(|c: &mut Context| c.sleep(MINUTE)).unwrap().wait().unwrap().unwrap();
            let took = clock.since(begun);
            assert!(took >= MINUTE && took < MINUTE + MINUTE / 4, "a minute's sleep took {took:?}");
        }
    });
}

#[test]
fn services_end_and_die_and_others_follow() {
    within(60, "services", || {
        for workers in 1..=2 {
            let flash = Runtime::builder(quick_device(256)).fibers(8).existing(1 << 20);
            let runtime = with_frames(flash, workers, 3);
            let w = workers as u64;
            let sum = Arc::new(AtomicU64::new(0));
            let make = |count, edit: fn(&mut Requests)| {
                let sum = sum.clone();
                move |_| {
                    let mut requests = Requests::new(count, &sum);
                    edit(&mut requests);
                    requests
                }
            };
            runtime.serve(make(500, |_| ())).unwrap();
            assert_eq!(sum.swap(0, SeqCst), 500 * w, "closed loop");
            runtime.serve(make(40, |r| r.gap = Duration::from_micros(300))).unwrap();
            assert_eq!(sum.swap(0, SeqCst), 40 * w, "open loop");
            runtime.serve(make(0, |_| ())).unwrap();
            // A request that panics ends the service early: not all requests are served.
            let Err(ServeError::Died { worker: 0, message }) = runtime.serve(make(100_000, |r| r.dies_at = 17)) else {
                panic!("it died");
            };
            assert!(message.contains("request 17 dies"), "{message}");
            assert!(sum.swap(0, SeqCst) < 2000, "a dead service begins no more requests");
            let died = runtime.serve(make(100, |r| r.next_dies_at = 5));
            assert!(
                matches!(died, Err(ServeError::Died { ref message, .. }) if message.contains("next dies")),
                "{died:?}"
            );
            let died = runtime.serve(|_| -> Requests { panic!("not made") });
            assert!(matches!(died, Err(ServeError::Died { ref message, .. }) if message == "not made"), "{died:?}");
            sum.store(0, SeqCst);
            // Two callers at once, with jobs in between.
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| runtime.serve(make(300, |_| ())).unwrap());
                }
                for i in 0..20 {
                    assert_eq!(runtime.run(move |c| c.load(word(i, 0))), Ok(0));
                }
            });
            assert_eq!(sum.swap(0, SeqCst), 600 * w);
        }
    });
}

#[test]
fn the_watchdog_reports_and_disturbs_nothing() {
    within(60, "watchdog", || {
        let runtime = with_frames(builder(4).run_limit(Duration::from_millis(5)), 1, 8);
        let job = runtime.submit_with(&JobOptions::new().name("never yields"), |_| {
            std::thread::sleep(Duration::from_millis(60));
            1
        });
        assert_eq!(job.unwrap().wait(), Ok(1));
        assert_eq!(runtime.run(|c| c.load(word(1, 0))), Ok(0));
    });
}
