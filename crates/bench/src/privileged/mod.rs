//! What needs rights: memory cgroups, a swap file, and the certainty that both are removed.
//!
//! The program starts a helper (itself, as `__privileged`) early and asks it for things over a pipe. The helper removes all
//! it has made when the pipe closes, so that nothing is left however the program ends. Without the rights, the helper says
//! in one sentence what is missing, and the configurations that need it are skipped.

mod cgroup;
mod helper;
mod leftovers;
mod message;
mod swap;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

pub use helper::run;
pub use leftovers::clean;
pub use message::Capabilities;
use message::{Reply, Request};

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
    /// When the process cannot be started.
    pub fn start() -> Result<Helper> {
        // A process group of its own: Ctrl-C at the terminal is the program's affair.
        let mut process = Command::new("/proc/self/exe")
            .arg("__privileged")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("the helper process could not be started")?;
        let (input, output) = (process.stdin.take(), process.stdout.take().context("the helper has no output")?);
        Ok(Helper { process, input, output: BufReader::new(output) })
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let input = self.input.as_mut().context("the helper was closed")?;
        input.write_all(line.as_bytes()).context("the helper process has ended")?;
        line.clear();
        self.output.read_line(&mut line).context("the helper process does not answer")?;
        match serde_json::from_str(&line).context("the helper process has ended")? {
            Reply::Failed(sentence) => bail!(sentence),
            reply => Ok(reply),
        }
    }
    fn tell(&mut self, request: &Request) -> Result<()> {
        self.ask(request).map(|_| ())
    }

    /// What can be had, with swap files in this directory.
    ///
    /// # Errors
    /// When the helper has ended.
    pub fn probe(&mut self, scratch: &Path) -> Result<Capabilities> {
        match self.ask(&Request::Probe { scratch: scratch.to_owned() })? {
            Reply::Capabilities(capabilities) => Ok(capabilities),
            reply => bail!("the helper answered {reply:?}"),
        }
    }
    /// Makes a memory cgroup.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn cgroup(&mut self, name: &str, limit_bytes: u64, no_swap: bool) -> Result<()> {
        self.tell(&Request::Cgroup { name: name.to_owned(), limit_bytes, no_swap })
    }
    /// Takes its limits away.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn lift(&mut self, name: &str) -> Result<()> {
        self.tell(&Request::Lift { name: name.to_owned() })
    }
    /// Puts a process into it.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn join(&mut self, name: &str, pid: u32) -> Result<()> {
        self.tell(&Request::Join { name: name.to_owned(), pid })
    }
    /// Its highest use in bytes, and how many processes were killed in it.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn peak(&mut self, name: &str) -> Result<(u64, u64)> {
        match self.ask(&Request::Peak { name: name.to_owned() })? {
            Reply::Peak { bytes, killed } => Ok((bytes, killed)),
            reply => bail!("the helper answered {reply:?}"),
        }
    }
    /// Removes it.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn drop_cgroup(&mut self, name: &str) -> Result<()> {
        self.tell(&Request::DropCgroup { name: name.to_owned() })
    }
    /// Swaps to a new file in this directory.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn swap_on(&mut self, scratch: &Path, bytes: u64) -> Result<()> {
        self.tell(&Request::SwapOn { scratch: scratch.to_owned(), bytes })
    }
    /// Removes the swap file.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn swap_off(&mut self) -> Result<()> {
        self.tell(&Request::SwapOff)
    }
    /// Sets `vm.page-cluster` until the end.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn page_cluster(&mut self, value: u32) -> Result<()> {
        self.tell(&Request::PageCluster { value })
    }
    /// Turns zswap off until the end.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn zswap_off(&mut self) -> Result<()> {
        self.tell(&Request::ZswapOff)
    }
    /// Has a file removed at the end.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn adopt(&mut self, path: &Path) -> Result<()> {
        self.tell(&Request::Adopt { path: std::path::absolute(path)? })
    }
    /// Leaves a path alone that it was to remove at the end: the file is gone.
    ///
    /// # Errors
    /// The helper's sentence.
    pub fn release(&mut self, path: &Path) -> Result<()> {
        self.tell(&Request::Release { path: std::path::absolute(path)? })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}
