//! Goal: the room for writes and the lifetime of tokens are as documented, to the last flash page.
//! If the reported room is too large, a program waits forever; if it is too small, a program loses
//! what it paid for. Method: a store over pages in DRAM that acts at once, and numbers worked out
//! by hand.

use super::*;
use crate::objects::{PAGE_WEIGHT, weight};
use crate::recover::{ReadPages, recover};
use fulgurite_format::zero_page;

mod opening;
mod smaller;
mod upkeep;

const POOL: PoolId = PoolId(*b"of so many pages");

/// Flash pages that were written, and how many there are.
pub(super) struct Pages(pub HashMap<u32, PageBuffer>, u32);

impl ReadPages for Pages {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.0.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.1
    }
}

/// A new pool.
pub(super) fn made(geometry: Geometry, config: StoreConfig) -> (Store, Pages) {
    let mut pages = Pages(Store::format(geometry, POOL, 0).into_iter().collect(), geometry.flash_pages());
    let (store, _) = recover(&mut pages, config).unwrap();
    let mut made = (store, pages);
    settle(&mut made);
    made
}
/// Does what the store wants until it wants nothing.
pub(super) fn settle((store, pages): &mut (Store, Pages)) {
    // Some steps send no request. One that goes on without an end does not become quiet.
    for _ in 0..4 {
        while let Some((id, io)) = store.next_io() {
            let outcome = match io {
                Io::Write { place, page } => {
                    pages.0.insert(place, page);
                    Outcome::Done
                }
                Io::Read { place } => Outcome::Read(pages.read(place, 0).unwrap()),
                Io::Copy { .. } => Outcome::Copied(CHECKSUM),
                Io::Flush => Outcome::Done,
            };
            store.done(id, outcome);
        }
        if store.is_quiet() {
            return;
        }
    }
    panic!("it does not become quiet");
}
const CHECKSUM: u32 = 77;

/// Places for these subpages, which are not written yet.
fn place(store: &mut Store, subpages: std::ops::Range<u32>) -> Vec<(u32, u32, u32)> {
    let (subpages, mut places): (Vec<u32>, _) = (subpages.collect(), Vec::new());
    store.place(&subpages, &mut places).unwrap();
    assert_eq!(places.len(), subpages.len());
    subpages.into_iter().zip(places).map(|(subpage, place)| (subpage, place, CHECKSUM)).collect()
}
fn write(store: &mut Store, subpages: std::ops::Range<u32>) {
    let mut writes = place(store, subpages);
    store.written(&mut writes).unwrap();
}
fn tokens(store: &Store) -> Vec<u64> {
    store.state().tokens().to_vec()
}

/// 40 extents of seven flash pages for data: three are fixed, and the journal has one.
fn small() -> Geometry {
    Geometry::new(40 * 8, 8, Some(64)).unwrap()
}
/// A geometry with 255 flash pages for data in an extent, of which three must be gained by a
/// reclaim.
fn large() -> Geometry {
    Geometry::new(40 * 256, 256, Some(64)).unwrap()
}

#[test]
fn room_is_what_is_not_needed_kept_or_promised() {
    let (mut store, _) = made(small(), StoreConfig::default());
    assert_eq!((store.reserve(), store.extents.for_data(), store.extents.metadata()), (6, 36, 1));
    // Of 36 extents six are reclaim's and the journal's, and five more may become metadata: 25 x 7.
    assert_eq!((store.unneeded(), store.info().room), (252, 175));
    write(&mut store, 0..10);
    let writes = place(&mut store, 10..13);
    assert_eq!((store.unneeded(), store.info().room, store.uncommitted()), (242, 162, 10));
    writes.iter().for_each(|(_, place, _)| assert!(store.not_written(*place, FlashError::Io(5))));
    assert_eq!((store.info().room, store.counters().repeated), (165, 3));
    // What is overwritten without a token in between needs no more.
    write(&mut store, 0..10);
    assert_eq!((store.info().room, store.info().live, store.counters().written), (165, 10, 20));
    store.sync().unwrap();
    write(&mut store, 0..10);
    assert_eq!((store.info().room, store.info().live, store.info().uncommitted), (155, 20, 10));
    let (store, _) = made(large(), StoreConfig::default());
    assert_eq!((store.unneeded(), store.info().room), (36 * 255, 25 * 255 - 36 * 2));
    // With a version for each of this number of flash pages, a checkpoint takes an extent more.
    let (store, _) = made(Geometry::new(200 * 8, 8, Some(64)).unwrap(), StoreConfig::default());
    assert_eq!((store.unneeded(), store.info().room), (196 * 7, (196 - 6 - 5 - 1) * 7));
}
#[test]
fn a_checkpoint_of_many_versions_takes_more_extents() {
    let (store, _) = made(small(), StoreConfig::default());
    // A page 90 bytes, a version 40, 4032 in a flash page.
    let extents = [0, 797, 798, 1603, 1604].map(|versions| store.checkpoint_extents_of(versions));
    assert_eq!(extents, [1, 1, 2, 2, 3]);
    let many = Geometry::new(2000 * 8, 8, Some(800 * 16)).unwrap();
    let (store, _) = made(many, StoreConfig::default());
    assert_eq!((store.checkpoint_extents(), store.reserve()), (3, 8));
}
#[test]
fn what_may_be_written_without_a_sync_is_bounded() {
    let config = StoreConfig { uncommitted_max: 20, ..StoreConfig::default() };
    let mut made = made(small(), config);
    let store = &mut made.0;
    write(store, 0..10);
    assert_eq!(store.info().room, 10);
    let mut writes = place(store, 10..13);
    assert_eq!((store.info().room, store.admit(9), store.admit(7), store.admit(0)), (7, Ok(7), Ok(7), Ok(0)));
    writes.extend(place(store, 13..20));
    assert_eq!((store.info().room, store.admit(1)), (0, Ok(0)));
    store.written(&mut writes).unwrap();
    assert_eq!((store.admit(0), store.admit(1)), (Ok(0), Err(WriteError::NoSpace { uncommitted: 20 })));
    store.sync().unwrap();
    assert_eq!((store.admit(30), store.info().room), (Ok(20), 20));
}
#[test]
fn dram_for_history_is_shared_out() {
    let of = |history_bytes, geometry| {
        let config = StoreConfig { history_bytes, ..StoreConfig::default() };
        let (config, checksums) = bounded(config, geometry);
        (config.history_bytes, config.commit_after, config.table_limit, checksums)
    };
    assert_eq!(of(usize::MAX, small()), (usize::MAX, 64, u32::MAX, usize::MAX));
    assert_eq!(of(512 << 10, small()), (512 << 10, 4, 4 + 8192, 3584));
    assert_eq!(of(1, small()), of(512 << 10, small()));
    assert_eq!(of(1 << 20, small()), (1 << 20, 9, 4 + 19_114, 7168));
    let objects = Geometry::with_objects(40 * 8, 8, 64).unwrap();
    assert_eq!(of(512 << 10, objects), (512 << 10, 4, 4 + 8192, 1792));
    let config = StoreConfig { commit_after: 1, table_limit: 100, history_bytes: 1 << 20, ..StoreConfig::default() };
    let (config, _) = bounded(config, small());
    assert_eq!((config.commit_after, config.table_limit), (2, 100));
}
/// What is said before there is a pool is what the pool says that it may come to.
#[test]
fn dram_is_known_before_there_is_a_pool() {
    let bounded = StoreConfig { history_bytes: 1 << 20, ..StoreConfig::default() };
    let chains = StoreConfig { victims: crate::Victims::LongestChains, ..bounded };
    let of_objects = Geometry::with_objects(40 * 256, 256, 64).unwrap();
    for geometry in [small(), large(), Geometry::new(40 * 256, 256, None).unwrap(), of_objects] {
        for config in [bounded, chains] {
            let (mut store, _) = made(geometry, config);
            let needed = Store::dram_needed(geometry, config);
            assert_eq!(needed, store.info().dram_bytes_max, "{geometry:?}");
            if !geometry.objects {
                write(&mut store, 0..40);
                store.sync().unwrap();
            }
            assert!(store.info().dram_bytes <= needed, "{geometry:?}");
        }
        // Without a bound there is none for what older versions take.
        assert_eq!(
            Store::dram_needed(geometry, StoreConfig::default()),
            Store::dram_needed(geometry, bounded) - (1 << 20)
        );
    }
}
#[test]
fn room_ends_where_dram_for_history_does() {
    let bounded = StoreConfig { history_bytes: 512 << 10, ..StoreConfig::default() };
    let (mut store, _) = made(large(), bounded);
    // 25 extents would be more: 3584 checksums of what only tokens see, of which none is there.
    assert_eq!(store.info().room, 3584);
    write(&mut store, 0..5);
    store.sync().unwrap();
    write(&mut store, 0..5);
    let _ = place(&mut store, 5..7);
    assert_eq!((store.state().old_count(), store.info().room), (5, 3584 - 5 - 2));
    // 996 entries in addition to the pages' own: each write may take two, and a change of status
    // 17, four times.
    let (mut store, _) = made(large(), StoreConfig { table_limit: 1000, ..bounded });
    assert_eq!(store.info().room, (996 - 4 * 17) / 2);
    let _ = place(&mut store, 0..5);
    assert_eq!(store.info().room, (996 - 4 * 17) / 2 - 5);
    let (store, _) = made(large(), StoreConfig { table_limit: 1000, ..StoreConfig::default() });
    assert_eq!(store.info().room, 996 / 17);
}
#[test]
fn whoever_syncs_for_writers_is_asked_in_time() {
    let (mut store, _) = made(small(), StoreConfig { keep_tokens: 9, ..StoreConfig::default() });
    assert!(!store.check_for_shortage(66));
    // 196 are left: not before as much was written as is beyond the 66.
    assert_eq!(store.space_checked, (0, 130));
    for _ in 0..2 {
        write(&mut store, 0..64);
        store.sync().unwrap();
    }
    // Half of what is beyond the data and the kept is 66. 52 are left, and a sync is worth it from
    // 17 writes on.
    write(&mut store, 0..16);
    assert!(!store.check_for_shortage(66) && !store.check_for_shortage(1000));
    assert_eq!(store.space_checked, (16, 17));
    write(&mut store, 16..17);
    assert!(store.check_for_shortage(66) && store.check_for_shortage(1000) && !store.check_for_shortage(0));
    store.sync().unwrap();
    assert!(!store.check_for_shortage(66));
}
#[test]
fn the_oldest_tokens_go_first_and_the_newest_never() {
    let mut made = made(small(), StoreConfig { keep_tokens: 3, ..StoreConfig::default() });
    let store = &mut made.0;
    for token in 1..=5 {
        write(store, 0..2);
        assert_eq!(store.sync(), Ok(token));
    }
    assert_eq!((tokens(store), store.durable_token()), (vec![3, 4, 5], 0));
    assert_eq!((store.pin(3, true), store.pin(2, true), store.drop_tokens(0)), (Ok(true), Ok(false), Ok(1)));
    assert_eq!((tokens(store), store.drop_tokens(1)), (vec![3, 5], Ok(0)));
    settle(&mut made);
    let store = &mut made.0;
    assert_eq!((store.durable_token(), store.counters().commits > 0), (5, true));
    // A token after the state of the roll back is gone, and will be named again.
    assert_eq!(store.sync(), Ok(6));
    assert!(!store.is_gone(6) && !store.is_gone(7) && store.roll_back(5).unwrap() && !store.roll_back(6).unwrap());
    assert_eq!((store.is_gone(6), store.is_gone(5), store.is_gone(7)), (true, false, false));
    store.forget_tokens().unwrap();
    assert!(tokens(store).is_empty() && store.is_gone(5));
}
#[test]
fn a_token_that_is_pinned_for_too_long_ends_syncs() {
    let config = StoreConfig { restamp_after: 2, ..StoreConfig::default() };
    let (mut store, _) = made(small(), config);
    write(&mut store, 0..1);
    assert_eq!((store.sync(), store.pin(1, true)), (Ok(1), Ok(true)));
    (2..=5).for_each(|token| assert_eq!(store.sync(), Ok(token)));
    assert_eq!(store.sync(), Err(WriteError::TokenTooOld(1)));
    assert_eq!((store.pin(1, false), store.sync()), (Ok(true), Ok(6)));
}
#[test]
fn there_are_no_more_tokens_than_an_anchor_has_room_for() {
    let most = fulgurite_format::TOKENS_MAX as u64;
    let (mut store, _) = made(small(), StoreConfig { keep_tokens: usize::MAX, ..StoreConfig::default() });
    (1..=most).for_each(|token| assert_eq!(store.sync(), Ok(token)));
    assert_eq!(store.sync(), Err(WriteError::Table(TableFull)));
    assert_eq!((store.drop_tokens(10), store.sync()), (Ok(most as usize - 10), Ok(most + 1)));
}
#[test]
fn the_pools_time_goes_on_with_the_clock_and_never_back() {
    let mut clock = Clock::after(Some(&crate::tokens::TokenTime { token: 3, age: 50, clock: 1000 }));
    assert_eq!(clock, Clock::after(Some(&crate::tokens::TokenTime { token: 4, age: 50, clock: 1000 })));
    assert_ne!(clock, Clock::after(None));
    let mut store = made(small(), StoreConfig { keep_tokens: 9, keep_age: 10, ..StoreConfig::default() }).0;
    store.clock = std::mem::take(&mut clock);
    // The pool was never given the time, so tokens have none.
    store.sync().unwrap();
    assert_eq!(store.state().tokens().times(), []);
    let mut times = Vec::new();
    for now in [1005, 900, 910, 911, 912] {
        store.tick(now);
        let token = store.sync().unwrap();
        let of = store.state().tokens().times().last().copied().unwrap();
        assert_eq!((of.token, of.clock), (token, now));
        times.push(of.age);
    }
    assert_eq!(times, [55, 55, 65, 66, 67]);
    // The tokens of clock 55 are older than 10 from 66 on. The first, of unknown time, is older
    // than the next.
    assert_eq!(tokens(&store), [4, 5, 6]);
}
#[test]
fn tokens_go_where_space_for_new_data_would() {
    // 252 flash pages for data; so all but 32.
    let config = StoreConfig { keep_tokens: 99, keep_bytes: 220 * 4096, ..StoreConfig::default() };
    let (mut store, _) = made(small(), config);
    for (written, kept) in [(16, 1), (8, 2), (8, 3), (1, 3), (16, 2)] {
        write(&mut store, 0..written);
        store.sync().unwrap();
        assert_eq!(tokens(&store).len(), kept, "after {written} were written");
    }
}
#[test]
fn what_objects_weigh_is_bounded_by_what_can_be_reclaimed() {
    let page = u64::from(PAGE_WEIGHT);
    let g = Geometry::with_objects(40 * 8, 8, 64).unwrap();
    let mut made = made(g, StoreConfig::default());
    let store = &mut made.0;
    // 3 + 5 + 2 extents are not data's, four are open, four the journal's, and three a checkpoint's
    // each. Of 19, five flash pages count, less four checkpoint pages of 24 bytes.
    let metadata = 96 * page / 4032 * 15 / 8;
    assert_eq!((store.checkpoint_bytes_of_objects(), store.most_weight(g)), (96, 95 * page - metadata));
    assert_eq!(store.room(), 95 * page - metadata);
    // In a large pool more are open, and what is written must be a sixteenth less than all.
    let many = Geometry::with_objects(400 * 8, 8, 64).unwrap();
    let metadata_of = |of_each| 96 * page / 4032 * of_each / 8;
    assert_eq!(store.most_weight(many), (400 - 3 - 7 - 9 - 4 - 3) * 5 * page - metadata_of(15));
    let wide = Geometry::with_objects(40 * 256, 256, 64).unwrap();
    assert_eq!(store.most_weight(wide), 19 * (255 - 3 - 1) * page - 96 * page / 4032 * (3 * 251) / 256);
    let growth = |store: &Store, bytes| store.growth(0, bytes);
    assert_eq!((growth(store, 0), growth(store, 100)), (0, u64::from(weight(100))));
    let room = store.room();
    let writes = place(store, 0..2);
    assert_eq!(store.room(), room - 2 * page);
    store.written(&mut writes.clone()).unwrap();
    assert_eq!((store.room(), store.live_weight()), (store.most_weight(g) - 2 * page, 2 * page));
    assert_eq!((growth(store, 100), growth(store, 4096)), (0, u64::from(weight(4096)) - page));
    // Whole subpages take no more where there was one; others a flash page each.
    let all: Vec<u32> = (0..64).collect();
    assert_eq!(store.fitting(&all), 64);
    let room = store.room();
    store.write_objects(&[(5, &[1; 500])]).unwrap();
    assert_eq!(store.room(), room - u64::from(weight(500)));
    settle(&mut made);
    let store = &mut made.0;
    assert_eq!(store.live_weight(), 2 * page + u64::from(weight(500)));
    assert_eq!(store.room(), store.most_weight(g) - store.live_weight());
    assert_eq!(store.growth(5, 600), u64::from(weight(600) - weight(500)));
}
/// Without its summary an extent is emptied by a walk through the page table, which it only spares.
#[test]
fn an_extent_that_is_full_says_at_its_end_whose_its_flash_pages_are() {
    let mut made = made(small(), StoreConfig::default());
    write(&mut made.0, 0..7);
    settle(&mut made);
    let (store, pages) = &mut made;
    let summaries: Vec<&PageBuffer> = pages.0.values().filter(|page| kind(page) == Some(Kind::Summary)).collect();
    let [summary] = summaries[..] else { panic!("{} summaries", summaries.len()) };
    let (header, _, payload) = Header::open(summary).unwrap();
    let mut owners = Vec::new();
    Owner::decode_all(payload, &mut owners).unwrap();
    assert_eq!(owners, (0..7).map(|subpage| Owner { subpage, checksum: CHECKSUM }).collect::<Vec<_>>());
    assert_eq!((header.place % 8, header.sequence, header.pool), (7, 0, POOL));
    let first = store.state().map().get(0).unwrap().place;
    assert_eq!(header.place / 8, first / 8);
}
fn kind(page: &PageBuffer) -> Option<Kind> {
    Header::open(page).ok().map(|(header, ..)| header.kind)
}
/// When nothing follows a commit, an empty page proves that it was durable. A pool that keeps
/// nothing needs no proof.
#[test]
fn a_commit_that_nothing_follows_has_a_witness() {
    let journal = |durability| {
        let mut made = made(small(), StoreConfig { durability, ..StoreConfig::default() });
        write(&mut made.0, 0..3);
        made.0.sync().unwrap();
        settle(&mut made);
        let journal = made.1.0.values().filter(|page| kind(page) == Some(Kind::Journal));
        let mut used: Vec<bool> = journal.map(|page| !Header::open(page).unwrap().2.is_empty()).collect();
        used.sort_unstable();
        used
    };
    assert_eq!(journal(Durability::Sync).iter().filter(|used| !**used).count(), 1);
    assert_eq!(journal(Durability::Cache).iter().filter(|used| !**used).count(), 0);
}
/// What is not about a page is not in a checkpoint, but recorded again behind it.
#[test]
fn fills_times_and_bad_pages_outlive_checkpoints() {
    let mut made = made(small(), StoreConfig { keep_tokens: 5, ..StoreConfig::default() });
    for round in 0..3 {
        made.0.tick(100 * round);
        write(&mut made.0, 0..30);
        made.0.sync().unwrap();
        settle(&mut made);
    }
    let bad = place(&mut made.0, 0..1)[0].1;
    assert!(made.0.not_written(bad, FlashError::Io(5)));
    write(&mut made.0, 0..1);
    made.0.sync().unwrap();
    settle(&mut made);
    let of = |store: &Store| (store.state().wear().all_fills().to_vec(), store.state().tokens().times().to_vec());
    let before = of(&made.0);
    assert!(before.0.iter().sum::<u32>() > 12 && before.1.len() == 4);
    for _ in 0..2 {
        made.0.begin_checkpoint();
        settle(&mut made);
    }
    assert!(made.0.counters().checkpoints >= 2);
    let (store, _) = recover(&mut made.1, StoreConfig { keep_tokens: 5, ..StoreConfig::default() }).unwrap();
    let after = of(&store);
    assert_eq!((&after.1, store.state().wear().places()), (&before.1, &[bad][..]));
    assert!(after.0.iter().zip(&before.0).all(|(after, before)| after >= before), "{before:?}, {:?}", after.0);
}
/// Metadata takes what is free, until `extents` extents are left.
pub(super) fn leave_free(store: &mut Store, extents: u32) {
    while store.extents.free() > extents {
        store.extents.take_for_metadata(store.state.wear()).unwrap();
    }
    assert_eq!(store.extents.free(), extents);
}
#[test]
fn a_checkpoint_begins_where_there_is_room_for_it_and_for_the_journal() {
    // An extent for it, and one for the journal where that has not named the next one yet.
    for (free, wants, begins) in
        [(0, false, false), (1, false, true), (0, true, false), (1, true, false), (2, true, true)]
    {
        let mut store = made(small(), StoreConfig::default()).0;
        store.journal.current.clear();
        if !wants {
            store.name_next_extent();
        }
        leave_free(&mut store, free);
        assert_eq!((store.journal.stream.wants_extent(), store.has_room_for_checkpoint()), (wants, begins));
        store.begin_checkpoint();
        let what = format!("{free} extents are free, one is wanted: {wants}");
        assert_eq!((store.checkpoint.is_some(), store.poisoned()), (begins, None), "{what}");
        // Without room nothing is taken.
        assert_eq!(store.extents.free(), if begins { 0 } else { free }, "{what}");
        assert_eq!(store.journal.stream.wants_extent(), wants && !begins, "{what}");
    }
}
#[test]
fn a_journal_that_is_mostly_empty_extents_or_in_the_way_is_scattered() {
    let mut made = made(small(), StoreConfig::default());
    for _ in 0..40 {
        made.0.sync().unwrap();
        settle(&mut made);
    }
    let store = &mut made.0;
    let sequence = store.journal.stream.position().sequence;
    assert!(sequence > 40, "{sequence}");
    let is_scattered = |store: &mut Store, extents: u32, pages: u64| {
        store.journal.extents = (0..extents).map(|extent| (extent, 0)).collect();
        store.journal.since = sequence - pages;
        store.is_scattered()
    };
    // More than four extents of eight pages each, less than half of which are used.
    let cases = [(5, 19), (5, 20), (4, 1), (6, 23), (6, 24)];
    let scattered = cases.map(|(extents, pages)| is_scattered(store, extents, pages));
    assert_eq!(scattered, [true, false, false, true, false]);
    // Or the fourth of few, where no more is free than writers leave: that is in the way.
    assert_eq!(store.reserve(), 6);
    for (free, fourth) in [(7, false), (6, true)] {
        leave_free(store, free);
        assert_eq!([4, 3].map(|extents| is_scattered(store, extents, 31)), [fourth, false], "{free} are free");
    }
    // Copies leave two extents for metadata, and one for a checkpoint.
    for (free, room) in [(4, true), (3, false)] {
        leave_free(store, free);
        assert_eq!(store.has_room_for_copies(), room, "{free} are free");
    }
    let needed = 1 + u32::from(store.journal.stream.wants_extent());
    for (free, room) in [(needed, true), (needed - 1, false)] {
        leave_free(store, free);
        assert_eq!([4, 5].map(|extents| is_scattered(store, extents, 1)), [room; 2], "{free} are free");
    }
}
#[test]
fn pages_of_the_journal_take_dram_until_they_are_on_their_way() {
    let mut store = made(small(), StoreConfig::default()).0;
    let before = store.history_bytes();
    let pages = |count| vec![(0, zero_page()); count];
    store.journal.sealed = pages(2);
    assert_eq!(store.history_bytes() - before, 2 * 4096);
    store.commit = Some(Commit {
        phase: Phase::Data,
        pending: 1,
        pages: pages(3),
        sent: 0,
        failed: None,
        promises: true,
        end: 1,
        token: None,
        tokens: Vec::new(),
        checkpoint: false,
    });
    assert_eq!(store.history_bytes() - before, 5 * 4096);
    store.send(Purpose::Checkpoint { place: 30 }, Io::Write { place: 30, page: zero_page() });
    store.send(Purpose::Commit, Io::Flush);
    assert_eq!(store.history_bytes() - before, 6 * 4096);
    store.commit = None;
    assert_eq!(store.history_bytes() - before, 3 * 4096);
}
#[test]
fn room_ends_where_the_indices_of_the_table_do() {
    // 296 in addition to the pages' own. Without a bound each write may take 17 entries.
    let few = StoreConfig { table_indices: 300, ..StoreConfig::default() };
    let (store, _) = made(large(), few);
    assert_eq!((store.state().room_for(), store.info().room), (296, 17));
    // Otherwise four indices, where two pages' worth are left.
    let (mut store, _) = made(large(), StoreConfig { history_bytes: 512 << 10, ..few });
    assert_eq!((store.state().room_for(), store.info().room, store.indices_for_writes()), (296, 66, 66));
    write(&mut store, 0..5);
    store.sync().unwrap();
    write(&mut store, 0..5);
    let writes = place(&mut store, 5..8);
    // What only the token sees may come to take an entry each, and again when it is moved.
    let left = u64::from(store.state().table().indices_left());
    assert!((285..296).contains(&left), "{left}");
    assert_eq!((u64::from(store.state().room_for()), store.indices_for_writes()), (left - 5, (left - 5 - 32) / 4 - 3));
    assert_eq!(store.info().room, (left - 5 - 5 - 32) / 4 - 3);
    drop(writes);
    // A write takes an index for its version and one for each subpage. A change of status takes a
    // page's, and one.
    for (left, fits, status) in [(17, true, true), (16, true, false), (3, true, false), (2, false, false)] {
        let mut store = made(large(), StoreConfig::default()).0;
        write(&mut store, 0..48);
        store.sync().unwrap();
        write(&mut store, 0..48);
        // These are for what the token sees.
        let table = store.state().table();
        let indices = store.geometry().pages() + table.versions() + store.state().old_count() as u32 + left;
        store.state.set_table_indices(indices);
        assert_eq!(store.state().room_for(), left);
        let checksums = |count| {
            let mut checksums = Checksums::EMPTY;
            (0..count).for_each(|_| checksums.push(CHECKSUM));
            checksums
        };
        let (start, allocated) = (fulgurite_format::FlashPage(1024), Status::ALLOCATED);
        let record = Record::Write { page: 3, start, valid: 0b11, status: allocated, checksums: checksums(2) };
        let full = Err(WriteError::Table(TableFull));
        let changed = store.record(Record::Status { page: 3, status: allocated });
        assert_eq!(changed, if status { Ok(()) } else { full }, "{left} are left");
        assert_eq!(store.record(record), if fits { Ok(()) } else { full }, "{left} are left");
    }
}
#[test]
fn writes_are_let_in_as_far_as_the_table_and_checksums_have_room() {
    let of_table = |store: &mut Store, entries: u32| {
        let taken = store.geometry().pages() + store.state().table().versions();
        store.state.set_table_limit(taken + entries);
    };
    let full = Err(WriteError::Table(TableFull));
    // At worst each write takes 17 entries, and `entries` are left.
    let (mut store, _) = made(large(), StoreConfig::default());
    for (entries, let_in) in [(17 * 6, Ok(5)), (17 * 6 - 1, full), (0, full)] {
        of_table(&mut store, entries);
        assert_eq!(store.admit(5), let_in, "{entries} entries");
    }
    // With a bound half as many are tried, and again. For checksums, writes under way are waited
    // for.
    let (mut store, _) = made(large(), StoreConfig { history_bytes: 512 << 10, ..StoreConfig::default() });
    write(&mut store, 0..20);
    store.sync().unwrap();
    write(&mut store, 0..4);
    for (entries, let_in) in [(17 * 9, Ok(8)), (17 * 9 - 1, Ok(4)), (17 * 5 - 1, Ok(2)), (33, full)] {
        of_table(&mut store, entries);
        assert_eq!(store.admit(8), let_in, "{entries} entries");
    }
    of_table(&mut store, 1000);
    for (checksums, let_in) in [(12, Ok(8)), (11, Ok(4)), (5, Ok(1)), (4, Err(WriteError::NoSpace { uncommitted: 4 }))]
    {
        store.old_limit = checksums;
        assert_eq!(store.admit(8), let_in, "{checksums} checksums, four of them taken");
    }
    store.old_limit = 100;
    let writes = place(&mut store, 30..33);
    for (checksums, let_in) in [(15, Ok(8)), (14, Ok(4)), (7, Ok(0))] {
        store.old_limit = checksums;
        assert_eq!(store.admit(8), let_in, "{checksums} checksums, seven of them taken");
    }
    store.old_limit = 100;
    // Pages: the first holds twelve subpages that the token sees, the second four.
    assert_eq!([0, 1, 2].map(|page| store.state().old_when_deleted(page)), [12, 4, 0]);
    let delete = |store: &mut Store| store.admit_statuses(&[0, 1, 2], Status::DELETED);
    for (checksums, may) in [(4 + 3 + 16, Ok(())), (4 + 3 + 15, Err(WriteError::NoSpace { uncommitted: 7 }))] {
        store.old_limit = checksums;
        assert_eq!(delete(&mut store), may, "{checksums} checksums");
    }
    // What is not deleted makes nothing old.
    store.old_limit = 0;
    assert_eq!(store.admit_statuses(&[0, 1, 2], Status::ALLOCATED), Ok(()));
    store.old_limit = 100;
    // Each page that is used needs a version more, and two entries for each subpage; two pages'
    // worth stay.
    for (entries, may) in [(32 + 25 + 9, Ok(())), (32 + 25 + 8, Err(TableFull))] {
        of_table(&mut store, entries);
        assert_eq!(delete(&mut store), may.map_err(WriteError::Table), "{entries} entries");
    }
    of_table(&mut store, 1000);
    let taken = store.geometry().pages() + store.state().table().versions() + store.state().old_count() as u32;
    for (indices, may) in [(32 + 16 + 34, Ok(())), (32 + 16 + 33, Err(TableFull))] {
        store.state.set_table_indices(taken + indices);
        assert_eq!(delete(&mut store), may.map_err(WriteError::Table), "{indices} indices");
    }
    drop(writes);
}
#[test]
fn of_two_writes_of_one_subpage_one_counts_and_the_others_place_is_let_go() {
    let mut made = made(small(), StoreConfig::default());
    let (subpages, mut places) = ([0, 0, 0, 1, 2, 2, 3], Vec::new());
    made.0.place(&subpages, &mut places).unwrap();
    let mut writes: Vec<(u32, u32, u32)> =
        subpages.iter().zip(&places).map(|(subpage, place)| (*subpage, *place, CHECKSUM)).collect();
    made.0.written(&mut writes).unwrap();
    settle(&mut made);
    let (store, pages) = &made;
    assert_eq!((store.info().live, store.counters().written, store.uncommitted()), (4, 4, 4));
    let at = |subpage: &u32| store.state().map().get(*subpage).unwrap().place;
    // The extent is full, and its summary names those that are there.
    let summary = pages.0.values().find(|page| kind(page) == Some(Kind::Summary)).unwrap();
    let mut owners = Vec::new();
    Owner::decode_all(Header::open(summary).unwrap().2, &mut owners).unwrap();
    let first = places[0];
    let named: Vec<(u32, u32)> = owners.iter().zip(first..).map(|(o, place)| (o.subpage, place)).collect();
    let expected: Vec<(u32, u32)> = subpages
        .iter()
        .zip(&places)
        .map(|(subpage, place)| (if at(subpage) == *place { *subpage } else { Owner::NOBODY }, *place))
        .collect();
    assert_eq!(named, expected);
    assert_eq!(named.iter().filter(|(subpage, _)| *subpage == Owner::NOBODY).count(), 3);
}
#[test]
fn a_sync_is_asked_for_before_dram_for_history_runs_out() {
    let bounded = StoreConfig { history_bytes: 512 << 10, ..StoreConfig::default() };
    let (mut store, _) = made(large(), bounded);
    write(&mut store, 0..20);
    store.sync().unwrap();
    write(&mut store, 0..20);
    let of_table = |store: &mut Store, entries: u32| {
        let taken = store.geometry().pages() + store.state().table().versions();
        store.state.set_table_limit(taken + entries);
    };
    // In addition to the entries of the subpages that are asked for, the entries of sixteen pages.
    for (subpages, entries, is_short) in [(70, 326, false), (70, 325, true), (79, 300, true), (80, 300, false)] {
        of_table(&mut store, entries);
        // From 80 on a sync of 20 is not worth it.
        assert_eq!(store.check_for_shortage(subpages), is_short, "{subpages} of {entries}");
    }
    // A quarter of the table is the most.
    store.config.table_limit = 43;
    for (entries, is_short) in [(266, false), (265, true)] {
        of_table(&mut store, entries);
        assert_eq!(store.check_for_shortage(1000), is_short, "{entries} entries");
    }
    store.config.table_limit = u32::MAX;
    of_table(&mut store, 10_000);
    // Half of the checksums, of which twenty are taken.
    for (checksums, is_short) in [(40, false), (38, true), (20, true), (0, false)] {
        store.old_limit = checksums;
        assert_eq!(store.check_for_shortage(1000), is_short, "{checksums} checksums");
    }
}
#[test]
fn tokens_are_dropped_for_a_deletion_only_under_a_bound() {
    let full = Err(WriteError::NoSpace { uncommitted: 0 });
    for (history_bytes, deleted, kept) in [(512 << 10, Ok(()), 1), (usize::MAX, full, 3)] {
        let config = StoreConfig { keep_tokens: 9, history_bytes, ..StoreConfig::default() };
        let (mut store, _) = made(large(), config);
        for _ in 0..3 {
            write(&mut store, 0..16);
            store.sync().unwrap();
        }
        // 32 are old, and 16 would be.
        store.old_limit = 16;
        assert_eq!(store.admit_statuses(&[0], Status::DELETED), deleted, "{history_bytes}");
        assert_eq!(tokens(&store).len(), kept, "{history_bytes}");
    }
}
#[test]
fn what_takes_new_versions_in_leaves_entries_for_two_pages() {
    for (entries, fits) in [(32, true), (31, false)] {
        let mut store = made(large(), StoreConfig::default()).0;
        let taken = store.geometry().pages() + store.state().table().versions();
        store.state.set_table_limit(taken + entries);
        let full = Err(WriteError::Table(TableFull));
        let changed = store.record(Record::Status { page: 1, status: Status::ALLOCATED });
        assert_eq!(changed, if fits { Ok(()) } else { full }, "{entries} entries");
    }
}
#[test]
fn a_small_pool_is_checkpointed_sooner() {
    let after = |geometry, checkpoint_after| {
        made(geometry, StoreConfig { checkpoint_after, ..StoreConfig::default() }).0.config.checkpoint_after
    };
    let many = Geometry::new(2000 * 8, 8, Some(64)).unwrap();
    // A 64th of the pool, and an extent at least.
    assert_eq!([after(many, 1024), after(many, 100), after(small(), 1024), after(small(), 5)], [250, 100, 8, 5]);
}
