//! Goal: the flash interface layer ends each request once, keeps the rules of NAND, and ends a
//! flush after what was written before it, whatever the order in which the store's writes arrive.
//! Method: traffic as the store sends it, drawn from a seed: several extents are filled at once, in
//! order but for some that overtake each other, some flash pages are left out, superblocks are
//! rewritten, flushes come in between. Reads of what has been written. Tiny blocks, pages of NAND
//! of 4 to 16 KiB, few and many planes, both kinds of completion.
//! `FULGURITE_SEED=s FULGURITE_RUNS=1` replays one.

use fulgurite_testkit as trials;
use fulgurite_testkit::Random;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fulgurite_nand::{
    Fil, FilConfig, FilError, FlashDone, FlashOp, FlashRequest, FlashStatus, Geometry, Parts, Profile,
};

fn profile(random: &mut Random) -> Profile {
    let mut profile = Profile::built_in(["slc", "mlc", "tlc"][random.below(3) as usize]).unwrap();
    profile.geometry = Geometry::new(Parts {
        channels: 1 + random.below(2),
        packages_per_channel: 1,
        dies_per_package: 1 + random.below(2),
        planes_per_die: 2,
        blocks_per_plane: 12 + random.below(8),
        pages_per_block: 4 + random.below(8),
        page_bytes: 4096 << random.below(3),
    })
    .unwrap();
    profile.wear.factory_bad = 0.05;
    (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
    profile
}

/// The driver of the layer, and its state.
struct Driver {
    fil: Fil,
    now: u64,
    next_tag: u64,
    /// Requests under way, with what they are.
    open: BTreeMap<u64, FlashRequest>,
    /// Of each flush under way, the writes submitted before it that had not ended.
    flushes: BTreeMap<u64, BTreeSet<u64>>,
    written: BTreeSet<u32>,
    done: Vec<FlashDone>,
    flushed: u64,
}

impl Driver {
    fn submit(&mut self, op: FlashOp, flash_page: u32) {
        let request = FlashRequest { tag: self.next_tag, op, flash_page, reclaim: false };
        self.next_tag += 1;
        while let Err(error) = self.fil.submit(self.now, request) {
            assert_eq!(error, FilError::Full);
            self.advance();
        }
        if op == FlashOp::Flush {
            let before = self.open.values().filter(|r| r.op == FlashOp::Write).map(|r| r.tag).collect();
            self.flushes.insert(request.tag, before);
        }
        self.open.insert(request.tag, request);
    }
    /// Goes on to the next thing that happens.
    fn advance(&mut self) -> bool {
        let Some(next) = self.fil.next_event_ns() else { return false };
        assert!(next >= self.now || !self.done.is_empty(), "time does not go back");
        self.now = self.now.max(next);
        let mut done = std::mem::take(&mut self.done);
        self.fil.advance(self.now, &mut done);
        for ended in done.drain(..) {
            let request = self.open.remove(&ended.tag).expect("each request ends once");
            assert!(ended.submitted_ns <= ended.done_ns && ended.done_ns <= self.now);
            assert_eq!(
                ended.status,
                FlashStatus::Ok,
                "{request:?} {:?} {:?}",
                self.fil.counters(),
                self.fil.nand().geometry()
            );
            if request.op == FlashOp::Write {
                self.written.insert(request.flash_page);
            }
            if request.op == FlashOp::Flush {
                let before = self.flushes.remove(&ended.tag).expect("seen when it was submitted");
                let late: Vec<u64> = before.into_iter().filter(|tag| self.open.contains_key(tag)).collect();
                assert!(late.is_empty(), "a flush ended before the writes {late:?}");
                self.flushed += 1;
            }
        }
        self.done = done;
        true
    }
    fn settle(&mut self) {
        while self.advance() {}
        assert!(self.open.is_empty(), "nothing is under way, but {:?}", self.open);
    }
}

/// The flash pages of an extent in the order in which they arrive: overtaking each other, some left
/// out.
fn arrivals(random: &mut Random, first: u32, pages: u32) -> VecDeque<u32> {
    let mut order: Vec<u32> = (first..first + pages).collect();
    let kind = random.below(4);
    if kind > 0 {
        for at in 0..order.len() {
            let with = (at + random.below(3 * kind) as usize).min(order.len() - 1);
            order.swap(at, with);
        }
    }
    if random.one_in(3) {
        order.retain(|_| !random.one_in(7));
    }
    if random.one_in(4) {
        order.truncate(random.below(order.len() as u32 + 1) as usize);
    }
    order.into()
}

fn traffic(seed: u64, cached: bool) -> Driver {
    println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
    let mut random = Random(seed);
    let profile = profile(&mut random);
    let planes = profile.geometry.planes();
    let width = [0, 1, 2, planes][random.below(4) as usize];
    let config = FilConfig {
        planes_per_extent: width,
        cached_writes: cached,
        buffer_pages: 16 + random.below(32),
        log_blocks: 4,
        hold_ns: random.below(3_u64) * 20_000,
        depth: 64,
        seed,
        ..FilConfig::default()
    };
    let fil = Fil::new(profile, config).unwrap();
    let (extents, pages) = (fil.extents(), fil.extent_pages());
    let mut driver = Driver {
        fil,
        now: 0,
        next_tag: 0,
        open: BTreeMap::new(),
        flushes: BTreeMap::new(),
        written: BTreeSet::new(),
        done: Vec::new(),
        flushed: 0,
    };
    let mut streams: Vec<(u32, VecDeque<u32>)> = Vec::new();
    for _ in 0..600 {
        if streams.len() < 3 {
            let extent = 1 + random.below(extents - 1);
            if streams.iter().all(|(other, _)| *other != extent) {
                // The store uses an extent again when nothing of it is under way.
                let range = extent * pages..(extent + 1) * pages;
                while driver.open.values().any(|r| r.op != FlashOp::Flush && range.contains(&r.flash_page)) {
                    assert!(driver.advance());
                }
                driver.written.retain(|page| !range.contains(page));
                streams.push((extent, arrivals(&mut random, extent * pages, pages)));
            }
        }
        for _ in 0..random.below(6) {
            let Some(stream) = (!streams.is_empty()).then(|| random.below(streams.len() as u32) as usize) else {
                break;
            };
            match streams[stream].1.pop_front() {
                Some(page) => driver.submit(FlashOp::Write, page),
                None => {
                    streams.swap_remove(stream);
                }
            }
        }
        if random.one_in(20) {
            driver.submit(FlashOp::Write, random.below(2));
        }
        if random.one_in(8) {
            driver.submit(FlashOp::Flush, 0);
        }
        if let (true, Some(page)) = (random.one_in(2), driver.written.iter().nth(random.below(50) as usize).copied()) {
            driver.submit(FlashOp::Read, page);
        }
        for _ in 0..random.below(8) {
            driver.advance();
        }
        driver.fil.check();
    }
    driver.submit(FlashOp::Flush, 0);
    driver.settle();
    driver.fil.check();
    driver
}

#[test]
fn traffic_as_the_stores_keeps_all_rules() {
    let (mut padded, mut logged, mut late, mut moved, mut begun, mut flushed) = (0, 0, 0, 0, 0, 0);
    for seed in trials::seeds(1, 60) {
        let driver = traffic(seed, seed % 2 == 0);
        let c = driver.fil.counters();
        assert_eq!(c.write_failures + c.read_failures, 0);
        padded += c.padded;
        logged += c.logged;
        late += c.late;
        moved += c.log_moves;
        begun += c.extents_begun;
        flushed += driver.flushed;
    }
    if trials::is_whole(60) {
        // Else the traffic would not reach what this is about.
        println!("padded {padded}, logged {logged}, late {late}, moved {moved}, begun {begun}, flushes {flushed}");
        assert!(padded > 0 && logged > 0 && late > 0 && moved > 0 && begun > 0 && flushed > 0);
    }
}

#[test]
fn what_was_written_before_reads_as_what_was_written_since() {
    let mut profile = Profile::built_in("mlc").unwrap().scaled(256 << 20, 16).unwrap();
    profile.wear.factory_bad = 0.0;
    (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
    let (mut now, mut times) = (0, Vec::new());
    for assumed in [false, true] {
        let mut fil = Fil::new(profile, FilConfig { planes_per_extent: 8, ..FilConfig::default() }).unwrap();
        let first = 3 * fil.extent_pages();
        let mut done = Vec::new();
        let mut ask = |fil: &mut Fil, op, pages: std::ops::Range<u32>| {
            for flash_page in pages {
                fil.submit(now, FlashRequest { tag: 0, op, flash_page, reclaim: false }).unwrap();
            }
            let begin = now;
            while let Some(next) = fil.next_event_ns() {
                now = next.max(now);
                fil.advance(now, &mut done);
            }
            assert!(done.drain(..).all(|d| d.status == FlashStatus::Ok));
            now - begin
        };
        // 23 pages of NAND, across 8 planes.
        if assumed {
            fil.assume_written(3, 92).unwrap();
        } else {
            ask(&mut fil, FlashOp::Write, first..first + 92);
        }
        let read = ask(&mut fil, FlashOp::Read, first..first + 92);
        let more = ask(&mut fil, FlashOp::Write, first + 92..first + 200);
        let again = ask(&mut fil, FlashOp::Write, first..first + 4);
        assert_eq!(fil.counters().extents_begun, 1);
        assert!(read > 50_000 && more > 1_200_000 && again > 4_200_000, "{read} {more} {again}");
        fil.check();
        times.push((read, more, again));
    }
    assert_eq!(times[0], times[1]);
    let mut fil = Fil::new(profile, FilConfig::default()).unwrap();
    let (extents, pages) = (fil.extents(), fil.extent_pages());
    assert!(matches!(fil.assume_written(extents, 1), Err(FilError::OutOfRange(..))));
    assert!(matches!(fil.assume_written(1, pages + 1), Err(FilError::OutOfRange(..))));
}
