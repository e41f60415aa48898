//! Goal: a service that repeats what failed ends with the data that the same requests leave in
//! plain memory, on the medium too, and a search is answered as it is there. It runs on flash,
//! behind a cache of a few frames, with two workers and a medium that fails reads and writes.
//!
//! Method: each workload is built tiny in plain memory, and its bytes become the contents of a
//! medium that misbehaves by plan: reads that fail or come short, write-backs that fail,
//! completions late and out of order. The requests run as jobs on 2 workers of 8 fibers each, for a
//! cache of as few frames as its jobs' pins allow, of 16 and of 64. A job tries a request a few
//! times. What still failed is submitted again, perhaps to the other worker. Then the plan ends:
//! `check` must pass, on the runtime and on the bytes of the medium, and return what it returns in
//! plain memory. Seeds are printed.

use crate::common;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use common::{Mix, OWN_MIX, copy, plain, within};
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, Op, Rule, When};
use fulgurite_memory::{
    AccessError, Address, Identity, Memory, MemoryId, NoLatch, PAGE_BYTES, PlainMemory, PlainPin, RawMemory, Region,
    SUBPAGE_BYTES, VersionLatch, View, ViewMut,
};
use fulgurite_runtime::{BuildError, Context, JobHandle, JobOptions, Runtime};
use fulgurite_workloads::{Params, Search, Site, Visitor, Workload, dispatch, names};

const WORKERS: usize = 2;
const FIBERS: usize = 8;
const EIO: FlashError = FlashError::Io(5);
/// Attempts that a job makes before it gives its request back.
const ATTEMPTS: u32 = 3;
/// Attempts after which a request counts as one that never succeeds.
const ATTEMPTS_MAX: u32 = 3000;

/// What fails while the requests run.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    Reads,
    Writes,
    Everything,
}

impl Wrong {
    /// The more frames there are, the fewer requests reach the medium, and the more of them go
    /// wrong.
    fn plan(self, seed: u64, frames: u64) -> FaultPlan {
        let reads_one_in = match frames {
            ..16 => 40,
            16..64 => 20,
            _ => 10,
        };
        let rule = |op, one_in, fault| Rule { op: Some(op), when: When::OneIn(one_in), fault };
        let reads = [
            rule(Op::Read, reads_one_in, Fault::Fails(EIO)),
            rule(Op::Read, 2 * reads_one_in, Fault::Fails(FlashError::Short)),
            rule(Op::Read, 12, Fault::Late { polls: 40 }),
        ];
        let writes = [rule(Op::Write, 4, Fault::Fails(EIO)), rule(Op::Write, 6, Fault::Late { polls: 100 })];
        let rules = match self {
            Wrong::Reads => reads.to_vec(),
            Wrong::Writes => writes.to_vec(),
            Wrong::Everything => [&reads[..], &writes].concat(),
        };
        FaultPlan { seed, rules, reorder: true, record: false }
    }
}

/// A medium, and how to reach its bytes when it does not want to.
type Medium = Arc<FaultyFlash<MemoryFlash>>;

/// A medium with the bytes of `region`, which has nothing wrong with it yet.
fn medium(from: &PlainMemory, region: Region) -> Medium {
    let end = (region.base.linear() + region.bytes).next_multiple_of(PAGE_BYTES as u64);
    let memory = MemoryFlash::new((end / SUBPAGE_BYTES as u64) as u32).unwrap();
    let (mut from, mut subpage) = (from.clone(), [0; SUBPAGE_BYTES]);
    for offset in (0..region.bytes).step_by(SUBPAGE_BYTES) {
        from.read_bytes(region.base.add(offset), &mut subpage).unwrap();
        memory.storage().write(region.base.add(offset).linear() as usize, &subpage);
    }
    Arc::new(FaultyFlash::new(memory, FaultPlan::default()))
}

/// The bytes of the medium, as the memory whose they are: with its identity, for handles of it.
struct Contents {
    inner: PlainMemory,
    id: MemoryId,
    roll_backs: AtomicU64,
}

impl RawMemory for Contents {
    type Pin = PlainPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> Identity<'_> {
        Identity::new(self.id, &self.roll_backs)
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        self.inner.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

fn contents(medium: &Medium, region: Region, id: MemoryId) -> Contents {
    let (mut to, mut subpage) = (plain(), [0; SUBPAGE_BYTES]);
    for offset in (0..region.bytes).step_by(SUBPAGE_BYTES) {
        medium.inner().storage().read(region.base.add(offset).linear() as usize, &mut subpage);
        to.write_bytes(region.base.add(offset), &subpage).unwrap();
    }
    Contents { inner: to, id, roll_backs: AtomicU64::new(0) }
}

/// A runtime over all of the medium, with `frames` frames for each worker.
fn runtime(medium: &Medium, frames: u64, stack_bytes: usize) -> Runtime {
    let pool = u64::from(fulgurite_flash::Flash::subpages(&**medium)) * SUBPAGE_BYTES as u64;
    let builder = Runtime::builder(medium.clone())
        .workers(WORKERS)
        .fibers(FIBERS)
        .stack(stack_bytes)
        .existing(pool)
        .spin(Duration::from_micros(20));
    let Err(BuildError::TooSmall { fixed, least, .. }) = builder.clone().dram(1).build() else {
        panic!("a byte of DRAM is too small");
    };
    let per_frame = (least - fixed) / WORKERS as u64;
    let runtime = builder.dram(fixed + frames * per_frame * WORKERS as u64).build().unwrap();
    assert_eq!(runtime.frames(), frames * WORKERS as u64);
    runtime
}

fn is_injected(error: AccessError) -> bool {
    matches!(error, AccessError::Flash { source: FlashError::Io(5) | FlashError::Short, .. })
}

/// Runs jobs `0..count` until each has succeeded, many at once. Returns their results and how many
/// attempts failed.
fn serve<T: Send + 'static>(
    runtime: &Runtime,
    options: &JobOptions,
    count: u64,
    job: impl Fn(&mut Context, u64) -> Result<T, AccessError> + Send + Clone + 'static,
) -> (Vec<T>, u64) {
    type Running<T> = (u64, u32, JobHandle<(Result<T, AccessError>, u32)>);
    let begin = |number: u64, before: u32| -> Running<T> {
        let job = job.clone();
        // Where it runs is the runtime's choice for one request in three, and changes each time it
        // is submitted.
        let options = match (number + u64::from(before)) % 3 {
            0 => options.clone(),
            worker => options.clone().worker(worker as usize - 1),
        };
        let handle = runtime.submit_with(&options, move |context| {
            let mut failed = 0;
            loop {
                match job(context, number) {
                    Ok(result) => return (Ok(result), failed),
                    Err(error) => {
                        failed += 1;
                        if failed == ATTEMPTS || !is_injected(error) {
                            return (Err(error), failed);
                        }
                    }
                }
            }
        });
        (number, before, handle.unwrap())
    };
    let mut running = VecDeque::new();
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let (mut next, mut failures) = (0, 0);
    loop {
        while next < count && running.len() < WORKERS * FIBERS + 4 {
            running.push_back(begin(next, 0));
            next += 1;
        }
        let Some((number, before, handle)) = running.pop_front() else { break };
        let (result, failed) = handle.wait().unwrap_or_else(|error| panic!("request {number}: {error}"));
        failures += u64::from(failed);
        match result {
            Ok(result) => results[number as usize] = Some(result),
            Err(error) => {
                let attempts = before + failed;
                assert!(
                    is_injected(error) && attempts < ATTEMPTS_MAX,
                    "request {number}, {attempts} attempts: {error}"
                );
                running.push_back(begin(number, attempts));
            }
        }
    }
    (results.into_iter().map(Option::unwrap).collect(), failures)
}

/// Builds a workload in plain memory.
struct Build(Region, Params);

impl Visitor for Build {
    type Output = PlainMemory;
    fn visit<W: Workload>(self) -> PlainMemory {
        let mut memory = plain();
        W::build(&mut memory, Site::new(self.0, &self.1, &mut |_| ())).unwrap();
        memory
    }
}

/// Executes the requests in plain memory. Returns what each found, and what `check` says.
struct Plainly<'b> {
    built: &'b PlainMemory,
    region: Region,
    params: Params,
    requests: u64,
}

impl Visitor for Plainly<'_> {
    type Output = (Vec<u64>, u64);
    fn visit<W: Workload>(self) -> (Vec<u64>, u64) {
        let mut memory = copy(self.built, self.region);
        let workload = W::open(&mut memory, self.region, &self.params).unwrap();
        let found = (0..self.requests)
            .map(|number| workload.execute(&mut memory, &workload.request(self.params.seed, number)).unwrap())
            .collect();
        (found, workload.check(&mut memory).unwrap())
    }
}

/// Executes the requests on flash that misbehaves. Returns what each found, what `check` says, and
/// how much failed.
struct OnFlash<'b> {
    built: &'b PlainMemory,
    region: Region,
    params: Params,
    requests: u64,
    /// Frames of each worker, as few as the workload's pins allow, when those are more.
    frames: u64,
    wrong: Wrong,
}

impl Visitor for OnFlash<'_> {
    type Output = (Vec<u64>, u64, Failed);
    fn visit<W: Workload>(self) -> (Vec<u64>, u64, Failed) {
        let OnFlash { region, params, wrong, requests, .. } = self;
        let frames = self.frames.max(u64::from(W::PINS) + 1);
        let case = format!("{}, {frames} frames, {wrong:?}, seed {}", W::NAME, params.seed);
        let medium = medium(self.built, region);
        // Code that is not optimised takes more.
        let runtime = runtime(&medium, frames, if cfg!(debug_assertions) { 128 << 10 } else { 32 << 10 });
        let options = JobOptions::new().name(W::NAME).pins(W::PINS);
        let seed = params.seed;
        let workload = runtime.submit_with(&options, move |context| W::open(context, region, &params).map(Arc::new));
        let workload = workload.unwrap().wait().unwrap().unwrap();

        medium.set_plan(wrong.plan(seed ^ frames << 32, frames));
        let its = workload.clone();
        let (found, failures) = serve(&runtime, &options, requests, move |context, number| {
            its.execute(context, &its.request(seed, number))
        });
        let counts = runtime.statistics().total().counts;
        medium.set_plan(FaultPlan::default());
        // What was handed to the medium under the plan may fail still, once.
        let written = runtime.write_back().or_else(|_| runtime.write_back());
        written.unwrap_or_else(|error| panic!("{case}: {error}"));

        println!("{case}: {failures} failed attempts, {} misses", counts.misses);
        assert_eq!(counts.jobs_died, 0);
        assert!(counts.read_errors > 0 || wrong == Wrong::Writes || counts.misses < 200, "{case}: no read failed");
        assert!(
            counts.write_errors > 0 || wrong == Wrong::Reads || counts.evicted_dirty < 50,
            "{case}: no write-back failed"
        );
        let failed = Failed { attempts: failures, reads: counts.read_errors, writes: counts.write_errors };
        let its = workload.clone();
        let checked = runtime.submit_with(&options, move |context| its.check(context)).unwrap().wait().unwrap();
        let checked = checked.unwrap_or_else(|error| panic!("{case}: {error}"));
        let id = runtime.run(|context| Ok(Memory::id(context))).unwrap();
        drop(runtime);
        let on_medium = workload.check(&mut contents(&medium, region, id));
        let on_medium = on_medium.unwrap_or_else(|error| panic!("{case}: on the medium: {error}"));
        assert_eq!(on_medium, checked, "{case}: the medium has something else than the cache had");
        (found, checked, failed)
    }
}

/// How often something went wrong.
#[derive(Clone, Copy, Default, Debug)]
struct Failed {
    attempts: u64,
    reads: u64,
    writes: u64,
}

/// Text that is indexed: our own sources.
const INPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

fn conform(name: &'static str, mix: Mix, bytes: u64, requests: u64, zipf: f64, seed: u64) {
    println!("{name}: {mix:?}, {bytes} bytes, {requests} requests, zipf {zipf}, seed {seed}");
    let region = Region::new(Address::from_linear(3 * SUBPAGE_BYTES as u64), bytes);
    let params = Params { bytes, zipf, seed, input: Some(INPUT.into()), value_bytes: mix.0, gets: mix.1 };
    let built = &dispatch::<NoLatch, _>(name, Build(region, params.clone())).unwrap();
    let plainly =
        |requests| dispatch::<NoLatch, _>(name, Plainly { built, region, params: params.clone(), requests }).unwrap();
    let (found, expected) = plainly(requests);
    let only_reads = common::only_reads(name, mix);
    let mut failed = Failed::default();
    for (frames, wrong) in [
        (1, Wrong::Reads),
        (1, Wrong::Writes),
        (1, Wrong::Everything),
        (16, Wrong::Reads),
        (16, Wrong::Everything),
        (64, Wrong::Everything),
    ] {
        let on_flash = OnFlash { built, region, params: params.clone(), requests, frames, wrong };
        let (found_there, checked, more) = dispatch::<VersionLatch, _>(name, on_flash).unwrap();
        failed.attempts += more.attempts;
        failed.reads += more.reads;
        failed.writes += more.writes;
        assert_eq!(checked, expected, "{name}: {frames} frames, {wrong:?}, seed {seed}");
        // A reader finds order-independent results.
        assert!(!only_reads || found_there == found, "{name}: {frames} frames, {wrong:?}, seed {seed}");
    }
    println!("{name}: {failed:?}");
    assert!(failed.attempts > 20 && failed.reads > 20, "{name}: {failed:?}");
    assert!(failed.writes > 20 || only_reads, "{name}: {failed:?}");
    assert!(only_reads || plainly(requests / 2).1 != expected, "{name}: the invariant does not see the requests");
}

macro_rules! conforms {
    ($($test:ident $name:literal, $requests:literal;)*) => {
        const TESTED: &[&str] = &[$($name),*];
        $(#[test]
        fn $test() {
            within(100, $name.to_owned(), || {
                // Few popular keys, so that workers meet. Then many keys, and none more popular
                // than others.
                conform($name, OWN_MIX, 1 << 20, $requests, 1.2, 41);
                conform($name, OWN_MIX, 2 << 20, $requests, 0.0, 42);
            });
        })*
    };
}

conforms! {
    array_swap "array-swap", 4000;
    rbt "rbt", 2000;
    hash_table "hash-table", 4000;
    tatp "tatp", 2000;
    tpcc "tpcc", 1200;
    tpcc_mix "tpcc-mix", 1200;
    silo "silo", 1200;
    masstree "masstree", 2000;
    blobs "blobs", 1200;
    gups "gups", 4000;
    mmap_bench "mmap-bench", 4000;
    search "search", 1200;
}

macro_rules! conforms_in_mixes {
    ($($test:ident $name:literal, $mix:expr;)*) => {
        $(#[test]
        fn $test() {
            let requests = if $name == "gups" { 4000 } else { 1200 };
            within(100, stringify!($test).to_owned(), move || {
                conform($name, $mix, 1 << 20, requests, 1.2, 41);
                conform($name, $mix, 2 << 20, requests, 0.0, 42);
            });
        })*
    };
}

common::mixes!(conforms_in_mixes);

#[test]
fn all_are_tested() {
    assert_eq!(names(), TESTED);
}

/// Words of this directory's sources, without order.
fn words_of(directory: &Path) -> Vec<String> {
    let mut words = BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let text = std::fs::read_to_string(path).unwrap();
            words.extend(text.split(|c: char| !c.is_alphanumeric()).filter(|w| w.len() > 1).map(str::to_owned));
        }
    }
    words.into_iter().collect()
}

/// What a person types is answered with the same documents, scores and snippets.
#[test]
fn answers_are_those_of_plain_memory() {
    within(100, "answers".to_owned(), || {
        let (seed, bytes) = (43, 2 << 20);
        println!("seed {seed}");
        let region = Region::new(Address::from_linear(3 * SUBPAGE_BYTES as u64), bytes);
        let params = Params { bytes, zipf: 0.9, seed, input: Some(INPUT.into()), ..Params::default() };
        let mut built = dispatch::<NoLatch, _>("search", Build(region, params.clone())).unwrap();
        let search = Arc::new(Search::<NoLatch>::open(&mut built, region, &params).unwrap());
        let words = words_of(Path::new(INPUT));
        let count = 200;
        let mut random = fulgurite_workloads::Random::new(seed, 0);
        let typed: Arc<Vec<String>> = Arc::new(
            (0..count)
                .map(|n| {
                    let mut word = || words[random.below(words.len() as u64) as usize].clone();
                    (0..=n % 3).map(|_| word()).collect::<Vec<_>>().join(" ")
                })
                .collect(),
        );
        let expected: Vec<_> = typed.iter().map(|typed| search.answer(&mut built, typed).unwrap()).collect();
        assert!(expected.iter().filter(|hits| !hits.is_empty()).count() as u64 > count / 3);
        for frames in [1, 16, 64] {
            let medium = medium(&built, region);
            // An answer is put together on the stack.
            let runtime = runtime(&medium, frames, 128 << 10);
            medium.set_plan(Wrong::Reads.plan(seed ^ frames, frames));
            let (search, typed) = (search.clone(), typed.clone());
            let (answers, failures) = serve(&runtime, &JobOptions::new().pins(0), count, move |context, number| {
                search.answer(context, &typed[number as usize])
            });
            assert!(failures > 0);
            for (n, (got, expected)) in answers.iter().zip(&expected).enumerate() {
                assert_eq!(got, expected, "answer {n} with {frames} frames, seed {seed}");
            }
        }
    });
}
