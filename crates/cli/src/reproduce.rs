//! `fulgurite reproduce`: every number of the papers beside ours.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};

use fulgurite_bench::bad_input::{BadInput, OrBadInput};
use fulgurite_bench::report::table::Columns;
use fulgurite_bench::report::{say, write_as};
use fulgurite_bench::values::{Output, output};
use fulgurite_reproduce::{Check, Effort, Paper, Report, Row, Verdict, checks, reproduce};

/// Which checks, and where the results go.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// The checks: all without a name. A name without a number stands for all that begin with it.
    #[arg(value_name = "CHECK", value_hint = ValueHint::Other)]
    pub checks: Vec<String>,
    /// Write the results as one JSON object (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
    /// List the checks and what they are about.
    #[arg(long, conflicts_with_all = ["json", "print_config"])]
    pub list: bool,
    /// Print the calibrations as they are read, with the kind and the source of each value.
    #[arg(long, conflicts_with = "json")]
    pub print_config: bool,
    /// The directory of the kept results, from which the runtime's numbers are.
    #[arg(long, value_name = "DIR", default_value = "docs/results", value_hint = ValueHint::DirPath)]
    pub results: PathBuf,
}

pub const EXAMPLES: &str = "\
Examples:
  fulgurite reproduce
  fulgurite reproduce A5 A12 A13
  fulgurite reproduce D --json nvmm.json
  fulgurite reproduce --list
  fulgurite reproduce --print-config A

Verdicts:
  PASS        in the band, and nothing was fitted to it
  CALIBRATED  in the band, and a value was fitted to it
  TREND       a statement about an order or a shape holds
  UNDECIDED   the 95% interval over three seeds straddles the band
  FRAGILE     in the band, and out of it when an assumed value moves by 20%
  FAIL        out of the band

The column \"live\" is what the runtime measured, from kept results. Nothing is
measured by this command.";

/// The checks that were asked for, and whether they are all.
fn chosen(names: &[String]) -> Result<(Vec<&'static Check>, bool)> {
    let all: Vec<&'static Check> = checks::all().collect();
    for name in names {
        if !all.iter().any(|check| matches(check, name)) {
            let known: Vec<&str> = all.iter().map(|check| check.id).collect();
            return Err(BadInput(format!("there is no check {name}; there are {}", known.join(", "))).into());
        }
    }
    let wanted = |check: &&Check| names.is_empty() || names.iter().any(|name| matches(check, name));
    let chosen: Vec<&'static Check> = all.iter().copied().filter(|check| wanted(check)).collect();
    let whole = chosen.len() == all.len();
    Ok((chosen, whole))
}

/// `A5` is `A5`, and `A` is all that are A and a number.
fn matches(check: &Check, name: &str) -> bool {
    let name = name.to_uppercase();
    let letters = check.id.trim_end_matches(|c: char| c.is_ascii_digit());
    check.id == name || letters == name
}

/// Runs the command.
pub fn run(args: &ReproduceArgs) -> Result<()> {
    let (chosen, whole) = chosen(&args.checks)?;
    if args.list {
        let list = Columns::of(chosen.iter().copied())
            .left("check", |check| check.id)
            .left("paper", |check| check.paper.name())
            .left("about", |check| check.about);
        return say(&list.table());
    }
    if args.print_config {
        for paper in Paper::ALL.into_iter().filter(|paper| chosen.iter().any(|check| check.paper == *paper)) {
            say(&paper.calibration().or_bad_input(|error| error.to_string())?.print())?;
        }
        return Ok(());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let effort = Effort { shorter: 1, moves: true, threads };
    let report = reproduce(&chosen, effort, &args.results, whole).or_bad_input(|error| error.to_string())?;
    write_as(args.json.as_ref(), &report, || shown(&report))?;
    if matches!(args.json, Some(Output::File(_))) {
        say(&shown(&report))?;
    }
    let unanswered: Vec<&str> = report.rows.iter().filter_map(|row| row.error.as_deref()).collect();
    ensure!(unanswered.is_empty(), "{}", unanswered.join("; "));
    Ok(())
}

/// The table, each row with its mechanism below it, and the counts.
fn shown(report: &Report) -> String {
    let table = Columns::of(&report.rows)
        .left("check", Row::name)
        .left("verdict", |row| row.verdict)
        .left("the paper", |row| row.stated.clone())
        .left("ours", Row::ours_shown)
        .left("band", Row::band_shown)
        .left("live", |row| row.live.clone().unwrap_or_else(|| "not measured".to_owned()))
        .table();
    // A heading and a rule come first, a rule last.
    let mut text = String::new();
    for (at, line) in table.lines().enumerate() {
        text += line;
        text.push('\n');
        if let Some(row) = at.checked_sub(2).and_then(|at| report.rows.get(at)) {
            text += &format!("      {}\n", row.told());
        }
    }
    text += &report.summary_line();
    let failed: Vec<String> = report.rows.iter().filter(|row| row.verdict == Verdict::Fail).map(Row::name).collect();
    if !failed.is_empty() {
        text += &format!("\nfailed: {}", failed.join(", "));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_checks() {
        let ids = |names: &[&str]| -> Vec<&str> {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            chosen(&names).unwrap().0.iter().map(|check| check.id).collect()
        };
        assert_eq!(ids(&["a5", "D1"]), ["A5", "D1"]);
        assert!(ids(&["AS"]).iter().all(|id| id.starts_with("AS")) && !ids(&["A"]).contains(&"AS1"));
        let refused = chosen(&["A99".to_owned()]).unwrap_err();
        assert!(refused.is::<BadInput>() && refused.to_string().contains("A99"));
    }
}
