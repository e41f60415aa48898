//! Users of frames, as the cache must know them: who holds a frame, was it touched, is it dirty, take it away.
//!
//! Pins and marks are the cache's own ([`Marks`]): whatever stands in front of it keeps to them. What differs from door to door is
//! how a program that has not pinned a frame comes to use it, and how it is kept from that. A guarded pointer names the frame in its
//! worker's slot, looks at the mark before each write and sets the referenced byte; it is kept away by a barrier. A page that is
//! mapped into a program is used without a word; it is kept away by unmapping it, and the page table knows what was written.

use fulgurite_format::FrameIndex;

use crate::frames::Frames;
use crate::marks::Marks;

/// What uses the frames of a cache.
pub trait Users {
    /// Takes frames away from who uses them without a pin. Nobody begins to use one of them any more: their subpages' words say
    /// that they are on their way, or their marks that they are being written. After this call [`Users::holds`] knows who still
    /// does, the marks of frames that nobody holds say what was written to them, and nobody writes to them. Returns whether other
    /// processors had to be interrupted for it.
    fn take_away(&mut self, frames: &Frames, batch: impl Iterator<Item = FrameIndex>) -> bool;
    /// Whether somebody still uses a frame of the last batch that was taken away, without a pin.
    fn holds(&self, frame: FrameIndex) -> bool;
    /// Whether the frame was touched since this was asked last. Hits in between may count once or twice.
    fn touched(&mut self, frame: FrameIndex, marks: &Marks) -> bool {
        let _ = frame;
        marks.take_referenced()
    }
    /// Brings the marks of the frames from `first` to below `end` up to date: what was written to is dirty, and a write to it from
    /// now on is seen by its mark. Nothing to do where whoever writes looks at the mark before.
    fn note_written(&mut self, frames: &Frames, first: FrameIndex, end: FrameIndex) {
        let _ = (frames, first, end);
    }
}
