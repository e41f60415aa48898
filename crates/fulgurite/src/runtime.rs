//! The runtime underneath ([`Builder::with`](crate::Builder::with),
//! [`Fulgurite::runtime`](crate::Fulgurite::runtime)), and its policies.

pub use fulgurite_policy::AdmissionPolicy;

/// How far to read ahead.
///
/// ```
/// use fulgurite::runtime::PrefetchPolicy;
/// use fulgurite::{Error, Fulgurite, Medium, Memory};
///
/// /// How often a scan misses.
/// fn misses(policy: PrefetchPolicy) -> Result<u64, Error> {
///     let builder = Fulgurite::builder(Medium::memory("64M")).dram("8M");
///     let memory = builder.with(move |runtime| runtime.prefetch(policy)).start()?;
///     let region = memory.region("8M")?;
///     let mut subpages = (0..region.bytes).step_by(4096).map(|offset| region.base.add(offset));
///     memory.run(|m| subpages.clone().try_for_each(|at| m.write_bytes(at, &[7])))?;
///     memory.run(|m| subpages.try_for_each(|at| m.read_bytes(at, &mut [0])))?;
///     Ok(memory.statistics().total().counts.misses)
/// }
///
/// # fn main() -> Result<(), Error> {
/// // The default finds out where it pays. Off is for keys that are anywhere.
/// assert!(misses(PrefetchPolicy::Adaptive)? < misses(PrefetchPolicy::Off)? / 4);
/// assert_eq!("next-4".parse(), Ok(PrefetchPolicy::Next(4)));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_policy::PrefetchPolicy;

/// Which frame is emptied next.
///
/// ```
/// use fulgurite::runtime::{PrefetchPolicy, ReplacementPolicy};
/// use fulgurite::{Error, Fulgurite, Medium, Memory};
///
/// /// How often a loop misses that does not quite fit.
/// fn misses(policy: ReplacementPolicy) -> Result<u64, Error> {
///     let builder = Fulgurite::builder(Medium::memory("64M")).dram("8M");
///     let builder = builder.with(move |runtime| runtime.replacement(policy));
///     let memory = builder.with(|runtime| runtime.prefetch(PrefetchPolicy::Off)).start()?;
///     let region = memory.region("8M")?;
///     let subpages = (0..region.bytes).step_by(4096).map(|offset| region.base.add(offset));
///     memory.run(|m| subpages.clone().try_for_each(|at| m.write_bytes(at, &[7])))?;
///     let mut six = (0..6).flat_map(|_| subpages.clone());
///     memory.run(|m| six.try_for_each(|at| m.read_bytes(at, &mut [0])))?;
///     Ok(memory.statistics().total().counts.misses)
/// }
///
/// # fn main() -> Result<(), Error> {
/// // What was used least recently is what a loop needs next.
/// assert!(misses(ReplacementPolicy::S3Fifo)? < misses(ReplacementPolicy::Lru)?);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_policy::ReplacementPolicy;

/// Which fiber a worker runs next.
///
/// ```
/// use fulgurite::runtime::SchedulingPolicy;
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy: SchedulingPolicy = "priority-aging".parse()?;
/// assert_eq!(policy, SchedulingPolicy::PriorityAging);
/// let builder = Fulgurite::builder(Medium::memory("64M")).dram("8M");
/// let memory = builder.with(move |runtime| runtime.scheduling(policy)).start()?;
/// # drop(memory);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_policy::SchedulingPolicy;

/// How many subpages a set of a set-associative cache has.
///
/// ```
/// use fulgurite::runtime::{ReplacementPolicy, Ways};
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // As in hardware.
/// let sets = ReplacementPolicy::SetAssociative(Ways::Eight);
/// let builder = Fulgurite::builder(Medium::memory("64M")).dram("8M");
/// let memory = builder.with(move |runtime| runtime.replacement(sets)).start()?;
/// # drop(memory);
/// assert_eq!(Ways::Eight.count(), 8);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_policy::Ways;

/// Why a runtime could not be built.
///
/// ```
/// use fulgurite::runtime::BuildError;
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Error> {
/// // Some memory, as little as there can be.
/// let memory = match Fulgurite::builder(Medium::memory("64M")).dram("1M").start() {
///     Err(Error::Build(BuildError::TooSmall { least, .. })) => {
///         Fulgurite::builder(Medium::memory("64M")).dram(least).start()?
///     }
///     other => other?,
/// };
/// assert!(memory.statistics().dram_bytes > 1 << 20);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::BuildError;

/// What a [`Runtime`] is built from. [`Builder::with`](crate::Builder::with) hands one out.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M"))
///     .dram("8M")
///     // Few jobs at once, with deep stacks, and a budget that may double later.
///     .with(|runtime| runtime.fibers(8).stack(256 << 10).dram_max(16 << 20))
///     .start()?;
/// memory.set_dram("12M")?;
/// assert_eq!(memory.runtime().dram_bytes(), 12 << 20);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Builder;

/// State in DRAM that is saved by each sync, and rolls back with the data.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use fulgurite::runtime::Durable;
/// use fulgurite::views::Ptr;
/// use fulgurite::{AccessError, Context, Fulgurite, Medium, Memory};
///
/// /// Counts in DRAM, without an access for each visit.
/// struct Visits {
///     count: AtomicU64,
///     saved: Ptr<u64>,
/// }
/// impl Durable for Visits {
///     fn save(&self, m: &mut Context) -> Result<(), AccessError> {
///         m.store(self.saved, self.count.load(Ordering::Relaxed))
///     }
///     fn reload(&self, m: &mut Context) -> Result<(), AccessError> {
///         self.count.store(m.load(self.saved)?, Ordering::Relaxed);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("visits.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let saved = memory.named("visits").value(0_u64)?;
/// let visits = Arc::new(Visits { count: AtomicU64::new(0), saved });
/// memory.runtime().keep(visits.clone());
/// visits.count.fetch_add(7, Ordering::Relaxed);
/// let token = memory.sync()?;
/// visits.count.fetch_add(1, Ordering::Relaxed);
/// memory.roll_back(token)?;
/// assert_eq!(visits.count.load(Ordering::Relaxed), 7);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Durable;

/// What a [`Service`] has to do next. Its times are read from the clock in the layer
/// `fulgurite-sys`.
///
/// ```
/// use std::cell::Cell;
///
/// use fulgurite::runtime::{Clock, Next, Service};
/// use fulgurite::{Context, Fulgurite, Medium};
///
/// /// A load of one request each 50 µs.
/// struct Paced {
///     due_ns: Cell<u64>,
///     left: Cell<u32>,
/// }
/// impl Service for Paced {
///     fn next(&self) -> Next {
///         match self.left.get() {
///             0 => Next::Finished,
///             _ if Clock::get().now_ns() < self.due_ns.get() => Next::At(self.due_ns.get()),
///             _ => Next::Ready,
///         }
///     }
///     fn run(&self, m: &mut Context) {
///         // It is as old as it would be if nothing had been in its way.
///         m.set_arrival(self.due_ns.get());
///         self.due_ns.set(self.due_ns.get() + 50_000);
///         self.left.set(self.left.get() - 1);
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let begun_ns = Clock::get().now_ns();
/// let paced = move |_worker| Paced { due_ns: Cell::new(begun_ns), left: Cell::new(20) };
/// memory.runtime().serve(paced)?;
/// assert!(Clock::get().now_ns() - begun_ns >= 19 * 50_000);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Next;

/// Workers over a medium, which run jobs. [`Fulgurite`](crate::Fulgurite) has one, and names,
/// transactions and durability above it.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::Memory;
/// use fulgurite::media::MemoryFlash;
/// use fulgurite::runtime::Runtime;
/// use fulgurite::views::Ptr;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flash = Arc::new(MemoryFlash::new(16_384)?);
/// let runtime = Runtime::builder(flash).dram(8 << 20).workers(1).build()?;
/// let number = Ptr::<u64>::new(runtime.reserve_shared(4096)?);
/// runtime.run(|m| m.store(number, 42))?;
/// assert_eq!(runtime.run(|m| m.load(number))?, 42);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Runtime;

/// Why a [`Service`] ended before it had finished.
///
/// ```
/// use fulgurite::runtime::{Next, ServeError, Service};
/// use fulgurite::{Context, Fulgurite, Medium};
///
/// struct Broken;
/// impl Service for Broken {
///     fn next(&self) -> Next {
///         Next::Ready
///     }
///     fn run(&self, _: &mut Context) {
///         panic!("out of paper");
///     }
/// }
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// match memory.runtime().serve(|_worker| Broken) {
///     Err(ServeError::Died { worker, message }) => {
///         assert_eq!((worker, message.contains("out of paper")), (0, true));
///     }
///     other => panic!("it cannot finish: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::ServeError;

/// A source of requests inside a worker, and what is done with each.
///
/// ```
/// use std::cell::Cell;
/// use std::sync::Arc;
///
/// use fulgurite::latches::VersionLatch;
/// use fulgurite::runtime::{Next, Service};
/// use fulgurite::{Context, Fulgurite, HashMap, Medium};
///
/// /// Inserts `left` keys, one in each request.
/// struct Fill {
///     left: Cell<u64>,
///     into: Arc<HashMap<u64, u64, VersionLatch>>,
/// }
/// impl Service for Fill {
///     fn next(&self) -> Next {
///         if self.left.get() > 0 { Next::Ready } else { Next::Finished }
///     }
///     fn run(&self, m: &mut Context) {
///         // Before anything that may wait: other fibers run this meanwhile.
///         let key = self.left.get() - 1;
///         self.left.set(key);
///         self.into.insert(m, &key, key * key).expect("the medium holds");
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let squares = memory.hash_map::<u64, u64>(1000)?;
/// let into = squares.clone();
/// // Each worker makes its own. This returns when all of them have finished.
/// memory.runtime().serve(move |_worker| Fill { left: Cell::new(100), into: into.clone() })?;
/// assert_eq!(memory.run(|m| squares.get(m, &9))?, Some(81));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Service;

/// The clock of arrivals and of [`Next::At`]. [`Next`] has an example.
pub use fulgurite_sys::Clock;

/// What a thread that is no worker runs operations with ([`Fulgurite::run_here`]). It is the memory
/// that containers take.
///
/// ```
/// use fulgurite::runtime::Guest;
/// use fulgurite::{AccessError, Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let visits = memory.hash_map::<u64, u64>(1000)?;
/// let count = memory.run_here(|m: &mut Guest<'_>| {
///     let count = visits.get(m, &7)?.unwrap_or(0) + 1;
///     visits.insert(m, &7, count)?;
///     Ok::<u64, AccessError>(count)
/// })?;
/// assert_eq!(count, 1);
/// # Ok(())
/// # }
/// ```
///
/// [`Fulgurite::run_here`]: crate::Fulgurite::run_here
pub use fulgurite_runtime::Guest;

/// Which jobs run first.
///
/// ```
/// use fulgurite::JobOptions;
/// use fulgurite::runtime::Priority;
///
/// assert!(Priority::High > Priority::Normal);
/// let urgent = JobOptions::new().priority(Priority::High);
/// # drop(urgent);
/// ```
pub use fulgurite_runtime::Priority;

/// Why a job was not accepted.
///
/// ```
/// use fulgurite::runtime::SubmitError;
/// use fulgurite::{Fulgurite, JobOptions, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let elsewhere = JobOptions::new().worker(7);
/// let error = memory.submit_with(&elsewhere, |_| ()).err();
/// assert_eq!(error, Some(SubmitError::NoSuchWorker { worker: 7, workers: 1 }));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::SubmitError;

pub use crate::running::Running;
