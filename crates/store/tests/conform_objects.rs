//! Goal: objects of a pool are read as they were written, by every means: alone, through a queue as
//! subpages with zeros behind them, of an old token, after the pool was opened again. Damage is an
//! error, and nothing next to it is. Method: batches of random objects over a medium in memory,
//! compared with a map that is copied at each token, and bits flipped in the flash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_flash::{
    Completion, Fault, FaultPlan, FaultyFlash, Flash, FlashError, Layer, Location, MemoryFlash, Op, Request, When,
};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, Status, SubpageIndex, crc32c};
use fulgurite_store::{
    Driver, Durability, Geometry, LOST_MAGIC, Pool, PoolError, ReadPages, RecoverError, ResizeError, StoreConfig,
    WriteError,
};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::Random;

const POOL: PoolId = PoolId([9; 16]);
const SUBPAGES: u32 = 1 << 13;

fn object(random: &mut Random) -> Vec<u8> {
    let length = match random.below(8) {
        0 => 0,
        1 => 4096,
        2 => 1 + random.below(4095),
        _ => 1 + random.below(300),
    };
    random.bytes(length)
}

fn geometry() -> Geometry {
    Geometry::with_objects(2048, 16, SUBPAGES).unwrap()
}
fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.checkpoint_after = 16;
    config.commit_after = 4;
    config.keep_tokens = 3;
    config
}
fn medium() -> Arc<dyn Flash> {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(2048).unwrap());
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    medium
}
fn open(medium: &Arc<dyn Flash>) -> Pool {
    Pool::open(medium.clone(), config()).unwrap().0
}

type Contents = BTreeMap<u32, Vec<u8>>;

fn write(pool: &Pool, objects: &[(u32, Vec<u8>)], now: &mut Contents) {
    let batch: Vec<(u32, &[u8])> = objects.iter().map(|(subpage, bytes)| (*subpage, &bytes[..])).collect();
    pool.write_objects(&batch).unwrap();
    now.extend(objects.iter().cloned());
}
fn check(pool: &Pool, now: &Contents) {
    let wrong = pool.audit();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut bytes = [0; SUBPAGE_BYTES];
    for (subpage, expected) in now {
        let length = pool.read_object(*subpage, &mut bytes).unwrap();
        assert_eq!(&bytes[..length], &expected[..], "subpage {subpage}");
    }
}

/// Reads subpages through a queue of a layer.
fn read_through(flash: &dyn Flash, subpages: &[u32], mut each: impl FnMut(u32, Result<(), FlashError>, &[u8])) {
    let frames = Arc::new(Arena::anonymous(8 * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let mut queue = flash.open_queue(frames.clone(), 8, Arc::new(Notifier::new().unwrap())).unwrap();
    for few in subpages.chunks(8) {
        for (frame, subpage) in few.iter().enumerate() {
            frames.write(frame * SUBPAGE_BYTES, &[0xEE; SUBPAGE_BYTES]);
            let frame = FrameIndex(frame as u32);
            let request = Request { tag: frame.0.into(), op: Op::Read, subpage: SubpageIndex(*subpage), frame };
            queue.submit(request).unwrap();
        }
        queue.flush().unwrap();
        let mut ended: Vec<Completion> = Vec::new();
        while ended.len() < few.len() {
            queue.poll(&mut ended);
        }
        for completion in ended {
            let mut page = [0; SUBPAGE_BYTES];
            frames.read(completion.tag as usize * SUBPAGE_BYTES, &mut page);
            each(few[completion.tag as usize], completion.result, &page);
        }
    }
}

#[test]
fn what_was_written_is_read_and_kept_by_tokens() {
    let seed = fulgurite_testkit::first_seed(5);
    println!("seed {seed}; replay with FULGURITE_SEED={seed}");
    let mut random = Random(seed);
    let medium = medium();
    let mut pool = Arc::new(open(&medium));
    let (mut now, mut tokens, mut written) = (Contents::new(), BTreeMap::<u64, Contents>::new(), 0);
    for round in 0..60 {
        let count = 1 + random.below(60);
        let batch: Vec<(u32, Vec<u8>)> = (0..count).map(|_| (random.below(700) as u32, object(&mut random))).collect();
        write(&pool, &batch, &mut now);
        if random.below(3) == 0 {
            tokens.insert(pool.sync().unwrap(), now.clone());
        }
        if random.below(4) == 0 {
            pool.reclaim_one().unwrap();
        }
        if random.below(8) == 0 {
            let page = random.below(40) as u32;
            pool.set_status(page, Status::DELETED).unwrap();
            now.retain(|subpage, _| subpage / 16 != page);
        }
        check(&pool, &now);
        let kept: Vec<u64> = pool.tokens().to_vec();
        for token in &kept {
            let contents = &tokens[token];
            let mut bytes = [0; SUBPAGE_BYTES];
            for subpage in 0..700 {
                let length = pool.read_object_at(subpage, *token, &mut bytes).unwrap();
                let expected = contents.get(&subpage).map_or(&[][..], |bytes| &bytes[..]);
                assert_eq!(&bytes[..length], expected, "subpage {subpage} at token {token}");
            }
        }
        match random.below(12) {
            0 if !kept.is_empty() => {
                let token = kept[random.below(kept.len() as u64) as usize];
                pool.roll_back(token).unwrap();
                now = tokens[&token].clone();
            }
            1 => {
                tokens.insert(pool.sync().unwrap(), now.clone());
                written += pool.counters().object_pages;
                drop(pool);
                pool = Arc::new(open(&medium));
            }
            2 => pool.checkpoint().unwrap(),
            3 if round > 5 => {
                // As subpages, of an old token.
                let Some(token) = kept.first() else { continue };
                let view = pool.view(*token).unwrap().into_flash();
                let all: Vec<u32> = (0..700).collect();
                read_through(&view, &all, |subpage, result, page| {
                    result.unwrap();
                    let mut expected = tokens[token].get(&subpage).cloned().unwrap_or_default();
                    expected.resize(SUBPAGE_BYTES, 0);
                    assert_eq!(page, expected, "subpage {subpage}");
                });
            }
            _ => {}
        }
    }
    assert!(written + pool.counters().object_pages > 60 && pool.info().objects > 0);
}

/// Also on a flash that takes its time; and an error of it is the writer's.
#[test]
fn when_a_write_of_objects_returns_it_has_ended() {
    let plan = |fault| FaultPlan::rule(Some(Op::Write), When::From(1), fault);
    let faulty = Arc::new(FaultyFlash::new(MemoryFlash::new(2048).unwrap(), FaultPlan::default()));
    let medium: Arc<dyn Flash> = faulty.clone();
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let pool = open(&medium);
    faulty.set_plan(plan(Fault::Late { polls: 5 }));
    let (mut random, mut now) = (Random(11), Contents::new());
    for round in 0..10u32 {
        let objects: Vec<(u32, Vec<u8>)> = (0..1 + round * 20).map(|n| (n * 7, object(&mut random))).collect();
        write(&pool, &objects, &mut now);
        check(&pool, &now);
    }
    faulty.set_plan(plan(Fault::Fails(FlashError::NoSpace)));
    assert!(pool.write_objects(&[(3, &[1; 100])]).is_err());
    assert_eq!(pool.read_object(3, &mut [0; 100]).unwrap(), 0);
}
#[test]
fn damage_is_an_error_of_the_objects_that_have_it() {
    let medium = medium();
    let pool = Arc::new(open(&medium));
    let mut now = Contents::new();
    let batch: Vec<(u32, Vec<u8>)> = (0..31).map(|i| (i * 3, vec![i as u8 + 1; 130])).collect();
    write(&pool, &batch, &mut now);
    pool.sync().unwrap();
    let victim = pool.locate_object(9).unwrap().unwrap().at;
    let beside = pool.locate_object(12).unwrap().unwrap().at;
    assert_eq!(victim.flash_page, beside.flash_page, "they share a flash page");
    let mut driver = Driver::new(&*medium, 4).unwrap();
    let mut page = driver.read(victim.flash_page, 0).unwrap();
    page[usize::from(victim.offset) + 7] ^= 0x10;
    driver.write_all(vec![(victim.flash_page, page)]).unwrap();

    let mut bytes = [0; SUBPAGE_BYTES];
    let corrupt = |result: Result<usize, PoolError>| matches!(result, Err(PoolError::Flash(FlashError::Corrupt)));
    assert!(corrupt(pool.read_object(9, &mut bytes)));
    let sound = |now: &Contents| now.iter().filter(|(s, _)| **s != 9).map(|(s, b)| (*s, b.clone())).collect();
    let rest: Contents = sound(&now);
    check(&pool, &rest);
    // Moving it does not make it right.
    while pool.reclaim_one().unwrap() {}
    assert!(corrupt(pool.read_object(9, &mut bytes)));
    check(&pool, &rest);
    // Through a queue it is one subpage that fails.
    let flash = fulgurite_flash::Layered::new(pool.clone());
    read_through(&flash, &(0..93).collect::<Vec<_>>(), |subpage, result, page| match subpage {
        9 => assert_eq!(result, Err(FlashError::Corrupt)),
        _ => {
            result.unwrap();
            let mut expected = now.get(&subpage).cloned().unwrap_or_default();
            expected.resize(SUBPAGE_BYTES, 0);
            assert_eq!(page, expected, "subpage {subpage}");
        }
    });
    // Given up, it stays an error, and its neighbours stay what they are.
    let at = pool.locate_object(9).unwrap().unwrap().at;
    assert!(!pool.mark_lost(12, at.flash_page).unwrap_or(true), "what can be read is not given up");
    assert!(pool.mark_lost(9, at.flash_page).unwrap());
    let moved = pool.locate_object(9).unwrap().unwrap().at;
    assert_ne!((moved.flash_page, moved.offset), (at.flash_page, at.offset));
    assert!(driver.read(moved.flash_page, 0).unwrap().starts_with(&LOST_MAGIC));
    assert!(corrupt(pool.read_object(9, &mut bytes)));
    check(&pool, &rest);
    write(&pool, &[(9, b"again".to_vec())], &mut now);
    check(&pool, &now);
    pool.sync().unwrap();
    drop((flash, pool));
    check(&open(&medium), &now);
}

/// Also where it was, byte for byte, what is written in place of what is lost.
#[test]
fn what_stands_for_a_lost_object_never_passes_for_it() {
    let medium = medium();
    let pool = open(&medium);
    let mut now = Contents::new();
    let marker = [&LOST_MAGIC[..], &9u32.to_le_bytes()].concat();
    write(&pool, &[(9, marker), (20, LOST_MAGIC[..5].to_vec()), (21, vec![7; 100])], &mut now);
    pool.sync().unwrap();
    let mut bytes = [0; SUBPAGE_BYTES];
    for subpage in [9, 20] {
        let at = pool.locate_object(subpage).unwrap().unwrap().at;
        let mut driver = Driver::new(&*medium, 4).unwrap();
        let mut page = driver.read(at.flash_page, 0).unwrap();
        page[usize::from(at.offset) + 3] ^= 1;
        driver.write_all(vec![(at.flash_page, page)]).unwrap();
        assert!(pool.mark_lost(subpage, at.flash_page).unwrap());
        let read = pool.read_object(subpage, &mut bytes);
        assert!(matches!(read, Err(PoolError::Flash(FlashError::Corrupt))), "{subpage}: {read:?}");
        now.remove(&subpage);
    }
    check(&pool, &now);
}

#[test]
fn objects_and_whole_subpages_live_side_by_side() {
    let medium = medium();
    let pool = open(&medium);
    let mut now = Contents::new();
    // Longer than what fits in a page with others, and as long as a subpage.
    let all: Vec<(u32, Vec<u8>)> = [1, 15, 16, 17, 2048, 2049, 4080, 4081, 4095, 4096]
        .iter()
        .enumerate()
        .map(|(i, n)| (i as u32 * 5, vec![i as u8 + 1; *n]))
        .collect();
    write(&pool, &all, &mut now);
    check(&pool, &now);
    assert_eq!(pool.read_object(3, &mut []).unwrap(), 0, "what was never written has no bytes");
    assert!(matches!(pool.read_object(45, &mut [0; 10]), Err(PoolError::Flash(FlashError::OutOfRange))));
    assert!(matches!(pool.read_object(SUBPAGES, &mut [0; 10]), Err(PoolError::Flash(FlashError::OutOfRange))));
    // A flash page holds as many as it has room for.
    let before = pool.counters().object_pages;
    let small: Vec<(u32, Vec<u8>)> = (0..128).map(|i| (1000 + i, vec![i as u8; 128])).collect();
    write(&pool, &small, &mut now);
    let large: Vec<(u32, Vec<u8>)> = (0..16).map(|i| (2000 + i, vec![i as u8; 1024])).collect();
    write(&pool, &large, &mut now);
    assert_eq!(pool.counters().object_pages - before, 4 + 4);
    check(&pool, &now);
    // Freed, it has no bytes.
    write(&pool, &[(1000, Vec::new())], &mut now);
    check(&pool, &now);
    let mut live = Vec::new();
    pool.live_pages(1008 / 16, &mut live).unwrap();
    assert!(live.iter().all(|l| l.object.is_some() && l.current) && live.len() == 16);
    let mut driver = Driver::new(&*medium, 1).unwrap();
    for l in live {
        let page = driver.read(l.place, 0).unwrap();
        assert_eq!(crc32c(l.of(&page[..])), l.checksum);
    }
}

#[test]
fn a_pool_without_objects_has_none() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(2048).unwrap());
    let without = Geometry::new(2048, 16, Some(1000)).unwrap();
    Pool::format(&medium, without, POOL, 0).unwrap();
    let pool = open(&medium);
    let refused = pool.write_objects(&[(0, b"x")]);
    assert!(matches!(refused, Err(PoolError::Write(WriteError::NoObjects))), "{refused:?}");
    drop(pool);
    // It begins to pack them when it is asked to, and keeps packing them.
    let pool = open(&medium);
    let with = Geometry::with_objects(2048, 16, 5000).unwrap();
    assert!(pool.resize(with, &mut || true).unwrap());
    drop(pool);
    let pool = open(&medium);
    assert_eq!(pool.geometry(), with);
    pool.write_objects(&[(0, b"x"), (4000, b"yz")]).unwrap();
    pool.sync().unwrap();
    let refused = pool.resize(Geometry { objects: false, ..without }, &mut || true);
    assert!(matches!(refused, Err(PoolError::Resize(ResizeError::Objects))), "{refused:?}");
    drop(pool);
    let pool = open(&medium);
    let mut bytes = [0; 4096];
    assert_eq!(pool.read_object(4000, &mut bytes).unwrap(), 2);
    assert_eq!(&bytes[..2], b"yz");
    assert!(pool.audit().is_empty());
}

#[test]
fn a_program_that_knows_no_objects_refuses_the_pool() {
    // What such a program would see: a feature bit that it does not know.
    let medium = medium();
    let mut block = geometry().superblock(0);
    block.features |= 4;
    let mut driver = Driver::new(&*medium, 4).unwrap();
    driver.write_all(fulgurite_store::superblock_pages(POOL, &block).to_vec()).unwrap();
    let refused = Pool::open(medium.clone(), config()).map(|_| ());
    assert!(matches!(refused, Err(PoolError::Recover(RecoverError::Geometry(_)))), "{refused:?}");
}

/// However full the pool is, and whatever tokens remember, it takes no more DRAM than it says a
/// budget must set aside.
#[test]
fn dram_stays_within_what_is_set_aside() {
    let medium = medium();
    let mut config = config();
    config.history_bytes = 512 << 10;
    let pool = Pool::open(medium.clone(), config).unwrap().0;
    let set_aside = pool.info().dram_bytes_max;
    let empty = pool.info().dram_bytes;
    let (mut random, mut most) = (Random(77), 0);
    for round in 0..120 {
        // All subpages are objects, then they are overwritten, most of them by as few bytes as an
        // object may have.
        let batch: Vec<(u32, Vec<u8>)> = (0..512)
            .map(|i| {
                let subpage = if round < 16 { round * 512 + i } else { random.below(SUBPAGES) };
                (subpage, vec![round as u8; if random.below(50) == 0 { 3000 } else { 16 }])
            })
            .collect();
        let few: Vec<(u32, &[u8])> = batch.iter().map(|(subpage, bytes)| (*subpage, &bytes[..])).collect();
        match pool.write_objects(&few) {
            Ok(()) => {}
            Err(PoolError::Write(WriteError::NoSpace { .. } | WriteError::Table(_))) => drop(pool.sync().unwrap()),
            Err(error) => panic!("{error}"),
        }
        if random.below(4) == 0 {
            pool.sync().unwrap();
        }
        if random.below(10) == 0 {
            pool.reclaim_one().unwrap();
        }
        let info = pool.info();
        assert_eq!(info.dram_bytes_max, set_aside, "round {round}");
        assert!(info.dram_bytes <= set_aside, "round {round}: {} of {set_aside}", info.dram_bytes);
        most = most.max(info.dram_bytes);
    }
    println!("{empty} bytes of DRAM when it is empty, at most {most}, {set_aside} set aside");
    assert!(most > empty + SUBPAGES as usize * 12, "what objects take is counted: {empty}, {most}");
}

/// An object that is overwritten all the time is never taken for one that was freed, though its
/// slot is let go each time.
#[test]
fn what_is_overwritten_is_always_there() {
    let medium = medium();
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let pool = Pool::open(medium, config).unwrap().0;
    let write = |subpages: std::ops::Range<u32>, byte: u8| {
        let bytes = [byte; 16];
        let all: Vec<(u32, &[u8])> = subpages.map(|subpage| (subpage, &bytes[..])).collect();
        pool.write_objects(&all).unwrap();
    };
    write(0..16, 1);
    let over = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0u64;
            while !over.load(Ordering::Relaxed) {
                for subpage in 0..16 {
                    let place = pool.locate(subpage).place().expect("it was never freed");
                    assert_eq!(place.part.map(|part| part.length), Some(16), "{place:?}");
                }
                reads += 16;
            }
            reads
        });
        for round in 0..3000u32 {
            write(0..16, round as u8);
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    println!("{reads} reads");
    pool.write_objects(&[(3, b"")]).unwrap();
    assert_eq!(pool.locate(3), Location::Unmapped, "it was freed");
}

/// What is read through a queue is what was written, with zeros behind it.
fn check_through(flash: &dyn Flash, subpages: &[u32], now: &Contents) {
    read_through(flash, subpages, |subpage, result, page| {
        result.unwrap();
        let mut expected = now.get(&subpage).cloned().unwrap_or_default();
        expected.resize(SUBPAGE_BYTES, 0);
        assert_eq!(page, expected, "subpage {subpage}");
    });
}

#[test]
fn locations_of_objects_may_be_on_flash_alone() {
    let faulty = Arc::new(FaultyFlash::new(MemoryFlash::new(2048).unwrap(), FaultPlan::default()));
    let medium: Arc<dyn Flash> = faulty.clone();
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let mut config = config();
    config.keep_tokens = 2;
    config.leaf_bytes = 16 << 10;
    let pool = Arc::new(Pool::open(medium.clone(), config).unwrap().0);
    let mut random = Random(5);
    let (mut now, mut before) = (Contents::new(), Contents::new());
    let mut token = 0;
    // There is room for 51 pages' places. As many may change before a sync.
    for round in 0..150 {
        let batch: Vec<(u32, Vec<u8>)> = (0..20).map(|_| (random.below(SUBPAGES), random.bytes(90))).collect();
        write(&pool, &batch, &mut now);
        if round == 149 {
            break;
        }
        token = pool.sync().unwrap();
        before = now.clone();
    }
    check(&pool, &now);
    let all: Vec<u32> = (0..SUBPAGES).collect();
    let flash = fulgurite_flash::Layered::new(pool.clone());
    check_through(&flash, &all, &now);
    let view = pool.view(token).unwrap().into_flash();
    check_through(&view, &all, &before);
    drop(view);
    // What cannot be read is an error, and no zeros.
    pool.sync().unwrap();
    pool.checkpoint().unwrap();
    let mut bytes = [0; SUBPAGE_BYTES];
    faulty.set_plan(FaultPlan::rule(Some(Op::Read), When::From(1), Fault::Fails(FlashError::Io(5))));
    let mut failed = 0;
    for subpage in now.keys() {
        failed += usize::from(pool.read_object(*subpage, &mut bytes).is_err());
    }
    assert_eq!(failed, now.len());
    read_through(&flash, &now.keys().copied().collect::<Vec<_>>(), |subpage, result, _| {
        assert_eq!(result, Err(FlashError::Io(5)), "subpage {subpage}");
    });
    faulty.set_plan(FaultPlan::default());
    check_through(&flash, &all, &now);
    drop((flash, pool));
    let pool = Pool::open(medium.clone(), config).unwrap().0;
    check(&pool, &now);
    drop(pool);
    check(&open(&medium), &now);
}
