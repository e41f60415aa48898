//! A command that is interrupted, and what it leaves: for the tests of the laboratory and of the
//! demonstration.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::PROGRAM;
use crate::common::groups_of;

const PATIENCE: Duration = Duration::from_secs(120);

/// What an interrupted command left.
pub struct Left {
    /// Standard output after the line that was waited for.
    pub printed: String,
    /// Files in its directory.
    pub files: Vec<String>,
    /// The report of a demonstration, if there is one.
    pub report: Option<String>,
    /// Its JSON, if it came so far.
    pub json: Option<serde_json::Value>,
}

/// Runs the program until it has printed `line` and a moment longer, and interrupts it.
pub fn interrupt(words: &[&str], line: Option<&str>, moment: Duration) -> Left {
    // On a real file system: swap files cannot be on others.
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let mut program = Command::new(PROGRAM)
        .args(words)
        .arg("--json=out.json")
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    if let Some(part) = line {
        assert!(lines.any(|line| line.unwrap().contains(part)), "{words:?} ended before it printed \"{part}\"");
    }
    // Read on, or the program waits for us.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).map(|line| line + "\n").collect::<String>());
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
    let printed = rest.join().unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut files: Vec<_> = directory.path().read_dir().unwrap().map(name).collect();
    files.sort();
    let here = directory.path().to_string_lossy().into_owned();
    assert!(!std::fs::read_to_string("/proc/swaps").unwrap_or_default().contains(&here), "a swap file is in use");
    for child in children.split_whitespace() {
        assert!(groups_of(child).is_empty(), "a cgroup is still there");
        assert!(!Path::new(&format!("/proc/{child}")).exists(), "process {child} is still there");
    }
    let json = std::fs::read_to_string(directory.path().join("out.json")).ok();
    let report = std::fs::read_to_string(directory.path().join("fulgurite-demo.html")).ok();
    Left { printed, files, report, json: json.map(|json| serde_json::from_str(&json).expect("JSON")) }
}
