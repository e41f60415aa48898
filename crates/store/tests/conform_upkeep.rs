//! Goal: what a pool does by itself or on request shows in its reports, to the last extent. Work
//! that is left is announced, missing places are not asked for again, and what is reclaimed,
//! checked and given up is counted. Method: a pool over a medium in DRAM, as a layer and by its own
//! interface, and numbers worked out by hand.

use std::sync::Arc;

use fulgurite_flash::{
    Backing, Fault, FaultPlan, FaultyFlash, Flash, FlashAddress, FlashError, Layer, MemoryFlash, Op, When, Written,
};
use fulgurite_format::{PageBuffer, PoolId, Status, crc32c, zero_page};
use fulgurite_store::{
    Driver, Durability, Geometry, LOST_MAGIC, LivePage, Loss, Pool, PoolError, ReadPages, StoreConfig, StoreInfo,
};

/// 60 extents of seven flash pages for data.
fn geometry() -> Geometry {
    Geometry::new(480, 8, Some(160)).unwrap()
}
fn medium() -> Arc<FaultyFlash<MemoryFlash>> {
    let medium = Arc::new(FaultyFlash::new(MemoryFlash::new(480).unwrap(), FaultPlan::default()));
    let flash: Arc<dyn Flash> = medium.clone();
    Pool::format(&flash, geometry(), PoolId([6; 16]), 0).unwrap();
    medium
}
fn config() -> StoreConfig {
    let mut config = StoreConfig::default();
    config.keep_tokens = 3;
    config
}
fn open(medium: &Arc<FaultyFlash<MemoryFlash>>, config: StoreConfig) -> Pool {
    let pool = Pool::open(medium.clone(), config).unwrap().0;
    pool.checkpoint().unwrap();
    pool
}
fn page(number: u32) -> PageBuffer {
    let mut page = zero_page();
    page[..4].copy_from_slice(&number.to_le_bytes());
    page
}
/// Writes subpages as a queue does, each full of a number.
fn write(pool: &Pool, subpages: std::ops::Range<u32>, number: u32) -> Result<Vec<u32>, FlashError> {
    let (subpages, mut places): (Vec<u32>, _) = (subpages.collect(), Vec::new());
    Layer::place(pool, &subpages, &mut places)?;
    let pages = places.iter().map(|place| (*place, page(number))).collect();
    Driver::new(&**pool.medium(), 4).unwrap().write_all(pages).unwrap();
    let checksum = crc32c(&page(number)[..]);
    let written =
        |(subpage, place): (&u32, &u32)| Written { subpage: *subpage, place: FlashAddress::whole(*place, checksum) };
    Layer::written(pool, &mut subpages.iter().zip(&places).map(written).collect())?;
    Ok(places)
}
fn read(pool: &Pool, subpage: u32) -> Option<PageBuffer> {
    let place = Layer::locate(pool, subpage).place()?;
    let page = Driver::new(&**pool.medium(), 1).unwrap().read(place.flash_page, 0).unwrap();
    Some(page)
}
/// Each extent is in use for one thing, and as many are free as it says.
fn assert_sound(pool: &Pool) -> StoreInfo {
    let (uses, info) = (pool.uses(), pool.info());
    let mut all = [&uses.fixed[..], &uses.free, &uses.data, &uses.metadata, &uses.retired].concat();
    all.sort_unstable();
    assert_eq!((all, uses.free.len() as u32), ((0..60).collect(), info.free_extents));
    assert_eq!((uses.fixed, info.extents, pool.audit()), (vec![0, 1, 2], 60, Vec::<String>::new()));
    info
}

#[test]
fn what_a_sync_leaves_to_do_is_reported_and_done() {
    let medium = medium();
    let pool = open(&medium, config());
    while Layer::work(&pool) {}
    assert!(!Layer::has_work(&pool));
    let written = |pool: &Pool| pool.counters().metadata;
    let before = written(&pool);
    write(&pool, 0..3, 1).unwrap();
    // The second write of it is the witness of its commit, which no request waits for.
    medium.set_plan(FaultPlan::rule(Some(Op::Write), When::Nth(2), Fault::Late { polls: 20 }));
    pool.sync().unwrap();
    assert!(Layer::has_work(&pool));
    while Layer::work(&pool) {}
    assert!(!Layer::has_work(&pool));
    assert_eq!(written(&pool) - before, 2);
    // The flash failed: nothing more is to be done, and writers are notified.
    medium.set_plan(FaultPlan::rule(Some(Op::Flush), When::From(1), Fault::Fails(FlashError::Io(5))));
    assert!(pool.sync().is_err() && !Layer::work(&pool));
    assert_eq!(write(&pool, 0..1, 2), Err(FlashError::Io(5)));
    assert!(matches!(pool.write_objects(&[(0, b"x")]), Err(PoolError::Flash(FlashError::Io(5)))));
    // To inspect it does nothing.
    let looked = Pool::inspect(Arc::new(MemoryFlash::new(480).unwrap()), config(), None);
    assert!(matches!(looked, Err(PoolError::Recover(_))));
}
#[test]
fn an_inspection_changes_nothing_and_says_so() {
    let medium = medium();
    let pool = open(&medium, config());
    write(&pool, 0..3, 1).unwrap();
    let token = pool.sync().unwrap();
    while Layer::work(&pool) {}
    drop(pool);
    let submitted = medium.submitted();
    let looked = Pool::inspect(medium.clone(), config(), None).unwrap().0;
    assert!(!Layer::work(&looked) && Backing::versions(&looked).is_none() && looked.info().live == 3);
    assert_eq!(write(&looked, 0..1, 2), Err(FlashError::Io(30)));
    let refused = |result: Result<(), PoolError>| matches!(result, Err(PoolError::ReadOnly));
    assert!(refused(looked.sync().map(|_| ())) && refused(looked.roll_back(token)) && refused(looked.checkpoint()));
    assert!(refused(looked.pin(token, true)) && refused(looked.drop_tokens(1).map(|_| ())));
    assert!(refused(looked.reclaim_one().map(|_| ())) && refused(looked.set_status(3, Status::ALLOCATED)));
    assert!(medium.submitted() > submitted);
    let counters = medium.counters();
    drop(looked);
    assert_eq!((medium.counters().writes, medium.counters().flushes), (counters.writes, counters.flushes));
    let pool = open(&medium, config());
    assert!(Backing::versions(&pool).is_some());
}
/// A writer without a place need not ask again before something may have made one.
#[test]
fn places_that_there_are_not_are_not_asked_for_again() {
    let medium = medium();
    let mut few = config();
    few.uncommitted_max = 20;
    let pool = open(&medium, few);
    while Layer::work(&pool) {}
    assert!(Layer::may_place(&pool));
    // A request for none has got all of them.
    Layer::place(&pool, &[], &mut Vec::new()).unwrap();
    assert!(Layer::may_place(&pool));
    // All that may be under way are: the next has to wait for the end of one.
    let (subpages, mut places): (Vec<u32>, _) = ((0..20).collect(), Vec::new());
    Layer::place(&pool, &subpages, &mut places).unwrap();
    assert!(places.len() == 20 && Layer::may_place(&pool));
    Layer::place(&pool, &[30], &mut places).unwrap();
    assert!(places.len() == 20 && !Layer::may_place(&pool));
    assert!(Layer::not_written(&pool, places[0], FlashError::Io(5)) && Layer::may_place(&pool));
    Layer::place(&pool, &[30], &mut places).unwrap();
    assert!(places.len() == 21 && Layer::may_place(&pool));
    Layer::place(&pool, &[31], &mut places).unwrap();
    assert!(places.len() == 21 && !Layer::may_place(&pool));
    let checksum = crc32c(&page(0)[..]);
    let mut written = vec![Written { subpage: 1, place: FlashAddress::whole(places[1], checksum) }];
    Layer::written(&pool, &mut written).unwrap();
    assert!(Layer::may_place(&pool) && pool.uncommitted() == 1);
}
/// Claims end with the places that were given now, whatever the caller's list holds besides.
#[test]
fn claims_end_with_the_places_that_are_given() {
    let medium = medium();
    let pool = open(&medium, config());
    while Layer::work(&pool) {}
    pool.leave_for_sync(pool.info().room);
    assert!(Backing::asks(&pool));
    (0..9).for_each(|_| Backing::begin_change(&pool, 0, false).unwrap());
    let differ = |pool: &Pool| fulgurite_flash::Versions::uncommitted(pool);
    assert_eq!(differ(&pool), Some(9));
    let mut places = vec![0; 5];
    Layer::place(&pool, &[1, 2], &mut places).unwrap();
    assert_eq!((places.len(), differ(&pool)), (7, Some(7)));
    // What failed has none; what was written counts as that.
    assert!(Layer::not_written(&pool, places[5], FlashError::Io(5)));
    assert_eq!(differ(&pool), Some(8));
    let written = Written { subpage: 2, place: FlashAddress::whole(places[6], 1) };
    Layer::written(&pool, &mut vec![written]).unwrap();
    assert_eq!((differ(&pool), pool.uncommitted()), (Some(9), 1));
    // One that a sync makes is granted in any case.
    Backing::begin_change(&pool, 0, true).unwrap();
    assert_eq!(differ(&pool), Some(10));
    pool.leave_for_sync(0);
    assert_eq!((Backing::asks(&pool), differ(&pool)), (false, Some(1)));
}
#[test]
fn a_flush_holds_until_somebody_goes_back_behind_it() {
    let medium = medium();
    let pool = open(&medium, config());
    write(&pool, 0..1, 1).unwrap();
    let first = pool.sync().unwrap();
    write(&pool, 0..1, 2).unwrap();
    let flush = Layer::begin_flush(&pool).unwrap();
    assert_eq!(
        (flush, Layer::is_flushed(&pool, flush), Layer::is_flushed(&pool, first)),
        (first + 1, Ok(false), Ok(true))
    );
    while Layer::work(&pool) {}
    assert_eq!(Layer::is_flushed(&pool, flush), Ok(true));
    // One that is under way when the pool goes back need not be kept.
    let flush = Layer::begin_flush(&pool).unwrap();
    assert_eq!(Layer::is_flushed(&pool, flush), Ok(false));
    pool.roll_back(first).unwrap();
    assert_eq!((Layer::is_flushed(&pool, flush), read(&pool, 0)), (Ok(true), Some(page(1))));
    // One that comes to nothing is an error.
    let flush = Layer::begin_flush(&pool).unwrap();
    medium.set_plan(FaultPlan::rule(Some(Op::Flush), When::From(1), Fault::Fails(FlashError::Io(5))));
    while Layer::work(&pool) {}
    assert_eq!(Layer::is_flushed(&pool, flush), Err(FlashError::Io(5)));
    assert_eq!(Layer::begin_flush(&pool), Err(FlashError::Io(5)));
    // In a pool that keeps nothing there is nothing to be flushed.
    let mut cache = config();
    cache.durability = Durability::Cache;
    let pool = open(&self::medium(), cache);
    write(&pool, 0..1, 1).unwrap();
    assert_eq!((Layer::begin_flush(&pool), Layer::is_flushed(&pool, 0), pool.uncommitted()), (Ok(0), Ok(true), 1));
}
#[test]
fn what_is_reclaimed_is_free_afterwards() {
    let medium = medium();
    let pool = open(&medium, config());
    assert!(!pool.reclaim_one().unwrap(), "there is nothing");
    write(&pool, 0..7, 1).unwrap();
    write(&pool, 0..3, 2).unwrap();
    let before = assert_sound(&pool);
    assert_eq!((before.live, before.free_extents), (7, 60 - 3 - pool.uses().metadata.len() as u32 - 2));
    assert!(pool.reclaim_one().unwrap());
    let counters = pool.counters();
    assert_eq!((counters.reclaimed, counters.copied, counters.written), (1, 4, 10));
    let after = assert_sound(&pool);
    // Reclaim has opened an extent of its own, and the one that it has emptied is free.
    assert_eq!((after.live, after.free_extents), (7, before.free_extents));
    assert!(!pool.reclaim_one().unwrap(), "what is full gains nothing");
    assert!((0..7).all(|subpage| read(&pool, subpage) == Some(page(if subpage < 3 { 2 } else { 1 }))));
}
#[test]
fn all_that_is_needed_of_a_page_is_named() {
    let medium = medium();
    let pool = open(&medium, config());
    let old = write(&pool, 16..19, 1).unwrap();
    let first = pool.sync().unwrap();
    let new = write(&pool, 17..18, 2).unwrap();
    let now = write(&pool, 20..21, 3).unwrap();
    let mut live = Vec::new();
    pool.live_pages(1, &mut live).unwrap();
    let (one, two, three) = (crc32c(&page(1)[..]), crc32c(&page(2)[..]), crc32c(&page(3)[..]));
    let of =
        |subpage, place, checksum, current, time| LivePage { subpage, place, checksum, current, time, object: None };
    let mut expected = vec![
        of(16, old[0], one, true, first),
        of(17, old[1], one, false, first),
        of(18, old[2], one, true, first),
        of(17, new[0], two, true, first + 1),
        of(20, now[0], three, true, first + 1),
    ];
    for list in [&mut live, &mut expected] {
        list.sort_unstable_by_key(|live| (live.subpage, live.place));
    }
    assert_eq!(live, expected);
    assert!(expected[0].of(&[1, 2, 3]) == [1, 2, 3]);
    for page in [0, 2] {
        pool.live_pages(page, &mut live).unwrap();
    }
    assert_eq!(live.len(), 5);
}
#[test]
fn what_is_given_up_is_an_error_until_it_is_written_again() {
    let medium = medium();
    let pool = open(&medium, config());
    let places = write(&pool, 20..23, 1).unwrap();
    assert!(!pool.mark_lost(20, places[1]).unwrap() && !pool.mark_lost(40, places[1]).unwrap());
    assert!(pool.mark_lost(21, places[1]).unwrap());
    let located = Layer::locate(&pool, 21).place().unwrap();
    assert!(located.flash_page != places[1] && located.checksum == crc32c(&page(1)[..]));
    let lost = read(&pool, 21).unwrap();
    assert!(lost[..8] == LOST_MAGIC && lost[8..12] == 21u32.to_le_bytes() && crc32c(&lost[..]) != located.checksum);
    assert_eq!((assert_sound(&pool).live, read(&pool, 20), read(&pool, 22)), (3, Some(page(1)), Some(page(1))));
    write(&pool, 21..22, 5).unwrap();
    assert_eq!((read(&pool, 21), assert_sound(&pool).live), (Some(page(5)), 3));
    // Also what only a token sees.
    let token = pool.sync().unwrap();
    let old = Layer::locate(&pool, 22).place().unwrap().flash_page;
    write(&pool, 22..23, 6).unwrap();
    assert!(pool.mark_lost(22, old).unwrap());
    assert_eq!((read(&pool, 22), assert_sound(&pool).live), (Some(page(6)), 4));
    pool.roll_back(token).unwrap();
    assert!(read(&pool, 22).unwrap()[..8] == LOST_MAGIC);
}
/// A pool that has lost something promised can be inspected unchanged, and opened when that is
/// accepted.
#[test]
fn a_loss_is_accepted_on_request_and_shown_by_an_inspection() {
    let medium = medium();
    let pool = open(&medium, config());
    for number in 1..4 {
        write(&pool, 0..1, number).unwrap();
        pool.sync().unwrap();
        while Layer::work(&pool) {}
    }
    drop(pool);
    // The page of the journal with the second token.
    let mut driver = Driver::new(&*medium, 4).unwrap();
    let journal = |page: &PageBuffer| {
        let (header, _, payload) = fulgurite_format::Header::open(page).ok()?;
        (header.kind == fulgurite_format::Kind::Journal && !payload.is_empty()).then_some(header.sequence)
    };
    let mut pages: Vec<(u64, u32)> =
        (24..480).filter_map(|place| Some((journal(&driver.read(place, 0).unwrap())?, place))).collect();
    pages.sort_unstable();
    let place = pages[pages.len() - 2].1;
    driver.write_all(vec![(place, zero_page())]).unwrap();
    drop(driver);
    let refused = Pool::open(medium.clone(), config()).map(|_| ()).unwrap_err();
    let PoolError::Recover(fulgurite_store::RecoverError::Lost(Loss { token: 1, newest: 3, .. })) = refused else {
        panic!("{refused}");
    };
    let (looked, report) = Pool::inspect(medium.clone(), config(), None).unwrap();
    assert_eq!((report.token, report.lost.map(|loss| loss.newest), read(&looked, 0)), (1, Some(3), Some(page(1))));
    drop(looked);
    assert!(Pool::open(medium.clone(), config()).is_err(), "nobody has accepted it");
    let mut accepts = config();
    accepts.accept_loss = true;
    let (pool, report) = Pool::open(medium.clone(), accepts).unwrap();
    assert_eq!((report.token, pool.counters().checkpoints), (1, 1));
    drop(pool);
    let (pool, report) = Pool::open(medium, config()).unwrap();
    assert_eq!((report.lost, report.token, read(&pool, 0)), (None, 1, Some(page(1))));
    assert_sound(&pool);
}
/// The state of a token is read and nothing else; what it finds unreadable is not used again.
#[test]
fn a_view_of_a_token_takes_nothing() {
    let medium = medium();
    let pool = Arc::new(open(&medium, config()));
    let places = write(&pool, 3..5, 1).unwrap();
    let token = pool.sync().unwrap();
    let now = write(&pool, 3..4, 2).unwrap();
    let view = pool.view(token).unwrap();
    assert_eq!((view.token(), Layer::subpages(&view), Layer::backing(&view).is_some()), (token, 160, true));
    let checksum = crc32c(&page(1)[..]);
    let located = [2, 3, 4].map(|subpage| Layer::locate(&view, subpage).place());
    assert_eq!(
        located,
        [None, Some(FlashAddress::whole(places[0], checksum)), Some(FlashAddress::whole(places[1], checksum))]
    );
    assert_eq!(Layer::locate(&*pool, 3).place().map(|place| place.flash_page), Some(now[0]));
    let backing = view.backing().unwrap();
    assert!(backing.may(3, false) && !backing.may(3, true) && !view.work());
    let denied = Err(FlashError::Io(30));
    let written = Written { subpage: 3, place: FlashAddress::whole(places[0], checksum) };
    assert_eq!(
        (Layer::place(&view, &[3], &mut Vec::new()), Layer::written(&view, &mut vec![written])),
        (denied, denied)
    );
    assert_eq!((Layer::begin_flush(&view), Layer::is_flushed(&view, 0)), (Ok(0), Ok(true)));
    assert!(!Layer::not_written(&view, places[0], FlashError::Io(5)) && Layer::describe(&view).contains("token"));
    // What can be asked of the flash is asked of the pool's.
    assert!(Arc::ptr_eq(Layer::medium(&view), Layer::medium(&*pool)));
    Layer::unreadable(&view, places[0], FlashError::Corrupt);
    Layer::unreadable(&*pool, places[1], FlashError::Io(5));
    Layer::unreadable(&*pool, now[0], FlashError::Io(19));
    assert_eq!(pool.info().bad_pages, 0, "a device that fails is no flash page");
    write(&pool, 9..10, 1).unwrap();
    assert_eq!((pool.info().bad_pages, assert_sound(&pool).live), (2, 4));
    assert!(pool.can_roll_back(token).is_ok() && pool.roll_back(0).is_err());
    drop(view);
    assert!(matches!(pool.view(token + 9), Err(PoolError::NoToken { .. })));
}
