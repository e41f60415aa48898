//! The other benchmarks: a table of what each is about.

use serde_json::Value;

use super::{Table, bytes, cell, distinct, number, rows, spread, spread_percent, text};

pub fn micro(result: &Value) -> Table {
    let mut table = Table::new(["", "median (lowest to highest round)", "unit", "aim"]);
    for row in rows(result) {
        table.row([
            text(row, "what").to_owned(),
            spread(row, 1.0),
            text(row, "unit").into(),
            cell(&row["target"], 1.0),
        ]);
    }
    table
}

pub fn tail(result: &Value) -> Vec<Table> {
    let configs = distinct(rows(result).iter().map(|r| text(r, "config").to_owned()));
    let configs: Vec<String> = configs.into_iter().filter(|c| c != "dram-only" && c != "flash-sync").collect();
    let head = ["load, % of plain memory's highest".to_owned()].into_iter();
    let mut service =
        Table::new(head.chain(configs.iter().map(|c| format!("{c}: p99 of service times, as a multiple of waiting"))));
    let loads = distinct(rows(result).iter().map(|r| number(r["load_percent"].as_f64().expect("a load"))));
    for load in loads {
        let of = |config: &String| {
            let here = |r: &&Value| {
                text(r, "config") == config && r["load_percent"].as_f64().map(number).as_ref() == Some(&load)
            };
            rows(result).iter().find(here).map_or("-".into(), |r| cell(&r["service_p99_of_flash_sync"], 1.0))
        };
        let cells: Vec<String> = configs.iter().map(of).collect();
        if cells.iter().any(|c| c != "-") {
            service.row([load].into_iter().chain(cells));
        }
    }
    let mut gaps =
        Table::new(["load at the same p99", "points behind plain memory", "highest throughput, % of plain memory"]);
    for gap in result["setting"]["gaps"].as_array().expect("a tail has gaps") {
        gaps.row([text(gap, "config").to_owned(), spread(&gap["points"], 1.0), spread_percent(&gap["max_share"])]);
    }
    vec![service, gaps]
}

pub fn checkpoint(result: &Value) -> Table {
    let head = [
        "method",
        "what a crash leaves",
        "speed, % of plain memory",
        "longest time without an update, ms",
        "written for each checkpoint",
        "CPU of an update, µs",
    ];
    let mut table = Table::new(head);
    for row in rows(result) {
        let written = &row["written_bytes_per_checkpoint"];
        let written = written.as_f64().map_or("-".into(), |b| format!("{} MiB", number(b / f64::from(1 << 20))));
        table.row([
            text(row, "way").to_owned(),
            text(row, "survives_a_crash").into(),
            spread_percent(&row["share_of_plain"]),
            spread(&row["longest_gap_ms"], 1.0),
            written,
            cell(&row["cpu_us_per_update"], 1.0),
        ]);
    }
    table
}

pub fn policies(result: &Value) -> Table {
    let mut table = Table::new(["policy", "sees hits", "fewest misses at", "misses, as a multiple of the fewest"]);
    for row in result["standings"].as_array().expect("policies have standings") {
        let best = format!("{} of {} points", row["best_at"], row["points"]);
        table.row([
            text(row, "policy").to_owned(),
            text(row, "hits").into(),
            best,
            cell(&row["misses_over_least"], 1.0),
        ]);
    }
    table
}

/// A device whose firmware has nothing behind it moves no byte. So each figure that was aimed at is
/// followed by the same measurement with data that are moved.
const MOVED: [(&str, &str); 2] =
    [("", "the data moved, frames shared"), ("-copies", "the data moved, with copies through the data buffer")];

pub fn goals(result: &Value) -> Table {
    let mut table = Table::new(["", "median (lowest to highest round)", "unit", "aim"]);
    for goal in result["setting"]["goals"].as_array().expect("a device has goals") {
        let aim = match (goal["most"].as_f64(), goal["least"].as_f64()) {
            (Some(most), _) => format!("at most {}", number(most)),
            (None, Some(least)) => format!("at least {}", number(least)),
            (None, None) => "-".into(),
        };
        let found = if goal["spread"].is_null() { cell(&goal["found"], 1.0) } else { spread(&goal["spread"], 1.0) };
        table.row([text(goal, "what").to_owned(), found, text(goal, "unit").into(), aim.clone()]);
        for (way, place) in [("device", "in this process"), ("process", "in another process")] {
            if text(goal, "what") != format!("4 KiB reads at depth 32, nothing behind the firmware, {place}") {
                continue;
            }
            for (more, words) in MOVED {
                let way = format!("{way}{more}");
                let is = |r: &&Value| {
                    (text(r, "figure"), text(r, "way"), text(r, "op")) == ("depth", way.as_str(), "read")
                        && (r["depth"].as_u64(), r["chunk_bytes"].as_u64()) == (Some(32), Some(4096))
                };
                let row = rows(result).iter().find(is).unwrap_or_else(|| panic!("no row of {way} at depth 32"));
                let what = format!("4 KiB reads at depth 32, {words}, {place}");
                table.row([what, spread(&row["chunks_per_s"], 1.0), text(goal, "unit").into(), aim.clone()]);
            }
        }
    }
    table
}

pub fn recovery(result: &Value) -> Table {
    let mut table = Table::new([
        "pool",
        "dirty subpages since the last checkpoint",
        "to the first access, s",
        "CPU, s",
        "DRAM of the store",
    ]);
    for row in rows(result) {
        let dirty = number(row["dirty_subpages"].as_f64().expect("a count"));
        table.row([
            bytes(&row["pool_bytes"]),
            dirty,
            spread(&row["total_s"], 1.0),
            spread(&row["cpu_s"], 1.0),
            bytes(&row["dram_bytes"]),
        ]);
    }
    table
}

pub fn sync(result: &Value) -> Table {
    let sizes = distinct(rows(result).iter().map(|r| bytes(&r["dirty_bytes"])));
    let mut table = Table::new(["ms".to_owned()].into_iter().chain(sizes.iter().cloned()));
    let ways = distinct(rows(result).iter().map(|r| text(r, "way").to_owned()));
    let of = |way: &String, size: &String| {
        rows(result).iter().find(|r| text(r, "way") == way && bytes(&r["dirty_bytes"]) == *size)
    };
    for way in &ways {
        let cells = sizes.iter().map(|size| of(way, size).map_or("-".into(), |r| spread(&r["total_ms"], 1.0)));
        table.row([way.clone()].into_iter().chain(cells));
    }
    for (what, key) in [("beyond the device", "beyond_device_ms"), ("gate closed", "gate_ms")] {
        for way in ways.iter().filter(|way| rows(result).iter().any(|r| text(r, "way") == *way && !r[key].is_null())) {
            let cells = sizes.iter().map(|size| of(way, size).map_or("-".into(), |r| spread(&r[key], 1.0)));
            table.row([format!("{way}: {what}")].into_iter().chain(cells));
        }
    }
    table
}

pub fn store(result: &Value) -> Vec<Table> {
    let head = [
        "overwrites",
        "full, %",
        "reclaim",
        "flash writes for each write",
        "the policy alone",
        "metadata for each write",
        "DRAM, % of the data, filled",
        "after overwrites",
    ];
    let mut writes = Table::new(head);
    for row in rows(result) {
        writes.row([
            text(row, "pattern").to_owned(),
            cell(&row["full"], 1.0),
            text(row, "victims").into(),
            cell(&row["amplification"], 1.0),
            cell(&row["simulated"], 1.0),
            cell(&row["metadata_per_write"], 1.0),
            row["dram_share_filled"].as_f64().map_or("-".into(), |v| format!("{:.3}", v * 100.0)),
            row["dram_share"].as_f64().map_or("-".into(), |v| format!("{:.3}", v * 100.0)),
        ]);
    }
    let mut compared = Table::new([
        "compared with the medium",
        "requests at a time",
        "of the medium's, %",
        "of the medium's with sums, %",
    ]);
    for row in result["beside_medium"].as_array().into_iter().flatten() {
        let depth = row["depth"].as_f64().map_or("-".into(), number);
        compared.row([
            text(row, "kind").to_owned(),
            depth,
            spread_percent(&row["ratio"]),
            spread_percent(&row["of_summed"]),
        ]);
    }
    let mut objects = Table::new(["objects", "", "full, %", "written for each byte changed", "of that metadata"]);
    for row in result["objects"].as_array().into_iter().flatten() {
        let packed = if row["packed"] == true { "packed" } else { "a flash page each" };
        let size = format!("{} B", row["object_bytes"]);
        objects.row([
            size,
            packed.into(),
            cell(&row["full_percent"], 1.0),
            cell(&row["bytes_per_byte"], 1.0),
            cell(&row["metadata_per_byte"], 1.0),
        ]);
    }
    [writes, compared, objects].into_iter().filter(|t| !t.rows.is_empty()).collect()
}
