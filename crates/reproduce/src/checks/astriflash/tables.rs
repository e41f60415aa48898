//! A6 and A9: the tables of the system and of its silicon.

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

const GIB: f64 = (1u64 << 30) as f64;

pub fn system(inputs: &Inputs<'_>) -> Found {
    let (controllers, sets, ways) =
        (inputs.count("cache.controllers")?, inputs.count("cache.sets")?, inputs.count("cache.ways")?);
    let page = inputs.bytes("cache.page")?;
    let controller = (sets * ways) as f64 * page;
    let dram = inputs.bytes("system.dram")?;
    let cores = inputs.count("system.cores")?;
    let mesh: f64 = inputs.numbers("system.mesh", Dimension::Count)?.iter().product();
    let planes = inputs.bytes("system.flash")? / inputs.bytes("flash.plane")?;
    let a_second = 1e12 / inputs.time("flash.read")?.0 as f64;
    let needed = cores as f64 * 1e12 / inputs.time("miss.interval")?.0 as f64;
    let row = inputs.bytes("cache.row")?;
    let mut found = vec![
        Finding::of("controller", "2 GB per MC")
            .exact(inputs.bytes("cache.controller_size")? / GIB, controller / GIB, "GiB")
            .by("sets x ways x page"),
        Finding::of("dram", "8 GB")
            .exact(dram / GIB, controller * controllers as f64 / GIB, "GiB")
            .by("of all controllers"),
        Finding::of("per-core", "512 MB per core")
            .exact(inputs.bytes("cache.core_size")? * cores as f64 / GIB, dram / GIB, "GiB")
            .by("times the cores"),
        Finding::of("mesh", "4 x 4").exact(cores as f64, mesh, "tiles").by("a core on each tile"),
        Finding::of("share", "3%")
            .within(dram / inputs.bytes("system.flash")? * 100.0, "%", (2.5, 3.5))
            .by("8 GB of DRAM before 256 GB of flash"),
        Finding::of("row", "16 KB row")
            .exact(row / 1024.0, ways as f64 * page / 1024.0, "KiB")
            .by("four pages fill the row: the tags lie beside it"),
        Finding::of("planes", "50 µs, 4 GB a plane")
            .trend(planes * a_second < needed, planes * a_second / 1e6, "M reads/s")
            .by("64 planes of 50 µs each serve less than 16 cores ask for, so the 50 µs are end to end")
            .also("M reads/s that 16 cores need", needed / 1e6),
    ];
    found.push(echo(inputs)?);
    Ok(found)
}

/// The fields of table I that no other check computes with.
fn echo(inputs: &Inputs<'_>) -> Result<Finding, CheckError> {
    let model = inputs.text("core.model")?;
    let words = [
        inputs.text("llc.inclusion")?,
        inputs.text("llc.coherence")?,
        inputs.text("flash.cells")?,
        inputs.text("flash.reclaim")?,
    ];
    let counts = [
        ("core.width", 4),
        ("tlb.first", 48),
        ("tlb.second", 1024),
        ("l1.ways", 4),
        ("l1.ports", 2),
        ("l1.mshrs", 32),
        ("llc.ways", 16),
    ];
    let mut right =
        model == "Cortex-A76" && words == ["non-inclusive", "directory-based MESI", "TLC", "plane-blocking"];
    for (name, stated) in counts {
        right &= inputs.count(name)? == stated;
    }
    for (name, stated) in [("l1.latency", 2.0), ("llc.latency", 6.0), ("mesh.hop", 3.0)] {
        right &= inputs.number(name, Dimension::Cycles)? == stated;
    }
    for (name, stated) in [("l1.size", 65536.0), ("llc.size", 1048576.0), ("mesh.link", 16.0)] {
        right &= inputs.bytes(name)? == stated;
    }
    let write = inputs.time("flash.write")?;
    right &= write.as_us() == 100.0;
    Ok(Finding::of("fields", "table I")
        .trend(right, write.as_us(), "µs write")
        .by("every other field of table I is as stated"))
}

pub fn silicon(inputs: &Inputs<'_>) -> Found {
    let stores = inputs.count("core.store_buffer")?;
    let registers = stores * inputs.count("core.registers_per_store")?;
    let register_bytes = registers as f64 * inputs.bytes("core.register")?;
    let map_bits =
        (stores * inputs.count("core.map_registers")?) as f64 * inputs.number("core.map_index", Dimension::Bits)?;
    let bytes = register_bytes + map_bits / 8.0;
    let area = bytes / inputs.number("core.sram_density", Dimension::Density)?;
    let share = area / inputs.number("core.area", Dimension::Area)?;
    Ok(vec![
        Finding::of("registers", "128")
            .exact(128.0, registers as f64, "registers")
            .by("four for each store in the buffer"),
        Finding::of("register-bytes", "1 KB").exact(1.0, register_bytes / 1024.0, "KiB").by("of 8 B each"),
        Finding::of("map-bytes", "1 KB")
            .exact(1.0, map_bits / 8.0 / 1024.0, "KiB")
            .by("32 indices of 8 bits for each store"),
        Finding::of("area", "0.001 mm2")
            .within(area, "mm2", (0.0005, 0.0015))
            .by("2 KB at 2 MB a mm2, to the digit that is stated"),
        Finding::of("share", "0.1% of a core")
            .within(share * 100.0, "%", (0.05, 0.15))
            .by("of 1.3 mm2, to the digit that is stated"),
    ])
}
