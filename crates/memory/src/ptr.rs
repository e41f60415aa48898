//! Typed pointers: an [`Address`] with the type of the value there. Eight bytes of plain data, so
//! flash may hold them.

use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Points to a `T` in flash memory. Whether there is one is not promised: every access checks range
/// and alignment.
///
/// ```
/// use fulgurite_memory::{Address, Memory, PlainMemory, Ptr};
/// use fulgurite_sys::Backed;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let number: Ptr<u64> = Ptr::new(Address::from_linear(4096));
/// memory.store(number, 42)?;
/// assert_eq!(memory.load(number)?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Ptr<T>(Address, PhantomData<T>);

impl<T> Ptr<T> {
    /// The pointer that points nowhere.
    pub const NULL: Ptr<T> = Ptr(Address::NULL, PhantomData);

    /// Points to `at`.
    #[inline(always)]
    pub const fn new(at: Address) -> Self {
        Ptr(at, PhantomData)
    }
    /// Where it points.
    #[inline(always)]
    pub const fn address(self) -> Address {
        self.0
    }
    /// Whether it is [`Ptr::NULL`].
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }
    /// Points to another type at the same place.
    #[inline(always)]
    #[must_use]
    pub const fn cast<U>(self) -> Ptr<U> {
        Ptr::new(self.0)
    }
    /// Points to a field: `pointer.field::<u32>(offset_of!(Row, count))`.
    #[inline(always)]
    #[must_use]
    pub const fn field<U>(self, offset: usize) -> Ptr<U> {
        Ptr::new(self.0.add(offset as u64))
    }
    /// Points `count` values of `T` further on. The access finds whether that is still inside the
    /// subpage.
    #[inline(always)]
    #[must_use]
    pub const fn offset(self, count: u64) -> Self {
        Ptr::new(self.0.add(count.wrapping_mul(size_of::<T>() as u64)))
    }
}

impl<T: Plain> Ptr<T> {
    /// The address and size of the value, if it is aligned and inside one subpage.
    #[inline(always)]
    pub(crate) fn checked(self) -> Result<(Address, usize), AccessError> {
        const { assert!(align_of::<T>() <= SUBPAGE_BYTES, "nothing is aligned to more than a subpage") };
        let size = size_of::<T>();
        let aligned = (self.0.bits() as usize).is_multiple_of(align_of::<T>());
        // A value whose size is its alignment cannot straddle once it is aligned.
        let whole = size == align_of::<T>() || self.0.subpage_offset() + size <= SUBPAGE_BYTES;
        if aligned && whole { Ok((self.0, size)) } else { Err(AccessError::Straddles { at: self.0, len: size }) }
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::NULL
    }
}
impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
