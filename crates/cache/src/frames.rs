//! Frames: the DRAM that caches subpages, and the few bytes that are kept for each.
//!
//! All frames are in one arena of huge pages. Each belongs to one worker for good, which alone
//! gives it to a subpage and takes it back. Any worker may read, write and pin it while it is
//! resident.

use std::ptr::NonNull;
use std::sync::Arc;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_sys::{Arena, ArenaError, Backed};

use crate::marks::Marks;
use crate::primitive::AtomicU16;

/// The frames of all workers.
#[derive(Debug)]
pub struct Frames {
    arena: Arc<Arena>,
    marks: Box<[Marks]>,
    moved: bool,
}

/// DRAM that a frame costs in addition to its subpage, in this module.
pub const META_BYTES: usize = size_of::<Marks>();

impl Frames {
    /// `count` frames. `shared`: in memory that can be handed to another process, with huge pages
    /// only where the system gives them to shared memory. `moved`: their pages can be moved to
    /// other addresses, which no other process can share.
    pub fn new(count: u32, shared: bool, moved: bool) -> Result<Frames, ArenaError> {
        let bytes = count as usize * SUBPAGE_BYTES;
        let arena = if moved {
            Arena::anonymous(bytes, Backed::BasePages)?
        } else if shared {
            Arena::sealed_memfd("fulgurite frames", bytes)?
        } else {
            Arena::anonymous(bytes, Backed::HugePages)?
        };
        let arena = Arc::new(arena);
        Ok(Frames { arena, marks: (0..count).map(|_| Marks::default()).collect(), moved })
    }
    /// Whether their pages move to other addresses.
    pub fn moved(&self) -> bool {
        self.moved
    }
    /// The memory that they are in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
    /// The first byte of the first frame.
    pub fn base(&self) -> NonNull<u8> {
        self.arena.base()
    }
    /// The marks of the first frame; the marks of the others follow.
    pub fn marks_base(&self) -> NonNull<Marks> {
        NonNull::from(&self.marks[..]).cast()
    }
    /// The first byte of a frame.
    ///
    /// # Safety
    /// There must be such a frame.
    #[inline(always)]
    pub unsafe fn address(&self, frame: FrameIndex) -> NonNull<u8> {
        debug_assert!(frame.index() < self.marks.len());
        // SAFETY: the arena has a subpage for each frame (the caller vouches for this one), and
        // lives as long as `self`.
        unsafe { NonNull::new_unchecked(self.arena.base().as_ptr().add(frame.index() << SUBPAGE_SHIFT)) }
    }
    /// The marks of a frame.
    ///
    /// # Panics
    /// When there is no such frame.
    #[inline]
    pub fn marks(&self, frame: FrameIndex) -> &Marks {
        &self.marks[frame.index()]
    }
    /// The pins of a frame.
    #[inline]
    pub fn pins(&self, frame: FrameIndex) -> &AtomicU16 {
        &self.marks(frame).pins
    }
    /// Fills a frame with zeros.
    pub fn zero(&self, frame: FrameIndex) {
        self.arena.zero(frame.index() << SUBPAGE_SHIFT, SUBPAGE_BYTES);
    }
    /// Copies one frame's bytes to another.
    pub fn copy(&self, from: FrameIndex, to: FrameIndex) {
        self.arena.copy_within(from.index() << SUBPAGE_SHIFT, to.index() << SUBPAGE_SHIFT, SUBPAGE_BYTES);
    }
    /// Gives the memory of frames `first..end` back to the kernel until [`Frames::claim`].
    pub fn discard(&self, first: FrameIndex, end: FrameIndex) {
        let (offset, len) = (first.index() << SUBPAGE_SHIFT, (end.index() - first.index()) << SUBPAGE_SHIFT);
        if !self.moved {
            self.arena.allow_huge_pages(offset, len, false);
        }
        self.arena.discard(offset, len);
    }
    /// Takes frames `first..end` into use (again).
    pub fn claim(&self, first: FrameIndex, end: FrameIndex) {
        let (offset, len) = (first.index() << SUBPAGE_SHIFT, (end.index() - first.index()) << SUBPAGE_SHIFT);
        if !self.moved {
            self.arena.allow_huge_pages(offset, len, true);
        }
    }
}
