//! The device by commands of several sectors, with copies: the paper's driver.
//!
//! One at a time, its commands are measured in turns with the same copies alone, in slices of some
//! ten microseconds. A disturbance, or a change of the caches, then hits both. The difference is
//! the protocol (6.2 of the paper).
//!
//! Invariant: as in `movers.rs`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fulgurite_device::{Commands, DeviceFlash, Opcode, SECTOR_BYTES};
use fulgurite_flash::Op;

use super::movers::{ChunkMover, ChunkOffsets, Elsewhere, Meter, Ran, Work, middle};

/// A device that completes nothing for this time is taken for dead.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Sectors of a slice, about 100 µs: long compared with the change of slices, short compared with
/// the spinning of a device that has nothing to do meanwhile.
const SLICE_SECTORS: u32 = 256;
/// Commands of a slice at most.
const SLICE_MAX: u32 = 128;

/// The host's memory, source of writes and target of reads, which the drivers of a rig share.
pub type Memory = Rc<RefCell<Vec<u8>>>;

pub struct Driver {
    flash: Arc<DeviceFlash>,
    memory: Memory,
    elsewhere: Option<Elsewhere>,
    /// Flushes after each measurement: a store cannot reclaim what a roll back may need.
    flushes: bool,
}

/// One request of several at a time: in pieces where the data buffer is smaller than it.
#[derive(Clone, Copy, Default)]
struct Asked {
    sector: u32,
    begun: u32,
    ended: u32,
}

/// One command from its beginning to its end.
fn one(commands: &mut Commands, opcode: Opcode, sector: u32, count: u32, data: &mut [u8]) -> Result<()> {
    let from = (opcode == Opcode::Write).then_some(&*data);
    let id = commands.begin(opcode, sector.into(), count, from).context("the data buffer is too small")?;
    let done = commands.wait()?;
    done.status.to_result()?;
    if opcode == Opcode::Read {
        commands.copy_out(done.id, data);
    }
    commands.release(id);
    Ok(())
}

fn opcode(work: &Work) -> Opcode {
    if work.op == Op::Read { Opcode::Read } else { Opcode::Write }
}

impl Driver {
    pub fn new(flash: Arc<DeviceFlash>, memory: Memory) -> Driver {
        Driver { flash, memory, elsewhere: None, flushes: false }
    }
    /// Over a device whose medium is a store.
    pub fn of_store(flash: Arc<DeviceFlash>, memory: Memory) -> Driver {
        Driver { flushes: true, ..Driver::new(flash, memory) }
    }
    pub fn of_process(flash: Arc<DeviceFlash>, elsewhere: Elsewhere, memory: Memory) -> Driver {
        Driver { elsewhere: Some(elsewhere), ..Driver::new(flash, memory) }
    }

    /// One at a time: begin, wait, copy.
    fn one_by_one(commands: &mut Commands, work: &Work, data: &mut [u8]) -> Result<Ran> {
        let mut offsets = ChunkOffsets::of(work, commands.sectors());
        let mut meter = Meter::begin(work);
        loop {
            one(commands, opcode(work), offsets.next(), work.chunk, data)?;
            if !meter.ended(0) {
                return meter.ran();
            }
        }
    }

    /// Reads one at a time, in turns with their copies alone. The data buffer has room for one, and
    /// `data` is filled chunk by chunk.
    fn with_copies(commands: &mut Commands, work: &Work, data: &mut [u8]) -> Result<Ran> {
        let bytes = work.chunk as usize * SECTOR_BYTES;
        let (whole, mut at) = (data.len(), 0);
        let mut next = || {
            at = if at + 2 * bytes > whole { 0 } else { at + bytes };
            at..at + bytes
        };
        let mut offsets = ChunkOffsets::of(work, commands.sectors());
        let slice = (SLICE_SECTORS / work.chunk).clamp(2, SLICE_MAX);
        let (mut alone, mut through) = (Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 16));
        let mut through_ns = 0;
        let meter = Meter::begin(work);
        let clock = meter.clock.clone();
        let end_ns = meter.begun_ns + u64::try_from(work.time.as_nanos()).unwrap_or(u64::MAX / 2);
        // With and without, without and with.
        for turn in 0u64.. {
            let with = matches!(turn % 4, 0 | 3);
            // The last command before a slice of copies is theirs: they copy what it has read.
            let id = commands.begin(Opcode::Read, offsets.next().into(), work.chunk, None).context("no room")?;
            commands.wait()?.status.to_result()?;
            commands.copy_out(id, &mut data[next()]);
            if with {
                commands.release(id);
            }
            let begun = clock.now_ns();
            let mut last = begun;
            for _ in 0..slice {
                if with {
                    one(commands, Opcode::Read, offsets.next(), work.chunk, &mut data[next()])?;
                } else {
                    commands.copy_out(id, &mut data[next()]);
                }
                let now = clock.now_ns();
                if with { &mut through } else { &mut alone }.push(now - last);
                last = now;
            }
            if with {
                through_ns += last - begun;
            } else {
                commands.release(id);
            }
            if last >= end_ns && turn % 4 == 3 {
                break;
            }
        }
        let ran = meter.ran_of(through.len() as u64)?;
        // Host and device poll all the time. Commands have their share of that by time.
        let share = through_ns as f64 / ran.ns;
        Ok(Ran {
            ns: through_ns as f64,
            median_ns: Some(middle(&mut through)),
            copy_ns: Some(middle(&mut alone)),
            cpu_ns: ran.cpu_ns * share,
            other_cpu_ns: ran.other_cpu_ns * share,
            ..ran
        })
    }

    fn pipelined(commands: &mut Commands, work: &Work, buffer: u32, data: &mut [u8]) -> Result<Ran> {
        let mut offsets = ChunkOffsets::of(work, commands.sectors());
        let reads = work.op == Op::Read;
        // A request larger than the buffer goes in pieces, as with the paper's driver.
        let piece = work.chunk.min(1 << buffer.ilog2());
        let mut asked = vec![Asked::default(); work.depth];
        for one in &mut asked {
            one.sector = offsets.next();
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
                    let Some(id) = commands.begin(opcode(work), sector, count, from) else { break 'full };
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
                    let begun = work.copies_per_s.map(|_| meter.clock.now_ns());
                    commands.copy_out(done.id, &mut data[from..from + count as usize * SECTOR_BYTES]);
                    if let (Some(begun), Some(per_s)) = (begun, work.copies_per_s) {
                        // The one DMA moves this before anything else.
                        let end = begun + u64::from(count) * SECTOR_BYTES as u64 * 1_000_000_000 / per_s;
                        meter.clock.spin(end.saturating_sub(meter.clock.now_ns()));
                    }
                }
                commands.release(done.id);
                (under_way, moved) = (under_way - 1, true);
                let one = &mut asked[who];
                one.ended += count;
                if one.ended == work.chunk {
                    going &= meter.ended(at);
                    *one = Asked { sector: offsets.next(), ..Asked::default() };
                }
            }
            at = meter.polled(at, moved);
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

impl ChunkMover for Driver {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let buffer = work.buffer.unwrap_or((work.chunk * work.depth as u32).next_power_of_two());
        let pieces = work.depth * work.chunk.div_ceil(work.chunk.min(1 << buffer.ilog2())) as usize;
        let mut commands = self.flash.commands(pieces, buffer)?;
        let sectors = (work.depth * work.chunk as usize).max(work.into_sectors as usize);
        let mut memory = self.memory.borrow_mut();
        if memory.len() < sectors * SECTOR_BYTES {
            // All of it is there before it is timed.
            memory.resize(sectors * SECTOR_BYTES, 1);
        }
        let data = &mut memory[..sectors * SECTOR_BYTES];
        let before = self.elsewhere.as_ref().map(Elsewhere::used_ns);
        // Touches the buffer before it is timed, or it would be the kernel's one page of zeros. Its
        // contents are read back, so they stay.
        let warm = Work { op: Op::Write, depth: 1, chunk: buffer.min(work.chunk), time: Duration::ZERO, ..*work };
        let part = &mut data[..warm.chunk as usize * SECTOR_BYTES];
        for op in [Opcode::Write, Opcode::Read] {
            one(&mut commands, op, 0, warm.chunk, part)?;
        }
        let alone = work.depth == 1 && work.chunk <= buffer;
        let ran = if alone && work.op == Op::Read && work.with_copies {
            Driver::with_copies(&mut commands, work, data)
        } else if alone {
            Driver::one_by_one(&mut commands, work, &mut data[..work.chunk as usize * SECTOR_BYTES])
        } else {
            Driver::pipelined(&mut commands, work, buffer, data)
        };
        let mut ran = ran?;
        if self.flushes {
            commands.flush()?;
        }
        if let (Some(elsewhere), Some(before)) = (&self.elsewhere, before) {
            // Counted as the host's is: of all the time, the share that commands took.
            ran.other_cpu_ns = elsewhere.since(before) * (ran.ns / ran.all_ns);
        }
        Ok(ran)
    }
}
