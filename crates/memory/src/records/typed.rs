//! Maps of records with types of keys and values, which their names in a pool tell.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use fulgurite_format::TypePart;
use fulgurite_runtime::AccessError;

use super::{RecordMap, RecordMapRoot};
use crate::{Container, Heap, Keyed, Memory, Stored};

/// What a map of records has for keys or values: [`Stored`] types, and byte strings.
pub trait RecordType {
    /// As roots keep it.
    fn record_type_name() -> String;
    #[doc(hidden)]
    fn part() -> TypePart;
}

impl<T: Stored> RecordType for T {
    fn record_type_name() -> String {
        T::type_name()
    }
    fn part() -> TypePart {
        TypePart::of::<T>()
    }
}
impl RecordType for [u8] {
    fn record_type_name() -> String {
        "bytes".into()
    }
    fn part() -> TypePart {
        TypePart::default()
    }
}

/// A [`RecordMap`] with types.
pub struct TypedRecords<K: ?Sized, V: ?Sized> {
    map: RecordMap,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for TypedRecords<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.map.fmt(f)
    }
}

impl<K: ?Sized, V: ?Sized> TypedRecords<K, V> {
    /// Makes an empty one, whose records and lists are in `heap`.
    ///
    /// # Errors
    /// As [`RecordMap::create`].
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, secret: [u64; 2]) -> Result<Self, AccessError> {
        Ok(TypedRecords { map: RecordMap::create(memory, heap, secret)?, types: PhantomData })
    }
    /// As [`RecordMap::create_with`].
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub fn create_with<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        secret: [u64; 2],
        segment_pages: u32,
    ) -> Result<Self, AccessError> {
        Ok(TypedRecords { map: RecordMap::create_with(memory, heap, secret, segment_pages)?, types: PhantomData })
    }
}

impl<K: ?Sized, V: ?Sized> Deref for TypedRecords<K, V> {
    type Target = RecordMap;
    fn deref(&self) -> &RecordMap {
        &self.map
    }
}

impl<K: RecordType + ?Sized, V: RecordType + ?Sized> Container for TypedRecords<K, V> {
    type Root = RecordMapRoot;
    fn type_name() -> String {
        format!("map of {} to {}", K::record_type_name(), V::record_type_name())
    }
    fn parts() -> [TypePart; 2] {
        [K::part(), V::part()]
    }
    fn root_record(&self) -> RecordMapRoot {
        self.map.root()
    }
    fn open_root<M: Memory>(
        memory: &mut M,
        root: RecordMapRoot,
        heap: &Arc<Heap>,
        _: usize,
    ) -> Result<Self, AccessError> {
        Ok(TypedRecords { map: RecordMap::open(memory, heap.clone(), root)?, types: PhantomData })
    }
    fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.map.save(memory)
    }
    fn disturb(&self, gone: bool) {
        self.map.disturb(gone);
    }
    fn reload<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.map.reload(memory)
    }
}

/// What transactions do.
impl<K: RecordType + ?Sized, V: RecordType + ?Sized> Keyed for TypedRecords<K, V> {
    type Key = [u8];
    type Value = Vec<u8>;
    type New = [u8];
    fn look_up<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<Option<Vec<u8>>, AccessError> {
        let mut value = Vec::new();
        Ok(self.map.get(memory, key, &mut value)?.then_some(value))
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &[u8], value: &[u8]) -> Result<(), AccessError> {
        self.map.put(memory, key, value).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<bool, AccessError> {
        self.map.remove(memory, key)
    }
}
