//! Goal: a map of slots and blocks equals an array of places, whatever kinds its pages go through,
//! takes no more than it promises, and never gives readers what was never true. Method: random
//! changes of few pages in the map and in an array, then readers that look for the impossible
//! during such changes. `tests/loom_map.rs` checks the memory model.

use fulgurite_testkit::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// The checksum that belongs to a place of a subpage in these tests.
fn at(subpage: u32, place: u32) -> Located {
    Located { place, checksum: place.wrapping_mul(0x9E37_79B1) ^ subpage }
}

/// A run of places is set again, with another content of one of them.
#[test]
fn a_run_at_the_same_places_is_not_the_same_content() {
    let mut writer = MapWriter::new(1);
    let mut places = writer.page(0);
    (0..N).for_each(|s| places.set(s, Some(at(s, 100 + s))));
    writer.set_page(0, &places);
    for s in [0, 7, N - 1] {
        let changed = Located { checksum: 1, ..at(s, 100 + s) };
        places.set(s, Some(changed));
        writer.set_page(0, &places);
        assert_eq!((writer.get(s), writer.page(0) == places), (Some(changed), true));
    }
}

/// Changes a page, as programs, reclaim and roll backs do, and the array with it.
fn change(writer: &mut MapWriter, plain: &mut [Option<Located>], random: &mut Random) {
    let page = random.below(plain.len() as u32 / N);
    let first = page * N;
    // Half of them are objects' slots, up to the last, with all bits that a place has.
    let place = 1 + random.below(1 << 30);
    let place = match random.below(8) {
        0..4 => place,
        4..7 => place | 1 << 31,
        _ => u32::MAX - random.below(4 * N),
    };
    let mut set = |writer: &mut MapWriter, subpage: u32, located| {
        writer.set(subpage, located);
        plain[subpage as usize] = located;
    };
    match random.below(10) {
        0 => (0..N).for_each(|s| set(writer, first + s, Some(at(first + s, place.saturating_add(s))))),
        1 => (0..N).rev().for_each(|s| set(writer, first + s, Some(at(first + s, place.saturating_add(s))))),
        2 | 3 => {
            let subpage = first + random.below(N);
            set(writer, subpage, Some(at(subpage, place)));
        }
        4 => set(writer, first + random.below(N), None),
        kind => {
            let mut places = writer.page(page);
            for s in 0..N {
                let old = places.get(s);
                places.set(
                    s,
                    match kind {
                        5 | 6 => Some(at(first + s, place.saturating_add(s))),
                        7 if random.below(3) == 0 => Some(at(first + s, place.saturating_add(2 * s))),
                        8 if random.below(5) > 0 => None,
                        9 => None,
                        _ => old,
                    },
                );
                plain[(first + s) as usize] = places.get(s);
            }
            writer.set_page(page, &places);
        }
    }
}

#[test]
fn model_the_same_as_an_array() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let pages = 1 + random.below(if seed % 4 == 0 { 400 } else { 12 });
        let mut writer = MapWriter::new(pages);
        let map = writer.map().clone();
        let mut plain = vec![None; (pages * N) as usize];
        let mut kinds = [0u32; 4];
        for step in 0..2000 {
            change(&mut writer, &mut plain, &mut random);
            let subpage = random.below(pages * N);
            assert_eq!(map.get(subpage), plain[subpage as usize], "seed {seed}, step {step}");
            kinds[(map.slot(subpage / N).map_or(0, |s| s.load(Ordering::Relaxed)) >> 62) as usize] += 1;
            if step % 100 == 0 {
                for (subpage, located) in (0..).zip(&plain) {
                    assert_eq!(
                        (map.get(subpage), writer.get(subpage)),
                        (*located, *located),
                        "seed {seed}, step {step}"
                    );
                }
                assert_eq!(writer.audit(), [""; 0], "seed {seed}, step {step}");
            }
        }
        assert!(map.bytes() <= map.bytes_max());
        assert!(kinds.iter().all(|n| *n > 20), "seed {seed}: each kind is seen: {kinds:?}");
    }
}

#[test]
fn model_what_is_contiguous_takes_half() {
    let pages = 1 << 14;
    let mut writer = MapWriter::new(pages);
    let empty = writer.map().bytes();
    assert!(empty < pages as usize / 2, "{empty}");
    (0..pages * N).for_each(|s| writer.set(s, Some(at(s, 100 + s))));
    let filled = writer.map().bytes();
    assert!(filled < pages as usize * 75, "{filled}");
    // All of it moves, page by page: what becomes free is used again.
    for round in 1..4 {
        (0..pages * N).for_each(|s| writer.set(s, Some(at(s, 100 + s + round * pages * N))));
        assert!(writer.map().bytes() < filled + (64 << 10), "round {round}");
    }
    (0..pages * N).for_each(|s| writer.set(s, Some(at(s, 100 + 2 * s))));
    let scattered = writer.map().bytes();
    assert!(scattered < pages as usize * 139 && scattered <= writer.map().bytes_max(), "{scattered}");
    assert!(writer.map().bytes_max() < pages as usize * 140);
    (0..pages * N).for_each(|s| writer.set(s, Some(at(s, 100 + s))));
    assert!(writer.map().bytes() <= scattered);
    assert_eq!(writer.audit(), [""; 0]);
}

#[test]
fn model_readers_find_only_what_was() {
    let pages = 3;
    let mut writer = MapWriter::new(pages);
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let seed = fulgurite_testkit::first_seed(1);
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (map, over, looks) = (writer.map().clone(), &over, &looks);
            scope.spawn(move || {
                let mut random = Random(reader);
                let mut found = 0;
                while !over.load(Ordering::Relaxed) {
                    let subpage = random.below(pages * N);
                    if let Some(located) = map.get(subpage) {
                        assert_eq!(located, at(subpage, located.place), "subpage {subpage}");
                        found += 1;
                    }
                }
                looks.fetch_add(found, Ordering::Relaxed);
            });
        }
        let mut plain = vec![None; (pages * N) as usize];
        let mut random = Random(seed);
        for _ in 0..400_000 {
            change(&mut writer, &mut plain, &mut random);
        }
        // However late the readers begin.
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(writer.audit(), [""; 0]);
    println!("{looks:?} places found meanwhile");
}
