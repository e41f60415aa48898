//! A benchmark's quick run, and what it wrote: for the tests that run them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the program in a directory, and returns its JSON, its drawing, and what it printed.
///
/// `live` adds no computing, unless it is asked to. With the computing of the headline, each
/// workload is calibrated first.
pub fn bench_and_table(directory: &Path, words: &[&str]) -> (Value, String, String) {
    let says = ["--work", "--miss-every", "--zipf"].iter().any(|option| words.contains(option));
    let work: &[&str] = if words.first() == Some(&"live") && !says { &["--work", "0"] } else { &[] };
    let output = Command::new(crate::PROGRAM)
        .args(words)
        .args(work)
        .args(["--quick", "--json", "out.json", "--plot", "out.svg"])
        .current_dir(directory)
        .output()
        .expect("the program starts");
    let (told, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {told}{wrong}");
    assert!(!told.trim().is_empty(), "{words:?} prints a table");
    let json = std::fs::read_to_string(directory.join("out.json")).expect("the JSON was written");
    let drawing = std::fs::read_to_string(directory.join("out.svg")).expect("the drawing was written");
    (serde_json::from_str(&json).expect("JSON"), drawing, told.into_owned())
}

/// Whether a note that was printed says why a baseline has no row: this machine cannot run it, or
/// its cgroup could not hold it.
pub fn is_left_out(baseline: &str, told: &str) -> bool {
    let skipped = format!("{baseline} is skipped");
    told.lines().any(|line| line.contains(&skipped) || line.contains(baseline) && line.contains(" is left out: "))
}

/// A number that can be one.
pub fn number(of: &Value, key: &str) -> f64 {
    let number = of[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {of}"));
    assert!(number.is_finite(), "{key} is {number}");
    number
}

/// A list.
pub fn rows<'v>(of: &'v Value, key: &str) -> &'v Vec<Value> {
    of[key].as_array().unwrap_or_else(|| panic!("{key} is no list"))
}

/// Holds what every result holds: the machine, the command, a drawing with numbers.
pub fn whole(json: &Value, drawing: &str) {
    assert!(number(&json["machine"], "cores") >= 1.0);
    assert!(json["command"].as_str().is_some_and(|c| c.starts_with("fulgurite-")));
    assert_eq!(json["interrupted"], Value::Bool(false));
    assert!(rows(json, "failed").is_empty(), "{json}");
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "a drawing without numbers");
}
