//! A cache: the frames of one worker, what they hold, and what is under way for them.
//!
//! The driver passes the time as a number and does the waiting. It collects how its waits ended
//! here ([`Cache::take_notices`]).
//!
//! This file has the state and the stock of frames. `miss` handles misses, `requests` the medium,
//! `evict` frees frames, `ahead` and `write_back` write, and `seal` does a cut's work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{Completion, Flash, FlashError, Queue, Switches};
use fulgurite_format::{FrameIndex, LocalFrame};
use fulgurite_policy::{
    AnyReplacement, MissTable, PrefetchPolicy, Prefetcher, Remembered, Replacement, ReplacementPolicy, Waiter,
};

use crate::ahead::AheadRound;
use crate::free::{self, Free};
use crate::marks::has_changes;
use crate::primitive::Ordering;
use crate::request::Request;
use crate::shared::Shared;
use crate::users::Users;

/// What a cache is made with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its number among the caches of the memory.
    pub id: u32,
    /// Requests that it may have in flight.
    pub depth: usize,
    /// Waiters that may wait for its misses at one time, including the waiters of other caches.
    pub waiters: usize,
    /// Which frame is evicted next.
    pub replacement: ReplacementPolicy,
    /// What is read ahead.
    pub prefetch: PrefetchPolicy,
    /// After how long a request that the medium does not answer is an error.
    pub device_timeout_ns: u64,
}

/// What became of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Try the access again.
    Again,
    /// A frame may be free: try the access again, and say that it was this waiter's turn.
    Turn,
    /// The subpage is resident, and its frame pinned once for this waiter.
    Pinned,
    /// What was to be fetched is in this frame, which is the waiter's until
    /// [`Cache::end_fetch`].
    Fetched(FrameIndex),
    /// The medium failed.
    Failed(FlashError),
    /// There is no frame for it, and there will be none.
    OutOfFrames,
}

/// What may yet free a frame for waiters, other than the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameSources {
    /// Something else can run now.
    Run,
    /// Nothing can run now, but a pin or another worker's use of a frame may end.
    Wait,
    /// Only waiters for frames are left.
    None,
}

/// Waits until the medium has ended something, and lets the cache see to it. Returns the time then.
///
/// # Errors
/// When the medium takes longer than it may.
pub type Wait<'a, U, R = AnyReplacement> = &'a mut dyn FnMut(&mut Cache<U, R>) -> Result<u64, FlashError>;

/// What a frame holds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Held {
    pub(crate) subpage: u32,
    /// It was given zeros, not contents of flash: clean means that it goes back to "fresh".
    pub(crate) fresh: bool,
    /// It is in the replacement policy.
    pub(crate) linked: bool,
    /// It is beyond the limit and holds nothing.
    pub(crate) out: bool,
}

/// DRAM for each frame in addition to its subpage, marks, near table and policy: its contents, its
/// place among the free ones, and in the order of a cut's writes.
pub const BYTES_PER_FRAME: usize = size_of::<Held>() + free::BYTES_PER_FRAME + size_of::<u64>();

/// Free frames that are kept in stock, where there are enough, in addition to the frames that the
/// medium keeps back.
const STOCK: usize = 64;

/// The most free frames that a cache over this medium keeps in stock.
pub fn stock_max(flash: &dyn Flash) -> u32 {
    (STOCK + 2 * flash.traits().holds_writes) as u32
}

/// The depth of the queue of a cache whose misses `waiters` waiters wait for, unless another one is
/// asked for. In addition to their reads there are a sync's writes, and evictions meanwhile.
pub fn depth_for(waiters: usize) -> usize {
    // The largest depth is a power of two itself.
    waiters.saturating_add(448).min(fulgurite_flash::DEPTH_MAX).next_power_of_two()
}

/// What a cache has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses that started a read of flash.
    pub misses: u64,
    /// Accesses that joined a read or write-back under way.
    pub misses_joined: u64,
    /// Subpages that had no contents and were given a zeroed frame.
    pub fresh: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Write-backs that failed; the data stayed in its frame.
    pub write_errors: u64,
    /// Frames freed without a write.
    pub evicted_clean: u64,
    /// Frames written back.
    pub evicted_dirty: u64,
    /// Frames written back ahead of eviction, while there was nothing else to do.
    pub written_ahead: u64,
    /// Frames checked for that.
    pub looks_ahead: u64,
    /// Victims that turned out to be in use.
    pub evict_in_use: u64,
    /// Times that other processors were interrupted to take frames away.
    pub barriers: u64,
    /// Times that an access waited because no frame was free.
    pub frame_waits: u64,
    /// Subpages read ahead.
    pub prefetched: u64,
    /// Of these, touched before they were evicted.
    pub prefetch_used: u64,
    /// Of these, evicted untouched.
    pub prefetch_wasted: u64,
    /// Frames that a sync had to write.
    pub sealed: u64,
    /// Frames that were copied for a sync, as they were pinned or written to.
    pub copied: u64,
    /// Requests to the medium that were given up.
    pub timeouts: u64,
}

/// One worker's cache. See the module.
pub struct Cache<U: Users, R: Replacement = AnyReplacement> {
    pub(crate) id: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) users: U,
    pub(crate) queue: Box<dyn Queue>,
    /// The queue may keep writes back.
    pub(crate) holds_writes: bool,
    /// The queue notifies at each completion.
    pub(crate) notifies: bool,
    pub(crate) completions: Vec<Completion>,
    /// Submitted and not yet handed over.
    pub(crate) unflushed: usize,
    pub(crate) requests: Vec<Request>,
    pub(crate) requests_free: Vec<u32>,
    pub(crate) misses: MissTable,
    pub(crate) replacement: R,
    pub(crate) prefetcher: Prefetcher,
    pub(crate) device_timeout_ns: u64,

    /// The first frame of this cache; all others follow it.
    pub(crate) first_frame: FrameIndex,
    /// How many of them it may use now.
    pub(crate) frame_limit: u32,
    /// How many of those beyond the limit still hold something.
    pub(crate) beyond: u32,
    pub(crate) free: Free,
    /// What each frame holds.
    pub(crate) held: Box<[Held]>,
    /// Frames being written back.
    pub(crate) writing: usize,
    /// Whether the medium asked to be notified of changes, when it was asked last.
    pub(crate) asks: bool,
    /// Waiters for a frame, or for room in a table.
    pub(crate) frame_waiters: VecDeque<Waiter>,
    /// The first error of a write-back since [`Cache::write_back_all`] began, or ever.
    pub(crate) first_write_failure: Option<FlashError>,
    /// The last write-back's error, while no write-back has succeeded since.
    pub(crate) write_failure: Option<FlashError>,
    /// When write-backs ahead of demand may be tried again after a failure.
    pub(crate) retry_ns: u64,
    /// Requests that have been given up on and may never come back.
    pub(crate) late: usize,
    /// Since when waiters for frames depend on others than the medium. 0 when they do not.
    pub(crate) stuck_since_ns: u64,
    /// Where the evictor goes on looking for frames beyond the limit.
    pub(crate) shrink_at: u32,
    /// The search for what to write ahead.
    pub(crate) ahead: AheadRound,
    /// Numbers flushes, so that a late one is not taken for the latest.
    pub(crate) flush_number: u32,
    pub(crate) flush_result: Option<Result<(), FlashError>>,
    pub(crate) low_water: usize,
    /// Sealed frames in the order of their writes (see `seal`), and how many of them the pump has
    /// passed. Has room for all frames from the start, and is empty while the order is made.
    pub(crate) pump_order: Vec<u64>,
    pub(crate) pump_at: usize,
    /// Sealed frames being written from where they are.
    pub(crate) pumped: usize,
    /// Waits that have ended, and of which the driver has not been notified yet.
    pub(crate) notices: Vec<(Waiter, Outcome)>,
    /// The last write that a cut needs has ended here.
    pub(crate) cut_written: bool,
    pub(crate) counts: Counts,
}

impl<U: Users, R: Replacement> std::fmt::Debug for Cache<U, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("id", &self.id)
            .field("frame_limit", &self.frame_limit)
            .field("beyond", &self.beyond)
            .field("free", &self.free.len())
            .field("writing", &self.writing)
            .field("frame_waiters", &self.frame_waiters)
            .field("write_failure", &self.write_failure)
            .field("requests", &self.requests.iter().filter(|r| r.since_ns != 0).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<U: Users> Cache<U> {
    /// A cache without frames. The queue's arena is the arena of the shared frames, and its depth
    /// is the depth in the setup.
    pub fn new(shared: Arc<Shared>, queue: Box<dyn Queue>, users: U, setup: Setup) -> Cache<U> {
        let replacement = AnyReplacement::new(setup.replacement, shared.frames_max() as usize);
        Cache::with_replacement(shared, queue, users, setup, replacement)
    }
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// As [`Cache::new`], with a policy that is given for the frames that each cache may ever have,
    /// in place of the one that the setup names.
    ///
    /// # Panics
    /// When the policy is for another number of frames.
    pub fn with_replacement(
        shared: Arc<Shared>,
        queue: Box<dyn Queue>,
        users: U,
        setup: Setup,
        replacement: R,
    ) -> Cache<U, R> {
        let Setup { id, depth, waiters, replacement: _, prefetch, device_timeout_ns } = setup;
        let frames_max = shared.frames_max() as usize;
        assert_eq!(replacement.capacity(), frames_max, "the policy is for the frames that there may be");
        Cache {
            id,
            users,
            queue,
            holds_writes: false,
            notifies: false,
            completions: Vec::with_capacity(depth),
            unflushed: 0,
            requests: vec![Request::default(); depth],
            requests_free: (0..depth as u32).rev().collect(),
            misses: MissTable::new(depth, waiters),
            replacement,
            prefetcher: Prefetcher::new(prefetch),
            device_timeout_ns: device_timeout_ns.max(1),
            first_frame: shared.first_frame(id),
            frame_limit: 0,
            beyond: 0,
            free: Free::new(frames_max, shared.alone()),
            held: vec![Held { out: true, ..Held::default() }; frames_max].into(),
            writing: 0,
            asks: false,
            frame_waiters: VecDeque::with_capacity(waiters),
            first_write_failure: None,
            write_failure: None,
            retry_ns: 0,
            late: 0,
            stuck_since_ns: 0,
            shrink_at: 0,
            ahead: AheadRound::NEW,
            flush_number: 0,
            flush_result: None,
            low_water: 0,
            pump_order: Vec::with_capacity(frames_max),
            pump_at: 0,
            pumped: 0,
            notices: Vec::with_capacity(waiters),
            cut_written: false,
            counts: Counts::default(),
            shared,
        }
    }

    // ---- what the driver asks and takes ----

    /// What it shares with the other caches of the memory.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    /// The users of its frames.
    pub fn users(&mut self) -> &mut U {
        &mut self.users
    }
    /// Requests that the medium has not completed.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.requests.len() - self.requests_free.len()
    }
    /// Requests that have not been handed over.
    #[inline]
    pub fn unflushed(&self) -> usize {
        self.unflushed
    }
    /// How many frames it may use.
    pub fn frame_limit(&self) -> u32 {
        self.frame_limit
    }
    /// How many frames hold nothing.
    pub fn frames_free(&self) -> usize {
        self.free.len()
    }
    /// Whether frames hold something that are to go, as the limit was lowered.
    pub fn is_shrinking(&self) -> bool {
        self.beyond > 0
    }
    /// Whether some of them can go: those that are pinned stay until they are let go.
    pub fn could_shrink(&self) -> bool {
        let end = self.held.len() as u32;
        self.beyond > 0
            && (self.frame_limit..end).map(LocalFrame).any(|local| {
                let held = self.held[local.index()];
                let is_pinned = || self.shared.frames.pins(self.frame(local)).load(Ordering::Relaxed) > 0;
                !(held.out || held.linked && is_pinned())
            })
    }
    /// What more frames would gain.
    pub fn remembered(&self) -> Remembered {
        self.replacement.remembered()
    }
    /// How many wait for a frame.
    #[inline]
    pub fn frame_waiters(&self) -> usize {
        self.frame_waiters.len()
    }
    /// The last write-back's error, while no write-back has succeeded since.
    pub fn write_failure(&self) -> Option<FlashError> {
        self.write_failure
    }
    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }
    /// Counts anew.
    pub fn reset_counts(&mut self) {
        self.counts = Counts::default();
    }
    /// Whether there are waiters that are to be notified of what became of their waits.
    #[inline]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }
    /// From now on, `waiters` waiters may wait at one time.
    pub fn expect_waiters(&mut self, waiters: usize) {
        self.misses.grow_waiters(waiters);
    }
    /// Exchanges the waits that have ended, in this order, for an empty list.
    #[inline]
    pub fn take_notices(&mut self, empty: &mut Vec<(Waiter, Outcome)>) {
        debug_assert!(empty.is_empty());
        std::mem::swap(&mut self.notices, empty);
    }
    /// Whether the last write of a cut has ended here since the last call. The waiter for it is
    /// then woken.
    #[inline]
    pub fn take_cut_written(&mut self) -> bool {
        std::mem::take(&mut self.cut_written)
    }
    /// Uses another queue of the same depth and arena from now on. Returns the one before.
    ///
    /// # Panics
    /// When a request is in flight.
    pub fn replace_queue(&mut self, queue: Box<dyn Queue>) -> Box<dyn Queue> {
        assert_eq!(self.in_flight(), 0, "a request would be lost");
        std::mem::replace(&mut self.queue, queue)
    }
    /// Has the medium notify at each completion, also while nothing sleeps in [`Cache::sleep`].
    /// Returns whether it does.
    pub fn notify_each(&mut self) -> bool {
        let switches = Switches { hold_writes: self.holds_writes, notifies: true, ..Switches::default() };
        self.notifies = self.queue.switch(switches).notifies;
        self.notifies
    }
    /// Sleeps until the medium has something, or so long.
    pub fn sleep(&mut self, time: Option<Duration>) {
        self.queue.wait(time);
    }

    // ---- frames ----

    /// Sets how many frames the cache has. A larger number holds at once, a smaller one when frames
    /// are empty.
    pub fn set_frames(&mut self, count: u32) {
        let count = count.clamp(1, self.held.len() as u32);
        self.frame_limit = count;
        // What the medium keeps back is missing from the stock.
        let kept_back = (2 * self.shared.holds_writes).min(count as usize / 128);
        self.low_water = (count as usize / 8).min(STOCK + kept_back);
        // The first ones are the last to be given to just any subpage: they are homes.
        for local in (0..count).map(LocalFrame) {
            if std::mem::take(&mut self.held[local.index()].out) {
                self.free.push(self.frame(local));
            }
        }
        let (limit, first) = (self.frame(LocalFrame(count)), self.first_frame);
        for frame in self.free.iter().filter(|&frame| frame >= limit) {
            self.held[frame.index() - first.index()].out = true;
        }
        self.free.end_at(limit);
        self.beyond = self.held[count as usize..].iter().filter(|h| !h.out).count() as u32;
        self.shared.frames.claim(first, limit);
        if self.beyond == 0 {
            self.discard_beyond();
        }
    }

    /// Takes a frame that holds nothing any more: it is free, or out if it is beyond the limit.
    pub(crate) fn release_frame(&mut self, frame: FrameIndex) {
        let local = self.local(frame);
        if local.0 < self.frame_limit {
            self.free.push(frame);
        } else {
            self.held[local.index()].out = true;
            self.beyond -= 1;
            if self.beyond == 0 {
                self.discard_beyond();
            }
        }
    }

    /// Gives the memory beyond the limit back, where nothing is stored any more.
    pub fn discard_beyond(&mut self) {
        let end_of_use = self.frame(LocalFrame(self.frame_limit));
        // The medium first: it must not go on using pages that the arena has no more. Pages that it
        // had prepared could not be moved.
        let prepared = if self.shared.frames.moved() { 0..0 } else { self.first_frame.0..end_of_use.0 };
        self.queue.use_frames(prepared);
        let (mut start, end) = (self.frame_limit, self.held.len() as u32);
        for local in (self.frame_limit..=end).map(LocalFrame) {
            // A frame that is pinned ends a run.
            if local.0 == end || !self.held[local.index()].out {
                if start < local.0 {
                    self.shared.frames.discard(self.frame(LocalFrame(start)), self.frame(local));
                }
                start = local.0 + 1;
            }
        }
    }

    /// The place of a frame in the arena.
    #[inline]
    pub(crate) fn frame(&self, local: LocalFrame) -> FrameIndex {
        FrameIndex(self.first_frame.0 + local.0)
    }
    /// Its number among this cache's frames.
    #[inline]
    pub(crate) fn local(&self, frame: FrameIndex) -> LocalFrame {
        LocalFrame(frame.0 - self.first_frame.0)
    }
    /// Behind the last frame.
    pub(crate) fn end(&self) -> FrameIndex {
        self.frame(LocalFrame(self.held.len() as u32))
    }
    /// All frames of this cache.
    pub(crate) fn locals(&self) -> impl Iterator<Item = LocalFrame> + use<U, R> {
        (0..self.held.len() as u32).map(LocalFrame)
    }

    /// Frames that hold what flash does not, those aside that are being written.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = LocalFrame> {
        self.locals().filter(|&local| {
            self.held[local.index()].linked
                && has_changes(self.shared.frames.marks(self.frame(local)).dirty.load(Ordering::Relaxed))
        })
    }
    /// Subpages that are in DRAM and differ from flash.
    pub fn dirty_subpages(&self) -> impl Iterator<Item = u32> {
        self.dirty().map(|local| self.held[local.index()].subpage)
    }
    /// Forgets all pins, as none of their holders is left.
    pub fn forget_pins(&mut self) {
        for local in self.locals() {
            let pins = self.shared.frames.pins(self.frame(local));
            // A store would copy the memory of a child that has just been forked.
            if pins.load(Ordering::Relaxed) != 0 {
                pins.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Writes of a range that the medium has not completed.
    pub(crate) fn writes_under_way(&self, inside: impl Fn(u32) -> bool) -> u64 {
        let writes = |r: &&Request| r.since_ns != 0 && r.purpose.writes();
        self.requests.iter().filter(writes).filter(|r| inside(r.subpage)).count() as u64
    }

    /// Asserts what holds between any two calls.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        use crate::residency::{State, decode};
        self.replacement.check();
        self.misses.check();
        let mut linked = 0;
        for local in self.locals().filter(|local| self.held[local.index()].linked) {
            let (frame, subpage) = (self.frame(local), self.held[local.index()].subpage);
            let state = decode(self.shared.table.word(subpage).load(Ordering::Acquire));
            assert!(
                state == State::Resident(frame) || state == State::Prefetched(frame),
                "{frame:?} holds subpage {subpage}, which is {state:?}"
            );
            linked += 1;
        }
        assert_eq!(linked, self.replacement.len(), "frames that hold something are in the policy");
        for frame in self.free.iter() {
            let held = self.held[self.local(frame).index()];
            assert!(!held.linked && !held.out, "{frame:?} is free, and {held:?}");
        }
        let moving = |r: &&Request| {
            r.since_ns != 0 && matches!(r.purpose, crate::request::Purpose::Read | crate::request::Purpose::WriteBack)
        };
        assert_eq!(
            self.requests.iter().filter(moving).count(),
            self.misses.len(),
            "what is on its way is in the miss table"
        );
        let writing = self.requests.iter().filter(|r| r.since_ns != 0 && r.purpose.writes()).count();
        assert_eq!(writing, self.writing, "writes under way are counted");
    }
}
