//! Goal: a crash in the middle of what the store does by itself (creation, reclaim, levelling, giving up a checkpoint, going on after a
//! loss, going on after a bad flash page) loses nothing that was promised.
//! Method: bring it about on purpose, keep a log of all writes, and open what the flash may hold after each: every subset of up to 8
//! writes under way, samples of more.

mod world;

use std::rc::Rc;

use fulgurite_flash::FlashError;
use fulgurite_format::{Header, Kind, zero_page};
use fulgurite_store::{RecoverError, Store, StoreConfig, recover};
use world::attacks::{self, Step, each_moment, first_seed, quiet_run, runs, step};
use world::images::open_whole;
use world::{Content, Failing, ForgetfulFlash, POOL, Random, Trouble, World, tiny};

/// Opens what may be there after each write since `from`.
fn crashes(world: &mut World, from: usize, seed: u64) -> u64 {
    let (config, mut images, mut random) = (world.config, 0, Random::new(seed));
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
    let geometry = tiny(32);
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
                        assert_eq!(report.token, 0);
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
    assert!(reclaimed > 50 && images > 2000);
}

#[test]
fn bad_flash_pages_and_checkpoints_that_fail() {
    let mut images = 0;
    for seed in first_seed()..first_seed() + runs(30) {
        let mut world = used(seed, attacks::config(None, seed));
        let from = world.flash.log.as_ref().map_or(0, Vec::len);
        // One in four of all places that hold no data or metadata takes no write; the first writes of a checkpoint fail besides.
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
    assert!(images > 2000);
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
        let mut random = Random::new(seed);
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
    assert!(again > 5 && through > 5);
}
