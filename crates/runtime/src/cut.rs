//! The cut: how all workers agree on one state of the memory, and how that state reaches flash while they go on.
//!
//! ```text
//!  gate closed         halt              gate open                                        token named
//!      |                |                    |                                                 |
//!      v  open sections v  dirty frames are  v  sealed frames are written from where they lie, v
//!  ----+----- end -----+---- sealed --------+-- or from a copy if somebody writes to one ------+------> durable
//!      |<------ gate wait ------------------>|<------ what is written now stays in DRAM ------>|
//! ```
//!
//! *Write sections* are what a cut never divides: operations and transactions. While the gate is closed none begins; those that
//! are open end. Reads, and writes outside of sections, go on, but for the halt: a moment in which every worker stands between
//! two fibers, so that no write outside of a section that saw a later one is on the earlier side.
//!
//! A *sealed* frame holds a state that the token needs and flash has not. A write to it copies it first (copy on write), or waits
//! where its very bytes are on their way to the medium. Frames that a job has pinned may be written to at any moment and are
//! copied during the halt. What is written after the cut must not reach flash before the token is named, or it would be part of
//! it: such frames are not evicted until then.
//!
//! Invariants:
//! * Marks change to and from [`SEALED`] only while all workers are halted, by compare-and-swap after that.
//! * A sealed frame is written exactly once: by the pump, by its eviction, or as a copy. [`Cut::left`] counts those that are not
//!   written, and the write-backs that were under way at the cut.
//! * A frame that a job has pinned is neither sealed nor being written from where it lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use fulgurite_flash::{FlashError, Op};
use fulgurite_policy::Replacement;
use parking_lot::{Condvar, Mutex};

use crate::mailbox::{Message, Wake};
use crate::miss::Purpose;
use crate::planted::Planted;
use crate::worker::Worker;
use fulgurite_cache::State;
use fulgurite_cache::frames::index;
use fulgurite_cache::marks::{ASKS, CLEAN, COPYING, DIRTY, READ_ONLY, SEALED, WRITING, has_changes};

/// Most writes of sealed frames that a worker has under way: six requests of 256 KiB, as a medium makes one of neighbours. What has
/// ended is recorded in batches, and the medium must not run dry meanwhile.
const PUMP_DEPTH: usize = 384;
/// The same while somebody waits for a read, which then is not behind many of them.
const PUMP_DEPTH_BESIDE_READS: usize = 96;
/// Writes that are begun together, so that they go out as large requests while others keep the medium busy.
const PUMP_BATCH: usize = 64;

/// One worker's gate. Only its thread touches it; atomics because its fibers share it.
#[derive(Default)]
pub(crate) struct Gate {
    pub closed: AtomicBool,
    /// Fibers inside a write section.
    pub open_sections: AtomicU32,
}

impl Gate {
    /// A fiber goes in.
    #[inline]
    pub(crate) fn enter(&self) {
        self.open_sections.store(self.open_sections.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    /// A fiber has come out.
    #[inline]
    pub(crate) fn leave(&self) {
        self.open_sections.store(self.open_sections.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

/// What all workers know of the cut.
#[derive(Default)]
pub(crate) struct Cut {
    /// From the halt until the token is named: what is written meanwhile must not reach flash.
    held_back: AtomicBool,
    /// From the halt until the sync has ended, which makes room where there was none.
    makes_room: AtomicBool,
    /// Writes that the token needs and that have not ended.
    left: AtomicU64,
    /// Whoever made the cut has given up: when nothing is left, what was held back may go.
    abandoned: AtomicBool,
    failure: Mutex<Option<FlashError>>,
    /// Who waits until nothing is left.
    waits: Mutex<Option<std::thread::Thread>>,
}

impl Cut {
    /// Whether what is written now must stay in DRAM.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.held_back.load(Ordering::Acquire)
    }
    /// The calling thread will wait for what this cut leaves to be written.
    pub(crate) fn begin(&self) {
        *self.failure.lock() = None;
        *self.waits.lock() = Some(std::thread::current());
        self.abandoned.store(false, Ordering::Relaxed);
    }
    /// Whether a sync is being written, after which there may be room for what there is none for now.
    pub(crate) fn makes_room(&self) -> bool {
        self.makes_room.load(Ordering::Acquire)
    }
    /// No sync is being written any more.
    pub(crate) fn over(&self) {
        self.makes_room.store(false, Ordering::Release);
    }
    /// What is written from now on is not part of the token. While all workers are halted.
    pub(crate) fn hold_back(&self) {
        self.makes_room.store(true, Ordering::Release);
        self.held_back.store(true, Ordering::Release);
    }
    /// The token is named, or there will be none.
    pub(crate) fn end(&self) {
        self.held_back.store(false, Ordering::Release);
    }
    /// What is left will be written, but nobody waits for it any more.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        if self.left.load(Ordering::SeqCst) == 0 {
            self.end();
        }
    }
    /// Writes that have not ended.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }
    /// The first write that failed, if one did.
    pub(crate) fn failure(&self) -> Option<FlashError> {
        *self.failure.lock()
    }
    /// A write that the token needs went wrong, whatever becomes of it: there is no token.
    fn failed(&self, error: FlashError) {
        self.failure.lock().get_or_insert(error);
    }
    fn add(&self, writes: u64) {
        self.left.fetch_add(writes, Ordering::AcqRel);
    }
    /// A write that was begun before the cut, or because of it, has ended.
    fn one_ended(&self, result: Result<(), FlashError>) {
        if let Err(error) = result {
            self.failed(error);
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            if self.abandoned.load(Ordering::SeqCst) {
                self.end();
            }
            if let Some(thread) = &*self.waits.lock() {
                thread.unpark();
            }
        }
    }
}

/// A place where all workers come together.
pub(crate) struct Meeting {
    workers: usize,
    came: AtomicUsize,
    round: AtomicU32,
    lock: Mutex<()>,
    all_here: Condvar,
}

/// How often a worker looks whether the others have come before it sleeps: some 20 microseconds.
const LOOKS: u32 = 500;

impl Meeting {
    fn new(workers: usize) -> Meeting {
        Meeting {
            workers,
            came: AtomicUsize::new(0),
            round: AtomicU32::new(0),
            lock: Mutex::new(()),
            all_here: Condvar::new(),
        }
    }
    /// Returns when all have come.
    fn meet(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.came.fetch_add(1, Ordering::AcqRel) + 1 == self.workers {
            self.came.store(0, Ordering::Relaxed);
            let _held = self.lock.lock();
            self.round.fetch_add(1, Ordering::AcqRel);
            self.all_here.notify_all();
            return;
        }
        for _ in 0..LOOKS {
            if self.round.load(Ordering::Acquire) != round {
                return;
            }
            fulgurite_sys::arch::relax();
        }
        let mut held = self.lock.lock();
        while self.round.load(Ordering::Acquire) == round {
            self.all_here.wait(&mut held);
        }
    }
}

/// What a halt is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halted {
    /// To seal what is dirty.
    Seal,
    /// To roll back: all requests end, and the workers stay halted until it is decided what becomes of their frames.
    RollBack,
    /// To forget what lies in frames, because nothing of it may be used any more.
    Poison,
}

/// What workers that were halted for a roll back do before they go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Nothing: the medium has changed nothing.
    Keep,
    /// They forget what lies in their frames: the medium has another state, or nobody knows which.
    Forget,
}

/// Whether a frame may be written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsealed {
    /// Now.
    Yes,
    /// In a moment: ask again.
    Later,
    /// Its page has no permission.
    Never,
    /// The medium has no room for one more change.
    Refused(FlashError),
}

/// What a worker did while it was halted.
#[derive(Debug, Default)]
pub(crate) struct HaltReport {
    /// Who reports.
    pub worker: u32,
    /// The sealed frames, as [`sealed_at`] notes them. The worker waits for them to come back in the order in which to write them.
    pub order: Vec<u64>,
    /// Frames that were sealed.
    pub sealed: u64,
    /// Frames that were copied, or written, because they are pinned.
    pub copied: u64,
    /// How long the worker stood still, in nanoseconds.
    pub stood_ns: u64,
    /// Pins that jobs of all workers hold, for which the worker goes on.
    pub pins: u64,
    /// What was under way did not end, and the worker goes on.
    pub failure: Option<FlashError>,
}

/// A sealed frame of a worker, so that sorting puts neighbouring subpages side by side: they are then written together, and a store
/// records them together, wherever their frames lie.
fn sealed_at(subpage: u32, local: u32) -> u64 {
    u64::from(subpage) << 32 | u64::from(local)
}

/// A halt of all workers.
pub(crate) struct Halt {
    what: Halted,
    meeting: Meeting,
    pins: AtomicU64,
    failure: Mutex<Option<FlashError>>,
    decided: Mutex<Option<Decision>>,
    decision: Condvar,
    reports: std::sync::mpsc::Sender<HaltReport>,
}

impl Halt {
    pub(crate) fn new(what: Halted, workers: usize, reports: std::sync::mpsc::Sender<HaltReport>) -> Arc<Halt> {
        Arc::new(Halt {
            what,
            meeting: Meeting::new(workers),
            pins: AtomicU64::new(0),
            failure: Mutex::new(None),
            decided: Mutex::new(None),
            decision: Condvar::new(),
            reports,
        })
    }
    /// Lets workers go on that were halted for a roll back.
    pub(crate) fn decide(&self, decision: Decision) {
        *self.decided.lock() = Some(decision);
        self.decision.notify_all();
    }
    fn wait_for_decision(&self) -> Decision {
        let mut decided = self.decided.lock();
        loop {
            match *decided {
                Some(decision) => return decision,
                None => self.decision.wait(&mut decided),
            }
        }
    }
}

impl Worker {
    /// Closes the gate: `drained` is told when no section is open.
    pub(crate) fn close_gate(&mut self, drained: std::sync::mpsc::Sender<()>) {
        self.shared.gates[self.id as usize].closed.store(true, Ordering::Relaxed);
        self.drained = Some(drained);
    }

    /// Opens the gate and lets in who waits.
    pub(crate) fn open_gate(&mut self) {
        self.drained = None;
        self.shared.gates[self.id as usize].closed.store(false, Ordering::Relaxed);
        for (fiber, ticket) in std::mem::take(&mut self.gate_waiters) {
            self.wake_ticket(fiber, ticket, Wake::Retry);
        }
    }

    /// At each scheduling point while a cut is made.
    pub(crate) fn go_on_with_cut(&mut self) {
        if self.drained.is_some()
            && self.shared.gates[self.id as usize].open_sections.load(Ordering::Relaxed) == 0
            && let Some(drained) = self.drained.take()
        {
            let _ = drained.send(());
        }
        self.pump();
    }

    /// Whether the next scheduling point has something to do for a cut.
    #[inline]
    pub(crate) fn cut_goes_on(&self) -> bool {
        self.drained.is_some() || self.pump_at < self.pump_order.len()
    }

    /// Stands still with all other workers. At a scheduling point: no fiber of any worker runs.
    pub(crate) fn halt(&mut self, halt: &Halt) {
        let begun = self.shared.clock.now_ns();
        halt.meeting.meet();
        let mut report = HaltReport { worker: self.id, ..HaltReport::default() };
        match halt.what {
            Halted::Seal => {
                self.shared.cut.hold_back();
                (report.sealed, report.copied) = self.seal();
                report.order = std::mem::take(&mut self.pump_order);
                halt.meeting.meet();
            }
            Halted::RollBack => {
                let mine: u64 = self.fibers.iter().map(|slot| u64::from(slot.state.pins_held())).sum();
                halt.pins.fetch_add(mine, Ordering::AcqRel);
                halt.meeting.meet();
                report.pins = halt.pins.load(Ordering::Acquire);
                if report.pins == 0 {
                    if let Err(error) = self.let_everything_end() {
                        halt.failure.lock().get_or_insert(error);
                    }
                    halt.meeting.meet();
                    report.failure = *halt.failure.lock();
                }
            }
            Halted::Poison => {
                // What does not end is read for accesses that fail.
                let _ = self.let_everything_end();
                halt.meeting.meet();
                self.forget_frames();
                halt.meeting.meet();
            }
        }
        report.stood_ns = self.shared.clock.now_ns() - begun;
        let waits = halt.what == Halted::RollBack && report.pins == 0 && report.failure.is_none();
        let _ = halt.reports.send(report);
        if waits && halt.wait_for_decision() == Decision::Forget {
            self.forget_frames();
            halt.meeting.meet();
        }
    }

    /// Seals what is dirty; copies what is dirty and pinned. Returns how many of each.
    fn seal(&mut self) -> (u64, u64) {
        let (mut sealed, mut pinned) = (0, Vec::new());
        let mut order = std::mem::take(&mut self.pump_order);
        order.clear();
        for local in self.dirty() {
            let frame = self.first_frame + local;
            let marks = self.shared.frames.marks(frame);
            if marks.dirty.load(Ordering::Relaxed) == WRITING {
                // On its way already, and counted with what is.
                continue;
            }
            if marks.pins.load(Ordering::Relaxed) == 0 {
                marks.dirty.store(SEALED, Ordering::Relaxed);
                order.push(sealed_at(self.held[local as usize].subpage, local));
                sealed += 1;
            } else {
                pinned.push(local);
            }
        }
        (self.pump_order, self.pump_at) = (order, 0);
        // What is being written already is part of the state, too.
        self.shared.cut.add(sealed + self.writing as u64);
        for &local in &pinned {
            self.shared.cut.add(1);
            let (frame, subpage) = (self.first_frame + local, self.held[local as usize].subpage);
            if self.free.is_empty() || !self.has_room_to_write() {
                self.write_now(subpage, frame);
            } else {
                self.write_copy(subpage, frame);
            }
        }
        self.statistics.counts.sealed += sealed;
        self.statistics.counts.copied += pinned.len() as u64;
        (sealed, pinned.len() as u64)
    }

    /// Writes a pinned frame from where it lies, and waits for that: there is no frame to copy it to. Nobody runs meanwhile.
    fn write_now(&mut self, subpage: u32, frame: u32) {
        while !self.has_room_to_write() {
            if let Err(error) = self.wait_for_medium() {
                self.shared.cut.one_ended(Err(error));
                return;
            }
        }
        self.shared.pin(frame);
        self.writing += 1;
        self.submit(Op::Write, subpage, frame, Purpose::WriteInPlace, self.shared.clock.now_ns());
        // Completions come in any order: all that this worker has under way has to end.
        while self.writing > 0 {
            if let Err(error) = self.wait_for_medium() {
                // It is still on its way, and counted. Its job goes on now and may write to it: what then gets to the medium is
                // part of no state.
                self.shared.cut.failed(error);
                return;
            }
        }
    }

    /// Copies a frame to a free one and writes that. The caller has looked that there is one, and room for a request.
    fn write_copy(&mut self, subpage: u32, frame: u32) {
        let copy = self.free.pop().expect("the caller has looked");
        self.shared.frames.copy(frame, copy);
        self.writing += 1;
        self.submit(Op::Write, subpage, copy, Purpose::Copied, self.shared.clock.now_ns());
    }

    /// Starts writes of sealed frames, a batch at a time. Three quarters of the requests are theirs, half of those while somebody
    /// reads: sealed frames cannot be given away before, and a few requests stay for copies ([`Worker::has_room_to_copy`]).
    fn pump(&mut self) {
        let end = self.pump_order.len();
        if self.pump_at >= end {
            return;
        }
        let reading = self.in_flight() > self.writing;
        let (most, share) = if reading { (PUMP_DEPTH_BESIDE_READS, 3) } else { (PUMP_DEPTH, 6) };
        let depth = most.min(self.requests.len() * share / 8).max(1);
        if depth.saturating_sub(self.pumped) < PUMP_BATCH.min(depth / 2).max(1) {
            return;
        }
        let now = self.shared.clock.now_ns();
        while self.pump_at < end && self.pumped < depth && self.has_room_to_copy() {
            let local = self.pump_order[self.pump_at] as u32;
            self.pump_at += 1;
            let frame = self.first_frame + local;
            let dirty = &self.shared.frames.marks(frame).dirty;
            if dirty.load(Ordering::Relaxed) == SEALED
                && dirty.compare_exchange(SEALED, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                debug_assert!(self.held[local as usize].linked, "a sealed frame holds something");
                self.shared.pin(frame);
                self.writing += 1;
                self.pumped += 1;
                let subpage = self.held[local as usize].subpage;
                self.submit(Op::Write, subpage, frame, Purpose::Sealed, now);
            }
        }
    }

    /// Takes sealed frames in the order in which to write them.
    pub(crate) fn begin_pump(&mut self, order: Vec<u64>) {
        (self.pump_order, self.pump_at) = (order, 0);
    }

    /// How many frames differ from the medium, or may come to without that it is asked: because a job has pinned them, or because
    /// they are on their way there.
    pub(crate) fn count_changes(&mut self) -> u64 {
        // From here on it is asked for all that do not.
        let _ = self.mark_of_clean();
        let differs = |&local: &u32| {
            let marks = self.shared.frames.marks(self.first_frame + local);
            self.held[local as usize].linked
                && (has_changes(marks.dirty.load(Ordering::Relaxed)) || marks.pins.load(Ordering::Relaxed) > 0)
        };
        let count = (0..self.held.len() as u32).filter(differs).count();
        (count + self.write_backs()) as u64
    }

    /// Makes a sealed frame one that may be written to; for a sync, if it is the runtime's own job that asks.
    pub(crate) fn unseal(&mut self, subpage: u32, frame: u32, for_sync: bool) -> Unsealed {
        let shared = self.shared.clone();
        let dirty = &shared.frames.marks(frame).dirty;
        let seen = dirty.load(Ordering::Acquire);
        if seen <= DIRTY {
            return Unsealed::Yes;
        }
        if seen == READ_ONLY {
            return Unsealed::Never;
        }
        if seen == ASKS {
            return match shared.flash.begin_change(for_sync) {
                Ok(()) => {
                    shared.frames.marks(frame).has_asked();
                    Unsealed::Yes
                }
                // The sync that is being written makes room.
                Err(_) if shared.cut.makes_room() => Unsealed::Later,
                Err(FlashError::NoSpace) if shared.flash.waits_for_room() => Unsealed::Later,
                Err(error) => Unsealed::Refused(error),
            };
        }
        if seen != SEALED || self.free.is_empty() || !self.has_room_to_copy() {
            return Unsealed::Later;
        }
        // One more change than the one that is being written.
        if shared.restricts && shared.flash.asks() && shared.flash.begin_change(false).is_err() {
            return Unsealed::Later;
        }
        if dirty.compare_exchange(SEALED, COPYING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.write_copy(subpage, frame);
            self.statistics.counts.copied += 1;
            dirty.store(DIRTY, Ordering::Release);
            return Unsealed::Yes;
        }
        Unsealed::Later
    }

    /// The write of a sealed frame from where it lies has ended.
    pub(crate) fn sealed_written(&mut self, frame: u32, result: Result<(), FlashError>) {
        self.pumped -= 1;
        self.written_from_place(frame, result);
    }

    /// The write of a frame that nobody could write to meanwhile has ended.
    pub(crate) fn written_from_place(&mut self, frame: u32, result: Result<(), FlashError>) {
        self.writing -= 1;
        self.shared.unpin(frame);
        self.statistics.counts.write_errors += u64::from(result.is_err());
        // It has contents on flash now, and is not "fresh" when it goes.
        if !self.shared.has_planted(Planted::StaysFresh) {
            self.held[(frame - self.first_frame) as usize].fresh &= result.is_err();
        }
        let mark = if result.is_err() { DIRTY } else { self.mark_of_clean() };
        self.shared.frames.marks(frame).dirty.store(mark, Ordering::Release);
    }

    /// The write of a copy has ended; the frame that it was copied from is dirty in any case.
    pub(crate) fn copy_written(&mut self, copy: u32, result: Result<(), FlashError>) {
        self.writing -= 1;
        self.statistics.counts.write_errors += u64::from(result.is_err());
        self.release_frame(copy);
    }

    /// A write has ended: one that the token waits for, if a cut is being written.
    pub(crate) fn count_for_cut(&mut self, result: Result<(), FlashError>) {
        if self.shared.cut.holds_back() {
            self.shared.cut.one_ended(result);
        }
    }

    // ---- roll back ------------------------------------------------------------------------------------------------------

    /// Waits until nothing is under way.
    fn let_everything_end(&mut self) -> Result<(), FlashError> {
        while self.in_flight() > 0 {
            self.wait_for_medium()?;
        }
        Ok(())
    }

    /// Forgets what lies in the frames: it is in flash, or not wanted any more. Nothing is under way. Frames that a job has pinned, which there
    /// are in a memory that was poisoned only, stay as they are, but nobody finds them.
    fn forget_frames(&mut self) {
        // Who was told of a frame looks again.
        for slot in &self.fibers {
            if slot.state.wake.get() == Wake::Pinned {
                slot.state.wake.set(Wake::Retry);
            }
        }
        let shared = self.shared.clone();
        let poisoned = shared.poisoned.get().is_some();
        while let Some(message) = shared.mailboxes[self.id as usize].next() {
            match message {
                Message::Wake { fiber, ticket: 0, wake: Wake::Pinned } => {
                    self.wake_local(fiber, Wake::Retry, shared.clock.now_ns());
                }
                other => self.mail_put_off.push_back(other),
            }
        }
        for local in 0..self.held.len() as u32 {
            let frame = self.first_frame + local;
            let marks = shared.frames.marks(frame);
            let pinned = poisoned && marks.pins.load(Ordering::Relaxed) > 0;
            if self.held[local as usize].linked {
                let subpage = self.held[local as usize].subpage;
                let empty = self.held[local as usize].fresh && !has_changes(marks.dirty.load(Ordering::Relaxed));
                self.replacement.removed(index(local));
                shared.table.unlink(subpage, frame, self.id).expect("a linked frame holds its subpage");
                shared.near.forget(subpage);
                self.held[local as usize].linked = false;
                shared.table.finish(subpage, self.id, if empty { State::Fresh } else { State::Absent });
                if !pinned {
                    self.release_frame(frame);
                }
            }
            if !pinned {
                marks.dirty.store(CLEAN, Ordering::Relaxed);
                marks.pins.store(0, Ordering::Relaxed);
            }
        }
    }
}
