//! What was measured, as tables: one block of Markdown for each file of `docs/results`. A table has
//! what a reader compares; the file has the rest.

use serde_json::Value;

pub mod charts;
mod live;
mod others;
mod peers;
mod predictions;
mod programs;

/// The block of a result: its command, its tables, the machine.
pub fn render(name: &str, result: &Value, has_drawing: bool) -> String {
    let command = command(result);
    let kind = command.split_whitespace().nth(1).unwrap_or_default();
    let tables = match kind {
        "live" => live::tables(result),
        "peers" => peers::tables(result),
        "run" => programs::unmodified(result),
        "alloc" => programs::allocators(result),
        "micro" => vec![others::micro(result)],
        "tail" => others::tail(result),
        "checkpoint" => vec![others::checkpoint(result)],
        "policies" => vec![others::policies(result)],
        "device" => vec![others::goals(result)],
        "sim" => predictions::tables(result),
        "store" if command.contains("--recovery") => vec![others::recovery(result)],
        "store" if command.contains("--sync") => vec![others::sync(result)],
        "store" => others::store(result),
        _ if command.starts_with("fulgurite-demo ") => live::tables(result),
        other => panic!("{name}: no table is known for `{other}`"),
    };
    assert!(tables.iter().all(|t| !t.rows.is_empty()), "{name}: a table without rows");
    let tables: Vec<String> = tables.iter().map(Table::text).collect();
    let drawing = if has_drawing { format!(", [drawing](results/{name}.svg)") } else { String::new() };
    let file = format!("{}; [all of it](results/{name}.json){drawing}.", machine(&result["machine"]));
    let sources = if kind == "sim" { predictions::sources(result) + "\n" } else { String::new() };
    format!("`{command}`\n\n{sources}{}\n{file}\n", tables.join("\n"))
}

/// The command that made a result, without the names of what it wrote.
pub fn command(result: &Value) -> String {
    without_outputs(result["command"].as_str().expect("a result names its command"))
}

/// A command without the names of what it writes.
pub fn without_outputs(command: &str) -> String {
    let mut words = command.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let (option, given) = word.split_once('=').map_or((word, false), |(option, _)| (option, true));
        if ["--json", "--plot", "--report"].contains(&option) {
            words.next_if(|next| !given && !next.starts_with('-'));
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

fn machine(machine: &Value) -> String {
    let text = |key: &str| machine[key].as_str().unwrap_or("unknown");
    let mut line = format!("{} cores of {}, Linux {}", machine["cores"], text("cpu"), text("kernel"));
    if let Some(far) = machine["far_load_ns"].as_f64() {
        line += &format!("; a load from 8 MiB took {far:.0} ns");
    }
    if let Some(program) = machine["program"].as_str() {
        line += &format!("; program {program}");
    }
    line
}

/// A table of Markdown; the first column is words, the others are numbers.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }
    fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.head.len(), "a row has a cell for each column: {cells:?}");
        self.rows.push(cells);
    }
    fn text(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "--:|".repeat(self.head.len() - 1));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}{rows}", line(&self.head))
    }
}

/// A number as one reads it: three or four digits, thousands apart.
fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || value == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 0.1 => 2,
        _ => 3,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, rest) = plain.split_once('.').map_or((plain.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// A number, or a dash.
fn cell(value: &Value, scale: f64) -> String {
    value.as_f64().map_or_else(|| "-".into(), |v| number(v * scale))
}

/// A share in per cent, to a tenth.
fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |v| format!("{:.1}", v * 100.0))
}

/// Median of the rounds, and their range.
fn spread(value: &Value, scale: f64) -> String {
    let (Some(median), Some(min), Some(max)) = (value["median"].as_f64(), value["min"].as_f64(), value["max"].as_f64())
    else {
        return "-".into();
    };
    format!("{} ({} to {})", number(median * scale), number(min * scale), number(max * scale))
}

/// The spread of a share, in per cent.
fn spread_percent(value: &Value) -> String {
    let of = |key: &str| Some(value[key].as_f64()? * 100.0);
    let (Some(median), Some(min), Some(max)) = (of("median"), of("min"), of("max")) else { return "-".into() };
    format!("{median:.1} ({min:.0} to {max:.0})")
}

/// A text of a row.
fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("a row has {key}"))
}

/// Bytes as one writes them.
fn bytes(value: &Value) -> String {
    let bytes = value.as_u64().expect("a number of bytes");
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// The rows of a result.
fn rows(result: &Value) -> &[Value] {
    result["rows"].as_array().expect("results have rows")
}

/// Each of them once, in the order in which they come.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[test]
fn numbers_are_written_as_one_reads_them() {
    let written = [0.0, 0.0123, 0.27, 1.557, 31.44, 404.2, 1_234_567.0, -1234.5].map(number);
    assert_eq!(written, ["0", "0.012", "0.27", "1.56", "31.4", "404", "1,234,567", "-1,234"]);
    assert_eq!(spread_percent(&serde_json::json!({"median": 0.961, "min": 0.82, "max": 1.2})), "96.1 (82 to 120)");
    assert_eq!(without_outputs("fulgurite-lab micro --json"), "fulgurite-lab micro");
    assert_eq!(without_outputs("fulgurite-lab peers --json=a.json bank"), "fulgurite-lab peers bank");
    assert_eq!(without_outputs("fulgurite-lab x --json a.json --plot a.svg --quick"), "fulgurite-lab x --quick");
}
