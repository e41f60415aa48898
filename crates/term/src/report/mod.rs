//! What the program hands out: rows, tables, JSON, plots, HTML.

pub mod charts;
pub mod html;
pub mod svg;
pub mod table;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::args::OutputArgs;
use crate::interrupt::Interrupted;
use crate::machine::Machine;
use crate::stderr::log;
use crate::values::Output;

/// One JSON object: the machine, the command, and the results.
#[derive(Debug, Serialize)]
pub struct Report<'r, T: Serialize> {
    /// The machine that the numbers are of.
    pub machine: &'r Machine,
    /// The command line.
    pub command: String,
    /// What the numbers are of, in addition to the machine (bounds, calibration, what was skipped).
    pub setting: serde_json::Value,
    /// Whether the run ended early; what is there is whole.
    pub interrupted: bool,
    /// What failed or disagrees: such rows are missing, or lack rounds.
    pub failed: &'r [String],
    /// One for each result.
    pub rows: &'r [T],
    /// Other results, each under its own name.
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl<'r, T: Serialize> Report<'r, T> {
    /// A run that ended as it should.
    pub fn new(machine: &'r Machine, setting: serde_json::Value, rows: &'r [T]) -> Report<'r, T> {
        let more = serde_json::Map::new();
        Report { machine, command: command_line(), setting, interrupted: false, failed: &[], rows, more }
    }
    /// Adds results of another kind.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub fn with(mut self, name: &str, value: impl Serialize) -> Result<Report<'r, T>> {
        self.more.insert(name.to_owned(), serde_json::to_value(value)?);
        Ok(self)
    }
    /// Writes the JSON and the plot that were asked for.
    ///
    /// # Errors
    /// What kept them from being written, then [`Interrupted`], then what failed in the run.
    pub fn finish(self, args: &OutputArgs, plot: impl FnOnce() -> String) -> Result<()> {
        write_json(args, &self)?;
        write_plot(args, plot)?;
        if self.interrupted {
            return Err(Interrupted.into());
        }
        ensure!(self.failed.is_empty(), "{}", self.failed.join("; "));
        Ok(())
    }
}

/// The command line as it was given.
pub fn command_line() -> String {
    let quote =
        |word: String| if word.contains([' ', '"', '\'']) || word.is_empty() { format!("{word:?}") } else { word };
    let mut words: Vec<String> = std::env::args().map(quote).collect();
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words.join(" ")
}

/// Writes text for people: to standard output, or, where JSON is written there, to standard error.
pub fn print(args: &OutputArgs, text: &str) -> Result<()> {
    if args.json == Some(Output::Stdout) {
        log(text);
        return Ok(());
    }
    say(text)
}

/// Writes several of these.
pub fn print_all<T: AsRef<str>>(args: &OutputArgs, texts: impl IntoIterator<Item = T>) -> Result<()> {
    texts.into_iter().try_for_each(|text| print(args, text.as_ref()))
}

/// Writes a line to standard output.
pub fn say(text: &str) -> Result<()> {
    write_stdout(format!("{text}\n").as_bytes())
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub fn write_stdout(bytes: &[u8]) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e).context("standard output cannot be written"),
        _ => Ok(()),
    }
}

/// Writes the JSON that was asked for.
pub fn write_json<T: Serialize>(args: &OutputArgs, value: &T) -> Result<()> {
    args.json.as_ref().map_or(Ok(()), |output| write_to(output, value))
}

fn write_to(output: &Output, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    match output {
        Output::Stdout => write_stdout(text.as_bytes()),
        Output::File(path) => write_file(path, text.as_bytes()),
    }
}

/// Writes the plot that was asked for.
pub fn write_plot(args: &OutputArgs, draw: impl FnOnce() -> String) -> Result<()> {
    match &args.plot {
        Some(path) => write_file(path, draw().as_bytes()),
        None => Ok(()),
    }
}

/// Writes JSON where it was asked for, else text.
pub fn write_as(json: Option<&Output>, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    match json {
        Some(output) => write_to(output, value),
        None => write_stdout(text().as_bytes()),
    }
}

/// The different ones, in the order in which they come first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// Writes a file, whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let what = || format!("{} could not be written", path.display());
    let directory = crate::checks::parent_of(path);
    // A special file (/dev/stdout, a pipe) cannot be replaced.
    if path.exists() && !path.is_file() {
        return fs::write(path, bytes).with_context(what);
    }
    let mut file = tempfile::Builder::new().prefix(".fulgurite-").tempfile_in(directory).with_context(what)?;
    file.write_all(bytes).with_context(what)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).with_context(what)?;
    file.persist(path).with_context(what)?;
    Ok(())
}
