//! The backside: what happens on a miss, and when its completion comes in.
//!
//! A worker reads for its own fibers into its own frames. When two workers miss on the same subpage, the one whose
//! compare-and-swap wins owns the miss; the other sends its fiber's name there and is told (or, if the owner has finished
//! meanwhile, told to look again).

use fulgurite_flash::{Completion, FlashError, Op};
use fulgurite_format::SubpageIndex;
use fulgurite_policy::{MissKind, Replacement, Waiter};

use crate::context::WaitsFor;
use crate::mailbox::{Message, Wake};
use crate::planted::Planted;
use crate::worker::{Held, Worker, pack};
use fulgurite_cache::frames::index;
use fulgurite_cache::marks::{ASKS, CLEAN, DIRTY, READ_ONLY, has_changes};
use fulgurite_cache::residency::{self, State};
use std::sync::atomic::Ordering;

/// After a write-back failed, how long none is tried ahead of demand: a medium that fails for good must not keep the
/// worker busy.
const RETRY_NS: u64 = 10_000_000;

/// Lines of a suspended fiber's stack that it reads first when it goes on: what the switch and the miss path saved.
const STACK_LINES: usize = 4;

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    subpage: u32,
    frame: u32,
    /// When it was submitted; 0 if the slot is not in use.
    since_ns: u64,
    purpose: Purpose,
    /// It has been given up on once, and may never come back.
    late: bool,
    /// For whom a read was begun: where to look for what comes with the subpage.
    hints: Hints,
}

/// What will be wanted when a read completes, all of it out of the near caches by then: the medium writes the subpage
/// through another cache, and other fibers have run meanwhile.
#[derive(Clone, Copy, Debug)]
struct Hints {
    fiber: u32,
    /// The byte of the subpage that the fiber wants first.
    wanted: u32,
}

impl Default for Hints {
    fn default() -> Self {
        Hints { fiber: NOBODY, wanted: 0 }
    }
}

/// A read that no fiber has begun.
const NOBODY: u32 = u32::MAX;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Purpose {
    /// Contents for whoever waits, or for the one who will.
    #[default]
    Read,
    /// Contents back to flash.
    WriteBack,
    /// The same of a frame that is in use and stays.
    WriteInPlace,
    /// The medium did not answer in time; its waiters were told. The frame is still the medium's.
    Abandoned,
    /// The contents of a sealed frame, from where they lie.
    Sealed,
    /// The contents of a sealed frame, from a copy.
    Copied,
    /// The contents of a frame that will be evicted soon, from where they lie.
    Ahead,
    /// A flush of the medium.
    Flush,
}

/// Waiters as pins: there are never more than fibers, and of these never more than pins ([`fulgurite_cache::marks::PINS_MAX`]).
fn held_by(waiters: u32) -> u16 {
    u16::try_from(waiters).expect("more waiters than fibers")
}

/// What the access that missed does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Looks again: the state has changed.
    Again,
    /// Switches; the wake-up says more.
    Wait,
}

impl Worker {
    /// An access of `fiber` found `subpage` not resident.
    pub(crate) fn begin_miss(&mut self, subpage: u32, fiber: u32) -> Step {
        self.queue.will_poll();
        if self.shared.table.surely_absent(subpage) {
            return self.begin_read(subpage, fiber);
        }
        match residency::decode(self.shared.table.word(subpage).load(Ordering::Acquire)) {
            State::Resident(_) => Step::Again,
            State::Prefetched(frame) => {
                if residency::first_touch(self.shared.table.word(subpage), frame) {
                    self.statistics.counts.prefetch_used += 1;
                    let ahead = self.prefetcher.used(SubpageIndex(subpage));
                    self.read_ahead(ahead);
                }
                Step::Again
            }
            State::Busy(owner) if owner == self.id => {
                self.statistics.counts.misses_joined += 1;
                let joined = self.misses.join(SubpageIndex(subpage), pack(self.id, fiber));
                assert!(joined.is_ok(), "a subpage that this worker is busy with is not in its miss table: {joined:?}");
                self.will_wait(fiber, WaitsFor::Flash, self.shared.clock.now_ns());
                if self.misses.get(SubpageIndex(subpage)).is_some_and(|m| m.kind == MissKind::Prefetch) {
                    // Read ahead, but not far enough: it counts as used.
                    self.misses.set_kind(SubpageIndex(subpage), MissKind::Read);
                    self.statistics.counts.prefetch_used += 1;
                    let ahead = self.prefetcher.used(SubpageIndex(subpage));
                    self.read_ahead(ahead);
                }
                Step::Wait
            }
            State::Busy(owner) => {
                self.statistics.counts.misses_joined += 1;
                self.will_wait(fiber, WaitsFor::Flash, self.shared.clock.now_ns());
                let waiter = pack(self.id, fiber);
                self.shared.mailboxes[owner as usize].send(Message::Join { subpage, waiter });
                Step::Wait
            }
            State::Fresh | State::Absent => self.begin_read(subpage, fiber),
        }
    }

    fn begin_read(&mut self, subpage: u32, fiber: u32) -> Step {
        let turn = self.fibers[fiber as usize].state.frame_turn.replace(false);
        // Who comes while others wait for a frame goes behind them, or one job could keep a single frame for ever.
        let taken = if turn || self.frame_waiters.is_empty() { self.take_frame() } else { None };
        let Some(frame) = taken else {
            self.statistics.counts.frame_waits += 1;
            if turn {
                self.frame_waiters.push_front(fiber);
            } else {
                self.frame_waiters.push_back(fiber);
            }
            self.will_wait(fiber, WaitsFor::Frame, self.shared.clock.now_ns());
            return Step::Wait;
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
                self.statistics.counts.fresh += 1;
                self.install(subpage, frame, true, State::Resident(frame));
                Step::Again
            }
            Ok(_) => {
                self.statistics.counts.misses += 1;
                self.misses.begin(SubpageIndex(subpage), index(frame), MissKind::Read).expect(
                    "a subpage that was absent is not in the miss table, which is as large as the queue is deep",
                );
                self.misses
                    .join(SubpageIndex(subpage), pack(self.id, fiber))
                    .expect("the miss table has room for every fiber");
                let now = self.shared.clock.now_ns();
                let slot = self.submit(Op::Read, subpage, frame, Purpose::Read, now);
                let wanted = self.fibers[fiber as usize].state.wanted.get();
                self.requests[slot as usize].hints = Hints { fiber, wanted };
                self.will_wait(fiber, WaitsFor::Flash, now);
                self.expect(SubpageIndex(subpage));
                let ahead = self.prefetcher.missed(SubpageIndex(subpage));
                self.read_ahead(ahead);
                Step::Wait
            }
        }
    }

    /// Whether another request may be begun.
    pub(crate) fn has_room(&self) -> bool {
        !self.requests_free.is_empty()
    }

    /// Whether another write-back may be begun: they never take more than half of the requests, so that reads go on.
    pub(crate) fn has_room_to_write(&self) -> bool {
        self.room_to_write() > 0
    }

    /// How many may be.
    pub(crate) fn room_to_write(&self) -> usize {
        (self.requests.len() / 2).max(1).saturating_sub(self.writing).min(self.requests_free.len())
    }

    /// The same for writes that a sync waits for: they may take more, and what jobs write to meanwhile is not held up by those that
    /// are under way. An eighth is left for reads.
    pub(crate) fn has_room_to_copy(&self) -> bool {
        self.has_room() && self.writing < (self.requests.len() * 7 / 8).max(1)
    }

    /// A frame for a miss, if there is one and a request may be begun.
    fn take_frame(&mut self) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        if self.free.is_empty() {
            // Demand ran ahead of the evictor. The fiber that asks holds no unpinned reference now.
            self.evict(8);
            // Write-backs may have taken the last request.
            if !self.has_room() {
                return None;
            }
        }
        self.free.pop()
    }

    /// Starts reading subpages that will probably be wanted, where that costs nobody a frame.
    fn read_ahead(&mut self, range: Option<std::ops::Range<u32>>) {
        let Some(range) = range else { return };
        for subpage in range.start..range.end.min(self.shared.layout.subpages) {
            if !self.prefetch(subpage) {
                return;
            }
        }
    }

    /// Starts reading one subpage that nobody waits for. Returns whether there was room for it.
    pub(crate) fn prefetch(&mut self, subpage: u32) -> bool {
        if !self.shared.table.is_absent(subpage) {
            return true;
        }
        if self.requests_free.len() < 16 || self.free.len() <= self.low_water / 2 {
            return false;
        }
        let Some(frame) = self.free.pop() else { return false };
        match self.shared.table.begin(subpage, self.id) {
            Ok(State::Absent) => {
                self.statistics.counts.prefetched += 1;
                self.misses.begin(SubpageIndex(subpage), index(frame), MissKind::Prefetch).expect(
                    "a subpage that was absent is not in the miss table, which is as large as the queue is deep",
                );
                self.submit(Op::Read, subpage, frame, Purpose::Read, self.shared.clock.now_ns());
            }
            Ok(was) => {
                self.shared.table.finish(subpage, self.id, was);
                self.release_frame(frame);
            }
            Err(_) => self.release_frame(frame),
        }
        true
    }

    /// Requests that the medium has not completed.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.len() - self.requests_free.len()
    }

    pub(crate) fn submit(&mut self, op: Op, subpage: u32, frame: u32, purpose: Purpose, since_ns: u64) -> u32 {
        let slot = self.requests_free.pop().expect("asked for room before");
        self.requests[slot as usize] =
            Request { subpage, frame, since_ns, purpose, late: false, hints: Hints::default() };
        let request =
            fulgurite_flash::Request { tag: slot.into(), op, subpage: SubpageIndex(subpage), frame: index(frame) };
        self.queue.submit(request).expect("as many request slots as the queue is deep");
        self.unflushed += 1;
        slot
    }

    /// Writes of a range that the medium has not completed.
    pub(crate) fn writes_under_way(&self, range: &std::ops::Range<u32>) -> u64 {
        let writes =
            |r: &&Request| r.since_ns != 0 && !matches!(r.purpose, Purpose::Read | Purpose::Abandoned | Purpose::Flush);
        self.requests.iter().filter(writes).filter(|r| range.contains(&r.subpage)).count() as u64
    }

    /// Evictions whose writes the medium has not completed.
    pub(crate) fn write_backs(&self) -> usize {
        self.requests.iter().filter(|r| r.since_ns != 0 && r.purpose == Purpose::WriteBack).count()
    }

    /// Hands the batch to the medium.
    pub(crate) fn hand_over(&mut self) {
        if self.unflushed > 0 {
            self.unflushed = 0;
            // A sync waits for them.
            self.queue.hold_writes(!self.shared.cut.holds_back());
            // A medium that takes no more completes its requests with an error, which their waiters get.
            let _ = self.queue.flush();
        }
    }

    /// Takes the completions that are there; returns how many.
    pub(crate) fn poll(&mut self) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.queue.poll(&mut completions);
        if count > 0 {
            for completion in &completions {
                self.warm_up(completion.tag as u32);
            }
            let now = self.shared.clock.now_ns();
            for completion in completions.drain(..) {
                self.complete(completion, now);
            }
            self.wake_frame_waiters(now);
        }
        self.completions = completions;
        count
    }

    fn complete(&mut self, completion: Completion, now_ns: u64) {
        let slot = completion.tag as u32;
        let Request { subpage, frame, since_ns, purpose, late, .. } = std::mem::take(&mut self.requests[slot as usize]);
        assert!(since_ns != 0, "the medium completed a request twice");
        self.requests_free.push(slot);
        self.late -= usize::from(late);
        if !matches!(purpose, Purpose::Read | Purpose::Abandoned | Purpose::Flush) {
            self.count_for_cut(completion.result);
        }
        match purpose {
            Purpose::Abandoned => self.release_frame(frame),
            Purpose::Flush => self.flushed(subpage, completion.result),
            Purpose::Read => self.read_done(subpage, frame, completion.result, now_ns),
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

    fn read_done(&mut self, subpage: u32, frame: u32, result: Result<(), FlashError>, now_ns: u64) {
        let waiters = self.misses.get(SubpageIndex(subpage)).expect("a read in flight is in the miss table").waiters;
        match result {
            Ok(()) => {
                // Held for each waiter until it has run past the access that missed: forward progress (AstriFlash IV-C3).
                self.shared.change_pins(frame, held_by(waiters));
                let state = if waiters > 0 { State::Resident(frame) } else { State::Prefetched(frame) };
                self.install(subpage, frame, false, state);
                self.end_miss(subpage, Wake::Pinned, now_ns);
            }
            Err(error) => {
                self.statistics.counts.read_errors += 1;
                self.shared.table.finish(subpage, self.id, State::Absent);
                self.release_frame(frame);
                self.end_miss(subpage, Wake::Failed(error), now_ns);
            }
        }
    }

    fn write_done(&mut self, subpage: u32, frame: u32, result: Result<(), FlashError>, now_ns: u64) {
        self.writing -= 1;
        let result = if self.shared.has_planted(Planted::FailedIsDone) { Ok(()) } else { result };
        let waiters = self.misses.get(SubpageIndex(subpage)).expect("a write-back is in the miss table").waiters;
        self.statistics.counts.evicted_dirty += u64::from(result.is_ok());
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
            self.statistics.counts.write_errors += 1;
            self.shared.frames.marks(frame).dirty.store(DIRTY, Ordering::Relaxed);
            self.retry_ns = now_ns + RETRY_NS;
            self.fail_first_frame_waiter(now_ns);
        }
        self.shared.change_pins(frame, held_by(waiters));
        self.install(subpage, frame, false, State::Resident(frame));
        self.end_miss(subpage, Wake::Pinned, now_ns);
    }

    /// Gives a frame with contents to its subpage.
    fn install(&mut self, subpage: u32, frame: u32, fresh: bool, state: State) {
        let local = (frame - self.first_frame) as usize;
        self.held[local] = Held { subpage, fresh, linked: true, out: false };
        self.shared.frames.take_referenced(frame);
        if self.shared.restricts {
            // What could not be written back was written while it might be, and is not to be lost.
            if !has_changes(self.shared.frames.marks(frame).dirty.load(Ordering::Relaxed)) {
                let may = self.shared.flash.may(subpage, true);
                let mark = if may { self.mark_of_clean() } else { READ_ONLY };
                self.shared.frames.marks(frame).dirty.store(mark, Ordering::Relaxed);
            }
        }
        self.replacement.inserted(index(local as u32), SubpageIndex(subpage));
        self.shared.table.finish(subpage, self.id, state);
    }

    /// The mark of a frame whose content flash holds. Where the medium has begun to ask who writes, it is asked for all others as well.
    pub(crate) fn mark_of_clean(&mut self) -> u8 {
        let asks = self.shared.restricts && self.shared.flash.asks();
        if asks != self.asks {
            self.asks = asks;
            if asks {
                let all = self.first_frame..self.first_frame + self.held.len() as u32;
                all.for_each(|frame| self.shared.frames.marks(frame).ask_before_writes());
            }
        }
        if asks { ASKS } else { CLEAN }
    }

    fn end_miss(&mut self, subpage: u32, wake: Wake, now_ns: u64) {
        // One waits for most subpages; all are told after the table is done with it, as telling may use the table.
        let (mut first, mut more) = (None, Vec::new());
        self.misses.complete(SubpageIndex(subpage), |waiter| match first {
            None => first = Some(waiter),
            Some(_) => more.push(waiter),
        });
        for waiter in first.into_iter().chain(more) {
            self.deliver(waiter, wake, now_ns);
        }
    }

    /// Starts to fetch what the completion of a read will want: the sooner, the less of it is waited for.
    #[inline]
    fn warm_up(&self, slot: u32) {
        let Request { subpage, frame, purpose, hints: Hints { fiber, wanted }, .. } = self.requests[slot as usize];
        if purpose != Purpose::Flush {
            fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.shared.table.word(subpage)).cast());
        }
        let Some(slot) = self.fibers.get(fiber as usize) else { return };
        // Inside the frame: the hint needs an address, not a reference.
        // SAFETY: a request's frame is one of ours.
        let first = unsafe { self.shared.frames.address(frame) };
        fulgurite_sys::arch::prefetch(first.as_ptr().wrapping_add(wanted as usize));
        let stack: *const u8 = slot.state.stack_top.get();
        for line in 0..STACK_LINES {
            fulgurite_sys::arch::prefetch(stack.wrapping_add(64 * line));
        }
    }

    /// A fiber of another worker wants a subpage that this one was busy with.
    pub(crate) fn join_from_outside(&mut self, subpage: u32, waiter: Waiter) {
        if self.misses.join(SubpageIndex(subpage), waiter).is_err() {
            let now = self.shared.clock.now_ns();
            self.deliver(waiter, Wake::Retry, now);
        }
    }

    /// Tells the waiters of requests that the medium has not answered for too long.
    pub(crate) fn give_up_late_requests(&mut self, now_ns: u64) {
        let limit = crate::nanos(self.shared.config.device_timeout);
        let limit = limit.max(1);
        for slot in 0..self.requests.len() {
            let Request { subpage, since_ns, purpose, late, .. } = self.requests[slot];
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
                    self.statistics.counts.timeouts += 1;
                    self.statistics.counts.read_errors += 1;
                    self.shared.table.finish(subpage, self.id, State::Absent);
                    self.end_miss(subpage, Wake::Failed(FlashError::TimedOut), now_ns);
                }
                // The frame is the medium's and holds the only copy: its readers fail, it stays busy until an answer comes.
                Purpose::WriteBack => {
                    self.statistics.counts.timeouts += 1;
                    self.write_failure = Some(FlashError::TimedOut);
                    self.first_write_failure = self.first_write_failure.or(self.write_failure);
                    self.fail_first_frame_waiter(now_ns);
                    self.requests[slot].since_ns = now_ns;
                    let frame = self.requests[slot].frame;
                    self.end_miss(subpage, Wake::Failed(FlashError::TimedOut), now_ns);
                    self.misses.begin(SubpageIndex(subpage), index(frame), MissKind::Write).expect("ended just now");
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
        self.fail_frame_waiters_if_stuck(now_ns);
    }
}
