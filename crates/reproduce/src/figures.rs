//! The papers' figures, drawn: curves and bars that the models give, next to the numbers that the
//! texts state. The curves of the papers themselves are not in the texts.
//!
//! A figure reads the calibration that the checks read, and no value of its own.

use fulgurite_policy::SchedulingPolicy;
use fulgurite_sim::cores::Workload;
use fulgurite_sim::queue::Misses;
use fulgurite_sim::{Time, closed_forms};
use fulgurite_term::report::charts::{Axis, Bar, Bars, Curve, Curves};

use crate::calibration::{CalibrationError, Values};
use crate::check::{CheckError, Inputs};
use crate::checks::astriflash::arithmetic;
use crate::checks::astriflash::tail::{self, Tatp};
use crate::checks::dram_interface::system::Op;
use crate::checks::dram_interface::throughput;
use crate::checks::nvmm::memory::{self, Program, Times};
use crate::checks::nvmm::wear;
use crate::paper::Paper;
use crate::report::{Report, Row};
use crate::shared::Shared;
use crate::units::Dimension;

/// Numbers that the text states.
const STATED: &str = "the paper's text";

fn series(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
    Curve { name: name.to_owned(), points: points.into_iter().collect() }
}
fn curves(title: impl Into<String>, subtitle: &str, x: Axis, y: Axis, curves: Vec<Curve>) -> String {
    Curves::new(title, subtitle, x, y, curves).draw().finish()
}
/// Bars in groups. Of the points of a series, x counts the groups.
fn bars(title: &str, subtitle: &str, groups: Vec<String>, unit: &str, series: &[Curve]) -> String {
    let bar = |group: usize, of: &Curve| {
        let (_, value) = *of.points.iter().find(|(at, _)| *at == group as f64)?;
        Some(Bar { value, spread: None, tip: format!("{}: {value:.1} {unit}", of.name) })
    };
    let bars = Bars {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        unit: unit.to_owned(),
        series: series.iter().map(|of| of.name.clone()).collect(),
        bars: (0..groups.len()).map(|group| series.iter().map(|of| bar(group, of)).collect()).collect(),
        groups,
        mark: None,
    };
    bars.draw().finish()
}

/// Figures as SVG.
type Drawn = Result<Vec<String>, CheckError>;

/// All figures as SVG, each with its paper. `shorter` divides the runs of those that are simulated,
/// and `report` has the findings for those that show these.
///
/// # Errors
/// What is wrong with a calibration, or a model that has no answer.
pub fn all(shorter: u64, report: &Report) -> Result<Vec<(Paper, String)>, CheckError> {
    let shared = Shared::default();
    let mut all = Vec::new();
    for (paper, of) in [
        (Paper::AstriFlash, astriflash as fn(&Inputs<'_>, &Report) -> Drawn),
        (Paper::DramInterface, dram_interface),
        (Paper::Nvmm, nvmm),
    ] {
        let calibration = paper.calibration().map_err(|error: CalibrationError| CheckError::from(error))?;
        let inputs = Inputs { values: Values::new(&calibration), seed: 1, shorter, planted: None, shared: &shared };
        all.extend(of(&inputs, report)?.into_iter().map(|figure| (paper, figure)));
    }
    Ok(all)
}

fn astriflash(inputs: &Inputs<'_>, report: &Report) -> Drawn {
    let mut figures = vec![];
    let shares = [0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1];
    let (of_core, block, page) =
        (inputs.number("bandwidth.of_core", Dimension::Rate)?, inputs.bytes("l1.block")?, inputs.bytes("cache.page")?);
    let cores = inputs.count("system.cores_large")? as f64;
    let (mut misses, mut bandwidth) = (Vec::new(), Vec::new());
    for share in shares {
        let ratio = arithmetic::miss_ratio(inputs, share)?;
        misses.push((share * 100.0, ratio * 100.0));
        bandwidth.push((share * 100.0, of_core / block * ratio * page * cores / 1e9));
    }
    let stated = inputs.number("bandwidth.flash", Dimension::Rate)? / 1e9;
    let knee = inputs.share("cache.share")? * 100.0;
    figures.push(curves(
        "AstriFlash, figure 1: miss rate",
        "misses of a Zipf stream, of its accesses",
        Axis::linear("% of the data in DRAM"),
        Axis::linear("% misses"),
        vec![series("miss rate", misses), series(STATED, [(knee, knee)])],
    ));
    figures.push(curves(
        "AstriFlash, figure 1: flash bandwidth",
        "equation 1, 64 cores, for the miss rates above",
        Axis::linear("% of the data in DRAM"),
        Axis::linear("GB/s"),
        vec![series("flash bandwidth", bandwidth), series(STATED, [(knee, stated)])],
    ));
    figures.push(queues(inputs)?);
    if let Some(figure) = throughputs(report) {
        figures.push(figure);
    }
    figures.extend(tails(inputs, report)?);
    Ok(figures)
}

/// Figure 3: closed forms.
fn queues(inputs: &Inputs<'_>) -> Result<String, CheckError> {
    let (work, flash) = (inputs.time("miss.interval")?.as_us(), inputs.time("flash.read")?.as_us());
    let paging = inputs.time("paging.fault")?.as_us() + inputs.time("paging.switch")?.as_us();
    let switch = inputs.time("miss.switch")?.as_us();
    // Servers, the time of a job in them, and what a job costs the core.
    let system = |overlapped: bool, cost: f64| {
        let span = if overlapped { work + cost + flash } else { cost };
        let servers = if overlapped { (span / (work + cost) + 0.5) as u32 } else { 1 };
        (servers, if overlapped { (work + cost) * f64::from(servers) } else { span })
    };
    let curve = |(servers, span): (u32, f64)| -> Vec<(f64, f64)> {
        let highest = f64::from(servers) / span;
        let loads = [0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.985];
        let point = |load: &f64| {
            let rate = highest * load;
            (rate * work, closed_forms::response_quantile(servers, span, rate, 0.99) / work)
        };
        loads.iter().map(point).collect()
    };
    let slo = inputs.share("service.slo")?;
    Ok(curves(
        "AstriFlash, figure 3: p99 by throughput",
        "M/M/1 and M/M/k in closed form: a miss of 50 µs every 10 µs",
        Axis::linear("throughput, of the most of DRAM-only"),
        Axis::logarithmic("p99 response, in service times of DRAM-only"),
        vec![
            series("DRAM-only", curve(system(false, work))),
            series("AstriFlash", curve(system(true, switch))),
            series("OS-Swap", curve(system(true, paging))),
            series("Flash-Sync", curve(system(false, work + flash))),
            series("objective of 40x", [(0.0, slo), (1.0, slo)]),
        ],
    ))
}

/// Figure 9: what A11 found of each workload and on average, where it ran.
fn throughputs(report: &Report) -> Option<String> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.check == "A11").collect();
    let of = |finding: &str| rows.iter().copied().find(|row| row.finding == finding);
    let systems = [
        ("AstriFlash", "astriflash", 95.0),
        ("AstriFlash-Ideal", "ideal", 96.0),
        ("OS-Swap", "os-swap", 58.0),
        ("Flash-Sync", "flash-sync", 27.0),
    ];
    let names = Workload::ALL.map(Workload::name);
    let mean = names.len() as f64;
    let mut series_of = Vec::new();
    for (name, finding, stated) in systems {
        let row = of(finding)?;
        let bar = |(at, workload): (usize, &&str)| {
            let (_, share) = row.also.iter().find(|(other, _)| other == workload)?;
            Some((at as f64, *share))
        };
        let bars = names.iter().enumerate().filter_map(bar);
        series_of.push(series(name, bars.chain([(mean, row.ours?), (mean + 1.0, stated)])));
    }
    // The text states means only: they are the last group.
    let groups = names.iter().map(|name| (*name).to_owned()).chain(["mean", "mean, the paper's"].map(str::to_owned));
    Some(bars(
        "AstriFlash, figure 9: throughput of the configurations",
        "% of DRAM-only, by workload; the text states the four means only",
        groups.collect(),
        "% of DRAM-only",
        &series_of,
    ))
}

/// Figure 10: the event loop at loads, with what A13 has read from A11.
fn tails(inputs: &Inputs<'_>, report: &Report) -> Result<Option<String>, CheckError> {
    let Some(tatp) = report.rows.iter().find(|row| row.check == "A13" && row.finding == "gap") else {
        return Ok(None);
    };
    let of = |name: &str| tatp.also.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
    let (Some(interval), Some(cost)) = (of(tail::COMPUTING), of(tail::COST)) else { return Ok(None) };
    let switch = inputs.time("miss.switch")?;
    let tatp = Tatp { interval: Time::from_ns(interval * 1e3), miss_cost: Time::from_ns(cost), switch };
    let threads = inputs.count("threads.of_core")? as usize;
    let service = inputs.time("jobs.tatp")?.as_ns();
    let ours = Misses::Switch { policy: SchedulingPolicy::PriorityAging, threads };
    let curve = |misses: Misses, most: f64| -> Result<Vec<(f64, f64)>, CheckError> {
        let loads = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97];
        let loads = loads.into_iter().filter(|load| *load <= most);
        loads.map(|load| Ok((load, tail::p99_ns(inputs, tatp, misses, load)? / service))).collect()
    };
    let load = inputs.share("load.astriflash")?;
    let (dram, astriflash) = (curve(Misses::Absent, 0.97)?, curve(ours, load)?);
    let last = astriflash.last().copied().unwrap_or_default();
    Ok(Some(curves(
        "AstriFlash, figure 10: p99 of TATP by load",
        "Poisson arrivals on the event loop; the text has one p99 at 93% and at 96%",
        Axis::linear("load, of the most of DRAM-only"),
        Axis::logarithmic("p99 response, in service times of DRAM-only"),
        vec![
            series("DRAM-only", dram),
            series("AstriFlash", astriflash),
            series(STATED, [(load, last.1), (load + 0.03, last.1)]),
        ],
    )))
}

fn dram_interface(inputs: &Inputs<'_>, _: &Report) -> Drawn {
    let kib = |chunk: u64| chunk as f64 / 1024.0;
    let chunk = || Axis::logarithmic("KB of a request");
    let (mut interface, mut protocol) = (Vec::new(), Vec::new());
    let (mut overhead, mut of_ufs) = (Vec::new(), Vec::new());
    for size in throughput::CHUNKS {
        let (raw, whole) = throughput::bandwidths(inputs, size)?;
        interface.push((kib(size), raw / 1e6));
        protocol.push((kib(size), whole / 1e6));
        overhead.push((kib(size), throughput::latency_us((raw, whole), size)));
        of_ufs.push((kib(size), throughput::latency_us(throughput::bandwidths_of_ufs(inputs, size)?, size)));
    }
    let mut figures = vec![
        curves(
            "DRAM interface, figure 6: interface and protocol bandwidth",
            "reads at depth 1 without NAND",
            chunk(),
            Axis::linear("MB/s"),
            vec![series("interface", interface), series("protocol", protocol), series(STATED, [(512.0, 366.7)])],
        ),
        curves(
            "DRAM interface, figure 7: latency of the protocol",
            "what a command costs in addition to its transfer; the text has no number for UFS",
            chunk(),
            Axis::linear("µs"),
            vec![series("the prototype", overhead), series("UFS", of_ufs)],
        ),
    ];
    let mut by_buffer = Vec::new();
    for size in throughput::CHUNKS_OF_BUFFERS {
        let each: Result<Vec<(f64, f64)>, CheckError> = throughput::BUFFERS
            .iter()
            .map(|buffer| Ok((kib(*buffer), throughput::with_buffer(inputs, size, *buffer)?)))
            .collect();
        by_buffer.push(series(&format!("{} KB chunks", kib(size)), each?));
    }
    by_buffer.push(series(STATED, [(512.0, 436.0)]));
    figures.push(curves(
        "DRAM interface, figure 8: throughput by buffer",
        "reads at depth 4",
        Axis::logarithmic("KB of the interface's buffer"),
        Axis::linear("MB/s"),
        by_buffer,
    ));
    let by_chunk = |op, depth| -> Result<Vec<(f64, f64)>, CheckError> {
        let each = throughput::by_chunk(inputs, op, depth)?;
        Ok(throughput::CHUNKS.into_iter().map(kib).zip(each).collect())
    };
    figures.push(curves(
        "DRAM interface, figure 9: throughput by chunk",
        "reads and writes, depth 1 and 4",
        chunk(),
        Axis::linear("MB/s"),
        vec![
            series("read, 4", by_chunk(Op::Read, 4)?),
            series("read, 1", by_chunk(Op::Read, 1)?),
            series("write, 4", by_chunk(Op::Write, 4)?),
            series("write, 1", by_chunk(Op::Write, 1)?),
            series(STATED, [(512.0, 432.2), (512.0, 95.8)]),
        ],
    ));
    let shares = throughput::compared_with_ufs(inputs)?;
    let groups = ["512 KB read", "512 KB write", "4 KB read", "4 KB write"];
    let of = |at: usize, value: f64| (at as f64, value);
    figures.push(bars(
        "DRAM interface, figure 10: compared with UFS",
        "depth 4",
        groups.map(str::to_owned).to_vec(),
        "MB/s",
        &[
            series("the prototype", shares.iter().enumerate().map(|(at, bar)| of(at, bar.0))),
            series("UFS", shares.iter().enumerate().map(|(at, bar)| of(at, bar.1))),
        ],
    ));
    Ok(figures)
}

fn nvmm(inputs: &Inputs<'_>, _: &Report) -> Drawn {
    let mut figures = Vec::new();
    for (program, name) in [(Program::Gups, "GUPS"), (Program::Mmap, "MMAP")] {
        for threaded in [false, true] {
            figures.push(latencies(inputs, program, name, threaded)?);
        }
    }
    figures.push(windows(inputs)?);
    figures.push(shares(inputs)?);
    figures.push(lifetime(inputs)?);
    Ok(figures)
}

fn latencies(inputs: &Inputs<'_>, program: Program, name: &str, threaded: bool) -> Result<String, CheckError> {
    let mut columns: [Vec<(f64, f64)>; 3] = Default::default();
    for latency in memory::LATENCIES_NS {
        let Times { nvmm, prefetching, ssd } = memory::times(inputs, program, Time::ns(latency), threaded)?;
        for (column, outcome) in columns.iter_mut().zip([nvmm, prefetching, ssd]) {
            column.push((latency as f64 / 1e3, outcome.time.as_s() * 1e3));
        }
    }
    let [nvmm, prefetching, ssd] = columns;
    let who = if threaded { "16 threads" } else { "one thread" };
    Ok(curves(
        format!("NVMM, latency of the backing store: {name}, {who}"),
        "time of the whole run",
        Axis::logarithmic("µs of a read"),
        Axis::logarithmic("ms"),
        vec![series("NVMM", nvmm), series("NVMM, prefetching", prefetching), series("SSD", ssd)],
    ))
}

fn windows(inputs: &Inputs<'_>) -> Result<String, CheckError> {
    let (slc, mlc) = (inputs.time("flash.slc")?, inputs.time("flash.mlc")?);
    let curve = |read, work, writes| -> Result<Vec<(f64, f64)>, CheckError> {
        let gains = memory::gains(inputs, read, inputs.time(work)?, writes)?;
        Ok(gains.into_iter().map(|(window, gain)| (f64::from(window), gain)).collect())
    };
    Ok(curves(
        "NVMM, the prefetching window",
        "a sequential pass, over that without prefetching",
        Axis::linear("pages that are prefetched"),
        Axis::linear("times"),
        vec![
            series("dd_read, MLC", curve(mlc, "dd.read_cpu", false)?),
            series("dd_write, MLC", curve(mlc, "dd.write_cpu", true)?),
            series("dd_read, SLC", curve(slc, "dd.read_cpu", false)?),
            series(STATED, [(16.0, 6.0), (16.0, 3.0)]),
        ],
    ))
}

fn shares(inputs: &Inputs<'_>) -> Result<String, CheckError> {
    let all = memory::by_share(inputs)?;
    let curve = |of: &dyn Fn(&(f64, Times, Times)) -> Time| -> Vec<(f64, f64)> {
        all.iter().map(|each| (each.0 * 100.0, of(each).as_s() * 1e3)).collect()
    };
    Ok(curves(
        "NVMM, the share of random accesses",
        "time of the whole run; NVMM with prefetching",
        Axis::linear("% random"),
        Axis::logarithmic("ms"),
        vec![
            series("SSD, 1 thread", curve(&|each| each.1.ssd.time)),
            series("NVMM, 1 thread", curve(&|each| each.1.prefetching.time)),
            series("SSD, 16 threads", curve(&|each| each.2.ssd.time)),
            series("NVMM, 16 threads", curve(&|each| each.2.prefetching.time)),
        ],
    ))
}

fn lifetime(inputs: &Inputs<'_>) -> Result<String, CheckError> {
    let wear = wear::model(inputs)?;
    let half = inputs.number("wear.half", Dimension::Time)? / 86_400e12;
    let days = half / wear.until(0.5);
    let curve = wear.curve(100).into_iter().map(|(written, left)| (written * days, left * 100.0));
    let all = inputs.number("wear.all", Dimension::Time)? / 86_400e12;
    Ok(curves(
        "NVMM, lifetime of one 8 Gb device",
        "capacity that is left; a thousand devices last a thousand times as long, less what the store writes",
        Axis::linear("days"),
        Axis::linear("% of the capacity"),
        vec![series("capacity", curve), series(STATED, [(half, 50.0), (all, 0.0)])],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_of_their_groups() {
        let all = [series("ours <1>", [(0.0, 2.0), (1.0, 3.0)]), series("theirs", [(1.0, 4.0)])];
        let drawn = bars("a figure", "", vec!["a".to_owned(), "b".to_owned()], "MB/s", &all);
        assert!(drawn.contains("<svg") && drawn.contains(": 2.0 MB/s") && drawn.contains("theirs: 4.0 MB/s"));
        assert!(!drawn.contains("theirs: 2") && !drawn.contains("theirs: 0") && !drawn.contains("<1>"));
    }
}
