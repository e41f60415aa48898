//! Keeps a medium busy: so many requests in flight for so long, the same loop for a pool and for what it lies on.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use fulgurite_flash::{Flash, Op, Queue, Request, Switches};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex, crc32c};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};
use fulgurite_workloads::Random;

/// Requests in flight, at the most.
pub const DEPTH: usize = 64;
/// How long the last completions are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    RandomReads,
    /// The same, fewer in flight: the medium's latency decides, and not the processors of who asks and, where the medium is played by
    /// one, of the medium.
    FewRandomReads,
    /// Writes one after the other.
    OrderedWrites,
    RandomWrites,
}

impl Kind {
    /// All, in the order of a round.
    pub const ALL: [Kind; 4] = [Kind::RandomReads, Kind::FewRandomReads, Kind::OrderedWrites, Kind::RandomWrites];
    /// Whether it only reads.
    pub fn reads(self) -> bool {
        matches!(self, Kind::RandomReads | Kind::FewRandomReads)
    }
    pub fn depth(self) -> usize {
        if self == Kind::FewRandomReads { DEPTH / 8 } else { DEPTH }
    }
    pub fn name(self) -> &'static str {
        match self {
            Kind::RandomReads => "random reads",
            Kind::FewRandomReads => "a few random reads",
            Kind::OrderedWrites => "sequential writes",
            Kind::RandomWrites => "random writes",
        }
    }
}

/// What is asked of it, of which subpages, and for how long.
#[derive(Clone, Debug)]
pub struct Load {
    pub kind: Kind,
    pub subpages: Range<u32>,
    /// A flush after so many writes, beside those that follow.
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

/// Who makes the sum of what is read.
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
    ///
    /// # Errors
    /// When there is no queue.
    pub fn new(flash: &dyn Flash) -> Result<Driver> {
        Self::with_depth(flash, DEPTH)
    }
    /// The same, with so many requests in flight at most.
    ///
    /// # Errors
    /// When there is no queue.
    pub fn with_depth(flash: &dyn Flash, depth: usize) -> Result<Driver> {
        let frames = Arc::new(Arena::anonymous(depth * SUBPAGE_BYTES, Backed::BasePages)?);
        frames.zero(0, frames.len());
        let queue = flash.open_queue(frames.clone(), depth, Arc::new(Notifier::new()?))?;
        Ok(Driver { queue, frames, next: 0, sums: Sums::Nobody })
    }
    /// The same, which has a sum made of each subpage that it reads, as a pool has: by the medium where that makes sums, else here.
    ///
    /// # Errors
    /// When there is no queue.
    pub fn that_sums(flash: &dyn Flash) -> Result<Driver> {
        let mut driver = Driver::new(flash)?;
        let wanted = Switches { checksums: true, ..Switches::default() };
        driver.sums = if driver.queue.switch(wanted).checksums { Sums::Medium } else { Sums::Here };
        Ok(driver)
    }
    fn sum(&self, frame: usize) -> u32 {
        let mut copied = Copied([0; SUBPAGE_BYTES]);
        self.frames.read(frame * SUBPAGE_BYTES, &mut copied.0);
        crc32c(&copied.0)
    }
    /// Writes these subpages, and waits until all are written.
    ///
    /// # Errors
    /// When one fails.
    pub fn write(&mut self, subpages: impl Iterator<Item = u32>) -> Result<()> {
        self.all(Op::Write, subpages)
    }
    /// Makes durable what was written.
    ///
    /// # Errors
    /// When that fails.
    pub fn flush(&mut self) -> Result<()> {
        self.all(Op::Flush, std::iter::once(0))
    }
    fn all(&mut self, op: Op, mut subpages: impl Iterator<Item = u32>) -> Result<()> {
        let depth = self.queue.depth();
        let (mut free, mut completions) = ((0..depth as u32).collect::<Vec<_>>(), Vec::with_capacity(depth));
        let mut more = true;
        loop {
            // Half of them at a time: what is handed over together goes out as large requests.
            let batch = free.len() >= depth / 2;
            while more
                && batch
                && let Some(frame) = free.pop()
            {
                let Some(subpage) = subpages.next() else {
                    more = false;
                    break;
                };
                // The frames are as they are, but for a word.
                self.frames.write(frame as usize * SUBPAGE_BYTES, &u64::from(subpage).to_le_bytes());
                let (subpage, index) = (SubpageIndex(subpage), FrameIndex(frame));
                self.queue.submit(Request { tag: frame.into(), op, subpage, frame: index })?;
            }
            if self.queue.in_flight() == 0 {
                return Ok(());
            }
            self.queue.flush()?;
            if self.queue.poll(&mut completions) == 0 {
                self.queue.wait(Some(Duration::from_millis(10)));
            }
            for completion in completions.drain(..) {
                free.push(completion.tag as u32);
                completion.result?;
            }
        }
    }
    /// Requests a second.
    ///
    /// # Errors
    /// When one fails, or does not end.
    pub fn per_second(&mut self, load: &Load) -> Result<f64> {
        let Load { kind, ref subpages, flush_every, seed, time } = *load;
        let (clock, mut random) = (Clock::get(), Random::new(seed, 0));
        let (start, count) = (clock.now_ns(), subpages.len() as u32);
        let end = start + time.as_nanos() as u64;
        let (mut done, mut written, mut completions) = (0u64, 0u64, Vec::with_capacity(DEPTH));
        let mut free: Vec<u32> = (0..kind.depth() as u32).collect();
        let mut last = end + PATIENCE.as_nanos() as u64;
        let mut failed = None;
        loop {
            let now = clock.now_ns();
            let more = now < end && failed.is_none();
            while more && let Some(frame) = free.pop() {
                let flush = !kind.reads() && written == flush_every;
                let op = match kind {
                    _ if flush => Op::Flush,
                    Kind::RandomReads | Kind::FewRandomReads => Op::Read,
                    Kind::OrderedWrites | Kind::RandomWrites => Op::Write,
                };
                let place = match kind {
                    Kind::OrderedWrites => {
                        self.next = (self.next + u32::from(!flush)) % count;
                        self.next
                    }
                    Kind::RandomReads | Kind::FewRandomReads | Kind::RandomWrites => random.below(count.into()) as u32,
                };
                written = if flush { 0 } else { written + 1 };
                if op == Op::Write {
                    // No two writes alike, for devices that would notice.
                    let word = random.next().to_le_bytes();
                    self.frames.write(frame as usize * SUBPAGE_BYTES, &word);
                }
                let subpage = SubpageIndex(subpages.start + place);
                self.queue.submit(Request { tag: frame.into(), op, subpage, frame: FrameIndex(frame) })?;
            }
            self.queue.flush()?;
            if self.queue.poll(&mut completions) == 0 {
                if !more && self.queue.in_flight() == 0 {
                    break;
                }
                self.queue.wait(Some(Duration::from_millis(10)));
            }
            for completion in completions.drain(..) {
                free.push(completion.tag as u32);
                match completion.result {
                    Ok(()) => {
                        if kind.reads() && self.sums == Sums::Here {
                            black_box(self.sum(completion.tag as usize));
                        }
                        done += 1;
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if more {
                last = now + PATIENCE.as_nanos() as u64;
            } else if now > last {
                bail!("{} requests did not end in {PATIENCE:?}", self.queue.in_flight());
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        // What was under way when the time was over has ended, too.
        Ok(done as f64 * 1e9 / (clock.now_ns() - start) as f64)
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
        assert_eq!(driver.sum(3), crc32c(&[7; SUBPAGE_BYTES]));
        let load =
            Load { kind: Kind::RandomReads, subpages: 0..64, flush_every: 10, seed: 1, time: Duration::from_millis(5) };
        assert!(driver.per_second(&load).unwrap() > 0.0);
    }
    #[test]
    fn it_does_what_it_is_asked_for() {
        let flash = MemoryFlash::new(64).unwrap();
        let mut driver = Driver::new(&flash).unwrap();
        let mut before = flash.counters();
        for kind in Kind::ALL {
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
        assert!(front.iter().all(|byte| *byte == 0), "it stays where it was told to");
    }
}
