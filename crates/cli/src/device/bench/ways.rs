//! The ways to move a chunk that are measured beside each other, each for so long, so many at a time.
//!
//! Invariant: whatever a way began it has ended before it returns; what it needs beforehand (a queue, memory that was touched, a
//! connection) is there before its time begins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fulgurite_device::{Commands, DeviceFlash, Opcode, SECTOR_BYTES};
use fulgurite_flash::{Flash, Op, Request};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, clock};
use fulgurite_workloads::Random;

use super::nbd_client::Client;

/// A device that completes nothing for so long is taken for dead.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Read or write.
    pub op: Op,
    /// Sectors of a chunk.
    pub chunk: u32,
    /// Chunks at a time.
    pub depth: usize,
    /// Sectors of data buffer; none: enough.
    pub buffer: Option<u32>,
    /// For so long.
    pub time: Duration,
    /// Of the places.
    pub seed: u64,
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ran {
    /// Chunks moved.
    pub chunks: u64,
    /// All of them took so long.
    pub ns: f64,
    /// Of those that were alone, the middle one's time.
    pub median_ns: Option<f64>,
    /// Time in which this thread did something for a chunk: what looking in vain took is left out.
    pub own_ns: f64,
    /// CPU time of this thread, the kernel's on its behalf included.
    pub cpu_ns: f64,
}

/// A way to move chunks.
pub trait Way {
    /// Does it.
    fn run(&mut self, work: &Work) -> Result<Ran>;
}

/// Times what is under measurement.
struct Meter {
    clock: Clock,
    begun_ns: u64,
    end_ns: u64,
    cpu: Duration,
    own_ns: u64,
    chunks: u64,
    /// When the last chunk ended, and how long each took, where they come one at a time.
    last_ns: u64,
    each_ns: Option<Vec<u64>>,
}

impl Meter {
    fn begin(work: &Work) -> Meter {
        let (cpu, clock) = (clock::thread_cpu(), Clock::get());
        let begun_ns = clock.now_ns();
        let end_ns = begun_ns + u64::try_from(work.time.as_nanos()).unwrap_or(u64::MAX / 2);
        let each_ns = (work.depth == 1).then(|| Vec::with_capacity(1 << 16));
        Meter { clock, begun_ns, end_ns, cpu, own_ns: 0, chunks: 0, last_ns: begun_ns, each_ns }
    }
    /// A chunk has ended, at about `at_ns`. Whether there is time for another one. The clock is read again only where the time of each is
    /// asked for: with several at a time its price would be much of what is measured.
    #[inline]
    fn ended(&mut self, at_ns: u64) -> bool {
        self.chunks += 1;
        let Some(each) = &mut self.each_ns else { return at_ns < self.end_ns };
        let now = self.clock.now_ns();
        each.push(now - self.last_ns);
        self.last_ns = now;
        now < self.end_ns
    }
    /// A look at everything that began at `at_ns` ends now, which is returned. If it was not in vain, it is the host's own time.
    #[inline]
    fn looked(&mut self, at_ns: u64, moved: bool) -> u64 {
        let now = self.clock.now_ns();
        self.own_ns += if moved { now - at_ns } else { 0 };
        now
    }
    fn ran(mut self) -> Result<Ran> {
        let ns = self.clock.now_ns() - self.begun_ns;
        let cpu = clock::thread_cpu() - self.cpu;
        ensure!(self.chunks > 0, "nothing was moved");
        let median_ns = self.each_ns.take().map(|mut each| {
            let middle = each.len() / 2;
            *each.select_nth_unstable(middle).1 as f64
        });
        Ok(Ran {
            chunks: self.chunks,
            ns: ns as f64,
            median_ns,
            own_ns: self.own_ns as f64,
            cpu_ns: cpu.as_nanos() as f64,
        })
    }
}

/// Where the next chunk lies: at a multiple of its size.
struct Places {
    random: Random,
    chunks: u64,
    chunk: u32,
}

impl Places {
    fn of(work: &Work, sectors: u32) -> Places {
        Places {
            random: Random::new(work.seed, 0),
            chunks: u64::from((sectors / work.chunk).max(1)),
            chunk: work.chunk,
        }
    }
    #[inline]
    fn next(&mut self) -> u32 {
        self.random.below(self.chunks) as u32 * self.chunk
    }
}

/// The copies alone: from the buffer or to it.
pub struct Copies {
    buffer: Arena,
}

impl Copies {
    /// With a buffer of so many sectors.
    pub fn new(sectors: u32) -> Result<Copies> {
        let buffer = Arena::anonymous(sectors as usize * SECTOR_BYTES, Backed::BasePages)?;
        buffer.zero(0, buffer.len());
        Ok(Copies { buffer })
    }
}

impl Way for Copies {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let mut data = vec![1; work.chunk as usize * SECTOR_BYTES];
        self.buffer.read(0, &mut data);
        let mut meter = Meter::begin(work);
        loop {
            match work.op {
                Op::Write => self.buffer.write(0, &data),
                _ => self.buffer.read(0, &mut data),
            }
            if !meter.ended(0) {
                return meter.ran();
            }
        }
    }
}

/// The device by commands of several sectors, with copies: the paper's driver.
pub struct Driver {
    flash: Arc<DeviceFlash>,
}

/// One request of [`Driver`]: in pieces where the data buffer is smaller than it.
#[derive(Clone, Copy, Default)]
struct Asked {
    sector: u32,
    begun: u32,
    ended: u32,
}

impl Driver {
    /// Over a device.
    pub fn new(flash: Arc<DeviceFlash>) -> Driver {
        Driver { flash }
    }

    /// One at a time: begin, wait, copy.
    fn one_by_one(commands: &mut Commands, work: &Work, data: &mut [u8]) -> Result<Ran> {
        let mut places = Places::of(work, commands.sectors());
        let reads = work.op == Op::Read;
        let opcode = if reads { Opcode::Read } else { Opcode::Write };
        let mut one = |commands: &mut Commands, sector: u32| -> Result<()> {
            let from = (!reads).then_some(&*data);
            let id = commands.begin(opcode, sector.into(), work.chunk, from).context("the data buffer is too small")?;
            let done = commands.wait()?;
            done.status.to_result()?;
            if reads {
                commands.copy_out(done.id, data);
            }
            commands.release(id);
            Ok(())
        };
        for _ in 0..16 {
            one(commands, 0)?;
        }
        let mut meter = Meter::begin(work);
        loop {
            one(commands, places.next())?;
            if !meter.ended(0) {
                return meter.ran();
            }
        }
    }

    /// Several at a time.
    fn pipelined(commands: &mut Commands, work: &Work, buffer: u32, data: &mut [u8]) -> Result<Ran> {
        let mut places = Places::of(work, commands.sectors());
        let reads = work.op == Op::Read;
        let opcode = if reads { Opcode::Read } else { Opcode::Write };
        // A request that is larger than the buffer goes in pieces; so it would with the paper's driver.
        let piece = work.chunk.min(1 << buffer.ilog2());
        let mut asked = vec![Asked::default(); work.depth];
        for one in &mut asked {
            one.sector = places.next();
        }
        // By command: whose piece it is, where in the request it begins, and its length.
        let mut pieces = vec![(0usize, 0u32, 0u32); work.depth * work.chunk.div_ceil(piece) as usize];
        let (mut under_way, mut going, mut turn) = (0, true, 0);
        let mut meter = Meter::begin(work);
        let (mut moved_ns, mut at) = (meter.begun_ns, meter.begun_ns);
        while going || under_way > 0 {
            let mut moved = false;
            // In turns, as the paper's threads vie for the buffer.
            'full: for i in 0..work.depth {
                let who = (turn + i) % work.depth;
                while going && asked[who].begun < work.chunk {
                    let one = &mut asked[who];
                    let count = piece.min(work.chunk - one.begun);
                    let sector = u64::from(one.sector + one.begun);
                    let from = (!reads).then(|| &data[..count as usize * SECTOR_BYTES]);
                    let Some(id) = commands.begin(opcode, sector, count, from) else { break 'full };
                    pieces[usize::from(id)] = (who, one.begun, count);
                    one.begun += count;
                    under_way += 1;
                    moved = true;
                }
            }
            turn += 1;
            while let Some(done) = commands.poll() {
                done.status.to_result()?;
                let (who, first, count) = pieces[usize::from(done.id)];
                if reads {
                    let from = (who * work.chunk as usize + first as usize) * SECTOR_BYTES;
                    commands.copy_out(done.id, &mut data[from..from + count as usize * SECTOR_BYTES]);
                }
                commands.release(done.id);
                (under_way, moved) = (under_way - 1, true);
                let one = &mut asked[who];
                one.ended += count;
                if one.ended == work.chunk {
                    going &= meter.ended(at);
                    *one = Asked { sector: places.next(), ..Asked::default() };
                }
            }
            at = meter.looked(at, moved);
            if moved {
                moved_ns = at;
            } else {
                std::hint::spin_loop();
                // One that died would be waited for without end.
                ensure!(at < moved_ns + PATIENCE_NS, "the device does not answer");
            }
        }
        meter.ran()
    }
}

impl Way for Driver {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let buffer = work.buffer.unwrap_or((work.chunk * work.depth as u32).next_power_of_two());
        let pieces = work.depth * work.chunk.div_ceil(work.chunk.min(1 << buffer.ilog2())) as usize;
        let mut commands = self.flash.commands(pieces, buffer)?;
        let mut data = vec![1; work.depth * work.chunk as usize * SECTOR_BYTES];
        // The buffer's memory is there before it is timed, and is its own: what was never written would be the kernel's one page of
        // zeros, which is always near.
        let warm = Work { op: Op::Write, depth: 1, chunk: buffer.min(work.chunk), time: Duration::ZERO, ..*work };
        Driver::one_by_one(&mut commands, &warm, &mut data[..warm.chunk as usize * SECTOR_BYTES])?;
        if work.depth == 1 && work.chunk <= buffer {
            Driver::one_by_one(&mut commands, work, &mut data)
        } else {
            Driver::pipelined(&mut commands, work, buffer, &mut data)
        }
    }
}

/// Any medium by its queue, into frames: nothing is copied by this thread.
pub struct Queued {
    flash: Arc<dyn Flash>,
    /// It polls without end, as a worker on a core of its own does; else it sleeps until something ends.
    polls: bool,
}

impl Queued {
    /// Over a medium.
    pub fn new(flash: Arc<dyn Flash>, polls: bool) -> Queued {
        Queued { flash, polls }
    }
}

impl Way for Queued {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let (depth, chunk) = (work.depth as u32, work.chunk);
        let frames = Arc::new(Arena::anonymous((depth * chunk) as usize * SECTOR_BYTES, Backed::BasePages)?);
        frames.zero(0, frames.len());
        let wake = Arc::new(Notifier::new()?);
        let mut queue = self.flash.open_queue(frames, (depth * chunk) as usize, wake)?;
        queue.use_frames(0..depth * chunk);
        if chunk > 1 {
            queue.gather_reads();
        }
        let mut places = Places::of(work, self.flash.subpages());
        let mut left = vec![chunk; work.depth];
        // Those to be begun, and what of them does not fit the queue yet: nothing, as it is deep enough for all.
        let mut waiting: VecDeque<u32> = (0..depth).collect();
        let mut completions = Vec::with_capacity((depth * chunk) as usize);
        let (mut under_way, mut going) = (0u32, true);
        let mut meter = Meter::begin(work);
        let mut at = meter.begun_ns;
        while under_way > 0 || (going && !waiting.is_empty()) {
            let mut moved = false;
            while going && let Some(slot) = waiting.pop_front() {
                let first = places.next();
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
            at = meter.looked(at, moved);
            if !moved && self.polls {
                std::hint::spin_loop();
            } else if !moved {
                queue.wait(Some(Duration::from_secs(1)));
                at = meter.clock.now_ns();
            }
        }
        meter.ran()
    }
}

/// A block device over NBD, by its socket.
pub struct OverNbd {
    client: Client,
}

impl OverNbd {
    /// Over a connection.
    pub fn new(client: Client) -> OverNbd {
        OverNbd { client }
    }
}

impl Way for OverNbd {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let bytes = work.chunk as usize * SECTOR_BYTES;
        let sectors = (self.client.bytes() / SECTOR_BYTES as u64) as u32;
        let mut places = Places::of(work, sectors);
        let mut data = vec![0; bytes];
        let reads = work.op == Op::Read;
        let mut meter = Meter::begin(work);
        let (mut under_way, mut going, mut at) = (0, true, meter.begun_ns);
        while going || under_way > 0 {
            while going && under_way < work.depth {
                self.client.ask(reads, u64::from(places.next()) * SECTOR_BYTES as u64, bytes as u32)?;
                under_way += 1;
            }
            self.client.answer(if reads { &mut data } else { &mut [] })?;
            under_way -= 1;
            going &= meter.ended(at);
            at = meter.looked(at, true);
        }
        meter.ran()
    }
}
