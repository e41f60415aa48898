//! The frames of a worker: `fulgurite_cache::Cache` itself, over a medium without data.
//!
//! ```text
//!   access --> residency word --resident--> marks of the frame
//!                    | absent
//!                    +--> Cache::begin_miss --> DrivenFlash --> the model's device
//!                 Outcome <-- Cache::poll <---- DrivenFlash::end <-----+
//! ```
//!
//! Misses, joins, prefetch, the stock of free frames, batches of victims and write-backs are the
//! cache's. This file has what a guarded access does around it, in the order of the runtime. The
//! frames' memory is reserved, and never touched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_cache::marks::{DIRTY, USED};
use fulgurite_cache::{Cache, Counts, FrameSources, Miss, Outcome, Setup, Shape, Shared, Step, Users, residency};
use fulgurite_flash::{DrivenFlash, Flash, Request};
use fulgurite_format::FrameIndex;
use fulgurite_policy::{PrefetchPolicy, Replacement, ReplacementPolicy, Waiter};
use fulgurite_sys::Notifier;

use crate::report::RunError;

/// Requests are ended by the model. None is late.
const NEVER_NS: u64 = u64::MAX / 2;
/// Scans for a victim after one another of which one has certainly found one.
const SCANS: u32 = 64;

/// Fibers of one worker. They leave no frame in use between two accesses.
struct Fibers {
    /// Flash has given the place of what was read away, so that all of it is to be written.
    writes_all: bool,
}

impl Users for Fibers {
    fn take_away(&mut self, frames: &fulgurite_cache::Frames, batch: impl Iterator<Item = FrameIndex>) -> bool {
        if self.writes_all {
            batch.for_each(|frame| frames.marks(frame).dirty.store(DIRTY, Ordering::Relaxed));
        }
        false
    }
    fn holds(&self, _: FrameIndex) -> bool {
        false
    }
}

/// What frames are for.
#[derive(Clone, Copy, Debug)]
pub struct FramesFor {
    /// Subpages of the data, all of which are in flash at first.
    pub subpages: u32,
    /// Fibers that may wait at once.
    pub fibers: usize,
    /// What is read ahead.
    pub prefetch: PrefetchPolicy,
    /// Whether clean victims are written, too.
    pub writes_all: bool,
}

/// The most frames that a worker over `subpages` subpages uses: all of them, and a full stock of
/// free ones.
pub fn useful(subpages: u32) -> u32 {
    subpages.saturating_add(fulgurite_cache::stock_max(&DrivenFlash::new(subpages)))
}

/// A worker's cache, as its fibers use it.
pub struct Frames<R: Replacement> {
    shared: Arc<Shared>,
    cache: Cache<Fibers, R>,
    medium: Arc<DrivenFlash>,
    notices: Vec<(Waiter, Outcome)>,
    handed_over: Vec<Request>,
}

impl<R: Replacement> Frames<R> {
    /// Empty ones, as many as the policy is for.
    ///
    /// # Errors
    /// When the system has no memory for the tables, or no descriptor.
    pub fn new(replacement: R, of: FramesFor) -> Result<Frames<R>, RunError> {
        let FramesFor { subpages, fibers, prefetch, writes_all } = of;
        let failed = |error: &dyn std::fmt::Display| RunError::Memory(error.to_string());
        let medium = Arc::new(DrivenFlash::new(subpages));
        let count = replacement.capacity() as u32;
        let shape = Shape { subpages, existing: subpages, caches: 1, frames_max: count, moved: true };
        let shared = Arc::new(Shared::new(medium.clone(), shape, None).map_err(|error| failed(&error))?);
        let depth = fulgurite_cache::depth_for(fibers);
        let wake = Arc::new(Notifier::new().map_err(|error| failed(&error))?);
        let queue = medium.open_queue(shared.frames.arena().clone(), depth, wake).map_err(|error| failed(&error))?;
        let setup = Setup {
            id: 0,
            depth,
            waiters: fibers,
            // In its place there is the one that is given.
            replacement: ReplacementPolicy::default(),
            prefetch,
            device_timeout_ns: NEVER_NS,
        };
        let mut cache = Cache::with_replacement(shared.clone(), queue, Fibers { writes_all }, setup, replacement);
        cache.set_frames(count);
        Ok(Frames {
            shared,
            cache,
            medium,
            notices: Vec::with_capacity(fibers),
            handed_over: Vec::with_capacity(depth),
        })
    }

    // ---- what an access does ----

    /// The frame of a subpage that is resident, and was touched since it came.
    #[inline]
    pub fn find(&self, subpage: u32) -> Option<FrameIndex> {
        residency::hit_alone(self.shared.table.word(subpage)).map(residency::frame_of)
    }
    /// A hit.
    #[inline]
    pub fn used(&mut self, frame: FrameIndex, writes: bool) {
        self.shared.frames.marks(frame).referenced.store(USED, Ordering::Relaxed);
        self.written(frame, writes);
    }
    #[inline]
    fn written(&self, frame: FrameIndex, writes: bool) {
        let may = !writes || self.shared.frames.marks(frame).mark_dirty();
        assert!(may, "no cut is made, and nothing is written ahead");
    }
    /// An access of a fiber found nothing. `turn`: it got [`Outcome::Turn`].
    pub fn misses(&mut self, subpage: u32, fiber: u32, turn: bool, now_ns: u64) -> Step {
        self.cache.begin_miss(Miss { subpage, waiter: Waiter(fiber.into()), wanted: 0, turn }, now_ns)
    }
    /// The access that missed is done, after [`Outcome::Pinned`]. Returns the frame. Coming in is
    /// not coming back: it is not marked as used.
    pub fn waited(&mut self, subpage: u32, writes: bool) -> FrameIndex {
        let frame = self.find(subpage).expect("a frame that is pinned for a waiter is resident");
        self.shared.unpin(frame);
        self.written(frame, writes);
        frame
    }
    /// Reads a subpage that no fiber waits for, if there is one and a frame to spare.
    pub fn reads_around(&mut self, subpage: u32, now_ns: u64) {
        if subpage < self.shared.table.subpages() {
            self.cache.prefetch(subpage, now_ns);
        }
    }

    // ---- what a worker does between two fibers, in this order ----

    /// Takes what has ended.
    pub fn poll(&mut self, now_ns: u64) {
        if self.cache.in_flight() > 0 {
            self.cache.poll(|_| (), || now_ns);
        }
    }
    /// Whether the stock of free frames needs refilling.
    pub fn wants_room(&self) -> bool {
        self.cache.wants_room()
    }
    /// Refills the stock of free frames.
    pub fn make_room(&mut self, others: FrameSources, now_ns: u64) {
        self.cache.make_room(others, now_ns);
    }
    /// Hands requests over: they are the device's. The list is given back by [`Frames::give_back`].
    #[must_use]
    pub fn hand_over(&mut self) -> Vec<Request> {
        self.cache.hand_over();
        self.medium.take_requests(&mut self.handed_over);
        std::mem::take(&mut self.handed_over)
    }
    /// Gives the list of the requests back.
    pub fn give_back(&mut self, mut list: Vec<Request>) {
        list.clear();
        self.handed_over = list;
    }
    /// The waits that have ended. The list is given back by [`Frames::give_back_notices`].
    #[must_use]
    pub fn take_notices(&mut self) -> Vec<(Waiter, Outcome)> {
        let mut notices = std::mem::take(&mut self.notices);
        self.cache.take_notices(&mut notices);
        notices
    }
    /// Gives the list of the waits back.
    pub fn give_back_notices(&mut self, mut list: Vec<(Waiter, Outcome)>) {
        list.clear();
        self.notices = list;
    }
    /// Fibers that wait for a frame.
    pub fn frame_waiters(&self) -> usize {
        self.cache.frame_waiters()
    }
    /// The device has ended a request.
    pub fn end(&mut self, request: &Request) {
        self.medium.end(request, Ok(()));
    }

    // ---- without time ----

    /// An access by the only fiber, over a device that takes no time. Returns whether it missed.
    pub fn access(&mut self, subpage: u32, writes: bool) -> bool {
        let mut missed = false;
        let mut turn = false;
        loop {
            if let Some(frame) = self.find(subpage) {
                self.used(frame, writes);
                return missed;
            }
            match self.misses(subpage, 0, turn, 0) {
                Step::Again => continue,
                Step::Wait => missed = true,
                Step::WaitForFrame => {}
                Step::Elsewhere(_) => unreachable!("there is one cache"),
            }
            match self.waits() {
                Outcome::Pinned => {
                    self.waited(subpage, writes);
                    return missed;
                }
                outcome => turn = outcome == Outcome::Turn,
            }
        }
    }
    /// Scheduling points until the only fiber goes on.
    fn waits(&mut self) -> Outcome {
        let mut scans = 0;
        loop {
            self.poll(0);
            if self.cache.wants_room() {
                self.cache.make_room(FrameSources::Wait, 0);
            }
            let handed_over = self.hand_over();
            handed_over.iter().for_each(|request| self.medium.end(request, Ok(())));
            // A scan for a victim that finds all frames used gives up, and the next one goes on.
            scans += u32::from(self.cache.in_flight() == 0);
            self.give_back(handed_over);
            let notices = self.take_notices();
            let outcome = notices.first().map(|(_, outcome)| *outcome);
            self.give_back_notices(notices);
            if let Some(outcome) = outcome {
                return outcome;
            }
            assert!(scans < SCANS, "nothing is under way, and the fiber waits");
        }
    }

    // ---- what came of it ----

    /// What the cache has counted.
    pub fn counts(&self) -> Counts {
        self.cache.counts()
    }
    /// Asserts the invariants. Takes time in proportion to the frames.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.cache.check();
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_flash::MemoryFlash;
    use fulgurite_format::SUBPAGE_BYTES;
    use fulgurite_policy::AnyReplacement;

    use super::*;
    use crate::random::Random;

    const FRAMES: u32 = 160;
    const SUBPAGES: u32 = 1000;
    const FIBERS: usize = 12;
    const ACCESSES: u64 = 6000;

    /// What fibers do with frames.
    trait Machine {
        /// Whether an access of this fiber hits. Otherwise it waits.
        fn access(&mut self, fiber: u32, subpage: u32, writes: bool, turn: bool) -> bool;
        /// The access of this fiber goes on, as its frame is pinned for it.
        fn goes_on(&mut self, subpage: u32, writes: bool);
        /// A scheduling point. Requests that it hands over end before the next one.
        fn point(&mut self) -> Vec<(Waiter, Outcome)>;
        fn counts(&self) -> Counts;
    }

    impl Machine for Frames<AnyReplacement> {
        fn access(&mut self, fiber: u32, subpage: u32, writes: bool, mut turn: bool) -> bool {
            loop {
                if let Some(frame) = self.find(subpage) {
                    self.used(frame, writes);
                    return true;
                }
                if self.misses(subpage, fiber, std::mem::take(&mut turn), 0) != Step::Again {
                    return false;
                }
            }
        }
        fn goes_on(&mut self, subpage: u32, writes: bool) {
            self.waited(subpage, writes);
        }
        fn point(&mut self) -> Vec<(Waiter, Outcome)> {
            self.poll(0);
            if self.wants_room() {
                self.make_room(FrameSources::Wait, 0);
            }
            let requests = self.hand_over();
            requests.iter().for_each(|request| self.end(request));
            self.give_back(requests);
            let notices = self.take_notices();
            self.give_back_notices(notices.clone());
            notices
        }
        fn counts(&self) -> Counts {
            self.cache.counts()
        }
    }

    /// Nothing uses frames without a pin, and all are as their marks say.
    struct Nothing;

    impl Users for Nothing {
        fn take_away(&mut self, _: &fulgurite_cache::Frames, _: impl Iterator<Item = FrameIndex>) -> bool {
            false
        }
        fn holds(&self, _: FrameIndex) -> bool {
            false
        }
    }

    /// The cache over memory, with contents: each access checks whether they are what was written.
    struct Real {
        shared: Arc<Shared>,
        cache: Cache<Nothing>,
        numbers: Vec<u64>,
        written: u64,
    }

    impl Real {
        fn new(replacement: ReplacementPolicy, prefetch: PrefetchPolicy) -> Real {
            let flash: Arc<dyn Flash> = Arc::new(MemoryFlash::new(SUBPAGES).unwrap());
            let shape = Shape { subpages: SUBPAGES, existing: SUBPAGES, caches: 1, frames_max: FRAMES, moved: false };
            let shared = Arc::new(Shared::new(flash.clone(), shape, None).unwrap());
            let depth = fulgurite_cache::depth_for(FIBERS);
            let wake = Arc::new(Notifier::new().unwrap());
            let queue = flash.open_queue(shared.frames.arena().clone(), depth, wake).unwrap();
            let setup = Setup { id: 0, depth, waiters: FIBERS, replacement, prefetch, device_timeout_ns: NEVER_NS };
            let mut cache = Cache::new(shared.clone(), queue, Nothing, setup);
            cache.set_frames(FRAMES);
            Real { shared, cache, numbers: vec![0; SUBPAGES as usize], written: 0 }
        }
        fn use_frame(&mut self, frame: FrameIndex, subpage: u32, writes: bool) {
            let (arena, at) = (self.shared.frames.arena(), frame.index() * SUBPAGE_BYTES);
            let mut word = [0; 8];
            arena.read(at, &mut word);
            assert_eq!(u64::from_le_bytes(word), self.numbers[subpage as usize], "contents of subpage {subpage}");
            if writes {
                assert!(self.shared.frames.marks(frame).mark_dirty());
                self.written += 1;
                self.numbers[subpage as usize] = self.written;
                arena.write(at, &self.written.to_le_bytes());
            }
        }
        fn frame_of(&self, subpage: u32) -> Option<FrameIndex> {
            residency::hit_alone(self.shared.table.word(subpage)).map(residency::frame_of)
        }
    }

    impl Machine for Real {
        fn access(&mut self, fiber: u32, subpage: u32, writes: bool, mut turn: bool) -> bool {
            loop {
                if let Some(frame) = self.frame_of(subpage) {
                    self.shared.frames.marks(frame).referenced.store(USED, Ordering::Relaxed);
                    self.use_frame(frame, subpage, writes);
                    return true;
                }
                let miss = Miss { subpage, waiter: Waiter(fiber.into()), wanted: 0, turn: std::mem::take(&mut turn) };
                if self.cache.begin_miss(miss, 0) != Step::Again {
                    return false;
                }
            }
        }
        fn goes_on(&mut self, subpage: u32, writes: bool) {
            let frame = self.frame_of(subpage).unwrap();
            self.shared.unpin(frame);
            self.use_frame(frame, subpage, writes);
        }
        fn point(&mut self) -> Vec<(Waiter, Outcome)> {
            self.cache.poll(|_| (), || 0);
            if self.cache.wants_room() {
                self.cache.make_room(FrameSources::Wait, 0);
            }
            self.cache.hand_over();
            let mut notices = Vec::new();
            self.cache.take_notices(&mut notices);
            notices
        }
        fn counts(&self) -> Counts {
            self.cache.counts()
        }
    }

    /// Fibers that access in turns: each goes on when what it waits for has come. Returns the hits.
    fn drive(machine: &mut impl Machine, writes: bool) -> u64 {
        let (mut random, mut hits) = (Random::new(7, 0), 0);
        let mut waits: [Option<(u32, bool)>; FIBERS] = [None; FIBERS];
        for access in 0..ACCESSES {
            let fiber = access as usize % FIBERS;
            while waits[fiber].is_some() {
                for (Waiter(other), outcome) in machine.point() {
                    let (subpage, writes) = waits[other as usize].take().expect("it waits");
                    if outcome == Outcome::Pinned {
                        machine.goes_on(subpage, writes);
                    } else if !machine.access(other as u32, subpage, writes, outcome == Outcome::Turn) {
                        waits[other as usize] = Some((subpage, writes));
                    }
                }
            }
            // Some run through neighbours, most come back to what is hot.
            let below = 1 + random.below(u64::from(SUBPAGES));
            let subpage = match access / 600 % 2 {
                0 => access as u32 % SUBPAGES,
                _ => random.below(below) as u32,
            };
            let writes = writes && random.below(3) == 0;
            if machine.access(fiber as u32, subpage, writes, false) {
                hits += 1;
            } else {
                waits[fiber] = Some((subpage, writes));
            }
        }
        hits
    }

    #[test]
    fn counts_are_those_of_a_cache_with_contents() {
        let of = |prefetch| FramesFor { subpages: SUBPAGES, fibers: FIBERS, prefetch, writes_all: false };
        for replacement in ReplacementPolicy::ALL {
            for prefetch in [PrefetchPolicy::Off, PrefetchPolicy::Adaptive] {
                let mut real = Real::new(replacement, prefetch);
                let policy = AnyReplacement::new(replacement, FRAMES as usize);
                let mut ours = Frames::new(policy, of(prefetch)).unwrap();
                let hits = drive(&mut real, true);
                assert_eq!(drive(&mut ours, true), hits, "hits with {replacement}");
                let counts = Machine::counts(&real);
                assert_eq!(Machine::counts(&ours), counts, "with {replacement}, {prefetch:?}");
                let all = [hits, counts.misses, counts.evicted_clean, counts.evicted_dirty];
                assert!(all.iter().all(|count| *count > 300), "{replacement}: {hits} hits, {counts:?}");
                assert_eq!(counts.prefetched > 0, prefetch == PrefetchPolicy::Adaptive);
                // A stock is kept free, and victims leave in batches.
                assert!(ours.cache.frames_free() > 1, "{:?}", ours.cache);
                ours.check();
            }
        }
    }
    #[test]
    fn where_all_is_written_no_victim_is_clean() {
        let of = FramesFor { subpages: SUBPAGES, fibers: FIBERS, prefetch: PrefetchPolicy::Off, writes_all: true };
        let mut frames = Frames::new(AnyReplacement::new(ReplacementPolicy::Lru, FRAMES as usize), of).unwrap();
        drive(&mut frames, false);
        let counts = frames.counts();
        assert_eq!(counts.evicted_clean, 0);
        assert!(counts.evicted_dirty > 300, "{counts:?}");
        frames.check();
    }
    #[test]
    fn without_time_an_access_misses_once() {
        let of = FramesFor { subpages: SUBPAGES, fibers: 1, prefetch: PrefetchPolicy::Off, writes_all: false };
        let mut frames = Frames::new(AnyReplacement::new(ReplacementPolicy::Clock, 8), of).unwrap();
        for subpage in 0..SUBPAGES {
            assert!(frames.access(subpage, subpage % 2 == 0));
            assert!(!frames.access(subpage, true), "it is there");
        }
        let counts = frames.counts();
        assert_eq!(counts.misses, u64::from(SUBPAGES));
        assert!(counts.evicted_dirty + 8 >= u64::from(SUBPAGES) && counts.evicted_clean == 0, "{counts:?}");
        frames.check();
    }
}
