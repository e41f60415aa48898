//! Goal: objects are packed, placed, retried and recorded as documented, to the last object.
//! Method: a store over pages in DRAM whose requests are examined, and numbers worked out by hand.

use fulgurite_format::Status;

use super::super::tests::{leave_free, made, settle};
use super::*;
use crate::geometry::Geometry;
use crate::geometry::RECLAIM_RESERVE;
use fulgurite_flash::FlashError;
use fulgurite_policy::Heat;

const PROGRAM: Stream = Stream::cold(Writer::Program);
const RECLAIM: Stream = Stream::cold(Writer::Reclaim);

/// 60 extents of seven flash pages for data: few, so that each writer has one of them open.
fn few() -> Geometry {
    Geometry::with_objects(60 * 8, 8, 8192).unwrap()
}
/// 400 of them.
fn many() -> Geometry {
    Geometry::with_objects(400 * 8, 8, 8192).unwrap()
}
fn store(geometry: Geometry) -> Store {
    made(geometry, StoreConfig::default()).0
}
use super::super::StoreConfig;

fn written(of: &[(u32, u16, u16)]) -> Vec<(u32, u16, u16)> {
    of.to_vec()
}
fn objects_of(page: &PackedPage) -> Vec<(u32, u16, u16)> {
    page.objects.iter().map(|object| (object.subpage, object.offset, object.length)).collect()
}
/// `count` objects with these bytes, of subpages from `first` on.
fn batch(first: u32, count: u32, bytes: &[u8]) -> Vec<(u32, &[u8])> {
    (first..first + count).map(|subpage| (subpage, bytes)).collect()
}
/// Where the objects of a subpage are stored.
fn at(store: &Store, subpage: u32) -> Option<fulgurite_format::ObjectLocation> {
    store.state.map().get(subpage).and_then(|located| store.state.objects().get(located.place))
}

#[test]
fn of_a_batch_the_longest_come_first_and_the_last_of_each_subpage_counts() {
    let heat = Heat::new(8192);
    let objects: [(u32, &[u8]); 6] = [(5, b"aa"), (3, &[1; 100]), (7, b"x"), (5, &[2; 50]), (7, b""), (9, &[3; 100])];
    let pages = pack(&objects, 9, Division::of_batch(&heat, few(), 253));
    assert_eq!(pages.len(), 2);
    assert_eq!(objects_of(&pages[0]), written(&[(3, 0, 100), (9, 112, 100), (5, 224, 50)]));
    let page = pages[0].page.as_ref().unwrap();
    assert!(page[..100] == [1; 100] && page[112..212] == [3; 100] && page[224..274] == [2; 50]);
    assert!(page[100..112].iter().chain(&page[274..]).all(|byte| *byte == 0));
    assert_eq!(pages[0].objects[2].checksum, crc32c(&[2; 50]));
    assert_eq!((pages[0].stage, pages[0].stream, pages[0].batch, pages[0].failed), (Stage::Waiting, PROGRAM, 9, 0));
    // What is freed has no location and is written at once.
    assert_eq!((objects_of(&pages[1]), pages[1].objects[0].checksum), (written(&[(7, 0, 0)]), 0));
    assert!(pages[1].page.is_none() && pages[1].stage == Stage::Written(0));
    // Hot ones are kept apart, where the batch is large.
    let mut heat = Heat::new(8192);
    (0..8).for_each(|_| heat.touch(8001));
    let (long, objects): (Vec<u8>, Vec<u32>) = (vec![4; 2000], (8000..8020).collect());
    let objects: Vec<(u32, &[u8])> = objects.into_iter().map(|subpage| (subpage, &long[..])).collect();
    let pages = pack(&objects, 1, Division::of_batch(&heat, many(), 40_000));
    let hot: Vec<u32> = pages.iter().filter(|p| p.stream.hot).flat_map(|p| &p.objects).map(|o| o.subpage).collect();
    assert_eq!((hot, pages.len()), (vec![8001], 10 + 1));
    let one = pack(&objects, 1, Division::of_batch(&heat, few(), 40_000));
    assert!(one.len() == 10 && one.iter().all(|page| page.stream == PROGRAM));
}
#[test]
fn status_of_a_page_that_is_written() {
    let default = Status::ALLOCATED.with(Status::READ).with(Status::WRITE).with(Status::PERMANENT);
    let read_only = Status::ALLOCATED.with(Status::READ);
    for (before, after) in [
        (Status::default(), default),
        (Status::DELETED, default),
        (Status::ALLOCATED.with(Status::DELETED), default),
        (Status::READ, default),
        (read_only, read_only),
        (Status::ALLOCATED, Status::ALLOCATED),
    ] {
        assert_eq!(status_when_written(before), after, "{before:?}");
    }
}
#[test]
fn an_extent_has_room_for_the_summary_of_all_its_objects() {
    // 504 owners are a page of it, and the last one is never full.
    for (count, pages) in [(1, 7), (71, 7), (72, 6), (100, 6), (256, 5)] {
        let mut store = store(few());
        let given: Vec<u32> = (0..8).map(|_| store.give_objects(PROGRAM, count, 8).unwrap()).collect();
        let first = given[0] / 8;
        let in_it = given.iter().filter(|place| **place / 8 == first).count();
        assert_eq!(in_it, pages, "{count} in each");
        assert!((0..in_it as u32).all(|n| given[n as usize] == first * 8 + n), "{given:?}");
        let log = store.log();
        let open = log.open[0].as_ref().unwrap();
        assert_eq!((open.extent, open.next as usize, open.pending as usize), (given[7] / 8, 8 - pages, 8 - pages));
        assert_eq!(open.promised, (8 - pages) * count);
        let full: Vec<(u32, u32, usize)> = log.settling.iter().map(|o| (o.extent, o.pending, o.promised)).collect();
        assert_eq!(full, [(first, pages as u32, pages * count)]);
    }
}
#[test]
fn objects_go_to_their_stream_or_to_the_other_one_and_never_to_flash_pages_that_failed() {
    let mut store = store(many());
    let free = store.extents.free();
    // Not without an extent beyond those that are to be left.
    assert_eq!(store.give_objects(PROGRAM, 1, free), None);
    let first = store.give_objects(PROGRAM, 1, free - 1).unwrap();
    // The other stream takes what that has open, and not reclaim's.
    assert_eq!(store.give_objects(PROGRAM.other(), 1, free - 1), Some(first + 1));
    assert_eq!(store.give_objects(RECLAIM, 1, free - 1), None);
    let copies = store.give_objects(RECLAIM, 1, 0).unwrap();
    assert_ne!(copies / 8, first / 8);
    store.unreadable(first + 2, FlashError::Corrupt);
    store.unreadable(first + 3, FlashError::Corrupt);
    store.condemn();
    assert_eq!(store.give_objects(PROGRAM, 1, free - 1), Some(first + 4));
    assert_eq!(store.give_objects(PROGRAM.other(), 1, 0).map(|place| place / 8 == first / 8), Some(false));
    // All that is left of it has failed: it is full.
    [5, 6].into_iter().for_each(|n| store.unreadable(first + n, FlashError::Corrupt));
    store.condemn();
    let next = store.give_objects(PROGRAM, 1, 0).unwrap();
    assert!(next / 8 != first / 8 && store.log().settling.len() == 1);
}
#[test]
fn a_bounded_amount_is_taken_at_once() {
    let whole = [5; 4096];
    // Of each length: as many as 64 flash pages hold, counting one that begins in the last, and at
    // most 1024.
    for (count, bytes, taken) in
        [(1000, 16, 1000), (1024, 16, 1024), (1025, 16, 1024), (70, 4096, 64), (70, 4095, 65), (64, 4096, 64)]
    {
        let mut store = store(many());
        let given = store.write_objects(&batch(0, count, &whole[..bytes])).unwrap();
        assert_eq!((given.taken, given.number), (taken, 0), "{count} of {bytes} bytes");
        let pages = store.log().queue.len();
        assert_eq!(pages, if bytes == 16 { taken.div_ceil(256) } else { taken });
        // 16 are written at a time.
        assert!(matches!(store.next_io(), Some((_, Io::Write { .. }))));
        assert_eq!(store.outbox.len(), pages.min(DEPTH) - 1);
        assert_eq!(store.placed, taken as u64);
        // When this number waits, no more are taken, and nothing is wrong.
        if pages >= WAITING_MAX {
            assert_eq!(store.write_objects(&batch(3000, 1, &whole[..16])), Ok(ObjectBatch { taken: 0, number: 1 }));
        }
    }
}
#[test]
fn a_batch_ends_when_all_of_it_is_what_programs_read() {
    let mut made = made(few(), StoreConfig::default());
    let (long, short) = ([1; 3000], [2; 16]);
    let given = made.0.write_objects(&[(1, &long), (2, &long), (3, &short), (4, b""), (20, &short)]).unwrap();
    assert_eq!((given.taken, made.0.uncommitted(), made.0.take_batch(given.number)), (5, 0, None));
    assert!(made.0.objects.as_ref().is_some_and(|log| !log.is_quiet()) && !made.0.is_quiet());
    // What is recorded is so in order: the second flash page waits for the first.
    let (first, Io::Write { place, page }) = made.0.next_io().unwrap() else { panic!("a flash page") };
    let (second, Io::Write { place: behind, page: other }) = made.0.next_io().unwrap() else { panic!("a flash page") };
    assert_eq!((behind, page[0], other[0]), (place + 1, 1, 1));
    made.0.done(second, Outcome::Done);
    assert_eq!((at(&made.0, 1), at(&made.0, 2), made.0.take_batch(given.number)), (None, None, None));
    made.0.done(first, Outcome::Done);
    let places = [1, 2, 3, 20].map(|subpage| at(&made.0, subpage).map(|at| (at.flash_page, at.offset, at.length)));
    assert_eq!(places, [(place, 0, 3000), (behind, 0, 3000), (place, 3008, 16), (place, 3024, 16)].map(Some));
    assert_eq!(at(&made.0, 4), Some(fulgurite_format::ObjectLocation::FREED));
    assert_eq!(made.0.take_batch(given.number), Some(Ok(())));
    assert_eq!(made.0.take_batch(given.number), None, "it is said once");
    let counters = made.0.counters();
    assert_eq!((counters.objects, counters.object_bytes, counters.object_pages), (5, 6032, 2));
    assert_eq!((made.0.uncommitted(), made.0.placed, made.0.log().grows, counters.metadata), (5, 0, 0, 0));
    settle(&mut made);
    // What is freed needs no write at all.
    let freed = made.0.write_objects(&[(1, b""), (2, b"")]).unwrap();
    assert_eq!((made.0.take_batch(freed.number), made.0.counters().object_pages), (Some(Ok(())), 2));
    // An empty batch is none.
    assert_eq!(made.0.write_objects(&[]).map(|batch| batch.taken), Ok(0));
}
/// Fails the first `fails` writes of objects. Returns where each was tried.
fn with_failures(
    (store, pages): &mut (Store, super::super::tests::Pages),
    fails: usize,
    error: FlashError,
) -> Vec<u32> {
    let mut tried = Vec::new();
    while !store.is_quiet() {
        let Some((id, io)) = store.next_io() else { continue };
        let outcome = match io {
            Io::Write { place, page } => {
                let of_objects = matches!(store.in_flight[&id], super::super::Purpose::Objects(_));
                tried.extend(of_objects.then_some(place));
                if of_objects && tried.len() <= fails {
                    Outcome::Failed(error)
                } else {
                    pages.0.insert(place, page);
                    Outcome::Done
                }
            }
            _ => Outcome::Done,
        };
        store.done(id, outcome);
    }
    tried
}
#[test]
fn a_flash_page_of_objects_is_tried_at_four_places() {
    for (fails, error, tries, result) in [
        (3, FlashError::Io(5), 4, Ok(())),
        (9, FlashError::Io(5), 4, Err(WriteError::Flash(FlashError::Io(5)))),
        (9, FlashError::Io(19), 1, Err(WriteError::Flash(FlashError::Io(19)))),
    ] {
        let mut made = made(few(), StoreConfig::default());
        made.0.write_objects(&[(3, b"before")]).unwrap();
        settle(&mut made);
        let bad = made.0.info().bad_pages;
        let given = made.0.write_objects(&[(3, b"behind it")]).unwrap();
        let tried = with_failures(&mut made, fails, error);
        let what = format!("{fails} fail by {error:?}");
        assert_eq!((tried.len(), made.0.take_batch(given.number)), (tries, Some(result)), "{what}");
        let all: std::collections::BTreeSet<u32> = tried.iter().copied().collect();
        assert_eq!(all.len(), tries, "{what}: at {tried:?}");
        assert_eq!(at(&made.0, 3).unwrap().length, if result.is_ok() { 9 } else { 6 }, "{what}");
        let counters = made.0.counters();
        assert_eq!((counters.repeated, counters.objects), (tries as u64 - 1, 1 + u64::from(result.is_ok())), "{what}");
        // The pool goes on; what failed is bad as soon as something was written elsewhere.
        assert_eq!((made.0.poisoned(), made.0.placed, made.0.log().grows), (None, 0, 0), "{what}");
        made.0.write_objects(&[(4, b"x")]).unwrap();
        settle(&mut made);
        let failed = if error == FlashError::Io(5) { fails.min(4) as u32 } else { 0 };
        assert_eq!((made.0.info().bad_pages - bad, made.0.state.audit()), (failed, Vec::<String>::new()), "{what}");
    }
}
#[test]
fn what_waits_for_space_that_does_not_come_is_notified() {
    let mut made = made(few(), StoreConfig::default());
    // Programs leave three to reclaim of subpages, two to metadata, one to a checkpoint, and two to
    // copies of objects.
    assert_eq!((made.0.reserve(), RECLAIM_RESERVE), (8, 3));
    leave_free(&mut made.0, 8);
    let given = made.0.write_objects(&[(3, b"no place")]).unwrap();
    assert_eq!(given.taken, 1);
    settle(&mut made);
    assert_eq!(made.0.take_batch(given.number), Some(Err(WriteError::NoSpace { uncommitted: 0 })));
    assert_eq!((at(&made.0, 3), made.0.counters().objects, made.0.placed), (None, 0, 0));
    // While something may bring some, a writer waits.
    let given = made.0.write_objects(&[(3, b"no place")]).unwrap();
    made.0.reclaim = Some(crate::reclaim::Reclaim::new(5, made.0.geometry()));
    made.0.advance_objects();
    assert_eq!((made.0.take_batch(given.number), made.0.log().queue.len()), (None, 1));
    // Once it is poisoned, all are notified.
    made.0.poison(FlashError::Io(5));
    assert_eq!(made.0.take_batch(given.number), Some(Err(WriteError::Poisoned(FlashError::Io(5)))));
}
/// Of several objects of a subpage, the one that is meant is given up, and no other.
#[test]
fn one_version_of_an_object_is_given_up() {
    let mut made = made(few(), StoreConfig::default());
    made.0.write_objects(&[(3, &[1; 100])]).unwrap();
    settle(&mut made);
    let token = made.0.sync().unwrap();
    made.0.write_objects(&[(3, &[2; 100]), (4, b"")]).unwrap();
    settle(&mut made);
    let slot = |store: &Store, subpage| store.state.map().get(subpage).unwrap().place;
    let (new, old) = (slot(&made.0, 3), made.0.state.located_at(3, token).unwrap().place);
    let [of_new, of_old] = [new, old].map(|slot| made.0.state.objects().get(slot).unwrap());
    assert_ne!(of_new, of_old);
    // What was freed has no location, and what is none of this subpage's is not given up.
    let freed = slot(&made.0, 4);
    assert_eq!((made.0.mark_object_lost(4, freed), made.0.mark_object_lost(3, freed)), (Ok(false), Ok(false)));
    assert_eq!(made.0.mark_object_lost(3, old), Ok(true));
    settle(&mut made);
    let objects = made.0.state.objects();
    assert_eq!((objects.get(new), objects.get(old) == Some(of_old)), (Some(of_new), false));
    let found = objects.get(old).unwrap();
    let bytes = &made.1.0[&found.flash_page][found.range()];
    assert_eq!((&bytes[..8], &bytes[8..12]), (&super::super::LOST_MAGIC[..], &3u32.to_le_bytes()[..]));
    assert_eq!((found.length, made.0.state.audit()), (100, Vec::<String>::new()));
    // Where there is no room that is said, and it stays where it is.
    leave_free(&mut made.0, 0);
    while made.0.give_objects(RECLAIM, 1, 0).is_some() {}
    let uncommitted = made.0.uncommitted();
    assert_eq!(made.0.mark_object_lost(3, new), Err(WriteError::NoSpace { uncommitted }));
    assert!(made.0.log().ready.is_empty() && made.0.state.objects().get(new) == Some(of_new));
}
/// The summary grows backward from the last flash page, and names the owners of each flash page.
#[test]
fn the_summary_of_an_extent_names_all_its_objects() {
    let mut made = made(few(), StoreConfig::default());
    let short = [9; 16];
    // Five flash pages of 256 each, and more that goes to the next extent.
    for first in [0, 1024] {
        let given = made.0.write_objects(&batch(first, 1024, &short)).unwrap();
        assert_eq!(given.taken, 1024);
        settle(&mut made);
    }
    let extent = at(&made.0, 0).unwrap().flash_page / 8;
    let mut named = Vec::new();
    for index in 0..3 {
        let page = &made.1.0[&(extent * 8 + 7 - index)];
        let (header, _, payload) = fulgurite_format::Header::open(page).unwrap();
        assert_eq!((header.kind, header.sequence), (fulgurite_format::Kind::Summary, u64::from(index)));
        let before = named.len();
        Owner::decode_all(payload, &mut named).unwrap();
        assert_eq!(named.len() - before, if index < 2 { 504 } else { 1280 - 2 * 504 });
    }
    named.sort_unstable_by_key(|owner| owner.subpage);
    let expected = (0..2048).filter_map(|subpage| {
        let place = at(&made.0, subpage).unwrap().flash_page;
        (place / 8 == extent).then_some(Owner { subpage, checksum: place })
    });
    assert_eq!(named, expected.collect::<Vec<_>>());
    // These five flash pages and no others hold objects.
    assert!((0..5).all(|n| made.1.0.contains_key(&(extent * 8 + n))));
    // One of which nothing is needed any more is free at once, without a summary.
    for first in [0, 1024] {
        made.0.write_objects(&batch(first, 1024, b"")).unwrap();
    }
    settle(&mut made);
    use crate::extents::Use;
    assert!(matches!(made.0.extents.use_of(extent), Use::Emptied { .. } | Use::Free));
    assert_eq!((made.0.state.objects().count(), made.0.state.objects().weight()), (2048, 0));
}
/// A store with DRAM for the leaves of `kept` pages, and objects in `pages` pages.
fn with_leaves(kept: usize, pages: u32) -> (Store, super::super::tests::Pages) {
    let mut made = made(many(), StoreConfig { leaf_bytes: 320 * kept, ..StoreConfig::default() });
    for page in 0..pages {
        let objects = batch(16 * page, 16, b"some bytes");
        let mut rest = &objects[..];
        for _ in 0..100 {
            rest = &rest[made.0.write_objects(rest).unwrap().taken..];
            settle(&mut made);
            if rest.is_empty() {
                break;
            }
        }
        assert!(rest.is_empty(), "page {page} waits for ever");
        made.0.sync().unwrap();
        settle(&mut made);
    }
    made
}
#[test]
fn a_cold_read_checks_few_leaves_where_none_of_many_can_leave() {
    use crate::recover::ReadPages;
    use crate::state::LEAF_BYTES;
    let (mut store, mut pages) = with_leaves(64, 200);
    let mut learn = |store: &mut Store, page: u32| {
        let flash_page = store.is_behind(page).expect("it is out");
        let content = pages.read(flash_page, 0).unwrap();
        store.learn(page, flash_page, &content).unwrap();
        assert!(!store.state.is_out(page));
    };
    let (out, here): (Vec<u32>, Vec<u32>) = (0..200).partition(|page| store.state.is_out(*page));
    here.iter().for_each(|page| store.state.pin_leaf(*page));
    let mut out = out.into_iter();
    while store.state.make_leaf_room(LEAF_BYTES) {
        let page = out.next().expect("more are out than there is room for");
        learn(&mut store, page);
        store.state.pin_leaf(page);
    }
    assert!(out.len() > 50, "{}", out.len());
    for page in out.clone() {
        let before = store.state.leaves_checked();
        learn(&mut store, page);
        assert!(store.state.leaves_checked() - before <= 6, "page {page}");
    }
    // All that came but the last have left again.
    assert_eq!(out.filter(|page| !store.state.is_out(*page)).count(), 1);
    assert_eq!(store.state.audit(), Vec::<String>::new());
}
#[test]
fn leaves_that_were_held_are_checked_again() {
    let mut made = with_leaves(64, 200);
    made.0.begin_checkpoint();
    settle(&mut made);
    let store = &mut made.0;
    let out = |store: &Store| (0..200).filter(|page| store.state.is_out(*page)).count();
    let (before, all) = (out(store), store.state.leaf_budget());
    store.state.hold_back_leaves(0..200, true);
    assert!(!store.state.make_leaf_room(all));
    assert_eq!(out(store), before, "held leaves went");
    store.state.hold_back_leaves(0..200, false);
    store.state.make_leaf_room(all);
    assert!(out(store) > before, "{before} of 200 are out");
    assert_eq!(store.state.audit(), Vec::<String>::new());
}
#[test]
fn a_leaf_that_no_piece_has_is_an_error_and_nobody_waits_for_it() {
    let mut made = with_leaves(8, 40);
    let out = (0..40).find(|page| made.0.state.is_out(*page)).expect("most are out");
    made.0.state.use_pieces(Vec::new());
    let flash_page = made.0.is_behind(out).expect("it is out");
    assert_eq!(made.0.learn(out, flash_page, &fulgurite_format::zero_page()), Err(FlashError::Corrupt));
    assert_eq!(made.0.hold_leaves(&[out]), Err(WriteError::Leaf(FlashError::Corrupt)));
    made.0.begin_checkpoint();
    settle(&mut made);
    assert_eq!(made.0.poisoned(), Some(FlashError::Corrupt));
}

/// No store makes such an extent, but a journal with right checksums may say that there is one.
#[test]
fn an_extent_of_objects_with_a_subpage_among_them_is_emptied() {
    let mut made = made(few(), StoreConfig::default());
    for first in [0, 1024] {
        assert_eq!(made.0.write_objects(&batch(first, 1024, &[9; 16])).unwrap().taken, 1024);
        settle(&mut made);
    }
    let extent = at(&made.0, 0).unwrap().flash_page / 8;
    let mut checksums = fulgurite_format::Checksums::EMPTY;
    checksums.push(77);
    let (status, start) =
        (status_when_written(Status::default()), fulgurite_format::FlashPage(u64::from(extent * 8 + 1)));
    made.0.record(Record::Write { page: 300, start, valid: 1, status, checksums }).unwrap();
    made.0.sync().unwrap();
    settle(&mut made);

    // As an opening finds it. The summary names all objects, and not the subpage.
    made.0 = crate::recover::recover(&mut made.1, StoreConfig::default()).unwrap().0;
    settle(&mut made);
    made.0.reclaim_extent(extent, true);
    settle(&mut made);
    assert!((0..2048).all(|subpage| at(&made.0, subpage).unwrap().flash_page / 8 != extent));
    assert_eq!((made.0.state.live(extent), made.0.state.objects().live(extent)), (1, 0));
    // What is left is of no object, and is copied as a subpage.
    made.0.reclaim_extent(extent, false);
    settle(&mut made);
    assert_eq!(made.0.state.live(extent), 0);
}
#[test]
fn no_journal_says_that_an_object_is_longer_than_its_flash_page() {
    let store = store(few());
    let written = |length, offset| {
        let mut written = fulgurite_format::ObjectsWritten::new(100, status_when_written(Status::default()));
        written.push(fulgurite_format::ObjectWritten { subpage: 4000, length, offset, checksum: 1 });
        store.state.may_write(&written)
    };
    assert!(written(4096, 0) && written(4080, 16));
    assert!(!written(0x7fff, 0) && !written(u16::MAX, 0) && !written(4097, 0) && !written(4081, 16));
}
