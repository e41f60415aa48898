//! Checks of paths before anything is created. Each failure is one sentence
//! ([`crate::bad_input::BadInput`], exit code 2).

use std::path::{Path, PathBuf};

use anyhow::Result;
use fulgurite_format::format_bytes;

use crate::args::OutputArgs;
use crate::bad_input::bad_input;
use crate::values::Output;

/// Files for results can be written.
pub fn outputs(args: &OutputArgs) -> Result<()> {
    if let Some(Output::File(path)) = &args.json {
        writable("--json", path)?;
    }
    if let Some(path) = &args.plot {
        if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("svg")) {
            bad_input!("--plot {} does not end in .svg; drawings are SVG", path.display());
        }
        writable("--plot", path)?;
    }
    Ok(())
}

/// A file can be written at `path`, tried under another name in its directory.
pub fn writable(option: &str, path: &Path) -> Result<()> {
    if path.file_name().is_none() {
        bad_input!("{option} {} is not a file name", path.display());
    }
    let parent = parent_of(path);
    if path.is_dir() {
        bad_input!("{option} {} is a directory; name a file", path.display());
    }
    if !parent.is_dir() {
        bad_input!("{option} {}: the directory {} does not exist", path.display(), parent.display());
    }
    if path.exists() && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err() {
        bad_input!("{option} {} cannot be written; choose another path", path.display());
    }
    // A special file (/dev/stdout, a pipe) is written as it is. Others are replaced by a new file.
    let special = path.exists() && !path.is_file();
    if !special && let Err(e) = tempfile::Builder::new().prefix(".fulgurite-").tempfile_in(&parent) {
        bad_input!("{option} {} cannot be written ({}); choose another path", path.display(), e.kind());
    }
    Ok(())
}

/// Checks that nothing exists where a temporary file is about to be made.
///
/// # Errors
/// [`crate::bad_input::BadInput`].
pub fn nothing_there(path: &Path) -> Result<()> {
    if std::fs::symlink_metadata(path).is_ok() {
        bad_input!("{} has come to be meanwhile and is not overwritten; name another path", path.display());
    }
    Ok(())
}

/// The directory of a path.
pub fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A directory's file system has room.
pub fn space(option: &str, directory: &Path, bytes: u64) -> Result<()> {
    let free = fulgurite_sys::DirectFile::free_bytes(directory)?;
    if free < bytes {
        let (needed, free, directory) = (format_bytes(bytes), format_bytes(free), directory.display());
        bad_input!("{option}: {needed} are needed in {directory}, where {free} are free; free some, or ask for less");
    }
    Ok(())
}
