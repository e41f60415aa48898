//! Goal: whatever executes a set of requests, in whatever order and with whatever failures in
//! between, leaves data that is consistent and has the same invariant. So results of different
//! configurations may be compared.
//!
//! Method: each workload is built tiny, and its bytes copied. One copy is worked on by one thread
//! without latches. One by four threads with latches, on a memory that lets others run at random
//! accesses. One by a thread, and one by four threads with latches, on a memory that also fails
//! random accesses, each failed request being retried until it succeeds. One is saved and opened
//! again and again. All must pass `check` and return the same number, and a copy that nothing was
//! executed on another one. Seeds are printed.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{FAILED, Mix, OWN_MIX, Unsteady, copy, plain};
use fulgurite_memory::{Address, Latch, NoLatch, PlainMemory, RawMemory, Region, SUBPAGE_BYTES, VersionLatch};
use fulgurite_workloads::{Params, Random, Site, Visitor, Workload, dispatch, names};

/// Builds a workload and keeps what it takes to run it elsewhere.
struct Built {
    memory: PlainMemory,
    region: Region,
    params: Params,
}

struct Build {
    region: Region,
    params: Params,
}

impl Visitor for Build {
    type Output = Built;
    fn visit<W: Workload>(self) -> Built {
        let mut memory = plain();
        let mut shares = vec![0.0];
        W::build(&mut memory, Site::new(self.region, &self.params, &mut |share| shares.push(share))).unwrap();
        assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{}: progress {shares:?}", W::NAME);
        let outside = self.region.base.add(self.region.bytes);
        assert_eq!(memory.view(outside, 4096).unwrap().load::<[u64; 512]>(0), [0; 512], "{} built outside", W::NAME);
        Built { memory, region: self.region, params: self.params }
    }
}

/// Executes requests `0..requests` on a copy, and returns what `check` says.
struct Execute<'b> {
    built: &'b Built,
    seed: u64,
    requests: u64,
    threads: u64,
    yields_per_mille: u64,
    fails: bool,
}

impl Visitor for Execute<'_> {
    type Output = u64;
    fn visit<W: Workload>(self) -> u64 {
        let memory = copy(&self.built.memory, self.built.region);
        let workload = W::open(&mut memory.clone(), self.built.region, &self.built.params).unwrap();
        workload.check(&mut memory.clone()).unwrap_or_else(|error| panic!("{} as built: {error}", W::NAME));
        let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let seed = self.seed ^ (thread + 1) << 32;
                let mut memory = Unsteady::over(&memory, Random::new(seed, 0), 10 * self.yields_per_mille, 0);
                let (workload, next, failed) = (&workload, &next, &failed);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.requests {
                            break;
                        }
                        let request = workload.request(self.seed, number);
                        for attempt in 0.. {
                            if self.fails {
                                memory.light(attempt);
                            }
                            match workload.execute(&mut memory, &request) {
                                Ok(_) => break,
                                Err(FAILED) => {}
                                Err(error) => panic!("{} {number}: {error}; {request:?}", W::NAME),
                            }
                        }
                    }
                    failed.fetch_add(memory.failed, Ordering::Relaxed);
                });
            }
        });
        let failed = failed.into_inner();
        assert!(self.requests == 0 || (failed > 0) == self.fails, "{failed} accesses failed");
        let mut memory = memory;
        workload.check(&mut memory).unwrap_or_else(|error| panic!("{} after {failed} failures: {error}", W::NAME))
    }
}

fn conform(name: &str, mix: Mix, bytes: u64, requests: u64, zipf: f64, seed: u64) {
    println!("{name}: {mix:?}, {bytes} bytes, {requests} requests, zipf {zipf}, seed {seed}");
    let region = Region::new(Address::from_linear(3 * SUBPAGE_BYTES as u64), bytes);
    let input = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/src").into());
    let params = Params { bytes, zipf, seed, input, value_bytes: mix.0, gets: mix.1 };
    let built = dispatch::<NoLatch, _>(name, Build { region, params }).unwrap();
    let calm = Execute { built: &built, seed, requests, threads: 1, yields_per_mille: 0, fails: false };
    let untouched = run::<NoLatch>(name, Execute { requests: 0, ..calm });
    let alone = run::<NoLatch>(name, Execute { ..calm });
    let together = run::<VersionLatch>(name, Execute { threads: 4, yields_per_mille: 50, ..calm });
    let failing = run::<NoLatch>(name, Execute { fails: true, ..calm });
    let both = run::<VersionLatch>(name, Execute { threads: 4, yields_per_mille: 50, fails: true, ..calm });
    assert_eq!(alone, together, "{name}: 4 threads, seed {seed}");
    assert_eq!(alone, failing, "{name}: failing accesses, seed {seed}");
    assert_eq!(alone, both, "{name}: 4 threads and failing accesses, seed {seed}");
    let only_reads = common::only_reads(name, mix);
    assert!((untouched != alone) != only_reads, "{name}: the invariant does not see the requests");
    let opened_again = OpenAgain { built: &built, seed, rounds: 100, requests: requests / 100 };
    assert_eq!(alone, dispatch::<NoLatch, _>(name, opened_again).unwrap(), "{name}: opened again, seed {seed}");
}

/// Executes the same requests on a copy, in rounds. Each opens the data that the last one saved,
/// and must find its free space.
struct OpenAgain<'b> {
    built: &'b Built,
    seed: u64,
    rounds: u64,
    requests: u64,
}

impl Visitor for OpenAgain<'_> {
    type Output = u64;
    fn visit<W: Workload>(self) -> u64 {
        let mut memory = copy(&self.built.memory, self.built.region);
        let mut opened = W::open(&mut memory, self.built.region, &self.built.params).unwrap();
        for round in 0..self.rounds {
            for number in round * self.requests..(round + 1) * self.requests {
                let request = opened.request(self.seed, number);
                let done = opened.execute(&mut memory, &request);
                assert!(done.is_ok(), "{}, round {round}: {}", W::NAME, done.unwrap_err());
            }
            opened.save(&mut memory).unwrap();
            opened = W::open(&mut memory, self.built.region, &self.built.params).unwrap();
        }
        opened.check(&mut memory).unwrap()
    }
}

fn run<L: Latch>(name: &str, execute: Execute<'_>) -> u64 {
    dispatch::<L, _>(name, execute).unwrap()
}

macro_rules! conforms {
    ($($test:ident $name:literal;)*) => {
        const TESTED: &[&str] = &[$($name),*];
        $(#[test]
        fn $test() {
            // Few keys and many requests, so that threads meet. Then many keys, and none more
            // popular than others.
            conform($name, OWN_MIX, 1 << 20, 6000, 1.2, 11);
            conform($name, OWN_MIX, 4 << 20, 3000, 0.0, 12);
        })*
    };
}

conforms! {
    array_swap "array-swap";
    rbt "rbt";
    hash_table "hash-table";
    tatp "tatp";
    tpcc "tpcc";
    tpcc_mix "tpcc-mix";
    silo "silo";
    masstree "masstree";
    blobs "blobs";
    gups "gups";
    mmap_bench "mmap-bench";
    search "search";
}

macro_rules! conforms_in_mixes {
    ($($test:ident $name:literal, $mix:expr;)*) => {
        $(#[test]
        fn $test() {
            conform($name, $mix, 1 << 20, 6000, 1.2, 11);
            conform($name, $mix, 4 << 20, 3000, 0.0, 12);
        })*
    };
}

common::mixes!(conforms_in_mixes);

#[test]
fn all_are_tested() {
    assert_eq!(names(), TESTED);
}

#[test]
fn too_little_space_is_refused() {
    struct Tiny;
    impl Visitor for Tiny {
        type Output = bool;
        fn visit<W: Workload>(self) -> bool {
            let (mut memory, region) = (plain(), Region::new(Address::from_linear(0), 4096));
            let input = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/src").into());
            let params = Params { bytes: 1 << 30, zipf: 0.9, seed: 0, input, ..Params::default() };
            let built = W::build(&mut memory, Site::new(region, &params, &mut |_| ()));
            built.is_err() && W::open(&mut memory, region, &params).is_err()
        }
    }
    for name in names() {
        assert_eq!(dispatch::<NoLatch, _>(name, Tiny), Ok(true), "{name}");
    }
}
