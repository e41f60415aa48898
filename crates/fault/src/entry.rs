//! Where faults come in, and where the pager is: with the handler thread, a thread that resolves
//! its own fault, or one that forks.
//!
//! ```text
//!  compatible:  kernel --userfaultfd--> handler thread, which has the pager for good
//!  in-line:     thread --SIGSEGV--> fault handler: takes the pager, begins, gives it back
//!                                     +--> reads by itself, and takes the pager again
//!                                     +--> sleeps on its gate <-- handler thread <-- completion
//!                                     +--> runs other fibers <---/
//! ```
//!
//! A fault handler runs with all signals blocked. What holds the pager touches no memory of the
//! region, and takes no lock that a program's thread holds without blocking signals.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fulgurite_flash::Request;
use fulgurite_sys::faults::{self, Fault, FaultOutcome};
use fulgurite_sys::threads::ProgramThreads;
use fulgurite_sys::{Gate, Notifier, gate, signals};

use crate::command::lock;
use crate::error::{Error, cannot};
use crate::own_reads::{Own, OwnReads};
use crate::pager::{CHECK_NS, FaultStart, IDLE, Pager, outcome_of};

/// How long a thread waits for another to end its fault, where all places for faults are taken.
const CROWDED: Duration = Duration::from_micros(200);
/// The handler thread's sleep while something is in flight on a medium that does not notify.
const POLL: Duration = Duration::from_micros(100);

/// See the module.
pub struct FaultEntry {
    /// Taken away by a child.
    pub pager: Mutex<Option<Box<Pager>>>,
    /// A thread wants to fork.
    pub forks: AtomicBool,
    /// Notified when all is ready for it, and when it is over.
    pub turns: Condvar,
    /// Where threads sleep, by their waits.
    pub gates: Arc<[Gate]>,
    /// Wakes the handler thread.
    pub notifier: Arc<Notifier>,
    /// Threads resolve their own faults.
    pub is_in_line: bool,
    /// The medium notifies at each completion.
    pub notifies: bool,
    /// Reads that threads do themselves.
    pub own: Arc<OwnReads>,
    /// Open once the handler thread has begun.
    pub has_begun: Gate,
    /// Watches for the end of the program's threads.
    pub program: OnceLock<Program>,
}

/// The threads of the program, and what is called with the end of the first one when all of them
/// have ended.
#[derive(Debug)]
pub struct Program {
    threads: Mutex<ProgramThreads>,
    ended: fn(i32),
}

impl Program {
    pub fn new(ended: fn(i32)) -> io::Result<Program> {
        Ok(Program { threads: Mutex::new(ProgramThreads::new()?), ended })
    }
    /// Checks whether its threads have ended. Returns whether the first one has.
    fn check_for_end(&self) -> bool {
        let mut threads = lock(&self.threads);
        if let Some(word) = threads.end() {
            (self.ended)(word);
        }
        threads.has_first_ended()
    }
}

impl std::fmt::Debug for FaultEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultEntry")
            .field("forks", &self.forks)
            .field("is_in_line", &self.is_in_line)
            .finish_non_exhaustive()
    }
}

impl FaultEntry {
    /// The handler thread's life.
    fn handle(&self) -> ! {
        let mut pager = lock(&self.pager);
        if let Some(pager) = pager.as_mut() {
            // Where it fails, the thread that made the pager is what is measured.
            let _ = pager.parts.budget.measure_by_this_thread();
        }
        self.has_begun.set(1);
        let mut next_check_ns = 0;
        loop {
            let forks = self.forks.load(Ordering::Acquire);
            let now = pager.as_mut().expect("only a child takes it away");
            if forks {
                // Here, because no other thread may use the queue of a handler thread.
                if now.ready.is_none() {
                    now.wind_down();
                    self.turns.notify_all();
                }
                pager = self.turns.wait(pager).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let is_busy = now.turn();
            if let Some(program) = self.program.get()
                && now.clock.now_ns() >= next_check_ns
            {
                now.is_near_end = program.check_for_end();
                next_check_ns = now.clock.now_ns() + CHECK_NS;
            }
            if !self.is_in_line {
                if !is_busy {
                    now.sleep();
                }
                continue;
            }
            let time = match now.sleep_time() {
                time if !self.notifies && now.cache.in_flight() > 0 => time.min(POLL),
                time => time,
            };
            drop(pager);
            if !is_busy {
                self.notifier.wait(Some(time));
            }
            pager = lock(&self.pager);
        }
    }

    /// Starts the handler thread.
    pub fn start(self: &Arc<FaultEntry>) -> Result<(), Error> {
        let entry = self.clone();
        // The program's signal handlers may touch its memory, for which this thread would wait.
        let started = signals::start_for_good(c"fulgurite", move || entry.handle());
        started.map_err(cannot("start the thread that handles faults"))?;
        // Until then it opens files.
        self.has_begun.wait_while(0);
        Ok(())
    }

    /// The pager, when no fork is under way.
    fn take(&self) -> MutexGuard<'_, Option<Box<Pager>>> {
        let mut pager = lock(&self.pager);
        while pager.as_ref().is_some_and(|pager| pager.winds_down) {
            pager = self.turns.wait(pager).unwrap_or_else(PoisonError::into_inner);
        }
        pager
    }

    /// Resolves a fault of this thread, or begins to, where it switches. All signals are blocked.
    pub fn handle_fault(&self, subpage: u32, fault: &Fault) -> FaultOutcome {
        let switches = faults::may_switch();
        self.wait_for(subpage, switches, |pager| pager.begin_fault(subpage, fault, switches))
    }

    /// Makes a subpage resident and pins it. Returns whether it is pinned. All signals are blocked.
    pub fn hold(&self, subpage: u32) -> bool {
        self.wait_for(subpage, false, |pager| pager.begin_hold(subpage)) == FaultOutcome::Again
    }

    /// Gives pins back.
    pub fn let_go(&self, subpages: impl Iterator<Item = u32>) {
        if let Some(pager) = lock(&self.pager).as_mut() {
            subpages.for_each(|subpage| pager.let_go(subpage));
        }
    }

    /// Begins a fault of a subpage, and waits for its end. With `switches`, its fiber does that.
    fn wait_for(&self, subpage: u32, switches: bool, mut begin: impl FnMut(&mut Pager) -> FaultStart) -> FaultOutcome {
        loop {
            let mut guard = self.take();
            let Some(pager) = guard.as_mut() else { return FaultOutcome::NotMine };
            if !switches {
                self.own.want(subpage);
            }
            let begun = begin(pager);
            if let (FaultStart::Waits(slot), true) = (begun, switches) {
                pager.switch(slot, faults::begin_switch());
            }
            let taken = self.own.taken();
            let wakes = pager.tend() || !self.notifies && pager.cache.in_flight() > 0;
            drop(guard);
            if wakes {
                self.notifier.notify();
            }
            if switches && matches!(begun, FaultStart::Waits(_)) {
                return FaultOutcome::Waits;
            }
            let gate = if let FaultStart::Waits(slot) = begun { Some(&self.gates[slot as usize]) } else { None };
            if let Some((own, request)) = taken {
                self.read(own, request, gate);
            }
            match (begun, gate) {
                (FaultStart::Ended(outcome), _) => return outcome,
                (_, Some(gate)) => {
                    let ended = gate.wait_while(IDLE);
                    gate.set_quietly(IDLE);
                    return outcome_of(ended);
                }
                (_, None) => gate::nap(CROWDED),
            }
        }
    }

    /// Does a read of this thread, and takes it up.
    fn read(&self, own: Own, request: Request, gate: Option<&Gate>) {
        self.own.read(own, request);
        if self.forks.load(Ordering::Acquire) {
            // The handler thread has the pager, and waits for this.
            self.notifier.notify();
        }
        // Another thread may have taken it up.
        if gate.is_some_and(|gate| gate.get() != IDLE) {
            return;
        }
        let mut guard = self.take();
        let wakes = guard.as_mut().is_some_and(|pager| pager.take_up());
        drop(guard);
        if wakes {
            self.notifier.notify();
        }
    }
}
