//! Goal: `tail --quick` ends above a configuration's capacity and says so: each load is there
//! or explained, and saturated rows are marked. Method: run it with loads on both sides of the
//! capacities, and read the JSON and the drawing. No figure is compared to a target.

use std::process::Command;

use fulgurite_testkit::is_full;
use serde_json::Value;

/// On both sides of what waiting for each miss can do, and at what plain memory can.
fn loads() -> &'static [f64] {
    if is_full() { &[5.0, 18.0, 50.0, 93.0, 100.0] } else { &[5.0, 50.0, 100.0] }
}

#[test]
fn loads_beyond_what_a_configuration_can_do() {
    let directory = tempfile::tempdir().unwrap();
    let loads: Vec<String> = loads().iter().map(f64::to_string).collect();
    let (count, loads) = (loads.len(), loads.join(","));
    let output = Command::new(crate::PROGRAM)
        .args(["tail", "--quick", "--loads", &loads, "--config", "dram-only,fulgurite,flash-sync"])
        .args(["--data", "64M", "--dram", "8M", "--json", "out.json", "--plot", "out.svg"])
        .current_dir(directory.path())
        .output()
        .expect("the program starts");
    let (told, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{wrong}");
    let text = std::fs::read_to_string(directory.path().join("out.json")).expect("the JSON was written");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(json["failed"], serde_json::json!([]));
    let notes: String = json["setting"]["notes"].to_string();
    for config in ["dram-only", "fulgurite", "flash-sync"] {
        let these: Vec<&Value> = rows.iter().filter(|r| r["config"] == config).collect();
        let number =
            |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {row}"));
        for row in &these {
            let load = number(row, "load_percent");
            // None where other work disturbed each measurement of it.
            let most = row["max_share"].as_f64();
            let saturated = config != "dram-only" && most.is_some_and(|most| load / 100.0 / most > 0.985);
            assert_eq!(row["saturated"], Value::Bool(saturated), "{row}");
            assert!(number(row, "ops_per_s") > 0.0 && number(row, "cpu_us_per_op") > 0.0, "{row}");
            let too_disturbed = row["too_disturbed"] == Value::Bool(true);
            for key in ["p50_us", "p99_us", "p999_us", "service_p50_us", "service_p99_us"] {
                // A round from which other work took time makes no figure, and its absence is
                // reported.
                assert_eq!(row[key].is_null(), too_disturbed, "{key} of {row}");
                assert!(too_disturbed || number(row, key) > 0.0, "{row}");
            }
            let told = format!("{config}: other work took");
            assert!(!too_disturbed || notes.contains(&told), "{notes}");
            assert!(!too_disturbed || number(&row["taken_share"], "max") > 0.01, "{row}");
            assert!(row["work_hash"].is_string(), "the data was checked");
        }
        if these.len() < count || these.iter().any(|r| r["saturated"] == Value::Bool(true)) {
            assert!(notes.contains(config), "{config} was offered less or more than it can do, unsaid: {notes}");
            assert!(told.contains(&format!("{config} ")), "{told}");
        }
    }
    assert_eq!(rows.iter().filter(|r| r["config"] == "dram-only").count(), count);
    let drawing = std::fs::read_to_string(directory.path().join("out.svg")).expect("the drawing was written");
    assert!(drawing.starts_with("<svg") && !drawing.contains("NaN") && !drawing.contains("inf"));
}
