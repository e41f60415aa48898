//! Goal: a crash at any write loses no object of a token that was acknowledged, and brings none
//! back partially. Method: keep a log of all that was written and of what was promised. Make what
//! the flash may hold after each write (subsets of what was under way, whole or torn at 512 bytes).
//! Open it, and compare with the content of the token and of the older ones that it keeps. Every
//! second run has DRAM for the locations of only a few of its objects. Then what such an opening
//! counts is compared, too.

use crate::world;

use std::rc::Rc;

use fulgurite_store::{Planted, Store, StoreConfig, recover};
use world::attacks::{each_moment, first_seed, replay, runs};
use world::images::{Image, open_whole};
use world::objects::tiny_objects;
use world::{Content, Random, World, quick_checkpoints};

fn config(planted: Option<Planted>, seed: u64) -> StoreConfig {
    let mut config = quick_checkpoints();
    config.keep_tokens = 1 + (seed % 3) as usize;
    config.planted = planted;
    if seed % 2 == 1 {
        config.leaf_bytes = 320 * 5;
    }
    config
}

/// Whether opening an image with the places of few objects in DRAM counts the same as with all.
fn counts_the_same(image: &Image<'_>, few: StoreConfig, all: StoreConfig) -> Result<(), String> {
    let open = |config| recover(&mut image.clone(), config).map_err(|e| format!("with leaves out: {e}"));
    let (few, all) = (open(few)?.0, open(all)?.0);
    let wrong = few.state().audit();
    if !wrong.is_empty() {
        return Err(format!("with leaves out: {wrong:?}"));
    }
    let counts = |store: &Store| {
        let state = store.state();
        let weighed: Vec<u32> = (0..store.geometry().extents).map(|extent| state.weighed(extent)).collect();
        (state.tokens().to_vec(), state.objects().count(), state.live_total(), weighed)
    };
    let (few, all) = (counts(&few), counts(&all));
    if few == all { Ok(()) } else { Err(format!("with leaves out {few:?}, with all {all:?}")) }
}

/// A run of objects, whole subpages, syncs, deletions, reclaim and checkpoints, with a log.
fn run(planted: Option<Planted>, seed: u64, steps: u32) -> World {
    // One in four has enough extents that hot and cold are kept apart.
    let extents = if seed % 4 == 3 { 130 } else { 36 + seed as u32 % 3 * 8 };
    let mut world = World::new(tiny_objects(extents, 16 * 8), config(planted, seed), seed);
    world.flash.log = Some(Vec::new());
    let most = 16 * (2 + seed as u32 % 7);
    for _ in 0..steps {
        let count = 1 + world.random.below(8);
        match world.random.below(30) {
            0 => {
                let page = world.random.below(most / 16);
                world.delete(page);
            }
            1 => world.store.begin_checkpoint(),
            2 => {
                let tokens: Vec<u64> = world.store.state().tokens().to_vec();
                if !tokens.is_empty() && world.store.poisoned().is_none() {
                    let which = world.random.below(tokens.len() as u32) as usize;
                    world.roll_back(tokens[which]);
                    world.note_objects();
                }
            }
            3..5 => {
                let first = world.random.below(most - 3);
                world.write_these(&[first, first + 2]);
            }
            5..8 => {
                world.store.begin_reclaim();
            }
            8..13 => {
                let _ = world.try_sync();
            }
            _ => world.write_objects(count, most),
        }
        for _ in 0..world.random.below(9) {
            world.turn();
        }
    }
    world
}

/// Crashes at every write of a run: all subsets of a few writes under way, samples of more, some
/// torn. Returns the images.
fn crashes(planted: Option<Planted>, seed: u64, steps: u32, one_in: u32) -> Result<u64, String> {
    let mut world = run(planted, seed, steps);
    let moved = world.store.counters().object_pages_copied;
    let (config, mut images, mut random) = (world.config, 0, Random(seed));
    let mut all = config;
    all.leaf_bytes = usize::MAX;
    each_moment(&mut world, 0, |moment, write| {
        if !random.one_in(one_in) {
            return Ok(());
        }
        let count = moment.cached.len() as u32;
        let subsets = if write && count <= 4 { 1 << count } else { 6 };
        for number in 0..subsets {
            let chosen = if count <= 4 { number } else { random.next() };
            let mut image = moment.image([]);
            for (i, (place, content)) in moment.cached.iter().enumerate() {
                if chosen.rotate_right(i as u32) & 1 == 0 {
                    continue;
                }
                let Content::Metadata(new) = content else {
                    image.over.insert(*place, content.clone());
                    continue;
                };
                let mut page = image.bytes(*place);
                let tears = random.one_in(4);
                for (old, new) in page.chunks_exact_mut(512).zip(new.chunks_exact(512)) {
                    if !tears || random.one_in(2) {
                        old.copy_from_slice(new);
                    }
                }
                image.over.insert(*place, Content::Metadata(Rc::new(page)));
            }
            images += 1;
            open_whole(&image, all, &moment.promise)?;
            if config.leaf_bytes < usize::MAX {
                counts_the_same(&image, config, all)?;
            }
        }
        Ok(())
    })
    .map_err(|e| replay(seed, &e))?;
    if planted.is_none() && steps > 200 && moved == 0 {
        return Err(replay(seed, "no object was moved"));
    }
    Ok(images)
}

#[test]
fn crashes_at_every_write_of_short_runs() {
    let images: u64 = (first_seed()..first_seed() + runs(40)).map(|s| crashes(None, s, 24, 1).unwrap()).sum();
    println!("seeds from {0}; replay with FULGURITE_SEED={0}: {images} images, 0 violations", first_seed());
    assert!(images > 4000 || runs(40) < 40, "{images} are too few");
}

#[test]
fn crashes_of_long_runs_with_reclaim() {
    let images: u64 = (first_seed()..first_seed() + runs(10)).map(|s| crashes(None, s, 400, 20).unwrap()).sum();
    println!("seeds from {0}; replay with FULGURITE_SEED={0}: {images} images, 0 violations", first_seed());
    assert!(images > 1000 || runs(10) < 10, "{images} are too few");
}

#[test]
fn planted_bugs_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let planted = [Planted::SkipDataFlush, Planted::SkipJournalFlush, Planted::ReuseEarly];
    let caught = planted.map(|planted| {
        let finds = |seed| !matches!(std::panic::catch_unwind(|| crashes(Some(planted), seed, 300, 8)), Ok(Ok(_)));
        (planted, (0..20).any(finds))
    });
    std::panic::set_hook(hook);
    assert!(caught.iter().all(|(_, found)| *found), "{caught:?}");
}
