//! The tables of `live`.

use fulgurite_format::format_bytes;
use fulgurite_term::media::{NandCounts, NandShape};
use fulgurite_term::report::table::{Columns, number, or_dash, percent, thousands};

use fulgurite_harness::Spread;
use fulgurite_harness::rows::LiveRow;

/// A row of the table of `live`: of a configuration, or of what checksums take of its pool.
struct Line<'r> {
    /// None where it was named above.
    workload: &'r str,
    config: String,
    row: Option<&'r LiveRow>,
    share: Option<Spread>,
    cpu_us_per_op: f64,
}

/// The table of `live`.
pub fn shown(rows: &[LiveRow]) -> String {
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

/// What NAND did in `live`, compared with fixed latencies. None without NAND.
pub fn nand(rows: &[LiveRow]) -> Option<String> {
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
