//! `fulgurite-lab live`: a table for each measure, configurations down, workloads across.

use serde_json::Value;

use super::{Table, distinct, number, percent, rows, spread, spread_percent, text};

/// Of a row, what a cell shows; nothing where the row has none.
type Cell = fn(&Value) -> Option<String>;

/// What is shown where any row has it.
const MEASURES: [(&str, Cell); 9] = [
    ("share of plain memory, %", |r| only(spread_percent(&r["share_of_dram_only"]))),
    ("times one worker", |r| only(spread(&r["speedup_over_one_worker"], 1.0))),
    ("times the best of swap", |r| only(spread(&r["over_os_swap"], 1.0))),
    ("times the best of mapped files", |r| only(spread(&r["over_mmap"], 1.0))),
    ("of what fio completes in the same mix, %", |r| only(percent(&r["share_of_fio"]))),
    ("taken by checksums, points", |r| only(spread_percent(&r["checksums"]["share_of_dram_only"]))),
    ("reads that reclaim blocks, %", |r| only(percent(&r["blocked_by_reclaim_share"]))),
    ("p50 of a request, µs", |r| r["p50_us"].as_f64().map(number)),
    ("p99 of a request, µs", |r| r["p99_us"].as_f64().map(number)),
];

fn only(cell: String) -> Option<String> {
    (cell != "-").then_some(cell)
}

/// The configuration, with its medium where there are several.
fn label(row: &Value, several: bool) -> String {
    let medium = row["medium"].as_str().filter(|_| several);
    medium.map_or_else(|| text(row, "config").into(), |medium| format!("{}, {medium}", text(row, "config")))
}

pub fn tables(result: &Value) -> Vec<Table> {
    let rows = rows(result);
    let media = distinct(rows.iter().filter_map(|r| r["medium"].as_str().map(str::to_owned)));
    let several = media.len() > 1;
    let workloads = distinct(rows.iter().map(|r| text(r, "workload").to_owned()));
    let workers = rows.iter().any(|r| !r["speedup_over_one_worker"].is_null());
    let mut tables = Vec::new();
    for (what, cell) in MEASURES {
        let is_share = what.starts_with("share of plain");
        // Two workers are held against one.
        if is_share && workers {
            continue;
        }
        // Plain memory is all of itself; what it takes by the 99th percentile is worth to be seen.
        let shown = |r: &&Value| !(is_share && text(r, "config") == "dram-only");
        let labels = distinct(rows.iter().filter(shown).filter(|r| cell(r).is_some()).map(|r| label(r, several)));
        if labels.is_empty() {
            continue;
        }
        let mean = is_share && workloads.len() > 1;
        let head = [what.to_owned()].into_iter().chain(workloads.iter().cloned());
        let mut table = Table::new(head.chain(mean.then(|| "mean".to_owned())));
        for name in labels {
            let of =
                |workload: &String| rows.iter().find(|r| text(r, "workload") == workload && label(r, several) == name);
            let cells = workloads.iter().map(|w| of(w).and_then(cell).unwrap_or_else(|| "-".into()));
            let mut line: Vec<String> = [name.clone()].into_iter().chain(cells).collect();
            if mean {
                let medians = workloads.iter().filter_map(|w| of(w)?["share_of_dram_only"]["median"].as_f64());
                let medians: Vec<f64> = medians.collect();
                line.push(format!("{:.1}", medians.iter().sum::<f64>() / medians.len() as f64 * 100.0));
            }
            table.row(line);
        }
        tables.push(table);
    }
    // What paging by the kernel calls a miss is a major fault, which is not the same.
    let misses = ["fulgurite", "on-device", "pool", "pool-on-device"];
    let asked_by = |row: &Value| match text(row, "config") {
        "dram-only" => Some("ops_per_s"),
        config if misses.contains(&config) => Some("misses_per_s"),
        _ => None,
    };
    let mut asked = Table::new(["a second".to_owned()].into_iter().chain(workloads.iter().cloned()));
    for name in distinct(rows.iter().filter(|r| asked_by(r).is_some()).map(|r| label(r, several))) {
        let of = |w: &String| rows.iter().find(|r| text(r, "workload") == w && label(r, several) == name);
        let rate = |w| of(w).and_then(|r| r[asked_by(r)?].as_f64()).map_or_else(|| "-".into(), number);
        let of_plain = name.strip_prefix("dram-only").map(|medium| format!("requests of plain memory{medium}"));
        let what = of_plain.unwrap_or_else(|| format!("misses, {name}"));
        asked.row([what].into_iter().chain(workloads.iter().map(rate)));
    }
    tables.push(asked);
    tables
}
