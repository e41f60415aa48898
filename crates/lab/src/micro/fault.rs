//! Page faults without I/O, in a process of their own: its signals and its memory are the page
//! buffer's.

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::alloc::child::Command;
use crate::alloc::page_fault::FaultCosts;
use fulgurite_harness::own_process::Measured;
use fulgurite_term::interrupt::{Interrupt, go_on};

/// The process, or why there is none.
pub struct Faults {
    process: Option<Measured>,
    missing: Option<String>,
    // After the process, whose file is there.
    _directory: TempDir,
}

impl Faults {
    /// Starts the process.
    ///
    /// # Errors
    /// Interrupted; the kernel's.
    pub fn start(interrupt: &Interrupt) -> Result<Faults> {
        let directory = tempfile::tempdir().context("no directory can be made for a file of 64 MiB")?;
        let mut process = Measured::start(&["__alloc".as_ref()], interrupt)?;
        let opened = process.ask::<()>(&Command::OpenFaults { file: directory.path().join("flash") });
        let mut missing = None;
        let opened = go_on(opened, |error| missing = Some(format!("Page faults are left out: {error:#}.")))?;
        Ok(Faults { process: opened.map(|()| process), missing, _directory: directory })
    }
    /// Measures once; none where that cannot be had.
    ///
    /// # Errors
    /// Interrupted; what failed.
    pub fn round(&mut self) -> Result<Option<FaultCosts>> {
        self.process.as_mut().map(|process| process.ask(&Command::Faults)).transpose()
    }
    /// Ends it. Says why there was nothing to measure, if so.
    pub fn end(self) -> Option<String> {
        self.missing
    }
}
