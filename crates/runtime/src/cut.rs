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
//! What a cut does to frames (sealing, writing, copying) is the cache's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use fulgurite_cache::Sealed;
use fulgurite_flash::FlashError;
use parking_lot::{Condvar, Mutex};

use crate::mailbox::{Message, Wake};
use crate::worker::{Worker, wait_for_medium};

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

/// A place where all workers come together.
pub(crate) struct Meeting {
    workers: usize,
    came: AtomicUsize,
    round: AtomicU32,
    lock: Mutex<()>,
    all_here: Condvar,
}

/// How long a worker that waits for the others sleeps before it looks what has ended for it.
const SERVED_EVERY: std::time::Duration = std::time::Duration::from_micros(200);
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
        self.meet_serving(|| 0);
    }
    /// The same, and calls `serve` now and then until they have: what another waits for may be for this worker to take. A medium makes
    /// room for one's writes by what it asks for through another's queue.
    fn meet_serving(&self, mut serve: impl FnMut() -> usize) {
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
        loop {
            serve();
            let mut held = self.lock.lock();
            if self.round.load(Ordering::Acquire) != round {
                return;
            }
            self.all_here.wait_for(&mut held, SERVED_EVERY);
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

/// What a worker did while it was halted.
#[derive(Debug, Default)]
pub(crate) struct HaltReport {
    /// Who reports.
    pub worker: u32,
    /// The sealed frames. The cache waits for them to come back in the order in which to write them.
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
        if self.cache.has_to_pump() {
            self.cache.pump(self.shared.clock.now_ns());
        }
    }

    /// Whether the next scheduling point has something to do for a cut.
    #[inline]
    pub(crate) fn cut_goes_on(&self) -> bool {
        self.drained.is_some() || self.cache.has_to_pump()
    }

    /// Stands still with all other workers. At a scheduling point: no fiber of any worker runs.
    pub(crate) fn halt(&mut self, halt: &Halt) {
        let begun = self.shared.clock.now_ns();
        halt.meeting.meet();
        let mut report = HaltReport { worker: self.id, ..HaltReport::default() };
        match halt.what {
            Halted::Seal => {
                self.shared.cache.cut.hold_back();
                let Sealed { order, sealed, pinned } = self.cache.seal();
                let shared = self.shared.clone();
                let now = shared.clock.now_ns();
                self.cache.write_pinned(&pinned, now, &mut |cache| wait_for_medium(&shared, cache));
                self.tell();
                (report.order, report.sealed, report.copied) = (order, sealed, pinned.len() as u64);
                halt.meeting.meet_serving(|| self.poll());
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
                    halt.meeting.meet_serving(|| self.poll());
                    report.failure = *halt.failure.lock();
                }
            }
            Halted::Poison => {
                // What does not end is read for accesses that fail.
                let _ = self.let_everything_end();
                halt.meeting.meet_serving(|| self.poll());
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

    /// Waits until nothing is under way, and tells what has become of it.
    fn let_everything_end(&mut self) -> Result<(), FlashError> {
        let shared = self.shared.clone();
        let ended = self.cache.let_everything_end(&mut |cache| wait_for_medium(&shared, cache));
        self.tell();
        ended
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
        while let Some(message) = shared.mailboxes[self.id as usize].next() {
            match message {
                Message::Wake { fiber, ticket: 0, wake: Wake::Pinned } => {
                    self.wake_local(fiber, Wake::Retry, shared.clock.now_ns());
                }
                other => self.mail_put_off.push_back(other),
            }
        }
        self.cache.forget(shared.poisoned.get().is_some());
    }
}
