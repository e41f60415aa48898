//! Counts the misses of a replacement policy over a trace of keys.
//!
//! Not here: time. Misses complete at once, and nothing is ever in use.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use fulgurite_format::{LocalFrame, SubpageIndex};

use crate::any::AnyReplacement;
use crate::replacement::{FrameView, Replacement, ReplacementPolicy};

/// What a trace cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MissCount {
    /// Keys in the trace.
    pub accesses: u64,
    /// Accesses whose subpage was not in a frame.
    pub misses: u64,
}

impl MissCount {
    /// Misses per access. 0 for an empty trace.
    pub fn ratio(self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.misses as f64 / self.accesses as f64 }
    }
}

/// How a policy hears of hits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hits {
    /// Each one, through [`Replacement::touched`]: the policy as its authors describe it.
    Known,
    /// As in the runtime: one mark a frame, set by hits and by the access that missed, taken when
    /// the policy visits it.
    Marked,
}

/// Every frame may be evicted.
struct Marks(Vec<bool>);

impl FrameView for Marks {
    #[inline]
    fn take_referenced(&mut self, frame: LocalFrame) -> bool {
        core::mem::take(&mut self.0[frame.index()])
    }
    #[inline]
    fn evictable(&mut self, _frame: LocalFrame) -> bool {
        true
    }
}

/// Misses of `policy` with `capacity` frames over `keys`, every hit known. Keys may be any numbers
/// (block numbers, hashes): different ones are different subpages, up to 2^32 of them.
///
/// # Panics
/// If `capacity` is 0 or above `FrameIndex::LIMIT`, or there are more than 2^32 different keys.
#[must_use]
pub fn miss_ratio(policy: ReplacementPolicy, capacity: usize, keys: impl Iterator<Item = u64>) -> MissCount {
    miss_ratio_with(policy, capacity, Hits::Known, keys)
}

/// As [`miss_ratio`], with a choice of how the policy hears of hits.
///
/// # Panics
/// As [`miss_ratio`].
#[must_use]
pub fn miss_ratio_with(
    policy: ReplacementPolicy,
    capacity: usize,
    hits: Hits,
    keys: impl Iterator<Item = u64>,
) -> MissCount {
    assert!(capacity > 0, "a cache of no frames misses always");
    let mut replacement = AnyReplacement::new(policy, capacity);
    let mut marks = Marks(vec![false; capacity]);
    // Where each key is: its subpage (numbered in order of appearance), and its frame while it is
    // in one.
    let mut places: HashMap<u64, (SubpageIndex, Option<LocalFrame>), FixedState> = HashMap::default();
    let mut keys_in: Vec<u64> = Vec::new();
    let mut count = MissCount::default();
    for key in keys {
        count.accesses += 1;
        let next = places.len();
        let (subpage, frame) = *places
            .entry(key)
            .or_insert_with(|| (SubpageIndex(u32::try_from(next).expect("at most 2^32 different keys")), None));
        if let Some(frame) = frame {
            match hits {
                Hits::Known => replacement.touched(frame),
                Hits::Marked => marks.0[frame.index()] = true,
            }
            continue;
        }
        count.misses += 1;
        let frame = if keys_in.len() < capacity {
            keys_in.push(key);
            LocalFrame(keys_in.len() as u32 - 1)
        } else {
            replacement.expects(subpage);
            let frame = replacement.victim(&mut marks).expect("every frame is evictable");
            let old = core::mem::replace(&mut keys_in[frame.index()], key);
            places.get_mut(&old).expect("what is in a frame was placed").1 = None;
            frame
        };
        replacement.inserted(frame, subpage);
        marks.0[frame.index()] = hits == Hits::Marked;
        places.insert(key, (subpage, Some(frame)));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_fits_misses_once_for_each_key() {
        for policy in ReplacementPolicy::ALL {
            let keys = (0..1000_u64).map(|i| (i % 10) << 40);
            for hits in [Hits::Known, Hits::Marked] {
                let count = miss_ratio_with(policy, 10, hits, keys.clone());
                assert_eq!(count, MissCount { accesses: 1000, misses: 10 }, "{policy}");
            }
        }
    }

    #[test]
    fn one_frame_misses_on_every_change() {
        for policy in ReplacementPolicy::ALL {
            for hits in [Hits::Known, Hits::Marked] {
                let count = miss_ratio_with(policy, 1, hits, [7, 7, 8, 8, 7, u64::MAX, u64::MAX].into_iter());
                assert_eq!(count, MissCount { accesses: 7, misses: 4 }, "{policy}");
            }
        }
        assert_eq!(miss_ratio(ReplacementPolicy::Lru, 1, core::iter::empty()).ratio(), 0.0);
    }
}
