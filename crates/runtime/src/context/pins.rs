//! Pins: frames that stay where they are while a job holds on to them.

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use fulgurite_cache::marks::{DIRTY, PINS_MAX, READ_ONLY};
use fulgurite_format::{Address, FrameIndex, SUBPAGE_BYTES};

use super::Context;
use crate::error::AccessError;
use crate::state::FiberState;

impl Context {
    /// Brings the subpage of `at` in and keeps it in its frame until the pin is dropped.
    ///
    /// # Errors
    /// As [`Context::access`], and [`AccessError::TooManyPins`] when the job holds as many as it
    /// declared.
    #[inline]
    pub fn pin(&mut self, at: Address) -> Result<PinnedFrame, AccessError> {
        let byte = self.access(at)?;
        self.pin_resident(at, byte, Context::access)
    }

    /// As [`Context::pin`], for the part of the pool that workers own. The frame shows no views of
    /// its bytes. The layer that tracks the regions' owners decides about references.
    ///
    /// # Errors
    /// As [`Context::pin`].
    pub fn pin_owned(&mut self, at: Address) -> Result<OwnedFrame, AccessError> {
        let byte = self.access_owned(at)?;
        self.pin_resident(at, byte, Context::access_owned).map(OwnedFrame)
    }

    #[inline]
    fn pin_resident(
        &mut self,
        at: Address,
        byte: NonNull<u8>,
        access: impl Fn(&mut Context, Address) -> Result<NonNull<u8>, AccessError>,
    ) -> Result<PinnedFrame, AccessError> {
        let (pins, limit) = (self.state.pins.get(), self.state.pins_limit.get());
        if pins >= limit.saturating_add(self.state.pins_left.get()) {
            return Err(AccessError::TooManyPins { limit });
        }
        let mut frame = self.frame_of(byte);
        let mark = self.cache.frames.marks(frame).dirty.load(Ordering::Acquire);
        if mark > DIRTY && mark != READ_ONLY {
            // The holder of the pin may write at any moment, and cannot wait then.
            frame = {
                let byte = self.unsealed(at, access)?;
                self.frame_of(byte)
            };
        }
        if self.cache.frames.pins(frame).load(Ordering::Relaxed) >= PINS_MAX {
            return Err(AccessError::PinnedTooOften { at, pins: PINS_MAX.into() });
        }
        // The slot protects the frame until the next access, and an evictor reads the slots before
        // the pins.
        self.cache.pin(frame);
        self.state.pins.set(pins + 1);
        Ok(PinnedFrame { state: self.state.clone(), frame, address: at.subpage().address() })
    }
}

/// A frame that stays where it is until this is dropped.
pub struct PinnedFrame {
    state: Rc<FiberState>,
    frame: FrameIndex,
    address: Address,
}

impl PinnedFrame {
    /// The subpage's address.
    pub fn address(&self) -> Address {
        self.address
    }
    /// Its first byte in DRAM.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: the frame was found in a residency word, or pinned by its number.
        unsafe { self.state.cache.frames.address(self.frame) }
    }
    /// Marks the subpage dirty: its bytes may be written until the pin is dropped.
    ///
    /// # Panics
    /// When its page may not be written.
    #[inline]
    pub fn mark_dirty(&self) {
        let dirty = &self.state.cache.frames.marks(self.frame).dirty;
        assert!(dirty.load(Ordering::Relaxed) != READ_ONLY, "the page of {} may not be written", self.address);
        dirty.store(DIRTY, Ordering::Relaxed);
    }
    /// Bytes in it.
    pub const fn len(&self) -> usize {
        SUBPAGE_BYTES
    }
    /// Never.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for PinnedFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedFrame({} in frame {})", self.address, self.frame.0)
    }
}

impl Drop for PinnedFrame {
    #[inline]
    fn drop(&mut self) {
        self.state.pins.set(self.state.pins.get() - 1);
        self.state.cache.unpin(self.frame);
    }
}

/// A frame with an owned subpage, which stays until this is dropped. Only its raw address is shown:
/// shared memory is reached as atomics, owned memory as references, and no bytes in both ways.
#[derive(Debug)]
pub struct OwnedFrame(PinnedFrame);

impl OwnedFrame {
    /// Its first byte in DRAM.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    /// Marks the subpage dirty: its bytes may be written until the pin is dropped.
    ///
    /// # Panics
    /// When its page may not be written.
    #[inline]
    pub fn mark_dirty(&self) {
        self.0.mark_dirty();
    }
}
