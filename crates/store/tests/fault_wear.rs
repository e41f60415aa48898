//! Goal: flash pages that fail are found out, never written again, in this life of the pool and in
//! later ones, and cost nothing that was written; extents with too many of them go out of use.
//! Method: random runs over flash in which more and more flash pages take no write, or cannot be
//! read, with crashes, against a model; and a pool as a medium over a medium that fails now and
//! then.

use crate::world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, Request, When};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};
use world::attacks::{self, Step, first_seed, runs, step};
use world::{Failing, Trouble, World, quick_checkpoints};

const EIO: i32 = 5;

/// Room for many bad flash pages.
fn roomy() -> Geometry {
    Geometry::new(8 * 90, 8, Some(48)).unwrap()
}

fn bad(world: &World) -> BTreeSet<u32> {
    world.store.state().wear().places().iter().copied().collect()
}

/// In each extent of anchors only the last pair of flash pages takes a write, so each anchor passes
/// over all others, in every life.
#[test]
fn anchors_pass_over_flash_pages_that_fail() {
    let mut world = World::new(roomy(), quick_checkpoints(), 1);
    let g = world.store.geometry();
    for extent in [1, 2] {
        // One of each pair.
        world.flash.worn.extend([0, 3, 4].map(|index| g.first_of(extent) + index));
    }
    for life in 0..12 {
        let made = world.store.counters().checkpoints;
        for _ in 0..4 {
            world.write(6);
            world.sync();
            step(&mut world, Step::Checkpoint);
            world.settle();
        }
        assert_eq!(world.store.poisoned(), None, "life {life}");
        assert!(world.store.counters().checkpoints > made, "life {life}");
        world.crash().unwrap();
        world.check();
    }
}

#[test]
fn what_takes_no_write_is_avoided_for_ever() {
    let (mut found, mut retired) = (0, 0);
    for seed in first_seed()..first_seed() + runs(40) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut world = World::new(roomy(), attacks::config(None, seed), seed);
        let g = world.store.geometry();
        let mut known = BTreeSet::new();
        for i in 0..400 {
            if i % 4 == 0 {
                // Wears out while something is written to it: data, journal, checkpoint, anchors
                // now and then.
                let uses = world.store.uses();
                let anchors: &[u32] = if world.random.one_in(40) { &[1, 2] } else { &[] };
                let extents: Vec<u32> = uses.data.iter().chain(&uses.metadata).chain(anchors).copied().collect();
                let extent = extents[world.random.below(extents.len() as u32) as usize];
                let place = g.first_of(extent) + world.random.below(g.data_pages());
                if world.flash.worn.len() < 60 {
                    world.flash.worn.insert(place);
                }
            }
            let count = 1 + world.random.below(6);
            world.write(count);
            if i % 7 == 0 {
                let _ = world.try_sync();
            }
            for _ in 0..world.random.below(9) {
                world.turn();
            }
            if world.store.poisoned().is_some() || world.random.one_in(60) {
                world.crash().unwrap();
                // What was found out was recorded with the rest, so what a token covers is known
                // for ever.
                assert!(known.is_subset(&bad(&world)), "seed {seed}: a bad flash page was forgotten");
            }
            if world.random.one_in(20) {
                world.settle();
                let found = bad(&world);
                if world.store.poisoned().is_none() {
                    world.sync();
                    world.settle();
                }
                if world.store.poisoned().is_none() {
                    known = found;
                }
                world.check();
            }
            assert!(bad(&world).is_subset(&world.flash.worn), "only what failed is bad");
        }
        world.settle();
        found += world.store.info().bad_pages;
        retired += world.store.info().retired_extents;
        assert!(!known.is_empty(), "seed {seed}: nothing was found out");
        // Some are still to be emptied.
        assert!(world.store.uses().retired.len() as u32 <= world.store.info().retired_extents);
    }
    println!("{found} bad flash pages avoided, {retired} extents out of use, 0 violations");
    assert!(retired > 0);
}

#[test]
fn a_bad_flash_page_is_never_given_out_again() {
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut world = World::new(roomy(), attacks::config(None, seed), seed);
        let g = world.store.geometry();
        // One in nine fails in two extents of three.
        for extent in (8..g.extents).filter(|e| e % 3 != 0) {
            for index in 0..g.data_pages() {
                if world.random.one_in(9) {
                    world.flash.worn.insert(g.first_of(extent) + index);
                }
            }
        }
        for round in 0..30 {
            for first in (0..48).step_by(6) {
                // Checks each place that it is given.
                world.write_these(&[first, first + 1, first + 2, first + 3, first + 4, first + 5]);
                while world.random.one_in(2) && world.turn() {}
            }
            let _ = world.try_sync();
            if world.store.poisoned().is_some() || round % 6 == 5 {
                if world.store.poisoned().is_none() {
                    world.settle();
                }
                world.crash().unwrap();
            }
            world.check();
        }
        assert!(world.store.info().bad_pages > 0);
    }
}

#[test]
fn what_cannot_be_read_is_not_used_again_and_does_not_stop_reclaim() {
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut config = quick_checkpoints();
        config.keep_tokens = 1;
        let mut world = World::new(roomy(), config, seed);
        for _ in 0..60 {
            world.write(5);
            world.turn();
        }
        world.sync();
        world.settle();
        // Three places with live data become unreadable; they are all that is lost.
        let lost: Vec<(u32, u32)> =
            world.now.keys().take(3).map(|s| (*s, world.store.map().get(*s).unwrap().place)).collect();
        world.flash.unreadable = lost.iter().map(|(_, place)| *place).collect();
        lost.iter().for_each(|(_, place)| world.store.unreadable(*place, FlashError::Io(EIO)));
        for _ in 0..300 {
            let subpage = 8 + world.random.below(40);
            if !lost.iter().any(|(s, _)| *s == subpage) {
                world.write_these(&[subpage]);
            }
            if world.random.one_in(6) {
                world.sync();
            }
            for _ in 0..world.random.below(9) {
                world.turn();
            }
        }
        world.settle();
        assert_eq!(world.full, 0, "seed {seed}: reclaim went on");
        world.check();
        assert_eq!(bad(&world), lost.iter().map(|(_, place)| *place).collect(), "seed {seed}");
        // Written again, they are whole, and stored elsewhere.
        let subpages: Vec<u32> = lost.iter().map(|(s, _)| *s).collect();
        world.write_these(&subpages);
        for _ in 0..300 {
            world.write(4);
            let _ = world.try_sync();
            world.turn();
            for (subpage, place) in &lost {
                assert_ne!(world.store.map().get(*subpage).unwrap().place, *place);
            }
        }
        world.settle();
        world.check();
    }
}

#[test]
fn a_device_that_fails_as_a_whole_condemns_nothing() {
    let mut world = World::new(roomy(), attacks::config(None, 1), 1);
    world.write(6);
    world.sync();
    world.settle();
    // Thousands of reads fail, and nothing is written successfully in between.
    for place in 24..720 {
        world.store.unreadable(place, FlashError::Io(EIO));
    }
    step(&mut world, Step::WriteOne);
    world.sync();
    world.settle();
    assert!(bad(&world).len() <= 64, "{} flash pages were condemned", bad(&world).len());
    // Errors that are not the page's condemn none.
    let before = bad(&world);
    for error in [FlashError::Io(28), FlashError::Io(11), FlashError::Poisoned, FlashError::TimedOut] {
        world.store.unreadable(100, error);
    }
    step(&mut world, Step::WriteOne);
    assert_eq!(bad(&world), before);
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_written_elsewhere() {
    for nth in 0..6 {
        let mut world = World::new(roomy(), attacks::config(None, 3), 3);
        for _ in 0..8 {
            world.write(6);
        }
        world.sync();
        world.settle();
        let made = world.store.counters().checkpoints;
        world.store.begin_checkpoint();
        world.fails = Some(Failing {
            from: nth,
            until: nth + 1,
            trouble: Trouble::Fails(FlashError::Io(EIO)),
            only_flushes: false,
        });
        world.settle();
        if world.store.poisoned().is_none() {
            assert!(world.store.counters().checkpoints > made, "request {nth}: {:?}", world.failed);
        }
        world.fails = None;
        world.crash().unwrap();
        world.check();
    }
}

// ---- a pool as a medium ----

const POOL: PoolId = PoolId([9; 16]);
const DEPTH: usize = 8;

struct User {
    queue: Box<dyn fulgurite_flash::Queue>,
    frames: Arc<Arena>,
}
impl User {
    fn new(flash: &dyn Flash) -> User {
        let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
        User { queue, frames }
    }
    fn one(&mut self, op: Op, subpage: u32, value: u64) -> Result<u64, FlashError> {
        self.frames.write(0, &value.to_le_bytes().repeat(SUBPAGE_BYTES / 8));
        let request = Request { tag: 0, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) };
        self.queue.submit(request).unwrap();
        self.queue.flush().unwrap();
        loop {
            let mut completions = Vec::new();
            self.queue.poll(&mut completions);
            if let Some(c) = completions.first() {
                let mut bytes = [0; 8];
                self.frames.read(0, &mut bytes);
                return c.result.map(|()| u64::from_le_bytes(bytes));
            }
            self.queue.wait(Some(Duration::from_millis(1)));
        }
    }
}

#[test]
fn a_program_sees_no_error_while_another_place_can_be_had() {
    let geometry = Geometry::new(2048, 16, Some(1000)).unwrap();
    let faulty = Arc::new(FaultyFlash::new(MemoryFlash::new(2048).unwrap(), FaultPlan::default()));
    let medium: Arc<dyn Flash> = faulty.clone();
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let mut config = StoreConfig::default();
    // The journal is written by a sync alone, while nothing fails.
    config.commit_after = usize::MAX;
    config.checkpoint_after = u64::MAX;
    let flash = Pool::open(medium.clone(), config).unwrap().0.into_flash();
    flash.layer().sync().unwrap();
    let mut user = User::new(&flash);
    let every_fifth = || FaultPlan::rule(Some(Op::Write), When::Every(5), Fault::Fails(FlashError::Io(EIO)));
    faulty.set_plan(every_fifth());
    for subpage in 0..200 {
        assert_eq!(user.one(Op::Write, subpage, 1000 + u64::from(subpage)).map(|_| ()), Ok(()), "subpage {subpage}");
    }
    faulty.set_plan(FaultPlan::default());
    let info = flash.layer().info();
    assert!(info.bad_pages >= 40, "{info:?}");
    // Summaries fail, too, and are not repeated.
    assert!(u64::from(info.bad_pages) >= flash.layer().counters().repeated, "{info:?}");
    assert!(info.retired_extents > 0, "one in five is too many for some");
    for subpage in 0..200 {
        assert_eq!(user.one(Op::Read, subpage, 0), Ok(1000 + u64::from(subpage)));
    }
    // Where every place fails, it ends.
    faulty.set_plan(FaultPlan::rule(Some(Op::Write), When::From(1), Fault::Fails(FlashError::Io(EIO))));
    assert_eq!(user.one(Op::Write, 7, 7), Err(FlashError::Io(EIO)));
    faulty.set_plan(FaultPlan::default());
    assert_eq!(user.one(Op::Read, 7, 0), Ok(1007), "what was there before is there still");
    assert_eq!(user.one(Op::Write, 7, 7), Ok(7));
    flash.layer().sync().unwrap();
    flash.layer().checkpoint().unwrap();
    let bad = flash.layer().info().bad_pages;
    drop((user, flash));
    let (pool, _) = Pool::open(medium, config).unwrap();
    assert_eq!(pool.info().bad_pages, bad, "what failed is known after a checkpoint and an opening");
    assert_eq!(pool.audit(), Vec::<String>::new());
    assert_eq!(User::new(&pool.into_flash()).one(Op::Read, 199, 0), Ok(1199));
}
