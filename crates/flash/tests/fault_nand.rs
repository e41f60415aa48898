//! Goal: what NAND cannot read or program ends in a typed error and is counted once. All else has
//! the right data. The medium's own errors reach the caller.
//! Method: a user's profile, with enough wrong bits that some reads fail, or so few erases that
//! blocks wear out; stamps in all data; faults planned in the medium within.

use crate::common;
use crate::nand;

use std::sync::Arc;

use common::*;
use fulgurite_flash::*;
use fulgurite_nand::Profile;
use nand::{EXTENT_PAGES, EXTENTS, device, small};

const EIO: FlashError = FlashError::Io(5);

/// The built-in SLC with other numbers, as small as [`small`].
fn changed(changes: &[(&str, &str)]) -> Profile {
    let mut text = Profile::built_in_text("slc").unwrap().to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "the profile says no {from}");
        text = text.replace(from, to);
    }
    let parsed = Profile::parse(&text).unwrap();
    Profile { wear: parsed.wear, ecc: parsed.ecc, ..small() }
}

#[test]
fn reads_that_cannot_be_corrected_fail_and_are_counted() {
    // 8192 bits of a codeword: 4 wrong ones in the mean, and 8 are corrected. About one read in ten
    // fails.
    let profile = changed(&[
        ("bit_errors_fresh = 1e-9", "bit_errors_fresh = 5e-4"),
        ("bit_errors_worn = 1e-5", "bit_errors_worn = 5e-4"),
        ("factory_bad = 0.02", "factory_bad = 0"),
    ]);
    let (flash, _) = device(profile);
    let frames = arena(EXTENT_PAGES);
    let mut queue = Driver::new(&flash, &frames, EXTENT_PAGES as usize);
    for i in 0..EXTENT_PAGES {
        fill(&frames, i, 1000 + u64::from(i));
        queue.submit(Op::Write, EXTENT_PAGES + i, i);
    }
    assert!(queue.finish_all().values().all(Result::is_ok));
    let (mut failed, mut well) = (0, 0);
    for round in 0..20 {
        let tags: Vec<u64> = (0..EXTENT_PAGES)
            .map(|i| {
                fill(&frames, i, 0);
                queue.submit(Op::Read, EXTENT_PAGES + i, i)
            })
            .collect();
        let results = queue.finish_all();
        for (i, tag) in (0..).zip(tags) {
            match results[&tag] {
                Ok(()) => {
                    well += 1;
                    assert_eq!(stamp_of(&frames, i), Some(1000 + u64::from(i)), "round {round}");
                }
                error => {
                    failed += 1;
                    assert_eq!(error, Err(EIO));
                }
            }
        }
    }
    assert!(failed > 0 && well > failed, "{failed} of {} failed", failed + well);
    let (counters, report) = (flash.counters(), flash.report());
    assert_eq!((counters.errors, counters.reads), (failed, well), "each read counts once");
    assert_eq!((report.fil.read_failures, report.nand.violations), (failed, 0));
}

#[test]
fn writes_to_worn_blocks_fail_and_are_counted() {
    let profile = changed(&[
        ("endurance = \"100000 cycles\"", "endurance = \"6 cycles\""),
        ("failure = \"200000 cycles\"", "failure = \"6 cycles\""),
        // Reads are another test: errors do not grow here.
        ("bit_errors_worn = 1e-5", "bit_errors_worn = 1e-9"),
        ("spread = 0.1", "spread = 0.3"),
        ("factory_bad = 0.02", "factory_bad = 0"),
    ]);
    let (flash, _) = device(profile);
    let frames = arena(EXTENT_PAGES);
    let mut queue = Driver::new(&flash, &frames, EXTENT_PAGES as usize);
    let (mut failed, mut well, mut reads) = (0, 0, 0);
    for round in 1..25u64 {
        for extent in 1..EXTENTS {
            let tags: Vec<u64> = (0..EXTENT_PAGES)
                .map(|i| {
                    fill(&frames, i, round << 16 | u64::from(extent * EXTENT_PAGES + i));
                    queue.submit(Op::Write, extent * EXTENT_PAGES + i, i)
                })
                .collect();
            let results = queue.finish_all();
            assert_eq!(results.len(), EXTENT_PAGES as usize);
            for (i, tag) in (0..).zip(tags) {
                match results[&tag] {
                    Ok(()) => {
                        well += 1;
                        fill(&frames, i, 0);
                        queue.one(Op::Read, extent * EXTENT_PAGES + i, i).unwrap();
                        reads += 1;
                        let expected = round << 16 | u64::from(extent * EXTENT_PAGES + i);
                        assert_eq!(stamp_of(&frames, i), Some(expected), "what was written is read");
                    }
                    error => {
                        failed += 1;
                        assert_eq!(error, Err(EIO));
                    }
                }
            }
        }
    }
    assert!(failed > 0 && well > 0, "{failed} of {} failed", failed + well);
    let (counters, report) = (flash.counters(), flash.report());
    assert_eq!((counters.errors, counters.writes, counters.reads), (failed, well, reads), "each request counts once");
    assert_eq!((report.fil.write_failures, report.nand.violations), (failed, 0));
    assert!(report.nand.grown_bad_blocks > 0);
}

#[test]
fn errors_of_the_medium_within_reach_the_caller_once() {
    let plan = FaultPlan {
        rules: vec![
            Rule { op: Some(Op::Write), when: When::Every(7), fault: Fault::Fails(FlashError::Io(28)) },
            Rule { op: Some(Op::Read), when: When::Every(5), fault: Fault::Fails(FlashError::Short) },
        ],
        reorder: true,
        seed: 3,
        ..FaultPlan::default()
    };
    let within = Arc::new(FaultyFlash::new(MemoryFlash::new(EXTENTS * EXTENT_PAGES).unwrap(), plan));
    let flash = NandFlash::new(within, small(), nand::config()).unwrap();
    let frames = arena(EXTENT_PAGES);
    let mut queue = Driver::new(&flash, &frames, EXTENT_PAGES as usize);
    let mut errors = 0;
    for extent in 1..EXTENTS {
        for (op, every, error) in [(Op::Write, 7, FlashError::Io(28)), (Op::Read, 5, FlashError::Short)] {
            let first = (extent - 1) * EXTENT_PAGES;
            let tags: Vec<u64> = (0..EXTENT_PAGES).map(|i| queue.submit(op, extent * EXTENT_PAGES + i, i)).collect();
            let results = queue.finish_all();
            assert_eq!(results.len(), tags.len());
            for (i, tag) in (first + 1..).zip(tags) {
                let expected = if i % every == 0 { Err(error) } else { Ok(()) };
                errors += u64::from(expected.is_err());
                assert_eq!(results[&tag], expected, "{op:?} {i}");
            }
        }
    }
    assert!(errors > 0);
    assert_eq!((flash.counters().errors, flash.report().nand.violations), (errors, 0));
}
