//! What a fiber and its worker tell each other.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::control::Control;
use crate::faulted::Faulted;
use crate::mailbox::Wake;
use crate::shared::Shared;

/// What a fiber waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsFor {
    /// Its subpage, or the page of a fault.
    Flash,
    /// A frame, or room for a request.
    Frame,
    /// Another fiber or thread that holds a latch.
    Latch,
    /// A time or a future: nothing that the runtime can hasten.
    Outside,
}

/// What a fiber and its worker tell each other. Both are on one thread; cells are enough.
pub(crate) struct FiberState {
    pub index: u32,
    /// The worker that it belongs to.
    pub worker: u32,
    /// Kept by its write sections and pins.
    pub shared: Arc<Shared>,
    /// The fiber waits for a wake-up.
    pub waiting: Cell<bool>,
    /// Counts its waits, from 1: a wake-up that names an earlier one comes too late.
    pub ticket: Cell<u32>,
    pub waits_for: Cell<WaitsFor>,
    /// It waited for a frame and was notified of one: it comes before those that come now.
    pub frame_turn: Cell<bool>,
    /// The last wake-up.
    pub wake: Cell<Wake>,
    /// Which byte of its subpage the access that missed wants.
    pub wanted: Cell<u32>,
    /// About where its stack ended at its last switch. A hint to the caches, never followed.
    pub stack_top: Cell<*const u8>,
    /// When its request arrived: its age, to the scheduler.
    pub request_ns: Cell<u64>,
    /// When it missed, if it waits for a miss.
    pub missed_ns: Cell<u64>,
    /// Pins that the job may hold.
    pub pins_limit: Cell<u32>,
    /// Pins that an earlier job left, which somebody still holds.
    pub pins_left: Cell<u32>,
    /// How many there are of both.
    pub pins: Cell<u32>,
    /// Write sections that it is in, one inside the other.
    pub sections: Cell<u32>,
    pub control: std::cell::RefCell<Option<Arc<Control>>>,
    /// The job can be cancelled or has a deadline.
    pub bounded: Cell<bool>,
    /// What is notified of the ends of its faults.
    pub faulted: Arc<Faulted>,
}

impl FiberState {
    pub(crate) fn new(index: u32, worker: u32, shared: Arc<Shared>) -> Self {
        FiberState {
            index,
            worker,
            faulted: Arc::new(Faulted::new(index, worker, shared.mailboxes.clone())),
            shared,
            waiting: Cell::new(false),
            ticket: Cell::new(0),
            waits_for: Cell::new(WaitsFor::Outside),
            frame_turn: Cell::new(false),
            wake: Cell::new(Wake::Retry),
            wanted: Cell::new(0),
            stack_top: Cell::new(std::ptr::null()),
            request_ns: Cell::new(0),
            missed_ns: Cell::new(0),
            pins_limit: Cell::new(0),
            pins_left: Cell::new(0),
            pins: Cell::new(0),
            sections: Cell::new(0),
            control: std::cell::RefCell::default(),
            bounded: Cell::new(false),
        }
    }
    pub(crate) fn begin(&self, control: Option<Arc<Control>>, pins: u32, request_ns: u64) {
        self.frame_turn.set(false);
        self.pins_limit.set(pins);
        self.pins_left.set(self.pins.get());
        self.request_ns.set(request_ns);
        if control.is_some() || self.bounded.get() {
            self.bounded.set(control.is_some());
            *self.control.borrow_mut() = control;
        }
    }
    pub(crate) fn end(&self) {
        if self.bounded.replace(false) {
            *self.control.borrow_mut() = None;
        }
    }
    /// The deadline of its job, if it has one.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let control = self.control.borrow();
        control.as_ref().map(|c| c.deadline_ns).filter(|&ns| self.bounded.get() && ns != u64::MAX)
    }
    /// Whether its job was cancelled.
    pub(crate) fn cancelled(&self) -> bool {
        let control = self.control.borrow();
        self.bounded.get() && control.as_ref().is_some_and(|c| c.cancelled.load(Ordering::Relaxed))
    }
    /// The fiber begins to wait. Returns the ticket of this wait.
    pub(crate) fn begin_wait(&self, waits_for: WaitsFor) -> u32 {
        let ticket = self.ticket.get().wrapping_add(1).max(1);
        self.ticket.set(ticket);
        self.waits_for.set(waits_for);
        self.waiting.set(true);
        ticket
    }
    /// Pins that its jobs hold, pins of earlier jobs included.
    pub(crate) fn pins_held(&self) -> u32 {
        self.pins.get()
    }
    /// Whether it is in a write section.
    pub(crate) fn in_section(&self) -> bool {
        self.sections.get() > 0
    }
    /// For the successor of a fiber that died without unwinding: that one's wake-ups come too late
    /// for this.
    pub(crate) fn successor(&self) -> FiberState {
        let new = FiberState::new(self.index, self.worker, self.shared.clone());
        new.ticket.set(self.ticket.get());
        new
    }
}
