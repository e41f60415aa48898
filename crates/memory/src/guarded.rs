//! Guarded memory: the [`Memory`] trait over a job's context, where an access may switch fibers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fulgurite_format::Address;
use fulgurite_runtime::{AccessError, Context, PinnedFrame, WriteSection};

use crate::{Memory, Pinned, Plain, Ptr, View, ViewMut, assert_inside, load_trusting, store_trusting, whole};

impl Memory for Context {
    type Pin = PinnedFrame;
    type Section = WriteSection;

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
    #[inline(always)]
    fn pin(&mut self, at: Address) -> Result<PinnedFrame, AccessError> {
        Context::pin(self, at)
    }
    fn prefetch(&mut self, at: Address) {
        Context::prefetch(self, at);
    }
    fn will_overwrite(&mut self, at: Address) {
        Context::will_overwrite(self, at);
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        Context::park(self, word, expected)
    }
    fn unpark_all(word: &AtomicU64) {
        Context::unpark_all(word);
    }
    #[inline(always)]
    fn write_section(&mut self) -> Result<WriteSection, AccessError> {
        Context::write_section(self)
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Context::yield_now(self)
    }
    fn has_objects(&self) -> bool {
        Context::has_objects(self)
    }
    #[inline]
    fn read_object<R>(&mut self, at: Address, len: usize, mut read: impl FnMut(&[u8]) -> R) -> Result<R, AccessError> {
        if self.has_objects() {
            return Context::read_object(self, at, len, read);
        }
        let mut bytes = vec![0; len];
        self.read_bytes(at, &mut bytes)?;
        Ok(read(&bytes))
    }
    fn write_object(&mut self, at: Address, bytes: &[u8]) -> Result<(), AccessError> {
        if self.has_objects() {
            return Context::write_object(self, at, bytes);
        }
        self.write_bytes(at, bytes)
    }
    fn wait_for_object_room(&mut self, at: Address) -> Result<(), AccessError> {
        if self.has_objects() { Context::wait_for_object_room(self, at) } else { Ok(()) }
    }
    fn free_object(&mut self, at: Address) {
        Context::free_object(self, at);
    }
    fn pause(&mut self, time: Duration) -> Result<(), AccessError> {
        Context::sleep(self, time)
    }
    #[inline]
    fn roll_backs(&self) -> u64 {
        Context::roll_backs(self)
    }
    fn verdict(&mut self) -> Result<(), AccessError> {
        Context::verdict(self)
    }
    #[inline(always)]
    fn load<T: Plain>(&mut self, at: Ptr<T>) -> Result<T, AccessError> {
        // SAFETY: `view` and `view_mut` return the range asked for, and the runtime aligns subpages
        // to their size.
        unsafe { load_trusting(self, at) }
    }
    #[inline(always)]
    fn store<T: Plain>(&mut self, at: Ptr<T>, value: T) -> Result<(), AccessError> {
        // SAFETY: as in `load`.
        unsafe { store_trusting(self, at, value) }
    }
}

impl Pinned for PinnedFrame {
    #[inline(always)]
    fn address(&self) -> Address {
        PinnedFrame::address(self)
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
