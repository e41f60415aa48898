//! Frames: the DRAM that caches subpages, and the few bytes that are kept for each.
//!
//! All frames lie in one arena of huge pages. Each belongs to one worker for good, which alone gives it to a subpage and
//! takes it back; any worker may read, write and pin it while it is resident.

use std::ptr::NonNull;
use std::sync::Arc;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_sys::{Arena, ArenaError, Backed};

use crate::marks::Marks;
use crate::primitive::{AtomicU16, Ordering};

/// The frames of all workers.
#[derive(Debug)]
pub struct Frames {
    arena: Arc<Arena>,
    marks: Box<[Marks]>,
}

/// DRAM that a frame costs beside its subpage, in this module.
pub const META_BYTES: usize = size_of::<Marks>();

impl Frames {
    /// So many; `shared`: in memory that can be handed to another process. Of that there are huge pages only where the system gives them to
    /// shared memory.
    pub fn new(count: u32, shared: bool) -> Result<Frames, ArenaError> {
        let bytes = count as usize * SUBPAGE_BYTES;
        let arena = if shared {
            Arena::sealed_memfd("fulgurite frames", bytes)?
        } else {
            Arena::anonymous(bytes, Backed::HugePages)?
        };
        let arena = Arc::new(arena);
        Ok(Frames { arena, marks: (0..count).map(|_| Marks::default()).collect() })
    }
    /// The memory that they lie in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
    /// The first byte of the first frame.
    pub fn base(&self) -> NonNull<u8> {
        self.arena.base()
    }
    /// The marks of the first frame; those of the others follow.
    pub fn marks_base(&self) -> NonNull<Marks> {
        NonNull::from(&self.marks[..]).cast()
    }
    /// The first byte of a frame.
    ///
    /// # Safety
    /// There must be such a frame.
    #[inline(always)]
    pub unsafe fn address(&self, frame: u32) -> NonNull<u8> {
        debug_assert!((frame as usize) < self.marks.len());
        // SAFETY: the arena is as long as there are frames (the caller vouches for this one), and lives as long as `self`.
        unsafe { NonNull::new_unchecked(self.arena.base().as_ptr().add((frame as usize) << SUBPAGE_SHIFT)) }
    }
    /// The marks of a frame.
    ///
    /// # Panics
    /// When there is no such frame.
    #[inline]
    pub fn marks(&self, frame: u32) -> &Marks {
        &self.marks[frame as usize]
    }
    /// The pins of a frame.
    #[inline]
    pub fn pins(&self, frame: u32) -> &AtomicU16 {
        &self.marks(frame).pins
    }
    /// Reads and clears the referenced mark. Not one atomic step: a hit in between is counted once or twice, which is all
    /// the same to a replacement policy, and costs the hit path nothing.
    #[inline]
    pub fn take_referenced(&self, frame: u32) -> bool {
        let mark = &self.marks(frame).referenced;
        let was = mark.load(Ordering::Relaxed) != 0;
        if was {
            mark.store(0, Ordering::Relaxed);
        }
        was
    }
    /// Fills a frame with zeros.
    pub fn zero(&self, frame: u32) {
        self.arena.zero((frame as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES);
    }
    /// Copies one frame's bytes to another.
    pub fn copy(&self, from: u32, to: u32) {
        self.arena.copy_within((from as usize) << SUBPAGE_SHIFT, (to as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES);
    }
    /// Gives the memory of frames `first..end` back to the kernel, which does not fill it again until [`Frames::claim`].
    pub fn discard(&self, first: u32, end: u32) {
        let (offset, len) = ((first as usize) << SUBPAGE_SHIFT, ((end - first) as usize) << SUBPAGE_SHIFT);
        self.arena.allow_huge_pages(offset, len, false);
        self.arena.discard(offset, len);
    }
    /// Takes frames `first..end` into use (again).
    pub fn claim(&self, first: u32, end: u32) {
        self.arena.allow_huge_pages((first as usize) << SUBPAGE_SHIFT, ((end - first) as usize) << SUBPAGE_SHIFT, true);
    }
}

/// Short for `FrameIndex(n)`.
#[inline(always)]
pub fn index(frame: u32) -> FrameIndex {
    FrameIndex(frame)
}
