//! Runs checks: each with the fixed seeds, then with values moved, and says what became of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fulgurite_sim::Estimate;

use crate::calibration::{Calibration, CalibrationError, Kind, Values};
use crate::check::{Check, CheckError, Expected, Finding, Inputs};
use crate::live;
use crate::models::Planted;
use crate::paper::Paper;
use crate::report::{Report, Row, Used, Verdict};

/// The seeds of each simulated check. They are fixed, so that a result is a function of the
/// program.
pub const SEEDS: [u64; 3] = [1, 2, 3];
/// By how much a value that is not in the text moves.
const MOVES: [f64; 2] = [0.8, 1.2];

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs are this many times shorter than those that are reported.
    pub shorter: u64,
    /// Whether values are moved.
    pub moves: bool,
    /// Threads.
    pub threads: usize,
    /// A bug in the models, for tests.
    pub planted: Option<Planted>,
}

/// What a check has come to, and which values it has read.
struct Done {
    rows: Vec<Row>,
    read: BTreeSet<String>,
}

/// Runs checks, in the order in which they are given. `results` is the directory of kept results.
/// With `whole`, the checks are all that there are, and a value that none reads is an error. `each`
/// is called as each check ends.
///
/// # Errors
/// What is wrong with a calibration. A check that has no answer is a row that says so.
pub fn reproduce(
    checks: &[&Check],
    effort: Effort,
    results: &Path,
    whole: bool,
    each: &(dyn Fn() + Sync),
) -> Result<Report, CalibrationError> {
    let calibrations: Vec<(Paper, Calibration)> =
        Paper::ALL.into_iter().map(|paper| Ok((paper, paper.calibration()?))).collect::<Result<_, _>>()?;
    let of = |paper: Paper| &calibrations.iter().find(|(other, _)| *other == paper).expect("all are there").1;
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Done)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..effort.threads.clamp(1, checks.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, check)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    checks.get(at).map(|check| (at, *check))
                } {
                    let result = one(check, of(check.paper), effort, results);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    each();
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    // A check without an answer has not read all of its values.
    if whole && done.iter().all(|(_, done)| done.rows.iter().all(|row| row.error.is_none())) {
        for (paper, calibration) in &calibrations {
            let of_paper = done.iter().filter(|(at, _)| checks[*at].paper == *paper);
            calibration.all_read(&of_paper.flat_map(|(_, done)| done.read.clone()).collect())?;
        }
    }
    let rows: Vec<Row> = done.into_iter().flat_map(|(_, done)| done.rows).collect();
    let used = |(paper, calibration): &(Paper, Calibration)| Used {
        paper: paper.name().to_owned(),
        file: calibration.file().to_owned(),
        hash: calibration.hash(),
        kinds: kinds(calibration),
    };
    let calibrations =
        calibrations.iter().filter(|(paper, _)| checks.iter().any(|check| check.paper == *paper)).map(used).collect();
    let counted = |verdict: Verdict| (verdict, rows.iter().filter(|row| row.verdict == verdict).count());
    let summary = Verdict::ALL.map(counted).to_vec();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let command = "fulgurite reproduce".to_owned();
    Ok(Report { command, version, seeds: SEEDS.to_vec(), calibrations, rows, summary })
}

/// Values by kind, the most frequent first.
fn kinds(calibration: &Calibration) -> Vec<(String, usize)> {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for leaf in calibration.leaves().values() {
        let name = match &leaf.kind {
            Kind::Fitted(_) => "fitted".to_owned(),
            other => other.to_string(),
        };
        match kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    kinds.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    kinds
}

fn one(check: &Check, calibration: &Calibration, effort: Effort, results: &Path) -> Done {
    let seeds = if check.simulated { &SEEDS[..] } else { &SEEDS[..1] };
    let mut read = BTreeSet::new();
    let mut runs = Vec::new();
    for seed in seeds {
        let inputs =
            Inputs { values: Values::new(calibration), seed: *seed, shorter: effort.shorter, planted: effort.planted };
        let found = (check.run)(&inputs);
        read.extend(inputs.values.read());
        match found {
            Ok(found) => runs.push(found),
            Err(error) => return Done { rows: vec![without_answer(check, calibration, &error)], read },
        }
    }
    let flips = if effort.moves { flips(check, calibration, effort, &read, &runs[0]) } else { Vec::new() };
    let rows = (0..runs[0].len())
        .map(|at| {
            let same: Vec<&Finding> = runs.iter().map(|run| &run[at]).collect();
            row(check, calibration, &same, &flips, results)
        })
        .collect();
    Done { rows, read }
}

/// The findings that flip, with the value that flips them.
fn flips(
    check: &Check,
    calibration: &Calibration,
    effort: Effort,
    read: &BTreeSet<String>,
    base: &[Finding],
) -> Vec<(&'static str, String)> {
    let mut flips = Vec::new();
    let assumed = calibration.leaves().iter().filter(|(name, leaf)| leaf.kind != Kind::Text && read.contains(*name));
    for (leaf, _) in assumed {
        for factor in MOVES {
            let values = Values::moved(calibration, leaf, factor);
            let inputs = Inputs { values, seed: SEEDS[0], shorter: effort.shorter, planted: effort.planted };
            // A model that has no answer any more has flipped everywhere.
            let moved = (check.run)(&inputs).unwrap_or_default();
            for finding in base.iter().filter(|finding| holds(finding)) {
                if !moved.iter().any(|other| other.name == finding.name && holds(other)) {
                    flips.push((finding.name, leaf.clone()));
                }
            }
        }
    }
    flips.dedup();
    flips
}

fn holds(finding: &Finding) -> bool {
    match finding.expected {
        Expected::Within(low, high) => (low..=high).contains(&finding.ours.value),
        Expected::Trend(holds) => holds,
    }
}

fn row(
    check: &Check,
    calibration: &Calibration,
    runs: &[&Finding],
    flips: &[(&'static str, String)],
    results: &Path,
) -> Row {
    let first = runs[0];
    let values: Vec<f64> = runs.iter().map(|run| run.ours.value).collect();
    let ours = Estimate::of(&values).expect("there is at least one run");
    let fitted: Vec<String> = calibration
        .leaves()
        .iter()
        .filter(|(_, leaf)| leaf.kind.is_fitted_to(check.id, first.name))
        .map(|(name, _)| name.clone())
        .collect();
    let mut flips: Vec<String> =
        flips.iter().filter(|(name, _)| *name == first.name).map(|(_, leaf)| leaf.clone()).collect();
    flips.dedup();
    let verdict = match first.expected {
        Expected::Trend(_) if !runs.iter().all(|run| holds(run)) => Verdict::Fail,
        Expected::Within(low, high) if !decided(ours, low, high) => Verdict::Undecided,
        Expected::Within(low, high) if !(low..=high).contains(&ours.value) => Verdict::Fail,
        _ if !fitted.is_empty() => Verdict::Calibrated,
        _ if !flips.is_empty() => Verdict::Fragile,
        Expected::Trend(_) => Verdict::Trend,
        Expected::Within(..) => Verdict::Pass,
    };
    let end = |end: f64| end.is_finite().then_some(end);
    let band = match first.expected {
        Expected::Within(low, high) => Some((end(low), end(high))),
        Expected::Trend(_) => None,
    };
    let mean = |at: usize| runs.iter().map(|run| run.also[at].1).sum::<f64>() / runs.len() as f64;
    Row {
        check: check.id.to_owned(),
        finding: first.name.to_owned(),
        about: check.about.to_owned(),
        paper: check.paper.name().to_owned(),
        stated: first.paper.to_owned(),
        ours: Some(ours.value),
        half_width: ours.half_width.filter(|_| check.simulated),
        unit: first.unit.to_owned(),
        band,
        verdict,
        mechanism: first.mechanism.to_owned(),
        fitted,
        flips,
        error: None,
        also: first.also.iter().enumerate().map(|(at, (name, _))| ((*name).to_owned(), mean(at))).collect(),
        live: live::figure(results, check.id, first.name),
        calibration: calibration.hash(),
    }
}

/// Whether the interval lies on one side of each end of the band.
fn decided(ours: Estimate, low: f64, high: f64) -> bool {
    let (least, most) = ours.interval();
    let inside = low <= least && most <= high;
    inside || most < low || least > high
}

fn without_answer(check: &Check, calibration: &Calibration, error: &CheckError) -> Row {
    Row {
        check: check.id.to_owned(),
        finding: String::new(),
        about: check.about.to_owned(),
        paper: check.paper.name().to_owned(),
        stated: check.about.to_owned(),
        ours: None,
        half_width: None,
        unit: String::new(),
        band: None,
        verdict: Verdict::Fail,
        mechanism: String::new(),
        fitted: Vec::new(),
        flips: Vec::new(),
        error: Some(error.to_string()),
        also: Vec::new(),
        live: None,
        calibration: calibration.hash(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Paper;

    fn finding(value: f64) -> Finding {
        Finding::within("x", "1", value, "", (0.9, 1.1), "")
    }
    fn of(run: fn(&Inputs<'_>) -> Result<Vec<Finding>, CheckError>, text: &str) -> Row {
        let check = Check { id: "T1", about: "a test", paper: Paper::AstriFlash, simulated: true, run };
        let calibration = Calibration::read("t.toml", text).unwrap();
        let effort = Effort { shorter: 1, moves: true, threads: 1, planted: None };
        one(&check, &calibration, effort, Path::new("nowhere")).rows.remove(0)
    }
    fn leaf(kind: &str) -> String {
        format!("a = {{ value = 1, unit = \"times\", kind = \"{kind}\", source = \"here\" }}")
    }

    #[test]
    fn each_verdict_comes_about() {
        let read: fn(&Inputs<'_>) -> _ = |inputs| Ok(vec![finding(inputs.share("a")?)]);
        assert_eq!(of(read, &leaf("text")).verdict, Verdict::Pass);
        assert_eq!(of(read, &leaf("fitted(T1.x)")).verdict, Verdict::Calibrated);
        let fragile = of(read, &leaf("chosen"));
        assert_eq!((fragile.verdict, fragile.flips), (Verdict::Fragile, vec!["a".to_owned()]));
        let robust: fn(&Inputs<'_>) -> _ = |inputs| Ok(vec![finding(0.95 + inputs.share("a")? / 20.0)]);
        assert_eq!(of(robust, &leaf("chosen")).verdict, Verdict::Pass);
        let scattered: fn(&Inputs<'_>) -> _ = |inputs| Ok(vec![finding(0.9 + inputs.seed as f64 / 20.0)]);
        assert_eq!(of(scattered, "").verdict, Verdict::Undecided);
        let outside: fn(&Inputs<'_>) -> _ = |_| Ok(vec![finding(1.2)]);
        assert_eq!(of(outside, "").verdict, Verdict::Fail);
        let trend: fn(&Inputs<'_>) -> _ =
            |inputs| Ok(vec![Finding::trend("x", "", inputs.share("a")? > 0.0, (1.0, ""), "")]);
        assert_eq!(of(trend, &leaf("chosen")).verdict, Verdict::Trend);
        let unanswered = of(|inputs| Ok(vec![finding(inputs.share("b")?)]), &leaf("text"));
        assert_eq!((unanswered.verdict, unanswered.ours), (Verdict::Fail, None));
        assert!(unanswered.error.unwrap().contains("did you mean a?"));
    }
}
