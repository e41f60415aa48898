//! Goal: a crash in the middle of what the store does by itself (creation, reclaim, levelling,
//! giving up a checkpoint, going on after a loss, going on after a bad flash page), or is asked for
//! (compacting, giving up what cannot be read), loses nothing that was promised. Method: bring it
//! about on purpose, keep a log of all writes, and open what the flash may hold after each: every
//! subset of up to 8 writes under way, samples of more.

use crate::world;

use std::rc::Rc;

use fulgurite_flash::FlashError;
use fulgurite_format::{Header, Kind, zero_page};
use fulgurite_store::{Geometry, RecoverError, Store, StoreConfig, recover};
use world::attacks::{self, Step, each_moment, first_seed, quiet_run, runs, step};
use world::images::{Found, open_whole};
use world::objects::tiny_objects;
use world::trials;
use world::{Content, Failing, ForgetfulFlash, POOL, Random, Trouble, World, tiny};

/// Opens what may be there after each write since `from`.
fn crashes(world: &mut World, from: usize, seed: u64) -> u64 {
    let (config, mut images, mut random) = (world.config, 0, Random(seed));
    let looked = each_moment(world, from, |moment, write| {
        let count = moment.cached.len().min(60);
        let skipped = moment.cached.len() - count;
        let mut look = |chosen: u64| {
            images += 1;
            let arrived =
                moment.cached.iter().enumerate().filter(|(i, _)| *i < skipped || chosen >> (i - skipped) & 1 == 1);
            open_whole(&moment.image(arrived.map(|(_, w)| w.clone())), config, &moment.promise).map(|_| ())
        };
        match (write, count) {
            (_, ..=8) => (0..1u64 << count).try_for_each(&mut look),
            _ => (0..24).try_for_each(|_| look(random.next())),
        }
    });
    looked.unwrap_or_else(|e| panic!("{}", attacks::replay(seed, &e)));
    images
}

#[test]
fn creation() {
    creation_of(tiny(32));
}

#[test]
fn creation_of_a_pool_of_objects() {
    creation_of(tiny_objects(36, 64));
}

fn creation_of(geometry: Geometry) {
    let mut images = 0;
    for over_an_old_pool in [false, true] {
        let base = if over_an_old_pool {
            let mut world = quiet_run(None, 3);
            attacks::left_by(&mut world).durable
        } else {
            Default::default()
        };
        let pages = Store::format(geometry, fulgurite_format::PoolId([8; 16]), 0);
        for done in 0..=pages.len() {
            // In order, each flushed; the last one whole or torn anywhere.
            for cut in (0..=4096).step_by(512) {
                let mut flash = ForgetfulFlash::default();
                flash.pages = geometry.flash_pages().max(2000);
                base.iter().for_each(|(place, content)| flash.write(*place, content.clone()));
                for (i, (place, page)) in pages.iter().enumerate().take(done + 1) {
                    let mut bytes = match flash.content(*place) {
                        Some(Content::Metadata(old)) => fulgurite_format::PageBuffer::clone(old),
                        _ => zero_page(),
                    };
                    let cut = if i == done { cut } else { 4096 };
                    bytes[..cut].copy_from_slice(&page[..cut]);
                    flash.write(*place, Content::Metadata(Rc::new(bytes)));
                    flash.flush();
                }
                images += 1;
                match recover(&mut flash, StoreConfig::default()) {
                    Ok((store, report)) if store.pool() != POOL => {
                        assert!(done >= 2, "it is a pool before its anchors are there");
                        assert_eq!((report.token, store.geometry()), (0, geometry));
                        assert!((0..geometry.subpages).all(|s| store.map().get(s).is_none()), "it is not empty");
                        assert_eq!(store.state().audit(), Vec::<String>::new());
                    }
                    // What was there before, or what is left of it; or nothing yet.
                    Ok(_) => assert!(over_an_old_pool && done < 4),
                    Err(_) => {
                        assert!(done < 4 && (over_an_old_pool || done < 3 || cut < 4096), "a new pool is refused")
                    }
                }
            }
        }
    }
    println!("creation: {images} images, 0 violations");
}

/// A pool with some old versions and dead data, and a log.
fn used(seed: u64, config: StoreConfig) -> World {
    let mut world = World::new(tiny(48), config, seed);
    world.flash.log = Some(Vec::new());
    for _ in 0..40 {
        world.write(4);
        if world.random.one_in(5) {
            world.sync();
        }
        world.turn();
    }
    world.sync();
    world.settle();
    world
}

#[test]
fn reclaim_and_levelling() {
    let mut images = 0;
    let mut reclaimed = 0;
    for seed in first_seed()..first_seed() + runs(30) {
        let mut config = attacks::config(None, seed);
        config.wear_spread = (seed % 2) as u32;
        let mut world = used(seed, config);
        let from = world.flash.log.as_ref().map_or(0, Vec::len);
        let before = world.store.counters();
        for i in 0..4 {
            world.store.begin_reclaim();
            // Programs go on, tokens are made and rolled back to, in the middle of it.
            for _ in 0..world.random.below(6) {
                world.turn();
            }
            step(&mut world, [Step::WriteOne, Step::Sync, Step::RollBack, Step::Delete][(seed as usize + i) % 4]);
        }
        world.settle();
        reclaimed += world.store.counters().copied - before.copied;
        images += crashes(&mut world, from, seed);
    }
    println!("reclaim: {reclaimed} copies, {images} images, 0 violations");
    let (copies, of_all) = if trials::is_whole(30) { (50, 2000) } else { (0, 400) };
    assert!(reclaimed > copies && images > of_all, "{reclaimed} and {images} are too few");
}

#[test]
fn bad_flash_pages_and_checkpoints_that_fail() {
    let mut images = 0;
    for seed in first_seed()..first_seed() + runs(30) {
        let mut world = used(seed, attacks::config(None, seed));
        let from = world.flash.log.as_ref().map_or(0, Vec::len);
        // One in four of all places that hold no data or metadata takes no write; the first writes
        // of a checkpoint fail besides.
        let g = world.store.geometry();
        for extent in world.store.uses().free {
            let worn = g.first_of(extent) + world.random.below(g.data_pages());
            if extent % 2 == 0 {
                world.flash.worn.insert(worn);
            }
        }
        world.fails =
            Some(Failing { from: 1, until: 3, trouble: Trouble::Fails(FlashError::Io(5)), only_flushes: false });
        world.store.begin_checkpoint();
        for i in 0..12 {
            world.write(5);
            for _ in 0..world.random.below(6) {
                world.turn();
            }
            if i % 4 == 3 && world.store.poisoned().is_none() {
                let _ = world.try_sync();
            }
        }
        while world.turn() {}
        world.check();
        images += crashes(&mut world, from, seed);
    }
    println!("failing flash pages: {images} images, 0 violations");
    assert!(images > if trials::is_whole(30) { 2000 } else { 400 }, "{images} are too few");
}

#[test]
fn going_on_after_a_loss() {
    let (mut again, mut through) = (0, 0);
    for seed in first_seed()..first_seed() + runs(150) {
        let mut world = quiet_run(None, seed);
        world.flash.log = None;
        world.settle();
        world.flash.flush();
        // The page of the newest commit: the last but one of the journal.
        let sound = |place: u32| match world.flash.content(place) {
            Some(Content::Metadata(page)) => {
                Header::open(page).ok().map(|(h, ..)| h).filter(|h| h.kind == Kind::Journal)
            }
            _ => None,
        };
        let mut journal: Vec<(u64, u32)> =
            world.flash.places().into_iter().filter_map(|p| sound(p).map(|h| (h.sequence, p))).collect();
        journal.sort_unstable();
        if world.store.info().journal_pages < 2 {
            continue;
        }
        assert!(world.flash.flip(journal[journal.len() - 2].1, 999));
        let mut config = world.config;
        config.accept_loss = true;
        let expected = match recover(&mut world.flash, world.config) {
            Err(RecoverError::Lost(loss)) => loss.token,
            other => panic!("seed {seed}: {:?}", other.map(|(_, report)| report)),
        };
        // The pool is opened as `Pool::open` does, and the power fails on the way.
        let mut turns = 1 + world.random.below(12);
        let (store, _) = recover(&mut world.flash, config).unwrap();
        world.store = store;
        world.store.begin_checkpoint();
        while turns > 0 && world.turn() {
            turns -= 1;
        }
        let done = world.store.is_quiet();
        let mut random = Random(seed);
        world.flash.crash(&mut random);
        match recover(&mut world.flash, world.config) {
            // Not accepted yet; nothing is different.
            Err(RecoverError::Lost(loss)) => {
                assert!(!done && loss.token == expected, "seed {seed}: {loss:?}");
                again += 1;
            }
            Ok((_, report)) => {
                assert_eq!(report.token, expected, "seed {seed}");
                through += 1;
            }
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    println!("going on after a loss: {again} times to be accepted again, {through} through, 0 violations");
    let least = if trials::is_whole(150) { 5 } else { 0 };
    assert!(again > least && through > least, "{again} and {through} are too few");
}

#[test]
fn giving_up_what_is_lost() {
    let (mut images, mut damaged, mut given_up) = (0u64, 0u64, 0);
    for seed in first_seed()..first_seed() + runs(20) {
        let mut config = attacks::config(None, seed);
        config.keep_tokens = 1 + (seed % 4) as usize;
        let mut world = used(seed, config);
        let from = world.flash.log.as_ref().map_or(0, Vec::len);
        let state = world.store.state();
        let there = |page: u32| {
            let versions = state.versions_of(page);
            let held = versions.iter().flat_map(|version| version.held().collect::<Vec<_>>());
            held.map(|held| (page * fulgurite_store::SUBPAGES_PER_PAGE + held.subpage, held.place)).collect::<Vec<_>>()
        };
        let all: Vec<(u32, u32)> = (0..world.store.geometry().pages()).flat_map(there).collect();
        let mut lost = Vec::new();
        for i in 0..4 {
            let (subpage, place) = all[world.random.below(all.len() as u32) as usize];
            let what = world.flash.content(place).cloned();
            if world.store.mark_lost(subpage, place).unwrap() {
                lost.push((subpage, place, what));
            }
            for _ in 0..world.random.below(5) {
                world.turn();
            }
            // Programs continue, and reclaim takes the extents that held the lost pages.
            step(
                &mut world,
                [Step::WriteOne, Step::Sync, Step::Checkpoint, Step::WriteSeveral][(seed as usize + i) % 4],
            );
            world.store.begin_reclaim();
        }
        world.store.commit();
        world.settle();
        assert_eq!(world.store.state().audit(), Vec::<String>::new());
        given_up += lost.len();
        let (config, mut random, lost_max) = (world.config, Random(seed), lost.len());
        let looked = each_moment(&mut world, from, |moment, _| {
            for _ in 0..6 {
                images += 1;
                let arrived = moment.cached.iter().filter(|_| random.one_in(2)).cloned();
                match world::images::open(&moment.image(arrived), config, &moment.promise)? {
                    // No more reads fail than were given up, whatever came to be durable of it; all
                    // else is as it was.
                    Ok((token, found)) if token >= moment.promise.acknowledged => match found {
                        Found::Whole => {}
                        Found::Damaged(count) if count <= lost_max => damaged += 1,
                        found => return Err(format!("token {token}: {found:?}, {lost_max} were given up")),
                    },
                    other => return Err(format!("{other:?}; promised was {}", moment.promise.acknowledged)),
                }
            }
            Ok(())
        });
        looked.unwrap_or_else(|e| panic!("{}", attacks::replay(seed, &e)));
        // It is durable by now, so the flash pages that were lost are not needed.
        world.flash.crash(&mut random);
        let (store, _) = recover(&mut world.flash, config).unwrap();
        for (subpage, place, what) in lost {
            let now = store.state().versions_of(subpage / fulgurite_store::SUBPAGES_PER_PAGE);
            let there = now.iter().flat_map(|version| version.held().collect::<Vec<_>>());
            // Unless something else was written there since.
            let still = there.filter(|held| held.place == place && world.flash.content(place) == what.as_ref()).count();
            assert_eq!(still, 0, "seed {seed}: flash page {place} of subpage {subpage}");
        }
    }
    println!("giving up {given_up} flash pages: {images} images, {damaged} with a loss, 0 violations");
    assert!(given_up > 20 && damaged > 50 || runs(20) < 20, "{given_up}, {damaged}");
}

#[test]
fn compacting() {
    let (mut images, mut dropped, mut reclaimed) = (0, 0, 0);
    for seed in first_seed()..first_seed() + runs(20) {
        let mut config = attacks::config(None, seed);
        config.keep_tokens = 12;
        let mut world = used(seed, config);
        let from = world.flash.log.as_ref().map_or(0, Vec::len);
        // As `pool compact` does it, but that the power may fail between any two requests.
        let before = world.store.counters();
        dropped += world.store.drop_tokens(1 + (seed % 2) as usize).unwrap();
        for _ in 0..world.random.below(20) {
            world.turn();
        }
        let mut extents = world.store.uses().data.len();
        while extents > 0 && world.store.begin_reclaim() {
            extents -= 1;
            world.settle();
            world.store.commit();
            world.settle();
        }
        world.store.begin_checkpoint();
        world.settle();
        world.check();
        reclaimed += world.store.counters().reclaimed - before.reclaimed;
        images += crashes(&mut world, from, seed);
    }
    println!("compacting: {dropped} tokens dropped, {reclaimed} extents emptied, {images} images, 0 violations");
    assert!(dropped > 20 && reclaimed > 20 && images > 500 || runs(20) < 20, "{dropped}, {reclaimed}, {images}");
}
