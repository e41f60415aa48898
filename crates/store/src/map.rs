//! Where the current content of each subpage lies, and its checksum: 8 bytes a subpage, read without a lock.
//!
//! One word holds both, so that a reader sees a place and the checksum of what lies there, never one of each. A reader that
//! finds the same word after its read as before knows that the place was not used for anything else in between: a place is used
//! again only after the word has changed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where a subpage lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// The flash page.
    pub place: u32,
    /// CRC32C of its content.
    pub checksum: u32,
}

/// The map. A place of 0, where the superblock is, stands for "was never written".
#[derive(Debug)]
pub struct Map(Box<[AtomicU64]>);

impl Map {
    /// So many subpages, none of them written.
    pub fn new(subpages: u32) -> Map {
        Map((0..subpages).map(|_| AtomicU64::new(0)).collect())
    }
    /// Subpages.
    #[expect(clippy::len_without_is_empty, reason = "a pool has subpages")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// DRAM of the map.
    pub fn bytes(&self) -> usize {
        self.0.len() * size_of::<AtomicU64>()
    }
    /// Where a subpage lies; none where it was never written.
    #[inline]
    pub fn get(&self, subpage: u32) -> Option<Located> {
        // Acquire: whoever sees a place sees that its write has completed.
        let word = self.0[subpage as usize].load(Ordering::Acquire);
        (word != 0).then_some(Located { place: (word >> 32) as u32, checksum: word as u32 })
    }
    /// Starts loading what says where it lies.
    #[inline]
    pub fn prefetch(&self, subpage: u32) {
        if let Some(word) = self.0.get(subpage as usize) {
            fulgurite_sys::arch::prefetch(std::ptr::from_ref(word).cast());
        }
    }
    /// Changes where it lies. Only one thread at a time changes the map.
    pub fn set(&self, subpage: u32, located: Option<Located>) {
        let word = located.map_or(0, |l| (u64::from(l.place) << 32) | u64::from(l.checksum));
        self.0[subpage as usize].store(word, Ordering::Release);
    }
}
