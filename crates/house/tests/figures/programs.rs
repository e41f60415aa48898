//! Programs that were never written for Fulgurite, and those that change their allocation calls
//! only, compared with swap.

use serde_json::Value;

use super::{Table, bytes, cell, distinct, number, percent, rows, spread, text};

/// A table for each workload of `fulgurite-lab run`, and one of the saves.
pub fn unmodified(result: &Value) -> Vec<Table> {
    let rows = rows(result);
    let mut tables = Vec::new();
    for workload in distinct(rows.iter().map(|row| text(row, "workload").to_owned())) {
        let of_it = rows.iter().filter(|row| text(row, "workload") == workload);
        let head = [
            &workload,
            "threads",
            "a second",
            "of swap",
            "p99, µs",
            "p99 of swap's",
            "CPU, µs",
            "peak",
            "written",
            "pages of fio's, %",
        ];
        let mut table = Table::new(head.map(String::from));
        for row in of_it {
            table.row([
                text(row, "config").to_owned(),
                row["threads"].to_string(),
                spread(&row["ops_per_s_spread"], 1.0),
                spread(&row["ratio_to_swap"], 1.0),
                cell(&row["p99_us"], 1.0),
                cell(&row["p99_to_swap"], 1.0),
                cell(&row["cpu_us_per_op"], 1.0),
                size(&row["peak_bytes"]),
                size(&row["bytes_written"]),
                median_percent(&row["pages_of_fio"]),
            ]);
        }
        tables.push(table);
    }
    let saves = result["saves"].as_array().expect("a result has saves");
    if !saves.is_empty() {
        tables.push(saved(saves));
    }
    tables
}

fn saved(saves: &[Value]) -> Table {
    let head = [
        "redis saves while a client writes",
        "seconds",
        "fork, ms",
        "writes a second",
        "p99, µs",
        "longest, ms",
        "peak",
        "limit",
        "the file is",
    ];
    let mut table = Table::new(head);
    for save in saves {
        let pages = save["page_cluster"].as_u64().map(|cluster| 1u64 << cluster);
        let pages = pages.map_or_else(String::new, |pages| format!(", {pages} pages a fault"));
        table.row([
            format!("{}{pages}", text(save, "config")),
            cell(&save["seconds"], 1.0),
            cell(&save["fork_ms"], 1.0),
            cell(&save["writes_per_s"], 1.0),
            cell(&save["p99_us"], 1.0),
            cell(&save["max_us"], 1e-3),
            size(&save["peak_bytes"]),
            size(&save["cap_bytes"]),
            if save["equal"] == true { "the state at the fork" } else { "another one" }.to_owned(),
        ]);
    }
    table
}

/// A table for each program and mix of `fulgurite-lab alloc`, and one of what the runtime itself
/// takes.
pub fn allocators(result: &Value) -> Vec<Table> {
    let rows = rows(result);
    let mut tables = Vec::new();
    for title in distinct(rows.iter().map(title)) {
        let head = [
            &title,
            "a second",
            "of swap",
            "of memory-page",
            "p99, µs",
            "CPU, µs",
            "written of swap's",
            "of the disk, %",
            "lines changed",
        ];
        let mut table = Table::new(head.map(String::from));
        for row in rows.iter().filter(|row| self::title(row) == title) {
            table.row([
                text(row, "config").to_owned(),
                spread(&row["ops_per_s_spread"], 1.0),
                spread(&row["ratio_to_swap"], 1.0),
                spread(&row["ratio_to_memory_page"], 1.0),
                cell(&row["p99_us"], 1.0),
                cell(&row["cpu_us_per_op"], 1.0),
                cell(&row["written_to_swap"], 1.0),
                percent(&row["of_disk"]),
                cell(&row["lines_changed"], 1.0),
            ]);
        }
        tables.push(table);
    }
    let mut overhead = Table::new(["the runtime itself", "ns", "SSDAlloc's paper, ns", "times the primitives alone"]);
    for part in result["overhead"].as_array().expect("a result has the runtime's own cost") {
        overhead.row([
            text(part, "what").to_owned(),
            spread(&part["ns"], 1.0),
            cell(&part["paper_ns"], 1.0),
            cell(&part["ratio_to_bare"], 1.0),
        ]);
    }
    tables.push(overhead);
    tables
}

/// What the rows of one table have in common.
fn title(row: &Value) -> String {
    let keys = match row["zipf"].as_f64() {
        Some(0.0) | None => "uniform".into(),
        Some(exponent) => format!("Zipf {exponent}"),
    };
    format!("{}, {keys}, {}% writes", text(row, "workload"), row["writes_percent"])
}

fn size(value: &Value) -> String {
    if value.is_null() { "-".into() } else { bytes(value) }
}

/// The median of a share in per cent.
fn median_percent(value: &Value) -> String {
    value["median"].as_f64().map_or_else(|| "-".into(), |share| number(share * 100.0))
}
