//! Pins of a thread.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use fulgurite_cache::marks::{DIRTY, Marks, PINS_MAX, READ_ONLY};
use fulgurite_format::Address;

use super::seats::Seat;
use super::{Guest, PINS};
use crate::error::AccessError;

impl<'r> Guest<'r> {
    /// Brings the subpage of `at` in and keeps it in its frame until the pin is dropped.
    ///
    /// # Errors
    /// As [`Guest::access`], and [`AccessError::TooManyPins`] when the thread holds 32.
    pub fn pin(&mut self, at: Address) -> Result<GuestPin<'r>, AccessError> {
        if self.seat.pins() >= PINS {
            return Err(AccessError::TooManyPins { limit: PINS });
        }
        loop {
            let (frame, subpage) = self.bring_in(at)?;
            let shared = self.shared;
            let marks = shared.cache.frames.marks(frame);
            let mark = marks.dirty.load(Ordering::Acquire);
            if mark > DIRTY && mark != READ_ONLY {
                // The holder of the pin may write at any moment, and cannot wait then.
                self.ask_to_write(at, frame, subpage)?;
                continue;
            }
            if marks.pins.load(Ordering::Relaxed) >= PINS_MAX {
                return Err(AccessError::PinnedTooOften { at, pins: PINS_MAX.into() });
            }
            // The slot protects the frame until the next access, and an evictor reads the slots
            // before the pins.
            marks.change_pins(1, false);
            self.seat.change_pins(1);
            let base = self.address(frame, at.subpage().address());
            return Ok(GuestPin {
                seat: self.seat,
                marks,
                base,
                address: at.subpage().address(),
                not_send: PhantomData,
            });
        }
    }
}

/// A frame that stays where it is until this is dropped.
pub struct GuestPin<'r> {
    seat: &'r Seat,
    marks: &'r Marks,
    base: NonNull<u8>,
    address: Address,
    not_send: PhantomData<*mut ()>,
}

impl GuestPin<'_> {
    /// The subpage's address.
    pub fn address(&self) -> Address {
        self.address
    }
    /// Its first byte in DRAM.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
    /// Marks the subpage dirty: its bytes may be written until the pin is dropped.
    ///
    /// # Panics
    /// When its page may not be written.
    #[inline]
    pub fn mark_dirty(&self) {
        assert!(self.marks.mark_dirty_pinned(), "the page of {} may not be written", self.address);
    }
}

impl std::fmt::Debug for GuestPin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GuestPin({} at {:p})", self.address, self.base)
    }
}

impl Drop for GuestPin<'_> {
    fn drop(&mut self) {
        self.seat.change_pins(u32::MAX);
        self.marks.change_pins(u16::MAX, false);
    }
}
