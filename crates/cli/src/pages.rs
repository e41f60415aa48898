//! The small commands: completions, manual pages, cleanup.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use crate::args::Cli;
use crate::bad_input::bad_input;
use crate::privileged;

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fulgurite", &mut script);
    write_stdout(&script)
}

/// Writes one manual page for each command.
pub fn manual(directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        bad_input!("{} is not a directory; make it first", directory.display());
    }
    clap_mangen::generate_to(Cli::command(), directory)
        .with_context(|| format!("the manual pages cannot be written to {}", directory.display()))
}

/// Removes what ended runs have left.
pub fn cleanup() -> Result<()> {
    let cleaned = privileged::clean();
    for removed in &cleaned.removed {
        println!("removed {removed}");
    }
    for in_use in &cleaned.in_use {
        println!("{in_use}");
    }
    if !cleaned.failed.is_empty() {
        bail!("{}; run as the user who ran the benchmark, or as root", cleaned.failed.join("; "));
    }
    if cleaned.removed.is_empty() && cleaned.in_use.is_empty() {
        println!("nothing to remove");
    }
    Ok(())
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub fn write_stdout(bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    let mut output = std::io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e).context("standard output cannot be written"),
        _ => Ok(()),
    }
}
