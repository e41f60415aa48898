//! The program's end of a process under measurement.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::protocol::{Batch, Command, Opened, Outcome, Spec};
use crate::own_process::Measured;
use fulgurite_term::interrupt::Interrupt;

/// A process under measurement. Dropped, it is ended.
#[derive(Debug)]
pub struct ChildHandle(Measured);

/// Where another process of this program finds an open file of this one.
pub fn shared_path(file: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Opens what [`shared_path`] named, for reading and writing.
pub fn open_shared(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path).with_context(|| format!("{} cannot be opened", path.display()))
}

impl ChildHandle {
    /// Starts a process. It has allocated next to nothing yet: put it into its cgroup now.
    pub fn start(interrupt: &Interrupt) -> Result<ChildHandle> {
        Measured::start(&["__child".as_ref()], interrupt).map(ChildHandle)
    }
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Has it take hold of the data.
    pub fn open(&mut self, spec: Spec) -> Result<Opened> {
        self.0.ask(&Command::Open(Box::new(spec)))
    }
    /// Changes the Zipf exponent.
    pub fn zipf(&mut self, exponent: f64) -> Result<()> {
        self.0.ask(&Command::Zipf(exponent))
    }
    /// Has it execute requests.
    pub fn run(&mut self, batch: &Batch) -> Result<Outcome> {
        self.0.ask(&Command::Run(batch.clone()))
    }
    /// Has it check its data. Returns the workload's invariant, which does not depend on order.
    pub fn check(&mut self) -> Result<u64> {
        self.0.ask(&Command::Check)
    }
    /// Requests a second that its device completes by itself. Leaves its data as it is.
    pub fn device(&mut self, read_share: f64, depth: usize, time: Duration) -> Result<f64> {
        self.0.ask(&Command::Device { read_share, depth, ms: time.as_millis() as u64 })
    }
    /// Nanoseconds that this number of iterations of added work takes there.
    pub fn time_work(&mut self, iterations: u64) -> Result<u64> {
        self.0.ask(&Command::TimeWork { iterations })
    }
}
