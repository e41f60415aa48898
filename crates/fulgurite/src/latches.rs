//! Latches, for your own containers and for other threads than workers.

/// The right to change what a latch protects, until it is dropped.
///
/// ```
/// use fulgurite::latches::{Exclusive, Latch, VersionLatch};
/// use fulgurite::views::Ptr;
/// use fulgurite::{Context, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let (latch, counter) = (VersionLatch::default(), Ptr::<u64>::new(memory.region(4096)?.base));
/// let count = memory.run(|m| {
///     // Before the latch, so that no sync waits for a job that waits for it.
///     let _section = m.write_section()?;
///     let held: Exclusive<'_, VersionLatch, Context> = latch.lock(m)?;
///     let count = m.load(counter)? + 1;
///     m.store(counter, count)?;
///     drop(held);
///     Ok(count)
/// })?;
/// assert_eq!(count, 1);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Exclusive;

/// The latch for jobs of one worker, without locked instructions.
///
/// ```
/// use fulgurite::latches::FiberLatch;
/// use fulgurite::{Fulgurite, HashMap, JobOptions, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").workers(2).start()?;
/// let (heap, region) = (memory.heap("1M")?, memory.region("1M")?);
/// // All jobs that use this shard run on the worker that made it.
/// let here = JobOptions::new().worker(1);
/// let shard = memory.run_with(&here, |m| {
///     HashMap::<u64, u64, FiberLatch>::create(m, region, heap, 1000, 64)
/// })?;
/// memory.run_with(&here, |m| shard.insert(m, &7, 12))?;
/// assert_eq!(memory.run_with(&here, |m| shard.get(m, &7))?, Some(12));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::FiberLatch;

/// What containers are generic over: it orders their users.
///
/// ```
/// use fulgurite::latches::{Latch, VersionLatch};
/// use fulgurite::views::Ptr;
/// use fulgurite::{AccessError, Fulgurite, Medium, Memory};
///
/// /// A pair in two subpages, of which readers see one state.
/// struct Pair<L> {
///     latch: L,
///     parts: [Ptr<u64>; 2],
/// }
/// impl<L: Latch> Pair<L> {
///     fn set(&self, m: &mut impl Memory, value: u64) -> Result<(), AccessError> {
///         let _section = m.write_section()?;
///         let _held = self.latch.lock(m)?;
///         self.parts.iter().try_for_each(|part| m.store(*part, value))
///     }
///     /// Takes nothing, and reads again when a writer was there meanwhile.
///     fn get(&self, m: &mut impl Memory) -> Result<[u64; 2], AccessError> {
///         loop {
///             let version = self.latch.read_begin(m)?;
///             let pair = [m.load(self.parts[0])?, m.load(self.parts[1])?];
///             if self.latch.read_validate(version) {
///                 return Ok(pair);
///             }
///         }
///     }
/// }
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").workers(2).start()?;
/// let region = memory.region("64K")?;
/// let parts = [0, 8192].map(|offset| Ptr::new(region.base.add(offset)));
/// let pair = Pair { latch: VersionLatch::default(), parts };
/// memory.run(|m| pair.set(m, 7))?;
/// assert_eq!(memory.run(|m| pair.get(m))?, [7, 7]);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Latch;

/// Latches for more things than there are latches: each key has one by its hash.
///
/// ```
/// use fulgurite::latches::{Latch, LatchTable, VersionLatch};
/// use fulgurite::{Array, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let accounts = Array::<u64>::open(memory.region("8M")?, 1_000_000)?;
/// // 8 KiB of DRAM, for a million accounts.
/// let latches = LatchTable::<VersionLatch>::new(1024);
/// memory.run(|m| {
///     let _section = m.write_section()?;
///     // In their order, and each once, so that no two jobs wait for each other.
///     let mut both = [latches.index(3), latches.index(999_999)];
///     both.sort_unstable();
///     let _first = latches.get(both[0]).lock(m)?;
///     let _second = (both[0] != both[1]).then(|| latches.get(both[1]).lock(m)).transpose()?;
///     accounts.set(m, 3, 70)?;
///     accounts.set(m, 999_999, 30)
/// })?;
/// assert_eq!(latches.bytes(), 8192);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::LatchTable;

/// The latch of what a single thread has to itself: none.
///
/// ```
/// use fulgurite::latches::NoLatch;
/// use fulgurite::{BPlusTree, Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("1M")?;
/// // Made, used and gone within one job.
/// let distinct = memory.run(|m| {
///     let seen = BPlusTree::<(), NoLatch>::create(m, heap, 1)?;
///     let mut distinct = 0;
///     for number in [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] {
///         distinct += u64::from(seen.insert(m, number, ())?.is_none());
///     }
///     Ok(distinct)
/// })?;
/// assert_eq!(distinct, 7);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::NoLatch;

/// The latch for workers and other threads at once. Containers by name have it.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::latches::VersionLatch;
/// use fulgurite::{Fulgurite, HashMap, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").workers(2).start()?;
/// let visits: Arc<HashMap<u64, u64, VersionLatch>> = memory.hash_map(1000)?;
/// memory.run(|m| visits.insert(m, &7, 0))?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| memory.run(|m| visits.update(m, &7, |count| *count += 1)));
///     }
/// });
/// assert_eq!(memory.run(|m| visits.get(m, &7))?, Some(4));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::VersionLatch;
