//! Drawings of results: curves over the first key of a sweep, bars of systems next to each other.
//!
//! A figure is any number of a result, named as in its JSON: `reads.p99_ns.value`. A file that ends
//! in `.html` becomes a page with tables, which needs nothing from elsewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueHint};
use serde_json::Value;

use fulgurite_sim::system::Quantity;
use fulgurite_term::bad_input::{BadInput, bad_input};
use fulgurite_term::report::charts::{Axis, Bar, Bars, Curve, Curves, stack};
use fulgurite_term::report::html::Page;
use fulgurite_term::report::svg::Canvas;
use fulgurite_term::report::table::{Columns, number};
use fulgurite_term::report::write_file;

/// Where to draw, and what.
#[derive(Clone, Debug, Args)]
pub struct PlotArgs {
    /// Draw the results: SVG, or a page that needs nothing from elsewhere.
    #[arg(long, value_name = "FILE.svg|FILE.html", value_hint = ValueHint::FilePath, value_parser = drawing)]
    pub plot: Option<PathBuf>,
    /// What to draw, as results name it, for example reads.p99_ns.value. Repeat for several
    /// [default: throughput, and the mean and 99th percentile of times].
    #[arg(long, value_name = "NAME", requires = "plot")]
    pub figure: Vec<String>,
}

/// A file for a drawing: its name says which kind.
fn drawing(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    // Without an ending it is SVG.
    let known = path.extension().is_none_or(|extension| extension == "svg" || extension == "html");
    if known { Ok(path) } else { Err("a drawing is .svg or .html; end the name so".to_owned()) }
}

/// Drawn where nothing else is asked for, as far as results have them.
const USUAL: [&str; 15] = [
    "requests_per_s",
    "accesses_per_s",
    "access.mean_ns.value",
    "access.p99_ns.value",
    "power.total_w",
    "jobs_per_s",
    "bytes_per_s",
    "share_of_dram_only",
    "reads.mean_ns.value",
    "reads.p99_ns.value",
    "writes.mean_ns.value",
    "writes.p99_ns.value",
    "times.mean_ns.value",
    "service.mean_ns.value",
    "service.p99_ns.value",
];
/// From this ratio of the largest to the smallest value on, an axis is logarithmic.
const LOGARITHMIC: f64 = 12.0;
/// The most curves that can still be distinguished.
const CURVES_MAX: usize = 8;

/// All numbers of a result, by their names.
fn numbers(value: &Value, name: &str, into: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64().map(|number| (name.to_owned(), number))),
        Value::Object(object) => {
            for (key, value) in object {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                numbers(value, &name, into);
            }
        }
        _ => {}
    }
}

fn figure(result: &Value, name: &str) -> Option<f64> {
    name.split('.').try_fold(result, |value, key| value.get(key))?.as_f64()
}

/// The figures to draw: those asked for, which some result must have, or the usual ones.
fn chosen(results: &[Value], asked: &[String]) -> Result<Vec<String>> {
    let has = |name: &str| results.iter().any(|result| figure(result, name).is_some());
    if asked.is_empty() {
        return Ok(USUAL.iter().filter(|name| has(name)).map(|name| (*name).to_owned()).collect());
    }
    if let Some(name) = asked.iter().find(|name| !has(name)) {
        let mut all = Vec::new();
        results.iter().for_each(|result| numbers(result, "", &mut all));
        let known: BTreeSet<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let nearest = fulgurite_sim::system::nearest(name, known.iter().copied());
        let meant = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
        let known: Vec<&str> = known.into_iter().collect();
        bad_input!("--figure {name}: no result has it{meant} There are {}", known.join(", "));
    }
    Ok(asked.to_vec())
}

/// A value of a key as a number in its unit: `25us` is 25 µs.
fn as_number(text: &str) -> Option<(f64, &'static str)> {
    if let Ok(number) = text.parse::<f64>() {
        return Some((number, ""));
    }
    let units = [
        (Quantity::Time, 1e6, "µs"),
        (Quantity::Size, 1.0, "B"),
        (Quantity::Rate, 1e6, "MB/s"),
        (Quantity::Frequency, 1e9, "GHz"),
        (Quantity::Share, 0.01, "%"),
    ];
    units.into_iter().find_map(|(quantity, unit, name)| Some((quantity.read(text).ok()? / unit, name)))
}

fn axis(label: &str, values: &[f64]) -> Axis {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    if least > 0.0 && most / least >= LOGARITHMIC { Axis::logarithmic(label) } else { Axis::linear(label) }
}

/// Of a figure, its name and its unit.
fn unit(name: &str) -> (String, &'static str, f64) {
    let (short, factor, unit) = match name {
        name if name.contains("_ns") => (name.replace("_ns", "").replace(".value", ""), 1e3, "µs"),
        name if name.ends_with("bytes_per_s") => {
            (name.replace("_bytes_per_s", "").replace("bytes_per_s", "data"), 1e6, "MB/s")
        }
        name if name.ends_with("_per_s") => (name.replace("_per_s", ""), 1.0, "1/s"),
        name if name.ends_with("_w") => (name.trim_end_matches("_w").to_owned(), 1.0, "W"),
        name if name.contains("share") => (name.to_owned(), 0.01, "%"),
        name => (name.to_owned(), 1.0, ""),
    };
    (short.replace(['_', '.'], " "), unit, factor)
}

fn labelled(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// Draws the points of a sweep: results that have the values of their keys under `over`.
///
/// # Errors
/// When a figure is in no result, or the file cannot be written.
pub fn sweep(args: &PlotArgs, results: &[Value], keys: &[String], about: &str) -> Result<()> {
    let Some(path) = &args.plot else { return Ok(()) };
    let (first, others) = keys.split_first().expect("a sweep has a key");
    let figures = chosen(results, &args.figure)?;
    let text = |result: &Value, key: &str| result["over"][key].as_str().unwrap_or_default().to_owned();
    let mut values: Vec<String> = Vec::new();
    for result in results {
        let value = text(result, first);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    // As numbers where all of them are, of one unit, and in their order where not.
    let as_numbers: Option<Vec<(f64, &str)>> = values.iter().map(|value| as_number(value)).collect();
    let as_numbers = as_numbers.filter(|all| all.iter().all(|(_, unit)| *unit == all[0].1));
    let place = |value: &str| {
        let at = values.iter().position(|other| other == value)?;
        Some(as_numbers.as_ref().map_or(at as f64, |all| all[at].0))
    };
    let x = match &as_numbers {
        Some(all) => axis(&labelled(first, all[0].1), &all.iter().map(|(number, _)| *number).collect::<Vec<_>>()),
        None => {
            let ticks = values.iter().enumerate().map(|(at, value)| (at as f64, value.clone())).collect();
            let range = Some((-0.3, values.len() as f64 - 0.7));
            Axis { ticks, range, ..Axis::linear(first) }
        }
    };
    let names = |result: &Value| {
        let of: Vec<String> = others.iter().map(|key| format!("{key} {}", text(result, key))).collect();
        if of.is_empty() { "all".to_owned() } else { of.join(", ") }
    };
    let mut series: Vec<String> = Vec::new();
    for result in results {
        let name = names(result);
        if !series.contains(&name) {
            series.push(name);
        }
    }
    if series.len() > CURVES_MAX {
        bad_input!(
            "--plot: {} curves in one drawing cannot be distinguished; {CURVES_MAX} can: put the key with the most values first",
            series.len()
        );
    }
    let mut drawings = Vec::new();
    for name in &figures {
        let (short, unit, factor) = unit(name);
        let curves: Vec<Curve> = series
            .iter()
            .map(|series| {
                let of = results.iter().filter(|result| names(result) == *series);
                let mut points: Vec<(f64, f64)> = of
                    .filter_map(|result| Some((place(&text(result, first))?, figure(result, name)? / factor)))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Curve { name: series.clone(), points }
            })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        let all: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).collect();
        let y = axis(&labelled(&short, unit), &all);
        drawings.push(Curves::new(labelled(&short, unit), about, x.clone(), y, curves).draw());
    }
    let heading = |result: &Value| {
        let of: Vec<String> = keys.iter().map(|key| text(result, key)).collect();
        of.join(", ")
    };
    write(path, about, &keys.join(", "), results, heading, &figures, &drawings)
}

/// Draws systems next to each other.
///
/// # Errors
/// As [`sweep`].
pub fn compare(args: &PlotArgs, results: &[Value]) -> Result<()> {
    let Some(path) = &args.plot else { return Ok(()) };
    let figures = chosen(results, &args.figure)?;
    let name_of = |result: &Value| {
        let file = result["system"].as_str().unwrap_or_default();
        Path::new(file).file_stem().map_or(file.to_owned(), |stem| stem.to_string_lossy().into_owned())
    };
    let series: Vec<String> = results.iter().map(name_of).collect();
    let mut drawings = Vec::new();
    for name in &figures {
        let (short, unit, factor) = unit(name);
        let bar = |result: &Value| {
            let value = figure(result, name)? / factor;
            Some(Bar { value, spread: None, tip: format!("{}: {} {unit}", name_of(result), number(value)) })
        };
        let bars = Bars {
            title: labelled(&short, unit),
            subtitle: "systems next to each other".to_owned(),
            unit: unit.to_owned(),
            groups: vec![short],
            series: series.clone(),
            bars: vec![results.iter().map(bar).collect()],
            mark: None,
        };
        drawings.push(bars.draw());
    }
    write(path, "Systems next to each other", "system", results, name_of, &figures, &drawings)
}

fn write(
    path: &Path,
    title: &str,
    first: &str,
    results: &[Value],
    heading: impl Fn(&Value) -> String,
    figures: &[String],
    drawings: &[Canvas],
) -> Result<()> {
    if drawings.is_empty() {
        return Err(BadInput("--plot: no result has a figure to draw; name one with --figure".to_owned()).into());
    }
    let html = path.extension().is_some_and(|extension| extension == "html");
    if !html {
        return write_file(path, stack(drawings).as_bytes());
    }
    let mut page = Page::new(title);
    if let Some(about) = results.first().and_then(|result| result["about"].as_str()).filter(|about| *about != title) {
        page.paragraph(about);
    }
    // Headings of columns are of the program's text, so that each figure is a row.
    let rows: Vec<(String, Vec<String>)> = results
        .iter()
        .map(|result| {
            let cells = figures.iter().map(|name| {
                let (_, _, factor) = unit(name);
                figure(result, name).map_or_else(|| "-".to_owned(), |value| number(value / factor))
            });
            (heading(result), cells.collect())
        })
        .collect();
    for (at, (name, drawing)) in figures.iter().zip(drawings).enumerate() {
        let (short, unit, _) = unit(name);
        page.heading(&labelled(&short, unit));
        page.drawing(&drawing.finish());
        let columns = Columns::of(&rows).left("", |row| row.0.clone()).right("", |row| row.1[at].clone());
        page.paragraph(&format!("By {first}:"));
        page.table(&columns, |_| false);
    }
    let hashes: Vec<&str> = results.iter().filter_map(|result| result["hash"].as_str()).collect();
    page.paragraph(&format!("Results {} (hashes of systems).", hashes.join(", ")));
    write_file(path, page.finish().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Vec<Value> {
        let of = |depth: &str, read: &str, rate: f64| {
            serde_json::json!({"hash": "0", "system": "a/x.toml", "about": "x", "requests_per_s": rate,
                "reads": {"p99_ns": {"value": rate * 2.0, "half_width": null}}, "over": {"d": depth, "r": read}})
        };
        vec![of("1", "25us", 10.0), of("16", "25us", 100.0), of("1", "75us", 5.0), of("16", "75us", 80.0)]
    }
    fn args(path: &Path, figures: &[&str]) -> PlotArgs {
        PlotArgs { plot: Some(path.to_owned()), figure: figures.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn a_sweep_is_drawn_and_stands_alone() {
        let directory = tempfile::tempdir().unwrap();
        let keys = ["d".to_owned(), "r".to_owned()];
        for name in ["a.svg", "a.html"] {
            let path = directory.path().join(name);
            sweep(&args(&path, &[]), &results(), &keys, "x").unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("r 25us") && text.contains("requests"), "{text}");
            let links = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!links.contains("http") && !links.contains("<script") && !text.contains("NaN"));
        }
        let path = directory.path().join("b.svg");
        compare(&args(&path, &["requests_per_s"]), &results()[..2]).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("<svg"));
    }
    #[test]
    fn figures_that_are_not_there_are_reported() {
        let told = sweep(&args(Path::new("x.svg"), &["request_per_s"]), &results(), &["d".to_owned()], "x");
        let told = told.unwrap_err().to_string();
        assert!(told.contains("did you mean requests_per_s?") && told.contains("reads.p99_ns.value"), "{told}");
    }
    #[test]
    fn values_are_numbers_in_their_unit() {
        assert_eq!(as_number("16"), Some((16.0, "")));
        assert_eq!(as_number("25us"), Some((25.0, "µs")));
        assert_eq!(as_number("800MB/s"), Some((800.0, "MB/s")));
        assert_eq!(as_number("70%"), Some((70.0, "%")));
        assert_eq!(as_number("random"), None);
        assert_eq!(unit("reads.p99_ns.value"), ("reads p99".to_owned(), "µs", 1e3));
    }
}
