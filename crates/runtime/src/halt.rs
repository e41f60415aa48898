//! Gates and halts: how all workers agree on one state of the memory, and how it reaches flash
//! while they continue.
//!
//! ```text
//!  gate closed       halt              gate open                                 token named
//!      |               |                   |                                          |
//!      v open sections v  dirty frames are v  sealed frames are written from where    v
//!  ----+---- end ------+---- sealed -------+- they are, or from a copy if written to -+-> durable
//!      |<--------- gate wait ------------->|<----- new writes stay in DRAM ---------->|
//! ```
//!
//! A cut never divides *write sections*: operations and transactions. While the gate is closed none
//! begins, and open ones end. Reads, and writes outside of sections, continue but for the halt,
//! when every worker stands between two fibers. So no write outside of a section is before the cut
//! after it saw a later one.
//!
//! What a cut does to frames (sealing, writing, copying) is the cache's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use fulgurite_flash::FlashError;
use parking_lot::{Condvar, Mutex};

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
pub(crate) struct WorkerBarrier {
    workers: usize,
    came: AtomicUsize,
    round: AtomicU32,
    lock: Mutex<()>,
    all_here: Condvar,
}

/// How long a worker that waits for the others sleeps before it checks what has ended for it.
const SERVED_EVERY: std::time::Duration = std::time::Duration::from_micros(200);
/// How often a worker checks whether the others have come before it sleeps: some 20 microseconds.
const CHECKS: u32 = 500;

impl WorkerBarrier {
    fn new(workers: usize) -> WorkerBarrier {
        WorkerBarrier {
            workers,
            came: AtomicUsize::new(0),
            round: AtomicU32::new(0),
            lock: Mutex::new(()),
            all_here: Condvar::new(),
        }
    }
    /// Returns when all have come.
    pub(crate) fn meet(&self) {
        self.meet_serving(|| 0);
    }
    /// As [`Self::meet`], and calls `serve` now and then meanwhile: another worker may wait for
    /// this one, because a medium may need another queue to make room.
    pub(crate) fn meet_serving(&self, mut serve: impl FnMut() -> usize) {
        let round = self.round.load(Ordering::Acquire);
        if self.came.fetch_add(1, Ordering::AcqRel) + 1 == self.workers {
            self.came.store(0, Ordering::Relaxed);
            let _held = self.lock.lock();
            self.round.fetch_add(1, Ordering::AcqRel);
            self.all_here.notify_all();
            return;
        }
        for _ in 0..CHECKS {
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halted {
    /// To seal what is dirty.
    Seal,
    /// For a roll back: all requests end, and the workers stay halted until their frames' fate is
    /// decided.
    RollBack,
    /// To forget what is in frames, because nothing of it may be used any more.
    Poison,
}

/// What workers that were halted for a roll back do before they go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Nothing: the medium has changed nothing.
    Keep,
    /// They forget what is in their frames: the medium has another state, or it is unknown which.
    Forget,
}

/// What a worker did while it was halted.
#[derive(Debug, Default)]
pub(crate) struct HaltReport {
    /// The worker that reports.
    pub worker: u32,
    /// The sealed frames. The cache waits for them to come back sorted.
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
    pub what: Halted,
    pub meeting: WorkerBarrier,
    pub pins: AtomicU64,
    pub failure: Mutex<Option<FlashError>>,
    decided: Mutex<Option<Decision>>,
    decision: Condvar,
    /// Workers that have forgotten their frames.
    forgot: Mutex<usize>,
    all_forgot: Condvar,
    pub reports: std::sync::mpsc::Sender<HaltReport>,
}

impl Halt {
    pub(crate) fn new(what: Halted, workers: usize, reports: std::sync::mpsc::Sender<HaltReport>) -> Arc<Halt> {
        Arc::new(Halt {
            what,
            meeting: WorkerBarrier::new(workers),
            pins: AtomicU64::new(0),
            failure: Mutex::new(None),
            decided: Mutex::new(None),
            decision: Condvar::new(),
            forgot: Mutex::new(0),
            all_forgot: Condvar::new(),
            reports,
        })
    }
    /// Lets workers go on that were halted for a roll back.
    pub(crate) fn decide(&self, decision: Decision) {
        *self.decided.lock() = Some(decision);
        self.decision.notify_all();
    }
    /// A worker has forgotten its frames.
    pub(crate) fn forgotten(&self) {
        *self.forgot.lock() += 1;
        self.all_forgot.notify_all();
    }
    /// Waits until that number of workers have.
    pub(crate) fn wait_until_forgotten(&self, workers: usize) {
        let mut forgot = self.forgot.lock();
        while *forgot < workers {
            self.all_forgot.wait(&mut forgot);
        }
    }
    pub(crate) fn wait_for_decision(&self) -> Decision {
        let mut decided = self.decided.lock();
        loop {
            match *decided {
                Some(decision) => return decision,
                None => self.decision.wait(&mut decided),
            }
        }
    }
}
