//! Goal: the ring between worker and device delivers every entry once, whole and in order, under
//! every interleaving and reordering that the memory model allows, also when a lap overwrites
//! entries.
//! Method: loom runs a queue of depth 2 for several laps: requests of two words one way,
//! completions the other. The producer writes again only after the completion, as a queue does.
use fulgurite_loom::flash_ring::ring;

#[test]
fn requests_and_completions_over_several_laps() {
    // Two laps, and in `make test-full` the beginning of a third, which takes ten times as long.
    let count = if fulgurite_testkit::is_full() { 5 } else { 4 };
    loom::model(move || {
        let (mut requests, mut device_requests) = ring::<2>(2);
        let (mut device_completions, mut completions) = ring::<1>(2);
        let device = loom::thread::spawn(move || {
            for expected in 0..count {
                let [first, second] = loop {
                    match device_requests.pop() {
                        Some(entry) => break entry,
                        None => loom::thread::yield_now(),
                    }
                };
                assert_eq!((first, second), (expected, expected * 7), "an entry was torn, lost or repeated");
                device_completions.push([expected]);
            }
            assert!(!device_requests.ready());
        });
        let (mut submitted, mut completed) = (0, 0);
        while completed < count {
            while submitted < count && submitted - completed < 2 {
                requests.push([submitted, submitted * 7]);
                submitted += 1;
            }
            match completions.pop() {
                Some([n]) => {
                    assert_eq!(n, completed);
                    completed += 1;
                }
                None => loom::thread::yield_now(),
            }
        }
        assert_eq!(completions.pop(), None);
        device.join().unwrap();
    });
}

/// The worker that polled a completion sees what the device did before: the data it moved.
#[test]
fn a_completion_publishes_the_data() {
    loom::model(|| {
        let frame = loom::sync::Arc::new(loom::cell::UnsafeCell::new(0u64));
        let (mut device_completions, mut completions) = ring::<1>(1);
        let device_frame = frame.clone();
        let device = loom::thread::spawn(move || {
            device_frame.with_mut(|_| ());
            device_completions.push([3]);
        });
        while completions.pop().is_none() {
            loom::thread::yield_now();
        }
        frame.with(|_| ());
        device.join().unwrap();
    });
}
