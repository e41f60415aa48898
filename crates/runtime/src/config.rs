//! What a runtime is built from, and how the DRAM budget is divided before anything is allocated.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_cache::{Planted, depth_for, frames, marks, near, table};
use fulgurite_flash::{Flash, Traits};
use fulgurite_format::{PAGE_BYTES, SUBPAGE_BYTES, format_bytes};
use fulgurite_policy::{AdmissionPolicy, PrefetchPolicy, ReplacementPolicy, SchedulingPolicy, bytes_per_frame};
use fulgurite_sys::Clock;

use crate::error::FORKED;
use crate::objects::{MOVING_BYTES_MIN, PlantedInObjects, packs};
use crate::records::Records;
use crate::split::LEAST;

/// Why a runtime could not be built. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum BuildError {
    /// This process is a child of the one that opened the memory.
    #[error("{FORKED}")]
    Forked,
    /// A setting is out of its range.
    #[error("{what}: {got} is invalid; {advice}")]
    Unusable { what: &'static str, got: u64, advice: &'static str },
    /// The budget is smaller than what the runtime needs in addition to its frames.
    #[error(
        "a DRAM budget of {} is too small: tables, stacks and rings need {}, and each worker a frame; \
         raise it to {} or more, or use fewer fibers or smaller stacks",
        format_bytes(*.budget), format_bytes(*.fixed), format_bytes(*.least)
    )]
    TooSmall { budget: u64, fixed: u64, least: u64 },
    #[error(
        "a DRAM budget of {} is more than the {} of this machine; lower it, and leave some for other programs",
        format_bytes(*.budget), format_bytes(*.machine)
    )]
    LargerThanMachine { budget: u64, machine: u64 },
    /// The pool does not fit on the medium.
    #[error(
        "the pool of {} does not fit on the flash of {}; make it smaller, or take larger flash",
        format_bytes(*.pool), format_bytes(*.flash)
    )]
    FlashTooSmall { pool: u64, flash: u64 },
    /// The kernel gives no memory.
    #[error(transparent)]
    Memory(#[from] fulgurite_sys::ArenaError),
    /// The kernel gives no stacks.
    #[error(transparent)]
    Stacks(#[from] fulgurite_fiber::StackPoolError),
    /// The medium gives no queue.
    #[error(transparent)]
    Flash(#[from] fulgurite_flash::OpenError),
    /// The kernel gives no thread, eventfd or core.
    #[error("cannot start a worker: {0}")]
    Start(#[from] std::io::Error),
    /// Several workers need a barrier that this kernel does not have.
    #[error("this kernel has no expedited membarrier, which several workers need; use one worker")]
    NoBarrier,
}

/// How long a request may take on a medium that is there.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds a [`Runtime`](crate::Runtime). Every setting has a default but the flash.
#[derive(Clone)]
#[must_use = "call `build`"]
pub struct Builder {
    pub(crate) flash: Arc<dyn Flash>,
    pub(crate) dram_bytes: u64,
    pub(crate) dram_max_bytes: u64,
    pub(crate) objects_bytes: u64,
    pub(crate) objects_move: bool,
    pub(crate) records_bytes: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) owned_bytes: u64,
    pub(crate) existing_bytes: u64,
    pub(crate) workers: usize,
    pub(crate) cores: Vec<usize>,
    pub(crate) fibers: usize,
    pub(crate) stack_bytes: usize,
    pub(crate) pending: usize,
    pub(crate) queue_depth: usize,
    pub(crate) submit_batch: usize,
    pub(crate) spin: Duration,
    pub(crate) scheduling: SchedulingPolicy,
    pub(crate) replacement: ReplacementPolicy,
    pub(crate) prefetch: PrefetchPolicy,
    pub(crate) admission: AdmissionPolicy,
    pub(crate) device_timeout: Duration,
    pub(crate) run_limit: Duration,
    pub(crate) gate_timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) planted: Option<Planted>,
    pub(crate) planted_in_objects: Option<PlantedInObjects>,
}

impl Builder {
    /// A runtime over `flash`: 64 MiB of DRAM, one worker, 64 fibers with stacks of 32 KiB (32 of
    /// 64 KiB in a debug build), the whole medium as its pool.
    pub fn new(flash: Arc<dyn Flash>) -> Builder {
        let pool_bytes = u64::from(flash.subpages()) * SUBPAGE_BYTES as u64;
        let Traits { patience, tuning, .. } = flash.traits();
        Builder {
            flash,
            dram_bytes: 64 << 20,
            dram_max_bytes: 0,
            objects_bytes: 0,
            objects_move: false,
            records_bytes: 0,
            pool_bytes,
            owned_bytes: 0,
            existing_bytes: 0,
            workers: 1,
            cores: Vec::new(),
            // AstriFlash, V-A: 32-64 user threads a core.
            fibers: DEFAULT_FIBERS,
            stack_bytes: DEFAULT_STACK_BYTES,
            pending: 0,
            queue_depth: 0,
            submit_batch: tuning.submit_batch,
            spin: tuning.spin,
            scheduling: SchedulingPolicy::default(),
            replacement: ReplacementPolicy::default(),
            prefetch: PrefetchPolicy::default(),
            admission: AdmissionPolicy::Unlimited,
            device_timeout: DEVICE_TIMEOUT + patience,
            run_limit: Duration::from_secs(1),
            gate_timeout: Duration::from_secs(10),
            clock: Clock::get(),
            planted: None,
            planted_in_objects: None,
        }
    }
    /// The DRAM budget in bytes: a hard cap on everything, tables, stacks, rings and buffers
    /// included.
    pub fn dram(mut self, bytes: u64) -> Self {
        self.dram_bytes = bytes;
        self
    }
    /// How far [`set_dram`](crate::Runtime::set_dram) may raise the budget (default: not at all).
    /// Costs some 80 bytes for each such frame from the start.
    pub fn dram_max(mut self, bytes: u64) -> Self {
        self.dram_max_bytes = bytes;
        self
    }
    /// How many bytes of the budget cache objects, over a medium that packs them (default: none).
    /// Of other media all of the budget is frames. At least a mebibyte.
    pub fn objects(mut self, bytes: u64) -> Self {
        self.objects_bytes = bytes;
        self
    }
    /// How many bytes of the budget hold keys and records of maps (default: none, and there can be
    /// no such maps).
    pub fn records(mut self, bytes: u64) -> Self {
        self.records_bytes = bytes;
        self
    }
    /// Lets DRAM move between objects and frames by need, from [`Builder::objects`] bytes on. Each
    /// keeps an eighth of what both have. Needs a replacement policy that remembers what it evicted
    /// ([`ReplacementPolicy::S3Fifo`]) and 32 MiB for both. Otherwise nothing moves.
    pub fn objects_move(mut self, moves: bool) -> Self {
        self.objects_move = moves;
        self
    }
    /// How many bytes of the flash to use, from its start.
    pub fn pool(mut self, bytes: u64) -> Self {
        self.pool_bytes = bytes;
        self
    }
    /// How many bytes at the end of the pool are for regions that one worker owns.
    pub fn owned(mut self, bytes: u64) -> Self {
        self.owned_bytes = bytes;
        self
    }
    /// How many bytes at the start of the flash have contents already. The rest reads as zero until
    /// written.
    pub fn existing(mut self, bytes: u64) -> Self {
        self.existing_bytes = bytes;
        self
    }
    /// How many OS threads run fibers.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }
    /// Pins worker i to `cores[i]`. Empty: not pinned.
    pub fn cores(mut self, cores: &[usize]) -> Self {
        self.cores = cores.to_vec();
        self
    }
    /// How many fibers each worker has, and so how many jobs run at once. At most 64,511 over all
    /// workers.
    pub fn fibers(mut self, count: usize) -> Self {
        self.fibers = count;
        self
    }
    /// Bytes of stack for each fiber.
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }
    /// How many fibers may wait for flash before new jobs are held back (default: all).
    pub fn pending(mut self, count: usize) -> Self {
        self.pending = count;
        self
    }
    /// Requests in flight per worker (default: enough for all fibers, prefetches and write-backs).
    pub fn queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = depth;
        self
    }
    /// How many requests are gathered before the medium gets them while there is other work
    /// (default: the medium's [`fulgurite_flash::Tuning`]).
    pub fn submit_batch(mut self, count: usize) -> Self {
        self.submit_batch = count;
        self
    }
    /// How long a worker that waits for flash polls before it sleeps (default: as the medium says,
    /// [`fulgurite_flash::Tuning`]). A worker that waits for nothing never polls.
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }
    /// Which fiber runs next.
    pub fn scheduling(mut self, policy: SchedulingPolicy) -> Self {
        self.scheduling = policy;
        self
    }
    /// Which frame is evicted next.
    pub fn replacement(mut self, policy: ReplacementPolicy) -> Self {
        self.replacement = policy;
        self
    }
    /// What is read ahead.
    pub fn prefetch(mut self, policy: PrefetchPolicy) -> Self {
        self.prefetch = policy;
        self
    }
    /// When submitted jobs are turned away.
    pub fn admission(mut self, policy: AdmissionPolicy) -> Self {
        self.admission = policy;
        self
    }
    /// After how long an unanswered request is an error to its jobs: 10 s, plus the medium's own
    /// waits ([`fulgurite_flash::Traits::patience`]).
    pub fn device_timeout(mut self, time: Duration) -> Self {
        self.device_timeout = time;
        self
    }
    /// After how long a job that runs without giving its core back is reported by name.
    pub fn run_limit(mut self, time: Duration) -> Self {
        self.run_limit = time;
        self
    }
    /// How long a sync or a roll back waits for write sections that are open.
    pub fn gate_timeout(mut self, time: Duration) -> Self {
        self.gate_timeout = time;
        self
    }
    /// The source of the time (default: the real clock). Threads wait for each other in real time
    /// in any case.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
    /// A bug on purpose.
    #[doc(hidden)]
    pub fn plant(mut self, bug: Planted) -> Self {
        self.planted = Some(bug);
        self
    }
    /// A bug on purpose, of objects.
    #[doc(hidden)]
    pub fn plant_in_objects(mut self, bug: PlantedInObjects) -> Self {
        self.planted_in_objects = Some(bug);
        self
    }
    /// Checks the settings and divides the budget.
    pub(crate) fn layout(&self) -> Result<Layout, BuildError> {
        let unusable = |what, got, advice| Err(BuildError::Unusable { what, got, advice });
        if self.workers == 0 || self.workers > 1024 {
            return unusable("workers", self.workers as u64, "use 1 to 1024");
        }
        if self.fibers == 0 || self.fibers > usize::from(marks::PINS_MAX) / self.workers {
            return unusable("fibers", self.fibers as u64, "use 1 or more, and no more than 64,511 over all workers");
        }
        if self.submit_batch == 0 {
            return unusable("submit batch", 0, "use 1 or more");
        }
        if self.pool_bytes == 0 || !self.pool_bytes.is_multiple_of(PAGE_BYTES as u64) {
            return unusable("pool", self.pool_bytes, "use a multiple of 64 KiB");
        }
        let flash_bytes = u64::from(self.flash.subpages()) * SUBPAGE_BYTES as u64;
        if self.pool_bytes > flash_bytes {
            return Err(BuildError::FlashTooSmall { pool: self.pool_bytes, flash: flash_bytes });
        }
        if self.existing_bytes > self.pool_bytes {
            return unusable("existing bytes", self.existing_bytes, "they are part of the pool");
        }
        if self.owned_bytes > self.pool_bytes || !self.owned_bytes.is_multiple_of(SUBPAGE_BYTES as u64) {
            return unusable("owned bytes", self.owned_bytes, "use a multiple of 4 KiB that is part of the pool");
        }
        if (1..OBJECTS_BYTES_MIN).contains(&self.objects_bytes) {
            return unusable("bytes for objects", self.objects_bytes, "use 1 MiB or more, or none");
        }
        let max_bytes = self.dram_max_bytes.max(self.dram_bytes);
        if let Some(machine) = machine_bytes()
            && max_bytes > machine
        {
            return Err(BuildError::LargerThanMachine { budget: max_bytes, machine });
        }
        let workers = self.workers as u64;
        let subpages = self.pool_bytes / SUBPAGE_BYTES as u64;
        let depth = match self.queue_depth {
            0 => depth_for(self.fibers),
            given => given.min(fulgurite_flash::DEPTH_MAX),
        };
        let needs = Needs::with(self.pool_bytes, self.workers, self.fibers, self.stack_bytes, depth, self.replacement);
        let Needs { fixed_bytes: fixed, per_frame_bytes: per_frame } = needs;
        let fixed = fixed.saturating_add(self.flash.traits().dram_bytes as u64);
        if (1..Records::BYTES_MIN).contains(&self.records_bytes) {
            return unusable("bytes for records", self.records_bytes, "use 1 MiB or more, or none");
        }
        let fixed = fixed.saturating_add(self.records_bytes);
        let objects = if packs(&*self.flash) { self.objects_bytes } else { 0 };
        let fixed = fixed.saturating_add(objects);
        // What may move: with less on one side, there are more frames on the other.
        let both = self.dram_bytes.saturating_sub(fixed).saturating_add(objects);
        let moves = self.objects_move && objects > 0 && self.replacement == ReplacementPolicy::S3Fifo;
        let objects_least = (both / LEAST).max(MOVING_BYTES_MIN).min(objects);
        let objects_least = if moves && objects_least >= MOVING_BYTES_MIN && both / LEAST >= MOVING_BYTES_MIN {
            objects_least
        } else {
            objects
        };
        let max_bytes = max_bytes.saturating_add(objects - objects_least);
        let meta_of_max = max_bytes.saturating_sub(self.dram_bytes) / per_frame * (per_frame - SUBPAGE_BYTES as u64);
        let fixed = fixed.saturating_add(meta_of_max);
        let subpages = u32::try_from(subpages).unwrap_or(u32::MAX);
        // More frames would never be used: with these, all subpages are resident, and the stock of
        // free ones is full.
        let useful = subpages.saturating_add(fulgurite_cache::stock_max(&*self.flash));
        // What a queue takes for the most frames there may ever be, it keeps.
        let most = u32::try_from(max_bytes.saturating_sub(fixed) / per_frame / workers).unwrap_or(u32::MAX);
        let staging = self.flash.staging_bytes(most.min(useful)) as u64;
        let fixed = fixed.saturating_add(workers.saturating_mul(staging));
        let least = fixed.saturating_add(workers * per_frame);
        if self.dram_bytes < least {
            return Err(BuildError::TooSmall { budget: self.dram_bytes, fixed, least });
        }
        let frames_of = |bytes: u64| u32::try_from((bytes - fixed) / per_frame / workers).unwrap_or(u32::MAX);
        let layout = Layout {
            subpages,
            shared_subpages: u32::try_from((self.pool_bytes - self.owned_bytes) / SUBPAGE_BYTES as u64)
                .unwrap_or(u32::MAX),
            frames_per_worker: frames_of(self.dram_bytes).min(useful),
            frames_per_worker_max: frames_of(max_bytes).min(useful),
            fixed_bytes: fixed,
            per_frame_bytes: per_frame,
            queue_depth: depth,
            objects_least,
            objects_most: if objects_least < objects { both - both / LEAST } else { objects },
        };
        if u64::from(layout.frames_per_worker_max) * workers >= u64::from(fulgurite_format::FrameIndex::LIMIT) - 1 {
            return unusable("DRAM budget", self.dram_bytes, "use less than 4 TiB");
        }
        Ok(layout)
    }
}

/// The least bytes of an object cache.
const OBJECTS_BYTES_MIN: u64 = 1 << 20;
/// Two latency histograms of a worker and a snapshot: 12 bits of magnitude at 1 in 128, 8 bytes
/// each.
const HISTOGRAM_BYTES: usize = 192 << 10;
/// Tables of the process: mailboxes, the parking table, the job queue.
const PROCESS_BYTES: u64 = 256 << 10;

/// DRAM that a runtime needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Bytes for tables, stacks, queues and histograms, whatever the number of frames.
    pub fixed_bytes: u64,
    /// Bytes for a frame, with all that is kept for it. Each worker needs one at least.
    pub per_frame_bytes: u64,
}

impl Needs {
    /// For this pool, `workers` workers with `fibers` fibers each, and the other defaults of
    /// [`Builder::new`].
    pub fn of(pool_bytes: u64, workers: usize, fibers: usize) -> Needs {
        Needs::with(pool_bytes, workers, fibers, DEFAULT_STACK_BYTES, depth_for(fibers), ReplacementPolicy::default())
    }

    fn with(
        pool_bytes: u64,
        workers: usize,
        fibers: usize,
        stack_bytes: usize,
        depth: usize,
        replacement: ReplacementPolicy,
    ) -> Needs {
        // A worker's needs in addition to its frames: stacks, contexts, fiber slots, miss table and
        // requests (by their own formulas, below 200 bytes each), histograms, and the queue's
        // rings.
        let per_fiber = (stack_bytes as u64).saturating_add(4096 + 512);
        let per_worker = (own_fibers(fibers) as u64)
            .saturating_mul(per_fiber)
            .saturating_add((depth * 200 + HISTOGRAM_BYTES) as u64);
        let tables = table::bytes(pool_bytes / SUBPAGE_BYTES as u64) + PROCESS_BYTES;
        // A worker that is not alone has no use for a near table.
        let near = if workers == 1 { near::BYTES_PER_FRAME } else { 0 };
        let per_frame = SUBPAGE_BYTES + frames::META_BYTES + near + fulgurite_cache::BYTES_PER_FRAME;
        Needs {
            fixed_bytes: tables.saturating_add((workers as u64).saturating_mul(per_worker)),
            per_frame_bytes: (per_frame + bytes_per_frame(replacement)) as u64,
        }
    }
}

/// Fibers of a worker, with the one for the runtime's own jobs.
pub(crate) fn own_fibers(fibers: usize) -> usize {
    fibers.saturating_add(1)
}

/// Fibers of a worker by default: half as many in a debug build, for the same DRAM.
pub const DEFAULT_FIBERS: usize = if cfg!(debug_assertions) { 32 } else { 64 };

/// Bytes of stack of a fiber by default: twice as many in a debug build, where every temporary
/// value has a place of its own on the stack.
pub const DEFAULT_STACK_BYTES: usize = if cfg!(debug_assertions) { 64 << 10 } else { 32 << 10 };

/// How the budget is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Subpages of the pool.
    pub subpages: u32,
    /// Of these, how many are shared (the rest is owned).
    pub shared_subpages: u32,
    /// Frames that each worker starts with.
    pub frames_per_worker: u32,
    /// Frames that each worker may ever have.
    pub frames_per_worker_max: u32,
    /// Bytes that are not frames.
    pub fixed_bytes: u64,
    /// Bytes of a frame, with all that is kept for it.
    pub per_frame_bytes: u64,
    /// Requests in flight per worker.
    pub queue_depth: usize,
    /// Least and most bytes of objects. They are equal where they do not move.
    pub objects_least: u64,
    pub objects_most: u64,
}

/// The machine's memory in bytes, where the kernel says.
pub fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// A time in nanoseconds; what does not fit is 584 years.
pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
