//! `fulgurite sim trace`: what a trace or a recording holds, and a trace in another format.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use fulgurite_bench::bad_input::{OrBadInput, bad_input};
use fulgurite_bench::report::{write_as, write_file};
use fulgurite_bench::values::{Output, output};
use fulgurite_format::format_bytes;
use fulgurite_sim::cores::RecordingSummary;
use fulgurite_sim::trace::{Format, Summary};

use super::given::{Input, ReadingArgs, format, outputs, read_input};

/// A trace.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace, or the recording of `sim run --record`.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Write the summary as JSON (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
    /// Write the trace in this format, to --out.
    #[arg(long, value_name = "FORMAT", value_parser = format, requires = "out")]
    pub write: Option<Format>,
    /// Where to write it.
    #[arg(long, value_name = "FILE", requires = "write", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// Summarises a trace or a recording.
pub fn run(args: &TraceArgs) -> Result<()> {
    outputs(args.json.as_ref(), &[("--out", args.out.as_ref())], [args.file.as_path()])?;
    let trace = match read_input(&args.file, &args.reading)? {
        Input::Trace(trace) => trace,
        Input::Recording(_) if args.write.is_some() => {
            bad_input!("--write: {} is a recording, whose accesses have no times of their own", args.file.display())
        }
        Input::Recording(recording) => {
            let summary = recording.summary();
            return write_as(args.json.as_ref(), &summary, || recorded(&summary));
        }
        Input::Nothing => return Ok(()),
    };
    let summary = trace.summary();
    write_as(args.json.as_ref(), &summary, || shown(&summary))?;
    if let (Some(format), Some(path)) = (args.write, &args.out) {
        let bytes = trace.write(format, args.reading.clock).or_bad_input(|error| error.to_string())?;
        write_file(path, &bytes)?;
    }
    Ok(())
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
