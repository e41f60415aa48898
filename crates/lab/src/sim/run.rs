//! `fulgurite-lab sim run` and `compare`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::values::Output;
use fulgurite_format::format_bytes;
use fulgurite_sim::{Report, RunError};
use fulgurite_sys::clock::process_cpu;
use fulgurite_term::bad_input::OrBadInput;
use fulgurite_term::report::table::table;
use fulgurite_term::report::{distinct, say, write_as, write_file, write_stdout};
use fulgurite_term::stderr::log;

use super::given::{JsonArgs, SystemArgs, outputs, resolved, result, system};
use super::plot::{self, PlotArgs, Point};

/// A system, and where its result is written.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The system.
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath)]
    pub system: PathBuf,
    #[command(flatten)]
    pub with: SystemArgs,
    #[command(flatten)]
    pub result: JsonArgs,
    /// Write the jobs of the run, for other systems of cores to replay: --trace FILE and
    /// workload.front = "recorded".
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// Print how fast the simulator itself is, by CPU time.
    #[arg(long)]
    pub speed: bool,
    /// Print the keys and values as they are resolved, with their hash, and run nothing.
    #[arg(long, conflicts_with_all = ["json", "speed", "record"])]
    pub print_config: bool,
}

/// Systems that are compared with each other.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// The systems.
    #[arg(value_name = "SYSTEM", num_args = 2.., value_hint = ValueHint::FilePath)]
    pub systems: Vec<PathBuf>,
    #[command(flatten)]
    pub with: SystemArgs,
    #[command(flatten)]
    pub result: JsonArgs,
    #[command(flatten)]
    pub plot: PlotArgs,
}

/// Runs a system.
pub fn run(args: &RunArgs) -> Result<()> {
    if args.print_config {
        return say(resolved(&args.system, &args.with)?.trim_end());
    }
    outputs(args.result.json.as_ref(), &[("--record", args.record.as_ref())], args.with.inputs(&args.system))?;
    let system = system(&args.system, &args.with)?;
    let begun = process_cpu();
    let (report, recording) = match &args.record {
        Some(_) => {
            let told = |error: RunError| match error {
                RunError::NoJobs => format!("--record: {}: {error}", args.system.display()),
                other => other.to_string(),
            };
            let (report, recording) = system.record(args.with.seed).or_bad_input(told)?;
            (report, Some(recording))
        }
        None => (result(&system, args.with.seed)?, None),
    };
    // Of this process alone: what else the machine does makes no simulator slower.
    let took = process_cpu().saturating_sub(begun).as_secs_f64().max(1e-9);
    warn(&report);
    give(args.result.json.as_ref(), &report, || shown(&[&report]))?;
    if args.speed {
        let counted = report.counted();
        let speed = format!(
            "{:.2} M requests/s, {:.2} M events/s of the kernel, in {took:.2} s of CPU time",
            counted.requests as f64 / took / 1e6,
            counted.events as f64 / took / 1e6,
        );
        // Not into the JSON: it is of this machine, and not of the run.
        log(speed);
    }
    if let (Some(path), Some(recording)) = (&args.record, recording) {
        write_file(path, recording.bytes())?;
        let bytes = format_bytes(recording.bytes().len() as u64);
        log(format_args!("{} jobs are in {}: {bytes}", recording.jobs(), path.display()));
    }
    Ok(())
}

/// Runs several systems.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let inputs = args.systems.iter().chain(&args.with.trace.file).map(PathBuf::as_path);
    outputs(args.result.json.as_ref(), &[("--plot", args.plot.plot.as_ref())], inputs)?;
    // All of them are read before the first one runs.
    let systems = args.systems.iter().map(|path| system(path, &args.with)).collect::<Result<Vec<_>>>()?;
    let reports = systems.iter().map(|system| result(system, args.with.seed)).collect::<Result<Vec<_>>>()?;
    reports.iter().for_each(warn);
    // Where the drawing cannot be written, the results are shown nevertheless.
    let drawn = draw(&args.plot, &reports);
    give(args.result.json.as_ref(), &reports, || shown(&reports.iter().collect::<Vec<_>>()))?;
    drawn
}

/// Draws systems next to each other, by the names of their files without directory and ending, or
/// by all of their paths where several have the same name.
fn draw(args: &PlotArgs, reports: &[Report]) -> Result<()> {
    let stem = |report: &Report| Path::new(&report.system).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let are_different = distinct(reports.iter().map(stem)).len() == reports.len();
    let point = |report: &Report| {
        let x = stem(report).filter(|_| are_different).unwrap_or_else(|| report.system.clone());
        Ok(Point { x, series: String::new(), result: serde_json::to_value(report)? })
    };
    let points = reports.iter().map(point).collect::<Result<Vec<_>>>()?;
    plot::draw(args, "Systems next to each other", "system", &points)
}

/// Writes results where they were asked for. Where a file cannot be written, they are shown.
pub fn give(json: Option<&Output>, value: &impl Serialize, shown: impl Fn() -> String) -> Result<()> {
    let written = write_as(json, value, &shown);
    if written.is_err() && matches!(json, Some(Output::File(_))) {
        write_stdout(shown().as_bytes())?;
    }
    written
}

pub fn warn(report: &Report) {
    for warning in report.warnings() {
        log(format_args!("fulgurite: {}: {warning}", report.system));
    }
}

/// A column for each.
pub fn shown(reports: &[&Report]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (at, report) in reports.iter().enumerate() {
        for (name, value) in report.rows() {
            let row = match rows.iter().position(|row| row[0] == name) {
                Some(row) => row,
                None => {
                    rows.push(vec![name.to_owned()]);
                    rows.len() - 1
                }
            };
            rows[row].resize(at + 1, String::new());
            rows[row].push(value);
        }
    }
    for row in &mut rows {
        row.resize(reports.len() + 1, String::new());
    }
    let heading: Vec<&str> = std::iter::once("").chain(reports.iter().map(|report| report.system.as_str())).collect();
    table(&heading, 1, rows) + "\n"
}
