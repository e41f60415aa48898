//! Clock (second chance): a hand circles over the frames, spares those used since its last visit,
//! and takes the next.
//!
//! The order is the order of the frames themselves, so an insert sets one bit and a visit reads the
//! driver's referenced bytes in sequence, which the CPU prefetches. There are two bits a frame:
//! whether it is in the policy, and whether it was [`touched`](Replacement::touched).
//!
//! Invariants: `len` is the number of bits set in `present`. `touched` is a subset of `present`. No
//! bit at or above `capacity` is set.

use core::ops::ControlFlow;

use fulgurite_format::{LocalFrame, SubpageIndex};

use crate::replacement::{ColdCursor, FrameView, Replacement};

/// The clock policy. See the module.
pub struct Clock {
    present: Box<[u64]>,
    touched: Box<[u64]>,
    /// The next frame to check. Below `capacity`, or 0.
    hand: usize,
    len: usize,
    capacity: usize,
}

impl Clock {
    /// For frames `0..capacity`.
    pub fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(64);
        Clock {
            present: vec![0; words].into_boxed_slice(),
            touched: vec![0; words].into_boxed_slice(),
            hand: 0,
            len: 0,
            capacity,
        }
    }

    #[inline(always)]
    fn place(frame: LocalFrame) -> (usize, u64) {
        (frame.index() / 64, 1 << (frame.index() % 64))
    }

    /// The first frame in the policy at or after the hand, going round once. `None` only when there
    /// is none at all.
    #[inline(always)]
    fn next_present(&self) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut word = self.hand / 64;
        let mut bits = self.present[word] & (u64::MAX << (self.hand % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            if word == self.present.len() {
                word = 0;
            }
            bits = self.present[word];
        }
    }
}

impl Replacement for Clock {
    #[inline]
    fn inserted(&mut self, frame: LocalFrame, _subpage: SubpageIndex) {
        assert!(frame.index() < self.capacity, "frame {} of {}", frame.0, self.capacity);
        let (word, bit) = Self::place(frame);
        assert!(self.present[word] & bit == 0, "frame {} is in the policy already", frame.0);
        self.present[word] |= bit;
        self.len += 1;
    }

    #[inline]
    fn touched(&mut self, frame: LocalFrame) {
        let (word, bit) = Self::place(frame);
        debug_assert!(self.present[word] & bit != 0, "frame {} is not in the policy", frame.0);
        self.touched[word] |= bit;
    }

    #[inline]
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        // The first round takes every mark. What the second spares is in use or not evictable.
        for _ in 0..2 * self.len {
            let at = self.next_present()?;
            self.hand = if at + 1 == self.capacity { 0 } else { at + 1 };
            let frame = LocalFrame(at as u32);
            let (word, bit) = Self::place(frame);
            let touched = self.touched[word] & bit != 0;
            if view.take_referenced(frame) | touched {
                self.touched[word] &= !bit;
            } else if view.evictable(frame) {
                self.present[word] &= !bit;
                self.len -= 1;
                return Some(frame);
            } else if view.gives_up() {
                return None;
            }
        }
        None
    }

    #[inline]
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        self.inserted(frame, subpage);
        self.touched(frame);
    }

    #[inline]
    fn removed(&mut self, frame: LocalFrame) {
        let (word, bit) = Self::place(frame);
        assert!(self.present[word] & bit != 0, "frame {} is not in the policy", frame.0);
        self.present[word] &= !bit;
        self.touched[word] &= !bit;
        self.len -= 1;
    }

    fn coldest(
        &self,
        from: ColdCursor,
        most: usize,
        each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>,
    ) -> ColdCursor {
        // A cursor is the next frame. Round from the hand: up to the last frame, and then up to the
        // hand.
        let mut at = if from == ColdCursor::START { self.hand } else { from.0 as usize };
        let mut wrapped = at < self.hand;
        for _ in 0..most {
            let end = if wrapped { self.hand } else { self.capacity };
            if at >= end {
                if wrapped || self.hand == 0 {
                    return ColdCursor::START;
                }
                (at, wrapped) = (0, true);
                continue;
            }
            let bits = self.present[at / 64] & (u64::MAX << (at % 64));
            if bits == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            at = at / 64 * 64 + bits.trailing_zeros() as usize;
            if at >= end {
                continue;
            }
            at += 1;
            if each(LocalFrame(at as u32 - 1)).is_break() {
                break;
            }
        }
        // The hand itself is where a round begins, not where it goes on.
        match (at, wrapped) {
            (at, false) if at >= self.capacity && self.hand > 0 => ColdCursor(0),
            (at, false) if at >= self.capacity => ColdCursor::START,
            (at, true) if at >= self.hand => ColdCursor::START,
            (at, _) => ColdCursor(at as u32),
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.present) + size_of_val(&*self.touched)
    }

    fn check(&self) {
        let count = |words: &[u64]| words.iter().map(|w| w.count_ones() as usize).sum::<usize>();
        assert_eq!(count(&self.present), self.len, "frames counted");
        for (present, touched) in self.present.iter().zip(&*self.touched) {
            assert_eq!(touched & !present, 0, "touched but not in the policy");
        }
        if !self.capacity.is_multiple_of(64) {
            let last = self.present[self.present.len() - 1];
            assert_eq!(last >> (self.capacity % 64), 0, "a bit beyond the last frame is set");
        }
        assert!(self.hand < self.capacity || self.hand == 0);
    }
}
