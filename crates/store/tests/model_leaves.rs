//! Goal: the locations of objects may be on flash alone, and nothing else differs. Method: random
//! runs with DRAM for a few leaves against a model that keeps everything in plain maps: with
//! crashes, and with pieces that cannot be read. What a small pool counts is compared with what the
//! same flash says when it is opened with all of it in DRAM.

use crate::world;

use fulgurite_store::{Geometry, StoreConfig, recover};
use world::objects::tiny_objects;
use world::trials::each_seed;
use world::{World, quick_checkpoints};

fn configs(seed: u64) -> (Geometry, StoreConfig, u32) {
    let mut config = quick_checkpoints();
    config.keep_tokens = 1 + (seed % 3) as usize;
    // A leaf is at most 320 bytes.
    config.leaf_bytes = 320 * (6 + seed as usize % 4 * 2);
    let subpages = 16 * (24 + (seed % 9) as u32 * 2);
    (tiny_objects(56 + (seed % 5) as u32 * 4, 16 * 40), config, subpages)
}

fn step(world: &mut World, subpages: u32) {
    match world.random.below(20) {
        0 => {
            let page = world.random.below(subpages / 16);
            world.delete(page);
        }
        1 => {
            let some = world.random.below(subpages);
            world.write_these(&[some]);
        }
        _ => {
            let count = 1 + world.random.below(6);
            world.write_objects(count, subpages);
        }
    }
    world.go_on(3);
}

#[test]
fn without_crashes_all_is_there() {
    each_seed(0, 40, |seed| {
        let (geometry, config, subpages) = configs(seed);
        let mut world = World::new(geometry, config, seed);
        let mut most = 0;
        for _ in 0..400 {
            step(&mut world, subpages);
            most = most.max(world.store.state().out_count());
            if world.random.one_in(20) {
                world.check();
            }
        }
        world.settle();
        world.check();
        // Where three tokens are kept, few are seen by the oldest.
        assert!(most > 4 || config.keep_tokens > 1, "{most} were out: {:?}", world.store.counters());
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
    each_seed(0, 100, crashes_of);
}
/// In these, one record moves objects of pages whose leaves are in DRAM and of others. To bring in
/// the leaves of the others, recovery had let go of the former, which then stayed where they had
/// been.
#[test]
fn leaves_stay_until_a_record_about_them_is_replayed() {
    [26, 147].into_iter().for_each(crashes_of);
}
fn crashes_of(seed: u64) {
    let (geometry, config, subpages) = configs(seed);
    let mut world = World::new(geometry, config, seed);
    for _ in 0..8 {
        for _ in 0..world.random.below(60) {
            step(&mut world, subpages);
        }
        world.crash().unwrap();
        world.check();
        // What it counts is what the same flash says, read whole.
        let mut whole = config;
        whole.leaf_bytes = usize::MAX;
        let (other, _) = recover(&mut world.flash.clone(), whole).unwrap();
        let (all, some) = (other.state(), world.store.state());
        assert_eq!((all.audit(), all.out_count()), (Vec::new(), 0));
        assert_eq!((all.live_total(), all.objects().count()), (some.live_total(), some.objects().count()));
        let weighed = |state: &fulgurite_store::State| (0..geometry.extents).map(|e| state.weighed(e)).collect();
        let (all, some): (Vec<u32>, Vec<u32>) = (weighed(all), weighed(some));
        assert_eq!(all, some);
        for _ in 0..world.random.below(6) {
            world.turn();
        }
    }
}
