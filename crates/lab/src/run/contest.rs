//! Programs in cgroups, and their turns.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use fulgurite_format::format_bytes;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::args::RunBenchArgs;
use super::figures::{Counters, FIGURES_EVERY, FigureReader};
use crate::values::{Part, Under};
use fulgurite_harness::checks;
use fulgurite_harness::experiment::{self, Experiment, OverLimit, Turn};
use fulgurite_harness::fio;
use fulgurite_harness::kernel_threads;
use fulgurite_harness::own_process::{Measured, sibling_program};
use fulgurite_harness::privileged::Request;
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
    pub experiment: Experiment,
    /// What is measured now.
    pub part: Part,
    /// What can be measured here, in the order it was asked for.
    pub under: Vec<Under>,
    directory: TempDir,
}

/// A program that takes turns.
pub struct Contestant {
    pub under: Under,
    pub one: experiment::Contestant<Program>,
    /// A baseline that its cgroup does not hold, as a note says.
    pub left_out: bool,
    reader: FigureReader,
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
        let place = checks::scratch_directory(args.place.dir.as_deref(), None)?;
        let swap_bytes = swap_bytes(args);
        let ours = args.config.iter().filter(|under| under.ours()).count() as u64;
        checks::space("--dir", &place, swap_bytes + ours * flash_bytes(args, true) + args.data_bytes())?;
        let programs = args.config.len() as u64;
        let needed = args.data_bytes() * 2 + PROGRAM_BYTES + args.dram_bytes().saturating_mul(programs);
        checks::memory(needed, args.data_bytes(), &Machine::describe())?;
        let interrupt = Interrupt::catch()?;
        let directory = tempfile::Builder::new().prefix("fulgurite-run-").tempdir_in(&place);
        let directory = directory.with_context(|| format!("no directory can be made in {}", place.display()))?;
        let mut experiment = Experiment::start(&interrupt, directory.path())?;
        let mut under = args.config.clone();
        under.sort();
        under.dedup();
        if let Some(missing) = &experiment.capabilities.cgroup_missing {
            let unlimited = format!("Nothing limits a program's memory but what it runs under: {missing}.");
            experiment.note(unlimited);
        }
        let mut refusals = Vec::new();
        for mode in under.iter().filter(|mode| mode.ours()) {
            refusals.push((*mode, refused(args, *mode, directory.path())?));
        }
        experiment.leave_out(&mut under, |under, machine| match under {
            Under::Swap => machine.without_swap(),
            _ => refusals.iter().find(|(mode, _)| mode == under)?.1.clone(),
        });
        if under.contains(&Under::Swap) {
            experiment.swap_on(directory.path(), swap_bytes)?;
        }
        let part = args.part[0];
        Ok(Contest { args: args.clone(), experiment, part, under, directory })
    }

    /// Has swap read 2 to the power of this many pages at a fault.
    ///
    /// # Errors
    /// The helper's.
    pub fn set_page_cluster(&mut self, value: u32) -> Result<()> {
        self.experiment.helper.perform(&Request::PageCluster { value })
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
        let path = self.directory.path().join(format!("files-{}", self.experiment.number()));
        std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(path)
    }

    /// Starts this program itself with these words, which answers what it is asked.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted, and there is none.
    pub fn begin_own(&mut self, under: Under, words: &[&str]) -> Result<Option<Contestant>> {
        let own = std::env::current_exe().context("the path of this program is not known");
        let interrupt = self.experiment.interrupt.clone();
        let began = own.and_then(|own| {
            let words: Vec<OsString> = std::iter::once(own.into()).chain(words.iter().map(OsString::from)).collect();
            let driven = |child| Ok(Program::Driven(Measured::of(child, &interrupt)?));
            self.begin(under, &words, Stdio::piped(), false, driven)
        });
        self.experiment.noted(under, began)
    }
    /// Starts a server with these words, whose standard output is dropped. It runs. With `forks`,
    /// its flash has room for a child.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted, and there is none.
    pub fn begin_server(&mut self, under: Under, words: &[OsString], forks: bool) -> Result<Option<Contestant>> {
        let began = self.begin(under, words, Stdio::null(), forks, |child| Ok(Program::Server(child)));
        self.experiment.noted(under, began)
    }

    fn begin(
        &mut self,
        under: Under,
        words: &[OsString],
        output: Stdio,
        forks: bool,
        made: impl FnOnce(Child) -> Result<Program>,
    ) -> Result<Contestant> {
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
        let limit_bytes = match under {
            Under::Dram => self.args.data_bytes() * 2 + PROGRAM_BYTES,
            _ => self.args.dram_bytes(),
        };
        let group = self.experiment.limit(child.id(), limit_bytes, under == Under::Swap);
        let told = group.and_then(|group| {
            child.stdin.as_mut().context("no input")?.write_all(b"go\n")?;
            Ok(group)
        });
        match told {
            Ok(group) => {
                let one = experiment::Contestant::new(made(child)?, group);
                Ok(Contestant { under, one, left_out: false, reader })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
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
        let (ours, reader, pid) = (one.under.ours(), one.reader.clone(), one.one.group.pid);
        self.ask(one, |program| {
            let before = Counters::of(pid, &reader, ours);
            let (outcome, kernel) = kernel_threads::during(|| what(program))?;
            let used = Counters::of(pid, &reader, ours).since(before);
            ensure!(outcome.wrong == 0, "{} answers are wrong", outcome.wrong);
            Ok(Turn {
                operations: outcome.operations,
                elapsed_ns: outcome.elapsed_ns,
                latency: outcome.latency,
                cpu_ns: used.cpu_ns + kernel.unwrap_or(0),
                faults: used.faults,
                reads: used.reads,
                bytes_written: used.written_bytes,
            })
        })
    }
    /// Has a program do something while the others are stopped.
    ///
    /// # Errors
    /// Interrupted. What else fails is noted; the program is ended then.
    pub fn ask<T>(&mut self, one: &mut Contestant, what: impl FnOnce(&mut Program) -> Result<T>) -> Result<Option<T>> {
        let reader = one.reader.clone();
        let asked = self.experiment.ask(&mut one.one, |program| {
            what(program).map_err(|error| match reader.words() {
                words if words.is_empty() => error,
                // Why it ended, if it said so.
                words => error.context(words),
            })
        });
        Ok(go_on(asked, |error| self.fail(one, &error))?.flatten())
    }
    /// Ends a program, and keeps its peak.
    pub fn end(&mut self, one: &mut Contestant) {
        if let Some(killed) = self.experiment.end(&mut one.one) {
            self.fail(one, &killed.into());
        }
        if let (Some(bytes), Some(limit_bytes)) = (one.one.group.peak_bytes, one.one.group.limit_bytes)
            && bytes > limit_bytes + FORCED_BYTES
        {
            self.fail(one, &OverLimit::Used { bytes, limit_bytes }.into());
        }
    }
    fn fail(&mut self, one: &mut Contestant, error: &anyhow::Error) {
        let name = format!("{}, {}", self.part, one.under);
        one.left_out |= self.experiment.fail(name, one.under == Under::Swap, error);
    }
}

impl Contestant {
    /// Whether its process has not ended by itself.
    pub fn poll_alive(&mut self) -> bool {
        match &mut self.one.process {
            Some(Program::Server(child)) => matches!(child.try_wait(), Ok(None)),
            other => other.is_some(),
        }
    }
}

impl Program {
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
