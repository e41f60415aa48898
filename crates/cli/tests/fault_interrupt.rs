//! Goal: Ctrl-C ends a benchmark soon, with exit code 130, with what was measured until then, and with nothing left behind.
//! Method: start `bench live` and `bench tail`, wait until the first configurations are made, interrupt; look at the code, at
//! the JSON, at the directory, at cgroups and swap. With root and cgroups the kernel's paging takes part.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::groups_of;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the program until it has calibrated and a moment longer, interrupts it, and returns its JSON.
fn interrupted(words: &[&str], moment: Duration) -> serde_json::Value {
    // On a real file system: swap files cannot lie on others.
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let mut program = Command::new(PROGRAM)
        .args(words)
        .args(["--json=out.json", "--scratch=."])
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Zipf exponent")), "{words:?} ended before it was calibrated");
    // Read on, or the program waits for us.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
    std::thread::sleep(moment);
    let pid = program.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    rustix::process::kill_process(rustix::process::Pid::from_child(&program), rustix::process::Signal::INT).unwrap();
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match program.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() >= end => {
                let _ = program.kill();
                panic!("{words:?} did not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(130), "{words:?}");
    rest.join().unwrap();
    let json = std::fs::read_to_string(directory.path().join("out.json")).expect("the JSON was written");
    let left: Vec<_> = directory.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["out.json"], "{words:?} left something");
    let here = directory.path().to_string_lossy().into_owned();
    assert!(!std::fs::read_to_string("/proc/swaps").unwrap_or_default().contains(&here), "a swap file is in use");
    for child in children.split_whitespace() {
        assert!(groups_of(child).is_empty(), "a cgroup is still there");
        assert!(!Path::new(&format!("/proc/{child}")).exists(), "process {child} is still there");
    }
    serde_json::from_str(&json).expect("JSON")
}

fn whole(json: &serde_json::Value) {
    assert_eq!(json["interrupted"], serde_json::json!(true));
    for row in json["rows"].as_array().expect("rows") {
        let share = &row["share_of_dram_only"];
        assert!(share.is_null() || share["median"].as_f64().is_some_and(|s| s > 0.0), "a share of nothing: {row}");
        assert!(row["rounds"].as_u64().is_some_and(|n| n > 0), "{row}");
    }
}

#[test]
fn live() {
    for moment in [0, 2500] {
        whole(&interrupted(&["bench", "live", "--quick", "--rounds=200"], Duration::from_millis(moment)));
    }
}

#[test]
fn tail() {
    whole(&interrupted(&["bench", "tail", "--quick", "--rounds=200", "--data=64M", "--dram=8M"], Duration::ZERO));
    let words = ["bench", "tail", "--quick", "--rounds=200", "--data=64M", "--dram=8M", "--config=fulgurite"];
    let json = interrupted(&words, Duration::from_secs(5));
    whole(&json);
    let rows = json["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "loads that were offered are kept");
    for key in ["device_reads", "device_writes", "miss_ratio", "misses_per_s"] {
        assert!(rows.iter().all(|row| row[key].is_number()), "{key}");
    }
    for key in ["work_hash", "work_us_per_miss", "share_of_dram_only"] {
        assert!(rows.iter().all(|row| row.get(key).is_some()), "{key}");
    }
}
