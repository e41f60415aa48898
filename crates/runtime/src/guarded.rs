//! Guarded pointers as users of frames: each worker's slot names the frame that its running fiber
//! holds without a pin. Threads that run operations themselves have slots in their seats.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use fulgurite_cache::{Frames, Planted, Users, residency};
use fulgurite_format::FrameIndex;

use crate::guest::seats::Seats;

/// One slot for each worker: the word of the frame that its running fiber may reference without a
/// pin.
pub(crate) struct Slots(Box<[CachePadded<AtomicU32>]>);

impl Slots {
    pub(crate) fn new(workers: usize) -> Slots {
        Slots((0..workers).map(|_| CachePadded::new(AtomicU32::new(residency::NOTHING))).collect())
    }
    #[inline(always)]
    pub(crate) fn of(&self, worker: u32) -> &AtomicU32 {
        &self.0[worker as usize]
    }
}

/// The users of one worker's frames: the fibers of all workers, and threads.
///
/// The worker's own slot is not asked. Eviction runs at scheduling points or inside an access, and
/// neither leaves an unpinned reference alive.
pub(crate) struct Guarded {
    worker: u32,
    slots: Arc<Slots>,
    seats: Arc<Seats>,
    /// The other workers' and threads' slots, as they were after the last barrier.
    read: Vec<u32>,
    planted: Option<Planted>,
}

impl Guarded {
    pub(crate) fn new(worker: u32, slots: Arc<Slots>, seats: Arc<Seats>, planted: Option<Planted>) -> Guarded {
        let read = Vec::with_capacity(slots.0.len());
        Guarded { worker, slots, seats, read, planted }
    }
}

impl Users for Guarded {
    /// Makes every other worker execute a barrier and reads the slots, once for a batch, because
    /// each read fetches a line that its worker writes at every hit. After the barrier no use of
    /// earlier unlinked frames can begin.
    fn take_away(&mut self, _: &Frames, _: impl Iterator<Item = FrameIndex>) -> bool {
        if self.slots.0.len() == 1 && !self.seats.any() {
            return false;
        }
        fulgurite_sys::barrier::expedited();
        let others = self.slots.0.iter().enumerate().filter(|(worker, _)| *worker != self.worker as usize);
        self.read.clear();
        self.read.extend(others.map(|(_, slot)| slot.load(Ordering::Acquire)));
        self.seats.named(&mut self.read);
        true
    }
    fn holds(&self, frame: FrameIndex) -> bool {
        self.planted != Some(Planted::NoSlots) && self.read.iter().any(|&slot| residency::protects(slot, frame))
    }
}
