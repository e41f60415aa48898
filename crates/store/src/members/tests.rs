//! Tests of what belongs together.

use fulgurite_flash::MemoryFlash;

use super::*;
use crate::Pool;

fn memory(pages: u32) -> Arc<dyn Flash> {
    Arc::new(MemoryFlash::new(pages).unwrap())
}
fn three() -> Members {
    let members = [80, 80, 48].into_iter().zip(0u8..).map(|(pages, i)| (PathBuf::from(format!("/{i}")), memory(pages)));
    let ids = [1, 2, 3].map(|n| PoolId([n; 16]));
    Members::create(members.collect(), &ids, 8, PoolId([9; 16])).unwrap()
}
fn found(members: &Members, order: &[usize]) -> Result<Members, MemberError> {
    let all: Vec<_> = members.members.clone();
    let others: Vec<PathBuf> = order[1..].iter().map(|at| all[*at].0.clone()).collect();
    let (path, flash) = all[order[0]].clone();
    let mut open = |path: &Path| Ok(all.iter().find(|(p, _)| p == path).unwrap().1.clone());
    Members::find((&path, &flash), &others, &mut open).map(Option::unwrap)
}

#[test]
fn whatever_is_named_first_all_are_found() {
    let mut made = three();
    // 10 + 9 + 5 extents.
    assert_eq!(made.flash().subpages(), 24 * 8);
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let again = found(&made, &order).unwrap();
        assert_eq!((again.generation, &again.list), (made.generation, &made.list));
        assert_eq!(again.paths().collect::<Vec<_>>(), made.paths().collect::<Vec<_>>());
        assert!(again.damaged().is_empty());
        made.begin_changes().unwrap();
    }
    assert!(matches!(found(&made, &[0, 1]), Err(MemberError::Missing { position: 2, .. })));
    assert!(matches!(found(&made, &[0, 1, 1]), Err(MemberError::Duplicate { .. })));
}
#[test]
fn a_list_is_in_effect_on_all_members_or_on_none() {
    let made = three();
    // The next generation, cut off after each of its six writes.
    for cut in 0..=6usize {
        let mut copy = three();
        let mut next = three();
        next.generation = made.generation + 1;
        next.list.bands.truncate(1);
        let order = [1, 0].into_iter().flat_map(|copy| (0..3).map(move |at| (at, copy)));
        for (at, which) in order.take(cut) {
            let page = next.page(at, which).unwrap();
            driver(Path::new("/"), &copy.members[at].1).unwrap().write_all(vec![page]).unwrap();
        }
        let again = found(&copy, &[0, 1, 2]).unwrap();
        let expected = if cut <= 3 { &made.list } else { &next.list };
        assert_eq!(&again.list, expected, "after {cut} writes");
        copy.begin_changes().unwrap();
    }
}
/// A crash while a pool of several members is made, over nothing or another one. Afterwards there
/// is no pool, the old one, or a new and empty one, and it can be made again.
#[test]
fn a_crash_while_a_pool_is_made() {
    let (id, old_id) = (PoolId([9; 16]), PoolId([8; 16]));
    let geometry = Geometry::new(50 * 8, 8, Some(64)).unwrap();
    let media = || -> Vec<(PathBuf, Arc<dyn Flash>)> {
        let each = [160, 160, 96].into_iter().zip(0u8..);
        each.map(|(pages, i)| (PathBuf::from(format!("/{i}")), memory(pages))).collect()
    };
    let ids = |first: u8| [first, first + 1, first + 2].map(|n| PoolId([n; 16]));
    let make = |media: Vec<(PathBuf, Arc<dyn Flash>)>, first: u8, id: PoolId| {
        let made = Members::create(media, &ids(first), 8, id).unwrap();
        let flash: Arc<dyn Flash> = made.flash();
        Pool::format(&flash, geometry, id, 7).unwrap();
        (made, flash)
    };
    let opened = |flash: Arc<dyn Flash>| Pool::open(flash, crate::StoreConfig::default());
    // What is written, in order: what each is, and then the pool on all of them.
    let (complete, _) = make(media(), 1, id);
    let lists = [1, 0].into_iter().flat_map(|copy| (0..3).map(move |at| (at, copy)));
    let mut writes: Vec<(Option<usize>, u32, PageBuffer)> = Vec::new();
    for (at, copy) in lists {
        let (place, page) = complete.page(at, copy).unwrap();
        writes.push((Some(at), place, page));
    }
    let pool = crate::Store::format(geometry, id, 7);
    writes.extend(pool.into_iter().map(|(place, page)| (None, place, page)));
    let mut seen = [0; 3];
    for over_an_old_one in [false, true] {
        for (cut, torn) in (0..=writes.len()).flat_map(|cut| [0, 512, 2048, 3584].map(|torn| (cut, torn))) {
            let what = format!("{cut} writes and {torn} bytes, over {over_an_old_one}");
            let media = media();
            if over_an_old_one {
                let (_, flash) = make(media.clone(), 4, old_id);
                let (pool, _) = opened(flash).unwrap();
                pool.set_permissions(0..2, crate::Permissions::DEFAULT).unwrap();
                pool.sync().unwrap();
            }
            let all: Arc<dyn Flash> = striped(&media, &complete.list);
            let target = |at: &Option<usize>| at.map_or(&all, |at| &media[at].1);
            for (at, place, page) in &writes[..cut] {
                Driver::new(&**target(at), 4).unwrap().write_all(vec![(*place, page.clone())]).unwrap();
            }
            if let Some((at, place, page)) = writes.get(cut).filter(|_| torn > 0) {
                let mut driver = Driver::new(&**target(at), 4).unwrap();
                let mut there = driver.read(*place, 0).unwrap();
                there[..torn].copy_from_slice(&page[..torn]);
                driver.write_all(vec![(*place, there)]).unwrap();
            }
            let order = [[0, 1, 2], [1, 2, 0], [2, 0, 1]][(cut + torn / 512) % 3];
            let others: Vec<PathBuf> = order[1..].iter().map(|at| media[*at].0.clone()).collect();
            let (path, flash) = &media[order[0]];
            let mut open = |path: &Path| Ok(media.iter().find(|(p, _)| p == path).unwrap().1.clone());
            let found = Members::find((path, flash), &others, &mut open);
            let is_new = cut == writes.len();
            match found {
                Ok(Some(members)) => match opened(members.flash()) {
                    Ok((pool, report)) if pool.id() == id => {
                        assert!(cut >= 8, "{what}: it is a pool before its anchors are there");
                        assert_eq!((report.token, pool.info().live, pool.geometry()), (0, 0, geometry), "{what}");
                        assert_eq!((pool.permissions(0), pool.audit()), (None, Vec::new()), "{what}");
                        seen[2] += 1;
                    }
                    Ok((pool, _)) => {
                        assert!(over_an_old_one && pool.id() == old_id && !is_new, "{what}");
                        assert_eq!(pool.permissions(1), Some(crate::Permissions::DEFAULT), "{what}");
                        seen[1] += 1;
                    }
                    Err(e) => {
                        assert!(!is_new, "{what}: {e}");
                        seen[0] += 1;
                    }
                },
                Ok(None) | Err(_) => {
                    assert!(!is_new, "{what}");
                    seen[0] += 1;
                }
            }
            let (_, flash) = make(media, 1, id);
            assert_eq!(opened(flash).unwrap().0.id(), id, "{what}");
        }
    }
    assert!(seen.iter().all(|count| *count > 3), "{seen:?}");
}
/// What `add` writes, in order: (member, flash page, content).
fn writes_of_adding(to: &Members, larger: &Members) -> Vec<(usize, u32, PageBuffer)> {
    let mut writes = vec![(3, MEMBER_PAGES[0], zero_page())];
    let page = |at: usize, copy: usize| {
        let (place, page) = larger.page(at, copy).unwrap();
        (at, place, page)
    };
    writes.push(page(3, 1));
    writes.extend([1, 0].into_iter().flat_map(|copy| (0..to.members.len() + 1).map(move |at| page(at, copy))));
    writes
}
#[test]
fn one_that_is_added_is_a_member_or_is_none() {
    // Something that there is.
    let added = (PathBuf::from("/dev/null"), memory(64));
    let mut larger = three();
    larger.add(added.0.clone(), added.1.clone(), PoolId([4; 16])).unwrap();
    assert_eq!(larger.flash().subpages(), (24 + 7) * 8);
    let writes = writes_of_adding(&three(), &larger);
    let (mut as_before, mut after) = (0, 0);
    for cut in 0..=writes.len() {
        for order in [vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]] {
            for is_removed in [false, true] {
                let mut copy = three();
                let smaller = copy.list.clone();
                copy.members.push((added.0.clone(), memory(64)));
                for (at, place, page) in &writes[..cut] {
                    let (path, flash) = &copy.members[*at];
                    driver(path, flash).unwrap().write_all(vec![(*place, page.clone())]).unwrap();
                }
                if is_removed {
                    // A failed attempt left the file. It must not have been a member yet.
                    copy.members[3].1 = memory(64);
                }
                let again = found(&copy, &order);
                let in_effect = cut > 6;
                if is_removed && in_effect {
                    assert!(again.is_err(), "a member is missing");
                    continue;
                }
                let mut again = again.unwrap_or_else(|e| panic!("{cut} writes, {order:?}, {is_removed}: {e}"));
                let expected = if in_effect { &larger.list } else { &smaller };
                assert_eq!(&again.list, expected, "after {cut} writes");
                (as_before, after) = (as_before + u32::from(!in_effect), after + u32::from(in_effect));
                // It goes on from there, and what is seen then is the same by all of them.
                again.begin_changes().unwrap();
                let third = found(&again, &order).unwrap();
                assert_eq!(&third.list, expected, "after {cut} writes and changes");
            }
        }
    }
    assert!(as_before > 10 && after > 10);
}
#[test]
fn who_cannot_be_a_member_is_refused_before_anything_is_written() {
    let mut made = three();
    let before = (made.generation, made.list.clone());
    let small = made.add("/small".into(), memory(15), PoolId([4; 16]));
    assert!(matches!(small, Err(MemberError::TooSmall { .. })), "{small:?}");
    let long = made.add(PathBuf::from("/x".repeat(2000)), memory(64), PoolId([4; 16]));
    assert!(matches!(long, Err(MemberError::Paths)), "{long:?}");
    assert_eq!((made.generation, made.list.clone()), before);
    for n in 3..16u8 {
        made.add(PathBuf::from(format!("/{n}")), memory(16), PoolId([n + 1; 16])).unwrap();
    }
    let many = made.add("/17".into(), memory(16), PoolId([17; 16]));
    assert!(matches!(many, Err(MemberError::TooMany)), "{many:?}");
}
#[test]
fn an_old_copy_of_a_member_is_refused() {
    let mut made = three();
    let old = memory(80);
    let mut from = driver(Path::new("/1"), &made.members[1].1).unwrap();
    let pages = MEMBER_PAGES.map(|place| (place, from.read(place, 0).unwrap()));
    driver(Path::new("/1"), &old).unwrap().write_all(pages.to_vec()).unwrap();
    made.begin_changes().unwrap();
    made.members[1].1 = old;
    assert!(matches!(found(&made, &[0, 1, 2]), Err(MemberError::Old { position: 1, .. })));
    // Whichever is read first.
    assert!(matches!(found(&made, &[1, 0, 2]), Err(MemberError::Old { position: 1, .. })));
}
#[test]
fn growth_moves_nothing() {
    let mut made = three();
    let before: Vec<_> = (0..made.flash().subpages()).map(|page| made.flash.layout().find(page)).collect();
    for (_, flash) in &mut made.members {
        let larger = memory(flash.subpages() + 40);
        let mut from = Driver::new(&**flash, 4).unwrap();
        let pages = MEMBER_PAGES.map(|place| (place, from.read(place, 0).unwrap()));
        Driver::new(&*larger, 4).unwrap().write_all(pages.to_vec()).unwrap();
        *flash = larger;
    }
    let mut made = found(&made, &[0, 1, 2]).unwrap();
    assert_eq!(made.grown(2, &[15, 15, 11]), Some(vec![10, 10, 8]));
    assert_eq!(made.grown(200, &[15, 15, 11]), None);
    made.grow(&[15, 14, 11]).unwrap();
    let mut again = found(&made, &[2, 1, 0]).unwrap();
    assert_eq!(again.flash().subpages(), (15 + 13 + 10) * 8);
    let after: Vec<_> = (0..before.len() as u32).map(|page| again.flash.layout().find(page)).collect();
    assert_eq!(after, before);
    let needed = again.shrink(20).unwrap();
    let small = found(&again, &[0, 1, 2]).unwrap();
    assert_eq!(needed, (0..3).map(|at| small.extents_of(at)).collect::<Vec<_>>());
    assert!((20..=22).contains(&(small.flash().subpages() / 8)));
    let after: Vec<_> = (0..20 * 8).map(|page| small.flash.layout().find(page)).collect();
    assert_eq!(after, before[..20 * 8]);
}
/// As if each extent was given to the member with the least that may have more, one by one.
#[test]
fn what_is_added_is_shared_out_evenly() {
    let made = three();
    let one_by_one = |extents: u32, most: &[u32]| {
        let mut now = vec![10, 10, 6];
        for _ in 0..extents {
            let least = (0..3).filter(|at| now[*at] < most[*at]).min_by_key(|at| now[*at])?;
            now[least] += 1;
        }
        Some(now)
    };
    for most in [[u32::MAX; 3], [15, 15, 11], [10, 12, 30], [11, 10, 6], [0, 0, 9]] {
        for extents in 0..40 {
            assert_eq!(made.grown(extents, &most), one_by_one(extents, &most), "{extents} more, {most:?}");
        }
    }
    assert_eq!(
        made.grown(u32::MAX, &[u32::MAX; 3]).unwrap().iter().map(|n| u64::from(*n)).sum::<u64>(),
        26 + u64::from(u32::MAX)
    );
}
/// Members of which one fails its nth write, or loses all after it as in a crash. The pool is
/// open meanwhile: its medium has its old extents or the new ones, and all flash pages of before
/// are where they were. Another attempt, of another size, succeeds. So does another opening.
#[test]
fn members_that_grow_while_they_are_in_use() {
    use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Op, When};
    let (mut failed, mut grown) = (0, 0);
    for (at, op, nth) in (0..3)
        .flat_map(|at| [Op::Write, Op::Flush].map(|op| (at, op)))
        .flat_map(|(at, op)| (1..5).map(move |nth| (at, op, nth)))
    {
        let what = format!("member {at}, {op:?} {nth}");
        let media = [80, 80, 48]
            .map(|pages| Arc::new(FaultyFlash::new(MemoryFlash::new(pages + 200).unwrap(), FaultPlan::default())));
        let members =
            media.iter().zip(0u8..).map(|(flash, i)| (PathBuf::from(format!("/{i}")), flash.clone() as Arc<dyn Flash>));
        let members: Vec<_> = members.collect();
        let mut made = three();
        (made.members, made.flash) = (members.clone(), striped(&members, &made.list));
        made.begin_changes().unwrap();
        let flash = made.flash();
        let mut queue = Driver::new(&*flash, 4).unwrap();
        let content = |place: u32| {
            let mut page = zero_page();
            page[..4].copy_from_slice(&place.to_le_bytes());
            page
        };
        queue.write_all((16..24 * 8).map(|place| (place, content(place))).collect()).unwrap();
        let (before, list) = (made.flash.layout(), made.list.clone());
        media[at].set_plan(FaultPlan::rule(Some(op), When::Nth(nth), Fault::Fails(FlashError::Io(5))));
        let done = made.grow(&[20, 20, 20]);
        media[at].set_plan(FaultPlan::default());
        assert_eq!(done.is_err(), media[at].counters().errors > 0, "{what}: {done:?}");
        if done.is_err() {
            failed += 1;
            assert_eq!((&made.list.bands, &made.flash.layout()), (&list.bands, &before), "{what}");
            // A crash now: it is found with either list.
            let again = found(&made, &[1, 2, 0]).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!((0..24 * 8).all(|page| again.flash.layout().find(page) == before.find(page)), "{what}");
            if op == Op::Flush {
                // A medium whose flush failed takes no more.
                continue;
            }
            made.grow(&[15, 14, 13]).unwrap();
        } else {
            grown += 1;
        }
        let after = made.flash.layout();
        // The queue that was opened before finds what was added.
        let more = 24 * 8..after.extents() * 8;
        assert!(more.len() >= 15 * 8, "{what}");
        queue.medium_has(more.end);
        queue.write_all(more.clone().map(|place| (place, content(place))).collect()).unwrap();
        let again = found(&made, &[2, 0, 1]).unwrap();
        assert_eq!(again.flash.layout(), after, "{what}");
        let mut queue = Driver::new(&*again.flash(), 4).unwrap();
        for place in 16..more.end {
            // But where members have their own pages.
            assert_eq!(queue.read(place, 0).unwrap()[..4], place.to_le_bytes(), "{what}: {place}");
        }
    }
    assert!(failed >= 12 && grown >= 6, "{failed} failed, {grown} did not");
}
#[test]
fn there_are_no_more_bands_than_a_page_has_room_for() {
    let with = |bands: usize| {
        let mut made = three();
        made.list.bands = vec![Band { rows: 1, members: 1 }; bands];
        made
    };
    // One more for what is added.
    for (bands, fits) in [(BANDS_MAX - 2, true), (BANDS_MAX - 1, true), (BANDS_MAX, false), (BANDS_MAX + 1, false)] {
        let may = with(bands).may_add(Path::new("/more"), 64);
        assert!(if fits { may.is_ok() } else { matches!(may, Err(MemberError::Bands)) }, "{bands} bands: {may:?}");
    }
    // And what is grown takes one for each number of members that have as much.
    let list = three().list.bands;
    for (new, more) in [([12, 12, 8], 1), ([14, 12, 8], 2), ([12, 11, 9], 3)] {
        for room in [more - 1, more] {
            let mut made = three();
            let fill = BANDS_MAX - room - list.len();
            made.list.bands.extend(vec![Band { rows: 0, members: 1 }; fill]);
            made.members.iter_mut().for_each(|(_, flash)| *flash = memory(14 * 8));
            made.flash = striped(&made.members, &made.list);
            let before = made.list.clone();
            let grown = made.grow(&new);
            if room < more {
                assert!(matches!(grown, Err(MemberError::Bands)), "{new:?}: {grown:?}");
                assert_eq!(made.list, before);
            } else {
                assert!(grown.is_ok(), "{new:?}: {grown:?}");
                assert_eq!(made.list.bands.len(), BANDS_MAX);
            }
        }
    }
}
#[test]
fn each_flash_page_is_on_one_member_and_each_says_what_it_has() {
    let made = three();
    assert_eq!(
        (made.pool(), made.ids().collect::<Vec<_>>()),
        (PoolId([9; 16]), [1, 2, 3].map(|n| PoolId([n; 16])).to_vec())
    );
    assert_eq!(made.bytes().collect::<Vec<_>>(), [80, 80, 48].map(|pages| pages * 4096));
    // The first extent is the first member's own. The others follow each other, until the smallest
    // is full.
    let of = |extent: u32| made.member_of(extent * 8);
    assert_eq!([0, 1, 2, 3, 4, 5].map(of), [0, 1, 2, 0, 1, 2].map(Some));
    assert_eq!([0, 1, 2].map(|at| made.extents_of(at)), [10, 10, 6]);
    let mut counts = [0; 3];
    (0..24 * 8).for_each(|place| counts[made.member_of(place).unwrap() as usize] += 1);
    assert_eq!((counts, made.member_of(24 * 8)), ([80, 72, 40], None));
}

/// Members in different directories are found by the named one's list. A copy of it elsewhere is a
/// second one of the same pool. It is none if it is the same by another path, or if the pool has
/// moved as a whole.
#[test]
fn a_copy_elsewhere_is_not_taken_for_what_it_is_of() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let media: Vec<(PathBuf, Arc<dyn Flash>)> =
        [("a/0", 80), ("b/1", 80)].map(|(name, pages)| (at(name), memory(pages))).into();
    Members::create(media.clone(), &[1, 2].map(|n| PoolId([n; 16])), 8, PoolId([9; 16])).unwrap();
    let save = |path: PathBuf, flash: &Arc<dyn Flash>| {
        let mut driver = driver(&path, flash).unwrap();
        let pages =
            (0..=MEMBER_PAGES[1]).flat_map(|place| driver.read(place, 0).unwrap().to_vec()).collect::<Vec<u8>>();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, pages).unwrap();
    };
    media.iter().for_each(|(path, flash)| save(path.clone(), flash));
    save(at("c/0"), &media[0].1);
    let named = |name: &str| {
        let mut open = |path: &Path| Ok(media.iter().find(|(p, _)| p == path).unwrap().1.clone());
        Members::find((&at(name), &media[0].1), &[], &mut open).map(Option::unwrap)
    };
    assert_eq!(named("a/0").unwrap().paths().count(), 2);
    assert_eq!(named("b/../a/0").unwrap().paths().count(), 2, "the same by another path");
    let Err(MemberError::Duplicate { path, other }) = named("c/0") else { panic!("a copy is taken") };
    assert_eq!((path, other), (at("c/0"), at("a/0")));
    // What is there is another member, or nothing: then it was moved, not copied.
    save(at("a/0"), &media[1].1);
    assert_eq!(named("c/0").unwrap().paths().count(), 2, "another member is where it was");
    std::fs::remove_file(at("a/0")).unwrap();
    assert_eq!(named("c/0").unwrap().paths().count(), 2, "it was moved");
}

fn pages_of(flash: &Arc<dyn Flash>, count: u32) -> Vec<u8> {
    let mut driver = Driver::new(&**flash, 4).unwrap();
    (0..count).flat_map(|place| driver.read(place, 0).unwrap().to_vec()).collect()
}
fn put(flash: &Arc<dyn Flash>, place: u32, page: PageBuffer) {
    Driver::new(&**flash, 4).unwrap().write_all(vec![(place, page)]).unwrap();
}

#[test]
fn a_member_is_known_by_either_of_its_copies() {
    let made = three();
    let flash = &made.members[1].1;
    let (count, bytes) = (MEMBER_PAGES[1] + 1, |flash| pages_of(flash, MEMBER_PAGES[1] + 1));
    let whole = bytes(flash);
    assert_eq!(member_in(&whole), Some(PoolId([9; 16])));
    assert_eq!(member_in(&whole[..count as usize * SUBPAGE_BYTES - 1]), None, "part of what is read");
    let [first, second] = MEMBER_PAGES.map(|place| place as usize * SUBPAGE_BYTES);
    let with = |at: &[usize]| {
        let mut bytes = whole.clone();
        at.iter().for_each(|at| bytes[at + 100] ^= 1);
        member_in(&bytes)
    };
    assert_eq!([with(&[first]), with(&[second])], [Some(PoolId([9; 16])); 2]);
    assert_eq!(with(&[first, second]), None);
    // A copy in the place of the other one, or a page of another kind, says nothing.
    let mut swapped = whole.clone();
    swapped.copy_within(first..first + SUBPAGE_BYTES, second);
    swapped[first + 100] ^= 1;
    assert_eq!((member_in(&swapped), member_in(&vec![0; whole.len()])), (None, None));
    // What is damaged is named, and written again with the next change.
    for (copy, at) in [(0, 0), (1, 2)] {
        let mut made = three();
        put(&made.members[at].1, MEMBER_PAGES[copy], zero_page());
        let mut again = found(&made, &[0, 1, 2]).unwrap();
        assert_eq!(again.damaged(), [(at as u32, MEMBER_PAGES[copy])]);
        again.begin_changes().unwrap();
        assert!(again.damaged().is_empty());
        made.members.clone_from(&again.members);
        let again = found(&made, &[1, 2, 0]).unwrap();
        assert_eq!((again.damaged(), again.generation, &again.list), (&[][..], made.generation + 1, &made.list));
    }
}
#[test]
fn what_is_found_instead_of_a_member_is_named() {
    let made = three();
    let with = |at: usize, flash: Arc<dyn Flash>| {
        let mut copy = three();
        copy.members.clone_from(&made.members);
        copy.members[at].1 = flash;
        found(&copy, &[0, 1, 2])
    };
    // Nothing, too little to read, a member of another pool, and one of a pool of the same name.
    for flash in [memory(80), memory(MEMBER_PAGES[1]), memory(MEMBER_PAGES[1] + 1)] {
        let refused = with(1, flash);
        assert!(matches!(refused, Err(MemberError::Foreign { position: 1, what, .. }) if what.contains("no part")));
    }
    let other = |ids: [u8; 3], pool: u8| {
        let media = [80, 80, 48].into_iter().zip(0..).map(|(pages, i)| (PathBuf::from(format!("/{i}")), memory(pages)));
        Members::create(media.collect(), &ids.map(|n| PoolId([n; 16])), 8, PoolId([pool; 16])).unwrap().members
    };
    let refused = with(1, other([1, 2, 3], 8)[1].1.clone());
    assert!(matches!(refused, Err(MemberError::Foreign { position: 1, what: "it belongs to another pool", .. })));
    let refused = with(1, other([1, 7, 3], 9)[1].1.clone());
    assert!(matches!(refused, Err(MemberError::Foreign { position: 1, what, .. }) if what.contains("same name")));
    // These files are taken for them, as nothing distinguishes them.
    assert!(with(1, other([1, 2, 3], 9)[1].1.clone()).is_ok());
    // There is another member of the pool.
    let head = |at: usize| {
        let (path, flash) = made.members[at].clone();
        Opened { head: head_of(&path, &flash).unwrap().unwrap(), path, flash }
    };
    let mut slots = vec![None, None, None];
    let swapped = place(&mut slots, &made.list, made.pool, head(2), 1);
    assert!(matches!(swapped, Err(MemberError::Swapped { found: 2, position: 1, .. })), "{swapped:?}");
    assert!(slots.iter().all(Option::is_none));
    place(&mut slots, &made.list, made.pool, head(2), 2).unwrap();
    let twice = place(&mut slots, &made.list, made.pool, head(2), 2);
    assert!(matches!(twice, Err(MemberError::Duplicate { .. })), "{twice:?}");
    assert!(slots[2].is_some() && slots[..2].iter().all(Option::is_none));
    let foreign = place(&mut slots, &made.list, PoolId([7; 16]), head(0), 0);
    assert!(matches!(foreign, Err(MemberError::Foreign { .. })) && slots[0].is_none(), "{foreign:?}");
}
#[test]
fn a_member_has_all_that_the_list_says() {
    // 10, 10 and 6 extents of 8: a flash page less and it is truncated.
    for (at, pages) in [(0, 80), (1, 80), (2, 48)] {
        for missing in [0, 1] {
            let mut made = three();
            let smaller = memory(pages - missing);
            for place in MEMBER_PAGES {
                let page = Driver::new(&*made.members[at].1, 4).unwrap().read(place, 0).unwrap();
                put(&smaller, place, page);
            }
            made.members[at].1 = smaller;
            match found(&made, &[0, 1, 2]) {
                Ok(_) => assert_eq!(missing, 0),
                Err(MemberError::Truncated { position, needed, found, .. }) => {
                    let bytes = |pages: u32| u64::from(pages) * 4096;
                    assert_eq!((position, needed, found), (at as u32, bytes(pages), bytes(pages - 1)));
                    assert_eq!(missing, 1);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
#[test]
fn what_is_no_member_is_none_and_belongs_to_no_others() {
    let (path, flash) = (PathBuf::from("/alone"), memory(160));
    let mut open = |_: &Path| -> Result<Arc<dyn Flash>, OpenError> { unreachable!("nothing else is opened") };
    assert!(Members::find((&path, &flash), &[], &mut open).unwrap().is_none());
    let others = Members::find((&path, &flash), &["/other".into()], &mut open);
    assert!(matches!(others, Err(MemberError::Alone { ref path }) if path == Path::new("/alone")), "{others:?}");
    // A pool of one file becomes the first of two.
    let geometry = Geometry::new(160, 8, Some(16)).unwrap();
    let mut made = Members::alone((path.clone(), flash.clone()), PoolId([1; 16]), PoolId([9; 16]), geometry);
    assert_eq!((made.extents_of(0), made.flash().subpages(), made.pool()), (20, 160, PoolId([9; 16])));
    assert!(Members::find((&path, &flash), &[], &mut open).unwrap().is_none(), "nothing is written yet");
    made.add("/more".into(), memory(40), PoolId([2; 16])).unwrap();
    assert_eq!((made.extents_of(0), made.extents_of(1), made.flash().subpages()), (20, 5, 24 * 8));
    let again = found(&made, &[1, 0]).unwrap();
    assert_eq!((again.list, again.pool, again.generation), (made.list, made.pool, made.generation));
    // As many as there may be, and at least one.
    for (count, fits) in [(0, false), (1, true), (16, true), (17, false)] {
        let media: Vec<_> = (0..count).map(|n| (PathBuf::from(format!("/{n}")), memory(32))).collect();
        let ids: Vec<PoolId> = (0..count).map(|n| PoolId([n + 1; 16])).collect();
        let made = Members::create(media, &ids, 8, PoolId([9; 16]));
        assert!(if fits { made.is_ok() } else { matches!(made, Err(MemberError::TooMany)) }, "{count}");
    }
}
#[test]
fn bands_use_all_that_there_is() {
    let band = |rows, members| Band { rows, members };
    for (extents, used, bands) in [
        (vec![10, 10, 6], vec![0, 1, 1], vec![band(5, 0b111), band(4, 0b011), band(1, 0b001)]),
        (vec![4, 4], vec![2, 2], vec![band(2, 0b11)]),
        (vec![4, 9], vec![4, 3], vec![band(6, 0b10)]),
        (vec![3, 2], vec![5, 2], vec![]),
        (vec![], vec![], vec![]),
    ] {
        assert_eq!(bands_for(&extents, &used), bands, "{extents:?} of which {used:?} are used");
    }
    // Cut to this number of extents: whole rows stay, of each band as many as are needed.
    for (extents, needed, rows) in [
        (24, [10, 10, 6], vec![5, 4, 1]),
        (23, [9, 10, 6], vec![5, 4]),
        (20, [8, 9, 6], vec![5, 3]),
        (4, [2, 3, 3], vec![2]),
    ] {
        let mut made = three();
        assert_eq!(made.shrink(extents).unwrap(), needed, "{extents}");
        assert_eq!(made.list.bands.iter().map(|band| band.rows).collect::<Vec<_>>(), rows, "{extents}");
        assert_eq!(found(&made, &[0, 1, 2]).unwrap().list, made.list);
    }
}
