//! Goal: a replay is the run that was recorded, byte for byte, and one recording serves all
//! systems. Method: each kind of paging, modelled and executed, is run, recorded and replayed. Then
//! one recording runs on all kinds.

use std::sync::Arc;

use fulgurite_sim::cores::{CoresReport, CoresSystem, Front, RECORDED_THREADS};
use fulgurite_sim::system::{RunInput, System};
use fulgurite_sim::{Recording, RunError};

use crate::common::{SHAPES, cores, cores_text};

const KINDS: [&str; 4] = ["switch", "system", "wait", "dram-only"];
const EXECUTED: Front = Front::Executed { instructions: 2000, own: 4 };

/// Few jobs over little data.
fn small(paging: &str, more: &[(&str, &str)]) -> CoresSystem {
    let set = [
        ("system.paging", paging),
        ("workload.data", "8M"),
        ("cache.sets", "128"),
        ("run.warm_up", "100"),
        ("run.jobs", "600"),
    ];
    cores(&[&set[..], more].concat())
}
/// This system as a file, with less data.
fn small_text() -> String {
    let text = cores_text().replace("data = \"128M\"", "data = \"8M\"").replace("sets = 4096", "sets = 128");
    text.replace("warm_up = 5000", "warm_up = 100").replace("jobs = 20000", "jobs = 600")
}
fn executed_text() -> String {
    let text = small_text().replace(SHAPES, "");
    text.replace("front = \"modelled\"\n", "front = \"executed\"\ninstructions = 2000\nown = 4\n")
}
fn json(report: &CoresReport) -> String {
    serde_json::to_string(report).unwrap()
}
fn replayed(system: &CoresSystem, seed: u64, recording: &Arc<Recording>) -> CoresReport {
    system.run_with(seed, &Front::Recorded(recording.clone()), false).unwrap()
}

#[test]
fn a_replay_is_the_run_byte_for_byte() {
    for front in [Front::Modelled, EXECUTED] {
        for paging in KINDS {
            let system = small(paging, &[]);
            let run = json(&system.run_with(3, &front, false).unwrap());
            let (report, recording) = system.record(3, &front, false).unwrap();
            assert_eq!(json(&report), run, "{paging}, {front:?}: recording changes the run");
            // Through its bytes, as from a file.
            let recording = Arc::new(Recording::read(recording.bytes().to_vec()).unwrap());
            assert_eq!(json(&replayed(&system, 3, &recording)), run, "{paging}, {front:?}");
            // What is recorded again is the same.
            let again = system.record(3, &front, false).unwrap().1;
            assert_eq!(again.bytes(), recording.bytes());
            assert_ne!(system.record(4, &front, false).unwrap().1.identity(), recording.identity());
        }
    }
}
#[test]
fn one_recording_serves_all_systems() {
    for (front, paging) in [(Front::Modelled, "dram-only"), (EXECUTED, "dram-only"), (EXECUTED, "switch")] {
        let (_, recording) = small(paging, &[]).record(1, &front, false).unwrap();
        let recording = Arc::new(recording);
        let summary = recording.summary();
        assert!(summary.loads > summary.stores && summary.stores > 0 && summary.instructions > summary.loads);
        let reports = KINDS.map(|paging| replayed(&small(paging, &[]), 1, &recording));
        let [switch, system, wait, dram] = reports.each_ref().map(|report| report.jobs_per_s);
        assert!(dram > switch && switch > system && system > wait, "{dram} {switch} {system} {wait}");
        // With nothing else at random, the seed of the replay decides nothing.
        let other = replayed(&small("dram-only", &[]), 2, &recording);
        assert_eq!(json(&other), json(&reports[3]));
        // Smaller caches see the same jobs.
        let smaller = replayed(&small("switch", &[("llc.size", "64K"), ("cache.sets", "64")]), 1, &recording);
        assert!(smaller.memory_accesses_per_job > reports[0].memory_accesses_per_job);
        assert!(smaller.misses > reports[0].misses);
    }
}
#[test]
fn a_file_replays_by_its_front() {
    let recorded = [("workload.front".to_owned(), "recorded".to_owned())];
    for text in [small_text(), executed_text()] {
        let read = |set: &[(String, String)], given: RunInput<'_>| System::read("s.toml", &text, set, given).unwrap();
        let system = read(&[], RunInput::Nothing);
        let (report, recording) = system.record(1).unwrap();
        let recording = Arc::new(recording);
        let replay = read(&recorded, RunInput::Recording(&recording));
        assert_eq!(replay.record(1).unwrap_err(), RunError::NoJobs);
        assert_eq!(
            serde_json::to_string(&replay.run(1).unwrap().found).unwrap(),
            serde_json::to_string(&report.found).unwrap()
        );
        // The recording is a part of what the result is of.
        let (_, other) = system.record(2).unwrap();
        let other = Arc::new(other);
        assert_ne!(read(&recorded, RunInput::Recording(&other)).hash(), replay.hash());
        let printed = System::resolved("s.toml", &text, &recorded, RunInput::Recording(&recording)).unwrap();
        assert!(printed.contains(replay.hash()), "{printed}");
    }
}
#[test]
fn recordings_that_do_not_fit_are_refused() {
    let told = |text: &str, set: &[(&str, &str)], given: RunInput<'_>| {
        let set: Vec<(String, String)> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        System::read("s.toml", text, &set, given).unwrap_err().to_string()
    };
    let text = small_text();
    let record = |text: &str| {
        let (_, recording) = System::read("s.toml", text, &[], RunInput::Nothing).unwrap().record(1).unwrap();
        Arc::new(recording)
    };
    let recording = record(&text);
    let given = RunInput::Recording(&recording);
    for (key, value, part) in [
        ("workload.name", "rbt", "the recording is of hash-table"),
        ("workload.data", "16M", "the recording is of 8.0 MiB"),
        ("workload.exponent", "1.1", "the recording has 1"),
        ("run.jobs", "1200", "the recording ends before the run"),
        ("threads.count", "100", "on 202 threads"),
    ] {
        let message = told(&text, &[("workload.front", "recorded"), (key, value)], given);
        assert!(message.starts_with("s.toml:") && message.contains(part), "{key}: {message}");
    }
    // As many threads as a recording has jobs for by itself.
    let most = (RECORDED_THREADS - 1).to_string();
    let set = [("workload.front", "recorded"), ("threads.count", most.as_str())];
    let set = set.map(|(key, value)| (key.to_owned(), value.to_owned()));
    System::read("s.toml", &text, &set, given).unwrap();
    assert!(told(&text, &[("workload.front", "recorded")], RunInput::Nothing).contains("--trace"));
    assert!(told(&text, &[], given).contains("write \"recorded\""));
    assert!(told(&crate::common::workers_text(), &[], given).contains("replays no recording"));
    // An executed one has to say the same, and warms up no more DRAM than was recorded.
    let executed = executed_text();
    let recording = record(&executed);
    let given = RunInput::Recording(&recording);
    for (key, value, part) in [
        ("workload.own", "5", "the recording has 4"),
        ("workload.instructions", "5", "the recording has 2000"),
        ("cache.sets", "256", "warms up 512 pages of DRAM, and there are 1024"),
    ] {
        let message = told(&executed, &[("workload.front", "recorded"), (key, value)], given);
        assert!(message.starts_with("s.toml:") && message.contains(part), "{key}: {message}");
    }
    // Where no file is read, a run says it.
    let error = small("switch", &[("run.jobs", "5000")]).run_with(1, &Front::Recorded(recording), false);
    assert!(error.unwrap_err().to_string().contains("the recording"));
}
