//! Guarded memory of a thread that is no worker: [`RawMemory`] of a guest, where a miss blocks the
//! thread.

use std::sync::atomic::AtomicU64;

use fulgurite_format::Address;
use fulgurite_runtime::{AccessError, Guest, GuestPin, GuestSection};

use crate::memory::{Kind, Views};
use crate::{Identity, MemoryId};
use crate::{Pinned, RawMemory, View, ViewMut, assert_inside, whole};

impl<'r> RawMemory for Guest<'r> {
    type Pin = GuestPin<'r>;
    type Section = GuestSection<'r>;
    type Inner = Self;
    // SAFETY: `view` and `view_mut` return the range asked for, and the runtime aligns subpages to
    // their size.
    const VIEWS: Views = unsafe { Views::exact() };

    #[inline(always)]
    fn identity(&self) -> Identity<'_> {
        Identity::new(MemoryId::of_runtime(self.runtime_id()), self.roll_back_count())
    }
    #[inline(always)]
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        whole(at, len)?;
        let byte = self.access(at)?;
        // SAFETY: the access returned where `at` is until the next call that takes `&mut self`,
        // which the view's lifetime excludes. The range is inside the subpage (checked). Shared
        // regions are reached as atomics only.
        Ok(unsafe { View::from_raw(byte, len) })
    }
    #[inline(always)]
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        whole(at, len)?;
        let byte = self.access_mut(at)?;
        // SAFETY: as in `view`; the subpage was marked dirty before anything is written.
        Ok(unsafe { ViewMut::from_raw(byte, len) })
    }
    fn pin(&mut self, at: Address) -> Result<GuestPin<'r>, AccessError> {
        Guest::pin(self, at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        Guest::park(self, word, expected)
    }
    #[inline]
    fn write_section(&mut self) -> Result<GuestSection<'r>, AccessError> {
        Guest::write_section(self)
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Guest::yield_now(self)
    }
    #[inline(always)]
    fn kind(&mut self) -> Kind<'_, Self> {
        Kind::Thread(self.again())
    }
}

impl Pinned for GuestPin<'_> {
    #[inline(always)]
    fn address(&self) -> Address {
        GuestPin::address(self)
    }
    #[inline(always)]
    fn view(&self, offset: usize, len: usize) -> View<'_> {
        assert_inside(offset, len);
        // SAFETY: the frame is pinned while `self` lives, the range is inside it (checked), and
        // shared regions are reached as atomics only.
        unsafe { View::from_raw(self.base().add(offset), len) }
    }
    #[inline(always)]
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        assert_inside(offset, len);
        self.mark_dirty();
        // SAFETY: as in `view`; the subpage was marked dirty before anything is written.
        unsafe { ViewMut::from_raw(self.base().add(offset), len) }
    }
}
