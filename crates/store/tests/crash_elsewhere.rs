//! Goal: a page of the journal, a witness, an anchor or a page of a checkpoint that cannot be
//! written costs nothing: it is written elsewhere, its flash page is remembered and not written
//! again, and a crash at any point of that loses nothing that was promised. Method: each request of
//! short runs fails, and up to three that follow; what failed may have arrived, be torn, or be
//! absent. A log of all writes is kept, and what the flash may hold after each is opened: every
//! subset of up to 8 writes under way, samples of more. Some of the images are gone on from, to the
//! next failure and the next crash.

use crate::world;

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_flash::FlashError;
use fulgurite_format::{Header, Kind};
use fulgurite_store::{Geometry, StoreConfig};
use world::attacks::{Step, config, each_moment, first_seed, replay, runs, step};
use world::images::open_whole;
use world::{Content, Failed, Failing, Random, Trouble, World};

const EIO: i32 = 5;

fn roomy() -> Geometry {
    Geometry::new(8 * 48, 8, Some(48)).unwrap()
}

/// A run in which `count` requests fail, beginning with request `from`.
fn run(seed: u64, from: u64, count: u64) -> World {
    let mut config = config(None, seed);
    // Commits of several pages.
    config.commit_after = 1 + (seed % 8) as usize;
    let mut world = World::new(roomy(), config, seed);
    world.flash.log = Some(Vec::new());
    world.fails =
        Some(Failing { from, until: from + count, trouble: Trouble::Fails(FlashError::Io(EIO)), only_flushes: false });
    for i in 0..14 {
        match (i + seed) % 7 {
            3 => step(&mut world, Step::Sync),
            4 => world.settle(),
            5 => step(&mut world, Step::Checkpoint),
            // Nearly two pages of the journal.
            6 => (0..8).for_each(|first| world.write_these(&[first, first + 9, first + 19, first + 29, first + 39])),
            _ => world.write(6),
        }
        for _ in 0..world.random.below(4) {
            world.turn();
        }
    }
    let _ = world.try_sync();
    world.settle();
    world
}

/// Whether one page of the journal is stored at two places.
fn is_twice_there(world: &World) -> bool {
    let number = |place: u32| match world.flash.content(place) {
        Some(Content::Metadata(page)) => {
            Header::open(page).ok().filter(|(h, ..)| h.kind == Kind::Journal).map(|(h, ..)| h.sequence)
        }
        _ => None,
    };
    let numbers: Vec<u64> = world.flash.places().into_iter().filter_map(number).collect();
    numbers.iter().collect::<BTreeSet<_>>().len() < numbers.len()
}

#[test]
fn each_request_fails_and_the_power_at_any_point_of_that() {
    let (mut images, mut tried, mut poisoned, mut twice) = (0u64, 0, 0, 0);
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first_seed()..first_seed() + runs(4) {
        let requests = run(seed, u64::MAX, 0).requests;
        for (from, count) in (0..requests).map(|from| (from, 1 + (from + seed) % 3)) {
            let mut world = run(seed, from, count);
            let what = format!("requests {from} and on, {count} of them: {:?}", world.failed);
            world.failed.iter().for_each(|failed| *kinds.entry(format!("{failed:?}")).or_default() += 1);
            tried += 1;
            let flush = world.failed.contains(&Failed::Flush);
            // Three anchors that fail may be two places in a row, where it ends.
            let anchors = world.failed.iter().filter(|f| **f == Failed::Write(Some(Kind::Anchor))).count();
            if anchors < 3 {
                assert_eq!(world.store.poisoned().is_some(), flush, "{}", replay(seed, &what));
            }
            poisoned += u64::from(world.store.poisoned().is_some());
            if world.store.poisoned().is_none() {
                world.check();
                world.write(1);
                world.sync();
                world.settle();
                let bad: BTreeSet<u32> = world.store.state().wear().places().iter().copied().collect();
                assert!(world.failed_at.iter().all(|place| bad.contains(place)), "{}: {bad:?}", replay(seed, &what));
            }
            twice += u64::from(is_twice_there(&world));
            let log = world.flash.log.as_ref().expect("it is kept");
            // From a while before the first failure.
            let skipped = log.len() * (from as usize) / (requests as usize + 1) * 3 / 4;
            let (config, mut random) = (world.config, Random(seed + from));
            let looked = each_moment(&mut world, skipped, |moment, write| {
                let count = moment.cached.len().min(60);
                let before = moment.cached.len() - count;
                let mut look = |chosen: u64| {
                    images += 1;
                    let is_there = |i: usize| i < before || chosen >> (i - before) & 1 == 1;
                    let arrived = moment.cached.iter().enumerate().filter(|(i, _)| is_there(*i));
                    open_whole(&moment.image(arrived.map(|(_, w)| w.clone())), config, &moment.promise).map(|_| ())
                };
                let newest = if write { 1u64 << (count - 1) } else { 0 };
                match (write, count) {
                    (false, _) => look(0),
                    (true, ..=5) => (0..newest).try_for_each(|others| look(others | newest)),
                    _ => (0..6).try_for_each(|_| look(random.next() & (newest - 1) | newest)),
                }
            });
            looked.unwrap_or_else(|e| panic!("{}", replay(seed, &format!("{what}: {e}"))));
        }
    }
    println!("requests that fail: {tried} runs, {poisoned} poisoned, {images} images, 0 violations; {kinds:?}");
    println!("{twice} runs with a page of the journal that failed, arrived all the same, and was written again");
    assert!(runs(4) < 4 || images > 20_000 && kinds.len() >= 5 && twice > 10, "{images} images, {kinds:?}");
}

#[test]
fn lives_full_of_failures() {
    let (mut failed, mut lives) = (0, 0);
    for seed in first_seed()..first_seed() + runs(60) {
        let mut world = World::new(roomy(), config(None, seed), seed);
        for life in 0..6 {
            let mut from = world.requests + world.random.below(30_u64);
            for i in 0..60 {
                if world.requests > from + 3 {
                    from = world.requests + world.random.below(40_u64);
                }
                let until = from + 1 + world.random.below(3_u64);
                let error = FlashError::Io([EIO, 11, 4, 61][world.random.below(4) as usize]);
                // Flushes may not fail, or it ends at once.
                world.fails = Some(Failing { from, until, trouble: Trouble::Fails(error), only_flushes: false });
                let count = 1 + world.random.below(6);
                world.write(count);
                match i % 5 {
                    0 => step(&mut world, Step::Sync),
                    1 if world.random.one_in(4) => step(&mut world, Step::Checkpoint),
                    _ => {}
                }
                for _ in 0..world.random.below(9) {
                    world.turn();
                }
                if world.store.poisoned().is_some() {
                    break;
                }
            }
            failed += world.failed.len();
            lives += 1;
            world.fails = None;
            world.failed.clear();
            world.crash().unwrap_or_else(|e| panic!("{}", replay(seed, &format!("life {life}: {e}"))));
            world.check();
        }
    }
    println!("{lives} lives, {failed} failures, 0 violations");
    assert!(runs(60) < 60 || failed > 1000);
}

#[test]
fn where_every_place_fails_it_ends() {
    let mut world = World::new(roomy(), StoreConfig::default(), 1);
    world.write_these(&[1]);
    let kept = world.sync();
    world.settle();
    // The page, in the middle of an extent, and the four places at which the journal could go on.
    let next: Vec<u32> = world.store.uses().free.iter().flat_map(|e| (0..8).map(move |i| e * 8 + i)).collect();
    world.flash.worn = next.iter().copied().collect();
    world.flash.worn.extend((3 * 8..4 * 8).chain(4 * 8..5 * 8).chain(5 * 8..6 * 8));
    let metadata = world.store.uses().metadata;
    world.flash.worn.extend(metadata.iter().flat_map(|e| e * 8..e * 8 + 8));
    let before = world.store.counters().repeated;
    world.store.begin_checkpoint();
    while world.turn() {}
    assert!(world.store.poisoned().is_some(), "{:?}", world.store.info());
    assert!(world.store.counters().repeated - before <= 12, "it does not try for ever");
    world.flash.worn.clear();
    assert_eq!(world.crash().unwrap(), kept);
    world.check();
    world.write_these(&[2]);
    world.sync();
    world.settle();
}
