//! Rows of `alloc`, its table and its plot.

use fulgurite_format::format_bytes;
use serde::Serialize;

use crate::against_swap::{self, Ran};

use fulgurite_harness::Spread;
use fulgurite_term::report::table::{Columns, number, or_dash, percent};

/// One program with one configuration and one kind of requests.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    pub workload: String,
    pub config: String,
    pub zipf: f64,
    pub writes_percent: u64,
    pub threads: usize,
    pub data_bytes: u64,
    /// All memory of the process: the limit of its cgroup, where there is one. It is equal for all.
    pub dram_bytes: u64,
    pub rounds: usize,
    pub requests: u64,
    pub ops_per_s: f64,
    pub ops_per_s_spread: Spread,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// The most memory of the cgroup until the last round. None without a cgroup.
    pub peak_bytes: Option<u64>,
    /// Bytes written to the device in all rounds.
    pub bytes_written: u64,
    /// Accesses that found no page, in all rounds. Of the kernel's paging, only those that read.
    pub faults: u64,
    /// Requests that read no flash, as a share.
    pub hit_ratio: f64,
    pub cpu_us_per_op: f64,
    /// Throughput as a multiple of os-swap's, round by round.
    pub ratio_to_swap: Option<Spread>,
    /// Throughput as a multiple of the memory-page allocator's in the same mode.
    pub ratio_to_memory_page: Option<Spread>,
    /// Bytes written as a share of os-swap's.
    pub written_to_swap: Option<f64>,
    /// Pages read and written in a second, as a share of what fio does in the same mix and at the
    /// same depth. None without fio.
    pub of_disk: Option<f64>,
    /// Lines of the program, and those that this configuration changes.
    pub lines: usize,
    pub lines_changed: usize,
    /// Hash of the data at the end, which all configurations of a program must agree on.
    pub work_hash: Option<String>,
    pub flash: String,
}

/// The requests of a row, in words.
fn requests(row: &Row) -> String {
    let keys = if row.zipf > 0.0 { format!("Zipf {}", row.zipf) } else { "uniform".to_owned() };
    match row.writes_percent {
        0 => format!("{keys}, reads"),
        writes => format!("{keys}, {}/{writes}", 100 - writes),
    }
}

/// The table.
pub fn shown(rows: &[Row]) -> String {
    let times = |of: Option<Spread>| or_dash(of, |of| format!("{:.2}", of.median));
    Columns::of(rows)
        .left("program", |row| row.workload.clone())
        .left("requests", requests)
        .left("memory", |row| row.config.clone())
        .right("requests/s", |row| number(row.ops_per_s))
        .right("p50 µs", |row| number(row.p50_us))
        .right("p99 µs", |row| number(row.p99_us))
        .right("hits", |row| percent(row.hit_ratio))
        .right("written", |row| format_bytes(row.bytes_written))
        .right("x swap", |row| times(row.ratio_to_swap))
        .right("x memory-page", |row| times(row.ratio_to_memory_page))
        .right("of disk", |row| or_dash(row.of_disk, |share| format!("{share:.2}")))
        .right("lines", |row| format!("{} of {}", row.lines_changed, row.lines))
        .table()
}

/// The drawing.
pub fn plot(rows: &[Row]) -> String {
    let ran = |row: &Row| Ran {
        what: format!("{}, {}", row.workload, requests(row)),
        config: row.config.clone(),
        ops_per_s: row.ops_per_s_spread,
        ratio_to_swap: row.ratio_to_swap,
    };
    against_swap::plot(&rows.iter().map(ran).collect::<Vec<_>>())
}
