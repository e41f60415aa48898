//! `micro`: what a switch, a hit and a miss cost, and what a miss is made of.
//!
//! Every round measures everything once, so that a disturbance hits all figures. The median is
//! reported, with the lowest and the highest round.

mod fault;
mod hit;
mod miss;
mod primitives;
mod system;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use fulgurite_format::format_bytes;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::args::MicroArgs;
use crate::medium::{CheckedMedium, Holds, TestBed};
use crate::values::{Config, Measure};
use fault::Faults;
use fulgurite_harness::Spread;
use fulgurite_harness::args::FlashArgs;
use fulgurite_harness::checks;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Bar, Bars, stack};
use fulgurite_term::report::{self, Report, table};
use hit::Hits;
use miss::{Measured, Misses, Phase, Sizes};

/// One figure: the median of the rounds, and the rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub what: &'static str,
    /// Nanoseconds (`ns`), or a share (`share`).
    pub unit: &'static str,
    /// What it should not exceed.
    pub target: Option<f64>,
    /// Middle, lowest and highest round.
    #[serde(flatten)]
    pub spread: Spread,
    /// Each round.
    pub rounds: Vec<f64>,
}

/// All figures, in the order in which they are shown: name, unit, target, what it is.
const FIGURES: &[(&str, &str, Option<f64>, &str)] = &[
    ("switch_ns", "ns", Some(15.0), "one switch to a fiber or back"),
    ("raw_load_ns", "ns", None, "a load from plain memory, resident and cached, independent of others"),
    ("guarded_load_ns", "ns", None, "the same load, guarded"),
    ("hit_overhead_ns", "ns", Some(2.0), "the difference: what a hit costs over a raw load"),
    ("chained_raw_ns", "ns", None, "a load whose address is the previous load's value"),
    ("chained_guarded_ns", "ns", None, "the same load, guarded"),
    ("chained_overhead_ns", "ns", None, "the difference: what a guard adds to the latency of a load"),
    ("job_ns", "ns", None, "an empty request of a service: started, ended, the next one chosen"),
    ("submit_poll_ns", "ns", None, "a read of the flash, submitted and polled, in batches of 64"),
    ("barrier_ns", "ns", None, "a barrier on all threads; several workers pay one for each batch of victims"),
    ("hit_request_ns", "ns", None, "CPU of a request of the miss phases (2 µs of computing, one load) that hits"),
    ("miss_cpu_ns", "ns", Some(300.0), "CPU that a miss adds to that request, eviction of a clean victim included"),
    ("miss_cpu_write_ns", "ns", None, "the same for a store whose victim is dirty and is written back"),
    ("miss_p50_ns", "ns", None, "from a miss to its fiber's being runnable again, median"),
    ("miss_p99_ns", "ns", None, "the same, 99% of misses"),
    (
        "crowded_share",
        "share",
        None,
        "misses left out because all fibers were busy, so that the worker may have polled",
    ),
    ("crowded_ns", "ns", None, "CPU of these, polling included, for each access of the phase"),
    ("fault_ns", "ns", None, "a page fault without I/O: signal, a page of zeros comes, another one leaves (in-line)"),
    ("fault_bare_ns", "ns", None, "the same primitives alone: a signal, a page moved out, zeroed, and moved in"),
    ("fault_share", "share", Some(1.25), "the page fault as a share of the primitives"),
];

/// Minimum size of the data, in DRAMs: hardly any access at random hits.
const DATA_OVER_DRAM: u64 = 8;

/// How much is done in a round.
struct Amounts {
    rounds: u32,
    data_bytes: u64,
    dram_bytes: u64,
    switches: u64,
    loads: u64,
    jobs: u64,
    batches: u64,
    barriers: u64,
    requests: u64,
}

impl Amounts {
    fn of(args: &MicroArgs) -> Amounts {
        let of = |quickly, usually| if args.output.quick { quickly } else { usually };
        Amounts {
            // Many and short: what else the machine does falls on few of them.
            rounds: args.repeat.rounds.unwrap_or(if args.output.quick { 3 } else { 31 }),
            data_bytes: args.size.data.unwrap_or(of(256 << 20, 2 << 30)),
            dram_bytes: of(8 << 20, 64 << 20),
            switches: of(100_000, 1_000_000),
            loads: of(10_000, 200_000),
            jobs: of(50_000, 500_000),
            batches: of(20, 50),
            barriers: of(200, 1_000),
            requests: of(20_000, 40_000),
        }
    }
}

/// What the rounds gave.
#[derive(Default)]
struct Collected {
    rounds: BTreeMap<&'static str, Vec<f64>>,
    latency: Option<Histogram<u64>>,
    sleeps: u64,
    /// Phases in which too few misses were left to say what one costs.
    without_cost: u64,
}

impl Collected {
    fn add(&mut self, name: &'static str, value: f64) {
        self.rounds.entry(name).or_default().push(value);
    }

    fn add_latencies(&mut self, measured: &Measured) {
        let Some(statistics) = &measured.statistics else { return };
        self.add("miss_p50_ns", statistics.miss_ns.value_at_quantile(0.5) as f64);
        self.add("miss_p99_ns", statistics.miss_ns.value_at_quantile(0.99) as f64);
        match &mut self.latency {
            // Same bounds by construction.
            Some(all) => all.add(&statistics.miss_ns).expect("histograms of the same bounds"),
            None => self.latency = Some(statistics.miss_ns.clone()),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |(name, unit, target, what): &(&'static str, &'static str, Option<f64>, &'static str)| {
            let rounds = self.rounds.get(name)?.clone();
            Some(Figure { name, what, unit, target: *target, spread: Spread::of(rounds.iter().copied()), rounds })
        };
        FIGURES.iter().filter_map(figure).collect()
    }
}

/// Runs `micro`.
pub fn run(args: &MicroArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let amounts = Amounts::of(args);
    let machine = Machine::describe();
    let of_system =
        args.system.as_ref().map(|path| Ok::<_, anyhow::Error>((path, system_wanted(args)?))).transpose()?;
    let (data, dram) = (format_bytes(amounts.data_bytes), format_bytes(amounts.dram_bytes));
    if !amounts.data_bytes.is_power_of_two() || amounts.data_bytes < DATA_OVER_DRAM * amounts.dram_bytes {
        bad_input!(
            "--data {data} must be a power of two, and {DATA_OVER_DRAM} times the DRAM of {dram} or more, so that accesses miss; choose \
             for example 256M"
        );
    }
    let wanted = args.on.wanted();
    let judged = if args.config.contains(&Measure::Miss) {
        // The frames, and the frames of the hits.
        let other = amounts.dram_bytes + (96 << 20);
        Some(CheckedMedium::new(wanted, Holds::Data, amounts.data_bytes, other, &machine)?.planes(miss::PLANES))
    } else if args.on.flash.is_some() && args.system.is_none() {
        bad_input!(
            "--flash is what misses are read from, and --config names none; add miss to it, or leave --flash out"
        )
    } else {
        None
    };
    let cores = fulgurite_sys::affinity::cores();
    let worker_core = cores[0];
    let load_before = load_average();
    report::print(&args.output, &machine.line())?;

    let sizes = Sizes { data_bytes: amounts.data_bytes, dram_bytes: amounts.dram_bytes, worker_core };
    let mut rigs = Rigs { sizes, interrupt: &interrupt, judged, medium: None, hits: None, faults: None, misses: None };
    let mut collected = Collected::default();
    let bar = progress::steps("rounds", u64::from(amounts.rounds));
    // What was measured before an interruption stays.
    let (_, interrupted) = until_interrupted(0..amounts.rounds, |_| {
        bar.inc(1);
        round(&amounts, &args.config, &mut rigs, &mut collected)
    })?;
    bar.finish_and_clear();
    let device_core = rigs.medium.as_ref().and_then(TestBed::device_core);
    let flash = rigs.misses.as_ref().map(|misses| misses.flash().describe());
    let (frames, work) = (rigs.misses.as_ref().map(Misses::frames), rigs.misses.as_ref().map(Misses::work_iterations));

    let figures = collected.figures();
    let no_faults = rigs.faults.take().and_then(Faults::end);
    // What the processes of a system need is free again.
    (rigs.hits, rigs.misses, rigs.medium) = (None, None, None);
    let written = match (of_system, interrupted) {
        (Some((path, mut wanted)), false) => {
            wanted.hit_ns = figures.iter().find(|f| f.name == "chained_overhead_ns").map(|f| f.spread.median);
            Some(system::write(path, &wanted, &interrupt)?)
        }
        _ => None,
    };
    let mut notes = notes(&figures, &collected, &cores, load_before);
    notes.extend(no_faults);
    report::print(
        &args.output,
        &match (frames, &flash) {
            (Some(frames), Some(flash)) => {
                format!("{data} of data on {flash}, {dram} of DRAM ({frames} frames), {} rounds", amounts.rounds)
            }
            _ => format!("{} rounds", amounts.rounds),
        },
    )?;
    report::print(&args.output, &figures_table(&figures))?;
    report::print_all(&args.output, &notes)?;
    report::print_all(&args.output, &written)?;
    let setting = serde_json::json!({
        "rounds": amounts.rounds,
        "flash": wanted.flash.to_string(),
        "medium": flash,
        "data_bytes": amounts.data_bytes,
        "dram_bytes": amounts.dram_bytes,
        "measures": args.config,
        "frames": frames,
        "work_iterations": work,
        "requests_per_phase": amounts.requests,
        "worker_core": worker_core,
        "device_core": device_core,
        "load_average": load_before,
        "worker_sleeps": collected.sleeps,
        "optimised": !cfg!(debug_assertions),
        "notes": notes,
    });
    let mut report = Report { interrupted, ..Report::new(&machine, setting, &figures) };
    for figure in &figures {
        report = report.with(figure.name, figure.spread.median)?;
    }
    report.finish(&args.output, || draw(&figures, &machine.line()))
}

/// Data of a system, as in `live`.
const SYSTEM_DATA_BYTES: u64 = 2 << 30;
const SYSTEM_QUICK_DATA_BYTES: u64 = 160 << 20;

/// What `--system` asks for, checked before anything is measured.
fn system_wanted(args: &MicroArgs) -> Result<system::Wanted> {
    if matches!(args.of, Config::DramOnly | Config::Resident | Config::FlashSync) {
        bad_input!("--of {}: it has no misses to switch at; use fulgurite, pool or os-swap", args.of);
    }
    let quick = args.output.quick;
    let path = args.system.as_ref().expect("--of has no meaning without --system");
    checks::writable("--system", path)?;
    Ok(system::Wanted {
        config: args.of,
        flash: FlashArgs { on: args.on.clone(), fibers: args.fibers, ..FlashArgs::usual() },
        data_bytes: if quick { SYSTEM_QUICK_DATA_BYTES } else { SYSTEM_DATA_BYTES },
        rounds: args.repeat.rounds.unwrap_or(if quick { 3 } else { 15 }),
        requests: if quick { 4_000 } else { 40_000 },
        seed: args.output.seed,
        quick,
        hit_ns: None,
    })
}

/// What is measured on, each made at its first use: filling the flash takes seconds.
struct Rigs<'i> {
    sizes: Sizes,
    interrupt: &'i Interrupt,
    judged: Option<CheckedMedium>,
    hits: Option<Hits>,
    faults: Option<Faults>,
    /// Above the medium: it goes first.
    misses: Option<Misses>,
    medium: Option<TestBed>,
}

impl Rigs<'_> {
    fn hits(&mut self) -> Result<&Hits> {
        if self.hits.is_none() {
            self.hits = Some(Hits::start(self.sizes.worker_core)?);
        }
        Ok(self.hits.as_ref().expect("set just now"))
    }
    fn faults(&mut self) -> Result<&mut Faults> {
        if self.faults.is_none() {
            self.faults = Some(Faults::start(self.interrupt)?);
        }
        Ok(self.faults.as_mut().expect("set just now"))
    }
    fn misses(&mut self) -> Result<&mut Misses> {
        if let Some(judged) = self.judged.take() {
            self.medium = Some(judged.make(self.interrupt)?);
        }
        if self.misses.is_none() {
            let medium = self.medium.as_ref().context("no flash was judged")?;
            let bar = progress::share("filling the flash");
            self.misses = Some(Misses::start(self.sizes, medium, &mut |share| {
                progress::set_share(&bar, share);
                self.interrupt.check()
            })?);
            bar.finish_and_clear();
        }
        Ok(self.misses.as_mut().expect("set just now"))
    }
}

/// Everything that was asked for, once.
fn round(amounts: &Amounts, measures: &[Measure], rigs: &mut Rigs<'_>, all: &mut Collected) -> Result<()> {
    let interrupt = rigs.interrupt;
    interrupt.check()?;
    if measures.contains(&Measure::Switch) {
        let switch = || primitives::switch(amounts.switches);
        all.add("switch_ns", primitives::on_core(rigs.sizes.worker_core, switch)?);
    }
    if measures.contains(&Measure::Hit) {
        let costs = rigs.hits()?.round(amounts.loads)?;
        all.add("raw_load_ns", costs.raw);
        all.add("guarded_load_ns", costs.guarded);
        all.add("hit_overhead_ns", costs.guarded - costs.raw);
        all.add("chained_raw_ns", costs.chained_raw);
        all.add("chained_guarded_ns", costs.chained_guarded);
        all.add("chained_overhead_ns", costs.chained_guarded - costs.chained_raw);
    }
    if measures.contains(&Measure::Fault)
        && let Some(costs) = rigs.faults()?.round()?
    {
        all.add("fault_ns", costs.buffer_ns);
        all.add("fault_bare_ns", costs.bare_ns);
        all.add("fault_share", costs.buffer_ns / costs.bare_ns.max(1e-9));
    }
    if measures.contains(&Measure::Miss) {
        let core = rigs.sizes.worker_core;
        misses_once(amounts, core, interrupt, rigs.misses()?, all)?;
    }
    Ok(())
}

/// Misses, and what they are made of.
fn misses_once(
    amounts: &Amounts,
    core: usize,
    interrupt: &Interrupt,
    misses: &mut Misses,
    all: &mut Collected,
) -> Result<()> {
    all.add("job_ns", misses.phase(Phase::Empty, amounts.jobs)?.cpu_ns_each());
    let flash = misses.flash();
    let submit = primitives::on_core(core, || primitives::submit_and_poll(flash, amounts.batches));
    // Without a core for the device every batch may be late, and the rest still counts.
    if let Ok(ns) = submit {
        all.add("submit_poll_ns", ns);
    }
    if let Some(ns) = primitives::on_core(core, || Ok(primitives::expedited_barrier(amounts.barriers)))? {
        all.add("barrier_ns", ns);
    }

    interrupt.check()?;

    // Hits before and after, so that a drift of the clock falls on both sides.
    let before = misses.phase(Phase::Hit, amounts.requests)?.cpu_ns_each();
    let miss = misses.phase(Phase::Miss, amounts.requests)?;
    let dirty = misses.phase(Phase::MissDirty, amounts.requests)?;
    let after = misses.phase(Phase::Hit, amounts.requests)?.cpu_ns_each();
    let hit = f64::midpoint(before, after);
    all.add("hit_request_ns", hit);
    for (name, phase) in [("miss_cpu_ns", &miss), ("miss_cpu_write_ns", &dirty)] {
        match phase.cpu_ns_per_miss(hit) {
            Some(ns) => all.add(name, ns),
            None => all.without_cost += 1,
        }
    }
    all.add("crowded_share", miss.crowded_share());
    all.add("crowded_ns", miss.crowded_ns_each());
    all.add_latencies(&miss);
    all.sleeps += miss.counts.sleeps + dirty.counts.sleeps;
    Ok(())
}

/// Runnable threads of the machine, averaged over the last minute.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// What the reader must know to believe the figures or not.
fn notes(figures: &[Figure], collected: &Collected, cores: &[usize], load: f64) -> Vec<String> {
    let mut notes = Vec::new();
    let spread = |name: &str| figures.iter().find(|f| f.name == name).map(|f| f.spread);
    if cfg!(debug_assertions) {
        notes.push("This build is not optimised: the figures say nothing. Use a release build.".to_owned());
    }
    if cores.len() < 2 {
        notes.push("There is one core: worker and device take turns on it, and misses cost far more.".to_owned());
    }
    if load > 2.0 {
        notes.push(format!("The machine was busy (load average {load:.1}) before the start: repeat when it is idle."));
    }
    if let Some(hit) = spread("hit_request_ns")
        && hit.max > hit.min * 1.1
    {
        let varied = table::percent(hit.max / hit.min - 1.0);
        notes.push(format!(
            "Requests that hit varied by {varied} between rounds: something else ran on the worker's core."
        ));
    }
    if let Some(crowded) = spread("crowded_share") {
        let share = table::percent(crowded.median);
        notes.push(format!(
            "All {} fibers were busy at {share} of the misses; these are left out, as the worker may have polled after them.",
            miss::FIBERS
        ));
        if crowded.median > 0.1 {
            notes.push("That is much: the device came late, or its core was taken.".to_owned());
        }
    }
    if collected.without_cost > 0 {
        notes.push(format!(
            "In {} phases all fibers waited at nearly every miss: this flash answers later than they compute, and what a miss costs is not \
             shown by these.",
            collected.without_cost
        ));
    }
    if let Some(latency) = &collected.latency {
        let us = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1000.0;
        notes.push(format!(
            "Latency of a miss over all rounds: p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs; the worker slept {} times.",
            us(0.5),
            us(0.99),
            us(0.999),
            collected.sleeps
        ));
    }
    notes
}

/// Figures of about the same size stand in one chart.
const CHARTS: [(&str, &[&str]); 4] = [
    (
        "A hit: loads of resident, cached data",
        &[
            "raw_load_ns",
            "guarded_load_ns",
            "hit_overhead_ns",
            "chained_raw_ns",
            "chained_guarded_ns",
            "chained_overhead_ns",
        ],
    ),
    ("The pieces", &["switch_ns", "job_ns", "submit_poll_ns", "barrier_ns"]),
    ("A miss: CPU of the worker", &["miss_cpu_ns", "miss_cpu_write_ns"]),
    ("A miss: time until its fiber can run again", &["miss_p50_ns", "miss_p99_ns"]),
];

fn draw(figures: &[Figure], machine: &str) -> String {
    let chart = |(title, names): &(&str, &[&str])| {
        let these: Vec<&Figure> = names.iter().filter_map(|n| figures.iter().find(|f| f.name == *n)).collect();
        let bar = |figure: &&Figure| {
            let Spread { median, min, max } = figure.spread;
            let tip = format!("{}: {}", figure.name, figure.what);
            vec![Some(Bar { value: median, spread: Some((min, max)), tip })]
        };
        let bars = Bars {
            title: (*title).to_owned(),
            subtitle: machine.to_owned(),
            unit: "ns".to_owned(),
            groups: these.iter().map(|figure| figure.name.replace('_', " ")).collect(),
            series: vec!["median of the rounds".to_owned()],
            bars: these.iter().map(bar).collect(),
            mark: None,
        };
        (!these.is_empty()).then(|| bars.draw())
    };
    stack(&CHARTS.iter().filter_map(chart).collect::<Vec<_>>())
}

fn figures_table(figures: &[Figure]) -> String {
    let value = |figure: &Figure, value: f64| match figure.unit {
        "share" => table::percent(value),
        _ => table::number(value),
    };
    let line = |figure: &Figure| {
        let target = figure.target.map_or(String::new(), |t| {
            let met = if figure.spread.median <= t { "met" } else { "missed" };
            format!("<= {}: {met}", value(figure, t))
        });
        let Spread { median, min, max } = figure.spread;
        vec![
            figure.name.to_owned(),
            figure.what.to_owned(),
            value(figure, median),
            value(figure, min),
            value(figure, max),
            target,
        ]
    };
    table::table(&["figure", "what", "median", "min", "max", "target"], 2, figures.iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_figure() {
        let mut collected = Collected::default();
        for (name, ..) in FIGURES {
            for value in [3.0, 1.0, 2.0] {
                collected.add(name, value);
            }
        }
        let figures = collected.figures();
        assert_eq!(figures.len(), FIGURES.len());
        assert!(figures.iter().all(|f| f.spread == Spread { median: 2.0, min: 1.0, max: 3.0 }));
        let table = figures_table(&figures);
        // A share of 2 is more than 125%.
        assert!(table.contains("miss_cpu_ns") && table.contains("met") && table.matches("missed").count() == 1);
        assert!(draw(&figures, "machine").contains("hit_overhead_ns"));
    }
    #[test]
    fn a_disturbed_machine_is_reported() {
        let mut collected = Collected::default();
        [100.0, 130.0].into_iter().for_each(|ns| collected.add("hit_request_ns", ns));
        let notes = notes(&collected.figures(), &collected, &[0], 3.5).join("\n");
        assert!(notes.contains("varied by 30.0%") && notes.contains("load average 3.5") && notes.contains("one core"));
    }
}
