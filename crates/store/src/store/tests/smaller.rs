//! What the store is asked for: to give up the unreadable, and to become smaller, step by step.

use super::upkeep::{all_of, places, settle_with};
use super::*;
use crate::extents::Use;
use crate::geometry::RECLAIM_AHEAD;

#[test]
fn what_cannot_be_read_is_given_up_where_it_is() {
    let mut made = made(small(), StoreConfig { keep_tokens: 2, ..StoreConfig::default() });
    write(&mut made.0, 0..40);
    let token = made.0.sync().unwrap();
    write(&mut made.0, 21..22);
    settle(&mut made);
    let store = &mut made.0;
    let now = |store: &Store| store.state().map().get(21).unwrap().place;
    let then = |store: &Store| store.state().located_at(21, token).unwrap().place;
    let (new, old) = (now(store), then(store));
    assert_ne!(new, old);
    // What has moved is not needed here.
    assert_eq!((store.mark_lost(22, new), store.mark_lost(21, new + 1)), (Ok(false), Ok(false)));
    assert_eq!(store.mark_lost(21, new), Ok(true));
    let all = all_of(&mut made);
    let written = places(&all, |purpose| matches!(purpose, Purpose::Lost { .. }));
    assert_eq!((now(&made.0), then(&made.0)), (written[0], old));
    let page = &made.1.0[&written[0]];
    assert_eq!((&page[..8], &page[8..12]), (&LOST_MAGIC[..], &21u32.to_le_bytes()[..]));
    assert_ne!(fulgurite_format::crc32c(&page[..]), CHECKSUM);
    // It is durable by itself; also the old one can be given up.
    assert!(all.iter().any(|(_, io)| *io == Io::Flush));
    assert_eq!(made.0.mark_lost(21, old), Ok(true));
    settle(&mut made);
    assert_eq!(now(&made.0), written[0]);
    assert_ne!(then(&made.0), old);
    assert_eq!(
        (made.0.state().map().get(21).unwrap().checksum, made.0.state().audit()),
        (CHECKSUM, Vec::<String>::new())
    );
    // Without room that is said, and nothing changes.
    let extents = made.0.extents.free();
    while made.0.extents.give(Writer::Reclaim, 0, extents, made.0.state.wear()).is_some() {}
    leave_free(&mut made.0, 3);
    let uncommitted = made.0.uncommitted();
    assert_eq!(made.0.mark_lost(21, written[0]), Err(WriteError::NoSpace { uncommitted }));
}
/// Whatever the checksum was, what stands for the content has another.
#[test]
fn what_stands_for_lost_content_never_has_its_checksum() {
    let mut made = made(small(), StoreConfig::default());
    // The checksum of the page which would be written.
    let mut page = zero_page();
    page[..8].copy_from_slice(&LOST_MAGIC);
    page[8..12].copy_from_slice(&3u32.to_le_bytes());
    let checksum = fulgurite_format::crc32c(&page[..]);
    let mut writes: Vec<_> = place(&mut made.0, 3..4).into_iter().map(|(s, place, _)| (s, place, checksum)).collect();
    made.0.written(&mut writes).unwrap();
    assert_eq!(made.0.mark_lost(3, writes[0].1), Ok(true));
    let written = places(&all_of(&mut made), |purpose| matches!(purpose, Purpose::Lost { .. }));
    let found = &made.1.0[&written[0]];
    assert_eq!((&found[..12], found[12]), (&page[..12], 1));
    assert_ne!(fulgurite_format::crc32c(&found[..]), checksum);
}

/// Continues until the pool may have `to` extents, or it is said that it may not.
fn shrink(made: &mut (Store, Pages), to: u32) -> Result<u32, ResizeError> {
    for step in 0..1000 {
        settle(made);
        if made.0.shrink(to)? == Shrink::Done {
            return Ok(step);
        }
    }
    panic!("it never comes to an end");
}
/// Nothing behind an end is used, by anybody.
fn assert_clear(made: &mut (Store, Pages), to: u32) {
    let store = &made.0;
    for extent in to..store.geometry().extents {
        assert!(matches!(store.extents.use_of(extent), Use::Free | Use::Retired), "{extent}: {:?}", store.uses());
    }
    assert!(store.journal.extents.iter().all(|(extent, _)| *extent < to));
    // The next opening finds no more there.
    let (store, _) = recover(&mut made.1, StoreConfig::default()).unwrap();
    assert!((to..store.geometry().extents).all(|extent| store.state().live(extent) == 0));
}
#[test]
fn room_is_made_before_the_new_end_first() {
    // Nine extents hold six subpages each of which one was written again, and one such.
    let of = || {
        let mut made = made(small(), StoreConfig::default());
        write(&mut made.0, 0..63);
        (0..9).for_each(|n| write(&mut made.0, 7 * n..7 * n + 1));
        settle(&mut made);
        made
    };
    for to in 3..=40 {
        let (mut store, _) = of();
        let free = (3..to).filter(|extent| store.extents.use_of(*extent) == Use::Free).count() as u32;
        let room = free > store.reserve() + RECLAIM_AHEAD || to == 40;
        let partly_dead = (3..to).any(|e| store.extents.use_of(e) == Use::Closed && store.state().live(e) < 7);
        match store.shrink(to) {
            Ok(step) => {
                assert!(room || partly_dead, "to {to}");
                assert_eq!(step, Shrink::Working, "to {to}");
                assert_eq!(store.extents.limit(), if room { to } else { 40 }, "to {to}");
                if !room {
                    assert!(store.reclaim.as_ref().is_some_and(|reclaim| reclaim.extent() < to), "to {to}");
                }
            }
            Err(error) => assert!(!room && !partly_dead && error == ResizeError::NoRoom, "to {to}: {error}"),
        }
    }
    // As long as there is some behind it.
    for (free, goes_on) in [(7, true), (6, false)] {
        let (mut store, _) = of();
        leave_free(&mut store, free);
        let before = (3..14).filter(|extent| store.extents.use_of(*extent) == Use::Free).count();
        assert_eq!(before, 0);
        assert_eq!(store.shrink(14), if goes_on { Ok(Shrink::Working) } else { Err(ResizeError::NoRoom) }, "{free}");
    }
    // Extents that are full gain nothing, however often they are moved.
    let mut full = made(small(), StoreConfig::default());
    write(&mut full.0, 0..63);
    settle(&mut full);
    assert_eq!(full.0.shrink(12), Err(ResizeError::NoRoom));
    // What cannot be the end of a pool, or of one that takes no changes.
    let (mut store, _) = of();
    assert_eq!((store.shrink(2), store.shrink(41)), (Err(ResizeError::NoRoom), Err(ResizeError::NoRoom)));
    store.poison(FlashError::Io(5));
    assert_eq!(store.shrink(30), Err(ResizeError::NoRoom));
}
#[test]
fn nothing_is_left_behind_the_new_end() {
    // Extents before the end that are taken for a while, so that writes go behind it.
    for (to, keeps) in [(40, 36), (30, 26), (30, 0)] {
        let wide = Geometry::new(80 * 8, 8, Some(64)).unwrap();
        let mut made = made(wide, StoreConfig { keep_tokens: 2, ..StoreConfig::default() });
        let lent: Vec<u32> = (0..keeps).filter_map(|_| made.0.extents.take_for_metadata(made.0.state.wear())).collect();
        for _ in 0..3 {
            write(&mut made.0, 0..16);
            made.0.sync().unwrap();
            settle(&mut made);
        }
        lent.into_iter().for_each(|extent| made.0.extents.free_metadata(extent, made.0.state.wear()));
        let before = made.0.counters();
        let behind = |store: &Store| (0..16).filter(|s| store.state().map().get(*s).unwrap().place >= to * 8).count();
        assert_eq!(behind(&made.0) > 0, keeps > 0);
        shrink(&mut made, to).unwrap();
        assert_eq!((behind(&made.0), made.0.extents.limit()), (0, to));
        // What is recorded speaks of places behind the end: all of it is in a checkpoint since.
        assert!(made.0.counters().checkpoints > before.checkpoints);
        assert_clear(&mut made, to);
        assert_eq!(made.0.state().audit(), Vec::<String>::new());
        // It goes on so.
        for _ in 0..10 {
            write(&mut made.0, 0..16);
            made.0.sync().unwrap();
            settle(&mut made);
        }
        assert!((0..16).all(|subpage| made.0.state().map().get(subpage).unwrap().place < to * 8));
    }
}
#[test]
fn what_cannot_be_moved_is_named_and_the_pool_stays_as_large() {
    let mut made = made(small(), StoreConfig::default());
    let lent: Vec<u32> = (0..20).filter_map(|_| made.0.extents.take_for_metadata(made.0.state.wear())).collect();
    write(&mut made.0, 0..9);
    settle(&mut made);
    lent.into_iter().for_each(|extent| made.0.extents.free_metadata(extent, made.0.state.wear()));
    let damaged = made.0.state().map().get(3).unwrap().place / 8;
    assert!(damaged >= 20, "{damaged}");
    let refused = loop {
        settle_with(&mut made, |_, io| {
            let fails = matches!(io, Io::Copy { from, .. } if *from / 8 == damaged);
            fails.then_some(Outcome::Failed(FlashError::Io(5)))
        });
        match made.0.shrink(20) {
            Ok(Shrink::Working) => {}
            other => break other,
        }
    };
    assert_eq!((refused, made.0.extents.limit()), (Err(ResizeError::Damaged(damaged)), 40));
    // It is used as before, and when the shrink is tried again, it is moved as soon as it can be
    // read.
    write(&mut made.0, 0..3);
    made.0.sync().unwrap();
    settle(&mut made);
    shrink(&mut made, 20).unwrap();
    assert_clear(&mut made, 20);
}
/// An extent of objects that is open behind the new end is one that is used there.
#[test]
fn objects_are_moved_before_the_new_end_also_from_open_extents() {
    let g = Geometry::with_objects(48 * 8, 8, 256).unwrap();
    // Up to the one just behind the end, and to the last before it.
    for (lent, to) in [(27, 32), (27, 31), (26, 31)] {
        let mut made = made(g, StoreConfig::default());
        let all: Vec<u32> = (0..lent).filter_map(|_| made.0.extents.take_for_metadata(made.0.state.wear())).collect();
        let object = [7; 300];
        made.0.write_objects(&[(3, &object), (40, &object[..20]), (99, &object)]).unwrap();
        settle(&mut made);
        let at = |store: &Store, subpage| {
            let located = store.state().map().get(subpage).unwrap();
            store.state().objects().get(located.place).unwrap()
        };
        let open = at(&made.0, 3).flash_page / 8;
        assert_eq!(made.0.extents.use_of(open), Use::Open);
        all.into_iter().for_each(|extent| made.0.extents.free_metadata(extent, made.0.state.wear()));
        let is_behind = open >= to;
        assert_eq!(is_behind, to == 31 && lent == 27, "{open}");
        settle(&mut made);
        // A step closes what is open there, and no more.
        made.0.shrink(to).unwrap();
        assert_eq!(made.0.extents.use_of(open) == Use::Open, !is_behind);
        shrink(&mut made, to).unwrap();
        assert_clear(&mut made, to);
        for (subpage, bytes) in [(3, 300), (40, 20), (99, 300)] {
            let at = at(&made.0, subpage);
            assert!(at.flash_page < to * 8 && at.length == bytes, "{at:?}");
            assert_eq!(made.1.0[&at.flash_page][at.range()], object[..bytes.into()]);
        }
        assert_eq!(made.0.state().audit(), Vec::<String>::new());
        // What was open before the end goes on.
        made.0.write_objects(&[(5, &object)]).unwrap();
        settle(&mut made);
        assert!(at(&made.0, 5).flash_page < to * 8);
    }
}
#[test]
fn how_small_a_pool_may_be_is_known_to_the_page() {
    let of = |extents: u32, subpages| Geometry::new(extents * 8, 8, subpages).unwrap();
    let mut made = made(of(60, Some(160)), StoreConfig::default());
    write(&mut made.0, 0..112);
    write(&mut made.0, 0..1);
    made.0.sync().unwrap();
    settle(&mut made);
    // What such a pool may promise, as of a page whole pages: 112 live fit, and 113 do not.
    let fits = (18..60).find(|extents| of(*extents, None).subpages >= 112).unwrap();
    assert_eq!((of(fits, None).subpages, of(fits - 1, None).subpages), (112, 96));
    let shrinks = |store: &Store, to| store.may_shrink(to);
    assert_eq!(shrinks(&made.0, of(fits, Some(112))), Ok(()));
    let live = ResizeError::Live { live: 112 * 4096, most: 96 * 4096 };
    assert_eq!(shrinks(&made.0, Geometry { subpages: 112, ..of(fits - 1, None) }), Err(live));
    // Also what only a token sees.
    write(&mut made.0, 0..1);
    let live = ResizeError::Live { live: 113 * 4096, most: 112 * 4096 };
    assert_eq!(shrinks(&made.0, of(fits, Some(112))), Err(live));
    // As many extents as before may be full.
    assert_eq!(shrinks(&made.0, Geometry { subpages: 112, ..of(60, None) }), Ok(()));
    assert_eq!(shrinks(&made.0, of(60, Some(96))), Err(ResizeError::Data(112 * 4096)));
    made.0.set_status(9, Status::ALLOCATED).unwrap();
    assert_eq!(shrinks(&made.0, of(60, Some(144))), Err(ResizeError::Data(160 * 4096)));
    assert_eq!(shrinks(&made.0, of(60, Some(160))), Ok(()));
    let objects = Geometry { objects: true, ..of(60, Some(160)) };
    // It may begin to pack objects.
    assert_eq!(shrinks(&made.0, objects), Ok(()));
    assert!(ResizeError::Unsure(FlashError::Io(5)).is_unsure() && !ResizeError::NoRoom.is_unsure());
}
