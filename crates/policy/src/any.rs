//! Any of the replacement policies, chosen by name when it is made.

use core::ops::ControlFlow;

use fulgurite_format::{FrameIndex, LocalFrame, SubpageIndex};

use crate::clock::Clock;
use crate::lru::Lru;
use crate::replacement::{ColdCursor, FrameView, Remembered, Replacement, ReplacementPolicy};
use crate::s3fifo::S3Fifo;
use crate::sets::Sets;

/// DRAM a policy uses for each frame, rounded up: what to plan with before the number of frames is
/// known. What an instance uses is [`Replacement::bytes`], which for a few frames can be more
/// (tables have a least size).
#[must_use]
pub fn bytes_per_frame(policy: ReplacementPolicy) -> usize {
    match policy {
        ReplacementPolicy::Clock => 1,
        // The ghost's table is a power of two: at most 29 bytes a frame, see `s3fifo`.
        ReplacementPolicy::S3Fifo => 20 + 29,
        ReplacementPolicy::Lru => 8,
        // A set has 20 bytes, divided among its ways.
        ReplacementPolicy::SetAssociative(ways) => 20 + 20_usize.div_ceil(ways.count()),
    }
}

/// Any of the policies, chosen when it is made. Calls are dispatched by a match, not through a
/// table.
pub enum AnyReplacement {
    /// [`Clock`].
    Clock(Clock),
    /// [`S3Fifo`].
    S3Fifo(S3Fifo),
    /// [`Lru`].
    Lru(Lru),
    /// [`Sets`].
    Sets(Sets),
}

impl AnyReplacement {
    /// For frames `0..capacity_frames`.
    ///
    /// # Panics
    /// If there are about as many frames as indices ([`FrameIndex::LIMIT`], less two).
    pub fn new(policy: ReplacementPolicy, capacity_frames: usize) -> Self {
        assert!(capacity_frames < FrameIndex::LIMIT as usize - 1, "fewer than 2^30 - 1 frames");
        match policy {
            ReplacementPolicy::Clock => AnyReplacement::Clock(Clock::new(capacity_frames)),
            ReplacementPolicy::S3Fifo => AnyReplacement::S3Fifo(S3Fifo::new(capacity_frames)),
            ReplacementPolicy::Lru => AnyReplacement::Lru(Lru::new(capacity_frames)),
            ReplacementPolicy::SetAssociative(ways) => AnyReplacement::Sets(Sets::new(ways, capacity_frames)),
        }
    }

    /// Which one it is.
    pub fn policy(&self) -> ReplacementPolicy {
        match self {
            AnyReplacement::Clock(_) => ReplacementPolicy::Clock,
            AnyReplacement::S3Fifo(_) => ReplacementPolicy::S3Fifo,
            AnyReplacement::Lru(_) => ReplacementPolicy::Lru,
            AnyReplacement::Sets(sets) => ReplacementPolicy::SetAssociative(sets.ways()),
        }
    }
}

macro_rules! each {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            AnyReplacement::Clock($policy) => $call,
            AnyReplacement::S3Fifo($policy) => $call,
            AnyReplacement::Lru($policy) => $call,
            AnyReplacement::Sets($policy) => $call,
        }
    };
}

impl Replacement for AnyReplacement {
    #[inline]
    fn inserted(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        each!(self, p => p.inserted(frame, subpage));
    }
    #[inline]
    fn touched(&mut self, frame: LocalFrame) {
        each!(self, p => p.touched(frame));
    }
    #[inline]
    fn expects(&mut self, subpage: SubpageIndex) {
        each!(self, p => p.expects(subpage));
    }
    #[inline]
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        each!(self, p => p.victim(view))
    }
    #[inline]
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        each!(self, p => p.reinstated(frame, subpage));
    }
    #[inline]
    fn removed(&mut self, frame: LocalFrame) {
        each!(self, p => p.removed(frame));
    }
    fn coldest(
        &self,
        from: ColdCursor,
        most: usize,
        each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>,
    ) -> ColdCursor {
        each!(self, p => p.coldest(from, most, each))
    }
    #[inline]
    fn will_read_at(&self, subpage: SubpageIndex) -> Option<*const u8> {
        each!(self, p => p.will_read_at(subpage))
    }
    #[inline]
    fn last_victim_holds(&self) -> Option<SubpageIndex> {
        each!(self, p => p.last_victim_holds())
    }
    fn remembered(&self) -> Remembered {
        each!(self, p => p.remembered())
    }
    #[inline]
    fn len(&self) -> usize {
        each!(self, p => p.len())
    }
    fn capacity(&self) -> usize {
        each!(self, p => p.capacity())
    }
    fn bytes(&self) -> usize {
        each!(self, p => p.bytes())
    }
    fn check(&self) {
        each!(self, p => p.check());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_says_how_many_frames_it_is_for() {
        for policy in ReplacementPolicy::ALL {
            let replacement = AnyReplacement::new(policy, 17);
            assert_eq!((replacement.capacity(), replacement.len(), replacement.is_empty()), (17, 0, true), "{policy}");
        }
    }
    #[test]
    fn bytes_per_frame_is_an_upper_bound() {
        for policy in ReplacementPolicy::ALL {
            for capacity in [1_000, 4_096, 5_000, 16_384, 18_205, 100_000] {
                let bytes = AnyReplacement::new(policy, capacity).bytes();
                assert!(bytes <= 1_024 + capacity * bytes_per_frame(policy), "{policy}, {capacity} frames: {bytes}");
            }
        }
    }
}
