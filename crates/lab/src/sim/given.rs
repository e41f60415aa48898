//! What a system is given in addition to its file, and how both are read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueHint};

use crate::values::{Output, output};
use fulgurite_harness::checks::writable;
use fulgurite_sim::cores::Recording;
use fulgurite_sim::system::{RunInput, System, SystemError};
use fulgurite_sim::trace::{Format, Trace};
use fulgurite_sim::{Report, Time};
use fulgurite_term::bad_input::{BadInput, OrBadInput, bad_input};

/// What a system is given in addition to its file.
#[derive(Clone, Debug, Args)]
pub struct SystemArgs {
    /// Put a value in the place of the file's. Repeat for several keys.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The seed of all that is random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub trace: TraceFileArgs,
}

/// Where a result is written.
#[derive(Clone, Debug, Args)]
pub struct JsonArgs {
    /// Write what is shown as JSON (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
}

impl SystemArgs {
    /// The files that are read for a system.
    pub(super) fn inputs<'p>(&'p self, system: &'p Path) -> impl Iterator<Item = &'p Path> {
        std::iter::once(system).chain(self.trace.file.as_deref())
    }
}

/// A trace, and how to read it.
#[derive(Clone, Debug, Args)]
pub struct TraceFileArgs {
    /// The trace that the system runs, if its requests or threads are of one. Or the recording of
    /// `sim run --record` that its threads replay.
    #[arg(long = "trace", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// How to read a trace.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReadingArgs {
    /// The trace's format: msr, mqsim, dramsim3, hybridsim, ramulator2, champsim, lis, blkparse or
    /// fio. The first line decides without it.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// The clock whose cycles the trace counts, where it counts cycles.
    #[arg(long, value_name = "FREQUENCY", value_parser = clock)]
    pub clock: Option<Time>,
}

pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, for example requests.depth=16".to_owned()),
    }
}

/// Refuses keys that are given a value twice: only one of them could be used.
pub(super) fn once<'k>(keys: impl IntoIterator<Item = &'k String>) -> Result<()> {
    let mut known = BTreeSet::new();
    for key in keys {
        if !known.insert(key) {
            bad_input!("{key} is given twice; write it once");
        }
    }
    Ok(())
}

pub(super) fn format(text: &str) -> Result<Format, String> {
    let known = Format::ALL.map(Format::name).join(", ");
    Format::named(text).ok_or_else(|| format!("there is no format \"{text}\"; there are {known}"))
}

fn clock(text: &str) -> Result<Time, String> {
    let quantity = fulgurite_sim::system::Quantity::Frequency;
    let told = |told| format!("\"{text}\" {told}; write for example {}", quantity.example());
    match quantity.read(text).map_err(told)? {
        hertz if (1.0..=1e12).contains(&hertz) => Ok(Time((1e12 / hertz + 0.5) as u64)),
        _ => Err(told("is out of range")),
    }
}

/// Bytes that tell a recording from a trace.
const RECORDING_HEAD: u64 = 64;

/// The text of a system's file.
pub(super) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).or_bad_input(|error| format!("{} cannot be read: {error}", path.display()))
}

/// What the file of `--trace` holds.
pub(super) enum Input {
    /// There is none.
    Nothing,
    Trace(Trace),
    Recording(Arc<Recording>),
}

impl Input {
    /// As a system takes it.
    pub fn given(&self) -> RunInput<'_> {
        match self {
            Input::Nothing => RunInput::Nothing,
            Input::Trace(trace) => RunInput::Trace(trace),
            Input::Recording(recording) => RunInput::Recording(recording),
        }
    }
}

/// A trace, or a recording.
pub(super) fn read_input(path: &Path, reading: &ReadingArgs) -> Result<Input> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).or_bad_input(|error| told(&error))?);
    let mut bytes = Vec::new();
    (&mut file).take(RECORDING_HEAD).read_to_end(&mut bytes).or_bad_input(|error| told(&error))?;
    if reading.format.is_none() && Recording::is_one(&bytes) {
        file.read_to_end(&mut bytes).or_bad_input(|error| told(&error))?;
        let recording = Recording::read(bytes).or_bad_input(|error| told(&error))?;
        return Ok(Input::Recording(Arc::new(recording)));
    }
    let trace = Trace::read_from(bytes.as_slice().chain(file), reading.format, reading.clock);
    trace.map(Input::Trace).or_bad_input(|error| told(&error))
}

/// What was given.
pub(super) fn input(args: &TraceFileArgs) -> Result<Input> {
    args.file.as_ref().map_or(Ok(Input::Nothing), |path| read_input(path, &args.reading))
}

/// Checks that files which results are written to can be written, as far as this can be known
/// before there are any. All are different, and none is a file that is read.
pub(crate) fn outputs<'p>(
    json: Option<&Output>,
    others: &[(&str, Option<&PathBuf>)],
    inputs: impl IntoIterator<Item = &'p Path>,
) -> Result<()> {
    let json = match json {
        Some(Output::File(path)) => Some(path),
        Some(Output::Stdout) | None => None,
    };
    let input = |path: &Path| (format!("{}, which is read", path.display()), place(path));
    let mut taken: Vec<(String, PathBuf)> = inputs.into_iter().map(input).collect();
    for (option, path) in [("--json", json)].iter().chain(others) {
        let Some(path) = *path else { continue };
        writable(option, path)?;
        // A special file, as /dev/null, holds nothing that another result could replace.
        if path.exists() && !path.is_file() {
            continue;
        }
        let at = place(path);
        if let Some((other, _)) = taken.iter().find(|(_, place)| *place == at) {
            bad_input!("{option} {} is the file of {other}; name another file", path.display());
        }
        taken.push(((*option).to_owned(), at));
    }
    Ok(())
}

/// Where a file is or will be, by whatever name it was given.
fn place(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = || Some(parent.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(named).unwrap_or_else(|| path.to_owned())
}

/// Reads a system with what it is given.
pub(super) fn system(path: &Path, args: &SystemArgs) -> Result<System> {
    once(args.set.iter().map(|(key, _)| key))?;
    let (text, input) = (text(path)?, input(&args.trace)?);
    System::read(&path.display().to_string(), &text, &args.set, input.given())
        .or_bad_input(|error: SystemError| error.to_string())
}

/// The keys and values of a system with what it is given, as they are resolved.
pub(super) fn resolved(path: &Path, args: &SystemArgs) -> Result<String> {
    once(args.set.iter().map(|(key, _)| key))?;
    let (text, input) = (text(path)?, input(&args.trace)?);
    System::resolved(&path.display().to_string(), &text, &args.set, input.given())
        .or_bad_input(|error: SystemError| error.to_string())
}

pub(super) fn result(system: &System, seed: u64) -> Result<Report> {
    system.run(seed).map_err(|error| BadInput(error.to_string()).into())
}
