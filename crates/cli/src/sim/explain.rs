//! `fulgurite sim explain`: where the time of a request goes.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use fulgurite_bench::report::table::table;
use fulgurite_bench::values::{Output, output};
use fulgurite_sim::Report;

use super::given::{SystemArgs, outputs, result, system};
use super::run::{give, warn};

/// A system to explain.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The system.
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath)]
    pub system: PathBuf,
    #[command(flatten)]
    pub with: SystemArgs,
    /// Write the result as JSON (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
}

/// Runs a system and splits its times.
pub fn run(args: &ExplainArgs) -> Result<()> {
    outputs(args.json.as_ref(), &[], args.with.inputs(&args.system))?;
    let report = result(&system(&args.system, &args.with)?.explained(), args.with.seed)?;
    warn(&report);
    give(args.json.as_ref(), &report, || shown(&report))
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
