//! `fulgurite-lab sim trace`: what a trace or a recording holds, and a trace in another format.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::Serialize;

use fulgurite_format::format_bytes;
use fulgurite_sim::cores::RecordingSummary;
use fulgurite_sim::trace::{Format, Summary, Trace};
use fulgurite_term::bad_input::{OrBadInput, bad_input};
use fulgurite_term::report::{write_as, write_file};

use super::given::{Input, JsonArgs, ReadingArgs, format, outputs, read_input};

/// The most instructions of a recording that are written as ChampSim's: 4 GiB of them.
const INSTRUCTIONS_MAX: u64 = 1 << 26;

/// A trace.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace, or the recording of `sim run --record`.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub reading: ReadingArgs,
    #[command(flatten)]
    pub result: JsonArgs,
    /// Write the trace in this format, to --out. Of a recording, those formats can be written that
    /// have no times: champsim, with its instructions, and ramulator2.
    #[arg(long, value_name = "FORMAT", value_parser = format, requires = "out")]
    pub write: Option<Format>,
    /// Where to write it.
    #[arg(long, value_name = "FILE", requires = "write", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// Summarises a trace or a recording.
pub fn run(args: &TraceArgs) -> Result<()> {
    outputs(args.result.json.as_ref(), &[("--out", args.out.as_ref())], [args.file.as_path()])?;
    match read_input(&args.file, &args.reading)? {
        Input::Trace(trace) => {
            let summary = trace.summary();
            give(args, &summary, || shown(&summary), || trace)
        }
        Input::Recording(recording) => {
            let summary = recording.summary();
            if args.write == Some(Format::Champsim) && summary.instructions > INSTRUCTIONS_MAX {
                let count = summary.instructions;
                bad_input!("--write champsim: {count} instructions take more than 4 GiB; record fewer jobs");
            }
            give(args, &summary, || recorded(&summary), || recording.trace())
        }
        Input::Nothing => Ok(()),
    }
}

/// Shows a summary, and writes the trace where it was asked for. What a format cannot say is
/// reported before anything is shown.
fn give(
    args: &TraceArgs,
    summary: &impl Serialize,
    text: impl FnOnce() -> String,
    trace: impl FnOnce() -> Trace,
) -> Result<()> {
    let written = match (args.write, &args.out) {
        (Some(format), Some(path)) => {
            let bytes = trace().write(format, args.reading.clock).or_bad_input(|error| error.to_string())?;
            Some((path, bytes))
        }
        _ => None,
    };
    write_as(args.result.json.as_ref(), summary, text)?;
    written.map_or(Ok(()), |(path, bytes)| write_file(path, &bytes))
}

fn shown(summary: &Summary) -> String {
    let Summary { format, accesses, writes, bytes, end, span_s, sorted } = summary;
    let format = format.name();
    let mut text = format!("{format}: {accesses} accesses, {writes} of them write, {bytes} B, up to byte {end}\n");
    if let (Some(span), Some(sorted)) = (span_s, sorted) {
        let order = if *sorted { "in the order of time" } else { "not in the order of time" };
        text += &format!("over {span:.6} s, {order}\n");
    } else {
        text += "without times\n";
    }
    text
}

fn recorded(summary: &RecordingSummary) -> String {
    let RecordingSummary { workload, front, exponent, seed, cores, threads, jobs, .. } = summary;
    let RecordingSummary { instructions, loads, stores, data_bytes, bytes, .. } = summary;
    format!(
        "recording: {jobs} jobs of {workload}, {front}, over {} of data, Zipf's exponent {exponent}, seed {seed}\n\
         {instructions} instructions, {loads} loads, {stores} stores, in {}\n\
         recorded on {cores} cores of {threads} threads\n",
        format_bytes(*data_bytes),
        format_bytes(*bytes)
    )
}
