//! `fulgurite-lab sim explain`: what the time of a request is spent on.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde_json::{Value, json};

use fulgurite_sim::stages::Span;
use fulgurite_sim::{Report, Time};
use fulgurite_term::report::table::table;
use fulgurite_term::report::write_file;

use super::given::{JsonArgs, SystemArgs, outputs, result, system};
use super::run::{give, warn};

/// A system to explain.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The system.
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath)]
    pub system: PathBuf,
    #[command(flatten)]
    pub with: SystemArgs,
    #[command(flatten)]
    pub result: JsonArgs,
    /// Write requests from the middle of the run one by one, as a trace for Perfetto and Chrome
    /// (about:tracing).
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath)]
    pub spans: Option<PathBuf>,
}

/// Runs a system and splits its times.
pub fn run(args: &ExplainArgs) -> Result<()> {
    outputs(args.result.json.as_ref(), &[("--spans", args.spans.as_ref())], args.with.inputs(&args.system))?;
    let report = result(&system(&args.system, &args.with)?.explained(), args.with.seed)?;
    warn(&report);
    // Where the spans cannot be written, the split is shown nevertheless.
    let spans = args.spans.as_ref().map_or(Ok(()), |path| write_file(path, traced(&report).to_string().as_bytes()));
    give(args.result.json.as_ref(), &report, || shown(&report))?;
    spans
}

/// Requests as a trace of Chrome: kinds are processes, and those that overlap are in several
/// threads. Below a request are its stages in their order, each in one piece.
fn traced(report: &Report) -> Value {
    let event = |name: &str, process: usize, thread: usize, at: Time, time: Time| json!({"name": name, "ph": "X", "pid": process, "tid": thread, "ts": at.as_us(), "dur": time.as_us()});
    let mut events = Vec::new();
    for (process, (kind, split)) in report.splits().into_iter().enumerate() {
        events.push(json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": kind}}));
        let mut spans: Vec<&Span> = split.spans.iter().collect();
        spans.sort_by_key(|span| span.begins);
        // When the last one of each thread ends.
        let mut busy: Vec<Time> = Vec::new();
        for span in spans {
            let whole: Time = span.stages.iter().copied().sum();
            let thread = busy.iter().position(|until| *until <= span.begins).unwrap_or(busy.len());
            busy.resize(busy.len().max(thread + 1), Time::ZERO);
            busy[thread] = span.begins + whole;
            events.push(event(kind, process, thread, span.begins, whole));
            let mut at = span.begins;
            for (stage, time) in split.stages.iter().zip(&span.stages).filter(|(_, time)| **time > Time::ZERO) {
                events.push(event(stage.name, process, thread, at, *time));
                at += *time;
            }
        }
    }
    json!({"displayTimeUnit": "ns", "traceEvents": events})
}

fn shown(report: &Report) -> String {
    let mut text = String::new();
    for (what, split) in report.splits() {
        let of = |part: f64, whole: f64| format!("{:.1}%", 100.0 * part / whole);
        let row = |name: &str, mean: f64, p99: Option<f64>| {
            let p99_ns = p99.map_or("-".to_owned(), |p99| format!("{p99:.0}"));
            let share = p99.zip(split.p99_ns).map_or("-".to_owned(), |(part, whole)| of(part, whole));
            vec![name.to_owned(), format!("{mean:.0}"), of(mean, split.mean_ns), p99_ns, share]
        };
        let stages = split.stages.iter().map(|stage| row(stage.name, stage.mean_ns, stage.p99_ns));
        let rows = stages.chain([row("sum", split.mean_ns, split.p99_ns)]);
        text += &format!("{what}\n");
        text += &table(&["stage", "mean ns", "share", "p99 ns", "share"], 1, rows);
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("nothing waited, so there is no time to split\n");
    }
    text
}
