//! `fulgurite sim trace`: what a trace holds, and the same in another format.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use fulgurite_bench::bad_input::OrBadInput;
use fulgurite_bench::report::{write_as, write_file};
use fulgurite_bench::values::{Output, output};
use fulgurite_sim::trace::{Format, Summary};

use super::given::{ReadingArgs, format, read_trace};

/// A trace.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace.
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

/// Summarises a trace.
pub fn run(args: &TraceArgs) -> Result<()> {
    let trace = read_trace(&args.file, &args.reading)?;
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
