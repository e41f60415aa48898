//! Goal: a driver hands each request to the medium once, gives its frame back when it ended, and
//! counts those under way. It reads ahead what it is asked to, and no more. Method: media in DRAM
//! that record requests, and end some late or with an error.

use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FlashError, MemoryFlash, When};
use fulgurite_format::PoolId;

use super::*;
use crate::geometry::Geometry;
use crate::recover::recover;
use crate::store::StoreConfig;

const PAGES: u32 = 1024;

fn faulty() -> FaultyFlash<MemoryFlash> {
    FaultyFlash::new(MemoryFlash::new(PAGES).unwrap(), FaultPlan { record: true, ..FaultPlan::default() })
}
/// A pool with a driver of `depth` requests at a time.
fn made(flash: &FaultyFlash<MemoryFlash>, depth: usize) -> (Driver, Store) {
    let geometry = Geometry::new(PAGES, 8, Some(320)).unwrap();
    let mut driver = Driver::new(flash, depth).unwrap();
    driver.write_all(Store::format(geometry, PoolId([4; 16]), 0)).unwrap();
    let (store, _) = recover(&mut driver, StoreConfig::default()).unwrap();
    (driver, store)
}
/// Nothing is under way: all frames are there, and counted as such.
fn assert_at_rest(driver: &Driver) {
    assert_eq!((driver.in_flight(), driver.reading, driver.copying, driver.along), (0, 0, 0, 0));
    assert_eq!(driver.free.len(), driver.tasks.len());
    let frames: std::collections::BTreeSet<u32> = driver.free.iter().map(|Reverse(frame)| *frame).collect();
    assert_eq!(frames, (0..driver.tasks.len() as u32).collect());
    assert!(driver.tasks.iter().all(Option::is_none) && driver.waiting.is_none());
    assert!(driver.to_read.is_empty() && driver.copied.is_empty() && driver.completions.is_empty());
}
/// Writes subpages by hand, each a flash page full of its number.
fn write(driver: &mut Driver, store: &mut Store, subpages: std::ops::Range<u32>) {
    let (subpages, mut places): (Vec<u32>, _) = (subpages.collect(), Vec::new());
    store.place(&subpages, &mut places).unwrap();
    assert_eq!(places.len(), subpages.len());
    let mut writes = Vec::new();
    for (subpage, place) in subpages.iter().zip(places) {
        let page = content(*subpage);
        writes.push((*subpage, place, crc32c(&page[..])));
        let Reverse(frame) = *driver.free.peek().unwrap();
        driver.frames.write(Driver::frame_of(frame), &page[..]);
        driver.one(Op::Write, place, frame).unwrap();
    }
    store.written(&mut writes).unwrap();
}
fn content(number: u32) -> PageBuffer {
    let mut page = zero_page();
    page.as_chunks_mut::<4>().0.iter_mut().for_each(|word| *word = number.wrapping_mul(0x9E37_79B9).to_le_bytes());
    page
}

#[test]
fn what_is_asked_for_ahead_is_read_at_once_and_as_it_is() {
    let flash = faulty();
    let mut driver = Driver::new(&flash, 4).unwrap();
    driver.write_all((0..20).map(|place| (place, content(place))).collect()).unwrap();
    driver.write_all(vec![(PAGES - 1, content(PAGES - 1)), (PAGES - 2, content(PAGES - 2))]).unwrap();
    let seen = flash.record().len();
    assert_eq!(seen, 2 * 22, "each is written and flushed");
    // How many are read of the flash for each, with a depth of four.
    let mut before = seen;
    for (place, ahead, reads) in [
        (0, 0, 1),
        (1, 2, 3),
        (2, 9, 0),
        (3, 9, 0),
        (4, 9, 4),
        (5, 0, 0),
        // Somewhere else: what was read ahead is forgotten.
        (12, 0, 1),
        (6, 0, 1),
        (7, 1, 2),
        (7, 0, 1),
        // There is no more behind the end.
        (PAGES - 2, 9, 2),
        (PAGES - 1, 9, 0),
        (PAGES - 1, u32::MAX, 1),
    ] {
        let page = driver.read(place, ahead).unwrap();
        let record = flash.record();
        let read: Vec<u32> = record[before..]
            .iter()
            .map(|(op, subpage)| {
                assert_eq!(*op, Op::Read);
                subpage.0
            })
            .collect();
        assert_eq!(read, (place..place + reads).collect::<Vec<_>>(), "{place}, {ahead} ahead");
        assert!(page == content(place), "flash page {place}");
        before = record.len();
    }
    assert_eq!((driver.flash_pages(), driver.in_flight()), (PAGES, 0));
    // One that cannot be read is an error of that one.
    flash.set_plan(FaultPlan::rule(Some(Op::Read), When::Nth(2), Fault::Fails(FlashError::Io(5))));
    assert!(driver.read(0, 3).unwrap() == content(0));
    assert_eq!(driver.read(1, 2).map(|_| ()), Err(FlashError::Io(5)));
    assert!(driver.read(2, 1).unwrap() == content(2) && driver.read(3, 0).unwrap() == content(3));
    assert_at_rest(&driver);
    // A write that fails is reported, and nothing behind it is written.
    flash.set_plan(FaultPlan::rule(Some(Op::Write), When::Nth(2), Fault::Fails(FlashError::Io(5))));
    let all = (0..3).map(|place| (place, content(100 + place))).collect();
    assert_eq!(driver.write_all(all), Err(FlashError::Io(5)));
    assert!([100, 1, 2].iter().zip(0..).all(|(number, place)| driver.read(place, 0).unwrap() == content(*number)));
}
#[test]
fn it_says_what_is_under_way_and_what_has_ended() {
    let flash = faulty();
    let (mut driver, mut store) = made(&flash, 4);
    assert_at_rest(&driver);
    driver.settle(&mut store).unwrap();
    assert_eq!(driver.turn(&mut store), Ok(0), "nothing is wanted");
    write(&mut driver, &mut store, 0..3);
    let before = flash.submitted();
    store.sync().unwrap();
    flash.set_plan(FaultPlan::rule(None, When::From(1), Fault::Late { polls: u32::MAX }));
    // The first flush, until it ends.
    assert_eq!((driver.turn(&mut store), driver.in_flight(), driver.poll_news()), (Ok(0), 1, false));
    assert_eq!((driver.turn(&mut store), driver.in_flight(), flash.submitted() - before), (Ok(0), 1, 1));
    assert_eq!((driver.free.len(), driver.tasks.iter().flatten().count()), (3, 1));
    // Waiting for it has an end.
    driver.wait(Duration::from_millis(1));
    flash.set_plan(FaultPlan::default());
    flash.end_late();
    driver.wait(Duration::from_secs(5));
    assert!(driver.poll_news());
    // It, the page of the journal, the second flush and the witness.
    assert_eq!((driver.turn(&mut store), driver.in_flight(), driver.poll_news()), (Ok(4), 0, false));
    assert_eq!((store.durable_token(), store.is_quiet(), flash.submitted() - before), (1, true, 4));
    assert_at_rest(&driver);
    // A wait for nothing is none.
    driver.wait(Duration::from_secs(3600));
}
#[test]
fn what_is_copied_is_what_was_there_and_each_frame_comes_back() {
    for (checks, depth) in [(true, 3), (true, 32), (false, 3)] {
        let flash = faulty();
        let (_, mut store) = made(&flash, 4);
        let mut driver = Driver::that_checks(&flash, depth, checks).unwrap();
        write(&mut driver, &mut store, 0..35);
        (0..5).for_each(|n| write(&mut driver, &mut store, 7 * n..7 * n + 3));
        driver.settle(&mut store).unwrap();
        let before = flash.record().len();
        let mut reclaimed = 0u32;
        while reclaimed < if checks { 5 } else { 1 } && store.begin_reclaim() {
            driver.settle(&mut store).unwrap();
            assert_at_rest(&driver);
            reclaimed += 1;
        }
        let counters = store.counters();
        // Four flash pages are moved of each extent that was filled first. Without checksums each
        // seems to be damaged.
        assert_eq!((reclaimed, counters.copied), if checks { (5, 20) } else { (1, 4) });
        assert_eq!(counters.damaged, if checks { 0 } else { 4 });
        let record = flash.record();
        let reads = record[before..].iter().filter(|(op, _)| *op == Op::Read).count() as u64;
        assert_eq!(reads, counters.copied + u64::from(reclaimed), "a read for each copy, and one for each summary");
        for subpage in 0..35 {
            let located = store.map().get(subpage).unwrap();
            assert!(driver.read(located.place, 0).unwrap() == content(subpage), "subpage {subpage}");
            assert_eq!(located.checksum, crc32c(&content(subpage)[..]));
        }
        assert_eq!(store.state().audit(), Vec::<String>::new());
    }
}
/// A copy that cannot be read is distinguished from one that cannot be written.
#[test]
fn how_a_copy_fails_is_reported() {
    // Either is retried: unread ones after all else, unwritten ones at another place.
    for (op, nth, damaged, repeated) in [(Op::Read, 2, 1, 0), (Op::Write, 1, 0, 1)] {
        let flash = faulty();
        let (mut driver, mut store) = made(&flash, 8);
        write(&mut driver, &mut store, 0..7);
        write(&mut driver, &mut store, 0..3);
        driver.settle(&mut store).unwrap();
        assert!(store.begin_reclaim());
        flash.set_plan(FaultPlan::rule(Some(op), When::Nth(nth), Fault::Fails(FlashError::Io(5))));
        driver.settle(&mut store).unwrap();
        flash.set_plan(FaultPlan::default());
        let counters = store.counters();
        assert_eq!((counters.damaged, counters.repeated, counters.copied), (damaged, repeated, 4), "{op:?}");
        assert_at_rest(&driver);
        assert!((0..7).all(|subpage| {
            let place = store.map().get(subpage).unwrap().place;
            driver.read(place, 0).unwrap() == content(subpage)
        }));
    }
}
#[test]
fn a_failed_flush_ends_it() {
    let flash = faulty();
    let (mut driver, mut store) = made(&flash, 4);
    driver.settle(&mut store).unwrap();
    store.sync().unwrap();
    flash.set_plan(FaultPlan::rule(Some(Op::Flush), When::Nth(1), Fault::Fails(FlashError::Io(5))));
    assert_eq!(driver.settle(&mut store), Err(FlashError::Io(5)));
    assert_eq!(driver.flush(), Err(FlashError::Poisoned), "it is not tried again");
}
