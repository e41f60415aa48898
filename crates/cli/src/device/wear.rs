//! The file, beside `--data` or elsewhere, that keeps what of the NAND outlives the program: wear, failed blocks and their places, how far its log has come.
//!
//! Invariant: the file is whole: it is written under another name, synced, and renamed. After a kill it is the last one that was written, and
//! so up to [`EVERY`] old; the data themselves are not its matter.
//!
//! Not here: what the bytes say, and whether they are of this device (`fulgurite_nand::Fil::restore`).

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bad_input::bad_input;

/// How often it is written while a device is served.
pub const EVERY: Duration = Duration::from_secs(10);
/// More than any device's takes: 12 bytes for each of 2^24 blocks.
const BYTES_MAX: u64 = 256 << 20;

/// Where it is for a data file, when nobody says otherwise.
pub fn path_of(data: &Path) -> PathBuf {
    let mut path = data.as_os_str().to_owned();
    path.push(".nand");
    PathBuf::from(path)
}

/// What it holds; none where there is none.
///
/// # Errors
/// `BadInput` for what is no regular file, or too long; what the kernel says.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        Ok(found) if !found.is_file() => bad_input!("{} is no regular file; move it away", path.display()),
        Ok(found) if found.len() > BYTES_MAX => {
            bad_input!("{} is no state of a NAND device: it is too long; move it away", path.display())
        }
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Some(bytes))
}

/// Replaces it.
///
/// # Errors
/// What the kernel says; it is as it was then.
pub fn write(path: &Path, state: &[u8]) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let replaced = (|| {
        // What a program left that was killed meanwhile goes; no link is followed.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(state)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    })();
    replaced.with_context(|| format!("the NAND's state cannot be kept in {}", path.display()))
}

/// Says when it cannot be written, and that once until it could be.
#[derive(Debug, Default)]
pub struct Keeper {
    failed: bool,
}

impl Keeper {
    /// It was written, or not. Returns what is to be said: data are not its matter, so that the device goes on, and it is tried again.
    pub fn tried(&mut self, result: Result<()>) -> Option<String> {
        let was = std::mem::replace(&mut self.failed, result.is_err());
        result.err().filter(|_| !was).map(|error| {
            format!("fulgurite: {error:#}; the device goes on, and it is tried again every {} s", EVERY.as_secs())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_kept_is_said_once() {
        let mut keeper = Keeper::default();
        let full = || Err(anyhow::anyhow!("no space"));
        assert_eq!(keeper.tried(Ok(())), None);
        assert!(keeper.tried(full()).unwrap().contains("no space; the device goes on"));
        assert_eq!(keeper.tried(full()), None);
        assert_eq!(keeper.tried(Ok(())), None);
        assert!(keeper.tried(full()).is_some());
    }
    #[test]
    fn what_is_written_is_read_and_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let data = path_of(&directory.path().join("flash.img"));
        assert_eq!(read(&data).unwrap(), None);
        std::fs::write(directory.path().join("flash.img.nand.new"), "left over").unwrap();
        for state in [&b"one"[..], b"another"] {
            write(&data, state).unwrap();
            assert_eq!(read(&data).unwrap().as_deref(), Some(state));
        }
        assert!(!directory.path().join("flash.img.nand.new").exists());
        std::fs::remove_file(&data).unwrap();
        std::fs::create_dir(&data).unwrap();
        assert!(read(&data).unwrap_err().to_string().contains("no regular file"));
        assert!(write(&data, b"x").is_err());
    }
}
