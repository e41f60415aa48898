//! What `checkpoint` shows: its table and its drawings.

use fulgurite_format::format_bytes;

use super::Row;
use fulgurite_harness::Spread;
use fulgurite_term::report::charts::{Bar, Bars};
use fulgurite_term::report::svg::Canvas;
use fulgurite_term::report::table::{self, Columns, or_dash, percent};

pub fn lines(rows: &[Row]) -> String {
    let ms = |value: f64| format!("{} ms", table::number(value));
    let table = Columns::of(rows)
        .left("method", |row| row.way)
        .left("survives a crash", |row| row.survives_a_crash)
        .right("DRAM", |row| format_bytes(row.dram_bytes))
        .right("of plain", |row| percent(row.share_of_plain.median))
        .right("(lowest-highest)", |row| row.share_of_plain.range(percent))
        .right("longest gap", |row| ms(row.longest_gap_ms.median))
        .right("highest", |row| ms(row.longest_gap_ms.max))
        .right("durable after", |row| or_dash(row.durable_ms, |spread| ms(spread.median)))
        .right("made", |row| or_dash(row.durable_ms, |_| table::number(row.checkpoints.median)))
        .right("written", |row| or_dash(row.written_bytes_per_checkpoint, format_bytes))
        .right("CPU µs", |row| format!("{:.2}", row.cpu_us_per_update))
        .table();
    let note = "\
longest gap: the longest time without an update between two checkpoints, median and highest. CPU: of an update, child
processes and the kernel's threads included.";
    format!("{table}\n{note}")
}

/// The drawings: speed, gaps, time until a checkpoint holds, CPU.
pub fn drawings(rows: &[Row]) -> Vec<Canvas> {
    vec![
        bars(rows, "How fast it computes", "% of plain memory that keeps nothing", |row| {
            Some(row.share_of_plain.percent())
        }),
        bars(
            rows,
            "How long it stands still: the longest time without an update between two checkpoints",
            "ms",
            |row| Some(row.longest_gap_ms),
        ),
        bars(rows, "How long until a checkpoint would survive", "ms", |row| row.durable_ms),
        bars(rows, "CPU time of an update, of all threads and processes", "µs", |row| {
            Spread::of_any([row.cpu_us_per_update])
        }),
    ]
}

fn bars(rows: &[Row], title: &str, unit: &str, of: impl Fn(&Row) -> Option<Spread>) -> Canvas {
    // All in all drawings, so that each has one colour.
    let bar = |row: &Row| {
        of(row).map(|s| Bar {
            value: s.median,
            spread: (s.min < s.max).then_some((s.min, s.max)),
            tip: format!("{}: {:.2} {unit}, {:.2} to {:.2}", row.way, s.median, s.min, s.max),
        })
    };
    let drawing = Bars {
        title: title.to_owned(),
        subtitle: rows.first().map_or_else(String::new, |row| {
            format!("{} of data, {} of it changed", format_bytes(row.data_bytes), format_bytes(row.dirty_bytes))
        }),
        unit: unit.to_owned(),
        groups: vec![String::new()],
        series: rows.iter().map(|row| row.way.to_owned()).collect(),
        bars: vec![rows.iter().map(bar).collect()],
        mark: None,
    };
    drawing.draw()
}
