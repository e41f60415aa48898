//! C10: what the paper asks of future platforms, as options of the models and of `device`.

use fulgurite_device::{BootImage, SECTOR_BYTES};

use fulgurite_sim::interface::{Dma, InterfaceSystem, Transport};

use super::system::{Op, dma, load, mb_per_s, prototype};
use super::throughput::KIB;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

pub fn run(inputs: &Inputs<'_>) -> Found {
    let exposed = inputs.bytes("driver.buffer")?;
    // Two channels in turn: the storage's bytes are in every second unit of the interleaving.
    let pieces = |granule: f64| (exposed / granule).max(1.0);
    let wasted = |granule: f64| (granule - exposed).max(0.0);
    let [fine, coarse] = inputs.exactly("interleaving.granules", Dimension::Bytes)?;

    let image = BootImage::new(vec![1; 100_000]).map_err(CheckError::no_answer)?;
    let boots = image.bytes() >= 100_000 && image.bytes() == image.sectors() as usize * SECTOR_BYTES;

    let serial = inputs.numbers("pins.ufs", Dimension::Count)?.into_iter().fold(0.0, f64::max);
    let parallel = inputs.numbers("pins.lpddr3", Dimension::Count)?.into_iter().fold(f64::INFINITY, f64::min);

    let system = prototype(inputs, true)?;
    let cached = InterfaceSystem { cached_writes: true, ..system.clone() };
    // A few writes at a time, which the dies keep up with: a buffer hides a program and no queue.
    let small = load(Op::Write, 4 * KIB, 1, true, inputs);
    let hidden = mb_per_s(&cached, small)? / mb_per_s(&system, small)?;

    let transfers = inputs.number("chip.host_interface", Dimension::Frequency)? * inputs.share("chip.edges")?;
    let rate = transfers * inputs.number("chip.host_width", Dimension::Bits)? / 8.0;
    let transport = Transport::Dram(Dma { rate, ..dma(inputs)? });
    let faster = InterfaceSystem { transport, buffer: 2048 * KIB, ..system.clone() };
    let large = load(Op::Read, 512 * KIB, 4, false, inputs);
    let by_engine = mb_per_s(&faster, large)? / mb_per_s(&system, large)?;
    Ok(vec![
        Finding::of("interleaving", "large units waste addresses, small ones scatter the buffer")
            .trend(
                wasted(coarse) > 0.0 && pieces(coarse) == 1.0 && pieces(fine) > 1.0 && wasted(fine) == 0.0,
                pieces(fine),
                "pieces at the granule of a cache block",
            )
            .by("the bytes that the device exposes, over units of both granules")
            .also("MiB wasted at the large one", wasted(coarse) / (1u64 << 20) as f64),
        Finding::of("boot", "a boot image without a driver")
            .trend(boots, f64::from(image.sectors()), "sectors of an image of 100,000 bytes")
            .by("device::BootImage, which plain loads read"),
        Finding::of("serial", "serial links need fewer pins")
            .trend(serial < parallel, parallel / serial, "times fewer")
            .by("UFS of two lanes beside LPDDR3 of 16 bits"),
        Finding::of("cached-write", "cached writes hide the latency of NAND writes")
            .trend(hidden > 1.0, hidden, "times the 4 KB writes, depth 1")
            .by("a command ends once its data is in the buffer; the dies go on"),
        Finding::of("dma", "a faster DMA engine gets more out of the interface")
            .trend(by_engine > 1.0, by_engine, "times the 512 KB reads, depth 4")
            .by("an engine as fast as the channel, and a buffer of 2 MB"),
    ])
}
