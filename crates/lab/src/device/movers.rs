//! What moves a chunk, in the modes that are compared.
//!
//! Invariant: a mover ends what it began before it returns. Its queue, memory and connection exist
//! before its time begins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use fulgurite_device::{Link as _, SECTOR_BYTES, SocketLink};
use fulgurite_flash::{Flash, Op, Queue, Request, Switches};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, clock};
use fulgurite_workloads::Random;

/// How long an idle firmware spins. Several share one core, and those not measured must sleep: less
/// than [`SETTLE`], more than a measuring host's pauses.
pub const SPIN: Duration = Duration::from_micros(500);
/// Between two measurements, so that the last one's server sleeps.
pub const SETTLE: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    pub op: Op,
    pub chunk: u32,
    pub depth: usize,
    /// Sectors of data buffer; none: enough.
    pub buffer: Option<u32>,
    pub time: Duration,
    pub seed: u64,
    /// Also measure the copies alone, in turns with it.
    pub with_copies: bool,
    /// Sectors that single reads go into, one place after the other. At least a chunk.
    pub into_sectors: u32,
    /// Copies are held to this number of bytes a second, as if a slow DMA made them.
    pub copies_per_s: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ran {
    pub chunks: u64,
    pub ns: f64,
    /// With what was measured in turns with them.
    pub all_ns: f64,
    /// Of those that were alone, the middle one's time.
    pub median_ns: Option<f64>,
    /// The middle one's of the same copies alone, in turns with them.
    pub copy_ns: Option<f64>,
    /// Time in which this thread polled in vain. None where that cannot be separated.
    pub vain_ns: Option<f64>,
    /// CPU time of this thread, the kernel's on its behalf included, but for what it computed.
    pub cpu_ns: f64,
    /// CPU time of what serves it: other threads here, kernel workers, a device elsewhere.
    pub other_cpu_ns: f64,
}

impl Ran {
    /// The copies alone, where they were measured in turns with it. Nobody serves them.
    pub fn copy(&self) -> Option<Ran> {
        let ns = self.copy_ns?;
        let all = ns * self.chunks as f64;
        let chunks = self.chunks;
        Some(Ran { chunks, ns: all, all_ns: all, median_ns: Some(ns), cpu_ns: all, ..Ran::default() })
    }
}

pub trait ChunkMover {
    fn run(&mut self, work: &Work) -> Result<Ran>;
}

/// A poll in vain that takes longer than this was interrupted: by the kernel, or the hypervisor.
const POLL_MAX_NS: u64 = 5_000;

/// CPU time of this process's other threads, and of the kernel's workers for it.
fn others_cpu() -> Duration {
    clock::process_cpu().saturating_sub(clock::thread_cpu())
}

pub struct Meter {
    pub clock: Clock,
    pub begun_ns: u64,
    end_ns: u64,
    cpu: Duration,
    others: Duration,
    vain_ns: Option<u64>,
    computed_ns: u64,
    chunks: u64,
    /// When the last chunk ended, and how long each took, where they come one at a time.
    last_ns: u64,
    each_ns: Option<Vec<u64>>,
}

impl Meter {
    pub fn begin(work: &Work) -> Meter {
        let (others, cpu, clock) = (others_cpu(), clock::thread_cpu(), Clock::get());
        let begun_ns = clock.now_ns();
        let end_ns = begun_ns + u64::try_from(work.time.as_nanos()).unwrap_or(u64::MAX / 2);
        let each_ns = (work.depth == 1).then(|| Vec::with_capacity(1 << 16));
        Meter {
            clock,
            begun_ns,
            end_ns,
            cpu,
            others,
            vain_ns: None,
            computed_ns: 0,
            chunks: 0,
            last_ns: begun_ns,
            each_ns,
        }
    }
    /// A chunk has ended, at about `at_ns`. Returns whether there is time for another one. Only
    /// single chunks read the clock again: for several its price would matter.
    #[inline]
    pub fn ended(&mut self, at_ns: u64) -> bool {
        self.chunks += 1;
        let Some(each) = &mut self.each_ns else { return at_ns < self.end_ns };
        let now = self.clock.now_ns();
        each.push(now - self.last_ns);
        self.last_ns = now;
        now < self.end_ns
    }
    /// Notes a poll that began at `at_ns` and ends now, in particular one in vain. Returns the
    /// time.
    #[inline]
    pub fn polled(&mut self, at_ns: u64, moved: bool) -> u64 {
        let now = self.clock.now_ns();
        let vain = if moved { 0 } else { (now - at_ns).min(POLL_MAX_NS) };
        self.vain_ns = Some(self.vain_ns.unwrap_or(0) + vain);
        now
    }
    /// Computes for a time, which is left out of the host thread's CPU time. Where the kernel
    /// takes the core meanwhile, that is some microseconds too much.
    pub fn computes(&mut self, ns: u64) {
        self.clock.spin(ns);
        self.computed_ns += ns;
    }
    /// Ends, where somebody else has counted the chunks.
    pub fn ran_of(mut self, chunks: u64) -> Result<Ran> {
        (self.chunks, self.each_ns) = (chunks, None);
        self.ran()
    }
    pub fn ran(mut self) -> Result<Ran> {
        let ns = self.clock.now_ns() - self.begun_ns;
        let cpu = clock::thread_cpu() - self.cpu;
        let others = others_cpu().saturating_sub(self.others);
        ensure!(self.chunks > 0, "nothing was moved");
        let median_ns = self.each_ns.take().map(|mut each| middle(&mut each));
        Ok(Ran {
            chunks: self.chunks,
            ns: ns as f64,
            all_ns: ns as f64,
            median_ns,
            copy_ns: None,
            vain_ns: self.vain_ns.map(|ns| ns as f64),
            cpu_ns: (cpu.as_nanos() as f64 - self.computed_ns as f64).max(0.0),
            other_cpu_ns: others.as_nanos() as f64,
        })
    }
}

/// The middle one.
///
/// # Panics
/// When there are none.
pub fn middle(each: &mut [u64]) -> f64 {
    let middle = each.len() / 2;
    *each.select_nth_unstable(middle).1 as f64
}

/// The thread of a device in another process: what it uses.
pub struct Elsewhere {
    link: Arc<SocketLink>,
}

impl Elsewhere {
    /// Of the device at the other end.
    pub fn new(link: Arc<SocketLink>) -> Elsewhere {
        Elsewhere { link }
    }
    /// CPU time that it has used. The device updates it when it goes to sleep.
    pub fn used_ns(&self) -> f64 {
        std::thread::sleep(SETTLE);
        self.link.counters().device_cpu_ns as f64
    }
    /// CPU time of a run since `before`, without the spinning after its last command.
    pub fn since(&self, before: f64) -> f64 {
        (self.used_ns() - before - SPIN.as_nanos() as f64).max(0.0)
    }
}

/// Where the next chunk is: at a multiple of its size.
pub struct ChunkOffsets {
    random: Random,
    chunks: u64,
    chunk: u32,
}

impl ChunkOffsets {
    /// Of a device of `sectors` sectors.
    pub fn of(work: &Work, sectors: u32) -> ChunkOffsets {
        ChunkOffsets {
            random: Random::new(work.seed, 0),
            chunks: u64::from((sectors / work.chunk).max(1)),
            chunk: work.chunk,
        }
    }
    #[inline]
    pub fn next(&mut self) -> u32 {
        self.random.below(self.chunks) as u32 * self.chunk
    }
}

/// How a thread waits for what it has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// It polls without end, as a worker on a core of its own does.
    Polling,
    Asleep,
    /// It computes for this number of nanoseconds between two polls, and only the polls are
    /// counted.
    Computing(u64),
}

/// Any medium by its queue, into frames: nothing is copied by this thread, unless its driver does.
pub struct Queued {
    flash: Arc<dyn Flash>,
    waits: Waits,
    elsewhere: Option<Elsewhere>,
}

impl Queued {
    pub fn new(flash: Arc<dyn Flash>, waits: Waits) -> Queued {
        Queued { flash, waits, elsewhere: None }
    }
    /// Over a device in another process. What is read goes into memory that can be handed to it.
    pub fn of_process(flash: Arc<dyn Flash>, elsewhere: Elsewhere) -> Queued {
        Queued { flash, waits: Waits::Polling, elsewhere: Some(elsewhere) }
    }

    /// Moves chunks for the time of the work, to its end.
    fn moved(&self, queue: &mut dyn Queue, work: &Work) -> Result<Ran> {
        let (depth, chunk) = (work.depth as u32, work.chunk);
        let mut offsets = ChunkOffsets::of(work, self.flash.subpages());
        let mut left = vec![chunk; work.depth];
        // Those to be begun: the queue is deep enough for all.
        let mut waiting: VecDeque<u32> = (0..depth).collect();
        let mut completions = Vec::with_capacity((depth * chunk) as usize);
        let (mut under_way, mut going) = (0u32, true);
        let mut meter = Meter::begin(work);
        let mut at = meter.begun_ns;
        while under_way > 0 || (going && !waiting.is_empty()) {
            let mut moved = false;
            while going && let Some(slot) = waiting.pop_front() {
                let first = offsets.next();
                for sector in 0..chunk {
                    let (subpage, frame) = (SubpageIndex(first + sector), FrameIndex(slot * chunk + sector));
                    queue.submit(Request { tag: slot.into(), op: work.op, subpage, frame })?;
                }
                left[slot as usize] = chunk;
                (under_way, moved) = (under_way + 1, true);
            }
            queue.flush()?;
            queue.poll(&mut completions);
            for completion in completions.drain(..) {
                completion.result?;
                let slot = completion.tag as usize;
                left[slot] -= 1;
                moved = true;
                if left[slot] == 0 {
                    under_way -= 1;
                    going &= meter.ended(at);
                    waiting.push_back(slot as u32);
                }
            }
            if let Waits::Computing(ns) = self.waits {
                meter.computes(ns);
                at = meter.clock.now_ns();
                continue;
            }
            at = meter.polled(at, moved);
            if !moved && self.waits == Waits::Polling {
                std::hint::spin_loop();
            } else if !moved {
                queue.wait(Some(Duration::from_secs(1)));
                at = meter.clock.now_ns();
            }
        }
        meter.ran()
    }
}

impl ChunkMover for Queued {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let bytes = work.depth * work.chunk as usize * SECTOR_BYTES;
        // Base pages both: what is handed over is mapped in them.
        let frames = Arc::new(match &self.elsewhere {
            Some(_) => Arena::sealed_memfd("fulgurite-frames", bytes)?,
            None => Arena::anonymous(bytes, Backed::BasePages)?,
        });
        frames.zero(0, frames.len());
        let (depth, wake) = (work.depth * work.chunk as usize, Arc::new(Notifier::new()?));
        let mut queue = self.flash.open_queue(frames, depth, wake)?;
        queue.use_frames(0..depth as u32);
        if work.chunk > 1 {
            queue.switch(Switches { gather_reads: true, ..Switches::default() });
        }
        let before = self.elsewhere.as_ref().map(Elsewhere::used_ns);
        // Once through, to wake the server.
        self.moved(&mut *queue, &Work { time: Duration::ZERO, ..*work })?;
        let mut ran = self.moved(&mut *queue, work)?;
        if let (Some(elsewhere), Some(before)) = (&self.elsewhere, before) {
            ran.other_cpu_ns = elsewhere.since(before);
        }
        Ok(ran)
    }
}
