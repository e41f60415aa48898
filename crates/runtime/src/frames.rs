//! Frames: the DRAM that caches subpages, and the few bytes that the runtime keeps for each.
//!
//! All frames lie in one arena of huge pages. Each belongs to one worker for good, which alone gives it to a subpage and
//! takes it back; any worker may read, write and pin it while it is resident.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_sys::{Arena, ArenaError, Backed};

/// What hits, pins and the evictor note of a frame, in a word, so that a look at a frame is a look at one line. Bytes that hits
/// store into, plainly, so that a hit can never undo what the evictor does; and the pins.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Marks {
    /// Set by every hit; taken by the replacement policy.
    pub referenced: AtomicU8,
    /// Set before every write; read by the evictor once nobody uses the frame. One of [`CLEAN`] to [`READ_ONLY`].
    pub dirty: AtomicU8,
    /// How many pins and woken waiters hold the frame.
    pub pins: AtomicU16,
}

/// Flash holds what the frame does.
pub(crate) const CLEAN: u8 = 0;
/// The frame was written to since.
pub(crate) const DIRTY: u8 = 1;
/// The frame holds what a token needs (see `cut`): it is not written to before that was written, or copied.
pub(crate) const SEALED: u8 = 2;
/// The same, and its bytes are on their way to the medium.
pub(crate) const WRITING: u8 = 3;
/// The same, and a worker is copying it.
pub(crate) const COPYING: u8 = 4;

/// Flash holds what the frame does, and the subpage must not be written to.
pub(crate) const READ_ONLY: u8 = 5;

/// Whether a frame holds what flash does not.
#[inline]
pub(crate) fn has_changes(mark: u8) -> bool {
    mark != CLEAN && mark != READ_ONLY
}

/// The most pins that may hold one frame: short of what the count can hold by more than all workers could add at once.
pub(crate) const PINS_MAX: u16 = u16::MAX - 1024;

/// The frames of a runtime.
#[derive(Debug)]
pub(crate) struct Frames {
    arena: Arc<Arena>,
    marks: Box<[Marks]>,
}

/// DRAM that a frame costs beside its subpage, in this module.
pub(crate) const META_BYTES: usize = size_of::<Marks>();

impl Frames {
    pub(crate) fn new(count: u32) -> Result<Frames, ArenaError> {
        let arena = Arc::new(Arena::anonymous(count as usize * SUBPAGE_BYTES, Backed::HugePages)?);
        Ok(Frames { arena, marks: (0..count).map(|_| Marks::default()).collect() })
    }
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.arena.base()
    }
    pub(crate) fn marks_base(&self) -> NonNull<Marks> {
        NonNull::from(&self.marks[..]).cast()
    }
    /// The first byte of a frame.
    #[inline(always)]
    pub(crate) fn address(&self, frame: u32) -> NonNull<u8> {
        debug_assert!((frame as usize) < self.marks.len());
        // SAFETY: the arena is `count` frames long and lives as long as `self`.
        unsafe { NonNull::new_unchecked(self.arena.base().as_ptr().add((frame as usize) << SUBPAGE_SHIFT)) }
    }
    #[inline]
    pub(crate) fn marks(&self, frame: u32) -> &Marks {
        &self.marks[frame as usize]
    }
    #[inline]
    pub(crate) fn pins(&self, frame: u32) -> &AtomicU16 {
        &self.marks(frame).pins
    }
    /// Reads and clears the referenced mark. Not one atomic step: a hit in between is counted once or twice, which is all
    /// the same to a replacement policy, and costs the hit path nothing.
    #[inline]
    pub(crate) fn take_referenced(&self, frame: u32) -> bool {
        let mark = &self.marks(frame).referenced;
        let was = mark.load(Ordering::Relaxed) != 0;
        if was {
            mark.store(0, Ordering::Relaxed);
        }
        was
    }
    pub(crate) fn zero(&self, frame: u32) {
        self.arena.zero((frame as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES);
    }
    /// Copies one frame's bytes to another.
    pub(crate) fn copy(&self, from: u32, to: u32) {
        self.arena.copy_within((from as usize) << SUBPAGE_SHIFT, (to as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES);
    }
    /// Gives the memory of frames `first..end` back to the kernel, which does not fill it again until [`Frames::claim`].
    pub(crate) fn discard(&self, first: u32, end: u32) {
        let (offset, len) = ((first as usize) << SUBPAGE_SHIFT, ((end - first) as usize) << SUBPAGE_SHIFT);
        self.arena.allow_huge_pages(offset, len, false);
        self.arena.discard(offset, len);
    }
    /// Takes frames `first..end` into use (again).
    pub(crate) fn claim(&self, first: u32, end: u32) {
        self.arena.allow_huge_pages((first as usize) << SUBPAGE_SHIFT, ((end - first) as usize) << SUBPAGE_SHIFT, true);
    }
}

/// Short for `FrameIndex(n)`.
#[inline(always)]
pub(crate) fn index(frame: u32) -> FrameIndex {
    FrameIndex(frame)
}
