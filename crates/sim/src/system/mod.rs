//! A system: a file that says which model runs, and with what.
//!
//! ```toml
//! model = "flash"
//! about = "what it is"
//! ```
//!
//! The other keys are the model's, without defaults: a key that is missing, unknown or not read is
//! an error with its line.

mod document;
mod units;

use std::sync::Arc;

use serde::Serialize;

pub use document::{Document, Problem, SystemError, did_you_mean, nearest};
pub use units::Quantity;

use crate::cores::{CoresReport, CoresSystem, Front, Recording};
use crate::flash::{FlashReport, FlashSystem};
use crate::fnv::Fnv;
use crate::interface::{InterfaceReport, InterfaceSystem};
use crate::paging::{PagingReport, PagingSystem};
use crate::path::{PathReport, PathSystem};
use crate::report::{Counted, RunError};
use crate::stages::Split;
use crate::trace::{Record, Trace};
use crate::workers::{WorkersReport, WorkersSystem};

/// A system that can run.
#[derive(Clone, Debug)]
pub struct System {
    file: String,
    about: String,
    hash: String,
    model: Model,
}

#[derive(Clone, Debug)]
enum Model {
    Flash(Box<FlashSystem>),
    Interface(Box<InterfaceSystem>),
    Cores(Box<CoresSystem>, Front, bool),
    Workers(Box<WorkersSystem>),
    Memory(Box<PathSystem>),
    Paging(Box<PagingSystem>),
}

/// The version of the models, of which results are.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What came of a run, with what it was of.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The system's file.
    pub system: String,
    /// What it is.
    pub about: String,
    /// A hash of its keys and values.
    pub hash: String,
    /// The seed.
    pub seed: u64,
    /// Of the program.
    pub version: &'static str,
    /// What the model found.
    #[serde(flatten)]
    pub found: Found,
}

/// What a model found.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "model", rename_all = "lowercase")]
pub enum Found {
    /// Flash behind a link.
    Flash(Box<FlashReport>),
    /// A device on the DRAM interface.
    Interface(Box<InterfaceReport>),
    /// Cores over DRAM over flash.
    Cores(Box<CoresReport>),
    /// Workers that run fibers.
    Workers(Box<WorkersReport>),
    /// The path of memory.
    Memory(Box<PathReport>),
    /// Programs over more memory than DRAM.
    Paging(Box<PagingReport>),
}

/// What a system is given to run, in addition to its file.
#[derive(Clone, Copy, Debug, Default)]
pub enum RunInput<'g> {
    /// It makes its requests or jobs itself.
    #[default]
    Nothing,
    /// A trace, for the models `flash`, `memory` and `cores`.
    Trace(&'g Trace),
    /// Jobs of another run, for the model `cores`.
    Recording(&'g Arc<Recording>),
}

impl<'g> RunInput<'g> {
    fn trace(self) -> Option<&'g Trace> {
        if let RunInput::Trace(trace) = self { Some(trace) } else { None }
    }
    fn recording(self) -> Option<&'g Arc<Recording>> {
        if let RunInput::Recording(recording) = self { Some(recording) } else { None }
    }
    /// What tells it apart from all else that could be given: text for the system's hash.
    fn identity(self) -> Option<String> {
        match self {
            RunInput::Nothing => None,
            RunInput::Recording(recording) => Some(format!("recording {}", Fnv(recording.identity()))),
            RunInput::Trace(trace) => {
                let mut hash = Fnv::default();
                for Record { line, at, writes, offset, bytes } in &trace.records {
                    let at = at.map_or(u64::MAX, |at| at.0);
                    let instruction = trace.format.counts_instructions().then_some(*line);
                    let parts = [at, u64::from(*writes), *offset, *bytes].into_iter().chain(instruction);
                    parts.for_each(|part| hash.add(&part.to_le_bytes()));
                }
                Some(format!("trace {hash}"))
            }
        }
    }
}

impl System {
    /// Reads a system. `set` puts values in the place of the file's, and `given` is what it runs if
    /// it says so.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(file: &str, text: &str, set: &[(String, String)], given: RunInput<'_>) -> Result<System, SystemError> {
        System::read_with(file, text, set, given).map(|(system, _)| system)
    }
    /// The keys and values of the same system as TOML, with its hash.
    ///
    /// # Errors
    /// As [`System::read`].
    pub fn resolved(
        file: &str,
        text: &str,
        set: &[(String, String)],
        given: RunInput<'_>,
    ) -> Result<String, SystemError> {
        System::read_with(file, text, set, given).map(|(_, document)| document.print())
    }
    fn read_with(
        file: &str,
        text: &str,
        set: &[(String, String)],
        given: RunInput<'_>,
    ) -> Result<(System, Document), SystemError> {
        let mut document = Document::read(file, text, set)?;
        document.beside = given.identity();
        let trace = given.trace();
        let records = trace.map(|trace| &trace.records[..]);
        let models = [("flash", 0), ("interface", 1), ("cores", 2), ("workers", 3), ("memory", 4), ("paging", 5)];
        if !document.has("model") {
            let names = models.map(|(name, _)| name).join(", ");
            return Err(document.impossible("about", format!("there is no model; write one of {names}")));
        }
        let about = document.text("about")?.to_owned();
        let model = match document.word("model", &models)? {
            0 => Model::Flash(Box::new(FlashSystem::read(&document, records)?)),
            1 => Model::Interface(Box::new(InterfaceSystem::read(&document)?)),
            2 => {
                let cores = CoresSystem::read(&document)?;
                let front = Front::read(&document, &cores, given.recording(), trace)?;
                if let Some((key, told)) = cores.refuses(&front) {
                    return Err(document.refuse(key, told));
                }
                Model::Cores(Box::new(cores), front, false)
            }
            3 => Model::Workers(Box::new(WorkersSystem::read(&document)?)),
            5 => Model::Paging(Box::new(PagingSystem::read(&document)?)),
            _ => Model::Memory(Box::new(PathSystem::read(&document, records)?)),
        };
        if trace.is_some() && !matches!(model, Model::Flash(_) | Model::Memory(_) | Model::Cores(..)) {
            return Err(document.refuse("model", "this model runs no trace"));
        }
        if given.recording().is_some() && !matches!(model, Model::Cores(..)) {
            return Err(document.refuse("model", "this model replays no recording"));
        }
        document.all_read()?;
        Ok((System { file: file.to_owned(), about, hash: document.hash(), model }, document))
    }
    /// A hash of its keys and values, and of what it was given to run.
    pub fn hash(&self) -> &str {
        &self.hash
    }
    /// Keeps what is needed to split percentiles.
    #[must_use]
    pub fn explained(mut self) -> System {
        match &mut self.model {
            Model::Flash(flash) => flash.explain = true,
            Model::Interface(interface) => interface.explain = true,
            Model::Cores(.., explain) => *explain = true,
            Model::Workers(workers) => workers.explain = true,
            Model::Memory(memory) => memory.explain = true,
            Model::Paging(paging) => paging.explain = true,
        }
        self
    }
    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<Report, RunError> {
        let found = match &self.model {
            Model::Flash(flash) => Found::Flash(Box::new(flash.run(seed)?)),
            Model::Interface(interface) => Found::Interface(Box::new(interface.run(seed)?)),
            Model::Cores(cores, front, explain) => Found::Cores(Box::new(cores.run_with(seed, front, *explain)?)),
            Model::Workers(workers) => Found::Workers(Box::new(workers.run(seed)?)),
            Model::Memory(memory) => Found::Memory(Box::new(memory.run(seed)?)),
            Model::Paging(paging) => Found::Paging(Box::new(paging.run(seed)?)),
        };
        Ok(self.report(seed, found))
    }
    /// Runs it, and records its jobs.
    ///
    /// # Errors
    /// As [`System::run`], and [`RunError::NoJobs`], before anything runs, where it has none of its
    /// own.
    pub fn record(&self, seed: u64) -> Result<(Report, Recording), RunError> {
        let Model::Cores(cores, front, explain) = &self.model else { return Err(RunError::NoJobs) };
        let (found, recording) = cores.record(seed, front, *explain)?;
        Ok((self.report(seed, Found::Cores(Box::new(found))), recording))
    }
    fn report(&self, seed: u64, found: Found) -> Report {
        Report {
            system: self.file.clone(),
            about: self.about.clone(),
            hash: self.hash.clone(),
            seed,
            version: VERSION,
            found,
        }
    }
}

impl Report {
    /// How much the run has done.
    pub fn counted(&self) -> Counted {
        match &self.found {
            Found::Flash(flash) => flash.counted,
            Found::Interface(interface) => interface.counted,
            Found::Cores(cores) => cores.counted,
            Found::Workers(workers) => workers.counted,
            Found::Memory(memory) => memory.counted,
            Found::Paging(paging) => paging.counted,
        }
    }
    /// What a reader has to know.
    pub fn warnings(&self) -> &[String] {
        match &self.found {
            Found::Flash(flash) => &flash.warnings,
            Found::Interface(interface) => &interface.warnings,
            Found::Cores(cores) => &cores.warnings,
            Found::Workers(workers) => &workers.warnings,
            Found::Memory(memory) => &memory.warnings,
            Found::Paging(paging) => &paging.warnings,
        }
    }
    /// What a reader is shown: names with values and their units.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        match &self.found {
            Found::Flash(flash) => flash.rows(),
            Found::Interface(interface) => interface.rows(),
            Found::Cores(cores) => cores.rows(),
            Found::Workers(workers) => workers.rows(),
            Found::Memory(memory) => memory.rows(),
            Found::Paging(paging) => paging.rows(),
        }
    }
    /// Where the time goes, by kind of request.
    pub fn splits(&self) -> Vec<(&'static str, &Split)> {
        fn of<'s>(name: &'static str, split: &'s Option<Split>) -> Option<(&'static str, &'s Split)> {
            split.as_ref().map(|split| (name, split))
        }
        let splits = match &self.found {
            Found::Flash(flash) => vec![of("read", &flash.read_stages), of("write", &flash.write_stages)],
            Found::Interface(interface) => vec![of("command", &interface.stages)],
            Found::Cores(cores) => {
                vec![of("miss", &cores.miss_stages), of("block of other cores", &cores.coherence_stages)]
            }
            Found::Workers(workers) => vec![of("miss", &workers.miss_stages)],
            Found::Memory(memory) => vec![of("request", &memory.stages)],
            Found::Paging(paging) => vec![of("miss", &paging.miss_stages)],
        };
        splits.into_iter().flatten().collect()
    }
}
