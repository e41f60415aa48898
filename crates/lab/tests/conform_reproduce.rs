//! Goal: `fulgurite-lab reproduce` says what it finds, where it was asked to, and refuses what it
//! cannot do before it computes. Method: run it on the checks that take no time, with each of its
//! options, with files and pipes that cannot be written, and in a directory without kept results.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fulgurite_reproduce::{Report, checks};

use crate::refused::{entries, refused, run};

use crate::PROGRAM;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("plain text")
}
fn done(directory: &Path, words: &[&str]) -> Output {
    let output = run(directory, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{words:?}: {}", text(&output.stderr));
    output
}

#[test]
fn findings_are_shown_with_their_counts() {
    let directory = tempfile::tempdir().unwrap();
    let shown = text(&done(directory.path(), &["reproduce", "a2", "A3.ways", "D1"]).stdout);
    for part in ["A2  AstriFlash, cost of memory", "PASS        cost: 20 times lower; band: 19.8 .. 20.2", "D1  NVMM"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    // The directory has no kept results.
    assert!(shown.contains("paper: 20x; live: not measured"));
    assert!(shown.ends_with("8 findings of 3 checks: 6 PASS, 0 CALIBRATED, 2 TREND, 0 UNDECIDED, 0 FRAGILE, 0 FAIL\n"));
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert_eq!(entries(directory.path()), Vec::<String>::new());
}
#[test]
fn the_list_and_the_calibrations_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    let list = text(&done(directory.path(), &["reproduce", "--list"]).stdout);
    for check in checks::all() {
        let has = |line: &str| line.trim_start().starts_with(check.id) && line.contains(check.about);
        assert!(list.lines().any(has), "{} is not in {list}", check.id);
    }
    let config = text(&done(directory.path(), &["reproduce", "--print-config", "B"]).stdout);
    assert!(config.starts_with("# ssdalloc.toml: ") && config.contains("page.size = { value = 4096, unit = \"B\""));
    assert!(!config.contains("astriflash"));
}
#[test]
fn results_go_where_they_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let printed = text(&done(directory.path(), &["reproduce", "D1", "--json"]).stdout);
    let report: Report = serde_json::from_str(&printed).expect("only JSON on standard output");
    let again = done(directory.path(), &["reproduce", "D1", "--json", "found.json"]);
    assert!(text(&again.stdout).contains("D1  NVMM"));
    let drawn = done(directory.path(), &["reproduce", "D16", "--report", "found.html"]);
    assert!(text(&drawn.stdout).contains("D16  NVMM"));
    assert_eq!(entries(directory.path()), ["found.html", "found.json"]);
    let kept: Report = serde_json::from_str(&fs::read_to_string(directory.path().join("found.json")).unwrap()).unwrap();
    assert_eq!((kept.hash(), kept.rows.len()), (report.hash(), report.rows.len()));
    let page = fs::read_to_string(directory.path().join("found.html")).unwrap();
    assert!(page.contains("D16.ratio") && page.matches("<svg").count() >= 7);
    let links = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http") && !links.contains("NaN") && !links.contains(">inf<"), "a page of its own");
}
#[test]
fn kept_results_are_read_where_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let shown = text(&done(directory.path(), &["reproduce", "AS1", "--results", results]).stdout);
    assert!(shown.contains("ns a switch of fibers (micro.json"), "{shown}");
}
#[test]
fn what_it_cannot_do_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let no = |words: &[&str], parts: &[&str]| {
        let output = refused(directory.path(), words, parts);
        assert!(output.stdout.is_empty(), "{words:?}");
    };
    no(&["reproduce", "A99"], &["there is no check \"A99\"", "A1, A2", "AS, B, C and D"]);
    no(&["reproduce", ""], &["there is no check \"\""]);
    no(&["reproduce", "A5", "E.x"], &["there is no check \"E.x\""]);
    no(&["reproduce", "--json", "no/such.json"], &["--json no/such.json", "does not exist"]);
    no(&["reproduce", "--report", "."], &["--report ."]);
    no(&["reproduce", "--json", "x", "--report", "x"], &["--report x is the file of --json"]);
    no(&["reproduce", "--json", "x", "--report", "./x"], &["--report ./x is the file of --json"]);
    no(&["reproduce", "--results", "nowhere"], &["--results nowhere is no directory"]);
    no(&["reproduce", "--list", "--json"], &["cannot be used with"]);
    no(&["reproduce", "--print-config", "--report", "x"], &["cannot be used with"]);
    assert_eq!(entries(directory.path()), Vec::<String>::new());
}
#[test]
fn a_full_disk_is_reported_and_the_findings_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    // A report draws curves that take some seconds.
    for option in if fulgurite_testkit::is_full() { &["--json", "--report"][..] } else { &["--json"] } {
        let output = run(directory.path(), &["reproduce", "D1", option, "/dev/full"]);
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(text(&output.stdout).contains("D1  NVMM"), "{option}: what was found is lost");
        let told = text(&output.stderr);
        assert!(told.contains("/dev/full could not be written") && told.contains("No space left"), "{told}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let program = Command::new(PROGRAM).args(["reproduce", "D1"]).stdout(full).output().unwrap();
    assert_eq!(program.status.code(), Some(1));
    assert!(text(&program.stderr).contains("standard output cannot be written"));
}
#[test]
fn a_reader_that_went_away_is_no_error() {
    let mut program = Command::new(PROGRAM)
        .args(["reproduce", "--print-config"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(program.stdout.take());
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
