//! What `bench checkpoint` shows: its table and its drawings.

use fulgurite_format::format_bytes;

use super::Row;
use crate::report::charts::{Bar, Bars};
use crate::report::rows::Spread;
use crate::report::svg::Canvas;
use crate::report::table;

pub fn lines(rows: &[Row]) -> String {
    let heading = [
        "way",
        "survives a crash",
        "DRAM",
        "of plain",
        "(lowest-highest)",
        "of unkept",
        "longest gap",
        "highest",
        "p99.9",
        "call or gate",
        "durable after",
        "made",
        "written",
        "CPU µs",
        "elsewhere",
    ];
    let ms = |value: f64| format!("{} ms", table::number(value));
    let or_none = |spread: &Option<Spread>| spread.map_or_else(|| "-".to_owned(), |spread| ms(spread.median));
    let body = rows.iter().map(|row| {
        vec![
            row.way.to_owned(),
            row.survives_a_crash.to_owned(),
            format_bytes(row.dram_bytes),
            format!("{:.1}%", row.share_of_plain.median * 100.0),
            format!("({:.1}%-{:.1}%)", row.share_of_plain.min * 100.0, row.share_of_plain.max * 100.0),
            format!("{:.1}%", row.share_of_unkept.median * 100.0),
            ms(row.longest_gap_ms.median),
            ms(row.longest_gap_ms.max),
            format!("{} µs", table::number(row.gap_us.p999)),
            or_none(&row.held_ms),
            or_none(&row.durable_ms),
            if row.held_ms.is_some() { table::number(row.checkpoints.median) } else { "-".to_owned() },
            row.written_bytes_per_checkpoint.map_or_else(|| "-".to_owned(), format_bytes),
            format!("{:.2}", row.cpu_us_per_update),
            format!("{:.2}", row.cpu_us.children + row.cpu_us.kernel_threads.unwrap_or(0.0)),
        ]
    });
    let note = "\
of unkept: of the same memory without checkpoints. longest gap: the longest time without an update in what lies between two
checkpoints, median and highest; p99.9: of all times between two updates. call or gate: what of it the program called, or the closed
gate. elsewhere: of the CPU, that of child processes and of the kernel's threads.";
    format!("{}\n{note}", table::table(&heading, 2, body))
}

/// The drawings: speed, gaps, time until a checkpoint holds, CPU.
pub fn drawings(rows: &[Row]) -> Vec<Canvas> {
    let cpu = |row: &Row| {
        let value = row.cpu_us_per_update;
        Some(Spread { median: value, min: value, max: value })
    };
    vec![
        bars(rows, "How fast it computes", "% of plain memory that keeps nothing", |row| {
            let Spread { median, min, max } = row.share_of_plain;
            Some(Spread { median: median * 100.0, min: min * 100.0, max: max * 100.0 })
        }),
        bars(
            rows,
            "How long it stands still: the longest time without an update between two checkpoints",
            "ms",
            |row| Some(row.longest_gap_ms),
        ),
        bars(rows, "How long until a checkpoint would survive", "ms", |row| row.durable_ms),
        bars(rows, "CPU time of an update, of all threads and processes", "µs", cpu),
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
