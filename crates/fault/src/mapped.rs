//! Pages in the program as users of frames: a frame's page is where the program sees it, until it
//! is taken back.
//!
//! ```text
//!               map: writable                 map: read only
//!   program's <---------------- in its frame ----------------> copied
//!     |                          ^  ^    ^                       |
//!     +--- written to, perhaps: -+  |    +--- taken away: -------+
//!     |    moved back, looked at    |         cannot have changed
//!     +--- still protected: dropped-+
//! ```
//!
//! A page in the region is used without notice. So nobody holds a frame but where the kernel or a
//! device does (a transfer to or from the page), which the kernel says when it is to be moved.
//!
//! Each page that leaves interrupts the processors that the program runs on, which costs more than
//! everything else that is done with it. So a page is copied to the program, which interrupts none,
//! and what its frame had is discarded later, together with what other frames had. A page that is
//! read is protected from writes. If nothing has written to it when it is to leave, it is dropped,
//! together with others. Otherwise it is moved back, one by one, and its contents tell whether it
//! changed. Memory of a file could be dropped together whatever was written, and read afterwards.
//! It is not used: its pages cost more to make and to give back, the kernel would drop pages that a
//! device still writes to, and a child after `fork` would share them. The example `eviction` of
//! `sys` compares the methods.

use std::ops::Range;
use std::sync::Arc;

use fulgurite_cache::marks::{DIRTY, has_changes};
use fulgurite_cache::{Frames, Users};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_sys::userfault::NotMoved;
use fulgurite_sys::{Arena, Region};

use crate::Access;
use crate::backend::{FaultBackend, Installed};
use crate::fingerprint::{Fingerprint, Fingerprints};

use std::sync::atomic::Ordering;

/// Where the page of a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageState {
    /// In its frame.
    Frame,
    /// In the region, at this subpage. If it is protected, nothing can have written to it.
    Program { subpage: u32, protected: bool },
    /// In its frame, and a copy that cannot be written to at this subpage.
    Copied(u32),
}

/// Whether the program has the page now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// It has, or its access fails by itself.
    Done,
    /// The kernel holds the page for a moment.
    Later,
    /// This process may not do it, by the number of the error.
    Refused(i32),
}

/// Errors of filters of system calls: the kernel itself has others.
const NOT_PERMITTED: i32 = 1;
const NO_CALL: i32 = 38;

/// The most pages that frames keep after they were copied to the program.
pub const SPARE_MOST: usize = 64;

/// Whether pages that are read are to be protected: not where most of them are written to soon.
#[derive(Debug, Default)]
struct Habit {
    protected: u32,
    written: u32,
    turns: u32,
}

impl Habit {
    /// Pages that are remembered.
    const LENGTH: u32 = 128;
    /// One page in this many is protected in any case, so that a new habit shows.
    const SAMPLE: u32 = 16;

    fn protects(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        // Another fault costs about three times the share of an interruption.
        let protects = self.written * 4 <= self.protected || self.turns.is_multiple_of(Habit::SAMPLE);
        self.protected += u32::from(protects);
        if self.protected >= Habit::LENGTH {
            (self.protected, self.written) = (self.protected / 2, self.written / 2);
        }
        protects
    }
}

/// See the module.
pub struct Mapped {
    backend: Arc<FaultBackend>,
    region: Arc<Region>,
    fingerprints: Fingerprints,
    states: Box<[PageState]>,
    /// What the page of a frame held when it was given to the program.
    before: Box<[Fingerprint]>,
    habit: Habit,
    /// Frames that have a page of no use, as theirs is the program's.
    spares: Vec<FrameIndex>,
    /// Frames of the last batch that could not be taken away.
    held: Vec<FrameIndex>,
    /// Those that are to be dropped, and where they are.
    drops: Vec<FrameIndex>,
    offsets: Vec<usize>,
    /// Frames that certainly have a page, wherever it is.
    paged: Box<[bool]>,
    pages: u32,
    /// Behind the last of them.
    end: u32,
}

/// DRAM for each frame, here.
pub const BYTES_PER_FRAME: usize = size_of::<PageState>() + size_of::<Fingerprint>() + size_of::<bool>();

impl Mapped {
    pub fn new(backend: Arc<FaultBackend>, region: Arc<Region>, fingerprints: Fingerprints, frames: u32) -> Mapped {
        Mapped {
            backend,
            region,
            fingerprints,
            states: vec![PageState::Frame; frames as usize].into(),
            before: vec![0; frames as usize].into(),
            habit: Habit::default(),
            spares: Vec::with_capacity(SPARE_MOST),
            held: Vec::with_capacity(64),
            drops: Vec::with_capacity(64),
            offsets: Vec::with_capacity(64),
            paged: vec![false; frames as usize].into(),
            pages: 0,
            end: 0,
        }
    }

    /// Whether the program has the page of a frame.
    pub fn has_mapped(&self, frame: FrameIndex) -> bool {
        self.states[frame.index()] != PageState::Frame
    }
    /// Continues with these pages in a child that has a backend of its own. A fork ends their
    /// protection.
    pub fn renew(&mut self, backend: Arc<FaultBackend>) {
        self.backend = backend;
        for state in &mut self.states {
            if let PageState::Program { protected, .. } = state {
                *protected = false;
            }
        }
    }
    /// Frames whose pages the program has.
    pub fn all_mapped(&self) -> Vec<FrameIndex> {
        let mapped = self.states.iter().enumerate().filter(|(_, state)| **state != PageState::Frame);
        mapped.map(|(index, _)| FrameIndex(index as u32)).collect()
    }

    /// How many pages frames certainly have.
    pub fn pages(&self) -> u32 {
        self.pages + self.spares.len() as u32
    }
    /// Frames from `end` on have no pages any more.
    pub fn shrunk(&mut self, end: u32) {
        for frame in (end..self.end).map(FrameIndex) {
            self.set_paged(frame, false);
        }
        self.spares.retain(|frame| frame.0 < end);
        self.end = self.end.min(end);
    }
    fn set_paged(&mut self, frame: FrameIndex, paged: bool) {
        if std::mem::replace(&mut self.paged[frame.index()], paged) != paged {
            self.pages = if paged { self.pages + 1 } else { self.pages - 1 };
        }
    }

    /// Gives the program the page of a frame, and wakes what waits for it. With `writes`, program
    /// and kernel may write to the page at once.
    pub fn map(&mut self, frames: &Frames, frame: FrameIndex, subpage: u32, access: Access, writes: bool) -> Mapping {
        let (arena, from, to) =
            (&**frames.arena(), frame.index() << SUBPAGE_SHIFT, (subpage as usize) << SUBPAGE_SHIFT);
        self.set_paged(frame, true);
        self.end = self.end.max(frame.0 + 1);
        if self.states[frame.index()] != PageState::Frame {
            if writes {
                return self.let_write(frame, subpage);
            }
            self.backend.wake(&self.region, to);
            return Mapping::Done;
        }
        let is_dirty = has_changes(frames.marks(frame).dirty.load(Ordering::Relaxed));
        if !is_dirty {
            self.before[frame.index()] = self.fingerprints.of(arena, from);
        }
        // What is dirty may not be dropped.
        let protects = self.backend.protects() && !writes && !is_dirty && self.habit.protects();
        match self.backend.give(arena, from, &self.region, to, access, protects) {
            Ok(Installed::Moved) => self.states[frame.index()] = PageState::Program { subpage, protected: false },
            Ok(Installed::Left) => {
                self.states[frame.index()] = PageState::Program { subpage, protected: protects };
                self.leave_spare(arena, frame);
            }
            Ok(Installed::Copied) => self.states[frame.index()] = PageState::Copied(subpage),
            Err(NotMoved::Busy) => return Mapping::Later,
            // The program may do nothing here.
            Err(NotMoved::Access) => self.backend.wake(&self.region, to),
            // A page that the cache does not know of. What is there was never of this program.
            Err(NotMoved::Exists) => {
                let _ = self.region.unmap_pages(to, SUBPAGE_BYTES);
                return Mapping::Later;
            }
            Err(NotMoved::Other(errno @ (NOT_PERMITTED | NO_CALL))) => return Mapping::Refused(errno),
            Err(NotMoved::Missing | NotMoved::Other(_)) => return Mapping::Later,
        }
        Mapping::Done
    }

    /// Lets the program write to a page that it has, and wakes what waits for that.
    pub fn let_write(&mut self, frame: FrameIndex, subpage: u32) -> Mapping {
        let offset = (subpage as usize) << SUBPAGE_SHIFT;
        let PageState::Program { protected: protected @ true, .. } = &mut self.states[frame.index()] else {
            self.backend.wake(&self.region, offset);
            return Mapping::Done;
        };
        if self.backend.unprotect(&self.region, offset).is_err() {
            return Mapping::Later;
        }
        *protected = false;
        self.habit.written += 1;
        Mapping::Done
    }

    /// The page of a frame was copied.
    fn leave_spare(&mut self, arena: &Arena, frame: FrameIndex) {
        self.spares.push(frame);
        if self.spares.len() >= SPARE_MOST {
            self.discard_spares(arena);
        }
    }
    /// Gives the pages back that frames have and do not use.
    fn discard_spares(&mut self, arena: &Arena) {
        arena.discard_pages(self.spares.drain(..).map(|frame| frame.index() << SUBPAGE_SHIFT));
    }
    /// The program has the page of a frame no more, and the frame has none, or one of no use.
    fn left(&mut self, frame: FrameIndex) {
        match self.spares.iter().position(|spare| *spare == frame) {
            Some(at) => {
                self.spares.swap_remove(at);
            }
            None => self.set_paged(frame, false),
        }
        self.states[frame.index()] = PageState::Frame;
    }

    /// Takes a page back into its frame. False when somebody holds it.
    fn take_back(&mut self, frames: &Frames, frame: FrameIndex) -> bool {
        let (arena, to) = (&**frames.arena(), frame.index() << SUBPAGE_SHIFT);
        let (subpage, protected) = match self.states[frame.index()] {
            PageState::Frame => return true,
            PageState::Copied(subpage) => {
                let gone = self.region.unmap_pages((subpage as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES).is_ok();
                if gone {
                    self.states[frame.index()] = PageState::Frame;
                }
                return gone;
            }
            PageState::Program { subpage, protected } => (subpage, protected),
        };
        if self.spares.contains(&frame) {
            self.discard_spares(arena);
        }
        let mark = &frames.marks(frame).dirty;
        match self.backend.take(&self.region, (subpage as usize) << SUBPAGE_SHIFT, arena, to) {
            Ok(()) => {
                if !protected
                    && !has_changes(mark.load(Ordering::Relaxed))
                    && self.fingerprints.of(arena, to) != self.before[frame.index()]
                {
                    mark.store(DIRTY, Ordering::Relaxed);
                }
            }
            // The program gave the page up past us: it reads as zero.
            Err(NotMoved::Missing) => {
                arena.zero(to, SUBPAGE_BYTES);
                if self.fingerprints.of_zeros() != self.before[frame.index()] {
                    mark.store(DIRTY, Ordering::Relaxed);
                }
            }
            Err(_) => return false,
        }
        self.states[frame.index()] = PageState::Frame;
        true
    }

    /// Drops what is to be dropped.
    fn drop_all(&mut self) {
        if self.drops.is_empty() {
            return;
        }
        let (region, drops, held) = (&self.region, &self.drops, &mut self.held);
        let before = held.len();
        region.drop_pages(&self.offsets, |index| held.push(drops[index]));
        self.offsets.clear();
        let mut drops = std::mem::take(&mut self.drops);
        for frame in drops.drain(..) {
            if !self.held[before..].contains(&frame) {
                self.left(frame);
            }
        }
        self.drops = drops;
    }

    /// Takes the pages of some frames back. Returns whether all of them are.
    pub fn take_back_all(&mut self, frames: &Frames, all: impl Iterator<Item = FrameIndex>) -> bool {
        let mut done = true;
        for frame in all {
            done &= self.take_back(frames, frame);
        }
        done
    }

    /// Unmaps a range of the region, where the contents are to be dropped.
    pub fn unmap(&self, range: &Range<u32>) -> std::io::Result<()> {
        self.backend.forget(&self.region, (range.start as usize) << SUBPAGE_SHIFT, range.len() << SUBPAGE_SHIFT)
    }

    /// Ends accesses to a subpage with a `SIGBUS`, where they wait in the kernel.
    pub fn poison(&self, subpage: u32) {
        self.backend.poison(&self.region, (subpage as usize) << SUBPAGE_SHIFT);
    }
}

impl Users for Mapped {
    const TOGETHER: usize = 32;

    fn take_away(&mut self, frames: &Frames, batch: impl Iterator<Item = FrameIndex>) -> bool {
        self.held.clear();
        for frame in batch {
            let marks = frames.marks(frame);
            let is_needed = has_changes(marks.dirty.load(Ordering::Relaxed)) || marks.pins.load(Ordering::Relaxed) > 0;
            if let PageState::Program { subpage, protected: true } = self.states[frame.index()]
                && !is_needed
            {
                self.drops.push(frame);
                self.offsets.push((subpage as usize) << SUBPAGE_SHIFT);
            } else if !self.take_back(frames, frame) {
                self.held.push(frame);
            }
        }
        self.drop_all();
        // The kernel interrupts the processors that the program runs on.
        true
    }
    fn holds(&self, frame: FrameIndex) -> bool {
        self.held.contains(&frame)
    }
    fn dropped(&mut self, frame: FrameIndex) {
        match self.states[frame.index()] {
            PageState::Program { .. } => self.left(frame),
            _ => self.states[frame.index()] = PageState::Frame,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_pages_are_written_to_they_are_protected_now_and_then() {
        let mut habit = Habit::default();
        let mut protects = |share: u32| {
            (0..4096u32)
                .filter(|number| {
                    let protects = habit.protects();
                    habit.written += u32::from(protects && number % 8 < share);
                    protects
                })
                .count()
        };
        assert_eq!(protects(0), 4096);
        assert!(protects(8) < 1024);
        assert_eq!(protects(8), 4096 / Habit::SAMPLE as usize);
        assert!(protects(0) > 1024);
        assert_eq!(protects(1), 4096);
    }
}
