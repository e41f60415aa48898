//! Goal: writes to neighbouring places that go to the kernel as one request end as if each had gone
//! alone: the same bytes, each completed once with its own tag, and an error hits only its own
//! writes.
//! Method: random batches over every backend of a file (descending, with gaps, beyond the longest
//! run, out of range) are compared with a plain image of the file, and the kernel's requests are
//! counted. For errors this program runs itself again under a limit of the size of files, at which
//! a write becomes short, and behind which it fails (`EFBIG`).

use crate::common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::*;
use fulgurite_flash::*;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::Arena;

const SUBPAGES: u32 = 256;
const EFBIG: FlashError = FlashError::Io(27);
/// Set in the child: the file to write.
const CHILD: &str = "FULGURITE_TEST_LIMITED_FILE";
/// Where the child's files end for writes, in subpages.
const LIMIT: u32 = 100;

/// How a file is driven, and whether its frames are registered.
const BACKENDS: [(FileBackend, bool); 4] = [
    (FileBackend::Uring, true),
    (FileBackend::Uring, false),
    (FileBackend::UringUnregistered, false),
    (FileBackend::Threads(3), false),
];

/// A queue on a file, or none where this backend does not work here.
fn open(
    path: &Path,
    (backend, registered): (FileBackend, bool),
    frames: &Arc<Arena>,
    depth: usize,
) -> Option<(FileFlash, Driver)> {
    let mode = if path.exists() {
        FileMode::Existing { bytes: None }
    } else {
        FileMode::Create { bytes: u64::from(SUBPAGES) << 12 }
    };
    let flash = FileFlash::open(&FileConfig { mode, backend, ..FileConfig::existing(path) }).unwrap();
    if let Err(error) = flash.open_queue(frames.clone(), 1, Arc::new(fulgurite_sys::Notifier::new().unwrap())) {
        println!("{backend:?} is not tested here: {error}");
        return None;
    }
    let mut driver = Driver::new(&flash, frames, depth);
    if registered {
        // Half of them, so that a run may have frames of both kinds.
        driver.queue.use_frames(0..(frames.len() / SUBPAGE_BYTES) as u32 / 2);
    }
    Some((flash, driver))
}

#[test]
fn model_random_batches_leave_the_file_as_single_writes_would() {
    let seed = seed();
    println!("seed {seed}: FULGURITE_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    for (number, backend) in BACKENDS.into_iter().enumerate() {
        let mut random = Random(seed ^ number as u64);
        let path = directory.path().join(number.to_string());
        let frames = arena(96);
        let Some((flash, mut driver)) = open(&path, backend, &frames, 96) else { continue };
        let mut image = vec![[0u8; SUBPAGE_BYTES]; SUBPAGES as usize];
        let mut written = 0;
        for round in 0..150 {
            // Some ranges of neighbours, upwards or downwards; a frame for each write, in any
            // order.
            let mut batch: Vec<u32> = Vec::new();
            for _ in 0..1 + random.below(4) {
                let (from, count) = (random.below(u64::from(SUBPAGES)) as u32, 1 + random.below(60) as u32);
                let range: Vec<u32> = (from..(from + count).min(SUBPAGES)).filter(|s| !batch.contains(s)).collect();
                let back = random.below(2) == 0;
                let range: Box<dyn Iterator<Item = u32>> =
                    if back { Box::new(range.into_iter().rev()) } else { Box::new(range.into_iter()) };
                batch.extend(range);
            }
            batch.truncate(90);
            let mut free: Vec<u32> = (0..96).collect();
            let mut expected = Vec::new();
            for &subpage in &batch {
                let frame = free.swap_remove(random.below(free.len() as u64) as usize);
                fill(&frames, frame, random.next());
                frames.read(frame as usize * SUBPAGE_BYTES, &mut image[subpage as usize]);
                expected.push((driver.submit(Op::Write, subpage, frame), Ok(())));
                if random.below(20) == 0 {
                    // What is outside is refused and spoils no neighbour.
                    let outside = driver.submit(Op::Write, SUBPAGES, frame);
                    expected.push((outside, Err(FlashError::OutOfRange)));
                }
                if random.below(30) == 0 {
                    driver.queue.flush().unwrap();
                }
                if driver.queue.in_flight() >= 95 {
                    break;
                }
            }
            written += expected.iter().filter(|(_, result)| result.is_ok()).count() as u64;
            let results = driver.finish_all();
            assert_eq!(results.len(), expected.len());
            for (tag, result) in expected {
                assert_eq!(results[&tag], result, "{backend:?}, round {round}");
            }
            if round % 10 == 9 {
                let file = std::fs::File::open(&path).unwrap();
                for (subpage, expected) in image.iter().enumerate() {
                    let mut got = [0; SUBPAGE_BYTES];
                    file.read_exact_at(&mut got, subpage as u64 * SUBPAGE_BYTES as u64).unwrap();
                    assert!(got == *expected, "{backend:?}, round {round}, subpage {subpage}");
                }
            }
        }
        let counters = flash.counters();
        assert_eq!(counters.writes, written);
        assert!(counters.write_requests * 4 < written, "{backend:?}: {counters:?}");
    }
}

#[test]
fn model_neighbours_of_a_batch_are_one_request() {
    let directory = tempfile::tempdir().unwrap();
    for (number, backend) in BACKENDS.into_iter().enumerate() {
        let frames = arena(128);
        let Some((flash, mut driver)) = open(&directory.path().join(number.to_string()), backend, &frames, 128) else {
            continue;
        };
        let mut before = 0;
        let mut requests = |driver: &mut Driver, places: &[u32]| {
            for (i, place) in places.iter().enumerate() {
                driver.submit(Op::Write, *place, (i as u32 * 37) % 128);
            }
            assert!(driver.finish_all().values().all(Result::is_ok));
            let now = flash.counters().write_requests;
            now - std::mem::replace(&mut before, now)
        };
        assert_eq!(requests(&mut driver, &[5]), 1);
        assert_eq!(requests(&mut driver, &(0..16).collect::<Vec<_>>()), 1, "{backend:?}");
        assert_eq!(requests(&mut driver, &(0..16).rev().collect::<Vec<_>>()), 1, "{backend:?}");
        assert_eq!(requests(&mut driver, &(0..16).map(|i| i * 2).collect::<Vec<_>>()), 16, "{backend:?}");
        assert_eq!(requests(&mut driver, &[40, 90, 41, 91, 42, 92]), 2, "two streams of a log: {backend:?}");
        assert_eq!(requests(&mut driver, &(100..228).collect::<Vec<_>>()), 2, "runs have an end: {backend:?}");
        // What is handed over by itself stays by itself.
        for place in [10, 11] {
            driver.submit(Op::Write, place, place);
            driver.queue.flush().unwrap();
        }
        assert_eq!(requests(&mut driver, &[]), 2, "{backend:?}");
        // A place that is written twice has one of the two contents, whole.
        for frame in 0..3 {
            fill(&frames, frame, 70 + u64::from(frame));
        }
        let writes = [(8, 0), (7, 1), (8, 2)];
        for (place, frame) in writes {
            driver.submit(Op::Write, place, frame);
        }
        assert_eq!(driver.finish_all().len(), 3);
        assert!(driver.one(Op::Read, 8, 9).is_ok());
        assert!(matches!(stamp_of(&frames, 9), Some(70 | 72)), "{backend:?}");
    }
}

#[test]
fn model_gathered_reads_find_what_single_ones_would() {
    let directory = tempfile::tempdir().unwrap();
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    for (number, backend) in BACKENDS.into_iter().enumerate() {
        let frames = arena(128);
        let Some((flash, mut driver)) = open(&directory.path().join(number.to_string()), backend, &frames, 128) else {
            continue;
        };
        for place in 0..100 {
            fill(&frames, 0, u64::from(place) + 1);
            driver.one(Op::Write, place, 0).unwrap();
        }
        let gathers = driver.queue.switch(Switches { gather_reads: true, ..Switches::default() }).gather_reads;
        let mut before = flash.counters().read_requests;
        let mut requests = |driver: &mut Driver, reads: &[(u32, u32)]| {
            for (place, frame) in reads {
                driver.submit(Op::Read, *place, *frame);
            }
            assert!(driver.finish_all().values().all(Result::is_ok), "{backend:?}");
            let now = flash.counters().read_requests;
            now - std::mem::replace(&mut before, now)
        };
        let [side_by_side, scattered, along] = [
            Vec::from_iter((0..16).map(|i| (20 + i, i))),
            Vec::from_iter((0..16).map(|i| (20 + i, i * 37 % 128))),
            // What nobody wants goes to one frame.
            Vec::from_iter((0..16).map(|i| (20 + i, if i % 3 == 1 { 127 } else { i }))),
        ];
        for reads in [side_by_side, scattered, along] {
            let count = requests(&mut driver, &reads);
            assert!(!gathers || count == 1, "{backend:?}: {count} requests");
            for (place, frame) in reads.into_iter().filter(|(_, frame)| *frame != 127) {
                assert_eq!(stamp_of(&frames, frame), Some(u64::from(place) + 1), "{backend:?}");
            }
        }
        for round in 0..100 {
            // Any places, some twice, each into a frame of its own.
            let reads = Vec::from_iter((0..1 + random.below(100) as u32).map(|i| (random.below(100) as u32, i)));
            requests(&mut driver, &reads);
            for (place, frame) in reads {
                assert_eq!(
                    stamp_of(&frames, frame),
                    Some(u64::from(place) + 1),
                    "{backend:?}, round {round}, seed {seed}"
                );
            }
        }
    }
}

/// The child's part: what is before the limit is written, what is behind it fails.
fn write_across_the_limit(directory: &Path) {
    for (number, backend) in BACKENDS.into_iter().enumerate() {
        let frames = arena(64);
        let Some((flash, mut driver)) = open(&directory.join(number.to_string()), backend, &frames, 64) else {
            continue;
        };
        for (round, (from, count)) in
            [(90, 20), (LIMIT - 1, 2), (LIMIT, 16), (60, 40), (99, 1), (100, 1), (70, 60)].into_iter().enumerate()
        {
            let mut tags = Vec::new();
            for i in 0..count {
                fill(&frames, i, (round as u64 + 1) << 32 | u64::from(from + i));
                tags.push((from + i, driver.submit(Op::Write, from + i, i)));
            }
            let errors = flash.counters().errors;
            let results = driver.finish_all();
            for (place, tag) in tags {
                let expected = if place < LIMIT { Ok(()) } else { Err(EFBIG) };
                assert_eq!(results[&tag], expected, "{backend:?}, place {place} of {from}+{count}");
                assert!(driver.one(Op::Read, place, 63).is_ok());
                let stamp = (place < LIMIT).then_some((round as u64 + 1) << 32 | u64::from(place));
                assert_eq!(stamp_of(&frames, 63), stamp, "{backend:?}: what failed wrote nothing");
            }
            let beyond = (from + count).saturating_sub(LIMIT.max(from));
            assert_eq!(flash.counters().errors - errors, u64::from(beyond), "{backend:?}");
        }
        println!("{backend:?} was tried");
    }
}

#[test]
fn fault_an_error_hits_the_writes_that_have_it_and_no_neighbour() {
    if let Some(directory) = std::env::var_os(CHILD) {
        return write_across_the_limit(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    for (number, backend) in BACKENDS.into_iter().enumerate() {
        let _ = open(&directory.path().join(number.to_string()), backend, &arena(1), 1);
    }
    // In blocks of 512 bytes. The limit's signal is ignored, also in the child.
    let limit =
        format!("trap '' XFSZ; ulimit -f {} && exec \"$0\" \"$@\"", u64::from(LIMIT) * SUBPAGE_BYTES as u64 / 512);
    let mut command = Command::new("sh");
    command.arg("-c").arg(limit).arg(std::env::current_exe().unwrap());
    let test = "fault_an_error_hits_the_writes_that_have_it_and_no_neighbour";
    command.args(fulgurite_testkit::arguments(module_path!(), test)).env(CHILD, directory.path());
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    assert!(text.contains("was tried"), "{text}");
    println!("{text}");
}
