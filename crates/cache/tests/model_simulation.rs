//! Goal: cache, policy and store together lose nothing and mix nothing up, whatever the device does
//! in whatever order. A read returns the last write, a crash leaves the last token or the one being
//! made, a refused roll back changes nothing, and no wait lasts forever. A seed gives the same run
//! each time. Method: a machine simulated whole, on one thread with its own clock (`simulation`).
//! One to three workers drive caches of a few frames over a real pool. Jobs read, write, pin, write
//! in sections and sync. An operator reads old tokens, pins them, rolls back, reclaims and makes
//! checkpoints. The device ends requests in random order, fails some, delays others, and loses
//! power, also during recovery. A model says what must be there. Bugs planted in the cache, in the
//! store and in their driver show that the tests can fail.

use crate::simulation;
use fulgurite_testkit as trials;

use std::sync::Arc;

use fulgurite_cache::Planted as CacheBug;
use fulgurite_flash::Flash;
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Planted, Pool, StoreConfig};
use simulation::disk::{Disk, DiskFlash};
use simulation::{Bug, Harness, Report, simulate};

const SEEDS: u64 = 1_000;
/// Seeds that a planted bug gets.
const CANARY_SEEDS: u64 = 300;

#[test]
fn nothing_is_lost_and_nothing_is_mixed_up() {
    let mut sum = Report::NONE;
    let mut runs = 0;
    trials::each_seed(0, SEEDS, |seed| {
        sum.add(&simulate(seed, Bug::None));
        runs += 1;
    });
    println!("{sum:#?}");
    if trials::is_whole(SEEDS) {
        // What is to be tested has happened.
        let all =
            [sum.joined, sum.prefetched, sum.written_back, sum.syncs, sum.failed_syncs, sum.roll_backs, sum.crashes];
        assert!(all.iter().all(|count| *count > runs / 4), "{all:?}");
        let rarer =
            [sum.crashed_recoveries, sum.in_flight_kept, sum.timeouts, sum.refused_jobs, sum.views, sum.reclaimed];
        assert!(sum.worn_out < runs / 50, "{} devices were worn out", sum.worn_out);
        assert!(rarer.iter().all(|count| *count > runs / 50), "{rarer:?}");
    }
    trials::figure(8, "simulated runs of cache, policy, store and faults", runs);
}

/// A killed process may have left a token in the device's cache, which the next opening finds and
/// reports. The following loss of power must not take it away.
#[test]
fn a_token_that_was_seen_is_not_lost() {
    let geometry = Geometry::new(256, 8, Some(32)).unwrap();
    let mut seen = 0;
    for requests in 0..16 {
        let disk = Disk::new(256, requests);
        let medium: Arc<dyn Flash> = Arc::new(DiskFlash(disk.clone()));
        Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
        let (pool, _) = Pool::open(medium.clone(), StoreConfig::default()).unwrap();
        disk.dies_after(requests);
        let killed = pool.sync();
        disk.die();
        drop(pool);
        disk.process_died();
        let (pool, report) = Pool::open(medium.clone(), StoreConfig::default()).unwrap();
        seen += u64::from(report.token > 0 && killed.is_err());
        disk.die();
        drop(pool);
        disk.lose_cache();
        let (_, again) = Pool::open(medium, StoreConfig::default()).unwrap();
        assert_eq!(again.token, report.token, "after {requests} requests");
    }
    assert!(seen > 0, "no token was seen that was not durable yet");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let mut traces = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let [first, second] = [(), ()].map(|()| simulate(seed, Bug::None));
        assert_eq!(first, second, "seed {seed}");
        traces.insert(first.trace.0);
    }
    assert_eq!(traces.len(), 12, "different seeds are different runs");
}

/// The first seed that finds a bug.
fn found(bug: Bug) -> Option<u64> {
    (0..CANARY_SEEDS).find(|seed| std::panic::catch_unwind(|| simulate(*seed, bug)).is_err())
}
/// The bugs of the store that show in what a program sees soon. Of the other two, `crash_store` and
/// `model_store` enumerate what they need: a page that is damaged and nevertheless makes sense, and
/// a checkpoint that a crash cuts in two between two records of one page.
const OF_THE_STORE: [Planted; 8] = [
    Planted::SkipDataFlush,
    Planted::SkipJournalFlush,
    Planted::AnchorFirst,
    Planted::ReuseEarly,
    Planted::StaleMap,
    Planted::ForgetDrop,
    Planted::ReplayTwice,
    Planted::RollBackMapOnly,
];
/// The bugs of the cache; its users here are not the runtime's users, in which `NoSlots` is.
fn of_the_cache() -> impl Iterator<Item = CacheBug> {
    CacheBug::ALL.into_iter().filter(|bug| *bug != CacheBug::NoSlots)
}

#[test]
fn planted_bugs_are_found() {
    let all: Vec<Bug> = OF_THE_STORE
        .map(Bug::Store)
        .into_iter()
        .chain(of_the_cache().map(Bug::Cache))
        .chain([Bug::Driver(Harness::EarlySync)])
        .collect();
    let all: Vec<_> = all.into_iter().map(|bug| (bug, found(bug))).collect();
    println!("{all:?}");
    let missed: Vec<_> = all.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "not found by {CANARY_SEEDS} seeds: {missed:?}");
    trials::figure(8, "bugs planted in cache, policy and store that the simulation finds", all.len() as u64);
}
