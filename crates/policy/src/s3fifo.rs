//! S3-FIFO (Yang et al., SOSP 2023): a small queue that most subpages leave at once, a main queue,
//! and a ghost of what left.
//!
//! ```text
//!            miss          looked at, not used     victim: not used again
//!   subpage ------> fresh --------------------> small ------------------> ghost (subpage only)
//!        |                                        |                         |
//!        |  miss, and the ghost remembers it      | used again              | miss in the window
//!        +--------------------------------------> main <-------------------+
//!                                                 victim: count 0, else count - 1 and again
//! ```
//!
//! As its authors have it: the small queue holds a tenth of the frames, counts are two bits, a
//! subpage moves to main with its count cleared, the ghost remembers as many evictions from small
//! as main has frames. What differs is due to the one referenced bit a frame that the runtime can
//! afford: a job touches a subpage several times right after its miss, so the bit is always set at
//! the first visit. The small queue is therefore in two halves. The mark is discarded between them
//! (`fresh` to `small`), so that one found at the end of `small` means reuse after the first burst
//! (2Q's correlated reference period). A frame that is in use at the end of small starts again in
//! fresh. Hits reported through [`touched`](Replacement::touched) are exact and all count.
//!
//! Fresh and small are one ring in the order of arrival, with a border between them. Main is
//! another. To read the oldest entry is to read the next word of a ring. What has not been used for
//! long is out of the caches, and a list with its links in the frames would miss them at every
//! step.
//!
//! Invariants: a frame is in at most one ring, once, and `positions` says where. Sizes follow the
//! frames in the policy, so a smaller DRAM budget keeps the proportions. 20 bytes a frame, and 15
//! to 29 for the ghost.

use core::ops::ControlFlow;

use fulgurite_format::{LocalFrame, SubpageIndex};

use crate::fifo::{Entry, Fifo};
use crate::ghost::Ghost;
use crate::replacement::{ColdCursor, FrameView, Remembered, Replacement};

/// One in this many frames is in the small queue (its authors' ratio: 10%).
const SMALL_SHARE: usize = 10;
/// Known hits in the small queue that move a subpage to main: more than one, as its authors have
/// it.
const PROMOTE_AT: u8 = 2;
/// Two bits.
const COUNT_MAX: u8 = 3;
/// How many frames ahead of the search the view is notified.
const LOOK_AHEAD: u32 = 4;

/// Where a frame is: the ring in the top bit, its slot below, or nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RingPosition(u32);

impl RingPosition {
    const OUT: RingPosition = RingPosition(u32::MAX);
    const MAIN: u32 = 1 << 31;

    #[inline(always)]
    fn young(slot: u32) -> RingPosition {
        RingPosition(slot)
    }
    #[inline(always)]
    fn main(slot: u32) -> RingPosition {
        RingPosition(slot | RingPosition::MAIN)
    }
    #[inline(always)]
    fn is_main(self) -> bool {
        self.0 & RingPosition::MAIN != 0
    }
    #[inline(always)]
    fn slot(self) -> u32 {
        self.0 & !RingPosition::MAIN
    }
}

/// The S3-FIFO policy. See the module.
pub struct S3Fifo {
    positions: Box<[RingPosition]>,
    /// Small, then fresh, oldest first.
    young: Fifo,
    /// Slots of `young` that are small, the oldest ones, and how many of them hold something.
    small_slots: u32,
    small: u32,
    main: Fifo,
    ghost: Ghost,
    /// Subpages that came in while the ghost remembered them.
    returned: u64,
    last_victim: SubpageIndex,
}

impl S3Fifo {
    /// For frames `0..capacity`.
    pub fn new(capacity: usize) -> Self {
        S3Fifo {
            positions: vec![RingPosition::OUT; capacity].into_boxed_slice(),
            young: Fifo::new(capacity),
            small_slots: 0,
            small: 0,
            main: Fifo::new(capacity),
            ghost: Ghost::new(capacity - capacity / SMALL_SHARE),
            returned: 0,
            last_victim: SubpageIndex(0),
        }
    }

    /// Whether the next victim is searched for in small and then in main, or first in main.
    #[inline]
    fn small_first(&self) -> bool {
        self.young.len() >= (self.len() / SMALL_SHARE).max(1)
    }
    fn fresh_len(&self) -> usize {
        self.young.len() - self.small as usize
    }

    /// Frames in the main queue.
    pub fn main_len(&self) -> usize {
        self.main.len()
    }

    #[inline]
    fn push_main(&mut self, entry: Entry) {
        let positions = &mut self.positions;
        self.main.make_room(|entry, slot| positions[entry.frame() as usize] = RingPosition::main(slot));
        positions[entry.frame() as usize] = RingPosition::main(self.main.push(entry));
    }

    #[inline]
    fn push_fresh(&mut self, entry: Entry) {
        let positions = &mut self.positions;
        if self.young.make_room(|entry, slot| positions[entry.frame() as usize] = RingPosition::young(slot)) {
            self.small_slots = self.small;
        }
        positions[entry.frame() as usize] = RingPosition::young(self.young.push(entry));
    }

    /// Says which frame of a queue will be visited a few steps from now.
    #[inline]
    fn expect<V: FrameView>(queue: &Fifo, slot: u32, view: &mut V) {
        if slot + LOOK_AHEAD < queue.slots()
            && let Some(entry) = queue.nth(slot + LOOK_AHEAD)
        {
            view.expect(LocalFrame(entry.frame()));
        }
    }

    /// Moves the oldest fresh frame to small and throws its mark away. Whether there was one.
    #[inline]
    fn settle<V: FrameView>(&mut self, view: &mut V) -> bool {
        while self.small_slots < self.young.slots() {
            let entry = self.young.nth(self.small_slots);
            self.small_slots += 1;
            if let Some(entry) = entry {
                self.small += 1;
                Self::expect(&self.young, self.small_slots, view);
                view.take_referenced(LocalFrame(entry.frame()));
                return true;
            }
        }
        false
    }

    /// Takes the oldest small frame out.
    #[inline]
    fn pop_small(&mut self) -> Option<Entry> {
        while self.small_slots > 0 {
            self.small_slots -= 1;
            if let Some(entry) = self.young.pop_slot() {
                self.small -= 1;
                return Some(entry);
            }
        }
        None
    }

    /// A victim from the small queue. Visits each of its frames at most once.
    #[inline]
    fn victim_of_small<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        for _ in 0..self.young.len() {
            if self.small == 0 && !self.settle(view) {
                break;
            }
            let entry = self.pop_small()?;
            Self::expect(&self.young, 0, view);
            let frame = LocalFrame(entry.frame());
            if view.take_referenced(frame) || entry.count() >= PROMOTE_AT {
                self.push_main(entry.with_count(0));
            } else if view.evictable(frame) {
                self.positions[frame.index()] = RingPosition::OUT;
                self.last_victim = SubpageIndex(entry.subpage());
                self.ghost.insert(self.last_victim);
                return Some(frame);
            } else {
                // In use: it starts again, so that those behind it get their turn.
                self.push_fresh(entry);
                if view.gives_up() {
                    return None;
                }
            }
        }
        None
    }

    /// A victim from the main queue. Each frame is visited until its count is zero, and once more.
    #[inline]
    fn victim_of_main<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        for _ in 0..(usize::from(COUNT_MAX) + 1) * self.main.len() {
            let entry = self.main.pop()?;
            Self::expect(&self.main, 0, view);
            let frame = LocalFrame(entry.frame());
            let referenced = view.take_referenced(frame);
            let count = (entry.count() + u8::from(referenced)).min(COUNT_MAX);
            if count == 0 && view.evictable(frame) {
                self.positions[frame.index()] = RingPosition::OUT;
                self.last_victim = SubpageIndex(entry.subpage());
                return Some(frame);
            }
            self.push_main(entry.with_count(count.saturating_sub(1)));
            if count == 0 && view.gives_up() {
                return None;
            }
        }
        None
    }

    #[inline]
    fn assert_out(&self, frame: LocalFrame) {
        assert!(self.positions[frame.index()] == RingPosition::OUT, "frame {} is in the policy already", frame.0);
    }
}

impl Replacement for S3Fifo {
    #[inline]
    fn inserted(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        self.assert_out(frame);
        let entry = Entry::new(frame.0, subpage.0);
        if self.ghost.take(subpage) {
            self.returned += 1;
            self.push_main(entry);
        } else {
            self.push_fresh(entry);
        }
    }

    #[inline]
    fn touched(&mut self, frame: LocalFrame) {
        let place = self.positions[frame.index()];
        debug_assert!(place != RingPosition::OUT, "frame {} is not in the policy", frame.0);
        let ring = if place.is_main() { &mut self.main } else { &mut self.young };
        ring.change(place.slot(), |entry| entry.with_count((entry.count() + 1).min(COUNT_MAX)));
    }

    #[inline]
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        while self.fresh_len() > self.small as usize + 1 {
            self.settle(view);
        }
        let small_first = self.small_first();
        // Frames that small moves to main have to be visited there as well.
        let first = if small_first { None } else { self.victim_of_main(view) };
        first.or_else(|| self.victim_of_small(view)).or_else(|| self.victim_of_main(view))
    }

    #[inline]
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        self.assert_out(frame);
        self.ghost.take(subpage);
        self.push_main(Entry::new(frame.0, subpage.0).with_count(1));
    }

    #[inline]
    fn removed(&mut self, frame: LocalFrame) {
        let place = std::mem::replace(&mut self.positions[frame.index()], RingPosition::OUT);
        assert!(place != RingPosition::OUT, "frame {} is not in the policy", frame.0);
        if place.is_main() {
            self.main.remove(place.slot());
        } else {
            self.small -= u32::from(self.young.age(place.slot()) < self.small_slots);
            self.young.remove(place.slot());
        }
    }

    #[inline]
    fn will_read_at(&self, subpage: SubpageIndex) -> Option<*const u8> {
        Some(self.ghost.line(subpage))
    }

    #[inline]
    fn last_victim_holds(&self) -> Option<SubpageIndex> {
        Some(self.last_victim)
    }

    fn coldest(
        &self,
        from: ColdCursor,
        most: usize,
        each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>,
    ) -> ColdCursor {
        // A cursor is the place of the next frame. One that is in use no more: from the start.
        let (young_first, place) = (self.small_first(), RingPosition(from.0));
        let ring = |is_main: bool| if is_main { &self.main } else { &self.young };
        let holds =
            |place: &RingPosition| place.slot() < self.capacity() as u32 && ring(place.is_main()).holds(place.slot());
        let (mut in_main, mut age) = match Some(place).filter(holds) {
            Some(place) => (place.is_main(), ring(place.is_main()).age(place.slot())),
            None => (!young_first, 0),
        };
        for _ in 0..most {
            if age == ring(in_main).slots() {
                if in_main == young_first {
                    return ColdCursor::START;
                }
                (in_main, age) = (young_first, 0);
                continue;
            }
            age += 1;
            if let Some(entry) = ring(in_main).nth(age - 1)
                && each(LocalFrame(entry.frame())).is_break()
            {
                break;
            }
        }
        if age == ring(in_main).slots() {
            if in_main == young_first || ring(young_first).slots() == 0 {
                return ColdCursor::START;
            }
            (in_main, age) = (young_first, 0);
        }
        let slot = ring(in_main).slot(age);
        ColdCursor(if in_main { RingPosition::main(slot).0 } else { RingPosition::young(slot).0 })
    }

    fn remembered(&self) -> Remembered {
        Remembered { returned: self.returned, frames: self.ghost.window().into() }
    }

    fn len(&self) -> usize {
        self.young.len() + self.main.len()
    }

    fn capacity(&self) -> usize {
        self.positions.len()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.positions) + self.young.bytes() + self.main.bytes() + self.ghost.bytes()
    }

    fn check(&self) {
        let mut small = 0;
        for (ring, is_main) in [(&self.young, false), (&self.main, true)] {
            for (slot, entry) in ring.check() {
                let place = if is_main { RingPosition::main(slot) } else { RingPosition::young(slot) };
                assert_eq!(self.positions[entry.frame() as usize], place, "place of frame {}", entry.frame());
                small += u32::from(!is_main && ring.age(slot) < self.small_slots);
            }
        }
        assert_eq!(small, self.small, "small frames counted");
        assert!(self.small_slots <= self.young.slots(), "the border is in the ring");
        let placed = self.positions.iter().filter(|p| **p != RingPosition::OUT).count();
        assert_eq!(placed, self.len(), "frames counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is marked or pinned.
    struct Idle;
    impl FrameView for Idle {
        fn take_referenced(&mut self, _: LocalFrame) -> bool {
            false
        }
        fn evictable(&mut self, _: LocalFrame) -> bool {
            true
        }
    }

    #[test]
    fn main_gives_where_few_are_young() {
        let mut policy = S3Fifo::new(40);
        (0..40).for_each(|n| policy.inserted(LocalFrame(n), SubpageIndex(100 + n)));
        for frame in (0..38).chain(0..38) {
            policy.touched(LocalFrame(frame));
        }
        // All are young: those that were used twice move to main, the first that was not is
        // evicted.
        assert_eq!(
            (policy.victim(&mut Idle), policy.last_victim_holds()),
            (Some(LocalFrame(38)), Some(SubpageIndex(138)))
        );
        assert_eq!(policy.main_len(), 38);
        // One of 39 is young, which is fewer than a tenth, so main's oldest is evicted.
        assert_eq!(
            (policy.victim(&mut Idle), policy.last_victim_holds()),
            (Some(LocalFrame(0)), Some(SubpageIndex(100)))
        );
        assert_eq!((policy.len(), policy.main_len(), policy.capacity()), (38, 37, 40));
        policy.check();
    }
}
