//! SVG by hand: a canvas with shapes, text and axes, and colours for light and dark ground.
//!
//! A drawing is self-contained: no script, no font file, no external resource.

use std::fmt::Write;

/// Colours of series, in order. They differ in grey, on white and near-black, and for most
/// colour-blind eyes (Okabe and Ito, 2008, a little darker).
pub const PALETTE: [&str; 8] = ["#7a7f87", "#0f8f6c", "#d1681a", "#3a7ec1", "#b9569a", "#c9a227", "#5d5ac4", "#b23b3b"];

/// A lighter shade of the second colour, for the same family. It differs in grey, too.
pub const LIGHT_GREEN: &str = "#66c2a5";
/// Paler still.
pub const PALE_GREEN: &str = "#b2dfd0";
/// For ours on a device that others are measured on.
pub const OLIVE: &str = "#8a9a3b";
/// A fourth green, bluish.
pub const TEAL: &str = "#1b8a9a";
/// All in DRAM, without added computing.
pub const SKY: &str = "#9cc3e6";
/// Ours behind a device of our own.
pub const SEA_GREEN: &str = "#2f6f4f";

/// A drawing under construction.
#[derive(Debug)]
pub struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

/// Where text is anchored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// At its start.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// Text with the characters that mean something to SVG and HTML replaced.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Canvas {
    /// An empty drawing.
    pub fn new(width: f64, height: f64) -> Canvas {
        Canvas { width, height, body: String::new() }
    }
    /// A filled rectangle with a tooltip.
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str, tip: &str) {
        let tip = escape(tip);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1.5\" fill=\"{colour}\">\
             <title>{tip}</title></rect>"
        );
    }
    /// A line of a class of the style sheet.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }
    /// A curve through points.
    pub fn curve(&mut self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        let mut path = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { " L" });
        }
        let dash = if dashed { " stroke-dasharray=\"8 6\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}/>"
        );
    }
    /// A dot with a tooltip.
    pub fn dot(&mut self, x: f64, y: f64, radius: f64, colour: &str, tip: &str) {
        let tip = escape(tip);
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"><title>{tip}</title></circle>"
        );
    }
    /// Text of a class of the style sheet.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let (anchor, text) = (anchor.name(), escape(text));
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }
    /// Text that reads upwards.
    pub fn text_up(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let (anchor, text) = (anchor.name(), escape(text));
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }
    /// Another drawing, placed inside this one.
    pub fn place(&mut self, x: f64, y: f64, other: &Canvas) {
        let _ = writeln!(self.body, "<g transform=\"translate({x:.1} {y:.1})\">\n{}</g>", other.body);
    }
    /// The size.
    pub fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }
    /// The file.
    pub fn finish(&self) -> String {
        let (width, height, body) = (self.width, self.height, &self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
        )
    }
}

const STYLE: &str = "
text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#24292f}
.ground{fill:#ffffff}
.title{font-size:17px;font-weight:600}
.sub{font-size:12px;fill:#59636e}
.label{font-size:12px}
.tick{font-size:11px;fill:#59636e}
.value,.small{font-size:10px;fill:#59636e;paint-order:stroke;stroke:#ffffff;stroke-width:2px;stroke-linejoin:round}
.small{font-size:8px}
.grid{stroke:#d6dae0;stroke-width:1}
.axis{stroke:#8c959f;stroke-width:1}
.mark{stroke:#59636e;stroke-width:1.2;stroke-dasharray:4 3}
.whisker{stroke:#24292f;stroke-width:1;opacity:.65}
@media(prefers-color-scheme:dark){
text{fill:#e6edf3}.ground{fill:#14181d}.sub,.tick,.value,.small{fill:#9aa5b1}.value,.small{stroke:#14181d}
.grid{stroke:#2b323a}.axis{stroke:#6b7580}.mark{stroke:#9aa5b1}.whisker{stroke:#e6edf3}
}";

/// A scale from values to positions.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Even steps are even distances.
    pub fn linear(low: f64, high: f64, from: f64, to: f64) -> Scale {
        Scale { low, high: if high > low { high } else { low + 1.0 }, from, to, logarithmic: false }
    }
    /// Even ratios are even distances. Values below `low` are drawn at `low`.
    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Scale {
        let low = low.max(1e-9);
        Scale { low, high: if high > low { high } else { low * 10.0 }, from, to, logarithmic: true }
    }
    /// Where a value is.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
    /// Round values along the scale, about `count` of them.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let few = decades.clone().count() > count;
            let steps: &[f64] = if few { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
            return all.filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001).collect();
        }
        let raw = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|s| s * power).find(|s| *s >= raw).unwrap_or(raw);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }
}

/// A tick's label: no more digits than needed.
pub fn tick_label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{}M", trim(value / 1e6)),
        v if v >= 1e4 => format!("{}k", trim(value / 1e3)),
        _ => trim(value),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::linear(0.0, 100.0, 0.0, 1.0).ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Scale::logarithmic(1.0, 100.0, 0.0, 1.0).ticks(8), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(
            (tick_label(0.5), tick_label(25_000.0), tick_label(100.0)),
            ("0.5".into(), "25k".into(), "100".into())
        );
    }
    #[test]
    fn text_cannot_break_the_drawing() {
        let mut canvas = Canvas::new(10.0, 10.0);
        canvas.text(0.0, 0.0, Anchor::Start, "label", "<script>&\"");
        assert!(canvas.finish().contains("&lt;script&gt;&amp;&quot;"));
    }
}
