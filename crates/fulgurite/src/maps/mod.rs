//! Stores: a pool that is opened by its path, and maps in it that threads use directly.

mod map;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_memory::AccessError;
use fulgurite_runtime::Guest;

use crate::{Durability, Error, Fulgurite, Medium, Size};
pub use map::{Map, MapKey, MapValue, Within};

/// DRAM of a store by default: half a gibibyte, or an eighth of a machine that has less
/// than 4 GiB.
const DRAM_BYTES: u64 = 512 << 20;
/// What a store may grow to by default.
const SIZE_BYTES: u64 = 16 << 30;
/// What of a small store's DRAM is not for records.
const FRAME_BYTES_MIN: u64 = 4 << 20;
/// What a new one has at first.
const FIRST_BYTES: u64 = 64 << 20;

/// What of a store's DRAM its records take, so that the index may take half of the DRAM. The rest
/// is tables, stacks, and the frames that the log is written from.
fn record_bytes(dram: u64) -> u64 {
    (dram / 8 * 5).min(dram.saturating_sub(FRAME_BYTES_MIN)).max(1 << 20)
}

/// Data in a file that outlives the program, in maps. Any thread reads and writes them by itself.
///
/// ```
/// use fulgurite::Store;
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("users.pool");
/// # let options = || Store::at(&path).dram("16M").size("64M");
/// # /*
/// let store = Store::open("users.pool")?;
/// # */
/// # let store = options().open()?;
/// let users = store.map::<u64, [u8]>("users")?;
/// users.put(&42, b"Ada")?;
/// assert_eq!(users.get(&42)?.as_deref(), Some(&b"Ada"[..]));
/// // What was written up to here is there after a crash.
/// store.sync()?;
/// # drop((store, users));
/// # let users = options().open()?.map::<u64, [u8]>("users")?;
/// # assert_eq!(users.get(&42)?.as_deref(), Some(&b"Ada"[..]));
/// # Ok(())
/// # }
/// ```
///
/// A store is a [`Fulgurite`] with a pool, and has all of its calls. Clones are of one store, which
/// is closed with the last clone and the last map.
#[derive(Clone)]
pub struct Store {
    memory: Arc<Fulgurite>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Deref for Store {
    type Target = Fulgurite;
    fn deref(&self) -> &Fulgurite {
        &self.memory
    }
}

/// A memory with settings of its own. Its maps need DRAM for records
/// ([`Builder::record_cache`](crate::Builder::record_cache)).
impl From<Fulgurite> for Store {
    fn from(memory: Fulgurite) -> Store {
        Store { memory: Arc::new(memory) }
    }
}

/// A transaction of a thread, in [`Store::transaction`].
pub type ThreadTransaction<'t, 'g> = fulgurite_memory::Transaction<'t, Guest<'g>, Error>;

/// An error of a body, which knows [`Error`] and not [`AccessError`].
struct BodyError<E>(E);

impl<E: From<Error>> From<AccessError> for BodyError<E> {
    fn from(error: AccessError) -> Self {
        BodyError(Error::Access(error).into())
    }
}

/// How a store is opened. See [`Store::at`].
#[must_use = "call `open`"]
#[derive(Clone, Debug)]
pub struct StoreOptions {
    path: PathBuf,
    dram: Option<Size>,
    size: Option<Size>,
    durability: Durability,
}

impl StoreOptions {
    /// The DRAM that the store may take: a hard cap on everything, metadata included. By default
    /// 512 MiB, or an eighth of a machine that has less than 4 GiB.
    pub fn dram(mut self, size: impl Into<Size>) -> Self {
        self.dram = Some(size.into());
        self
    }
    /// What its file may grow to. By default 16 GiB, or what its file system has free. It begins
    /// with 64 MiB, and grows as data comes.
    pub fn size(mut self, size: impl Into<Size>) -> Self {
        self.size = Some(size.into());
        self
    }
    /// What a crash leaves. By default the state of a second ago, or a newer one.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
    /// Opens the store, or makes it where there is none.
    ///
    /// # Errors
    /// As [`Builder::start`](crate::Builder::start).
    pub fn open(self) -> Result<Store, Error> {
        let limit = match self.size {
            Some(size) => size.bytes()?,
            None => SIZE_BYTES.min(self.room()),
        };
        let dram = match self.dram {
            Some(size) => size.bytes()?,
            None => DRAM_BYTES.min(fulgurite_runtime::machine_bytes().map_or(DRAM_BYTES, |bytes| bytes / 8)),
        };
        let first = FIRST_BYTES.min(limit);
        let mut builder = Fulgurite::builder(Medium::pool_or_new(&self.path, first)).dram(dram);
        builder = builder.durability(self.durability).record_cache(record_bytes(dram));
        // One that is as large as that already stays so.
        let has = std::fs::metadata(&self.path).map_or(first, |found| found.len());
        if limit > has {
            builder = builder.growing(limit);
        }
        Ok(Store { memory: Arc::new(builder.start()?) })
    }
    /// What the pool may grow to on its file system, in whole pages.
    fn room(&self) -> u64 {
        let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(".".as_ref());
        let has = std::fs::metadata(&self.path).map_or(0, |found| found.len());
        let free = fulgurite_sys::DirectFile::free_bytes(directory).unwrap_or(SIZE_BYTES);
        (free.saturating_add(has) >> 20 << 20).max(FIRST_BYTES)
    }
}

impl Store {
    /// Opens the store at this path, or makes it where there is none, with the defaults of
    /// [`StoreOptions`].
    ///
    /// # Errors
    /// As [`StoreOptions::open`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Store, Error> {
        Store::at(path).open()
    }
    /// A store at this path, before it is opened.
    pub fn at(path: impl Into<PathBuf>) -> StoreOptions {
        let durability = Durability::each(Duration::from_secs(1));
        StoreOptions { path: path.into(), dram: None, size: None, durability }
    }

    /// The map of this name, which is made where there is none. Keys are numbers, other [`Stored`]
    /// types, or byte strings. Values are byte strings of up to half a mebibyte, or [`Stored`]
    /// types.
    ///
    /// [`Stored`]: crate::Stored
    ///
    /// # Errors
    /// [`Error::Root`] when the name leads to something else, or there is no room.
    pub fn map<K, V>(&self, name: &str) -> Result<Arc<Map<K, V>>, Error>
    where
        K: MapKey + ?Sized,
        V: MapValue + ?Sized,
    {
        Ok(Arc::new(Map::open(&self.memory, name)?))
    }

    /// Runs `body` as a transaction on the calling thread: everything that it reads and changes
    /// through `t`, it reads and changes at one moment. It is serializable with other transactions
    /// and with each single operation of the containers. A crash leaves all of it or nothing, and
    /// so does a token.
    ///
    /// `body` runs again when something that it read was changed before it ended. An error or a
    /// panic of `body` leaves everything as it was.
    ///
    /// ```
    /// use fulgurite::{Error, Store};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("bank.pool");
    /// # let store = Store::at(&path).dram("16M").size("64M").open()?;
    /// let accounts = store.map::<u64, u64>("accounts")?;
    /// accounts.put(&1, &100)?;
    /// store.transaction(|t| {
    ///     let has = t.get(&accounts, &1)?.unwrap_or(0);
    ///     t.put(&accounts, &1, &(has - 30))?;
    ///     t.put(&accounts, &2, &30)?;
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!((accounts.get(&1)?, accounts.get(&2)?), (Some(70), Some(30)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` returned. [`Error::Access`] with [`AccessError::Conflict`] after some 2000 runs,
    /// and with [`AccessError::TooManyPins`] when it writes more than 32 subpages. As
    /// [`Fulgurite::run_here`].
    ///
    /// # Panics
    /// With the panic of `body`.
    pub fn transaction<R, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut ThreadTransaction<'_, '_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let done = self.memory.run_here(|m| self.memory.transactions.run_as(m, |t| body(t).map_err(BodyError)));
        done.map_err(|BodyError(error)| error)
    }
}
