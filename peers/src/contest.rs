//! Processes of stores in cgroups, their turns, and what they came to.

use anyhow::{Context as _, Result};
use fulgurite_format::format_bytes;
use fulgurite_harness::experiment::{self, Experiment, OverLimit};
use fulgurite_harness::{Measured, Spread, kernel_threads};
use fulgurite_term::args::OutputArgs;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::report::{distinct, print, print_all};
use fulgurite_term::{checks, interrupt};
use serde::Serialize;
use tempfile::TempDir;

use crate::args::{Args, What};
use crate::child::{Checked, Command, Opened, Outcome};
use crate::drive::Plan;
use crate::series::Row;
use crate::stores::{Name, Spec};
use crate::{bank, hits, small, values};

/// The program and what it has made. Dropped, all of it is removed.
pub struct Contest {
    pub args: Args,
    pub experiment: Experiment,
    directory: TempDir,
}

/// A store in its process.
pub struct Contestant {
    pub name: Name,
    pub opened: Opened,
    /// The result for all keys, once they were checked.
    pub checked: Option<Checked>,
    pub one: experiment::Contestant<Measured>,
    /// What it was made for, and the turns that warmed it.
    spec: Spec,
    warmed: Vec<Plan>,
}

/// Caches are halved at most this often.
const HALVED_MOST: u32 = 3;

fn was_killed<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.is::<OverLimit>())
}

impl Contest {
    fn start(args: &Args) -> Result<Contest> {
        let output = output(args);
        checks::outputs(&output)?;
        if !(0.0..=4.0).contains(&args.zipf) {
            bad_input!("--zipf {}: choose an exponent from 0 (uniform) to 4", args.zipf);
        }
        if args.memory < 48 << 20 {
            bad_input!("--memory {}: a process with its caches needs 48 MiB; choose more", format_bytes(args.memory));
        }
        if args.peers.iter().any(|name| name.ours()) {
            bad_input!("--peers names the stores to compare with fulgurite: redb, fjall, lmdb, foyer");
        }
        let place = fulgurite_harness::checks::scratch_directory(args.dir.as_deref(), None)?;
        // Each has the data about twice, and room to rewrite it.
        let needs = args.keys * (u64::from(args.value) + 8) * 3 * (args.peers.len() as u64 + 1);
        let free = rustix::fs::statvfs(&place).map(|of| of.f_bavail * of.f_frsize).unwrap_or(u64::MAX);
        if needs > free {
            let (needs, free) = (format_bytes(needs), format_bytes(free));
            bad_input!(
                "--dir {} has {free} free, and {needs} may be needed; name another one with --dir, or choose fewer --keys",
                place.display()
            );
        }
        let interrupt = Interrupt::catch()?;
        let directory = tempfile::Builder::new().prefix("fulgurite-peers-").tempdir_in(&place);
        let directory = directory.with_context(|| format!("no directory can be made in {}", place.display()))?;
        let mut experiment = Experiment::start(&interrupt, &place)?;
        if let Some(missing) = &experiment.capabilities.cgroup_missing {
            let weaker = format!("Nothing limits the memory of the stores, so the rows are not comparable: {missing}.");
            experiment.note(weaker);
        }
        Ok(Contest { args: args.clone(), experiment, directory })
    }

    /// Starts the process of a store, and has it filled. None where that fails, which is noted.
    ///
    /// # Errors
    /// Interrupted.
    pub fn begin(&mut self, spec: &Spec) -> Result<Option<Contestant>> {
        let mut spec = spec.clone();
        loop {
            let began = self.try_begin(&spec);
            if !was_killed(&began) || !self.halves(&mut spec) {
                return self.experiment.noted(spec.name.label(), began);
            }
        }
    }
    /// Halves the cache of a store whose process the kernel ended. False where it has none, or too
    /// little is left of it.
    fn halves(&mut self, spec: &mut Spec) -> bool {
        if !spec.name.has_cache() || spec.halved >= HALVED_MOST {
            return false;
        }
        spec.halved += 1;
        let name = spec.name.label();
        let halved = format!("{name} took more memory than --memory allows. It went on with half of its cache.");
        self.experiment.notes.push(halved);
        true
    }
    /// Makes a store anew whose process the kernel ended, with half of its cache, and warms it as
    /// before. False where that cannot be.
    fn begin_again(&mut self, one: &mut Contestant) -> Result<bool> {
        let mut spec = one.spec.clone();
        while self.halves(&mut spec) {
            let Some(again) = self.begin(&spec)? else { return Ok(false) };
            spec = again.spec.clone();
            *one = Contestant { warmed: std::mem::take(&mut one.warmed), ..again };
            let warmed = one.warmed.clone().iter().try_for_each(|plan| self.try_turn(one, plan).map(drop));
            if !was_killed(&warmed) {
                return Ok(self.experiment.noted(one.name.label(), warmed)?.is_some());
            }
        }
        Ok(false)
    }
    fn try_begin(&mut self, spec: &Spec) -> Result<Contestant> {
        let directory = self.directory.path().join(format!("store-{}", self.experiment.number()));
        std::fs::create_dir(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        let spec = Spec { directory, ..spec.clone() };
        let process = Measured::start(&["__store".as_ref()], &self.experiment.interrupt)?;
        let group = self.experiment.limit(process.pid(), spec.memory_bytes, false)?;
        let one = experiment::Contestant::new(process, group);
        let (opened, checked, warmed) = (Opened::default(), None, Vec::new());
        let mut one = Contestant { name: spec.name, opened, checked, one, spec, warmed };
        let open = Command::Open(one.spec.clone());
        one.opened = self.try_ask(&mut one, |process| process.ask(&open))?.unwrap_or_default();
        Ok(one)
    }

    /// Has a store execute a round, while the others are stopped. None when it fails, which is
    /// noted: it takes no further turns. A store that the kernel ended is made anew with half of
    /// its cache, and executes the round again.
    ///
    /// # Errors
    /// Interrupted.
    pub fn turn(&mut self, one: &mut Contestant, plan: &Plan) -> Result<Option<Outcome>> {
        loop {
            let ran = self.try_turn(one, plan);
            if !was_killed(&ran) || !self.begin_again(one)? {
                return Ok(self.experiment.noted(one.name.label(), ran)?.flatten());
            }
        }
    }
    /// A turn of a round that does not count, but warms the store.
    ///
    /// # Errors
    /// Interrupted.
    pub fn warm_turn(&mut self, one: &mut Contestant, plan: &Plan) -> Result<Option<Outcome>> {
        let turn = self.turn(one, plan)?;
        one.warmed.push(plan.clone());
        Ok(turn)
    }
    fn try_turn(&mut self, one: &mut Contestant, plan: &Plan) -> Result<Option<Outcome>> {
        self.try_ask(one, |process| {
            // The kernel's own threads write files back.
            let ran = kernel_threads::during(|| process.ask::<Outcome>(&Command::Run(plan.clone())))?;
            let (mut outcome, kernel_ns) = ran;
            outcome.turn.cpu_ns += kernel_ns.unwrap_or(0);
            Ok(outcome)
        })
    }
    /// Has a store check all of its keys, and ends it.
    ///
    /// # Errors
    /// Interrupted.
    pub fn end(&mut self, one: &mut Contestant) -> Result<()> {
        let checked = self.ask(one, |process| process.ask(&Command::Check))?;
        one.checked = checked;
        self.stop(one);
        Ok(())
    }
    fn ask<T>(&mut self, one: &mut Contestant, ask: impl FnOnce(&mut Measured) -> Result<T>) -> Result<Option<T>> {
        let asked = self.try_ask(one, ask);
        Ok(self.experiment.noted(one.name.label(), asked)?.flatten())
    }
    /// None of a store that takes no turns. One that fails takes none any more.
    fn try_ask<T>(&mut self, one: &mut Contestant, ask: impl FnOnce(&mut Measured) -> Result<T>) -> Result<Option<T>> {
        let asked = self.experiment.ask(&mut one.one, ask);
        if !one.one.runs() {
            let _ = std::fs::remove_dir_all(&one.spec.directory);
        }
        asked
    }
    /// Has a store bring its keys into memory.
    ///
    /// # Errors
    /// Interrupted.
    pub fn warm(&mut self, one: &mut Contestant) -> Result<()> {
        self.ask(one, |process| process.ask::<()>(&Command::Warm)).map(drop)
    }
    /// Ends a store without a check of its keys.
    pub fn stop(&mut self, one: &mut Contestant) {
        self.experiment.end(&mut one.one);
        let _ = std::fs::remove_dir_all(&one.spec.directory);
    }
}

fn output(args: &Args) -> OutputArgs {
    OutputArgs { json: args.json.clone(), plot: None, quick: args.quick, seed: args.seed }
}

/// What a store is and takes in one part of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    pub part: &'static str,
    pub store: Name,
    pub settings: String,
    pub lacks: Option<&'static str>,
    /// To make it, empty, and what it wrote meanwhile.
    pub make_s: f64,
    pub make_written_bytes: u64,
    pub load_s: f64,
    pub load_written_bytes: u64,
    pub flash_bytes: u64,
    pub flash_bytes_after: Option<u64>,
    pub peak_bytes: Option<u64>,
    /// Keys that are missing at the end.
    pub lost: Option<u64>,
}

impl Kept {
    /// Of a store that has ended.
    pub fn of(part: &'static str, one: &Contestant) -> Kept {
        Kept {
            part,
            store: one.name,
            settings: one.opened.settings.clone(),
            lacks: one.name.lacks(),
            make_s: one.opened.made_ns as f64 / 1e9,
            make_written_bytes: one.opened.made_bytes,
            load_s: one.opened.load_ns as f64 / 1e9,
            load_written_bytes: one.opened.written_bytes,
            flash_bytes: one.opened.flash_bytes,
            flash_bytes_after: one.checked.map(|checked| checked.flash_bytes),
            peak_bytes: one.one.group.peak_bytes,
            lost: one.checked.map(|checked| checked.lost),
        }
    }
}

/// What the comparison came to.
#[derive(Debug, Default)]
pub struct Results {
    pub rows: Vec<Row>,
    pub stores: Vec<Kept>,
    /// Of `small`.
    pub simulated_hit_ratio: Option<f64>,
    /// Of `hits`.
    pub hit_beyond_boxes_ns: Option<Spread>,
}

/// Compares what the arguments ask for, and tells it.
///
/// # Errors
/// Bad input, before anything is made; what failed; interrupted.
pub fn run(args: &Args) -> Result<()> {
    let mut contest = Contest::start(args)?;
    let output = output(args);
    print(&output, &contest.experiment.machine.line())?;
    let mut results = Results::default();
    let mut interrupted = false;
    for what in args.what.clone() {
        let ran = match what {
            What::Values => values::run(&mut contest, &mut results),
            What::Small => small::run(&mut contest, &mut results),
            What::Bank => bank::run(&mut contest, &mut results),
            What::Hits => hits::run(&mut contest, &mut results),
        };
        let tables = match what {
            What::Values => values::tables(&contest, &results),
            What::Small => small::tables(&contest, &results),
            What::Bank => bank::tables(&contest, &results),
            What::Hits => hits::tables(&contest, &results),
        };
        interrupted = interrupt::ended_early(ran)?;
        print_all(&output, tables)?;
        if interrupted {
            break;
        }
    }
    print(&output, "")?;
    print_all(&output, settings(&results))?;
    print_all(&output, &contest.experiment.notes)?;
    let setting = serde_json::json!({
        "keys": args.keys,
        "value_bytes": args.value,
        "memory_bytes": args.memory,
        "zipf": args.zipf,
        "round_ns": args.round_time.as_nanos() as u64,
        "seed": args.seed,
        "in_cgroups": contest.experiment.capabilities.cgroup_missing.is_none(),
    });
    let words = std::iter::once("fulgurite-lab peers".to_owned()).chain(std::env::args().skip(1));
    let mut report = contest
        .experiment
        .report(setting, &results.rows, interrupted)
        .with("stores", &results.stores)?
        .with("simulated_hit_ratio", results.simulated_hit_ratio)?
        .with("hit_beyond_boxes_ns", results.hit_beyond_boxes_ns)?;
    report.command = words.collect::<Vec<_>>().join(" ");
    report.finish(&output, String::new)
}

/// Versions and settings, and what a store lacks, each once.
fn settings(results: &Results) -> Vec<String> {
    let lines = results.stores.iter().flat_map(|one| {
        let lacks = one.lacks.map(|lacks| format!("  {} {lacks}.", one.store.label()));
        std::iter::once(format!("{}: {}", one.part, one.settings)).chain(lacks)
    });
    distinct(lines)
}
