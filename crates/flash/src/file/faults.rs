//! In random workloads, each trouble that the kernel may report replaces each of its results, once
//! and for good, in each queue of a file. What is completed is so, errors are of the expected
//! kinds, and nothing else changes. Short transfers, EAGAIN and EINTR end well when they come once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::Random;

use super::medium::{EAGAIN, EINTR};
use super::nth::{Nth, Plan};
use super::{FileBackend, FileConfig, FileFlash};
use crate::{Flash, FlashError, Op, Queue, Request, lock};

use fulgurite_testkit as trials;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const ECANCELED: i32 = 125;
/// What the kernel says; whether of flushes alone; whether it is normal, and the error it else
/// becomes.
const TROUBLES: [(&str, i32, bool, bool, FlashError); 8] = [
    ("EIO", -EIO, false, false, FlashError::Io(EIO)),
    ("ENOSPC", -ENOSPC, false, false, FlashError::Io(ENOSPC)),
    ("EAGAIN", -EAGAIN, false, true, FlashError::Io(EAGAIN)),
    ("EINTR", -EINTR, false, true, FlashError::Io(EINTR)),
    ("short", 512, false, true, FlashError::Short),
    ("zero", 0, false, true, FlashError::Short),
    ("ECANCELED", -ECANCELED, false, false, FlashError::Io(ECANCELED)),
    ("EIO on flush", -EIO, true, false, FlashError::Io(EIO)),
];

const SUBPAGES: u32 = 16;
const DEPTH: usize = 8;

/// A file and its queue.
struct Bench {
    flash: FileFlash,
    frames: Arc<Arena>,
    queue: Box<dyn Queue>,
    _directory: tempfile::TempDir,
}
impl Bench {
    /// None: this machine has no such queue.
    fn new(backend: FileBackend) -> Option<Bench> {
        // In memory where possible: thousands of flushes to a disk take minutes.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let config = FileConfig::create(directory.path().join("flash"), u64::from(SUBPAGES) << 12);
        let flash = FileFlash::open(&FileConfig { backend, ..config }).unwrap();
        let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        match flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())) {
            Ok(queue) => Some(Bench { flash, frames, queue, _directory: directory }),
            Err(error) => {
                println!("{backend:?} is not tested here: {error}");
                None
            }
        }
    }
    /// All of these at once; their results.
    fn all(&mut self, requests: &[(Op, u32)]) -> Vec<Result<(), FlashError>> {
        for (tag, (op, subpage)) in (0u32..).zip(requests) {
            let (subpage, frame) = (SubpageIndex(*subpage), FrameIndex(tag));
            self.queue.submit(Request { tag: tag.into(), op: *op, subpage, frame }).unwrap();
        }
        self.queue.flush().unwrap();
        let (mut results, mut ended) = (vec![None; requests.len()], Vec::new());
        for _ in 0..10_000 {
            self.queue.poll(&mut ended);
            for completion in ended.drain(..) {
                let result = results[completion.tag as usize].replace(completion.result);
                assert_eq!(result, None, "request {} ended twice", completion.tag);
            }
            if self.queue.in_flight() == 0 {
                break;
            }
            self.queue.wait(Some(Duration::from_millis(10)));
        }
        results.into_iter().map(|result| result.expect("each ends")).collect()
    }
    /// Puts the file back to subpages of zeros, sound, and begins to count.
    fn begin(&mut self, plan: Plan) {
        *lock(&self.flash.medium.nth) = Nth::default();
        self.flash.medium.poisoned.store(false, std::sync::atomic::Ordering::Relaxed);
        self.frames.write(0, &[0; DEPTH * SUBPAGE_BYTES]);
        for first in (0..SUBPAGES).step_by(DEPTH) {
            let zeros: Vec<_> = (first..first + DEPTH as u32).map(|subpage| (Op::Write, subpage)).collect();
            assert!(self.all(&zeros).iter().all(Result::is_ok));
        }
        lock(&self.flash.medium.nth).plan = Some(plan);
    }
    /// A random workload against a map: how many results were seen and replaced, and the errors.
    fn run(&mut self, seed: u64, plan: Plan) -> (u64, u64, BTreeSet<String>, Vec<FlashError>) {
        self.begin(plan);
        let mut random = Random(seed);
        // What a subpage may hold: one value, or, after a failed write, the value of that write or
        // of an earlier one.
        let mut model: BTreeMap<u32, Vec<u64>> = (0..SUBPAGES).map(|subpage| (subpage, vec![0])).collect();
        let (mut version, mut errors, mut ops) = (0u64, Vec::new(), BTreeSet::new());
        let mut is_poisoned = false;
        for _ in 0..4 {
            let op = [Op::Write, Op::Write, Op::Read, Op::Flush][random.below(4) as usize];
            let mut places: Vec<u32> = (0..1 + random.below(4)).map(|_| random.below(SUBPAGES)).collect();
            places.sort_unstable();
            places.dedup();
            if op == Op::Flush {
                places.truncate(1);
            }
            for frame in 0..places.len() {
                version += 1;
                let bytes = if op == Op::Write { version } else { u64::MAX }.to_le_bytes();
                self.frames.write(frame * SUBPAGE_BYTES, &bytes.repeat(SUBPAGE_BYTES / 8));
            }
            let requests: Vec<_> = places.iter().map(|place| (op, *place)).collect();
            let results = self.all(&requests);
            for (frame, (place, result)) in places.iter().zip(results).enumerate() {
                let mut page = [0; SUBPAGE_BYTES];
                self.frames.read(frame * SUBPAGE_BYTES, &mut page);
                let value = u64::from_le_bytes(*page.first_chunk().unwrap());
                let may_hold = model.get_mut(place).unwrap();
                if is_poisoned && op != Op::Read {
                    assert_eq!(result, Err(FlashError::Poisoned), "{op:?} after a failed flush");
                    continue;
                }
                match (op, result) {
                    (Op::Write, Ok(())) => *may_hold = vec![value],
                    (Op::Write, Err(_)) => may_hold.push(value),
                    (Op::Read, Ok(())) => {
                        assert!(may_hold.contains(&value), "subpage {place}: {value} of {may_hold:?}")
                    }
                    (Op::Read, Err(_)) | (Op::Flush, _) => {}
                }
                if let Err(error) = result {
                    errors.push(error);
                    ops.insert(format!("{op:?}"));
                    is_poisoned |= op == Op::Flush;
                }
            }
        }
        let nth = std::mem::take(&mut *lock(&self.flash.medium.nth));
        // Without troubles all is there.
        for (place, may_hold) in &model {
            assert_eq!(self.all(&[(Op::Read, *place)]), [Ok(())]);
            let mut page = [0; SUBPAGE_BYTES];
            self.frames.read(0, &mut page);
            let value = u64::from_le_bytes(*page.first_chunk().unwrap());
            assert!(page.chunks_exact(8).all(|word| word == value.to_le_bytes()), "subpage {place} is torn");
            assert!(may_hold.contains(&value), "subpage {place}: {value} of {may_hold:?}");
        }
        (nth.seen, nth.hit, ops, errors)
    }
}

#[test]
fn every_result_of_the_kernel_is_replaced_by_every_trouble() {
    const WORKLOADS: u64 = 20;
    let (mut workloads, mut runs, mut met) = (0, 0u64, BTreeMap::<String, u64>::new());
    let backends = [FileBackend::Uring, FileBackend::UringUnregistered, FileBackend::Threads(1)];
    let mut benches: Vec<_> =
        backends.into_iter().filter_map(|backend| Some((backend, Bench::new(backend)?))).collect();
    trials::each_seed(1, WORKLOADS, |seed| {
        workloads += 1;
        for (backend, bench) in &mut benches {
            for (name, says, only_flushes, is_normal, becomes) in TROUBLES {
                let never = Plan { from: u64::MAX, until: u64::MAX, only_flushes, says };
                let (results, ..) = bench.run(seed, never);
                for from in 0..results {
                    for until in [from + 1, u64::MAX] {
                        let plan = Plan { from, until, only_flushes, says };
                        let what = format!("{backend:?}, {name}, {plan:?}");
                        let (_, hit, ops, errors) = bench.run(seed, plan);
                        assert!(errors.iter().all(|error| *error == becomes), "{what}: {errors:?}");
                        let once = until == from + 1;
                        let only_a_flush = ops.iter().all(|op| op == "Flush");
                        assert!(!once || !is_normal || only_a_flush, "{what}: {ops:?}: {errors:?}");
                        assert!(!once || errors.len() <= 1, "{what}: {errors:?}");
                        runs += u64::from(hit > 0);
                        for op in ops {
                            *met.entry(format!("{name} of {op}")).or_default() += 1;
                        }
                    }
                }
            }
        }
    });
    println!("{runs} runs with a trouble: {met:?}");
    assert!(benches.iter().any(|(backend, _)| matches!(backend, FileBackend::Threads(_))));
    assert!(runs > 2000 || !trials::is_whole(WORKLOADS), "{runs} runs of {workloads} workloads are too few");
    trials::figure(4, "workloads of the file queue of which every result failed", workloads);
    trials::figure(4, "runs of these, one for each result, kind, queue, and whether once", runs);
}
