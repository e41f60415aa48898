//! Mailboxes: how other threads reach a worker. Sending takes no lock, and one flag tells of mail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use crossbeam_queue::{ArrayQueue, SegQueue};
use fulgurite_cache::StillThere;
use fulgurite_flash::FlashError;
use fulgurite_format::FrameIndex;
use fulgurite_policy::Waiter;
use fulgurite_sys::Notifier;

use crate::halt::Halt;
use crate::stats::WorkerStatistics;

/// Why a fiber that waited runs again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// Try the access again.
    Retry,
    /// The subpage is resident and pinned once for this fiber.
    Pinned,
    /// What was to be fetched is in this frame, which is this fiber's.
    Fetched(FrameIndex),
    /// The medium failed.
    Failed(FlashError),
    /// There is no frame for it, and there will be none.
    OutOfFrames,
    /// The runtime stops, and what the fiber waits for may never come.
    ShutDown,
}

/// What can be said to a worker.
pub(crate) enum Message {
    /// Somebody wants a subpage that this worker has begun to read or to write back.
    Join {
        subpage: u32,
        waiter: Waiter,
    },
    /// A thread missed a subpage, and waits with this ticket.
    Miss {
        seat: u32,
        ticket: u32,
        turn: bool,
        subpage: u32,
        wanted: u32,
    },
    /// A thread wants contents of a subpage that are not cached in frames.
    Fetch {
        seat: u32,
        ticket: u32,
        turn: bool,
        subpage: u32,
    },
    /// A thread is going to overwrite all of these subpages, and waits with this ticket.
    Blank {
        seat: u32,
        ticket: u32,
        subpages: std::ops::Range<u32>,
    },
    /// A thread has copied what was fetched into this frame of this worker.
    EndFetch(FrameIndex),
    /// That number of threads may run operations themselves. Tell when they may.
    Seats {
        count: usize,
        reply: std::sync::mpsc::Sender<()>,
    },
    /// A fiber of this worker may continue: from the wait with this ticket, or from any wait if
    /// that is 0.
    Wake {
        fiber: u32,
        ticket: u32,
        wake: Wake,
    },
    /// There is a service, or a job of the runtime itself, for this worker.
    Work,
    SetFrames(u32),
    /// Tell the statistics; start anew if asked.
    Statistics {
        reset: bool,
        reply: std::sync::mpsc::Sender<WorkerStatistics>,
    },
    /// Let no write section begin; tell when none is open.
    CloseGate(std::sync::mpsc::Sender<()>),
    /// Let write sections begin again.
    OpenGate,
    /// Stand still with all other workers.
    Halt(Arc<Halt>),
    /// Write these sealed frames, in this order.
    Pump(Vec<u64>),
    /// Take ascending ranges of subpages out of DRAM, with their changes written back or dropped,
    /// and tell what is still there.
    TakeOut {
        ranges: Arc<[std::ops::Range<u32>]>,
        write_back: bool,
        reply: std::sync::mpsc::Sender<StillThere>,
    },
    /// Tell how many frames differ from the medium.
    CountChanges(std::sync::mpsc::Sender<u64>),
    /// Check everything: something has changed.
    Nudge,
    /// Write all dirty frames back and flush the medium.
    WriteBack(std::sync::mpsc::Sender<Result<(), FlashError>>),
    /// A job was cancelled: should it wait for something that may take long, it need not.
    Cancelled,
    /// Begin no more jobs; end when those that have begun have ended, on all workers.
    Stop,
}

/// One worker's mail.
pub(crate) struct Mailbox {
    queue: SegQueue<Message>,
    /// Fibers whose faults have ended, and the tickets of these waits. The thread that ends a fault
    /// must not allocate.
    faults: ArrayQueue<(u32, u32)>,
    has_mail: AtomicBool,
    sleeping: AtomicBool,
    /// It sleeps, and would begin a job that any worker may run, of fewer pins than this.
    open: AtomicU32,
    notifier: Arc<Notifier>,
}

impl Mailbox {
    /// For a worker of `fibers` fibers.
    pub(crate) fn new(fibers: usize) -> std::io::Result<Mailbox> {
        Ok(Mailbox {
            queue: SegQueue::new(),
            faults: ArrayQueue::new(fibers),
            has_mail: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            open: AtomicU32::new(0),
            notifier: Arc::new(Notifier::new()?),
        })
    }
    pub(crate) fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }
    pub(crate) fn send(&self, message: Message) {
        self.queue.push(message);
        self.has_mail.store(true, Ordering::Release);
        self.nudge();
    }
    /// The fault has ended for which a fiber waits with this ticket. Allocates nothing.
    ///
    /// # Panics
    /// When that is said of more fibers than there are.
    pub(crate) fn fault_ended(&self, fiber: u32, ticket: u32) {
        self.faults.push((fiber, ticket)).expect("a fiber waits for one fault at a time");
        self.has_mail.store(true, Ordering::Release);
        self.nudge();
    }
    fn pop(&self) -> Option<Message> {
        let ended = self.faults.pop().map(|(fiber, ticket)| Message::Wake { fiber, ticket, wake: Wake::Retry });
        ended.or_else(|| self.queue.pop())
    }
    /// Wakes the worker if it sleeps.
    pub(crate) fn nudge(&self) {
        // Against `sleep`: either we see `sleeping`, or it sees what we stored before.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.notifier.notify();
        }
    }
    /// Whether there may be mail: one load.
    #[inline(always)]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }
    /// The next message. After `None` the flag is down.
    pub(crate) fn next(&self) -> Option<Message> {
        if let Some(message) = self.pop() {
            return Some(message);
        }
        self.has_mail.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // What was pushed before the flag was cleared would be missed, so it checks once more.
        let late = self.pop();
        if late.is_some() {
            self.has_mail.store(true, Ordering::Relaxed);
        }
        late
    }
    /// Announces that the worker is about to sleep, and would take a job of fewer pins than `open`.
    /// Returns whether it may sleep (there is no mail).
    pub(crate) fn doze(&self, open: u32) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        self.open.store(open, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_mail() && self.queue.is_empty() && self.faults.is_empty()
    }
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
        self.open.store(0, Ordering::Relaxed);
    }
    /// Wakes the worker if it sleeps and would take a job of `pins` pins, once for each sleep.
    /// Returns whether it did.
    pub(crate) fn call(&self, pins: u32) -> bool {
        let called = self.open.load(Ordering::Relaxed) > pins && self.open.swap(0, Ordering::Relaxed) > 0;
        if called {
            self.notifier.notify();
        }
        called
    }
}
