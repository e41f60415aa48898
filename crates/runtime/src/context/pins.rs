//! Pins: frames that stay where they are while a job holds on to them.

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use fulgurite_cache::marks::{DIRTY, Marks, PINS_MAX, READ_ONLY};
use fulgurite_format::{Address, SUBPAGE_BYTES};

use super::Context;
use crate::error::AccessError;
use crate::state::FiberState;

impl Context {
    /// Brings the subpage of `at` in and keeps it in its frame until the pin is dropped.
    ///
    /// # Errors
    /// As [`Context::access`], and [`AccessError::TooManyPins`] when the job holds as many as it
    /// declared.
    #[inline(always)]
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

    #[inline(always)]
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
        let mut marks = self.marks_of(byte);
        let mut base = byte;
        // SAFETY: the marks of a frame live as long as `shared`, which we hold.
        let mark = unsafe { marks.as_ref() }.dirty.load(Ordering::Acquire);
        if mark > DIRTY && mark != READ_ONLY {
            // The holder of the pin may write at any moment, and cannot wait then.
            base = self.unsealed(at, access)?;
            marks = self.marks_of(base);
        }
        // SAFETY: as above.
        let pinned = unsafe { marks.as_ref() };
        if pinned.pins.load(Ordering::Relaxed) >= PINS_MAX {
            return Err(AccessError::PinnedTooOften { at, pins: PINS_MAX.into() });
        }
        // The slot protects the frame until the next access, and an evictor reads the slots before
        // the pins.
        pinned.change_pins(1, self.cache.plain_pins());
        self.state.pins.set(pins + 1);
        // SAFETY: the byte is so far behind the first one of its frame.
        let base = unsafe { base.sub(at.subpage_offset()) };
        Ok(PinnedFrame { state: self.state.clone(), marks, base, address: at.subpage().address() })
    }

    /// The marks of the frame that a byte is in.
    #[inline(always)]
    fn marks_of(&self, byte: NonNull<u8>) -> NonNull<Marks> {
        // SAFETY: marks are as many as frames.
        unsafe { self.marks.add(self.frame_of(byte).index()) }
    }
}

/// A frame that stays where it is until this is dropped.
pub struct PinnedFrame {
    /// Keeps the frames, and counts the fiber's pins.
    state: Rc<FiberState>,
    marks: NonNull<Marks>,
    base: NonNull<u8>,
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
        self.base
    }
    #[inline]
    fn marks(&self) -> &Marks {
        // SAFETY: they live as long as what `state` holds.
        unsafe { self.marks.as_ref() }
    }
    /// Marks the subpage dirty: its bytes may be written until the pin is dropped.
    ///
    /// # Panics
    /// When its page may not be written.
    #[inline]
    pub fn mark_dirty(&self) {
        assert!(self.marks().mark_dirty_pinned(), "the page of {} may not be written", self.address);
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
        write!(f, "PinnedFrame({} at {:p})", self.address, self.base)
    }
}

impl Drop for PinnedFrame {
    #[inline]
    fn drop(&mut self) {
        self.state.pins.set(self.state.pins.get() - 1);
        self.marks().change_pins(u16::MAX, self.state.shared.cache.plain_pins());
    }
}

/// A frame with an owned subpage, which stays until this is dropped. Only its raw address is shown:
/// shared memory is reached as atomics, owned memory as references, and no bytes as both.
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
