//! Goal: benchmarks and demonstration end at small sizes, with every key, possible numbers, and the
//! same work in all configurations. Method: run each into files in an empty directory, and read the
//! JSON, the drawing, the report. No figure is compared to a target.

use std::collections::HashSet;
use std::path::Path;

use quick::{bench_and_table, is_left_out, number, rows, whole};
use serde_json::Value;

use crate::quick;
use crate::refused::{refused, run};

/// Runs the program, and returns its JSON and its drawing.
fn bench(directory: &Path, words: &[&str]) -> (Value, String) {
    let (json, drawing, _) = bench_and_table(directory, words);
    (json, drawing)
}

#[test]
fn micro() {
    let directory = tempfile::tempdir().unwrap();
    let (json, drawing) = bench(directory.path(), &["micro", "--rounds", "2"]);
    whole(&json, &drawing);
    for row in rows(&json, "rows") {
        let name = row["name"].as_str().expect("a figure has a name");
        // A difference may be below zero on a disturbed machine, and a share may be zero.
        let positive = !name.contains("overhead") && !name.contains("cpu") && !name.contains("crowded");
        let (min, median, max) = (number(row, "min"), number(row, "median"), number(row, "max"));
        assert!(min <= median && median <= max, "{row}");
        assert!(!positive || min > 0.0, "{row}");
        let rounds = rows(row, "rounds").len();
        assert!((1..=2).contains(&rounds), "{row}");
        assert_eq!(number(&json, name), median, "the key next to the machine is the median");
    }
    for key in
        ["switch_ns", "hit_overhead_ns", "miss_cpu_ns", "miss_cpu_write_ns", "job_ns", "miss_p50_ns", "miss_p99_ns"]
    {
        number(&json, key);
        assert!(drawing.contains(key), "{key} is not drawn");
    }
    let notes = json["setting"]["notes"].to_string();
    for key in ["fault_ns", "fault_bare_ns", "fault_share"] {
        assert!(json[key].is_number() || notes.contains("Page faults are left out"), "{key}: {notes}");
    }
    assert!(number(&json["setting"], "frames") > 0.0 && number(&json["setting"], "work_iterations") > 0.0);
}

#[test]
fn predictions_come_first_and_are_compared_with_the_measurement() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let done = |words: &[&str]| {
        let output = run(at, words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let micro = ["micro", "--quick", "--rounds", "1", "--config", "switch", "--system", "s.toml"];
    assert!(done(&micro).contains("model = \"workers\""));
    let some = if fulgurite_testkit::is_full() { &["tatp", "hash-table"][..] } else { &["tatp"] };
    let workloads = some.join(",");
    let predict = ["sim", "predict", "s.toml", "--quick", "--miss-every", "10us"];
    let table = done(&[&predict[..], &["--out", "p.json"]].concat());
    assert!(table.contains("tatp") && table.contains("fulgurite"), "{table}");
    if fulgurite_testkit::is_full() {
        // A second run predicts the same, because nothing is measured here.
        let written = std::fs::read_to_string(at.join("p.json")).unwrap();
        done(&[&predict[..], &["--out", "q.json"]].concat());
        let again = std::fs::read_to_string(at.join("q.json")).unwrap();
        assert_eq!(again.replace("q.json", "p.json"), written);
    }
    let live = ["live", "--quick", "--workload", &workloads, "--config", "fulgurite", "--rounds", "1"];
    done(&[&live[..], &["--miss-every", "10us", "--zipf", "1.2", "--json", "live.json"]].concat());
    let both: Value =
        serde_json::from_str(&done(&["sim", "predict", "--from", "p.json", "--compare-with", "live.json", "--json"]))
            .unwrap();
    let rows = both["rows"].as_array().unwrap();
    assert_eq!(rows.len(), some.len(), "{both}");
    for row in rows {
        let (ours, simple) = (number(row, "share_of_dram_only"), number(row, "simple_share"));
        assert!(ours > 0.0 && ours <= simple + 0.01 && simple <= 1.0 && number(row, "measured") > 0.0, "{row}");
    }
    assert!(done(&["sim", "predict", "--from", "p.json", "--compare-with", "live.json"]).contains("points off"));
    let five = std::fs::read_to_string(at.join("live.json")).unwrap();
    let five = five.replace("\"miss_every_ns\": 10000", "\"miss_every_ns\": 5000");
    std::fs::write(at.join("five.json"), five).unwrap();
    let nand_only = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/nand-only.toml");
    for (words, part) in [
        (&["sim", "predict", nand_only][..], "fulgurite-lab micro --system"),
        (&["sim", "predict", "--from", "p.json", "--compare-with", "p.json"], "p.json: not what was expected"),
        (&["sim", "predict", "--from", "nowhere.json", "--compare-with", "live.json"], "nowhere.json"),
        (&["sim", "predict", "--from", "p.json", "--compare-with", "five.json"], "the time between misses must agree"),
        (&["sim", "predict"], "SYSTEM"),
        (&["micro", "--of", "pool"], "--system"),
        (&["micro", "--of", "resident", "--system", "t.toml"], "use fulgurite, pool or os-swap"),
        (&["micro", "--system", "no/such.toml"], "--system"),
    ] {
        refused(at, words, &[part]);
    }
}

#[test]
fn policies() {
    if !fulgurite_testkit::is_full() {
        return println!("SKIPPED: it records all workloads, which takes long; make test-full");
    }
    let directory = tempfile::tempdir().unwrap();
    let lines: String = (0..2000).map(|i| format!("{} {} 0 {i}\n", i * i % 5000, i % 9 + 1)).collect();
    std::fs::create_dir(directory.path().join("blocks")).unwrap();
    std::fs::write(directory.path().join("blocks/small.lis"), lines).unwrap();
    let words = ["policies", "--traces", "blocks"];
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
    // Each stream at six sizes, three policies, two methods to hear of hits.
    assert_eq!(rows_of.len(), streams.len() * 6 * 3 * 2);
    let standings = rows(&json, "standings");
    assert_eq!(standings.len(), 6);
    assert!(standings.iter().all(|s| number(s, "misses_over_least") >= 1.0 && number(s, "points") > 0.0));
}

/// Every key that a row must have, with a number that can be.
fn whole_row(row: &Value) {
    for key in ["workload", "config", "flash", "work_hash"] {
        assert!(row[key].as_str().is_some_and(|text| !text.is_empty()), "{key} is missing in {row}");
    }
    let not_negative = |key: &str| {
        assert!(number(row, key) >= 0.0, "{key} in {row}");
    };
    for key in ["misses_per_s", "device_reads", "device_writes", "device_write_requests", "device_read_requests"] {
        not_negative(key);
    }
    for key in ["workers", "dram_bytes", "data_bytes", "rounds", "ops_per_s", "cpu_us_per_op", "p50_us"] {
        assert!(number(row, key) > 0.0, "{key} in {row}");
    }
    let guarded = row["config"] == "fulgurite" || row["config"] == "resident";
    assert!(!guarded || (0.0..=1.0).contains(&number(row, "miss_ratio")), "{row}");
    for key in ["work_us_per_miss", "accesses_per_miss"] {
        assert!(if number(row, "misses_per_s") > 0.0 && guarded {
            number(row, key) > 0.0
        } else {
            row.get(key).is_some()
        });
    }
    assert!(number(row, "p50_us") <= number(row, "p99_us") && number(row, "p99_us") <= number(row, "p999_us"), "{row}");
    let share = &row["share_of_dram_only"];
    let (min, median, max) = (number(share, "min"), number(share, "median"), number(share, "max"));
    assert!(0.0 < min && min <= median && median <= max, "{row}");
    if let Some(limit) = row["cgroup_limit_bytes"].as_f64() {
        assert!(number(row, "cgroup_peak_bytes") > 0.0 && number(row, "cgroup_peak_bytes") <= limit, "{row}");
    }
}

/// The configurations of a workload; all of them have done the same work.
fn configs_of<'v>(rows: &'v [Value], workload: &str) -> Vec<&'v str> {
    let rows: Vec<&Value> = rows.iter().filter(|row| row["workload"] == workload).collect();
    assert!(
        rows.iter().all(|row| row["work_hash"] == rows[0]["work_hash"]),
        "{workload}: other work in one of {rows:?}"
    );
    rows.iter().filter_map(|row| row["config"].as_str()).collect()
}

#[test]
fn live() {
    let directory = tempfile::tempdir().unwrap();
    let some = if fulgurite_testkit::is_full() { &["array-swap", "hash-table"][..] } else { &["array-swap"] };
    // More data than a cgroup of budget and allowance holds: with rights, the kernel pages, too.
    let workloads = some.join(",");
    let words = ["live", "--workload", &workloads, "--data", "96M", "--dram", "8M"];
    let (json, drawing, told) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    for workload in some {
        let configs = configs_of(rows, workload);
        for config in ["dram-only", "resident", "fulgurite", "priority-aging", "fifo", "flash-sync"] {
            assert!(configs.contains(&config), "{workload}: {config} is missing in {configs:?}");
        }
        for skippable in ["os-swap", "mmap"] {
            assert!(configs.contains(&skippable) || is_left_out(skippable, &told), "{told}");
        }
    }
    for row in rows {
        whole_row(row);
        let config = row["config"].as_str().unwrap_or_default();
        assert!(told.contains(config), "{config} is not in the table: {told}");
        if config == "fulgurite" {
            let (dram, own) = (number(row, "dram_bytes"), number(row, "workload_dram_bytes"));
            assert!(dram == f64::from(8 << 20) && own > 0.0 && own < dram, "{row}");
            assert!(number(row, "misses_per_s") > 0.0 && number(row, "device_reads") > 0.0, "{row}");
        }
        assert!(row["device_limit_per_s"].is_null(), "an emulated device has no limit of its own: {row}");
    }
}

#[test]
fn quick_is_the_setting_of_the_headline() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["live", "--quick", "--workload", "hash-table", "--config", "fulgurite", "--rounds", "1"];
    let live = |more: &[&str]| {
        let words = [&words[..], &["--data", "32M", "--dram", "8M", "--json", "out.json"], more].concat();
        let output = run(directory.path(), &words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let json = std::fs::read_to_string(directory.path().join("out.json")).unwrap();
        serde_json::from_str::<Value>(&json).unwrap()
    };
    let headline = live(&[]);
    let row = &rows(&headline, "rows")[1];
    assert_eq!((row["config"].as_str(), number(&row["calibration"], "miss_every_ns")), (Some("fulgurite"), 10_000.0));
    assert!(number(row, "misses_per_s") > 0.0, "{row}");
    // What is asked for counts.
    let asked = live(&["--work", "0"]);
    let calibration = &rows(&asked, "rows")[1]["calibration"];
    assert!(calibration["miss_every_ns"].is_null(), "{calibration}");
}

/// What a cgroup allows in addition to the budget.
const ALLOWANCE: f64 = (64 << 20) as f64;

#[test]
fn every_workload_stays_in_a_cgroup_of_its_budget() {
    let directory = tempfile::tempdir().unwrap();
    // More data than the cgroup holds: a process that keeps more is killed, and the run fails.
    // Others take as long again.
    let all = ["hash-table", "tpcc", "masstree", "array-swap", "rbt", "tatp", "silo"];
    let some = if fulgurite_testkit::is_full() { &all[..] } else { &all[..1] };
    let workloads = some.join(",");
    let words = ["live", "--workload", &workloads, "--config", "fulgurite,pool", "--data", "96M", "--dram", "8M"];
    let words = [&words[..], &["--rounds", "1"]].concat();
    let (json, _, told) = bench_and_table(directory.path(), &words);
    assert_eq!(json["failed"], serde_json::json!([]), "{told}");
    for workload in some {
        assert_eq!(configs_of(rows(&json, "rows"), workload), ["dram-only", "fulgurite", "pool"]);
    }
    for row in rows(&json, "rows").iter().filter(|row| row["config"] != "dram-only") {
        let Some(limit) = row["cgroup_limit_bytes"].as_f64() else {
            println!("SKIPPED: no right to make a memory cgroup; run as root to test the cap");
            return;
        };
        let (peak, dram) = (number(row, "cgroup_peak_bytes"), number(row, "dram_bytes"));
        println!("{} {}: peak {:.1} of {:.1} MiB", row["workload"], row["config"], peak / 1048576.0, limit / 1048576.0);
        assert_eq!((dram, limit), (f64::from(8 << 20), dram + ALLOWANCE), "{row}");
        assert!(0.0 < peak && peak <= limit && limit < number(row, "data_bytes"), "{row}");
        assert!(
            told.contains(&fulgurite_format::format_bytes(peak as u64)),
            "the peak of {row} is not printed: {told}"
        );
    }
}

#[test]
fn live_on_a_file() {
    let directory = tempfile::tempdir_in(Path::new(crate::PROGRAM).parent().unwrap()).unwrap();
    let words = ["live", "--workload", "array-swap", "--config", "resident,fulgurite", "--data", "32M"];
    let words: Vec<&str> = words.into_iter().chain(["--dram", "8M", "--flash", "./flash", "--create"]).collect();
    let (json, drawing) = bench(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    rows.iter().for_each(whole_row);
    assert_eq!(configs_of(rows, "array-swap"), ["dram-only", "resident", "fulgurite"]);
    let fulgurite = &rows[2];
    for (value, spread) in
        [("device_limit_per_s", "device_limit_spread"), ("share_of_device_limit", "share_of_device_limit_spread")]
    {
        let (median, spread) = (number(fulgurite, value), &fulgurite[spread]);
        assert!(median > 0.0 && median == number(spread, "median"), "{value} in {fulgurite}");
        assert!(number(spread, "min") <= median && median <= number(spread, "max"), "{value} in {fulgurite}");
    }
    let has_fio = fulgurite["fio_per_s"].is_number();
    let notes = json["setting"]["notes"].to_string();
    assert!(has_fio || notes.contains("fio"), "no figure of fio, and no word why: {notes}");
    let mut left: Vec<_> = directory.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["out.json", "out.svg"], "a file of the flash was left");
}

#[test]
fn two_workers_next_to_one() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("SKIPPED: two workers need two cores");
    }
    let directory = tempfile::tempdir().unwrap();
    let words = ["live", "--workers", "2", "--config", "resident", "--workload", "hash-table", "--data", "32M"];
    let words: Vec<&str> = words.into_iter().chain(["--dram", "16M"]).collect();
    let (json, drawing, told) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    // All setups, also the one with one worker, are compared before the program says that all is
    // well.
    assert_eq!(configs_of(rows, "hash-table"), ["dram-only", "resident"]);
    for row in rows {
        whole_row(row);
        assert_eq!(number(row, "workers"), 2.0);
        let speedup = &row["speedup_over_one_worker"];
        let (min, median, max) = (number(speedup, "min"), number(speedup, "median"), number(speedup, "max"));
        assert!(0.0 < min && min <= median && median <= max, "{row}");
    }
    assert!(told.contains("2 workers do"), "{told}");
}

#[test]
fn checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["checkpoint", "--dir", ".", "--data", "32M"];
    let (json, drawing) = bench(directory.path(), &words);
    whole(&json, &drawing);
    assert_eq!(number(&json["setting"], "checkpoints_due"), 3.0);
    let rows = rows(&json, "rows");
    let ways: Vec<&str> = rows.iter().map(|row| row["way"].as_str().expect("a way has a name")).collect();
    assert_eq!(ways, ["plain", "file", "dump", "fork", "behind", "fulgurite", "sync"]);
    for row in rows {
        let way = row["way"].as_str().unwrap();
        assert_eq!(
            number(row, "updates"),
            4.0 * 5000.0,
            "an update takes 10 µs, and there is a turn after the last one"
        );
        assert_eq!(row["work_hash"], rows[0]["work_hash"], "all have done the same");
        assert!(number(&row["share_of_plain"], "median") > 0.0 && number(row, "cpu_us_per_update") > 0.0, "{row}");
        let keeps = !["plain", "fulgurite"].contains(&way);
        // Checkpoints due while one is being made merge with it. The computation itself makes none
        // at that time.
        let made = number(&row["checkpoints"], "median");
        assert_eq!(made > 0.0, keeps, "{row}");
        assert!(made <= 3.0 && (made == 3.0 || !["file", "dump"].contains(&way)), "{row}");
        for key in ["durable_ms", "written_bytes_per_checkpoint"] {
            assert_eq!(row[key].is_null(), !keeps, "{key} of {row}");
        }
        let longest = &row["longest_gap_ms"];
        assert!(number(longest, "min") <= number(longest, "median") && number(longest, "min") > 0.0, "{row}");
        // What was read back is the last checkpoint, without the last turn's updates unless it was
        // put off.
        let restored = row["restored_updates"].as_array().expect("a list");
        assert_eq!(restored.len(), usize::from(keeps), "{row}");
        if ["file", "dump"].contains(&way) {
            assert_eq!(restored[0], 3 * 5000, "{row}");
        }
        assert!(restored.iter().all(|updates| (5000..=20_000).contains(&updates.as_u64().unwrap())), "{row}");
        if ["file", "dump"].contains(&way) {
            // A lone thread stands still for the whole time. Two clocks may differ in the last
            // digit.
            assert!(number(longest, "max") >= number(&row["durable_ms"], "max") * 0.8, "{row}");
        }
    }
    let written = |way: usize| number(&rows[way], "written_bytes_per_checkpoint");
    assert_eq!((written(2), written(3)), (32.0 * 1024.0 * 1024.0, 32.0 * 1024.0 * 1024.0), "a dump writes all");
    assert!(
        written(1) <= 2.0 * 1024.0 * 1024.0 && written(4) > 0.0 && written(6) > 0.0,
        "what was changed: a sixteenth"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing stays but the results");
}
