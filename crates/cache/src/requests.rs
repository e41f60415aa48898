//! The requests of a cache: submitted, handed over, completed, given up.

use fulgurite_flash::{Completion, FlashError, Op, Switches};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_policy::{MissKind, Replacement, Waiter};

use crate::cache::{Cache, FrameSources, Outcome};
use crate::marks::DIRTY;
use crate::planted::Planted;
use crate::primitive::Ordering;
use crate::request::{Hints, NOBODY, Purpose, Request};
use crate::residency::State;
use crate::users::Users;

/// The pause of writes ahead of demand after a write-back failed. A medium that fails for good must
/// not keep the worker busy.
const RETRY_NS: u64 = 10_000_000;

/// Waiters as pins: there are never more than fibers, and of these never more than
/// [`crate::marks::PINS_MAX`].
fn held_by(waiters: u32) -> u16 {
    u16::try_from(waiters).expect("no more waiters than pins")
}

impl<U: Users, R: Replacement> Cache<U, R> {
    /// Whether another request may be begun.
    pub(crate) fn has_room(&self) -> bool {
        !self.requests_free.is_empty()
    }

    /// Whether another write-back may begin. They take at most half of the requests, so that reads
    /// continue.
    pub(crate) fn has_room_to_write(&self) -> bool {
        self.room_to_write() > 0
    }

    /// How many may be.
    pub(crate) fn room_to_write(&self) -> usize {
        (self.requests.len() / 2).max(1).saturating_sub(self.writing).min(self.requests_free.len())
    }

    /// Whether another of a sync's writes may begin. They may take more, so that they do not hold
    /// up jobs' writes. An eighth is left for reads.
    pub(crate) fn has_room_to_copy(&self) -> bool {
        self.has_room() && self.writing < (self.requests.len() * 7 / 8).max(1)
    }

    pub(crate) fn submit(&mut self, op: Op, subpage: u32, frame: FrameIndex, purpose: Purpose, since_ns: u64) -> u32 {
        let slot = self.requests_free.pop().expect("asked for room before");
        self.requests[slot as usize] =
            Request { subpage, frame, since_ns: since_ns.max(1), purpose, late: false, hints: Hints::default() };
        let request = fulgurite_flash::Request { tag: slot.into(), op, subpage: SubpageIndex(subpage), frame };
        self.queue.submit(request).expect("as many request slots as the queue is deep");
        self.unflushed += 1;
        slot
    }

    /// Evictions whose writes the medium has not completed.
    pub(crate) fn write_backs(&self) -> usize {
        self.requests.iter().filter(|r| r.since_ns != 0 && r.purpose == Purpose::WriteBack).count()
    }

    /// Hands the batch to the medium.
    pub fn hand_over(&mut self) {
        if self.unflushed > 0 {
            self.unflushed = 0;
            // A sync waits for them.
            let hold_writes = !self.shared.cut.holds_back();
            if hold_writes != self.holds_writes {
                self.holds_writes = hold_writes;
                self.queue.switch(Switches { hold_writes, notifies: self.notifies, ..Switches::default() });
            }
            // A medium that takes no more completes its requests with an error for their waiters.
            let _ = self.queue.flush();
        }
    }

    /// Takes the completions that are there, and returns their number. Reads the clock only if
    /// there are any. `expect` hears of a read's waiters a moment before they are woken, as a hint.
    pub fn poll(&mut self, expect: impl Fn(Waiter), now_ns: impl FnOnce() -> u64) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.queue.poll(&mut completions);
        if count > 0 {
            for completion in &completions {
                self.warm_up(completion.tag as u32, &expect);
            }
            let now = now_ns();
            for completion in completions.drain(..) {
                self.complete(completion, now);
            }
            self.wake_frame_waiters();
        }
        self.completions = completions;
        count
    }

    /// Prefetches what the completion of a read will need.
    #[inline]
    fn warm_up(&self, slot: u32, expect: &impl Fn(Waiter)) {
        let Request { subpage, frame, purpose, hints: Hints { waiter, wanted }, .. } = self.requests[slot as usize];
        if purpose != Purpose::Flush {
            fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.shared.table.word(subpage)).cast());
        }
        if waiter == NOBODY {
            return;
        }
        // Inside the frame: the hint needs an address, not a reference.
        // SAFETY: a request's frame is one of this cache's.
        let first = unsafe { self.shared.frames.address(frame) };
        fulgurite_sys::arch::prefetch(first.as_ptr().wrapping_add(wanted as usize));
        expect(waiter);
    }

    fn complete(&mut self, completion: Completion, now_ns: u64) {
        let slot = completion.tag as u32;
        let Request { subpage, frame, since_ns, purpose, late, hints } =
            std::mem::take(&mut self.requests[slot as usize]);
        assert!(since_ns != 0, "the medium completed a request twice");
        self.requests_free.push(slot);
        self.late -= usize::from(late);
        if purpose.writes() {
            self.count_for_cut(completion.result);
        }
        match purpose {
            Purpose::Abandoned if self.shared.has_planted(Planted::AbandonedIsFree) => {}
            Purpose::Abandoned => self.release_frame(frame),
            Purpose::Flush => self.flushed(subpage, completion.result),
            Purpose::Read => self.read_done(subpage, frame, completion.result),
            Purpose::Fetch => self.fetched(frame, hints.waiter, completion.result),
            Purpose::WriteBack => self.write_done(subpage, frame, completion.result, now_ns),
            Purpose::WriteInPlace => self.written_in_place(frame, completion.result),
            Purpose::Sealed => self.sealed_written(frame, completion.result),
            Purpose::Copied => self.copy_written(frame, completion.result),
            Purpose::Ahead => {
                if completion.result.is_err() {
                    self.retry_ns = now_ns + RETRY_NS;
                }
                self.written_from_place(frame, completion.result);
            }
        }
    }

    fn read_done(&mut self, subpage: u32, frame: FrameIndex, result: Result<(), FlashError>) {
        let waiters = self.misses.get(SubpageIndex(subpage)).expect("a read in flight is in the miss table").waiters;
        let result = if self.shared.has_planted(Planted::FailedIsRead) { Ok(()) } else { result };
        match result {
            Ok(()) => {
                // Held for each waiter until it has passed the access that missed: forward progress
                // (AstriFlash IV-C3).
                self.pin_for(waiters, frame);
                let state = if waiters > 0 { State::Resident(frame) } else { State::Prefetched(frame) };
                self.install(subpage, frame, false, state);
                self.end_miss(subpage, Outcome::Pinned);
            }
            Err(error) => {
                self.counts.read_errors += 1;
                self.shared.table.finish(subpage, self.id, State::Absent);
                self.release_frame(frame);
                self.end_miss(subpage, Outcome::Failed(error));
            }
        }
    }

    fn fetched(&mut self, frame: FrameIndex, waiter: Waiter, result: Result<(), FlashError>) {
        let outcome = match result {
            Ok(()) => Outcome::Fetched(frame),
            Err(error) => {
                self.counts.read_errors += 1;
                self.release_frame(frame);
                Outcome::Failed(error)
            }
        };
        self.notices.push((waiter, outcome));
    }

    fn pin_for(&self, waiters: u32, frame: FrameIndex) {
        if !self.shared.has_planted(Planted::NotPinned) {
            self.shared.frames.marks(frame).change_pins(held_by(waiters), self.shared.plain_pins());
        }
    }

    fn write_done(&mut self, subpage: u32, frame: FrameIndex, result: Result<(), FlashError>, now_ns: u64) {
        self.writing -= 1;
        let result = if self.shared.has_planted(Planted::FailedIsDone) { Ok(()) } else { result };
        let waiters = self.misses.get(SubpageIndex(subpage)).expect("a write-back is in the miss table").waiters;
        self.counts.evicted_dirty += u64::from(result.is_ok());
        self.write_failure = result.err();
        self.first_write_failure = self.first_write_failure.or(self.write_failure);
        if result.is_ok() && waiters == 0 {
            self.shared.table.finish(subpage, self.id, State::Absent);
            self.misses.complete(SubpageIndex(subpage), |_| ());
            self.release_frame(frame);
            return;
        }
        // Wanted again, or not to be lost: it stays.
        if result.is_err() {
            self.counts.write_errors += 1;
            self.shared.frames.marks(frame).dirty.store(DIRTY, Ordering::Relaxed);
            self.retry_ns = now_ns + RETRY_NS;
            self.fail_first_frame_waiter();
        }
        self.pin_for(waiters, frame);
        self.install(subpage, frame, false, State::Resident(frame));
        self.end_miss(subpage, Outcome::Pinned);
    }

    /// Tells the waiters of requests that the medium has not answered for too long.
    pub fn give_up_late_requests(&mut self, others: FrameSources, now_ns: u64) {
        let limit = self.device_timeout_ns;
        for slot in 0..self.requests.len() {
            let Request { subpage, frame, since_ns, purpose, late, hints } = self.requests[slot];
            if since_ns == 0 || now_ns.saturating_sub(since_ns) <= limit {
                continue;
            }
            if !late {
                self.late += 1;
                self.requests[slot].late = true;
            }
            match purpose {
                Purpose::Read => {
                    self.requests[slot].purpose = Purpose::Abandoned;
                    self.counts.timeouts += 1;
                    self.counts.read_errors += 1;
                    self.shared.table.finish(subpage, self.id, State::Absent);
                    self.end_miss(subpage, Outcome::Failed(FlashError::TimedOut));
                    if self.shared.has_planted(Planted::AbandonedIsFree) {
                        self.release_frame(frame);
                    }
                }
                Purpose::Fetch => {
                    self.requests[slot].purpose = Purpose::Abandoned;
                    self.counts.timeouts += 1;
                    self.counts.read_errors += 1;
                    self.notices.push((hints.waiter, Outcome::Failed(FlashError::TimedOut)));
                }
                // The medium has the frame with the only copy. Its readers fail, and it stays busy
                // until an answer comes.
                Purpose::WriteBack => {
                    self.counts.timeouts += 1;
                    self.write_failure = Some(FlashError::TimedOut);
                    self.first_write_failure = self.first_write_failure.or(self.write_failure);
                    self.fail_first_frame_waiter();
                    self.requests[slot].since_ns = now_ns;
                    self.end_miss(subpage, Outcome::Failed(FlashError::TimedOut));
                    self.misses.begin(SubpageIndex(subpage), frame, MissKind::Write).expect("ended just now");
                }
                Purpose::Flush => {
                    self.requests[slot].since_ns = now_ns;
                    self.flushed(subpage, Err(FlashError::TimedOut));
                }
                // Its frame is pinned until an answer comes, or nobody's.
                Purpose::WriteInPlace | Purpose::Sealed | Purpose::Ahead | Purpose::Copied => {
                    self.requests[slot].since_ns = now_ns;
                }
                Purpose::Abandoned => {}
            }
        }
        self.fail_frame_waiters_if_stuck(others, now_ns);
    }
}
