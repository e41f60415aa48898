//! What the runtime has measured of the same number: from kept results, never by measuring now.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Where a number of the runtime stands.
struct Kept {
    check: &'static str,
    finding: &'static str,
    file: &'static str,
    read: fn(&Value) -> Option<String>,
}

const KEPT: [Kept; 24] = [
    Kept { check: "A1", finding: "flat", file: "policies.json", read: flattens },
    Kept { check: "A5", finding: "flash-sync", file: "live-10us.json", read: |result| share(result, "flash-sync") },
    Kept { check: "A5", finding: "os-swap", file: "live-file.json", read: on_disk },
    Kept { check: "A5", finding: "astriflash", file: "live-10us.json", read: |result| share(result, "fulgurite") },
    Kept { check: "A11", finding: "astriflash", file: "live-10us.json", read: |result| share(result, "fulgurite") },
    Kept { check: "A11", finding: "os-swap", file: "live-file.json", read: on_disk },
    Kept { check: "A11", finding: "flash-sync", file: "live-10us.json", read: |result| share(result, "flash-sync") },
    Kept { check: "A11", finding: "tpcc", file: "live-10us.json", read: least },
    Kept { check: "A13", finding: "gap", file: "tail.json", read: equal_load },
    Kept { check: "A13", finding: "low-load", file: "tail.json", read: low_load },
    Kept { check: "B1", finding: "combined", file: "micro.json", read: of_a_miss },
    Kept { check: "C6", finding: "peak", file: "device.json", read: peak },
    Kept { check: "C6", finding: "flat", file: "device.json", read: flat },
    Kept { check: "C6", finding: "contention", file: "device.json", read: contention },
    Kept { check: "A12", finding: "data-structures", file: "tail.json", read: |result| service(result, "fulgurite") },
    Kept { check: "A12", finding: "noPS", file: "tail.json", read: |result| service(result, "fifo") },
    Kept { check: "A8", finding: "switch", file: "micro.json", read: switch },
    Kept { check: "AS1", finding: "hardware", file: "micro.json", read: switch },
    Kept { check: "B3", finding: "by-the-store", file: "store.json", read: packed },
    Kept { check: "B4", finding: "objects", file: "store.json", read: of_medium },
    Kept { check: "C5", finding: "overhead-4k", file: "device.json", read: |result| protocol(result, 4096) },
    Kept { check: "C5", finding: "overhead-512k", file: "device.json", read: |result| protocol(result, 524_288) },
    Kept { check: "D8", finding: "threads", file: "live-file-nvmm.json", read: updates },
    Kept { check: "D9", finding: "threads", file: "live-file-nvmm.json", read: mapped },
];

fn rows<'v>(result: &'v Value, config: &'v str) -> impl Iterator<Item = &'v Value> {
    result["rows"].as_array().into_iter().flatten().filter(move |row| row["config"] == config)
}

/// The mean share of plain DRAM's throughput over all workloads.
fn share(result: &Value, config: &str) -> Option<String> {
    let shares: Vec<f64> =
        rows(result, config).filter_map(|row| row["share_of_dram_only"]["median"].as_f64()).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    (!shares.is_empty()).then(|| format!("{:.1}% of plain DRAM, mean of {} workloads", mean * 100.0, shares.len()))
}

/// The system's swap on a disk.
fn on_disk(result: &Value) -> Option<String> {
    Some(format!("{}, on a disk", share(result, "os-swap")?))
}

/// The workload that loses most, next to TPCC.
fn least(result: &Value) -> Option<String> {
    let of = |row: &Value| Some((row["workload"].as_str()?.to_owned(), row["share_of_dram_only"]["median"].as_f64()?));
    let all: Vec<(String, f64)> = rows(result, "fulgurite").filter_map(of).collect();
    let (_, tpcc) = all.iter().find(|(name, _)| name == "tpcc")?;
    let (name, share) = all.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!("{:.1}% of plain DRAM, and {name} has the least, {:.1}%", tpcc * 100.0, share * 100.0))
}

/// Loads with the 99th percentile of response times in microseconds, where what is offered is done.
fn responses(result: &Value, config: &str) -> Vec<(f64, f64)> {
    let sound = rows(result, config).filter(|row| row["saturated"] == false);
    sound.filter_map(|row| Some((row["load_percent"].as_f64()?, row["p99_us"].as_f64()?))).collect()
}

/// The highest load of plain DRAM whose p99 is not above the runtime's at its own highest load.
fn equal_load(result: &Value) -> Option<String> {
    let highest = |all: Vec<(f64, f64)>| all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let (load, p99) = highest(responses(result, "fulgurite"))?;
    let below = responses(result, "dram-only").into_iter().filter(|(_, other)| *other <= p99).collect();
    let (equal, _) = highest(below)?;
    Some(format!("the p99 at {load:.0}% load is not below plain DRAM's at {equal:.0}%, TATP"))
}

/// The runtime's p99 compared with plain DRAM's at a fifth of its load.
fn low_load(result: &Value) -> Option<String> {
    let of = |config| responses(result, config).into_iter().find(|(load, _)| *load == 20.0);
    let ((_, ours), (_, dram)) = (of("fulgurite")?, of("dram-only")?);
    Some(format!("{:.1} of plain DRAM's p99, TATP at 20% load", ours / dram))
}

/// The CPU time of a miss.
fn of_a_miss(result: &Value) -> Option<String> {
    let (clean, dirty) = (result["miss_cpu_ns"].as_f64()?, result["miss_cpu_write_ns"].as_f64()?);
    Some(format!("{:.3} µs of CPU for a miss, {:.3} with a write-back", clean / 1e3, dirty / 1e3))
}

/// Megabytes a second of reads at depth 4 through the device's NAND and its DMA engine.
fn buffered(result: &Value, chunk: u64, buffer: u64) -> Option<f64> {
    let is_it = |row: &&Value| {
        row["figure"] == "buffer"
            && row["way"] == "nand-dma"
            && row["chunk_bytes"] == chunk
            && row["buffer_bytes"] == buffer
    };
    let row = result["rows"].as_array()?.iter().find(is_it)?;
    Some(row["bytes_per_s"]["median"].as_f64()? / 1e6)
}
fn peak(result: &Value) -> Option<String> {
    Some(format!("{:.1} MB/s, emulated NAND and DMA", buffered(result, 256 << 10, 512 << 10)?))
}
fn flat(result: &Value) -> Option<String> {
    let (half, two) = (buffered(result, 256 << 10, 512 << 10)?, buffered(result, 256 << 10, 2 << 20)?);
    Some(format!("{:.3} times from 512 KB to 2 MB, emulated NAND and DMA", two / half))
}
fn contention(result: &Value) -> Option<String> {
    let (large, small) = (buffered(result, 256 << 10, 128 << 10)?, buffered(result, 64 << 10, 128 << 10)?);
    Some(format!("{:.3} of 64 KB chunks, emulated NAND and DMA", large / small))
}

/// The ratio of service times at the highest load that is not above what the configuration can do.
fn service(result: &Value, config: &str) -> Option<String> {
    let sound = rows(result, config).filter(|row| row["saturated"] == false);
    let ratio = |row: &Value| Some((row["load_percent"].as_f64()?, row["service_p99_of_flash_sync"].as_f64()?));
    let (load, ratio) = sound.filter_map(ratio).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{ratio:.2} of flash-sync's p99, TATP at {load:.0}% load"))
}

/// A switch of fibers.
fn switch(result: &Value) -> Option<String> {
    result["switch_ns"].as_f64().map(|ns| format!("{ns:.1} ns a switch of fibers"))
}

/// Bytes that reach the flash for a changed object of 128 bytes: alone, and packed.
fn packed(result: &Value) -> Option<String> {
    let of = |packed: bool| {
        let mut rows = result["objects"].as_array()?.iter();
        let row = rows.find(|row| row["object_bytes"] == 128 && row["packed"] == packed)?;
        row["bytes_per_byte"].as_f64()
    };
    Some(format!("{:.1} times less, of 128 B objects", of(false)? / of(true)?))
}

/// Random reads of a pool compared with its medium's.
fn of_medium(result: &Value) -> Option<String> {
    let mut rows = result["beside_medium"].as_array()?.iter();
    let row = rows.find(|row| row["kind"] == "random reads")?;
    Some(format!("{:.1}% of the medium's random reads", row["ratio"]["median"].as_f64()? * 100.0))
}

/// The protocol's share of the time of a read at depth 1, with the medium bypassed.
fn protocol(result: &Value, chunk: u64) -> Option<String> {
    let is_it =
        |row: &&Value| row["figure"] == "interface" && row["way"] == "device-bypassed" && row["chunk_bytes"] == chunk;
    let share = result["rows"].as_array()?.iter().find(is_it)?["overhead_share"]["median"].as_f64()?;
    Some(format!("{:.1}%, by copies", share * 100.0))
}

/// The workloads of AstriFlash's figures.
const SEVEN: [&str; 7] = ["array-swap", "rbt", "hash-table", "tatp", "tpcc", "silo", "masstree"];

/// How much less a further percent of DRAM saves behind 3% of the data than before, of what the
/// seven workloads touch. Hits are known to the policy as the runtime knows them.
fn flattens(result: &Value) -> Option<String> {
    let slopes = SEVEN.map(|name| {
        let stream = format!("{name} 0.99");
        let misses = |percent: f64| {
            let is_it = |row: &&Value| {
                row["stream"] == *stream
                    && row["share"].as_f64() == Some(percent)
                    && (&row["policy"], &row["hits"]) == (&"s3-fifo".into(), &"marked".into())
            };
            result["rows"].as_array()?.iter().find(is_it)?["miss_ratio"].as_f64()
        };
        Some((misses(3.0)? - misses(5.0)?) / (misses(1.0)? - misses(3.0)?))
    });
    let mean = slopes.into_iter().sum::<Option<f64>>()? / SEVEN.len() as f64;
    Some(format!("{mean:.3} of the slope before 3%, mean of the seven workloads at Zipf's 0.99"))
}

/// The runtime's throughput compared with another configuration's, on the same disk.
fn over(result: &Value, workload: &str, other: &str) -> Option<f64> {
    let of = |config| rows(result, config).find(|row| row["workload"] == workload)?["ops_per_s"].as_f64();
    Some(of("fulgurite")? / of(other)?)
}

/// Updates of a table, with many under way.
fn updates(result: &Value) -> Option<String> {
    let (update, read) = (over(result, "gups", "os-swap")?, over(result, "gups --mix 100", "os-swap")?);
    Some(format!("{update:.2} times the throughput of swap with its threads, reads alone {read:.2}, on a disk"))
}

/// Reads of a mapped file, with many under way.
fn mapped(result: &Value) -> Option<String> {
    let (mapped, swap) = (over(result, "mmap-bench", "mmap")?, over(result, "mmap-bench", "os-swap")?);
    Some(format!("{mapped:.2} times the throughput of a mapped file with its threads, {swap:.2} of swap, on a disk"))
}

/// The runtime's number for a finding, with the file, the day and the program that it is from. None
/// where it was not measured, or where the kept result is not there.
pub fn figure(results: &Path, check: &str, finding: &str) -> Option<String> {
    let kept = KEPT.iter().find(|kept| kept.check == check && kept.finding == finding)?;
    let result: Value = serde_json::from_str(&fs::read_to_string(results.join(kept.file)).ok()?).ok()?;
    let program = result["machine"]["program"].as_str().unwrap_or("an earlier program");
    let day = result["machine"]["day"].as_str().unwrap_or("undated");
    Some(format!("{} ({}, {day}, {program})", (kept.read)(&result)?, kept.file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn what_is_kept_is_of_a_check() {
        for kept in &KEPT {
            assert!(checks::all().any(|check| check.id == kept.check), "{}", kept.check);
        }
    }
    #[test]
    fn every_kept_result_has_its_day() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let mut count = 0;
        for entry in fs::read_dir(results).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let result: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                let day = result["machine"]["day"].as_str().unwrap_or("undated");
                let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
                let parts: Vec<&str> = day.strip_prefix("20").unwrap_or(day).split('-').collect();
                assert!(parts.len() == 3 && parts.into_iter().all(digits), "{}: {day}", path.display());
                count += 1;
            }
        }
        assert!(count > 30);
    }
    #[test]
    fn every_kept_number_can_be_read() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        for kept in &KEPT {
            let told = figure(&results, kept.check, kept.finding);
            let whole = |told: &String| told.contains(kept.file) && !told.contains("undated");
            assert!(told.as_ref().is_some_and(whole), "{}.{}: {told:?}", kept.check, kept.finding);
        }
        assert_eq!(figure(Path::new("nowhere"), "A5", "astriflash"), None);
    }
}
