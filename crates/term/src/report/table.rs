//! Tables for people.

use std::fmt::Display;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use comfy_table::{ContentLineStyle, LineStyle};

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
        // An empty word stands for the word of the row above.
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
    pub(super) headings: Vec<&'static str>,
    /// The cells, by row.
    pub lines: Vec<Vec<String>>,
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
