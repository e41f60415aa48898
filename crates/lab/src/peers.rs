//! `peers`: another program, in the directory of this one where it was built.
//!
//! It is in no default build, as it holds the stores that it compares with.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use fulgurite_harness::own_process::sibling_program;

/// Becomes that program.
///
/// # Errors
/// Bad input, where it was not built; the kernel's.
pub fn run(arguments: &[OsString]) -> Result<()> {
    let make = "`make peers` builds and runs it (redb, fjall, LMDB and foyer are in no other program)";
    let program = sibling_program("fulgurite-peers", make)?;
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{} cannot be run", program.display()))
}
