//! What the interface costs: the paper's figures 6 and 7 measured live, with NAND bypassed,
//! compared with the cost of copies alone.
//!
//! ```text
//! interface [CORE_OF_THE_HOST CORE_OF_THE_DEVICE]
//! ```
//!
//! Prints, by chunk from 4 KiB to 512 KiB at depth 1: the copy alone, the copy through the device,
//! the difference, and the protocol's share of the bandwidth. Then 4 KiB reads at depths 1 to 32
//! without copies, and what each costs the host.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_device::{DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, Opcode, SECTOR_BYTES};
use fulgurite_flash::{Flash, MemoryFlash, Op, Request};
use fulgurite_format::{FrameIndex, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, affinity, clock};

type Failure = Box<dyn std::error::Error>;

const SECTORS: u32 = 32 << 10;

fn main() -> Result<(), Failure> {
    let cores = affinity::cores();
    let core = |i: usize| std::env::args().nth(i + 1).map_or(Ok(cores[i % cores.len()]), |c| c.parse());
    let (host, device) = (core(0)?, core(1)?);
    affinity::pin(host)?;
    let start = |bypass, copies| {
        let firmware = FirmwareConfig { bypass, ..FirmwareConfig::default() };
        let config = DeviceConfig { core: Some(device), firmware, ..DeviceConfig::default() };
        let host = HostConfig { copies, ..HostConfig::default() };
        let memory = Arc::new(MemoryFlash::new(SECTORS)?);
        memory.storage().zero(0, memory.storage().len());
        DeviceFlash::start(memory, config, host)
    };
    chunks("into memory that is in the processor's cache", &start(true, true)?, 128)?;
    chunks("into 64 MiB, one place after the other", &start(true, true)?, 128 * 128)?;
    for (what, bypass) in [("nothing behind the protocol", true), ("memory behind it", false)] {
        depths(what, &start(bypass, false)?)?;
    }
    Ok(())
}

/// The median of `rounds` runs of `work`, in nanoseconds each.
fn median(rounds: usize, mut work: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let clock = Clock::get();
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begun = clock.now_ns();
        work()?;
        times.push(clock.now_ns() - begun);
    }
    times.sort_unstable();
    Ok(times[rounds / 2] as f64)
}

/// The destination has `sectors` sectors, which are used in turns.
fn chunks(what: &str, flash: &DeviceFlash, sectors: usize) -> Result<(), Failure> {
    let mut commands = flash.commands(1, 128)?;
    let mut into = vec![1; sectors * SECTOR_BYTES];
    // The data buffer is memory, and not the kernel's one page of zeros 128 times.
    let id = commands.begin(Opcode::Write, 0, 128, Some(&into[..128 * SECTOR_BYTES])).ok_or("no room")?;
    commands.wait()?.status.to_result()?;
    commands.release(id);
    let mut at = 0;
    let mut next = |bytes: usize| {
        at = if at + 2 * bytes > sectors * SECTOR_BYTES { 0 } else { at + bytes };
        at..at + bytes
    };
    println!("\ndepth 1, NAND bypassed, {what}; the paper: 66.8% at 4 KiB (about 22 µs), 3.8% at 512 KiB");
    println!("{:>9} {:>12} {:>14} {:>14} {:>10}", "chunk", "copy ns", "read ns", "difference", "protocol");
    for order in 0..8 {
        let count = 1u32 << order;
        let bytes = count as usize * SECTOR_BYTES;
        let rounds = 20_000 >> order;
        let (mut alone, mut through) = (f64::MAX, f64::MAX);
        // In turns, so that neither has the better times; of five medians the least disturbed.
        for _ in 0..5 {
            // Bytes are read from the same part of the data buffer, without a command.
            let id = commands.begin(Opcode::Read, 0, count, None).ok_or("no room")?;
            commands.wait()?.status.to_result()?;
            alone = alone.min(median(rounds, || {
                commands.copy_out(id, &mut into[next(bytes)]);
                Ok(())
            })?);
            commands.release(id);
            through = through.min(median(rounds, || {
                let id = commands.begin(Opcode::Read, 0, count, None).ok_or("no room")?;
                let done = commands.wait()?;
                done.status.to_result()?;
                commands.copy_out(id, &mut into[next(bytes)]);
                commands.release(id);
                Ok(())
            })?);
        }
        println!(
            "{:>5} KiB {alone:>12.0} {through:>14.0} {:>14.0} {:>9.1}%",
            bytes >> 10,
            through - alone,
            (1.0 - alone / through) * 100.0
        );
    }
    Ok(())
}

fn depths(what: &str, flash: &DeviceFlash) -> Result<(), Failure> {
    const FRAMES: u32 = 1024;
    let clock = Clock::get();
    let frames = Arc::new(Arena::anonymous(FRAMES as usize * SECTOR_BYTES, Backed::HugePages)?);
    frames.zero(0, frames.len());
    println!("\n4 KiB reads into shared frames, {what}");
    println!("{:>6} {:>12} {:>14} {:>18} {:>16}", "depth", "reads/s", "ns a read", "host ns a read", "device CPU");
    for depth in [1usize, 4, 8, 16, 32, 64] {
        let mut queue = flash.open_queue(frames.clone(), depth, Arc::new(Notifier::new()?))?;
        let mut completions = Vec::with_capacity(depth);
        let (mut random, mut tag) = (1u64, 0u64);
        let (mut own, mut done) = (0, 0u64);
        let (begun, cpu) = (clock.now_ns(), clock::thread_cpu());
        let device_cpu = flash.device().map(|device| device.cpu()).unwrap_or_default();
        while clock.now_ns() - begun < 500_000_000 {
            for _ in 0..64 {
                let at = clock.now_ns();
                let free = depth - queue.in_flight();
                for _ in 0..free {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let subpage = SubpageIndex(((random >> 32) % u64::from(SECTORS)) as u32);
                    let frame = FrameIndex((tag % u64::from(FRAMES)) as u32);
                    tag += 1;
                    queue.submit(Request { tag, op: Op::Read, subpage, frame })?;
                }
                queue.flush()?;
                let found = queue.poll(&mut completions);
                let spent = clock.now_ns() - at;
                // What was spent on looking in vain is time that a worker would give to its fibers.
                own += if found + free > 0 { spent } else { 0 };
                done += found as u64;
                for completion in completions.drain(..) {
                    completion.result?;
                }
                if found == 0 {
                    std::hint::spin_loop();
                }
            }
        }
        let (ns, _) = (clock.now_ns() - begun, clock::thread_cpu() - cpu);
        std::thread::sleep(Duration::from_millis(3));
        let device_cpu = flash.device().map(|device| device.cpu()).unwrap_or_default() - device_cpu;
        println!(
            "{depth:>6} {:>12.0} {:>14.0} {:>18.1} {:>15.0}%",
            done as f64 * 1e9 / ns as f64,
            ns as f64 / done as f64,
            own as f64 / done as f64,
            device_cpu.as_nanos() as f64 * 100.0 / ns as f64
        );
    }
    Ok(())
}
