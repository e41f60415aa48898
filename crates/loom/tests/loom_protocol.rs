//! Goal: the rings and the bell are right under every interleaving and reordering that the memory
//! model allows, and each of their barriers is needed. Method: loom runs a queue pair for several
//! laps with the data of a write and of a read, and two sides that go to sleep. The model with any
//! one barrier left out ([`Planted`]) must be caught.
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_loom::window::{Planted, Window};
use fulgurite_loom::{
    bell::Bell,
    ring::{Consumer, Producer},
};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

fn ends<const WORDS: usize>(entries: usize, planted: Option<Planted>) -> (Producer<WORDS>, Consumer<WORDS>) {
    let window = Window::new(entries * WORDS, planted);
    (Producer::new(window.clone()), Consumer::new(window))
}

/// Entries of two words over several laps of a ring of two, each after a completion, as in a queue.
fn laps(planted: Option<Planted>) {
    loom::model(move || {
        const COMMANDS: u64 = 4;
        let (mut submissions, mut device_submissions) = ends::<2>(2, planted);
        let (mut device_completions, mut completions) = ends::<1>(2, planted);
        let device = thread::spawn(move || {
            for expected in 0..COMMANDS {
                let entry = loop {
                    match device_submissions.pop() {
                        Some(entry) => break entry.expect("an entry was torn"),
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(entry, [expected * 7, expected << 32], "an entry was lost or repeated");
                device_completions.push([expected << 32]);
            }
            assert!(!device_submissions.ready());
        });
        let (mut submitted, mut completed) = (0, 0);
        while completed < COMMANDS {
            while submitted < COMMANDS && submitted - completed < 2 {
                submissions.push([submitted * 7, submitted << 32]);
                submitted += 1;
            }
            match completions.pop() {
                Some(entry) => {
                    assert_eq!(entry, Ok([completed << 32]));
                    completed += 1;
                }
                None => thread::yield_now(),
            }
        }
        device.join().unwrap();
    });
}

/// Steps 1 to 3: the data of a write are there when its entry is. Steps 4, 5 and 9: so are a
/// read's.
fn data(planted: Option<Planted>) {
    loom::model(move || {
        let buffer = Arc::new(UnsafeCell::new(0u64));
        let (mut submissions, mut device_submissions) = ends::<1>(1, planted);
        let (mut device_completions, mut completions) = ends::<1>(1, planted);
        let device_buffer = buffer.clone();
        let device = thread::spawn(move || {
            while device_submissions.pop().is_none() {
                thread::yield_now();
            }
            // SAFETY: the entry says that the buffer is the device's; loom checks that it is.
            device_buffer.with_mut(|data| unsafe {
                assert_eq!(*data, 5);
                *data = 6;
            });
            device_completions.push([0]);
        });
        // SAFETY: nothing was submitted yet, so that the buffer is the host's.
        buffer.with_mut(|data| unsafe { *data = 5 });
        submissions.push([0]);
        while completions.pop().is_none() {
            thread::yield_now();
        }
        // SAFETY: the completion says that the buffer is the host's again.
        buffer.with(|data| assert_eq!(unsafe { *data }, 6));
        device.join().unwrap();
    });
}

/// An eventfd: a wake-up is kept.
#[derive(Default)]
struct Event(Mutex<bool>, Condvar);

/// One goes to sleep as the other writes an entry and rings: a lost wake-up would be a deadlock.
fn sleep(planted: Option<Planted>) {
    loom::model(move || {
        let (mut producer, mut consumer) = ends::<1>(1, planted);
        let word = Window::new(1, planted);
        let (sleeper, ringer) = (Bell::new(word.clone()), Bell::new(word));
        let event = Arc::new(Event(Mutex::new(false), Condvar::new()));
        let notified = event.clone();
        let device = thread::spawn(move || {
            producer.push([0]);
            if ringer.must_wake() {
                *notified.0.lock().unwrap() = true;
                notified.1.notify_one();
            }
        });
        if !consumer.ready() {
            sleeper.goes_to_sleep();
            if !consumer.ready() {
                let mut kept = event.0.lock().unwrap();
                while !*kept {
                    kept = event.1.wait(kept).unwrap();
                }
                drop(kept);
            }
            sleeper.mark_awake();
        }
        assert!(consumer.pop().is_some());
        device.join().unwrap();
    });
}

#[test]
fn entries_come_whole_and_in_order() {
    laps(None);
}

#[test]
fn data_are_there_when_the_entry_is() {
    data(None);
}

#[test]
fn no_wake_up_is_lost() {
    sleep(None);
}

#[test]
fn each_barrier_is_needed() {
    for planted in Planted::ALL {
        let model: fn(Option<Planted>) = match planted {
            Planted::RelaxedPublish | Planted::RelaxedTake => data,
            _ => sleep,
        };
        let caught = catch_unwind(AssertUnwindSafe(|| model(Some(planted)))).is_err();
        assert!(caught, "{planted:?} was not noticed");
        if matches!(planted, Planted::RelaxedPublish | Planted::RelaxedTake) {
            let caught = catch_unwind(AssertUnwindSafe(|| laps(Some(planted)))).is_err();
            assert!(caught, "{planted:?} was not noticed by the entries themselves");
        }
    }
}
