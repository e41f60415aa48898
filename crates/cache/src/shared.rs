//! What the caches of one memory share: residency table, near table, frames, the cut, and the
//! medium.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_flash::{Backing, Flash, Traits};
use fulgurite_format::FrameIndex;
use fulgurite_sys::ArenaError;

use crate::cut::Cut;
use crate::frames::Frames;
use crate::near::Near;
use crate::planted::Planted;
use crate::primitive::Ordering;
use crate::table::Table;

/// How large a memory and its caches are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Subpages of the memory.
    pub subpages: u32,
    /// Of these, from the first on, how many have contents on flash.
    pub existing: u32,
    /// Caches: one for each worker.
    pub caches: u32,
    /// Frames that each cache may ever have.
    pub frames_max: u32,
    /// Pages of frames move to addresses of programs and back. So they are base pages, which the
    /// medium is not asked to prepare.
    pub moved: bool,
}

/// What all caches of a memory share.
pub struct Shared {
    /// Where each subpage is.
    pub table: Table,
    /// Where resident subpages are, for a cache that is alone.
    pub near: Near,
    /// All frames.
    pub frames: Frames,
    /// The cut that is being made.
    pub cut: Cut,
    /// The medium below.
    pub flash: Arc<dyn Flash>,
    /// The medium has a backing, which is asked at each miss.
    asks_backing: bool,
    /// The most writes that the medium keeps back.
    pub(crate) holds_writes: usize,
    alone: bool,
    /// One thread changes pins, so that no locked instruction is needed.
    plain_pins: AtomicBool,
    frames_max: u32,
    planted: Option<Planted>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("frames_max", &self.frames_max)
            .field("alone", &self.alone)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Reserves the memory of all frames and tables; `planted`: with a bug on purpose.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn new(flash: Arc<dyn Flash>, shape: Shape, planted: Option<Planted>) -> Result<Shared, ArenaError> {
        let Shape { subpages, existing, caches, frames_max, moved } = shape;
        let alone = caches == 1;
        let Traits { shares_frames, holds_writes, .. } = flash.traits();
        Ok(Shared {
            table: Table::new(subpages, existing, caches as usize)?,
            near: Near::new(frames_max, alone),
            frames: Frames::new(frames_max * caches, shares_frames, moved)?,
            cut: Cut::default(),
            asks_backing: flash.backing().is_some(),
            holds_writes,
            flash,
            alone,
            plain_pins: AtomicBool::new(alone),
            frames_max,
            planted,
        })
    }

    /// What must be asked in addition to reads and writes. None of a flat medium, where that is one
    /// load.
    #[inline]
    pub fn backing(&self) -> Option<&dyn Backing> {
        if self.asks_backing { self.flash.backing() } else { None }
    }
    /// Whether a bug was planted on purpose.
    #[inline]
    pub(crate) fn has_planted(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }
    /// The bug that was planted on purpose.
    pub fn planted(&self) -> Option<Planted> {
        self.planted
    }
    /// Whether there is one cache only: nobody else reads or changes what it keeps.
    #[inline(always)]
    pub fn alone(&self) -> bool {
        self.alone
    }
    /// Whether one thread alone pins frames.
    #[inline(always)]
    pub fn plain_pins(&self) -> bool {
        self.plain_pins.load(Ordering::Relaxed)
    }
    /// Other threads pin frames from now on. Where there is one cache, its driver calls this
    /// itself: a change of pins that it has begun is complete then.
    pub fn share_pins(&self) {
        self.plain_pins.store(false, Ordering::Release);
    }
    /// The most frames that a cache may have.
    pub fn frames_max(&self) -> u32 {
        self.frames_max
    }
    pub(crate) fn first_frame(&self, cache: u32) -> FrameIndex {
        FrameIndex(cache * self.frames_max)
    }
    /// Makes hits ask the residency word of a subpage, which is unlinked from its frame.
    #[inline]
    pub(crate) fn forget_place(&self, subpage: u32, frame: FrameIndex) {
        self.near.forget(subpage);
        if self.alone && frame.0 == subpage {
            self.frames.marks(frame).leaves_home();
        }
    }
    /// Pins a frame that its user holds, or that is given to waiters.
    #[inline]
    pub fn pin(&self, frame: FrameIndex) {
        self.frames.marks(frame).change_pins(1, self.plain_pins());
    }
    /// Gives a pin back.
    #[inline]
    pub fn unpin(&self, frame: FrameIndex) {
        self.frames.marks(frame).change_pins(u16::MAX, self.plain_pins());
    }
}
