//! Goal: old versions are kept as long as policy says (tokens, age, space, DRAM), never the pinned
//! and the newest less; what there is no room for is an error that a sync ends; a clock that goes
//! back drops nothing early and keeps nothing for ever. Method: random runs with each policy,
//! against what the policy says; what the store takes is counted after every step.

use crate::world;

use fulgurite_store::{Geometry, StoreConfig, WriteError};
use world::attacks::{self, first_seed, runs};
use world::{World, quick_checkpoints};

fn roomy() -> Geometry {
    Geometry::new(8 * 120, 8, Some(64)).unwrap()
}
fn kept(world: &World) -> Vec<u64> {
    world.store.state().tokens().to_vec()
}

#[test]
fn by_age_whatever_the_clock_does() {
    for seed in first_seed()..first_seed() + runs(30) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut config = quick_checkpoints();
        (config.keep_tokens, config.keep_age) = (usize::MAX, 100);
        let mut world = World::new(roomy(), config, seed);
        // The clock, and how much has really gone by.
        let (mut clock, mut real, mut unseen) = (1_000_000u64, 0u64, 0u64);
        let mut made: Vec<(u64, u64, u64)> = Vec::new();
        let mut pinned = 0;
        for i in 0..300u64 {
            let step = world.random.below(30_u64);
            let before = clock;
            (clock, real) = (clock + step, real + step);
            if world.random.one_in(25) {
                // Set back, by minutes or years; how long that took is not known.
                clock = clock.saturating_sub(world.random.below(2_000_000_u64));
            }
            unseen += step - clock.saturating_sub(before).min(step);
            world.store.tick(clock);
            world.write(2);
            let token = world.sync();
            made.push((token, real, unseen));
            if i == 50 {
                pinned = token;
                assert!(world.store.pin(token, true).unwrap());
            }
            for _ in 0..world.random.below(9) {
                world.turn();
            }
            if world.random.one_in(40) {
                world.settle();
                world.crash().unwrap();
                world.store.tick(clock);
                made.retain(|(t, ..)| *t <= world.store.durable_token());
            }
            let kept = kept(&world);
            for (token, at, unseen_then) in &made {
                let (age, unseen) = (real - at, unseen - unseen_then);
                assert!(age > 100 || kept.contains(token), "seed {seed}: token {token} of {age} ago was dropped early");
                assert!(
                    age - unseen <= 100 || !kept.contains(token) || *token == pinned,
                    "seed {seed}: token {token} of {age} ago is kept, {unseen} of that unseen"
                );
            }
            assert!(pinned == 0 || kept.contains(&pinned));
        }
        world.settle();
        world.check();
        world.crash().unwrap();
        let times = world.store.state().tokens().times();
        assert!(times.len() >= 2 && times.windows(2).all(|t| t[0].age <= t[1].age), "times survive: {times:?}");
    }
}

#[test]
fn by_space() {
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut config = quick_checkpoints();
        config.keep_tokens = usize::MAX;
        config.keep_bytes = 250 * 4096;
        let mut world = World::new(roomy(), config, seed);
        let mut longest = 0;
        for i in 0..500 {
            world.write(4);
            world.sync();
            if i == 20 {
                let token = kept(&world)[10];
                assert!(world.store.pin(token, true).unwrap());
            }
            for _ in 0..world.random.below(12) {
                world.turn();
            }
            longest = longest.max(kept(&world).len());
        }
        world.settle();
        world.check();
        let tokens = world.store.state().tokens().as_slice();
        assert!(tokens.first().unwrap().pinned, "the pinned one is the oldest");
        assert!(tokens.len() > 20 && tokens.len() < 480, "seed {seed}: {} tokens", tokens.len());
        assert_eq!((world.full, world.refused), (0, 0), "writers never waited in vain");
        // Without the policy they do.
        let mut greedy = config;
        greedy.keep_bytes = 0;
        let mut world = World::new(roomy(), greedy, seed);
        for _ in 0..500 {
            world.write(4);
            let _ = world.try_sync();
            world.turn();
        }
        assert!(world.full + world.refused > 0, "seed {seed}: the pool is too large for this test");
    }
}

#[test]
fn writes_without_a_sync_are_limited_and_a_sync_ends_that() {
    for seed in first_seed()..first_seed() + runs(20) {
        let mut config = attacks::config(None, seed);
        config.uncommitted_max = 20;
        let mut world = World::new(roomy(), config, seed);
        for _ in 0..20 {
            let mut written = 0;
            let refused = loop {
                let mut places = Vec::new();
                let subpage = world.random.below(64);
                match world.store.place(&[subpage], &mut places) {
                    Ok(()) if places.is_empty() => {
                        world.turn();
                    }
                    Ok(()) => {
                        world.store.not_written(places[0], fulgurite_flash::FlashError::TimedOut);
                        world.write_these(&[subpage]);
                        written += 1;
                        assert!(written <= 20);
                    }
                    Err(e) => break e,
                }
            };
            assert_eq!((refused, written), (WriteError::NoSpace { uncommitted: 20 }, 20), "seed {seed}");
            assert!(refused.to_string().contains("20 subpages") && refused.to_string().contains("sync"));
            // Reads go on, and so does the pool's own work.
            world.check();
            world.store.begin_checkpoint();
            world.settle();
            world.sync();
            world.settle();
        }
        world.crash().unwrap();
        world.check();
    }
}

#[test]
fn a_full_pool_takes_writes_again_after_a_sync_and_a_drop() {
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut config = quick_checkpoints();
        config.keep_tokens = usize::MAX;
        let mut world = World::new(world::tiny(64), config, seed);
        for _ in 0..3 {
            while world.full + world.refused == 0 {
                world.write(6);
                if world.random.one_in(4) {
                    let _ = world.try_sync();
                }
                world.turn();
            }
            world.check();
            // What is there can be named, also when nothing more can be written; then the old is
            // dropped.
            world.sync();
            world.settle();
            world.store.drop_tokens(1).unwrap();
            world.settle();
            (world.full, world.refused) = (0, 0);
            world.write(6);
            assert_eq!((world.full, world.refused), (0, 0), "seed {seed}: {:?}", world.store.info());
            world.sync();
            world.settle();
            world.crash().unwrap();
            world.check();
        }
    }
}

#[test]
fn dram_for_history_stays_within_its_bound() {
    let bound = 512 << 10;
    let (mut most, mut dropped, mut refusals) = (0, 0, 0);
    // At least one of each kind below.
    for seed in first_seed()..first_seed() + runs(4).max(2) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut config = StoreConfig::default();
        config.keep_tokens = 400;
        config.history_bytes = bound;
        config.commit_after = 64;
        let geometry = Geometry::new(64 * 800, 64, Some(16_000)).unwrap();
        let mut world = World::new(geometry, config, seed);
        let promised = world.store.info().dram_bytes_max;
        for i in 0..9000u32 {
            // Many versions, without a sync for long; the flash lags behind.
            let first = world.random.below(16_000 - 16);
            let before = world.full + world.refused;
            let tokens = kept(&world).len();
            world.write_these(&(first..first + 16).step_by(1 + seed as usize % 3).collect::<Vec<_>>());
            dropped += tokens - kept(&world).len();
            let refused = world.full + world.refused > before;
            refusals += u64::from(refused);
            if i % 97 == 0 && world.random.one_in(2) {
                world.delete(world.store.geometry().pages() / 2);
            }
            if refused || world.random.one_in([40, 400][seed as usize % 2]) {
                let token = world.sync();
                world.tokens.retain(|t, _| *t + 2 > token);
            }
            for _ in 0..world.random.below(10) {
                world.turn();
            }
            let takes = world.store.history_bytes();
            most = most.max(takes);
            assert!(takes <= bound, "seed {seed}, step {i}: {takes} bytes");
            let info = world.store.info();
            assert!(info.dram_bytes <= promised && info.dram_bytes_max == promised, "seed {seed}, step {i}: {info:?}");
        }
        world.sync();
        world.settle();
        assert!(world.store.state().audit().is_empty());
    }
    println!("history took up to {most} of {bound} bytes; {refusals} writes waited for a sync; {dropped} tokens went");
    assert!(most > bound / 4 && refusals > 0 && dropped > 0);
}
