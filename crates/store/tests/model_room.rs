//! Goal: the room that a pool says it has is there: that number of subpages can be written before
//! the next sync, whichever they are, and then a sync can be made. What is published of it
//! ([`Pool::room`]) is never more, whatever is done to the pool, and at no moment. Method: pools in
//! memory of random geometry, filled by random amounts, written at random with syncs in between. At
//! random times as many different subpages as there is room for are written, in batches of random
//! size, each of which must be taken. New objects are treated likewise in pools of objects, where
//! the weight of what they hold bounds the room. Then random histories of all that changes a pool,
//! also of one that is nearly full, that fails in places, or whose history has a bound. After each
//! poll of a queue, also in the middle of a batch, the published room is compared with what the
//! store says.

use fulgurite_testkit as trials;
use fulgurite_testkit::Random;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, Queue, Request, When};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Permissions, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};

const DEPTH: usize = 64;

/// Writes these subpages, a batch at a time; stops at the first that is refused.
fn write(queue: &mut dyn Queue, subpages: &[u32]) -> Result<(), FlashError> {
    let mut completions = Vec::new();
    for batch in subpages.chunks(DEPTH) {
        for (tag, subpage) in batch.iter().enumerate() {
            let (subpage, frame) = (SubpageIndex(*subpage), FrameIndex(tag as u32));
            queue.submit(Request { tag: tag as u64, op: Op::Write, subpage, frame }).unwrap();
        }
        queue.flush().unwrap();
        completions.clear();
        while completions.len() < batch.len() {
            if queue.poll(&mut completions) == 0 {
                queue.wait(Some(Duration::from_micros(50)));
            }
        }
        completions.iter().try_for_each(|c| c.result)?;
    }
    Ok(())
}

/// `count` different ones, in random order.
fn some(random: &mut Random, count: u64, of: u32) -> Vec<u32> {
    let mut chosen = BTreeSet::new();
    while (chosen.len() as u64) < count.min(of.into()) {
        chosen.insert(random.below(of));
    }
    let mut chosen = Vec::from_iter(chosen);
    for i in (1..chosen.len()).rev() {
        chosen.swap(i, random.below(i as u64 + 1) as usize);
    }
    chosen
}

/// A new pool and a queue over it.
fn pool_in_memory(geometry: Geometry) -> (Arc<Pool>, Box<dyn Queue>) {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry.flash_pages()).unwrap());
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    open(medium, StoreConfig::default())
}

fn open(medium: Arc<dyn Flash>, config: StoreConfig) -> (Arc<Pool>, Box<dyn Queue>) {
    let flash = Pool::open(medium, config).unwrap().0.into_flash();
    let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let queue = flash.open_queue(frames, DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
    (flash.layer().clone(), queue)
}

fn one_pool(seed: u64) {
    let mut random = Random(seed);
    let extent_pages = [8, 16, 32, 64, 128, 256][random.below(6) as usize];
    let most = [40, 300][random.below(2) as usize];
    let extents = 24 + random.below(most) as u32;
    let flash_pages = (extent_pages * extents).min(1 << 15);
    let Ok(full) = Geometry::new(flash_pages, extent_pages, None) else { return };
    let data = u64::from(full.subpages) * (40 + random.below(61)) / 100;
    let geometry = Geometry::new(flash_pages, extent_pages, Some((data as u32).max(16))).unwrap();
    let what = format!("seed {seed}: {geometry:?}, at most {}", full.subpages);
    let (pool, mut queue) = pool_in_memory(geometry);
    // Filled.
    let mut at = 0;
    while at < geometry.subpages {
        let room = pool.info().room;
        assert!(room > 0, "{what}: no room after a sync, {at} are written: {:?}", pool.info());
        let end = geometry.subpages.min(at.saturating_add(room.try_into().unwrap_or(u32::MAX)));
        write(&mut *queue, &Vec::from_iter(at..end)).unwrap_or_else(|e| panic!("{what}: filling: {e}"));
        pool.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
        at = end;
    }
    for round in 0..12 {
        let room = pool.info().room;
        assert!(room > 0, "{what}, round {round}: no room after a sync: {:?}", pool.info());
        // Some of it, of which some are written more than once.
        let few = some(&mut random, room / 2, geometry.subpages);
        let part = random.below(few.len() as u64 + 1) as usize;
        for _ in 0..random.below(3) {
            write(&mut *queue, &few[..part]).unwrap_or_else(|e| panic!("{what}, round {round}: a part: {e}"));
        }
        // Then all that is left of it.
        let room = pool.info().room;
        let all = some(&mut random, room, geometry.subpages);
        write(&mut *queue, &all)
            .unwrap_or_else(|e| panic!("{what}, round {round}: {room} were to fit: {e}; {:?}", pool.info()));
        pool.sync().unwrap_or_else(|e| panic!("{what}, round {round}: {e}"));
    }
    assert!(pool.audit().is_empty(), "{what}: {:?}", pool.audit());
}

#[test]
fn the_room_that_there_is_said_to_be_is_there() {
    trials::each_seed(1, 60, |seed| one_pool(seed.wrapping_mul(0x9E37_79B9) | 1));
}

/// What is new in a pool of objects weighs more than nothing.
fn one_pool_of_objects(seed: u64) {
    let mut random = Random(seed);
    let extent_pages = [8, 16, 64, 256][random.below(4) as usize];
    let flash_pages = extent_pages * (60 + random.below(60) as u32);
    let geometry = Geometry::with_objects(flash_pages, extent_pages, 2 * flash_pages).unwrap();
    let what = format!("seed {seed}: {geometry:?}");
    let (pool, mut queue) = pool_in_memory(geometry);
    let mut at = 0;
    loop {
        let room = pool.info().room;
        if room == 0 {
            break;
        }
        // At the end, all of it.
        let some = if room < 200 { room } else { room / 2 + random.below(room / 4) } as u32;
        write(&mut *queue, &Vec::from_iter(at..at + some)).unwrap_or_else(|e| panic!("{what}: {room} at {at}: {e}"));
        pool.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
        at += some;
    }
    assert!(at > flash_pages / 3, "{what}: only {at} fit");
    assert!(pool.audit().is_empty(), "{what}: {:?}", pool.audit());
}

#[test]
fn the_room_of_a_pool_of_objects_is_there_too() {
    trials::each_seed(1, 40, |seed| one_pool_of_objects(seed.wrapping_mul(0x9E37_79B9) | 1));
}

/// Compares what is published with what there is.
fn compare(pool: &Pool, what: &str) {
    let published = pool.room();
    // In this order: a question locks the pool, and each unlock publishes.
    let there = pool.info().room;
    assert!(published <= there, "{what}: {published} published, {there} there");
    // And none is kept from anybody.
    assert_eq!(published, there, "{what}");
}

fn one_history(seed: u64) {
    let mut random = Random(seed);
    let extent_pages = [8, 16, 64][random.below(3) as usize];
    let flash_pages = extent_pages * (32 + random.below(60) as u32);
    let full = Geometry::new(flash_pages, extent_pages, None).unwrap();
    let data = (u64::from(full.subpages) * (50 + random.below(51)) / 100).max(64) as u32;
    let geometry = Geometry::new(flash_pages, extent_pages, Some(data.min(full.subpages))).unwrap();
    let mut config = StoreConfig::default();
    config.keep_tokens = 1 + random.below(4) as usize;
    if random.below(2) == 0 {
        config.history_bytes = 600 << 10;
    }
    let what = format!("seed {seed}: {geometry:?}");
    let faulty = Arc::new(FaultyFlash::new(MemoryFlash::new(flash_pages).unwrap(), FaultPlan::default()));
    let medium: Arc<dyn Flash> = faulty.clone();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    if random.below(3) == 0 {
        let fails = FaultPlan::rule(Some(Op::Write), When::OneIn(200), Fault::Fails(FlashError::Io(5)));
        faulty.set_plan(FaultPlan { seed, reorder: true, ..fails });
    }
    let (pool, mut queue) = open(medium, config);
    assert_eq!(pool.room(), 0, "nobody has asked for it");
    pool.publish_room();
    compare(&pool, &what);
    let (mut completions, mut taken, mut refused) = (Vec::new(), 0, 0);
    for step in 0..400 {
        let what = format!("{what}, step {step}");
        match random.below(12) {
            0 => _ = pool.sync(),
            1 => {
                let page = random.below(geometry.pages());
                let end = geometry.pages().min(page + 1 + random.below(4) as u32);
                let _ = match random.below(3) {
                    0 => pool.set_permissions(page..end, Permissions::DEFAULT),
                    _ => pool.delete_pages(page..end),
                };
            }
            2 if random.below(3) == 0 => {
                let tokens = pool.tokens();
                let kept = tokens.as_slice();
                if let Some(token) = kept.get(random.below(kept.len().max(1) as u64) as usize) {
                    let _ = match random.below(3) {
                        0 => pool.roll_back(token.token),
                        _ => pool.pin(token.token, !token.pinned),
                    };
                }
            }
            3 => _ = pool.reclaim_one(),
            4 if random.below(4) == 0 => _ = pool.checkpoint(),
            _ => {
                // A batch, with checks between its requests.
                let count = 1 + random.below(DEPTH as u64) as usize;
                for tag in 0..count {
                    let subpage = SubpageIndex(random.below(geometry.subpages));
                    let frame = FrameIndex(tag as u32);
                    queue.submit(Request { tag: tag as u64, op: Op::Write, subpage, frame }).unwrap();
                }
                queue.flush().unwrap();
                completions.clear();
                let mut polls = 0;
                while completions.len() < count {
                    queue.poll(&mut completions);
                    compare(&pool, &what);
                    polls += 1;
                    assert!(polls < 1_000_000, "{what}: never ends");
                }
                let well = completions.iter().filter(|c| c.result.is_ok()).count();
                (taken, refused) = (taken + well, refused + count - well);
            }
        }
        compare(&pool, &what);
    }
    assert!(taken > 0, "{what}: {refused} refused");
}

#[test]
fn what_is_published_is_what_there_is() {
    trials::each_seed(1, 30, |seed| one_history(seed.wrapping_mul(0x9E37_79B9) | 1));
}
