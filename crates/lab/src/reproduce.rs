//! `fulgurite-lab reproduce`: every number of the papers compared with Fulgurite's.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};

use crate::values::{Output, output};
use fulgurite_reproduce::{Check, Effort, Paper, Report, Row, Verdict, checks, figures, reproduce};
use fulgurite_term::bad_input::{BadInput, OrBadInput};
use fulgurite_term::progress;
use fulgurite_term::report::table::{Columns, terminal_width};
use fulgurite_term::report::{say, write_as, write_file, write_stdout};

use crate::reproduced::page;
use crate::sim::outputs;

/// Which checks, and where the results go.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// The checks: all without a name. A name without a number stands for all that begin with it,
    /// and the name of a finding for its check.
    #[arg(value_name = "CHECK", value_hint = ValueHint::Other)]
    pub checks: Vec<String>,
    /// Write the results as one JSON object (to standard output without FILE or with `-`).
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = output)]
    #[arg(default_missing_value = "-", value_hint = ValueHint::FilePath)]
    pub json: Option<Output>,
    /// Write the results and the papers' figures as one HTML file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    /// List the checks and what they are about.
    #[arg(long, conflicts_with_all = ["json", "report", "print_config"])]
    pub list: bool,
    /// Print the calibrations as they are read, with the kind and the source of each value.
    #[arg(long, conflicts_with_all = ["json", "report"])]
    pub print_config: bool,
    /// The directory of the kept results, from which the runtime's numbers are [default:
    /// docs/results, where it is there].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub results: Option<PathBuf>,
}

pub const EXAMPLES: &str = "\
Examples:
  fulgurite-lab reproduce
  fulgurite-lab reproduce A5 A12 A13
  fulgurite-lab reproduce D --json nvmm.json
  fulgurite-lab reproduce --report reproduction.html
  fulgurite-lab reproduce --list
  fulgurite-lab reproduce --print-config A

Verdicts:
  PASS        in the band, and nothing was fitted to it
  CALIBRATED  in the band, and a value was fitted to it
  TREND       a statement about an order or a shape holds
  UNDECIDED   the 95% interval over three seeds straddles the band
  FRAGILE     in the band, and out of it when an assumed value moves by 20%
  FAIL        out of the band

What is \"live\" is what the runtime measured, from kept results. Nothing is
measured by this command. Some minutes for all checks, two cores.";

/// The checks that were asked for, and whether they are all.
fn chosen(names: &[String]) -> Result<(Vec<&'static Check>, bool)> {
    let all: Vec<&'static Check> = checks::all().collect();
    for name in names {
        if !all.iter().any(|check| matches(check, name)) {
            let known: Vec<&str> = all.iter().map(|check| check.id).collect();
            let known = known.join(", ");
            return Err(
                BadInput(format!("there is no check {name:?}; there are {known}, and A, AS, B, C and D")).into()
            );
        }
    }
    let wanted = |check: &&Check| names.is_empty() || names.iter().any(|name| matches(check, name));
    let chosen: Vec<&'static Check> = all.iter().copied().filter(|check| wanted(check)).collect();
    let whole = chosen.len() == all.len();
    Ok((chosen, whole))
}

/// `A5` and `A5.event-loop` are `A5`, and `A` is all that are A and a number.
fn matches(check: &Check, name: &str) -> bool {
    let name = name.split_once('.').map_or(name, |(check, _)| check).to_uppercase();
    let letters = check.id.trim_end_matches(|c: char| c.is_ascii_digit());
    check.id == name || letters == name
}

/// Default of `--results`.
const RESULTS: &str = "docs/results";

/// Files can be written and directories are there, before minutes pass.
fn checked(args: &ReproduceArgs) -> Result<PathBuf> {
    outputs(args.json.as_ref(), &[("--report", args.report.as_ref())], [])?;
    match &args.results {
        Some(directory) if !directory.is_dir() => {
            Err(BadInput(format!("--results {} is no directory", directory.display())).into())
        }
        Some(directory) => Ok(directory.clone()),
        None => Ok(Path::new(RESULTS).to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &ReproduceArgs) -> Result<()> {
    let (chosen, whole) = chosen(&args.checks)?;
    let results = checked(args)?;
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
    let effort = Effort { shorter: 1, moves: true, threads, planted: None };
    let bar = progress::share("checks");
    let report = reproduce(&chosen, effort, &results, whole, &|share| progress::set_share(&bar, share));
    bar.finish_and_clear();
    let report = report.or_bad_input(|error| error.to_string())?;
    // What took minutes is shown first, and the files are written whether or not it can be.
    let shown = match &args.json {
        Some(Output::Stdout) => write_as(args.json.as_ref(), &report, String::new),
        _ => write_stdout(shown(&report, terminal_width().unwrap_or(WIDTH)).as_bytes()),
    };
    let json = match &args.json {
        Some(Output::File(_)) => write_as(args.json.as_ref(), &report, String::new),
        _ => Ok(()),
    };
    let html = args.report.as_ref().map_or(Ok(()), |path| {
        let bar = progress::waiting("figures");
        let figures = figures::all(FIGURES_SHORTER, &report);
        bar.finish_and_clear();
        write_file(path, page(&report, &figures?).as_bytes())
    });
    shown.and(json).and(html)?;
    let unanswered: Vec<&str> = report.rows.iter().filter_map(|row| row.error.as_deref()).collect();
    ensure!(unanswered.is_empty(), "{}", unanswered.join("; "));
    Ok(())
}

/// Figures need fewer jobs than findings do.
const FIGURES_SHORTER: u64 = 10;
/// Columns where there is no terminal.
const WIDTH: usize = 100;

/// Words in lines of a width, the later ones indented.
fn wrapped(text: &str, width: usize, first: &str, later: &str) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    let mut begins = true;
    for word in text.split_whitespace() {
        if !begins && line.chars().count() + 1 + word.chars().count() > width {
            lines += line.trim_end();
            lines.push('\n');
            line = later.to_owned();
            begins = true;
        }
        if !begins {
            line.push(' ');
        }
        line += word;
        begins = false;
    }
    lines + line.trim_end() + "\n"
}

/// Each check with its findings, and the counts.
fn shown(report: &Report, width: usize) -> String {
    let width = width.clamp(40, 120);
    let mut text = String::new();
    let mut last = "";
    for row in &report.rows {
        if std::mem::replace(&mut last, &row.check) != row.check {
            text += if text.is_empty() { "" } else { "\n" };
            text += &wrapped(&format!("{}, {}", row.paper, row.about), width, &format!("{}  ", row.check), "    ");
        }
        let name = if row.finding.is_empty() { &row.check } else { &row.finding };
        let ours = format!("{name}: {}; band: {}", row.ours_shown(), row.band_shown());
        let indent = " ".repeat(14);
        text += &wrapped(&ours, width, &format!("  {:<12}", row.verdict), &indent);
        let live = row.live.as_deref().unwrap_or("not measured");
        text += &wrapped(&format!("paper: {}; live: {live}", row.stated), width, &indent, &indent);
        if !row.explanation().is_empty() {
            text += &wrapped(&row.explanation(), width, &indent, &indent);
        }
    }
    text.push('\n');
    text += &wrapped(&report.summary_line(), width, "", "    ");
    let failed: Vec<String> = report.rows.iter().filter(|row| row.verdict == Verdict::Fail).map(Row::name).collect();
    if !failed.is_empty() {
        text += &wrapped(&format!("failed: {}", failed.join(", ")), width, "", "    ");
    }
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
        assert_eq!(ids(&["A5.event-loop", "D"])[..2], ["A5", "D1"]);
        let refused = chosen(&["A99".to_owned()]).unwrap_err();
        assert!(refused.is::<BadInput>() && refused.to_string().contains("A99"));
    }
    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let text = wrapped("one two three four", 12, "> ", "  ");
        assert_eq!(text, "> one two\n  three four\n");
        // A word that is wider stands alone.
        assert_eq!(wrapped("a veryveryverylongword b", 8, "", " "), "a\n veryveryverylongword\n b\n");
        assert_eq!(wrapped("", 8, "  ", ""), "\n");
    }
}
