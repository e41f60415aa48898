//! Which frame to evict: what every replacement policy can do, and their names.
//! [`AnyReplacement`](crate::AnyReplacement) is one of them.
//!
//! A policy knows frames by their dense indices, `0..capacity`. A frame is *in* the policy from
//! [`Replacement::inserted`] (or `reinstated`) until [`Replacement::victim`] hands it out or it is
//! `removed`. The driver keeps to that order, and policies assert it.
//!
//! Hits do not call a policy: the runtime sets a byte per frame, and the policy takes that byte
//! when it visits the frame ([`FrameView::take_referenced`]). That is one bit since the last visit.
//! The runtime clears it when contents come in, and the access that waited for them does not set
//! it. But a job touches a subpage several times right after its miss, so that at the first visit
//! the bit says little about reuse. A simulator that sees every hit calls [`Replacement::touched`]
//! instead.
//!
//! Not here: what is in a frame, whether it is dirty, and how it gets written back.

use core::fmt;
use core::ops::ControlFlow;
use core::str::FromStr;

use fulgurite_format::{LocalFrame, SubpageIndex};

use crate::name::UnknownName;

/// What a policy may ask the driver about a frame.
pub trait FrameView {
    /// Whether the frame was used since this was last asked. The mark is cleared.
    fn take_referenced(&mut self, frame: LocalFrame) -> bool;
    /// Whether it may be evicted now (not pinned, not on its way).
    fn evictable(&mut self, frame: LocalFrame) -> bool;
    /// The frame will be asked about soon: what is known of it may be fetched.
    fn expect(&mut self, frame: LocalFrame) {
        let _ = frame;
    }
    /// Asked after a frame that may not be: whether the search is to be given up, as the next ones
    /// may not be either.
    fn gives_up(&self) -> bool {
        false
    }
}

/// Where [`Replacement::coldest`] goes on. What it says is for the policy that has made it alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdCursor(pub(crate) u32);

impl ColdCursor {
    /// At the frame that will be visited first.
    pub const START: ColdCursor = ColdCursor(u32::MAX);
}

/// What a policy knows of frames that it does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// How many subpages came in that it remembered to have evicted, in all.
    pub returned: u64,
    /// The most that it remembers.
    pub frames: u64,
}

/// A replacement policy. See the module for when each call is allowed.
pub trait Replacement {
    /// Contents came in after a miss.
    ///
    /// # Panics
    /// If the frame is in the policy already, or out of range.
    fn inserted(&mut self, frame: LocalFrame, subpage: SubpageIndex);
    /// A hit that is known. The runtime reports hits only through [`FrameView::take_referenced`].
    fn touched(&mut self, frame: LocalFrame);
    /// The next victim makes room for this subpage. For drivers that evict when something comes in,
    /// and for policies whose choice depends on it. The next call of [`Replacement::victim`]
    /// forgets it.
    #[inline]
    fn expects(&mut self, _subpage: SubpageIndex) {}
    /// The next victim, taken out of the policy. `None` when a bounded scan (a few visits to each
    /// frame) found none: nothing is evictable, or all that is was used again during the scan, or
    /// the driver gave up. A driver tries again later, not in a loop.
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame>;
    /// The victim could not be evicted, because it is in use: it goes back as recently used.
    ///
    /// # Panics
    /// As [`Replacement::inserted`].
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex);
    /// The frame was freed by other means.
    ///
    /// # Panics
    /// If it is not in the policy.
    fn removed(&mut self, frame: LocalFrame);
    /// Calls `each` for frames in the order in which they will be visited for a victim, from `from`
    /// on, until it says stop. Takes at most `most` steps, of which each reports one frame or finds
    /// a slot empty. Returns where to continue. [`ColdCursor::START`] after the last frame. Changes
    /// nothing.
    ///
    /// A cursor stays valid while the policy changes, but then some frames are reported twice or
    /// not at all, or all are reported from the start.
    fn coldest(&self, from: ColdCursor, most: usize, each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>)
    -> ColdCursor;
    /// Where in DRAM the policy will read when this subpage comes in, or soon after it was evicted,
    /// if that is likely to be out of the caches: for a hint to them, ahead of time. Never
    /// followed.
    #[inline]
    fn will_read_at(&self, _subpage: SubpageIndex) -> Option<*const u8> {
        None
    }
    /// What the last victim holds, if the policy remembers. It saves the driver a read of its own
    /// record of the frame, which is likely to be out of the caches.
    #[inline]
    fn last_victim_holds(&self) -> Option<SubpageIndex> {
        None
    }
    /// How many misses more frames would have spared, if the policy remembers what it evicted.
    fn remembered(&self) -> Remembered {
        Remembered::default()
    }
    /// Frames in the policy.
    fn len(&self) -> usize;
    /// No frame is in the policy.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Frames there are: indices are below it.
    fn capacity(&self) -> usize;
    /// Bytes of DRAM the policy uses. They count against the budget.
    fn bytes(&self) -> usize;
    /// Asserts the invariants. Takes time in proportion to the capacity.
    ///
    /// # Panics
    /// If one does not hold.
    fn check(&self);
}

/// The policies there are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ReplacementPolicy {
    /// Second chance, in the order of the frames.
    Clock,
    /// Small and main queue with a ghost. The default: fewest misses of the first three on the OLTP
    /// and P3 traces of Megiddo and Modha (FAST 2003) and on Zipf keys, at every size tried. Also
    /// when hits are seen only as marks ([`Hits::Marked`](crate::simulate::Hits)).
    #[default]
    S3Fifo,
    /// Least recently used.
    Lru,
    /// Least recently used of a set that a hash of the subpage names, as in hardware.
    SetAssociative(Ways),
}

/// Subpages of a set of [`ReplacementPolicy::SetAssociative`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ways {
    /// AstriFlash's DRAM cache (table I).
    Four,
    /// What a column of its tags maps (section IV-B).
    Eight,
    /// HybridSim's, by NVMM's authors.
    SixtyFour,
}

impl Ways {
    /// How many they are.
    pub const fn count(self) -> usize {
        match self {
            Ways::Four => 4,
            Ways::Eight => 8,
            Ways::SixtyFour => 64,
        }
    }
}

impl ReplacementPolicy {
    /// All of them.
    pub const ALL: [ReplacementPolicy; 6] = [
        ReplacementPolicy::Clock,
        ReplacementPolicy::S3Fifo,
        ReplacementPolicy::Lru,
        ReplacementPolicy::SetAssociative(Ways::Four),
        ReplacementPolicy::SetAssociative(Ways::Eight),
        ReplacementPolicy::SetAssociative(Ways::SixtyFour),
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ReplacementPolicy::Clock => "clock",
            ReplacementPolicy::S3Fifo => "s3-fifo",
            ReplacementPolicy::Lru => "lru",
            ReplacementPolicy::SetAssociative(Ways::Four) => "4-way",
            ReplacementPolicy::SetAssociative(Ways::Eight) => "8-way",
            ReplacementPolicy::SetAssociative(Ways::SixtyFour) => "64-way",
        }
    }
}

impl fmt::Display for ReplacementPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReplacementPolicy {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        ReplacementPolicy::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownName {
            what: "replacement policy",
            got: text.to_owned(),
            expected: "clock, s3-fifo, lru, 4-way, 8-way, 64-way",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_as_printed() {
        for policy in ReplacementPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "LRU".parse::<ReplacementPolicy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown replacement policy \"LRU\": use one of clock, s3-fifo, lru, 4-way, 8-way, 64-way"
        );
    }
}
