//! The program's end of a process under measurement.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;

use super::protocol::{Batch, Command, Opened, Outcome, Spec};
use crate::interrupt::Interrupt;
use crate::own_process;

/// A process under measurement. Dropped, it is ended.
#[derive(Debug)]
pub struct ChildHandle {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    interrupt: Interrupt,
}

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
        let started = own_process::start(&["__child".as_ref()]);
        let (process, input, output) = started.context("the process to be measured could not be started")?;
        Ok(ChildHandle { process, input, output: BufReader::new(output), interrupt: interrupt.clone() })
    }
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn ask<T: DeserializeOwned>(&mut self, command: &Command) -> Result<T> {
        let sent = own_process::tell(&mut self.input, command);
        let quarter = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
        while sent.is_ok() {
            // One answer to each command: nothing is in the buffer while one is waited for.
            let mut fds = [PollFd::from_borrowed_fd(self.output.get_ref().as_fd(), PollFlags::IN)];
            if !matches!(poll(&mut fds, Some(&quarter)), Ok(0) | Err(rustix::io::Errno::INTR)) {
                break;
            }
            self.interrupt.check()?;
        }
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        self.interrupt.check()?;
        if sent.is_err() || !matches!(read, Ok(1..)) {
            let status = self.process.wait();
            bail!("the process under measurement ended by itself ({})", status.map_or("?".into(), |s| s.to_string()));
        }
        own_process::value(&line)
    }
    /// Has it take hold of the data.
    pub fn open(&mut self, spec: Spec) -> Result<Opened> {
        self.ask(&Command::Open(Box::new(spec)))
    }
    /// Changes the Zipf exponent.
    pub fn zipf(&mut self, exponent: f64) -> Result<()> {
        self.ask(&Command::Zipf(exponent))
    }
    /// Has it execute requests.
    pub fn run(&mut self, batch: &Batch) -> Result<Outcome> {
        self.ask(&Command::Run(batch.clone()))
    }
    /// Has it check its data. Returns the workload's invariant, which does not depend on order.
    pub fn check(&mut self) -> Result<u64> {
        self.ask(&Command::Check)
    }
    /// Requests a second that its device completes by itself. Leaves its data as it is.
    pub fn device(&mut self, read_share: f64, depth: usize, time: Duration) -> Result<f64> {
        self.ask(&Command::Device { read_share, depth, ms: time.as_millis() as u64 })
    }
    /// Nanoseconds that so many iterations of added work take there.
    pub fn time_work(&mut self, iterations: u64) -> Result<u64> {
        self.ask(&Command::TimeWork { iterations })
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
