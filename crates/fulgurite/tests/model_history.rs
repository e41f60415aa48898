//! Goal: whatever jobs on several workers do to a memory at once, and whatever happens to it
//! meanwhile, a read finds what was written last, or by a concurrent write. Nothing is torn, no
//! update is lost, no frame shows another's contents. Also behind the last sync, and in the next
//! runtime.
//!
//! Method: some fifty jobs read, write and increment words, pages and pairs of pages, by all
//! methods that there are. Caches have a few frames up to all that fit. Media are late, move data
//! on another thread, or fail, or are pools that are synced and reclaimed meanwhile. Every
//! operation is noted with the time of its call and its return, by one number that all count up or
//! by a clock without barriers, and every written value is written once. For each key it is then
//! decided whether an order of its operations explains what the jobs found (`history/check.rs`).
//! That decision is itself tested: on histories made by hand, on some that a register really had,
//! and against one that tries all orders. Bugs that are planted in the runtime must be found.
//! `FULGURITE_SEED` replays the plans and choices of a run, if not its races; `FULGURITE_RUNS` does
//! all of it that number of times.

use crate::history;
use fulgurite_testkit as trials;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use fulgurite_runtime::Planted;
use history::brute::{Model, possible};
use history::check::{INITIAL, Kind, NEVER, Operation, Violation, counter, overlapping, register};
use history::record::{Random, fill, value, value_of};
use history::run::{Meanwhile, MediumKind, OPERATIONS, Plan, Report, operations, run};
use history::sample;

/// Runs `test` and ends the process when it takes longer than two minutes: a hang is a failure, not
/// a wait.
fn within<T: Send + 'static>(what: &str, test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let result = test();
        let _ = done.send(());
        result
    });
    if is_done.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("{what}: hangs");
        std::process::abort();
    }
    thread.unwrap().join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const fn plan(medium: MediumKind, workers: usize, frames: u64, groups: u64, meanwhile: Meanwhile, clock: bool) -> Plan {
    Plan { medium, workers, threads: 0, frames, groups, clock, meanwhile }
}
const fn with_threads(plan: Plan) -> Plan {
    Plan { threads: 16, ..plan }
}

use Meanwhile::{Nothing, Squeezes, Syncs};

/// The frames are each worker's, and a group has eight subpages.
const FLAT: [Plan; 4] = [
    plan(MediumKind::Memory, 2, 8, 20, Nothing, false),
    plan(MediumKind::Memory, 2, 24, 20, Syncs, true),
    plan(MediumKind::Memory, 3, 100, 40, Squeezes, true),
    plan(MediumKind::Memory, 1, 24, 20, Squeezes, false),
];
const EMULATED: [Plan; 2] =
    [plan(MediumKind::Emulated, 2, 40, 20, Nothing, true), plan(MediumKind::Emulated, 2, 12, 20, Syncs, false)];
const POOLS: [Plan; 3] = [
    plan(MediumKind::Pool, 2, 12, 20, Syncs, false),
    plan(MediumKind::Pool, 2, 60, 20, Syncs, true),
    plan(MediumKind::Pool, 2, 400, 40, Syncs, true),
];
const THREADS: [Plan; 5] = [
    with_threads(plan(MediumKind::Memory, 1, 24, 20, Squeezes, false)),
    with_threads(plan(MediumKind::Memory, 1, 100, 20, Syncs, true)),
    with_threads(plan(MediumKind::Memory, 2, 16, 20, Nothing, true)),
    with_threads(plan(MediumKind::Pool, 1, 24, 20, Syncs, false)),
    with_threads(plan(MediumKind::Pool, 2, 60, 20, Syncs, true)),
];
const FAULTS: [Plan; 3] = [
    plan(MediumKind::Faulty, 2, 10, 20, Syncs, false),
    plan(MediumKind::Faulty, 3, 40, 20, Nothing, true),
    plan(MediumKind::FaultyPool, 2, 24, 20, Syncs, true),
];
const _: () = assert!((FLAT.len() + EMULATED.len() + POOLS.len() + FAULTS.len()) as u64 * OPERATIONS >= 1_000_000);

/// Runs the plans, `FULGURITE_RUNS` times with seeds that count up.
fn all(name: &str, plans: &[Plan]) -> Report {
    let (runs, first) = (trials::runs(1), trials::first_seed(std::process::id().into()));
    let (mut total, begun) = (Report::default(), Instant::now());
    for seed in first..first + runs {
        for plan in plans {
            let its = *plan;
            let report = within(name, move || run(&its, seed, None));
            let report = report.unwrap_or_else(|why| {
                panic!("{plan:?}: {why}\nFULGURITE_SEED={seed} FULGURITE_RUNS=1 cargo test -p fulgurite --test all model_history::{name}")
            });
            println!("{name}, seed {seed}: {plan:?}\n  {report:?}");
            total += report;
        }
    }
    println!(
        "{name}: {} operations, {} reads checked, {} beside a write, {} misses, 0 violations, {:.1} s",
        total.operations,
        total.reads,
        total.overlapping,
        total.misses,
        begun.elapsed().as_secs_f64()
    );
    assert!(
        total.operations >= plans.len() as u64 * runs * operations(None) * 3 / 4,
        "most operations failed: {total:?}"
    );
    assert!(total.overlapping > 100 && total.misses > 1000 && total.joined > 10, "hardly a race: {total:?}");
    assert!(total.written_back > 100 && total.prefetched > 0, "{total:?}");
    trials::figure(14, "operations of histories", total.operations);
    total
}

#[test]
fn histories_on_flat_flash() {
    let total = all("histories_on_flat_flash", &FLAT);
    assert!(total.written_ahead > 0 && total.failed == 0, "{total:?}");
}

#[test]
fn histories_of_threads_and_jobs() {
    let total = all("histories_of_threads_and_jobs", &THREADS);
    assert!(total.sealed > 0 && total.syncs > 10, "{total:?}");
}

#[test]
fn histories_on_a_device_of_its_own_thread() {
    let total = all("histories_on_a_device_of_its_own_thread", &EMULATED);
    assert!(total.written_ahead > 0 && total.failed == 0, "{total:?}");
}

#[test]
fn histories_on_pools_that_are_synced_and_reclaimed() {
    let total = all("histories_on_pools_that_are_synced_and_reclaimed", &POOLS);
    assert!(total.sealed > 0 && total.syncs > 10 && total.reclaimed > 0, "{total:?}");
}

#[test]
fn histories_with_faults() {
    let total = all("histories_with_faults", &FAULTS);
    assert!(total.failed > 100, "hardly anything failed: {total:?}");
}

// ---- bugs on purpose ----

const PLANTED: &str = "FULGURITE_PLANTED";

/// Bugs that show to concurrent jobs. Bugs of misses, evictions and cuts that show to one job after
/// the other are hunted by the simulation of `fulgurite-cache`. Each with the plan where it shows
/// soonest.
const HUNTED: [(&str, Planted, Plan); 7] = [
    ("NoSlots", Planted::NoSlots, FLAT[0]),
    ("NoSlotsOfThreads", Planted::NoSlots, THREADS[0]),
    ("StaleNear", Planted::StaleNear, FLAT[3]),
    ("NotZeroed", Planted::NotZeroed, FLAT[0]),
    ("StaysFresh", Planted::StaysFresh, POOLS[1]),
    ("FailedIsDone", Planted::FailedIsDone, FAULTS[0]),
    ("InPlaceIsClean", Planted::InPlaceIsClean, FLAT[1]),
];

#[test]
#[ignore = "planted_bugs_are_found runs it, in a process of its own: it must fail"]
fn with_a_planted_bug() {
    let name = std::env::var(PLANTED).unwrap_or_default();
    let found = HUNTED.into_iter().find(|(its, ..)| *its == name);
    let (_, bug, plan) = found.unwrap_or_else(|| panic!("{PLANTED}={name} is no bug that can be planted"));
    // Most show in the first run; what shows in one of four, in one of a hundred.
    for seed in 0..100 {
        within(&name, move || run(&plan, seed, Some(bug))).unwrap_or_else(|why| panic!("violation: {why}"));
    }
}

#[test]
fn planted_bugs_are_found() {
    let mut missed = Vec::new();
    for (bug, ..) in HUNTED {
        let mut child = fulgurite_testkit::again(module_path!(), "with_a_planted_bug");
        child.env(PLANTED, bug);
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        // A worker that meets an assertion of its own ends the process, which is found as well; a
        // plan that is wrong is not.
        let why = said.lines().find(|line| line.contains("violation: ") || line.contains("fulgurite: a worker failed"));
        match why {
            Some(why) if !output.status.success() => println!("{bug}: {}", why.trim()),
            _ => missed.push(format!("{bug}: {}; {said}", output.status)),
        }
    }
    let found = HUNTED.len() - missed.len();
    println!("canaries: {found} of {} found", HUNTED.len());
    assert!(missed.is_empty(), "{missed:#?}");
    trials::figure(21, "planted bugs found", found as u64);
}

// ---- the decision itself ----

fn wrote(value: u64, invoked: u64, responded: u64) -> Operation {
    Operation { kind: Kind::Write, value, invoked, responded }
}
fn read(value: u64, invoked: u64, responded: u64) -> Operation {
    Operation { kind: Kind::Read, value, invoked, responded }
}

/// What both ways to decide say.
fn judged(history: &[Operation], model: Model) -> Result<(), Violation> {
    let mut sorted = history.to_vec();
    let judged = if model == Model::Counter { counter(&mut sorted) } else { register(&mut sorted) };
    assert_eq!(judged.is_ok(), possible(history, model), "{model:?}: {judged:?} of {history:#?}");
    judged
}

#[test]
fn good_histories_pass() {
    let good: [&[Operation]; 8] = [
        &[],
        &[read(INITIAL, 1, 2), wrote(1, 3, 4), read(1, 5, 6), wrote(2, 7, 8), read(2, 9, 10)],
        // A read that overlaps a write may find either.
        &[wrote(1, 1, 10), read(INITIAL, 2, 3), read(1, 4, 5)],
        // Two writes that overlap may come in either order.
        &[wrote(1, 1, 10), wrote(2, 1, 10), read(2, 2, 3), read(1, 4, 5), read(1, 11, 12)],
        // A write that never returned may come at any time, or not at all.
        &[wrote(1, 1, 2), wrote(2, 3, NEVER), read(1, 100, 101), read(2, 200, 201)],
        &[wrote(1, 1, 2), wrote(2, 3, NEVER), read(1, 100, 101)],
        // A cluster within another write's time, which has no reads before it.
        &[wrote(1, 1, 20), wrote(2, 5, 6), read(2, 7, 8), read(1, 21, 22)],
        // What touches overlaps.
        &[wrote(1, 1, 5), read(INITIAL, 5, 6)],
    ];
    for history in good {
        assert_eq!(judged(history, Model::Register), Ok(()), "{history:?}");
    }
    let counted = [wrote(1, 1, 4), wrote(2, 2, 6), read(1, 3, 5), read(2, 5, 8), read(INITIAL, 1, 2), wrote(3, 9, 10)];
    assert_eq!(judged(&counted, Model::Counter), Ok(()));
}

#[test]
fn bad_histories_are_found() {
    let bad = |history: &[Operation]| judged(history, Model::Register).expect_err("a bad history passes");
    let stale = [wrote(1, 1, 2), wrote(2, 3, 4), read(1, 5, 6)];
    assert!(matches!(bad(&stale), Violation::Entangled(..)));
    let stale = [wrote(1, 1, 2), read(INITIAL, 3, 4)];
    assert!(matches!(bad(&stale), Violation::Entangled(..)));
    let inversion = [wrote(1, 1, 2), wrote(2, 3, 20), read(2, 4, 5), read(1, 6, 7)];
    assert!(matches!(bad(&inversion), Violation::Entangled(..)));
    let between = [wrote(1, 1, 2), read(1, 3, 4), wrote(2, 5, 6), read(2, 7, 8), read(1, 9, 10)];
    assert!(matches!(bad(&between), Violation::Entangled(..)));
    // Nobody has seen it, but it has certainly been.
    let overlooked = [wrote(1, 1, 2), wrote(2, 3, 4), read(1, 1, 2), read(1, 10, 11)];
    assert!(matches!(bad(&overlooked), Violation::Entangled(..)));
    let future = [read(1, 1, 2), wrote(1, 3, 4)];
    assert_eq!(bad(&future), Violation::FromTheFuture { value: 1, read: 2, written: 3 });
    assert_eq!(bad(&[wrote(1, 1, 2), read(7, 3, 4)]), Violation::NeverWritten { value: 7, invoked: 3 });
    // A write that never returned, and was seen, and then was not there any more.
    let undone = [wrote(1, 1, 2), wrote(2, 3, NEVER), read(2, 5, 6), read(1, 7, 8)];
    assert!(matches!(bad(&undone), Violation::Entangled(..)));

    let bad = |history: &[Operation]| judged(history, Model::Counter).expect_err("a bad history passes");
    assert_eq!(bad(&[wrote(1, 1, 5), wrote(1, 2, 6)]), Violation::WrittenTwice { value: 1 });
    assert_eq!(bad(&[wrote(1, 1, 2), wrote(3, 3, 4)]), Violation::NeverWritten { value: 2, invoked: 3 });
    assert!(matches!(bad(&[wrote(1, 5, 6), wrote(2, 1, 2)]), Violation::Backwards { .. }));
    assert!(matches!(bad(&[wrote(1, 1, 2), read(INITIAL, 3, 4)]), Violation::Backwards { .. }));
    assert!(matches!(bad(&[read(1, 1, 2), wrote(1, 3, 4)]), Violation::Backwards { .. }));
    assert_eq!(bad(&[read(4, 1, 2), wrote(1, 3, 4)]), Violation::NeverWritten { value: 4, invoked: 1 });
}

#[test]
fn torn_contents_are_found() {
    let (old, new) = (value(3, 1, 7), value(3, 2, 9));
    let mut contents = vec![0; 4096];
    assert_eq!(value_of(&contents), Ok(INITIAL));
    fill(old, &mut contents);
    assert_eq!(value_of(&contents), Ok(old));
    let mut other = vec![0; 4096];
    fill(new, &mut other);
    for (from, to) in [(0, 8), (0, 2048), (8, 16), (4088, 4096), (64, 4096)] {
        let mut torn = contents.clone();
        torn[from..to].copy_from_slice(&other[from..to]);
        assert!(value_of(&torn).is_err(), "bytes {from}..{to} of another value are not seen");
    }
    // What stands at another place is wrong as well.
    contents.rotate_left(512);
    assert!(value_of(&contents).is_err());
}

#[test]
fn both_ways_to_decide_agree() {
    let seed = trials::first_seed(std::process::id().into());
    println!("seed {seed} (FULGURITE_SEED)");
    let mut random = Random(seed);
    for model in [Model::Register, Model::Counter] {
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let (count, spread) = (1 + random.below(9), 1 + random.below(12));
            let mut history = sample::played(model, &mut random, count, spread);
            assert_eq!(judged(&history, model), Ok(()), "it has happened: {history:#?}");
            for _ in 0..1 + random.below(3) {
                sample::change(&mut history, model, &mut random);
            }
            match judged(&history, model) {
                Ok(()) => good += 1,
                Err(_) => bad += 1,
            }
        }
        println!("{model:?}: of histories that were changed, {good} are still good and {bad} are not");
        assert!(good > 1000 && bad > 1000, "{model:?}: {good} good, {bad} bad");
    }
}

#[test]
fn long_histories_that_happened_pass_and_a_stale_read_in_them_is_found() {
    let mut random = Random(trials::first_seed(5));
    for spread in [1, 10, 100, 1000] {
        let mut history = sample::played(Model::Register, &mut random, 20_000, spread);
        assert_eq!(register(&mut history.clone()), Ok(()));
        assert!(spread == 1 || overlapping(&history) > 100, "{} reads overlap", overlapping(&history));
        // The last read finds the first value again.
        let last = history.iter().rposition(|op| op.kind == Kind::Read).unwrap();
        history[last].value = history[0].value;
        assert!(register(&mut history).is_err(), "spread {spread}");
        let mut history = sample::played(Model::Counter, &mut random, 20_000, spread);
        assert_eq!(counter(&mut history.clone()), Ok(()));
        let last = history.iter().rposition(|op| op.kind == Kind::Read).unwrap();
        history[last].value = 1;
        assert!(counter(&mut history).is_err(), "spread {spread}");
    }
}
