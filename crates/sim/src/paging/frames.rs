//! The frames of a controller, or of an operating system: which subpage is in which, and which is
//! evicted when another comes. That decision is one of `fulgurite_policy`. A victim is evicted when
//! a frame is needed, as in the hardware and the kernels that the papers compare. The runtime's own
//! frames, of which a stock is kept free, are `fulgurite_cache`'s (`workers`).
//!
//! Invariants ([`Frames::check`]): a subpage is in at most one frame. A frame whose contents are on
//! their way, or which a thread waits for, is no victim.

use fulgurite_format::{LocalFrame, SubpageIndex};
use fulgurite_policy::{FrameView, Replacement};

const NONE: u32 = u32::MAX;
/// Times that a policy is asked again when a scan has found all frames used.
const SCANS: u32 = 16;

struct Marks {
    referenced: Vec<bool>,
    /// Threads that wait for the frame, or have not run since it came.
    pins: Vec<u32>,
}

impl FrameView for Marks {
    fn take_referenced(&mut self, frame: LocalFrame) -> bool {
        core::mem::take(&mut self.referenced[frame.index()])
    }
    fn evictable(&mut self, frame: LocalFrame) -> bool {
        self.pins[frame.index()] == 0
    }
}

/// What was evicted to make place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    pub subpage: u32,
    pub dirty: bool,
    /// It was read ahead, and never touched.
    pub prefetched: bool,
}

/// Where a subpage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residency {
    /// In a frame.
    Resident(u32),
    /// On its way to one.
    Coming(u32),
    /// In flash.
    Absent,
}

pub struct Frames<R> {
    replacement: R,
    marks: Marks,
    holds: Vec<u32>,
    dirty: Vec<bool>,
    coming: Vec<bool>,
    prefetched: Vec<bool>,
    places: Vec<u32>,
    free: Vec<u32>,
}

impl<R: Replacement> Frames<R> {
    /// Empty ones, as many as the policy is for.
    pub fn new(replacement: R, subpages: u32) -> Frames<R> {
        let frames = replacement.capacity() as u32;
        let of = |value| vec![value; frames as usize];
        Frames {
            replacement,
            marks: Marks { referenced: of(false), pins: vec![0; frames as usize] },
            holds: vec![NONE; frames as usize],
            dirty: of(false),
            coming: of(false),
            prefetched: of(false),
            places: vec![NONE; subpages as usize],
            free: (0..frames).rev().collect(),
        }
    }
    pub fn residency(&self, subpage: u32) -> Residency {
        match self.places[subpage as usize] {
            NONE => Residency::Absent,
            frame if self.coming[frame as usize] => Residency::Coming(frame),
            frame => Residency::Resident(frame),
        }
    }
    /// A hit.
    pub fn used(&mut self, frame: u32, writes: bool) {
        self.marks.referenced[frame as usize] = true;
        self.dirty[frame as usize] |= writes;
    }
    /// An access that has waited for the frame: no sign of another use.
    pub fn waited(&mut self, frame: u32, writes: bool) {
        self.dirty[frame as usize] |= writes;
        self.marks.pins[frame as usize] -= 1;
    }
    pub fn pin(&mut self, frame: u32) {
        self.marks.pins[frame as usize] += 1;
    }
    /// What comes to the frame was read ahead.
    pub fn prefetch(&mut self, frame: u32) {
        self.prefetched[frame as usize] = true;
    }
    /// Whether it was, and nothing has touched it since. This is reported once.
    pub fn take_prefetched(&mut self, frame: u32) -> bool {
        std::mem::take(&mut self.prefetched[frame as usize])
    }
    /// Gives a frame to a subpage that comes. None: every frame waits or is waited for.
    pub fn take(&mut self, subpage: u32) -> Option<(u32, Option<Victim>)> {
        let (frame, victim) = match self.free.pop() {
            Some(frame) => (frame, None),
            None => {
                self.replacement.expects(SubpageIndex(subpage));
                let (frame, victim) = self.evict()?;
                (frame, Some(victim))
            }
        };
        let at = frame as usize;
        (self.holds[at], self.dirty[at], self.coming[at]) = (subpage, false, true);
        self.places[subpage as usize] = frame;
        Some((frame, victim))
    }
    /// Takes what a frame holds out of it.
    fn evict(&mut self) -> Option<(u32, Victim)> {
        let frame = (0..SCANS).find_map(|_| self.replacement.victim(&mut self.marks))?.0;
        let old = std::mem::replace(&mut self.holds[frame as usize], NONE);
        self.places[old as usize] = NONE;
        let (dirty, prefetched) = (self.dirty[frame as usize], self.take_prefetched(frame));
        Some((frame, Victim { subpage: old, dirty, prefetched }))
    }
    /// Frees a frame ahead of its use. None: every frame waits or is waited for.
    pub fn reclaim(&mut self) -> Option<Victim> {
        let (frame, victim) = self.evict()?;
        self.free.push(frame);
        Some(victim)
    }
    /// Frames that are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }
    /// The contents have come.
    pub fn arrived(&mut self, frame: u32) {
        let at = frame as usize;
        (self.coming[at], self.marks.referenced[at]) = (false, false);
        self.replacement.inserted(LocalFrame(frame), SubpageIndex(self.holds[at]));
    }
    /// Asserts the invariants. Takes time in proportion to the subpages.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.replacement.check();
        for (subpage, frame) in self.places.iter().enumerate().filter(|(_, frame)| **frame != NONE) {
            assert_eq!(self.holds[*frame as usize] as usize, subpage, "a frame holds another subpage");
        }
        let held = self.holds.iter().filter(|subpage| **subpage != NONE).count();
        assert_eq!(held, self.places.iter().filter(|frame| **frame != NONE).count(), "a subpage is in two frames");
        let coming = self.coming.iter().filter(|coming| **coming).count();
        assert_eq!(self.replacement.len() + coming + self.free.len(), self.holds.len(), "a frame is lost");
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_policy::{AnyReplacement, ReplacementPolicy};

    use super::*;
    use crate::random::Random;

    #[test]
    fn frames_are_given_away_once() {
        for policy in ReplacementPolicy::ALL {
            let (mut frames, mut random) = (Frames::new(AnyReplacement::new(policy, 20), 200), Random::new(1, 0));
            let mut coming = Vec::new();
            for _ in 0..5000 {
                let subpage = random.below(200) as u32;
                match frames.residency(subpage) {
                    Residency::Resident(frame) => frames.used(frame, random.below(3) == 0),
                    Residency::Coming(_) => {}
                    Residency::Absent => {
                        let (frame, _) = frames.take(subpage).expect("few wait");
                        frames.pin(frame);
                        coming.push(frame);
                    }
                }
                if coming.len() > 5 {
                    let frame = coming.swap_remove(random.below(coming.len() as u64) as usize);
                    frames.arrived(frame);
                    frames.waited(frame, false);
                }
            }
            frames.check();
        }
    }
    #[test]
    fn what_is_waited_for_stays() {
        let mut frames = Frames::new(AnyReplacement::new(ReplacementPolicy::Clock, 2), 10);
        for subpage in [0, 1] {
            let (frame, victim) = frames.take(subpage).unwrap();
            assert_eq!(victim, None);
            frames.pin(frame);
            frames.arrived(frame);
        }
        assert_eq!(frames.take(2), None);
        frames.waited(1, true);
        assert_eq!(frames.take(2).unwrap().1, Some(Victim { subpage: 1, dirty: true, prefetched: false }));
        frames.check();
    }
}
