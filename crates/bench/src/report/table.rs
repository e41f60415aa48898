//! Tables for people.

use std::fmt::Display;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use comfy_table::{ContentLineStyle, LineStyle};

use super::rows::LiveRow;

/// A table with a heading; all columns after the first `left` are aligned to the right.
pub fn table(heading: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
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
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// A table of rows, made column by column. Columns to the left align left.
pub struct Columns<'r, R> {
    rows: Vec<&'r R>,
    left: usize,
    headings: Vec<&'static str>,
    lines: Vec<Vec<String>>,
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

/// The table of `bench live`.
pub fn live(rows: &[LiveRow]) -> String {
    let heading = [
        "workload",
        "config",
        "ops/s",
        "of DRAM",
        "(lowest-highest)",
        "misses/s",
        "acc/miss",
        "µs/miss",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "CPU µs",
        "reads",
        "writes",
        "peak",
    ];
    let mut last = String::new();
    let cells = rows.iter().flat_map(|row| {
        // A workload is named once.
        let workload = if row.workload == last { String::new() } else { row.workload.clone() };
        last.clone_from(&row.workload);
        let per_miss = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let config = match (row.variants.is_empty(), row.page_cluster) {
            (true, _) => row.label(),
            (false, None) => format!("{} x{}", row.label(), row.fibers_or_threads),
            (false, Some(cluster)) => format!("{} x{} pc{cluster}", row.label(), row.fibers_or_threads),
        };
        let share = row.share_of_dram_only;
        let cells = vec![
            workload,
            config,
            number(row.ops_per_s),
            share.map_or("-".to_owned(), |s| percent(s.median)),
            share.map_or("-".to_owned(), |s| format!("({}-{})", percent(s.min), percent(s.max))),
            number(row.misses_per_s),
            per_miss(row.accesses_per_miss),
            per_miss(row.work_us_per_miss),
            number(row.p50_us),
            number(row.p99_us),
            number(row.p999_us),
            number(row.cpu_us_per_op),
            thousands(row.device_reads.cast_signed()),
            thousands(row.device_writes.cast_signed()),
            row.cgroup_peak_bytes.map_or("-".to_owned(), fulgurite_format::format_bytes),
        ];
        let checksums = row.checksums.map(|its| {
            let mut cells = vec!["-".to_owned(); heading.len()];
            cells[0].clear();
            cells[1] = "  its checksums".to_owned();
            let share = its.share_of_dram_only;
            (cells[3], cells[4]) = (percent(share.median), format!("({}-{})", percent(share.min), percent(share.max)));
            cells[11] = number(its.cpu_us_per_op);
            cells
        });
        std::iter::once(cells).chain(checksums)
    });
    table(&heading, 2, cells)
}

/// What NAND did under each configuration of `bench live`, beside the device of fixed latencies; none where there is no NAND.
pub fn nand(rows: &[LiveRow]) -> Option<String> {
    let heading = [
        "workload",
        "config",
        "NAND",
        "planes",
        "block",
        "ops/s",
        "of DRAM",
        "p99 µs",
        "fixed: of DRAM",
        "p99 µs",
        "blocked by reclaim",
        "erasing",
        "erases",
    ];
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2}%", share * 100.0));
    let lines: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|row| {
            let (nand, shape) = (row.nand?, row.nand_shape?);
            let fixed = rows.iter().find(|other| {
                other.config == "fixed-latency" && other.workload == row.workload && other.medium == row.medium
            });
            let of_dram = |row: &LiveRow| row.share_of_dram_only.map_or("-".to_owned(), |s| percent(s.median));
            Some(vec![
                row.workload.clone(),
                row.config.clone(),
                row.medium.clone(),
                shape.planes.to_string(),
                fulgurite_format::format_bytes(shape.block_bytes),
                number(row.ops_per_s),
                of_dram(row),
                number(row.p99_us),
                fixed.map_or("-".to_owned(), of_dram),
                fixed.map_or("-".to_owned(), |fixed| number(fixed.p99_us)),
                share(row.blocked_by_reclaim_share),
                share(row.erasing_share),
                thousands(nand.erases.cast_signed()),
            ])
        })
        .collect();
    (!lines.is_empty()).then(|| table(&heading, 3, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_people_read() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(
            (number(1.234), number(12.34), number(0.0), thousands(-1000)),
            ("1.23".into(), "12.3".into(), "0".into(), "-1,000".into())
        );
    }
}
