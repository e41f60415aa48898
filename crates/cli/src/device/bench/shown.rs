//! What `device bench` shows: a table for each figure, what was aimed at, and drawings.

use fulgurite_format::format_bytes;
use serde::Serialize;

use super::Row;
use crate::report::charts::{Axis, Curve, Curves};
use crate::report::svg::Canvas;
use crate::report::table;

/// Something that was aimed at.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    what: String,
    found: f64,
    unit: &'static str,
    /// At most, or at least.
    most: Option<f64>,
    least: Option<f64>,
    met: bool,
}

impl Goal {
    /// In words.
    pub fn line(&self) -> String {
        let bound = match (self.most, self.least) {
            (Some(most), _) => format!("at most {}", table::number(most)),
            (_, Some(least)) => format!("at least {}", table::number(least)),
            _ => "no bound".to_owned(),
        };
        let met = if self.met { "met" } else { "missed" };
        format!("{}: {} {} ({bound}: {met})", self.what, table::number(self.found), self.unit)
    }
}

fn find<'r>(rows: &'r [Row], figure: &str, way: &str, chunk: u64, depth: usize) -> Option<&'r Row> {
    rows.iter().find(|r| r.figure == figure && r.way == way && r.chunk_bytes == chunk && r.depth == depth)
}

/// What the device is to reach, where it was measured.
pub fn goals(rows: &[Row]) -> Vec<Goal> {
    let at_most = |what: &str, found: f64, most: f64, unit| Goal {
        what: what.to_owned(),
        found,
        unit,
        most: Some(most),
        least: None,
        met: found <= most,
    };
    let mut goals = Vec::new();
    if let Some(over) = find(rows, "interface", "device-bypassed", 4096, 1).and_then(|row| row.overhead_us) {
        goals.push(at_most("a command of 4 KiB beyond its copy (the paper: about 22 µs)", over.median, 0.6, "µs"));
    }
    if let Some(share) = find(rows, "interface", "device-bypassed", 512 << 10, 1).and_then(|row| row.overhead_share) {
        goals.push(at_most("protocol overhead at 512 KiB (the paper: 3.8%)", share.median * 100.0, 2.0, "%"));
    }
    if let Some(row) = find(rows, "depth", "device-bypassed", 4096, 32) {
        let found = row.chunks_per_s.median;
        let what = "4 KiB reads at depth 32, nothing behind the firmware".to_owned();
        goals.push(Goal { what, found, unit: "a second", most: None, least: Some(1e6), met: found >= 1e6 });
    }
    for depth in [16, 32] {
        let Some(row) = find(rows, "depth", "device", 4096, depth) else { continue };
        let beside = find(rows, "depth", "file", 4096, depth)
            .map_or_else(String::new, |file| format!(" (io_uring: {} ns)", table::number(file.host_cpu_ns.median)));
        let what = format!("the host's core for a read without copies at depth {depth}{beside}");
        goals.push(at_most(&what, row.host_ns.median, 150.0, "ns"));
    }
    goals
}

/// One table a figure.
pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (figure, title) in [
        ("interface", "Protocol: reads one at a time (figures 6 and 7)"),
        ("depth", "4 KiB reads into frames, without copies"),
        ("buffer", "Four reads at a time, by data buffer and chunk (figure 8)"),
        ("chunk", "By chunk, one and four at a time (figure 9)"),
    ] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.figure == figure).collect();
        if of.is_empty() {
            continue;
        }
        let heading = [
            "way",
            "op",
            "chunk",
            "depth",
            "buffer",
            "µs",
            "(lowest-highest)",
            "MB/s",
            "a second",
            "added µs",
            "protocol",
            "host ns",
            "host CPU ns",
            "paper",
        ];
        let body = of.iter().map(|row| {
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let paper = row.paper.map(|paper| match (paper.overhead_share, paper.bytes_per_s) {
                (Some(share), _) => table::percent(share),
                (_, Some(bytes)) => format!("{} MB/s", table::number(bytes / 1e6)),
                _ => "-".to_owned(),
            });
            vec![
                row.way.to_owned(),
                row.op.to_owned(),
                format_bytes(row.chunk_bytes),
                row.depth.to_string(),
                or_none(row.buffer_bytes.map(format_bytes)),
                table::number(row.us.median),
                format!("({}-{})", table::number(row.us.min), table::number(row.us.max)),
                table::number(row.bytes_per_s.median / 1e6),
                table::number(row.chunks_per_s.median),
                or_none(row.overhead_us.map(|over| table::number(over.median))),
                or_none(row.overhead_share.map(|share| table::percent(share.median))),
                // One at a time the driver waits inside its call, so that nothing is told apart.
                if row.host_ns.median > 0.0 { table::number(row.host_ns.median) } else { "-".to_owned() },
                table::number(row.host_cpu_ns.median),
                or_none(paper),
            ]
        });
        text.push_str(&format!("{title}\n{}\n\n", table::table(&heading, 2, body)));
    }
    text.truncate(text.trim_end().len());
    text
}

/// An axis of sizes.
fn sizes(label: &str, rows: &[&Row], of: impl Fn(&Row) -> Option<u64>) -> Axis {
    let mut all: Vec<u64> = rows.iter().filter_map(|row| of(row)).collect();
    all.sort_unstable();
    all.dedup();
    let ticks = all.iter().map(|bytes| (*bytes as f64, format_bytes(*bytes).replace(".0 ", " "))).collect();
    Axis { ticks, ..Axis::logarithmic(label) }
}

/// A curve for each name, in the order in which they come.
fn curves(points: impl Iterator<Item = (String, f64, f64)>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (name, x, y) in points {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((x, y)),
            None => curves.push(Curve { name, points: vec![(x, y)] }),
        }
    }
    curves
}

/// The drawings: protocol overhead, its share, depth, buffer, chunks.
pub fn drawings(rows: &[Row]) -> Vec<Canvas> {
    let of = |figure: &str| rows.iter().filter(|row| row.figure == figure).collect::<Vec<_>>();
    let chunk = |row: &Row| Some(row.chunk_bytes);
    let mut drawn = Vec::new();
    let interface = of("interface");
    if !interface.is_empty() {
        let shares = interface.iter().filter_map(|row| Some((row, row.overhead_share?)));
        let ours = shares.map(|(row, share)| (row.way.to_owned(), row.chunk_bytes as f64, share.median * 100.0));
        let papers = interface.iter().filter_map(|row| {
            Some(("the paper's prototype".to_owned(), row.chunk_bytes as f64, row.paper?.overhead_share? * 100.0))
        });
        drawn.push(Curves {
            title: "Protocol overhead, one command at a time (figure 6)".to_owned(),
            subtitle: "one less what the copies alone take of it; of the paper, the two points that its text names"
                .to_owned(),
            x: sizes("chunk", &interface, chunk),
            y: Axis::linear("% of the interface's bandwidth"),
            curves: curves(ours.chain(papers)),
            dots: true,
        });
        drawn.push(Curves {
            title: "Time of a read, one at a time".to_owned(),
            subtitle: "from the call to the data in the caller's memory".to_owned(),
            x: sizes("chunk", &interface, chunk),
            y: Axis::logarithmic("µs"),
            curves: curves(interface.iter().map(|row| (row.way.to_owned(), row.chunk_bytes as f64, row.us.median))),
            dots: true,
        });
    }
    let depth = of("depth");
    if !depth.is_empty() {
        let mut all: Vec<usize> = depth.iter().map(|row| row.depth).collect();
        all.dedup();
        let ticks = all.iter().map(|depth| (*depth as f64, depth.to_string())).collect();
        drawn.push(Curves {
            title: "4 KiB reads a second, without copies".to_owned(),
            subtitle: "by commands in flight".to_owned(),
            x: Axis { ticks, ..Axis::logarithmic("in flight") },
            y: Axis::logarithmic("reads a second"),
            curves: curves(depth.iter().map(|row| (row.way.to_owned(), row.depth as f64, row.chunks_per_s.median))),
            dots: true,
        });
    }
    let buffer = of("buffer");
    if !buffer.is_empty() {
        let points = buffer.iter().filter_map(|row| {
            let name = format!("chunks of {}", format_bytes(row.chunk_bytes).replace(".0 ", " "));
            Some((name, row.buffer_bytes? as f64, row.bytes_per_s.median / 1e6))
        });
        drawn.push(Curves {
            title: "Four reads at a time, by data buffer (figure 8)".to_owned(),
            subtitle: "the paper: 436 MB/s at most, with 256 KiB chunks from 512 KiB of buffer on".to_owned(),
            x: sizes("data buffer", &buffer, |row| row.buffer_bytes),
            y: Axis::linear("MB/s"),
            curves: curves(points),
            dots: true,
        });
    }
    for op in ["read", "write"] {
        let of: Vec<&Row> = of("chunk").into_iter().filter(|row| row.op == op).collect();
        if of.is_empty() {
            continue;
        }
        let points = of.iter().map(|row| {
            (format!("{}, {} at a time", row.way, row.depth), row.chunk_bytes as f64, row.bytes_per_s.median / 1e6)
        });
        let paper = if op == "read" { 432.2 } else { 95.8 };
        drawn.push(Curves {
            title: format!("Throughput of {op}s by chunk (figure 9)"),
            subtitle: format!("the paper: {paper} MB/s with 512 KiB chunks, four at a time"),
            x: sizes("chunk", &of, chunk),
            y: Axis::logarithmic("MB/s"),
            curves: curves(points),
            dots: true,
        });
    }
    drawn.iter().map(Curves::draw).collect()
}
