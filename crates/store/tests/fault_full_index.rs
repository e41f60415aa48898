//! Goal: at the end of the indices of the page table writes are refused by name, and all else
//! continues. Nothing is lost by what reclaim moves, tokens are made, read, rolled back to and
//! dropped, and then there is room again. Method: random pools with few indices, of subpages, or of
//! objects as well, written until they are refused. Then all that is there is moved about, over and
//! over, in the state in which one index more would be one too many. After each step every subpage
//! of every token is compared with the model; and a crash now and then.

use crate::world;

use fulgurite_store::{Geometry, SUBPAGES_PER_PAGE, StoreConfig, TableFull};
use world::attacks::{self, first_seed, runs};
use world::objects::{self, tiny_objects};
use world::{Content, World};

/// Compares what all tokens name with the model.
fn check_all(world: &World) {
    world.check();
    let (state, map) = (world.store.state(), world.store.map());
    for token in state.tokens().as_slice().iter().map(|token| token.token) {
        let contents = &world.tokens[&token];
        for subpage in 0..world.store.geometry().subpages {
            let (found, expected) = (state.located_at(subpage, token), contents.get(&subpage));
            assert_eq!(found.is_some(), expected.is_some(), "token {token}, subpage {subpage}");
            let (Some(found), Some(number)) = (found, expected) else { continue };
            if objects::is_object(*number) {
                let page = |place| world.flash.content(place).cloned();
                assert_eq!(objects::compare(&world.store, page, found, *number), Ok(true), "token {token}, {subpage}");
            } else {
                let content = world.flash.content(found.place);
                assert_eq!(content, Some(&Content::Data(*number)), "token {token}, subpage {subpage}");
            }
        }
    }
    drop(map);
}

fn pool(seed: u64) -> World {
    let objects = seed.is_multiple_of(4);
    let geometry = if objects { tiny_objects(160, 64) } else { Geometry::new(8 * 240, 8, Some(64)).unwrap() };
    let mut config: StoreConfig = attacks::config(None, seed);
    config.keep_tokens = 400;
    // Extents are also moved where that gains nothing.
    config.wear_spread = (seed % 2) as u32;
    config.table_indices = 64 / SUBPAGES_PER_PAGE + 500 + (seed % 7) as u32 * 60;
    World::new(geometry, config, seed)
}

/// Copies that reclaim has made in this life of the pool.
fn copies(world: &World) -> u64 {
    world.store.counters().copied + world.store.counters().object_pages_copied
}

fn write(world: &mut World, most: u32) {
    // Several subpages of a page are contiguous under one entry, and what is written again before a
    // token sees it makes room among them.
    let count = 1 + world.random.below(most);
    if world.store.geometry().objects && world.random.one_in(2) {
        world.write_objects(count, 64);
    } else {
        let first = 16 * world.random.below(4) + world.random.below(17 - count);
        world.write_these(&(first..first + count).collect::<Vec<u32>>());
    }
    match world.random.below(40) {
        0..8 => drop(world.try_sync()),
        8 => world.delete(world.store.geometry().pages() - 1),
        _ => {}
    }
    for _ in 0..world.random.below(6) {
        world.turn();
    }
}

#[test]
fn what_is_there_is_moved_and_kept_when_no_index_is_left() {
    let (mut refused, mut copied, mut least) = (0, 0, u32::MAX);
    for seed in first_seed()..first_seed() + runs(12) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut world = pool(seed);
        for _ in 0..60 {
            write(&mut world, 16);
        }
        // As full as it will be.
        let before = world.refused;
        for i in 0..400 {
            write(&mut world, if i < 200 { 16 } else { 1 });
        }
        assert!(world.refused > before && world.full == 0, "seed {seed}: {:?}", world.store.info());
        refused += world.refused - before;
        assert!(world.try_sync().is_ok(), "a token can be made");
        world.settle();
        check_all(&world);
        for round in 0..60 {
            // All that is worth it, and what is not: each move may need one more.
            let mut extents = world.store.uses().data.len();
            while extents > 0 && world.store.begin_reclaim() {
                extents -= 1;
                world.settle();
                least = least.min(world.store.state().table().indices_left());
            }
            // One subpage is written again and again, so that reclaiming what is next to it becomes
            // worth it.
            write(&mut world, 1);
            if round % 20 == 19 {
                world.settle();
                check_all(&world);
                copied += copies(&world);
                world.crash().unwrap();
                check_all(&world);
            }
        }
        world.settle();
        check_all(&world);
        // Rolls back to a token in the middle. Then the older ones are dropped.
        let tokens: Vec<u64> = world.store.state().tokens().to_vec();
        world.roll_back(tokens[tokens.len() / 2]);
        world.settle();
        check_all(&world);
        world.store.drop_tokens(1).unwrap();
        world.settle();
        check_all(&world);
        let before = world.refused;
        world.write(4);
        assert_eq!(world.refused, before, "seed {seed}: {TableFull}");
        world.sync();
        world.settle();
        world.crash().unwrap();
        check_all(&world);
    }
    println!(
        "at the end of the indices: {refused} writes refused, {copied} copies, {least} left at least, 0 violations"
    );
    assert!(refused > 0 && copied > 0);
}
