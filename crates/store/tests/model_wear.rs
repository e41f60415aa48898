//! Goal: extents wear evenly although most data is never written again, at the price of a few per
//! cent more writes; the counts survive crashes and checkpoints. Method: a pool that is mostly
//! cold, and a tenth of it overwritten for long, with levelling and without, counted; against the
//! counts of the extents that were really written.

use crate::world;

use std::collections::BTreeSet;

use fulgurite_store::{Fills, Geometry, StoreConfig};
use world::World;
use world::attacks::{first_seed, runs};

fn config(wear_spread: u32) -> StoreConfig {
    let mut config = StoreConfig::default();
    config.wear_spread = wear_spread;
    config.checkpoint_after = 20;
    config
}

/// Returns the wear, how many extents are far behind the most filled one, what was written for the
/// program, and what was copied to level wear.
fn hot_and_cold(wear_spread: u32, seed: u64) -> (Fills, usize, u64, u64) {
    let geometry = Geometry::new(16 * 160, 16, Some(1520)).unwrap();
    let mut world = World::new(geometry, config(wear_spread), seed);
    let subpages = geometry.subpages;
    for first in (0..subpages).step_by(8) {
        world.write_these(&(first..first + 8).collect::<Vec<_>>());
        while world.turn() {}
    }
    for i in 0..40_000u32 {
        let at = world.random.below(subpages / 10) / 4 * 4;
        world.write_these(&[at, at + 1, at + 2, at + 3]);
        if i % 16 == 15 {
            let token = world.sync();
            world.tokens.retain(|t, _| *t + 2 > token);
        }
        while world.turn() {}
    }
    world.sync();
    world.settle();
    world.check();
    let fills = world.store.info().fills;
    let wear = world.store.state().wear();
    let behind = (3..geometry.extents).filter(|e| wear.fills(*e) + 24 < fills.max).count();
    (fills, behind, world.store.counters().written, world.store.counters().levelled)
}

#[test]
fn cold_data_makes_way_and_it_costs_little() {
    let seed = first_seed();
    let (without, left_behind, ..) = hot_and_cold(u32::MAX, seed);
    let (with, behind, written, levelled) = hot_and_cold(12, seed);
    let cost = levelled as f64 / written as f64;
    println!(
        "fills without levelling {without:?}, with it {with:?}; {levelled} copies for {written} writes, {:.1}%",
        cost * 100.0
    );
    assert!(without.max - without.min > 40, "the test wears nothing unevenly: {without:?}");
    assert!(left_behind > 60, "{left_behind} of 157 extents");
    // But for extents that are open all the time because nothing of their degree of heat is
    // written.
    assert!(behind <= 4, "{behind} of 157 extents are far behind: {with:?}");
    assert!(levelled > 0 && cost <= 0.04, "{levelled} copies for {written} writes");
}

#[test]
fn counts_survive() {
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut world = World::new(Geometry::new(8 * 60, 8, Some(64)).unwrap(), config(8), seed);
        let mut least = vec![0; 60];
        for i in 0..400 {
            world.write(5);
            if i % 6 == 0 {
                world.sync();
            }
            for _ in 0..world.random.below(9) {
                world.turn();
            }
            if i % 40 == 39 {
                world.sync();
                world.settle();
                least = world.store.state().wear().all_fills().to_vec();
            }
            if world.random.one_in(40) {
                world.crash().unwrap();
                let fills = world.store.state().wear().all_fills();
                let forgotten: BTreeSet<usize> = (0..60).filter(|e| fills[*e] < least[*e]).collect();
                assert!(forgotten.is_empty(), "seed {seed}: fills of {forgotten:?} were forgotten");
            }
        }
        world.store.begin_checkpoint();
        world.settle();
        let before = world.store.state().wear().all_fills().to_vec();
        world.crash().unwrap();
        assert!(
            (0..60).all(|e| world.store.state().wear().fills(e) >= before[e as usize]),
            "seed {seed}: a checkpoint forgets"
        );
        // Every extent with data was filled at least once.
        let wear = world.store.state().wear();
        assert!((0..60).all(|e| world.store.state().live(e) == 0 || wear.fills(e) > 0));
    }
}
