//! Marks: what hits, pins and the evictor note of a frame, and how a write from the frame begins
//! while workers may write to it.
//!
//! A writer loads the mark and stores [`DIRTY`] in two steps, because an atomic one costs ten times
//! that. The store overwrites a mark that changed in between, so [`Marks::begin_write`] can be
//! undone. The caller therefore checks it again ([`Marks::second_check`]) when no writer can be
//! between the two steps: after a barrier, after the slots, and after the pins. A writer's slot
//! names the frame from before its load until after its store. `loom_marks.rs` checks this on this
//! code, and `loom_residency.rs` the evictor's check of unlinked frames.
//!
//! A cut needs no second check. It seals while all workers stand between two fibers, and leaves
//! pinned frames alone. Later writers see the seal, and do not store.

use crate::primitive::{AtomicU8, AtomicU16, Ordering};

/// What hits, pins and the evictor note of a frame, in one word, so that a check costs one line.
/// Hits store into bytes, plainly, and can never undo what the evictor does.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Marks {
    /// [`USED`] and [`HOME`]. Set by every hit; the replacement policy takes the first.
    pub referenced: AtomicU8,
    /// Set before every write, and read by the evictor once the frame has no users. One of
    /// [`CLEAN`] to [`ASKS`].
    pub dirty: AtomicU8,
    /// How many pins and woken waiters hold the frame.
    pub pins: AtomicU16,
}

/// The frame was used since the replacement policy last checked it.
pub const USED: u8 = 1;
/// The frame holds the subpage of its own number, and is known to. A worker that is alone sets it,
/// and then needs neither word nor slot: no other can unlink the subpage under it.
pub const HOME: u8 = 2;

/// Flash holds what the frame does.
pub const CLEAN: u8 = 0;
/// The frame was written to since.
pub const DIRTY: u8 = 1;
/// The frame holds what a token needs (see `cut`): a write waits until it was written or copied.
pub const SEALED: u8 = 2;
/// As [`SEALED`], and its bytes are on their way to the medium.
pub const WRITING: u8 = 3;
/// As [`SEALED`], and a worker is copying it.
pub const COPYING: u8 = 4;

/// Flash holds what the frame does, and the subpage must not be written to.
pub const READ_ONLY: u8 = 5;
/// Flash holds the same and has little room: a writer asks first.
pub const ASKS: u8 = 6;

/// Whether a frame holds what flash does not.
#[inline]
#[must_use]
pub fn has_changes(mark: u8) -> bool {
    matches!(mark, DIRTY..=COPYING)
}

/// The most pins on one frame. The count has room beyond for what all workers could add at once.
pub const PINS_MAX: u16 = u16::MAX - 1024;

impl Marks {
    /// Reads and clears the referenced mark, not atomically. A hit in between counts once or twice,
    /// which a replacement policy does not mind, and the hit path pays nothing.
    #[inline]
    pub fn take_referenced(&self) -> bool {
        let was = self.referenced.load(Ordering::Relaxed);
        if was & USED != 0 {
            self.referenced.store(was & !USED, Ordering::Relaxed);
        }
        was & USED != 0
    }
    /// Whether the frame is the home of what it holds. A hit that finds it so is noted.
    #[inline(always)]
    #[must_use]
    pub fn hit_at_home(&self) -> bool {
        let seen = self.referenced.load(Ordering::Relaxed);
        if seen == HOME {
            self.referenced.store(HOME | USED, Ordering::Relaxed);
        }
        seen & HOME != 0
    }
    /// A thread that is no worker has used the frame. A worker that is alone changes the other bit
    /// by plain stores, so this one must not store over it.
    #[inline(always)]
    pub fn note_use(&self) {
        if self.referenced.load(Ordering::Relaxed) & USED == 0 {
            self.referenced.fetch_or(USED, Ordering::Relaxed);
        }
    }
    /// The subpage is unlinked.
    #[inline]
    pub(crate) fn leaves_home(&self) {
        let was = self.referenced.load(Ordering::Relaxed);
        self.referenced.store(was & !HOME, Ordering::Relaxed);
    }

    /// Before a write to a frame that the worker's slot protects. False when it is sealed.
    #[inline(always)]
    #[must_use]
    pub fn mark_dirty(&self) -> bool {
        match self.dirty.load(Ordering::Acquire) {
            DIRTY => true,
            CLEAN => {
                self.dirty.store(DIRTY, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Before a write by the holder of a pin. False when the subpage must not be written to.
    #[inline(always)]
    #[must_use]
    pub fn mark_dirty_pinned(&self) -> bool {
        match self.dirty.load(Ordering::Relaxed) {
            DIRTY => true,
            READ_ONLY => false,
            _ => {
                self.dirty.store(DIRTY, Ordering::Relaxed);
                true
            }
        }
    }
    /// Adds to the pins, wrapping. `alone`: no other thread does, and it takes no locked
    /// instruction.
    #[inline(always)]
    pub fn change_pins(&self, by: u16, alone: bool) {
        if alone {
            self.pins.store(self.pins.load(Ordering::Relaxed).wrapping_add(by), Ordering::Release);
        } else {
            self.pins.fetch_add(by, Ordering::AcqRel);
        }
    }

    /// Makes later writers ask first, if flash holds the same. A writer that saw the old mark may
    /// still make it dirty: its store follows this exchange, which would otherwise not have found
    /// the frame clean. (loom lets an exchange find an older value than the newest, so this order
    /// is not one of its tests.)
    pub fn ask_before_writes(&self) {
        let _ = self.dirty.compare_exchange(CLEAN, ASKS, Ordering::AcqRel, Ordering::Relaxed);
    }
    /// Marks a frame dirty whose writer has asked. The worker's slot protects it.
    pub fn allow_writes(&self) {
        let _ = self.dirty.compare_exchange(ASKS, DIRTY, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes a dirty frame to write it from where it is. Later writers see the mark and wait.
    #[must_use]
    pub fn begin_write(&self) -> bool {
        self.dirty.compare_exchange(DIRTY, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the frame may be in use, after the barrier. Slots come first, because a pin is taken
    /// while the slot still names the frame: the other order could miss both.
    #[inline(always)]
    #[must_use]
    pub fn in_use(&self, named_by_a_slot: impl FnOnce() -> bool) -> bool {
        named_by_a_slot() || self.pins.load(Ordering::Acquire) > 0
    }

    /// What the evictor finds after unlinking and the barrier: whether the frame is in use
    /// ([`Marks::in_use`]), and its mark, which is final when it is not.
    #[inline(always)]
    #[must_use]
    pub fn check(&self, named_by_a_slot: impl FnOnce() -> bool) -> (bool, u8) {
        let in_use = self.in_use(named_by_a_slot);
        (in_use, self.dirty.load(Ordering::Relaxed))
    }

    /// Whether the frame is in use, after [`Marks::begin_write`] and the barrier. None when that
    /// was undone: a writer that saw the old mark may have stored over it and let go. So the mark
    /// is read last.
    #[inline(always)]
    #[must_use]
    pub fn second_check(&self, named_by_a_slot: impl FnOnce() -> bool) -> Option<bool> {
        let in_use = self.in_use(named_by_a_slot);
        (self.dirty.load(Ordering::Acquire) == WRITING).then_some(in_use)
    }
}
