//! Goal: Ctrl-C ends the demonstration soon, with exit code 130, its results on standard output, in
//! the JSON and in the report, and nothing left behind. Method: start it, wait for a certain line
//! and a moment longer, and interrupt. Check the code, table, JSON, directory, cgroups and swap.

use std::time::Duration;

use crate::interrupted::interrupt;

/// What it prints once it has calibrated.
const CALIBRATED: &str = "Zipf exponent";

/// A directory with some text.
fn text() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in 0..200 {
        let words: String = (0..3000).map(|i| format!("word{} ", i * (file + 7) % 9973)).collect();
        std::fs::write(directory.path().join(format!("{file}.txt")), words).unwrap();
    }
    directory
}

#[test]
fn results_are_kept() {
    let text = text();
    let input = format!("--input={}", text.path().display());
    // The report of an earlier run is kept.
    let old = text.path().join("old.html");
    std::fs::write(&old, "an earlier run").unwrap();
    let report = format!("--report={}", old.display());
    interrupt(&[input.as_str(), "--dir=.", &report], Some("Indexing"), Duration::ZERO);
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "an earlier run");
    // While it indexes: there is nothing to keep.
    let words = [input.as_str(), "--dir=."];
    let left = interrupt(&words, Some("Indexing"), Duration::ZERO);
    assert!(left.files.is_empty() || left.files == ["fulgurite-demo.html", "out.json"], "{:?}", left.files);
    // While it serves.
    let left = interrupt(&words, Some(CALIBRATED), Duration::from_secs(3));
    assert_eq!(left.files, ["fulgurite-demo.html", "out.json"]);
    assert!(left.report.unwrap().contains("(incomplete)"), "the report does not say that it is incomplete");
    let json = left.json.unwrap();
    assert_eq!(json["interrupted"], serde_json::json!(true));
    for row in json["rows"].as_array().unwrap() {
        assert!(left.printed.contains("queries/s"), "no table: {}", left.printed);
        assert!(left.printed.contains(row["config"].as_str().unwrap()), "the table lacks {row}: {}", left.printed);
    }
}
