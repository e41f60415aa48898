//! The free frames of a cache, of which it takes any one, or a certain one where it is alone.
//!
//! A lone cache gives a subpage the frame of the same number where that is free: its home. A hit
//! there does not wait for the residency word ([`crate::marks::HOME`]).

use fulgurite_format::FrameIndex;

/// No place among the free ones.
const NOWHERE: u32 = u32::MAX;

/// Free frames. The last one in is the first one out.
#[derive(Debug)]
pub(crate) struct Free {
    frames: Vec<FrameIndex>,
    /// Where each frame is among them. Nothing, where several caches share the frames.
    at: Box<[u32]>,
}

/// DRAM for each frame.
pub(crate) const BYTES_PER_FRAME: usize = size_of::<FrameIndex>() + size_of::<u32>();

impl Free {
    /// For `frames_max` frames, none of which is free.
    pub fn new(frames_max: usize, alone: bool) -> Free {
        let at = vec![NOWHERE; if alone { frames_max } else { 0 }].into();
        Free { frames: Vec::with_capacity(frames_max), at }
    }
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
    pub fn iter(&self) -> impl Iterator<Item = FrameIndex> {
        self.frames.iter().copied()
    }
    #[inline]
    pub fn push(&mut self, frame: FrameIndex) {
        self.note_place(frame, self.frames.len() as u32);
        self.frames.push(frame);
    }
    #[inline]
    pub fn pop(&mut self) -> Option<FrameIndex> {
        let frame = self.frames.pop()?;
        self.note_place(frame, NOWHERE);
        Some(frame)
    }
    /// The home of a subpage, if it is free.
    #[inline]
    pub fn take_home(&mut self, subpage: u32) -> Option<FrameIndex> {
        let at = *self.at.get(subpage as usize)?;
        (at != NOWHERE).then(|| {
            let home = self.frames.swap_remove(at as usize);
            if let Some(&moved) = self.frames.get(at as usize) {
                self.note_place(moved, at);
            }
            self.note_place(home, NOWHERE);
            home
        })
    }
    /// Those from `end` on are not among them any more.
    pub fn end_at(&mut self, end: FrameIndex) {
        self.frames.retain(|&frame| frame < end);
        self.at.fill(NOWHERE);
        for at in 0..self.frames.len() {
            self.note_place(self.frames[at], at as u32);
        }
    }
    #[inline]
    fn note_place(&mut self, frame: FrameIndex, at: u32) {
        if let Some(known) = self.at.get_mut(frame.index()) {
            *known = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_wherever_it_is() {
        let mut free = Free::new(8, true);
        (0..8).map(FrameIndex).for_each(|frame| free.push(frame));
        assert_eq!((free.take_home(3), free.take_home(3), free.take_home(8)), (Some(FrameIndex(3)), None, None));
        assert_eq!((free.take_home(7), free.take_home(0)), (Some(FrameIndex(7)), Some(FrameIndex(0))));
        free.push(FrameIndex(3));
        free.end_at(FrameIndex(6));
        assert_eq!((free.take_home(6), free.len()), (None, 5));
        assert_eq!(free.take_home(3), Some(FrameIndex(3)));
        let mut left: Vec<_> = std::iter::from_fn(|| free.pop()).map(|frame| frame.0).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 4, 5]);
        assert_eq!(free.take_home(1), None);
    }
    #[test]
    fn there_are_no_homes_where_frames_are_shared() {
        let mut free = Free::new(8, false);
        free.push(FrameIndex(12));
        free.push(FrameIndex(3));
        assert_eq!((free.take_home(3), free.len()), (None, 2));
        free.end_at(FrameIndex(12));
        assert_eq!((free.pop(), free.pop()), (Some(FrameIndex(3)), None));
    }
}
