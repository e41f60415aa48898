//! A map of a store: keys and values, read and written by any thread.

use std::borrow::Borrow;
use std::sync::Arc;

use fulgurite_memory::{AccessError, Address, Keyed, Memory, RecordType, TypedRecords};
use fulgurite_runtime::{Guest, Holding};

use crate::registry::Handle;
use crate::{Error, Fulgurite, Stored};

/// Reads of one [`Map::get_many`] that are under way at the same time.
const READS: usize = 32;
/// Pairs that [`Map::load`] puts in one operation.
const TOGETHER: usize = 64;

mod sealed {
    pub trait Key {}
    impl<K: super::Stored> Key for K {}
    impl Key for [u8] {}
    pub trait Value {}
    impl<V: super::Stored> Value for V {}
    impl Value for [u8] {}
}

/// What a [`Map`] has for keys: [`Stored`] types, and byte strings.
pub trait MapKey: sealed::Key + RecordType + 'static {
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
}

impl<K: Stored> MapKey for K {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl MapKey for [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// What a [`Map`] has for values: byte strings, and [`Stored`] types.
pub trait MapValue: sealed::Value + RecordType + 'static {
    /// A value that was read.
    type Owned: Send + 'static;
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
    #[doc(hidden)]
    fn of_bytes(bytes: Vec<u8>) -> Option<Self::Owned>;
    #[doc(hidden)]
    fn see<R>(bytes: &[u8], read: impl FnOnce(&Self) -> R) -> Result<R, AccessError>;
}

impl MapValue for [u8] {
    type Owned = Vec<u8>;
    fn bytes(&self) -> &[u8] {
        self
    }
    fn of_bytes(bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
    fn see<R>(bytes: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<R, AccessError> {
        Ok(read(bytes))
    }
}

impl<V: Stored + Send> MapValue for V {
    type Owned = V;
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
    fn of_bytes(bytes: Vec<u8>) -> Option<V> {
        V::read_from_bytes(&bytes).ok()
    }
    fn see<R>(bytes: &[u8], read: impl FnOnce(&V) -> R) -> Result<R, AccessError> {
        let value = V::read_from_bytes(bytes).map_err(|_| wrong_length::<V>(bytes.len()))?;
        Ok(read(&value))
    }
}

/// A map of a [`Store`](crate::Store). Any thread uses it, without a lock of the program's.
///
/// ```
/// use fulgurite::Store;
///
/// # fn main() -> Result<(), fulgurite::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("pages.pool");
/// # let store = Store::at(&path).dram("16M").size("64M").open()?;
/// let pages = store.map::<[u8], [u8]>("pages")?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| pages.put(b"/about", b"Us."));
///     scope.spawn(|| pages.put(b"/", b"Welcome."));
/// });
/// assert_eq!(pages.get(b"/")?.as_deref(), Some(&b"Welcome."[..]));
/// assert!(pages.remove(b"/about")?);
/// assert_eq!(pages.get(b"/about")?, None);
/// # Ok(())
/// # }
/// ```
pub struct Map<K: MapKey + ?Sized, V: MapValue + ?Sized> {
    memory: Arc<Fulgurite>,
    records: Handle<TypedRecords<K, V>>,
}

impl<K: MapKey + ?Sized, V: MapValue + ?Sized> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("name", &self.records.entry().name).finish_non_exhaustive()
    }
}

impl<K: MapKey + ?Sized, V: MapValue + ?Sized> Map<K, V> {
    pub(super) fn open(memory: &Arc<Fulgurite>, name: &str) -> Result<Map<K, V>, Error> {
        Ok(Map { memory: memory.clone(), records: memory.named(name).records()? })
    }

    /// The value of a key, copied out.
    ///
    /// # Errors
    /// [`Error::Access`]: the medium failed, or what [`Fulgurite::run_here`] refuses.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>, Error> {
        Ok(self.memory.run_here(|m| self.look_up(m, key))?)
    }
    /// Copies the bytes of the value of a key into `into`, which is emptied first. Returns whether
    /// there is one.
    ///
    /// # Errors
    /// As [`Map::get`].
    #[inline]
    pub fn get_into(&self, key: &K, into: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.memory.run_here(|m| self.records.get(m, key.bytes(), into))?)
    }
    /// What `read` makes of the value of a key, which is not copied. `read` runs under a lock, so
    /// it should be short, and it can use no store: that is refused with [`AccessError::Nested`].
    ///
    /// ```
    /// use fulgurite::Store;
    ///
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("users.pool");
    /// # let store = Store::at(&path).dram("16M").size("64M").open()?;
    /// let users = store.map::<u64, [u8]>("users")?;
    /// users.put(&42, b"Ada")?;
    /// assert_eq!(users.get_with(&42, |name| name.len())?, Some(3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_with<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Result<Option<R>, Error> {
        let see = |value: &[u8]| {
            let _holding = Holding::begin();
            V::see(value, read)
        };
        let seen = self.memory.run_here(|m| self.records.get_with(m, key.bytes(), see))?;
        Ok(seen.transpose()?)
    }
    /// The values of many keys, in their order. Those that are not cached are read at the same
    /// time, by jobs.
    ///
    /// ```
    /// use fulgurite::Store;
    ///
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("users.pool");
    /// # let store = Store::at(&path).dram("16M").size("64M").open()?;
    /// let users = store.map::<u64, [u8]>("users")?;
    /// users.load([(1, &b"Ada"[..]), (2, b"Grace")])?;
    /// let names = users.get_many([1, 7, 2])?;
    /// assert_eq!(names, [Some(b"Ada".to_vec()), None, Some(b"Grace".to_vec())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Map::get`], [`Error::Job`] and [`Error::Submit`].
    pub fn get_many<Q: Borrow<K>>(&self, keys: impl IntoIterator<Item = Q>) -> Result<Vec<Option<V::Owned>>, Error> {
        let (mut values, mut cold) = (Vec::new(), Vec::new());
        let mut bytes = Vec::new();
        for key in keys {
            let key = key.borrow().bytes();
            let found = self.memory.run_here(|m| self.records.get_cached(m, key, &mut bytes))?;
            values.push(match found {
                Some(true) => Some(value_of::<V>(std::mem::take(&mut bytes))?),
                Some(false) => None,
                None => {
                    cold.push((values.len(), key.to_vec()));
                    None
                }
            });
        }
        let mut jobs = Vec::new();
        while !cold.is_empty() {
            let some = cold.split_off(cold.len() - cold.len().div_ceil(READS - jobs.len()));
            let records = self.records.clone();
            jobs.push(self.memory.submit(move |m| {
                let read = |(at, key): (usize, Vec<u8>)| Ok((at, look_up::<K, V, _>(&records, m, &key)?));
                some.into_iter().map(read).collect::<Result<Vec<_>, AccessError>>()
            })?);
        }
        for job in jobs {
            for (at, value) in job.wait()?? {
                values[at] = value;
            }
        }
        Ok(values)
    }
    /// [`Map::get`] for an asynchronous program: while flash is read, no thread waits. The read
    /// begins with this call, in a job, which the future cancels when it is dropped.
    ///
    /// ```
    /// use fulgurite::{Context, Error, Store};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("users.pool");
    /// # let store = Store::at(&path).dram("16M").size("64M").open()?;
    /// let users = store.map::<u64, [u8]>("users")?;
    /// users.put(&42, b"Ada")?;
    /// let name = users.get_async(&42);
    /// // Any executor will do: here, a job's.
    /// let name = store.run(|m: &mut Context| m.await_future(name))?;
    /// assert_eq!(name?.as_deref(), Some(&b"Ada"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Map::get`], [`Error::Job`] and [`Error::Submit`].
    pub fn get_async(
        &self,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>, Error>> + Send + 'static + use<K, V> {
        let mut bytes = Vec::new();
        let known = match self.memory.run_here(|m| self.records.get_cached(m, key.bytes(), &mut bytes)) {
            Ok(Some(true)) => Ok(value_of::<V>(bytes).map(Some).map_err(Error::Access)),
            Ok(Some(false)) => Ok(Ok(None)),
            // A job that calls this may not run it here.
            Ok(None) | Err(AccessError::OnWorker) => {
                let (records, key) = (self.records.clone(), key.bytes().to_vec());
                Err(self.memory.run_async(move |m| look_up::<K, V, _>(&records, m, &key)))
            }
            Err(error) => Ok(Err(error.into())),
        };
        async move {
            match known {
                Ok(found) => found,
                Err(job) => job.await,
            }
        }
    }
    /// Puts many pairs, and makes them durable with all that was written before. Of several values
    /// of one key the last one counts. Returns how many pairs there were. Several threads may load
    /// parts of the data at the same time.
    ///
    /// # Errors
    /// As [`Map::put`] and [`Fulgurite::sync`]. The pairs before are in the map then.
    pub fn load<Q: Borrow<K>, W: Borrow<V>>(&self, pairs: impl IntoIterator<Item = (Q, W)>) -> Result<u64, Error> {
        let (mut pairs, mut count) = (pairs.into_iter().peekable(), 0);
        while pairs.peek().is_some() {
            // The iterator may use the store.
            let some: Vec<(Q, W)> = pairs.by_ref().take(TOGETHER).collect();
            count += some.len() as u64;
            let put =
                |m: &mut Guest<'_>| some.iter().try_for_each(|(key, value)| self.set(m, key.borrow(), value.borrow()));
            self.memory.run_here(put)?;
        }
        self.memory.sync()?;
        Ok(count)
    }
    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Error::Access`]: as [`Map::get`]; [`AccessError::PoolFull`], and the value is as before.
    #[inline]
    pub fn put(&self, key: &K, value: &V) -> Result<(), Error> {
        Ok(self.memory.run_here(|m| self.set(m, key, value))?)
    }
    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        Ok(self.memory.run_here(|m| self.unset(m, key))?)
    }
    /// The map in a job, or in another operation: with the memory of that.
    ///
    /// ```
    /// use fulgurite::Store;
    ///
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("users.pool");
    /// # let store = Store::at(&path).dram("16M").size("64M").open()?;
    /// let users = store.map::<u64, [u8]>("users")?;
    /// store.run(|m| users.within(m).put(&42, b"Ada"))?;
    /// assert_eq!(store.run(|m| users.within(m).get(&42))?.as_deref(), Some(&b"Ada"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn within<'a, M: Memory>(&'a self, memory: &'a mut M) -> Within<'a, K, V, M> {
        Within { map: self, memory }
    }
}

/// A map with the memory of a job, or of another operation. See [`Map::within`].
#[derive(Debug)]
pub struct Within<'a, K: MapKey + ?Sized, V: MapValue + ?Sized, M> {
    map: &'a Map<K, V>,
    memory: &'a mut M,
}

impl<K: MapKey + ?Sized, V: MapValue + ?Sized, M: Memory> Within<'_, K, V, M> {
    /// As [`Map::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(self, key: &K) -> Result<Option<V::Owned>, AccessError> {
        self.map.look_up(self.memory, key)
    }
    /// As [`Map::get_into`].
    ///
    /// # Errors
    /// As there.
    pub fn get_into(self, key: &K, into: &mut Vec<u8>) -> Result<bool, AccessError> {
        self.map.records.get(self.memory, key.bytes(), into)
    }
    /// As [`Map::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(self, key: &K, value: &V) -> Result<(), AccessError> {
        self.map.set(self.memory, key, value)
    }
    /// As [`Map::remove`].
    ///
    /// # Errors
    /// As there.
    pub fn remove(self, key: &K) -> Result<bool, AccessError> {
        self.map.unset(self.memory, key)
    }
}

fn value_of<V: MapValue + ?Sized>(bytes: Vec<u8>) -> Result<V::Owned, AccessError> {
    let damaged = wrong_length::<V::Owned>(bytes.len());
    V::of_bytes(bytes).ok_or(damaged)
}
fn wrong_length<T>(got: usize) -> AccessError {
    let (expected, got) = (size_of::<T>() as u64, got as u64);
    AccessError::Corrupt { what: "length of a value", at: Address::NULL, expected, got }
}
fn look_up<K: MapKey + ?Sized, V: MapValue + ?Sized, M: Memory>(
    records: &TypedRecords<K, V>,
    memory: &mut M,
    key: &[u8],
) -> Result<Option<V::Owned>, AccessError> {
    let mut bytes = Vec::new();
    if records.get(memory, key, &mut bytes)? { value_of::<V>(bytes).map(Some) } else { Ok(None) }
}

/// What transactions do.
impl<K: MapKey + ?Sized, V: MapValue + ?Sized> Keyed for Map<K, V> {
    type Key = K;
    type Value = V::Owned;
    type New = V;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V::Owned>, AccessError> {
        look_up(&self.records, memory, key.bytes())
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &K, value: &V) -> Result<(), AccessError> {
        self.records.put(memory, key.bytes(), value.bytes()).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &K) -> Result<bool, AccessError> {
        self.records.remove(memory, key.bytes())
    }
}
