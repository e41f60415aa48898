//! Rows of `alloc`, and their table.

use serde::Serialize;

use fulgurite_harness::Spread;
use fulgurite_harness::experiment::{self, columns, ratio};
use fulgurite_term::report::table::or_dash;

/// One program with one configuration and one kind of requests.
pub type Row = experiment::Row<More>;

/// What `alloc` adds to a row.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct More {
    pub zipf: f64,
    pub writes_percent: u64,
    pub data_bytes: u64,
    /// All memory of the process: the limit of its cgroup, where there is one. It is equal for all.
    pub dram_bytes: u64,
    pub requests: u64,
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
pub fn requests(row: &Row) -> String {
    let More { zipf, writes_percent, .. } = row.more;
    let keys = if zipf > 0.0 { format!("Zipf {zipf}") } else { "uniform".to_owned() };
    match writes_percent {
        0 => format!("{keys}, reads"),
        writes => format!("{keys}, {}/{writes}", 100 - writes),
    }
}

/// The table.
pub fn shown(rows: &[Row]) -> String {
    columns(rows, requests)
        .right("x memory-page", |row| ratio(row.more.ratio_to_memory_page))
        .right("of disk", |row| or_dash(row.more.of_disk, |share| format!("{share:.2}")))
        .right("lines", |row| format!("{} of {}", row.more.lines_changed, row.more.lines))
        .table()
}
