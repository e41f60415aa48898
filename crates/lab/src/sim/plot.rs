//! Drawings of results: curves over the numbers of a sweep's first key, and bars over values that
//! are words, such as systems next to each other.
//!
//! A figure is any number of a result, named as in its JSON: `reads.p99_ns.value`. A file that ends
//! in `.html` becomes a page with a table below each drawing, which needs no other file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde_json::Value;

use fulgurite_sim::system::{Quantity, did_you_mean, nearest};
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::report::charts::{Axis, Bar, Bars, Curve, Curves, stack};
use fulgurite_term::report::html::Page;
use fulgurite_term::report::svg::{Canvas, tick_label};
use fulgurite_term::report::table::{Columns, number, or_dash};
use fulgurite_term::report::{distinct, write_file};

/// Where to draw, and what.
#[derive(Clone, Debug, Args)]
pub struct PlotArgs {
    /// Draw the results: SVG, or a page with tables that needs no other file.
    #[arg(long, value_name = "FILE.svg|FILE.html", value_hint = ValueHint::FilePath, value_parser = drawing)]
    pub plot: Option<PathBuf>,
    /// What to draw, as results name it, for example reads.p99_ns.value. Repeat for several
    /// [default: throughput, and the mean and 99th percentile of times].
    #[arg(long, value_name = "NAME", requires = "plot")]
    pub figure: Vec<String>,
}

/// A file for a drawing: its name says which kind. Without an ending it is SVG.
fn drawing(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    let known = path.extension().is_none_or(|extension| extension == "svg" || extension == "html");
    if known { Ok(path) } else { Err("a drawing is .svg or .html; end the name so".to_owned()) }
}

/// A result, and where it is drawn.
pub struct Point {
    /// The value of the first key, or the name of the system.
    pub x: String,
    /// The curve: the other keys and their values. Empty where there are none.
    pub series: String,
    /// The result, as in JSON.
    pub result: Value,
}

impl Point {
    fn figure(&self, name: &str) -> Option<f64> {
        name.split('.').try_fold(&self.result, |value, key| value.get(key))?.as_f64()
    }
    fn name(&self) -> String {
        if self.series.is_empty() { self.x.clone() } else { format!("{}, {}", self.x, self.series) }
    }
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
/// The most values of a key that are each a mark of the axis.
const MARKS_MAX: usize = 8;

/// The names of all numbers of a result.
fn names(value: &Value, name: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Number(_) => {
            into.insert(name.to_owned());
        }
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            names(value, &name, into);
        }),
        _ => {}
    }
}

/// The figures to draw: those asked for, which some result must have, or the usual ones.
fn chosen(points: &[Point], asked: &[String]) -> Result<Vec<String>> {
    let has = |name: &str| points.iter().any(|point| point.figure(name).is_some());
    if asked.is_empty() {
        return Ok(USUAL.iter().filter(|name| has(name)).map(|name| (*name).to_owned()).collect());
    }
    if let Some(name) = asked.iter().find(|name| !has(name)) {
        let mut known = BTreeSet::new();
        points.iter().for_each(|point| names(&point.result, "", &mut known));
        let meant = did_you_mean(&nearest(name, known.iter().map(String::as_str)));
        let known: Vec<String> = known.into_iter().collect();
        bad_input!("--figure {name}: no result has it{meant} There are {}", known.join(", "));
    }
    Ok(asked.to_vec())
}

/// A figure's name for people, its unit, and what a result's number is divided by.
fn unit(name: &str) -> (String, &'static str, f64) {
    let (short, unit, factor) = match name {
        name if name.contains("_ns") => (name.replace("_ns", "").replace(".value", ""), "µs", 1e3),
        name if name.ends_with("bytes_per_s") => {
            (name.replace("_bytes_per_s", "").replace("bytes_per_s", "data"), "MB/s", 1e6)
        }
        name if name.ends_with("_per_s") => (name.replace("_per_s", ""), "1/s", 1.0),
        name if name.ends_with("_w") => (name.trim_end_matches("_w").to_owned(), "W", 1.0),
        name if name.contains("share") => (name.to_owned(), "%", 0.01),
        name => (name.to_owned(), "", 1.0),
    };
    (short.replace(['_', '.'], " "), unit, factor)
}

/// Values of a key as numbers of one unit: `25us` is 25 µs. None where some have another one.
fn as_numbers(values: &[&str]) -> Option<(Vec<f64>, &'static str)> {
    let units = [
        (None, 1.0, ""),
        (Some(Quantity::Time), 1e6, "µs"),
        (Some(Quantity::Size), 1024.0 * 1024.0, "MiB"),
        (Some(Quantity::Rate), 1e6, "MB/s"),
        (Some(Quantity::Frequency), 1e9, "GHz"),
        (Some(Quantity::Share), 0.01, "%"),
        (Some(Quantity::Power), 1.0, "W"),
        (Some(Quantity::Energy), 1e-9, "nJ"),
    ];
    units.into_iter().find_map(|(quantity, unit, name)| {
        let read = |text: &&str| match quantity {
            Some(quantity) => Some(quantity.read(text).ok()? / unit),
            None => text.parse().ok().filter(|number: &f64| number.is_finite()),
        };
        Some((values.iter().map(read).collect::<Option<Vec<f64>>>()?, name))
    })
}

fn axis(label: &str, values: impl Iterator<Item = f64> + Clone) -> Axis {
    let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max));
    if least > 0.0 && most / least >= LOGARITHMIC { Axis::logarithmic(label) } else { Axis::linear(label) }
}

fn labelled(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// One figure of all points. `first` is the key whose values are across.
fn chart(name: &str, about: &str, first: &str, points: &[Point]) -> Canvas {
    let (short, unit, factor) = unit(name);
    let title = labelled(&short, unit);
    let xs = distinct(points.iter().map(|point| point.x.as_str()));
    let series = distinct(points.iter().map(|point| point.series.as_str()));
    let point = |x: &str, series: &str| points.iter().find(|point| point.x == x && point.series == series);
    let value = |point: &Point| Some(point.figure(name)? / factor);
    let words = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let Some((numbers, x_unit)) = as_numbers(&xs) else {
        let bar = |x: &str, series: &str| {
            let point = point(x, series)?;
            let value = value(point)?;
            Some(Bar { value, spread: None, tip: format!("{}: {} {unit}", point.name(), number(value)) })
        };
        // Values without others next to them differ by colour, as elsewhere.
        let (groups, series, bars) = match series[..] {
            [only] => (vec![short], words(&xs), vec![xs.iter().map(|x| bar(x, only)).collect()]),
            _ => {
                let of = |x: &&str| series.iter().map(|series| bar(x, series)).collect();
                (words(&xs), words(&series), xs.iter().map(of).collect())
            }
        };
        let (subtitle, unit) = (about.to_owned(), unit.to_owned());
        return Bars { title, subtitle, unit, groups, series, bars, mark: None }.draw();
    };
    let curve = |series: &&str| {
        let at = |(x, number): (&&str, &f64)| Some((*number, value(point(x, series)?)?));
        let mut points: Vec<(f64, f64)> = xs.iter().zip(&numbers).filter_map(at).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve { name: if series.is_empty() { short.clone() } else { (*series).to_owned() }, points }
    };
    let curves: Vec<Curve> = series.iter().map(curve).filter(|curve| !curve.points.is_empty()).collect();
    let y = axis(unit, curves.iter().flat_map(|curve| &curve.points).map(|point| point.1));
    let mut x = axis(&labelled(first, x_unit), numbers.iter().copied());
    if numbers.len() <= MARKS_MAX {
        x.ticks = numbers.iter().map(|number| (*number, tick_label(*number))).collect();
    }
    Curves::new(title, about, x, y, curves).draw()
}

/// Draws results where it was asked for. `first` is the key whose values are across.
///
/// # Errors
/// When a figure is in no result, there are too many curves, or the file cannot be written.
pub fn draw(args: &PlotArgs, about: &str, first: &str, points: &[Point]) -> Result<()> {
    let Some(path) = &args.plot else { return Ok(()) };
    let figures = chosen(points, &args.figure)?;
    let curves = distinct(points.iter().map(|point| &point.series)).len();
    if curves > CURVES_MAX {
        bad_input!(
            "--plot: {curves} curves in one drawing cannot be distinguished; {CURVES_MAX} can: put the key with the most values first"
        );
    }
    if figures.is_empty() {
        bad_input!("--plot: no result has a figure to draw; name one with --figure");
    }
    let charts: Vec<Canvas> = figures.iter().map(|name| chart(name, about, first, points)).collect();
    if path.extension().is_none_or(|extension| extension != "html") {
        return write_file(path, stack(&charts).as_bytes());
    }
    let mut page = Page::new(about);
    for (name, chart) in figures.iter().zip(&charts) {
        let (short, unit, factor) = unit(name);
        page.heading(&labelled(&short, unit));
        page.drawing(&chart.finish());
        let value = |point: &Point| or_dash(point.figure(name), |value| number(value / factor));
        page.table(&Columns::of(points).left("", Point::name).right("", value), |_| false);
    }
    let hashes: Vec<&str> = points.iter().filter_map(|point| point.result["hash"].as_str()).collect();
    page.paragraph(&format!("Hashes of the systems: {}.", distinct(hashes).join(", ")));
    write_file(path, page.finish().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        let of = |depth: &str, read: &str, rate: f64| Point {
            x: depth.to_owned(),
            series: format!("r {read}"),
            result: serde_json::json!({"hash": "0", "requests_per_s": rate,
                "reads": {"p99_ns": {"value": rate * 2.0, "half_width": null}}}),
        };
        vec![of("1", "25us", 10.0), of("16", "25us", 100.0), of("1", "75us", 5.0), of("16", "75us", 80.0)]
    }
    fn drawn(name: &str, figures: &[&str], points: &[Point]) -> Result<String> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join(name);
        let figure = figures.iter().map(|name| (*name).to_owned()).collect();
        draw(&PlotArgs { plot: Some(path.clone()), figure }, "x", "d", points)?;
        Ok(std::fs::read_to_string(path)?)
    }

    #[test]
    fn a_sweep_is_drawn_and_stands_alone() {
        for name in ["a.svg", "a.html"] {
            let text = drawn(name, &[], &points()).unwrap();
            assert!(text.contains("r 25us") && text.contains("requests"), "{text}");
            assert!(text.contains("<path") || text.contains("<polyline"), "{text}");
            let links = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!links.contains("http") && !links.contains("<script") && !text.contains("NaN"));
        }
    }
    #[test]
    fn words_are_bars() {
        let system = |(mut point, x): (Point, &str)| {
            (point.x, point.series) = (x.to_owned(), String::new());
            point
        };
        let systems: Vec<Point> = points().into_iter().zip(["dram-only", "os-swap"]).map(system).collect();
        let text = drawn("b.svg", &["requests_per_s"], &systems).unwrap();
        assert!(text.contains("dram-only") && text.contains("os-swap: 100 1/s"), "{text}");
    }
    #[test]
    fn figures_that_are_not_there_are_reported() {
        let told = drawn("x.svg", &["request_per_s"], &points()).unwrap_err().to_string();
        assert!(told.contains("did you mean requests_per_s?") && told.contains("reads.p99_ns.value"), "{told}");
    }
    #[test]
    fn values_are_numbers_in_their_unit() {
        assert_eq!(as_numbers(&["16", "4"]), Some((vec![16.0, 4.0], "")));
        assert_eq!(as_numbers(&["25us", "1ms"]), Some((vec![25.0, 1000.0], "µs")));
        assert_eq!(as_numbers(&["800MB/s"]), Some((vec![800.0], "MB/s")));
        assert_eq!(as_numbers(&["70%"]), Some((vec![70.0], "%")));
        assert_eq!(as_numbers(&["random"]), None);
        assert_eq!(as_numbers(&["16", "25us"]), None);
        assert_eq!(unit("reads.p99_ns.value"), ("reads p99".to_owned(), "µs", 1e3));
    }
}
