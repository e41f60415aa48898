//! Guarded memory: the [`Memory`] trait over a job's context, where an access may switch to another fiber.

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::{AccessError, Context, PinnedFrame};

use crate::{Memory, Pinned, View, ViewMut};

#[inline(always)]
fn whole(at: Address, len: usize) -> Result<(), AccessError> {
    if len <= SUBPAGE_BYTES - at.subpage_offset() { Ok(()) } else { Err(AccessError::Straddles { at, len }) }
}

impl Memory for Context {
    type Pin = PinnedFrame;

    #[inline(always)]
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        whole(at, len)?;
        let byte = self.access(at)?;
        // SAFETY: the access returned where `at` is until the next call that takes `&mut self`, which the view's lifetime
        // excludes; the range is inside the subpage (checked); shared regions are reached as atomics only.
        Ok(unsafe { View::from_raw(byte, len) })
    }
    #[inline(always)]
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        whole(at, len)?;
        let byte = self.access_mut(at)?;
        // SAFETY: as in `view`; the subpage was marked dirty before anything is written.
        Ok(unsafe { ViewMut::from_raw(byte, len) })
    }
    fn pin(&mut self, at: Address) -> Result<PinnedFrame, AccessError> {
        Context::pin(self, at)
    }
    fn prefetch(&mut self, at: Address) {
        Context::prefetch(self, at);
    }
    fn park(&mut self, key: usize, still: &dyn Fn() -> bool) -> Result<(), AccessError> {
        Context::park(self, key, still)
    }
    fn unpark_all(key: usize) {
        Context::unpark_all(key);
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Context::yield_now(self)
    }
}

impl Pinned for PinnedFrame {
    fn address(&self) -> Address {
        PinnedFrame::address(self)
    }
    fn view(&self, offset: usize, len: usize) -> View<'_> {
        assert!(
            offset <= SUBPAGE_BYTES && len <= SUBPAGE_BYTES - offset,
            "bytes {offset}..+{len} are outside a subpage"
        );
        // SAFETY: the frame is pinned for as long as `self` lives, the range is inside it (checked), and shared regions are
        // reached as atomics only.
        unsafe { View::from_raw(self.base().add(offset), len) }
    }
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        assert!(
            offset <= SUBPAGE_BYTES && len <= SUBPAGE_BYTES - offset,
            "bytes {offset}..+{len} are outside a subpage"
        );
        self.mark_dirty();
        // SAFETY: as in `view`; the subpage was marked dirty before anything is written.
        unsafe { ViewMut::from_raw(self.base().add(offset), len) }
    }
}
