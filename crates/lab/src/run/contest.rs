//! Programs in cgroups, and their turns.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use fulgurite_format::format_bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::args::RunBenchArgs;
use super::figures::{Counters, FIGURES_EVERY, FigureReader, PAGE_BYTES};
use crate::values::{Part, Under};
use fulgurite_harness::checks;
use fulgurite_harness::fio;
use fulgurite_harness::kernel_threads;
use fulgurite_harness::own_process::{Measured, sibling_program};
use fulgurite_harness::privileged::{Helper, Request};
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, go_on};
use fulgurite_term::machine::Machine;

/// The least cap: the code and the tables of a small program, and some frames.
const LEAST_DRAM: u64 = 24 << 20;
/// What the kernel takes past a limit by itself, as it says of what may not fail and of processes
/// that end (`try_charge_memcg`): a few pages.
const FORCED_BYTES: u64 = 128 << 10;
/// What a program has in addition to its data where DRAM is enough.
const PROGRAM_BYTES: u64 = 256 << 20;

/// The run, and what it has made. Dropped, all of it is removed.
pub struct Contest {
    pub args: RunBenchArgs,
    pub machine: Machine,
    pub interrupt: Interrupt,
    /// Sentences about what is left out or weaker than it should be.
    pub notes: Vec<String>,
    /// Sentences about what failed.
    pub failed: Vec<String>,
    /// What can be measured here, in the order it was asked for.
    pub under: Vec<Under>,
    helper: Helper,
    has_cgroups: bool,
    made: u32,
    directory: TempDir,
}

/// A program that takes turns.
pub struct Contestant {
    pub under: Under,
    /// Highest use of its cgroup, once it has ended.
    pub peak_bytes: Option<u64>,
    /// What its cgroup may use.
    pub limit_bytes: Option<u64>,
    runs: Option<Program>,
    reader: FigureReader,
    group: Option<String>,
}

/// Its process: driven by its standard input, or by itself.
pub enum Program {
    Driven(Measured),
    Server(Child),
}

/// What a turn did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub operations: u64,
    pub elapsed_ns: u64,
    /// Nanoseconds, and how often.
    pub latency: Vec<(u64, u64)>,
    /// Answers that cannot be right.
    pub wrong: u64,
}

/// A turn, and what was used for it.
#[derive(Clone, Debug)]
pub struct Turn {
    pub outcome: Outcome,
    pub used: Counters,
    /// CPU time of the kernel's own threads meanwhile.
    pub kernel_ns: u64,
}

impl Turn {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.outcome.operations as f64 * 1e9 / (self.outcome.elapsed_ns as f64).max(1.0)
    }
    /// Pages written to the disk.
    pub fn writes(&self) -> u64 {
        self.used.written_bytes / PAGE_BYTES
    }
    /// Pages in a second that were written, or read by a thread that waited.
    pub fn pages_per_s(&self) -> f64 {
        (self.used.reads + self.writes()) as f64 * 1e9 / (self.outcome.elapsed_ns as f64).max(1.0)
    }
}

impl Contest {
    /// Finds out what this machine offers, and turns swap on.
    ///
    /// # Errors
    /// Bad input, before anything is made; the kernel's.
    pub fn start(args: &RunBenchArgs) -> Result<Contest> {
        checks::outputs(&args.output)?;
        let (dram, data) = (format_bytes(args.dram_bytes()), format_bytes(args.data_bytes()));
        if args.dram_bytes() < LEAST_DRAM {
            let least = format_bytes(LEAST_DRAM);
            bad_input!("--dram {dram}: a program with its libraries and tables needs {least}; choose more");
        }
        if args.dram_bytes() > args.data_bytes() {
            bad_input!("--dram {dram} holds all of {data} of data; choose less --dram or more --data");
        }
        let place = args.place.dir.clone().unwrap_or_else(std::env::temp_dir);
        if !place.is_dir() {
            bad_input!("--dir {} is no directory; create it, or name another one", place.display());
        }
        let swap_bytes = swap_bytes(args);
        let ours = args.config.iter().filter(|under| under.ours()).count() as u64;
        checks::space("--dir", &place, swap_bytes + ours * flash_bytes(args, true) + args.data_bytes())?;
        let machine = Machine::describe();
        let programs = args.config.len() as u64;
        let needed = args.data_bytes() * 2 + PROGRAM_BYTES + args.dram_bytes().saturating_mul(programs);
        checks::memory(needed, args.data_bytes(), &machine)?;
        let interrupt = Interrupt::catch()?;
        let directory = tempfile::Builder::new().prefix("fulgurite-run-").tempdir_in(&place);
        let directory = directory.with_context(|| format!("no directory can be made in {}", place.display()))?;
        let mut helper = Helper::start()?;
        let capabilities = helper.probe(directory.path())?;
        let (mut notes, mut under) = (Vec::new(), args.config.clone());
        let has_cgroups = capabilities.cgroup_missing.is_none();
        if let Some(missing) = &capabilities.cgroup_missing {
            notes.push(format!("Nothing limits a program's memory but what it runs under: {missing}."));
        }
        let swap_missing = capabilities.swap_missing.or(capabilities.cgroup_missing);
        if let (Some(missing), true) = (swap_missing, under.contains(&Under::Swap)) {
            notes.push(format!("Rows of swap are left out: {missing}."));
            under.retain(|one| *one != Under::Swap);
        }
        for mode in [Under::Compatible, Under::InLine] {
            if let (true, Some(refused)) = (under.contains(&mode), refused(args, mode, directory.path())?) {
                notes.push(format!("Rows of {mode} are left out: {refused}."));
                under.retain(|one| *one != mode);
            }
        }
        if under.contains(&Under::Swap) {
            if capabilities.zswap == "on" {
                notes.push("zswap is on; for swap it was turned off, and is on again after the run.".to_owned());
            }
            helper.perform(&Request::ZswapOff)?;
            // One page a fault: what comes with it would not be used. Saves read in order, and are
            // measured with more as well.
            helper.perform(&Request::PageCluster { value: 0 })?;
            helper.perform(&Request::SwapOn { scratch: directory.path().to_owned(), bytes: swap_bytes })?;
        }
        let (args, failed) = (args.clone(), Vec::new());
        Ok(Contest { args, machine, interrupt, notes, failed, under, helper, has_cgroups, made: 0, directory })
    }

    /// Whether memory cgroups hold the programs.
    pub fn has_cgroups(&self) -> bool {
        self.has_cgroups
    }
    /// Says something once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
    /// Has swap read 2 to the power of this many pages at a fault.
    ///
    /// # Errors
    /// The helper's.
    pub fn set_page_cluster(&mut self, value: u32) -> Result<()> {
        self.helper.perform(&Request::PageCluster { value })
    }
    /// A file as long as the data, which may be overwritten.
    ///
    /// # Errors
    /// The kernel's.
    pub fn second_file(&mut self) -> Result<PathBuf> {
        let path = self.directory.path().join("beside");
        if !path.exists() {
            fio::make_file(&path, self.args.data_bytes())?;
        }
        Ok(path)
    }
    /// A new directory for a program's files.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new_directory(&mut self) -> Result<PathBuf> {
        self.made += 1;
        let path = self.directory.path().join(format!("files-{}", self.made));
        std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(path)
    }

    /// Starts this program itself with these words, which answers what it is asked. Stopped.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted, and there is none.
    pub fn begin_own(&mut self, under: Under, words: &[&str]) -> Result<Option<Contestant>> {
        let own = std::env::current_exe().context("the path of this program is not known");
        let began = own.and_then(|own| {
            let words: Vec<OsString> = std::iter::once(own.into()).chain(words.iter().map(OsString::from)).collect();
            let (child, one) = self.begin(under, &words, Stdio::piped(), false)?;
            Ok(Contestant { runs: Some(Program::Driven(Measured::of(child, &self.interrupt)?)), ..one })
        });
        self.began(began, under)
    }
    /// Starts a server with these words, whose standard output is dropped. It runs. With `forks`,
    /// its flash has room for a child.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted, and there is none.
    pub fn begin_server(&mut self, under: Under, words: &[OsString], forks: bool) -> Result<Option<Contestant>> {
        let began = self.begin(under, words, Stdio::null(), forks);
        let began = began.map(|(child, one)| Contestant { runs: Some(Program::Server(child)), ..one });
        self.began(began, under)
    }
    fn began(&mut self, began: Result<Contestant>, under: Under) -> Result<Option<Contestant>> {
        go_on(began, |error| self.failed.push(format!("{under}: {error:#}")))
    }

    fn begin(&mut self, under: Under, words: &[OsString], output: Stdio, forks: bool) -> Result<(Child, Contestant)> {
        let mut command = Command::new("/bin/sh");
        // It waits for a word, so that it is in its cgroup before it has any memory.
        command.args(["-c", "read -r go && exec \"$@\"", "sh"]);
        if under.ours() {
            let flash = self.directory.path();
            command.arg(fulgurite()?).args(run_words(&self.args, under, flash, flash_bytes(&self.args, forks)));
        }
        command.args(words).process_group(0);
        command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped());
        let mut child = command.spawn().context("the shell /bin/sh cannot be started")?;
        let reader = FigureReader::of(child.stderr.take().context("no standard error output")?, child.id());
        let mut one = Contestant { under, peak_bytes: None, limit_bytes: None, runs: None, reader, group: None };
        let joined = self.join(&mut one, child.id());
        let told = joined.and_then(|()| Ok(child.stdin.as_mut().context("no input")?.write_all(b"go\n")?));
        if let Err(error) = told {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok((child, one))
    }
    fn join(&mut self, one: &mut Contestant, pid: u32) -> Result<()> {
        if !self.has_cgroups {
            return Ok(());
        }
        self.made += 1;
        let name = format!("run-{}", self.made);
        let limit_bytes = match one.under {
            Under::Dram => self.args.data_bytes() * 2 + PROGRAM_BYTES,
            _ => self.args.dram_bytes(),
        };
        let no_swap = one.under != Under::Swap;
        self.helper.perform(&Request::Cgroup { name: name.clone(), limit_bytes, no_swap })?;
        (one.group, one.limit_bytes) = (Some(name.clone()), Some(limit_bytes));
        self.helper.perform(&Request::Join { name, pid })
    }

    /// Has a program do something while the others are stopped, and counts what it uses.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted; the program is ended then.
    pub fn turn(
        &mut self,
        one: &mut Contestant,
        what: impl FnOnce(&mut Program) -> Result<Outcome>,
    ) -> Result<Option<Turn>> {
        let (ours, reader) = (one.under.ours(), one.reader.clone());
        self.ask(one, |program| {
            let pid = program.pid();
            let before = Counters::of(pid, &reader, ours);
            let (outcome, kernel) = kernel_threads::during(|| what(program))?;
            let used = Counters::of(pid, &reader, ours).since(before);
            ensure!(outcome.wrong == 0, "{} answers are wrong", outcome.wrong);
            Ok(Turn { outcome, used, kernel_ns: kernel.unwrap_or(0) })
        })
    }
    /// Has a program do something while the others are stopped.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted; the program is ended then.
    pub fn ask<T>(&mut self, one: &mut Contestant, what: impl FnOnce(&mut Program) -> Result<T>) -> Result<Option<T>> {
        let Some(program) = &mut one.runs else { return Ok(None) };
        program.signal(Signal::CONT);
        let asked = what(program);
        program.signal(Signal::STOP);
        let under = one.under;
        let asked = asked.map_err(|error| self.explained(one, error));
        let answer = go_on(asked, |error| self.failed.push(format!("{under}: {error:#}")))?;
        if answer.is_none() {
            self.end(one);
        }
        Ok(answer)
    }
    /// Why a program ended, if it said so, or if the kernel ended it.
    fn explained(&mut self, one: &Contestant, error: anyhow::Error) -> anyhow::Error {
        let killed = one.group.as_deref().and_then(|name| self.helper.peak(name).ok());
        let words = one.reader.words();
        let error = if words.is_empty() { error } else { error.context(words) };
        match killed {
            Some((_, 1..)) => error.context("the kernel ended it: it needs more memory than its cgroup allows"),
            _ => error,
        }
    }
    /// Ends a program, and keeps its peak.
    pub fn end(&mut self, one: &mut Contestant) {
        one.runs = None;
        if let Some(name) = one.group.take() {
            let peak = self.helper.peak(&name);
            if let Ok((bytes, killed)) = peak {
                one.peak_bytes = Some(bytes);
                if killed > 0 {
                    self.failed.push(format!("{}: the kernel killed it for want of memory", one.under));
                }
                if let Some(limit) = one.limit_bytes
                    && bytes > limit + FORCED_BYTES
                {
                    let more = format_bytes(bytes - limit);
                    self.failed.push(format!("{}: it used {more} more than its cap", one.under));
                }
            }
            let _ = self.helper.perform(&Request::DropCgroup { name });
        }
    }
}

impl Contestant {
    /// Whether it takes turns.
    pub fn runs(&self) -> bool {
        self.runs.is_some()
    }
    /// Whether its process has not ended by itself.
    pub fn poll_alive(&mut self) -> bool {
        match &mut self.runs {
            Some(Program::Server(child)) => matches!(child.try_wait(), Ok(None)),
            other => other.is_some(),
        }
    }
    /// The number of its process.
    pub fn pid(&self) -> Option<u32> {
        self.runs.as_ref().map(Program::pid)
    }
}

impl Program {
    fn pid(&self) -> u32 {
        match self {
            Program::Driven(process) => process.pid(),
            Program::Server(child) => child.id(),
        }
    }
    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }
    /// The process that answers.
    ///
    /// # Errors
    /// When it is a server.
    pub fn driven(&mut self) -> Result<&mut Measured> {
        match self {
            Program::Driven(process) => Ok(process),
            Program::Server(_) => bail!("a server is asked by its protocol"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Program::Server(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command that programs run under.
fn fulgurite() -> Result<PathBuf> {
    sibling_program("fulgurite", "install it there, or `cargo build --release -p fulgurite-cli -p fulgurite-preload`")
}

/// Why a mode of `fulgurite run` cannot be had here, if it cannot.
fn refused(args: &RunBenchArgs, mode: Under, flash: &Path) -> Result<Option<String>> {
    let mut command = Command::new(fulgurite()?);
    let output = command.args(run_words(args, mode, flash, 1 << 20)).arg("true").stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(None);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let words = told.lines().filter(|line| !line.starts_with('{')).map(str::trim).collect::<Vec<_>>().join("; ");
    Ok(Some(words.trim_end_matches('.').to_owned()))
}

/// For all that programs may have there at one time, and children of theirs.
fn swap_bytes(args: &RunBenchArgs) -> u64 {
    if args.config.contains(&Under::Swap) { args.data_bytes() * 3 + PROGRAM_BYTES } else { 0 }
}

/// A server's data is more than its values. A child may change all that its parent has.
fn flash_bytes(args: &RunBenchArgs, forks: bool) -> u64 {
    let once = args.data_bytes() * 2 + (64 << 20);
    if forks && args.part.contains(&Part::Save) { 2 * once } else { once }
}

fn run_words(args: &RunBenchArgs, under: Under, flash: &Path, flash_bytes: u64) -> Vec<OsString> {
    let kib = |bytes: u64| format!("{}K", bytes / 1024);
    let (dram, size) = (kib(args.dram_bytes()), kib(flash_bytes));
    let words =
        ["run", "--json", "--stats", FIGURES_EVERY, "--mode", under.name(), "--dram", &dram, "--flash-size", &size];
    let place: [&OsStr; 3] = ["--flash".as_ref(), flash.as_os_str(), "--".as_ref()];
    words.iter().map(OsString::from).chain(place.map(OsString::from)).collect()
}
