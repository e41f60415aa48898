//! What is notified that a fiber's fault has ended: by the thread that ended it, for the fiber's
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fulgurite_sys::faults::{FaultOutcome, Waiter};

use crate::mailbox::Mailbox;

/// A fiber waits for one fault at a time, and only its end wakes it. So this is used again for
/// each.
pub(crate) struct Faulted {
    fiber: u32,
    worker: u32,
    /// Of all workers. They may outlive the runtime for a moment, and nothing else of it does.
    mailboxes: Arc<[Mailbox]>,
    ticket: AtomicU32,
    failed: AtomicBool,
}

impl Faulted {
    pub(crate) fn new(fiber: u32, worker: u32, mailboxes: Arc<[Mailbox]>) -> Faulted {
        Faulted { fiber, worker, mailboxes, ticket: AtomicU32::new(0), failed: AtomicBool::new(false) }
    }
    /// The fiber begins to wait, with this ticket.
    pub(crate) fn begin(&self, ticket: u32) {
        self.ticket.store(ticket, Ordering::Relaxed);
    }
    /// What the fault that has ended says of its access.
    pub(crate) fn outcome(&self) -> FaultOutcome {
        if self.failed.load(Ordering::Relaxed) { FaultOutcome::Failed } else { FaultOutcome::Again }
    }
}

impl Waiter for Faulted {
    fn end(&self, outcome: FaultOutcome) {
        // Before the mail, which the fiber's worker takes.
        self.failed.store(outcome == FaultOutcome::Failed, Ordering::Relaxed);
        self.mailboxes[self.worker as usize].fault_ended(self.fiber, self.ticket.load(Ordering::Relaxed));
    }
}
