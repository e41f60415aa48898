//! `bench peers`: another program, which is beside this one where it was built.
//!
//! It is in no default build, as it holds the stores that it compares with.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use fulgurite_bench::bad_input;

/// The name of the program.
const PROGRAM: &str = "fulgurite-peers";

/// Becomes that program.
///
/// # Errors
/// Bad input, where it was not built; the kernel's.
pub fn run(arguments: &[OsString]) -> Result<()> {
    let this = std::env::current_exe().context("this program cannot be found")?;
    let program = this.with_file_name(PROGRAM);
    if !program.is_file() {
        bad_input!(
            "{PROGRAM} is not beside {}; `make peers` builds and runs it (redb, fjall, LMDB and foyer are in no other program)",
            this.display()
        );
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{} cannot be run", program.display()))
}
