//! Goal: Silo's transactions are serialisable, on every memory and whatever fails, and its
//! workloads leave what the set of requests says.
//!
//! Method: a bank. Writers move random sums between random accounts. Readers add up all accounts in
//! one transaction and must find the same total each time, because at every moment it is the same.
//! They do so with many latches, with so few that records share them, and on a memory that yields
//! and fails at random accesses. Then write skew: two threads each read both records of a pair and
//! set their own if none is set, without serialisability both do. The workloads are executed by one
//! thread without latches and by four with, with and without failing accesses, on copies of the
//! same bytes. All must agree. Seeds are printed.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{FAILED, Unsteady, copy, plain};
use fulgurite_memory::{Address, Memory, NoLatch, PlainMemory, Ptr, Region, SUBPAGE_BYTES, VersionLatch};
use fulgurite_workloads::silo::{Record, Silo, Stop, Tid};
use fulgurite_workloads::{Params, Random, SiloYcsb, Site, Workload, WorkloadError};

fn rough(inner: &PlainMemory, seed: u64, thread: u64, yields: u64, fails: u64) -> Unsteady {
    Unsteady::over(inner, Random::new(seed, thread), yields, fails)
}

/// The address of account `number`: three subpages hold them all.
fn account(number: u64) -> Ptr<Record<[u64; 3]>> {
    Ptr::new(Address::from_linear(4096 + number % 3 * 4096 + number / 3 * 32))
}

/// Accounts with 1000 each, and a silo over them.
fn bank(accounts: u64, latches: usize) -> (PlainMemory, Silo<VersionLatch>) {
    let mut memory = plain();
    let epoch = Ptr::new(Address::from_linear(0));
    memory.store(epoch, 1u32).unwrap();
    for number in 0..accounts {
        Record::create(&mut memory, account(number), Tid::new(1, 0), [1000, number, 0]).unwrap();
    }
    let silo = Silo::open(&mut memory, epoch, latches).unwrap();
    (memory, silo)
}

fn transfers(accounts: u64, latches: usize, fails: u64, seed: u64) {
    println!("{accounts} accounts, {latches} latches, {fails} failures in 10,000 accesses, seed {seed}");
    let (memory, silo) = bank(accounts, latches);
    let (moves, sums) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (mut memory, silo, moves) = (rough(&memory, seed, thread, 200, fails), &silo, &moves);
            scope.spawn(move || {
                let mut random = Random::new(!seed, thread);
                for _ in 0..4000 {
                    let (from, to) = (random.below(accounts), random.below(accounts));
                    let amount = random.below(100);
                    let moved = silo.run(&mut memory, |transaction, memory| {
                        let mut source = transaction.read(memory, account(from))?;
                        source[0] = source[0].wrapping_sub(amount);
                        source[2] += 1;
                        transaction.write(account(from), &source);
                        // It may be the account above: then this must see what was written there.
                        let mut target = transaction.read(memory, account(to))?;
                        assert_eq!((source[1], target[1]), (from, to));
                        target[0] = target[0].wrapping_add(amount);
                        transaction.write_part(account(to), 0, &target[0]);
                        Ok(())
                    });
                    moves.fetch_add(u64::from(moved.is_ok()), Ordering::Relaxed);
                }
            });
        }
        for thread in 2..4 {
            let (mut memory, silo, sums) = (rough(&memory, seed, thread, 200, fails), &silo, &sums);
            scope.spawn(move || {
                for _ in 0..1000 {
                    let total = silo.run(&mut memory, |transaction, memory| {
                        let mut total = 0u64;
                        for number in 0..accounts {
                            total = total.wrapping_add(transaction.read(memory, account(number))?[0]);
                        }
                        Ok(total)
                    });
                    if let Ok(total) = total {
                        assert_eq!(total, accounts * 1000, "a reader saw a transfer half done, seed {seed}");
                        sums.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (moves, sums) = (moves.into_inner(), sums.into_inner());
    let mut memory = memory;
    let rows: Vec<_> = (0..accounts).map(|n| memory.load(Record::row(account(n))).unwrap()).collect();
    assert_eq!(rows.iter().fold(0u64, |sum, row| sum.wrapping_add(row[0])), accounts * 1000);
    assert_eq!(rows.iter().map(|row| row[2]).sum::<u64>(), moves, "each transfer happened once, if it said so");
    assert!(sums > 100 && moves > 1000, "{sums} sums, {moves} transfers");
}

#[test]
fn transfers_conserve_the_total() {
    transfers(9, 4096, 0, 31);
    transfers(9, 2, 0, 32);
    transfers(9, 64, 50, 33);
}

/// Each of two transactions reads both records and, if none is set, sets its own. One may, never
/// both.
#[test]
fn only_one_is_on_call() {
    let seed = 35;
    println!("seed {seed}");
    let rounds = 1500u64;
    let mut memory = plain();
    let epoch = Ptr::new(Address::from_linear(0));
    memory.store(epoch, 1u32).unwrap();
    let place = |number: u64| Ptr::<Record<u64>>::new(Address::from_linear(4096 + number * 16));
    for number in 0..2 * rounds {
        Record::create(&mut memory, place(number), Tid::new(1, 0), 0).unwrap();
    }
    let silo = Silo::<VersionLatch>::open(&mut memory, epoch, 1 << 12).unwrap();
    let at = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (mut memory, silo, at) = (rough(&memory, seed, thread, 2500, 0), &silo, &at);
            scope.spawn(move || {
                for round in 0..rounds {
                    // Both begin each round together.
                    at.fetch_add(1, Ordering::AcqRel);
                    while at.load(Ordering::Acquire) < 2 * (round + 1) {
                        std::thread::yield_now();
                    }
                    silo.run(&mut memory, |transaction, memory| {
                        let both = transaction.read(memory, place(2 * round))?
                            + transaction.read(memory, place(2 * round + 1))?;
                        std::thread::yield_now();
                        if both == 0 {
                            transaction.write(place(2 * round + thread), &1);
                        }
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
    });
    for round in 0..rounds {
        let row = |n| memory.clone().load(Record::row(place(n))).unwrap();
        assert_eq!(row(2 * round) + row(2 * round + 1), 1, "round {round}, seed {seed}");
    }
}

#[test]
fn what_is_not_committed_is_not_there() {
    let (memory, silo) = bank(3, 16);
    let mut memory = memory;
    let mut transaction = silo.begin();
    transaction.write(account(1), &[5, 1, 0]);
    assert_eq!(transaction.read(&mut memory, account(1)), Ok([5, 1, 0]));
    transaction.roll_back();
    assert_eq!(transaction.read(&mut memory, account(1)), Ok([1000, 1, 0]));
    drop(transaction);
    let mut late = silo.begin();
    assert_eq!(late.read(&mut memory, account(2)), Ok([1000, 2, 0]));
    let mut early = silo.begin();
    early.write_part(account(2), 8, &7u64);
    let first = early.commit(&mut memory).unwrap();
    assert_eq!(late.commit(&mut memory), Err(Stop::Conflict));
    silo.advance_epoch(&mut memory).unwrap();
    let mut next = silo.begin();
    next.write_part(account(2), 16, &8u64);
    let second = next.commit(&mut memory).unwrap();
    assert!(second > first && second.epoch() == 2, "{first:?} {second:?}");
    assert_eq!(memory.load(Record::row(account(2))), Ok([1000, 7, 8]));
    let again = Silo::<NoLatch>::open(&mut memory, Ptr::new(Address::from_linear(0)), 1).unwrap();
    assert_eq!(again.epoch(), 2);
}

fn region(bytes: u64) -> Region {
    Region::new(Address::from_linear(5 * SUBPAGE_BYTES as u64), bytes)
}

fn execute<W: Workload>(built: &PlainMemory, params: &Params, requests: u64, threads: u64, fails: u64) -> u64 {
    let memory = copy(built, region(params.bytes));
    let workload = W::open(&mut memory.clone(), region(params.bytes), params).unwrap();
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let yields = if threads > 1 { 300 } else { 0 };
            let mut memory = rough(&memory, params.seed, thread, yields, fails);
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
    let mut built = plain();
    One::build(&mut built, Site::new(region(bytes), &params, &mut |_| ())).unwrap();
    let alone = execute::<One>(&built, &params, requests, 1, 0);
    assert_eq!(execute::<Many>(&built, &params, requests, 4, 0), alone, "four threads");
    assert_eq!(execute::<One>(&built, &params, requests, 1, 60), alone, "failing accesses");
    assert_eq!(execute::<Many>(&built, &params, requests, 4, 60), alone, "four threads and failing accesses");
    assert_ne!(execute::<One>(&built, &params, requests - 20, 1, 0), alone, "the invariant sees requests");
    let small = Region::new(Address::from_linear(0), 8 << 10);
    let refused = One::build(&mut plain(), Site::new(small, &params, &mut |_| ()));
    assert!(matches!(refused, Err(WorkloadError::Unusable { .. })), "{refused:?}");
}

#[test]
fn ycsb_agrees() {
    agree::<SiloYcsb<NoLatch>, SiloYcsb<VersionLatch>>(1 << 20, 0.0, 8000, 36);
    agree::<SiloYcsb<NoLatch>, SiloYcsb<VersionLatch>>(2 << 20, 1.3, 8000, 37);
}
