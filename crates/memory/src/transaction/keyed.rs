//! The containers that transactions reach, by handles that a transaction can keep.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;

use fulgurite_runtime::AccessError;

use super::staged::Staged;
use crate::{
    Array, BPlusTree, BlobIndex, BlobMap, Container, HashMap, KeyHash, Latch, LatchTable, Masstree, Memory, Plain, Ptr,
    Rooted, VersionLatch, optimistic,
};

type Elements = LatchTable<VersionLatch>;

/// A container that transactions reach: an [`Array`], and an [`Arc`] of the others, with
/// [`VersionLatch`]. A [`Ptr`] is one with a single key, `()`: a value under a name, an object of a
/// heap, a part of a region. Not for other types. [`Transactions`](crate::Transactions) has an
/// example.
pub trait Transact: sealed::Handle {
    /// Keys; of an array, the index.
    type Key: ?Sized;
    /// What is read.
    type Value;
    /// What is written.
    type New: ?Sized;
    #[doc(hidden)]
    fn keep(&self) -> Option<Arc<dyn Any + Send + Sync>>;
    #[doc(hidden)]
    fn get_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        elements: &Elements,
        key: &Self::Key,
    ) -> Result<Option<Self::Value>, AccessError>;
    #[doc(hidden)]
    fn put_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        elements: &Elements,
        key: &Self::Key,
        value: &Self::New,
    ) -> Result<(), AccessError>;
    #[doc(hidden)]
    fn remove_staged<M: Memory>(&self, staged: &mut Staged<'_, M>, key: &Self::Key) -> Result<bool, AccessError>;
}

/// A [`Transact`] whose keys have an order: a B+-tree, the trie, blobs by byte strings.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite_memory::{AccessError, Address, BPlusTree, Heap, PlainMemory, Region};
/// use fulgurite_memory::{Transactions, VersionLatch};
/// use fulgurite_sys::Backed;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let region = Region::new(Address::from_linear(1 << 20), 1 << 20);
/// let heap = Arc::new(Heap::create(&mut memory, region)?);
/// let waiting = Arc::new(BPlusTree::<u64, VersionLatch>::create(&mut memory, heap, 64)?);
/// waiting.insert(&mut memory, 30, 7)?;
/// waiting.insert(&mut memory, 10, 8)?;
/// // Takes the first one, which nobody else takes.
/// let first = Transactions::new().run(&mut memory, |t| {
///     let first = t.range(&waiting, &0, 1)?.into_iter().next();
///     if let Some((key, _)) = first {
///         t.remove(&waiting, &key)?;
///     }
///     Ok::<_, AccessError>(first)
/// })?;
/// assert_eq!(first, Some((10, 8)));
/// # Ok(())
/// # }
/// ```
pub trait Ranged: Transact {
    /// A key of its own.
    type Owned;
    #[doc(hidden)]
    #[allow(clippy::type_complexity, reason = "keys and values")]
    fn range_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        from: &Self::Key,
        limit: usize,
    ) -> Result<Vec<(Self::Owned, Self::Value)>, AccessError>;
}

mod sealed {
    pub trait Handle {}
    impl<T> Handle for super::Array<T> {}
    impl<T> Handle for super::Ptr<T> {}
    impl<C> Handle for super::Arc<C> {}
}

/// A container with latches, by key.
#[doc(hidden)]
pub trait Keyed {
    type Key: ?Sized;
    type Value;
    type New: ?Sized;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &Self::Key) -> Result<Option<Self::Value>, AccessError>;
    fn set<M: Memory>(&self, memory: &mut M, key: &Self::Key, value: &Self::New) -> Result<(), AccessError>;
    fn unset<M: Memory>(&self, memory: &mut M, key: &Self::Key) -> Result<bool, AccessError>;
}

/// A [`Keyed`] whose keys have an order.
#[doc(hidden)]
pub trait InOrder: Keyed {
    type Owned;
    /// Shows up to `limit` keys from `from` on.
    fn visit<M: Memory>(
        &self,
        memory: &mut M,
        from: &Self::Key,
        limit: usize,
        visit: impl FnMut(Self::Owned, Self::Value),
    ) -> Result<(), AccessError>;
}

impl<C: Keyed + Send + Sync + 'static> Transact for Arc<C> {
    type Key = C::Key;
    type Value = C::Value;
    type New = C::New;
    fn keep(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.clone())
    }
    fn get_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        _: &Elements,
        key: &C::Key,
    ) -> Result<Option<C::Value>, AccessError> {
        self.look_up(staged, key)
    }
    fn put_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        _: &Elements,
        key: &C::Key,
        value: &C::New,
    ) -> Result<(), AccessError> {
        self.set(staged, key, value)
    }
    fn remove_staged<M: Memory>(&self, staged: &mut Staged<'_, M>, key: &C::Key) -> Result<bool, AccessError> {
        self.unset(staged, key)
    }
}

impl<C: InOrder + Send + Sync + 'static> Ranged for Arc<C> {
    type Owned = C::Owned;
    fn range_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        from: &C::Key,
        limit: usize,
    ) -> Result<Vec<(C::Owned, C::Value)>, AccessError> {
        let mut found = Vec::new();
        self.visit(staged, from, limit, |key, value| found.push((key, value)))?;
        Ok(found)
    }
}

/// An array has no latches. Its elements are found among the elements of all arrays, by address.
impl<T: Plain> Transact for Array<T> {
    type Key = u64;
    type Value = T;
    type New = T;
    fn keep(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    fn get_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        elements: &Elements,
        index: &u64,
    ) -> Result<Option<T>, AccessError> {
        self.element(staged, *index)?.get_staged(staged, elements, &())
    }
    fn put_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        elements: &Elements,
        index: &u64,
        value: &T,
    ) -> Result<(), AccessError> {
        self.element(staged, *index)?.put_staged(staged, elements, &(), value)
    }
    fn remove_staged<M: Memory>(&self, staged: &mut Staged<'_, M>, index: &u64) -> Result<bool, AccessError> {
        Err(AccessError::OutOfRange { at: self.element(staged, *index)?.address() })
    }
}

/// What a pointer leads to has no latch either. An element of an array is the same by both.
impl<T: Plain> Transact for Ptr<T> {
    type Key = ();
    type Value = T;
    type New = T;
    fn keep(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    fn get_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        elements: &Elements,
        _: &(),
    ) -> Result<Option<T>, AccessError> {
        let latch = elements.of(self.address().bits());
        optimistic::read(latch, staged, |staged, _| staged.load(*self)).map(Some)
    }
    fn put_staged<M: Memory>(
        &self,
        staged: &mut Staged<'_, M>,
        elements: &Elements,
        _: &(),
        value: &T,
    ) -> Result<(), AccessError> {
        let _held = elements.of(self.address().bits()).lock(staged)?;
        staged.store(*self, *value)
    }
    fn remove_staged<M: Memory>(&self, _: &mut Staged<'_, M>, _: &()) -> Result<bool, AccessError> {
        Err(AccessError::OutOfRange { at: self.address() })
    }
}

impl<C: Keyed + Container> Keyed for Rooted<C> {
    type Key = C::Key;
    type Value = C::Value;
    type New = C::New;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &C::Key) -> Result<Option<C::Value>, AccessError> {
        (**self).look_up(memory, key)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &C::Key, value: &C::New) -> Result<(), AccessError> {
        (**self).set(memory, key, value)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &C::Key) -> Result<bool, AccessError> {
        (**self).unset(memory, key)
    }
}

impl<C: InOrder + Container> InOrder for Rooted<C> {
    type Owned = C::Owned;
    fn visit<M: Memory>(
        &self,
        memory: &mut M,
        from: &C::Key,
        limit: usize,
        visit: impl FnMut(C::Owned, C::Value),
    ) -> Result<(), AccessError> {
        (**self).visit(memory, from, limit, visit)
    }
}

impl<K: KeyHash + Eq, V: Plain> Keyed for HashMap<K, V, VersionLatch> {
    type Key = K;
    type Value = V;
    type New = V;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V>, AccessError> {
        self.get(memory, key)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &K, value: &V) -> Result<(), AccessError> {
        self.insert(memory, key, *value).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &K) -> Result<bool, AccessError> {
        Ok(self.remove(memory, key)?.is_some())
    }
}

impl<V: Plain> Keyed for BPlusTree<V, VersionLatch> {
    type Key = u64;
    type Value = V;
    type New = V;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &u64) -> Result<Option<V>, AccessError> {
        self.get(memory, *key)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &u64, value: &V) -> Result<(), AccessError> {
        self.insert(memory, *key, *value).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &u64) -> Result<bool, AccessError> {
        Ok(self.remove(memory, *key)?.is_some())
    }
}

impl<V: Plain> InOrder for BPlusTree<V, VersionLatch> {
    type Owned = u64;
    fn visit<M: Memory>(
        &self,
        memory: &mut M,
        from: &u64,
        limit: usize,
        mut visit: impl FnMut(u64, V),
    ) -> Result<(), AccessError> {
        let mut left = limit;
        if left == 0 {
            return Ok(());
        }
        self.scan(memory, *from, u64::MAX, |key, value| {
            visit(key, *value);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}

impl Keyed for Masstree<VersionLatch> {
    type Key = [u8];
    type Value = u64;
    type New = u64;
    fn look_up<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<Option<u64>, AccessError> {
        self.get(memory, key)
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &[u8], value: &u64) -> Result<(), AccessError> {
        self.insert(memory, key, *value).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<bool, AccessError> {
        Ok(self.remove(memory, key)?.is_some())
    }
}

impl InOrder for Masstree<VersionLatch> {
    type Owned = Vec<u8>;
    fn visit<M: Memory>(
        &self,
        memory: &mut M,
        from: &[u8],
        limit: usize,
        mut visit: impl FnMut(Vec<u8>, u64),
    ) -> Result<(), AccessError> {
        let shown = self.scan(memory, from, limit, |key, value| {
            visit(key.to_vec(), value);
            ControlFlow::Continue(())
        });
        shown.map(drop)
    }
}

impl<I: BlobIndex<Latch = VersionLatch>> Keyed for BlobMap<I> {
    type Key = I::Key;
    type Value = Vec<u8>;
    type New = [u8];
    fn look_up<M: Memory>(&self, memory: &mut M, key: &I::Key) -> Result<Option<Vec<u8>>, AccessError> {
        let mut value = Vec::new();
        Ok(self.get(memory, key, &mut value)?.then_some(value))
    }
    fn set<M: Memory>(&self, memory: &mut M, key: &I::Key, value: &[u8]) -> Result<(), AccessError> {
        self.put(memory, key, value).map(drop)
    }
    fn unset<M: Memory>(&self, memory: &mut M, key: &I::Key) -> Result<bool, AccessError> {
        self.remove(memory, key)
    }
}

impl InOrder for BlobMap<Masstree<VersionLatch>> {
    type Owned = Vec<u8>;
    fn visit<M: Memory>(
        &self,
        memory: &mut M,
        from: &[u8],
        limit: usize,
        mut visit: impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), AccessError> {
        let shown = self.scan(memory, from, limit, |key, value| {
            visit(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        shown.map(drop)
    }
}
