//! Tables for people.

use std::fmt::Display;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use comfy_table::{ContentLineStyle, LineStyle};

use super::rows::{LiveRow, Spread};
use crate::child::nand_counts::{NandCounts, NandShape};
use fulgurite_format::format_bytes;

/// Columns that output has which goes to no terminal.
const WIDTH: usize = 80;

/// A table with a heading; all columns after the first `left` are aligned to the right. One that is
/// wider than the terminal, or than 80 columns without one, becomes records.
pub fn table(heading: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let width = terminal_width().unwrap_or(WIDTH).max(WIDTH);
    let table = laid_out(heading, left, &rows);
    if table.lines().any(|line| line.chars().count() > width) { records(heading, left, &rows, width) } else { table }
}

/// A line for each row's words, and its figures below, with their headings.
fn records(heading: &[&str], left: usize, rows: &[Vec<String>], width: usize) -> String {
    let mut text = String::new();
    let mut words: Vec<&str> = vec![""; left];
    for row in rows {
        // An empty word is that of the row above.
        for (word, cell) in words.iter_mut().zip(row) {
            *word = if cell.is_empty() { *word } else { cell.trim() };
        }
        text.push_str(&words.join(", "));
        let mut used = usize::MAX;
        for (name, cell) in heading.iter().zip(row).skip(left).filter(|(_, cell)| !cell.is_empty()) {
            let pair = format!("{name} {cell}");
            let long = pair.chars().count();
            if used.saturating_add(long + 3) > width {
                text.push_str("\n  ");
                used = 2;
            } else {
                text.push_str("   ");
                used += 3;
            }
            text.push_str(&pair);
            used += long;
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

fn laid_out(heading: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    let style = TableStyle::new()
        .header_lines(ContentLineStyle::none().junction(' '))
        .header_separator(rule)
        .content_lines(ContentLineStyle::none().junction(' '))
        .bottom_border(rule);
    table.load_style(style).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading.iter().copied());
    for row in rows {
        table.add_row(row.clone());
    }
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Columns of the terminal. None where standard output is none.
pub fn terminal_width() -> Option<usize> {
    Table::new().width().map(usize::from)
}

/// A table of rows, made column by column. Columns to the left align left.
pub struct Columns<'r, R> {
    rows: Vec<&'r R>,
    left: usize,
    pub(crate) headings: Vec<&'static str>,
    pub(crate) lines: Vec<Vec<String>>,
}

impl<'r, R> Columns<'r, R> {
    /// Begins a table of these rows.
    pub fn of(rows: impl IntoIterator<Item = &'r R>) -> Columns<'r, R> {
        let rows: Vec<&R> = rows.into_iter().collect();
        let lines = vec![Vec::new(); rows.len()];
        Columns { rows, left: 0, headings: Vec::new(), lines }
    }
    /// Adds a column of words.
    pub fn left<D: Display>(mut self, heading: &'static str, cell: impl FnMut(&'r R) -> D) -> Columns<'r, R> {
        self.left += 1;
        self.right(heading, cell)
    }
    /// Adds a column of figures.
    pub fn right<D: Display>(mut self, heading: &'static str, mut cell: impl FnMut(&'r R) -> D) -> Columns<'r, R> {
        self.headings.push(heading);
        self.rows.iter().zip(&mut self.lines).for_each(|(row, line)| line.push(cell(row).to_string()));
        self
    }
    /// Lays the table out.
    pub fn table(self) -> String {
        table(&self.headings, self.left, self.lines)
    }
}

/// Shows a value, or a dash where there is none.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// A number with as many digits as mean something.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => thousands(value.round() as i64),
    }
}

/// Groups of three digits.
pub fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A row of the table of `bench live`: of a configuration, or of what checksums take of its pool.
struct Line<'r> {
    /// None where it was named above.
    workload: &'r str,
    config: String,
    row: Option<&'r LiveRow>,
    share: Option<Spread>,
    cpu_us_per_op: f64,
}

/// The table of `bench live`.
pub(crate) fn live(rows: &[LiveRow]) -> String {
    let mut lines = Vec::new();
    let mut last = "";
    for row in rows {
        let workload = if std::mem::replace(&mut last, &row.workload) == row.workload { "" } else { &row.workload };
        let config = match (row.variants.is_empty(), row.page_cluster) {
            (true, _) => row.label(),
            (false, None) => format!("{} x{}", row.label(), row.fibers_or_threads),
            (false, Some(cluster)) => format!("{} x{} pc{cluster}", row.label(), row.fibers_or_threads),
        };
        let (share, cpu_us_per_op) = (row.share_of_dram_only, row.cpu_us_per_op);
        lines.push(Line { workload, config, row: Some(row), share, cpu_us_per_op });
        lines.extend(row.checksums.map(|its| Line {
            workload: "",
            config: "  its checksums".to_owned(),
            row: None,
            share: Some(its.share_of_dram_only),
            cpu_us_per_op: its.cpu_us_per_op,
        }));
    }
    let figure = |line: &Line<'_>, of: fn(&LiveRow) -> f64| or_dash(line.row, |row| number(of(row)));
    let count = |line: &Line<'_>, of: fn(&LiveRow) -> u64| or_dash(line.row, |row| thousands(of(row).cast_signed()));
    Columns::of(&lines)
        .left("workload", |line| line.workload)
        .left("config", |line| &line.config)
        .right("ops/s", |line| figure(line, |row| row.ops_per_s))
        .right("of DRAM", |line| or_dash(line.share, |share| percent(share.median)))
        .right("(lowest-highest)", |line| or_dash(line.share, |share| share.range(percent)))
        .right("misses/s", |line| figure(line, |row| row.misses_per_s))
        .right("acc/miss", |line| or_dash(line.row.and_then(|row| row.accesses_per_miss), number))
        .right("µs/miss", |line| or_dash(line.row.and_then(|row| row.work_us_per_miss), number))
        .right("p50 µs", |line| figure(line, |row| row.p50_us))
        .right("p99 µs", |line| figure(line, |row| row.p99_us))
        .right("p99.9 µs", |line| figure(line, |row| row.p999_us))
        .right("CPU µs", |line| number(line.cpu_us_per_op))
        .right("reads", |line| count(line, |row| row.device_reads))
        .right("writes", |line| count(line, |row| row.device_writes))
        .right("peak", |line| or_dash(line.row.and_then(|row| row.cgroup_peak_bytes), format_bytes))
        .table()
}

/// What NAND did in `bench live`, beside fixed latencies. None without NAND.
pub(crate) fn nand(rows: &[LiveRow]) -> Option<String> {
    let fixed = |row: &LiveRow| {
        rows.iter().find(|other| {
            other.config == "fixed-latency" && other.workload == row.workload && other.medium == row.medium
        })
    };
    let lines: Vec<(&LiveRow, NandCounts, NandShape, Option<&LiveRow>)> =
        rows.iter().filter_map(|row| Some((row, row.nand?, row.nand_shape?, fixed(row)))).collect();
    let share = |share: Option<f64>| or_dash(share, |share| format!("{:.2}%", share * 100.0));
    let of_dram = |row: &LiveRow| or_dash(row.share_of_dram_only, |share| percent(share.median));
    let table = Columns::of(&lines)
        .left("workload", |(row, ..)| &row.workload)
        .left("config", |(row, ..)| &row.config)
        .left("NAND", |(row, ..)| &row.medium)
        .right("planes", |(_, _, shape, _)| shape.planes)
        .right("block", |(_, _, shape, _)| format_bytes(shape.block_bytes))
        .right("ops/s", |(row, ..)| number(row.ops_per_s))
        .right("of DRAM", |(row, ..)| of_dram(row))
        .right("p99 µs", |(row, ..)| number(row.p99_us))
        .right("fixed: of DRAM", |(.., fixed)| or_dash(*fixed, of_dram))
        .right("p99 µs", |(.., fixed)| or_dash(*fixed, |fixed| number(fixed.p99_us)))
        .right("blocked by reclaim", |(row, ..)| share(row.blocked_by_reclaim_share))
        .right("erasing", |(row, ..)| share(row.erasing_share))
        .right("erases", |(_, nand, ..)| thousands(nand.erases.cast_signed()))
        .table();
    (!lines.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wider_than_the_page_becomes_records() {
        let cells = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let heading = ["workload", "config", "ops/s", "p99 µs", "of what the device allows in the same mix", "peak"];
        let rows = [
            cells(&["tatp", "dram-only", "490,680", "9.24", "-", "1.0 GiB"]),
            cells(&["", "fulgurite", "464,121", "123", "66.2% (64.0%-70.1%)", "81.2 MiB"]),
        ];
        let shown = table(&heading, 2, rows.clone());
        let expected = [
            "tatp, dram-only",
            "  ops/s 490,680   p99 µs 9.24   of what the device allows in the same mix -",
            "  peak 1.0 GiB",
            "tatp, fulgurite",
            "  ops/s 464,121   p99 µs 123",
            "  of what the device allows in the same mix 66.2% (64.0%-70.1%)   peak 81.2 MiB",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH));
        let narrow = table(&heading[..4], 2, rows.map(|row| row[..4].to_vec()));
        assert!(narrow.contains("─"), "{narrow}");
    }
    #[test]
    fn numbers_people_read() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(
            (number(1.234), number(12.34), number(0.0), thousands(-1000)),
            ("1.23".into(), "12.3".into(), "0".into(), "-1,000".into())
        );
    }
}
