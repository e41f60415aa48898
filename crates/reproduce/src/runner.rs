//! Runs checks: each with the fixed seeds, then with values moved, and says what became of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fulgurite_sim::Estimate;

use crate::calibration::{Calibration, CalibrationError, Kind, Leaf, Read, Values, moves_as};
use crate::check::{Check, CheckError, Expected, Finding, Inputs};
use crate::live;
use crate::models::Planted;
use crate::paper::Paper;
use crate::report::{Report, Row, Used, Verdict};
use crate::shared::Shared;

/// The seeds of each simulated check. They are fixed, so that a result is a function of the
/// program.
pub const SEEDS: [u64; 3] = [1, 2, 3];
/// By how much a value that is not in the text moves.
const MOVES: [f64; 2] = [0.8, 1.2];
/// What flips a finding that a shorter run does not give.
const SHORTER_RUN: &str = "the length of the run";
/// Runs with a moved value are this many times shorter than those that are reported. Each is
/// compared with one without that has the same length and the same random numbers.
const MOVED_SHORTER: u64 = 3;

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

/// What a run of a check has given, and which values it has read.
struct Ran {
    found: Result<Vec<Finding>, CheckError>,
    read: Read,
}

/// One run of a check: its place, its seed, and what is moved ([`moves_as`]).
#[derive(Clone)]
struct Task {
    check: usize,
    seed: u64,
    shorter: u64,
    moved: Option<(String, f64)>,
}

/// Runs checks, in the order in which they are given. `results` is the directory of kept results.
/// With `whole`, the checks are all that there are, and a value that none reads is an error. `each`
/// is called with the share of the work that is done.
///
/// # Errors
/// What is wrong with a calibration. A check that has no answer is a row that says so.
pub fn reproduce(
    checks: &[&Check],
    effort: Effort,
    results: &Path,
    whole: bool,
    each: &(dyn Fn(f64) + Sync),
) -> Result<Report, CalibrationError> {
    let calibrations: Vec<(Paper, Calibration)> =
        Paper::ALL.into_iter().map(|paper| Ok((paper, paper.calibration()?))).collect::<Result<_, _>>()?;
    let of = |paper: Paper| &calibrations.iter().find(|(other, _)| *other == paper).expect("all are there").1;
    let shared = Shared::default();
    let run = |task: &Task| {
        let check = checks[task.check];
        let moved = task.moved.as_ref().map(|(leaf, factor)| (leaf.as_str(), *factor));
        let values = Values::of(of(check.paper), moved);
        let inputs =
            Inputs { values, seed: task.seed, shorter: task.shorter, planted: effort.planted, shared: &shared };
        let found = (check.run)(&inputs);
        Ran { found, read: inputs.values.read() }
    };
    let seeded = |(check, of): (usize, &&Check)| {
        let seeds = if of.simulated { &SEEDS[..] } else { &SEEDS[..1] };
        seeds.iter().map(move |seed| Task { check, seed: *seed, shorter: effort.shorter, moved: None })
    };
    let tasks: Vec<Task> = checks.iter().enumerate().flat_map(seeded).collect();
    // Most of the time goes into moved values.
    let (first, then) = if effort.moves { (0.1, 0.9) } else { (1.0, 0.0) };
    let ran = on_threads(effort.threads, &tasks, &run, &|share| each(first * share));
    let mut runs: Vec<Vec<Ran>> = checks.iter().map(|_| Vec::new()).collect();
    tasks.iter().zip(ran).for_each(|(task, ran)| runs[task.check].push(ran));

    let mut moves: Vec<Task> = Vec::new();
    for (check, runs) in runs.iter().enumerate().filter(|_| effort.moves) {
        if runs.iter().all(|ran| ran.found.is_ok()) {
            let (leaves, read) = (of(checks[check].paper).leaves(), &runs[0].read);
            let assumed = leaves.iter().filter(|(name, leaf)| leaf.kind != Kind::Text && read.names.contains(*name));
            let assumed: Vec<(&String, &Leaf)> = assumed.collect();
            // By name, with the place of each factor that the check can see.
            let mut seen: BTreeSet<(String, usize)> = BTreeSet::new();
            for (name, leaf) in &assumed {
                let factors = (0..MOVES.len()).filter(|at| read.sees(name, leaf, MOVES[*at]));
                seen.extend(factors.map(|at| (moves_as(name).into_owned(), at)));
            }
            let moved = seen.iter().map(|(name, at)| Some((name.clone(), MOVES[*at])));
            // The first is the run that the others are compared with.
            let beside = (!assumed.is_empty()).then_some(None);
            let shorter = effort.shorter * MOVED_SHORTER;
            moves.extend(beside.into_iter().chain(moved).map(|moved| Task { check, seed: SEEDS[0], shorter, moved }));
        }
    }
    let moved = on_threads(effort.threads, &moves, &run, &|share| each(first + then * share));
    let mut flips: Vec<Vec<(&'static str, String)>> = checks.iter().map(|_| Vec::new()).collect();
    let mut beside: &[Finding] = &[];
    for (task, moved) in moves.iter().zip(&moved) {
        let reported = runs[task.check][0].found.as_ref().expect("only checks with an answer are moved");
        match &task.moved {
            Some((leaf, _)) => flips[task.check].extend(flipped(beside, leaf, &moved.found)),
            None => {
                // What does not hold in a shorter run is no firmer than that.
                flips[task.check].extend(flipped(reported, SHORTER_RUN, &moved.found));
                beside = moved.found.as_deref().unwrap_or_default();
            }
        }
    }

    let mut rows = Vec::new();
    for (check, (runs, flips)) in checks.iter().zip(runs.iter().zip(&flips)) {
        rows.extend(rows_of(check, of(check.paper), runs, flips, results));
    }
    // A check without an answer has not read all of its values.
    if whole && rows.iter().all(|row: &Row| row.error.is_none()) {
        for (paper, calibration) in &calibrations {
            let of_paper = checks.iter().zip(&runs).filter(|(check, _)| check.paper == *paper);
            let read = of_paper.flat_map(|(_, runs)| runs.iter().flat_map(|ran| ran.read.names.clone()));
            calibration.all_read(&read.collect())?;
        }
    }
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
    let command = "fulgurite-lab reproduce".to_owned();
    Ok(Report { command, version, seeds: SEEDS.to_vec(), calibrations, rows, summary })
}

/// Runs tasks on threads, and returns what they gave in the order of the tasks.
fn on_threads<T: Sync, R: Send>(
    threads: usize,
    tasks: &[T],
    run: &(dyn Fn(&T) -> R + Sync),
    each: &(dyn Fn(f64) + Sync),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(tasks.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, task)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    tasks.get(at).map(|task| (at, task))
                } {
                    let result = run(task);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((at, result));
                    each(done.len() as f64 / tasks.len() as f64);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
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

/// The rows of a check's findings.
fn rows_of(
    check: &Check,
    calibration: &Calibration,
    runs: &[Ran],
    flips: &[(&'static str, String)],
    results: &Path,
) -> Vec<Row> {
    if let Some(error) = runs.iter().find_map(|ran| ran.found.as_ref().err()) {
        return vec![without_answer(check, calibration, Some(error))];
    }
    let runs: Vec<&Vec<Finding>> = runs.iter().filter_map(|ran| ran.found.as_ref().ok()).collect();
    (0..runs[0].len())
        .map(|at| {
            let same: Vec<&Finding> = runs.iter().map(|run| &run[at]).collect();
            row(check, calibration, &same, flips, results)
        })
        .collect()
}

/// The findings that hold, and do not once a value has moved: each with the value.
fn flipped(base: &[Finding], leaf: &str, moved: &Result<Vec<Finding>, CheckError>) -> Vec<(&'static str, String)> {
    let flip = |finding: &Finding| match moved {
        Ok(found) if found.iter().any(|other| other.name == finding.name && holds(other)) => None,
        Ok(_) => Some((finding.name, leaf.to_owned())),
        // A model that has no answer any more has flipped everywhere, and says why.
        Err(error) => Some((finding.name, format!("{leaf} (no answer: {error})"))),
    };
    base.iter().filter(|finding| holds(finding)).filter_map(flip).collect()
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
        finding: first.name.to_owned(),
        stated: first.paper.to_owned(),
        ours: Some(ours.value),
        half_width: ours.half_width.filter(|_| check.simulated),
        unit: first.unit.to_owned(),
        band,
        verdict,
        mechanism: first.mechanism.to_owned(),
        fitted,
        flips,
        also: first.also.iter().enumerate().map(|(at, (name, _))| ((*name).to_owned(), mean(at))).collect(),
        live: live::figure(results, check.id, first.name),
        ..without_answer(check, calibration, None)
    }
}

/// Whether the interval is on one side of each end of the band.
fn decided(ours: Estimate, low: f64, high: f64) -> bool {
    let (least, most) = ours.interval();
    let inside = low <= least && most <= high;
    inside || most < low || least > high
}

fn without_answer(check: &Check, calibration: &Calibration, error: Option<&CheckError>) -> Row {
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
        error: error.map(ToString::to_string),
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
        Finding::of("x", "1").within(value, "", (0.9, 1.1))
    }
    fn of(run: fn(&Inputs<'_>) -> Result<Vec<Finding>, CheckError>, text: &str) -> Row {
        let check = Check { id: "T1", about: "a test", paper: Paper::AstriFlash, simulated: true, run };
        let calibration = Calibration::read("t.toml", text).unwrap();
        let shared = Shared::default();
        let once = |seed, moved: Option<(&str, f64)>| {
            let values = Values::of(&calibration, moved);
            let inputs = Inputs { values, seed, shorter: 1, planted: None, shared: &shared };
            Ran { found: run(&inputs), read: inputs.values.read() }
        };
        let runs = SEEDS.map(|seed| once(seed, None));
        let mut flips = Vec::new();
        if let (Ok(base), true) = (&runs[0].found, calibration.leaves().values().any(|leaf| leaf.kind != Kind::Text)) {
            let moved = MOVES.map(|factor| once(SEEDS[0], Some(("a", factor))));
            flips.extend(moved.iter().flat_map(|moved| flipped(base, "a", &moved.found)));
        }
        rows_of(&check, &calibration, &runs, &flips, Path::new("nowhere")).remove(0)
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
            |inputs| Ok(vec![Finding::of("x", "").trend(inputs.share("a")? > 0.0, 1.0, "")]);
        assert_eq!(of(trend, &leaf("chosen")).verdict, Verdict::Trend);
        let unanswered = of(|inputs| Ok(vec![finding(inputs.share("b")?)]), &leaf("text"));
        assert_eq!((unanswered.verdict, unanswered.ours), (Verdict::Fail, None));
        assert!(unanswered.error.unwrap().contains("did you mean a?"));
    }
}
