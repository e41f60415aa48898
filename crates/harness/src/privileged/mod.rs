//! What needs rights: memory cgroups, a swap file, and the certainty that both are removed.
//!
//! The program starts a helper (itself, as `__privileged`) early, and asks it over a pipe. The
//! helper removes all it has made when the pipe closes. Without rights it says what is missing, and
//! the configurations that need it are skipped.

mod helper;
mod message;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};

use anyhow::{Context, Result, bail};

use crate::own_process;
pub use helper::run;
use message::Reply;
pub use message::{Capabilities, Request};

/// The program's end of the pipe. Dropped, it waits until the helper has removed everything.
#[derive(Debug)]
pub struct Helper {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a helper.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start() -> Result<Helper> {
        let started = own_process::start(&["__privileged".as_ref()]);
        let (process, input, output) = started.context("the helper process could not be started")?;
        Ok(Helper { process, input: Some(input), output: BufReader::new(output) })
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let input = self.input.as_mut().context("the helper was closed")?;
        own_process::send(input, request).context("the helper process has ended")?;
        let mut line = String::new();
        self.output.read_line(&mut line).context("the helper process does not answer")?;
        match serde_json::from_str(&line).context("the helper process has ended")? {
            Reply::Failed(sentence) => bail!(sentence),
            reply => Ok(reply),
        }
    }
    /// Has it do something.
    ///
    /// # Errors
    /// What it could not do, or that it has ended.
    pub fn perform(&mut self, request: &Request) -> Result<()> {
        self.ask(request).map(|_| ())
    }
    /// What can be had, with swap files in this directory.
    ///
    /// # Errors
    /// What it could not do, or that it has ended.
    pub fn probe(&mut self, scratch: &Path) -> Result<Capabilities> {
        match self.ask(&Request::Probe { scratch: scratch.to_owned() })? {
            Reply::Capabilities(capabilities) => Ok(capabilities),
            reply => bail!("the helper answered {reply:?}"),
        }
    }
    /// A cgroup's highest use in bytes, and how many processes were killed in it.
    ///
    /// # Errors
    /// What it could not do, or that it has ended.
    pub fn peak(&mut self, name: &str) -> Result<(u64, u64)> {
        match self.ask(&Request::Peak { name: name.to_owned() })? {
            Reply::Peak { bytes, killed } => Ok((bytes, killed)),
            reply => bail!("the helper answered {reply:?}"),
        }
    }
    /// Has a file removed at the end.
    ///
    /// # Errors
    /// What it could not do, or that it has ended.
    pub fn adopt(&mut self, path: &Path) -> Result<()> {
        self.perform(&Request::Adopt { path: std::path::absolute(path)? })
    }
    /// Leaves a path alone that it was to remove at the end: the file is gone.
    ///
    /// # Errors
    /// What it could not do, or that it has ended.
    pub fn release(&mut self, path: &Path) -> Result<()> {
        self.perform(&Request::Release { path: std::path::absolute(path)? })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}
