//! Keeps a medium busy for a given time, by the same loop for a pool and for its medium.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fulgurite_flash::{Asks, Completion, Flash, FlashError, Op, Queue, Request, Switches, keep_busy};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex, crc32c};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};
use fulgurite_workloads::Random;

use fulgurite_term::names;

/// Requests in flight at most.
pub const DEPTH: usize = 64;

names! {
    /// In the order of a round.
    Kind {
        RandomReads = "random reads",
        /// Fewer in flight: the medium decides, and not the processors of both sides.
        FewRandomReads = "a few random reads",
        OrderedWrites = "sequential writes",
        RandomWrites = "random writes",
    }
}

impl Kind {
    /// Whether it only reads.
    pub fn reads(self) -> bool {
        matches!(self, Kind::RandomReads | Kind::FewRandomReads)
    }
    pub fn depth(self) -> usize {
        if self == Kind::FewRandomReads { DEPTH / 8 } else { DEPTH }
    }
}

/// What is asked of it, of which subpages, and for how long.
#[derive(Clone, Debug)]
pub struct Load {
    pub kind: Kind,
    pub subpages: Range<u32>,
    /// A flush follows this number of writes, while the next ones are already in flight.
    pub flush_every: u64,
    pub seed: u64,
    pub time: Duration,
}

pub struct Driver {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    /// Where it goes on writing in order.
    next: u32,
    sums: Sums,
}

/// Where the sum of what is read is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sums {
    Nobody,
    Medium,
    Here,
}

/// A subpage as it was read, to be summed.
#[repr(align(64))]
struct Copied([u8; SUBPAGE_BYTES]);

impl Driver {
    /// On a medium.
    pub fn new(flash: &dyn Flash) -> Result<Driver> {
        Self::with_depth(flash, DEPTH)
    }
    /// A driver with at most `depth` requests in flight.
    pub fn with_depth(flash: &dyn Flash, depth: usize) -> Result<Driver> {
        let frames = Arc::new(Arena::anonymous(depth * SUBPAGE_BYTES, Backed::BasePages)?);
        frames.zero(0, frames.len());
        let queue = flash.open_queue(frames.clone(), depth, Arc::new(Notifier::new()?))?;
        Ok(Driver { queue, frames, next: 0, sums: Sums::Nobody })
    }
    /// A driver that sums each subpage it reads: by the medium where it can, else here.
    pub fn that_sums(flash: &dyn Flash) -> Result<Driver> {
        let mut driver = Driver::new(flash)?;
        let wanted = Switches { checksums: true, ..Switches::default() };
        driver.sums = if driver.queue.switch(wanted).checksums { Sums::Medium } else { Sums::Here };
        Ok(driver)
    }
    /// Writes these subpages, and waits until all are written.
    pub fn write(&mut self, subpages: impl Iterator<Item = u32>) -> Result<()> {
        self.all(Op::Write, subpages)
    }
    /// Makes durable what was written.
    pub fn flush(&mut self) -> Result<()> {
        self.all(Op::Flush, std::iter::once(0))
    }
    fn all(&mut self, op: Op, subpages: impl Iterator<Item = u32>) -> Result<()> {
        let depth = self.queue.depth();
        let mut asks = Each { op, subpages, frames: &self.frames };
        // Half of them at a time: what is handed over together goes out as large requests.
        Ok(keep_busy(&mut *self.queue, depth, depth / 2, &mut asks)?)
    }
    /// Requests a second.
    pub fn per_second(&mut self, load: &Load) -> Result<f64> {
        let clock = Clock::get();
        let start = clock.now_ns();
        let mut asks = Timed {
            load,
            frames: &self.frames,
            now: start,
            end: start + load.time.as_nanos() as u64,
            random: Random::new(load.seed, 0),
            at: self.next,
            unflushed: 0,
            sums: self.sums == Sums::Here && load.kind.reads(),
            done: 0,
        };
        keep_busy(&mut *self.queue, load.kind.depth(), 1, &mut asks)?;
        self.next = asks.at;
        // What was under way when the time was over has ended, too.
        Ok(asks.done as f64 * 1e9 / (clock.now_ns() - start) as f64)
    }
}

fn sum(frames: &Arena, frame: usize) -> u32 {
    let mut copied = Copied([0; SUBPAGE_BYTES]);
    frames.read(frame * SUBPAGE_BYTES, &mut copied.0);
    crc32c(&copied.0)
}

/// One request for each of these subpages.
struct Each<'d, I> {
    op: Op,
    subpages: I,
    frames: &'d Arena,
}

impl<I: Iterator<Item = u32>> Asks for Each<'_, I> {
    type Error = FlashError;

    fn next(&mut self, slot: u32) -> Result<Option<Request>, FlashError> {
        Ok(self.subpages.next().map(|subpage| {
            // The frames are as they are, but for a word.
            self.frames.write(slot as usize * SUBPAGE_BYTES, &u64::from(subpage).to_le_bytes());
            Request { tag: slot.into(), op: self.op, subpage: SubpageIndex(subpage), frame: FrameIndex(slot) }
        }))
    }
    fn ended(&mut self, completion: Completion) -> Result<(), FlashError> {
        completion.result
    }
}

/// A load, until its time is over.
struct Timed<'d> {
    load: &'d Load,
    frames: &'d Arena,
    now: u64,
    end: u64,
    random: Random,
    /// Where it writes in order.
    at: u32,
    /// Writes since the last flush.
    unflushed: u64,
    sums: bool,
    done: u64,
}

impl Asks for Timed<'_> {
    type Error = FlashError;

    fn about_to_poll(&mut self) {
        self.now = Clock::get().now_ns();
    }
    fn next(&mut self, slot: u32) -> Result<Option<Request>, FlashError> {
        if self.now >= self.end {
            return Ok(None);
        }
        let Load { kind, ref subpages, flush_every, .. } = *self.load;
        let op = match kind.reads() {
            true => Op::Read,
            false if self.unflushed == flush_every => Op::Flush,
            false => Op::Write,
        };
        let count = subpages.len() as u32;
        let place = if kind == Kind::OrderedWrites {
            self.at = (self.at + u32::from(op == Op::Write)) % count;
            self.at
        } else {
            self.random.below(count.into()) as u32
        };
        self.unflushed = if op == Op::Flush { 0 } else { self.unflushed + 1 };
        if op == Op::Write {
            // No two writes alike, for devices that would notice.
            self.frames.write(slot as usize * SUBPAGE_BYTES, &self.random.next().to_le_bytes());
        }
        let subpage = SubpageIndex(subpages.start + place);
        Ok(Some(Request { tag: slot.into(), op, subpage, frame: FrameIndex(slot) }))
    }
    fn ended(&mut self, completion: Completion) -> Result<(), FlashError> {
        completion.result?;
        if self.sums {
            black_box(sum(self.frames, completion.tag as usize));
        }
        self.done += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_flash::MemoryFlash;

    #[test]
    fn sums_are_of_what_is_read() {
        let flash = MemoryFlash::new(64).unwrap();
        let mut driver = Driver::that_sums(&flash).unwrap();
        assert_ne!(driver.sums, Sums::Nobody);
        driver.frames.write(3 * SUBPAGE_BYTES, &[7; SUBPAGE_BYTES]);
        assert_eq!(sum(&driver.frames, 3), crc32c(&[7; SUBPAGE_BYTES]));
        let load =
            Load { kind: Kind::RandomReads, subpages: 0..64, flush_every: 10, seed: 1, time: Duration::from_millis(5) };
        assert!(driver.per_second(&load).unwrap() > 0.0);
    }
    #[test]
    fn it_does_what_it_is_asked_for() {
        let flash = MemoryFlash::new(64).unwrap();
        let mut driver = Driver::new(&flash).unwrap();
        let mut before = flash.counters();
        for kind in Kind::ALL.iter().copied() {
            let load = Load { kind, subpages: 32..64, flush_every: 10, seed: 1, time: Duration::from_millis(5) };
            assert!(driver.per_second(&load).unwrap() > 0.0);
            let after = flash.counters();
            let (reads, writes) = (after.reads - before.reads, after.writes - before.writes);
            assert_eq!((reads > 0, writes > 0), (kind.reads(), !kind.reads()), "{kind:?}");
            before = after;
        }
        let before = flash.counters();
        driver.write(32..40).unwrap();
        driver.flush().unwrap();
        let after = flash.counters();
        assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (8, 1));
        let mut front = vec![1; 32 * SUBPAGE_BYTES];
        flash.storage().read(0, &mut front);
        assert!(front.iter().all(|byte| *byte == 0), "it stays where it was asked to");
    }
}
