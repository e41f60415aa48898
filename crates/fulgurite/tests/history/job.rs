//! What the jobs do: reads, writes and increments of every kind that the API offers, on keys that
//! they share, each noted with its stamps.
//!
//! ```text
//!  subpage of a group   0 1 2         3          4       5               6 7
//!  holds                words         a counter  a page  a page          two pages, written as one
//!  ordered by           nothing       a latch    latch   its worker's    latch
//!                       but the word             or pin  fibers' turns
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fulgurite::{
    AccessError, Address, Context, Memory,
    latches::{Latch, VersionLatch},
    runtime::{Guest, Runtime},
    views::{Pinned, Ptr, RawMemory, SUBPAGE_BYTES, ViewMut},
};

use super::check::{Kind, NEVER};
use super::record::{Log, Random, Stamps, fill, key_of, value, value_of};

/// Subpages in a group.
pub const GROUP: u64 = 8;
/// Keys in a group: 12 words, a counter, two pages, two halves of a pair.
pub const GROUP_KEYS: u32 = 17;
/// Where the words are on a subpage: neighbours, the middle, the end.
const WORDS: [u64; 4] = [0, 8, 2048, SUBPAGE_BYTES as u64 - 8];
const COUNTER: u32 = 12;
const PAGE: u32 = 13;
const LOCAL: u32 = 14;
const PAIR: u32 = 15;
const COUNTER_AT: u64 = 512;

/// Whether a key is a counter.
pub fn is_counter(key: u32) -> bool {
    key % GROUP_KEYS == COUNTER
}

/// What all jobs of a run share.
pub struct Table {
    pub stamps: Stamps,
    pub groups: u64,
    pub workers: u64,
    /// Whether the medium fails as it was planned to.
    pub tolerates: fn(&AccessError) -> bool,
    /// By group and [`GROUP`]: the latch of a counter, a page, a pair.
    latches: Box<[[VersionLatch; 3]]>,
}

impl Table {
    pub fn new(stamps: Stamps, groups: u64, workers: u64, tolerates: fn(&AccessError) -> bool) -> Table {
        Table { stamps, groups, workers, tolerates, latches: (0..groups).map(|_| Default::default()).collect() }
    }
    pub fn keys(&self) -> u32 {
        self.groups as u32 * GROUP_KEYS
    }
    fn subpage(group: u64, n: u64) -> Address {
        Address::from_linear((group * GROUP + n) * SUBPAGE_BYTES as u64)
    }
}

/// One job.
struct Hand {
    table: Arc<Table>,
    log: Log,
    random: Random,
    id: u64,
    sequence: u64,
    /// It declared a pin.
    pins: bool,
    contents: Vec<u8>,
}

/// The worker: a job, or a thread that is no worker.
pub trait Party: Memory {
    /// The worker whose fibers take turns with this one.
    fn of_worker(&self) -> Option<usize>;
    fn rest(&mut self, time: Duration) -> Result<(), AccessError>;
}
impl Party for Context {
    fn of_worker(&self) -> Option<usize> {
        Some(self.worker())
    }
    fn rest(&mut self, time: Duration) -> Result<(), AccessError> {
        self.sleep(time)
    }
}
impl Party for Guest<'_> {
    fn of_worker(&self) -> Option<usize> {
        None
    }
    fn rest(&mut self, time: Duration) -> Result<(), AccessError> {
        self.sleep(time)
    }
}

/// Does `count` operations in a job.
pub fn work(m: &mut Context, table: &Arc<Table>, (id, seed, pins): (u64, u64, bool), count: u64) -> Log {
    let mut hand = Hand::new(table, id, seed, pins);
    hand.steps(m, 0..count);
    hand.log
}
/// Does `count` operations on this thread, a few each time that it enters.
pub fn work_here(runtime: &Runtime, table: &Arc<Table>, (id, seed, pins): (u64, u64, bool), count: u64) -> Log {
    const TOGETHER: u64 = 4;
    let mut hand = Hand::new(table, id, seed, pins);
    for first in (0..count).step_by(TOGETHER as usize) {
        let entered = runtime.run_here(|m| {
            hand.steps(m, first..count.min(first + TOGETHER));
            Ok::<(), AccessError>(())
        });
        if let Err(error) = entered {
            hand.failed(&error);
        }
    }
    hand.log
}

/// Reads every key of every owner, while nothing is written.
pub fn read_all(m: &mut Context, table: &Arc<Table>, id: u64) -> Log {
    let mut hand = Hand::new(table, id, id, false);
    for key in (0..table.keys()).filter(|key| key % GROUP_KEYS != PAIR + 1) {
        if let Err(error) = hand.read(m, key) {
            hand.log.wrong.push(format!("key {key} cannot be read at rest: {error}"));
        }
    }
    hand.log
}

impl Hand {
    fn new(table: &Arc<Table>, id: u64, seed: u64, pins: bool) -> Hand {
        let contents = vec![0; 2 * SUBPAGE_BYTES];
        let random = Random(seed ^ id << 40);
        Hand { table: table.clone(), log: Log::default(), random, id, sequence: 0, pins, contents }
    }

    /// Does operations with these numbers.
    fn steps<M: Party>(&mut self, m: &mut M, steps: Range<u64>) {
        for step in steps {
            self.step(m, step);
        }
    }
    fn step<M: Party>(&mut self, m: &mut M, step: u64) {
        // What all want at a time moves on, so that all miss on it together.
        let hot = step / 64 + self.random.below(2);
        let group = if self.random.one_in(2) { hot } else { self.random.next() } % self.table.groups;
        let key = group as u32 * GROUP_KEYS + self.any_key();
        let write = self.random.one_in(2);
        let done = if write { self.write(m, key) } else { self.read(m, key) };
        let done = done.and_then(|()| self.rest(m));
        if let Err(error) = done {
            self.failed(&error);
        }
    }

    /// A key of a group, words more often than others.
    fn any_key(&mut self) -> u32 {
        match self.random.below(20) {
            0..12 => self.random.below(12) as u32,
            12..15 => COUNTER,
            15..17 => PAGE,
            17..19 => LOCAL,
            _ => PAIR,
        }
    }

    /// An operation failed: as the medium was planned to, or it should not have.
    fn failed(&mut self, error: &AccessError) {
        self.log.failed += 1;
        if !(self.table.tolerates)(error) {
            self.log.wrong.push(format!("job {}: {error}", self.id));
        }
    }

    /// A value that nobody else writes.
    fn fresh(&mut self, key: u32) -> u64 {
        self.sequence += 1;
        value(key, self.id, self.sequence)
    }

    /// How long to hold on to a view, now and then, with the core: no other user of the frame must
    /// get it meanwhile.
    fn pause(&mut self) -> u32 {
        match self.random.below(100) {
            // As long as a device takes to write.
            0 => self.random.below(2000) as u32,
            1..7 => self.random.below(100) as u32,
            _ => 0,
        }
    }

    /// Notes what was found. `owner` is the key that the values of this place are written to.
    fn found(&mut self, key: u32, owner: u32, value: u64, stamps: (u64, u64)) {
        if key_of(value).is_some_and(|of| of != owner) {
            self.log.wrong.push(format!("key {owner} holds {value:#x}, which was written to key {:?}", key_of(value)));
        }
        self.log.note(key, Kind::Read, value, stamps);
    }

    /// What is between two operations: turns for others, prefetches, walks.
    fn rest<M: Party>(&mut self, m: &mut M) -> Result<(), AccessError> {
        let subpages = self.table.groups * GROUP;
        match self.random.below(600) {
            0..30 => m.yield_now(),
            // The worker may run out of work then, and write ahead of evictions.
            30..33 => m.rest(Duration::from_micros(40 + self.random.below(100))),
            33..45 => {
                let wanted = self.random.below(subpages);
                m.prefetch(Table::subpage(0, wanted));
                Ok(())
            }
            // A walk makes a stream.
            45 => {
                let first = self.random.below(subpages - 6);
                (first..first + 6).try_for_each(|n| RawMemory::view(m, Table::subpage(0, n), 1).map(drop))
            }
            _ => Ok(()),
        }
    }

    fn write<M: Party>(&mut self, m: &mut M, key: u32) -> Result<(), AccessError> {
        let (group, within) = (u64::from(key / GROUP_KEYS), key % GROUP_KEYS);
        match within {
            COUNTER => self.increment(m, key, group),
            PAGE => self.write_page(m, key, group),
            LOCAL => self.write_local(m, key, group),
            PAIR => self.write_pair(m, key, group),
            word => self.write_word(m, key, word_at(group, word)),
        }
    }
    fn read<M: Party>(&mut self, m: &mut M, key: u32) -> Result<(), AccessError> {
        let (group, within) = (u64::from(key / GROUP_KEYS), key % GROUP_KEYS);
        match within {
            COUNTER => self.read_word(m, key, Table::subpage(group, 3).add(COUNTER_AT)),
            PAGE => self.read_page(m, key, group),
            LOCAL => self.read_local(m, key, group),
            PAIR => self.read_pair(m, key, group),
            word => self.read_word(m, key, word_at(group, word)),
        }
    }

    fn read_word<M: Party>(&mut self, m: &mut M, key: u32, at: Address) -> Result<(), AccessError> {
        let pause = self.pause();
        let invoked = self.table.stamps.invoked();
        let view = RawMemory::view(m, at, 8)?;
        spin(pause);
        let value = view.load::<u64>(0);
        let responded = self.table.stamps.responded();
        if is_counter(key) {
            self.log.note(key, Kind::Read, value, (invoked, responded));
        } else {
            self.found(key, key, value, (invoked, responded));
        }
        Ok(())
    }

    fn write_word<M: Party>(&mut self, m: &mut M, key: u32, at: Address) -> Result<(), AccessError> {
        let (pause, value) = (self.pause(), self.fresh(key));
        let invoked = self.table.stamps.invoked();
        let view = RawMemory::view_mut(m, at, 8)?;
        spin(pause);
        view.store(0, value);
        let responded = self.table.stamps.responded();
        self.log.note(key, Kind::Write, value, (invoked, responded));
        Ok(())
    }

    fn increment<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        let table = self.table.clone();
        let at = Ptr::<u64>::new(Table::subpage(group, 3).add(COUNTER_AT));
        let switch = self.random.one_in(4);
        let invoked = table.stamps.invoked();
        let held = table.latches[group as usize][0].lock(m)?;
        let value = Memory::load(m, at)? + 1;
        if switch {
            m.yield_now()?;
        }
        Memory::store(m, at, value)?;
        drop(held);
        let responded = table.stamps.responded();
        self.log.note(key, Kind::Write, value, (invoked, responded));
        Ok(())
    }

    fn read_page<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        let table = self.table.clone();
        let (at, latch) = (Table::subpage(group, 4), &table.latches[group as usize][1]);
        let (how, contents) = (self.random.below(3), &mut self.contents[..SUBPAGE_BYTES]);
        let invoked = table.stamps.invoked();
        let pin = if how == 0 && self.pins { Some(m.pin(at)?) } else { None };
        let held = if how == 1 { Some(latch.lock(m)?) } else { None };
        loop {
            let version = if held.is_none() { latch.read_begin(m)? } else { 0 };
            match &pin {
                Some(pin) => Pinned::view(pin, 0, SUBPAGE_BYTES).copy_to(0, contents),
                None => RawMemory::view(m, at, SUBPAGE_BYTES)?.copy_to(0, contents),
            }
            if held.is_some() || latch.read_validate(version) {
                break;
            }
        }
        drop((held, pin));
        let responded = table.stamps.responded();
        self.found_page(key, key, 0, (invoked, responded));
        Ok(())
    }

    /// Notes the value that a half of what was copied stands for. Returns it.
    fn found_page(&mut self, key: u32, owner: u32, half: usize, stamps: (u64, u64)) -> Option<u64> {
        match value_of(&self.contents[half * SUBPAGE_BYTES..][..SUBPAGE_BYTES]) {
            Ok(value) => {
                self.found(key, owner, value, stamps);
                Some(value)
            }
            Err(torn) => {
                self.log.wrong.push(format!("key {key}, read by job {} at {stamps:?}: {torn}", self.id));
                None
            }
        }
    }

    fn write_page<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        let table = self.table.clone();
        let (at, latch) = (Table::subpage(group, 4), &table.latches[group as usize][1]);
        let (value, pause) = (self.fresh(key), self.pause());
        let (in_section, pinned) = (self.random.one_in(2), self.pins && self.random.one_in(2));
        fill(value, &mut self.contents[..SUBPAGE_BYTES]);
        let invoked = table.stamps.invoked();
        let section = if in_section { Some(m.write_section()?) } else { None };
        let pin = if pinned { Some(m.pin(at)?) } else { None };
        let held = latch.lock(m)?;
        match &pin {
            Some(pin) => copy_in(&Pinned::view_mut(pin, 0, SUBPAGE_BYTES), &self.contents, pause),
            None => copy_in(&RawMemory::view_mut(m, at, SUBPAGE_BYTES)?, &self.contents, pause),
        }
        drop((held, pin, section));
        let responded = table.stamps.responded();
        self.log.note(key, Kind::Write, value, (invoked, responded));
        Ok(())
    }

    /// Whether the fibers of the worker that runs this have a group's page to themselves.
    fn is_local<M: Party>(&self, m: &M, group: u64) -> bool {
        m.of_worker() == Some((group % self.table.workers) as usize)
    }

    /// Without a latch: fibers of one worker take turns only where they wait, and a view is used up
    /// before that. At rest, anybody may.
    fn read_local<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        let at_rest = self.id >= FIRST_AT_REST;
        if !self.is_local(m, group) && !at_rest {
            return self.read_word(m, key - LOCAL, word_at(group, 0));
        }
        let pause = self.pause();
        let invoked = self.table.stamps.invoked();
        let view = RawMemory::view(m, Table::subpage(group, 5), SUBPAGE_BYTES)?;
        spin(pause);
        view.copy_to(0, &mut self.contents[..SUBPAGE_BYTES]);
        let responded = self.table.stamps.responded();
        self.found_page(key, key, 0, (invoked, responded));
        Ok(())
    }

    fn write_local<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        if !self.is_local(m, group) {
            return self.write_word(m, key - LOCAL, word_at(group, 0));
        }
        let (value, pause) = (self.fresh(key), self.pause());
        fill(value, &mut self.contents[..SUBPAGE_BYTES]);
        let invoked = self.table.stamps.invoked();
        let view = RawMemory::view_mut(m, Table::subpage(group, 5), SUBPAGE_BYTES)?;
        copy_in(&view, &self.contents, pause);
        let responded = self.table.stamps.responded();
        self.log.note(key, Kind::Write, value, (invoked, responded));
        Ok(())
    }

    fn read_pair<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        let table = self.table.clone();
        let latch = &table.latches[group as usize][2];
        let invoked = table.stamps.invoked();
        loop {
            let version = latch.read_begin(m)?;
            m.read_bytes(Table::subpage(group, 6), &mut self.contents)?;
            if latch.read_validate(version) {
                break;
            }
        }
        let stamps = (invoked, table.stamps.responded());
        let halves = [self.found_page(key, key, 0, stamps), self.found_page(key + 1, key, 1, stamps)];
        if let [Some(first), Some(second)] = halves
            && first != second
        {
            self.log.unequal.push([first, second]);
        }
        Ok(())
    }

    /// A write over two subpages may fail in the middle: then the first one may have got it, and
    /// the second one has not.
    fn write_pair<M: Party>(&mut self, m: &mut M, key: u32, group: u64) -> Result<(), AccessError> {
        let table = self.table.clone();
        let latch = &table.latches[group as usize][2];
        let value = self.fresh(key);
        let (first, second) = self.contents.split_at_mut(SUBPAGE_BYTES);
        fill(value, first);
        fill(value, second);
        let invoked = table.stamps.invoked();
        let section = m.write_section()?;
        let held = latch.lock(m)?;
        let written = m.write_bytes(Table::subpage(group, 6), &self.contents);
        drop((held, section));
        let responded = table.stamps.responded();
        if written.is_ok() {
            self.log.note(key, Kind::Write, value, (invoked, responded));
            self.log.note(key + 1, Kind::Write, value, (invoked, responded));
        } else {
            self.log.note(key, Kind::Write, value, (invoked, NEVER));
            self.log.unfinished.push(value);
        }
        written
    }
}

/// The first number of a job that reads while nobody writes.
pub const FIRST_AT_REST: u64 = 4000;

fn word_at(group: u64, word: u32) -> Address {
    let (subpage, place) = (word as usize / WORDS.len(), word as usize % WORDS.len());
    Table::subpage(group, subpage as u64).add(WORDS[place])
}

fn spin(times: u32) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// Copies a subpage in, and holds on to the view in the middle.
fn copy_in(view: &ViewMut<'_>, contents: &[u8], pause: u32) {
    let half = SUBPAGE_BYTES / 2;
    view.copy_from(0, &contents[..half]);
    spin(pause);
    view.copy_from(half, &contents[half..SUBPAGE_BYTES]);
}
