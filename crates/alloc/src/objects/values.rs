//! Arrays of values, each in an object of its own, as references of Rust.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use zerocopy::FromZeros;

use super::allocator::{ObjectAllocator, ObjectArray};
use super::packed::OBJECT_BYTES_MAX;

/// An array of values, each in an object of its own. It frees its objects when it is dropped.
#[derive(Debug)]
pub struct ObjectValues<T> {
    allocator: &'static ObjectAllocator,
    array: ObjectArray,
    values: PhantomData<T>,
}

impl ObjectAllocator {
    /// An array of `count` values, which are zeros. None when the flash or the numbers have no
    /// room.
    ///
    /// # Panics
    /// When a value has no bytes, more than an object, or something to be dropped.
    #[must_use]
    pub fn values<T: FromZeros>(&'static self, count: u32) -> Option<ObjectValues<T>> {
        assert!((1..=OBJECT_BYTES_MAX).contains(&size_of::<T>()), "values of {} bytes", size_of::<T>());
        assert!(!std::mem::needs_drop::<T>(), "values that are to be dropped");
        let array = self.array(count, size_of::<T>())?;
        Some(ObjectValues { allocator: self, array, values: PhantomData })
    }
}

impl<T> ObjectValues<T> {
    /// How many values it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.array.len() as usize
    }
    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }
    fn at(&self, index: usize) -> std::ptr::NonNull<T> {
        self.array.at(u32::try_from(index).unwrap_or(u32::MAX)).cast()
    }
}

impl<T> Index<usize> for ObjectValues<T> {
    type Output = T;
    /// # Panics
    /// When the array has fewer values.
    #[inline]
    fn index(&self, index: usize) -> &T {
        // SAFETY: the object is this array's, has the size of a value, begins a page, and was zeros
        // at first, which are a value. Others change it through this array only.
        unsafe { self.at(index).as_ref() }
    }
}

impl<T> IndexMut<usize> for ObjectValues<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as above, and the array is borrowed for changes.
        unsafe { self.at(index).as_mut() }
    }
}

impl<T> Drop for ObjectValues<T> {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the array any more.
        let freed = unsafe { self.allocator.free_array(self.array.first()) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

// SAFETY: it owns its values, which may be sent as they may by themselves.
unsafe impl<T: Send> Send for ObjectValues<T> {}
// SAFETY: shared references of it lead to shared references of values.
unsafe impl<T: Sync> Sync for ObjectValues<T> {}
