//! Sets of ways, as caches of hardware have them: a subpage belongs to one set, which holds at most
//! as many subpages as it has ways. The least recently used one of a set is evicted.
//!
//! AstriFlash's DRAM cache has four ways (table I), a column of its tags maps eight (section IV-B),
//! and the hybrid memory that NVMM's authors publish (HybridSim) has 64.
//!
//! In hardware a set is a place. Here any frame holds any subpage, so a set is a bound: subpages
//! are counted by set, and where a set has more than its ways, its least recently used one is the
//! next victim. A victim that is wanted ahead of time, for no subpage in particular, is the least
//! recently used of all. [`expects`](Replacement::expects) names the subpage it makes room for.
//! Then it is that set's, if the set is full.
//!
//! A hash divides subpages among sets, so that the subpages of one worker, or of a stride, do not
//! meet in a few sets. There are as many sets as the frames fill. Frames that are left (up to 3, 7
//! or 63) are in crowded sets.
//!
//! Invariants: each frame in the policy is in the list of all and in its set's list. A set is in
//! the list of crowded ones exactly while it has more than its ways. 20 bytes a frame and 20 a set.

use core::ops::ControlFlow;

use fulgurite_format::{LocalFrame, SubpageIndex};

use crate::list::{Link, Links, List};
use crate::replacement::{ColdCursor, FrameView, Replacement, Ways};

/// A frame's links in the list of all and in its set's list.
#[derive(Clone, Copy)]
struct Node {
    of_all: Link,
    of_set: Link,
    set: u32,
}

struct Set {
    list: List,
    crowded: Link,
}

/// The array of frames, seen as one of the two lists.
struct OfAll<'n>(&'n mut [Node]);
struct OfSet<'n>(&'n mut [Node]);

impl Links for OfAll<'_> {
    #[inline(always)]
    fn link(&mut self, at: u32) -> &mut Link {
        &mut self.0[at as usize].of_all
    }
}

impl Links for OfSet<'_> {
    #[inline(always)]
    fn link(&mut self, at: u32) -> &mut Link {
        &mut self.0[at as usize].of_set
    }
}

impl Links for [Set] {
    #[inline(always)]
    fn link(&mut self, at: u32) -> &mut Link {
        &mut self[at as usize].crowded
    }
}

/// The set-associative policy. See the module.
pub struct Sets {
    ways: Ways,
    nodes: Box<[Node]>,
    sets: Box<[Set]>,
    all: List,
    /// Sets that have more than their ways, the one that has been so for the longest time last.
    crowded: List,
    /// The set of the subpage that the next victim makes room for.
    expected: Option<u32>,
}

/// The list that a victim is looked for in.
#[derive(Clone, Copy)]
enum From {
    All,
    Set(u32),
}

impl Sets {
    /// For frames `0..capacity`.
    pub fn new(ways: Ways, capacity: usize) -> Self {
        let empty = Node { of_all: Link::OUT, of_set: Link::OUT, set: 0 };
        let sets = (capacity / ways.count()).max(1);
        Sets {
            ways,
            nodes: vec![empty; capacity].into_boxed_slice(),
            sets: (0..sets).map(|_| Set { list: List::EMPTY, crowded: Link::OUT }).collect(),
            all: List::EMPTY,
            crowded: List::EMPTY,
            expected: None,
        }
    }
    /// How many subpages a set holds.
    pub fn ways(&self) -> Ways {
        self.ways
    }
    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }
    /// The set of a subpage.
    #[inline]
    pub fn set_of(&self, subpage: SubpageIndex) -> u32 {
        // Fibonacci hashing: neighbours are spread evenly, and so is what each second worker has.
        let hash = subpage.0.wrapping_mul(0x9E37_79B9);
        ((u64::from(hash) * self.sets.len() as u64) >> 32) as u32
    }
    /// The most that a set holds without being crowded.
    #[inline]
    fn most(&self) -> usize {
        self.ways.count()
    }
    #[inline]
    fn push(&mut self, frame: u32, set: u32) {
        self.nodes[frame as usize].set = set;
        self.all.push_front(&mut OfAll(&mut self.nodes), frame);
        let most = self.most();
        let of = &mut self.sets[set as usize];
        of.list.push_front(&mut OfSet(&mut self.nodes), frame);
        if of.list.len() == most + 1 {
            self.crowded.push_front(&mut *self.sets, set);
        }
    }
    #[inline]
    fn take(&mut self, frame: u32) {
        let set = self.nodes[frame as usize].set;
        self.all.remove(&mut OfAll(&mut self.nodes), frame);
        let most = self.most();
        let of = &mut self.sets[set as usize];
        of.list.remove(&mut OfSet(&mut self.nodes), frame);
        if of.list.len() == most {
            self.crowded.remove(&mut *self.sets, set);
        }
    }
    /// As recently used as can be.
    #[inline]
    fn freshen(&mut self, frame: u32) {
        if self.all.front() != Some(frame) {
            self.all.remove(&mut OfAll(&mut self.nodes), frame);
            self.all.push_front(&mut OfAll(&mut self.nodes), frame);
        }
        let set = self.nodes[frame as usize].set;
        let list = &mut self.sets[set as usize].list;
        if list.front() != Some(frame) {
            list.remove(&mut OfSet(&mut self.nodes), frame);
            list.push_front(&mut OfSet(&mut self.nodes), frame);
        }
    }
    /// A victim of a list. The first round takes every mark. What the second spares is in use or
    /// not evictable. `Break`: the driver gives up.
    fn scan<V: FrameView>(&mut self, from: From, view: &mut V) -> ControlFlow<Option<LocalFrame>> {
        let list = |sets: &Sets| match from {
            From::All => (sets.all.back(), sets.all.len()),
            From::Set(set) => (sets.sets[set as usize].list.back(), sets.sets[set as usize].list.len()),
        };
        for _ in 0..2 * list(self).1 {
            let Some(last) = list(self).0 else { break };
            let frame = LocalFrame(last);
            let referenced = view.take_referenced(frame);
            if !referenced && view.evictable(frame) {
                self.take(last);
                return ControlFlow::Break(Some(frame));
            }
            self.freshen(last);
            if !referenced && view.gives_up() {
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Replacement for Sets {
    #[inline]
    fn inserted(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        assert!(self.nodes[frame.index()].of_all.is_out(), "frame {} is in the policy already", frame.0);
        self.push(frame.0, self.set_of(subpage));
    }

    #[inline]
    fn touched(&mut self, frame: LocalFrame) {
        self.freshen(frame.0);
    }

    #[inline]
    fn expects(&mut self, subpage: SubpageIndex) {
        self.expected = Some(self.set_of(subpage));
    }

    #[inline]
    fn victim<V: FrameView>(&mut self, view: &mut V) -> Option<LocalFrame> {
        let full = self.expected.take().filter(|set| self.sets[*set as usize].list.len() >= self.most());
        if let Some(set) = full
            && let ControlFlow::Break(found) = self.scan(From::Set(set), view)
        {
            return found;
        }
        // A set whose frames are all in use moves behind the others.
        for _ in 0..self.crowded.len() {
            let Some(set) = self.crowded.back() else { break };
            if let ControlFlow::Break(found) = self.scan(From::Set(set), view) {
                return found;
            }
            self.crowded.remove(&mut *self.sets, set);
            self.crowded.push_front(&mut *self.sets, set);
        }
        match self.scan(From::All, view) {
            ControlFlow::Break(found) => found,
            ControlFlow::Continue(()) => None,
        }
    }

    #[inline]
    fn reinstated(&mut self, frame: LocalFrame, subpage: SubpageIndex) {
        self.inserted(frame, subpage);
    }

    #[inline]
    fn removed(&mut self, frame: LocalFrame) {
        assert!(!self.nodes[frame.index()].of_all.is_out(), "frame {} is not in the policy", frame.0);
        self.take(frame.0);
    }

    /// In the order of all, as nothing is known of the sets that will be crowded.
    fn coldest(
        &self,
        from: ColdCursor,
        most: usize,
        each: &mut dyn FnMut(LocalFrame) -> ControlFlow<()>,
    ) -> ColdCursor {
        // A cursor is the next frame, which may have gone since. Then from the start.
        let here = Some(from.0).filter(|&at| self.nodes.get(at as usize).is_some_and(|node| !node.of_all.is_out()));
        self.all.coldest(here, most, |at| self.nodes[at as usize].of_all, each)
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    fn capacity(&self) -> usize {
        self.nodes.len()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.nodes) + size_of_val(&*self.sets)
    }

    fn check(&self) {
        let all = self.all.check(|at| self.nodes[at as usize].of_all);
        let linked = self.nodes.iter().filter(|node| !node.of_all.is_out()).count();
        assert_eq!(linked, all.len(), "a frame has links and is not in the list");
        let crowded = self.crowded.check(|at| self.sets[at as usize].crowded);
        let mut in_sets = 0;
        for (at, set) in self.sets.iter().enumerate() {
            let frames = set.list.check(|at| self.nodes[at as usize].of_set);
            assert!(frames.iter().all(|frame| self.nodes[*frame as usize].set as usize == at), "a frame's set");
            in_sets += frames.len();
            let listed = crowded.contains(&(at as u32));
            assert_eq!(listed, frames.len() > self.most(), "set {at} of {} frames is crowded or not", frames.len());
        }
        assert_eq!(in_sets, all.len(), "frames of all sets");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Used(Vec<u32>);
    impl FrameView for Used {
        fn take_referenced(&mut self, frame: LocalFrame) -> bool {
            let before = self.0.len();
            self.0.retain(|used| *used != frame.0);
            self.0.len() < before
        }
        fn evictable(&mut self, _frame: LocalFrame) -> bool {
            true
        }
    }

    /// The first subpages of a set.
    fn of_set(sets: &Sets, set: u32) -> impl Iterator<Item = SubpageIndex> + '_ {
        (0..).map(SubpageIndex).filter(move |subpage| sets.set_of(*subpage) == set)
    }

    #[test]
    fn the_least_recently_used_of_a_full_set_makes_way() {
        let mut sets = Sets::new(Ways::Four, 16);
        assert_eq!((sets.sets(), sets.ways().count()), (4, 4));
        let mut frame = 0..;
        for set in 0..4 {
            for subpage in of_set(&sets, set).take(4).collect::<Vec<_>>() {
                sets.inserted(LocalFrame(frame.next().unwrap()), subpage);
            }
        }
        let next = of_set(&sets, 2).nth(4).unwrap();
        sets.touched(LocalFrame(8));
        sets.expects(next);
        assert_eq!(sets.victim(&mut Used(vec![9])), Some(LocalFrame(10)), "8 was touched, 9 is marked");
        sets.inserted(LocalFrame(10), next);
        sets.check();
        // Without a subpage in particular: the oldest of all.
        assert_eq!(sets.victim(&mut Used(vec![])), Some(LocalFrame(0)));
        sets.check();
    }
    #[test]
    fn a_crowded_set_gives_back_what_it_has_too_much() {
        let mut sets = Sets::new(Ways::Four, 16);
        let many: Vec<_> = of_set(&sets, 1).take(7).collect();
        let other = of_set(&sets, 3).next().unwrap();
        sets.inserted(LocalFrame(15), other);
        for (frame, subpage) in many.iter().enumerate() {
            sets.inserted(LocalFrame(frame as u32), *subpage);
        }
        sets.check();
        let mut view = Used(vec![]);
        let victims: Vec<_> = (0..4).filter_map(|_| sets.victim(&mut view)).map(|frame| frame.0).collect();
        assert_eq!(victims, [0, 1, 2, 15], "three too many, and then the oldest of all");
        sets.check();
    }
    #[test]
    fn neighbours_and_strides_are_spread() {
        let sets = Sets::new(Ways::SixtyFour, 64 * 100);
        for stride in [1, 2, 4, 64, 100] {
            let mut counts = vec![0; 100];
            (0..6400).for_each(|n| counts[sets.set_of(SubpageIndex(n * stride)) as usize] += 1);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 44 && *most < 90, "stride {stride}: {least} to {most} of 64");
        }
    }
}
