//! Goal: flash that fails, forgets or returns false data never makes the store give a wrong value,
//! and never one that is older than promised without saying so. Method: every request of random
//! runs fails, once and for good. Every bit of the pages that all depends on is flipped, and random
//! bits elsewhere. Writes get lost or are written elsewhere. Tokens and indices come to the end of
//! their bits.

use crate::world;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use fulgurite_flash::FlashError;
use fulgurite_format::{
    Anchor, HEADER_BYTES, Header, Kind, NO_EXTENT, NotMetadata, PAYLOAD_BYTES, TIME_BITS, TOKENS_MAX, crc32c,
};
use fulgurite_store::{Geometry, RecoverError, Store, StoreConfig, TableFull, WriteError};
use world::attacks::{self, Met, Step, first_seed, runs, step};
use world::trials::{self, figure, is_whole};
use world::{Content, Failed, Failing, ForgetfulFlash, POOL, Trouble, World, tiny};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EAGAIN: i32 = 11;
const EINTR: i32 = 4;
const ECANCELED: i32 = 125;

/// What may become of a request, as it is reported to the store. A transfer that stays short, or
/// moves nothing at all, is `Short`; the queue of a file tries these, EAGAIN and EINTR again by
/// itself (its own tests enumerate that), and then passes them to the store.
const TROUBLES: [(&str, Trouble, bool); 9] = [
    ("EIO", Trouble::Fails(FlashError::Io(EIO)), false),
    ("ENOSPC", Trouble::Fails(FlashError::Io(ENOSPC)), false),
    ("EAGAIN", Trouble::Fails(FlashError::Io(EAGAIN)), false),
    ("EINTR", Trouble::Fails(FlashError::Io(EINTR)), false),
    ("short or nothing", Trouble::Fails(FlashError::Short), false),
    ("given up", Trouble::Fails(FlashError::TimedOut), false),
    ("ECANCELED", Trouble::Fails(FlashError::Io(ECANCELED)), false),
    ("30 s late", Trouble::Late { ms: 30_000 }, false),
    ("EIO on flush", Trouble::Fails(FlashError::Io(EIO)), true),
];

fn workload(seed: u64, fails: Failing) -> World {
    let mut world = World::new(tiny(32), attacks::config(None, seed), seed);
    world.fails = Some(fails);
    for _ in 0..30 {
        if world.store.poisoned().is_some() {
            break;
        }
        let count = 1 + world.random.below(6);
        match world.random.below(20) {
            0 => step(&mut world, Step::RollBack),
            1 => step(&mut world, Step::Delete),
            2 => step(&mut world, Step::Checkpoint),
            3..7 => step(&mut world, Step::Sync),
            _ => world.write(count),
        }
        for _ in 0..world.random.below(9) {
            world.turn();
        }
    }
    world.settle();
    world
}

#[test]
fn the_nth_request_fails() {
    let since = Instant::now();
    let (mut workloads, mut tried, mut poisoned) = (0u64, 0u64, 0u64);
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for seed in trials::seeds(0, 20) {
        workloads += 1;
        let never = Failing { from: u64::MAX, until: u64::MAX, trouble: TROUBLES[0].1, only_flushes: false };
        let without = workload(seed, never);
        // Every one of its requests fails with every kind of trouble, once and for good.
        let plans = TROUBLES.into_iter().flat_map(|(_, trouble, only_flushes)| {
            let requests = if only_flushes { without.flushes } else { without.requests };
            (0..requests)
                .flat_map(move |from| [from + 1, u64::MAX].map(|until| Failing { from, until, trouble, only_flushes }))
        });
        for plan in plans {
            let what = format!("seed {seed}, {plan:?}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
            let mut world = workload(seed, plan);
            // Up to there all is as it was without.
            assert!(!world.failed.is_empty(), "{what}: nothing failed");
            tried += 1;
            if matches!(plan.trouble, Trouble::Late { .. }) {
                assert_eq!(world.store.poisoned(), None, "{what}: late is not lost");
                continues_after_crash(&mut world, &what);
                continue;
            }
            for failed in &world.failed {
                *kinds.entry(format!("{failed:?}")).or_default() += 1;
            }
            // All but a flush is written again, elsewhere, unless that fails again and again, or
            // the error says that there is no use.
            let flush = world.failed.contains(&Failed::Flush);
            let metadata =
                |f: &&Failed| matches!(f, Failed::Write(Some(Kind::Journal | Kind::Anchor | Kind::Checkpoint)));
            let written = world.failed.iter().filter(metadata).count();
            let nowhere = [FlashError::Io(ENOSPC), FlashError::Io(ECANCELED), FlashError::TimedOut].map(Trouble::Fails);
            let hopeless = if nowhere.contains(&plan.trouble) { 1 } else { 3 };
            if written < hopeless || flush {
                assert_eq!(world.store.poisoned().is_some(), flush, "{what}: {:?}", world.failed);
            } else if hopeless == 1 {
                assert!(world.store.poisoned().is_some(), "{what}: {:?}", world.failed);
            }
            if world.store.poisoned().is_some() {
                poisoned += 1;
                assert_eq!(world.store.next_io(), None, "{what}: nothing is written any more");
                assert!(matches!(world.store.sync(), Err(WriteError::Poisoned(_))), "{what}");
                assert!(matches!(world.store.place(&[1], &mut Vec::new()), Err(WriteError::Poisoned(_))), "{what}");
            }
            continues_after_crash(&mut world, &what);
        }
    }
    println!(
        "failing requests: {tried} runs, {poisoned} poisoned, 0 violations, {:.1} s; {kinds:?}",
        since.elapsed().as_secs_f64()
    );
    assert!(tried >= 20_000 || !is_whole(20), "{tried} runs of {workloads} workloads are too few");
    figure(4, "workloads of the store of which every request failed", workloads);
    figure(4, "runs of these, one for each request, kind, and whether once", tried);
}

/// What is there can be read; and after a crash without further troubles it goes on.
fn continues_after_crash(world: &mut World, what: &str) {
    world.check();
    world.fails = None;
    world.crash().unwrap_or_else(|e| panic!("{what}: {e}"));
    world.check();
    world.write(3);
    world.sync();
    world.settle();
    world.check();
    let before = world.now.clone();
    world.crash().unwrap();
    assert_eq!(world.now, before, "{what}");
    world.check();
}

fn add(to: &mut Met, met: Met) {
    to.images += met.images;
    to.whole += met.whole;
    to.damaged += met.damaged;
    to.refused += met.refused;
    to.older += met.older;
}

#[test]
fn every_bit_of_what_all_depends_on() {
    let since = Instant::now();
    // A run that did not end with a checkpoint: there are commits behind its anchor.
    let ends_with_journal = |seed: &u64| {
        let world = attacks::quiet_run(None, *seed);
        world.store.info().journal_pages > 2 && world.store.counters().checkpoints > 0
    };
    let seed = (first_seed()..).find(ends_with_journal).unwrap();
    println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
    let mut world = attacks::quiet_run(None, seed);
    let config = world.config;
    let moment = attacks::left_by(&mut world);
    let header = |place: &u32| match &moment.durable[place] {
        Content::Metadata(page) => Header::open(page).ok().map(|(h, ..)| (h, *place)),
        _ => None,
    };
    let all: Vec<(Header, u32)> = moment.durable.keys().filter_map(header).collect();
    let newest = all.iter().filter(|(h, _)| h.kind == Kind::Anchor).map(|(h, _)| h.sequence).max().unwrap();
    let anchors: Vec<u32> =
        all.iter().filter(|(h, _)| h.kind == Kind::Anchor && h.sequence == newest).map(|(_, p)| *p).collect();
    assert_eq!(anchors.len(), 2, "two copies");
    let Content::Metadata(page) = &moment.durable[&anchors[0]] else { panic!("an anchor") };
    let anchor = Anchor::decode(Header::open(page).unwrap().2).unwrap();
    let journal = |sequence: u64| {
        all.iter().find(|(h, _)| h.kind == Kind::Journal && h.sequence == sequence).map(|(_, p)| *p).unwrap()
    };
    let last = all.iter().filter(|(h, _)| h.kind == Kind::Journal).map(|(h, _)| h.sequence).max().unwrap();
    assert!(last > anchor.journal.sequence + 1, "three commits at least");
    let checkpoint = world.store.geometry().first_of(anchor.checkpoint.extent) + anchor.checkpoint.index;

    let mut sum = Met::default();
    for place in [0, 1, anchors[0], anchors[1]] {
        let met = attacks::flip_all(&moment, config, place).unwrap_or_else(|e| panic!("flash page {place}: {e}"));
        assert_eq!(met.whole, met.images, "flash page {place} has another copy: {met:?}");
        add(&mut sum, met);
    }
    for place in [journal(anchor.journal.sequence), journal(last - 1), checkpoint] {
        let met = attacks::flip_all(&moment, config, place).unwrap_or_else(|e| panic!("flash page {place}: {e}"));
        assert_eq!(met.refused, met.images, "flash page {place} is missed: {met:?}");
        add(&mut sum, met);
    }
    // The last page is the witness of the newest commit, and holds nothing.
    let met = attacks::flip_all(&moment, config, journal(last)).unwrap();
    assert_eq!((met.whole, met.older), (met.images, 0), "{met:?}");
    add(&mut sum, met);
    println!("every bit: {sum:?}, 0 violations, {:.1} s", since.elapsed().as_secs_f64());
    assert!(sum.images > 32_768, "{} are too few", sum.images);
    figure(6, "bits of superblock and journal header", sum.images);
}

#[test]
fn random_bits_elsewhere() {
    let mut sum = Met::default();
    for seed in first_seed()..first_seed() + runs(50) {
        let mut world = attacks::quiet_run(None, seed);
        let config = world.config;
        add(&mut sum, attacks::flip_some(&attacks::left_by(&mut world), config, seed, 400).unwrap());
    }
    println!("random bits: {sum:?}, 0 violations");
    figure(6, "random damage elsewhere", sum.images);
    if is_whole(50) {
        assert!(sum.images >= 20_000, "{} are too few", sum.images);
        assert!(sum.damaged > 0 && sum.refused > 0 && sum.whole > 0);
    }
}

#[test]
fn writes_that_are_lost_or_go_elsewhere() {
    let mut sum = Met::default();
    for seed in first_seed()..first_seed() + runs(30) {
        add(&mut sum, attacks::misplaced(None, seed, 200).unwrap());
    }
    println!("lost, misplaced, duplicated, stale: {sum:?}, 0 violations");
    figure(7, "lost, misplaced, duplicated and stale writes", sum.images);
    if is_whole(30) {
        assert!(sum.images >= 2_000, "{} are too few", sum.images);
        assert!(sum.damaged > 0 && sum.refused > 0 && sum.whole > 0);
    }
}

#[test]
fn an_unreadable_copy_is_passed_over() {
    let mut world = attacks::quiet_run(None, 5);
    let config = world.config;
    let moment = attacks::left_by(&mut world);
    let mut refused = 0;
    for place in 0..moment.pages {
        let mut image = moment.all();
        image.unreadable = Some(place);
        match world::images::open(&image, config, &moment.promise).unwrap() {
            Ok((token, _)) => assert_eq!(token, moment.promise.acknowledged, "flash page {place}"),
            Err(RecoverError::Flash { place: p, error }) => {
                assert_eq!((p, error), (place, FlashError::Io(EIO)));
                refused += 1;
            }
            Err(e) => panic!("flash page {place}: {e}"),
        }
    }
    println!("unreadable flash pages: {} images, {refused} refused, 0 violations", moment.pages);
}

/// A new pool whose first token is another one.
fn at_token(geometry: Geometry, config: StoreConfig, seed: u64, next_token: u64) -> World {
    let mut flash = ForgetfulFlash::default();
    flash.pages = geometry.flash_pages();
    for (place, mut page) in Store::format(geometry, POOL, 0) {
        let (header, _, payload) = Header::open(&page).unwrap();
        if header.kind == Kind::Anchor {
            let anchor = Anchor { next_token, ..Anchor::decode(payload).unwrap() };
            let mut payload = Vec::new();
            anchor.encode(&mut payload);
            page[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
            Header { next_token, ..header }.seal(&mut page);
        }
        flash.write(place, Content::Metadata(Rc::new(page)));
    }
    flash.flush();
    World::on(flash, config, seed)
}

#[test]
fn tokens_near_the_wrap_of_24_bits() {
    for base in [(1 << 24) - 3, (1 << 23) - 3, (1 << 40) - 2, (1 << 40) + (1 << 24) - 5] {
        for seed in first_seed()..first_seed() + runs(10) {
            println!("tokens from {base}: seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
            let mut world = at_token(tiny(48), attacks::config(None, seed), seed, base);
            for i in 0..120 {
                let count = 1 + world.random.below(5);
                world.write(count);
                if i % 5 == 4 {
                    world.sync();
                }
                for _ in 0..world.random.below(8) {
                    world.turn();
                }
                if i % 17 == 16 {
                    world.crash().unwrap();
                    world.check();
                }
                if i == 60 {
                    step(&mut world, Step::RollBack);
                    world.check();
                }
            }
            assert!(world.store.state().next_token() > base + 10);
        }
    }
}

#[test]
fn times_are_renewed_before_they_could_be_misread() {
    const PERIOD: u64 = 8;
    for seed in first_seed()..first_seed() + runs(10) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut config = attacks::config(None, seed);
        config.restamp_after = PERIOD;
        let mut world = at_token(tiny(48), config, seed, (1 << TIME_BITS) - 40);
        // These are never written again.
        world.write_these(&[0, 1, 40]);
        let mut pinned = 0;
        for i in 0..120u64 {
            let subpage = 2 + world.random.below(30);
            world.write_these(&[subpage]);
            let token = world.sync();
            if i == 30 {
                pinned = token;
                assert!(world.store.pin(token, true).unwrap());
            }
            if i == 38 {
                assert!(world.store.pin(pinned, false).unwrap());
            }
            for _ in 0..world.random.below(12) {
                world.turn();
            }
            if world.random.one_in(10) {
                world.settle();
                world.crash().unwrap();
                world.check();
            }
            let token = world.store.state().next_token();
            let table = world.store.state().table();
            for entry in (0..table.pages()).flat_map(|p| table.chain(p)) {
                let age = (token as u32).wrapping_sub(entry.time()) % (1 << TIME_BITS);
                assert!(u64::from(age) <= 4 * PERIOD, "a version of {age} tokens ago");
            }
        }
        world.check();
        // A token that is pinned for ever is an error, and nothing is lost by it.
        let token = world.sync();
        assert!(world.store.pin(token, true).unwrap());
        let refused = (0..3 * PERIOD).find_map(|_| world.try_sync().err());
        assert_eq!(refused, Some(WriteError::TokenTooOld(token)));
        world.check();
        assert!(world.store.pin(token, false).unwrap());
        world.sync();
        world.settle();
        world.crash().unwrap();
        world.check();
    }
}

#[test]
fn a_full_page_table_is_an_error_and_dropping_tokens_helps() {
    let (mut refusals, mut runs_full) = (0, 0);
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let geometry = Geometry::new(2048, 8, Some(64)).unwrap();
        let mut config = attacks::config(None, seed);
        config.keep_tokens = 30;
        config.table_limit = 4 + 90;
        let mut world = World::new(geometry, config, seed);
        for _ in 0..150 {
            let subpage = world.random.below(64);
            world.write_these(&[subpage]);
            if world.random.one_in(2) {
                world.sync();
            }
            for _ in 0..world.random.below(6) {
                world.turn();
            }
            if world.random.one_in(30) {
                world.crash().unwrap();
            }
            world.check();
        }
        refusals += world.refused;
        runs_full += u64::from(world.refused > 0);
        world.sync();
        world.settle();
        let full = world.now.clone();
        // With the same limit it opens again, and keeps fewer tokens; so it is written again.
        world.config.keep_tokens = 1;
        world.crash().unwrap();
        assert_eq!(world.now, full);
        let before = world.refused;
        world.sync();
        world.settle();
        world.write_these(&[7]);
        assert_eq!(world.refused, before, "{TableFull}");
        world.check();
    }
    println!("full page tables: {runs_full} runs, {refusals} writes refused, 0 violations");
    assert!(runs_full > 0);
}

#[test]
fn sealed_nonsense_is_an_error_and_no_panic() {
    // Pages with right checksums and payloads of random bytes: a defective program wrote them.
    let mut met = [0u64; 2];
    for seed in first_seed()..first_seed() + runs(20) {
        let mut world = attacks::quiet_run(None, seed);
        let config = world.config;
        let moment = attacks::left_by(&mut world);
        let mut random = world::Random(seed);
        let mut places: Vec<u32> = moment.durable.keys().copied().collect();
        places.sort_unstable();
        for place in places {
            let Content::Metadata(page) = &moment.durable[&place] else { continue };
            let Ok((header, ..)) = Header::open(page) else { continue };
            for _ in 0..12 {
                let mut page = page.clone();
                let bytes = Rc::make_mut(&mut page);
                let mut header = header;
                match random.below(4) {
                    0 => bytes[HEADER_BYTES..].iter_mut().for_each(|b| *b = random.next() as u8),
                    1 => header.next_extent = if random.one_in(2) { NO_EXTENT } else { random.next() as u32 },
                    2 => header.used = random.below(PAYLOAD_BYTES as u32 + 1) as usize,
                    _ => {
                        for _ in 0..1 + random.below(4) {
                            let used = header.used.max(1) as u32;
                            let value = [0, 0xFF, random.next() as u8][random.below(3) as usize];
                            bytes[HEADER_BYTES + random.below(used) as usize] = value;
                        }
                    }
                }
                header.seal(bytes);
                let image = moment.image([(place, Content::Metadata(page))]);
                let opened = fulgurite_store::recover(&mut image.clone(), config);
                met[usize::from(opened.is_err())] += 1;
            }
        }
    }
    println!("sealed nonsense: {} opened, {} refused, no panic", met[0], met[1]);
    assert!(met[1] > 0);
}

/// The pages of a run with right checksums and numbers from all of 64 bits, also behind a damaged
/// one. They are opened with losses accepted, and used when that succeeds.
#[test]
fn numbers_from_all_of_64_bits_are_an_error_or_can_be_gone_on_from() {
    let mut met = [0u64; 3];
    for seed in first_seed()..first_seed() + runs(20) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut world = attacks::quiet_run(None, seed);
        let mut config = world.config;
        config.accept_loss = true;
        let moment = attacks::left_by(&mut world);
        let mut random = world::Random(seed + 1);
        let opened = |place: &u32| match &moment.durable[place] {
            Content::Metadata(page) => Header::open(page).ok().map(|(header, ..)| (*place, header)),
            _ => None,
        };
        let mut all: Vec<(u32, Header)> = moment.durable.keys().filter_map(opened).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        let of = |kind| all.iter().filter(|(_, header)| header.kind == kind).copied().collect::<Vec<(u32, Header)>>();
        let (journal, anchors) = (of(Kind::Journal), of(Kind::Anchor));
        let mut number = |near: u64| match random.below(6) {
            0 => u64::MAX - random.next() % 3,
            1 => (u64::MAX / 2).wrapping_add(random.next() % 3).wrapping_sub(1),
            2 => u64::MAX / 2 - (1 << 32) - 1 + random.next() % 3,
            3 => near.wrapping_add(random.next() % 5).wrapping_sub(2),
            4 => u64::MAX >> (random.next() % 64),
            _ => random.next(),
        };
        for round in 0..200 {
            let mut over = Vec::new();
            let mut sealed = |place: u32, change: &mut dyn FnMut(&mut Header, &mut [u8])| {
                let Content::Metadata(page) = &moment.durable[&place] else { panic!("metadata") };
                let mut page = page.clone();
                let bytes = Rc::make_mut(&mut page);
                let mut header = Header::open(bytes).unwrap().0;
                change(&mut header, &mut bytes[HEADER_BYTES..]);
                header.seal(bytes);
                over.push((place, Content::Metadata(page)));
            };
            let pick = |pages: &[(u32, Header)], at: u64| pages[at as usize % pages.len()];
            if round % 2 == 0 && journal.len() > 2 {
                // One of the journal is gone, and one behind it has another number, or belongs to
                // another commit.
                let (lost, _) = pick(&journal, number(0));
                let (place, header) = pick(&journal, number(0));
                let (sequence, offset, next_token) =
                    (number(header.sequence), number(0) as u16, number(header.next_token));
                sealed(place, &mut |header, _| (header.sequence, header.commit_offset) = (sequence, offset & 3));
                if next_token % 2 == 0 {
                    over.last_mut().into_iter().for_each(|(_, content)| {
                        let Content::Metadata(page) = content else { return };
                        let bytes = Rc::make_mut(page);
                        let header = Header { next_token, ..Header::open(bytes).unwrap().0 };
                        header.seal(bytes);
                    });
                }
                if lost != place {
                    over.push((lost, Content::Torn));
                }
            } else {
                let (place, header) = pick(&anchors, number(0));
                let which = number(0);
                let new = number(header.sequence);
                let token = number(header.next_token);
                sealed(place, &mut |header, payload| {
                    let mut anchor = Anchor::decode(&payload[..header.used]).unwrap();
                    match which % 6 {
                        0 => anchor.next_token = new,
                        1 => anchor.journal.sequence = new,
                        2 => anchor.journal_end = new,
                        3 => anchor.checkpoint.sequence = new,
                        4 => header.sequence = new,
                        _ => anchor.tokens.iter_mut().rev().take(1).for_each(|last| last.token = token),
                    }
                    if which % 6 != 4 {
                        // It is the newest.
                        header.sequence += 1_000_000;
                    }
                    let mut bytes = Vec::new();
                    anchor.encode(&mut bytes);
                    payload[..bytes.len()].copy_from_slice(&bytes);
                });
            }
            let image = moment.image(over);
            let mut flash = ForgetfulFlash::default();
            flash.pages = moment.pages;
            image.places().into_iter().for_each(|place| flash.write(place, image.content(place).unwrap().clone()));
            flash.flush();
            match fulgurite_store::recover(&mut flash.clone(), config) {
                Err(_) => met[0] += 1,
                Ok((store, report)) => {
                    met[1 + usize::from(report.lost.is_some())] += 1;
                    drop(store);
                    // It goes on from there: what it counts up does not come to an end.
                    let mut world = World::on(flash, config, seed);
                    world.store.begin_checkpoint();
                    world.settle();
                    for _ in 0..3 {
                        world.write(3);
                        let _ = world.store.sync();
                        world.settle();
                        world.store.begin_checkpoint();
                        world.settle();
                    }
                }
            }
        }
    }
    println!(
        "numbers of 64 bits: {} refused, {} opened, {} of them after a loss; no panic",
        met[0],
        met[1] + met[2],
        met[2]
    );
    assert!(met.iter().all(|count| *count > 0) || runs(20) < 20, "{met:?}");
}

#[test]
fn a_pool_of_a_newer_version_is_refused_by_its_number() {
    let mut world = attacks::quiet_run(None, 1);
    let config = world.config;
    let moment = attacks::left_by(&mut world);
    let newer = |place: u32| {
        let Content::Metadata(page) = &moment.durable[&place] else { panic!("a superblock") };
        let mut page = page.clone();
        let bytes = Rc::make_mut(&mut page);
        bytes[8] = 2;
        bytes[60..64].fill(0);
        let crc = crc32c(&bytes[..]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        (place, Content::Metadata(page))
    };
    let mut image = moment.image([newer(0), newer(1)]);
    let refused = fulgurite_store::recover(&mut image, config).map(|_| ()).unwrap_err();
    assert_eq!(refused, RecoverError::NotAPool(NotMetadata::Newer(2)));

    // A later program may have written any page of it: one that counts is never taken for one that
    // is not there.
    let token = fulgurite_store::recover(&mut moment.image([]), config).unwrap().1.token;
    let of_kind = |kind: Kind| {
        let mut places: Vec<(u64, u32)> = moment
            .durable
            .iter()
            .filter_map(|(&place, content)| match content {
                Content::Metadata(page) => Header::open(page).ok().map(|(header, ..)| (header, place)),
                _ => None,
            })
            .filter(|(header, _)| header.kind == kind)
            .map(|(header, place)| (header.sequence, place))
            .collect();
        places.sort_unstable();
        places
    };
    for kind in [Kind::Superblock, Kind::Anchor, Kind::Journal, Kind::Checkpoint] {
        let places = of_kind(kind);
        let mut refused = Vec::new();
        for &(_, place) in &places {
            let mut image = moment.image([newer(place)]);
            if kind == Kind::Superblock {
                assert!(fulgurite_store::superblock_repairs(&mut image).is_empty(), "copy {place} is turned back");
            }
            match fulgurite_store::recover(&mut image, config) {
                Err(RecoverError::NotAPool(NotMetadata::Newer(2))) if kind == Kind::Superblock => refused.push(place),
                Err(RecoverError::Newer { place: told, version: 2 }) if told == place => refused.push(place),
                // One that is past.
                Ok((_, report)) => assert_eq!(report.token, token, "{kind:?} at {place}"),
                Err(other) => panic!("{kind:?} at {place}: {other}"),
            }
        }
        // Each checkpoint is numbered from its beginning, and one is in effect.
        let newest = places.last().unwrap_or_else(|| panic!("no {kind:?}")).1;
        let counts = if kind == Kind::Checkpoint { !refused.is_empty() } else { refused.contains(&newest) };
        assert!(counts, "{kind:?}: the newest is at {newest}; refused are {refused:?}");
        let all = matches!(kind, Kind::Superblock | Kind::Anchor);
        assert!(!all || refused.len() == places.len(), "{kind:?}: {refused:?} of {places:?}");
    }
}

#[test]
fn as_many_tokens_as_an_anchor_has_room_for() {
    let mut world = World::new(Geometry::new(8192, 8, Some(64)).unwrap(), attacks::config(None, 0), 3);
    world.flash.log = Some(Vec::new());
    let mut pinned = Vec::new();
    for i in 0..TOKENS_MAX as u32 {
        world.write_these(&[i % 64]);
        let token = world.sync();
        assert!(world.store.pin(token, true).unwrap());
        pinned.push(token);
        if i % 8 == 0 {
            world.settle();
        }
    }
    world.settle();
    assert_eq!(world.try_sync(), Err(TableFull.into()));
    let from = world.flash.log.as_ref().map_or(0, Vec::len);
    for token in &pinned[10..40] {
        assert!(world.store.pin(*token, false).unwrap());
        world.write_these(&[5]);
        let newest = world.sync();
        assert!(world.store.pin(newest, true).unwrap());
        world.settle();
        step(&mut world, Step::Checkpoint);
        world.settle();
    }
    assert_eq!(world.store.state().tokens().as_slice().len(), TOKENS_MAX);
    let (config, mut images, mut random) = (world.config, 0, world::Random(3));
    attacks::each_moment(&mut world, from, |moment, _| {
        let arrived = moment.cached.iter().filter(|_| random.one_in(2)).cloned();
        images += 1;
        world::images::open_whole(&moment.image(arrived), config, &moment.promise).map(|_| ())
    })
    .unwrap();
    println!("all tokens taken: {images} images, 0 violations");
}
