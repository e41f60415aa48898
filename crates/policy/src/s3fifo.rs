//! S3-FIFO (Yang et al., SOSP 2023): a small queue that most subpages leave at once, a main queue, and a ghost of
//! what left.
//!
//! ```text
//!              miss             looked at, not used      victim: not used again
//!   subpage ---------> fresh ----------------------> small ---------------------> ghost (subpage only)
//!        |                                             |                            |
//!        |  miss, and the ghost remembers it           | used again                 | miss within the window
//!        +-------------------------------------------> main <-----------------------+
//!                                                      victim: count 0; else count - 1 and round again
//! ```
//!
//! As its authors have it: the small queue holds a tenth of the frames, counts are two bits, a subpage moves to main
//! with its count cleared, the ghost remembers as many evictions from small as main has frames. What differs is due
//! to the one referenced bit a frame that the runtime can afford: a job touches a subpage several times right after
//! its miss, so the bit is always set at the first look. The small queue is therefore in two halves; the mark is
//! thrown away between them (`fresh` to `small`), so that one found at the end of `small` means reuse after the first
//! burst (2Q's correlated reference period). A frame that is in use at the end of small starts again in fresh. Hits
//! reported through [`touched`](Replacement::touched) are exact and all count.
//!
//! Invariants: a frame is in at most one of the three lists, and its `queue` says which; sizes follow the frames in the
//! policy, so a smaller DRAM budget keeps the proportions. 16 bytes a frame, and 15 to 29 for the ghost.

use fulgurite_format::{FrameIndex, SubpageIndex};

use crate::ghost::Ghost;
use crate::list::{Link, Links, List};
use crate::replacement::{FrameView, Replacement};

/// One in this many frames is in the small queue (its authors' ratio: 10%).
const SMALL_SHARE: usize = 10;
/// Known hits in the small queue that move a subpage to main: more than one, as its authors have it.
const PROMOTE_AT: u8 = 2;
/// Two bits.
const COUNT_MAX: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Out,
    Fresh,
    Small,
    Main,
}

#[derive(Clone, Copy)]
struct Frame {
    link: Link,
    subpage: SubpageIndex,
    count: u8,
    queue: Queue,
}
const _: () = assert!(size_of::<Frame>() == 16);

impl Links for [Frame] {
    #[inline(always)]
    fn link(&mut self, at: u32) -> &mut Link {
        &mut self[at as usize].link
    }
}

/// The S3-FIFO policy. See the module.
pub struct S3Fifo {
    frames: Box<[Frame]>,
    fresh: List,
    small: List,
    main: List,
    ghost: Ghost,
}

impl S3Fifo {
    /// For frames `0..capacity`.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let out = Frame { link: Link::OUT, subpage: SubpageIndex(0), count: 0, queue: Queue::Out };
        S3Fifo {
            frames: vec![out; capacity].into_boxed_slice(),
            fresh: List::EMPTY,
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: Ghost::new(capacity - capacity / SMALL_SHARE),
        }
    }

    #[inline]
    fn put(&mut self, frame: FrameIndex, subpage: SubpageIndex, queue: Queue, count: u8) {
        let slot = &mut self.frames[frame.index()];
        assert!(slot.queue == Queue::Out, "frame {} is in the policy already", frame.0);
        (slot.subpage, slot.count, slot.queue) = (subpage, count, queue);
        let list = if queue == Queue::Main { &mut self.main } else { &mut self.fresh };
        list.push_front(&mut *self.frames, frame.0);
    }

    /// Moves the oldest fresh frame to small and throws its mark away. Whether there was one.
    #[inline]
    fn settle<V: FrameView>(&mut self, view: &mut V) -> bool {
        let Some(at) = self.fresh.pop_back(&mut *self.frames) else { return false };
        view.take_referenced(FrameIndex(at));
        self.frames[at as usize].queue = Queue::Small;
        self.small.push_front(&mut *self.frames, at);
        true
    }

    /// A victim from the small queue; looks at each of its frames once at most.
    #[inline]
    fn victim_of_small<V: FrameView>(&mut self, view: &mut V) -> Option<FrameIndex> {
        for _ in 0..self.fresh.len() + self.small.len() {
            if self.small.len() == 0 && !self.settle(view) {
                break;
            }
            let at = self.small.pop_back(&mut *self.frames)?;
            let frame = FrameIndex(at);
            let slot = &mut self.frames[at as usize];
            if view.take_referenced(frame) || slot.count >= PROMOTE_AT {
                (slot.count, slot.queue) = (0, Queue::Main);
                self.main.push_front(&mut *self.frames, at);
            } else if view.evictable(frame) {
                slot.queue = Queue::Out;
                let subpage = slot.subpage;
                self.ghost.insert(subpage);
                return Some(frame);
            } else {
                // In use: it starts again, so that those behind it get their turn.
                slot.queue = Queue::Fresh;
                self.fresh.push_front(&mut *self.frames, at);
            }
        }
        None
    }

    /// A victim from the main queue; each frame is looked at until its count is gone, and once more.
    #[inline]
    fn victim_of_main<V: FrameView>(&mut self, view: &mut V) -> Option<FrameIndex> {
        for _ in 0..(usize::from(COUNT_MAX) + 1) * self.main.len() {
            let at = self.main.pop_back(&mut *self.frames)?;
            let frame = FrameIndex(at);
            let slot = &mut self.frames[at as usize];
            let referenced = view.take_referenced(frame);
            let count = (slot.count + u8::from(referenced)).min(COUNT_MAX);
            if count > 0 {
                slot.count = count - 1;
            } else if view.evictable(frame) {
                slot.queue = Queue::Out;
                return Some(frame);
            }
            self.main.push_front(&mut *self.frames, at);
        }
        None
    }
}

impl Replacement for S3Fifo {
    #[inline]
    fn inserted(&mut self, frame: FrameIndex, subpage: SubpageIndex) {
        let queue = if self.ghost.take(subpage) { Queue::Main } else { Queue::Fresh };
        self.put(frame, subpage, queue, 0);
    }

    #[inline]
    fn touched(&mut self, frame: FrameIndex) {
        let slot = &mut self.frames[frame.index()];
        debug_assert!(slot.queue != Queue::Out, "frame {} is not in the policy", frame.0);
        slot.count = (slot.count + 1).min(COUNT_MAX);
    }

    #[inline]
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<FrameIndex> {
        while self.fresh.len() > self.small.len() + 1 {
            self.settle(view);
        }
        let small_first = self.fresh.len() + self.small.len() >= (self.len() / SMALL_SHARE).max(1);
        // Frames that small moves to main need main's look as well.
        let first = if small_first { None } else { self.victim_of_main(view) };
        first.or_else(|| self.victim_of_small(view)).or_else(|| self.victim_of_main(view))
    }

    #[inline]
    fn reinstated(&mut self, frame: FrameIndex, subpage: SubpageIndex) {
        self.ghost.take(subpage);
        self.put(frame, subpage, Queue::Main, 1);
    }

    #[inline]
    fn removed(&mut self, frame: FrameIndex) {
        let list = match self.frames[frame.index()].queue {
            Queue::Out => panic!("frame {} is not in the policy", frame.0),
            Queue::Fresh => &mut self.fresh,
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        };
        list.remove(&mut *self.frames, frame.0);
        self.frames[frame.index()].queue = Queue::Out;
    }

    #[inline]
    fn will_look_at(&self, subpage: SubpageIndex) -> Option<*const u8> {
        Some(self.ghost.line(subpage))
    }

    #[inline]
    fn len(&self) -> usize {
        self.fresh.len() + self.small.len() + self.main.len()
    }

    fn capacity(&self) -> usize {
        self.frames.len()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.frames) + self.ghost.bytes()
    }

    fn check(&self) {
        for (list, queue) in [(&self.fresh, Queue::Fresh), (&self.small, Queue::Small), (&self.main, Queue::Main)] {
            for at in list.check(|at| self.frames[at as usize].link) {
                assert_eq!(self.frames[at as usize].queue, queue, "queue of frame {at}");
            }
        }
        for frame in &self.frames {
            assert_eq!(frame.queue == Queue::Out, frame.link.is_out(), "links and queue agree");
            assert!(frame.count <= COUNT_MAX);
        }
        let listed = self.frames.iter().filter(|f| f.queue != Queue::Out).count();
        assert_eq!(listed, self.len(), "frames counted");
    }
}
