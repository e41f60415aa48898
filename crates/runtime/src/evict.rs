//! The evictor: frees frames ahead of demand, at scheduling points, in batches.
//!
//! A batch goes through four steps: victims by the replacement policy are unlinked (nobody new can hit them); every other
//! worker executes a barrier; the slots and pins are read, and what is in use goes back; what is left is nobody's, so
//! that its dirty mark is final: clean frames are free, dirty ones are written back from where they lie (the frame is its
//! own evict buffer) and are free when the medium says so. An access to a subpage that is being written back waits, and
//! gets the frame back without a read.

use std::ops::ControlFlow;

use fulgurite_flash::{FlashError, Op};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_policy::{ColdCursor, FrameView, MissKind, Replacement};

use crate::mailbox::Wake;
use crate::miss::Purpose;
use crate::planted::Planted;
use crate::worker::Worker;
use fulgurite_cache::Frames;
use fulgurite_cache::frames::index;
use fulgurite_cache::marks::{CLEAN, DIRTY, has_changes};
use fulgurite_cache::residency::{self, State};
use std::sync::atomic::Ordering;

/// Victims per batch: at 64 the barrier costs 0.04 µs a frame.
const BATCH: usize = 64;
/// Victims per batch of a worker that is alone: enough for their words to be fetched together.
const BATCH_ALONE: usize = 16;

/// Frames that are written ahead of eviction at a time.
const AHEAD: usize = 16;
/// One in how many frames is cold: what is written more often than it is evicted is written in vain.
const COLD_SHARE: usize = 4;

/// Steps of one look for such frames, a few microseconds at most.
const AHEAD_LOOKS: usize = 128;
/// After a round over all that is cold has found nothing, how long none is begun. A round over the frames of 16 GiB takes 3 ms.
const AHEAD_REST_NS: u64 = 50_000_000;

/// What a look for frames to write ahead came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ahead {
    /// There may be more to do, once mail and arrivals have been looked at.
    Again,
    /// Not before this time, in nanoseconds of the clock.
    After(u64),
    /// There is nothing to do before a fiber has run.
    Nothing,
}

/// Where the round over the cold frames stands that looks for what to write ahead.
pub(crate) struct AheadRound {
    at: ColdCursor,
    /// Frames that it has looked at.
    looked: usize,
    found: bool,
    /// Turns of all workers when it began.
    begun_at: u64,
    /// The same of the last round that found nothing: while no fiber has run since, nothing was written.
    quiet_at: Option<u64>,
    rest_until_ns: u64,
}

impl AheadRound {
    pub(crate) const NEW: AheadRound =
        AheadRound { at: ColdCursor::START, looked: 0, found: false, begun_at: 0, quiet_at: None, rest_until_ns: 0 };
}

/// What of a range is still in DRAM, or on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StillThere {
    /// Frames, and writes under way.
    pub count: u64,
    /// Of the frames, those that are pinned.
    pub pinned: u64,
}

/// What the replacement policy may ask of the frames of one worker.
struct View<'a> {
    frames: &'a Frames,
    first: u32,
    /// What was written since a cut must not reach flash yet.
    held_back: bool,
    /// Write-backs that may still be begun.
    writes_left: usize,
    /// Frames that would have to be written back and may not be.
    refused: usize,
}

impl FrameView for View<'_> {
    #[inline]
    fn take_referenced(&mut self, frame: FrameIndex) -> bool {
        self.frames.take_referenced(self.first + frame.0)
    }
    #[inline]
    fn expect(&mut self, frame: FrameIndex) {
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.frames.marks(self.first + frame.0)).cast());
    }
    #[inline]
    fn evictable(&mut self, frame: FrameIndex) -> bool {
        let marks = self.frames.marks(self.first + frame.0);
        if marks.pins.load(Ordering::Relaxed) != 0 {
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
struct Victim {
    frame: u32,
    subpage: u32,
    touched: bool,
}

impl Worker {
    /// Keeps the free list stocked, and shrinks to the limit.
    pub(crate) fn make_room(&mut self) {
        if self.beyond > 0 {
            self.shrink();
        }
        let short = self.shortage();
        if short > 0 && (self.write_failure.is_none() || self.shared.clock.now_ns() >= self.retry_ns) {
            self.evict(short);
        }
        if !self.frame_waiters.is_empty() {
            while self.free.is_empty() {
                // What is being written already is on its way to somebody.
                let coming = self.writing.saturating_sub(self.late);
                let beyond = self.beyond;
                self.evict(self.frame_waiters.len().saturating_sub(coming));
                // A victim beyond the limit makes nobody a frame: on, to one that does.
                if self.beyond == beyond {
                    break;
                }
            }
            let now = self.shared.clock.now_ns();
            self.wake_frame_waiters(now);
            self.fail_frame_waiters_if_stuck(now);
        }
    }

    /// How many frames are to be evicted now: none, or a batch. Where write-backs are slow, frames under way make up most of the
    /// stock, and each miss leaves it short of one: that waits until it is a batch, as only what is written together goes out as
    /// one request.
    #[inline]
    pub(crate) fn shortage(&self) -> usize {
        if self.free.len() >= self.low_water {
            return 0;
        }
        // Alone there is no barrier to share, and what is written in small batches keeps reads waiting for less.
        let most = if self.shared.alone() { BATCH_ALONE } else { BATCH };
        let want = (2 * self.low_water).saturating_sub(self.free.len() + self.writing);
        if want >= most.min(self.low_water / 2).max(1) { want.min(most) } else { 0 }
    }

    /// Frees up to `want` frames, or starts to.
    pub(crate) fn evict(&mut self, want: usize) {
        if want == 0 {
            return;
        }
        let mut batch = [Victim::default(); BATCH];
        let mut count = 0;
        let mut named = [(0, 0); BATCH];
        let mut chosen = 0;
        let mut view = View {
            frames: &self.shared.frames,
            first: self.first_frame,
            held_back: self.shared.cut.holds_back(),
            writes_left: self.room_to_write(),
            refused: 0,
        };
        while chosen < want.min(BATCH) {
            let Some(FrameIndex(local)) = self.replacement.victim(&mut view) else { break };
            // A victim has been out of use for long, and so its word out of the caches: all of the batch are fetched at once.
            let known = self.replacement.last_victim_holds();
            let subpage = known.map_or_else(|| self.held[local as usize].subpage, |subpage| subpage.0);
            self.shared.table.will_change(subpage);
            self.shared.near.will_forget(subpage);
            self.expect(SubpageIndex(subpage));
            named[chosen] = (local, subpage);
            chosen += 1;
        }
        for &(local, subpage) in &named[..chosen] {
            if let Some(victim) = self.unlink(local, subpage) {
                batch[count] = victim;
                count += 1;
            }
        }
        self.finish_batch(&batch[..count]);
    }

    /// Hints to the caches what the policy will look at for this subpage.
    pub(crate) fn expect(&self, subpage: SubpageIndex) {
        if let Some(line) = self.replacement.will_look_at(subpage) {
            fulgurite_sys::arch::prefetch(line);
        }
    }

    /// Takes what lies beyond the limit out, wherever the policy has it.
    fn shrink(&mut self) {
        let mut batch = [Victim::default(); BATCH];
        let mut count = 0;
        // A few at a time, and round: some may be pinned for long.
        let (limit, end) = (self.frame_limit, self.held.len() as u32);
        for _ in 0..(end - limit).min(16 * BATCH as u32) {
            if count == BATCH {
                break;
            }
            let local = self.shrink_at.clamp(limit, end - 1);
            self.shrink_at = if local + 1 == end { limit } else { local + 1 };
            let linked = self.held[local as usize].linked;
            if linked && self.shared.frames.pins(self.first_frame + local).load(Ordering::Relaxed) == 0 {
                self.replacement.removed(index(local));
                if let Some(victim) = self.unlink(local, self.held[local as usize].subpage) {
                    batch[count] = victim;
                    count += 1;
                }
            }
        }
        self.finish_batch(&batch[..count]);
    }

    /// Unlinks a frame that was just taken out of the policy. `None`: it was touched that moment, and is back.
    fn unlink(&mut self, local: u32, subpage: u32) -> Option<Victim> {
        let frame = self.first_frame + local;
        debug_assert_eq!(self.held[local as usize].subpage, subpage, "the policy and the worker disagree on a frame");
        match self.shared.table.unlink(subpage, frame, self.id) {
            Some(touched) => {
                if !self.shared.has_planted(Planted::StaleNear) {
                    self.shared.near.forget(subpage);
                }
                self.held[local as usize].linked = false;
                Some(Victim { frame, subpage, touched })
            }
            None => {
                self.statistics.counts.evict_in_use += 1;
                self.replacement.reinstated(index(local), SubpageIndex(subpage));
                None
            }
        }
    }

    fn finish_batch(&mut self, batch: &[Victim]) {
        if batch.is_empty() {
            return;
        }
        let alone = self.shared.alone();
        if !alone {
            self.statistics.counts.barriers += 1;
            fulgurite_sys::barrier::expedited();
            self.read_slots();
        }
        for victim in batch {
            let &Victim { frame, subpage, touched } = victim;
            let local = frame - self.first_frame;
            let (in_use, mark) = self.shared.frames.marks(frame).look(|| !alone && self.used_elsewhere(frame));
            let dirty = has_changes(mark);
            // What was written since a cut is not part of its token.
            let held_back = mark == DIRTY && self.shared.cut.holds_back();
            if in_use || held_back || dirty && !self.has_room_to_write() {
                self.statistics.counts.evict_in_use += u64::from(in_use);
                self.held[local as usize].linked = true;
                self.replacement.reinstated(index(local), SubpageIndex(subpage));
                self.shared.table.finish(subpage, self.id, State::Resident(frame));
                continue;
            }
            if !touched {
                self.statistics.counts.prefetch_wasted += 1;
                self.prefetcher.wasted(SubpageIndex(subpage));
            }
            if dirty {
                self.begin_write_back(subpage, frame);
            } else {
                self.statistics.counts.evicted_clean += 1;
                if mark != CLEAN {
                    // Who gets the frame next says whether that may be written to.
                    self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
                }
                let state = if self.held[local as usize].fresh { State::Fresh } else { State::Absent };
                self.shared.table.finish(subpage, self.id, state);
                self.release_frame(frame);
            }
        }
    }

    /// Reads the slots of all other workers, once for a batch: each read fetches a line that its worker writes to at every hit.
    /// After the barrier; nobody can begin to use what was unlinked before that.
    fn read_slots(&mut self) {
        let others = self.shared.slots.iter().enumerate().filter(|(worker, _)| *worker != self.id as usize);
        self.slots_read.clear();
        self.slots_read.extend(others.map(|(_, slot)| slot.load(Ordering::Acquire)));
    }

    /// Whether a fiber that runs on another worker may hold an unpinned reference into the frame, as the slots were read.
    fn used_elsewhere(&self, frame: u32) -> bool {
        !self.shared.has_planted(Planted::NoSlots)
            && self.slots_read.iter().any(|&slot| residency::protects(slot, frame))
    }

    fn begin_write_back(&mut self, subpage: u32, frame: u32) {
        self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
        self.writing += 1;
        self.misses
            .begin(SubpageIndex(subpage), index(frame), MissKind::Write)
            .expect("a resident subpage is not in the miss table, which is as large as the queue is deep");
        self.submit(Op::Write, subpage, frame, Purpose::WriteBack, self.shared.clock.now_ns());
    }

    /// Lets fibers that wait for frames try again, as many as there are frames.
    pub(crate) fn wake_frame_waiters(&mut self, now_ns: u64) {
        if self.frame_waiters.is_empty() || !self.has_room() {
            return;
        }
        for _ in 0..self.free.len() {
            let Some(fiber) = self.frame_waiters.pop_front() else { break };
            self.stuck_since_ns = 0;
            self.fibers[fiber as usize].state.frame_turn.set(true);
            self.wake_local(fiber, Wake::Retry, now_ns);
        }
    }

    /// A write-back that would have given somebody a frame has failed: the first who waits for one is told.
    pub(crate) fn fail_first_frame_waiter(&mut self, now_ns: u64) {
        if let Some(error) = self.write_failure
            && self.free.is_empty()
            && let Some(fiber) = self.frame_waiters.pop_front()
        {
            self.stuck_since_ns = 0;
            self.wake_local(fiber, Wake::Failed(error), now_ns);
        }
    }

    /// When nothing that runs, reads or writes could ever free a frame, those who wait for one are told so. Where all fibers of
    /// the only worker wait for frames, that is certain; where others may give one back (a worker that uses or pins a frame of
    /// this one, a job that sleeps with a pin), they are given as long as the medium is.
    pub(crate) fn fail_frame_waiters_if_stuck(&mut self, now_ns: u64) {
        let moving = !self.free.is_empty() && self.has_room() || self.scheduler.has_runnable();
        // What a cut holds back goes when its token is named.
        let moving = moving || self.shared.cut.holds_back();
        if self.frame_waiters.is_empty() || moving || self.in_flight() > self.late {
            self.stuck_since_ns = 0;
            return;
        }
        let certain = self.shared.alone() && self.scheduler.pending() == self.frame_waiters.len();
        if !certain {
            if self.stuck_since_ns == 0 {
                self.stuck_since_ns = now_ns;
            }
            if now_ns - self.stuck_since_ns < crate::nanos(self.shared.config.device_timeout) {
                return;
            }
        }
        self.stuck_since_ns = 0;
        let wake = match self.write_failure {
            Some(error) => Wake::Failed(error),
            None if self.late > 0 => Wake::Failed(FlashError::TimedOut),
            None => Wake::OutOfFrames,
        };
        while let Some(fiber) = self.frame_waiters.pop_front() {
            self.wake_local(fiber, wake, now_ns);
        }
    }

    // ---- ahead of eviction ----------------------------------------------------------------------------------------------

    /// Writes back what will be evicted next and has changed, from where it lies: the worker has nothing to do, and the medium nothing
    /// of it. Then an eviction finds it clean, and a sync has less to write. Looks at a few frames a call, as mail and arrivals must not
    /// wait for all of them.
    pub(crate) fn write_ahead(&mut self) -> Ahead {
        if self.shared.cut.holds_back() || self.stopping() || !self.has_room_to_write() {
            return Ahead::Nothing;
        }
        let now = self.shared.clock.now_ns();
        if now < self.retry_ns {
            return Ahead::Nothing;
        }
        let turns = self.shared.turns();
        if self.ahead.quiet_at == Some(turns) {
            return Ahead::Nothing;
        }
        if now < self.ahead.rest_until_ns {
            return Ahead::After(self.ahead.rest_until_ns);
        }
        let (first, shared) = (self.first_frame, self.shared.clone());
        let (mut chosen, mut count) = ([0; AHEAD], 0);
        let mut looks = 0;
        let mut look = |frame: FrameIndex| {
            looks += 1;
            let marks = shared.frames.marks(first + frame.0);
            let idle = marks.dirty.load(Ordering::Relaxed) == DIRTY
                && marks.pins.load(Ordering::Relaxed) == 0
                && marks.referenced.load(Ordering::Relaxed) == 0;
            if idle && self.held[frame.index()].linked && marks.begin_write() {
                chosen[count] = frame.0;
                count += 1;
            }
            if count < AHEAD { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let round = &mut self.ahead;
        if round.at == ColdCursor::START {
            (round.begun_at, round.looked, round.found) = (turns, 0, false);
        }
        round.at = self.replacement.coldest(round.at, AHEAD_LOOKS, &mut look);
        round.looked += looks;
        self.statistics.counts.looks_ahead += looks as u64;
        if round.looked >= self.frame_limit as usize / COLD_SHARE {
            round.at = ColdCursor::START;
        }
        let begun = count > 0 && self.write_chosen(&chosen[..count], now);
        let round = &mut self.ahead;
        round.found |= begun;
        // What could not be begun because somebody uses it counts as nothing: he will have run when he does not any more.
        if round.at == ColdCursor::START && !round.found {
            round.quiet_at = Some(round.begun_at);
            round.rest_until_ns = now + AHEAD_REST_NS;
        }
        Ahead::Again
    }

    /// Writes these frames, which are marked as being written, from where they lie, those aside that somebody uses. Returns whether
    /// any was begun.
    fn write_chosen(&mut self, chosen: &[u32], now: u64) -> bool {
        let (first, shared) = (self.first_frame, self.shared.clone());
        let mut begun = false;
        if !shared.alone() {
            // Another worker may have looked at the mark just before: then its slot names the frame.
            self.statistics.counts.barriers += 1;
            fulgurite_sys::barrier::expedited();
            self.read_slots();
        }
        for &local in chosen {
            let frame = first + local;
            let marks = shared.frames.marks(frame);
            // Undone: the frame is as dirty as before, and writes to it do not wait for this one.
            let Some(used) = marks.second_look(|| !shared.alone() && self.used_elsewhere(frame)) else { continue };
            if used || !self.has_room_to_write() {
                marks.dirty.store(DIRTY, Ordering::Release);
                continue;
            }
            shared.pin(frame);
            self.writing += 1;
            self.statistics.counts.written_ahead += 1;
            self.submit(Op::Write, self.held[local as usize].subpage, frame, Purpose::Ahead, now);
            begun = true;
        }
        begun
    }

    // ---- a range leaves DRAM --------------------------------------------------------------------------------------------

    /// Takes subpages of a range out of DRAM: what has changed is written back, or dropped. Returns what could not go yet. No sync is
    /// under way.
    pub(crate) fn take_out(&mut self, range: &std::ops::Range<u32>, write_back: bool) -> StillThere {
        let mut still = StillThere::default();
        for local in 0..self.held.len() as u32 {
            let subpage = self.held[local as usize].subpage;
            if !self.held[local as usize].linked || !range.contains(&subpage) {
                continue;
            }
            let marks = self.shared.frames.marks(self.first_frame + local);
            if marks.pins.load(Ordering::Relaxed) > 0 {
                still.count += 1;
                still.pinned += 1;
                continue;
            }
            self.replacement.removed(index(local));
            if let Some(victim) = self.unlink(local, subpage) {
                let dirty = &self.shared.frames.marks(self.first_frame + local).dirty;
                if !write_back && has_changes(dirty.load(Ordering::Relaxed)) {
                    dirty.store(CLEAN, Ordering::Relaxed);
                }
                self.finish_batch(&[victim]);
            }
            still.count += u64::from(self.held[local as usize].linked);
        }
        still.count += self.writes_under_way(range);
        still
    }

    // ---- writing everything back --------------------------------------------------------------------------------------

    /// Starts the write-backs that somebody asked for; answers when the medium has flushed. Frames that are written to
    /// meanwhile may stay dirty.
    pub(crate) fn write_back(&mut self) {
        let result = self.write_back_all();
        for reply in std::mem::take(&mut self.write_back_requests) {
            let _ = reply.send(result);
        }
    }

    /// Writes all dirty frames back, waits for them, flushes the medium. Nobody runs on this worker meanwhile.
    pub(crate) fn write_back_all(&mut self) -> Result<(), FlashError> {
        self.first_write_failure = None;
        for local in Vec::from_iter(self.dirty()) {
            while !self.has_room_to_write() {
                self.wait_for_medium()?;
            }
            let frame = self.first_frame + local;
            if self.shared.frames.pins(frame).load(Ordering::Relaxed) == 0 {
                self.replacement.removed(index(local));
                if let Some(victim) = self.unlink(local, self.held[local as usize].subpage) {
                    self.finish_batch(&[victim]);
                }
            }
            if self.held[local as usize].linked {
                self.write_in_place(local);
            }
        }
        while self.writing > 0 {
            self.wait_for_medium()?;
        }
        if let Some(error) = self.first_write_failure {
            return Err(error);
        }
        while !self.has_room() {
            self.wait_for_medium()?;
        }
        self.flush_result = None;
        self.flush_number = self.flush_number.wrapping_add(1);
        let now = self.shared.clock.now_ns();
        self.submit(Op::Flush, self.flush_number, self.first_frame, Purpose::Flush, now);
        loop {
            self.wait_for_medium()?;
            if let Some(result) = self.flush_result.take() {
                return result;
            }
        }
    }

    /// Frames that hold what flash does not, by number within this worker, those aside that are being written.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = u32> {
        (0..self.held.len() as u32).filter(|&local| {
            let frame = self.first_frame + local;
            self.held[local as usize].linked
                && has_changes(self.shared.frames.marks(frame).dirty.load(Ordering::Relaxed))
        })
    }

    /// Writes a frame that a job holds on to, or uses on another worker. It stays dirty, as it may be stored into at any moment;
    /// the pin keeps it from being evicted, and so from being written a second time, until the medium is done.
    fn write_in_place(&mut self, local: u32) {
        let (frame, subpage) = (self.first_frame + local, self.held[local as usize].subpage);
        self.shared.pin(frame);
        self.writing += 1;
        self.submit(Op::Write, subpage, frame, Purpose::WriteInPlace, self.shared.clock.now_ns());
    }

    pub(crate) fn written_in_place(&mut self, frame: u32, result: Result<(), FlashError>) {
        self.writing -= 1;
        if self.shared.has_planted(Planted::InPlaceIsClean) {
            self.shared.frames.marks(frame).dirty.store(CLEAN, Ordering::Relaxed);
        }
        self.shared.unpin(frame);
        if let Err(error) = result {
            self.statistics.counts.write_errors += 1;
            self.first_write_failure = self.first_write_failure.or(Some(error));
        }
    }

    /// A flush has ended; only that of the latest counts.
    pub(crate) fn flushed(&mut self, number: u32, result: Result<(), FlashError>) {
        if number == self.flush_number {
            self.flush_result = Some(result);
        }
    }

    /// Waits for a completion, no longer than the medium may take.
    pub(crate) fn wait_for_medium(&mut self) -> Result<(), FlashError> {
        self.hand_over();
        let begin = self.shared.clock.now_ns();
        let limit = self.shared.config.device_timeout;
        loop {
            if self.poll() > 0 {
                return Ok(());
            }
            let waited = std::time::Duration::from_nanos(self.shared.clock.now_ns() - begin);
            if waited > limit {
                return Err(FlashError::TimedOut);
            }
            self.queue.wait(Some((limit - waited).min(std::time::Duration::from_millis(50))));
        }
    }
}
