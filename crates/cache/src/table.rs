//! The residency table: a word for each subpage, and a bit that spares the word where the answer is
//! "in flash".
//!
//! Words of long unused subpages are out of the caches, as the subpages are. A miss would wait for
//! DRAM only to learn that it is one. The bits are 32 times as dense and stay near. A set bit says
//! that the contents are in flash only, and a cleared one says nothing.
//!
//! With one worker, the bit is exact, words change by plain stores, and a miss writes its word
//! without reading it. With several, the bit is a hint, and the word decides by compare-and-swap.
//! The bit is set before the word says "absent", and the next owner clears it.

use fulgurite_format::FrameIndex;
use fulgurite_sys::{Arena, ArenaError, Backed};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use crate::primitive::{AtomicU32, Ordering};
use crate::residency::{self, State};

/// The residency table, which all workers share.
pub struct Table {
    words: Arena,
    absent: Arena,
    subpages: u32,
    /// One worker only.
    alone: bool,
}

/// DRAM that the table takes.
pub fn bytes(subpages: u64) -> u64 {
    subpages * size_of::<AtomicU32>() as u64 + subpages.div_ceil(8)
}

impl Table {
    /// A table of fresh subpages, the first `existing` of which are absent.
    pub fn new(subpages: u32, existing: u32, workers: usize) -> Result<Table, ArenaError> {
        let words = Arena::anonymous(subpages as usize * size_of::<AtomicU32>(), Backed::HugePages)?;
        let absent = Arena::anonymous((subpages as usize).div_ceil(8), Backed::HugePages)?;
        let table = Table { words, absent, subpages, alone: workers == 1 };
        for byte in 0..existing / 8 {
            table.byte(byte * 8).store(u8::MAX, Ordering::Relaxed);
        }
        for subpage in existing / 8 * 8..existing {
            table.set_absent(subpage);
        }
        for subpage in 0..existing {
            table.word(subpage).store(residency::encode(State::Absent), Ordering::Relaxed);
        }
        Ok(table)
    }

    /// Subpages that the table has words for.
    #[inline]
    pub fn subpages(&self) -> u32 {
        self.subpages
    }
    /// The first word.
    pub fn words(&self) -> NonNull<AtomicU32> {
        self.words.base().cast()
    }
    /// The byte of the first eight bits.
    pub fn absent_bits(&self) -> NonNull<AtomicU8> {
        self.absent.base().cast()
    }
    /// Whether a byte of the bits says that a subpage is in flash only.
    #[inline(always)]
    pub fn says_absent(byte: &AtomicU8, subpage: u32) -> bool {
        byte.load(Ordering::Relaxed) & (1 << (subpage % 8)) != 0
    }

    /// The residency word of a subpage.
    ///
    /// # Panics
    /// When the pool has no such subpage.
    #[inline(always)]
    pub fn word(&self, subpage: u32) -> &AtomicU32 {
        assert!(subpage < self.subpages, "subpage {subpage} is beyond the pool");
        // SAFETY: inside the arena, which is zeroed (each word a valid atomic), aligned to its
        // page, reached as atomics only, and lives as long as `self`.
        unsafe { self.words().add(subpage as usize).as_ref() }
    }
    #[inline(always)]
    fn byte(&self, subpage: u32) -> &AtomicU8 {
        debug_assert!(subpage < self.subpages);
        assert!(subpage as usize / 8 < self.absent.len(), "subpage {subpage} is beyond the pool");
        // SAFETY: as for words.
        unsafe { self.absent_bits().add((subpage / 8) as usize).as_ref() }
    }
    /// Whether a subpage is in flash only, if that is known.
    #[inline]
    pub fn is_absent(&self, subpage: u32) -> bool {
        Table::says_absent(self.byte(subpage), subpage)
    }
    /// Whether a subpage is in flash only, and nobody can have changed that since it was noted.
    #[inline]
    pub fn surely_absent(&self, subpage: u32) -> bool {
        self.alone && self.is_absent(subpage)
    }
    #[inline]
    fn set_absent(&self, subpage: u32) {
        let (byte, bit) = (self.byte(subpage), 1 << (subpage % 8));
        if self.alone {
            byte.store(byte.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        } else {
            // Before the word says so: its Release orders this for the next owner.
            byte.fetch_or(bit, Ordering::Relaxed);
        }
    }
    #[inline]
    fn clear_absent(&self, subpage: u32) {
        let (byte, bit) = (self.byte(subpage), 1u8 << (subpage % 8));
        if self.alone {
            byte.store(byte.load(Ordering::Relaxed) & !bit, Ordering::Relaxed);
        } else {
            byte.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Starts to fetch all that the table says of a subpage.
    #[inline]
    pub fn will_change(&self, subpage: u32) {
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.word(subpage)).cast());
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(self.byte(subpage)).cast());
    }

    /// Takes a fresh or absent subpage for `worker` to read. Returns what it was, or what it is
    /// now.
    ///
    /// # Errors
    /// What somebody else has made of it.
    #[inline]
    pub fn begin(&self, subpage: u32, worker: u32) -> Result<State, State> {
        let word = self.word(subpage);
        if self.surely_absent(subpage) {
            debug_assert_eq!(residency::decode(word.load(Ordering::Relaxed)), State::Absent);
            word.store(residency::encode(State::Busy(worker)), Ordering::Relaxed);
            self.clear_absent(subpage);
            return Ok(State::Absent);
        }
        let was = residency::begin(word, worker)?;
        if was == State::Absent {
            self.clear_absent(subpage);
        }
        Ok(was)
    }

    /// Ends `worker`'s hold on a busy subpage.
    ///
    /// # Panics
    /// When it did not hold it: the state of a page would be lost.
    #[inline]
    pub fn finish(&self, subpage: u32, worker: u32, state: State) {
        if state == State::Absent {
            self.set_absent(subpage);
        }
        residency::finish(self.word(subpage), worker, state);
    }

    /// As [`residency::unlink`].
    #[inline]
    pub fn unlink(&self, subpage: u32, frame: FrameIndex, worker: u32) -> Option<bool> {
        let word = self.word(subpage);
        if !self.alone {
            return residency::unlink(word, frame, worker);
        }
        let touched = residency::touched_in(word.load(Ordering::Relaxed), frame)?;
        word.store(residency::encode(State::Busy(worker)), Ordering::Relaxed);
        Some(touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_follow_the_words() {
        for workers in [1, 2] {
            let table = Table::new(20, 11, workers).unwrap();
            for subpage in 0..20 {
                assert_eq!(table.is_absent(subpage), subpage < 11, "subpage {subpage}");
            }
            assert_eq!(table.begin(3, 0), Ok(State::Absent));
            assert!(!table.is_absent(3) && table.is_absent(2) && table.is_absent(4));
            assert_eq!(table.begin(3, 0), Err(State::Busy(0)));
            table.finish(3, 0, State::Resident(FrameIndex(5)));
            assert_eq!(table.begin(3, 0), Err(State::Resident(FrameIndex(5))));
            assert_eq!(table.unlink(3, FrameIndex(4), 0), None);
            assert_eq!(table.unlink(3, FrameIndex(5), 0), Some(true));
            assert!(!table.is_absent(3));
            table.finish(3, 0, State::Absent);
            assert!(table.is_absent(3));
            assert_eq!(table.begin(19, 0), Ok(State::Fresh));
            table.finish(19, 0, State::Fresh);
            assert!(!table.is_absent(19), "fresh is not absent: nothing is to be read");
            table.begin(19, 0).unwrap();
            table.finish(19, 0, State::Prefetched(FrameIndex(1)));
            assert_eq!(table.unlink(19, FrameIndex(1), 0), Some(false));
        }
    }
    #[test]
    #[should_panic(expected = "beyond the pool")]
    fn beyond_the_pool() {
        let _ = Table::new(8, 0, 1).unwrap().begin(8, 0);
    }
}
