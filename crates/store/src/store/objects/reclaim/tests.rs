//! Goal: an extent of objects is emptied by its summary, or by a walk where that is incomplete.
//! Needed objects are moved, each flash page is read once, and the unreadable or unwritable stays.
//! Method: packing against numbers worked out by hand, then a store over pages in DRAM whose
//! requests are examined.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_policy::Heat;

use super::super::super::tests::{Pages, made, settle};
use super::super::super::{Purpose as Any, StoreConfig};
use super::*;
use crate::extents::Use;
use crate::geometry::Geometry;

const COLD: Stream = Stream::cold(Writer::Reclaim);

/// Objects of these lengths, one behind the other.
fn found(lengths: &[u16]) -> Vec<Found> {
    let mut packer = Packer::new();
    let places = lengths.iter().map(|length| (packer.put(*length), *length));
    let mut found: Vec<Found> = (0..)
        .zip(places)
        .map(|(subpage, ((page, offset), length))| {
            let at = ObjectLocation { flash_page: 40 + page as u32, offset, length };
            Found { subpage, slot: subpage | 1 << 31, at, checksum: 0 }
        })
        .collect();
    found.sort_unstable_by_key(|found| (found.at.flash_page, found.at.offset));
    found
}
/// All that is planned is moved somewhere, once, without overlaps, and flash pages are numbered
/// from 0 on.
fn assert_sound(found: &[Found], planned: &[Planned], pages: usize) {
    let key = |found: &Found| (found.subpage, found.slot);
    let planned_of: BTreeSet<_> = planned.iter().map(|planned| key(&planned.found)).collect();
    assert_eq!((planned_of, planned.len()), (found.iter().map(key).collect(), found.len()));
    let mut taken: BTreeMap<u32, Vec<(u16, u16)>> = BTreeMap::new();
    for planned in planned {
        let end = planned.offset + planned.found.at.length;
        assert!(planned.offset.is_multiple_of(16) && end <= 4096, "{planned:?}");
        taken.entry(planned.page).or_default().push((planned.offset, end));
    }
    assert_eq!(taken.keys().copied().collect::<Vec<_>>(), (0..pages as u32).collect::<Vec<_>>());
    for ranges in taken.values_mut() {
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "{ranges:?}");
    }
    // In the order in which they are stored, so that each flash page is read once.
    let at: Vec<_> = planned.iter().map(|planned| (planned.found.at.flash_page, planned.found.at.offset)).collect();
    assert!(at.is_sorted(), "{at:?}");
}

#[test]
fn objects_stay_in_order_unless_that_costs_flash_pages() {
    // In order they take three flash pages, because no long one fits in a page with the two short
    // ones. By length they take two, full to the last unit.
    let all = found(&[1380, 1380, 2700, 2700]);
    for (worth, enough, pages) in [(1, 9, 2), (1, 2, 2), (2, 9, 3), (2, 3, 3), (2, 2, 2), (3, 2, 2), (3, 3, 3)] {
        let (planned, count) = pack_again(&all, COLD, worth, enough);
        assert_eq!(count, pages, "worth {worth}, enough {enough}");
        assert_sound(&all, &planned, count);
        assert!(planned.iter().all(|planned| planned.stream == COLD));
    }
    // A unit more, and by length it is no better: they stay in order.
    let all = found(&[1380, 1390, 2700, 2710]);
    let (planned, count) = pack_again(&all, COLD.other(), 1, 2);
    assert_eq!(
        (count, planned.iter().map(|p| (p.page, p.offset)).collect::<Vec<_>>()),
        (3, {
            let mut packer = Packer::new();
            all.iter().map(|found| packer.put(found.at.length)).map(|(page, offset)| (page as u32, offset)).collect()
        })
    );
    assert!(planned.iter().all(|planned| planned.stream == COLD.other()));
    assert_eq!(pack_again(&[], COLD, 1, 1), (Vec::new(), 0));
}
#[test]
fn model_all_that_is_packed_is_put_somewhere() {
    let mut state = fulgurite_testkit::Random(5);
    let mut random = |below: u64| state.below(below);
    let mut heat = Heat::new(1 << 12);
    let g = Geometry { extent_pages: 64, extents: 200, subpages: 1 << 12, objects: true };
    for round in 0..300 {
        let lengths: Vec<u16> = (0..1 + random(120)).map(|_| 1 + (random(4096) >> random(5)) as u16).collect();
        (0..40).for_each(|_| heat.touch(random(120) as u32));
        let all = found(&lengths);
        let (worth, enough) = (1 + random(3) as usize, random(40) as usize);
        let (planned, pages) = pack_again(&all, COLD, worth, enough);
        assert_sound(&all, &planned, pages);
        let division = Division::of_copies(&heat, g);
        let (planned, apart) = pack_apart(&all, division, worth, enough);
        assert_sound(&all, &planned, apart);
        // A flash page has objects of one stream. Apart, they take more only where that is enough.
        let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
        for planned in &planned {
            assert_eq!(*streams.entry(planned.page).or_insert(planned.stream), planned.stream, "round {round}");
        }
        assert!(apart <= pages || apart <= enough, "round {round}: {apart}, {pages}, {enough}");
    }
}
#[test]
fn hot_and_cold_are_packed_apart_where_there_is_enough_of_both() {
    let g = Geometry { extent_pages: 64, extents: 200, subpages: 1 << 12, objects: true };
    // Objects of a flash page each, of which the first `hot` are hot. More than two flash pages of
    // each kind are divided.
    for (cold, hot, enough, divided) in
        [(3, 3, 6, true), (3, 3, 5, false), (2, 9, 20, false), (9, 2, 20, false), (3, 9, 12, true), (3, 9, 11, false)]
    {
        let mut heat = Heat::new(1 << 12);
        (0..hot).for_each(|subpage| (0..8).for_each(|_| heat.touch(3000 + subpage)));
        let mut all = found(&vec![4096; cold + hot as usize]);
        for (found, number) in all.iter_mut().zip(0..) {
            found.subpage = if number < hot { 3000 + number } else { 100 + number };
        }
        let (planned, pages) = pack_apart(&all, Division::of_copies(&heat, g), 1, enough);
        let what = format!("{cold} cold, {hot} hot, {enough} are enough");
        assert_eq!(pages, cold + hot as usize, "{what}");
        assert_sound(&all, &planned, pages);
        let is_hot = |planned: &&Planned| planned.stream == COLD.other();
        let of_hot: Vec<u32> = planned.iter().filter(is_hot).map(|planned| planned.found.subpage).collect();
        if divided {
            assert!(of_hot.len() == hot as usize && of_hot.iter().all(|subpage| *subpage >= 3000), "{what}");
            // Behind the cold ones.
            assert!(planned.iter().filter(is_hot).all(|planned| planned.page >= cold as u32), "{what}");
        } else {
            // All belong to the kind of which there is more; if both are equal, to the cold one.
            assert_eq!(of_hot.len(), if hot as usize > cold { pages } else { 0 }, "{what}");
        }
    }
}
#[test]
fn a_flash_page_is_full_when_all_that_is_put_there_has_come_or_is_left_out() {
    let mut reclaim = ObjectReclaim::new(5, false);
    reclaim.to_come = vec![3, 1];
    let planned = |subpage, page, offset| {
        let at = ObjectLocation { flash_page: 40, offset: 0, length: 4 };
        Planned { found: Found { subpage, slot: 7, at, checksum: 0 }, page, offset, stream: COLD }
    };
    assert!(reclaim.put(planned(1, 0, 0), Some(b"abcd")).is_none());
    assert!(reclaim.put(planned(2, 0, 16), None).is_none());
    // Where nothing has come there is nothing to write.
    assert!(reclaim.put(planned(4, 1, 0), None).is_none());
    let page = reclaim.put(planned(3, 0, 32), Some(b"efgh")).unwrap();
    assert_eq!((&page.page[..4], &page.page[16..20], &page.page[32..36]), (&b"abcd"[..], &[0; 4][..], &b"efgh"[..]));
    let objects: Vec<(u32, u16)> = page.objects.iter().map(|(found, offset)| (found.subpage, *offset)).collect();
    assert_eq!((objects, reclaim.filling.len(), &reclaim.to_come), (vec![(1, 0), (3, 32)], 0, &vec![0, 0]));
}

/// A pool with an extent of 1280 objects in five flash pages, every other one freed since. And the
/// extent.
fn half_dead() -> ((Store, Pages), u32) {
    let g = Geometry::with_objects(60 * 8, 8, 8192).unwrap();
    let mut made = made(g, StoreConfig::default());
    for first in [0, 1024] {
        let bytes: Vec<[u8; 16]> = (first..first + 1024).map(content).collect();
        let all: Vec<(u32, &[u8])> = (first..).zip(&bytes).map(|(subpage, bytes)| (subpage, &bytes[..])).collect();
        assert_eq!(made.0.write_objects(&all).unwrap().taken, 1024);
        settle(&mut made);
    }
    let extent = at(&made.0, 0).flash_page / 8;
    let freed: Vec<(u32, &[u8])> = (0..1280).step_by(2).map(|subpage| (subpage, &b""[..])).collect();
    made.0.write_objects(&freed).unwrap();
    settle(&mut made);
    assert_eq!(made.0.extents.use_of(extent), Use::Closed);
    (made, extent)
}
fn content(subpage: u32) -> [u8; 16] {
    let mut bytes = [0xA5; 16];
    bytes[..4].copy_from_slice(&subpage.to_le_bytes());
    bytes
}
fn at(store: &Store, subpage: u32) -> ObjectLocation {
    let located = store.state.map().get(subpage).unwrap();
    store.state.objects().get(located.place).unwrap()
}
/// What programs see is what was written.
fn check((store, pages): &(Store, Pages), but: &[u32]) {
    assert_eq!(store.state.audit(), Vec::<String>::new());
    for subpage in (0..2048).filter(|subpage| !but.contains(subpage)) {
        let at = at(store, subpage);
        if subpage < 1280 && subpage.is_multiple_of(2) {
            assert_eq!(at, ObjectLocation::FREED);
            continue;
        }
        assert_eq!(pages.0[&at.flash_page][at.range()], content(subpage), "subpage {subpage}");
    }
}
/// What is asked for, and what becomes of it.
fn run(
    made: &mut (Store, Pages),
    mut other: impl FnMut(&mut Store, Purpose, &Io) -> Option<Outcome>,
) -> Vec<(Purpose, u32)> {
    let mut all = Vec::new();
    while !made.0.is_quiet() {
        let Some((id, io)) = made.0.next_io() else { continue };
        let purpose = if let Any::Objects(purpose) = made.0.in_flight[&id] { Some(purpose) } else { None };
        let outcome = purpose.and_then(|purpose| other(&mut made.0, purpose, &io)).unwrap_or_else(|| match &io {
            Io::Write { place, page } => {
                made.1.0.insert(*place, page.clone());
                Outcome::Done
            }
            Io::Read { place } => Outcome::Read(made.1.0.get(place).cloned().unwrap_or_else(zero_page)),
            Io::Copy { .. } => panic!("objects are not copied by the flash page"),
            Io::Flush => Outcome::Done,
        });
        if let (Some(purpose), Io::Write { place, .. } | Io::Read { place }) = (purpose, &io) {
            all.push((purpose, *place));
        }
        made.0.done(id, outcome);
    }
    all
}
fn summaries(all: &[(Purpose, u32)]) -> Vec<u32> {
    all.iter().filter(|(purpose, _)| *purpose == Purpose::Summary).map(|(_, place)| *place).collect()
}
fn sources(all: &[(Purpose, u32)]) -> Vec<u32> {
    all.iter().filter(|(purpose, _)| matches!(purpose, Purpose::Source(_))).map(|(_, place)| *place).collect()
}
fn moves(all: &[(Purpose, u32)]) -> Vec<u32> {
    all.iter().filter(|(purpose, _)| matches!(purpose, Purpose::Move(_))).map(|(_, place)| *place).collect()
}

#[test]
fn an_extent_is_emptied_by_what_its_summary_says() {
    let (mut made, extent) = half_dead();
    let before = made.0.counters();
    assert!(made.0.begin_reclaim() && made.0.log().reclaim_moves() == Some(true));
    assert_eq!(made.0.log().copied_from(), None);
    let mut walked = false;
    let all = run(&mut made, |store, purpose, _| {
        let copied_from = store.log().copied_from();
        let reclaim = store.log().reclaim.as_ref().unwrap();
        walked |= reclaim.walked;
        // From when it is known where they go.
        assert_eq!(copied_from, (purpose != Purpose::Summary).then_some(extent));
        None
    });
    // Backward from the last flash page, while one is full. Then each flash page once, in order.
    // 640 objects are three.
    assert_eq!(summaries(&all), [7, 6, 5].map(|n| extent * 8 + n));
    assert_eq!(sources(&all), [0, 1, 2, 3, 4].map(|n| extent * 8 + n));
    assert_eq!((moves(&all).len(), walked), (3, false));
    let counters = made.0.counters();
    assert_eq!((counters.reclaimed - before.reclaimed, counters.object_pages_copied, counters.copied), (1, 3, 0));
    assert_eq!((counters.damaged, counters.repeated, counters.object_pages), (0, 0, before.object_pages));
    assert!(matches!(made.0.extents.use_of(extent), Use::Emptied { .. } | Use::Free) && made.0.is_quiet());
    check(&made, &[]);
    // It is what is found when the pool is opened again.
    made.0.sync().unwrap();
    settle(&mut made);
    let (store, _) = crate::recover::recover(&mut made.1, StoreConfig::default()).unwrap();
    check(&(store, made.1), &[]);
}
#[test]
fn what_is_no_page_of_the_summary_is_not_believed_and_a_walk_finds_the_rest() {
    let page = |made: &(Store, Pages), index: u32, extent: u32| made.1.0[&(extent * 8 + 7 - index)].clone();
    let owner = Owner { subpage: 1, checksum: 0 };
    // A damaged page; pages of another pool, another place and another number; and one of another
    // kind.
    let pool = fulgurite_format::PoolId([1; 16]);
    let made_here = |made: &(Store, Pages), place: u32, number: u32| {
        super::super::super::summary_page(made.0.pool, place, number, 1, &[owner; 504])
    };
    for (wrong, read) in [(0, 3), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2)] {
        let (mut made, extent) = half_dead();
        let second = extent * 8 + 6;
        let replaced = match wrong {
            0 => page(&made, 1, extent),
            1 => zero_page(),
            2 => super::super::super::summary_page(pool, second, 1, 1, &[owner; 504]),
            3 => made_here(&made, second - 1, 1),
            4 => made_here(&made, second, 2),
            _ => {
                let header = Header { kind: Kind::Journal, ..Header::open(&page(&made, 1, extent)).unwrap().0 };
                header.page(&[0; 4032]).0
            }
        };
        made.1.0.insert(second, replaced);
        assert!(made.0.begin_reclaim());
        let mut walked = false;
        let all = run(&mut made, |store, purpose, _| {
            walked |= store.log().reclaim.as_ref().unwrap().walked;
            assert!(purpose != Purpose::Summary || !walked);
            None
        });
        assert_eq!((summaries(&all).len(), walked), (read, wrong > 0), "{wrong}");
        assert_eq!((sources(&all).len(), made.0.counters().reclaimed), (5, 1), "{wrong}");
        check(&made, &[]);
    }
}
#[test]
fn damage_is_counted_and_moved_as_it_is() {
    let (mut made, extent) = half_dead();
    let victim = at(&made.0, 1);
    assert_eq!(victim.flash_page / 8, extent);
    made.1.0.get_mut(&victim.flash_page).unwrap()[usize::from(victim.offset) + 9] ^= 1;
    let checksum = made.0.state.map().get(1).unwrap().checksum;
    assert!(made.0.begin_reclaim());
    run(&mut made, |_, _, _| None);
    let counters = made.0.counters();
    assert_eq!((counters.damaged, counters.reclaimed, counters.object_pages_copied), (1, 1, 3));
    // Readers find out, because its checksum is the one of what was written.
    let found = at(&made.0, 1);
    assert_ne!(found.flash_page / 8, extent);
    let bytes = &made.1.0[&found.flash_page][found.range()];
    assert!(crc32c(bytes) != checksum && made.0.state.map().get(1).unwrap().checksum == checksum);
    assert_eq!(made.0.state.wear().places(), [victim.flash_page]);
    check(&made, &[1]);
}
#[test]
fn what_cannot_be_read_stays_where_it_is_and_all_else_is_moved() {
    for (error, stuck) in [(FlashError::Io(5), true), (FlashError::Io(11), false)] {
        let (mut made, extent) = half_dead();
        let bad = at(&made.0, 1).flash_page;
        let here = |store: &Store| (1..1280).step_by(2).filter(|s| at(store, *s).flash_page / 8 == extent).count();
        let of_it = (1..1280).step_by(2).filter(|s| at(&made.0, *s).flash_page == bad).count();
        assert_eq!((here(&made.0), of_it > 100), (640, true));
        assert!(made.0.begin_reclaim());
        let mut tries = 0;
        run(&mut made, |_, purpose, _| {
            let fails = purpose == Purpose::Source(bad);
            tries += u32::from(fails);
            fails.then_some(Outcome::Failed(error))
        });
        // An error that is not about the flash page is followed by one more try, by a walk.
        assert_eq!((here(&made.0), tries), (of_it, if stuck { 1 } else { 2 }), "{error:?}");
        let counters = made.0.counters();
        assert_eq!((counters.damaged, counters.reclaimed), (u64::from(tries), 0), "{error:?}");
        assert_eq!((made.0.extents.use_of(extent), made.0.log().is_quiet()), (Use::Closed, true));
        check(&made, &[]);
        // It is not tried again while as much is there, unless it was not the flash page.
        assert_eq!(made.0.begin_reclaim(), !stuck, "{error:?}");
    }
}
#[test]
fn what_cannot_be_written_is_tried_elsewhere_so_often() {
    for (fails, error, tried) in [(16, FlashError::Io(5), 16), (99, FlashError::Io(5), 16), (99, FlashError::Io(19), 0)]
    {
        let (mut made, extent) = half_dead();
        assert!(made.0.begin_reclaim());
        // All of one flash page: the others are written.
        let (mut left, mut first) = (fails, None);
        let all = run(&mut made, |store, purpose, io| {
            let (Purpose::Move(_), Io::Write { page, .. }) = (purpose, io) else { return None };
            assert!(store.log().moving.len() + store.log().ready.len() <= MOVED_MAX);
            let fails = left > 0 && *first.get_or_insert_with(|| page[..8].to_vec()) == page[..8];
            left -= i32::from(fails);
            fails.then_some(Outcome::Failed(error))
        });
        let counters = made.0.counters();
        let what = format!("{fails} fail by {error:?}");
        assert_eq!(counters.repeated, tried, "{what}");
        if fails == 16 {
            assert_eq!((moves(&all).len(), counters.object_pages_copied, counters.reclaimed), (19, 3, 1), "{what}");
            let places: BTreeSet<u32> = moves(&all).into_iter().collect();
            assert_eq!((places.len(), made.0.info().bad_pages), (19, 16), "{what}");
        } else {
            assert_eq!(counters.reclaimed, 0, "{what}");
            assert!((1..1280).step_by(2).any(|subpage| at(&made.0, subpage).flash_page / 8 == extent), "{what}");
        }
        assert_eq!(made.0.poisoned(), None);
        check(&made, &[]);
    }
}
/// An object overwritten during its read or copy has its last content.
#[test]
fn what_is_overwritten_meanwhile_is_not_moved() {
    for during in [Purpose::Summary, Purpose::Source(0), Purpose::Move(0)] {
        let (mut made, extent) = half_dead();
        assert!(made.0.begin_reclaim());
        let mut done = false;
        run(&mut made, |store, purpose, _| {
            if std::mem::discriminant(&purpose) == std::mem::discriminant(&during)
                && !std::mem::replace(&mut done, true)
            {
                let batch = store.write_objects(&[(1, b"newer"), (3, b"")]).unwrap();
                assert_eq!(batch.taken, 2);
            }
            None
        });
        let found = at(&made.0, 1);
        assert_eq!((found.length, &made.1.0[&found.flash_page][found.range()]), (5, &b"newer"[..]), "{during:?}");
        assert_eq!((at(&made.0, 3), made.0.counters().reclaimed), (ObjectLocation::FREED, 1), "{during:?}");
        assert_eq!((made.0.state.live(extent), made.0.counters().damaged), (0, 0), "{during:?}");
        check(&made, &[1, 3]);
    }
}
/// What would take as many flash pages again is left alone, and not tried again before that
/// changes, unless it must go.
#[test]
fn nothing_is_moved_for_nothing() {
    let g = Geometry::with_objects(60 * 8, 8, 8192).unwrap();
    for forced in [false, true] {
        let mut made = made(g, StoreConfig::default());
        let long = [3; 2100];
        let all: Vec<(u32, &[u8])> = (0..8).map(|subpage| (subpage, &long[..])).collect();
        made.0.write_objects(&all).unwrap();
        settle(&mut made);
        let extent = at(&made.0, 0).flash_page / 8;
        assert_eq!(made.0.extents.victim_among(extent..extent + 1, None, |_| (0, 0)), Some(extent));
        made.0.reclaim_objects(extent, forced);
        let all = run(&mut made, |_, _, _| None);
        assert_eq!((sources(&all).len(), moves(&all).len()), if forced { (7, 7) } else { (0, 0) });
        assert_eq!(made.0.counters().reclaimed, u64::from(forced));
        assert_eq!(made.0.extents.use_of(extent) == Use::Closed, !forced);
        assert!(!made.0.begin_reclaim());
        assert_eq!(made.0.state.audit(), Vec::<String>::new());
    }
}
#[test]
fn few_flash_pages_are_read_and_moved_at_a_time() {
    let g = Geometry::with_objects(60 * 64, 64, 8192).unwrap();
    let mut made = made(g, StoreConfig::default());
    let long = [3; 1000];
    for first in (0..280).step_by(56) {
        let all: Vec<(u32, &[u8])> = (first..first + 56).map(|subpage| (subpage, &long[..])).collect();
        assert_eq!(made.0.write_objects(&all).unwrap().taken, 56);
        settle(&mut made);
    }
    let extent = at(&made.0, 0).flash_page / 64;
    let freed: Vec<(u32, &[u8])> = (0..240).step_by(2).map(|subpage| (subpage, &b""[..])).collect();
    made.0.write_objects(&freed).unwrap();
    settle(&mut made);
    assert!(made.0.begin_reclaim());
    let (id, Io::Read { place }) = made.0.next_io().unwrap() else { panic!("the summary is read first") };
    assert_eq!(place, extent * 64 + 63);
    made.0.done(id, Outcome::Read(made.1.0[&place].clone()));
    let mut reads = Vec::new();
    while let Some((id, io)) = made.0.next_io() {
        assert!(matches!(io, Io::Read { .. }));
        reads.push(id);
    }
    assert_eq!(reads.len(), DEPTH);
    // From there they are read one at a time, until enough of them wait for their writes that no
    // more begin.
    let mut writes = 0;
    while let Some(id) = reads.pop() {
        made.0.done(id, Outcome::Read(zero_page()));
        while let Some((id, io)) = made.0.next_io() {
            match io {
                Io::Read { .. } => reads.push(id),
                Io::Write { .. } => writes += 1,
                _ => panic!("{io:?}"),
            }
        }
        let waiting = made.0.log().ready.len() + made.0.log().moving.len();
        assert!(reads.len() <= DEPTH && waiting <= MOVED_MAX + DEPTH, "{} and {waiting}", reads.len());
    }
    assert!((MOVED_MAX..=MOVED_MAX + DEPTH).contains(&writes), "{writes}");
}
