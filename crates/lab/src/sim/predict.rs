//! `fulgurite-lab sim predict`: what share of plain memory's throughput workloads reach on a
//! machine whose costs `micro --system` has measured. It is written down before `live` measures it,
//! and compared with it afterwards.
//!
//! The exponent of the keys is the same in both, and the time between misses must be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::parallel;
use crate::values::non_zero_duration;
use fulgurite_format::format_duration;
use fulgurite_sim::system::{Document, Found, RunInput, System, SystemError};
use fulgurite_term::bad_input::{BadInput, OrBadInput, bad_input};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::table::{percent, table};
use fulgurite_term::report::{command_line, write_file};

use super::given::{JsonArgs, outputs, text};
use super::run::give;

/// Systems, workloads, and what to compare with.
#[derive(Clone, Debug, Args)]
pub struct PredictArgs {
    /// Systems of `micro --system`. The misses of the first decide the computing of a
    /// request, which is the same on all of them.
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath, required_unless_present = "from")]
    pub systems: Vec<PathBuf>,
    /// Computing between two misses, comma-separated.
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', value_parser = non_zero_duration)]
    #[arg(default_value = "5us,10us", conflicts_with = "from")]
    pub miss_every: Vec<Duration>,
    /// Less data and fewer requests: all of it in under a minute.
    #[arg(long)]
    pub quick: bool,
    /// Write the predictions down, as JSON.
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath, conflicts_with = "from")]
    pub out: Option<PathBuf>,
    /// Take the predictions that were written down, and predict nothing.
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath, requires = "compare_with")]
    #[arg(conflicts_with = "systems")]
    pub from: Option<PathBuf>,
    /// Compare the predictions with a kept `live --json`.
    #[arg(long, value_name = "LIVE.json", value_hint = ValueHint::FilePath)]
    pub compare_with: Option<PathBuf>,
    #[command(flatten)]
    pub result: JsonArgs,
}

/// Data with `--quick`, as of `live --quick`.
const QUICK_DATA_BYTES: u64 = 160 << 20;
const QUICK_REQUESTS: u64 = 20_000;
/// Zipf exponent of the keys, to be the same in `live`.
const ZIPF: f64 = 1.2;
/// The seed of all that is random.
const SEED: u64 = 1;
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
struct ComparedRow<'p> {
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
    rows: Vec<ComparedRow<'p>>,
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
    share_of_dram_only: Option<Spread>,
    calibration: Calibration,
}
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct Calibration {
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
#[derive(Clone, Copy)]
struct Case {
    workload: &'static str,
    data_bytes: u64,
    computing: Computing,
    quick: bool,
}

/// How a request computes: as between two misses of the first system, then as there.
#[derive(Clone, Copy)]
enum Computing {
    BetweenMisses(Duration),
    RequestNs(f64),
}

/// Predicts.
pub fn run(args: &PredictArgs) -> Result<()> {
    let inputs = args.systems.iter().chain(&args.from).chain(&args.compare_with).map(PathBuf::as_path);
    outputs(args.result.json.as_ref(), &[("--out", args.out.as_ref())], inputs)?;
    let interrupt = Interrupt::catch()?;
    let live = args.compare_with.as_deref().map(kept::<Live>).transpose()?;
    let written = match &args.from {
        Some(path) => kept::<Written>(path)?,
        None => {
            let predictions = predict(args, &interrupt)?;
            Written { command: command_line(), day: Machine::describe().day, seed: SEED, predictions }
        }
    };
    let mut text = serde_json::to_string_pretty(&written)?;
    text.push('\n');
    // Where the file cannot be written, the predictions are shown nevertheless.
    let saved = args.out.as_ref().map_or(Ok(()), |path| write_file(path, text.as_bytes()));
    match &live {
        None => give(args.result.json.as_ref(), &written, || predicted(&written.predictions))?,
        Some(live) => {
            let rows = compare(&written.predictions, live);
            if rows.is_empty() {
                bad_input!(
                    "no prediction is of a row of {}: workloads, configurations and the time between misses must agree",
                    args.compare_with.as_ref().map_or(String::new(), |path| path.display().to_string())
                );
            }
            let comparison = Comparison {
                command: command_line(),
                machine: &live.machine,
                predicted: Source { command: &written.command, day: &written.day },
                measured: Source { command: &live.command, day: live.day() },
                rows,
            };
            give(args.result.json.as_ref(), &comparison, || compared(&comparison))?;
        }
    }
    saved
}

fn kept<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).or_bad_input(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text)
        .or_bad_input(|error| format!("{}: not what was expected of such a file: {error}", path.display()))
}

fn predict(args: &PredictArgs, interrupt: &Interrupt) -> Result<Vec<Prediction>> {
    // All that is wrong is reported before anything runs.
    let files = args.systems.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let data_bytes = if args.quick { QUICK_DATA_BYTES } else { files[0].data_bytes };
    let mut cases = Vec::new();
    for between in &args.miss_every {
        let computing = Computing::BetweenMisses(*between);
        let case = |workload: &&'static str| Case { workload, data_bytes, computing, quick: args.quick };
        cases.extend(fulgurite_workloads::THE_SEVEN.iter().map(case));
    }
    for case in &cases {
        files.iter().try_for_each(|file| system(file, case).map(|_| ()))?;
    }
    let bar = progress::steps("predictions", (cases.len() * files.len()) as u64);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (made, ended) = parallel::run(threads, cases.len(), interrupt, |number| one(&files, cases[number], &bar));
    bar.finish_and_clear();
    ended?;
    Ok(made.concat())
}

/// A case on all systems, the first one first.
fn one(files: &[File], mut case: Case, bar: &progress::ProgressBar) -> Result<Vec<Prediction>> {
    let mut made: Vec<Prediction> = Vec::new();
    for file in files {
        let told = |error: &dyn std::fmt::Display| format!("{}, {}: {error}", file.name, case.workload);
        let report = system(file, &case)?.run(SEED).or_bad_input(|error| told(&error))?;
        let Found::Workers(found) = &report.found else { bad_input!("{}: not a system of workers", file.name) };
        let miss_every_ns = match case.computing {
            Computing::BetweenMisses(between) => between.as_nanos() as f64,
            Computing::RequestNs(_) => made[0].miss_every_ns,
        };
        made.push(Prediction {
            workload: case.workload.to_owned(),
            config: file.config.clone(),
            system: file.name.clone(),
            hash: report.hash.clone(),
            zipf: ZIPF,
            data_bytes: case.data_bytes,
            request_ns: found.request_ns,
            miss_every_ns,
            misses_per_request: found.misses_per_request,
            share_of_dram_only: found.share_of_dram_only,
            simple_share: found.simple_share,
        });
        // From here on it is the request's own.
        case.computing = Computing::RequestNs(made[0].request_ns);
        bar.inc(1);
    }
    Ok(made)
}

fn read(path: &Path) -> Result<File> {
    let (name, text) = (path.display().to_string(), text(path)?);
    let told = |error: SystemError| error.to_string();
    // The text is read as it is, so that an error names its own line.
    System::read(&name, &text, &[], RunInput::Nothing).or_bad_input(told)?;
    let document = Document::read(&name, &text, &[]).or_bad_input(told)?;
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
fn system(file: &File, case: &Case) -> Result<System> {
    let frames = (file.frames as f64 * case.data_bytes as f64 / file.data_bytes as f64) as u64;
    let (computing, time) = match case.computing {
        Computing::BetweenMisses(time) => ("between-misses", format!("{}ns", time.as_nanos())),
        Computing::RequestNs(ns) => ("request", format!("{:.0}ps", ns * 1e3)),
    };
    let mut set = vec![
        ("workload.name", case.workload.to_owned()),
        ("workload.data", format!("{}B", case.data_bytes)),
        ("workload.exponent", format!("{ZIPF:?}")),
        ("workload.computing", computing.to_owned()),
        ("workload.time", time),
        ("dram.frames", frames.to_string()),
        ("run.warm_up", (frames * WARM_UP_OF_A_FRAME).to_string()),
    ];
    if case.quick {
        set.push(("run.requests", QUICK_REQUESTS.to_string()));
    }
    let set: Vec<(String, String)> = set.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    System::read(&file.name, &file.text, &set, RunInput::Nothing).or_bad_input(|error| error.to_string())
}

/// The measurement may have asked for something else.
fn compare<'p>(predictions: &'p [Prediction], live: &Live) -> Vec<ComparedRow<'p>> {
    let mut rows = Vec::new();
    for prediction in predictions {
        let same = |row: &&LiveRow| row.workload == prediction.workload && row.config == prediction.config;
        let near = |row: &&LiveRow| {
            let asked = row.calibration.miss_every_ns;
            asked.is_some_and(|ns| (ns / prediction.miss_every_ns - 1.0).abs() < SAME_DISTANCE)
        };
        let row = live.rows.iter().find(|row| same(row) && near(row));
        if let Some(share) = row.and_then(|row| row.share_of_dram_only) {
            let Spread { median, min, max } = share;
            rows.push(ComparedRow { prediction, measured: median, measured_min: min, measured_max: max });
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
        {"workload": "tatp", "config": "dram-only", "share_of_dram_only": {"median": 1.0, "min": 1.0, "max": 1.0},
         "calibration": {"zipf": 1.1, "more": 1, "miss_every_ns": 10000}},
        {"workload": "tatp", "config": "fulgurite", "share_of_dram_only": {"median": 0.95, "min": 0.9, "max": 0.96},
         "calibration": {"miss_every_ns": 10000}},
        {"workload": "silo", "config": "fulgurite", "share_of_dram_only": {"median": 0.9, "min": 0.9, "max": 0.9},
         "calibration": {"miss_every_ns": 5000}}]}"#;

    #[test]
    fn predictions_are_compared_with_their_own_rows() {
        let live: Live = serde_json::from_str(LIVE).unwrap();
        let all = [
            prediction("tatp", "fulgurite", 0.94),
            prediction("silo", "fulgurite", 0.9),
            prediction("tatp", "pool", 0.9),
        ];
        let rows = compare(&all, &live);
        // Silo's is of another time between misses.
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].measured, rows[0].prediction.workload.as_str()), (0.95, "tatp"));
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
}
