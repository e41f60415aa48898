//! `fulgurite-lab sim predict`: what share of plain memory's throughput workloads reach on a
//! machine whose costs `micro --system` has measured. It is written down before `live` measures it,
//! and compared with it afterwards.
//!
//! The calibration of a kept `live` (exponent, computing of a request, sizes) is an input of
//! both. Its throughputs are only shown.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::values::{self, Output, WorkloadName, non_zero_duration, output, workloads};
use fulgurite_format::format_duration;
use fulgurite_sim::system::{Document, Found, RunInput, System, SystemError};
use fulgurite_term::bad_input::{BadInput, OrBadInput, bad_input};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::table::{percent, table};
use fulgurite_term::report::{command_line, write_file};

use super::given::{assignment, once, outputs, text};
use super::run::give;

/// Systems, workloads, and what to compare with.
#[derive(Clone, Debug, Args)]
pub struct PredictArgs {
    /// Systems of `micro --system`. The misses of the first decide the computing of a
    /// request, which is the same on all of them.
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath, required_unless_present = "from")]
    pub systems: Vec<PathBuf>,
    /// Workloads, comma-separated. `all` means the seven of AstriFlash's figure 9.
    #[arg(long, value_name = "all|LIST", value_delimiter = ',')]
    #[arg(value_parser = values::workload_parser(), default_value = "all")]
    pub workload: Vec<WorkloadName>,
    /// Computing between two misses, comma-separated.
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', value_parser = non_zero_duration)]
    #[arg(default_value = "5us,10us", conflicts_with = "beside")]
    pub miss_every: Vec<Duration>,
    /// Zipf exponent of the keys. Write the same one in `live`.
    #[arg(long, value_name = "EXPONENT", value_parser = values::zipf, default_value_t = 1.2)]
    #[arg(conflicts_with = "beside")]
    pub zipf: f64,
    /// Put a value in the place of the systems'. Repeat for several keys.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Less data and fewer requests: all of it in under a minute.
    #[arg(long)]
    pub quick: bool,
    /// Write the predictions down, as JSON.
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath, conflicts_with = "from")]
    pub out: Option<PathBuf>,
    /// Take the predictions that were written down, and predict nothing.
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath, requires = "beside")]
    #[arg(conflicts_with = "systems")]
    pub from: Option<PathBuf>,
    /// Compare the predictions with a kept `live --json`. Without --from, they are made with its
    /// exponents, computing and sizes.
    #[arg(long, value_name = "LIVE.json", value_hint = ValueHint::FilePath)]
    pub beside: Option<PathBuf>,
    /// The seed of all that is random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the comparison, or the predictions, as JSON (to standard output without FILE or `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
}

/// Data with `--quick`, as of `live --quick`.
const QUICK_DATA_BYTES: u64 = 160 << 20;
const QUICK_REQUESTS: u64 = 20_000;
/// Requests without time before the measurement: each frame is filled this often by tatp's misses.
const WARM_UP_OF_A_FRAME: u64 = 20;
/// By how much the time between two misses may differ for a prediction to be of a measurement.
const SAME_DISTANCE: f64 = 0.01;

/// One prediction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Prediction {
    workload: String,
    /// The configuration, as in `live`.
    config: String,
    /// The system's file, and a hash of its keys.
    system: String,
    hash: String,
    zipf: f64,
    data_bytes: u64,
    /// Computing of a request.
    request_ns: f64,
    /// Computing between two misses of the first system.
    miss_every_ns: f64,
    misses_per_request: f64,
    /// Throughput as a share of plain memory's.
    share_of_dram_only: f64,
    /// W / (W + o).
    simple_share: Option<f64>,
}

/// Predictions as they are written down.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Written {
    command: String,
    day: String,
    seed: u64,
    predictions: Vec<Prediction>,
}

/// A prediction compared with what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Beside<'p> {
    #[serde(flatten)]
    prediction: &'p Prediction,
    measured: f64,
    /// Lowest and highest round.
    measured_min: f64,
    measured_max: f64,
}

/// Predictions compared with a measurement, as they are kept.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Comparison<'p> {
    command: String,
    /// What was measured on, as `live` describes it.
    machine: &'p Value,
    predicted: Source<'p>,
    measured: Source<'p>,
    rows: Vec<Beside<'p>>,
}
/// How one side of a comparison was made.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Source<'p> {
    command: &'p str,
    day: &'p str,
}

/// What is needed of a kept `live`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Live {
    command: String,
    machine: Value,
    rows: Vec<LiveRow>,
}
impl Live {
    fn day(&self) -> &str {
        self.machine["day"].as_str().unwrap_or("an unknown day")
    }
}
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct LiveRow {
    workload: String,
    config: String,
    data_bytes: u64,
    share_of_dram_only: Option<Spread>,
    calibration: Calibration,
}
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct Calibration {
    zipf: f64,
    own_work_ns: f64,
    added_work_ns: f64,
    miss_every_ns: Option<f64>,
}
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// A system's file.
struct File {
    name: String,
    text: String,
    config: String,
    data_bytes: u64,
    frames: u64,
}

/// What a workload is to do on all systems.
#[derive(Clone)]
struct Case {
    workload: String,
    zipf: f64,
    data_bytes: u64,
    /// Computing between two misses of the first system, or of a request.
    between_misses: Option<Duration>,
    request_ns: f64,
}

/// Predicts.
pub fn run(args: &PredictArgs) -> Result<()> {
    let inputs = args.systems.iter().chain(&args.from).chain(&args.beside).map(PathBuf::as_path);
    outputs(args.json.as_ref(), &[("--out", args.out.as_ref())], inputs)?;
    once(args.set.iter().map(|(key, _)| key))?;
    let interrupt = Interrupt::catch()?;
    let live = args.beside.as_deref().map(kept::<Live>).transpose()?;
    let written = match &args.from {
        Some(path) => kept::<Written>(path)?,
        None => {
            let predictions = predict(args, live.as_ref(), &interrupt)?;
            Written { command: command_line(), day: Machine::describe().day, seed: args.seed, predictions }
        }
    };
    let mut text = serde_json::to_string_pretty(&written)?;
    text.push('\n');
    // Where the file cannot be written, the predictions are shown nevertheless.
    let saved = args.out.as_ref().map_or(Ok(()), |path| write_file(path, text.as_bytes()));
    match &live {
        None => give(args.json.as_ref(), &written, || predicted(&written.predictions))?,
        Some(live) => {
            let rows = beside(&written.predictions, live, args.from.is_some());
            if rows.is_empty() {
                bad_input!(
                    "no prediction is of a row of {}: workloads, configurations and the time between misses must agree",
                    args.beside.as_ref().map_or(String::new(), |path| path.display().to_string())
                );
            }
            let comparison = Comparison {
                command: command_line(),
                machine: &live.machine,
                predicted: Source { command: &written.command, day: &written.day },
                measured: Source { command: &live.command, day: live.day() },
                rows,
            };
            give(args.json.as_ref(), &comparison, || compared(&comparison))?;
        }
    }
    saved
}

fn kept<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).or_bad_input(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text)
        .or_bad_input(|error| format!("{}: not what was expected of such a file: {error}", path.display()))
}

fn predict(args: &PredictArgs, live: Option<&Live>, interrupt: &Interrupt) -> Result<Vec<Prediction>> {
    // All that is wrong is reported before anything runs.
    let files = args.systems.iter().map(|path| read(path, &args.set)).collect::<Result<Vec<_>>>()?;
    let cases = match live {
        Some(live) => of_live(live, &workloads(&args.workload)),
        None => of_args(args, &files),
    };
    if cases.is_empty() {
        bad_input!("there is nothing to predict: the file has none of these workloads");
    }
    for case in &cases {
        files.iter().try_for_each(|file| system(args, file, case).map(|_| ()))?;
    }
    let bar = progress::steps("predictions", (cases.len() * files.len()) as u64);
    let (next, all, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(cases.len()) {
            scope.spawn(|| {
                while interrupt.check().is_ok() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { break };
                    match one(args, &files, case, &bar) {
                        Ok(made) => all.lock().unwrap_or_else(|p| p.into_inner()).push((number, made)),
                        Err(error) => {
                            failed.lock().unwrap_or_else(|p| p.into_inner()).get_or_insert(error);
                            next.store(cases.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    if let Some(error) = failed.into_inner().unwrap_or_else(|p| p.into_inner()) {
        return Err(error);
    }
    interrupt.check()?;
    let mut all = all.into_inner().unwrap_or_else(|p| p.into_inner());
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().flat_map(|(_, made)| made).collect())
}

/// A case on all systems, the first one first.
fn one(args: &PredictArgs, files: &[File], case: &Case, bar: &progress::ProgressBar) -> Result<Vec<Prediction>> {
    let mut case = case.clone();
    let mut made = Vec::new();
    for file in files {
        let system = system(args, file, &case)?;
        let told = |error: &dyn std::fmt::Display| format!("{}, {}: {error}", file.name, case.workload);
        let report = system.run(args.seed).or_bad_input(|error| told(&error))?;
        let Found::Workers(found) = &report.found else { bad_input!("{}: not a system of workers", file.name) };
        if case.between_misses.is_some() {
            // From here on it is the request's own.
            case.request_ns = found.request_ns;
        }
        made.push(Prediction {
            workload: case.workload.clone(),
            config: file.config.clone(),
            system: file.name.clone(),
            hash: report.hash.clone(),
            zipf: case.zipf,
            data_bytes: case.data_bytes,
            request_ns: found.request_ns,
            miss_every_ns: made.first().map_or_else(
                || {
                    case.between_misses
                        .map_or(found.work_ns_per_miss.unwrap_or(0.0), |between| between.as_nanos() as f64)
                },
                |first: &Prediction| first.miss_every_ns,
            ),
            misses_per_request: found.misses_per_request,
            share_of_dram_only: found.share_of_dram_only,
            simple_share: found.simple_share,
        });
        case.between_misses = None;
        bar.inc(1);
    }
    Ok(made)
}

fn read(path: &Path, set: &[(String, String)]) -> Result<File> {
    let (name, text) = (path.display().to_string(), text(path)?);
    let told = |error: SystemError| error.to_string();
    // The text is read as it is, so that an error names its own line.
    System::read(&name, &text, set, RunInput::Nothing).or_bad_input(told)?;
    let document = Document::read(&name, &text, set).or_bad_input(told)?;
    let workers = document.text("model").or_bad_input(told)? == "workers";
    if !workers {
        return Err(
            BadInput(format!("{name}: predictions are of model = \"workers\" (fulgurite-lab micro --system)")).into()
        );
    }
    Ok(File {
        config: document.text("configuration").or_bad_input(told)?.to_owned(),
        data_bytes: document.bytes("workload.data").or_bad_input(told)?,
        frames: document.count("dram.frames", 1, u64::MAX).or_bad_input(told)?,
        name,
        text,
    })
}

/// The system for a case. Frames keep their share of the data.
fn system(args: &PredictArgs, file: &File, case: &Case) -> Result<System> {
    let frames = (file.frames as f64 * case.data_bytes as f64 / file.data_bytes as f64) as u64;
    let (computing, time) = match case.between_misses {
        Some(time) => ("between-misses", format!("{}ns", time.as_nanos())),
        None => ("request", format!("{:.0}ps", case.request_ns * 1e3)),
    };
    let mut set = vec![
        ("workload.name", case.workload.clone()),
        ("workload.data", format!("{}B", case.data_bytes)),
        ("workload.exponent", format!("{:?}", case.zipf)),
        ("workload.computing", computing.to_owned()),
        ("workload.time", time),
        ("dram.frames", frames.to_string()),
        ("run.warm_up", (frames * WARM_UP_OF_A_FRAME).to_string()),
    ];
    if args.quick {
        set.push(("run.requests", QUICK_REQUESTS.to_string()));
    }
    let set = set.into_iter().map(|(key, value)| (key.to_owned(), value));
    let set: Vec<(String, String)> = set.chain(args.set.iter().cloned()).collect();
    System::read(&file.name, &file.text, &set, RunInput::Nothing).or_bad_input(|error| error.to_string())
}

fn of_args(args: &PredictArgs, files: &[File]) -> Vec<Case> {
    let data_bytes = if args.quick { QUICK_DATA_BYTES } else { files[0].data_bytes };
    let case = |between: &Duration, workload: &&str| Case {
        workload: (*workload).to_owned(),
        zipf: args.zipf,
        data_bytes,
        between_misses: Some(*between),
        request_ns: 0.0,
    };
    let names = workloads(&args.workload);
    args.miss_every.iter().flat_map(|between| names.iter().map(move |name| case(between, name))).collect()
}

/// One for each workload, with the calibration of the measurement.
fn of_live(live: &Live, names: &[&str]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for row in live.rows.iter().filter(|row| names.contains(&row.workload.as_str()) && row.config != "hits") {
        if cases.iter().all(|case| case.workload != row.workload) {
            let Calibration { zipf, own_work_ns, added_work_ns, .. } = row.calibration;
            cases.push(Case {
                workload: row.workload.clone(),
                zipf,
                data_bytes: row.data_bytes,
                between_misses: None,
                request_ns: own_work_ns + added_work_ns,
            });
        }
    }
    cases
}

/// `written`: before the measurement, so that it may have asked for something else.
fn beside<'p>(predictions: &'p [Prediction], live: &Live, written: bool) -> Vec<Beside<'p>> {
    let mut rows = Vec::new();
    for prediction in predictions {
        let same = |row: &&LiveRow| row.workload == prediction.workload && row.config == prediction.config;
        // What was made with the measurement's own calibration is of it in any case.
        let near = |row: &&LiveRow| {
            let asked = row.calibration.miss_every_ns;
            !written || asked.is_some_and(|ns| (ns / prediction.miss_every_ns - 1.0).abs() < SAME_DISTANCE)
        };
        let row = live.rows.iter().find(|row| same(row) && near(row));
        if let Some(share) = row.and_then(|row| row.share_of_dram_only) {
            let Spread { median, min, max } = share;
            rows.push(Beside { prediction, measured: median, measured_min: min, measured_max: max });
        }
    }
    rows
}

fn between(prediction: &Prediction) -> String {
    format_duration(Duration::from_nanos(prediction.miss_every_ns as u64))
}

fn predicted(predictions: &[Prediction]) -> String {
    let rows = predictions.iter().map(|one| {
        vec![
            one.workload.clone(),
            one.config.clone(),
            between(one),
            format!("{:.3}", one.misses_per_request),
            percent(one.share_of_dram_only),
            one.simple_share.map_or_else(|| "-".to_owned(), percent),
        ]
    });
    let heading = ["workload", "configuration", "miss every", "misses/request", "predicted", "W/(W+o)"];
    table(&heading, 2, rows) + "\n"
}

fn compared(comparison: &Comparison<'_>) -> String {
    let Comparison { predicted, measured, rows, .. } = comparison;
    let points = |predicted: f64, measured: f64| format!("{:+.1}", 100.0 * (predicted - measured));
    let lines = rows.iter().map(|row| {
        let one = row.prediction;
        vec![
            one.workload.clone(),
            one.config.clone(),
            between(one),
            percent(one.share_of_dram_only),
            percent(row.measured),
            format!("{} to {}", percent(row.measured_min), percent(row.measured_max)),
            points(one.share_of_dram_only, row.measured),
            one.simple_share.map_or_else(|| "-".to_owned(), |simple| points(simple, row.measured)),
        ]
    });
    let heading =
        ["workload", "configuration", "miss every", "predicted", "measured", "by round", "off, points", "W/(W+o) off"];
    let mut text = table(&heading, 2, lines) + "\n";
    let mut configs: Vec<&str> = rows.iter().map(|row| row.prediction.config.as_str()).collect();
    configs.dedup();
    configs.sort_unstable();
    configs.dedup();
    for config in configs {
        let of = || rows.iter().filter(|row| row.prediction.config == config);
        let ours: Vec<f64> = of().map(|row| 100.0 * (row.prediction.share_of_dram_only - row.measured).abs()).collect();
        let simple: Vec<f64> =
            of().filter_map(|row| Some(100.0 * (row.prediction.simple_share? - row.measured).abs())).collect();
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        text += &format!(
            "{config}: {:.1} points off on average, {:.1} at most; W/(W+o): {:.1} and {:.1}\n",
            mean(&ours),
            most(&ours),
            mean(&simple),
            most(&simple)
        );
    }
    text += &format!("Predicted on {}, measured on {}.\n", predicted.day, measured.day);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(workload: &str, config: &str, share: f64) -> Prediction {
        Prediction {
            workload: workload.to_owned(),
            config: config.to_owned(),
            system: "s.toml".to_owned(),
            hash: "0".to_owned(),
            zipf: 1.2,
            data_bytes: 1 << 28,
            request_ns: 1000.0,
            miss_every_ns: 10_000.0,
            misses_per_request: 0.1,
            share_of_dram_only: share,
            simple_share: Some(0.96),
        }
    }
    const LIVE: &str = r#"{"command": "fulgurite-lab live", "machine": {"day": "2026-11-25", "cpu": "x"}, "rows": [
        {"workload": "tatp", "config": "dram-only", "data_bytes": 100, "share_of_dram_only": {"median": 1.0, "min": 1.0, "max": 1.0},
         "calibration": {"zipf": 1.1, "own_work_ns": 150.0, "added_work_ns": 1000.0, "more": 1, "miss_every_ns": 10000}},
        {"workload": "tatp", "config": "fulgurite", "data_bytes": 100, "share_of_dram_only": {"median": 0.95, "min": 0.9, "max": 0.96},
         "calibration": {"zipf": 1.1, "own_work_ns": 150.0, "added_work_ns": 1000.0, "miss_every_ns": 10000}},
        {"workload": "silo", "config": "fulgurite", "data_bytes": 100, "share_of_dram_only": {"median": 0.9, "min": 0.9, "max": 0.9},
         "calibration": {"zipf": 0.99, "own_work_ns": 10.0, "added_work_ns": 0.0, "miss_every_ns": 5000}}]}"#;

    #[test]
    fn predictions_are_compared_with_their_own_rows() {
        let live: Live = serde_json::from_str(LIVE).unwrap();
        let all = [
            prediction("tatp", "fulgurite", 0.94),
            prediction("silo", "fulgurite", 0.9),
            prediction("tatp", "pool", 0.9),
        ];
        let rows = beside(&all, &live, true);
        // Silo's is of another time between misses.
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].measured, rows[0].prediction.workload.as_str()), (0.95, "tatp"));
        assert_eq!(beside(&all, &live, false).len(), 2);
        let comparison = Comparison {
            command: "fulgurite-lab sim predict".to_owned(),
            machine: &live.machine,
            predicted: Source { command: "fulgurite-lab sim predict s.toml", day: "2026-11-24" },
            measured: Source { command: &live.command, day: live.day() },
            rows,
        };
        let text = compared(&comparison);
        assert!(text.contains("-1.0") && text.contains("fulgurite: 1.0 points off on average"), "{text}");
        assert!(text.ends_with("Predicted on 2026-11-24, measured on 2026-11-25.\n"), "{text}");
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(
            (&json["machine"]["cpu"], &json["measured"]["command"]),
            (&"x".into(), &live.command.as_str().into())
        );
        assert_eq!((&json["rows"][0]["workload"], &json["rows"][0]["measured"]), (&"tatp".into(), &0.95.into()));
    }
    #[test]
    fn calibrations_of_a_measurement_are_inputs() {
        let live: Live = serde_json::from_str(LIVE).unwrap();
        let cases = of_live(&live, &["tatp", "silo", "rbt"]);
        assert_eq!(cases.len(), 2);
        assert_eq!((cases[0].request_ns, cases[0].zipf, cases[1].request_ns), (1150.0, 1.1, 10.0));
    }
}
