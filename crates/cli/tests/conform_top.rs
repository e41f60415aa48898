//! Goal: `fulgurite top` shows the programs that run under `fulgurite run`, children included, with
//! what they do, and no others. Nothing is left of those that ended. Method: C programs that write
//! more than their DRAM and then hold it. `--json` and `--once` are read while they hold it, after
//! one is killed, and as another user. What cannot be shown is refused in a sentence. A screen on a
//! terminal ends by a key and by a signal. Unit tests of the command check what is drawn.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::runs::{FULGURITE, cannot, command, compiled, text};

/// A program that holds memory of flash. Killed when dropped.
struct Holder {
    child: Child,
    /// Its process, and its child's process, if it has one.
    pids: Vec<u64>,
}

impl Holder {
    /// None where the machine cannot, which is said.
    fn start(flash: &Path, words: &[&str]) -> Option<Holder> {
        let run = ["--dram", "24M", "--flash-size", "128M", "--flash", flash.to_str().unwrap(), "--"];
        let mut command = command(None, &[&run, words].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut pids = Vec::new();
        // With a second argument of the program, there are two of them.
        for _ in 1..words.len() {
            let Some(line) = lines.next() else {
                let output = child.wait_with_output().unwrap();
                assert!(cannot(&output), "{:?}: {}", output.status, text(&output.stderr));
                return None;
            };
            let line = line.unwrap();
            pids.push(line.strip_suffix(" holds").and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{line}")));
        }
        pids.sort_unstable();
        Some(Holder { child, pids })
    }
    /// Ends its input, and tells what became of it.
    fn end(mut self) -> (bool, String) {
        drop(self.child.stdin.take());
        let mut logged = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
        (self.child.wait().unwrap().success(), logged)
    }
}
impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn top(words: &[&str]) -> Output {
    Command::new(FULGURITE).arg("top").args(words).output().unwrap()
}
/// Rows of `--json`.
fn rows(words: &[&str]) -> Vec<Value> {
    let output = top(&[&["--json"], words].concat());
    let logged = text(&output.stdout);
    assert!(output.status.success(), "{logged}{}", text(&output.stderr));
    serde_json::from_str(&logged).unwrap_or_else(|e| panic!("{logged}: {e}"))
}
fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"))
}

#[test]
fn programs_that_run_are_shown_until_they_end() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "holds") else { return };
    let program = program.to_str().unwrap();
    let Some(one) = Holder::start(directory.path(), &[program, "48"]) else { return };
    let two = Holder::start(directory.path(), &[program, "32", "fork"]).expect("the first one runs");
    assert_eq!((one.pids.len(), two.pids.len()), (1, 2));
    let all = [&one.pids[..], &two.pids].concat();
    // Others may run at the same time.
    let seen: Vec<Value> = rows(&[]).into_iter().filter(|row| all.contains(&row["pid"].as_u64().unwrap())).collect();
    assert!(seen.len() == 3 && seen.is_sorted_by_key(|row| row["pid"].as_u64()), "{seen:?}");
    for row in &seen {
        assert_eq!(row["program"], "holds", "{row}");
        let (used, peak, cap) = (number(row, "used_bytes"), number(row, "peak_bytes"), number(row, "cap_bytes"));
        assert!(1e6 < used && used <= peak && peak <= cap && cap <= f64::from(24 << 20), "{row}");
        // All was written, and did not fit.
        let pages = if row["pid"] == one.pids[0] { 48 * 256 } else { 32 * 256 };
        assert!(number(row, "faults") >= f64::from(pages), "{row}");
        assert!(number(row, "bytes_written") >= f64::from(pages * 4096) - cap, "{row}");
        assert!(number(row, "waited_s") > 0.0 && number(row, "errors") == 0.0, "{row}");
        assert!((0.0..=1.0).contains(&number(row, "hit_ratio")) && row["faults_per_s"].is_null(), "{row}");
    }
    assert_eq!(number(&rows(&[&one.pids[0].to_string()])[0], "cap_bytes"), f64::from(24 << 20));

    let table = text(&top(&["--once"]).stdout);
    for pid in &all {
        assert!(table.contains(&pid.to_string()), "{table}");
    }
    rates_are_of_the_time_between_two_samples(&one.pids[0].to_string());
    others_see_nothing(directory.path(), &one.pids[0].to_string());

    let (right, logged) = two.end();
    assert!(right, "its figures changed nothing of its memory: {logged}");
    let killed = one.pids[0].to_string();
    drop(one);
    let left: Vec<Value> = rows(&[]).into_iter().filter(|row| all.contains(&row["pid"].as_u64().unwrap())).collect();
    assert_eq!(left, Vec::<Value>::new(), "of programs that ended");
    let output = top(&["--json", &killed]);
    let logged = text(&output.stderr);
    assert!(output.status.code() == Some(2) && logged.contains("does not run under `fulgurite run`"), "{logged}");
}

/// A line each time, until the reader has enough.
fn rates_are_of_the_time_between_two_samples(pid: &str) {
    let mut command = Command::new(FULGURITE);
    command.args(["top", "--json", "--every", "20ms", pid]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lines.len() == 3 && lines[0][0]["faults_per_s"].is_null(), "{lines:?}");
    // It holds its memory and does nothing.
    assert_eq!(lines[2][0]["bytes_written_per_s"], 0.0, "{lines:?}");
}

/// Root's programs are not shown to others.
fn others_see_nothing(directory: &Path, pid: &str) {
    if !rustix::process::getuid().is_root() {
        return println!("SKIPPED: only root can inspect as another user");
    }
    let confined = compiled(directory, "confined").expect("there is a compiler");
    let as_other =
        |words: &[&str]| Command::new(&confined).args(["user", "--", FULGURITE, "top"]).args(words).output().unwrap();
    let output = as_other(&["--json", pid]);
    let logged = text(&output.stderr);
    assert!(output.status.code() == Some(2) && logged.contains("may not inspect it"), "{logged}");
    let output = as_other(&["--json"]);
    assert!(output.status.success() && !text(&output.stdout).contains(&format!("\"pid\": {pid},")), "{output:?}");
}

#[test]
fn what_cannot_be_shown_is_said() {
    let output = top(&[]);
    let logged = text(&output.stderr);
    assert!(output.status.code() == Some(2) && logged.contains("standard output is no terminal"), "{logged}");
    assert!(logged.contains("--once") && logged.contains("--json"), "{logged}");
    // This process has no page buffer.
    let own = std::process::id().to_string();
    for words in [&[&own[..]][..], &["--once", &own], &["--json", &own]] {
        let output = top(words);
        let logged = text(&output.stderr);
        assert!(output.status.code() == Some(2) && logged.contains(&format!("process {own} does not run")), "{logged}");
    }
    for words in [&["--every", "0s"][..], &["--once", "--json"], &["self"]] {
        assert_eq!(top(words).status.code(), Some(2), "{words:?}");
    }
}

/// A screen on a terminal that `script` makes, until it has drawn itself.
struct OnTerminal {
    script: Child,
    pid: i32,
    output: std::process::ChildStdout,
    shown: Vec<u8>,
}

impl OnTerminal {
    /// None without `script`, which is said.
    fn start() -> Option<OnTerminal> {
        let line = format!("stty rows 20 cols 90; echo process $$,; exec {FULGURITE} top --every 50ms");
        let mut script = Command::new("script");
        script.args(["-q", "-e", "-c", &line, "/dev/null"]);
        let started = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut script = match started {
            Ok(child) => child,
            Err(error) => {
                println!("SKIPPED: no script ({error}); apt-get install bsdutils");
                return None;
            }
        };
        let mut output = script.stdout.take().unwrap();
        let (mut shown, begun) = (Vec::new(), Instant::now());
        // The line of keys is the last that is drawn.
        while !text(&shown).contains("q end") {
            let mut bytes = [0; 4096];
            let count = output.read(&mut bytes).unwrap();
            assert!(count > 0 && begun.elapsed() < Duration::from_secs(60), "{}", text(&shown));
            shown.extend(&bytes[..count]);
        }
        let logged = text(&shown);
        let pid = logged.split_once("process ").and_then(|(_, rest)| rest.split_once(',')?.0.parse().ok());
        Some(OnTerminal { script, pid: pid.unwrap_or_else(|| panic!("no process: {logged}")), output, shown })
    }
    /// The code with which it ends. It leaves the terminal as it was.
    fn ends(mut self) -> Option<i32> {
        self.output.read_to_end(&mut self.shown).unwrap();
        let (logged, status) = (text(&self.shown), self.script.wait().unwrap());
        assert!(logged.contains("\x1b[?1049h") && logged.contains("\x1b[?1049l"), "{logged}");
        assert!(logged.contains("fulgurite top: ") && logged.contains("program"), "{logged}");
        status.code()
    }
}

#[test]
fn a_screen_ends_by_a_key_and_by_a_signal() {
    let Some(mut screen) = OnTerminal::start() else { return };
    screen.script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    assert_eq!(screen.ends(), Some(0));
    let screen = OnTerminal::start().expect("there is a terminal");
    let pid = rustix::process::Pid::from_raw(screen.pid).expect("it is none of zero");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(screen.ends(), Some(130));
}
