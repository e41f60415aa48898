//! Goal: jobs that are waited for may borrow from their callers, and jobs as futures end with them.
//! The root of the crate can be taken in at a glance. Method: closures change and read locals. Jobs
//! that are refused or panic have dropped what they borrowed when their caller goes on. A future is
//! awaited, polled, and dropped before its end. A job returns an error of its own. The names that
//! the root shows are counted.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fulgurite::{AccessError, Error, Fulgurite, JobError, JobOptions, Medium};

fn memory() -> Fulgurite {
    Fulgurite::builder(Medium::memory("64M")).dram("8M").start().unwrap()
}

/// Takes its time to go, and tells when it has.
struct Slow<'a>(&'a AtomicBool);

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_job_borrows_from_its_caller() {
    let memory = memory();
    let map = memory.hash_map::<u64, u64>(100).unwrap();
    let (keys, mut found) = (vec![1, 2, 3], Vec::new());
    memory
        .run(|m| {
            for key in &keys {
                map.insert(m, key, key * 10)?;
                found.push(map.get(m, key)?);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(found, [Some(10), Some(20), Some(30)]);
    let first = memory.run(|_| Ok(&keys[0])).unwrap();
    let sum = memory.transaction(|t| {
        let mut sum = 0;
        for key in &keys {
            sum += t.get(&map, key)?.unwrap_or(0);
        }
        Ok::<u64, Error>(sum)
    });
    assert_eq!((*first, sum.unwrap()), (1, 60));
}

#[test]
fn a_job_has_errors_of_its_own() {
    #[derive(Debug, PartialEq)]
    enum OwnError {
        Own(u64),
        Memory(String),
    }
    impl From<Error> for OwnError {
        fn from(error: Error) -> OwnError {
            OwnError::Memory(error.to_string())
        }
    }
    impl From<AccessError> for OwnError {
        fn from(error: AccessError) -> OwnError {
            Error::Access(error).into()
        }
    }
    let memory = memory();
    let map = memory.hash_map::<u64, u64>(100).unwrap();
    let options = JobOptions::new();
    let put = memory.run_as(&options, |m| Ok::<_, OwnError>(map.insert(m, &1, 10)?));
    assert_eq!(put, Ok(None));
    let told = memory.run_as(&options, |m| Err::<(), _>(OwnError::Own(map.get(m, &1)?.unwrap_or(0))));
    assert_eq!(told, Err(OwnError::Own(10)));
    let null = fulgurite::views::Ptr::<u64>::new(fulgurite::Address::NULL);
    let told = memory.run_as(&options, |m| Ok::<u64, OwnError>(fulgurite::Memory::load(m, null)?));
    assert!(matches!(told, Err(OwnError::Memory(_))), "{told:?}");
    // A panic is an error here.
    let told = memory.run_as(&options, |_| -> Result<(), Error> { panic!("in a job") });
    assert!(matches!(told, Err(Error::Job(JobError::Panicked { .. }))), "{told:?}");
    let inside = memory.run(|_| Ok(memory.run_as(&options, |_| Ok::<(), Error>(()))));
    assert!(matches!(inside, Ok(Err(Error::InsideJob { .. }))), "{inside:?}");
}

#[test]
fn what_a_job_borrowed_is_dropped_before_its_caller_goes_on() {
    let memory = memory();
    let dropped = AtomicBool::new(false);
    let slow = Slow(&dropped);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        memory.run(move |_| -> Result<(), AccessError> {
            let _slow = slow;
            panic!("of the program")
        })
    }));
    assert!(panicked.is_err() && dropped.load(Ordering::SeqCst));

    // Its deadline passes while the only worker is busy, so it is refused.
    let (go, goes) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let busy = memory.submit(move |_| {
        begun.send(()).unwrap();
        goes.recv().unwrap();
    });
    has_begun.recv().unwrap();
    let dropped = AtomicBool::new(false);
    let slow = Slow(&dropped);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            go.send(()).unwrap();
        });
        let options = JobOptions::new().deadline(Duration::from_millis(1));
        let refused = memory.run_with(&options, move |_| {
            let _slow = slow;
            Ok(())
        });
        assert!(dropped.load(Ordering::SeqCst), "its caller went on first");
        assert!(refused.is_err(), "{refused:?}");
    });
    busy.unwrap().wait().unwrap();
}

#[test]
fn a_job_is_a_future_and_a_dropped_future_cancels_it() {
    let memory = memory();
    let mut job = pin!(memory.run_async(|m| {
        m.sleep(Duration::from_millis(5))?;
        Ok(7)
    }));
    let mut context = Context::from_waker(Waker::noop());
    let ended = loop {
        match job.as_mut().poll(&mut context) {
            Poll::Ready(ended) => break ended,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert!(matches!(ended, Ok(7)), "{ended:?}");

    let (told, tells) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let job = memory.run_async(move |m| {
        begun.send(()).unwrap();
        let ended = m.sleep(Duration::from_secs(100));
        told.send(ended).unwrap();
        ended
    });
    has_begun.recv().unwrap();
    drop(job);
    assert_eq!(tells.recv_timeout(Duration::from_secs(10)), Ok(Err(AccessError::Cancelled)));

    let mut job = pin!(memory.run_async(|_| -> Result<(), AccessError> { panic!("of the program") }));
    let ended = loop {
        match job.as_mut().poll(&mut context) {
            Poll::Ready(ended) => break ended,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert!(matches!(ended, Err(Error::Job(JobError::Panicked { .. }))), "{ended:?}");
}

#[test]
fn the_root_shows_at_most_forty_names() {
    let source = include_str!("../src/lib.rs");
    let (mut names, mut hidden) = (Vec::new(), false);
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("pub use ") {
            let mut list = line.to_owned();
            while !list.contains(';') {
                list += lines.next().unwrap_or(";");
            }
            // What stands in braces, or the last part of a path.
            let taken = match list.split_once('{') {
                Some((_, braces)) => braces.trim_end_matches(['}', ';']),
                None => list.trim_end_matches(';').rsplit([':', ' ']).next().unwrap_or_default(),
            };
            if !hidden {
                names.extend(taken.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
            }
        } else if line.starts_with("pub ") && !hidden {
            names.extend(line.split([' ', '<', '(']).nth(2).map(str::to_owned));
        }
        hidden = line == "#[doc(hidden)]";
    }
    println!("{names:?}");
    assert!((20..=40).contains(&names.len()), "{} names at the root: {names:?}", names.len());
}
