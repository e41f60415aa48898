//! Views: bytes of one subpage, reached as relaxed atomics.
//!
//! A view is what an access returns. Its lifetime is the borrow of its memory, so it cannot outlive
//! the next access. Other workers, and fibers between two accesses, may change its bytes at any
//! time. So they are loaded and stored by atomic words of at most the type's alignment, and never
//! borrowed as `&T`. A larger value is not read in one piece: readers are ordered by latches or
//! validate afterwards.
//!
//! This relies on more than the language promises. Views of different types over the same bytes are
//! atomics of mixed sizes, and with racing stores the documentation of `std::sync::atomic` leaves
//! that undefined. On x86-64 and aarch64 it is defined. A relaxed atomic of 8 aligned bytes or less
//! is one plain load or store, each byte that it yields was stored there, and nothing traps. The
//! compiler neither splits, joins nor invents relaxed atomics, and the copies are opaque to it.
//! Nothing here asks more of a race: any bytes are a `T: Plain`, and what must be of one state is
//! validated or latched.

use std::marker::PhantomData;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use fulgurite_format::Plain;

/// Bytes that can be read until the next access.
///
/// ```
/// use fulgurite_memory::{Address, Memory, PlainMemory, RawMemory};
/// use fulgurite_sys::Backed;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let at = Address::from_linear(4096);
/// memory.write_bytes(at, &[1, 0, 2, 0])?;
/// let view = memory.view(at, 4)?;
/// assert_eq!((view.load::<u16>(0), view.load::<u16>(2)), (1, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    base: NonNull<u8>,
    len: usize,
    life: PhantomData<&'a [AtomicU8]>,
}

/// Bytes that can be read and written until the next access.
#[derive(Clone, Copy, Debug)]
pub struct ViewMut<'a>(View<'a>);

macro_rules! by_words {
    ($from:expr, $to:expr, $bytes:expr, $atomic:ty, load) => {
        for i in 0..$bytes / size_of::<$atomic>() {
            // SAFETY: `from` is mapped, aligned and only ever reached atomically (the caller's
            // contract). `to` is ours.
            unsafe {
                $to.cast::<$atomic>().add(i).write(<$atomic>::new((*$from.cast::<$atomic>().add(i)).load(Relaxed)))
            }
        }
    };
    ($from:expr, $to:expr, $bytes:expr, $atomic:ty, store) => {
        for i in 0..$bytes / size_of::<$atomic>() {
            // SAFETY: `to` is mapped, aligned and only ever reached atomically (the caller's
            // contract). `from` is ours.
            unsafe {
                (*$to.cast::<$atomic>().add(i)).store($from.cast::<$atomic>().add(i).read().into_inner(), Relaxed)
            }
        }
    };
}

impl<'a> View<'a> {
    /// A view of `len` bytes at `base`.
    ///
    /// # Safety
    /// For `'a`, the bytes must be mapped, inside one subpage, and reached only as atomics or
    /// opaque copies.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        View { base, len, life: PhantomData }
    }
    /// A view of the first `len` bytes of a copy.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn over(words: &'a [u64], len: usize) -> Self {
        assert!(len <= size_of_val(words), "{len} bytes of {}", size_of_val(words));
        // SAFETY: borrowed for `'a`, so nothing else writes them, and all of one allocation.
        unsafe { View::from_raw(NonNull::from(words).cast(), len) }
    }
    /// How many bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies a value out, `offset` bytes in.
    ///
    /// # Panics
    /// When it is not inside the view or not aligned.
    #[inline(always)]
    pub fn load<T: Plain>(&self, offset: usize) -> T {
        self.check_typed::<T>(offset);
        // SAFETY: checked just now.
        unsafe { self.load_unchecked(offset) }
    }

    /// As [`View::load`] where the caller has checked place and alignment.
    ///
    /// # Safety
    /// The value must be inside the view and aligned.
    #[inline(always)]
    pub(crate) unsafe fn load_unchecked<T: Plain>(&self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= self.len);
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: in bounds (asserted by the callers).
        let (from, to) = (unsafe { self.base.as_ptr().add(offset) }, value.as_mut_ptr().cast::<u8>());
        match align_of::<T>() {
            1 => by_words!(from, to, size_of::<T>(), AtomicU8, load),
            2 => by_words!(from, to, size_of::<T>(), AtomicU16, load),
            4 => by_words!(from, to, size_of::<T>(), AtomicU32, load),
            _ => by_words!(from, to, size_of::<T>(), AtomicU64, load),
        }
        // SAFETY: every byte was written (the size is a multiple of the alignment), and any bytes
        // are a `T: Plain`.
        unsafe { value.assume_init() }
    }

    /// Copies bytes out, from `offset` bytes in.
    ///
    /// # Panics
    /// When they are not inside the view.
    #[inline]
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: in bounds (checked above); `into` is an exclusive borrow of other memory.
        unsafe { fulgurite_sys::arch::copy_opaque(self.base.as_ptr().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// A part of it.
    ///
    /// # Panics
    /// When the part is not inside the view.
    #[inline(always)]
    pub fn slice(&self, offset: usize, len: usize) -> View<'a> {
        self.check(offset, len);
        // SAFETY: in bounds (checked above), so the contract of `from_raw` carries over.
        unsafe { View::from_raw(NonNull::new_unchecked(self.base.as_ptr().add(offset)), len) }
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "bytes {offset}..+{len} of a view of {}", self.len);
    }
    #[inline(always)]
    fn check_typed<T>(&self, offset: usize) {
        self.check(offset, size_of::<T>());
        assert!(
            (self.base.as_ptr() as usize + offset).is_multiple_of(align_of::<T>()),
            "offset {offset} is not aligned"
        );
    }
}

impl<'a> ViewMut<'a> {
    /// A view of `len` bytes at `base`, for writing.
    ///
    /// # Safety
    /// As [`View::from_raw`], and the bytes must be writable and their subpage marked dirty.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        // SAFETY: the caller's contract.
        ViewMut(unsafe { View::from_raw(base, len) })
    }

    /// Copies a value in, `offset` bytes in.
    ///
    /// # Panics
    /// When it is not inside the view or not aligned.
    #[inline(always)]
    pub fn store<T: Plain>(&self, offset: usize, value: T) {
        self.0.check_typed::<T>(offset);
        // SAFETY: checked just now.
        unsafe { self.store_unchecked(offset, value) }
    }

    /// As [`ViewMut::store`] where the caller has checked place and alignment.
    ///
    /// # Safety
    /// The value must be inside the view and aligned.
    #[inline(always)]
    pub(crate) unsafe fn store_unchecked<T: Plain>(&self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= self.0.len);
        // SAFETY: in bounds (asserted by the callers).
        let (from, to) = ((&raw const value).cast::<u8>(), unsafe { self.0.base.as_ptr().add(offset) });
        match align_of::<T>() {
            1 => by_words!(from, to, size_of::<T>(), AtomicU8, store),
            2 => by_words!(from, to, size_of::<T>(), AtomicU16, store),
            4 => by_words!(from, to, size_of::<T>(), AtomicU32, store),
            _ => by_words!(from, to, size_of::<T>(), AtomicU64, store),
        }
    }

    /// Copies bytes in, from `offset` bytes in.
    ///
    /// # Panics
    /// When they are not inside the view.
    #[inline]
    pub fn copy_from(&self, offset: usize, from: &[u8]) {
        self.0.check(offset, from.len());
        // SAFETY: in bounds (checked above) and writable; `from` is a borrow of other memory.
        unsafe { fulgurite_sys::arch::copy_opaque(from.as_ptr(), self.0.base.as_ptr().add(offset), from.len()) }
    }
}

impl<'a> std::ops::Deref for ViewMut<'a> {
    type Target = View<'a>;
    #[inline(always)]
    fn deref(&self) -> &View<'a> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Row {
        key: u64,
        parts: [u16; 3],
        flags: [u8; 2],
    }

    #[test]
    fn values_of_every_alignment_come_back() {
        let mut memory = [0u64; 8];
        // SAFETY: the array outlives the view and is not touched otherwise.
        let view = unsafe { ViewMut::from_raw(NonNull::from(&mut memory).cast(), 64) };
        let row = Row { key: 0x0123_4567_89AB_CDEF, parts: [1, 2, 0xFFFF], flags: [3, 4] };
        view.store(8, row);
        view.store(30, 7u16);
        view.store(33, [1u8, 2, 3]);
        view.store(36, 0xDEAD_BEEFu32);
        assert_eq!(view.load::<Row>(8), row);
        assert_eq!((view.load::<u16>(30), view.load::<[u8; 3]>(33), view.load::<u32>(36)), (7, [1, 2, 3], 0xDEAD_BEEF));
        let mut bytes = [0; 3];
        view.slice(33, 3).copy_to(0, &mut bytes);
        assert_eq!(bytes, [1, 2, 3]);
    }
    #[test]
    #[should_panic(expected = "of a view of 8")]
    fn a_value_outside_is_refused() {
        let mut memory = 0u64;
        // SAFETY: the variable outlives the view and is not touched otherwise.
        let view = unsafe { View::from_raw(NonNull::from(&mut memory).cast(), 8) };
        let _: u64 = view.load(1);
    }
}
