//! Goal: what a program wrote is what it reads, and after a crash the last token is there, however
//! long it runs. Method: random runs against a model that keeps everything in plain maps; random
//! parts of what was not flushed arrive.

use crate::world;

use fulgurite_store::{Durability, Geometry, StoreConfig, Victims};
use world::trials::{each_seed, figure, is_whole};
use world::{World, quick_checkpoints, tiny};

fn configs(seed: u64) -> (Geometry, StoreConfig) {
    let mut config = quick_checkpoints();
    config.keep_tokens = 1 + (seed % 3) as usize;
    config.victims = [Victims::Greedy, Victims::CostBenefit, Victims::LongestChains][seed as usize / 3 % 3];
    config.durability = if seed % 7 == 6 { Durability::Cache } else { Durability::Sync };
    (tiny(16 * (2 + (seed % 9) as u32)), config)
}

#[test]
fn without_crashes_all_is_there() {
    let mut written = 0;
    each_seed(0, 60, |seed| {
        let (geometry, config) = configs(seed);
        let mut world = World::new(geometry, config, seed);
        for _ in 0..300 {
            let count = 1 + world.random.below(6);
            world.write(count);
            for _ in 0..world.random.below(12) {
                world.turn();
            }
            if world.random.one_in(6) {
                world.sync();
            }
            if world.random.one_in(20) {
                world.check();
            }
        }
        world.settle();
        world.check();
        assert!(world.store.counters().reclaimed > 0, "nothing was reclaimed: {:?}", world.store.counters());
        assert!(world.store.counters().checkpoints > 0, "no checkpoint was made");
        world.sync();
        world.settle();
        let before = world.now.clone();
        world.crash().unwrap();
        world.check();
        assert_eq!(world.now, before, "what was synced last is there");
        written += world.written();
    });
    figure(12, "writes of the store against a map", written);
}

#[test]
fn after_a_crash_the_last_token_is_there() {
    // A seed crashes twelve times on average.
    const SEEDS: u64 = 440;
    let (mut crashes, mut written) = (0u64, 0);
    each_seed(0, SEEDS, |seed| {
        let (geometry, config) = configs(seed);
        let mut world = World::new(geometry, config, seed);
        for _ in 0..8 {
            for _ in 0..world.random.below(60) {
                let count = 1 + world.random.below(6);
                world.write(count);
                for _ in 0..world.random.below(12) {
                    world.turn();
                }
                if world.random.one_in(6) {
                    world.sync();
                }
                if world.random.one_in(30) {
                    let tokens: Vec<u64> = world.store.state().tokens().to_vec();
                    if !tokens.is_empty() {
                        let which = world.random.below(tokens.len() as u32) as usize;
                        world.roll_back(tokens[which]);
                        world.check();
                    }
                }
            }
            world.crash().unwrap();
            world.check();
            crashes += 1;
            // And again, while recovery's own first writes are under way.
            for _ in 0..world.random.below(6) {
                world.turn();
            }
            if world.random.one_in(2) {
                world.crash().unwrap();
                world.check();
                crashes += 1;
            }
        }
        written += world.written();
    });
    assert!(crashes >= 5_000 || !is_whole(SEEDS), "{crashes} are too few");
    figure(2, "crashes and recoveries of long workloads", crashes);
    figure(12, "writes of the store against a map", written);
}

#[test]
fn flash_that_lies_about_flushes_is_caught() {
    // The canary of the test above: with flushes that do nothing, it must fail for many seeds.
    let caught = (0..40).filter(|seed| {
        let seed = *seed;
        std::panic::catch_unwind(move || {
            let (geometry, mut config) = configs(seed);
            config.durability = Durability::Sync;
            let mut world = World::new(geometry, config, seed);
            world.flash.lies = true;
            for _ in 0..100 {
                world.write(4);
                world.sync();
                for _ in 0..20 {
                    world.turn();
                }
            }
            world.crash().unwrap();
            world.check();
        })
        .is_err()
    });
    let caught = caught.count();
    assert!(caught > 20, "only {caught} of 40 were caught");
}
