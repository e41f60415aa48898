//! The output of `device`: a table for each figure, goals, drawings.

use fulgurite_format::format_bytes;
use serde::Serialize;

use super::cells::{Paper, Row};
use super::shapes::size;
use fulgurite_harness::Spread;
use fulgurite_term::report::charts::{Axis, Curve, Curves};
use fulgurite_term::report::svg::Canvas;
use fulgurite_term::report::table::{self, Columns, or_dash};

#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    what: String,
    spread: Spread,
    unit: &'static str,
    /// At most, or at least.
    most: Option<f64>,
    least: Option<f64>,
}

impl Goal {
    fn at_most(what: String, spread: Spread, most: f64, unit: &'static str) -> Goal {
        Goal { what, spread, unit, most: Some(most), least: None }
    }
    fn at_least(what: String, spread: Spread, least: f64, unit: &'static str) -> Goal {
        Goal { what, spread, unit, most: None, least: Some(least) }
    }
    pub fn line(&self) -> String {
        let Spread { median, min, max } = self.spread;
        let (bound, is_met) = match (self.most, self.least) {
            (Some(most), _) => (format!("at most {}", table::number(most)), median <= most),
            (_, least) => (format!("at least {}", or_dash(least, table::number)), least.is_none_or(|l| median >= l)),
        };
        let met = if is_met { "met" } else { "missed" };
        let by_round = format!("{} to {} by round", table::number(min), table::number(max));
        format!("{}: {} {} ({by_round}; {bound}: {met})", self.what, table::number(median), self.unit)
    }
}

fn find<'r>(rows: &'r [Row], figure: &str, way: &str, chunk: u64, depth: usize) -> Option<&'r Row> {
    rows.iter().find(|r| r.figure == figure && r.way == way && r.chunk_bytes == chunk && r.depth == depth)
}

/// 4 KiB reads a second that a device is to reach at depth 32.
const READS_LEAST: f64 = 1e6;

/// What the device is to reach, where it was measured.
pub fn goals(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (way, place) in [("device-bypassed", "in this process"), ("process-bypassed", "in another process")] {
        if let Some(over) = find(rows, "interface", way, 4096, 1).and_then(|row| row.overhead_us) {
            let what = format!("a command of 4 KiB beyond its copy, {place} (the paper: about 22 µs)");
            goals.push(Goal::at_most(what, over, 0.6, "µs"));
        }
        for (way, into) in [
            (way.to_owned(), "into 64 MiB, one place after the other"),
            (format!("{way}-near"), "into one place, which stays in the core's caches"),
        ] {
            if let Some(share) = find(rows, "interface", &way, 512 << 10, 1).and_then(|row| row.overhead_share) {
                let what = format!("protocol overhead at 512 KiB, {place}, {into} (the paper: 3.8%)");
                goals.push(Goal::at_most(what, share.percent(), 2.0, "%"));
            }
        }
        if let Some(row) = find(rows, "depth", way, 4096, 32) {
            let what = format!("4 KiB reads at depth 32, nothing behind the firmware, {place}");
            goals.push(Goal::at_least(what, row.chunks_per_s, READS_LEAST, "a second"));
        }
    }
    for depth in [16, 32] {
        let Some(row) = find(rows, "depth", "device-computing", 4096, depth) else { continue };
        let in_words = |row: &Row| {
            let productive = or_dash(row.host_productive_ns, |ns| table::number(ns.median));
            format!("{productive} productive of {} in all", table::number(row.host_cpu_ns.median))
        };
        let of = |way| find(rows, "depth", way, 4096, depth);
        let in_all = |way| of(way).map_or("-".to_owned(), |row: &Row| table::number(row.host_cpu_ns.median));
        let polled = |way| of(way).map_or("-".to_owned(), in_words);
        let what = format!(
            "CPU of the host for a 4 KiB read without copies at depth {depth}, next to 10 µs of computing between polls (io_uring so: {} ns, asleep: \
             {}; without computing {}, io_uring {})",
            in_all("file-computing"),
            in_all("file-asleep"),
            polled("device"),
            polled("file"),
        );
        goals.push(Goal::at_most(what, row.host_cpu_ns, 150.0, "ns"));
    }
    goals
}

pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (figure, title) in [
        ("interface", "Protocol: reads one at a time (figures 6 and 7)"),
        ("depth", "4 KiB reads into frames, by commands in flight"),
        ("buffer", "Four reads at a time, by data buffer and chunk (figure 8)"),
        ("chunk", "By chunk, one and four at a time (figure 9)"),
    ] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.figure == figure).collect();
        if of.is_empty() {
            continue;
        }
        let median = |spread: Option<Spread>| or_dash(spread, |spread| table::number(spread.median));
        let paper = |paper: Paper| match (paper.overhead_share, paper.bytes_per_s) {
            (Some(share), _) => table::percent(share),
            (_, Some(bytes)) => format!("{} MB/s", table::number(bytes / 1e6)),
            _ => "-".to_owned(),
        };
        let table = Columns::of(of)
            .left("variant", |row| row.way)
            .left("op", |row| row.op)
            .right("chunk", |row| format_bytes(row.chunk_bytes))
            .right("depth", |row| row.depth)
            .right("buffer", |row| or_dash(row.buffer_bytes, format_bytes))
            .right("µs", |row| table::number(row.us.median))
            .right("(lowest-highest)", |row| row.us.range(table::number))
            .right("MB/s", |row| table::number(row.bytes_per_s.median / 1e6))
            .right("a second", |row| table::number(row.chunks_per_s.median))
            .right("added µs", |row| median(row.overhead_us))
            .right("protocol", |row| or_dash(row.overhead_share, |share| table::percent(share.median)))
            .right("host CPU ns", |row| table::number(row.host_cpu_ns.median))
            .right("productive", |row| median(row.host_productive_ns))
            .right("other CPU ns", |row| table::number(row.other_cpu_ns.median))
            .right("paper", |row| or_dash(row.paper, paper))
            .table();
        text.push_str(&format!("{title}\n{table}\n\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

fn sizes(label: &str, rows: &[&Row], of: impl Fn(&Row) -> Option<u64>) -> Axis {
    let mut all: Vec<u64> = rows.iter().filter_map(|row| of(row)).collect();
    all.sort_unstable();
    all.dedup();
    let ticks = all.iter().map(|bytes| (*bytes as f64, size(*bytes))).collect();
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

/// The drawings: protocol overhead, times, depth, what the host pays, buffers, chunks.
pub fn drawings(rows: &[Row]) -> Vec<Canvas> {
    let of = |figure: &str| rows.iter().filter(|row| row.figure == figure).collect::<Vec<_>>();
    let chunk = |row: &Row| Some(row.chunk_bytes);
    let by_chunk = |row: &Row, y: f64| (row.way.to_owned(), row.chunk_bytes as f64, y);
    let mut drawn = Vec::new();
    let interface = of("interface");
    if !interface.is_empty() {
        // Of what has nothing behind it: else the medium would be in it.
        let bypassed = interface.iter().filter(|row| row.way.contains("-bypassed"));
        let ours = bypassed.filter_map(|row| Some(by_chunk(row, row.overhead_share?.median * 100.0)));
        let papers = interface.iter().filter_map(|row| {
            let percent = row.paper?.overhead_share? * 100.0;
            // A curve for each point, because the paper's text has no figures between them.
            Some((format!("the paper: {percent:.1}%"), row.chunk_bytes as f64, percent))
        });
        drawn.push(Curves::new(
            "Protocol overhead, one command at a time (figure 6)",
            "one less what the copies alone take of it; the paper's text names two points",
            sizes("chunk", &interface, chunk),
            Axis::linear("% of the interface's bandwidth"),
            curves(ours.chain(papers)),
        ));
        let far = interface.iter().filter(|row| !row.way.ends_with("-near"));
        drawn.push(Curves::new(
            "Time of a read, one at a time",
            "from the call to the data in the caller's memory",
            sizes("chunk", &interface, chunk),
            Axis::logarithmic("µs"),
            curves(far.map(|row| by_chunk(row, row.us.median))),
        ));
    }
    let depth = of("depth");
    if !depth.is_empty() {
        let mut all: Vec<usize> = depth.iter().map(|row| row.depth).collect();
        all.dedup();
        let in_flight = || Axis {
            ticks: all.iter().map(|depth| (*depth as f64, depth.to_string())).collect(),
            ..Axis::logarithmic("in flight")
        };
        let by_depth = |row: &Row, y: f64| (row.way.to_owned(), row.depth as f64, y);
        // A host that computes meanwhile asks for as many reads as that leaves time for.
        let asks = depth.iter().filter(|row| !row.way.ends_with("-computing"));
        drawn.push(Curves::new(
            "4 KiB reads a second, into frames",
            "by commands in flight; one core of the host, one of the device",
            in_flight(),
            Axis::logarithmic("reads a second"),
            curves(asks.map(|row| by_depth(row, row.chunks_per_s.median))),
        ));
        let productive = |row: &&Row| by_depth(row, row.host_productive_ns.unwrap_or(row.host_cpu_ns).median);
        drawn.push(Curves::new(
            "CPU of the host's thread for a 4 KiB read",
            "user and system; polls that found nothing left out",
            in_flight(),
            Axis::logarithmic("ns"),
            curves(depth.iter().map(productive)),
        ));
    }
    for (way, over, copies) in [
        ("device", "plain memory", "copies by the host's core"),
        ("nand", "NAND", "copies by the host's core"),
        ("nand-dma", "NAND, slow copies", "copies at 450 MB/s, as the paper's DMA; the paper: 436 MB/s at most"),
    ] {
        let buffer: Vec<&Row> = of("buffer").into_iter().filter(|row| row.way == way).collect();
        if buffer.is_empty() {
            continue;
        }
        let points = buffer.iter().filter_map(|row| {
            let name = format!("chunks of {}", size(row.chunk_bytes));
            Some((name, row.buffer_bytes? as f64, row.bytes_per_s.median / 1e6))
        });
        drawn.push(Curves::new(
            format!("Four reads at a time over {over} (figure 8)"),
            format!("by data buffer; {copies}"),
            sizes("data buffer", &buffer, |row| row.buffer_bytes),
            Axis::linear("MB/s"),
            curves(points),
        ));
    }
    for (op, depth, at_a_time) in [("read", 1, "one"), ("read", 4, "four"), ("write", 1, "one"), ("write", 4, "four")] {
        let of: Vec<&Row> = of("chunk").into_iter().filter(|row| row.op == op && row.depth == depth).collect();
        if of.is_empty() {
            continue;
        }
        let points = of.iter().map(|row| by_chunk(row, row.bytes_per_s.median / 1e6));
        let papers = of.iter().filter_map(|row| {
            Some(("the paper's prototype".to_owned(), row.chunk_bytes as f64, row.paper?.bytes_per_s? / 1e6))
        });
        drawn.push(Curves::new(
            format!("Throughput of {op}s by chunk, {at_a_time} at a time (figure 9)"),
            "with copies through a data buffer that has room for all of them",
            sizes("chunk", &of, chunk),
            Axis::logarithmic("MB/s"),
            curves(points.chain(papers)),
        ));
    }
    drawn.iter().map(Curves::draw).collect()
}
