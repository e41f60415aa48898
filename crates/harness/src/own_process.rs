//! Other processes of this program, over a pipe: one JSON object a line, one answer to each.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};

use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::Interrupt;

/// Another program, in the directory of this one where both were built or installed.
///
/// # Errors
/// Bad input, with `make` as the advice how to get it, where it is not there.
pub fn sibling_program(name: &str, make: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program cannot be found")?;
    let program = this.with_file_name(name);
    if !program.is_file() {
        bad_input!("{name} is not next to {}; {make}", this.display());
    }
    Ok(program)
}

/// Starts one, with both ends of its pipes. Without its input it ends.
pub fn start(arguments: &[&OsStr]) -> Result<(Child, ChildStdin, ChildStdout)> {
    let mut command = Command::new("/proc/self/exe");
    // A process group of its own: Ctrl-C at the terminal is the program's affair.
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut process = command.spawn()?;
    let (input, output) = (process.stdin.take().context("no input")?, process.stdout.take().context("no output")?);
    Ok((process, input, output))
}

/// Writes one object.
pub fn send(output: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    output.flush()
}

/// An answer: a value, or why there is none.
pub type Answer = Result<serde_json::Value, String>;

/// Reads an answer.
pub fn value<T: DeserializeOwned>(line: &str) -> Result<T> {
    match serde_json::from_str(line).context("no answer")? {
        Ok(value) => Ok(serde_json::from_value(value)?),
        Err::<_, String>(sentence) => bail!(sentence),
    }
}

/// Answers what comes over standard input, until that closes or nobody reads the answers.
pub fn serve<Q: DeserializeOwned, A: Serialize>(mut answer: impl FnMut(serde_json::Result<Q>) -> A) {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines().map_while(Result::ok) {
        if send(&mut output, &answer(serde_json::from_str(&line))).is_err() {
            break;
        }
    }
}

/// A process of this program under measurement. Dropped, it is ended.
#[derive(Debug)]
pub struct Measured {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    interrupt: Interrupt,
}

impl Measured {
    /// Starts one with these arguments. It has allocated next to nothing yet: put it into its
    /// cgroup now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(arguments: &[&OsStr], interrupt: &Interrupt) -> Result<Measured> {
        let started = start(arguments).context("the process to be measured could not be started");
        let (process, input, output) = started?;
        Ok(Measured { process, input, output: BufReader::new(output), interrupt: interrupt.clone() })
    }
    /// A process under measurement that was started elsewhere, with both ends of its pipes.
    pub fn of(mut process: Child, interrupt: &Interrupt) -> Result<Measured> {
        let (input, output) = (process.stdin.take().context("no input")?, process.stdout.take().context("no output")?);
        Ok(Measured { process, input, output: BufReader::new(output), interrupt: interrupt.clone() })
    }
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
    /// Has it do something, and waits for the answer.
    ///
    /// # Errors
    /// What it answered; that it ended by itself; [`fulgurite_term::interrupt::Interrupted`].
    pub fn ask<T: DeserializeOwned>(&mut self, command: &impl Serialize) -> Result<T> {
        let sent = send(&mut self.input, command);
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
        value(&line)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
