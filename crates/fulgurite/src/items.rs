//! The types of the layers below that are at the root of this crate, each with an example.

/// What holds the data: a pool that lasts, or flash whose contents end with the program.
///
/// ```
/// use fulgurite::{Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("visits.pool");
/// // Made by the first run, and found by the others.
/// let visits = || -> Result<u64, Box<dyn std::error::Error>> {
///     let medium = Medium::pool_or_new(&path, "16M");
///     let memory = Fulgurite::builder(medium).dram("8M").start()?;
///     let count = memory.named("visits").value(0_u64)?;
///     Ok(memory.run(|m| {
///         let visits = m.load(count)? + 1;
///         m.store(count, visits)?;
///         Ok(visits)
///     })?)
/// };
/// assert_eq!((visits()?, visits()?), (1, 2));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_backing::Medium;

/// A place in flash memory, by the byte.
///
/// ```
/// use fulgurite::{Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap(1 << 20)?;
/// let text = memory.run(|m| {
///     let at = heap.allocate(m, 5)?;
///     m.write_bytes(at, b"hello")?;
///     let mut text = [0; 5];
///     m.read_bytes(at, &mut text)?;
///     Ok(text)
/// })?;
/// assert_eq!(&text, b"hello");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_format::Address;

/// Types whose values may be stored in flash memory as they are.
///
/// ```
/// use fulgurite::Plain;
/// use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "fulgurite::zerocopy")]
/// #[repr(C)]
/// struct Place {
///     row: u32,
///     column: u32,
/// }
/// fn bytes(value: &impl Plain) -> usize {
///     value.as_bytes().len()
/// }
/// assert_eq!(bytes(&Place { row: 3, column: 7 }), 8);
/// ```
pub use fulgurite_format::Plain;

/// A number of bytes, as a number or as people write it.
///
/// ```
/// use fulgurite::Size;
///
/// assert_eq!(Size::from("64M").bytes().unwrap(), 64 << 20);
/// assert_eq!(Size::from(4096).bytes().unwrap(), 4096);
/// assert!(Size::from("much").bytes().is_err());
/// ```
pub use fulgurite_format::Size;

/// A fixed number of values, reached by their index.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("samples.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let samples = memory.named("samples").array(1_000_000, |_| 0.0_f32)?;
/// memory.run(|m| samples.set(m, 999_999, 0.5))?;
/// assert_eq!(memory.run(|m| samples.get(m, 999_999))?, 0.5);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Array;

/// Values under numbers, in the order of these.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("prices.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let prices = memory.named("prices").b_plus_tree::<u32>(1 << 20)?;
/// let mut seen = Vec::new();
/// memory.run(|m| {
///     for day in 1..=100 {
///         prices.insert(m, day, 1000 + day as u32)?;
///     }
///     prices.scan(m, 20, 22, |day, price| {
///         seen.push((day, *price));
///         ControlFlow::Continue(())
///     })
/// })?;
/// assert_eq!(seen, [(20, 1020), (21, 1021), (22, 1022)]);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::BPlusTree;

/// Values of any length under keys of one plain type.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("sessions.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let sessions = memory.named("sessions").blobs::<u64>(1000, "4M")?;
/// memory.run(|m| sessions.put(m, &7, b"signed in"))?;
/// // Only while it is what somebody has seen.
/// assert!(memory.run(|m| sessions.compare_and_put(m, &7, Some(b"signed in"), b"bought"))?);
/// let mut value = Vec::new();
/// assert!(memory.run(|m| sessions.get(m, &7, &mut value))?);
/// assert_eq!(value, b"bought");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Blobs;

/// Values under keys of any plain type, without an order.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let stock = memory.hash_map::<u64, u32>(100_000)?;
/// memory.run(|m| stock.insert(m, &7, 12))?;
/// assert_eq!(memory.run(|m| stock.get(m, &7))?, Some(12));
/// assert_eq!(memory.run(|m| stock.remove(m, &7))?, Some(12));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::HashMap;

/// Room for small objects, given out and taken back.
///
/// ```
/// use fulgurite::views::Ptr;
/// use fulgurite::{Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap(1 << 20)?;
/// memory.run(|m| {
///     let number: Ptr<u64> = Ptr::new(heap.allocate(m, 8)?);
///     m.store(number, 42)?;
///     assert_eq!(m.load(number)?, 42);
///     heap.free(m, number.address(), 8)
/// })?;
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Heap;

/// Keys of hash maps, of a type of your own, too.
///
/// ```
/// use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
/// use fulgurite::{Fulgurite, KeyHash, Medium};
///
/// #[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "fulgurite::zerocopy")]
/// #[repr(C)]
/// struct Place {
///     row: u32,
///     column: u32,
/// }
/// impl KeyHash for Place {}
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heights = memory.hash_map::<Place, f32>(1000)?;
/// memory.run(|m| heights.insert(m, &Place { row: 3, column: 7 }, 1234.5))?;
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::KeyHash;

/// What containers and programs reach flash memory through.
///
/// ```
/// use fulgurite::views::Ptr;
/// use fulgurite::{AccessError, Fulgurite, Medium, Memory};
///
/// /// Works in a job, in a transaction, and over plain memory in a test.
/// fn count(m: &mut impl Memory, counter: Ptr<u64>) -> Result<u64, AccessError> {
///     let count = m.load(counter)? + 1;
///     m.store(counter, count)?;
///     Ok(count)
/// }
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let counter = Ptr::new(memory.region(4096)?.base);
/// assert_eq!(memory.run(|m| count(m, counter))?, 1);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Memory;

/// Values of any length under byte strings, in the order of these.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pages.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let pages = memory.named("pages").ordered_blobs(1000, 4 << 20)?;
/// let mut page = Vec::new();
/// memory.run(|m| {
///     pages.put(m, b"/about", b"<h1>About</h1>")?;
///     pages.append(m, b"/about", b"<p>Us.</p>")?;
///     pages.get(m, b"/about", &mut page)
/// })?;
/// assert_eq!(page, b"<h1>About</h1><p>Us.</p>");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::OrderedBlobs;

/// A range of flash memory.
///
/// ```
/// use fulgurite::{Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let region = memory.region(1 << 20)?;
/// let (log, rest) = region.split(64 << 10);
/// memory.run(|m| m.write_bytes(log.base, b"begun"))?;
/// assert_eq!((log.bytes, rest.bytes), (64 << 10, (1 << 20) - (64 << 10)));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Region;

/// An open container with its name.
///
/// ```
/// use fulgurite::{Fulgurite, HashMap, Medium, Rooted};
/// use fulgurite::latches::VersionLatch;
///
/// /// What the calls of `Named` return is the container, with what its name leads to.
/// fn name_of(map: &Rooted<HashMap<u64, u64, VersionLatch>>) -> &str {
///     map.entry().name.as_str()
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let users = memory.named("users").hash_map::<u64, u64>(1000)?;
/// assert_eq!(name_of(&users), "users");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Rooted;

/// Types that a name may lead to: plain, with a name of their own that outlives the program.
///
/// ```
/// use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
/// use fulgurite::{Fulgurite, Medium, Stored};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
/// #[zerocopy(crate = "fulgurite::zerocopy")]
/// #[stored(name = "shop.Price/1")]
/// #[repr(C)]
/// struct Price {
///     cents: u64,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shop.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let prices = memory.named("prices").array(100, |i| Price { cents: 100 * i })?;
/// assert_eq!(memory.run(|m| prices.get(m, 3))?.cents, 300);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Stored;

/// Transactions inside jobs ([`Fulgurite::transactions`](crate::Fulgurite::transactions)).
///
/// ```
/// use fulgurite::{AccessError, Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let visits = memory.hash_map::<u64, u64>(1000)?;
/// let transactions = memory.transactions();
/// let count = memory.run(|m| {
///     transactions.run(m, |t| {
///         let count = t.get(&visits, &7)?.unwrap_or(0) + 1;
///         t.put(&visits, &7, &count)?;
///         Ok::<u64, AccessError>(count)
///     })
/// })?;
/// assert_eq!(count, 1);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Transactions;

/// Why an access to flash memory failed.
///
/// ```
/// use fulgurite::{AccessError, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let outside = memory.region(4096)?.base.add(1 << 40);
/// let error = memory.run(|m| m.read_bytes(outside, &mut [0; 8])).unwrap_err();
/// assert!(matches!(error, AccessError::OutOfRange { at } if at == outside));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::AccessError;

/// What a job runs with. It is the memory that containers take.
///
/// ```
/// use std::time::Duration;
///
/// use fulgurite::{Context, Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let worker = memory.run(|m: &mut Context| {
///     // Other jobs run meanwhile, as they do while this one waits for flash.
///     m.sleep(Duration::from_millis(1))?;
///     Ok(m.worker())
/// })?;
/// assert_eq!(worker, 0);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Context;

/// Why a job gave no result.
///
/// ```
/// use fulgurite::{Fulgurite, JobError, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let job = memory.submit(|_| panic!("out of paper"))?;
/// let error: JobError = job.wait().unwrap_err();
/// assert_eq!(error.to_string(), "job \"job\" panicked: out of paper");
/// // It took nothing else with it.
/// assert_eq!(memory.run(|_| Ok(7))?, 7);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::JobError;

/// A job that was submitted: waited for, awaited or cancelled.
///
/// ```
/// use fulgurite::{Fulgurite, JobHandle, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let begin = |n: u64| memory.submit(move |_| n * n);
/// let jobs: Vec<JobHandle<u64>> = (0..4).map(begin).collect::<Result<_, _>>()?;
/// let sum: u64 = jobs.into_iter().map(|job| job.wait().unwrap()).sum();
/// assert_eq!(sum, 14);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::JobHandle;

/// How a job runs.
///
/// ```
/// use std::time::Duration;
///
/// use fulgurite::runtime::Priority;
/// use fulgurite::{Fulgurite, JobOptions, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let minute = Duration::from_secs(60);
/// let report = JobOptions::new().name("report").priority(Priority::Low).deadline(minute);
/// assert_eq!(memory.run_with(&report, |_| Ok(7))?, 7);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::JobOptions;

/// What has been counted, by worker.
///
/// ```
/// use fulgurite::{Fulgurite, Medium, Statistics};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// memory.run(|_| Ok(()))?;
/// let statistics: Statistics = memory.statistics();
/// assert_eq!(statistics.dram_bytes, 8 << 20);
/// assert!(statistics.total().counts.jobs_started >= 1);
/// assert!(statistics.prometheus().contains("fulgurite_misses_total"));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Statistics;

/// Why a state could not be named or made again.
///
/// ```
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let error = memory.roll_back(12345).unwrap_err();
/// assert!(matches!(error, Error::Sync(_) | Error::Pool(_)), "{error}");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::SyncError;
