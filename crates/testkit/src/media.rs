//! Stamped frames, and a driver of a medium that waits for its requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::*;
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier};

/// Fresh frames.
pub fn arena(frames: u32) -> Arc<Arena> {
    Arc::new(Arena::anonymous(frames as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap())
}

/// A request.
pub fn request(tag: u64, op: Op, subpage: u32, frame: u32) -> Request {
    Request { tag, op, subpage: SubpageIndex(subpage), frame: FrameIndex(frame) }
}

/// Fills a frame so that each of its 512 words shows the stamp.
pub fn fill(arena: &Arena, frame: u32, stamp: u64) {
    let bytes: Vec<u8> = (0..512u64).flat_map(|i| (stamp ^ i.wrapping_mul(stamp | 1)).to_le_bytes()).collect();
    arena.write(frame as usize * SUBPAGE_BYTES, &bytes);
}

/// The stamp that a frame was filled with. None if it is torn, as a frame of zeros is.
pub fn stamp_of(arena: &Arena, frame: u32) -> Option<u64> {
    let mut bytes = [0; SUBPAGE_BYTES];
    arena.read(frame as usize * SUBPAGE_BYTES, &mut bytes);
    let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let whole = (0..512u64).zip(bytes.chunks(8)).all(|(i, b)| b == (stamp ^ i.wrapping_mul(stamp | 1)).to_le_bytes());
    whole.then_some(stamp)
}

/// A queue whose requests are waited for.
pub struct Driver {
    /// The queue, for what is not waited for.
    pub queue: Box<dyn Queue>,
    tag: u64,
}

impl Driver {
    /// Opens a queue on a medium.
    pub fn new(flash: &dyn Flash, frames: &Arc<Arena>, depth: usize) -> Driver {
        Driver::open(flash, frames, depth).unwrap()
    }
    /// Opens a queue on a medium, where that may be refused.
    ///
    /// # Errors
    /// The errors of [`Flash::open_queue`].
    pub fn open(flash: &dyn Flash, frames: &Arc<Arena>, depth: usize) -> Result<Driver, OpenError> {
        let wake = Arc::new(Notifier::new().unwrap());
        Ok(Driver { queue: flash.open_queue(frames.clone(), depth, wake)?, tag: 1000 })
    }
    /// Submits, and returns the tag.
    pub fn submit(&mut self, op: Op, subpage: u32, frame: u32) -> u64 {
        self.tag += 1;
        self.queue.submit(request(self.tag, op, subpage, frame)).unwrap();
        self.tag
    }
    /// Waits for all in flight; returns results by tag.
    pub fn finish_all(&mut self) -> HashMap<u64, Result<(), FlashError>> {
        let _ = self.queue.flush();
        let mut all = Vec::new();
        // By the clock, not by the number of waits: a wait may return early as often as it likes.
        let start = std::time::Instant::now();
        while self.queue.in_flight() > 0 {
            if self.queue.poll(&mut all) == 0 {
                self.queue.wait(Some(Duration::from_secs(5)));
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "{} requests never complete",
                    self.queue.in_flight()
                );
            }
        }
        let count = all.len();
        let map: HashMap<_, _> = all.into_iter().map(|c| (c.tag, c.result)).collect();
        assert_eq!(map.len(), count, "a request completed twice");
        map
    }
    /// One request, to its end.
    ///
    /// # Errors
    /// The error of the request.
    pub fn one(&mut self, op: Op, subpage: u32, frame: u32) -> Result<(), FlashError> {
        let tag = self.submit(op, subpage, frame);
        self.finish_all()[&tag]
    }
}
