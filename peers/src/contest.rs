//! Processes of stores in cgroups, their turns, and what they came to.

use std::fmt;

use anyhow::{Context as _, Result};
use fulgurite_format::format_bytes;
use fulgurite_harness::{Helper, Measured, Request, Spread, kernel_threads};
use fulgurite_term::args::OutputArgs;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, Interrupted, go_on};
use fulgurite_term::machine::Machine;
use fulgurite_term::report::{Report, distinct, print, print_all};
use fulgurite_term::{checks, interrupt};
use rustix::process::{Pid, Signal, kill_process};
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
    pub machine: Machine,
    pub interrupt: Interrupt,
    /// Sentences about what is weaker than it should be.
    pub notes: Vec<String>,
    /// Sentences about what failed.
    pub failed: Vec<String>,
    helper: Helper,
    has_cgroups: bool,
    made: u32,
    directory: TempDir,
}

/// A store in its process.
pub struct Contestant {
    pub name: Name,
    pub opened: Opened,
    /// The result for all keys, once they were checked.
    pub checked: Option<Checked>,
    /// Highest use of its cgroup.
    pub peak_bytes: Option<u64>,
    /// What it was made for, and the turns that warmed it.
    spec: Spec,
    warmed: Vec<Plan>,
    process: Option<Measured>,
    cgroup: Option<String>,
}

/// Caches are halved at most this often.
const HALVED_MOST: u32 = 3;

/// The kernel ended a process for want of memory.
#[derive(Clone, Copy, Debug)]
struct Killed;

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel ended it: it needs more memory than --memory allows")
    }
}

fn was_killed<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.is::<Killed>())
}

/// A round of one store.
#[derive(Clone, Debug)]
pub struct Turn {
    pub outcome: Outcome,
    /// CPU time of the kernel's own threads meanwhile, which write files back.
    pub kernel_ns: u64,
}

impl Contest {
    fn start(args: &Args) -> Result<Contest> {
        let machine = Machine::describe();
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
        let place = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        if !place.is_dir() {
            bad_input!("--dir {} is no directory; create it, or name another one", place.display());
        }
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
        let mut helper = Helper::start()?;
        let capabilities = helper.probe(&place)?;
        let mut notes = Vec::new();
        if let Some(missing) = &capabilities.cgroup_missing {
            notes.push(format!("Nothing limits the memory of the stores, so the rows are not comparable: {missing}."));
        }
        let has_cgroups = capabilities.cgroup_missing.is_none();
        let failed = Vec::new();
        Ok(Contest { args: args.clone(), machine, interrupt, notes, failed, helper, has_cgroups, made: 0, directory })
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
                return self.noted(spec.name, began);
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
        self.notes.push(format!("{name} took more memory than --memory allows. It went on with half of its cache."));
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
                return Ok(self.noted(one.name, warmed)?.is_some());
            }
        }
        Ok(false)
    }
    /// None of what failed, which is noted.
    fn noted<T>(&mut self, name: Name, result: Result<T>) -> Result<Option<T>> {
        go_on(result, |error| self.failed.push(format!("{}: {error:#}", name.label())))
    }
    fn try_begin(&mut self, spec: &Spec) -> Result<Contestant> {
        self.made += 1;
        let directory = self.directory.path().join(format!("store-{}", self.made));
        std::fs::create_dir(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        let spec = Spec { directory, ..spec.clone() };
        let mut process = Measured::start(&["__store".as_ref()], &self.interrupt)?;
        let mut cgroup = None;
        if self.has_cgroups {
            let name = format!("peer-{}", self.made);
            let (limit_bytes, no_swap) = (spec.memory_bytes, true);
            self.helper.tell(&Request::Cgroup { name: name.clone(), limit_bytes, no_swap })?;
            self.helper.tell(&Request::Join { name: name.clone(), pid: process.pid() })?;
            cgroup = Some(name);
        }
        let opened = process.ask(&Command::Open(spec.clone()));
        let process = Some(process);
        let (name, opened) = (spec.name, opened.map_err(|error| self.explained(cgroup.as_deref(), error)));
        let (opened, failed) = match opened {
            Ok(opened) => (opened, None),
            Err(error) => (Opened::default(), Some(error)),
        };
        let (checked, peak_bytes, warmed) = (None, None, Vec::new());
        let mut one = Contestant { name, opened, checked, peak_bytes, spec, warmed, process, cgroup };
        match failed {
            Some(error) => {
                self.drop_process(&mut one);
                Err(error)
            }
            None => {
                one.signal(Signal::STOP);
                Ok(one)
            }
        }
    }
    /// Why a process ended, if the kernel ended it.
    fn explained(&mut self, cgroup: Option<&str>, error: anyhow::Error) -> anyhow::Error {
        match cgroup.map(|name| self.helper.peak(name)) {
            Some(Ok((_, killed))) if killed > 0 => error.context(Killed),
            _ => error,
        }
    }

    /// Has a store execute a round, while the others are stopped. None when it fails, which is
    /// noted: it takes no further turns. A store that the kernel ended is made anew with half of
    /// its cache, and executes the round again.
    ///
    /// # Errors
    /// Interrupted.
    pub fn turn(&mut self, one: &mut Contestant, plan: &Plan) -> Result<Option<Turn>> {
        loop {
            let ran = self.try_turn(one, plan);
            if !was_killed(&ran) || !self.begin_again(one)? {
                return Ok(self.noted(one.name, ran)?.flatten());
            }
        }
    }
    /// A turn of a round that does not count, but warms the store.
    ///
    /// # Errors
    /// Interrupted.
    pub fn warm_turn(&mut self, one: &mut Contestant, plan: &Plan) -> Result<Option<Turn>> {
        let turn = self.turn(one, plan)?;
        one.warmed.push(plan.clone());
        Ok(turn)
    }
    fn try_turn(&mut self, one: &mut Contestant, plan: &Plan) -> Result<Option<Turn>> {
        self.try_ask(one, |process| {
            let (outcome, kernel) = kernel_threads::during(|| process.ask(&Command::Run(plan.clone())))?;
            Ok(Turn { outcome, kernel_ns: kernel.unwrap_or(0) })
        })
    }
    /// Has a store check all of its keys, and ends it.
    ///
    /// # Errors
    /// Interrupted.
    pub fn end(&mut self, one: &mut Contestant) -> Result<()> {
        let checked = self.ask(one, |process| process.ask(&Command::Check))?;
        one.checked = checked;
        self.drop_process(one);
        Ok(())
    }
    fn ask<T>(&mut self, one: &mut Contestant, ask: impl FnOnce(&mut Measured) -> Result<T>) -> Result<Option<T>> {
        let asked = self.try_ask(one, ask);
        Ok(self.noted(one.name, asked)?.flatten())
    }
    /// None of a store that takes no turns. One that fails takes none any more.
    fn try_ask<T>(&mut self, one: &mut Contestant, ask: impl FnOnce(&mut Measured) -> Result<T>) -> Result<Option<T>> {
        one.signal(Signal::CONT);
        let Some(process) = &mut one.process else { return Ok(None) };
        let asked = ask(process);
        one.signal(Signal::STOP);
        let asked = asked.map_err(|error| self.explained(one.cgroup.as_deref(), error));
        if asked.as_ref().is_err_and(|error| !error.is::<Interrupted>()) {
            self.drop_process(one);
        }
        asked.map(Some)
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
        self.drop_process(one);
    }
    fn drop_process(&mut self, one: &mut Contestant) {
        if let Some(name) = one.cgroup.take() {
            one.peak_bytes = self.helper.peak(&name).ok().map(|(bytes, _)| bytes);
            one.process = None;
            let _ = self.helper.tell(&Request::DropCgroup { name });
        }
        one.process = None;
        let _ = std::fs::remove_dir_all(&one.spec.directory);
    }
}

impl Contestant {
    /// Whether it takes turns.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }
    /// Stops it, so that nothing of it runs in another one's turn, or lets it go on.
    fn signal(&mut self, signal: Signal) {
        if let Some(pid) = self.process.as_ref().and_then(|process| Pid::from_raw(process.pid().cast_signed())) {
            let _ = kill_process(pid, signal);
        }
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
            peak_bytes: one.peak_bytes,
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
    print(&output, &contest.machine.line())?;
    let mut results = Results::default();
    let mut interrupted = false;
    for what in args.what.clone() {
        let ran = match what {
            What::Values => values::run(&mut contest, &mut results),
            What::Small => small::run(&mut contest, &mut results),
            What::Bank => bank::run(&mut contest, &mut results),
            What::Hits => hits::run(&mut contest, &mut results),
        };
        let told = match what {
            What::Values => values::told(&contest, &results),
            What::Small => small::told(&contest, &results),
            What::Bank => bank::told(&contest, &results),
            What::Hits => hits::told(&contest, &results),
        };
        interrupted = interrupt::ended_early(ran)?;
        print_all(&output, told)?;
        if interrupted {
            break;
        }
    }
    print(&output, "")?;
    print_all(&output, settings(&results))?;
    print_all(&output, &contest.notes)?;
    let setting = serde_json::json!({
        "keys": args.keys,
        "value_bytes": args.value,
        "memory_bytes": args.memory,
        "zipf": args.zipf,
        "round_ns": args.round_time.as_nanos() as u64,
        "seed": args.seed,
        "in_cgroups": contest.has_cgroups,
        "notes": contest.notes,
    });
    let words = std::iter::once("fulgurite-lab peers".to_owned()).chain(std::env::args().skip(1));
    let mut report = Report::new(&contest.machine, setting, &results.rows)
        .with("stores", &results.stores)?
        .with("simulated_hit_ratio", results.simulated_hit_ratio)?
        .with("hit_beyond_boxes_ns", results.hit_beyond_boxes_ns)?;
    report.command = words.collect::<Vec<_>>().join(" ");
    (report.interrupted, report.failed) = (interrupted, &contest.failed);
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
