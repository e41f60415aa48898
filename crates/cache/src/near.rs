//! The near table: where recently used subpages are, in a few words that stay in the caches.
//!
//! The words of a cache's worth of subpages are spread over as many cache lines of the residency
//! table. A hit on a lukewarm subpage would first wait for its word. This table has an entry or two
//! for each frame, and two places in one line for each subpage.
//!
//! It is for a worker that is alone. No other can unlink a subpage under it, so an entry needs no
//! second check and no slot. With several workers, or too many frames, it stays empty, and hits go
//! by the residency words.
//!
//! Invariant: an entry's subpage is resident in the entry's frame. The evictor removes it when it
//! unlinks the subpage.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_format::FrameIndex;

/// No subpage has the number in its upper half.
const EMPTY: u64 = u64::MAX;

/// The near table of a lone worker. Only that worker's thread reaches it. It has atomics because
/// fibers share it.
pub struct Near {
    entries: Box<[AtomicU64]>,
}

/// Entries in which a subpage may be.
const PLACES: usize = 2;

/// A table above 256 KiB would be out of the caches itself, and one for part of the subpages is
/// asked in vain too often. Measured on 2 GiB of resident data, either costs a quarter of the
/// throughput.
const ENTRIES_MAX: usize = 1 << 15;

/// DRAM that a near table takes for each frame, at most.
pub const BYTES_PER_FRAME: usize = 2 * size_of::<AtomicU64>();

impl Near {
    /// For a worker with `frames` frames; of no use to a worker that is not alone.
    pub fn new(frames: u32, alone: bool) -> Near {
        let useful = alone && frames as usize <= ENTRIES_MAX;
        let entries = if useful { (frames as usize).max(2).next_power_of_two() } else { PLACES };
        Near { entries: (0..entries).map(|_| AtomicU64::new(EMPTY)).collect() }
    }
    /// The table in the form in which its users search it.
    pub fn view(&self) -> NearView {
        let mask = if self.entries.len() > PLACES { self.entries.len() as u64 - 1 } else { 0 };
        NearView { entries: NonNull::from(&self.entries[..]).cast(), mask }
    }
    /// Forgets a subpage.
    #[inline]
    pub fn forget(&self, subpage: u32) {
        let first = self.first_of(subpage);
        for place in [first, first ^ 1] {
            let entry = &self.entries[place];
            if entry.load(Ordering::Relaxed) >> 32 == u64::from(subpage) {
                entry.store(EMPTY, Ordering::Relaxed);
            }
        }
    }
    /// Starts to fetch the line of a subpage's entry, which will be forgotten soon.
    #[inline]
    pub fn will_forget(&self, subpage: u32) {
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(&self.entries[self.first_of(subpage)]).cast());
    }
    #[inline]
    fn first_of(&self, subpage: u32) -> usize {
        subpage as usize & (self.entries.len() - 1)
    }
}

/// The table as contexts see it.
#[derive(Clone, Copy)]
pub struct NearView {
    entries: NonNull<AtomicU64>,
    mask: u64,
}

impl NearView {
    /// The frame of a subpage, if the table knows it.
    ///
    /// # Safety
    /// The table must be alive.
    #[inline(always)]
    pub unsafe fn find(&self, subpage: u64) -> Option<FrameIndex> {
        if self.mask == 0 {
            return None;
        }
        let first = (subpage & self.mask) as usize;
        // SAFETY: the caller's contract. The mask is the number of entries, which is even, less
        // one, or 0.
        let entry = |place: usize| unsafe { self.entries.add(place).as_ref() }.load(Ordering::Relaxed);
        let holds = |entry: u64| (entry >> 32 == subpage).then_some(FrameIndex(entry as u32));
        holds(entry(first)).or_else(|| holds(entry(first ^ 1)))
    }
    /// Notes that a subpage unknown to the table is resident in `frame`, if the table is in use.
    /// The first place's old entry moves to the second.
    ///
    /// # Safety
    /// The table must be alive.
    #[inline(always)]
    pub unsafe fn note(&self, subpage: u32, frame: FrameIndex) {
        if self.mask != 0 {
            // SAFETY: as above.
            let entry = |place: usize| unsafe { self.entries.add(place).as_ref() };
            let first = (u64::from(subpage) & self.mask) as usize;
            let before = entry(first).load(Ordering::Relaxed);
            if before != EMPTY {
                entry(first ^ 1).store(before, Ordering::Relaxed);
            }
            entry(first).store(u64::from(subpage) << 32 | u64::from(frame.0), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_found_until_it_is_forgotten() {
        let near = Near::new(9, true);
        let view = near.view();
        // SAFETY: the table is alive.
        unsafe {
            assert_eq!(view.find(3), None);
            view.note(3, FrameIndex(7));
            assert_eq!((view.find(3), view.find(19), view.find(1 << 32 | 3)), (Some(FrameIndex(7)), None, None));
            near.forget(19);
            assert_eq!(view.find(3), Some(FrameIndex(7)), "another subpage of the same entry");
            view.note(2, FrameIndex(5));
            assert_eq!(
                (view.find(2), view.find(3)),
                (Some(FrameIndex(5)), Some(FrameIndex(7))),
                "neighbours do not disturb each other"
            );
            near.forget(2);
            view.note(19, FrameIndex(8));
            assert_eq!(
                (view.find(3), view.find(19)),
                (Some(FrameIndex(7)), Some(FrameIndex(8))),
                "there are two places for both"
            );
            view.note(2, FrameIndex(9));
            assert_eq!(
                (view.find(2), view.find(3), view.find(19)),
                (Some(FrameIndex(9)), Some(FrameIndex(7)), None),
                "3 moves back"
            );
            view.note(18, FrameIndex(6));
            assert_eq!((view.find(18), view.find(2), view.find(3)), (Some(FrameIndex(6)), Some(FrameIndex(9)), None));
            near.forget(2);
            near.forget(18);
            assert_eq!((view.find(2), view.find(18)), (None, None));
            for frames in [0, 1, 2] {
                let one = Near::new(frames, true);
                one.view().note(0, FrameIndex(5));
                assert_eq!(one.view().find(0), None, "a table of two entries is not used");
            }
            let large = Near::new(ENTRIES_MAX as u32 + 1, true);
            large.view().note(0, FrameIndex(5));
            assert_eq!(large.view().find(0), None, "too many frames for it");
            let several = Near::new(64, false);
            several.view().note(0, FrameIndex(5));
            assert_eq!(several.view().find(0), None);
        }
    }
}
