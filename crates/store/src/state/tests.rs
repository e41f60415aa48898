//! Tests of the state alone.

use fulgurite_format::{ObjectLocation, ObjectMoved, ObjectWritten, ObjectsMoved, ObjectsWritten};

use super::*;

mod model;

const G: Geometry = Geometry { extent_pages: 8, extents: 40, subpages: 160, objects: false };

fn held_at(places: &[(u32, u32)]) -> Vec<Held> {
    places.iter().map(|(subpage, place)| Held { subpage: *subpage, place: *place }).collect()
}
fn write(state: &mut State, page: u32, places: &[(u32, u32)]) {
    let mut entries = Vec::new();
    entries_of(&held_at(places), state.next_token() as u32, Status::ALLOCATED, &mut entries);
    for entry in entries {
        let mut checksums = Checksums::EMPTY;
        held(entry).for_each(|h| checksums.push(h.place + 1));
        let (start, valid, status) = (entry.start(), entry.valid(), entry.status());
        state.apply(&Record::Write { page, start, valid, status, checksums }, &Unseen).unwrap();
    }
}
fn apply(state: &mut State, record: Record) {
    state.apply(&record, &Unseen).unwrap();
}
fn sync(state: &mut State) -> u64 {
    let token = state.next_token();
    apply(state, Record::Token { token });
    token
}
fn sound(state: &State) {
    assert_eq!(state.audit(), Vec::<String>::new());
}

#[test]
fn entries_are_as_few_as_two_placements_allow() {
    let packed = Status::ALLOCATED.with(Status::PACKED);
    for (places, entries) in [
        (vec![(3, 100)], vec![(97, Status::ALLOCATED)]),
        // At its distance from the start of the pool, and nearer to it.
        (vec![(3, 3)], vec![(0, Status::ALLOCATED)]),
        (vec![(3, 2)], vec![(2, packed)]),
        (vec![(3, 103), (5, 105), (9, 109)], vec![(100, Status::ALLOCATED)]),
        (vec![(3, 103), (5, 104), (9, 105)], vec![(103, packed)]),
        // Two of each kind are the first's; three side by side are more than two at their distance.
        (vec![(3, 103), (4, 104), (6, 105)], vec![(103, packed)]),
        (vec![(3, 103), (4, 104), (6, 106)], vec![(100, Status::ALLOCATED)]),
        (vec![(3, 103), (4, 104), (6, 107)], vec![(100, Status::ALLOCATED), (101, Status::ALLOCATED)]),
        (vec![(3, 103), (4, 90), (6, 2), (7, 3)], vec![(100, Status::ALLOCATED), (86, Status::ALLOCATED), (2, packed)]),
        (vec![], vec![]),
    ] {
        let (held_by, mut made) = (held_at(&places), Vec::new());
        entries_of(&held_by, 9, packed, &mut made);
        let said: Vec<_> = made.iter().map(|e| (e.start().0, e.status())).collect();
        assert_eq!(said, entries.iter().map(|(start, status)| (*start, *status)).collect::<Vec<_>>(), "{places:?}");
        assert_eq!(made.iter().flat_map(|e| held(*e)).collect::<Vec<_>>(), held_by);
        assert!(made.iter().all(|e| e.time() == 9 && status_of(*e) == Status::ALLOCATED));
    }
}
#[test]
fn sets_of_pages_are_walked_in_order() {
    let mut set = PageSet(vec![0; 3]);
    [0, 5, 63, 64, 190].into_iter().for_each(|page| set.set(page, true));
    [5, 7].into_iter().for_each(|page| set.set(page, false));
    let walked = std::iter::successors(set.next(0), |page| set.next(page + 1)).collect::<Vec<_>>();
    assert_eq!(walked, [0, 63, 64, 190]);
    assert_eq!((set.next(190), set.next(191), set.next(192), set.next(1000)), (Some(190), None, None, None));
}
#[test]
fn live_flash_pages_are_those_that_somebody_can_ask_for() {
    let mut state = State::new(G, u32::MAX);
    write(&mut state, 1, &[(0, 40), (1, 41), (5, 45)]);
    write(&mut state, 1, &[(1, 50)]);
    assert_eq!((state.live(5), state.live(6), state.live_total(), state.old_count()), (2, 1, 3, 0));
    assert!(state.is_written(17) && !state.is_written(18) && state.is_used(1) && !state.is_used(2));
    let token = sync(&mut state);
    write(&mut state, 1, &[(0, 60), (5, 61)]);
    assert_eq!((state.live(5), state.live(7), state.old_count(), state.versions_of(1).len()), (2, 2, 2, 2));
    let at = |state: &State, subpage| state.located_at(subpage, token).map(|l| (l.place, l.checksum));
    assert_eq!([16, 17, 18, 21].map(|s| at(&state, s)), [Some((40, 41)), Some((50, 51)), None, Some((45, 46))]);
    assert!(state.is_live(1, Held { subpage: 0, place: 40 }) && state.is_live(1, Held { subpage: 0, place: 60 }));
    assert!(!state.is_live(1, Held { subpage: 0, place: 41 }) && !state.is_live(2, Held { subpage: 0, place: 40 }));
    assert_eq!(state.checksum(1, Held { subpage: 5, place: 45 }), Some(46));
    sound(&state);
    // Moved, old or not; and one of several that are contiguous.
    let mv = |from, to, subpages| {
        let (from, to) = (FlashPage(from), FlashPage(to));
        Record::Move { page: 1, subpages, from, to }
    };
    apply(&mut state, mv(40, 80, 1));
    apply(&mut state, mv(60, 90, 0b10_0001));
    assert_eq!(at(&state, 16), Some((80, 41)));
    let visible = |state: &State, subpage| state.map().get(subpage).map(|l| (l.place, l.checksum));
    assert_eq!((visible(&state, 16), visible(&state, 21)), (Some((90, 61)), Some((91, 62))));
    assert_eq!((state.live(5), state.live(7), state.live(10), state.live(11)), (1, 0, 1, 2));
    assert_eq!(state.take_emptied(), [7]);
    sound(&state);
    apply(&mut state, Record::Drop { token });
    assert_eq!((state.live(5), state.live(10), state.live_total(), state.old_count()), (0, 0, 3, 0));
    assert_eq!((state.take_emptied(), state.versions_of(1).len()), (vec![10, 5], 1));
    sound(&state);
}
#[test]
fn what_was_deleted_is_there_for_tokens_and_comes_back_with_them() {
    let mut state = State::new(G, u32::MAX);
    write(&mut state, 2, &[(0, 40), (1, 48)]);
    let first = sync(&mut state);
    apply(&mut state, Record::Status { page: 2, status: Status::DELETED });
    let second = sync(&mut state);
    write(&mut state, 2, &[(1, 56)]);
    let third = sync(&mut state);
    let at = |state: &State, token| [32, 33].map(|s| state.located_at(s, token).map(|l| l.place));
    for token in [first, second, third] {
        let expected = [[Some(40), Some(48)], [None, None], [None, Some(56)]][token as usize - 1];
        assert_eq!(at(&state, token), expected);
    }
    assert_eq!((state.status(2), state.live_total(), state.tokens().newest()), (Status::ALLOCATED, 3, Some(3)));
    sound(&state);
    apply(&mut state, Record::RollBack { token: second });
    assert_eq!((state.status(2), state.map().get(33), state.live_total()), (Status::DELETED, None, 2));
    sound(&state);
    apply(&mut state, Record::RollBack { token: first });
    let visible = [32, 33].map(|s| state.map().get(s).map(|l| (l.place, l.checksum)));
    assert_eq!((visible, state.old_count()), ([Some((40, 41)), Some((48, 49))], 0));
    sound(&state);
    // Nothing is left of a page that was deleted before the oldest token.
    apply(&mut state, Record::Status { page: 2, status: Status::DELETED });
    sync(&mut state);
    apply(&mut state, Record::Drop { token: first });
    assert_eq!((state.is_used(2), state.live_total(), state.old_count()), (false, 0, 0));
    sound(&state);
}
#[test]
fn old_versions_get_the_time_of_the_first_token_that_sees_them() {
    let mut state = State::new(G, u32::MAX);
    let mut tokens = Vec::new();
    for i in 0..6 {
        write(&mut state, 3, &[(i, 40 + 8 * i)]);
        tokens.push(sync(&mut state));
    }
    let times = |state: &State| state.versions_of(3).iter().map(|v| v.time).collect::<Vec<_>>();
    assert_eq!(times(&state), [6, 5, 4, 3, 2, 1]);
    [1, 3, 4].into_iter().for_each(|token| apply(&mut state, Record::Drop { token }));
    let before: Vec<_> = tokens.iter().map(|token| (48..54).map(|s| state.located_at(s, *token)).collect()).collect();
    apply(&mut state, Record::Restamp { token: 5 });
    assert_eq!(times(&state), [6, 5, 2]);
    let after: Vec<Vec<_>> =
        tokens.iter().map(|token| (48..54).map(|s| state.located_at(s, *token)).collect()).collect();
    assert_eq!((&after[1], &after[4], &after[5]), (&before[1], &before[4], &before[5]));
    sound(&state);
}
#[test]
fn a_full_table_takes_nothing_and_stays_as_it_was() {
    // 10 pages, and one entry less than a write may take.
    for (limit, fits) in [(10 + 16, false), (10 + 17, true)] {
        let mut state = State::new(G, limit);
        let mut checksums = Checksums::EMPTY;
        checksums.push(1);
        let start = FlashPage(40);
        let record = Record::Write { page: 0, start, valid: 1, status: Status::ALLOCATED, checksums };
        assert_eq!(state.apply(&record, &Unseen), if fits { Ok(()) } else { Err(TableFull) });
        let record = Record::Status { page: 1, status: Status::ALLOCATED };
        assert_eq!(state.apply(&record, &Unseen), if fits { Ok(()) } else { Err(TableFull) });
        assert_eq!((state.live_total(), state.is_used(1)), (u64::from(fits), fits));
    }
}
/// Pages that have a record already.
struct Has(u32);
impl Seen for Has {
    fn contains(&self, page: u32) -> bool {
        page == self.0
    }
}
const OBJECTS: Geometry = Geometry { objects: true, ..G };

fn objects(flash_page: u32, of: &[(u32, u16, u16)]) -> ObjectsWritten {
    let mut written = ObjectsWritten::new(flash_page, Status::ALLOCATED);
    for &(subpage, offset, length) in of {
        let checksum = if length > 0 { subpage + 1 } else { 0 };
        written.push(ObjectWritten { subpage, length, offset, checksum });
    }
    written
}
#[test]
fn a_full_table_takes_no_object_or_all_of_a_record() {
    // At worst each takes 17 entries.
    for (limit, fits) in [(10 + 33, false), (10 + 34, true)] {
        let mut state = State::new(OBJECTS, limit);
        let record = Record::Objects(objects(40, &[(0, 0, 16), (20, 16, 16)]));
        assert_eq!(state.apply(&record, &Unseen), if fits { Ok(()) } else { Err(TableFull) });
        assert_eq!((state.objects().count(), state.is_used(0)), (if fits { 2 } else { 0 }, fits));
    }
}
#[test]
fn records_of_objects_leave_out_pages_that_have_them() {
    let mut state = State::new(OBJECTS, u32::MAX);
    // Pages 0 and 2, and the other way around.
    for seen in [2, 0] {
        state.apply(&Record::Objects(objects(40, &[(3, 0, 100), (35, 112, 50)])), &Has(seen)).unwrap();
        assert_eq!([3, 35].map(|subpage| state.is_written(subpage)), [true, seen == 0]);
    }
    let at =
        |state: &State, subpage| state.slots_of(subpage).into_iter().map(|(_, at)| at.flash_page).collect::<Vec<_>>();
    let mut moved = ObjectsMoved::new(80);
    for (subpage, from_offset) in [(3, 0), (35, 112)] {
        moved.push(ObjectMoved { subpage, from: 40, from_offset, offset: from_offset });
    }
    state.apply(&Record::MoveObjects(moved), &Has(2)).unwrap();
    assert_eq!((at(&state, 3), at(&state, 35), state.live(5), state.live(10)), (vec![80], vec![40], 1, 1));
    state.apply(&Record::MoveObjects(moved), &Has(0)).unwrap();
    assert_eq!((at(&state, 3), at(&state, 35), state.live(5)), (vec![80], vec![80], 0));
    sound(&state);
}
#[test]
fn objects_are_in_flash_pages_of_a_pool_that_has_them() {
    let state = State::new(OBJECTS, u32::MAX);
    let may = |flash_page, of| state.may_write(&objects(flash_page, &[(0, 0, 16), of]));
    // Extents 0 to 2 have none, and 320 flash pages are all.
    for (flash_page, fits) in [(23, false), (24, true), (319, true), (320, false)] {
        assert_eq!(may(flash_page, (5, 16, 4080)), fits, "{flash_page}");
    }
    for (of, fits) in [
        ((159, 16, 4080), true),
        ((160, 16, 4080), false),
        ((5, 16, 4081), false),
        ((5, 8, 100), false),
        // What is freed has no location.
        ((5, 0, 0), true),
        ((5, 16, 0), false),
    ] {
        assert_eq!(may(40, of), fits, "{of:?}");
    }
    let mut freed = ObjectsWritten::new(40, Status::ALLOCATED);
    freed.push(ObjectWritten { subpage: 5, length: 0, offset: 0, checksum: 1 });
    assert!(!state.may_write(&freed), "nothing has a checksum");
    assert!(!State::new(G, u32::MAX).may_write(&objects(40, &[(0, 0, 16)])), "a pool without objects");
    // In a checkpoint.
    let entry = |valid| PageEntry::new(FlashPage(0), EntryIndex::NONE, valid, 1, Status::ALLOCATED);
    let words = |at: ObjectLocation, checksum| at.words(checksum).to_vec();
    let there = ObjectLocation { flash_page: 40, offset: 16, length: 100 };
    assert!(
        state.are_sane(entry(1), &words(there, 7)) && state.are_sane(entry(1 << 15), &words(ObjectLocation::FREED, 0))
    );
    assert!(
        !state.are_sane(entry(1 << 16), &words(there, 7))
            && !state.are_sane(entry(1), &words(ObjectLocation::FREED, 7))
    );
    assert!(!state.are_sane(entry(1), &words(ObjectLocation { flash_page: 23, ..there }, 7)));
    // The new location of an object must have room for all of it.
    let mut state = State::new(OBJECTS, u32::MAX);
    state.apply(&Record::Objects(objects(40, &[(3, 0, 100)])), &Unseen).unwrap();
    let may = |flash_page, subpage, offset| {
        let mut moved = ObjectsMoved::new(flash_page);
        moved.push(ObjectMoved { subpage, from: 40, from_offset: 0, offset });
        state.may_move(&moved)
    };
    // A byte is enough for what is not there any more.
    for (subpage, offset, fits) in
        [(3, 3984, true), (3, 4000, false), (4, 4080, true), (4, 4096, false), (160, 0, false)]
    {
        assert_eq!(may(80, subpage, offset), fits, "{subpage} to {offset}");
    }
    assert!(!may(23, 3, 0) && !may(320, 3, 0) && may(24, 3, 0));
}
/// A version between tokens gets the time of the first that sees it. A later version keeps its own.
#[test]
fn only_what_is_older_is_restamped() {
    let mut state = State::new(G, u32::MAX);
    let times =
        |state: &State| [0, 1, 2, 3].map(|page| state.versions_of(page).iter().map(|v| v.time).collect::<Vec<_>>());
    for page in 0..3 {
        write(&mut state, page, &[(0, 40 + 8 * page)]);
        sync(&mut state);
    }
    write(&mut state, 3, &[(0, 80)]);
    // Kept are 3 and 4, so that what was written in 1 and 2 is first seen by 3.
    sync(&mut state);
    [1, 2].into_iter().for_each(|token| apply(&mut state, Record::Drop { token }));
    assert_eq!(times(&state), [vec![1], vec![2], vec![3], vec![4]]);
    apply(&mut state, Record::Restamp { token: 2 });
    assert_eq!(times(&state), [vec![3], vec![2], vec![3], vec![4]]);
    apply(&mut state, Record::Restamp { token: 3 });
    assert_eq!(times(&state), [vec![3], vec![3], vec![3], vec![4]]);
    // Behind the newest token the time is the present one.
    [3, 4].into_iter().for_each(|token| apply(&mut state, Record::Drop { token }));
    state.apply(&Record::Restamp { token: 5 }, &Has(1)).unwrap();
    assert_eq!(times(&state), [vec![5], vec![3], vec![5], vec![5]]);
    sound(&state);
}
/// What is wrong with the tables is said, one by one: else no test that asks would see it.
#[test]
fn an_audit_names_what_is_wrong() {
    let made = || {
        let mut state = State::new(OBJECTS, u32::MAX);
        write(&mut state, 1, &[(0, 40), (1, 41), (5, 45)]);
        state.apply(&Record::Objects(objects(80, &[(3, 0, 100), (35, 112, 50)])), &Unseen).unwrap();
        sync(&mut state);
        write(&mut state, 1, &[(0, 56)]);
        sound(&state);
        state
    };
    let named = |change: &dyn Fn(&mut State), words: &[&str]| {
        let mut state = made();
        change(&mut state);
        let wrong = state.audit();
        for word in words {
            assert!(wrong.iter().any(|line| line.contains(word)), "{word}: {wrong:?}");
        }
        assert_eq!(wrong.len(), words.len(), "{wrong:?}");
    };
    named(&|state| state.live[5] += 1, &["extent 5: 4 live flash pages counted, 3 found"]);
    named(&|state| state.live_in_all -= 1, &["3 live flash pages counted in all"]);
    named(&|state| _ = state.old.remove(&40), &["page 1: no checksum of flash page 40"]);
    let elsewhere = |place| Some(Located { place, checksum: 1 });
    // What programs see of page 1 is in an entry that names its place.
    named(
        &|state| state.map.set(16, elsewhere(57)),
        &["subpage 16: the map and the page table disagree", "no checksum of flash page 56"],
    );
    named(&|state| state.map.set(31, elsewhere(57)), &["subpage 31: the map and the page table disagree"]);
    // Two versions with one flash page, and one that does not exist.
    let entry = |place: u64, time| PageEntry::new(FlashPage(place), EntryIndex::NONE, 1, time, Status::ALLOCATED);
    named(
        &|state| {
            state.table.replace(9, &[entry(56, 1)]).unwrap();
            state.map.set(9 * N, Some(Located { place: 56, checksum: 57 }));
        },
        &[
            "page 9: flash page 56 belongs to another version too",
            "extent 7: 1 live flash pages counted, 2 found",
            "4 live flash pages counted in all",
        ],
    );
    named(
        &|state| {
            state.table.replace(9, &[entry(320, 1)]).unwrap();
            state.map.set(9 * N, Some(Located { place: 320, checksum: 57 }));
        },
        &["page 9: flash page 320 does not exist", "subpage 144: the map and the page table disagree"],
    );
    // A chain that ascends in time.
    named(
        &|state| {
            state.table.replace(9, &[entry(64, 1), entry(65, 2)]).unwrap();
            state.map.set(9 * N, Some(Located { place: 64, checksum: 57 }));
            state.old.insert(65, 1);
            state.live[8] += 2;
            state.live_in_all += 2;
        },
        &["page 9: a version is newer than the one before it"],
    );
    // Objects: what they weigh in an extent, in all, and how many there are.
    let one = ObjectLocation { flash_page: 88, offset: 0, length: 100 };
    named(
        &|state| {
            let slot = state.objects.take(one);
            state.objects.gain(slot);
        },
        &["extent 11: Needed", "objects of weight", "3 objects counted, 2 found"],
    );
}
