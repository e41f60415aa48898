//! Goal: `docs/reproduction.md` is what `fulgurite reproduce` gives, and the checks stay honest.
//! Method: the document's block is rendered from the kept `docs/reproduction.json` (`UPDATE=1 cargo
//! test -p fulgurite-reproduce conform_reproduction::` writes it). Checks without random numbers
//! run here and must give the kept rows to the last digit. Simulated ones run shorter and must not
//! fail. Fitted values are counted against the findings that nothing was fitted to.

use std::fs;
use std::path::{Path, PathBuf};

use fulgurite_reproduce::calibration::Kind;
use fulgurite_reproduce::{Check, Effort, Paper, Report, Row, Verdict, checks, live, reproduce};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
fn kept() -> Report {
    let text = fs::read_to_string(root().join("docs/reproduction.json")).expect("a kept result");
    let mut report: Report = serde_json::from_str(&text).expect("made by fulgurite reproduce --json");
    // Benchmarks are measured again without the simulations.
    for row in &mut report.rows {
        row.live = live::figure(&root().join("docs/results"), &row.check, &row.finding);
    }
    report
}
fn of(simulated: bool, effort: Effort) -> Report {
    let checks: Vec<&Check> = checks::all().filter(|check| check.simulated == simulated).collect();
    reproduce(&checks, effort, &root().join("docs/results"), false).unwrap()
}

#[test]
fn the_document_is_of_the_kept_result() {
    let path = root().join("docs/reproduction.md");
    let shown = fs::read_to_string(&path).expect("docs/reproduction.md");
    let (begin, end) = ("<!-- begin reproduction -->\n", "<!-- end reproduction -->\n");
    let at = shown.find(begin).expect("the document has a place for it") + begin.len();
    let to = at + shown[at..].find(end).expect("the place ends");
    let mut made = shown.clone();
    made.replace_range(at..to, &kept().markdown());
    if made != shown && std::env::var_os("UPDATE").is_some() {
        fs::write(&path, made).expect("docs/reproduction.md can be written");
        return;
    }
    assert!(
        made == shown,
        "docs/reproduction.md is not of docs/reproduction.json; UPDATE=1 cargo test -p fulgurite-reproduce conform_reproduction::"
    );
}
#[test]
fn arithmetic_gives_the_kept_rows() {
    let ours = of(false, Effort { shorter: 1, moves: true, threads: 1 });
    let kept = kept();
    for row in &ours.rows {
        // As it is kept: reading a number from JSON may change its last bit.
        let row: &Row = &serde_json::from_str(&serde_json::to_string(row).unwrap()).unwrap();
        let same = kept.rows.iter().find(|other| other.name() == row.name());
        assert_eq!(
            same,
            Some(row),
            "the kept result is of another program: fulgurite reproduce --json docs/reproduction.json"
        );
    }
    assert!(ours.rows.len() > 40);
}
#[test]
fn simulations_do_not_fail_when_they_are_short() {
    let ours = of(true, Effort { shorter: 60, moves: false, threads: 1 });
    // A statement has no interval, so that a short run may deny it by chance.
    let failed: Vec<&Row> = ours.rows.iter().filter(|row| row.verdict == Verdict::Fail && row.band.is_some()).collect();
    assert!(ours.rows.iter().all(|row| row.error.is_none()), "{:?}", ours.rows);
    assert!(failed.is_empty(), "{failed:#?}");
}
#[test]
fn the_kept_result_is_of_these_checks_and_values() {
    let kept = kept();
    for check in checks::all() {
        assert!(kept.rows.iter().any(|row| row.check == check.id), "{} is not in the kept result", check.id);
    }
    for row in &kept.rows {
        assert!(checks::all().any(|check| check.id == row.check), "{} is kept and exists no more", row.check);
        assert!(row.error.is_none(), "{row:?}");
    }
    for paper in Paper::ALL {
        let used = kept.calibrations.iter().find(|used| used.paper == paper.name()).expect("every paper has checks");
        assert_eq!(used.hash, paper.calibration().unwrap().hash(), "{} has changed since", used.file);
    }
}
#[test]
fn fitted_values_are_fewer_than_what_nothing_was_fitted_to() {
    // At most so many, from the plan of the simulator.
    let most = [(Paper::AstriFlash, 3), (Paper::SsdAlloc, 0), (Paper::DramInterface, 3), (Paper::Nvmm, 5)];
    let kept = kept();
    for (paper, most) in most {
        let calibration = paper.calibration().unwrap();
        let fitted: Vec<&Kind> = calibration
            .leaves()
            .values()
            .map(|leaf| &leaf.kind)
            .filter(|kind| matches!(kind, Kind::Fitted(_)))
            .collect();
        let held_out = |row: &&Row| row.paper == paper.name() && row.verdict == Verdict::Pass;
        assert!(fitted.len() <= most, "{paper:?} has {} fitted values", fitted.len());
        assert!(fitted.len() < kept.rows.iter().filter(held_out).count(), "{paper:?}");
        for kind in fitted {
            let names = |row: &Row| kind.is_fitted_to(&row.check, &row.finding);
            assert!(kept.rows.iter().any(names), "{kind} names no finding");
        }
    }
}
