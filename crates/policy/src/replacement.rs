//! Which frame to evict: what every replacement policy can do, and the choice of one by name.
//!
//! A policy knows frames by their dense indices, `0..capacity`. A frame is *in* the policy from [`Replacement::inserted`]
//! (or `reinstated`) until [`Replacement::victim`] hands it out or it is `removed`; the driver keeps to that order, and
//! policies assert it.
//!
//! Hits do not call a policy: the runtime sets a byte per frame, and the policy takes that byte when it looks at the frame
//! ([`FrameView::take_referenced`]). That is one bit since the last look. The access that missed sets it too, so at the
//! first look it says nothing about reuse; drivers do well to clear it once the waiters have run. A simulator that
//! sees every hit calls [`Replacement::touched`] instead.
//!
//! Not here: what is in a frame, whether it is dirty, and how it gets written back.

use fulgurite_format::{FrameIndex, SubpageIndex};

/// What a policy may ask the driver about a frame.
pub trait FrameView {
    /// Whether the frame was used since this was last asked; the mark is cleared.
    fn take_referenced(&mut self, frame: FrameIndex) -> bool;
    /// Whether it may be evicted now (not pinned, not on its way).
    fn evictable(&mut self, frame: FrameIndex) -> bool;
}

/// A replacement policy. See the module for when each call is allowed.
pub trait Replacement {
    /// Contents came in after a miss.
    ///
    /// # Panics
    /// If the frame is in the policy already, or out of range.
    fn inserted(&mut self, frame: FrameIndex, subpage: SubpageIndex);
    /// A hit that is known. The runtime reports hits only through [`FrameView::take_referenced`].
    fn touched(&mut self, frame: FrameIndex);
    /// The next victim, taken out of the policy. `None` when nothing is evictable, found out in a bounded scan (at most a
    /// few looks at each frame).
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<FrameIndex>;
    /// The victim could not be evicted, because it is in use: it goes back as recently used.
    ///
    /// # Panics
    /// As [`Replacement::inserted`].
    fn reinstated(&mut self, frame: FrameIndex, subpage: SubpageIndex);
    /// The frame was freed by other means.
    ///
    /// # Panics
    /// If it is not in the policy.
    fn removed(&mut self, frame: FrameIndex);
    /// Frames in the policy.
    fn len(&self) -> usize;
    /// No frame is in the policy.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Frames there are: indices are below it.
    fn capacity(&self) -> usize;
    /// Bytes of DRAM the policy uses; they count against the budget.
    fn bytes(&self) -> usize;
    /// Asserts the invariants. Takes time in proportion to the capacity.
    ///
    /// # Panics
    /// If one does not hold.
    fn check(&self);
}
