//! What all fibers of a runtime share: caches' shared part, slots, gates, mailboxes. (`jobs` has
//! the sources of jobs.)

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use crossbeam_utils::CachePadded;
use fulgurite_cache::Shape;
use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Clock, Process};
use parking_lot::Mutex;

use crate::config::{BuildError, Builder, Layout, own_fibers};
use crate::error::SyncError;
use crate::guarded::Slots;
use crate::guest::readers::Readers;
use crate::guest::seats::Seats;
use crate::halt::Gate;
use crate::mailbox::{Mailbox, Message, Wake};
use crate::objects::{Objects, cache_of};
use crate::records::Records;
use crate::split::{OfWorker, Split};

/// Names a worker, unique in this process over all runtimes, living or gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkerId(u64);

impl WorkerId {
    pub(crate) fn new(runtime: u32, worker: u32) -> WorkerId {
        WorkerId(u64::from(runtime) << 32 | u64::from(worker))
    }
    /// The number of its runtime.
    #[inline(always)]
    pub fn runtime(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// Its place in its runtime.
    pub fn worker(self) -> usize {
        self.0 as u32 as usize
    }
}

/// Runtimes made so far.
static RUNTIMES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Shared by workers, handles and pins; lives as long as any of them.
pub(crate) struct Shared {
    /// Tells this runtime from all others of the process.
    pub id: u32,
    /// The process that has the workers. A child after `fork` has none.
    pub process: Process,
    /// The residency table, the frames, the cut.
    pub cache: Arc<fulgurite_cache::Shared>,
    /// What is cached by object and not by subpage, over a medium that packs objects.
    pub objects: Option<Objects>,
    /// The index and the cache of the records of maps.
    pub records: Option<Arc<Records>>,
    /// How DRAM moves between these and frames, if it does.
    pub split: Option<Mutex<Split>>,
    /// What each worker says of its frames for that.
    pub of_workers: Box<[CachePadded<OfWorker>]>,
    /// DRAM of the objects.
    pub objects_bytes: AtomicU64,
    pub layout: Layout,
    /// What the fiber of each worker that runs may hold without a pin.
    pub slots: Arc<Slots>,
    /// Threads that run operations themselves.
    pub seats: Arc<Seats>,
    /// With what they read.
    pub readers: Readers,
    /// One per worker, for its fibers.
    pub gates: Box<[CachePadded<Gate>]>,
    /// Waiters for the cut's writes.
    pub cut_waits: Mutex<Option<std::thread::Thread>>,
    /// One sync or roll back at a time.
    pub sync_turn: Mutex<()>,
    /// Why the memory is poisoned, if it is ([`SyncError::Poisoned`]). Set at the latest while all
    /// workers are halted, before they forget their frames. Then nothing is a hit, and misses check
    /// this.
    pub poisoned: OnceLock<SyncError>,
    /// How often workers have forgotten their frames for another state. Changes while all are
    /// halted.
    pub roll_backs: AtomicU64,
    pub mailboxes: Arc<[Mailbox]>,
    pub flash: Arc<dyn Flash>,
    pub clock: Clock,
    pub config: Builder,
    pub stopping: AtomicBool,
    /// Workers that may still have fibers: while there is one, all of them serve each other.
    pub active: AtomicUsize,
    pub dram_bytes: AtomicU64,
    /// What each worker runs now, for the watchdog.
    pub running: Box<[CachePadded<Running>]>,
    /// Next linear addresses of shared and owned regions.
    pub next_shared: AtomicU64,
    pub next_owned: AtomicU64,
}

/// What a worker runs now.
pub(crate) struct Running {
    /// Counts fibers resumed and jobs started. Unchanged for long, one does not give its core back.
    pub turns: AtomicU64,
    /// Whether a fiber runs at all.
    pub busy: AtomicBool,
    pub fiber: AtomicU32,
    /// By fiber: the name of its job, or of its service.
    names: Box<[Mutex<&'static str>]>,
}

impl Running {
    fn new(fibers: usize) -> Running {
        Running {
            turns: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            fiber: AtomicU32::new(0),
            names: (0..fibers).map(|_| Mutex::new("job")).collect(),
        }
    }
    /// A fiber begins something of this name.
    pub(crate) fn begins(&self, fiber: u32, name: &'static str) {
        *self.names[fiber as usize].lock() = name;
    }
    /// The name of what the fiber that runs has begun.
    pub(crate) fn name(&self) -> &'static str {
        *self.names[self.fiber.load(Ordering::Relaxed) as usize].lock()
    }
    /// Counts one; only the worker does.
    #[inline]
    pub(crate) fn turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Asks every worker, by a message with the channel for its answer.
    pub(crate) fn ask<T>(&self, message: impl Fn(mpsc::Sender<T>) -> Message) -> Vec<mpsc::Receiver<T>> {
        let ask = |mailbox: &Mailbox| {
            let (reply, answer) = mpsc::channel();
            mailbox.send(message(reply));
            answer
        };
        self.mailboxes.iter().map(ask).collect()
    }
    pub(crate) fn new(config: &Builder) -> Result<Shared, BuildError> {
        let layout = config.layout()?;
        let workers = config.workers;
        let existing = config.existing_bytes.div_ceil(SUBPAGE_BYTES as u64) as u32;
        let shape = Shape {
            subpages: layout.subpages,
            existing,
            caches: workers as u32,
            frames_max: layout.frames_per_worker_max,
            moved: false,
        };
        let cache = Arc::new(fulgurite_cache::Shared::new(config.flash.clone(), shape, config.planted)?);
        let (bytes, least, most) = (config.objects_bytes, layout.objects_least, layout.objects_most);
        let objects = cache_of(&*config.flash, bytes, least, most);
        let objects = objects.map(|objects| objects.plant(config.planted_in_objects));
        let objects_bytes = if objects.is_some() { bytes } else { 0 };
        let both = config.dram_bytes - layout.fixed_bytes + objects_bytes;
        let mailbox = |_| Mailbox::new(own_fibers(config.fibers));
        let mailboxes: Arc<[Mailbox]> = (0..workers).map(mailbox).collect::<Result<_, _>>()?;
        let id = RUNTIMES.fetch_add(1, Ordering::Relaxed);
        assert!(id != u32::MAX, "a process has made more runtimes than there are numbers for");
        Ok(Shared {
            id,
            process: Process::current(),
            cache,
            objects,
            records: (config.records_bytes > 0).then(|| Arc::new(Records::new(config.records_bytes))),
            split: (layout.objects_least < layout.objects_most).then(|| Mutex::new(Split::new(both))),
            of_workers: (0..workers).map(|_| CachePadded::default()).collect(),
            objects_bytes: AtomicU64::new(objects_bytes),
            layout,
            slots: Arc::new(Slots::new(workers)),
            seats: Arc::new(Seats::new()),
            readers: Readers::new(&*config.flash, mailboxes[0].notifier().clone(), config.clock.clone()),
            gates: (0..workers).map(|_| CachePadded::default()).collect(),
            cut_waits: Mutex::new(None),
            sync_turn: Mutex::new(()),
            poisoned: OnceLock::new(),
            roll_backs: AtomicU64::new(0),
            mailboxes,
            flash: config.flash.clone(),
            clock: config.clock.clone(),
            config: config.clone(),
            stopping: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            dram_bytes: AtomicU64::new(config.dram_bytes),
            running: (0..workers).map(|_| CachePadded::new(Running::new(own_fibers(config.fibers)))).collect(),
            next_shared: AtomicU64::new(0),
            next_owned: AtomicU64::new(config.pool_bytes - config.owned_bytes),
        })
    }

    /// Bytes of the budget for frames and objects.
    pub(crate) fn frames_and_objects(&self) -> u64 {
        let others = self.layout.fixed_bytes - self.objects.as_ref().map_or(0, |_| self.config.objects_bytes);
        self.dram_bytes.load(Ordering::Relaxed).saturating_sub(others)
    }
    /// Frames of each worker now.
    pub(crate) fn frames_per_worker(&self) -> u32 {
        self.frames_per_worker_with(self.objects_bytes.load(Ordering::Relaxed))
    }
    /// Frames of each worker when objects take `objects` bytes.
    pub(crate) fn frames_per_worker_with(&self, objects: u64) -> u32 {
        let bytes = self.frames_and_objects().saturating_sub(objects);
        let frames = bytes / self.layout.per_frame_bytes / self.mailboxes.len() as u64;
        u32::try_from(frames).unwrap_or(u32::MAX).clamp(1, self.layout.frames_per_worker_max)
    }
    /// Fibers resumed and jobs begun, on all workers.
    pub(crate) fn turns(&self) -> u64 {
        self.running.iter().map(|running| running.turns.load(Ordering::Relaxed)).sum()
    }
    /// Ends the wait with this ticket of a fiber of `worker`, from any thread.
    pub(crate) fn wake(&self, worker: u32, fiber: u32, ticket: u32) {
        // By mail even to oneself: the waker may be a user's code that the worker called.
        self.mailboxes[worker as usize].send(Message::Wake { fiber, ticket, wake: Wake::Retry });
    }
    /// A worker has no fibers any more, and will have none.
    pub(crate) fn leave(&self) {
        if self.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mailboxes.iter().for_each(|m| m.notifier().notify());
        }
    }
}
