//! Goal: the locations of objects may be on flash alone. When some of them cannot be read, requests
//! that need them get an error, for as long as that lasts, and nobody takes the objects for zeros.
//! Nothing is lost. Method: a pool of objects with DRAM for a few pages of places. One piece of its
//! checkpoint fails or is damaged, for some time or for good. Writers, deletions, reclaim and the
//! next checkpoint need it then.

use crate::world;

use fulgurite_flash::FlashError;
use fulgurite_format::Status;
use fulgurite_store::{RecoverError, WriteError, recover};
use world::World;
use world::objects::tiny_objects;

const PAGES: u32 = 40;
const EIO: FlashError = FlashError::Io(5);

/// A pool of which the places of most objects are on flash alone.
fn mostly_out(seed: u64) -> World {
    mostly_out_of(80, seed)
}
/// A world whose leaves are mostly out, in a pool of `extents` extents.
fn mostly_out_of(extents: u32, seed: u64) -> World {
    let mut config = world::quick_checkpoints();
    // A checkpoint begins when a test says so, or when leaves ask for one.
    config.checkpoint_after = 1000;
    // A page's places and slots are at most 320 bytes.
    config.leaf_bytes = 320 * 8;
    let mut world = World::new(tiny_objects(extents, 16 * PAGES), config, seed);
    for page in 0..PAGES {
        let batch: Vec<(u32, usize)> = (0..16).map(|s| (page * 16 + s, 50 + s as usize)).collect();
        world.write_these_objects(&batch);
        world.settle();
        world.sync();
        world.settle();
    }
    let state = world.store.state();
    let kept = [state.leaf_bytes(), state.leaf_bytes_kept(), state.leaf_room() as usize];
    println!("{kept:?}, {} unsettled, {:?}", state.unsettled_leaves(), world.store.counters());
    assert!(world.store.state().out_count() > PAGES / 2, "{:?}", world.store.info());
    assert_eq!(world.store.info().pages_out, world.store.state().out_count());
    assert_eq!(world.store.state().audit(), Vec::<String>::new());
    world
}
fn a_page_that_is_out(world: &World) -> u32 {
    (0..PAGES).find(|page| world.store.state().is_out(*page)).expect("most are out")
}
/// Where what is known of a page is stored.
fn piece(world: &World, page: u32) -> u32 {
    world.store.is_behind(page).expect("it is out")
}
/// What becomes of a write that needs the places of a page.
fn write(world: &mut World, page: u32) -> Result<(), WriteError> {
    for _ in 0..1000 {
        match world.store.write_objects(&[(page * 16, b"other")]) {
            Ok(batch) if batch.taken == 0 => _ = world.turn(),
            Ok(batch) => {
                world.settle();
                return world.store.take_batch(batch.number).expect("all is settled");
            }
            Err(error) => return Err(error),
        }
    }
    panic!("it waits for ever: {:?}", world.store.info());
}

#[test]
fn a_write_that_needs_a_piece_that_fails_is_refused_as_long_as_it_does() {
    let mut world = mostly_out(1);
    let page = a_page_that_is_out(&world);
    world.flash.unreadable = vec![piece(&world, page)];
    for _ in 0..3 {
        assert_eq!(write(&mut world, page), Err(WriteError::Leaf(EIO)));
    }
    // Nor is the page deleted.
    let deleted = loop {
        match world.store.hold_leaves(&[page]) {
            Ok(false) => _ = world.turn(),
            told => break told,
        }
    };
    assert_eq!(deleted, Err(WriteError::Leaf(EIO)));
    world.flash.unreadable.clear();
    // What is there is as before, and a write goes on.
    world.check();
    assert_eq!(write(&mut world, page), Ok(()));
    world.now.remove(&(page * 16));
    assert!(world.store.state().objects().get(world.store.map().get(page * 16).unwrap().place).unwrap().length == 5);
    while !world.store.hold_leaves(&[page + 1]).unwrap() {
        world.turn();
    }
    world.store.set_status(page + 1, Status::DELETED).unwrap();
    world.settle();
}

#[test]
fn a_damaged_piece_is_distinguished_from_what_was_written() {
    let mut world = mostly_out(2);
    let page = a_page_that_is_out(&world);
    let place = piece(&world, page);
    // In a header, and in what it holds.
    for bit in [13, 8 * 200 + 5] {
        assert!(world.flash.flip(place, bit));
        assert_eq!(write(&mut world, page), Err(WriteError::Leaf(FlashError::Corrupt)));
        assert!(world.flash.flip(place, bit));
    }
    assert_eq!(write(&mut world, page), Ok(()));
}

#[test]
fn a_checkpoint_tries_again_and_gives_up_for_good() {
    for heals in [true, false] {
        let mut world = mostly_out(3);
        let page = a_page_that_is_out(&world);
        world.flash.unreadable = vec![piece(&world, page)];
        let before = world.store.counters().checkpoints;
        world.store.begin_checkpoint();
        for turn in 0..400 {
            world.turn();
            if heals && turn == 20 {
                world.flash.unreadable.clear();
            }
        }
        if heals {
            world.settle();
            assert_eq!((world.store.poisoned(), world.store.counters().checkpoints), (None, before + 1));
            world.check();
            continue;
        }
        // What it says is nowhere else, so nothing more may be written over it.
        assert_eq!(world.store.poisoned(), Some(EIO));
        assert_eq!(write(&mut world, page), Err(WriteError::Poisoned(EIO)));
        assert!(matches!(recover(&mut world.flash.clone(), world.config), Err(RecoverError::Flash { error: EIO, .. })));
        world.flash.unreadable.clear();
        let all = world.now.clone();
        world.crash().unwrap();
        assert_eq!(world.now, all);
        world.check();
    }
}

#[test]
fn a_checkpoint_is_put_off_while_the_medium_reads_nothing() {
    // With this much space, nothing is reclaimed that cannot be read either.
    let mut world = mostly_out_of(160, 5);
    let before = world.store.counters().checkpoints;
    for error in [FlashError::TimedOut, FlashError::Closed, FlashError::Io(12)] {
        world.flash.reads_fail = Some(error);
        for _ in 0..3 {
            world.store.begin_checkpoint();
            for _ in 0..100 {
                world.turn();
            }
            // Nothing waits for it for ever.
            assert!(world.store.is_quiet(), "{error}: {:?}", world.store.info());
            assert_eq!((world.store.poisoned(), world.store.counters().checkpoints), (None, before), "{error}");
            world.sync();
            world.settle();
        }
    }
    world.flash.reads_fail = None;
    world.check();
    let page = a_page_that_is_out(&world);
    assert_eq!(write(&mut world, page), Ok(()));
    world.now.remove(&(page * 16));
    world.store.begin_checkpoint();
    world.settle();
    assert_eq!(world.store.poisoned(), None);
    assert!(world.store.counters().checkpoints > before);
    assert_eq!(world.store.state().audit(), Vec::<String>::new());
}

#[test]
fn reclaim_leaves_alone_what_it_cannot_find() {
    let mut world = mostly_out(4);
    // Half of all is overwritten, so that there is something to reclaim.
    for subpage in (0..16 * PAGES).step_by(2) {
        world.write_these_objects(&[(subpage, 70)]);
        if subpage % 64 == 0 {
            world.sync();
        }
    }
    world.settle();
    world.sync();
    world.settle();
    world.store.begin_checkpoint();
    world.settle();
    let copied = world.store.counters().object_pages_copied;
    for _ in 0..30 {
        world.store.begin_reclaim();
        world.flash.unreadable = (0..PAGES).filter_map(|page| world.store.is_behind(page)).collect();
        // Fewer than a checkpoint tries.
        for _ in 0..10 {
            world.turn();
        }
        world.flash.unreadable.clear();
        for _ in 0..10 {
            world.turn();
        }
    }
    world.check();
    assert_eq!(world.store.poisoned(), None);
    for _ in 0..20 {
        world.store.begin_reclaim();
        world.settle();
    }
    assert!(world.store.counters().object_pages_copied > copied, "{:?}", world.store.counters());
    world.check();
    let all = world.now.clone();
    world.crash().unwrap();
    assert_eq!(world.now, all);
    world.check();
}

/// Pieces that fail now and then, for everybody.
#[test]
fn all_goes_on_while_reads_fail() {
    for seed in 0..6 {
        let mut world = mostly_out(seed);
        let mut failing = 0;
        for step in 0..300u32 {
            let fails = step % 3 == 0;
            if fails {
                let page = world.random.below(PAGES);
                world.flash.unreadable.extend(world.store.is_behind(page));
                let _ = world.store.hold_leaves(&[page]);
            }
            for _ in 0..world.random.below(8) {
                world.turn();
            }
            world.store.let_go_of_leaves();
            world.flash.unreadable.clear();
            failing += u64::from(fails);
            let count = 1 + world.random.below(4);
            world.write_objects(count, 16 * PAGES);
            // The write of a page of which a read had failed.
            assert!(world.refused <= failing, "{} of {failing}", world.refused);
            if step % 5 == 0 {
                world.sync();
            }
        }
        world.flash.unreadable.clear();
        world.settle();
        world.check();
        assert_eq!(world.store.state().audit(), Vec::<String>::new());
    }
}
