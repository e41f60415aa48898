//! D8, D9, D11 and D12: time of programs over memory that is larger than the DRAM.
//!
//! NVMM stalls a core at a miss, and reads one page or also the next ones. The SSD's system runs
//! its software first, which grows with the latency of the flash as table 3 has it.

use fulgurite_sim::Time;

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::Planted;
use crate::models::paging::{Accesses, Flash, Outcome, Way, run};
use crate::units::Dimension;

/// Latencies of a curve.
pub const LATENCIES_NS: [u64; 9] = [150, 1_000, 5_000, 25_000, 50_000, 75_000, 150_000, 300_000, 750_000];

/// The flash at a latency.
pub fn flash(inputs: &Inputs<'_>, read: Time) -> Result<Flash, CheckError> {
    let (packages, planes) = (inputs.count("flash.packages")? as u32, inputs.count("flash.planes")? as u32);
    let bus = inputs.numbers("onfi.rates", Dimension::Rate)?;
    let transfer = inputs.bytes("flash.page")? / bus.first().copied().unwrap_or(f64::INFINITY);
    Ok(Flash { planes: packages * planes, planes_of_package: planes, read, transfer: Time((transfer * 1e12) as u64) })
}

/// The system's software in one access, at a latency of the flash: on the line through both rows of
/// table 3, and never below zero.
pub fn software(inputs: &Inputs<'_>, read: Time) -> Result<Time, CheckError> {
    if inputs.planted == Some(Planted::NoSoftware) {
        return Ok(Time::ZERO);
    }
    let (slc, mlc) = (inputs.time("flash.slc")?.as_ns(), inputs.time("flash.mlc")?.as_ns());
    let rows = inputs.numbers("system.software", Dimension::Time)?;
    let [at_slc, at_mlc] = rows[..] else {
        return Err(CheckError::NoAnswer("system.software needs two times".to_owned()));
    };
    let slope = (at_mlc - at_slc) / (mlc - slc);
    Ok(Time((at_slc + slope * (read.as_ns() - slc)).max(0.0) as u64))
}

/// The SSD's system, with faults that bring so many pages.
pub fn ssd(inputs: &Inputs<'_>, read: Time, around: u32) -> Result<Way, CheckError> {
    let around = if inputs.planted == Some(Planted::NoReadAround) { 1 } else { around };
    Ok(Way::System { software: software(inputs, read)?, interface: inputs.time("system.interface")?, around })
}

fn prefetch(inputs: &Inputs<'_>) -> Result<u32, CheckError> {
    let pages = inputs.count("system.prefetch")? as u32;
    Ok(if inputs.planted == Some(Planted::PrefetchLost) { 0 } else { pages })
}

/// Pages of the DRAM.
fn frames(inputs: &Inputs<'_>) -> Result<u32, CheckError> {
    Ok((inputs.bytes("dram.size")? / inputs.bytes("flash.page")?) as u32)
}

fn accesses(inputs: &Inputs<'_>, count: &str, threads: u32) -> Result<Accesses, CheckError> {
    let pages = (inputs.bytes("mmap.file")? / inputs.bytes("flash.page")?) as u32;
    let count = inputs.count(count)?;
    Ok(Accesses { pages, frames: frames(inputs)?, count, random: 1.0, threads, work: Time::ZERO, seed: inputs.seed })
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

/// Runs a program on the three systems. NVMM's threads stall their cores, the SSD's are switched.
pub fn times(inputs: &Inputs<'_>, program: Program, read: Time, threaded: bool) -> Result<Times, CheckError> {
    let (count, around) = match program {
        Program::Mmap => ("mmap.accesses", (inputs.bytes("system.read_around")? / inputs.bytes("flash.page")?) as u32),
        Program::Gups => ("gups.updates", inputs.count("gups.around")? as u32),
    };
    let flash = flash(inputs, read)?;
    let threads = if threaded { inputs.count("system.threads")? as u32 } else { 1 };
    let stalled = if threaded { inputs.count("system.cores")? as u32 } else { 1 };
    let on_nvmm = accesses(inputs, count, stalled)?;
    let on_ssd = accesses(inputs, count, threads)?;
    Ok(Times {
        nvmm: run(flash, Way::Controller { prefetch: 0 }, on_nvmm),
        prefetching: run(flash, Way::Controller { prefetch: prefetch(inputs)? }, on_nvmm),
        ssd: run(flash, ssd(inputs, read, around)?, on_ssd),
    })
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
    for latency in LATENCIES_NS {
        let at = latency as f64 / 1e3;
        let one = times(inputs, Program::Mmap, Time::ns(latency), false)?;
        let ahead = ratio(one.ssd, one.nvmm) - 1.0;
        match before {
            Some((from, last)) if last > 0.0 && ahead <= 0.0 => {
                return Ok(Some(from + (at - from) * last / (last - ahead)));
            }
            _ => before = Some((at, ahead)),
        }
    }
    Ok(None)
}

pub fn mmap(inputs: &Inputs<'_>) -> Found {
    let mlc = inputs.time("flash.mlc")?;
    let slow = inputs.numbers("flash.slow", Dimension::Time)?;
    let [twice, longest] = slow[..] else {
        return Err(CheckError::NoAnswer("flash.slow needs two times".to_owned()));
    };
    let (twice, longest) = (Time(twice as u64), Time(longest as u64));
    let one = times(inputs, Program::Mmap, mlc, false)?;
    let later = times(inputs, Program::Mmap, twice, false)?;
    let many = times(inputs, Program::Mmap, mlc, true)?;
    let many_late = times(inputs, Program::Mmap, longest, true)?;
    let (equal, beyond) = (ratio(one.ssd, one.nvmm), ratio(later.ssd, later.nvmm));
    let threads = ratio(many.ssd, many.nvmm);
    let both = ratio(many.ssd, many.prefetching);
    let pushed = ratio(many_late.ssd, many_late.nvmm).min(ratio(many_late.ssd, many_late.prefetching));
    Ok(vec![
        Finding::within(
            "equal",
            "roughly the same as the SSD, one thread",
            equal,
            "of NVMM's time, the SSD",
            (0.8, 1.2),
            "the SSD's faults cost twice as much and bring 128 KB, which later reads find",
        )
        .also("misses for each access, NVMM", one.nvmm.miss_ratio())
        .also("the SSD", one.ssd.miss_ratio()),
        Finding::within(
            "prefetch",
            "1.64x with prefetching, one thread",
            ratio(one.nvmm, one.prefetching),
            "times",
            (1.64 * 0.8, 1.64 * 1.2),
            "the next 16 pages serve later reads by chance, more of them as the file fills the DRAM",
        ),
        Finding::trend(
            "ssd-ahead",
            "past 150 µs the SSD is ahead, one thread without prefetching",
            beyond < equal && beyond < 1.0,
            (beyond, "of NVMM's time, the SSD at 150 µs"),
            "each of NVMM's misses waits for the flash, and the SSD has half of them",
        ),
        Finding::within(
            "crossover",
            "the SSD passes at 150 µs",
            crossover(inputs)?.unwrap_or(f64::INFINITY),
            "µs",
            (100.0, 200.0),
            "where the curves of one thread without prefetching cross",
        ),
        Finding::trend(
            "pushed",
            "threads and prefetching push the crossover beyond 750 µs",
            pushed > 1.0,
            (pushed, "of NVMM's time, the SSD at 750 µs with threads"),
            "the lesser of NVMM with prefetching and without",
        ),
        Finding::trend(
            "threads",
            "3x over the SSD with threads",
            threads > equal,
            (threads, "times"),
            "NVMM's misses overlap on their cores, and the system's software runs under one lock",
        ),
        Finding::trend(
            "both",
            "7x with threads and prefetching",
            both > threads,
            (both, "times"),
            "prefetching takes the planes that the threads' misses need: HybridSim's configuration has 32, and the \
             text names none",
        ),
    ])
}

pub fn gups(inputs: &Inputs<'_>) -> Found {
    let mlc = inputs.time("flash.mlc")?;
    let slow = inputs.numbers("flash.slow", Dimension::Time)?;
    let longest = Time(slow.last().copied().unwrap_or_default() as u64);
    let one = times(inputs, Program::Gups, mlc, false)?;
    let late = times(inputs, Program::Gups, longest, false)?;
    let many = times(inputs, Program::Gups, mlc, true)?;
    let over = ratio(one.ssd, one.nvmm);
    let gain = ratio(one.nvmm, one.prefetching);
    let late_gain = ratio(late.nvmm, late.prefetching);
    let threads = ratio(many.ssd, many.prefetching);
    Ok(vec![
        Finding::trend(
            "over-ssd",
            "3x over the SSD",
            over > 1.0,
            (over, "times"),
            "the software of a fault; that of the page that goes is not in the text",
        ),
        Finding::within(
            "prefetch",
            "3.7x instead of 3x with prefetching",
            gain,
            "times",
            (1.0, 3.7 / 3.0 * 1.2),
            "the next 16 pages serve later updates by chance; half as many accesses as D9, so less",
        ),
        Finding::trend(
            "slow-flash",
            "at 750 µs prefetching decreases performance",
            late_gain <= gain + 0.02,
            (late_gain, "times with prefetching at 750 µs"),
            "the gain does not grow with latency; that it becomes a loss does not follow from the text",
        ),
        Finding::trend(
            "threads",
            "4.7x over the SSD with threads",
            threads > over,
            (threads, "times"),
            "NVMM's misses overlap on their cores, and the system's software runs under one lock",
        ),
    ])
}

/// Time of a sequential pass for each window, as a gain over none.
pub fn gains(inputs: &Inputs<'_>, read: Time, work: Time) -> Result<Vec<(u32, f64)>, CheckError> {
    let flash = flash(inputs, read)?;
    let pages = inputs.count("dd.pages")? as u32;
    let pass = Accesses {
        pages,
        frames: frames(inputs)?,
        count: u64::from(pages) / 4,
        random: 0.0,
        threads: 1,
        work,
        seed: inputs.seed,
    };
    let mut gains = Vec::new();
    let mut without = None;
    for window in inputs.numbers("dd.windows", Dimension::Count)? {
        let kept = if inputs.planted == Some(Planted::PrefetchLost) { 0 } else { window as u32 };
        let outcome = run(flash, Way::Controller { prefetch: kept }, pass);
        let first = *without.get_or_insert(outcome);
        gains.push((window as u32, ratio(first, outcome)));
    }
    Ok(gains)
}

pub fn window(inputs: &Inputs<'_>) -> Found {
    let (slc, mlc) = (inputs.time("flash.slc")?, inputs.time("flash.mlc")?);
    let (read, write) = (inputs.time("dd.read_cpu")?, inputs.time("dd.write_cpu")?);
    let (of_read, of_write) = (gains(inputs, mlc, read)?, gains(inputs, mlc, write)?);
    let of_slc = gains(inputs, slc, read)?;
    let last = |gains: &[(u32, f64)]| gains.last().map_or(0.0, |(_, gain)| *gain);
    let rises = |gains: &[(u32, f64)]| gains.windows(2).all(|pair| pair[1].1 > pair[0].1);
    // Each further page gains less than the one before it.
    let bends = |gains: &[(u32, f64)]| {
        let slope = |pair: &[(u32, f64)]| (pair[1].1 - pair[0].1) / f64::from(pair[1].0 - pair[0].0);
        gains.windows(3).all(|three| slope(&three[1..]) < slope(&three[..2]))
    };
    let why = "one miss of 17 pages waits for the flash, and each page is computed on";
    Ok(vec![
        Finding::within("read", "dd_read: up to 6x at MLC", last(&of_read), "times", (4.5, 7.5), why),
        Finding::within("write", "dd_write: almost 3x at MLC", last(&of_write), "times", (2.25, 3.75), why),
        Finding::trend(
            "shape",
            "a benefit in all windows",
            rises(&of_read) && rises(&of_write) && bends(&of_read) && bends(&of_write),
            (of_read[2].1, "times with 2 pages, dd_read"),
            "gains rise with the window, and each further page gains less",
        ),
        Finding::trend(
            "faster-flash",
            "less of a benefit at lower latencies",
            last(&of_slc) < last(&of_read),
            (last(&of_slc), "times at SLC, dd_read"),
            "the less a miss waits, the less is saved",
        ),
    ])
}

/// Gain of NVMM over the SSD by the share of random accesses: the share, one thread, threads.
pub fn by_share(inputs: &Inputs<'_>) -> Result<Vec<(f64, Times, Times)>, CheckError> {
    let mlc = inputs.time("flash.mlc")?;
    let around = inputs.count("shares.around")? as u32;
    let flash = flash(inputs, mlc)?;
    let (threads, cores) = (inputs.count("system.threads")? as u32, inputs.count("system.cores")? as u32);
    let mut all = Vec::new();
    for random in inputs.numbers("shares.random", Dimension::Share)? {
        let at = |threads: u32, stalled: u32| -> Result<Times, CheckError> {
            let of = |threads| -> Result<Accesses, CheckError> {
                Ok(Accesses { random, ..accesses(inputs, "shares.accesses", threads)? })
            };
            Ok(Times {
                nvmm: run(flash, Way::Controller { prefetch: 0 }, of(stalled)?),
                prefetching: run(flash, Way::Controller { prefetch: prefetch(inputs)? }, of(stalled)?),
                ssd: run(flash, ssd(inputs, mlc, around)?, of(threads)?),
            })
        };
        all.push((random, at(1, 1)?, at(threads, cores)?));
    }
    Ok(all)
}

pub fn shares(inputs: &Inputs<'_>) -> Found {
    let all = by_share(inputs)?;
    let gain = |times: &Times| ratio(times.ssd, times.prefetching);
    let gains: Vec<f64> = all.iter().map(|(_, one, _)| gain(one)).collect();
    let (first, last) = (gains[0], gains[gains.len() - 1]);
    let threads: Vec<f64> = all.iter().map(|(_, one, many)| ratio(one.nvmm, many.nvmm)).collect();
    let ssd_threads: Vec<f64> = all.iter().map(|(_, one, many)| ratio(one.ssd, many.ssd)).collect();
    Ok(vec![
        Finding::trend(
            "ahead",
            "2x at 10% of random accesses, 5x at 100%",
            gains.iter().all(|gain| *gain > 1.0),
            (first, "times at 10%"),
            "a random access faults in both systems, and the SSD's fault costs more",
        )
        .also("times at 100%", last),
        Finding::trend(
            "grows",
            "the boost increases with randomness, from 2x to 5x",
            last > first,
            (last / first, "of the boost at 10%, at 100%"),
            "at 100% a fault is its read and its software beside the read alone. 5x would need 300 µs of software, and \
             the same draft's table 3 has 73",
        ),
        Finding::trend(
            "threads",
            "NVMM benefits from threads at all levels",
            threads.iter().all(|gain| *gain > 1.0),
            (threads[threads.len() - 1], "times one thread's throughput, all random"),
            "misses overlap",
        )
        .also("times at 10%", threads[0]),
        Finding::trend(
            "ssd-threads",
            "the SSD benefits from threads at about 70% and above, and not below",
            ssd_threads[0] < 1.0 && ssd_threads[ssd_threads.len() - 1] > 1.0,
            (ssd_threads[0], "times one thread's throughput at 10%"),
            "in the text, sequential threads interfere and make traffic largely random, which outweighs their gain up to \
             about 70%. Here each fault brings its group of pages, whatever other threads read, so that reads only \
             overlap",
        )
        .also("times at 100%", ssd_threads[ssd_threads.len() - 1]),
    ])
}
