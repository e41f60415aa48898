//! The ghost queue of S3-FIFO: which subpages were evicted lately, without their contents.
//!
//! A flat table of buckets, one cache line each: eight pairs of a subpage and the number of its
//! eviction. An entry is live while fewer than `window` evictions came after it, so old ones need
//! no removal. A full bucket drops its oldest. There are two to four slots for every live entry, so
//! that happens to about one in fifty, or fewer. A subpage that was not evicted within the window
//! is never reported (the keys are whole, not hashes).
//!
//! A bucket is a cache line that has not been used for long: the evictor gives the caches a hint
//! ([`Ghost::line`]), and an eviction is entered a few evictions later, when the line is there.
//!
//! Invariants: the size is fixed when it is made. A subpage is in at most one slot of its bucket.
//! What waits to be entered is reported like what has been.

use fulgurite_format::SubpageIndex;

const WAYS: usize = 8;
/// Evictions that wait to be entered: as many misses of the caches overlap.
const WAITING: usize = 8;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    subpages: [u32; WAYS],
    /// The eviction's number. 0: never used.
    stamps: [u32; WAYS],
}
const _: () = assert!(size_of::<Bucket>() == 64);

pub(crate) struct Ghost {
    buckets: Box<[Bucket]>,
    /// 64 less the bits of a bucket's index (at most 63, so that the shift is one).
    shift: u32,
    /// Evictions so far, plus the window, wrapping, so that a stamp of 0 is old. After 2^32
    /// evictions a stamp that was not overwritten in all that time seems new again, which costs one
    /// wrong promotion.
    now: u32,
    window: u32,
    /// Subpage and stamp of the latest evictions, oldest first.
    waiting: [(u32, u32); WAITING],
    waiting_count: usize,
}

impl Ghost {
    /// Remembers the last `window` evictions.
    pub(crate) fn new(window: usize) -> Self {
        let window = u32::try_from(window).expect("frame indices are below 2^30").max(1);
        let buckets = (window as usize * 2).div_ceil(WAYS).next_power_of_two().max(2);
        let empty = Bucket { subpages: [0; WAYS], stamps: [0; WAYS] };
        Ghost {
            buckets: vec![empty; buckets].into_boxed_slice(),
            shift: 64 - buckets.trailing_zeros(),
            now: window,
            window,
            waiting: [(0, 0); WAITING],
            waiting_count: 0,
        }
    }

    /// Evictions that it remembers.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    #[inline(always)]
    fn place(&self, subpage: u32) -> usize {
        // Top bits of a product by an odd constant other than the miss table's, so that the two do
        // not collide together.
        (u64::from(subpage).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> self.shift) as usize
    }

    /// Where the table will be read for `subpage`: for a hint to the caches.
    #[inline]
    pub(crate) fn line(&self, subpage: SubpageIndex) -> *const u8 {
        core::ptr::from_ref(&self.buckets[self.place(subpage.0)]).cast()
    }

    /// `subpage` was evicted.
    #[inline]
    pub(crate) fn insert(&mut self, subpage: SubpageIndex) {
        self.now = self.now.wrapping_add(1);
        if self.waiting_count == WAITING {
            for (subpage, stamp) in core::mem::replace(&mut self.waiting, [(0, 0); WAITING]) {
                // What was taken meanwhile, or is too old already, must not push out what is live.
                if self.now.wrapping_sub(stamp) < self.window {
                    self.enter(subpage, stamp);
                }
            }
            self.waiting_count = 0;
        }
        self.waiting[self.waiting_count] = (subpage.0, self.now);
        self.waiting_count += 1;
    }

    fn enter(&mut self, subpage: u32, stamp: u32) {
        let at = self.place(subpage);
        let bucket = &mut self.buckets[at];
        let (mut place, mut oldest) = (0, 0);
        for way in 0..WAYS {
            if bucket.subpages[way] == subpage {
                place = way;
                break;
            }
            let age = stamp.wrapping_sub(bucket.stamps[way]);
            if age > oldest {
                (place, oldest) = (way, age);
            }
        }
        bucket.subpages[place] = subpage;
        bucket.stamps[place] = stamp;
    }

    /// Whether `subpage` was evicted within the window. It is forgotten.
    #[inline]
    pub(crate) fn take(&mut self, subpage: SubpageIndex) -> bool {
        let (now, window) = (self.now, self.window);
        let mut live_waiting = false;
        for waiting in &mut self.waiting[..self.waiting_count] {
            if waiting.0 == subpage.0 && now.wrapping_sub(waiting.1) < window {
                live_waiting = true;
                waiting.1 = now.wrapping_sub(window);
            }
        }
        if live_waiting {
            return true;
        }
        let at = self.place(subpage.0);
        let bucket = &mut self.buckets[at];
        for way in 0..WAYS {
            if bucket.subpages[way] == subpage.0 {
                let live = now.wrapping_sub(bucket.stamps[way]) < window;
                bucket.stamps[way] = now.wrapping_sub(window);
                return live;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn reports_only_what_was_evicted_within_the_window_and_most_of_that() {
        for window in [1_usize, 2, 3, 8, 100, 1000] {
            let mut ghost = Ghost::new(window);
            let bytes = ghost.bytes();
            let mut model: VecDeque<Option<u32>> = VecDeque::new();
            let (mut found, mut expected) = (0_u32, 0_u32);
            let mut random = fulgurite_testkit::Random(0x1234_5678);
            for _ in 0..20_000 {
                let subpage = random.below(3 * window as u32);
                let at = model.iter().position(|s| *s == Some(subpage));
                let got = ghost.take(SubpageIndex(subpage));
                if let Some(at) = at {
                    model[at] = None;
                    expected += 1;
                    found += u32::from(got);
                } else {
                    assert!(!got, "subpage {subpage} was not evicted lately (window {window})");
                }
                ghost.insert(SubpageIndex(subpage));
                model.push_back(Some(subpage));
                if model.len() > window {
                    model.pop_front();
                }
            }
            assert_eq!(ghost.bytes(), bytes);
            assert!(found >= expected - expected / 20, "{found} of {expected} (window {window})");
            if window <= 8 {
                assert_eq!(found, expected, "a window of one bucket is exact");
            }
        }
    }

    #[test]
    fn subpage_zero_is_not_there_before_it_was_evicted() {
        let mut ghost = Ghost::new(100);
        assert!(!ghost.take(SubpageIndex(0)));
        ghost.insert(SubpageIndex(5));
        assert!(!ghost.take(SubpageIndex(0)));
        assert!(ghost.take(SubpageIndex(5)) && !ghost.take(SubpageIndex(5)), "once");
    }
}
