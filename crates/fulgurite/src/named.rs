//! Named data of a pool: made or opened by name, each once in a process, with its state in DRAM.

use std::sync::Arc;

use fulgurite_memory::{
    AccessError, Array, BPlusTree, Blobs, Container, HashMap, Heap, KeyHash, Masstree, OrderedBlobs, Ptr, RecordType,
    Region, RootEntry, RootError, Stored, TypedRecords, VersionLatch,
};
use fulgurite_runtime::Context;

use crate::leaving::{self, Left};
use crate::registry::{Handle, LATCHES, hold};
use crate::store::Store;
use crate::{Error, Fulgurite, Size};

/// Bytes of the heap that new records are made with. It grows with them.
const RECORD_HEAP_BYTES: u64 = 2 << 20;
const SUBPAGE: u64 = fulgurite_memory::SUBPAGE_BYTES as u64;
/// A removal goes on by itself until this number of syncs in a row brought no room for it.
const SYNCS_MOST: u32 = 3;

impl Fulgurite {
    /// Named data in the pool. The calls of [`Named`] open it, or make it where the name is new.
    pub fn named<'f>(&'f self, name: &'f str) -> Named<'f> {
        Named { memory: self, name }
    }

    /// All that has a name in the pool, in no order.
    ///
    /// # Errors
    /// [`Error::NoPool`]; what the medium says.
    pub fn roots(&self) -> Result<Vec<RootEntry>, Error> {
        let named = self.kept("roots")?.named.clone();
        Ok(self.runtime.run(move |m| Ok(named.directory.roots(m)))??)
    }
}

impl Fulgurite {
    /// Names whose heap was damaged when the last sync was to save its free space, with the error.
    /// The sync was made without. Readable data is unaffected, but free space may be lost for the
    /// next program. Copy out what is needed, remove it ([`Named::remove`]), and make it anew.
    ///
    /// # Errors
    /// [`Error::NoPool`].
    pub fn damaged(&self) -> Result<Vec<(String, AccessError)>, Error> {
        let unsaved = &self.kept("damaged")?.named.unsaved;
        Ok(hold(unsaved).iter().map(|(name, error)| (name.clone(), *error)).collect())
    }
}

/// A name in a pool. Sizes count only when something is made. Existing data keeps its own. A pool
/// has up to 240 names. More things are kept under the keys of one of them.
///
/// ```
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shop.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let prices = memory.named("prices").b_plus_tree::<u32>(1 << 20)?;
/// memory.run(|m| prices.insert(m, 1, 995))?;
/// // The same tree, by its name. As another type it is refused.
/// let again = memory.named("prices").b_plus_tree::<u32>(1 << 20)?;
/// assert_eq!(memory.run(|m| again.get(m, 1))?, Some(995));
/// assert!(matches!(memory.named("prices").heap(1 << 20), Err(Error::Root(_))));
/// # Ok(())
/// # }
/// ```
#[must_use = "say what has this name"]
#[derive(Clone, Copy)]
pub struct Named<'f> {
    memory: &'f Fulgurite,
    name: &'f str,
}

impl Named<'_> {
    /// A hash map, made for about `capacity` entries. It grows with them, a little in each insert,
    /// also beyond that: it then takes further addresses of the pool, each time as many as it has.
    /// A generous number costs addresses, and neither space nor DRAM. When the pool has no more
    /// addresses, it gets slower.
    ///
    /// # Errors
    /// [`Error::Root`] when the name leads to something else, or there is no room.
    /// [`Error::NoPool`].
    pub fn hash_map<K, V>(&self, capacity: u64) -> Result<Handle<HashMap<K, V, VersionLatch>>, Error>
    where
        K: Stored + Eq + KeyHash + Send + Sync,
        V: Stored + Send + Sync,
    {
        let bytes = HashMap::<K, V, VersionLatch>::bytes_to_grow(capacity);
        self.container((bytes / 2).max(1 << 20), bytes, move |m, heap, region| {
            HashMap::create_growing(m, region, heap.clone(), capacity, LATCHES)
        })
    }

    /// A B+-tree, whose nodes take up to `size`: a number of bytes, or text
    /// such as `"64M"`.
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    ///
    /// # Panics
    /// When three values do not fit into a subpage, or `V` needs more than 8-byte alignment.
    pub fn b_plus_tree<V: Stored + Send + Sync>(
        &self,
        size: impl Into<Size>,
    ) -> Result<Handle<BPlusTree<V, VersionLatch>>, Error> {
        self.container(size.into().bytes()?, 0, |m, heap, _| BPlusTree::create(m, heap.clone(), LATCHES))
    }

    /// A trie of byte strings, whose nodes take up to `size`: a number of bytes, or text
    /// such as `"64M"`.
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    pub fn masstree(&self, size: impl Into<Size>) -> Result<Handle<Masstree<VersionLatch>>, Error> {
        self.container(size.into().bytes()?, 0, |m, heap, _| Masstree::create(m, heap.clone(), LATCHES))
    }

    /// Values of any length under keys of type `K`, made for about `capacity` keys and `size` of
    /// values, as rounded up by the heap (by an eighth at most, or to whole subpages). With more of
    /// either they take further addresses of the pool, each time as many as they have.
    ///
    /// A pool can pack objects ([`Medium::objects`](crate::Medium::objects)). Then `capacity`
    /// values of up to 4 KiB are cached and written by their length. Further ones are cached and
    /// written with the subpage that holds them. A generous capacity costs addresses only.
    ///
    /// ```
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("sessions.pool");
    /// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
    /// let sessions = memory.named("sessions").blobs::<u64>(1000, 4 << 20)?;
    /// memory.run(move |m| sessions.put(m, &7, b"a value of any length"))?;
    /// memory.sync()?;
    /// drop(memory);
    ///
    /// let memory = Fulgurite::builder(Medium::pool(path)).dram("8M").start()?;
    /// let sessions = memory.named("sessions").blobs::<u64>(1000, 4 << 20)?;
    /// let value = memory.run(move |m| {
    ///     let mut value = Vec::new();
    ///     Ok(sessions.get(m, &7, &mut value)?.then_some(value))
    /// })?;
    /// assert_eq!(value.as_deref(), Some(&b"a value of any length"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    pub fn blobs<K>(&self, capacity: u64, size: impl Into<Size>) -> Result<Handle<Blobs<K>>, Error>
    where
        K: Stored + Eq + KeyHash + Send + Sync,
    {
        let buckets = Blobs::<K>::bytes_needed(capacity).next_multiple_of(SUBPAGE);
        let (has_objects, objects) = self.object_bytes(capacity);
        // Blocks beyond the buckets are in the heap, too.
        let heap = size.into().bytes()?.saturating_add((buckets / 2).max(1 << 20));
        self.container(heap, buckets.saturating_add(objects), move |m, heap, region| {
            let (buckets, objects) = region.split(buckets);
            let mut blobs = Blobs::<K>::create(m, buckets, heap.clone(), capacity, LATCHES)?;
            if has_objects {
                blobs.make_objects(m, objects)?;
            }
            Ok(blobs)
        })
    }

    /// Values of any length under byte strings, in their order, made for `size` of keys and values.
    /// With more they take further addresses of the pool. In a pool that packs objects, `capacity`
    /// values of up to 4 KiB are objects, as of [`Named::blobs`], and further ones are not. In
    /// others `capacity` says nothing.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("files.pool");
    /// let builder = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M");
    /// // A build without optimization takes more stack than the 32 KiB of a fiber.
    /// let memory = builder.with(|runtime| runtime.stack(128 << 10).fibers(16)).start()?;
    /// let files = memory.named("files").ordered_blobs(1000, 4 << 20)?;
    /// let names = memory.run(move |m| {
    ///     for name in ["b/2", "a/1", "b/1", "c"] {
    ///         files.put(m, name.as_bytes(), b"contents")?;
    ///     }
    ///     let mut names = Vec::new();
    ///     files.scan(m, b"b/", usize::MAX, |name, _contents| {
    ///         if !name.starts_with(b"b/") {
    ///             return ControlFlow::Break(());
    ///         }
    ///         names.push(name.to_vec());
    ///         ControlFlow::Continue(())
    ///     })?;
    ///     Ok(names)
    /// })?;
    /// assert_eq!(names, [b"b/1", b"b/2"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    pub fn ordered_blobs(&self, capacity: u64, size: impl Into<Size>) -> Result<Handle<OrderedBlobs>, Error> {
        let bytes = size.into().bytes()?;
        let (has_objects, objects) = self.object_bytes(capacity);
        self.container(bytes, objects, move |m, heap, region| {
            let mut blobs: OrderedBlobs = OrderedBlobs::create(m, heap.clone(), LATCHES)?;
            if has_objects {
                blobs.make_objects(m, region)?;
            }
            Ok(blobs)
        })
    }

    /// Whether values are objects, and the address space for `values` of them.
    fn object_bytes(&self, values: u64) -> (bool, u64) {
        let has_objects = self.memory.runtime.has_objects();
        (has_objects, if has_objects { Blobs::<u64>::object_bytes_needed(values.max(1)) } else { 0 })
    }

    /// An array of `len` elements. Element `i` of a new one is `element(i)`. The handle cannot tell
    /// that a roll back removed the array, so ask for it again after one.
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    pub fn array<T: Stored + Send + Sync>(
        &self,
        len: u64,
        element: impl FnMut(u64) -> T + Send + 'static,
    ) -> Result<Array<T>, Error> {
        let array = self
            .container(0, Array::<T>::bytes_needed(len), move |m, _, region| Array::create(m, region, len, element))?;
        Ok(**array)
    }

    /// A heap of `size`: a number of bytes, or text such as `"64M"`.
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    pub fn heap(&self, size: impl Into<Size>) -> Result<Arc<Heap>, Error> {
        Ok(self.container(size.into().bytes()?, 0, |_, _, _| Ok(()))?.heap().clone())
    }

    /// A value of at most a subpage, at first `first`: for example the program's own root, a struct
    /// of pointers. In a transaction, its key is `()`.
    ///
    /// ```
    /// use fulgurite::{Error, Fulgurite, Medium, Memory};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("numbers.pool");
    /// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
    /// let next = memory.named("next").value(1u64)?;
    /// let names = memory.named("names").blobs::<u64>(1000, 1 << 20)?;
    /// let number = memory.transaction(|t| {
    ///     let number = t.get(&next, &())?.expect("a value is there");
    ///     t.put(&next, &(), &(number + 1))?;
    ///     t.put(&names, &number, b"Ada")?;
    ///     Ok::<u64, Error>(number)
    /// })?;
    /// assert_eq!((number, memory.run(|m| m.load(next))?), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Named::hash_map`].
    pub fn value<T: Stored + Send>(&self, first: T) -> Result<Ptr<T>, Error> {
        let kept = self.memory.kept("a root")?;
        let (named, name) = (kept.named.clone(), self.name.to_owned());
        let _turn = hold(&kept.named.turn);
        let made = self.memory.runtime.run(move |m| {
            let found = named.directory.root(m, &name);
            Ok(match found {
                Err(RootError::Unknown { .. }) => named.directory.create_root(m, &name, first),
                found => found,
            })
        })?;
        Ok(made?)
    }

    /// Keys and values as records, with their index in DRAM. [`Store::map`](crate::Store::map) is
    /// the convenient front of these. The memory needs DRAM for them
    /// ([`Builder::record_cache`](crate::Builder::record_cache)).
    ///
    /// ```
    /// use fulgurite::{Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("users.pool");
    /// let builder = Fulgurite::builder(Medium::new_pool(&path, "32M")).dram("8M");
    /// let memory = builder.record_cache("2M").start()?;
    /// let users = memory.named("users").records::<u64, [u8]>()?;
    /// memory.run(|m| users.put(m, &42_u64.to_le_bytes(), b"Ada"))?;
    /// let mut name = Vec::new();
    /// assert!(memory.run_here(|m| users.get(m, &42_u64.to_le_bytes(), &mut name))?);
    /// assert_eq!(name, b"Ada");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Named::hash_map`], [`AccessError::NoRecords`], and [`Error::Random`].
    pub fn records<K, V>(&self) -> Result<Handle<TypedRecords<K, V>>, Error>
    where
        K: RecordType + ?Sized + 'static,
        V: RecordType + ?Sized + 'static,
    {
        let secret = fulgurite_sys::random_bytes::<16>().map_err(Error::Random)?;
        let halves = [secret.first_chunk(), secret.last_chunk()];
        let secret = halves.map(|half| u64::from_le_bytes(*half.expect("it is as long")));
        self.container(RECORD_HEAP_BYTES, 0, move |m, heap, _| TypedRecords::create(m, heap.clone(), secret))
    }

    /// Whatever `make` makes in a new heap and a region of such sizes, for containers of a
    /// program's own.
    ///
    /// # Errors
    /// As [`Named::hash_map`]; what `make` returns.
    pub fn container<C>(
        &self,
        heap: impl Into<Size>,
        data: impl Into<Size>,
        make: impl FnOnce(&mut Context, &Arc<Heap>, Region) -> Result<C, AccessError> + Send + 'static,
    ) -> Result<Handle<C>, Error>
    where
        C: Container + Send + Sync + 'static,
    {
        let (heap_bytes, data_bytes) = (heap.into().bytes()?, data.into().bytes()?);
        let kept = self.memory.kept("a root")?;
        let (named, name) = (kept.named.clone(), self.name.to_owned());
        let _turn = hold(&kept.named.turn);
        // A device would have to be asked.
        let newest = match &kept.pool {
            Store::Here(_) => kept.pool.tokens()?.last().copied().unwrap_or(0),
            Store::There(_) => 0,
        };
        let opened =
            self.memory.runtime.run(move |m| Ok(named.open_or_make(m, (name, newest), (heap_bytes, data_bytes), make)));
        opened?
    }

    /// Removes it. Its handles return [`AccessError::Poisoned`] from then on, and its space is
    /// free.
    ///
    /// What a removal makes old is remembered in a sixteenth of the DRAM until a sync: at 64 MiB,
    /// the old versions of some 100 MiB of pages, or of 28,672 small values. Of a larger container
    /// the name is removed at once, and the pages in parts, one after each sync, also in a later
    /// process. With [`Durability::Lazy`](crate::Durability::Lazy) this syncs until all of it is
    /// gone. Otherwise its addresses are free after as many syncs of the program. A roll back to a
    /// state before it brings all of it back.
    ///
    /// # Errors
    /// [`Error::Root`] when the name is unknown. [`Error::Pool`] without any room for the change
    /// before the next sync, and over a device without room for all of it. [`Error::NoPool`].
    /// [`Error::Sync`] when jobs have some of it pinned. Nothing is removed then, and it opens by
    /// its name again. [`Error::Access`] or [`Error::Root`] when its data is gone and the directory
    /// could not be written: roll back, or remove it once more.
    pub fn remove(&self) -> Result<(), Error> {
        let kept = self.memory.kept("a root")?;
        let (runtime, pool, named) = (&self.memory.runtime, &kept.pool, &kept.named);
        let mut left = {
            let _turn = hold(&named.turn);
            let held = runtime.hold_state()?;
            let (known, wanted) = (named.clone(), self.name.to_owned());
            let found = held.run(move |m| {
                let found = known.directory.find(m, &wanted);
                // Before anything is taken out of DRAM, so that nobody changes it in between.
                if found.is_ok()
                    && let Some(open) = known.take(&wanted)
                {
                    open.abandon();
                }
                Ok(found)
            })?;
            leaving::remove(pool, named, &held, &found?)?
        };
        // States are named at any time there. What fails now goes on after a later sync.
        let mut idle = 0;
        while left != Left::Nothing && idle < SYNCS_MOST && kept.syncs_by_itself() && self.memory.sync().is_ok() {
            left = leaving::go_on(runtime, pool, named).unwrap_or(Left::Same);
            idle = if left == Left::Same { idle + 1 } else { 0 };
        }
        Ok(())
    }
}
