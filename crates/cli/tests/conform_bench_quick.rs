//! Goal: `bench micro --quick` and `bench policies --quick` run to their end, and what they write is whole: every key is
//! there, and every number is one that can be.
//! Method: run each into files in an empty directory; read the JSON and the drawing. No figure is compared to a target.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the program, and returns its JSON and its drawing.
fn bench(directory: &Path, words: &[&str]) -> (Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(words)
        .args(["--quick", "--json", "out.json", "--plot", "out.svg"])
        .current_dir(directory)
        .output()
        .expect("the program starts");
    let (told, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {told}{wrong}");
    assert!(!told.trim().is_empty(), "{words:?} prints a table");
    let json = std::fs::read_to_string(directory.join("out.json")).expect("the JSON was written");
    let drawing = std::fs::read_to_string(directory.join("out.svg")).expect("the drawing was written");
    (serde_json::from_str(&json).expect("JSON"), drawing)
}

fn number(of: &Value, key: &str) -> f64 {
    let number = of[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {of}"));
    assert!(number.is_finite(), "{key} is {number}");
    number
}

fn rows<'v>(of: &'v Value, key: &str) -> &'v Vec<Value> {
    of[key].as_array().unwrap_or_else(|| panic!("{key} is no list"))
}

fn whole(json: &Value, drawing: &str) {
    assert!(number(&json["machine"], "cores") >= 1.0);
    assert!(json["command"].as_str().is_some_and(|c| c.starts_with("fulgurite bench")));
    assert_eq!(json["interrupted"], Value::Bool(false));
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "a drawing without numbers");
}

#[test]
fn micro() {
    let directory = tempfile::tempdir().unwrap();
    let (json, drawing) = bench(directory.path(), &["bench", "micro", "--rounds", "2"]);
    whole(&json, &drawing);
    for row in rows(&json, "rows") {
        let name = row["name"].as_str().expect("a figure has a name");
        // A difference of two measurements may be below zero on a disturbed machine, and a share may be zero.
        let positive = !name.contains("overhead") && !name.contains("cpu") && !name.contains("crowded");
        let (min, median, max) = (number(row, "min"), number(row, "median"), number(row, "max"));
        assert!(min <= median && median <= max, "{row}");
        assert!(!positive || min > 0.0, "{row}");
        let rounds = rows(row, "rounds").len();
        assert!((1..=2).contains(&rounds), "{row}");
        assert_eq!(number(&json, name), median, "the key beside the machine is the median");
    }
    for key in
        ["switch_ns", "hit_overhead_ns", "miss_cpu_ns", "miss_cpu_write_ns", "job_ns", "miss_p50_ns", "miss_p99_ns"]
    {
        number(&json, key);
        assert!(drawing.contains(key), "{key} is not drawn");
    }
    assert!(number(&json["setting"], "frames") > 0.0 && number(&json["setting"], "work_iterations") > 0.0);
}

#[test]
fn policies() {
    let directory = tempfile::tempdir().unwrap();
    let lines: String = (0..2000).map(|i| format!("{} {} 0 {i}\n", i * i % 5000, i % 9 + 1)).collect();
    std::fs::create_dir(directory.path().join("blocks")).unwrap();
    std::fs::write(directory.path().join("blocks/small.lis"), lines).unwrap();
    let words = ["bench", "policies", "--traces", "blocks", "--data", "8M", "--workload", "array-swap,hash-table"];
    let (json, drawing) = bench(directory.path(), &words);
    whole(&json, &drawing);
    let rows_of = rows(&json, "rows");
    let mut streams = HashSet::new();
    let mut points = HashSet::new();
    for row in rows_of {
        let stream = row["stream"].as_str().expect("a stream has a name");
        streams.insert(stream);
        let (misses, accesses, ratio) = (number(row, "misses"), number(row, "accesses"), number(row, "miss_ratio"));
        assert!(misses > 0.0 && misses <= accesses && (misses / accesses - ratio).abs() < 1e-9, "{row}");
        assert!(number(row, "frames") >= 1.0 && number(row, "share") > 0.0);
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        assert!(["known", "marked"].contains(&word("hits").as_str()), "{row}");
        assert!(points.insert((stream, word("policy"), word("hits"), row["share"].to_string())), "twice: {row}");
    }
    for stream in ["small", "zipf-0.99", "array-swap 0.8", "array-swap 0.99", "hash-table 0.99"] {
        assert!(streams.contains(stream), "{stream} is missing in {streams:?}");
    }
    // Each stream at six sizes, three policies, two ways to hear of hits.
    assert_eq!(rows_of.len(), streams.len() * 6 * 3 * 2);
    for row in rows(&json, "prefetch") {
        let (ahead, used, wasted) = (number(row, "prefetched"), number(row, "used"), number(row, "wasted"));
        assert!(used + wasted <= ahead, "{row}");
        assert!(row["prefetch"] != "off" || ahead == 0.0, "{row}");
    }
    let standings = rows(&json, "standings");
    assert_eq!(standings.len(), 6);
    assert!(standings.iter().all(|s| number(s, "misses_over_least") >= 1.0 && number(s, "points") > 0.0));
}
