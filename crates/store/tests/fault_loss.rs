//! Goal: a token that was promised and is damaged is never missed in silence. The pool is refused
//! by an error that names what is lost, and opens in the last readable state only when that is
//! accepted. Such a pool then lives on like any other. Method: damage to each page of the journal
//! behind the newest anchor after random runs that ended quietly. Then the refusal, the state that
//! comes back, and further random life of it with crashes, against a model.

use crate::world;

use std::rc::Rc;
use std::sync::Arc;

use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_format::{Header, Kind, PoolId, SUBPAGE_BYTES};
use fulgurite_store::{Geometry, Loss, Pool, PoolError, RecoverError, StoreConfig, recover};
use fulgurite_sys::Arena;
use world::attacks::{self, Step, first_seed, runs, step};
use world::trials;
use world::{Content, ForgetfulFlash, World, checksum_of, tiny};

/// A random run that ended quietly, all of it on flash.
fn quiet(seed: u64) -> World {
    let mut world = attacks::quiet_run(None, seed);
    world.flash.log = None;
    world.settle();
    world.flash.flush();
    world
}

/// Places of journal pages of a world that has come to rest, by number, from the newest anchor's
/// on.
fn journal(world: &World) -> Vec<(u64, u32)> {
    let sound = |place: u32| match world.flash.content(place) {
        Some(Content::Metadata(page)) => Header::open(page).ok().map(|(h, ..)| h).filter(|h| h.place == place),
        _ => None,
    };
    let mut pages: Vec<(u64, u32)> = world
        .flash
        .places()
        .into_iter()
        .filter_map(|place| sound(place).filter(|h| h.kind == Kind::Journal).map(|h| (h.sequence, place)))
        .collect();
    pages.sort_unstable();
    let needed = world.store.info().journal_pages as usize;
    pages.split_off(pages.len().saturating_sub(needed))
}

fn lost(world: &mut World) -> Option<Loss> {
    match recover(&mut world.flash, world.config) {
        Ok(_) => None,
        Err(RecoverError::Lost(loss)) => Some(loss),
        Err(e) => panic!("{e}"),
    }
}

/// Opens it in spite of the loss, as [`Pool::open`] does, and makes the model what came back.
fn accept(world: &mut World) -> Loss {
    let mut config = world.config;
    config.accept_loss = true;
    let (store, report) = recover(&mut world.flash, config).unwrap();
    world.store = store;
    world.store.begin_checkpoint();
    while world.store.counters().checkpoints == 0 {
        assert!(world.turn(), "a loss that was accepted is written down");
    }
    // From then on it is as if nothing had been lost, whatever arrives of what is under way. A
    // second checkpoint changes nothing: reclaim may record so much that the journal is long enough
    // for one.
    let opens = |flash: &mut ForgetfulFlash, config| {
        let (_, again) = recover(flash, config).unwrap();
        assert_eq!((again.token, again.lost), (report.token, None));
    };
    let mut flash = world.flash.clone();
    flash.crash(&mut world.random.clone());
    opens(&mut flash, world.config);
    world.settle();
    opens(&mut world.flash.clone(), world.config);
    world.now = world.tokens[&report.token].clone();
    world.tokens.retain(|t, _| *t <= report.token);
    report.lost.unwrap()
}

/// Forgets what was overwritten because the lost records said that it could be. Checksums show
/// all of it.
fn forget_damaged(world: &mut World) -> usize {
    let map = world.store.map();
    let before = world.now.len();
    let flash = &world.flash;
    world.now.retain(|subpage, number| {
        let found = map.get(*subpage).expect("it is part of the token");
        assert_eq!(found.checksum, checksum_of(*number));
        flash.content(found.place) == Some(&Content::Data(*number))
    });
    before - world.now.len()
}

#[test]
fn what_was_promised_and_is_damaged_is_named() {
    let (mut refused, mut harmless, mut rewritten) = (0, 0, 0);
    for seed in trials::seeds(0, 60) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let reference = quiet(seed);
        let promised = reference.store.durable_token();
        let pages = journal(&reference);
        let image: Vec<(u32, Content)> =
            reference.flash.places().into_iter().map(|p| (p, reference.flash.content(p).unwrap().clone())).collect();
        for (number, place) in pages.clone() {
            let mut world = quiet(seed);
            assert_eq!(journal(&world), pages);
            assert!(world.flash.flip(place, 77 * 8 + 3));
            let Some(loss) = lost(&mut world) else {
                // Only the last page proves nothing about itself, and it holds nothing.
                assert_eq!(number, pages.last().unwrap().0, "seed {seed}: the loss of page {number} was missed");
                world.crash().unwrap();
                assert_eq!(world.store.durable_token(), promised);
                world.check();
                harmless += 1;
                continue;
            };
            refused += 1;
            assert_eq!(loss.place, place);
            assert!(
                loss.seen > number && loss.token <= promised && loss.newest >= promised.min(loss.token + 1),
                "{loss:?}"
            );
            let words = RecoverError::from(loss).to_string();
            assert!(words.contains(&format!("flash page {place}")) && words.contains("lost"), "{words}");
            // Refused without a byte written.
            assert!(image.iter().all(|(p, c)| *p == place || world.flash.content(*p) == Some(c)));

            assert_eq!(accept(&mut world), loss);
            let damaged = forget_damaged(&mut world);
            rewritten += usize::from(damaged > 0);
            if damaged > 0 {
                continue;
            }
            world.check();
            // It lives on, whatever is left of the old journal behind the break.
            for i in 0..60 {
                step(&mut world, if i % 5 == 4 { Step::Sync } else { Step::WriteSeveral });
                for _ in 0..world.random.below(9) {
                    world.turn();
                }
                if world.random.one_in(12) {
                    world.crash().unwrap_or_else(|e| panic!("seed {seed}, page {number}, step {i}: {e}"));
                    world.check();
                }
            }
            world.settle();
            world.check();
        }
    }
    println!(
        "damaged journals: {refused} refused by name, {harmless} without loss, {rewritten} had overwritten data, 0 missed"
    );
    assert!(refused > if trials::is_whole(60) { 100 } else { 0 }, "{refused} are too few");
}

#[test]
fn a_commit_without_pages_leaves_the_proof_of_the_one_before_to_be_written() {
    let mut world = World::new(tiny(32), attacks::config(None, 0), 0);
    world.write_these(&[1]);
    let token = world.sync();
    while world.store.durable_token() < token {
        assert!(world.turn());
    }
    // The proof is wanted and not under way yet.
    let pages = journal(&world).len();
    world.store.commit();
    world.settle();
    world.flash.flush();
    let all = journal(&world);
    assert_eq!(all.len(), pages + 1, "nothing proves that token {token} was durable");
    let (_, last) = all[pages - 1];
    assert!(world.flash.flip(last, 77 * 8 + 3));
    let loss = lost(&mut world).expect("the loss of a token was missed");
    assert_eq!((loss.place, loss.newest), (last, token));
}

#[test]
fn an_unreadable_page_of_the_journal_can_be_accepted_too() {
    for seed in first_seed()..first_seed() + runs(10) {
        let mut world = quiet(seed);
        let pages = journal(&world);
        if pages.len() < 2 {
            continue;
        }
        let (_, place) = pages[pages.len() - 2];
        world.flash.unreadable = vec![place];
        assert!(
            matches!(recover(&mut world.flash, world.config), Err(RecoverError::Flash { place: p, .. }) if p == place)
        );
        let loss = accept(&mut world);
        assert_eq!(loss.place, place);
        let _ = forget_damaged(&mut world);
        step(&mut world, Step::WriteOne);
        world.sync();
        world.settle();
    }
}

#[test]
fn what_a_crash_tore_is_reported_and_refuses_nothing() {
    let (mut torn, mut seen) = (0, 0);
    for seed in first_seed()..first_seed() + runs(60) {
        println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let mut world = quiet(seed);
        step(&mut world, Step::WriteOne);
        world.sync();
        // Until its pages are on their way.
        let last = |world: &World| journal(world).last().map(|(number, _)| *number);
        let position = last(&world);
        while last(&world) == position && world.turn() {
            if let Some(place) = world.flash.tear_newest_metadata() {
                torn += 1;
                let (_, report) = recover(&mut world.flash, world.config).unwrap();
                if let Some(at) = report.torn {
                    assert_eq!(at, place);
                    seen += 1;
                }
                assert_eq!(report.lost, None);
                break;
            }
        }
    }
    println!("torn commits: {torn}, {seen} of them with a telling beginning, none refused");
    assert!(seen > if trials::is_whole(60) { 20 } else { 0 }, "{seen} are too few");
}

#[test]
fn a_pool_is_inspected_without_and_changed_with_the_override() {
    const POOL: PoolId = PoolId([5; 16]);
    let geometry = Geometry::new(1024, 16, Some(256)).unwrap();
    let memory = Arc::new(MemoryFlash::new(1024).unwrap());
    let medium: Arc<dyn Flash> = memory.clone();
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let (first, second) = {
        let (pool, _) = Pool::open(medium.clone(), StoreConfig::default()).unwrap();
        pool.set_status(1, fulgurite_format::Status::ALLOCATED).unwrap();
        let first = pool.sync().unwrap();
        pool.set_status(2, fulgurite_format::Status::ALLOCATED).unwrap();
        let second = pool.sync().unwrap();
        // The witness of the second.
        pool.drop_tokens(1).unwrap();
        (first, second)
    };
    let mut page = [0; SUBPAGE_BYTES];
    let is_of = |page: &[u8; SUBPAGE_BYTES], token: u64| {
        let Ok((header, _, payload)) = Header::open(page) else { return false };
        let record = [&[4u8][..], &token.to_le_bytes()].concat();
        header.kind == Kind::Journal && payload.windows(9).any(|w| w == record)
    };
    let place = (0..1024).find(|place| {
        memory.storage().read(place * SUBPAGE_BYTES, &mut page);
        is_of(&page, second)
    });
    memory.storage().write(place.unwrap() * SUBPAGE_BYTES + 3000, &[1]);
    let before = Rc::new(everything(memory.storage()));
    let Err(PoolError::Recover(RecoverError::Lost(loss))) = Pool::open(medium.clone(), StoreConfig::default()) else {
        panic!("a loss is refused")
    };
    assert_eq!((loss.token, loss.newest, loss.place as usize), (first, second, place.unwrap()));
    let (pool, report) = Pool::inspect(medium.clone(), StoreConfig::default(), None).unwrap();
    assert_eq!((report.lost, report.token), (Some(loss), first));
    drop(pool);
    assert!(everything(memory.storage()) == *before, "looking changes nothing");
    let mut config = StoreConfig::default();
    config.accept_loss = true;
    let (pool, report) = Pool::open(medium.clone(), config).unwrap();
    assert_eq!((report.lost, report.token), (Some(loss), first));
    drop(pool);
    // From now on it is a pool like any other.
    let (pool, report) = Pool::open(medium, StoreConfig::default()).unwrap();
    assert_eq!((report.lost, report.token), (None, first));
    assert!(pool.sync().unwrap() > first);
}

fn everything(storage: &Arena) -> Vec<u8> {
    let mut bytes = vec![0; storage.len()];
    storage.read(0, &mut bytes);
    bytes
}
