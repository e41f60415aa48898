//! What the store does by itself: when reclaim begins and how much it copies at a time, where
//! journal, checkpoints and anchors go, also after failures, and what is counted of it.

use std::collections::BTreeSet;

use super::*;
use crate::extents::Use;

/// Does what the store wants, but for what fails or ends otherwise. Returns the requests in order.
pub(super) fn settle_with(
    (store, pages): &mut (Store, Pages),
    mut other: impl FnMut(&Purpose, &Io) -> Option<Outcome>,
) -> Vec<(Purpose, Io)> {
    let mut all = Vec::new();
    while !store.is_quiet() {
        assert!(all.len() < 100_000, "it never comes to rest");
        let Some((id, io)) = store.next_io() else { continue };
        let purpose = store.in_flight[&id].clone();
        let outcome = other(&purpose, &io).unwrap_or_else(|| match &io {
            Io::Write { place, page } => {
                pages.0.insert(*place, page.clone());
                Outcome::Done
            }
            Io::Read { place } => Outcome::Read(pages.read(*place, 0).unwrap()),
            Io::Copy { .. } => Outcome::Copied(CHECKSUM),
            Io::Flush => Outcome::Done,
        });
        all.push((purpose, io));
        store.done(id, outcome);
    }
    all
}
pub(super) fn all_of(made: &mut (Store, Pages)) -> Vec<(Purpose, Io)> {
    settle_with(made, |_, _| None)
}
fn fails_at(purpose: fn(&Purpose) -> bool) -> impl FnMut(&Purpose, &Io) -> Option<Outcome> {
    move |found, _| purpose(found).then_some(Outcome::Failed(FlashError::Io(5)))
}
/// Where was written for a purpose.
pub(super) fn places(all: &[(Purpose, Io)], purpose: fn(&Purpose) -> bool) -> Vec<u32> {
    let place = |(found, io): &(Purpose, Io)| match io {
        Io::Write { place, .. } if purpose(found) => Some(*place),
        _ => None,
    };
    all.iter().filter_map(place).collect()
}
/// A change of a store, and what it is.
type Change = (&'static str, fn(&mut Store));

fn is_anchor(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::Anchor { .. })
}
fn is_journal(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::Journal { .. })
}
fn is_checkpoint(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::Checkpoint { .. })
}

// ---- reclaim ----

/// 200 extents of seven flash pages for data; in the first one three of them are dead.
fn with_some_dead() -> (Store, Pages) {
    let mut made = made(Geometry::new(200 * 8, 8, Some(64)).unwrap(), StoreConfig::default());
    write(&mut made.0, 0..7);
    write(&mut made.0, 0..3);
    settle(&mut made);
    assert_eq!((made.0.reserve(), made.0.extents.emptied(), made.0.is_reclaiming()), (6, 0, false));
    made
}
#[test]
fn reclaim_begins_ahead_of_need() {
    // Two extents beyond those that are left to it, and one for each 64.
    for (free, begins) in [(12, false), (11, false), (10, true), (3, true)] {
        let (mut store, _) = with_some_dead();
        leave_free(&mut store, free);
        store.journal.extents.truncate(1);
        store.advance_reclaim();
        assert_eq!(store.is_reclaiming(), begins, "{free} extents are free");
        // A request succeeds while there is room for what is moved.
        assert_eq!(store.begin_reclaim(), free > 6, "{free} extents are free");
    }
}
#[test]
fn what_was_emptied_is_made_free_when_it_is_wanted() {
    for (free, commits) in [(8, false), (7, true)] {
        let mut made = made(small(), StoreConfig::default());
        write(&mut made.0, 0..7);
        write(&mut made.0, 0..7);
        settle(&mut made);
        let mut store = made.0;
        assert_eq!((store.extents.emptied(), store.reserve()), (1, 6));
        leave_free(&mut store, free);
        store.advance_reclaim();
        assert_eq!(store.commit.is_some(), commits, "{free} extents are free");
    }
    // It waits for the journal page with what has emptied it: the one being filled, or the last one
    // that was.
    let mut pool = made(small(), StoreConfig::default());
    for sealed in [false, true] {
        write(&mut pool.0, 0..7);
        pool.0.sync().unwrap();
        settle(&mut pool);
        let extent = pool.0.state().map().get(0).unwrap().place / 8;
        pool.0.forget_tokens().unwrap();
        write(&mut pool.0, 0..7);
        let number = pool.0.journal.stream.position().sequence;
        assert!(number > 1 && !pool.0.journal.current.is_empty());
        assert_eq!(pool.0.extents.use_of(extent), Use::Emptied { until: number });
        if sealed {
            pool.0.seal();
            assert_eq!(pool.0.last_record(), number);
        }
        settle(&mut pool);
    }
    // With nothing to be gained there is no commit.
    let mut store = made(small(), StoreConfig::default()).0;
    leave_free(&mut store, 3);
    store.advance_reclaim();
    assert!(store.commit.is_none() && !store.is_reclaiming());
}
#[test]
fn the_more_it_is_needed_the_more_is_copied_at_a_time() {
    // Reclaim begins with eleven free extents, is in need with less than nine, and is short with
    // six and fewer.
    for (free, copies) in [(10, 16), (9, 16), (8, 48), (7, 48), (6, 112), (4, 112), (3, 112)] {
        let mut made = made(Geometry::new(200 * 256, 256, Some(4096)).unwrap(), StoreConfig::default());
        write(&mut made.0, 0..255);
        write(&mut made.0, 0..20);
        settle(&mut made);
        let (store, pages) = &mut made;
        assert_eq!((store.reserve(), store.checkpoint_extents()), (6, 1));
        // No extent is open yet for what is moved, as far as its heat is concerned.
        leave_free(store, free);
        store.journal.extents.truncate(1);
        let (id, Io::Read { place }) = store.next_io().unwrap() else { panic!("the summary is read first") };
        assert_eq!(place % 256, 255);
        store.done(id, Outcome::Read(pages.read(place, 0).unwrap()));
        store.advance_reclaim();
        let copied: Vec<(u32, u32)> = store
            .outbox
            .iter()
            .filter_map(|(_, io)| if let Io::Copy { from, to } = io { Some((*from, *to)) } else { None })
            .collect();
        // The last three are metadata's: then it is written among data of another degree.
        assert_eq!(copied.len(), copies, "{free} extents are free");
        let open = store.state().map().get(0).unwrap().place / 256;
        assert!(copied.iter().all(|(_, to)| (to / 256 == open) == (free == 3)), "{free} extents are free");
        assert!(copied.iter().all(|(from, to)| from / 256 == place / 256 && to / 256 != place / 256));
    }
}
#[test]
fn copies_wait_for_the_journal_where_dram_for_it_is_bounded() {
    for (history_bytes, sealed, waits) in [(512 << 10, 7, false), (512 << 10, 8, true), (usize::MAX, 200, false)] {
        let config = StoreConfig { history_bytes, ..StoreConfig::default() };
        let mut made = made(Geometry::new(200 * 8, 8, Some(64)).unwrap(), config);
        write(&mut made.0, 0..7);
        write(&mut made.0, 0..3);
        settle(&mut made);
        let (store, pages) = &mut made;
        assert!(store.begin_reclaim());
        let (id, Io::Read { place }) = store.next_io().unwrap() else { panic!("the summary is read first") };
        store.done(id, Outcome::Read(pages.read(place, 0).unwrap()));
        assert!(!store.commit_wanted);
        store.journal.sealed = vec![(0, zero_page()); sealed];
        store.advance_reclaim();
        let copies = store.outbox.iter().filter(|(_, io)| matches!(io, Io::Copy { .. })).count();
        assert_eq!((copies, store.commit_wanted), if waits { (0, true) } else { (4, false) }, "{sealed} pages wait");
        // And so do writers.
        assert_eq!(store.admit(1), Ok(usize::from(!waits)), "{sealed} pages wait");
    }
}
#[test]
fn what_is_moved_is_counted_and_keeps_its_checksum() {
    let mut made = with_some_dead();
    let place_of = |store: &Store, subpage| store.state().map().get(subpage).map(|l| (l.place, l.checksum));
    let before: Vec<_> = (0..7).map(|subpage| place_of(&made.0, subpage).unwrap()).collect();
    assert!(made.0.begin_reclaim());
    // The first copy has other contents. The second cannot be written at the first place.
    let mut copies = 0;
    let all = settle_with(&mut made, |purpose, _| {
        let Purpose::ReclaimCopy { .. } = purpose else { return None };
        copies += 1;
        match copies {
            1 => Some(Outcome::Copied(CHECKSUM + 1)),
            2 => Some(Outcome::NotWritten(FlashError::Io(5))),
            _ => None,
        }
    });
    let store = &made.0;
    let done = store.counters();
    assert_eq!((copies, done.copied, done.damaged, done.repeated, done.reclaimed, done.levelled), (5, 4, 1, 1, 1, 0));
    let after: Vec<_> = (0..7).map(|subpage| place_of(store, subpage).unwrap()).collect();
    assert_eq!(before[..3], after[..3], "what is stored elsewhere is not moved");
    assert!(before[3..].iter().zip(&after[3..]).all(|(before, after)| before.0 != after.0 && after.1 == CHECKSUM));
    assert_eq!((store.state().live(before[3].0 / 8), store.state().audit()), (0, Vec::<String>::new()));
    // What was damaged, and what took no write, is not used again.
    let Some((_, Io::Copy { to, .. })) = all.iter().filter(|(_, io)| matches!(io, Io::Copy { .. })).nth(1) else {
        panic!("four are copied")
    };
    let mut bad = [before[3].0, *to];
    bad.sort_unstable();
    assert_eq!(store.state().wear().places(), bad);
}
#[test]
fn what_cannot_be_read_stays_where_it_is_and_its_extent_is_given_up() {
    for (error, stuck) in [(FlashError::Io(11), false), (FlashError::Io(5), true)] {
        let mut made = with_some_dead();
        let extent = made.0.state().map().get(3).unwrap().place / 8;
        assert!(made.0.begin_reclaim(), "{error:?}");
        let mut copies = 0;
        settle_with(&mut made, |purpose, _| {
            let Purpose::ReclaimCopy { .. } = purpose else { return None };
            copies += 1;
            Some(Outcome::Failed(error))
        });
        // Four by the summary, and once more by a walk.
        let counters = made.0.counters();
        let store = &mut made.0;
        assert_eq!((copies, counters.damaged, counters.copied, counters.reclaimed), (8, 8, 0, 0), "{error:?}");
        assert_eq!((store.state().live(extent), store.extents.use_of(extent)), (4, Use::Closed), "{error:?}");
        // Where it is the flash pages it is not tried again before something else is dead there.
        if stuck {
            assert!(!store.begin_reclaim());
            write(store, 3..4);
        }
        assert!(made.0.begin_reclaim(), "{error:?}");
        settle(&mut made);
        assert_eq!((made.0.state().live(extent), made.0.counters().reclaimed), (0, 1), "{error:?}");
    }
}

// ---- commits, checkpoints, anchors ----

#[test]
fn a_sync_is_two_flushes_and_each_is_counted() {
    let mut made = made(small(), StoreConfig::default());
    let before = made.0.counters();
    write(&mut made.0, 0..3);
    let token = made.0.sync().unwrap();
    let all = all_of(&mut made);
    let flushes = all.iter().filter(|(_, io)| *io == Io::Flush).count();
    let written = all.iter().filter(|(_, io)| matches!(io, Io::Write { .. })).count() as u64;
    let counters = made.0.counters();
    // A page of the journal, and its witness.
    assert_eq!((flushes, written, counters.commits - before.commits), (2, 2, 1));
    assert_eq!((counters.metadata - before.metadata, made.0.durable_token()), (written, token));
    // A checkpoint with nothing new in the journal: data, anchor. It is a witness itself.
    let before = counters;
    made.0.begin_checkpoint();
    made.0.journal.current.clear();
    let all = all_of(&mut made);
    let flushes = all.iter().filter(|(_, io)| *io == Io::Flush).count();
    let written = all.iter().filter(|(_, io)| matches!(io, Io::Write { .. })).count() as u64;
    let counters = made.0.counters();
    assert_eq!((flushes, counters.commits - before.commits, counters.checkpoints - before.checkpoints), (2, 1, 1));
    assert_eq!(
        (written, counters.metadata - before.metadata),
        (3, 3),
        "a page of the checkpoint, and two of the anchor"
    );
}
/// Each extent of metadata is the journal's or the checkpoint's, and is given back when it is
/// neither.
#[test]
fn metadata_is_what_the_journal_and_the_checkpoint_in_effect_take() {
    let seed = fulgurite_testkit::first_seed(3);
    println!("seed {seed}");
    let mut random = numbers(seed);
    let config = StoreConfig { checkpoint_after: 5, commit_after: 2, keep_tokens: 3, ..StoreConfig::default() };
    let mut made = made(Geometry::new(100 * 8, 8, Some(160)).unwrap(), config);
    let mut failed = 0;
    for round in 0..300 {
        let first = random(150) as u32;
        write(&mut made.0, first..first + 1 + random(9) as u32);
        if random(2) == 0 {
            made.0.sync().unwrap();
        }
        if random(9) == 0 {
            made.0.begin_checkpoint();
        }
        // Not so often that it is given up.
        let (fails, before) = (random(6) == 0, failed);
        settle_with(&mut made, |purpose, _| {
            let fails = fails && failed < before + 2 && is_checkpoint(purpose) && random(3) == 0;
            failed += u32::from(fails);
            fails.then_some(Outcome::Failed(FlashError::Io(11)))
        });
        let (store, pages) = &mut made;
        assert_eq!(store.poisoned(), None, "round {round}");
        let journal: Vec<u32> = store.journal.extents.iter().map(|(extent, _)| *extent).collect();
        let mut all: Vec<u32> = journal.iter().chain(&store.last_checkpoint.0).copied().collect();
        all.sort_unstable();
        assert_eq!((&all, store.info().free_extents), (&store.uses().metadata, store.uses().free.len() as u32));
        // The page of each extent of the journal that comes first says its number.
        let position = store.journal.stream.position();
        for (extent, first) in store.journal.extents.iter().filter(|(_, first)| *first < position.sequence) {
            let page = pages.read(store.geometry().first_of(*extent), 0).unwrap();
            assert_eq!(Header::open(&page).map(|(h, ..)| (h.kind, h.sequence)), Ok((Kind::Journal, *first)));
        }
        assert!(store.journal.since <= position.sequence && store.journal.extents[0].1 <= store.journal.since);
        // All but the first are needed in whole.
        assert!(store.journal.extents.get(1).is_none_or(|(_, first)| *first > store.journal.since), "round {round}");
        let uses = store.uses();
        let count = uses.fixed.len() + uses.free.len() + uses.data.len() + uses.metadata.len() + uses.retired.len();
        assert_eq!((uses.fixed, count), (vec![0, 1, 2], 100));
    }
    assert!(failed > 5 && made.0.counters().checkpoints > 20, "{failed}, {:?}", made.0.counters());
}
/// Numbers below a bound.
pub(super) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = fulgurite_testkit::Random(seed);
    move |below| random.below(below)
}
#[test]
fn anchors_go_in_pairs_from_one_extent_to_the_other() {
    let mut made = made(small(), StoreConfig::default());
    let mut all = Vec::new();
    for number in 2..=9 {
        made.0.begin_checkpoint();
        let anchors = places(&all_of(&mut made), is_anchor);
        assert_eq!(made.0.counters().checkpoints, number - 1);
        for place in &anchors {
            let (header, ..) = Header::open(&made.1.0[place]).unwrap();
            assert_eq!((header.kind, header.place, header.sequence), (Kind::Anchor, *place, number));
        }
        all.extend(anchors);
    }
    // The first pair was written when the pool was made.
    assert_eq!(all, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 8, 9]);
}
#[test]
fn an_anchor_that_fails_is_written_behind_and_then_to_the_other_extent() {
    let mut made = made(small(), StoreConfig::default());
    made.0.begin_checkpoint();
    // Three pairs fail; the other extent holds the next.
    let mut failed = 0;
    let all = settle_with(&mut made, |purpose, _| {
        let fails = is_anchor(purpose) && failed < 6;
        failed += u32::from(fails);
        fails.then_some(Outcome::Failed(FlashError::Io(5)))
    });
    assert_eq!(places(&all, is_anchor), [10, 11, 12, 13, 14, 15, 16, 17]);
    assert_eq!((made.0.poisoned(), made.0.counters().repeated, made.0.counters().checkpoints), (None, 3, 1));
    // From there it goes on.
    made.0.begin_checkpoint();
    assert_eq!(places(&all_of(&mut made), is_anchor), [18, 19]);
    // One copy that fails is enough.
    made.0.begin_checkpoint();
    let mut first = true;
    let all = settle_with(&mut made, |purpose, _| {
        let fails = is_anchor(purpose) && std::mem::take(&mut first);
        fails.then_some(Outcome::Failed(FlashError::Io(5)))
    });
    assert_eq!((places(&all, is_anchor), made.0.counters().checkpoints), (vec![20, 21, 22, 23], 3));
    // Where nothing is left, the pool takes no more changes.
    made.0.begin_checkpoint();
    let all = settle_with(&mut made, fails_at(is_anchor));
    assert_eq!(places(&all, is_anchor), [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!((made.0.poisoned(), made.0.counters().checkpoints), (Some(FlashError::Io(5)), 3));
}
#[test]
fn a_page_of_the_journal_that_fails_is_tried_at_the_first_places_of_the_next_extent() {
    let mut made = made(small(), StoreConfig::default());
    for _ in 0..2 {
        made.0.sync().unwrap();
        settle(&mut made);
    }
    let (position, before) = (made.0.journal.stream.position(), made.0.counters());
    assert!(position.index > 0);
    write(&mut made.0, 0..1);
    made.0.sync().unwrap();
    let mut left = 3;
    let all = settle_with(&mut made, |purpose, _| {
        let fails = is_journal(purpose) && left > 0;
        left -= u32::from(fails);
        fails.then_some(Outcome::Failed(FlashError::Io(5)))
    });
    let next = made.0.journal.stream.position().extent;
    // Its place, two more, and where it stays. The record of those that failed is its witness when
    // that is written.
    let written = places(&all, is_journal);
    assert_eq!(written, [position.extent * 8 + position.index, next * 8, next * 8 + 1, next * 8 + 2]);
    assert_eq!((made.0.poisoned(), made.0.counters().repeated - before.repeated), (None, 3));
    // They are bad, and known to be.
    assert_eq!(made.0.state().wear().places().len(), 3);
    let (store, _) = recover(&mut made.1, StoreConfig::default()).unwrap();
    assert_eq!((store.durable_token(), store.state().is_written(0)), (3, true));
    // There are four such places.
    let position = made.0.journal.stream.position();
    made.0.sync().unwrap();
    let all = settle_with(&mut made, fails_at(is_journal));
    let next = places(&all, is_journal)[1];
    assert_eq!(places(&all, is_journal), [position.extent * 8 + position.index, next, next + 1, next + 2, next + 3]);
    assert_eq!((next % 8, made.0.poisoned(), made.0.durable_token()), (0, Some(FlashError::Io(5)), 3));
}
#[test]
fn an_error_of_the_device_ends_changes_at_once() {
    for purpose in [is_anchor, is_journal, is_checkpoint] {
        let mut made = made(small(), StoreConfig::default());
        write(&mut made.0, 0..1);
        made.0.sync().unwrap();
        made.0.begin_checkpoint();
        let all = settle_with(&mut made, |found, _| purpose(found).then_some(Outcome::Failed(FlashError::Io(19))));
        let tried: BTreeSet<u32> = places(&all, purpose).into_iter().map(|place| place / 2).collect();
        assert_eq!((tried.len(), made.0.poisoned()), (1, Some(FlashError::Io(19))));
        assert!(made.0.is_quiet() && made.0.sync() == Err(WriteError::Poisoned(FlashError::Io(19))));
        assert!(made.0.next_io().is_none() && made.0.state().wear().places().is_empty());
    }
}
#[test]
fn a_checkpoint_is_tried_four_times() {
    for (fails, ends) in [(3, None), (4, Some(FlashError::Io(5)))] {
        let mut made = made(small(), StoreConfig::default());
        made.0.begin_checkpoint();
        let mut left = fails;
        let all = settle_with(&mut made, |purpose, _| {
            let fails = is_checkpoint(purpose) && left > 0;
            left -= u32::from(fails);
            fails.then_some(Outcome::Failed(FlashError::Io(5)))
        });
        let tried: BTreeSet<u32> = places(&all, is_checkpoint).into_iter().map(|place| place / 8).collect();
        assert_eq!((made.0.poisoned(), tried.len()), (ends, 4), "each in another extent");
        assert_eq!((made.0.counters().checkpoints, made.0.counters().repeated), (u64::from(ends.is_none()), 3));
        if ends.is_none() {
            // One that succeeds begins the count again.
            assert_eq!((made.0.failed_checkpoints, made.0.uses().metadata.len()), (0, 2 + 1));
        }
    }
}
#[test]
fn several_flash_pages_are_suspected_before_the_device_is() {
    for (suspects, bad) in [(64, 64), (65, 1), (70, 6)] {
        let mut made = made(large(), StoreConfig::default());
        let store = &mut made.0;
        (0..suspects).for_each(|i| store.unreadable(1024 + i, FlashError::Corrupt));
        // Nothing is suspected twice, nor where there is nothing, nor for errors that say nothing
        // of a flash page.
        store.unreadable(1024 + suspects - 1, FlashError::Corrupt);
        store.unreadable(40 * 256, FlashError::Corrupt);
        store.unreadable(9000, FlashError::Io(19));
        assert!(store.state().wear().places().is_empty());
        write(store, 0..1);
        assert_eq!((store.info().bad_pages, store.suspects.len()), (bad, 0), "{suspects}");
        // What is known is not suspected again.
        store.unreadable(1024 + suspects - 1, FlashError::Corrupt);
        assert!(store.suspects.is_empty());
    }
}
#[test]
fn a_roll_back_takes_what_was_promised_behind_it_away() {
    let mut made = made(small(), StoreConfig { keep_tokens: 5, ..StoreConfig::default() });
    for _ in 0..3 {
        write(&mut made.0, 0..2);
        made.0.sync().unwrap();
        settle(&mut made);
    }
    let store = &mut made.0;
    assert_eq!(store.sync(), Ok(4));
    // While its commit is under way.
    let (id, io) = store.next_io().unwrap();
    assert_eq!(io, Io::Flush);
    write(store, 0..2);
    assert_eq!((store.roll_back(2), store.durable_token(), store.uncommitted()), (Ok(true), 2, 0));
    store.done(id, Outcome::Done);
    settle(&mut made);
    let store = &made.0;
    assert_eq!((tokens(store), store.durable_token(), store.is_gone(4), store.is_gone(3)), (vec![1, 2], 2, true, true));
    assert_eq!(recover(&mut made.1, StoreConfig::default()).unwrap().0.durable_token(), 2);
}
#[test]
fn it_is_quiet_when_nothing_is_under_way_or_waits() {
    let quiet = || {
        let mut made = made(small(), StoreConfig::default());
        settle(&mut made);
        made.0
    };
    let busy: [Change; 8] = [
        ("a commit is wanted", |store| store.commit_wanted = true),
        ("a witness is wanted", |store| store.witness_wanted = true),
        ("a commit is under way", |store| {
            store.commit_wanted = true;
            store.advance_commit();
            (store.outbox, store.in_flight) = Default::default();
        }),
        ("a checkpoint is under way", |store| store.start_checkpoint()),
        ("a reclaim is under way", |store| store.reclaim = Some(Reclaim::new(5, store.geometry()))),
        ("something is to be sent", |store| store.outbox.push_back((IoId(0), Io::Flush))),
        ("something is in flight", |store| _ = store.in_flight.insert(IoId(0), Purpose::Commit)),
        ("a reclaim has found no room, and there is some", |store| {
            let mut reclaim = Reclaim::new(5, store.geometry());
            reclaim.found_no_room();
            store.reclaim = Some(reclaim);
        }),
    ];
    for (what, change) in busy {
        let mut store = quiet();
        assert!(store.is_quiet());
        change(&mut store);
        assert!(!store.is_quiet(), "{what}");
        // What is poisoned does nothing more.
        store.poison(FlashError::Io(5));
        assert!(store.is_quiet() && store.outbox.is_empty(), "{what}");
    }
    // One that waits for room alone is quiet: nothing comes of it.
    let mut store = quiet();
    leave_free(&mut store, 3);
    let mut reclaim = Reclaim::new(5, store.geometry());
    reclaim.found_no_room();
    store.reclaim = Some(reclaim);
    assert!(store.is_quiet());
}
#[test]
fn writers_are_notified_when_no_space_will_come() {
    let full = Err(WriteError::NoSpace { uncommitted: 0 });
    let try_to = |store: &mut Store| {
        let mut places = Vec::new();
        store.place(&[0], &mut places).map(|()| places.len())
    };
    let of = || {
        let mut store = made(small(), StoreConfig::default()).0;
        leave_free(&mut store, 6);
        store
    };
    assert_eq!(try_to(&mut of()), full);
    let waits: [Change; 4] = [
        ("a commit is wanted", |store| store.commit_wanted = true),
        ("a checkpoint is under way", |store| store.start_checkpoint()),
        ("writes are under way", |store| store.placed = 1),
        ("a reclaim goes on", |store| store.reclaim = Some(Reclaim::new(5, store.geometry()))),
    ];
    for (what, change) in waits {
        let mut store = of();
        change(&mut store);
        assert_eq!(try_to(&mut store), Ok(0), "{what}");
        // But not for ever: twice as many were reclaimed as there are.
        assert_eq!(store.starved_since, Some(0));
        store.counters.reclaimed = 80;
        assert_eq!(try_to(&mut store), Ok(0), "{what}");
        store.counters.reclaimed = 81;
        assert_eq!(try_to(&mut store), full, "{what}");
    }
    // With room the count begins anew.
    let mut store = made(small(), StoreConfig::default()).0;
    store.starved_since = Some(0);
    assert_eq!((try_to(&mut store), store.starved_since), (Ok(1), None));
    // A request for nothing has no answer.
    let mut store = of();
    assert_eq!((store.place(&[], &mut Vec::new()), store.starved_since), (Ok(()), None));
}
