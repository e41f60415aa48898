//! Arrays of fixed length over a region: no header, no node, one access per element.
//!
//! Invariant: element `i` is in subpage `i / (elements per subpage)`, so that none straddles.
//! Elements whose size divides the subpage are contiguous. The handle is two words and may be
//! copied at will.
//!
//! It does not order readers and writers. An element of at most 8 bytes is read and written in one
//! piece. Larger ones that several workers change need a latch of the caller's (a
//! [`crate::LatchTable`] by index).

use std::marker::PhantomData;
use std::mem::{align_of, size_of};

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Memory, MemoryId, Pinned, Ptr, Region};

/// What a program stores to find its array again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct ArrayRoot {
    /// Where the elements are.
    pub region: Region,
    /// How many there are.
    pub len: u64,
    /// Size of an element, to notice when the wrong type is opened.
    pub element_bytes: u64,
}

/// A fixed number of `T`s in flash memory.
pub struct Array<T> {
    base: Address,
    len: u64,
    /// Of the memory in which it was made. None where none was at hand: it is addresses only.
    memory: Option<MemoryId>,
    elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Array<T> {}
impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Array of {} x {} bytes at {}", self.len, size_of::<T>(), self.base)
    }
}

impl<T: Plain> Array<T> {
    /// Elements in a subpage.
    pub const PER_SUBPAGE: u64 = {
        let (size, align) = (size_of::<T>(), align_of::<T>());
        assert!(size > 0 && size <= SUBPAGE_BYTES && align <= SUBPAGE_BYTES, "elements have 1 to 4096 bytes");
        (SUBPAGE_BYTES / size) as u64
    };

    /// Bytes of region that `len` elements take: whole subpages.
    pub const fn bytes_needed(len: u64) -> u64 {
        len.div_ceil(Self::PER_SUBPAGE).saturating_mul(SUBPAGE_BYTES as u64)
    }

    /// The array of `len` elements that is at the front of `region`. Accesses nothing.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when the region is too small.
    pub fn open(region: Region, len: u64) -> Result<Self, AccessError> {
        let requested = Self::bytes_needed(len);
        if requested > region.bytes {
            return Err(AccessError::NoSpace { requested, free: region.bytes });
        }
        Ok(Array { base: region.base, len, memory: None, elements: PhantomData })
    }

    /// The array with this root. Accesses nothing.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when the root is of an array of other elements, or of none.
    pub fn open_root(root: ArrayRoot) -> Result<Self, AccessError> {
        let (at, size) = (root.region.base, size_of::<T>() as u64);
        if root.element_bytes != size {
            return Err(AccessError::Corrupt {
                what: "array element size",
                at,
                expected: size,
                got: root.element_bytes,
            });
        }
        let needed = Self::bytes_needed(root.len);
        if needed > root.region.bytes || at.subpage_offset() != 0 {
            return Err(AccessError::Corrupt { what: "array root", at, expected: needed, got: root.region.bytes });
        }
        Ok(Array { base: at, len: root.len, memory: None, elements: PhantomData })
    }
    /// What to store, to open the array again.
    pub fn root(&self) -> ArrayRoot {
        let region = Region { base: self.base, bytes: Self::bytes_needed(self.len) };
        ArrayRoot { region, len: self.len, element_bytes: size_of::<T>() as u64 }
    }

    /// Makes an array of `len` elements at the front of `region`, element `i` being `element(i)`.
    ///
    /// # Errors
    /// As [`Array::open`]; what the memory says.
    pub fn create<M: Memory>(
        memory: &mut M,
        region: Region,
        len: u64,
        mut element: impl FnMut(u64) -> T,
    ) -> Result<Self, AccessError> {
        let array = Self::open(region, len)?.of(memory.id());
        for first in (0..len).step_by(Self::PER_SUBPAGE as usize) {
            let view = memory.view_mut(array.address_of(first), SUBPAGE_BYTES)?;
            for index in first..len.min(first + Self::PER_SUBPAGE) {
                view.store((index - first) as usize * size_of::<T>(), element(index));
            }
        }
        Ok(array)
    }

    /// This array as one of that memory. In another one it fails with [`AccessError::OtherMemory`].
    #[must_use]
    pub fn of(self, memory: MemoryId) -> Self {
        Array { memory: Some(memory), ..self }
    }
    #[inline(always)]
    fn address_of(&self, index: u64) -> Address {
        if size_of::<T>().is_power_of_two() {
            return self.base.add(index.wrapping_mul(size_of::<T>() as u64));
        }
        let (subpage, inside) = (index / Self::PER_SUBPAGE, index % Self::PER_SUBPAGE);
        self.base.add(subpage * SUBPAGE_BYTES as u64 + inside * size_of::<T>() as u64)
    }

    /// The pointer to element `index`, if there is one.
    #[inline(always)]
    pub fn ptr(&self, index: u64) -> Option<Ptr<T>> {
        (index < self.len).then(|| Ptr::new(self.address_of(index)))
    }
    /// The pointer to element `index`, or why there is none.
    #[inline(always)]
    pub(crate) fn element<M: Memory>(&self, memory: &M, index: u64) -> Result<Ptr<T>, AccessError> {
        if let Some(own) = self.memory {
            own.check(memory.id())?;
        }
        // Cannot overflow inside the array. Outside, it only names the place in the message.
        self.ptr(index)
            .ok_or_else(|| AccessError::OutOfRange { at: self.base.add(index.saturating_mul(size_of::<T>() as u64)) })
    }
    /// Element `index`.
    ///
    /// # Errors
    /// [`AccessError::OutOfRange`] when there is none; what the memory says.
    #[inline(always)]
    pub fn get<M: Memory>(&self, memory: &mut M, index: u64) -> Result<T, AccessError> {
        memory.load(self.element(memory, index)?)
    }
    /// Changes element `index` to `value`.
    ///
    /// # Errors
    /// As [`Array::get`]; nothing was changed then.
    #[inline(always)]
    pub fn set<M: Memory>(&self, memory: &mut M, index: u64, value: T) -> Result<(), AccessError> {
        let at = self.element(memory, index)?;
        // What is written in one piece is in a state whole, or not at all.
        let _section = if size_of::<T>() > 8 { Some(memory.write_section()?) } else { None };
        memory.store(at, value)
    }
    /// Swaps two elements. A named state has both as before, or both as after. Takes two pins. The
    /// caller keeps others from changing them.
    ///
    /// # Errors
    /// As [`Array::get`] and [`pin`](crate::RawMemory::pin); nothing was changed then.
    pub fn swap<M: Memory>(&self, memory: &mut M, a: u64, b: u64) -> Result<(), AccessError> {
        let (a, b) = (self.element(memory, a)?.address(), self.element(memory, b)?.address());
        let (pin_a, pin_b) = (memory.pin(a)?, memory.pin(b)?);
        let _section = memory.write_section()?;
        let view_a = pin_a.view_mut(a.subpage_offset(), size_of::<T>());
        let view_b = pin_b.view_mut(b.subpage_offset(), size_of::<T>());
        let (old_a, old_b) = (view_a.load::<T>(0), view_b.load::<T>(0));
        view_a.store(0, old_b);
        view_b.store(0, old_a);
        Ok(())
    }
    /// How many elements.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
