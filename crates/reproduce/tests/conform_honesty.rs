//! Goal: no check can pass because its result was put in, and no model can be wrong unseen.
//! Method: calibrations and models are searched for the papers' results. Bugs are planted in the
//! models one by one, and each must bring at least one finding out of its band that holds without
//! it. All checks, run short, give the same bytes in every build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fulgurite_reproduce::calibration::{Kind, Value};
use fulgurite_reproduce::models::Planted;
use fulgurite_reproduce::{Check, Effort, Paper, Report, Row, Verdict, checks, reproduce};
use fulgurite_sim::Planted as Bug;

/// Results with digits of their own. Those that any value could have (50, 10, 95, 3) are found by
/// the other tests, or not at all.
const RESULTS: [f64; 24] = [
    366.7, 436.0, 432.2, 95.8, 66.8, 3.8, 38_900.67, 38_901.0, 88_750.12, 88_750.0, 85_360.93, 85_361.0, 162_148.72,
    162_149.0, 54.43, 45.27, 1.64, 3.7, 4.7, 1.58, 17.4, 5.5, 12.7, 17.1,
];
/// Values that have a result's digits, and are not it.
const NOT_RESULTS: [&str; 0] = [];

fn checks_of(ids: &[&str]) -> Vec<&'static Check> {
    checks::all().filter(|check| ids.contains(&check.id)).collect()
}
fn run(checks: &[&Check], planted: Option<Planted>) -> Report {
    let effort = Effort { shorter: 60, moves: false, threads: 1, planted };
    reproduce(checks, effort, Path::new("nowhere"), false, &|_| {}).unwrap()
}
/// One in eight, others with each seed. All of them are for `make test-full`.
fn some<T: Copy>(all: &[T]) -> Vec<T> {
    let each = if fulgurite_testkit::is_full() { 1 } else { 8 };
    let first = fulgurite_testkit::seed() as usize % each;
    all.iter().skip(first).step_by(each).copied().collect()
}
fn holding(report: &Report) -> BTreeSet<String> {
    let holds = |row: &&Row| !matches!(row.verdict, Verdict::Fail | Verdict::Undecided);
    report.rows.iter().filter(holds).map(Row::name).collect()
}
fn kept() -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduction.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn no_calibration_holds_a_result() {
    for paper in Paper::ALL {
        let calibration = paper.calibration().unwrap();
        for (name, leaf) in calibration.leaves() {
            let Value::Numbers(numbers) = &leaf.value else { continue };
            for number in numbers {
                let found = RESULTS.iter().any(|result| (number / result - 1.0).abs() < 1e-9);
                assert!(!found || NOT_RESULTS.contains(&name.as_str()), "{paper:?}: {name} = {number} is a result");
            }
        }
    }
}
#[test]
fn no_fitted_value_is_what_its_check_states() {
    let kept = kept();
    for paper in Paper::ALL {
        let calibration = paper.calibration().unwrap();
        for (name, leaf) in calibration.leaves().iter().filter(|(_, leaf)| matches!(leaf.kind, Kind::Fitted(_))) {
            let Value::Numbers(numbers) = &leaf.value else { panic!("{name} is fitted and no number") };
            for row in kept.rows.iter().filter(|row| leaf.kind.is_fitted_to(&row.check, &row.finding)) {
                // The stated numbers of the row, with their digits.
                let stated = row.stated.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|n| n.parse().ok());
                let stated: Vec<f64> = stated.collect();
                assert!(numbers.iter().all(|number| !stated.contains(number)), "{name} is {numbers:?}: {}", row.stated);
            }
        }
    }
}
#[test]
fn no_model_holds_a_result() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/models");
    let mut lines = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().take_while(|line| *line != "mod tests {") {
            lines += 1;
            let code = line.split("//").next().unwrap_or_default();
            let numbers = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
            for number in numbers.filter_map(|word| word.replace('_', "").parse::<f64>().ok()) {
                let is_one = RESULTS.iter().any(|result| (number / result - 1.0).abs() < 1e-9);
                assert!(!is_one, "{}: {line}", path.display());
            }
        }
    }
    assert!(lines > 300, "the models were not found");
}
#[test]
fn each_planted_bug_is_found() {
    // The checks that a bug concerns: others would only take time.
    let concerned: [(Planted, &[&str]); 17] = [
        (Planted::Simulated(Bug::FreeTags), &["AS2", "A13"]),
        (Planted::Simulated(Bug::FreeFlush), &["A8", "A13"]),
        (Planted::Simulated(Bug::NoForwardProgress), &["A8"]),
        (Planted::NoAging, &["A10"]),
        (Planted::FreeBroadcast, &["A15"]),
        (Planted::Simulated(Bug::FreeSetup), &["C5", "C6"]),
        (Planted::Simulated(Bug::FreeInvalidation), &["C4", "C5"]),
        (Planted::Simulated(Bug::OneCrossing), &["C9"]),
        (Planted::NoBarrier, &["C3"]),
        (Planted::Simulated(Bug::SwappedOperations), &["C7"]),
        (Planted::Simulated(Bug::EndlessBuffer), &["C6"]),
        (Planted::NoReadAround, &["D9", "D10"]),
        (Planted::NoSoftware, &["D13", "D14"]),
        (Planted::PrefetchLost, &["D9", "D11"]),
        (Planted::DeadPagesWear, &["D15"]),
        (Planted::Unpacked, &["B3", "B7"]),
        (Planted::VersionLost, &["D3"]),
    ];
    for planted in some(&Planted::ALL) {
        let (_, ids) = concerned.iter().find(|(bug, _)| *bug == planted).expect("each bug concerns some check");
        let sound = holding(&run(&checks_of(ids), None));
        assert!(!sound.is_empty(), "{planted:?}: none of {ids:?} holds without it");
        // A check that has no answer any more has no finding that holds.
        let with = holding(&run(&checks_of(ids), Some(planted)));
        let found = sound.iter().filter(|name| !with.contains(*name)).count();
        assert!(found > 0, "{planted:?} changes no verdict of {ids:?}");
    }
}
#[test]
fn all_checks_give_the_same_bytes_in_every_build() {
    let all: Vec<&Check> = checks::all().collect();
    let update = std::env::var_os("UPDATE").is_some();
    let mut hashes: BTreeMap<String, String> = include_str!("short-runs.hash")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(check, hash)| (check.to_owned(), hash.to_owned()))
        .collect();
    let (mut rows, mut changed) = (Vec::new(), Vec::new());
    for check in if update { all } else { some(&all) } {
        let report = run(&[check], None);
        if hashes.insert(check.id.to_owned(), report.hash()) != Some(report.hash()) {
            changed.push(check.id);
        }
        rows.extend(report.rows);
    }
    if update {
        let lines: Vec<String> = hashes.iter().map(|(check, hash)| format!("{check} {hash}\n")).collect();
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/short-runs.hash"), lines.concat()).unwrap();
    }
    assert!(
        update || changed.is_empty(),
        "models have changed, or a build gives other bytes: {changed:?}; UPDATE=1 cargo test -p fulgurite-reproduce \
         all_checks_give keeps what they give now"
    );
    let kept = kept();
    let known: Vec<&Row> = kept.rows.iter().filter(|row| row.verdict == Verdict::Fail).collect();
    // What fails at full length, with its reason, fails here.
    let is_known = |row: &Row| known.iter().any(|other| other.name() == row.name());
    // A statement has no interval, so that random numbers of a short run may deny it.
    let simulated = |row: &&Row| checks::all().any(|check| check.id == row.check && check.simulated);
    let failed: Vec<&Row> = rows
        .iter()
        .filter(simulated)
        .filter(|row| row.error.is_some() || row.verdict == Verdict::Fail && row.band.is_some())
        .filter(|row| row.error.is_some() || !is_known(row))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
