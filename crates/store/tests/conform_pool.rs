//! Goal: a pool keeps the contract of a medium: what was written last is read, by any queue,
//! whatever the medium within does to the order; and what was flushed is there when it is opened
//! again. Also: an old token that is read while the live state changes stays what it was, and what
//! may be done with pages is part of the state. Method: random requests over two queues of a pool
//! on media that reorder and fail, compared with a map. Old tokens are read while reclaim moves
//! what they name; permissions are compared with a map that is copied at each token.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{
    Completion, Fault, FaultPlan, FaultyFlash, Flash, FlashError, Layered, MemoryFlash, Op, PartOfFlash, Queue,
    Request, VersionError, Versions, When,
};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, Status, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Permissions, Pool, PoolError, StoreConfig, WriteError};
use fulgurite_sys::{Arena, Backed, Notifier};
use fulgurite_testkit::suite::{SUBPAGES, behaves};
use fulgurite_testkit::{Random, seed};

const POOL: PoolId = PoolId([7; 16]);
const DEPTH: usize = 32;

fn config(durability: Durability) -> StoreConfig {
    let mut config = StoreConfig::default();
    config.durability = durability;
    config.checkpoint_after = 16;
    config.commit_after = 4;
    config
}

fn geometry() -> Geometry {
    Geometry::new(2048, 16, Some(1000)).unwrap()
}

/// A medium like any other, but for its counts: on a medium that reorders, and below what
/// decorates it.
#[test]
fn a_pool_is_a_medium() {
    let seed = seed();
    let plan = FaultPlan { seed, reorder: true, ..FaultPlan::default() };
    let pool = |durability| {
        let medium: Arc<dyn Flash> = Arc::new(FaultyFlash::new(MemoryFlash::new(2048).unwrap(), plan.clone()));
        Pool::format(&medium, Geometry::new(2048, 16, Some(SUBPAGES)).unwrap(), POOL, 0).unwrap();
        let pool = Pool::open(medium, config(durability)).unwrap().0.into_flash();
        // A pool has whole pages of 16.
        PartOfFlash::new(Arc::new(pool), 0, SUBPAGES).unwrap()
    };
    for durability in [Durability::Cache, Durability::Sync] {
        behaves(&pool(durability), seed);
        behaves(&FaultyFlash::new(pool(durability), plan.clone()), seed);
    }
}

/// A queue, its frames, and what is expected of the subpages.
struct User {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    /// By frame: the subpage that it is in use for, and the value that is written or expected.
    busy: Vec<Option<(Op, u32, u64)>>,
}

fn value_of(frames: &Arena, frame: usize) -> u64 {
    let mut page = [0; SUBPAGE_BYTES];
    frames.read(frame * SUBPAGE_BYTES, &mut page);
    let first = u64::from_le_bytes(page[..8].try_into().unwrap());
    let last = u64::from_le_bytes(page[SUBPAGE_BYTES - 8..].try_into().unwrap());
    assert_eq!(first, last, "a torn subpage");
    first
}
fn set_value(frames: &Arena, frame: usize, value: u64) {
    frames.write(frame * SUBPAGE_BYTES, &value.to_le_bytes().repeat(SUBPAGE_BYTES / 8));
}

impl User {
    fn new(flash: &dyn Flash) -> User {
        let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
        User { queue, frames, busy: vec![None; DEPTH] }
    }
    fn submit(&mut self, frame: usize, op: Op, subpage: u32, value: u64) {
        self.busy[frame] = Some((op, subpage, value));
        match op {
            Op::Write => set_value(&self.frames, frame, value),
            // What a read must not leave behind.
            _ => set_value(&self.frames, frame, u64::MAX),
        }
        let (subpage, frame_index) = (SubpageIndex(subpage), FrameIndex(frame as u32));
        self.queue.submit(Request { tag: frame as u64, op, subpage, frame: frame_index }).unwrap();
    }
    fn poll(&mut self) -> Vec<(Op, u32, u64, Completion)> {
        let mut completions = Vec::new();
        self.queue.poll(&mut completions);
        let ended = completions.into_iter().map(|c| {
            let frame = c.tag as usize;
            let (op, subpage, value) = self.busy[frame].take().unwrap();
            if op == Op::Read && c.result.is_ok() {
                assert_eq!(value_of(&self.frames, frame), value, "subpage {subpage}");
            }
            (op, subpage, value, c)
        });
        ended.collect()
    }
    /// One request, to its end.
    fn one(&mut self, op: Op, subpage: u32, value: u64) -> Result<u64, FlashError> {
        self.submit(0, op, subpage, value);
        self.busy[0] = Some((op, subpage, 0));
        self.queue.flush().unwrap();
        loop {
            let mut completions = Vec::new();
            self.queue.poll(&mut completions);
            if let Some(c) = completions.first() {
                self.busy[0] = None;
                return c.result.map(|()| value_of(&self.frames, 0));
            }
            self.queue.wait(Some(Duration::from_millis(1)));
        }
    }
}

fn random_requests(seed: u64, durability: Durability, plan: FaultPlan) {
    println!("seed {seed}");
    let medium: Arc<dyn Flash> = Arc::new(FaultyFlash::new(MemoryFlash::new(geometry().flash_pages()).unwrap(), plan));
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let mut random = Random(seed * 2 + 1);
    let mut expected: HashMap<u32, u64> = HashMap::new();
    for life in 0..3 {
        let (pool, _) = Pool::open(medium.clone(), config(durability)).unwrap();
        let flash = pool.into_flash();
        let subpages = u64::from(flash.subpages());
        let mut users = [User::new(&flash), User::new(&flash)];
        let mut in_use: HashMap<u32, ()> = HashMap::new();
        let mut number = life * 1_000_000 + 1;
        for step in 0..6000 {
            let user = &mut users[random.below(2) as usize];
            if let Some(frame) = user.busy.iter().position(Option::is_none) {
                // Half of the requests go to a tenth of the subpages.
                let range = if random.below(2) == 0 { subpages / 10 } else { subpages };
                let subpage = random.below(range) as u32;
                if in_use.insert(subpage, ()).is_none() {
                    if random.below(3) == 0 {
                        number += 1;
                        user.submit(frame, Op::Write, subpage, number);
                        expected.insert(subpage, number);
                    } else {
                        user.submit(frame, Op::Read, subpage, expected.get(&subpage).copied().unwrap_or(0));
                    }
                }
            }
            if random.below(4) == 0 {
                user.queue.flush().unwrap();
            }
            if step % 8 == 0 {
                // The store's own work is not done at every poll.
                user.queue.wait(Some(Duration::ZERO));
            }
            for (op, subpage, _, completion) in user.poll() {
                assert_eq!(completion.result, Ok(()), "{op:?} of subpage {subpage}");
                in_use.remove(&subpage);
            }
            if step % 1500 == 1499 {
                flash.layer().sync().unwrap();
            }
        }
        for user in &mut users {
            while user.queue.in_flight() > 0 {
                user.queue.wait(Some(Duration::from_millis(1)));
                for (_, subpage, _, completion) in user.poll() {
                    assert_eq!(completion.result, Ok(()));
                    in_use.remove(&subpage);
                }
            }
        }
        let mut checker = User::new(&flash);
        for subpage in 0..subpages as u32 {
            assert_eq!(
                checker.one(Op::Read, subpage, 0),
                Ok(expected.get(&subpage).copied().unwrap_or(0)),
                "{subpage}"
            );
        }
        assert_eq!(checker.one(Op::Flush, 0, 0).map(|_| ()), Ok(()));
        assert_eq!(flash.layer().audit(), Vec::<String>::new());
        // The first life hardly writes more than the flash has room for.
        assert!(life == 0 || flash.layer().counters().reclaimed > 0, "nothing was reclaimed");
        drop((users, checker));
        flash.layer().sync().unwrap();
        flash.layer().checkpoint().unwrap();
    }
}

#[test]
fn what_was_written_is_read_and_survives() {
    for seed in 1..4 {
        random_requests(seed, Durability::Sync, FaultPlan::default());
    }
}
#[test]
fn completions_in_any_order() {
    for seed in 1..4 {
        random_requests(seed, Durability::Sync, FaultPlan { seed, reorder: true, ..FaultPlan::default() });
    }
}
#[test]
fn a_cache_that_was_closed_is_there_and_one_that_crashed_is_empty() {
    random_requests(9, Durability::Cache, FaultPlan { seed: 9, reorder: true, ..FaultPlan::default() });
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let read_back = |write: bool| {
        let flash = Pool::open(medium.clone(), config(Durability::Cache)).unwrap().0.into_flash();
        let mut user = User::new(&flash);
        let found = user.one(Op::Read, 5, 0).unwrap();
        if write {
            user.one(Op::Write, 5, 55).unwrap();
            flash.layer().sync().unwrap();
            user.one(Op::Write, 6, 66).unwrap();
            // What has been written since the sync overwrites freely: the state of the sync is
            // given up, and that is made known.
            flash.layer().checkpoint().unwrap();
        }
        found
    };
    assert_eq!(read_back(true), 0);
    assert_eq!(read_back(false), 0, "it was not synced at the end");
}

/// By the queue of a program, without [`Pool::sync`].
#[test]
fn a_flush_makes_durable_what_was_written_before() {
    for (durability, survives) in [(Durability::Sync, true), (Durability::Cache, false)] {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
        Pool::format(&medium, geometry(), POOL, 0).unwrap();
        let flash = Pool::open(medium.clone(), config(durability)).unwrap().0.into_flash();
        let mut user = User::new(&flash);
        user.one(Op::Write, 5, 55).unwrap();
        user.one(Op::Flush, 0, 0).unwrap();
        let newest = flash.layer().tokens().newest();
        assert_eq!((newest.is_some(), flash.layer().uncommitted()), (survives, if survives { 0 } else { 1 }));
        user.one(Op::Write, 5, 66).unwrap();
        drop((user, flash));
        let (pool, report) = Pool::open(medium, config(durability)).unwrap();
        assert_eq!(report.token, newest.unwrap_or(0));
        let found = User::new(&pool.into_flash()).one(Op::Read, 5, 0);
        assert_eq!(found, Ok(if survives { 55 } else { 0 }), "{durability:?}");
    }
}

/// Named first and waited for afterwards, as runtimes do.
#[test]
fn who_waits_for_a_state_that_was_named_has_it() {
    let (medium, keep, flash) = keeps_tokens(3);
    let mut user = User::new(&flash);
    let mut name = |value| {
        user.one(Op::Write, 9, value).unwrap();
        flash.layer().name_state().unwrap()
    };
    let (first, second) = (name(1), name(2));
    flash.layer().wait_durable(second).unwrap();
    flash.layer().roll_back(first).unwrap();
    let gone = flash.layer().wait_durable(second);
    assert!(matches!(gone, Err(VersionError::NoToken { token, .. }) if token == second), "{gone:?}");
    user.one(Op::Write, 9, 3).unwrap();
    let third = flash.layer().name_state().unwrap();
    flash.layer().wait_durable(third).unwrap();
    // A thread that slept through all that is not notified that its state is durable because a
    // newer one is.
    for gone in [second, second + 1] {
        let told = flash.layer().wait_durable(gone).map_err(|e| e.to_string());
        assert_eq!(told.is_ok(), gone == third, "token {gone}, of {first}, {second}, {third}: {told:?}");
    }
    drop((user, flash));
    let (pool, report) = Pool::open(medium, keep).unwrap();
    assert_eq!(report.token, third);
    assert_eq!(User::new(&pool.into_flash()).one(Op::Read, 9, 0), Ok(3));
}

#[test]
fn damage_is_an_error_and_not_a_value() {
    let memory = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    let medium: Arc<dyn Flash> = memory.clone();
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let flash = Pool::open(medium, config(Durability::Sync)).unwrap().0.into_flash();
    let mut user = User::new(&flash);
    for subpage in 0..8 {
        user.one(Op::Write, subpage, 100 + u64::from(subpage)).unwrap();
    }
    // The medium changes one bit of subpage 3, wherever it is stored.
    let wanted = 103u64.to_le_bytes().repeat(SUBPAGE_BYTES / 8);
    let mut page = vec![0; SUBPAGE_BYTES];
    let place = (0..geometry().flash_pages() as usize).find(|place| {
        memory.storage().read(place * SUBPAGE_BYTES, &mut page);
        page == wanted
    });
    memory.storage().write(place.unwrap() * SUBPAGE_BYTES + 77, &[0xFF]);
    assert_eq!(user.one(Op::Read, 3, 0), Err(FlashError::Corrupt));
    assert_eq!(user.one(Op::Read, 4, 0), Ok(104));
    user.one(Op::Write, 3, 7).unwrap();
    assert_eq!(user.one(Op::Read, 3, 0), Ok(7), "a new version is whole");
}

#[test]
fn a_pool_without_checksums_is_found_empty_later() {
    let mut unchecked = config(Durability::Cache);
    unchecked.unchecked = true;
    let memory = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    let medium: Arc<dyn Flash> = memory.clone();
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let flash = Pool::open(medium.clone(), unchecked).unwrap().0.into_flash();
    let (mut user, mut random) = (User::new(&flash), Random(5));
    let mut expected: HashMap<u32, u64> = HashMap::new();
    for value in 1..6000 {
        let subpage = random.below(1000) as u32;
        user.one(Op::Write, subpage, value).unwrap();
        expected.insert(subpage, value);
    }
    assert!(flash.layer().counters().reclaimed > 0, "nothing was reclaimed");
    assert_eq!(flash.layer().counters().damaged, 0, "what reclaim copies is not compared either");
    for (subpage, value) in &expected {
        assert_eq!(user.one(Op::Read, *subpage, 0), Ok(*value));
    }
    assert_eq!(flash.layer().audit(), Vec::<String>::new());
    // Nothing notices a changed bit: so there are none that are compared.
    let wanted = expected[&7].to_le_bytes().repeat(SUBPAGE_BYTES / 8);
    let mut page = vec![0; SUBPAGE_BYTES];
    for place in 0..geometry().flash_pages() as usize {
        memory.storage().read(place * SUBPAGE_BYTES, &mut page);
        if page == wanted {
            memory.storage().write(place * SUBPAGE_BYTES + 77, &[0xFF]);
        }
    }
    user.submit(0, Op::Read, 7, 0);
    user.busy[0] = None;
    user.queue.flush().unwrap();
    let mut completions = Vec::new();
    while user.queue.poll(&mut completions) == 0 {}
    assert_eq!(completions[0].result, Ok(()));
    assert_eq!(value_of(&user.frames, 0), expected[&7], "its first and last bytes are whole");
    // No token names such a state, so the comparison never reads it.
    assert!(matches!(flash.layer().sync(), Err(PoolError::MustCheck)));
    flash.layer().checkpoint().unwrap();
    drop((user, flash));
    for durability in [Durability::Sync, Durability::Cache] {
        let (pool, report) = Pool::open(medium.clone(), config(durability)).unwrap();
        assert_eq!((report.token, pool.info().live), (0, 0));
        let flash = pool.into_flash();
        assert_eq!(User::new(&flash).one(Op::Read, 7, 0), Ok(0));
    }
    // What has checksums keeps them.
    let flash = Pool::open(medium.clone(), config(Durability::Sync)).unwrap().0.into_flash();
    User::new(&flash).one(Op::Write, 7, 1).unwrap();
    flash.layer().sync().unwrap();
    drop(flash);
    assert!(matches!(Pool::open(medium.clone(), unchecked), Err(PoolError::MustCheck)), "it is not empty");
    unchecked.durability = Durability::Sync;
    assert!(matches!(Pool::open(medium, unchecked), Err(PoolError::MustCheck)), "it would be kept");
}

#[test]
fn a_failed_flush_poisons_the_pool_and_reads_go_on() {
    let faulty = Arc::new(FaultyFlash::new(MemoryFlash::new(geometry().flash_pages()).unwrap(), FaultPlan::default()));
    let medium: Arc<dyn Flash> = faulty.clone();
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let flash = Pool::open(medium.clone(), config(Durability::Sync)).unwrap().0.into_flash();
    let mut user = User::new(&flash);
    user.one(Op::Write, 1, 11).unwrap();
    let token = flash.layer().sync().unwrap();
    user.one(Op::Write, 1, 12).unwrap();
    faulty.set_plan(FaultPlan::rule(Some(Op::Flush), When::Nth(1), Fault::Fails(FlashError::Io(5))));
    assert!(flash.layer().sync().is_err());
    assert!(user.one(Op::Write, 2, 13).is_err(), "no more changes");
    assert!(flash.layer().sync().is_err(), "a failed flush is not tried again");
    assert_eq!(user.one(Op::Read, 1, 0), Ok(12));
    drop((user, flash));
    // What was synced is there when it is opened again. (The wrapper stays poisoned: the memory
    // within is opened.)
    let again = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    let bytes = geometry().flash_pages() as usize * SUBPAGE_BYTES;
    Arena::copy(faulty.inner().storage(), 0, again.storage(), 0, bytes);
    let (pool, report) = Pool::open(again, config(Durability::Sync)).unwrap();
    assert_eq!(report.token, token);
    let flash = pool.into_flash();
    assert_eq!(User::new(&flash).one(Op::Read, 1, 0), Ok(11));
}

#[test]
fn writers_get_an_error_when_there_is_no_space_and_readers_go_on() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let flash = Pool::open(medium, config(Durability::Sync)).unwrap().0.into_flash();
    let mut user = User::new(&flash);
    for subpage in 0..flash.subpages() {
        user.one(Op::Write, subpage, 1).unwrap();
    }
    flash.layer().sync().unwrap();
    // Everything again without a sync: the old versions must stay, so at some point there is no
    // space.
    let full = (0..flash.subpages()).find(|s| user.one(Op::Write, *s, 2).is_err()).expect("space comes to an end");
    assert_eq!(user.one(Op::Write, full, 2), Err(FlashError::NoSpace));
    assert_eq!(user.one(Op::Read, full, 0), Ok(1));
    assert_eq!(user.one(Op::Read, 0, 0), Ok(2));
    assert!(flash.layer().info().uncommitted > 0);
    flash.layer().sync().unwrap();
    user.one(Op::Write, full, 2).expect("a sync makes room");
}

/// A new pool that keeps `count` tokens, the medium that holds it, and how it is opened again.
fn keeps_tokens(count: usize) -> (Arc<dyn Flash>, StoreConfig, Layered<Pool>) {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let mut keep = config(Durability::Sync);
    keep.keep_tokens = count;
    let flash = Pool::open(medium.clone(), keep).unwrap().0.into_flash();
    (medium, keep, flash)
}

#[test]
fn going_back_to_a_token() {
    let (medium, keep, flash) = keeps_tokens(3);
    let mut user = User::new(&flash);
    let tokens: Vec<u64> = (1..=5)
        .map(|value| {
            user.one(Op::Write, 9, value).unwrap();
            flash.layer().sync().unwrap()
        })
        .collect();
    assert!(flash.layer().roll_back(tokens[0]).unwrap_err().to_string().contains(&tokens[4].to_string()));
    flash.layer().roll_back(tokens[2]).unwrap();
    assert_eq!(user.one(Op::Read, 9, 0), Ok(3));
    drop((user, flash));
    let (pool, report) = Pool::open(medium, keep).unwrap();
    assert_eq!(report.token, tokens[2]);
    assert_eq!(User::new(&pool.into_flash()).one(Op::Read, 9, 0), Ok(3));
}

/// The newest stay, and what is pinned; how many went is said, and it is durable.
#[test]
fn tokens_are_dropped_and_counted() {
    let (medium, keep, flash) = keeps_tokens(8);
    let mut user = User::new(&flash);
    let mut sync = |value| {
        user.one(Op::Write, 9, value).unwrap();
        flash.layer().sync().unwrap()
    };
    let tokens: Vec<u64> = (1..=5).map(&mut sync).collect();
    let pool = flash.layer();
    let before: Vec<u64> = Versions::tokens(&**pool);
    assert!(tokens.iter().all(|token| before.contains(token)), "{before:?}");
    pool.pin(tokens[1], true).unwrap();
    let left = [tokens[1], tokens[3], tokens[4]];
    assert_eq!(pool.drop_tokens(2).unwrap(), before.len() - left.len());
    assert_eq!(Versions::tokens(&**pool), left);
    assert_eq!(pool.drop_tokens(2).unwrap(), 0);
    // A request for one that is gone is refused, with the list of those there are, and changes
    // nothing. Also when its data was reclaimed.
    pool.reclaim_one().unwrap();
    let gone = tokens[2];
    let inspected = Pool::inspect(medium.clone(), keep, Some(gone)).map(|_| ());
    let all = [pool.roll_back(gone), pool.can_roll_back(gone), pool.pin(gone, true), pool.pin(gone, false), inspected];
    for refused in all.into_iter().chain([pool.view(gone).map(|_| ())]) {
        let refused = refused.unwrap_err();
        let words = format!("there is no token {gone}; kept are {}, {}, {}", left[0], left[1], left[2]);
        assert_eq!(refused.to_string(), words);
        assert!(matches!(refused, PoolError::NoToken { token, kept } if token == gone && kept == left));
    }
    assert_eq!(Versions::tokens(&**pool), left);
    assert_eq!(user.one(Op::Read, 9, 0), Ok(5));
    // What is pinned does not go away by a roll back.
    let refused = pool.roll_back(tokens[1]).map(|()| Versions::tokens(&**pool));
    assert_eq!(refused.unwrap(), [tokens[1]], "it is the oldest itself");
    let newer = pool.sync().unwrap();
    pool.pin(newer, true).unwrap();
    for refused in [pool.can_roll_back(tokens[1]), pool.roll_back(tokens[1])] {
        let named = |e: &PoolError| matches!(e, PoolError::TokenPinned { token, pinned } if (*token, *pinned) == (tokens[1], newer));
        assert!(refused.as_ref().is_err_and(named), "{refused:?}");
        assert!(refused.unwrap_err().to_string().contains("unpin it first"));
    }
    // To inspect it takes nothing away.
    Pool::inspect(medium.clone(), keep, Some(tokens[1])).unwrap();
    pool.pin(newer, false).unwrap();
    pool.can_roll_back(tokens[1]).unwrap();
    let left = [tokens[1], newer];
    drop((user, flash));
    let (pool, _) = Pool::open(medium, keep).unwrap();
    assert_eq!(Versions::tokens(&pool), left);
}

#[test]
fn threads_use_a_pool_on_a_file_in_turns() {
    let directory = tempfile::tempdir().unwrap();
    let config_of_file = fulgurite_flash::FileConfig::create(directory.path().join("pool"), 16 << 20);
    let medium: Arc<dyn Flash> = Arc::new(fulgurite_flash::FileFlash::open(&config_of_file).unwrap());
    let geometry = Geometry::new(4096, 64, Some(2000)).unwrap();
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let flash = Arc::new(Pool::open(medium.clone(), config(Durability::Sync)).unwrap().0.into_flash());
    for round in 0..4u32 {
        let flash = flash.clone();
        // Each thread has a queue of its own. The store's own requests go by whichever thread is
        // there.
        let thread = std::thread::spawn(move || {
            let mut user = User::new(&*flash);
            for subpage in 0..1000 {
                user.one(Op::Write, subpage, u64::from(round * 10_000 + subpage)).unwrap();
                if subpage % 100 == 99 {
                    flash.layer().sync().unwrap();
                }
            }
        });
        thread.join().unwrap();
    }
    flash.layer().sync().unwrap();
    let mut user = User::new(&*flash);
    for subpage in 0..1000 {
        assert_eq!(user.one(Op::Read, subpage, 0), Ok(u64::from(30_000 + subpage)));
    }
    assert_eq!(flash.layer().audit(), Vec::<String>::new());
}

#[test]
fn an_old_token_is_what_it_was_while_its_data_moves() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    // One token is kept in addition to those that are being read.
    let flash = Pool::open(medium.clone(), config(Durability::Sync)).unwrap().0.into_flash();
    let pool = flash.layer();
    let (mut user, mut random) = (User::new(&flash), Random(17));
    for subpage in 0..300 {
        user.one(Op::Write, subpage, 1000 + u64::from(subpage)).unwrap();
    }
    let older = pool.sync().unwrap();
    pool.pin(older, true).unwrap();
    for subpage in (0..300).step_by(3) {
        user.one(Op::Write, subpage, 2000 + u64::from(subpage)).unwrap();
    }
    let token = pool.sync().unwrap();
    let value = |subpage: u32| u64::from(subpage) + if subpage.is_multiple_of(3) { 2000 } else { 1000 };
    let (old, same) = (pool.view(token).unwrap().into_flash(), pool.view(token).unwrap());
    let pinned = |tokens: &fulgurite_store::Tokens| -> Vec<u64> {
        tokens.as_slice().iter().filter(|t| t.pinned).map(|t| t.token).collect()
    };
    let mut reader = User::new(&old);
    let reclaimed = pool.counters().reclaimed;
    for round in 0..40u64 {
        for _ in 0..60 {
            user.one(Op::Write, random.below(600) as u32, 5000 + round).unwrap();
            let subpage = random.below(300) as u32;
            assert_eq!(reader.one(Op::Read, subpage, 0), Ok(value(subpage)), "round {round}, subpage {subpage}");
        }
        pool.sync().unwrap();
        pool.reclaim_one().unwrap();
    }
    assert!(pool.counters().reclaimed > reclaimed + 20, "its data was moved");
    for subpage in 0..300 {
        assert_eq!(reader.one(Op::Read, subpage, 0), Ok(value(subpage)));
    }
    assert_eq!(reader.one(Op::Read, 700, 0), Ok(0), "it was never written then");
    assert!(reader.one(Op::Write, 1, 1).is_err(), "nobody writes to what was");
    assert_eq!(reader.one(Op::Flush, 0, 0).map(|_| ()), Ok(()));

    // After a kill, the next opening finds nothing pinned but the user's.
    pool.checkpoint().unwrap();
    let found = Pool::inspect(medium.clone(), config(Durability::Sync), None).unwrap().0;
    assert_eq!((pinned(&found.tokens()), pinned(&pool.tokens())), (vec![older], vec![older]));
    assert!(found.tokens().contains(token), "and no more is lost than the reader");

    let refused = pool.roll_back(older);
    assert!(matches!(refused, Err(PoolError::TokenInUse { read, .. }) if read == token), "{refused:?}");
    drop((reader, old));
    assert!(pool.roll_back(older).is_err(), "somebody else still reads it");
    assert!(pool.tokens().contains(token));
    drop(same);
    pool.sync().unwrap();
    assert!(!pool.tokens().contains(token), "nobody wants it any more");
    assert!(matches!(pool.view(token), Err(PoolError::NoToken { .. })));
    // What the user pinned stays pinned, read or not.
    drop(pool.view(older).unwrap());
    pool.sync().unwrap();
    pool.roll_back(older).unwrap();
    assert_eq!(user.one(Op::Read, 3, 0), Ok(1003));
    assert_eq!(pool.audit(), Vec::<String>::new());
}

#[test]
fn what_may_be_done_with_pages_is_part_of_the_state() {
    type Model = BTreeMap<u32, Permissions>;
    for seed in 1..6u64 {
        println!("seed {seed}");
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
        Pool::format(&medium, geometry(), POOL, 0).unwrap();
        let mut keep = config(Durability::Sync);
        keep.keep_tokens = 6;
        let mut random = Random(seed * 77 + 1);
        let mut tokens: Vec<(u64, Model)> = Vec::new();
        for life in 0..6 {
            let flash = Pool::open(medium.clone(), keep).unwrap().0.into_flash();
            let pool = flash.layer();
            // A process has ended: back to the last token, and without what was temporary.
            let mut now = tokens.last().map_or_else(Model::new, |(_, model)| model.clone());
            let ended = |model: &mut Model| model.retain(|_, permissions| permissions.permanent);
            let dropped: Vec<u32> = now.iter().filter(|(_, p)| !p.permanent).map(|(page, _)| *page).collect();
            ended(&mut now);
            assert_eq!(pool.take_dropped_temporary(), dropped);
            let mut first_of_life = tokens.len();
            let pages = pool.geometry().pages();
            let mut user = User::new(&flash);
            for _ in 0..60 {
                let page = random.below(u64::from(pages)) as u32;
                match random.below(8) {
                    0..3 => {
                        let bit = |random: &mut Random| random.below(3) > 0;
                        let permissions = Permissions {
                            read: bit(&mut random),
                            write: bit(&mut random),
                            permanent: bit(&mut random),
                        };
                        let end = (page + 1 + random.below(4) as u32).min(pages);
                        pool.set_permissions(page..end, permissions).unwrap();
                        now.extend((page..end).map(|page| (page, permissions)));
                    }
                    3 => match pool.delete_pages(page..page + 1) {
                        Ok(()) => {
                            now.remove(&page);
                        }
                        Err(error) => {
                            assert!(matches!(error, PoolError::NotPermitted { page: p } if p == page), "{error}");
                            assert!(!now[&page].write);
                        }
                    },
                    4 | 5 => {
                        user.one(Op::Write, 16 * page + 3, 9).unwrap();
                        now.entry(page).or_insert(Permissions::DEFAULT);
                    }
                    6 => tokens.push((pool.sync().unwrap(), now.clone())),
                    _ => {
                        let kept: Vec<usize> =
                            (0..tokens.len()).filter(|i| pool.tokens().contains(tokens[*i].0)).collect();
                        if let Some(&index) = kept.get(random.below(kept.len().max(1) as u64) as usize) {
                            pool.roll_back(tokens[index].0).unwrap();
                            tokens.truncate(index + 1);
                            now.clone_from(&tokens[index].1);
                            if index < first_of_life {
                                first_of_life = index + 1;
                                ended(&mut now);
                            }
                        }
                    }
                }
            }
            for page in 0..pages {
                let model = now.get(&page).copied();
                assert_eq!(pool.permissions(page), model, "life {life}, page {page}");
                let may = (pool.may(16 * page, false), pool.may(16 * page + 15, true));
                assert_eq!(may, model.map_or((true, true), |p| (p.read, p.write)));
            }
            for wrong in [pages..pages + 1, pages - 1..pages + 1, 3..3] {
                let refused = pool.set_permissions(wrong.clone(), Permissions::DEFAULT);
                assert!(matches!(refused, Err(PoolError::NoSuchPages { .. })), "{wrong:?}");
                assert!(matches!(pool.delete_pages(wrong), Err(PoolError::NoSuchPages { .. })));
            }
            for wrong in [pages, u32::MAX] {
                let refused = pool.set_status(wrong, Status::DELETED);
                assert!(matches!(refused, Err(PoolError::NoSuchPages { .. })), "{wrong}");
                let refused = pool.mark_lost(wrong.saturating_mul(16), 0);
                assert!(matches!(refused, Err(PoolError::Flash(FlashError::OutOfRange))), "{wrong}");
            }
            assert_eq!(pool.audit(), Vec::<String>::new());
        }
    }
}

/// Where a program has said how many frames may differ, what pages hold does not take the room that
/// its sync needs.
#[test]
fn pages_change_as_long_as_that_leaves_room_for_a_sync() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    Pool::format(&medium, geometry(), POOL, 0).unwrap();
    let mut bounded = config(Durability::Sync);
    bounded.uncommitted_max = 500;
    // That takes no place on flash: where only these are few, all of them may change.
    let pool = Pool::open(medium.clone(), bounded).unwrap().0;
    pool.leave_for_sync(pool.info().room);
    pool.set_permissions(0..pool.geometry().pages(), Permissions::DEFAULT).unwrap();
    drop(pool);
    // It takes entries of the table.
    bounded.table_limit = geometry().pages() + 17 * 400;
    let pool = Pool::open(medium, bounded).unwrap().0;
    let (room, pages) = (pool.info().room as u32, pool.geometry().pages());
    pool.leave_for_sync(u64::from(room));
    // Each may make 16 subpages old, and there is one page for the caller.
    let most = room / 16 - 1;
    assert!((2..pages).contains(&most), "room for {room} subpages");
    let is_refused = |result| matches!(result, Err(PoolError::Write(WriteError::NoSpace { .. })));
    assert!(is_refused(pool.set_permissions(0..most + 1, Permissions::DEFAULT)));
    assert_eq!(pool.permissions(0), None);
    pool.set_permissions(pages - most..pages, Permissions::DEFAULT).unwrap();
    // There are none of these, which takes nothing.
    pool.delete_pages(0..pages - most).unwrap();
    for page in 0..pages - most {
        pool.set_permissions(page..page + 1, Permissions::DEFAULT).unwrap();
    }
    assert!(is_refused(pool.delete_pages(0..most + 1)));
    assert_eq!(pool.permissions(0), Some(Permissions::DEFAULT));
    assert_eq!(pool.permissions(pages - 1), Some(Permissions::DEFAULT));
    pool.delete_pages(pages - most..pages).unwrap();
    // It is not needed any more.
    pool.leave_for_sync(0);
    pool.set_permissions(0..pages, Permissions::DEFAULT).unwrap();
    assert_eq!(pool.permissions(0), Some(Permissions::DEFAULT));
}

/// Opening a pool for changes repairs a damaged copy of the superblock. Looking at it changes
/// nothing.
#[test]
fn a_damaged_superblock_is_mended_by_who_may_write_and_by_nobody_else() {
    let medium = Arc::new(MemoryFlash::new(geometry().flash_pages()).unwrap());
    let below: Arc<dyn Flash> = medium.clone();
    Pool::format(&below, geometry(), POOL, 0).unwrap();
    let bytes = || {
        let mut all = vec![0; geometry().flash_pages() as usize * SUBPAGE_BYTES];
        medium.storage().read(0, &mut all);
        all
    };
    let whole = bytes();
    let copies: Vec<usize> = (0..geometry().extent_pages as usize)
        .filter(|page| whole[page * SUBPAGE_BYTES..][..SUBPAGE_BYTES].iter().any(|byte| *byte != 0))
        .collect();
    assert_eq!(copies.len(), 2, "two superblocks in the first extent");
    for copy in copies {
        medium.storage().write(copy * SUBPAGE_BYTES + 100, &[0xA5; 8]);
        let damaged = bytes();
        drop(Pool::inspect(below.clone(), config(Durability::Sync), None).unwrap());
        assert!(bytes() == damaged, "looking has changed something");
        drop(Pool::open(below.clone(), config(Durability::Sync)).unwrap());
        assert!(bytes()[copy * SUBPAGE_BYTES..][..SUBPAGE_BYTES] == whole[copy * SUBPAGE_BYTES..][..SUBPAGE_BYTES]);
    }
}

/// A sync is wanted while writers wait for the space that it gives back, and not before or after.
#[test]
fn a_sync_is_wanted_by_writers_that_find_no_place() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(1024).unwrap());
    let most = Geometry::new(1024, 16, None).unwrap().subpages;
    Pool::format(&medium, Geometry::new(1024, 16, Some(most)).unwrap(), POOL, 0).unwrap();
    let flash = Pool::open(medium, config(Durability::Sync)).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    pool.set_syncs_for_writers(Some(0));
    let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let mut queue = flash.open_queue(frames, 1, Arc::new(Notifier::new().unwrap())).unwrap();
    let mut ended = Vec::new();
    let mut wanted = 0;
    for round in 0..3 {
        for subpage in 0..most {
            let request = Request { tag: 0, op: Op::Write, subpage: SubpageIndex(subpage), frame: FrameIndex(0) };
            queue.submit(request).unwrap();
            queue.flush().unwrap();
            while queue.poll(&mut ended) == 0 {
                if pool.wants_sync() {
                    wanted += 1;
                    let token = pool.name_state().unwrap();
                    pool.wait_durable(token).unwrap();
                }
            }
            assert_eq!(ended.pop().unwrap().result, Ok(()), "round {round}, subpage {subpage}");
        }
        assert!(!pool.wants_sync());
        assert_eq!(wanted > 0, round > 0, "all of it fits once, and is kept by its token then");
        let token = pool.name_state().unwrap();
        pool.wait_durable(token).unwrap();
    }
}
