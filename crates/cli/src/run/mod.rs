//! `fulgurite run`: becomes a program whose large mappings are in flash.
//!
//! The program takes this process over, so that signals and exit codes are its own. The library
//! that is loaded into it makes the flash and tells the summary (`fulgurite-preload`).

pub mod args;
pub mod leftovers;
mod program;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow};
use fulgurite_fault::{Below, ENVIRONMENT, RunSettings, Wanted};
use fulgurite_format::PAGE_BYTES;
use fulgurite_term::bad_input;
use fulgurite_term::bad_input::OrBadInput;

use args::{Mode, RunArgs};

const LIBRARY: &str = "libfulgurite_preload.so";
/// Flash in times of DRAM, unless it is said.
const FLASH_TIMES: u64 = 8;

pub fn run(args: &RunArgs) -> Result<()> {
    let (name, words) = args.program.split_first().expect("the parser wants a program");
    let Some(program) = program::find(name) else {
        bad_input!("{}: there is no such program", name.display());
    };
    let judged = program::judge(&program).or_bad_input(|e| format!("{}: {e}", program.display()))?;
    if let Some(reason) = judged {
        bad_input!("{}: {}; run it without fulgurite", program.display(), reason.message());
    }
    let library = library()?;
    let preload_before = std::env::var("LD_PRELOAD").unwrap_or_default();
    if let Some(first) = program::sanitizer_in(&preload_before) {
        bad_input!(
            "LD_PRELOAD has {first}, a sanitizer's runtime, which has to be the first library; run it without fulgurite"
        );
    }
    let (below, flash) = below(args)?;
    let settings = RunSettings {
        pid: std::process::id(),
        dram_bytes: args.dram,
        below,
        flash_bytes: flash_bytes(args)?,
        threshold_bytes: args.threshold,
        explains: args.explain,
        small: args.small_blocks,
        objects_least: objects_least(args)?.unwrap_or(0),
        json: args.json,
        stats_ms: args.stats.map_or(0, |every| every.as_millis().max(1) as u64),
        backend: match args.mode {
            // Objects are served to the kernel as well.
            Mode::Auto if args.objects.is_some() => Wanted::Compatible,
            Mode::Auto => Wanted::Any,
            Mode::Compatible => Wanted::Compatible,
            Mode::InLine => Wanted::InLine,
        },
        preload_before: preload_before.clone(),
        flash,
    };
    let mut preload = library.into_os_string();
    if !preload_before.is_empty() {
        preload = OsString::from_iter([preload, ":".into(), preload_before.into()]);
    }
    let mut command = Command::new(&program);
    let error = command.arg0(name).args(words).env("LD_PRELOAD", preload).env(ENVIRONMENT, settings.to_text()).exec();
    Err(anyhow!(error).context(format!("cannot run {}", program.display())))
}

/// The library, which is next to this program or where it is installed.
fn library() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().unwrap_or(&own);
    let places = ["deps", ".", "../lib", "../lib/fulgurite"].map(|place| directory.join(place).join(LIBRARY));
    let found = places.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok());
    let shown = directory.display();
    found.ok_or_else(|| anyhow!("{LIBRARY} is not in {shown} nor in {shown}/../lib; install it next to this program"))
}

fn flash_bytes(args: &RunArgs) -> Result<u64> {
    let page = PAGE_BYTES as u64;
    let wanted = args.flash_size.unwrap_or(args.dram.saturating_mul(FLASH_TIMES));
    match wanted.checked_next_multiple_of(page).filter(|bytes| (page..16 << 40).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => bad_input!("--flash-size {wanted}: choose 64K or more, and less than 16T"),
    }
}

/// The smallest block that is an object, if any is.
fn objects_least(args: &RunArgs) -> Result<Option<u64>> {
    let most = fulgurite_alloc::OBJECT_BYTES_MAX as u64;
    match args.objects {
        Some(least) if !(1..=most).contains(&least) => bad_input!("--objects {least}: choose 1 to {most} bytes"),
        Some(_) if args.mode == Mode::InLine => bad_input!("--objects needs --mode compatible; leave --mode out"),
        least => Ok(least),
    }
}

/// What is below, and where.
fn below(args: &RunArgs) -> Result<(Below, PathBuf)> {
    let (option, given) = match (&args.pool, &args.flash) {
        (Some(pool), _) => ("--pool", pool),
        (None, Some(flash)) => ("--flash", flash),
        (None, None) => bad_input!("no flash; name a directory (--flash) or a pool (--pool)"),
    };
    let path = std::path::absolute(given).or_bad_input(|e| format!("{option}: {e}"))?;
    if path.to_str().is_none() {
        bad_input!("{option} {}: a path of this command is UTF-8; choose another", given.display());
    }
    if args.pool.is_some() {
        let below = if args.flash_size.is_some() { Below::Pool } else { Below::PartOfPool };
        return Ok((below, path));
    }
    if path.is_dir() {
        return Ok((Below::NewFile, path.join(format!("fulgurite-run-{}", std::process::id()))));
    }
    if path.symlink_metadata().is_ok() {
        bad_input!("--flash {}: it exists; name a directory, or a file to be made", given.display());
    }
    Ok((Below::NewFile, path))
}
