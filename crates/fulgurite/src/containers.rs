//! More containers, what roots keep of them, and what your own containers are made with.

/// What leads to an [`Array`](crate::Array), for a program that keeps it by itself.
///
/// ```
/// use fulgurite::containers::ArrayRoot;
/// use fulgurite::views::Ptr;
/// use fulgurite::{Array, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let kept = Ptr::<ArrayRoot>::new(memory.region(4096)?.base);
/// let samples = Array::<f32>::open(memory.region("1M")?, 1000)?;
/// memory.run(|m| {
///     samples.set(m, 999, 0.5)?;
///     m.store(kept, samples.root())
/// })?;
/// let again = memory.run(|m| Array::<f32>::open_root(m.load(kept)?))?;
/// assert_eq!(memory.run(|m| again.get(m, 999))?, 0.5);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::ArrayRoot;

/// What leads to a [`BPlusTree`](crate::BPlusTree): many trees can be kept under one name.
///
/// ```
/// use fulgurite::containers::BPlusTreeRoot;
/// use fulgurite::latches::NoLatch;
/// use fulgurite::{BPlusTree, Fulgurite, Medium};
///
/// type Prices = BPlusTree<u32, NoLatch>;
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("4M")?;
/// // By shop, each with a tree of its own.
/// let shops = memory.hash_map::<u64, BPlusTreeRoot>(1000)?;
/// memory.run(|m| {
///     let prices = Prices::create(m, heap.clone(), 1)?;
///     prices.insert(m, 20, 995)?;
///     shops.insert(m, &7, prices.root())
/// })?;
/// let price = memory.run(|m| match shops.get(m, &7)? {
///     Some(root) => Prices::open(m, heap.clone(), root, 1)?.get(m, 20),
///     None => Ok(None),
/// })?;
/// assert_eq!(price, Some(995));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::BPlusTreeRoot;

/// What a check of a [`BPlusTree`](crate::BPlusTree) has found.
///
/// ```
/// use fulgurite::containers::BPlusTreeShape;
/// use fulgurite::latches::NoLatch;
/// use fulgurite::{BPlusTree, Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("1M")?;
/// let shape: BPlusTreeShape = memory.run(|m| {
///     let tree = BPlusTree::<u64, NoLatch>::create(m, heap, 1)?;
///     tree.bulk_load(m, (0..1000).map(|key| (key, key * key)), 0.7)?;
///     tree.check(m)
/// })?;
/// // A look-up reads two nodes: the root, and one of the leaves.
/// assert_eq!((shape.keys, shape.depth, shape.inner_nodes), (1000, 2, 1));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::BPlusTreeShape;

/// What [`BlobMap`] finds values by. A hash map is one, and so is the trie.
///
/// ```
/// use fulgurite::containers::{BlobIndex, BlobMap};
/// use fulgurite::{AccessError, Fulgurite, Medium, Memory};
///
/// /// Moves a value to another key, in blobs of any kind.
/// fn rename<I: BlobIndex>(
///     m: &mut impl Memory,
///     blobs: &BlobMap<I>,
///     from: &I::Key,
///     to: &I::Key,
/// ) -> Result<bool, AccessError> {
///     let mut value = Vec::new();
///     let _section = m.write_section()?;
///     if !blobs.get(m, from, &mut value)? {
///         return Ok(false);
///     }
///     blobs.put(m, to, &value)?;
///     blobs.remove(m, from)
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pages.pool");
/// let builder = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M");
/// // A build without optimization takes more stack than the 32 KiB of a fiber.
/// let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start()?;
/// let pages = memory.named("pages").ordered_blobs(1000, "1M")?;
/// let users = memory.named("users").blobs::<u64>(1000, "1M")?;
/// memory.run(|m| {
///     pages.put(m, b"/about", b"Us.")?;
///     assert!(rename(m, &pages, b"/about", b"/about-us")?);
///     assert!(!rename(m, &users, &1, &2)?);
///     Ok(())
/// })?;
/// assert_eq!(memory.run(|m| pages.value_len(m, b"/about-us"))?, Some(3));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::BlobIndex;

/// Values of any length, under keys of either kind.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("logs.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let logs = memory.named("logs").blobs::<u64>(1000, "4M")?;
/// memory.run(|m| {
///     logs.append(m, &7, b"begun ")?;
///     logs.append(m, &7, b"ended ")?;
///     // A part in its place, a part read, and a value changed by a function.
///     logs.write_at(m, &7, 0, b"BEGUN")?;
///     let mut begin = [0; 5];
///     logs.read_at(m, &7, 0, &mut begin)?;
///     assert_eq!(&begin, b"BEGUN");
///     logs.update(m, &7, |log| log.truncate(5))
/// })?;
/// assert_eq!(memory.run(|m| logs.value_len(m, &7))?, Some(5));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::BlobMap;

/// What can have a name in a pool ([`Named::container`](crate::Named::container)).
///
/// ```
/// use fulgurite::containers::Container;
/// use fulgurite::latches::FiberLatch;
/// use fulgurite::{Fulgurite, HashMap, Medium};
///
/// // With another latch than by `Named::hash_map`.
/// type Hits = HashMap<u64, u64, FiberLatch>;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("hits.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let hits = memory.named("hits").container("1M", Hits::bytes_needed(1000), |m, heap, region| {
///     Hits::create(m, region, heap.clone(), 1000, 64)
/// })?;
/// memory.run(|m| hits.insert(m, &1, 10))?;
/// // The latch is in DRAM, and no part of what is stored.
/// assert_eq!(Hits::type_name(), "hash map of u64 to u64");
/// assert_eq!(hits.entry().type_name, Hits::type_name());
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Container;

/// Names and address space of a pool, for programs that build the
/// [`Runtime`](crate::runtime::Runtime) by themselves. [`Fulgurite`](crate::Fulgurite) has one.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::Memory;
/// use fulgurite::containers::Directory;
/// use fulgurite::media::MemoryFlash;
/// use fulgurite::runtime::Runtime;
/// use fulgurite::views::Ptr;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flash = Arc::new(MemoryFlash::new(4096)?);
/// let runtime = Runtime::builder(flash).dram(8 << 20).build()?;
/// // All addresses are its own.
/// let directory = runtime.run(|m| Ok(Directory::open(m, 16 << 20)))??;
/// let made = runtime.run(|m| Ok(directory.create_root(m, "visits", 7_u64)))??;
/// let found: Ptr<u64> = runtime.run(|m| Ok(directory.root(m, "visits")))??;
/// assert_eq!(found, made);
/// assert_eq!(runtime.run(|m| m.load(found))?, 7);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Directory;

/// What leads to a [`HashMap`](crate::HashMap), for a program that keeps it by itself.
///
/// ```
/// use fulgurite::containers::HashMapRoot;
/// use fulgurite::latches::VersionLatch;
/// use fulgurite::views::Ptr;
/// use fulgurite::{AccessError, Fulgurite, HashMap, Medium, Memory};
///
/// type Stock = HashMap<u64, u32, VersionLatch>;
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let (heap, region) = (memory.heap("1M")?, memory.region("1M")?);
/// let kept = Ptr::<HashMapRoot>::new(memory.region(4096)?.base);
/// memory.run(|m| {
///     let stock = Stock::create(m, region, heap.clone(), 1000, 64)?;
///     stock.insert(m, &7, 12)?;
///     m.store(kept, stock.root())
/// })?;
/// let root = memory.run(|m| m.load(kept))?;
/// let stock = Stock::open(root, heap.clone(), 64)?;
/// assert_eq!(memory.run(|m| stock.get(m, &7))?, Some(12));
/// // It knows the sizes of what it leads to.
/// let other = HashMap::<u64, [u64; 9], VersionLatch>::open(root, heap, 64);
/// assert!(matches!(other, Err(AccessError::Corrupt { .. })));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::HashMapRoot;

/// Where the objects that are taken together are stored ([`Heap::reserve`](crate::Heap::reserve)).
///
/// ```
/// use fulgurite::containers::Layout;
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("1M")?;
/// memory.run(|m| {
///     // Neighbours share a subpage: a walk in their order reads few.
///     let near = heap.reserve(m, 64, 100, Layout::Clustered)?;
///     assert_eq!(near.at(0).subpage(), near.at(1).subpage());
///     // As after random inserts, for a measurement. A seed names the order.
///     let far = heap.reserve(m, 64, 100, Layout::Scattered { seed: 7 })?;
///     assert_ne!(far.at(0).add(64), far.at(1));
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Layout;

/// What leads to a [`Masstree`], for a program that keeps it by itself.
///
/// ```
/// use fulgurite::containers::{Masstree, MasstreeRoot};
/// use fulgurite::latches::VersionLatch;
/// use fulgurite::views::Ptr;
/// use fulgurite::{Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("1M")?;
/// let kept = Ptr::<MasstreeRoot>::new(memory.region(4096)?.base);
/// memory.run(|m| {
///     let words = Masstree::<VersionLatch>::create(m, heap.clone(), 64)?;
///     words.insert(m, b"flash", 1)?;
///     m.store(kept, words.root())
/// })?;
/// let found = memory.run(|m| {
///     let root = m.load(kept)?;
///     Masstree::<VersionLatch>::open(m, heap, root, 64)?.get(m, b"flash")
/// })?;
/// assert_eq!(found, Some(1));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::MasstreeRoot;

/// What a check of a [`Masstree`] has found.
///
/// ```
/// use fulgurite::containers::{Masstree, MasstreeShape};
/// use fulgurite::latches::NoLatch;
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("1M")?;
/// let shape: MasstreeShape = memory.run(|m| {
///     let pages = Masstree::<NoLatch>::create(m, heap, 1)?;
///     for path in ["/articles/1", "/articles/2", "/about"] {
///         pages.insert(m, path.as_bytes(), 0)?;
///     }
///     pages.check(m)
/// })?;
/// // Two keys have their first eight bytes in common, and the rest in a layer below.
/// assert_eq!((shape.keys, shape.layers, shape.depth), (3, 2, 2));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::MasstreeShape;
pub use fulgurite_memory::{KEY_BYTES_MAX, Masstree, Ranged, VALUE_BYTES_MAX, hash_bytes};

/// Objects of a heap that were taken together, to build something at once.
///
/// ```
/// use fulgurite::containers::{Layout, Reservation};
/// use fulgurite::views::Ptr;
/// use fulgurite::{Address, Fulgurite, Medium, Memory};
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let heap = memory.heap("1M")?;
/// // A list of a hundred nodes: where the next one is, as the address says, and nothing more.
/// let length = memory.run(|m| {
///     let nodes: Reservation = heap.reserve(m, 8, 100, Layout::Clustered)?;
///     for rank in 1..nodes.len() {
///         m.store(Ptr::new(nodes.at(rank - 1)), nodes.at(rank))?;
///     }
///     m.store(Ptr::new(nodes.at(nodes.len() - 1)), Address::NULL)?;
///     let (mut at, mut length) = (nodes.at(0), 0);
///     while at != Address::NULL {
///         (at, length) = (m.load(Ptr::new(at))?, length + 1);
///     }
///     heap.release(m, &nodes)?;
///     Ok(length)
/// })?;
/// assert_eq!(length, 100);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Reservation;

/// What a pool knows of something with a name.
///
/// ```
/// use fulgurite::containers::RootEntry;
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// memory.named("users").hash_map::<u64, u64>(1000)?;
/// memory.named("next").value(1_u64)?;
/// let mut roots: Vec<RootEntry> = memory.roots()?;
/// roots.sort_by(|a, b| a.name.cmp(&b.name));
/// let list: Vec<_> = roots.iter().map(|root| (&*root.name, &*root.type_name)).collect();
/// assert_eq!(list, [("next", "u64"), ("users", "hash map of u64 to u64")]);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::RootEntry;

/// Why there is nothing under a name, or nothing can be made there.
///
/// ```
/// use fulgurite::containers::RootError;
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shop.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// memory.named("stock").hash_map::<u64, u32>(1000)?;
/// // A later version of the program counts in another type.
/// match memory.named("stock").hash_map::<u64, u64>(1000).err() {
///     Some(Error::Root(RootError::WrongType { found, wanted, .. })) => {
///         assert_eq!(found, "hash map of u64 to u32");
///         assert_eq!(wanted, "hash map of u64 to u64");
///     }
///     other => panic!("it is of another type: {other:?}"),
/// }
/// let gone = memory.named("orders").remove();
/// assert!(matches!(gone, Err(Error::Root(RootError::Unknown { name })) if name == "orders"));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::RootError;

/// What a [`Transaction`](crate::Transaction) reads and writes by key.
///
/// ```
/// use fulgurite::containers::Transact;
/// use fulgurite::{Error, Fulgurite, Medium, Transaction};
///
/// /// Counts in a container of any kind, if its values are numbers.
/// fn count<C>(t: &mut Transaction<'_>, counts: &C, key: &C::Key) -> Result<u64, Error>
/// where
///     C: Transact<Value = u64, New = u64>,
/// {
///     let count = t.get(counts, key)?.unwrap_or(0) + 1;
///     t.put(counts, key, &count)?;
///     Ok(count)
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("visits.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let by_user = memory.named("by user").hash_map::<u64, u64>(1000)?;
/// let by_day = memory.named("by day").b_plus_tree::<u64>("1M")?;
/// let all = memory.named("all").value(0_u64)?;
/// let counts = memory.transaction(|t| {
///     Ok::<_, Error>((count(t, &by_user, &7)?, count(t, &by_day, &20)?, count(t, &all, &())?))
/// })?;
/// assert_eq!(counts, (1, 1, 1));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::Transact;

/// Reads a value in parts, so that it need not fit in DRAM.
///
/// ```
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("films.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let films = memory.named("films").blobs::<u64>(100, "4M")?;
/// memory.run(|m| films.put(m, &1, &[7; 300_000]))?;
/// let sum = memory.run(|m| {
///     let Some(mut reader) = films.reader(m, &1)? else { return Ok(0) };
///     let (mut part, mut sum) = ([0; 4096], 0);
///     while reader.position() < reader.len() {
///         let read = reader.read(m, &mut part)?;
///         sum += part[..read].iter().map(|byte| u64::from(*byte)).sum::<u64>();
///     }
///     Ok(sum)
/// })?;
/// assert_eq!(sum, 7 * 300_000);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::ValueReader;

/// Writes a value in parts. It is under its key at the end, all at once.
///
/// ```
/// use std::io::{Read, repeat};
///
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("films.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let films = memory.named("films").blobs::<u64>(100, "4M")?;
/// let mut upload = repeat(7);
/// memory.run(|m| {
///     let mut writer = films.writer(m, 300_000)?;
///     let mut part = [0; 1000];
///     while writer.written() < writer.len() {
///         upload.read_exact(&mut part).expect("it has no end");
///         writer.write(m, &part)?;
///     }
///     // Nobody has seen it yet.
///     assert_eq!(films.value_len(m, &1)?, None);
///     writer.finish(m, &1)
/// })?;
/// assert_eq!(memory.run(|m| films.value_len(m, &1))?, Some(300_000));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_memory::ValueWriter;

/// What a pool remembers of the types in a [`Container`], so that no other one is read there.
///
/// ```
/// use fulgurite::HashMap;
/// use fulgurite::containers::{Container, TypePart};
/// use fulgurite::latches::NoLatch;
///
/// let parts = HashMap::<u64, [u8; 24], NoLatch>::parts();
/// assert_eq!(parts, [TypePart::of::<u64>(), TypePart::of::<[u8; 24]>()]);
/// assert_eq!((parts[1].size, parts[1].align), (24, 1));
/// ```
pub use fulgurite_format::TypePart;

/// Maps of records, for a container of a program's own. [`Store::map`](crate::Store::map) has one.
#[doc(hidden)]
pub use fulgurite_memory::{RecordMap, RecordMapRoot, TypedRecords};
