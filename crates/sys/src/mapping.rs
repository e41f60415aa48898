//! Tables that are mapped by themselves. Each page goes back to the kernel when it is dropped,
//! whatever else the process has allocated.
//!
//! What an allocator is given back may stay with it: in holes between what lives, and in each of
//! its arenas. A table that is made anew with another size, again and again, would not stay below
//! a cap.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const PAGE: usize = 4096;

mod sealed {
    /// Zeros are a value of it, and it drops nothing.
    pub trait Plain: Copy + Send + Sync {}
    impl Plain for u8 {}
    impl Plain for u32 {}
    impl Plain for u64 {}
}

/// A number of values of one owner, zero at first, in base pages. Values that nothing has touched
/// cost nothing.
#[derive(Debug)]
pub struct Mapping<T: sealed::Plain> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: it owns what it has mapped, like a box.
unsafe impl<T: sealed::Plain> Send for Mapping<T> {}
// SAFETY: as above. What is shared only reads.
unsafe impl<T: sealed::Plain> Sync for Mapping<T> {}

impl<T: sealed::Plain> Mapping<T> {
    /// Maps `len` zeros. Where the kernel refuses, the process ends, as it does for a box.
    ///
    /// # Panics
    /// When they have more bytes than there are addresses.
    #[must_use]
    pub fn zeroed(len: usize) -> Mapping<T> {
        let layout = Layout::array::<T>(len).expect("the table has more bytes than there are addresses");
        if len == 0 {
            return Mapping { base: NonNull::dangling(), len };
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no
        // existing memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), layout.size(), access, flags) };
        let Ok(start) = start else { handle_alloc_error(layout) };
        // A huge page would be resident as a whole. Refusal (no huge pages in this kernel) is fine.
        // SAFETY: the range is the mapping just made.
        let _ = unsafe { madvise(start, layout.size(), Advice::LinuxNoHugepage) };
        Mapping { base: NonNull::new(start.cast()).expect("mmap never returns null"), len }
    }

    /// Gives the memory of a range back to the kernel. Its values are zero afterwards in whole
    /// pages, and as before in the pages that are only partially in the range.
    ///
    /// # Panics
    /// When the range is not inside the table.
    pub fn discard(&mut self, range: Range<usize>) {
        let bytes = std::mem::size_of_val(&self[range.clone()]);
        let from = range.start * size_of::<T>();
        // The last page is the table's alone, also where it is not full.
        let end = if range.end == self.len { from + bytes } else { (from + bytes) & !(PAGE - 1) };
        let start = from.next_multiple_of(PAGE);
        if start < end {
            // SAFETY: the range is inside the mapping (checked above), borrowed by nobody else, and
            // zeros are a value of `T`. Refusal leaves the memory resident, as it was.
            let _ = unsafe { madvise(self.base.as_ptr().byte_add(start).cast(), end - start, Advice::LinuxDontNeed) };
        }
    }
}

impl<T: sealed::Plain> Deref for Mapping<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `len` values, aligned to a page, and zeros were one.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}
impl<T: sealed::Plain> DerefMut for Mapping<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T: sealed::Plain> Drop for Mapping<T> {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped by us, not used any more.
            let result = unsafe { munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
            debug_assert!(result.is_ok(), "cannot unmap a table: {result:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_discarded_is_zero_and_the_rest_as_before() {
        let mut table = Mapping::<u32>::zeroed(3 * 1024 + 10);
        assert!(table.iter().all(|value| *value == 0));
        table.fill(7);
        table.discard(1..2048);
        assert!(table[..1024].iter().chain(&table[2048..]).all(|value| *value == 7));
        assert!(table[1024..2048].iter().all(|value| *value == 0));
        // The last page is not full.
        table.discard(2 * 1024 + 1..3 * 1024 + 10);
        assert!(table[2048..3072].iter().all(|value| *value == 7));
        assert!(table[3072..].iter().all(|value| *value == 0));
        table.discard(5..5);
        table.discard(0..3082);
        assert!(table.iter().all(|value| *value == 0));
    }
    #[test]
    fn an_empty_one_is_an_empty_slice() {
        let mut none = Mapping::<u8>::zeroed(0);
        none.discard(0..0);
        assert!(none.is_empty());
    }
}
