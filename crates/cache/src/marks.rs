//! Marks: what hits, pins and the evictor note of a frame, and how a write from where the frame lies begins beside workers that
//! may write to it.
//!
//! Whoever writes to a frame looks at its mark and stores [`DIRTY`], in two steps: an atomic one would cost each write ten times
//! that. So a mark that was changed between the two is overwritten. [`Marks::begin_write`] can therefore be undone by a writer who
//! had looked before, and the caller looks again ([`Marks::second_look`]) when nobody can be between the two any more: after a
//! barrier, after the slots (a writer's slot names the frame from before its look until after its store), and after the pins.
//! `tests/loom_marks.rs` checks just this, on this code, and `tests/loom_residency.rs` the evictor's look at what it has unlinked.
//!
//! A cut needs no second look: it seals while all workers stand between two fibers, so that nobody is between the two steps, and
//! leaves pinned frames alone; whoever looks after that sees the seal, and does not store.

use crate::primitive::{AtomicU8, AtomicU16, Ordering};

/// What hits, pins and the evictor note of a frame, in a word, so that a look at a frame is a look at one line. Bytes that hits
/// store into, plainly, so that a hit can never undo what the evictor does; and the pins.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Marks {
    /// Set by every hit; taken by the replacement policy.
    pub referenced: AtomicU8,
    /// Set before every write; read by the evictor once nobody uses the frame. One of [`CLEAN`] to [`ASKS`].
    pub dirty: AtomicU8,
    /// How many pins and woken waiters hold the frame.
    pub pins: AtomicU16,
}

/// Flash holds what the frame does.
pub const CLEAN: u8 = 0;
/// The frame was written to since.
pub const DIRTY: u8 = 1;
/// The frame holds what a token needs (see `cut`): it is not written to before that was written, or copied.
pub const SEALED: u8 = 2;
/// The same, and its bytes are on their way to the medium.
pub const WRITING: u8 = 3;
/// The same, and a worker is copying it.
pub const COPYING: u8 = 4;

/// Flash holds what the frame does, and the subpage must not be written to.
pub const READ_ONLY: u8 = 5;
/// Flash holds what the frame does, and has little room: who writes to it asks before.
pub const ASKS: u8 = 6;

/// Whether a frame holds what flash does not.
#[inline]
#[must_use]
pub fn has_changes(mark: u8) -> bool {
    matches!(mark, DIRTY..=COPYING)
}

/// The most pins that may hold one frame: short of what the count can hold by more than all workers could add at once.
pub const PINS_MAX: u16 = u16::MAX - 1024;

impl Marks {
    /// Reads and clears the referenced mark. Not one atomic step: a hit in between is counted once or twice, which is all the same
    /// to a replacement policy, and costs the hit path nothing.
    #[inline]
    pub fn take_referenced(&self) -> bool {
        let was = self.referenced.load(Ordering::Relaxed) != 0;
        if was {
            self.referenced.store(0, Ordering::Relaxed);
        }
        was
    }

    /// Before a write to a frame that the worker's slot protects. False when it is sealed, and must not be written to yet.
    #[inline(always)]
    #[must_use]
    pub fn mark_dirty(&self) -> bool {
        if self.dirty.load(Ordering::Acquire) > DIRTY {
            return false;
        }
        self.dirty.store(DIRTY, Ordering::Relaxed);
        true
    }

    /// Who writes to the frame from now on asks before, if flash holds what it does. Who had looked at the mark before may still make it
    /// dirty: that store comes after this exchange, which else would not have found the frame clean. (loom lets an exchange find an older
    /// value than the newest, so that this order is not one of its tests.)
    pub fn ask_before_writes(&self) {
        let _ = self.dirty.compare_exchange(CLEAN, ASKS, Ordering::AcqRel, Ordering::Relaxed);
    }
    /// Who was to ask has asked, and may write. To a frame that the worker's slot protects.
    pub fn has_asked(&self) {
        let _ = self.dirty.compare_exchange(ASKS, DIRTY, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes a dirty frame that is to be written from where it lies: who looks at the mark from now on does not write to it.
    #[must_use]
    pub fn begin_write(&self) -> bool {
        self.dirty.compare_exchange(DIRTY, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody may use the frame. Asked after the barrier. Whether a slot names it is asked first, as a pin is taken while the
    /// slot still does: who asked in the other order could see neither.
    #[inline(always)]
    #[must_use]
    pub fn in_use(&self, named_by_a_slot: impl FnOnce() -> bool) -> bool {
        named_by_a_slot() || self.pins.load(Ordering::Acquire) > 0
    }

    /// What the evictor finds once a frame was unlinked, after the barrier: whether it is in use, as [`Marks::in_use`] has it, and its
    /// mark, which is final when it is not.
    #[inline(always)]
    #[must_use]
    pub fn look(&self, named_by_a_slot: impl FnOnce() -> bool) -> (bool, u8) {
        let in_use = self.in_use(named_by_a_slot);
        (in_use, self.dirty.load(Ordering::Relaxed))
    }

    /// Whether the frame is in use, after [`Marks::begin_write`] and the barrier. None when that was undone: who had looked at the mark
    /// before it changed may have stored its own over it since, and let go of the frame; so the mark is looked at last.
    #[inline(always)]
    #[must_use]
    pub fn second_look(&self, named_by_a_slot: impl FnOnce() -> bool) -> Option<bool> {
        let in_use = self.in_use(named_by_a_slot);
        (self.dirty.load(Ordering::Acquire) == WRITING).then_some(in_use)
    }
}
