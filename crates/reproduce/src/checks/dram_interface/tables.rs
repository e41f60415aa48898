//! C1, C2 and C9: the tables, and what follows from them by arithmetic.

use fulgurite_nand::{Energy, Profile};
use fulgurite_sim::interface::InterfaceSystem;

use super::system::{Op, load, prototype, run};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

pub fn chip(inputs: &Inputs<'_>) -> Found {
    let hertz = |name| inputs.number(name, Dimension::Frequency);
    let edges = inputs.share("chip.edges")?;
    let why = "two transfers a cycle";
    let [reading, writing] = inputs.exactly("chip.power", Dimension::Power)?;
    // What is left of both is the controller's.
    let (read, write) = (nand_power(inputs, Op::Read)?, nand_power(inputs, Op::Write)?);
    let left = (reading - read, writing - write);
    Ok(vec![
        Finding::of("power", "560 mW at sequential reads and 450 mW at sequential writes, with the NAND's")
            .trend(
                left.0 > left.1 && left.1 > 0.0 && read < write,
                left.0 / left.1,
                "times the controller's power, reads over writes",
            )
            .by(
                "the NAND's part by its operations and bytes, simulated at 512 KB. The rest is the controller's, which \
                 moves four times as many bytes in reads. The text gives nothing of it, so no sum is predicted",
            )
            .also("mW of the NAND, reads", read * 1e3)
            .also("mW of the NAND, writes", write * 1e3)
            .also("mW left, reads", left.0 * 1e3)
            .also("mW left, writes", left.1 * 1e3),
        Finding::of("host", "1,600 Mb/s")
            .exact(1600.0, hertz("chip.host_interface")? * edges / 1e6, "Mb/s a pin")
            .by(why),
        Finding::of("nand", "466 Mb/s")
            .exact(466.0, hertz("chip.nand_interface")? * edges / 1e6, "Mb/s a pin")
            .by(why)
            .also("MHz of the core", hertz("chip.core")? / 1e6),
    ])
}

/// The NAND's power in watts at a stream of large requests.
fn nand_power(inputs: &Inputs<'_>, op: Op) -> Result<f64, CheckError> {
    let pj = |name| Ok::<u64, CheckError>((inputs.number(name, Dimension::Energy)? * 1e12 + 0.5) as u64);
    let energy = Energy {
        read_pj: pj("nand.read_energy")?,
        program_pj: pj("nand.program_energy")?,
        // No run erases.
        erase_pj: 0,
        transfer_pj: pj("nand.byte_energy")?,
    };
    let system = prototype(inputs, true)?;
    let system = InterfaceSystem { nand: Profile { energy, ..system.nand }, ..system };
    Ok(run(&system, load(op, 512 << 10, 4, false, inputs))?.power_w)
}

pub fn platforms(inputs: &Inputs<'_>) -> Found {
    let gib = (1u64 << 30) as f64;
    let nand = inputs.count("nand.chips")? as f64 * inputs.bytes("nand.chip")? / gib;
    let ufs = inputs.bytes("ufs.storage")? / gib;
    let clocks = inputs.number("ufs.dram_clock", Dimension::Frequency)?
        / inputs.number("host.dram_clock", Dimension::Frequency)?;
    Ok(vec![
        Finding::of("storage", "32 GB").exact(32.0, nand, "GiB").by("four chips of 64 Gb"),
        Finding::of("half", "half the media")
            .exact(2.0, ufs / nand, "times")
            .by("the UFS platform's storage over it")
            .also("times the DRAM clock", clocks)
            .also("GiB of DRAM", inputs.bytes("host.dram")? / gib),
    ])
}

pub fn interfaces(inputs: &Inputs<'_>) -> Found {
    let lane = inputs.number("ufs.lane", Dimension::Frequency)? * inputs.count("ufs.lanes")? as f64 / 8.0;
    let [payload, line] = inputs.exactly("ufs.coded", Dimension::Bits)?;
    let emmc =
        inputs.number("emmc.clock", Dimension::Frequency)? * 2.0 * inputs.number("emmc.width", Dimension::Bits)? / 8.0;
    let ddr4 =
        inputs.number("ddr4.transfers", Dimension::Frequency)? * inputs.number("ddr4.width", Dimension::Bits)? / 8.0;
    let host = inputs.number("chip.host_interface", Dimension::Frequency)? * inputs.share("chip.edges")?;
    let lpddr3_rate = host * inputs.number("lpddr3.width", Dimension::Bits)? / 8.0;
    let pins = inputs.numbers("pins.emmc", Dimension::Count)?.iter().sum::<f64>();
    let ufs_pins = inputs.numbers("pins.ufs", Dimension::Count)?;
    let lpddr3 = inputs.numbers("pins.lpddr3", Dimension::Count)?;
    let crossings = run(&prototype(inputs, true)?, load(Op::Read, 65536, 4, false, inputs))?.bus_crossings;
    let most = ufs_pins.iter().copied().fold(pins, f64::max);
    Ok(vec![
        Finding::of("ufs", "1,200 MB/s")
            .exact(1200.0, lane * payload / line / 1e6, "MB/s")
            .by("two lanes of 6 Gb/s, 8b10b"),
        Finding::of("emmc", "400 MB/s").exact(400.0, emmc / 1e6, "MB/s").by("8 bits at 200 MHz, both edges"),
        Finding::of("ddr4", "25.6 GB/s").exact(25.6, ddr4 / 1e9, "GB/s").by("64 bits, 3,200 MT/s"),
        Finding::of("lpddr3", "over 12 GB/s")
            .within(lpddr3_rate / 1e9, "GB/s", (12.0, f64::INFINITY))
            .by("a channel of 64 bits, at the 1,600 Mb/s a pin of table 1"),
        Finding::of("emmc-pins", "12").exact(12.0, pins, "pins").by("8 of data, 1 of commands, 3 others"),
        Finding::of("crossings", "a read crosses the DRAM bus twice")
            .exact(2.0, crossings, "bytes on the bus for each byte")
            .by("counted: from the device to the DMA engine, and from there to memory"),
        Finding::of("pins", "a DRAM interface has more pins")
            .trend(
                lpddr3.iter().all(|lpddr3| *lpddr3 > most),
                lpddr3.iter().copied().fold(f64::INFINITY, f64::min) / most,
                "times the pins",
            )
            .by("LPDDR3 of 16 bits beside the widest storage interface"),
    ])
}
