//! Goal: `docs/reproduction.md` is what `fulgurite-lab reproduce` gives, and the checks stay
//! honest. Method: the document's block is rendered from the kept `docs/reproduction.json`
//! (`UPDATE=1 cargo test -p fulgurite-reproduce conform_reproduction::` writes it). Checks without
//! random numbers run here and must give the kept rows to the last digit; all of them do in
//! `make test-full`. Fitted values are counted against the findings that nothing was fitted to.

use std::fs;
use std::path::{Path, PathBuf};

use fulgurite_reproduce::calibration::Kind;
use fulgurite_reproduce::{Check, Effort, Paper, Report, Row, Verdict, checks, live, reproduce};
use fulgurite_testkit as trials;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
fn kept() -> Report {
    let text = fs::read_to_string(root().join("docs/reproduction.json")).expect("a kept result");
    let mut report: Report = serde_json::from_str(&text).expect("made by fulgurite-lab reproduce --json");
    // Benchmarks are measured again without the simulations.
    for row in &mut report.rows {
        row.live = live::figure(&root().join("docs/results"), &row.check, &row.finding);
    }
    report
}
/// One in four checks, others with each seed. All of them are for `make test-full`.
fn of(simulated: bool) -> Report {
    let all = checks::all().filter(|check| check.simulated == simulated);
    let each = if trials::is_full() { 1 } else { 4 };
    let checks: Vec<&Check> = all.skip(trials::seed() as usize % each).step_by(each).collect();
    let effort = Effort { shorter: 1, moves: true, threads: 2, planted: None };
    reproduce(&checks, effort, &root().join("docs/results"), false, &|_| {}).unwrap()
}

/// As a document's block: for each paper where its text disagrees with itself, and its table.
fn markdown(report: &Report) -> String {
    let mut text = format!("`{}`\n\n{}.\n", report.command, report.summary_line());
    for used in &report.calibrations {
        let kinds: Vec<String> = used.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        text += &format!("\n### {}\n\n`{}`, hash `{}`: {}.\n\n", used.paper, used.file, used.hash, kinds.join(", "));
        let mut heading = "| the text disagrees with itself | what is taken | checks |\n|---|---|---|\n";
        for told in checks::disagreements::ALL.iter().filter(|told| told.paper.name() == used.paper) {
            text += &format!("{heading}| {} | {} | {} |\n", told.text, told.taken, told.checks);
            heading = "";
        }
        text += if heading.is_empty() { "\n" } else { "" };
        text += "| check | paper | ours | band | verdict | live | mechanism |\n|---|---|---|---|---|---|---|\n";
        for row in report.rows.iter().filter(|row| row.paper == used.paper) {
            let cells = [
                row.name(),
                row.stated.clone(),
                row.ours_shown(),
                row.band_shown(),
                row.verdict.to_string(),
                row.live.clone().unwrap_or_else(|| "not measured".to_owned()),
                row.explanation(),
            ];
            text += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    text
}

#[test]
fn the_document_is_of_the_kept_result() {
    let path = root().join("docs/reproduction.md");
    let shown = fs::read_to_string(&path).expect("docs/reproduction.md");
    let (begin, end) = ("<!-- begin reproduction -->\n", "<!-- end reproduction -->\n");
    let at = shown.find(begin).expect("the document has a place for it") + begin.len();
    let to = at + shown[at..].find(end).expect("the place ends");
    let mut made = shown.clone();
    made.replace_range(at..to, &markdown(&kept()));
    if made != shown && std::env::var_os("UPDATE").is_some() {
        fs::write(&path, made).expect("docs/reproduction.md can be written");
        return;
    }
    assert!(
        made == shown,
        "docs/reproduction.md is not of docs/reproduction.json; UPDATE=1 cargo test -p fulgurite-reproduce conform_reproduction::"
    );
}
/// They are what the kept result has.
fn assert_kept(report: &Report) {
    let kept = kept();
    for row in &report.rows {
        // As it is kept: reading a number from JSON may change its last bit.
        let row: &Row = &serde_json::from_str(&serde_json::to_string(row).unwrap()).unwrap();
        let same = kept.rows.iter().find(|other| other.name() == row.name());
        assert_eq!(
            same,
            Some(row),
            "the kept result is of another program: fulgurite-lab reproduce --json docs/reproduction.json"
        );
    }
}
#[test]
fn arithmetic_gives_the_kept_rows() {
    let ours = of(false);
    assert_kept(&ours);
    assert!(ours.rows.len() > if trials::is_full() { 90 } else { 15 });
}
#[test]
fn simulations_give_the_kept_rows() {
    // Some minutes: `conform_honesty` runs them short at all times.
    if trials::is_full() {
        assert_kept(&of(true));
    }
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
    // At most this many, from the plan of the simulator.
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
