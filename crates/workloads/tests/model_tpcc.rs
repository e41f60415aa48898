//! Goal: TPC-C's transactions keep the standard's consistency conditions on every memory and
//! whatever fails, and what they leave depends on the set of requests alone.
//!
//! Method: two small warehouses, so small that rings of orders turn over many times and that
//! threads meet in every district. One thread executes the requests without latches. Four threads
//! execute them with latches, on a memory that yields at random accesses. Both then run on a memory
//! that fails random accesses, where failed requests are repeated. All must pass `check` and agree.
//! Then damage of every kind is done to good data, and `check` must see it. Seeds are printed.

use crate::common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{FAILED, Unsteady, copy, plain};
use fulgurite_memory::{Address, Memory, NoLatch, PlainMemory, Region, SUBPAGE_BYTES, VersionLatch};
use fulgurite_workloads::{Params, Random, Site, Tpcc, TpccMix, Workload, WorkloadError};

fn region(bytes: u64) -> Region {
    Region::new(Address::from_linear(5 * SUBPAGE_BYTES as u64), bytes)
}

fn build<W: Workload>(params: &Params) -> PlainMemory {
    let mut memory = plain();
    W::build(&mut memory, Site::new(region(params.bytes), params, &mut |_| ())).unwrap();
    memory
}

/// Executes requests on a copy of `built`. Returns what `check` says.
fn execute<W: Workload>(built: &PlainMemory, params: &Params, requests: u64, threads: u64, fails: u64) -> u64 {
    let memory = copy(built, region(params.bytes));
    let workload = W::open(&mut memory.clone(), region(params.bytes), params).unwrap();
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let random = Random::new(params.seed, thread);
            let yields = if threads > 1 { 300 } else { 0 };
            let mut memory = Unsteady::over(&memory, random, yields, fails);
            let (workload, next, failed) = (&workload, &next, &failed);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        break;
                    }
                    let request = workload.request(params.seed, number);
                    while let Err(error) = workload.execute(&mut memory, &request) {
                        assert_eq!(error, FAILED, "{} {number}: {request:?}", W::NAME);
                    }
                }
                failed.fetch_add(memory.failed, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(failed.into_inner() > 0, fails > 0);
    workload.check(&mut memory.clone()).unwrap()
}

fn agree<One: Workload, Many: Workload>(bytes: u64, zipf: f64, requests: u64, seed: u64) {
    println!("{}: {bytes} bytes, zipf {zipf}, {requests} requests, seed {seed}", One::NAME);
    let params = Params { bytes, zipf, seed, ..Params::default() };
    let built = build::<One>(&params);
    let alone = execute::<One>(&built, &params, requests, 1, 0);
    assert_eq!(execute::<Many>(&built, &params, requests, 4, 0), alone, "four threads");
    assert_eq!(execute::<One>(&built, &params, requests, 1, 60), alone, "failing accesses");
    assert_eq!(execute::<Many>(&built, &params, requests, 4, 60), alone, "four threads and failing accesses");
    // Of twenty requests, some change something.
    assert_ne!(execute::<One>(&built, &params, requests - 20, 1, 0), alone, "the invariant sees requests");
}

#[test]
fn new_orders_agree() {
    agree::<Tpcc<NoLatch>, Tpcc<VersionLatch>>(1 << 20, 0.0, 4000, 21);
    agree::<Tpcc<NoLatch>, Tpcc<VersionLatch>>(800 << 10, 1.2, 4000, 22);
}

#[test]
fn the_mix_agrees() {
    agree::<TpccMix<NoLatch>, TpccMix<VersionLatch>>(1 << 20, 0.0, 5000, 23);
    agree::<TpccMix<NoLatch>, TpccMix<VersionLatch>>(3 << 20, 1.2, 5000, 24);
}

/// Flips bits here and there. `check` must see two fifths of them, and each of its conditions that
/// reads many rows must see some.
#[test]
fn damage_is_found() {
    let params = Params { bytes: 800 << 10, zipf: 0.0, seed: 25, ..Params::default() };
    println!("seed {}", params.seed);
    let memory = build::<TpccMix<NoLatch>>(&params);
    let (mut memory, region) = (memory, region(params.bytes));
    let workload = TpccMix::<NoLatch>::open(&mut memory, region, &params).unwrap();
    for number in 0..1000 {
        let request = workload.request(1, number);
        workload.execute(&mut memory, &request).unwrap();
    }
    workload.check(&mut memory).unwrap();
    let mut random = Random::new(params.seed, 1);
    let (mut found, mut tried, mut conditions) = (0, 0, BTreeSet::new());
    for _ in 0..3000 {
        let at = region.base.add(SUBPAGE_BYTES as u64 + random.below(region.bytes - SUBPAGE_BYTES as u64));
        let mut byte = [0];
        memory.read_bytes(at, &mut byte).unwrap();
        if byte == [0] {
            continue; // Most likely unused.
        }
        memory.write_bytes(at, &[byte[0] ^ 0x10]).unwrap();
        tried += 1;
        match workload.check(&mut memory) {
            Err(WorkloadError::Inconsistent { what, .. }) => {
                found += 1;
                conditions.extend(what.rsplit_once('(').map(|(_, condition)| condition.to_owned()));
            }
            Ok(_) => (),
            Err(other) => panic!("{other}"),
        }
        memory.write_bytes(at, &byte).unwrap();
    }
    workload.check(&mut memory).unwrap();
    println!("{found} of {tried} flips found, by {conditions:?}");
    // Rows of warehouses and districts are too few for flips to meet them. A unit test breaks each
    // condition.
    let expected = ["2)", "6)", "7)", "9)", "10, 12)"];
    for condition in expected {
        let named = |told: &String| told.split_once(' ').is_some_and(|(_, numbers)| numbers == condition);
        assert!(conditions.iter().any(named), "no flip was seen by condition {condition}");
    }
    // The text of lines and history, and notes on customers, are not checked: a third of all bytes.
    assert!(found * 5 > tried * 2, "{found} of {tried} flips found");
}

#[test]
fn too_small_and_foreign_regions_are_refused() {
    let params = Params { bytes: 1 << 20, zipf: 0.0, seed: 1, ..Params::default() };
    let small = Region::new(Address::from_linear(0), 64 << 10);
    let refused = Tpcc::<NoLatch>::build(&mut plain(), Site::new(small, &params, &mut |_| ()));
    assert!(matches!(refused, Err(WorkloadError::Unusable { .. })), "{refused:?}");
    let mut memory = build::<Tpcc<NoLatch>>(&params);
    let other = TpccMix::<NoLatch>::open(&mut memory, region(1 << 20), &params);
    assert!(matches!(other, Err(WorkloadError::Unusable { .. })));
    let cut = Tpcc::<NoLatch>::open(&mut memory, Region::new(region(1 << 20).base, 512 << 10), &params);
    assert!(matches!(cut, Err(WorkloadError::Unusable { .. })));
}
