//! What opening reads and finds: what was written, where it goes on, and what of it is lost.

use std::cell::RefCell;

use super::upkeep::numbers;
use super::*;
use crate::geometry::FIRST_PLACES;
use crate::recover::{RecoverError, RecoverReport};
use fulgurite_format::Reader;

/// Pages, and what was read of them: where, and how many more were asked for ahead.
struct Read<'p>(&'p mut Pages, RefCell<Vec<(u32, u32)>>);

impl ReadPages for Read<'_> {
    fn read(&mut self, place: u32, ahead: u32) -> Result<PageBuffer, FlashError> {
        self.1.borrow_mut().push((place, ahead));
        self.0.read(place, ahead)
    }
    fn flash_pages(&self) -> u32 {
        self.0.flash_pages()
    }
}
/// Opens a pool. Read ahead are the others of the extent, or of the few places where the journal
/// may continue.
fn opened(pages: &mut Pages, config: StoreConfig, extent_pages: u32) -> (Store, RecoverReport, Vec<u32>) {
    let mut read = Read(pages, RefCell::default());
    let (store, report) = recover(&mut read, config).unwrap();
    let reads = read.1.take();
    assert_eq!(reads[0], (0, 1), "both copies of the superblock are contiguous");
    for (place, ahead) in reads.iter().copied().filter(|(place, _)| *place >= extent_pages) {
        let index = place % extent_pages;
        let first = FIRST_PLACES.checked_sub(1 + index);
        assert!(ahead == extent_pages - 1 - index || Some(ahead) == first, "{ahead} ahead of {place}");
    }
    (store, report, reads.into_iter().map(|(place, _)| place).collect())
}

/// Behind eight pairs of pages that are none there is no anchor. These extents have four, and are
/// read whole.
#[test]
fn anchors_are_looked_for_as_far_as_there_may_be_some() {
    let config = StoreConfig::default();
    let mut made = made(small(), config);
    let anchors = |pages: &mut Pages| {
        let (store, _, reads) = opened(pages, config, 8);
        let of = |extent: u32| {
            reads.iter().filter(|place| **place / 8 == extent).map(|place| place % 8).collect::<Vec<u32>>()
        };
        ((of(1), of(2)), (store.anchors.extent, store.anchors.index, store.anchors.sequence, store.anchors.in_effect))
    };
    let some = |pages: u32| (0..pages).collect::<Vec<u32>>();
    assert_eq!(anchors(&mut made.1), ((some(8), some(8)), (0, 2, 2, 0)));
    for (number, read, next) in [
        (2, (some(8), some(8)), (0, 4, 3, 0)),
        (3, (some(8), some(8)), (0, 6, 4, 0)),
        (4, (some(8), some(8)), (0, 8, 5, 0)),
        (5, (some(8), some(8)), (1, 2, 6, 1)),
        (6, (some(8), some(8)), (1, 4, 7, 1)),
    ] {
        made.0.begin_checkpoint();
        settle(&mut made);
        assert_eq!(anchors(&mut made.1), (read, next), "after checkpoint {number}");
        if number == 4 {
            // A pair that failed does not end the search.
            let failed = [12, 13].map(|place| (place, made.1.0.insert(place, zero_page()).unwrap()));
            assert_eq!(anchors(&mut made.1).1, next);
            made.1.0.extend(failed);
        }
        // Opened again it goes on behind the newest, as it would have.
        let live = &made.0.anchors;
        assert_eq!((live.extent, live.index, live.sequence, live.in_effect), next);
    }
    // One copy of a pair is enough.
    let newest = (16..24).rev().find(|place| made.1.0.get(place).and_then(kind) == Some(Kind::Anchor)).unwrap();
    assert_eq!(newest, 19);
    made.1.0.insert(newest, zero_page());
    assert_eq!(anchors(&mut made.1).1, (1, 4, 7, 1));
}

/// How many records the journal pages from a number on hold, and how many such pages there are.
fn journal(pages: &Pages, from: u64, end: u64) -> (u64, u64) {
    let (mut records, mut count) = (0, 0);
    for page in pages.0.values() {
        let Ok((header, _, payload)) = Header::open(page) else { continue };
        if header.kind != Kind::Journal || !(from..end).contains(&header.sequence) {
            continue;
        }
        count += 1;
        let mut r = Reader(payload);
        while !r.is_empty() {
            Record::decode(&mut r).unwrap();
            records += 1;
        }
    }
    (records, count)
}

#[test]
fn model_what_is_opened_is_what_was_there() {
    let seed = fulgurite_testkit::first_seed(11);
    println!("seed {seed}");
    let mut random = numbers(seed);
    let config = StoreConfig { checkpoint_after: 6, commit_after: 3, keep_tokens: 3, ..StoreConfig::default() };
    let geometry = Geometry::new(90 * 8, 8, Some(160)).unwrap();
    let mut made = made(geometry, config);
    let mut lives = 0;
    for round in 0..120 {
        for _ in 0..random(4) {
            let first = random(150) as u32;
            write(&mut made.0, first..first + 1 + random(9) as u32);
            if random(5) == 0 {
                let (page, status) = (random(10) as u32, [Status::DELETED, Status::ALLOCATED][random(2) as usize]);
                made.0.set_status(page, status).unwrap();
            }
        }
        made.0.sync().unwrap();
        if random(8) == 0 {
            made.0.begin_checkpoint();
        }
        settle(&mut made);
        // What reclaim has moved meanwhile is durable, too.
        while !made.0.journal.current.is_empty() {
            made.0.commit();
            settle(&mut made);
        }
        let live = &made.0;
        let (since, end) = (live.journal.since, live.journal.stream.position().sequence);
        let (records, pages) = journal(&made.1, since, end);
        let (store, report, _) = opened(&mut made.1, config, 8);
        let expected = (live.durable_token(), live.last_checkpoint.1, pages, records, None, None);
        let found =
            (report.token, report.checkpoint_pages, report.journal_pages, report.records, report.torn, report.lost);
        assert_eq!(found, expected, "round {round}");
        assert_eq!(pages, end - since, "round {round}");
        assert_eq!((&store.last_checkpoint, store.journal.since), (&live.last_checkpoint, since), "round {round}");
        let anchors = |store: &Store| {
            let Anchors { extent, index, sequence, in_effect, failed } = store.anchors;
            (extent, index, sequence, in_effect, failed)
        };
        assert_eq!(anchors(&store), anchors(live), "round {round}");
        // It goes on with the next number in an extent of its own, which the last page named.
        let (position, was) = (store.journal.stream.position(), live.journal.stream.position());
        assert_eq!((position.index, position.sequence, position.before), (0, end, was.before), "round {round}");
        let next = if was.index == 0 { was.extent } else { live.journal.stream.next_extent() };
        assert_eq!(position.extent, next, "round {round}");
        let known = store.journal.extents.len() - 1;
        let firsts = |store: &Store| store.journal.extents.iter().copied().take(known).collect::<Vec<_>>();
        assert_eq!((firsts(&store), store.journal.extents[known]), (firsts(live), (next, end)), "round {round}");
        let state = |store: &Store| {
            let state = store.state();
            let locations: Vec<_> = (0..160).map(|subpage| state.map().get(subpage)).collect();
            let at_tokens: Vec<_> = tokens(store)
                .into_iter()
                .flat_map(|token| (0..160).map(move |subpage| (token, subpage)))
                .map(|(token, subpage)| state.located_at(subpage, token))
                .collect();
            let live: Vec<u32> = (0..90).map(|extent| state.live(extent)).collect();
            let status: Vec<Status> = (0..10).map(|page| state.status(page)).collect();
            (tokens(store), locations, at_tokens, live, status, state.next_token(), state.old_count())
        };
        assert_eq!(state(&store), state(live), "round {round}");
        assert_eq!((store.state().audit(), store.uncommitted(), store.poisoned()), (Vec::new(), 0, None));
        // What holds something is not free, all else is.
        for extent in 3..90 {
            let used = store.state().live(extent) > 0 || store.uses().metadata.contains(&extent);
            assert_eq!(store.uses().free.contains(&extent), !used, "round {round}, extent {extent}");
        }
        if random(3) == 0 {
            made.0 = store;
            settle(&mut made);
            lives += 1;
        }
    }
    assert!(lives > 10 && made.0.state().wear().summary().sum > 100);
}

/// A promised journal page is missing: what the error is, what still opens, and where it continues.
#[test]
fn what_is_lost_is_reported_and_what_comes_next_cannot_be_taken_for_it() {
    let config = StoreConfig { keep_tokens: 9, ..StoreConfig::default() };
    let accepts = StoreConfig { accept_loss: true, ..config };
    for gone in 1..4u64 {
        let mut made = made(small(), config);
        let mut ends = vec![made.0.journal.stream.position().sequence];
        // Three commits and their witnesses, before a checkpoint is due.
        for _ in 0..3 {
            write(&mut made.0, 0..3);
            made.0.sync().unwrap();
            settle(&mut made);
            ends.push(made.0.journal.stream.position().sequence);
        }
        // The page with this token: the first of its commit.
        let number = ends[gone as usize - 1];
        let is_it =
            |page: &PageBuffer| Header::open(page).is_ok_and(|(h, ..)| h.kind == Kind::Journal && h.sequence == number);
        let place = made.1.0.iter().find(|(_, page)| is_it(page)).map(|(place, _)| *place).unwrap();
        made.1.0.get_mut(&place).unwrap()[4000] ^= 1;
        let refused = recover(&mut made.1, config).map(|(_, report)| report);
        let Err(RecoverError::Lost(loss)) = refused else { panic!("{gone} is lost: {refused:?}") };
        // Seen is the last page that was written behind it, a witness.
        let last = ends[3] - 1;
        assert_eq!((loss.place, loss.seen, loss.token, loss.newest), (place, last, gone - 1, 3));
        let (mut store, report) = recover(&mut made.1, accepts).unwrap();
        assert_eq!((report.lost, report.token, store.durable_token()), (Some(loss), gone - 1, gone - 1));
        let position = store.journal.stream.position();
        assert_eq!((position.index, position.before, position.sequence), (0, 0, last + (1 << 32)));
        // An extent that holds nothing, and has no page of the old journal.
        let first = store.geometry().first_of(position.extent);
        assert!(
            (first..first + 8).all(|place| made.1.0.get(&place).is_none_or(|page| kind(page) != Some(Kind::Journal)))
        );
        assert_eq!(store.state().live(position.extent), 0);
        // With a checkpoint it can be opened by everybody again.
        store.begin_checkpoint();
        made.0 = store;
        settle(&mut made);
        let (store, report) = recover(&mut made.1, config).unwrap();
        assert_eq!((report.lost, report.token, store.state().audit()), (None, gone - 1, Vec::<String>::new()));
    }
}
