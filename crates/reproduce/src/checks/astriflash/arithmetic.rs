//! What follows from the paper's inputs by arithmetic: A1 to A4, AS1 to AS3.

use fulgurite_sim::queue::Misses;
use fulgurite_sim::{Planted, Time};

use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy, SchedulingPolicy};
use fulgurite_sim::paging::{Backend, DeviceKind, PagingSystem, Program, RatedShape};

use super::slo::{computing, relaxed};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::paging::{PLAIN, base, run};
use crate::units::Dimension;

pub fn bandwidth(inputs: &Inputs<'_>) -> Found {
    let (of_core, flash) =
        (inputs.number("bandwidth.of_core", Dimension::Rate)?, inputs.number("bandwidth.flash", Dimension::Rate)?);
    let (block, page) = (inputs.bytes("l1.block")?, inputs.bytes("cache.page")?);
    let cores = inputs.count("system.cores_large")? as f64;
    let pcie = inputs.number("bandwidth.pcie", Dimension::Rate)?;
    // Equation 1 of all cores, solved for the miss rate.
    let accesses = of_core / block * cores;
    let rate = flash / (accesses * page);
    Ok(vec![
        Finding::of("miss-rate", "3% at 60 GB/s")
            .within(rate * 100.0, "%", (2.5, 3.5))
            .by("equation 1 solved for the miss rate; the text rounds it to 3%, which would be 61 GB/s")
            .also("µs between misses of a core", 1e6 / (of_core / block * rate)),
        Finding::of("pcie", "PCIe Gen5 has 128 GB/s")
            .trend(flash < pcie, flash / pcie, "of PCIe")
            .by("the bandwidth that is needed, over that of the bus"),
        flattens(inputs)?,
    ])
}

/// Pages of the stream. Figure 1 is of shares, so their number counts for little.
const STREAM_PAGES: u64 = 1 << 15;

/// Misses for each access of a skewed stream, at a share of its pages in DRAM.
pub fn miss_ratio(inputs: &Inputs<'_>, in_dram: f64) -> Result<f64, CheckError> {
    let page = 4096;
    let program = Program {
        data: STREAM_PAGES * page,
        object: page,
        skew: inputs.share("stream.skew")?,
        untimed: 200_000,
        count: 200_000,
        ..PLAIN
    };
    // Only what is found counts, and no time.
    let device = RatedShape {
        read: Time::us(1),
        write: Time::us(1),
        planes: 1,
        reads_per_s: 1e6,
        writes_per_s: 1e6,
        read_rate: 1e9,
        write_rate: 1e9,
    };
    let frames = (STREAM_PAGES as f64 * in_dram) as u64;
    let system = PagingSystem {
        dram: frames * page,
        replacement: ReplacementPolicy::S3Fifo,
        device: Some(DeviceKind::Rated(device)),
        ..base(program, Backend::Controller { lookup: Time::ZERO, prefetch: PrefetchPolicy::Off })
    };
    Ok(run(&system, inputs.seed)?.miss_ratio)
}

/// Figure 1's curve: what a further percent of DRAM saves, before the stated share and after it.
fn flattens(inputs: &Inputs<'_>) -> Result<Finding, CheckError> {
    let knee = inputs.share("cache.share")?;
    let at = |share: f64| miss_ratio(inputs, share);
    let (before, knee_misses, after) = (at(knee / 3.0)?, at(knee)?, at(knee * 2.0)?);
    let (falls, flat) = ((before - knee_misses) / (knee * 2.0 / 3.0), (knee_misses - after) / knee);
    Ok(Finding::of("flat", "miss rates flatten around 3% of the data in DRAM")
        .trend(flat < 0.5 * falls, flat / falls, "of the slope before 3%")
        .by("misses of a Zipf stream by policy::S3Fifo at 1, 3 and 6% of its pages")
        .also("% misses at 3%", knee_misses * 100.0))
}

pub fn cost(inputs: &Inputs<'_>) -> Found {
    let (share, cheaper) = (inputs.share("cache.share")?, inputs.share("cost.flash_cheaper")?);
    let ours = 1.0 / (share + 1.0 / cheaper);
    Ok(vec![
        Finding::of("cost", "20x")
            .exact(20.0, ours, "times lower")
            .by("3% of DRAM and all of the flash, over all DRAM"),
    ])
}

pub fn tags(inputs: &Inputs<'_>) -> Found {
    let (dram, tag) = (inputs.bytes("system.dram_large")?, inputs.bytes("cache.tag")?);
    let (block, page, column) =
        (inputs.bytes("l1.block")?, inputs.bytes("cache.page")?, inputs.bytes("cache.tag_column")?);
    let why = "a tag of 8 B for each block of the cache";
    Ok(vec![
        Finding::of("blocks", "~4 GB at 64 B").exact(4.0, dram / block * tag / (1u64 << 30) as f64, "GiB").by(why),
        Finding::of("pages", "64 MB at 4 KB").exact(64.0, dram / page * tag / (1u64 << 20) as f64, "MiB").by(why),
        Finding::of("ways", "8 ways").exact(8.0, column / tag, "ways").by("tags of 8 B in a column of 64 B"),
    ])
}

pub fn paging(inputs: &Inputs<'_>) -> Found {
    let costs = (inputs.time("paging.fault")?, inputs.time("paging.switch")?);
    let share = |threads: u64| {
        let misses = Misses::Switch { policy: SchedulingPolicy::ArrivedFirst, threads: threads as usize };
        computing(inputs, misses, costs, (100, 2000))
    };
    let lost = 1.0 - share(inputs.count("paging.threads")?)?;
    let drawn = share(inputs.count("paging.timeline_threads")?)?;
    Ok(vec![
        Finding::of("lost", "50% drop in throughput")
            .within(lost * 100.0, "%", (49.0, 51.0))
            .by("threads on a core of the event loop: 10 µs of work, 5 of fault, 5 of switch, 50 of flash overlapped")
            .also("% computing with the figure's three threads", drawn * 100.0),
    ])
}

pub fn access(inputs: &Inputs<'_>) -> Found {
    let by_system = inputs.time("paging.stack")? + inputs.time("paging.spaces")? + inputs.time("paging.switch")?;
    let by_hardware = inputs.time("hardware.cache_hit")? + inputs.time("miss.switch")?;
    Ok(vec![
        Finding::of("system", "2 + 3 + 5 µs").exact(10.0, by_system.as_us(), "µs").by("sum of the slide's column"),
        Finding::of("hardware", "0 + 50 + 100 ns")
            .exact(150.0, by_hardware.as_ns(), "ns")
            .by("sum of the slide's column"),
    ])
}

pub fn latencies(inputs: &Inputs<'_>) -> Found {
    let (dram, flash) = (inputs.time("hardware.raw_dram")?, inputs.time("hardware.raw_flash")?);
    let stated = inputs.share("hardware.flash_longer")?;
    // What fits into the objective of many online services.
    let (objective, limit) = (inputs.time("hardware.slo")?, inputs.share("service.slo")?);
    let longest = inputs.numbers("jobs.others", Dimension::Time)?.into_iter().fold(0.0, f64::max);
    // From table I: open the row, read the tags' column, read the block, one command.
    let hit = hit(inputs)?;
    Ok(vec![
        Finding::of("ratio", "1,000x").exact(stated, flash.as_ns() / dram.as_ns(), "times").by("the slide's latencies"),
        Finding::of("hit", "50 ns")
            .within(hit.as_ns(), "ns", (47.5, 55.0))
            .by("RAS, 8 CAS of tags, 8 CAS of data and a command of table I: 104 cycles at 2 GHz"),
        Finding::of("slo", "many online services have an SLO of 100 ms")
            .trend(
                limit * longest < objective.0 as f64,
                objective.as_ns() / flash.as_ns(),
                "flash accesses one after the other",
            )
            .by("40 times the longest job is within it")
            .also("times 40 of the longest jobs", objective.0 as f64 / (limit * longest)),
    ])
}

/// A hit in the DRAM cache whose row is closed.
fn hit(inputs: &Inputs<'_>) -> Result<Time, CheckError> {
    let clock = "core.clock";
    let (ras, cas, command) = (
        inputs.cycles("cache.ras", clock)?,
        inputs.cycles("cache.cas", clock)?,
        inputs.cycles("cache.command", clock)?,
    );
    let tags = (inputs.bytes("cache.tag_column")? / 8.0) as u64;
    let tags = if inputs.simulated_bug() == Planted::FreeTags { 0 } else { tags };
    let data = (inputs.bytes("l1.block")? / 8.0) as u64;
    Ok(ras + cas * (tags + data) + command)
}

pub fn prices(inputs: &Inputs<'_>) -> Found {
    let [vcpus_a, vcpus_b, vcpus_c] = inputs.exactly("prices.vcpus", Dimension::Count)?;
    let [memory_a, memory_b, memory_c] = inputs.exactly("prices.memory", Dimension::Bytes)?;
    let [a, b, c] = inputs.exactly("prices.hour", Dimension::Money)?;
    assert!(vcpus_a == vcpus_b && memory_b == memory_c, "two servers differ in memory, two in processors");
    let of_memory = (a - b) / (memory_a - memory_b) * memory_a / a;
    let of_processors = (b - c) / (vcpus_b - vcpus_c) * vcpus_b / b;
    Ok(vec![
        Finding::of("memory", "DRAM is a significant part of the server's cost")
            .trend(of_memory > 0.5, of_memory * 100.0, "%")
            .by("the price of memory by the two servers that differ only in it, over that of the larger")
            .also("% for processors, by the two that differ only in them", of_processors * 100.0),
        relaxed(inputs)?,
    ])
}
