//! Memory by address: pointers, views, pins, sections.

pub use fulgurite_format::SUBPAGE_BYTES;

/// Which memory a handle belongs to. A container is used in its own memory only.
///
/// ```
/// use fulgurite::{AccessError, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let start = || Fulgurite::builder(Medium::memory("64M")).dram("8M").start();
/// let (one, other) = (start()?, start()?);
/// let users = one.hash_map::<u64, u64>(1000)?;
/// assert_ne!(one.run(|m| Ok(m.id()))?, other.run(|m| Ok(m.id()))?);
/// let error = other.run(|m| users.insert(m, &1, 10)).unwrap_err();
/// assert_eq!(error, AccessError::OtherMemory);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::MemoryId;

/// What a [`RawMemory`] says of itself: its [`MemoryId`], and where it counts its roll backs.
///
/// ```
/// use std::sync::atomic::AtomicU64;
///
/// use fulgurite::Memory;
/// use fulgurite::views::{Backed, Identity, PlainMemory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = PlainMemory::new(Backed::BasePages)?;
/// // A memory over it, for tests, which rolls back whenever the test says so.
/// let roll_backs = AtomicU64::new(0);
/// let identity: Identity<'_> = Identity::new(memory.id(), &roll_backs);
/// # let _ = identity;
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Identity;

/// A value of an [`OwnedRegion`] that stays at hand.
///
/// ```
/// use fulgurite::views::{OwnedPin, OwnedRegion, Ptr};
/// use fulgurite::{Fulgurite, JobOptions, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let builder = Fulgurite::builder(Medium::memory("64M")).dram("8M");
/// let memory = builder.with(|runtime| runtime.owned(1 << 20)).start()?;
/// let region = OwnedRegion::reserve(memory.runtime(), 0, 4096)?;
/// let at = Ptr::<[u64; 4]>::new(region.region().base);
/// let sum = memory.run_with(&JobOptions::new().worker(region.worker()), |m| {
///     let mut totals: OwnedPin<[u64; 4]> = region.pin(m, at)?;
///     for n in 0..100 {
///         // Neither misses nor fails.
///         totals.get_mut(m)[n % 4] += n as u64;
///     }
///     Ok(totals.get(m).iter().sum::<u64>())
/// })?;
/// assert_eq!(sum, 4950);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::OwnedPin;

/// Memory of one worker, whose jobs reach it by plain references, without latches.
///
/// ```
/// use fulgurite::views::{OwnedRegion, Ptr};
/// use fulgurite::{AccessError, Fulgurite, JobOptions, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Fulgurite::builder(Medium::memory("64M")).dram("8M").workers(2);
/// let memory = builder.with(|runtime| runtime.owned(1 << 20)).start()?;
/// let region = OwnedRegion::reserve(memory.runtime(), 1, 4096)?;
/// let counter = Ptr::<u64>::new(region.region().base);
/// let count = |worker| {
///     memory.run_with(&JobOptions::new().worker(worker), |m| {
///         let count: &mut u64 = region.get_mut(m, counter)?;
///         *count += 1;
///         Ok(*count)
///     })
/// };
/// assert_eq!((count(1)?, count(1)?), (1, 2));
/// // Other workers get an error that names its owner.
/// let error = count(0).unwrap_err();
/// assert!(matches!(error, fulgurite::Error::Access(AccessError::NotOwner { owner: 1, .. })));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::OwnedRegion;

/// A subpage that stays at hand: no access to it misses or fails while the pin lives.
///
/// ```
/// use fulgurite::views::Pinned;
/// use fulgurite::{Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let [from, to] = [memory.region(4096)?.base, memory.region(4096)?.base];
/// memory.run(|m| {
///     m.write_bytes(from, b"hello")?;
///     // Both at once, which two views cannot be. What may fail is over then.
///     let (from, to) = (m.pin(from)?, m.pin(to)?);
///     to.view_mut(0, 5).store(0, from.view(0, 5).load::<[u8; 5]>(0));
///     Ok(())
/// })?;
/// let mut copy = [0; 5];
/// memory.run(|m| m.read_bytes(to, &mut copy))?;
/// assert_eq!(&copy, b"hello");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Pinned;

/// These addresses in memory without flash, for tests of what takes a [`Memory`](crate::Memory).
/// What backs it is named by the layer `fulgurite-sys`.
///
/// ```
/// use fulgurite::containers::Masstree;
/// use fulgurite::latches::NoLatch;
/// use fulgurite::views::{Backed, PlainMemory};
/// use fulgurite::{AccessError, Address, Heap, Memory, Region};
///
/// /// What is to be tested: it runs in jobs, too.
/// fn first(m: &mut impl Memory, words: &Masstree<NoLatch>) -> Result<Option<u64>, AccessError> {
///     words.get(m, b"aardvark")
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let region = Region::new(Address::from_linear(1 << 20), 1 << 20);
/// let heap = Heap::create(&mut memory, region)?;
/// let words = Masstree::create(&mut memory, heap.into(), 1)?;
/// words.insert(&mut memory, b"aardvark", 7)?;
/// assert_eq!(first(&mut memory, &words)?, Some(7));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::PlainMemory;

/// A pin of [`PlainMemory`]: what it views is there in any case.
///
/// ```
/// use fulgurite::views::{Backed, Pinned, PlainMemory, PlainPin, RawMemory};
/// use fulgurite::{Address, Memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let at = Address::from_linear(8192 + 100);
/// let pin: PlainPin = memory.pin(at)?;
/// // Of the whole subpage.
/// assert_eq!(pin.address(), Address::from_linear(8192));
/// pin.view_mut(100, 1).store(0, 7_u8);
/// memory.read_bytes(at, &mut [0])?;
/// assert_eq!(pin.view(100, 1).load::<u8>(0), 7);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::PlainPin;
pub use fulgurite_memory::{Ptr, View};

/// What a kind of memory provides: views, pins and sections. [`Memory`](crate::Memory) is there for
/// each of them.
///
/// ```
/// use fulgurite::views::RawMemory;
/// use fulgurite::{AccessError, Address, Fulgurite, Medium};
///
/// /// Both halves of a record, by one access.
/// fn halves(m: &mut impl RawMemory, at: Address) -> Result<(u32, u32), AccessError> {
///     let record = m.view(at, 8)?;
///     Ok((record.load(0), record.load(4)))
/// }
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let region = memory.region(4096)?;
/// assert_eq!(memory.run(|m| halves(m, region.base))?, (0, 0));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::RawMemory;

/// Bytes to read and write until the next access.
///
/// ```
/// use fulgurite::views::{RawMemory, ViewMut};
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let record = memory.region(4096)?.base;
/// memory.run(|m| {
///     // One access for all fields.
///     let fields: ViewMut<'_> = m.view_mut(record, 16)?;
///     fields.store(0, 42_u64);
///     fields.store(8, fields.load::<u32>(8) + 1);
///     Ok(())
/// })?;
/// let read = memory.run(|m| {
///     let fields = m.view(record, 16)?;
///     Ok((fields.load::<u64>(0), fields.load::<u32>(8)))
/// })?;
/// assert_eq!(read, (42, 1));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::ViewMut;

/// Writes that are made together, or not at all: what may fail is over before the first.
///
/// ```
/// use fulgurite::views::{Ptr, WriteSet};
/// use fulgurite::{AccessError, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let region = memory.region("64K")?;
/// let [from, to] = [0, 8192].map(|offset| Ptr::<u64>::new(region.base.add(offset)));
/// memory.run(|m| {
///     m.store(from, 100)?;
///     let mut writes = WriteSet::new();
///     writes.store(from, 70)?;
///     writes.store(to, 30)?;
///     assert_eq!((m.load(from)?, m.load(to)?), (100, 0));
///     writes.commit(m)?;
///     assert_eq!((m.load(from)?, m.load(to)?), (70, 30));
///
///     // The second subpage is not there. The first stays as it was.
///     writes.store(from, 0)?;
///     writes.store(Ptr::<u64>::new(region.base.add(1 << 40)), 70)?;
///     assert!(matches!(writes.commit(m), Err(AccessError::OutOfRange { .. })));
///     assert_eq!(m.load(from)?, 70);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::WriteSet;

/// While it lives no state is named, so that each has all of its writes, or none.
///
/// ```
/// use fulgurite::views::WriteSection;
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("names.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let names = memory.named("names").blobs::<u64>(1000, "1M")?;
/// let numbers = memory.named("numbers").masstree("1M")?;
/// memory.run(|m| {
///     // No token has the name without its number.
///     let both: WriteSection = m.write_section()?;
///     names.put(m, &7, b"Ada")?;
///     numbers.insert(m, b"Ada", 7)?;
///     drop(both);
///     Ok(())
/// })?;
/// memory.sync()?;
/// assert_eq!(memory.run(|m| numbers.get(m, b"Ada"))?, Some(7));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::WriteSection;

/// What [`PlainMemory`] is made of. That has an example.
pub use fulgurite_sys::Backed;
