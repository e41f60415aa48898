//! Goal: how much may be written, and until when tokens are kept, is what it says, to the last flash page: a program that is told too much
//! waits for ever, and one that is told too little loses what it paid for.
//! Method: a store over pages in DRAM that does at once what it is asked for, and numbers that were worked out by hand.

use super::*;
use crate::objects::{PAGE_WEIGHT, weight};
use crate::recover::{ReadPages, recover};
use fulgurite_format::zero_page;

const POOL: PoolId = PoolId(*b"of so many pages");

/// Flash pages that were written, and how many there are.
struct Pages(HashMap<u32, PageBuffer>, u32);

impl ReadPages for Pages {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.0.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.1
    }
}

/// A new pool.
fn made(geometry: Geometry, config: StoreConfig) -> (Store, Pages) {
    let mut pages = Pages(Store::format(geometry, POOL, 0).into_iter().collect(), geometry.flash_pages());
    let (store, _) = recover(&mut pages, config).unwrap();
    let mut made = (store, pages);
    settle(&mut made);
    made
}
/// Does what the store wants until it wants nothing.
fn settle((store, pages): &mut (Store, Pages)) {
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
    assert!(store.is_quiet());
}
const CHECKSUM: u32 = 77;

/// So many places, which are not written yet.
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
    store.state().tokens().as_slice().iter().map(|t| t.epoch).collect()
}

/// 40 extents of seven flash pages for data: three are fixed, and the journal has one.
fn small() -> Geometry {
    Geometry::new(40 * 8, 8, Some(64)).unwrap()
}
/// The same with 255 flash pages for data, of which three must be gained by a reclaim.
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
        let (config, checksums) = retention::bounded(config, geometry);
        (config.history_bytes, config.commit_after, config.table_limit, checksums)
    };
    assert_eq!(of(usize::MAX, small()), (usize::MAX, 64, u32::MAX, usize::MAX));
    assert_eq!(of(512 << 10, small()), (512 << 10, 4, 4 + 8192, 3584));
    assert_eq!(of(1, small()), of(512 << 10, small()));
    assert_eq!(of(1 << 20, small()), (1 << 20, 9, 4 + 19_114, 7168));
    let objects = Geometry::with_objects(40 * 8, 8, 64).unwrap();
    assert_eq!(of(512 << 10, objects), (512 << 10, 4, 4 + 8192, 1792));
    let config = StoreConfig { commit_after: 1, table_limit: 100, history_bytes: 1 << 20, ..StoreConfig::default() };
    let (config, _) = retention::bounded(config, small());
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
    // 996 entries beside those of pages: each write may take two, and a change of status 17, four times.
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
    assert!(!store.is_short(66));
    for _ in 0..2 {
        write(&mut store, 0..64);
        store.sync().unwrap();
    }
    // Half of what is beyond the data and what is kept is 66; 52 are left, and enough was written that a sync is worth it from 17 on.
    write(&mut store, 0..16);
    assert!(!store.is_short(66) && !store.is_short(1000));
    write(&mut store, 16..17);
    assert!(store.is_short(66) && store.is_short(1000) && !store.is_short(0));
    store.sync().unwrap();
    assert!(!store.is_short(66));
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
    // One that was named after the state to which the pool went back is gone, and will be named again.
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
    let mut clock = Clock::after(Some(&crate::tokens::TokenTime { epoch: 3, age: 50, clock: 1000 }));
    assert_eq!(clock, Clock::after(Some(&crate::tokens::TokenTime { epoch: 4, age: 50, clock: 1000 })));
    assert_ne!(clock, Clock::after(None));
    let mut store = made(small(), StoreConfig { keep_tokens: 9, keep_age: 10, ..StoreConfig::default() }).0;
    store.clock = std::mem::take(&mut clock);
    // Nobody has said the time: tokens have none.
    store.sync().unwrap();
    assert_eq!(store.state().tokens().times(), []);
    let mut times = Vec::new();
    for now in [1005, 900, 910, 911, 912] {
        store.tick(now);
        let token = store.sync().unwrap();
        let of = store.state().tokens().times().last().copied().unwrap();
        assert_eq!((of.epoch, of.clock), (token, now));
        times.push(of.age);
    }
    assert_eq!(times, [55, 55, 65, 66, 67]);
    // Those of 55 are older than 10 as soon as it is 66; the first, of unknown time, is older than the next.
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
    // 3 + 5 + 2 extents are not data's, four are open, four the journal's, and three a checkpoint's each: of 19 five flash pages count,
    // and what checkpoints take is taken off: four pages of 24 bytes.
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
/// Without its summary an extent is emptied all the same, by a walk through the page table: it is there to spare that.
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
/// When nothing follows a commit, an empty page proves that it was durable; in a pool that keeps nothing, nothing needs proof.
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
