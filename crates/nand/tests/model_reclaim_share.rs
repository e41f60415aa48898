//! Goal: the share of reads that are blocked by reclaim is what the model says it must be, and
//! falls with the number of planes. At the same traffic, four times the planes block about a
//! quarter (AstriFlash, "Garbage collection overheads": 4% with 256 GB, under 1% with 1 TB). What
//! reclaim reads for itself is counted separately, because no host waits for it.
//! Method: random reads and a steady stream of writes that cycles through a device of scaled
//! capacity, 64 and 256 planes of the same size. Extents across all planes and across a few. The
//! share that is found is compared with the time that planes are being erased. Reads of reclaim and
//! of a program meet at one plane, in both orders.

use fulgurite_nand::{Fil, FilConfig, FlashDone, FlashOp, FlashRequest, Profile};

struct Share {
    blocked: f64,
    /// Of the time of all planes, what erases take.
    erasing: f64,
}

/// A read every 4 µs, and a write for every thirtieth: some 4% of the time of 64 planes goes into
/// erasing their short blocks.
fn share(planes: u32, width: u32) -> Share {
    let mut profile = Profile::built_in("tlc").unwrap();
    // 4 MiB a plane, for AstriFlash's 4 GiB: blocks of 32 pages.
    profile = profile.scaled(u64::from(planes) << 22, planes).unwrap();
    profile.wear.factory_bad = 0.0;
    // Else a head that waits for an erase blocks reads of all dies, which is another question
    // (model_queues.rs).
    profile.queues.reorder = true;
    (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
    let config =
        FilConfig { planes_per_extent: width, cached_writes: true, hold_ns: 1_000_000_000, ..FilConfig::default() };
    let mut fil = Fil::new(profile, config).unwrap();
    let (first, pages) = (fil.extent_pages(), fil.flash_pages() - fil.extent_pages());
    let (mut now, mut tag, mut done) = (0, 0, Vec::<FlashDone>::new());
    let mut random = fulgurite_testkit::Random(1);
    let mut ask = |fil: &mut Fil, now, op, flash_page| {
        tag += 1;
        let taken = fil.submit(now, FlashRequest { tag, op, flash_page, reclaim: false });
        assert!(taken.is_ok(), "{op:?} at {now}: {taken:?}, {:?}", fil.counters());
    };
    // Filled first, at its own pace.
    for page in 0..pages {
        ask(&mut fil, now, FlashOp::Write, first + page);
        now += 6_000;
        fil.advance(now, &mut done);
    }
    now += 100_000_000;
    fil.advance(now, &mut done);
    let (counted, since, erases) = (*fil.counters(), now, fil.nand().counters().erases);
    let mut written = 0;
    for i in 0..300_000_u32 {
        now += 4_000;
        ask(&mut fil, now, FlashOp::Read, first + random.below(pages));
        if i % 30 == 0 {
            ask(&mut fil, now, FlashOp::Write, first + written % pages);
            written += 1;
        }
        done.clear();
        fil.advance(now, &mut done);
    }
    let reads = fil.counters().reads - counted.reads - (fil.counters().buffer_reads - counted.buffer_reads);
    let blocked = fil.counters().reads_blocked_by_reclaim - counted.reads_blocked_by_reclaim;
    let erases = (fil.nand().counters().erases - erases) as f64;
    fil.check();
    Share {
        blocked: blocked as f64 / reads as f64,
        erasing: erases * profile.timing.erase_ns as f64 / (f64::from(planes) * (now - since) as f64),
    }
}

#[test]
fn reads_blocked_by_reclaim_become_fewer_with_planes() {
    for (few, many) in [(64, 256), (8, 8)] {
        let (small, large) = (share(64, few), share(256, many));
        let ratio = small.blocked / large.blocked;
        println!(
            "extents across {few} and {many} planes: {:.2}% and {:.2}% of reads blocked, {:.2}% and {:.2}% of the time erasing",
            100.0 * small.blocked,
            100.0 * large.blocked,
            100.0 * small.erasing,
            100.0 * large.erasing
        );
        assert!((2.5..6.0).contains(&ratio), "four times the planes, and {ratio:.1} times fewer are blocked");
        for share in [small, large] {
            // Reads come at all times alike, so as many find an erase as erases take of the time.
            let as_expected = share.blocked / share.erasing;
            assert!((0.75..1.35).contains(&as_expected), "{} of {} expected", share.blocked, share.erasing);
        }
    }
}

#[test]
fn what_reclaim_reads_for_itself_is_counted_apart() {
    let mut profile = Profile::built_in("slc").unwrap().scaled(4 << 20, 4).unwrap();
    profile.wear.factory_bad = 0.0;
    let mut fil = Fil::new(profile, FilConfig::default()).unwrap();
    let (first, pages) = (fil.extent_pages(), fil.extent_pages());
    let (mut now, mut done) = (0, Vec::<FlashDone>::new());
    let ask = |fil: &mut Fil, now, op, flash_page, reclaim| {
        fil.submit(now, FlashRequest { tag: 0, op, flash_page, reclaim }).unwrap();
    };
    for page in 0..pages {
        ask(&mut fil, now, FlashOp::Write, first + page, false);
        now += 1_000_000;
        fil.advance(now, &mut done);
    }
    now += 100_000_000;
    fil.advance(now, &mut done);
    let before = *fil.counters();
    // Two reads of one plane at a time: the second one finds the first one before it.
    let mut pairs = |by: [bool; 2], count: u32| {
        for i in 0..count {
            by.iter().for_each(|reclaim| ask(&mut fil, now, FlashOp::Read, first + i % pages, *reclaim));
            now += 1_000_000;
            fil.advance(now, &mut done);
        }
        let now = *fil.counters();
        let of = |counter: fn(&fulgurite_nand::FilCounters) -> u64| counter(&now) - counter(&before);
        (
            of(|c| c.reads),
            of(|c| c.reclaim_reads),
            of(|c| c.reads_blocked_by_reclaim) - of(|c| c.reclaim_reads_blocked),
            of(|c| c.reclaim_reads_blocked),
        )
    };
    assert_eq!(pairs([false, false], 3), (6, 0, 0, 0), "a program's reads are no reclaim");
    assert_eq!(pairs([true, false], 5), (16, 5, 5, 0), "a program's read behind one of reclaim");
    assert_eq!(pairs([false, true], 7), (30, 12, 5, 0), "one of reclaim behind a program's");
    assert_eq!(pairs([true, true], 9), (48, 30, 5, 9), "two of reclaim");
}
