//! A worker's part in a cut and a roll back: its gate, and its work during the halt. See `halt`.

use std::sync::atomic::Ordering;

use fulgurite_cache::Sealed;
use fulgurite_flash::FlashError;

use crate::fibers::wait_for_medium;
use crate::halt::{Decision, Halt, HaltReport, Halted};
use crate::mailbox::{Message, Wake};
use crate::worker::Worker;

impl Worker {
    /// Closes the gate: `drained` is notified when no section is open.
    pub(crate) fn close_gate(&mut self, drained: std::sync::mpsc::Sender<()>) {
        self.shared.gates[self.id as usize].closed.store(true, Ordering::Relaxed);
        self.drained = Some(drained);
    }

    /// Opens the gate and lets waiters in.
    pub(crate) fn open_gate(&mut self) {
        self.drained = None;
        self.shared.gates[self.id as usize].closed.store(false, Ordering::Relaxed);
        for (fiber, ticket) in std::mem::take(&mut self.fibers.gate_waiters) {
            self.fibers.wake_ticket(fiber, ticket, Wake::Retry);
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
        if self.fibers.cache.has_to_pump() {
            self.fibers.cache.pump(self.shared.clock.now_ns());
        }
    }

    /// Whether the next scheduling point has something to do for a cut.
    #[inline]
    pub(crate) fn cut_goes_on(&self) -> bool {
        self.drained.is_some() || self.fibers.cache.has_to_pump()
    }

    /// Stands still with all other workers. At a scheduling point: no fiber of any worker runs.
    pub(crate) fn halt(&mut self, halt: &Halt) {
        let begun = self.shared.clock.now_ns();
        halt.meeting.meet();
        let mut report = HaltReport { worker: self.id, ..HaltReport::default() };
        match halt.what {
            Halted::Seal => {
                self.shared.cache.cut.hold_back();
                let Sealed { order, sealed, pinned } = self.fibers.cache.seal();
                let shared = self.shared.clone();
                let now = shared.clock.now_ns();
                self.fibers.cache.write_pinned(&pinned, now, &mut |cache| wait_for_medium(&shared, cache));
                self.fibers.deliver();
                (report.order, report.sealed, report.copied) = (order, sealed, pinned.len() as u64);
                halt.meeting.meet_serving(|| self.fibers.poll());
            }
            Halted::RollBack => {
                let mine: u64 = self.fibers.states.iter().map(|state| u64::from(state.pins_held())).sum();
                halt.pins.fetch_add(mine, Ordering::AcqRel);
                halt.meeting.meet();
                report.pins = halt.pins.load(Ordering::Acquire);
                if report.pins == 0 {
                    if let Err(error) = self.let_everything_end() {
                        halt.failure.lock().get_or_insert(error);
                    }
                    halt.meeting.meet_serving(|| self.fibers.poll());
                    report.failure = *halt.failure.lock();
                }
            }
            Halted::Poison => {
                // What does not end is read for accesses that fail.
                let _ = self.let_everything_end();
                halt.meeting.meet_serving(|| self.fibers.poll());
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
            halt.forgotten();
        }
    }

    /// Waits until nothing is under way, and tells what has become of it.
    fn let_everything_end(&mut self) -> Result<(), FlashError> {
        let shared = self.shared.clone();
        let ended = self.fibers.cache.let_everything_end(&mut |cache| wait_for_medium(&shared, cache));
        self.fibers.deliver();
        ended
    }

    /// Forgets the frames' contents, which are in flash or not wanted any more. Nothing is under
    /// way. Only in a poisoned memory do jobs still hold pins: their frames stay, but no access
    /// finds them.
    fn forget_frames(&mut self) {
        // Fibers that were notified of a frame try again.
        for state in self.fibers.states.iter().filter(|state| state.wake.get() == Wake::Pinned) {
            state.wake.set(Wake::Retry);
        }
        let shared = self.shared.clone();
        while let Some(message) = shared.mailboxes[self.id as usize].next() {
            match message {
                Message::Wake { fiber, ticket: 0, wake: Wake::Pinned } => {
                    self.fibers.wake_local(fiber, Wake::Retry, shared.clock.now_ns());
                }
                other => self.mail_put_off.push_back(other),
            }
        }
        self.fibers.cache.forget(shared.poisoned.get().is_some());
    }
}
