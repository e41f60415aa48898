//! A miss: an access that found no frame, from the check of its word to the read.
//!
//! A cache reads for its own waiters into its own frames. Of two workers that miss on one subpage,
//! the one whose compare-and-swap wins owns the miss. The other's driver hands its waiter over to
//! that cache, which wakes it later, or asks it to try again.

use fulgurite_flash::{Backing, Op};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_policy::{MissKind, Replacement, Waiter};

use crate::cache::{Cache, Held, Outcome};
use crate::marks::{ASKS, CLEAN, READ_ONLY, has_changes};
use crate::planted::Planted;
use crate::primitive::Ordering;
use crate::request::{Hints, Purpose};
use crate::residency::{self, State};
use crate::users::Users;

/// An access that found its subpage not resident.
#[derive(Clone, Copy, Debug)]
pub struct Miss {
    /// The subpage.
    pub subpage: u32,
    /// Its name, by which it is notified of what became of it. All ones in all bits is the name of
    /// no waiter.
    pub waiter: Waiter,
    /// The byte of the subpage that it wants first: a hint.
    pub wanted: u32,
    /// It was notified by [`Outcome::Turn`] and has no frame yet: it comes before new waiters.
    pub turn: bool,
}

/// What the access that missed does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Tries again: the state has changed.
    Again,
    /// Waits; its waiter will be notified.
    Wait,
    /// Waits for a frame, and not for its subpage yet.
    WaitForFrame,
    /// Waits; the cache of this number is to be given the waiter ([`Cache::join_from_outside`]).
    Elsewhere(u32),
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// An access found its subpage not resident.
    pub fn begin_miss(&mut self, miss: Miss, now_ns: u64) -> Step {
        let Miss { subpage, waiter, .. } = miss;
        self.queue.will_poll();
        if self.shared.table.surely_absent(subpage) {
            return self.begin_read(miss, now_ns);
        }
        match residency::decode(self.shared.table.word(subpage).load(Ordering::Acquire)) {
            State::Resident(_) => Step::Again,
            State::Prefetched(frame) => {
                if residency::first_touch(self.shared.table.word(subpage), frame) {
                    self.counts.prefetch_used += 1;
                    let ahead = self.prefetcher.used(SubpageIndex(subpage));
                    self.read_ahead(ahead, now_ns);
                }
                Step::Again
            }
            State::Busy(owner) if owner == self.id => {
                self.counts.misses_joined += 1;
                let joined = self.misses.join(SubpageIndex(subpage), waiter);
                assert!(joined.is_ok(), "a subpage that this cache is busy with is not in its miss table: {joined:?}");
                if self.misses.get(SubpageIndex(subpage)).is_some_and(|m| m.kind == MissKind::Prefetch) {
                    // Read ahead, but not far enough: it counts as used.
                    self.misses.set_kind(SubpageIndex(subpage), MissKind::Read);
                    self.counts.prefetch_used += 1;
                    let ahead = self.prefetcher.used(SubpageIndex(subpage));
                    self.read_ahead(ahead, now_ns);
                }
                Step::Wait
            }
            State::Busy(owner) => {
                self.counts.misses_joined += 1;
                Step::Elsewhere(owner)
            }
            State::Fresh | State::Absent => self.begin_read(miss, now_ns),
        }
    }

    fn begin_read(&mut self, miss: Miss, now_ns: u64) -> Step {
        let Miss { subpage, waiter, wanted, turn } = miss;
        // New waiters queue at the back. Otherwise one job could hold the only frame forever.
        let taken = if turn || self.frame_waiters.is_empty() { self.take_frame(subpage, now_ns) } else { None };
        let Some(frame) = taken else {
            return self.wait_for_frame(waiter, turn);
        };
        match self.shared.table.begin(subpage, self.id) {
            Err(_) => {
                self.release_frame(frame);
                Step::Again
            }
            Ok(State::Fresh) => {
                if !self.shared.has_planted(Planted::NotZeroed) {
                    self.shared.frames.zero(frame);
                }
                self.counts.fresh += 1;
                self.install(subpage, frame, true, State::Resident(frame));
                Step::Again
            }
            Ok(_) => {
                self.counts.misses += 1;
                self.misses.begin(SubpageIndex(subpage), frame, MissKind::Read).expect(
                    "a subpage that was absent is not in the miss table, which is as large as the queue is deep",
                );
                self.misses.join(SubpageIndex(subpage), waiter).expect("the miss table has room for every waiter");
                let slot = self.submit(Op::Read, subpage, frame, Purpose::Read, now_ns);
                self.requests[slot as usize].hints = Hints { waiter, wanted };
                self.expect(SubpageIndex(subpage));
                let ahead = self.prefetcher.missed(SubpageIndex(subpage));
                self.read_ahead(ahead, now_ns);
                Step::Wait
            }
        }
    }

    /// All of a subpage will be written next, whatever flash holds there. It comes into a zeroed
    /// frame without a read, if there is a free one. Otherwise nothing happens, and the write
    /// misses. What flash holds comes back if it is not written after all.
    pub fn begin_blank(&mut self, subpage: u32, now_ns: u64) {
        let state = residency::decode(self.shared.table.word(subpage).load(Ordering::Acquire));
        if !matches!(state, State::Fresh | State::Absent) || !self.frame_waiters.is_empty() {
            return;
        }
        let Some(frame) = self.take_frame(subpage, now_ns) else { return };
        match self.shared.table.begin(subpage, self.id) {
            Err(_) => self.release_frame(frame),
            Ok(state) => {
                self.shared.frames.zero(frame);
                self.counts.fresh += 1;
                self.install(subpage, frame, state == State::Fresh, State::Resident(frame));
            }
        }
    }

    /// Reads a subpage past the table, into a frame that is the waiter's alone until it has copied
    /// what it wants: an object, which is cached elsewhere. Never [`Step::Again`].
    pub fn begin_fetch(&mut self, miss: Miss, now_ns: u64) -> Step {
        let Miss { subpage, waiter, wanted, turn } = miss;
        self.queue.will_poll();
        let taken = if turn || self.frame_waiters.is_empty() { self.take_any(now_ns) } else { None };
        let Some(frame) = taken else {
            return self.wait_for_frame(waiter, turn);
        };
        self.counts.misses += 1;
        let slot = self.submit(Op::Read, subpage, frame, Purpose::Fetch, now_ns);
        self.requests[slot as usize].hints = Hints { waiter, wanted };
        Step::Wait
    }
    /// The waiter has copied what it wanted.
    pub fn end_fetch(&mut self, frame: FrameIndex) {
        self.release_frame(frame);
        self.wake_frame_waiters();
    }
    fn wait_for_frame(&mut self, waiter: Waiter, turn: bool) -> Step {
        self.counts.frame_waits += 1;
        if turn {
            self.frame_waiters.push_front(waiter);
        } else {
            self.frame_waiters.push_back(waiter);
        }
        Step::WaitForFrame
    }

    /// A frame for a miss, if there is one and a request may be begun.
    fn take_frame(&mut self, subpage: u32, now_ns: u64) -> Option<FrameIndex> {
        if !self.make_free(now_ns) {
            return None;
        }
        self.free.take_home(subpage).or_else(|| self.free.pop())
    }
    /// A frame, no matter for what.
    fn take_any(&mut self, now_ns: u64) -> Option<FrameIndex> {
        if self.make_free(now_ns) { self.free.pop() } else { None }
    }
    /// Whether a request may be begun; a frame is free then, if there is any.
    fn make_free(&mut self, now_ns: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        if self.free.is_empty() {
            // Demand ran ahead of the evictor. The access that asks holds no unpinned reference
            // now.
            self.evict(8, now_ns);
            // Write-backs may have taken the last request.
            if !self.has_room() {
                return false;
            }
        }
        true
    }

    /// Starts reading subpages that will probably be wanted, where that costs nobody a frame.
    fn read_ahead(&mut self, range: Option<std::ops::Range<u32>>, now_ns: u64) {
        let Some(range) = range else { return };
        for subpage in range.start..range.end.min(self.shared.table.subpages()) {
            if !self.prefetch(subpage, now_ns) {
                return;
            }
        }
    }

    /// Starts reading one subpage that nobody waits for. Returns whether there was room for it.
    pub fn prefetch(&mut self, subpage: u32, now_ns: u64) -> bool {
        if !self.shared.table.is_absent(subpage) {
            return true;
        }
        if self.requests_free.len() < 16 || self.free.len() <= self.low_water / 2 {
            return false;
        }
        let Some(frame) = self.free.take_home(subpage).or_else(|| self.free.pop()) else { return false };
        match self.shared.table.begin(subpage, self.id) {
            Ok(State::Absent) => {
                self.counts.prefetched += 1;
                self.misses.begin(SubpageIndex(subpage), frame, MissKind::Prefetch).expect(
                    "a subpage that was absent is not in the miss table, which is as large as the queue is deep",
                );
                self.submit(Op::Read, subpage, frame, Purpose::Read, now_ns);
            }
            Ok(was) => {
                self.shared.table.finish(subpage, self.id, was);
                self.release_frame(frame);
            }
            Err(_) => self.release_frame(frame),
        }
        true
    }

    /// Gives a frame with contents to its subpage.
    pub(crate) fn install(&mut self, subpage: u32, frame: FrameIndex, fresh: bool, state: State) {
        let local = self.local(frame);
        self.held[local.index()] = Held { subpage, fresh, linked: true, out: false };
        self.users.touched(frame, self.shared.frames.marks(frame));
        if self.shared.backing().is_some() {
            // What could not be written back was written while it might be, and is not to be lost.
            if !has_changes(self.shared.frames.marks(frame).dirty.load(Ordering::Relaxed)) {
                let may = self.shared.backing().is_none_or(|backing| backing.may(subpage, true));
                let mark = if may { self.mark_of_clean() } else { READ_ONLY };
                self.shared.frames.marks(frame).dirty.store(mark, Ordering::Relaxed);
            }
        }
        self.replacement.inserted(local, SubpageIndex(subpage));
        self.shared.table.finish(subpage, self.id, state);
    }

    /// The mark of a frame whose content flash holds. A medium that has begun to ask is asked for
    /// all others as well.
    pub(crate) fn mark_of_clean(&mut self) -> u8 {
        let asks = self.shared.backing().is_some_and(Backing::asks);
        if asks != self.asks {
            self.asks = asks;
            if asks {
                for local in self.locals() {
                    self.shared.frames.marks(self.frame(local)).ask_before_writes();
                }
            }
        }
        if asks { ASKS } else { CLEAN }
    }

    /// A waiter of another cache wants a subpage that this one was busy with.
    pub fn join_from_outside(&mut self, subpage: u32, waiter: Waiter) {
        if self.misses.join(SubpageIndex(subpage), waiter).is_err() {
            self.notices.push((waiter, Outcome::Again));
        }
    }

    /// Tells all waiters for a subpage, and is done with it.
    pub(crate) fn end_miss(&mut self, subpage: u32, outcome: Outcome) {
        let notices = &mut self.notices;
        self.misses.complete(SubpageIndex(subpage), |waiter| notices.push((waiter, outcome)));
    }

    /// Hints to the caches of the processor what the policy will read for this subpage.
    pub(crate) fn expect(&self, subpage: SubpageIndex) {
        if let Some(line) = self.replacement.will_read_at(subpage) {
            fulgurite_sys::arch::prefetch(line);
        }
    }
}
