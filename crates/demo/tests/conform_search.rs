//! Goal: the demonstration indexes a text, searches it in all configurations, and reports it in a
//! table, JSON, a drawing and a report that fetches nothing. It runs on NAND, where there is little
//! data, too, and on a served device. The commands that it ends with exist. Method: run it over a
//! small text in an empty directory. Ask the programs of those commands for help, behind the same
//! options.

use std::path::Path;
use std::process::Command;

use quick::{bench_and_table, is_left_out, number, rows, whole};

use crate::quick;
use crate::served::Served;

#[test]
fn a_search_in_all_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    std::fs::create_dir(&text).unwrap();
    for file in 0..60 {
        let words: String = (0..4000).map(|i| format!("word{} ", (i * i + file * 31) % 9973)).collect();
        std::fs::write(text.join(format!("{file}.txt")), words).unwrap();
    }
    std::fs::write(text.join("copy.txt"), std::fs::read(text.join("0.txt")).unwrap()).unwrap();
    std::fs::write(text.join("data.bin"), [0, 1, 2, 3]).unwrap();
    let words = ["--input", "text", "--report", "out.html"];
    let (json, drawing, told) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    for row in rows {
        for key in ["ops_per_s", "p50_us", "p99_us", "p999_us", "cpu_us_per_op", "rounds"] {
            assert!(number(row, key) > 0.0, "{key} of {row}");
        }
    }
    let configs: Vec<&str> = rows.iter().filter_map(|row| row["config"].as_str()).collect();
    for config in ["dram-only", "fulgurite", "flash-sync"] {
        assert!(configs.contains(&config) && told.contains(config), "{config} is missing in {configs:?}: {told}");
    }
    // Each of them but plain DRAM has as much memory. Without rights there is no cgroup.
    let limited = rows.iter().filter(|row| row["config"] != "dram-only");
    let limits: Vec<_> = limited.map(|row| row["cgroup_limit_bytes"].as_u64()).collect();
    assert!(limits.len() > 1 && limits.iter().all(|limit| *limit == limits[0]), "{limits:?}");
    // So little text fits into the cgroup of kernel paging, which is no comparison.
    assert!(configs.contains(&"os-swap") || is_left_out("os-swap", &told), "{told}");
    for part in ["queries/s", "of DRAM-only", "p99.9 µs", "DRAM it may use", "peak", "$ per GB"] {
        assert!(told.contains(part), "the table lacks \"{part}\": {told}");
    }
    commands_exist(&told);
    assert!(told.contains("Left out: 1 file without text, 1 file with the text of another."), "{told}");
    assert_eq!(number(&json["setting"], "documents"), 60.0);
    assert!(rows.iter().all(|row| number(&row["calibration"], "miss_every_ns") == 10_000.0), "{rows:?}");

    let report = std::fs::read_to_string(directory.path().join("out.html")).expect("the report was written");
    assert!(report.starts_with("<!doctype html>") && report.trim_end().ends_with("</html>"));
    assert!(report.contains("<svg") && report.contains("<table") && report.contains("fulgurite"));
    // Nothing is fetched: addresses are names of namespaces only.
    let fetched = ["src=", "href=", "<link", "<script", "@import", "url(", "<iframe", "<object"];
    for part in fetched {
        for (at, _) in report.match_indices(part) {
            let rest = &report[at + part.len()..];
            let inside = rest.starts_with('#') || rest.starts_with("\"#") || rest.starts_with("\"data:");
            assert!(inside, "the report fetches something: {part}{}", rest.get(..60).unwrap_or(rest));
        }
    }
    assert!(!report.replace("xmlns=\"http://www.w3.org/2000/svg\"", "").contains("http"), "an address in the report");
}

/// The commands to try next name packages, examples, targets, commands and options that exist.
fn commands_exist(told: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let next = told.split_once("To try next:\n").expect("it ends with what to try next").1.replace("\\\n", " ");
    let commands: Vec<&str> = next.lines().take_while(|line| line.starts_with("  ")).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        // Arguments of what make starts stand in quotes.
        let command = command.split('#').next().unwrap().replace("ARGS=", "-- ").replace('"', "");
        let mut parts = command.split(" -- ");
        let (start, words) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        let start: Vec<&str> = start.split_whitespace().collect();
        let program = match start[..] {
            ["make", target] => {
                let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
                let recipe = makefile.split_once(&format!("\n{target}:\n")).expect(target).1.lines().next().unwrap();
                assert!(recipe.contains("-p fulgurite-demo -- $(ARGS)"), "{recipe}");
                crate::PROGRAM.into()
            }
            ["cargo", "run", "--release", "-p", "fulgurite", "--example", name] => {
                assert!(root.join(format!("crates/fulgurite/examples/{name}.rs")).is_file(), "{command}");
                continue;
            }
            ["cargo", "run", "--release", "-p", "fulgurite-cli"] => crate::fulgurite(),
            _ => panic!("no program of this tree: {command}"),
        };
        let helps = |more: &str| {
            let words = words.split_whitespace().chain([more, "--help"]).filter(|word| !word.is_empty());
            Command::new(&program).args(words).output().unwrap().status.success()
        };
        assert!(helps("") && !helps("--no-such-option"), "{command}");
    }
}

/// Writes some text into a directory.
fn text(directory: &std::path::Path) {
    std::fs::create_dir(directory.join("text")).unwrap();
    for file in 0..40u32 {
        let text: String = (0..2000u32).map(|i| format!("word{} ", i * i % (file + 50))).collect();
        std::fs::write(directory.join(format!("text/{file}.txt")), text).unwrap();
    }
}

const SMALL: [&str; 8] = ["--input", "text", "--dram", "4M", "--act", "search", "--report", "demo.html"];

/// A few hundred KiB do not fill a block in each of 256 planes.
#[test]
fn little_data_on_nand() {
    let directory = tempfile::tempdir().unwrap();
    text(directory.path());
    let words = [&SMALL[..], &["--flash", "nand:mlc", "--config", "dram-only,fulgurite"]].concat();
    let (json, ..) = bench_and_table(directory.path(), &words);
    assert_eq!(rows(&json, "rows").len(), 2, "{json}");
}

#[test]
fn on_a_served_device() {
    let directory = tempfile::tempdir().unwrap();
    text(directory.path());
    let _served = Served::start(directory.path(), &["--size", "200M"]);
    let words = [&SMALL[..], &["--flash", "device:dev.sock"]].concat();
    let (json, ..) = bench_and_table(directory.path(), &words);
    assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{}", json["failed"]);
    assert!(json.to_string().contains("at dev.sock"), "nothing ran on the device: {json}");
}
