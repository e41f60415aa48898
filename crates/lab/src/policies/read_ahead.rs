//! What sequential prefetch would fetch on a stream, and how much of it in vain.
//!
//! The runtime's prefetcher over its default replacement policy, with marks for hits. Reads
//! complete at once, so this is the most that prefetch saves, and what it wastes.

use std::collections::HashMap;
use std::ops::Range;

use fulgurite_format::{LocalFrame, SubpageIndex};
use fulgurite_policy::{AnyReplacement, FrameView, PrefetchPolicy, Prefetcher, Replacement, ReplacementPolicy};

use super::streams::Stream;
use fulgurite_term::interrupt::Interrupt;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadAhead {
    /// Subpages that somebody had to wait for.
    pub misses: u64,
    pub prefetched: u64,
    pub used: u64,
    pub wasted: u64,
}

struct Marks(Vec<bool>);

impl FrameView for Marks {
    fn take_referenced(&mut self, frame: LocalFrame) -> bool {
        std::mem::take(&mut self.0[frame.index()])
    }
    fn evictable(&mut self, _: LocalFrame) -> bool {
        true
    }
}

struct Cache {
    replacement: AnyReplacement,
    marks: Marks,
    /// What is in each frame, and whether it was read ahead and not touched since.
    frames: Vec<(u32, bool)>,
    capacity: usize,
    places: HashMap<u32, u32>,
    prefetcher: Prefetcher,
    count: ReadAhead,
}

impl Cache {
    fn bring_in(&mut self, subpage: u32, ahead: bool) {
        let frame = if self.frames.len() < self.capacity {
            self.frames.push((subpage, ahead));
            LocalFrame(self.frames.len() as u32 - 1)
        } else {
            let frame = self.replacement.victim(&mut self.marks).expect("every frame is evictable");
            let (old, untouched) = std::mem::replace(&mut self.frames[frame.index()], (subpage, ahead));
            self.places.remove(&old);
            if untouched {
                self.count.wasted += 1;
                self.prefetcher.wasted(SubpageIndex(old));
            }
            frame
        };
        self.places.insert(subpage, frame.0);
        self.replacement.inserted(frame, SubpageIndex(subpage));
        self.marks.0[frame.index()] = !ahead;
    }

    fn read_ahead(&mut self, range: Option<Range<u32>>, end: u32) {
        let Some(range) = range else { return };
        for subpage in range.start..range.end.min(end) {
            if !self.places.contains_key(&subpage) {
                self.count.prefetched += 1;
                self.bring_in(subpage, true);
            }
        }
    }
}

/// Replays a stream in so many frames. Keys above 2^32 are taken modulo that.
pub fn read_ahead(policy: PrefetchPolicy, frames: usize, stream: &Stream, interrupt: &Interrupt) -> ReadAhead {
    let mut cache = Cache {
        replacement: AnyReplacement::new(ReplacementPolicy::default(), frames),
        marks: Marks(vec![false; frames]),
        frames: Vec::with_capacity(frames),
        capacity: frames,
        places: HashMap::with_capacity(frames),
        prefetcher: Prefetcher::new(policy),
        count: ReadAhead::default(),
    };
    // Nothing lies behind the last subpage.
    let end = stream.keys.iter().map(|k| *k as u32).max().map_or(0, |last| last.saturating_add(1));
    for key in stream.keys_until(interrupt) {
        let subpage = key as u32;
        let Some(&frame) = cache.places.get(&subpage) else {
            cache.count.misses += 1;
            cache.bring_in(subpage, false);
            let range = cache.prefetcher.missed(SubpageIndex(subpage));
            cache.read_ahead(range, end);
            continue;
        };
        cache.marks.0[frame as usize] = true;
        if std::mem::take(&mut cache.frames[frame as usize].1) {
            cache.count.used += 1;
            let range = cache.prefetcher.used(SubpageIndex(subpage));
            cache.read_ahead(range, end);
        }
    }
    cache.count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_ahead(policy: PrefetchPolicy, frames: usize, keys: &[u64]) -> ReadAhead {
        let stream = Stream { name: "test".to_owned(), keys: keys.to_vec(), accesses: keys.len() as u64 };
        super::read_ahead(policy, frames, &stream, &Interrupt::default())
    }

    #[test]
    fn a_scan_is_read_ahead() {
        let keys: Vec<u64> = (0..10_000).collect();
        let off = read_ahead(PrefetchPolicy::Off, 100, &keys);
        assert_eq!(off, ReadAhead { misses: 10_000, ..ReadAhead::default() });
        let adaptive = read_ahead(PrefetchPolicy::Adaptive, 100, &keys);
        assert!(adaptive.misses < 100 && adaptive.wasted < 100, "{adaptive:?}");
        assert!(adaptive.misses + adaptive.used == 10_000);
    }
    #[test]
    fn noise_is_left_alone() {
        let keys: Vec<u64> = (0..20_000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 45).collect();
        let adaptive = read_ahead(PrefetchPolicy::Adaptive, 100, &keys);
        assert!(adaptive.prefetched < 1000, "{adaptive:?}");
    }
    #[test]
    fn it_misses_as_often_as_the_policy_alone_when_off() {
        let keys: Vec<u64> = (0..20_000u64).map(|i| (i * i) % 777).collect();
        let alone = fulgurite_policy::miss_ratio_with(
            ReplacementPolicy::default(),
            50,
            fulgurite_policy::Hits::Marked,
            keys.iter().copied(),
        );
        assert_eq!(read_ahead(PrefetchPolicy::Off, 50, &keys).misses, alone.misses);
    }
}
