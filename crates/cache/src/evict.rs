//! The evictor: frees frames ahead of demand, at the driver's scheduling points, in batches.
//!
//! A batch takes four steps. Victims of the replacement policy are unlinked, so that no new hit
//! finds them. They are taken away from their users, all at once ([`Users::take_away`]). Frames
//! that are held or pinned go back. The dirty marks of the rest are final. Clean frames are free.
//! Dirty ones are written back from where they are, and are free when the medium has them. An
//! access to a subpage under write-back waits, and gets the frame without a read.

use fulgurite_flash::{FlashError, Op};
use fulgurite_format::{FrameIndex, LocalFrame, SubpageIndex};
use fulgurite_policy::{FrameView, MissKind, Replacement};

use crate::cache::{Cache, FrameSources, Outcome};
use crate::frames::Frames;
use crate::marks::{CLEAN, DIRTY, has_changes};
use crate::planted::Planted;
use crate::primitive::Ordering;
use crate::request::Purpose;
use crate::residency::State;
use crate::users::Users;

/// Victims per batch: at 64 the barrier costs 0.04 µs a frame.
const BATCH: usize = 64;

/// What the replacement policy may ask of the frames of one cache.
struct View<'a, U> {
    frames: &'a Frames,
    users: &'a mut U,
    first: FrameIndex,
    /// What was written since a cut must not reach flash yet.
    held_back: bool,
    /// Write-backs that may still be begun.
    writes_left: usize,
    /// Frames that would have to be written back and may not be.
    refused: usize,
    /// A planted bug: pins are not checked.
    pins_unseen: bool,
}

impl<U> View<'_, U> {
    #[inline]
    fn frame(&self, local: LocalFrame) -> FrameIndex {
        FrameIndex(self.first.0 + local.0)
    }
}

impl<U: Users> FrameView for View<'_, U> {
    #[inline]
    fn take_referenced(&mut self, local: LocalFrame) -> bool {
        let frame = self.frame(local);
        self.users.touched(frame, self.frames.marks(frame))
    }
    #[inline]
    fn expect(&mut self, local: LocalFrame) {
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.frames.marks(self.frame(local))).cast());
    }
    #[inline]
    fn evictable(&mut self, local: LocalFrame) -> bool {
        let marks = self.frames.marks(self.frame(local));
        if marks.pins.load(Ordering::Relaxed) != 0 && !self.pins_unseen {
            return false;
        }
        let mark = marks.dirty.load(Ordering::Relaxed);
        if !has_changes(mark) {
            return true;
        }
        // To take it out and put it back would make it a frame that was used again.
        if self.writes_left == 0 || mark == DIRTY && self.held_back {
            self.refused += 1;
            return false;
        }
        self.writes_left -= 1;
        true
    }
    /// All frames may be dirty: then the next scheduling point goes on.
    #[inline]
    fn gives_up(&self) -> bool {
        self.refused >= BATCH
    }
}

/// An unlinked frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Victim {
    frame: FrameIndex,
    subpage: u32,
    touched: bool,
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// Whether the stock of frames needs attention ([`Cache::make_room`]).
    #[inline]
    pub fn wants_room(&self) -> bool {
        self.beyond > 0 || !self.frame_waiters.is_empty() || self.shortage() > 0
    }

    /// Keeps the free list stocked, and shrinks to the limit.
    pub fn make_room(&mut self, others: FrameSources, now_ns: u64) {
        if self.beyond > 0 {
            self.shrink(now_ns);
        }
        let short = self.shortage();
        if short > 0 && (self.write_failure.is_none() || now_ns >= self.retry_ns) {
            self.evict(short, now_ns);
        }
        if !self.frame_waiters.is_empty() {
            while self.free.is_empty() {
                // What is being written already is on its way to somebody.
                let coming = self.writing.saturating_sub(self.late);
                let beyond = self.beyond;
                self.evict(self.frame_waiters.len().saturating_sub(coming), now_ns);
                // A victim beyond the limit makes nobody a frame: on, to one that does.
                if self.beyond == beyond {
                    break;
                }
            }
            self.wake_frame_waiters();
            self.fail_frame_waiters_if_stuck(others, now_ns);
        }
    }

    /// How many frames to evict now: none, or a batch. With slow write-backs, frames under way are
    /// most of the stock, and each miss leaves it one short. It waits for a batch, because only
    /// frames written together share a request.
    #[inline]
    fn shortage(&self) -> usize {
        if self.free.len() >= self.low_water {
            return 0;
        }
        // A lone worker shares no barrier, and small batches of writes delay reads less.
        let most = if self.shared.alone() { U::TOGETHER.min(BATCH) } else { BATCH };
        let want = (2 * self.low_water).saturating_sub(self.free.len() + self.writing);
        if want >= most.min(self.low_water / 2).max(1) { want.min(most) } else { 0 }
    }

    /// Frees up to `want` frames, or starts to.
    pub(crate) fn evict(&mut self, want: usize, now_ns: u64) {
        if want == 0 {
            return;
        }
        let mut batch = [Victim::default(); BATCH];
        let mut count = 0;
        let mut named = [(LocalFrame(0), 0); BATCH];
        let mut chosen = 0;
        let mut view = View {
            first: self.first_frame,
            held_back: self.holds_back(),
            writes_left: self.room_to_write(),
            refused: 0,
            pins_unseen: self.shared.has_planted(Planted::PinsUnseen),
            frames: &self.shared.frames,
            users: &mut self.users,
        };
        while chosen < want.min(BATCH) {
            let Some(local) = self.replacement.victim(&mut view) else { break };
            // Victims were unused for long, so their words are out of the caches: all are fetched
            // at once.
            let known = self.replacement.last_victim_holds();
            let subpage = known.map_or_else(|| self.held[local.index()].subpage, |subpage| subpage.0);
            self.shared.table.will_change(subpage);
            self.shared.near.will_forget(subpage);
            if let Some(line) = self.replacement.will_read_at(SubpageIndex(subpage)) {
                fulgurite_sys::arch::prefetch(line);
            }
            named[chosen] = (local, subpage);
            chosen += 1;
        }
        for &(local, subpage) in &named[..chosen] {
            if let Some(victim) = self.unlink(local, subpage) {
                batch[count] = victim;
                count += 1;
            }
        }
        self.finish_batch(&batch[..count], now_ns);
    }

    /// Takes frames beyond the limit out, wherever the policy has them.
    fn shrink(&mut self, now_ns: u64) {
        let mut batch = [Victim::default(); BATCH];
        let mut count = 0;
        // A few at a time, and round: some may be pinned for long.
        let (limit, end) = (self.frame_limit, self.held.len() as u32);
        for _ in 0..(end - limit).min(16 * BATCH as u32) {
            if count == BATCH {
                break;
            }
            let local = LocalFrame(self.shrink_at.clamp(limit, end - 1));
            self.shrink_at = if local.0 + 1 == end { limit } else { local.0 + 1 };
            let linked = self.held[local.index()].linked;
            if linked && self.shared.frames.pins(self.frame(local)).load(Ordering::Relaxed) == 0 {
                self.replacement.removed(local);
                if let Some(victim) = self.unlink(local, self.held[local.index()].subpage) {
                    batch[count] = victim;
                    count += 1;
                }
            }
        }
        self.finish_batch(&batch[..count], now_ns);
    }

    /// Unlinks a frame that the policy just gave up. `None`: it was touched meanwhile, and is back.
    pub(crate) fn unlink(&mut self, local: LocalFrame, subpage: u32) -> Option<Victim> {
        let frame = self.frame(local);
        debug_assert_eq!(self.held[local.index()].subpage, subpage, "the policy and the cache disagree on a frame");
        match self.shared.table.unlink(subpage, frame, self.id) {
            Some(touched) => {
                if !self.shared.has_planted(Planted::StaleNear) {
                    self.shared.forget_place(subpage, frame);
                }
                self.held[local.index()].linked = false;
                Some(Victim { frame, subpage, touched })
            }
            None => {
                self.counts.evict_in_use += 1;
                self.replacement.reinstated(local, SubpageIndex(subpage));
                None
            }
        }
    }

    pub(crate) fn finish_batch(&mut self, batch: &[Victim], now_ns: u64) {
        if batch.is_empty() {
            return;
        }
        let interrupted = self.users.take_away(&self.shared.frames, batch.iter().map(|victim| victim.frame));
        self.counts.barriers += u64::from(interrupted);
        for victim in batch {
            let &Victim { frame, subpage, touched } = victim;
            let local = self.local(frame);
            let (mut in_use, mark) = self.shared.frames.marks(frame).check(|| self.users.holds(frame));
            in_use &= !self.shared.has_planted(Planted::PinsUnseen);
            let dirty = has_changes(mark) && !self.shared.has_planted(Planted::NotWritten);
            // What was written since a cut is not part of its token.
            let held_back = mark == DIRTY && self.holds_back();
            if in_use || held_back || dirty && !self.has_room_to_write() {
                self.counts.evict_in_use += u64::from(in_use);
                self.held[local.index()].linked = true;
                self.replacement.reinstated(local, SubpageIndex(subpage));
                self.shared.table.finish(subpage, self.id, State::Resident(frame));
                continue;
            }
            if !touched {
                self.counts.prefetch_wasted += 1;
                self.prefetcher.wasted(SubpageIndex(subpage));
            }
            if dirty {
                self.begin_write_back(subpage, frame, now_ns);
            } else {
                self.counts.evicted_clean += 1;
                if mark != CLEAN {
                    // The frame's next user sets whether it may be written to.
                    self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
                }
                let state = if self.held[local.index()].fresh { State::Fresh } else { State::Absent };
                self.shared.table.finish(subpage, self.id, state);
                self.release_frame(frame);
            }
        }
    }

    /// Whether what was written since a cut must stay in DRAM.
    fn holds_back(&self) -> bool {
        self.shared.cut.holds_back() && !self.shared.has_planted(Planted::NotHeldBack)
    }

    fn begin_write_back(&mut self, subpage: u32, frame: FrameIndex, now_ns: u64) {
        self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
        self.writing += 1;
        self.misses
            .begin(SubpageIndex(subpage), frame, MissKind::Write)
            .expect("a resident subpage is not in the miss table, which is as large as the queue is deep");
        self.submit(Op::Write, subpage, frame, Purpose::WriteBack, now_ns);
    }

    /// Lets those that wait for frames try again, as many as there are frames.
    pub(crate) fn wake_frame_waiters(&mut self) {
        if self.frame_waiters.is_empty() || !self.has_room() {
            return;
        }
        for _ in 0..self.free.len() {
            let Some(waiter) = self.frame_waiters.pop_front() else { break };
            self.stuck_since_ns = 0;
            self.notices.push((waiter, Outcome::Turn));
        }
    }

    /// A write-back that would have freed a frame has failed: the first waiter is notified.
    pub(crate) fn fail_first_frame_waiter(&mut self) {
        if let Some(error) = self.write_failure
            && self.free.is_empty()
            && let Some(waiter) = self.frame_waiters.pop_front()
        {
            self.stuck_since_ns = 0;
            self.notices.push((waiter, Outcome::Failed(error)));
        }
    }

    /// Tells waiters when nothing that runs, reads or writes could free a frame. Without other
    /// caches that is certain. Otherwise a worker or a sleeping job may still let go, so they get
    /// as long as the medium does.
    pub(crate) fn fail_frame_waiters_if_stuck(&mut self, others: FrameSources, now_ns: u64) {
        let moving =
            !self.free.is_empty() && self.has_room() || others == FrameSources::Run || !self.notices.is_empty();
        // What a cut holds back leaves when its token is named.
        let moving = moving || self.shared.cut.holds_back();
        if self.frame_waiters.is_empty() || moving || self.in_flight() > self.late {
            self.stuck_since_ns = 0;
            return;
        }
        let certain = self.shared.alone() && others == FrameSources::None;
        if !certain {
            if self.stuck_since_ns == 0 {
                self.stuck_since_ns = now_ns;
            }
            if now_ns - self.stuck_since_ns < self.device_timeout_ns {
                return;
            }
        }
        self.stuck_since_ns = 0;
        let outcome = match self.write_failure {
            Some(error) => Outcome::Failed(error),
            None if self.late > 0 => Outcome::Failed(FlashError::TimedOut),
            None => Outcome::OutOfFrames,
        };
        while let Some(waiter) = self.frame_waiters.pop_front() {
            self.notices.push((waiter, outcome));
        }
    }
}
