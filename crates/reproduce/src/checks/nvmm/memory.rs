//! D8, D9, D11 and D12: time of programs over memory that is larger than the DRAM, by
//! `sim::paging`.
//!
//! NVMM's controller reads one page or also the next ones, and the core waits. The SSD's system
//! runs its software first, which grows with the latency of the flash as table 3 has it.
//!
//! DRAM holds nothing of the program's data at first. So it is in the text: prefetching gains more
//! the longer a program runs ("birthday attack"), and random accesses begin to hit after a while.
//! HybridSim's cache begins clean. GUPS then changes fewer pages than would fill DRAM, so none is
//! written back while it is measured.

use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy, Ways};
use fulgurite_sim::Time;
use fulgurite_sim::paging::{Backend, PagingSystem, Program as Touches, Slots, SystemCosts};

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::Planted;
use crate::models::paging::{Flash, Outcome, PLAIN, base, run};
use crate::units::Dimension;

/// Latencies of a curve.
pub const LATENCIES_NS: [u64; 9] = [150, 1_000, 5_000, 25_000, 50_000, 75_000, 150_000, 300_000, 750_000];
/// Among those, where the SSD's curve may cross NVMM's: at lower ones its software is far more.
const CROSSES_FROM: usize = 3;
/// Command and address cycles on NAND's bus.
const COMMAND: Time = Time::ns(200);
/// Bytes of a word that GUPS updates.
const WORD: u64 = 8;
/// Linux's SWAP_CLUSTER_MAX. It costs nothing of its own: table 3's software has all of a fault.
const RECLAIMED_AT_ONCE: u32 = 32;

/// Bytes of a page: a power of two.
pub fn page(inputs: &Inputs<'_>) -> Result<u64, CheckError> {
    let log = libm::log2(inputs.bytes("flash.page")?);
    Ok(1 << ((log + 0.5) as u32).clamp(12, 14))
}

/// The flash at a read latency, as MLC else.
pub fn flash(inputs: &Inputs<'_>, read: Time) -> Result<Flash, CheckError> {
    let bus = inputs.numbers("onfi.rates", Dimension::Rate)?;
    Ok(Flash {
        packages: inputs.count("flash.packages")? as u32,
        planes: inputs.count("flash.planes")? as u32,
        page: page(inputs)?,
        command: COMMAND,
        read,
        program: inputs.time("technology.mlc.write")?,
        erase: inputs.time("technology.mlc.erase")?,
        bus: bus.first().map_or(u64::MAX, |rate| *rate as u64),
        queue: inputs.count("flash.queue")? as u32,
    })
}

/// The system's software in one access, at a latency of the flash: on the line through both rows of
/// table 3, and never below zero.
pub fn software(inputs: &Inputs<'_>, read: Time) -> Result<Time, CheckError> {
    if inputs.planted == Some(Planted::NoSoftware) {
        return Ok(Time::ZERO);
    }
    let (slc, mlc) = (inputs.time("flash.slc")?.as_ns(), inputs.time("flash.mlc")?.as_ns());
    let [at_slc, at_mlc] = inputs.exactly("system.software", Dimension::Time)?;
    let slope = (at_mlc - at_slc) / (mlc - slc);
    Ok(Time((at_slc + slope * (read.as_ns() - slc) + 0.5).max(0.0) as u64))
}

/// NVMM's controller.
pub fn controller(inputs: &Inputs<'_>, prefetch: u32) -> Result<Backend, CheckError> {
    let prefetch = if inputs.planted == Some(Planted::PrefetchLost) { 0 } else { prefetch };
    let prefetch = match prefetch.min(16) as u8 {
        0 => PrefetchPolicy::Off,
        pages => PrefetchPolicy::Next(pages),
    };
    Ok(Backend::Controller { lookup: inputs.time("system.lookup")?, prefetch })
}

/// The SSD's system, with faults that bring `around` pages. One lock serialises its software, of
/// which the text has the sum.
pub fn ssd(inputs: &Inputs<'_>, read: Time, around: u32, slots: Slots) -> Result<Backend, CheckError> {
    let around = if inputs.planted == Some(Planted::NoReadAround) { 1 } else { around };
    Ok(Backend::System(SystemCosts {
        locked: software(inputs, read)?,
        submit: inputs.time("system.interface")?,
        cluster: around,
        slots,
        batch: RECLAIMED_AT_ONCE,
        ..SystemCosts::default()
    }))
}

/// A program over one of these systems, with a device behind a given amount of DRAM. NVMM's DRAM is
/// set-associative, as in HybridSim, and Linux gives pages a second chance.
pub fn system(
    inputs: &Inputs<'_>,
    program: Touches,
    dram: u64,
    backend: Backend,
    flash: Flash,
) -> Result<PagingSystem, CheckError> {
    let device = flash.device().map_err(CheckError::no_answer)?;
    let replacement = match backend {
        Backend::System(_) => ReplacementPolicy::Clock,
        _ => ReplacementPolicy::SetAssociative(Ways::SixtyFour),
    };
    Ok(PagingSystem {
        cores: program.threads,
        dram,
        page: flash.page,
        access: inputs.time("technology.dram.read")?,
        replacement,
        device: Some(device),
        ..base(program, backend)
    })
}

/// What there is of each program.
#[derive(Clone, Copy, Debug)]
struct Compared {
    touches: Touches,
    /// Threads, of which NVMM has as many as cores.
    threaded: bool,
    around: u32,
    slots: Slots,
}

/// NVMM, NVMM with prefetching, the SSD.
fn compared(inputs: &Inputs<'_>, read: Time, of: Compared) -> Result<[PagingSystem; 3], CheckError> {
    let (flash, dram) = (flash(inputs, read)?, inputs.bytes("dram.size")? as u64);
    let cores = if of.threaded { inputs.count("system.cores")? as u32 } else { 1 };
    let threads = if of.threaded { inputs.count("system.threads")? as u32 } else { 1 };
    let with = |threads| Touches { threads, ..of.touches };
    let nvmm = |prefetch| system(inputs, with(cores), dram, controller(inputs, prefetch)?, flash);
    let backend = ssd(inputs, read, of.around, of.slots)?;
    let ssd = PagingSystem { cores, ..system(inputs, with(threads), dram, backend, flash)? };
    Ok([nvmm(0)?, nvmm(inputs.count("system.prefetch")? as u32)?, ssd])
}

fn all(inputs: &Inputs<'_>, systems: &[PagingSystem; 3]) -> Result<Times, CheckError> {
    let [nvmm, prefetching, ssd] = systems;
    let seed = inputs.seed;
    Ok(Times { nvmm: run(nvmm, seed)?, prefetching: run(prefetching, seed)?, ssd: run(ssd, seed)? })
}

/// Times at one latency: NVMM, NVMM with prefetching, the SSD.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// NVMM.
    pub nvmm: Outcome,
    /// With the next pages after each miss.
    pub prefetching: Outcome,
    /// The SSD's system.
    pub ssd: Outcome,
}

/// Which program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Random reads of a mapped file.
    Mmap,
    /// Random updates of a table.
    Gups,
}

/// NVMM, NVMM with prefetching, and the SSD, with a program. NVMM's threads stall their cores, the
/// SSD's are switched.
pub fn systems(
    inputs: &Inputs<'_>,
    program: Program,
    read: Time,
    threaded: bool,
) -> Result<[PagingSystem; 3], CheckError> {
    let page = page(inputs)?;
    let data = inputs.bytes("mmap.file")? as u64 / page * page;
    let touches = Touches { data, object: page, ..PLAIN };
    let of = match program {
        Program::Mmap => Compared {
            touches: Touches { count: inputs.count("mmap.accesses")?, ..touches },
            threaded,
            around: (inputs.bytes("system.read_around")? / page as f64) as u32,
            slots: Slots::File,
        },
        Program::Gups => Compared {
            touches: Touches { object: WORD, writes: 1.0, count: inputs.count("gups.updates")?, ..touches },
            threaded,
            around: inputs.count("gups.around")? as u32,
            slots: Slots::Swap,
        },
    };
    compared(inputs, read, of)
}

/// Runs a program on the three systems.
pub fn times(inputs: &Inputs<'_>, program: Program, read: Time, threaded: bool) -> Result<Times, CheckError> {
    all(inputs, &systems(inputs, program, read, threaded)?)
}

/// How many times longer the first took.
fn ratio(longer: Outcome, shorter: Outcome) -> f64 {
    longer.time.as_s() / shorter.time.as_s()
}

/// The latency at which the SSD's system is as fast as NVMM with one thread and without
/// prefetching, in microseconds: between two of the curve's points, on a line. None: they do not
/// cross.
fn crossover(inputs: &Inputs<'_>) -> Result<Option<f64>, CheckError> {
    let mut before: Option<(f64, f64)> = None;
    for latency in &LATENCIES_NS[CROSSES_FROM..] {
        let at = *latency as f64 / 1e3;
        let [nvmm, _, ssd] = systems(inputs, Program::Mmap, Time::ns(*latency), false)?;
        let ahead = ratio(run(&ssd, inputs.seed)?, run(&nvmm, inputs.seed)?) - 1.0;
        match before {
            Some((from, last)) if last > 0.0 && ahead <= 0.0 => {
                return Ok(Some(from + (at - from) * last / (last - ahead)));
            }
            _ => before = Some((at, ahead)),
        }
    }
    Ok(None)
}

pub(super) fn mmap(inputs: &Inputs<'_>) -> Found {
    let mlc = inputs.time("flash.mlc")?;
    let [twice, longest] = inputs.exactly("flash.slow", Dimension::Time)?.map(|ps| Time(ps as u64));
    let one = times(inputs, Program::Mmap, mlc, false)?;
    let later = times(inputs, Program::Mmap, twice, false)?;
    let many = times(inputs, Program::Mmap, mlc, true)?;
    let many_late = times(inputs, Program::Mmap, longest, true)?;
    let (equal, beyond) = (ratio(one.ssd, one.nvmm), ratio(later.ssd, later.nvmm));
    let threads = ratio(many.ssd, many.nvmm);
    let both = ratio(many.ssd, many.prefetching);
    let pushed = ratio(many_late.ssd, many_late.nvmm).min(ratio(many_late.ssd, many_late.prefetching));
    Ok(vec![
        Finding::of("equal", "roughly the same as the SSD, one thread")
            .within(equal, "of NVMM's time, the SSD", (0.8, 1.2))
            .by("the SSD's faults cost twice as much and bring 128 KB, which later reads find")
            .also("misses for each access, NVMM", one.nvmm.miss_ratio)
            .also("the SSD", one.ssd.miss_ratio),
        Finding::of("prefetch", "1.64x with prefetching, one thread")
            .within(ratio(one.nvmm, one.prefetching), "times", (1.64 * 0.8, 1.64 * 1.2))
            .by("the next 16 pages serve later reads by chance, more of them as the file fills the DRAM"),
        Finding::of("ssd-ahead", "past 150 µs the SSD is ahead, one thread without prefetching")
            .trend(beyond < equal && beyond < 1.0, beyond, "of NVMM's time, the SSD at 150 µs")
            .by("each of NVMM's misses waits for the flash, and the SSD has half of them"),
        Finding::of("crossover", "the SSD passes at 150 µs")
            .within(crossover(inputs)?.unwrap_or(f64::INFINITY), "µs", (100.0, 200.0))
            .by("where the curves of one thread without prefetching cross"),
        Finding::of("pushed", "threads and prefetching push the crossover beyond 750 µs")
            .trend(pushed > 1.0, pushed, "of NVMM's time, the SSD at 750 µs with threads")
            .by("the lesser of NVMM with prefetching and without"),
        Finding::of("threads", "3x over the SSD with threads")
            .trend(threads > equal, threads, "times")
            .by("NVMM's misses overlap on their cores, and the system's software runs under one lock"),
        Finding::of("both", "7x with threads and prefetching")
            .trend(both > threads, both, "times")
            .by("prefetching takes the planes that the threads' misses need. By our assumption there are 32, as in \
                 HybridSim's configuration, and the text names none"),
    ])
}

pub(super) fn gups(inputs: &Inputs<'_>) -> Found {
    let mlc = inputs.time("flash.mlc")?;
    let [_, longest] = inputs.exactly("flash.slow", Dimension::Time)?.map(|ps| Time(ps as u64));
    let one = times(inputs, Program::Gups, mlc, false)?;
    let late = times(inputs, Program::Gups, longest, false)?;
    let many = times(inputs, Program::Gups, mlc, true)?;
    let over = ratio(one.ssd, one.nvmm);
    let gain = ratio(one.nvmm, one.prefetching);
    let late_gain = ratio(late.nvmm, late.prefetching);
    let threads = ratio(many.ssd, many.prefetching);
    Ok(vec![
        Finding::of("over-ssd", "3x over the SSD")
            .trend(over > 1.0, over, "times")
            .by("the software of a fault; that of the page that goes is not in the text")
            .also("bytes written back for each update", one.nvmm.written),
        Finding::of("prefetch", "3.7x instead of 3x with prefetching")
            .within(gain, "times", (1.0, 3.7 / 3.0 * 1.2))
            .by("the next 16 pages serve later updates by chance; half as many accesses as D9, so less"),
        Finding::of("slow-flash", "at 750 µs prefetching decreases performance")
            .trend(late_gain <= gain + 0.02, late_gain, "times with prefetching at 750 µs")
            .by(
                "by our assumption of 32 planes, one thread leaves most of them idle at any latency, and a bus counts \
                 for less at a longer one. In the text the traffic is more than the device's bandwidth, of which it \
                 gives nothing",
            ),
        Finding::of("threads", "4.7x over the SSD with threads")
            .trend(threads > over, threads, "times")
            .by("NVMM's misses overlap on their cores, and the system's software runs under one lock")
            .also("times without prefetching", ratio(many.ssd, many.nvmm)),
    ])
}

/// The least accesses of a sequential pass: many times the longest window.
const PASS_LEAST: u64 = 2_000;

/// Time of a sequential pass for each window, as a gain over none. What is written is read first.
pub fn gains(inputs: &Inputs<'_>, read: Time, work: Time, writes: bool) -> Result<Vec<(u32, f64)>, CheckError> {
    let (flash, dram) = (flash(inputs, read)?, inputs.bytes("dram.size")? as u64);
    let pages = inputs.count("dd.pages")?;
    let pass = Touches {
        data: pages * flash.page,
        object: flash.page,
        random: 0.0,
        writes: if writes { 1.0 } else { 0.0 },
        work,
        count: inputs.volume(pages / 4).max(PASS_LEAST),
        ..PLAIN
    };
    let mut gains = Vec::new();
    let mut without = None;
    for window in inputs.numbers("dd.windows", Dimension::Count)? {
        let backend = controller(inputs, window as u32)?;
        let outcome = run(&system(inputs, pass, dram, backend, flash)?, inputs.seed)?;
        let first = *without.get_or_insert(outcome);
        gains.push((window as u32, ratio(first, outcome)));
    }
    Ok(gains)
}

pub(super) fn window(inputs: &Inputs<'_>) -> Found {
    let (slc, mlc) = (inputs.time("flash.slc")?, inputs.time("flash.mlc")?);
    let (read, write) = (inputs.time("dd.read_cpu")?, inputs.time("dd.write_cpu")?);
    let (of_read, of_write) = (gains(inputs, mlc, read, false)?, gains(inputs, mlc, write, true)?);
    let of_slc = gains(inputs, slc, read, false)?;
    let last = |gains: &[(u32, f64)]| gains.last().map_or(0.0, |(_, gain)| *gain);
    let rises = |gains: &[(u32, f64)]| gains.windows(2).all(|pair| pair[1].1 > pair[0].1);
    // Each further page gains less than the one before it.
    let bends = |gains: &[(u32, f64)]| {
        let slope = |pair: &[(u32, f64)]| (pair[1].1 - pair[0].1) / f64::from(pair[1].0 - pair[0].0);
        gains.windows(3).all(|three| slope(&three[1..]) < slope(&three[..2]))
    };
    let why = "one miss of 17 pages waits for the flash, and each page is computed on";
    Ok(vec![
        Finding::of("read", "dd_read: up to 6x at MLC").within(last(&of_read), "times", (4.5, 7.5)).by(why),
        Finding::of("write", "dd_write: almost 3x at MLC").within(last(&of_write), "times", (2.25, 3.75)).by(why),
        Finding::of("shape", "a benefit in all windows")
            .trend(
                rises(&of_read) && rises(&of_write) && bends(&of_read) && bends(&of_write),
                of_read[2].1,
                "times with 2 pages, dd_read",
            )
            .by("gains rise with the window, and each further page gains less"),
        Finding::of("faster-flash", "less of a benefit at lower latencies")
            .trend(last(&of_slc) < last(&of_read), last(&of_slc), "times at SLC, dd_read")
            .by("the less a miss waits, the less is saved"),
    ])
}

/// The least accesses of a share.
const SHARES_LEAST: u64 = 1_000;

/// Gain of NVMM over the SSD by the share of random accesses: the share, one thread, threads. An
/// access that is not random is to the next page, and each changes its page, as in GUPS.
pub fn by_share(inputs: &Inputs<'_>) -> Result<Vec<(f64, Times, Times)>, CheckError> {
    let mlc = inputs.time("flash.mlc")?;
    let page = page(inputs)?;
    let (data, count) = (
        inputs.bytes("mmap.file")? as u64 / page * page,
        inputs.volume(inputs.count("shares.accesses")?).max(SHARES_LEAST),
    );
    let around = inputs.count("shares.around")? as u32;
    let mut by_share = Vec::new();
    for random in inputs.numbers("shares.random", Dimension::Share)? {
        let touches = Touches { data, object: page, random, writes: 1.0, count, ..PLAIN };
        let at = |threaded| -> Result<Times, CheckError> {
            let of = Compared { touches, threaded, around, slots: Slots::Swap };
            all(inputs, &compared(inputs, mlc, of)?)
        };
        by_share.push((random, at(false)?, at(true)?));
    }
    Ok(by_share)
}

pub(super) fn shares(inputs: &Inputs<'_>) -> Found {
    let all = by_share(inputs)?;
    let gain = |times: &Times| ratio(times.ssd, times.prefetching);
    let gains: Vec<f64> = all.iter().map(|(_, one, _)| gain(one)).collect();
    let (first, last) = (gains[0], gains[gains.len() - 1]);
    let threads: Vec<f64> = all.iter().map(|(_, one, many)| ratio(one.nvmm, many.nvmm)).collect();
    let ssd_threads: Vec<f64> = all.iter().map(|(_, one, many)| ratio(one.ssd, many.ssd)).collect();
    Ok(vec![
        Finding::of("ahead", "2x at 10% of random accesses, 5x at 100%")
            .trend(gains.iter().all(|gain| *gain > 1.0), first, "times at 10%")
            .by("a random access faults in both systems, and the SSD's fault costs more")
            .also("times at 100%", last),
        Finding::of("grows", "the boost increases with randomness, from 2x to 5x")
            .trend(last > first, last / first, "of the boost at 10%, at 100%")
            .by(
                "at 100% a fault is its read and its software beside the read alone. 5x would need 300 µs of software, \
                 and the same draft's table 3 has 73",
            ),
        Finding::of("threads", "NVMM benefits from threads at all levels")
            .trend(
                threads.iter().all(|gain| *gain > 1.0),
                threads[threads.len() - 1],
                "times one thread's throughput, all random",
            )
            .by("misses overlap")
            .also("times at 10%", threads[0]),
        Finding::of("ssd-threads", "the SSD benefits from threads at about 70% and above, and not below")
            .trend(
                ssd_threads[0] < 1.0 && ssd_threads[ssd_threads.len() - 1] > 1.0,
                ssd_threads[0],
                "times one thread's throughput at 10%",
            )
            .by(
                "in the text, sequential threads interfere and make traffic largely random, which outweighs their gain \
                 up to about 70%. By our assumption each fault brings its group of pages, whatever other threads read, \
                 so that reads only overlap",
            )
            .also("times at 100%", ssd_threads[ssd_threads.len() - 1]),
    ])
}
