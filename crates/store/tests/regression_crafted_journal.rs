//! Goal: a journal that no store wrote, with right checksums, makes no pool hang or panic. It is
//! refused as damaged, or the pool goes on. Method: the journal of a pool of objects in memory,
//! with one record changed at a time: 0x7fffffff and other numbers at any byte, lengths and counts
//! that cannot be, objects and subpages in each other's places. Such a pool is opened, read,
//! compacted and filled, within half a minute.

use std::sync::Arc;

use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_format::{Checksums, FlashPage, ObjectWritten, ObjectsWritten, PoolId, Record, SUBPAGE_BYTES};
use fulgurite_store::{Geometry, Pool, StoreConfig};

use crate::world::{Random, crafted, trials};

const FLASH_PAGES: u32 = 512;

fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.keep_tokens = 3;
    config
}
/// A pool of 2,000 objects after some rounds of changes.
fn image() -> Vec<u8> {
    let memory = Arc::new(MemoryFlash::new(FLASH_PAGES).unwrap());
    let medium: Arc<dyn Flash> = memory.clone();
    let geometry = Geometry::with_objects(FLASH_PAGES, 16, 1 << 13).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let pool = Pool::open(medium, config()).unwrap().0;
    let mut random = Random(1);
    for round in 0..4 {
        let length = |subpage: u32| 1 + ((subpage * 7 + round) % 300) as usize;
        let value = [round as u8; 300];
        let all: Vec<(u32, &[u8])> = (0..2000).map(|subpage| (subpage, &value[..length(subpage)])).collect();
        let changed: Vec<(u32, &[u8])> = (0..200).map(|_| all[random.below(2000) as usize]).collect();
        pool.write_objects(if round == 0 { &all } else { &changed }).unwrap();
        pool.sync().unwrap();
    }
    drop(pool);
    let mut image = vec![0; FLASH_PAGES as usize * SUBPAGE_BYTES];
    memory.storage().read(0, &mut image);
    image
}
/// Uses the pool with this payload in place of one of its journal. Returns whether it was opened.
fn try_it(image: &[u8], place: u32, payload: &[u8], what: &str) -> bool {
    let mut image = image.to_vec();
    crafted::replace(&mut image, place, payload);
    crafted::within(what, move || {
        let memory = Arc::new(MemoryFlash::new(FLASH_PAGES).unwrap());
        memory.storage().write(0, &image);
        crafted::use_all(memory, config())
    })
}
/// A page of the journal with records of objects: its place and payload, and where these begin.
type PageOfObjects = (u32, Vec<u8>, Vec<(usize, ObjectsWritten)>);

fn pages_of_objects(image: &[u8]) -> Vec<PageOfObjects> {
    let pages = crafted::journal(image).into_iter().map(|place| {
        let payload = crafted::payload(image, place);
        let of_objects = crafted::records(&payload).into_iter().filter_map(|(at, record)| match record {
            Record::Objects(written) => Some((at, written)),
            _ => None,
        });
        (place, payload.clone(), of_objects.collect::<Vec<_>>())
    });
    let found: Vec<_> = pages.filter(|(.., records)| !records.is_empty()).collect();
    assert!(found.len() > 2, "the journal has {} pages with objects", found.len());
    found
}
/// A payload with another record in place of one.
fn with(payload: &[u8], at: usize, old: &Record, new: &Record) -> Vec<u8> {
    let (mut changed, mut replaced) = (payload[..at].to_vec(), Vec::new());
    new.encode(&mut changed);
    old.encode(&mut replaced);
    changed.extend_from_slice(&payload[at + replaced.len()..]);
    changed
}

#[test]
fn an_unchanged_journal_is_opened_and_used() {
    let image = image();
    let (place, payload, _) = pages_of_objects(&image).swap_remove(0);
    assert!(try_it(&image, place, &payload, "as it was"));
}

#[test]
fn numbers_of_four_bytes_anywhere_in_a_record_are_refused_or_gone_on_from() {
    let image = image();
    let pages = pages_of_objects(&image);
    let mut random = Random(trials::seed());
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..trials::runs(500) {
        let (place, payload, records) = &pages[random.below(pages.len() as u32) as usize];
        let (first, written) = &records[random.below(records.len() as u32) as usize];
        let at = first + random.below(4 + 11 * written.as_slice().len() as u32) as usize;
        let number = [0x7fff_ffff, 0, u32::MAX, 1, 0x1000_0000, random.below(u32::MAX)][random.below(6) as usize];
        let mut payload = payload.clone();
        payload[at..at + 4].copy_from_slice(&number.to_le_bytes());
        let what = format!("{number:#x} at byte {at} of flash page {place}, whose record begins at {first}");
        *if try_it(&image, *place, &payload, &what) { &mut opened } else { &mut refused } += 1;
    }
    println!("{opened} opened, {refused} refused");
    assert!(opened > 0 && refused > 0);
}

#[test]
fn a_length_beyond_the_flash_page_and_a_wrong_count_are_refused() {
    let image = image();
    let (place, payload, records) = pages_of_objects(&image).swap_remove(0);
    let (at, written) = &records[0];
    // Behind the kind, status, flash page and count: subpage 4, and the length.
    let length = at + 7 + 4;
    for number in [0x7fff_ffffu32, 0x00ff_1001, 0xffff_ffff] {
        let mut payload = payload.clone();
        payload[length..length + 4].copy_from_slice(&number.to_le_bytes());
        assert!(!try_it(&image, place, &payload, "a length"), "{number:#x}");
    }
    for count in [0, 11, 0x7f, u8::MAX] {
        let mut payload = payload.clone();
        payload[at + 6] = count;
        assert!(!try_it(&image, place, &payload, "a count"), "{count} for {}", written.as_slice().len());
    }
}

#[test]
fn objects_and_subpages_in_each_others_places_are_refused_or_gone_on_from() {
    let image = image();
    let pages = pages_of_objects(&image);
    let (place, payload, records) = &pages[pages.len() / 2];
    let (at, written) = records[records.len() / 2];
    let old = Record::Objects(written);
    let rewritten = |flash_page, change: &dyn Fn(ObjectWritten) -> ObjectWritten| {
        let mut new = ObjectsWritten::new(flash_page, written.status);
        written.as_slice().iter().for_each(|object| new.push(change(*object)));
        Record::Objects(new)
    };
    let journal = crafted::journal(&image);
    let mut tried: Vec<(String, Record)> = Vec::new();
    // All of a flash page under each number, all at the same byte, all of the same subpage.
    let whole = |object: ObjectWritten| ObjectWritten { length: 4096, offset: 0, ..object };
    tried.push(("whole flash pages".into(), rewritten(written.flash_page, &whole)));
    let same = |object: ObjectWritten| ObjectWritten { length: 16, offset: 0, ..object };
    tried.push(("one place".into(), rewritten(written.flash_page, &same)));
    tried.push(("one subpage".into(), rewritten(written.flash_page, &|o| ObjectWritten { subpage: 5, ..o })));
    let freed = |object: ObjectWritten| ObjectWritten { length: 0, offset: 0, checksum: 0, ..object };
    tried.push(("freed with a flash page".into(), rewritten(written.flash_page, &freed)));
    // In the superblock, in the journal itself, at the end of an extent and of the flash.
    for flash_page in [0, 1, journal[0], *journal.last().unwrap(), *place, written.flash_page | 15, FLASH_PAGES - 1] {
        tried.push((format!("objects in flash page {flash_page}"), rewritten(flash_page, &|object| object)));
        for (valid, checksums) in [(1, 1), (0xffff, 16)] {
            let mut made = Checksums::EMPTY;
            (0..checksums).for_each(|checksum| made.push(checksum));
            let start = FlashPage(flash_page.into());
            let status = written.status;
            let write = Record::Write { page: 300, start, valid, status, checksums: made };
            tried.push((format!("{checksums} subpages from flash page {flash_page}"), write));
        }
    }
    // Objects move to where others are, or from where none is.
    let object = written.as_slice()[0];
    for (from, flash_page) in [(written.flash_page, written.flash_page), (7, written.flash_page), (0, 0)] {
        let mut moved = fulgurite_format::ObjectsMoved::new(flash_page);
        for offset in [0, 0, 4080] {
            let (subpage, from_offset) = (object.subpage, object.offset);
            moved.push(fulgurite_format::ObjectMoved { subpage, from, from_offset, offset });
        }
        tried.push((format!("moves from {from} to {flash_page}"), Record::MoveObjects(moved)));
    }
    let mut opened = 0;
    for (what, new) in &tried {
        let is_opened = try_it(&image, *place, &with(payload, at, &old, new), what);
        println!("{what}: {}", if is_opened { "opened" } else { "refused" });
        opened += usize::from(is_opened);
    }
    assert!(opened > 0 && opened < tried.len(), "{opened} of {}", tried.len());
}
