//! Goal: `fulgurite-lab sim` as a user has it: results that repeat, sweeps that go on, explanations
//! that add up, and bad input that is reported before anything runs. Method: the program itself,
//! over the files in `systems` made short.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::refused::{refused, run};

// The simulator's own test of its bytes, in the profile in which users have it.
#[path = "../../sim/tests/common/mod.rs"]
mod common;
#[path = "../../sim/tests/conform_determinism.rs"]
mod conform_determinism;

/// Few requests, and enough that those under way at both ends are below 1%.
const SHORT: [&str; 4] = ["--set", "requests.count=6000", "--set", "requests.warm_up=100"];

/// What makes a run of cores short: fewer cores over less data.
const SHORT_CORES: [&str; 12] = [
    "--set",
    "run.jobs=6000",
    "--set",
    "run.warm_up=1000",
    "--set",
    "system.cores=2",
    "--set",
    "cache.controllers=1",
    "--set",
    "cache.sets=8192",
    "--set",
    "workload.data=4G",
];

/// What makes a run of workers short.
const SHORT_WORKERS: [&str; 8] = [
    "--set",
    "workload.data=32M",
    "--set",
    "dram.frames=400",
    "--set",
    "run.requests=20000",
    "--set",
    "run.warm_up=20000",
];

/// What makes a run of programs over more memory than DRAM short: they fill less of it first.
const SHORT_PAGING: [&str; 2] = ["--set", "program.untimed=100000"];

fn systems() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems").canonicalize().unwrap()
}
fn system(name: &str) -> String {
    systems().join(name).display().to_string()
}
fn done(directory: &Path, words: &[&str]) -> String {
    let output = run(directory, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The words with one of them replaced.
fn instead<'w>(words: &[&'w str], word: &str, by: &'w str) -> Vec<&'w str> {
    assert!(words.contains(&word), "{words:?} lacks {word}");
    words.iter().map(|given| if *given == word { by } else { *given }).collect()
}

/// Requests of one thread of the trace do not overlap, and each is as long as its stages.
fn spans_are_of_their_stages(name: &str, path: &Path) {
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let kinds: Vec<&Value> =
        events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap();
    let (mut ends, mut requests, mut stages) = (BTreeMap::new(), 0.0, 0.0);
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (at, time) = (number(event, "ts"), number(event, "dur"));
        if !kinds.contains(&&event["name"]) {
            stages += time;
            continue;
        }
        requests += time;
        let thread = (event["pid"].to_string(), event["tid"].to_string());
        let before = ends.insert(thread, at + time).unwrap_or(0.0);
        assert!(before <= at + 1e-6, "{name}: a request begins at {at}, before {before}");
    }
    assert!((requests - stages).abs() <= requests * 1e-6, "{name}: {requests} µs in {stages}");
}
#[test]
fn every_system_runs_and_repeats() {
    let directory = tempfile::tempdir().unwrap();
    let mut names: Vec<String> =
        systems().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let file = system(&name);
        let text = std::fs::read_to_string(&file).unwrap();
        let short = match text.lines().find_map(|line| line.strip_prefix("model = ")) {
            Some("\"cores\"") => &SHORT_CORES[..],
            Some("\"workers\"") => &SHORT_WORKERS,
            Some("\"paging\"") => &SHORT_PAGING,
            _ => &SHORT,
        };
        let words = [&["sim", "run", &file, "--json"][..], short].concat();
        let text = done(directory.path(), &words);
        if fulgurite_testkit::is_full() {
            assert_eq!(done(directory.path(), &words), text, "{name}");
        }
        assert!(!text.contains("NaN"), "{name}: {text}");
        let report: Value = serde_json::from_str(&text).unwrap();
        assert!(report["law"]["deviation"].as_f64().unwrap() < 0.01, "{name}");
        let words = [&["sim", "explain", &file, "--spans", "spans.json", "--json"][..], short].concat();
        let explained = done(directory.path(), &words);
        let explained: Value = serde_json::from_str(&explained).unwrap();
        let splits =
            explained.as_object().unwrap().iter().filter(|(key, split)| key.ends_with("stages") && !split.is_null());
        for (_, split) in splits {
            let sum =
                |of: &str| split["stages"].as_array().unwrap().iter().map(|s| s[of].as_f64().unwrap()).sum::<f64>();
            for of in ["mean_ns", "p99_ns"] {
                assert!((sum(of) / split[of].as_f64().unwrap() - 1.0).abs() < 0.001, "{name}: {split}");
            }
        }
        spans_are_of_their_stages(&name, &directory.path().join("spans.json"));
    }
}
#[test]
fn a_sweep_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (system("nand-only.toml"), directory.path().join("out.jsonl"));
    let sweep = |depths: &str| {
        let over = format!("requests.depth={depths}");
        let words =
            ["sim", "sweep", &file, "--out", "out.jsonl", "--over", &over, "--over", "nand.timing.read=25us,75us"];
        done(directory.path(), &[&words[..], &SHORT].concat());
        let text = std::fs::read_to_string(&out).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(sweep("1").len(), 2);
    // As a full disk or a kill leaves it.
    let mut text = std::fs::read_to_string(&out).unwrap();
    text.truncate(text.len() - 20);
    std::fs::write(&out, &text).unwrap();
    let points = sweep("1,4");
    assert_eq!(points.len(), 4);
    let of = |depth: &str, read: &str| {
        let found =
            points.iter().find(|p| p["over"]["requests.depth"] == depth && p["over"]["nand.timing.read"] == read);
        found.unwrap_or_else(|| panic!("{depth} {read}"))["requests_per_s"].as_f64().unwrap()
    };
    assert!(of("4", "25us") > of("1", "25us") && of("1", "25us") > of("1", "75us"));
    assert_eq!(sweep("4").len(), 4, "a point was run again");
}
#[test]
fn a_sweep_keeps_what_is_not_its_own_and_goes_on_after_a_point_without_a_result() {
    let directory = tempfile::tempdir().unwrap();
    let (at, file) = (directory.path(), system("nand-only.toml"));
    std::fs::write(at.join("notes"), "notes without an end").unwrap();
    let set = ["--set", "requests.warm_up=100", "--set", "requests.count=12000"];
    let sweep = [&["sim", "sweep", &file, "--over", "link.command=1000s,1us,2us"][..], &set, &["--out"]].concat();
    refused(at, &[&sweep[..], &["notes"]].concat(), &["notes: its last line has no end"]);
    assert_eq!(std::fs::read_to_string(at.join("notes")).unwrap(), "notes without an end");
    // 12,100 commands one after the other take 140 days.
    let output = run(at, &[&sweep[..], &["o.jsonl"]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("1 of 3 points") && told.contains("link.command=1000s: it takes more than 100 days"),
        "{told}"
    );
    let text = std::fs::read_to_string(at.join("o.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}
#[test]
fn what_is_wrong_is_reported_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (at, file) = (directory.path(), system("nand-only.toml"));
    refused(at, &["sim", "run", "nowhere.toml"], &["nowhere.toml", "cannot be read"]);
    refused(at, &["sim", "run", &file, "--set", "requests.dept=5"], &["did you mean requests.depth?"]);
    refused(at, &["sim", "run", &file, "--set", "depth"], &["KEY=VALUE"]);
    refused(at, &["sim", "run", &file, "--set", "nand.timing.read=75"], &["nand-only.toml:"]);
    refused(at, &["sim", "run", &file, "--trace", "nowhere.csv"], &["nowhere.csv"]);
    let twice = ["--set", "requests.depth=1", "--set", "requests.depth=2"];
    refused(at, &[&["sim", "run", &file][..], &twice].concat(), &["requests.depth is given twice"]);
    let twice = ["--out", "o.jsonl", "--set", "requests.depth=1", "--over", "requests.depth=2"];
    refused(at, &[&["sim", "sweep", &file][..], &twice].concat(), &["requests.depth is given twice"]);
    std::fs::write(at.join("a.toml"), "model = \"flash\"\nabout = \"x\"\nsurplus = 1\n").unwrap();
    refused(at, &["sim", "run", "a.toml"], &["a.toml"]);
    refused(at, &["sim", "compare", &file], &["SYSTEM"]);
    let sweep = |over: &str, parts: &[&str]| {
        refused(at, &["sim", "sweep", &file, "--out", "o.jsonl", "--over", over], parts);
        assert!(!at.join("o.jsonl").exists(), "{over}");
    };
    sweep("requests.depth=1,2,1", &["1 is written twice"]);
    sweep("requests.dept=5", &["did you mean requests.depth?"]);
    sweep("requests.depth=5,0", &["requests.depth = 0"]);
    sweep("requests.depth=", &["KEY=VALUE"]);
    std::fs::write(at.join("o.txt"), "my notes\n").unwrap();
    let words = ["sim", "sweep", &file, "--out", "o.txt", "--over", "requests.depth=5"];
    refused(at, &words, &["o.txt:1", "not the result of a sweep"]);
    std::fs::write(at.join("t.csv"), "0 0 0 8 1\n0 0 x 8 1\n").unwrap();
    refused(at, &["sim", "trace", "t.csv"], &["t.csv", "line 2"]);
    std::fs::write(at.join("m.trace"), "0x40 READ 5\n").unwrap();
    refused(at, &["sim", "trace", "m.trace"], &["--clock"]);
}
#[test]
fn no_result_replaces_another_or_what_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let text = std::fs::read_to_string(system("nand-only.toml")).unwrap();
    std::fs::write(at.join("s.toml"), &text).unwrap();
    std::fs::write(at.join("a.trace"), "0 0 0 16 1\n").unwrap();
    std::os::unix::fs::symlink("s.toml", at.join("link.json")).unwrap();
    let same = |words: &[&str], parts: &[&str]| {
        refused(at, words, &[parts, &["name another file"]].concat());
    };
    same(&["sim", "run", "s.toml", "--json", "s.toml"], &["--json s.toml is the file of s.toml, which is read"]);
    same(&["sim", "run", "s.toml", "--json", "link.json"], &["--json link.json", "s.toml"]);
    same(&["sim", "explain", "s.toml", "--json", "./s.toml"], &["--json ./s.toml"]);
    let cores = system("astriflash.toml");
    same(&["sim", "run", &cores, "--json", "x", "--record", "./x"], &["--record ./x is the file of --json"]);
    same(&["sim", "trace", "a.trace", "--write", "msr", "--out", "a.trace"], &["--out a.trace is the file of a.trace"]);
    same(&["sim", "compare", "s.toml", &cores, "--json", "x.svg", "--plot", "x.svg"], &["--plot x.svg"]);
    let sweep = ["sim", "sweep", "s.toml", "--over", "requests.depth=1", "--out"];
    same(&[&sweep[..], &["s.toml"]].concat(), &["--out s.toml"]);
    same(&[&sweep[..], &["o.svg", "--plot", "o.svg"]].concat(), &["--plot o.svg is the file of --out"]);
    refused(at, &["sim", "compare", "s.toml", &cores, "--plot", "x.txt"], &["a drawing is .svg or .html"]);
    same(&["sim", "predict", "s.toml", "--out", "p.json", "--json", "p.json"], &["--out p.json is the file of --json"]);
    assert_eq!(std::fs::read_to_string(at.join("s.toml")).unwrap(), text);
    // A special file takes several.
    done(at, &[&["sim", "compare", "s.toml", "s.toml", "--json", "/dev/null"][..], &SHORT].concat());
}
/// Runs it full, as far as the program can tell: files cannot be longer than `bytes` bytes.
fn run_full(directory: &Path, bytes: u64, words: &[&str]) -> Output {
    let limit = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes / 512);
    let program = crate::PROGRAM;
    Command::new("sh").args(["-c", &limit, "sh", program]).args(words).current_dir(directory).output().unwrap()
}
#[test]
fn a_full_disk_keeps_what_there_is_and_shows_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let (at, file) = (directory.path(), system("nand-only.toml"));
    let told = |output: &Output, part: &str| {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(part), "{message}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let output = run(at, &[&["sim", "run", &file, "--json", "/dev/full"][..], &SHORT].concat());
    assert!(told(&output, "/dev/full could not be written").contains("requests/s"), "the result is lost");
    for result in ["--json", "--plot"] {
        let compare = ["sim", "compare", &file, &file, result, "/dev/full"];
        let output = run(at, &[&compare[..], &SHORT].concat());
        assert!(told(&output, "/dev/full could not be written").contains("requests/s"), "the results are lost");
    }
    refused(at, &["sim", "sweep", &file, "--out", "/dev/full", "--over", "requests.depth=1"], &["a regular file"]);
    // A sweep keeps whole results, and goes on when there is room.
    let sweep = ["sim", "sweep", &file, "--out", "o.jsonl", "--threads=1", "--over", "requests.depth=1,2,4,8"];
    let sweep = [&sweep[..], &SHORT].concat();
    let output = run_full(at, 4096, &sweep);
    told(&output, "o.jsonl cannot be written; what it has is kept, so run the command again");
    let kept = std::fs::read_to_string(at.join("o.jsonl")).unwrap();
    let whole = |text: &str| text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert!((1..4).contains(&whole(&kept)), "{kept}");
    // A drawing that cannot be written takes no result with it.
    let output = run_full(at, 12_288, &[&sweep[..], &["--plot", "p.html"]].concat());
    told(&output, "p.html could not be written");
    let text = std::fs::read_to_string(at.join("o.jsonl")).unwrap();
    assert!(text.starts_with(&kept[..kept.rfind('\n').unwrap() + 1]) && whole(&text) == 4, "{text}");
    assert!(!at.join("p.html").exists());
    done(at, &[&sweep[..], &["--plot", "p.html"]].concat());
    assert!(at.join("p.html").exists() && std::fs::read_to_string(at.join("o.jsonl")).unwrap() == text);
}
#[test]
fn an_interrupted_sweep_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (at, out) = (directory.path(), directory.path().join("o.jsonl"));
    let (file, over) = (system("nand-only.toml"), "requests.depth=1,2,3,4,5,6,7,8,9,10,11,12");
    let count = ["--set", "requests.count=20000", "--set", "requests.warm_up=100", "--over", over];
    let words = [&["sim", "sweep", &file, "--out", "o.jsonl", "--threads=1"][..], &count].concat();
    let mut program = Command::new(crate::PROGRAM);
    let mut program = program.args(&words).current_dir(at).stderr(Stdio::null()).spawn().unwrap();
    while !std::fs::read_to_string(&out).is_ok_and(|text| text.contains('\n')) {
        assert!(program.try_wait().unwrap().is_none(), "it ended before its first result");
        std::thread::sleep(Duration::from_millis(2));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&program), rustix::process::Signal::INT).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(130));
    let kept = std::fs::read_to_string(&out).unwrap();
    assert!(kept.ends_with('\n') && kept.lines().count() < 12, "{} lines", kept.lines().count());
    let output = run(at, &words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("of 12 points are in o.jsonl already"), "{told}");
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.starts_with(&kept) && text.lines().count() == 12);
}
#[test]
fn a_recording_is_summarised_and_replayed_by_all_systems() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let found = |words: &[&str]| {
        let mut report: Value = serde_json::from_str(&done(at, &[words, &SHORT_CORES].concat())).unwrap();
        // The front and the file are what the hash and the name are of.
        let object = report.as_object_mut().unwrap();
        let hash = object.remove("hash").unwrap();
        (hash, report)
    };
    let replay = ["--set", "workload.front=recorded", "--trace", "jobs.rec"];
    let file = system("astriflash.toml");
    let (hash, first) = found(&["sim", "run", &file, "--json"]);
    assert_eq!(found(&["sim", "run", &file, "--json", "--record", "jobs.rec"]), (hash.clone(), first.clone()));
    let words = [&["sim", "run", &file, "--json"][..], &replay].concat();
    let (other, again) = found(&words);
    assert!(again == first && other != hash);
    let printed = done(at, &[&["sim", "run", &file, "--print-config"][..], &replay, &SHORT_CORES].concat());
    assert!(printed.contains(other.as_str().unwrap()), "{printed}");
    let summary = done(at, &["sim", "trace", "jobs.rec"]);
    assert!(summary.starts_with("recording: 7130 jobs of array-swap, modelled, over 4.0 GiB of data"), "{summary}");
    let summary: Value = serde_json::from_str(&done(at, &["sim", "trace", "jobs.rec", "--json"])).unwrap();
    assert_eq!((&summary["format"], &summary["jobs"]), (&"recording".into(), &7130.into()));
    // All systems do the same jobs.
    let files = ["dram-only", "astriflash", "os-swap", "flash-sync"].map(|name| system(&format!("{name}.toml")));
    let files = files.each_ref().map(String::as_str);
    let words = [&["sim", "compare"][..], &files, &replay, &SHORT_CORES, &["--json"]];
    let reports: Vec<Value> = serde_json::from_str(&done(at, &words.concat())).unwrap();
    assert!(reports.is_sorted_by(|a, b| a["jobs_per_s"].as_f64() > b["jobs_per_s"].as_f64()), "{reports:?}");
    // What is wrong with a recording is reported first.
    let words = [&["sim", "run", &file][..], &replay, &SHORT_CORES].concat();
    refused(at, &instead(&words, "run.jobs=6000", "run.jobs=7000"), &["run.jobs = 7000", "ends before the run"]);
    let bytes = std::fs::read(at.join("jobs.rec")).unwrap();
    std::fs::write(at.join("jobs.rec"), &bytes[..bytes.len() / 2]).unwrap();
    refused(at, &words, &["jobs.rec", "truncated"]);
    refused(at, &["sim", "trace", "jobs.rec"], &["jobs.rec", "truncated"]);
    std::fs::write(at.join("jobs.rec"), "").unwrap();
    refused(at, &words, &["jobs.rec", "no accesses"]);
    refused(at, &["sim", "run", &system("nand-only.toml"), "--record", "x.rec"], &["--record", "cores"]);
    refused(at, &["sim", "run", &file, "--record", "nowhere/x.rec"], &["--record", "does not exist"]);
    let output = run(at, &[&["sim", "run", &file, "--record", "/dev/full"][..], &SHORT_CORES].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("jobs/s"), "the result is lost");
}
#[test]
fn a_trace_is_summarised_written_and_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("a.trace"), "0 0 0 16 1\n200000 0 32 16 0\n900000 0 64 16 1\n").unwrap();
    assert!(done(at, &["sim", "trace", "a.trace"]).contains("mqsim: 3 accesses, 1 of them write"));
    done(at, &["sim", "trace", "a.trace", "--write", "msr", "--out", "b.csv"]);
    assert!(done(at, &["sim", "trace", "b.csv"]).contains("msr: 3 accesses, 1 of them write"));
    // The example of --help by its words, and the same of systems that other simulators have.
    std::fs::rename(at.join("b.csv"), at.join("disk.csv")).unwrap();
    std::os::unix::fs::symlink(systems(), at.join("systems")).unwrap();
    let help = done(at, &["sim", "run", "--help"]).replace("\\\n", " ");
    let example = help.lines().find(|line| line.contains("--trace disk.csv")).expect("an example has a trace");
    let words: Vec<&str> = example.split_whitespace().skip(1).chain(["--json"]).collect();
    for name in ["nand-only", "compat-mqsim", "compat-dramsim3", "compat-hybridsim"] {
        let file = format!("systems/{name}.toml");
        let report: Value = serde_json::from_str(&done(at, &instead(&words, "systems/nand-only.toml", &file))).unwrap();
        assert_eq!((&report["reads"]["count"], &report["writes"]["count"]), (&2.into(), &1.into()), "{name}");
    }
    // Without the trace, and with requests that the file makes.
    refused(at, &words[..words.len() - 3], &["requests.pattern", "--trace"]);
    refused(at, &["sim", "run", "systems/nand-only.toml", "--trace", "disk.csv"], &["write \"trace\""]);
}
#[test]
fn a_trace_runs_on_cores() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let file = system("astriflash.toml");
    let few = ["run.jobs=200", "run.warm_up=50", "system.cores=2", "cache.controllers=1", "cache.sets=8192"];
    let few: Vec<&str> = few.into_iter().flat_map(|set| ["--set", set]).collect();
    let words = ["sim", "run", &file, "--record", "jobs.rec", "--set", "workload.data=4G"];
    done(at, &[&words[..], &few].concat());
    done(at, &["sim", "trace", "jobs.rec", "--write", "ramulator2", "--out", "jobs.trace"]);
    let told = done(at, &["sim", "trace", "jobs.trace"]);
    assert!(told.starts_with("ramulator2: ") && told.ends_with("without times\n"), "{told}");
    refused(at, &["sim", "trace", "jobs.rec", "--write", "fio", "--out", "x.log"], &["a time is needed"]);
    // The keys of a trace in the place of a workload's.
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, behind) = text.split_once("[workload]").unwrap();
    let (_, behind) = behind.split_once("[run]").unwrap();
    let keys = "data = \"4G\"\nfront = \"traced\"\naccesses = 8\ninstructions = 150\ndepends = false\n\
                addresses = \"virtual\"\nwarmed = true\n";
    std::fs::write(at.join("s.toml"), format!("{before}[workload]\n{keys}[run]{behind}")).unwrap();
    let common = [&["sim", "run", "s.toml"][..], &few].concat();
    let traced = |more: &[&'static str]| -> Vec<&str> { [&common[..], more].concat() };
    let words = traced(&["--trace", "jobs.trace", "--json"]);
    let report: Value = serde_json::from_str(&done(at, &words)).unwrap();
    assert_eq!((&report["model"], &report["service"]["count"]), (&"cores".into(), &200.into()));
    assert_eq!(serde_json::from_str::<Value>(&done(at, &words)).unwrap(), report);
    refused(at, &traced(&[]), &["s.toml:", "--trace"]);
    refused(at, &traced(&["--trace", "jobs.rec"]), &["s.toml:", "--trace"]);
    let long = instead(&traced(&["--trace", "jobs.trace"]), "run.jobs=200", "run.jobs=100000");
    refused(at, &long, &["s.toml:", "the trace ends before the run"]);
    let counted = traced(&["--trace", "jobs.trace", "--set", "workload.instructions=trace"]);
    refused(at, &counted, &["s.toml:", "line 1 of the trace has neither"]);
    refused(at, &["sim", "run", &file, "--trace", "jobs.trace"], &["write \"traced\""]);
    refused(at, &[&traced(&["--trace", "jobs.trace"])[..], &["--record", "x.rec"]].concat(), &["--record", "no jobs"]);
}
