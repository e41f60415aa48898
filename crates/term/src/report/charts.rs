//! The charts of the reports: grouped bars, and curves over linear or logarithmic axes.

use super::svg::{Anchor, Canvas, LIGHT_GREEN, OLIVE, PALE_GREEN, PALETTE, SEA_GREEN, SKY, Scale, TEAL, tick_label};

/// One bar: its height and, where there were rounds, how far they spread.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Height.
    pub value: f64,
    /// Smallest and largest round.
    pub spread: Option<(f64, f64)>,
    /// The text at the pointer.
    pub tip: String,
}

/// Bars in groups: one group a workload, one bar a configuration.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Heading.
    pub title: String,
    /// A line below it.
    pub subtitle: String,
    /// What the heights are.
    pub unit: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Names of the series.
    pub series: Vec<String>,
    /// `bars[group][series]`; none where it was not run.
    pub bars: Vec<Vec<Option<Bar>>>,
    /// A horizontal mark, with its label.
    pub mark: Option<(f64, String)>,
}

/// A series' colour, for names that have one in all charts. Grey is the denominator, green is ours,
/// red is swap. No other series gets these.
pub fn colour(name: &str, index: usize) -> &'static str {
    match name {
        "dram-only" | "plain" => PALETTE[0],
        "fulgurite" => PALETTE[1],
        // Ours over a journaled pool, and with a token for each checkpoint.
        "pool" | "sync" => LIGHT_GREEN,
        "pool-unchecked" => PALE_GREEN,
        "on-device" => SEA_GREEN,
        "pool-on-device" => TEAL,
        // Ours, too, over the device that others are measured on.
        "fixed-latency" => OLIVE,
        "resident" => PALETTE[3],
        "hits" => SKY,
        "priority-aging" => PALETTE[6],
        "fifo" => PALETTE[4],
        "flash-sync" => PALETTE[5],
        "mmap" => PALETTE[2],
        "os-swap" => PALETTE[7],
        // SSDAlloc's allocators, and programs that were rewritten.
        "object-per-page" => PALETTE[1],
        "object-per-page-compatible" => LIGHT_GREEN,
        "memory-page" => OLIVE,
        "memory-page-in-line" => TEAL,
        "blobs" => PALETTE[3],
        // How a device is reached: grey for the yardstick, green over memory, lighter in another
        // process.
        "copy" => PALETTE[0],
        "device" => PALETTE[1],
        "device-bypassed" => OLIVE,
        "device-bypassed-near" => PALETTE[3],
        "process" => LIGHT_GREEN,
        "process-bypassed" => PALETTE[2],
        "nand" => PALETTE[2],
        "file" => PALETTE[3],
        "device-computing" => PALETTE[0],
        "file-asleep" => PALETTE[6],
        "file-computing" => LIGHT_GREEN,
        "device-copies" => PALETTE[4],
        "process-copies" => PALETTE[7],
        _ => {
            let free = [3usize, 2, 5, 4, 6];
            PALETTE[free[index % free.len()]]
        }
    }
}

const LEFT: f64 = 62.0;
const RIGHT: f64 = 30.0;

/// Draws the legend in rows from `y` on; returns where it ends.
fn legend(canvas: &mut Canvas, names: &[String], y: f64, width: f64) -> f64 {
    let (mut x, mut y) = (LEFT, y);
    for (i, name) in names.iter().enumerate() {
        // About 6.6 points a character at 12 px.
        let wide = 24.0 + name.chars().count() as f64 * 6.8;
        if x + wide > width - RIGHT && x > LEFT {
            x = LEFT;
            y += 18.0;
        }
        canvas.bar(x, y - 9.0, 11.0, 11.0, colour(name, i), name);
        canvas.text(x + 16.0, y + 1.0, Anchor::Start, "label", name);
        x += wide + 8.0;
    }
    y + 12.0
}

fn headings(canvas: &mut Canvas, title: &str, subtitle: &str, series: &[String], width: f64) -> f64 {
    canvas.text(16.0, 26.0, Anchor::Start, "title", title);
    canvas.text(16.0, 45.0, Anchor::Start, "sub", subtitle);
    legend(canvas, series, 70.0, width)
}

/// Marks of the values, from the left edge to `end`.
fn value_axis(canvas: &mut Canvas, scale: &Scale, count: usize, end: f64, unit: &str, middle: f64) {
    for tick in scale.ticks(count) {
        let y = scale.at(tick);
        canvas.line((LEFT, y), (end, y), "grid");
        canvas.text(LEFT - 7.0, y + 4.0, Anchor::End, "tick", &tick_label(tick));
    }
    canvas.text_up(17.0, middle, Anchor::Middle, "sub", unit);
}

/// Width of a digit, and of a point at most, as a share of the font's size.
const DIGIT: f64 = 0.58;

/// A number above a bar, as large as fits, else upwards. `x` is the middle, `y` its foot.
fn label_bar(canvas: &mut Canvas, x: f64, y: f64, room: f64, text: &str) {
    let wide = |size: f64| text.chars().count() as f64 * size * DIGIT;
    if wide(10.0) <= room {
        canvas.text(x, y - 4.0, Anchor::Middle, "value", text);
    } else if wide(8.0) <= room {
        canvas.text(x, y - 4.0, Anchor::Middle, "small", text);
    } else {
        canvas.text_up(x + 3.0, y - 4.0, Anchor::Start, "small", text);
    }
}

/// A label in as many lines as it needs. It is broken at spaces only.
fn lines_of(label: &str, width: f64) -> Vec<&str> {
    // About 6.8 points a character at 12 px.
    let fits = |words: &str| words.chars().count() as f64 * 6.8 <= width;
    let (mut lines, mut rest) = (Vec::new(), label);
    while !fits(rest) && rest.contains(' ') {
        let mut spaces = rest.match_indices(' ').map(|(at, _)| at);
        let first = rest.find(' ').expect("there is a space");
        let at = spaces.rfind(|at| fits(&rest[..*at])).unwrap_or(first);
        lines.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    lines.push(rest);
    lines
}

impl Bars {
    /// The margin at the right, for the mark's label next to the bars.
    fn right(&self) -> f64 {
        // About 6.2 points a character at 11 px.
        self.mark.as_ref().map_or(RIGHT, |(_, label)| RIGHT.max(14.0 + label.chars().count() as f64 * 6.2))
    }

    /// Draws it.
    pub fn draw(&self) -> Canvas {
        let right = self.right();
        let room = (660.0 - LEFT - right) / self.groups.len().max(1) as f64 - 22.0;
        let bar = (room / self.series.len().max(1) as f64 - 2.0).clamp(13.0, 48.0).floor();
        let group = self.series.len() as f64 * (bar + 2.0) + 22.0;
        let width = (LEFT + right + group * self.groups.len() as f64).max(660.0);
        let group = (width - LEFT - right) / self.groups.len().max(1) as f64;
        let end = width - right;
        let bottom = 392.0;
        let lines = self.groups.iter().map(|name| lines_of(name, group).len()).max().unwrap_or(1).max(2);
        let mut canvas = Canvas::new(width, bottom + 10.0 + 14.0 * lines as f64);
        let top = headings(&mut canvas, &self.title, &self.subtitle, &self.series, width) + 18.0;
        let reach = |b: &Bar| b.spread.map_or(b.value, |(_, max)| max.max(b.value));
        let highest = self.bars.iter().flatten().flatten().map(reach).fold(0.0, f64::max);
        let highest = self.mark.as_ref().map_or(highest, |(mark, _)| highest.max(*mark));
        // Small numbers differ behind the point.
        let decimals = if highest < 10.0 { 2 } else { 0 };
        // Room above the highest for its number.
        let scale = Scale::linear(0.0, highest * 1.08, bottom, top);
        value_axis(&mut canvas, &scale, 6, end, &self.unit, f64::midpoint(top, bottom));
        let mut labels = Vec::new();
        for (g, (name, bars)) in self.groups.iter().zip(&self.bars).enumerate() {
            let left = LEFT + group * g as f64;
            let start = left + (group - self.series.len() as f64 * (bar + 2.0)) / 2.0;
            for (line, words) in lines_of(name, group).into_iter().enumerate() {
                canvas.text(left + group / 2.0, bottom + 20.0 + 14.0 * line as f64, Anchor::Middle, "label", words);
            }
            for (s, one) in bars.iter().enumerate() {
                let Some(one) = one else { continue };
                let x = start + s as f64 * (bar + 2.0);
                let y = scale.at(one.value);
                canvas.bar(x, y, bar, (bottom - y).max(0.5), colour(&self.series[s], s), &one.tip);
                if let Some((min, max)) = one.spread {
                    canvas.line((x + bar / 2.0, scale.at(min)), (x + bar / 2.0, scale.at(max)), "whisker");
                }
                let above = one.spread.map_or(y, |(_, max)| scale.at(max).min(y));
                // What is small compared with the others is not nothing.
                let decimals = if one.value > 0.0 && one.value < 1.0 { 2 } else { decimals };
                labels.push((x + bar / 2.0, above, format!("{:.decimals$}", one.value)));
            }
        }
        canvas.line((LEFT, bottom), (end, bottom), "axis");
        if let Some((mark, label)) = &self.mark {
            let y = scale.at(*mark);
            canvas.line((LEFT, y), (end, y), "mark");
            canvas.text(end + 6.0, y + 4.0, Anchor::Start, "tick", label);
        }
        // Over the bars, their lines and the mark.
        for (x, y, text) in &labels {
            label_bar(&mut canvas, *x, *y, bar + 2.0, text);
        }
        canvas
    }
}

/// An axis of [`Curves`].
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it measures.
    pub label: String,
    /// Its range; none: what the points need.
    pub range: Option<(f64, f64)>,
    /// Even ratios at even distances.
    pub logarithmic: bool,
    /// Labelled values; empty: round ones.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Linear, with this label.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), range: None, logarithmic: false, ticks: Vec::new() }
    }
    /// Logarithmic, with this label.
    pub fn logarithmic(label: &str) -> Axis {
        Axis { logarithmic: true, ..Axis::linear(label) }
    }
}

/// One curve.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// Curves over common axes.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Heading.
    pub title: String,
    /// A line below it.
    pub subtitle: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Dots at the points.
    pub dots: bool,
}

impl Curves {
    /// These curves, with dots at their points.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>, x: Axis, y: Axis, curves: Vec<Curve>) -> Curves {
        Curves { title: title.into(), subtitle: subtitle.into(), x, y, curves, dots: true }
    }
    fn scale(&self, axis: &Axis, of: impl Fn(&(f64, f64)) -> f64, from: f64, to: f64) -> Scale {
        let values = || self.curves.iter().flat_map(|c| &c.points).map(&of);
        let (low, high) = axis.range.unwrap_or_else(|| {
            let least = values().filter(|v| !axis.logarithmic || *v > 0.0).fold(f64::INFINITY, f64::min);
            let most = values().fold(f64::NEG_INFINITY, f64::max);
            if !least.is_finite() || !most.is_finite() {
                (1.0, 10.0)
            } else if axis.logarithmic && most / least < 10.0 {
                // Less than a decade: whole ones, so that there are marks to read it by.
                (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()))
            } else if axis.logarithmic {
                (least * 0.9, most * 1.1)
            } else {
                (least.min(0.0), most * 1.05)
            }
        });
        if axis.logarithmic { Scale::logarithmic(low, high, from, to) } else { Scale::linear(low, high, from, to) }
    }

    /// Draws it.
    pub fn draw(&self) -> Canvas {
        let (width, height) = (660.0, 430.0);
        let mut canvas = Canvas::new(width, height);
        let names: Vec<String> = self.curves.iter().map(|c| c.name.clone()).collect();
        let top = headings(&mut canvas, &self.title, &self.subtitle, &names, width) + 10.0;
        let bottom = height - 54.0;
        let x = self.scale(&self.x, |p| p.0, LEFT, width - RIGHT);
        let y = self.scale(&self.y, |p| p.1, bottom, top);
        value_axis(&mut canvas, &y, 6, width - RIGHT, &self.y.label, f64::midpoint(top, bottom));
        let ticks = if self.x.ticks.is_empty() {
            x.ticks(8).into_iter().map(|t| (t, tick_label(t))).collect()
        } else {
            self.x.ticks.clone()
        };
        for (value, label) in ticks {
            let at = x.at(value);
            canvas.line((at, bottom), (at, bottom + 4.0), "axis");
            canvas.text(at, bottom + 18.0, Anchor::Middle, "tick", &label);
        }
        canvas.line((LEFT, bottom), (width - RIGHT, bottom), "axis");
        canvas.text(f64::midpoint(LEFT, width - RIGHT), bottom + 40.0, Anchor::Middle, "sub", &self.x.label);
        let places = |curve: &Curve| curve.points.iter().map(|(a, b)| (x.at(*a), y.at(*b))).collect::<Vec<_>>();
        let all: Vec<Vec<(f64, f64)>> = self.curves.iter().map(places).collect();
        for (i, (curve, points)) in self.curves.iter().zip(&all).enumerate() {
            let shade = colour(&curve.name, i);
            // Dashed, with smaller dots, where it would hide another one.
            let hides = all[..i].iter().any(|earlier| covers(points, earlier));
            canvas.curve(points, shade, hides || curve.name == "dram-only");
            if self.dots {
                for ((px, py), (a, b)) in points.iter().zip(&curve.points) {
                    let tip = format!("{}: {} at {}", curve.name, trim(*b), trim(*a));
                    canvas.dot(*px, *py, if hides { 2.0 } else { 3.0 }, shade, &tip);
                }
            }
        }
        canvas
    }
}

/// Whether at least half of a curve's points are within a line's width of another curve.
fn covers(over: &[(f64, f64)], under: &[(f64, f64)]) -> bool {
    let near = |((x, y), (at, other)): (&(f64, f64), &(f64, f64))| (x - at).abs() < 0.5 && (y - other).abs() < 2.5;
    let count = over.iter().zip(under).filter(|pair| near(*pair)).count();
    count > 0 && count * 2 >= over.len()
}

fn trim(value: f64) -> String {
    super::table::number(value)
}

/// An x axis of percentiles whose tail has room: 0, 90, 99, 99.9 at even distances.
pub fn percentile_axis() -> Axis {
    let ticks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99];
    Axis {
        label: "percentile".to_owned(),
        range: Some((0.0, 4.0)),
        logarithmic: false,
        ticks: ticks.iter().map(|p| (nines(*p), format!("{p}%"))).collect(),
    }
}

/// Where a percentile is on [`percentile_axis`]: the number of nines.
pub fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).max(1e-9).log10()
}

/// A drawing this narrow may have another one next to it.
const NARROW: f64 = 700.0;

/// Drawings below each other, narrow ones in pairs where there are more than two, in one file.
pub fn stack(charts: &[Canvas]) -> String {
    let narrow = |c: &Canvas| c.size().0 <= NARROW;
    let pairs = charts.iter().filter(|c| narrow(c)).count() > 2;
    let (mut places, mut x, mut y, mut low) = (Vec::new(), 0.0, 0.0, 0.0f64);
    for chart in charts {
        let (wide, high) = chart.size();
        let beside = pairs && narrow(chart) && x > 0.0;
        if !beside {
            (x, y) = (0.0, low);
        }
        places.push((x, y));
        // Only after a narrow one there is room.
        x = if pairs && narrow(chart) && !beside { wide + 24.0 } else { 0.0 };
        low = low.max(y + high);
    }
    let far = |((x, _), chart): (&(f64, f64), &Canvas)| x + chart.size().0;
    let width = places.iter().zip(charts).map(far).fold(0.0, f64::max);
    let mut all = Canvas::new(width, low);
    for ((x, y), chart) in places.iter().zip(charts) {
        all.place(*x, *y, chart);
    }
    all.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_nothing_are_drawn() {
        assert!(Bars::default().draw().finish().contains("<svg"));
        let empty = Curves {
            title: String::new(),
            subtitle: String::new(),
            x: percentile_axis(),
            y: Axis::logarithmic("µs"),
            curves: vec![Curve::default()],
            dots: true,
        };
        assert!(!empty.draw().finish().contains("NaN"));
    }
    #[test]
    fn green_is_for_ours_and_grey_for_the_denominator() {
        let reserved = [PALETTE[0], PALETTE[1], LIGHT_GREEN, PALE_GREEN, OLIVE, TEAL, SEA_GREEN, PALETTE[7]];
        for (index, name) in ["clock", "file", "s3-fifo", "dump", "lru", "data", "pages", "extents"].iter().enumerate()
        {
            for index in [0, index, index + 7] {
                assert!(!reserved.contains(&colour(name, index)), "{name} at {index}");
            }
        }
        assert_eq!((colour("fulgurite", 5), colour("plain", 5)), (PALETTE[1], PALETTE[0]));
    }
    #[test]
    fn every_bar_has_its_number() {
        let bar = |value: f64| Some(Bar { value, ..Bar::default() });
        let series: Vec<String> = (0..9).map(|i| format!("s{i}")).collect();
        let values = [95.0, 100.0, 3.0, 0.4, 55.0, 61.0, 72.0, 83.0, 1234.0];
        let bars = Bars {
            groups: (0..7).map(|g| format!("g{g}")).collect(),
            bars: vec![values.iter().map(|v| bar(*v)).collect(); 7],
            series,
            mark: Some((100.0, "dram-only".into())),
            ..Bars::default()
        };
        let drawn = bars.draw().finish();
        for text in ["95", "100", "3", "0.40", "55", "61", "72", "83", "1234"] {
            let label = |class: &str| {
                let own =
                    |line: &&str| line.contains(&format!("class=\"{class}\"")) && line.contains(&format!(">{text}<"));
                drawn.lines().filter(own).count()
            };
            assert_eq!(label("value") + label("small"), 7, "{text}");
        }
        // The mark's label stands to the right of the last bar.
        let place = |line: &str| line.split_once(" x=\"").unwrap().1.split_once('"').unwrap().0.parse::<f64>().unwrap();
        let last = drawn.lines().filter(|l| l.starts_with("<rect x=")).map(|l| place(l) + 13.0).fold(0.0, f64::max);
        let label = drawn.lines().find(|l| l.contains(">dram-only<")).map(place).unwrap();
        assert!(label > last, "{label} {last}");
    }
    #[test]
    fn long_names_of_groups_take_several_lines() {
        assert_eq!(lines_of("zipf 80%", 60.0), ["zipf 80%"]);
        assert_eq!(lines_of("sequential 80%", 67.0), ["sequential", "80%"]);
        assert_eq!(lines_of("slab-cache, Zipf 0.99, 50/50", 100.0), ["slab-cache,", "Zipf 0.99,", "50/50"]);
        assert_eq!(lines_of("slab-cache, Zipf 0.99, 50/50", 20.0), ["slab-cache,", "Zipf", "0.99,", "50/50"]);
        assert_eq!(lines_of("hash-table", 10.0), ["hash-table"], "there is nowhere to break it");
    }
    #[test]
    fn no_curve_hides_another() {
        let curve = |name: &str, by: f64| Curve {
            name: name.into(),
            points: (1..20).map(|i| (f64::from(i), 50.0 - f64::from(i) + by)).collect(),
        };
        let dashed = |by: f64| {
            let curves = vec![curve("clock", 0.0), curve("lru", by)];
            let (x, y) = (Axis::linear(""), Axis::linear(""));
            let all = Curves { title: String::new(), subtitle: String::new(), x, y, curves, dots: true };
            all.draw().finish().matches("stroke-dasharray=").count()
        };
        // Nearly the same is as bad as the same.
        assert_eq!((dashed(0.0), dashed(0.1), dashed(20.0)), (1, 1, 0));
    }
    #[test]
    fn every_bar_and_point_is_there() {
        let bar = |value| Some(Bar { value, spread: Some((value - 1.0, value + 1.0)), tip: "tip".into() });
        let bars = Bars {
            groups: vec!["a".into(), "b".into()],
            series: vec!["dram-only".into(), "fulgurite".into()],
            bars: vec![vec![bar(100.0), bar(95.0)], vec![bar(100.0), None]],
            ..Bars::default()
        };
        let drawn = bars.draw().finish();
        // Three bars, two squares of the legend, the ground.
        assert_eq!(drawn.matches("<rect").count(), 6);
        assert!(!drawn.contains("NaN"));
    }
}
