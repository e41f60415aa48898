//! A map of a store: keys and values, read and written by any thread.

use std::sync::Arc;

use fulgurite_memory::{AccessError, Address, Keyed, Memory, RecordType, TypedRecords};

use crate::registry::Handle;
use crate::{Error, Fulgurite, Stored};

/// Bytes of the heap that a new map is made with. It grows with the map.
const HEAP_BYTES: u64 = 2 << 20;

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
    type Owned;
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
    #[doc(hidden)]
    fn of_bytes(bytes: Vec<u8>) -> Option<Self::Owned>;
}

impl MapValue for [u8] {
    type Owned = Vec<u8>;
    fn bytes(&self) -> &[u8] {
        self
    }
    fn of_bytes(bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
}

impl<V: Stored> MapValue for V {
    type Owned = V;
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
    fn of_bytes(bytes: Vec<u8>) -> Option<V> {
        V::read_from_bytes(&bytes).ok()
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
        let secret = fulgurite_sys::random_bytes::<16>().map_err(Error::Random)?;
        let halves = [secret.first_chunk(), secret.last_chunk()];
        let secret = halves.map(|half| u64::from_le_bytes(*half.expect("it is as long")));
        let records = memory
            .named(name)
            .container(HEAP_BYTES, 0, move |m, heap, _| TypedRecords::<K, V>::create(m, heap.clone(), secret))?;
        Ok(Map { memory: memory.clone(), records })
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
    /// What `read` makes of the value of a key. The thread is in no operation meanwhile, so `read`
    /// may use the store.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_with<R>(&self, key: &K, read: impl FnOnce(&V::Owned) -> R) -> Result<Option<R>, Error> {
        Ok(self.get(key)?.as_ref().map(read))
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

/// What transactions do.
impl<K: MapKey + ?Sized, V: MapValue + ?Sized> Keyed for Map<K, V> {
    type Key = K;
    type Value = V::Owned;
    type New = V;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V::Owned>, AccessError> {
        let mut bytes = Vec::new();
        if !self.records.get(memory, key.bytes(), &mut bytes)? {
            return Ok(None);
        }
        let (expected, got) = (size_of::<V::Owned>() as u64, bytes.len() as u64);
        let damaged = AccessError::Corrupt { what: "length of a value", at: Address::NULL, expected, got };
        V::of_bytes(bytes).ok_or(damaged).map(Some)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &K, value: &V) -> Result<(), AccessError> {
        self.records.put(memory, key.bytes(), value.bytes()).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &K) -> Result<bool, AccessError> {
        self.records.remove(memory, key.bytes())
    }
}
