//! Goal: a device that is opened again is as worn as it was, with the same blocks failed and the
//! same in their place. A state that was changed, cut off, or is another device's is refused, and
//! never a panic.
//! Method: a small device is written until blocks have failed and been replaced. Its state goes to
//! a new model, which is asked for its own. Every byte of a state is changed, and every length
//! tried, also with a checksum that is right.

use fulgurite_nand::{
    Fil, FilConfig, FlashDone, FlashOp, FlashRequest, FlashStatus, Geometry, Parts, Profile, StateError,
};

fn profile(blocks_per_plane: u32) -> Profile {
    let mut profile = Profile::built_in("mlc").unwrap();
    profile.geometry = Geometry::new(Parts {
        channels: 2,
        packages_per_channel: 1,
        dies_per_package: 1,
        planes_per_die: 2,
        blocks_per_plane,
        pages_per_block: 4,
        page_bytes: 4096,
    })
    .unwrap();
    // Blocks of which some have failed, and others are beyond what the medium is rated for.
    (profile.wear.endurance, profile.wear.failure) = (4, 8);
    profile.wear.factory_bad = 0.0;
    profile
}

fn fil(blocks_per_plane: u32) -> Fil {
    Fil::new(profile(blocks_per_plane), FilConfig { spare_blocks: 3, seed: 4, ..FilConfig::default() }).unwrap()
}

/// Writes all extents so often, each time in order.
fn wear(fil: &mut Fil, times: u32) {
    let mut done: Vec<FlashDone> = Vec::new();
    for _ in 0..times {
        for flash_page in 0..fil.flash_pages() {
            let request = FlashRequest { tag: 0, op: FlashOp::Write, flash_page, reclaim: false };
            let now = fil.nand().now_ns();
            while fil.submit(now, request).is_err() {
                let next = fil.next_event_ns().unwrap();
                fil.advance(next, &mut done);
            }
            while let Some(next) = fil.next_event_ns() {
                fil.advance(next, &mut done);
            }
        }
    }
    fil.check();
}

#[test]
fn a_device_that_is_opened_again_is_as_worn_as_it_was() {
    let mut first = fil(12);
    wear(&mut first, 9);
    let state = first.state();
    let mut second = fil(12);
    assert_ne!(second.state(), state);
    second.restore(&state).unwrap();
    (0..second.extents()).for_each(|extent| second.assume_written(extent, second.extent_pages()).unwrap());
    assert_eq!(second.state(), state);
    second.check();
    let (a, b) = (first.nand(), second.nand());
    let blocks = || (0..a.geometry().blocks()).map(fulgurite_nand::Block);
    assert!(first.counters().replaced_blocks > 0, "{:?}", first.counters());
    assert!(blocks().any(|block| a.is_bad(block)) && blocks().any(|block| a.erases(block) > 5));
    for block in blocks() {
        assert_eq!((a.erases(block), a.is_bad(block)), (b.erases(block), b.is_bad(block)), "{block:?}");
        // An erase that failed left what it had found.
        let close = if a.is_bad(block) { a.wrong_bits(block) } else { 0.0 };
        assert!((a.wrong_bits(block) - b.wrong_bits(block)).abs() <= close, "{block:?}");
    }
    assert!(blocks().any(|block| !b.is_bad(block) && b.erases(block) > 4 && b.wrong_bits(block) > 40.0));
    // It goes on: what it writes it programs where that is allowed, and wears further.
    let before: u64 = blocks().map(|block| u64::from(second.nand().erases(block))).sum();
    wear(&mut second, 2);
    assert_eq!(second.nand().counters().violations, 0);
    let after: u64 = blocks().map(|block| u64::from(second.nand().erases(block))).sum();
    assert!(after > before);
}

#[test]
fn what_is_no_state_of_this_device_is_refused() {
    let mut worn = fil(12);
    wear(&mut worn, 6);
    let state = worn.state();
    assert_eq!(fil(13).restore(&state), Err(StateError::Geometry));
    let other = |change: fn(&mut Profile)| {
        let mut profile = profile(12);
        change(&mut profile);
        Fil::new(profile, FilConfig { spare_blocks: 3, seed: 4, ..FilConfig::default() }).unwrap().restore(&state)
    };
    assert_eq!(other(|_| ()), Ok(()));
    assert_eq!(other(|profile| profile.wear.failure = 9), Err(StateError::Geometry));
    assert_eq!(other(|profile| profile.wear.spread += 0.01), Err(StateError::Geometry));
    assert_eq!(other(|profile| profile.wear.endurance = 5), Err(StateError::Geometry));
    let mut newer = state.clone();
    newer[8] = 4;
    assert_eq!(fil(12).restore(&newer), Err(StateError::Version { found: 4 }));
    for length in 0..state.len() {
        assert!(fil(12).restore(&state[..length]).is_err(), "{length} bytes");
    }
    for at in (0..state.len()).step_by(3) {
        let mut changed = state.clone();
        changed[at] ^= 0x40;
        assert!(fil(12).restore(&changed).is_err(), "byte {at}");
        if at < 16 {
            continue;
        }
        // Nonsense with a right checksum: taken or refused, and whole in either case.
        let sum = fulgurite_format::crc32c(&changed[16..]);
        changed[12..16].copy_from_slice(&sum.to_le_bytes());
        let mut odd = fil(12);
        if odd.restore(&changed).is_ok() {
            odd.check();
            wear(&mut odd, 1);
        }
    }
}

/// Blocks of the log that have failed stay replaced: no restart takes further spare blocks, and
/// what was written where they are now is programmed in order.
#[test]
fn restarts_take_no_spare_blocks() {
    let new = || {
        let mut profile = profile(12);
        (profile.wear.endurance, profile.wear.failure) = (40, 80);
        Fil::new(profile, FilConfig { spare_blocks: 3, seed: 4, ..FilConfig::default() }).unwrap()
    };
    // The first extent is rewritten in place, by way of the log.
    let rewrite = |fil: &mut Fil| {
        let mut done: Vec<FlashDone> = Vec::new();
        for flash_page in 0..8 {
            let request = FlashRequest { tag: 0, op: FlashOp::Write, flash_page, reclaim: false };
            let now = fil.nand().now_ns();
            fil.submit(now, request).unwrap();
            while let Some(next) = fil.next_event_ns() {
                fil.advance(next, &mut done);
            }
        }
        assert!(done.iter().all(|done| done.status == FlashStatus::Ok), "{done:?}");
    };
    let mut fil = new();
    while fil.counters().replaced_blocks < 4 {
        rewrite(&mut fil);
    }
    let spares = fil.spare_blocks();
    let erases = |fil: &Fil| -> u32 {
        let blocks = (0..fil.nand().geometry().blocks()).map(fulgurite_nand::Block);
        blocks.map(|block| fil.nand().erases(block)).sum()
    };
    for restart in 0..5 {
        let state = fil.state();
        let before = erases(&fil);
        fil = new();
        fil.restore(&state).unwrap();
        (0..fil.extents()).for_each(|extent| fil.assume_written(extent, fil.extent_pages()).unwrap());
        assert!(fil.state() == state, "restart {restart}");
        (0..2).for_each(|_| rewrite(&mut fil));
        fil.check();
        let counters = fil.nand().counters();
        assert_eq!((fil.spare_blocks(), counters.violations), (spares, 0), "restart {restart}");
        assert!(erases(&fil) > before);
    }
}
