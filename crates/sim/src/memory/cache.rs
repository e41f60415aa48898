//! DRAM as a cache of flash pages: tags next to the row, a frontside and a backside controller, and
//! the miss status row (AstriFlash section IV-B).
//!
//! A set is a row. The frontside opens it, reads its tag column and, on a hit, the data. On a miss
//! it hands the page to the backside and answers the core. The backside looks up the page in the
//! miss status row, which is a DRAM row of its own with sets of one column. A page that is there is
//! on its way already. Otherwise it makes an entry, asks the flash, and copies a victim of the set
//! to the evict buffer. When the page arrives, it is written into the row with its tag, and the
//! entry is removed.
//!
//! A victim that was written to stays in the evict buffer until the flash has it. A miss that
//! finds the buffer full waits before flash is asked, as one that finds no entry. Misses wait for
//! the backside in its queue. While that is full, the frontside stands still.
//!
//! Invariants ([`DramCache::check`]): a page is in one way at most. Entries of the miss status row
//! are of pages that are on their way, each once. A way that waits for a page is no victim.

use std::collections::VecDeque;

use crate::memory::dram::{Banks, DramTiming};
use crate::planted::Planted;
use crate::time::Time;

const NONE: u32 = u32::MAX;
/// Bytes of a tag, of an entry of the miss status row, and of a column.
const TAG: u64 = 8;
const COLUMN: u64 = 64;
/// The row beyond all sets, which holds the miss status entries.
const STATUS_ROW: u32 = u32::MAX / 2;

#[derive(Clone, Copy, Debug)]
struct Way {
    page: u32,
    /// When it was last touched: the order of touches.
    touched: u32,
    dirty: bool,
    /// Its page has not arrived.
    coming: bool,
}

/// What was evicted to make place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// The page. None: the way was empty.
    pub page: Option<u32>,
    /// It was written to.
    pub dirty: bool,
}

/// Which pages are where: sets of ways, least recently used first.
#[derive(Clone, Debug)]
pub struct Tags {
    ways: Vec<Way>,
    of_set: usize,
    sets: u32,
    clock: u32,
    planted: Planted,
}

impl Tags {
    /// Empty ones.
    pub fn new(sets: u32, ways: u32) -> Tags {
        let empty = Way { page: NONE, touched: 0, dirty: false, coming: false };
        Tags {
            ways: vec![empty; sets as usize * ways as usize],
            of_set: ways as usize,
            sets,
            clock: 0,
            planted: Planted::None,
        }
    }
    /// The set of a page.
    pub fn set_of(&self, page: u32) -> u32 {
        page % self.sets
    }
    fn set(&mut self, page: u32) -> &mut [Way] {
        let first = self.set_of(page) as usize * self.of_set;
        &mut self.ways[first..first + self.of_set]
    }
    /// Touches a page that is there.
    pub fn touch(&mut self, page: u32, writes: bool) -> bool {
        self.clock += 1;
        let clock = self.clock;
        match self.set(page).iter_mut().find(|way| way.page == page && !way.coming) {
            Some(way) => {
                (way.touched, way.dirty) = (clock, way.dirty | writes);
                true
            }
            None => false,
        }
    }
    /// A page that is there was written to, in a cache above.
    pub fn soil(&mut self, page: u32) {
        if let Some(way) = self.set(page).iter_mut().find(|way| way.page == page && !way.coming) {
            way.dirty = true;
        }
    }
    /// Gives a way to a page that is coming, and returns what it held. None when all ways of the
    /// set wait for their pages.
    pub fn replace(&mut self, page: u32) -> Option<Replaced> {
        let (clock, wrong) = (self.clock, self.planted == Planted::WrongVictim);
        let there = self.set(page).iter_mut().filter(|way| !way.coming);
        let victim = there.min_by_key(|way| if wrong { u32::MAX - way.touched } else { way.touched })?;
        let replaced = Replaced { page: (victim.page != NONE).then_some(victim.page), dirty: victim.dirty };
        *victim = Way { page, touched: clock, dirty: false, coming: true };
        Some(replaced)
    }
    /// Whether a page would get a way that holds nothing.
    fn has_empty(&self, page: u32) -> bool {
        let first = self.set_of(page) as usize * self.of_set;
        self.ways[first..first + self.of_set].iter().any(|way| way.page == NONE)
    }
    /// A page that was coming is there.
    pub fn arrived(&mut self, page: u32) {
        self.clock += 1;
        let clock = self.clock;
        let way = self.set(page).iter_mut().find(|way| way.page == page && way.coming);
        let way = way.expect("it has a way");
        (way.coming, way.touched) = (false, clock);
    }
    /// Puts pages in, as if they had been touched in this order.
    pub fn fill(&mut self, pages: impl Iterator<Item = u32>) {
        for page in pages {
            if !self.touch(page, false) && self.replace(page).is_some() {
                self.arrived(page);
            }
        }
    }
    fn check(&self) {
        for set in self.ways.chunks_exact(self.of_set) {
            for (at, way) in set.iter().enumerate() {
                let again = set[..at].iter().any(|other| other.page == way.page && way.page != NONE);
                assert!(!again, "page {} is in two ways of its set", way.page);
            }
        }
    }
}

/// The parts of a controller's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheShape {
    /// Rows, each a set.
    pub sets: u32,
    /// Pages of a row.
    pub ways: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Entries of the miss status row.
    pub status_entries: u32,
    /// Banks.
    pub banks: u32,
    /// The frontside's DRAM.
    pub timing: DramTiming,
    /// A command of the backside.
    pub backside_command: Time,
    /// Misses that wait for the backside before the frontside stalls.
    pub queue: u32,
    /// Pages of the evict buffer.
    pub evict_pages: u32,
}

/// What the frontside found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookUp {
    /// The data leaves the controller then.
    Hit(Time),
    /// The miss signal leaves it then.
    Miss(Time),
}

/// What the controllers have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Accesses that found their page.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
    /// Of these, those whose page was on its way already.
    pub duplicates: u64,
    /// Times that the backside waited for an entry or a way.
    pub full: u64,
    /// Pages that were evicted and had been written to.
    pub dirty: u64,
    /// Misses that found the backside's queue full, so that the frontside stalled.
    pub stalls: u64,
    /// Times that a miss waited for the evict buffer.
    pub evict_waits: u64,
}

/// One controller's cache.
#[derive(Clone, Debug)]
pub struct DramCache {
    shape: CacheShape,
    tags: Tags,
    banks: Banks,
    /// Pages on their way, by set of the miss status row.
    status: Vec<Vec<u32>>,
    /// Misses that found no entry or no way, in their order.
    waiting: Vec<u32>,
    /// Those that found the evict buffer full.
    crowded: Vec<u32>,
    backside_free: Time,
    /// From when on the frontside takes accesses.
    frontside_free: Time,
    /// When the backside takes each miss of its queue.
    queue: VecDeque<Time>,
    /// Victims in the evict buffer that the flash does not have yet.
    buffered: u32,
    counters: CacheCounters,
    planted: Planted,
}

impl DramCache {
    /// An empty one.
    pub fn new(shape: CacheShape) -> DramCache {
        let of_set = (COLUMN / TAG) as u32;
        DramCache {
            tags: Tags::new(shape.sets, shape.ways),
            banks: Banks::new(shape.timing, shape.banks),
            status: vec![Vec::new(); shape.status_entries.div_ceil(of_set).max(1) as usize],
            waiting: Vec::new(),
            crowded: Vec::new(),
            backside_free: Time::ZERO,
            frontside_free: Time::ZERO,
            queue: VecDeque::new(),
            buffered: 0,
            counters: CacheCounters::default(),
            shape,
            planted: Planted::None,
        }
    }
    /// Has a bug, for the tests of the suite.
    pub fn plant(&mut self, planted: Planted) {
        (self.planted, self.banks.planted, self.tags.planted) = (planted, planted, planted);
    }
    /// Which pages are where.
    pub fn tags(&mut self) -> &mut Tags {
        &mut self.tags
    }
    /// What the controllers have done.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }
    /// Bytes of a set's tags: whole columns.
    fn tag_time(&self) -> Time {
        if self.planted == Planted::FreeTags {
            return Time::ZERO;
        }
        let bytes = (u64::from(self.shape.ways) * TAG).next_multiple_of(COLUMN);
        self.shape.timing.columns(bytes)
    }
    /// The frontside looks for a block of a page. `page` is the controller's own number.
    pub fn look_up(&mut self, now: Time, page: u32, writes: bool) -> LookUp {
        let (tag, data) = (self.tag_time(), self.shape.timing.columns(COLUMN));
        let (now, row) = (now.max(self.frontside_free), self.tags.set_of(page));
        if self.tags.touch(page, writes) {
            self.counters.hits += 1;
            return LookUp::Hit(self.banks.open(now, row, tag + data) + tag + data);
        }
        self.counters.misses += 1;
        // To the backside, and to the core.
        let signalled = self.banks.open(now, row, tag) + tag + self.shape.timing.command * 2;
        LookUp::Miss(self.accepted(signalled))
    }
    /// When the backside's queue takes a miss. Until then the frontside stands still.
    fn accepted(&mut self, at: Time) -> Time {
        while self.queue.front().is_some_and(|taken| *taken <= at) {
            self.queue.pop_front();
        }
        let Some(over) = self.queue.len().checked_sub(self.shape.queue as usize) else { return at };
        self.counters.stalls += 1;
        self.frontside_free = self.queue[over];
        self.frontside_free
    }
    /// A block of the flat part: a row without tags.
    pub fn flat(&mut self, now: Time, row: u32) -> Time {
        let data = self.shape.timing.columns(COLUMN);
        self.banks.open(now.max(self.frontside_free), row, data) + data
    }
    /// The backside handles a miss. Returns when flash is asked for the page, and what is evicted.
    /// None: the page is on its way, or the miss waits for an entry, a way or the evict buffer.
    pub fn miss(&mut self, now: Time, page: u32) -> Option<(Time, Replaced)> {
        let at = self.lookup_status(now);
        let set = page as usize % self.status.len();
        if self.status[set].contains(&page) {
            self.counters.duplicates += 1;
            return None;
        }
        // It came while the signal was under way.
        if self.tags.touch(page, false) {
            return None;
        }
        let room = self.status[set].len() < (COLUMN / TAG) as usize;
        let buffer = self.buffered < self.shape.evict_pages || self.tags.has_empty(page);
        match if room && buffer { self.tags.replace(page) } else { None } {
            Some(replaced) => {
                self.status[set].push(page);
                self.counters.dirty += u64::from(replaced.dirty);
                self.buffered += u32::from(replaced.dirty);
                // The entry, the request to the flash, and the copy of the victim to the buffer.
                let asked = at + self.shape.backside_command * 2;
                self.backside_free = asked;
                if replaced.page.is_some() {
                    let copy = self.shape.timing.columns(self.shape.page_bytes);
                    self.banks.open(asked, self.tags.set_of(page), copy);
                }
                Some((asked, replaced))
            }
            None => {
                let (waits, waiting) = if room && !buffer {
                    (&mut self.counters.evict_waits, &mut self.crowded)
                } else {
                    (&mut self.counters.full, &mut self.waiting)
                };
                *waits += 1;
                if !waiting.contains(&page) {
                    waiting.push(page);
                }
                None
            }
        }
    }
    /// A command, and the column of the miss status row.
    fn lookup_status(&mut self, now: Time) -> Time {
        let taken = now.max(self.backside_free);
        self.queue.push_back(taken);
        let begin = taken + self.shape.backside_command;
        let column = self.shape.timing.columns(COLUMN);
        let opened = match self.planted {
            Planted::OneRowMiss => begin,
            _ => self.banks.open(begin, STATUS_ROW, column),
        };
        let at = opened + column;
        self.backside_free = at;
        at
    }
    /// A page has arrived from flash. Returns when it is in its row. `retry` gets the misses that
    /// waited, which come again.
    pub fn arrive(&mut self, now: Time, page: u32, retry: &mut Vec<u32>) -> Time {
        let begin = now.max(self.backside_free) + self.shape.backside_command;
        let copy = self.shape.timing.columns(self.shape.page_bytes) + self.shape.timing.columns(TAG);
        let there = self.banks.open(begin, self.tags.set_of(page), copy) + copy;
        self.tags.arrived(page);
        let set = page as usize % self.status.len();
        self.status[set].retain(|other| *other != page);
        self.backside_free = begin;
        retry.append(&mut self.waiting);
        there
    }
    /// The flash has a victim that had been written to. `retry` gets the misses that waited for
    /// the evict buffer, which come again.
    ///
    /// # Panics
    /// If there is none.
    pub fn written(&mut self, retry: &mut Vec<u32>) {
        self.buffered = self.buffered.checked_sub(1).expect("a victim is in the evict buffer");
        retry.append(&mut self.crowded);
    }
    /// Asserts the invariants. Takes time in proportion to the cache.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.tags.check();
        assert!(self.buffered <= self.shape.evict_pages, "the evict buffer has too many pages");
        let mut coming: Vec<u32> = self.tags.ways.iter().filter(|way| way.coming).map(|way| way.page).collect();
        let mut entries: Vec<u32> = self.status.iter().flatten().copied().collect();
        coming.sort_unstable();
        entries.sort_unstable();
        assert_eq!(coming, entries, "entries are of the pages that are coming");
        assert!(self.status.iter().all(|set| set.len() <= (COLUMN / TAG) as usize), "a set has too many entries");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AstriFlash's cycles, at 2 GHz.
    fn shape() -> CacheShape {
        let cycles = |cycles: u64| Time(500 * cycles);
        let timing = DramTiming {
            command: cycles(1),
            open: cycles(55),
            close: Time::ZERO,
            column: cycles(3),
            refresh_every: Time::ZERO,
            refresh: Time::ZERO,
        };
        CacheShape {
            sets: 8,
            ways: 4,
            page_bytes: 4096,
            status_entries: 16,
            banks: 4,
            timing,
            backside_command: cycles(3),
            queue: 16,
            evict_pages: 2,
        }
    }
    fn missed(cache: &mut DramCache, now: u64, page: u32) -> Option<Replaced> {
        let LookUp::Miss(at) = cache.look_up(Time::ns(now), page, false) else { panic!("{page} is there") };
        cache.miss(at, page).map(|(_, replaced)| replaced)
    }

    #[test]
    fn a_hit_takes_104_cycles() {
        let mut cache = DramCache::new(shape());
        cache.tags().fill([3].into_iter());
        assert_eq!(cache.look_up(Time::us(1), 3, false), LookUp::Hit(Time::us(1) + Time(500 * 104)));
        cache.plant(Planted::FreeTags);
        assert_eq!(cache.look_up(Time::us(3), 4, false), LookUp::Miss(Time::us(3) + Time(500 * (1 + 55 + 2))));
    }
    #[test]
    fn a_miss_opens_two_rows() {
        // From the access to the request to the flash.
        let asked = |planted| {
            let mut cache = DramCache::new(shape());
            cache.plant(planted);
            let LookUp::Miss(at) = cache.look_up(Time::us(1), 5, false) else { panic!("it is there") };
            let (asked, _) = cache.miss(at, 5).unwrap();
            asked - Time::us(1)
        };
        // The set's row: command, opening, tags, two commands. The status row: a command of the
        // backside, command, opening, column, two commands of the backside.
        let (set, status) = (1 + 55 + 24 + 2, 3 + 1 + 55 + 24 + 2 * 3);
        assert_eq!(asked(Planted::None), Time(500 * (set + status)));
        assert_eq!(asked(Planted::OneRowMiss), Time(500 * (set + 3 + 24 + 2 * 3)));
    }
    #[test]
    fn misses_on_one_page_ask_once() {
        let mut cache = DramCache::new(shape());
        assert_eq!(missed(&mut cache, 0, 5), Some(Replaced { page: None, dirty: false }));
        assert_eq!(missed(&mut cache, 100, 5), None);
        assert_eq!(cache.counters().duplicates, 1);
        cache.check();
        let mut retry = Vec::new();
        let there = cache.arrive(Time::us(50), 5, &mut retry);
        assert!(there > Time::us(50) + Time(500 * 3 * 512) && retry.is_empty());
        assert!(matches!(cache.look_up(there, 5, true), LookUp::Hit(_)));
        cache.check();
    }
    #[test]
    fn a_set_whose_ways_all_wait_waits() {
        let mut cache = DramCache::new(shape());
        for page in [0, 8, 16, 24] {
            assert!(missed(&mut cache, 0, page).is_some());
        }
        // All four ways of the set are coming.
        assert_eq!(missed(&mut cache, 0, 32), None);
        assert_eq!(cache.counters().full, 1);
        cache.check();
        let mut retry = Vec::new();
        cache.arrive(Time::us(50), 8, &mut retry);
        assert_eq!(retry, [32]);
        assert_eq!(cache.miss(Time::us(51), 32).map(|(_, replaced)| replaced.page), Some(Some(8)));
        cache.check();
    }
    #[test]
    fn a_full_queue_stalls_the_frontside() {
        let with = |queue| {
            let mut cache = DramCache::new(CacheShape { queue, ..shape() });
            cache.tags().fill([2].into_iter());
            // Of other banks than the hit and the status row. Each takes the backside for longer
            // than the frontside.
            for page in [0, 1, 4] {
                let LookUp::Miss(at) = cache.look_up(Time::us(1), page, false) else { panic!("{page} is there") };
                cache.miss(at, page);
            }
            let LookUp::Hit(at) = cache.look_up(Time::us(1), 2, false) else { panic!("it is not there") };
            (cache.counters().stalls, at)
        };
        let (none, beside) = with(16);
        assert_eq!((none, beside), (0, Time::us(1) + Time(500 * 104)));
        let (stalls, behind) = with(1);
        assert!(stalls == 1 && behind > beside, "{stalls} stalls, {behind}");
    }
    #[test]
    fn a_full_evict_buffer_holds_misses_back() {
        let mut cache = DramCache::new(shape());
        cache.tags().fill([0, 8, 16, 24, 1].into_iter());
        [0, 8, 16].into_iter().for_each(|page| _ = cache.look_up(Time::ns(1), page, true));
        // Two victims with changes fill it. A way that holds nothing needs no room there.
        for (at, page, victim) in [(10_000, 32, Some(24)), (20_000, 40, Some(0)), (30_000, 48, Some(8))] {
            assert_eq!(missed(&mut cache, at, page).map(|replaced| replaced.page), Some(victim));
        }
        assert_eq!(missed(&mut cache, 40_000, 56), None);
        assert!(missed(&mut cache, 50_000, 9).is_some());
        assert_eq!((cache.counters().evict_waits, cache.counters().full), (1, 0));
        cache.check();
        let mut retry = Vec::new();
        cache.written(&mut retry);
        assert_eq!(retry, [56]);
        assert_eq!(cache.miss(Time::us(200), 56).map(|(_, replaced)| replaced.page), Some(Some(16)));
        cache.check();
    }
    #[test]
    fn the_least_recently_used_is_evicted_with_its_dirt() {
        let mut cache = DramCache::new(shape());
        cache.tags().fill([0, 8, 16, 24].into_iter());
        assert!(matches!(cache.look_up(Time::ns(1), 0, true), LookUp::Hit(_)));
        assert_eq!(missed(&mut cache, 2, 32), Some(Replaced { page: Some(8), dirty: false }));
        for page in [16, 24] {
            cache.look_up(Time::ns(3), page, false);
        }
        assert_eq!(missed(&mut cache, 4, 40), Some(Replaced { page: Some(0), dirty: true }));
        assert_eq!(cache.counters().dirty, 1);
        let mut wrong = DramCache::new(shape());
        wrong.plant(Planted::WrongVictim);
        wrong.tags().fill([0].into_iter());
        [8, 16, 24].into_iter().for_each(|page| _ = missed(&mut wrong, 1, page));
        [8, 16, 24].into_iter().for_each(|page| _ = wrong.arrive(Time::us(50), page, &mut Vec::new()));
        let victim = missed(&mut wrong, 100_000, 32).and_then(|replaced| replaced.page);
        assert_eq!(victim, Some(24), "WrongVictim was not found");
    }
}
