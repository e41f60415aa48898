//! Users of frames, as the cache knows them: whether a frame is held, touched or dirty, and how to
//! take it away.
//!
//! Pins and marks are the cache's own ([`Marks`]), for every door. Doors differ in how a program
//! uses an unpinned frame, and how it is kept from that. A guarded pointer names the frame in its
//! worker's slot, checks the mark before writes, and sets the referenced byte. A barrier keeps it
//! away. A mapped page is used without notice. Unmapping keeps the program away, and the page table
//! knows what was written.

use fulgurite_format::FrameIndex;

use crate::frames::Frames;
use crate::marks::Marks;

/// What uses the frames of a cache.
pub trait Users {
    /// How many frames a cache that is alone takes away together, at most 64.
    const TOGETHER: usize = 16;

    /// Takes frames away from unpinned users. No new use of them begins: their words say that they
    /// leave, or their marks that they are written. Afterwards [`Users::holds`] knows remaining
    /// users, and the marks of the other frames are final. Contents that are neither dirty nor
    /// pinned may be gone. Returns whether other processors had to be interrupted.
    fn take_away(&mut self, frames: &Frames, batch: impl Iterator<Item = FrameIndex>) -> bool;
    /// Whether somebody still uses a frame of the last batch that was taken away, without a pin.
    fn holds(&self, frame: FrameIndex) -> bool;
    /// Whether the frame was touched since the last call. Hits in between may count once or twice.
    fn touched(&mut self, frame: FrameIndex, marks: &Marks) -> bool {
        let _ = frame;
        marks.take_referenced()
    }
    /// The contents of a frame are dropped: nobody uses it any more. Called by
    /// [`Cache::drop_contents`](crate::Cache::drop_contents) only.
    fn dropped(&mut self, frame: FrameIndex) {
        let _ = frame;
    }
    /// Updates the marks of the frames from `first` to below `end`: written ones are dirty, and
    /// marks show later writes. Does nothing where writers check the mark first.
    fn note_written(&mut self, frames: &Frames, first: FrameIndex, end: FrameIndex) {
        let _ = (frames, first, end);
    }
}
