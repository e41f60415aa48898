//! What becomes of extents: opened, filled, emptied, free again.

use super::*;

/// One stream for each writer; extents 3 to 15, of seven flash pages for data each.
const FEW: Geometry = Geometry { extent_pages: 8, extents: 16, subpages: 64, objects: false };
/// One stream for each degree of heat; extents 3 to 127.
const MANY: Geometry = Geometry { extents: FEW_EXTENTS, ..FEW };

fn owner(subpage: u32) -> Owner {
    Owner { subpage, checksum: subpage + 1 }
}
fn free_ones(extents: &Extents) -> Vec<u32> {
    (0..extents.uses.len() as u32).filter(|e| extents.use_of(*e) == Use::Free).collect()
}
/// Fills the open extent of a writer, or a new one, and ends its writes. Returns which it was.
fn fill(extents: &mut Extents, writer: Writer, degree: usize, wear: &Wear) -> u32 {
    loop {
        let place = extents.give(writer, degree, 0, wear).unwrap();
        extents.settled(place, Some(owner(place)));
        if let Some(filled) = extents.take_filled() {
            assert_eq!(filled.extent, extents.geometry.extent_of(place));
            return filled.extent;
        }
    }
}
/// What is counted as uses change is what there is.
fn check_counts(extents: &Extents) {
    let of = |which: fn(&Use) -> bool| extents.uses.iter().filter(|u| which(u)).count() as u32;
    assert_eq!(extents.metadata(), of(|u| *u == Use::Metadata));
    assert_eq!(extents.for_data(), of(|u| !matches!(u, Use::Fixed | Use::Metadata | Use::Retired)));
}
/// As many flash pages live in each as this says, and the same compared.
fn live_of(all: &[(u32, u32)]) -> impl Fn(u32) -> (u32, u32) {
    move |extent| all.iter().find(|(e, _)| *e == extent).map_or((0, 0), |(_, live)| (*live, *live))
}
/// What an extent holds, if its pages have one version each.
fn content_of(all: &[(u32, u32)]) -> impl Fn(u32) -> Content {
    let live = live_of(all);
    move |extent| Content { live: live(extent).0, compared: live(extent).1, chains: 0 }
}
/// An extent with `count` flash pages that failed, the last ones of its data.
fn with_bad(wear: &mut Wear, extent: u32, count: u32) {
    (0..count).for_each(|i| _ = wear.insert(extent * 8 + 6 - i));
}
fn with_fills(fills: &[(u32, u32)]) -> Wear {
    let mut wear = Wear::new(FEW);
    fills.iter().for_each(|(extent, fills)| wear.set_fills(*extent, &[*fills]));
    wear
}

#[test]
fn what_is_live_or_broken_is_not_free_after_recovery() {
    let new = Extents::new(FEW);
    assert_eq!((new.free(), new.for_data(), new.metadata(), new.emptied(), new.limit()), (13, 13, 0, 0, 16));
    assert_eq!((new.use_of(2), new.use_of(3)), (Use::Fixed, Use::Free));
    let mut wear = Wear::new(FEW);
    [4, 6, 7].into_iter().for_each(|extent| with_bad(&mut wear, extent, 2));
    with_bad(&mut wear, 8, 1);
    let live = |extent| u32::from(extent == 5 || extent == 6 || extent == 4);
    let extents = Extents::recovered(FEW, &[4, 9], &wear, live);
    let uses = (4..=9).map(|e| extents.use_of(e)).collect::<Vec<_>>();
    assert_eq!(uses, [Use::Metadata, Use::Closed, Use::Closed, Use::Retired, Use::Free, Use::Metadata]);
    check_counts(&extents);
    assert_eq!((extents.free(), extents.for_data(), extents.metadata()), (8, 10, 2));
    assert_eq!(free_ones(&extents), [3, 8, 10, 11, 12, 13, 14, 15]);
}
#[test]
fn metadata_takes_no_extent_with_bad_pages_and_those_that_are_too_bad_are_not_used_again() {
    let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
    with_bad(&mut wear, 3, 1);
    assert_eq!((extents.take_for_metadata(&wear), extents.take_for_metadata(&wear)), (Some(4), Some(5)));
    assert_eq!((extents.metadata(), extents.free(), extents.use_of(4)), (2, 11, Use::Metadata));
    assert_eq!((extents.take_taken(), extents.take_taken(), extents.take_taken()), (Some(5), Some(4), None));
    extents.free_metadata(4, &wear);
    with_bad(&mut wear, 5, 2);
    extents.free_metadata(5, &wear);
    assert_eq!((extents.use_of(4), extents.use_of(5), extents.free()), (Use::Free, Use::Retired, 12));
    check_counts(&extents);
    // A free one that becomes too bad is free no more. A merely bad one stays, and so does one in
    // use.
    extents.note_bad(3 * 8, &wear);
    assert_eq!(extents.use_of(3), Use::Free);
    with_bad(&mut wear, 3, 2);
    extents.note_bad(3 * 8, &wear);
    assert_eq!((extents.use_of(3), extents.free()), (Use::Retired, 11));
    let open = extents.give(Writer::Program, 0, 0, &wear).unwrap() / 8;
    with_bad(&mut wear, open, 2);
    extents.note_bad(open * 8, &wear);
    assert_eq!((extents.use_of(open), extents.for_data()), (Use::Open, 11));
    // All that are left have bad pages.
    (3..16).for_each(|extent| with_bad(&mut wear, extent, 1));
    assert_eq!(extents.take_for_metadata(&wear), None);
}
#[test]
fn what_is_hot_is_put_where_was_written_least_and_bad_extents_come_first() {
    let mut wear = with_fills(&[(3, 5), (4, 2), (5, 9), (6, 1), (7, 8)]);
    (8..16).for_each(|extent| wear.set_fills(extent, &[4]));
    let mut extents = Extents::new(FEW);
    assert_eq!((extents.take_for_data(&wear, true), extents.take_for_data(&wear, true)), (5, 7));
    assert_eq!((extents.take_for_data(&wear, false), extents.take_for_data(&wear, false)), (6, 4));
    with_bad(&mut wear, 12, 1);
    assert_eq!((extents.take_for_data(&wear, true), extents.take_taken()), (12, Some(12)));
    assert_eq!((extents.take_for_objects(8, &wear, true), extents.take_for_objects(7, &wear, true)), (None, Some(3)));
    // In a small pool reclaim's data is cold; in a large one what has the lowest degree.
    let cold = with_fills(&[(9, 1)]);
    let mut extents = Extents::new(FEW);
    let first = |extents: &mut Extents, writer, degree, wear: &Wear| extents.give(writer, degree, 0, wear).unwrap();
    assert_eq!(first(&mut extents, Writer::Program, 0, &cold), 3 * 8);
    assert_eq!(first(&mut extents, Writer::Reclaim, 4, &cold), 9 * 8);
    let mut wear = Wear::new(MANY);
    wear.set_fills(9, &[1]);
    let mut extents = Extents::new(MANY);
    assert_eq!(first(&mut extents, Writer::Reclaim, 1, &wear), 3 * 8);
    assert_eq!(first(&mut extents, Writer::Program, 0, &wear), 9 * 8);
}
#[test]
fn streams_are_contiguous_and_leave_out_bad_pages() {
    assert!(has_few(FEW) && !has_few(MANY));
    assert_eq!((open_at_most(FEW), open_at_most(MANY)), (2, 5));
    let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
    with_bad(&mut wear, 3, 1);
    let mut give = |writer, degree, reserve| extents.give(writer, degree, reserve, &wear);
    let places: Vec<u32> = (0..6).map(|degree| give(Writer::Program, degree % 5, 12).unwrap()).collect();
    assert_eq!(places, [24, 25, 26, 27, 28, 29]);
    // Each writer has its own, and leaves the reserve alone.
    assert_eq!((give(Writer::Reclaim, 0, 12), give(Writer::Reclaim, 0, 11)), (None, Some(32)));
    // The last flash page of the first extent is bad: that one is full.
    assert_eq!((give(Writer::Program, 0, 11), give(Writer::Program, 0, 10)), (None, Some(40)));
    // Full, and written when the last of its writes has ended, whatever their owners and results.
    extents.settled(25, None);
    [29, 24, 27, 26].into_iter().for_each(|place| extents.settled(place, Some(owner(place))));
    assert_eq!((extents.take_filled(), extents.use_of(3)), (None, Use::Open));
    extents.settled(28, Some(owner(28)));
    let owners = [owner(24), Owner::NONE, owner(26), owner(27), owner(28), owner(29), Owner::NONE].to_vec();
    assert_eq!((extents.take_filled(), extents.use_of(3)), (Some(Filled { extent: 3, owners }), Use::Closed));
    assert_eq!((extents.take_filled(), extents.room_for_programs(100)), (None, usize::MAX));
}
#[test]
fn in_a_large_pool_each_degree_has_an_extent_and_takes_anothers_where_there_is_no_more() {
    let (mut extents, wear) = (Extents::new(MANY), Wear::new(MANY));
    let mut give = |writer, degree, reserve| extents.give(writer, degree, reserve, &wear);
    assert_eq!(give(Writer::Program, 2, 125), None);
    // Both writers share them.
    assert_eq!((give(Writer::Program, 2, 0), give(Writer::Reclaim, 2, 0)), (Some(24), Some(25)));
    assert_eq!((give(Writer::Program, 4, 0), give(Writer::Program, 0, 0)), (Some(32), Some(40)));
    assert_eq!((give(Writer::Program, 1, 122), give(Writer::Program, 4, 122)), (Some(41), Some(33)));
    // 5, 5 and 5 pages of three open extents, and the pages of free ones beyond the reserve.
    assert_eq!((extents.room_for_programs(122), extents.room_for_programs(120)), (15, 29));
    assert_eq!((extents.room_for_programs(123), extents.room_for_programs(125)), (8, 0));
    for (batch, degrees) in [(39, [1, 1, 1, 3, 3]), (40, [0, 1, 2, 3, 4])] {
        assert_eq!([0, 1, 2, 3, 4].map(|degree| degree_of_batch(degree, batch)), degrees);
    }
}
/// All that is left of an extent that was opened is bad: the next one is taken.
#[test]
fn an_extent_of_nothing_but_bad_pages_is_passed_over() {
    let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
    with_bad(&mut wear, 3, 7);
    assert_eq!(extents.give(Writer::Program, 0, 0, &wear), Some(32));
    assert_eq!((extents.use_of(3), extents.take_filled().map(|f| f.extent)), (Use::Closed, Some(3)));
}
#[test]
fn what_was_emptied_is_free_when_the_journal_is_durable_and_nothing_is_copied_from_it() {
    let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
    for extent in [3, 4, 5] {
        assert_eq!(fill(&mut extents, Writer::Program, 0, &wear), extent);
        extents.note_empty(extent, u64::from(extent) * 10);
    }
    // What is free or open has nothing that it could lose.
    extents.note_empty(9, 0);
    assert_eq!((extents.emptied(), extents.free(), extents.use_of(9)), (3, 10, Use::Free));
    assert_eq!(extents.durable(30, &wear), 0);
    assert_eq!((extents.durable(31, &wear), extents.use_of(3), extents.emptied()), (1, Use::Free, 2));
    extents.set_copied_from(Some(4), &wear);
    assert_eq!((extents.durable(41, &wear), extents.use_of(4)), (0, Use::Emptied { until: 40 }));
    // It stays so until copies from it have ended, whatever becomes durable. A page named again
    // changes nothing.
    extents.set_copied_from(Some(4), &wear);
    assert_eq!(extents.durable(51, &wear), 1);
    assert_eq!((extents.emptied(), extents.free()), (1, 12));
    extents.set_copied_from(None, &wear);
    assert_eq!((extents.emptied(), extents.free(), extents.use_of(4)), (0, 13, Use::Free));
    // The end that was durable is not forgotten by an older one.
    let extent = fill(&mut extents, Writer::Program, 0, &wear);
    extents.set_copied_from(Some(extent), &wear);
    extents.note_empty(extent, 45);
    assert_eq!(extents.durable(44, &wear), 0);
    extents.set_copied_from(None, &wear);
    assert_eq!(extents.free(), 13);
}
#[test]
fn what_was_emptied_is_free_when_all_of_its_summary_has_ended() {
    let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
    for extent in [3, 4] {
        assert_eq!(fill(&mut extents, Writer::Program, 0, &wear), extent);
        extents.begin_summary(extent);
        extents.begin_summary(extent);
        extents.note_empty(extent, u64::from(extent) * 10);
    }
    // Until the journal is durable it is that which they wait for.
    assert_eq!((extents.emptied(), extents.held(), extents.free()), (2, 0, 11));
    assert_eq!(extents.durable(31, &wear), 0);
    assert_eq!((extents.emptied(), extents.held(), extents.use_of(3)), (1, 1, Use::Emptied { until: 30 }));
    extents.end_summary(3, &wear);
    assert_eq!((extents.held(), extents.free()), (1, 11));
    extents.end_summary(3, &wear);
    assert_eq!((extents.emptied(), extents.held(), extents.free(), extents.use_of(3)), (1, 0, 12, Use::Free));
    // One whose summary has ended before waits only for the journal.
    extents.end_summary(4, &wear);
    extents.end_summary(4, &wear);
    assert_eq!((extents.emptied(), extents.free()), (1, 12));
    assert_eq!((extents.durable(41, &wear), extents.emptied(), extents.free()), (1, 0, 13));
}
#[test]
fn the_next_to_be_reclaimed_gains_most_for_its_age() {
    let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
    let filled: Vec<u32> = (0..4).map(|_| fill(&mut extents, Writer::Program, 0, &wear)).collect();
    assert_eq!(filled, [3, 4, 5, 6]);
    let victim = |extents: &mut Extents, policy, live: &[(u32, u32)]| {
        let victim = extents.victim(policy, false, &wear, content_of(live));
        victim.inspect(|e| {
            assert_eq!(extents.use_of(*e), Use::Reclaimed);
            extents.uses[*e as usize] = Use::Closed;
        })
    };
    let (greedy, benefit) = (Victims::Greedy, Victims::CostBenefit);
    // Full ones gain nothing; of equals the last is taken by the greedy, the oldest by the other.
    assert_eq!(victim(&mut extents, greedy, &[(3, 7), (4, 7), (5, 7), (6, 7)]), None);
    assert_eq!(victim(&mut extents, greedy, &[(3, 7), (4, 6), (5, 7), (6, 7)]), Some(4));
    assert_eq!(victim(&mut extents, greedy, &[(3, 3), (4, 3), (5, 3), (6, 4)]), Some(5));
    assert_eq!(victim(&mut extents, benefit, &[(3, 3), (4, 3), (5, 3), (6, 4)]), Some(3));
    // Ages 22, 15, 8 and 1: (7 - live) / (live + 1) x age.
    assert_eq!(victim(&mut extents, benefit, &[(3, 5), (4, 4), (5, 7), (6, 7)]), Some(4));
    assert_eq!(victim(&mut extents, benefit, &[(3, 5), (4, 5), (5, 3), (6, 7)]), Some(5));
    assert_eq!(victim(&mut extents, benefit, &[(3, 5), (4, 5), (5, 4), (6, 1)]), Some(3));
    // One that was given up is the youngest, and not tried again while as much of it is live.
    let live = [(3, 5), (4, 5), (5, 6), (6, 6)];
    assert_eq!(extents.victim(benefit, false, &wear, content_of(&live)), Some(3));
    extents.give_up(3);
    assert_eq!((extents.use_of(3), victim(&mut extents, benefit, &live)), (Use::Closed, Some(4)));
    assert_eq!(extents.victim(greedy, false, &wear, content_of(&[(3, 1), (4, 5), (5, 5), (6, 5)])), Some(3));
    extents.give_up_for_now(3, 1);
    assert_eq!(victim(&mut extents, greedy, &[(3, 1), (4, 5), (5, 6), (6, 6)]), Some(4));
    assert_eq!(extents.victim_among(3..7, Some(6), live_of(&[(3, 1), (4, 5), (5, 6), (6, 6)])), Some(4));
    extents.give_up(4);
    assert_eq!(victim(&mut extents, greedy, &[(3, 2), (4, 5), (5, 6), (6, 6)]), Some(3));
    // What is not being reclaimed cannot be given up.
    extents.give_up(9);
    assert_eq!(extents.use_of(9), Use::Free);
    // When it is free again that is forgotten.
    extents.note_empty(3, 0);
    extents.durable(1, &wear);
    assert_eq!(extents.stuck[3], 0);
}
#[test]
fn one_that_is_to_be_used_no_more_comes_first_where_there_is_room() {
    let (mut extents, mut wear) = (Extents::new(FEW), Wear::new(FEW));
    (0..2).for_each(|_| _ = fill(&mut extents, Writer::Program, 0, &wear));
    let live = [(3, 7), (4, 1)];
    with_bad(&mut wear, 3, 2);
    let mut victim = |room| {
        let victim = extents.victim(Victims::Greedy, room, &wear, content_of(&live))?;
        extents.give_up(victim);
        Some(victim)
    };
    assert_eq!((victim(false), victim(true)), (Some(4), Some(3)));
    // Full and sound: neither.
    assert_eq!(extents.victim(Victims::Greedy, true, &Wear::new(FEW), content_of(&[(3, 7), (4, 7)])), None);
}
#[test]
fn of_some_the_one_with_the_fewest_live_pages_is_chosen() {
    let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
    (0..4).for_each(|_| _ = fill(&mut extents, Writer::Program, 0, &wear));
    let live = [(3, 5), (4, 2), (5, 3), (6, 1)];
    assert_eq!(extents.victim_among(3..6, Some(1), live_of(&live)), None);
    assert_eq!((extents.victim_among(3..6, Some(2), live_of(&live)), extents.use_of(4)), (Some(4), Use::Reclaimed));
    assert_eq!(extents.victim_among(3..6, None, live_of(&live)), Some(5));
    assert_eq!(extents.victim_among(7..16, None, live_of(&live)), None);
    // One that has nothing live is never stuck.
    extents.give_up_for_now(5, 0);
    assert_eq!(extents.victim_among(5..6, Some(7), live_of(&[])), Some(5));
    extents.give_up_for_now(5, 3);
    assert_eq!(extents.victim_among(5..6, Some(7), live_of(&live)), None);
    assert_eq!(extents.victim_among(5..6, None, live_of(&live)), Some(5));
}
#[test]
fn wear_is_levelled_now_and_then_and_only_where_it_is_uneven() {
    let mut wear = with_fills(&[(3, 9), (4, 4), (5, 6), (6, 14)]);
    let mut extents = Extents::new(FEW);
    (3..=5).for_each(|extent| extents.uses[extent as usize] = Use::Closed);
    // As much as 32 extents hold has to be written before, and again each time.
    extents.given = 32 * 7 - 1;
    assert_eq!(extents.due_for_levelling(1, &wear), None);
    extents.given += 1;
    assert_eq!(extents.due_for_levelling(10, &wear), None);
    assert_eq!(extents.due_for_levelling(9, &wear), None);
    extents.given += 32 * 7;
    assert_eq!(extents.due_for_levelling(9, &wear), Some(4));
    assert_eq!((extents.use_of(4), extents.due_for_levelling(1, &wear)), (Use::Reclaimed, None));
    extents.given += 32 * 7;
    assert_eq!(extents.due_for_levelling(8, &wear), None);
    wear.set_fills(6, &[15]);
    extents.given += 32 * 7;
    extents.set_limit(5);
    assert_eq!(extents.due_for_levelling(5, &wear), Some(3));
}
#[test]
fn nothing_behind_the_limit_is_used_again() {
    let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
    let (first, second) = (fill(&mut extents, Writer::Program, 0, &wear), 4);
    assert_eq!(extents.give(Writer::Program, 0, 0, &wear), Some(second * 8));
    assert_eq!(extents.give(Writer::Reclaim, 0, 0, &wear), Some(5 * 8));
    // What is open behind it is closed, when its writes have ended.
    extents.set_limit(5);
    assert_eq!((extents.limit(), extents.free(), extents.take_filled()), (5, 0, None));
    extents.settled(5 * 8, Some(owner(7)));
    assert_eq!(extents.take_filled().map(|filled| (filled.extent, filled.owners[0])), Some((5, owner(7))));
    assert_eq!(extents.give(Writer::Program, 0, 0, &wear), Some(second * 8 + 1));
    [first, 5].into_iter().for_each(|extent| extents.note_empty(extent, 0));
    assert_eq!((extents.durable(1, &wear), extents.free()), (1, 1));
    extents.set_limit(16);
    assert_eq!((extents.free(), extents.give(Writer::Reclaim, 0, 0, &wear)), (12, Some(first * 8)));
}
#[test]
fn an_extent_of_objects_is_as_old_as_what_fills_it() {
    let (mut extents, wear) = (Extents::new(FEW), Wear::new(FEW));
    let objects = extents.take_for_objects(12, &wear, false).unwrap();
    let other = fill(&mut extents, Writer::Program, 0, &wear);
    extents.close_objects(objects, 3);
    assert_eq!((extents.use_of(objects), extents.given, extents.filled_at[objects as usize]), (Use::Closed, 10, 10));
    let live = [(objects, 3), (other, 3)];
    assert_eq!(extents.victim(Victims::CostBenefit, false, &wear, content_of(&live)), Some(other));
}
#[test]
fn bad_flash_pages_are_no_gain() {
    let geometry = Geometry::new(8 * 40, 8, None).expect("enough for a pool");
    let full = geometry.data_pages();
    for policy in [Victims::Greedy, Victims::CostBenefit] {
        let live = |e: u32| if e == 5 { full - 1 } else { full };
        let extents = |wear: &Wear| {
            let mut extents = Extents::recovered(geometry, &[], wear, live);
            extents.victim(policy, false, wear, |e| Content { live: live(e), compared: live(e), chains: 0 })
        };
        let mut wear = Wear::new(geometry);
        assert_eq!(extents(&wear), Some(5), "one is dead");
        // All that can be written is live: to empty it would cost as much as it gives, for ever.
        wear.insert(geometry.first_of(5) + 2);
        assert_eq!(extents(&wear), None, "none is dead, and one is bad");
        // One more than can be written is live, as it was read before its flash page failed.
        wear.insert(geometry.first_of(5) + 3);
        assert_eq!(extents(&wear), None);
    }
}
