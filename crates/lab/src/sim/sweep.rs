//! `fulgurite-lab sim sweep`: a system with each of several values of its keys.
//!
//! Each result is a line of FILE, whole when it is written. A line of the same system (by its hash,
//! which the values are part of), seed and version is not run again, so that an interrupted sweep
//! goes on. A point without a result is reported at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};

use fulgurite_sim::system::{Document, System, VERSION};
use fulgurite_term::bad_input::{BadInput, OrBadInput};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::progress;
use fulgurite_term::stderr::log;

use super::given::{SystemArgs, input, once, outputs, text};
use super::plot::{self, PlotArgs};
use crate::parallel;

/// A system, its keys and their values.
#[derive(Clone, Debug, Args)]
pub struct SweepArgs {
    /// The system.
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath)]
    pub system: PathBuf,
    /// A key and its values. Repeat for all combinations.
    #[arg(long, value_name = "KEY=VALUE,..", required = true, value_parser = values)]
    pub over: Vec<(String, Vec<String>)>,
    /// The file that each result is appended to, as a line of JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    #[command(flatten)]
    pub with: SystemArgs,
    /// Threads: as many as cores without it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub plot: PlotArgs,
}

/// What each result begins with: keys are in the order of their names.
const RESULT: &str = "{\"about\":";
/// Points without a result that are reported one by one.
const REPORTED_MAX: usize = 10;
/// The most points of a sweep.
const POINTS_MAX: usize = 100_000;

fn values(text: &str) -> Result<(String, Vec<String>), String> {
    let (key, values) = super::given::assignment(text)?;
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err("a value is empty; write KEY=VALUE,VALUE".to_owned());
    }
    if let Some(again) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
        return Err(format!("{} is written twice", again.1));
    }
    Ok((key, values))
}

/// Keys with a value each.
type Set = Vec<(String, String)>;

/// One combination.
struct Point {
    set: Set,
    system: System,
}

/// Runs all combinations that the file does not have.
pub fn run(args: &SweepArgs) -> Result<()> {
    let (done, whole) = already(&args.out)?;
    let results = [("--out", Some(&args.out)), ("--plot", args.plot.plot.as_ref())];
    outputs(None, &results, args.with.inputs(&args.system))?;
    let interrupt = Interrupt::catch()?;
    let all = points(args)?;
    let count = all.len();
    let key = |point: &Point| (point.system.hash().to_owned(), args.with.seed, VERSION.to_owned());
    let order: Vec<(Key, Set)> = all.iter().map(|point| (key(point), point.set.clone())).collect();
    let left: Vec<Point> = all.into_iter().filter(|point| !done.contains(&key(point))).collect();
    if left.len() < count {
        log(format_args!("{} of {count} points are in {} already", count - left.len(), args.out.display()));
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&args.out)
        .or_bad_input(|error| format!("--out {}: {error}", args.out.display()))?;
    // The part of a line that an interrupted write left is removed.
    if let Some(whole) = whole {
        file.set_len(whole).with_context(|| format!("{} cannot be written", args.out.display()))?;
    }
    let threads = args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let bar = progress::steps("points", left.len() as u64);
    let file = Mutex::new(file);
    let (told, ended) = parallel::run(threads, left.len(), &interrupt, |number| {
        let told = one(&left[number], args, &file);
        bar.inc(1);
        told
    });
    bar.finish_and_clear();
    ended?;
    draw(args, &order)?;
    // The others have results nevertheless.
    let without: Vec<String> = told.into_iter().flatten().collect();
    if without.is_empty() {
        return Ok(());
    }
    let told = without[..without.len().min(REPORTED_MAX)].join("\n");
    Err(BadInput(format!("{} of {count} points have no result:\n{told}", without.len())).into())
}

/// Draws the points of the command, in its order, with the results of earlier runs.
fn draw(args: &SweepArgs, order: &[(Key, Set)]) -> Result<()> {
    if args.plot.plot.is_none() {
        return Ok(());
    }
    let text =
        std::fs::read_to_string(&args.out).with_context(|| format!("{} cannot be read back", args.out.display()))?;
    let mut results: BTreeMap<Key, serde_json::Value> = BTreeMap::new();
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line)?;
        results.extend(key(&value).map(|key| (key, value)));
    }
    let point = |(key, set): &(Key, Set)| {
        let result = results.get(key)?.clone();
        let ((_, x), others) = set.split_first()?;
        let others: Vec<String> = others.iter().map(|(key, value)| format!("{key} {value}")).collect();
        Some(plot::Point { x: x.clone(), series: others.join(", "), result })
    };
    let points: Vec<plot::Point> = order.iter().filter_map(point).collect();
    // Why there is none is reported with the points.
    let Some(first) = points.first() else { return Ok(()) };
    plot::draw(&args.plot, first.result["about"].as_str().unwrap_or_default(), &args.over[0].0, &points)
}

/// Runs a point and appends its result. Returns why it has none.
fn one(point: &Point, args: &SweepArgs, file: &Mutex<std::fs::File>) -> Result<Option<String>> {
    let of = || {
        let set: Vec<String> = point.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        set.join(" ")
    };
    let report = match point.system.run(args.with.seed) {
        Ok(report) => report,
        Err(error) => return Ok(Some(format!("{}: {error}", of()))),
    };
    let mut line = serde_json::to_value(&report)?;
    let over: serde_json::Map<String, serde_json::Value> =
        point.set.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    line.as_object_mut().context("a report is an object")?.insert("over".to_owned(), over.into());
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    file.write_all(&bytes).and_then(|()| file.flush()).with_context(|| {
        format!("{} cannot be written; what it has is kept, so run the command again", args.out.display())
    })?;
    Ok(None)
}

/// All combinations, each read before the first one runs.
fn points(args: &SweepArgs) -> Result<Vec<Point>> {
    let count = args.over.iter().try_fold(1usize, |count, (_, values)| count.checked_mul(values.len()));
    if count.is_none_or(|count| count > POINTS_MAX) {
        return Err(BadInput(format!("--over: more than {POINTS_MAX} points")).into());
    }
    once(args.with.set.iter().map(|(key, _)| key).chain(args.over.iter().map(|(key, _)| key)))?;
    let (file, text) = (args.system.display().to_string(), text(&args.system)?);
    let input = input(&args.with.trace)?;
    // Keys that do not exist are reported before all else.
    Document::read(&file, &text, &args.with.set).or_bad_input(|error| error.to_string())?;
    let mut sets: Vec<Set> = vec![Set::new()];
    for (key, values) in &args.over {
        sets = sets
            .iter()
            .flat_map(|set| {
                values.iter().map(move |value| set.iter().cloned().chain([(key.clone(), value.clone())]).collect())
            })
            .collect();
    }
    sets.into_iter()
        .map(|set| {
            let all: Set = args.with.set.iter().chain(&set).cloned().collect();
            let system = System::read(&file, &text, &all, input.given()).or_bad_input(|error| error.to_string())?;
            Ok(Point { set, system })
        })
        .collect()
}

/// What a result is of: the hash of the system, the seed and the version of the program.
type Key = (String, u64, String);
/// None: the line is no result.
fn key(value: &serde_json::Value) -> Option<Key> {
    let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    Some((text("hash")?, value.get("seed")?.as_u64()?, text("version")?))
}

/// The results that a file has. Where its last line is not whole: how many bytes are.
fn already(path: &Path) -> Result<(BTreeSet<Key>, Option<u64>)> {
    // What is kept is read back, and a line that is not whole is cut off.
    if path.exists() && !path.is_file() {
        return Err(BadInput(format!("--out {}: a regular file is needed", path.display())).into());
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((BTreeSet::new(), None)),
        Err(error) => return Err(BadInput(format!("--out {}: {error}", path.display())).into()),
    };
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let rest = &text[whole..];
    if !rest.starts_with(RESULT) && !RESULT.starts_with(rest) {
        let told = "its last line has no end, and is not of a sweep; name another file";
        return Err(BadInput(format!("--out {}: {told}", path.display())).into());
    }
    let mut done = BTreeSet::new();
    for (at, line) in text[..whole].lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
        match value.as_ref().and_then(key) {
            Some(key) => {
                done.insert(key);
            }
            None => {
                let told = format!("--out {}:{}: not the result of a sweep; name another file", path.display(), at + 1);
                return Err(BadInput(told).into());
            }
        }
    }
    Ok((done, (whole < text.len()).then_some(whole as u64)))
}
