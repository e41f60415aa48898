//! Users of frames in the simulation: each worker's slot names the frame that its fiber is at. All
//! is on one thread, so no processor is interrupted. Tested is that the cache asks in time, and
//! heeds the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fulgurite_cache::residency::{NOTHING, protects};
use fulgurite_cache::{Frames, Users};
use fulgurite_format::FrameIndex;

/// One slot for each worker.
#[derive(Debug)]
pub struct Slots(Vec<AtomicU32>);

impl Slots {
    pub fn new(workers: usize) -> Arc<Slots> {
        Arc::new(Slots((0..workers).map(|_| AtomicU32::new(NOTHING)).collect()))
    }
    pub fn of(&self, worker: usize) -> &AtomicU32 {
        &self.0[worker]
    }
    pub fn clear(&self, worker: usize) {
        self.0[worker].store(NOTHING, Ordering::Relaxed);
    }
}

pub struct Simulated {
    slots: Arc<Slots>,
    /// The last batch, and whether a slot named each frame.
    taken: Vec<(FrameIndex, bool)>,
}

impl Simulated {
    pub fn new(slots: Arc<Slots>) -> Simulated {
        Simulated { slots, taken: Vec::new() }
    }
}

impl Users for Simulated {
    fn take_away(&mut self, _: &Frames, batch: impl Iterator<Item = FrameIndex>) -> bool {
        let named = |frame| self.slots.0.iter().any(|slot| protects(slot.load(Ordering::Relaxed), frame));
        self.taken = batch.map(|frame| (frame, named(frame))).collect();
        true
    }
    fn holds(&self, frame: FrameIndex) -> bool {
        let taken = self.taken.iter().find(|(taken, _)| *taken == frame);
        taken.expect("a frame is asked about that was not taken away").1
    }
}
