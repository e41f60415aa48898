//! What is outside of the machine: the device, the pool on it, and the model. A run is a few lives
//! of a machine; each ends in a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use fulgurite_cache::Planted as CacheBug;
use fulgurite_flash::{Flash, FlashError, Layer, Layered, Op, Queue, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Planted, Pool, PoolError, StoreConfig, Victims};
use fulgurite_sys::{Arena, Backed, Notifier};

use super::disk::{Disk, DiskFlash, Plan, SECTOR};
use super::machine::Machine;
use super::{Random, Trace};

const POOL: PoolId = PoolId(*b"simulated pool..");
/// Subpages that are read at a time when all are.
const READ_AT_ONCE: u32 = 16;

/// With more than one bad flash page in this many there may be no extent left without one, as the
/// journal needs.
const WORN_OUT: u64 = 16;

/// A bug in what drives the caches here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harness {
    /// A sync is over when its token is named, durable or not.
    EarlySync,
}

/// A bug that is planted, if one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    None,
    Store(Planted),
    Cache(CacheBug),
    Driver(Harness),
}
impl Bug {
    pub fn in_cache(self) -> Option<CacheBug> {
        if let Bug::Cache(bug) = self { Some(bug) } else { None }
    }
    fn in_store(self) -> Option<Planted> {
        if let Bug::Store(bug) = self { Some(bug) } else { None }
    }
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Of all that has happened.
    pub trace: Trace,
    pub reads: u64,
    pub writes: u64,
    pub joined: u64,
    pub prefetched: u64,
    pub written_back: u64,
    pub refused_roll_backs: u64,
    pub pinned: u64,
    pub unsealed: u64,
    pub written_ahead: u64,
    pub copied: u64,
    pub syncs: u64,
    pub failed_syncs: u64,
    pub roll_backs: u64,
    pub crashes: u64,
    /// Of these, crashes during recovery.
    pub crashed_recoveries: u64,
    pub in_flight_kept: u64,
    pub errors: u64,
    pub timeouts: u64,
    pub refused_jobs: u64,
    pub worn_out: u64,
    pub views: u64,
    pub reclaimed: u64,
    pub checkpoints: u64,
    pub simulated_ns: u64,
}
impl Report {
    pub const NONE: Report = Report {
        trace: Trace(0),
        reads: 0,
        writes: 0,
        joined: 0,
        prefetched: 0,
        written_back: 0,
        refused_roll_backs: 0,
        pinned: 0,
        unsealed: 0,
        written_ahead: 0,
        copied: 0,
        syncs: 0,
        failed_syncs: 0,
        roll_backs: 0,
        crashes: 0,
        crashed_recoveries: 0,
        in_flight_kept: 0,
        errors: 0,
        timeouts: 0,
        refused_jobs: 0,
        worn_out: 0,
        views: 0,
        reclaimed: 0,
        checkpoints: 0,
        simulated_ns: 0,
    };
    pub fn add(&mut self, other: &Report) {
        self.trace.note(other.trace.0);
        for (sum, one) in [
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.joined, other.joined),
            (&mut self.prefetched, other.prefetched),
            (&mut self.written_back, other.written_back),
            (&mut self.refused_roll_backs, other.refused_roll_backs),
            (&mut self.pinned, other.pinned),
            (&mut self.unsealed, other.unsealed),
            (&mut self.written_ahead, other.written_ahead),
            (&mut self.copied, other.copied),
            (&mut self.syncs, other.syncs),
            (&mut self.failed_syncs, other.failed_syncs),
            (&mut self.roll_backs, other.roll_backs),
            (&mut self.crashes, other.crashes),
            (&mut self.crashed_recoveries, other.crashed_recoveries),
            (&mut self.in_flight_kept, other.in_flight_kept),
            (&mut self.errors, other.errors),
            (&mut self.timeouts, other.timeouts),
            (&mut self.refused_jobs, other.refused_jobs),
            (&mut self.worn_out, other.worn_out),
            (&mut self.views, other.views),
            (&mut self.reclaimed, other.reclaimed),
            (&mut self.checkpoints, other.checkpoints),
            (&mut self.simulated_ns, other.simulated_ns),
        ] {
            *sum += one;
        }
    }
}

/// Contents of all subpages; 0 is what was never written.
pub type Contents = Rc<Vec<u64>>;

pub struct World {
    pub disk: Arc<Disk>,
    medium: Arc<dyn Flash>,
    pub random: Random,
    pub config: StoreConfig,
    pub plan: Plan,
    pub bug: Bug,
    /// Contents now.
    pub now: Vec<u64>,
    /// Contents at each token that was named.
    pub tokens: BTreeMap<u64, Contents>,
    /// The newest one that was said to be durable.
    pub acknowledged: u64,
    /// Tokens that were said to be kept.
    pub pinned: BTreeSet<u64>,
    /// Tokens of which a change of the pin failed.
    pub perhaps_pinned: BTreeSet<u64>,
    number: u64,
    pub report: Report,
    trace: Trace,
}

/// The word of a subpage's content at this index.
pub fn word_of(number: u64, index: usize) -> u64 {
    if number == 0 { 0 } else { number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64) }
}
pub fn fill(frames: &Arena, frame: u32, number: u64) {
    let mut page = [0; SUBPAGE_BYTES];
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(number, i).to_le_bytes());
    }
    frames.write(frame as usize * SUBPAGE_BYTES, &page);
}
/// Whether a frame holds this content, by the first and the last word of each sector: for hits,
/// which are many.
pub fn shows(frames: &Arena, frame: u32, number: u64) -> bool {
    const WORDS: usize = SECTOR / 8;
    (0..SUBPAGE_BYTES / 8).filter(|i| i % WORDS == 0 || i % WORDS == WORDS - 1).all(|i| {
        let mut word = [0; 8];
        frames.read(frame as usize * SUBPAGE_BYTES + i * 8, &mut word);
        word == word_of(number, i).to_le_bytes()
    })
}
/// Whether a frame holds this content, whole.
pub fn holds(frames: &Arena, frame: u32, number: u64) -> bool {
    let mut page = [0; SUBPAGE_BYTES];
    frames.read(frame as usize * SUBPAGE_BYTES, &mut page);
    let words = page.chunks_exact(8).enumerate();
    words.fold(true, |same, (i, word)| same & (word == word_of(number, i).to_le_bytes()))
}

impl World {
    fn new(seed: u64, bug: Bug) -> World {
        let mut random = Random(seed);
        let subpages = 16 * (2 + random.below(4));
        let least = (1..).map(|n| n * 8).find(|pages| Geometry::new(*pages, 8, Some(subpages)).is_ok());
        // From a pool that is full all the time to one that has half as much again.
        let pages = least.expect("some size is enough") * (4 + random.below(3)) / 4;
        let geometry = Geometry::new(pages, 8, Some(subpages)).expect("as large as the least one");
        let mut config = StoreConfig::default();
        config.commit_after = 2 + random.below(4) as usize;
        config.checkpoint_after = 4 + random.below(8);
        config.keep_tokens = 1 + random.below(3) as usize;
        config.victims = if random.one_in(2) { Victims::Greedy } else { Victims::CostBenefit };
        config.durability = if random.one_in(10) { Durability::Cache } else { Durability::Sync };
        // Room for as many requests of its own as one of these pools ever has.
        config.history_bytes = 512 << 10;
        config.planted = bug.in_store();
        let mut plan = Plan::default();
        match random.below(9) {
            0 => (plan.writes, plan.write_error) = (30 + random.below(100), 5),
            1 => (plan.writes, plan.write_error) = (200, 28),
            2 => plan.reads = 20 + random.below(100),
            3 => plan.late = 100,
            4 => plan.flushes = 60,
            5 => plan = Plan { reads: 150, writes: 150, write_error: 5, flushes: 400, late: 400 },
            _ => {}
        }
        // What fails, where a bug shows only then.
        match bug.in_cache() {
            Some(CacheBug::FailedIsDone | CacheBug::FailureUntold) => (plan.writes, plan.write_error) = (20, 28),
            Some(CacheBug::FailedIsRead) => plan.reads = 20,
            Some(CacheBug::AbandonedIsFree) => plan.late = 20,
            _ => {}
        }
        let disk = Disk::new(pages, seed);
        let medium: Arc<dyn Flash> = Arc::new(DiskFlash(disk.clone()));
        Pool::format(&medium, geometry, POOL, 0).expect("nothing fails yet");
        let empty = vec![0; geometry.subpages as usize];
        World {
            disk,
            medium,
            random,
            config,
            plan,
            bug,
            now: empty.clone(),
            tokens: BTreeMap::from([(0, Rc::new(empty))]),
            acknowledged: 0,
            pinned: BTreeSet::new(),
            perhaps_pinned: BTreeSet::new(),
            number: 1,
            report: Report::NONE,
            trace: Trace::default(),
        }
    }
    pub fn keeps(&self) -> bool {
        self.config.durability == Durability::Sync
    }
    pub fn has(&self, bug: Harness) -> bool {
        self.bug == Bug::Driver(bug)
    }
    pub fn note(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.trace.note(*word));
    }
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
    /// An error that an access may end with.
    pub fn allow_access(&self, error: FlashError) {
        let Plan { reads, writes, write_error, flushes, late } = self.plan;
        let allowed = match error {
            FlashError::Io(5) => reads > 0 || writes > 0 && write_error == 5 || flushes > 0,
            FlashError::Io(errno) => writes > 0 && errno == write_error,
            FlashError::Poisoned => flushes > 0,
            FlashError::TimedOut => late > 0,
            FlashError::NoSpace => true,
            _ => false,
        };
        assert!(allowed || self.disk.is_dead(), "an access ends with: {error}");
    }
    /// An error that a write, or a change of the pool, may end with.
    pub fn allow(&mut self, what: &str, error: FlashError) {
        self.report.errors += 1;
        let allowed = match error {
            FlashError::Io(errno) => self.plan.writes > 0 && errno == self.plan.write_error || self.plan.flushes > 0,
            FlashError::Poisoned => self.plan.flushes > 0,
            FlashError::TimedOut => self.plan.late > 0,
            FlashError::NoSpace => true,
            _ => false,
        };
        assert!(allowed || self.disk.is_dead(), "{what}: {error}");
    }

    /// Opens the pool, also when the power fails meanwhile, and reads all that is in it. None when
    /// too many flash pages have failed to write anything more; what is in it is there
    /// nevertheless.
    fn open(&mut self) -> Option<Arc<Pool>> {
        for attempt in 0.. {
            assert!(attempt < 20, "the pool cannot be opened");
            // In the end it must succeed.
            let may_fail = attempt < 6;
            let faulty = may_fail && self.random.one_in(4);
            self.disk.set_plan(if faulty { self.plan } else { Plan::default() });
            if may_fail && self.random.one_in(3) {
                let requests = self.random.below(60);
                self.disk.dies_after(requests);
            }
            match Pool::open_with_clock(self.medium.clone(), self.config, self.disk.clock()) {
                Ok((pool, report)) => {
                    self.recovered(report.token, &pool);
                    let pool = Arc::new(pool);
                    if !self.disk.is_dead() && self.read_all(&pool) {
                        self.disk.lives_on();
                        return Some(pool);
                    }
                    self.disk.die();
                }
                Err(PoolError::Flash(_) | PoolError::Recover(_) | PoolError::Write(_))
                    if self.disk.is_dead() || faulty => {}
                Err(PoolError::Flash(FlashError::NoSpace)) if self.recover_worn_out() => return None,
                Err(error) => panic!("the pool cannot be opened: {error}"),
            }
            self.report.crashed_recoveries += 1;
            self.restart();
        }
        unreachable!()
    }
    fn recover_worn_out(&mut self) -> bool {
        let looked_at = Pool::inspect(self.medium.clone(), self.config, None);
        let (pool, report) = looked_at.expect("a pool that cannot be written can be read");
        self.recovered(report.token, &pool);
        let (info, geometry) = (pool.info(), pool.geometry());
        assert!(self.read_all(&Arc::new(pool)));
        info.bad_pages as u64 * WORN_OUT > u64::from(geometry.flash_pages())
    }
    /// The process or the power has failed, and is back.
    fn restart(&mut self) {
        if self.random.one_in(3) {
            self.disk.process_died();
        } else {
            self.disk.power_cycle();
        }
    }
    fn recovered(&mut self, token: u64, pool: &Pool) {
        self.note(&[token]);
        assert!(token >= self.acknowledged, "token {} was promised, {token} came back", self.acknowledged);
        let contents = self.tokens.get(&token).unwrap_or_else(|| panic!("token {token} was never named"));
        self.now.clone_from(contents);
        self.report.in_flight_kept += u64::from(token > self.acknowledged);
        self.acknowledged = token;
        self.tokens.retain(|t, _| *t <= token);
        self.pinned.retain(|t| *t <= token);
        let kept = pool.tokens();
        for token in &self.pinned {
            assert!(kept.contains(*token), "token {token} was pinned, and is gone: {kept:?}");
        }
        for token in kept.as_slice() {
            assert!(self.tokens.contains_key(&token.token), "token {} is kept and was never named", token.token);
        }
    }
    /// Compares all subpages. False when the device fails meanwhile.
    pub fn read_all(&mut self, pool: &Arc<Pool>) -> bool {
        let wrong = pool.audit();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let mut reader = Reader::new(self, &Layered::new(pool.clone()));
        let contents = Rc::new(self.now.clone());
        let all: Vec<u32> = (0..self.now.len() as u32).collect();
        let read = all.chunks(READ_AT_ONCE as usize).all(|some| reader.read(self, some, &contents));
        // A queue that is dropped does what is left to do, for which time must pass.
        self.settle(pool);
        read
    }
    /// Goes on until the pool has nothing more to do.
    pub fn settle(&mut self, pool: &Arc<Pool>) {
        let mut turns = 0;
        while pool.work() {
            let now = self.disk.now_ns();
            self.disk.advance(now + 1_000_000);
            turns += 1;
            assert!(turns < 1_000_000, "the pool never comes to rest: {:?}", pool.info());
        }
    }
}

/// Reads subpages past the frames of the machine.
pub struct Reader {
    queue: Box<dyn Queue>,
    number: usize,
    frames: Arc<Arena>,
}

impl Reader {
    pub fn new(world: &World, flash: &dyn Flash) -> Reader {
        let frames = Arena::anonymous(READ_AT_ONCE as usize * SUBPAGE_BYTES, Backed::BasePages);
        let frames = Arc::new(frames.expect("there is memory"));
        let number = world.disk.next_queue();
        let wake = Arc::new(Notifier::new().expect("there are file descriptors"));
        let queue = flash.open_queue(frames.clone(), READ_AT_ONCE as usize, wake).expect("the device has queues");
        Reader { queue, number, frames }
    }
    /// Compares some subpages with what must be there. False when the device fails meanwhile.
    pub fn read(&mut self, world: &mut World, subpages: &[u32], contents: &Contents) -> bool {
        let mut left = subpages.to_vec();
        for attempt in 0.. {
            assert!(attempt < 50, "subpages {left:?} cannot be read");
            for (frame, subpage) in left.iter().enumerate() {
                let request = Request {
                    tag: frame as u64,
                    op: Op::Read,
                    subpage: SubpageIndex(*subpage),
                    frame: FrameIndex(frame as u32),
                };
                self.queue.submit(request).expect("as many as the queue is deep");
            }
            let mut ended = Vec::new();
            while ended.len() < left.len() {
                self.queue.wait(None);
                self.queue.poll(&mut ended);
            }
            let mut again = Vec::new();
            for completion in ended {
                let subpage = left[completion.tag as usize];
                match completion.result {
                    Ok(()) => {
                        let number = contents[subpage as usize];
                        world.note(&[subpage.into(), number]);
                        let right = holds(&self.frames, completion.tag as u32, number);
                        assert!(right, "subpage {subpage} is not what it must be, {number}");
                    }
                    Err(_) if world.disk.is_dead() => return false,
                    Err(error) => {
                        let explained = world.disk.explains_failed_read(self.number);
                        assert!(explained, "subpage {subpage} cannot be read: {error}");
                        again.push(subpage);
                    }
                }
            }
            left = again;
            if left.is_empty() {
                return true;
            }
        }
        unreachable!()
    }
}

/// Runs a seed, with a bug or none.
pub fn simulate(seed: u64, bug: Bug) -> Report {
    let mut world = World::new(seed, bug);
    let begun_ns = world.disk.now_ns();
    let ended = live(&mut world);
    world.report.worn_out += u64::from(ended.is_none());
    world.report.simulated_ns = world.disk.now_ns() - begun_ns;
    let (disk, own) = (world.disk.trace(), world.trace.0);
    world.report.trace = disk;
    world.report.trace.note(own);
    world.report
}
/// A few lives. None when the device is worn out before their end.
fn live(world: &mut World) -> Option<()> {
    for _ in 0..2 + world.random.below(3) {
        let pool = world.open()?;
        world.disk.set_plan(world.plan);
        let requests = world.random.below(700);
        world.disk.dies_after(requests);
        let mut machine = Machine::new(world, pool);
        machine.run(world);
        world.disk.die();
        machine.lose(world);
        world.report.crashes += 1;
        world.restart();
    }
    // At last nothing fails any more, and all comes to rest.
    world.plan = Plan::default();
    let pool = world.open()?;
    let mut machine = Machine::new(world, pool);
    machine.run(world);
    machine.come_to_rest(world);
    world.disk.die();
    machine.lose(world);
    world.disk.power_cycle();
    world.open().map(drop)
}
