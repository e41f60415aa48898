//! Goal: a pool that is made larger or smaller has its old size or its new one after a crash at any
//! point, never anything between, and all that was synced; and it can be used, and resized, from
//! there. That also holds for a pool that grows while it is written, and continues. Method: random
//! pools, resized with a log of all writes. Each moment of the log with subsets of what was under
//! way, whole and torn. Open each image, compare it with the model and its size with the two. Go on
//! from a sample of them. Pools of subpages, and of objects with subpages. Then pools over several
//! media by the public interface.

use crate::world;

use std::rc::Rc;
use std::sync::Arc;

use fulgurite_flash::{
    Column, Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, StripeLayout, StripedFlash, When,
};
use fulgurite_store::{
    Geometry, Permissions, Pool, PoolError, RecoverError, ResizeError, Shrink, StoreConfig, recover, superblock_pages,
    superblock_repairs,
};
use world::attacks::{config, first_seed, replay, runs};
use world::images::{Image, Moment, open_whole};
use world::objects::tiny_objects;
use world::{Content, ForgetfulFlash, POOL, Random, World, tiny};

/// Does what `Pool::resize` does, over the flash that forgets.
fn resize(world: &mut World, to: Geometry) -> Result<(), ResizeError> {
    let from = world.store.geometry();
    if to.extents < from.extents || to.subpages < from.subpages || to.objects != from.objects {
        world.store.may_shrink(to)?;
        let mut steps = 0;
        loop {
            world.settle();
            if world.store.shrink(to.extents.min(from.extents))? == Shrink::Done {
                break;
            }
            steps += 1;
            assert!(steps < 10_000, "it never comes to an end: {:?}", world.store.info());
        }
    }
    for (place, page) in superblock_pages(POOL, &to.superblock(0)) {
        world.flash.write(place, Content::Metadata(Rc::new(page)));
        world.flash.flush();
    }
    Ok(())
}
/// Opens the pool again, without a crash.
fn reopen(world: &mut World) {
    let mut flash = std::mem::take(&mut world.flash);
    for (place, page) in superblock_repairs(&mut flash) {
        flash.write(place, Content::Metadata(Rc::new(page)));
        flash.flush();
    }
    let mut again = World::on(flash, world.config, world.random.next());
    let token = again.store.durable_token();
    (again.now, again.tokens) = (world.tokens[&token].clone(), world.tokens.clone());
    *world = again;
}

fn sizes(random: &mut Random, seed: u64, objects: bool) -> (Geometry, Geometry) {
    if objects {
        let (extents, subpages) = (34 + random.below(8), 16 * (2 + random.below(4)));
        let small = tiny_objects(extents, subpages);
        let large = tiny_objects(extents + 1 + random.below(24), subpages + 16 * random.below(2));
        return if seed.is_multiple_of(2) { (small, large) } else { (large, small) };
    }
    let small = tiny(16 * (2 + random.below(3)));
    let pages = small.flash_pages() + 8 * (1 + random.below(40));
    let more = Some(small.subpages + 16 * random.below(2));
    let large = Geometry::new(pages, 8, more).or(Geometry::new(pages, 8, Some(small.subpages))).unwrap();
    if seed.is_multiple_of(2) { (small, large) } else { (large, small) }
}

/// What becomes of a pool's size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// A pool of subpages alone, while no program has it open.
    Closed,
    /// A pool with objects, while no program has it open.
    Objects,
    /// A pool that begins to pack objects, while no program has it open.
    Begins,
    /// It grows and goes on, with addresses for more than it has room for, or without.
    Open,
    /// A pool with objects grows and continues.
    OpenObjects,
}

/// Writes, syncs and checkpoints of a random program.
fn go_about(world: &mut World, random: &mut Random, most: u32, objects: bool) {
    for i in 0..random.below(60) {
        let subpages: std::collections::BTreeSet<u32> = (0..1 + random.below(5)).map(|_| random.below(most)).collect();
        if !objects || random.one_in(4) {
            world.write_these(&subpages.into_iter().collect::<Vec<u32>>());
        } else {
            world.write_objects(1 + random.below(8), most);
        }
        if random.one_in(3) {
            let _ = world.try_sync();
        }
        for _ in 0..random.below(7) {
            world.turn();
        }
        if i % 20 == 19 {
            world.store.begin_checkpoint();
        }
    }
}

/// A random pool of one size that becomes one of the other, with a log from its beginning; and what
/// it was at first.
fn resized(seed: u64, change: Change) -> Option<(World, Moment, [Geometry; 2])> {
    let mut random = Random(seed + 77);
    let objects = matches!(change, Change::Objects | Change::OpenObjects);
    let open = matches!(change, Change::Open | Change::OpenObjects);
    let (from, to) = match change {
        Change::OpenObjects => {
            let from = tiny_objects(34 + random.below(8), 16 * (2 + random.below(4)));
            (from, Geometry { extents: from.extents + 1 + random.below(40), ..from })
        }
        Change::Open => {
            let from = tiny(16 * (2 + random.below(3)));
            // Twice as many addresses as there is room for, or none more.
            let large = Geometry::growing(from.flash_pages(), 8, from.flash_pages() * 2).unwrap();
            let from = if random.one_in(2) { from } else { large };
            (from, Geometry { extents: from.extents + 1 + random.below(40), ..from })
        }
        Change::Begins => {
            let from = tiny(16 * (2 + random.below(3)));
            let extents = from.extents.max(34) + random.below(8);
            (from, tiny_objects(extents, from.subpages + 16 * random.below(4)))
        }
        _ => sizes(&mut random, seed, objects),
    };
    let mut world = World::new(from, config(None, seed), seed);
    world.flash.pages = from.flash_pages().max(to.flash_pages());
    let places = world.flash.places();
    let durable = places.into_iter().map(|p| (p, world.flash.content(p).unwrap().clone())).collect();
    let base = Moment { durable, pages: world.flash.pages, ..Moment::default() };
    world.flash.log = Some(Vec::new());
    let most = from.subpages.min(to.subpages);
    let most = if open { most.min(48) } else { most };
    go_about(&mut world, &mut random, most, objects);
    match resize(&mut world, to) {
        Ok(()) => {}
        // What was not synced may be live, and too much.
        Err(ResizeError::Live { .. } | ResizeError::NoRoom) => return None,
        Err(e) => panic!("seed {seed}: {e}"),
    }
    if open {
        world.store.grow(to.extents);
        assert_eq!(world.store.geometry(), to);
        go_about(&mut world, &mut random, most, objects);
        go_about(&mut world, &mut random, most, objects);
        assert_eq!(world.store.state().audit(), Vec::<String>::new());
    }
    Some((world, base, [from, to]))
}

/// Opens what a crash left, and checks its size.
fn look(image: &Image<'_>, world: &StoreConfig, moment: &Moment, sizes: [Geometry; 2]) -> Result<Geometry, String> {
    open_whole(image, *world, &moment.promise)?;
    let (store, _) = recover(&mut image.clone(), *world).map_err(|e| e.to_string())?;
    let found = store.geometry();
    if sizes.contains(&found) { Ok(found) } else { Err(format!("{found:?} is neither of {sizes:?}")) }
}

/// The pool goes on from an image: it is written, synced, resized, and crashes.
fn go_on(image: &Image<'_>, config: StoreConfig, moment: &Moment, to: Geometry, seed: u64) {
    let mut flash = ForgetfulFlash::default();
    flash.pages = moment.pages;
    image.places().into_iter().for_each(|place| flash.write(place, image.content(place).unwrap().clone()));
    flash.flush();
    let mut world = World::on(flash, config, seed);
    world.tokens = moment.promise.tokens.iter().map(|(token, contents)| (*token, (**contents).clone())).collect();
    reopen(&mut world);
    for _ in 0..3 {
        let subpages = world.store.geometry().subpages.min(to.subpages);
        let subpage = world.random.below(subpages);
        world.write_these(&[subpage]);
        if to.objects {
            world.write_objects(3, subpages);
            world.settle();
        }
        world.sync();
        world.settle();
    }
    world.check();
    if resize(&mut world, to).is_ok() {
        reopen(&mut world);
        assert_eq!(world.store.geometry(), to);
        world.write_these(&[0, 1, 2]);
        world.sync();
        world.settle();
        world.check();
    }
    world.crash().unwrap();
    world.check();
}

fn every_moment(seed: u64, change: Change) -> Result<u64, String> {
    let Some((mut world, mut moment, sizes)) = resized(seed, change) else { return Ok(0) };
    let (config, to) = (world.config, sizes[1]);
    let mut random = Random(seed);
    let mut images = 0;
    let mut seen = [look(&moment.all(), &config, &moment, sizes)? == sizes[0], false];
    for event in world.flash.log.take().unwrap() {
        let write = moment.step(&event);
        let count = moment.cached.len();
        let chosen: Vec<u64> = match (write, count) {
            (false, _) => vec![0],
            (true, ..=4) => (0..1 << (count - 1)).map(|others| others | 1 << (count - 1)).collect(),
            _ => (0..6).map(|_| random.next()).collect(),
        };
        for chosen in chosen {
            images += 1;
            let arrived = moment.cached.iter().enumerate().filter(|(i, _)| chosen >> (i % 64) & 1 == 1);
            let mut image = moment.image(arrived.map(|(_, w)| w.clone()));
            // The newest page may be torn.
            if let Some((place, Content::Metadata(page))) = moment.cached.last()
                && random.one_in(3)
            {
                let mut torn = moment.image([]).bytes(*place);
                let cut = 512 * (1 + random.below(7) as usize);
                torn[..cut].copy_from_slice(&page[..cut]);
                image.over.insert(*place, Content::Metadata(Rc::new(torn)));
            }
            let found = look(&image, &config, &moment, sizes)?;
            seen[usize::from(found == to)] = true;
            if found == to && to.extents < sizes[0].extents {
                // What is behind the end may be cut off.
                let short = Moment { pages: to.flash_pages(), ..moment.clone() };
                let over = image.over.clone();
                look(&short.image(over), &config, &short, sizes)?;
                images += 1;
            }
            if random.one_in(150) {
                go_on(&image, config, &moment, to, random.next());
            }
        }
    }
    assert!(seen == [true, true], "seed {seed}: {seen:?}");
    Ok(images)
}

#[test]
fn a_crash_leaves_one_size_or_the_other() {
    let seed = first_seed();
    let images: u64 = (seed..seed + runs(40))
        .map(|s| every_moment(s, Change::Closed).unwrap_or_else(|e| panic!("{}", replay(s, &e))))
        .sum();
    println!("resizes from seed {seed}: {images} images, 0 violations");
    assert!(images > 2_000 || runs(40) < 40, "{images} are too few");
}

#[test]
fn a_crash_leaves_a_pool_of_objects_in_one_size_or_the_other() {
    let seed = first_seed();
    let images: u64 = (seed..seed + runs(40))
        .map(|s| every_moment(s, Change::Objects).unwrap_or_else(|e| panic!("{}", replay(s, &e))))
        .sum();
    println!("resizes of objects from seed {seed}: {images} images, 0 violations");
    assert!(images > 2_000 || runs(40) < 40, "{images} are too few");
}

#[test]
fn a_crash_leaves_a_pool_that_packs_objects_or_not_yet() {
    let seed = first_seed();
    let each = |s| every_moment(s, Change::Begins).unwrap_or_else(|e| panic!("{}", replay(s, &e)));
    let images: u64 = (seed..seed + runs(40)).map(each).sum();
    println!("pools that begin to pack objects from seed {seed}: {images} images, 0 violations");
    assert!(images > 2_000 || runs(40) < 40, "{images} are too few");
}

#[test]
fn a_crash_leaves_a_pool_that_grows_while_it_is_written_in_one_size_or_the_other() {
    let seed = first_seed();
    let each = |s| every_moment(s, Change::Open).unwrap_or_else(|e| panic!("{}", replay(s, &e)));
    let images: u64 = (seed..seed + runs(40)).map(each).sum();
    println!("growth of open pools from seed {seed}: {images} images, 0 violations");
    assert!(images > 2_000 || runs(40) < 40, "{images} are too few");
}

#[test]
fn a_crash_leaves_a_pool_of_objects_that_grows_while_it_is_written_in_one_size_or_the_other() {
    let seed = first_seed();
    let each = |s| every_moment(s, Change::OpenObjects).unwrap_or_else(|e| panic!("{}", replay(s, &e)));
    let images: u64 = (seed..seed + runs(40)).map(each).sum();
    println!("growth of open pools of objects from seed {seed}: {images} images, 0 violations");
    assert!(images > 2_000 || runs(40) < 40, "{images} are too few");
}

/// Three media of `extents` extents of 8, the first extent of the others left out.
fn striped(extents: u32) -> Arc<dyn Flash> {
    let mut layout = StripeLayout::new(8);
    layout.push(extents, (0..3).map(|member| Column { member, first: u32::from(member > 0) }).collect());
    let member = || Arc::new(MemoryFlash::new((extents + 1) * 8).unwrap()) as Arc<dyn Flash>;
    Arc::new(StripedFlash::new((0..3).map(|_| member()).collect(), layout))
}

#[test]
fn sizes_by_the_public_interface() {
    let medium = striped(100);
    let geometry = |extents: u32, subpages| Geometry::new(extents * 8, 8, subpages).unwrap();
    let mut tight = StoreConfig::default();
    tight.keep_tokens = 1;
    Pool::format(&medium, geometry(60, Some(64)), POOL, 7).unwrap();
    let resize = |to: Geometry| -> Result<bool, PoolError> {
        let (pool, _) = Pool::open(medium.clone(), tight)?;
        let done = pool.resize(to, &mut || true)?;
        if to != pool.geometry() {
            assert!(matches!(pool.sync(), Err(PoolError::ReadOnly)), "the pool has another size now");
        }
        Ok(done)
    };
    let size = || Pool::inspect(medium.clone(), tight, None).unwrap().0.geometry();
    for to in [geometry(300, Some(64)), geometry(300, None), geometry(120, Some(400)), geometry(60, Some(64))] {
        assert!(resize(to).unwrap());
        assert_eq!(size(), to);
    }
    let before = size();
    let more = Geometry::new(301 * 8, 8, None).unwrap();
    assert!(matches!(resize(more), Err(PoolError::Resize(ResizeError::Medium { .. }))));
    {
        let (pool, _) = Pool::open(medium.clone(), tight).unwrap();
        pool.set_status(3, fulgurite_format::Status::ALLOCATED).unwrap();
        pool.sync().unwrap();
    }
    let less = geometry(60, Some(48));
    assert!(matches!(resize(less), Err(PoolError::Resize(ResizeError::Data(262_144)))));
    assert_eq!(size(), before);
    // Stopped before its end, it has its old size.
    let (pool, _) = Pool::open(medium.clone(), tight).unwrap();
    let mut left = 2;
    let mut stop = || {
        left -= 1;
        left > 0
    };
    assert!(!pool.resize(geometry(50, Some(64)), &mut stop).unwrap());
    drop(pool);
    assert_eq!(size(), before);
}

/// The first `extents` extents of 8 of a medium.
fn first_of(medium: &Arc<dyn Flash>, extents: u32) -> StripedFlash {
    let mut layout = StripeLayout::new(8);
    layout.push(extents, vec![Column { member: 0, first: 0 }]);
    StripedFlash::new(vec![medium.clone()], layout)
}

#[test]
fn a_medium_that_fails_while_the_size_is_written() {
    let (small, large) = (Geometry::new(60 * 8, 8, Some(64)).unwrap(), Geometry::new(100 * 8, 8, Some(96)).unwrap());
    let mut found = Vec::new();
    for (from, to) in [(small, large), (large, small)] {
        for (op, error) in
            [(Op::Write, FlashError::Io(5)), (Op::Flush, FlashError::Io(5)), (Op::Write, FlashError::Short)]
        {
            for nth in 1.. {
                let what = format!("{} extents to {}: {op:?} {nth} fails", from.extents, to.extents);
                let memory: Arc<dyn Flash> = Arc::new(MemoryFlash::new(large.flash_pages()).unwrap());
                Pool::format(&memory, from, POOL, 7).unwrap();
                let faulty = Arc::new(FaultyFlash::new(first_of(&memory, large.extents), FaultPlan::default()));
                let (pool, _) = Pool::open(faulty.clone(), StoreConfig::default()).unwrap();
                pool.set_permissions(2..3, Permissions::DEFAULT).unwrap();
                let token = pool.sync().unwrap();
                faulty.set_plan(FaultPlan::rule(Some(op), When::Nth(nth), Fault::Fails(error)));
                let result = pool.resize(to, &mut || true);
                drop(pool);
                // What is the pool's, by its superblock; with all of the flash it can be opened.
                let open = |extents| Pool::open(Arc::new(first_of(&memory, extents)), StoreConfig::default());
                let (pool, report) = open(large.extents).unwrap_or_else(|e| panic!("{what}: {e}"));
                let size = pool.geometry();
                assert_eq!((report.token, pool.audit()), (token, Vec::new()), "{what}");
                assert_eq!(pool.permissions(2), Some(Permissions::DEFAULT), "{what}");
                drop(pool);
                match result {
                    Ok(done) => {
                        // What failed was written elsewhere; or nothing failed, because there were
                        // fewer writes.
                        assert!(done && size == to, "{what}");
                        if faulty.counters().errors == 0 {
                            break;
                        }
                    }
                    Err(PoolError::Resize(e)) if e.is_unsure() => {
                        assert!(size == from || size == to, "{what}: {size:?}");
                        assert!(e.to_string().contains("leave the flash as large as it is"), "{e}");
                        found.push(size);
                    }
                    // Only after that report may the old size's rest be cut off.
                    Err(e) => assert_eq!(size, from, "{what}: {e}"),
                }
                if size == large {
                    let refused = open(small.extents).map(|_| ()).unwrap_err();
                    assert!(matches!(refused, PoolError::Recover(RecoverError::Truncated { .. })), "{what}: {refused}");
                }
                let (pool, _) = open(large.extents).unwrap();
                assert_eq!(pool.geometry(), size, "{what}: the copies are equal since the first opening");
                assert!(pool.resize(to, &mut || true).unwrap(), "{what}");
                drop(pool);
                assert_eq!(open(to.extents).unwrap().0.geometry(), to, "{what}");
            }
        }
    }
    assert!(found.contains(&small) && found.contains(&large), "{found:?}");
}

#[test]
fn a_pool_of_objects_by_the_public_interface() {
    let medium = striped(100);
    let geometry = |extents: u32, subpages: u32| Geometry::with_objects(extents * 8, 8, subpages).unwrap();
    let open = || Pool::open(medium.clone(), StoreConfig::default()).unwrap().0;
    Pool::format(&medium, geometry(80, 4096), POOL, 7).unwrap();
    let pool = open();
    // A sixth of each flash page stays unused.
    let content = |subpage: u32| vec![subpage as u8 | 1; if subpage.is_multiple_of(9) { 2100 } else { 680 }];
    let write = |pool: &Pool, subpages: std::ops::Range<u32>| {
        let all: Vec<(u32, Vec<u8>)> = subpages.map(|subpage| (subpage, content(subpage))).collect();
        let all: Vec<(u32, &[u8])> = all.iter().map(|(subpage, bytes)| (*subpage, &bytes[..])).collect();
        pool.write_objects(&all)
    };
    write(&pool, 0..400).unwrap();
    pool.sync().unwrap();
    let check = |pool: &Pool, subpages: u32| {
        let (mut bytes, wrong) = ([0; 4096], pool.audit());
        assert!(wrong.is_empty(), "{wrong:#?}");
        for subpage in 0..subpages {
            let length = pool.read_object(subpage, &mut bytes).unwrap();
            assert_eq!(bytes[..length], content(subpage), "subpage {subpage}");
        }
    };
    drop(pool);
    for to in [geometry(300, 4096), geometry(300, 8192), geometry(64, 4096), geometry(200, 4096)] {
        let pool = open();
        // What a smaller one has no room for is refused before anything is moved.
        let refused = pool.resize(geometry(40, 4096), &mut || true);
        assert!(matches!(refused, Err(PoolError::Resize(ResizeError::Live { .. }))), "{refused:?}");
        let refused = pool.resize(Geometry::new(2400, 8, None).unwrap(), &mut || true);
        assert!(matches!(refused, Err(PoolError::Resize(ResizeError::Objects))), "{refused:?}");
        assert!(pool.resize(to, &mut || true).unwrap());
        drop(pool);
        let pool = open();
        assert_eq!(pool.geometry(), to);
        check(&pool, 400);
        // It is written as one that was made so.
        for first in (0..400).step_by(20) {
            write(&pool, first..first + 20).unwrap();
            pool.sync().unwrap();
        }
        check(&pool, 400);
    }
    let pool = open();
    write(&pool, 400..1600).unwrap();
    check(&pool, 1600);
}
