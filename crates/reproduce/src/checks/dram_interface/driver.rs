//! C4: splitting, invalidation, the buddy allocator, and DMA beside copies.

use fulgurite_device::Buddy;
use fulgurite_sim::{Random, Time};

use super::system::{load, mb_per_s, prototype, run as run_load};
use super::throughput::KIB;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::device::{Op, System};
use crate::units::Dimension;

/// The time until the first die programs, of a write of 512 KB.
fn program_start(system: &System, inputs: &Inputs<'_>) -> Result<Time, CheckError> {
    let report = run_load(system, load(Op::Write, 512 * KIB, 1, false, inputs))?;
    report.media_began.ok_or_else(|| CheckError::NoAnswer("no die began".to_owned()))
}

/// Ranges are taken and given back at random. Whether the buffer is whole at the end, and how often
/// a range that the free sectors would hold was refused.
fn buddy(sectors: u32, seed: u64) -> (bool, f64) {
    let (mut buddy, mut random) = (Buddy::new(sectors), Random::new(seed, 8));
    let mut held: Vec<(u32, u32)> = Vec::new();
    let (mut asked, mut refused) = (0_u32, 0_u32);
    for _ in 0..20_000 {
        if !held.is_empty() && random.unit() < 0.5 {
            let (first, count) = held.swap_remove(random.below(held.len() as u64) as usize);
            buddy.give(first, count);
        } else {
            let count = 1 << random.below(6);
            let fits = buddy.free_sectors() >= count;
            match buddy.take(count) {
                Some(first) => held.push((first, count)),
                None if fits => refused += 1,
                None => continue,
            }
            asked += 1;
        }
    }
    held.drain(..).for_each(|(first, count)| buddy.give(first, count));
    let whole = buddy.largest() == sectors && buddy.check().is_empty();
    (whole, f64::from(refused) / f64::from(asked.max(1)))
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let mut whole = prototype(inputs, true)?;
    whole.driver.buffer = 1024 * KIB;
    whole.driver.command_max = 512 * KIB;
    let mut split = whole;
    split.driver.command_max = inputs.bytes("driver.split")? as u64;
    let starts = (program_start(&whole, inputs)?, program_start(&split, inputs)?);

    let bypassed = |command_max: u64| -> Result<f64, CheckError> {
        let mut system = whole;
        system.controller.media = None;
        system.driver.command_max = command_max;
        Ok(run_load(&system, load(Op::Read, 512 * KIB, 1, false, inputs))?.mean.as_us())
    };
    let (plain, pipelined) = (bypassed(512 * KIB)?, bypassed(split.driver.command_max)?);
    let invalidation = inputs.time("driver.invalidation")?.as_us();

    let sectors = inputs.bytes("driver.buffer")? as u32 / 4096;
    let (is_whole, refused) = buddy(sectors, inputs.seed);

    let random_reads = |system: &System| mb_per_s(system, load(Op::Read, 4 * KIB, 4, true, inputs));
    let prototype = prototype(inputs, true)?;
    let mut copies = prototype;
    // Copies need no engine: each runs on the processor that asks.
    copies.driver.dma_byte = 0.0;
    copies.driver.dma_set_up = Time::ZERO;
    copies.driver.invalidate_byte = 1e12 / inputs.number("driver.copy", Dimension::Rate)?;
    let by_dma = random_reads(&prototype)?;
    let by_copies = random_reads(&copies)?;
    Ok(vec![
        Finding::trend(
            "split-starts",
            "4 x 128 KB start the NAND sooner than 512 KB",
            starts.1 < starts.0,
            (starts.0.as_us() / starts.1.as_us(), "times sooner"),
            "a command is submitted once all of its data is in the buffer",
        )
        .also("µs until the first program, split", starts.1.as_us())
        .also("µs, whole", starts.0.as_us()),
        Finding::trend(
            "invalidation",
            "290 µs of invalidation in 512 KB, pipelined by splitting",
            pipelined < plain,
            (plain - pipelined, "µs saved of 512 KB, depth 1"),
            "the caches of one part are invalidated while the engine moves another",
        )
        .also("µs of invalidation", invalidation),
        Finding::trend(
            "buddy",
            "the buddy algorithm against fragmentation",
            is_whole,
            (refused * 100.0, "% of requests that the free sectors would hold were refused"),
            "device::Buddy: ranges of 1 to 32 sectors at random; all joined again at the end",
        ),
        Finding::trend(
            "dma",
            "small random I/O is an order of magnitude faster with DMA",
            by_dma > by_copies,
            (by_dma / by_copies, "times"),
            "4 KB reads at depth 4; the text does not say how fast copies of uncached memory are",
        ),
    ])
}
