//! Flash that passes for DRAM: a program sees a large byte-addressable memory in flash, with a
//! small DRAM cache in front. A miss costs a switch to another user-level thread, not a stall.
//!
//! ```
//! use fulgurite::{Fulgurite, Medium};
//!
//! # fn main() -> Result<(), fulgurite::Error> {
//! let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
//! let users = memory.hash_map::<u64, [u8; 56]>(100_000)?;
//! let (map, value) = (users.clone(), [7; 56]);
//! memory.run(move |m| map.insert(m, &42, value))?;
//! assert_eq!(memory.run(move |m| users.get(m, &42))?, Some([7; 56]));
//! # Ok(())
//! # }
//! ```
//!
//! Such a memory holds [`Plain`] types: any bit pattern is a value, without padding or pointers
//! into the process. Numbers and arrays of them are. Your own types become so by the derives of
//! [`zerocopy`], which is re-exported so that its version fits. The attribute names its path:
//!
//! ```
//! use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
//! use fulgurite::{Fulgurite, KeyHash, Medium};
//!
//! #[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
//! #[zerocopy(crate = "fulgurite::zerocopy")]
//! #[repr(C)]
//! struct Place {
//!     row: u32,
//!     column: u32,
//! }
//! impl KeyHash for Place {}
//!
//! #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
//! #[zerocopy(crate = "fulgurite::zerocopy")]
//! #[repr(C)]
//! struct Weather {
//!     degrees: f32,
//!     wind: [f32; 2],
//! }
//!
//! # fn main() -> Result<(), fulgurite::Error> {
//! let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
//! let grid = memory.hash_map::<Place, Weather>(10_000)?;
//! let (at, weather) = (Place { row: 3, column: 7 }, Weather { degrees: 21.5, wind: [1.0, -2.0] });
//! let map = grid.clone();
//! memory.run(move |m| map.insert(m, &at, weather))?;
//! assert_eq!(memory.run(move |m| grid.get(m, &at))?, Some(weather));
//! # Ok(())
//! # }
//! ```
//!
//! In a pool, data outlives the program. Named data is found again, as the type that it was made
//! as. [`Fulgurite::sync`] names a state of everything, and the next start finds that state:
//!
//! ```
//! use fulgurite::{Fulgurite, Medium};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("users.pool");
//! let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
//! let users = memory.named("users").hash_map::<u64, [u8; 56]>(10_000)?;
//! memory.run(move |m| users.insert(m, &42, [7; 56]))?;
//! let token = memory.sync()?;
//! assert_eq!(memory.tokens()?, [token]);
//! drop(memory);
//!
//! let memory = Fulgurite::builder(Medium::pool(path)).dram("8M").start()?;
//! let users = memory.named("users").hash_map::<u64, [u8; 56]>(10_000)?;
//! assert_eq!(memory.run(move |m| users.get(m, &42))?, Some([7; 56]));
//! // Another type under this name is refused.
//! let error = memory.named("users").hash_map::<u64, u64>(10_000).unwrap_err();
//! assert!(error.to_string().contains("hash map of u64 to [u8; 56]"));
//! # Ok(())
//! # }
//! ```
//!
//! Named data is [`Stored`]: plain, with a name of its type that outlives the program. The derive
//! makes it, and tells two versions of a record under one name apart:
//!
//! ```
//! use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
//! use fulgurite::{Fulgurite, Medium, Stored};
//!
//! #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
//! #[zerocopy(crate = "fulgurite::zerocopy")]
//! #[stored(name = "shop.Order/1")]
//! #[repr(C)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.pool");
//! let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
//! let orders = memory.named("orders").hash_map::<u64, Order>(1000)?;
//! memory.run(|m| orders.insert(m, &1, Order { number: 1, cents: 995 }))?;
//! # Ok(())
//! # }
//! ```
//!
//! Values of any length are [`Blobs`], or [`OrderedBlobs`] under byte strings. In a pool that packs
//! objects ([`Medium::objects`]) a small value costs DRAM and writes by its length. What several
//! containers must have together is a transaction: all of it, or none.
//!
//! ```
//! use fulgurite::{Error, Fulgurite, Medium};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("sessions.pool");
//! let medium = Medium::pool_or_new(path, "16M").objects(10_000);
//! let memory = Fulgurite::builder(medium).dram("16M").start()?;
//! let sessions = memory.named("sessions").blobs::<u64>(10_000, "4M")?;
//! let owners = memory.named("owners").hash_map::<u64, u64>(10_000)?;
//! memory.transaction(|t| {
//!     t.put(&sessions, &7, b"a value of any length")?;
//!     t.put(&owners, &7, &42)?;
//!     Ok::<(), Error>(())
//! })?;
//! let mut value = Vec::new();
//! assert!(memory.run(|m| sessions.get(m, &7, &mut value))?);
//! assert_eq!(value, b"a value of any length");
//! # Ok(())
//! # }
//! ```
//!
//! [`Fulgurite`] is the convenient front. Its parts are in modules, for programs that choose the
//! medium ([`media`]), the policies ([`runtime`]) or the latch ([`latches`]). Layers below:
//! `fulgurite-memory` (containers, pointers), `fulgurite-runtime` (workers, misses),
//! `fulgurite-flash` (media), `fulgurite-policy` (decisions).
#![forbid(unsafe_code)]

pub mod containers;
mod durability;
mod durable;
mod error;
mod give_back;
mod growth;
#[cfg(test)]
mod images;
mod items;
pub mod latches;
mod leaving;
pub mod maps;
pub mod media;
mod named;
mod pages;
pub mod pool;
mod reader;
mod registry;
mod running;
pub mod runtime;
mod store;
mod transaction;
pub mod views;

use std::sync::Arc;
use std::time::Duration;

use fulgurite_backing::Settings;
pub use items::{
    AccessError, Address, Array, BPlusTree, Blobs, Context, HashMap, Heap, JobError, JobHandle, JobOptions, KeyHash,
    Medium, Memory, OrderedBlobs, Plain, Region, Rooted, Size, Statistics, Stored, SyncError, Transactions,
};
use latches::VersionLatch;
use runtime::{Guest, Runtime, SubmitError};
use views::SUBPAGE_BYTES;
pub use zerocopy;

pub use durability::Durability;
pub use error::Error;
pub use maps::{Map, Store};
pub use named::Named;
pub use reader::Reader;
use running::Running;
pub use transaction::Transaction;

/// Sets a [`Fulgurite`] up.
///
/// ```
/// use std::time::Duration;
///
/// use fulgurite::{Durability, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let each_second = Durability::Lazy { every: Duration::from_secs(1), bytes: 64 << 20 };
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "32M"))
///     .dram("16M")
///     .workers(2)
///     .durability(each_second)
///     .keep_tokens(3)
///     .start()?;
/// assert_eq!(memory.statistics().workers.len(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "call `start`"]
pub struct Builder {
    medium: Medium,
    dram: Size,
    durability: Option<Durability>,
    keep_tokens: Option<usize>,
    keep_age: Option<Duration>,
    keep_space: Option<Size>,
    on_device: Option<Option<usize>>,
    object_cache: Option<Size>,
    record_cache: Option<Size>,
    growing: Option<Size>,
    adjust: Vec<Adjust>,
}

type Adjust = Box<dyn FnOnce(runtime::Builder) -> runtime::Builder>;

impl Builder {
    /// Sets the DRAM budget, in bytes or as text (`"512M"`, `"2G"`): a hard cap on everything,
    /// metadata included.
    pub fn dram(mut self, size: impl Into<Size>) -> Self {
        self.dram = size.into();
        self
    }
    /// How many OS threads run jobs.
    pub fn workers(self, count: usize) -> Self {
        self.with(move |runtime| runtime.workers(count))
    }
    /// How much of the DRAM budget caches objects, over a pool that packs them
    /// ([`Medium::objects`]). By default a quarter at the start. DRAM then moves between objects
    /// and frames, to where more would be hit. A size that is given here stays. Less than a
    /// mebibyte is none: objects are then cached in frames of 4 KiB.
    pub fn object_cache(mut self, size: impl Into<Size>) -> Self {
        self.object_cache = Some(size.into());
        self
    }
    /// How much of the DRAM budget holds the keys and records of maps ([`Store::map`]). By default
    /// none, and there can be no such maps. Less than a mebibyte is refused.
    pub fn record_cache(mut self, size: impl Into<Size>) -> Self {
        self.record_cache = Some(size.into());
        self
    }
    /// Anything else that the runtime lets one choose.
    pub fn with(mut self, adjust: impl FnOnce(runtime::Builder) -> runtime::Builder + 'static) -> Self {
        self.adjust.push(Box::new(adjust));
        self
    }
    /// What a crash or a power failure leaves of a pool. By default the state of the last
    /// [`Fulgurite::sync`] or a later one, because the pool syncs by itself before a limit stops
    /// writers. Other media keep nothing.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
    /// How many of the newest tokens a pool keeps, in addition to pinned ones (default and least:
    /// 1). The data of each takes space. A device decides that itself (`fulgurite device serve
    /// --keep-tokens`).
    pub fn keep_tokens(mut self, count: usize) -> Self {
        self.keep_tokens = Some(count);
        self
    }
    /// The age at which a sync drops tokens, except the newest and the pinned (default: never). At
    /// most [`Builder::keep_tokens`] are kept. Time counts in milliseconds while the pool is in
    /// use, by the system's clock, without the steps back of that.
    pub fn keep_age(mut self, age: Duration) -> Self {
        self.keep_age = Some(age);
        self
    }
    /// Space that tokens leave to new data, in bytes or as text (`"2G"`). When less than this is
    /// free or reclaimable, the oldest tokens are dropped, except the newest and the pinned. The
    /// space for reclaim, journal and checkpoints counts. By default, 0, tokens stay in a full
    /// pool, and writers get an error.
    pub fn keep_space(mut self, size: impl Into<Size>) -> Self {
        self.keep_space = Some(size.into());
        self
    }
    /// Lets a pool grow while it is open, up to `limit`: by an eighth or more whenever three
    /// quarters of its flash are needed. Of several files each grows by about as much. Names and
    /// addresses are for as much data as a pool of that size holds, from the beginning. Their
    /// tables take up to 0.24% of the limit of the DRAM budget, and less while less is written. A
    /// pool that was made without grows, too, when it is opened so. A block device has to have as
    /// much as the limit already.
    ///
    /// When the disk is full, that is said on standard error and tried again every second. Writers
    /// get [`AccessError::PoolFull`] when the pool is full.
    ///
    /// ```
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("sessions.pool");
    /// let medium = Medium::new_pool(&path, "16M");
    /// let memory = Fulgurite::builder(medium).dram("8M").growing("64M").start()?;
    /// let sessions = memory.named("sessions").blobs::<u64>(100, 40 << 20)?;
    /// memory.run(|m| (0..40).try_for_each(|key| sessions.put(m, &key, &[7; 1 << 19]).map(drop)))?;
    /// assert!(memory.size()? > 16 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn growing(mut self, limit: impl Into<Size>) -> Self {
        self.growing = Some(limit.into());
        self
    }
    /// Puts a device of this process before the medium: a thread that keeps its core busy while
    /// there are requests, and a millisecond longer. Workers use queues in their own memory,
    /// without copies or system calls. Over a pool, whose store runs in the device, they pay for
    /// neither log, checksums nor reclaim. Programs on a disk, or with many writes to a well-filled
    /// pool, win where a core is free, and lose otherwise. The pool opens in either mode. The
    /// thread is pinned to `core` if one is named.
    pub fn on_device(mut self, core: Option<usize>) -> Self {
        self.on_device = Some(core);
        self
    }
    /// Opens the medium and starts the workers. What a start that fails, or is killed, was to
    /// create is not there.
    ///
    /// # Errors
    /// [`Error::Unit`] and [`Error::NotHonoured`], before anything is touched. [`Error::Open`],
    /// [`Error::OpenPool`], [`Error::Members`], [`Error::Geometry`], [`Error::Device`],
    /// [`Error::Build`]. [`Error::Root`] when the directory of the pool cannot be read.
    pub fn start(self) -> Result<Fulgurite, Error> {
        let dram_bytes = self.dram.bytes()?;
        let keep_space = self.keep_space.map(|size| size.bytes()).transpose()?;
        let growing = self.growing.map(|size| size.bytes()).transpose()?;
        let object_cache = self.object_cache.map(|size| size.bytes()).transpose()?;
        let records = self.record_cache.map(|size| size.bytes()).transpose()?.unwrap_or(0);
        let opened = self.medium.begin(&Settings {
            durability: self.durability.map(Durability::of_store),
            keep_tokens: self.keep_tokens,
            keep_age: self.keep_age,
            keep_space,
            on_device: self.on_device,
            growing,
            history_share: None,
            dram_bytes,
        })?;
        let packs = opened.flash.backing().is_some_and(|backing| backing.objects().is_some());
        let objects_of = |dram_bytes: u64| match object_cache.unwrap_or(dram_bytes / 4) {
            bytes if packs && bytes >= 1 << 20 => bytes,
            _ => 0,
        };
        let objects = objects_of(dram_bytes);
        let mut builder = Runtime::builder(opened.flash.clone()).dram(dram_bytes).objects(objects);
        builder = builder.objects_move(object_cache.is_none()).records(records);
        if opened.kept.is_some() {
            builder = builder.existing(u64::from(opened.flash.subpages()) * SUBPAGE_BYTES as u64);
        }
        let runtime = self.adjust.into_iter().fold(builder, |builder, adjust| adjust(builder)).build();
        let runtime = runtime.map_err(|error| match error {
            runtime::BuildError::TooSmall { budget, fixed, least } => {
                // A larger budget is divided into larger parts.
                let parts = |dram_bytes| opened.store_bytes(dram_bytes) + objects_of(dram_bytes);
                let frame_of_each = least.saturating_sub(fixed);
                let least = least.saturating_add(frame_of_each * (FRAMES_OF_USE - 1));
                runtime::BuildError::TooSmall { budget, fixed, least: least_budget(budget, least, parts) }
            }
            error => error,
        })?;
        let growth = growth::Growth::of(&opened);
        let store = opened.kept.clone().map(store::Store::from);
        let durability = self.durability.unwrap_or_default();
        let memory = Fulgurite::over(Arc::new(runtime), store, growth, durability, dram_bytes)?;
        // All has been checked, and runs.
        opened.finish()?;
        Ok(memory)
    }
}

/// Frames of each worker with which jobs and transactions of few subpages work. A runtime starts
/// with one, in which no pin fits.
const FRAMES_OF_USE: u64 = 16;

/// The budget that suffices where one of `budget` would have to be `told`, because of which `parts`
/// grow with it.
fn least_budget(budget: u64, told: u64, parts: impl Fn(u64) -> u64) -> u64 {
    let others = told.saturating_sub(parts(budget));
    // The parts are less than all of it, so this ends.
    let mut least = told;
    for _ in 0..200 {
        let needed = others.saturating_add(parts(least));
        if needed <= least {
            break;
        }
        least = needed;
    }
    // Some parts have a least size of their own, or are rounded.
    if least == told { told } else { least.saturating_add(least / 64).next_multiple_of(64 << 10) }
}

/// A memory in flash, and the workers that run jobs on it.
///
/// Dropping the last handle of a pool syncs it, and waits for jobs that have started. In a job it
/// returns at once, and a thread does both. An exit of the process then waits for the sync.
///
/// On a pool, named data outlives it ([`Fulgurite::named`]). Unnamed data lasts as long as the
/// process, and its space is not found again. Other media are laid out anew at each start.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let users = memory.named("users").hash_map::<u64, u64>(1000)?;
/// memory.run(|m| users.insert(m, &1, 10))?;
/// let before = memory.sync()?;
/// memory.run(|m| users.insert(m, &1, 11))?;
/// memory.roll_back(before)?;
/// assert_eq!(memory.run(|m| users.get(m, &1))?, Some(10));
/// # Ok(())
/// # }
/// ```
pub struct Fulgurite {
    // Stops before the runtime does.
    syncer: Option<durable::Syncer>,
    runtime: Arc<Runtime>,
    pool: Option<durable::Kept>,
    transactions: Arc<Transactions>,
}

impl Drop for Fulgurite {
    fn drop(&mut self) {
        if self.runtime.check_process().is_err() {
            self.syncer.take().into_iter().for_each(durable::Syncer::forget);
            return;
        }
        // The runtime syncs at its end, with what was left for that.
        if let Some(kept) = &self.pool {
            kept.pool.last_sync_begins();
        }
        if fulgurite_runtime::on_worker() {
            // The thread that syncs needs this worker for its last sync. It holds the runtime.
            self.runtime.ends_elsewhere();
            self.syncer.take().into_iter().for_each(durable::Syncer::end_by_itself);
        }
    }
}

impl Fulgurite {
    /// A memory on `medium`, with 64 MiB of DRAM and one worker unless said otherwise.
    pub fn builder(medium: Medium) -> Builder {
        Builder {
            medium,
            dram: Size::from(64 << 20),
            durability: None,
            keep_tokens: None,
            keep_age: None,
            keep_space: None,
            on_device: None,
            object_cache: None,
            record_cache: None,
            growing: None,
            adjust: Vec::new(),
        }
    }

    /// Runs `code` on a worker and waits for it, from any thread that is not a worker. It may
    /// borrow from its caller. The job may hold four pins, and has the other defaults of
    /// [`JobOptions`]. [`Fulgurite::run_with`] sets them.
    ///
    /// # Errors
    /// What `code` returned. [`AccessError::Overloaded`] and [`AccessError::ShuttingDown`] when it
    /// was not run.
    ///
    /// # Panics
    /// When `code` panics, and when it overflows its stack. Inside a job: there is a context there.
    /// [`Fulgurite::run_as`] returns both as errors.
    pub fn run<'env, T: Send + 'env>(
        &self,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'env,
    ) -> Result<T, AccessError> {
        self.runtime.run(code)
    }

    /// Runs `code` on the calling thread, which is no worker's. What is in DRAM costs no switch of
    /// threads, and a miss blocks this thread only. Many misses at once are cheaper in jobs
    /// ([`Fulgurite::run`]), which switch to each other.
    ///
    /// ```
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
    /// let squares = memory.hash_map::<u64, u64>(1000)?;
    /// memory.run_here(|m| squares.insert(m, &9, 81))?;
    /// assert_eq!(memory.run_here(|m| squares.get(m, &9))?, Some(81));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `code` returned. [`AccessError::OnWorker`] inside a job. [`AccessError::Nested`] inside
    /// the closure of an operation of this thread. [`AccessError::TooManyThreads`] beyond 4,096.
    /// [`AccessError::Forked`].
    pub fn run_here<T, E: From<AccessError>>(&self, code: impl FnOnce(&mut Guest<'_>) -> Result<T, E>) -> Result<T, E> {
        self.runtime.run_here(code)
    }

    /// As [`Fulgurite::run`], with a name, a priority, a deadline, a bound on pins, a worker.
    ///
    /// # Errors
    /// [`Error::Submit`] when the job was not accepted, and nothing ran. [`Error::Access`] with
    /// what `code` returned.
    ///
    /// # Panics
    /// As [`Fulgurite::run`].
    pub fn run_with<'env, T: Send + 'env>(
        &self,
        options: &JobOptions,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'env,
    ) -> Result<T, Error> {
        Ok(self.runtime.run_with(options, code)??)
    }

    /// As [`Fulgurite::run_with`], where `code` has errors of its own. [`Fulgurite::run`] cannot
    /// have them: nothing would tell the compiler what the `?` in its closures turns errors into.
    ///
    /// ```
    /// use fulgurite::{AccessError, Error, Fulgurite, JobOptions, Medium};
    ///
    /// #[derive(Debug)]
    /// enum Refusal {
    ///     Unknown,
    ///     Memory(Error),
    /// }
    /// impl From<Error> for Refusal {
    ///     fn from(error: Error) -> Refusal {
    ///         Refusal::Memory(error)
    ///     }
    /// }
    /// impl From<AccessError> for Refusal {
    ///     fn from(error: AccessError) -> Refusal {
    ///         Refusal::Memory(error.into())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
    /// let map = memory.hash_map::<u64, u64>(1000)?;
    /// let found = memory.run_as(&JobOptions::new(), |m| map.get(m, &1)?.ok_or(Refusal::Unknown));
    /// assert!(matches!(found, Err(Refusal::Unknown)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `code` returned. [`Error::Submit`] when the job was not accepted, and nothing ran.
    /// [`Error::Job`] when it panicked. [`Error::InsideJob`]. [`Error::Access`] when it was
    /// cancelled or late.
    pub fn run_as<'env, T, E>(
        &self,
        options: &JobOptions,
        code: impl FnOnce(&mut Context) -> Result<T, E> + Send + 'env,
    ) -> Result<T, E>
    where
        T: Send + 'env,
        E: From<Error> + Send + 'env,
    {
        self.job("run_as", options, code)
    }
    /// Runs a job for a call of this name, whose errors are the caller's.
    fn job<'env, T, E>(
        &self,
        what: &'static str,
        options: &JobOptions,
        code: impl FnOnce(&mut Context) -> Result<T, E> + Send + 'env,
    ) -> Result<T, E>
    where
        T: Send + 'env,
        E: From<Error> + Send + 'env,
    {
        if fulgurite_runtime::on_worker() {
            return Err(Error::InsideJob { what }.into());
        }
        running::ended(self.runtime.run_job(options, code))
    }

    /// Starts `code` on a worker. The future ends with it. Dropped before that, it cancels the job.
    ///
    /// ```
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
    /// #             return value;
    /// #         }
    /// #         std::thread::yield_now();
    /// #     }
    /// # }
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
    /// let map = memory.hash_map::<u64, u64>(1000)?;
    /// let old = block_on(async { memory.run_async(move |m| map.insert(m, &1, 7)).await })?;
    /// assert_eq!(old, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_async<T: Send + 'static>(
        &self,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'static,
    ) -> Running<T> {
        Running::of(self.runtime.submit(code))
    }

    /// As [`Fulgurite::run_async`], with a name, a priority, a deadline, a bound on pins, a worker.
    ///
    /// A transaction of an asynchronous caller is one inside such a job:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fulgurite::{AccessError, Fulgurite, JobOptions, Medium};
    ///
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
    /// #             return value;
    /// #         }
    /// #         std::thread::yield_now();
    /// #     }
    /// # }
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
    /// let map = memory.hash_map::<u64, u64>(1000)?;
    /// let transactions = memory.transactions();
    /// // A pin for each subpage that it writes.
    /// let options = JobOptions::new().pins(32).deadline(Duration::from_secs(60));
    /// let sum = memory.run_async_with(&options, move |m| {
    ///     transactions.run(m, |t| {
    ///         let sum = t.get(&map, &1)?.unwrap_or(0) + 7;
    ///         t.put(&map, &1, &sum)?;
    ///         Ok::<u64, AccessError>(sum)
    ///     })
    /// });
    /// assert_eq!(block_on(sum)?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_async_with<T: Send + 'static>(
        &self,
        options: &JobOptions,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'static,
    ) -> Running<T> {
        Running::of(self.runtime.submit_with(options, code))
    }

    /// Starts `code` on a worker; the handle can be waited for, awaited or used to cancel it.
    ///
    /// # Errors
    /// When the runtime is overloaded or shutting down.
    pub fn submit<T: Send + 'static>(
        &self,
        code: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<JobHandle<T>, SubmitError> {
        self.runtime.submit(code)
    }

    /// As [`Fulgurite::submit`], with a name, a priority, a deadline, a bound on pins, a worker.
    pub fn submit_with<T: Send + 'static>(
        &self,
        options: &JobOptions,
        code: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<JobHandle<T>, SubmitError> {
        self.runtime.submit_with(options, code)
    }

    /// A region of a size in bytes, or as text (`"1M"`), shared by all workers. On a pool it has
    /// whole pages of 64 KiB, which read as zeros at first. Only what leads to it finds it again. A
    /// named container has its own.
    ///
    /// # Errors
    /// [`Error::Unit`]. [`Error::Access`] with [`AccessError::NoSpace`]. On a pool also what the
    /// medium says, and [`AccessError::PinnedTooOften`] when a job without a right to the addresses
    /// holds a pin there.
    ///
    /// # Panics
    /// Inside a job.
    pub fn region(&self, size: impl Into<Size>) -> Result<Region, Error> {
        let bytes = size.into().bytes()?;
        if self.pool.is_some() {
            return self.reserve_clean("region", bytes, None);
        }
        let bytes = bytes.checked_next_multiple_of(SUBPAGE_BYTES as u64).unwrap_or(u64::MAX);
        Ok(Region::new(self.runtime.reserve_shared(bytes)?, bytes))
    }

    /// A heap of a size in bytes, or as text (`"1M"`), for small objects and for the nodes of
    /// containers.
    ///
    /// # Errors
    /// As [`Fulgurite::region`].
    pub fn heap(&self, size: impl Into<Size>) -> Result<Arc<Heap>, Error> {
        let region = self.region(size)?;
        let heap = self.run(move |m| Heap::create(m, region).map(Arc::new))?;
        if self.pool.is_some() {
            // What the heap knows in DRAM rolls back with the data.
            self.runtime.keep(heap.clone());
        }
        Ok(heap)
    }

    /// An empty hash map for up to about `capacity` entries, in a region and a heap of its own. It
    /// grows with them, a little in each insert.
    ///
    /// # Errors
    /// As [`Fulgurite::region`].
    pub fn hash_map<K, V>(&self, capacity: u64) -> Result<Arc<HashMap<K, V, VersionLatch>>, Error>
    where
        K: Plain + Eq + KeyHash + Send + Sync,
        V: Plain + Send + Sync,
    {
        let bytes = HashMap::<K, V, VersionLatch>::bytes_to_grow(capacity);
        let heap = self.heap((bytes / 2).max(1 << 20))?;
        let region = self.region(bytes)?;
        Ok(self.run(move |m| HashMap::create_growing(m, region, heap, capacity, 1 << 12).map(Arc::new))?)
    }

    /// Changes the DRAM budget while running.
    ///
    /// # Errors
    /// [`Error::Unit`]. [`Error::Build`] when it is too small, or above `dram_max`.
    pub fn set_dram(&self, size: impl Into<Size>) -> Result<(), Error> {
        Ok(self.runtime.set_dram(size.into().bytes()?)?)
    }

    /// What has been counted; as Prometheus text by [`Statistics::prometheus`].
    ///
    /// # Panics
    /// Inside a job.
    pub fn statistics(&self) -> Statistics {
        self.runtime.statistics()
    }

    /// The runtime underneath.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}
