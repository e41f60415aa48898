//! Goal: the figures in the documents are those of the kept results, which the same command made.
//! Method: find the kept result (`docs/results/*.json`) of each command in the README's table, and look in the cells of that
//! command for the values that matter, in order, as far as they are written out: shares of plain memory, what a miss
//! costs, multiples of service time. A value agrees when it differs by no more than rounding. The table of the calibration
//! is compared cell by cell.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rows of the table between two marks, cell by cell, without the head.
fn rows_between(text: &str, mark: &str) -> Vec<Vec<String>> {
    let begin = text.find(&format!("<!-- {mark}: begin")).unwrap_or_else(|| panic!("{mark} does not begin"));
    let end = text.find(&format!("<!-- {mark}: end")).unwrap_or_else(|| panic!("{mark} does not end"));
    let rows = text[begin..end].lines().filter(|l| l.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// A command without the names of what it writes.
fn without_outputs(command: &str) -> String {
    let mut words = command.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if ["--json", "--plot", "--report"].contains(&word) {
            words.next_if(|next| !next.starts_with('-'));
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// A number as it is written, and by how much it may be off.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: f64,
    rounding: f64,
}

impl Written {
    fn is(self, value: f64) -> bool {
        // Half a unit of the last place, and a little for numbers that were rounded twice.
        (self.value - value).abs() <= self.rounding * 0.6
    }
}

/// All numbers in a text; a comma between three digits groups thousands.
fn numbers(text: &str) -> Vec<Written> {
    let grouped: Vec<char> = text.chars().collect();
    let digit = |at: usize| grouped.get(at).is_some_and(char::is_ascii_digit);
    let thousands = |at: usize| at > 0 && digit(at - 1) && (1..=3).all(|i| digit(at + i)) && !digit(at + 4);
    let mut plain = String::new();
    for (at, c) in grouped.iter().enumerate() {
        match c {
            ',' if thousands(at) => {}
            '0'..='9' => plain.push(*c),
            '.' if digit(at + 1) && at > 0 && digit(at - 1) => plain.push('.'),
            _ => plain.push(' '),
        }
    }
    let one = |word: &str| {
        let decimals = word.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        Some(Written { value: word.parse().ok()?, rounding: 0.1_f64.powi(decimals as i32) })
    };
    plain.split_whitespace().filter_map(one).collect()
}

/// What a figure says, beside the results of its command.
struct Figure {
    /// The cells, of all rows with this command.
    text: String,
    result: Value,
    name: String,
}

impl Figure {
    /// The values stand in the text, one after the other.
    fn says(&self, what: &str, values: &[f64], wrong: &mut Vec<String>) {
        let written = numbers(&self.text);
        let found = written.windows(values.len()).any(|w| w.iter().zip(values).all(|(w, v)| w.is(*v)));
        if !found {
            wrong.push(format!("{}: {what} {values:.3?} is not what README.md says: {}", self.name, self.text));
        }
    }
    fn rows(&self) -> &[Value] {
        self.result["rows"].as_array().expect("results have rows")
    }
    /// Of each row of a configuration, a number; none where the row has none.
    fn of(&self, config: &str, number: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
        self.rows().iter().filter(|r| r["config"] == config).filter_map(number).collect()
    }
    fn shares(&self, config: &str) -> Vec<f64> {
        self.of(config, |r| Some(r["share_of_dram_only"]["median"].as_f64()? * 100.0))
    }
}

/// The figures of the README that have a kept result, and the commands of those that have none.
fn figures() -> (Vec<Figure>, Vec<String>) {
    let mut results = BTreeMap::new();
    for entry in fs::read_dir(root().join("docs/results")).expect("there are kept results") {
        let path = entry.expect("a directory can be read").path();
        if path.extension().is_some_and(|e| e == "json") {
            let result: Value =
                serde_json::from_str(&read(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let command = result["command"].as_str().expect("a result names its command");
            results.insert(without_outputs(command), (path.display().to_string(), result));
        }
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for row in rows_between(&read(&root().join("README.md")), "figures") {
        let command = without_outputs(row[2].trim_matches('`'));
        *texts.entry(command).or_default() += &format!("{}: {}; ", row[0], row[1]);
    }
    assert!(texts.len() > 5, "the table of figures in README.md was not found");
    let (mut figures, mut without) = (Vec::new(), Vec::new());
    for (command, text) in texts {
        match results.remove(&command) {
            Some((path, result)) => {
                let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
                figures.push(Figure { text, result, name });
            }
            None => without.push(command),
        }
    }
    (figures, without)
}

#[test]
fn every_figure_has_a_kept_result() {
    let (figures, without) = figures();
    assert!(without.is_empty(), "no file of docs/results was made by:\n  {}", without.join("\n  "));
    assert!(!figures.is_empty());
}

#[test]
fn figures_agree_with_the_kept_results() {
    let (figures, mut wrong) = (figures().0, Vec::new());
    for figure in &figures {
        let command = figure.result["command"].as_str().unwrap_or_default();
        let kind = command.strip_prefix("fulgurite ").unwrap_or_default();
        if kind.starts_with("bench micro") {
            let row = |name: &str| {
                figure.rows().iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("micro has no {name}"))
            };
            let median = |name: &str| row(name)["median"].as_f64().expect("a number");
            let small = ["switch_ns", "hit_overhead_ns", "chained_overhead_ns", "job_ns"].map(median);
            figure.says("switch, hit, chained hit, job", &small, &mut wrong);
            let lowest = row("miss_cpu_ns")["min"].as_f64().expect("a number");
            figure.says("a clean miss and its lowest round", &[median("miss_cpu_ns"), lowest], &mut wrong);
            figure.says("a dirty miss", &[median("miss_cpu_write_ns")], &mut wrong);
        } else if kind.starts_with("bench live") && kind.contains("--workers ") {
            let speedup = |r: &Value| r["speedup_over_one_worker"]["median"].as_f64();
            for config in ["resident", "dram-only"] {
                let of = figure.of(config, speedup);
                if !of.is_empty() {
                    figure.says("two workers over one", &of, &mut wrong);
                }
            }
        } else if kind.starts_with("bench live") || kind.starts_with("demo") {
            // A run of pools alone has no flat flash.
            let flat = figure.rows().iter().any(|row| row["config"] == "fulgurite");
            let shown = if flat { "fulgurite" } else { "pool" };
            let shares = figure.shares(shown);
            let written = if kind.contains("--flash flash.img") && kind.contains("--work 0") {
                // The figure is not a share of plain memory there.
                figure.of(shown, |r| Some(r["share_of_fio"].as_f64()? * 100.0))
            } else {
                shares.clone()
            };
            figure.says("share of dram-only", &written, &mut wrong);
            if kind.contains("--miss-every") && kind.contains("emulated") {
                let mean = shares.iter().sum::<f64>() / shares.len() as f64;
                figure.says("mean share", &[mean], &mut wrong);
            }
            let mut waiting = figure.shares("flash-sync");
            waiting.sort_by(f64::total_cmp);
            if let (Some(low), Some(high)) = (waiting.first(), waiting.last()) {
                let range = if waiting.len() == 1 { vec![*low] } else { vec![*low, *high] };
                figure.says("share of waiting for every miss", &range, &mut wrong);
            }
        } else if kind.starts_with("bench tail") {
            // The loads that the row names.
            let named = figure.text.split("at ").find_map(|rest| rest.contains("% of plain").then(|| numbers(rest)));
            let named: Vec<f64> = named.expect("the row names its loads").iter().map(|n| n.value).collect();
            let loads: Vec<f64> = named.into_iter().take(3).collect();
            for config in ["fulgurite", "fifo"] {
                let at = |r: &Value| {
                    let here = loads.contains(&r["load_percent"].as_f64()?);
                    r["service_p99_of_flash_sync"].as_f64().filter(|_| here)
                };
                figure.says(config, &figure.of(config, at), &mut wrong);
                let gaps = figure.result["setting"]["gaps"].as_array().expect("a tail has gaps");
                let gap = gaps.iter().find(|g| g["config"] == config).and_then(|g| g["points"]["median"].as_f64());
                figure.says("points at the same p99", &gap.into_iter().collect::<Vec<_>>(), &mut wrong);
            }
        } else if kind.starts_with("bench policies") {
            let standings = figure.result["standings"].as_array().expect("policies have standings");
            let default = standings.iter().find(|s| s["policy"] == "s3-fifo" && s["hits"] == "marked");
            let count = |key| default.and_then(|s| s[key].as_f64()).expect("s3-fifo has its standing");
            figure.says("points at which it is best", &[count("best_at"), count("points")], &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_calibration_is_the_kept_one() {
    let result: Value = serde_json::from_str(&read(&root().join("docs/results/live-10us.json"))).expect("JSON");
    let text = read(&root().join("docs/results/calibration.md"));
    let rows: Vec<&Value> =
        result["rows"].as_array().expect("rows").iter().filter(|r| r["config"] == "fulgurite").collect();
    let table = rows_between(&text, "calibration");
    assert_eq!(table.len(), rows.len(), "docs/results/calibration.md has a line for each workload");
    for (cells, row) in table.iter().zip(rows) {
        let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key} is no number"));
        let calibration = &row["calibration"];
        let (own, added) = (number(calibration, "own_work_ns"), number(calibration, "added_work_ns"));
        let expected = [
            number(calibration, "zipf"),
            own / 1000.0,
            added / 1000.0,
            own / (own + added) * 100.0,
            number(row, "misses_per_op"),
            number(row, "work_us_per_miss"),
        ];
        assert_eq!(cells[0], row["workload"], "the order is that of the file");
        for (cell, expected) in cells[1..].iter().zip(expected) {
            let written = numbers(cell);
            assert!(written.len() == 1 && written[0].is(expected), "{}: {cell} is {expected} in the file", cells[0]);
        }
    }
}

#[test]
fn numbers_are_read_as_they_are_written() {
    let values = |text: &str| numbers(text).iter().map(|n| n.value).collect::<Vec<_>>();
    assert_eq!(values("93.0, 95.6, 92.9%: 95.7% on average"), [93.0, 95.6, 92.9, 95.7]);
    assert_eq!(values("67,475 a second; 1.2 ns; (aim: 75), 57."), [67_475.0, 1.2, 75.0, 57.0]);
    assert!(numbers("93.0")[0].is(93.04) && !numbers("93.0")[0].is(93.1) && numbers("147")[0].is(147.0));
    assert_eq!(without_outputs("fulgurite bench micro --json"), "fulgurite bench micro");
    assert_eq!(without_outputs("fulgurite bench x --json a.json --plot a.svg --quick"), "fulgurite bench x --quick");
}
