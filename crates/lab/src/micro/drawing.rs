//! The drawing of `micro`: horizontal bars in sections, for four orders of magnitude.

use super::Figure;
use fulgurite_term::report::svg::{Anchor, Canvas, PALETTE, Scale};
use fulgurite_term::report::table;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 170.0;
const ROW: f64 = 27.0;

const SECTIONS: [(&str, &[&str]); 4] = [
    (
        "A hit: loads of resident, cached data",
        &[
            "raw_load_ns",
            "guarded_load_ns",
            "hit_overhead_ns",
            "chained_raw_ns",
            "chained_guarded_ns",
            "chained_overhead_ns",
        ],
    ),
    ("The pieces", &["switch_ns", "job_ns", "submit_poll_ns", "barrier_ns"]),
    ("A miss: CPU of the worker", &["miss_cpu_ns", "miss_cpu_write_ns"]),
    ("A miss: time until its fiber can run again", &["miss_p50_ns", "miss_p99_ns"]),
];

pub fn draw(figures: &[Figure], machine: &str) -> String {
    let of = |names: &[&str]| -> Vec<&Figure> {
        names.iter().filter_map(|name| figures.iter().find(|f| f.name == *name)).collect()
    };
    let all = SECTIONS.iter().map(|(title, names)| (*title, of(names)));
    let sections: Vec<(&str, Vec<&Figure>)> = all.filter(|(_, figures)| !figures.is_empty()).collect();
    let height: f64 = sections.iter().map(|(_, figures)| 46.0 + ROW * figures.len() as f64).sum::<f64>() + 76.0;
    let mut canvas = Canvas::new(WIDTH, height);
    canvas.text(16.0, 26.0, Anchor::Start, "title", "What a switch, a hit and a miss cost (ns)");
    canvas.text(16.0, 45.0, Anchor::Start, "sub", machine);
    let mut y = 76.0;
    for (title, figures) in &sections {
        canvas.text(16.0, y, Anchor::Start, "label", title);
        y += 12.0;
        let highest = figures.iter().map(|f| f.spread.max.max(f.target.unwrap_or(0.0))).fold(0.0, f64::max);
        let scale = Scale::linear(0.0, highest.max(1e-9), LEFT, WIDTH - RIGHT);
        let top = y;
        for figure in figures {
            row(&mut canvas, figure, &scale, y);
            y += ROW;
        }
        canvas.line((LEFT, top), (LEFT, y), "axis");
        y += 34.0;
    }
    canvas.finish()
}

fn row(canvas: &mut Canvas, figure: &Figure, scale: &Scale, y: f64) {
    let (spread, middle) = (figure.spread, y + ROW / 2.0);
    canvas.text(LEFT - 8.0, middle + 4.0, Anchor::End, "label", figure.name);
    let reach = scale.at(spread.median);
    // Differences, which have targets, stand out from what they are differences of.
    let shade = if figure.target.is_some() { PALETTE[1] } else { PALETTE[3] };
    let tip = format!(
        "{}: {} ns ({} to {})",
        figure.what,
        table::number(spread.median),
        table::number(spread.min),
        table::number(spread.max)
    );
    canvas.bar(LEFT, y + 4.0, (reach - LEFT).max(0.5), ROW - 8.0, shade, &tip);
    canvas.line((scale.at(spread.min), middle), (scale.at(spread.max), middle), "whisker");
    if let Some(target) = figure.target {
        let at = scale.at(target);
        canvas.line((at, y + 1.0), (at, y + ROW - 1.0), "mark");
    }
    let target = figure.target.map_or(String::new(), |t| format!("  (target {})", table::number(t)));
    canvas.text(
        scale.at(spread.max.max(figure.target.unwrap_or(0.0))) + 8.0,
        middle + 4.0,
        Anchor::Start,
        "tick",
        &format!("{}{target}", table::number(spread.median)),
    );
}
