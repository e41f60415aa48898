//! Owned regions: flash memory that one worker has to itself, reached as plain `&T` and `&mut T`.
//!
//! Jobs that use one are routed to its worker. There, fibers take turns only at accesses, and a
//! reference is dead by the next one, by the borrow checker. So no two references to the same bytes
//! are alive at once, and a single access needs no latch. What must stay the same across accesses
//! does, because another fiber may run in between.
//!
//! The owned part of the pool is disjoint from the shared part by address, and shared accesses to
//! it fail. So no other worker reaches the same bytes as atomics.
//!
//! A reference does not outlive the next access:
//! ```compile_fail,E0499
//! use fulgurite_memory::{OwnedRegion, Ptr};
//! use fulgurite_runtime::{AccessError, Context};
//! fn two_at_once(
//!     context: &mut Context, region: &OwnedRegion, p: Ptr<u64>,
//! ) -> Result<u64, AccessError> {
//!     let first: &u64 = region.get(context, p)?;
//!     let second: &u64 = region.get(context, p)?; // `context` is still borrowed by `first`
//!     Ok(*first + *second)
//! }
//! ```

use std::ptr::NonNull;

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::{AccessError, Context, OwnedFrame, Runtime, WorkerId};

use crate::{Ptr, Region};

/// A region that one worker owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedRegion {
    region: Region,
    /// Which worker, of which runtime: another runtime's regions may have the same addresses.
    owner: WorkerId,
}

impl OwnedRegion {
    /// Takes `bytes` (rounded up to subpages) of the owned part of the pool for `worker`.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`]; build the runtime with more `owned` bytes.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn reserve(runtime: &Runtime, worker: usize, bytes: u64) -> Result<OwnedRegion, AccessError> {
        let owner = runtime.worker_id(worker).unwrap_or_else(|| panic!("there is no worker {worker}"));
        let base = runtime.reserve_owned(bytes)?;
        Ok(OwnedRegion { region: Region::new(base, bytes.next_multiple_of(SUBPAGE_BYTES as u64)), owner })
    }
    /// Its addresses.
    pub fn region(&self) -> Region {
        self.region
    }
    /// The worker that owns it; jobs that use it must be submitted to that worker.
    pub fn worker(&self) -> usize {
        self.owner.worker()
    }

    /// A value, until the next access.
    ///
    /// # Errors
    /// [`AccessError::NotOwner`] on another worker or runtime, [`AccessError::OutOfRange`] outside
    /// the region, and as any access.
    #[inline]
    pub fn get<'c, T: Plain>(&self, context: &'c mut Context, at: Ptr<T>) -> Result<&'c T, AccessError> {
        self.check(context, at)?;
        let byte = context.access_owned(at.address())?;
        // SAFETY: resident until the next access, which the borrow of `context` excludes. Aligned
        // and inside one subpage (checked), any bytes are a `T: Plain`, and owned memory is reached
        // in no other way (module doc).
        Ok(unsafe { byte.cast::<T>().as_ref() })
    }

    /// A value to change, until the next access. Marks its subpage dirty.
    ///
    /// # Errors
    /// As [`OwnedRegion::get`].
    #[inline]
    pub fn get_mut<'c, T: Plain>(&self, context: &'c mut Context, at: Ptr<T>) -> Result<&'c mut T, AccessError> {
        self.check(context, at)?;
        let byte = context.access_owned_mut(at.address())?;
        // SAFETY: as in `get`; the borrow of `context` is exclusive, so this is the only reference.
        Ok(unsafe { byte.cast::<T>().as_mut() })
    }

    /// Keeps the subpage of a value at hand: until the pin is dropped, accesses to it neither miss
    /// nor fail.
    ///
    /// # Errors
    /// As [`OwnedRegion::get`], and [`AccessError::TooManyPins`].
    pub fn pin<T: Plain>(&self, context: &mut Context, at: Ptr<T>) -> Result<OwnedPin<T>, AccessError> {
        self.check(context, at)?;
        let frame = context.pin_owned(at.address())?;
        Ok(OwnedPin { frame, at })
    }

    #[inline(always)]
    fn check<T: Plain>(&self, context: &Context, at: Ptr<T>) -> Result<(), AccessError> {
        let (address, len) = at.checked()?;
        if !self.region.contains(address, len as u64) {
            return Err(AccessError::OutOfRange { at: address });
        }
        if context.worker_id() != self.owner {
            return Err(AccessError::NotOwner { at: address, owner: self.worker() as u32 });
        }
        Ok(())
    }
}

/// A pinned value. Reached through the context, so that two fibers never hold references to it at
/// once.
#[derive(Debug)]
pub struct OwnedPin<T> {
    frame: OwnedFrame,
    at: Ptr<T>,
}

impl<T: Plain> OwnedPin<T> {
    fn pointer(&self) -> NonNull<T> {
        // SAFETY: the offset is inside the pinned frame, as the pointer was checked when the pin
        // was made.
        unsafe { self.frame.base().add(self.at.address().subpage_offset()).cast() }
    }
    /// The value. Several pins can be read at once; no other fiber can run while they are.
    pub fn get<'c>(&'c self, _context: &'c Context) -> &'c T {
        // SAFETY: pinned, aligned and in one subpage (checked when made). Another fiber runs only
        // through `&mut` of the context, which the borrow excludes, and `get_mut` needs that too.
        unsafe { self.pointer().as_ref() }
    }
    /// The value, to change.
    pub fn get_mut<'c>(&'c mut self, _context: &'c mut Context) -> &'c mut T {
        self.frame.mark_dirty();
        // SAFETY: as in `get`; the borrow of the context is exclusive.
        unsafe { self.pointer().as_mut() }
    }
    /// Where it is.
    pub fn address(&self) -> Address {
        self.at.address()
    }
}
