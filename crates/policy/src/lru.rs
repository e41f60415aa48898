//! LRU: a list in order of use. The victim is at its end.
//!
//! With every hit reported through [`touched`](Replacement::touched) the order is exact. In the
//! runtime, hits are seen only when the end of the list is scanned: a frame used since its last
//! visit moves to the front (second chance), so frames are ordered by these visits.
//!
//! Invariants: the list holds exactly the frames in the policy. 8 bytes a frame, links by index.

use core::ops::ControlFlow;

use fulgurite_format::{LocalFrame, SubpageIndex};

use crate::list::{Link, List};
use crate::replacement::{ColdCursor, FrameView, Replacement};

/// The LRU policy. See the module.
pub struct Lru {
    links: Box<[Link]>,
    list: List,
}

impl Lru {
    /// For frames `0..capacity`.
    pub fn new(capacity: usize) -> Self {
        Lru { links: vec![Link::OUT; capacity].into_boxed_slice(), list: List::EMPTY }
    }
}

impl Replacement for Lru {
    #[inline]
    fn inserted(&mut self, frame: LocalFrame, _subpage: SubpageIndex) {
        assert!(self.links[frame.index()].is_out(), "frame {} is in the policy already", frame.0);
        self.list.push_front(&mut *self.links, frame.0);
    }

    #[inline]
    fn touched(&mut self, frame: LocalFrame) {
        if self.list.front() != Some(frame.0) {
            self.list.remove(&mut *self.links, frame.0);
            self.list.push_front(&mut *self.links, frame.0);
        }
    }

    #[inline]
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        // The first round takes every mark. What the second spares is in use or not evictable.
        for _ in 0..2 * self.list.len() {
            let last = self.list.pop_back(&mut *self.links)?;
            let frame = LocalFrame(last);
            let referenced = view.take_referenced(frame);
            if !referenced && view.evictable(frame) {
                return Some(frame);
            }
            self.list.push_front(&mut *self.links, last);
            if !referenced && view.gives_up() {
                return None;
            }
        }
        None
    }

    #[inline]
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        self.inserted(frame, subpage);
    }

    #[inline]
    fn removed(&mut self, frame: LocalFrame) {
        assert!(!self.links[frame.index()].is_out(), "frame {} is not in the policy", frame.0);
        self.list.remove(&mut *self.links, frame.0);
    }

    fn coldest(
        &self,
        from: ColdCursor,
        most: usize,
        each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>,
    ) -> ColdCursor {
        // A cursor is the next frame, which may have gone since. Then from the start.
        let here = Some(from.0).filter(|&at| self.links.get(at as usize).is_some_and(|link| !link.is_out()));
        self.list.coldest(here, most, |at| self.links[at as usize], each)
    }

    fn len(&self) -> usize {
        self.list.len()
    }

    fn capacity(&self) -> usize {
        self.links.len()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.links)
    }

    fn check(&self) {
        self.list.check(|at| self.links[at as usize]);
        let listed = self.links.iter().filter(|l| !l.is_out()).count();
        assert_eq!(listed, self.list.len(), "a frame has links and is not in the list");
    }
}
