//! Goal: with DRAM for few of the places of objects, any number of threads read and write them as
//! before, and the DRAM stays below the documented bound. Method: pools over a medium in memory.
//! Readers of several queues, of a token and of single objects read while writers overwrite and
//! free: each finds an object that was whole, and none older than it has seen. The DRAM of a pool
//! of many more objects than it has room for is compared with its bound as they come. Then most
//! pages are deleted in one call, others are written, and all come back with a roll back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fulgurite_flash::{Completion, Flash, Layered, MemoryFlash, Op, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Pool, Store, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::Random;

fn pool(flash_pages: u32, subpages: u32, leaf_bytes: usize) -> (Arc<dyn Flash>, Arc<Pool>) {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(flash_pages).unwrap());
    let geometry = Geometry::with_objects(flash_pages, 16, subpages).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    config.leaf_bytes = leaf_bytes;
    let pool = Arc::new(Pool::open(medium.clone(), config).unwrap().0);
    (medium, pool)
}

/// An object that begins with its subpage and number. Each byte behind them follows from these.
fn object(subpage: u32, number: u32) -> Vec<u8> {
    let mut bytes = vec![(subpage ^ number) as u8; 16 + subpage as usize % 60];
    bytes[..4].copy_from_slice(&subpage.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}
/// The number of the object that was read of a subpage.
fn number_of(subpage: u32, bytes: &[u8]) -> u32 {
    let number = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
    let expected = object(subpage, number);
    assert_eq!(bytes[..expected.len()], expected, "subpage {subpage}, number {number}");
    assert!(bytes[expected.len()..].iter().all(|byte| *byte == 0), "subpage {subpage} has zeros behind its object");
    number
}

/// Ends the readers, also where a writer panics.
struct Ends<'o>(&'o AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Reads four subpages at a time through a queue of its own, until it is over. They are counted.
fn read(
    flash: &dyn Flash,
    subpages: u32,
    seed: u64,
    (over, count): (&AtomicBool, &AtomicU32),
    least: &dyn Fn(u32) -> u32,
) {
    let frames = Arc::new(Arena::anonymous(4 * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let mut queue = flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
    let mut random = Random(seed);
    while !over.load(Ordering::Acquire) {
        let few: Vec<u32> = (0..4).map(|_| random.below(subpages)).collect();
        let before: Vec<u32> = few.iter().map(|subpage| least(*subpage)).collect();
        for (frame, subpage) in (0..).zip(&few) {
            let (frame, subpage) = (FrameIndex(frame), SubpageIndex(*subpage));
            queue.submit(Request { tag: frame.0.into(), op: Op::Read, subpage, frame }).unwrap();
        }
        queue.flush().unwrap();
        let mut ended: Vec<Completion> = Vec::new();
        while ended.len() < few.len() {
            queue.poll(&mut ended);
        }
        for completion in ended {
            let at = completion.tag as usize;
            completion.result.unwrap();
            let mut page = [0; SUBPAGE_BYTES];
            frames.read(at * SUBPAGE_BYTES, &mut page);
            let number = number_of(few[at], &page);
            assert!(number >= before[at], "subpage {}: {number} is older than {}", few[at], before[at]);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn readers_find_whole_objects_while_their_places_come_and_go() {
    const SUBPAGES: u32 = 2048;
    // 128 pages have objects, and there is room for the places of 16.
    let (medium, pool) = pool(4096, SUBPAGES, 16 * 320);
    let written: Vec<AtomicU32> = (0..SUBPAGES).map(|_| AtomicU32::new(0)).collect();
    let write = |subpages: &[u32], number: u32| {
        let objects: Vec<Vec<u8>> = subpages.iter().map(|subpage| object(*subpage, number)).collect();
        let batch: Vec<(u32, &[u8])> = subpages.iter().zip(&objects).map(|(s, bytes)| (*s, &bytes[..])).collect();
        pool.write_objects(&batch).unwrap();
        subpages.iter().for_each(|subpage| written[*subpage as usize].store(number, Ordering::Release));
    };
    for first in (0..SUBPAGES).step_by(64) {
        write(&(first..first + 64).collect::<Vec<u32>>(), 1);
        pool.sync().unwrap();
    }
    let token = pool.sync().unwrap();
    pool.pin(token, true).unwrap();
    let view = Arc::new(pool.view(token).unwrap().into_flash());
    let flash = Layered::new(pool.clone());
    let rounds = if fulgurite_testkit::runs(100) < 100 { 60 } else { 600 };
    let (over, counts) = (AtomicBool::new(false), [const { AtomicU32::new(0) }; 4]);
    std::thread::scope(|scope| {
        let least = |subpage: u32| written[subpage as usize].load(Ordering::Acquire);
        let (over, flash, view, pool) = (&over, &flash, &view, &pool);
        let ends = Ends(over);
        let [first, second, third, fourth] = &counts;
        let readers = [
            scope.spawn(move || read(flash, SUBPAGES, 1, (over, first), &least)),
            scope.spawn(move || read(flash, SUBPAGES, 2, (over, second), &least)),
            scope.spawn(move || read(&**view, SUBPAGES, 3, (over, third), &|_| 1)),
            scope.spawn(move || {
                let (mut random, mut bytes) = (Random(4), [0; SUBPAGE_BYTES]);
                while !over.load(Ordering::Acquire) {
                    let subpage = random.below(SUBPAGES);
                    let before = least(subpage);
                    let length = pool.read_object(subpage, &mut bytes).unwrap();
                    assert!(number_of(subpage, &bytes[..length]) >= before);
                    let length = pool.read_object_at(subpage, token, &mut bytes).unwrap();
                    assert_eq!(number_of(subpage, &bytes[..length]), 1);
                    fourth.fetch_add(2, Ordering::Relaxed);
                }
            }),
        ];
        // The writer goes on until each reader has met it, however the machine shares its cores.
        let met = || counts.iter().all(|count| count.load(Ordering::Relaxed) > 100);
        let mut random = Random(5);
        for number in 2.. {
            if (number >= 2 + rounds && met()) || readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
            // A pinned token keeps the places of all that changes later. So few pages do.
            let page = random.below(8u32) * 16;
            let subpages: Vec<u32> = (0..8).map(|i| page + 2 * i + random.below(2u32)).collect();
            write(&subpages, number);
            if number % 4 == 0 {
                pool.sync().unwrap();
            }
        }
        drop(ends);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        println!("{counts:?} objects were read, and {:?}", pool.info());
        assert!(met(), "{counts:?}");
    });
    drop((view, flash));
    assert!(pool.info().pages_out > 64, "{:?}", pool.info());
    assert_eq!(pool.audit(), Vec::<String>::new());
    drop(pool);
    // All of it is there without such a bound.
    let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
    assert_eq!((pool.audit(), pool.info().pages_out), (Vec::new(), 0));
    let mut bytes = [0; SUBPAGE_BYTES];
    for subpage in 0..SUBPAGES {
        let length = pool.read_object(subpage, &mut bytes).unwrap();
        let last = written[subpage as usize].load(Ordering::Relaxed);
        assert!(number_of(subpage, &bytes[..length]) <= last, "subpage {subpage}");
    }
}

#[test]
fn many_pages_are_deleted_in_parts_and_come_back() {
    const DELETED: u32 = 2048;
    // 128 pages are deleted, and there is room for the places of 16.
    let (medium, pool) = pool(4096, DELETED + 64, 16 * 320);
    let write = |first: u32, number: u32| {
        let objects: Vec<Vec<u8>> = (first..first + 64).map(|subpage| object(subpage, number)).collect();
        let batch: Vec<(u32, &[u8])> = (first..).zip(&objects).map(|(s, bytes)| (s, &bytes[..])).collect();
        pool.write_objects(&batch).unwrap();
    };
    for first in (0..DELETED + 64).step_by(64) {
        write(first, 1);
        pool.sync().unwrap();
    }
    let token = pool.sync().unwrap();
    pool.pin(token, true).unwrap();
    assert!(pool.info().pages_out > 64, "{:?}", pool.info());
    pool.delete_pages(0..DELETED / 16).unwrap();
    pool.sync().unwrap();
    (2..5).for_each(|number| write(DELETED, number));
    pool.sync().unwrap();
    let mut bytes = [0; SUBPAGE_BYTES];
    for subpage in 0..DELETED {
        assert_eq!(pool.permissions(subpage / 16), None);
        assert_eq!(pool.read_object(subpage, &mut bytes).unwrap(), 0, "subpage {subpage}");
        let length = pool.read_object_at(subpage, token, &mut bytes).unwrap();
        assert_eq!(number_of(subpage, &bytes[..length]), 1);
    }
    assert_eq!(pool.audit(), Vec::<String>::new());
    pool.roll_back(token).unwrap();
    pool.pin(token, false).unwrap();
    assert_eq!(pool.audit(), Vec::<String>::new());
    drop(pool);
    let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
    for subpage in 0..DELETED + 64 {
        let length = pool.read_object(subpage, &mut bytes).unwrap();
        assert_eq!(number_of(subpage, &bytes[..length]), 1);
    }
}

#[test]
fn the_dram_of_many_objects_stays_below_its_bound() {
    const SUBPAGES: u32 = 200_000;
    let mut config = StoreConfig::default();
    let geometry = Geometry::with_objects(16_384, 16, SUBPAGES).unwrap();
    let whole = Store::dram_needed(geometry, config);
    config.history_bytes = 1 << 20;
    config.leaf_bytes = Store::leaf_bytes_within(geometry, config, whole / 2);
    assert!(config.leaf_bytes < usize::MAX && Store::dram_needed(geometry, config) < whole);
    let (_medium, pool) = pool(16_384, SUBPAGES, config.leaf_bytes);
    let before = pool.info();
    let (mut random, mut most) = (Random(6), 0);
    let bytes = [7; 24];
    let mut write = |subpages: &mut dyn Iterator<Item = u32>| {
        let batch: Vec<(u32, &[u8])> = subpages.map(|subpage| (subpage, &bytes[..])).collect();
        pool.write_objects(&batch).unwrap();
        let info = pool.info();
        assert!(info.dram_bytes <= info.dram_bytes_max, "{info:?}");
        most = most.max(info.dram_bytes);
    };
    // First all of each page, and then one here and there, which has the most blocks of the map.
    for first in (0..SUBPAGES).step_by(1000) {
        write(&mut (first..first + 1000));
        pool.sync().unwrap();
    }
    for _ in 0..60 {
        write(&mut std::iter::repeat_with(|| random.below(SUBPAGES)).take(200));
        pool.sync().unwrap();
    }
    let info = pool.info();
    println!("{} bytes of DRAM before, at most {most}, {whole} with all: {info:?}", before.dram_bytes);
    assert!(info.pages_out > SUBPAGES / 16 / 2 && most < whole, "{info:?}");
    assert_eq!(pool.audit(), Vec::<String>::new());
}
