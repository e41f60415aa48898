//! Pages in the program as users of frames: a frame's page is where the program sees it, until it
//! is taken back.
//!
//! ```text
//!            map: writable                 map: read only
//!   moved <---------------- in its frame ----------------> copied
//!     |                      ^        ^                       |
//!     +--- taken away: looked at      +--- taken away: -------+
//!          for changes                     cannot have changed
//! ```
//!
//! A page in the region is used without notice. So nobody holds a frame but where the kernel or a
//! device does (a transfer to or from the page), which the kernel says when it is to be moved.

use std::ops::Range;
use std::sync::Arc;

use fulgurite_cache::marks::{DIRTY, has_changes};
use fulgurite_cache::{Frames, Users};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_sys::Region;
use fulgurite_sys::userfault::NotMoved;

use crate::Access;
use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::way::{Given, Way};

use std::sync::atomic::Ordering;

/// Where the page of a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In its frame.
    Frame,
    /// In the region, at this subpage.
    Moved(u32),
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
}

/// See the module.
pub struct Mapped {
    way: Arc<Way>,
    region: Arc<Region>,
    fingerprints: Fingerprints,
    places: Box<[Place]>,
    /// What the page of a frame held when it was moved to the region.
    before: Box<[Fingerprint]>,
    /// Frames of the last batch that could not be taken away.
    held: Vec<FrameIndex>,
    /// Frames that certainly have a page, wherever it is.
    paged: Box<[bool]>,
    pages: u32,
    /// Behind the last of them.
    end: u32,
}

/// DRAM for each frame, here.
pub const BYTES_PER_FRAME: usize = size_of::<Place>() + size_of::<Fingerprint>() + size_of::<bool>();

impl Mapped {
    pub fn new(way: Arc<Way>, region: Arc<Region>, fingerprints: Fingerprints, frames: u32) -> Mapped {
        Mapped {
            way,
            region,
            fingerprints,
            places: vec![Place::Frame; frames as usize].into(),
            before: vec![0; frames as usize].into(),
            held: Vec::with_capacity(64),
            paged: vec![false; frames as usize].into(),
            pages: 0,
            end: 0,
        }
    }

    /// Whether the program has the page of a frame.
    pub fn has_mapped(&self, frame: FrameIndex) -> bool {
        self.places[frame.index()] != Place::Frame
    }
    /// The same pages, in a child that has a way of its own.
    pub fn renew(&mut self, way: Arc<Way>) {
        self.way = way;
    }
    /// Frames whose pages the program has.
    pub fn all_mapped(&self) -> Vec<FrameIndex> {
        let mapped = self.places.iter().enumerate().filter(|(_, place)| **place != Place::Frame);
        mapped.map(|(index, _)| FrameIndex(index as u32)).collect()
    }

    /// How many frames certainly have a page.
    pub fn pages(&self) -> u32 {
        self.pages
    }
    /// Frames from `end` on have no pages any more.
    pub fn shrunk(&mut self, end: u32) {
        for frame in (end..self.end).map(FrameIndex) {
            self.set_paged(frame, false);
        }
        self.end = self.end.min(end);
    }
    fn set_paged(&mut self, frame: FrameIndex, paged: bool) {
        if std::mem::replace(&mut self.paged[frame.index()], paged) != paged {
            self.pages = if paged { self.pages + 1 } else { self.pages - 1 };
        }
    }

    /// Gives the program the page of a frame, and wakes what waits for it.
    pub fn map(&mut self, frames: &Frames, frame: FrameIndex, subpage: u32, access: Access) -> Mapping {
        let (arena, from, to) =
            (&**frames.arena(), frame.index() << SUBPAGE_SHIFT, (subpage as usize) << SUBPAGE_SHIFT);
        self.set_paged(frame, true);
        self.end = self.end.max(frame.0 + 1);
        if self.places[frame.index()] != Place::Frame {
            self.way.wake(&self.region, to);
            return Mapping::Done;
        }
        if !has_changes(frames.marks(frame).dirty.load(Ordering::Relaxed)) {
            self.before[frame.index()] = self.fingerprints.of(arena, from);
        }
        match self.way.give(arena, from, &self.region, to, access) {
            Ok(Given::Moved) => self.places[frame.index()] = Place::Moved(subpage),
            Ok(Given::Copied) => self.places[frame.index()] = Place::Copied(subpage),
            Err(NotMoved::Busy) => return Mapping::Later,
            // The program may do nothing here.
            Err(NotMoved::Access) => self.way.wake(&self.region, to),
            // A page that the cache does not know of: the fingerprint above has just made the one
            // that is to be moved. What is there was never of this program.
            Err(NotMoved::Exists) => {
                let _ = self.region.unmap_pages(to, SUBPAGE_BYTES);
                return Mapping::Later;
            }
            Err(NotMoved::Missing | NotMoved::Other(_)) => return Mapping::Later,
        }
        Mapping::Done
    }

    /// Takes a page back into its frame. False when somebody holds it.
    fn take_back(&mut self, frames: &Frames, frame: FrameIndex) -> bool {
        let (arena, to) = (&**frames.arena(), frame.index() << SUBPAGE_SHIFT);
        let subpage = match self.places[frame.index()] {
            Place::Frame => return true,
            Place::Copied(subpage) => {
                let gone = self.region.unmap_pages((subpage as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES).is_ok();
                if gone {
                    self.places[frame.index()] = Place::Frame;
                }
                return gone;
            }
            Place::Moved(subpage) => subpage,
        };
        let mark = &frames.marks(frame).dirty;
        match self.way.take(&self.region, (subpage as usize) << SUBPAGE_SHIFT, arena, to) {
            Ok(()) => {
                if !has_changes(mark.load(Ordering::Relaxed))
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
        self.places[frame.index()] = Place::Frame;
        true
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
        self.way.forget(&self.region, (range.start as usize) << SUBPAGE_SHIFT, range.len() << SUBPAGE_SHIFT)
    }

    /// Ends accesses to a subpage with a `SIGBUS`, where they wait in the kernel.
    pub fn poison(&self, subpage: u32) {
        self.way.poison(&self.region, (subpage as usize) << SUBPAGE_SHIFT);
    }
}

impl Users for Mapped {
    fn take_away(&mut self, frames: &Frames, batch: impl Iterator<Item = FrameIndex>) -> bool {
        self.held.clear();
        for frame in batch {
            if !self.take_back(frames, frame) {
                self.held.push(frame);
            }
        }
        // The kernel interrupts the processors that the program runs on.
        true
    }
    fn holds(&self, frame: FrameIndex) -> bool {
        self.held.contains(&frame)
    }
    fn dropped(&mut self, frame: FrameIndex) {
        if matches!(self.places[frame.index()], Place::Moved(_)) {
            self.set_paged(frame, false);
        }
        self.places[frame.index()] = Place::Frame;
    }
}
