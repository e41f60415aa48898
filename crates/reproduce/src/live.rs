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

const KEPT: [Kept; 5] = [
    Kept { check: "A5", finding: "flash-sync", file: "live-10us.json", read: |result| share(result, "flash-sync") },
    Kept { check: "A5", finding: "astriflash", file: "live-10us.json", read: |result| share(result, "fulgurite") },
    Kept { check: "A12", finding: "data-structures", file: "tail.json", read: |result| service(result, "fulgurite") },
    Kept { check: "A12", finding: "noPS", file: "tail.json", read: |result| service(result, "fifo") },
    Kept { check: "AS1", finding: "hardware", file: "micro.json", read: switch },
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

/// The runtime's number for a finding, with the program and the file that it is from. None where it
/// was not measured, or where the kept result is not there.
pub fn figure(results: &Path, check: &str, finding: &str) -> Option<String> {
    let kept = KEPT.iter().find(|kept| kept.check == check && kept.finding == finding)?;
    let result: Value = serde_json::from_str(&fs::read_to_string(results.join(kept.file)).ok()?).ok()?;
    let program = result["machine"]["program"].as_str().unwrap_or("an earlier program");
    Some(format!("{} ({}, {program})", (kept.read)(&result)?, kept.file))
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
    fn every_kept_number_can_be_read() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        for kept in &KEPT {
            let told = figure(&results, kept.check, kept.finding);
            assert!(told.is_some_and(|told| told.contains(kept.file)), "{}.{}", kept.check, kept.finding);
        }
        assert_eq!(figure(Path::new("nowhere"), "A5", "astriflash"), None);
    }
}
