//! `tail`: tail latency against load, open loop (AstriFlash, figure 10).
//!
//! Requests of about 10 µs, as the paper's, arrive as a Poisson process at shares of dram-only's
//! highest throughput. Latency counts from arrival. At each p99 that the guarded path reaches, the
//! gap is dram-only's load less its own.
//!
//! Other work on the cores makes a tail of its own (`disturbance`). A disturbed turn is run again,
//! and what stays disturbed is left out and counted. Less than half of the rounds make no result.
//!
//! A machine's speed drifts. Before each load dram-only runs a slice of a closed loop, and the load
//! is a share of the last slices' median. The other configurations do so in turn, for their own
//! highest throughput.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result};
use fulgurite_workloads::Params;
use serde::Serialize;

use crate::args::TailArgs;
use crate::values::{Config, workloads};
use fulgurite_harness::Spread;
use fulgurite_harness::calibrate::{self, Plan};
use fulgurite_harness::checks;
use fulgurite_harness::child::protocol::{Batch, Batches, Load, Outcome};
use fulgurite_harness::disturbance::{self, Patience};
use fulgurite_harness::image::Image;
use fulgurite_harness::rows::{Calibration, Percentiles};
use fulgurite_harness::session::{Running, Session, Setup};
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, Interrupted};
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Axis, Curve, Curves, stack};
use fulgurite_term::report::table::{self, Columns, or_dash};
use fulgurite_term::report::{self, Report};

#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    workload: String,
    config: String,
    flash: String,
    workers: u32,
    dram_bytes: u64,
    data_bytes: u64,
    /// Rounds that the figures are made of.
    rounds: usize,
    /// Rounds that were left out, as other work took more than 1% of their time.
    disturbed_rounds: usize,
    /// The share of its time that other work took from a round, those left out included.
    taken_share: Spread,
    /// Less than half of the rounds are left: no latencies, and all rounds' throughput.
    too_disturbed: bool,
    /// Load in percent of dram-only's highest throughput.
    load_percent: f64,
    /// The load is about this configuration's highest throughput or more: its queue grows, and
    /// latency from arrival tells the length of a round. Service time stays valid. Left out of the
    /// gaps.
    saturated: bool,
    ops_per_s: f64,
    /// Highest throughput of this configuration, closed loop, as a share of dram-only's in the same
    /// turns.
    max_share: Option<f64>,
    /// From arrival; medians of the rounds.
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    service_p50_us: Option<f64>,
    service_p99_us: Option<f64>,
    service_p99_of_flash_sync: Option<f64>,
    misses_per_op: f64,
    /// Of all threads, and of the kernel's own meanwhile.
    cpu_us_per_op: f64,
    /// Hash of the executed requests, equal in configurations that had this load in the same
    /// rounds. Unlike in `live` it has no final invariant, as configurations end with
    /// different requests behind them. Each checks its own invariants in the end. None until that
    /// was done.
    work_hash: Option<String>,
    calibration: Calibration,
}

/// How far a configuration's curve is behind dram-only's.
#[derive(Clone, Debug, Serialize)]
struct Gap {
    config: String,
    /// Points of dram-only's highest throughput, over levels of p99. None with too few loads.
    points: Option<Spread>,
    /// Highest throughput, closed loop, as a share of dram-only's. None: all were disturbed.
    max_share: Option<Spread>,
}

impl Gap {
    fn sentence(&self) -> String {
        let Some(max) = self.max_share else {
            return format!(
                "{}: other work disturbed each measurement of its highest throughput; repeat the run",
                self.config
            );
        };
        let most = format!(
            "{}: highest throughput {} of dram-only's ({} to {})",
            self.config,
            table::percent(max.median),
            table::percent(max.min),
            table::percent(max.max)
        );
        match self.points {
            Some(p) => format!(
                "{most}; at the same p99, dram-only carries {:.1} points more load (median; {:.1} to {:.1})",
                p.median, p.min, p.max
            ),
            None => format!("{most}; too few loads have a p99 to compare"),
        }
    }
}

struct Server {
    running: Running,
    /// Throughput in a closed loop, as a share of dram-only's in the same turns, slice by slice.
    shares: Vec<f64>,
    /// Service times in the closed loop; none yet.
    closed: Option<Percentiles>,
    /// For each load, what came of the rounds in which it was offered.
    slices: Vec<Vec<Slice>>,
    /// Whether its data was found whole in the end.
    checked: bool,
}

/// One load, offered once.
#[derive(Clone)]
struct Slice {
    round: usize,
    outcome: Outcome,
    /// The share of its time that other work took.
    taken: f64,
}

impl Slice {
    fn is_disturbed(&self) -> bool {
        self.taken > disturbance::OF_TAIL
    }
}

impl Server {
    /// A slice of a closed loop: its throughput, and whether other work left it alone.
    fn closed(&mut self, session: &Session, batch: &Batch) -> Result<(f64, bool)> {
        let config = self.running.setup.config;
        let outcome = disturbance::run(session, &mut self.running, batch).with_context(|| config.name())?;
        let quiet = disturbance::share(&outcome, config, session.flash.read_latency) <= disturbance::OF_ROUND;
        if quiet || self.closed.is_none() {
            self.closed.get_or_insert_default().add(&outcome.service);
        }
        Ok((outcome.rate(), quiet))
    }
    /// Highest throughput as a share of dram-only's.
    fn max_share(&self) -> Option<f64> {
        Some(Spread::of_any(self.shares.iter().copied())?.median)
    }
    /// Whether a load, in percent of dram-only's highest throughput, exceeds its own by this
    /// factor.
    fn is_beyond(&self, times: f64, load: f64) -> bool {
        self.running.setup.config != Config::DramOnly
            && self.max_share().is_some_and(|most| load / 100.0 > most * times)
    }
}

/// Computing of a request: the number of transactions that takes about this long, as the paper's.
const REQUEST_TIME: Duration = Duration::from_micros(10);
/// Slices of dram-only's closed loop whose median is its highest throughput.
const SLICES: usize = 5;
/// Slices in the time of a round of a load.
const SLICES_IN_ROUND: u64 = 5;

/// Loads where nobody named any: denser where queues grow.
const LOADS: [f64; 13] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 93.0, 96.0, 98.0];
const QUICK_LOADS: [f64; 3] = [30.0, 60.0, 93.0];
/// From this share of a configuration's own highest throughput on, its queue grows.
const SATURATED: f64 = 0.985;
/// The highest load for a configuration, as a multiple of its own highest throughput. It is above
/// 1, as dram-only carries more. A load has a fixed number of requests, whose arrivals are drawn
/// when they begin: a round takes longer by this factor at most, and no memory.
const BEYOND: f64 = 1.25;

/// Runs `tail`.
pub fn run(args: &TailArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    checks::outputs(&args.output)?;
    let quick = args.output.quick;
    let name = workloads(std::slice::from_ref(&args.workload))[0];
    if name == "search" {
        bad_input!("tail --workload search is not supported; use fulgurite-demo, or fulgurite-lab live --input DIR");
    }
    let data_bytes = args.size.data.unwrap_or(if quick { 256 << 20 } else { 2 << 30 });
    let rounds = args.repeat.rounds.unwrap_or(if quick { 1 } else { 21 });
    let round_time = args.turn.round_time.unwrap_or(Duration::from_millis(if quick { 150 } else { 100 }));
    if args.config.iter().any(|c| c.paged_by_kernel()) {
        bad_input!(
            "tail compares dram-only and the guarded configurations; leave os-swap and mmap to fulgurite-lab live"
        );
    }
    let mut configs = vec![Config::DramOnly];
    configs.extend(Config::ALL.iter().copied().filter(|c| *c != Config::DramOnly && args.config.contains(c)));
    let mut loads = match (args.loads.is_empty(), quick) {
        (false, _) => args.loads.clone(),
        (true, false) => LOADS.to_vec(),
        (true, true) => QUICK_LOADS.to_vec(),
    };
    // The paper's workloads miss about every 10 µs.
    let mut work = args.work.clone();
    if work.work.is_none() && work.miss_every.is_none() {
        work.miss_every = Some(Duration::from_micros(10));
    }
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let threads = args.flash.workers as usize;
    let setups = |config| vec![Setup { config, threads, page_cluster: None }];
    let mut session = Session::start(&args.flash, data_bytes, &mut configs, &setups, &interrupt)?;
    report::print(&args.output, &session.experiment.machine.line())?;
    let params = Params { bytes: data_bytes, zipf: 0.99, seed: args.output.seed, ..Params::default() };
    // An interruption keeps what was measured until then, be it nothing.
    let mut servers = Vec::new();
    let mut plan = None;
    let result = (|| -> Result<()> {
        let mut image = Image::build(name, &params, crate::catalog::WORKLOADS, &interrupt)?;
        let found = calibrate::calibrate(&mut session, &image, &work, round_time, true)?;
        let found = plan.insert(found.with_request_time(REQUEST_TIME));
        image.params.zipf = found.calibration.zipf;
        report::print(&args.output, &found.sentence(name))?;
        serve(&mut session, &image, found, &configs, &loads, rounds, round_time, quick, &mut servers)
    })();
    let interrupted = matches!(&result, Err(e) if e.is::<Interrupted>());
    let calibrated = plan.is_some();
    let rows = plan.map_or(Vec::new(), |plan| rows(&session, name, &plan, &servers, &loads));
    let most: Vec<_> =
        servers.iter().map(|s| (s.running.setup.config, Spread::of_any(s.shares.iter().copied()))).collect();
    let mut failed = disagreements(&servers);
    for server in servers {
        if let Err(e) = session.end(server.running) {
            failed.push(format!("{e:#}"));
        }
    }
    match result {
        // What was measured until then is kept, and the reason is reported with it.
        Err(e) if !interrupted && calibrated => failed.insert(0, format!("{e:#}")),
        Err(e) if !interrupted => return Err(e),
        _ => {}
    }
    session.experiment.notes.extend(saturation(&rows, &configs, &loads));
    session.experiment.notes.extend(disturbed(&rows));
    let gaps = gaps(&rows, &most);
    report::print(&args.output, &show(&rows))?;
    report::print_all(&args.output, gaps.iter().map(Gap::sentence))?;
    report::print_all(&args.output, &session.experiment.notes)?;
    let mut setting = session.setting();
    setting["gaps"] = serde_json::to_value(&gaps)?;
    Report { interrupted, failed: &failed, ..Report::new(&session.experiment.machine, setting, &rows) }
        .finish(&args.output, || plot(&rows))
}

/// Starts all configurations, finds their highest throughput, then offers the loads, interleaved.
#[expect(clippy::too_many_arguments, reason = "the run's settings, each used once")]
fn serve(
    session: &mut Session,
    image: &Image,
    plan: &Plan,
    configs: &[Config],
    loads: &[f64],
    rounds: u32,
    round_time: Duration,
    quick: bool,
    servers: &mut Vec<Server>,
) -> Result<()> {
    let bar = progress::steps("tail", configs.len() as u64 * (1 + u64::from(rounds) * loads.len() as u64));
    let seed = image.params.seed;
    let mut first = 0;
    for config in configs {
        bar.set_message(format!("{config}: starting"));
        let setup = Setup { config: *config, threads: session.flash.workers as usize, page_cluster: None };
        let mut running = session.spawn(image, setup).with_context(|| config.name())?;
        running.child.run(&plan.batch(seed, 0, plan.warm_up, Load::Closed)).with_context(|| config.name())?;
        let slices = vec![Vec::new(); loads.len()];
        servers.push(Server { running, shares: Vec::new(), closed: None, slices, checked: false });
        bar.inc(1);
    }
    first += plan.warm_up;
    let slice = (plan.count / SLICES_IN_ROUND).max(32);
    let mut recent = VecDeque::with_capacity(SLICES + 1);
    // Half of all turns again, or each where there are few.
    let turns = rounds * loads.len() as u32;
    let mut patience = Patience::new(session, turns.div_ceil(2).max(turns.min(8)), quick);
    for round in 0..rounds as usize {
        for (at, load) in loads.iter().enumerate() {
            let mut closed_loop = || {
                first += slice;
                plan.batch(seed, first - slice, slice, Load::Closed)
            };
            let count = servers.len();
            // In the very first turn everybody, as nobody's share is known yet.
            let first_turn = recent.is_empty();
            let others = if first_turn { 1..count } else { 1 + (round * loads.len() + at) % (count - 1).max(1)..count };
            for other in others.take(if first_turn { count } else { 1 }) {
                let batch = closed_loop();
                let (dram_only, quiet) = servers[0].closed(session, &batch)?;
                let (rate, also_quiet) = servers[other].closed(session, &batch)?;
                if quiet && also_quiet {
                    servers[other].shares.push(rate / dram_only);
                }
                if quiet || recent.len() < SLICES {
                    recent.push_back(dram_only);
                }
            }
            while recent.len() < SLICES {
                recent.push_back(servers[0].closed(session, &closed_loop())?.0);
            }
            recent.drain(..recent.len() - SLICES);
            let highest = Spread::of(recent.iter().copied()).median;
            let per_second = highest * load / 100.0;
            let requests = (per_second * round_time.as_secs_f64()).max(32.0) as u64;
            let mut before = Vec::new();
            loop {
                let batch = plan.batch(seed, first, requests, Load::Poisson { per_second });
                first += requests;
                let (mut offered, mut failed) = (Vec::new(), Ok(()));
                for turn in 0..count {
                    let which = (turn + round + at) % count;
                    let server = &mut servers[which];
                    if server.is_beyond(BEYOND, *load) {
                        continue;
                    }
                    let config = server.running.setup.config;
                    bar.set_message(format!("{config} at {load}%"));
                    match disturbance::run(session, &mut server.running, &batch) {
                        Ok(outcome) => {
                            let taken = disturbance::share(&outcome, config, session.flash.read_latency);
                            offered.push((which, Slice { round, outcome, taken }));
                        }
                        Err(error) => {
                            failed = Err(error).with_context(|| format!("{config} at {load}%"));
                            break;
                        }
                    }
                }
                let disturbed = offered.iter().any(|(_, slice)| slice.is_disturbed());
                let again = match failed {
                    Ok(()) if disturbed => patience.repeats(|| bar.set_message("waiting for a quiet moment")),
                    failed => failed.map(|()| false),
                };
                if matches!(again, Ok(true)) {
                    before = offered;
                    continue;
                }
                // Also where the run ends here: what was measured until then is kept.
                let kept = if offered.is_empty() { std::mem::take(&mut before) } else { offered };
                kept.into_iter().for_each(|(which, slice)| servers[which].slices[at].push(slice));
                again?;
                break;
            }
            bar.inc(count as u64);
        }
    }
    bar.set_message("checking");
    for server in servers {
        // Its number is compared with nobody's: see `Row::work_hash`.
        let config = server.running.setup.config;
        session.experiment.ran(&mut server.running.group)?;
        if session.is_read_whole(config) {
            session.experiment.lift(&server.running.group)?;
        }
        let _invariant = server.running.child.check().with_context(|| config.name())?;
        server.checked = true;
    }
    bar.finish_and_clear();
    Ok(())
}

fn rows(session: &Session, workload: &str, plan: &Plan, servers: &[Server], loads: &[f64]) -> Vec<Row> {
    // With one request at a time its service time does not depend on the load.
    let waiting = servers.iter().find(|s| s.running.setup.config == Config::FlashSync);
    let flash_sync = waiting.and_then(|s| s.closed.as_ref()).map(|closed| closed.us(99.0));
    let mut rows = Vec::new();
    for server in servers {
        for (at, load) in loads.iter().enumerate().filter(|(at, _)| !server.slices[*at].is_empty()) {
            let all = &server.slices[at];
            let undisturbed: Vec<Slice> = all.iter().filter(|s| !s.is_disturbed()).cloned().collect();
            let disturbed_rounds = all.len() - undisturbed.len();
            let too_disturbed = undisturbed.len() * 2 < all.len();
            let slices = if too_disturbed { all } else { &undisturbed };
            let each = |percentile: f64, of: fn(&Outcome) -> &Vec<(u64, u64)>| -> Vec<f64> {
                let one = |outcome: &Outcome| {
                    let mut all = Percentiles::default();
                    all.add(of(outcome));
                    all.us(percentile)
                };
                slices.iter().map(|s| one(&s.outcome)).collect()
            };
            let of_enough =
                |values: Vec<f64>| Spread::of_any(values).filter(|_| !too_disturbed).map(|spread| spread.median);
            let latency = |percentile| of_enough(each(percentile, |o| &o.latency));
            let service = |percentile| of_enough(each(percentile, |o| &o.service));
            let batches = Batches(slices.iter().map(|s| &s.outcome).collect());
            let (requests, elapsed_s) = (batches.sum(|o| o.requests), batches.sum(|o| o.elapsed_ns) / 1e9);
            let hash = all.iter().fold(0u64, |hash, s| hash.wrapping_add(s.outcome.request_hash));
            let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
            let guarded = server.running.setup.config.guarded();
            let of_sync = |us: f64| flash_sync.filter(|s| guarded && *s > 0.0).map(|s| us / s);
            rows.push(Row {
                workload: workload.to_owned(),
                config: server.running.setup.config.to_string(),
                flash: server.running.opened.flash.clone(),
                workers: session.flash.workers,
                dram_bytes: server.running.dram_bytes,
                data_bytes: session.data_bytes,
                rounds: if too_disturbed { 0 } else { slices.len() },
                disturbed_rounds,
                taken_share: Spread::of(all.iter().map(|s| s.taken)),
                too_disturbed,
                load_percent: *load,
                saturated: server.is_beyond(SATURATED, *load),
                ops_per_s: per(requests, elapsed_s),
                max_share: if server.running.setup.config == Config::DramOnly { Some(1.0) } else { server.max_share() },
                p50_us: latency(50.0),
                p99_us: latency(99.0),
                p999_us: latency(99.9),
                service_p50_us: service(50.0),
                service_p99_us: service(99.0),
                service_p99_of_flash_sync: service(99.0).and_then(of_sync),
                misses_per_op: per(batches.sum(|o| o.misses), requests),
                cpu_us_per_op: batches.us_per_request(Outcome::all_cpu_ns),
                work_hash: server.checked.then(|| format!("{:016x}", fulgurite_workloads::mix(hash))),
                calibration: plan.calibration,
            });
        }
    }
    rows
}

/// Sentences about configurations with other requests than dram-only's at the same time.
fn disagreements(servers: &[Server]) -> Vec<String> {
    let Some((dram_only, others)) = servers.split_first() else { return Vec::new() };
    let differs = |server: &&Server| {
        server.slices.iter().zip(&dram_only.slices).any(|(these, those)| {
            let other = |s: &Slice| those.iter().find(|d| d.round == s.round).map(|d| d.outcome.request_hash);
            these.iter().any(|s| other(s).is_some_and(|hash| hash != s.outcome.request_hash))
        })
    };
    let sentence = |server: &Server| {
        format!("{} did other work than dram-only; the results are not comparable", server.running.setup.config)
    };
    others.iter().filter(differs).map(sentence).collect()
}

/// Sentences about configurations that were offered more than they can do, or less than all loads.
fn saturation(rows: &[Row], configs: &[Config], loads: &[f64]) -> Vec<String> {
    let of = |config: &Config| {
        let name = config.name();
        let these: Vec<&Row> = rows.iter().filter(|r| r.config == name).collect();
        let kept_up = these.iter().rfind(|r| !r.saturated).map_or(0.0, |r| r.load_percent);
        let (last, wanted) = (these.last().map_or(0.0, |r| r.load_percent), *loads.last()?);
        let mut sentences = Vec::new();
        if kept_up < last {
            sentences.push(format!(
                "{name} is saturated above {kept_up}%: its queue grows as long as requests arrive; latency counts from \
                 arrival, so there it tells of the length of a round (service times do not)."
            ));
        }
        if last < wanted {
            let offered = if these.is_empty() { "none of the loads".into() } else { format!("no more than {last}%") };
            sentences.push(format!(
                "{name} was offered {offered}: the next is beyond {BEYOND} times its highest throughput."
            ));
        }
        (!sentences.is_empty()).then(|| sentences.join(" "))
    };
    configs.iter().filter_map(of).collect()
}

/// Sentences about disturbed configurations: their rounds, and loads without a result.
fn disturbed(rows: &[Row]) -> Vec<String> {
    let of = |config: &Config| {
        let these: Vec<&Row> = rows.iter().filter(|r| r.config == config.name()).collect();
        let left_out: usize = these.iter().map(|r| r.disturbed_rounds).sum();
        let all: usize = left_out + these.iter().filter(|r| !r.too_disturbed).map(|r| r.rounds).sum::<usize>();
        let without: Vec<String> =
            these.iter().filter(|r| r.too_disturbed).map(|r| format!("{}%", r.load_percent)).collect();
        if left_out == 0 {
            return None;
        }
        let most = these.iter().map(|r| r.taken_share.max).fold(0.0, f64::max);
        let mut sentence = format!(
            "{config}: other work took more than {} of {left_out} of {all} slices (at most {}); their latencies are left out.",
            table::percent(disturbance::OF_TAIL),
            table::percent(most)
        );
        if !without.is_empty() {
            let loads = without.join(", ");
            sentence.push_str(&format!(
                " Too little is left for a result at {loads}; run it again on a quieter machine, or with more --rounds."
            ));
        }
        Some(sentence)
    };
    Config::ALL.iter().filter_map(of).collect()
}

/// Points (load, p99) of a configuration, by load, as far as it keeps up and was left alone.
fn curve_of(rows: &[Row], config: &str) -> Vec<(f64, f64)> {
    let these = rows.iter().filter(|r| r.config == config && !r.saturated);
    these.filter_map(|r| Some((r.load_percent, r.p99_us?))).collect()
}

/// The highest load with this p99, on lines of log p99. None below the first point.
fn load_at(curve: &[(f64, f64)], p99: f64) -> Option<f64> {
    let last = curve.iter().rposition(|(_, us)| *us <= p99)?;
    let (load, us) = curve[last];
    Some(match curve.get(last + 1) {
        Some((next, higher)) if *higher > us => load + (next - load) * (p99 / us).ln() / (higher / us).ln(),
        _ => load,
    })
}

/// Levels of p99 at which curves are compared.
const LEVELS: u32 = 20;

fn gaps(rows: &[Row], most: &[(Config, Option<Spread>)]) -> Vec<Gap> {
    let points = |config: Config| {
        let (dram_only, curve) = (curve_of(rows, Config::DramOnly.name()), curve_of(rows, config.name()));
        let lowest = curve.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let longest = curve.iter().map(|p| p.1).fold(0.0, f64::max);
        let level = |i: u32| lowest * (longest / lowest).powf(f64::from(i) / f64::from(LEVELS - 1));
        let points: Vec<f64> =
            (0..LEVELS).map(level).filter_map(|p99| Some(load_at(&dram_only, p99)? - load_at(&curve, p99)?)).collect();
        let enough = curve.len() > 1 && dram_only.len() > 1 && !points.is_empty();
        enough.then(|| Spread::of(points))
    };
    let gap = |(config, max_share): &(Config, Option<Spread>)| Gap {
        config: config.to_string(),
        points: points(*config),
        max_share: *max_share,
    };
    most.iter().filter(|(c, _)| *c != Config::DramOnly).map(gap).collect()
}

fn show(rows: &[Row]) -> String {
    let multiple = |value: Option<f64>| or_dash(value, |v| format!("{v:.2}x"));
    let latency = |us: Option<f64>| us.map_or("disturbed".to_owned(), table::number);
    let mut last = "";
    Columns::of(rows)
        .left("config", |row| if std::mem::replace(&mut last, &row.config) == row.config { "" } else { &row.config })
        .right("load", |row| format!("{}%{}", row.load_percent, if row.saturated { " (saturated)" } else { "" }))
        .right("ops/s", |row| table::number(row.ops_per_s))
        .right("p50 µs", |row| latency(row.p50_us))
        .right("p99 µs", |row| latency(row.p99_us))
        .right("p99.9 µs", |row| latency(row.p999_us))
        .right("service p50", |row| latency(row.service_p50_us))
        .right("service p99", |row| latency(row.service_p99_us))
        .right("of flash-sync", |row| multiple(row.service_p99_of_flash_sync))
        .right("CPU µs", |row| table::number(row.cpu_us_per_op))
        .table()
}

fn plot(rows: &[Row]) -> String {
    let chart = |title: &str, subtitle: &str, shown: fn(&Row) -> bool, of: fn(&Row) -> Option<f64>| {
        let these = |config: &Config| {
            let name = config.name();
            let shown = rows.iter().filter(move |r| r.config == name && shown(r));
            shown.filter_map(|r| Some((r.load_percent, of(r)?))).collect()
        };
        let curve = |config: &Config| Curve { name: config.to_string(), points: these(config) };
        let x = Axis { range: Some((0.0, 100.0)), ..Axis::linear("load, % of dram-only's highest throughput") };
        let curves = Config::ALL.iter().map(curve).filter(|c| !c.points.is_empty()).collect();
        Curves::new(title, subtitle, x, Axis::logarithmic("µs"), curves).draw()
    };
    let name = rows.first().map_or("", |r| r.workload.as_str());
    stack(&[
        chart(
            &format!("p99 latency against load: {name}"),
            "Poisson arrivals, from arrival to end; median of the rounds; as far as each keeps up",
            |r| !r.saturated,
            |r| r.p99_us,
        ),
        chart(
            &format!("p99 service time against load: {name}"),
            "from start to end; also where more arrives than is served",
            |_| true,
            |r| r.service_p99_us,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_found_between_points() {
        let curve = [(10.0, 10.0), (50.0, 10.0), (90.0, 1000.0)];
        assert_eq!(load_at(&curve, 5.0), None);
        assert_eq!(load_at(&curve, 10.0), Some(50.0));
        assert!((load_at(&curve, 100.0).unwrap() - 70.0).abs() < 1e-9);
        assert_eq!(load_at(&curve, 5000.0), Some(90.0));
    }
    #[test]
    fn a_shifted_curve_has_its_shift_as_gap() {
        let row = |config: &str, load: f64, p99: f64| Row {
            config: config.into(),
            load_percent: load,
            p99_us: Some(p99),
            ..Row::default()
        };
        let p99 = |load: f64| 10.0 / (1.0 - load / 100.0);
        let mut rows: Vec<Row> = (1..19).map(|i| f64::from(i) * 5.0).map(|l| row("dram-only", l, p99(l))).collect();
        rows.extend((1..18).map(|i| f64::from(i) * 5.0).map(|l| row("fulgurite", l, p99(l + 5.0))));
        let share = |s: f64| Spread::of_any([s]);
        let most = [(Config::DramOnly, share(1.0)), (Config::Fulgurite, share(0.95)), (Config::FlashSync, share(0.16))];
        let gaps = gaps(&rows, &most);
        assert_eq!(gaps.len(), 2);
        assert!((gaps[0].points.unwrap().median - 5.0).abs() < 0.2, "{gaps:?}");
        assert!(gaps[1].points.is_none() && gaps[1].max_share.unwrap().median == 0.16);
    }
    #[test]
    fn saturated_loads_are_reported_and_left_out_of_the_gaps() {
        let row = |config: &str, load_percent: f64, saturated| Row {
            config: config.into(),
            p99_us: Some(if saturated { 10_000.0 } else { 100.0 + load_percent }),
            load_percent,
            saturated,
            ..Row::default()
        };
        let mut rows: Vec<Row> = [60.0, 90.0, 93.0].map(|load| row("dram-only", load, false)).into();
        rows.extend([60.0, 90.0, 93.0].map(|load| row("fulgurite", load, load > 91.0)));
        rows.push(row("flash-sync", 60.0, true));
        assert_eq!(curve_of(&rows, "fulgurite").len(), 2);
        let told = saturation(&rows, &[Config::DramOnly, Config::Fulgurite, Config::FlashSync], &[60.0, 90.0, 93.0]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("fulgurite is saturated above 90%") && !told[0].contains("no more than"),
            "{told:?}"
        );
        assert!(
            told[1].starts_with("flash-sync is saturated above 0%") && told[1].contains("no more than 60%"),
            "{told:?}"
        );
        assert!(show(&rows).contains("93% (saturated)"));
    }
}
