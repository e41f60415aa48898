//! Goal: objects of all sizes, overwritten, freed, kept by tokens, moved by reclaim, are what a
//! program wrote, also in pools with whole subpages and after crashes. And a pool that is full of
//! them says so, early and in time, and takes every write that does not make it fuller. Method:
//! random runs against a model that keeps everything in plain maps; random parts of what was not
//! flushed arrive, some torn. Pools are filled with objects of one size or of a few, of which many
//! pack badly, and what is there is overwritten in many orders.

use crate::world;

use fulgurite_store::{Geometry, StoreConfig, Victims, WriteError};
use world::objects::{is_object, length_of, tiny_objects};
use world::trials::each_seed;
use world::{World, quick_checkpoints};

fn configs(seed: u64) -> (Geometry, StoreConfig, u32) {
    let mut config = quick_checkpoints();
    config.keep_tokens = 1 + (seed % 3) as usize;
    config.victims = [Victims::Greedy, Victims::CostBenefit, Victims::LongestChains][seed as usize / 3 % 3];
    let subpages = 16 * (4 + (seed % 9) as u32 * 2);
    // One in four has enough extents that hot and cold are kept apart.
    let extents = if seed % 4 == 3 { 130 } else { 48 + (seed % 5) as u32 * 4 };
    (tiny_objects(extents, 16 * 40), config, subpages)
}

/// One step of a program.
fn step(world: &mut World, subpages: u32) {
    match world.random.below(20) {
        0 => {
            let page = world.random.below(subpages / 16);
            world.delete(page);
        }
        1..=3 => {
            let count = 1 + world.random.below(4);
            let batch: std::collections::BTreeSet<u32> = (0..count).map(|_| world.random.below(subpages)).collect();
            world.write_these(&batch.into_iter().collect::<Vec<u32>>());
        }
        _ => {
            let count = 1 + world.random.below(12);
            world.write_objects(count, subpages);
        }
    }
    world.go_on(6);
}

#[test]
fn without_crashes_all_is_there() {
    each_seed(0, 40, |seed| {
        let (geometry, config, subpages) = configs(seed);
        let mut world = World::new(geometry, config, seed);
        for _ in 0..400 {
            step(&mut world, subpages);
            if world.random.one_in(20) {
                world.check();
            }
        }
        world.settle();
        world.check();
        let counters = world.store.counters();
        assert!(world.batches() == 0 && counters.objects > 1000 && counters.checkpoints > 0, "{counters:?}");
        assert!(counters.object_pages_copied > 0, "no object was moved: {counters:?}");
        world.sync();
        world.settle();
        let before = world.now.clone();
        world.crash().unwrap();
        world.check();
        assert_eq!(world.now, before, "what was synced last is there");
    });
}

#[test]
fn after_a_crash_the_last_token_is_there() {
    each_seed(0, 200, |seed| {
        let (geometry, config, subpages) = configs(seed);
        let mut world = World::new(geometry, config, seed);
        for _ in 0..8 {
            for _ in 0..world.random.below(60) {
                step(&mut world, subpages);
            }
            world.crash().unwrap();
            world.check();
            // And again, while recovery's own first writes are under way.
            for _ in 0..world.random.below(6) {
                world.turn();
            }
            if world.random.one_in(2) {
                world.crash().unwrap();
                world.check();
            }
        }
    });
}

/// A batch that must be taken: it makes nothing fuller.
fn must_take(world: &mut World, batch: &[(u32, usize)]) {
    let (full, refused) = (world.full, world.refused);
    world.write_these_objects(batch);
    world.settle();
    assert_eq!((world.full, world.refused), (full, refused), "{batch:?}: {:?}", world.store.info());
}
/// What is in the pool: subpages, and how long their objects are.
fn contents(world: &World) -> Vec<(u32, usize)> {
    world.now.iter().filter(|(_, number)| is_object(**number)).map(|(s, number)| (*s, length_of(*number))).collect()
}
/// More and more subpages are written, of these lengths, until there is no room, also after a sync.
/// Returns how many there are then.
fn fill(world: &mut World, sync_one_in: u32, mut length: impl FnMut(&mut World) -> usize) -> u32 {
    let behind = world.store.geometry().subpages - 1;
    let (mut subpages, mut synced) = (0, false);
    loop {
        let batch: Vec<(u32, usize)> = (0..20).map(|i| (subpages + i, length(world))).collect();
        subpages += 20;
        assert!(subpages < behind, "it never is full");
        world.write_these_objects(&batch);
        world.settle();
        if world.full > 0 && synced {
            break;
        }
        synced = world.full > 0;
        if synced || world.random.one_in(sync_one_in) {
            world.sync();
            world.settle();
        }
        world.full = 0;
    }
    let refused = world.store.write_objects(&[(behind, &[1; 4096])]).unwrap_err();
    assert!(refused.to_string().contains("sync, drop tokens, or make it larger"), "{refused}");
    world.sync();
    world.settle();
    world.check();
    world.full = 0;
    contents(world).len() as u32
}
/// What a full pool takes all the same.
fn goes_on(world: &mut World, rounds: u32) {
    // By as much as is there, and by less.
    for round in 0..rounds {
        let all = contents(world);
        let first = world.random.below(all.len() as u32 - 4) as usize;
        let batch: Vec<(u32, usize)> = all[first..first + 4].iter().map(|(s, n)| (*s, n >> (round % 8 / 7))).collect();
        must_take(world, &batch);
        world.sync();
        world.settle();
    }
    world.check();
}
/// Objects are overwritten until that takes a sync, or each is there twice; a sync is all that it
/// takes.
fn until_a_sync(world: &mut World) {
    let all = contents(world);
    let before = world.store.uncommitted();
    for _ in 0..8 * all.len() {
        let object = all[world.random.below(all.len() as u32) as usize];
        world.write_these_objects(&[object]);
        world.settle();
        if world.full > 0 {
            break;
        }
    }
    let written = world.store.uncommitted() - before;
    let all_written = written == 8 * all.len() as u64;
    assert!((world.full == 1 && written >= 5) || all_written, "{written} were written: {:?}", world.store.info());
    world.full = 0;
    world.sync();
    world.settle();
    // Versions of older states, which the configuration keeps.
    world.store.drop_tokens(1).unwrap();
    world.settle();
    world.check();
}

#[test]
fn a_full_pool_says_so_and_goes_on() {
    each_seed(0, 40, |seed| {
        let (_, config, _) = configs(seed);
        let mut world = World::new(tiny_objects(48, 1 << 13), config, seed);
        // Seeds 14, 18 and 19 leave a sixth of each flash page and more unused.
        let length = 160 + (seed as usize * 37) % 900;
        let subpages = fill(&mut world, 3, |_| length);
        goes_on(&mut world, 300);
        until_a_sync(&mut world);
        goes_on(&mut world, 50);
        // Freed, they make room.
        for first in (0..subpages).step_by(10) {
            must_take(&mut world, &(first..subpages.min(first + 10)).map(|s| (s, 0)).collect::<Vec<_>>());
        }
        // No token is left that sees what was before.
        for _ in 0..3 {
            world.sync();
            world.settle();
        }
        for first in (0..subpages - 20).step_by(20) {
            must_take(&mut world, &(0..4).map(|i| (first + i, 300)).collect::<Vec<_>>());
        }
        world.check();
        world.crash().unwrap();
        world.check();
    });
}

#[test]
fn a_pool_full_of_many_sizes_goes_on() {
    each_seed(0, 40, |seed| {
        let (_, config, _) = configs(seed);
        let extents = if seed % 8 == 7 { 132 } else { 64 };
        let mut world = World::new(tiny_objects(extents, 1 << 14), config, seed);
        let sizes: Vec<usize> = (0..2 + world.random.below(4)).map(|_| world.length().max(200)).collect();
        let some = |world: &mut World| sizes[world.random.below(sizes.len() as u32) as usize];
        let subpages = fill(&mut world, 2, some);
        goes_on(&mut world, 100);
        // All of one size after the other, so that what was stored together no longer is.
        for size in &sizes {
            let of_it: Vec<(u32, usize)> = contents(&world).into_iter().filter(|(_, n)| n == size).collect();
            for few in of_it.chunks(6) {
                must_take(&mut world, few);
                world.sync();
                world.settle();
            }
        }
        world.check();
        until_a_sync(&mut world);
        // Whole subpages take room like objects, and give it back.
        let objects = contents(&world);
        for (subpage, _) in objects.iter().filter(|(_, n)| *n > 2048).take(20) {
            world.write_these(&[*subpage]);
            world.settle();
            world.sync();
            world.settle();
        }
        assert_eq!(world.full, 0, "{:?}", world.store.info());
        world.crash().unwrap();
        world.check();
        goes_on(&mut world, 60);
        assert!(subpages > 20 && world.store.state().objects().count() > 0);
    });
}

/// The extents that hold objects.
fn extents_of(world: &World, subpages: impl Iterator<Item = u32>) -> std::collections::BTreeSet<u32> {
    let (map, state) = (world.store.map(), world.store.state());
    let place = |subpage| state.objects().get(map.get(subpage).expect("it was written").place).expect("an object");
    subpages.map(|subpage| state.geometry().extent_of(place(subpage).flash_page)).collect()
}

#[test]
fn hot_and_cold_are_kept_apart() {
    for (extents, apart) in [(136, true), (120, false)] {
        let mut world = World::new(tiny_objects(extents, 1 << 12), configs(0).1, 7);
        let hot: Vec<(u32, usize)> = (0..60).map(|i| (i * 16, 680)).collect();
        for _ in 0..16 {
            world.write_these_objects(&hot);
            world.settle();
        }
        // In one batch with as many that are written for the first time.
        let cold = (0..60).map(|i| (i * 16 + 7, 680));
        let batch: Vec<(u32, usize)> = hot.iter().copied().chain(cold.clone()).collect();
        world.write_these_objects(&batch);
        world.settle();
        let both = |world: &World| {
            let hot = extents_of(world, hot.iter().map(|(subpage, _)| *subpage));
            let cold = extents_of(world, cold.clone().map(|(subpage, _)| subpage));
            hot.intersection(&cold).count()
        };
        assert_eq!(both(&world) == 0, apart, "{extents} extents");
        // What reclaim moves stays apart.
        world.sync();
        for _ in 0..200 {
            world.settle();
            world.store.begin_reclaim();
        }
        assert_eq!(both(&world) == 0, apart, "{extents} extents");
        world.check();
    }
}

#[test]
fn what_gains_nothing_is_not_moved() {
    // Objects of a little more than half a flash page: each takes one, however they are packed.
    let (_, config, _) = configs(0);
    let mut world = World::new(tiny_objects(48, 1 << 12), config, 1);
    let all: Vec<(u32, usize)> = (0..120).map(|subpage| (subpage, 2100)).collect();
    for _ in 0..2 {
        for few in all.chunks(8) {
            world.write_these_objects(few);
            world.settle();
        }
        world.sync();
        world.settle();
    }
    let before = world.store.counters();
    for _ in 0..200 {
        world.store.begin_reclaim();
        world.settle();
    }
    let moved = world.store.counters().object_pages_copied - before.object_pages_copied;
    assert!(moved < 60, "{moved} flash pages were moved for nothing");
    world.check();
}

#[test]
fn what_cannot_be_an_object_is_refused() {
    let (geometry, config, _) = configs(0);
    let mut world = World::new(geometry, config, 1);
    let long = [0; 4097];
    assert_eq!(world.store.write_objects(&[(3, &long)]), Err(WriteError::NotAnObject { subpage: 3, bytes: 4097 }));
    let behind = geometry.subpages;
    assert_eq!(
        world.store.write_objects(&[(0, b"a"), (behind, b"b")]),
        Err(WriteError::NotAnObject { subpage: behind, bytes: 1 })
    );
    let mut without = World::new(world::tiny(32), config, 1);
    assert_eq!(without.store.write_objects(&[(0, b"a")]), Err(WriteError::NoObjects));
    assert_eq!(without.store.info().objects, 0);
}
