//! C4: splitting, invalidation, the buddy allocator, and DMA compared with copies.

use fulgurite_device::Buddy;
use fulgurite_sim::Random;
use fulgurite_sim::interface::{Dma, InterfaceReport, InterfaceSystem, Transport};

use super::system::{Op, dma, load, mb_per_s, prototype, run as run_load};
use super::throughput::KIB;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// Microseconds until the NAND is first asked to program, of a write of 512 KB.
fn program_start(system: &InterfaceSystem, inputs: &Inputs<'_>) -> Result<f64, CheckError> {
    let report = run_load(system, load(Op::Write, 512 * KIB, 1, false, inputs))?;
    let began = report.nand_began_ns.map(|ns| ns / 1e3);
    began.ok_or_else(|| CheckError::no_answer("the NAND was asked for nothing"))
}

/// The mean time of a request, in microseconds.
fn mean_us(report: &InterfaceReport) -> Result<f64, CheckError> {
    let mean = report.requests.mean_ns.map(|mean| mean.value / 1e3);
    mean.ok_or_else(|| CheckError::no_answer("no request ended"))
}

/// Ranges are taken and given back at random. Whether the allocator never gave a sector twice,
/// never refused a range that was free as a whole, and is whole at the end. Also how often a range
/// that the free sectors would hold was refused.
fn buddy(sectors: u32, seed: u64) -> (bool, f64) {
    let (mut buddy, mut random) = (Buddy::new(sectors), Random::new(seed, 8));
    let mut held: Vec<(u32, u32)> = Vec::new();
    let (mut asked, mut refused) = (0_u32, 0_u32);
    let mut is_right = true;
    for _ in 0..20_000 {
        if !held.is_empty() && random.unit() < 0.5 {
            let (first, count) = held.swap_remove(random.below(held.len() as u64) as usize);
            buddy.give(first, count);
        } else {
            let count = 1 << random.below(6);
            let (fits, is_there) = (buddy.free_sectors() >= count, buddy.largest() >= count);
            match buddy.take(count) {
                Some(first) => {
                    is_right &= is_there && held.iter().all(|(at, of)| first + count <= *at || at + of <= first);
                    held.push((first, count));
                }
                None if is_there => is_right = false,
                None if fits => refused += 1,
                None => continue,
            }
            asked += 1;
        }
    }
    held.drain(..).for_each(|(first, count)| buddy.give(first, count));
    let whole = buddy.largest() == sectors && buddy.check().is_empty();
    (is_right && whole, f64::from(refused) / f64::from(asked.max(1)))
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let whole = InterfaceSystem { buffer: 1024 * KIB, split: 512 * KIB, ..prototype(inputs, true)? };
    let split = InterfaceSystem { split: inputs.bytes("driver.split")? as u64, ..whole.clone() };
    let starts = (program_start(&whole, inputs)?, program_start(&split, inputs)?);

    let bypassed = |split: u64| -> Result<f64, CheckError> {
        let system = InterfaceSystem { bypass: true, split, ..whole.clone() };
        mean_us(&run_load(&system, load(Op::Read, 512 * KIB, 1, false, inputs))?)
    };
    let (plain, pipelined) = (bypassed(512 * KIB)?, bypassed(split.split)?);
    let without = {
        let transport = Transport::Dram(Dma { invalidate_rate: f64::INFINITY, ..dma(inputs)? });
        let system = InterfaceSystem { bypass: true, transport, ..whole.clone() };
        mean_us(&run_load(&system, load(Op::Read, 512 * KIB, 1, false, inputs))?)?
    };
    let invalidation = inputs.time("driver.invalidation")?.as_us();

    let sectors = inputs.bytes("driver.buffer")? as u32 / 4096;
    let (is_whole, refused) = buddy(sectors, inputs.seed);

    let random_reads = |system: &InterfaceSystem| mb_per_s(system, load(Op::Read, 4 * KIB, 4, true, inputs));
    let prototype = prototype(inputs, true)?;
    // Copies need no engine: each runs on the processor that asks.
    let of_processors = Dma {
        rate: f64::INFINITY,
        setup: crate::Time::ZERO,
        invalidate_rate: inputs.number("driver.copy", Dimension::Rate)?,
    };
    let copies = InterfaceSystem { transport: Transport::Dram(of_processors), ..prototype.clone() };
    let by_dma = random_reads(&prototype)?;
    let by_copies = random_reads(&copies)?;
    Ok(vec![
        Finding::of("split-starts", "4 x 128 KB start the NAND sooner than 512 KB")
            .trend(starts.1 < starts.0, starts.0 / starts.1, "times sooner")
            .by("a command is submitted once all of its data is in the buffer")
            .also("µs until the first program, split", starts.1)
            .also("µs, whole", starts.0),
        Finding::of("invalidation", "290 µs of invalidation in 512 KB, pipelined by splitting")
            .trend(pipelined < plain, plain - pipelined, "µs saved of 512 KB, depth 1")
            .by("the caches of one part are invalidated while the engine moves another"),
        Finding::of("invalidation-time", "nearly 290 µs over 512 KB")
            .exact(invalidation, plain - without, "µs")
            .by("the same read with and without invalidation, simulated"),
        Finding::of("buddy", "the buddy algorithm against fragmentation")
            .trend(is_whole, refused * 100.0, "% of requests that the free sectors would hold were refused")
            .by(
                "device::Buddy: ranges of 1 to 32 sectors at random, none given twice, none refused that was free as a \
                 whole; all joined again at the end",
            ),
        Finding::of("dma", "small random I/O is an order of magnitude faster with DMA")
            .within(by_dma / by_copies, "times", (5.0, 20.0))
            .by("4 KB reads at depth 4. The text does not say how fast copies of uncached memory are, nor how the \
                 reads were issued")
            .also("MB/s with DMA", by_dma)
            .also("MB/s by copies", by_copies),
    ])
}
